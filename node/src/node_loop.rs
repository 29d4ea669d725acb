//! Owns the order of a node's work: drain arrivals, step the core, store, sync once, release.
//! Never waits, reads a clock or talks to the outside; a process and a simulation run the same loop.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod boundary;
mod clients;
mod disk_description;
mod disk_work;
mod foresight;
mod messages;
mod mischief;
mod moments;
mod snapshot_work;
mod snapshots;
mod starting;
mod waiting;

use std::collections::BTreeMap;

use crate::ids::{Epoch, NodeId, Offset};
use crate::machine::Machine;
use crate::message::Response;
use crate::mischief::Mischief;
use crate::moment::{Edge, Moment};
use crate::mutants::Bug;
use crate::raft::{
    Configuration, Effect, Input, PeerAnswer, QuorumDescription, QuorumState, Replica, Role,
};
use crate::storage::disk::Disk;
use crate::storage::{
    Identity, LogSync, LogSynced, SnapshotDownload, Storage, StorageError, StorageOptions,
    VotersFrom,
};
use crate::trace::{TraceEvent, Traced};

pub use boundary::{
    Arrival, Departure, LoadError, NodeError, NodeOptions, Outbox, StartError, StateDescription,
};
pub use disk_description::{DiskDescription, LoaderDescription};
use disk_work::DiskWork;
use foresight::Foresight;
pub use snapshots::SnapshotOptions;
use snapshots::Snapshots;
use waiting::{Waiting, in_batches};

/// One node: protocol core, storage and state machine behind one owner.
#[derive(Debug)]
pub struct NodeLoop<D: Disk> {
    replica: Replica,
    storage: Storage<D>,
    machine: Machine,
    /// Every record below is applied to the machine.
    applied: Offset,
    bug: Option<Bug>,
    mischief: Mischief,
    waiting: Waiting,
    /// What clients are told too early, with the seeded bug B09.
    foresight: Option<Foresight>,
    /// Who waits for answers, if messages are traced.
    askers: messages::Askers,
    snapshots: Snapshots,
    /// A snapshot of the leader that is being stored.
    download: Option<SnapshotDownload>,
    loader: LoaderDescription,
    disk_work: DiskWork,
}

impl<D: Disk> NodeLoop<D> {
    /// Recovers from `disk` and takes part in the cluster.
    ///
    /// # Errors
    /// When the disk fails or holds something that must not be continued from.
    pub fn start(
        mut configuration: Configuration,
        disk: D,
        options: NodeOptions,
        now_ns: u64,
        outbox: &mut impl Outbox,
    ) -> Result<Self, StartError> {
        let identity = Identity {
            cluster_id: configuration.cluster_id.clone(),
            node_id: configuration.id,
        };
        let bug = configuration.bug;
        let storage_options = StorageOptions {
            verify_checksums: options.storage.verify_checksums && bug != Some(Bug::CrcSkip),
            require_quorum_state: options.storage.require_quorum_state
                && !matches!(bug, Some(Bug::VoteNoFsync | Bug::EpochNotFromLog)),
            sync_snapshots: options.storage.sync_snapshots && bug != Some(Bug::SnapshotNoFsync),
            accept_parts: options.storage.accept_parts || bug == Some(Bug::SnapshotPartAccepted),
            ..options.storage
        };
        let (mut storage, recovered) = Storage::open_with_directory_id(
            disk,
            &identity,
            options.new_directory_id,
            storage_options,
        )?;
        configuration.directory_id = storage.directory_id();
        if storage.voters_from() == VotersFrom::Log {
            starting::rely_on_log(&mut configuration, &recovered)?;
        } else {
            let before = storage.configured_voters();
            let voters = starting::keep_voters(&mut configuration, before, &recovered)?;
            if let Some(voters) = voters {
                storage
                    .note_voters(voters, recovered.quorum_state)
                    .map_err(NodeError::from)?;
            }
        }
        let newest = recovered.snapshots.last().map(|snapshot| snapshot.id);
        let (machine, applied) = snapshot_work::recover(&storage, newest, bug)?;
        let (replica, effects) = Replica::start(configuration, recovered, now_ns);
        let mut node = Self {
            replica,
            storage,
            machine,
            applied,
            bug,
            mischief: Mischief::new(options.mischief),
            waiting: Waiting::default(),
            foresight: None,
            askers: messages::Askers::new(identity.cluster_id),
            snapshots: Snapshots::new(options.snapshots, now_ns),
            download: None,
            loader: LoaderDescription {
                loaded_count: u64::from(newest.is_some()),
                ..LoaderDescription::default()
            },
            disk_work: DiskWork::new(now_ns),
        };
        node.carry_out(now_ns, effects, outbox)?;
        node.sync(now_ns, outbox)?;
        Ok(node)
    }

    /// Handles everything that arrived since the last call and whatever time has made due.
    ///
    /// `timestamp_ms` is wall-clock time for batch headers; it influences nothing.
    ///
    /// # Errors
    /// When the node must stop at once; nothing that was held back leaves it any more.
    pub fn process(
        &mut self,
        now_ns: u64,
        timestamp_ms: i64,
        arrivals: impl IntoIterator<Item = Arrival>,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        if self.mischief.is_on() {
            self.take_in_with_mischief(now_ns, timestamp_ms, arrivals, outbox)?;
        } else {
            self.take_in(now_ns, timestamp_ms, arrivals, outbox)?;
        }
        self.settle(now_ns, timestamp_ms, outbox)?;
        drop(self.take_discarded());
        Ok(())
    }

    /// The first part of [`NodeLoop::process`], for those who let what has left already be on its
    /// way before the sync, or let another thread wait for the disk. When the node
    /// [awaits a sync](NodeLoop::awaits_sync), they go on with [`NodeLoop::begin_sync`], may take in more
    /// while that runs, and tell [`NodeLoop::finish_sync`] what came of it. [`NodeLoop::settle`] ends
    /// a round.
    ///
    /// # Errors
    /// See [`NodeLoop::process`].
    pub fn take_in(
        &mut self,
        now_ns: u64,
        timestamp_ms: i64,
        arrivals: impl IntoIterator<Item = Arrival>,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        let mut commands = Vec::new();
        let mut reads = Vec::new();
        let mut is_stepped = false;
        for arrival in arrivals {
            let mut received = None;
            let input = match arrival {
                Arrival::PeerRequest {
                    ticket,
                    correlation,
                    request,
                } => {
                    if outbox.wants_moments() {
                        received = Moment::received(&request);
                    }
                    if let Some(moment) = received {
                        outbox.moment(Edge::Before, moment);
                    }
                    if outbox.wants_messages() {
                        let event = self.askers.note(ticket, correlation, &request);
                        self.trace(event, outbox);
                    }
                    Input::PeerRequest { ticket, request }
                }
                Arrival::PeerAnswer {
                    peer,
                    correlation,
                    answer,
                } => {
                    if let PeerAnswer::Response(response) = &answer
                        && outbox.wants_messages()
                    {
                        self.trace(messages::answered(peer, correlation, response), outbox);
                    }
                    Input::PeerAnswer {
                        peer,
                        correlation,
                        answer,
                    }
                }
                Arrival::TakeSnapshot => {
                    self.snapshots.ask();
                    continue;
                }
                Arrival::Shutdown => Input::Shutdown,
                Arrival::Client { ticket, request } => {
                    self.admit(ticket, *request, &mut commands, &mut reads, outbox);
                    continue;
                }
            };
            self.step(now_ns, input, outbox)?;
            is_stepped = true;
            if let Some(moment) = received {
                outbox.moment(Edge::After, moment);
            }
        }
        for commands in in_batches(commands) {
            is_stepped = true;
            self.step(
                now_ns,
                Input::Propose {
                    timestamp_ms,
                    commands,
                },
                outbox,
            )?;
        }
        if !reads.is_empty() {
            is_stepped = true;
            self.step(now_ns, Input::Read { tickets: reads }, outbox)?;
        }
        // Every step does what time has made due by then.
        if is_stepped {
            return Ok(());
        }
        self.step(now_ns, Input::Tick, outbox)
    }

    /// Whether something was stored that no sync covers yet. Never while one is under way.
    pub fn awaits_sync(&self) -> bool {
        self.disk_work.awaits_sync() && !self.skips_sync()
    }

    /// Begins to make everything durable that is stored now. Only running what is returned waits for
    /// the disk; [`NodeLoop::finish_sync`] must hear of it.
    ///
    /// # Errors
    /// See [`NodeLoop::process`].
    pub fn begin_sync(&mut self, outbox: &mut impl Outbox) -> Result<LogSync, NodeError> {
        if outbox.wants_moments() && self.replica.has_unflushed() {
            outbox.moment(Edge::Before, Moment::Flush);
        }
        Ok(if self.disk_work.begin() {
            self.storage.begin_sync_and_note_end()?
        } else {
            self.storage.begin_sync()?
        })
    }

    /// Lets go what waited for a sync that has run. That may store again (a leader that just learned of
    /// its own flush), and then the next sync is due.
    ///
    /// # Errors
    /// See [`NodeLoop::process`].
    pub fn finish_sync(
        &mut self,
        now_ns: u64,
        synced: LogSynced,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        let Some(log_end) = self.storage.finish_sync(synced)? else {
            // The log was cut meanwhile.
            self.disk_work.finish_in_vain();
            return Ok(());
        };
        for departure in self.disk_work.finish(now_ns) {
            self.depart(departure, outbox);
        }
        self.step(now_ns, Input::Flushed { log_end }, outbox)
    }

    /// The last part of [`NodeLoop::process`]: syncs what is left to be synced, and goes on with a
    /// snapshot.
    ///
    /// # Errors
    /// See [`NodeLoop::process`].
    pub fn settle(
        &mut self,
        now_ns: u64,
        timestamp_ms: i64,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        self.sync(now_ns, outbox)?;
        self.work_on_snapshot(now_ns, timestamp_ms, outbox)?;
        if self.has(Bug::LogDeletedPastSnapshot) {
            self.delete_oldest_segments(now_ns, outbox)?;
        }
        self.seal_when_quiet(now_ns)
    }

    /// Leaves a witness of the last sync once nothing follows it for a while: without one, damage to
    /// it would look like a write that a crash has torn.
    fn seal_when_quiet(&mut self, now_ns: u64) -> Result<(), NodeError> {
        if self.disk_work.take_seal(now_ns) {
            self.storage.seal()?;
        }
        Ok(())
    }

    /// When [`NodeLoop::process`] must be called even if nothing arrives.
    pub fn next_deadline_ns(&self) -> u64 {
        if self.snapshots.is_writing() {
            return 0;
        }
        let snapshot_ns = self.snapshots.next_deadline_ns(self.newest_snapshot());
        self.replica.next_deadline_ns().min(snapshot_ns)
    }

    /// What the node knows about its quorum.
    pub fn describe(&self) -> QuorumDescription {
        self.replica.describe()
    }

    /// Where others listen, as far as this node has heard and its log does not say.
    pub(crate) fn heard_endpoints(&self) -> BTreeMap<NodeId, String> {
        self.replica.heard_endpoints()
    }

    /// Changes whenever what this node knows of where others listen may have, other than by its log.
    pub(crate) fn endpoint_news(&self) -> (Epoch, Option<NodeId>, u64) {
        self.replica.endpoint_news()
    }

    /// How far the state machine is, and the hash of its state, by which nodes can be compared that
    /// have applied equally much.
    pub fn state(&self) -> StateDescription {
        StateDescription {
            applied: self.applied,
            digest: self.machine.digest(),
        }
    }

    /// The wall-clock time that the newest record applied since the start bears, in milliseconds since
    /// 1970. Only what clients asked for bears one.
    pub fn last_applied_timestamp_ms(&self) -> Option<i64> {
        self.snapshots.last_timestamp_ms()
    }

    /// After [`Arrival::Shutdown`]: whether the process may end, because every voter knows of the
    /// resignation or there was nothing to resign.
    pub fn is_ready_to_stop(&self) -> bool {
        self.replica.is_ready_to_stop()
    }

    /// Role of the replica.
    pub fn role(&self) -> Role {
        self.replica.role()
    }

    /// Epoch of the replica.
    pub fn epoch(&self) -> Epoch {
        self.replica.epoch()
    }

    /// Who leads that epoch, as far as the replica knows.
    pub fn leader(&self) -> Option<NodeId> {
        self.replica.leader()
    }

    /// Where clients get on, as far as the replica knows: here, or with a leader that answers it.
    pub fn serving_leader(&self) -> Option<NodeId> {
        self.replica.serving_leader()
    }

    /// The last thing to do before an orderly end: marks the log as known to be complete.
    ///
    /// # Errors
    /// When the disk fails; everything that was promised is durable all the same.
    pub fn close(mut self) -> Result<(), NodeError> {
        Ok(self.storage.seal()?)
    }

    fn step(
        &mut self,
        now_ns: u64,
        input: Input,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        let effects = self.replica.step(now_ns, input);
        self.carry_out(now_ns, effects, outbox)
    }

    /// One sync for everything stored since the last, then the effects that waited for it.
    fn sync(&mut self, now_ns: u64, outbox: &mut impl Outbox) -> Result<(), NodeError> {
        if self.skips_sync() {
            self.release_held(outbox);
        }
        while self.awaits_sync() {
            let synced = self.begin_sync(outbox)?.run();
            self.finish_sync(now_ns, synced, outbox)?;
        }
        Ok(())
    }

    fn skips_sync(&self) -> bool {
        self.has(Bug::FollowerNoFsync) && self.replica.role() == Role::Follower
    }

    /// Lets something leave as soon as what is stored is durable, since it may speak of that.
    fn release(&mut self, departure: Departure, outbox: &mut impl Outbox) {
        if let Some(departure) = self.disk_work.hold(departure) {
            self.depart(departure, outbox);
        }
    }

    fn release_held(&mut self, outbox: &mut impl Outbox) {
        for departure in self.disk_work.take_held() {
            self.depart(departure, outbox);
        }
    }

    fn depart(&mut self, departure: Departure, outbox: &mut impl Outbox) {
        let moment = match &departure {
            Departure::Send { request, .. } if outbox.wants_moments() => Moment::sent(request),
            _ => None,
        };
        if let Some(moment) = moment {
            outbox.moment(Edge::Before, moment);
        }
        if outbox.wants_messages() {
            let event = match &departure {
                Departure::Send {
                    peer,
                    correlation,
                    request,
                    ..
                } => Some(messages::sent(*peer, *correlation, request)),
                Departure::Reply { ticket, response } => self.askers.take(*ticket, response),
                Departure::ClientReply { .. } => None,
            };
            if let Some(event) = event {
                self.trace(event, outbox);
            }
        }
        outbox.depart(departure);
        if let Some(moment) = moment {
            outbox.moment(Edge::After, moment);
        }
    }

    fn trace(&self, event: TraceEvent, outbox: &mut impl Outbox) {
        let epoch = self.replica.epoch();
        moments::report(Traced { epoch, event }, outbox);
    }

    fn carry_out(
        &mut self,
        now_ns: u64,
        mut effects: Vec<Effect>,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        let mut apply_late = None;
        let mut left = effects.drain(..);
        while let Some(effect) = left.next() {
            moments::announce(&effect, left.as_slice(), outbox);
            match effect {
                Effect::Persist(state) => self.persist(state)?,
                Effect::Append(batch) => {
                    self.storage.append(&batch)?;
                    self.disk_work.stored();
                }
                Effect::Truncate(log_end) => {
                    self.storage.truncate(log_end)?;
                    self.disk_work.stored();
                }
                Effect::Send {
                    peer,
                    endpoint,
                    correlation,
                    request,
                } => {
                    self.release(
                        Departure::Send {
                            peer,
                            endpoint,
                            correlation,
                            request,
                        },
                        outbox,
                    );
                }
                Effect::Reply { ticket, response } => {
                    self.release(Departure::Reply { ticket, response }, outbox);
                }
                Effect::ReplyFetch {
                    ticket,
                    mut response,
                    from,
                    max_bytes,
                } => {
                    if let Some(from) = from {
                        response.batches = self.storage.read(from, max_bytes)?;
                    }
                    // Promises nothing about the records it carries, so followers may store them
                    // while this node still syncs.
                    let response = Box::new(Response::Fetch(*response));
                    self.depart(Departure::Reply { ticket, response }, outbox);
                }
                Effect::ReplyFetchSnapshot {
                    ticket,
                    mut response,
                    max_bytes,
                } => {
                    let max_bytes = usize::try_from(max_bytes).unwrap_or(usize::MAX);
                    let (id, position_bytes) = (response.snapshot_id, response.position_bytes);
                    self.snapshots.note_served(now_ns, id);
                    response.bytes =
                        self.storage
                            .read_snapshot_bytes(id, position_bytes, max_bytes)?;
                    let response = Box::new(Response::FetchSnapshot(*response));
                    self.depart(Departure::Reply { ticket, response }, outbox);
                }
                Effect::StoreSnapshotChunk {
                    id,
                    position_bytes,
                    bytes,
                } => self.store_chunk(id, position_bytes, &bytes)?,
                Effect::InstallSnapshot(id) => {
                    let outcome = self.install(now_ns, id)?;
                    self.step(now_ns, outcome, outbox)?;
                }
                Effect::AbandonSnapshot(_) => self.abandon_download()?,
                Effect::Proposed { ticket, offset } => {
                    self.note_proposed(ticket, offset, outbox)?;
                }
                Effect::Refused { ticket, refusal } => self.refuse(ticket, refusal, outbox),
                Effect::ReadReady {
                    ticket,
                    read_offset,
                } => {
                    self.serve_read(ticket, read_offset, outbox);
                }
                Effect::Committed { high_watermark } if self.has(Bug::ReadNotApplied) => {
                    apply_late = Some(high_watermark);
                }
                Effect::Committed { high_watermark } => self.apply(high_watermark, outbox)?,
                Effect::LeadershipLost => self.abandon_uncommitted(outbox),
                Effect::Trace(traced) => moments::report(traced, outbox),
            }
        }
        drop(left);
        self.replica.take_back(effects);
        match apply_late {
            Some(high_watermark) => self.apply(high_watermark, outbox),
            None => Ok(()),
        }
    }

    fn persist(&mut self, state: QuorumState) -> Result<(), StorageError> {
        let votes_for_another = state.leader.is_none()
            && state
                .voted_for
                .is_some_and(|voted_for| voted_for.id != self.replica.id());
        if votes_for_another && self.has(Bug::VoteNoFsync) {
            return self.storage.persist_unsynced(state);
        }
        if self.has(Bug::VoteTwoFiles) {
            return self.storage.persist_in_two_writes(state);
        }
        self.storage.persist(state)
    }

    fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}
