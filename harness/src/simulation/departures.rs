//! Owns the way of what leaves a node: to peers over the network, to clients, and the waiting for answers.
//! Never looks at what is said, except for how long a fetch may be held.

use node::message::Request;
use node::node_loop::{Arrival, Departure};
use node::raft::{Correlation, PeerAnswer};

use super::conversation;
use super::events::{Content, Happening, Parcel};
use super::membership::answer_of;
use super::network::Passage;
use super::simulated_node::{Asker, NEVER_NS};
use super::world::SimulatedWorld;

/// How soon a node learns that a peer it asks is not one of the cluster.
const NOBODY_NS: u64 = 1_000;

impl SimulatedWorld {
    /// Something leaves a node.
    pub(super) fn depart(&mut self, node: usize, departure: Departure) {
        match departure {
            Departure::Send {
                peer,
                correlation,
                request,
                ..
            } => self.ask_peer(node, peer.0 as usize - 1, correlation, request),
            Departure::Reply { ticket, response } => {
                let (peer, incarnation, correlation) = match self.nodes[node].askers.remove(&ticket)
                {
                    Some(Asker::Peer {
                        node: peer,
                        incarnation,
                        correlation,
                    }) => (peer, incarnation, correlation),
                    Some(Asker::Nemesis { course, token }) => {
                        return self.voters_answered(course, token, answer_of(&response));
                    }
                    Some(Asker::Client { .. } | Asker::Stranger) | None => return,
                };
                let parcel = Parcel {
                    incarnation,
                    correlation,
                    content: Content::Response(response),
                };
                self.send(node, peer, parcel);
            }
            Departure::ClientReply { ticket, reply } => {
                let asker = self.nodes[node].askers.remove(&ticket);
                if let Some(Asker::Client { call }) = asker {
                    let answer = conversation::answer(&self.names[node], reply);
                    self.tell(node, call, answer);
                }
            }
        }
    }

    fn ask_peer(
        &mut self,
        node: usize,
        peer: usize,
        correlation: Correlation,
        request: Box<Request>,
    ) {
        let max_wait_ms = match &*request {
            Request::Fetch(fetch) => fetch.max_wait_ms,
            _ => 0,
        };
        let asker = &mut self.nodes[node];
        let mut expires_ns = self.now_ns + asker.patience_ns(max_wait_ms);
        let known = peer < self.names.len() && peer != node;
        if !known {
            expires_ns = self.now_ns + NOBODY_NS;
        }
        asker.waiting.insert(correlation, (peer, expires_ns));
        if expires_ns < asker.expire_at_ns {
            asker.expire_at_ns = expires_ns;
            self.queue.push(expires_ns, Happening::Expire { node });
        }
        if known {
            let parcel = Parcel {
                incarnation: asker.incarnation,
                correlation,
                content: Content::Request(request),
            };
            self.send(node, peer, parcel);
        }
    }

    /// Puts a message on the link between two nodes.
    pub(super) fn send(&mut self, from: usize, to: usize, parcel: Parcel) {
        match self.network.send(from, to) {
            Passage::Arrives { after_ns, .. } if self.link_faults.is_shaped(from, to) => {
                self.send_shaped((from, to), parcel, after_ns);
            }
            Passage::Arrives {
                after_ns,
                again_after_ns,
            } => {
                // Only what is asked can come twice; of answers, a node takes the first.
                if let Some(again_after_ns) = again_after_ns
                    && matches!(parcel.content, Content::Request(_))
                {
                    let parcel = parcel.clone();
                    let again = Happening::Arrive { from, to, parcel };
                    self.queue.push(self.now_ns + again_after_ns, again);
                }
                let arrive = Happening::Arrive { from, to, parcel };
                self.queue.push(self.now_ns + after_ns, arrive);
            }
            Passage::Lost => {}
            Passage::Broken { after_ns } => {
                // Whoever asked learns it, wherever the message was going.
                let asked_by_sender = matches!(parcel.content, Content::Request(_));
                let (from, to) = if asked_by_sender {
                    (to, from)
                } else {
                    (from, to)
                };
                let parcel = Parcel {
                    content: Content::Failed,
                    ..parcel
                };
                let arrive = Happening::Arrive { from, to, parcel };
                self.queue.push(self.now_ns + after_ns, arrive);
            }
        }
    }

    /// Ends the waiting for answers that take too long.
    pub(super) fn expire(&mut self, node: usize) {
        let now_ns = self.now_ns;
        let asker = &mut self.nodes[node];
        if asker.expire_at_ns != now_ns {
            return;
        }
        asker.expire_at_ns = NEVER_NS;
        let expired: Vec<(Correlation, usize)> = asker
            .waiting
            .iter()
            .filter(|(_, (_, expires_ns))| *expires_ns <= now_ns)
            .map(|(correlation, (peer, _))| (*correlation, *peer))
            .collect();
        for (correlation, peer) in expired {
            self.nodes[node].waiting.remove(&correlation);
            let arrival = Arrival::PeerAnswer {
                peer: node::ids::NodeId(peer as i32 + 1),
                correlation,
                answer: PeerAnswer::Failed,
            };
            self.deliver(node, arrival);
        }
        let asker = &mut self.nodes[node];
        let next_ns = asker.waiting.values().map(|(_, expires_ns)| *expires_ns);
        if let Some(next_ns) = next_ns.min()
            && next_ns < asker.expire_at_ns
        {
            asker.expire_at_ns = next_ns;
            self.queue.push(next_ns, Happening::Expire { node });
        }
    }
}
