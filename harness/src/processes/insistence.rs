//! Owns how long nodes are asked again that did not answer: until they do, or have ended, but not for ever.
//! Never asks anything itself.

use std::time::Duration;

use tokio::time::Instant;

use super::cluster::Cluster;
use super::faults::HELD_LOOK;

/// How long a node may take to answer that runs and is not stopped, or has just been started. A slow disk lets a
/// node answer only after many syncs, each of which another fault may have made longer.
pub(super) const ANSWER_LIMIT: Duration = Duration::from_secs(20);
/// How often it is asked at least: time in which the whole machine stood still is no time that it had.
const ATTEMPTS_MIN: u32 = 5;

/// What is left of the time that a node has to answer.
#[derive(Debug)]
pub(super) struct Patience {
    limit: Instant,
    attempt_count: u32,
}

/// What to do about a node that did not answer.
#[derive(Debug, PartialEq, Eq)]
pub(super) enum Next {
    /// It runs, or will go on: ask again.
    Again,
    /// It has ended, and with it whatever was wrong with its process.
    HasEnded,
}

impl Patience {
    /// All of it.
    pub(super) fn new() -> Self {
        Self {
            limit: Instant::now() + ANSWER_LIMIT,
            attempt_count: 0,
        }
    }

    /// Notes that it was asked once more, in vain.
    pub(super) fn note_attempt(&mut self) {
        self.attempt_count += 1;
    }

    /// Whether none is left.
    pub(super) fn is_over(&self) -> bool {
        self.attempt_count >= ATTEMPTS_MIN && Instant::now() >= self.limit
    }
}

impl Cluster {
    /// Waits a little after a node did not answer, and tells whether to ask again. A stopped node has all the
    /// time it needs: whoever stopped it will let it go on. One that hung up is about to end, which is
    /// noticed some time later.
    ///
    /// # Errors
    /// With `problem`, when there is no patience left.
    pub(super) async fn next_try(
        &self,
        node: &str,
        patience: &mut Patience,
        problem: String,
    ) -> Result<Next, String> {
        patience.note_attempt();
        let mut slot = self.slot(node)?.lock().await;
        if slot.notice_end() {
            self.set_address(node, None);
        }
        if slot.process.is_none() {
            return Ok(Next::HasEnded);
        }
        if slot.stopped_since.is_some() {
            *patience = Patience::new();
        } else if patience.is_over() {
            return Err(problem);
        }
        drop(slot);
        tokio::time::sleep(HELD_LOOK).await;
        Ok(Next::Again)
    }
}
