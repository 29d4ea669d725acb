//! Owns the invariants that can be checked event by event while a run goes on, at little cost.
//! Never takes the place of the checkers that judge a run afterwards; it only says when to stop.

mod log;

use std::collections::BTreeMap;

use results::history::{Operation, Process};
use results::shared_text::{SharedText, position};
use results::trace::{Role, Started, TraceDetail, TraceEvent};

use crate::incarnations::is_another;
use log::{Batch, Log};

/// How many batches before the end are looked at before a search through all of them.
const NEAR_END_COUNT: usize = 8;

/// Name of the history line by which a simulated world records why it stands still from there on, in the
/// text `reason`.
pub const HALTED: &str = "halted";

/// Why the world stood still before its time, for people; `None` if it did not.
pub fn halted(history: &[Operation]) -> Option<&str> {
    let last = history.last()?;
    let halted = last.process == Process::Nemesis && last.f == HALTED;
    halted.then(|| {
        last.value["reason"]
            .as_str()
            .unwrap_or("for no reason given")
    })
}

/// What must not happen, and did.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Violation {
    /// Id of the invariant, as the epoch-history checker names it.
    pub property: &'static str,
    /// For people.
    pub summary: String,
}

/// Watches the traces of all nodes. No event may be missing, and they come in the order of their times.
#[derive(Debug, Default)]
pub struct Monitor {
    names: Vec<SharedText>,
    nodes: Vec<Node>,
    /// First leader heard of, by epoch.
    leaders: BTreeMap<i32, String>,
    /// Batches that some node reported as committed, with the lowest epoch it was in, ascending.
    committed: Vec<(Batch, i32)>,
}

#[derive(Debug, Default)]
struct Node {
    /// Its data directory, where it tells.
    directory: Option<String>,
    epoch: i32,
    /// Latest vote.
    vote: Option<(i32, String)>,
    log: Log,
    high_watermark: Option<i64>,
    /// While it leads: where its epoch starts.
    epoch_start: Option<i64>,
}

impl Monitor {
    /// Takes the next event. Returns what it violates, if anything.
    pub fn observe(&mut self, event: &TraceEvent) -> Option<Violation> {
        let position = self.position(&event.node);
        let outcome = match &event.detail {
            // What is said about a message carries the epoch at the end of the step that it belongs to.
            TraceDetail::RefusedToStart { .. }
            | TraceDetail::RpcSent { .. }
            | TraceDetail::RpcReceived { .. }
            | TraceDetail::Unknown => return None,
            TraceDetail::Started(started) => {
                let Started {
                    role,
                    log_end,
                    voted_for,
                    leader,
                    directory_id,
                    ..
                } = started.as_ref();
                let node = &mut self.nodes[position];
                if is_another(node.directory.as_deref(), directory_id.as_deref()) {
                    // With another directory it is another replica, of which nothing is known (KIP-853).
                    *node = Node::default();
                }
                node.directory = directory_id.clone().or(node.directory.take());
                node.high_watermark = None;
                node.epoch_start = None;
                if node.log.end() != *log_end {
                    node.log.ends_at(*log_end);
                }
                self.leader_named(event, leader.as_deref())
                    .and_then(|()| self.voted(position, event, voted_for.as_deref()))
                    .and_then(|()| self.role_taken(position, event, *role, None))
            }
            TraceDetail::RoleChange {
                role,
                leader,
                epoch_start_offset,
                ..
            } => self
                .leader_named(event, leader.as_deref())
                .and_then(|()| self.role_taken(position, event, *role, *epoch_start_offset)),
            TraceDetail::VotePersisted { candidate } => {
                self.voted(position, event, Some(candidate))
            }
            TraceDetail::EpochAdopted { leader } => self.leader_named(event, leader.as_deref()),
            TraceDetail::Append {
                base_offset,
                last_offset,
                batch_epoch,
                crc,
            } => {
                let batch = Batch {
                    base_offset: *base_offset,
                    last_offset: *last_offset,
                    epoch: *batch_epoch,
                    crc: *crc,
                };
                self.cut(position, event, *base_offset)
                    .map(|()| self.nodes[position].log.append(batch))
            }
            TraceDetail::Truncate { log_end } => self
                .cut(position, event, *log_end)
                .map(|()| self.nodes[position].log.ends_at(*log_end)),
            TraceDetail::HighWatermark {
                high_watermark,
                log_end,
            } => self.committed(position, event, *high_watermark, *log_end),
            // What the snapshot holds is compared afterwards; the log goes on after it.
            TraceDetail::SnapshotInstalled { end_offset, .. } => {
                self.nodes[position].log.replaced(*end_offset);
                Ok(())
            }
            _ => Ok(()),
        };
        outcome
            .and_then(|()| self.epoch_kept(position, event))
            .err()
    }

    fn position(&mut self, name: &SharedText) -> usize {
        if let Some(position) = position(self.names.iter(), name) {
            return position;
        }
        self.names.push(name.clone());
        self.nodes.push(Node::default());
        self.nodes.len() - 1
    }

    fn leader_named(&mut self, event: &TraceEvent, leader: Option<&str>) -> Result<(), Violation> {
        let Some(leader) = leader else {
            return Ok(());
        };
        match self.leaders.get(&event.epoch) {
            Some(first) if first != leader => violation(
                "I1",
                format!(
                    "epoch {} has two leaders: {first} and {leader}",
                    event.epoch
                ),
            ),
            Some(_) => Ok(()),
            None => {
                self.leaders.insert(event.epoch, leader.to_owned());
                Ok(())
            }
        }
    }

    fn role_taken(
        &mut self,
        position: usize,
        event: &TraceEvent,
        role: Role,
        epoch_start: Option<i64>,
    ) -> Result<(), Violation> {
        self.nodes[position].epoch_start = epoch_start.filter(|_| role == Role::Leader);
        if matches!(role, Role::Leader | Role::Candidate) {
            self.voted(position, event, Some(&event.node))?;
        }
        if role != Role::Leader {
            return Ok(());
        }
        self.leader_named(event, Some(&event.node))?;
        let log = &self.nodes[position].log;
        let earlier = self.committed.iter().rev();
        let last = earlier.take(64).find(|(_, epoch)| *epoch < event.epoch);
        match last {
            Some((batch, _)) if batch.last_offset >= log.end() || !log.may_hold(batch) => {
                violation(
                    "I2",
                    format!(
                        "{} became leader of epoch {} without the committed offset {}",
                        event.node, event.epoch, batch.base_offset
                    ),
                )
            }
            _ => Ok(()),
        }
    }

    fn voted(
        &mut self,
        position: usize,
        event: &TraceEvent,
        candidate: Option<&str>,
    ) -> Result<(), Violation> {
        let Some(candidate) = candidate else {
            return Ok(());
        };
        let vote = &mut self.nodes[position].vote;
        match vote {
            Some((epoch, first)) if *epoch == event.epoch && first != candidate => violation(
                "K6",
                format!(
                    "{} voted twice in epoch {epoch}: for {first} and for {candidate}",
                    event.node
                ),
            ),
            Some((epoch, _)) if *epoch >= event.epoch => Ok(()),
            _ => {
                *vote = Some((event.epoch, candidate.to_owned()));
                Ok(())
            }
        }
    }

    fn cut(&self, position: usize, event: &TraceEvent, log_end: i64) -> Result<(), Violation> {
        match self.nodes[position].high_watermark {
            Some(high_watermark) if high_watermark > log_end => violation(
                "K2",
                format!(
                    "{} cut its log back to {log_end}, below its high watermark {high_watermark}",
                    event.node
                ),
            ),
            _ => Ok(()),
        }
    }

    fn committed(
        &mut self,
        position: usize,
        event: &TraceEvent,
        high_watermark: i64,
        log_end: i64,
    ) -> Result<(), Violation> {
        let node = &mut self.nodes[position];
        if high_watermark > log_end {
            return violation(
                "K3",
                format!(
                    "{} has a high watermark of {high_watermark}, beyond its log end {log_end}",
                    event.node
                ),
            );
        }
        if node
            .high_watermark
            .is_some_and(|before| before > high_watermark)
        {
            return violation(
                "K2",
                format!(
                    "the high watermark of {} went back to {high_watermark}",
                    event.node
                ),
            );
        }
        if node
            .epoch_start
            .is_some_and(|start| high_watermark <= start)
        {
            return violation(
                "I6",
                format!(
                    "{} leads epoch {} and committed up to {high_watermark}, nothing of which is \
                     of its own epoch",
                    event.node, event.epoch
                ),
            );
        }
        node.high_watermark = Some(high_watermark);
        if node.log.end() < log_end {
            // A snapshot took the place of the log that was known.
            node.log.ends_at(log_end);
        }
        for batch in node.log.take_below(high_watermark) {
            agree(&mut self.committed, batch, event)?;
        }
        Ok(())
    }

    fn epoch_kept(&mut self, position: usize, event: &TraceEvent) -> Result<(), Violation> {
        let epoch = &mut self.nodes[position].epoch;
        if event.epoch < *epoch {
            return violation(
                "I5",
                format!(
                    "{} went back from epoch {epoch} to {}",
                    event.node, event.epoch
                ),
            );
        }
        *epoch = event.epoch;
        Ok(())
    }
}

/// Compares a batch that a node takes for committed with what others do.
fn agree(
    committed: &mut Vec<(Batch, i32)>,
    batch: Batch,
    event: &TraceEvent,
) -> Result<(), Violation> {
    // What nodes report is mostly what was committed last.
    let near_end = committed.iter().rev().take(NEAR_END_COUNT);
    let above = near_end.take_while(|(known, _)| known.last_offset >= batch.base_offset);
    let at = match above.count() {
        NEAR_END_COUNT => {
            committed.partition_point(|(known, _)| known.last_offset < batch.base_offset)
        }
        count => committed.len() - count,
    };
    match committed.get_mut(at) {
        Some((known, epoch)) if *known == batch => {
            *epoch = event.epoch.min(*epoch);
            Ok(())
        }
        Some((known, _)) if known.base_offset <= batch.last_offset => violation(
            "I3",
            format!(
                "offset {} was committed twice: {} has another batch there than was reported before",
                batch.base_offset, event.node
            ),
        ),
        _ => {
            committed.insert(at, (batch, event.epoch));
            Ok(())
        }
    }
}

fn violation<T>(property: &'static str, summary: String) -> Result<T, Violation> {
    Err(Violation { property, summary })
}

#[cfg(test)]
mod tests;
