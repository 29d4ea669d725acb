//! Owns the state of a voter that asks whether an election could succeed (pre-vote, KIP-996).
//! Never changes anything durable by asking, so a cut-off voter disturbs nobody when it comes back.

use super::RoleState;
use crate::message::{Request, VoteRequest};
use crate::mutants::Bug;
use crate::raft::election::Tally;
use crate::raft::peers::Asked;
use crate::raft::timers::is_due;
use crate::raft::{QuorumState, Replica, Role};

/// Collects pre-votes.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Prospective {
    pub(crate) tally: Tally,
    pub(crate) election_deadline_ns: u64,
}

impl Replica {
    /// Begins a pre-election in the present epoch; leader and vote of the epoch stay known.
    pub(in crate::raft) fn become_prospective(&mut self, reason: &'static str) {
        let quorum_state = self.quorum_state;
        self.become_prospective_with(quorum_state, reason);
    }

    /// The same after granting a vote, which the new quorum state contains.
    pub(in crate::raft) fn become_prospective_with(
        &mut self,
        quorum_state: QuorumState,
        reason: &'static str,
    ) {
        let tally = Tally::new(self.voter_history.latest(), self.id());
        let election_deadline_ns = self.fresh_election_deadline_ns();
        let role = RoleState::Prospective(Prospective {
            tally,
            election_deadline_ns,
        });
        self.transition(role, quorum_state, reason);
    }

    pub(in crate::raft) fn run_prospective_timers(&mut self) -> bool {
        let RoleState::Prospective(state) = &self.role else {
            return false;
        };
        if state.tally.is_granted() || self.configuration.has(Bug::NoPreVote) {
            self.become_candidate();
        } else if state.tally.is_lost() {
            let election_deadline_ns = self.fresh_election_deadline_ns();
            self.give_up_pre_election(election_deadline_ns, "pre-election lost");
        } else if is_due(state.election_deadline_ns, self.now_ns) {
            // The deadline has passed, so without a leader the next pre-election begins at once.
            let election_deadline_ns = state.election_deadline_ns;
            self.give_up_pre_election(election_deadline_ns, "pre-election timeout");
        } else {
            return false;
        }
        true
    }

    fn give_up_pre_election(&mut self, election_deadline_ns: u64, reason: &'static str) {
        let quorum_state = self.quorum_state;
        match quorum_state.leader {
            Some(leader) if self.can_follow(leader) => {
                self.become_follower(quorum_state.epoch, leader, reason);
            }
            _ => self.become_unattached(quorum_state, election_deadline_ns, reason),
        }
    }

    /// Asks every voter that has not answered yet, as long as the election can be won.
    pub(in crate::raft) fn send_vote_requests(&mut self) {
        let tally = match &self.role {
            RoleState::Prospective(state) => &state.tally,
            RoleState::Candidate(state) => &state.tally,
            _ => return,
        };
        if tally.is_lost() {
            return;
        }
        let pre_vote = self.role() == Role::Prospective;
        let epoch = self.epoch();
        for peer in tally.unrecorded() {
            if !self.peers.is_ready(peer) {
                continue;
            }
            let voters = self.voter_history.latest();
            let request = Request::Vote(VoteRequest {
                cluster_id: self.configuration.cluster_id.clone(),
                voter: voters.get(peer).map_or(peer.into(), |voter| voter.key),
                replica: self.configuration.key(),
                replica_epoch: epoch,
                last_epoch: self.log.last_epoch(),
                last_offset: self.log.end(),
                pre_vote,
            });
            self.send(peer, Asked::Vote { epoch, pre_vote }, request);
        }
    }
}
