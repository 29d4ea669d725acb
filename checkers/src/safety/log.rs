//! Owns what is known of one node's log beyond what was compared already.
//! Never guesses: where the trace does not tell, the log is unknown.

/// Consecutive records that were appended together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) base_offset: i64,
    pub(super) last_offset: i64,
    pub(super) epoch: i32,
    pub(super) crc: u32,
}

/// Known batches, ascending and without holes, up to `end`.
#[derive(Debug, Default)]
pub(super) struct Log {
    batches: Vec<Batch>,
    end: i64,
}

impl Log {
    /// Offset after the last record.
    pub(super) fn end(&self) -> i64 {
        self.end
    }

    /// Adds a batch; what was at its offsets or above is gone, what lies before it may be unknown.
    pub(super) fn append(&mut self, batch: Batch) {
        self.ends_at(batch.base_offset);
        self.batches.push(batch);
        self.end = batch.last_offset + 1;
    }

    /// The log ends there. If it was shorter before, something unknown took the place of what was known.
    pub(super) fn ends_at(&mut self, end: i64) {
        if end > self.end {
            self.batches.clear();
        }
        while self
            .batches
            .last()
            .is_some_and(|last| last.last_offset >= end)
        {
            self.batches.pop();
        }
        self.end = end;
    }

    /// The log is empty and goes on at `end`.
    pub(super) fn replaced(&mut self, end: i64) {
        self.batches.clear();
        self.end = end;
    }

    /// Takes the known batches that end at or below `offset`.
    pub(super) fn take_below(&mut self, offset: i64) -> std::vec::Drain<'_, Batch> {
        let count = self
            .batches
            .partition_point(|batch| batch.last_offset < offset);
        self.batches.drain(..count)
    }

    /// Whether the log may hold this batch, by what is known.
    pub(super) fn may_hold(&self, batch: &Batch) -> bool {
        let known_from = self
            .batches
            .first()
            .map_or(self.end, |first| first.base_offset);
        if batch.last_offset < known_from {
            return true;
        }
        self.batches.contains(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base_offset: i64, last_offset: i64) -> Batch {
        Batch {
            base_offset,
            last_offset,
            epoch: 1,
            crc: 7,
        }
    }

    #[test]
    fn a_log_forgets_what_is_cut_off_and_what_is_replaced() {
        let mut log = Log::default();
        log.append(batch(0, 2));
        log.append(batch(3, 5));
        assert!(log.may_hold(&batch(3, 5)) && !log.may_hold(&batch(3, 4)));
        log.append(batch(3, 9));
        assert!(!log.may_hold(&batch(3, 5)) && log.may_hold(&batch(0, 2)));
        log.ends_at(20);
        assert!(log.may_hold(&batch(3, 5)), "nobody knows what is there now");
        assert_eq!(log.end(), 20);
    }

    #[test]
    fn what_was_taken_is_not_taken_again() {
        let mut log = Log::default();
        log.append(batch(0, 2));
        log.append(batch(3, 5));
        assert_eq!(log.take_below(5).collect::<Vec<_>>(), [batch(0, 2)]);
        assert_eq!(log.take_below(6).collect::<Vec<_>>(), [batch(3, 5)]);
        assert_eq!(log.take_below(6).count(), 0);
        assert_eq!(log.end(), 6);
    }
}
