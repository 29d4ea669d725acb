//! Owns when commands enter the log: together, where that is faster for all of them.
//! Never keeps one for longer than a moment, and never looks into it.
//!
//! Followers fetch one batch at a time. A command that enters the log while a batch is under way waits
//! for the next one anyway, and if the next one leaves at once, those whose commands were just committed
//! have no chance to be in it: half of the clients always wait for the other half. So commands wait until
//! the batch under way is committed and those who were in it have had a moment to come back. Where they
//! do not come back, the gate soon stops waiting for them (compare `quorum.append.linger.ms` of Kafka).

use std::collections::HashSet;
use std::time::{Duration, Instant};

use crate::node_loop::Arrival;
use crate::raft::Ticket;

use super::admission::Seat;

/// How long a command waits at most.
const PATIENCE: Duration = Duration::from_millis(1);

/// How many batches leave without waiting after the longest series of waits in vain.
const MOST_SKIPPED: u32 = 64;

/// Commands on their way into the log.
#[derive(Debug, Default)]
pub(super) struct Gate {
    waiting: Vec<(Arrival, Seat)>,
    /// When the first of them came.
    since: Option<Instant>,
    /// Let in, and not answered yet.
    under_way: HashSet<Ticket>,
    /// Answered since the gate was open last.
    answered_count: usize,
    /// When the last of those was.
    answered_at: Option<Instant>,
    /// Came since the first of those was answered.
    returned_count: usize,
    /// How many batches will leave without waiting for anybody.
    skipped: u32,
    /// How many do so after the latest wait in vain.
    to_skip: u32,
}

impl Gate {
    /// A command has come.
    pub(super) fn add(&mut self, command: Arrival, seat: Seat, now: Instant) {
        self.since.get_or_insert(now);
        self.returned_count += 1;
        self.waiting.push((command, seat));
    }

    /// A client was answered, whatever it asked.
    pub(super) fn answered(&mut self, ticket: Ticket, now: Instant) {
        if !self.under_way.remove(&ticket) {
            return;
        }
        if self.answered_count == 0 {
            self.returned_count = 0;
        }
        self.answered_count += 1;
        self.answered_at = Some(now);
    }

    /// How many commands were let in and are not answered yet.
    pub(super) fn under_way_count(&self) -> usize {
        self.under_way.len()
    }

    /// How long the first command may still wait; `None` if there is none.
    pub(super) fn patience(&self, now: Instant) -> Option<Duration> {
        let since = self.since?;
        Some((since + PATIENCE).saturating_duration_since(now))
    }

    /// Whether nobody is missing who could be here soon.
    fn all_are_here(&self, now: Instant) -> bool {
        let are_gone = self
            .answered_at
            .is_none_or(|at| now.saturating_duration_since(at) > PATIENCE);
        self.under_way.is_empty() && (are_gone || self.returned_count >= self.answered_count)
    }

    /// The commands that enter the log now.
    pub(super) fn open(&mut self, now: Instant) -> Vec<Arrival> {
        let Some(patience) = self.patience(now) else {
            return Vec::new();
        };
        if self.all_are_here(now) {
            self.to_skip = 0;
        } else if self.skipped > 0 {
            self.skipped -= 1;
        } else if patience.is_zero() {
            self.to_skip = (self.to_skip * 2).clamp(1, MOST_SKIPPED);
            self.skipped = self.to_skip;
        } else {
            return Vec::new();
        }
        self.answered_count = 0;
        self.returned_count = 0;
        self.since = None;
        let waiting = self.waiting.drain(..).map(|(command, _)| command);
        let commands: Vec<Arrival> = waiting.collect();
        self.under_way.extend(commands.iter().filter_map(ticket_of));
        commands
    }
}

fn ticket_of(command: &Arrival) -> Option<Ticket> {
    match command {
        Arrival::Client { ticket, .. } => Some(*ticket),
        _ => None,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::client::ClientRequest;
    use crate::server::admission::{Admission, Room};

    const MS: Duration = Duration::from_millis(1);
    const SOON: Duration = Duration::from_micros(100);

    /// A gate, its clock, and the number of the last command.
    struct Bench {
        gate: Gate,
        now: Instant,
        last: u64,
        admission: Admission,
    }

    impl Bench {
        fn new() -> Self {
            Self {
                gate: Gate::default(),
                now: Instant::now(),
                last: 0,
                admission: Admission::new(Room {
                    seat_count: 10_000,
                    bytes: 0,
                }),
            }
        }

        fn come(&mut self, count: usize) {
            for _ in 0..count {
                self.last += 1;
                let ticket = Ticket(self.last);
                let request = ClientRequest::Transaction {
                    stamp: None,
                    operations: Vec::new(),
                };
                let seat = self.admission.admit(0).unwrap();
                let request = Box::new(request);
                let command = Arrival::Client { ticket, request };
                self.gate.add(command, seat, self.now);
            }
        }

        fn open(&mut self) -> Vec<Ticket> {
            self.gate
                .open(self.now)
                .iter()
                .filter_map(ticket_of)
                .collect()
        }

        fn answer(&mut self, tickets: &[Ticket]) {
            for ticket in tickets {
                self.gate.answered(*ticket, self.now);
            }
        }
    }

    #[test]
    fn a_single_client_never_waits() {
        let mut bench = Bench::new();
        for _ in 0..10 {
            bench.come(1);
            let entered = bench.open();
            assert_eq!(entered.len(), 1);
            bench.now += SOON;
            bench.answer(&entered);
            bench.now += SOON;
        }
        assert_eq!(bench.gate.patience(bench.now), None);
    }

    #[test]
    fn clients_that_come_back_at_once_end_up_in_one_batch() {
        let mut bench = Bench::new();
        bench.come(1);
        let first = bench.open();
        bench.come(7);
        assert!(bench.open().is_empty(), "a batch is under way");
        bench.now += SOON;
        bench.answer(&first);
        assert!(bench.open().is_empty(), "one may still come back");
        bench.come(1);
        for _ in 0..5 {
            let entered = bench.open();
            assert_eq!(entered.len(), 8);
            bench.now += SOON;
            bench.answer(&entered);
            bench.come(7);
            assert!(bench.open().is_empty());
            bench.come(1);
        }
    }

    #[test]
    fn nobody_waits_longer_than_a_moment() {
        let mut bench = Bench::new();
        bench.come(3);
        assert_eq!(bench.open().len(), 3, "never answered");
        bench.come(2);
        bench.now += MS / 2;
        assert!(bench.open().is_empty());
        assert_eq!(bench.gate.patience(bench.now), Some(MS / 2));
        bench.come(1);
        bench.now += MS / 2;
        assert_eq!(bench.open().len(), 3);
    }

    #[test]
    fn waits_in_vain_become_rare_and_end_when_clients_come_back() {
        let mut bench = Bench::new();
        let mut waited_count = 0;
        for _ in 0..200 {
            bench.come(1);
            if bench.open().is_empty() {
                waited_count += 1;
                bench.now += MS;
                assert_eq!(bench.open().len(), 1);
            }
        }
        assert!((2..12).contains(&waited_count), "{waited_count}");
        let all: Vec<Ticket> = (1..=bench.last).map(Ticket).collect();
        bench.answer(&all);
        bench.now += MS * 5;
        bench.come(1);
        assert_eq!(bench.open().len(), 1, "those who were answered are gone");
        assert_eq!(bench.gate.to_skip, 0);
    }

    #[test]
    fn answers_to_others_do_not_count() {
        let mut bench = Bench::new();
        bench.come(1);
        let entered = bench.open();
        bench.answer(&[Ticket(77)]);
        bench.come(1);
        assert!(bench.open().is_empty());
        bench.answer(&entered);
        bench.answer(&entered);
        bench.come(1);
        assert_eq!(bench.open().len(), 2);
    }
}
