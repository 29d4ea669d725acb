//! Owns the registers: named cells with write and compare-and-set.
//! Never fails: a committed command that cannot be decoded is a broken invariant, not an error.

use std::collections::BTreeMap;

use serde::{Deserialize, Serialize};
use serde_json::Value;

/// A command as it is stored in the log, encoded as JSON.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(tag = "type", rename_all = "kebab-case")]
pub enum Command {
    /// Sets a register.
    Write {
        /// The register.
        key: String,
        /// Its new value.
        value: Value,
    },
    /// Sets a register if it holds the expected value.
    CompareAndSet {
        /// The register.
        key: String,
        /// What it must hold.
        expected: Value,
        /// Its new value.
        new: Value,
    },
}

/// What applying a command did.
#[derive(Debug, Clone, PartialEq)]
pub enum Applied {
    /// The register holds the new value.
    Written,
    /// The comparison failed and nothing changed.
    CompareMismatch {
        /// What the register holds.
        current: Value,
    },
}

impl Command {
    /// The bytes of a log record.
    ///
    /// # Panics
    /// Never: a JSON value with string keys always encodes.
    pub fn encode(&self) -> Vec<u8> {
        serde_json::to_vec(self).expect("a command of strings and JSON values always encodes")
    }

    /// Reads a log record.
    ///
    /// # Errors
    /// When the bytes are not a command of this version.
    pub fn decode(bytes: &[u8]) -> Result<Self, serde_json::Error> {
        serde_json::from_slice(bytes)
    }
}

/// The registers of a cluster.
#[derive(Debug, Clone, Default, PartialEq)]
pub struct Registers {
    cells: BTreeMap<String, Value>,
}

impl Registers {
    /// Content of a register, `null` if never written.
    pub fn read(&self, key: &str) -> Value {
        self.cells.get(key).cloned().unwrap_or(Value::Null)
    }

    /// Applies a committed command.
    pub fn apply(&mut self, command: Command) -> Applied {
        match command {
            Command::Write { key, value } => {
                self.cells.insert(key, value);
                Applied::Written
            }
            Command::CompareAndSet { key, expected, new } => {
                let current = self.cells.get(&key).unwrap_or(&Value::Null);
                if *current == expected {
                    self.cells.insert(key, new);
                    Applied::Written
                } else {
                    Applied::CompareMismatch {
                        current: current.clone(),
                    }
                }
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn compare_and_set_sees_null_in_a_fresh_register() {
        let mut registers = Registers::default();
        let swap = |expected, new| Command::CompareAndSet {
            key: "a".into(),
            expected,
            new,
        };
        assert_eq!(
            registers.apply(swap(json!(null), json!(1))),
            Applied::Written
        );
        assert_eq!(
            registers.apply(swap(json!(2), json!(3))),
            Applied::CompareMismatch { current: json!(1) }
        );
        assert_eq!(registers.read("a"), json!(1));
        assert_eq!(registers.read("b"), Value::Null);
    }

    #[test]
    fn commands_survive_the_log() {
        let command = Command::Write {
            key: "a\"b".into(),
            value: json!({"x": [1, null]}),
        };
        assert_eq!(Command::decode(&command.encode()).unwrap(), command);
        assert!(Command::decode(b"{}").is_err());
    }
}
