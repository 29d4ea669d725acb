//! Owns everything that survives a crash: log, snapshots, quorum-state file, and their recovery.
//! Never decides what is written; the protocol core does.
//!
//! A data directory holds `meta.properties` (whose directory it is), `quorum-state` (epoch, leader,
//! vote, configured voters), the log as segments `<base offset>.log`, snapshots
//! `<end offset>-<epoch>.checkpoint`, `log-start` once the log has lost its beginning to a snapshot, and
//! `log-end`, which tells how far the log was durable a moment ago. What a segment looks like, and how
//! recovery tells a torn tail from damage, is described in [`frame`] and [`recovery`]; what a
//! snapshot looks like in [`checkpoint`].
//!
//! The log start is an offset of its own (as in Kafka), not the start of a segment: the `log-start`
//! file names the snapshot that ends there. It is replaced as a whole, before anything is removed,
//! so a crash at any point leaves the old or the new start, and too many files at worst.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod cache;
pub mod checkpoint;
mod checkpoint_writer;
pub mod directory_disk;
pub mod disk;
pub mod dump;
mod error;
pub mod faulty_disk;
pub mod format;
pub mod frame;
pub mod injected_faults;
mod line;
mod log;
pub mod log_end;
pub mod log_start;
mod log_sync;
pub mod meta;
mod near_end;
pub mod quorum_state;
pub mod read_only_disk;
pub mod recovery;
pub(crate) mod segment;
mod snapshot_recovery;
mod snapshots;
pub mod witness;
pub mod write_behind_disk;

#[cfg(test)]
mod tests;

pub use checkpoint::{SnapshotHeader, SnapshotReader};
pub use checkpoint_writer::{MAX_RECORD_BYTES, SnapshotDownload, SnapshotWriter};
pub use directory_disk::{DirectoryDisk, DirectoryDiskError};
pub use disk::{Disk, DiskSync};
pub use error::{OpenError, StorageError};
pub use format::format;
pub use meta::{Identity, VotersFrom};
pub use read_only_disk::ReadOnlyDisk;
pub use snapshot_recovery::SnapshotFile;
pub use write_behind_disk::WriteBehindDisk;

use std::collections::BTreeSet;

use crate::batch::Batch;
use crate::ids::{DirectoryId, NodeId, Offset};
use crate::raft::{QuorumState, Recovered};

use log::Log;
use log_end::LogEnd;
pub use log_sync::{LogSync, LogSynced};
use quorum_state::ConfiguredVoters;
use snapshot_recovery::Snapshots;

/// Sizes that storage works with.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StorageOptions {
    /// A segment is closed before it would grow past this size. A larger batch gets its own.
    pub segment_bytes: u64,
    /// How many bytes of the newest batches are kept in memory, so that fetches of followers that
    /// keep up, and applying, do not read the disk.
    pub cache_bytes: u64,
    /// Whether recovery checks the checksums of batches. Anything but yes is a deliberate mistake.
    pub verify_checksums: bool,
    /// Whether a log is refused beside which there is no quorum-state file. Anything but yes is a
    /// deliberate mistake, or a test of the log alone.
    pub require_quorum_state: bool,
    /// Whether the content of a snapshot is durable before its name is. Anything but yes is a
    /// deliberate mistake.
    pub sync_snapshots: bool,
    /// Whether a start takes what was fetched of a snapshot for the whole, and what is in a snapshot
    /// on trust. Anything but no is a deliberate mistake.
    pub accept_parts: bool,
}

impl Default for StorageOptions {
    fn default() -> Self {
        Self {
            segment_bytes: 64 * 1024 * 1024,
            cache_bytes: 16 * 1024 * 1024,
            verify_checksums: true,
            require_quorum_state: true,
            sync_snapshots: true,
            accept_parts: false,
        }
    }
}

/// The durable state of one replica.
///
/// After an error that [`is_fatal`](StorageError::is_fatal) nobody knows what is durable: every
/// later change is refused, and the process has to stop and recover from what is on the disk.
#[derive(Debug)]
pub struct Storage<D> {
    disk: D,
    log: Log,
    snapshots: Snapshots,
    directory_id: Option<DirectoryId>,
    sync_snapshots: bool,
    voters_from: VotersFrom,
    /// Those that the quorum-state file names, or will.
    configured_voters: ConfiguredVoters,
    /// What the `log-end` file says.
    known_end: Option<LogEnd>,
    stopped: bool,
}

impl<D: Disk> Storage<D> {
    /// Opens the data directory on `disk`, or initialises an empty one, and repairs what a crash
    /// left behind. When this returns, everything that was recovered is durable.
    ///
    /// # Errors
    /// If the directory belongs to another node or cluster, if something in it is damaged or
    /// missing in a way that no crash explains, or if the disk fails. In the first two cases
    /// nothing was changed.
    pub fn open(
        disk: D,
        identity: &Identity,
        options: StorageOptions,
    ) -> Result<(Self, Recovered), OpenError> {
        Self::open_with_directory_id(disk, identity, None, options)
    }

    /// As [`open`](Self::open). A directory that has no id of its own, because it is empty or was
    /// initialised without one, gets `new_directory_id`.
    ///
    /// # Errors
    /// As [`open`](Self::open).
    pub fn open_with_directory_id(
        mut disk: D,
        identity: &Identity,
        new_directory_id: Option<DirectoryId>,
        options: StorageOptions,
    ) -> Result<(Self, Recovered), OpenError> {
        let found = recovery::recover(&mut disk, identity, new_directory_id, options)?;
        let mut storage = Self {
            disk,
            log: Log::new(options, found.log_start, found.segments),
            snapshots: found.snapshots,
            directory_id: found.directory_id,
            sync_snapshots: options.sync_snapshots,
            voters_from: found.voters_from,
            configured_voters: found.configured_voters,
            known_end: found.known_end,
            stopped: false,
        };
        if let Some(snapshot) = found.reset_to {
            storage.reset_to(snapshot)?;
        }
        if let Some(meta) = found.new_meta {
            if storage.known_end.is_none() {
                storage.note_end(storage.log.end_at(storage.log.log_end()))?;
            }
            storage.change(|_, disk| meta::write(disk, &meta))?;
        }
        let recovered = Recovered {
            quorum_state: found.quorum_state,
            log_start: storage.log.log_start(),
            log_end: storage.log.log_end(),
            epochs: storage.log.epochs(),
            truncated_bytes: found.truncated_bytes,
            snapshots: storage.sendable_snapshots(),
            snapshot_voters: storage
                .latest_snapshot()
                .and_then(|snapshot| snapshot.header.voters.clone()),
            control_records: storage.voter_records()?,
        };
        Ok((storage, recovered))
    }

    /// First offset of the log.
    pub fn log_start(&self) -> Offset {
        self.log.log_start()
    }

    /// End offset of the log, whether durable or not.
    pub fn log_end(&self) -> Offset {
        self.log.log_end()
    }

    /// Adds a batch at the end of the log. It is durable after the next [`sync`](Self::sync).
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    ///
    /// # Panics
    /// If the base offset is not the log end offset, or the epoch is lower than that of the batch
    /// before it.
    pub fn append(&mut self, batch: &Batch) -> Result<(), StorageError> {
        self.change(|log, disk| log.append(disk, batch))
    }

    /// Cuts the log back to `log_end`, durably: what was cut does not come back after a crash, and
    /// a crash half-way leaves a log that ends somewhere between the new and the old end.
    ///
    /// The cut is made durable here and not with the next sync, so that nothing new is ever written
    /// over an old suffix that a crash could bring back.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    ///
    /// # Panics
    /// If `log_end` is outside the log or inside a batch.
    pub fn truncate(&mut self, log_end: Offset) -> Result<(), StorageError> {
        self.log.assert_can_end_at(log_end);
        if self
            .known_end
            .is_some_and(|known| known.end_offset > log_end)
        {
            // Before the cut: after a crash between the two the log may only be longer than known.
            self.note_end(self.log.end_at(log_end))?;
        }
        self.change(|log, disk| log.truncate(disk, log_end))
    }

    /// Replaces the quorum-state file. Durable on return. Says nothing about unsynced batches.
    ///
    /// # Errors
    /// If the disk fails; that is fatal, and either the old or the new state is found at the next
    /// start.
    pub fn persist(&mut self, state: QuorumState) -> Result<(), StorageError> {
        self.write_quorum_state(state, quorum_state::write)
    }

    /// As [`persist`](Self::persist), but durable only once something else syncs: a deliberate
    /// mistake for a seeded bug, never right.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub(crate) fn persist_unsynced(&mut self, state: QuorumState) -> Result<(), StorageError> {
        self.write_quorum_state(state, quorum_state::write_unsynced)
    }

    /// As [`persist`](Self::persist), but the epoch follows in a second write: a deliberate mistake
    /// for a seeded bug, never right.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub(crate) fn persist_in_two_writes(&mut self, state: QuorumState) -> Result<(), StorageError> {
        self.write_quorum_state(state, quorum_state::write_vote_then_epoch)
    }

    fn write_quorum_state(
        &mut self,
        state: QuorumState,
        write: impl FnOnce(&mut D, QuorumState, &ConfiguredVoters) -> Result<(), StorageError>,
    ) -> Result<(), StorageError> {
        // Taken out, because both are borrowed otherwise.
        let voters = self.configured_voters.take();
        let outcome = self.change(|_, disk| write(disk, state, &voters));
        self.configured_voters = voters;
        outcome
    }

    /// The configured voters that this replica was started with before (kraft.version 0); `None` where
    /// nobody noted them.
    pub fn configured_voters(&self) -> Option<&BTreeSet<NodeId>> {
        self.configured_voters.as_ref()
    }

    /// Notes configured voters next to `state`, which is what the quorum-state file says. Durable on return;
    /// where there is no such file yet, together with the first state that is persisted. Until then this
    /// replica has promised nothing to anybody.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub fn note_voters(
        &mut self,
        voters: BTreeSet<NodeId>,
        state: Option<QuorumState>,
    ) -> Result<(), StorageError> {
        let voters = Some(voters);
        if self.configured_voters == voters {
            return Ok(());
        }
        self.configured_voters = voters;
        state.map_or(Ok(()), |state| self.persist(state))
    }

    /// Makes the log durable and returns its end offset. Free when nothing was appended since.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub fn sync(&mut self) -> Result<Offset, StorageError> {
        self.change(Log::sync)?;
        Ok(self.log.log_end())
    }

    /// Begins to make durable what the log holds now. It can be used on while the sync that is returned
    /// runs; what came of that is told to [`finish_sync`](Self::finish_sync).
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub fn begin_sync(&mut self) -> Result<LogSync, StorageError> {
        self.change(Log::begin_sync)
    }

    /// As [`begin_sync`](Self::begin_sync), and has the `log-end` file tell how far the log is durable already, so that
    /// a log that is never left alone for long does not lose more than its last seconds unnoticed. Adds two syncs to
    /// the one that is returned, so it is meant to be rare.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub fn begin_sync_and_note_end(&mut self) -> Result<LogSync, StorageError> {
        let end = self.log.durable_end();
        let sync = self.begin_sync()?;
        if end.last_crc.is_none() || self.known_end == Some(end) {
            return Ok(sync);
        }
        let work = self.change(|_, disk| log_end::begin(disk, end))?;
        Ok(sync.noting(end, work))
    }

    /// The end of the log that is durable by a sync that has run. `None` if the log was cut meanwhile:
    /// what it holds now needs another sync.
    ///
    /// # Errors
    /// If the disk failed; that is fatal.
    pub fn finish_sync(&mut self, mut synced: LogSynced) -> Result<Option<Offset>, StorageError> {
        let noted = synced.noted.take();
        let log_end = self.change(|log, _| log.finish_sync(synced))?;
        // What was durable before a cut may be more than there is now.
        if let Some((end, outcome)) = noted.filter(|_| log_end.is_some()) {
            self.change(|_, disk| log_end::finish(disk, outcome))?;
            self.known_end = Some(end);
        }
        Ok(log_end)
    }

    /// Makes the log durable and leaves a durable witness that it was. Without one, damage to the
    /// batches of the last sync looks like a torn write at the next start and is cut off, and so does a
    /// file that lost its end. Costs two more syncs, so it is meant for idle moments and for a clean stop; free when the log did not
    /// grow since the last call.
    ///
    /// # Errors
    /// If the disk fails; that is fatal.
    pub fn seal(&mut self) -> Result<(), StorageError> {
        self.change(Log::seal)?;
        let end = self.log.end_at(self.log.log_end());
        // A log without batches has nothing to lose.
        if end.last_crc.is_none() || self.known_end == Some(end) {
            return Ok(());
        }
        self.note_end(end)
    }

    fn note_end(&mut self, end: LogEnd) -> Result<(), StorageError> {
        self.change(|_, disk| log_end::write(disk, end))?;
        self.known_end = Some(end);
        Ok(())
    }

    /// Whole batches from the one that holds `from`, up to `max_bytes` but at least one; none where
    /// `from` is the log end offset or beyond.
    ///
    /// # Errors
    /// If `from` is before the start of the log, if the disk fails, or if a batch is damaged.
    pub fn read(&self, from: Offset, max_bytes: u64) -> Result<Vec<Batch>, StorageError> {
        self.log.read(&self.disk, from, max_bytes)
    }

    /// The disk, for example to ask how much a power cut would lose now.
    pub fn disk(&self) -> &D {
        &self.disk
    }

    fn change<T>(
        &mut self,
        action: impl FnOnce(&mut Log, &mut D) -> Result<T, StorageError>,
    ) -> Result<T, StorageError> {
        if self.stopped {
            return Err(StorageError::Stopped);
        }
        let outcome = action(&mut self.log, &mut self.disk);
        self.stopped = outcome.as_ref().is_err_and(StorageError::is_fatal);
        outcome
    }
}
