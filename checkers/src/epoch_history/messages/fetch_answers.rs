//! Owns property M5: a leader answers fetches from its own log and with a high watermark that it has.
//! Never asks whether the answer suits the request.

use std::rc::Rc;

use results::trace::{Message, TraceEvent};
use serde_json::json;

use super::sent;
use crate::epoch_history::model::{Model, Node};
use crate::epoch_history::property::{Property, event_json};
use crate::epoch_history::rule::Rule;
use crate::seconds;

#[derive(Debug)]
pub(in crate::epoch_history) struct FetchAnswers {
    property: Property,
}

impl FetchAnswers {
    pub(in crate::epoch_history) fn new() -> Self {
        Self {
            property: Property::new(
                "M5",
                "only the leader of an epoch answers its fetches, with records of its log and with a \
                 high watermark that it has",
                "KIP-595; KAFKA-15100, KAFKA-18723",
            ),
        }
    }
}

impl Rule for FetchAnswers {
    const LOOKS_AT_MESSAGES: bool = true;

    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        let Some((to, message)) = sent(event) else {
            return;
        };
        let node = model.node(event);
        let succeeds = message.rpc == "fetch" && message.is_response && message.error.is_none();
        if !succeeds || node.lost {
            return;
        }
        self.property.checked += 1;
        let Some(wrong) = contradiction(node, message) else {
            return;
        };
        self.property.violated(event.time, || {
            let summary = format!(
                "{} answered a fetch of {to} at {}, but {wrong}",
                event.node,
                seconds(event.time)
            );
            let contradicts = json!({
                "leads_epoch": node.leads.map(|leads| leads.epoch),
                "log_start": node.log.start(),
                "log_end": node.log.end(),
                "high_watermark": node.known_high_watermark(),
            });
            (summary, event_json(event), contradicts)
        });
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

/// What in the answer is not so, for people.
fn contradiction(node: &Node, message: &Message) -> Option<String> {
    let told = message.message_epoch;
    let leads = node.leads.map(|leads| leads.epoch);
    if leads.is_none() || told.is_some_and(|told| leads != Some(told)) {
        let epoch = told.map_or_else(|| "that epoch".to_owned(), |epoch| format!("epoch {epoch}"));
        return Some(format!("it does not lead {epoch}"));
    }
    if let (Some(from), Some(end)) = (message.offset, message.end_offset)
        && (from < node.log.start() || end > node.log.end())
    {
        return Some(format!(
            "with the records from {from} up to {end}, while its log reached from {} up to {}",
            node.log.start(),
            node.log.end()
        ));
    }
    let committed_end = node.committed_end();
    let high_watermark = message.high_watermark?;
    (high_watermark > committed_end).then(|| {
        format!(
            "with a high watermark of {high_watermark}, while it knew only what is below \
             {committed_end} to be committed"
        )
    })
}
