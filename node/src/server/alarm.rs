//! Owns when a loop is woken by time alone.
//! Never sets a timer again that rings early enough.
//!
//! Tokio wakes its own thread, by a system call and another look at all sockets, whenever a timer is set
//! that is earlier than all others. A loop that sets a new one each time it waits pays that for most of
//! what it does. So the timer of the time before stays: it may ring when nothing is due any more, which
//! costs less.

use std::pin::Pin;

use tokio::time::{Instant, Sleep, sleep_until};

/// Rings in time.
#[derive(Debug, Default)]
pub(super) struct Alarm(Option<Pin<Box<Sleep>>>);

impl Alarm {
    /// Waits until `due`, or less. Nothing is lost when this is dropped before.
    pub(super) async fn ring_by(&mut self, due: Instant) {
        let sleep = self.0.get_or_insert_with(|| Box::pin(sleep_until(due)));
        if sleep.is_elapsed() || due < sleep.deadline() {
            sleep.as_mut().reset(due);
        }
        sleep.as_mut().await;
    }
}

#[cfg(test)]
mod tests {
    use std::time::Duration;

    use super::*;

    const DAY: Duration = Duration::from_secs(86_400);
    const PATIENCE: Duration = Duration::from_secs(20);

    async fn rings_within(limit: Duration, ringing: impl Future<Output = ()>) -> bool {
        tokio::time::timeout(limit, ringing).await.is_ok()
    }

    #[tokio::test]
    async fn it_rings_by_the_earliest_time_that_was_asked_for_and_then_by_the_next() {
        let mut alarm = Alarm::default();
        let (now, soon, at_once) = (Instant::now(), Duration::from_millis(5), Duration::ZERO);
        assert!(!rings_within(at_once, alarm.ring_by(now + DAY)).await);
        // On a slow machine that time is over at once.
        let rang = rings_within(at_once, alarm.ring_by(now + soon)).await;
        assert!(rang || rings_within(PATIENCE, alarm.ring_by(now + DAY)).await);
        assert!(now.elapsed() >= soon);
        let now = Instant::now();
        assert!(!rings_within(at_once, alarm.ring_by(now + DAY)).await);
        assert!(rings_within(PATIENCE, alarm.ring_by(now + soon)).await);
        assert!(now.elapsed() >= soon);
    }
}
