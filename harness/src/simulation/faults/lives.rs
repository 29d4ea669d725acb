//! Owns the faults that end, stop or slow the processes of a simulated cluster.
//! Never decides when; and what becomes of data is the disk's business.

use nemesis::fault::DutyCycle;
use node::node_loop::Arrival;
use serde_json::{Map, json};

use super::{Active, Errand, HELD_LIMIT_NS, MS, effect, report};
use crate::simulation::events::Happening;
use crate::simulation::simulated_node::Life;
use crate::simulation::world::SimulatedWorld;
use crate::world::{Event, FaultReport};

/// How long a node takes for an orderly end at most, as a node process does.
const STOP_LIMIT_NS: u64 = 1_000 * MS;

/// Nodes that are stopped and go on, over and over.
#[derive(Debug)]
pub(in crate::simulation) struct Slowed {
    duty: DutyCycle,
    /// Nodes, with since when this fault has each stopped.
    nodes: Vec<(usize, Option<u64>)>,
    is_off: bool,
    stop_count: u64,
    stopped_ns: u64,
}

impl SimulatedWorld {
    /// The running ones among these nodes, and what is to be said of the others.
    pub(super) fn running(&self, names: &[String]) -> (Vec<usize>, Vec<String>) {
        let mut running = Vec::new();
        let mut problems = Vec::new();
        for name in names {
            match self.position(name) {
                Ok(node) if self.nodes[node].is_running() => running.push(node),
                Ok(_) => problems.push(format!("{name} does not run")),
                Err(problem) => problems.push(problem),
            }
        }
        (running, problems)
    }

    pub(super) fn kill_clean(&mut self, names: &[String]) -> (Option<Active>, FaultReport) {
        let (nodes, problems) = self.running(names);
        for node in &nodes {
            self.end_process(*node);
        }
        let effect = effect(json!({ "killed_count": nodes.len() }));
        let report = report(nodes.len(), problems, effect);
        let since_ns = self.now_ns;
        let active = (!nodes.is_empty()).then_some(Active::Kill { nodes, since_ns });
        self.look_at_faults();
        (active, report)
    }

    /// Asks nodes to end; the report surfaces once they have.
    pub(super) fn restart(&mut self, id: u64, names: &[String]) {
        let (nodes, problems) = self.running(names);
        for node in &nodes {
            self.nodes[*node].ask_to_stop(self.now_ns, STOP_LIMIT_NS);
            self.deliver(*node, Arrival::Shutdown);
        }
        let limit_ns = self.now_ns + HELD_LIMIT_NS;
        self.faults.errands.push(Errand::Stop(Stopping {
            id,
            left: nodes.clone(),
            asked: nodes,
            since_ns: self.now_ns,
            limit_ns,
            in_order_count: 0,
            killed_count: 0,
            problems,
        }));
        self.queue.push(limit_ns, Happening::LookAtFaults);
        self.look_at_faults();
    }

    /// Waits for nodes that were asked to end. Whoever does not is killed, as a supervisor does.
    pub(super) fn go_on_stopping(&mut self, mut stopping: Stopping) -> Option<Errand> {
        for node in std::mem::take(&mut stopping.left) {
            let name = &self.names[node];
            if matches!(self.nodes[node].life, Life::Down) {
                if self.faults.owed.contains(&node) {
                    let problem = format!("{name} crashed instead of ending in good order");
                    stopping.problems.push(problem);
                } else {
                    stopping.in_order_count += 1;
                }
            } else if self.now_ns >= stopping.limit_ns {
                let limit_ms = HELD_LIMIT_NS / MS;
                let problem = format!("{name} did not end within {limit_ms} ms and was killed");
                stopping.problems.push(problem);
                stopping.killed_count += 1;
                self.power_off(node);
            } else {
                stopping.left.push(node);
            }
        }
        if !stopping.left.is_empty() {
            return Some(Errand::Stop(stopping));
        }
        let effect = effect(json!({
            "stopped_in_order_count": stopping.in_order_count,
            "killed_count": stopping.killed_count,
            "stop_ms": (self.now_ns - stopping.since_ns).div_ceil(MS),
        }));
        let id = stopping.id;
        let report = report(stopping.asked.len(), stopping.problems, effect);
        if !stopping.asked.is_empty() {
            let since_ns = self.now_ns;
            let nodes = stopping.asked;
            let active = Active::Kill { nodes, since_ns };
            self.faults.active.insert(id, active);
        }
        self.surfaced.push_back(Event::FaultStarted { id, report });
        None
    }

    pub(super) fn slow(
        &mut self,
        id: u64,
        names: &[String],
        duty: DutyCycle,
    ) -> (Option<Active>, FaultReport) {
        let (nodes, problems) = self.running(names);
        let effect = effect(json!({ "slowed_count": nodes.len() }));
        let report = report(nodes.len(), problems, effect);
        if nodes.is_empty() {
            return (None, report);
        }
        self.queue.push(self.now_ns, Happening::Duty { fault: id });
        let slowed = Slowed {
            duty,
            nodes: nodes.into_iter().map(|node| (node, None)).collect(),
            is_off: false,
            stop_count: 0,
            stopped_ns: 0,
        };
        (Some(Active::Slow(slowed)), report)
    }

    /// The other half of a duty cycle begins.
    pub(in crate::simulation) fn turn_duty(&mut self, id: u64) {
        let Some(Active::Slow(mut slowed)) = self.faults.active.remove(&id) else {
            return;
        };
        let lasts_ms = if slowed.is_off {
            self.let_go_on(&mut slowed);
            slowed.duty.on_ms
        } else {
            for (node, since_ns) in &mut slowed.nodes {
                // Others may have stopped or killed it; they answer for that.
                if self.nodes[*node].is_reachable() {
                    self.nodes[*node].paused_since_ns = Some(self.now_ns);
                    *since_ns = Some(self.now_ns);
                    slowed.stop_count += 1;
                }
            }
            slowed.duty.off_ms
        };
        slowed.is_off = !slowed.is_off;
        self.faults.active.insert(id, Active::Slow(slowed));
        let next_ns = self.now_ns + lasts_ms * MS;
        self.queue.push(next_ns, Happening::Duty { fault: id });
        self.look_at_faults();
    }

    fn let_go_on(&mut self, slowed: &mut Slowed) {
        for (node, since_ns) in &mut slowed.nodes {
            let Some(since_ns) = since_ns.take() else {
                continue;
            };
            if self.nodes[*node].paused_since_ns == Some(since_ns) {
                self.resume(*node);
                slowed.stopped_ns += self.now_ns - since_ns;
            }
        }
    }

    pub(super) fn end_slowness(&mut self, id: u64, mut slowed: Slowed) {
        self.let_go_on(&mut slowed);
        let effect = effect(json!({
            "stop_count": slowed.stop_count, "stopped_ms": slowed.stopped_ns / MS
        }));
        self.healed(id, Vec::new(), effect);
        self.look_at_faults();
    }
}

/// Nodes that were asked to end.
#[derive(Debug)]
pub(in crate::simulation) struct Stopping {
    id: u64,
    left: Vec<usize>,
    asked: Vec<usize>,
    since_ns: u64,
    limit_ns: u64,
    in_order_count: usize,
    killed_count: usize,
    problems: Vec<String>,
}

/// Nodes that are to run again.
#[derive(Debug)]
pub(in crate::simulation) struct Reviving {
    pub(super) id: u64,
    pub(super) left: Vec<usize>,
    pub(super) nodes: Vec<usize>,
    /// When they went down, if they all did together.
    pub(super) since_ns: Option<u64>,
    pub(super) problems: Vec<String>,
    pub(super) effect: Map<String, serde_json::Value>,
}

impl SimulatedWorld {
    /// Waits for nodes to run again, and then tells that a fault is healed.
    pub(super) fn go_on_reviving(&mut self, mut reviving: Reviving) -> Option<Errand> {
        let problems = &mut reviving.problems;
        reviving
            .left
            .retain(|node| !self.has_settled(*node, true, problems));
        if !reviving.left.is_empty() {
            return Some(Errand::Revive(reviving));
        }
        let mut effect = reviving.effect;
        if let Some(since_ns) = reviving.since_ns {
            effect.insert("down_ms".into(), json!((self.now_ns - since_ns) / MS));
        }
        effect.extend(self.refusals(&reviving.nodes));
        self.healed(reviving.id, reviving.problems, effect);
        None
    }
}
