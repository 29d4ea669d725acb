//! Owns how each kind of fault is applied to, and taken back from, a simulated cluster.
//! Never reports a fault as installed that did not take hold.

use std::collections::BTreeMap;

use nemesis::action::{Action, ClockSetting};
use nemesis::capability::{Capabilities, Need};
use nemesis::fault::Style;
use results::schedule::FaultOutcome;
use serde_json::{Map, Value, json};

use super::events::Happening;
use super::simulated_node::Life;
use super::world::SimulatedWorld;
use crate::world::{Event, FaultReport, HealReport};

const MS: u64 = 1_000_000;
/// How long a fault waits for a node that another fault holds.
const HELD_LIMIT_NS: u64 = 5_000 * MS;

/// What the simulation can do.
pub fn capabilities() -> Capabilities {
    let can = [
        Need::CutHold,
        Need::Kill,
        Need::Pause,
        Need::SetClocks,
        Need::Membership,
        Need::KnowObservers,
        Need::Snapshot,
    ];
    Capabilities::new("the simulation", can)
}

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
}

/// A fault that was applied, with what taking it back needs to know.
#[derive(Debug)]
enum Active {
    Cut,
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
    /// A kill is healed once its nodes run again.
    Revive {
        id: u64,
        left: Vec<usize>,
        since_ns: u64,
        problems: Vec<String>,
    },
    /// Everything is put in order.
    Restore {
        left: Vec<usize>,
        problems: Vec<String>,
    },
}

impl FaultDesk {
    /// A node that began to start did not come up.
    pub(super) fn start_failed(&mut self, node: usize, problem: String) {
        self.failed_starts.insert(node, problem);
    }
}

impl SimulatedWorld {
    /// Applies a fault; its report surfaces now or, if it must wait for a node, later.
    pub(super) fn apply_fault(&mut self, id: u64, action: Action) {
        let (active, report) = match action {
            Action::Cut {
                links,
                style: Style::Hold,
            } => self.cut(id, &links),
            Action::Kill { nodes } => self.kill(&nodes),
            Action::Pause { nodes } => self.pause(&nodes),
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
            Action::Membership { change } if self.membership.can_change() => {
                return self.change_voters(id, &change);
            }
            Action::Snapshot { nodes } => return self.force_snapshots(id, &nodes),
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

    fn cut(&mut self, id: u64, links: &[(String, String)]) -> (Option<Active>, FaultReport) {
        let mut problems = Vec::new();
        let mut cut_count = 0;
        for (from, to) in links {
            match (self.position(from), self.position(to)) {
                (Ok(from), Ok(to)) => {
                    self.network.cut(id, from, to);
                    cut_count += 1;
                }
                (from, to) => problems.extend(from.err().into_iter().chain(to.err())),
            }
        }
        // What a cut does shows only once messages want to cross it: see healing.
        let report = report(cut_count, problems, Map::new());
        ((cut_count > 0).then_some(Active::Cut), report)
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
            Some(Active::Cut) => {
                let (held, released) = self.network.heal(id);
                for (from, to, parcel) in released {
                    // What was held is there already; it is taken in one by one, in order.
                    let arrive = Happening::Arrive { from, to, parcel };
                    self.queue.push(self.now_ns, arrive);
                }
                self.healed(id, Vec::new(), held.to_effect());
            }
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
                self.faults.errands.push(Errand::Revive {
                    id,
                    left: nodes,
                    since_ns,
                    problems: Vec::new(),
                });
                self.look_at_faults();
            }
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

    fn skew_ms(&self, node: usize) -> f64 {
        self.nodes[node].clock.skew_ns(self.now_ns) as f64 / 1e6
    }

    fn set_clock(&mut self, node: usize, offset_ms: i64, rate: f64) {
        let now_ns = self.now_ns;
        self.nodes[node].clock.set(now_ns, offset_ms, rate);
        // A jump makes timers due at once, or later than was planned.
        self.plan_wake(node);
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

    /// Makes every node run, unstopped and with a true clock.
    pub(super) fn put_in_order(&mut self) {
        let members = self.membership.book.members().cloned();
        let members: Vec<String> = members.collect();
        let positions = members.iter().filter_map(|name| self.position(name).ok());
        let all: Vec<usize> = positions.collect();
        for node in &all {
            if self.nodes[*node].paused_since_ns.is_some() {
                self.resume(*node);
            }
        }
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
            Errand::Revive {
                id,
                mut left,
                since_ns,
                mut problems,
            } => {
                left.retain(|node| !self.has_settled(*node, &mut problems));
                if left.is_empty() {
                    let down_ms = (self.now_ns - since_ns) / MS;
                    self.healed(id, problems, effect(json!({ "down_ms": down_ms })));
                    return None;
                }
                Some(Errand::Revive {
                    id,
                    left,
                    since_ns,
                    problems,
                })
            }
            Errand::Restore {
                mut left,
                mut problems,
            } => {
                left.retain(|node| !self.has_settled(*node, &mut problems));
                if left.is_empty() && self.membership.is_restored() {
                    for node in 0..self.nodes.len() {
                        self.set_clock(node, 0, 1.0);
                    }
                    self.surfaced.push_back(Event::Restored { problems });
                    return None;
                }
                Some(Errand::Restore { left, problems })
            }
        }
    }

    fn skew_clocks(&mut self, errand: Errand) -> Option<Errand> {
        let Errand::SkewClocks {
            id,
            mut left,
            limit_ns,
            mut skewed,
            mut problems,
            mut effect,
        } = errand
        else {
            return None;
        };
        // A node that another fault stopped or killed is skewed once it is back: late, but really.
        left.retain(|setting| match self.position(&setting.node) {
            Ok(node) if self.nodes[node].is_reachable() => {
                self.set_clock(node, setting.offset_ms, setting.rate);
                let skew_ms = self.skew_ms(node);
                effect.insert(format!("{}_skew_ms", setting.node), json!(skew_ms));
                self.faults.clock_setters.insert(node, id);
                skewed.push(node);
                false
            }
            Ok(_) if self.now_ns < limit_ns => true,
            Ok(_) => {
                problems.push(format!("{} cannot be reached", setting.node));
                false
            }
            Err(problem) => {
                problems.push(problem);
                false
            }
        });
        if !left.is_empty() {
            return Some(Errand::SkewClocks {
                id,
                left,
                limit_ns,
                skewed,
                problems,
                effect,
            });
        }
        let report = report(skewed.len(), problems, effect);
        if !skewed.is_empty() {
            self.faults
                .active
                .insert(id, Active::Clocks { nodes: skewed });
        }
        self.surfaced.push_back(Event::FaultStarted { id, report });
        None
    }

    /// Sets the clock of a node right, unless a later fault has set it; `false` if it must wait. A node
    /// that is down comes back with a true clock.
    fn true_clock(&mut self, id: u64, node: usize) -> bool {
        if self.faults.clock_setters.get(&node) != Some(&id) || !self.nodes[node].is_running() {
            return true;
        }
        if self.nodes[node].paused_since_ns.is_some() {
            return false;
        }
        self.set_clock(node, 0, 1.0);
        true
    }

    /// Whether a node that was told to start runs, or will not.
    fn has_settled(&mut self, node: usize, problems: &mut Vec<String>) -> bool {
        match self.nodes[node].life {
            Life::Running(_) => true,
            Life::Starting => false,
            Life::Down => {
                let problem = self.faults.failed_starts.get(&node).cloned();
                let name = &self.names[node];
                problems.push(problem.unwrap_or_else(|| format!("{name} does not run")));
                true
            }
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
