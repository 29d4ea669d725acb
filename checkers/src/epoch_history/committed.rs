//! Owns what the nodes reported as committed: batches and sets of voters, by offset.
//! Never drops or replaces a report: what contradicts an earlier one is handed back.

use std::collections::BTreeMap;

use std::rc::Rc;

use results::shared_text::SharedText;
use results::trace::TraceEvent;
use serde_json::{Value, json};

use super::ascending::Ascending;
use super::log::{Batch, batch_json};
use super::voter_history::{VoterEntry, VoterSet};

/// A batch below a high watermark that some node reported.
#[derive(Debug, Clone)]
pub(super) struct CommittedBatch {
    pub(super) batch: Batch,
    /// Lowest epoch in which it was reported.
    pub(super) epoch: i32,
    /// Who reported it first.
    pub(super) node: SharedText,
    /// When.
    pub(super) time: u64,
}

impl CommittedBatch {
    /// For evidence.
    pub(super) fn json(&self) -> Value {
        json!({
            "batch": batch_json(&self.batch),
            "reported_by": self.node,
            "reported_at": self.time,
            "reported_in_epoch": self.epoch,
        })
    }
}

/// How a report compares with those before it.
#[derive(Debug, Clone)]
pub(super) enum Comparison<Earlier> {
    New,
    Same,
    Differs(Earlier),
}

/// A set of voters below a high watermark that some node reported.
#[derive(Debug, Clone)]
pub(super) struct CommittedVoters {
    pub(super) voters: VoterSet,
    /// The first report.
    pub(super) event: Rc<TraceEvent>,
}

/// All that was reported as committed.
#[derive(Debug, Default)]
pub(super) struct Committed {
    batches: Ascending<CommittedBatch>,
    lowest_epoch: Option<i32>,
    voters: BTreeMap<i64, CommittedVoters>,
}

impl Committed {
    /// Takes note of a batch that `event` reports as committed.
    pub(super) fn report(
        &mut self,
        event: &Rc<TraceEvent>,
        batch: Batch,
    ) -> Comparison<CommittedBatch> {
        // Mostly this very batch was reported before, which is found faster than what overlaps it.
        if let Some(committed) = self.batches.get_mut(batch.base_offset)
            && committed.batch == batch
        {
            committed.epoch = committed.epoch.min(event.epoch);
            let lowest = self.lowest_epoch.get_or_insert(event.epoch);
            *lowest = (*lowest).min(event.epoch);
            return Comparison::Same;
        }
        let overlapping = self
            .batches
            .last_up_to(batch.last_offset)
            .map(|(_, committed)| committed)
            .filter(|committed| committed.batch.last_offset >= batch.base_offset);
        let lowest = self.lowest_epoch.get_or_insert(event.epoch);
        match overlapping {
            Some(committed) => Comparison::Differs(committed.clone()),
            None => {
                *lowest = (*lowest).min(event.epoch);
                let committed = CommittedBatch {
                    batch,
                    epoch: event.epoch,
                    node: event.node.clone(),
                    time: event.time,
                };
                self.batches.insert(batch.base_offset, committed);
                Comparison::New
            }
        }
    }

    /// Takes note of voters that `event` reports as committed.
    pub(super) fn report_voters(
        &mut self,
        event: &Rc<TraceEvent>,
        entry: &VoterEntry,
    ) -> Comparison<CommittedVoters> {
        match self.voters.get(&entry.offset) {
            Some(earlier) if earlier.voters == entry.voters => Comparison::Same,
            Some(earlier) => Comparison::Differs(earlier.clone()),
            None => {
                let committed = CommittedVoters {
                    voters: entry.voters.clone(),
                    event: event.clone(),
                };
                self.voters.insert(entry.offset, committed);
                Comparison::New
            }
        }
    }

    /// Whether anything was reported in an epoch below `epoch`.
    pub(super) fn has_before_epoch(&self, epoch: i32) -> bool {
        self.lowest_epoch.is_some_and(|lowest| lowest < epoch)
    }

    /// Batches that begin at `from` or above, ascending.
    pub(super) fn from(&self, from: i64) -> impl Iterator<Item = &CommittedBatch> {
        self.batches.from(from)
    }

    /// The batch that begins at `base_offset`.
    pub(super) fn beginning_at(&self, base_offset: i64) -> Option<&CommittedBatch> {
        self.batches.get(base_offset)
    }

    /// The batch that holds the record at `offset`.
    pub(super) fn at(&self, offset: i64) -> Option<&CommittedBatch> {
        let (_, committed) = self.batches.last_up_to(offset)?;
        (committed.batch.last_offset >= offset).then_some(committed)
    }

    /// The voters that the last record below `end` with voters names, with its offset.
    pub(super) fn voters_before(&self, end: i64) -> Option<(i64, &CommittedVoters)> {
        let (offset, committed) = self.voters.range(..end).next_back()?;
        Some((*offset, committed))
    }
}
