//! Owns the memory of configurations already visited, and which of them make others superfluous.
//! Never keeps a configuration that another one dominates.

use std::collections::HashMap;
use std::mem::size_of;

use super::bits::Bits;
use super::configuration::Configuration;

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
struct Key<const W: usize> {
    level: usize,
    state: u32,
    unobserved: bool,
    taken: Bits<W>,
}

/// For every (level, value, taken) the minimal sets of optional operations used to get there.
///
/// Only looked up, never iterated, so the order of the hash map cannot show.
#[derive(Debug)]
pub(super) struct Seen<const W: usize> {
    minimal: HashMap<Key<W>, Vec<Bits<W>>>,
    set_count: u64,
}

impl<const W: usize> Seen<W> {
    pub(super) fn new() -> Self {
        Self {
            minimal: HashMap::new(),
            set_count: 0,
        }
    }

    fn key(configuration: &Configuration<W>, unobserved: bool) -> Key<W> {
        Key {
            level: configuration.level,
            state: configuration.state,
            unobserved,
            taken: configuration.taken,
        }
    }

    /// Remembers the configuration. False when one seen before can do all that this one can.
    pub(super) fn insert(&mut self, configuration: &Configuration<W>) -> bool {
        let used = configuration.optional;
        // Without the duty to be observed, everything is possible that is possible with it.
        if configuration.unobserved
            && let Some(sets) = self.minimal.get(&Self::key(configuration, false))
            && sets.iter().any(|set| set.is_subset(&used))
        {
            return false;
        }
        let sets = self
            .minimal
            .entry(Self::key(configuration, configuration.unobserved))
            .or_default();
        if sets.iter().any(|set| set.is_subset(&used)) {
            return false;
        }
        let before = sets.len() as u64;
        sets.retain(|set| !used.is_subset(set));
        sets.push(used);
        self.set_count = self.set_count + sets.len() as u64 - before;
        true
    }

    /// Whether the configuration, once inserted, has not been dominated since.
    pub(super) fn is_current(&self, configuration: &Configuration<W>) -> bool {
        self.minimal
            .get(&Self::key(configuration, configuration.unobserved))
            .is_some_and(|sets| sets.contains(&configuration.optional))
    }

    /// Approximate size: the map keeps some space free, and every vector is an allocation.
    pub(super) fn memory_bytes(&self) -> u64 {
        let entry = size_of::<Key<W>>() + size_of::<Vec<Bits<W>>>() + 1;
        let entries = self.minimal.capacity() as u64 * entry as u64;
        // The allocator rounds up, and vectors of more than one set grow in steps.
        let set = size_of::<Bits<W>>().max(32) as u64;
        entries + self.set_count * set * 3 / 2
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn configuration(optional: &[usize], unobserved: bool) -> Configuration<1> {
        let mut bits = Bits::EMPTY;
        for bit in optional {
            bits.insert(*bit);
        }
        Configuration {
            level: 3,
            state: 7,
            taken: Bits::EMPTY,
            optional: bits,
            unobserved,
        }
    }

    #[test]
    fn fewer_optional_operations_replace_more() {
        let mut seen = Seen::new();
        assert!(seen.insert(&configuration(&[1, 2], false)));
        assert!(seen.insert(&configuration(&[3], false)));
        assert!(!seen.insert(&configuration(&[1, 2, 3], false)));
        assert!(seen.insert(&configuration(&[2], false)));
        assert!(!seen.is_current(&configuration(&[1, 2], false)));
        assert!(seen.is_current(&configuration(&[3], false)));
        assert!(!seen.insert(&configuration(&[2], true)));
        assert!(seen.insert(&configuration(&[], true)));
        assert!(seen.insert(&configuration(&[], false)));
    }
}
