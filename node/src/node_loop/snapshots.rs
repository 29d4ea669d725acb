//! Owns when this node's own snapshots are taken, how they are written piece by piece, what is kept.
//! Never decides whether a snapshot may be taken at some offset; the core does.

use std::collections::BTreeMap;

use crate::ids::{Offset, SnapshotId};
use crate::machine::{FrozenMachine, Machine, MachineLoader};
use crate::raft::{Input, SnapshotPlan};
use crate::storage::disk::Disk;
use crate::storage::{SnapshotHeader, SnapshotWriter, Storage, StorageError};

use super::boundary::LoadError;

/// How many bytes of a snapshot are written at a time. Between pieces the node does its other work.
const PIECE_BYTES: usize = 256 * 1024;

/// How long a snapshot stays after a follower took a piece of it. Longer than a follower goes without
/// a piece before it begins anew, and than it takes to install what it has.
const SERVED_FOR_NS: u64 = 10_000_000_000;

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
    /// States that nobody needs any more.
    discarded: Vec<Machine>,
    /// When followers last took a piece of a snapshot.
    served_at_ns: BTreeMap<SnapshotId, u64>,
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
            discarded: Vec::new(),
            served_at_ns: BTreeMap::new(),
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

    /// A follower takes a piece of `id`.
    pub(super) fn note_served(&mut self, now_ns: u64, id: SnapshotId) {
        self.served_at_ns.insert(id, now_ns);
    }

    /// Forgets the downloads that are over, or that a jump of the clock put into the future.
    pub(super) fn forget_served(&mut self, now_ns: u64) {
        if self.served_at_ns.is_empty() {
            return;
        }
        let is_recent = |at_ns: u64| {
            let age_ns = now_ns.checked_sub(at_ns);
            age_ns.is_some_and(|age_ns| age_ns < SERVED_FOR_NS)
        };
        self.served_at_ns.retain(|_, at_ns| is_recent(*at_ns));
    }

    /// Until when no snapshot begins by itself: followers are fetching one that is not the newest.
    /// That one and all that follow have to stay, so each further one would only fill the disk. Whoever
    /// begins to fetch takes the newest, so this ends with a download.
    fn paused_until_ns(&self, newest: Option<SnapshotId>) -> u64 {
        let older = self
            .served_at_ns
            .iter()
            .filter(|(id, _)| newest.is_some_and(|newest| **id < newest));
        let latest_ns = older.map(|(_, &at_ns)| at_ns).max();
        latest_ns.map_or(0, |at_ns| at_ns.saturating_add(SERVED_FOR_NS))
    }

    /// When a snapshot is due even if nothing happens; `u64::MAX` for never.
    pub(super) fn next_deadline_ns(&self, newest: Option<SnapshotId>) -> u64 {
        if self.bytes_since == 0 {
            return u64::MAX;
        }
        let interval_ends_ns = self.last_taken_ns.saturating_add(self.options.interval_ns);
        interval_ends_ns.max(self.paused_until_ns(newest))
    }

    /// Whether a new one should begin. `newest` is the newest there is.
    pub(super) fn is_due(&self, now_ns: u64, newest: Option<SnapshotId>) -> bool {
        let is_large = self.bytes_since >= self.options.bytes_between
            && self.paused_until_ns(newest) <= now_ns;
        self.job.is_none()
            && (self.asked_for || is_large || self.next_deadline_ns(newest) <= now_ns)
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

    /// Writes one more piece. Once the snapshot is durable, what the core must be told; `before_durable` is
    /// called when that is about to happen.
    pub(super) fn go_on<D: Disk>(
        &mut self,
        storage: &mut Storage<D>,
        before_durable: impl FnOnce(),
    ) -> Result<Option<Input>, StorageError> {
        let Some(mut job) = self.job.take() else {
            return Ok(None);
        };
        if let Some(records) = job.frozen.next_records(PIECE_BYTES) {
            storage.append_snapshot(&mut job.writer, &records)?;
            self.job = Some(job);
            return Ok(None);
        }
        let digest = job.frozen.digest();
        self.discard(job.frozen.into_machine());
        before_durable();
        let snapshot = storage.freeze_snapshot(job.writer)?;
        Ok(Some(Input::SnapshotFrozen { snapshot, digest }))
    }

    /// The state was replaced by a snapshot of the leader: what is half written is outdated.
    pub(super) fn give_up<D: Disk>(
        &mut self,
        now_ns: u64,
        storage: &mut Storage<D>,
    ) -> Result<(), StorageError> {
        self.postpone(now_ns);
        self.served_at_ns.clear();
        match self.job.take() {
            Some(job) => {
                self.discard(job.frozen.into_machine());
                storage.abandon_snapshot(job.writer)
            }
            None => Ok(()),
        }
    }

    /// Keeps a state that is over until somebody has the time to drop it.
    pub(super) fn discard(&mut self, state: Machine) {
        self.discarded.push(state);
    }

    pub(super) fn take_discarded(&mut self) -> Vec<Machine> {
        std::mem::take(&mut self.discarded)
    }

    /// How large log and snapshots may be together.
    pub(super) fn retention_bytes(&self) -> u64 {
        self.options.retention_bytes
    }

    /// Where the log should start instead: at the oldest of its snapshots with which the limits are
    /// kept, or else at the newest. Never after that one (KAFKA-14238), never after one that a follower
    /// is fetching, or a slow one might never get any, and never at an only one, as followers that are
    /// a little behind would need it at once. `None` if all may stay.
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
        let wanted = end_of(oldest.unwrap_or(newest));
        let fetched = self.served_at_ns.keys().next().map(|id| id.end_offset);
        let start = fetched.map_or(wanted, |fetched| wanted.min(fetched));
        Some(start).filter(|start| *start > storage.log_start())
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Epoch;

    fn id(end_offset: i64) -> SnapshotId {
        SnapshotId {
            end_offset: Offset(end_offset),
            epoch: Epoch(1),
        }
    }

    /// Otherwise snapshots would pile up for as long as a slow follower fetches.
    #[test]
    fn no_further_snapshot_begins_while_one_that_is_not_the_newest_is_fetched() {
        let options = SnapshotOptions {
            bytes_between: 10,
            interval_ns: 20,
            ..SnapshotOptions::default()
        };
        let mut snapshots = Snapshots::new(options, 0);
        snapshots.note_applied(10, 1);
        snapshots.note_served(100, id(5));
        assert!(snapshots.is_due(100, Some(id(5))), "it is the newest");
        let newest = Some(id(9));
        let ends_ns = 100 + SERVED_FOR_NS;
        assert!(!snapshots.is_due(100, newest) && !snapshots.is_due(ends_ns - 1, newest));
        assert_eq!(snapshots.next_deadline_ns(newest), ends_ns);
        assert!(snapshots.is_due(ends_ns, newest));
        snapshots.ask();
        assert!(snapshots.is_due(100, newest), "somebody wants it");
    }

    #[test]
    fn a_download_is_forgotten_once_it_is_over_or_the_clock_jumps_back() {
        for (now_ns, count) in [
            (100, 1),
            (99 + SERVED_FOR_NS, 1),
            (100 + SERVED_FOR_NS, 0),
            (99, 0),
        ] {
            let mut snapshots = Snapshots::new(SnapshotOptions::default(), 0);
            snapshots.note_served(100, id(5));
            snapshots.forget_served(now_ns);
            assert_eq!(snapshots.served_at_ns.len(), count, "at {now_ns}");
        }
    }
}
