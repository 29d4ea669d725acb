//! Owns the part of storage that snapshots and the start of the log are changed with.
//! Never decides when a snapshot is taken, fetched or dropped.
//!
//! The invariant that everything here keeps, at every moment of a crash: a log that does not start
//! at 0 starts where a durable snapshot ends, and whatever was acknowledged is in that snapshot or
//! in the log after it. The order is always the same: the snapshot becomes durable, then the
//! `log-start` file names it, then what lies before is removed. So whichever of these steps was the
//! last, recovery can tell from the file what is still needed, and finishes the removal.

use crate::control_record::ControlRecord;
use crate::ids::{DirectoryId, Offset, SnapshotId};
use crate::raft::StoredSnapshot;
use crate::storage::checkpoint::{SnapshotHeader, SnapshotReader, file_name};
use crate::storage::checkpoint_writer::{SnapshotDownload, SnapshotWriter};
use crate::storage::error::write_error;
use crate::storage::log_end::{self, LogEnd};
use crate::storage::snapshot_recovery::SnapshotFile;
use crate::storage::{Disk, Storage, StorageError, VotersFrom, log_start};

impl<D: Disk> Storage<D> {
    /// Id of the data directory; `None` where it never got one.
    pub fn directory_id(&self) -> Option<DirectoryId> {
        self.directory_id
    }

    /// Where the replica has its voters from, as formatting or its first start decided.
    pub fn voters_from(&self) -> VotersFrom {
        self.voters_from
    }

    /// The snapshot at whose end the log starts; 0 in epoch 0 for a log that is whole. Its epoch is
    /// that of an empty log.
    pub fn log_start_snapshot(&self) -> SnapshotId {
        self.log.start()
    }

    /// Size of the log on the disk, without snapshots.
    pub fn log_bytes(&self) -> u64 {
        self.log.length_bytes()
    }

    /// Size of the part of the log from the batch at `offset` on.
    pub fn log_bytes_from(&self, offset: Offset) -> u64 {
        self.log.length_bytes_from(offset)
    }

    /// All complete snapshots, ascending, the bootstrap snapshot among them.
    pub fn snapshots(&self) -> impl DoubleEndedIterator<Item = &SnapshotFile> {
        self.snapshots.values()
    }

    /// The snapshots that followers may fetch: all but the bootstrap snapshot, ascending.
    pub fn sendable_snapshots(&self) -> Vec<StoredSnapshot> {
        let sendable = self
            .snapshots()
            .filter(|file| file.id != SnapshotId::BOOTSTRAP);
        sendable.map(SnapshotFile::stored).collect()
    }

    /// The newest complete snapshot.
    pub fn latest_snapshot(&self) -> Option<&SnapshotFile> {
        self.snapshots.values().next_back()
    }

    /// The records in the log that change the voters or the `kraft.version`, with their offsets.
    ///
    /// # Errors
    /// If the disk fails, or a control batch is damaged or holds what this version does not know.
    pub fn voter_records(&self) -> Result<Vec<(Offset, ControlRecord)>, StorageError> {
        let mut found = Vec::new();
        for batch in self.log.control_batches(&self.disk)? {
            for (offset, bytes) in batch.records() {
                let record =
                    ControlRecord::decode(bytes).map_err(|error| StorageError::ControlRecord {
                        offset,
                        reason: error.to_string(),
                    })?;
                let is_wanted = matches!(
                    record,
                    ControlRecord::KraftVersion { .. } | ControlRecord::Voters { .. }
                );
                if is_wanted {
                    found.push((offset, record));
                }
            }
        }
        Ok(found)
    }

    /// Begins to write a snapshot of this replica's own state. `None` where there is one of this id,
    /// or the log starts after it already.
    ///
    /// # Errors
    /// If the id is not the end and epoch of a batch in the log (KAFKA-14619). If the disk fails;
    /// that is fatal.
    pub fn begin_snapshot(
        &mut self,
        id: SnapshotId,
        header: SnapshotHeader,
    ) -> Result<Option<SnapshotWriter>, StorageError> {
        if self.snapshots.contains_key(&id) || id.end_offset < self.log_start() {
            return Ok(None);
        }
        self.check_own(id)?;
        self.change(|_, disk| SnapshotWriter::begin(disk, id, header))
            .map(Some)
    }

    /// Whether a batch of the log ends at `offset`.
    pub(crate) fn ends_batch(&self, offset: Offset) -> bool {
        let entry = self.log.entry_up_to(offset);
        entry.is_some_and(|entry| entry.end_offset == offset)
    }

    fn check_own(&self, id: SnapshotId) -> Result<(), StorageError> {
        let wrong = |reason| Err(StorageError::SnapshotId { id, reason });
        match self.log.entry_up_to(id.end_offset) {
            Some(entry) if entry.end_offset != id.end_offset => wrong(format!(
                "it has to end with a batch, and the last one before is {}..{}",
                entry.base_offset, entry.end_offset
            )),
            Some(entry) if entry.epoch != id.epoch => wrong(format!(
                "the batch it ends with is of epoch {}",
                entry.epoch
            )),
            Some(_) => Ok(()),
            None => wrong("there is no batch in the log that it could end with".to_owned()),
        }
    }

    /// Adds records of the state machine. How they are handed over makes no difference to the file.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    ///
    /// # Panics
    /// If a record is larger than [`MAX_RECORD_BYTES`](crate::storage::MAX_RECORD_BYTES).
    pub fn append_snapshot<R: AsRef<[u8]>>(
        &mut self,
        writer: &mut SnapshotWriter,
        records: &[R],
    ) -> Result<(), StorageError> {
        let sync = self.sync_snapshots;
        self.change(|_, disk| writer.append(disk, records, sync))
    }

    /// Completes the snapshot and returns what the protocol core must be told of it. Durable on
    /// return.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub fn freeze_snapshot(
        &mut self,
        writer: SnapshotWriter,
    ) -> Result<StoredSnapshot, StorageError> {
        let id = writer.id();
        let sync_first = self.sync_snapshots;
        let (header, size_bytes) = self.change(|_, disk| writer.freeze(disk, sync_first))?;
        self.note_snapshot(id, header, size_bytes);
        Ok(StoredSnapshot { id, size_bytes })
    }

    /// Drops what was written of the snapshot.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub fn abandon_snapshot(&mut self, writer: SnapshotWriter) -> Result<(), StorageError> {
        self.change(|_, disk| writer.abandon(disk))
    }

    /// Begins to store a snapshot that is fetched from the leader. `None` where it is there already.
    ///
    /// # Errors
    /// If the id is that of the bootstrap snapshot, which is never fetched, or of one before the log
    /// start. If the disk fails; that is fatal.
    pub fn begin_download(
        &mut self,
        id: SnapshotId,
    ) -> Result<Option<SnapshotDownload>, StorageError> {
        if self.snapshots.contains_key(&id) {
            return Ok(None);
        }
        let log_start = self.log_start();
        if id.end_offset <= log_start {
            let reason = format!("it would end before the log start, {log_start}, or at it");
            return Err(StorageError::SnapshotId { id, reason });
        }
        self.change(|_, disk| SnapshotDownload::begin(disk, id))
            .map(Some)
    }

    /// Adds the bytes that belong at `position_bytes`, which is the length so far. They need not end
    /// with a batch.
    ///
    /// # Errors
    /// If the position is another one; nothing was stored. If the disk fails; that is fatal.
    pub fn append_download(
        &mut self,
        download: &mut SnapshotDownload,
        position_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), StorageError> {
        let sync = self.sync_snapshots;
        self.change(|_, disk| download.append(disk, position_bytes, bytes, sync))
    }

    /// Checks every byte of the snapshot and completes it. Durable on return. The log is as before;
    /// [`reset_to`](Self::reset_to) has to follow, and the next start does it if that fails.
    ///
    /// # Errors
    /// If it is no sound snapshot: it was dropped. If the disk fails; that is fatal.
    pub fn freeze_download(&mut self, download: SnapshotDownload) -> Result<(), StorageError> {
        let id = download.id();
        let sync_first = self.sync_snapshots;
        let (header, size_bytes) = self.change(|_, disk| download.freeze(disk, sync_first))?;
        self.note_snapshot(id, header, size_bytes);
        Ok(())
    }

    /// Drops what was fetched.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub fn abandon_download(&mut self, download: SnapshotDownload) -> Result<(), StorageError> {
        self.change(|_, disk| download.abandon(disk))
    }

    /// Opens a snapshot to read its records.
    ///
    /// # Errors
    /// If there is no such snapshot, it is damaged, or the disk fails.
    pub fn read_snapshot(&self, id: SnapshotId) -> Result<SnapshotReader<'_, D>, StorageError> {
        self.known(id)?;
        SnapshotReader::open(&self.disk, id)
    }

    /// Up to `max_bytes` of the file of a snapshot from `position_bytes` on, to be sent to a
    /// follower; nothing from the end on.
    ///
    /// # Errors
    /// If there is no such snapshot, or the disk fails. The bytes are not checked; whoever receives
    /// all of them does that.
    pub fn read_snapshot_bytes(
        &self,
        id: SnapshotId,
        position_bytes: u64,
        max_bytes: usize,
    ) -> Result<Vec<u8>, StorageError> {
        let left_bytes = self.known(id)?.size_bytes.saturating_sub(position_bytes);
        let length_bytes =
            usize::try_from(left_bytes).map_or(max_bytes, |left| left.min(max_bytes));
        let file = file_name(id);
        self.disk
            .read(&file, position_bytes, length_bytes)
            .map_err(|source| StorageError::Read {
                file,
                position_bytes,
                source,
            })
    }

    /// Removes a snapshot. Durable on return.
    ///
    /// # Errors
    /// If there is no such snapshot. If the disk fails; that is fatal.
    ///
    /// # Panics
    /// If the log starts where it ends: nothing else has what was before.
    pub fn delete_snapshot(&mut self, id: SnapshotId) -> Result<(), StorageError> {
        assert!(
            id.end_offset != self.log_start(),
            "the log starts at the end of snapshot {id}, so that is needed"
        );
        self.known(id)?;
        self.change(|_, disk| {
            remove_snapshot(disk, id)?;
            sync_removals(disk)
        })?;
        self.snapshots.remove(&id);
        Ok(())
    }

    /// Lets the log start later: what is before `new_start` is only in the snapshot that ends there.
    /// Durable on return. Removes the snapshots before it, and the segments that hold nothing else.
    /// Does nothing if the log starts there or later already.
    ///
    /// # Errors
    /// If no snapshot ends at `new_start`. If the disk fails; that is fatal.
    ///
    /// # Panics
    /// If the log ends before `new_start`: it has to be [reset](Self::reset_to) then.
    pub fn advance_log_start(&mut self, new_start: Offset) -> Result<(), StorageError> {
        if new_start <= self.log_start() {
            return Ok(());
        }
        let mut ids = self.snapshots.keys();
        let Some(start) = ids.find(|id| id.end_offset == new_start).copied() else {
            return Err(StorageError::NoSnapshotEndsAt {
                new_start,
                known: self.snapshots.keys().copied().collect(),
            });
        };
        assert!(
            new_start <= self.log_end(),
            "a log that ends at {} cannot start at {new_start}",
            self.log_end()
        );
        let outdated = self.outdated(start);
        self.change(|log, disk| {
            log_start::write(disk, start)?;
            log.advance_start(disk, start)?;
            remove_snapshots(disk, &outdated)
        })?;
        self.snapshots.retain(|id, _| *id >= start);
        Ok(())
    }

    /// Deletes the oldest segments until the others have at most `limit_bytes`, as long as all records
    /// in them are below `applied`, and says where the log starts then. Asks for no snapshot of what
    /// it deletes: a deliberate mistake for a seeded bug, never right.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub(crate) fn delete_oldest_segments(
        &mut self,
        limit_bytes: u64,
        applied: Offset,
    ) -> Result<Option<Offset>, StorageError> {
        let Some(start) = self.log.start_within(limit_bytes, applied) else {
            return Ok(None);
        };
        let outdated = self.outdated(start);
        self.change(|log, disk| {
            log_start::write(disk, start)?;
            log.advance_start(disk, start)?;
            remove_snapshots(disk, &outdated)
        })?;
        self.snapshots.retain(|id, _| *id >= start);
        Ok(Some(start.end_offset))
    }

    /// Drops the whole log, which goes on from the end of the newest snapshot. Durable on return. A
    /// crash half-way leaves a log that does not lead up to the snapshot, and the next start drops
    /// it. Older snapshots go as well.
    ///
    /// # Errors
    /// If `id` is not the newest snapshot. If the disk fails; that is fatal.
    ///
    /// # Panics
    /// If the log starts after the snapshot.
    pub fn reset_to(&mut self, id: SnapshotId) -> Result<(), StorageError> {
        if self.latest_snapshot().map(|latest| latest.id) != Some(id) {
            return Err(StorageError::NoSuchSnapshot {
                id,
                known: self.snapshots.keys().copied().collect(),
            });
        }
        assert!(
            id.end_offset >= self.log_start(),
            "a log that starts at {} cannot be reset to {id}",
            self.log_start()
        );
        let outdated = self.outdated(id);
        let forgets_end = self.known_end.is_some();
        let end = LogEnd {
            end_offset: id.end_offset,
            last_crc: None,
        };
        self.change(|log, disk| {
            log_start::write(disk, id)?;
            if forgets_end {
                log_end::write(disk, end)?;
            }
            log.reset(disk, id)?;
            remove_snapshots(disk, &outdated)
        })?;
        self.known_end = forgets_end.then_some(end);
        self.snapshots.retain(|other, _| *other == id);
        Ok(())
    }

    fn outdated(&self, start: SnapshotId) -> Vec<SnapshotId> {
        self.snapshots.range(..start).map(|(id, _)| *id).collect()
    }

    fn known(&self, id: SnapshotId) -> Result<&SnapshotFile, StorageError> {
        self.snapshots
            .get(&id)
            .ok_or_else(|| StorageError::NoSuchSnapshot {
                id,
                known: self.snapshots.keys().copied().collect(),
            })
    }

    fn note_snapshot(&mut self, id: SnapshotId, header: SnapshotHeader, size_bytes: u64) {
        let snapshot = SnapshotFile {
            id,
            size_bytes,
            header,
        };
        self.snapshots.insert(id, snapshot);
    }
}

fn remove_snapshot<D: Disk>(disk: &mut D, id: SnapshotId) -> Result<(), StorageError> {
    let file = file_name(id);
    disk.remove(&file).map_err(write_error("remove", &file))
}

fn remove_snapshots<D: Disk>(disk: &mut D, ids: &[SnapshotId]) -> Result<(), StorageError> {
    for id in ids {
        remove_snapshot(disk, *id)?;
    }
    sync_removals(disk)
}

fn sync_removals<D: Disk>(disk: &mut D) -> Result<(), StorageError> {
    disk.sync_directory()
        .map_err(write_error("sync the directory for", "removed files"))
}
