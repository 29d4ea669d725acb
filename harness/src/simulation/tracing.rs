//! Owns the trace of a simulation: what nodes say about themselves, in the format of a run folder.
//! Never changes what was said; it only says it in the types of the other side.

use std::borrow::Cow;

use node::raft;
use node::trace::{MessageSummary, Party, TraceEvent as Said};
use results::shared_text::SharedText;
use results::trace::{Message, Role, TraceDetail};
use serde::Serialize;
use serde::de::DeserializeOwned;

use super::digest::Digest;

/// What replicas are called: each name is made once, however often it is said.
#[derive(Debug)]
pub(super) struct Names {
    replicas: Vec<SharedText>,
}

impl Names {
    /// Of replicas `1..=replicas.len()`.
    pub(super) fn new(replicas: Vec<SharedText>) -> Self {
        Self { replicas }
    }

    fn of(&self, party: Party) -> SharedText {
        let Party::Replica(id) = party else {
            return party.to_string().into();
        };
        let position = usize::try_from(id.0).ok().and_then(|id| id.checked_sub(1));
        let known = position.and_then(|position| self.replicas.get(position));
        known.map_or_else(|| id.to_string().into(), SharedText::clone)
    }
}

/// The event as a run folder holds it. A message takes the room that `spare` has, if it has any.
pub(super) fn detail(
    said: Said,
    names: &Names,
    spare: impl FnOnce() -> Option<Box<Message>>,
) -> TraceDetail {
    match said {
        Said::Append {
            base_offset,
            last_offset,
            batch_epoch,
            crc,
        } => TraceDetail::Append {
            base_offset: base_offset.0,
            last_offset: last_offset.0,
            batch_epoch: batch_epoch.0,
            crc,
        },
        Said::Flush { log_end } => TraceDetail::Flush { log_end: log_end.0 },
        Said::Truncate { log_end } => TraceDetail::Truncate { log_end: log_end.0 },
        Said::HighWatermark {
            high_watermark,
            log_end,
        } => TraceDetail::HighWatermark {
            high_watermark: high_watermark.0,
            log_end: log_end.0,
        },
        Said::RoleChange {
            role,
            leader,
            epoch_start_offset,
            reason,
        } => TraceDetail::RoleChange {
            role: role_of(role),
            leader,
            epoch_start_offset: epoch_start_offset.map(|offset| offset.0),
            reason: Some(reason.to_owned()),
        },
        Said::ReadServed {
            read_offset,
            applied,
        } => TraceDetail::ReadServed {
            read_offset: read_offset.0,
            applied: applied.0,
        },
        Said::RpcSent { to, message } => TraceDetail::RpcSent {
            to: names.of(to),
            message: boxed(message_of(&message, names), spare()),
        },
        Said::RpcReceived { from, message } => TraceDetail::RpcReceived {
            from: names.of(from),
            message: boxed(message_of(&message, names), spare()),
        },
        // Rare kinds take the way that a process's trace takes, which knows kinds still to come.
        rare => read_back(&rare).unwrap_or(TraceDetail::Unknown),
    }
}

fn boxed(message: Message, spare: Option<Box<Message>>) -> Box<Message> {
    match spare {
        Some(mut room) => {
            *room = message;
            room
        }
        None => Box::new(message),
    }
}

/// What a message says, as a run folder holds it.
fn message_of(said: &MessageSummary, names: &Names) -> Message {
    Message {
        rpc: Cow::Borrowed(said.rpc),
        is_response: said.is_response,
        correlation: said.correlation,
        message_epoch: said.message_epoch.map(|epoch| epoch.0),
        leader: said.leader.map(|leader| names.of(leader)),
        offset: said.offset.map(|offset| offset.0),
        last_epoch: said.last_epoch.map(|epoch| epoch.0),
        end_offset: said.end_offset.map(|offset| offset.0),
        high_watermark: said.high_watermark.map(|offset| offset.0),
        diverging: said.diverging.map(|(epoch, end)| (epoch.0, end.0)),
        granted: said.granted,
        error: said.error.as_ref().and_then(read_back),
    }
}

/// What others read where this is written.
fn read_back<T: DeserializeOwned>(written: &impl Serialize) -> Option<T> {
    let written = serde_json::to_value(written).ok()?;
    serde_json::from_value(written).ok()
}

/// The role in the words of a run folder.
pub(super) fn role_of(role: raft::Role) -> Role {
    match role {
        raft::Role::Unattached => Role::Unattached,
        raft::Role::Prospective => Role::Prospective,
        raft::Role::Candidate => Role::Candidate,
        raft::Role::Leader => Role::Leader,
        raft::Role::Follower => Role::Follower,
        raft::Role::Resigned => Role::Resigned,
    }
}

/// Adds the event to the digest.
pub(super) fn describe(detail: &TraceDetail, digest: &mut Digest) {
    match detail {
        TraceDetail::Append {
            base_offset,
            last_offset,
            batch_epoch,
            crc,
        } => {
            digest.add(1 << 32 | u64::from(*batch_epoch as u32));
            digest.add(*base_offset as u64);
            digest.add(*last_offset as u64);
            digest.add(u64::from(*crc));
        }
        TraceDetail::Flush { log_end } => {
            digest.add(2 << 32);
            digest.add(*log_end as u64);
        }
        TraceDetail::HighWatermark {
            high_watermark,
            log_end,
        } => {
            digest.add(3 << 32);
            digest.add(*high_watermark as u64);
            digest.add(*log_end as u64);
        }
        TraceDetail::RpcSent { to, message } => describe_message(4, to, message, digest),
        TraceDetail::RpcReceived { from, message } => describe_message(5, from, message, digest),
        rare => digest.add_text(&serde_json::to_string(rare).unwrap_or_default()),
    }
}

/// Adds everything that a message says to the digest. What it does not say counts as well.
fn describe_message(kind: u64, peer: &str, message: &Message, digest: &mut Digest) {
    let Message {
        rpc,
        is_response,
        correlation,
        message_epoch,
        leader,
        offset,
        last_epoch,
        end_offset,
        high_watermark,
        diverging,
        granted,
        error,
    } = message;
    digest.add(kind << 32 | u64::from(*is_response));
    digest.add_text(peer);
    digest.add_text(rpc);
    let epoch = |epoch: &Option<i32>| epoch.map(|epoch| i64::from(epoch) as u64);
    let place = |offset: &Option<i64>| offset.map(|offset| offset as u64);
    for value in [
        *correlation,
        epoch(message_epoch),
        epoch(last_epoch),
        place(offset),
        place(end_offset),
        place(high_watermark),
        epoch(&diverging.map(|(epoch, _)| epoch)),
        place(&diverging.map(|(_, end)| end)),
        granted.map(u64::from),
    ] {
        digest.add(u64::from(value.is_some()));
        digest.add(value.unwrap_or_default());
    }
    for text in [leader.as_deref(), error.as_deref()] {
        digest.add(u64::from(text.is_some()));
        digest.add_text(text.unwrap_or_default());
    }
}

#[cfg(test)]
mod tests {
    use node::ids::{Epoch, NodeId, Offset};

    use super::*;

    /// Both ways of saying it must agree with what a process writes.
    #[test]
    fn events_read_as_if_a_process_had_written_them() {
        let offset = Offset(7);
        let said = [
            Said::Append {
                base_offset: offset,
                last_offset: Offset(9),
                batch_epoch: Epoch(2),
                crc: 5,
            },
            Said::Flush { log_end: offset },
            Said::Truncate { log_end: offset },
            Said::HighWatermark {
                high_watermark: offset,
                log_end: Offset(8),
            },
            Said::RoleChange {
                role: raft::Role::Leader,
                leader: Some("n2".into()),
                epoch_start_offset: Some(offset),
                reason: "won",
            },
            Said::VotePersisted {
                candidate: "n1".into(),
            },
            Said::ReadServed {
                read_offset: offset,
                applied: Offset(8),
            },
            Said::RefusedToStart {
                reason: "damaged".into(),
            },
            Said::RpcSent {
                to: Party::Replica(NodeId(2)),
                message: Box::new(MessageSummary {
                    rpc: "fetch",
                    is_response: true,
                    correlation: Some(3),
                    message_epoch: Some(Epoch(4)),
                    leader: Some(Party::Replica(NodeId(7))),
                    offset: Some(offset),
                    last_epoch: Some(Epoch(1)),
                    end_offset: Some(Offset(8)),
                    high_watermark: Some(Offset(9)),
                    diverging: Some((Epoch(2), Offset(5))),
                    granted: Some(true),
                    error: Some(node::message::ErrorCode::FencedLeaderEpoch),
                }),
            },
            Said::RpcReceived {
                from: Party::Client,
                message: Box::new(MessageSummary {
                    rpc: "vote",
                    ..MessageSummary::default()
                }),
            },
        ];
        let names = Names::new(vec!["n1".into(), "n2".into()]);
        for said in said {
            let written = serde_json::to_value(&said).unwrap();
            let read: TraceDetail = serde_json::from_value(written).unwrap();
            assert_ne!(read, TraceDetail::Unknown);
            assert_eq!(detail(said, &names, || None), read);
        }
    }
}
