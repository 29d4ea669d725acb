//! Owns the state of a voter that stands for election in an epoch of its own.
//! Never asks for a vote before its vote for itself is durable.

use super::RoleState;
use crate::ids::NodeId;
use crate::mutants::Bug;
use crate::raft::election::Tally;
use crate::raft::timers::is_due;
use crate::raft::{QuorumState, Replica};
use crate::voters::VoterSet;

/// Collects votes.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Candidate {
    pub(crate) tally: Tally,
    pub(crate) election_deadline_ns: u64,
}

impl Candidate {
    pub(crate) fn new(voters: &VoterSet, id: NodeId, election_deadline_ns: u64) -> Self {
        Self {
            tally: Tally::new(voters, id),
            election_deadline_ns,
        }
    }
}

impl Replica {
    pub(in crate::raft) fn become_candidate(&mut self) {
        let election_deadline_ns = self.fresh_election_deadline_ns();
        let candidate =
            Candidate::new(self.voter_history.latest(), self.id(), election_deadline_ns);
        let quorum_state = QuorumState {
            epoch: self.epoch().next(),
            leader: None,
            voted_for: Some(self.configuration.key()),
        };
        self.transition(
            RoleState::Candidate(candidate),
            quorum_state,
            "pre-election won",
        );
    }

    pub(in crate::raft) fn run_candidate_timers(&mut self) -> bool {
        let RoleState::Candidate(state) = &self.role else {
            return false;
        };
        if state.tally.is_granted() {
            let granting = state.tally.granting();
            self.become_leader(granting);
        } else if is_due(state.election_deadline_ns, self.now_ns)
            && !self.configuration.has(Bug::CandidateNoTimeout)
        {
            // Also after losing: waiting out the timer staggers rivals (KAFKA-18345).
            self.become_prospective("election timeout");
        } else {
            return false;
        }
        true
    }
}
