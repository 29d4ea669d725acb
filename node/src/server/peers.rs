//! Owns the sending side between replicas: one POST per request, and exactly one outcome for each.
//! Never retries, orders or interprets anything; one peer's silence costs the others nothing.
//!
//! Where a peer listens is said by, in this order: the routes that this process was given, the peer itself
//! (KIP-853), and the hints that this process was given. A hint is also tried, in turns, while nobody answers
//! where the peer is said to listen, or another replica does: when all voters have moved, nobody is left who could
//! say where to, and one may have moved to where another was.

use std::collections::BTreeMap;
use std::io::Write;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::batch::MAX_BATCH_BYTES;
use crate::ids::NodeId;
use crate::message::{Request, Response};
use crate::node_loop::Arrival;
use crate::raft::{self, Correlation, PeerAnswer};

use super::complaints::Complaints;
use super::mailbox::{Mailbox, Message};
use super::peer_connection::PeerConnection;
use super::wire::{self, RequestKind};

/// Largest response that is read: one oversized batch on top of an ordinary answer, in bytes.
const MAX_RESPONSE_BYTES: usize = MAX_BATCH_BYTES + 4 * 1024 * 1024;

/// Room for the head of a request, in bytes.
const HEAD_BYTES: usize = 256;

/// How many of the addresses that one peer is said to have are kept: what the voters in the log say, and what
/// others say of a leader that has moved since.
const MAX_LEARNED_COUNT: usize = 2;

/// The other replicas, as this node reaches them.
#[derive(Debug)]
pub(crate) struct Peers {
    runtime: Handle,
    mailbox: Mailbox,
    /// Where this process was told to reach them, whatever they say.
    routes: BTreeMap<NodeId, Arc<Link>>,
    /// Where this process was told to look first.
    hints: BTreeMap<NodeId, Arc<Link>>,
    /// Where the protocol says that they are, the oldest first.
    learned: BTreeMap<NodeId, Vec<Arc<Link>>>,
    request_timeout: Duration,
}

impl Peers {
    pub(crate) fn new(
        runtime: Handle,
        mailbox: Mailbox,
        routes: &BTreeMap<NodeId, String>,
        hints: &BTreeMap<NodeId, String>,
        request_timeout: Duration,
    ) -> Self {
        let links = |urls: &BTreeMap<NodeId, String>| {
            let links = urls.iter();
            links
                .map(|(peer, url)| (*peer, Arc::new(Link::new(url))))
                .collect()
        };
        Self {
            runtime,
            mailbox,
            routes: links(routes),
            hints: links(hints),
            learned: BTreeMap::new(),
            request_timeout,
        }
    }

    /// The way to a replica that the protocol says listens at `endpoint`.
    fn link(&mut self, peer: NodeId, endpoint: Option<&str>) -> Option<Arc<Link>> {
        if let Some(route) = self.routes.get(&peer) {
            return Some(Arc::clone(route));
        }
        let hint = self.hints.get(&peer);
        let Some(endpoint) = endpoint else {
            return hint.map(Arc::clone);
        };
        let authority = authority_of(endpoint);
        let links = self.learned.entry(peer).or_default();
        let known = links.iter().find(|link| link.authority == authority);
        let learned = match known {
            Some(known) => Arc::clone(known),
            None => {
                let link = Arc::new(Link::new(endpoint));
                if links.len() == MAX_LEARNED_COUNT {
                    links.remove(0);
                }
                links.push(Arc::clone(&link));
                link
            }
        };
        match hint {
            Some(hint) if hint.authority != authority && learned.takes_turn_after_silence() => {
                Some(Arc::clone(hint))
            }
            _ => Some(learned),
        }
    }

    /// The way to an address that a replica is said to have. Whether it can be reached there, and nowhere else,
    /// is what the request is to find out (KAFKA-20661).
    fn link_to_probe(&self, peer: NodeId, endpoint: Option<&str>) -> Option<Arc<Link>> {
        let hint = self.hints.get(&peer);
        if let Some(known) = self
            .routes
            .get(&peer)
            .or(hint.filter(|_| endpoint.is_none()))
        {
            return Some(Arc::clone(known));
        }
        let authority = authority_of(endpoint?);
        let learned = self.learned.get(&peer).into_iter().flatten();
        let known = learned.chain(hint);
        let mut same = known.filter(|link| link.authority == authority);
        match same.next() {
            Some(link) => Some(Arc::clone(link)),
            None => Some(Arc::new(Link::new(endpoint?))),
        }
    }

    /// Sends a request; its outcome arrives in the mailbox.
    pub(crate) fn send(
        &mut self,
        peer: NodeId,
        endpoint: Option<&str>,
        correlation: Correlation,
        request: Request,
    ) {
        let mailbox = self.mailbox.clone();
        let deliver = move |answer| {
            // A node that has stopped needs no answers.
            let _ = mailbox.send(Message::Arrival(Arrival::PeerAnswer {
                peer,
                correlation,
                answer,
            }));
        };
        let link = match &request {
            Request::ApiVersions(_) => self.link_to_probe(peer, endpoint),
            _ => self.link(peer, endpoint),
        };
        let Some(link) = link else {
            return deliver(PeerAnswer::Failed);
        };
        let timeout = match &request {
            Request::Fetch(fetch) => self
                .request_timeout
                .saturating_add(Duration::from_millis(fetch.max_wait_ms)),
            _ => self.request_timeout,
        };
        // Into the socket at once where that goes.
        let underway = link.begin(correlation, &request);
        self.runtime.spawn(async move {
            let answer = match link.finish(peer, underway, timeout).await {
                Ok(response) => {
                    link.complaints.note(peer, &link.authority, &response);
                    PeerAnswer::Response(Box::new(response))
                }
                Err(reason) => {
                    tracing::debug!(%peer, reason, "no answer");
                    PeerAnswer::Failed
                }
            };
            deliver(answer);
        });
    }
}

/// The way to one peer.
#[derive(Debug)]
struct Link {
    /// Host and port.
    authority: String,
    complaints: Complaints,
    idle: Mutex<Idle>,
    /// Whether the last request had no answer of the peer, and nothing was made of that yet.
    is_silent: AtomicBool,
}

/// Connections without a request (there is at most one on each), and how often all of them were dropped before.
#[derive(Debug, Default)]
struct Idle {
    generation: u64,
    connections: Vec<PeerConnection>,
}

/// A request that was begun.
#[derive(Debug)]
struct Underway {
    kind: RequestKind,
    bytes: Vec<u8>,
    /// Where, and how much of it is written there; none where a connection has to be opened first.
    on: Option<(PeerConnection, usize)>,
    generation: u64,
}

impl Link {
    fn new(url: &str) -> Self {
        Self {
            authority: authority_of(url),
            complaints: Complaints::default(),
            idle: Mutex::default(),
            is_silent: AtomicBool::new(false),
        }
    }

    /// Whether the next request had better go elsewhere. True once after each failure.
    fn takes_turn_after_silence(&self) -> bool {
        self.is_silent.swap(false, Ordering::Relaxed)
    }

    /// Writes a request to a connection that waits for one, if there is any.
    fn begin(&self, correlation: Correlation, request: &Request) -> Underway {
        let kind = RequestKind::of(request);
        let bytes = self.message(kind, correlation, &wire::encode_request(request));
        let mut idle = self.idle();
        let on = std::iter::from_fn(|| idle.connections.pop()).find_map(|connection| {
            let sent_bytes = connection.begin(&bytes)?;
            Some((connection, sent_bytes))
        });
        Underway {
            kind,
            bytes,
            on,
            generation: idle.generation,
        }
    }

    fn message(&self, kind: RequestKind, correlation: Correlation, body: &[u8]) -> Vec<u8> {
        let mut message = Vec::with_capacity(HEAD_BYTES + body.len());
        write!(
            message,
            "POST {} HTTP/1.1\r\nhost: {}\r\ncontent-type: {}\r\n{}: {}\r\ncontent-length: {}\r\n\r\n",
            kind.path(),
            self.authority,
            wire::JSON,
            wire::CORRELATION_HEADER,
            correlation.0,
            body.len()
        )
        .expect("memory takes what is written to it");
        message.extend_from_slice(body);
        message
    }

    /// Waits for the outcome of a request that was begun.
    async fn finish(
        &self,
        peer: NodeId,
        underway: Underway,
        timeout: Duration,
    ) -> Result<Response, String> {
        let generation = underway.generation;
        let outcome = match tokio::time::timeout(timeout, self.exchange(underway)).await {
            Ok(outcome) => outcome,
            Err(_) => Err("timed out".into()),
        };
        let answered = outcome.as_ref();
        let is_silent = answered.map_or(true, |(response, _)| raft::is_of_another(peer, response));
        self.is_silent.store(is_silent, Ordering::Relaxed);
        let mut idle = self.idle();
        match outcome {
            Ok((response, connection)) => {
                if idle.generation == generation {
                    idle.connections.extend(connection);
                }
                Ok(response)
            }
            Err(reason) => {
                // After one connection failed, the others may hang in the same dead path. Requests
                // that are under way finish on the connections they have.
                if idle.generation == generation {
                    idle.generation += 1;
                    idle.connections.clear();
                }
                Err(reason)
            }
        }
    }

    /// Returns, besides the response, the connection, if it takes another request.
    async fn exchange(
        &self,
        Underway {
            kind, bytes, on, ..
        }: Underway,
    ) -> Result<(Response, Option<PeerConnection>), String> {
        let (mut connection, sent_bytes) = match on {
            Some(on) => on,
            None => {
                let opened = PeerConnection::open(&self.authority).await;
                (opened.map_err(|error| error.to_string())?, 0)
            }
        };
        let written = connection.write(&bytes[sent_bytes..]).await;
        written.map_err(|error| error.to_string())?;
        drop(bytes);
        let answer = connection.answer(MAX_RESPONSE_BYTES).await;
        let answer = answer.map_err(|error| error.to_string())?;
        let response = wire::decode_response(kind, answer.body);
        let response = response.map_err(|error| error.to_string())?;
        let stays_open = answer.stays_open;
        Ok((response, stays_open.then_some(connection)))
    }

    fn idle(&self) -> MutexGuard<'_, Idle> {
        self.idle.lock().unwrap_or_else(PoisonError::into_inner)
    }
}

/// Host and port of a base URL; port 80 where it names none.
fn authority_of(url: &str) -> String {
    let authority = url.trim_start_matches("http://");
    // The colons of an IPv6 address are within brackets.
    let after_host = authority.rsplit(']').next().unwrap_or(authority);
    if after_host.contains(':') {
        authority.to_owned()
    } else {
        format!("{authority}:80")
    }
}

#[cfg(test)]
mod tests {
    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::ids::Epoch;
    use crate::message::{
        ApiVersionsRequest, EndQuorumEpochRequest, ErrorCode, QuorumEpochResponse,
    };
    use crate::server::mailbox::Inbox;

    fn request() -> Request {
        Request::EndQuorumEpoch(EndQuorumEpochRequest {
            cluster_id: "test".into(),
            leader_id: NodeId(1),
            leader_epoch: Epoch(3),
            preferred_successors: Vec::new(),
            leader_endpoint: None,
        })
    }

    fn response() -> Response {
        Response::EndQuorumEpoch(QuorumEpochResponse {
            error: ErrorCode::None,
            leader_id: None,
            leader_epoch: Epoch(3),
            leader_endpoint: None,
        })
    }

    async fn listen() -> (TcpListener, String) {
        let listener = TcpListener::bind("127.0.0.1:0").await.unwrap();
        let url = format!("http://{}", listener.local_addr().unwrap());
        (listener, url)
    }

    fn peers(urls: &[&str], timeout: Duration) -> (Peers, Inbox) {
        let (mailbox, inbox) = Mailbox::new();
        let urls = (2..)
            .map(NodeId)
            .zip(urls.iter().map(ToString::to_string))
            .collect();
        let routes = BTreeMap::new();
        let peers = Peers::new(Handle::current(), mailbox, &routes, &urls, timeout);
        (peers, inbox)
    }

    async fn next(inbox: &mut Inbox) -> (NodeId, Correlation, PeerAnswer) {
        let deadline = tokio::time::Instant::now() + Duration::from_secs(20);
        loop {
            match inbox.try_recv() {
                Ok(Message::Arrival(Arrival::PeerAnswer {
                    peer,
                    correlation,
                    answer,
                })) => {
                    return (peer, correlation, answer);
                }
                Ok(other) => panic!("{other:?}"),
                Err(_) => assert!(tokio::time::Instant::now() < deadline, "no outcome"),
            }
            tokio::time::sleep(Duration::from_millis(2)).await;
        }
    }

    async fn accept(listener: &TcpListener) -> TcpStream {
        let accepted = tokio::time::timeout(Duration::from_secs(20), listener.accept()).await;
        accepted.expect("a new connection").unwrap().0
    }

    async fn serve_one(stream: &mut TcpStream, status: &str, body: &[u8]) {
        let mut seen = Vec::new();
        let last = wire::encode_request(&request());
        while !seen.ends_with(&last) {
            let mut bytes = [0; 1024];
            let read_bytes = stream.read(&mut bytes).await.unwrap();
            assert!(read_bytes > 0, "the request ends early");
            seen.extend_from_slice(&bytes[..read_bytes]);
        }
        assert!(seen.starts_with(b"POST /raft/end-quorum-epoch HTTP/1.1\r\n"));
        let head = format!(
            "HTTP/1.1 {status}\r\ncontent-length: {}\r\n\r\n",
            body.len()
        );
        stream.write_all(head.as_bytes()).await.unwrap();
        stream.write_all(body).await.unwrap();
    }

    #[test]
    fn a_url_without_a_port_means_port_80() {
        for (url, authority) in [
            ("http://127.0.0.1:9001", "127.0.0.1:9001"),
            ("http://localhost", "localhost:80"),
            ("http://[::1]:9001", "[::1]:9001"),
            ("http://[::1]", "[::1]:80"),
        ] {
            assert_eq!(authority_of(url), authority);
        }
    }

    #[tokio::test]
    async fn a_silent_peer_delays_nobody_else_and_fails_in_the_end() {
        let (_silent, silent_url) = listen().await;
        let (lively, lively_url) = listen().await;
        let (mut peers, mut inbox) = peers(&[&silent_url, &lively_url], Duration::from_millis(300));
        let begun = tokio::time::Instant::now();
        peers.send(NodeId(2), None, Correlation(1), request());
        peers.send(NodeId(3), None, Correlation(2), request());
        let mut stream = accept(&lively).await;
        let (_, body) = wire::encode_response(&response());
        serve_one(&mut stream, "200 OK", &body).await;
        let answer = PeerAnswer::Response(Box::new(response()));
        assert_eq!(next(&mut inbox).await, (NodeId(3), Correlation(2), answer));
        assert_eq!(
            next(&mut inbox).await,
            (NodeId(2), Correlation(1), PeerAnswer::Failed)
        );
        assert!(begun.elapsed() >= Duration::from_millis(300));
    }

    #[tokio::test]
    async fn a_peer_that_is_not_there_or_not_known_fails() {
        let (listener, url) = listen().await;
        drop(listener);
        let (mut peers, mut inbox) = peers(&[&url], Duration::from_secs(10));
        peers.send(NodeId(2), None, Correlation(1), request());
        assert_eq!(
            next(&mut inbox).await,
            (NodeId(2), Correlation(1), PeerAnswer::Failed)
        );
        peers.send(NodeId(9), None, Correlation(2), request());
        assert_eq!(
            next(&mut inbox).await,
            (NodeId(9), Correlation(2), PeerAnswer::Failed)
        );
    }

    #[tokio::test]
    async fn connections_are_kept_until_something_fails() {
        let (listener, url) = listen().await;
        let (mut peers, mut inbox) = peers(&[&url], Duration::from_secs(10));
        let (_, body) = wire::encode_response(&response());
        peers.send(NodeId(2), None, Correlation(1), request());
        let mut first = accept(&listener).await;
        serve_one(&mut first, "200 OK", &body).await;
        assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
        for (correlation, status, body) in [
            (2, "200 OK", &b"{\"error\":"[..]),
            (4, "503 Service Unavailable", b"{}"),
        ] {
            // The same connection again, and nonsense on it.
            peers.send(NodeId(2), None, Correlation(correlation), request());
            serve_one(&mut first, status, body).await;
            assert_eq!(next(&mut inbox).await.2, PeerAnswer::Failed, "{status}");
            peers.send(NodeId(2), None, Correlation(correlation + 1), request());
            first = accept(&listener).await;
            let (_, sound) = wire::encode_response(&response());
            serve_one(&mut first, "200 OK", &sound).await;
            let outcome = next(&mut inbox).await;
            assert_eq!(outcome.1, Correlation(correlation + 1));
            assert!(matches!(outcome.2, PeerAnswer::Response(_)), "{outcome:?}");
        }
    }

    async fn outcome_of(
        peers: &mut Peers,
        inbox: &mut Inbox,
        correlation: u64,
        endpoint: &str,
    ) -> PeerAnswer {
        peers.send(
            NodeId(2),
            Some(endpoint),
            Correlation(correlation),
            request(),
        );
        next(inbox).await.2
    }

    #[tokio::test]
    async fn what_a_peer_says_goes_before_the_hint_which_is_tried_in_turns_in_silence() {
        let (old, old_url) = listen().await;
        let (new, new_url) = listen().await;
        let (mut peers, mut inbox) = peers(&[&old_url], Duration::from_secs(60));
        let (_, body) = wire::encode_response(&response());
        peers.send(NodeId(2), Some(&new_url), Correlation(1), request());
        let mut stream = accept(&new).await;
        serve_one(&mut stream, "200 OK", &body).await;
        assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));

        drop((stream, new));
        for correlation in [2, 4] {
            let gone = outcome_of(&mut peers, &mut inbox, correlation, &new_url).await;
            assert_eq!(gone, PeerAnswer::Failed);
            peers.send(
                NodeId(2),
                Some(&new_url),
                Correlation(correlation + 1),
                request(),
            );
            let mut stream = accept(&old).await;
            serve_one(&mut stream, "200 OK\r\nconnection: close", &body).await;
            assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
        }
    }

    /// Two peers that have changed places, say, and of which one was told where the other is now.
    #[tokio::test]
    async fn an_answer_of_another_replica_gives_the_hint_its_turn() {
        let (another, another_url) = listen().await;
        let (right, right_url) = listen().await;
        let (mut peers, mut inbox) = peers(&[&right_url], Duration::from_secs(60));
        let close = "200 OK\r\nconnection: close";
        let refused = [
            (ErrorCode::InvalidVoterKey, None),
            (ErrorCode::InvalidRequest, None),
            (ErrorCode::InconsistentClusterId, None),
            (ErrorCode::NotLeaderOrFollower, Some(NodeId(2))),
        ];
        let mut correlation = 0;
        for (error, leader_id) in refused {
            for (listener, error) in [(&another, error), (&right, ErrorCode::None)] {
                let (_, body) =
                    wire::encode_response(&Response::EndQuorumEpoch(QuorumEpochResponse {
                        error,
                        leader_id,
                        leader_epoch: Epoch(3),
                        leader_endpoint: None,
                    }));
                correlation += 1;
                peers.send(
                    NodeId(2),
                    Some(&another_url),
                    Correlation(correlation),
                    request(),
                );
                let mut stream = accept(listener).await;
                serve_one(&mut stream, close, &body).await;
                assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
            }
        }
    }

    /// What the voters say and what others say of a leader, in turns, leave the hint its turns.
    #[tokio::test]
    async fn each_address_that_a_peer_is_said_to_have_leaves_the_hint_its_own_turn() {
        let (right, right_url) = listen().await;
        let (mut peers, mut inbox) = peers(&[&right_url], Duration::from_secs(60));
        let mut gone_urls = Vec::new();
        for _ in 0..2 {
            let (gone, url) = listen().await;
            drop(gone);
            gone_urls.push(url);
        }
        for (correlation, url) in gone_urls.iter().enumerate() {
            let gone = outcome_of(&mut peers, &mut inbox, correlation as u64, url).await;
            assert_eq!(gone, PeerAnswer::Failed);
        }
        let (_, body) = wire::encode_response(&response());
        for (correlation, url) in gone_urls.iter().enumerate() {
            peers.send(
                NodeId(2),
                Some(url),
                Correlation(10 + correlation as u64),
                request(),
            );
            let mut stream = accept(&right).await;
            serve_one(&mut stream, "200 OK\r\nconnection: close", &body).await;
            assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
        }
    }

    #[tokio::test]
    async fn a_route_goes_before_everything_that_is_said() {
        let (listener, url) = listen().await;
        let (gone, gone_url) = listen().await;
        drop(gone);
        let (mailbox, mut inbox) = Mailbox::new();
        let routes = BTreeMap::from([(NodeId(2), url)]);
        let hints = BTreeMap::from([(NodeId(2), gone_url.clone())]);
        let timeout = Duration::from_secs(60);
        let mut peers = Peers::new(Handle::current(), mailbox, &routes, &hints, timeout);
        let (_, body) = wire::encode_response(&response());
        for (correlation, endpoint) in [(1, None), (2, Some(&*gone_url))] {
            peers.send(NodeId(2), endpoint, Correlation(correlation), request());
            let mut stream = accept(&listener).await;
            serve_one(&mut stream, "200 OK\r\nconnection: close", &body).await;
            assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
        }
    }

    /// Somebody listens at the hint, but whether a node is there is not the question.
    #[tokio::test]
    async fn whether_an_address_is_right_is_asked_there_and_nowhere_else() {
        let (_hinted, hinted_url) = listen().await;
        let (gone, gone_url) = listen().await;
        drop(gone);
        let timeout = Duration::from_secs(60);
        let (mut peers, mut inbox) = peers(&[&hinted_url], timeout);
        let begun = tokio::time::Instant::now();
        for correlation in [1, 2] {
            let probe = Request::ApiVersions(ApiVersionsRequest {
                cluster_id: "test".into(),
            });
            peers.send(NodeId(2), Some(&gone_url), Correlation(correlation), probe);
            assert_eq!(next(&mut inbox).await.2, PeerAnswer::Failed);
        }
        assert!(
            begun.elapsed() < timeout,
            "nobody waited for who is silent there"
        );
    }
}
