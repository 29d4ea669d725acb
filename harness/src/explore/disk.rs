//! Owns what a member has written, and what of it a loss of power leaves.
//! Never does I/O, and never decides when something is synced.

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use node::batch::Batch;
use node::ids::{Epoch, Offset, SnapshotId};
use node::raft::{EpochStart, QuorumState, Recovered};

use super::snapshot::Snapshot;
use super::voters::control_records;

/// A write to the log.
#[derive(Debug, Clone, Hash)]
enum Write {
    Append(Batch),
    Truncate(Offset),
}

/// The disk of a member: a log, snapshots, and the quorum-state file.
///
/// What was dropped from the beginning of the log is in the snapshot at which it starts, and stays in the lists
/// here, as what that snapshot holds: the rules compare logs with all that is in them.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Disk {
    /// What a loss of power leaves of the quorum-state file.
    quorum_state: Option<QuorumState>,
    /// What the node reads of the log.
    log: Vec<Batch>,
    /// What a loss of power leaves of the log for certain.
    durable: Vec<Batch>,
    unsynced: Vec<Write>,
    /// Where the log starts; what is before is in a snapshot alone.
    start: Offset,
    /// Ascending, durable. One ends where the log starts, unless that is 0.
    snapshots: Vec<Arc<Snapshot>>,
    /// What was fetched of a snapshot.
    download: Vec<u8>,
}

fn end_of(log: &[Batch]) -> Offset {
    log.last().map_or(Offset(0), Batch::end_offset)
}

fn apply(log: &mut Vec<Batch>, write: Write) {
    match write {
        Write::Append(batch) => {
            assert_eq!(batch.base_offset(), end_of(log), "a gap in the log");
            log.push(batch);
        }
        Write::Truncate(end) => {
            log.retain(|batch| batch.end_offset() <= end);
            assert_eq!(end_of(log), end, "a truncation inside a batch");
        }
    }
}

/// Whether a log that comes back does not continue the newest snapshot, as the node's storage judges it.
fn is_outdated(log: &[Batch], newest: SnapshotId) -> bool {
    let end = end_of(log);
    let last_epoch = log.last().map_or(Epoch(0), Batch::epoch);
    newest.end_offset > end
        || newest.epoch > last_epoch
        || (newest.end_offset == end && newest.epoch != last_epoch)
}

impl Disk {
    /// What the node reads of the log, and what the snapshot holds at which that starts.
    pub(super) fn log(&self) -> &[Batch] {
        &self.log
    }

    /// What a loss of power leaves for certain.
    pub(super) fn durable(&self) -> &[Batch] {
        &self.durable
    }

    /// How many writes a loss of power may take.
    pub(super) fn unsynced_count(&self) -> usize {
        self.unsynced.len()
    }

    /// Writes the quorum-state file; it survives a loss of power only if it is synced.
    pub(super) fn persist(&mut self, state: QuorumState, synced: bool) {
        if synced {
            self.quorum_state = Some(state);
        }
    }

    pub(super) fn append(&mut self, batch: Batch) {
        self.write(Write::Append(batch));
    }

    pub(super) fn truncate(&mut self, end: Offset) {
        self.write(Write::Truncate(end));
    }

    fn write(&mut self, write: Write) {
        apply(&mut self.log, write.clone());
        self.unsynced.push(write);
    }

    pub(super) fn start(&self) -> Offset {
        self.start
    }

    pub(super) fn snapshots(&self) -> &[Arc<Snapshot>] {
        &self.snapshots
    }

    pub(super) fn snapshot(&self, id: SnapshotId) -> Option<&Arc<Snapshot>> {
        self.snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// Stores a snapshot of the log; it is durable at once.
    pub(super) fn freeze(&mut self, snapshot: Snapshot) {
        self.snapshots.push(Arc::new(snapshot));
    }

    /// Drops the log below `start`, where a snapshot ends, and the snapshots before that.
    pub(super) fn drop_below(&mut self, start: Offset) {
        self.start = start;
        self.snapshots.retain(|snapshot| snapshot.end() >= start);
    }

    /// Stores a piece of a snapshot that is fetched.
    pub(super) fn store_piece(&mut self, position_bytes: u64, bytes: &[u8]) {
        self.download.truncate(position_bytes as usize);
        self.download.extend_from_slice(bytes);
    }

    pub(super) fn abandon_download(&mut self) {
        self.download.clear();
    }

    /// Puts what was fetched in the place of the log, all of it durable; with a seeded bug, the log behind its end
    /// stays.
    pub(super) fn install(&mut self, id: SnapshotId, keeps_log: bool) -> Arc<Snapshot> {
        let download = std::mem::take(&mut self.download);
        let snapshot = Arc::new(Snapshot::parse(id, &download));
        let kept = std::mem::take(&mut self.log).into_iter();
        let kept = kept.filter(|batch| keeps_log && batch.base_offset() >= id.end_offset);
        self.log = snapshot.content.iter().cloned().chain(kept).collect();
        self.durable.clone_from(&self.log);
        self.unsynced.clear();
        self.start = id.end_offset;
        self.snapshots = vec![Arc::clone(&snapshot)];
        snapshot
    }

    /// The batches from `from` on, which is a batch boundary.
    pub(super) fn read(&self, from: Offset) -> Vec<Batch> {
        let is_behind = |batch: &&Batch| batch.base_offset() >= from;
        self.log.iter().filter(is_behind).cloned().collect()
    }

    /// Makes the log durable and returns its end.
    pub(super) fn sync(&mut self) -> Offset {
        self.unsynced.clear();
        self.durable.clone_from(&self.log);
        end_of(&self.log)
    }

    /// Power is lost when the first `kept` of the unsynced writes have reached the medium.
    pub(super) fn lose_power(&mut self, kept: usize) {
        let writes = std::mem::take(&mut self.unsynced);
        for write in writes.into_iter().take(kept) {
            apply(&mut self.durable, write);
        }
        self.download.clear();
        if let Some(newest) = self.snapshots.last()
            && is_outdated(&self.durable, newest.id)
        {
            // What the snapshot holds was not durable in the log (KAFKA-14240).
            self.durable.clone_from(&newest.content);
            self.start = newest.end();
            self.snapshots.drain(..self.snapshots.len() - 1);
        }
        self.log.clone_from(&self.durable);
    }

    /// What a start finds after a loss of power.
    pub(super) fn recover(&self) -> Recovered {
        let mut epochs: Vec<EpochStart> = Vec::new();
        let is_in_log = |batch: &&Batch| batch.base_offset() >= self.start;
        let in_log: Vec<_> = self.durable.iter().filter(is_in_log).collect();
        for batch in &in_log {
            let last = epochs.last().map_or(Epoch(0), |start| start.epoch);
            if batch.epoch() > last {
                epochs.push(EpochStart {
                    epoch: batch.epoch(),
                    start_offset: batch.base_offset(),
                });
            }
        }
        Recovered {
            quorum_state: self.quorum_state,
            log_start: self.start,
            log_end: end_of(&self.durable),
            epochs,
            truncated_bytes: 0,
            snapshots: self.snapshots.iter().map(|held| held.stored()).collect(),
            snapshot_voters: self
                .snapshots
                .last()
                .and_then(|newest| newest.voters.clone()),
            control_records: in_log.into_iter().flat_map(control_records).collect(),
        }
    }

    pub(super) fn hash_state(&self, hasher: &mut impl Hasher) {
        self.hash(hasher);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(offset: i64, epoch: i32) -> Batch {
        Batch::build(Offset(offset), Epoch(epoch), 0, false, &["x"])
    }

    #[test]
    fn a_loss_of_power_takes_a_tail_of_what_is_not_synced() {
        let mut disk = Disk::default();
        disk.append(batch(0, 1));
        assert_eq!(disk.sync(), Offset(1));
        disk.truncate(Offset(0));
        disk.append(batch(0, 2));
        let recovered = |kept| {
            let mut disk = disk.clone();
            disk.lose_power(kept);
            let found = disk.recover();
            (found.log_end.0, found.last_epoch().0)
        };
        assert_eq!(disk.unsynced_count(), 2);
        assert_eq!(
            [recovered(0), recovered(1), recovered(2)],
            [(1, 1), (0, 0), (1, 2)]
        );
    }
}
