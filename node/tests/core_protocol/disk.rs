//! Owns a disk in memory that loses at a power cut what was not synced.
//! Never loses election state: it is synced with every write.

use node::batch::Batch;
use node::ids::{Epoch, Offset};
use node::raft::{EpochStart, QuorumState, Recovered};

#[derive(Debug, Clone)]
enum Operation {
    Append(Batch),
    Truncate(Offset),
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) quorum_state: Option<QuorumState>,
    /// What readers see.
    pub(crate) log: Vec<Batch>,
    /// What a power cut leaves for certain.
    pub(crate) durable: Vec<Batch>,
    unsynced: Vec<Operation>,
}

fn apply(log: &mut Vec<Batch>, operation: Operation) {
    match operation {
        Operation::Append(batch) => {
            assert_eq!(batch.base_offset(), end_of(log), "a gap in the log");
            log.push(batch);
        }
        Operation::Truncate(end) => {
            log.retain(|batch| batch.end_offset() <= end);
            assert_eq!(end_of(log), end, "a truncation inside a batch");
        }
    }
}

pub(crate) fn end_of(log: &[Batch]) -> Offset {
    log.last().map_or(Offset(0), Batch::end_offset)
}

impl Disk {
    pub(crate) fn append(&mut self, batch: Batch) {
        self.write(Operation::Append(batch));
    }

    pub(crate) fn truncate(&mut self, end: Offset) {
        self.write(Operation::Truncate(end));
    }

    fn write(&mut self, operation: Operation) {
        apply(&mut self.log, operation.clone());
        self.unsynced.push(operation);
    }

    pub(crate) fn is_synced(&self) -> bool {
        self.unsynced.is_empty()
    }

    pub(crate) fn unsynced_count(&self) -> usize {
        self.unsynced.len()
    }

    pub(crate) fn sync(&mut self) -> Offset {
        for operation in self.unsynced.drain(..) {
            apply(&mut self.durable, operation);
        }
        end_of(&self.durable)
    }

    /// Power is cut when the first `kept` of the unsynced writes have reached the medium.
    pub(crate) fn cut_power(&mut self, kept: usize) {
        self.unsynced.truncate(kept);
        self.sync();
        self.log = self.durable.clone();
    }

    /// Up to `count` batches from `from` on, which must be a batch boundary.
    pub(crate) fn read(&self, from: Offset, count: usize) -> Vec<Batch> {
        let first = self.log.partition_point(|batch| batch.base_offset() < from);
        let boundary = self
            .log
            .get(first)
            .map_or(end_of(&self.log), Batch::base_offset);
        assert_eq!(boundary, from, "a read from inside a batch");
        self.log[first..].iter().take(count).cloned().collect()
    }

    pub(crate) fn recover(&self) -> Recovered {
        assert!(self.is_synced(), "recovery follows a power cut");
        let mut epochs: Vec<EpochStart> = Vec::new();
        for batch in &self.durable {
            let last = epochs.last().map_or(Epoch(0), |start| start.epoch);
            if batch.epoch() > last {
                let start_offset = batch.base_offset();
                epochs.push(EpochStart {
                    epoch: batch.epoch(),
                    start_offset,
                });
            }
        }
        Recovered {
            quorum_state: self.quorum_state,
            log_start: Offset(0),
            log_end: end_of(&self.durable),
            epochs,
            ..Recovered::default()
        }
    }
}
