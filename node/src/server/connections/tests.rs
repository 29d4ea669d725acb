//! Owns the tests of which connection goes, and which stays.
//! Never asks a node anything.

use std::net::SocketAddr;

use axum::routing::{get, put};
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
        .route("/put", put(async |_: crate::server::body::Body| "done"))
        .route(
            "/raft/put",
            put(async |_: crate::server::body::Body| "done"),
        )
        .route("/never", get(std::future::pending::<()>))
        .route("/long", get(async || vec![0; 64 * 1024 * 1024]));
    let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
    let address = listener.local_addr().unwrap();
    let connections = Connections::new(limits);
    let (stop, stopped) = oneshot::channel();
    Arc::clone(&connections).serve(listener, Services::new(router, None), stopped);
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
    assert!(
        !connections.make_room(PATIENCE, PATIENCE),
        "none is idle for so long"
    );
    for stream in [&mut first, &mut second, &mut peer] {
        assert!(connections.make_room(Duration::ZERO, Duration::ZERO));
        assert!(is_over(stream).await);
    }
    assert!(
        !connections.make_room(Duration::ZERO, Duration::ZERO),
        "a request is under way"
    );
}

#[tokio::test]
async fn an_idle_peer_keeps_its_place_while_there_is_a_reserve() {
    let (connections, address, _stop) = serve(LIMITS).await;
    let _peer = idle(address, "/raft/quick").await;
    tokio::time::sleep(Duration::from_millis(20)).await;
    assert!(!connections.make_room(PATIENCE, Duration::from_millis(10)));
}

#[tokio::test]
async fn unfinished_bodies_leave_half_of_the_places_and_go_before_all_others() {
    let limits = Limits {
        connection_count: 8,
        ..LIMITS
    };
    let (connections, address, _stop) = serve(limits).await;
    let mut peer = idle(address, "/raft/quick").await;
    let mut client = idle(address, "/quick").await;
    let mut unfinished = Vec::new();
    for path in ["/put", "/raft/put"].into_iter().cycle().take(6) {
        let mut stream = TcpStream::connect(address).await.unwrap();
        let half = format!("PUT {path} HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf");
        stream.write_all(half.as_bytes()).await.unwrap();
        tokio::time::sleep(IN_SAYING + Duration::from_millis(20)).await;
        unfinished.push(stream);
    }
    assert!(is_over(&mut unfinished[0]).await && is_over(&mut unfinished[1]).await);
    until("half of the places are left", || {
        connections.receiving_count.load(Ordering::Relaxed) == 4
    })
    .await;
    assert_eq!(connections.receiving_bytes.load(Ordering::Relaxed), 16);
    for stream in unfinished.iter_mut().skip(2) {
        assert!(connections.make_room(IN_SAYING, Duration::ZERO));
        assert!(is_over(stream).await, "they go in the order they came in");
    }
    for stream in [&mut client, &mut peer] {
        assert!(connections.make_room(IN_SAYING, Duration::ZERO));
        assert!(is_over(stream).await);
    }
    until("nothing is kept", || {
        connections.receiving_bytes.load(Ordering::Relaxed) == 0
    })
    .await;
    assert_eq!(connections.receiving_count.load(Ordering::Relaxed), 0);
}

#[tokio::test]
async fn no_more_than_so_much_of_unfinished_bodies_is_kept() {
    let (connections, address, _stop) = serve(LIMITS).await;
    let mut first = TcpStream::connect(address).await.unwrap();
    let half = "PUT /put HTTP/1.1\r\nhost: x\r\ncontent-length: 9\r\n\r\nhalf";
    first.write_all(half.as_bytes()).await.unwrap();
    until("it is kept", || {
        connections.receiving_bytes.load(Ordering::Relaxed) == 4
    })
    .await;
    let later = Unfinished {
        connections: Arc::clone(&connections),
        connection: Arc::new(Connection::new(false, connections.now_ms())),
        is_peer: false,
    };
    connections.enter(&later.connection, Stage::Receiving);
    later.hold(MAX_UNFINISHED_BYTES);
    assert!(is_over(&mut first).await, "the oldest goes");
    assert_eq!(
        connections.receiving_bytes.load(Ordering::Relaxed),
        MAX_UNFINISHED_BYTES
    );
    later.complete();
    assert_eq!(connections.receiving_bytes.load(Ordering::Relaxed), 0);
    let (is_peer, stage) = (later.is_peer, later.connection.stage());
    assert_eq!((is_peer, stage), (false, Stage::Busy));
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
