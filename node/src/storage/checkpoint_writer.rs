//! Owns snapshot files while they are being written: one's own, and those fetched from a leader.
//! Never lets an incomplete or damaged file have a snapshot's name.
//!
//! A file gets its name only when all of it is durable, and the name is durable on return
//! (KAFKA-15312: without the sync before, a power cut left snapshots of length zero).

use crate::batch::{Batch, HEADER_BYTES, MAX_BATCH_BYTES};
use crate::ids::{Offset, SnapshotId};
use crate::storage::checkpoint::{
    self, FETCHED_SUFFIX, PART_SUFFIX, ReadFault, SnapshotHeader, file_name,
};
use crate::storage::disk::Disk;
use crate::storage::error::{StorageError, write_error};

/// Records are gathered into batches of about this size, so that the file depends on the records
/// alone and not on how they were handed over.
const BATCH_BYTES: usize = 256 * 1024;
/// How much is written at most before it is made durable. To leave all of it to the end would keep the node
/// from everything else for as long as the disk takes for a whole snapshot.
const SYNC_BYTES: u64 = 2 * 1024 * 1024;
/// Largest record of a snapshot.
pub const MAX_RECORD_BYTES: usize = MAX_BATCH_BYTES - HEADER_BYTES - RECORD_OVERHEAD_BYTES;
const RECORD_OVERHEAD_BYTES: usize = 4;

/// A snapshot of this replica's own state that is being written.
///
/// Dropping it without freezing or abandoning it leaves a file that the next start removes.
#[derive(Debug)]
#[must_use = "a snapshot is either frozen or abandoned"]
pub struct SnapshotWriter {
    id: SnapshotId,
    header: SnapshotHeader,
    next_offset: Offset,
    pending: Vec<Vec<u8>>,
    pending_bytes: usize,
    length_bytes: u64,
    /// How much of it is durable.
    synced_bytes: u64,
}

impl SnapshotWriter {
    pub(crate) fn begin<D: Disk>(
        disk: &mut D,
        id: SnapshotId,
        header: SnapshotHeader,
    ) -> Result<Self, StorageError> {
        let batch = header.batch(id);
        let part = part_name(id);
        disk.write(&part, batch.bytes())
            .map_err(write_error("create", &part))?;
        Ok(Self {
            id,
            header,
            next_offset: batch.end_offset(),
            pending: Vec::new(),
            pending_bytes: 0,
            length_bytes: batch.bytes().len() as u64,
            synced_bytes: 0,
        })
    }

    /// Which snapshot it is going to be.
    pub fn id(&self) -> SnapshotId {
        self.id
    }

    /// Not to sync now and then is a deliberate mistake.
    ///
    /// # Panics
    /// If a record is larger than [`MAX_RECORD_BYTES`].
    pub(crate) fn append<D: Disk, R: AsRef<[u8]>>(
        &mut self,
        disk: &mut D,
        records: &[R],
        sync: bool,
    ) -> Result<(), StorageError> {
        for record in records {
            let record = record.as_ref();
            assert!(
                record.len() <= MAX_RECORD_BYTES,
                "a record of {} bytes does not fit into a batch",
                record.len()
            );
            let record_bytes = RECORD_OVERHEAD_BYTES + record.len();
            if self.pending_bytes + record_bytes > BATCH_BYTES {
                self.write_pending(disk)?;
            }
            self.pending.push(record.to_vec());
            self.pending_bytes += record_bytes;
        }
        let part = part_name(self.id);
        sync_now_and_then(disk, &part, self.length_bytes, &mut self.synced_bytes, sync)
    }

    /// Returns the header and the size of the file in bytes. Not to sync first is a deliberate mistake.
    pub(crate) fn freeze<D: Disk>(
        mut self,
        disk: &mut D,
        sync_first: bool,
    ) -> Result<(SnapshotHeader, u64), StorageError> {
        self.write_pending(disk)?;
        let timestamp_ms = self.header.last_contained_timestamp_ms;
        let footer = checkpoint::footer_batch(self.id, self.next_offset, timestamp_ms);
        self.write(disk, &footer)?;
        publish(disk, &part_name(self.id), self.id, sync_first)?;
        Ok((self.header, self.length_bytes))
    }

    pub(crate) fn abandon<D: Disk>(self, disk: &mut D) -> Result<(), StorageError> {
        remove(disk, &part_name(self.id))
    }

    fn write_pending<D: Disk>(&mut self, disk: &mut D) -> Result<(), StorageError> {
        if self.pending.is_empty() {
            return Ok(());
        }
        let batch = Batch::build(
            self.next_offset,
            self.id.epoch,
            self.header.last_contained_timestamp_ms,
            false,
            &self.pending,
        );
        self.pending.clear();
        self.pending_bytes = 0;
        self.write(disk, &batch)
    }

    fn write<D: Disk>(&mut self, disk: &mut D, batch: &Batch) -> Result<(), StorageError> {
        let part = part_name(self.id);
        disk.append(&part, batch.bytes())
            .map_err(write_error("append to", &part))?;
        self.next_offset = batch.end_offset();
        self.length_bytes += batch.bytes().len() as u64;
        Ok(())
    }
}

/// A snapshot that is being fetched from the leader, as bytes that need not end with a batch.
///
/// Dropping it without freezing or abandoning it leaves a file that the next start removes.
#[derive(Debug)]
#[must_use = "a download is either frozen or abandoned"]
pub struct SnapshotDownload {
    id: SnapshotId,
    length_bytes: u64,
    /// How much of it is durable.
    synced_bytes: u64,
}

impl SnapshotDownload {
    pub(crate) fn begin<D: Disk>(disk: &mut D, id: SnapshotId) -> Result<Self, StorageError> {
        let part = download_name(id);
        disk.write(&part, &[])
            .map_err(write_error("create", &part))?;
        Ok(Self {
            id,
            length_bytes: 0,
            synced_bytes: 0,
        })
    }

    /// Which snapshot is fetched.
    pub fn id(&self) -> SnapshotId {
        self.id
    }

    /// How many bytes there are so far: the position of the next piece.
    pub fn length_bytes(&self) -> u64 {
        self.length_bytes
    }

    pub(crate) fn append<D: Disk>(
        &mut self,
        disk: &mut D,
        position_bytes: u64,
        bytes: &[u8],
        sync: bool,
    ) -> Result<(), StorageError> {
        if position_bytes != self.length_bytes {
            return Err(StorageError::DownloadPosition {
                id: self.id,
                position_bytes,
                expected_bytes: self.length_bytes,
            });
        }
        let part = download_name(self.id);
        disk.append(&part, bytes)
            .map_err(write_error("append to", &part))?;
        self.length_bytes += bytes.len() as u64;
        sync_now_and_then(disk, &part, self.length_bytes, &mut self.synced_bytes, sync)
    }

    /// Checks every byte before anything else. A file that is not the snapshot is removed.
    /// Not to sync first is a deliberate mistake.
    pub(crate) fn freeze<D: Disk>(
        self,
        disk: &mut D,
        sync_first: bool,
    ) -> Result<(SnapshotHeader, u64), StorageError> {
        let part = download_name(self.id);
        match checkpoint::verify(disk, &part, self.id) {
            Ok(found) => {
                publish(disk, &part, self.id, sync_first)?;
                Ok(found)
            }
            Err(ReadFault::Damage(damage)) => {
                remove(disk, &part)?;
                Err(StorageError::DownloadDamaged {
                    id: self.id,
                    position_bytes: damage.position_bytes,
                    expected: damage.expected,
                    found: damage.found,
                })
            }
            Err(fault) => Err(fault.while_running(&part)),
        }
    }

    pub(crate) fn abandon<D: Disk>(self, disk: &mut D) -> Result<(), StorageError> {
        remove(disk, &download_name(self.id))
    }
}

/// One's own snapshot and a fetched one may be under way at the same time.
fn part_name(id: SnapshotId) -> String {
    file_name(id) + PART_SUFFIX
}

fn download_name(id: SnapshotId) -> String {
    file_name(id) + FETCHED_SUFFIX
}

fn sync_now_and_then<D: Disk>(
    disk: &mut D,
    part: &str,
    length_bytes: u64,
    synced_bytes: &mut u64,
    sync: bool,
) -> Result<(), StorageError> {
    if sync && length_bytes - *synced_bytes >= SYNC_BYTES {
        disk.sync(part).map_err(write_error("sync", part))?;
        *synced_bytes = length_bytes;
    }
    Ok(())
}

fn publish<D: Disk>(
    disk: &mut D,
    part: &str,
    id: SnapshotId,
    sync_first: bool,
) -> Result<(), StorageError> {
    let file = file_name(id);
    if sync_first {
        disk.sync(part).map_err(write_error("sync", part))?;
    }
    disk.rename(part, &file)
        .map_err(write_error("complete", &file))?;
    disk.sync_directory()
        .map_err(write_error("sync the directory for", &file))
}

/// Not made durable: a start removes such files anyway.
fn remove<D: Disk>(disk: &mut D, part: &str) -> Result<(), StorageError> {
    disk.remove(part).map_err(write_error("remove", part))
}
