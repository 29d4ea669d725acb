//! Owns what a log record says: operations on objects, and who asked for them.
//! Never applies anything.

use serde::{Deserialize, Serialize};
use serde_json::Value;

use super::common_commands;

/// Longest key, in bytes.
pub const MAX_KEY_BYTES: usize = 256;
/// Longest id of a client, in characters.
pub const MAX_CLIENT_ID_CHARS: usize = 64;
/// Most operations of one command.
pub const MAX_OPERATION_COUNT: usize = 128;
/// Longest encoded command, in bytes.
pub const MAX_COMMAND_BYTES: usize = 64 * 1024;
/// How deep arrays and objects may be nested in a value. Less than what the decoder takes, so that
/// what is accepted can always be read back from the log.
pub const MAX_VALUE_DEPTH: usize = 100;

/// The kinds of objects. Each has its own namespace of keys.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Kind {
    /// Holds one value.
    Register,
    /// Holds values in the order in which they were appended.
    List,
    /// Holds different values, in no order that means anything.
    Set,
    /// Holds a signed 64-bit number.
    Counter,
}

/// Names an object.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord)]
pub struct Object {
    /// Its kind.
    pub kind: Kind,
    /// Its name among those of its kind.
    pub key: String,
}

/// One operation on one object.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(
    tag = "type",
    rename_all = "kebab-case",
    try_from = "super::operation_fields::OperationFields"
)]
pub enum Operation {
    /// Content of a register, `null` if never written.
    RegisterRead {
        /// The register.
        key: String,
    },
    /// Sets a register.
    RegisterWrite {
        /// The register.
        key: String,
        /// Its new value.
        value: Value,
    },
    /// Sets a register if it holds the expected value; fails otherwise.
    RegisterCompareAndSet {
        /// The register.
        key: String,
        /// What it must hold; `null` for one never written.
        expected: Value,
        /// Its new value.
        new: Value,
    },
    /// All values of a list, as an array.
    ListRead {
        /// The list.
        key: String,
    },
    /// Adds a value at the end of a list.
    ListAppend {
        /// The list.
        key: String,
        /// The value.
        value: Value,
    },
    /// All values of a set, as an array in the order of their JSON texts.
    SetRead {
        /// The set.
        key: String,
    },
    /// Adds a value to a set, if it is not there yet.
    SetAdd {
        /// The set.
        key: String,
        /// The value.
        value: Value,
    },
    /// The number in a counter.
    CounterRead {
        /// The counter.
        key: String,
    },
    /// Adds to a counter; fails where the sum would not fit.
    CounterAdd {
        /// The counter.
        key: String,
        /// What to add.
        delta: i64,
    },
}

impl Operation {
    /// The key of the object.
    pub fn key(&self) -> &str {
        match self {
            Self::RegisterRead { key }
            | Self::RegisterWrite { key, .. }
            | Self::RegisterCompareAndSet { key, .. }
            | Self::ListRead { key }
            | Self::ListAppend { key, .. }
            | Self::SetRead { key }
            | Self::SetAdd { key, .. }
            | Self::CounterRead { key }
            | Self::CounterAdd { key, .. } => key,
        }
    }

    fn values(&self) -> [Option<&Value>; 2] {
        match self {
            Self::RegisterWrite { value, .. }
            | Self::ListAppend { value, .. }
            | Self::SetAdd { value, .. } => [Some(value), None],
            Self::RegisterCompareAndSet { expected, new, .. } => [Some(expected), Some(new)],
            _ => [None, None],
        }
    }
}

/// Names a request of a client, so that a copy of it can be recognised.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Stamp {
    /// The client. Two clients must not share an id.
    pub client: String,
    /// Rises with every new request of the client; a repeated request keeps its number.
    pub request: u64,
}

/// What is stored in one log record and applied at once: all of its operations, or none.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Command {
    /// Who asks, where copies are to be recognised.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stamp: Option<Stamp>,
    /// What to do, in order. Each operation sees what those before it did.
    pub operations: Vec<Operation>,
}

/// Why a command must not enter the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum CommandFault {
    /// There is nothing to do.
    #[error("there is no operation to carry out")]
    Empty,
    /// Too many operations.
    #[error("there are more than {MAX_OPERATION_COUNT} operations")]
    Operations,
    /// A key is empty or too long.
    #[error("a key has 1 to {MAX_KEY_BYTES} bytes")]
    Key,
    /// A value is nested too deeply.
    #[error("a value is nested deeper than {MAX_VALUE_DEPTH} levels")]
    Depth,
    /// The id of the client is empty, too long, or not of visible ASCII characters.
    #[error("a client id has 1 to {MAX_CLIENT_ID_CHARS} visible ASCII characters")]
    ClientId,
    /// The command is too long.
    #[error("the command is longer than {MAX_COMMAND_BYTES} bytes")]
    Length,
}

impl Command {
    /// A command of one operation, without a stamp.
    pub fn single(operation: Operation) -> Self {
        Self {
            stamp: None,
            operations: vec![operation],
        }
    }

    /// The bytes of a log record, for a command that may enter the log.
    ///
    /// # Errors
    /// When it may not.
    pub fn encode(&self) -> Result<Vec<u8>, CommandFault> {
        self.check()?;
        let bytes =
            serde_json::to_vec(self).expect("a command of strings and JSON values always encodes");
        if bytes.len() > MAX_COMMAND_BYTES {
            return Err(CommandFault::Length);
        }
        Ok(bytes)
    }

    /// Reads a log record.
    ///
    /// # Errors
    /// When the bytes are not a command of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        match common_commands::decode(bytes) {
            Some(command) => Ok(command),
            None => serde_json::from_slice(bytes),
        }
    }

    /// Whether it takes effect whatever others did before: it compares nothing, and is no copy of an earlier one.
    pub fn is_unconditional(&self) -> bool {
        let compares =
            |operation: &Operation| matches!(operation, Operation::RegisterCompareAndSet { .. });
        self.stamp.is_none() && !self.operations.iter().any(compares)
    }

    fn check(&self) -> Result<(), CommandFault> {
        match self.operations.len() {
            0 => return Err(CommandFault::Empty),
            1..=MAX_OPERATION_COUNT => {}
            _ => return Err(CommandFault::Operations),
        }
        for operation in &self.operations {
            check_key(operation.key())?;
            let mut values = operation.values().into_iter().flatten();
            if values.any(|value| !fits(value, MAX_VALUE_DEPTH)) {
                return Err(CommandFault::Depth);
            }
        }
        self.stamp.as_ref().map_or(Ok(()), Stamp::check)
    }
}

impl Stamp {
    /// Whether the id of the client may be used.
    ///
    /// # Errors
    /// When it may not.
    pub fn check(&self) -> Result<(), CommandFault> {
        let sound = (1..=MAX_CLIENT_ID_CHARS).contains(&self.client.len())
            && self.client.bytes().all(|byte| byte.is_ascii_graphic());
        if sound {
            Ok(())
        } else {
            Err(CommandFault::ClientId)
        }
    }
}

impl Object {
    /// Whether the key may be used.
    ///
    /// # Errors
    /// When it may not.
    pub fn check(&self) -> Result<(), CommandFault> {
        check_key(&self.key)
    }
}

fn check_key(key: &str) -> Result<(), CommandFault> {
    if (1..=MAX_KEY_BYTES).contains(&key.len()) {
        Ok(())
    } else {
        Err(CommandFault::Key)
    }
}

/// Whether arrays and objects are nested at most `depth` deep.
fn fits(value: &Value, depth: usize) -> bool {
    match value {
        Value::Array(items) => depth > 0 && items.iter().all(|item| fits(item, depth - 1)),
        Value::Object(members) => depth > 0 && members.values().all(|item| fits(item, depth - 1)),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn write(key: &str, value: Value) -> Operation {
        Operation::RegisterWrite {
            key: key.into(),
            value,
        }
    }

    fn nested(depth: usize) -> Value {
        (0..depth).fold(json!(1), |value, level| {
            if level % 2 == 0 {
                json!([value])
            } else {
                json!({ "x": value })
            }
        })
    }

    #[test]
    fn commands_survive_the_log() {
        let key = || "a\"b".to_string();
        let command = Command {
            stamp: Some(Stamp {
                client: "c1".into(),
                request: u64::MAX,
            }),
            operations: vec![
                Operation::RegisterRead { key: key() },
                write("a", json!({"x": [1, null, 0.1]})),
                Operation::RegisterCompareAndSet {
                    key: key(),
                    expected: Value::Null,
                    new: json!(""),
                },
                Operation::ListRead { key: key() },
                Operation::ListAppend {
                    key: key(),
                    value: json!(2),
                },
                Operation::SetRead { key: key() },
                Operation::SetAdd {
                    key: key(),
                    value: nested(MAX_VALUE_DEPTH),
                },
                Operation::CounterRead { key: key() },
                Operation::CounterAdd {
                    key: key(),
                    delta: i64::MIN,
                },
            ],
        };
        assert_eq!(
            Command::decode(&command.encode().unwrap()).unwrap(),
            command
        );
        let plain = Command::single(write("a", json!(1)));
        assert_eq!(
            String::from_utf8(plain.encode().unwrap()).unwrap(),
            r#"{"operations":[{"type":"register-write","key":"a","value":1}]}"#
        );
    }

    #[test]
    fn what_is_not_a_command_is_not_decoded() {
        for bytes in [
            "{}",
            r#"{"operations":[{"type":"register-write","key":"a"}]}"#,
            r#"{"operations":[{"type":"register-write","key":"a","value":1,"more":2}]}"#,
            r#"{"operations":[{"type":"counter-add","key":"a","delta":9223372036854775808}]}"#,
            r#"{"operations":[{"type":"counter-add","key":"a","delta":1.5}]}"#,
            r#"{"operations":[{"type":"list-pop","key":"a"}]}"#,
            r#"{"operations":[],"more":1}"#,
        ] {
            assert!(Command::decode(bytes.as_bytes()).is_err(), "{bytes}");
        }
    }

    #[test]
    fn only_comparisons_and_copies_hang_on_what_others_did() {
        let key = || "a".to_string();
        let value = || json!(1);
        let append = Operation::ListAppend {
            key: key(),
            value: value(),
        };
        let add = Operation::CounterAdd {
            key: key(),
            delta: 1,
        };
        let swap = Operation::RegisterCompareAndSet {
            key: key(),
            expected: value(),
            new: value(),
        };
        for operation in [
            write("a", value()),
            append.clone(),
            add,
            Operation::ListRead { key: key() },
        ] {
            assert!(Command::single(operation).is_unconditional());
        }
        assert!(!Command::single(swap.clone()).is_unconditional());
        let mixed = Command {
            stamp: None,
            operations: vec![append.clone(), swap],
        };
        assert!(!mixed.is_unconditional());
        let stamp = Some(Stamp {
            client: "c".into(),
            request: 1,
        });
        let operations = vec![append];
        assert!(!Command { stamp, operations }.is_unconditional());
    }

    #[test]
    fn limits_hold_at_their_edges() {
        let of = |operations| Command {
            stamp: None,
            operations,
        };
        let one = |key: &str, value| of(vec![write(key, value)]).encode().err();
        let many = |count| of(vec![write("a", json!(1)); count]).encode().err();
        assert_eq!(many(0), Some(CommandFault::Empty));
        assert_eq!(many(MAX_OPERATION_COUNT), None);
        assert_eq!(
            many(MAX_OPERATION_COUNT + 1),
            Some(CommandFault::Operations)
        );
        assert_eq!(one("", json!(1)), Some(CommandFault::Key));
        assert_eq!(one(&"k".repeat(MAX_KEY_BYTES), json!(1)), None);
        assert_eq!(
            one(&"k".repeat(MAX_KEY_BYTES + 1), json!(1)),
            Some(CommandFault::Key)
        );
        assert_eq!(one("a", nested(MAX_VALUE_DEPTH)), None);
        assert_eq!(
            one("a", nested(MAX_VALUE_DEPTH + 1)),
            Some(CommandFault::Depth)
        );
        assert_eq!(
            one("a", json!("x".repeat(MAX_COMMAND_BYTES))),
            Some(CommandFault::Length)
        );
        let stamped = |client: &str| {
            let stamp = Some(Stamp {
                client: client.into(),
                request: 0,
            });
            let operations = vec![write("a", json!(1))];
            Command { stamp, operations }.encode().err()
        };
        assert_eq!(stamped(&"c".repeat(MAX_CLIENT_ID_CHARS)), None);
        for client in ["", "a b", "é", &"c".repeat(MAX_CLIENT_ID_CHARS + 1)] {
            assert_eq!(stamped(client), Some(CommandFault::ClientId), "{client}");
        }
    }
}
