//! Owns what the log says of a peer whose answers mean that somebody has configured something wrong.
//! Never changes how the answer is treated.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::ids::NodeId;
use crate::message::{ErrorCode, Response};
use crate::raft::DOES_NOT_ANSWER;

/// How long the same complaint about the same peer is not repeated.
const PAUSE: Duration = Duration::from_secs(60);

/// What was last said of one peer, and when.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<Option<(ErrorCode, Instant)>>);

impl Complaints {
    /// Tells the log of an answer that names an error which does not go away by itself.
    pub(crate) fn note(&self, peer: NodeId, authority: &str, response: &Response) {
        let error = response.error();
        if let Some(advice) = advice(error).or_else(|| unreachable_advice(response))
            && self.is_news(error, Instant::now())
        {
            tracing::warn!(%peer, address = authority, "{advice}");
        }
    }

    fn is_news(&self, error: ErrorCode, now: Instant) -> bool {
        let mut last = self.0.lock().unwrap_or_else(PoisonError::into_inner);
        let is_known = last.is_some_and(|(known, since)| {
            known == error && now.saturating_duration_since(since) < PAUSE
        });
        if !is_known {
            *last = Some((error, now));
        }
        !is_known
    }
}

/// What is wrong and what to do, for errors that no correctly configured peers cause.
fn advice(error: ErrorCode) -> Option<&'static str> {
    match error {
        ErrorCode::InconsistentClusterId => Some(
            "a peer belongs to another cluster (INCONSISTENT_CLUSTER_ID); give both the same \
             --cluster-id, or correct the address",
        ),
        ErrorCode::InvalidVoterKey => Some(
            "a peer is another replica than the voters say (INVALID_VOTER_KEY); correct the id or the \
             address, or, if it has lost its data directory, remove the voter and add it again",
        ),
        ErrorCode::InvalidRequest => Some(
            "a peer finds a request of this node senseless (INVALID_REQUEST); it may have the same id, \
             or another version of the program",
        ),
        _ => None,
    }
}

/// The leader looked for this node where it says that it listens, in vain.
fn unreachable_advice(response: &Response) -> Option<&'static str> {
    match response {
        Response::UpdateRaftVoter(refused) if refused.message.contains(DOES_NOT_ANSWER) => Some(
            "the leader does not reach this node where it says that it listens, so others will not either; say \
             with --advertise where they do, or see what is between the two",
        ),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Epoch;
    use crate::message::VoterChangeResponse;

    #[test]
    fn a_node_that_its_leader_does_not_reach_is_told_and_one_that_has_to_wait_is_not() {
        let refused = |message: &str| {
            Response::UpdateRaftVoter(VoterChangeResponse {
                error: ErrorCode::RequestTimedOut,
                message: message.to_owned(),
                leader_id: None,
                leader_epoch: Epoch(1),
                leader_endpoint: None,
            })
        };
        let in_vain = refused(&format!("n2 {DOES_NOT_ANSWER} http://a:1"));
        assert!(unreachable_advice(&in_vain).is_some_and(|it| it.contains("--advertise")));
        let waits = refused("another change of the voters is under way");
        assert_eq!(unreachable_advice(&waits), None);
    }

    #[test]
    fn a_complaint_is_repeated_after_a_while_and_another_one_is_told_at_once() {
        let complaints = Complaints::default();
        let start = Instant::now();
        let is_news =
            |error, seconds| complaints.is_news(error, start + Duration::from_secs(seconds));
        assert!(is_news(ErrorCode::InvalidVoterKey, 0));
        assert!(!is_news(ErrorCode::InvalidVoterKey, 59));
        assert!(is_news(ErrorCode::InvalidVoterKey, 60));
        assert!(!is_news(ErrorCode::InvalidVoterKey, 61));
        assert!(is_news(ErrorCode::InconsistentClusterId, 62));
    }

    #[test]
    fn what_happens_in_every_election_is_no_complaint() {
        for usual in [
            ErrorCode::None,
            ErrorCode::NotLeaderOrFollower,
            ErrorCode::FencedLeaderEpoch,
            ErrorCode::UnknownLeaderEpoch,
            ErrorCode::SnapshotNotFound,
        ] {
            assert_eq!(advice(usual), None);
        }
    }
}
