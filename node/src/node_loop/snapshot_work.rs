//! Owns what a loop does with snapshots: its own, piece by piece, and the leader's in place of all.
//! Never decides when one is due, or which one is fetched.

use crate::ids::{Offset, SnapshotId};
use crate::machine::{Command, FrozenMachine, Machine};
use crate::moment::{Edge, Moment};
use crate::mutants::Bug;
use crate::raft::Input;
use crate::storage::disk::Disk;
use crate::storage::{Storage, StorageError};

use super::clients::APPLY_CHUNK_BYTES;
use super::{LoadError, NodeError, NodeLoop, Outbox, snapshots};

/// The state that a start begins with, and how far that is applied.
pub(super) fn recover<D: Disk>(
    storage: &Storage<D>,
    newest: Option<SnapshotId>,
    bug: Option<Bug>,
) -> Result<(Machine, Offset), LoadError> {
    let Some(id) = newest else {
        return Ok((Machine::default(), Offset(0)));
    };
    let machine = match bug {
        Some(Bug::SnapshotPartAccepted) => snapshots::load_what_is_there(storage, id)?,
        _ => snapshots::load(storage, id)?,
    };
    let applied = match bug {
        Some(Bug::ApplyTwice) => storage.log_start(),
        _ => id.end_offset,
    };
    Ok((machine, applied))
}

impl<D: Disk> NodeLoop<D> {
    /// States that were replaced, or are written down. Dropping a large one takes long, about 0.1 s for
    /// a million objects, so whoever has another thread drops it there; after [`Self::process`] there
    /// are none.
    pub fn take_discarded(&mut self) -> Vec<Machine> {
        self.snapshots.take_discarded()
    }

    /// Begins a snapshot that is due, or writes the next piece of one.
    pub(super) fn work_on_snapshot(
        &mut self,
        now_ns: u64,
        timestamp_ms: i64,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        self.snapshots.forget_served(now_ns);
        if self.snapshots.is_due(now_ns, self.newest_snapshot()) {
            let (end_offset, state) = self.state_to_keep()?;
            match self.replica.plan_snapshot(end_offset) {
                Some(plan) => self
                    .snapshots
                    .begin(now_ns, plan, state, &mut self.storage)?,
                None => self.snapshots.postpone(now_ns),
            }
        }
        let before_durable = || outbox.moment(Edge::Before, Moment::SnapshotFrozen);
        let Some(frozen) = self.snapshots.go_on(&mut self.storage, before_durable)? else {
            return Ok(());
        };
        self.step(now_ns, frozen, outbox)?;
        if let Some(log_start) = self.snapshots.retained_start(&self.storage, timestamp_ms) {
            outbox.moment(Edge::Before, Moment::LogStartAdvanced);
            self.storage.advance_log_start(log_start)?;
            self.step(now_ns, Input::LogStartAdvanced { log_start }, outbox)?;
        }
        self.sync(now_ns, outbox)
    }

    pub(super) fn newest_snapshot(&self) -> Option<SnapshotId> {
        self.storage.latest_snapshot().map(|file| file.id)
    }

    /// What a snapshot would hold that begins now, and where it would end.
    fn state_to_keep(&self) -> Result<(Offset, FrozenMachine), NodeError> {
        let (applied, machine) = (self.applied, &self.machine);
        Ok(match self.bug {
            Some(Bug::SnapshotAboveHighWatermark) => {
                (self.storage.log_end(), self.applied_ahead()?.freeze())
            }
            Some(Bug::SnapshotIdOffByOne) => {
                let last = Offset(applied.0 - 1);
                let end_offset = if self.storage.ends_batch(last) {
                    last
                } else {
                    applied
                };
                (end_offset, machine.freeze())
            }
            Some(Bug::DedupLostInSnapshot) => (applied, machine.without_sessions().freeze()),
            _ => (applied, machine.freeze()),
        })
    }

    /// The seeded bug B44: the state after everything in the log, committed or not.
    fn applied_ahead(&self) -> Result<Machine, NodeError> {
        let mut machine = self.machine.clone();
        let mut applied = self.applied;
        while applied < self.storage.log_end() {
            for batch in self.storage.read(applied, APPLY_CHUNK_BYTES)? {
                let records = batch.records().filter(|_| !batch.is_control());
                for (offset, record) in records.filter(|(offset, _)| *offset >= applied) {
                    let command = Command::decode(record)
                        .map_err(|source| NodeError::Undecodable { offset, source })?;
                    machine.apply(offset, command);
                }
                applied = batch.end_offset();
            }
        }
        Ok(machine)
    }

    /// The seeded bug B49: retention that knows of no snapshots.
    pub(super) fn delete_oldest_segments(
        &mut self,
        now_ns: u64,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        let limit_bytes = self.snapshots.retention_bytes();
        let deleted = self
            .storage
            .delete_oldest_segments(limit_bytes, self.applied)?;
        match deleted {
            Some(log_start) => self.step(now_ns, Input::LogStartAdvanced { log_start }, outbox),
            None => Ok(()),
        }
    }

    pub(super) fn store_chunk(
        &mut self,
        id: SnapshotId,
        position_bytes: u64,
        bytes: &[u8],
    ) -> Result<(), StorageError> {
        if position_bytes == 0 {
            self.abandon_download()?;
            self.download = self.storage.begin_download(id)?;
        }
        match &mut self.download {
            Some(download) => self
                .storage
                .append_download(download, position_bytes, bytes),
            None => Ok(()),
        }
    }

    pub(super) fn abandon_download(&mut self) -> Result<(), StorageError> {
        match self.download.take() {
            Some(download) => self.storage.abandon_download(download),
            None => Ok(()),
        }
    }

    /// Puts the downloaded snapshot in the place of log and state. What is not a snapshot of this
    /// version is dropped, and nothing else changes.
    pub(super) fn install(&mut self, now_ns: u64, id: SnapshotId) -> Result<Input, NodeError> {
        if let Some(download) = self.download.take() {
            match self.storage.freeze_download(download) {
                Ok(()) => {}
                Err(StorageError::DownloadDamaged { .. }) => {
                    self.loader.refused_count += 1;
                    return Ok(Input::SnapshotRefused { id });
                }
                Err(error) => return Err(error.into()),
            }
        }
        let machine = match snapshots::load(&self.storage, id) {
            Ok(machine) => machine,
            Err(LoadError::Content { .. }) => {
                self.storage.delete_snapshot(id)?;
                self.loader.refused_count += 1;
                return Ok(Input::SnapshotRefused { id });
            }
            Err(LoadError::Storage(error)) => return Err(error.into()),
        };
        self.snapshots.give_up(now_ns, &mut self.storage)?;
        if self.has(Bug::SnapshotInstallKeepsLog) && self.storage.log_end() > id.end_offset {
            self.storage.advance_log_start(id.end_offset)?;
        } else {
            self.storage.reset_to(id)?;
        }
        let outdated = std::mem::replace(&mut self.machine, machine);
        self.snapshots.discard(outdated);
        self.applied = id.end_offset;
        self.loader.loaded_count += 1;
        Ok(match self.storage.latest_snapshot() {
            Some(file) => Input::SnapshotInstalled {
                snapshot: file.stored(),
                voters: file.header.voters.clone(),
                digest: self.machine.digest(),
            },
            None => Input::SnapshotRefused { id },
        })
    }
}
