//! Owns what a command asks for, as one number: the same from a record of a log, a snapshot and a history.
//! Never tells copies of a request apart, and shares no code with the node.

use results::history::Operation;
use serde_json::Value;

use super::command;
use super::state_hash::Hash;

/// So few that every reader of JSON has all of them.
const NUMBER_BITS: u32 = 52;

/// What a record that is no command asks for.
const NOTHING_KNOWN: u64 = 0;

/// One step of a command.
#[derive(Debug, Clone, PartialEq)]
pub(super) enum Step<'a> {
    /// A read, which is in the log only as a part of something else.
    Read { key: &'a str },
    /// A register is set.
    Write { key: &'a str, value: Value },
    /// The same, if it holds what is expected.
    CompareAndSet {
        key: &'a str,
        expected: Value,
        new: Value,
    },
    /// A value is added at the end of a list.
    Append { key: &'a str, value: Value },
    /// An element is added to a set.
    AddElement { key: &'a str, value: Value },
    /// A number is added to a counter.
    AddNumber { key: &'a str, delta: i64 },
}

impl Step<'_> {
    fn add_to(&self, hash: Hash) -> Hash {
        let hash_of = |word: &str, key: &str| hash.bytes(word.as_bytes()).bytes(key.as_bytes());
        match self {
            Self::Read { key } => hash_of("read", key),
            Self::Write { key, value } => hash_of("write", key).json(&value.to_string()),
            Self::CompareAndSet { key, expected, new } => hash_of("cas", key)
                .json(&expected.to_string())
                .json(&new.to_string()),
            Self::Append { key, value } => hash_of("append", key).json(&value.to_string()),
            Self::AddElement { key, value } => hash_of("add", key).json(&value.to_string()),
            Self::AddNumber { key, delta } => hash_of("count", key).json(&delta.to_string()),
        }
    }

    /// The number of this step alone.
    pub(super) fn number(&self) -> u64 {
        number(std::slice::from_ref(self))
    }

    /// What it leaves in a state once it has taken effect, if that can be told from what others leave.
    pub(super) fn left_behind(&self) -> Option<u64> {
        match self {
            Self::Read { .. } | Self::AddNumber { .. } => None,
            Self::CompareAndSet { key, new, .. } => {
                let value = new.clone();
                Some(Step::Write { key, value }.number())
            }
            Self::Write { .. } | Self::Append { .. } | Self::AddElement { .. } => {
                Some(self.number())
            }
        }
    }
}

/// The number of a command of these steps.
pub(super) fn number(steps: &[Step<'_>]) -> u64 {
    let hash = steps
        .iter()
        .fold(Hash::new(), |hash, step| step.add_to(hash));
    hash.end() >> (u64::BITS - NUMBER_BITS)
}

/// `None` for what is not known.
fn step_of_command<'a>(asked: &'a mut command::Operation<'_>) -> Option<Step<'a>> {
    let value = asked.value.take();
    let key = asked.key.as_ref();
    Some(match asked.kind.as_ref() {
        "register-write" => Step::Write { key, value },
        "register-compare-and-set" => Step::CompareAndSet {
            key,
            expected: asked.expected.take(),
            new: asked.new.take(),
        },
        "list-append" => Step::Append { key, value },
        "set-add" => Step::AddElement { key, value },
        "counter-add" => Step::AddNumber {
            key,
            delta: asked.delta?,
        },
        "register-read" | "list-read" | "set-read" | "counter-read" => Step::Read { key },
        _ => return None,
    })
}

/// What a record of the log asks for.
pub(super) fn of_record(record: &[u8]) -> u64 {
    let Ok(mut command) = serde_json::from_slice::<command::Command<'_>>(record) else {
        return NOTHING_KNOWN;
    };
    let steps: Option<Vec<Step<'_>>> = command.operations.iter_mut().map(step_of_command).collect();
    steps.map_or(NOTHING_KNOWN, |steps| number(&steps))
}

/// The steps that an invocation asks for. `None` where nothing of it can be in a log: of a single read, or of what is
/// not known.
pub(super) fn steps<'a>(invoked: &'a Operation, counts: bool) -> Option<Vec<Step<'a>>> {
    if invoked.f == "txn" {
        let steps = invoked.value.as_array()?.iter();
        return steps.map(step_of_transaction).collect();
    }
    let key = invoked.key.as_ref()?.as_str();
    let value = invoked.value.clone();
    Some(match invoked.f.as_ref() {
        "write" => vec![Step::Write { key, value }],
        "cas" => {
            let [expected, new] = value.as_array()?.as_slice() else {
                return None;
            };
            let (expected, new) = (expected.clone(), new.clone());
            vec![Step::CompareAndSet { key, expected, new }]
        }
        "append" => vec![Step::Append { key, value }],
        "add" if counts => vec![Step::AddNumber {
            key,
            delta: value.as_i64()?,
        }],
        "add" => vec![Step::AddElement { key, value }],
        "generate" => vec![Step::AddNumber { key, delta: 1 }, Step::Read { key }],
        _ => return None,
    })
}

fn step_of_transaction(step: &Value) -> Option<Step<'_>> {
    let key = step[1].as_str()?;
    Some(match step[0].as_str()? {
        "r" => Step::Read { key },
        "append" => Step::Append {
            key,
            value: step[2].clone(),
        },
        _ => return None,
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::operations::lines;

    fn of_history(f: &str, value: Value, counts: bool) -> u64 {
        let line = lines("k", &[(0, "invoke", f, value)]).remove(0);
        number(&steps(&line, counts).unwrap())
    }

    fn of_log(operations: Value) -> u64 {
        let stamp = json!({"client": "a", "request": 1});
        let command = json!({"stamp": stamp, "operations": operations});
        of_record(command.to_string().as_bytes())
    }

    #[test]
    fn a_log_and_a_history_say_the_same_of_every_operation() {
        let cases = [
            (
                "write",
                json!("a\"b"),
                false,
                json!([{"type": "register-write", "key": "k", "value": "a\"b"}]),
            ),
            (
                "cas",
                json!([null, 4]),
                false,
                json!([{"type": "register-compare-and-set", "key": "k", "expected": null, "new": 4}]),
            ),
            (
                "append",
                json!(3),
                false,
                json!([{"type": "list-append", "key": "k", "value": 3}]),
            ),
            (
                "add",
                json!(3),
                false,
                json!([{"type": "set-add", "key": "k", "value": 3}]),
            ),
            (
                "add",
                json!(-3),
                true,
                json!([{"type": "counter-add", "key": "k", "delta": -3}]),
            ),
            (
                "generate",
                Value::Null,
                true,
                json!([{"type": "counter-add", "key": "k", "delta": 1}, {"type": "counter-read", "key": "k"}]),
            ),
            (
                "txn",
                json!([["r", "1", null], ["append", "2", 5]]),
                false,
                json!([{"type": "list-read", "key": "1"}, {"type": "list-append", "key": "2", "value": 5}]),
            ),
        ];
        let mut seen = std::collections::BTreeSet::new();
        for (f, value, counts, operations) in cases {
            let told = of_history(f, value, counts);
            assert_eq!(told, of_log(operations), "{f}");
            assert!(told < 1 << NUMBER_BITS && seen.insert(told), "{f}");
        }
    }

    #[test]
    fn what_is_no_command_is_like_none() {
        let unknown = of_log(json!([{"type": "earthquake", "key": "k"}]));
        assert_eq!((unknown, of_record(b"{")), (NOTHING_KNOWN, NOTHING_KNOWN));
        let read = lines("k", &[(0, "invoke", "read", Value::Null)]).remove(0);
        assert_eq!(steps(&read, false), None);
    }

    #[test]
    fn a_compare_and_set_leaves_behind_what_a_write_does() {
        let write = Step::Write {
            key: "k",
            value: json!(4),
        };
        let (expected, new) = (json!(3), json!(4));
        let swap = Step::CompareAndSet {
            key: "k",
            expected,
            new,
        };
        assert_ne!(swap.number(), write.number());
        assert_eq!(swap.left_behind(), Some(write.number()));
    }
}
