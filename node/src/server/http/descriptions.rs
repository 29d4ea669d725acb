//! Owns what a node tells of itself over HTTP: its quorum, state, metrics and health, and what it can be asked.
//! Never touches what clients store.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::time::Duration;

use axum::extract::State;
use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;

use crate::ids::{Epoch, NodeId, Offset};
use crate::raft::{QuorumDescription, Role};
use crate::server::mailbox::Snapshot;
use crate::server::metrics;
use crate::server::replies;
use crate::server::wire;

use super::{Front, NoQuery};

/// Describes everything except what replicas ask each other.
pub(super) const OPENAPI: &str = include_str!("../openapi.json");

/// How long the loop may take to say that it is alive.
const DESCRIBE_LIMIT: Duration = Duration::from_secs(1);

impl Front {
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

pub(super) async fn quorum(State(front): State<Arc<Front>>, _: NoQuery) -> Response {
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

pub(super) async fn state(State(front): State<Arc<Front>>, _: NoQuery) -> Response {
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

pub(super) async fn show_metrics(State(front): State<Arc<Front>>, _: NoQuery) -> Response {
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

pub(super) async fn health(State(front): State<Arc<Front>>, _: NoQuery) -> Response {
    let body = HealthBody {
        status: "up",
        seeded_bug: front.seeded_bug,
    };
    front
        .describe(|_| replies::json(StatusCode::OK, &body))
        .await
}

/// Whether clients that come here get on: served if the node leads, or else sent to the leader.
pub(super) async fn readiness(State(front): State<Arc<Front>>, _: NoQuery) -> Response {
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

pub(super) async fn openapi(_: NoQuery) -> Response {
    ([(header::CONTENT_TYPE, wire::JSON)], OPENAPI).into_response()
}
