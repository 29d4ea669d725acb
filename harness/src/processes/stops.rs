//! Owns nodes that are stopped by signals: the stop, its end, and how long it lasted.
//! Never takes a node that has ended for one that is still stopped.

use std::time::Duration;

use nemesis::processes::{self as signals, Confirmation, ProcessError};
use results::schedule::FaultOutcome;
use serde_json::{Map, Value, json};
use tokio::sync::MutexGuard;
use tokio::time::Instant;

use super::cluster::{Cluster, DEATH_LIMIT, ENDED_BY_A_FAULT, Slot};
use super::faults::{Active, effect_map, report};
use crate::world::FaultReport;

/// How long it is waited for that a node goes on: longer than one that is slowed usually stands still each time.
const GOING_LIMIT: Duration = Duration::from_millis(500);
/// How often to look whether it does: one that is slowed may run for some milliseconds only each time.
const GOING_LOOK: Duration = Duration::from_millis(1);

/// A stop that is over.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct Stop {
    /// How long it lasted.
    pub(super) lasted: Duration,
    /// How the node ended, if that ended the stop, or if the node ended in the moment it went on; for people.
    pub(super) ended_by: Option<String>,
}

impl Slot {
    /// Notes that the node is not stopped any more, because of something else than whoever had stopped it.
    pub(super) fn break_stop(&mut self, why: &str) {
        if let Some(since) = self.stopped_since.take() {
            let stop = Stop {
                lasted: since.elapsed(),
                ended_by: Some(why.to_owned()),
            };
            self.broken_stops.insert(since, stop);
        }
    }
}

impl Cluster {
    /// Stops a node with SIGSTOP and waits until the kernel says that it is stopped. The moment tells
    /// this stop from others.
    ///
    /// # Errors
    /// For people: it does not run, is stopped already, or did not stop.
    pub(super) async fn pause(&self, node: &str) -> Result<(Confirmation, Instant), String> {
        let slot = self.slot(node)?.lock().await;
        Self::pause_in(node, slot).await
    }

    async fn pause_in(
        node: &str,
        mut slot: MutexGuard<'_, Slot>,
    ) -> Result<(Confirmation, Instant), String> {
        if slot.stopped_since.is_some() {
            return Err(format!("{node} is stopped already"));
        }
        let Some(process) = slot.process.as_ref() else {
            return Err(format!("{node} does not run"));
        };
        let stopped = signals::stop(process.pid()).await;
        if matches!(stopped, Err(ProcessError::Dead { .. })) {
            return Err(format!("{node} ended before it was stopped"));
        }
        // Even if it is not seen stopped, it was told to stop, so it must be resumed later.
        let since = Instant::now();
        slot.stopped_since = Some(since);
        stopped
            .map(|confirmation| (confirmation, since))
            .map_err(|error| format!("cannot stop {node}: {error}"))
    }

    /// Works on a node that is not stopped. One that is slowed goes on soon; one that does not is worked on as it
    /// is. While this is held, nobody stops it.
    ///
    /// # Errors
    /// For people: there is no such node.
    pub(super) async fn slot_of_one_that_goes(
        &self,
        node: &str,
    ) -> Result<MutexGuard<'_, Slot>, String> {
        let limit = Instant::now() + GOING_LIMIT;
        loop {
            let slot = self.slot(node)?.lock().await;
            if slot.stopped_since.is_none() || Instant::now() >= limit {
                return Ok(slot);
            }
            drop(slot);
            tokio::time::sleep(GOING_LOOK).await;
        }
    }

    /// Lets a stopped node go on, whoever stopped it, or only if it was stopped at `only`; returns how that
    /// stop went. A node that has ended in between needs nothing: it is not stopped. One that goes on may
    /// end at once, as all that it missed comes at the same time.
    ///
    /// # Errors
    /// For people: it did not go on.
    pub(super) async fn resume(&self, node: &str, only: Option<Instant>) -> Result<Stop, String> {
        let mut slot = self.slot(node)?.lock().await;
        if let Some(stop) = only.and_then(|only| slot.broken_stops.remove(&only)) {
            return Ok(stop);
        }
        let stopped = slot.stopped_since;
        let Some(since) = stopped.filter(|since| only.is_none_or(|only| only == *since)) else {
            return Ok(Stop::default());
        };
        let Some(process) = slot.process.as_mut() else {
            return Ok(Stop::default());
        };
        let resumed = signals::resume(process.pid()).await;
        let lasted = since.elapsed();
        let ended_by = match resumed {
            Ok(_) => None,
            Err(ProcessError::Dead { .. }) => {
                let status = process.wait_ended(DEATH_LIMIT).await;
                let status = status.ok_or_else(|| format!("{node} is dead but still there"))?;
                slot.stopped_since = None;
                if slot.is_ending {
                    // Whoever asked it to end sees to the rest.
                    Some(ENDED_BY_A_FAULT.to_owned())
                } else {
                    slot.note_crash(status);
                    self.set_address(node, None);
                    slot.last_words.last().cloned()
                }
            }
            Err(error) => return Err(format!("cannot resume {node}: {error}")),
        };
        slot.stopped_since = None;
        Ok(Stop { lasted, ended_by })
    }
}

/// Stops nodes until the fault is healed.
pub(super) async fn pause(cluster: &Cluster, nodes: Vec<String>) -> (Option<Active>, FaultReport) {
    let mut stopped = Vec::new();
    let mut verified_count = 0;
    let mut problems = Vec::new();
    for node in nodes {
        let paused = match cluster.slot_of_one_that_goes(&node).await {
            Ok(slot) => Cluster::pause_in(&node, slot).await,
            Err(problem) => Err(problem),
        };
        match paused {
            Ok((confirmation, since)) => {
                verified_count += usize::from(confirmation == Confirmation::Verified);
                stopped.push((node, since));
            }
            Err(problem) => problems.push(problem),
        }
    }
    let effect = effect_map(json!({ "stopped_count": verified_count }));
    let mut report = report(verified_count, problems, effect);
    if verified_count == 0 && !stopped.is_empty() {
        report.outcome = FaultOutcome::Indeterminate;
        report.reason = Some("this system does not say whether a process is stopped".into());
    }
    (
        (!stopped.is_empty()).then_some(Active::Pause { nodes: stopped }),
        report,
    )
}

/// Lets nodes go on that were stopped at these moments; what is still wrong, and what was measured.
pub(super) async fn end_pause(
    cluster: &Cluster,
    nodes: &[(String, Instant)],
) -> (Vec<String>, Map<String, Value>) {
    let mut problems = Vec::new();
    let mut longest = Duration::ZERO;
    let mut ended = Map::new();
    for (node, since) in nodes {
        match cluster.resume(node, Some(*since)).await {
            Ok(stop) => {
                longest = longest.max(stop.lasted);
                if let Some(how) = stop.ended_by {
                    ended.insert(format!("{node}_ended"), json!(how));
                }
            }
            Err(problem) => problems.push(problem),
        }
    }
    let mut effect = effect_map(json!({ "stopped_ms": longest.as_millis() as u64 }));
    effect.extend(ended);
    (problems, effect)
}
