//! Owns property M6: a read is answered by a leader that knows what is committed, and has applied it.
//! Never knows whether the leader still led by then; what clients see of that is for `linearizable`.

use std::rc::Rc;

use results::trace::{TraceDetail, TraceEvent};
use serde_json::json;

use crate::epoch_history::model::{Model, Node};
use crate::epoch_history::property::{Property, event_json};
use crate::epoch_history::rule::Rule;
use crate::seconds;

#[derive(Debug)]
pub(in crate::epoch_history) struct Reads {
    property: Property,
}

impl Reads {
    pub(in crate::epoch_history) fn new() -> Self {
        Self {
            property: Property::new(
                "M6",
                "a linearizable read is answered by a leader that has committed in its own epoch, from \
                 a state with all that was committed and nothing else",
                "Ongaro 2014, section 6.4 (read index)",
            ),
        }
    }
}

impl Rule for Reads {
    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        let TraceDetail::ReadServed {
            read_offset,
            applied,
        } = event.detail
        else {
            return;
        };
        let node = model.node(event);
        if node.lost {
            return;
        }
        self.property.checked += 1;
        let Some(wrong) = contradiction(node, read_offset, applied) else {
            return;
        };
        self.property.violated(event.time, || {
            let summary = format!(
                "{} answered a read at {}, but {wrong}",
                event.node,
                seconds(event.time)
            );
            let contradicts = json!({
                "leads_epoch": node.leads.map(|leads| leads.epoch),
                "epoch_start_offset": node.leads.and_then(|leads| leads.start),
                "high_watermark": node.leads.and_then(|leads| leads.high_watermark),
            });
            (summary, event_json(event), contradicts)
        });
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

/// What is not so, for people.
fn contradiction(node: &Node, read_offset: i64, applied: i64) -> Option<String> {
    let Some(leads) = node.leads else {
        return Some("did not lead".into());
    };
    let Some(high_watermark) = leads.high_watermark else {
        return Some(format!(
            "had not committed anything yet in the epoch {} that it led",
            leads.epoch
        ));
    };
    if read_offset > high_watermark || applied > high_watermark {
        return Some(format!(
            "from a state with everything below {}, while only what is below {high_watermark} was \
             committed",
            read_offset.max(applied)
        ));
    }
    (applied < read_offset).then(|| {
        format!(
            "from a state with only what is below {applied}, while everything below {read_offset} \
             was committed when it asked"
        )
    })
}
