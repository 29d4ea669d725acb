//! Owns how many clients may wait at once, so that a node under too much load says so at once.
//! Never turns away a peer: the protocol must go on whatever clients do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// The seats for clients that wait.
#[derive(Debug)]
pub(crate) struct Admission {
    taken: Arc<AtomicUsize>,
    seat_count: usize,
}

/// A seat. It is free again once every clone of this is dropped: both the client, who waits for an
/// answer, and the loop, which has yet to look at the request, hold one. So neither a loop that
/// hangs nor clients that give up can make the mailbox grow.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    /// Held, not read: dropping it counts.
    _taken: Arc<Taken>,
}

#[derive(Debug)]
struct Taken(Arc<AtomicUsize>);

impl Drop for Taken {
    fn drop(&mut self) {
        self.0.fetch_sub(1, Ordering::Relaxed);
    }
}

impl Admission {
    pub(crate) fn new(seat_count: usize) -> Self {
        Self {
            taken: Arc::default(),
            seat_count,
        }
    }

    /// A seat, unless all are taken.
    pub(crate) fn admit(&self) -> Option<Seat> {
        // Counted in any case and taken back by dropping, so two who come at once cannot both get
        // the last one.
        let others = self.taken.fetch_add(1, Ordering::Relaxed);
        let seat = Seat {
            _taken: Arc::new(Taken(Arc::clone(&self.taken))),
        };
        (others < self.seat_count).then_some(seat)
    }

    /// How many seats are taken.
    #[cfg(test)]
    pub(crate) fn taken_count(&self) -> usize {
        self.taken.load(Ordering::Relaxed)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_seat_is_free_once_nobody_holds_it() {
        let admission = Admission::new(2);
        let (first, second) = (admission.admit().unwrap(), admission.admit().unwrap());
        assert!(admission.admit().is_none());
        let copy = first.clone();
        drop(first);
        assert!(admission.admit().is_none(), "the copy still counts");
        drop(copy);
        let third = admission.admit().unwrap();
        assert!(admission.admit().is_none());
        drop((second, third));
        assert_eq!(admission.taken_count(), 0);
    }
}
