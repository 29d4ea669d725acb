//! Owns one directed link: which faults have it cut or shaped, and what each of them did to it.
//! Never sees the bytes; it only says whether they may pass now, and when.

use super::lock;
use super::tally::Tally;
use crate::traffic::ShapedLink;
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Duration;
use tokio::sync::watch;
use tokio::time::Instant;

/// A directed link between two nodes.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    /// Whether any fault shapes the link; tells without a lock that none does.
    shaped: AtomicBool,
    open: watch::Sender<bool>,
    /// Counts resets and changes of the shape.
    changes: watch::Sender<u64>,
    /// What times of shaped links count from.
    origin: Instant,
}

#[derive(Debug, Default)]
struct State {
    faults: BTreeMap<u64, Fault>,
    /// Bytes waiting at the gate, by connection.
    waiting: BTreeMap<u64, u64>,
    /// Connections that use the link, in either direction.
    live: BTreeSet<u64>,
    /// How often all connections were reset.
    reset_count: u64,
}

/// What one fault does to the link.
#[derive(Debug, Default)]
struct Fault {
    tally: Tally,
    hold: Hold,
    shape: Option<ShapedLink>,
}

/// Whether a fault keeps bytes from passing.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
enum Hold {
    /// They pass.
    #[default]
    No,
    /// They wait.
    Waits,
    /// Whatever wants to pass loses its connection.
    Resets,
}

/// What becomes of what wants to pass.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Attempt<T> {
    /// It has passed.
    Through(T),
    /// It must wait until the link is up.
    Held,
    /// Its connection is broken.
    Broken,
}

/// A connection that a fault has reset.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Broken;

impl State {
    fn hold(&self) -> Hold {
        let holds = self.faults.values().map(|fault| fault.hold);
        holds.fold(Hold::No, |worst, hold| match (worst, hold) {
            (Hold::Resets, _) | (_, Hold::Resets) => Hold::Resets,
            (Hold::Waits, _) | (_, Hold::Waits) => Hold::Waits,
            _ => Hold::No,
        })
    }

    fn is_open(&self) -> bool {
        self.hold() == Hold::No
    }

    fn is_shaped(&self) -> bool {
        self.faults.values().any(|fault| fault.shape.is_some())
    }

    /// How many bytes may pass before a fault stalls the link.
    fn most_bytes(&self) -> u64 {
        let shapes = self
            .faults
            .values()
            .filter_map(|fault| fault.shape.as_ref());
        shapes.map(ShapedLink::left_bytes).min().unwrap_or(u64::MAX)
    }

    /// What already waits because of an earlier fault is now held up by this one, too.
    fn tally_of_waiting(&self) -> Tally {
        let mut tally = Tally::default();
        for (connection, bytes) in &self.waiting {
            tally.add_held(*connection, 0, *bytes);
        }
        tally
    }

    /// Bytes have passed. Whether that has stalled the link.
    fn passed(&mut self, bytes: u64) -> bool {
        let waiting = self.tally_of_waiting();
        let mut stalled = false;
        for fault in self.faults.values_mut() {
            let Some(shape) = &mut fault.shape else {
                continue;
            };
            shape.passed(bytes);
            if shape.left_bytes() == 0 && fault.hold == Hold::No {
                fault.hold = Hold::Waits;
                fault.tally.merge(waiting.clone());
                stalled = true;
            }
        }
        stalled
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            shaped: AtomicBool::new(false),
            open: watch::Sender::new(true),
            changes: watch::Sender::new(0),
            origin: Instant::now(),
        }
    }
}

impl Gate {
    /// Holds what wants to pass.
    pub(super) fn cut(&self, fault_id: u64) {
        self.close(fault_id, Hold::Waits);
    }

    /// Breaks every connection that uses the link, and from now on those that want to pass something.
    /// `also` is the link of the other direction.
    pub(super) fn cut_with_resets(&self, fault_id: u64, also: &Self) {
        self.close(fault_id, Hold::Resets);
        let mut state = lock(&self.state);
        state.reset_count += 1;
        let live = state.live.clone();
        if let Some(fault) = state.faults.get_mut(&fault_id) {
            fault.tally.add_resets(live);
        }
        drop(state);
        // Connections use both directions, and each crossing looks at its own gate only.
        lock(&also.state).reset_count += 1;
        self.tell_change();
        also.tell_change();
    }

    fn close(&self, fault_id: u64, hold: Hold) {
        let mut state = lock(&self.state);
        if state.faults.contains_key(&fault_id) {
            return;
        }
        let tally = state.tally_of_waiting();
        let fault = Fault {
            tally,
            hold,
            shape: None,
        };
        state.faults.insert(fault_id, fault);
        self.open.send_replace(false);
    }

    /// Shapes what passes.
    pub(super) fn shape(&self, fault_id: u64, shape: ShapedLink) {
        let mut state = lock(&self.state);
        let fault = Fault {
            shape: Some(shape),
            ..Fault::default()
        };
        state.faults.entry(fault_id).or_insert(fault);
        self.shaped.store(true, Ordering::Release);
        drop(state);
        self.tell_change();
    }

    pub(super) fn heal(&self, fault_id: u64) -> Option<Tally> {
        let mut state = lock(&self.state);
        let fault = state.faults.remove(&fault_id)?;
        self.open.send_replace(state.is_open());
        self.shaped.store(state.is_shaped(), Ordering::Release);
        drop(state);
        if fault.shape.is_some() {
            self.tell_change();
        }
        Some(fault.tally)
    }

    pub(super) fn is_cut(&self) -> bool {
        !lock(&self.state).is_open()
    }

    fn tell_change(&self) {
        self.changes.send_modify(|count| *count += 1);
    }

    /// One connection's place at this gate.
    pub(super) fn crossing(&self, connection: u64) -> Crossing<'_> {
        let mut state = lock(&self.state);
        state.live.insert(connection);
        Crossing {
            gate: self,
            connection,
            reset_count: state.reset_count,
            waits: false,
        }
    }
}

/// One connection's way through a gate, in one direction.
#[derive(Debug)]
pub(super) struct Crossing<'a> {
    gate: &'a Gate,
    connection: u64,
    reset_count: u64,
    waits: bool,
}

impl<'a> Crossing<'a> {
    /// Runs `deliver` if the link is up; otherwise counts `bytes` as held up. `deliver` is told how many
    /// bytes may pass, and says how many did.
    ///
    /// It runs under the lock that `cut` takes: once `cut` has returned, nothing more passes.
    pub(super) fn try_pass<T>(
        &mut self,
        bytes: u64,
        deliver: impl FnOnce(u64) -> (T, u64),
    ) -> Attempt<T> {
        let mut guard = lock(&self.gate.state);
        let state = &mut *guard;
        let hold = match state.faults.is_empty() {
            true => Hold::No,
            false => state.hold(),
        };
        if hold == Hold::Resets || state.reset_count != self.reset_count {
            for fault in state.faults.values_mut() {
                if fault.hold == Hold::Resets {
                    fault.tally.add_resets([self.connection]);
                }
            }
            return Attempt::Broken;
        }
        if hold == Hold::No {
            if self.waits {
                state.waiting.remove(&self.connection);
                self.waits = false;
            }
            if state.faults.is_empty() {
                return Attempt::Through(deliver(u64::MAX).0);
            }
            let (result, passed_bytes) = deliver(state.most_bytes());
            if state.passed(passed_bytes) {
                self.gate.open.send_replace(false);
            }
            return Attempt::Through(result);
        }
        let counted = state.waiting.insert(self.connection, bytes);
        self.waits = true;
        if counted != Some(bytes) {
            for fault in state.faults.values_mut() {
                if fault.hold == Hold::Waits {
                    let counted_bytes = counted.unwrap_or(0).min(bytes);
                    fault.tally.add_held(self.connection, counted_bytes, bytes);
                }
            }
        }
        Attempt::Held
    }

    /// Runs `deliver` as soon as the link is up.
    pub(super) async fn pass<T>(
        &mut self,
        bytes: u64,
        mut deliver: impl FnMut(u64) -> (T, u64),
    ) -> Result<T, Broken> {
        loop {
            match self.try_pass(bytes, &mut deliver) {
                Attempt::Through(result) => return Ok(result),
                Attempt::Broken => return Err(Broken),
                Attempt::Held => self.opened().await,
            }
        }
    }

    /// Waits until the link is up, or its connection is broken.
    pub(super) async fn opened(&self) {
        let mut open = self.gate.open.subscribe();
        open.wait_for(|open| *open)
            .await
            .expect("the sender is part of the gate, which is borrowed here");
    }

    /// Waits until a fault has reset this connection. Does not borrow the crossing.
    pub(super) fn broken(&self) -> impl Future<Output = ()> + use<'a> {
        let (gate, reset_count) = (self.gate, self.reset_count);
        async move {
            let mut changes = gate.changes.subscribe();
            while lock(&gate.state).reset_count == reset_count {
                changes
                    .changed()
                    .await
                    .expect("the sender is part of the gate, which is borrowed here");
            }
        }
    }

    /// Whether any fault shapes the link.
    pub(super) fn is_shaped(&self) -> bool {
        self.gate.shaped.load(Ordering::Acquire)
    }

    /// News of resets and of changes of the shape, from now on.
    pub(super) fn changes(&self) -> watch::Receiver<u64> {
        self.gate.changes.subscribe()
    }

    /// How many bytes should be read at once, so that a link of little bandwidth trickles.
    pub(super) fn most_bytes_at_once(&self, most_bytes: usize) -> usize {
        const STEPS_PER_SECOND: u64 = 20;
        const LEAST_BYTES: usize = 256;
        let state = lock(&self.gate.state);
        let shapes = state
            .faults
            .values()
            .filter_map(|fault| fault.shape.as_ref());
        let slowest = shapes.filter_map(ShapedLink::bytes_per_second).min();
        slowest.map_or(most_bytes, |bytes_per_second| {
            let step = usize::try_from(bytes_per_second / STEPS_PER_SECOND).unwrap_or(most_bytes);
            step.clamp(LEAST_BYTES, most_bytes)
        })
    }

    /// When bytes that were read now are due, as the faults that shape the link say.
    pub(super) fn due(&self, bytes: u64) -> Instant {
        let now = Instant::now();
        let now_ns = now.duration_since(self.gate.origin).as_nanos() as u64;
        let mut delay_ns = 0u64;
        let mut state = lock(&self.gate.state);
        for fault in state.faults.values_mut() {
            let Some(shape) = &mut fault.shape else {
                continue;
            };
            let fate = shape.next(now_ns, bytes);
            fault.tally.add_delayed(bytes, fate.delay_ns);
            delay_ns = delay_ns.saturating_add(fate.delay_ns);
        }
        now + Duration::from_nanos(delay_ns)
    }
}

impl Crossing<'_> {
    /// When the end of the connection is due that was read now, as the faults that shape the link say.
    pub(super) fn end_due(&self) -> Instant {
        let now = Instant::now();
        let mut delay_ns = 0u64;
        let mut state = lock(&self.gate.state);
        for fault in state.faults.values_mut() {
            let close_delay_ns = fault.shape.as_ref().map_or(0, ShapedLink::close_delay_ns);
            fault.tally.add_slow_close(self.connection, close_delay_ns);
            delay_ns = delay_ns.saturating_add(close_delay_ns);
        }
        now + Duration::from_nanos(delay_ns)
    }
}

impl Drop for Crossing<'_> {
    fn drop(&mut self) {
        let mut state = lock(&self.gate.state);
        state.live.remove(&self.connection);
        if self.waits {
            state.waiting.remove(&self.connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::LinkEffect;
    use super::*;

    fn effect(bytes_held: u64, chunks_held: u64, connections_affected: u64) -> LinkEffect {
        LinkEffect {
            bytes_held,
            chunks_held,
            connections_affected,
            ..LinkEffect::default()
        }
    }

    /// Delivers something that is no bytes.
    fn five(_most_bytes: u64) -> (u8, u64) {
        (5, 0)
    }

    #[test]
    fn a_gate_is_open_until_cut_and_after_the_last_healing() {
        let gate = Gate::default();
        let mut crossing = gate.crossing(1);
        assert_eq!(crossing.try_pass(10, five), Attempt::Through(5));
        gate.cut(1);
        gate.cut(2);
        assert!(gate.is_cut());
        assert_eq!(crossing.try_pass(10, five), Attempt::Held);
        assert_eq!(gate.heal(1).unwrap().effect(), effect(10, 1, 1));
        assert_eq!(crossing.try_pass(10, five), Attempt::Held);
        assert_eq!(gate.heal(2).unwrap().effect(), effect(10, 1, 1));
        assert!(!gate.is_cut());
        assert_eq!(crossing.try_pass(10, five), Attempt::Through(5));
        assert!(gate.heal(2).is_none());
    }

    #[test]
    fn what_waits_counts_once_for_every_fault_that_holds_it() {
        let gate = Gate::default();
        let mut crossing = gate.crossing(1);
        gate.cut(1);
        for _ in 0..3 {
            assert_eq!(crossing.try_pass(10, five), Attempt::Held);
        }
        gate.cut(2);
        gate.cut(2);
        assert_eq!(crossing.try_pass(10, five), Attempt::Held);
        assert_eq!(gate.heal(1).unwrap().effect(), effect(10, 1, 1));
        assert_eq!(gate.heal(2).unwrap().effect(), effect(10, 1, 1));
        assert_eq!(crossing.try_pass(10, five), Attempt::Through(5));
        // What passed is no longer waiting for a later fault to count it.
        gate.cut(3);
        assert_eq!(gate.heal(3).unwrap().effect(), effect(0, 0, 0));
    }

    #[test]
    fn an_opening_grows_by_its_first_bytes() {
        let gate = Gate::default();
        let mut crossing = gate.crossing(1);
        gate.cut(1);
        assert_eq!(crossing.try_pass(0, five), Attempt::Held);
        assert_eq!(crossing.try_pass(7, five), Attempt::Held);
        let mut other = gate.crossing(2);
        assert_eq!(other.try_pass(0, five), Attempt::Held);
        assert_eq!(gate.heal(1).unwrap().effect(), effect(7, 1, 2));
    }

    #[test]
    fn a_connection_that_is_gone_waits_no_longer() {
        let gate = Gate::default();
        gate.cut(1);
        {
            let mut crossing = gate.crossing(1);
            assert_eq!(crossing.try_pass(9, five), Attempt::Held);
        }
        gate.cut(2);
        assert_eq!(gate.heal(1).unwrap().effect(), effect(9, 1, 1));
        assert_eq!(gate.heal(2).unwrap().effect(), effect(0, 0, 0));
    }

    fn shaped(shaping: crate::fault::Shaping) -> ShapedLink {
        ShapedLink::new(1, 9, "n1", "n2", shaping)
    }

    #[test]
    fn a_reset_breaks_what_is_there_and_what_wants_to_pass_until_healed() {
        let (gate, back) = (Gate::default(), Gate::default());
        let mut crossing = gate.crossing(1);
        let mut answers = back.crossing(1);
        gate.cut_with_resets(4, &back);
        // Even if the fault is healed before anybody looks.
        assert_eq!(answers.try_pass(3, five), Attempt::Broken);
        let mut late = gate.crossing(2);
        assert_eq!(late.try_pass(3, five), Attempt::Broken);
        let effect = gate.heal(4).unwrap().effect();
        assert_eq!(
            (effect.connections_reset, effect.connections_affected),
            (2, 2)
        );
        assert_eq!(crossing.try_pass(3, five), Attempt::Broken);
        assert_eq!(gate.crossing(3).try_pass(3, five), Attempt::Through(5));
        assert!(!gate.is_cut());
    }

    #[test]
    fn a_link_stalls_after_exactly_so_many_bytes() {
        let gate = Gate::default();
        let mut crossing = gate.crossing(1);
        gate.shape(
            9,
            shaped(crate::fault::Shaping {
                stall_after_bytes: 10,
                ..Default::default()
            }),
        );
        assert!(crossing.is_shaped() && !gate.is_cut());
        let all = |most_bytes: u64| (most_bytes, most_bytes.min(8));
        assert_eq!(crossing.try_pass(8, all), Attempt::Through(10));
        assert_eq!(
            crossing.try_pass(8, |most| (most, most)),
            Attempt::Through(2)
        );
        assert!(gate.is_cut());
        assert_eq!(crossing.try_pass(6, five), Attempt::Held);
        assert_eq!(gate.heal(9).unwrap().effect(), effect(6, 1, 1));
        assert_eq!(crossing.try_pass(6, five), Attempt::Through(5));
        assert!(!crossing.is_shaped());
    }

    #[test]
    fn delays_are_counted() {
        let gate = Gate::default();
        let crossing = gate.crossing(1);
        gate.shape(
            9,
            shaped(crate::fault::Shaping {
                delay_ms: 40,
                ..Default::default()
            }),
        );
        let before = Instant::now();
        let due = crossing.due(100);
        assert!(due >= before + Duration::from_millis(40));
        let effect = gate.heal(9).unwrap().effect();
        assert_eq!((effect.chunks_delayed, effect.bytes_delayed), (1, 100));
        assert_eq!(effect.longest_delay_us, 40_000);
    }
}
