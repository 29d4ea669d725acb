//! Owns what clients ask and are told in the node's own words, without HTTP in between.
//! Never calls an outcome certain unless the node said so.

use node::client::{ClientReply, ClientRequest, Position, RefusalCode, UnknownCode};
use node::ids::{Epoch, NodeId};
use node::machine::{Failure, OperationResult, Stamp};
use serde_json::Value;

use crate::world::{Answer, Request};

/// The request as a node understands it.
pub(super) fn request(request: &Request, stamp: Option<Stamp>) -> ClientRequest {
    match request {
        Request::Read { key } => ClientRequest::read(key),
        Request::Write { key, value } => ClientRequest::write(key, value.clone()),
        Request::CompareAndSet { key, expected, new } => {
            ClientRequest::compare_and_set(key, expected.clone(), new.clone())
        }
        Request::ReadObject { object } => ClientRequest::Read {
            object: object.clone(),
        },
        Request::Apply { operation } => ClientRequest::Apply {
            stamp,
            operation: operation.clone(),
        },
        Request::Transaction { operations } => ClientRequest::Transaction {
            stamp,
            operations: operations.clone(),
        },
    }
}

/// What each operation of a transaction read, as one value.
fn values(results: Vec<OperationResult>) -> Value {
    let values = results.into_iter();
    values
        .map(|result| result.value.unwrap_or(Value::Null))
        .collect()
}

/// The reply as a client understands it.
pub(super) fn answer(node: &str, reply: ClientReply) -> Answer {
    match reply {
        ClientReply::Value { value, position } => done(node, value, position),
        ClientReply::Written { position } => done(node, Value::Null, position),
        ClientReply::Results { results, position } => done(node, values(results), position),
        ClientReply::Local {
            value,
            applied,
            epoch,
        } => {
            let offset = applied;
            done(node, value, Position { epoch, offset })
        }
        ClientReply::NotApplied {
            failure: Failure::CompareMismatch { current },
            position,
            ..
        } => Answer::Mismatch {
            current,
            node: node.to_owned(),
            epoch: Some(position.epoch.0),
            offset: Some(position.offset.0),
        },
        ClientReply::NotApplied { position, .. } | ClientReply::Reused { position } => {
            Answer::Mismatch {
                current: Value::Null,
                node: node.to_owned(),
                epoch: Some(position.epoch.0),
                offset: Some(position.offset.0),
            }
        }
        ClientReply::Stale { .. } => unknown("STALE_REQUEST", "a later request was applied before"),
        ClientReply::Invalid { fault, leader, .. } => Answer::Refused {
            code: "INVALID_REQUEST".into(),
            message: fault.to_string(),
            leader: leader.map(name),
        },
        ClientReply::Refused {
            code,
            leader,
            epoch,
        } => refused(node, code, leader, epoch),
        ClientReply::Unknown {
            code: UnknownCode::LeadershipLost,
            ..
        } => unknown(
            "LEADERSHIP_LOST",
            format!("{node} lost leadership before the command was committed"),
        ),
        ClientReply::Unknown {
            code: UnknownCode::Stopping,
            ..
        } => unknown(
            "STOPPING",
            format!("{node} stopped while the request was under way"),
        ),
    }
}

/// An answer that leaves the outcome open.
pub(super) fn unknown(code: &str, message: impl Into<String>) -> Answer {
    Answer::Unknown {
        code: code.into(),
        message: message.into(),
    }
}

/// An answer without which nothing was sent.
pub(super) fn not_there(code: &str, message: impl Into<String>) -> Answer {
    Answer::Refused {
        code: code.into(),
        message: message.into(),
        leader: None,
    }
}

fn done(node: &str, value: Value, position: Position) -> Answer {
    Answer::Done {
        value,
        node: node.to_owned(),
        epoch: Some(position.epoch.0),
        offset: Some(position.offset.0),
    }
}

fn refused(node: &str, code: RefusalCode, leader: Option<NodeId>, epoch: Epoch) -> Answer {
    let (code, message) = match code {
        RefusalCode::NotLeaderOrFollower => (
            "NOT_LEADER_OR_FOLLOWER",
            match leader {
                Some(leader) if name(leader) != node => {
                    format!("{node} does not lead; {leader} leads epoch {epoch}")
                }
                _ => format!("{node} does not lead, and knows no leader of epoch {epoch}"),
            },
        ),
        RefusalCode::BrokerNotAvailable => {
            ("BROKER_NOT_AVAILABLE", format!("{node} is shutting down"))
        }
        RefusalCode::InvalidRequest => (
            "INVALID_REQUEST",
            format!("{node} does not understand the request"),
        ),
        RefusalCode::InconsistentClusterId => (
            "INCONSISTENT_CLUSTER_ID",
            format!("{node} belongs to another cluster"),
        ),
        RefusalCode::Overloaded => (
            "OVERLOADED",
            format!("too many clients of {node} wait already"),
        ),
    };
    Answer::Refused {
        code: code.into(),
        message,
        leader: leader.map(name),
    }
}

fn name(id: NodeId) -> String {
    id.to_string()
}

#[cfg(test)]
mod tests {
    use node::ids::Offset;
    use serde_json::json;

    use super::*;

    const POSITION: Position = Position {
        epoch: Epoch(3),
        offset: Offset(8),
    };

    #[test]
    fn only_a_refusal_makes_a_failure_certain() {
        let refusal = ClientReply::Refused {
            code: RefusalCode::NotLeaderOrFollower,
            leader: Some(NodeId(2)),
            epoch: Epoch(3),
        };
        let told = answer("n1", refusal);
        assert!(
            matches!(&told, Answer::Refused { leader: Some(l), .. } if l == "n2"),
            "{told:?}"
        );
        for code in [UnknownCode::LeadershipLost, UnknownCode::Stopping] {
            let reply = ClientReply::Unknown {
                code,
                epoch: Epoch(3),
            };
            assert!(matches!(answer("n1", reply), Answer::Unknown { .. }));
        }
        let stale = ClientReply::Stale {
            last_request: 4,
            position: POSITION,
        };
        assert!(matches!(answer("n1", stale), Answer::Unknown { .. }));
    }

    #[test]
    fn successes_and_mismatches_keep_value_and_position() {
        let read = ClientReply::Value {
            value: json!(5),
            position: POSITION,
        };
        let told = answer("n1", read);
        let Answer::Done {
            value,
            epoch,
            offset,
            ..
        } = told
        else {
            panic!("{told:?}");
        };
        assert_eq!((value, epoch, offset), (json!(5), Some(3), Some(8)));
        let mismatch = ClientReply::NotApplied {
            operation: None,
            failure: Failure::CompareMismatch { current: json!(1) },
            position: POSITION,
        };
        assert!(matches!(answer("n1", mismatch), Answer::Mismatch { current, .. } if current == 1));
    }
}
