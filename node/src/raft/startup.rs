//! Owns the state in which a replica comes back, as a pure function of what survived.
//! Never leads right away: a leader that restarts has lost its claim to its epoch (KAFKA-10527).

use super::{Configuration, QuorumState, Recovered};
use crate::ids::NodeId;
use crate::mutants::Bug;
use crate::voters::VoterSet;

/// The state to start in.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum InitialRole {
    Unattached,
    /// It had voted for itself and may ask again: nobody else got that vote.
    Candidate,
    Follower {
        leader: NodeId,
    },
    /// It led. Neither leading on (an unflushed tail may be gone, so offsets of this epoch would be
    /// reused) nor voting again in this epoch (KAFKA-10661) would be safe.
    Resigned,
    /// The seeded bug B03: it led, and takes the votes it had then for granted.
    Reelected,
}

/// Decides from the quorum-state file and the log, given the epoch of the last record.
pub(crate) fn initial_role(
    recovered: &Recovered,
    configuration: &Configuration,
    voters: &VoterSet,
) -> (QuorumState, InitialRole) {
    let (key, bug) = (configuration.key(), configuration.bug);
    let state = recovered.quorum_state.unwrap_or_default();
    let log_epoch = recovered.last_epoch();
    if state.epoch < log_epoch && bug != Some(Bug::EpochNotFromLog) {
        // The file is older than the log, so it says nothing about the log's epoch.
        let state = QuorumState {
            epoch: log_epoch,
            leader: None,
            voted_for: None,
        };
        return (state, InitialRole::Unattached);
    }
    let led = state.leader == Some(key.id);
    if led && bug == Some(Bug::RestartAsLeader) {
        return (state, InitialRole::Reelected);
    }
    if led && bug == Some(Bug::RestartUnattached) {
        let state = QuorumState {
            epoch: state.epoch,
            leader: None,
            voted_for: None,
        };
        return (state, InitialRole::Unattached);
    }
    let role = match state.leader {
        Some(leader) if leader == key.id => InitialRole::Resigned,
        _ if state
            .voted_for
            .is_some_and(|voted_for| voted_for.accepts(&key))
            && state.leader.is_none()
            && voters.contains(&key) =>
        {
            InitialRole::Candidate
        }
        Some(leader) if voters.contains_id(leader) || configuration.bootstrap.contains(&leader) => {
            InitialRole::Follower { leader }
        }
        _ => InitialRole::Unattached,
    };
    (state, role)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, Offset, SnapshotId};
    use crate::raft::{EpochStart, StoredSnapshot, Timers};

    fn configuration(voters: &VoterSet) -> Configuration {
        Configuration::of_static_voters(NodeId(1), "test", voters.clone(), Timers::SHORTEST, 0)
    }

    fn start(file: Option<(i32, Option<i32>, Option<i32>)>, log_epoch: i32) -> (i32, InitialRole) {
        start_among(1..=3, file, log_epoch)
    }

    fn start_among(
        voters: std::ops::RangeInclusive<i32>,
        file: Option<(i32, Option<i32>, Option<i32>)>,
        log_epoch: i32,
    ) -> (i32, InitialRole) {
        let quorum_state = file.map(|(epoch, leader, vote)| QuorumState {
            epoch: Epoch(epoch),
            leader: leader.map(NodeId),
            voted_for: vote.map(|id| NodeId(id).into()),
        });
        let epochs = match log_epoch {
            0 => Vec::new(),
            epoch => vec![EpochStart {
                epoch: Epoch(epoch),
                start_offset: Offset(0),
            }],
        };
        let recovered = Recovered {
            quorum_state,
            epochs,
            ..Recovered::default()
        };
        let voters: VoterSet = voters.map(NodeId).collect();
        let (state, role) = initial_role(&recovered, &configuration(&voters), &voters);
        (state.epoch.0, role)
    }

    #[test]
    fn every_start_rule() {
        let follower = InitialRole::Follower { leader: NodeId(2) };
        assert_eq!(start(None, 0), (0, InitialRole::Unattached));
        assert_eq!(start(None, 4), (4, InitialRole::Unattached));
        assert_eq!(
            start(Some((3, Some(1), None)), 4),
            (4, InitialRole::Unattached)
        );
        assert_eq!(
            start(Some((4, Some(1), None)), 4),
            (4, InitialRole::Resigned)
        );
        assert_eq!(
            start(Some((5, None, Some(1))), 4),
            (5, InitialRole::Candidate)
        );
        assert_eq!(
            start(Some((5, None, Some(2))), 4),
            (5, InitialRole::Unattached)
        );
        assert_eq!(start(Some((5, Some(2), None)), 4), (5, follower));
        assert_eq!(
            start(Some((5, Some(9), None)), 4),
            (5, InitialRole::Unattached)
        );
    }

    /// Its log may be empty, and the file lost.
    #[test]
    fn a_snapshot_tells_of_its_epoch_as_a_log_does() {
        let id = SnapshotId {
            end_offset: Offset(7),
            epoch: Epoch(4),
        };
        let recovered = Recovered {
            snapshots: vec![StoredSnapshot { id, size_bytes: 1 }],
            ..Recovered::default()
        };
        let voters = (1..=3).map(NodeId).collect();
        let (state, role) = initial_role(&recovered, &configuration(&voters), &voters);
        assert_eq!((state.epoch, role), (Epoch(4), InitialRole::Unattached));
    }

    /// Its vote for itself stays; but it cannot ask others for theirs.
    #[test]
    fn a_candidate_that_is_no_voter_any_more_waits() {
        let file = Some((5, None, Some(1)));
        assert_eq!(start_among(2..=3, file, 4), (5, InitialRole::Unattached));
    }

    /// It stood for election, lost, and learned who won in the same epoch.
    #[test]
    fn a_beaten_candidate_follows_the_winner() {
        let follower = InitialRole::Follower { leader: NodeId(2) };
        assert_eq!(start(Some((5, Some(2), Some(1))), 4), (5, follower));
    }
}
