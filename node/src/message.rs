//! Owns the requests and responses that replicas exchange, and their error codes.
//! Never knows how they travel, except that a batch travels as the bytes it is stored as.
//!
//! Shapes follow Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch and Fetch with their one-entry
//! topic and partition arrays flattened away (KIP-595, KIP-996).

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::ids::{Epoch, NodeId, Offset};

/// Outcome of a request between replicas, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "SCREAMING_SNAKE_CASE")]
pub enum ErrorCode {
    /// No error.
    None,
    /// The receiver is broken in a way it did not foresee.
    UnknownServerError,
    /// The receiver does not lead.
    NotLeaderOrFollower,
    /// The receiver is shutting down.
    BrokerNotAvailable,
    /// The request makes no sense.
    InvalidRequest,
    /// The request's epoch is older than the receiver's.
    FencedLeaderEpoch,
    /// The request's epoch is newer than the receiver's.
    UnknownLeaderEpoch,
    /// The sender belongs to another cluster.
    InconsistentClusterId,
    /// The request was meant for another voter.
    InvalidVoterKey,
}

/// Asks for a vote, or with `pre_vote` whether a vote would be granted.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteRequest {
    /// Cluster of the sender.
    pub cluster_id: String,
    /// The voter that the request is meant for.
    pub voter_id: NodeId,
    /// The sender.
    pub replica_id: NodeId,
    /// Epoch of the sender: already increased for a vote, unchanged for a pre-vote.
    pub replica_epoch: Epoch,
    /// Epoch of the last record in the sender's log.
    pub last_epoch: Epoch,
    /// End offset of the sender's log.
    pub last_offset: Offset,
    /// Whether this is only a question (KIP-996).
    pub pre_vote: bool,
}

/// Answers a [`VoteRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct VoteResponse {
    /// Outcome.
    pub error: ErrorCode,
    /// Leader known to the receiver.
    pub leader_id: Option<NodeId>,
    /// Epoch of the receiver.
    pub leader_epoch: Epoch,
    /// Whether the vote, or pre-vote, is granted.
    pub vote_granted: bool,
}

/// Tells a voter who leads.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct BeginQuorumEpochRequest {
    /// Cluster of the sender.
    pub cluster_id: String,
    /// The voter that the request is meant for.
    pub voter_id: NodeId,
    /// The leader, which is the sender.
    pub leader_id: NodeId,
    /// Its epoch.
    pub leader_epoch: Epoch,
}

/// Tells voters that the leader gives up its epoch.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct EndQuorumEpochRequest {
    /// Cluster of the sender.
    pub cluster_id: String,
    /// The leader that resigns.
    pub leader_id: NodeId,
    /// Its epoch.
    pub leader_epoch: Epoch,
    /// The other voters, those with the longest logs first.
    pub preferred_successors: Vec<NodeId>,
}

/// Answers [`BeginQuorumEpochRequest`] and [`EndQuorumEpochRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct QuorumEpochResponse {
    /// Outcome.
    pub error: ErrorCode,
    /// Leader known to the receiver.
    pub leader_id: Option<NodeId>,
    /// Epoch of the receiver.
    pub leader_epoch: Epoch,
}

/// Asks for records, and thereby acknowledges all records before `fetch_offset`.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchRequest {
    /// Cluster of the sender.
    pub cluster_id: String,
    /// The sender.
    pub replica_id: NodeId,
    /// Epoch of the sender.
    pub current_leader_epoch: Epoch,
    /// Log end offset of the sender; everything before it is durable there.
    pub fetch_offset: Offset,
    /// Epoch of the last record in the sender's log, 0 when there is none.
    pub last_fetched_epoch: Epoch,
    /// High watermark known to the sender.
    pub high_watermark: Option<Offset>,
    /// How long the leader may hold the request when there is nothing to return.
    pub max_wait_ms: u64,
    /// How many bytes of records to return at most; one batch is always returned.
    pub max_bytes: u64,
    /// The newest read round that this leader told the sender of in this epoch. It lets the leader
    /// confirm that a majority still followed it after a read arrived. Not part of Kafka.
    pub read_round: u64,
}

/// Where the sender's log leaves the leader's.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DivergingEpoch {
    /// The largest epoch in the leader's log that is not above the asked one.
    pub epoch: Epoch,
    /// Where that epoch ends in the leader's log.
    pub end_offset: Offset,
}

/// Answers a [`FetchRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct FetchResponse {
    /// Outcome.
    pub error: ErrorCode,
    /// Leader known to the receiver.
    pub leader_id: Option<NodeId>,
    /// Epoch of the receiver.
    pub leader_epoch: Epoch,
    /// The leader's high watermark, once it is known in this epoch.
    pub high_watermark: Option<Offset>,
    /// First offset of the leader's log.
    pub log_start_offset: Offset,
    /// Set when the sender must truncate before it fetches again.
    pub diverging_epoch: Option<DivergingEpoch>,
    /// See [`FetchRequest::read_round`].
    pub read_round: u64,
    /// The records, as whole batches. They travel after the JSON part, as bytes.
    #[serde(skip)]
    pub batches: Vec<Batch>,
}

/// Any request between replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Request {
    /// See [`VoteRequest`].
    Vote(VoteRequest),
    /// See [`BeginQuorumEpochRequest`].
    BeginQuorumEpoch(BeginQuorumEpochRequest),
    /// See [`EndQuorumEpochRequest`].
    EndQuorumEpoch(EndQuorumEpochRequest),
    /// See [`FetchRequest`].
    Fetch(FetchRequest),
}

/// Any response between replicas.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Response {
    /// Answers a vote.
    Vote(VoteResponse),
    /// Answers the beginning of an epoch.
    BeginQuorumEpoch(QuorumEpochResponse),
    /// Answers the end of an epoch.
    EndQuorumEpoch(QuorumEpochResponse),
    /// Answers a fetch.
    Fetch(FetchResponse),
}
