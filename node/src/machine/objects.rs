//! Owns the objects: registers, lists, sets and counters, and how a command changes them.
//! Never lets a command take effect in part: what a failing one has done already is undone.

use std::collections::BTreeMap;
use std::io;

use serde_json::Value;

use super::command::{Kind, Object, Operation};
use super::digest::{Digest, mix};
use super::{Failure, OperationResult, Outcome};

/// Most bytes of JSON that the reads of one command may return. Results are kept for clients that
/// ask again, so they must be bounded.
pub const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// All objects. What was never written is not there; nothing that is there looks as if it was not.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Objects {
    registers: BTreeMap<String, Register>,
    lists: BTreeMap<String, List>,
    sets: BTreeMap<String, Set>,
    counters: BTreeMap<String, i64>,
    /// Sum of the hashes of all objects.
    digest: u64,
}

#[derive(Debug, Clone, PartialEq)]
struct Register {
    value: Value,
    digest: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct List {
    values: Vec<Value>,
    /// Of the values in their order.
    digest: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
struct Set {
    /// By their JSON text.
    values: BTreeMap<String, Value>,
    /// Sum of the hashes of the values.
    digest: u64,
}

/// How to take back one operation.
#[derive(Debug)]
enum Undo {
    Register {
        key: String,
        before: Option<Register>,
    },
    List {
        key: String,
        digest_before: u64,
    },
    Set {
        key: String,
        text: String,
    },
    Counter {
        key: String,
        before: Option<i64>,
    },
}

impl Objects {
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// Carries out all operations, or none.
    pub(super) fn apply(&mut self, operations: Vec<Operation>) -> Outcome {
        let mut results = Vec::with_capacity(operations.len());
        let mut undo = Vec::new();
        let mut left_bytes = MAX_RESULT_BYTES;
        for (at, operation) in operations.into_iter().enumerate() {
            match self.carry_out(operation, &mut undo, &mut left_bytes) {
                Ok(value) => results.push(OperationResult { value }),
                Err(failure) => {
                    for step in undo.into_iter().rev() {
                        self.take_back(step);
                    }
                    let operation = at;
                    return Outcome::Failed { operation, failure };
                }
            }
        }
        Outcome::Done { results }
    }

    pub(super) fn read(&self, object: &Object) -> Value {
        let key = &object.key;
        match object.kind {
            Kind::Register => self.register(key).clone(),
            Kind::List => {
                let values = self.lists.get(key).map(|list| list.values.clone());
                Value::Array(values.unwrap_or_default())
            }
            Kind::Set => {
                let values = self.sets.get(key).map(|set| set.values.values());
                Value::Array(values.into_iter().flatten().cloned().collect())
            }
            Kind::Counter => self.counters.get(key).copied().unwrap_or(0).into(),
        }
    }

    fn carry_out(
        &mut self,
        operation: Operation,
        undo: &mut Vec<Undo>,
        left_bytes: &mut usize,
    ) -> Result<Option<Value>, Failure> {
        let (kind, key) = match operation {
            Operation::RegisterRead { key } => (Kind::Register, key),
            Operation::ListRead { key } => (Kind::List, key),
            Operation::SetRead { key } => (Kind::Set, key),
            Operation::CounterRead { key } => (Kind::Counter, key),
            Operation::RegisterWrite { key, value } => {
                undo.push(self.write(key, value));
                return Ok(None);
            }
            Operation::RegisterCompareAndSet { key, expected, new } => {
                let current = self.register(&key);
                if *current != expected {
                    let current = current.clone();
                    return Err(Failure::CompareMismatch { current });
                }
                undo.push(self.write(key, new));
                return Ok(None);
            }
            Operation::ListAppend { key, value } => {
                undo.push(self.append(key, value));
                return Ok(None);
            }
            Operation::SetAdd { key, value } => {
                undo.extend(self.add_member(key, value));
                return Ok(None);
            }
            Operation::CounterAdd { key, delta } => {
                let before = self.counters.get(&key).copied();
                let current = before.unwrap_or(0);
                let sum = current
                    .checked_add(delta)
                    .ok_or(Failure::CounterOverflow { current })?;
                self.set_counter(&key, Some(sum));
                undo.push(Undo::Counter { key, before });
                return Ok(None);
            }
        };
        let value = self.read(&Object { kind, key });
        *left_bytes -= json_bytes(&value, *left_bytes).ok_or(Failure::ResultTooLarge)?;
        Ok(Some(value))
    }

    fn take_back(&mut self, step: Undo) {
        match step {
            Undo::Register { key, before } => {
                self.set_register(&key, before);
            }
            Undo::List { key, digest_before } => {
                let Some(mut list) = self.lists.remove(&key) else {
                    return;
                };
                let shown = list_digest(&key, &list);
                list.values.pop();
                list.digest = digest_before;
                self.exchange(shown, list_digest(&key, &list));
                if !list.values.is_empty() {
                    self.lists.insert(key, list);
                }
            }
            Undo::Set { key, text } => {
                let Some(mut set) = self.sets.remove(&key) else {
                    return;
                };
                let shown = set_digest(&key, &set);
                set.values.remove(&text);
                set.digest = set.digest.wrapping_sub(member_digest(&text));
                self.exchange(shown, set_digest(&key, &set));
                if !set.values.is_empty() {
                    self.sets.insert(key, set);
                }
            }
            Undo::Counter { key, before } => self.set_counter(&key, before),
        }
    }

    fn register(&self, key: &str) -> &Value {
        self.registers
            .get(key)
            .map_or(&Value::Null, |register| &register.value)
    }

    fn write(&mut self, key: String, value: Value) -> Undo {
        let digest = object_digest(Kind::Register, &key, Digest::new().json(&value).finish());
        let before = self.set_register(&key, Some(Register { value, digest }));
        Undo::Register { key, before }
    }

    fn set_register(&mut self, key: &str, register: Option<Register>) -> Option<Register> {
        let new = register.as_ref().map_or(0, |register| register.digest);
        let before = match register {
            Some(register) => self.registers.insert(key.to_owned(), register),
            None => self.registers.remove(key),
        };
        let old = before.as_ref().map_or(0, |register| register.digest);
        self.exchange(old, new);
        before
    }

    fn append(&mut self, key: String, value: Value) -> Undo {
        let list = self.lists.entry(key.clone()).or_default();
        let (shown, digest_before) = (list_digest(&key, list), list.digest);
        list.digest = Digest::new().number(list.digest).json(&value).finish();
        list.values.push(value);
        let showing = list_digest(&key, list);
        self.exchange(shown, showing);
        Undo::List { key, digest_before }
    }

    /// `None` when the value is there already.
    fn add_member(&mut self, key: String, value: Value) -> Option<Undo> {
        let text = value.to_string();
        let set = self.sets.entry(key.clone()).or_default();
        if set.values.contains_key(&text) {
            return None;
        }
        let shown = set_digest(&key, set);
        set.digest = set.digest.wrapping_add(member_digest(&text));
        set.values.insert(text.clone(), value);
        let showing = set_digest(&key, set);
        self.exchange(shown, showing);
        Some(Undo::Set { key, text })
    }

    fn set_counter(&mut self, key: &str, value: Option<i64>) {
        let digest = |value: i64| object_digest(Kind::Counter, key, mix(value as u64));
        let before = match value {
            Some(value) => self.counters.insert(key.to_owned(), value),
            None => self.counters.remove(key),
        };
        self.exchange(before.map_or(0, digest), value.map_or(0, digest));
    }

    fn exchange(&mut self, old: u64, new: u64) {
        self.digest = self.digest.wrapping_sub(old).wrapping_add(new);
    }

    /// The digest, from nothing but the content.
    #[cfg(test)]
    pub(super) fn recomputed_digest(&self) -> u64 {
        let mut fresh = Self::default();
        for (key, register) in &self.registers {
            fresh.write(key.clone(), register.value.clone());
        }
        for (key, list) in &self.lists {
            for value in &list.values {
                fresh.append(key.clone(), value.clone());
            }
        }
        for (key, set) in &self.sets {
            for value in set.values.values().rev() {
                fresh.add_member(key.clone(), value.clone());
            }
        }
        for (key, value) in &self.counters {
            fresh.set_counter(key, Some(*value));
        }
        assert_eq!(fresh, *self, "something is left that nothing put there");
        fresh.digest
    }
}

fn object_digest(kind: Kind, key: &str, content: u64) -> u64 {
    let kind = match kind {
        Kind::Register => 1,
        Kind::List => 2,
        Kind::Set => 3,
        Kind::Counter => 4,
    };
    let digest = Digest::new().number(kind).bytes(key.as_bytes());
    digest.number(content).finish()
}

/// What a list adds to the sum; nothing while it is empty, as if it was not there.
fn list_digest(key: &str, list: &List) -> u64 {
    if list.values.is_empty() {
        0
    } else {
        object_digest(Kind::List, key, list.digest)
    }
}

/// What a set adds to the sum; nothing while it is empty, as if it was not there.
fn set_digest(key: &str, set: &Set) -> u64 {
    if set.values.is_empty() {
        0
    } else {
        object_digest(Kind::Set, key, set.digest)
    }
}

fn member_digest(text: &str) -> u64 {
    Digest::new().bytes(text.as_bytes()).finish()
}

/// Length of the JSON text; `None` beyond `limit`.
pub(super) fn json_bytes(value: &impl serde::Serialize, limit: usize) -> Option<usize> {
    struct Counter {
        left: usize,
    }
    impl io::Write for Counter {
        fn write(&mut self, bytes: &[u8]) -> io::Result<usize> {
            self.left = self
                .left
                .checked_sub(bytes.len())
                .ok_or(io::ErrorKind::FileTooLarge)?;
            Ok(bytes.len())
        }
        fn flush(&mut self) -> io::Result<()> {
            Ok(())
        }
    }
    let mut counter = Counter { left: limit };
    serde_json::to_writer(&mut counter, value).ok()?;
    Some(limit - counter.left)
}
