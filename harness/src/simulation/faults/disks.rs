//! Owns the faults of disks of a simulated cluster: operations that fail, and data destroyed at rest.
//! Never says what a node has to make of them.

use nemesis::fault::{DiskFault, DiskProblem, Files};
use nemesis::membership::Member;
use node::storage::injected_faults::{self, FileKind, InjectedFault};
use results::schedule::{damaged_bytes_of, new_directory_id_of};
use serde_json::{Map, Value, json};

use super::lives::Reviving;
use super::{Active, Errand, effect, report};
use crate::damage::{Damage, DamageDraws, count_caused, draw};
use crate::simulation::simulated_node::Life;
use crate::simulation::world::SimulatedWorld;
use crate::world::FaultReport;

impl SimulatedWorld {
    pub(super) fn fail_disks(
        &mut self,
        id: u64,
        names: &[String],
        disk: DiskFault,
    ) -> (Option<Active>, FaultReport) {
        match injected(disk) {
            Some(fault) => self.inject(id, names, disk, fault),
            None => self.destroy(id, names, disk),
        }
    }

    fn inject(
        &mut self,
        id: u64,
        names: &[String],
        disk: DiskFault,
        fault: InjectedFault,
    ) -> (Option<Active>, FaultReport) {
        let mut nodes = Vec::new();
        let mut problems = Vec::new();
        let mut restarted = Vec::new();
        for name in names {
            match self.position(name) {
                Ok(node) => {
                    self.nodes[node].disk.install(id, fault);
                    nodes.push((node, self.faults.last_words_of(node).len()));
                    if !disk.restart {
                        continue;
                    }
                    if self.nodes[node].is_running() {
                        self.power_off(node);
                        self.begin_start(node);
                        restarted.push(name);
                    } else {
                        problems.push(format!("{name} does not run"));
                    }
                }
                Err(problem) => problems.push(problem),
            }
        }
        // What it does shows only once the node uses its disk: see healing.
        let mut effect = Map::new();
        if disk.restart {
            effect.insert("restarted".into(), json!(restarted));
        }
        let report = report(nodes.len(), problems, effect);
        let active = (!nodes.is_empty()).then_some(Active::Disk { nodes, disk });
        (active, report)
    }

    pub(super) fn mend_disks(&mut self, id: u64, nodes: &[(usize, usize)], disk: DiskFault) {
        let mut hit_count = 0;
        let mut crashed_count = 0;
        for (node, crash_count) in nodes {
            hit_count += self.nodes[*node].disk.remove_fault(id);
            let last_words = self.faults.last_words_of(*node);
            crashed_count += count_caused(disk, &last_words[*crash_count..]);
        }
        // A node that has stopped because of its disk is started as soon as the disk works again.
        let nodes = nodes.iter().map(|(node, _)| *node);
        let owed = |node: &usize| {
            self.faults.owed.contains(node)
                && !self.faults.damaged.contains(node)
                && !self.nodes[*node].disk.is_failing()
        };
        let nodes: Vec<usize> = nodes.filter(owed).collect();
        self.start_if_down(&nodes);
        self.faults.errands.push(Errand::Revive(Reviving {
            id,
            left: nodes.clone(),
            nodes,
            since_ns: None,
            problems: Vec::new(),
            effect: effect(json!({
                "hit_count": hit_count, "crashed_count": crashed_count
            })),
        }));
        self.look_at_faults();
    }

    /// Cuts the power of nodes and destroys something on their disks.
    fn destroy(
        &mut self,
        id: u64,
        names: &[String],
        disk: DiskFault,
    ) -> (Option<Active>, FaultReport) {
        let (running, mut problems) = self.running(names);
        let mut nodes = Vec::new();
        let mut effect = Map::new();
        for node in running {
            match self.destroy_on(id, node, disk) {
                Ok(damage) => {
                    let name = damaged_bytes_of(&self.names[node]);
                    effect.insert(name, damage.damaged_bytes.into());
                    nodes.push(node);
                }
                Err(why) => problems.push(format!("{}: {why}", self.names[node])),
            }
        }
        let report = report(nodes.len(), problems, effect);
        let since_ns = self.now_ns;
        let active = (!nodes.is_empty()).then_some(Active::Kill { nodes, since_ns });
        self.look_at_faults();
        (active, report)
    }

    /// Cuts the power of nodes and gives them new disks. A node that is down because of what was destroyed on
    /// its old one comes back that way.
    pub(super) fn wipe(&mut self, id: u64, names: &[String]) -> (Option<Active>, FaultReport) {
        let is_broken = |name: &&String| {
            let node = self.position(name);
            node.is_ok_and(|node| {
                self.faults.damaged.contains(&node) && matches!(self.nodes[node].life, Life::Down)
            })
        };
        let (broken, others): (Vec<&String>, Vec<&String>) =
            names.iter().partition(|name| is_broken(name));
        let others: Vec<String> = others.into_iter().cloned().collect();
        let (mut hit, mut problems) = self.running(&others);
        hit.extend(broken.iter().filter_map(|name| self.position(name).ok()));
        let mut nodes = Vec::new();
        let mut effect = Map::new();
        for node in hit {
            let name = self.names[node].clone();
            if self.nodes[node].disk.is_failing() {
                problems.push(format!("the disk of {name} fails for another fault"));
                continue;
            }
            self.power_off(node);
            self.faults.damaged.remove(&node);
            self.faults.failed_starts.remove(&node);
            let (old, new) = self.nodes[node].wipe(self.seed, id, self.now_ns);
            self.membership.book.is_lost(Member {
                node: name.clone(),
                directory_id: old.to_string(),
            });
            effect.insert(format!("{name}_old_directory_id"), json!(old.to_string()));
            effect.insert(new_directory_id_of(&name), json!(new.to_string()));
            nodes.push(node);
        }
        effect.insert("wiped_count".into(), nodes.len().into());
        let report = report(nodes.len(), problems, effect);
        let active = (!nodes.is_empty()).then_some(Active::Wipe { nodes });
        self.look_at_faults();
        (active, report)
    }

    /// Nodes with new disks start, and take the places of those that they were.
    pub(super) fn return_wiped(&mut self, id: u64, mut nodes: Vec<usize>) {
        // Who has left the cluster meanwhile stays away.
        nodes.retain(|node| self.membership.book.is_member(&self.names[*node]));
        self.start_if_down(&nodes);
        let names: Vec<String> = nodes.iter().map(|node| self.names[*node].clone()).collect();
        self.return_voters(id, &names);
        self.look_at_faults();
    }

    fn destroy_on(&mut self, id: u64, node: usize, fault: DiskFault) -> Result<Damage, String> {
        let draws = DamageDraws::new(self.seed, id, node);
        let disk = self.nodes[node].disk.clone();
        let contents = || disk.files().into_iter().collect();
        // What cannot be damaged is not killed for nothing.
        draw(fault.what, fault.files, &contents(), &draws)?;
        self.power_off(node);
        match draw(fault.what, fault.files, &contents(), &draws) {
            Ok(damage) => {
                self.damage(node, &damage);
                self.faults.damaged.insert(node);
                self.membership.book.is_damaged(&self.names[node]);
                Ok(damage)
            }
            Err(why) => {
                self.begin_start(node);
                Err(format!("{why}, once its power was cut"))
            }
        }
    }

    /// Of these nodes those that do not start with the data that was destroyed, with their reasons.
    pub(super) fn refusals(&self, nodes: &[usize]) -> Map<String, Value> {
        let mut refused = Map::new();
        let refuses =
            |node: &&usize| self.faults.damaged.contains(node) && self.is_refusing(**node);
        for node in nodes.iter().filter(refuses) {
            let reason = self.faults.failed_starts.get(node);
            refused.insert(format!("{}_refuses", self.names[*node]), json!(reason));
        }
        if !refused.is_empty() {
            refused.insert("refused_count".into(), json!(refused.len()));
        }
        refused
    }

    /// Nodes that stay down with the data that was destroyed, by name, with their reasons.
    pub(super) fn left_down(&self) -> Map<String, Value> {
        let damaged = self.faults.damaged.iter();
        let refusing = damaged.filter(|node| self.is_refusing(**node));
        refusing
            .map(|node| {
                let reason = json!(self.faults.failed_starts.get(node));
                (self.names[*node].clone(), reason)
            })
            .collect()
    }

    fn is_refusing(&self, node: usize) -> bool {
        matches!(self.nodes[node].life, Life::Down) && self.faults.failed_starts.contains_key(&node)
    }
}

/// As the node's own layer understands it; `None` for damage at rest.
pub(in crate::simulation) fn injected(disk: DiskFault) -> Option<InjectedFault> {
    let problem = match disk.what {
        DiskProblem::SlowSync => injected_faults::DiskProblem::SlowSync {
            delay_ms: disk.delay_ms.unwrap_or(0),
        },
        DiskProblem::SyncError => injected_faults::DiskProblem::SyncError,
        DiskProblem::NoSpace => injected_faults::DiskProblem::NoSpace,
        DiskProblem::ReadError => injected_faults::DiskProblem::ReadError,
        DiskProblem::BitFlip
        | DiskProblem::Truncate
        | DiskProblem::TornWrite
        | DiskProblem::MisdirectedWrite
        | DiskProblem::LostFile => return None,
    };
    let files = match disk.files {
        Files::All => FileKind::All,
        Files::Log => FileKind::Log,
        Files::QuorumState => FileKind::QuorumState,
        Files::Snapshot => FileKind::Snapshot,
    };
    Some(InjectedFault { problem, files })
}
