//! Owns a disk in memory that loses at a power cut what was not synced.
//! Never loses election state or snapshots: they are synced with every write.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hash, Hasher};

use node::batch::Batch;
use node::control_record::ControlRecord;
use node::ids::{Epoch, Offset, SnapshotId};
use node::raft::{EpochStart, QuorumState, RecordedVoters, Recovered, StoredSnapshot};
use node::voters::VoterSet;

#[derive(Debug, Clone)]
enum Operation {
    Append(Batch),
    Truncate(Offset),
}

/// A state that is simply everything that led to it.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Snapshot {
    pub(crate) batches: Vec<Batch>,
}

impl Snapshot {
    pub(crate) fn bytes(&self) -> Vec<u8> {
        let bytes = self.batches.iter().map(Batch::bytes);
        bytes.collect::<Vec<_>>().concat()
    }

    pub(crate) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.bytes().hash(&mut hasher);
        hasher.finish()
    }

    pub(crate) fn id(&self) -> SnapshotId {
        SnapshotId {
            end_offset: end_of(&self.batches),
            epoch: self.batches.last().map_or(Epoch(0), Batch::epoch),
        }
    }

    /// What it says of the voters; `None` where they are configured.
    pub(crate) fn voters(&self) -> Option<RecordedVoters> {
        let (_, voters) = voter_sets(&self.batches).pop()?;
        Some(RecordedVoters {
            kraft_version: 1,
            voters,
        })
    }

    fn stored(&self) -> StoredSnapshot {
        StoredSnapshot {
            id: self.id(),
            size_bytes: self.bytes().len() as u64,
        }
    }
}

#[derive(Debug, Default)]
pub(crate) struct Disk {
    pub(crate) quorum_state: Option<QuorumState>,
    /// What readers see.
    pub(crate) log: Vec<Batch>,
    /// What a power cut leaves for certain.
    pub(crate) durable: Vec<Batch>,
    /// What formatting left.
    pub(crate) bootstrap: Option<RecordedVoters>,
    unsynced: Vec<Operation>,
    /// Where both begin.
    pub(crate) log_start: Offset,
    pub(crate) snapshots: BTreeMap<SnapshotId, Snapshot>,
    /// What was downloaded of a snapshot.
    pub(crate) partial: Option<(SnapshotId, Vec<u8>)>,
}

fn apply(log: &mut Vec<Batch>, log_start: Offset, operation: Operation) {
    let end = |log: &[Batch]| end_of(log).max(log_start);
    match operation {
        Operation::Append(batch) => {
            assert_eq!(batch.base_offset(), end(log), "a gap in the log");
            log.push(batch);
        }
        Operation::Truncate(cut) => {
            log.retain(|batch| batch.end_offset() <= cut);
            assert_eq!(end(log), cut, "a truncation inside a batch");
        }
    }
}

fn end_of(log: &[Batch]) -> Offset {
    log.last().map_or(Offset(0), Batch::end_offset)
}

/// The control records of a log.
pub(crate) fn control_records(log: &[Batch]) -> impl Iterator<Item = (Offset, ControlRecord)> {
    let control = log.iter().filter(|batch| batch.is_control());
    control.flat_map(|batch| {
        let decode = |(offset, payload)| (offset, ControlRecord::decode(payload).unwrap());
        batch.records().map(decode).collect::<Vec<_>>()
    })
}

/// The sets of voters in a log.
pub(crate) fn voter_sets(log: &[Batch]) -> Vec<(Offset, VoterSet)> {
    let set = |(offset, record)| match record {
        ControlRecord::Voters { voters } => Some((offset, voters)),
        _ => None,
    };
    control_records(log).filter_map(set).collect()
}

impl Disk {
    fn snapshot_voters(&self) -> Option<RecordedVoters> {
        match self.snapshots.last_key_value() {
            Some((_, newest)) => newest.voters(),
            None => self.bootstrap.clone(),
        }
    }

    /// What was in force where the log starts, and every set of voters in it.
    pub(crate) fn voter_sets(&self) -> Vec<(Offset, VoterSet)> {
        self.voter_sets_of(&self.log)
    }

    fn voter_sets_of(&self, log: &[Batch]) -> Vec<(Offset, VoterSet)> {
        let earliest = self.snapshots.values().next();
        let at_start = match earliest.filter(|earliest| earliest.id().end_offset == self.log_start)
        {
            Some(earliest) => earliest.voters(),
            None => self.bootstrap.clone(),
        };
        let at_start = at_start.map(|recorded| (Offset(-1), recorded.voters));
        at_start.into_iter().chain(voter_sets(log)).collect()
    }

    /// The voters by this disk alone; `None` where they are configured.
    pub(crate) fn latest_voters(&self) -> Option<VoterSet> {
        self.voter_sets().pop().map(|(_, voters)| voters)
    }

    /// The same after a power cut.
    pub(crate) fn durable_voters(&self) -> Option<VoterSet> {
        let sets = self.voter_sets_of(&self.durable);
        sets.into_iter().next_back().map(|(_, voters)| voters)
    }

    pub(crate) fn log_end(&self) -> Offset {
        end_of(&self.log).max(self.log_start)
    }

    pub(crate) fn durable_end(&self) -> Offset {
        end_of(&self.durable).max(self.log_start)
    }

    pub(crate) fn snapshot_end(&self) -> Offset {
        let newest = self.snapshots.last_key_value();
        newest.map_or(Offset(0), |(id, _)| id.end_offset)
    }

    /// The batch that begins at `offset`.
    pub(crate) fn batch_at(&self, offset: Offset) -> Option<&Batch> {
        let at = self
            .log
            .partition_point(|batch| batch.base_offset() < offset);
        self.log
            .get(at)
            .filter(|batch| batch.base_offset() == offset)
    }

    pub(crate) fn append(&mut self, batch: Batch) {
        self.write(Operation::Append(batch));
    }

    pub(crate) fn truncate(&mut self, end: Offset) {
        self.write(Operation::Truncate(end));
    }

    fn write(&mut self, operation: Operation) {
        apply(&mut self.log, self.log_start, operation.clone());
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
            apply(&mut self.durable, self.log_start, operation);
        }
        self.durable_end()
    }

    /// Power is cut when the first `kept` of the unsynced writes have reached the medium.
    pub(crate) fn cut_power(&mut self, kept: usize) {
        self.unsynced.truncate(kept);
        self.sync();
        self.log = self.durable.clone();
        self.partial = None;
    }

    /// Up to `count` batches from `from` on, which must be a batch boundary.
    pub(crate) fn read(&self, from: Offset, count: usize) -> Vec<Batch> {
        assert!(from >= self.log_start, "a read of what is gone");
        let first = self.log.partition_point(|batch| batch.base_offset() < from);
        let boundary = self
            .log
            .get(first)
            .map_or(self.log_end(), Batch::base_offset);
        assert_eq!(boundary, from, "a read from inside a batch");
        self.log[first..].iter().take(count).cloned().collect()
    }

    /// Stores a snapshot of everything below the id's end; durable, whether the log is or not.
    pub(crate) fn freeze(&mut self, id: SnapshotId) -> (Snapshot, StoredSnapshot) {
        let newest = self.snapshots.last_key_value();
        let mut batches = newest.map_or(Vec::new(), |(_, newest)| newest.batches.clone());
        let rest = self.log.iter().filter(|batch| {
            batch.base_offset() >= self.snapshot_end() && batch.end_offset() <= id.end_offset
        });
        batches.extend(rest.cloned());
        let snapshot = Snapshot { batches };
        assert_eq!(snapshot.id(), id, "a snapshot that ends inside a batch");
        self.snapshots.insert(id, snapshot.clone());
        let stored = snapshot.stored();
        (snapshot, stored)
    }

    pub(crate) fn advance_log_start(&mut self, log_start: Offset) {
        assert!(self.is_synced(), "what is deleted was durable");
        self.log_start = log_start;
        self.log.retain(|batch| batch.base_offset() >= log_start);
        self.durable
            .retain(|batch| batch.base_offset() >= log_start);
        self.snapshots.retain(|id, _| id.end_offset >= log_start);
    }

    pub(crate) fn store_chunk(&mut self, id: SnapshotId, position_bytes: u64, bytes: &[u8]) {
        if position_bytes == 0 {
            self.partial = Some((id, Vec::new()));
        }
        let (known, stored) = self.partial.as_mut().expect("position 0 comes first");
        assert_eq!((*known, stored.len() as u64), (id, position_bytes), "a gap");
        stored.extend_from_slice(bytes);
    }

    pub(crate) fn abandon(&mut self, id: SnapshotId) {
        let (known, _) = self.partial.take().expect("something was downloaded");
        assert_eq!(known, id);
    }

    /// Puts what was downloaded in the place of the log, or, with `keeps_tail`, of its beginning.
    pub(crate) fn install(
        &mut self,
        id: SnapshotId,
        keeps_tail: bool,
    ) -> Option<(Snapshot, StoredSnapshot)> {
        assert!(self.is_synced(), "a follower that fetches has synced");
        let (known, bytes) = self.partial.take().expect("something was downloaded");
        assert_eq!(known, id);
        let batches = Batch::parse_all(&bytes).ok()?;
        let snapshot = Snapshot { batches };
        if snapshot.id() != id {
            return None;
        }
        self.snapshots.insert(id, snapshot.clone());
        let tail_goes_on = self.batch_at(id.end_offset).is_some();
        if !(keeps_tail && tail_goes_on) {
            self.log.clear();
            self.durable.clear();
        }
        self.advance_log_start(id.end_offset);
        let stored = snapshot.stored();
        Some((snapshot, stored))
    }

    /// A log that does not continue the newest snapshot is what a crash left: of a log that was
    /// not synced when the snapshot was, or between the snapshot and the end of the old log.
    fn repair(&mut self) {
        let Some((&id, snapshot)) = self.snapshots.last_key_value() else {
            return;
        };
        let continues = id.end_offset == self.log_start
            || self
                .durable
                .contains(&snapshot.batches[snapshot.batches.len() - 1]);
        if !continues {
            self.durable.clear();
            self.log.clear();
            self.advance_log_start(id.end_offset);
        }
    }

    pub(crate) fn recover(&mut self) -> Recovered {
        assert!(self.is_synced(), "recovery follows a power cut");
        self.repair();
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
            log_start: self.log_start,
            log_end: self.durable_end(),
            epochs,
            snapshots: self.snapshots.values().map(Snapshot::stored).collect(),
            snapshot_voters: self.snapshot_voters(),
            control_records: control_records(&self.durable).collect(),
            ..Recovered::default()
        }
    }
}
