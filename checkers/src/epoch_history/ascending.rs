//! Owns a map from offsets that is mostly added to, and looked at, near its end.
//! Never knows what stands at an offset.

use crate::long_list::LongList;

/// Values by offset, ascending. A list rather than a tree: logs grow at their end, and there everything is
/// found in a few steps, however long they are.
#[derive(Debug)]
pub(super) struct Ascending<T> {
    entries: LongList<(i64, T)>,
}

impl<T> Default for Ascending<T> {
    fn default() -> Self {
        Self {
            entries: LongList::default(),
        }
    }
}

impl<T> Ascending<T> {
    /// How many entries stand below `offset`.
    fn count_below(&self, offset: i64) -> usize {
        self.entries.partition_point(|(at, _)| *at < offset)
    }

    /// What stands at `offset`.
    pub(super) fn get(&self, offset: i64) -> Option<&T> {
        let (at, value) = self.entries.get(self.count_below(offset))?;
        (*at == offset).then_some(value)
    }

    /// What stands at `offset`.
    pub(super) fn get_mut(&mut self, offset: i64) -> Option<&mut T> {
        let position = self.count_below(offset);
        let (at, value) = self.entries.get_mut(position)?;
        (*at == offset).then_some(value)
    }

    /// The last entry at `offset` or below.
    pub(super) fn last_up_to(&self, offset: i64) -> Option<(i64, &T)> {
        let count = self.count_below(offset.saturating_add(1));
        let (at, value) = self.entries.get(count.checked_sub(1)?)?;
        Some((*at, value))
    }

    /// Values at `offset` and above, ascending.
    pub(super) fn from(&self, offset: i64) -> impl Iterator<Item = &T> {
        let positions = self.count_below(offset)..self.entries.len();
        self.entries.range(positions).map(|(_, value)| value)
    }

    /// Puts a value at `offset`, in the place of what stands there.
    pub(super) fn insert(&mut self, offset: i64, value: T) {
        let position = self.count_below(offset);
        match self.entries.get_mut(position) {
            Some((at, earlier)) if *at == offset => *earlier = value,
            _ => self.entries.insert(position, (offset, value)),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn everything_is_found_near_the_end_and_far_from_it() {
        let mut map = Ascending::default();
        assert_eq!((map.get(0), map.last_up_to(9)), (None, None));
        for offset in (0..100).rev().step_by(2).chain((0..100).step_by(2)) {
            map.insert(offset, offset * 10);
        }
        map.insert(50, 7);
        for offset in 0..100 {
            let value = if offset == 50 { 7 } else { offset * 10 };
            assert_eq!(map.get(offset), Some(&value));
            assert_eq!(map.get_mut(offset).copied(), Some(value));
            assert_eq!(map.last_up_to(offset), Some((offset, &value)));
            assert_eq!(map.from(offset).count() as i64, 100 - offset);
        }
        assert_eq!(map.get(100), None);
        assert_eq!(map.last_up_to(i64::MAX), Some((99, &990)));
        assert_eq!(map.last_up_to(-1), None);
    }
}
