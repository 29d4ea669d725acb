//! Owns what clients may ask of a node and what they are told, as machine-readable codes.
//! Never leaves open whether a refused request took effect: a refusal is certain, the rest is unknown.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::ids::{Epoch, NodeId, Offset};
use crate::machine::{
    Applied, CommandFault, Failure, Kind, Object, Operation, OperationResult, Outcome, Stamp,
};

/// What a client asks.
#[derive(Debug, Clone, PartialEq)]
pub enum ClientRequest {
    /// Content of an object, linearizable: only the leader answers, once it has made sure that it
    /// still leads.
    Read {
        /// The object.
        object: Object,
    },
    /// Content of an object as this node has it, at once and without any confirmation. It may be
    /// arbitrarily old.
    LocalRead {
        /// The object.
        object: Object,
    },
    /// A single operation.
    Apply {
        /// Who asks, where copies of the request are to be recognised.
        stamp: Option<Stamp>,
        /// What to do.
        operation: Operation,
    },
    /// Several operations, all at once or not at all.
    Transaction {
        /// Who asks, where copies of the request are to be recognised.
        stamp: Option<Stamp>,
        /// What to do, in order.
        operations: Vec<Operation>,
    },
}

impl ClientRequest {
    /// Whether it changes nothing.
    pub fn is_read(&self) -> bool {
        matches!(self, Self::Read { .. } | Self::LocalRead { .. })
    }

    /// A linearizable read of a register.
    pub fn read(key: impl Into<String>) -> Self {
        let (kind, key) = (Kind::Register, key.into());
        Self::Read {
            object: Object { kind, key },
        }
    }

    /// A write to a register.
    pub fn write(key: impl Into<String>, value: impl Into<Value>) -> Self {
        let (key, value) = (key.into(), value.into());
        Self::apply(Operation::RegisterWrite { key, value })
    }

    /// A compare-and-set of a register. A register never written holds `null`.
    pub fn compare_and_set(
        key: impl Into<String>,
        expected: impl Into<Value>,
        new: impl Into<Value>,
    ) -> Self {
        Self::apply(Operation::RegisterCompareAndSet {
            key: key.into(),
            expected: expected.into(),
            new: new.into(),
        })
    }

    /// A single operation without a stamp.
    pub fn apply(operation: Operation) -> Self {
        let stamp = None;
        Self::Apply { stamp, operation }
    }
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
        /// Content of the object.
        value: Value,
        /// Where the read took place.
        position: Position,
    },
    /// What this node had applied, whatever happened elsewhere since.
    Local {
        /// Content of the object.
        value: Value,
        /// Every record below is applied.
        applied: Offset,
        /// Epoch of this node.
        epoch: Epoch,
    },
    /// The operation took effect.
    Written {
        /// Where it took place.
        position: Position,
    },
    /// All operations of a transaction took effect.
    Results {
        /// One per operation, in order.
        results: Vec<OperationResult>,
        /// Where it took place.
        position: Position,
    },
    /// The request was carried out as far as it could, and changed nothing.
    NotApplied {
        /// Which operation of a transaction failed, counted from 0.
        operation: Option<usize>,
        /// Why.
        failure: Failure,
        /// Where that was found.
        position: Position,
    },
    /// A later request of the same client was applied before, so this one changed nothing now. An
    /// earlier copy of it may have taken effect.
    Stale {
        /// The latest request of the client.
        last_request: u64,
        /// Where that was found.
        position: Position,
    },
    /// Another request of the same client with the same number was applied before. This one
    /// changed nothing.
    Reused {
        /// Where that was found.
        position: Position,
    },
    /// The command breaks a limit and certainly was not carried out.
    Invalid {
        /// Which limit.
        fault: CommandFault,
        /// Who leads, as far as this node knows.
        leader: Option<NodeId>,
        /// Epoch of this node.
        epoch: Epoch,
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

impl ClientReply {
    /// The reply for a command that was applied.
    pub(crate) fn of(applied: Applied, epoch: Epoch, is_transaction: bool) -> Self {
        let position = Position {
            epoch,
            offset: applied.offset,
        };
        match applied.outcome {
            Outcome::Done { results } if is_transaction => Self::Results { results, position },
            Outcome::Done { .. } => Self::Written { position },
            Outcome::Failed { operation, failure } => Self::NotApplied {
                operation: is_transaction.then_some(operation),
                failure,
                position,
            },
            Outcome::Reused => Self::Reused { position },
            Outcome::Stale { last_request } => Self::Stale {
                last_request,
                position,
            },
        }
    }
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
    /// Too many clients wait already.
    Overloaded,
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
