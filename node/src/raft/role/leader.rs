//! Owns the state of a leader: what it knows of other replicas, check-quorum, and its announcements.
//! Never counts anything that is not durable, its own log included, or itself while it is no voter.

use std::collections::BTreeMap;

use super::RoleState;
use crate::batch::Batch;
use crate::control_record::ControlRecord;
use crate::ids::{Epoch, NodeId, Offset, ReplicaKey};
use crate::message::{BeginQuorumEpochRequest, ErrorCode, FetchRequest, Request};
use crate::mutants::Bug;
use crate::raft::high_watermark::{self, EpochStartRule};
use crate::raft::log_view::Comparison;
use crate::raft::peers::Asked;
use crate::raft::proposals::Held;
use crate::raft::read_index::ReadIndex;
use crate::raft::timers::{NEVER_NS, after, is_due};
use crate::raft::voter_changes::{Stage, VoterChange};
use crate::raft::{Correlation, Effect, QuorumState, Refusal, Replica, Ticket};
use crate::voters::{VersionRange, Voter, VoterSet};

/// How long an observer that stopped fetching is remembered (Kafka: 300 s).
const OBSERVER_SESSION_NS: u64 = 300_000_000_000;

/// How many replicas a leader takes note of, so that nobody fills its memory by fetching under ever new ids.
/// Further observers are served all the same.
const REPLICAS_NOTED_MAX: usize = 1000;

/// Leads its epoch.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Leader {
    epoch_start: Offset,
    /// Everyone else that has fetched, voter or not: a voter by its key in the voter set.
    replicas: BTreeMap<ReplicaKey, Progress>,
    /// Which voters fetched since check-quorum was last satisfied.
    fetched: Vec<ReplicaKey>,
    pub(crate) check_quorum_deadline_ns: u64,
    begin_quorum_epoch_deadline_ns: u64,
    pub(crate) parked: Vec<Parked>,
    pub(crate) reads: ReadIndex,
    /// Proposals that wait until the high watermark is known in this epoch.
    pub(crate) held: Vec<Held>,
    /// Changes of the voters under way: at most one, unless a seeded bug is on.
    pub(crate) voter_changes: Vec<VoterChange>,
    /// What configured voters say of themselves (kraft.version 0), for as long as this replica leads.
    pub(crate) reported: BTreeMap<NodeId, Voter>,
    /// Voters whose change was given up before it entered the log: the seeded bug B36.
    pub(crate) accumulated_voters: Vec<VoterSet>,
}

/// What a leader knows of another replica.
#[derive(Debug, Clone, Copy, Default, Hash)]
pub(crate) struct Progress {
    /// Everything below is durable there.
    pub(crate) end_offset: Option<Offset>,
    pub(crate) last_fetch_ns: Option<u64>,
    pub(crate) last_caught_up_ns: Option<u64>,
    leader_end_at_last_fetch: Offset,
}

impl Progress {
    fn note_fetch(&mut self, now_ns: u64, fetch_offset: Offset, log_end: Offset) {
        if fetch_offset >= log_end {
            self.last_caught_up_ns = Some(now_ns);
        } else if fetch_offset >= self.leader_end_at_last_fetch && self.last_fetch_ns.is_some() {
            self.last_caught_up_ns = self.last_fetch_ns;
        }
        // It may go down: the replica may have lost its disk (KAFKA-12181).
        self.end_offset = Some(fetch_offset);
        self.last_fetch_ns = Some(now_ns);
        self.leader_end_at_last_fetch = log_end;
    }

    /// Whether it fetched within an observer's session.
    fn is_current(&self, now_ns: u64) -> bool {
        self.last_fetch_ns
            .is_some_and(|last| now_ns.saturating_sub(last) < OBSERVER_SESSION_NS)
    }
}

/// A fetch that waits for something to return.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Parked {
    pub(crate) ticket: Ticket,
    pub(crate) request: FetchRequest,
    pub(crate) deadline_ns: u64,
}

impl Leader {
    pub(crate) fn epoch_start(&self) -> Offset {
        self.epoch_start
    }

    pub(crate) fn progress_of(&self, replica: &ReplicaKey) -> Option<&Progress> {
        self.replicas.get(replica)
    }

    /// Whether an observer is to be remembered. A negative id is none of a replica.
    fn can_note(&self, observer: &ReplicaKey) -> bool {
        let has_room = self.replicas.len() < REPLICAS_NOTED_MAX;
        observer.id.0 >= 0 && (has_room || self.replicas.contains_key(observer))
    }

    /// Whoever fetches without being one of `voters`, ascending.
    pub(crate) fn observers(
        &self,
        voters: &VoterSet,
        now_ns: u64,
    ) -> impl Iterator<Item = (&ReplicaKey, &Progress)> {
        self.replicas
            .iter()
            .filter(move |(key, progress)| !voters.contains(key) && progress.is_current(now_ns))
    }

    /// Forgets what is known of replicas without a directory id, which are voters no longer by their id alone.
    /// They fetch again under their full names.
    pub(crate) fn forget_nameless(&mut self) {
        self.replicas.retain(|key, _| key.directory_id.is_some());
    }

    /// The other voters, the longest log first.
    pub(crate) fn preferred_successors(&self, voters: &VoterSet, id: NodeId) -> Vec<ReplicaKey> {
        let others = voters.iter().map(|voter| voter.key);
        let mut successors: Vec<_> = others.filter(|voter| voter.id != id).collect();
        let end_of = |voter: &ReplicaKey| self.progress_of(voter)?.end_offset;
        successors.sort_by_key(|voter| std::cmp::Reverse(end_of(voter)));
        successors
    }

    /// For explorations: forgets when others fetched, and does not announce itself again. Whether one that is
    /// none of `voters` has caught up decides whether it may become one, so that is kept.
    pub(in crate::raft) fn still(&mut self, voters: &VoterSet, awaited: Correlation) {
        self.begin_quorum_epoch_deadline_ns = NEVER_NS;
        for change in &mut self.voter_changes {
            if let Stage::Probing { correlation, .. } = &mut change.stage {
                *correlation = awaited;
            }
        }
        for (key, progress) in &mut self.replicas {
            progress.last_fetch_ns = progress.last_fetch_ns.map(|_| 0);
            let caught_up = progress.last_caught_up_ns.filter(|_| !voters.contains(key));
            progress.last_caught_up_ns = caught_up.map(|_| 0);
            if caught_up.is_some() || voters.contains(key) {
                progress.leader_end_at_last_fetch = Offset(0);
            }
        }
        self.fetched.clear();
    }

    /// `is_alone`: it is the only voter.
    pub(crate) fn next_deadline_ns(&self, is_alone: bool) -> u64 {
        let parked = self.parked.iter().map(|parked| parked.deadline_ns);
        let changes = self.voter_changes.iter().map(|change| change.deadline_ns);
        let announcing = if is_alone {
            NEVER_NS
        } else {
            self.check_quorum_deadline_ns
                .min(self.begin_quorum_epoch_deadline_ns)
        };
        parked.chain(changes).fold(announcing, u64::min)
    }
}

impl Replica {
    /// # Panics
    /// Without the votes of a majority in this epoch.
    pub(in crate::raft) fn become_leader(&mut self, granting_voters: Vec<NodeId>) {
        let id = self.id();
        assert!(
            matches!(&self.role, RoleState::Candidate(state) if state.tally.is_granted())
                || self.configuration.has(Bug::RestartAsLeader),
            "{id} cannot lead epoch {} without the votes of a majority",
            self.epoch()
        );
        let check_quorum_ns = self.check_quorum_ns();
        let leader = Leader {
            epoch_start: self.log.end(),
            replicas: BTreeMap::new(),
            fetched: Vec::new(),
            check_quorum_deadline_ns: after(self.now_ns, check_quorum_ns),
            begin_quorum_epoch_deadline_ns: self.now_ns,
            parked: Vec::new(),
            reads: ReadIndex::default(),
            held: Vec::new(),
            voter_changes: Vec::new(),
            reported: BTreeMap::new(),
            accumulated_voters: Vec::new(),
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
    pub(in crate::raft) fn check_quorum_ns(&self) -> u64 {
        if self.configuration.has(Bug::NoCheckQuorum) {
            return NEVER_NS;
        }
        self.configuration.timers.check_quorum_ns()
    }

    fn append_leader_change(&mut self, epoch: Epoch, granting_voters: Vec<NodeId>) {
        let mut records = vec![ControlRecord::LeaderChange {
            leader: self.id(),
            voters: self.voter_history.latest().ids().collect(),
            granting_voters,
        }];
        records.extend(self.voters_to_record());
        let payloads: Vec<_> = records.iter().map(ControlRecord::encode).collect();
        self.append(Batch::build(self.log.end(), epoch, 0, true, &payloads));
    }

    /// What the first batch of an epoch says of the voters (KIP-853): those of the bootstrap snapshot,
    /// which are in no log yet, or that this leader listens elsewhere than the voters say.
    fn voters_to_record(&self) -> Vec<ControlRecord> {
        let version = self.voter_history.kraft_version();
        let latest = self.voter_history.latest();
        let is_first = self.voter_history.is_bootstrap(self.log.start());
        let listed = latest.get(self.id());
        let updated = listed
            .zip(self.configuration.endpoint.as_ref())
            .map(|(voter, endpoint)| {
                let mut voter = voter.clone();
                voter.endpoint = Some(endpoint.clone());
                voter.versions = VersionRange::SUPPORTED;
                voter
            });
        let voters = match updated {
            Some(updated) if Some(&updated) != listed => latest.with(updated),
            _ if is_first => latest.clone(),
            _ => return Vec::new(),
        };
        match version {
            0 => Vec::new(),
            _ if is_first => vec![
                ControlRecord::KraftVersion { version },
                ControlRecord::Voters { voters },
            ],
            _ => vec![ControlRecord::Voters { voters }],
        }
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
        self.abandon_voter_changes(std::mem::take(&mut leader.voter_changes));
        for parked in leader.parked {
            if self.configuration.has(Bug::ParkedFetchNotRevalidated) {
                self.reply_fetch(parked.ticket, &parked.request, Comparison::Agrees);
                continue;
            }
            let error = match self.fetch_error(&parked.request) {
                // It came while this was the leader, and is told that it is not any more.
                ErrorCode::BrokerNotAvailable => ErrorCode::NotLeaderOrFollower,
                error => error,
            };
            self.reply_fetch_error(parked.ticket, error);
        }
    }

    pub(in crate::raft) fn run_leader_timers(&mut self) -> bool {
        let alone = self.is_only_voter();
        let Some(leader) = self.as_leader() else {
            return false;
        };
        // KAFKA-15489, KAFKA-16144: without a majority that fetches, another leader may exist.
        if !alone && is_due(leader.check_quorum_deadline_ns, self.now_ns) {
            self.resign("check quorum");
            return true;
        }
        self.expire_voter_changes();
        self.drain_accumulated_voters();
        self.answer_parked();
        false
    }

    /// Announces itself to voters that do not fetch (KAFKA-16536, KAFKA-16926), and to nobody else.
    pub(in crate::raft) fn send_begin_quorum_epoch(&mut self) {
        let period_ns = self.configuration.timers.begin_quorum_epoch_ns();
        let once = self.configuration.has(Bug::BeginQuorumOnce);
        let now_ns = self.now_ns;
        let id = self.id();
        let voters = self.voter_history.latest();
        let RoleState::Leader(leader) = &mut self.role else {
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
        let silent: Vec<_> = voters
            .iter()
            .map(|voter| voter.key)
            .filter(|voter| voter.id != id)
            .filter(|voter| leader.progress_of(voter).is_none_or(is_silent))
            .collect();
        leader
            .replicas
            .retain(|key, progress| voters.contains(key) || progress.is_current(now_ns));
        for voter in silent {
            if self.peers.is_ready(voter.id) {
                let request = Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
                    cluster_id: self.configuration.cluster_id.clone(),
                    voter,
                    leader_id: id,
                    leader_epoch: self.epoch(),
                    leader_endpoint: self.configuration.endpoint.clone(),
                });
                self.send(voter.id, Asked::BeginQuorumEpoch, request);
            }
        }
    }

    /// Takes note of a valid fetch of another replica. One that is no voter moves nothing.
    pub(in crate::raft) fn note_fetch(&mut self, request: &FetchRequest) {
        let (now_ns, log_end) = (self.now_ns, self.log.end());
        let key = self.key_in_set(&request.replica);
        let RoleState::Leader(leader) = &mut self.role else {
            return;
        };
        let is_voter = self.voter_history.latest().contains(&key);
        if !is_voter && !leader.can_note(&key) {
            return;
        }
        let progress = leader.replicas.entry(key).or_default();
        progress.note_fetch(now_ns, request.fetch_offset, log_end);
        if is_voter {
            // Nobody else is remembered: whoever comes under ever new ids would fill the memory.
            leader.reads.note_echo(key, request.read_round);
            self.count_for_check_quorum(&key);
            self.advance_high_watermark();
            self.serve_confirmed_reads();
        }
    }

    /// The key by which the voter set knows a replica, if it is a voter: under kraft.version 0 the set
    /// has no directory ids.
    fn key_in_set(&self, replica: &ReplicaKey) -> ReplicaKey {
        let voter = self.voter_history.latest().get(replica.id);
        voter
            .filter(|voter| voter.key.accepts(replica))
            .map_or(*replica, |voter| voter.key)
    }

    /// A replica took something from this leader, so it follows. Of the voters a majority must, together
    /// with the leader if that is a voter (KAFKA-15489, KAFKA-16531). Nothing follows for what it holds.
    pub(in crate::raft) fn count_for_check_quorum(&mut self, replica: &ReplicaKey) {
        let key = self.key_in_set(replica);
        let check_quorum_ns = self.check_quorum_ns();
        let needed = self.voter_history.latest().majority() - usize::from(self.is_voter());
        let now_ns = self.now_ns;
        let voters = self.voter_history.latest();
        let RoleState::Leader(leader) = &mut self.role else {
            return;
        };
        if !leader.fetched.contains(&key) {
            leader.fetched.push(key);
        }
        // Observers do not count, nor whoever was removed since it fetched.
        leader.fetched.retain(|fetched| voters.contains(fetched));
        if leader.fetched.len() >= needed {
            leader.fetched.clear();
            leader.check_quorum_deadline_ns = after(now_ns, check_quorum_ns);
        }
    }

    /// Moves the high watermark if what the latest voters hold durably allows it (KAFKA-12619).
    pub(in crate::raft) fn advance_high_watermark(&mut self) {
        let Some(leader) = self.as_leader() else {
            return;
        };
        if self.high_watermark == Some(self.log.end()) {
            return; // Everything is committed, as after most fetches of a quiet log.
        }
        let key = self.configuration.key();
        let voters = self.voter_history.latest();
        let own_end = if self.configuration.has(Bug::LeaderCountsUnflushed) {
            self.log.end()
        } else {
            self.log.flushed()
        };
        let durable_end = |voter: &ReplicaKey| match leader.progress_of(voter) {
            _ if voter.accepts(&key) => Some(own_end),
            Some(progress) => progress.end_offset,
            None => None,
        };
        let mut ends: Vec<_> = voters.iter().map(|voter| durable_end(&voter.key)).collect();
        if !voters.contains(&key)
            && self
                .configuration
                .has(Bug::HighWatermarkCountsNonvoterLeader)
        {
            ends.push(Some(own_end));
        }
        let rule = match self.configuration.bug {
            Some(Bug::HighWatermarkEpochStartOffByOne) => EpochStartRule::OffByOne,
            Some(Bug::HighWatermarkAnyEpoch) => EpochStartRule::Ignored,
            _ => EpochStartRule::Required,
        };
        let known = self.high_watermark;
        let start = leader.epoch_start;
        let Some(next) = high_watermark::advance(ends, voters.len(), start, known, rule) else {
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
        self.finish_voter_changes();
    }
}
