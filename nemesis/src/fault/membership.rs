//! Owns the words for changes of the voters.
//! Never asks a cluster for one.

use super::words::Word;

/// What becomes of the voters. A change stays when the fault is healed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MembershipChange {
    /// A node that was not part of the cluster is started and becomes a voter.
    Add,
    /// A voter becomes an observer.
    Remove,
    /// A node that was not part of the cluster takes the place of a voter.
    Replace,
    /// The leader becomes an observer.
    RemoveLeader,
    /// An observer becomes a voter.
    Promote,
}

impl Word for MembershipChange {
    const WHAT: &'static str = "change of the voters";
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::Add, "add"),
        (Self::Remove, "remove"),
        (Self::Replace, "replace"),
        (Self::RemoveLeader, "remove-leader"),
        (Self::Promote, "promote"),
    ];
}
