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
#[derive(Debug)]
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
    use super::*;

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
}
