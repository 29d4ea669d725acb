//! Owns the decisions that need no search: what values are unique leaves only one order to check.
//! Never guesses: a history that does not meet an algorithm's conditions is left to the search.
//!
//! In all of them, operations that belong to one value form a cluster, and clusters have an order that
//! the values dictate. An operation whose outcome is unknown counts if something observed its value, as
//! one that never ends; otherwise it can be left out.

pub(super) mod lists;
pub(super) mod queues;
pub(super) mod registers;
pub(super) mod sets;

use super::timeline::NEVER;

/// What a fast path concluded.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Fast {
    /// Linearizable in this order.
    Linearizable(Vec<u32>),
    /// Not linearizable.
    NotLinearizable,
}

/// Clusters of operations in the order in which they must take effect.
struct Clusters {
    /// By cluster: the latest invocation and the earliest completion.
    latest_call: Vec<u32>,
    earliest_return: Vec<u32>,
    /// (cluster, operation).
    members: Vec<(u32, u32)>,
}

impl Clusters {
    fn new(count: usize) -> Self {
        Self {
            latest_call: vec![0; count],
            earliest_return: vec![NEVER; count],
            members: Vec::new(),
        }
    }

    fn add(&mut self, cluster: usize, operation: usize, (call, end): (u32, u32)) {
        self.latest_call[cluster] = self.latest_call[cluster].max(call);
        self.earliest_return[cluster] = self.earliest_return[cluster].min(end);
        self.members.push((cluster as u32, operation as u32));
    }

    /// Whether an operation ended before another one began that belongs to an earlier cluster.
    fn are_out_of_order(&self) -> bool {
        let mut earliest_later = NEVER;
        for (call, end) in self.latest_call.iter().zip(&self.earliest_return).rev() {
            if earliest_later < *call {
                return true;
            }
            earliest_later = earliest_later.min(*end);
        }
        false
    }

    /// Cluster by cluster; within one, `is_first` first, then by invocation.
    fn order(mut self, is_first: impl Fn(u32) -> bool) -> Vec<u32> {
        let key = |(cluster, operation): &(u32, u32)| (*cluster, !is_first(*operation), *operation);
        self.members.sort_unstable_by_key(key);
        let operations = self.members.into_iter();
        operations.map(|(_, operation)| operation).collect()
    }
}
