//! Owns how answers of peers are received: what they say of epochs and leaders, then their matter.
//! Never takes an answer to another question: an answer counts only for the request in flight.

use super::peers::Asked;
use super::role::RoleState;
use super::{Correlation, PeerAnswer, Replica};
use crate::ids::{Epoch, NodeId};
use crate::message::{ErrorCode, Response};
use crate::mutants::Bug;

impl Replica {
    pub(super) fn on_answer(&mut self, peer: NodeId, correlation: Correlation, answer: PeerAnswer) {
        let Some(asked) = self.peers.take_asked(peer, correlation) else {
            return self.take_forgotten(peer, answer);
        };
        let PeerAnswer::Response(response) = answer else {
            return self.peers.back_off(self.now_ns, peer);
        };
        match (asked, response) {
            (Asked::Vote { epoch, pre_vote }, Response::Vote(response)) => {
                let later = response.leader_epoch > self.epoch();
                if pre_vote && later && self.configuration.has(Bug::PreVoteNoEpochAdopt) {
                    return self.peers.back_off(self.now_ns, peer);
                }
                if self.digest(
                    peer,
                    response.error,
                    response.leader_id,
                    response.leader_epoch,
                ) {
                    self.on_vote_answer(peer, epoch, pre_vote, response.vote_granted);
                }
            }
            (Asked::BeginQuorumEpoch, Response::BeginQuorumEpoch(response)) => {
                self.digest(
                    peer,
                    response.error,
                    response.leader_id,
                    response.leader_epoch,
                );
            }
            (Asked::EndQuorumEpoch, Response::EndQuorumEpoch(response)) => {
                if self.digest(
                    peer,
                    response.error,
                    response.leader_id,
                    response.leader_epoch,
                ) {
                    self.on_end_quorum_epoch_answer(peer);
                }
            }
            (Asked::Fetch, Response::Fetch(response)) => {
                if self.digest(
                    peer,
                    response.error,
                    response.leader_id,
                    response.leader_epoch,
                ) {
                    self.on_fetched(peer, response);
                }
            }
            (Asked::FetchSnapshot, Response::FetchSnapshot(response)) => {
                // That the snapshot is not there is an answer, not a failure to give one.
                let error = match response.error {
                    ErrorCode::SnapshotNotFound | ErrorCode::PositionOutOfRange => ErrorCode::None,
                    error => error,
                };
                if self.digest(peer, error, response.leader_id, response.leader_epoch) {
                    self.on_snapshot_fetched(peer, response);
                }
            }
            _ => self.peers.back_off(self.now_ns, peer),
        }
    }

    /// An answer to a question that is no longer asked means nothing, unless B20 or B21 is on.
    fn take_forgotten(&mut self, peer: NodeId, answer: PeerAnswer) {
        match (self.configuration.bug, answer) {
            (Some(Bug::AppendStaleEpochBatch), PeerAnswer::Response(Response::Fetch(response))) => {
                if matches!(self.role, RoleState::Follower(_)) {
                    self.append_fetched(peer, response.batches);
                    let claimed = response.high_watermark.into_iter();
                    claimed.for_each(|claimed| self.follow_high_watermark(claimed));
                }
            }
            (Some(Bug::PreVoteCountedAsVote), PeerAnswer::Response(Response::Vote(response)))
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
    fn digest(
        &mut self,
        peer: NodeId,
        error: ErrorCode,
        leader: Option<NodeId>,
        epoch: Epoch,
    ) -> bool {
        let goes_on = match error {
            // Of another cluster, or broken: its epochs mean nothing here.
            ErrorCode::InconsistentClusterId | ErrorCode::UnknownServerError => false,
            ErrorCode::UnknownLeaderEpoch => false,
            _ if epoch < self.epoch() => false,
            _ => {
                let before = self.quorum_state;
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
