//! Owns the order of future events: by time, then in the order in which they were planned.
//! Never drops an event; what is out of date is recognised by whoever receives it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events to come.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// Small, because a heap moves its entries often, and one number, because it compares them often.
    order: BinaryHeap<Reverse<u128>>,
    items: Vec<Option<T>>,
    free: Vec<u32>,
    next_number: u64,
}

/// Bits of an entry that name a place in `items`, and those above that number it: as many events can be
/// to come at once, and in all. The time stands above both.
const PLACE_BITS: u32 = 24;
const NUMBER_BITS: u32 = 40;

impl<T> Queue<T> {
    /// Nothing to come.
    pub(super) fn new() -> Self {
        Self {
            order: BinaryHeap::new(),
            items: Vec::new(),
            free: Vec::new(),
            next_number: 0,
        }
    }

    /// Plans an event.
    ///
    /// # Panics
    /// If there are more to come, or were in all, than an entry has room for.
    pub(super) fn push(&mut self, time_ns: u64, item: T) {
        let place = match self.free.pop() {
            Some(place) => {
                self.items[place as usize] = Some(item);
                place
            }
            None => {
                self.items.push(Some(item));
                (self.items.len() - 1) as u32
            }
        };
        assert!(
            place >> PLACE_BITS == 0 && self.next_number >> NUMBER_BITS == 0,
            "there are more events than can be told apart"
        );
        let within = self.next_number << PLACE_BITS | u64::from(place);
        let entry = u128::from(time_ns) << u64::BITS | u128::from(within);
        self.order.push(Reverse(entry));
        self.next_number += 1;
    }

    /// When the next event is due.
    pub(super) fn next_time_ns(&self) -> Option<u64> {
        self.order.peek().map(|Reverse(entry)| time_ns_of(*entry))
    }

    /// Takes the next event.
    pub(super) fn pop(&mut self) -> Option<(u64, T)> {
        let Reverse(entry) = self.order.pop()?;
        let place = entry as u32 & ((1 << PLACE_BITS) - 1);
        let item = self.items[place as usize].take()?;
        self.free.push(place);
        Some((time_ns_of(entry), item))
    }
}

fn time_ns_of(entry: u128) -> u64 {
    (entry >> u64::BITS) as u64
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn events_come_by_time_and_then_as_planned() {
        let mut queue = Queue::new();
        for (time_ns, item) in [(5, 'a'), (3, 'b'), (5, 'c'), (3, 'd')] {
            queue.push(time_ns, item);
        }
        assert_eq!(queue.next_time_ns(), Some(3));
        assert_eq!(queue.pop(), Some((3, 'b')));
        queue.push(4, 'e');
        let rest: Vec<_> = std::iter::from_fn(|| queue.pop()).collect();
        assert_eq!(rest, [(3, 'd'), (4, 'e'), (5, 'a'), (5, 'c')]);
        assert_eq!(queue.next_time_ns(), None);
    }
}
