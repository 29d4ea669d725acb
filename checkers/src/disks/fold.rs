//! Owns what the commands of a log add up to, worked out anew: the state that a snapshot must hold.
//! Never shares code with the node, and says so where it cannot work something out.

use std::collections::{BTreeMap, BTreeSet};

use results::disk_image::{FoldedState, StoredContents};
use serde_json::Value;

use super::batches::Batch;
use super::change::Step;
use super::command::{Command, Operation};

/// Most bytes of JSON that the reads of one command may return; beyond that it fails as a whole.
const RESULT_BYTES_MAX: usize = 1024 * 1024;
/// Clients that are remembered. With more, which are forgotten is not worked out here.
const CLIENT_COUNT_MAX: usize = 10_000;
/// First byte of a record of a snapshot whose entry goes on in the next record.
const GOES_ON: u8 = 1;

/// What a client was told last.
#[derive(Debug, Clone, PartialEq, Eq, serde::Serialize)]
struct Session {
    last_request: u64,
    /// Where that request is in the log.
    offset: i64,
    /// Where the client was last heard of.
    used: i64,
}

/// All objects and all that clients were told, as the log or a snapshot says.
#[derive(Debug, Clone, Default, PartialEq)]
pub(super) struct State {
    registers: BTreeMap<String, Value>,
    lists: BTreeMap<String, Vec<Value>>,
    /// Values by their JSON text.
    sets: BTreeMap<String, BTreeMap<String, Value>>,
    counters: BTreeMap<String, i64>,
    sessions: BTreeMap<String, Session>,
}

/// The entries of a snapshot, put together from its records.
pub(super) fn entries<'a>(
    mut records: impl Iterator<Item = &'a [u8]>,
) -> impl Iterator<Item = Result<Vec<u8>, &'static str>> {
    std::iter::from_fn(move || {
        let mut entry = Vec::new();
        loop {
            let record = records.next()?;
            let Some((mark, piece)) = record.split_first() else {
                return Some(Err("an empty record"));
            };
            entry.extend_from_slice(piece);
            if *mark != GOES_ON {
                return Some(Ok(entry));
            }
        }
    })
}

/// Something that was changed, as it was before.
enum Before {
    Register(String, Option<Value>),
    List(String),
    Set(String, String),
    Counter(String, Option<i64>),
}

impl State {
    /// Checksum that is equal for equal states. What looks as if it had never been written counts as such.
    pub(super) fn crc(&self) -> u32 {
        let registers = self.registers.iter().filter(|(_, value)| !value.is_null());
        let lists = self.lists.iter().filter(|(_, values)| !values.is_empty());
        let sets = self.sets.iter().filter(|(_, values)| !values.is_empty());
        let counters = self.counters.iter().filter(|(_, value)| **value != 0);
        let parts = (
            registers.collect::<Vec<_>>(),
            lists.collect::<Vec<_>>(),
            sets.map(|(key, values)| (key, values.keys().collect::<Vec<_>>()))
                .collect::<Vec<_>>(),
            counters.collect::<Vec<_>>(),
            &self.sessions,
        );
        // Fails only where memory does.
        crc32c::crc32c(&serde_json::to_vec(&parts).unwrap_or_default())
    }

    /// What is in it, by what left it there.
    pub(super) fn contents(self) -> StoredContents {
        let registers = self.registers.into_iter().map(|(key, value)| {
            let change = Step::Write { key: &key, value }.number();
            (key, change)
        });
        let appended = self.lists.into_iter().flat_map(|(key, values)| {
            let append = move |value| Step::Append { key: &key, value }.number();
            values.into_iter().map(append).collect::<Vec<_>>()
        });
        let added = self.sets.into_iter().flat_map(|(key, values)| {
            let add = move |value| Step::AddElement { key: &key, value }.number();
            values.into_values().map(add).collect::<Vec<_>>()
        });
        let mut elements: Vec<u64> = appended.chain(added).collect();
        elements.sort_unstable();
        StoredContents {
            registers: registers.collect(),
            elements,
            counters: self.counters,
        }
    }

    /// The state that the records of a snapshot hold.
    ///
    /// # Errors
    /// When a record is none of a state.
    pub(super) fn of_snapshot<'a>(
        records: impl Iterator<Item = &'a [u8]>,
    ) -> Result<Self, &'static str> {
        let mut state = Self::default();
        for entry in entries(records) {
            let read: Value = serde_json::from_slice(&entry?).map_err(|_| "no entry of a state")?;
            state.put(&read)?;
        }
        Ok(state)
    }

    fn put(&mut self, entry: &Value) -> Result<(), &'static str> {
        let entry = entry.as_object().ok_or("an entry without a kind")?;
        let (kind, it) = entry.iter().next().ok_or("an entry without a kind")?;
        let key = || it["key"].as_str().map(str::to_owned).ok_or("no key");
        let values = || it["values"].as_array().cloned().ok_or("no values");
        match kind.as_str() {
            "summary" => {}
            "register" => {
                self.registers.insert(key()?, it["value"].clone());
            }
            "list" => self.lists.entry(key()?).or_default().extend(values()?),
            "set" => {
                let set = self.sets.entry(key()?).or_default();
                set.extend(
                    values()?
                        .into_iter()
                        .map(|value| (value.to_string(), value)),
                );
            }
            "counter" => {
                let value = it["value"].as_i64().ok_or("no number")?;
                self.counters.insert(key()?, value);
            }
            "session" => {
                let number = |name: &str| it[name].as_i64().ok_or("no number");
                let client = it["client"].as_str().ok_or("no client")?;
                let session = Session {
                    last_request: it["last_request"].as_u64().ok_or("no number")?,
                    offset: number("offset")?,
                    used: number("used")?,
                };
                self.sessions.insert(client.to_owned(), session);
            }
            _ => return Err("an entry of an unknown kind"),
        }
        Ok(())
    }

    /// Applies the command at this offset. A copy of a request changes nothing, and is remembered.
    fn apply(&mut self, offset: i64, command: Command<'_>) -> Result<(), &'static str> {
        let Some(stamp) = command.stamp else {
            return self.carry_out(command.operations);
        };
        if let Some(session) = self.sessions.get_mut(&*stamp.client) {
            session.used = offset;
            if stamp.request <= session.last_request {
                return Ok(());
            }
        }
        self.carry_out(command.operations)?;
        let session = Session {
            last_request: stamp.request,
            offset,
            used: offset,
        };
        if let Some(known) = self.sessions.get_mut(&*stamp.client) {
            *known = session;
            return Ok(());
        }
        self.sessions.insert(stamp.client.into_owned(), session);
        if self.sessions.len() > CLIENT_COUNT_MAX {
            return Err("there are more clients than are remembered");
        }
        Ok(())
    }

    /// All of the operations, or none.
    fn carry_out(&mut self, operations: Vec<Operation<'_>>) -> Result<(), &'static str> {
        let mut done = Vec::new();
        let mut read_bytes = 0;
        for operation in operations {
            if !self.change(operation, &mut done, &mut read_bytes)? {
                while let Some(before) = done.pop() {
                    self.take_back(before);
                }
                return Ok(());
            }
        }
        Ok(())
    }

    /// Whether the operation could be carried out.
    fn change(
        &mut self,
        operation: Operation<'_>,
        done: &mut Vec<Before>,
        read_bytes: &mut usize,
    ) -> Result<bool, &'static str> {
        let key = operation.key.into_owned();
        match &*operation.kind {
            "register-write" => {
                let before = self.registers.insert(key.clone(), operation.value);
                done.push(Before::Register(key, before));
            }
            "register-compare-and-set" => {
                let current = self.registers.get(&key).unwrap_or(&Value::Null);
                if *current != operation.expected {
                    return Ok(false);
                }
                let before = self.registers.insert(key.clone(), operation.new);
                done.push(Before::Register(key, before));
            }
            "list-append" => {
                let list = self.lists.entry(key.clone()).or_default();
                list.push(operation.value);
                done.push(Before::List(key));
            }
            "set-add" => {
                let text = operation.value.to_string();
                let set = self.sets.entry(key.clone()).or_default();
                if set.insert(text.clone(), operation.value).is_none() {
                    done.push(Before::Set(key, text));
                }
            }
            "counter-add" => {
                let before = self.counters.get(&key).copied();
                let delta = operation.delta.ok_or("no delta")?;
                let Some(sum) = before.unwrap_or(0).checked_add(delta) else {
                    return Ok(false);
                };
                self.counters.insert(key.clone(), sum);
                done.push(Before::Counter(key, before));
            }
            reading => {
                *read_bytes += self.read_bytes(reading, &key)?;
                return Ok(*read_bytes <= RESULT_BYTES_MAX);
            }
        }
        Ok(true)
    }

    /// How many bytes of JSON a read returns.
    fn read_bytes(&self, reading: &str, key: &str) -> Result<usize, &'static str> {
        let text = match reading {
            "register-read" => self.registers.get(key).map(Value::to_string),
            "list-read" => self
                .lists
                .get(key)
                .map(|values| Value::from(values.clone()).to_string()),
            "set-read" => {
                let set = self.sets.get(key);
                // Texts of values, commas between them, brackets around them.
                let bytes = set.map(|set| set.keys().map(|text| text.len() + 1).sum::<usize>() + 1);
                return Ok(bytes.unwrap_or(2));
            }
            "counter-read" => self.counters.get(key).map(i64::to_string),
            _ => return Err("an operation of an unknown type"),
        };
        Ok(text.map_or(4, |text| text.len()))
    }

    fn take_back(&mut self, before: Before) {
        match before {
            Before::Register(key, Some(value)) => {
                self.registers.insert(key, value);
            }
            Before::Register(key, None) => {
                self.registers.remove(&key);
            }
            Before::List(key) => {
                self.lists.entry(key).or_default().pop();
            }
            Before::Set(key, text) => {
                self.sets.entry(key).or_default().remove(&text);
            }
            Before::Counter(key, Some(value)) => {
                self.counters.insert(key, value);
            }
            Before::Counter(key, None) => {
                self.counters.remove(&key);
            }
        }
    }
}

/// Applies the commands of a log from some offset on, and notes the state wherever it is wanted.
#[derive(Debug)]
pub(super) struct Fold {
    state: State,
    /// Everything below is applied.
    end: i64,
    /// Epoch of the last record that was passed.
    last_epoch: i32,
    wanted: BTreeSet<i64>,
    folded: Vec<FoldedState>,
    /// Why the rest cannot be worked out.
    broken: Option<String>,
}

impl Fold {
    /// From a state that everything below `end` adds up to. `wanted` are the ends at which the state is noted.
    pub(super) fn new(state: State, end: i64, wanted: &BTreeSet<i64>) -> Self {
        Self {
            state,
            end,
            last_epoch: -1,
            wanted: wanted
                .iter()
                .copied()
                .filter(|offset| *offset > end)
                .collect(),
            folded: Vec::new(),
            broken: None,
        }
    }

    /// Takes the next batch of the log.
    pub(super) fn take(&mut self, batch: &Batch<'_>) {
        let stored = batch.stored;
        let is_wanted = self.wanted.last().is_some_and(|last| *last > self.end);
        if self.broken.is_some() || stored.last_offset < self.end || !is_wanted {
            return;
        }
        if stored.base_offset > self.end {
            self.broken = Some(format!("records from {} on are gone", self.end));
            return;
        }
        if batch.is_control {
            self.passed(stored.last_offset + 1, stored.epoch);
            return;
        }
        for (offset, record) in (stored.base_offset..).zip(batch.records()) {
            if offset < self.end {
                continue;
            }
            let command = serde_json::from_slice(record).map_err(|_| "no command");
            let applied = command.and_then(|command| self.state.apply(offset, command));
            if let Err(problem) = applied {
                self.broken = Some(format!("the record at {offset}: {problem}"));
                return;
            }
            self.passed(offset + 1, stored.epoch);
        }
    }

    fn passed(&mut self, end: i64, epoch: i32) {
        (self.end, self.last_epoch) = (end, epoch);
        if self.wanted.contains(&end) {
            self.folded.push(FoldedState {
                end_offset: end,
                last_epoch: epoch,
                state_crc: self.state.crc(),
            });
        }
    }

    /// What was noted.
    pub(super) fn finish(self) -> Vec<FoldedState> {
        self.folded
    }
}

#[cfg(test)]
mod tests {
    use serde::Deserialize;
    use serde_json::json;

    use super::*;

    fn apply(state: &mut State, offset: i64, command: &Value) -> Result<(), &'static str> {
        let command = Command::deserialize(command).map_err(|_| "no command")?;
        state.apply(offset, command)
    }

    fn applied(commands: &[Value]) -> State {
        let mut state = State::default();
        for (offset, command) in commands.iter().enumerate() {
            apply(&mut state, offset as i64, command).unwrap();
        }
        state
    }

    fn operation(operation: Value) -> Value {
        json!({"operations": [operation]})
    }

    fn stamped(client: &str, request: u64, add: i64) -> Value {
        json!({"stamp": {"client": client, "request": request},
               "operations": [{"type": "counter-add", "key": "c", "delta": add}]})
    }

    #[test]
    fn commands_change_objects_or_nothing() {
        let write = |value: i64| json!({"type": "register-write", "key": "r", "value": value});
        let cas = |expected: i64, new: i64| json!({"type": "register-compare-and-set", "key": "r", "expected": expected, "new": new});
        let state = applied(&[
            operation(write(1)),
            operation(cas(1, 2)),
            operation(cas(1, 3)),
            json!({"operations": [{"type": "list-append", "key": "l", "value": 5},
                                  {"type": "set-add", "key": "s", "value": [1]},
                                  {"type": "counter-add", "key": "c", "delta": 4}, cas(7, 8)]}),
            json!({"operations": [{"type": "list-append", "key": "l", "value": 6},
                                  {"type": "list-read", "key": "l"}]}),
            operation(json!({"type": "counter-add", "key": "c", "delta": i64::MAX})),
            operation(json!({"type": "counter-add", "key": "c", "delta": 1})),
        ]);
        assert_eq!(state.registers["r"], 2);
        assert_eq!(state.lists["l"], [6]);
        assert_eq!(state.counters["c"], i64::MAX);
        let mut same = applied(&[operation(write(2))]);
        same.lists.insert("l".into(), vec![json!(6)]);
        same.counters.insert("c".into(), i64::MAX);
        assert_eq!(state.crc(), same.crc(), "what is empty counts as not there");
        same.counters.insert("c".into(), 7);
        assert_ne!(state.crc(), same.crc());
    }

    #[test]
    fn a_copy_of_a_request_is_applied_once_and_only_the_use_is_noted() {
        let state = applied(&[
            stamped("a", 1, 5),
            stamped("a", 1, 5),
            stamped("a", 2, 7),
            stamped("a", 1, 9),
        ]);
        assert_eq!(state.counters["c"], 12);
        let session = Session {
            last_request: 2,
            offset: 2,
            used: 3,
        };
        assert_eq!(state.sessions["a"], session);
    }

    #[test]
    fn a_snapshot_holds_what_the_log_adds_up_to() {
        let state = applied(&[
            operation(json!({"type": "register-write", "key": "r", "value": {"a": 1}})),
            operation(json!({"type": "list-append", "key": "l", "value": 5})),
            operation(json!({"type": "set-add", "key": "s", "value": "x"})),
            stamped("a", 4, 3),
        ]);
        let entries = [
            json!({"summary": {"digest": 1}}),
            json!({"register": {"key": "r", "value": {"a": 1}}}),
            json!({"list": {"key": "l", "values": [5]}}),
            json!({"set": {"key": "s", "values": ["x"]}}),
            json!({"counter": {"key": "c", "value": 3}}),
            json!({"session": {"client": "a", "last_request": 4, "fingerprint": 1, "offset": 3,
                               "used": 3, "outcome": {"done": {"results": [{}]}}}}),
        ];
        let mut records: Vec<Vec<u8>> = Vec::new();
        for entry in &entries {
            let text = entry.to_string().into_bytes();
            let (one, other) = text.split_at(text.len() / 2);
            records.push([&[GOES_ON], one].concat());
            records.push([&[0], other].concat());
        }
        let records = || records.iter().map(Vec::as_slice);
        let read = State::of_snapshot(records()).unwrap();
        assert_eq!(read, state);
        assert_eq!(read.crc(), state.crc());
        let without_session = State::of_snapshot(records().take(10)).unwrap();
        assert_ne!(without_session.crc(), state.crc());
        assert!(State::of_snapshot([&b"\0{}"[..]].into_iter()).is_err());
    }

    #[test]
    fn what_cannot_be_worked_out_is_an_error() {
        let mut state = State::default();
        for odd in [
            json!({"operations": [{"type": "earthquake", "key": "r"}]}),
            json!({"operations": 3}),
            json!({"stamp": {}, "operations": []}),
        ] {
            assert!(apply(&mut state, 0, &odd).is_err(), "{odd}");
        }
    }
}
