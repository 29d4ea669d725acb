//! Owns the state of a replica that knows no leader it can follow.
//! Never raises its own epoch; it only learns of later ones.

use super::RoleState;
use crate::ids::{Epoch, NodeId};
use crate::message::Request;
use crate::raft::peers::Asked;
use crate::raft::timers::{NEVER_NS, is_due};
use crate::raft::{QuorumState, Replica};

/// Waits for a leader, a reason to vote, or its election timer.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Unattached {
    pub(crate) election_deadline_ns: u64,
}

impl Replica {
    /// Moves to a later epoch in which no leader that could be followed is known.
    pub(in crate::raft) fn adopt_epoch(
        &mut self,
        epoch: Epoch,
        leader: Option<NodeId>,
        reason: &'static str,
    ) {
        // A nominee or waiting replica keeps its remaining time, so that a stream of newer epochs
        // cannot keep it from ever standing for election.
        let election_deadline_ns = match &self.role {
            RoleState::Unattached(state) => state.election_deadline_ns,
            RoleState::Prospective(state) => state.election_deadline_ns,
            RoleState::Candidate(state) => state.election_deadline_ns,
            _ => self.fresh_election_deadline_ns(),
        };
        self.become_unattached(
            QuorumState {
                epoch,
                leader,
                voted_for: None,
            },
            election_deadline_ns,
            reason,
        );
    }

    /// Waits; an observer as long as it takes, because it cannot stand for election.
    pub(in crate::raft) fn become_unattached(
        &mut self,
        quorum_state: QuorumState,
        election_deadline_ns: u64,
        reason: &'static str,
    ) {
        let election_deadline_ns = match (self.is_voter(), election_deadline_ns) {
            (false, _) => NEVER_NS,
            (true, NEVER_NS) => self.fresh_election_deadline_ns(),
            (true, kept_ns) => kept_ns,
        };
        let role = RoleState::Unattached(Unattached {
            election_deadline_ns,
        });
        self.transition(role, quorum_state, reason);
    }

    pub(in crate::raft) fn run_unattached_timers(&mut self) -> bool {
        let RoleState::Unattached(state) = &self.role else {
            return false;
        };
        let due = is_due(state.election_deadline_ns, self.now_ns);
        if due {
            self.become_prospective("election timeout");
        }
        due
    }

    /// Fetches from anyone known to learn from its answer who leads (KAFKA-17030).
    pub(in crate::raft) fn send_discovery_fetch(&mut self, except: Option<NodeId>) {
        // A fetch promises that everything before its offset is durable.
        if self.peers.any_in_flight() || !self.log.is_flushed() {
            return;
        }
        let mut ready = self.discovery_candidates(except);
        ready.retain(|&peer| self.peers.is_ready(peer));
        if ready.is_empty() {
            return;
        }
        let chosen = ready[self.random.below(ready.len() as u64) as usize];
        let request = Request::Fetch(self.fetch_request());
        self.send(chosen, Asked::Fetch, request);
    }
}
