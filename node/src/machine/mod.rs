//! Owns the replicated state machine that committed commands are applied to.
//! Never sees uncommitted commands, clocks or randomness: equal logs give equal states.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod command;
mod common_commands;
mod digest;
mod list_values;
mod objects;
mod operation_fields;
mod sessions;
mod snapshot;

#[cfg(test)]
mod measurements;
#[cfg(test)]
mod tests;

pub use command::{
    Command, CommandFault, Kind, MAX_CLIENT_ID_CHARS, MAX_COMMAND_BYTES, MAX_KEY_BYTES,
    MAX_OPERATION_COUNT, MAX_VALUE_DEPTH, Object, Operation, Stamp,
};
pub use objects::MAX_RESULT_BYTES;
pub use sessions::{MAX_SESSION_COUNT, MAX_SESSION_RESULT_BYTES};
pub use snapshot::{
    FrozenMachine, MAX_SNAPSHOT_RECORD_BYTES, MachineLoader, RECORD_VERSION, SnapshotFault,
    SnapshotRecordError,
};

use serde::{Deserialize, Deserializer, Serialize};
use serde_json::Value;

use crate::ids::Offset;
use digest::Digest;
use objects::Objects;
use sessions::{Seen, Sessions};

/// What one operation of a command gave.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct OperationResult {
    /// What a read returned; absent for everything else.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "present"
    )]
    pub value: Option<Value>,
}

/// A value that is there, even if it is `null`: a read of a fresh register is no write.
fn present<'de, D: Deserializer<'de>>(deserializer: D) -> Result<Option<Value>, D::Error> {
    Value::deserialize(deserializer).map(Some)
}

/// Why an operation could not be carried out, and with it nothing of its command.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Failure {
    /// The register does not hold the expected value.
    CompareMismatch {
        /// What it holds.
        current: Value,
    },
    /// The sum does not fit into a signed 64-bit number.
    CounterOverflow {
        /// What the counter holds.
        current: i64,
    },
    /// What the reads of the command return is longer than [`MAX_RESULT_BYTES`].
    ResultTooLarge,
}

/// What applying a command did.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case", deny_unknown_fields)]
pub enum Outcome {
    /// All operations took effect, at once.
    Done {
        /// One result per operation, in order.
        results: Vec<OperationResult>,
    },
    /// Nothing took effect.
    Failed {
        /// Which operation could not be carried out, counted from 0.
        operation: usize,
        /// Why.
        failure: Failure,
    },
    /// Nothing took effect now: the client has had a later request applied already. Whether this
    /// one had been applied before that is not known any more.
    Stale {
        /// The latest request of the client.
        last_request: u64,
    },
    /// Nothing took effect: under this number, the client has had something else applied.
    Reused,
}

/// An outcome, and where in the log it came about.
#[derive(Debug, Clone, PartialEq)]
pub struct Applied {
    /// What happened.
    pub outcome: Outcome,
    /// Offset of the command that did it; for a repeated request, of its first copy.
    pub offset: Offset,
}

/// The replicated state: all objects, and what the clients were told last.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Machine {
    objects: Objects,
    sessions: Sessions,
}

impl Machine {
    /// Applies a committed command. `offset` is where it is in the log; it must rise from call to
    /// call, as it decides which sessions are the oldest.
    ///
    /// A command with a stamp is applied once: a copy of it gets the outcome of the first one.
    pub fn apply(&mut self, offset: Offset, command: Command) -> Applied {
        let Command { stamp, operations } = command;
        let Some(stamp) = stamp else {
            let outcome = self.objects.apply(operations);
            return Applied { outcome, offset };
        };
        let fingerprint = Digest::new().json(&operations).finish();
        match self.sessions.look_up(&stamp, fingerprint, offset) {
            Seen::Before(applied) => applied,
            Seen::Later { last_request } => {
                let outcome = Outcome::Stale { last_request };
                Applied { outcome, offset }
            }
            Seen::Different => {
                let outcome = Outcome::Reused;
                Applied { outcome, offset }
            }
            Seen::Never => {
                let outcome = self.objects.apply(operations);
                let applied = Applied { outcome, offset };
                self.sessions.remember(stamp, fingerprint, applied.clone());
                applied
            }
        }
    }

    /// Content of an object. What was never written reads as `null` (register), `[]` (list, set)
    /// or 0 (counter).
    pub fn read(&self, object: &Object) -> Value {
        self.objects.read(object)
    }

    /// The state as it is now, to be written down while this machine goes on. Costs next to nothing:
    /// both share everything until this machine changes it.
    pub fn freeze(&self) -> FrozenMachine {
        FrozenMachine::new(self.clone())
    }

    /// The state without what clients were told: the seeded bug B59.
    pub(crate) fn without_sessions(&self) -> Self {
        Self {
            objects: self.objects.clone(),
            sessions: Sessions::default(),
        }
    }

    /// A number that differs, almost certainly, between different states, and is equal for equal
    /// ones: on every node, in every version that lays out its state alike. Kept up to date with
    /// every change, so asking is free.
    pub fn digest(&self) -> u64 {
        digest::mix(self.objects.digest() ^ digest::mix(self.sessions.digest()))
    }
}
