//! Owns the requests and responses that replicas exchange, and their error codes.
//! Never knows how they travel, except that a batch travels as the bytes it is stored as.
//!
//! Shapes follow Kafka's Vote, BeginQuorumEpoch, EndQuorumEpoch, Fetch, FetchSnapshot, DescribeQuorum
//! and AddRaftVoter, RemoveRaftVoter, UpdateRaftVoter with their one-entry topic and partition arrays
//! flattened away (KIP-595, KIP-630, KIP-853, KIP-996).

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use serde::{Deserialize, Deserializer, Serialize};

use crate::batch::Batch;
use crate::ids::{Epoch, NodeId, Offset, ReplicaKey, SnapshotId};
use crate::voters::VersionRange;

/// Outcome of a request between replicas, by Kafka's names.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
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
    /// The protocol version in force does not know what is asked for.
    UnsupportedVersion,
    /// It could not be done in time, or not now: ask again.
    RequestTimedOut,
    /// There is no snapshot of this name (any more).
    SnapshotNotFound,
    /// The snapshot ends before the position asked for.
    PositionOutOfRange,
    /// A voter of this id is in the set already.
    DuplicateVoter,
    /// No such voter is in the set, or it is the only one.
    VoterNotFound,
}

/// A cluster id that is not given or null is written as the empty one, which names no cluster.
fn absent_as_empty<'de, D: Deserializer<'de>>(deserializer: D) -> Result<String, D::Error> {
    Option::<String>::deserialize(deserializer).map(Option::unwrap_or_default)
}

/// Asks for a vote, or with `pre_vote` whether a vote would be granted.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VoteRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
    /// The voter that the request is meant for.
    pub voter: ReplicaKey,
    /// The sender.
    pub replica: ReplicaKey,
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
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VoteResponse {
    /// Outcome.
    pub error: ErrorCode,
    /// Leader known to the receiver.
    pub leader_id: Option<NodeId>,
    /// Epoch of the receiver.
    pub leader_epoch: Epoch,
    /// Base URL where that leader listens, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_endpoint: Option<String>,
    /// Whether the vote, or pre-vote, is granted.
    pub vote_granted: bool,
}

/// Tells a voter who leads.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct BeginQuorumEpochRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
    /// The voter that the request is meant for.
    pub voter: ReplicaKey,
    /// The leader, which is the sender.
    pub leader_id: NodeId,
    /// Its epoch.
    pub leader_epoch: Epoch,
    /// Base URL where it listens, where it is not configured at the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_endpoint: Option<String>,
}

/// Tells voters that the leader gives up its epoch.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct EndQuorumEpochRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
    /// The leader that resigns.
    pub leader_id: NodeId,
    /// Its epoch.
    pub leader_epoch: Epoch,
    /// The other voters, those with the longest logs first.
    pub preferred_successors: Vec<ReplicaKey>,
    /// Base URL where the leader listens, where it is not configured at the receiver.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_endpoint: Option<String>,
}

/// Answers [`BeginQuorumEpochRequest`] and [`EndQuorumEpochRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct QuorumEpochResponse {
    /// Outcome.
    pub error: ErrorCode,
    /// Leader known to the receiver.
    pub leader_id: Option<NodeId>,
    /// Epoch of the receiver.
    pub leader_epoch: Epoch,
    /// Base URL where that leader listens, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_endpoint: Option<String>,
}

/// Asks for records, and thereby acknowledges all records before `fetch_offset`.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FetchRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
    /// The sender.
    pub replica: ReplicaKey,
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
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DivergingEpoch {
    /// The largest epoch in the leader's log that is not above the asked one.
    pub epoch: Epoch,
    /// Where that epoch ends in the leader's log.
    pub end_offset: Offset,
}

/// Answers a [`FetchRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FetchResponse {
    /// Outcome.
    pub error: ErrorCode,
    /// Leader known to the receiver.
    pub leader_id: Option<NodeId>,
    /// Epoch of the receiver.
    pub leader_epoch: Epoch,
    /// Base URL where that leader listens, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_endpoint: Option<String>,
    /// The leader's high watermark, once it is known in this epoch.
    pub high_watermark: Option<Offset>,
    /// First offset of the leader's log.
    pub log_start_offset: Offset,
    /// Set when the sender must truncate before it fetches again.
    pub diverging_epoch: Option<DivergingEpoch>,
    /// Set when the sender must fetch this snapshot before it fetches records again.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_id: Option<SnapshotId>,
    /// See [`FetchRequest::read_round`].
    pub read_round: u64,
    /// The records, as whole batches. They travel after the JSON part, as bytes.
    #[serde(skip)]
    pub batches: Vec<Batch>,
}

/// Asks for a piece of a snapshot (KIP-630).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FetchSnapshotRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
    /// The sender.
    pub replica: ReplicaKey,
    /// Epoch of the sender.
    pub current_leader_epoch: Epoch,
    /// Which snapshot.
    pub snapshot_id: SnapshotId,
    /// How many bytes of it the sender has.
    pub position_bytes: u64,
    /// How many bytes to return at most.
    pub max_bytes: u64,
}

/// Answers a [`FetchSnapshotRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct FetchSnapshotResponse {
    /// Outcome.
    pub error: ErrorCode,
    /// Leader known to the receiver.
    pub leader_id: Option<NodeId>,
    /// Epoch of the receiver.
    pub leader_epoch: Epoch,
    /// Base URL where that leader listens, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_endpoint: Option<String>,
    /// Which snapshot.
    pub snapshot_id: SnapshotId,
    /// Length of the whole snapshot.
    pub size_bytes: u64,
    /// Where in it the returned bytes begin.
    pub position_bytes: u64,
    /// A piece of the snapshot, cut anywhere. Travels after the JSON part, as bytes.
    #[serde(skip)]
    pub bytes: Vec<u8>,
}

/// Asks the leader what it knows of all replicas (KIP-595).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DescribeQuorumRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
}

/// A replica as the leader knows it.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ReplicaState {
    /// Which replica.
    #[serde(flatten)]
    pub key: ReplicaKey,
    /// Base URL where it listens, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
    /// End of its log at its latest fetch; `None` if it never fetched.
    pub log_end_offset: Option<Offset>,
    /// How long ago it last fetched, in milliseconds.
    pub since_last_fetch_ms: Option<u64>,
    /// How long ago it last had everything the leader had, in milliseconds.
    pub since_last_caught_up_ms: Option<u64>,
}

/// Answers a [`DescribeQuorumRequest`]. Clocks differ between nodes, so times are given as ages.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct DescribeQuorumResponse {
    /// Outcome.
    pub error: ErrorCode,
    /// Leader known to the receiver.
    pub leader_id: Option<NodeId>,
    /// Epoch of the receiver.
    pub leader_epoch: Epoch,
    /// Base URL where that leader listens, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_endpoint: Option<String>,
    /// The leader's high watermark, once it is known in this epoch.
    pub high_watermark: Option<Offset>,
    /// The voters in force, ascending by id, the leader among them if it is one.
    pub current_voters: Vec<ReplicaState>,
    /// All others that fetch, ascending by id.
    pub observers: Vec<ReplicaState>,
}

/// Asks the leader to make an observer a voter (KIP-853).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct AddRaftVoterRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
    /// How long to try, in milliseconds.
    pub timeout_ms: u64,
    /// The new voter, with its directory id.
    pub voter: ReplicaKey,
    /// Base URL where it listens.
    pub endpoint: String,
    /// Whether to answer once the change is committed, instead of once it is in force.
    pub ack_when_committed: bool,
}

/// Asks the leader to remove a voter (KIP-853).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct RemoveRaftVoterRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
    /// The voter, with its directory id.
    pub voter: ReplicaKey,
}

/// Tells the leader where a voter listens now and what it supports (KIP-853).
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct UpdateRaftVoterRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
    /// Epoch of the sender.
    pub current_leader_epoch: Epoch,
    /// The voter, which is the sender.
    pub voter: ReplicaKey,
    /// Base URL where it listens.
    pub endpoint: String,
    /// Protocol versions it supports.
    pub versions: VersionRange,
}

/// Asks the leader for another `kraft.version`: 1 puts configured voters into the log (KIP-853). What Kafka's
/// UpdateFeatures says of this one feature.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize, Hash)]
pub struct UpdateFeaturesRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
    /// How long to wait until it is committed, in milliseconds.
    pub timeout_ms: u64,
    /// The version wanted.
    pub kraft_version: u16,
    /// Whether only to say if it could be done.
    #[serde(default)]
    pub dry_run: bool,
}

/// Answers requests that change the voters.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct VoterChangeResponse {
    /// Outcome.
    pub error: ErrorCode,
    /// Why, for people; empty without an error.
    pub message: String,
    /// Leader known to the receiver.
    pub leader_id: Option<NodeId>,
    /// Epoch of the receiver.
    pub leader_epoch: Epoch,
    /// Base URL where that leader listens, where known.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub leader_endpoint: Option<String>,
}

/// Asks a replica who it is and what it supports, before it is made a voter.
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ApiVersionsRequest {
    /// Cluster of the sender.
    #[serde(default, deserialize_with = "absent_as_empty")]
    pub cluster_id: String,
}

/// Answers an [`ApiVersionsRequest`].
#[derive(Debug, Clone, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct ApiVersionsResponse {
    /// Outcome.
    pub error: ErrorCode,
    /// The receiver.
    pub replica: ReplicaKey,
    /// Protocol versions it supports.
    pub versions: VersionRange,
}

/// Any request to a replica.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Request {
    /// See [`VoteRequest`].
    Vote(VoteRequest),
    /// See [`BeginQuorumEpochRequest`].
    BeginQuorumEpoch(BeginQuorumEpochRequest),
    /// See [`EndQuorumEpochRequest`].
    EndQuorumEpoch(EndQuorumEpochRequest),
    /// See [`FetchRequest`].
    Fetch(FetchRequest),
    /// See [`FetchSnapshotRequest`].
    FetchSnapshot(FetchSnapshotRequest),
    /// See [`DescribeQuorumRequest`].
    DescribeQuorum(DescribeQuorumRequest),
    /// See [`AddRaftVoterRequest`].
    AddRaftVoter(AddRaftVoterRequest),
    /// See [`RemoveRaftVoterRequest`].
    RemoveRaftVoter(RemoveRaftVoterRequest),
    /// See [`UpdateRaftVoterRequest`].
    UpdateRaftVoter(UpdateRaftVoterRequest),
    /// See [`UpdateFeaturesRequest`].
    UpdateFeatures(UpdateFeaturesRequest),
    /// See [`ApiVersionsRequest`].
    ApiVersions(ApiVersionsRequest),
}

impl Request {
    /// Cluster of the sender.
    pub fn cluster_id(&self) -> &str {
        match self {
            Self::Vote(request) => &request.cluster_id,
            Self::BeginQuorumEpoch(request) => &request.cluster_id,
            Self::EndQuorumEpoch(request) => &request.cluster_id,
            Self::Fetch(request) => &request.cluster_id,
            Self::FetchSnapshot(request) => &request.cluster_id,
            Self::DescribeQuorum(request) => &request.cluster_id,
            Self::AddRaftVoter(request) => &request.cluster_id,
            Self::RemoveRaftVoter(request) => &request.cluster_id,
            Self::UpdateRaftVoter(request) => &request.cluster_id,
            Self::UpdateFeatures(request) => &request.cluster_id,
            Self::ApiVersions(request) => &request.cluster_id,
        }
    }

    /// Whether it is asked in the name of another cluster than this one, whose nodes may have the same ids. An absent
    /// name is accepted, as in Kafka (KAFKA-12440).
    pub fn is_for_another_cluster(&self, cluster_id: &str) -> bool {
        !self.cluster_id().is_empty() && self.cluster_id() != cluster_id
    }
}

/// Any answer of a replica.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub enum Response {
    /// Answers a vote.
    Vote(VoteResponse),
    /// Answers the beginning of an epoch.
    BeginQuorumEpoch(QuorumEpochResponse),
    /// Answers the end of an epoch.
    EndQuorumEpoch(QuorumEpochResponse),
    /// Answers a fetch.
    Fetch(FetchResponse),
    /// Answers a fetch of a snapshot.
    FetchSnapshot(FetchSnapshotResponse),
    /// Describes the quorum.
    DescribeQuorum(DescribeQuorumResponse),
    /// Answers the addition of a voter.
    AddRaftVoter(VoterChangeResponse),
    /// Answers the removal of a voter.
    RemoveRaftVoter(VoterChangeResponse),
    /// Answers the update of a voter.
    UpdateRaftVoter(VoterChangeResponse),
    /// Answers a request for another version.
    UpdateFeatures(VoterChangeResponse),
    /// Says who answers, and what it supports.
    ApiVersions(ApiVersionsResponse),
}

impl Response {
    /// Outcome of the request.
    pub fn error(&self) -> ErrorCode {
        match self {
            Self::Vote(response) => response.error,
            Self::BeginQuorumEpoch(response) | Self::EndQuorumEpoch(response) => response.error,
            Self::Fetch(response) => response.error,
            Self::FetchSnapshot(response) => response.error,
            Self::DescribeQuorum(response) => response.error,
            Self::AddRaftVoter(response)
            | Self::RemoveRaftVoter(response)
            | Self::UpdateRaftVoter(response)
            | Self::UpdateFeatures(response) => response.error,
            Self::ApiVersions(response) => response.error,
        }
    }
}
