//! Owns how answers of peers are received: what they say of epochs and leaders, then their matter.
//! Never takes an answer to another question: an answer counts only for the request in flight.

use super::peers::Asked;
use super::role::RoleState;
use super::{Correlation, PeerAnswer, Replica};
use crate::ids::{Epoch, NodeId};
use crate::message::{ErrorCode, Response};
use crate::mutants::Bug;

/// What an answer says of the outcome and of who leads.
#[derive(Debug)]
struct Claim {
    error: ErrorCode,
    leader: Option<NodeId>,
    epoch: Epoch,
    endpoint: Option<String>,
}

impl Claim {
    fn of(response: &Response) -> Self {
        macro_rules! claim {
            ($response:expr) => {
                Self {
                    error: $response.error,
                    leader: $response.leader_id,
                    epoch: $response.leader_epoch,
                    endpoint: $response.leader_endpoint.clone(),
                }
            };
        }
        match response {
            Response::Vote(response) => claim!(response),
            Response::BeginQuorumEpoch(response) | Response::EndQuorumEpoch(response) => {
                claim!(response)
            }
            Response::Fetch(response) => claim!(response),
            Response::FetchSnapshot(response) => claim!(response),
            Response::DescribeQuorum(response) => claim!(response),
            Response::AddRaftVoter(response)
            | Response::RemoveRaftVoter(response)
            | Response::UpdateRaftVoter(response)
            | Response::UpdateFeatures(response) => claim!(response),
            Response::ApiVersions(response) => Self {
                error: response.error,
                leader: None,
                epoch: Epoch(0),
                endpoint: None,
            },
        }
    }
}

/// What a leader says for now of a change of voters, as while another one is under way. Leaving it alone for that
/// would send the next fetch to any other voter, and if that one is dead, the leader hears nothing for longer than
/// the fetch timeout.
const NO_SUCH_CHANGE: &[ErrorCode] = &[
    ErrorCode::RequestTimedOut,
    ErrorCode::InvalidRequest,
    ErrorCode::DuplicateVoter,
    ErrorCode::VoterNotFound,
    ErrorCode::UnsupportedVersion,
];

/// What a leader says of a snapshot that is not there.
const NO_SUCH_SNAPSHOT: &[ErrorCode] =
    &[ErrorCode::SnapshotNotFound, ErrorCode::PositionOutOfRange];

impl Claim {
    /// What is left to claim where these refusals are answers, not failures to give one.
    fn answering_with(self, refusals: &[ErrorCode]) -> Self {
        let error = match self.error {
            error if refusals.contains(&error) => ErrorCode::None,
            error => error,
        };
        Self { error, ..self }
    }
}

/// Whether an answer shows that it is not `peer` who listens where `peer` was asked. A replica refuses what is
/// meant for another one, or comes from itself, and no leader says that it does not lead.
pub(crate) fn is_of_another(peer: NodeId, response: &Response) -> bool {
    let claim = Claim::of(response);
    let about_change = matches!(
        response,
        Response::AddRaftVoter(_)
            | Response::RemoveRaftVoter(_)
            | Response::UpdateRaftVoter(_)
            | Response::UpdateFeatures(_)
    );
    match claim.error {
        ErrorCode::InvalidVoterKey | ErrorCode::InconsistentClusterId => true,
        // The leader may find a change itself invalid.
        ErrorCode::InvalidRequest => !about_change,
        ErrorCode::NotLeaderOrFollower => claim.leader == Some(peer),
        _ => false,
    }
}

impl Replica {
    pub(super) fn on_answer(&mut self, peer: NodeId, correlation: Correlation, answer: PeerAnswer) {
        let Some(asked) = self.peers.take_asked(peer, correlation) else {
            return self.take_forgotten(peer, answer);
        };
        let PeerAnswer::Response(response) = answer else {
            self.peers.back_off(self.now_ns, peer);
            if asked != Asked::ApiVersions {
                self.note_silence(peer);
            }
            return self.on_unanswered_probe(correlation);
        };
        if asked != Asked::ApiVersions && is_of_another(peer, &response) {
            self.note_another(peer);
        }
        let claim = Claim::of(&response);
        match (asked, *response) {
            (Asked::Vote { epoch, pre_vote }, Response::Vote(response)) => {
                let later = response.leader_epoch > self.epoch();
                if pre_vote && later && self.configuration.has(Bug::PreVoteNoEpochAdopt) {
                    return self.peers.back_off(self.now_ns, peer);
                }
                if self.digest(peer, &claim) {
                    self.on_vote_answer(peer, epoch, pre_vote, response.vote_granted);
                }
            }
            (Asked::BeginQuorumEpoch, Response::BeginQuorumEpoch(_)) => {
                self.digest(peer, &claim);
            }
            (Asked::AddRaftVoter, Response::AddRaftVoter(_))
            | (Asked::RemoveRaftVoter, Response::RemoveRaftVoter(_)) => {
                self.digest(peer, &claim.answering_with(NO_SUCH_CHANGE));
            }
            (Asked::EndQuorumEpoch, Response::EndQuorumEpoch(_)) => {
                if self.digest(peer, &claim) {
                    self.on_end_quorum_epoch_answer(peer);
                }
            }
            (Asked::Fetch, Response::Fetch(response)) => {
                if self.digest(peer, &claim) {
                    self.on_fetched(peer, response);
                }
            }
            (Asked::FetchSnapshot, Response::FetchSnapshot(response)) => {
                if self.digest(peer, &claim.answering_with(NO_SUCH_SNAPSHOT)) {
                    self.on_snapshot_fetched(peer, response);
                }
            }
            (Asked::UpdateRaftVoter, Response::UpdateRaftVoter(_)) => {
                let was_taken = claim.error == ErrorCode::None;
                if self.digest(peer, &claim.answering_with(NO_SUCH_CHANGE)) && was_taken {
                    self.on_updated(peer);
                }
            }
            (Asked::ApiVersions, Response::ApiVersions(response)) => {
                self.on_probed(correlation, &response);
            }
            _ => {
                self.peers.back_off(self.now_ns, peer);
                self.on_unanswered_probe(correlation);
            }
        }
    }

    /// An answer to a question that is no longer asked means nothing, unless B20 or B21 is on.
    fn take_forgotten(&mut self, peer: NodeId, answer: PeerAnswer) {
        let PeerAnswer::Response(response) = answer else {
            return;
        };
        match (self.configuration.bug, *response) {
            (Some(Bug::AppendStaleEpochBatch), Response::Fetch(response)) => {
                if matches!(self.role, RoleState::Follower(_)) {
                    self.append_fetched(peer, response.batches);
                    let claimed = response.high_watermark.into_iter();
                    claimed.for_each(|claimed| self.follow_high_watermark(claimed));
                }
            }
            (Some(Bug::PreVoteCountedAsVote), Response::Vote(response))
                if response.vote_granted =>
            {
                match &mut self.role {
                    RoleState::Prospective(state) => state.tally.record(peer, true),
                    RoleState::Candidate(state) => state.tally.record(peer, true),
                    _ => {}
                }
            }
            _ => {}
        }
    }

    /// Handles what all answers have in common, in Kafka's order. Whether there is more in it.
    fn digest(&mut self, peer: NodeId, claim: &Claim) -> bool {
        let (error, leader, epoch) = (claim.error, claim.leader, claim.epoch);
        let goes_on = match error {
            // Of another cluster, or broken: its epochs mean nothing here.
            ErrorCode::InconsistentClusterId | ErrorCode::UnknownServerError => false,
            ErrorCode::UnknownLeaderEpoch => false,
            _ if epoch < self.epoch() || !self.epoch().can_reach(epoch) => false,
            _ => {
                let before = self.quorum_state;
                if let Some(leader) = leader {
                    // A leader says nothing of the kind; whoever does, and names it, is another.
                    let of_another = matches!(
                        error,
                        ErrorCode::NotLeaderOrFollower
                            | ErrorCode::InvalidVoterKey
                            | ErrorCode::InvalidRequest
                    );
                    let first_hand = leader == peer && !of_another;
                    self.learn_endpoint(leader, epoch, claim.endpoint.as_deref(), first_hand);
                }
                self.learn_leader(leader, epoch);
                let moved = self.quorum_state != before;
                if epoch > before.epoch || (moved && error != ErrorCode::None) {
                    // The change of state has already cleared the way for new requests.
                    return false;
                }
                // Kafka asks again at once after NOT_LEADER; that spins until the timer ends.
                error == ErrorCode::None
            }
        };
        let at_once =
            error == ErrorCode::NotLeaderOrFollower && self.configuration.has(Bug::NoRetryBackoff);
        if !goes_on && !at_once {
            self.peers.back_off(self.now_ns, peer);
        }
        goes_on
    }

    fn on_vote_answer(&mut self, peer: NodeId, epoch: Epoch, pre_vote: bool, granted: bool) {
        if epoch != self.epoch() {
            return;
        }
        match &mut self.role {
            RoleState::Prospective(state) if pre_vote => state.tally.record(peer, granted),
            RoleState::Candidate(state) if !pre_vote => state.tally.record(peer, granted),
            _ => {}
        }
    }
}
