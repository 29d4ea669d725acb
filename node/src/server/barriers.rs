//! Owns the barriers of a node process: at which moments it waits until somebody lets it go on.
//! Never waits where nobody asked for it; then a barrier costs one look at a number.

use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Condvar, Mutex, PoisonError};

use serde::Serialize;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::ids::Epoch;
use crate::moment::{Edge, Moment, MomentSet};

use super::outbox::role_name;
use crate::raft::Role;

/// What a node says of itself when it comes to a barrier.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub(crate) struct Reached {
    /// Names the barrier; never reused within a process.
    barrier: u64,
    event: &'static str,
    edge: &'static str,
    /// Whether the node waits. It does not for what it has sent: that leaves only if it goes on.
    held: bool,
    role: Option<&'static str>,
    epoch: Epoch,
    /// Number of the last event in the trace for an edge after one, otherwise of the next.
    seq: u64,
}

/// Where a node is at a barrier.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Place {
    pub(crate) role: Option<Role>,
    pub(crate) epoch: Epoch,
    pub(crate) seq: u64,
}

/// Barriers, as the node sees them and as those do who ask for them. Clones share them.
#[derive(Debug, Clone)]
pub(crate) struct Barriers(Arc<Shared>);

#[derive(Debug)]
struct Shared {
    /// A [`MomentSet`].
    armed: AtomicU64,
    reached: UnboundedSender<Reached>,
    state: Mutex<State>,
    released: Condvar,
}

#[derive(Debug, Default)]
struct State {
    last_barrier: u64,
    /// The barrier at which the node waits.
    waiting_at: Option<u64>,
}

impl Barriers {
    /// No barriers, and where the node tells which ones it comes to.
    pub(crate) fn new() -> (Self, UnboundedReceiver<Reached>) {
        let (reached, receiver) = unbounded_channel();
        let shared = Shared {
            armed: AtomicU64::new(0),
            reached,
            state: Mutex::default(),
            released: Condvar::new(),
        };
        (Self(Arc::new(shared)), receiver)
    }

    /// Puts barriers at exactly these moments. A node that waits at one goes on waiting.
    pub(crate) fn arm(&self, moments: MomentSet) {
        self.0.armed.store(moments.bits(), Ordering::Release);
    }

    /// Whether there is any barrier.
    pub(crate) fn any_armed(&self) -> bool {
        self.0.armed.load(Ordering::Relaxed) != 0
    }

    /// Whether there is one here.
    pub(crate) fn is_armed(&self, edge: Edge, moment: Moment) -> bool {
        let armed = MomentSet::from_bits(self.0.armed.load(Ordering::Acquire));
        armed.contains(edge, moment)
    }

    /// Tells that the node has come to a barrier, and waits there until it is let go.
    pub(crate) fn wait(&self, edge: Edge, moment: Moment, place: Place) {
        let held = edge == Edge::Before || !moment.is_of_sending();
        let mut state = self.lock();
        state.last_barrier += 1;
        let barrier = state.last_barrier;
        let reached = Reached {
            barrier,
            event: moment.name(),
            edge: edge.name(),
            held,
            role: place.role.map(role_name),
            epoch: place.epoch,
            seq: place.seq,
        };
        if held {
            state.waiting_at = Some(barrier);
        }
        if self.0.reached.send(reached).is_err() {
            // Nobody asks any more: the process is about to end.
            state.waiting_at = None;
        }
        while held && state.waiting_at == Some(barrier) {
            let waited = self.0.released.wait(state);
            state = waited.unwrap_or_else(PoisonError::into_inner);
        }
    }

    /// Lets the node go on from this barrier. Whether it waited there.
    pub(crate) fn release(&self, barrier: u64) -> bool {
        let mut state = self.lock();
        let waits = state.waiting_at == Some(barrier);
        if waits {
            state.waiting_at = None;
            self.0.released.notify_all();
        }
        waits
    }

    fn lock(&self) -> std::sync::MutexGuard<'_, State> {
        self.0.state.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PLACE: Place = Place {
        role: Some(Role::Leader),
        epoch: Epoch(3),
        seq: 17,
    };

    #[test]
    fn a_node_waits_at_a_barrier_until_exactly_that_one_is_opened() {
        let (barriers, mut reached) = Barriers::new();
        let mut moments = MomentSet::default();
        moments.insert(Edge::Before, Moment::Flush);
        barriers.arm(moments);
        assert!(barriers.any_armed() && barriers.is_armed(Edge::Before, Moment::Flush));
        assert!(!barriers.is_armed(Edge::After, Moment::Flush));
        let node = barriers.clone();
        let node = std::thread::spawn(move || node.wait(Edge::Before, Moment::Flush, PLACE));
        let said = reached.blocking_recv().unwrap();
        assert_eq!(
            (said.event, said.edge, said.held),
            ("flush", "before", true)
        );
        assert_eq!((said.role, said.seq), (Some("leader"), 17));
        assert!(!barriers.release(said.barrier + 1));
        assert!(!node.is_finished());
        barriers.arm(MomentSet::default());
        assert!(barriers.release(said.barrier));
        node.join().unwrap();
        assert!(!barriers.any_armed() && !barriers.release(said.barrier));
    }

    #[test]
    fn nobody_waits_for_what_is_sent_or_when_nobody_asks() {
        let (barriers, mut reached) = Barriers::new();
        barriers.wait(Edge::After, Moment::SentVote, PLACE);
        assert!(!reached.blocking_recv().unwrap().held);
        drop(reached);
        barriers.wait(Edge::Before, Moment::Append, PLACE);
    }
}
