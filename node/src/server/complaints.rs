//! Owns what the log says of a peer whose answers mean that somebody has configured something wrong.
//! Never changes how the answer is treated.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::ids::NodeId;
use crate::message::ErrorCode;

/// How long the same complaint about the same peer is not repeated.
const PAUSE: Duration = Duration::from_secs(60);

/// What was last said of one peer, and when.
#[derive(Debug, Default)]
pub(crate) struct Complaints(Mutex<Option<(ErrorCode, Instant)>>);

impl Complaints {
    /// Tells the log of `error`, if it is one that does not go away by itself.
    pub(crate) fn note(&self, peer: NodeId, authority: &str, error: ErrorCode) {
        if let Some(advice) = advice(error)
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

#[cfg(test)]
mod tests {
    use super::*;

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
