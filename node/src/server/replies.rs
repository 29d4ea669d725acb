//! Owns the JSON that clients are answered with: status codes, success bodies, error bodies.
//! Never claims more certainty than the node has: refused is certain, everything else is unknown.

use std::sync::Arc;

use axum::http::{StatusCode, header};
use axum::response::{IntoResponse, Response};
use serde::Serialize;
use serde_json::Value;

use crate::client::{ClientReply, Position, RefusalCode, UnknownCode};
use crate::ids::{Epoch, NodeId, Offset};
use crate::machine::{Failure, MAX_RESULT_BYTES, OperationResult};
use crate::raft::Role;

use super::addresses::Addresses;
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
    leader: Option<Option<Leader>>,
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
    /// Which operation of a transaction failed, counted from 1, as in all words about operations.
    #[serde(skip_serializing_if = "Option::is_none")]
    operation: Option<usize>,
    message: String,
}

#[derive(Debug, Serialize)]
struct Leader {
    id: NodeId,
    url: Option<String>,
}

impl<'a> ErrorPart<'a> {
    fn new(code: &'a str, outcome: Outcome, message: String) -> Self {
        Self {
            code,
            outcome,
            current: None,
            operation: None,
            message,
        }
    }
}

#[derive(Debug, Serialize)]
struct Done {
    #[serde(flatten)]
    content: Content,
    epoch: Epoch,
    offset: Offset,
}

#[derive(Debug, Serialize)]
#[serde(untagged)]
enum Content {
    Value { value: Value },
    Results { results: Vec<OperationResult> },
    None {},
}

#[derive(Debug, Serialize)]
struct LocalBody {
    value: Value,
    consistency: &'static str,
    /// Every record below is applied.
    applied: Offset,
    epoch: Epoch,
}

/// What answers need besides the reply itself.
#[derive(Debug)]
pub(crate) struct Replies {
    /// This node.
    pub(crate) node: NodeId,
    /// Where the voters are, this node included.
    pub(crate) addresses: Arc<Addresses>,
}

impl Replies {
    /// The answer for what the node replied.
    pub(crate) fn client_reply(&self, reply: ClientReply) -> Response {
        match reply {
            ClientReply::Value { value, position } => done(Content::Value { value }, position),
            ClientReply::Written { position } => done(Content::None {}, position),
            ClientReply::Results { results, position } => {
                done(Content::Results { results }, position)
            }
            ClientReply::Local {
                value,
                applied,
                epoch,
            } => {
                let consistency = "local";
                let body = LocalBody {
                    value,
                    consistency,
                    applied,
                    epoch,
                };
                json(StatusCode::OK, &body)
            }
            ClientReply::NotApplied {
                operation,
                failure,
                position,
            } => not_applied(operation, failure, position),
            ClientReply::Stale {
                last_request,
                position,
            } => {
                let message = format!(
                    "request {last_request} of this client was applied before, so this one \
                     changed nothing now; an earlier copy of it may have taken effect"
                );
                let error = ErrorPart::new("STALE_REQUEST", Outcome::Unknown, message);
                conflict(error, position)
            }
            ClientReply::Reused { position } => {
                let message = "under this number, this client has had another request applied, so \
                               this one changed nothing"
                    .to_string();
                let error = ErrorPart::new("REQUEST_ID_REUSED", Outcome::NotApplied, message);
                conflict(error, position)
            }
            ClientReply::Invalid {
                fault,
                leader,
                epoch,
            } => self.invalid(StatusCode::BAD_REQUEST, fault.to_string(), (leader, epoch)),
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

    /// The node works, but cannot tell clients where they would be served.
    ///
    /// `known` leads the epoch by what the protocol says, whether it can be reached or not.
    pub(crate) fn not_ready(&self, role: Role, known: Option<NodeId>, epoch: Epoch) -> Response {
        let node = self.node;
        let message = match (role, known) {
            (Role::Leader, _) => {
                format!("{node} leads epoch {epoch}, and does not know yet what is committed")
            }
            (Role::Resigned, _) => format!("{node} gave up the leadership of epoch {epoch}"),
            (Role::Candidate, _) => {
                format!("{node} asks to be elected the leader of epoch {epoch}")
            }
            (_, Some(known)) => {
                format!("{node} hears nothing of {known}, the leader of epoch {epoch}")
            }
            (_, None) => format!("{node} knows no leader of epoch {epoch}"),
        };
        let serving = (role == Role::Leader).then_some(node);
        let status = StatusCode::SERVICE_UNAVAILABLE;
        self.refusal(status, "LEADER_NOT_AVAILABLE", message, (serving, epoch))
    }

    /// The loop does not answer.
    pub(crate) fn hanging(&self, limit_ms: u128, view: (Option<NodeId>, Epoch)) -> Response {
        let message = format!(
            "{} does not answer within {limit_ms} ms; its disk or its processor hangs",
            self.node
        );
        let status = StatusCode::SERVICE_UNAVAILABLE;
        self.refusal(status, name(RefusalCode::BrokerNotAvailable), message, view)
    }

    /// Too many clients wait or are connected.
    pub(crate) fn overloaded(&self, view: (Option<NodeId>, Epoch)) -> Response {
        let code = RefusalCode::Overloaded;
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
                format!("{node} does not understand the request"),
            ),
            RefusalCode::Overloaded => (
                StatusCode::SERVICE_UNAVAILABLE,
                format!("{node} has too much to do already; try again later"),
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
            url: self.addresses.url_of(id),
        });
        let error = ErrorPart::new(code, Outcome::Refused, message);
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

fn done(content: Content, Position { epoch, offset }: Position) -> Response {
    let body = Done {
        content,
        epoch,
        offset,
    };
    json(StatusCode::OK, &body)
}

/// The command was carried out as far as it could, and changed nothing.
fn not_applied(operation: Option<usize>, failure: Failure, position: Position) -> Response {
    let (code, current, message) = match failure {
        Failure::CompareMismatch { current } => {
            let message = "the register does not hold the expected value".to_string();
            ("COMPARE_MISMATCH", Some(current), message)
        }
        Failure::CounterOverflow { current } => {
            let message = "the sum does not fit into a signed 64-bit number".to_string();
            ("COUNTER_OVERFLOW", Some(current.into()), message)
        }
        Failure::ResultTooLarge => {
            let message = format!("the reads would return more than {MAX_RESULT_BYTES} bytes");
            ("RESULT_TOO_LARGE", None, message)
        }
    };
    let operation = operation.map(|at| at + 1);
    let message = match operation {
        Some(number) => format!("operation {number} failed, so nothing was changed: {message}"),
        None => message,
    };
    let error = ErrorPart {
        current: current.as_ref(),
        operation,
        ..ErrorPart::new(code, Outcome::NotApplied, message)
    };
    conflict(error, position)
}

/// The command is in the log, and changed nothing.
fn conflict(error: ErrorPart<'_>, Position { epoch, offset }: Position) -> Response {
    let body = ErrorBody {
        error,
        leader: None,
        epoch,
        offset: Some(offset),
    };
    json(StatusCode::CONFLICT, &body)
}

fn unknown(code: &str, message: String, epoch: Epoch) -> Response {
    let error = ErrorPart::new(code, Outcome::Unknown, message);
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
        RefusalCode::Overloaded => "OVERLOADED",
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use std::collections::BTreeMap;

    use super::*;
    use crate::machine::CommandFault;

    async fn rendered(reply: ClientReply) -> (u16, Value) {
        let replies = Replies {
            node: NodeId(1),
            addresses: Arc::new(Addresses::new(
                BTreeMap::new(),
                BTreeMap::from([(NodeId(2), "http://127.0.0.1:9002".to_string())]),
            )),
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
        let reply = ClientReply::Results {
            results: [Some(Value::Null), None]
                .map(|value| OperationResult { value })
                .into(),
            position: POSITION,
        };
        let body = json!({"results": [{"value": null}, {}], "epoch": 3, "offset": 8});
        assert_eq!(rendered(reply).await, (200, body));
        let reply = ClientReply::Local {
            value: json!(1),
            applied: Offset(9),
            epoch: Epoch(3),
        };
        let body = json!({"value": 1, "consistency": "local", "applied": 9, "epoch": 3});
        assert_eq!(rendered(reply).await, (200, body));
    }

    #[tokio::test]
    async fn what_changed_nothing_is_told_apart_from_what_may_have() {
        let reply = ClientReply::NotApplied {
            operation: None,
            failure: Failure::CompareMismatch {
                current: Value::Null,
            },
            position: POSITION,
        };
        let (status, body) = rendered(reply).await;
        assert_eq!(
            (status, &body["error"]["outcome"]),
            (409, &json!("not-applied"))
        );
        assert_eq!(body["error"]["current"], Value::Null);
        assert!(body["error"].as_object().unwrap().contains_key("current"));
        assert!(!body["error"].as_object().unwrap().contains_key("operation"));
        assert_eq!((&body["epoch"], &body["offset"]), (&json!(3), &json!(8)));
        for (failure, code, current) in [
            (
                Failure::CounterOverflow { current: i64::MAX },
                "COUNTER_OVERFLOW",
                json!(i64::MAX),
            ),
            (Failure::ResultTooLarge, "RESULT_TOO_LARGE", Value::Null),
        ] {
            let reply = ClientReply::NotApplied {
                operation: Some(3),
                failure,
                position: POSITION,
            };
            let (status, body) = rendered(reply).await;
            let error = &body["error"];
            assert_eq!((status, &error["code"]), (409, &json!(code)));
            assert_eq!(
                (&error["operation"], &error["current"]),
                (&json!(4), &current)
            );
            let message = error["message"].as_str().unwrap();
            assert!(message.starts_with("operation 4 failed"), "{message}");
            assert_eq!(error["outcome"], "not-applied");
        }
        let (last_request, position) = (7, POSITION);
        let (status, body) = rendered(ClientReply::Stale {
            last_request,
            position,
        })
        .await;
        assert_eq!(
            (status, &body["error"]["code"]),
            (409, &json!("STALE_REQUEST"))
        );
        assert_eq!(body["error"]["outcome"], "unknown");
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
                ClientReply::Invalid {
                    fault: CommandFault::Length,
                    leader: None,
                    epoch: Epoch(4),
                },
                400,
                "INVALID_REQUEST",
                "refused",
            ),
            (
                refused(RefusalCode::Overloaded),
                503,
                "OVERLOADED",
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
