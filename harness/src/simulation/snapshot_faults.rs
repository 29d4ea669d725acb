//! Owns snapshots that the nemesis asks simulated nodes for, and whether they came.
//! Never says when a snapshot may be taken; the node does.

use node::node_loop::Arrival;
use results::schedule::FaultOutcome;
use serde_json::{Map, json};

use super::events::Happening;
use super::simulated_node::Life;
use super::world::SimulatedWorld;
use crate::world::{Event, FaultReport, no_newer_snapshot};

const MS: u64 = 1_000_000;
/// How long a snapshot is waited for.
const LIMIT_NS: u64 = 1_000 * MS;
/// How often nodes are looked at.
const LOOK_NS: u64 = 20 * MS;

/// Nodes that were asked for a snapshot.
#[derive(Debug)]
pub(super) struct SnapshotErrand {
    fault: u64,
    /// Nodes with where their newest snapshot ended when they were asked.
    left: Vec<(usize, i64)>,
    limit_ns: u64,
    taken_count: u64,
    effect: Map<String, serde_json::Value>,
    problems: Vec<String>,
}

impl SimulatedWorld {
    /// Asks nodes for a snapshot; the report of the fault surfaces once they have one.
    pub(super) fn force_snapshots(&mut self, fault: u64, names: &[String]) {
        let mut left = Vec::new();
        let mut problems = Vec::new();
        for name in names {
            match self.position(name) {
                Ok(node) if self.nodes[node].is_reachable() => {
                    left.push((node, self.snapshot_end(node)));
                    self.deliver(node, Arrival::TakeSnapshot);
                }
                Ok(node) if self.nodes[node].is_running() => {
                    problems.push(format!("{name} is stopped"));
                }
                Ok(_) => problems.push(format!("{name} does not run")),
                Err(problem) => problems.push(problem),
            }
        }
        let errand = SnapshotErrand {
            fault,
            left,
            limit_ns: self.now_ns + LIMIT_NS,
            taken_count: 0,
            effect: Map::new(),
            problems,
        };
        self.snapshot_errands.push(errand);
        self.queue.push(self.now_ns, Happening::LookAtSnapshots);
    }

    /// Looks which snapshots have come.
    pub(super) fn look_at_snapshots(&mut self) {
        for mut errand in std::mem::take(&mut self.snapshot_errands) {
            let mut left = Vec::new();
            for (node, before) in std::mem::take(&mut errand.left) {
                let end = self.snapshot_end(node);
                if end > before {
                    errand.taken_count += 1;
                    let name = format!("{}_snapshot_end", self.names[node]);
                    errand.effect.insert(name, json!(end));
                } else {
                    left.push((node, before));
                }
            }
            errand.left = left;
            if errand.left.is_empty() || self.now_ns >= errand.limit_ns {
                self.report_snapshots(errand);
            } else {
                self.snapshot_errands.push(errand);
            }
        }
        if !self.snapshot_errands.is_empty() {
            let next_ns = self.now_ns + LOOK_NS;
            self.queue.push(next_ns, Happening::LookAtSnapshots);
        }
    }

    fn report_snapshots(&mut self, errand: SnapshotErrand) {
        let mut problems = errand.problems;
        for (node, _) in errand.left {
            problems.push(no_newer_snapshot(&self.names[node]));
        }
        let mut effect = errand.effect;
        effect.insert("taken_count".into(), json!(errand.taken_count));
        let report = FaultReport {
            outcome: if errand.taken_count > 0 {
                FaultOutcome::Installed
            } else {
                FaultOutcome::Skipped
            },
            reason: (!problems.is_empty()).then(|| problems.join("; ")),
            effect,
        };
        let id = errand.fault;
        self.surfaced.push_back(Event::FaultStarted { id, report });
    }

    /// Where the newest snapshot of a node ends; -1 while it does not run.
    fn snapshot_end(&self, node: usize) -> i64 {
        match &self.nodes[node].life {
            Life::Running(running) => running.disk_description().snapshot_end.0,
            Life::Down | Life::Starting | Life::Ended => -1,
        }
    }
}
