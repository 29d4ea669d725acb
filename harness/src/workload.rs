//! Owns what clients do: the n-th operation of a run is a pure function of the seed and n.
//! Never knows the cluster; routing and outcomes are the runner's business.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use results::keyed_random::Stream;
use serde_json::{Value, json};

/// Names of all workloads.
pub const WORKLOADS: [&str; 1] = ["register"];

/// Registers in use at the same time. Few, so that clients meet on them.
const KEYS_AT_ONCE: u64 = 5;
/// Operations per register before clients move on to fresh ones. Bounds what a checker must search.
const OPERATIONS_PER_KEY: u64 = 200;

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
}

impl Planned {
    /// The register concerned.
    pub fn key(&self) -> &str {
        match self {
            Self::Read { key } | Self::Write { key, .. } | Self::CompareAndSet { key, .. } => key,
        }
    }
}

/// The register workload: reads, writes and compare-and-sets on a slowly moving set of registers.
///
/// Values are unique, so that every read names the write it saw. About one client thread in three
/// only reads, so that it never gets stuck behind an unanswered write; the others read one time in ten.
#[derive(Debug, Clone, Copy)]
pub struct RegisterWorkload {
    stream: Stream,
}

impl RegisterWorkload {
    /// The workload under `seed`.
    pub fn new(seed: u64) -> Self {
        Self {
            stream: Stream::new(seed, "register-workload"),
        }
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
        let generation = number / (KEYS_AT_ONCE * OPERATIONS_PER_KEY);
        let key = generation * KEYS_AT_ONCE + self.stream.below(0, number, KEYS_AT_ONCE);
        let key = key.to_string();
        // 0 never occurs as a value, which makes a default that leaked somewhere visible.
        let value = json!(number + 1);
        match self.stream.below(1, number, 100) {
            _ if reader => Planned::Read { key },
            0..60 => Planned::Write { key, value },
            60..90 => Planned::CompareAndSet { key, new: value },
            _ => Planned::Read { key },
        }
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

    /// Every register that the first `count` operations may have touched.
    pub fn keys(&self, count: u64) -> Vec<String> {
        let generations = count.div_ceil(KEYS_AT_ONCE * OPERATIONS_PER_KEY);
        (0..generations * KEYS_AT_ONCE)
            .map(|key| key.to_string())
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn the_same_seed_gives_the_same_operations() {
        let (one, other) = (RegisterWorkload::new(7), RegisterWorkload::new(7));
        let differs = RegisterWorkload::new(8);
        assert!((0..500).all(|n| one.operation(n, false) == other.operation(n, false)));
        assert!((0..500).any(|n| one.operation(n, false) != differs.operation(n, false)));
    }

    #[test]
    fn written_values_are_unique_and_keys_are_announced() {
        let workload = RegisterWorkload::new(1);
        let keys: BTreeSet<_> = workload.keys(3000).into_iter().collect();
        let mut values = BTreeSet::new();
        for number in 0..3000 {
            let planned = workload.operation(number, false);
            assert!(keys.contains(planned.key()), "{planned:?}");
            if let Planned::Write { value, .. } | Planned::CompareAndSet { new: value, .. } =
                planned
            {
                assert!(values.insert(value.as_u64().unwrap()));
            }
        }
        assert!(values.len() > 1500, "most operations change something");
    }

    #[test]
    fn readers_only_read() {
        let workload = RegisterWorkload::new(1);
        assert!((0..100).all(|n| matches!(workload.operation(n, true), Planned::Read { .. })));
        assert_eq!(
            (0..10)
                .filter(|thread| RegisterWorkload::is_reader(*thread))
                .count(),
            3
        );
    }
}
