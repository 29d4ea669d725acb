//! Owns a list that grows at its end for as long as a run lasts.
//! Never moves what it holds: a list that doubles its room is there twice for a moment, and leaves holes behind.

use std::collections::VecDeque;
use std::ops::{Index, Range};

/// How many entries have their room together.
const CHUNK_COUNT: usize = 1 << 9;

/// How many entries before the end are looked at before a search through all of them.
const NEAR_END_COUNT: usize = 8;

/// Entries by position, from 0.
#[derive(Debug, Clone)]
pub(crate) struct LongList<T> {
    /// All full but the last one, which is not empty.
    chunks: VecDeque<Vec<T>>,
    /// How many entries of the first chunk are not part of the list any more.
    skipped_count: usize,
    count: usize,
}

impl<T> Default for LongList<T> {
    fn default() -> Self {
        Self {
            chunks: VecDeque::new(),
            skipped_count: 0,
            count: 0,
        }
    }
}

impl<T> Index<usize> for LongList<T> {
    type Output = T;

    fn index(&self, position: usize) -> &T {
        let place = self.skipped_count + position;
        &self.chunks[place / CHUNK_COUNT][place % CHUNK_COUNT]
    }
}

impl<T> LongList<T> {
    /// How many entries there are.
    pub(crate) fn len(&self) -> usize {
        self.count
    }

    /// The entry at a position.
    pub(crate) fn get(&self, position: usize) -> Option<&T> {
        (position < self.count).then(|| &self[position])
    }

    /// The entry at a position.
    pub(crate) fn get_mut(&mut self, position: usize) -> Option<&mut T> {
        let place = self.skipped_count + position;
        let chunk = self.chunks.get_mut(place / CHUNK_COUNT)?;
        chunk.get_mut(place % CHUNK_COUNT)
    }

    /// The first entry.
    pub(crate) fn first(&self) -> Option<&T> {
        self.get(0)
    }

    /// The last entry.
    pub(crate) fn last(&self) -> Option<&T> {
        self.chunks.back()?.last().filter(|_| self.count > 0)
    }

    /// The last entry.
    pub(crate) fn last_mut(&mut self) -> Option<&mut T> {
        self.get_mut(self.count.checked_sub(1)?)
    }

    /// Adds an entry at the end.
    pub(crate) fn push(&mut self, entry: T) {
        match self.chunks.back_mut() {
            Some(last) if last.len() < CHUNK_COUNT => last.push(entry),
            _ => {
                let mut chunk = Vec::with_capacity(CHUNK_COUNT);
                chunk.push(entry);
                self.chunks.push_back(chunk);
            }
        }
        self.count += 1;
    }

    /// Adds an entry that comes before those from `position` on. Dear, but at the end.
    pub(crate) fn insert(&mut self, position: usize, entry: T) {
        let mut later = Vec::new();
        while self.count > position {
            later.extend(self.pop());
        }
        self.push(entry);
        while let Some(entry) = later.pop() {
            self.push(entry);
        }
    }

    fn pop(&mut self) -> Option<T> {
        let last = self.chunks.back_mut().filter(|_| self.count > 0)?;
        let entry = last.pop();
        if last.is_empty() {
            self.chunks.pop_back();
        }
        self.count -= 1;
        if self.count == 0 {
            *self = Self::default();
        }
        entry
    }

    /// Keeps the first `count` entries.
    pub(crate) fn truncate(&mut self, count: usize) {
        while self.count > count {
            self.pop();
        }
    }

    /// Removes the first `count` entries.
    pub(crate) fn remove_first(&mut self, count: usize) {
        let count = count.min(self.count);
        self.count -= count;
        self.skipped_count += count;
        while self.skipped_count >= CHUNK_COUNT {
            self.chunks.pop_front();
            self.skipped_count -= CHUNK_COUNT;
        }
        if self.count == 0 {
            *self = Self::default();
        }
    }

    /// Entries at some positions.
    pub(crate) fn range(&self, positions: Range<usize>) -> impl Iterator<Item = &T> {
        positions.map(|position| &self[position])
    }

    /// All entries.
    pub(crate) fn iter(&self) -> impl Iterator<Item = &T> {
        self.chunks.iter().flatten().skip(self.skipped_count)
    }

    /// All entries.
    pub(crate) fn iter_mut(&mut self) -> impl Iterator<Item = &mut T> {
        let skipped_count = self.skipped_count;
        self.chunks.iter_mut().flatten().skip(skipped_count)
    }

    /// How many entries come before the first of which this does not hold; they are in that order. Found at
    /// once near the end, which those who ask mostly mean.
    pub(crate) fn partition_point(&self, holds: impl Fn(&T) -> bool) -> usize {
        let near_end = self.count.saturating_sub(NEAR_END_COUNT);
        let mut end = self.count;
        for entry in self
            .chunks
            .iter()
            .rev()
            .flat_map(|chunk| chunk.iter().rev())
        {
            if end == near_end {
                break;
            }
            if holds(entry) {
                return end;
            }
            end -= 1;
        }
        let (mut low, mut high) = (0, near_end);
        while low < high {
            let middle = low + (high - low) / 2;
            if holds(&self[middle]) {
                low = middle + 1;
            } else {
                high = middle;
            }
        }
        low
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn it_holds_what_a_list_in_one_piece_holds() {
        let mut list = LongList::default();
        let mut plain: Vec<usize> = Vec::new();
        let check = |list: &LongList<usize>, plain: &[usize]| {
            assert!(list.iter().eq(plain));
            assert!(list.range(0..list.len()).eq(plain));
            assert_eq!(
                (list.len(), list.first(), list.last()),
                (plain.len(), plain.first(), plain.last())
            );
            for limit in [0, 3, 700, 1_500, 2_990, 9_000] {
                assert_eq!(
                    list.partition_point(|entry| *entry < limit),
                    plain.partition_point(|entry| *entry < limit)
                );
            }
        };
        for entry in 0..3_000 {
            list.push(entry);
            plain.push(entry);
        }
        check(&list, &plain);
        for (removed, kept) in [(0, 3_000), (1, 2_600), (CHUNK_COUNT, 1_024), (700, 400)] {
            list.remove_first(removed);
            plain.drain(..removed.min(plain.len()));
            check(&list, &plain);
            list.truncate(kept);
            plain.truncate(kept);
            check(&list, &plain);
        }
        list.truncate(0);
        plain.clear();
        check(&list, &plain);
    }

    #[test]
    fn entries_can_be_changed_and_come_between_others() {
        let mut list = LongList::default();
        for entry in (0..2_000).step_by(2) {
            list.push(entry);
        }
        list.remove_first(10);
        list.insert(0, 19);
        list.insert(600, 1_217);
        list.insert(list.len(), 3_000);
        assert_eq!(list[0], 19);
        assert_eq!((list[599], list[600], list[601]), (1_216, 1_217, 1_218));
        assert_eq!(list.get(list.len()), None);
        *list.get_mut(0).unwrap() = 7;
        *list.last_mut().unwrap() = 9;
        assert_eq!((list.first(), list.last()), (Some(&7), Some(&9)));
        list.iter_mut().for_each(|entry| *entry = 0);
        assert!(list.iter().all(|entry| *entry == 0) && list.iter().count() == 993);
        list.remove_first(5_000);
        assert_eq!((list.len(), list.last()), (0, None));
        assert_eq!(list.get_mut(0), None);
    }
}
