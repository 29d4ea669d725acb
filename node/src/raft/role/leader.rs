//! Owns the state of a leader: what it knows of the voters, check-quorum, and its announcements.
//! Never counts anything that is not durable, its own log included.

use std::collections::{BTreeMap, BTreeSet};

use super::RoleState;
use crate::batch::Batch;
use crate::control_record::ControlRecord;
use crate::ids::{Epoch, NodeId, Offset, ReplicaKey};
use crate::message::{BeginQuorumEpochRequest, FetchRequest, Request};
use crate::mutants::Bug;
use crate::raft::high_watermark::{self, EpochStartRule};
use crate::raft::log_view::Comparison;
use crate::raft::peers::Asked;
use crate::raft::proposals::Held;
use crate::raft::read_index::ReadIndex;
use crate::raft::timers::{NEVER_NS, after, is_due};
use crate::raft::{Effect, QuorumState, Refusal, Replica, Ticket};

/// Leads its epoch.
#[derive(Debug)]
pub(crate) struct Leader {
    epoch_start: Offset,
    /// All voters but itself.
    voters: BTreeMap<NodeId, Progress>,
    /// Who fetched since check-quorum was last satisfied.
    fetched: BTreeSet<NodeId>,
    check_quorum_deadline_ns: u64,
    begin_quorum_epoch_deadline_ns: u64,
    pub(crate) parked: Vec<Parked>,
    pub(crate) reads: ReadIndex,
    /// Proposals that wait until the high watermark is known in this epoch.
    pub(crate) held: Vec<Held>,
}

/// What a leader knows of another voter.
#[derive(Debug, Clone, Copy, Default)]
pub(crate) struct Progress {
    /// Everything below is durable there.
    pub(crate) end_offset: Option<Offset>,
    pub(crate) last_fetch_ns: Option<u64>,
    pub(crate) last_caught_up_ns: Option<u64>,
    leader_end_at_last_fetch: Offset,
}

/// A fetch that waits for something to return.
#[derive(Debug)]
pub(crate) struct Parked {
    pub(crate) ticket: Ticket,
    pub(crate) request: FetchRequest,
    pub(crate) deadline_ns: u64,
}

impl Leader {
    pub(crate) fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    pub(crate) fn progress_of(&self, voter: NodeId) -> Option<&Progress> {
        self.voters.get(&voter)
    }

    /// The other voters, the longest log first.
    pub(crate) fn preferred_successors(&self) -> Vec<ReplicaKey> {
        let mut successors: Vec<NodeId> = self.voters.keys().copied().collect();
        successors.sort_by_key(|voter| std::cmp::Reverse(self.voters[voter].end_offset));
        successors.into_iter().map(ReplicaKey::from).collect()
    }

    pub(crate) fn next_deadline_ns(&self, voter_count: usize) -> u64 {
        let parked = self.parked.iter().map(|parked| parked.deadline_ns).min();
        let announcing = if voter_count > 1 {
            self.check_quorum_deadline_ns
                .min(self.begin_quorum_epoch_deadline_ns)
        } else {
            NEVER_NS
        };
        announcing.min(parked.unwrap_or(NEVER_NS))
    }
}

impl Replica {
    pub(in crate::raft) fn become_leader(&mut self, granting_voters: Vec<NodeId>) {
        let id = self.id();
        let others = self
            .voter_history
            .latest()
            .ids()
            .filter(|&voter| voter != id);
        let check_quorum_ns = self.check_quorum_ns();
        let leader = Leader {
            epoch_start: self.log.end(),
            voters: others.map(|voter| (voter, Progress::default())).collect(),
            fetched: BTreeSet::new(),
            check_quorum_deadline_ns: after(self.now_ns, check_quorum_ns),
            begin_quorum_epoch_deadline_ns: self.now_ns,
            parked: Vec::new(),
            reads: ReadIndex::default(),
            held: Vec::new(),
        };
        let epoch = self.epoch();
        let quorum_state = QuorumState {
            epoch,
            leader: Some(id),
            voted_for: None,
        };
        self.transition(
            RoleState::Leader(Box::new(leader)),
            quorum_state,
            "election won",
        );
        self.append_leader_change(epoch, granting_voters);
    }

    /// How long this leader goes without fetches from a majority.
    fn check_quorum_ns(&self) -> u64 {
        if self.configuration.has(Bug::NoCheckQuorum) {
            return NEVER_NS;
        }
        self.configuration.timers.check_quorum_ns()
    }

    fn append_leader_change(&mut self, epoch: Epoch, granting_voters: Vec<NodeId>) {
        let record = ControlRecord::LeaderChange {
            leader: self.id(),
            voters: self.voter_history.latest().ids().collect(),
            granting_voters,
        };
        let record = record.encode();
        self.append(Batch::build(self.log.end(), epoch, 0, true, &[record]));
    }

    /// Answers everyone who waited for this leader, in the epoch and role that followed.
    pub(in crate::raft) fn leave_leadership(&mut self, mut leader: Leader) {
        let reason = if self.shutting_down {
            Refusal::ShuttingDown
        } else {
            Refusal::NotLeader
        };
        self.refuse(leader.held.into_iter().map(|held| held.ticket), reason);
        self.refuse(leader.reads.take_all(), reason);
        self.effect(Effect::LeadershipLost);
        for parked in leader.parked {
            if self.configuration.has(Bug::ParkedFetchNotRevalidated) {
                self.reply_fetch(parked.ticket, &parked.request, Comparison::Agrees);
                continue;
            }
            let error = self.fetch_error(&parked.request);
            self.reply_fetch_error(parked.ticket, error);
        }
    }

    pub(in crate::raft) fn run_leader_timers(&mut self) -> bool {
        let alone = self.voter_history.latest().len() == 1;
        let Some(leader) = self.as_leader() else {
            return false;
        };
        // KAFKA-15489, KAFKA-16144: without a majority that fetches, another leader may exist.
        if !alone && is_due(leader.check_quorum_deadline_ns, self.now_ns) {
            self.resign("check quorum");
            return true;
        }
        self.answer_parked();
        false
    }

    /// Announces itself to voters that do not fetch (KAFKA-16536, KAFKA-16926).
    pub(in crate::raft) fn send_begin_quorum_epoch(&mut self) {
        let period_ns = self.configuration.timers.begin_quorum_epoch_ns();
        let once = self.configuration.has(Bug::BeginQuorumOnce);
        let now_ns = self.now_ns;
        let Some(leader) = self.as_leader_mut() else {
            return;
        };
        if !is_due(leader.begin_quorum_epoch_deadline_ns, now_ns) {
            return;
        }
        let pause_ns = if once { NEVER_NS } else { period_ns };
        leader.begin_quorum_epoch_deadline_ns = after(now_ns, pause_ns);
        let is_silent = |progress: &Progress| {
            progress
                .last_fetch_ns
                .is_none_or(|last| now_ns.saturating_sub(last) >= period_ns)
        };
        let silent = leader
            .voters
            .iter()
            .filter(|(_, progress)| is_silent(progress));
        for peer in silent.map(|(&voter, _)| voter).collect::<Vec<_>>() {
            if self.peers.is_ready(peer) {
                let request = Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
                    cluster_id: self.configuration.cluster_id.clone(),
                    voter: peer.into(),
                    leader_id: self.id(),
                    leader_epoch: self.epoch(),
                    leader_endpoint: None,
                });
                self.send(peer, Asked::BeginQuorumEpoch, request);
            }
        }
    }

    /// Takes note of a valid fetch of another voter. A replica that is no voter moves nothing.
    pub(in crate::raft) fn note_fetch(&mut self, request: &FetchRequest) {
        let (now_ns, log_end) = (self.now_ns, self.log.end());
        let Some(leader) = self.as_leader_mut() else {
            return;
        };
        let Some(progress) = leader.voters.get_mut(&request.replica.id) else {
            return;
        };
        if request.fetch_offset >= log_end {
            progress.last_caught_up_ns = Some(now_ns);
        } else if request.fetch_offset >= progress.leader_end_at_last_fetch
            && progress.last_fetch_ns.is_some()
        {
            progress.last_caught_up_ns = progress.last_fetch_ns;
        }
        // It may go down: the voter may have lost its disk (KAFKA-12181).
        progress.end_offset = Some(request.fetch_offset);
        progress.last_fetch_ns = Some(now_ns);
        progress.leader_end_at_last_fetch = log_end;
        leader
            .reads
            .note_echo(request.replica.id, request.read_round);
        self.count_for_check_quorum(request.replica.id);
        self.advance_high_watermark();
        self.serve_confirmed_reads();
    }

    /// Takes note that a voter took something from this leader. Nothing follows for what it holds.
    pub(in crate::raft) fn count_for_check_quorum(&mut self, voter: NodeId) {
        let now_ns = self.now_ns;
        let check_quorum_ns = self.check_quorum_ns();
        // Fetches that make a majority together with the leader itself.
        let needed = self.voter_history.latest().len() / 2;
        let Some(leader) = self.as_leader_mut() else {
            return;
        };
        if !leader.voters.contains_key(&voter) {
            return;
        }
        leader.fetched.insert(voter);
        if leader.fetched.len() >= needed {
            leader.fetched.clear();
            leader.check_quorum_deadline_ns = after(now_ns, check_quorum_ns);
        }
    }

    /// Moves the high watermark if what the voters hold durably allows it (KAFKA-12619).
    pub(in crate::raft) fn advance_high_watermark(&mut self) {
        let Some(leader) = self.as_leader() else {
            return;
        };
        let durable_end = |voter: NodeId| match leader.voters.get(&voter) {
            Some(progress) => progress.end_offset,
            None if self.configuration.has(Bug::LeaderCountsUnflushed) => Some(self.log.end()),
            None => Some(self.log.flushed()),
        };
        let rule = match self.configuration.bug {
            Some(Bug::HighWatermarkEpochStartOffByOne) => EpochStartRule::OffByOne,
            Some(Bug::HighWatermarkAnyEpoch) => EpochStartRule::Ignored,
            _ => EpochStartRule::Required,
        };
        let ends = self.voter_history.latest().ids().map(durable_end).collect();
        let known = self.high_watermark;
        let Some(next) = high_watermark::advance(ends, leader.epoch_start, known, rule) else {
            return;
        };
        // Only a seeded bug gets here with less than this incarnation has already exposed, or with
        // an empty log.
        if next < self.committed || next <= self.log.start() {
            return;
        }
        self.set_high_watermark(next);
        if known.is_none() {
            self.append_held();
        }
        self.serve_confirmed_reads();
    }
}
