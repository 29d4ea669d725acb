//! Owns a state that does not change any more, and hands it out record by record.
//! Never holds more than a few records at once besides the state itself.

use std::borrow::Cow;
use std::collections::VecDeque;
use std::ops::Bound;
use std::sync::Arc;

use imbl::OrdMap;
use serde_json::Value;

use super::entry::{Entry, MAX_SNAPSHOT_RECORD_BYTES, Summary};
use crate::machine::Machine;
use crate::machine::objects::json_bytes;
use crate::machine::sessions::Session;

/// What a record takes in a batch besides its bytes: its length.
const RECORD_HEADER_BYTES: usize = 4;
/// Room for values in an entry of a list or a set, so that entry and key mostly fit into one record.
const VALUES_BYTES: usize = MAX_SNAPSHOT_RECORD_BYTES / 2;

/// The state of a [`Machine`] at one moment, to be written down while the machine goes on.
#[derive(Debug)]
pub struct FrozenMachine {
    machine: Machine,
    next: Place,
    /// Made, but not handed out yet.
    ready: Ready,
}

/// What comes next. Keys are those of the last object that was dealt with.
#[derive(Debug, Clone)]
enum Place {
    Summary,
    Registers { after: Option<Arc<str>> },
    Lists { after: Option<Arc<str>> },
    InList { key: Arc<str>, index: usize },
    Sets { after: Option<Arc<str>> },
    InSet { key: Arc<str>, text: Arc<str> },
    Counters { after: Option<Arc<str>> },
    Sessions { after: Option<Arc<str>> },
    End,
}

#[derive(Debug, Default)]
struct Ready {
    records: VecDeque<Vec<u8>>,
    bytes: usize,
}

impl Ready {
    fn add(&mut self, entry: &Entry<'_>) {
        for record in entry.records() {
            self.bytes += record.len();
            self.records.push_back(record);
        }
    }

    fn is_enough(&self) -> bool {
        self.bytes >= MAX_SNAPSHOT_RECORD_BYTES
    }

    fn take(&mut self, room_bytes: usize) -> Option<Vec<u8>> {
        let length = self.records.front()?.len();
        if length + RECORD_HEADER_BYTES > room_bytes {
            return None;
        }
        self.bytes -= length;
        self.records.pop_front()
    }
}

impl FrozenMachine {
    pub(in crate::machine) fn new(machine: Machine) -> Self {
        Self {
            machine,
            next: Place::Summary,
            ready: Ready::default(),
        }
    }

    /// The state, once there is nothing left to write down.
    pub(crate) fn into_machine(self) -> Machine {
        self.machine
    }

    /// The digest that the machine had when it was frozen.
    pub fn digest(&self) -> u64 {
        self.machine.digest()
    }

    /// The next records, at least one; `None` after the last one. As many as fit into a batch of
    /// `max_bytes` without its header, that is, counting four bytes more than its own for each; a
    /// record that does not fit comes alone. No record is longer than
    /// [`MAX_SNAPSHOT_RECORD_BYTES`].
    ///
    /// Where `max_bytes` makes a batch end has no influence on the records.
    pub fn next_records(&mut self, max_bytes: usize) -> Option<Vec<Vec<u8>>> {
        let mut records = Vec::new();
        let mut left_bytes = max_bytes;
        loop {
            while self.ready.records.is_empty() {
                if matches!(self.next, Place::End) {
                    return Some(records).filter(|records| !records.is_empty());
                }
                self.make_ready();
            }
            let room_bytes = if records.is_empty() {
                usize::MAX
            } else {
                left_bytes
            };
            let Some(record) = self.ready.take(room_bytes) else {
                return Some(records);
            };
            left_bytes = left_bytes.saturating_sub(record.len() + RECORD_HEADER_BYTES);
            records.push(record);
        }
    }

    /// Makes the next few records, or moves on to what comes after them.
    fn make_ready(&mut self) {
        let Self {
            machine,
            next,
            ready,
        } = self;
        let objects = &machine.objects;
        *next = match &*next {
            Place::Summary => {
                ready.add(&Entry::Summary(Summary::of(machine)));
                Place::Registers { after: None }
            }
            Place::Registers { after } => {
                let last = run(objects.registers(), after, ready, |key, register| {
                    let value = Cow::Borrowed(&register.value);
                    Entry::Register { key, value }
                });
                last.map_or(Place::Lists { after: None }, |key| Place::Registers {
                    after: Some(key),
                })
            }
            Place::Lists { after } => match following(objects.lists(), after) {
                Some(key) => Place::InList { key, index: 0 },
                None => Place::Sets { after: None },
            },
            Place::InList { key, index } => part_of_list(machine, key, *index, ready),
            Place::Sets { after } => match following(objects.sets(), after) {
                // No JSON text is empty, so all of them follow.
                Some(key) => Place::InSet {
                    key,
                    text: "".into(),
                },
                None => Place::Counters { after: None },
            },
            Place::InSet { key, text } => part_of_set(machine, key, text, ready),
            Place::Counters { after } => {
                let last = run(objects.counters(), after, ready, |key, value| {
                    let value = *value;
                    Entry::Counter { key, value }
                });
                last.map_or(Place::Sessions { after: None }, |key| Place::Counters {
                    after: Some(key),
                })
            }
            Place::Sessions { after } => {
                let sessions = machine.sessions.by_client();
                let last = run(sessions, after, ready, session_entry);
                last.map_or(Place::End, |key| Place::Sessions { after: Some(key) })
            }
            Place::End => Place::End,
        };
    }
}

fn session_entry<'a>(client: Cow<'a, str>, session: &'a Session) -> Entry<'a> {
    let told = &*session.told;
    Entry::Session {
        client,
        last_request: told.last_request,
        fingerprint: told.fingerprint,
        offset: told.applied.offset,
        used: session.used,
        outcome: Cow::Borrowed(&told.applied.outcome),
    }
}

/// Makes entries of what follows `after`, until it is enough for once; gives the last key.
fn run<'a, V: Clone>(
    map: &'a OrdMap<Arc<str>, V>,
    after: &Option<Arc<str>>,
    ready: &mut Ready,
    entry: impl Fn(Cow<'a, str>, &'a V) -> Entry<'a>,
) -> Option<Arc<str>> {
    let mut last = None;
    for (key, value) in map.range::<_, str>(beyond(after)) {
        ready.add(&entry(Cow::Borrowed(key), value));
        last = Some(key);
        if ready.is_enough() {
            break;
        }
    }
    last.cloned()
}

fn following<V: Clone>(map: &OrdMap<Arc<str>, V>, after: &Option<Arc<str>>) -> Option<Arc<str>> {
    let (key, _) = map.range::<_, str>(beyond(after)).next()?;
    Some(Arc::clone(key))
}

fn beyond(after: &Option<Arc<str>>) -> (Bound<&str>, Bound<&str>) {
    let start = after.as_deref().map_or(Bound::Unbounded, Bound::Excluded);
    (start, Bound::Unbounded)
}

/// Values that go into one entry together: always one, and more while there is room.
#[derive(Default)]
struct Part<'a> {
    values: Vec<Cow<'a, Value>>,
    bytes: usize,
}

impl<'a> Part<'a> {
    /// Whether there was room.
    fn add(&mut self, value: &'a Value, length: Option<usize>) -> bool {
        let bytes = length.map_or(usize::MAX, |length| {
            self.bytes.saturating_add(length).saturating_add(1)
        });
        let has_room = self.values.is_empty() || bytes <= VALUES_BYTES;
        if has_room {
            self.values.push(Cow::Borrowed(value));
            self.bytes = bytes;
        }
        has_room
    }
}

fn part_of_list(machine: &Machine, key: &Arc<str>, start: usize, ready: &mut Ready) -> Place {
    let mut part = Part::default();
    let mut index = start;
    if let Some(list) = machine.objects.lists().get(key) {
        while let Some(value) = list.values.get(index)
            && part.add(value, json_bytes(value, VALUES_BYTES))
        {
            index += 1;
        }
    }
    if part.values.is_empty() {
        let after = Some(Arc::clone(key));
        return Place::Lists { after };
    }
    let values = part.values;
    let entry = Entry::List {
        key: Cow::Borrowed(key),
        values,
    };
    ready.add(&entry);
    let key = Arc::clone(key);
    Place::InList { key, index }
}

fn part_of_set(machine: &Machine, key: &Arc<str>, after: &Arc<str>, ready: &mut Ready) -> Place {
    let mut part = Part::default();
    let mut last = after;
    if let Some(set) = machine.objects.sets().get(key) {
        let start = Bound::Excluded(&**after);
        for (text, value) in set.values.range::<_, str>((start, Bound::Unbounded)) {
            if !part.add(value, Some(text.len())) {
                break;
            }
            last = text;
        }
    }
    if part.values.is_empty() {
        let after = Some(Arc::clone(key));
        return Place::Sets { after };
    }
    let values = part.values;
    let entry = Entry::Set {
        key: Cow::Borrowed(key),
        values,
    };
    ready.add(&entry);
    let (key, text) = (Arc::clone(key), Arc::clone(last));
    Place::InSet { key, text }
}
