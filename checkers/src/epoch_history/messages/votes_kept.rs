//! Owns property M1: a vote is on disk before anyone is told of it.
//! Never knows whether it really is: it takes the node's word for that.

use std::rc::Rc;

use results::trace::TraceEvent;
use serde_json::{Value, json};

use super::sent;
use crate::epoch_history::model::Model;
use crate::epoch_history::property::{Property, event_json};
use crate::epoch_history::rule::Rule;
use crate::seconds;

#[derive(Debug)]
pub(in crate::epoch_history) struct VotesKept {
    property: Property,
}

impl VotesKept {
    pub(in crate::epoch_history) fn new() -> Self {
        Self {
            property: Property::new(
                "M1",
                "a vote is on disk before it is granted, and a candidate's own before it asks",
                "KIP-595; Ongaro & Ousterhout 2014, figure 2",
            ),
        }
    }
}

impl Rule for VotesKept {
    const LOOKS_AT_MESSAGES: bool = true;

    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        let Some((to, message)) = sent(event).filter(|(_, message)| message.rpc == "vote") else {
            return;
        };
        let candidate = match (message.is_response, message.granted) {
            (false, _) => event.node.as_str(),
            (true, Some(true)) => to,
            (true, _) => return,
        };
        let node = model.node(event);
        let Some(epoch) = message.message_epoch.filter(|_| !node.lost) else {
            return;
        };
        self.property.checked += 1;
        let kept = node.votes.get(&epoch).map(String::as_str);
        if kept == Some(candidate) {
            return;
        }
        self.property.violated(event.time, || {
            let did = match message.is_response {
                true => format!("granted its vote of epoch {epoch} to {to}"),
                false => format!("asked {to} for its vote of epoch {epoch}"),
            };
            let had = kept.map_or_else(
                || "no vote of that epoch on disk".to_owned(),
                |kept| format!("a vote for {kept} on disk"),
            );
            let summary = format!(
                "{} {did} at {}, but had {had}",
                event.node,
                seconds(event.time)
            );
            let contradicts = kept.map_or(Value::Null, |kept| json!({"vote_on_disk": kept}));
            (summary, event_json(event), contradicts)
        });
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}
