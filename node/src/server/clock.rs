//! Owns the node's clock: the machine's monotonic clock, bent by an offset and a rate on request.
//! Never used for trace times, timeouts of connections or anything else that reports the truth.

use std::time::Duration;

use nix::time::{ClockId, clock_gettime};
use serde::Serialize;

/// Where the node's clock starts when the machine's monotonic clock is at zero, in nanoseconds. Far
/// from zero, so that a clock set back by days on a machine that just booted still moves.
const ORIGIN_NS: i64 = 1 << 60;

/// Largest offset that may be asked for, either way: one year, in milliseconds.
pub(crate) const MAX_OFFSET_MS: i64 = 365 * 24 * 60 * 60 * 1000;

/// Fastest rate that may be asked for.
pub(crate) const MAX_RATE: f64 = 1000.0;

/// CLOCK_MONOTONIC in nanoseconds: the same clock for all processes of the machine, never skewed.
pub(crate) fn monotonic_ns() -> i64 {
    let now = clock_gettime(ClockId::CLOCK_MONOTONIC)
        .expect("every Unix system has CLOCK_MONOTONIC and the call takes no pointer of ours");
    now.tv_sec() * 1_000_000_000 + now.tv_nsec()
}

/// How the clock was asked to deviate, and how far it does.
#[derive(Debug, Clone, Copy, PartialEq, Serialize)]
pub(crate) struct ClockState {
    /// The offset asked for.
    pub offset_ms: i64,
    /// The rate asked for: 1.2 gains 200 ms a second.
    pub rate: f64,
    /// Measured: the node's clock minus true time, in milliseconds.
    pub skew_ms: f64,
}

/// A clock that runs in straight lines over true time.
///
/// The skew is `offset + drift`. The drift grows with `rate - 1` and is kept over later changes, so
/// the clock jumps by a change of the offset only; offset 0 and rate 1 together forget the drift and
/// give back true time.
#[derive(Debug, Clone, Copy)]
pub(crate) struct SkewedClock {
    offset_ms: i64,
    rate: f64,
    /// True time of the last change.
    since_true_ns: i64,
    /// Drift gathered until then.
    drift_ns: i64,
}

impl SkewedClock {
    /// A clock that tells true time.
    pub(crate) fn new(true_ns: i64) -> Self {
        Self {
            offset_ms: 0,
            rate: 1.0,
            since_true_ns: true_ns,
            drift_ns: 0,
        }
    }

    /// What the clock shows at a true time.
    pub(crate) fn now_ns(&self, true_ns: i64) -> u64 {
        let shown = true_ns
            .saturating_add(ORIGIN_NS)
            .saturating_add(self.skew_ns(true_ns));
        u64::try_from(shown).unwrap_or(0)
    }

    /// From `true_ns` on, deviate like this.
    ///
    /// # Errors
    /// When the clock cannot run like that; it then goes on as before.
    pub(crate) fn set(&mut self, true_ns: i64, offset_ms: i64, rate: f64) -> Result<(), String> {
        if offset_ms.unsigned_abs() > MAX_OFFSET_MS.unsigned_abs() {
            return Err(format!("offset_ms must be within {MAX_OFFSET_MS} of zero"));
        }
        if !(0.0..=MAX_RATE).contains(&rate) {
            return Err(format!("rate must be from 0 to {MAX_RATE}"));
        }
        let restored = offset_ms == 0 && rate == 1.0;
        let drift_ns = if restored {
            0
        } else {
            self.drift_at_ns(true_ns)
        };
        *self = Self {
            offset_ms,
            rate,
            since_true_ns: true_ns,
            drift_ns,
        };
        Ok(())
    }

    /// What was asked for, and what came of it.
    pub(crate) fn state(&self, true_ns: i64) -> ClockState {
        ClockState {
            offset_ms: self.offset_ms,
            rate: self.rate,
            skew_ms: self.skew_ns(true_ns) as f64 / 1e6,
        }
    }

    /// True time until the clock shows `deadline_ns`, at most `cap`.
    pub(crate) fn time_until(&self, deadline_ns: u64, true_ns: i64, cap: Duration) -> Duration {
        let shown_ns = deadline_ns.saturating_sub(self.now_ns(true_ns));
        if shown_ns == 0 {
            return Duration::ZERO;
        }
        // A stopped clock divides by zero: infinitely long, hence the cap.
        let true_wait_ns = shown_ns as f64 / self.rate;
        if true_wait_ns < cap.as_nanos() as f64 {
            Duration::from_nanos(true_wait_ns.ceil() as u64)
        } else {
            cap
        }
    }

    fn drift_at_ns(&self, true_ns: i64) -> i64 {
        let elapsed_ns = true_ns.saturating_sub(self.since_true_ns) as f64;
        // A float to integer cast saturates.
        self.drift_ns
            .saturating_add(((self.rate - 1.0) * elapsed_ns) as i64)
    }

    fn skew_ns(&self, true_ns: i64) -> i64 {
        (self.offset_ms * 1_000_000).saturating_add(self.drift_at_ns(true_ns))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const SECOND: i64 = 1_000_000_000;
    const CAP: Duration = Duration::from_millis(50);

    fn shows(clock: &SkewedClock, true_ns: i64) -> i64 {
        clock.now_ns(true_ns) as i64 - ORIGIN_NS
    }

    #[test]
    fn an_untouched_clock_tells_true_time() {
        let clock = SkewedClock::new(5 * SECOND);
        assert_eq!(shows(&clock, 9 * SECOND), 9 * SECOND);
        assert_eq!(
            clock.state(9 * SECOND),
            ClockState {
                offset_ms: 0,
                rate: 1.0,
                skew_ms: 0.0
            }
        );
    }

    #[test]
    fn an_offset_jumps_at_once_and_can_go_back_before_boot() {
        let mut clock = SkewedClock::new(0);
        let before = shows(&clock, SECOND);
        clock.set(SECOND, -3_600_000, 1.0).unwrap();
        assert_eq!(shows(&clock, SECOND), before - 3_600 * SECOND);
        assert_eq!(
            shows(&clock, 2 * SECOND),
            before - 3_599 * SECOND,
            "it still moves"
        );
        assert_eq!(clock.state(2 * SECOND).skew_ms, -3_600_000.0);
    }

    #[test]
    fn a_change_of_rate_is_continuous() {
        let mut clock = SkewedClock::new(0);
        clock.set(10 * SECOND, 0, 2.0).unwrap();
        assert_eq!(shows(&clock, 10 * SECOND), 10 * SECOND);
        assert_eq!(shows(&clock, 11 * SECOND), 12 * SECOND);
        clock.set(11 * SECOND, 0, 0.5).unwrap();
        assert_eq!(shows(&clock, 11 * SECOND), 12 * SECOND);
        assert_eq!(shows(&clock, 13 * SECOND), 13 * SECOND);
        clock.set(13 * SECOND, 250, 0.5).unwrap();
        assert_eq!(
            shows(&clock, 13 * SECOND),
            13 * SECOND + SECOND / 4,
            "only the offset jumps"
        );
    }

    #[test]
    fn drift_stays_until_the_clock_is_restored() {
        let mut clock = SkewedClock::new(0);
        clock.set(0, 100, 1.5).unwrap();
        clock.set(2 * SECOND, 100, 1.0).unwrap();
        assert_eq!(clock.state(7 * SECOND).skew_ms, 1_100.0);
        clock.set(8 * SECOND, 0, 1.0).unwrap();
        assert_eq!(shows(&clock, 9 * SECOND), 9 * SECOND);
    }

    #[test]
    fn impossible_settings_change_nothing() {
        let mut clock = SkewedClock::new(0);
        clock.set(0, 10, 1.1).unwrap();
        for (offset_ms, rate) in [
            (0, -0.1),
            (0, f64::NAN),
            (0, f64::INFINITY),
            (i64::MIN, 1.0),
            (MAX_OFFSET_MS + 1, 1.0),
        ] {
            assert!(
                clock.set(SECOND, offset_ms, rate).is_err(),
                "{offset_ms} {rate}"
            );
        }
        let state = clock.state(SECOND);
        assert_eq!((state.offset_ms, state.rate), (10, 1.1));
    }

    #[test]
    fn waits_are_translated_to_true_time() {
        let mut clock = SkewedClock::new(0);
        let in_20_ms = clock.now_ns(0) + 20_000_000;
        assert_eq!(
            clock.time_until(in_20_ms, 0, CAP),
            Duration::from_millis(20)
        );
        assert_eq!(clock.time_until(in_20_ms, 30_000_000, CAP), Duration::ZERO);
        assert_eq!(clock.time_until(u64::MAX, 0, CAP), CAP);
        clock.set(0, 0, 2.0).unwrap();
        assert_eq!(
            clock.time_until(in_20_ms, 0, CAP),
            Duration::from_millis(10)
        );
        clock.set(0, 0, 0.0).unwrap();
        assert_eq!(
            clock.time_until(in_20_ms, 0, CAP),
            CAP,
            "a stopped clock never gets there"
        );
    }
}
