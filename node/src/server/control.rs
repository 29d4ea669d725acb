//! Owns the control socket: what a harness may ask a node process to do or to tell.
//! Never exists unless the command line hands over a connected socket; no client can reach it.

use std::fs;
use std::io;
use std::os::fd::{FromRawFd, OwnedFd, RawFd};
use std::os::unix::fs::FileTypeExt;
use std::os::unix::net::UnixStream;

use nix::sys::signal::{Signal, kill};
use nix::sys::socket::{SockType, getsockopt, sockopt};
use nix::unistd::Pid;
use serde::{Deserialize, Serialize};
use serde_json::Value;
use tokio::io::{AsyncBufReadExt, AsyncReadExt, AsyncWriteExt, BufReader};
use tokio::net::unix::{OwnedReadHalf, OwnedWriteHalf};
use tokio::sync::Notify;
use tokio::sync::mpsc::{UnboundedReceiver, UnboundedSender, unbounded_channel};

use crate::ids::{Epoch, NodeId, Offset};
use crate::moment::{Edge, Moment, MomentSet};
use crate::node_loop::Arrival;
use crate::raft::Role;
use crate::storage::faulty_disk::DiskControl;
use crate::storage::injected_faults::InjectedFault;

use super::barriers::{Barriers, Reached};
use super::clock::ClockState;
use super::mailbox::{Mailbox, Message};

/// Longest command line, in bytes.
const MAX_LINE_BYTES: u64 = 64 * 1024;

/// Takes over an inherited descriptor.
///
/// # Errors
/// When it is not a connected Unix stream socket; the message says what it is instead.
pub(crate) fn inherit(descriptor: RawFd) -> Result<UnixStream, String> {
    let refuse = |what: &str| Err(format!("file descriptor {descriptor} {what}"));
    // Standard input may be the socket: that is how to pass one on without touching descriptors.
    if descriptor < 0 || descriptor == 1 || descriptor == 2 {
        return refuse("is a stream for output, not a control socket");
    }
    match fs::metadata(format!("/dev/fd/{descriptor}")) {
        Err(_) => return refuse("is not open; it must be inherited from the harness"),
        Ok(metadata) if !metadata.file_type().is_socket() => return refuse("is not a socket"),
        Ok(_) => {}
    }
    // SAFETY: the descriptor was just found open, and nothing in this process owns it: the command
    // line hands it over, before the process has opened anything of its own. Standard input is
    // nobody's either, as the process never reads it.
    #[allow(unsafe_code)]
    let owned = unsafe { OwnedFd::from_raw_fd(descriptor) };
    if !matches!(getsockopt(&owned, sockopt::SockType), Ok(SockType::Stream)) {
        return refuse("is not a stream socket");
    }
    let stream = UnixStream::from(owned);
    if stream.local_addr().is_err() {
        return refuse("is not a Unix domain socket");
    }
    if stream.peer_addr().is_err() {
        return refuse("is not connected");
    }
    match stream.set_nonblocking(true) {
        Ok(()) => Ok(stream),
        Err(error) => refuse(&format!("cannot be used without blocking: {error}")),
    }
}

#[derive(Debug, Deserialize)]
struct Envelope {
    #[serde(default)]
    id: Value,
}

#[derive(Debug, Deserialize)]
#[serde(tag = "command", rename_all = "kebab-case")]
enum Command {
    Status,
    Clock {
        #[serde(default)]
        offset_ms: i64,
        #[serde(default = "true_rate")]
        rate: f64,
    },
    /// Take a snapshot as soon as one may be taken.
    Snapshot,
    /// Lets the disk do something wrong from now on.
    DiskFault {
        /// Names the fault.
        fault_id: u64,
        #[serde(flatten)]
        fault: InjectedFault,
    },
    /// Ends a disk fault.
    DiskHeal {
        fault_id: u64,
    },
    /// End as by SIGKILL, with everything that was written left to the operating system.
    Die,
    Shutdown,
    /// Puts barriers at these places, and takes all others away.
    Barriers {
        at: Vec<Place>,
    },
    /// Lets the node go on from a barrier. There is no answer.
    Continue {
        barrier: u64,
    },
}

/// A place for a barrier.
#[derive(Debug, Deserialize)]
struct Place {
    event: String,
    edge: String,
}

fn true_rate() -> f64 {
    1.0
}

#[derive(Debug, Serialize)]
struct Answer {
    id: Value,
    ok: bool,
    #[serde(flatten)]
    detail: Detail,
}

fn answer(id: Value, outcome: Result<Detail, String>) -> Answer {
    let ok = outcome.is_ok();
    let detail = outcome.unwrap_or_else(|error| Detail::Error { error });
    Answer { id, ok, detail }
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Detail {
    Status(Status),
    Clock { clock: ClockState },
    DiskHealed { hit_count: u64 },
    Done {},
    Error { error: String },
}

#[derive(Debug, Serialize)]
struct Status {
    node: String,
    http_port: u16,
    role: Role,
    epoch: Epoch,
    leader: Option<String>,
    high_watermark: Option<Offset>,
    log_end: Offset,
    /// Where the newest snapshot ends; 0 where there is none.
    snapshot_end: Offset,
    clock: ClockState,
}

/// What the control socket acts on.
#[derive(Debug)]
pub(crate) struct Controlled {
    pub(crate) node: NodeId,
    pub(crate) http_port: u16,
    pub(crate) mailbox: Mailbox,
    pub(crate) disk: DiskControl,
    /// Notified when an orderly stop is asked for.
    pub(crate) shutdown: std::sync::Arc<Notify>,
    /// Where the node waits if it is asked to.
    pub(crate) barriers: Barriers,
}

/// A line for the harness.
#[derive(Debug)]
struct Line {
    text: Vec<u8>,
    /// Whether the process stops once the line is out.
    stop: bool,
}

impl Line {
    fn of(content: &impl Serialize, stop: bool) -> Self {
        let mut text =
            serde_json::to_vec(content).expect("answers are structs of numbers, strings and JSON");
        text.push(b'\n');
        Self { text, stop }
    }
}

impl Controlled {
    /// Answers commands in order until the other end is gone, and tells it which barriers the node comes to.
    /// What is about barriers is answered at once: the node may be waiting at one, and nothing else could
    /// be answered before it goes on.
    ///
    /// # Errors
    /// When the socket fails, which means the same as its end.
    pub(crate) async fn serve(
        self,
        stream: UnixStream,
        reached: UnboundedReceiver<Reached>,
    ) -> io::Result<()> {
        let (input, output) = tokio::net::UnixStream::from_std(stream)?.into_split();
        let (queue, queued) = unbounded_channel();
        let (answers, outgoing) = unbounded_channel();
        tokio::select! {
            ended = self.read(input, queue, answers.clone()) => ended,
            () = self.obey_in_order(queued, answers) => Ok(()),
            ended = self.write(output, outgoing, reached) => ended,
        }
    }

    async fn read(
        &self,
        input: OwnedReadHalf,
        queue: UnboundedSender<(Value, Command)>,
        answers: UnboundedSender<Line>,
    ) -> io::Result<()> {
        let mut input = BufReader::new(input);
        let mut line = Vec::new();
        loop {
            line.clear();
            let read_bytes = (&mut input)
                .take(MAX_LINE_BYTES)
                .read_until(b'\n', &mut line)
                .await?;
            if read_bytes == 0 {
                return Ok(());
            }
            if line.last() != Some(&b'\n') {
                let what = "a control command is too long or has no end of line";
                return Err(io::Error::new(io::ErrorKind::InvalidData, what));
            }
            let id = serde_json::from_slice(&line).map_or(Value::Null, |Envelope { id }| id);
            let outcome = match serde_json::from_slice(&line) {
                Ok(Command::Barriers { at }) => self.arm(&at),
                Ok(Command::Continue { barrier }) => {
                    self.barriers.release(barrier);
                    // Sent in the middle of other commands, so there is nobody to read an answer.
                    continue;
                }
                Ok(command) => {
                    // Fails only when everything ends.
                    let _ = queue.send((id, command));
                    continue;
                }
                Err(error) => Err(format!("the command is not understood: {error}")),
            };
            let _ = answers.send(Line::of(&answer(id, outcome), false));
        }
    }

    async fn write(
        &self,
        mut output: OwnedWriteHalf,
        mut outgoing: UnboundedReceiver<Line>,
        mut reached: UnboundedReceiver<Reached>,
    ) -> io::Result<()> {
        loop {
            let line = tokio::select! {
                Some(line) = outgoing.recv() => line,
                Some(reached) = reached.recv() => Line::of(&reached, false),
                else => return Ok(()),
            };
            output.write_all(&line.text).await?;
            if line.stop {
                self.shutdown.notify_one();
            }
        }
    }

    async fn obey_in_order(
        &self,
        mut queued: UnboundedReceiver<(Value, Command)>,
        answers: UnboundedSender<Line>,
    ) {
        while let Some((id, command)) = queued.recv().await {
            let (outcome, stop) = self.obey(command).await;
            // Fails only when everything ends.
            let _ = answers.send(Line::of(&answer(id, outcome), stop));
        }
    }

    async fn obey(&self, command: Command) -> (Result<Detail, String>, bool) {
        match command {
            Command::Status => (self.status().await, false),
            Command::Clock { offset_ms, rate } => {
                let outcome = self.mailbox.set_clock(offset_ms, rate).await;
                let outcome = outcome.unwrap_or_else(|| Err(self.stopped()));
                (outcome.map(|clock| Detail::Clock { clock }), false)
            }
            Command::Snapshot => {
                let sent = self.mailbox.send(Message::Arrival(Arrival::TakeSnapshot));
                (
                    sent.map(|()| Detail::Done {}).map_err(|_| self.stopped()),
                    false,
                )
            }
            Command::DiskFault { fault_id, fault } => {
                self.disk.install(fault_id, fault);
                (Ok(Detail::Done {}), false)
            }
            Command::DiskHeal { fault_id } => {
                let hit_count = self.disk.remove(fault_id);
                (Ok(Detail::DiskHealed { hit_count }), false)
            }
            Command::Die => (self.die().map(|()| Detail::Done {}), false),
            Command::Shutdown => (Ok(Detail::Done {}), true),
            Command::Barriers { .. } | Command::Continue { .. } => {
                unreachable!("what is about barriers does not wait in the queue")
            }
        }
    }

    fn arm(&self, at: &[Place]) -> Result<Detail, String> {
        let mut moments = MomentSet::default();
        for Place { event, edge } in at {
            let moment = Moment::from_name(event)
                .ok_or_else(|| format!("there is no event \"{event}\" to wait at"))?;
            let edge = Edge::from_name(edge)
                .ok_or_else(|| format!("an edge is \"before\" or \"after\", not \"{edge}\""))?;
            moments.insert(edge, moment);
        }
        self.barriers.arm(moments);
        Ok(Detail::Done {})
    }

    /// Does not come back unless the disk fails.
    fn die(&self) -> Result<(), String> {
        let died = self.disk.write_through_and(|| {
            // A process may always send itself a signal.
            let _ = kill(Pid::this(), Signal::SIGKILL);
        });
        died.map_err(|error| format!("what was written cannot be left behind: {error}"))
    }

    async fn status(&self) -> Result<Detail, String> {
        let snapshot = self
            .mailbox
            .describe()
            .await
            .ok_or_else(|| self.stopped())?;
        Ok(Detail::Status(Status {
            node: self.node.to_string(),
            http_port: self.http_port,
            role: snapshot.quorum.role,
            epoch: snapshot.quorum.epoch,
            leader: snapshot.quorum.leader.map(|leader| leader.to_string()),
            high_watermark: snapshot.quorum.high_watermark,
            log_end: snapshot.quorum.log_end,
            snapshot_end: snapshot.disk.snapshot_end,
            clock: snapshot.clock,
        }))
    }

    fn stopped(&self) -> String {
        format!("{} has stopped", self.node)
    }
}
