//! Owns what depends on being a voter or not, and how a follower keeps its place in the voter set.
//! Never stores whether a replica is a voter: it follows from the log, on every look (KIP-853).

use super::Replica;
use super::peers::Asked;
use super::role::RoleState;
use super::timers::{after, is_due};
use crate::ids::NodeId;
use crate::message::{
    AddRaftVoterRequest, RemoveRaftVoterRequest, Request, UpdateRaftVoterRequest,
};
use crate::voters::VersionRange;

const NS_PER_MS: u64 = 1_000_000;

impl Replica {
    /// Whether this very replica is one of the latest voters in its log, committed or not.
    pub fn is_voter(&self) -> bool {
        let voters = self.voter_history.latest();
        voters.contains(&self.configuration.key())
    }

    /// Whether this replica is the only voter, so that it needs nobody.
    pub(super) fn is_only_voter(&self) -> bool {
        self.voter_history.latest().len() == 1 && self.is_voter()
    }

    /// Whether a leader with this replica's id, which this replica does not remember to have been, is
    /// another replica: one that had the id before, with another data directory.
    pub(super) fn has_namesake(&self) -> bool {
        self.configuration.directory_id.is_some() && !self.is_voter()
    }

    /// What this follower has to ask of the leader about its own membership, if the time has come.
    pub(super) fn take_due_upkeep(&mut self) -> Option<(Asked, Request)> {
        let (now_ns, period_ns) = (self.now_ns, self.configuration.timers.fetch_timeout_ns);
        let RoleState::Follower(state) = &mut self.role else {
            return None;
        };
        if !is_due(state.upkeep_deadline_ns, now_ns) {
            return None;
        }
        // Also if there is nothing to do: an expired timer that stays would spin (KAFKA-17751).
        state.upkeep_deadline_ns = after(now_ns, period_ns);
        self.upkeep()
    }

    fn upkeep(&self) -> Option<(Asked, Request)> {
        let key = self.configuration.key();
        let endpoint = self.configuration.endpoint.clone()?;
        key.directory_id?;
        let in_log = self.voter_history.kraft_version() >= 1;
        let cluster_id = self.configuration.cluster_id.clone();
        let versions = VersionRange::SUPPORTED;
        let namesake = self.voter_history.latest().get(key.id);
        let joins = self.configuration.auto_join && self.configuration.can_become_voter;
        match namesake {
            Some(voter) if voter.key.accepts(&key) => {
                // What configured voters say of themselves is in no log, so every leader has to be told: it
                // is needed to put the voters into the log (KIP-853).
                let is_right = if in_log {
                    voter.endpoint.as_ref() == Some(&endpoint) && voter.versions == versions
                } else {
                    self.has_updated_leader()
                };
                let request = UpdateRaftVoterRequest {
                    cluster_id,
                    current_leader_epoch: self.epoch(),
                    voter: key,
                    endpoint,
                    versions,
                };
                (!is_right).then_some((Asked::UpdateRaftVoter, Request::UpdateRaftVoter(request)))
            }
            _ if !in_log => None,
            // The voter of this id had another data directory, so it is gone for good.
            Some(gone) if joins => {
                let voter = gone.key;
                let request = RemoveRaftVoterRequest { cluster_id, voter };
                Some((Asked::RemoveRaftVoter, Request::RemoveRaftVoter(request)))
            }
            None if joins => {
                let request = AddRaftVoterRequest {
                    cluster_id,
                    timeout_ms: self.configuration.timers.request_timeout_ns / NS_PER_MS,
                    voter: key,
                    endpoint,
                    // While it waits for the answer it does not fetch, so it could not be waited for.
                    ack_when_committed: false,
                };
                Some((Asked::AddRaftVoter, Request::AddRaftVoter(request)))
            }
            _ => None,
        }
    }

    /// The leader took this voter's update: it lives (KIP-853).
    pub(super) fn on_updated(&mut self, peer: NodeId) {
        let fetch_timeout_ns = self.configuration.timers.fetch_timeout_ns;
        if let RoleState::Follower(state) = &mut self.role
            && state.leader == peer
        {
            state.fetch_deadline_ns = after(self.now_ns, fetch_timeout_ns);
            state.has_updated_leader = true;
        }
    }

    fn has_updated_leader(&self) -> bool {
        matches!(&self.role, RoleState::Follower(state) if state.has_updated_leader)
    }
}
