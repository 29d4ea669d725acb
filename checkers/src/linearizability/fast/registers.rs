//! Owns registers where every value is written at most once: zones (Gibbons & Korach 1997), and chains
//! of them where compare-and-sets lead from one value to the next.
//! Never handles claims that a value was not there.
//!
//! A compare-and-set from `a` to `b` comes right after everything that observed `a`, so values form
//! chains. Within a chain the order is given. Between two chains, each of which is a block, one must
//! precede the other if an operation of it ended before one of the other began: both ways is a
//! contradiction, and every contradiction among several blocks contains one between two. A block whose
//! earliest completion comes before its latest invocation covers the zone between the two; otherwise it
//! is free to be anywhere between its latest invocation and its earliest completion.

use super::super::models::register::Action;
use super::super::timeline::{NEVER, Timeline};
use super::Fast;

/// Values above this multiple of the number of operations are too sparse for arrays.
const SPARSE_FACTOR: usize = 8;

struct Values {
    initial: u32,
    /// By value: who leaves it behind.
    producer: Vec<u32>,
    /// By value: the value that a compare-and-set made of it.
    next: Vec<u32>,
    /// By value: positions of the latest invocation, the earliest completion, and the earliest
    /// completion of a read; all count from 1, so that the initial value was there at 0.
    latest_call: Vec<u32>,
    earliest_return: Vec<u32>,
    earliest_read: Vec<u32>,
    read_count: Vec<u32>,
}

/// Decides; `None` where values are not unique.
pub(in super::super) fn decide(initial: u32, timeline: &Timeline<Action>) -> Option<Fast> {
    let mut values = Values::new(initial, timeline)?;
    let intervals = timeline.intervals();
    let Some(counts) = values.who_counts(timeline, &intervals) else {
        return Some(Fast::NotLinearizable);
    };
    if !values.fill(timeline, &intervals, &counts) {
        return Some(Fast::NotLinearizable);
    }
    let Some(blocks) = values.blocks(timeline, intervals.len() + timeline.completed_count()) else {
        return Some(Fast::NotLinearizable);
    };
    Some(Fast::Linearizable(values.order(timeline, &counts, &blocks)))
}

impl Values {
    /// `None` if two operations leave the same value behind, or the initial one, or if one claims that a
    /// value was not there.
    fn new(initial: u32, timeline: &Timeline<Action>) -> Option<Self> {
        let sparse = timeline.len() * SPARSE_FACTOR + 1024;
        let mut count = initial as usize + 1;
        let mut producer: Vec<u32> = Vec::with_capacity(timeline.len().min(1 << 20));
        for (operation, action) in timeline.actions().iter().enumerate() {
            if let Some(value) = action.observes() {
                count = count.max(value as usize + 1);
            }
            if matches!(action, Action::Differs(_)) {
                return None;
            }
            let Some(value) = action.produces() else {
                continue;
            };
            count = count.max(value as usize + 1);
            if count > sparse {
                return None;
            }
            if producer.len() <= value as usize {
                producer.resize(value as usize + 1, NEVER);
            }
            let before = std::mem::replace(&mut producer[value as usize], operation as u32);
            if before != NEVER || value == initial {
                return None;
            }
        }
        if count > sparse {
            return None;
        }
        producer.resize(count, NEVER);
        Some(Self {
            initial,
            producer,
            next: vec![NEVER; count],
            latest_call: vec![0; count],
            earliest_return: vec![NEVER; count],
            earliest_read: vec![NEVER; count],
            read_count: vec![0; count],
        })
    }

    /// By operation: whether it certainly took effect, as it completed or its value was observed.
    /// `None` if a value was observed that nothing left behind.
    fn who_counts(
        &self,
        timeline: &Timeline<Action>,
        intervals: &[(u32, u32)],
    ) -> Option<Vec<bool>> {
        let mut counts: Vec<bool> = intervals.iter().map(|(_, end)| *end != NEVER).collect();
        for operation in 0..timeline.len() {
            let mut at = operation;
            // Follows what was observed back to its origin.
            while counts[at] {
                let Some(value) = timeline.action(at).requires() else {
                    break;
                };
                if value == self.initial {
                    break;
                }
                let producer = self.producer[value as usize];
                if producer == NEVER {
                    return None;
                }
                at = producer as usize;
                if std::mem::replace(&mut counts[at], true) {
                    break;
                }
            }
        }
        Some(counts)
    }

    /// Fills in the clusters. False if two compare-and-sets found the same value, or a read ended
    /// before its value was on its way.
    fn fill(
        &mut self,
        timeline: &Timeline<Action>,
        intervals: &[(u32, u32)],
        counts: &[bool],
    ) -> bool {
        self.earliest_return[self.initial as usize] = 0;
        for (operation, action) in timeline.actions().iter().enumerate() {
            if !counts[operation] {
                continue;
            }
            let (call, end) = intervals[operation];
            let (call, end) = (call + 1, end.saturating_add(1));
            let value = match (action.produces(), action.requires()) {
                (Some(value), None) => value,
                (Some(value), Some(expected)) => {
                    let next = &mut self.next[expected as usize];
                    if std::mem::replace(next, value) != NEVER {
                        return false;
                    }
                    value
                }
                (None, Some(value)) => {
                    let earliest = &mut self.earliest_read[value as usize];
                    *earliest = end.min(*earliest);
                    self.read_count[value as usize] += 1;
                    value
                }
                (None, None) => continue,
            };
            let value = value as usize;
            self.latest_call[value] = self.latest_call[value].max(call);
            self.earliest_return[value] = self.earliest_return[value].min(end);
        }
        self.producer.iter().enumerate().all(|(value, producer)| {
            *producer == NEVER
                || !counts[*producer as usize]
                || self.earliest_read[value] > intervals[*producer as usize].0 + 1
        })
    }

    /// First values of the blocks in an order that respects real time; `None` if there is none.
    fn blocks(&self, timeline: &Timeline<Action>, event_count: usize) -> Option<Vec<u32>> {
        // By the position from which a block may be placed: its first value, and its two ends.
        let mut at = vec![NEVER; event_count + 2];
        let mut value_count = 0;
        let mut chain = Vec::new();
        let mut ends = vec![(0, 0); self.producer.len()];
        for (root, producer) in self.producer.iter().enumerate() {
            let is_root = root == self.initial as usize
                || *producer != NEVER
                    && self.latest_call[root] > 0
                    && matches!(timeline.action(*producer as usize), Action::Write(_));
            if !is_root {
                continue;
            }
            chain.clear();
            let mut value = root as u32;
            while value != NEVER {
                chain.push(value);
                value = self.next[value as usize];
            }
            value_count += chain.len();
            let (mut call, mut end) = (0, NEVER);
            for value in chain.iter().rev() {
                let value = *value as usize;
                if end < self.latest_call[value] {
                    return None;
                }
                call = call.max(self.latest_call[value]);
                end = end.min(self.earliest_return[value]);
            }
            ends[root] = (call, end);
            at[call.min(end) as usize] = root as u32;
        }
        let is_used = |value: &usize| self.latest_call[*value] > 0;
        let used_count = (0..self.producer.len()).filter(is_used).count();
        let is_initial_unused = !is_used(&(self.initial as usize));
        if value_count != used_count + usize::from(is_initial_unused) {
            return None; // Values that lead to each other in a circle.
        }
        let mut zone_end = 0;
        let mut blocks = Vec::new();
        for root in at.into_iter().filter(|root| *root != NEVER) {
            let (call, end) = ends[root as usize];
            if end < zone_end {
                return None;
            }
            if end < call {
                zone_end = call;
            }
            blocks.push(root);
        }
        Some(blocks)
    }

    /// Block by block, value by value, each with its producer first.
    fn order(&self, timeline: &Timeline<Action>, counts: &[bool], blocks: &[u32]) -> Vec<u32> {
        let mut order = vec![NEVER; timeline.len()];
        let mut place = vec![0; self.producer.len()];
        let mut length = 0;
        for root in blocks {
            let mut value = *root;
            while value != NEVER {
                if value != self.initial {
                    order[length] = self.producer[value as usize];
                    length += 1;
                }
                place[value as usize] = length;
                length += self.read_count[value as usize] as usize;
                value = self.next[value as usize];
            }
        }
        for (operation, action) in timeline.actions().iter().enumerate() {
            if counts[operation]
                && action.is_pure()
                && let Some(value) = action.requires()
            {
                order[place[value as usize]] = operation as u32;
                place[value as usize] += 1;
            }
        }
        order.truncate(length);
        order
    }
}
