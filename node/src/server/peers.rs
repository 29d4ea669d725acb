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
mod tests;
