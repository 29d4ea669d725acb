//! Owns the faults that end processes in a gentler way than by a power cut, or slow them.
//! Never leaves a process stopped that it has stopped.

use std::sync::Arc;
use std::time::Duration;

use nemesis::fault::DutyCycle;
use nemesis::processes as signals;
use serde_json::{Map, Value, json};
use tokio::sync::watch;
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::cluster::{Cluster, ENDED_BY_A_FAULT};
use super::faults::{Active, HELD_LIMIT, HELD_LOOK, effect_map, report};
use crate::world::FaultReport;

/// How long a node may take to end that was told to die and has hung up.
const HANG_UP_LIMIT: Duration = Duration::from_secs(5);
/// What a node says last whose disk or processor hung when it was to stop, so that it gave up.
const GAVE_UP: &str = "did not stop in an orderly way";

/// How a node ended that was asked to.
#[derive(Debug)]
enum Ending {
    InOrder,
    /// It ended, but not as it should have, for people.
    Otherwise(String),
    /// It had to be killed, for people.
    Killed(String),
}

impl Cluster {
    /// Lets a node end as by SIGKILL, with everything that it wrote left behind.
    ///
    /// # Errors
    /// For people: it does not run, or cannot do so. In the latter case it was killed all the same.
    async fn kill_clean(&self, node: &str) -> Result<(), (bool, String)> {
        let slot = self.slot_of_one_that_goes(node).await;
        let mut slot = slot.map_err(|error| (false, error))?;
        if slot.stopped_since.is_some() {
            let problem = format!("{node} is stopped, so it cannot leave behind what it wrote");
            return Err((false, problem));
        }
        if slot.notice_end() {
            self.set_address(node, None);
        }
        let Some(process) = slot.process.as_mut() else {
            return Err((false, format!("{node} does not run")));
        };
        let mut died = process.control.die().await.map_err(|it| it.to_string());
        if died.is_ok() && process.wait_ended(HANG_UP_LIMIT).await.is_none() {
            died = Err("it hung up and stayed".into());
        }
        let Err(error) = died else {
            self.set_address(node, None);
            slot.note_down(ENDED_BY_A_FAULT);
            return Ok(());
        };
        // It must not die later, when nobody expects it to.
        let problem = format!("{node} was killed as by a power cut instead: {error}");
        match self.kill_in(node, &mut slot).await {
            Ok(()) => Err((true, problem)),
            Err(error) => Err((false, format!("{error}; {problem}"))),
        }
    }

    /// Asks a node to end with SIGTERM, and waits until it has. One that does not is killed, as a
    /// supervisor does.
    ///
    /// # Errors
    /// For people: it does not run, or does not end whatever is done.
    async fn stop_in_order(&self, node: &str) -> Result<Ending, String> {
        {
            let mut slot = self.slot(node)?.lock().await;
            let Some(process) = slot.process.as_ref() else {
                return Err(format!("{node} does not run"));
            };
            let asked = signals::terminate(process.pid());
            asked.map_err(|error| format!("cannot ask {node} to end: {error}"))?;
            slot.is_ending = true;
        }
        let limit = Instant::now() + HELD_LIMIT;
        // Not locked all the time: a node that another fault has stopped must go on to end.
        while Instant::now() < limit {
            let mut slot = self.slot(node)?.lock().await;
            let Some(process) = slot.process.as_mut() else {
                return Ok(Ending::Otherwise(format!(
                    "{node} was ended by another fault"
                )));
            };
            if let Some(status) = process.ended() {
                self.set_address(node, None);
                if status.success() {
                    slot.note_down(ENDED_BY_A_FAULT);
                    return Ok(Ending::InOrder);
                }
                let epitaph = slot.settings.epitaph(status);
                let problem = format!("{node} ended otherwise: {epitaph}");
                if epitaph.contains(GAVE_UP) {
                    slot.note_down(ENDED_BY_A_FAULT);
                } else {
                    slot.note_crash(status);
                }
                return Ok(Ending::Otherwise(problem));
            }
            drop(slot);
            tokio::time::sleep(HELD_LOOK / 4).await;
        }
        self.kill(node).await?;
        Ok(Ending::Killed(format!(
            "{node} did not end within {} ms and was killed",
            HELD_LIMIT.as_millis()
        )))
    }
}

pub(super) async fn kill_clean(
    cluster: &Cluster,
    nodes: Vec<String>,
) -> (Option<Active>, FaultReport) {
    let mut killed = Vec::new();
    let mut problems = Vec::new();
    for node in nodes {
        match cluster.kill_clean(&node).await {
            Ok(()) => killed.push(node),
            Err((is_killed, problem)) => {
                problems.push(problem);
                if is_killed {
                    killed.push(node);
                }
            }
        }
    }
    let effect = effect_map(json!({ "killed_count": killed.len() }));
    let report = report(killed.len(), problems, effect);
    (Active::killed(killed), report)
}

pub(super) async fn restart(
    cluster: &Cluster,
    nodes: Vec<String>,
) -> (Option<Active>, FaultReport) {
    let begun = Instant::now();
    let mut stops = Vec::new();
    for node in nodes {
        stops.push(async move {
            let ending = cluster.stop_in_order(&node).await;
            (node, ending)
        });
    }
    let mut asked = Vec::new();
    let mut problems = Vec::new();
    let (mut in_order_count, mut killed_count) = (0, 0);
    for (node, ending) in all_of(stops).await {
        match ending {
            Ok(Ending::InOrder) => in_order_count += 1,
            Ok(Ending::Otherwise(problem)) => problems.push(problem),
            Ok(Ending::Killed(problem)) => {
                killed_count += 1;
                problems.push(problem);
            }
            Err(problem) => {
                problems.push(problem);
                continue;
            }
        }
        asked.push(node);
    }
    let effect = effect_map(json!({
        "stopped_in_order_count": in_order_count,
        "killed_count": killed_count,
        "stop_ms": begun.elapsed().as_millis() as u64,
    }));
    let report = report(asked.len(), problems, effect);
    (Active::killed(asked), report)
}

/// Runs all of these at once.
pub(super) async fn all_of<F: Future>(futures: Vec<F>) -> Vec<F::Output> {
    let mut waiting: Vec<_> = futures.into_iter().map(Box::pin).collect();
    let mut done: Vec<Option<F::Output>> = waiting.iter().map(|_| None).collect();
    std::future::poll_fn(|context| {
        for (future, output) in waiting.iter_mut().zip(&mut done) {
            if output.is_none()
                && let std::task::Poll::Ready(ready) = future.as_mut().poll(context)
            {
                *output = Some(ready);
            }
        }
        if done.iter().all(Option::is_some) {
            std::task::Poll::Ready(())
        } else {
            std::task::Poll::Pending
        }
    })
    .await;
    done.into_iter().flatten().collect()
}

/// Nodes that are stopped and go on, over and over, each by a task of its own.
#[derive(Debug)]
pub(super) struct Slowed {
    end: watch::Sender<bool>,
    tasks: Vec<JoinHandle<Slowness>>,
}

/// What was done to one of them.
#[derive(Debug, Default)]
struct Slowness {
    stop_count: u64,
    stopped: Duration,
    /// Why it does not go on, for people.
    problem: Option<String>,
}

pub(super) async fn slow(
    cluster: &Arc<Cluster>,
    nodes: Vec<String>,
    duty: DutyCycle,
) -> (Option<Active>, FaultReport) {
    let (end, ends) = watch::channel(false);
    let mut tasks = Vec::new();
    let mut problems = Vec::new();
    for node in nodes {
        if cluster.address(&node).is_none() {
            problems.push(format!("{node} does not run"));
            continue;
        }
        let (cluster, ends) = (Arc::clone(cluster), ends.clone());
        tasks.push(tokio::spawn(slow_down(cluster, node, duty, ends)));
    }
    let effect = effect_map(json!({ "slowed_count": tasks.len() }));
    let report = report(tasks.len(), problems, effect);
    let active = (!tasks.is_empty()).then_some(Active::Slow(Slowed { end, tasks }));
    (active, report)
}

async fn slow_down(
    cluster: Arc<Cluster>,
    node: String,
    duty: DutyCycle,
    mut ends: watch::Receiver<bool>,
) -> Slowness {
    let mut slowness = Slowness::default();
    loop {
        // Fails while another fault has stopped or killed it; that one answers for it.
        let stop = cluster.pause(&node).await;
        let ended = has_ended_within(&mut ends, duty.off_ms).await;
        if let Ok((_, since)) = stop {
            slowness.stop_count += 1;
            match cluster.resume(&node, Some(since)).await {
                Ok(stop) => slowness.stopped += stop.lasted,
                Err(problem) => slowness.problem = Some(problem),
            }
        }
        if slowness.problem.is_some() || ended || has_ended_within(&mut ends, duty.on_ms).await {
            return slowness;
        }
    }
}

async fn has_ended_within(ends: &mut watch::Receiver<bool>, duration_ms: u64) -> bool {
    let ended = ends.wait_for(|ended| *ended);
    tokio::time::timeout(Duration::from_millis(duration_ms), ended)
        .await
        .is_ok()
}

/// Returns what was measured, and what is still wrong.
pub(super) async fn end_slowness(slowed: Slowed) -> (Vec<String>, Map<String, Value>) {
    // Fails only when all tasks have ended.
    let _ = slowed.end.send(true);
    let mut problems = Vec::new();
    let (mut stop_count, mut stopped) = (0, Duration::ZERO);
    for task in slowed.tasks {
        match task.await {
            Ok(slowness) => {
                stop_count += slowness.stop_count;
                stopped += slowness.stopped;
                problems.extend(slowness.problem);
            }
            Err(error) => problems.push(format!("a slowed node may be stopped: {error}")),
        }
    }
    let effect = json!({ "stop_count": stop_count, "stopped_ms": stopped.as_millis() as u64 });
    (problems, effect_map(effect))
}
