//! Owns the model of one node's log: which batches it holds, as far as the trace tells.
//! Never guesses: a range whose content the trace does not tell has no identity.

use serde_json::{Value, json};

use crate::long_list::LongList;

/// What makes two batches at the same offsets the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Identity {
    pub(crate) epoch: i32,
    pub(crate) crc: u32,
}

/// Consecutive records that were appended together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Batch {
    pub(crate) base_offset: i64,
    pub(crate) last_offset: i64,
    /// `None` where the trace does not tell.
    pub(crate) identity: Option<Identity>,
}

/// A batch of a log. It ends where the next one begins, so that does not have to be kept: there are many.
#[derive(Debug, Clone, Copy)]
struct Entry {
    base_offset: i64,
    identity: Option<Identity>,
}

/// The log of one node, without holes. What lies below its start is covered by a snapshot.
#[derive(Debug)]
pub(crate) struct Log {
    start: i64,
    /// Epoch of the record before the start, where the trace tells; 0 where there is none.
    start_epoch: Option<i32>,
    batches: LongList<Entry>,
    /// Where the last batch ends, if there is any.
    batches_end: i64,
}

impl Default for Log {
    fn default() -> Self {
        Self::starting_at(0, Some(0))
    }
}

impl Log {
    /// An empty log.
    pub(crate) fn starting_at(start: i64, start_epoch: Option<i32>) -> Self {
        Self {
            start,
            start_epoch,
            batches: LongList::default(),
            batches_end: start,
        }
    }

    /// Offset of the first record, or of the next one if there is none.
    pub(crate) fn start(&self) -> i64 {
        self.start
    }

    /// Offset after the last record.
    pub(crate) fn end(&self) -> i64 {
        match self.batches.last() {
            Some(_) => self.batches_end,
            None => self.start,
        }
    }

    /// Epoch of the last record, where the trace tells.
    pub(crate) fn last_epoch(&self) -> Option<i32> {
        match self.batches.last() {
            Some(batch) => batch.identity.map(|identity| identity.epoch),
            None => self.start_epoch,
        }
    }

    /// Adds a batch at the end; what lies between is unknown.
    pub(crate) fn append(&mut self, batch: Batch) {
        self.extend_unknown(batch.base_offset);
        self.batches.push(Entry {
            base_offset: batch.base_offset,
            identity: batch.identity,
        });
        self.batches_end = batch.last_offset + 1;
    }

    /// The log reaches to `end`, with unknown content where it was shorter.
    pub(crate) fn extend_unknown(&mut self, end: i64) {
        let base_offset = self.end();
        if base_offset < end {
            self.batches.push(Entry {
                base_offset,
                identity: None,
            });
            self.batches_end = end;
        }
    }

    /// Removes everything at `end` and above.
    pub(crate) fn cut(&mut self, end: i64) {
        let keep = self
            .batches
            .partition_point(|batch| batch.base_offset < end);
        let kept_end = self.end_of(keep);
        self.batches.truncate(keep);
        if let Some(last) = self.batches.last_mut() {
            self.batches_end = kept_end.min(end);
            if kept_end > end {
                last.identity = None;
            }
        }
        if end < self.start {
            *self = Self::starting_at(end, (end == 0).then_some(0));
        }
    }

    /// Removes everything below `start`; a log that ends before it is empty then.
    pub(crate) fn advance_start(&mut self, start: i64) {
        if start <= self.start {
            return;
        }
        let epoch_before = self
            .at(start - 1)
            .and_then(|batch| batch.identity)
            .map(|identity| identity.epoch);
        // All but the last one of those that begin below it end there, or below.
        let begun = self.count_below(start);
        let is_whole = self.end_of(begun) <= start;
        let gone = begun.saturating_sub(usize::from(!is_whole));
        self.batches.remove_first(gone);
        self.start = start;
        self.start_epoch = epoch_before;
    }

    /// The log reaches down to `start`, with unknown content where it began later.
    pub(crate) fn extend_start(&mut self, start: i64) {
        let end = self
            .batches
            .first()
            .map_or(self.start, |first| first.base_offset);
        if start >= self.start {
            return;
        }
        if start < end {
            let unknown = Entry {
                base_offset: start,
                identity: None,
            };
            if self.batches.len() == 0 {
                self.batches_end = end;
            }
            self.batches.insert(0, unknown);
        }
        self.start = start;
        self.start_epoch = (start == 0).then_some(0);
    }

    /// Keeps the length and forgets the content.
    pub(crate) fn forget(&mut self) {
        self.start_epoch = None;
        for batch in self.batches.iter_mut() {
            batch.identity = None;
        }
    }

    /// The batch that holds the record at `offset`, unless that is below the start.
    pub(crate) fn at(&self, offset: i64) -> Option<Batch> {
        let after = self.count_below(offset.saturating_add(1));
        let batch = self.batch(after.checked_sub(1)?)?;
        (offset >= self.start && offset <= batch.last_offset).then_some(batch)
    }

    fn batch(&self, position: usize) -> Option<Batch> {
        let entry = self.batches.get(position)?;
        Some(Batch {
            base_offset: entry.base_offset,
            last_offset: self.end_of(position + 1) - 1,
            identity: entry.identity,
        })
    }

    /// Where the first `count` batches end; of none, where the first one begins.
    fn end_of(&self, count: usize) -> i64 {
        let next = self.batches.get(count);
        next.map_or(self.batches_end, |next| next.base_offset)
    }

    /// Batches that begin in `from..to`, ascending.
    pub(crate) fn range(&self, from: i64, to: i64) -> impl Iterator<Item = Batch> {
        let (start, end) = (self.count_below(from), self.count_below(to));
        (start..end).filter_map(|position| self.batch(position))
    }

    /// How many batches begin below `offset`.
    fn count_below(&self, offset: i64) -> usize {
        self.batches
            .partition_point(|batch| batch.base_offset < offset)
    }
}

/// For evidence.
pub(crate) fn batch_json(batch: &Batch) -> Value {
    json!({
        "base_offset": batch.base_offset,
        "last_offset": batch.last_offset,
        "epoch": batch.identity.map(|identity| identity.epoch),
        "crc": batch.identity.map(|identity| identity.crc),
    })
}

/// Whether nothing that is known tells the two apart.
pub(crate) fn may_be_same(one: &Batch, other: &Batch) -> bool {
    one.identity.is_none() || other.identity.is_none() || one == other
}

#[cfg(test)]
mod tests {
    use super::*;

    fn batch(base_offset: i64, last_offset: i64) -> Batch {
        Batch {
            base_offset,
            last_offset,
            identity: Some(Identity { epoch: 1, crc: 7 }),
        }
    }

    #[test]
    fn a_cut_inside_a_batch_makes_the_rest_unknown() {
        let mut log = Log::default();
        log.append(batch(0, 2));
        log.append(batch(3, 5));
        log.cut(5);
        assert_eq!(log.end(), 5);
        assert_eq!(log.at(4).unwrap().identity, None);
        assert_eq!(log.at(2), Some(batch(0, 2)));
        assert_eq!(log.at(5), None);
        log.cut(0);
        assert_eq!((log.end(), log.at(0)), (0, None));
    }

    #[test]
    fn what_was_not_told_is_unknown() {
        let mut log = Log::default();
        log.append(batch(4, 4));
        log.extend_unknown(6);
        assert_eq!(log.end(), 6);
        assert_eq!(log.at(0).unwrap().identity, None);
        assert_eq!(log.range(1, 6).count(), 2);
        assert!(log.range(4, 5).eq([batch(4, 4)]));
        assert_eq!(log.range(6, 1).count(), 0);
        assert_eq!(log.last_epoch(), None);
    }

    #[test]
    fn a_log_that_starts_later_knows_the_epoch_before_it() {
        let mut log = Log::default();
        assert_eq!((log.start(), log.last_epoch()), (0, Some(0)));
        log.append(batch(0, 2));
        log.append(batch(3, 5));
        log.advance_start(3);
        assert_eq!((log.start(), log.end(), log.at(2)), (3, 6, None));
        log.advance_start(6);
        assert_eq!((log.start(), log.end()), (6, 6));
        assert_eq!(log.last_epoch(), Some(1));
        log.advance_start(2);
        assert_eq!(log.start(), 6);
        log.extend_start(4);
        assert_eq!((log.start(), log.end(), log.last_epoch()), (4, 6, None));
        assert_eq!(log.at(4).unwrap().identity, None);
        log.advance_start(9);
        assert_eq!((log.start(), log.end(), log.last_epoch()), (9, 9, None));
        log.append(batch(9, 9));
        log.cut(4);
        assert_eq!((log.start(), log.end()), (4, 4));
    }
}
