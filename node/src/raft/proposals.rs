//! Owns what clients ask of a leader: appends and linearizable reads.
//! Never refuses what has entered the log: its outcome is then no longer certain.

use super::role::RoleState;
use super::{Effect, Refusal, Replica, Ticket};
use crate::batch::{Batch, HEADER_BYTES, MAX_BATCH_BYTES};
use crate::ids::Offset;
use crate::mutants::Bug;

/// How many proposals a leader holds until its high watermark is known.
const HELD_PROPOSALS_MAX: usize = 10_000;

/// A proposal that has not entered the log yet.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Held {
    pub(crate) ticket: Ticket,
    timestamp_ms: i64,
    command: Vec<u8>,
}

impl Replica {
    pub(super) fn on_propose(&mut self, timestamp_ms: i64, commands: Vec<(Ticket, Vec<u8>)>) {
        let tickets = |commands: Vec<(Ticket, Vec<u8>)>| {
            commands
                .into_iter()
                .map(|(ticket, _)| ticket)
                .collect::<Vec<_>>()
        };
        if self.shutting_down {
            return self.refuse(tickets(commands), Refusal::ShuttingDown);
        }
        let RoleState::Leader(leader) = &mut self.role else {
            return self.refuse(tickets(commands), Refusal::NotLeader);
        };
        if self.high_watermark.is_some() {
            return self.append_commands(timestamp_ms, commands);
        }
        // Until its first record is committed, a leader does not know what is committed before it
        // (KAFKA-15345), so commands must wait. What waits is refused if leadership ends first.
        let room = HELD_PROPOSALS_MAX.saturating_sub(leader.held.len());
        let mut commands = commands;
        let excess = commands.split_off(room.min(commands.len()));
        let hold = |(ticket, command)| Held {
            ticket,
            timestamp_ms,
            command,
        };
        leader.held.extend(commands.into_iter().map(hold));
        self.refuse(tickets(excess), Refusal::ShuttingDown);
    }

    /// Appends what waited for the high watermark to become known.
    pub(super) fn append_held(&mut self) {
        let Some(leader) = self.as_leader_mut() else {
            return;
        };
        let held = std::mem::take(&mut leader.held);
        if let Some(first) = held.first() {
            let timestamp_ms = first.timestamp_ms;
            let commands = held
                .into_iter()
                .map(|held| (held.ticket, held.command))
                .collect();
            self.append_commands(timestamp_ms, commands);
        }
    }

    /// Appends as few batches as the size limit allows.
    fn append_commands(&mut self, timestamp_ms: i64, commands: Vec<(Ticket, Vec<u8>)>) {
        let mut rest = commands;
        while !rest.is_empty() {
            let later = rest.split_off(fitting_count(&rest));
            let (tickets, payloads): (Vec<_>, Vec<_>) = rest.into_iter().unzip();
            let batch = Batch::build(self.log.end(), self.epoch(), timestamp_ms, false, &payloads);
            let base_offset = batch.base_offset();
            self.append(batch);
            for (offset, ticket) in (base_offset.0..).zip(tickets) {
                self.effect(Effect::Proposed {
                    ticket,
                    offset: Offset(offset),
                });
            }
            rest = later;
        }
        if self.configuration.has(Bug::LeaderCountsUnflushed) {
            self.advance_high_watermark();
        }
    }

    pub(super) fn on_read(&mut self, tickets: Vec<Ticket>) {
        if self.shutting_down {
            return self.refuse(tickets, Refusal::ShuttingDown);
        }
        let RoleState::Leader(leader) = &mut self.role else {
            return self.refuse(tickets, Refusal::NotLeader);
        };
        if self.configuration.has(Bug::StaleRead) {
            let read_offset = self.high_watermark.unwrap_or(self.log.start());
            return self.release_reads(tickets, read_offset);
        }
        leader.reads.register(tickets);
        // Followers learn of the new round from the answers to their waiting fetches.
        self.serve_confirmed_reads();
    }

    /// Releases reads whose round trip is complete, once it is known what is committed.
    pub(super) fn serve_confirmed_reads(&mut self) {
        let key = self.configuration.key();
        let early = self
            .configuration
            .has(Bug::ReadBeforeEpochCommit)
            .then_some(self.committed);
        let known = self.high_watermark.or(early);
        let (RoleState::Leader(leader), Some(read_offset)) = (&mut self.role, known) else {
            return;
        };
        let voters = self.voter_history.latest();
        let confirmed = leader.reads.take_confirmed(voters, &key);
        self.release_reads(confirmed, read_offset);
    }

    fn release_reads(&mut self, tickets: Vec<Ticket>, read_offset: Offset) {
        for ticket in tickets {
            self.effect(Effect::ReadReady {
                ticket,
                read_offset,
            });
        }
    }
}

/// How many of the commands fit into one batch; at least one.
fn fitting_count(commands: &[(Ticket, Vec<u8>)]) -> usize {
    let mut length = HEADER_BYTES;
    let fits = |(_, command): &&(Ticket, Vec<u8>)| {
        length += 4 + command.len();
        length <= MAX_BATCH_BYTES
    };
    commands.iter().take_while(fits).count().max(1)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_batch_takes_as_many_commands_as_fit() {
        let commands = |count: usize, bytes: usize| {
            (0..count)
                .map(|at| (Ticket(at as u64), vec![0; bytes]))
                .collect::<Vec<_>>()
        };
        assert_eq!(fitting_count(&commands(3, 10)), 3);
        assert_eq!(fitting_count(&commands(9, 1024 * 1024)), 7);
        assert_eq!(
            fitting_count(&commands(2, MAX_BATCH_BYTES - HEADER_BYTES - 4)),
            1
        );
    }
}
