//! Owns the types that cross the boundary of the protocol core: configuration, inputs and effects.
//! Never holds protocol state.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};

use crate::batch::Batch;
use crate::ids::{Epoch, NodeId, Offset};
use crate::message::{FetchResponse, Request, Response};
use crate::mutants::Bug;
use crate::trace::Traced;

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
    /// The cluster; requests of other clusters are refused.
    pub cluster_id: String,
    /// All voters.
    pub voters: BTreeSet<NodeId>,
    /// Protocol timers.
    pub timers: Timers,
    /// Seed of the election timeouts.
    pub random_seed: u64,
    /// The deliberate mistake that is switched on, if any.
    pub bug: Option<Bug>,
}

impl Configuration {
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

/// The durable election state: what must survive a crash besides the log.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct QuorumState {
    /// Current epoch.
    pub epoch: Epoch,
    /// Leader of that epoch, once known.
    pub leader: Option<NodeId>,
    /// Vote given in that epoch.
    pub voted_for: Option<NodeId>,
}

/// Where an epoch starts in the log.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
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
    Response(Response),
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
        request: Request,
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
/// effect becomes visible outside, and `Persist` before a later `Append` is. `ReplyFetch` may become
/// visible before appended *records* are durable (never before a `Persist` is): it promises nothing
/// about them.
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
        /// Names the request.
        correlation: Correlation,
        /// What to send.
        request: Request,
    },
    /// Answer a request of a peer.
    Reply {
        /// Whom to answer.
        ticket: Ticket,
        /// The answer.
        response: Response,
    },
    /// Answer a fetch with the batches from `from` on, read at the moment of this effect.
    ReplyFetch {
        /// Whom to answer.
        ticket: Ticket,
        /// The answer, with `batches` still empty.
        response: FetchResponse,
        /// First offset to return, on a batch boundary; `None` to return no records.
        from: Option<Offset>,
        /// Return whole batches up to this many bytes, but at least one.
        max_bytes: u64,
    },
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
