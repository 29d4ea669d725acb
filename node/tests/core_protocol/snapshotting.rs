//! Owns how the nodes of the cluster make, keep, send, store and install snapshots.
//! Never decides what a replica does with one; it carries out effects and reports what came of them.

use node::ids::{DirectoryId, NodeId, Offset, SnapshotId};
use node::message::{FetchSnapshotResponse, Response};
use node::mutants::Bug;
use node::raft::{Input, Ticket};

use crate::cluster::{Cluster, Held};
use crate::disk::Disk;

/// How often snapshots are made and used, and what goes wrong with them. Nothing happens by itself
/// where all is 0.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Snapshotting {
    /// Of how many steps in a thousand a snapshot is made afterwards.
    pub(crate) freeze_per_mille: u64,
    /// Of how many steps in a thousand the log start advances to some snapshot afterwards.
    pub(crate) advance_per_mille: u64,
    /// How many of a thousand pieces get damaged on their way.
    pub(crate) damage_per_mille: u64,
    /// How long the pieces are at most.
    pub(crate) piece_bytes: u64,
}

impl Default for Snapshotting {
    fn default() -> Self {
        Self {
            freeze_per_mille: 0,
            advance_per_mille: 0,
            damage_per_mille: 0,
            piece_bytes: u64::MAX,
        }
    }
}

/// What has happened to snapshots, so that a test can say whether anything did.
#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
pub(crate) struct SnapshotCounts {
    pub(crate) frozen: u64,
    pub(crate) installed: u64,
    pub(crate) refused: u64,
    pub(crate) abandoned: u64,
    pub(crate) advanced: u64,
}

impl SnapshotCounts {
    pub(crate) fn plus(self, other: Self) -> Self {
        Self {
            frozen: self.frozen + other.frozen,
            installed: self.installed + other.installed,
            refused: self.refused + other.refused,
            abandoned: self.abandoned + other.abandoned,
            advanced: self.advanced + other.advanced,
        }
    }
}

impl Cluster {
    /// Loses everything on the disk of a node, which is off until it is restarted. Where voters can
    /// change, it is another replica from then on, and can be told from the one it was.
    pub(crate) fn wipe(&mut self, id: NodeId) {
        self.power_cut(id);
        self.history.forget(self.nodes[&id].key);
        self.node(id).disk = Disk::default();
        if self.voters_are_in_log {
            let number = u128::from(self.number());
            self.node(id).key.directory_id = Some(DirectoryId((number << 32) + id.0 as u128));
        }
    }

    pub(crate) fn maybe_snapshot(&mut self, id: NodeId) {
        let policy = self.snapshotting;
        if policy.freeze_per_mille > 0 && self.below(1_000) < policy.freeze_per_mille {
            self.freeze_somewhere(id);
        }
        if policy.advance_per_mille > 0 && self.below(1_000) < policy.advance_per_mille {
            self.advance_log_start_somewhere(id);
        }
    }

    fn freeze_somewhere(&mut self, id: NodeId) {
        let node = &self.nodes[&id];
        let Some(committed) = node.last_high_watermark else {
            return;
        };
        let ends = node.disk.log.iter().map(|batch| batch.end_offset());
        let ends: Vec<_> = ends.filter(|end| *end <= committed).collect();
        if !ends.is_empty() {
            let chosen = ends[self.below(ends.len() as u64) as usize];
            self.freeze(id, chosen);
        }
    }

    /// Makes a snapshot of everything below `end`, if the replica allows it.
    pub(crate) fn freeze(&mut self, id: NodeId, end: Offset) -> Option<SnapshotId> {
        let plan = self.replica(id).plan_snapshot(end)?;
        let (snapshot, stored) = self.node(id).disk.freeze(plan.id);
        assert_eq!(plan.voters, snapshot.voters());
        self.snapshot_counts.frozen += 1;
        self.history.note_snapshot(id, plan.id, &snapshot);
        let digest = snapshot.digest();
        self.step(
            id,
            Input::SnapshotFrozen {
                snapshot: stored,
                digest,
            },
        );
        Some(plan.id)
    }

    fn advance_log_start_somewhere(&mut self, id: NodeId) {
        let disk = &self.nodes[&id].disk;
        let ends = disk.snapshots.keys().map(|id| id.end_offset);
        let ends: Vec<_> = ends.filter(|end| *end > disk.log_start).collect();
        if !ends.is_empty() && disk.is_synced() {
            let chosen = ends[self.below(ends.len() as u64) as usize];
            self.advance_log_start(id, chosen);
        }
    }

    /// Deletes the log below the end of a snapshot.
    pub(crate) fn advance_log_start(&mut self, id: NodeId, log_start: Offset) {
        self.node(id).disk.advance_log_start(log_start);
        self.snapshot_counts.advanced += 1;
        self.step(id, Input::LogStartAdvanced { log_start });
        assert_eq!(self.replica(id).log_start(), log_start);
    }

    /// A snapshot of all that is committed, and nothing else left of the log below it.
    pub(crate) fn compact(&mut self, id: NodeId) -> SnapshotId {
        let committed = self.replica(id).high_watermark().unwrap();
        let snapshot = self.freeze(id, committed).unwrap();
        self.run_until("a synced disk", 100 * crate::cluster::MS, |cluster| {
            cluster.nodes[&id].disk.is_synced()
        });
        self.advance_log_start(id, committed);
        snapshot
    }

    pub(crate) fn reply_with_piece(
        &mut self,
        id: NodeId,
        ticket: Ticket,
        mut response: FetchSnapshotResponse,
        max_bytes: u64,
    ) {
        let snapshot = &self.nodes[&id].disk.snapshots[&response.snapshot_id];
        let mut bytes = snapshot.bytes().split_off(response.position_bytes as usize);
        bytes.truncate(max_bytes.min(self.snapshotting.piece_bytes) as usize);
        let damage_per_mille = self.snapshotting.damage_per_mille;
        if damage_per_mille > 0 && self.below(1_000) < damage_per_mille {
            let at = self.below(bytes.len() as u64) as usize;
            bytes[at] ^= 1 << self.below(8);
        }
        response.bytes = bytes;
        let response = Response::FetchSnapshot(response);
        let response = Box::new(response);
        self.release(id, Held::Reply { ticket, response });
    }

    pub(crate) fn abandon(&mut self, id: NodeId, snapshot: SnapshotId) {
        self.node(id).disk.abandon(snapshot);
        self.snapshot_counts.abandoned += 1;
    }

    pub(crate) fn install(&mut self, id: NodeId, snapshot_id: SnapshotId) {
        let keeps_tail = self.bug() == Some(Bug::SnapshotInstallKeepsLog);
        let Some((snapshot, stored)) = self.node(id).disk.install(snapshot_id, keeps_tail) else {
            self.snapshot_counts.refused += 1;
            return self.step(id, Input::SnapshotRefused { id: snapshot_id });
        };
        self.snapshot_counts.installed += 1;
        self.history.note_snapshot(id, snapshot_id, &snapshot);
        let input = Input::SnapshotInstalled {
            snapshot: stored,
            voters: snapshot.voters(),
            digest: snapshot.digest(),
        };
        self.step(id, input);
        assert_eq!(
            self.replica(id).high_watermark(),
            Some(snapshot_id.end_offset)
        );
    }
}
