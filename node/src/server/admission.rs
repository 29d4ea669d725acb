//! Owns how many clients may wait at once, and how much they may keep in memory while they do, so that a node under
//! too much load says so at once.
//! Never turns away a peer: the protocol must go on whatever clients do.

use std::sync::Arc;
use std::sync::atomic::{AtomicUsize, Ordering};

/// How much may wait.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Room {
    /// How many requests.
    pub(crate) seat_count: usize,
    /// How many bytes their bodies have together.
    pub(crate) bytes: usize,
}

/// What waits.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Occupied {
    /// How many requests.
    pub(crate) seat_count: usize,
    /// How many bytes their bodies have together.
    pub(crate) bytes: usize,
    /// How many more bytes may.
    pub(crate) free_bytes: usize,
}

/// The seats for clients that wait.
#[derive(Debug)]
pub(crate) struct Admission {
    taken: Arc<Taken>,
    room: Room,
}

#[derive(Debug, Default)]
struct Taken {
    seat_count: AtomicUsize,
    bytes: AtomicUsize,
}

/// A seat. It is free again once every clone of this is dropped: both the client, who waits for an
/// answer, and the loop, which has yet to look at the request, hold one. So neither a loop that
/// hangs nor clients that give up can make the mailbox grow.
#[derive(Debug, Clone)]
pub(crate) struct Seat {
    /// Held, not read: dropping it counts.
    _place: Arc<Place>,
}

#[derive(Debug)]
struct Place {
    taken: Arc<Taken>,
    bytes: usize,
}

impl Drop for Place {
    fn drop(&mut self) {
        self.taken.seat_count.fetch_sub(1, Ordering::Relaxed);
        self.taken.bytes.fetch_sub(self.bytes, Ordering::Relaxed);
    }
}

impl Admission {
    pub(crate) fn new(room: Room) -> Self {
        Self {
            taken: Arc::default(),
            room,
        }
    }

    /// A seat for a request with a body of so many bytes, unless all seats are taken or it is too much.
    pub(crate) fn admit(&self, bytes: usize) -> Option<Seat> {
        // Counted in any case and taken back by dropping, so two who come at once cannot both get
        // the last one.
        let other_count = self.taken.seat_count.fetch_add(1, Ordering::Relaxed);
        let other_bytes = self.taken.bytes.fetch_add(bytes, Ordering::Relaxed);
        let seat = Seat {
            _place: Arc::new(Place {
                taken: Arc::clone(&self.taken),
                bytes,
            }),
        };
        let fits = other_bytes.saturating_add(bytes) <= self.room.bytes;
        (other_count < self.room.seat_count && fits).then_some(seat)
    }

    /// What is taken.
    pub(crate) fn occupied(&self) -> Occupied {
        let bytes = self.taken.bytes.load(Ordering::Relaxed);
        Occupied {
            seat_count: self.taken.seat_count.load(Ordering::Relaxed),
            bytes,
            free_bytes: self.room.bytes.saturating_sub(bytes),
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const ROOM: Room = Room {
        seat_count: 2,
        bytes: 100,
    };

    #[test]
    fn a_seat_is_free_once_nobody_holds_it() {
        let admission = Admission::new(ROOM);
        let (first, second) = (admission.admit(0).unwrap(), admission.admit(0).unwrap());
        assert!(admission.admit(0).is_none());
        let copy = first.clone();
        drop(first);
        assert!(admission.admit(0).is_none(), "the copy still counts");
        drop(copy);
        let third = admission.admit(0).unwrap();
        assert!(admission.admit(0).is_none());
        drop((second, third));
        assert_eq!(admission.occupied().seat_count, 0);
    }

    #[test]
    fn large_requests_are_too_much_before_all_seats_are_taken() {
        let admission = Admission::new(ROOM);
        let first = admission.admit(60).unwrap();
        assert!(admission.admit(41).is_none());
        assert_eq!(
            admission.occupied().bytes,
            60,
            "a refused one keeps nothing"
        );
        let second = admission.admit(40).unwrap();
        drop(first);
        let occupied = Occupied {
            seat_count: 1,
            bytes: 40,
            free_bytes: 60,
        };
        assert_eq!(admission.occupied(), occupied);
        drop(second);
        assert!(admission.admit(usize::MAX).is_none());
        assert_eq!(admission.occupied().bytes, 0);
    }
}
