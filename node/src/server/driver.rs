//! Owns the task that a node's loop lives in: its mailbox, its clock and when it wakes up.
//! Never makes a protocol decision and never touches a socket.
//!
//! The task shares one thread with the HTTP front and the connections to peers: handing every message
//! from thread to thread costs more than what is done with it. Another thread waits for the disk. While
//! it does, the task goes on with everything but new commands, which could not become durable any
//! earlier and share the next sync.

use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;
use tokio::task::JoinHandle;

use crate::client::{ClientReply, ClientRequest};
use crate::ids::{Epoch, NodeId};
use crate::message::Response;
use crate::node_loop::{
    Arrival, Departure, DiskDescription, NodeError, NodeLoop, Outbox, StateDescription,
};
use crate::raft::{QuorumDescription, Role, Ticket};
use crate::storage::disk::Disk;
use crate::storage::{LogSync, LogSynced};
use crate::trace::{TraceEvent, Traced};

use super::addresses::Addresses;
use super::admission::Seat;
use super::clock::{ClockState, SkewedClock, monotonic_ns};
use super::gate::Gate;
use super::log;
use super::metrics::{Counted, LastApplied, Metrics};
use super::peers::Peers;
use super::pending::Pending;
use super::trace_writer::TraceWriter;

/// How many messages are taken at once at most.
const MAX_BATCHED_MESSAGES: usize = 4096;

/// Longest sleep. Bounds how late the loop notices whatever cannot wake it.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// Shortest sleep. Bounds what a deadline that is always due can cost.
const MIN_WAIT: Duration = Duration::from_micros(200);

/// How long the node goes on without its disk. A leader whose disk hangs for longer falls silent, so
/// that the others replace it.
const SYNC_PATIENCE: Duration = Duration::from_millis(100);

/// How long an orderly stop may take.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);

/// Something that the task is told or asked.
#[derive(Debug)]
pub(crate) enum Message {
    /// For the node.
    Arrival(Arrival),
    /// A client asks.
    Client {
        /// Where to answer.
        ticket: Ticket,
        /// What is asked.
        request: ClientRequest,
        /// Taken for as long as this message waits.
        seat: Seat,
    },
    /// Bend the clock.
    SetClock {
        /// Offset from true time.
        offset_ms: i64,
        /// Rate, 1 being true.
        rate: f64,
        /// What came of it.
        reply: oneshot::Sender<Result<ClockState, String>>,
    },
    /// Describe the node.
    Describe {
        /// The description.
        reply: oneshot::Sender<Snapshot>,
    },
}

/// A node at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) quorum: QuorumDescription,
    pub(crate) state: StateDescription,
    pub(crate) disk: DiskDescription,
    pub(crate) counted: Counted,
    pub(crate) last_applied: LastApplied,
    pub(crate) clock: ClockState,
}

/// The task has stopped; what was sent was not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped;

/// Where to send messages for the task.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox(UnboundedSender<Message>);

/// The end of a mailbox that the driver reads.
pub(crate) type Inbox = UnboundedReceiver<Message>;

impl Mailbox {
    /// A mailbox, and the end that the driver reads.
    pub(crate) fn new() -> (Self, Inbox) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub(crate) fn send(&self, message: Message) -> Result<(), Stopped> {
        self.0.send(message).map_err(|_| Stopped)
    }

    /// Asks the task for a description; `None` when it has stopped.
    pub(crate) async fn describe(&self) -> Option<Snapshot> {
        let (reply, receiver) = oneshot::channel();
        self.send(Message::Describe { reply }).ok()?;
        receiver.await.ok()
    }

    /// Bends the clock; `None` when the task has stopped.
    pub(crate) async fn set_clock(
        &self,
        offset_ms: i64,
        rate: f64,
    ) -> Option<Result<ClockState, String>> {
        let (reply, receiver) = oneshot::channel();
        self.send(Message::SetClock {
            offset_ms,
            rate,
            reply,
        })
        .ok()?;
        receiver.await.ok()
    }
}

/// Leader and epoch as of the last time the loop ran, both from one look.
#[derive(Debug, Clone, Default)]
pub(crate) struct View(Arc<AtomicU64>);

impl View {
    fn publish(&self, leader: Option<NodeId>, epoch: Epoch) {
        // Ids are not negative, so the unsigned successor leaves 0 for "unknown".
        let leader = leader.map_or(0, |leader| leader.0 as u32 + 1);
        self.0.store(
            u64::from(leader) << 32 | u64::from(epoch.0 as u32),
            Ordering::Release,
        );
    }

    pub(crate) fn look(&self) -> (Option<NodeId>, Epoch) {
        let packed = self.0.load(Ordering::Acquire);
        let leader = ((packed >> 32) as u32)
            .checked_sub(1)
            .map(|id| NodeId(id as i32));
        (leader, Epoch(packed as u32 as i32))
    }
}

/// Why the task ended other than by an orderly stop.
#[derive(Debug, thiserror::Error)]
pub(crate) enum DriverError {
    /// The node cannot go on.
    #[error(transparent)]
    Node(#[from] NodeError),
    /// The evidence cannot be written, so what follows from it must not leave.
    #[error("cannot write the trace file {}: {source}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
}

/// Brings what leaves the node on its way, never before the trace events that explain it.
#[derive(Debug)]
pub(crate) struct ProcessOutbox {
    pub(crate) trace: Option<TraceWriter>,
    pub(crate) peers: Peers,
    pub(crate) clients: Pending<ClientReply>,
    pub(crate) askers: Pending<Response>,
    gate: Gate,
    metrics: Metrics,
    /// Whether other voters may be in force, since somebody last looked.
    voters_changed: bool,
    /// Set once the trace cannot be written; nothing leaves from then on.
    trace_failure: Option<io::Error>,
}

impl ProcessOutbox {
    pub(crate) fn new(
        trace: Option<TraceWriter>,
        peers: Peers,
        clients: Pending<ClientReply>,
        askers: Pending<Response>,
    ) -> Self {
        Self {
            trace,
            peers,
            clients,
            askers,
            gate: Gate::default(),
            metrics: Metrics::default(),
            voters_changed: false,
            trace_failure: None,
        }
    }

    fn flush_trace(&mut self) {
        if let Some(trace) = &mut self.trace
            && self.trace_failure.is_none()
        {
            self.trace_failure = trace.flush().err();
        }
    }

    /// Writes what is left of the trace.
    ///
    /// # Errors
    /// When this or an earlier write failed.
    pub(crate) fn finish(&mut self) -> Result<(), DriverError> {
        self.flush_trace();
        match (self.trace_failure.take(), &self.trace) {
            (Some(source), Some(trace)) => Err(DriverError::Trace {
                path: trace.path().to_path_buf(),
                source,
            }),
            _ => Ok(()),
        }
    }
}

impl Outbox for ProcessOutbox {
    fn depart(&mut self, departure: Departure) {
        self.flush_trace();
        if self.trace_failure.is_some() {
            return;
        }
        match departure {
            Departure::Send {
                peer,
                endpoint,
                correlation,
                request,
            } => {
                self.peers
                    .send(peer, endpoint.as_deref(), correlation, request);
            }
            Departure::Reply { ticket, response } => self.askers.answer(ticket, response),
            Departure::ClientReply { ticket, reply } => {
                self.gate.answered(ticket, Instant::now());
                self.clients.answer(ticket, reply);
            }
        }
    }

    fn wants_messages(&self) -> bool {
        self.trace.as_ref().is_some_and(TraceWriter::wants_messages)
    }

    fn trace(&mut self, traced: Traced) {
        report(&traced);
        self.voters_changed |= matches!(
            traced.event,
            TraceEvent::VotersAppended { .. }
                | TraceEvent::Truncate { .. }
                | TraceEvent::SnapshotInstalled { .. }
        );
        let now_ns = monotonic_ns();
        // The monotonic clock of a machine does not go below zero.
        self.metrics.observe(now_ns.unsigned_abs(), &traced);
        if let Some(trace) = &mut self.trace {
            trace.record(now_ns, &traced);
        }
    }
}

/// Tells the log what matters to those who run the node.
fn report(Traced { epoch, event }: &Traced) {
    let role = match event {
        TraceEvent::Started { role, .. } | TraceEvent::RoleChange { role, .. } => Some(*role),
        _ => None,
    };
    log::note_standing(role, *epoch);
    match event {
        TraceEvent::Started {
            log_start,
            log_end,
            truncated_bytes,
            ..
        } => tracing::info!(
            log_start = log_start.0,
            log_end = log_end.0,
            truncated_bytes,
            "recovered"
        ),
        TraceEvent::RoleChange {
            role,
            leader,
            reason,
            ..
        } => {
            let leader = leader.as_deref().unwrap_or("unknown");
            tracing::info!(leader, reason, "now {}", role_name(*role));
        }
        TraceEvent::Truncate { log_end } => {
            tracing::info!(log_end = log_end.0, "the log was cut back to the leader's");
        }
        TraceEvent::SnapshotFrozen { end_offset, .. } => {
            tracing::info!(end_offset = end_offset.0, "took a snapshot");
        }
        TraceEvent::SnapshotInstalled { end_offset, .. } => {
            tracing::info!(
                end_offset = end_offset.0,
                "goes on from the leader's snapshot"
            );
        }
        TraceEvent::LogStartAdvanced { log_start } => {
            tracing::info!(log_start = log_start.0, "deleted the log before a snapshot");
        }
        TraceEvent::VotersAppended { offset, voters, .. } => {
            tracing::info!(offset = offset.0, "the voters are {}", voters.join(", "));
        }
        TraceEvent::VotePersisted { candidate } => tracing::debug!(candidate, "voted"),
        TraceEvent::EpochAdopted { leader } => {
            let leader = leader.as_deref().unwrap_or("unknown");
            tracing::debug!(leader, "adopted an epoch or its leader");
        }
        // Refusals to start end the process with a line of their own.
        TraceEvent::RefusedToStart { .. }
        | TraceEvent::Append { .. }
        | TraceEvent::Flush { .. }
        | TraceEvent::RpcSent { .. }
        | TraceEvent::RpcReceived { .. }
        | TraceEvent::ReadServed { .. }
        | TraceEvent::HighWatermark { .. } => {}
    }
}

/// The role as people and JSON call it.
pub(crate) fn role_name(role: Role) -> &'static str {
    match role {
        Role::Unattached => "unattached",
        Role::Prospective => "prospective",
        Role::Candidate => "candidate",
        Role::Leader => "leader",
        Role::Follower => "follower",
        Role::Resigned => "resigned",
    }
}

/// Everything that a node's loop needs of the process around it.
#[derive(Debug)]
pub(crate) struct Driver {
    clock: SkewedClock,
    inbox: Inbox,
    outbox: ProcessOutbox,
    view: View,
    addresses: Arc<Addresses>,
    /// Set by an orderly stop: when it is over at the latest.
    stop_by: Option<Instant>,
    /// The sync that is under way.
    syncing: Option<Syncing>,
}

/// A sync that another thread runs.
#[derive(Debug)]
struct Syncing {
    task: JoinHandle<LogSynced>,
    since: Instant,
}

impl Syncing {
    fn begin(sync: LogSync) -> Self {
        Self {
            task: tokio::task::spawn_blocking(move || sync.run()),
            since: Instant::now(),
        }
    }

    /// Waits for its end. May be called again if that was not waited for.
    async fn end(&mut self) -> LogSynced {
        match (&mut self.task).await {
            Ok(synced) => synced,
            Err(panicked) => std::panic::resume_unwind(panicked.into_panic()),
        }
    }
}

/// Why the task goes on.
#[derive(Debug)]
enum Woken {
    /// Something is there, or may be.
    ByMessage,
    /// Time has passed.
    ByTime,
    /// The disk is done.
    BySync(LogSynced),
    /// Nobody can send any more.
    ByEnd,
}

/// What was taken from the mailbox.
#[derive(Debug, Default)]
struct Taken {
    arrivals: Vec<Arrival>,
    descriptions: Vec<oneshot::Sender<Snapshot>>,
}

impl Driver {
    pub(crate) fn new(
        clock: SkewedClock,
        inbox: Inbox,
        outbox: ProcessOutbox,
        view: View,
        addresses: Arc<Addresses>,
    ) -> Self {
        Self {
            clock,
            inbox,
            outbox,
            view,
            addresses,
            stop_by: None,
            syncing: None,
        }
    }

    /// Runs the node until it has stopped in an orderly way.
    ///
    /// # Errors
    /// When it cannot go on. Nothing that was held back may leave any more.
    pub(crate) async fn run<D: Disk>(mut self, mut node: NodeLoop<D>) -> Result<(), DriverError> {
        self.view.publish(node.leader(), node.epoch());
        self.addresses.learn(&node.describe());
        while !self.has_stopped(&node) {
            let waits_since_ns = monotonic_ns();
            let mut taken = Taken::default();
            let woken = self.wait(node.next_deadline_ns(), &mut taken).await;
            let waited_ns = monotonic_ns().abs_diff(waits_since_ns);
            self.outbox.metrics.note_wait(waited_ns);
            if matches!(woken, Woken::ByEnd) {
                return Ok(());
            }
            self.run_once(&mut node, woken, &mut taken).await?;
            self.view.publish(node.leader(), node.epoch());
            if std::mem::take(&mut self.outbox.voters_changed) {
                self.addresses.learn(&node.describe());
            }
            for reply in taken.descriptions {
                // Fails only when whoever asked has left.
                let _ = reply.send(self.snapshot(&node));
            }
        }
        // In this order, whoever still asks either cannot send any more or is let go here.
        drop(self.inbox);
        self.outbox.clients.abandon();
        self.outbox.askers.abandon();
        if let Some(mut syncing) = self.syncing.take() {
            let now_ns = self.clock.now_ns(monotonic_ns());
            node.finish_sync(now_ns, syncing.end().await, &mut self.outbox)?;
        }
        Ok(node.close()?)
    }

    fn snapshot<D: Disk>(&self, node: &NodeLoop<D>) -> Snapshot {
        Snapshot {
            quorum: node.describe(),
            state: node.state(),
            disk: node.disk_description(),
            counted: self.outbox.metrics.counted(monotonic_ns().unsigned_abs()),
            last_applied: LastApplied {
                timestamp_ms: node.last_applied_timestamp_ms(),
                now_ms: wall_clock_ms(),
            },
            clock: self.clock.state(monotonic_ns()),
        }
    }

    /// What [`NodeLoop::process`] does, except that another thread waits for the disk.
    async fn run_once<D: Disk>(
        &mut self,
        node: &mut NodeLoop<D>,
        woken: Woken,
        taken: &mut Taken,
    ) -> Result<(), DriverError> {
        if let Woken::BySync(synced) = woken {
            self.syncing = None;
            let now_ns = self.clock.now_ns(monotonic_ns());
            node.finish_sync(now_ns, synced, &mut self.outbox)?;
        }
        self.take_in(node, taken)?;
        if node.awaits_sync() {
            // Followers store what they were just sent while this node stores it, and whoever has
            // come by now shares the sync.
            tokio::task::yield_now().await;
            self.take_waiting(taken);
            self.take_in(node, taken)?;
            self.syncing = Some(Syncing::begin(node.begin_sync()?));
        }
        let now_ns = self.clock.now_ns(monotonic_ns());
        node.settle(now_ns, wall_clock_ms(), &mut self.outbox)?;
        self.outbox.finish()?;
        let discarded = node.take_discarded();
        if !discarded.is_empty() {
            // Nobody waits for it: it only must not keep this thread busy.
            drop(tokio::task::spawn_blocking(move || drop(discarded)));
        }
        Ok(())
    }

    /// Hands over what was taken, and the commands with it if no sync keeps them waiting.
    fn take_in<D: Disk>(
        &mut self,
        node: &mut NodeLoop<D>,
        taken: &mut Taken,
    ) -> Result<(), DriverError> {
        let mut arrivals = std::mem::take(&mut taken.arrivals);
        if self.syncing.is_none() {
            arrivals.extend(self.outbox.gate.open(Instant::now()));
        }
        let now_ns = self.clock.now_ns(monotonic_ns());
        Ok(node.take_in(now_ns, wall_clock_ms(), arrivals, &mut self.outbox)?)
    }

    /// Waits until something is to be done, and takes everything that is there by then.
    async fn wait(&mut self, deadline_ns: u64, taken: &mut Taken) -> Woken {
        let wait = self
            .clock
            .time_until(deadline_ns, monotonic_ns(), MAX_WAIT)
            .min(
                self.outbox
                    .gate
                    .patience(Instant::now())
                    .unwrap_or(MAX_WAIT),
            )
            .max(MIN_WAIT);
        let woken = match &mut self.syncing {
            Some(syncing) if syncing.since.elapsed() >= SYNC_PATIENCE => {
                Woken::BySync(syncing.end().await)
            }
            Some(syncing) => tokio::select! {
                biased;
                synced = syncing.end() => Woken::BySync(synced),
                message = self.inbox.recv() => self.woken_by(message, taken),
                () = tokio::time::sleep(wait) => Woken::ByTime,
            },
            None => match tokio::time::timeout(wait, self.inbox.recv()).await {
                Ok(message) => self.woken_by(message, taken),
                Err(_) => Woken::ByTime,
            },
        };
        self.take_waiting(taken);
        woken
    }

    fn woken_by(&mut self, message: Option<Message>, taken: &mut Taken) -> Woken {
        match message {
            Some(message) => {
                self.take(message, taken);
                Woken::ByMessage
            }
            None => Woken::ByEnd,
        }
    }

    /// Takes what is there without waiting.
    fn take_waiting(&mut self, taken: &mut Taken) {
        for _ in 1..MAX_BATCHED_MESSAGES {
            let Ok(message) = self.inbox.try_recv() else {
                return;
            };
            self.take(message, taken);
        }
    }

    fn take(&mut self, message: Message, taken: &mut Taken) {
        match message {
            Message::Arrival(arrival) => {
                if arrival == Arrival::Shutdown {
                    self.stop_by
                        .get_or_insert_with(|| Instant::now() + SHUTDOWN_LIMIT);
                }
                taken.arrivals.push(arrival);
            }
            Message::Client {
                ticket,
                request,
                seat,
            } => {
                let is_read = request.is_read();
                let arrival = Arrival::Client { ticket, request };
                if is_read {
                    taken.arrivals.push(arrival);
                } else {
                    self.outbox.gate.add(arrival, seat, Instant::now());
                }
            }
            Message::SetClock {
                offset_ms,
                rate,
                reply,
            } => {
                let true_ns = monotonic_ns();
                let outcome = self.clock.set(true_ns, offset_ms, rate);
                // Fails only when whoever asked has left.
                let _ = reply.send(outcome.map(|()| self.clock.state(true_ns)));
            }
            Message::Describe { reply } => taken.descriptions.push(reply),
        }
    }

    fn has_stopped<D: Disk>(&self, node: &NodeLoop<D>) -> bool {
        self.stop_by
            .is_some_and(|limit| node.is_ready_to_stop() || Instant::now() >= limit)
    }
}

fn wall_clock_ms() -> i64 {
    SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .map_or(0, |since| {
            i64::try_from(since.as_millis()).unwrap_or(i64::MAX)
        })
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;
    use std::path::Path;

    use tokio::runtime::Handle;

    use super::*;
    use crate::client::{ClientReply, UnknownCode};
    use crate::ids::Offset;
    use crate::server::TraceOptions;
    use crate::server::pending::Tickets;

    fn outbox(trace: &Path) -> ProcessOutbox {
        let options = TraceOptions {
            path: trace.into(),
            origin_ns: 0,
            messages: false,
            incarnation: 1,
        };
        let (mailbox, _inbox) = Mailbox::new();
        let timeout = Duration::from_secs(1);
        let peers = Peers::new(Handle::current(), mailbox, &BTreeMap::new(), timeout);
        let tickets = Arc::new(Tickets::default());
        ProcessOutbox::new(
            Some(TraceWriter::open(&options, NodeId(1)).unwrap()),
            peers,
            Pending::new(Arc::clone(&tickets)),
            Pending::new(tickets),
        )
    }

    fn flush() -> Traced {
        Traced {
            epoch: Epoch(1),
            event: TraceEvent::Flush { log_end: Offset(1) },
        }
    }

    fn reply() -> ClientReply {
        ClientReply::Unknown {
            code: UnknownCode::Stopping,
            epoch: Epoch(1),
        }
    }

    #[tokio::test]
    async fn a_trace_line_is_in_the_file_before_what_follows_leaves() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.jsonl");
        let lines = || std::fs::read_to_string(&path).unwrap().lines().count();
        let mut outbox = outbox(&path);
        let mut waiting = outbox.clients.wait();
        outbox.trace(flush());
        outbox.trace(flush());
        let ticket = waiting.ticket();
        outbox.depart(Departure::ClientReply {
            ticket,
            reply: reply(),
        });
        assert_eq!(waiting.answer().await, Some(reply()));
        assert_eq!(lines(), 2);
        outbox.trace(flush());
        outbox.finish().unwrap();
        assert_eq!(lines(), 3, "nothing stays behind after a call");
    }

    #[tokio::test]
    async fn nothing_leaves_once_the_trace_cannot_be_written() {
        let mut outbox = outbox(Path::new("/dev/full"));
        let waiting = outbox.clients.wait();
        let ticket = waiting.ticket();
        outbox.trace(flush());
        outbox.depart(Departure::ClientReply {
            ticket,
            reply: reply(),
        });
        assert_eq!(outbox.clients.len(), 1, "the reply stayed");
        let error = outbox.finish().unwrap_err();
        assert!(
            error
                .to_string()
                .starts_with("cannot write the trace file /dev/full"),
            "{error}"
        );
    }

    #[test]
    fn a_view_keeps_leader_and_epoch_together() {
        let view = View::default();
        assert_eq!(view.look(), (None, Epoch(0)));
        for (leader, epoch) in [
            (Some(NodeId(0)), 7),
            (Some(NodeId(i32::MAX)), i32::MAX),
            (None, 8),
            (None, 0),
        ] {
            view.publish(leader, Epoch(epoch));
            assert_eq!(view.look(), (leader, Epoch(epoch)));
        }
    }
}
