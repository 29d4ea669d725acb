//! Owns how each kind of fault is applied to, and taken back from, a cluster of processes.
//! Never reports a fault as installed that it did not verify.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use nemesis::action::{Action, ClockSetting, VoterChange};
use nemesis::fault::{Shaping, Strobe, Style};
use nemesis::membership::Course;
use results::schedule::{FaultOutcome, damaged_nodes};
use serde_json::{Map, Value, json};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::Shared;
use super::cluster::Cluster;
use super::insistence::{Next, Patience};
use super::lives::{Slowed, all_of};
use super::membership::Membership;
use super::strobes::Strobing;
use super::{disks, lives, stops};
use crate::world::{FaultReport, HealReport, no_newer_snapshot};

/// How long to wait for a node that another fault holds.
pub(super) const HELD_LIMIT: Duration = Duration::from_secs(5);
/// How long a snapshot is waited for.
const SNAPSHOT_LIMIT: Duration = Duration::from_secs(1);
/// How often to look whether a stopped node goes on.
pub(super) const HELD_LOOK: Duration = Duration::from_millis(20);

/// Faults that were applied and not taken back yet, with what healing needs to know.
#[derive(Debug, Default)]
pub(super) struct ActiveFaults {
    faults: Mutex<BTreeMap<u64, Active>>,
    /// The fault that set the clock of a node last: only its end sets the clock right.
    clock_setters: Mutex<BTreeMap<String, u64>>,
}

#[derive(Debug)]
pub(super) enum Active {
    /// Links are cut or shaped.
    Links,
    Strobe(Strobing),
    Kill {
        nodes: Vec<String>,
        since: Instant,
    },
    Pause {
        nodes: Vec<(String, Instant)>,
    },
    Clocks {
        nodes: Vec<String>,
    },
    /// Nodes that are down, and have lost their disks.
    Wipe {
        nodes: Vec<String>,
    },
    Slow(Slowed),
    /// Nodes, with how often each had crashed when its disk began to fail.
    Disk {
        nodes: Vec<(String, usize)>,
    },
    Voters {
        change: VoterChange,
    },
}

impl Active {
    /// Nodes that are down from now on, if there are any.
    pub(super) fn killed(nodes: Vec<String>) -> Option<Self> {
        let since = Instant::now();
        (!nodes.is_empty()).then_some(Self::Kill { nodes, since })
    }
}

/// Notes what a fault is about to do to data and voters. To be called before anything else is decided: a fault
/// takes its time to begin, and whoever it hits is not to be hit by two at once beyond the budget.
pub(super) fn announce(membership: &Membership, id: u64, action: &Action) {
    match action {
        Action::Wipe { nodes } => membership.book().begins_to_destroy(id, nodes.clone()),
        Action::Disk { nodes, disk } if disk.what.destroys_data() => {
            membership.book().begins_to_destroy(id, nodes.clone());
        }
        Action::Membership { change } if membership.can_change() => {
            membership.book().begins(id, change.clone());
        }
        _ => {}
    }
}

impl ActiveFaults {
    /// Applies a fault that was [announced](announce).
    pub(super) async fn start(&self, shared: &Arc<Shared>, id: u64, action: Action) -> FaultReport {
        let cluster = &shared.cluster;
        let membership = &shared.membership;
        let (active, report) = match action {
            Action::Cut { links, style } => cut(cluster, id, &links, style).await,
            Action::ShapeLinks { links, shaping } => shape(shared, id, &links, &shaping),
            Action::StrobeClocks { nodes, strobe } => self.strobe(shared, id, nodes, strobe).await,
            Action::Kill { nodes } => kill(cluster, nodes).await,
            Action::KillClean { nodes } => lives::kill_clean(cluster, nodes).await,
            Action::Restart { nodes } => lives::restart(cluster, nodes).await,
            Action::Pause { nodes } => stops::pause(cluster, nodes).await,
            Action::Slow { nodes, duty } => lives::slow(cluster, nodes, duty).await,
            Action::Disk { nodes, disk } => {
                let (active, report) = disks::fail(cluster, id, nodes, disk, shared.seed).await;
                for node in damaged_nodes(&report.effect) {
                    membership.book().is_damaged(node);
                }
                (active, report)
            }
            Action::SkewClocks { clocks } => self.skew(cluster, id, clocks).await,
            Action::ResetClocks { nodes } => (None, self.reset_clocks(cluster, id, nodes).await),
            Action::Membership { change } if membership.can_change() => {
                change_voters(cluster, membership, id, change).await
            }
            Action::Wipe { nodes } if membership.can_change() => {
                disks::wipe(cluster, membership, id, nodes, shared.seed).await
            }
            Action::Snapshot { nodes } => (None, force_snapshots(cluster, nodes).await),
            other => (None, impossible(&other)),
        };
        membership.book().has_destroyed(id);
        if let Some(active) = active {
            self.faults.lock().await.insert(id, active);
        }
        report
    }

    /// Takes a fault back.
    pub(super) async fn heal(
        &self,
        cluster: &Cluster,
        membership: &Arc<Membership>,
        id: u64,
    ) -> HealReport {
        let active = self.faults.lock().await.remove(&id);
        let (problems, effect) = match active {
            None => (Vec::new(), Map::new()),
            Some(Active::Links) => {
                let (effect, problems) = cluster.network.heal_and_verify(id).await;
                (problems, effect)
            }
            Some(Active::Strobe(strobing)) => {
                let (nodes, effect) = strobing.end().await;
                let mut problems = Vec::new();
                for node in &nodes {
                    problems.extend(self.true_clock(cluster, id, node).await.err());
                }
                (problems, effect)
            }
            Some(Active::Kill { nodes, since }) => {
                let mut problems = Vec::new();
                // Who has left the cluster meanwhile stays away.
                let members = membership.members();
                for node in nodes.iter().filter(|node| members.contains(node)) {
                    problems.extend(cluster.revive(node).await.err());
                }
                let down_ms = since.elapsed().as_millis() as u64;
                let mut effect = effect_map(json!({ "down_ms": down_ms }));
                effect.extend(disks::refusals(cluster, &nodes).await);
                (problems, effect)
            }
            Some(Active::Wipe { mut nodes }) => {
                let members = membership.members();
                nodes.retain(|node| members.contains(node));
                let mut problems = Vec::new();
                for node in &nodes {
                    problems.extend(cluster.revive(node).await.err());
                }
                let outcome = membership.go(cluster, Course::of_return(&nodes)).await;
                problems.extend(outcome.reason.clone());
                (problems, outcome.into_heal_effect())
            }
            Some(Active::Slow(slowed)) => lives::end_slowness(slowed).await,
            Some(Active::Disk { nodes }) => disks::mend(cluster, id, nodes).await,
            Some(Active::Pause { nodes }) => stops::end_pause(cluster, &nodes).await,
            Some(Active::Voters { change }) => {
                membership.book().ends(id);
                let outcome = membership.go(cluster, Course::of_heal(&change)).await;
                let problems = outcome.reason.clone().into_iter().collect();
                (problems, outcome.into_heal_effect())
            }
            Some(Active::Clocks { nodes }) => {
                let mut problems = Vec::new();
                let mut effect = Map::new();
                for node in &nodes {
                    // A clock that runs at another rate has drifted only by now.
                    if let Some(skew_ms) = cluster.clock_skew_ms(node).await {
                        effect.insert(format!("{node}_skew_at_end_ms"), json!(skew_ms));
                    }
                    problems.extend(self.true_clock(cluster, id, node).await.err());
                }
                (problems, effect)
            }
        };
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        HealReport { problem, effect }
    }

    async fn skew(
        &self,
        cluster: &Cluster,
        id: u64,
        clocks: Vec<ClockSetting>,
    ) -> (Option<Active>, FaultReport) {
        let mut skewed = Vec::new();
        let mut problems = Vec::new();
        let mut effect = Map::new();
        // At once: nobody's clock is set late because another node is held.
        let all = clocks.iter().map(|clock| self.skew_one(cluster, id, clock));
        for (clock, outcome) in clocks.iter().zip(all_of(all.collect()).await) {
            match outcome {
                Ok(skew_ms) => {
                    effect.insert(format!("{}_skew_ms", clock.node), json!(skew_ms));
                    skewed.push(clock.node.clone());
                }
                Err(problem) => problems.push(problem),
            }
        }
        let report = report(skewed.len(), problems, effect);
        (
            (!skewed.is_empty()).then_some(Active::Clocks { nodes: skewed }),
            report,
        )
    }

    async fn skew_one(
        &self,
        cluster: &Cluster,
        id: u64,
        clock: &ClockSetting,
    ) -> Result<f64, String> {
        let limit = Instant::now() + HELD_LIMIT;
        loop {
            // A node that another fault stopped or killed is skewed once it is back: late, but really. It may be
            // stopped or end once more before it is asked.
            let left = limit.saturating_duration_since(Instant::now());
            cluster.await_reachable(&clock.node, left).await;
            let mut setters = self.clock_setters.lock().await;
            let set = cluster.set_clock(&clock.node, clock.offset_ms, clock.rate);
            match set.await {
                Ok(skew_ms) => {
                    setters.insert(clock.node.clone(), id);
                    return Ok(skew_ms);
                }
                Err(problem) if Instant::now() >= limit => return Err(problem),
                Err(_) => {}
            }
            drop(setters);
            tokio::time::sleep(HELD_LOOK).await;
        }
    }

    async fn strobe(
        &self,
        shared: &Arc<Shared>,
        id: u64,
        nodes: Vec<String>,
        strobe: Strobe,
    ) -> (Option<Active>, FaultReport) {
        let clocks = nodes.into_iter().map(|node| ClockSetting {
            node,
            offset_ms: strobe.delta_ms,
            rate: 1.0,
        });
        let (_, report) = self.skew(&shared.cluster, id, clocks.collect()).await;
        let measured = report.effect.iter().filter_map(|(name, skew_ms)| {
            let node = name.strip_suffix("_skew_ms")?;
            Some((node.to_owned(), skew_ms.as_f64()?))
        });
        let jumped: Vec<(String, f64)> = measured.collect();
        if jumped.is_empty() {
            return (None, report);
        }
        let strobing = Strobing::begin(shared, id, strobe, jumped);
        (Some(Active::Strobe(strobing)), report)
    }

    /// Sets clocks right that are not, or are about to go back and forth. Whoever has set them so far lets
    /// them alone from now on.
    ///
    /// Who is down has no clock: it will start with a true one. Who ended while it was asked may have set its
    /// clock right before, or not.
    async fn reset_clocks(&self, cluster: &Cluster, id: u64, nodes: Vec<String>) -> FaultReport {
        let is_up = |node: &String| cluster.address(node).is_some();
        let (up, down): (Vec<String>, Vec<String>) = nodes.into_iter().partition(is_up);
        let down = down.iter().map(|node| format!("{node} does not run"));
        let mut problems: Vec<String> = down.collect();
        let mut right = Vec::new();
        let mut effect = Map::new();
        let (mut reset_count, mut unanswered_count) = (0, 0);
        let all = up.iter().map(|node| self.reset_one(cluster, id, node));
        for (node, outcome) in up.iter().zip(all_of(all.collect()).await) {
            match outcome {
                Ok(None) => right.push(node.as_str()),
                Ok(Some((before_ms, after_ms))) => {
                    reset_count += 1;
                    effect.insert(format!("{node}_skew_before_ms"), json!(before_ms));
                    effect.insert(format!("{node}_skew_after_ms"), json!(after_ms));
                }
                Err(problem) => {
                    unanswered_count += 1;
                    problems.push(problem);
                }
            }
        }
        if reset_count == 0 && !right.is_empty() {
            problems.push(format!("no clock was wrong of {}", right.join(", ")));
        }
        effect.insert("reset_count".into(), json!(reset_count));
        let mut report = report(reset_count, problems, effect);
        if reset_count == 0 && unanswered_count > 0 {
            report.outcome = FaultOutcome::Indeterminate;
        }
        report
    }

    /// How far the clock of a node was off before it was set right, and after; nothing if it was right. Who is
    /// stopped is waited for.
    async fn reset_one(
        &self,
        cluster: &Cluster,
        id: u64,
        node: &str,
    ) -> Result<Option<(f64, f64)>, String> {
        cluster.await_reachable(node, HELD_LIMIT).await;
        let status = cluster.status(node).await;
        let before = status
            .ok_or_else(|| format!("{node} does not answer"))?
            .clock;
        let is_true = (before.offset_ms, before.rate) == (0, 1.0);
        if is_true && !self.is_strobed(node).await {
            return Ok(None);
        }
        let mut setters = self.clock_setters.lock().await;
        let after_ms = cluster.set_clock(node, 0, 1.0).await?;
        setters.insert(node.to_owned(), id);
        Ok(Some((before.skew_ms, after_ms)))
    }

    /// Whether a fault that lets clocks go back and forth has set this one last.
    async fn is_strobed(&self, node: &str) -> bool {
        let setter = self.clock_setters.lock().await.get(node).copied();
        let faults = self.faults.lock().await;
        let fault = setter.and_then(|setter| faults.get(&setter));
        matches!(fault, Some(Active::Strobe(_)))
    }

    /// Sets a node's clock, unless another fault has set it since this one did; then there is nothing to
    /// tell. Otherwise tells how far it is off afterwards, in milliseconds.
    pub(super) async fn set_clock_if_last(
        &self,
        cluster: &Cluster,
        id: u64,
        node: &str,
        offset_ms: i64,
    ) -> Option<Result<f64, String>> {
        let setters = self.clock_setters.lock().await;
        if setters.get(node) != Some(&id) {
            return None;
        }
        Some(cluster.set_clock(node, offset_ms, 1.0).await)
    }

    /// Ends what would go on by itself, whatever faults were not taken back.
    pub(super) async fn end_strobes(&self) {
        let mut faults = self.faults.lock().await;
        let strobes = faults.iter().filter_map(|(id, active)| match active {
            Active::Strobe(_) => Some(*id),
            _ => None,
        });
        for id in strobes.collect::<Vec<u64>>() {
            if let Some(Active::Strobe(strobing)) = faults.remove(&id) {
                strobing.end().await;
            }
        }
    }

    /// Sets a node's clock right. A node that another fault stopped cannot answer; whatever stopped it
    /// will let it go on, and its clock is set right then. A later fault that set the clock goes on.
    async fn true_clock(&self, cluster: &Cluster, id: u64, node: &str) -> Result<(), String> {
        let mut patience = Patience::new();
        loop {
            let setters = self.clock_setters.lock().await;
            if setters.get(node) != Some(&id) {
                return Ok(());
            }
            let outcome = cluster.set_clock(node, 0, 1.0).await;
            drop(setters);
            match outcome {
                Ok(skew_ms) if skew_ms.abs() <= 50.0 => return Ok(()),
                Ok(skew_ms) => return Err(format!("the clock of {node} is {skew_ms:.0} ms off")),
                // A dead node comes back with a true clock.
                Err(problem) => match cluster.next_try(node, &mut patience, problem).await? {
                    Next::Again => {}
                    Next::HasEnded => return Ok(()),
                },
            }
        }
    }
}

async fn change_voters(
    cluster: &Cluster,
    membership: &Arc<Membership>,
    id: u64,
    change: VoterChange,
) -> (Option<Active>, FaultReport) {
    let course = Course::of_change(&change, membership.now_ms());
    let outcome = membership.go(cluster, course).await;
    let active = if outcome.outcome == FaultOutcome::Skipped {
        membership.book().ends(id);
        None
    } else {
        Some(Active::Voters { change })
    };
    let report = FaultReport {
        outcome: outcome.outcome,
        reason: outcome.reason,
        effect: outcome.effect,
    };
    (active, report)
}

async fn force_snapshots(cluster: &Cluster, nodes: Vec<String>) -> FaultReport {
    let mut problems = Vec::new();
    let mut effect = Map::new();
    let mut taken_count = 0;
    for node in &nodes {
        match cluster.take_snapshot(node, SNAPSHOT_LIMIT).await {
            Ok((before, after)) if after > before => {
                taken_count += 1;
                effect.insert(format!("{node}_snapshot_end"), json!(after));
            }
            Ok(_) => problems.push(no_newer_snapshot(node)),
            Err(problem) => problems.push(problem),
        }
    }
    effect.insert("taken_count".into(), json!(taken_count));
    report(taken_count, problems, effect)
}

/// Refused before the run; a recording may still ask for it.
fn impossible(action: &Action) -> FaultReport {
    let problem = format!(
        "this {} fault is not possible in real processes",
        action.kind()
    );
    report(0, vec![problem], Map::new())
}

async fn cut(
    cluster: &Cluster,
    id: u64,
    links: &[(String, String)],
    style: Style,
) -> (Option<Active>, FaultReport) {
    let refusing_count = match cluster.network.cut_in_style(id, links, style).await {
        Ok(count) => count,
        Err(error) => return (None, report(0, vec![error.to_string()], Map::new())),
    };
    // What a cut does besides shows only once bytes want to cross it: see healing.
    let (mut problems, mut effect) = (Vec::new(), Map::new());
    if style == Style::Refuse {
        effect.insert("links_refusing".into(), json!(refusing_count));
        if refusing_count < links.len() as u64 {
            problems.push("not all links refuse new connections".into());
        }
    }
    (Some(Active::Links), report(1, problems, effect))
}

fn shape(
    shared: &Shared,
    id: u64,
    links: &[(String, String)],
    shaping: &Shaping,
) -> (Option<Active>, FaultReport) {
    match shared
        .cluster
        .network
        .shape(id, links, shaping, shared.seed)
    {
        Ok(()) => (Some(Active::Links), report(1, Vec::new(), Map::new())),
        Err(error) => (None, report(0, vec![error.to_string()], Map::new())),
    }
}

async fn kill(cluster: &Cluster, nodes: Vec<String>) -> (Option<Active>, FaultReport) {
    let mut killed = Vec::new();
    let mut problems = Vec::new();
    for node in nodes {
        match cluster.kill(&node).await {
            Ok(()) => killed.push(node),
            Err(problem) => problems.push(problem),
        }
    }
    let report = report(
        killed.len(),
        problems,
        effect_map(json!({ "killed_count": killed.len() })),
    );
    (Active::killed(killed), report)
}

pub(super) fn report(
    hit_count: usize,
    problems: Vec<String>,
    effect: Map<String, Value>,
) -> FaultReport {
    let outcome = if hit_count > 0 {
        FaultOutcome::Installed
    } else {
        FaultOutcome::Skipped
    };
    let reason = (!problems.is_empty()).then(|| problems.join("; "));
    FaultReport {
        outcome,
        reason,
        effect,
    }
}

pub(super) fn effect_map(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
