//! Owns the types that cross the boundary of a node's loop: arrivals, departures, errors.
//! Never holds what the loop works with.

use std::collections::BTreeSet;

use crate::client::{ClientReply, ClientRequest};
use crate::ids::{DirectoryId, NodeId, Offset, SnapshotId};
use crate::machine::SnapshotRecordError;
use crate::message::{Request, Response};
use crate::mischief::MischiefOptions;
use crate::moment::{Edge, Moment};
use crate::raft::{Correlation, PeerAnswer, Ticket};
use crate::storage::{OpenError, StorageError, StorageOptions};
use crate::trace::Traced;

use super::snapshots::SnapshotOptions;

/// How a node works, besides the protocol.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct NodeOptions {
    /// Sizes that storage works with.
    pub storage: StorageOptions,
    /// When snapshots are taken, and what is kept.
    pub snapshots: SnapshotOptions,
    /// Id for a data directory that has none yet, because it is empty.
    pub new_directory_id: Option<DirectoryId>,
    /// Where the node does what is unusual, in a simulation. Only [`NodeLoop::process`] heeds it.
    ///
    /// [`NodeLoop::process`]: super::NodeLoop::process
    pub mischief: MischiefOptions,
}

/// Something that arrives at a node.
#[derive(Debug, Clone, PartialEq)]
pub enum Arrival {
    /// A peer asks.
    PeerRequest {
        /// Where to answer.
        ticket: Ticket,
        /// How the sender names the request, where it says so; for the trace.
        correlation: Option<Correlation>,
        /// What is asked.
        request: Box<Request>,
    },
    /// A peer answered, or did not.
    PeerAnswer {
        /// Which peer.
        peer: NodeId,
        /// Which request it answers.
        correlation: Correlation,
        /// The outcome.
        answer: PeerAnswer,
    },
    /// A client asks.
    Client {
        /// Where to answer.
        ticket: Ticket,
        /// What is asked.
        request: Box<ClientRequest>,
    },
    /// Somebody wants a snapshot of the state machine as soon as one may be taken.
    TakeSnapshot,
    /// The node should stop in an orderly way: a leader resigns.
    Shutdown,
}

/// Something that leaves a node. The durability it promises is already paid for.
#[derive(Debug, Clone, PartialEq)]
pub enum Departure {
    /// A request to a peer; its outcome must come back as [`Arrival::PeerAnswer`].
    Send {
        /// To whom.
        peer: NodeId,
        /// Base URL where it listens, as far as the protocol knows.
        endpoint: Option<String>,
        /// Names the request.
        correlation: Correlation,
        /// What to send.
        request: Box<Request>,
    },
    /// An answer to a peer.
    Reply {
        /// To whom.
        ticket: Ticket,
        /// The answer.
        response: Box<Response>,
    },
    /// An answer to a client.
    ClientReply {
        /// To whom.
        ticket: Ticket,
        /// The answer.
        reply: ClientReply,
    },
}

/// Where the loop hands over what leaves the node, in order.
///
/// A trace event is handed over before the departures that follow from it: if those who implement
/// this keep the order, whatever is visible outside is also in the trace.
pub trait Outbox {
    /// Something leaves.
    fn depart(&mut self, departure: Departure);
    /// Something is reported.
    fn trace(&mut self, traced: Traced);
    /// Whether messages between replicas are to be reported as well.
    fn wants_messages(&self) -> bool {
        false
    }
    /// Whether anybody wants to know of moments.
    fn wants_moments(&self) -> bool {
        false
    }
    /// Something is about to happen, or just has. The node goes on when this returns.
    fn moment(&mut self, _edge: Edge, _moment: Moment) {}
}

/// The state machine at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateDescription {
    /// Every record below is applied.
    pub applied: Offset,
    /// Hash of the state.
    pub digest: u64,
}

/// Why a snapshot is of no use.
#[derive(Debug, thiserror::Error)]
pub enum LoadError {
    /// It cannot be read.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// It is whole, but what is in it is not a state of this version.
    #[error("snapshot {id} does not hold a state of this version: {source}")]
    Content {
        /// Which snapshot.
        id: SnapshotId,
        /// What is wrong with it.
        source: SnapshotRecordError,
    },
}

/// Why a node must stop at once.
#[derive(Debug, thiserror::Error)]
pub enum NodeError {
    /// The disk failed: nobody knows what is durable.
    #[error(transparent)]
    Storage(#[from] StorageError),
    /// A committed record is not a command of this version.
    #[error("the committed record at offset {offset} is not a command: {source}")]
    Undecodable {
        /// Where it is.
        offset: Offset,
        /// What the decoder says.
        source: serde_json::Error,
    },
}

/// Why a node cannot start.
#[derive(Debug, thiserror::Error)]
pub enum StartError {
    /// The data directory cannot be opened, or must not be continued from.
    #[error(transparent)]
    Open(#[from] OpenError),
    /// The newest snapshot is of no use, and the log before it may be gone.
    #[error(transparent)]
    Load(#[from] LoadError),
    /// It was formatted to join a cluster, and knows nobody of that cluster.
    #[error(
        "it was formatted for a cluster whose voters are in the log, and this log does not name them \
         yet. Say where a node of that cluster listens: --bootstrap ID=URL"
    )]
    NobodyToAsk,
    /// It is told whom to ask for the voters, and they are configured (kraft.version 0).
    #[error(
        "it is of a cluster whose voters are configured, so --bootstrap has no place. Name its other voters with \
         --peer as before, or format another directory"
    )]
    VotersAreConfigured,
    /// It was among other configured voters before (kraft.version 0).
    #[error(
        "it was started before among the voters {}, and now among {}. Voters that are configured stay the same \
         for as long as the cluster lives: a majority of other ones need not know what was acknowledged, and it \
         could be lost. Nothing was changed. Name the same nodes with --peer as before; to change the voters, \
         put them into the log of the running cluster (kraft-node upgrade), and add and remove them there \
         (kraft-node add-controller, remove-controller)",
        names(before),
        names(now)
    )]
    OtherVoters {
        /// The voters that it knew.
        before: BTreeSet<NodeId>,
        /// The voters that it is started with.
        now: BTreeSet<NodeId>,
    },
    /// The disk failed, or a committed record is not a command.
    #[error(transparent)]
    Node(#[from] NodeError),
}

fn names(nodes: &BTreeSet<NodeId>) -> String {
    let mut names: Vec<String> = nodes.iter().map(NodeId::to_string).collect();
    match names.pop() {
        None => "nobody".to_owned(),
        Some(only) if names.is_empty() => format!("{only} alone"),
        Some(last) => format!("{} and {last}", names.join(", ")),
    }
}
