//! Owns the objects: registers, lists, sets and counters, and how a command changes them.
//! Never lets a command take effect in part: what a failing one has done already is undone.

use std::io;
use std::mem;
use std::sync::Arc;

use imbl::OrdMap;
use serde_json::Value;

use super::command::{Kind, Object, Operation};
use super::digest::{Digest, mix};
use super::list_values::ListValues;
use super::{Failure, OperationResult, Outcome};

/// Most bytes of JSON that the reads of one command may return. Results are kept for clients that
/// ask again, so they must be bounded.
pub const MAX_RESULT_BYTES: usize = 1024 * 1024;

/// All objects. What was never written is not there; nothing that is there looks as if it was not.
///
/// A clone shares everything with the original, and each of them copies what it changes: it costs
/// next to nothing however much there is. Hence the persistent maps, and hence what is behind `Arc`:
/// whatever could be long, and would be copied along with a neighbour that changes.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Objects {
    registers: OrdMap<Arc<str>, Arc<Register>>,
    lists: OrdMap<Arc<str>, Arc<List>>,
    sets: OrdMap<Arc<str>, Set>,
    counters: OrdMap<Arc<str>, i64>,
    /// Sum of the hashes of all objects.
    digest: u64,
}

#[derive(Debug, Clone, PartialEq)]
pub(super) struct Register {
    pub(super) value: Value,
    digest: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct List {
    pub(super) values: ListValues,
    /// Of the values in their order.
    digest: u64,
}

#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct Set {
    /// By their JSON text.
    pub(super) values: OrdMap<Arc<str>, Arc<Value>>,
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
        text: Arc<str>,
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

    pub(super) fn registers(&self) -> &OrdMap<Arc<str>, Arc<Register>> {
        &self.registers
    }

    pub(super) fn lists(&self) -> &OrdMap<Arc<str>, Arc<List>> {
        &self.lists
    }

    pub(super) fn sets(&self) -> &OrdMap<Arc<str>, Set> {
        &self.sets
    }

    pub(super) fn counters(&self) -> &OrdMap<Arc<str>, i64> {
        &self.counters
    }

    /// Carries out all operations, or none.
    pub(super) fn apply(&mut self, operations: Vec<Operation>) -> Outcome {
        let mut results = Vec::with_capacity(operations.len());
        let mut undo = Vec::new();
        let mut left_bytes = MAX_RESULT_BYTES;
        let last = operations.len().saturating_sub(1);
        for (at, operation) in operations.into_iter().enumerate() {
            // Once the last one has changed something, nothing can fail any more.
            let undo_of_this = (at < last).then_some(&mut undo);
            match self.carry_out(operation, undo_of_this, &mut left_bytes) {
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
        let key = object.key.as_str();
        match object.kind {
            Kind::Register => self.register(key).clone(),
            Kind::List => {
                let values = self.lists.get(key).map(|list| list.values.iter());
                Value::Array(values.into_iter().flatten().cloned().collect())
            }
            Kind::Set => {
                let values = self.sets.get(key).map(|set| set.values.values());
                let values = values.into_iter().flatten();
                Value::Array(values.map(|value| Value::clone(value)).collect())
            }
            Kind::Counter => self.counters.get(key).copied().unwrap_or(0).into(),
        }
    }

    /// Carries out one operation, and notes in `undo` how to take it back.
    fn carry_out(
        &mut self,
        operation: Operation,
        undo: Option<&mut Vec<Undo>>,
        left_bytes: &mut usize,
    ) -> Result<Option<Value>, Failure> {
        let (kind, key) = match operation {
            Operation::RegisterRead { key } => (Kind::Register, key),
            Operation::ListRead { key } => (Kind::List, key),
            Operation::SetRead { key } => (Kind::Set, key),
            Operation::CounterRead { key } => (Kind::Counter, key),
            changing => {
                let step = self.change(changing)?;
                if let Some(undo) = undo {
                    undo.extend(step);
                }
                return Ok(None);
            }
        };
        let value = self.read(&Object { kind, key });
        *left_bytes -= json_bytes(&value, *left_bytes).ok_or(Failure::ResultTooLarge)?;
        Ok(Some(value))
    }

    /// Carries out an operation that is not a read; gives how to take it back, where it changed
    /// something.
    fn change(&mut self, operation: Operation) -> Result<Option<Undo>, Failure> {
        match operation {
            Operation::RegisterWrite { key, value } => {
                let before = self.write(&key, value);
                Ok(Some(Undo::Register { key, before }))
            }
            Operation::RegisterCompareAndSet { key, expected, new } => {
                let current = self.register(&key);
                if *current != expected {
                    let current = current.clone();
                    return Err(Failure::CompareMismatch { current });
                }
                let before = self.write(&key, new);
                Ok(Some(Undo::Register { key, before }))
            }
            Operation::ListAppend { key, value } => {
                let digest_before = self.append(&key, value);
                Ok(Some(Undo::List { key, digest_before }))
            }
            Operation::SetAdd { key, value } => {
                let text = self.add_member(&key, value);
                Ok(text.map(|text| Undo::Set { key, text }))
            }
            Operation::CounterAdd { key, delta } => {
                let before = self.counters.get(key.as_str()).copied();
                let current = before.unwrap_or(0);
                let sum = current
                    .checked_add(delta)
                    .ok_or(Failure::CounterOverflow { current })?;
                self.set_counter(&key, Some(sum));
                Ok(Some(Undo::Counter { key, before }))
            }
            Operation::RegisterRead { .. }
            | Operation::ListRead { .. }
            | Operation::SetRead { .. }
            | Operation::CounterRead { .. } => Ok(None),
        }
    }

    fn take_back(&mut self, step: Undo) {
        match step {
            Undo::Register { key, before } => {
                self.set_register(&key, before);
            }
            Undo::List { key, digest_before } => {
                let Some(list) = self.lists.get_mut(key.as_str()) else {
                    return;
                };
                let list = Arc::make_mut(list);
                let shown = list_digest(&key, list);
                list.values.pop();
                list.digest = digest_before;
                let (showing, is_empty) = (list_digest(&key, list), list.values.is_empty());
                self.exchange(shown, showing);
                if is_empty {
                    self.lists.remove(key.as_str());
                }
            }
            Undo::Set { key, text } => {
                let Some(set) = self.sets.get_mut(key.as_str()) else {
                    return;
                };
                let shown = set_digest(&key, set);
                set.values.remove(&text);
                set.digest = set.digest.wrapping_sub(member_digest(&text));
                let (showing, is_empty) = (set_digest(&key, set), set.values.is_empty());
                self.exchange(shown, showing);
                if is_empty {
                    self.sets.remove(key.as_str());
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

    /// Gives what was there before.
    pub(super) fn write(&mut self, key: &str, value: Value) -> Option<Register> {
        let digest = object_digest(Kind::Register, key, Digest::new().json(&value).finish());
        self.set_register(key, Some(Register { value, digest }))
    }

    fn set_register(&mut self, key: &str, register: Option<Register>) -> Option<Register> {
        let new = register.as_ref().map_or(0, |register| register.digest);
        let before = match register {
            Some(register) => match self.registers.get_mut(key) {
                Some(held) => Some(mem::replace(Arc::make_mut(held), register)),
                None => {
                    self.registers.insert(key.into(), Arc::new(register));
                    None
                }
            },
            None => self.registers.remove(key).map(Arc::unwrap_or_clone),
        };
        let old = before.as_ref().map_or(0, |register| register.digest);
        self.exchange(old, new);
        before
    }

    /// Gives the hash of the values that were there before.
    pub(super) fn append(&mut self, key: &str, value: Value) -> u64 {
        let push = |list: &mut List| {
            let (shown, digest_before) = (list_digest(key, list), list.digest);
            list.digest = Digest::new().number(list.digest).json(&value).finish();
            list.values.push(value);
            (shown, list_digest(key, list), digest_before)
        };
        let (shown, showing, digest_before) = match self.lists.get_mut(key) {
            Some(list) => push(Arc::make_mut(list)),
            None => {
                let mut list = List::default();
                let pushed = push(&mut list);
                self.lists.insert(key.into(), Arc::new(list));
                pushed
            }
        };
        self.exchange(shown, showing);
        digest_before
    }

    /// Gives the JSON text of the value; `None` when it was there already.
    pub(super) fn add_member(&mut self, key: &str, value: Value) -> Option<Arc<str>> {
        let text = value.to_string();
        let add = |set: &mut Set| {
            let shown = set_digest(key, set);
            set.digest = set.digest.wrapping_add(member_digest(&text));
            let text: Arc<str> = text.as_str().into();
            set.values.insert(Arc::clone(&text), Arc::new(value));
            (shown, set_digest(key, set), text)
        };
        let (shown, showing, text) = match self.sets.get_mut(key) {
            Some(set) if set.values.contains_key(text.as_str()) => return None,
            Some(set) => add(set),
            None => {
                let mut set = Set::default();
                let added = add(&mut set);
                self.sets.insert(key.into(), set);
                added
            }
        };
        self.exchange(shown, showing);
        Some(text)
    }

    pub(super) fn set_counter(&mut self, key: &str, value: Option<i64>) {
        let digest = |value: i64| object_digest(Kind::Counter, key, mix(value as u64));
        let before = match value {
            Some(value) => match self.counters.get_mut(key) {
                Some(held) => Some(mem::replace(held, value)),
                None => self.counters.insert(key.into(), value),
            },
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
            fresh.write(key, register.value.clone());
        }
        for (key, list) in &self.lists {
            for value in list.values.iter() {
                fresh.append(key, value.clone());
            }
        }
        for (key, set) in &self.sets {
            for value in set.values.values().rev() {
                fresh.add_member(key, Value::clone(value));
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
