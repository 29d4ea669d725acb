//! Owns the HTTP front of a node: what clients, peers and people may ask, and at which paths.
//! Never decides anything about the protocol; it turns requests into arrivals and waits.

use std::sync::Arc;
use std::time::Duration;

use axum::Router;
use axum::body::Bytes;
use axum::extract::rejection::{BytesRejection, PathRejection};
use axum::extract::{DefaultBodyLimit, Path, State};
use axum::http::{Method, StatusCode, Uri, header};
use axum::response::{IntoResponse, Response};
use axum::routing::{get, post};
use serde::de::DeserializeOwned;
use serde::{Deserialize, Serialize};
use serde_json::{Value, json};

use crate::client::{ClientReply, ClientRequest};
use crate::message;
use crate::node_loop::{Arrival, MAX_COMMAND_BYTES};
use crate::raft::QuorumDescription;

use super::driver::{Mailbox, Message, View};
use super::pending::Pending;
use super::replies::{self, Replies};
use super::wire::{self, RequestKind};

/// Longest request body that is read. The loop has the exact limit on commands.
const MAX_BODY_BYTES: usize = 2 * MAX_COMMAND_BYTES;

/// How long the loop may take to say that it is alive.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(1);

/// What the handlers share.
#[derive(Debug)]
pub(crate) struct Front {
    pub(crate) cluster_id: String,
    pub(crate) mailbox: Mailbox,
    pub(crate) clients: Pending<ClientReply>,
    pub(crate) askers: Pending<message::Response>,
    pub(crate) view: View,
    pub(crate) replies: Replies,
    /// How long a client waits for the outcome of its operation.
    pub(crate) client_deadline: Duration,
    /// How long a peer waits for an answer, on top of what a fetch may be held.
    pub(crate) request_timeout: Duration,
}

/// All routes of a node.
pub(crate) fn router(front: Arc<Front>) -> Router {
    let mut router = Router::new()
        .route("/registers/{key}", get(read).put(write))
        .route("/registers/{key}/compare-and-set", post(compare_and_set))
        .route("/quorum", get(quorum))
        .route("/health", get(health));
    for kind in RequestKind::ALL {
        let handler = move |state: State<Arc<Front>>, body: Result<Bytes, BytesRejection>| {
            answer_peer(state, kind, body)
        };
        router = router.route(kind.path(), post(handler));
    }
    router
        .fallback(unknown_path)
        .method_not_allowed_fallback(wrong_method)
        .layer(DefaultBodyLimit::max(MAX_BODY_BYTES))
        .with_state(front)
}

type Key = Result<Path<String>, PathRejection>;
type Body = Result<Bytes, BytesRejection>;

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct WriteBody {
    value: Value,
}

#[derive(Debug, Deserialize)]
#[serde(deny_unknown_fields)]
struct CompareAndSetBody {
    expected: Value,
    new: Value,
}

async fn read(State(front): State<Arc<Front>>, key: Key) -> Response {
    let request = front.key(key).map(|key| ClientRequest::Read { key });
    front.operate(request).await
}

async fn write(State(front): State<Arc<Front>>, key: Key, body: Body) -> Response {
    let request = front.key(key).and_then(|key| {
        let WriteBody { value } = front.body(body)?;
        Ok(ClientRequest::Write { key, value })
    });
    front.operate(request).await
}

async fn compare_and_set(State(front): State<Arc<Front>>, key: Key, body: Body) -> Response {
    let request = front.key(key).and_then(|key| {
        let CompareAndSetBody { expected, new } = front.body(body)?;
        Ok(ClientRequest::CompareAndSet { key, expected, new })
    });
    front.operate(request).await
}

impl Front {
    fn key(&self, key: Key) -> Result<String, Response> {
        key.map(|Path(key)| key)
            .map_err(|rejection| self.invalid(rejection.status(), rejection.body_text()))
    }

    fn bytes(&self, body: Body) -> Result<Bytes, Response> {
        body.map_err(|rejection| {
            let message = match rejection.status() {
                StatusCode::PAYLOAD_TOO_LARGE => {
                    format!("the request body is longer than {MAX_BODY_BYTES} bytes")
                }
                _ => rejection.body_text(),
            };
            self.invalid(rejection.status(), message)
        })
    }

    fn body<T: DeserializeOwned>(&self, body: Body) -> Result<T, Response> {
        serde_json::from_slice(&self.bytes(body)?).map_err(|error| {
            let message = format!("the request body is not understood: {error}");
            self.invalid(StatusCode::BAD_REQUEST, message)
        })
    }

    fn invalid(&self, status: StatusCode, message: impl Into<String>) -> Response {
        self.replies.invalid(status, message, self.view.look())
    }

    fn unavailable(&self) -> Response {
        self.replies.unavailable(self.view.look())
    }

    async fn operate(&self, request: Result<ClientRequest, Response>) -> Response {
        let request = match request {
            Ok(request) => request,
            Err(refusal) => return refusal,
        };
        let mut waiting = self.clients.wait();
        let arrival = Arrival::Client {
            ticket: waiting.ticket(),
            request,
        };
        if self.mailbox.send(Message::Arrival(arrival)).is_err() {
            return self.unavailable();
        }
        match tokio::time::timeout(self.client_deadline, waiting.answer()).await {
            Ok(Some(reply)) => self.replies.client_reply(reply),
            Ok(None) => self.replies.stopped(self.view.look().1),
            Err(_) => self
                .replies
                .timed_out(self.client_deadline.as_millis(), self.view.look().1),
        }
    }
}

async fn answer_peer(State(front): State<Arc<Front>>, kind: RequestKind, body: Body) -> Response {
    let bytes = match front.bytes(body) {
        Ok(bytes) => bytes,
        Err(refusal) => return refusal,
    };
    let request = match wire::decode_request(kind, &bytes) {
        Ok(request) => request,
        Err(error) => return front.invalid(StatusCode::BAD_REQUEST, error.to_string()),
    };
    let held = match &request {
        message::Request::Fetch(fetch) => Duration::from_millis(fetch.max_wait_ms),
        _ => Duration::ZERO,
    };
    let limit = front.request_timeout.saturating_add(held);
    // Dropped together with the connection: a parked fetch leaves no ticket behind.
    let mut waiting = front.askers.wait();
    let arrival = Arrival::PeerRequest {
        ticket: waiting.ticket(),
        request,
    };
    if front.mailbox.send(Message::Arrival(arrival)).is_err() {
        return front.unavailable();
    }
    match tokio::time::timeout(limit, waiting.answer()).await {
        Ok(Some(response)) => {
            let (media_type, body) = wire::encode_response(&response);
            ([(header::CONTENT_TYPE, media_type)], body).into_response()
        }
        Ok(None) => front.replies.stopped(front.view.look().1),
        Err(_) => front
            .replies
            .timed_out(limit.as_millis(), front.view.look().1),
    }
}

#[derive(Debug, Serialize)]
struct QuorumBody<'a> {
    cluster_id: &'a str,
    #[serde(flatten)]
    quorum: QuorumDescription,
}

async fn quorum(State(front): State<Arc<Front>>) -> Response {
    match tokio::time::timeout(DESCRIBE_LIMIT, front.mailbox.describe()).await {
        Ok(Some(snapshot)) => {
            let body = QuorumBody {
                cluster_id: &front.cluster_id,
                quorum: snapshot.quorum,
            };
            replies::json(StatusCode::OK, &body)
        }
        _ => front.unavailable(),
    }
}

async fn health(State(front): State<Arc<Front>>) -> Response {
    match tokio::time::timeout(DESCRIBE_LIMIT, front.mailbox.describe()).await {
        Ok(Some(_)) => replies::json(StatusCode::OK, &json!({"status": "up"})),
        _ => front.unavailable(),
    }
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
