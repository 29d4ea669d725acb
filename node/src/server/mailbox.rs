//! Owns what reaches a node's loop from the process around it: messages, questions, and their way there.
//! Never waits for an answer on behalf of the loop, and never interprets a message.

use std::sync::Arc;
use std::sync::atomic::{AtomicU64, Ordering};
use std::time::Instant;

use tokio::sync::mpsc::{self, UnboundedReceiver, UnboundedSender};
use tokio::sync::oneshot;

use crate::client::ClientRequest;
use crate::ids::{Epoch, NodeId};
use crate::node_loop::{Arrival, DiskDescription, LoaderDescription, StateDescription};
use crate::raft::{QuorumDescription, Ticket};

use super::admission::Seat;
use super::clock::ClockState;
use super::metrics::{Counted, LastApplied};

/// Something that the task is told or asked.
#[derive(Debug)]
pub(crate) enum Message {
    /// For the node.
    Arrival(Arrival),
    /// A client asks.
    Client {
        /// Where to answer.
        ticket: Ticket,
        /// What is asked.
        request: ClientRequest,
        /// Taken for as long as this message waits.
        seat: Seat,
        /// When that began.
        sent_at: Instant,
    },
    /// Bend the clock.
    SetClock {
        /// Offset from true time.
        offset_ms: i64,
        /// Rate, 1 being true.
        rate: f64,
        /// What came of it.
        reply: oneshot::Sender<Result<ClockState, String>>,
    },
    /// Describe the node.
    Describe {
        /// The description.
        reply: oneshot::Sender<Snapshot>,
    },
}

/// A node at one moment.
#[derive(Debug)]
pub(crate) struct Snapshot {
    pub(crate) quorum: QuorumDescription,
    pub(crate) state: StateDescription,
    pub(crate) disk: DiskDescription,
    pub(crate) loader: LoaderDescription,
    pub(crate) counted: Counted,
    pub(crate) last_applied: LastApplied,
    pub(crate) clock: ClockState,
    /// Where clients get on.
    pub(crate) serving_leader: Option<NodeId>,
    /// It was told to stop.
    pub(crate) is_stopping: bool,
}

/// The task has stopped; what was sent was not received.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stopped;

/// Where to send messages for the task.
#[derive(Debug, Clone)]
pub(crate) struct Mailbox(UnboundedSender<Message>);

/// The end of a mailbox that the driver reads.
pub(crate) type Inbox = UnboundedReceiver<Message>;

impl Mailbox {
    /// A mailbox, and the end that the driver reads.
    pub(crate) fn new() -> (Self, Inbox) {
        let (sender, receiver) = mpsc::unbounded_channel();
        (Self(sender), receiver)
    }

    pub(crate) fn send(&self, message: Message) -> Result<(), Stopped> {
        self.0.send(message).map_err(|_| Stopped)
    }

    /// Asks the task for a description; `None` when it has stopped.
    pub(crate) async fn describe(&self) -> Option<Snapshot> {
        let (reply, receiver) = oneshot::channel();
        self.send(Message::Describe { reply }).ok()?;
        receiver.await.ok()
    }

    /// Bends the clock; `None` when the task has stopped.
    pub(crate) async fn set_clock(
        &self,
        offset_ms: i64,
        rate: f64,
    ) -> Option<Result<ClockState, String>> {
        let (reply, receiver) = oneshot::channel();
        self.send(Message::SetClock {
            offset_ms,
            rate,
            reply,
        })
        .ok()?;
        receiver.await.ok()
    }
}

/// Leader that clients are sent to, and epoch, as of the last time the loop ran, both from one look.
#[derive(Debug, Clone, Default)]
pub(crate) struct View(Arc<AtomicU64>);

impl View {
    pub(super) fn publish(&self, leader: Option<NodeId>, epoch: Epoch) {
        // Ids are not negative, so the unsigned successor leaves 0 for "unknown".
        let leader = leader.map_or(0, |leader| leader.0 as u32 + 1);
        self.0.store(
            u64::from(leader) << 32 | u64::from(epoch.0 as u32),
            Ordering::Release,
        );
    }

    pub(crate) fn look(&self) -> (Option<NodeId>, Epoch) {
        let packed = self.0.load(Ordering::Acquire);
        let leader = ((packed >> 32) as u32)
            .checked_sub(1)
            .map(|id| NodeId(id as i32));
        (leader, Epoch(packed as u32 as i32))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_view_keeps_leader_and_epoch_together() {
        let view = View::default();
        assert_eq!(view.look(), (None, Epoch(0)));
        for (leader, epoch) in [
            (Some(NodeId(0)), 7),
            (Some(NodeId(i32::MAX)), i32::MAX),
            (None, 8),
            (None, 0),
        ] {
            view.publish(leader, Epoch(epoch));
            assert_eq!(view.look(), (leader, Epoch(epoch)));
        }
    }
}
