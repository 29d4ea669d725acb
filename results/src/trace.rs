//! Owns what a node says about itself while it runs: one event per protocol step.
//! Never trusts an event: whether the claims hold together is for the checkers to decide.

use std::borrow::Cow;
use std::fmt;

use serde::{Deserialize, Serialize};

use crate::ranges;
use crate::shared_text::SharedText;

/// State of a node in the KRaft state machine.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Knows no leader it can follow.
    Unattached,
    /// Asks whether an election could succeed (pre-vote, KIP-996).
    Prospective,
    /// Asks for votes.
    Candidate,
    /// Leads its epoch.
    Leader,
    /// Fetches from a leader.
    Follower,
    /// Gave up leadership of its epoch.
    Resigned,
}

impl fmt::Display for Role {
    /// As in the trace.
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::Unattached => "unattached",
            Self::Prospective => "prospective",
            Self::Candidate => "candidate",
            Self::Leader => "leader",
            Self::Follower => "follower",
            Self::Resigned => "resigned",
        })
    }
}

/// One line of `trace.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Nanoseconds since the run started, on the same clock as the history, never skewed.
    #[serde(deserialize_with = "ranges::count")]
    pub time: u64,
    /// The node that speaks (`n1`).
    pub node: SharedText,
    /// How often the node was started in this run, from 1.
    pub incarnation: u32,
    /// Number of the event within the incarnation, from 0, without gaps.
    #[serde(deserialize_with = "ranges::count")]
    pub seq: u64,
    /// The node's epoch after the event.
    #[serde(deserialize_with = "ranges::epoch")]
    pub epoch: i32,
    /// What happened.
    #[serde(flatten)]
    pub detail: TraceDetail,
}

/// What happened, with the state the event claims to hold afterwards.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "event", rename_all = "kebab-case")]
pub enum TraceDetail {
    /// Recovery is over; the node takes part.
    Started(Box<Started>),
    /// The node changed state.
    RoleChange {
        /// The new state.
        role: Role,
        /// The leader of the epoch, as far as the node knows.
        #[serde(default)]
        leader: Option<String>,
        /// For a leader: its log end offset at election.
        #[serde(default, deserialize_with = "ranges::optional_offset")]
        epoch_start_offset: Option<i64>,
        /// For people: why.
        #[serde(default)]
        reason: Option<String>,
    },
    /// A vote of this epoch is durable.
    VotePersisted {
        /// Whom the vote is for.
        candidate: String,
    },
    /// A newer epoch, or the leader of the present one, is durable.
    EpochAdopted {
        /// The leader, where known.
        #[serde(default)]
        leader: Option<String>,
    },
    /// A batch was appended to the log; not yet necessarily durable.
    Append {
        /// Offset of its first record.
        #[serde(deserialize_with = "ranges::offset")]
        base_offset: i64,
        /// Offset of its last record.
        #[serde(deserialize_with = "ranges::offset")]
        last_offset: i64,
        /// Epoch of the leader that created it.
        #[serde(deserialize_with = "ranges::epoch")]
        batch_epoch: i32,
        /// CRC-32C of the batch: equal for the same batch on every node.
        crc: u32,
    },
    /// A record with a set of voters is in the log. It is in force from here on, unless a truncation
    /// removes it (KIP-853).
    VotersAppended {
        /// Offset of the record.
        #[serde(deserialize_with = "ranges::offset")]
        offset: i64,
        /// All voters.
        voters: Vec<String>,
        /// The `kraft.version` in force with it.
        kraft_version: u16,
    },
    /// Everything below `log_end` is durable.
    Flush {
        /// Log end offset.
        #[serde(deserialize_with = "ranges::offset")]
        log_end: i64,
    },
    /// The log was cut back to agree with the leader's.
    Truncate {
        /// Log end offset afterwards.
        #[serde(deserialize_with = "ranges::offset")]
        log_end: i64,
    },
    /// The node's high watermark moved.
    HighWatermark {
        /// Everything below is committed.
        #[serde(deserialize_with = "ranges::offset")]
        high_watermark: i64,
        /// Log end offset at that moment.
        #[serde(deserialize_with = "ranges::offset")]
        log_end: i64,
    },
    /// A snapshot that the node took of its own state is durable.
    SnapshotFrozen {
        /// Offset after the last record it covers.
        #[serde(deserialize_with = "ranges::offset")]
        end_offset: i64,
        /// Epoch of that record.
        #[serde(deserialize_with = "ranges::epoch")]
        last_epoch: i32,
        /// Hash of the state, 16 hexadecimal digits.
        digest: String,
    },
    /// A snapshot of the leader is durable and has replaced the log, which is empty and starts where
    /// the snapshot ends.
    SnapshotInstalled {
        /// Offset after the last record it covers.
        #[serde(deserialize_with = "ranges::offset")]
        end_offset: i64,
        /// Epoch of that record.
        #[serde(deserialize_with = "ranges::epoch")]
        last_epoch: i32,
        /// Hash of the state, 16 hexadecimal digits.
        digest: String,
        /// The voters that the snapshot names; absent while voters are static.
        #[serde(default)]
        voters: Option<Vec<String>>,
        /// The `kraft.version` that the snapshot names; 0 while voters are static.
        #[serde(default)]
        kraft_version: u16,
    },
    /// The log below is deleted.
    LogStartAdvanced {
        /// First offset in the log; a snapshot ends there.
        #[serde(deserialize_with = "ranges::offset")]
        log_start: i64,
    },
    /// A message left for another replica.
    RpcSent {
        /// Whom it is for.
        to: SharedText,
        /// What it says.
        #[serde(flatten)]
        message: Box<Message>,
    },
    /// A message of another replica arrived.
    RpcReceived {
        /// Whom it is from; a request of a tool comes from `client`.
        from: SharedText,
        /// What it says.
        #[serde(flatten)]
        message: Box<Message>,
    },
    /// A linearizable read was answered.
    ReadServed {
        /// What was committed when the read was confirmed: everything below.
        #[serde(deserialize_with = "ranges::offset")]
        read_offset: i64,
        /// What was applied when it was answered: everything below.
        #[serde(deserialize_with = "ranges::offset")]
        applied: i64,
    },
    /// The node found its disk in a state that it must not continue from.
    RefusedToStart {
        /// For people: what was found and what to do.
        reason: String,
    },
    /// An event of a kind this version does not know; ignored.
    #[serde(other)]
    Unknown,
}

/// What a node found when it started.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Started {
    /// State it starts in.
    pub role: Role,
    /// First offset in its log.
    #[serde(deserialize_with = "ranges::offset")]
    pub log_start: i64,
    /// Offset after the last record recovered.
    #[serde(deserialize_with = "ranges::offset")]
    pub log_end: i64,
    /// Epoch of the last record recovered, or of the snapshot before an empty log; 0 for neither.
    #[serde(deserialize_with = "ranges::epoch")]
    pub last_epoch: i32,
    /// The vote found in its quorum-state file.
    #[serde(default)]
    pub voted_for: Option<String>,
    /// The leader found in its quorum-state file.
    #[serde(default)]
    pub leader: Option<String>,
    /// Bytes of a torn tail that recovery cut off.
    #[serde(default)]
    pub truncated_bytes: u64,
    /// All snapshots found; absent where the node does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshots: Option<Vec<SnapshotName>>,
    /// The voters in force at the end of its log; absent where the node does not tell.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub voters: Option<Vec<String>>,
    /// The `kraft.version` in force there: 0 for static voters, 1 for voters in the log (KIP-853).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub kraft_version: Option<u16>,
    /// Which data directory it has. With another one it is another replica (KIP-853).
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub directory_id: Option<String>,
    /// Whether it is one of the voters, directory included.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub is_voter: Option<bool>,
}

/// What a snapshot is called by.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
pub struct SnapshotName {
    /// Offset after the last record it covers.
    #[serde(deserialize_with = "ranges::offset")]
    pub end_offset: i64,
    /// Epoch of that record.
    #[serde(deserialize_with = "ranges::epoch")]
    pub last_epoch: i32,
}

/// What a message between replicas says, as far as it matters to those who judge. What a message
/// does not say is absent.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Message {
    /// Kind of request: `vote`, `fetch` and so on; `pre-vote` for a vote that is only a question.
    /// Whoever receives the answer to a `pre-vote` sees a `vote`: the answer does not tell.
    pub rpc: Cow<'static, str>,
    /// Whether this is the answer.
    pub is_response: bool,
    /// Number of the request within the incarnation that sent it; the answer has the same.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub correlation: Option<u64>,
    /// Epoch that the message speaks of.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "ranges::optional_epoch"
    )]
    pub message_epoch: Option<i32>,
    /// Leader that the message names.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader: Option<SharedText>,
    /// Log end of the sender of a vote or fetch request; for the answer to a fetch, where the
    /// returned records begin; for snapshots, the end of the snapshot.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "ranges::optional_offset"
    )]
    pub offset: Option<i64>,
    /// Epoch of the record before `offset`; for snapshots, their epoch.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "ranges::optional_epoch"
    )]
    pub last_epoch: Option<i32>,
    /// For the answer to a fetch: the offset after the returned records.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "ranges::optional_offset"
    )]
    pub end_offset: Option<i64>,
    /// High watermark that the message speaks of.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "ranges::optional_offset"
    )]
    pub high_watermark: Option<i64>,
    /// For the answer to a fetch: epoch and end at which the logs part.
    #[serde(
        default,
        skip_serializing_if = "Option::is_none",
        deserialize_with = "ranges::optional_place"
    )]
    pub diverging: Option<(i32, i64)>,
    /// For the answer to a vote.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub granted: Option<bool>,
    /// Error of the answer, by Kafka's name, unless there is none.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub error: Option<String>,
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(line: &str) -> TraceDetail {
        let line = format!(r#"{{"time":1,"node":"n1","incarnation":1,"seq":2,"epoch":3,{line}}}"#);
        let event: TraceEvent = serde_json::from_str(&line).unwrap();
        let written = serde_json::to_string(&event).unwrap();
        let again: TraceEvent = serde_json::from_str(&written).unwrap();
        assert_eq!(again, event, "{written}");
        event.detail
    }

    #[test]
    fn events_read_back_and_unknown_kinds_are_tolerated() {
        let event = TraceEvent {
            time: 12,
            node: "n1".into(),
            incarnation: 1,
            seq: 0,
            epoch: 3,
            detail: TraceDetail::Append {
                base_offset: 4,
                last_offset: 6,
                batch_epoch: 3,
                crc: 9,
            },
        };
        let line = serde_json::to_string(&event).unwrap();
        assert!(line.contains(r#""event":"append""#), "{line}");
        assert_eq!(serde_json::from_str::<TraceEvent>(&line).unwrap(), event);
        let later = read(r#""event":"not-invented-yet","end":5"#);
        assert_eq!(later, TraceDetail::Unknown);
    }

    #[test]
    fn a_start_is_read_with_and_without_what_newer_nodes_tell() {
        let short =
            r#""event":"started","role":"unattached","log_start":0,"log_end":4,"last_epoch":2"#;
        let TraceDetail::Started(started) = read(short) else {
            panic!("not a start");
        };
        assert_eq!((started.log_end, started.last_epoch), (4, 2));
        assert_eq!((&started.snapshots, started.is_voter), (&None, None));
        let long = format!(
            r#"{short},"voted_for":"n2","leader":null,"truncated_bytes":7,
            "snapshots":[{{"end_offset":3,"last_epoch":2}}],"voters":["n1","n2"],
            "kraft_version":1,"directory_id":"ASNFZ4mrze8BI0VniavN7w","is_voter":true"#
        );
        let TraceDetail::Started(started) = read(&long) else {
            panic!("not a start");
        };
        let snapshot = SnapshotName {
            end_offset: 3,
            last_epoch: 2,
        };
        assert_eq!(started.snapshots, Some(vec![snapshot]));
        assert_eq!(started.voters, Some(vec!["n1".into(), "n2".into()]));
        assert_eq!(
            (started.kraft_version, started.is_voter),
            (Some(1), Some(true))
        );
        assert_eq!(
            started.directory_id.as_deref(),
            Some("ASNFZ4mrze8BI0VniavN7w")
        );
    }

    #[test]
    fn snapshots_and_voters_are_read() {
        assert_eq!(
            read(r#""event":"voters-appended","offset":7,"voters":["n1"],"kraft_version":1"#),
            TraceDetail::VotersAppended {
                offset: 7,
                voters: vec!["n1".into()],
                kraft_version: 1
            }
        );
        assert_eq!(
            read(r#""event":"snapshot-frozen","end_offset":7,"last_epoch":2,"digest":"00ff""#),
            TraceDetail::SnapshotFrozen {
                end_offset: 7,
                last_epoch: 2,
                digest: "00ff".into()
            }
        );
        let installed = |voters| TraceDetail::SnapshotInstalled {
            end_offset: 7,
            last_epoch: 2,
            digest: "00ff".into(),
            voters,
            kraft_version: 0,
        };
        let line = r#""event":"snapshot-installed","end_offset":7,"last_epoch":2,"digest":"00ff""#;
        assert_eq!(read(line), installed(None));
        let line = format!(r#"{line},"voters":null,"kraft_version":0"#);
        assert_eq!(read(&line), installed(None));
        let line = line.replace("null", r#"["n1","n2"]"#);
        assert_eq!(read(&line), installed(Some(vec!["n1".into(), "n2".into()])));
        assert_eq!(
            read(r#""event":"log-start-advanced","log_start":7"#),
            TraceDetail::LogStartAdvanced { log_start: 7 }
        );
    }

    #[test]
    fn messages_and_reads_are_read_with_whatever_they_say() {
        let line = r#""event":"rpc-sent","to":"n2","rpc":"fetch","is_response":true,"correlation":9,
            "message_epoch":3,"leader":"n1","offset":7,"end_offset":9,"high_watermark":7,
            "diverging":[2,5],"error":"FENCED_LEADER_EPOCH""#;
        let TraceDetail::RpcSent { to, message } = read(line) else {
            panic!("not a message");
        };
        assert_eq!((to.as_str(), &*message.rpc), ("n2", "fetch"));
        assert_eq!((message.offset, message.end_offset), (Some(7), Some(9)));
        assert_eq!((message.diverging, message.granted), (Some((2, 5)), None));
        assert_eq!(message.error.as_deref(), Some("FENCED_LEADER_EPOCH"));
        let line =
            r#""event":"rpc-received","from":"client","rpc":"describe-quorum","is_response":false"#;
        let TraceDetail::RpcReceived { from, message } = read(line) else {
            panic!("not a message");
        };
        assert_eq!((from.as_str(), message.correlation), ("client", None));
        assert_eq!(
            read(r#""event":"read-served","read_offset":4,"applied":6"#),
            TraceDetail::ReadServed {
                read_offset: 4,
                applied: 6
            }
        );
    }
}
