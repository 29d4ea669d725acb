//! Owns the replica: its durable promises, its log's shape, its role, and the dispatch of inputs.
//! Never contains the behaviour of one role; that is in `role/`.

use std::sync::Arc;

use super::endpoints::LearnedEndpoint;
use super::log_view::LogView;
use super::peers::{Asked, Peers};
use super::role::{self, Candidate, Follower, Leader, Resigned, RoleState, Unattached};
use super::startup::{InitialRole, initial_role};
use super::timers::{NEVER_NS, Random, after};
use super::voter_history::{VoterHistory, control_records_of};
use super::{
    Configuration, Correlation, Effect, Input, ProposalRefusal, QuorumState, Recovered, Refusal,
    Role, Ticket,
};
use crate::batch::Batch;
use crate::control_record::ControlRecord;
use crate::ids::{Epoch, NodeId, Offset};
use crate::message::Request;
use crate::mutants::Bug;
use crate::trace::{SnapshotName, Started, TraceEvent, Traced, name};

/// One KRaft replica as a deterministic state machine.
///
/// The caller carries out effects in order, feeds [`Input::Flushed`] after every sync that follows
/// an append or a truncation, and feeds [`Input::Tick`] at [`Replica::next_deadline_ns`] at the
/// latest. `Persist` must be durable before a later `Append` is.
#[derive(Debug, Clone)]
pub struct Replica {
    /// Shared by all copies: it never changes.
    pub(super) configuration: Arc<Configuration>,
    pub(super) voter_history: VoterHistory,
    pub(super) random: Random,
    /// What the quorum-state file holds.
    pub(super) quorum_state: QuorumState,
    pub(super) log: LogView,
    /// Unknown after a start and for a new or resigned leader.
    pub(super) high_watermark: Option<Offset>,
    /// The largest high watermark ever known to this incarnation, or the end of a snapshot.
    pub(super) committed: Offset,
    pub(super) role: RoleState,
    pub(super) peers: Peers,
    pub(super) learned_endpoint: Option<LearnedEndpoint>,
    /// How often anything was learned of where others listen.
    pub(super) endpoint_news_count: u64,
    pub(super) shutting_down: bool,
    pub(super) now_ns: u64,
    pub(super) effects: Vec<Effect>,
}

impl Replica {
    /// Brings a replica up from what survived (KIP-595; KAFKA-10527, KAFKA-10661).
    ///
    /// # Panics
    /// If the recovered log is impossible.
    pub fn start(
        configuration: Configuration,
        recovered: Recovered,
        now_ns: u64,
    ) -> (Self, Vec<Effect>) {
        let id = configuration.id;
        let voter_history = VoterHistory::recover(&configuration, &recovered);
        let voters = voter_history.latest();
        let is_voter = voters.contains(&configuration.key());
        let (quorum_state, initial) = initial_role(&recovered, &configuration, voters);
        let mut random = Random::new(configuration.random_seed);
        let timers = configuration.timers;
        let election_deadline_ns = after(now_ns, random.election_timeout_ns(&timers));
        let role = match initial {
            InitialRole::Unattached => RoleState::Unattached(Unattached {
                election_deadline_ns: if is_voter {
                    election_deadline_ns
                } else {
                    NEVER_NS
                },
            }),
            InitialRole::Candidate | InitialRole::Reelected => {
                RoleState::Candidate(Candidate::new(voters, id, election_deadline_ns))
            }
            InitialRole::Follower { leader } => {
                let deadline_ns = after(now_ns, timers.fetch_timeout_ns);
                RoleState::Follower(Follower::new(leader, deadline_ns))
            }
            InitialRole::Resigned => {
                RoleState::Resigned(Resigned::new(voters, id, Vec::new(), election_deadline_ns))
            }
        };
        let peers = Peers::new(timers.request_timeout_ns, timers.retry_backoff_ns);
        let log = LogView::recover(&recovered);
        let mut replica = Self {
            configuration: Arc::new(configuration),
            voter_history,
            random,
            quorum_state,
            high_watermark: None,
            committed: log.snapshot_end(),
            log,
            role,
            peers,
            learned_endpoint: None,
            endpoint_news_count: 0,
            shutting_down: false,
            now_ns,
            effects: Vec::new(),
        };
        replica.report_start(&recovered);
        if initial == InitialRole::Reelected {
            replica.become_leader(Vec::new());
        } else if replica.is_only_voter() && initial != InitialRole::Candidate {
            replica.become_prospective("the only voter");
        }
        replica.poll();
        let effects = std::mem::take(&mut replica.effects);
        (replica, effects)
    }

    fn report_start(&mut self, recovered: &Recovered) {
        let found = recovered.quorum_state.unwrap_or_default();
        let adopted = found != self.quorum_state;
        if adopted {
            self.effect(Effect::Persist(self.quorum_state));
        }
        let snapshots = recovered.snapshots.iter().map(|snapshot| SnapshotName {
            end_offset: snapshot.id.end_offset,
            last_epoch: snapshot.id.epoch,
        });
        let started = Started {
            role: self.role(),
            log_start: self.log.start(),
            log_end: self.log.end(),
            last_epoch: self.log.last_epoch(),
            voted_for: found.voted_for.map(|voted_for| name(voted_for.id)),
            leader: found.leader.map(name),
            truncated_bytes: recovered.truncated_bytes,
            snapshots: snapshots.collect(),
            voters: self.voter_history.latest().ids().map(name).collect(),
            kraft_version: self.voter_history.kraft_version(),
            directory_id: self.configuration.directory_id,
            is_voter: self.is_voter(),
        };
        self.trace(TraceEvent::Started(Box::new(started)));
        if adopted {
            self.trace(TraceEvent::EpochAdopted { leader: None });
        }
    }

    /// Handles one input, then whatever time has made due. Time may jump in both directions;
    /// deadlines are points on the clock handed in.
    ///
    /// # Panics
    /// When the protocol is broken beyond repair: a second leader in one epoch, a second vote in
    /// one epoch, a truncation below what is known to be committed, a snapshot of less than that.
    pub fn step(&mut self, now_ns: u64, input: Input) -> Vec<Effect> {
        let is_outcome = matches!(
            input,
            Input::SnapshotInstalled { .. } | Input::SnapshotRefused { .. }
        );
        assert_eq!(
            self.awaits_installation(),
            is_outcome,
            "the outcome of an installation comes when one was asked for, and before all else"
        );
        self.now_ns = now_ns;
        for (peer, correlation) in self.peers.expire(now_ns) {
            self.note_silence(peer);
            self.on_unanswered_probe(correlation);
        }
        match input {
            Input::Tick => {}
            Input::PeerRequest { ticket, request } => self.on_request(ticket, request),
            Input::PeerAnswer {
                peer,
                correlation,
                answer,
            } => {
                self.on_answer(peer, correlation, answer);
            }
            Input::Propose {
                timestamp_ms,
                commands,
            } => self.on_propose(timestamp_ms, commands),
            Input::Read { tickets } => self.on_read(tickets),
            Input::Flushed { log_end } => self.on_flushed(log_end),
            Input::SnapshotInstalled {
                snapshot,
                voters,
                digest,
            } => self.on_snapshot_installed(snapshot, voters, digest),
            Input::SnapshotRefused { id } => self.on_snapshot_refused(id),
            Input::SnapshotFrozen { snapshot, digest } => self.on_snapshot_frozen(snapshot, digest),
            Input::LogStartAdvanced { log_start } => self.on_log_start_advanced(log_start),
            Input::Shutdown => self.on_shutdown(),
        }
        self.poll();
        std::mem::take(&mut self.effects)
    }

    /// Takes back what [`Replica::step`] returned, once everything is carried out: the next step uses its
    /// memory again.
    pub fn take_back(&mut self, mut effects: Vec<Effect>) {
        effects.clear();
        if self.effects.capacity() < effects.capacity() && self.effects.is_empty() {
            self.effects = effects;
        }
    }

    /// When [`Input::Tick`] is due even if nothing else happens; `u64::MAX` for never.
    pub fn next_deadline_ns(&self) -> u64 {
        let role_deadline_ns = match &self.role {
            RoleState::Leader(leader) => leader.next_deadline_ns(self.is_only_voter()),
            // Standing down: only what an outgoing leader still has to say is sent.
            RoleState::Resigned(_) if self.shutting_down => NEVER_NS,
            _ if self.shutting_down => return NEVER_NS,
            RoleState::Unattached(state) => state.election_deadline_ns,
            RoleState::Prospective(state) => state.election_deadline_ns,
            RoleState::Candidate(_) if self.configuration.has(Bug::CandidateNoTimeout) => NEVER_NS,
            RoleState::Candidate(state) => state.election_deadline_ns,
            RoleState::Follower(state) => state.fetch_deadline_ns,
            RoleState::Resigned(state) => state.election_deadline_ns,
        };
        role_deadline_ns.min(self.peers.next_deadline_ns())
    }

    /// This replica.
    pub fn id(&self) -> NodeId {
        self.configuration.id
    }

    /// Its state.
    pub fn role(&self) -> Role {
        self.role.kind()
    }

    /// Whether its log has records that no flush has covered yet.
    pub(crate) fn has_unflushed(&self) -> bool {
        self.log.flushed() < self.log.end()
    }

    /// Its epoch.
    pub fn epoch(&self) -> Epoch {
        self.quorum_state.epoch
    }

    /// Who leads, as far as it knows. A leader that resigned names nobody (KAFKA-17333).
    pub fn leader(&self) -> Option<NodeId> {
        let own = self.quorum_state.leader == Some(self.id());
        if own && self.role() != Role::Leader {
            None
        } else {
            self.quorum_state.leader
        }
    }

    /// Where clients get on, as far as it knows: here, or with a leader that answers it. The protocol goes on
    /// naming the leader of the epoch when that one fell silent, to whoever stands for election because of it and
    /// whoever follows it again after that came to nothing; clients would be sent to one that is not there.
    pub fn serving_leader(&self) -> Option<NodeId> {
        match &self.role {
            RoleState::Leader(_) => Some(self.id()),
            RoleState::Follower(state) => state.has_fetched.then_some(state.leader),
            _ => None,
        }
    }

    /// Everything below is committed. Unknown after a start and for a new or resigned leader.
    pub fn high_watermark(&self) -> Option<Offset> {
        self.high_watermark
    }

    /// Start of the log. What is below is in a snapshot.
    pub fn log_start(&self) -> Offset {
        self.log.start()
    }

    /// End of the log, durable or not.
    pub fn log_end(&self) -> Offset {
        self.log.end()
    }

    /// After [`Input::Shutdown`]: whether the process may end without loss of courtesy, that is,
    /// every voter knows of the resignation or a later epoch has begun.
    pub fn is_ready_to_stop(&self) -> bool {
        self.shutting_down
            && match &self.role {
                RoleState::Resigned(state) => state.unacknowledged.is_empty(),
                _ => true,
            }
    }

    /// Adds a promise-free or already durable effect.
    pub(super) fn effect(&mut self, effect: Effect) {
        self.effects.push(effect);
    }

    pub(super) fn trace(&mut self, event: TraceEvent) {
        let traced = Traced {
            epoch: self.quorum_state.epoch,
            event,
        };
        self.effects.push(Effect::Trace(traced));
    }

    /// Makes election state durable; everything that depends on it comes later in the effects.
    pub(super) fn persist(&mut self, next: QuorumState) {
        let previous = self.quorum_state;
        if next == previous {
            return;
        }
        let id = self.id();
        assert!(
            next.epoch >= previous.epoch,
            "{id} cannot go back from epoch {} to {}",
            previous.epoch,
            next.epoch
        );
        if next.epoch == previous.epoch {
            assert!(
                previous.leader.is_none() || previous.leader == next.leader,
                "{id} knows leader {:?} of epoch {} and cannot take {:?} for it",
                previous.leader,
                next.epoch,
                next.leader
            );
            assert!(
                next.voted_for.is_none()
                    || previous.voted_for.is_none()
                    || previous.voted_for == next.voted_for,
                "{id} voted for {:?} in epoch {} and cannot vote for {:?}",
                previous.voted_for,
                next.epoch,
                next.voted_for
            );
        }
        self.quorum_state = next;
        self.effect(Effect::Persist(next));
        if (previous.epoch, previous.leader) != (next.epoch, next.leader) {
            self.trace(TraceEvent::EpochAdopted {
                leader: next.leader.map(name),
            });
        }
        if let Some(candidate) = next.voted_for
            && (previous.epoch, previous.voted_for) != (next.epoch, next.voted_for)
        {
            self.trace(TraceEvent::VotePersisted {
                candidate: name(candidate.id),
            });
        }
    }

    /// Changes the role: durable first, then in memory, then towards everyone who waits.
    pub(super) fn transition(
        &mut self,
        to: RoleState,
        quorum_state: QuorumState,
        reason: &'static str,
    ) {
        let (old_kind, new_kind) = (self.role.kind(), to.kind());
        let advances = quorum_state.epoch > self.quorum_state.epoch;
        assert!(
            role::is_legal(old_kind, new_kind, advances, self.is_voter()),
            "{} cannot go from {old_kind:?} in epoch {} to {new_kind:?} in epoch {} ({reason})",
            self.id(),
            self.quorum_state.epoch,
            quorum_state.epoch
        );
        self.persist(quorum_state);
        let old = std::mem::replace(&mut self.role, to);
        self.peers.reset();
        if matches!(new_kind, Role::Leader | Role::Resigned) {
            self.high_watermark = None;
        }
        if old_kind != new_kind || new_kind == Role::Follower {
            self.trace(TraceEvent::RoleChange {
                role: new_kind,
                leader: self.quorum_state.leader.map(name),
                epoch_start_offset: self.as_leader().map(Leader::epoch_start),
                reason,
            });
        }
        match old {
            RoleState::Leader(leader) => self.leave_leadership(*leader),
            RoleState::Follower(follower) => self.abandon_download(follower.download),
            _ => {}
        }
    }

    /// Does what time has made due, then sends what the role wants to send.
    fn poll(&mut self) {
        if self.awaits_installation() {
            return;
        }
        while self.run_role_timers() {}
        self.send_requests();
    }

    /// Does one thing that is due; whether there may be more.
    fn run_role_timers(&mut self) -> bool {
        if self.shutting_down {
            return false;
        }
        match self.role {
            RoleState::Unattached(_) => self.run_unattached_timers(),
            RoleState::Prospective(_) => self.run_prospective_timers(),
            RoleState::Candidate(_) => self.run_candidate_timers(),
            RoleState::Leader(_) => self.run_leader_timers(),
            RoleState::Follower(_) => self.run_follower_timers(),
            RoleState::Resigned(_) => self.run_resigned_timers(),
        }
    }

    fn send_requests(&mut self) {
        match self.role {
            RoleState::Resigned(_) => self.send_end_quorum_epoch(),
            _ if self.shutting_down => {}
            RoleState::Unattached(_) => self.send_discovery_fetch(None),
            RoleState::Prospective(_) | RoleState::Candidate(_) => self.send_vote_requests(),
            RoleState::Leader(_) => self.send_begin_quorum_epoch(),
            RoleState::Follower(_) => self.send_follower_fetch(),
        }
    }

    pub(super) fn send(&mut self, peer: NodeId, asked: Asked, request: Request) {
        self.take_turns(peer);
        let endpoint = self.endpoint_of(peer);
        self.send_to(peer, endpoint, asked, request);
    }

    /// Sends to a replica whose endpoint need not be the one that the protocol knows.
    pub(super) fn send_to(
        &mut self,
        peer: NodeId,
        endpoint: Option<String>,
        asked: Asked,
        request: Request,
    ) -> Correlation {
        let correlation = self.peers.note_sent(self.now_ns, peer, asked);
        self.effect(Effect::Send {
            peer,
            endpoint,
            correlation,
            request: Box::new(request),
        });
        correlation
    }

    /// Appends a batch. A change of the voters in it is in force from here on, committed or not.
    ///
    /// # Panics
    /// If it does not follow, or holds control records that nobody could read: callers check both.
    pub(super) fn append(&mut self, batch: Batch) {
        let control_records = control_records_of(&batch).expect("callers check control records");
        self.log.note_append(&batch);
        let event = TraceEvent::Append {
            base_offset: batch.base_offset(),
            last_offset: batch.last_offset(),
            batch_epoch: batch.epoch(),
            crc: batch.crc(),
        };
        self.effect(Effect::Append(batch));
        self.trace(event);
        for (offset, record) in &control_records {
            self.voter_history.note_record(*offset, record);
        }
        // Afterwards, so that the version is right wherever in the batch it is.
        for (offset, record) in control_records {
            if let ControlRecord::Voters { voters } = record {
                self.on_voters_changed();
                self.trace(TraceEvent::VotersAppended {
                    offset,
                    voters: voters.ids().map(name).collect(),
                    kraft_version: self.voter_history.kraft_version(),
                });
            }
        }
    }

    pub(super) fn set_high_watermark(&mut self, high_watermark: Offset) {
        let log_end = self.log.end();
        assert!(
            high_watermark <= log_end,
            "the high watermark {high_watermark} cannot pass the log end {log_end}"
        );
        self.high_watermark = Some(high_watermark);
        self.committed = self.committed.max(high_watermark);
        self.voter_history.note_committed(high_watermark);
        // Reported first: whoever sees a committed command finds the watermark in the trace.
        self.trace(TraceEvent::HighWatermark {
            high_watermark,
            log_end,
        });
        self.effect(Effect::Committed { high_watermark });
    }

    fn on_flushed(&mut self, log_end: Offset) {
        if self.log.note_flushed(log_end) {
            self.trace(TraceEvent::Flush {
                log_end: self.log.flushed(),
            });
            self.advance_high_watermark();
        }
    }

    fn on_shutdown(&mut self) {
        self.shutting_down = true;
        if self.role() == Role::Leader {
            self.resign("shutting down");
        }
    }

    pub(super) fn refuse(&mut self, tickets: impl IntoIterator<Item = Ticket>, reason: Refusal) {
        let refusal = ProposalRefusal {
            reason,
            leader: self.serving_leader(),
            epoch: self.epoch(),
        };
        for ticket in tickets {
            self.effect(Effect::Refused { ticket, refusal });
        }
    }

    /// A deadline for an election that begins now.
    pub(super) fn fresh_election_deadline_ns(&mut self) -> u64 {
        let timeout_ns = self.random.election_timeout_ns(&self.configuration.timers);
        after(self.now_ns, timeout_ns)
    }

    pub(super) fn as_leader(&self) -> Option<&Leader> {
        match &self.role {
            RoleState::Leader(leader) => Some(leader),
            _ => None,
        }
    }

    pub(super) fn as_leader_mut(&mut self) -> Option<&mut Leader> {
        match &mut self.role {
            RoleState::Leader(leader) => Some(leader),
            _ => None,
        }
    }
}
