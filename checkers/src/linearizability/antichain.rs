//! Owns sets of configurations of which none can do all that another one can.
//! Never keeps a configuration that another one dominates.

use std::collections::BTreeMap;
use std::rc::Rc;

use rustc_hash::FxHashMap;

use super::bits::Bits;
use super::compiled::{Model, State};
use super::configuration::Configuration;
use super::levels::{Levels, Window};
use super::memory::table_bytes;

/// Up to this many configurations are looked through one by one.
const LINEAR_MAX_COUNT: usize = 64;

const NONE: u32 = u32::MAX;

/// Optional operations that lead to the same state: those that are possible in every state, and
/// others, for which one of the former can stand.
#[derive(Debug, Clone, Copy)]
pub(super) struct Destination<const C: usize> {
    strong: Bits<C>,
    weak: Bits<C>,
}

/// The account by operations, with all destinations for which others can stand.
pub(super) fn by_members<M: Model, const C: usize>(
    levels: &Levels<'_, M::Action>,
    model: &M,
) -> Account<C> {
    let mut by_state: BTreeMap<State, Destination<C>> = BTreeMap::new();
    for class in &levels.optional {
        let Some((state, is_strong)) = model.destination(class.action) else {
            continue;
        };
        let destination = by_state.entry(state).or_insert(Destination {
            strong: Bits::EMPTY,
            weak: Bits::EMPTY,
        });
        let members = if is_strong {
            &mut destination.strong
        } else {
            &mut destination.weak
        };
        for member in 0..class.operations.len() {
            members.insert(class.first + member);
        }
    }
    Account::Members(by_state.into_values().collect())
}

/// How it is told which of two configurations has more of what is optional left.
#[derive(Debug, Clone)]
pub(super) enum Account<const C: usize> {
    /// By the operations that were used, and those that can stand for them.
    Members(Rc<[Destination<C>]>),
    /// By what was paid for them, a number that stands in the place of the operations.
    Price,
}

impl<const C: usize> Account<C> {
    /// Whether with what `one` has left, everything is possible that is possible with what `other` has.
    #[inline]
    fn spends_no_more(&self, one: &Bits<C>, other: &Bits<C>) -> bool {
        match self {
            Self::Members(destinations) => spends_no_more(one, other, destinations),
            Self::Price => one.number() <= other.number(),
        }
    }
}

/// Whether with what `one` has left, everything is possible that is possible with what `other` has.
///
/// What only `one` used must be made up for by operations that only `other` used, which can stand for
/// them. All of these have begun, or they could not have been used.
fn spends_no_more<const C: usize>(
    one: &Bits<C>,
    other: &Bits<C>,
    destinations: &[Destination<C>],
) -> bool {
    let owed = one.minus(other);
    if owed.is_empty() {
        return true;
    }
    if destinations.is_empty() {
        return false;
    }
    let spare = other.minus(one);
    destinations.iter().all(|destination| {
        let owed = owed.and(&destination.strong).count() + owed.and(&destination.weak).count();
        owed == 0 || owed <= spare.and(&destination.strong).count()
    })
}

/// Configurations, in the order in which they were added.
#[derive(Debug)]
pub(super) struct Antichain<const W: usize, const C: usize> {
    account: Account<C>,
    entries: Vec<Entry<W, C>>,
    /// By entry: the hash of what must be equal, apart, as most of a search is looking through them.
    hashes: Vec<u64>,
    /// First entry by the hash of what must be equal; empty while there are few.
    index: FxHashMap<u64, u32>,
    alive_count: usize,
}

#[derive(Debug)]
struct Entry<const W: usize, const C: usize> {
    configuration: Configuration<W, C>,
    /// Next entry with the same hash.
    next: u32,
    is_alive: bool,
    /// What the caller keeps with it.
    note: u32,
}

/// Which slots hold which kind of operation, where two configurations are compared.
#[derive(Debug, Clone, Copy)]
pub(super) struct Kinds<const W: usize> {
    pure: Bits<W>,
    blind: Bits<W>,
    general: Bits<W>,
}

impl<const W: usize> Kinds<W> {
    pub(super) fn of<A: Copy>(window: &Window<A, W>) -> Self {
        Self {
            pure: window.pure,
            blind: window.blind,
            general: window.general,
        }
    }
}

/// Whether `one` can do all that `other` can. Both are at the same level and in the same state.
///
/// Of every pure operation, done is better than not done. Of every blind one, absorbed is better than
/// not done, and better than taken. Of those of unknown outcome, fewer used is better, and what others can
/// stand for. Without the duty to
/// be observed, everything is possible that is possible with it.
#[inline]
pub(super) fn dominates<const W: usize, const C: usize>(
    one: &Configuration<W, C>,
    other: &Configuration<W, C>,
    kinds: &Kinds<W>,
    account: &Account<C>,
) -> bool {
    let done = one.done.difference(&other.done);
    if !done.and(&kinds.general).is_empty() || (one.unobserved && !other.unobserved) {
        return false;
    }
    if !other.done.and(&kinds.pure).is_subset(&one.done) {
        return false;
    }
    let absorbed = one.done.minus(&one.taken);
    let must_equal = kinds.blind.minus(&absorbed);
    let taken = one.taken.difference(&other.taken);
    done.and(&must_equal).is_empty()
        && taken.and(&must_equal).is_empty()
        && account.spends_no_more(&one.optional, &other.optional)
}

impl<const W: usize, const C: usize> Antichain<W, C> {
    pub(super) fn new(account: Account<C>) -> Self {
        Self {
            account,
            entries: Vec::new(),
            hashes: Vec::new(),
            index: FxHashMap::default(),
            alive_count: 0,
        }
    }

    /// How it is told who has more left.
    pub(super) fn account(&self) -> &Account<C> {
        &self.account
    }

    pub(super) fn clear(&mut self) {
        self.entries.clear();
        self.hashes.clear();
        if !self.index.is_empty() {
            self.index.clear();
        }
        self.alive_count = 0;
    }

    /// How many were added since the last clearing, with those dominated since.
    pub(super) fn len(&self) -> usize {
        self.entries.len()
    }

    pub(super) fn alive_count(&self) -> usize {
        self.alive_count
    }

    /// The configuration at a place, with its note, unless it has been dominated since.
    pub(super) fn get(&self, place: usize) -> Option<(Configuration<W, C>, u32)> {
        let entry = &self.entries[place];
        entry.is_alive.then_some((entry.configuration, entry.note))
    }

    /// Configurations that no other one dominates.
    pub(super) fn alive(&self) -> impl Iterator<Item = &Configuration<W, C>> {
        let alive = self.entries.iter().filter(|entry| entry.is_alive);
        alive.map(|entry| &entry.configuration)
    }

    fn hash(configuration: &Configuration<W, C>, kinds: &Kinds<W>) -> u64 {
        let start = u64::from(configuration.level) << 32 | u64::from(configuration.state);
        configuration.done.and(&kinds.general).mix(start)
    }

    /// Whether one that is there dominates the configuration.
    pub(super) fn covers(&self, configuration: &Configuration<W, C>, kinds: &Kinds<W>) -> bool {
        self.covers_hashed(configuration, kinds, Self::hash(configuration, kinds))
    }

    fn covers_hashed(
        &self,
        configuration: &Configuration<W, C>,
        kinds: &Kinds<W>,
        hash: u64,
    ) -> bool {
        let is_better = |entry: &Entry<W, C>| {
            let other = &entry.configuration;
            entry.is_alive
                && other.level == configuration.level
                && other.state == configuration.state
                && dominates(other, configuration, kinds, &self.account)
        };
        if self.index.is_empty() {
            let mut hashes = self.hashes.iter().zip(&self.entries);
            return hashes.any(|(other, entry)| *other == hash && is_better(entry));
        }
        let mut place = self.index.get(&hash).copied().unwrap_or(NONE);
        while place != NONE {
            let entry = &self.entries[place as usize];
            if is_better(entry) {
                return true;
            }
            place = entry.next;
        }
        false
    }

    /// Adds the configuration with a note, and drops those that it dominates. False when one that is
    /// there dominates it.
    pub(super) fn insert(
        &mut self,
        configuration: &Configuration<W, C>,
        kinds: &Kinds<W>,
        note: u32,
    ) -> bool {
        let hash = Self::hash(configuration, kinds);
        if self.covers_hashed(configuration, kinds, hash) {
            return false;
        }
        if self.index.is_empty() {
            for (other, entry) in self.hashes.iter().zip(&mut self.entries) {
                if *other != hash {
                    continue;
                }
                let other = &entry.configuration;
                if entry.is_alive
                    && other.level == configuration.level
                    && other.state == configuration.state
                    && dominates(configuration, other, kinds, &self.account)
                {
                    entry.is_alive = false;
                    self.alive_count -= 1;
                }
            }
            self.push(configuration, hash, NONE, note);
            if self.entries.len() > LINEAR_MAX_COUNT {
                self.build_index();
            }
            return true;
        }
        let first = self.index.get(&hash).copied().unwrap_or(NONE);
        let first = self.drop_dominated(configuration, kinds, first);
        self.index.insert(hash, self.entries.len() as u32);
        self.push(configuration, hash, first, note);
        true
    }

    /// Unlinks what the configuration dominates; returns the first that is left.
    fn drop_dominated(
        &mut self,
        configuration: &Configuration<W, C>,
        kinds: &Kinds<W>,
        mut first: u32,
    ) -> u32 {
        let mut place = first;
        let mut before = NONE;
        while place != NONE {
            let entry = &mut self.entries[place as usize];
            let next = entry.next;
            let other = &entry.configuration;
            let is_worse = other.level == configuration.level
                && other.state == configuration.state
                && dominates(configuration, other, kinds, &self.account);
            if is_worse || !entry.is_alive {
                if entry.is_alive {
                    entry.is_alive = false;
                    self.alive_count -= 1;
                }
                if before == NONE {
                    first = next;
                } else {
                    self.entries[before as usize].next = next;
                }
            } else {
                before = place;
            }
            place = next;
        }
        first
    }

    fn push(&mut self, configuration: &Configuration<W, C>, hash: u64, next: u32, note: u32) {
        self.alive_count += 1;
        self.hashes.push(hash);
        self.entries.push(Entry {
            configuration: *configuration,
            next,
            is_alive: true,
            note,
        });
    }

    fn build_index(&mut self) {
        let hashes = self.hashes.iter().zip(&mut self.entries);
        for (place, (hash, entry)) in hashes.enumerate() {
            if entry.is_alive {
                let next = self.index.insert(*hash, place as u32);
                entry.next = next.unwrap_or(NONE);
            }
        }
    }

    /// Bytes occupied, approximately.
    pub(super) fn memory_bytes(&self) -> u64 {
        let entries = self.entries.capacity() * size_of::<Entry<W, C>>();
        let hashes = self.hashes.capacity() * size_of::<u64>();
        (entries + hashes) as u64 + table_bytes(self.index.capacity(), size_of::<(u64, u32)>())
    }
}
