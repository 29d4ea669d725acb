//! Owns the words for whom a fault hits: one node, or several.
//! Never turns a word into a node; that is the business of `resolve`.

use std::collections::BTreeSet;

use serde_json::{Value, json};

use super::FaultError;
use super::reader::{Reader, bad};
use super::words::{Word, unknown_word};

/// Nodes that have something in common at the moment a fault starts.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Group {
    /// Every voter but the leader.
    Followers,
    /// Those that stand for election, or ask whether they could.
    Candidates,
    /// Those whose log ends first, if it ends before that of another.
    Lagging,
    /// Those that are no voters.
    Observers,
}

impl Word for Group {
    const WHAT: &'static str = "target";
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::Followers, "followers"),
        (Self::Candidates, "candidates"),
        (Self::Lagging, "lagging"),
        (Self::Observers, "observers"),
    ];
}

/// One node to be hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A drawn one.
    One,
    /// The leader at that moment.
    Leader,
    /// A drawn one of these.
    OneOf(Group),
    /// The node whose event started the fault.
    EventNode,
    /// This one.
    Node(String),
}

/// The nodes to be hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    /// A drawn one.
    One,
    /// As many drawn voters as leave a majority untouched, those counted that are down anyway; one at least.
    Minority,
    /// The smallest number of drawn voters that leaves no majority, or as many of them as can be hit.
    Majority,
    /// Every node.
    All,
    /// The leader at that moment.
    Leader,
    /// All of these.
    Group(Group),
    /// The node whose event started the fault.
    EventNode,
    /// These.
    Nodes(Vec<String>),
}

const EVENT_NODE: &str = "event-node";
const TARGET_EXPECTED: &str =
    "one of the words for a target, or a list of one node such as [\"n1\"]";
const TARGETS_EXPECTED: &str =
    "one of the words for targets, or a list of nodes such as [\"n1\", \"n2\"]";

impl Target {
    /// Reads `target`; a drawn node if there is none.
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, FaultError> {
        match reader.get("target") {
            None => Ok(Self::One),
            Some(Value::String(word)) => match word.as_str() {
                "one" => Ok(Self::One),
                "leader" => Ok(Self::Leader),
                EVENT_NODE => Ok(Self::EventNode),
                word => Group::from_word(word).map(Self::OneOf).map_err(|_| {
                    let mut known = vec!["one", "leader"];
                    known.extend(Group::WORDS.iter().map(|(_, word)| *word));
                    known.extend([EVENT_NODE, "[\"n1\"]"]);
                    unknown_word("target", word, known)
                }),
            },
            Some(value) => match string_list(value) {
                Some(nodes) if nodes.len() == 1 => Ok(Self::Node(nodes.concat())),
                _ => Err(bad("target", value, TARGET_EXPECTED)),
            },
        }
    }

    /// The value of `target`.
    pub(super) fn describe(&self) -> Value {
        match self {
            Self::One => "one".into(),
            Self::Leader => "leader".into(),
            Self::OneOf(group) => group.word().into(),
            Self::EventNode => EVENT_NODE.into(),
            Self::Node(node) => json!([node]),
        }
    }

    pub(super) fn validate(&self, what: &'static str, nodes: &[String]) -> Result<(), FaultError> {
        at_least(what, 2, nodes)?;
        match self {
            Self::One | Self::Leader | Self::OneOf(_) | Self::EventNode => Ok(()),
            Self::Node(node) => check_names([node], nodes),
        }
    }
}

impl Targets {
    /// Reads `targets`; a drawn node if there is none.
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, FaultError> {
        match reader.get("targets") {
            None => Ok(Self::One),
            Some(Value::String(word)) => match word.as_str() {
                "one" => Ok(Self::One),
                "minority" => Ok(Self::Minority),
                "majority" => Ok(Self::Majority),
                "all" => Ok(Self::All),
                "leader" => Ok(Self::Leader),
                EVENT_NODE => Ok(Self::EventNode),
                word => Group::from_word(word).map(Self::Group).map_err(|_| {
                    let mut known = vec!["one", "minority", "majority", "all", "leader"];
                    known.extend(Group::WORDS.iter().map(|(_, word)| *word));
                    known.extend([EVENT_NODE, "[\"n1\", \"n2\"]"]);
                    unknown_word("target", word, known)
                }),
            },
            Some(value) => match string_list(value) {
                Some(nodes) if !nodes.is_empty() => Ok(Self::Nodes(nodes)),
                _ => Err(bad("targets", value, TARGETS_EXPECTED)),
            },
        }
    }

    /// The value of `targets`.
    pub(super) fn describe(&self) -> Value {
        match self {
            Self::One => "one".into(),
            Self::Minority => "minority".into(),
            Self::Majority => "majority".into(),
            Self::All => "all".into(),
            Self::Leader => "leader".into(),
            Self::Group(group) => group.word().into(),
            Self::EventNode => EVENT_NODE.into(),
            Self::Nodes(nodes) => json!(nodes),
        }
    }

    pub(super) fn validate(&self, nodes: &[String]) -> Result<(), FaultError> {
        match self {
            Self::One | Self::All | Self::Leader | Self::Majority | Self::EventNode => {
                at_least("a fault", 1, nodes)
            }
            Self::Group(_) => at_least("a fault on a group of nodes", 2, nodes),
            Self::Minority => at_least("the target \"minority\"", 3, nodes),
            Self::Nodes(targets) if targets.is_empty() => {
                Err(bad("targets", &json!([]), TARGETS_EXPECTED))
            }
            Self::Nodes(targets) => check_names(targets, nodes),
        }
    }
}

/// Refuses names that the cluster does not have, and names given twice.
pub(crate) fn check_names<'a>(
    names: impl IntoIterator<Item = &'a String>,
    nodes: &[String],
) -> Result<(), FaultError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !nodes.contains(name) {
            return Err(FaultError::NoSuchNode {
                node: name.clone(),
                nodes: nodes.to_vec(),
            });
        }
        if !seen.insert(name) {
            return Err(FaultError::GivenTwice {
                what: format!("the node {name}"),
            });
        }
    }
    Ok(())
}

pub(super) fn at_least(
    what: &'static str,
    needed_count: usize,
    nodes: &[String],
) -> Result<(), FaultError> {
    if nodes.len() >= needed_count {
        return Ok(());
    }
    Err(FaultError::TooFewNodes {
        what,
        needed_count,
        node_count: nodes.len(),
    })
}

fn string_list(value: &Value) -> Option<Vec<String>> {
    serde_json::from_value(value.clone()).ok()
}
