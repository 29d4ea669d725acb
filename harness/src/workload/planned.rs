//! Owns one planned operation: how it is asked for, how the history shows it, and what its answer means.
//! Never decides when or whom to ask.

use node::machine::{Kind, Object, Operation};
use serde_json::{Value, json};

use crate::world::Request;

/// One operation, as planned before the run.
#[derive(Debug, Clone, PartialEq)]
pub enum Planned {
    /// Reads a register.
    Read {
        /// The register.
        key: String,
    },
    /// Sets a register to a value that no other operation of the run uses.
    Write {
        /// The register.
        key: String,
        /// The value.
        value: Value,
    },
    /// Sets a register to a value that no other operation uses, if it still holds what the client
    /// saw there last (`null` if it saw nothing).
    CompareAndSet {
        /// The register.
        key: String,
        /// The value.
        new: Value,
    },
    /// Reads a list.
    ReadList {
        /// The list.
        key: String,
    },
    /// Appends a value to a list that no other operation appends.
    Append {
        /// The list.
        key: String,
        /// The value.
        value: Value,
    },
    /// Reads a set.
    ReadSet {
        /// The set.
        key: String,
    },
    /// Adds an element to a set that no other operation adds.
    AddElement {
        /// The set.
        key: String,
        /// The element.
        value: Value,
    },
    /// Reads a counter.
    ReadCounter {
        /// The counter.
        key: String,
    },
    /// Adds a number to a counter.
    AddNumber {
        /// The counter.
        key: String,
        /// The number.
        delta: i64,
    },
    /// Adds one to a counter and takes the sum, which nobody else may get.
    DrawId {
        /// The counter.
        key: String,
    },
    /// Several steps on lists, all at once or not at all.
    Transaction {
        /// In order; each sees what those before it did.
        steps: Vec<Step>,
    },
}

/// One step of a transaction.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Step {
    /// Reads a list.
    Read {
        /// The list.
        key: String,
    },
    /// Appends a value that no other step of the run appends.
    Append {
        /// The list.
        key: String,
        /// The value.
        value: u64,
    },
}

impl Step {
    fn key(&self) -> &str {
        match self {
            Self::Read { key } | Self::Append { key, .. } => key,
        }
    }

    fn operation(&self) -> Operation {
        match self.clone() {
            Self::Read { key } => Operation::ListRead { key },
            Self::Append { key, value } => Operation::ListAppend {
                key,
                value: value.into(),
            },
        }
    }

    /// The step as the history shows it, with what it returned.
    fn shown(&self, returned: Value) -> Value {
        match self {
            Self::Read { key } => json!(["r", key, returned]),
            Self::Append { key, value } => json!(["append", key, value]),
        }
    }
}

impl Planned {
    /// The objects concerned, in order, more than once where several steps are about the same.
    pub fn keys(&self) -> impl Iterator<Item = &str> {
        let (one, steps) = match self {
            Self::Read { key }
            | Self::Write { key, .. }
            | Self::CompareAndSet { key, .. }
            | Self::ReadList { key }
            | Self::Append { key, .. }
            | Self::ReadSet { key }
            | Self::AddElement { key, .. }
            | Self::ReadCounter { key }
            | Self::AddNumber { key, .. }
            | Self::DrawId { key } => (Some(key.as_str()), [].as_slice()),
            Self::Transaction { steps } => (None, steps.as_slice()),
        };
        one.into_iter().chain(steps.iter().map(Step::key))
    }

    /// The object that the history names beside the operation: a transaction names its objects itself.
    pub fn recorded_key(&self) -> Option<&str> {
        match self {
            Self::Transaction { .. } => None,
            single => single.keys().next(),
        }
    }

    /// Whether it changes nothing, whatever becomes of it.
    pub fn is_read(&self) -> bool {
        match self {
            Self::Read { .. }
            | Self::ReadList { .. }
            | Self::ReadSet { .. }
            | Self::ReadCounter { .. } => true,
            Self::Transaction { steps } => {
                steps.iter().all(|step| matches!(step, Step::Read { .. }))
            }
            _ => false,
        }
    }

    /// The name of the function in the history.
    pub fn function(&self) -> &'static str {
        match self {
            Self::Read { .. }
            | Self::ReadList { .. }
            | Self::ReadSet { .. }
            | Self::ReadCounter { .. } => "read",
            Self::Write { .. } => "write",
            Self::CompareAndSet { .. } => "cas",
            Self::Append { .. } => "append",
            Self::AddElement { .. } | Self::AddNumber { .. } => "add",
            Self::DrawId { .. } => "generate",
            Self::Transaction { .. } => "txn",
        }
    }

    /// What the client asks. `last_seen` is what it saw last in the register of a compare-and-set.
    pub fn request(&self, last_seen: &Value) -> Request {
        let read = |kind, key: &String| Request::ReadObject {
            object: Object {
                kind,
                key: key.clone(),
            },
        };
        let apply = |operation| Request::Apply { operation };
        match self.clone() {
            Self::Read { key } => Request::Read { key },
            Self::Write { key, value } => Request::Write { key, value },
            Self::CompareAndSet { key, new } => Request::CompareAndSet {
                key,
                expected: last_seen.clone(),
                new,
            },
            Self::ReadList { key } => read(Kind::List, &key),
            Self::ReadSet { key } => read(Kind::Set, &key),
            Self::ReadCounter { key } => read(Kind::Counter, &key),
            Self::Append { key, value } => apply(Operation::ListAppend { key, value }),
            Self::AddElement { key, value } => apply(Operation::SetAdd { key, value }),
            Self::AddNumber { key, delta } => apply(Operation::CounterAdd { key, delta }),
            Self::DrawId { key } => Request::Transaction {
                operations: vec![
                    Operation::CounterAdd {
                        key: key.clone(),
                        delta: 1,
                    },
                    Operation::CounterRead { key },
                ],
            },
            Self::Transaction { steps } => match steps.as_slice() {
                // Reads alone have a way of their own to the leader, which is worth as much watching.
                [Step::Read { key }] => read(Kind::List, key),
                steps => Request::Transaction {
                    operations: steps.iter().map(Step::operation).collect(),
                },
            },
        }
    }

    /// The argument as the history shows it.
    pub fn argument(&self, last_seen: &Value) -> Value {
        match self {
            Self::Read { .. }
            | Self::ReadList { .. }
            | Self::ReadSet { .. }
            | Self::ReadCounter { .. }
            | Self::DrawId { .. } => Value::Null,
            Self::Write { value, .. }
            | Self::Append { value, .. }
            | Self::AddElement { value, .. } => value.clone(),
            Self::CompareAndSet { new, .. } => json!([last_seen, new]),
            Self::AddNumber { delta, .. } => json!(delta),
            Self::Transaction { steps } => {
                steps.iter().map(|step| step.shown(Value::Null)).collect()
            }
        }
    }

    /// The result as the history shows it, when the node answered with `answered`. `None` if that is no
    /// answer to this operation.
    pub fn result(&self, argument: &Value, answered: Value) -> Option<Value> {
        match self {
            Self::Read { .. } => Some(answered),
            Self::ReadList { .. } | Self::ReadSet { .. } => answered.is_array().then_some(answered),
            Self::ReadCounter { .. } => answered.is_i64().then_some(answered),
            Self::DrawId { .. } => match answered {
                Value::Array(mut results) if results.len() == 2 => {
                    results.pop().filter(Value::is_i64)
                }
                _ => None,
            },
            Self::Transaction { steps } => {
                let results = match (steps.as_slice(), answered) {
                    ([Step::Read { .. }], one) => vec![one],
                    (_, Value::Array(results)) => results,
                    _ => return None,
                };
                if results.len() != steps.len() {
                    return None;
                }
                let shown = steps.iter().zip(results).map(|(step, result)| {
                    let fits = matches!(step, Step::Append { .. }) || result.is_array();
                    fits.then(|| step.shown(result))
                });
                shown.collect()
            }
            _ => Some(argument.clone()),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn transaction() -> Planned {
        let key = "3".to_owned();
        Planned::Transaction {
            steps: vec![
                Step::Append {
                    key: key.clone(),
                    value: 8,
                },
                Step::Read { key },
            ],
        }
    }

    #[test]
    fn a_transaction_shows_its_steps_with_what_they_returned() {
        let planned = transaction();
        let argument = planned.argument(&Value::Null);
        assert_eq!(argument, json!([["append", "3", 8], ["r", "3", null]]));
        let result = planned.result(&argument, json!([null, [5, 8]]));
        assert_eq!(
            result,
            Some(json!([["append", "3", 8], ["r", "3", [5, 8]]]))
        );
        for nonsense in [json!(null), json!([null]), json!([null, 3])] {
            assert_eq!(planned.result(&argument, nonsense), None);
        }
    }

    #[test]
    fn a_transaction_of_one_read_goes_the_way_of_reads() {
        let planned = Planned::Transaction {
            steps: vec![Step::Read { key: "3".into() }],
        };
        assert!(planned.is_read() && !transaction().is_read());
        assert!(matches!(
            planned.request(&Value::Null),
            Request::ReadObject { object } if object.kind == Kind::List
        ));
        let result = planned.result(&Value::Null, json!([1]));
        assert_eq!(result, Some(json!([["r", "3", [1]]])));
    }

    #[test]
    fn an_id_is_the_sum_after_the_addition() {
        let planned = Planned::DrawId { key: "3".into() };
        let result = |answered| planned.result(&Value::Null, answered);
        assert_eq!(result(json!([null, 7])), Some(json!(7)));
        assert_eq!(result(json!([null, null])), None);
        assert_eq!(result(Value::Null), None);
    }
}
