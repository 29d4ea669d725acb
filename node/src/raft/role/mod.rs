//! Owns the six states of a replica and which moves between them are legal.
//! Never knows a seventh: whether a replica is a voter is a separate matter.

mod candidate;
mod follower;
mod leader;
mod prospective;
mod resigned;
mod unattached;

pub(crate) use candidate::Candidate;
pub(crate) use follower::Follower;
pub(crate) use leader::{Leader, Parked, Progress};
pub(crate) use prospective::Prospective;
pub(crate) use resigned::Resigned;
pub(crate) use unattached::Unattached;

use super::Role;

/// State that exists only while a replica is in a role.
#[derive(Debug, Clone, Hash)]
pub(crate) enum RoleState {
    Unattached(Unattached),
    Prospective(Prospective),
    Candidate(Candidate),
    Leader(Box<Leader>),
    Follower(Follower),
    Resigned(Resigned),
}

impl RoleState {
    pub(crate) fn kind(&self) -> Role {
        match self {
            Self::Unattached(_) => Role::Unattached,
            Self::Prospective(_) => Role::Prospective,
            Self::Candidate(_) => Role::Candidate,
            Self::Leader(_) => Role::Leader,
            Self::Follower(_) => Role::Follower,
            Self::Resigned(_) => Role::Resigned,
        }
    }
}

/// Whether a replica may move, staying in its epoch or advancing to a later one. Only voters stand for
/// election; an observer that loses its leader has nothing to do but look for one.
pub(crate) fn is_legal(from: Role, to: Role, epoch_advances: bool, is_voter: bool) -> bool {
    use Role::{Candidate, Follower, Leader, Prospective, Resigned, Unattached};
    if epoch_advances {
        return match to {
            Unattached | Follower => true,
            Candidate => is_voter && from == Prospective,
            Prospective | Leader | Resigned => false,
        };
    }
    match to {
        // Within an epoch: granting a vote, or giving up a pre-election.
        Unattached => matches!(from, Unattached | Prospective) || (from == Follower && !is_voter),
        // From Prospective only by granting a vote, which resets the pre-election.
        Prospective => is_voter && from != Leader,
        Candidate => false,
        Leader => from == Candidate,
        Follower => matches!(from, Unattached | Prospective | Candidate),
        Resigned => from == Leader,
    }
}

#[cfg(test)]
mod tests {
    use std::panic::{AssertUnwindSafe, catch_unwind};

    use super::*;
    use crate::ids::{Epoch, NodeId};
    use crate::raft::{Configuration, Input, QuorumState, Recovered, Replica, Timers};

    const ROLES: [Role; 6] = [
        Role::Unattached,
        Role::Prospective,
        Role::Candidate,
        Role::Leader,
        Role::Follower,
        Role::Resigned,
    ];

    fn row(from: Role, epoch_advances: bool, is_voter: bool) -> String {
        let sign = |&to: &Role| {
            if is_legal(from, to, epoch_advances, is_voter) {
                '+'
            } else {
                '-'
            }
        };
        ROLES.iter().map(sign).collect()
    }

    #[test]
    fn all_moves_within_an_epoch() {
        //                                                    UPCLFR
        assert_eq!(row(Role::Unattached, false, true), "++--+-");
        assert_eq!(row(Role::Prospective, false, true), "++--+-");
        assert_eq!(row(Role::Candidate, false, true), "-+-++-");
        assert_eq!(row(Role::Leader, false, true), "-----+");
        assert_eq!(row(Role::Follower, false, true), "-+----");
        assert_eq!(row(Role::Resigned, false, true), "-+----");
    }

    #[test]
    fn all_moves_to_a_later_epoch() {
        for from in ROLES {
            let expected = if from == Role::Prospective {
                "+-+-+-"
            } else {
                "+---+-"
            };
            assert_eq!(row(from, true, true), expected, "{from:?}");
        }
    }

    #[test]
    fn an_observer_never_stands_for_election() {
        for from in ROLES {
            for epoch_advances in [false, true] {
                let row = row(from, epoch_advances, false);
                assert_eq!(&row[1..3], "--", "{from:?}");
            }
        }
        //                                                          UPCLFR
        assert_eq!(row(Role::Follower, false, false), "+-----");
        assert_eq!(row(Role::Unattached, false, false), "+---+-");
        assert_eq!(row(Role::Leader, false, false), "-----+");
        assert_eq!(row(Role::Resigned, true, false), "+---+-");
    }

    /// One of three voters, in epoch 4.
    fn replica(leader: Option<i32>, vote: Option<i32>) -> Replica {
        let timers = Timers {
            election_timeout_ns: 10,
            fetch_timeout_ns: 10,
            election_backoff_max_ns: 10,
            fetch_max_wait_ns: 1,
            request_timeout_ns: 10,
            retry_backoff_ns: 1,
        };
        let voters = (1..=3).map(NodeId).collect();
        let configuration = Configuration::of_static_voters(NodeId(1), "test", voters, timers, 0);
        let recovered = Recovered {
            quorum_state: Some(QuorumState {
                epoch: Epoch(4),
                leader: leader.map(NodeId),
                voted_for: vote.map(|id| NodeId(id).into()),
            }),
            ..Recovered::default()
        };
        Replica::start(configuration, recovered, 0).0
    }

    /// What the assertion says that `action` trips over.
    fn stopped(mut replica: Replica, action: impl FnOnce(&mut Replica)) -> String {
        let outcome = catch_unwind(AssertUnwindSafe(|| action(&mut replica)));
        let payload = outcome.expect_err("nothing stopped it");
        match payload.downcast::<String>() {
            Ok(message) => *message,
            Err(_) => panic!("it stopped for another reason"),
        }
    }

    #[test]
    fn illegal_moves_stop_the_replica() {
        let unattached = || replica(None, None);
        let follower = || replica(Some(2), None);
        let candidate = || replica(None, Some(1));
        let resigned = || replica(Some(1), None);
        let follow = |epoch, leader| {
            move |replica: &mut Replica| {
                replica.become_follower(Epoch(epoch), NodeId(leader), "test");
            }
        };
        let detach = |epoch| {
            move |replica: &mut Replica| {
                let quorum_state = QuorumState {
                    epoch: Epoch(epoch),
                    leader: None,
                    voted_for: None,
                };
                replica.become_unattached(quorum_state, 99, "test");
            }
        };
        let lead = |replica: &mut Replica| replica.become_leader(Vec::new());
        let stand = |replica: &mut Replica| replica.become_candidate();
        for (replica, role) in [
            (unattached(), Role::Unattached),
            (follower(), Role::Follower),
            (candidate(), Role::Candidate),
            (resigned(), Role::Resigned),
        ] {
            assert_eq!(replica.role(), role);
        }
        for (said, expected) in [
            (
                stopped(unattached(), lead),
                "without the votes of a majority",
            ),
            (
                stopped(candidate(), lead),
                "without the votes of a majority",
            ),
            (stopped(resigned(), lead), "without the votes of a majority"),
            (stopped(unattached(), stand), "cannot go from Unattached"),
            (stopped(candidate(), stand), "cannot go from Candidate"),
            (stopped(follower(), stand), "cannot go from Follower"),
            (stopped(follower(), detach(4)), "cannot go from Follower"),
            (stopped(candidate(), detach(4)), "cannot go from Candidate"),
            (
                stopped(unattached(), detach(3)),
                "cannot go back from epoch 4",
            ),
            (stopped(follower(), follow(4, 2)), "cannot go from Follower"),
            (stopped(follower(), follow(4, 3)), "cannot go from Follower"),
            (stopped(resigned(), follow(4, 2)), "cannot go from Resigned"),
            (stopped(unattached(), follow(5, 1)), "cannot follow itself"),
        ] {
            assert!(said.contains(expected), "{said}");
        }
    }

    #[test]
    fn a_promise_of_an_epoch_cannot_be_exchanged_for_another() {
        let persist = |epoch, leader: Option<i32>, vote: Option<i32>| {
            move |replica: &mut Replica| {
                replica.persist(QuorumState {
                    epoch: Epoch(epoch),
                    leader: leader.map(NodeId),
                    voted_for: vote.map(|id| NodeId(id).into()),
                });
            }
        };
        for (said, expected) in [
            (
                stopped(replica(None, Some(2)), persist(4, None, Some(3))),
                "cannot vote for",
            ),
            (
                stopped(replica(Some(2), None), persist(4, Some(3), None)),
                "cannot take",
            ),
            (
                stopped(replica(Some(2), None), persist(3, Some(2), None)),
                "cannot go back",
            ),
        ] {
            assert!(said.contains(expected), "{said}");
        }
    }

    /// The counterpart: what is legal goes on without a word.
    #[test]
    fn legal_moves_of_the_same_replicas_go_through() {
        let mut follower = replica(Some(2), None);
        let _ = follower.step(1_000, Input::Tick);
        assert_eq!(follower.role(), Role::Prospective);
        let mut resigned = replica(Some(1), None);
        let _ = resigned.step(1_000, Input::Tick);
        assert_eq!(
            (resigned.role(), resigned.epoch()),
            (Role::Unattached, Epoch(5))
        );
        let mut candidate = replica(None, Some(1));
        candidate.become_follower(Epoch(4), NodeId(2), "test");
        assert_eq!(candidate.role(), Role::Follower);
    }
}
