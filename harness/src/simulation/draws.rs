//! Owns the randomness of a simulation: every draw is a pure function of (seed, stream, entity, counter).
//! Never keeps a generator running, so that leaving out one event shifts no draw of another entity.

use results::keyed_random::Stream;

const STEP: u64 = 0x9e37_79b9_7f4a_7c15;

/// The draws of one entity of one stream: one link, one disk, one node.
///
/// The key comes from the run's keyed stream; the draws below it are mixed from key and counter, which
/// is many times cheaper than a cipher and random enough for delays.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draws {
    key: u64,
}

impl Draws {
    /// The draws of `entity` in the stream called `name` under `seed`.
    pub(super) fn new(seed: u64, name: &str, entity: u64) -> Self {
        Self {
            key: Stream::new(seed, name).draw(entity, 0),
        }
    }

    /// A uniform 64-bit draw.
    pub(super) fn at(self, counter: u64) -> u64 {
        mix(self.key.wrapping_add(counter.wrapping_mul(STEP)))
    }

    /// Draws that belong to one event of this entity.
    pub(super) fn of(self, counter: u64) -> Self {
        Self {
            key: self.at(counter),
        }
    }

    /// A uniform draw from `0..bound`; 0 for a bound of 0.
    pub(super) fn below(self, counter: u64, bound: u64) -> u64 {
        scaled(self.at(counter), bound)
    }
}

/// Maps a uniform 64-bit draw to `0..bound`.
pub(super) fn scaled(draw: u64, bound: u64) -> u64 {
    ((u128::from(draw) * u128::from(bound)) >> 64) as u64
}

/// The finaliser of SplitMix64.
pub(super) fn mix(value: u64) -> u64 {
    let value = (value ^ (value >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ (value >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ (value >> 31)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_depend_on_every_coordinate_and_on_nothing_else() {
        let base = Draws::new(1, "link", 2);
        assert_eq!(base.at(3), Draws::new(1, "link", 2).at(3));
        assert_ne!(base.at(3), base.at(4));
        assert_ne!(base.at(3), Draws::new(1, "link", 3).at(3));
        assert_ne!(base.at(3), Draws::new(1, "disk", 2).at(3));
        assert_ne!(base.at(3), Draws::new(2, "link", 2).at(3));
        assert_ne!(base.of(3).at(0), base.of(4).at(0));
    }

    #[test]
    fn draws_stay_below_their_bound_and_reach_everything_there() {
        let draws = Draws::new(1, "range", 0);
        let mut seen = [false; 7];
        for counter in 0..300 {
            seen[draws.below(counter, 7) as usize] = true;
        }
        assert_eq!(seen, [true; 7]);
        assert_eq!(draws.below(0, 0), 0);
    }
}
