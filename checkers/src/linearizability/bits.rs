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

    pub(super) fn insert_all(&mut self, other: &Self) {
        for (word, more) in self.0.iter_mut().zip(&other.0) {
            *word |= more;
        }
    }

    pub(super) fn is_subset(&self, other: &Self) -> bool {
        self.minus(other).is_empty()
    }

    pub(super) fn count(&self) -> u32 {
        self.0.iter().map(|word| word.count_ones()).sum()
    }

    pub(super) fn is_empty(&self) -> bool {
        self.0.iter().all(|word| *word == 0)
    }

    pub(super) fn minus(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place] & !other.0[place]))
    }

    pub(super) fn and(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place] & other.0[place]))
    }

    /// What is in one of the two, but not in both.
    pub(super) fn difference(&self, other: &Self) -> Self {
        Self(std::array::from_fn(|place| self.0[place] ^ other.0[place]))
    }

    /// Members in ascending order.
    pub(super) fn iter(&self) -> impl Iterator<Item = usize> + use<W> {
        let words = self.0;
        (0..W).flat_map(move |place| {
            let mut word = words[place];
            std::iter::from_fn(move || {
                (word != 0).then(|| {
                    let bit = word.trailing_zeros() as usize;
                    word &= word - 1;
                    place * 64 + bit
                })
            })
        })
    }

    /// The first word as a number.
    pub(super) fn number(&self) -> u64 {
        self.0[0]
    }

    /// A number as the first word.
    pub(super) fn of_number(number: u64) -> Self {
        let mut bits = Self::EMPTY;
        bits.0[0] = number;
        bits
    }

    /// A hash of the words, of middling quality.
    pub(super) fn mix(&self, mut hash: u64) -> u64 {
        for word in &self.0 {
            hash = (hash ^ word).wrapping_mul(0x9e37_79b9_7f4a_7c15);
            hash ^= hash >> 32;
        }
        hash
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
        assert_eq!(bits.iter().collect::<Vec<_>>(), [63, 64]);
        assert_eq!(bits.minus(&fewer).iter().collect::<Vec<_>>(), [63]);
        assert!(bits.difference(&bits).is_empty());
    }
}
