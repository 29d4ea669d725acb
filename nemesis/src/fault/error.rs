//! Owns what can be wrong with a fault that somebody wrote.
//! Never looks for mistakes itself.

use crate::names::suggestion;

/// What is wrong with a fault somebody wrote.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FaultError {
    /// A kind, shape, target or style that does not exist.
    #[error("unknown {what} \"{word}\"{}; known: {}", suggestion(*.nearest), .known.join(", "))]
    UnknownWord {
        /// What the word should have named.
        what: &'static str,
        /// The word.
        word: String,
        /// Every word that would do.
        known: Vec<&'static str>,
        /// The word it was probably meant to be.
        nearest: Option<&'static str>,
    },
    /// A parameter that this fault does not have.
    #[error(
        "a {kind} fault has no parameter \"{parameter}\"{}; it has: {}",
        suggestion(*.nearest),
        if .known.is_empty() { "none".to_owned() } else { .known.join(", ") }
    )]
    UnknownParameter {
        /// Kind of the fault, with its shape if that decides the parameters.
        kind: String,
        /// The parameter.
        parameter: String,
        /// Every parameter of this kind.
        known: Vec<&'static str>,
        /// The parameter it was probably meant to be.
        nearest: Option<&'static str>,
    },
    /// A parameter that the fault cannot do without.
    #[error("a {kind} fault needs \"{parameter}\": {expected}")]
    MissingParameter {
        /// Kind of the fault.
        kind: String,
        /// The parameter.
        parameter: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A parameter of the wrong type or out of range.
    #[error("\"{parameter}\" is {found}; expected {expected}")]
    BadParameter {
        /// The parameter.
        parameter: &'static str,
        /// Its value as JSON.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// Parameters that contradict each other.
    #[error("a {kind} fault cannot have both: {problem}")]
    Contradiction {
        /// Kind of the fault.
        kind: &'static str,
        /// Which, and what to do.
        problem: &'static str,
    },
    /// A node that the cluster does not have.
    #[error("there is no node \"{node}\" in this cluster; it has: {}", .nodes.join(", "))]
    NoSuchNode {
        /// The name.
        node: String,
        /// Every node of the cluster.
        nodes: Vec<String>,
    },
    /// A node, link or group given twice.
    #[error("{what} is given twice; name it once")]
    GivenTwice {
        /// Which.
        what: String,
    },
    /// A link from a node to itself.
    #[error("there is no link from {node} to itself; a link joins two different nodes")]
    LinkToItself {
        /// The node.
        node: String,
    },
    /// The cluster is too small for this fault.
    #[error("{what} needs at least {needed_count} nodes, and this cluster has {node_count}")]
    TooFewNodes {
        /// Which fault or which targets.
        what: &'static str,
        /// The smallest cluster in which it makes sense.
        needed_count: usize,
        /// The size of this cluster.
        node_count: usize,
    },
    /// More voters than may lose data at once without the cluster losing what it acknowledged.
    #[error(
        "a {kind} fault on {hit_count} of {voter_count} voters may destroy what was acknowledged; at \
         most {allowed_count} may be hit, unless \"beyond_budget\" is true"
    )]
    BeyondBudget {
        /// Kind of the fault.
        kind: &'static str,
        /// How many would be hit.
        hit_count: usize,
        /// How many voters there are.
        voter_count: usize,
        /// How many may be hit.
        allowed_count: usize,
    },
}
