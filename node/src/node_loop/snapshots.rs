//! Owns when this node's own snapshots are taken, how they are written piece by piece, what is kept.
//! Never decides whether a snapshot may be taken at some offset; the core does.

use crate::ids::{Offset, SnapshotId};
use crate::machine::{FrozenMachine, Machine, MachineLoader};
use crate::raft::{Input, SnapshotPlan};
use crate::storage::disk::Disk;
use crate::storage::{SnapshotHeader, SnapshotWriter, Storage, StorageError};

use super::boundary::LoadError;

/// How many bytes of a snapshot are written at a time. Between pieces the node does its other work.
const PIECE_BYTES: usize = 1024 * 1024;

/// When snapshots are taken, and how much of the past is kept (KIP-630).
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct SnapshotOptions {
    /// A snapshot is due once this many bytes of records were committed since the last one
    /// (`metadata.log.max.record.bytes.between.snapshots`).
    pub bytes_between: u64,
    /// A snapshot is due after this time if anything was committed since the last one
    /// (`metadata.log.max.snapshot.interval.ms`), in nanoseconds.
    pub interval_ns: u64,
    /// Once log and snapshots together are larger than this, old ones go
    /// (`metadata.max.retention.bytes`).
    pub retention_bytes: u64,
    /// Snapshots whose content is older than this go (`metadata.max.retention.ms`), in milliseconds.
    pub retention_ms: u64,
}

impl Default for SnapshotOptions {
    fn default() -> Self {
        Self {
            bytes_between: 20 * 1024 * 1024,
            interval_ns: 3_600_000_000_000,
            retention_bytes: 100 * 1024 * 1024,
            retention_ms: 7 * 24 * 3_600_000,
        }
    }
}

/// A snapshot that is being written.
#[derive(Debug)]
struct Job {
    writer: SnapshotWriter,
    frozen: FrozenMachine,
}

/// Takes snapshots of the state machine.
#[derive(Debug)]
pub(super) struct Snapshots {
    options: SnapshotOptions,
    job: Option<Job>,
    /// Bytes of records applied since the state of the last snapshot. Not a matter of leadership
    /// (KAFKA-14300).
    bytes_since: u64,
    last_taken_ns: u64,
    /// Timestamp of the last batch applied.
    last_timestamp_ms: i64,
    asked_for: bool,
}

impl Snapshots {
    pub(super) fn new(options: SnapshotOptions, now_ns: u64) -> Self {
        Self {
            options,
            job: None,
            bytes_since: 0,
            last_taken_ns: now_ns,
            last_timestamp_ms: 0,
            asked_for: false,
        }
    }

    /// Records were applied.
    pub(super) fn note_applied(&mut self, batch_bytes: usize, timestamp_ms: i64) {
        self.bytes_since += batch_bytes as u64;
        self.last_timestamp_ms = self.last_timestamp_ms.max(timestamp_ms);
    }

    /// The latest wall-clock time in what was applied since the start, in milliseconds since 1970.
    pub(super) fn last_timestamp_ms(&self) -> Option<i64> {
        (self.last_timestamp_ms > 0).then_some(self.last_timestamp_ms)
    }

    /// Somebody wants a snapshot now.
    pub(super) fn ask(&mut self) {
        self.asked_for = true;
    }

    /// Whether a snapshot is half written, so that the node should go on without waiting.
    pub(super) fn is_writing(&self) -> bool {
        self.job.is_some()
    }

    /// When a snapshot is due even if nothing happens; `u64::MAX` for never.
    pub(super) fn next_deadline_ns(&self) -> u64 {
        if self.bytes_since == 0 {
            return u64::MAX;
        }
        self.last_taken_ns.saturating_add(self.options.interval_ns)
    }

    /// Whether a new one should begin.
    pub(super) fn is_due(&self, now_ns: u64) -> bool {
        self.job.is_none()
            && (self.asked_for
                || self.bytes_since >= self.options.bytes_between
                || self.next_deadline_ns() <= now_ns)
    }

    /// Nothing can be taken at the moment; asks again once more was applied.
    pub(super) fn postpone(&mut self, now_ns: u64) {
        self.asked_for = false;
        self.last_taken_ns = now_ns;
        self.bytes_since = 0;
    }

    /// Begins to write `state`.
    pub(super) fn begin<D: Disk>(
        &mut self,
        now_ns: u64,
        plan: SnapshotPlan,
        state: FrozenMachine,
        storage: &mut Storage<D>,
    ) -> Result<(), StorageError> {
        self.postpone(now_ns);
        let header = SnapshotHeader {
            last_contained_timestamp_ms: self.last_timestamp_ms,
            voters: plan.voters,
        };
        let writer = storage.begin_snapshot(plan.id, header)?;
        self.job = writer.map(|writer| Job {
            writer,
            frozen: state,
        });
        Ok(())
    }

    /// Writes one more piece. Once the snapshot is durable, what the core must be told.
    pub(super) fn go_on<D: Disk>(
        &mut self,
        storage: &mut Storage<D>,
    ) -> Result<Option<Input>, StorageError> {
        let Some(mut job) = self.job.take() else {
            return Ok(None);
        };
        if let Some(records) = job.frozen.next_records(PIECE_BYTES) {
            storage.append_snapshot(&mut job.writer, &records)?;
            self.job = Some(job);
            return Ok(None);
        }
        let (id, digest) = (job.writer.id(), job.frozen.digest());
        storage.freeze_snapshot(job.writer)?;
        let snapshot = storage
            .sendable_snapshots()
            .into_iter()
            .find(|snapshot| snapshot.id == id);
        Ok(snapshot.map(|snapshot| Input::SnapshotFrozen { snapshot, digest }))
    }

    /// The state was replaced by a snapshot of the leader: what is half written is outdated.
    pub(super) fn give_up<D: Disk>(
        &mut self,
        now_ns: u64,
        storage: &mut Storage<D>,
    ) -> Result<(), StorageError> {
        self.postpone(now_ns);
        match self.job.take() {
            Some(job) => storage.abandon_snapshot(job.writer),
            None => Ok(()),
        }
    }

    /// How large log and snapshots may be together.
    pub(super) fn retention_bytes(&self) -> u64 {
        self.options.retention_bytes
    }

    /// Where the log should start instead: at the oldest of its snapshots with which the limits are
    /// kept, or else at the newest. Never after that one (KAFKA-14238), and never at an only one, as
    /// followers that are a little behind would need it at once. `None` if all may stay.
    pub(super) fn retained_start<D: Disk>(
        &self,
        storage: &Storage<D>,
        timestamp_ms: i64,
    ) -> Option<Offset> {
        let snapshots: Vec<_> = storage
            .snapshots()
            .filter(|file| file.id != SnapshotId::BOOTSTRAP)
            .collect();
        let newest = snapshots.len().checked_sub(1)?;
        let is_within_limits = |oldest: usize, log_start: Offset| {
            let kept = &snapshots[oldest..];
            let snapshot_bytes: u64 = kept.iter().map(|file| file.size_bytes).sum();
            let log_bytes = storage.log_bytes_from(log_start);
            let age_ms = timestamp_ms.saturating_sub(kept[0].header.last_contained_timestamp_ms);
            snapshot_bytes + log_bytes <= self.options.retention_bytes
                && u64::try_from(age_ms).unwrap_or(0) <= self.options.retention_ms
        };
        if newest == 0 || is_within_limits(0, storage.log_start()) {
            return None;
        }
        let end_of = |at: usize| snapshots[at].id.end_offset;
        let oldest = (1..newest).find(|&oldest| is_within_limits(oldest, end_of(oldest)));
        Some(end_of(oldest.unwrap_or(newest)))
    }
}

/// Reads the state out of a stored snapshot.
///
/// # Errors
/// If the disk fails, or the records are not a state of this version.
pub(super) fn load<D: Disk>(storage: &Storage<D>, id: SnapshotId) -> Result<Machine, LoadError> {
    let mut reader = storage.read_snapshot(id)?;
    let mut loader = MachineLoader::default();
    while let Some(batch) = reader.next_batch()? {
        for (_, record) in batch.records() {
            loader
                .push(record)
                .map_err(|source| LoadError::Content { id, source })?;
        }
    }
    loader
        .finish()
        .map_err(|source| LoadError::Content { id, source })
}

/// As [`load`], but what is damaged or missing goes unnoticed: the seeded bug B48.
///
/// # Errors
/// If there is not even a sound beginning.
pub(super) fn load_what_is_there<D: Disk>(
    storage: &Storage<D>,
    id: SnapshotId,
) -> Result<Machine, LoadError> {
    let mut reader = storage.read_snapshot(id)?;
    let mut loader = MachineLoader::default();
    while let Ok(Some(batch)) = reader.next_batch() {
        for (_, record) in batch.records() {
            loader
                .push(record)
                .map_err(|source| LoadError::Content { id, source })?;
        }
    }
    Ok(loader.finish_early())
}
