//! Owns scripts of storage operations, and what they promise to be found after a crash.
//! Never crashes anything itself.

use std::collections::BTreeSet;

use super::crash_disk::CrashDisk;
use super::{Image, OPTIONS, batch, identity, open, read_all};
use crate::batch::Batch;
use crate::ids::{Epoch, NodeId, Offset, SnapshotId};
use crate::raft::{QuorumState, RecordedVoters};
use crate::storage::checkpoint_writer::SnapshotWriter;
use crate::storage::segment::base_offset;
use crate::storage::{Disk, SnapshotHeader, Storage, StorageError, checkpoint};

#[derive(Debug, Clone, Copy)]
pub(super) enum Step {
    /// Records, bytes of each, epoch.
    Append(usize, usize, i32),
    Sync,
    /// A sync that tells of what was durable before it.
    Note,
    Seal,
    Truncate(i64),
    /// Epoch and vote.
    Persist(i32, i32),
    /// Takes a snapshot that ends here.
    Snapshot(i64),
    /// Begins one and drops it.
    Abandon(i64),
    /// Fetches a snapshot: end offset and epoch.
    Download(i64, i32),
    /// Lets the log start here.
    Advance(i64),
    /// Drops the log for the newest snapshot.
    Reset,
}

/// What recovery may find.
#[derive(Debug, Clone, Default)]
pub(super) struct Promise {
    /// The log as written, with what is before its start; recovery finds a prefix of it.
    log: Vec<Batch>,
    /// How many of its batches must be there, or be in a snapshot.
    durable_count: usize,
    quorum_states: Vec<Option<QuorumState>>,
    start: SnapshotId,
    /// Where the log may start instead, because a change is under way.
    next_start: Option<SnapshotId>,
    /// Complete snapshots.
    snapshots: BTreeSet<SnapshotId>,
    /// The one that may be complete.
    next_snapshot: Option<SnapshotId>,
}

pub(super) const fn snapshot(end_offset: i64, epoch: i32) -> SnapshotId {
    SnapshotId {
        end_offset: Offset(end_offset),
        epoch: Epoch(epoch),
    }
}

/// What the snapshot of this id says before its records.
pub(super) fn header_of(id: SnapshotId) -> SnapshotHeader {
    SnapshotHeader {
        last_contained_timestamp_ms: id.end_offset.0,
        voters: Some(RecordedVoters {
            kraft_version: 1,
            voters: [NodeId(1), NodeId(id.epoch.0 + 2)].into_iter().collect(),
        }),
    }
}

/// The records of the snapshot of this id.
pub(super) fn records_of(id: SnapshotId) -> Vec<Vec<u8>> {
    (0..3)
        .map(|at| vec![id.end_offset.0 as u8 + at; 70])
        .collect()
}

/// The file of the snapshot of this id.
pub(super) fn bytes_of(id: SnapshotId) -> Vec<u8> {
    let mut disk = CrashDisk::default();
    let mut writer = SnapshotWriter::begin(&mut disk, id, header_of(id)).unwrap();
    writer.append(&mut disk, &records_of(id), true).unwrap();
    writer.freeze(&mut disk, true).unwrap();
    disk.durable_image()[&checkpoint::file_name(id)].clone()
}

pub(super) fn take_snapshot<D: Disk>(
    storage: &mut Storage<D>,
    id: SnapshotId,
) -> Result<(), StorageError> {
    let mut writer = storage.begin_snapshot(id, header_of(id))?.unwrap();
    let records = records_of(id);
    storage.append_snapshot(&mut writer, &records[..1])?;
    storage.append_snapshot(&mut writer, &records[1..])?;
    storage.freeze_snapshot(writer).map(drop)
}

pub(super) fn fetch_snapshot<D: Disk>(
    storage: &mut Storage<D>,
    id: SnapshotId,
) -> Result<(), StorageError> {
    let mut download = storage.begin_download(id)?.unwrap();
    // Not where a batch ends.
    for piece in bytes_of(id).chunks(350) {
        let position_bytes = download.length_bytes();
        storage.append_download(&mut download, position_bytes, piece)?;
    }
    storage.freeze_download(download)
}

/// Whether the log is outdated by the snapshot: it does not reach it, or contradicts it.
fn outdates(id: SnapshotId, log: &[Batch], start: SnapshotId) -> bool {
    let (log_end, last_epoch) = log.last().map_or((start.end_offset, start.epoch), |batch| {
        (batch.end_offset(), batch.epoch())
    });
    id.end_offset > log_end
        || id.epoch > last_epoch
        || (id.end_offset == log_end && id.epoch != last_epoch)
}

impl Promise {
    fn carry_out<D: Disk>(
        &mut self,
        step: Step,
        storage: &mut Storage<D>,
    ) -> Result<(), StorageError> {
        match step {
            Step::Append(record_count, record_bytes, epoch) => {
                let batch = batch(storage.log_end().0, epoch, record_count, record_bytes);
                self.log.push(batch.clone());
                storage.append(&batch)?;
            }
            Step::Sync | Step::Note | Step::Seal => {
                match step {
                    Step::Seal => storage.seal()?,
                    Step::Note => {
                        let synced = storage.begin_sync_and_note_end()?.run();
                        assert_eq!(storage.finish_sync(synced)?, Some(storage.log_end()));
                    }
                    _ => assert_eq!(storage.sync()?, storage.log_end()),
                }
                self.durable_count = self.log.len();
            }
            Step::Truncate(log_end) => {
                let kept_count = self
                    .log
                    .partition_point(|batch| batch.end_offset() <= Offset(log_end));
                self.durable_count = self.durable_count.min(kept_count);
                storage.truncate(Offset(log_end))?;
                self.log.truncate(kept_count);
                self.durable_count = kept_count;
            }
            Step::Persist(epoch, vote) => {
                let state = QuorumState {
                    epoch: Epoch(epoch),
                    leader: None,
                    voted_for: Some(NodeId(vote).into()),
                };
                self.quorum_states.push(Some(state));
                storage.persist(state)?;
                self.quorum_states = vec![Some(state)];
            }
            step => self.carry_out_with_snapshots(step, storage)?,
        }
        assert_eq!(
            read_all(storage),
            self.log_from(self.start),
            "after {step:?}"
        );
        assert_eq!(storage.log_start_snapshot(), self.start);
        let snapshots: BTreeSet<SnapshotId> = storage.snapshots().map(|found| found.id).collect();
        assert_eq!(snapshots, self.snapshots, "after {step:?}");
        Ok(())
    }

    fn carry_out_with_snapshots<D: Disk>(
        &mut self,
        step: Step,
        storage: &mut Storage<D>,
    ) -> Result<(), StorageError> {
        match step {
            Step::Snapshot(end_offset) => {
                let id = self.own_id(end_offset);
                self.next_snapshot = Some(id);
                take_snapshot(storage, id)?;
                self.snapshots.insert(id);
                self.next_snapshot = None;
            }
            Step::Abandon(end_offset) => {
                let id = self.own_id(end_offset);
                let mut writer = storage.begin_snapshot(id, header_of(id))?.unwrap();
                storage.append_snapshot(&mut writer, &records_of(id))?;
                storage.abandon_snapshot(writer)?;
            }
            Step::Download(end_offset, epoch) => {
                let id = snapshot(end_offset, epoch);
                self.next_snapshot = Some(id);
                fetch_snapshot(storage, id)?;
                self.snapshots.insert(id);
                self.next_snapshot = None;
            }
            Step::Advance(new_start) => {
                let start = *self
                    .snapshots
                    .iter()
                    .find(|id| id.end_offset == Offset(new_start))
                    .unwrap();
                self.next_start = Some(start);
                storage.advance_log_start(Offset(new_start))?;
                self.start = start;
                self.next_start = None;
                self.snapshots.retain(|id| *id >= start);
            }
            Step::Reset => {
                let start = *self.snapshots.last().unwrap();
                self.next_start = Some(start);
                storage.reset_to(start)?;
                self.log.clear();
                self.durable_count = 0;
                self.start = start;
                self.next_start = None;
                self.snapshots.retain(|id| *id >= start);
            }
            other => panic!("{other:?} has nothing to do with snapshots"),
        }
        Ok(())
    }

    fn own_id(&self, end_offset: i64) -> SnapshotId {
        let last = self
            .log
            .iter()
            .find(|batch| batch.end_offset() == Offset(end_offset))
            .unwrap();
        snapshot(end_offset, last.epoch().0)
    }

    fn log_from(&self, start: SnapshotId) -> &[Batch] {
        let below_count = self
            .log
            .partition_point(|batch| batch.base_offset() < start.end_offset);
        &self.log[below_count..]
    }

    /// Recovers `image`, checks what is found, and returns the disk and how many batches there are.
    pub(super) fn check(&self, image: &Image, context: &str) -> (CrashDisk, usize) {
        let disk = CrashDisk::from_image(image);
        let (storage, recovered) = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = read_all(&storage);
        self.check_snapshots(&storage, context);
        self.check_log(&storage, &found, context);
        assert_eq!(recovered.log_start, storage.log_start());
        assert_eq!(recovered.log_end, storage.log_end());
        let mut epochs: Vec<_> = found.iter().map(Batch::epoch).collect();
        epochs.dedup();
        assert_eq!(
            recovered
                .epochs
                .iter()
                .map(|start| start.epoch)
                .collect::<Vec<_>>(),
            epochs
        );
        assert!(
            self.quorum_states.contains(&recovered.quorum_state),
            "{context}: {:?}",
            recovered.quorum_state
        );
        let left = disk.visible_image();
        assert_eq!(
            left,
            disk.durable_image(),
            "{context}: what was found is not durable"
        );
        check_names(&left, storage.log_start(), context);

        let (again, second) = open(&disk).unwrap();
        assert_eq!(
            disk.visible_image(),
            left,
            "{context}: the second opening changed something"
        );
        assert_eq!(read_all(&again), found, "{context}");
        assert_eq!(
            again.log_start_snapshot(),
            storage.log_start_snapshot(),
            "{context}"
        );
        assert_eq!(second.truncated_bytes, 0, "{context}");
        assert_eq!(second.quorum_state, recovered.quorum_state, "{context}");
        (disk, found.len())
    }

    /// What was synced is in the log or in a snapshot, and the log starts where it may.
    fn check_log(&self, storage: &Storage<CrashDisk>, found: &[Batch], context: &str) {
        let start = storage.log_start_snapshot();
        let log_end = found.last().map_or(start.end_offset, Batch::end_offset);
        assert_eq!(log_end, storage.log_end(), "{context}");
        let latest = storage.latest_snapshot().map(|latest| latest.id);
        assert!(
            start == self.start || Some(start) == self.next_start || Some(start) == latest,
            "{context}: the log starts at {start}"
        );
        if let Some(latest) = latest
            && outdates(latest, &self.log, self.start)
        {
            assert_eq!((start, log_end), (latest, latest.end_offset), "{context}");
            return;
        }
        let expected = self.log_from(start);
        assert_eq!(found, &expected[..found.len()], "{context}");
        let durable_end = self.log[..self.durable_count]
            .last()
            .map_or(self.start.end_offset, Batch::end_offset);
        assert!(
            log_end >= durable_end,
            "{context}: lost synced batches: {log_end} instead of {durable_end}"
        );
    }

    /// Every snapshot that is found is whole; those that must be there are there.
    fn check_snapshots(&self, storage: &Storage<CrashDisk>, context: &str) {
        let start = storage.log_start_snapshot();
        let found: BTreeSet<SnapshotId> = storage.snapshots().map(|found| found.id).collect();
        assert!(
            start == SnapshotId::default() || found.contains(&start),
            "{context}: no snapshot ends where the log starts, at {start}"
        );
        for id in &self.snapshots {
            assert!(
                found.contains(id) || *id < start,
                "{context}: lost snapshot {id}"
            );
        }
        for snapshot in storage.snapshots() {
            let id = snapshot.id;
            assert!(
                id >= start && (self.snapshots.contains(&id) || self.next_snapshot == Some(id)),
                "{context}: {id} is there"
            );
            assert_eq!(snapshot.header, header_of(id), "{context}");
            let bytes = storage.read_snapshot_bytes(id, 0, usize::MAX).unwrap();
            assert_eq!(bytes, bytes_of(id), "{context}");
            assert_eq!(bytes.len() as u64, snapshot.size_bytes, "{context}");
        }
    }
}

/// Nothing is left behind that a crash interrupted.
fn check_names(image: &Image, log_start: Offset, context: &str) {
    assert!(
        image
            .keys()
            .all(|name| !name.ends_with(".part") && !name.ends_with(".tmp")),
        "{context}: {:?}",
        image.keys()
    );
    let up_to_start_count = image
        .keys()
        .filter_map(|name| base_offset(name))
        .filter(|base| *base <= log_start)
        .count();
    assert_eq!(up_to_start_count, 1, "{context}: {:?}", image.keys());
}

/// Runs `script` until the crash, or to its end; says whether it crashed.
pub(super) fn run<D: Disk>(script: &[Step], disk: D) -> (Promise, bool) {
    let mut promise = Promise {
        quorum_states: vec![None],
        ..Promise::default()
    };
    let Ok((mut storage, _)) = Storage::open(disk, &identity(), OPTIONS) else {
        return (promise, true);
    };
    for step in script {
        if promise.carry_out(*step, &mut storage).is_err() {
            assert!(matches!(storage.sync(), Err(StorageError::Stopped)));
            return (promise, true);
        }
    }
    (promise, false)
}
