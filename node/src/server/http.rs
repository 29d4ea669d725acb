//! Owns the HTTP front of a node: what clients, peers and people may ask, and at which paths.
//! Never decides anything about the protocol; it turns requests into arrivals and waits.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::{IntoResponse, Response};
use axum::routing::{MethodRouter, get, post};
use serde::Serialize;

use crate::client::{ClientReply, ClientRequest};
use crate::ids::{Epoch, NodeId, Offset};
use crate::machine::Kind;
use crate::message;
use crate::raft::{QuorumDescription, Role};

use super::admission::Admission;
use super::body::Body;
use super::connections::Crowded;
use super::mailbox::{Mailbox, Message, Snapshot, View};
use super::metrics;
use super::operations::{self, Fault, Key, NoOptions, Options};
use super::peer_requests::answer_peer;
use super::pending::Pending;
use super::replies::{self, Replies};
use super::wire::{self, RequestKind};

/// Describes everything below except what replicas ask each other.
const OPENAPI: &str = include_str!("openapi.json");

/// A client may name the cluster that it means; a node of another one then refuses. Ports change
/// hands, and a write that lands in the wrong cluster would be a lie in two histories.
pub(super) const CLUSTER_HEADER: &str = "x-kraft-cluster-id";

/// How long the loop may take to say that it is alive.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(1);

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) cluster_id: String,
    /// Name of a deliberate mistake that is switched on.
    pub(crate) seeded_bug: Option<&'static str>,
    pub(crate) mailbox: Mailbox,
    pub(crate) clients: Pending<ClientReply>,
    pub(crate) askers: Pending<message::Response>,
    pub(crate) admission: Admission,
    pub(crate) operations: OperationCounts,
    pub(crate) view: View,
    pub(crate) replies: Replies,
    /// How long a client waits for the outcome of its operation.
    pub(crate) client_deadline: Duration,
    /// How long a peer waits for an answer, on top of what a fetch may be held.
    pub(crate) request_timeout: Duration,
}

/// Counts what clients ask for.
#[derive(Debug, Default)]
pub(crate) struct OperationCounts {
    started: AtomicU64,
    timed_out: AtomicU64,
}

impl OperationCounts {
    fn look(&self) -> metrics::Operations {
        metrics::Operations {
            started_count: self.started.load(Ordering::Relaxed),
            timed_out_count: self.timed_out.load(Ordering::Relaxed),
        }
    }
}

/// What clients and people may ask, and where.
fn client_routes() -> [(&'static str, MethodRouter<Arc<Front>>); 12] {
    [
        ("/registers/{key}", reader(Kind::Register).put(write)),
        ("/registers/{key}/compare-and-set", post(compare_and_set)),
        ("/lists/{key}", collection(Kind::List)),
        ("/sets/{key}", collection(Kind::Set)),
        ("/counters/{key}", collection(Kind::Counter)),
        ("/transactions", post(transaction)),
        ("/quorum", get(quorum)),
        ("/state", get(state)),
        ("/metrics", get(show_metrics)),
        ("/health", get(health)),
        ("/health/ready", get(readiness)),
        ("/openapi.json", get(openapi)),
    ]
}

/// All routes of a node.
pub(crate) fn router(front: Arc<Front>) -> Router {
    let mut router = Router::new();
    for (path, methods) in client_routes() {
        router = router.route(path, methods);
    }
    for kind in RequestKind::ALL {
        let handler = move |state: State<Arc<Front>>, headers: HeaderMap, body: Body| {
            answer_peer(state, headers, kind, body)
        };
        router = router.route(kind.path(), post(handler));
    }
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(middleware::from_fn_with_state(
            Arc::clone(&front),
            turn_away,
        ))
        .with_state(front)
}

/// Refuses what must not be looked at any further.
async fn turn_away(State(front): State<Arc<Front>>, request: Request, next: Next) -> Response {
    if request.extensions().get::<Crowded>().is_some() {
        return closing(front.replies.overloaded(front.view.look()));
    }
    // What has a content-length as well loses it before it gets here. Where the two lengths differ, somebody on the
    // way may have gone by the other one, so what follows is not taken for a request (RFC 9112, 6.3).
    let is_chunked = request.headers().contains_key(header::TRANSFER_ENCODING);
    let response = match request.headers().get(CLUSTER_HEADER) {
        Some(cluster_id) if cluster_id.as_bytes() != front.cluster_id.as_bytes() => {
            front.replies.foreign(front.view.look())
        }
        _ => next.run(request).await,
    };
    if is_chunked {
        closing(response)
    } else {
        response
    }
}

/// An answer that is the last one on its connection.
fn closing(mut response: Response) -> Response {
    let close = HeaderValue::from_static("close");
    response.headers_mut().insert(header::CONNECTION, close);
    response
}

/// That there is no query where none means anything.
#[derive(Debug)]
struct NoQuery;

impl FromRequestParts<Arc<Front>> for NoQuery {
    type Rejection = Response;

    async fn from_request_parts(parts: &mut Parts, front: &Arc<Front>) -> Result<Self, Response> {
        match Query::<NoOptions>::try_from_uri(&parts.uri) {
            Ok(_) => Ok(Self),
            Err(rejection) => {
                let Fault { status, message } = operations::misunderstood(rejection);
                Err(front.invalid(status, message))
            }
        }
    }
}

/// Reads of one kind of object.
fn reader(kind: Kind) -> MethodRouter<Arc<Front>> {
    get(
        async move |State(front): State<Arc<Front>>, key: Key, options: Options| {
            let request = operations::read(kind, key, options);
            front.operate(request, 0).await
        },
    )
}

async fn change(
    front: Arc<Front>,
    kind: Kind,
    key: Key,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let body_bytes = body.length_bytes();
    let request = operations::change(kind, key, &headers, body);
    front.operate(request, body_bytes).await
}

/// Reads of one kind of object, and what is added to it.
fn collection(kind: Kind) -> MethodRouter<Arc<Front>> {
    reader(kind).post(
        async move |State(front): State<Arc<Front>>,
                    key: Key,
                    _: NoQuery,
                    headers: HeaderMap,
                    body: Body| { change(front, kind, key, headers, body).await },
    )
}

async fn write(
    State(front): State<Arc<Front>>,
    key: Key,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Response {
    change(front, Kind::Register, key, headers, body).await
}

async fn compare_and_set(
    State(front): State<Arc<Front>>,
    key: Key,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let body_bytes = body.length_bytes();
    let request = operations::compare_and_set(key, &headers, body);
    front.operate(request, body_bytes).await
}

async fn transaction(
    State(front): State<Arc<Front>>,
    _: NoQuery,
    headers: HeaderMap,
    body: Body,
) -> Response {
    let body_bytes = body.length_bytes();
    let request = operations::transaction(&headers, body);
    front.operate(request, body_bytes).await
}

impl Front {
    pub(super) fn invalid(&self, status: StatusCode, message: impl Into<String>) -> Response {
        let response = self.replies.invalid(status, message, self.view.look());
        match status {
            // There is more to come that nobody will read.
            StatusCode::PAYLOAD_TOO_LARGE | StatusCode::REQUEST_TIMEOUT => closing(response),
            _ => response,
        }
    }

    pub(super) fn unavailable(&self) -> Response {
        self.replies.unavailable(self.view.look())
    }

    /// Asks the loop for a description and shows it.
    async fn describe(&self, show: impl FnOnce(Snapshot) -> Response) -> Response {
        match tokio::time::timeout(DESCRIBE_LIMIT, self.mailbox.describe()).await {
            Ok(Some(snapshot)) => show(snapshot),
            Ok(None) => self.unavailable(),
            Err(_) => self
                .replies
                .hanging(DESCRIBE_LIMIT.as_millis(), self.view.look()),
        }
    }

    /// `body_bytes` is how long its body was.
    pub(super) async fn operate(
        &self,
        request: Result<ClientRequest, Fault>,
        body_bytes: usize,
    ) -> Response {
        let request = match request {
            Ok(request) => request,
            Err(Fault { status, message }) => return self.invalid(status, message),
        };
        let Some(seat) = self.admission.admit(body_bytes) else {
            return self.replies.overloaded(self.view.look());
        };
        let mut waiting = self.clients.wait();
        let message = Message::Client {
            ticket: waiting.ticket(),
            request,
            seat: seat.clone(),
            sent_at: Instant::now(),
        };
        if self.mailbox.send(message).is_err() {
            return self.unavailable();
        }
        self.operations.started.fetch_add(1, Ordering::Relaxed);
        match tokio::time::timeout(self.client_deadline, waiting.answer()).await {
            Ok(Some(reply)) => self.replies.client_reply(reply),
            Ok(None) => self.replies.stopped(self.view.look().1),
            Err(_) => {
                self.operations.timed_out.fetch_add(1, Ordering::Relaxed);
                self.replies
                    .timed_out(self.client_deadline.as_millis(), self.view.look().1)
            }
        }
    }
}

#[derive(Debug, Serialize)]
struct QuorumBody<'a> {
    cluster_id: &'a str,
    /// A deliberate mistake that is switched on.
    #[serde(skip_serializing_if = "Option::is_none")]
    seeded_bug: Option<&'static str>,
    #[serde(flatten)]
    quorum: QuorumDescription,
    /// Where the voters are.
    endpoints: BTreeMap<NodeId, String>,
}

async fn quorum(State(front): State<Arc<Front>>, _: NoQuery) -> Response {
    front
        .describe(|snapshot| {
            let body = QuorumBody {
                cluster_id: &front.cluster_id,
                seeded_bug: front.seeded_bug,
                quorum: snapshot.quorum,
                endpoints: front.replies.addresses.all(),
            };
            replies::json(StatusCode::OK, &body)
        })
        .await
}

#[derive(Debug, Serialize)]
struct StateBody {
    id: NodeId,
    epoch: Epoch,
    /// Every record below is applied.
    applied: Offset,
    /// Equal on all nodes that have applied equally much. As hexadecimal text: it has 64 bits, and
    /// many readers of JSON keep only 53 of a number.
    hash: String,
}

async fn state(State(front): State<Arc<Front>>, _: NoQuery) -> Response {
    front
        .describe(|snapshot| {
            let body = StateBody {
                id: snapshot.quorum.id,
                epoch: snapshot.quorum.epoch,
                applied: snapshot.state.applied,
                hash: format!("{:016x}", snapshot.state.digest),
            };
            replies::json(StatusCode::OK, &body)
        })
        .await
}

async fn show_metrics(State(front): State<Arc<Front>>, _: NoQuery) -> Response {
    front
        .describe(|snapshot| {
            let described = metrics::Described {
                quorum: &snapshot.quorum,
                state: snapshot.state,
                disk: snapshot.disk,
                loader: snapshot.loader,
                last_applied: snapshot.last_applied,
                operations: front.operations.look(),
                occupied: front.admission.occupied(),
                counted: &snapshot.counted,
            };
            let text = metrics::render(described);
            ([(header::CONTENT_TYPE, metrics::MEDIA_TYPE)], text).into_response()
        })
        .await
}

#[derive(Debug, Serialize)]
struct HealthBody {
    status: &'static str,
    /// A deliberate mistake that is switched on: this node breaks promises.
    #[serde(skip_serializing_if = "Option::is_none")]
    seeded_bug: Option<&'static str>,
}

async fn health(State(front): State<Arc<Front>>, _: NoQuery) -> Response {
    let body = HealthBody {
        status: "up",
        seeded_bug: front.seeded_bug,
    };
    front
        .describe(|_| replies::json(StatusCode::OK, &body))
        .await
}

/// Whether clients that come here get on: served if the node leads, or else sent to the leader.
async fn readiness(State(front): State<Arc<Front>>, _: NoQuery) -> Response {
    let body = HealthBody {
        status: "ready",
        seeded_bug: front.seeded_bug,
    };
    let show = |snapshot: Snapshot| {
        let quorum = snapshot.quorum;
        if snapshot.is_stopping {
            return front.unavailable();
        }
        let serves = quorum.role != Role::Leader || quorum.high_watermark.is_some();
        if serves && snapshot.serving_leader.is_some() {
            return replies::json(StatusCode::OK, &body);
        }
        front
            .replies
            .not_ready(quorum.role, quorum.leader, quorum.epoch)
    };
    front.describe(show).await
}

async fn openapi(_: NoQuery) -> Response {
    ([(header::CONTENT_TYPE, wire::JSON)], OPENAPI).into_response()
}

async fn unknown_path(State(front): State<Arc<Front>>, uri: Uri) -> Response {
    front.invalid(
        StatusCode::NOT_FOUND,
        format!("there is nothing at {}", uri.path()),
    )
}

async fn wrong_method(State(front): State<Arc<Front>>, method: Method, uri: Uri) -> Response {
    let message = format!("{} does not take {method}", uri.path());
    front.invalid(StatusCode::METHOD_NOT_ALLOWED, message)
}

#[cfg(test)]
mod tests {
    use std::io::Write;
    use std::net::{SocketAddr, TcpStream};

    use serde_json::{Value, json};

    use super::*;
    use crate::node_loop::Arrival;
    use crate::server::admission::Room;
    use crate::server::mailbox::Inbox;
    use crate::server::pending::Tickets;

    /// A front without a loop behind it: the test plays the loop.
    async fn front(client_deadline_ms: u64) -> (Arc<Front>, Inbox, SocketAddr) {
        let (mailbox, inbox) = Mailbox::new();
        let tickets = Arc::new(Tickets::default());
        let front = Arc::new(Front {
            cluster_id: "test".into(),
            seeded_bug: None,
            mailbox,
            clients: Pending::new(Arc::clone(&tickets)),
            askers: Pending::new(tickets),
            admission: Admission::new(Room {
                seat_count: 2,
                bytes: 1000,
            }),
            operations: OperationCounts::default(),
            view: View::default(),
            replies: Replies {
                node: NodeId(1),
                addresses: Arc::default(),
            },
            client_deadline: Duration::from_millis(client_deadline_ms),
            request_timeout: Duration::from_secs(60),
        });
        let listener = tokio::net::TcpListener::bind("127.0.0.1:0").await.unwrap();
        let address = listener.local_addr().unwrap();
        let router = router(Arc::clone(&front));
        tokio::spawn(async move { axum::serve(listener, router).await });
        (front, inbox, address)
    }

    async fn read(address: SocketAddr) -> (u16, Value) {
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let response = client
            .get(format!("http://{address}/registers/a"))
            .send()
            .await
            .unwrap();
        (response.status().as_u16(), response.json().await.unwrap())
    }

    async fn until(what: &str, check: impl Fn() -> bool) {
        let deadline = std::time::Instant::now() + Duration::from_secs(20);
        while !check() {
            assert!(
                std::time::Instant::now() < deadline,
                "waited in vain: {what}"
            );
            tokio::time::sleep(Duration::from_millis(5)).await;
        }
    }

    #[tokio::test]
    async fn a_client_of_another_cluster_is_refused_before_anything_happens() {
        let (_front, mut inbox, address) = front(60_000).await;
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        let response = client
            .put(format!("http://{address}/registers/a"))
            .header(CLUSTER_HEADER, "other")
            .body(r#"{"value":1}"#)
            .send()
            .await
            .unwrap();
        assert_eq!(response.status().as_u16(), 400);
        let body: Value = response.json().await.unwrap();
        assert_eq!(body["error"]["code"], "INCONSISTENT_CLUSTER_ID");
        assert_eq!(body["error"]["outcome"], "refused");
        assert!(inbox.try_recv().is_err(), "the loop has heard of it");
    }

    #[tokio::test]
    async fn the_routes_and_the_document_name_the_same_paths_and_methods() {
        let (_front, _inbox, address) = front(60_000).await;
        let document: Value = serde_json::from_str(OPENAPI).unwrap();
        let described = document["paths"].as_object().unwrap();
        let mut paths: Vec<_> = client_routes().iter().map(|(path, _)| *path).collect();
        paths.sort_unstable();
        assert_eq!(described.keys().collect::<Vec<_>>(), paths);
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        for (path, methods) in described {
            // The refusal of a method names all that are taken.
            let url = format!("http://{address}{}", path.replace("{key}", "a"));
            let response = client.patch(url).send().await.unwrap();
            assert_eq!(response.status(), 405, "{path}");
            let allowed = response.headers()["allow"].to_str().unwrap();
            let mut allowed: Vec<_> = allowed.split(',').filter(|one| *one != "HEAD").collect();
            allowed.sort_unstable();
            let methods: Vec<_> = methods.as_object().unwrap().keys().collect();
            let methods: Vec<_> = methods.iter().map(|name| name.to_uppercase()).collect();
            assert_eq!(allowed, methods, "{path}");
        }
    }

    #[tokio::test]
    async fn a_connection_that_goes_away_takes_its_ticket_with_it() {
        let (front, mut inbox, address) = front(60_000).await;
        let fetch = json!({
            "cluster_id": "test", "replica": {"id": 2}, "current_leader_epoch": 1, "fetch_offset": 0,
            "last_fetched_epoch": 0, "high_watermark": null, "max_wait_ms": 60_000,
            "max_bytes": 1000, "read_round": 0,
        })
        .to_string();
        let heads = [
            format!(
                "POST /raft/fetch HTTP/1.1\r\ncontent-length: {}\r\n",
                fetch.len()
            ),
            "GET /registers/a HTTP/1.1\r\n".to_string(),
        ];
        let bodies = [fetch, String::new()];
        let mut streams = Vec::new();
        for (head, body) in heads.iter().zip(bodies) {
            let mut stream = TcpStream::connect(address).unwrap();
            write!(stream, "{head}host: x\r\n\r\n{body}").unwrap();
            streams.push(stream);
        }
        until("both wait", || {
            front.askers.len() == 1 && front.clients.len() == 1
        })
        .await;
        drop(streams);
        until("both are gone", || {
            front.askers.len() == 0 && front.clients.len() == 0
        })
        .await;
        // Their answers come too late and harm nobody.
        for _ in 0..2 {
            match inbox.recv().await.unwrap() {
                Message::Client { ticket, .. } => {
                    let (code, epoch) = (crate::client::UnknownCode::Stopping, Epoch(1));
                    front
                        .clients
                        .answer(ticket, ClientReply::Unknown { code, epoch });
                }
                Message::Arrival(Arrival::PeerRequest { request, .. }) => {
                    assert!(matches!(*request, message::Request::Fetch(_)));
                }
                other => panic!("{other:?}"),
            }
        }
    }

    #[tokio::test]
    async fn too_many_clients_are_refused_until_the_loop_has_seen_those_who_left() {
        let (front, mut inbox, address) = front(60_000).await;
        let asked: Vec<_> = (0..2).map(|_| tokio::spawn(read(address))).collect();
        until("both wait", || front.clients.len() == 2).await;
        let (status, body) = read(address).await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (503, &json!("OVERLOADED"))
        );
        assert_eq!(body["error"]["outcome"], "refused");
        for task in asked {
            task.abort();
        }
        until("both are gone", || front.clients.len() == 0).await;
        assert_eq!(read(address).await.0, 503, "their requests are still there");
        for _ in 0..2 {
            assert!(matches!(
                inbox.recv().await.unwrap(),
                Message::Client { .. }
            ));
        }
        assert!(
            inbox.try_recv().is_err(),
            "the loop has heard of a refused one"
        );
        assert_eq!(front.admission.occupied().seat_count, 0);
        let asked = tokio::spawn(read(address));
        until("it waits", || front.clients.len() == 1).await;
        let Message::Client { ticket, seat, .. } = inbox.recv().await.unwrap() else {
            panic!("not a client");
        };
        drop(seat);
        assert_eq!(front.admission.occupied().seat_count, 1, "it still waits");
        let (code, epoch) = (crate::client::UnknownCode::Stopping, Epoch(1));
        front
            .clients
            .answer(ticket, ClientReply::Unknown { code, epoch });
        assert_eq!(asked.await.unwrap().0, 504);
        assert_eq!(front.admission.occupied().seat_count, 0);
    }

    #[tokio::test]
    async fn large_requests_are_refused_while_others_wait_with_as_much() {
        let (front, mut inbox, address) = front(60_000).await;
        let put = async |bytes: usize| {
            let client = reqwest::Client::builder().no_proxy().build().unwrap();
            let response = client
                .put(format!("http://{address}/registers/a"))
                .body(format!("{{\"value\":\"{}\"}}", "x".repeat(bytes)))
                .send()
                .await
                .unwrap();
            let status = response.status().as_u16();
            (status, response.json::<Value>().await.unwrap())
        };
        let (status, body) = put(1000).await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (503, &json!("OVERLOADED"))
        );
        assert_eq!(body["error"]["outcome"], "refused");
        let first = put(600);
        let others = async {
            until("it waits", || front.clients.len() == 1).await;
            assert_eq!(front.admission.occupied().bytes, 612);
            assert_eq!(put(400).await.0, 503);
            let Message::Client { ticket, .. } = inbox.recv().await.unwrap() else {
                panic!("not a client");
            };
            let (code, epoch) = (crate::client::UnknownCode::Stopping, Epoch(1));
            front
                .clients
                .answer(ticket, ClientReply::Unknown { code, epoch });
        };
        let ((status, _), ()) = tokio::join!(first, others);
        assert_eq!(status, 504);
        assert_eq!(front.admission.occupied().bytes, 0);
    }

    #[tokio::test]
    async fn an_answer_that_takes_too_long_is_unknown_and_forgotten() {
        let (front, _inbox, address) = front(30).await;
        let (status, body) = read(address).await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (504, &json!("REQUEST_TIMED_OUT"))
        );
        assert_eq!(body["error"]["outcome"], "unknown");
        assert_eq!(front.clients.len(), 0);
    }

    #[tokio::test]
    async fn a_loop_that_ends_is_unknown_and_one_that_has_ended_refuses() {
        let (front, inbox, address) = front(60_000).await;
        let asked = tokio::spawn(read(address));
        until("it waits", || front.clients.len() == 1).await;
        drop(inbox);
        front.clients.abandon();
        let (status, body) = asked.await.unwrap();
        assert_eq!((status, &body["error"]["code"]), (504, &json!("STOPPING")));
        assert_eq!(body["error"]["outcome"], "unknown");
        let (status, body) = read(address).await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (503, &json!("BROKER_NOT_AVAILABLE"))
        );
        assert_eq!(body["error"]["outcome"], "refused");
        let client = reqwest::Client::builder().no_proxy().build().unwrap();
        for path in ["health", "quorum"] {
            let request = client.get(format!("http://{address}/{path}"));
            assert_eq!(request.send().await.unwrap().status(), 503, "{path}");
        }
    }
}
