//! Owns what the whole cluster has done so far, and the safety properties over it.
//! Never stops a run by itself: violations are collected for the test to judge.

use std::collections::{BTreeMap, BTreeSet};

use node::batch::Batch;
use node::ids::{Epoch, NodeId, Offset};
use node::raft::QuorumState;

use crate::disk::{Disk, end_of};

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) violations: Vec<String>,
    leaders: BTreeMap<Epoch, NodeId>,
    votes: BTreeMap<(NodeId, Epoch), NodeId>,
    epochs: BTreeMap<NodeId, Epoch>,
    /// Checksum of what was ever written at an offset in an epoch, by anyone.
    written: BTreeMap<(Offset, Epoch), u32>,
    /// What has ever been below any high watermark.
    pub(crate) committed: Vec<Batch>,
    /// End of the newest write whose success a client has seen.
    pub(crate) acknowledged_end: Offset,
}

impl History {
    fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    pub(crate) fn leader_of(&self, epoch: Epoch) -> Option<NodeId> {
        self.leaders.get(&epoch).copied()
    }

    pub(crate) fn note_persisted(&mut self, node: NodeId, state: QuorumState) {
        let previous = self.epochs.insert(node, state.epoch).unwrap_or_default();
        if state.epoch < previous {
            self.violation(format!(
                "{node} went back from epoch {previous} to {}",
                state.epoch
            ));
        }
        if let Some(leader) = state.leader {
            let known = *self.leaders.entry(state.epoch).or_insert(leader);
            if known != leader {
                self.violation(format!(
                    "epoch {} has leaders {known}, {leader}",
                    state.epoch
                ));
            }
        }
        if let Some(candidate) = state.voted_for.map(|voted_for| voted_for.id) {
            let known = *self.votes.entry((node, state.epoch)).or_insert(candidate);
            if known != candidate {
                let epoch = state.epoch;
                self.violation(format!(
                    "{node} voted for {known} and {candidate} in {epoch}"
                ));
            }
        }
    }

    pub(crate) fn note_written(&mut self, node: NodeId, batch: &Batch) {
        let key = (batch.base_offset(), batch.epoch());
        let known = *self.written.entry(key).or_insert(batch.crc());
        if known != batch.crc() {
            self.violation(format!("{node} wrote something else at {key:?}"));
        }
    }

    /// A leader's log must contain everything that was ever committed.
    pub(crate) fn note_elected(&mut self, node: NodeId, disk: &Disk) {
        let lost = self
            .committed
            .iter()
            .zip(0..)
            .find(|&(batch, at)| disk.log.get(at) != Some(batch));
        if let Some((batch, _)) = lost {
            let offset = batch.base_offset();
            self.violation(format!(
                "committed record lost: leader {node} lacks offset {offset}"
            ));
        }
    }

    /// `checked` counts the committed batches of this incarnation that were compared before.
    pub(crate) fn note_committed(
        &mut self,
        node: NodeId,
        disk: &Disk,
        checked: &mut usize,
        high_watermark: Offset,
    ) {
        if high_watermark > end_of(&disk.log) {
            self.violation(format!(
                "{node}: high watermark {high_watermark} is behind the log"
            ));
        }
        while let Some(batch) = disk.log.get(*checked)
            && batch.end_offset() <= high_watermark
        {
            match self.committed.get(*checked) {
                None => self.committed.push(batch.clone()),
                Some(known) if known == batch => {}
                Some(_) => {
                    let offset = batch.base_offset();
                    self.violation(format!("committed record lost: {node} differs at {offset}"));
                }
            }
            *checked += 1;
        }
    }

    /// A leader's high watermark must be durable on a majority, with the same record below it.
    pub(crate) fn note_leader_high_watermark<'a>(
        &mut self,
        leader: NodeId,
        high_watermark: Offset,
        log: &[Batch],
        disks: impl ExactSizeIterator<Item = &'a Disk>,
    ) {
        let needed = disks.len() / 2 + 1;
        let last = log
            .iter()
            .find(|batch| batch.end_offset() == high_watermark);
        let holds = |disk: &&Disk| disk.durable.iter().any(|batch| Some(batch) == last);
        let holding = disks.filter(holds).count();
        if last.is_none() || holding < needed {
            self.violation(format!(
                "{leader}: high watermark {high_watermark} is durable on {holding} of {needed}"
            ));
        }
    }

    /// Two logs that have a batch of the same epoch at the same offset agree up to there.
    pub(crate) fn check_logs_match<'a>(&mut self, disks: impl Iterator<Item = &'a Disk>) {
        let logs: Vec<&Vec<Batch>> = disks.map(|disk| &disk.log).collect();
        let mut bad = BTreeSet::new();
        for (at, left) in logs.iter().enumerate() {
            for right in &logs[at + 1..] {
                let same = |(left, right): (&Batch, &Batch)| left == right;
                let common = left
                    .iter()
                    .zip(right.iter())
                    .take_while(|&pair| same(pair))
                    .count();
                let later: BTreeSet<_> = left[common..].iter().map(key).collect();
                bad.extend(
                    right[common..]
                        .iter()
                        .map(key)
                        .filter(|key| later.contains(key)),
                );
            }
        }
        for key in bad {
            self.violation(format!("logs agree on {key:?} but not before it"));
        }
    }
}

fn key(batch: &Batch) -> (Offset, Epoch) {
    (batch.base_offset(), batch.epoch())
}
