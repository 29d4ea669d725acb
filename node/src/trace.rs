//! Owns the events that a node reports about itself.
//! Never influences what the node does; leaving an event out changes nothing but the trace.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::fmt;

use serde::{Serialize, Serializer};

use crate::ids::{DirectoryId, Epoch, NodeId, Offset};
use crate::message::ErrorCode;
use crate::raft::Role;

/// One protocol step, with the state it claims to hold afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TraceEvent {
    /// Recovery is over; the node takes part.
    Started(Box<Started>),
    /// The node changed state.
    RoleChange {
        /// The new state.
        role: Role,
        /// The leader of the epoch, as far as the node knows.
        leader: Option<String>,
        /// For a leader: its log end offset at election.
        epoch_start_offset: Option<Offset>,
        /// Why, for people.
        reason: &'static str,
    },
    /// A vote of this epoch is durable.
    VotePersisted {
        /// Whom the vote is for.
        candidate: String,
    },
    /// A newer epoch, or the leader of the present one, is durable.
    EpochAdopted {
        /// The leader, where known.
        leader: Option<String>,
    },
    /// A batch was appended to the log; not yet necessarily durable.
    Append {
        /// Offset of its first record.
        base_offset: Offset,
        /// Offset of its last record.
        last_offset: Offset,
        /// Epoch of the leader that built it.
        batch_epoch: Epoch,
        /// Its CRC-32C.
        crc: u32,
    },
    /// A set of voters was appended: it is in force from here on, unless a truncation removes it.
    VotersAppended {
        /// Offset of its record.
        offset: Offset,
        /// All voters, ascending.
        voters: Vec<String>,
        /// The `kraft.version` in force with it.
        kraft_version: u16,
    },
    /// Everything below `log_end` is durable.
    Flush {
        /// Log end offset.
        log_end: Offset,
    },
    /// The log was cut back to agree with the leader's.
    Truncate {
        /// Log end offset afterwards.
        log_end: Offset,
    },
    /// The high watermark moved.
    HighWatermark {
        /// Everything below is committed.
        high_watermark: Offset,
        /// Log end offset at that moment.
        log_end: Offset,
    },
    /// A message left for another replica. Reported only where the outbox asks for messages.
    RpcSent {
        /// Whom it is for.
        to: Party,
        /// What it says.
        #[serde(flatten)]
        message: Box<MessageSummary>,
    },
    /// A message of another replica arrived. Reported only where the outbox asks for messages.
    RpcReceived {
        /// Whom it is from.
        from: Party,
        /// What it says.
        #[serde(flatten)]
        message: Box<MessageSummary>,
    },
    /// A linearizable read was answered.
    ReadServed {
        /// What was committed when the read was confirmed: everything below.
        read_offset: Offset,
        /// What was applied when it was answered: everything below.
        applied: Offset,
    },
    /// A snapshot of the own state is durable.
    SnapshotFrozen {
        /// Everything below is in it.
        end_offset: Offset,
        /// Epoch of the last record in it.
        last_epoch: Epoch,
        /// Hash of the state in it: equal for equal states, on every node. 16 hexadecimal digits.
        digest: String,
    },
    /// A snapshot of the leader's state is durable and took the place of state and log: the log is
    /// empty and starts at its end.
    SnapshotInstalled {
        /// Everything below is in it.
        end_offset: Offset,
        /// Epoch of the last record in it.
        last_epoch: Epoch,
        /// Hash of the state in it: equal for equal states, on every node. 16 hexadecimal digits.
        digest: String,
        /// The voters that the snapshot names; absent under kraft.version 0.
        voters: Option<Vec<String>>,
        /// The `kraft.version` in force at its end.
        kraft_version: u16,
    },
    /// The log below was deleted. A snapshot ends here.
    LogStartAdvanced {
        /// First offset of the log.
        log_start: Offset,
    },
    /// The disk holds something that the node must not continue from.
    RefusedToStart {
        /// What was found and what to do, for people.
        reason: String,
    },
}

/// What a node found when it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Started {
    /// State it starts in.
    pub role: Role,
    /// First offset in its log.
    pub log_start: Offset,
    /// Offset after the last recovered record.
    pub log_end: Offset,
    /// Epoch of the last recovered record, 0 for an empty log.
    pub last_epoch: Epoch,
    /// The vote found in the quorum-state file.
    pub voted_for: Option<String>,
    /// The leader found in the quorum-state file.
    pub leader: Option<String>,
    /// Bytes of a torn tail that recovery cut off.
    pub truncated_bytes: u64,
    /// All snapshots that were found, but for the bootstrap snapshot.
    pub snapshots: Vec<SnapshotName>,
    /// The voters in force at the end of its log.
    pub voters: Vec<String>,
    /// The `kraft.version` in force there.
    pub kraft_version: u16,
    /// Its data directory, where it has an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory_id: Option<DirectoryId>,
    /// Whether it is one of the voters.
    pub is_voter: bool,
}

/// What a snapshot is called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize)]
pub struct SnapshotName {
    /// Everything below is in it.
    pub end_offset: Offset,
    /// Epoch of the last record in it.
    pub last_epoch: Epoch,
}

/// What a message between replicas says, as far as it matters to those who judge. What a message
/// does not say is left out.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize)]
pub struct MessageSummary {
    /// Kind of request, as in its path: `vote`, `fetch` and so on; `pre-vote` for a vote that is
    /// only a question.
    pub rpc: &'static str,
    /// Whether this is the answer.
    pub is_response: bool,
    /// Number of the request within the incarnation that sent it; the answer has the same.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub correlation: Option<u64>,
    /// Epoch that the message speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub message_epoch: Option<Epoch>,
    /// Leader that the message names.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub leader: Option<Party>,
    /// Log end of the sender of a vote or fetch request; for the answer to a fetch, where the
    /// returned records begin; for snapshots, the end of the snapshot.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub offset: Option<Offset>,
    /// Epoch of the record before `offset`; for snapshots, their epoch.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub last_epoch: Option<Epoch>,
    /// For the answer to a fetch: the offset after the returned records.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub end_offset: Option<Offset>,
    /// High watermark that the message speaks of.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub high_watermark: Option<Offset>,
    /// For the answer to a fetch: epoch and end at which the logs part.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub diverging: Option<(Epoch, Offset)>,
    /// For the answer to a vote.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub granted: Option<bool>,
    /// Error of the answer, unless there is none.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub error: Option<ErrorCode>,
}

/// Who takes part in an exchange of messages. Its name is written only when the trace is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Party {
    /// A replica, by its name.
    Replica(NodeId),
    /// A tool, which is no replica: `client`.
    Client,
    /// Whoever asks in the name of another cluster, whose nodes may have the same ids: `stranger`.
    Stranger,
}

impl fmt::Display for Party {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Replica(id) => id.fmt(formatter),
            Self::Client => formatter.write_str(CLIENT),
            Self::Stranger => formatter.write_str(STRANGER),
        }
    }
}

impl Serialize for Party {
    fn serialize<S: Serializer>(&self, serializer: S) -> Result<S::Ok, S::Error> {
        serializer.collect_str(self)
    }
}

/// What a tool is called that is no replica.
const CLIENT: &str = "client";
/// What somebody is called who asks in the name of another cluster.
const STRANGER: &str = "stranger";

/// A trace event with the epoch the node was in when it happened.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct Traced {
    /// The node's epoch after the event.
    pub epoch: Epoch,
    /// What happened.
    #[serde(flatten)]
    pub event: TraceEvent,
}

/// How a node is called in traces.
pub fn name(id: NodeId) -> String {
    match u8::try_from(id.0) {
        // Most ids.
        Ok(digit @ 0..=9) => String::from_iter(['n', char::from(b'0' + digit)]),
        _ => id.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn all_names_are_written_alike() {
        for id in [i32::MIN, -1, 0, 1, 9, 10, 256, i32::MAX].map(NodeId) {
            assert_eq!(name(id), format!("n{}", id.0));
        }
    }
}
