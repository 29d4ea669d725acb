//! Owns what the whole cluster has done so far, and the safety properties over it.
//! Never stops a run by itself: violations are collected for the test to judge.

use std::collections::{BTreeMap, BTreeSet};

use node::batch::Batch;
use node::ids::{Epoch, NodeId, Offset, ReplicaKey, SnapshotId};
use node::raft::QuorumState;
use node::voters::VoterSet;

use crate::disk::{Disk, Snapshot, voter_sets};

#[derive(Debug, Default)]
pub(crate) struct History {
    pub(crate) violations: Vec<String>,
    leaders: BTreeMap<Epoch, NodeId>,
    votes: BTreeMap<(ReplicaKey, Epoch), NodeId>,
    epochs: BTreeMap<ReplicaKey, Epoch>,
    /// Checksum of what was ever written at an offset in an epoch, by anyone.
    written: BTreeMap<(Offset, Epoch), u32>,
    /// What has ever been below any high watermark.
    pub(crate) committed: Vec<Batch>,
    /// The newest set of voters that is committed; `None` while they are configured.
    pub(crate) voters: Option<VoterSet>,
    /// How many sets of voters were committed.
    pub(crate) voter_set_count: usize,
    /// End of the newest write whose success a client has seen.
    pub(crate) acknowledged_end: Offset,
    /// End of the newest snapshot of each node.
    snapshot_ends: BTreeMap<NodeId, Offset>,
    /// What nodes reported as the hash of the state in a snapshot.
    digests: BTreeMap<(Offset, Epoch), String>,
}

impl History {
    fn violation(&mut self, text: String) {
        self.violations.push(text);
    }

    pub(crate) fn leader_of(&self, epoch: Epoch) -> Option<NodeId> {
        self.leaders.get(&epoch).copied()
    }

    pub(crate) fn note_persisted(&mut self, node: ReplicaKey, state: QuorumState) {
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
        // What is below its log is in its snapshot, which was compared when it was stored.
        let lost = self.committed.iter().find(|batch| {
            let offset = batch.base_offset();
            offset >= disk.log_start && disk.batch_at(offset) != Some(*batch)
        });
        if let Some(batch) = lost {
            let offset = batch.base_offset();
            self.violation(format!(
                "committed record lost: leader {node} lacks offset {offset}"
            ));
        }
    }

    fn committed_end(&self) -> Offset {
        self.committed.last().map_or(Offset(0), Batch::end_offset)
    }

    /// What this incarnation has committed below `checked` was compared before.
    pub(crate) fn note_committed(
        &mut self,
        node: NodeId,
        disk: &Disk,
        checked: &mut Offset,
        high_watermark: Offset,
    ) {
        if high_watermark > disk.log_end() {
            self.violation(format!(
                "{node}: high watermark {high_watermark} is behind the log"
            ));
        }
        *checked = disk.log_start.max(*checked);
        while let Some(batch) = disk.batch_at(*checked)
            && batch.end_offset() <= high_watermark
        {
            let offset = batch.base_offset();
            let at = self
                .committed
                .partition_point(|known| known.base_offset() < offset);
            match self.committed.get(at) {
                None if offset == self.committed_end() => {
                    self.committed.push(batch.clone());
                    self.note_committed_voters(batch);
                }
                Some(known) if known == batch => {}
                _ => self.violation(format!("committed record lost: {node} differs at {offset}")),
            }
            *checked = batch.end_offset();
        }
    }

    /// Committed sets of voters differ from the one before by one voter at most.
    fn note_committed_voters(&mut self, batch: &Batch) {
        for (offset, voters) in voter_sets(std::slice::from_ref(batch)) {
            let known = self.voters.replace(voters.clone());
            self.voter_set_count += 1;
            if let Some(known) = known
                && difference(&known, &voters) > 1
            {
                self.violation(format!(
                    "voters change from {:?} to {:?} at {offset}",
                    keys(&known),
                    keys(&voters)
                ));
            }
        }
    }

    /// What a leader has beyond all that is committed changes the voters once at most.
    pub(crate) fn note_leader_voters(&mut self, leader: NodeId, disk: &Disk) {
        let committed = self.committed_end();
        let sets = disk.voter_sets();
        let is_change = |pair: &&[(Offset, VoterSet)]| {
            pair[1].0 >= committed && difference(&pair[0].1, &pair[1].1) > 0
        };
        let count = sets.windows(2).filter(is_change).count();
        if count > 1 {
            self.violation(format!(
                "{leader} has {count} uncommitted changes of the voters"
            ));
        }
    }

    /// A leader's high watermark must be durable on a majority of the voters, with the same record
    /// below it. `disks` are those of the voters.
    pub(crate) fn note_leader_high_watermark<'a>(
        &mut self,
        leader: NodeId,
        high_watermark: Offset,
        own: &Disk,
        disks: impl Iterator<Item = &'a Disk>,
        needed: usize,
    ) {
        let ends_there = |batch: &&Batch| batch.end_offset() == high_watermark;
        let last = own.log.iter().find(ends_there);
        let holds = |disk: &&Disk| {
            let in_log = disk.durable.iter().any(|batch| Some(batch) == last);
            in_log || disk.snapshot_end() >= high_watermark
        };
        let holding = disks.filter(holds).count();
        if last.is_none() || holding < needed {
            self.violation(format!(
                "{leader}: high watermark {high_watermark} is durable on {holding} of {needed}"
            ));
        }
    }

    /// The disk of a node was wiped, and with it all it promised.
    pub(crate) fn forget(&mut self, node: ReplicaKey) {
        self.epochs.remove(&node);
        self.votes.retain(|(voter, _), _| *voter != node);
        self.snapshot_ends.remove(&node.id);
    }

    /// A snapshot is what was committed below its end (S2), and newer than those before (S1).
    pub(crate) fn note_snapshot(&mut self, node: NodeId, id: SnapshotId, snapshot: &Snapshot) {
        let end = id.end_offset;
        let count = self
            .committed
            .partition_point(|batch| batch.base_offset() < end);
        if snapshot.id() != id || snapshot.batches[..] != self.committed[..count] {
            self.violation(format!(
                "{node}: snapshot {id} is not what was committed below it"
            ));
        }
        let previous = self.snapshot_ends.insert(node, end);
        if previous.is_some_and(|previous| end <= previous) {
            self.violation(format!(
                "{node}: snapshot {id} is not newer than {previous:?}"
            ));
        }
    }

    /// All snapshots of one name have the same state in them.
    pub(crate) fn note_digest(&mut self, node: NodeId, id: (Offset, Epoch), digest: &str) {
        let known = self.digests.entry(id).or_insert_with(|| digest.to_owned());
        if known != digest || digest.len() != 16 {
            let text = format!("{node}: snapshot {id:?} has digest {digest}, elsewhere {known}");
            self.violation(text);
        }
    }

    /// A log that does not start at 0 starts where a snapshot ends (S1).
    pub(crate) fn check_log_starts<'a>(&mut self, disks: impl Iterator<Item = (NodeId, &'a Disk)>) {
        for (node, disk) in disks {
            let start = disk.log_start;
            let mut ends = disk.snapshots.keys().map(|id| id.end_offset);
            if start > Offset(0) && ends.next() != Some(start) {
                self.violation(format!(
                    "{node}: no snapshot ends at {start}, where its log starts"
                ));
            }
        }
    }

    /// Two logs that have a batch of the same epoch at the same offset agree up to there.
    pub(crate) fn check_logs_match<'a>(&mut self, disks: impl Iterator<Item = &'a Disk>) {
        let disks: Vec<&Disk> = disks.collect();
        let mut bad = BTreeSet::new();
        for (at, left) in disks.iter().enumerate() {
            for right in &disks[at + 1..] {
                // What is in a snapshot was compared when it was stored.
                let start = left.log_start.max(right.log_start);
                let (left, right) = (log_from(left, start), log_from(right, start));
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

fn log_from(disk: &Disk, start: Offset) -> &[Batch] {
    let below = |batch: &Batch| batch.base_offset() < start;
    &disk.log[disk.log.partition_point(below)..]
}

fn keys(voters: &VoterSet) -> BTreeSet<ReplicaKey> {
    voters.iter().map(|voter| voter.key).collect()
}

/// How many voters are in one of the sets only.
fn difference(left: &VoterSet, right: &VoterSet) -> usize {
    keys(left).symmetric_difference(&keys(right)).count()
}

fn key(batch: &Batch) -> (Offset, Epoch) {
    (batch.base_offset(), batch.epoch())
}
