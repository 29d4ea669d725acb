//! Owns the newest batches of the log in memory, up to a number of bytes.
//! Never holds a batch that is not in the log.

use std::collections::VecDeque;

use crate::batch::Batch;
use crate::ids::Offset;
use crate::storage::near_end::count_near_end;

/// A contiguous piece of the log up to its end.
#[derive(Debug)]
pub(crate) struct BatchCache {
    batches: VecDeque<Batch>,
    held_bytes: u64,
    bytes_max: u64,
}

impl BatchCache {
    pub(crate) fn new(bytes_max: u64) -> Self {
        Self {
            batches: VecDeque::new(),
            held_bytes: 0,
            bytes_max,
        }
    }

    /// Adds the batch that was appended to the log.
    pub(crate) fn push(&mut self, batch: &Batch) {
        self.held_bytes += batch.bytes().len() as u64;
        self.make_room();
        self.batches.push_back(batch.clone());
        while self.held_bytes > self.bytes_max
            && let Some(oldest) = self.batches.pop_front()
        {
            self.held_bytes -= oldest.bytes().len() as u64;
        }
    }

    /// Room for a quarter more, not for twice as many: what is in the ring wanders through all of it.
    fn make_room(&mut self) {
        let count = self.batches.len();
        if count == self.batches.capacity() {
            self.batches.reserve_exact(count / 4 + 4);
        }
    }

    /// Drops what a truncation to `log_end` removed.
    pub(crate) fn truncate(&mut self, log_end: Offset) {
        while self
            .batches
            .back()
            .is_some_and(|last| last.end_offset() > log_end)
            && let Some(last) = self.batches.pop_back()
        {
            self.held_bytes -= last.bytes().len() as u64;
        }
    }

    /// Drops everything, because the log starts anew.
    pub(crate) fn clear(&mut self) {
        self.batches.clear();
        self.held_bytes = 0;
    }

    /// The batch with this base offset, if it is held.
    pub(crate) fn get(&self, base_offset: Offset) -> Option<&Batch> {
        let is_below = |batch: &Batch| batch.base_offset() < base_offset;
        let at = count_near_end(self.batches.iter(), is_below)
            .unwrap_or_else(|| self.batches.partition_point(is_below));
        let batch = self.batches.get(at)?;
        (batch.base_offset() == base_offset).then_some(batch)
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Epoch;

    fn batch(offset: i64) -> Batch {
        Batch::build(Offset(offset), Epoch(1), 0, false, &[[0; 62]])
    }

    #[test]
    fn only_the_newest_bytes_are_held() {
        let mut cache = BatchCache::new(250);
        for offset in 0..5 {
            cache.push(&batch(offset));
            assert!(cache.held_bytes <= 250);
        }
        let held: Vec<_> = (0..5)
            .filter(|offset| cache.get(Offset(*offset)).is_some())
            .collect();
        assert_eq!(held, [3, 4]);
        cache.truncate(Offset(4));
        assert_eq!(cache.get(Offset(4)), None);
        assert_eq!(cache.get(Offset(3)), Some(&batch(3)));
        assert_eq!(cache.held_bytes, 100);
    }
}
