//! Owns the fault budget: how much durable data may be destroyed before promises can no longer be kept.
//! Never destroys or repairs anything; who is damaged is told by those who do.
//!
//! Of any piece of data at most a minority of the voters may have lost its copy: then every majority that
//! acknowledged it still has one whole copy, and recovery is owed. (TigerBeetle's fault atlas draws the same
//! line.) Where the voters change, the smallest set of them that may come of it counts, and everybody who may
//! become one: whoever has lost data then is a minority of every set of voters. The log and the snapshots hold the same records, so they are one piece; epoch and vote are another.

use std::collections::{BTreeMap, BTreeSet};

use crate::fault::Files;

/// The largest number of `node_count` nodes that leaves a majority.
pub fn minority(node_count: usize) -> usize {
    node_count.saturating_sub(1) / 2
}

/// A piece of data that every voter has a copy of.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Data {
    Records,
    QuorumState,
}

fn data_in(files: Files) -> &'static [Data] {
    match files {
        Files::All => &[Data::Records, Data::QuorumState],
        Files::Log | Files::Snapshot => &[Data::Records],
        Files::QuorumState => &[Data::QuorumState],
    }
}

/// Which nodes lack what, and how many more may.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct FaultBudget {
    voters: BTreeSet<String>,
    /// How many voters there may be at some time, at least.
    least_count: usize,
    damaged: BTreeMap<Data, BTreeSet<String>>,
}

impl FaultBudget {
    /// The budget of these voters, of whom none is damaged.
    pub fn new<'a>(voters: impl IntoIterator<Item = &'a String>) -> Self {
        let voters: BTreeSet<String> = voters.into_iter().cloned().collect();
        Self {
            least_count: voters.len(),
            voters,
            damaged: BTreeMap::new(),
        }
    }

    /// The same, where changes under way may leave as few voters as this.
    #[must_use]
    pub fn with_least(mut self, least_count: usize) -> Self {
        self.least_count = self.least_count.min(least_count);
        self
    }

    /// How many voters may lack the same data.
    pub fn allowed_count(&self) -> usize {
        minority(self.least_count)
    }

    /// Notes that a node has lost what is in these files, until it is [`Self::repaired`].
    pub fn damage(&mut self, node: &str, files: Files) {
        for data in data_in(files) {
            self.damaged
                .entry(*data)
                .or_default()
                .insert(node.to_owned());
        }
    }

    /// Notes that a node has everything again.
    pub fn repaired(&mut self, node: &str) {
        for nodes in self.damaged.values_mut() {
            nodes.remove(node);
        }
    }

    /// How many more voters may lose what is in these files.
    pub fn left(&self, files: Files) -> usize {
        let allowed_count = self.allowed_count();
        let left = data_in(files).iter().map(|data| {
            let damaged = self.damaged.get(data).into_iter().flatten();
            let damaged_count = damaged.filter(|node| self.voters.contains(*node)).count();
            allowed_count.saturating_sub(damaged_count)
        });
        left.min().unwrap_or(0)
    }

    /// Whether this node may lose what is in these files: nobody counts on an observer, a node that has
    /// lost it already has nothing more to lose, and of the others a majority must keep it.
    pub fn may_hit(&self, node: &str, files: Files) -> bool {
        if !self.voters.contains(node) {
            return true;
        }
        let is_damaged = |data: &Data| {
            let nodes = self.damaged.get(data);
            nodes.is_some_and(|nodes| nodes.contains(node))
        };
        data_in(files).iter().all(is_damaged) || self.left(files) > 0
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn names(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("n{number}")).collect()
    }

    #[test]
    fn at_most_a_minority_loses_the_same_data() {
        for (voter_count, allowed_count) in [(1, 0), (2, 0), (3, 1), (4, 1), (5, 2), (7, 3)] {
            let voters = names(voter_count);
            let mut budget = FaultBudget::new(&voters);
            let mut hit_count = 0;
            for voter in &voters {
                if budget.may_hit(voter, Files::Log) {
                    budget.damage(voter, Files::Log);
                    hit_count += 1;
                }
            }
            assert_eq!(hit_count, allowed_count, "{voter_count} voters");
            assert_eq!(budget.left(Files::Log), 0);
        }
    }

    #[test]
    fn snapshots_hold_what_the_log_holds_and_votes_are_apart() {
        let voters = names(3);
        let mut budget = FaultBudget::new(&voters);
        budget.damage("n1", Files::Snapshot);
        assert!(!budget.may_hit("n2", Files::Log));
        assert!(!budget.may_hit("n2", Files::All));
        assert!(budget.may_hit("n2", Files::QuorumState));
        assert!(budget.may_hit("n1", Files::Log), "it has lost them already");
        assert!(!budget.may_hit("n3", Files::Snapshot));
        budget.repaired("n1");
        assert!(budget.may_hit("n2", Files::All));
    }

    #[test]
    fn the_smallest_set_of_voters_that_may_come_counts() {
        let voters = names(5);
        for (least_count, left) in [(9, 2), (5, 2), (4, 1), (3, 1), (2, 0), (0, 0)] {
            let budget = FaultBudget::new(&voters).with_least(least_count);
            assert_eq!(budget.left(Files::All), left, "{least_count}");
        }
    }

    #[test]
    fn observers_neither_use_the_budget_nor_are_protected_by_it() {
        let voters = names(3);
        let mut budget = FaultBudget::new(&voters);
        assert!(budget.may_hit("n9", Files::All));
        budget.damage("n9", Files::All);
        assert_eq!(budget.left(Files::All), 1);
    }
}
