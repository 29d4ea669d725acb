//! Owns the state of a replica that gave up the leadership of its epoch.
//! Never votes or leads in that epoch again.

use std::collections::BTreeSet;

use super::RoleState;
use crate::ids::{NodeId, ReplicaKey};
use crate::message::{EndQuorumEpochRequest, Request};
use crate::raft::peers::Asked;
use crate::raft::timers::is_due;
use crate::raft::{QuorumState, Replica};
use crate::voters::VoterSet;

/// Tells the other voters, then waits for a later epoch.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Resigned {
    /// Voters that have not confirmed that they know.
    pub(crate) unacknowledged: BTreeSet<NodeId>,
    /// The other voters, the longest log first.
    preferred_successors: Vec<ReplicaKey>,
    pub(crate) election_deadline_ns: u64,
}

impl Resigned {
    pub(crate) fn new(
        voters: &VoterSet,
        id: NodeId,
        preferred_successors: Vec<ReplicaKey>,
        election_deadline_ns: u64,
    ) -> Self {
        let unacknowledged = voters.ids().filter(|&voter| voter != id).collect();
        Self {
            unacknowledged,
            preferred_successors,
            election_deadline_ns,
        }
    }
}

impl Replica {
    /// Gives up leadership of the present epoch.
    pub(in crate::raft) fn resign(&mut self, reason: &'static str) {
        let Some(leader) = self.as_leader() else {
            return;
        };
        let successors = leader.preferred_successors(self.voter_history.latest(), self.id());
        let election_deadline_ns = self.fresh_election_deadline_ns();
        let voters = self.voter_history.latest();
        let resigned = Resigned::new(voters, self.id(), successors, election_deadline_ns);
        let quorum_state = self.quorum_state;
        self.transition(RoleState::Resigned(resigned), quorum_state, reason);
    }

    pub(in crate::raft) fn run_resigned_timers(&mut self) -> bool {
        let RoleState::Resigned(state) = &self.role else {
            return false;
        };
        let due = is_due(state.election_deadline_ns, self.now_ns);
        if due {
            // A later epoch, so that it can vote again and nobody takes it for the leader.
            let quorum_state = QuorumState {
                epoch: self.epoch().next(),
                leader: None,
                voted_for: None,
            };
            let election_deadline_ns = self.fresh_election_deadline_ns();
            self.become_unattached(quorum_state, election_deadline_ns, "resigned long enough");
        }
        due
    }

    pub(in crate::raft) fn send_end_quorum_epoch(&mut self) {
        let RoleState::Resigned(state) = &self.role else {
            return;
        };
        let waiting: Vec<_> = state.unacknowledged.iter().copied().collect();
        let preferred_successors = state.preferred_successors.clone();
        for peer in waiting {
            if self.peers.is_ready(peer) {
                let request = Request::EndQuorumEpoch(EndQuorumEpochRequest {
                    cluster_id: self.configuration.cluster_id.clone(),
                    leader_id: self.id(),
                    leader_epoch: self.epoch(),
                    preferred_successors: preferred_successors.clone(),
                    leader_endpoint: self.configuration.endpoint.clone(),
                });
                self.send(peer, Asked::EndQuorumEpoch, request);
            }
        }
    }

    pub(in crate::raft) fn on_end_quorum_epoch_answer(&mut self, peer: NodeId) {
        if let RoleState::Resigned(state) = &mut self.role {
            state.unacknowledged.remove(&peer);
        }
    }
}
