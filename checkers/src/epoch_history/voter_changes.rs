//! Owns property K1: voters change one at a time, and stay those of the log.
//! Never blames two leaders for changes that differ: only what is committed must follow one another.

use std::rc::Rc;

use results::trace::{Role, Started, TraceDetail, TraceEvent};
use serde_json::{Value, json};

use super::committed::Comparison;
use super::model::{Model, Outcome, ReportedVoters};
use super::property::{Property, event_json};
use super::rule::Rule;
use super::voter_history::{VoterEntry, VoterSet, changed_count, names_of, voter_set};
use crate::incarnations::is_another;
use crate::seconds;

#[derive(Debug)]
pub(super) struct VoterChanges {
    property: Property,
}

impl VoterChanges {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "K1",
                "voters are added and removed one at a time, each change committed before the next, \
                 those of the log are in force, and a leader that is removed leads until that is \
                 committed, no longer",
                "KIP-853; Ongaro 2014, section 4.1; Ongaro 2015, single-server changes (raft-dev)",
            ),
        }
    }
}

impl Rule for VoterChanges {
    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        match &event.detail {
            TraceDetail::Started(started) => self.check_restart(model, event, started),
            TraceDetail::Append { .. } => self.check_removed(model, event, Removed::LeadsOn),
            TraceDetail::RoleChange {
                role: Role::Resigned,
                reason: Some(reason),
                ..
            } if reason.starts_with(REASON_REMOVED) => {
                self.check_removed(model, event, Removed::Leaves);
            }
            _ => {}
        }
    }

    fn after(&mut self, model: &Model, event: &Rc<TraceEvent>, outcome: &Outcome) {
        if let TraceDetail::VotersAppended { offset, .. } = event.detail {
            self.check_append(model, event, offset);
        }
        for reported in &outcome.voters {
            self.check_committed(event, reported);
        }
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

/// How a leader begins to tell that it resigns because it is no voter any more.
const REASON_REMOVED: &str = "removed";

/// What a leader does that has removed itself.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Removed {
    LeadsOn,
    Leaves,
}

/// The voters before a change, if it adds or removes any: endpoints may change freely.
fn real_change<'entry>(
    (before, entry): (Option<&'entry VoterSet>, &'entry VoterEntry),
) -> Option<(&'entry VoterSet, &'entry VoterEntry)> {
    // Who does not know the voters yet learns of them; nothing changes by that.
    let before = before.filter(|before| !before.is_empty())?;
    (*before != entry.voters).then_some((before, entry))
}

impl VoterChanges {
    /// A leader changes the voters: it must have committed in its own epoch (the error in the
    /// single-server changes of 2014), and the change before must be committed.
    fn check_append(&mut self, model: &Model, event: &TraceEvent, offset: i64) {
        let node = model.node(event);
        let Some(leads) = node.leads.filter(|_| !node.lost) else {
            return;
        };
        let Some((before, entry)) = node.voters.changes_from(offset).find_map(real_change) else {
            return;
        };
        self.property.checked += 1;
        let Some(high_watermark) = leads.high_watermark else {
            self.property.violated(event.time, || {
                let summary = format!(
                    "{} changed the voters from {} to {} at {}, before it had committed anything \
                     in the epoch {} that it leads",
                    event.node,
                    names_of(before),
                    names_of(&entry.voters),
                    seconds(event.time),
                    leads.epoch
                );
                let contradicts = json!({"epoch_start_offset": leads.start});
                (summary, event_json(event), contradicts)
            });
            return;
        };
        let mut uncommitted = node.voters.changes_from(high_watermark);
        let earlier = uncommitted.find_map(real_change);
        if let Some((_, earlier)) = earlier.filter(|(_, earlier)| earlier.offset < offset) {
            self.property.violated(event.time, || {
                let summary = format!(
                    "{} changed the voters to {} at {}, while its change to {} at offset {} was \
                     not committed yet: its high watermark was {high_watermark}",
                    event.node,
                    names_of(&entry.voters),
                    seconds(event.time),
                    names_of(&earlier.voters),
                    earlier.offset
                );
                (summary, event_json(event), event_json(&earlier.event))
            });
        }
    }

    /// A leader that has removed itself commits that, and then resigns at once: nobody else may know of it
    /// before, and nobody has to follow a leader that is no voter afterwards.
    fn check_removed(&mut self, model: &Model, event: &TraceEvent, what: Removed) {
        let node = model.node(event);
        let Some(leads) = node
            .leads
            .filter(|leads| !node.lost && leads.epoch == event.epoch)
        else {
            return;
        };
        let Some((voters, Some(entry))) = node.voters.recorded_before(i64::MAX) else {
            return;
        };
        if voters.contains(event.node.as_str()) || voters.is_empty() {
            return;
        }
        self.property.checked += 1;
        let is_committed = leads.high_watermark.is_some_and(|end| end > entry.offset);
        let told = match (what, is_committed) {
            (Removed::LeadsOn, true) => "went on to lead",
            (Removed::Leaves, false) => "resigned",
            _ => return,
        };
        self.property.violated(event.time, || {
            let summary = format!(
                "{} {told} at {}, {} its own removal at offset {} was committed",
                event.node,
                seconds(event.time),
                if is_committed { "after" } else { "before" },
                entry.offset
            );
            (summary, event_json(event), event_json(&entry.event))
        });
    }

    fn check_committed(&mut self, event: &TraceEvent, reported: &ReportedVoters) {
        let entry = &reported.entry;
        if let Comparison::Differs(earlier) = &reported.comparison {
            self.property.violated(event.time, || {
                let summary = format!(
                    "voters were committed twice at offset {}: {} by {} at {} and {} by {} at {}",
                    entry.offset,
                    names_of(&earlier.voters),
                    earlier.event.node,
                    seconds(earlier.event.time),
                    names_of(&entry.voters),
                    event.node,
                    seconds(event.time)
                );
                (summary, event_json(event), event_json(&earlier.event))
            });
        }
        let Some((before, _)) = real_change((reported.before.as_ref(), entry)) else {
            return;
        };
        self.property.checked += 1;
        if changed_count(before, &entry.voters) > 1 {
            self.property.violated(event.time, || {
                let summary = format!(
                    "the committed voters changed by more than one at offset {}: from {} to {}, \
                     as {} reported at {}",
                    entry.offset,
                    names_of(before),
                    names_of(&entry.voters),
                    event.node,
                    seconds(event.time)
                );
                let contradicts = json!({
                    "voters_before": **before,
                    "appended": event_json(&entry.event),
                });
                (summary, event_json(event), contradicts)
            });
        }
    }

    /// What a node goes by when it comes back must be what its log (or the snapshot before) says.
    fn check_restart(&mut self, model: &Model, event: &TraceEvent, started: &Started) {
        let node = model.node(event);
        let Some(found) = started.voters.as_deref().map(voter_set) else {
            return;
        };
        let is_same_replica =
            !is_another(node.directory.as_deref(), started.directory_id.as_deref());
        let in_log = started.kraft_version.is_some_and(|version| version > 0);
        // What a node did last before it was killed may be on its disk, but not in its trace.
        let told_all = started.log_end <= node.log.end()
            && (started.log_start <= node.log.start()
                || node.snapshots.contains_key(&started.log_start));
        if node.lost || !is_same_replica || !in_log || !told_all {
            return;
        }
        let Some((last, record)) = node.voters.recorded_before(started.log_end) else {
            return;
        };
        self.property.checked += 1;
        if *last != found {
            self.property.violated(event.time, || {
                let place = record.map_or_else(
                    || "those of its snapshot".to_owned(),
                    |record| format!("the last in its log, at offset {},", record.offset),
                );
                let summary = format!(
                    "{} restarted at {} with the voters {}, but {place} were {}",
                    event.node,
                    seconds(event.time),
                    names_of(&found),
                    names_of(last)
                );
                let contradicts = record.map_or(Value::Null, |record| event_json(&record.event));
                (summary, event_json(event), contradicts)
            });
        }
    }
}
