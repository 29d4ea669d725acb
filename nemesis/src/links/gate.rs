//! Owns one directed link: which faults have it cut, and what each of them held up.
//! Never sees the bytes; it only says whether they may pass now.

use super::{LinkEffect, lock};
use std::collections::{BTreeMap, BTreeSet};
use std::sync::Mutex;
use tokio::sync::watch;

/// A directed link between two nodes.
#[derive(Debug)]
pub(super) struct Gate {
    state: Mutex<State>,
    open: watch::Sender<bool>,
}

#[derive(Debug, Default)]
struct State {
    /// The faults that have the link cut, with what they held up so far. Open when empty.
    faults: BTreeMap<u64, Tally>,
    /// Bytes waiting at the gate, by connection.
    waiting: BTreeMap<u64, u64>,
}

/// What one fault held up.
#[derive(Debug, Default)]
pub(super) struct Tally {
    bytes: u64,
    chunks: u64,
    connections: BTreeSet<u64>,
}

impl Tally {
    pub(super) fn merge(&mut self, other: Self) {
        self.bytes += other.bytes;
        self.chunks += other.chunks;
        self.connections.extend(other.connections);
    }

    pub(super) fn effect(&self) -> LinkEffect {
        LinkEffect {
            bytes_held: self.bytes,
            chunks_held: self.chunks,
            connections_affected: self.connections.len() as u64,
        }
    }

    fn add(&mut self, connection: u64, counted_bytes: u64, bytes: u64) {
        self.connections.insert(connection);
        self.bytes += bytes - counted_bytes;
        self.chunks += u64::from(counted_bytes == 0 && bytes > 0);
    }
}

impl Default for Gate {
    fn default() -> Self {
        Self {
            state: Mutex::default(),
            open: watch::Sender::new(true),
        }
    }
}

impl Gate {
    pub(super) fn cut(&self, fault_id: u64) {
        let mut guard = lock(&self.state);
        let State { faults, waiting } = &mut *guard;
        if faults.contains_key(&fault_id) {
            return;
        }
        // What already waits because of an earlier fault is now held up by this one, too.
        let mut tally = Tally::default();
        for (connection, bytes) in waiting {
            tally.add(*connection, 0, *bytes);
        }
        faults.insert(fault_id, tally);
        self.open.send_replace(false);
    }

    pub(super) fn heal(&self, fault_id: u64) -> Option<Tally> {
        let mut state = lock(&self.state);
        let tally = state.faults.remove(&fault_id);
        self.open.send_replace(state.faults.is_empty());
        tally
    }

    pub(super) fn is_cut(&self) -> bool {
        !lock(&self.state).faults.is_empty()
    }

    /// One connection's place at this gate.
    pub(super) fn crossing(&self, connection: u64) -> Crossing<'_> {
        Crossing {
            gate: self,
            connection,
            waits: false,
        }
    }
}

/// One connection's way through a gate, in one direction.
#[derive(Debug)]
pub(super) struct Crossing<'a> {
    gate: &'a Gate,
    connection: u64,
    waits: bool,
}

impl Crossing<'_> {
    /// Runs `deliver` if the link is up; otherwise counts `bytes` as held up.
    ///
    /// `deliver` runs under the lock that `cut` takes: once `cut` has returned, nothing more passes.
    pub(super) fn try_pass<T>(&mut self, bytes: u64, deliver: impl FnOnce() -> T) -> Option<T> {
        let mut guard = lock(&self.gate.state);
        let State { faults, waiting } = &mut *guard;
        if faults.is_empty() {
            if self.waits {
                waiting.remove(&self.connection);
                self.waits = false;
            }
            return Some(deliver());
        }
        let counted = waiting.insert(self.connection, bytes);
        self.waits = true;
        if counted != Some(bytes) {
            for tally in faults.values_mut() {
                tally.add(self.connection, counted.unwrap_or(0), bytes);
            }
        }
        None
    }

    /// Runs `deliver` as soon as the link is up.
    pub(super) async fn pass<T>(&mut self, bytes: u64, mut deliver: impl FnMut() -> T) -> T {
        loop {
            if let Some(result) = self.try_pass(bytes, &mut deliver) {
                return result;
            }
            self.opened().await;
        }
    }

    /// Waits until the link is up.
    pub(super) async fn opened(&self) {
        let mut open = self.gate.open.subscribe();
        open.wait_for(|open| *open)
            .await
            .expect("the sender is part of the gate, which is borrowed here");
    }
}

impl Drop for Crossing<'_> {
    fn drop(&mut self) {
        if self.waits {
            lock(&self.gate.state).waiting.remove(&self.connection);
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn effect(bytes_held: u64, chunks_held: u64, connections_affected: u64) -> LinkEffect {
        LinkEffect {
            bytes_held,
            chunks_held,
            connections_affected,
        }
    }

    #[test]
    fn a_gate_is_open_until_cut_and_after_the_last_healing() {
        let gate = Gate::default();
        let mut crossing = gate.crossing(1);
        assert_eq!(crossing.try_pass(10, || 5), Some(5));
        gate.cut(1);
        gate.cut(2);
        assert!(gate.is_cut());
        assert_eq!(crossing.try_pass(10, || 5), None);
        assert_eq!(gate.heal(1).unwrap().effect(), effect(10, 1, 1));
        assert_eq!(crossing.try_pass(10, || 5), None);
        assert_eq!(gate.heal(2).unwrap().effect(), effect(10, 1, 1));
        assert!(!gate.is_cut());
        assert_eq!(crossing.try_pass(10, || 5), Some(5));
        assert!(gate.heal(2).is_none());
    }

    #[test]
    fn what_waits_counts_once_for_every_fault_that_holds_it() {
        let gate = Gate::default();
        let mut crossing = gate.crossing(1);
        gate.cut(1);
        for _ in 0..3 {
            assert_eq!(crossing.try_pass(10, || ()), None);
        }
        gate.cut(2);
        gate.cut(2);
        assert_eq!(crossing.try_pass(10, || ()), None);
        assert_eq!(gate.heal(1).unwrap().effect(), effect(10, 1, 1));
        assert_eq!(gate.heal(2).unwrap().effect(), effect(10, 1, 1));
        assert_eq!(crossing.try_pass(10, || ()), Some(()));
        // What passed is no longer waiting for a later fault to count it.
        gate.cut(3);
        assert_eq!(gate.heal(3).unwrap().effect(), effect(0, 0, 0));
    }

    #[test]
    fn an_opening_grows_by_its_first_bytes() {
        let gate = Gate::default();
        let mut crossing = gate.crossing(1);
        gate.cut(1);
        assert_eq!(crossing.try_pass(0, || ()), None);
        assert_eq!(crossing.try_pass(7, || ()), None);
        let mut other = gate.crossing(2);
        assert_eq!(other.try_pass(0, || ()), None);
        assert_eq!(gate.heal(1).unwrap().effect(), effect(7, 1, 2));
    }

    #[test]
    fn a_connection_that_is_gone_waits_no_longer() {
        let gate = Gate::default();
        gate.cut(1);
        {
            let mut crossing = gate.crossing(1);
            assert_eq!(crossing.try_pass(9, || ()), None);
        }
        gate.cut(2);
        assert_eq!(gate.heal(1).unwrap().effect(), effect(9, 1, 1));
        assert_eq!(gate.heal(2).unwrap().effect(), effect(0, 0, 0));
    }
}
