//! Owns how much happened per second lately, measured as Kafka's rates are.
//! Never reads a clock.

/// How long one window is, in nanoseconds (Kafka's `metrics.sample.window.ms`, of which it keeps two).
const WINDOW_NS: u64 = 30_000_000_000;

/// Counts what happens in the window of time that is not over yet, and in the one before.
#[derive(Debug, Default, Clone, Copy)]
pub(super) struct RecentRate {
    window: u64,
    count: u64,
    count_before: u64,
}

impl RecentRate {
    /// So much happened at `now_ns`.
    pub(super) fn add(&mut self, now_ns: u64, count: u64) {
        *self = self.at(now_ns);
        self.count += count;
    }

    /// How much happened per second in the last 30 to 60 seconds.
    pub(super) fn per_second(&self, now_ns: u64) -> f64 {
        let now = self.at(now_ns);
        let elapsed_ns = WINDOW_NS + now_ns % WINDOW_NS;
        (now.count + now.count_before) as f64 / (elapsed_ns as f64 / 1e9)
    }

    fn at(&self, now_ns: u64) -> Self {
        let window = now_ns / WINDOW_NS;
        let (count, count_before) = match window.saturating_sub(self.window) {
            0 => (self.count, self.count_before),
            1 => (0, self.count),
            _ => (0, 0),
        };
        Self {
            window,
            count,
            count_before,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const S: u64 = 1_000_000_000;

    #[test]
    fn what_happened_counts_for_two_windows_and_is_then_forgotten() {
        let mut rate = RecentRate::default();
        let of = |rate: &RecentRate, at_s: u64| (rate.per_second(at_s * S) * 1000.0).round();
        assert_eq!(of(&rate, 100), 0.0);
        rate.add(300 * S, 60);
        assert_eq!(of(&rate, 300), 2000.0);
        assert_eq!(of(&rate, 310), 1500.0);
        rate.add(320 * S, 15);
        assert_eq!(of(&rate, 330), 2500.0);
        rate.add(345 * S, 15);
        assert_eq!(of(&rate, 345), 2000.0);
        assert_eq!(of(&rate, 360), 500.0, "the first window is forgotten");
        assert_eq!(of(&rate, 390), 0.0);
    }
}
