//! Owns a node as a running process: threads, sockets, signals, and the order of start and stop.
//! Never decides anything about the protocol, and is the only place with async code.

mod addresses;
mod admission;
mod alarm;
mod barriers;
mod body;
mod clock;
mod complaints;
mod connection;
mod connections;
pub(crate) mod control;
mod distinct_keys;
mod driver;
mod gate;
mod http;
pub(crate) mod log;
mod mailbox;
mod metrics;
mod operations;
mod outbox;
mod peer_connection;
mod peer_requests;
mod peers;
mod pending;
mod replies;
mod stop_signals;
mod sync_desk;
mod trace_writer;
pub mod wire;

use std::collections::BTreeMap;
use std::fmt;
use std::io::{self, Write};
use std::net::SocketAddr;
use std::os::unix::net::UnixStream;
use std::path::{Path, PathBuf};
use std::sync::Arc;
use std::thread;
use std::time::Duration;

use tokio::runtime::{Builder, Runtime};
use tokio::sync::mpsc::UnboundedReceiver;
use tokio::sync::{Notify, oneshot};

use crate::ids::{Epoch, NodeId};
use crate::mutants::Bug;
use crate::node_loop::{Arrival, NodeLoop, NodeOptions, Outbox, StartError};
use crate::raft::Configuration;
use crate::storage::disk::Disk;
use crate::storage::faulty_disk::{DiskControl, FaultyDisk, WriteThrough};
use crate::storage::injected_faults::NumberedFault;
use crate::storage::{DirectoryDisk, DirectoryDiskError, WriteBehindDisk};
use crate::trace::{TraceEvent, Traced};

use addresses::Addresses;
use admission::{Admission, Room};
use barriers::{Barriers, Reached};
use clock::{SkewedClock, monotonic_ns};
use connections::{Connections, Limits, Services};
use control::Controlled;
use driver::{Driver, DriverError};
use http::{Front, OperationCounts};
use mailbox::{Inbox, Mailbox, Message, View};
use outbox::ProcessOutbox;
use peers::Peers;
use pending::{Pending, Tickets};
use replies::Replies;
use stop_signals::StopSignals;
use sync_desk::SyncDesk;
pub use trace_writer::TraceOptions;
use trace_writer::TraceWriter;

/// How long the loop may take to stop before the process ends without it. Longer than the loop's own
/// limit, so it matters only when a disk hangs.
const STOP_LIMIT: Duration = Duration::from_millis(1500);

/// How long answers that are ready may take to leave when the process stops.
const LAST_ANSWERS_LIMIT: Duration = Duration::from_millis(200);

/// How many clients may wait at once, and how much their bodies may have together; more are refused. What is made
/// of a body can take some times the memory.
const CLIENT_ROOM: Room = Room {
    seat_count: 10_000,
    bytes: 64 * 1024 * 1024,
};

/// What a node process is started with.
#[derive(Debug)]
pub struct ServerOptions {
    /// For the protocol core.
    pub configuration: Configuration,
    /// Where to listen, as `host:port`; port 0 takes a free one.
    pub listen: String,
    /// Where others are to be looked for first, as base URLs without a trailing slash. What voters in the log
    /// say of themselves goes before it.
    pub peer_urls: BTreeMap<NodeId, String>,
    /// Where others are to be reached, whatever they say: through proxies or tunnels.
    pub routes: BTreeMap<NodeId, String>,
    /// How the node works, besides the protocol.
    pub node: NodeOptions,
    /// The data directory.
    pub data: PathBuf,
    /// Keep unsynced bytes in memory, so that a SIGKILL is a power cut.
    pub write_behind: bool,
    /// Whether and where to report protocol events.
    pub trace: Option<TraceOptions>,
    /// The control socket, if a harness handed one over.
    pub control: Option<UnixStream>,
    /// What the disk does wrong from the start on, if there is a control socket by which it can be mended.
    pub disk_faults: Vec<NumberedFault>,
    /// How long a client waits for the outcome of an operation, in milliseconds.
    pub client_deadline_ms: u64,
    /// How many connections there may be at once; the system may allow fewer.
    pub max_connection_count: usize,
}

/// Why a node process did not start, or did not stop in an orderly way.
#[derive(Debug, thiserror::Error)]
pub enum ServerError {
    /// The address is taken, not ours, or not an address.
    #[error("cannot listen on {listen}: {source}")]
    Listen {
        /// What was asked for.
        listen: String,
        /// What the system says.
        source: io::Error,
    },
    /// The operating system refuses threads, signals or sockets.
    #[error("cannot set up the process: {0}")]
    Process(#[from] io::Error),
    /// The trace file cannot be written.
    #[error("cannot write the trace file {}: {source}", path.display())]
    Trace {
        /// The file.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The data directory cannot be opened, or another process has it.
    #[error(transparent)]
    Directory(#[from] DirectoryDiskError),
    /// The data directory cannot be listed.
    #[error("cannot read the data directory {}: {source}", path.display())]
    Unreadable {
        /// The directory.
        path: PathBuf,
        /// What the system says.
        source: io::Error,
    },
    /// The data directory holds what the node must not continue from, or the disk fails.
    #[error("cannot use the data directory {}: {source}", path.display())]
    Data {
        /// The directory.
        path: PathBuf,
        /// What is wrong with it.
        source: Box<StartError>,
    },
    /// The node's loop is gone or did not stop in time.
    #[error(
        "the node did not stop in an orderly way: its disk or its processor hangs. Everything that \
         was acknowledged is on its disk"
    )]
    Stuck,
}

impl From<DriverError> for ServerError {
    fn from(error: DriverError) -> Self {
        match error {
            DriverError::Trace { path, source } => Self::Trace { path, source },
            DriverError::Node(_) => Self::Stuck,
        }
    }
}

/// Runs a node until SIGTERM, SIGINT, SIGHUP or the control socket asks it to stop. Prints one line to
/// standard output once it listens. Ends the process with exit code 1 when the node cannot go on.
///
/// # Errors
/// When the node cannot start, or cannot stop in an orderly way.
pub fn run(mut options: ServerOptions) -> Result<(), ServerError> {
    // Apart from the node's own thread, so that a disk that hangs does not keep the process from
    // being stopped.
    let runtime = Builder::new_current_thread().enable_all().build()?;
    let _context = runtime.enter();
    let listen_error = |source| ServerError::Listen {
        listen: options.listen.clone(),
        source,
    };
    let listener = std::net::TcpListener::bind(&options.listen).map_err(listen_error)?;
    listener.set_nonblocking(true).map_err(listen_error)?;
    let address = listener.local_addr().map_err(listen_error)?;
    if let Some(endpoint) = &mut options.configuration.endpoint
        && let Some(host) = endpoint.strip_suffix(":0")
    {
        // Only now is it known which port was free.
        *endpoint = format!("{host}:{}", address.port());
    }
    let signals = StopSignals::listen()?;

    let (node, bug) = (options.configuration.id, options.configuration.bug);
    if let Some(bug) = bug {
        tracing::warn!(
            "seeded bug {} ({bug}) is ON: {}",
            bug.id(),
            bug.description()
        );
    }
    let process = Process::start(options, listener, address)?;
    tracing::info!(%address, version = env!("CARGO_PKG_VERSION"), "started");
    // Nobody needs to read the line for the node to work.
    let _ = writeln!(io::stdout(), "{node} listening on http://{address}");
    let result = runtime.block_on(process.watch(signals));
    runtime.shutdown_background();
    if result.is_ok() {
        tracing::info!("stopped");
    }
    result
}

/// Where people are told to reach this node.
fn own_url(configuration: &Configuration, address: SocketAddr) -> String {
    let announced = configuration.endpoint.clone();
    // To listen on all addresses is not to say which of them is the right one.
    let announced = announced.filter(|_| address.ip().is_unspecified());
    announced.unwrap_or_else(|| format!("http://{address}"))
}

/// Ends the process at once with one line for people.
pub(crate) fn stop_at_once(node: NodeId, reason: impl fmt::Display) -> ! {
    log::last_words(node, &reason.to_string());
    std::process::exit(1);
}

/// The control socket, and what is done through it besides talking to the loop.
struct Control {
    stream: UnixStream,
    disk: DiskControl,
    barriers: Barriers,
    reached: UnboundedReceiver<Reached>,
}

/// A started node, as those see it who may have to stop it.
struct Process {
    node: NodeId,
    mailbox: Mailbox,
    front: Arc<Front>,
    control: Option<Control>,
    http_port: u16,
    thread: NodeThread,
}

impl Process {
    fn start(
        options: ServerOptions,
        listener: std::net::TcpListener,
        address: SocketAddr,
    ) -> Result<Self, ServerError> {
        let node = options.configuration.id;
        let cluster_id = options.configuration.cluster_id.clone();
        let seeded_bug = options.configuration.bug.map(Bug::name);
        let request_timeout = Duration::from_nanos(options.configuration.timers.request_timeout_ns);
        let runtime = Builder::new_current_thread().enable_all().build()?;
        let (mailbox, inbox) = Mailbox::new();
        let tickets = Arc::new(Tickets::default());
        let clients = Pending::new(Arc::clone(&tickets));
        let askers = Pending::new(tickets);
        let view = View::default();
        let trace = options
            .trace
            .as_ref()
            .map(|trace| {
                TraceWriter::open(trace, node).map_err(|source| ServerError::Trace {
                    path: trace.path.clone(),
                    source,
                })
            })
            .transpose()?;
        let handle = runtime.handle().clone();
        let peers = Peers::new(
            handle,
            mailbox.clone(),
            &options.routes,
            &options.peer_urls,
            request_timeout,
        );
        let (barriers, reached) = Barriers::new();
        let outbox = ProcessOutbox::new(
            trace,
            peers,
            clients.clone(),
            askers.clone(),
            barriers.clone(),
        );
        let mut fixed = options.routes;
        fixed.insert(node, own_url(&options.configuration, address));
        let addresses = Arc::new(Addresses::new(fixed, options.peer_urls));
        let front = Front {
            cluster_id,
            seeded_bug,
            mailbox: mailbox.clone(),
            clients,
            askers,
            admission: Admission::new(CLIENT_ROOM),
            operations: OperationCounts::default(),
            view: view.clone(),
            replies: Replies { node, addresses },
            client_deadline: Duration::from_millis(options.client_deadline_ms),
            request_timeout,
        };
        let front = Arc::new(front);
        let parts = Parts {
            runtime,
            listener,
            connections: Connections::new(Limits::new(options.max_connection_count)),
            front: Arc::clone(&front),
            inbox,
            outbox,
            view,
            node_options: options.node,
        };
        let disk_faults = options.control.is_some().then_some(options.disk_faults);
        let (thread, disk) = start_loop(
            options.configuration,
            &options.data,
            options.write_behind,
            disk_faults.as_deref(),
            parts,
        )?;
        Ok(Self {
            node,
            mailbox,
            front,
            control: options.control.zip(disk).map(|(stream, disk)| Control {
                stream,
                disk,
                barriers,
                reached,
            }),
            http_port: address.port(),
            thread,
        })
    }

    async fn watch(self, mut signals: StopSignals) -> Result<(), ServerError> {
        let NodeThread {
            mut stopped,
            stop_http,
            ended,
        } = self.thread;
        let shutdown = Arc::new(Notify::new());
        if let Some(Control {
            stream,
            disk,
            barriers,
            reached,
        }) = self.control
        {
            let controlled = Controlled {
                node: self.node,
                http_port: self.http_port,
                mailbox: self.mailbox.clone(),
                disk,
                shutdown: Arc::clone(&shutdown),
                barriers,
            };
            tokio::spawn(async move {
                match controlled.serve(stream, reached).await {
                    Ok(()) => stop_at_once(self.node, "the harness closed the control socket"),
                    Err(error) => stop_at_once(self.node, format!("control socket: {error}")),
                }
            });
        }
        let reason = tokio::select! {
            signal = signals.recv() => signal,
            () = shutdown.notified() => "the control socket",
            _ = &mut stopped => return Err(ServerError::Stuck),
        };
        tracing::info!(reason, "stopping");
        // When the loop is gone already, `stopped` tells.
        let _ = self.mailbox.send(Message::Arrival(Arrival::Shutdown));
        let outcome = tokio::time::timeout(STOP_LIMIT, stopped).await;
        // A loop that hangs answers nobody any more.
        self.front.clients.abandon();
        self.front.askers.abandon();
        // Fails only when the HTTP front is gone already.
        let _ = stop_http.send(());
        let _ = tokio::time::timeout(LAST_ANSWERS_LIMIT, ended).await;
        match outcome {
            Ok(Ok(())) => Ok(()),
            _ => Err(ServerError::Stuck),
        }
    }
}

/// The thread that a node lives on, as seen from outside.
struct NodeThread {
    /// Told when the loop has stopped; dropped when it never will any more.
    stopped: oneshot::Receiver<()>,
    /// Lets the HTTP front finish what it is at, and end.
    stop_http: oneshot::Sender<()>,
    /// Dropped when the thread ends.
    ended: oneshot::Receiver<()>,
}

/// What that thread needs besides the node.
struct Parts {
    runtime: Runtime,
    listener: std::net::TcpListener,
    connections: Arc<Connections>,
    front: Arc<Front>,
    inbox: Inbox,
    outbox: ProcessOutbox,
    view: View,
    node_options: NodeOptions,
}

/// Returns, besides the thread, what lets its disk fail; for a node without a control socket there is
/// nothing of the kind.
fn start_loop(
    configuration: Configuration,
    data: &Path,
    write_behind: bool,
    disk_faults: Option<&[NumberedFault]>,
    parts: Parts,
) -> Result<(NodeThread, Option<DiskControl>), ServerError> {
    let disk = DirectoryDisk::open(data)?;
    if write_behind {
        let disk = WriteBehindDisk::new(disk).map_err(|source| ServerError::Unreadable {
            path: data.into(),
            source,
        })?;
        start_on(configuration, data, disk, disk_faults, parts)
    } else {
        start_on(configuration, data, disk, disk_faults, parts)
    }
}

fn start_on<D: Disk + WriteThrough + Send + 'static>(
    configuration: Configuration,
    data: &Path,
    disk: D,
    disk_faults: Option<&[NumberedFault]>,
    parts: Parts,
) -> Result<(NodeThread, Option<DiskControl>), ServerError> {
    let Some(disk_faults) = disk_faults else {
        return Ok((start_thread(configuration, data, disk, parts)?, None));
    };
    let (disk, control) = FaultyDisk::new(disk);
    for installed in disk_faults {
        control.install(installed.fault_id, installed.fault);
    }
    let thread = start_thread(configuration, data, disk, parts)?;
    Ok((thread, Some(control)))
}

fn start_thread<D: Disk + Send + 'static>(
    configuration: Configuration,
    data: &Path,
    disk: D,
    parts: Parts,
) -> Result<NodeThread, ServerError> {
    let Parts {
        runtime,
        listener,
        connections,
        front,
        inbox,
        mut outbox,
        view,
        node_options,
    } = parts;
    let node = configuration.id;
    let clock = SkewedClock::new(monotonic_ns());
    let now_ns = clock.now_ns(monotonic_ns());
    let started = NodeLoop::start(configuration, disk, node_options, now_ns, &mut outbox);
    if let Err(StartError::Open(error)) = &started {
        let event = TraceEvent::RefusedToStart {
            reason: error.to_string(),
        };
        outbox.trace(Traced {
            epoch: Epoch(0),
            event,
        });
    }
    outbox.finish()?;
    let started = started.map_err(|source| ServerError::Data {
        path: data.into(),
        source: Box::new(source),
    })?;
    let directory = data.display().to_string();
    let listener = {
        let _context = runtime.enter();
        tokio::net::TcpListener::from_std(listener)?
    };
    let addresses = Arc::clone(&front.replies.addresses);
    let desk = Arc::new(SyncDesk::default());
    let driver = Driver::new(clock, inbox, outbox, view, addresses, Arc::clone(&desk));
    let (tell_stopped, stopped) = oneshot::channel();
    let (stop_http, http_stops) = oneshot::channel();
    let (tell_ended, ended) = oneshot::channel::<()>();
    let live = async move {
        let _ended = tell_ended;
        let services = Services::new(http::router(Arc::clone(&front)), Some(front));
        let server = connections.serve(listener, services, http_stops);
        // As a task of its own: waking it from the tasks around it costs no system call then.
        match tokio::spawn(driver.run(started)).await {
            // Fails only when the process is ending anyway.
            Ok(Ok(())) => drop(tell_stopped.send(())),
            Ok(Err(error)) => {
                stop_at_once(node, format_args!("data directory {directory}: {error}"))
            }
            // It panicked, which has ended the process.
            Err(_) => {}
        }
        // Fails only with a panic, which has ended the process.
        let _ = server.await;
    };
    thread::Builder::new()
        .name(node.to_string())
        .spawn(move || {
            if let Err(error) = desk.attend(runtime, live) {
                stop_at_once(node, format_args!("cannot set up the process: {error}"));
            }
        })?;
    Ok(NodeThread {
        stopped,
        stop_http,
        ended,
    })
}
