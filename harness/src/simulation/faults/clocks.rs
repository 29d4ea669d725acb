//! Owns the faults that set the clocks of a simulated cluster, once or again and again.
//! Never sets right the clock of a node that a later fault has set.

use nemesis::fault::Strobe;
use serde_json::{Map, json};

use super::{Active, Errand, HELD_LIMIT_NS, report};
use crate::simulation::strobes::{Jump, Strobing};
use crate::simulation::world::SimulatedWorld;
use crate::world::{Event, FaultReport};

impl SimulatedWorld {
    pub(super) fn begin_strobe(&mut self, id: u64, names: &[String], strobe: Strobe) {
        let nodes: Result<Vec<usize>, String> =
            names.iter().map(|name| self.position(name)).collect();
        match nodes {
            Ok(nodes) => {
                let limit_ns = self.now_ns + HELD_LIMIT_NS;
                let strobing = Strobing::new(nodes, strobe, limit_ns);
                self.strobes.insert(id, strobing);
                self.strobe_on(id);
            }
            Err(problem) => {
                let report = report(0, vec![problem], Map::new());
                self.surfaced.push_back(Event::FaultStarted { id, report });
            }
        }
    }

    /// Clocks that go back and forth jump. A fault counts as started with the first jump.
    pub(in crate::simulation) fn strobe_on(&mut self, id: u64) {
        let report = match self.jump(id) {
            Some(Jump::First) => {
                self.faults.active.insert(id, Active::Strobe);
                report(1, Vec::new(), Map::new())
            }
            Some(Jump::Nobody) => {
                let problem = "none of the nodes can be reached".to_owned();
                report(0, vec![problem], Map::new())
            }
            Some(Jump::More) | None => return,
        };
        self.surfaced.push_back(Event::FaultStarted { id, report });
    }

    pub(super) fn end_strobe(&mut self, id: u64) {
        let Some(strobing) = self.strobes.remove(&id) else {
            return self.healed(id, Vec::new(), Map::new());
        };
        let effect = strobing.to_effect(&self.names);
        let left = strobing.hit();
        self.faults
            .errands
            .push(Errand::TrueClocks { id, left, effect });
        self.look_at_faults();
    }

    pub(super) fn skew_ms(&self, node: usize) -> f64 {
        self.nodes[node].clock.skew_ns(self.now_ns) as f64 / 1e6
    }

    pub(in crate::simulation) fn set_clock(&mut self, node: usize, offset_ms: i64, rate: f64) {
        let now_ns = self.now_ns;
        self.nodes[node].clock.set(now_ns, offset_ms, rate);
        // A jump makes timers due at once, or later than was planned.
        self.plan_wake(node);
    }

    /// Sets clocks right that are not, or are about to go back and forth. Whoever has set them so far lets
    /// them alone from now on.
    pub(super) fn reset_clocks(&mut self, id: u64, names: &[String]) -> FaultReport {
        let mut problems = Vec::new();
        let mut right = Vec::new();
        let mut effect = Map::new();
        let mut reset_count = 0;
        for name in names {
            let node = match self.position(name) {
                Ok(node) if self.nodes[node].is_reachable() => node,
                Ok(_) => {
                    problems.push(format!("{name} cannot be reached"));
                    continue;
                }
                Err(problem) => {
                    problems.push(problem);
                    continue;
                }
            };
            let setter = self.faults.clock_setters.get(&node);
            let is_strobed = setter.is_some_and(|setter| self.strobes.contains_key(setter));
            if self.nodes[node].clock.is_true() && !is_strobed {
                right.push(name.as_str());
                continue;
            }
            let before_ms = self.skew_ms(node);
            self.set_clock(node, 0, 1.0);
            self.faults.clock_setters.insert(node, id);
            reset_count += 1;
            effect.insert(format!("{name}_skew_before_ms"), json!(before_ms));
            effect.insert(format!("{name}_skew_after_ms"), json!(self.skew_ms(node)));
        }
        if reset_count == 0 && !right.is_empty() {
            problems.push(format!("no clock was wrong of {}", right.join(", ")));
        }
        effect.insert("reset_count".into(), json!(reset_count));
        report(reset_count, problems, effect)
    }

    pub(super) fn skew_clocks(&mut self, errand: Errand) -> Option<Errand> {
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
    pub(super) fn true_clock(&mut self, id: u64, node: usize) -> bool {
        if self.faults.clock_setters.get(&node) != Some(&id) || !self.nodes[node].is_running() {
            return true;
        }
        if self.nodes[node].paused_since_ns.is_some() {
            return false;
        }
        self.set_clock(node, 0, 1.0);
        true
    }
}
