//! Owns simulated clocks that go back and forth: when they jump next, and how often they did.
//! Never sets the clock of a node that a later fault has set.

use std::collections::BTreeMap;

use nemesis::fault::Strobe;
use serde_json::{Map, Value, json};

use super::events::Happening;
use super::world::SimulatedWorld;

const MS: u64 = 1_000_000;

/// Strobes under way, by fault.
pub(super) type Strobes = BTreeMap<u64, Strobing>;

/// One fault that lets clocks go back and forth.
#[derive(Debug)]
pub(super) struct Strobing {
    nodes: Vec<usize>,
    strobe: Strobe,
    /// Whether the clocks are to be off next, or right.
    next_is_off: bool,
    /// How often each node's clock was set.
    jump_counts: BTreeMap<usize, u64>,
    /// Until when a node may turn up before the fault counts as one that hit nobody; none once one did.
    limit_ns: Option<u64>,
}

/// What one jump came to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Jump {
    /// The fault has just hit its first node.
    First,
    /// It goes on.
    More,
    /// No node turned up in time.
    Nobody,
}

impl Strobing {
    pub(super) fn new(nodes: Vec<usize>, strobe: Strobe, limit_ns: u64) -> Self {
        Self {
            nodes,
            strobe,
            next_is_off: true,
            jump_counts: BTreeMap::new(),
            limit_ns: Some(limit_ns),
        }
    }

    /// The nodes whose clocks it has set.
    pub(super) fn hit(&self) -> Vec<usize> {
        self.jump_counts.keys().copied().collect()
    }

    /// The entries for the `effect` of the fault.
    pub(super) fn to_effect(&self, names: &[String]) -> Map<String, Value> {
        let mut effect = Map::new();
        for (node, count) in &self.jump_counts {
            let (name, delta_ms) = (&names[*node], self.strobe.delta_ms);
            effect.insert(format!("{name}_jumps"), json!(count));
            effect.insert(format!("{name}_lowest_skew_ms"), json!(delta_ms.min(0)));
            effect.insert(format!("{name}_highest_skew_ms"), json!(delta_ms.max(0)));
        }
        effect
    }
}

impl SimulatedWorld {
    /// Lets the clocks of a strobe jump once, and plans the next time. Nothing if it is over.
    pub(super) fn jump(&mut self, fault: u64) -> Option<Jump> {
        let mut strobing = self.strobes.remove(&fault)?;
        let offset_ms = match strobing.next_is_off {
            true => strobing.strobe.delta_ms,
            false => 0,
        };
        strobing.next_is_off = !strobing.next_is_off;
        let now_ns = self.now_ns;
        for node in &strobing.nodes {
            let is_new = !strobing.jump_counts.contains_key(node);
            let is_mine = is_new || self.faults.set_clock_last(*node, fault);
            if is_mine && self.nodes[*node].is_reachable() {
                self.set_clock(*node, offset_ms, 1.0);
                self.faults.note_setter(*node, fault);
                *strobing.jump_counts.entry(*node).or_insert(0) += 1;
            }
        }
        let jump = match strobing.limit_ns {
            Some(_) if !strobing.jump_counts.is_empty() => {
                strobing.limit_ns = None;
                Jump::First
            }
            Some(limit_ns) if now_ns >= limit_ns => return Some(Jump::Nobody),
            _ => Jump::More,
        };
        let next_ns = now_ns + strobing.strobe.period_ms * MS;
        let next_ns = next_ns.min(strobing.limit_ns.unwrap_or(u64::MAX));
        self.queue.push(next_ns, Happening::Strobe { fault });
        self.strobes.insert(fault, strobing);
        Some(jump)
    }
}
