//! Owns what the core knows of its log: where it starts, ends and is durable, its epochs and snapshots.
//! Never holds records or what is in a snapshot.

use super::epochs::{EpochCache, EpochEnd};
use super::{Recovered, StoredSnapshot};
use crate::batch::Batch;
use crate::ids::{Epoch, Offset, SnapshotId};

/// The shape of the local log. `start <= flushed <= end` always, and a log that does not start at 0
/// starts where its earliest snapshot ends.
#[derive(Debug, Clone, Hash)]
pub(crate) struct LogView {
    start: Offset,
    end: Offset,
    flushed: Offset,
    epochs: EpochCache,
    /// Ascending. The bootstrap snapshot is one of them, until the log advances.
    snapshots: Vec<StoredSnapshot>,
}

/// How the log of a replica that fetches compares with this one.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Comparison {
    /// It is a beginning of this one, and this one has what follows.
    Agrees,
    /// This log has nothing of the epoch asked for, or ends it earlier, namely here.
    Diverges(EpochEnd),
    /// What it needs is no longer in this log, but in this snapshot.
    NeedsSnapshot(SnapshotId),
}

impl LogView {
    /// A recovered log, all of it durable.
    ///
    /// # Panics
    /// If the log and its snapshots do not fit together: storage must have refused to start, or have
    /// started the log anew at the end of its newest snapshot (KAFKA-14240).
    pub(crate) fn recover(recovered: &Recovered) -> Self {
        let (start, end) = (recovered.log_start, recovered.log_end);
        assert!(
            start <= end,
            "the log cannot end at {end} before it starts at {start}"
        );
        let mut epochs = EpochCache::new(recovered.epochs.clone());
        epochs.advance_start(start, end);
        let log = Self {
            start,
            end,
            flushed: end,
            epochs,
            snapshots: recovered.snapshots.clone(),
        };
        log.assert_starts_at_a_snapshot();
        if let Some(newest) = log.newest_snapshot() {
            assert_eq!(
                log.epoch_before(newest.end_offset),
                Some(newest.epoch),
                "the log from {start} to {end} does not continue snapshot {newest}"
            );
        }
        log
    }

    fn assert_starts_at_a_snapshot(&self) {
        let earliest = self.earliest_snapshot();
        assert!(
            self.start == Offset(0) || earliest.is_some_and(|id| id.end_offset == self.start),
            "no snapshot ends at {}, where the log starts; the earliest is {earliest:?}",
            self.start
        );
    }

    pub(crate) fn start(&self) -> Offset {
        self.start
    }

    pub(crate) fn end(&self) -> Offset {
        self.end
    }

    pub(crate) fn flushed(&self) -> Offset {
        self.flushed
    }

    /// Whether everything appended is durable.
    pub(crate) fn is_flushed(&self) -> bool {
        self.flushed == self.end
    }

    /// Everything below was committed when the log was recovered: it is in a snapshot.
    pub(crate) fn snapshot_end(&self) -> Offset {
        self.newest_snapshot()
            .map_or(self.start, |newest| newest.end_offset)
    }

    fn earliest_snapshot(&self) -> Option<SnapshotId> {
        self.snapshots.first().map(|snapshot| snapshot.id)
    }

    fn newest_snapshot(&self) -> Option<SnapshotId> {
        self.snapshots.last().map(|snapshot| snapshot.id)
    }

    /// The snapshot of this name, if it is stored here.
    pub(crate) fn snapshot(&self, id: SnapshotId) -> Option<&StoredSnapshot> {
        self.snapshots.iter().find(|snapshot| snapshot.id == id)
    }

    /// What lies before the log: the snapshot that it starts at, or nothing.
    fn before_log(&self) -> EpochEnd {
        let at_start = |id: &SnapshotId| id.end_offset == self.start;
        EpochEnd {
            epoch: self
                .earliest_snapshot()
                .filter(at_start)
                .map_or(Epoch(0), |id| id.epoch),
            end_offset: self.start,
        }
    }

    /// Epoch of the last record; that of the snapshot for an empty log, 0 where nothing was written.
    pub(crate) fn last_epoch(&self) -> Epoch {
        self.epochs.last_epoch().max(self.before_log().epoch)
    }

    /// Epoch of the last record before `end`, which the log's snapshot may hold; `None` outside the
    /// log.
    pub(crate) fn epoch_before(&self, end: Offset) -> Option<Epoch> {
        if end < self.start || end > self.end {
            return None;
        }
        let in_log = self.epochs.epoch_before(end);
        Some(in_log.unwrap_or(self.before_log().epoch))
    }

    /// The largest epoch that is not above `epoch`, and where it ends. Below the log that is its
    /// earliest snapshot.
    pub(crate) fn end_of_epoch(&self, epoch: Epoch) -> EpochEnd {
        self.epochs.end_of(epoch, self.before_log(), self.end)
    }

    /// Compares with a log that ends at `end` with a record of `last_epoch`. The order is Kafka's: a
    /// snapshot is named even where the log would do, if the other log is that old (KIP-630).
    pub(crate) fn compare(&self, end: Offset, last_epoch: Epoch) -> Comparison {
        let newest = self
            .newest_snapshot()
            .filter(|newest| *newest != SnapshotId::BOOTSTRAP);
        if let Some(newest) = newest
            && end == Offset(0)
        {
            return Comparison::NeedsSnapshot(newest);
        }
        if end == Offset(0) && self.start == Offset(0) {
            return Comparison::Agrees;
        }
        if let (Some(earliest), Some(newest)) = (self.earliest_snapshot(), newest) {
            let is_below = end < self.start;
            let differs_at_start = end == self.start && last_epoch != earliest.epoch;
            if is_below || differs_at_start || last_epoch < earliest.epoch {
                return Comparison::NeedsSnapshot(newest);
            }
        }
        let local = self.end_of_epoch(last_epoch);
        if local.epoch == last_epoch && local.end_offset >= end {
            Comparison::Agrees
        } else {
            Comparison::Diverges(local)
        }
    }

    /// Whether `batch` can follow: it starts at the end and its epoch is not older than the last.
    pub(crate) fn accepts(&self, batch: &Batch) -> bool {
        batch.base_offset() == self.end && batch.epoch() >= self.last_epoch()
    }

    /// # Panics
    /// If the log does not accept the batch.
    pub(crate) fn note_append(&mut self, batch: &Batch) {
        assert_eq!(
            batch.base_offset(),
            self.end,
            "a batch must start where the log ends"
        );
        self.epochs.note_append(batch.epoch(), batch.base_offset());
        self.end = batch.end_offset();
    }

    /// # Panics
    /// If the new end is outside the log.
    pub(crate) fn note_truncate(&mut self, end: Offset) {
        self.note_truncate_keeping_epochs(end);
        self.epochs.truncate(end);
    }

    /// The seeded bug B17: epochs that lost all their records stay in the cache.
    pub(crate) fn note_truncate_keeping_epochs(&mut self, end: Offset) {
        assert!(
            self.start <= end && end <= self.end,
            "cannot truncate a log from {} to {} at {end}",
            self.start,
            self.end
        );
        self.end = end;
        self.flushed = self.flushed.min(end);
    }

    /// Whether the durable end moved.
    pub(crate) fn note_flushed(&mut self, log_end: Offset) -> bool {
        // A flush that was reported before a truncation says nothing about what came after it.
        let flushed = log_end.min(self.end).max(self.flushed);
        let moved = flushed != self.flushed;
        self.flushed = flushed;
        moved
    }

    /// Whether a snapshot of the log may end at `end`: it would be newer than all others.
    pub(crate) fn may_freeze(&self, end: Offset) -> bool {
        end > self.snapshot_end() && end <= self.end
    }

    /// # Panics
    /// If it is not the newest one, or has another epoch than the log has there.
    pub(crate) fn note_frozen(&mut self, snapshot: StoredSnapshot) {
        let id = snapshot.id;
        assert!(
            self.may_freeze(id.end_offset) && self.epoch_before(id.end_offset) == Some(id.epoch),
            "snapshot {id} is not one of the log from {} to {}, or not the newest",
            self.start,
            self.end
        );
        self.snapshots.push(snapshot);
    }

    /// The log below `start` is gone, and with it the snapshots that end there.
    ///
    /// # Panics
    /// If the log would start where no snapshot ends, or not within itself.
    pub(crate) fn advance_start(&mut self, start: Offset) {
        self.advance_start_anywhere(start);
        self.assert_starts_at_a_snapshot();
    }

    /// The seeded bug B49: what was before the log need not be in a snapshot.
    pub(crate) fn advance_start_anywhere(&mut self, start: Offset) {
        assert!(
            self.start <= start && start <= self.end,
            "a log from {} to {} cannot advance its start to {start}",
            self.start,
            self.end
        );
        self.snapshots
            .retain(|snapshot| snapshot.id.end_offset >= start);
        self.start = start;
        self.epochs.advance_start(start, self.end);
    }

    /// The log is empty and starts at the end of this snapshot, the only one.
    pub(crate) fn restart_at(&mut self, snapshot: StoredSnapshot) {
        let end = snapshot.id.end_offset;
        *self = Self {
            start: end,
            end,
            flushed: end,
            epochs: EpochCache::default(),
            snapshots: vec![snapshot],
        };
    }

    /// The seeded bug B50: what the log has behind the snapshot is taken for its continuation.
    pub(crate) fn restart_at_keeping_tail(&mut self, snapshot: StoredSnapshot) {
        let kept = self.clone();
        self.restart_at(snapshot);
        if kept.end > self.end {
            self.end = kept.end;
            self.flushed = kept.end;
            self.epochs = kept.epochs;
            self.epochs.advance_start(self.start, self.end);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::raft::EpochStart;

    fn snapshot(end_offset: i64, epoch: i32) -> StoredSnapshot {
        StoredSnapshot {
            id: SnapshotId {
                end_offset: Offset(end_offset),
                epoch: Epoch(epoch),
            },
            size_bytes: 1,
        }
    }

    fn log(start: i64, end: i64, epochs: &[(i32, i64)], snapshots: &[(i64, i32)]) -> LogView {
        let start_of = |&(epoch, offset)| EpochStart {
            epoch: Epoch(epoch),
            start_offset: Offset(offset),
        };
        LogView::recover(&Recovered {
            log_start: Offset(start),
            log_end: Offset(end),
            epochs: epochs.iter().map(start_of).collect(),
            snapshots: snapshots
                .iter()
                .map(|&(end, epoch)| snapshot(end, epoch))
                .collect(),
            ..Recovered::default()
        })
    }

    /// `ok`, the id of a snapshot, or where the log leaves the other: all as end and epoch.
    fn compared(log: &LogView, end: i64, last_epoch: i32) -> String {
        match log.compare(Offset(end), Epoch(last_epoch)) {
            Comparison::Agrees => "ok".to_owned(),
            Comparison::Diverges(end) => format!("leaves {} {}", end.end_offset, end.epoch),
            Comparison::NeedsSnapshot(id) => format!("snapshot {} {}", id.end_offset, id.epoch),
        }
    }

    #[test]
    fn a_log_from_its_beginning_needs_no_snapshot_where_there_is_none() {
        for snapshots in [&[][..], &[(0, 0)]] {
            let log = log(0, 10, &[(1, 0), (3, 5), (4, 8)], snapshots);
            assert_eq!(compared(&log, 0, 0), "ok");
            assert_eq!(compared(&log, 7, 3), "ok");
            assert_eq!(compared(&log, 9, 3), "leaves 8 3");
            assert_eq!(compared(&log, 3, 0), "leaves 0 0");
        }
    }

    /// Also what the log still has is not returned to whoever has nothing, or is older than the
    /// earliest snapshot.
    #[test]
    fn a_log_from_its_beginning_names_its_newest_snapshot_to_whoever_is_older() {
        let log = log(0, 20, &[(1, 0), (3, 5), (4, 8)], &[(6, 3), (9, 4)]);
        assert_eq!(compared(&log, 0, 0), "snapshot 9 4");
        assert_eq!(compared(&log, 4, 1), "snapshot 9 4");
        assert_eq!(compared(&log, 30, 2), "snapshot 9 4");
        assert_eq!(compared(&log, 5, 3), "ok");
        assert_eq!(compared(&log, 9, 3), "leaves 8 3");
        assert_eq!(compared(&log, 20, 4), "ok");
        assert_eq!(compared(&log, 21, 4), "leaves 20 4");
        let bootstrapped = self::log(0, 20, &[(1, 0), (3, 5)], &[(0, 0), (9, 3)]);
        assert_eq!(compared(&bootstrapped, 0, 0), "snapshot 9 3");
        assert_eq!(compared(&bootstrapped, 4, 1), "ok");
    }

    #[test]
    fn a_log_that_starts_at_a_snapshot_compares_with_its_epoch_too() {
        let log = log(6, 20, &[(3, 6), (5, 12)], &[(6, 3), (14, 5)]);
        assert_eq!(compared(&log, 0, 0), "snapshot 14 5");
        assert_eq!(compared(&log, 5, 3), "snapshot 14 5");
        assert_eq!(compared(&log, 6, 3), "ok");
        assert_eq!(compared(&log, 6, 4), "snapshot 14 5");
        assert_eq!(compared(&log, 6, 2), "snapshot 14 5");
        assert_eq!(compared(&log, 8, 2), "snapshot 14 5");
        assert_eq!(compared(&log, 8, 3), "ok");
        assert_eq!(compared(&log, 13, 4), "leaves 12 3");
        assert_eq!(compared(&log, 20, 9), "leaves 20 5");
    }

    #[test]
    fn an_empty_log_goes_on_where_its_snapshot_ends() {
        let mut log = log(6, 6, &[], &[(6, 3)]);
        assert_eq!(
            (log.last_epoch(), log.snapshot_end()),
            (Epoch(3), Offset(6))
        );
        assert_eq!(compared(&log, 6, 3), "ok");
        assert_eq!(compared(&log, 6, 5), "snapshot 6 3");
        assert_eq!(compared(&log, 7, 5), "leaves 6 3");
        let end = log.end_of_epoch(Epoch(1));
        assert_eq!((end.epoch, end.end_offset), (Epoch(3), Offset(6)));
        let batch = |epoch| Batch::build(Offset(6), Epoch(epoch), 0, false, &["x", "y"]);
        assert!(!log.accepts(&batch(2)) && log.accepts(&batch(3)));
        log.note_append(&batch(5));
        assert_eq!(compared(&log, 7, 5), "ok");
        assert_eq!(compared(&log, 7, 4), "leaves 6 3");
        log.note_truncate(Offset(6));
        assert_eq!(log.last_epoch(), Epoch(3));
    }

    #[test]
    #[should_panic(expected = "cannot truncate")]
    fn nothing_below_the_start_is_truncated() {
        log(6, 20, &[(3, 6)], &[(6, 3)]).note_truncate(Offset(5));
    }

    #[test]
    #[should_panic(expected = "no snapshot ends at 6")]
    fn a_log_cannot_start_where_no_snapshot_ends() {
        log(6, 20, &[(3, 6)], &[(7, 3)]);
    }

    #[test]
    #[should_panic(expected = "does not continue snapshot")]
    fn a_log_cannot_disagree_with_its_newest_snapshot() {
        log(0, 20, &[(2, 0)], &[(7, 3)]);
    }

    #[test]
    fn the_start_advances_from_snapshot_to_snapshot() {
        let mut log = log(0, 20, &[(1, 0), (3, 5), (4, 8)], &[]);
        assert!(!log.may_freeze(Offset(0)) && !log.may_freeze(Offset(21)));
        for (end, epoch) in [(5, 1), (6, 3), (20, 4)] {
            assert!(log.may_freeze(Offset(end)));
            assert_eq!(log.epoch_before(Offset(end)), Some(Epoch(epoch)));
            log.note_frozen(snapshot(end, epoch));
            assert!(!log.may_freeze(Offset(end)));
        }
        log.advance_start(Offset(6));
        assert_eq!(log.snapshot(snapshot(5, 1).id), None);
        assert!(log.snapshot(snapshot(6, 3).id).is_some());
        assert_eq!(log.epoch_before(Offset(5)), None);
        assert_eq!(log.epoch_before(Offset(6)), Some(Epoch(3)));
        assert_eq!(compared(&log, 6, 3), "ok");
        log.advance_start(Offset(20));
        assert_eq!((log.last_epoch(), log.end()), (Epoch(4), Offset(20)));
        assert_eq!(compared(&log, 20, 4), "ok");
    }

    #[test]
    fn an_installed_snapshot_takes_the_place_of_the_log() {
        let mut replaced = log(0, 20, &[(1, 0), (2, 5)], &[(4, 1)]);
        let mut kept = replaced.clone();
        replaced.restart_at(snapshot(9, 3));
        let shape = |log: &LogView| (log.start(), log.flushed(), log.end(), log.last_epoch());
        let at = Offset(9);
        assert_eq!(shape(&replaced), (at, at, at, Epoch(3)));
        assert_eq!(replaced.snapshot(snapshot(4, 1).id), None);
        kept.restart_at_keeping_tail(snapshot(9, 3));
        assert_eq!(shape(&kept), (at, Offset(20), Offset(20), Epoch(3)));
    }

    #[test]
    fn the_flushed_end_follows_truncation_and_never_passes_the_end() {
        let mut log = LogView::recover(&Recovered::default());
        log.note_append(&Batch::build(Offset(0), Epoch(1), 0, false, &["a", "b"]));
        assert!(!log.is_flushed());
        assert!(log.note_flushed(Offset(2)) && log.is_flushed());
        log.note_append(&Batch::build(Offset(2), Epoch(2), 0, false, &["c"]));
        assert!(!log.note_flushed(Offset(2)));
        log.note_truncate(Offset(1));
        assert_eq!(
            (log.end(), log.flushed(), log.last_epoch()),
            (Offset(1), Offset(1), Epoch(1))
        );
        assert!(!log.note_flushed(Offset(3)));
        assert_eq!(log.flushed(), Offset(1));
    }

    #[test]
    fn only_a_batch_that_continues_the_log_is_accepted() {
        let mut log = LogView::recover(&Recovered::default());
        log.note_append(&Batch::build(Offset(0), Epoch(3), 0, false, &["a"]));
        let batch = |offset, epoch| Batch::build(Offset(offset), Epoch(epoch), 0, false, &["x"]);
        assert!(log.accepts(&batch(1, 3)) && log.accepts(&batch(1, 4)));
        assert!(!log.accepts(&batch(0, 3)) && !log.accepts(&batch(2, 3)));
        assert!(!log.accepts(&batch(1, 2)));
    }
}
