//! Owns the order in which elements came to be in each list, and what contradicts any such order.
//! Never looks at cycles between transactions.

use rustc_hash::{FxHashMap, FxHashSet};

use super::anomaly::{Anomalies, Kind};
use super::table::{NONE, Step, Table};
use super::words;
use crate::histories::Value;

/// What is known of one list.
#[derive(Debug, Clone, Default)]
pub(super) struct Order {
    /// The longest list that was read, and by whom first.
    pub(super) longest: Option<(u32, u32)>,
    /// By place in it: the transaction that appended the element, [`NONE`] if nobody did.
    pub(super) writers: Vec<u32>,
    /// By place in it: whether the transaction appended nothing to the list afterwards.
    is_last: Vec<bool>,
    /// Transactions that took place and appended something that is not in it. Each once.
    pub(super) unread: Vec<u32>,
    /// Whether an element is in it twice, so that it is no order.
    pub(super) is_broken: bool,
}

/// What a transaction saw of a list that was not its own doing: that many of its elements.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Seen {
    pub(super) transaction: u32,
    pub(super) key: u32,
    pub(super) length: u32,
    /// Whether the transaction appends to the list after it has read it.
    is_updated: bool,
}

/// The orders of all lists.
pub(super) struct Versions {
    pub(super) orders: Vec<Order>,
    /// In the order of the transactions.
    pub(super) seen: Vec<Seen>,
    /// By transaction: whether it took place for sure, because it says so or was seen.
    pub(super) is_committed: Vec<bool>,
    /// Reads whose result is known.
    pub(super) read_count: u64,
    /// Elements that these reads returned.
    pub(super) seen_element_count: u64,
    /// Transactions that read a list and then append to it.
    pub(super) update_count: u64,
}

impl Versions {
    /// Finds the orders, and notes what contradicts them.
    pub(super) fn find(table: &Table, anomalies: &mut Anomalies) -> Self {
        let mut versions = Self {
            orders: vec![Order::default(); table.keys.len()],
            seen: Vec::new(),
            is_committed: Vec::new(),
            read_count: 0,
            seen_element_count: 0,
            update_count: 0,
        };
        versions.find_longest(table);
        for key in 0..versions.orders.len() as u32 {
            versions.find_writers(table, key, anomalies);
        }
        versions.find_committed(table);
        versions.look_at_reads(table, anomalies);
        versions.find_unread(table);
        versions.find_lost_updates(table, anomalies);
        versions
    }

    fn find_longest(&mut self, table: &Table) {
        for transaction in table.ok() {
            for step in table.steps(transaction) {
                let Step::Read { key, list } = *step else {
                    continue;
                };
                if list == NONE {
                    continue;
                }
                self.read_count += 1;
                let length = table.elements(list).len();
                self.seen_element_count += length as u64;
                let order = &mut self.orders[key as usize];
                let longest = order
                    .longest
                    .map(|(longest, _)| table.elements(longest).len());
                if longest.is_none_or(|longest| longest < length) {
                    order.longest = Some((list, transaction));
                }
            }
        }
    }

    fn find_writers(&mut self, table: &Table, key: u32, anomalies: &mut Anomalies) {
        let Some((list, reader)) = self.orders[key as usize].longest else {
            return;
        };
        let order = &mut self.orders[key as usize];
        let elements = table.elements(list);
        order.is_broken = note_duplicates(table, key, reader, elements, anomalies);
        for element in elements {
            let writer = table.writers.get(&(key, *element)).copied();
            order.writers.push(writer.unwrap_or(NONE));
            order.is_last.push(
                writer.is_none_or(|writer| last_append(table, writer, key) == Some(*element)),
            );
        }
        let writers = std::mem::take(&mut order.writers);
        note_sources(table, key, reader, elements, anomalies);
        note_turned(table, key, (reader, elements), &writers, anomalies);
        self.orders[key as usize].writers = writers;
    }

    fn find_committed(&mut self, table: &Table) {
        use results::history::OperationType::{Fail, Ok};
        let outcomes = table.transactions.iter().map(|one| one.outcome);
        self.is_committed = outcomes.map(|outcome| outcome == Ok).collect();
        for writer in self.orders.iter().flat_map(|order| &order.writers) {
            if *writer != NONE && table.transactions[*writer as usize].outcome != Fail {
                self.is_committed[*writer as usize] = true;
            }
        }
    }

    fn look_at_reads(&mut self, table: &Table, anomalies: &mut Anomalies) {
        let mut places: Vec<Place> = Vec::new();
        let mut told: FxHashSet<(u32, u32)> = FxHashSet::default();
        for transaction in table.ok() {
            places.clear();
            for step in table.steps(transaction) {
                let (Step::Append { key, .. } | Step::Read { key, .. }) = *step;
                let at = places.iter().position(|place| place.key == key);
                let at = at.unwrap_or_else(|| {
                    places.push(Place::new(key));
                    places.len() - 1
                });
                let place = &mut places[at];
                match *step {
                    Step::Append { element, .. } => place.own.push(element),
                    Step::Read { list: NONE, .. } => {}
                    Step::Read { list, .. } => {
                        if let Some(text) = place.read(table, transaction, list) {
                            anomalies.note(Kind::Internal, [transaction], || text);
                        }
                    }
                }
            }
            for place in &places {
                let Some((list, own_count)) = place.first else {
                    continue;
                };
                let elements = table.elements(list);
                let outside = &elements[..elements.len() - own_count];
                let (key, order) = (place.key, &self.orders[place.key as usize]);
                let is_prefix = order.longest.is_none_or(|(longest, _)| {
                    longest == list || table.elements(longest).starts_with(elements)
                });
                if !is_prefix {
                    if told.insert((key, list)) {
                        note_duplicates(table, key, transaction, elements, anomalies);
                        note_sources(table, key, transaction, elements, anomalies);
                        note_incompatible(table, order, key, transaction, elements, anomalies);
                    }
                    continue;
                }
                let length = outside.len() as u32;
                self.look_at_last(table, transaction, key, outside, anomalies);
                let is_updated = place.own.len() > own_count;
                self.update_count += u64::from(is_updated);
                self.seen.push(Seen {
                    transaction,
                    key,
                    length,
                    is_updated,
                });
            }
        }
    }

    /// Notes a read that ends in the middle of what another transaction appended.
    fn look_at_last(
        &self,
        table: &Table,
        reader: u32,
        key: u32,
        outside: &[Value],
        anomalies: &mut Anomalies,
    ) {
        let Some((place, element)) = outside.iter().enumerate().next_back() else {
            return;
        };
        let order = &self.orders[key as usize];
        let writer = order.writers[place];
        if writer == NONE || writer == reader || order.is_last[place] {
            return;
        }
        anomalies.note(Kind::G1b, [reader, writer], || {
            let speaker = words::Speaker { table };
            format!(
                "{} read key {} up to {}, in the middle of what {} appended",
                speaker.name(reader),
                speaker.key(key),
                speaker.value(*element),
                speaker.name(writer)
            )
        });
    }

    fn find_unread(&mut self, table: &Table) {
        let read: Vec<FxHashSet<Value>> = self
            .orders
            .iter()
            .map(|order| match order.longest {
                Some((list, _)) => table.elements(list).iter().copied().collect(),
                None => FxHashSet::default(),
            })
            .collect();
        for transaction in 0..table.transactions.len() as u32 {
            if !self.is_committed[transaction as usize] {
                continue;
            }
            for step in table.steps(transaction) {
                let Step::Append { key, element } = step else {
                    continue;
                };
                let order = &mut self.orders[*key as usize];
                let is_new = order.unread.last() != Some(&transaction);
                if order.longest.is_some() && is_new && !read[*key as usize].contains(element) {
                    order.unread.push(transaction);
                }
            }
        }
    }

    fn find_lost_updates(&self, table: &Table, anomalies: &mut Anomalies) {
        let mut updated: FxHashMap<(u32, u32), u32> = FxHashMap::default();
        for seen in self.seen.iter().filter(|seen| seen.is_updated) {
            let first = *updated
                .entry((seen.key, seen.length))
                .or_insert(seen.transaction);
            if first == seen.transaction {
                continue;
            }
            anomalies.note(Kind::LostUpdate, [first, seen.transaction], || {
                let speaker = words::Speaker { table };
                format!(
                    "{} and {} both appended to key {} after they had read the same {} of it",
                    speaker.name(first),
                    speaker.name(seen.transaction),
                    speaker.key(seen.key),
                    crate::counted(u64::from(seen.length), "element"),
                )
            });
        }
    }
}

/// What a transaction did so far to one list.
struct Place {
    key: u32,
    /// The first list it read there, and how many elements of it are its own.
    first: Option<(u32, usize)>,
    /// The last list it read, and how many elements it had appended by then.
    last: Option<(u32, usize)>,
    /// What it appended.
    own: Vec<Value>,
}

impl Place {
    fn new(key: u32) -> Self {
        Self {
            key,
            first: None,
            last: None,
            own: Vec::new(),
        }
    }

    /// Takes in a read. Returns what is wrong with it.
    fn read(&mut self, table: &Table, transaction: u32, list: u32) -> Option<String> {
        let elements = table.elements(list);
        let fits = match self.last {
            None => elements.ends_with(&self.own),
            Some((before, own_count)) => {
                let (before, new) = (table.elements(before), &self.own[own_count..]);
                elements.len() == before.len() + new.len()
                    && elements.starts_with(before)
                    && elements.ends_with(new)
            }
        };
        self.last = Some((list, self.own.len()));
        if fits {
            self.first = self.first.or(Some((list, self.own.len())));
            return None;
        }
        let speaker = words::Speaker { table };
        Some(format!(
            "{} read {} of key {}, which does not go with its own steps before",
            speaker.name(transaction),
            speaker.list(elements),
            speaker.key(self.key)
        ))
    }
}

/// The last element that the transaction appends to the list.
fn last_append(table: &Table, transaction: u32, key: u32) -> Option<Value> {
    let steps = table.steps(transaction).iter().rev();
    steps.copied().find_map(|step| match step {
        Step::Append { key: of, element } if of == key => Some(element),
        _ => None,
    })
}

/// Notes elements that are in a list more than once. Returns whether there are any.
fn note_duplicates(
    table: &Table,
    key: u32,
    reader: u32,
    elements: &[Value],
    anomalies: &mut Anomalies,
) -> bool {
    let mut known = FxHashSet::default();
    let twice = elements.iter().find(|element| !known.insert(**element));
    let Some(twice) = twice else {
        return false;
    };
    let writer = table.writers.get(&(key, *twice)).copied();
    let involved = std::iter::once(reader).chain(writer.filter(|writer| *writer != reader));
    anomalies.note(Kind::Duplicate, involved, || {
        let speaker = words::Speaker { table };
        let by = writer.map_or_else(String::new, |writer| {
            format!(", which {} appended once", speaker.name(writer))
        });
        format!(
            "{} read {} of key {} more than once{by}",
            speaker.name(reader),
            speaker.value(*twice),
            speaker.key(key)
        )
    });
    true
}

/// Notes elements that nobody appended, or only transactions that failed.
fn note_sources(
    table: &Table,
    key: u32,
    reader: u32,
    elements: &[Value],
    anomalies: &mut Anomalies,
) {
    use results::history::OperationType::Fail;
    for element in elements {
        let speaker = words::Speaker { table };
        let read = || {
            format!(
                "{} read {} of key {}",
                speaker.name(reader),
                speaker.value(*element),
                speaker.key(key)
            )
        };
        match table.writers.get(&(key, *element)) {
            None => anomalies.note(Kind::Phantom, [reader], || {
                format!("{}, which nobody ever appended", read())
            }),
            Some(writer) if table.transactions[*writer as usize].outcome == Fail => {
                anomalies.note(Kind::G1a, [reader, *writer], || {
                    format!(
                        "{}, which only {} appended, and that failed for certain",
                        read(),
                        speaker.name(*writer)
                    )
                });
            }
            Some(_) => {}
        }
    }
}

/// Notes elements of one transaction that stand next to each other, but not in the order of its steps. What
/// stands apart from each other is a cycle with what is between.
fn note_turned(
    table: &Table,
    key: u32,
    (reader, elements): (u32, &[Value]),
    writers: &[u32],
    anomalies: &mut Anomalies,
) {
    for (two, of) in elements.windows(2).zip(writers.windows(2)) {
        if of[0] != of[1] || of[0] == NONE || two[0] == two[1] {
            continue;
        }
        let later = |element: Value| {
            let mut steps = table.steps(of[0]).iter();
            steps.position(|step| *step == Step::Append { key, element })
        };
        if later(two[0]) < later(two[1]) {
            continue;
        }
        anomalies.note(Kind::IncompatibleOrder, [reader, of[0]], || {
            let speaker = words::Speaker { table };
            format!(
                "{} read {} before {} of key {}, but {} appended them the other way round",
                speaker.name(reader),
                speaker.value(two[0]),
                speaker.value(two[1]),
                speaker.key(key),
                speaker.name(of[0])
            )
        });
    }
}

/// Notes that two lists cannot both be the beginning of one.
fn note_incompatible(
    table: &Table,
    order: &Order,
    key: u32,
    reader: u32,
    elements: &[Value],
    anomalies: &mut Anomalies,
) {
    let Some((longest, other)) = order.longest else {
        return;
    };
    anomalies.note(Kind::IncompatibleOrder, [other, reader], || {
        let speaker = words::Speaker { table };
        let whole = table.elements(longest);
        let common = whole.iter().zip(elements);
        let common = common.take_while(|(one, other)| one == other).count();
        format!(
            "{} read {} of key {}, but {} read {}: they differ from place {} on",
            speaker.name(other),
            speaker.list(whole),
            speaker.key(key),
            speaker.name(reader),
            speaker.list(elements),
            common + 1
        )
    });
}
