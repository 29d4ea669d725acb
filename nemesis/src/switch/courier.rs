//! Owns the list of links on which packets wait for their time.
//! Never sees a packet.

use std::collections::BTreeSet;
use std::sync::{Condvar, Mutex, PoisonError};
use std::time::{Duration, Instant};

/// How long to wait when nothing is due.
const LOOK: Duration = Duration::from_millis(500);

/// When to look at which link.
#[derive(Debug, Default)]
pub(super) struct Courier {
    orders: Mutex<Orders>,
    news: Condvar,
}

#[derive(Debug, Default)]
struct Orders {
    /// Times in nanoseconds, with numbers of links.
    due: BTreeSet<(u64, usize)>,
    stopped: bool,
}

impl Courier {
    /// A packet on a link is due at `due_ns`.
    pub(super) fn order(&self, due_ns: u64, link: usize) {
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        let is_first = orders
            .due
            .first()
            .is_none_or(|(first_ns, _)| due_ns < *first_ns);
        if orders.due.insert((due_ns, link)) && is_first {
            self.news.notify_one();
        }
    }

    /// Lets [`Self::next`] return.
    pub(super) fn stop(&self) {
        self.orders
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .stopped = true;
        self.news.notify_all();
    }

    /// Waits until something is due, and returns on which links; on none, if that takes long. `None` when
    /// it was stopped. Times count from `origin`.
    pub(super) fn next(&self, origin: Instant) -> Option<BTreeSet<usize>> {
        let give_up = Instant::now() + LOOK;
        let mut orders = self.orders.lock().unwrap_or_else(PoisonError::into_inner);
        loop {
            if orders.stopped {
                return None;
            }
            let now = Instant::now();
            let now_ns = now.duration_since(origin).as_nanos() as u64;
            let later = orders.due.split_off(&(now_ns + 1, 0));
            let due = std::mem::replace(&mut orders.due, later);
            if !due.is_empty() || now >= give_up {
                return Some(due.into_iter().map(|(_, link)| link).collect());
            }
            let first = orders.due.first();
            let first = first.map(|(due_ns, _)| Duration::from_nanos(due_ns - now_ns));
            let patience = give_up - now;
            let patience = first.map_or(patience, |first| patience.min(first));
            let waited = self.news.wait_timeout(orders, patience);
            orders = waited.unwrap_or_else(PoisonError::into_inner).0;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn links_come_when_they_are_due_and_once() {
        let (courier, origin) = (Courier::default(), Instant::now());
        courier.order(20_000_000, 4);
        courier.order(0, 7);
        courier.order(0, 7);
        assert_eq!(courier.next(origin), Some([7].into()));
        assert_eq!(courier.next(origin), Some([4].into()));
        assert!(origin.elapsed() >= Duration::from_millis(20));
        assert_eq!(courier.next(origin), Some([].into()));
        courier.stop();
        assert_eq!(courier.next(origin), None);
    }
}
