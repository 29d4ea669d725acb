//! Owns the leader-epoch cache: which epoch starts where in the local log.
//! Never holds an epoch without records, so it can always be rebuilt from the batches.

use super::EpochStart;
use crate::ids::{Epoch, Offset};

/// An epoch and the offset after its last record in one log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct EpochEnd {
    pub(crate) epoch: Epoch,
    pub(crate) end_offset: Offset,
}

/// Start offsets of the epochs in a log, ascending in both fields (KAFKA-10511).
#[derive(Debug, Clone, Default, PartialEq, Eq, Hash)]
pub(crate) struct EpochCache {
    entries: Vec<EpochStart>,
}

impl EpochCache {
    /// # Panics
    /// If the entries do not ascend in both fields: such a cache answers divergence questions wrongly.
    pub(crate) fn new(entries: Vec<EpochStart>) -> Self {
        let mut cache = Self::default();
        for entry in entries {
            cache.note_append(entry.epoch, entry.start_offset);
        }
        cache
    }

    /// Epoch of the last record; 0 where the log has none.
    pub(crate) fn last_epoch(&self) -> Epoch {
        self.entries.last().map_or(Epoch(0), |entry| entry.epoch)
    }

    /// Notes that a batch of `epoch` was appended at `base_offset`.
    ///
    /// # Panics
    /// If the epoch is older than the last one, or a new epoch does not start behind the last one.
    pub(crate) fn note_append(&mut self, epoch: Epoch, base_offset: Offset) {
        if let Some(last) = self.entries.last() {
            assert!(
                epoch >= last.epoch,
                "epoch {epoch} cannot follow epoch {} in the log",
                last.epoch
            );
            if epoch == last.epoch {
                return;
            }
            assert!(
                base_offset > last.start_offset,
                "epoch {epoch} cannot start at {base_offset}: epoch {} starts at {}",
                last.epoch,
                last.start_offset
            );
        }
        self.entries.push(EpochStart {
            epoch,
            start_offset: base_offset,
        });
    }

    /// Forgets what a truncation to `log_end` removed.
    pub(crate) fn truncate(&mut self, log_end: Offset) {
        self.entries.retain(|entry| entry.start_offset < log_end);
    }

    /// Forgets what is below `log_start`. The epoch that goes on there now starts there.
    pub(crate) fn advance_start(&mut self, log_start: Offset, log_end: Offset) {
        if log_start == log_end {
            return self.entries.clear();
        }
        let begun = |entry: &EpochStart| entry.start_offset <= log_start;
        let begun_count = self.entries.partition_point(begun);
        self.entries.drain(..begun_count.saturating_sub(1));
        if begun_count > 0 {
            self.entries[0].start_offset = log_start;
        }
    }

    /// Epoch of the last record before `end`, where the log has one.
    pub(crate) fn epoch_before(&self, end: Offset) -> Option<Epoch> {
        let begun = |entry: &EpochStart| entry.start_offset < end;
        let begun_count = self.entries.partition_point(begun);
        Some(self.entries[begun_count.checked_sub(1)?].epoch)
    }

    /// The largest epoch in the log that is not above `epoch`, and where it ends (KIP-101, KIP-320).
    /// What lies before the start of the log when the log has nothing so old.
    pub(crate) fn end_of(&self, epoch: Epoch, before_log: EpochEnd, log_end: Offset) -> EpochEnd {
        let newer = self.entries.partition_point(|entry| entry.epoch <= epoch);
        match newer.checked_sub(1) {
            None => before_log,
            Some(found) => EpochEnd {
                epoch: self.entries[found].epoch,
                end_offset: self
                    .entries
                    .get(newer)
                    .map_or(log_end, |next| next.start_offset),
            },
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn cache(entries: &[(i32, i64)]) -> EpochCache {
        let start = |&(epoch, offset)| EpochStart {
            epoch: Epoch(epoch),
            start_offset: Offset(offset),
        };
        EpochCache::new(entries.iter().map(start).collect())
    }

    fn end_of(cache: &EpochCache, epoch: i32) -> (i32, i64) {
        let before_log = EpochEnd {
            epoch: Epoch(0),
            end_offset: Offset(0),
        };
        let end = cache.end_of(Epoch(epoch), before_log, Offset(20));
        (end.epoch.0, end.end_offset.0)
    }

    #[test]
    fn the_end_of_an_epoch_is_the_start_of_the_next() {
        let cache = cache(&[(2, 0), (3, 5), (7, 11)]);
        assert_eq!(end_of(&cache, 0), (0, 0));
        assert_eq!(end_of(&cache, 1), (0, 0));
        assert_eq!(end_of(&cache, 2), (2, 5));
        assert_eq!(end_of(&cache, 3), (3, 11));
        assert_eq!(end_of(&cache, 6), (3, 11));
        assert_eq!(end_of(&cache, 7), (7, 20));
        assert_eq!(end_of(&cache, 9), (7, 20));
        assert_eq!(end_of(&EpochCache::default(), 4), (0, 0));
    }

    #[test]
    fn truncation_forgets_epochs_that_lost_all_their_records() {
        let mut shortened = cache(&[(2, 0), (3, 5), (7, 11)]);
        shortened.truncate(Offset(6));
        assert_eq!(shortened, cache(&[(2, 0), (3, 5)]));
        shortened.truncate(Offset(5));
        assert_eq!(shortened, cache(&[(2, 0)]));
        shortened.truncate(Offset(0));
        assert_eq!(shortened.last_epoch(), Epoch(0));
    }

    #[test]
    fn an_epoch_that_goes_on_at_the_start_of_the_log_starts_there() {
        let advanced = |log_start| {
            let mut advanced = cache(&[(2, 0), (3, 5), (7, 11)]);
            advanced.advance_start(Offset(log_start), Offset(20));
            advanced
        };
        assert_eq!(advanced(0), cache(&[(2, 0), (3, 5), (7, 11)]));
        assert_eq!(advanced(4), cache(&[(2, 4), (3, 5), (7, 11)]));
        assert_eq!(advanced(5), cache(&[(3, 5), (7, 11)]));
        assert_eq!(advanced(12), cache(&[(7, 12)]));
        assert_eq!(advanced(20), EpochCache::default());
    }

    #[test]
    fn the_epoch_before_an_offset_is_that_of_the_record_before_it() {
        let cache = cache(&[(2, 3), (3, 5), (7, 11)]);
        let before = |end| cache.epoch_before(Offset(end)).map(|epoch| epoch.0);
        assert_eq!([before(3), before(4), before(5)], [None, Some(2), Some(2)]);
        assert_eq!(
            [before(6), before(11), before(12)],
            [Some(3), Some(3), Some(7)]
        );
    }

    #[test]
    fn appending_to_the_present_epoch_adds_nothing() {
        let mut cache = cache(&[(2, 0)]);
        cache.note_append(Epoch(2), Offset(4));
        assert_eq!(end_of(&cache, 2), (2, 20));
        cache.note_append(Epoch(4), Offset(9));
        assert_eq!(end_of(&cache, 2), (2, 9));
        assert_eq!(cache.last_epoch(), Epoch(4));
    }

    #[test]
    #[should_panic(expected = "cannot follow")]
    fn an_older_epoch_cannot_follow() {
        cache(&[(5, 0), (4, 3)]);
    }

    #[test]
    #[should_panic(expected = "cannot start")]
    fn two_epochs_cannot_start_at_one_offset() {
        cache(&[(4, 3), (5, 3)]);
    }
}
