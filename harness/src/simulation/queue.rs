//! Owns the order of future events: by time, then in the order in which they were planned.
//! Never drops an event; what is out of date is recognised by whoever receives it.

use std::cmp::Reverse;
use std::collections::BinaryHeap;

/// Events to come.
#[derive(Debug)]
pub(super) struct Queue<T> {
    /// Time, number and place in `items`; small, because a heap moves its entries often.
    order: BinaryHeap<Reverse<(u64, u64, u32)>>,
    items: Vec<Option<T>>,
    free: Vec<u32>,
    next_number: u64,
}

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
    pub(super) fn push(&mut self, time_ns: u64, item: T) {
        let place = self.free.pop().unwrap_or_else(|| {
            self.items.push(None);
            (self.items.len() - 1) as u32
        });
        self.items[place as usize] = Some(item);
        self.order.push(Reverse((time_ns, self.next_number, place)));
        self.next_number += 1;
    }

    /// When the next event is due.
    pub(super) fn next_time_ns(&self) -> Option<u64> {
        self.order.peek().map(|Reverse((time_ns, _, _))| *time_ns)
    }

    /// Takes the next event.
    pub(super) fn pop(&mut self) -> Option<(u64, T)> {
        let Reverse((time_ns, _, place)) = self.order.pop()?;
        let item = self.items[place as usize].take()?;
        self.free.push(place);
        Some((time_ns, item))
    }
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
