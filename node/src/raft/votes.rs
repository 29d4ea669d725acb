//! Owns who gets a vote, as a pure function of the receiver's state (KIP-595, KIP-996, KAFKA-17641).
//! Never persists anything, and never sees requests of another epoch.

use crate::ids::{Epoch, NodeId, Offset, ReplicaKey};

/// What of the receiver's state matters for a vote.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Standing {
    Unattached,
    Prospective,
    Candidate,
    /// `has_fetched`: whether a fetch from this leader has succeeded yet. Not a matter of time: a
    /// follower that has never reached its leader is no evidence that the leader lives.
    Follower {
        has_fetched: bool,
    },
    Leader,
    Resigned,
}

/// The rest of what decides: the receiver's promises in this epoch and the candidate's log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Question {
    pub(crate) candidate: ReplicaKey,
    pub(crate) pre_vote: bool,
    pub(crate) log_is_up_to_date: bool,
    pub(crate) voted_for: Option<ReplicaKey>,
    pub(crate) leader: Option<NodeId>,
}

/// Whether to grant.
pub(crate) fn grants(standing: Standing, question: Question) -> bool {
    if question.pre_vote {
        let open = match standing {
            Standing::Follower { has_fetched } => !has_fetched,
            Standing::Leader => false,
            Standing::Unattached
            | Standing::Prospective
            | Standing::Candidate
            | Standing::Resigned => true,
        };
        return open && question.log_is_up_to_date;
    }
    match standing {
        Standing::Unattached | Standing::Prospective => match question.voted_for {
            // The log was compared when the vote was given; the candidate only asks again.
            Some(voted_for) => voted_for.accepts(&question.candidate),
            None => question.leader.is_none() && question.log_is_up_to_date,
        },
        Standing::Candidate | Standing::Follower { .. } | Standing::Leader | Standing::Resigned => {
            false
        }
    }
}

/// Whether a candidate's log, given by its last epoch and end, is at least as complete as the local.
pub(crate) fn is_up_to_date(candidate: (Epoch, Offset), local: (Epoch, Offset)) -> bool {
    candidate >= local
}

#[cfg(test)]
mod tests {
    use super::*;

    const CANDIDATE: ReplicaKey = ReplicaKey {
        id: NodeId(2),
        directory_id: None,
    };
    const OTHER: NodeId = NodeId(3);

    const STANDINGS: [Standing; 7] = [
        Standing::Unattached,
        Standing::Prospective,
        Standing::Candidate,
        Standing::Follower { has_fetched: false },
        Standing::Follower { has_fetched: true },
        Standing::Leader,
        Standing::Resigned,
    ];

    /// The answers of all standings, in their order, as `+` and `-`.
    fn row(question: Question) -> String {
        let sign = |&standing: &Standing| if grants(standing, question) { '+' } else { '-' };
        STANDINGS.iter().map(sign).collect()
    }

    #[test]
    fn the_whole_matrix() {
        for voted_for in [None, Some(CANDIDATE), Some(OTHER.into())] {
            for leader in [None, Some(OTHER)] {
                for log_is_up_to_date in [false, true] {
                    let question = |pre_vote| Question {
                        candidate: CANDIDATE,
                        pre_vote,
                        log_is_up_to_date,
                        voted_for,
                        leader,
                    };
                    let pre_vote = if log_is_up_to_date {
                        "++++--+"
                    } else {
                        "-------"
                    };
                    assert_eq!(row(question(true)), pre_vote, "{:?}", question(true));
                    let vote = match (voted_for, leader, log_is_up_to_date) {
                        (Some(CANDIDATE), _, _) | (None, None, true) => "++-----",
                        _ => "-------",
                    };
                    assert_eq!(row(question(false)), vote, "{:?}", question(false));
                }
            }
        }
    }

    #[test]
    fn logs_compare_by_epoch_first() {
        let log = |epoch, end| (Epoch(epoch), Offset(end));
        assert!(is_up_to_date(log(2, 10), log(2, 10)));
        assert!(is_up_to_date(log(2, 11), log(2, 10)));
        assert!(!is_up_to_date(log(2, 9), log(2, 10)));
        assert!(is_up_to_date(log(3, 1), log(2, 10)));
        assert!(!is_up_to_date(log(1, 99), log(2, 10)));
    }
}
