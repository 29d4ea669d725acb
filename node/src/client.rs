//! Owns what clients may ask of a node and what they are told, as machine-readable codes.
//! Never leaves open whether a refused request took effect: a refusal is certain, the rest is unknown.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{Epoch, NodeId, Offset};

/// What a client asks.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientRequest {
    /// Linearizable read of a register.
    Read {
        /// The register.
        key: String,
    },
    /// Sets a register.
    Write {
        /// The register.
        key: String,
        /// Its new value.
        value: Value,
    },
    /// Sets a register if it holds the expected value. A register never written holds `null`.
    CompareAndSet {
        /// The register.
        key: String,
        /// What it must hold.
        expected: Value,
        /// Its new value.
        new: Value,
    },
}

/// Where in the history of the cluster an answer belongs.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct Position {
    /// Epoch of the leader that answered.
    pub epoch: Epoch,
    /// Offset of the command, or for a read the high watermark it was served at.
    pub offset: Offset,
}

/// What a client is told.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientReply {
    /// The value read.
    Value {
        /// Content of the register, `null` if never written.
        value: Value,
        /// Where the read took place.
        position: Position,
    },
    /// The write, or compare-and-set, took effect.
    Written {
        /// Where it took place.
        position: Position,
    },
    /// The compare-and-set was carried out and found another value, so it changed nothing.
    CompareMismatch {
        /// What the register held.
        current: Value,
        /// Where the comparison took place.
        position: Position,
    },
    /// The request was certainly not carried out.
    Refused {
        /// Why.
        code: RefusalCode,
        /// Who leads, as far as this node knows.
        leader: Option<NodeId>,
        /// Epoch of this node.
        epoch: Epoch,
    },
    /// The request may have been, or may yet be, carried out.
    Unknown {
        /// Why nobody knows.
        code: UnknownCode,
        /// Epoch of this node.
        epoch: Epoch,
    },
}

/// Reasons why a request was certainly not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum RefusalCode {
    /// The node does not lead.
    NotLeaderOrFollower,
    /// The node is shutting down.
    BrokerNotAvailable,
    /// The request is malformed or too large.
    InvalidRequest,
    /// The request names another cluster.
    InconsistentClusterId,
}

/// Reasons why nobody knows whether a request took effect.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum UnknownCode {
    /// The command entered the log of a leader that lost leadership before it was committed.
    LeadershipLost,
    /// The node stopped while the command was under way.
    Stopping,
}
