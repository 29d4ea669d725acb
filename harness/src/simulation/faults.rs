//! Owns how each kind of fault is applied to, and taken back from, a simulated cluster.
//! Never reports a fault as installed that did not take hold.

mod clocks;
mod disks;
mod lives;

use std::collections::{BTreeMap, BTreeSet};

use nemesis::action::{Action, ClockSetting};
use nemesis::fault::{DiskFault, Shaping, Style};
use results::schedule::FaultOutcome;
use serde_json::{Map, Value, json};

use self::lives::{Reviving, Slowed, Stopping};
use super::events::Happening;
use super::simulated_node::Life;
use super::world::SimulatedWorld;
use crate::world::{Event, FaultReport, HealReport};

const MS: u64 = 1_000_000;
/// How long a fault waits for a node that another fault holds.
const HELD_LIMIT_NS: u64 = 5_000 * MS;

/// Faults that are under way.
#[derive(Debug, Default)]
pub(super) struct FaultDesk {
    active: BTreeMap<u64, Active>,
    /// The fault that set the clock of a node last: only its end sets the clock right.
    clock_setters: BTreeMap<usize, u64>,
    /// What waits until nodes are there.
    errands: Vec<Errand>,
    /// By node: why its latest start failed.
    failed_starts: BTreeMap<usize, String>,
    /// Nodes that are down although no fault holds them: they crashed, or did not start.
    owed: BTreeSet<usize>,
    /// By node: what it said last, each time that it ended by itself or did not start.
    last_words: BTreeMap<usize, Vec<String>>,
    /// Nodes of which data was destroyed at rest.
    damaged: BTreeSet<usize>,
}

/// A fault that was applied, with what taking it back needs to know.
#[derive(Debug)]
enum Active {
    /// Links are cut or shaped.
    Links,
    Strobe,
    Kill {
        nodes: Vec<usize>,
        since_ns: u64,
    },
    /// Nodes, with when each was stopped: the moment tells this stop from others.
    Pause {
        nodes: Vec<(usize, u64)>,
    },
    Clocks {
        nodes: Vec<usize>,
    },
    Slow(Slowed),
    /// Nodes that are down, and have lost their disks.
    Wipe {
        nodes: Vec<usize>,
    },
    /// Nodes, with how often each had crashed when its disk began to fail.
    Disk {
        nodes: Vec<(usize, usize)>,
        disk: DiskFault,
    },
}

/// Something that goes on once nodes have started or go on.
#[derive(Debug)]
enum Errand {
    /// Clocks are set once their nodes can be reached.
    SkewClocks {
        id: u64,
        left: Vec<ClockSetting>,
        limit_ns: u64,
        skewed: Vec<usize>,
        problems: Vec<String>,
        effect: Map<String, Value>,
    },
    /// Clocks are set right once their nodes go on.
    TrueClocks {
        id: u64,
        left: Vec<usize>,
        effect: Map<String, Value>,
    },
    /// A fault that takes nodes down is healed once they run again.
    Revive(Reviving),
    /// A fault that asks nodes to end is there once they have.
    Stop(Stopping),
    /// Everything is put in order.
    Restore {
        left: Vec<usize>,
        problems: Vec<String>,
    },
}

impl FaultDesk {
    /// Whether no fault after this one has set the clock of the node.
    pub(super) fn set_clock_last(&self, node: usize, fault: u64) -> bool {
        self.clock_setters.get(&node) == Some(&fault)
    }

    /// A fault has set the clock of the node.
    pub(super) fn note_setter(&mut self, node: usize, fault: u64) {
        self.clock_setters.insert(node, fault);
    }

    /// A node that began to start did not come up.
    pub(super) fn start_failed(&mut self, node: usize, problem: String) {
        self.last_words
            .entry(node)
            .or_default()
            .push(problem.clone());
        self.failed_starts.insert(node, problem);
        self.owed.insert(node);
    }

    /// A node that began to start is up, or will not be.
    pub(super) fn started(&mut self, node: usize) {
        self.failed_starts.remove(&node);
        self.owed.remove(&node);
    }

    /// A node ended by itself.
    pub(super) fn crashed(&mut self, node: usize, words: String) {
        self.owed.insert(node);
        self.last_words.entry(node).or_default().push(words);
    }

    fn last_words_of(&self, node: usize) -> &[String] {
        self.last_words.get(&node).map_or(&[], Vec::as_slice)
    }
}

impl SimulatedWorld {
    /// Applies a fault; its report surfaces now or, if it must wait for a node, later.
    pub(super) fn apply_fault(&mut self, id: u64, action: Action) {
        let (active, report) = match action {
            Action::Cut { links, style } => self.cut(id, &links, style),
            Action::ShapeLinks { links, shaping } => self.shape(id, &links, &shaping),
            Action::StrobeClocks { nodes, strobe } => return self.begin_strobe(id, &nodes, strobe),
            Action::Kill { nodes } => self.kill(&nodes),
            Action::KillClean { nodes } => self.kill_clean(&nodes),
            Action::Restart { nodes } => return self.restart(id, &nodes),
            Action::Pause { nodes } => self.pause(&nodes),
            Action::Slow { nodes, duty } => self.slow(id, &nodes, duty),
            Action::Disk { nodes, disk } => self.fail_disks(id, &nodes, disk),
            Action::SkewClocks { clocks } => {
                let limit_ns = self.now_ns + HELD_LIMIT_NS;
                self.faults.errands.push(Errand::SkewClocks {
                    id,
                    left: clocks,
                    limit_ns,
                    skewed: Vec::new(),
                    problems: Vec::new(),
                    effect: Map::new(),
                });
                self.queue.push(limit_ns, Happening::LookAtFaults);
                return self.look_at_faults();
            }
            Action::ResetClocks { nodes } => (None, self.reset_clocks(id, &nodes)),
            Action::Membership { change } if self.membership.can_change() => {
                return self.change_voters(id, &change);
            }
            Action::Snapshot { nodes } => return self.force_snapshots(id, &nodes),
            Action::Wipe { nodes } if self.membership.can_change() => self.wipe(id, &nodes),
            // Refused before the run; a recording may still ask for it.
            other => {
                let problem = format!(
                    "this {} fault is not possible in the simulation",
                    other.kind()
                );
                (None, report(0, vec![problem], Map::new()))
            }
        };
        if let Some(active) = active {
            self.faults.active.insert(id, active);
        }
        self.surfaced.push_back(Event::FaultStarted { id, report });
    }

    pub(super) fn position(&self, name: &str) -> Result<usize, String> {
        let position = self.names.iter().position(|node| node == name);
        position.ok_or_else(|| format!("there is no node {name}"))
    }

    fn cut(
        &mut self,
        id: u64,
        links: &[(String, String)],
        style: Style,
    ) -> (Option<Active>, FaultReport) {
        self.on_links(links, |world, link| world.cut_link(id, link, style))
    }

    fn shape(
        &mut self,
        id: u64,
        links: &[(String, String)],
        shaping: &Shaping,
    ) -> (Option<Active>, FaultReport) {
        self.on_links(links, |world, link| world.shape_link(id, link, shaping))
    }

    fn on_links(
        &mut self,
        links: &[(String, String)],
        mut hit: impl FnMut(&mut Self, (usize, usize)),
    ) -> (Option<Active>, FaultReport) {
        let mut problems = Vec::new();
        let mut hit_count = 0;
        for (from, to) in links {
            match (self.position(from), self.position(to)) {
                (Ok(from), Ok(to)) => {
                    hit(self, (from, to));
                    hit_count += 1;
                }
                (from, to) => problems.extend(from.err().into_iter().chain(to.err())),
            }
        }
        // What this does shows only once messages want to cross the links: see healing.
        let report = report(hit_count, problems, Map::new());
        ((hit_count > 0).then_some(Active::Links), report)
    }

    fn kill(&mut self, names: &[String]) -> (Option<Active>, FaultReport) {
        let mut killed = Vec::new();
        let mut problems = Vec::new();
        let mut lost_bytes = 0;
        for name in names {
            match self.position(name) {
                Ok(node) if self.nodes[node].is_running() => {
                    lost_bytes += self.power_off(node);
                    killed.push(node);
                }
                Ok(_) => problems.push(format!("{name} does not run")),
                Err(problem) => problems.push(problem),
            }
        }
        let effect = effect(json!({
            "killed_count": killed.len(), "unsynced_bytes": lost_bytes
        }));
        let report = report(killed.len(), problems, effect);
        let since_ns = self.now_ns;
        let active = (!killed.is_empty()).then_some(Active::Kill {
            nodes: killed,
            since_ns,
        });
        self.look_at_faults();
        (active, report)
    }

    fn pause(&mut self, names: &[String]) -> (Option<Active>, FaultReport) {
        let mut stopped = Vec::new();
        let mut problems = Vec::new();
        for name in names {
            match self.position(name) {
                Ok(node) if self.nodes[node].paused_since_ns.is_some() => {
                    problems.push(format!("{name} is stopped already"));
                }
                Ok(node) if self.nodes[node].is_running() => {
                    self.nodes[node].paused_since_ns = Some(self.now_ns);
                    stopped.push((node, self.now_ns));
                }
                Ok(_) => problems.push(format!("{name} does not run")),
                Err(problem) => problems.push(problem),
            }
        }
        let effect = effect(json!({ "stopped_count": stopped.len() }));
        let report = report(stopped.len(), problems, effect);
        let active = (!stopped.is_empty()).then_some(Active::Pause { nodes: stopped });
        (active, report)
    }

    /// Takes a fault back; its report surfaces now or, if it must wait for a node, later.
    pub(super) fn take_back_fault(&mut self, id: u64) {
        match self.faults.active.remove(&id) {
            None if self.take_back_voters(id) => {}
            None => self.healed(id, Vec::new(), Map::new()),
            Some(Active::Links) => {
                let effect = self.heal_links(id);
                self.healed(id, Vec::new(), effect);
            }
            Some(Active::Strobe) => self.end_strobe(id),
            Some(Active::Pause { nodes }) => {
                let mut longest_ns = 0;
                for (node, since_ns) in nodes {
                    if self.nodes[node].paused_since_ns == Some(since_ns) {
                        self.resume(node);
                        longest_ns = longest_ns.max(self.now_ns - since_ns);
                    }
                }
                self.healed(
                    id,
                    Vec::new(),
                    effect(json!({ "stopped_ms": longest_ns / MS })),
                );
                self.look_at_faults();
            }
            Some(Active::Kill {
                mut nodes,
                since_ns,
            }) => {
                // Who has left the cluster meanwhile stays away.
                nodes.retain(|node| self.membership.book.is_member(&self.names[*node]));
                self.start_if_down(&nodes);
                self.faults.errands.push(Errand::Revive(Reviving {
                    id,
                    left: nodes.clone(),
                    nodes,
                    since_ns: Some(since_ns),
                    problems: Vec::new(),
                    effect: Map::new(),
                }));
                self.look_at_faults();
            }
            Some(Active::Wipe { nodes }) => self.return_wiped(id, nodes),
            Some(Active::Slow(slowed)) => self.end_slowness(id, slowed),
            Some(Active::Disk { nodes, disk }) => self.mend_disks(id, &nodes, disk),
            Some(Active::Clocks { nodes }) => {
                let mut effect = Map::new();
                for node in &nodes {
                    // A clock that runs at another rate has drifted only by now.
                    if self.nodes[*node].is_reachable() {
                        let skew_ms = self.skew_ms(*node);
                        let name = format!("{}_skew_at_end_ms", self.names[*node]);
                        effect.insert(name, json!(skew_ms));
                    }
                }
                self.faults.errands.push(Errand::TrueClocks {
                    id,
                    left: nodes,
                    effect,
                });
                self.look_at_faults();
            }
        }
    }

    fn healed(&mut self, id: u64, problems: Vec<String>, effect: Map<String, Value>) {
        let problem = (!problems.is_empty()).then(|| problems.join("; "));
        let report = HealReport { problem, effect };
        self.surfaced.push_back(Event::FaultHealed { id, report });
    }

    fn resume(&mut self, node: usize) {
        self.nodes[node].paused_since_ns = None;
        self.release(node);
    }

    fn start_if_down(&mut self, nodes: &[usize]) {
        for node in nodes {
            if matches!(self.nodes[*node].life, Life::Down) {
                self.faults.failed_starts.remove(node);
                self.begin_start(*node);
            }
        }
    }

    /// A node that is down stays down, even if it went down by itself.
    pub(super) fn owes_nothing(&mut self, node: usize) {
        self.faults.owed.remove(&node);
    }

    /// Makes every node run, unstopped and with a true clock.
    pub(super) fn put_in_order(&mut self) {
        let members = self.membership.book.members().cloned();
        let members: Vec<String> = members.collect();
        let positions = members.iter().filter_map(|name| self.position(name).ok());
        let all: Vec<usize> = positions.collect();
        for node in &mut self.nodes {
            node.disk.remove_faults();
        }
        for node in &all {
            if self.nodes[*node].paused_since_ns.is_some() {
                self.resume(*node);
            }
        }
        self.strobes.clear();
        self.start_if_down(&all);
        self.restore_voters();
        self.faults.errands.push(Errand::Restore {
            left: all,
            problems: Vec::new(),
        });
        self.look_at_faults();
    }

    /// Lets everything go on that has waited for a node, if it can now.
    pub(super) fn look_at_faults(&mut self) {
        let errands = std::mem::take(&mut self.faults.errands);
        for errand in errands {
            if let Some(unfinished) = self.go_on(errand) {
                self.faults.errands.push(unfinished);
            }
        }
    }

    fn go_on(&mut self, errand: Errand) -> Option<Errand> {
        match errand {
            Errand::SkewClocks { .. } => self.skew_clocks(errand),
            Errand::TrueClocks {
                id,
                mut left,
                effect,
            } => {
                left.retain(|node| !self.true_clock(id, *node));
                if left.is_empty() {
                    self.healed(id, Vec::new(), effect);
                    return None;
                }
                Some(Errand::TrueClocks { id, left, effect })
            }
            Errand::Revive(reviving) => self.go_on_reviving(reviving),
            Errand::Stop(stopping) => self.go_on_stopping(stopping),
            Errand::Restore {
                mut left,
                mut problems,
            } => {
                left.retain(|node| !self.has_settled(*node, false, &mut problems));
                if left.is_empty() && self.membership.is_restored() {
                    for node in 0..self.nodes.len() {
                        self.set_clock(node, 0, 1.0);
                    }
                    let damaged = self.left_down();
                    self.surfaced
                        .push_back(Event::Restored { problems, damaged });
                    return None;
                }
                Some(Errand::Restore { left, problems })
            }
        }
    }

    /// Whether a node that was told to start runs, or will not. `holds` says whether a fault may hold it by now
    /// that takes care of it.
    fn has_settled(&mut self, node: usize, holds: bool, problems: &mut Vec<String>) -> bool {
        match self.nodes[node].life {
            Life::Running(_) => true,
            Life::Starting | Life::Ended => false,
            // It does not start with what is on its disk, as it should not; or its disk fails, and
            // whoever lets it do so starts the node later; or it has left the cluster meanwhile.
            Life::Down
                if self.faults.damaged.contains(&node)
                    || self.nodes[node].disk.is_failing()
                    || !self.membership.book.is_member(&self.names[node]) =>
            {
                true
            }
            Life::Down => match self.faults.failed_starts.get(&node) {
                Some(problem) => {
                    problems.push(problem.clone());
                    true
                }
                // It was about to end when it was to be started, because it had been asked to.
                None if holds && !self.faults.owed.contains(&node) => true,
                None => {
                    self.begin_start(node);
                    false
                }
            },
        }
    }
}

fn report(hit_count: usize, problems: Vec<String>, effect: Map<String, Value>) -> FaultReport {
    FaultReport {
        outcome: if hit_count > 0 {
            FaultOutcome::Installed
        } else {
            FaultOutcome::Skipped
        },
        reason: (!problems.is_empty()).then(|| problems.join("; ")),
        effect,
    }
}

fn effect(value: Value) -> Map<String, Value> {
    match value {
        Value::Object(map) => map,
        _ => Map::new(),
    }
}
