//! Owns the HTTP front of a node: what clients, peers and people may ask, and at which paths.
//! Never decides anything about the protocol; it turns requests into arrivals and waits.

mod descriptions;

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::{Duration, Instant};

use axum::Router;
use axum::extract::{FromRequestParts, Query, Request, State};
use axum::http::request::Parts;
use axum::http::{HeaderMap, HeaderValue, Method, StatusCode, Uri, header};
use axum::middleware::{self, Next};
use axum::response::Response;
use axum::routing::{MethodFilter, MethodRouter, get, post};

use crate::client::{ClientReply, ClientRequest};
use crate::machine::Kind;
use crate::message;

use super::admission::Admission;
use super::body::Body;
use super::connections::Crowded;
use super::mailbox::{Mailbox, Message, View};
use super::metrics;
use super::operations::{self, Fault, Key, NoOptions, Options};
use super::peer_requests::answer_peer;
use super::pending::Pending;
use super::replies::Replies;
use super::wire::RequestKind;

/// A client may name the cluster that it means; a node of another one then refuses. Ports change
/// hands, and a write that lands in the wrong cluster would be a lie in two histories.
pub(super) const CLUSTER_HEADER: &str = "x-kraft-cluster-id";

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
fn client_routes() -> Vec<(String, MethodRouter<Arc<Front>>)> {
    let objects = operations::OBJECT_PATHS.into_iter();
    let objects = objects.map(|(name, kind)| (format!("/{name}/{{key}}"), object(kind)));
    let others = [
        ("/registers/{key}/compare-and-set", post(compare_and_set)),
        ("/transactions", post(transaction)),
        ("/quorum", get(descriptions::quorum)),
        ("/state", get(descriptions::state)),
        ("/metrics", get(descriptions::show_metrics)),
        ("/health", get(descriptions::health)),
        ("/health/ready", get(descriptions::readiness)),
        ("/openapi.json", get(descriptions::openapi)),
    ];
    let others = others.map(|(path, methods)| (path.to_owned(), methods));
    objects.chain(others).collect()
}

/// All routes of a node.
pub(crate) fn router(front: Arc<Front>) -> Router {
    let mut router = Router::new();
    for (path, methods) in client_routes() {
        router = router.route(&path, methods);
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

/// One object: to be read, and to be set or added to.
fn object(kind: Kind) -> MethodRouter<Arc<Front>> {
    let read = async move |State(front): State<Arc<Front>>, key: Key, options: Options| {
        let request = operations::read(kind, key, options);
        front.operate(request, 0).await
    };
    let change = async move |State(front): State<Arc<Front>>,
                             key: Key,
                             _: NoQuery,
                             headers: HeaderMap,
                             body: Body| {
        let body_bytes = body.length_bytes();
        let request = operations::change(kind, key, &headers, body);
        front.operate(request, body_bytes).await
    };
    let filter = match operations::method_of_change(kind) {
        Method::PUT => MethodFilter::PUT,
        _ => MethodFilter::POST,
    };
    get(read).on(filter, change)
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
mod tests;
