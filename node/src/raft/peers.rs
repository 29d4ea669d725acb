//! Owns the connections to other replicas: at most one request in flight each, and back-off.
//! Never looks into requests; an answer that is not to the request in flight is dropped here.

use std::hash::{Hash, Hasher};

use super::Correlation;
use super::timers::{NEVER_NS, after, is_due};
use crate::ids::{Epoch, NodeId};

/// What was asked, as far as the answer's meaning depends on it. A vote answer does not say whether
/// it answers a vote or a pre-vote, so the question must be remembered.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Asked {
    Vote { epoch: Epoch, pre_vote: bool },
    BeginQuorumEpoch,
    EndQuorumEpoch,
    Fetch,
    FetchSnapshot,
    ApiVersions,
    AddRaftVoter,
    RemoveRaftVoter,
    UpdateRaftVoter,
}

#[derive(Debug, Clone, Copy, Default, Hash)]
struct Connection {
    in_flight: Option<InFlight>,
    backoff_until_ns: Option<u64>,
}

#[derive(Debug, Clone, Copy, Hash)]
struct InFlight {
    correlation: Correlation,
    asked: Asked,
    deadline_ns: u64,
}

/// Connections to other replicas, made when they are needed: voters, the bootstrap servers, a leader
/// that is no voter, an observer that is to become one.
#[derive(Debug, Clone)]
pub(crate) struct Peers {
    /// Ascending. A peer without an entry has nothing under way. There are never many, and they come and go with
    /// every request, for which a tree would ask for memory each time.
    connections: Vec<(NodeId, Connection)>,
    next_correlation: u64,
    request_timeout_ns: u64,
    retry_backoff_ns: u64,
}

impl Peers {
    pub(crate) fn new(request_timeout_ns: u64, retry_backoff_ns: u64) -> Self {
        Self {
            connections: Vec::new(),
            next_correlation: 1,
            // A timeout of nothing would send again within the same step, for ever.
            request_timeout_ns: request_timeout_ns.max(1),
            retry_backoff_ns: retry_backoff_ns.max(1),
        }
    }

    fn find(&self, peer: NodeId) -> Result<usize, usize> {
        self.connections.binary_search_by_key(&peer, |(id, _)| *id)
    }

    fn connection(&self, peer: NodeId) -> Option<&Connection> {
        self.find(peer).ok().map(|at| &self.connections[at].1)
    }

    fn entry(&mut self, peer: NodeId) -> &mut Connection {
        let at = self.find(peer).unwrap_or_else(|at| {
            self.connections.insert(at, (peer, Connection::default()));
            at
        });
        &mut self.connections[at].1
    }

    /// Forgets requests in flight and back-off: every change of state starts afresh.
    pub(crate) fn reset(&mut self) {
        self.connections.clear();
    }

    /// Lets time pass: overdue requests have failed, finished back-off ends. Returns what failed.
    pub(crate) fn expire(&mut self, now_ns: u64) -> Vec<(NodeId, Correlation)> {
        let mut failed = Vec::new();
        for (peer, connection) in &mut self.connections {
            if connection
                .backoff_until_ns
                .is_some_and(|until| is_due(until, now_ns))
            {
                connection.backoff_until_ns = None;
            }
            let overdue = connection
                .in_flight
                .take_if(|request| is_due(request.deadline_ns, now_ns));
            if let Some(request) = overdue {
                failed.push((*peer, request.correlation));
                connection.backoff_until_ns = Some(after(now_ns, self.retry_backoff_ns));
            }
        }
        self.connections.retain(|(_, connection)| {
            connection.in_flight.is_some() || connection.backoff_until_ns.is_some()
        });
        failed
    }

    /// Whether a request may be sent to `peer` now.
    pub(crate) fn is_ready(&self, peer: NodeId) -> bool {
        self.connection(peer).is_none_or(|connection| {
            connection.in_flight.is_none() && connection.backoff_until_ns.is_none()
        })
    }

    /// Whether any request waits for its answer.
    pub(crate) fn any_in_flight(&self) -> bool {
        self.connections
            .iter()
            .any(|(_, connection)| connection.in_flight.is_some())
    }

    /// Notes a request to `peer` and names it.
    pub(crate) fn note_sent(&mut self, now_ns: u64, peer: NodeId, asked: Asked) -> Correlation {
        let correlation = Correlation(self.next_correlation);
        self.next_correlation += 1;
        let deadline_ns = after(now_ns, self.request_timeout_ns);
        let connection = self.entry(peer);
        connection.in_flight = Some(InFlight {
            correlation,
            asked,
            deadline_ns,
        });
        correlation
    }

    /// Takes the question that `correlation` names, unless it is no longer waited for.
    pub(crate) fn take_asked(&mut self, peer: NodeId, correlation: Correlation) -> Option<Asked> {
        let at = self.find(peer).ok()?;
        let in_flight = &mut self.connections[at].1.in_flight;
        in_flight
            .take_if(|request| request.correlation == correlation)
            .map(|request| request.asked)
    }

    /// Leaves `peer` alone for a while.
    pub(crate) fn back_off(&mut self, now_ns: u64, peer: NodeId) {
        let until_ns = after(now_ns, self.retry_backoff_ns);
        self.entry(peer).backoff_until_ns = Some(until_ns);
    }

    /// For explorations: gives what is in flight one number and no deadline, and forgets idle connections.
    pub(crate) fn still(&mut self, awaited: Correlation, next_correlation: u64) {
        self.connections.retain(|(_, connection)| {
            connection.in_flight.is_some() || connection.backoff_until_ns.is_some()
        });
        for (_, connection) in &mut self.connections {
            if let Some(request) = &mut connection.in_flight {
                request.correlation = awaited;
                request.deadline_ns = NEVER_NS;
            }
        }
        self.next_correlation = next_correlation;
    }

    /// For explorations: feeds what is under way.
    pub(crate) fn hash_state(&self, hasher: &mut impl Hasher) {
        self.connections.hash(hasher);
    }

    /// For explorations: the request to `peer` that is in flight.
    pub(crate) fn awaited(&self, peer: NodeId) -> Option<Correlation> {
        let request = self.connection(peer)?.in_flight?;
        Some(request.correlation)
    }

    /// For explorations: whether some peer is left alone for a while.
    pub(crate) fn is_backing_off(&self) -> bool {
        let mut connections = self.connections.iter();
        connections.any(|(_, connection)| connection.backoff_until_ns.is_some())
    }

    /// For explorations: makes the request in flight to `drawn` one to `other`.
    pub(crate) fn redraw(&mut self, drawn: NodeId, other: NodeId) {
        if let Ok(at) = self.find(drawn) {
            let (_, connection) = self.connections.remove(at);
            *self.entry(other) = connection;
        }
    }

    /// When something here changes by itself.
    pub(crate) fn next_deadline_ns(&self) -> u64 {
        let deadline = |connection: &Connection| {
            let request = connection
                .in_flight
                .map_or(NEVER_NS, |request| request.deadline_ns);
            request.min(connection.backoff_until_ns.unwrap_or(NEVER_NS))
        };
        self.connections
            .iter()
            .map(|(_, connection)| deadline(connection))
            .min()
            .unwrap_or(NEVER_NS)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    const PEER: NodeId = NodeId(2);

    fn peers() -> Peers {
        Peers::new(100, 10)
    }

    #[test]
    fn only_the_answer_to_the_request_in_flight_is_taken() {
        let mut peers = peers();
        let first = peers.note_sent(0, PEER, Asked::Fetch);
        assert!(!peers.is_ready(PEER) && peers.is_ready(NodeId(3)));
        peers.reset();
        let pre_vote = Asked::Vote {
            epoch: Epoch(1),
            pre_vote: true,
        };
        let second = peers.note_sent(0, PEER, pre_vote);
        assert_eq!(peers.take_asked(PEER, first), None);
        assert_eq!(peers.take_asked(NodeId(3), second), None);
        assert_eq!(peers.take_asked(PEER, second), Some(pre_vote));
        assert_eq!(peers.take_asked(PEER, second), None);
    }

    #[test]
    fn an_overdue_request_fails_and_its_peer_is_left_alone_for_a_while() {
        let mut peers = peers();
        let late = peers.note_sent(0, PEER, Asked::Fetch);
        assert_eq!(peers.expire(99), []);
        assert_eq!(peers.next_deadline_ns(), 100);
        assert_eq!(peers.expire(100), [(PEER, late)]);
        assert_eq!(peers.take_asked(PEER, late), None);
        assert!(!peers.is_ready(PEER));
        assert_eq!(peers.next_deadline_ns(), 110);
        peers.expire(110);
        assert!(peers.is_ready(PEER));
        assert_eq!(peers.next_deadline_ns(), NEVER_NS);
    }

    #[test]
    fn a_connection_exists_only_while_something_is_under_way() {
        let mut peers = peers();
        assert!(peers.is_ready(NodeId(9)) && !peers.any_in_flight());
        peers.back_off(0, NodeId(9));
        assert!(!peers.is_ready(NodeId(9)));
        peers.expire(10);
        assert!(peers.is_ready(NodeId(9)) && peers.connections.is_empty());
    }
}
