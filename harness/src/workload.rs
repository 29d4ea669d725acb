//! Owns what clients do: the n-th operation of a run is a pure function of the seed and n.
//! Never knows the cluster; routing and outcomes are the runner's business.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod planned;

use results::keyed_random::Stream;
use serde_json::{Value, json};

pub use planned::{Planned, Step};

/// Names of all workloads; the first is the one that is used unless another is asked for.
pub const WORKLOADS: [&str; 6] = [
    "register",
    "append",
    "set",
    "counter",
    "unique-ids",
    "list-append",
];

/// Objects in use at the same time. Few, so that clients meet on them.
const KEYS_AT_ONCE: u64 = 5;
/// Most steps of a transaction.
const STEPS_MAX: u64 = 4;
/// Steps that a transaction may have, as room in the numbers of values.
const VALUES_PER_OPERATION: u64 = STEPS_MAX;
/// What is added to counters. Few different numbers, so that many orders lead to the same sums, and a sum
/// that is off by one addition is still likely to be off the bounds.
const DELTAS: [i64; 4] = [1, 2, 5, -3];
/// Of 100 operations that change something, how many carry a name by which copies of them are recognised.
const NAMED_PERCENT: u64 = 75;
/// Of 100 operations with such a name, for how many the client takes the first success for lost.
const DEAF_PERCENT: u64 = 15;
/// How often a client sends an operation again whose outcome it does not know.
const RETRIES_MAX: u32 = 3;
/// Of 100 copies, how many are sent without a pause.
const HASTY_PERCENT: u64 = 40;

/// What the clients of a run do.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// Reads, writes and compare-and-sets of registers.
    Register,
    /// Appends to lists and reads of them.
    Append,
    /// Additions to sets, of elements that nothing else adds, and reads of them.
    Set,
    /// Additions to counters, of positive and negative numbers, and reads of them.
    Counter,
    /// Numbers drawn from counters, each of which may be drawn only once.
    UniqueIds,
    /// Transactions of appends to several lists and reads of them.
    ListAppend,
}

impl Kind {
    const ALL: [Self; 6] = [
        Self::Register,
        Self::Append,
        Self::Set,
        Self::Counter,
        Self::UniqueIds,
        Self::ListAppend,
    ];

    /// Operations per object before clients move on to fresh ones. Bounds what a checker must search, and
    /// how long lists become.
    fn operations_per_key(self) -> u64 {
        match self {
            Self::Register | Self::UniqueIds => 200,
            Self::Append | Self::Set => 150,
            Self::Counter | Self::ListAppend => 100,
        }
    }

    /// Name of the stream of draws.
    fn stream(self) -> &'static str {
        match self {
            Self::Register => "register-workload",
            Self::Append => "append-workload",
            Self::Set => "set-workload",
            Self::Counter => "counter-workload",
            Self::UniqueIds => "unique-ids-workload",
            Self::ListAppend => "list-append-workload",
        }
    }
}

/// There is no workload of that name.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
#[error("unknown workload {0:?}; known: {known}", known = WORKLOADS.join(", "))]
pub struct UnknownWorkload(String);

/// How a client insists on an operation whose outcome it does not know. All copies of it carry the same
/// name, so that together they take effect once at most.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Insistence {
    /// How often the client sends the operation again.
    pub retry_count: u32,
    /// Whether the client takes the first success for lost, and so sends a copy of what was done already.
    pub is_deaf: bool,
    /// Pause before each copy, as a share of the configured timeout, in thousandths.
    pub pause_thousandths: u64,
}

/// Operations on a slowly moving set of objects.
///
/// Values are unique, so that every read names the operations that it saw. About one client thread in
/// three only reads, so that it never gets stuck behind an unanswered change.
#[derive(Debug, Clone, Copy)]
pub struct Workload {
    kind: Kind,
    stream: Stream,
}

impl Workload {
    /// The workload of this name under `seed`.
    ///
    /// # Errors
    /// When there is none.
    pub fn named(name: &str, seed: u64) -> Result<Self, UnknownWorkload> {
        let mut all = WORKLOADS.iter().zip(Kind::ALL);
        match all.find(|(known, _)| **known == name) {
            Some((_, kind)) => Ok(Self::new(kind, seed)),
            None => Err(UnknownWorkload(name.to_owned())),
        }
    }

    /// The workload under `seed`.
    pub fn new(kind: Kind, seed: u64) -> Self {
        let stream = Stream::new(seed, kind.stream());
        Self { kind, stream }
    }

    /// Whether this client thread only reads.
    pub fn is_reader(thread: u32) -> bool {
        thread % 4 == 2 || Self::is_roaming(thread)
    }

    /// Whether this client thread asks every node in turn, instead of staying with one that answers.
    /// The others find out what a leader says that was left behind; this one, what followers say.
    pub fn is_roaming(thread: u32) -> bool {
        thread % 10 == 9
    }

    /// The operation with this number, for a thread that only reads or for one that does everything.
    pub fn operation(&self, number: u64, reader: bool) -> Planned {
        let key = self.key(number, 0);
        // 0 never occurs as a value, which makes a default that leaked somewhere visible.
        let value = json!(number + 1);
        let share = self.stream.below(1, number, 100);
        match self.kind {
            Kind::UniqueIds => Planned::DrawId { key },
            Kind::ListAppend => self.transaction(number, reader),
            _ if reader => self.read(key),
            Kind::Register => match share {
                0..60 => Planned::Write { key, value },
                60..90 => Planned::CompareAndSet { key, new: value },
                _ => self.read(key),
            },
            Kind::Append if share < 75 => Planned::Append { key, value },
            Kind::Set if share < 75 => Planned::AddElement { key, value },
            Kind::Counter if share < 75 => Planned::AddNumber {
                key,
                delta: self.delta(number),
            },
            Kind::Append | Kind::Set | Kind::Counter => self.read(key),
        }
    }

    fn transaction(&self, number: u64, reader: bool) -> Planned {
        let count = self.stream.between(5, number, 1, STEPS_MAX);
        let steps = (0..count).map(|place| {
            let draw = number * VALUES_PER_OPERATION + place;
            let key = self.key(number, place);
            if reader || self.stream.chance(6, draw, 45) {
                Step::Read { key }
            } else {
                let value = draw + 1;
                Step::Append { key, value }
            }
        });
        Planned::Transaction {
            steps: steps.collect(),
        }
    }

    fn delta(&self, number: u64) -> i64 {
        self.stream.choose(5, number, &DELTAS).copied().unwrap_or(1)
    }

    /// The object that an operation, or one step of it, is about.
    fn key(&self, number: u64, place: u64) -> String {
        let generation = number / (KEYS_AT_ONCE * self.kind.operations_per_key());
        let draw = match place {
            0 => self.stream.below(0, number, KEYS_AT_ONCE),
            _ => self.stream.below(10 + place, number, KEYS_AT_ONCE),
        };
        (generation * KEYS_AT_ONCE + draw).to_string()
    }

    /// Reads an object of the workload.
    pub fn read(&self, key: String) -> Planned {
        match self.kind {
            Kind::Register => Planned::Read { key },
            Kind::Append => Planned::ReadList { key },
            Kind::Set => Planned::ReadSet { key },
            Kind::Counter => Planned::ReadCounter { key },
            Kind::UniqueIds => Planned::DrawId { key },
            Kind::ListAppend => Planned::Transaction {
                steps: vec![Step::Read { key }],
            },
        }
    }

    /// Changes an object of the workload that no planned operation is about. No two numbers change the same
    /// object in the same way.
    pub fn probe(&self, key: String, number: u64) -> Planned {
        let value = Value::from(number);
        match self.kind {
            Kind::Register => Planned::Write { key, value },
            Kind::Append => Planned::Append { key, value },
            Kind::Set => Planned::AddElement { key, value },
            Kind::Counter => Planned::AddNumber { key, delta: 1 },
            Kind::UniqueIds => Planned::DrawId { key },
            Kind::ListAppend => Planned::Transaction {
                steps: vec![Step::Append { key, value: number }],
            },
        }
    }

    /// How the client insists on the operation with this number, if it does. The register workload leaves
    /// that out: what is not known there stays unknown.
    pub fn insistence(&self, number: u64) -> Option<Insistence> {
        if self.kind == Kind::Register || !self.stream.chance(7, number, NAMED_PERCENT) {
            return None;
        }
        let pause_thousandths = match self.stream.chance(8, number, HASTY_PERCENT) {
            true => 0,
            false => self.stream.below(9, number, 4001),
        };
        Some(Insistence {
            retry_count: RETRIES_MAX,
            is_deaf: self.stream.chance(10, number, DEAF_PERCENT),
            pause_thousandths,
        })
    }

    /// Share of the configured pace at which the operation follows its thread's previous one, in
    /// thousandths: 0..2000, 1000 on average.
    pub fn pace_thousandths(&self, number: u64) -> u64 {
        self.stream.below(2, number, 2001)
    }

    /// Share of the configured timeout that the client waits for this operation, in thousandths:
    /// 500..1500. Clients that all give up at the same moment would hide what happens in between.
    pub fn patience_thousandths(&self, number: u64) -> u64 {
        500 + self.stream.below(3, number, 1001)
    }

    /// Every object that the first `count` operations may have touched.
    pub fn keys(&self, count: u64) -> Vec<String> {
        let generations = count.div_ceil(KEYS_AT_ONCE * self.kind.operations_per_key());
        (0..generations * KEYS_AT_ONCE)
            .map(|key| key.to_string())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    fn all(seed: u64) -> impl Iterator<Item = Workload> {
        Kind::ALL
            .into_iter()
            .map(move |kind| Workload::new(kind, seed))
    }

    #[test]
    fn the_same_seed_gives_the_same_operations() {
        for ((one, other), differs) in all(7).zip(all(7)).zip(all(8)) {
            assert!((0..500).all(|n| one.operation(n, false) == other.operation(n, false)));
            assert!((0..500).any(|n| one.operation(n, false) != differs.operation(n, false)));
        }
    }

    /// What an operation adds or sets, each with its object.
    fn changes(planned: &Planned) -> Vec<(String, String)> {
        match planned {
            Planned::Write { key, value }
            | Planned::CompareAndSet { key, new: value }
            | Planned::Append { key, value }
            | Planned::AddElement { key, value } => vec![(key.clone(), value.to_string())],
            Planned::Transaction { steps } => steps
                .iter()
                .filter_map(|step| match step {
                    Step::Append { key, value } => Some((key.clone(), value.to_string())),
                    Step::Read { .. } => None,
                })
                .collect(),
            _ => Vec::new(),
        }
    }

    #[test]
    fn values_are_unique_and_keys_are_announced() {
        for workload in all(1) {
            let keys: BTreeSet<_> = workload.keys(3000).into_iter().collect();
            let mut values = BTreeSet::new();
            let mut change_count = 0;
            for number in 0..3000 {
                let planned = workload.operation(number, false);
                for key in planned.keys() {
                    assert!(keys.contains(key), "{planned:?}");
                }
                for (_, value) in changes(&planned) {
                    assert_ne!(value, "0");
                    assert!(values.insert(value));
                }
                change_count += usize::from(!planned.is_read());
            }
            assert!(change_count > 1500, "most operations change something");
        }
    }

    #[test]
    fn readers_only_read_except_where_nothing_can_be_read() {
        for workload in all(1).filter(|workload| workload.kind != Kind::UniqueIds) {
            assert!((0..100).all(|n| workload.operation(n, true).is_read()));
        }
        let readers = (0..10).filter(|thread| Workload::is_reader(*thread));
        assert_eq!(readers.count(), 3);
    }

    #[test]
    fn transactions_have_several_steps_on_several_keys() {
        let workload = Workload::new(Kind::ListAppend, 3);
        let counts: Vec<usize> = (0..1000)
            .map(|n| workload.operation(n, false).keys().count())
            .collect();
        for count in 1..=4 {
            let found = counts.iter().filter(|found| **found == count).count();
            assert!(found > 150, "{count}: {found}");
        }
        let crossing = (0..1000).filter(|n| {
            let planned = workload.operation(*n, false);
            planned.keys().collect::<BTreeSet<_>>().len() > 1
        });
        assert!(crossing.count() > 400);
    }

    #[test]
    fn every_workload_but_that_of_registers_sends_copies() {
        for workload in all(1) {
            let insisting = (0..1000).filter_map(|n| workload.insistence(n));
            let deaf = insisting.clone().filter(|insistence| insistence.is_deaf);
            let is_register = workload.kind == Kind::Register;
            assert_eq!(insisting.count() > 600, !is_register);
            assert_eq!(deaf.count() > 50, !is_register);
        }
    }

    #[test]
    fn workloads_have_names_and_no_others() {
        for (name, kind) in WORKLOADS.iter().zip(Kind::ALL) {
            assert_eq!(Workload::named(name, 1).map(|one| one.kind), Ok(kind));
        }
        let said = Workload::named("registre", 1).unwrap_err().to_string();
        assert!(said.contains("registre") && said.contains("list-append"));
    }
}
