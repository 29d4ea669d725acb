//! Owns what a shaped link does to each message: how late it comes, and whether it is lost, doubled, overtaken.
//! Never sees a message and never waits; every draw is keyed by fault, link and number of the message.

use results::keyed_random::Stream;

use crate::fault::{DELAY_MAX_MS, Distribution, Shaping};

const NS_PER_MS: u64 = 1_000_000;
const NS_PER_S: u64 = 1_000_000_000;
/// How much later than others a message comes that shall be overtaken.
const OVERTAKEN_MS: (u64, u64) = (5, 60);
/// How long after a message its double comes.
const DOUBLE_MS: (u64, u64) = (0, 60);

/// Counters of the draws of one message.
const LOSS: u64 = 0;
const DOUBLED: u64 = 1;
const DOUBLE_AFTER: u64 = 2;
const OVERTAKEN: u64 = 3;
const OVERTAKEN_BY: u64 = 4;
const CORRUPTED: u64 = 5;
const CORRUPTED_WHERE: u64 = 6;
const DELAY: u64 = 8;
/// How many uniform draws make a normal one (Irwin and Hall): integers only, so that a seed means the same on
/// every machine.
const NORMAL_DRAWS: u64 = 12;

/// What becomes of one message on a shaped link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Fate {
    /// How much later it arrives, in nanoseconds, the wait for bandwidth included.
    pub delay_ns: u64,
    /// It never arrives.
    pub lost: bool,
    /// It arrives a second time, so many nanoseconds after the first.
    pub again_after_ns: Option<u64>,
    /// Its delay is so long that later ones overtake it, if there are any.
    pub overtaken: bool,
    /// One of its bits, chosen by this draw, is turned over.
    pub corrupted: Option<u64>,
}

/// One directed link in the hands of one fault.
#[derive(Debug)]
pub struct ShapedLink {
    shaping: Shaping,
    draws: Stream,
    message_count: u64,
    /// When everything before has passed a link of little bandwidth, in nanoseconds.
    free_at_ns: u64,
    passed_bytes: u64,
}

impl ShapedLink {
    /// A link that nothing has passed yet. `seed` is that of the run, `fault_id` that of the fault.
    pub fn new(seed: u64, fault_id: u64, from: &str, to: &str, shaping: Shaping) -> Self {
        Self {
            shaping,
            draws: Stream::new(seed, &format!("traffic/{fault_id}/{from}/{to}")),
            message_count: 0,
            free_at_ns: 0,
            passed_bytes: 0,
        }
    }

    /// What becomes of the next message, sent at `now_ns` on a clock of the caller's choice that never goes
    /// back.
    pub fn next(&mut self, now_ns: u64, size_bytes: u64) -> Fate {
        let number = self.message_count;
        self.message_count += 1;
        let (shaping, draws) = (&self.shaping, &self.draws);
        let chance = |counter, percent| percent > 0 && draws.chance(number, counter, percent);
        let within = |counter, (low_ms, high_ms): (u64, u64)| {
            draws.between(number, counter, low_ms * NS_PER_MS, high_ms * NS_PER_MS)
        };
        if chance(LOSS, shaping.loss_percent) {
            return Fate {
                lost: true,
                ..Fate::default()
            };
        }
        let overtaken = chance(OVERTAKEN, shaping.reorder_percent);
        let again_after_ns =
            chance(DOUBLED, shaping.duplicate_percent).then(|| within(DOUBLE_AFTER, DOUBLE_MS));
        let corrupted =
            chance(CORRUPTED, shaping.corrupt_percent).then(|| draws.draw(number, CORRUPTED_WHERE));
        let mut delay_ns = self.delay_ns(number);
        if overtaken {
            delay_ns += within(OVERTAKEN_BY, OVERTAKEN_MS);
        }
        let queued_ns = self.queue(now_ns, size_bytes);
        Fate {
            delay_ns: delay_ns.saturating_add(queued_ns),
            lost: false,
            again_after_ns,
            overtaken,
            corrupted,
        }
    }

    /// How many more bytes may pass before nothing does.
    pub fn left_bytes(&self) -> u64 {
        match self.shaping.stall_after_bytes {
            0 => u64::MAX,
            most_bytes => most_bytes.saturating_sub(self.passed_bytes),
        }
    }

    /// Bytes have passed.
    pub fn passed(&mut self, bytes: u64) {
        self.passed_bytes = self.passed_bytes.saturating_add(bytes);
    }

    /// How much later than its bytes the end of a connection comes, in nanoseconds.
    pub fn close_delay_ns(&self) -> u64 {
        self.shaping.close_delay_ms * NS_PER_MS
    }

    /// How many bytes the link passes per second, if that is limited.
    pub fn bytes_per_second(&self) -> Option<u64> {
        let limit = self.shaping.bandwidth_bytes_per_second;
        (limit > 0).then_some(limit)
    }

    /// Lets bytes queue for the bandwidth; returns how long until they have passed.
    fn queue(&mut self, now_ns: u64, size_bytes: u64) -> u64 {
        let Some(bytes_per_second) = self.bytes_per_second() else {
            return 0;
        };
        let takes_ns = u128::from(size_bytes) * u128::from(NS_PER_S) / u128::from(bytes_per_second);
        let takes_ns = u64::try_from(takes_ns).unwrap_or(u64::MAX);
        self.free_at_ns = self.free_at_ns.max(now_ns).saturating_add(takes_ns);
        self.free_at_ns - now_ns
    }

    fn delay_ns(&self, number: u64) -> u64 {
        let mean_ns = self.shaping.delay_ms * NS_PER_MS;
        let jitter_ns = self.shaping.jitter_ms * NS_PER_MS;
        if jitter_ns == 0 {
            return mean_ns;
        }
        let draw = |counter, bound| self.draws.below(number, DELAY + counter, bound);
        let delay_ns = match self.shaping.distribution {
            Distribution::Uniform => {
                (mean_ns + draw(0, 2 * jitter_ns + 1)).saturating_sub(jitter_ns)
            }
            Distribution::Normal => {
                // The sum has a deviation of one step and a mean of half the number of draws.
                let sum_ns: u64 = (0..NORMAL_DRAWS)
                    .map(|counter| draw(counter, jitter_ns + 1))
                    .sum();
                (mean_ns + sum_ns).saturating_sub(NORMAL_DRAWS / 2 * jitter_ns)
            }
            Distribution::Pareto => {
                // The largest of three uniform draws has the third root of one as its distribution.
                const WHOLE: u64 = 1 << 32;
                let largest = (0..3).map(|counter| draw(counter, WHOLE)).max();
                let largest = largest.unwrap_or(0) + 1;
                let excess = 2 * u128::from(jitter_ns) * u128::from(WHOLE - largest);
                mean_ns + u64::try_from(excess / u128::from(largest)).unwrap_or(u64::MAX / 4)
            }
        };
        delay_ns.min(DELAY_MAX_MS * NS_PER_MS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn link(shaping: Shaping) -> ShapedLink {
        ShapedLink::new(7, 3, "n1", "n2", shaping)
    }

    fn delays_ms(distribution: Distribution) -> Vec<f64> {
        let mut link = link(Shaping {
            delay_ms: 100,
            jitter_ms: 20,
            distribution,
            ..Shaping::default()
        });
        let mut delays: Vec<f64> = (0..20_000)
            .map(|_| link.next(0, 1).delay_ns as f64 / 1e6)
            .collect();
        delays.sort_by(f64::total_cmp);
        delays
    }

    fn mean(values: &[f64]) -> f64 {
        values.iter().sum::<f64>() / values.len() as f64
    }

    #[test]
    fn delays_scatter_as_their_distribution_says() {
        let uniform = delays_ms(Distribution::Uniform);
        assert!((79.9..81.0).contains(&uniform[0]), "{}", uniform[0]);
        assert!((119.0..120.1).contains(&uniform[19_999]));
        assert!((mean(&uniform) - 100.0).abs() < 1.0);

        let normal = delays_ms(Distribution::Normal);
        let squares: Vec<f64> = normal.iter().map(|ms| (ms - 100.0).powi(2)).collect();
        assert!((mean(&normal) - 100.0).abs() < 1.0);
        assert!((mean(&squares).sqrt() - 20.0).abs() < 1.0);

        let pareto = delays_ms(Distribution::Pareto);
        assert!((100.0..100.1).contains(&pareto[0]), "{}", pareto[0]);
        assert!((mean(&pareto) - 120.0).abs() < 2.0, "{}", mean(&pareto));
        // P(excess > 2 jitter (k - 1)) = k^-3: one in eight is more than 40 ms late.
        let late = pareto.iter().filter(|ms| **ms > 140.0).count();
        assert!((2_300..2_700).contains(&late), "{late}");
    }

    #[test]
    fn a_message_draws_the_same_whatever_other_faults_and_links_do() {
        let shaping = Shaping {
            delay_ms: 50,
            jitter_ms: 50,
            loss_percent: 20,
            duplicate_percent: 20,
            reorder_percent: 20,
            ..Shaping::default()
        };
        let fates =
            |mut link: ShapedLink| -> Vec<Fate> { (0..50).map(|_| link.next(0, 9)).collect() };
        let base = fates(link(shaping.clone()));
        assert_eq!(base, fates(link(shaping.clone())));
        for (seed, fault, from, to) in [(8, 3, "n1", "n2"), (7, 4, "n1", "n2"), (7, 3, "n2", "n1")]
        {
            let other = ShapedLink::new(seed, fault, from, to, shaping.clone());
            assert_ne!(base, fates(other));
        }
        assert!(base.iter().any(|fate| fate.lost));
        assert!(base.iter().any(|fate| fate.overtaken));
        assert!(base.iter().any(|fate| fate.again_after_ns.is_some()));
        let all = Shaping {
            loss_percent: 100,
            ..Shaping::default()
        };
        assert!(fates(link(all)).iter().all(|fate| fate.lost));
    }

    #[test]
    fn bytes_queue_for_bandwidth_and_a_quiet_link_is_free_again() {
        let mut link = link(Shaping {
            bandwidth_bytes_per_second: 1_000,
            ..Shaping::default()
        });
        assert_eq!(link.next(0, 100).delay_ns, 100 * NS_PER_MS);
        assert_eq!(link.next(0, 100).delay_ns, 200 * NS_PER_MS);
        assert_eq!(link.next(50 * NS_PER_MS, 100).delay_ns, 250 * NS_PER_MS);
        assert_eq!(link.next(9 * NS_PER_S, 100).delay_ns, 100 * NS_PER_MS);
    }

    #[test]
    fn a_link_that_stalls_counts_what_passes() {
        let mut stalling = link(Shaping {
            stall_after_bytes: 10,
            ..Shaping::default()
        });
        stalling.passed(7);
        assert_eq!(stalling.left_bytes(), 3);
        stalling.passed(7);
        assert_eq!(stalling.left_bytes(), 0);
        let endless = link(Shaping {
            delay_ms: 1,
            ..Shaping::default()
        });
        assert_eq!(endless.left_bytes(), u64::MAX);
    }
}
