//! Owns property M4: a fetch asks from the end of the log, and all of that is on disk.
//! Never looks at the answer; that is M5.

use std::rc::Rc;

use results::trace::TraceEvent;
use serde_json::json;

use super::sent;
use crate::epoch_history::log::batch_json;
use crate::epoch_history::model::Model;
use crate::epoch_history::property::{Property, event_json};
use crate::epoch_history::rule::Rule;
use crate::seconds;

#[derive(Debug)]
pub(in crate::epoch_history) struct FetchRequests {
    property: Property,
}

impl FetchRequests {
    pub(in crate::epoch_history) fn new() -> Self {
        Self {
            property: Property::new(
                "M4",
                "a fetch asks from the end of the log, names the epoch before it, and leaves only \
                 once everything below is on disk",
                "KIP-595; KAFKA-10533, KAFKA-17332",
            ),
        }
    }
}

impl Rule for FetchRequests {
    const LOOKS_AT_MESSAGES: bool = true;

    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        let Some((to, message)) = sent(event) else {
            return;
        };
        let (Some(offset), "fetch", false) =
            (message.offset, message.rpc.as_ref(), message.is_response)
        else {
            return;
        };
        let node = model.node(event);
        if node.lost {
            return;
        }
        self.property.checked += 1;
        let log_end = node.log.end();
        let own_epoch = node.log.last_epoch();
        let wrong = if offset != log_end {
            format!("its log ended at {log_end}")
        } else if offset > node.durable_end {
            format!("only what is below {} was on disk", node.durable_end)
        } else if let (Some(told), Some(own)) = (message.last_epoch, own_epoch)
            && told != own
        {
            format!("the record before that was of epoch {own}, not {told}")
        } else {
            return;
        };
        self.property.violated(event.time, || {
            let summary = format!(
                "{} fetched from {to} from offset {offset} on at {}, but {wrong}",
                event.node,
                seconds(event.time)
            );
            let contradicts = json!({
                "log_end": log_end,
                "durable_log_end": node.durable_end,
                "last_batch": node.log.at(log_end - 1).as_ref().map(batch_json),
            });
            (summary, event_json(event), contradicts)
        });
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}
