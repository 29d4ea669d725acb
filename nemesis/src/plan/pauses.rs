//! Owns the healthy windows of a plan: the times that no fault may touch.
//! Never moves a fault; it maps the time that is left for faults onto the time of the run.

/// A run's time, cut into blocks whose ends belong to nobody.
///
/// Faults are planned on a clock that stands still in healthy windows. So nothing that was planned falls
/// away, and faults of one family keep their distance.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct HealthyWindows {
    /// Time for faults in each whole block.
    faulty_block_ms: u64,
    healthy_ms: u64,
    window_count: u64,
    /// Time for faults in all blocks.
    faulty_ms: u64,
}

impl HealthyWindows {
    /// Windows of `healthy_ms` at the end of every whole block of `block_ms` within `run_ms`. What is left
    /// at the end is shorter than a block, and the run ends healed anyway. `healthy_ms` is less than
    /// `block_ms`.
    pub(super) fn new(block_ms: u64, healthy_ms: u64, run_ms: u64) -> Self {
        let window_count = run_ms / block_ms;
        Self {
            faulty_block_ms: block_ms - healthy_ms,
            healthy_ms,
            window_count,
            faulty_ms: run_ms - window_count * healthy_ms,
        }
    }

    /// How much time there is for faults.
    pub(super) fn faulty_ms(self) -> u64 {
        self.faulty_ms
    }

    /// The time of the run at which the clock of faults shows `faulty_ms`.
    pub(super) fn at_ms(self, faulty_ms: u64) -> u64 {
        faulty_ms + self.windows_before(faulty_ms) * self.healthy_ms
    }

    /// How long a fault that starts then may last: until the next window, or the end.
    pub(super) fn left_ms(self, faulty_ms: u64) -> u64 {
        let end_ms = self.faulty_ms - faulty_ms;
        if self.healthy_ms == 0 || self.windows_before(faulty_ms) == self.window_count {
            return end_ms;
        }
        let window_ms = self.faulty_block_ms - faulty_ms % self.faulty_block_ms;
        end_ms.min(window_ms)
    }

    fn windows_before(self, faulty_ms: u64) -> u64 {
        (faulty_ms / self.faulty_block_ms).min(self.window_count)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn without_windows_time_is_as_it_is() {
        let windows = HealthyWindows::new(100, 0, 950);
        assert_eq!(windows.faulty_ms(), 950);
        for at_ms in [0, 99, 100, 870] {
            assert_eq!(windows.at_ms(at_ms), at_ms);
            assert_eq!(windows.left_ms(at_ms), 950 - at_ms);
        }
    }

    #[test]
    fn windows_stand_at_the_end_of_every_whole_block() {
        let windows = HealthyWindows::new(100, 30, 250);
        assert_eq!(windows.faulty_ms(), 190);
        assert_eq!((windows.at_ms(69), windows.left_ms(69)), (69, 1));
        assert_eq!((windows.at_ms(70), windows.left_ms(70)), (100, 70));
        assert_eq!((windows.at_ms(150), windows.left_ms(150)), (210, 40));
        let long_rest = HealthyWindows::new(100, 30, 290);
        assert_eq!((long_rest.at_ms(225), long_rest.left_ms(225)), (285, 5));
    }

    #[test]
    fn a_run_shorter_than_a_block_has_none() {
        let windows = HealthyWindows::new(1_000, 400, 900);
        assert_eq!(windows.faulty_ms(), 900);
        assert_eq!((windows.at_ms(590), windows.left_ms(590)), (590, 310));
        assert_eq!((windows.at_ms(890), windows.left_ms(890)), (890, 10));
    }
}
