//! Owns the sending side between replicas: one POST per request, and exactly one outcome for each.
//! Never retries, orders or interprets anything; one peer's silence costs the others nothing.

use std::collections::BTreeMap;
use std::sync::{Arc, Mutex, PoisonError};
use std::time::Duration;

use tokio::runtime::Handle;

use crate::batch::MAX_BATCH_BYTES;
use crate::ids::NodeId;
use crate::message::{Request, Response};
use crate::node_loop::Arrival;
use crate::raft::{Correlation, PeerAnswer};

use super::driver::{Mailbox, Message};
use super::wire::{self, RequestKind};

/// Largest response that is read: one oversized batch on top of an ordinary answer, in bytes.
const MAX_RESPONSE_BYTES: usize = MAX_BATCH_BYTES + 4 * 1024 * 1024;

/// The other voters, as this node reaches them.
#[derive(Debug)]
pub(crate) struct Peers {
    runtime: Handle,
    mailbox: Mailbox,
    links: BTreeMap<NodeId, Arc<Link>>,
    request_timeout: Duration,
}

impl Peers {
    /// # Errors
    /// When no HTTP client can be set up.
    pub(crate) fn new(
        runtime: Handle,
        mailbox: Mailbox,
        urls: &BTreeMap<NodeId, String>,
        request_timeout: Duration,
    ) -> Result<Self, reqwest::Error> {
        let links = urls
            .iter()
            .map(|(peer, url)| Ok((*peer, Arc::new(Link::new(url.clone())?))))
            .collect::<Result<_, reqwest::Error>>()?;
        Ok(Self {
            runtime,
            mailbox,
            links,
            request_timeout,
        })
    }

    /// Sends a request; its outcome arrives in the mailbox. Callable from any thread.
    pub(crate) fn send(&self, peer: NodeId, correlation: Correlation, request: Request) {
        let mailbox = self.mailbox.clone();
        let deliver = move |answer| {
            // A node that has stopped needs no answers.
            let _ = mailbox.send(Message::Arrival(Arrival::PeerAnswer {
                peer,
                correlation,
                answer,
            }));
        };
        let Some(link) = self.links.get(&peer).map(Arc::clone) else {
            return deliver(PeerAnswer::Failed);
        };
        let timeout = match &request {
            Request::Fetch(fetch) => self
                .request_timeout
                .saturating_add(Duration::from_millis(fetch.max_wait_ms)),
            _ => self.request_timeout,
        };
        self.runtime.spawn(async move {
            let answer = match link.ask(correlation, request, timeout).await {
                Ok(response) => PeerAnswer::Response(response),
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
    url: String,
    client: Mutex<Connections>,
}

/// A client with its pool of connections, and how many pools came before it.
#[derive(Debug, Clone)]
struct Connections {
    generation: u64,
    client: reqwest::Client,
}

impl Link {
    fn new(url: String) -> Result<Self, reqwest::Error> {
        let client = Mutex::new(Connections {
            generation: 0,
            client: client()?,
        });
        Ok(Self { url, client })
    }

    async fn ask(
        &self,
        correlation: Correlation,
        request: Request,
        timeout: Duration,
    ) -> Result<Response, String> {
        let connections = self.connections();
        let kind = RequestKind::of(&request);
        let exchange = self.exchange(
            &connections.client,
            kind,
            correlation,
            wire::encode_request(&request),
        );
        let outcome = match tokio::time::timeout(timeout, exchange).await {
            Ok(Ok(body)) => wire::decode_response(kind, &body).map_err(|error| error.to_string()),
            Ok(Err(reason)) => Err(reason),
            Err(_) => Err("timed out".into()),
        };
        if outcome.is_err() {
            self.forget(connections.generation);
        }
        outcome
    }

    async fn exchange(
        &self,
        client: &reqwest::Client,
        kind: RequestKind,
        correlation: Correlation,
        body: Vec<u8>,
    ) -> Result<Vec<u8>, String> {
        let mut response = client
            .post(format!("{}{}", self.url, kind.path()))
            .header(reqwest::header::CONTENT_TYPE, wire::JSON)
            .header(wire::CORRELATION_HEADER, correlation.0)
            .body(body)
            .send()
            .await
            .map_err(|error| error.to_string())?;
        if !response.status().is_success() {
            return Err(format!("status {}", response.status()));
        }
        let mut bytes = Vec::with_capacity(
            response
                .content_length()
                .unwrap_or(0)
                .min(MAX_RESPONSE_BYTES as u64) as usize,
        );
        while let Some(chunk) = response.chunk().await.map_err(|error| error.to_string())? {
            if bytes.len() + chunk.len() > MAX_RESPONSE_BYTES {
                return Err(format!("more than {MAX_RESPONSE_BYTES} bytes"));
            }
            bytes.extend_from_slice(&chunk);
        }
        Ok(bytes)
    }

    fn connections(&self) -> Connections {
        self.client
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .clone()
    }

    /// Drops all idle connections: after one failed, the others may hang in the same dead path.
    /// Requests that are under way finish on the connections they have.
    fn forget(&self, generation: u64) {
        let mut connections = self.client.lock().unwrap_or_else(PoisonError::into_inner);
        if connections.generation == generation
            && let Ok(client) = client()
        {
            *connections = Connections {
                generation: generation + 1,
                client,
            };
        }
    }
}

fn client() -> Result<reqwest::Client, reqwest::Error> {
    reqwest::Client::builder()
        .no_proxy()
        .tcp_nodelay(true)
        .redirect(reqwest::redirect::Policy::none())
        .build()
}

#[cfg(test)]
mod tests {

    use tokio::io::{AsyncReadExt, AsyncWriteExt};
    use tokio::net::{TcpListener, TcpStream};

    use super::*;
    use crate::ids::Epoch;
    use crate::message::{EndQuorumEpochRequest, ErrorCode, QuorumEpochResponse};
    use crate::server::driver::Inbox;

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
        (
            Peers::new(Handle::current(), mailbox, &urls, timeout).unwrap(),
            inbox,
        )
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

    #[tokio::test]
    async fn a_silent_peer_delays_nobody_else_and_fails_in_the_end() {
        let (_silent, silent_url) = listen().await;
        let (lively, lively_url) = listen().await;
        let (peers, mut inbox) = peers(&[&silent_url, &lively_url], Duration::from_millis(300));
        let begun = tokio::time::Instant::now();
        peers.send(NodeId(2), Correlation(1), request());
        peers.send(NodeId(3), Correlation(2), request());
        let mut stream = accept(&lively).await;
        let (_, body) = wire::encode_response(&response());
        serve_one(&mut stream, "200 OK", &body).await;
        let answer = PeerAnswer::Response(response());
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
        let (peers, mut inbox) = peers(&[&url], Duration::from_secs(10));
        peers.send(NodeId(2), Correlation(1), request());
        assert_eq!(
            next(&mut inbox).await,
            (NodeId(2), Correlation(1), PeerAnswer::Failed)
        );
        peers.send(NodeId(9), Correlation(2), request());
        assert_eq!(
            next(&mut inbox).await,
            (NodeId(9), Correlation(2), PeerAnswer::Failed)
        );
    }

    #[tokio::test]
    async fn connections_are_kept_until_something_fails() {
        let (listener, url) = listen().await;
        let (peers, mut inbox) = peers(&[&url], Duration::from_secs(10));
        let (_, body) = wire::encode_response(&response());
        peers.send(NodeId(2), Correlation(1), request());
        let mut first = accept(&listener).await;
        serve_one(&mut first, "200 OK", &body).await;
        assert!(matches!(next(&mut inbox).await.2, PeerAnswer::Response(_)));
        for (correlation, status, body) in [
            (2, "200 OK", &b"{\"error\":"[..]),
            (4, "503 Service Unavailable", b"{}"),
        ] {
            // The same connection again, and nonsense on it.
            peers.send(NodeId(2), Correlation(correlation), request());
            serve_one(&mut first, status, body).await;
            assert_eq!(next(&mut inbox).await.2, PeerAnswer::Failed, "{status}");
            peers.send(NodeId(2), Correlation(correlation + 1), request());
            first = accept(&listener).await;
            let (_, sound) = wire::encode_response(&response());
            serve_one(&mut first, "200 OK", &sound).await;
            let outcome = next(&mut inbox).await;
            assert_eq!(outcome.1, Correlation(correlation + 1));
            assert!(matches!(outcome.2, PeerAnswer::Response(_)), "{outcome:?}");
        }
    }
}
