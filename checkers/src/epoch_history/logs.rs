//! Owns the properties of logs and high watermarks: I2, I3, I6, K2, K3.
//! Never trusts the order of events of different nodes at the same time.

use std::collections::BTreeMap;

use results::trace::{Role, TraceDetail, TraceEvent};
use serde_json::{Value, json};

use super::log::{Batch, Identity, Log};
use super::property::{Property, event_json};
use crate::seconds;

/// What the trace tells about one node.
#[derive(Debug, Default)]
struct Node {
    log: Log,
    /// Everything below is on disk.
    durable_end: i64,
    /// Known high watermark of the present incarnation, with the event that reported it.
    high_watermark: Option<(i64, TraceEvent)>,
    /// Epoch it leads, and its log end at election, where known.
    leads: Option<(i32, Option<i64>)>,
    /// Below this offset its log was compared with what is committed.
    compared_below: i64,
    /// Events are missing, so that nothing can be held against it that depends on them.
    lost: bool,
}

/// A batch below a high watermark that some node reported.
#[derive(Debug)]
struct Committed {
    batch: Batch,
    /// Lowest epoch in which it was reported.
    epoch: i32,
    node: String,
    time: u64,
}

/// First report of a batch by (epoch, base offset).
#[derive(Debug)]
struct Appended {
    last_offset: i64,
    crc: u32,
    node: String,
    time: u64,
}

/// A leader's high watermark for which no majority was seen yet.
#[derive(Debug)]
struct Unsupported {
    event: TraceEvent,
    high_watermark: i64,
    last: Option<Batch>,
}

#[derive(Debug)]
pub(super) struct Logs {
    completeness: Property,
    matching: Property,
    majority: Property,
    no_retreat: Property,
    within_log: Property,
    voter_count: usize,
    nodes: BTreeMap<String, Node>,
    committed: BTreeMap<i64, Committed>,
    appended: BTreeMap<(i32, i64), Appended>,
    unsupported: Vec<Unsupported>,
    time: u64,
    /// When each node reported its last event: what it did afterwards nobody knows.
    ends: BTreeMap<String, u64>,
    /// What cannot be judged because of that.
    doubts: Vec<String>,
}

impl Logs {
    pub(super) fn new(voter_count: usize, ends: BTreeMap<String, u64>) -> Self {
        Self {
            completeness: Property::new(
                "I2",
                "a new leader holds everything committed in earlier epochs",
                "leader completeness, Ongaro & Ousterhout 2014; KIP-595",
            ),
            matching: Property::new(
                "I3",
                "same offset and epoch mean the same batch, and committed batches agree",
                "log matching, Ongaro & Ousterhout 2014; KIP-595",
            ),
            majority: Property::new(
                "I6",
                "a leader commits only what a majority has on disk, and only from its own epoch on",
                "KIP-595; KAFKA-12619; Ongaro & Ousterhout 2014, section 5.4.2",
            ),
            no_retreat: Property::new(
                "K2",
                "the high watermark never goes back, and committed data never changes",
                "KIP-595; KAFKA-10533",
            ),
            within_log: Property::new(
                "K3",
                "the high watermark is never beyond the end of the log",
                "KIP-595",
            ),
            voter_count,
            nodes: BTreeMap::new(),
            committed: BTreeMap::new(),
            appended: BTreeMap::new(),
            unsupported: Vec::new(),
            time: 0,
            ends,
            doubts: Vec::new(),
        }
    }

    /// Events of the node are missing just before the next one.
    pub(super) fn lose(&mut self, node: &str) {
        let node = self.nodes.entry(node.into()).or_default();
        node.log.forget();
        node.high_watermark = None;
        node.leads = None;
        node.lost = true;
    }

    pub(super) fn observe(&mut self, event: &TraceEvent) {
        if event.time != self.time {
            self.settle_unsupported();
            self.time = event.time;
        }
        self.nodes.entry(event.node.clone()).or_default();
        match &event.detail {
            TraceDetail::Started {
                role,
                log_start,
                log_end,
                ..
            } => self.started(event, *role, *log_start, *log_end),
            TraceDetail::RoleChange {
                role,
                epoch_start_offset,
                ..
            } => self.role_changed(event, *role, *epoch_start_offset),
            TraceDetail::Append {
                base_offset,
                last_offset,
                batch_epoch,
                crc,
            } => {
                let batch = Batch {
                    base_offset: *base_offset,
                    last_offset: *last_offset,
                    identity: Some(Identity {
                        epoch: *batch_epoch,
                        crc: *crc,
                    }),
                };
                self.appended(event, batch);
            }
            TraceDetail::Flush { log_end } => {
                let node = self.node(event);
                node.log.extend_unknown(*log_end);
                node.durable_end = *log_end;
            }
            TraceDetail::Truncate { log_end } => self.truncated(event, *log_end),
            TraceDetail::HighWatermark {
                high_watermark,
                log_end,
            } => self.high_watermark_moved(event, *high_watermark, *log_end),
            TraceDetail::VotePersisted { .. }
            | TraceDetail::EpochAdopted { .. }
            | TraceDetail::RefusedToStart { .. }
            | TraceDetail::Unknown => {}
        }
    }

    fn node(&mut self, event: &TraceEvent) -> &mut Node {
        self.nodes.entry(event.node.clone()).or_default()
    }

    /// A restart forgets the high watermark and may have lost what was not on disk.
    fn started(&mut self, event: &TraceEvent, role: Role, log_start: i64, log_end: i64) {
        let node = self.node(event);
        node.high_watermark = None;
        node.leads = (role == Role::Leader).then_some((event.epoch, None));
        node.log.cut(log_end);
        node.log.extend_unknown(log_start);
        node.log.extend_unknown(log_end);
        node.durable_end = log_end;
        node.compared_below = node.compared_below.min(log_end);
    }

    fn role_changed(&mut self, event: &TraceEvent, role: Role, epoch_start_offset: Option<i64>) {
        let node = self.node(event);
        if role != Role::Leader {
            node.leads = None;
            return;
        }
        node.leads = Some((event.epoch, epoch_start_offset));
        self.check_completeness(event);
    }

    fn check_completeness(&mut self, event: &TraceEvent) {
        let node = &self.nodes[&event.node];
        if node.lost {
            return;
        }
        let mut exercised = false;
        for committed in self.committed.values() {
            if committed.epoch >= event.epoch {
                continue;
            }
            exercised = true;
            let found = node.log.at(committed.batch.base_offset);
            if found.is_some_and(|found| may_be_same(found, &committed.batch)) {
                continue;
            }
            let summary = format!(
                "{} became leader of epoch {} at {} without offset {}, which {} had reported as \
                 committed in epoch {} at {}",
                event.node,
                event.epoch,
                seconds(event.time),
                committed.batch.base_offset,
                committed.node,
                committed.epoch,
                seconds(committed.time)
            );
            let contradicts = json!({
                "committed": committed_json(committed),
                "leader_has": found.map(batch_json),
            });
            self.completeness
                .violated(event.time, summary, event_json(event), contradicts);
            break;
        }
        self.completeness.checked += u64::from(exercised);
    }

    fn appended(&mut self, event: &TraceEvent, batch: Batch) {
        if batch.base_offset < self.node(event).log.end() {
            // Written over what was there, so what was there is gone.
            self.truncated(event, batch.base_offset);
        }
        self.check_matching(event, &batch);
        self.node(event).log.append(batch);
    }

    fn check_matching(&mut self, event: &TraceEvent, batch: &Batch) {
        let Some(identity) = batch.identity else {
            return;
        };
        self.matching.checked += 1;
        let key = |offset| (identity.epoch, offset);
        let overlapping = self
            .appended
            .range(key(i64::MIN)..=key(batch.last_offset))
            .next_back()
            .filter(|(_, earlier)| earlier.last_offset >= batch.base_offset);
        let Some(((_, base_offset), earlier)) = overlapping else {
            self.appended.insert(
                key(batch.base_offset),
                Appended {
                    last_offset: batch.last_offset,
                    crc: identity.crc,
                    node: event.node.clone(),
                    time: event.time,
                },
            );
            return;
        };
        let same = *base_offset == batch.base_offset
            && earlier.last_offset == batch.last_offset
            && earlier.crc == identity.crc;
        if same {
            return;
        }
        let summary = format!(
            "offset {} of epoch {} is not the same everywhere: {} appended another batch there at \
             {} than {} had at {}",
            batch.base_offset,
            identity.epoch,
            event.node,
            seconds(event.time),
            earlier.node,
            seconds(earlier.time)
        );
        let contradicts = json!({
            "node": earlier.node,
            "time": earlier.time,
            "base_offset": base_offset,
            "last_offset": earlier.last_offset,
            "epoch": identity.epoch,
            "crc": earlier.crc,
        });
        self.matching
            .violated(event.time, summary, event_json(event), contradicts);
    }

    fn truncated(&mut self, event: &TraceEvent, log_end: i64) {
        self.no_retreat.checked += 1;
        let node = &self.nodes[&event.node];
        let below_own = node
            .high_watermark
            .as_ref()
            .filter(|(high_watermark, _)| *high_watermark > log_end);
        let removed_committed = node
            .log
            .range(log_end, i64::MAX)
            .iter()
            .filter(|batch| batch.identity.is_some())
            .find_map(|batch| {
                self.committed
                    .get(&batch.base_offset)
                    .filter(|committed| committed.batch == *batch)
            });
        if let Some((high_watermark, reported)) = below_own {
            let summary = format!(
                "{} cut its log back to {log_end} at {}, below its own high watermark of \
                 {high_watermark}",
                event.node,
                seconds(event.time)
            );
            self.no_retreat
                .violated(event.time, summary, event_json(event), event_json(reported));
        } else if let Some(committed) = removed_committed {
            let summary = format!(
                "{} removed offset {} at {}, which {} had reported as committed at {}",
                event.node,
                committed.batch.base_offset,
                seconds(event.time),
                committed.node,
                seconds(committed.time)
            );
            self.no_retreat.violated(
                event.time,
                summary,
                event_json(event),
                committed_json(committed),
            );
        }
        let node = self.node(event);
        node.log.cut(log_end);
        node.durable_end = node.durable_end.min(log_end);
        node.compared_below = node.compared_below.min(log_end);
    }

    fn high_watermark_moved(&mut self, event: &TraceEvent, high_watermark: i64, log_end: i64) {
        self.within_log.checked += 1;
        if high_watermark > log_end {
            let summary = format!(
                "{} had a high watermark of {high_watermark} at {}, but its log ended at {log_end}",
                event.node,
                seconds(event.time)
            );
            self.within_log
                .violated(event.time, summary, event_json(event), Value::Null);
        }
        self.no_retreat.checked += 1;
        let before = &self.nodes[&event.node].high_watermark;
        if let Some((earlier, reported)) = before
            && *earlier > high_watermark
        {
            let summary = format!(
                "the high watermark of {} went back from {earlier} (at {}) to {high_watermark} \
                 (at {})",
                event.node,
                seconds(reported.time),
                seconds(event.time)
            );
            let contradicts = event_json(reported);
            self.no_retreat
                .violated(event.time, summary, event_json(event), contradicts);
        }
        self.node(event).high_watermark = Some((high_watermark, event.clone()));
        self.compare_committed(event, high_watermark);
        self.check_majority(event, high_watermark);
    }

    /// Compares what the node now reports as committed with what was reported before.
    fn compare_committed(&mut self, event: &TraceEvent, high_watermark: i64) {
        let node = &self.nodes[&event.node];
        let batches: Vec<Batch> = node
            .log
            .range(node.compared_below, high_watermark)
            .iter()
            .filter(|batch| batch.identity.is_some() && batch.last_offset < high_watermark)
            .copied()
            .collect();
        for batch in batches {
            self.commit(event, batch);
        }
        let node = self.node(event);
        node.compared_below = node.compared_below.max(high_watermark);
    }

    fn commit(&mut self, event: &TraceEvent, batch: Batch) {
        let overlapping = self
            .committed
            .range_mut(..=batch.last_offset)
            .next_back()
            .map(|(_, committed)| committed)
            .filter(|committed| committed.batch.last_offset >= batch.base_offset);
        let Some(committed) = overlapping else {
            self.committed.insert(
                batch.base_offset,
                Committed {
                    batch,
                    epoch: event.epoch,
                    node: event.node.clone(),
                    time: event.time,
                },
            );
            return;
        };
        if committed.batch == batch {
            committed.epoch = committed.epoch.min(event.epoch);
            return;
        }
        let summary = format!(
            "offset {} was committed twice: {} at {} and {} at {} report different batches",
            batch.base_offset,
            committed.node,
            seconds(committed.time),
            event.node,
            seconds(event.time)
        );
        let here = json!({"event": event_json(event), "batch": batch_json(&batch)});
        let contradicts = committed_json(committed);
        self.matching.violated(
            event.time,
            summary.clone(),
            here.clone(),
            contradicts.clone(),
        );
        self.no_retreat
            .violated(event.time, summary, here, contradicts);
    }

    fn check_majority(&mut self, event: &TraceEvent, high_watermark: i64) {
        let node = &self.nodes[&event.node];
        let Some((epoch, epoch_start_offset)) = node.leads else {
            return;
        };
        self.majority.checked += 1;
        if let Some(start) = epoch_start_offset
            && high_watermark <= start
        {
            let summary = format!(
                "{}, leader of epoch {epoch}, set its high watermark to {high_watermark} at {}, \
                 but nothing of its own epoch is below that: the epoch starts at {start}",
                event.node,
                seconds(event.time)
            );
            self.majority.violated(
                event.time,
                summary,
                event_json(event),
                json!({"epoch_start_offset": start}),
            );
        }
        let last = node.log.at(high_watermark - 1).copied();
        if !self.has_majority(high_watermark, last.as_ref()) {
            // Another node's flush may carry the same time and stand behind.
            self.unsupported.push(Unsupported {
                event: event.clone(),
                high_watermark,
                last,
            });
        }
    }

    fn has_majority(&self, high_watermark: i64, last: Option<&Batch>) -> bool {
        let supporting = self.supporters(high_watermark, last).len();
        // A voter that left no trace may have anything on its disk.
        let silent = self.voter_count.saturating_sub(self.nodes.len());
        supporting + silent > self.voter_count / 2
    }

    fn supporters(&self, high_watermark: i64, last: Option<&Batch>) -> Vec<&str> {
        self.nodes
            .iter()
            .filter(|(_, node)| {
                let same = match (node.log.at(high_watermark - 1), last) {
                    (Some(one), Some(other)) => may_be_same(one, other),
                    _ => true,
                };
                node.lost || (node.durable_end >= high_watermark && same)
            })
            .map(|(name, _)| name.as_str())
            .collect()
    }

    /// Everything at the present time is known: what still has no majority is a violation.
    pub(super) fn settle_unsupported(&mut self) {
        for claim in std::mem::take(&mut self.unsupported) {
            if self.has_majority(claim.high_watermark, claim.last.as_ref()) {
                continue;
            }
            let supporters = self.supporters(claim.high_watermark, claim.last.as_ref());
            let silent = self.silent_others(&supporters, claim.event.time);
            if supporters.len() + silent.len() > self.voter_count / 2 {
                let doubt = format!(
                    "{} set its high watermark to {} at {}, after the traces of {} end",
                    claim.event.node,
                    claim.high_watermark,
                    seconds(claim.event.time),
                    silent.join(", ")
                );
                self.doubts.push(doubt);
                continue;
            }
            let on_disk: BTreeMap<&str, i64> = self
                .nodes
                .iter()
                .map(|(name, node)| (name.as_str(), node.durable_end))
                .collect();
            let summary = format!(
                "{} set its high watermark to {} in epoch {} at {}, but only {} of {} voters had \
                 that on disk ({})",
                claim.event.node,
                claim.high_watermark,
                claim.event.epoch,
                seconds(claim.event.time),
                supporters.len(),
                self.voter_count,
                if supporters.is_empty() {
                    "none".to_owned()
                } else {
                    supporters.join(", ")
                }
            );
            let contradicts = json!({
                "durable_log_end": on_disk,
                "batch": claim.last.as_ref().map(batch_json),
            });
            self.majority.violated(
                claim.event.time,
                summary,
                event_json(&claim.event),
                contradicts,
            );
        }
    }

    /// Nodes besides `known` that reported nothing at `time` or later: dead, or their trace is cut.
    fn silent_others(&self, known: &[&str], time: u64) -> Vec<&str> {
        let ended = self.ends.iter().filter(|(_, end)| **end < time);
        ended
            .map(|(name, _)| name.as_str())
            .filter(|name| !known.contains(name))
            .collect()
    }

    /// What could not be judged because traces end early.
    pub(super) fn take_doubts(&mut self) -> Vec<String> {
        std::mem::take(&mut self.doubts)
    }

    pub(super) fn into_properties(self) -> [Property; 5] {
        [
            self.completeness,
            self.matching,
            self.majority,
            self.no_retreat,
            self.within_log,
        ]
    }
}

/// Whether nothing that is known tells the two apart.
fn may_be_same(one: &Batch, other: &Batch) -> bool {
    one.identity.is_none() || other.identity.is_none() || one == other
}

fn batch_json(batch: &Batch) -> Value {
    json!({
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "epoch": batch.identity.map(|identity| identity.epoch),
        "crc": batch.identity.map(|identity| identity.crc),
    })
}

fn committed_json(committed: &Committed) -> Value {
    json!({
        "batch": batch_json(&committed.batch),
        "reported_by": committed.node,
        "reported_at": committed.time,
        "reported_in_epoch": committed.epoch,
    })
}
