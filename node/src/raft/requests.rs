//! Owns how requests of peers are received: cluster and epoch checks, votes, leader announcements.
//! Never trusts a sender: what no correct peer would send is refused, without a change of state.

use super::role::RoleState;
use super::timers::after;
use super::votes::{Question, Standing, grants, is_up_to_date};
use super::{Effect, QuorumState, Replica, Ticket};
use crate::ids::{Epoch, NodeId, Offset, ReplicaKey};
use crate::message::{
    ApiVersionsResponse, BeginQuorumEpochRequest, DescribeQuorumResponse, EndQuorumEpochRequest,
    ErrorCode, FetchResponse, FetchSnapshotResponse, QuorumEpochResponse, Request, Response,
    VoteRequest, VoteResponse, VoterChangeResponse,
};
use crate::mutants::Bug;
use crate::voters::VersionRange;

impl Replica {
    pub(super) fn on_request(&mut self, ticket: Ticket, request: Box<Request>) {
        let foreign = request.is_for_another_cluster(&self.configuration.cluster_id);
        if foreign && !self.configuration.has(Bug::ClusterIdSkip) {
            // Says nothing about this cluster's epochs, which mean nothing in the sender's.
            let refusal = refusal(&request, ErrorCode::InconsistentClusterId, None, Epoch(0));
            let response = Box::new(refusal);
            return self.effect(Effect::Reply { ticket, response });
        }
        let response = match *request {
            Request::Fetch(request) => return self.on_fetch(ticket, request),
            Request::FetchSnapshot(request) => return self.on_fetch_snapshot(ticket, &request),
            Request::AddRaftVoter(request) => return self.on_add_voter(ticket, request),
            Request::RemoveRaftVoter(request) => return self.on_remove_voter(ticket, request),
            Request::UpdateRaftVoter(request) => return self.on_update_voter(ticket, request),
            Request::UpdateFeatures(request) => return self.on_update_features(ticket, &request),
            Request::DescribeQuorum(_) => Response::DescribeQuorum(self.describe_quorum()),
            Request::Vote(request) => {
                let (error, vote_granted) = match self.receive_vote_request(&request) {
                    Ok(granted) => (ErrorCode::None, granted),
                    Err(error) => (error, false),
                };
                Response::Vote(VoteResponse {
                    error,
                    leader_id: self.quorum_state.leader,
                    leader_epoch: self.epoch(),
                    vote_granted,
                    leader_endpoint: self.leader_endpoint(),
                })
            }
            Request::BeginQuorumEpoch(request) => {
                let outcome = self.receive_begin_quorum_epoch(&request);
                Response::BeginQuorumEpoch(self.quorum_epoch_response(outcome))
            }
            Request::EndQuorumEpoch(request) => {
                let outcome = self.receive_end_quorum_epoch(&request);
                Response::EndQuorumEpoch(self.quorum_epoch_response(outcome))
            }
            Request::ApiVersions(_) => Response::ApiVersions(ApiVersionsResponse {
                error: ErrorCode::None,
                replica: self.configuration.key(),
                versions: VersionRange::SUPPORTED,
            }),
        };
        let response = Box::new(response);
        self.effect(Effect::Reply { ticket, response });
    }

    fn quorum_epoch_response(&self, outcome: Result<(), ErrorCode>) -> QuorumEpochResponse {
        QuorumEpochResponse {
            error: outcome.err().unwrap_or(ErrorCode::None),
            leader_id: self.quorum_state.leader,
            leader_epoch: self.epoch(),
            leader_endpoint: self.leader_endpoint(),
        }
    }

    /// Whether the vote or pre-vote is granted. The order of the checks is Kafka's.
    fn receive_vote_request(&mut self, request: &VoteRequest) -> Result<bool, ErrorCode> {
        let epoch = request.replica_epoch;
        let impossible_log = if request.pre_vote {
            request.last_epoch > epoch
        } else {
            // The records of an epoch are written by its leader, who needs no votes any more.
            request.last_epoch >= epoch
        };
        if request.last_offset.0 < 0 || request.last_epoch.0 < 0 || impossible_log {
            return Err(ErrorCode::InvalidRequest);
        }
        self.check_sender(request.replica.id, epoch)?;
        let ignored = request.pre_vote && self.configuration.has(Bug::PreVoteNoEpochAdopt);
        if epoch > self.epoch() && !ignored {
            // Even for a pre-vote: without it, a group that lags behind would never learn the epoch.
            self.adopt_epoch(epoch, None, "vote request of a later epoch");
        }
        if !request.voter.accepts(&self.configuration.key()) {
            return Err(ErrorCode::InvalidVoterKey);
        }
        let candidate_log = (request.last_epoch, request.last_offset);
        let question = Question {
            candidate: request.replica,
            pre_vote: request.pre_vote,
            log_is_up_to_date: self.finds_up_to_date(candidate_log),
            voted_for: self.quorum_state.voted_for,
            leader: self.quorum_state.leader,
        };
        // Also an observer answers, and may grant: it may be a voter by a record that has not reached
        // it yet.
        let answers = self.is_voter() || !self.configuration.has(Bug::ObserverRefusesVote);
        let granted = answers && grants(self.standing(), question);
        if granted && !request.pre_vote && self.quorum_state.voted_for.is_none() {
            self.vote_for(request.replica);
        }
        Ok(granted)
    }

    /// Whether a candidate's log, given by its last epoch and end, is as complete as this one.
    fn finds_up_to_date(&self, candidate: (Epoch, Offset)) -> bool {
        let local = (self.log.last_epoch(), self.log.end());
        match self.configuration.bug {
            Some(Bug::VoteCompareOffsetOnly) => candidate.1 >= local.1,
            Some(Bug::VoteNoLogCheck | Bug::TruncateBelowHighWatermark) => true,
            Some(Bug::VoteStrictlyGreater) => candidate > local,
            _ => is_up_to_date(candidate, local),
        }
    }

    fn standing(&self) -> Standing {
        match &self.role {
            RoleState::Unattached(_) => Standing::Unattached,
            RoleState::Prospective(_) => Standing::Prospective,
            RoleState::Candidate(_) => Standing::Candidate,
            RoleState::Leader(_) => Standing::Leader,
            RoleState::Follower(state) => Standing::Follower {
                has_fetched: state.has_fetched
                    || self.configuration.has(Bug::PreVoteFollowerAlwaysRejects),
            },
            RoleState::Resigned(_) => Standing::Resigned,
        }
    }

    /// Gives the vote of this epoch away; the timer starts anew to give the candidate its time.
    ///
    /// # Panics
    /// If that is this replica: its own vote comes only with an epoch of its own.
    fn vote_for(&mut self, candidate: ReplicaKey) {
        assert_ne!(
            candidate.id,
            self.id(),
            "{candidate} cannot be given its own vote in epoch {}",
            self.epoch()
        );
        let quorum_state = QuorumState {
            voted_for: Some(candidate),
            ..self.quorum_state
        };
        match self.role {
            RoleState::Prospective(_) => self.become_prospective_with(quorum_state, "voted"),
            _ => {
                let election_deadline_ns = self.fresh_election_deadline_ns();
                self.become_unattached(quorum_state, election_deadline_ns, "voted");
            }
        }
    }

    fn receive_begin_quorum_epoch(
        &mut self,
        request: &BeginQuorumEpochRequest,
    ) -> Result<(), ErrorCode> {
        let (leader, epoch) = (request.leader_id, request.leader_epoch);
        self.check_leader(leader, epoch, request.leader_endpoint.as_deref())?;
        self.learn_leader(Some(leader), epoch);
        if !request.voter.accepts(&self.configuration.key()) {
            return Err(ErrorCode::InvalidVoterKey);
        }
        if self.configuration.has(Bug::BeginResetsFetchTimer) {
            self.count_as_fetched();
        }
        Ok(())
    }

    /// The seeded bug B30.
    fn count_as_fetched(&mut self) {
        let fetch_timeout_ns = self.configuration.timers.fetch_timeout_ns;
        if let RoleState::Follower(state) = &mut self.role {
            state.fetch_deadline_ns = after(self.now_ns, fetch_timeout_ns);
        }
    }

    fn receive_end_quorum_epoch(
        &mut self,
        request: &EndQuorumEpochRequest,
    ) -> Result<(), ErrorCode> {
        let (leader, epoch) = (request.leader_id, request.leader_epoch);
        self.check_leader(leader, epoch, request.leader_endpoint.as_deref())?;
        self.learn_leader(Some(leader), epoch);
        self.on_leader_resigned(leader, &request.preferred_successors);
        Ok(())
    }

    fn check_leader(
        &mut self,
        leader: NodeId,
        epoch: Epoch,
        endpoint: Option<&str>,
    ) -> Result<(), ErrorCode> {
        self.check_sender(leader, epoch)?;
        self.learn_endpoint(leader, epoch, endpoint, true);
        if self.can_follow(leader) {
            Ok(())
        } else {
            Err(ErrorCode::InvalidRequest)
        }
    }

    fn check_sender(&self, sender: NodeId, epoch: Epoch) -> Result<(), ErrorCode> {
        if epoch < self.epoch() {
            return Err(ErrorCode::FencedLeaderEpoch);
        }
        if sender.0 < 0 || sender == self.id() || !self.epoch().can_reach(epoch) {
            return Err(ErrorCode::InvalidRequest);
        }
        Ok(())
    }

    /// Takes over what a peer says about an epoch that is not older than the own.
    ///
    /// # Panics
    /// If that names a second leader of an epoch, or makes this replica the leader of an epoch that
    /// it does not lead: either means that somewhere a promise to disk was lost.
    pub(super) fn learn_leader(&mut self, leader: Option<NodeId>, epoch: Epoch) {
        assert!(
            epoch >= self.epoch(),
            "callers drop what is about older epochs"
        );
        let id = self.id();
        let leader = leader.filter(|&leader| leader != id || !self.has_namesake());
        if epoch > self.epoch() {
            match leader {
                Some(leader) if leader == id => panic!(
                    "a peer says that {id} leads epoch {epoch}, but {id} only knows epoch {}: its \
                     quorum-state file was lost or rolled back",
                    self.epoch()
                ),
                Some(leader) if self.can_follow(leader) => {
                    self.become_follower(epoch, leader, "leader of a later epoch");
                }
                unreachable => self.adopt_epoch(epoch, unreachable, "later epoch"),
            }
            return;
        }
        let Some(leader) = leader else { return };
        match self.quorum_state.leader {
            Some(known) => {
                assert_eq!(
                    known, leader,
                    "two leaders in epoch {epoch}: {id} knows {known}, but a peer says {leader}"
                );
                // It could not be followed so far, or this is an observer that had lost it.
                if matches!(self.role, RoleState::Unattached(_)) && self.can_follow(leader) {
                    self.become_follower(epoch, leader, "leader of the epoch can be followed");
                }
            }
            None if leader == id => panic!(
                "a peer says that {id} leads epoch {epoch}, which {id} does not remember: its \
                 quorum-state file was lost or rolled back"
            ),
            None if self.can_follow(leader) => {
                self.become_follower(epoch, leader, "leader of the epoch");
            }
            None => {}
        }
    }
}

/// The answer that says no more than why not, and who leads.
pub(crate) fn refusal(
    request: &Request,
    error: ErrorCode,
    leader_id: Option<NodeId>,
    leader_epoch: Epoch,
) -> Response {
    let leader_endpoint = None;
    let quorum_epoch = QuorumEpochResponse {
        error,
        leader_id,
        leader_epoch,
        leader_endpoint: None,
    };
    let voter_change = VoterChangeResponse {
        error,
        message: String::new(),
        leader_id,
        leader_epoch,
        leader_endpoint: None,
    };
    match request {
        Request::Vote(_) => Response::Vote(VoteResponse {
            error,
            leader_id,
            leader_epoch,
            leader_endpoint,
            vote_granted: false,
        }),
        Request::BeginQuorumEpoch(_) => Response::BeginQuorumEpoch(quorum_epoch),
        Request::EndQuorumEpoch(_) => Response::EndQuorumEpoch(quorum_epoch),
        Request::Fetch(_) => Response::Fetch(FetchResponse {
            error,
            leader_id,
            leader_epoch,
            leader_endpoint,
            high_watermark: None,
            log_start_offset: Offset(0),
            diverging_epoch: None,
            snapshot_id: None,
            read_round: 0,
            batches: Vec::new(),
        }),
        Request::FetchSnapshot(request) => Response::FetchSnapshot(FetchSnapshotResponse {
            error,
            leader_id,
            leader_epoch,
            leader_endpoint,
            snapshot_id: request.snapshot_id,
            size_bytes: 0,
            position_bytes: request.position_bytes,
            bytes: Vec::new(),
        }),
        Request::DescribeQuorum(_) => Response::DescribeQuorum(DescribeQuorumResponse {
            error,
            leader_id,
            leader_epoch,
            leader_endpoint,
            high_watermark: None,
            current_voters: Vec::new(),
            observers: Vec::new(),
        }),
        Request::AddRaftVoter(_) => Response::AddRaftVoter(voter_change),
        Request::RemoveRaftVoter(_) => Response::RemoveRaftVoter(voter_change),
        Request::UpdateRaftVoter(_) => Response::UpdateRaftVoter(voter_change),
        Request::UpdateFeatures(_) => Response::UpdateFeatures(voter_change),
        Request::ApiVersions(_) => Response::ApiVersions(ApiVersionsResponse {
            error,
            replica: NodeId(-1).into(),
            versions: VersionRange::SUPPORTED,
        }),
    }
}
