//! Owns what a run asks of the simulated world: the same as of real processes.
//! Never says how anything is done; the world does it.

use std::sync::atomic::Ordering;

use nemesis::action::Action;
use nemesis::view::ClusterView;
use results::trigger::EventTrigger;

use super::{STOP_LOOK_EVENTS, SimulatedWorld, Witness};
use crate::simulation::conversation;
use crate::simulation::events::Happening;
use crate::simulation::simulated_node::SimulatedNode;
use crate::world::{Call, Event, World};

impl World for SimulatedWorld {
    fn now_ns(&self) -> u64 {
        self.now_ns
    }

    fn nodes(&self) -> &[String] {
        &self.names
    }

    fn view(&self, leader: Option<&str>) -> ClusterView {
        let that = |is_so: fn(&SimulatedNode) -> bool| {
            let nodes = self.nodes.iter().filter(|node| is_so(node));
            nodes.map(|node| node.name.to_string()).collect()
        };
        let view = ClusterView {
            down: that(|node| !node.is_running()),
            stopped: that(|node| node.paused_since_ns.is_some()),
            failing_disks: that(|node| node.disk.is_failing()),
            ..self.membership.book.view(leader)
        };
        if self.membership.can_change() {
            return view;
        }
        ClusterView {
            observers: None,
            ..view
        }
    }

    fn call(&mut self, call: Call) {
        let position = self.names.iter().position(|name| *name == call.node);
        let Some(node) = position.filter(|node| self.nodes[*node].is_running()) else {
            let message = format!("{} does not run", call.node);
            let answer = conversation::not_there("NODE_DOWN", message);
            let call = call.id;
            return self.surfaced.push_back(Event::Answer { call, answer });
        };
        self.calls.insert(call.id, node);
        let arrives_ns = self.now_ns + self.network.client_delay_ns(node);
        let request = Box::new(conversation::request(&call.request, call.stamp));
        let ask = Happening::Ask {
            call: call.id,
            node,
            request,
        };
        self.queue.push(arrives_ns, ask);
        let give_up_ns = call.deadline_ns.max(self.now_ns);
        self.queue
            .push(give_up_ns, Happening::GiveUp { call: call.id });
    }

    fn start_fault(&mut self, id: u64, action: Action) {
        self.digest.event(self.now_ns, 10, id as usize);
        self.apply_fault(id, action);
    }

    fn heal_fault(&mut self, id: u64) {
        self.digest.event(self.now_ns, 11, id as usize);
        self.take_back_fault(id);
    }

    fn watch(&mut self, id: u64, trigger: EventTrigger) {
        self.digest.event(self.now_ns, 13, id as usize);
        self.await_event(id, trigger);
    }

    fn watch_nothing(&mut self) {
        self.await_nothing();
    }

    fn go_on(&mut self, hold: u64) {
        self.let_go(hold);
    }

    fn restore(&mut self) {
        self.digest.event(self.now_ns, 12, 0);
        self.end_mischief();
        self.put_in_order();
    }

    fn recovery_begins(&mut self) {
        self.end_mischief();
        if let Witness::Onlooker(onlooker) = &mut self.witness {
            onlooker.phase_begins();
        }
    }

    fn look(&mut self, id: u64) {
        let sight = self.sight();
        self.surfaced.push_back(Event::Seen { id, sight });
    }

    fn next_event(&mut self, deadline_ns: u64) -> Event {
        loop {
            if let Some(event) = self.surfaced.pop_front() {
                return event;
            }
            match self.queue.next_time_ns() {
                Some(time_ns) if time_ns <= deadline_ns => {}
                _ => {
                    self.now_ns = self.now_ns.max(deadline_ns);
                    return Event::Deadline;
                }
            }
            if let Some((time_ns, happening)) = self.queue.pop() {
                self.now_ns = self.now_ns.max(time_ns);
                self.happen(happening);
            }
            if self.digest.event_count().is_multiple_of(STOP_LOOK_EVENTS)
                && self.stop.load(Ordering::Relaxed)
            {
                self.halt("somebody stopped it".into());
            }
        }
    }
}
