//! Owns the way of messages from loop to loop.
//! Never lets one wait: it arrives, or the sender learns that it does not.

use node::ids::NodeId;
use node::message::Request;
use node::node_loop::{Arrival, Departure};
use node::raft::{Correlation, PeerAnswer, Ticket};

use super::Cluster;

/// Whom an answer is for.
#[derive(Debug, Clone, Copy)]
pub(super) struct Asker {
    id: NodeId,
    incarnation: u64,
    pub(super) asked: NodeId,
    correlation: Correlation,
}

pub(super) enum Message {
    Request {
        from: NodeId,
        incarnation: u64,
        to: NodeId,
        correlation: Correlation,
        request: Box<Request>,
    },
    Answer {
        asker: Asker,
        answer: PeerAnswer,
    },
}

impl Cluster {
    pub(super) fn depart(&mut self, id: NodeId, incarnation: u64, departure: Departure) {
        match departure {
            Departure::Send {
                peer,
                correlation,
                request,
                ..
            } => self.messages.push_back(Message::Request {
                from: id,
                incarnation,
                to: peer,
                correlation,
                request,
            }),
            Departure::Reply { ticket, response } => {
                if let Some(asker) = self.askers.remove(&ticket) {
                    let answer = PeerAnswer::Response(response);
                    self.messages.push_back(Message::Answer { asker, answer });
                }
            }
            Departure::ClientReply { ticket, reply } => {
                self.clients.remove(&ticket);
                let before = self.replies.insert(ticket, reply);
                assert!(before.is_none(), "two replies to one request");
            }
        }
    }

    pub(super) fn deliver(&mut self, message: Message) {
        match message {
            Message::Request {
                from,
                incarnation,
                to,
                correlation,
                request,
            } => {
                let asker = Asker {
                    id: from,
                    incarnation,
                    asked: to,
                    correlation,
                };
                let reachable = self.members.get(&to).is_some_and(|to| to.node.is_some())
                    && !self.cut.contains(&(from, to));
                if !reachable {
                    let answer = PeerAnswer::Failed;
                    return self.messages.push_back(Message::Answer { asker, answer });
                }
                self.next_ticket += 1;
                let ticket = Ticket(self.next_ticket);
                self.askers.insert(ticket, asker);
                let arrival = Arrival::PeerRequest {
                    ticket,
                    correlation: Some(correlation),
                    request,
                };
                self.process(to, vec![arrival]);
            }
            Message::Answer { asker, answer } => self.deliver_answer(asker, answer),
        }
    }

    fn deliver_answer(&mut self, asker: Asker, mut answer: PeerAnswer) {
        let member = &self.members[&asker.id];
        if member.node.is_none() || member.incarnation != asker.incarnation {
            return;
        }
        if self.cut.contains(&(asker.asked, asker.id)) {
            answer = PeerAnswer::Failed;
        }
        if let (Some(tamper), PeerAnswer::Response(response)) = (&mut self.tamper, &mut answer) {
            tamper(response);
        }
        let arrival = Arrival::PeerAnswer {
            peer: asker.asked,
            correlation: asker.correlation,
            answer,
        };
        self.process(asker.id, vec![arrival]);
    }
}
