//! Owns the order in which elements came to be in each list, and what contradicts any such order.
//! Never looks at cycles between transactions.

use rustc_hash::{FxHashMap, FxHashSet};

use super::anomaly::{Anomalies, Kind};
use super::flaws::{self, note_duplicates, note_incompatible, note_sources, note_turned};
use super::table::{NONE, SHORT_STEP_COUNT, Step, Table};
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
    /// Whether an element is in it more often than it was appended, so that it is no order.
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
    /// Elements that several transactions may have appended, and nothing tells which of them.
    pub(super) ambiguous: Vec<Ambiguous>,
}

/// An element of a list that several transactions may have appended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct Ambiguous {
    pub(super) key: u32,
    pub(super) element: Value,
    /// Where in the longest list it is, so often as nobody knows who appended it.
    pub(super) places: Vec<usize>,
    /// Who may have appended it: one entry for each time, in the order of invocations.
    pub(super) candidates: Vec<u32>,
}

/// A guess who appended what several transactions may have appended, by list and place in the longest one.
pub(super) type Guess = FxHashMap<(u32, usize), u32>;

impl Versions {
    /// Finds the orders, and notes what contradicts them.
    pub(super) fn find(table: &Table, guess: &Guess, anomalies: &mut Anomalies) -> Self {
        let mut versions = Self {
            orders: vec![Order::default(); table.keys.len()],
            seen: Vec::new(),
            is_committed: Vec::new(),
            read_count: 0,
            seen_element_count: 0,
            update_count: 0,
            ambiguous: Vec::new(),
        };
        versions.find_longest(table);
        let own_places = match table.repeated.is_empty() {
            true => Guess::default(),
            false => versions.own_places(table),
        };
        for key in 0..versions.orders.len() as u32 {
            versions.find_writers(table, key, &own_places, guess, anomalies);
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

    /// Who appended what is in a longest list, as far as a transaction tells by reading it right afterwards.
    fn own_places(&self, table: &Table) -> Guess {
        let mut known = Guess::default();
        for transaction in table.ok() {
            let mut own: FxHashMap<u32, Vec<Value>> = FxHashMap::default();
            for step in table.steps(transaction) {
                match *step {
                    Step::Append { key, element } => own.entry(key).or_default().push(element),
                    Step::Read { list: NONE, .. } => {}
                    Step::Read { key, list } => {
                        let Some(own) = own.get(&key) else {
                            continue;
                        };
                        let (elements, order) = (table.elements(list), &self.orders[key as usize]);
                        let is_prefix = order.longest.is_some_and(|(longest, _)| {
                            table.elements(longest).starts_with(elements)
                        });
                        if is_prefix && elements.ends_with(own) {
                            let places = elements.len() - own.len()..elements.len();
                            known.extend(places.map(|place| ((key, place), transaction)));
                        }
                    }
                }
            }
        }
        known
    }

    /// Finds out who appended elements that were appended repeatedly, as far as something tells.
    fn find_among_several(
        &mut self,
        table: &Table,
        (key, element): (u32, Value),
        places: &[usize],
        own_places: &Guess,
        guess: &Guess,
    ) {
        let mut candidates = table.appenders(key, element);
        let mut open = Vec::new();
        for place in places {
            let known = own_places
                .get(&(key, *place))
                .or_else(|| guess.get(&(key, *place)));
            let taken = known.and_then(|one| candidates.iter().position(|other| other == one));
            match taken {
                Some(at) => {
                    self.orders[key as usize].writers[*place] = candidates.remove(at);
                }
                None => open.push(*place),
            }
        }
        let is_one = candidates.iter().all(|one| *one == candidates[0]);
        if is_one && candidates.len() >= open.len() {
            for (place, writer) in open.iter().zip(&candidates) {
                self.orders[key as usize].writers[*place] = *writer;
            }
        } else if !open.is_empty() {
            self.ambiguous.push(Ambiguous {
                key,
                element,
                places: open,
                candidates,
            });
        }
    }

    fn find_writers(
        &mut self,
        table: &Table,
        key: u32,
        own_places: &Guess,
        guess: &Guess,
        anomalies: &mut Anomalies,
    ) {
        let Some((list, reader)) = self.orders[key as usize].longest else {
            return;
        };
        let order = &mut self.orders[key as usize];
        let elements = table.elements(list);
        order.is_broken = note_duplicates(table, key, reader, elements, anomalies);
        let mut repeated: FxHashMap<Value, Vec<usize>> = FxHashMap::default();
        for (place, element) in elements.iter().enumerate() {
            let writer = table.writers.get(&(key, *element)).copied();
            let is_repeated =
                !table.repeated.is_empty() && table.repeated.contains_key(&(key, *element));
            order.writers.push(match writer {
                Some(writer) if !is_repeated => writer,
                _ => NONE,
            });
            if is_repeated {
                repeated.entry(*element).or_default().push(place);
            }
        }
        if !order.is_broken {
            let mut repeated: Vec<_> = repeated.into_iter().collect();
            repeated.sort_unstable_by_key(|(_, places)| places[0]);
            for (element, places) in repeated {
                self.find_among_several(table, (key, element), &places, own_places, guess);
            }
        }
        let order = &mut self.orders[key as usize];
        let writers = std::mem::take(&mut order.writers);
        let is_last = writers.iter().zip(elements).map(|(writer, element)| {
            *writer == NONE || table.last_append(*writer, key) == Some(*element)
        });
        order.is_last = is_last.collect();
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
            let mut numbers: FxHashMap<u32, usize> = FxHashMap::default();
            for step in table.steps(transaction) {
                let (Step::Append { key, .. } | Step::Read { key, .. }) = *step;
                let at = match table.steps(transaction).len() > SHORT_STEP_COUNT {
                    true => numbers.get(&key).copied(),
                    false => places.iter().position(|place| place.key == key),
                };
                let at = at.unwrap_or_else(|| {
                    places.push(Place::new(key));
                    if table.steps(transaction).len() > SHORT_STEP_COUNT {
                        numbers.insert(key, places.len() - 1);
                    }
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
                if !place.own.is_empty() && order.writers[..outside.len()].contains(&transaction) {
                    flaws::note_own_future(table, key, transaction, elements, anomalies);
                }
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
        let doings = match self.ambiguous.is_empty() && !table.repeated.is_empty() {
            true => doings(table, &self.orders),
            false => FxHashMap::default(),
        };
        for transaction in 0..table.transactions.len() as u32 {
            if !self.is_committed[transaction as usize] {
                continue;
            }
            let appended = match doings.is_empty() {
                true => FxHashMap::default(),
                false => append_counts(table, transaction),
            };
            for step in table.steps(transaction) {
                let Step::Append { key, element } = step else {
                    continue;
                };
                let order = &mut self.orders[*key as usize];
                let is_new = order.unread.last() != Some(&transaction);
                if order.longest.is_none() || !is_new {
                    continue;
                }
                let is_unread = match read[*key as usize].contains(element) {
                    false => true,
                    true if doings.is_empty() || order.is_broken => false,
                    true => {
                        let there = doings.get(&(*key, *element, transaction));
                        let appended = appended.get(&(*key, *element));
                        there.copied().unwrap_or(0) < appended.copied().unwrap_or(0)
                    }
                };
                if is_unread {
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

/// By key, element and transaction, of what was appended repeatedly: how often the element is in the longest list by
/// the doing of the transaction.
fn doings(table: &Table, orders: &[Order]) -> FxHashMap<(u32, Value, u32), usize> {
    let mut doings = FxHashMap::default();
    for (key, order) in (0..).zip(orders) {
        let longest = order.longest.map(|(list, _)| table.elements(list));
        for (element, writer) in longest.unwrap_or_default().iter().zip(&order.writers) {
            if table.repeated.contains_key(&(key, *element)) {
                *doings.entry((key, *element, *writer)).or_default() += 1;
            }
        }
    }
    doings
}

/// How often a transaction appends what was appended repeatedly, by key and element.
fn append_counts(table: &Table, transaction: u32) -> FxHashMap<(u32, Value), usize> {
    let mut counts = FxHashMap::default();
    for step in table.steps(transaction) {
        if let Step::Append { key, element } = *step
            && table.repeated.contains_key(&(key, element))
        {
            *counts.entry((key, element)).or_default() += 1;
        }
    }
    counts
}
