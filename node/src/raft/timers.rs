//! Owns deadlines on the node's clock and the randomised election timeout.
//! Never reads a clock: the present is always an argument, and it may jump in both directions.

use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use super::Timers;

/// A point on the node's clock that is never reached.
pub(crate) const NEVER_NS: u64 = u64::MAX;

/// The point `delay_ns` after `now_ns`.
pub(crate) fn after(now_ns: u64, delay_ns: u64) -> u64 {
    now_ns.saturating_add(delay_ns)
}

/// Whether a deadline has passed. [`NEVER_NS`] never does, not even at the end of the clock.
pub(crate) fn is_due(deadline_ns: u64, now_ns: u64) -> bool {
    deadline_ns != NEVER_NS && deadline_ns <= now_ns
}

impl Timers {
    /// How long a leader goes without fetches from a majority (1.5 fetch timeouts).
    pub(crate) fn check_quorum_ns(&self) -> u64 {
        self.fetch_timeout_ns
            .saturating_add(self.fetch_timeout_ns / 2)
    }

    /// Pause between announcements to voters that do not fetch (half a fetch timeout).
    pub(crate) fn begin_quorum_epoch_ns(&self) -> u64 {
        (self.fetch_timeout_ns / 2).max(1)
    }
}

/// The only source of chance in the core.
#[derive(Debug, Clone)]
pub(crate) struct Random(ChaCha8Rng);

impl Random {
    pub(crate) fn new(seed: u64) -> Self {
        Self(ChaCha8Rng::seed_from_u64(seed))
    }

    /// A number in `0..bound`, each equally likely; 0 for a bound of 0.
    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        if bound <= 1 {
            return 0;
        }
        // Numbers above the largest multiple of the bound would favour small remainders.
        let excess = (u64::MAX % bound + 1) % bound;
        loop {
            let draw = self.0.next_u64();
            if draw <= u64::MAX - excess {
                return draw % bound;
            }
        }
    }

    /// A draw from `T..2T`, at least one nanosecond so that elections cannot spin.
    pub(crate) fn election_timeout_ns(&mut self, timers: &Timers) -> u64 {
        let shortest = timers.election_timeout_ns.max(1);
        shortest.saturating_add(self.below(shortest))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn draws_stay_below_the_bound_and_reach_every_value() {
        let mut random = Random::new(7);
        let mut counts = [0_u32; 7];
        for _ in 0..7_000 {
            counts[random.below(7) as usize] += 1;
        }
        assert!(
            counts.iter().all(|&count| (800..1_200).contains(&count)),
            "{counts:?}"
        );
        assert_eq!((random.below(0), random.below(1)), (0, 0));
    }

    #[test]
    fn the_same_seed_draws_the_same_numbers() {
        let draws = |seed| {
            let mut random = Random::new(seed);
            (0..20).map(|_| random.below(1_000_000)).collect::<Vec<_>>()
        };
        assert_eq!(draws(1), draws(1));
        assert_ne!(draws(1), draws(2));
    }

    #[test]
    fn deadlines_saturate_and_never_means_never() {
        assert_eq!(after(u64::MAX - 1, 5), NEVER_NS);
        assert!(!is_due(NEVER_NS, u64::MAX));
        assert!(is_due(5, 5) && is_due(5, 6) && !is_due(5, 4));
    }
}
