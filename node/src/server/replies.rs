//! Owns the JSON that clients are answered with: status codes, success bodies, error bodies.
//! Never claims more certainty than the node has: refused is certain, everything else is unknown.

use std::collections::BTreeMap;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use crate::client::{ClientReply, RefusalCode, UnknownCode};
use crate::ids::{Epoch, NodeId, Offset};
use crate::node_loop::MAX_COMMAND_BYTES;

use super::wire;

/// What is known of a request that was not answered with success.
#[derive(Debug, Clone, Copy, Serialize)]
#[serde(rename_all = "kebab-case")]
enum Outcome {
    /// It certainly was not and will not be carried out.
    Refused,
    /// It was carried out, and changed nothing.
    NotApplied,
    /// It may have been, or may yet be, carried out.
    Unknown,
}

#[derive(Debug, Serialize)]
struct ErrorBody<'a> {
    error: ErrorPart<'a>,
    /// Present in refusals, `null` when unknown.
    #[serde(skip_serializing_if = "Option::is_none")]
    leader: Option<Option<Leader<'a>>>,
    epoch: Epoch,
    #[serde(skip_serializing_if = "Option::is_none")]
    offset: Option<Offset>,
}

#[derive(Debug, Serialize)]
struct ErrorPart<'a> {
    code: &'a str,
    outcome: Outcome,
    /// What a failed comparison found.
    #[serde(skip_serializing_if = "Option::is_none")]
    current: Option<&'a Value>,
    message: String,
}

#[derive(Debug, Serialize)]
struct Leader<'a> {
    id: NodeId,
    url: Option<&'a str>,
}

#[derive(Debug, Serialize)]
struct Done {
    #[serde(skip_serializing_if = "Option::is_none")]
    value: Option<Value>,
    epoch: Epoch,
    offset: Offset,
}

/// What answers need besides the reply itself.
#[derive(Debug)]
pub(crate) struct Replies {
    /// This node.
    pub(crate) node: NodeId,
    /// Where the voters are, this node included.
    pub(crate) urls: BTreeMap<NodeId, String>,
}

impl Replies {
    /// The answer for what the node replied.
    pub(crate) fn client_reply(&self, reply: ClientReply) -> Response {
        match reply {
            ClientReply::Value { value, position } => {
                let (epoch, offset) = (position.epoch, position.offset);
                json(
                    StatusCode::OK,
                    &Done {
                        value: Some(value),
                        epoch,
                        offset,
                    },
                )
            }
            ClientReply::Written { position } => {
                let (epoch, offset) = (position.epoch, position.offset);
                json(
                    StatusCode::OK,
                    &Done {
                        value: None,
                        epoch,
                        offset,
                    },
                )
            }
            ClientReply::CompareMismatch { current, position } => {
                let error = ErrorPart {
                    code: "COMPARE_MISMATCH",
                    outcome: Outcome::NotApplied,
                    current: Some(&current),
                    message: "the register does not hold the expected value".into(),
                };
                let (epoch, offset) = (position.epoch, Some(position.offset));
                json(
                    StatusCode::CONFLICT,
                    &ErrorBody {
                        error,
                        leader: None,
                        epoch,
                        offset,
                    },
                )
            }
            ClientReply::Refused {
                code,
                leader,
                epoch,
            } => {
                let (status, message) = self.explain(code, leader, epoch);
                self.refusal(status, name(code), message, (leader, epoch))
            }
            ClientReply::Unknown {
                code: UnknownCode::LeadershipLost,
                epoch,
            } => unknown(
                "LEADERSHIP_LOST",
                format!(
                    "{} lost leadership before the command was committed",
                    self.node
                ),
                epoch,
            ),
            ClientReply::Unknown {
                code: UnknownCode::Stopping,
                epoch,
            } => self.stopped(epoch),
        }
    }

    /// The request itself is at fault.
    pub(crate) fn invalid(
        &self,
        status: StatusCode,
        message: impl Into<String>,
        view: (Option<NodeId>, Epoch),
    ) -> Response {
        self.refusal(
            status,
            name(RefusalCode::InvalidRequest),
            message.into(),
            view,
        )
    }

    /// The client means another cluster.
    pub(crate) fn foreign(&self, view: (Option<NodeId>, Epoch)) -> Response {
        let code = RefusalCode::InconsistentClusterId;
        let (status, message) = self.explain(code, None, view.1);
        self.refusal(status, name(code), message, (None, view.1))
    }

    /// The node takes no more requests.
    pub(crate) fn unavailable(&self, view: (Option<NodeId>, Epoch)) -> Response {
        let code = RefusalCode::BrokerNotAvailable;
        let (status, message) = self.explain(code, None, view.1);
        self.refusal(status, name(code), message, view)
    }

    /// The node stopped with the request under way.
    pub(crate) fn stopped(&self, epoch: Epoch) -> Response {
        let message = format!("{} stopped while the request was under way", self.node);
        unknown("STOPPING", message, epoch)
    }

    /// No answer within the node's own deadline.
    pub(crate) fn timed_out(&self, deadline_ms: u128, epoch: Epoch) -> Response {
        let message = format!("{} had no outcome within {deadline_ms} ms", self.node);
        unknown("REQUEST_TIMED_OUT", message, epoch)
    }

    fn explain(
        &self,
        code: RefusalCode,
        leader: Option<NodeId>,
        epoch: Epoch,
    ) -> (StatusCode, String) {
        let node = self.node;
        match code {
            RefusalCode::NotLeaderOrFollower => {
                let message = match leader {
                    Some(leader) if leader != node => {
                        format!("{node} does not lead; {leader} leads epoch {epoch}")
                    }
                    _ => format!("{node} does not lead, and knows no leader of epoch {epoch}"),
                };
                (StatusCode::MISDIRECTED_REQUEST, message)
            }
            RefusalCode::BrokerNotAvailable => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{node} is shutting down"),
            ),
            RefusalCode::InconsistentClusterId => (
                StatusCode::BAD_REQUEST,
                format!("{node} belongs to another cluster"),
            ),
            RefusalCode::InvalidRequest => (
                StatusCode::BAD_REQUEST,
                format!("the command is longer than {MAX_COMMAND_BYTES} bytes"),
            ),
        }
    }

    fn refusal(
        &self,
        status: StatusCode,
        code: &str,
        message: String,
        (leader, epoch): (Option<NodeId>, Epoch),
    ) -> Response {
        let leader = leader.map(|id| Leader {
            id,
            url: self.urls.get(&id).map(String::as_str),
        });
        let error = ErrorPart {
            code,
            outcome: Outcome::Refused,
            current: None,
            message,
        };
        json(
            status,
            &ErrorBody {
                error,
                leader: Some(leader),
                epoch,
                offset: None,
            },
        )
    }
}

/// A JSON answer.
pub(crate) fn json(status: StatusCode, body: &impl Serialize) -> Response {
    let body = serde_json::to_vec(body).expect("answers are structs of numbers, strings and JSON");
    (status, [(header::CONTENT_TYPE, wire::JSON)], body).into_response()
}

fn unknown(code: &str, message: String, epoch: Epoch) -> Response {
    let error = ErrorPart {
        code,
        outcome: Outcome::Unknown,
        current: None,
        message,
    };
    let body = ErrorBody {
        error,
        leader: None,
        epoch,
        offset: None,
    };
    json(StatusCode::GATEWAY_TIMEOUT, &body)
}

fn name(code: RefusalCode) -> &'static str {
    match code {
        RefusalCode::NotLeaderOrFollower => "NOT_LEADER_OR_FOLLOWER",
        RefusalCode::BrokerNotAvailable => "BROKER_NOT_AVAILABLE",
        RefusalCode::InvalidRequest => "INVALID_REQUEST",
        RefusalCode::InconsistentClusterId => "INCONSISTENT_CLUSTER_ID",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::client::Position;

    async fn rendered(reply: ClientReply) -> (u16, Value) {
        let replies = Replies {
            node: NodeId(1),
            urls: BTreeMap::from([(NodeId(2), "http://127.0.0.1:9002".to_string())]),
        };
        let response = replies.client_reply(reply);
        let status = response.status().as_u16();
        let body = axum::body::to_bytes(response.into_body(), usize::MAX)
            .await
            .unwrap();
        (status, serde_json::from_slice(&body).unwrap())
    }

    const POSITION: Position = Position {
        epoch: Epoch(3),
        offset: Offset(8),
    };

    #[tokio::test]
    async fn success_bodies() {
        let reply = ClientReply::Value {
            value: Value::Null,
            position: POSITION,
        };
        let body = json!({"value": null, "epoch": 3, "offset": 8});
        assert_eq!(
            rendered(reply).await,
            (200, body),
            "a register never written reads as null"
        );
        let reply = ClientReply::Written { position: POSITION };
        assert_eq!(
            rendered(reply).await,
            (200, json!({"epoch": 3, "offset": 8}))
        );
        let reply = ClientReply::CompareMismatch {
            current: Value::Null,
            position: POSITION,
        };
        let (status, body) = rendered(reply).await;
        assert_eq!(
            (status, &body["error"]["outcome"]),
            (409, &json!("not-applied"))
        );
        assert_eq!(body["error"]["current"], Value::Null);
        assert!(body["error"].as_object().unwrap().contains_key("current"));
        assert_eq!((&body["epoch"], &body["offset"]), (&json!(3), &json!(8)));
    }

    #[tokio::test]
    async fn refusals_name_the_leader() {
        for (leader, shown) in [
            (
                Some(NodeId(2)),
                json!({"id": 2, "url": "http://127.0.0.1:9002"}),
            ),
            (Some(NodeId(9)), json!({"id": 9, "url": null})),
            (None, Value::Null),
        ] {
            let reply = ClientReply::Refused {
                code: RefusalCode::NotLeaderOrFollower,
                leader,
                epoch: Epoch(4),
            };
            let (status, body) = rendered(reply).await;
            assert_eq!(
                (status, &body["leader"], &body["epoch"]),
                (421, &shown, &json!(4))
            );
            assert_eq!(body["error"]["code"], "NOT_LEADER_OR_FOLLOWER");
            assert_eq!(body["error"]["outcome"], "refused");
        }
    }

    #[tokio::test]
    async fn every_error_has_code_outcome_and_message() {
        let refused = |code| ClientReply::Refused {
            code,
            leader: None,
            epoch: Epoch(4),
        };
        let unknown = |code| ClientReply::Unknown {
            code,
            epoch: Epoch(4),
        };
        for (reply, status, code, outcome) in [
            (
                refused(RefusalCode::BrokerNotAvailable),
                503,
                "BROKER_NOT_AVAILABLE",
                "refused",
            ),
            (
                refused(RefusalCode::InvalidRequest),
                400,
                "INVALID_REQUEST",
                "refused",
            ),
            (
                unknown(UnknownCode::LeadershipLost),
                504,
                "LEADERSHIP_LOST",
                "unknown",
            ),
            (unknown(UnknownCode::Stopping), 504, "STOPPING", "unknown"),
        ] {
            let (got, body) = rendered(reply).await;
            assert_eq!(got, status);
            let error = body["error"].as_object().unwrap();
            assert_eq!(
                (&error["code"], &error["outcome"]),
                (&json!(code), &json!(outcome))
            );
            assert!(!error["message"].as_str().unwrap().is_empty());
            assert_eq!(error.len(), 3);
        }
    }
}
