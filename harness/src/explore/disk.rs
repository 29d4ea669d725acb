//! Owns what a member has written, and what of it a loss of power leaves.
//! Never does I/O, and never decides when something is synced.

use std::hash::{Hash, Hasher};

use node::batch::Batch;
use node::ids::{Epoch, Offset};
use node::raft::{EpochStart, QuorumState, Recovered};

use super::voters::control_records;

/// A write to the log.
#[derive(Debug, Clone, Hash)]
enum Write {
    Append(Batch),
    Truncate(Offset),
}

/// The disk of a member: a log, and the quorum-state file.
#[derive(Debug, Clone, Default, Hash)]
pub(super) struct Disk {
    /// What a loss of power leaves of the quorum-state file.
    quorum_state: Option<QuorumState>,
    /// What the node reads of the log.
    log: Vec<Batch>,
    /// What a loss of power leaves of the log for certain.
    durable: Vec<Batch>,
    unsynced: Vec<Write>,
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

impl Disk {
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
        self.log.clone_from(&self.durable);
    }

    /// What a start finds after a loss of power.
    pub(super) fn recover(&self) -> Recovered {
        let mut epochs: Vec<EpochStart> = Vec::new();
        for batch in &self.durable {
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
            log_end: end_of(&self.durable),
            epochs,
            control_records: self.durable.iter().flat_map(control_records).collect(),
            ..Recovered::default()
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
