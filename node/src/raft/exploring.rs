//! Owns what an exploration of every order of events needs of a replica: timers that go off when told to, and
//! a state that can be compared.
//! Never used by a node that runs: the protocol calls nothing here.
//!
//! An exploration hands in time 0 with every input, and lets a timer go off by a tick at [`Alarm::at_ns`].
//! After each step [`Replica::still`] puts every deadline to the point of its kind, so that states which
//! differ only by when things happened are the same state. That allows every order in which timers of
//! different replicas, or of different kinds, can go off on clocks of any speed.

use std::hash::{Hash, Hasher};

use super::role::RoleState;
use super::timers::{NEVER_NS, Random};
use super::{Correlation, Replica, Ticket, Timers};
use crate::ids::NodeId;
use crate::message::Request;

/// Timers with which no deadline is reached within a step of its own, and none is drawn by chance.
pub const EXPLORED_TIMERS: Timers = Timers {
    election_timeout_ns: 1,
    fetch_timeout_ns: 1 << 40,
    election_backoff_max_ns: 1 << 40,
    fetch_max_wait_ns: 1 << 40,
    request_timeout_ns: u64::MAX,
    retry_backoff_ns: 1,
};

/// The correlation of every request that waits for its answer, once the replica is still: there is at most
/// one of them for each peer.
pub const AWAITED: Correlation = Correlation(1);

/// What new requests are numbered from, so that they differ from those that were asked before.
const FIRST_NEW: u64 = 1000;

/// A kind of timer that an exploration can let go off.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Alarm {
    /// The time for which a peer is left alone after a failure is over.
    BackOff,
    /// Fetches that wait at a leader have waited long enough.
    WaitingFetches,
    /// The timer of the role: election, fetch, or check-quorum timeout.
    Role,
}

impl Alarm {
    /// The time at which a tick lets this timer go off, and none of the later kinds.
    pub fn at_ns(self) -> u64 {
        match self {
            Self::BackOff => 1,
            Self::WaitingFetches => 10,
            Self::Role => 1000,
        }
    }
}

impl Replica {
    /// Puts all deadlines, times and numbers to the values of their kind.
    ///
    /// A leader's repeated announcements do not go off any more: they say what the first one said.
    pub fn still(&mut self) {
        let at_ns = |deadline_ns: &mut u64, alarm: Alarm| {
            if *deadline_ns != NEVER_NS {
                *deadline_ns = alarm.at_ns();
            }
        };
        match &mut self.role {
            RoleState::Unattached(state) => at_ns(&mut state.election_deadline_ns, Alarm::Role),
            RoleState::Prospective(state) => at_ns(&mut state.election_deadline_ns, Alarm::Role),
            RoleState::Candidate(state) => at_ns(&mut state.election_deadline_ns, Alarm::Role),
            RoleState::Resigned(state) => at_ns(&mut state.election_deadline_ns, Alarm::Role),
            RoleState::Follower(state) => {
                at_ns(&mut state.fetch_deadline_ns, Alarm::Role);
                state.upkeep_deadline_ns = NEVER_NS;
                // It only words why the timer went off.
                state.has_leader_resigned = false;
            }
            RoleState::Leader(state) => {
                at_ns(&mut state.check_quorum_deadline_ns, Alarm::Role);
                for parked in &mut state.parked {
                    at_ns(&mut parked.deadline_ns, Alarm::WaitingFetches);
                }
                state.still(self.voter_history.latest(), AWAITED);
            }
        }
        self.peers.still(AWAITED, FIRST_NEW);
        self.random = Random::new(self.configuration.random_seed);
        self.now_ns = 0;
    }

    /// Feeds everything that decides what this replica does from here on. It must be [still](Self::still).
    pub fn hash_state(&self, hasher: &mut impl Hasher) {
        let Self {
            configuration: _, // the same for ever
            voter_history,
            random: _, // the same whenever it is still
            quorum_state,
            log,
            high_watermark,
            committed,
            role,
            peers,
            learned_endpoint,
            endpoint_news_count: _, // decides nothing
            shutting_down,
            now_ns: _,  // 0 whenever it is still
            effects: _, // empty between steps
        } = self;
        (voter_history, quorum_state, log, high_watermark).hash(hasher);
        (committed, role, learned_endpoint, shutting_down).hash(hasher);
        peers.hash_state(hasher);
    }

    /// The request to `peer` that waits for its answer.
    pub fn awaits(&self, peer: NodeId) -> Option<Correlation> {
        self.peers.awaited(peer)
    }

    /// Whether a tick at [`Alarm::BackOff`] changes anything.
    pub fn is_backing_off(&self) -> bool {
        self.peers.is_backing_off()
    }

    /// Whether a tick at [`Alarm::Role`] changes anything.
    pub fn has_role_timer(&self) -> bool {
        match &self.role {
            RoleState::Unattached(state) => state.election_deadline_ns != NEVER_NS,
            RoleState::Leader(state) => state.check_quorum_deadline_ns != NEVER_NS,
            _ => self.next_deadline_ns() != NEVER_NS,
        }
    }

    /// Whether a fetch waits here whose sender does not know what is committed, as far as this leader does.
    pub fn has_news_for_waiting(&self) -> bool {
        self.as_leader().is_some_and(|leader| {
            let mut waiting = leader.parked.iter();
            waiting.any(|parked| parked.request.high_watermark < self.high_watermark)
        })
    }

    /// Whether `request`, of this replica to `peer`, is one of those by which it looks for a leader: it could
    /// as well have been sent to any other peer, by a draw.
    pub fn is_discovering(&self, peer: NodeId, request: &Request) -> bool {
        let leader = match &self.role {
            RoleState::Follower(state) => Some(state.leader),
            _ => None,
        };
        matches!(request, Request::Fetch(_)) && leader != Some(peer)
    }

    /// Makes the request that waits for an answer of `drawn` one to `other`, as if that had been drawn.
    pub fn redraw(&mut self, drawn: NodeId, other: NodeId) {
        self.peers.redraw(drawn, other);
    }

    /// Whether a fetch of this ticket waits here.
    pub fn holds_fetch(&self, ticket: Ticket) -> bool {
        let leader = self.as_leader();
        leader.is_some_and(|leader| leader.parked.iter().any(|parked| parked.ticket == ticket))
    }

    /// Drops the waiting fetches of this ticket, to whose answer nobody listens any more.
    pub fn drop_fetches(&mut self, ticket: Ticket) {
        if let Some(leader) = self.as_leader_mut() {
            leader.parked.retain(|parked| parked.ticket != ticket);
        }
    }
}
