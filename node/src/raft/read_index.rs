//! Owns the rounds by which a leader proves that it still led after a read arrived.
//! Never answers from time: only a round trip to a majority within the epoch counts.
//!
//! Each batch of reads takes a new round number. Followers learn the newest round from fetch
//! responses and echo it in their next fetch. An echo of round `r` or later proves that its sender
//! followed this leader at a moment after every read of round `r` had arrived.

use std::collections::BTreeMap;

use super::Ticket;
use crate::ids::ReplicaKey;
use crate::voters::VoterSet;

/// Reads waiting for their round, and how far each replica has echoed.
#[derive(Debug, Clone, Default, Hash)]
pub(crate) struct ReadIndex {
    newest_round: u64,
    /// By round, ascending.
    waiting: Vec<(u64, Vec<Ticket>)>,
    echoed: BTreeMap<ReplicaKey, u64>,
}

impl ReadIndex {
    /// The newest round; 0 before the first.
    pub(crate) fn newest_round(&self) -> u64 {
        self.newest_round
    }

    /// Takes a new round for reads that just arrived.
    pub(crate) fn register(&mut self, tickets: Vec<Ticket>) {
        self.newest_round += 1;
        self.waiting.push((self.newest_round, tickets));
    }

    /// Notes what a replica echoed. A round that was never given out proves nothing.
    pub(crate) fn note_echo(&mut self, replica: ReplicaKey, round: u64) {
        if round <= self.newest_round {
            let echoed = self.echoed.entry(replica).or_default();
            *echoed = round.max(*echoed);
        }
    }

    /// Takes the reads whose round a majority of `voters` has echoed; the leader echoes itself, which
    /// counts if it is a voter.
    pub(crate) fn take_confirmed(&mut self, voters: &VoterSet, leader: &ReplicaKey) -> Vec<Ticket> {
        if self.waiting.is_empty() {
            return Vec::new();
        }
        let echo_of = |voter: &ReplicaKey| {
            if voter.accepts(leader) {
                self.newest_round
            } else {
                self.echoed.get(voter).copied().unwrap_or(0)
            }
        };
        let mut echoes: Vec<u64> = voters.iter().map(|voter| echo_of(&voter.key)).collect();
        echoes.sort_unstable_by(|left, right| right.cmp(left));
        let confirmed = echoes.get(echoes.len() / 2).copied().unwrap_or(0);
        let still_waiting = self
            .waiting
            .partition_point(|(round, _)| *round <= confirmed);
        self.waiting
            .drain(..still_waiting)
            .flat_map(|(_, tickets)| tickets)
            .collect()
    }

    /// Takes all reads: leadership is over.
    pub(crate) fn take_all(&mut self) -> Vec<Ticket> {
        self.waiting
            .drain(..)
            .flat_map(|(_, tickets)| tickets)
            .collect()
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::NodeId;

    fn voters(count: i32) -> VoterSet {
        (1..=count).map(NodeId).collect()
    }

    fn confirmed(reads: &mut ReadIndex, voter_count: i32) -> Vec<u64> {
        let tickets = reads.take_confirmed(&voters(voter_count), &NodeId(1).into());
        tickets.into_iter().map(|ticket| ticket.0).collect()
    }

    #[test]
    fn a_majority_must_echo_the_round() {
        let mut reads = ReadIndex::default();
        reads.register(vec![Ticket(1), Ticket(2)]);
        assert!(confirmed(&mut reads, 5).is_empty());
        reads.note_echo(NodeId(2).into(), 1);
        reads.note_echo(NodeId(2).into(), 1);
        assert!(confirmed(&mut reads, 5).is_empty());
        reads.note_echo(NodeId(4).into(), 1);
        assert_eq!(confirmed(&mut reads, 5), [1, 2]);
        assert!(confirmed(&mut reads, 5).is_empty());
    }

    #[test]
    fn echoes_from_before_a_read_arrived_do_not_count_for_it() {
        let mut reads = ReadIndex::default();
        reads.register(vec![Ticket(1)]);
        reads.note_echo(NodeId(2).into(), 1);
        reads.register(vec![Ticket(2)]);
        assert_eq!(confirmed(&mut reads, 3), [1]);
        reads.note_echo(NodeId(3).into(), 1);
        assert!(confirmed(&mut reads, 3).is_empty());
        reads.note_echo(NodeId(3).into(), 2);
        assert_eq!(confirmed(&mut reads, 3), [2]);
    }

    #[test]
    fn a_newer_echo_confirms_all_older_rounds() {
        let mut reads = ReadIndex::default();
        reads.register(vec![Ticket(1)]);
        reads.register(vec![Ticket(2)]);
        reads.note_echo(NodeId(3).into(), 2);
        reads.note_echo(NodeId(3).into(), 1);
        assert_eq!(confirmed(&mut reads, 3), [1, 2]);
    }

    #[test]
    fn a_round_that_was_never_given_out_proves_nothing() {
        let mut reads = ReadIndex::default();
        reads.note_echo(NodeId(2).into(), 7);
        reads.register(vec![Ticket(1)]);
        assert!(confirmed(&mut reads, 3).is_empty());
    }

    /// A leader whose removal is under way leads on without counting (KAFKA-16530).
    #[test]
    fn a_leader_that_is_no_voter_proves_nothing_by_itself() {
        let mut reads = ReadIndex::default();
        reads.register(vec![Ticket(1)]);
        let voters: VoterSet = [NodeId(2), NodeId(3)].into_iter().collect();
        reads.note_echo(NodeId(2).into(), 1);
        assert!(reads.take_confirmed(&voters, &NodeId(1).into()).is_empty());
        reads.note_echo(NodeId(3).into(), 1);
        assert_eq!(
            reads.take_confirmed(&voters, &NodeId(1).into()),
            [Ticket(1)]
        );
    }

    #[test]
    fn a_single_voter_confirms_at_once() {
        let mut reads = ReadIndex::default();
        reads.register(vec![Ticket(1)]);
        assert_eq!(confirmed(&mut reads, 1), [1]);
    }
}
