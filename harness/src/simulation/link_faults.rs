//! Owns what faults do to simulated links besides holding messages: resets, refusals, delays, losses and more.
//! Never touches a link that no fault has in its hands.

use std::collections::{BTreeMap, BTreeSet};

use nemesis::fault::{Shaping, Style};
use nemesis::traffic::ShapedLink;
use node::ids::NodeId;
use node::node_loop::Arrival;
use node::raft::{Correlation, PeerAnswer};
use serde_json::{Map, Value};

use super::events::{Content, Happening, Parcel};
use super::world::SimulatedWorld;

/// Kind of the digest's events for exchanges that break.
const BROKEN_EVENT: u64 = 13;

/// A directed link, by the positions of its nodes.
type Link = (usize, usize);

/// An exchange between two nodes, by who asked.
type Exchange = (usize, u32, Correlation);

/// What link faults are under way.
#[derive(Debug, Default)]
pub(super) struct LinkFaults {
    breaking: BTreeMap<Link, BTreeMap<u64, Breaking>>,
    shaped: BTreeMap<Link, ShapedTraffic>,
    /// Exchanges whose connection was reset while their request was perhaps on its way.
    broken: BTreeSet<Exchange>,
    effects: BTreeMap<u64, Effect>,
}

/// How a fault breaks connections over a link.
#[derive(Debug)]
struct Breaking {
    style: Style,
    /// The connection that was there has taken a request, which is held; others need new connections.
    connection_is_taken: bool,
}

/// A link that faults shape, with what is on its way.
#[derive(Debug, Default)]
struct ShapedTraffic {
    shapes: BTreeMap<u64, ShapedLink>,
    on_its_way: BTreeMap<u64, Late>,
    next_number: u64,
    latest_arrived: Option<u64>,
}

#[derive(Debug)]
struct Late {
    parcel: Parcel,
    /// The faults that want it to be overtaken.
    overtaken_for: Vec<u64>,
}

/// What one fault did.
#[derive(Debug, Default)]
struct Effect {
    reset_count: u64,
    refused_count: u64,
    lost_count: u64,
    doubled_count: u64,
    reordered_count: u64,
    delayed_count: u64,
    delay_ns: u128,
    longest_delay_ns: u64,
    slow_close_count: u64,
    longest_close_delay_ns: u64,
}

impl Effect {
    fn add_delay(&mut self, delay_ns: u64) {
        if delay_ns > 0 {
            self.delayed_count += 1;
            self.delay_ns += u128::from(delay_ns);
            self.longest_delay_ns = self.longest_delay_ns.max(delay_ns);
        }
    }

    /// The entries for the `effect` of the fault in the schedule; what did not happen is left out.
    fn to_map(&self) -> Map<String, Value> {
        let mean_ns = self.delay_ns / u128::from(self.delayed_count.max(1));
        let entries = [
            ("connections_reset", self.reset_count),
            ("connections_refused", self.refused_count),
            ("messages_lost", self.lost_count),
            ("messages_doubled", self.doubled_count),
            ("messages_reordered", self.reordered_count),
            ("messages_delayed", self.delayed_count),
            ("mean_delay_us", (mean_ns / 1_000) as u64),
            ("longest_delay_us", self.longest_delay_ns / 1_000),
            ("connections_closed_slowly", self.slow_close_count),
            (
                "longest_close_delay_ms",
                self.longest_close_delay_ns / 1_000_000,
            ),
        ];
        let entries = entries.into_iter().filter(|(_, count)| *count > 0);
        entries
            .map(|(name, count)| (name.to_owned(), count.into()))
            .collect()
    }
}

impl LinkFaults {
    /// Whether a fault breaks connections over this link or shapes it.
    pub(super) fn is_shaped(&self, from: usize, to: usize) -> bool {
        !self.shaped.is_empty() && self.shaped.contains_key(&(from, to))
    }

    /// How much later the end of a connection comes over this link, in nanoseconds.
    fn close_slowly(&mut self, link: Link) -> u64 {
        let mut delay_ns = 0u64;
        let shapes = self.shaped.get(&link).map(|traffic| &traffic.shapes);
        for (fault, shape) in shapes.into_iter().flatten() {
            let own_ns = shape.close_delay_ns();
            if own_ns > 0 {
                let effect = self.effects.entry(*fault).or_default();
                effect.slow_close_count += 1;
                effect.longest_close_delay_ns = own_ns;
            }
            delay_ns = delay_ns.saturating_add(own_ns);
        }
        delay_ns
    }

    fn effect(&mut self, fault: u64) -> &mut Effect {
        self.effects.entry(fault).or_default()
    }

    /// The fault that resets, or refuses, what this message needs, if there is one. Answers come over the
    /// connection of their request, so only requests can be refused.
    fn breaker(&mut self, link: Link, is_request: bool) -> Option<(u64, Style)> {
        let faults = self.breaking.get_mut(&link)?;
        let resets = faults.iter().find(|(_, fault)| fault.style == Style::Reset);
        if let Some((id, _)) = resets {
            return Some((*id, Style::Reset));
        }
        if !is_request {
            return None;
        }
        let (id, refusing) = faults.iter_mut().next()?;
        if !refusing.connection_is_taken {
            refusing.connection_is_taken = true;
            return None;
        }
        Some((*id, Style::Refuse))
    }
}

/// The exchange that a message on the way from `from` to `to` belongs to, and whom its asker asked.
fn exchange(from: usize, to: usize, parcel: &Parcel) -> (Exchange, usize) {
    let (asker, asked) = match parcel.content {
        Content::Request(_) => (from, to),
        Content::Response(_) | Content::Failed => (to, from),
    };
    ((asker, parcel.incarnation, parcel.correlation), asked)
}

impl SimulatedWorld {
    /// A fault cuts a link in this style.
    pub(super) fn cut_link(&mut self, fault: u64, (from, to): Link, style: Style) {
        if style != Style::Reset {
            self.network.cut(fault, from, to);
        }
        if style == Style::Hold {
            return;
        }
        self.link_faults.effect(fault);
        let breaking = Breaking {
            style,
            connection_is_taken: false,
        };
        let faults = self.link_faults.breaking.entry((from, to)).or_default();
        faults.insert(fault, breaking);
        if style == Style::Reset {
            self.reset_connections(fault, from, to);
        }
    }

    /// Breaks every connection between two nodes, with what is on its way and who waits for an answer.
    fn reset_connections(&mut self, fault: u64, one: usize, other: usize) {
        for (from, to) in [(one, other), (other, one)] {
            self.network.lose_waiting(from, to);
            if let Some(traffic) = self.link_faults.shaped.get_mut(&(from, to)) {
                traffic.on_its_way.clear();
            }
            let node = &self.nodes[from];
            let waiting = node.waiting.iter().filter(|(_, (peer, _))| *peer == to);
            let waiting: Vec<Correlation> = waiting.map(|(correlation, _)| *correlation).collect();
            for correlation in waiting {
                let broken = (from, self.nodes[from].incarnation, correlation);
                self.link_faults.broken.insert(broken);
                if self.break_exchange(broken, to) {
                    self.link_faults.effect(fault).reset_count += 1;
                }
            }
        }
    }

    /// Tells who asked that there will be no answer. Whether anybody waited for it.
    fn break_exchange(&mut self, exchange: Exchange, asked: usize) -> bool {
        let (asker, incarnation, correlation) = exchange;
        let node = &mut self.nodes[asker];
        let waits = node.is_running() && node.incarnation == incarnation;
        if !waits || node.waiting.remove(&correlation).is_none() {
            return false;
        }
        self.note(BROKEN_EVENT, asker, correlation.0);
        let arrival = Arrival::PeerAnswer {
            peer: NodeId(asked as i32 + 1),
            correlation,
            answer: PeerAnswer::Failed,
        };
        self.deliver(asker, arrival);
        true
    }

    /// Whether a message that has come to the end of its link is lost there, with its connection.
    pub(super) fn is_broken(&mut self, from: usize, to: usize, parcel: &Parcel) -> bool {
        let faults = &mut self.link_faults;
        if faults.breaking.is_empty() && faults.broken.is_empty() {
            return false;
        }
        let is_request = matches!(parcel.content, Content::Request(_));
        let (exchange, asked) = exchange(from, to, parcel);
        if is_request && faults.broken.remove(&exchange) {
            return true;
        }
        let Some((fault, style)) = faults.breaker((from, to), is_request) else {
            return false;
        };
        if self.break_exchange(exchange, asked) {
            let effect = self.link_faults.effect(fault);
            match style {
                Style::Refuse => effect.refused_count += 1,
                Style::Reset | Style::Hold | Style::Drop => effect.reset_count += 1,
            }
        }
        true
    }

    /// A fault shapes a link.
    pub(super) fn shape_link(&mut self, fault: u64, (from, to): Link, shaping: &Shaping) {
        let (name, peer) = (&self.names[from], &self.names[to]);
        let shape = ShapedLink::new(self.seed, fault, name, peer, shaping.clone());
        self.link_faults.effect(fault);
        let traffic = self.link_faults.shaped.entry((from, to)).or_default();
        traffic.shapes.insert(fault, shape);
    }

    /// Puts a message on a link that is shaped. Without the faults it would take `after_ns`.
    pub(super) fn send_shaped(&mut self, (from, to): Link, parcel: Parcel, after_ns: u64) {
        let size_bytes = parcel.size_bytes();
        let is_request = matches!(parcel.content, Content::Request(_));
        let LinkFaults {
            shaped, effects, ..
        } = &mut self.link_faults;
        let Some(traffic) = shaped.get_mut(&(from, to)) else {
            return;
        };
        let mut due_ns = self.now_ns + after_ns;
        let mut again_after_ns = None;
        let mut overtaken_for = Vec::new();
        for (fault, shape) in &mut traffic.shapes {
            let fate = shape.next(self.now_ns, size_bytes);
            let effect = effects.entry(*fault).or_default();
            if fate.lost {
                effect.lost_count += 1;
                return;
            }
            effect.add_delay(fate.delay_ns);
            due_ns = due_ns.saturating_add(fate.delay_ns);
            if fate.overtaken {
                overtaken_for.push(*fault);
            }
            // Only what is asked can come twice; of answers, a node takes the first.
            if let Some(later_ns) = fate.again_after_ns.filter(|_| is_request) {
                effect.doubled_count += 1;
                again_after_ns = Some(later_ns);
            }
        }
        let again =
            again_after_ns.map(|later_ns| (due_ns.saturating_add(later_ns), parcel.clone()));
        self.put_on_its_way((from, to), due_ns, parcel, overtaken_for);
        if let Some((again_ns, double)) = again {
            self.put_on_its_way((from, to), again_ns, double, Vec::new());
        }
    }

    /// Tells a node that another, whose answer it waits for, has ended, and with it their connection.
    pub(super) fn send_end(&mut self, from: usize, to: usize, parcel: Parcel) {
        match self.link_faults.close_slowly((from, to)) {
            0 => self.send(from, to, parcel),
            delay_ns => {
                let due_ns = self.now_ns.saturating_add(delay_ns);
                self.put_on_its_way((from, to), due_ns, parcel, Vec::new());
            }
        }
    }

    fn put_on_its_way(
        &mut self,
        (from, to): Link,
        due_ns: u64,
        parcel: Parcel,
        overtaken_for: Vec<u64>,
    ) {
        let traffic = self.link_faults.shaped.entry((from, to)).or_default();
        let number = traffic.next_number;
        traffic.next_number += 1;
        let late = Late {
            parcel,
            overtaken_for,
        };
        traffic.on_its_way.insert(number, late);
        self.queue
            .push(due_ns, Happening::ArriveLate { from, to, number });
    }

    /// A message comes to the end of a link that was shaped when it was sent.
    pub(super) fn arrive_late(&mut self, from: usize, to: usize, number: u64) {
        let LinkFaults {
            shaped, effects, ..
        } = &mut self.link_faults;
        let Some(traffic) = shaped.get_mut(&(from, to)) else {
            return;
        };
        let Some(late) = traffic.on_its_way.remove(&number) else {
            return;
        };
        if traffic.latest_arrived > Some(number) {
            for fault in late.overtaken_for {
                effects.entry(fault).or_default().reordered_count += 1;
            }
        }
        traffic.latest_arrived = traffic.latest_arrived.max(Some(number));
        let size_bytes = late.parcel.size_bytes();
        for (fault, shape) in &mut traffic.shapes {
            if shape.left_bytes() < size_bytes {
                // Nothing passes any more; what waits is let go by healing, as after a cut.
                self.network.cut(*fault, from, to);
            } else {
                shape.passed(size_bytes);
            }
        }
        self.arrive(from, to, late.parcel);
    }

    /// Takes back what a fault did to links; returns what that was.
    pub(super) fn heal_links(&mut self, fault: u64) -> Map<String, Value> {
        let (held, released) = self.network.heal(fault);
        for (from, to, parcel) in released {
            // What was held is there already; it is taken in one by one, in order.
            let arrive = Happening::Arrive { from, to, parcel };
            self.queue.push(self.now_ns, arrive);
        }
        for faults in self.link_faults.breaking.values_mut() {
            faults.remove(&fault);
        }
        self.link_faults
            .breaking
            .retain(|_, faults| !faults.is_empty());
        for traffic in self.link_faults.shaped.values_mut() {
            traffic.shapes.remove(&fault);
        }
        let (now_ns, queue) = (self.now_ns, &mut self.queue);
        self.link_faults.shaped.retain(|(from, to), traffic| {
            if !traffic.shapes.is_empty() {
                return true;
            }
            for (_, late) in std::mem::take(&mut traffic.on_its_way) {
                let (from, to, parcel) = (*from, *to, late.parcel);
                queue.push(now_ns, Happening::Arrive { from, to, parcel });
            }
            false
        });
        let mut effect = held.to_effect();
        if let Some(measured) = self.link_faults.effects.remove(&fault) {
            effect.extend(measured.to_map());
        }
        effect
    }
}
