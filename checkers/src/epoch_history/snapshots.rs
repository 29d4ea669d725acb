//! Owns property S2: a snapshot holds what is committed below its end, and the same on every node.
//! Never looks into a snapshot: nodes report a hash of the state.

use std::collections::BTreeMap;

use std::rc::Rc;

use results::trace::{TraceDetail, TraceEvent};
use serde_json::{Value, json};

use super::model::{Model, Outcome};
use super::property::{Property, event_json};
use super::rule::Rule;
use super::voter_history::{names_of, voter_set};
use crate::seconds;

/// What an event tells of a snapshot.
#[derive(Debug, Clone)]
struct Snapshot {
    end_offset: i64,
    last_epoch: i32,
    digest: String,
    event: Rc<TraceEvent>,
}

#[derive(Debug)]
pub(super) struct Snapshots {
    property: Property,
    /// The first report of a snapshot by end offset.
    first: BTreeMap<i64, Snapshot>,
    /// All reports, to be compared with what is committed once all of that is known.
    reported: Vec<Snapshot>,
}

impl Snapshots {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "S2",
                "a snapshot ends with a committed batch, bears its epoch, and holds the same state on \
                 every node, with the voters in force at its end",
                "KIP-630; KIP-853; KAFKA-14618, KAFKA-14619",
            ),
            first: BTreeMap::new(),
            reported: Vec::new(),
        }
    }
}

impl Rule for Snapshots {
    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        if let TraceDetail::SnapshotFrozen { end_offset, .. } = event.detail {
            self.check_is_committed(model, event, end_offset);
        }
    }

    fn after(&mut self, _model: &Model, event: &Rc<TraceEvent>, _outcome: &Outcome) {
        let (TraceDetail::SnapshotFrozen {
            end_offset,
            last_epoch,
            digest,
        }
        | TraceDetail::SnapshotInstalled {
            end_offset,
            last_epoch,
            digest,
            ..
        }) = &event.detail
        else {
            return;
        };
        let snapshot = Snapshot {
            end_offset: *end_offset,
            last_epoch: *last_epoch,
            digest: digest.clone(),
            event: event.clone(),
        };
        self.compare(&snapshot);
        self.reported.push(snapshot);
    }

    fn finish(mut self, model: &Model, complete: bool) -> Vec<Property> {
        for snapshot in std::mem::take(&mut self.reported) {
            self.check_end(model, &snapshot);
            // The change of voters that a snapshot should name may be among what was lost.
            if complete {
                self.check_voters(model, &snapshot.event);
            }
        }
        vec![self.property]
    }
}

impl Snapshots {
    /// Speculative state must not get into a snapshot.
    fn check_is_committed(&mut self, model: &Model, event: &TraceEvent, end_offset: i64) {
        let node = model.node(event);
        if node.lost {
            return;
        }
        self.property.checked += 1;
        let committed_end = node.committed_end();
        if end_offset > committed_end {
            self.property.violated(event.time, || {
                let summary = format!(
                    "{} took a snapshot that ends at {end_offset} at {}, but knew only what is \
                     below {committed_end} to be committed",
                    event.node,
                    seconds(event.time)
                );
                let reported = node
                    .high_watermark
                    .as_ref()
                    .map(|(_, reported)| event_json(reported));
                (summary, event_json(event), reported.unwrap_or(Value::Null))
            });
        }
    }

    /// Compares it with the first snapshot that ends there.
    fn compare(&mut self, snapshot: &Snapshot) {
        let Some(first) = self.first.get(&snapshot.end_offset) else {
            self.first.insert(snapshot.end_offset, snapshot.clone());
            return;
        };
        self.property.checked += 1;
        let differing = if first.last_epoch != snapshot.last_epoch {
            "epochs"
        } else if first.digest != snapshot.digest {
            "states"
        } else {
            return;
        };
        let (event, end_offset) = (&snapshot.event, snapshot.end_offset);
        self.property.violated(event.time, || {
            let summary = format!(
                "two snapshots that end at {end_offset} have different {differing}: that of {} at \
                 {} (epoch {}, state {}) and that of {} at {} (epoch {}, state {})",
                first.event.node,
                seconds(first.event.time),
                first.last_epoch,
                first.digest,
                event.node,
                seconds(event.time),
                snapshot.last_epoch,
                snapshot.digest
            );
            (summary, event_json(event), event_json(&first.event))
        });
    }

    /// The last record it covers is committed, the last of its batch, and of its epoch.
    fn check_end(&mut self, model: &Model, snapshot: &Snapshot) {
        let (event, end_offset) = (&snapshot.event, snapshot.end_offset);
        let Some(last) = model.committed.at(end_offset - 1) else {
            return; // Reported by nobody whose trace there is.
        };
        self.property.checked += 1;
        let epoch = last.batch.identity.map(|identity| identity.epoch);
        let wrong = if epoch.is_some_and(|epoch| epoch != snapshot.last_epoch) {
            format!(
                "names epoch {}, but the record before its end is of epoch {}",
                snapshot.last_epoch,
                epoch.unwrap_or_default()
            )
        } else if last.batch.last_offset != end_offset - 1 {
            format!(
                "ends within the batch of offsets {} to {}",
                last.batch.base_offset, last.batch.last_offset
            )
        } else {
            return;
        };
        self.property.violated(event.time, || {
            let summary = format!(
                "the snapshot of {} at {} that ends at {end_offset} {wrong}",
                event.node,
                seconds(event.time)
            );
            (summary, event_json(event), last.json())
        });
    }

    /// A downloaded snapshot names the voters that are in force at its end.
    fn check_voters(&mut self, model: &Model, event: &TraceEvent) {
        let TraceDetail::SnapshotInstalled {
            end_offset, voters, ..
        } = &event.detail
        else {
            return;
        };
        let Some((offset, committed)) = model.committed.voters_before(*end_offset) else {
            return;
        };
        self.property.checked += 1;
        let named = voters.as_deref().map(voter_set);
        if named.as_ref() == Some(&committed.voters) {
            return;
        }
        self.property.violated(event.time, || {
            let named = named.map_or_else(|| "none".to_owned(), |voters| names_of(&voters));
            let summary = format!(
                "the snapshot that {} installed at {} ends at {end_offset} and names as voters \
                 {named}, but those in force there, by the record at offset {offset}, are {}",
                event.node,
                seconds(event.time),
                names_of(&committed.voters)
            );
            let contradicts = json!({
                "offset": offset,
                "voters": *committed.voters,
                "reported": event_json(&committed.event),
            });
            (summary, event_json(event), contradicts)
        });
    }
}
