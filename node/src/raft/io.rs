//! Owns the types that cross the boundary of the protocol core: configuration, inputs and effects.
//! Never holds protocol state.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::control_record::ControlRecord;
use crate::ids::{DirectoryId, Epoch, NodeId, Offset, ReplicaKey, SnapshotId};
use crate::message::{FetchResponse, FetchSnapshotResponse, Request, Response};
use crate::mutants::Bug;
use crate::trace::Traced;
use crate::voters::VoterSet;

/// State of a replica (KIP-595, KIP-996). Whether it is a voter is a separate matter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Role {
    /// Knows no leader it can follow.
    Unattached,
    /// Asks whether an election could succeed.
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

/// What a replica is started with.
#[derive(Debug, Clone)]
pub struct Configuration {
    /// This replica.
    pub id: NodeId,
    /// Its data directory.
    pub directory_id: Option<DirectoryId>,
    /// The cluster; requests of other clusters are refused.
    pub cluster_id: String,
    /// Voters that are configured and cannot change (kraft.version 0). Empty where the voters are
    /// in the log, or still have to be learned from it (kraft.version 1, KIP-853).
    pub voters: VoterSet,
    /// Replicas besides the voters that may be asked who leads (Kafka's bootstrap servers).
    pub bootstrap: BTreeSet<NodeId>,
    /// Base URL where this replica listens, as voters in the log announce it.
    pub endpoint: Option<String>,
    /// Whether an observer may become a voter later, and therefore makes its log durable before it
    /// acknowledges it (KAFKA-17332).
    pub can_become_voter: bool,
    /// Whether an observer asks by itself to become a voter (`controller.quorum.auto.join.enable`).
    pub auto_join: bool,
    /// Protocol timers.
    pub timers: Timers,
    /// Seed of the election timeouts.
    pub random_seed: u64,
    /// The deliberate mistake that is switched on, if any.
    pub bug: Option<Bug>,
}

impl Configuration {
    /// A replica among voters that are configured and cannot change (kraft.version 0).
    pub fn of_static_voters(
        id: NodeId,
        cluster_id: impl Into<String>,
        voters: VoterSet,
        timers: Timers,
        random_seed: u64,
    ) -> Self {
        Self {
            id,
            directory_id: None,
            cluster_id: cluster_id.into(),
            voters,
            bootstrap: BTreeSet::new(),
            endpoint: None,
            can_become_voter: true,
            auto_join: false,
            timers,
            random_seed,
            bug: None,
        }
    }

    /// Who this replica is.
    pub fn key(&self) -> ReplicaKey {
        ReplicaKey {
            id: self.id,
            directory_id: self.directory_id,
        }
    }

    /// Whether this deliberate mistake is switched on.
    pub(crate) fn has(&self, bug: Bug) -> bool {
        self.bug == Some(bug)
    }
}

/// Protocol timers in nanoseconds. Derived ones (check quorum = 1.5 fetch timeouts, repeated
/// BeginQuorumEpoch = half a fetch timeout) are not configurable, as in Kafka.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Timers {
    /// Election timeout T; draws are from `T..2T`.
    pub election_timeout_ns: u64,
    /// How long a follower goes without a successful fetch.
    pub fetch_timeout_ns: u64,
    /// Upper bound of the staggering after a resignation.
    pub election_backoff_max_ns: u64,
    /// How long a leader may hold a fetch that has nothing to return.
    pub fetch_max_wait_ns: u64,
    /// How long to wait for a peer's answer.
    pub request_timeout_ns: u64,
    /// How long to wait after a failed request to a peer.
    pub retry_backoff_ns: u64,
}

#[cfg(test)]
impl Timers {
    /// As short as can be, for tests in which no time passes.
    pub(crate) const SHORTEST: Self = Self {
        election_timeout_ns: 1,
        fetch_timeout_ns: 1,
        election_backoff_max_ns: 1,
        fetch_max_wait_ns: 1,
        request_timeout_ns: 1,
        retry_backoff_ns: 1,
    };
}

/// The durable election state: what must survive a crash besides the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Hash)]
pub struct QuorumState {
    /// Current epoch.
    pub epoch: Epoch,
    /// Leader of that epoch, once known.
    pub leader: Option<NodeId>,
    /// Vote given in that epoch.
    pub voted_for: Option<ReplicaKey>,
}

/// Where an epoch starts in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct EpochStart {
    /// The epoch.
    pub epoch: Epoch,
    /// Offset of its first record.
    pub start_offset: Offset,
}

/// What storage found at start.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct Recovered {
    /// The quorum-state file; `None` where there is none yet.
    pub quorum_state: Option<QuorumState>,
    /// First offset of the log.
    pub log_start: Offset,
    /// End offset of the log. All of it is durable.
    pub log_end: Offset,
    /// Epochs in the log, ascending in both fields.
    pub epochs: Vec<EpochStart>,
    /// Bytes of a torn tail that were cut off.
    pub truncated_bytes: u64,
    /// All snapshots, ascending; the first one ends at `log_start` unless that is 0.
    pub snapshots: Vec<StoredSnapshot>,
    /// What the newest snapshot says of the voters. Only that of the bootstrap snapshot is not
    /// committed.
    pub snapshot_voters: Option<RecordedVoters>,
    /// The records of the log that change the voters or the protocol version, ascending.
    pub control_records: Vec<(Offset, ControlRecord)>,
}

impl Recovered {
    /// Epoch of the last record, be it in the log or in the newest snapshot; 0 where there is none.
    pub fn last_epoch(&self) -> Epoch {
        let in_log = self.epochs.last().map(|start| start.epoch);
        let in_snapshot = self.snapshots.last().map(|snapshot| snapshot.id.epoch);
        in_log.max(in_snapshot).unwrap_or_default()
    }
}

/// A snapshot that is durable here.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub struct StoredSnapshot {
    /// Its name.
    pub id: SnapshotId,
    /// Its length.
    pub size_bytes: u64,
}

/// Voters as a snapshot records them.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub struct RecordedVoters {
    /// `kraft.version` in force.
    pub kraft_version: u16,
    /// The voters.
    pub voters: VoterSet,
}

/// What a snapshot that ends at some offset must say besides the state.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotPlan {
    /// How it is named.
    pub id: SnapshotId,
    /// The voters just before its end offset; `None` under kraft.version 0.
    pub voters: Option<RecordedVoters>,
}

/// Names the sender of a request that waits for exactly one answer.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Ticket(pub u64);

/// Ties an answer of a peer to the request it answers. Never reused within a process.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub struct Correlation(pub u64);

/// What came of a request to a peer.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum PeerAnswer {
    /// The peer answered.
    Response(Box<Response>),
    /// No answer came: refused connection, broken connection, timeout.
    Failed,
}

/// Something that happens to a replica.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Input {
    /// Only time has passed.
    Tick,
    /// A peer asks; the answer goes to the ticket.
    PeerRequest {
        /// Where to answer.
        ticket: Ticket,
        /// What is asked.
        request: Box<Request>,
    },
    /// The outcome of an [`Effect::Send`].
    PeerAnswer {
        /// Whom it was sent to.
        peer: NodeId,
        /// Which request it answers.
        correlation: Correlation,
        /// The outcome.
        answer: PeerAnswer,
    },
    /// Commands to append, all in one batch as long as they fit. Never empty; each must fit into a
    /// batch of its own.
    Propose {
        /// Wall-clock time for the batch header; informational only.
        timestamp_ms: i64,
        /// Commands with the tickets of those who wait for them.
        commands: Vec<(Ticket, Vec<u8>)>,
    },
    /// Clients want to read. All tickets are answered together after one round.
    Read {
        /// Who waits.
        tickets: Vec<Ticket>,
    },
    /// Everything below `log_end` is durable. Follows every appending step.
    Flushed {
        /// Log end offset.
        log_end: Offset,
    },
    /// The snapshot of [`Effect::InstallSnapshot`] is durable, the log is empty and starts at its end.
    SnapshotInstalled {
        /// The snapshot.
        snapshot: StoredSnapshot,
        /// What it says of the voters.
        voters: Option<RecordedVoters>,
        /// Hash of the state in it.
        digest: u64,
    },
    /// What was downloaded is not the snapshot that [`Effect::InstallSnapshot`] names, and is gone.
    SnapshotRefused {
        /// The snapshot.
        id: SnapshotId,
    },
    /// A snapshot of the state machine is durable. It was made by a [`SnapshotPlan`].
    SnapshotFrozen {
        /// The snapshot.
        snapshot: StoredSnapshot,
        /// Hash of the state in it.
        digest: u64,
    },
    /// The log below was deleted, and with it all snapshots that end below. A snapshot ends here.
    /// What is still deleted later is not the core's concern: nothing below is read any more.
    LogStartAdvanced {
        /// First offset of the log.
        log_start: Offset,
    },
    /// The process is about to stop: a leader resigns, all others stand down.
    Shutdown,
}

/// Why a client's request was certainly not carried out.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Refusal {
    /// This replica does not lead (any more); nothing was appended for the request.
    NotLeader,
    /// It leads, but takes no new work.
    ShuttingDown,
}

/// A refused proposal or read, with what the client may try instead.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct ProposalRefusal {
    /// Why.
    pub reason: Refusal,
    /// Who leads, as far as this replica knows.
    pub leader: Option<NodeId>,
    /// In which epoch.
    pub epoch: Epoch,
}

/// Something that a replica wants done. Effects are carried out in the order given.
///
/// `Persist`, `Append` and `Truncate` must be durable before any later `Send`, `Reply` or client
/// effect becomes visible outside, and `Persist` before a later `Append` is. `ReplyFetch` and
/// `ReplyFetchSnapshot` may become visible before appended *records* are durable (never before a
/// `Persist` is): they promise nothing about them. What was downloaded of a snapshot need not be
/// durable before `InstallSnapshot`.
///
/// Messages are boxed here and wherever they pass on their way, because they are many times larger than
/// everything else that takes it, and moved often.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Effect {
    /// Replace the quorum-state file.
    Persist(QuorumState),
    /// Append to the log. The base offset is the log end offset.
    Append(Batch),
    /// Cut the log back to this end offset.
    Truncate(Offset),
    /// Send a request; its outcome must come back as [`Input::PeerAnswer`].
    Send {
        /// To whom.
        peer: NodeId,
        /// Base URL where it listens, as far as the protocol knows; what a process was configured
        /// with goes first.
        endpoint: Option<String>,
        /// Names the request.
        correlation: Correlation,
        /// What to send.
        request: Box<Request>,
    },
    /// Answer a request of a peer.
    Reply {
        /// Whom to answer.
        ticket: Ticket,
        /// The answer.
        response: Box<Response>,
    },
    /// Answer a fetch with the batches from `from` on, read at the moment of this effect.
    ReplyFetch {
        /// Whom to answer.
        ticket: Ticket,
        /// The answer, with `batches` still empty.
        response: Box<FetchResponse>,
        /// First offset to return, on a batch boundary; `None` to return no records.
        from: Option<Offset>,
        /// Return whole batches up to this many bytes, but at least one.
        max_bytes: u64,
    },
    /// Answer a fetch of a snapshot with its bytes from the response's position on.
    ReplyFetchSnapshot {
        /// Whom to answer.
        ticket: Ticket,
        /// The answer, with `bytes` still empty.
        response: Box<FetchSnapshotResponse>,
        /// How many bytes to return at most.
        max_bytes: u64,
    },
    /// Store a piece of a snapshot. Position 0 begins the download anew, whatever was there.
    StoreSnapshotChunk {
        /// The snapshot.
        id: SnapshotId,
        /// Where the bytes belong: right behind those stored before.
        position_bytes: u64,
        /// The bytes.
        bytes: Vec<u8>,
    },
    /// The download is complete: make it durable, let the log start anew at its end, and load it.
    /// All snapshots that end below go with the log. Must come back as [`Input::SnapshotInstalled`]
    /// or [`Input::SnapshotRefused`] before any other input; it is the last effect of its step.
    InstallSnapshot(SnapshotId),
    /// Remove what was downloaded so far.
    AbandonSnapshot(SnapshotId),
    /// The command of this ticket is in the log; its outcome is known once it is committed, and
    /// unknown if leadership ends before.
    Proposed {
        /// Who waits.
        ticket: Ticket,
        /// Where it was appended.
        offset: Offset,
    },
    /// A proposal or read was certainly not carried out.
    Refused {
        /// Who waits.
        ticket: Ticket,
        /// Why, and whom to ask.
        refusal: ProposalRefusal,
    },
    /// A read may be answered from the state machine once everything below `read_offset` is applied.
    ReadReady {
        /// Who waits.
        ticket: Ticket,
        /// High watermark taken after the read arrived.
        read_offset: Offset,
    },
    /// Everything below is committed.
    Committed {
        /// The high watermark.
        high_watermark: Offset,
    },
    /// Leadership of this epoch is over. What was proposed and is not committed has an unknown outcome.
    LeadershipLost,
    /// Report this.
    Trace(Traced),
}
