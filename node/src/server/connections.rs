//! Owns the connections to a node: how many there may be, how long they may do nothing, and which
//! one goes when there are too many.
//! Never looks at a request beyond its path, which tells peers from clients.

use std::collections::BTreeMap;
use std::convert::Infallible;
use std::io;
use std::pin::pin;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use axum::Router;
use axum::body::Body;
use axum::extract::Request;
use axum::response::Response;
use hyper::body::Incoming;
use hyper::server::conn::http1;
use hyper::service::{Service, service_fn};
use hyper_util::rt::TokioIo;
use hyper_util::service::TowerToHyperService;
use nix::sys::resource::{Resource, getrlimit, setrlimit};
use tokio::net::{TcpListener, TcpStream};
use tokio::sync::{Notify, oneshot};
use tokio::task::JoinHandle;
use tokio::time::Instant;

/// Where peers ask. Connections that are used for it are the last to go.
pub(super) const PEER_PATHS: &str = "/raft/";

/// Connections beyond the highest number, for peers and for telling clients that there are too many.
const RESERVED_COUNT: usize = 64;

/// File descriptors for everything else: log segments, the trace, connections to peers.
const OTHER_FILE_COUNT: usize = 128;

/// A connection that asked for something this recently is in use, even if nothing is under way.
const IN_USE: Duration = Duration::from_secs(1);

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
    /// The node stops: answers that are on their way may still arrive.
    is_stopping: AtomicBool,
    /// Notified whenever a connection has gone.
    gone: Notify,
}

/// One connection, as those see it who may have to close it.
#[derive(Debug)]
struct Connection {
    /// Too many were there already when it came.
    is_extra: bool,
    is_peer: AtomicBool,
    has_asked: AtomicBool,
    /// Whether a request is under way.
    is_busy: AtomicBool,
    /// When that changed last, in milliseconds.
    since_ms: AtomicU64,
    /// Told to go; does not count any more.
    is_leaving: AtomicBool,
    leave: Notify,
}

impl Connection {
    fn is(flag: &AtomicBool) -> bool {
        flag.load(Ordering::Relaxed)
    }

    fn may_be_cut(&self) -> bool {
        !Self::is(&self.is_busy)
    }

    fn may_go(&self) -> bool {
        self.may_be_cut() && !Self::is(&self.is_leaving)
    }

    fn go(&self) {
        self.is_leaving.store(true, Ordering::Relaxed);
        self.leave.notify_one();
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
            is_stopping: AtomicBool::new(false),
            gone: Notify::new(),
        })
    }

    /// Serves until told to stop; then lets requests that are under way finish. Returns once no
    /// connection is left.
    pub(crate) fn serve(
        self: Arc<Self>,
        listener: TcpListener,
        router: Router,
        stop: oneshot::Receiver<()>,
    ) -> JoinHandle<()> {
        tokio::spawn(async move {
            tokio::select! {
                // A dropped sender means the same.
                _ = stop => {}
                () = self.accept(listener, TowerToHyperService::new(router)) => {}
                () = self.sweep() => {}
            }
            self.finish().await;
        })
    }

    async fn accept(self: &Arc<Self>, listener: TcpListener, router: TowerToHyperService<Router>) {
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
                    self.make_room(Duration::ZERO);
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
                    self.start(stream, admitted == Admitted::Extra, router.clone());
                }
            }
        }
    }

    fn admit(&self) -> Admitted {
        let count = self.open_count();
        let most = self.limits.connection_count;
        if count < most || self.make_room(IN_USE) {
            Admitted::Welcome
        } else if count < most + RESERVED_COUNT || self.make_room(Duration::ZERO) {
            Admitted::Extra
        } else {
            Admitted::No
        }
    }

    /// Closes the connection that has done nothing for longest, if one has for `at_least`. Clients go
    /// before peers, and peers only when nothing else helps.
    fn make_room(&self, at_least: Duration) -> bool {
        let now_ms = self.now_ms();
        let open = self.lock();
        let idle = open.values().filter(|connection| {
            let idle_ms = now_ms.saturating_sub(connection.since_ms.load(Ordering::Relaxed));
            connection.may_go()
                && u128::from(idle_ms) >= at_least.as_millis()
                && (at_least.is_zero() || !Connection::is(&connection.is_peer))
        });
        let longest = idle.min_by_key(|connection| {
            let since_ms = connection.since_ms.load(Ordering::Relaxed);
            (Connection::is(&connection.is_peer), since_ms)
        });
        longest.inspect(|connection| connection.go()).is_some()
    }

    fn start(
        self: &Arc<Self>,
        stream: TcpStream,
        is_extra: bool,
        router: TowerToHyperService<Router>,
    ) {
        // Without it an answer may wait for the acknowledgement of the one before; only slower.
        let _ = stream.set_nodelay(true);
        let connection = Arc::new(Connection {
            is_extra,
            is_peer: AtomicBool::new(false),
            has_asked: AtomicBool::new(false),
            is_busy: AtomicBool::new(false),
            since_ms: AtomicU64::new(self.now_ms()),
            is_leaving: AtomicBool::new(false),
            leave: Notify::new(),
        });
        let number = self.next_number.fetch_add(1, Ordering::Relaxed);
        self.lock().insert(number, Arc::clone(&connection));
        let connections = Arc::clone(self);
        tokio::spawn(async move {
            connections.converse(stream, &connection, router).await;
            connections.lock().remove(&number);
            connections.gone.notify_waiters();
        });
    }

    /// Answers the requests of one connection until it ends or is told to go.
    async fn converse(
        &self,
        stream: TcpStream,
        connection: &Arc<Connection>,
        router: TowerToHyperService<Router>,
    ) {
        let service = service_fn(|mut request: Request<Incoming>| {
            let under_way = self.begin(connection, &request);
            if connection.is_extra && !Connection::is(&connection.is_peer) {
                request.extensions_mut().insert(Crowded);
            }
            let answer = router.call(request);
            async move {
                let answer: Result<Response<Body>, Infallible> = answer.await;
                drop(under_way);
                answer
            }
        });
        let conversation = http1::Builder::new()
            .max_header_size(MAX_HEAD_BYTES)
            .serve_connection(TokioIo::new(stream), service);
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
                    if connection.may_be_cut() && !Connection::is(&self.is_stopping) {
                        return;
                    }
                    // Ends at once where nothing is under way; what is gets its answer first.
                    conversation.as_mut().graceful_shutdown();
                }
            }
        }
    }

    fn begin<'a>(
        &'a self,
        connection: &'a Connection,
        request: &Request<Incoming>,
    ) -> UnderWay<'a> {
        let is_peer = request.uri().path().starts_with(PEER_PATHS);
        connection.is_peer.store(is_peer, Ordering::Relaxed);
        connection.has_asked.store(true, Ordering::Relaxed);
        connection.is_busy.store(true, Ordering::Relaxed);
        connection.since_ms.store(self.now_ms(), Ordering::Relaxed);
        UnderWay {
            connections: self,
            connection,
        }
    }

    /// Closes what does nothing for too long: connections that are only held, heads and answers
    /// that make no progress.
    async fn sweep(&self) {
        let mut sweeps = tokio::time::interval(SWEEP_PERIOD);
        loop {
            sweeps.tick().await;
            let now_ms = self.now_ms();
            for connection in self.lock().values() {
                let limit = if Connection::is(&connection.has_asked) {
                    self.limits.idle
                } else {
                    self.limits.first_request
                };
                let idle_ms = now_ms.saturating_sub(connection.since_ms.load(Ordering::Relaxed));
                if connection.may_go() && u128::from(idle_ms) >= limit.as_millis() {
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
        let leaving = |connection: &&Arc<Connection>| Connection::is(&connection.is_leaving);
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
        let now_ms = self.connections.now_ms();
        self.connection.since_ms.store(now_ms, Ordering::Relaxed);
        self.connection.is_busy.store(false, Ordering::Relaxed);
    }
}

#[cfg(test)]
mod tests {
    use std::net::SocketAddr;

    use axum::routing::get;
    use tokio::io::{AsyncReadExt, AsyncWriteExt};

    use super::*;

    const PATIENCE: Duration = Duration::from_secs(20);

    const LIMITS: Limits = Limits {
        connection_count: 100,
        first_request: PATIENCE,
        idle: PATIENCE,
    };

    /// A server with a quick path, one that never answers, and one whose answer is too long for
    /// the buffers of a connection.
    async fn serve(limits: Limits) -> (Arc<Connections>, SocketAddr, oneshot::Sender<()>) {
        let router = Router::new()
            .route("/quick", get(async || "done"))
            .route("/raft/quick", get(async || "done"))
            .route("/never", get(std::future::pending::<()>))
            .route("/long", get(async || vec![0; 64 * 1024 * 1024]));
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let connections = Connections::new(limits);
        let (stop, stopped) = oneshot::channel();
        Arc::clone(&connections).serve(listener, router, stopped);
        (connections, address, stop)
    }

    async fn connect(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let head = format!("GET {path} HTTP/1.1\r\nhost: x\r\n\r\n");
        stream.write_all(head.as_bytes()).await.unwrap();
        stream
    }

    /// Has been answered, and stays.
    async fn idle(address: SocketAddr, path: &str) -> TcpStream {
        let mut stream = connect(address, path).await;
        let mut said = Vec::new();
        while !said.ends_with(b"done") {
            assert!(stream.read_buf(&mut said).await.unwrap() > 0);
        }
        stream
    }

    async fn until(what: &str, mut check: impl FnMut() -> bool) {
        let deadline = Instant::now() + PATIENCE;
        while !check() {
            assert!(Instant::now() < deadline, "waited in vain: {what}");
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    async fn is_over(stream: &mut TcpStream) -> bool {
        let mut byte = [0; 1];
        let reading = stream.read(&mut byte);
        let outcome = tokio::time::timeout(PATIENCE, reading).await;
        !matches!(outcome.expect("the connection ends"), Ok(1..))
    }

    #[tokio::test]
    async fn what_does_nothing_is_closed_and_what_is_under_way_is_not() {
        let limits = Limits {
            idle: Duration::from_millis(100),
            ..LIMITS
        };
        let (connections, address, _stop) = serve(limits).await;
        let _waiting = connect(address, "/never").await;
        // Never reads its answer.
        let _clogged = connect(address, "/long").await;
        let mut idle = idle(address, "/quick").await;
        assert!(is_over(&mut idle).await);
        until("only the waiting one is left", || {
            connections.lock().len() == 1
        })
        .await;
        // A few sweeps later it is still there.
        tokio::time::sleep(SWEEP_PERIOD * 2).await;
        assert_eq!(connections.lock().len(), 1);
    }

    #[tokio::test]
    async fn the_longest_idle_client_goes_first_and_a_peer_last() {
        let (connections, address, _stop) = serve(LIMITS).await;
        let mut peer = idle(address, "/raft/quick").await;
        let mut first = idle(address, "/quick").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        let mut second = idle(address, "/quick").await;
        let _busy = connect(address, "/never").await;
        until("the request is under way", || {
            let open = connections.lock();
            open.values().any(|connection| !connection.may_be_cut())
        })
        .await;
        assert!(!connections.make_room(PATIENCE), "none is idle for so long");
        for stream in [&mut first, &mut second, &mut peer] {
            assert!(connections.make_room(Duration::ZERO));
            assert!(is_over(stream).await);
        }
        assert!(
            !connections.make_room(Duration::ZERO),
            "a request is under way"
        );
    }

    #[tokio::test]
    async fn an_idle_peer_keeps_its_place_while_there_is_a_reserve() {
        let (connections, address, _stop) = serve(LIMITS).await;
        let _peer = idle(address, "/raft/quick").await;
        tokio::time::sleep(Duration::from_millis(20)).await;
        assert!(!connections.make_room(Duration::from_millis(10)));
    }

    #[tokio::test]
    async fn the_reserve_ends_somewhere() {
        let limits = Limits {
            connection_count: 1,
            ..LIMITS
        };
        let (connections, address, _stop) = serve(limits).await;
        let mut busy = Vec::new();
        for count in 1..=1 + RESERVED_COUNT {
            busy.push(connect(address, "/never").await);
            let is_under_way = |connection: &Arc<Connection>| !connection.may_be_cut();
            until("it is under way", || {
                connections
                    .lock()
                    .values()
                    .filter(|one| is_under_way(one))
                    .count()
                    == count
            })
            .await;
        }
        let mut refused = TcpStream::connect(address).await.unwrap();
        assert!(is_over(&mut refused).await);
        assert_eq!(connections.open_count(), 1 + RESERVED_COUNT);
        drop(busy);
        until("they are gone", || connections.open_count() == 0).await;
        idle(address, "/quick").await;
    }
}
