//! Owns the task that a node's loop lives in: its mailbox, its clock and when it wakes up.
//! Never makes a protocol decision and never touches a socket.
//!
//! The task shares one thread with the HTTP front and the connections to peers: handing every message
//! from thread to thread costs more than what is done with it. While the disk works, which a leader has
//! another thread wait for, the task goes on with everything but new commands, which could not become
//! durable any earlier and share the next sync.

use std::future::poll_fn;
use std::io;
use std::path::PathBuf;
use std::sync::Arc;
use std::task::Poll;
use std::time::{Duration, Instant, SystemTime, UNIX_EPOCH};

use tokio::sync::oneshot;

use crate::client::{ClientReply, RefusalCode};
use crate::message::ErrorCode;
use crate::node_loop::{Arrival, NodeError, NodeLoop};
use crate::raft::{self, Role};
use crate::storage::LogSynced;
use crate::storage::disk::Disk;

use super::addresses::Addresses;
use super::alarm::Alarm;
use super::clock::{SkewedClock, monotonic_ns};
use super::complaints;
use super::mailbox::{Inbox, Message, Snapshot, View};
use super::metrics::LastApplied;
use super::outbox::ProcessOutbox;
use super::sync_desk::SyncDesk;

/// How many messages are taken at once at most.
const MAX_BATCHED_MESSAGES: usize = 4096;

/// Longest sleep. Bounds how late the loop notices whatever cannot wake it.
const MAX_WAIT: Duration = Duration::from_millis(50);

/// Shortest sleep. Bounds what a deadline that is always due can cost.
const MIN_WAIT: Duration = Duration::from_micros(200);

/// How long the node goes on without its disk. A leader whose disk hangs for longer falls silent, so
/// that the others replace it.
const SYNC_PATIENCE: Duration = Duration::from_millis(100);

/// How long a sync takes at most that is worth waiting for on this thread.
const QUICK_SYNC: Duration = Duration::from_millis(2);

/// How many commands keep a leader so little busy that it can wait for its disk itself.
const FEW_COMMANDS_COUNT: usize = 4;

/// How long an orderly stop may take.
const SHUTDOWN_LIMIT: Duration = Duration::from_secs(1);
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
    desk: Arc<SyncDesk>,
    /// The sync that is under way.
    syncing: Option<Syncing>,
    /// How long the one before took.
    last_sync: Duration,
    alarm: Alarm,
}

/// A sync that is under way.
#[derive(Debug)]
struct Syncing {
    synced: oneshot::Receiver<LogSynced>,
    since: Instant,
}

impl Syncing {
    /// Waits for its end, unless the thread that ran it has panicked. May be called again if that was not
    /// waited for.
    async fn end(&mut self) -> Woken {
        match (&mut self.synced).await {
            Ok(synced) => Woken::Sync(synced),
            Err(_) => Woken::End,
        }
    }
}

/// Why the task goes on.
#[derive(Debug)]
enum Woken {
    /// Something is there, or may be.
    Mail,
    /// Time has passed.
    Time,
    /// The disk is done.
    Sync(LogSynced),
    /// Nobody can send any more.
    End,
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
        desk: Arc<SyncDesk>,
    ) -> Self {
        Self {
            clock,
            inbox,
            outbox,
            view,
            addresses,
            stop_by: None,
            desk,
            syncing: None,
            last_sync: Duration::ZERO,
            alarm: Alarm::default(),
        }
    }

    /// Runs the node until it has stopped in an orderly way.
    ///
    /// # Errors
    /// When it cannot go on. Nothing that was held back may leave any more.
    pub(crate) async fn run<D: Disk>(mut self, mut node: NodeLoop<D>) -> Result<(), DriverError> {
        self.view.publish(node.serving_leader(), node.epoch());
        let quorum = node.describe();
        complaints::note_own_place(&quorum);
        self.addresses.learn(&quorum, node.heard_endpoints());
        let mut endpoint_news = node.endpoint_news();
        while !self.has_stopped(&node) {
            let waits_since_ns = monotonic_ns();
            let mut taken = Taken::default();
            let woken = self.wait(node.next_deadline_ns(), &mut taken).await;
            let waited_ns = monotonic_ns().abs_diff(waits_since_ns);
            self.outbox.metrics.note_wait(waited_ns);
            if matches!(woken, Woken::End) {
                return Ok(());
            }
            self.run_once(&mut node, woken, &mut taken).await?;
            self.view.publish(node.serving_leader(), node.epoch());
            let news_before = std::mem::replace(&mut endpoint_news, node.endpoint_news());
            if std::mem::take(&mut self.outbox.voters_changed) || news_before != endpoint_news {
                self.addresses
                    .learn(&node.describe(), node.heard_endpoints());
            }
            for reply in taken.descriptions {
                // Fails only when whoever asked has left.
                let _ = reply.send(self.snapshot(&node));
            }
        }
        // In this order, whoever still asks either cannot send any more or is let go here.
        self.refuse_waiting(&node);
        drop(self.inbox);
        self.outbox.clients.abandon();
        self.outbox.askers.abandon();
        if let Some(mut syncing) = self.syncing.take()
            && let Woken::Sync(synced) = syncing.end().await
        {
            let now_ns = self.clock.now_ns(monotonic_ns());
            node.finish_sync(now_ns, synced, &mut self.outbox)?;
            self.outbox.finish()?;
        }
        Ok(node.close()?)
    }

    fn snapshot<D: Disk>(&self, node: &NodeLoop<D>) -> Snapshot {
        Snapshot {
            quorum: node.describe(),
            state: node.state(),
            disk: node.disk_description(),
            loader: node.loader_description(),
            counted: self.outbox.metrics.counted(monotonic_ns().unsigned_abs()),
            last_applied: LastApplied {
                timestamp_ms: node.last_applied_timestamp_ms(),
                now_ms: wall_clock_ms(),
            },
            clock: self.clock.state(monotonic_ns()),
            serving_leader: node.serving_leader(),
            is_stopping: self.stop_by.is_some(),
        }
    }

    /// What [`NodeLoop::process`] does, except that another thread waits for the disk.
    async fn run_once<D: Disk>(
        &mut self,
        node: &mut NodeLoop<D>,
        woken: Woken,
        taken: &mut Taken,
    ) -> Result<(), DriverError> {
        self.outbox.has_sent = false;
        if let Woken::Sync(synced) = woken {
            if let Some(syncing) = self.syncing.take() {
                self.last_sync = syncing.since.elapsed();
            }
            let now_ns = self.clock.now_ns(monotonic_ns());
            node.finish_sync(now_ns, synced, &mut self.outbox)?;
        }
        self.take_in(node, taken)?;
        if node.awaits_sync() {
            if std::mem::take(&mut self.outbox.has_sent) {
                // Followers store what they were just sent while this node stores it, and whoever has
                // come by now shares the sync.
                self.let_leave().await;
                if !self.is_quiet() {
                    tokio::task::yield_now().await;
                }
                self.take_waiting(taken);
                self.take_in(node, taken)?;
            }
            self.begin_sync(node)?;
        }
        if std::mem::take(&mut self.outbox.has_sent) {
            // Before everything that nobody waits for.
            self.let_leave().await;
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

    /// Brings what has left into the sockets: requests at once, answers by letting the tasks run that wait for
    /// them. Looks at no socket otherwise, which would take longer than what is still to be done.
    async fn let_leave(&mut self) {
        self.outbox.send_off();
        let mut is_behind = false;
        poll_fn(|context| {
            if std::mem::replace(&mut is_behind, true) {
                return Poll::Ready(());
            }
            // Behind all that are ready by now.
            context.waker().wake_by_ref();
            Poll::Pending
        })
        .await;
    }

    /// Whether so little is under way that hardly anybody else comes by now.
    fn is_quiet(&self) -> bool {
        self.outbox.gate.under_way_count() <= 1
    }

    /// Begins a sync: on this thread if there is little else to do and the disk is quick, else on another,
    /// so that clients are served and what followers have stored is seen meanwhile.
    fn begin_sync<D: Disk>(&mut self, node: &mut NodeLoop<D>) -> Result<(), NodeError> {
        let sync = node.begin_sync(&mut self.outbox)?;
        let is_idle =
            node.role() != Role::Leader || self.outbox.gate.under_way_count() <= FEW_COMMANDS_COUNT;
        let synced = if is_idle && self.last_sync < QUICK_SYNC {
            self.desk.leave(sync)
        } else {
            let (sender, receiver) = oneshot::channel();
            // Fails only when the loop is gone.
            tokio::task::spawn_blocking(move || drop(sender.send(sync.run())));
            receiver
        };
        self.syncing = Some(Syncing {
            synced,
            since: Instant::now(),
        });
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
        let due = tokio::time::Instant::now() + wait;
        let syncing = self.syncing.as_mut();
        let woken = match syncing {
            Some(syncing) if syncing.since.elapsed() >= SYNC_PATIENCE => syncing.end().await,
            Some(syncing) => tokio::select! {
                biased;
                woken = syncing.end() => woken,
                message = self.inbox.recv() => self.woken_by(message, taken),
                () = self.alarm.ring_by(due) => Woken::Time,
            },
            None => tokio::select! {
                biased;
                message = self.inbox.recv() => self.woken_by(message, taken),
                () = self.alarm.ring_by(due) => Woken::Time,
            },
        };
        self.take_waiting(taken);
        woken
    }

    fn woken_by(&mut self, message: Option<Message>, taken: &mut Taken) -> Woken {
        match message {
            Some(message) => {
                self.take(message, taken);
                Woken::Mail
            }
            None => Woken::End,
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
                sent_at,
            } => {
                let queued_ns = u64::try_from(sent_at.elapsed().as_nanos()).unwrap_or(u64::MAX);
                self.outbox.metrics.note_queued(queued_ns);
                let is_read = request.is_read();
                let request = Box::new(request);
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

    /// Whoever came too late for the node to see is told so: nothing became of what they asked for.
    fn refuse_waiting<D: Disk>(&mut self, node: &NodeLoop<D>) {
        let epoch = node.epoch();
        self.inbox.close();
        while let Ok(message) = self.inbox.try_recv() {
            match message {
                Message::Client { ticket, .. } => {
                    let code = RefusalCode::BrokerNotAvailable;
                    let reply = ClientReply::Refused {
                        code,
                        leader: node.serving_leader(),
                        epoch,
                    };
                    self.outbox.clients.answer(ticket, reply);
                }
                Message::Arrival(Arrival::PeerRequest {
                    ticket, request, ..
                }) => {
                    let error = ErrorCode::BrokerNotAvailable;
                    let response = raft::refusal(&request, error, node.leader(), epoch);
                    self.outbox.askers.answer(ticket, response);
                }
                // Dropping what else may be asked tells as much.
                _ => {}
            }
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
