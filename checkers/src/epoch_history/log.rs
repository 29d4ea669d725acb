//! Owns the model of one node's log: which batches it holds, as far as the trace tells.
//! Never guesses: a range whose content the trace does not tell has no identity.

/// What makes two batches at the same offsets the same.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Identity {
    pub(super) epoch: i32,
    pub(super) crc: u32,
}

/// Consecutive records that were appended together.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Batch {
    pub(super) base_offset: i64,
    pub(super) last_offset: i64,
    /// `None` where the trace does not tell.
    pub(super) identity: Option<Identity>,
}

/// The log of one node, without holes.
#[derive(Debug, Default)]
pub(super) struct Log {
    batches: Vec<Batch>,
}

impl Log {
    /// Offset after the last record.
    pub(super) fn end(&self) -> i64 {
        self.batches.last().map_or(0, |batch| batch.last_offset + 1)
    }

    /// Adds a batch at the end; what lies between is unknown.
    pub(super) fn append(&mut self, batch: Batch) {
        self.extend_unknown(batch.base_offset);
        self.batches.push(batch);
    }

    /// The log reaches to `end`, with unknown content where it was shorter.
    pub(super) fn extend_unknown(&mut self, end: i64) {
        let base_offset = self.end();
        if base_offset < end {
            self.batches.push(Batch {
                base_offset,
                last_offset: end - 1,
                identity: None,
            });
        }
    }

    /// Removes everything at `end` and above.
    pub(super) fn cut(&mut self, end: i64) {
        let keep = self
            .batches
            .partition_point(|batch| batch.base_offset < end);
        self.batches.truncate(keep);
        if let Some(last) = self.batches.last_mut()
            && last.last_offset >= end
        {
            last.last_offset = end - 1;
            last.identity = None;
        }
    }

    /// Keeps the length and forgets the content.
    pub(super) fn forget(&mut self) {
        for batch in &mut self.batches {
            batch.identity = None;
        }
    }

    /// The batch that holds the record at `offset`.
    pub(super) fn at(&self, offset: i64) -> Option<&Batch> {
        let after = self
            .batches
            .partition_point(|batch| batch.base_offset <= offset);
        let batch = self.batches.get(after.checked_sub(1)?)?;
        (offset <= batch.last_offset).then_some(batch)
    }

    /// Batches that begin in `from..to`, ascending.
    pub(super) fn range(&self, from: i64, to: i64) -> &[Batch] {
        let start = self
            .batches
            .partition_point(|batch| batch.base_offset < from);
        let end = self.batches.partition_point(|batch| batch.base_offset < to);
        self.batches.get(start..end).unwrap_or(&[])
    }
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
        assert_eq!(log.at(2), Some(&batch(0, 2)));
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
        assert_eq!(log.range(1, 6).len(), 2);
        assert_eq!(log.range(4, 5), [batch(4, 4)]);
    }
}
