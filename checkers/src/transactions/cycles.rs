//! Owns the search for short cycles, and what kind of anomaly each is.
//! Never goes on for ever: in a component that is very large, it settles for a cycle that is not the shortest.

use std::collections::VecDeque;

use rustc_hash::FxHashMap;

use super::anomaly::Kind;
use super::components::{Part, components};
use super::graph::{Edge, Graph, Why};
use super::table::Table;

/// A cycle: nodes, each with the edge that leaves it for the next one.
pub(super) type Cycle = Vec<(u32, Edge)>;

/// Edges looked at for one component at most.
const EFFORT_MAX: u64 = 30_000_000;

/// Edges that count in a search.
#[derive(Debug, Clone, Copy)]
struct Level {
    kind: Kind,
    /// Bits of the reasons.
    reasons: u8,
    /// Whether exactly one read that came too early must be on the cycle, besides.
    has_one_missed: bool,
}

fn levels() -> [Level; 8] {
    let real_time = Why::RealTime.bit();
    let appends = Why::Append.bit() | Why::Passage.bit();
    let reads = appends | Why::Read.bit();
    let all = reads | Why::Missed.bit();
    let level = |kind, reasons, has_one_missed| Level {
        kind,
        reasons,
        has_one_missed,
    };
    [
        level(Kind::G0, appends, false),
        level(Kind::G1c, reads, false),
        level(Kind::GSingle, reads, true),
        level(Kind::G2, all, false),
        level(Kind::G0RealTime, appends | real_time, false),
        level(Kind::G1cRealTime, reads | real_time, false),
        level(Kind::GSingleRealTime, reads | real_time, true),
        level(Kind::G2RealTime, all | real_time, false),
    ]
}

/// Components of more nodes are first searched for two transactions that contradict real time: it is nearly
/// always there, and takes one look at each edge.
const LARGE_COUNT: usize = 20_000;

/// The most basic anomaly of a component, and the shortest cycle of that kind. A component has one.
pub(super) fn most_basic(graph: &Graph, table: &Table, component: &[u32]) -> Option<(Kind, Cycle)> {
    let real_time = Why::RealTime.bit();
    let mut inside = Inside::new(graph, component);
    inside.reasons = !real_time;
    let needs_real_time = components(&inside).is_empty();
    if needs_real_time
        && component.len() > LARGE_COUNT
        && let Some(found) = inside.two_against_real_time(table)
    {
        return Some(found);
    }
    let levels = levels().into_iter();
    let mut levels = levels.filter(|level| !needs_real_time || level.reasons & real_time != 0);
    levels.find_map(|level| {
        inside.effort = 0;
        let cycle = if level.has_one_missed {
            inside.with_one_missed(level.reasons)
        } else {
            inside.shortest(level.reasons)
        };
        cycle.map(|cycle| (level.kind, cycle))
    })
}

/// The edges between the nodes of a component.
struct Inside<'a> {
    graph: &'a Graph,
    nodes: &'a [u32],
    places: FxHashMap<u32, u32>,
    reasons: u8,
    effort: u64,
}

impl Part for Inside<'_> {
    fn node_count(&self) -> u32 {
        self.nodes.len() as u32
    }

    fn neighbour(&self, node: u32, number: u32) -> Option<Option<u32>> {
        let edge = self
            .graph
            .from(self.nodes[node as usize])
            .get(number as usize)?;
        Some(self.counts(edge))
    }
}

impl<'a> Inside<'a> {
    fn new(graph: &'a Graph, nodes: &'a [u32]) -> Self {
        let places = nodes.iter().enumerate();
        Self {
            graph,
            nodes,
            places: places.map(|(place, node)| (*node, place as u32)).collect(),
            reasons: 0,
            effort: 0,
        }
    }

    /// Where an edge leads inside of the component, if it counts.
    fn counts(&self, edge: &Edge) -> Option<u32> {
        let counts = self.reasons & edge.why.bit() != 0;
        counts.then(|| self.places.get(&edge.to).copied()).flatten()
    }

    /// Two transactions, one of which must come before the other, and began only when that was over.
    fn two_against_real_time(&self, table: &Table) -> Option<(Kind, Cycle)> {
        let mut best: Option<(Kind, Cycle)> = None;
        let members = self.nodes.iter().copied();
        for from in members.filter(|node| self.graph.is_transaction(*node)) {
            let invoked = table.transactions[from as usize].invoke;
            let is_over = |node: u32| {
                table.is_ok(node) && table.transactions[node as usize].completion < invoked
            };
            for edge in self.graph.from(from) {
                let kind = match edge.why {
                    Why::Append => Kind::G0RealTime,
                    Why::Read => Kind::G1cRealTime,
                    Why::Missed => Kind::GSingleRealTime,
                    Why::RealTime | Why::Passage => continue,
                };
                if best.as_ref().is_some_and(|(known, _)| *known <= kind) {
                    continue;
                }
                let (one, many) = match self.graph.is_transaction(edge.to) {
                    true => (Some(edge.to), [].as_slice()),
                    false => (None, self.graph.from(edge.to)),
                };
                let mut ends = one.into_iter().chain(many.iter().map(|edge| edge.to));
                let Some(end) = ends.find(|end| *end != from && is_over(*end)) else {
                    continue;
                };
                let back = Edge {
                    to: from,
                    why: Why::RealTime,
                    key: 0,
                    place: 0,
                };
                best = Some((kind, vec![(from, *edge), (end, back)]));
            }
        }
        best
    }

    /// The shortest cycle of edges for these reasons.
    fn shortest(&mut self, reasons: u8) -> Option<Cycle> {
        self.reasons = reasons;
        let mut best: Option<Cycle> = None;
        for component in components(self) {
            for start in component {
                if !self.graph.is_transaction(self.nodes[start as usize]) {
                    continue;
                }
                if best.is_some() && self.effort > EFFORT_MAX {
                    return best;
                }
                let most = best
                    .as_ref()
                    .map_or(usize::MAX, |best| length(self.graph, best) - 1);
                if let Some(cycle) = self.path(start, start, most) {
                    best = Some(cycle);
                }
            }
        }
        best
    }

    /// The shortest cycle of one read that came too early, and otherwise edges for these reasons.
    fn with_one_missed(&mut self, reasons: u8) -> Option<Cycle> {
        self.reasons = reasons;
        let mut best: Option<Cycle> = None;
        for from in 0..self.nodes.len() as u32 {
            let node = self.nodes[from as usize];
            for edge in self.graph.from(node) {
                if edge.why != Why::Missed || self.effort > EFFORT_MAX {
                    continue;
                }
                let Some(to) = self.places.get(&edge.to).copied() else {
                    continue;
                };
                let most = best
                    .as_ref()
                    .map_or(usize::MAX, |best| length(self.graph, best) - 1);
                // The read itself is one step.
                let Some(back) = self.path(to, from, most.saturating_sub(1)) else {
                    continue;
                };
                let mut cycle = vec![(node, *edge)];
                cycle.extend(back);
                best = Some(cycle);
            }
        }
        best
    }

    /// The shortest way from one node to another, of at most so many steps that leave transactions; the start
    /// is left even if it is the end.
    fn path(&mut self, from: u32, to: u32, most: usize) -> Option<Cycle> {
        let mut before: FxHashMap<u32, (u32, Edge)> = FxHashMap::default();
        let mut distances: FxHashMap<u32, usize> = FxHashMap::default();
        let mut queue = VecDeque::from([(from, 0usize)]);
        while let Some((place, distance)) = queue.pop_front() {
            if distances.get(&place).is_some_and(|known| *known < distance) {
                continue;
            }
            if place == to && distance > 0 && before.contains_key(&to) {
                return Some(self.walk_back(from, to, &before));
            }
            let node = self.nodes[place as usize];
            let cost = usize::from(self.graph.is_transaction(node));
            if distance + cost > most {
                continue;
            }
            for edge in self.graph.from(node) {
                self.effort += 1;
                let Some(next) = self.counts(edge) else {
                    continue;
                };
                let reached = distance + cost;
                if distances.get(&next).is_some_and(|known| *known <= reached) {
                    continue;
                }
                distances.insert(next, reached);
                before.insert(next, (place, *edge));
                if cost == 0 {
                    queue.push_front((next, reached));
                } else {
                    queue.push_back((next, reached));
                }
            }
        }
        None
    }

    fn walk_back(&self, from: u32, to: u32, before: &FxHashMap<u32, (u32, Edge)>) -> Cycle {
        let mut cycle = Vec::new();
        let mut place = to;
        loop {
            let (previous, edge) = before[&place];
            cycle.push((self.nodes[previous as usize], edge));
            place = previous;
            if place == from {
                break;
            }
        }
        cycle.reverse();
        cycle
    }
}

/// How many transactions are on a cycle.
fn length(graph: &Graph, cycle: &Cycle) -> usize {
    let transactions = cycle.iter().filter(|(node, _)| graph.is_transaction(*node));
    transactions.count()
}
