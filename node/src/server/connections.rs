//! Owns the connections to a node: how many there may be, how long they may do nothing, and which
//! one goes when there are too many.
//! Never looks at a request beyond its path, which tells peers from clients.
//!
//! Until all of a request is there it counts for nothing: whoever sends half of one holds a place only
//! for as long as nobody else wants it, wherever the request goes to.

mod short_way;
mod whole_request;

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io::{self, Cursor};
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, AtomicUsize, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::{Body, HttpBody};
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::io::{AsyncReadExt, join};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

use super::connection::{Connection, Stage, Worth};
use super::http::Front;

/// Where peers ask. Connections that are used for it are the last to go.
pub(super) const PEER_PATHS: &str = "/raft/";

/// Connections beyond the highest number, for peers and for telling clients that there are too many.
const RESERVED_COUNT: usize = 64;

/// File descriptors for everything else: log segments, the trace, connections to peers.
const OTHER_FILE_COUNT: usize = 128;

/// A connection that asked for something this recently is in use, even if nothing is under way.
const IN_USE: Duration = Duration::from_secs(1);

/// How long a connection may take to say what it wants while others wait for its place. What arrives in one
/// piece takes less than a millisecond.
const IN_SAYING: Duration = Duration::from_millis(100);

/// How much of unfinished bodies is kept at most, of all connections together.
const MAX_UNFINISHED_BYTES: usize = 32 * 1024 * 1024;

/// How often connections are looked through for those that do nothing.
const SWEEP_PERIOD: Duration = Duration::from_secs(1);

/// How long to wait when the system gives no more connections.
const ACCEPT_PAUSE: Duration = Duration::from_millis(50);

/// Longest head of a request, in bytes. Every header that means something here is short.
const MAX_HEAD_BYTES: usize = 32 * 1024;

/// What connections may do.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Limits {
    /// Highest number of connections, apart from a small reserve.
    pub(crate) connection_count: usize,
    /// How long a new connection may take until its first request is there.
    pub(crate) first_request: Duration,
    /// How long a connection may be without a request under way. Longer than the 90 s after which
    /// common clients drop their own idle connections: whoever closes first must not be the node,
    /// or a request could meet a connection that is about to go.
    pub(crate) idle: Duration,
}

impl Limits {
    /// The usual limits, with as many connections as wanted or as the system allows.
    pub(crate) fn new(wanted_count: usize) -> Self {
        let allowed = open_file_limit().saturating_sub(RESERVED_COUNT + OTHER_FILE_COUNT);
        let connection_count = wanted_count.min(allowed.max(RESERVED_COUNT));
        if connection_count < wanted_count {
            tracing::warn!(
                connection_count,
                "the limit on open files (ulimit -n) allows fewer connections than --max-connections"
            );
        }
        Self {
            connection_count,
            first_request: Duration::from_secs(10),
            idle: Duration::from_secs(120),
        }
    }
}

/// Raises the limit on open files as far as an ordinary process may.
fn open_file_limit() -> usize {
    let Ok((soft, hard)) = getrlimit(Resource::RLIMIT_NOFILE) else {
        // Where nothing is known, the limit of most systems.
        return 1024;
    };
    let limit = match setrlimit(Resource::RLIMIT_NOFILE, hard, hard) {
        Ok(()) => hard,
        Err(_) => soft,
    };
    usize::try_from(limit).unwrap_or(usize::MAX)
}

/// Put into requests that have to be turned away, because there are too many connections.
#[derive(Debug, Clone, Copy)]
pub(super) struct Crowded;

/// All connections of a node.
#[derive(Debug)]
pub(crate) struct Connections {
    limits: Limits,
    begun: Instant,
    next_number: AtomicU64,
    open: Mutex<BTreeMap<u64, Arc<Connection>>>,
    /// How many of them have sent a part of a request, and how much of that is kept.
    receiving_count: AtomicUsize,
    receiving_bytes: AtomicUsize,
    /// The node stops: answers that are on their way may still arrive.
    is_stopping: AtomicBool,
    /// Notified whenever a connection has gone.
    gone: Notify,
}

/// Who answers what comes on connections.
#[derive(Debug, Clone)]
pub(crate) struct Services {
    router: TowerToHyperService<Router>,
    /// Who answers what is asked too often to go through all of that.
    plain: Option<Arc<Front>>,
}

impl Services {
    pub(crate) fn new(router: Router, plain: Option<Arc<Front>>) -> Self {
        Self {
            router: TowerToHyperService::new(router),
            plain,
        }
    }
}

/// What becomes of a new connection.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Admitted {
    Welcome,
    /// Peers are served, clients are told that there are too many.
    Extra,
    No,
}

impl Connections {
    pub(crate) fn new(limits: Limits) -> Arc<Self> {
        Arc::new(Self {
            limits,
            begun: Instant::now(),
            next_number: AtomicU64::new(0),
            open: Mutex::default(),
            receiving_count: AtomicUsize::new(0),
            receiving_bytes: AtomicUsize::new(0),
            is_stopping: AtomicBool::new(false),
            gone: Notify::new(),
        })
    }

    /// Serves until told to stop; then lets requests that are under way finish. Returns once no
    /// connection is left.
    pub(crate) fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        services: Services,
        stop: oneshot::Receiver<()>,
    ) -> JoinHandle<()> {
        tokio::spawn(async move {
            tokio::select! {
                // A dropped sender means the same.
                _ = stop => {}
                () = self.accept(listener, services) => {}
                () = self.sweep() => {}
            }
            self.finish().await;
        })
    }

    async fn accept(self: &Arc<Self>, listener: TcpListener, services: Services) {
        let mut complained: Option<Instant> = None;
        let mut complain = |what: &str, error: Option<io::Error>| {
            if complained.is_none_or(|at| at.elapsed() > Duration::from_secs(10)) {
                complained = Some(Instant::now());
                let error = error.map(|error| error.to_string());
                tracing::warn!(error, "{what}");
            }
        };
        loop {
            let stream = match listener.accept().await {
                Ok((stream, _)) => stream,
                Err(error) if is_about_one(&error) => continue,
                Err(error) => {
                    complain("the system gives no more connections", Some(error));
                    self.make_room(Duration::ZERO, Duration::ZERO);
                    tokio::time::sleep(ACCEPT_PAUSE).await;
                    continue;
                }
            };
            match self.admit() {
                Admitted::No => complain("a connection was closed: there are too many", None),
                admitted => {
                    if admitted == Admitted::Extra {
                        complain("there are too many connections", None);
                    }
                    self.start(stream, admitted == Admitted::Extra, services.clone());
                }
            }
        }
    }

    fn admit(&self) -> Admitted {
        let count = self.open_count();
        let most = self.limits.connection_count;
        if count < most || self.make_room(IN_SAYING, IN_USE) {
            Admitted::Welcome
        } else if count < most + RESERVED_COUNT || self.make_room(Duration::ZERO, Duration::ZERO) {
            Admitted::Extra
        } else {
            Admitted::No
        }
    }

    /// Whether a connection that was one too many still is.
    fn is_crowded(&self, connection: &Connection) -> bool {
        connection.is_extra
            && self.open_count() > self.limits.connection_count
            && !self.make_room(IN_SAYING, IN_USE)
    }

    /// Closes the connection that is worth least: one that has not said what it wants for at least
    /// `unfinished`, or else one that has done nothing for at least `idle`, the longest first. Peers go only
    /// when nothing else helps.
    fn make_room(&self, unfinished: Duration, idle: Duration) -> bool {
        self.close_one(|connection| match connection.worth() {
            Worth::Unfinished => Some(unfinished),
            Worth::Client => Some(idle),
            Worth::Peer => idle.is_zero().then_some(idle),
        })
    }

    /// Closes the connection whose body has been on its way for longest, if it has been for `at_least`.
    fn drop_unfinished_body(&self, at_least: Duration) -> bool {
        self.close_one(|connection| (connection.stage() == Stage::Receiving).then_some(at_least))
    }

    /// Closes the connection that is worth least, the longest first, among those that have been at what they are
    /// at for as long as `after` says, if it names a time.
    fn close_one(&self, after: impl Fn(&Connection) -> Option<Duration>) -> bool {
        let now_ms = self.now_ms();
        let open = self.lock();
        let able = open.values().filter(|connection| {
            let at_least = after(connection);
            connection.may_go() && at_least.is_some_and(|it| connection.at_it_for(now_ms) >= it)
        });
        let least = able.min_by_key(|connection| (connection.worth(), connection.since_ms()));
        least
            .inspect(|connection| {
                self.forget_held(connection);
                connection.go();
            })
            .is_some()
    }

    fn start(self: &Arc<Self>, stream: TcpStream, is_extra: bool, services: Services) {
        // Without it an answer may wait for the acknowledgement of the one before; only slower.
        let _ = stream.set_nodelay(true);
        let connection = Arc::new(Connection::new(is_extra, self.now_ms()));
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Arc::clone(&connection));
        let connections = Arc::clone(self);
        tokio::spawn(async move {
            connections.converse(stream, &connection, services).await;
            connections.lock().remove(&number);
            connections.gone.notify_waiters();
        });
    }

    /// Answers the requests of one connection until it ends or is told to go.
    async fn converse(
        self: &Arc<Self>,
        mut stream: TcpStream,
        connection: &Arc<Connection>,
        Services { router, plain }: Services,
    ) {
        let mut beginning = Vec::new();
        if let Some(front) = plain {
            match self.answer_plain(&mut stream, connection, &front).await {
                Some(other) => beginning = other,
                None => return,
            }
        }
        let service = service_fn(|mut request: Request<Incoming>| {
            let under_way = self.begin(connection, &mut request);
            let answer = router.call(request);
            async move {
                let answer: Result<Response<Body>, Infallible> = answer.await;
                drop(under_way);
                answer
            }
        });
        // What was read already comes first.
        let (rest, answers) = stream.split();
        let requests = Cursor::new(beginning).chain(rest);
        let conversation = http1::Builder::new()
            .max_header_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(join(requests, answers)), service);
        let mut conversation = pin!(conversation);
        loop {
            tokio::select! {
                outcome = conversation.as_mut() => {
                    if let Err(error) = outcome {
                        tracing::debug!(%error, "a connection ended");
                    }
                    return;
                }
                () = connection.leave.notified() => {
                    if connection.may_be_cut() && !self.is_stopping.load(Ordering::Relaxed) {
                        return;
                    }
                    // Ends at once where nothing is under way; what is gets its answer first.
                    conversation.as_mut().graceful_shutdown();
                }
            }
        }
    }

    fn begin<'a>(
        self: &'a Arc<Self>,
        connection: &'a Arc<Connection>,
        request: &mut Request<Incoming>,
    ) -> UnderWay<'a> {
        let is_peer = request.uri().path().starts_with(PEER_PATHS);
        if !is_peer && self.is_crowded(connection) {
            request.extensions_mut().insert(Crowded);
        }
        let unfinished = Unfinished {
            connections: Arc::clone(self),
            connection: Arc::clone(connection),
            is_peer,
        };
        if request.body().is_end_stream() {
            unfinished.complete();
        } else {
            self.enter(connection, Stage::Receiving);
            request.extensions_mut().insert(unfinished);
            // Half of the places are always left to those who get to the end of what they say.
            if self.receiving_count.load(Ordering::Relaxed) > self.limits.connection_count / 2 {
                self.drop_unfinished_body(IN_SAYING);
            }
        }
        UnderWay {
            connections: self,
            connection,
        }
    }

    /// All of a request is there.
    fn begin_whole<'a>(&'a self, connection: &'a Connection, is_peer: bool) -> UnderWay<'a> {
        connection.serves(is_peer);
        self.enter(connection, Stage::Busy);
        UnderWay {
            connections: self,
            connection,
        }
    }

    fn enter(&self, connection: &Connection, stage: Stage) {
        let before = connection.enter(stage, self.now_ms());
        if before != Stage::Receiving && stage == Stage::Receiving {
            self.receiving_count.fetch_add(1, Ordering::Relaxed);
        } else if before == Stage::Receiving && stage != Stage::Receiving {
            self.receiving_count.fetch_sub(1, Ordering::Relaxed);
            self.forget_held(connection);
        }
    }

    fn forget_held(&self, connection: &Connection) {
        let held_bytes = connection.held_bytes.swap(0, Ordering::Relaxed);
        self.receiving_bytes
            .fetch_sub(held_bytes, Ordering::Relaxed);
    }

    /// Closes what does nothing for too long: connections that are only held, heads and answers
    /// that make no progress.
    async fn sweep(&self) {
        let mut sweeps = tokio::time::interval(SWEEP_PERIOD);
        loop {
            sweeps.tick().await;
            let now_ms = self.now_ms();
            for connection in self.lock().values() {
                let limit = if connection.has_asked() {
                    self.limits.idle
                } else {
                    self.limits.first_request
                };
                if connection.may_go() && connection.at_it_for(now_ms) >= limit {
                    connection.go();
                }
            }
        }
    }

    async fn finish(&self) {
        self.is_stopping.store(true, Ordering::Relaxed);
        loop {
            let gone = self.gone.notified();
            let mut gone = pin!(gone);
            // Before the look, so that a connection that goes just after it is noticed.
            gone.as_mut().enable();
            {
                let open = self.lock();
                if open.is_empty() {
                    return;
                }
                open.values().for_each(|connection| connection.go());
            }
            gone.await;
        }
    }

    fn open_count(&self) -> usize {
        let open = self.lock();
        let leaving = |connection: &&Arc<Connection>| connection.is_leaving();
        open.len() - open.values().filter(leaving).count()
    }

    fn now_ms(&self) -> u64 {
        u64::try_from(self.begun.elapsed().as_millis()).unwrap_or(u64::MAX)
    }

    /// A panic ends the process, so poisoning carries no news.
    fn lock(&self) -> MutexGuard<'_, BTreeMap<u64, Arc<Connection>>> {
        self.open.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Whether an error concerns a connection that was coming in rather than all of them.
fn is_about_one(error: &io::Error) -> bool {
    matches!(
        error.kind(),
        io::ErrorKind::ConnectionRefused
            | io::ErrorKind::ConnectionAborted
            | io::ErrorKind::ConnectionReset
    )
}

/// A request under way. Over when it is dropped, answered or not.
#[derive(Debug)]
struct UnderWay<'a> {
    connections: &'a Connections,
    connection: &'a Connection,
}

impl Drop for UnderWay<'_> {
    fn drop(&mut self) {
        self.connections.enter(self.connection, Stage::Idle);
    }
}

/// Put into requests whose body is not there yet: whoever reads it tells how far it is.
#[derive(Debug, Clone)]
pub(super) struct Unfinished {
    connections: Arc<Connections>,
    connection: Arc<Connection>,
    is_peer: bool,
}

impl Unfinished {
    /// So much more of the body is kept. Where that is too much together, those go whose bodies have been
    /// on their way for longest.
    pub(super) fn hold(&self, byte_count: usize) {
        let Self {
            connections,
            connection,
            ..
        } = self;
        if connection.is_leaving() {
            return;
        }
        connection
            .held_bytes
            .fetch_add(byte_count, Ordering::Relaxed);
        let bytes = &connections.receiving_bytes;
        bytes.fetch_add(byte_count, Ordering::Relaxed);
        while bytes.load(Ordering::Relaxed) > MAX_UNFINISHED_BYTES
            && connections.drop_unfinished_body(Duration::ZERO)
        {}
    }

    /// The rest is of no use, and the answer is on its way: the connection goes.
    pub(super) fn give_up(&self) {
        self.connection.go();
    }

    /// All of the request is there.
    pub(super) fn complete(&self) {
        self.connection.serves(self.is_peer);
        self.connections.enter(&self.connection, Stage::Busy);
    }
}

#[cfg(test)]
mod tests;
