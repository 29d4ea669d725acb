//! Owns what a node says about itself while it runs: one event per protocol step.
//! Never trusts an event: whether the claims hold together is for the checkers to decide.

use serde::{Deserialize, Serialize};

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

/// One line of `trace.jsonl`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct TraceEvent {
    /// Nanoseconds since the run started, on the same clock as the history, never skewed.
    pub time: u64,
    /// The node that speaks (`n1`).
    pub node: String,
    /// How often the node was started in this run, from 1.
    pub incarnation: u32,
    /// Number of the event within the incarnation, from 0, without gaps.
    pub seq: u64,
    /// The node's epoch after the event.
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
    Started {
        /// State it starts in.
        role: Role,
        /// First offset in its log.
        log_start: i64,
        /// Offset after the last record recovered.
        log_end: i64,
        /// Epoch of the last record recovered, 0 for an empty log.
        last_epoch: i32,
        /// The vote found in its quorum-state file.
        #[serde(default)]
        voted_for: Option<String>,
        /// The leader found in its quorum-state file.
        #[serde(default)]
        leader: Option<String>,
        /// Bytes of a torn tail that recovery cut off.
        #[serde(default)]
        truncated_bytes: u64,
    },
    /// The node changed state.
    RoleChange {
        /// The new state.
        role: Role,
        /// The leader of the epoch, as far as the node knows.
        #[serde(default)]
        leader: Option<String>,
        /// For a leader: its log end offset at election.
        #[serde(default)]
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
        base_offset: i64,
        /// Offset of its last record.
        last_offset: i64,
        /// Epoch of the leader that created it.
        batch_epoch: i32,
        /// CRC-32C of the batch: equal for the same batch on every node.
        crc: u32,
    },
    /// Everything below `log_end` is durable.
    Flush {
        /// Log end offset.
        log_end: i64,
    },
    /// The log was cut back to agree with the leader's.
    Truncate {
        /// Log end offset afterwards.
        log_end: i64,
    },
    /// The node's high watermark moved.
    HighWatermark {
        /// Everything below is committed.
        high_watermark: i64,
        /// Log end offset at that moment.
        log_end: i64,
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

#[cfg(test)]
mod tests {
    use super::*;

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
        let later = r#"{"time":1,"node":"n1","incarnation":1,"seq":2,"epoch":1,"event":"snapshot-frozen","end":5}"#;
        assert_eq!(
            serde_json::from_str::<TraceEvent>(later).unwrap().detail,
            TraceDetail::Unknown
        );
    }
}
