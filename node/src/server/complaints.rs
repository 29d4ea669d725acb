//! Owns what the log says when a peer's answers, or this node's own voters, mean that something is configured wrong.
//! Never changes how the node goes on.

use std::sync::{Mutex, PoisonError};
use std::time::{Duration, Instant};

use crate::ids::NodeId;
use crate::message::{ErrorCode, Response};
use crate::raft::{DOES_NOT_ANSWER, QuorumDescription};

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

/// Tells the log of a node that the voters it knows of take for somebody else.
pub(crate) fn note_own_place(quorum: &QuorumDescription) {
    if let Some(warning) = stranger(quorum) {
        tracing::warn!("{warning}");
    }
}

/// That the voters have this id with another data directory (KIP-853), and what to do.
fn stranger(quorum: &QuorumDescription) -> Option<String> {
    let (id, own) = (quorum.id, quorum.directory_id?);
    let same_id = quorum.voters.iter().find(|voter| voter.id == id);
    let theirs = same_id?.directory_id.filter(|theirs| *theirs != own)?;
    Some(format!(
        "the voters have {id} with the data directory {theirs}, and this one is {own}: this node is an observer and \
         does not vote. Start it on the directory that they mean, or, if that is lost, remove the voter \
         (kraft-node remove-controller) and add it again (kraft-node add-controller)"
    ))
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
    use crate::ids::{DirectoryId, Epoch};
    use crate::message::VoterChangeResponse;
    use crate::raft::{Configuration, Recovered, Replica, Timers};

    #[test]
    fn a_node_whose_directory_is_not_the_one_that_the_voters_mean_is_told() {
        let voters = (1..=3).map(NodeId).collect();
        let configuration =
            Configuration::of_static_voters(NodeId(1), "test", voters, Timers::SHORTEST, 0);
        let (replica, _) = Replica::start(configuration, Recovered::default(), 0);
        let mut quorum = replica.describe();
        let mut told = |own: Option<u128>, theirs: Option<u128>| {
            quorum.directory_id = own.map(DirectoryId);
            quorum.voters[0].directory_id = theirs.map(DirectoryId);
            stranger(&quorum)
        };
        let (own, theirs) = (7 << 100, 7 << 100 | 1);
        for usual in [
            (None, None),
            (Some(own), None),
            (None, Some(own)),
            (Some(own), Some(own)),
        ] {
            assert_eq!(told(usual.0, usual.1), None, "{usual:?}");
        }
        let warning = told(Some(own), Some(theirs)).unwrap();
        let ids = [own, theirs].map(|id| DirectoryId(id).to_string());
        assert!(ids.iter().all(|id| warning.contains(id)), "{warning}");
        quorum.voters.remove(0);
        assert_eq!(stranger(&quorum), None);
    }

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
