//! Owns what the core knows of its log: where it starts, ends and is durable, and its epochs.
//! Never holds records.

use super::epochs::{EpochCache, EpochEnd};
use crate::batch::Batch;
use crate::ids::{Epoch, Offset};

/// The shape of the local log. `flushed <= end` always.
#[derive(Debug, Clone)]
pub(crate) struct LogView {
    start: Offset,
    end: Offset,
    flushed: Offset,
    epochs: EpochCache,
}

impl LogView {
    /// A recovered log, all of it durable.
    pub(crate) fn new(start: Offset, end: Offset, epochs: EpochCache) -> Self {
        assert!(
            start <= end,
            "the log cannot end at {end} before it starts at {start}"
        );
        Self {
            start,
            end,
            flushed: end,
            epochs,
        }
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

    /// Epoch of the last record; 0 for an empty log.
    pub(crate) fn last_epoch(&self) -> Epoch {
        self.epochs.last_epoch()
    }

    /// See [`EpochCache::end_of`].
    pub(crate) fn end_of_epoch(&self, epoch: Epoch) -> EpochEnd {
        self.epochs.end_of(epoch, self.start, self.end)
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
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_flushed_end_follows_truncation_and_never_passes_the_end() {
        let mut log = LogView::new(Offset(0), Offset(0), EpochCache::default());
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
        let mut log = LogView::new(Offset(0), Offset(0), EpochCache::default());
        log.note_append(&Batch::build(Offset(0), Epoch(3), 0, false, &["a"]));
        let batch = |offset, epoch| Batch::build(Offset(offset), Epoch(epoch), 0, false, &["x"]);
        assert!(log.accepts(&batch(1, 3)) && log.accepts(&batch(1, 4)));
        assert!(!log.accepts(&batch(0, 3)) && !log.accepts(&batch(2, 3)));
        assert!(!log.accepts(&batch(1, 2)));
    }
}
