//! Owns how a command stands in a record of a log.
//! Never says what becomes of it, and shares no code with the node.

use std::borrow::Cow;

use serde::Deserialize;
use serde_json::Value;

/// A record of the log: the commands of a run are as many as its operations, on every node.
#[derive(Debug, Deserialize)]
pub(super) struct Command<'a> {
    #[serde(borrow, default)]
    pub(super) stamp: Option<Stamp<'a>>,
    #[serde(borrow)]
    pub(super) operations: Vec<Operation<'a>>,
}

/// Whose request a command is.
#[derive(Debug, Deserialize)]
pub(super) struct Stamp<'a> {
    #[serde(borrow)]
    pub(super) client: Cow<'a, str>,
    pub(super) request: u64,
}

/// What a command does to one object. What its type does not need is not there.
#[derive(Debug, Deserialize)]
pub(super) struct Operation<'a> {
    #[serde(borrow, rename = "type")]
    pub(super) kind: Cow<'a, str>,
    #[serde(borrow)]
    pub(super) key: Cow<'a, str>,
    #[serde(default)]
    pub(super) value: Value,
    #[serde(default)]
    pub(super) expected: Value,
    #[serde(default)]
    pub(super) new: Value,
    #[serde(default)]
    pub(super) delta: Option<i64>,
}
