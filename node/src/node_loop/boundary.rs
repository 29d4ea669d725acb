//! Owns the types that cross the boundary of a node's loop: arrivals, departures, errors.
//! Never holds what the loop works with.

use crate::client::{ClientReply, ClientRequest};
use crate::ids::{NodeId, Offset};
use crate::message::{Request, Response};
use crate::raft::{Correlation, PeerAnswer, Ticket};
use crate::storage::{OpenError, StorageError};
use crate::trace::Traced;

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
        request: Request,
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
        request: ClientRequest,
    },
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
        request: Request,
    },
    /// An answer to a peer.
    Reply {
        /// To whom.
        ticket: Ticket,
        /// The answer.
        response: Response,
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
}

/// The state machine at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct StateDescription {
    /// Every record below is applied.
    pub applied: Offset,
    /// Hash of the state.
    pub digest: u64,
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
    /// The disk failed, or a committed record is not a command.
    #[error(transparent)]
    Node(#[from] NodeError),
}
