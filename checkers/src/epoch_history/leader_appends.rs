//! Owns property I4: a leader only ever appends to its log.
//! Never looks at the beginning of a log, which snapshots may replace; that is S1.

use std::rc::Rc;

use results::trace::{TraceDetail, TraceEvent};
use serde_json::json;

use super::model::Model;
use super::property::{Property, event_json};
use super::rule::Rule;
use crate::seconds;

#[derive(Debug)]
pub(super) struct LeaderAppends {
    property: Property,
}

impl LeaderAppends {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "I4",
                "a leader only appends to its log: it neither cuts it nor writes over it",
                "KIP-595; leader append-only, Ongaro & Ousterhout 2014",
            ),
        }
    }
}

impl Rule for LeaderAppends {
    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        let is_change = matches!(
            event.detail,
            TraceDetail::Append { .. }
                | TraceDetail::Truncate { .. }
                | TraceDetail::SnapshotInstalled { .. }
        );
        if !is_change {
            return;
        }
        let node = model.node(event);
        // In an epoch that it has adopted since, it leads no more.
        let leads = node.leads.is_some_and(|leads| leads.epoch == event.epoch);
        if !leads || node.lost {
            return;
        }
        self.property.checked += 1;
        let Some(end) = model.cut_by(event) else {
            return;
        };
        self.property.violated(event.time, || {
            let log_end = node.log.end();
            let summary = format!(
                "{} led epoch {} and removed what was in its log from {end} on, up to {log_end}, at {}",
                event.node,
                event.epoch,
                seconds(event.time)
            );
            (summary, event_json(event), json!({ "log_end": log_end }))
        });
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}
