//! Owns who waits for which answer: tickets, and the requests of connections that they stand for.
//! Never keeps a ticket whose connection is gone; its answer is dropped when it comes.

use std::collections::BTreeMap;
use std::sync::atomic::{AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};

use tokio::sync::oneshot;

use crate::raft::Ticket;

/// Hands out tickets. Shared by all [`Pending`] of a node: a ticket names one waiter, whatever the
/// kind of its answer.
#[derive(Debug, Default)]
pub(crate) struct Tickets(AtomicU64);

impl Tickets {
    fn next(&self) -> Ticket {
        Ticket(self.0.fetch_add(1, Ordering::Relaxed))
    }
}

type Waiters<T> = Arc<Mutex<BTreeMap<Ticket, oneshot::Sender<T>>>>;

/// Those who wait for an answer of type `T`.
#[derive(Debug)]
pub(crate) struct Pending<T> {
    tickets: Arc<Tickets>,
    waiters: Waiters<T>,
}

impl<T> Clone for Pending<T> {
    fn clone(&self) -> Self {
        Self {
            tickets: Arc::clone(&self.tickets),
            waiters: Arc::clone(&self.waiters),
        }
    }
}

impl<T> Pending<T> {
    pub(crate) fn new(tickets: Arc<Tickets>) -> Self {
        Self {
            tickets,
            waiters: Waiters::default(),
        }
    }

    /// Starts to wait. Dropping what is returned gives the ticket up.
    pub(crate) fn wait(&self) -> Waiting<T> {
        let (sender, receiver) = oneshot::channel();
        let ticket = self.tickets.next();
        lock(&self.waiters).insert(ticket, sender);
        Waiting {
            ticket,
            receiver,
            waiters: Arc::clone(&self.waiters),
        }
    }

    /// Gives the answer to whoever waits for it, if anyone still does.
    pub(crate) fn answer(&self, ticket: Ticket, answer: T) {
        let waiter = lock(&self.waiters).remove(&ticket);
        if let Some(waiter) = waiter {
            // Fails only when the waiter left at this very moment.
            let _ = waiter.send(answer);
        }
    }

    /// Lets all who wait know that no answer will come.
    pub(crate) fn abandon(&self) {
        lock(&self.waiters).clear();
    }

    /// How many wait.
    #[cfg(test)]
    pub(crate) fn len(&self) -> usize {
        lock(&self.waiters).len()
    }
}

/// A place in the queue of those who wait.
#[derive(Debug)]
pub(crate) struct Waiting<T> {
    ticket: Ticket,
    receiver: oneshot::Receiver<T>,
    waiters: Waiters<T>,
}

impl<T> Waiting<T> {
    /// The ticket to ask with.
    pub(crate) fn ticket(&self) -> Ticket {
        self.ticket
    }

    /// Waits for the answer; `None` when none will come.
    pub(crate) async fn answer(&mut self) -> Option<T> {
        (&mut self.receiver).await.ok()
    }
}

impl<T> Drop for Waiting<T> {
    fn drop(&mut self) {
        lock(&self.waiters).remove(&self.ticket);
    }
}

/// A panic while the map is locked ends the process, so poisoning carries no news.
fn lock<T>(
    waiters: &Mutex<BTreeMap<Ticket, oneshot::Sender<T>>>,
) -> MutexGuard<'_, BTreeMap<Ticket, oneshot::Sender<T>>> {
    waiters.lock().unwrap_or_else(PoisonError::into_inner)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[tokio::test]
    async fn answers_reach_those_who_wait_and_no_one_else() {
        let tickets = Arc::new(Tickets::default());
        let pending = Pending::new(Arc::clone(&tickets));
        let others = Pending::<u8>::new(tickets);
        let (mut first, mut second) = (pending.wait(), pending.wait());
        let other = others.wait();
        assert_ne!(first.ticket(), second.ticket());
        assert_ne!(second.ticket(), other.ticket());
        pending.answer(second.ticket(), "two");
        pending.answer(first.ticket(), "one");
        pending.answer(first.ticket(), "again");
        pending.answer(other.ticket(), "not for others");
        assert_eq!(
            (first.answer().await, second.answer().await),
            (Some("one"), Some("two"))
        );
        assert_eq!(others.len(), 1);
    }

    #[tokio::test]
    async fn giving_up_frees_the_ticket() {
        let pending = Pending::<u8>::new(Arc::default());
        let waiting = pending.wait();
        let ticket = waiting.ticket();
        assert_eq!(pending.len(), 1);
        drop(waiting);
        assert_eq!(pending.len(), 0);
        pending.answer(ticket, 1);
        let mut abandoned = pending.wait();
        pending.abandon();
        assert_eq!(abandoned.answer().await, None);
    }
}
