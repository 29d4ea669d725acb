//! Owns the translation of a history into operations on numbered values, key by key.
//! Never decides whether they are linearizable.

use std::collections::BTreeMap;

use results::history::{Operation, OperationType};
use serde_json::Value;

use crate::linearizability::{self, Action, Timeline};
use crate::operations::{ClientOperation, Malformed, pair};

/// Number of the value `null`, which every register starts with.
pub(super) const NEVER_WRITTEN: u32 = 0;

/// What happened to one key.
pub(super) struct KeyHistory<'a> {
    pub(super) key: &'a str,
    /// What the search gets; positions are lines of the history.
    pub(super) operations: Vec<linearizability::Operation>,
    /// Where each of them comes from.
    pub(super) sources: Vec<ClientOperation<'a>>,
    /// Updates that certainly did not happen, with the value each would have left behind.
    pub(super) failed_updates: Vec<(ClientOperation<'a>, u32)>,
    /// Values by their number.
    pub(super) values: Vec<Value>,
    numbers: BTreeMap<String, u32>,
}

impl<'a> KeyHistory<'a> {
    fn new(key: &'a str) -> Self {
        let mut history = Self {
            key,
            operations: Vec::new(),
            sources: Vec::new(),
            failed_updates: Vec::new(),
            values: Vec::new(),
            numbers: BTreeMap::new(),
        };
        history.number(&Value::Null);
        history
    }

    pub(super) fn completed_count(&self) -> u64 {
        let completed = self.operations.iter().filter(|op| op.completed.is_some());
        completed.count() as u64
    }

    /// The operations as the search takes them. They are in the order of their invocation already, so
    /// their numbers stay.
    pub(super) fn timeline(&self) -> Timeline<Action> {
        Timeline::from_operations(&self.operations).0
    }

    /// A value for people.
    pub(super) fn show_value(&self, number: u32) -> String {
        match &self.values[number as usize] {
            Value::Null => "nothing".to_owned(),
            value => value.to_string(),
        }
    }

    /// What an operation did, for people.
    pub(super) fn show_action(&self, action: Action) -> String {
        let value = |number: u32| self.show_value(number);
        match action {
            Action::Read(read) => format!("read → {}", value(read)),
            Action::Write(written) => format!("write {}", value(written)),
            Action::CompareAndSet { expected, new } => {
                format!("cas {} → {}", value(expected), value(new))
            }
            Action::Differs(other) => format!("read other than {}", value(other)),
        }
    }

    fn number(&mut self, value: &Value) -> u32 {
        let text = value.to_string();
        if let Some(number) = self.numbers.get(&text) {
            return *number;
        }
        let number = u32::try_from(self.values.len()).expect("a history has fewer than 2^32 lines");
        self.values.push(value.clone());
        self.numbers.insert(text, number);
        number
    }

    fn add(&mut self, source: ClientOperation<'a>) -> Result<(), Malformed> {
        let argument = &source.invoke.value;
        let completed = match source.completion {
            Some((line, completion)) if completion.operation_type == OperationType::Ok => {
                Some((line, completion))
            }
            _ => None,
        };
        let action = match source.invoke.f.as_ref() {
            "read" => {
                // A read whose answer nobody saw says nothing.
                let Some((_, completion)) = completed else {
                    return Ok(());
                };
                Action::Read(self.number(&completion.value))
            }
            "write" => {
                if argument.is_null() {
                    return Err(Malformed::at(source.invoke_line, "a write without a value"));
                }
                Action::Write(self.number(argument))
            }
            "cas" => {
                let Some([expected, new]) = argument.as_array().map(Vec::as_slice) else {
                    let reason =
                        format!("the value of a cas must be [expected, new], not {argument}");
                    return Err(Malformed::at(source.invoke_line, reason));
                };
                Action::CompareAndSet {
                    expected: self.number(expected),
                    new: self.number(new),
                }
            }
            other => {
                let reason = format!("{other:?} is not a function of a register");
                return Err(Malformed::at(source.invoke_line, reason));
            }
        };
        if let (Action::Write(_) | Action::CompareAndSet { .. }, Some((line, completion))) =
            (action, completed)
            && completion.value != *argument
        {
            let reason = format!(
                "the {} of line {} was invoked with {argument} but completed with {}",
                completion.f,
                source.invoke_line + 1,
                completion.value
            );
            return Err(Malformed::at(line, reason));
        }
        if source.outcome() == OperationType::Fail {
            if let Some(value) = action.produces() {
                self.failed_updates.push((source, value));
            }
            return Ok(());
        }
        self.operations.push(linearizability::Operation {
            action,
            invoked: source.invoke_line as u64,
            completed: completed.map(|(line, _)| line as u64),
        });
        self.sources.push(source);
        Ok(())
    }
}

/// Splits a history by key, in the order of the keys.
///
/// # Errors
///
/// If the history is malformed, or an operation is not one of a register.
pub(super) fn split(history: &[Operation]) -> Result<Vec<KeyHistory<'_>>, Malformed> {
    let mut keys: BTreeMap<&str, KeyHistory<'_>> = BTreeMap::new();
    for operation in pair(history)? {
        let Some(key) = operation.invoke.key.as_deref() else {
            let reason = format!("a {} without a key", operation.invoke.f);
            return Err(Malformed::at(operation.invoke_line, reason));
        };
        keys.entry(key)
            .or_insert_with(|| KeyHistory::new(key))
            .add(operation)?;
    }
    Ok(keys.into_values().collect())
}
