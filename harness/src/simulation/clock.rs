//! Owns a simulated node's clock: true time bent by an offset and a rate, as the node's own clock is.
//! Never used for anything that reports the truth: traces, histories, schedules.

/// What a clock shows when the run starts, in nanoseconds. Far from zero, so that a clock set back by
/// days still moves.
const ORIGIN_NS: u64 = 1 << 60;

/// A clock that runs in straight lines over true time.
///
/// Drift gathered by a rate is kept over later changes; offset 0 and rate 1 together give back true
/// time.
#[derive(Debug, Clone, Copy)]
pub(super) struct SimulatedClock {
    offset_ns: i64,
    rate: f64,
    since_ns: u64,
    drift_ns: i64,
}

impl SimulatedClock {
    /// A clock that tells true time.
    pub(super) fn new() -> Self {
        Self {
            offset_ns: 0,
            rate: 1.0,
            since_ns: 0,
            drift_ns: 0,
        }
    }

    /// Bends the clock from `true_ns` on.
    pub(super) fn set(&mut self, true_ns: u64, offset_ms: i64, rate: f64) {
        let restored = offset_ms == 0 && rate == 1.0;
        *self = Self {
            offset_ns: offset_ms.saturating_mul(1_000_000),
            rate,
            since_ns: true_ns,
            drift_ns: if restored { 0 } else { self.drift_ns(true_ns) },
        };
    }

    /// What the clock shows.
    pub(super) fn shows_ns(&self, true_ns: u64) -> u64 {
        (true_ns + ORIGIN_NS).saturating_add_signed(self.skew_ns(true_ns))
    }

    /// Whether it tells true time, and will.
    pub(super) fn is_true(&self) -> bool {
        (self.offset_ns, self.drift_ns, self.rate) == (0, 0, 1.0)
    }

    /// How far the clock is off.
    pub(super) fn skew_ns(&self, true_ns: u64) -> i64 {
        self.offset_ns.saturating_add(self.drift_ns(true_ns))
    }

    /// The true time at which the clock shows `shown_ns`; `true_ns` if that is past.
    pub(super) fn true_time_of(&self, shown_ns: u64, true_ns: u64) -> u64 {
        let ahead_ns = shown_ns.saturating_sub(self.shows_ns(true_ns));
        if self.rate == 1.0 {
            return true_ns.saturating_add(ahead_ns);
        }
        // Converting a float that is too large saturates.
        true_ns.saturating_add((ahead_ns as f64 / self.rate).ceil() as u64)
    }

    fn drift_ns(&self, true_ns: u64) -> i64 {
        if self.rate == 1.0 {
            return self.drift_ns;
        }
        let elapsed_ns = true_ns.saturating_sub(self.since_ns) as f64;
        self.drift_ns
            .saturating_add(((self.rate - 1.0) * elapsed_ns) as i64)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: u64 = 1_000_000_000;

    #[test]
    fn offsets_jump_rates_drift_and_restoring_forgets_both() {
        let mut clock = SimulatedClock::new();
        assert_eq!(clock.skew_ns(9 * SECOND), 0);
        clock.set(SECOND, -500, 2.0);
        assert_eq!(clock.skew_ns(SECOND), -500_000_000);
        assert_eq!(clock.skew_ns(3 * SECOND), 1_500_000_000);
        clock.set(3 * SECOND, 100, 1.0);
        assert_eq!(clock.skew_ns(8 * SECOND), 2_100_000_000);
        clock.set(8 * SECOND, 0, 1.0);
        assert_eq!(clock.skew_ns(9 * SECOND), 0);
    }

    #[test]
    fn deadlines_are_translated_to_true_time() {
        let mut clock = SimulatedClock::new();
        clock.set(0, 0, 2.0);
        let shown_ns = clock.shows_ns(0) + SECOND;
        let true_ns = clock.true_time_of(shown_ns, 0);
        assert_eq!(true_ns, SECOND / 2);
        assert!(clock.shows_ns(true_ns) >= shown_ns);
        assert_eq!(clock.true_time_of(shown_ns, SECOND), SECOND, "it is past");
        assert!(clock.true_time_of(u64::MAX, 0) > 100 * SECOND);
    }
}
