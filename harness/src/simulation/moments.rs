//! Owns what a simulated cluster is watched for: which moment of which node starts a fault, and holding it there.
//! Never starts a fault; whoever watches does, while virtual time stands still.

use nemesis::watch::{Occurrence, Watches};
use node::moment::{Edge, Moment, MomentSet};
use results::schedule::StartingEvent;
use results::trace::Role;
use results::trigger::{self, EventName, EventTrigger};

use super::disk::Place;
use super::world::SimulatedWorld;
use crate::world::Event;

/// What is waited for.
#[derive(Debug, Default)]
pub(super) struct MomentDesk {
    watches: Watches,
    /// Both names of every event that is waited for.
    names: Vec<(Moment, EventName)>,
    last_hold: u64,
}

impl SimulatedWorld {
    /// Lets a fault wait for an event.
    pub(super) fn await_event(&mut self, id: u64, trigger: EventTrigger) {
        self.moments.watches.add(id, trigger);
        self.tell_nodes();
    }

    /// Lets nothing wait any more.
    pub(super) fn await_nothing(&mut self) {
        self.moments.watches.clear();
        self.tell_nodes();
    }

    /// Nodes tell their world of nothing that nobody waits for.
    fn tell_nodes(&mut self) {
        let mut awaited = MomentSet::default();
        self.moments.names.clear();
        for (event, edge) in self.moments.watches.awaited() {
            // The node has a moment for every event, as a test makes sure.
            if let Some(moment) = Moment::from_name(&event.name()) {
                awaited.insert(node_edge(edge), moment);
                self.moments.names.push((moment, event));
            }
        }
        for node in &mut self.nodes {
            node.awaited = awaited;
        }
    }

    /// A node comes to a moment, with its disk at `place`; whether it is held there.
    pub(super) fn holds_at(
        &mut self,
        position: usize,
        edge: Edge,
        moment: Moment,
        place: Place,
    ) -> bool {
        let names = self.moments.names.iter();
        let Some((_, event)) = names.clone().find(|(known, _)| *known == moment) else {
            return false;
        };
        let node = &mut self.nodes[position];
        let ids = self.moments.watches.observe(Occurrence {
            event: *event,
            edge: trigger_edge(edge),
            node: &node.name,
            role: node.role,
        });
        if ids.is_empty() {
            return false;
        }
        self.moments.last_hold += 1;
        let hold = self.moments.last_hold;
        node.held = Some((hold, place));
        let event = StartingEvent {
            node: node.name.to_string(),
            incarnation: node.incarnation,
            seq: match edge {
                Edge::Before => node.next_seq,
                Edge::After => node.next_seq.saturating_sub(1),
            },
            time_ns: self.now_ns,
        };
        let leads = node.role == Some(Role::Leader);
        self.digest.event(self.now_ns, 14, position);
        self.digest.add(event.seq);
        self.surfaced.push_back(Event::Moment {
            hold,
            ids,
            event,
            leads,
        });
        self.tell_nodes();
        true
    }

    /// Lets the node go on that this hold holds, if it is still there.
    pub(super) fn let_go(&mut self, hold: u64) {
        let held = |node: &super::simulated_node::SimulatedNode| {
            node.held.is_some_and(|(known, _)| known == hold)
        };
        if let Some(position) = self.nodes.iter().position(held) {
            self.nodes[position].held = None;
            self.release(position);
        }
    }
}

fn node_edge(edge: trigger::Edge) -> Edge {
    match edge {
        trigger::Edge::Before => Edge::Before,
        trigger::Edge::After => Edge::After,
    }
}

fn trigger_edge(edge: Edge) -> trigger::Edge {
    match edge {
        Edge::Before => trigger::Edge::Before,
        Edge::After => trigger::Edge::After,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn nodes_and_schedules_call_every_event_the_same() {
        let events: Vec<String> = EventName::all().into_iter().map(EventName::name).collect();
        let mut moments: Vec<&str> = Moment::all().map(Moment::name).collect();
        let mut events: Vec<&str> = events.iter().map(String::as_str).collect();
        events.sort_unstable();
        moments.sort_unstable();
        assert_eq!(events, moments);
    }
}
