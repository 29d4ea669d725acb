//! Owns one directed link of the switch: which faults have it, and what becomes of each packet.
//! Never reads a clock or a device; time comes in, and packets go out through what the caller hands it.

#[cfg(test)]
mod tests;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use super::flows::{Flow, Flows};
use super::packet::{Segment, corrupt};
use super::tally::PacketEffect;
use crate::fault::Style;
use crate::traffic::ShapedLink;

/// Most bytes that wait on a link, held or delayed: more than a switch has, and less than a machine needs.
pub(super) const WAITING_MAX_BYTES: usize = 16 << 20;

/// Where a packet leaves the link.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Way {
    /// To the receiver.
    On,
    /// Back to the sender.
    Back,
}

/// Takes the packets that leave a link.
pub(super) type Deliver<'a> = &'a mut dyn FnMut(Way, &[u8]);

/// A directed link.
#[derive(Debug, Default)]
pub(super) struct Link {
    faults: BTreeMap<u64, Fault>,
    held: VecDeque<Vec<u8>>,
    /// Packets on their way, by the time they are due and their number.
    late: BTreeMap<(u64, u64), Late>,
    waiting_bytes: usize,
    /// When the last packet is due that keeps the order.
    last_due_ns: u64,
    next_number: u64,
    latest_arrived: Option<u64>,
    flows: Flows,
    /// Connections that were reset, by the ports of sender and receiver: their ends may still speak.
    resets: BTreeSet<(u16, u16)>,
}

/// What one fault does to the link.
#[derive(Debug)]
struct Fault {
    effect: PacketEffect,
    hold: Hold,
    shape: Option<ShapedLink>,
    /// Connections whose end it has delayed, by the ports of sender and receiver: ends are sent again.
    slow_closes: BTreeSet<(u16, u16)>,
}

/// What a fault does to packets at the end of the link; of several faults, the last of these counts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Hold {
    /// They pass.
    No,
    /// They wait.
    Waits,
    /// They wait, but for those that open connections.
    Refuses,
    /// They are gone.
    Drops,
    /// They are gone, and both ends hear that their connection is.
    Resets,
}

#[derive(Debug)]
struct Late {
    packet: Vec<u8>,
    /// The faults that want it to be overtaken.
    overtaken_for: Vec<u64>,
}

impl Link {
    /// Cuts the link in the name of a fault. Held packets stay; a reset takes them with the connections.
    pub(super) fn cut(&mut self, fault_id: u64, style: Style) {
        let hold = match style {
            Style::Hold => Hold::Waits,
            Style::Refuse => Hold::Refuses,
            Style::Drop => Hold::Drops,
            Style::Reset => Hold::Resets,
        };
        let mut effect = PacketEffect::default();
        if matches!(hold, Hold::Resets | Hold::Drops) {
            effect.packets_dropped = (self.held.len() + self.late.len()) as u64;
            self.held.clear();
            self.late.clear();
            self.waiting_bytes = 0;
        }
        let fault = Fault {
            effect,
            hold,
            shape: None,
            slow_closes: BTreeSet::new(),
        };
        self.faults.entry(fault_id).or_insert(fault);
    }

    /// Shapes the link in the name of a fault.
    pub(super) fn shape(&mut self, fault_id: u64, shape: ShapedLink) {
        let fault = Fault {
            effect: PacketEffect::default(),
            hold: Hold::No,
            shape: Some(shape),
            slow_closes: BTreeSet::new(),
        };
        self.faults.entry(fault_id).or_insert(fault);
    }

    /// Connections that are open on it.
    pub(super) fn open_flows(&self) -> Vec<Flow> {
        self.flows.open()
    }

    /// Counts connections that a fault has reset.
    pub(super) fn count_resets(&mut self, fault_id: u64, flows: &[Flow]) {
        let new = flows.iter().map(|flow| (flow.from, flow.to));
        let new_count = new.filter(|ports| self.resets.insert(*ports)).count();
        if let Some(fault) = self.faults.get_mut(&fault_id) {
            fault.effect.connections_reset += new_count as u64;
        }
    }

    /// Whether a fault keeps packets from passing.
    pub(super) fn is_cut(&self) -> bool {
        self.hold() > Hold::No
    }

    fn hold(&self) -> Hold {
        let holds = self.faults.values().map(|fault| fault.hold);
        holds.max().unwrap_or(Hold::No)
    }

    /// Takes a packet in. Returns when the next packet is due, if this one has to wait.
    pub(super) fn offer(
        &mut self,
        now_ns: u64,
        packet: &[u8],
        deliver: Deliver<'_>,
    ) -> Option<u64> {
        let segment = Segment::read(packet);
        if let Some(segment) = &segment {
            self.flows.note(segment);
        }
        if self.faults.is_empty() {
            deliver(Way::On, packet);
            return None;
        }
        let mut due_ns = now_ns;
        let mut again_after_ns = None;
        let mut overtaken_for = Vec::new();
        let mut changed = None;
        for (id, fault) in &mut self.faults {
            let Some(shape) = &mut fault.shape else {
                continue;
            };
            let fate = shape.next(now_ns, packet.len() as u64);
            if fate.lost {
                fault.effect.packets_lost += 1;
                return None;
            }
            if let Some(draw) = fate.corrupted {
                let changed = changed.get_or_insert_with(|| packet.to_vec());
                fault.effect.packets_corrupted += u64::from(corrupt(changed, draw));
            }
            fault.effect.add_delay(fate.delay_ns);
            due_ns = due_ns.saturating_add(fate.delay_ns);
            if fate.overtaken {
                overtaken_for.push(*id);
            }
            if let Some(later_ns) = fate.again_after_ns {
                fault.effect.packets_doubled += 1;
                again_after_ns = Some(later_ns);
            }
        }
        let packet = changed.as_deref().unwrap_or(packet);
        if overtaken_for.is_empty() {
            // However delays scatter, packets keep their order unless they are to lose it.
            due_ns = due_ns.max(self.last_due_ns);
            self.last_due_ns = due_ns;
        }
        // Only the news of the end comes later: what others send meanwhile overtakes it.
        if let Some(segment) = segment.filter(|segment| segment.ends || segment.resets) {
            due_ns = due_ns.saturating_add(self.close_slowly((segment.from.1, segment.to.1)));
        }
        if let Some(later_ns) = again_after_ns {
            self.put_off(due_ns.saturating_add(later_ns), packet, Vec::new());
        }
        if due_ns > now_ns {
            self.put_off(due_ns, packet, overtaken_for);
        } else {
            // Whoever was sent before and is still on its way has been overtaken.
            self.latest_arrived = Some(self.next_number);
            self.next_number += 1;
            self.arrive(packet, deliver);
        }
        self.next_due_ns()
    }

    /// How much later the end of a connection comes; counted once for each connection.
    fn close_slowly(&mut self, ports: (u16, u16)) -> u64 {
        let mut delay_ns = 0u64;
        for fault in self.faults.values_mut() {
            let own_ns = fault.shape.as_ref().map_or(0, ShapedLink::close_delay_ns);
            if own_ns > 0 && fault.slow_closes.insert(ports) {
                fault.effect.connections_closed_slowly += 1;
                fault.effect.longest_close_delay_ns = own_ns;
            }
            delay_ns = delay_ns.saturating_add(own_ns);
        }
        delay_ns
    }

    fn put_off(&mut self, due_ns: u64, packet: &[u8], overtaken_for: Vec<u64>) {
        let number = self.next_number;
        self.next_number += 1;
        if self.has_room(packet) {
            let late = Late {
                packet: packet.to_vec(),
                overtaken_for,
            };
            self.late.insert((due_ns, number), late);
        }
    }

    /// Whether a packet may wait; counts it, or that it is gone.
    fn has_room(&mut self, packet: &[u8]) -> bool {
        if self.waiting_bytes + packet.len() <= WAITING_MAX_BYTES {
            self.waiting_bytes += packet.len();
            return true;
        }
        for fault in self.faults.values_mut() {
            fault.effect.packets_overflowed += 1;
        }
        false
    }

    /// When the first of those on their way is due.
    pub(super) fn next_due_ns(&self) -> Option<u64> {
        self.late.first_key_value().map(|((due_ns, _), _)| *due_ns)
    }

    /// Delivers what is due. Returns when the next packet is.
    pub(super) fn deliver_due(&mut self, now_ns: u64, deliver: Deliver<'_>) -> Option<u64> {
        while let Some(entry) = self.late.first_entry() {
            let (due_ns, number) = *entry.key();
            if due_ns > now_ns {
                return Some(due_ns);
            }
            let late = entry.remove();
            self.arrive_late(number, late, deliver);
        }
        None
    }

    fn arrive_late(&mut self, number: u64, late: Late, deliver: Deliver<'_>) {
        self.waiting_bytes -= late.packet.len();
        if self.latest_arrived > Some(number) {
            for id in late.overtaken_for {
                if let Some(fault) = self.faults.get_mut(&id) {
                    fault.effect.packets_reordered += 1;
                }
            }
        }
        self.latest_arrived = self.latest_arrived.max(Some(number));
        self.arrive(&late.packet, deliver);
    }

    /// A packet has come to the end of the link.
    fn arrive(&mut self, packet: &[u8], deliver: Deliver<'_>) {
        match self.hold() {
            Hold::No if self.would_stall(packet.len()) => self.wait(packet),
            Hold::No => deliver(Way::On, packet),
            Hold::Waits => self.wait(packet),
            Hold::Refuses => match Segment::read(packet) {
                Some(segment) if segment.opens => {
                    deliver(Way::Back, &segment.refusal());
                    self.count(Hold::Refuses, |effect| effect.connections_refused += 1);
                }
                _ => self.wait(packet),
            },
            Hold::Drops => self.count(Hold::Drops, |effect| effect.packets_dropped += 1),
            Hold::Resets => {
                self.count(Hold::Resets, |effect| effect.packets_dropped += 1);
                let Some(segment) = Segment::read(packet).filter(|segment| !segment.resets) else {
                    return;
                };
                deliver(Way::Back, &segment.refusal());
                let ports = (segment.from.1, segment.to.1);
                if segment.opens {
                    self.resets.remove(&ports);
                    self.count(Hold::Resets, |effect| effect.connections_refused += 1);
                } else {
                    deliver(Way::On, &segment.reset_instead());
                    if self.resets.insert(ports) {
                        self.count(Hold::Resets, |effect| effect.connections_reset += 1);
                    }
                }
            }
        }
    }

    fn count(&mut self, hold: Hold, count: impl Fn(&mut PacketEffect)) {
        let holding = self.faults.values_mut().filter(|fault| fault.hold == hold);
        holding.for_each(|fault| count(&mut fault.effect));
    }

    /// Whether a packet is more than a fault lets pass; then that fault holds from now on.
    fn would_stall(&mut self, length_bytes: usize) -> bool {
        let length_bytes = length_bytes as u64;
        let mut stalls = false;
        for fault in self.faults.values_mut() {
            let Some(shape) = &fault.shape else {
                continue;
            };
            if shape.left_bytes() < length_bytes {
                fault.hold = Hold::Waits;
                stalls = true;
            }
        }
        if !stalls {
            let shapes = self
                .faults
                .values_mut()
                .filter_map(|fault| fault.shape.as_mut());
            shapes.for_each(|shape| shape.passed(length_bytes));
        }
        stalls
    }

    fn wait(&mut self, packet: &[u8]) {
        if !self.has_room(packet) {
            return;
        }
        for fault in self.faults.values_mut() {
            if matches!(fault.hold, Hold::Waits | Hold::Refuses) {
                fault.effect.add_held(packet.len());
            }
        }
        self.held.push_back(packet.to_vec());
    }

    /// Ends a fault; lets go what waited for it alone, in order. Returns what it did, if it was there.
    pub(super) fn heal(&mut self, fault_id: u64, deliver: Deliver<'_>) -> Option<PacketEffect> {
        let fault = self.faults.remove(&fault_id)?;
        if self.hold() != Hold::Resets {
            self.resets.clear();
        }
        if !self.is_cut() {
            for packet in std::mem::take(&mut self.held) {
                self.waiting_bytes -= packet.len();
                self.arrive(&packet, deliver);
            }
        }
        let is_shaped = self.faults.values().any(|fault| fault.shape.is_some());
        if fault.shape.is_some() && !is_shaped {
            for ((_, number), late) in std::mem::take(&mut self.late) {
                self.arrive_late(number, late, deliver);
            }
            self.last_due_ns = 0;
        }
        Some(fault.effect)
    }
}
