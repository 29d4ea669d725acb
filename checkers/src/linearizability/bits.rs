//! Owns a set of small numbers in a fixed number of machine words.
//! Never allocates, so that a configuration is plain data.

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(super) struct Bits<const W: usize>([u64; W]);

impl<const W: usize> Bits<W> {
    pub(super) const EMPTY: Self = Self([0; W]);

    pub(super) fn contains(&self, bit: usize) -> bool {
        self.0[bit / 64] & (1 << (bit % 64)) != 0
    }

    pub(super) fn insert(&mut self, bit: usize) {
        self.0[bit / 64] |= 1 << (bit % 64);
    }

    pub(super) fn remove(&mut self, bit: usize) {
        self.0[bit / 64] &= !(1 << (bit % 64));
    }

    pub(super) fn is_subset(&self, other: &Self) -> bool {
        self.0
            .iter()
            .zip(&other.0)
            .all(|(one, all)| one & !all == 0)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bits_cross_word_borders() {
        let mut bits = Bits::<2>::EMPTY;
        bits.insert(63);
        bits.insert(64);
        let mut fewer = bits;
        fewer.remove(63);
        assert!(fewer.contains(64) && !fewer.contains(63));
        assert!(fewer.is_subset(&bits) && !bits.is_subset(&fewer));
        assert!(bits.is_subset(&bits));
    }
}
