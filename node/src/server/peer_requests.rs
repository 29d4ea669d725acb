//! Owns how a request of a peer reaches the node's loop, and how its answer comes back.
//! Never waits longer than the peer does.

use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{HeaderMap, StatusCode, header};
use axum::response::{IntoResponse, Response};

use crate::message;
use crate::node_loop::Arrival;
use crate::raft::Correlation;

use super::body::Body;
use super::http::Front;
use super::mailbox::Message;
use super::operations::Fault;
use super::wire::{self, RequestKind};

/// For this long an addition of a voter is waited for, whatever it asks for, beyond the request timeout.
const LONGEST_ADDITION: Duration = Duration::from_secs(60);

/// Answers what is posted to the path of a kind of request.
pub(super) async fn answer_peer(
    State(front): State<Arc<Front>>,
    headers: HeaderMap,
    kind: RequestKind,
    body: Body,
) -> Response {
    let bytes = match body.bytes() {
        Ok(bytes) => bytes,
        Err(Fault { status, message }) => return front.invalid(status, message),
    };
    match front.ask(kind, wire::correlation(&headers), &bytes).await {
        Ok(response) => {
            let (media_type, body) = wire::encode_response(&response);
            ([(header::CONTENT_TYPE, media_type)], body).into_response()
        }
        Err(refusal) => refusal,
    }
}

impl Front {
    /// Answers a peer; an error is what the peer is told instead.
    pub(super) async fn ask(
        &self,
        kind: RequestKind,
        correlation: Option<Correlation>,
        body: &[u8],
    ) -> Result<message::Response, Response> {
        let request = wire::decode_request(kind, body)
            .map_err(|error| self.invalid(StatusCode::BAD_REQUEST, error.to_string()))?;
        let limit = self.request_timeout.saturating_add(self.held(&request));
        // Dropped together with the connection: a parked fetch leaves no ticket behind.
        let mut waiting = self.askers.wait();
        let arrival = Arrival::PeerRequest {
            ticket: waiting.ticket(),
            correlation,
            request: Box::new(request),
        };
        if self.mailbox.send(Message::Arrival(arrival)).is_err() {
            return Err(self.unavailable());
        }
        match tokio::time::timeout(limit, waiting.answer()).await {
            Ok(Some(response)) => Ok(response),
            Ok(None) => Err(self.replies.stopped(self.view.look().1)),
            Err(_) => Err(self
                .replies
                .timed_out(limit.as_millis(), self.view.look().1)),
        }
    }

    /// How long the core may keep a request, besides the request timeout.
    fn held(&self, request: &message::Request) -> Duration {
        match request {
            message::Request::Fetch(fetch) => Duration::from_millis(fetch.max_wait_ms),
            // The core answers these in time by itself, with more to say than that time is over.
            message::Request::AddRaftVoter(add) => Duration::from_millis(add.timeout_ms)
                .min(LONGEST_ADDITION)
                .max(self.request_timeout),
            message::Request::RemoveRaftVoter(_) | message::Request::UpdateRaftVoter(_) => {
                self.request_timeout
            }
            _ => Duration::ZERO,
        }
    }
}
