//! Owns property S1: what is deleted from a log is covered by a snapshot, and snapshots only get newer.
//! Never asks what a snapshot holds; that is S2.

use std::collections::BTreeMap;

use std::rc::Rc;

use results::shared_text::SharedText;
use results::trace::{Started, TraceDetail, TraceEvent};
use serde_json::{Value, json};

use super::model::{Model, Node, Outcome};
use super::property::{Property, event_json};
use super::rule::Rule;
use crate::incarnations::is_another;
use crate::seconds;

#[derive(Debug)]
pub(super) struct LogStart {
    property: Property,
    /// The newest snapshot of every node, with the event that reported it.
    newest: BTreeMap<SharedText, (i64, Rc<TraceEvent>)>,
}

impl LogStart {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "S1",
                "a log that starts later starts where a snapshot ends, and a node's newest snapshot \
                 never gets older, restarts included",
                "KIP-630; KAFKA-14240, KAFKA-14238, KAFKA-15312",
            ),
            newest: BTreeMap::new(),
        }
    }
}

impl Rule for LogStart {
    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        if let TraceDetail::Started(started) = &event.detail {
            let node = model.node(event);
            if is_another(node.directory.as_deref(), started.directory_id.as_deref()) {
                self.newest.remove(event.node.as_str());
            }
        }
    }

    fn after(&mut self, model: &Model, event: &Rc<TraceEvent>, _outcome: &Outcome) {
        match &event.detail {
            TraceDetail::SnapshotFrozen { end_offset, .. }
            | TraceDetail::SnapshotInstalled { end_offset, .. } => {
                self.check_newest(event, *end_offset);
                self.newest
                    .insert(event.node.clone(), (*end_offset, event.clone()));
            }
            TraceDetail::LogStartAdvanced { log_start } => {
                self.check_start(model.node(event), event, *log_start);
            }
            TraceDetail::Started(started) => {
                self.check_started(model.node(event), event, started);
            }
            _ => {}
        }
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

impl LogStart {
    fn check_newest(&mut self, event: &TraceEvent, end_offset: i64) {
        self.property.checked += 1;
        if let Some((newest, reported)) = self.newest.get(event.node.as_str())
            && *newest > end_offset
        {
            self.property.violated(event.time, || {
                let summary = format!(
                    "the newest snapshot of {} ended at {newest} at {}, but at {end_offset} at {}",
                    event.node,
                    seconds(reported.time),
                    seconds(event.time)
                );
                (summary, event_json(event), event_json(reported))
            });
        }
    }

    fn check_started(&mut self, node: &Node, event: &TraceEvent, started: &Started) {
        // A node that does not tell of its snapshots may have any.
        let Some(snapshots) = &started.snapshots else {
            return;
        };
        if started.log_start > 0 {
            self.check_start(node, event, started.log_start);
        }
        if self.newest.contains_key(event.node.as_str()) {
            let found = snapshots.iter().map(|snapshot| snapshot.end_offset).max();
            self.check_newest(event, found.unwrap_or(0));
        }
    }

    fn check_start(&mut self, node: &Node, event: &TraceEvent, log_start: i64) {
        let tells_all = matches!(event.detail, TraceDetail::Started(_));
        if node.lost && !tells_all {
            return; // The snapshot may be among what is missing.
        }
        self.property.checked += 1;
        if node.snapshots.contains_key(&log_start) {
            return;
        }
        self.property.violated(event.time, || {
            let ends: Vec<i64> = node.snapshots.keys().copied().collect();
            let had = match ends.as_slice() {
                [] => "it had no snapshot".to_owned(),
                ends => format!("its snapshots end at {ends:?}"),
            };
            let summary = format!(
                "the log of {} started at {log_start} at {}, but {had}",
                event.node,
                seconds(event.time)
            );
            let contradicts = match ends.is_empty() {
                true => Value::Null,
                false => json!({"snapshots_end_at": ends}),
            };
            (summary, event_json(event), contradicts)
        });
    }
}
