//! Owns the level-by-level order of search, which is the faster one where no legal order exists.
//! Never looks back: once a level is done, its configurations are forgotten.

use std::collections::{BTreeMap, VecDeque};
use std::mem::size_of;

use super::configuration::{Configuration, Space};
use super::seen::Seen;
use super::{Deepest, Ended};

/// Configurations waiting at one level.
struct Waiting<const W: usize> {
    seen: Seen<W>,
    queue: VecDeque<Configuration<W>>,
}

pub(super) struct LevelOrder<'a, const W: usize> {
    space: &'a Space<'a, W>,
    waiting: BTreeMap<usize, Waiting<W>>,
    deepest: Deepest,
    found: bool,
}

impl<'a, const W: usize> LevelOrder<'a, W> {
    pub(super) fn new(space: &'a Space<'a, W>) -> Self {
        let mut search = Self {
            space,
            waiting: BTreeMap::new(),
            deepest: Deepest::default(),
            found: false,
        };
        search.add(space.root(&mut |_| {}));
        search
    }

    fn add(&mut self, configuration: Configuration<W>) {
        self.found |= self.space.is_goal(&configuration);
        self.deepest.visit(configuration.level, configuration.state);
        let waiting = self
            .waiting
            .entry(configuration.level)
            .or_insert_with(|| Waiting {
                seen: Seen::new(),
                queue: VecDeque::new(),
            });
        if waiting.seen.insert(&configuration) {
            waiting.queue.push_back(configuration);
        }
    }

    /// Visits up to about `allowance` more configurations; `None` when there are more.
    pub(super) fn run(&mut self, allowance: u64) -> Option<Ended> {
        let mut visited = 0;
        while !self.found {
            let Some(mut level) = self.waiting.first_entry() else {
                return Some(Ended::Exhausted);
            };
            if visited >= allowance {
                return None;
            }
            let Some(configuration) = level.get_mut().queue.pop_front() else {
                level.remove();
                continue;
            };
            if !level.get().seen.is_current(&configuration) {
                continue;
            }
            for number in 0..self.space.move_count(&configuration) {
                if let Some(next) = self.space.after_move(&configuration, number, &mut |_| {}) {
                    visited += 1;
                    self.add(next);
                }
            }
        }
        Some(Ended::Found(None))
    }

    pub(super) fn deepest(&self) -> &Deepest {
        &self.deepest
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.waiting
            .values()
            .map(|waiting| {
                let queue = waiting.queue.capacity() * size_of::<Configuration<W>>();
                waiting.seen.memory_bytes() + queue as u64
            })
            .sum()
    }
}
