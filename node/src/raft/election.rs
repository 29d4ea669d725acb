//! Owns the tally of one election or pre-election.
//! Never decides what winning or losing leads to.

use std::collections::BTreeMap;

use crate::ids::NodeId;
use crate::voters::VoterSet;

/// Answers of the voters to one election.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct Tally {
    /// `None` until the voter has answered.
    answers: BTreeMap<NodeId, Option<bool>>,
}

impl Tally {
    /// An election in which only the nominee itself has voted yet.
    pub(crate) fn new(voters: &VoterSet, nominee: NodeId) -> Self {
        let answers = voters
            .ids()
            .map(|voter| (voter, (voter == nominee).then_some(true)))
            .collect();
        Self { answers }
    }

    /// Notes an answer; one of a replica that is no voter counts for nothing.
    pub(crate) fn record(&mut self, voter: NodeId, granted: bool) {
        if let Some(answer) = self.answers.get_mut(&voter) {
            *answer = Some(granted);
        }
    }

    /// Whether a majority granted.
    pub(crate) fn is_granted(&self) -> bool {
        self.count(Some(true)) >= self.majority()
    }

    /// Whether a majority can no longer be reached.
    pub(crate) fn is_lost(&self) -> bool {
        self.count(Some(true)) + self.count(None) < self.majority()
    }

    /// Voters that have not answered, ascending.
    pub(crate) fn unrecorded(&self) -> Vec<NodeId> {
        self.with_answer(None).collect()
    }

    /// Voters that granted, ascending.
    pub(crate) fn granting(&self) -> Vec<NodeId> {
        self.with_answer(Some(true)).collect()
    }

    fn with_answer(&self, wanted: Option<bool>) -> impl Iterator<Item = NodeId> {
        let matching = self
            .answers
            .iter()
            .filter(move |(_, answer)| **answer == wanted);
        matching.map(|(&voter, _)| voter)
    }

    fn count(&self, wanted: Option<bool>) -> usize {
        self.with_answer(wanted).count()
    }

    fn majority(&self) -> usize {
        self.answers.len() / 2 + 1
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn tally(voter_count: i32) -> Tally {
        Tally::new(&(1..=voter_count).map(NodeId).collect(), NodeId(1))
    }

    #[test]
    fn a_majority_wins_and_its_impossibility_loses() {
        for (voters, grants_needed, rejections_to_lose) in
            [(1, 0, 1), (2, 1, 1), (3, 1, 2), (4, 2, 2), (5, 2, 3)]
        {
            let mut winning = tally(voters);
            for voter in 2..2 + grants_needed {
                assert!(!winning.is_granted(), "{voters} voters");
                winning.record(NodeId(voter), true);
            }
            assert!(
                winning.is_granted() && !winning.is_lost(),
                "{voters} voters"
            );
            if voters == 1 {
                continue;
            }
            let mut losing = tally(voters);
            for voter in 2..2 + rejections_to_lose {
                assert!(!losing.is_lost(), "{voters} voters");
                losing.record(NodeId(voter), false);
            }
            assert!(losing.is_lost() && !losing.is_granted(), "{voters} voters");
        }
    }

    #[test]
    fn a_voter_counts_once_and_a_stranger_never() {
        let mut tally = tally(5);
        tally.record(NodeId(2), true);
        tally.record(NodeId(2), true);
        tally.record(NodeId(9), true);
        assert!(!tally.is_granted());
        assert_eq!(tally.granting(), [NodeId(1), NodeId(2)]);
        assert_eq!(tally.unrecorded(), [NodeId(3), NodeId(4), NodeId(5)]);
    }
}
