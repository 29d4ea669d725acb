//! Owns what the trace says of messages between replicas.
//! Never changes a message, or what becomes of it.

use crate::ids::{Epoch, NodeId, SnapshotId};
use crate::message::{ErrorCode, Request, Response};
use crate::raft::{Correlation, Ticket};
use crate::trace::{MessageSummary, Party, TraceEvent};

/// Whose request a ticket stands for, so that its answer can be traced. There are few at a time.
#[derive(Debug)]
pub(super) struct Askers {
    /// The cluster of the node that is asked.
    cluster_id: String,
    by_ticket: Vec<(Ticket, Asker)>,
}

#[derive(Debug)]
struct Asker {
    party: Party,
    rpc: &'static str,
    correlation: Option<u64>,
}

impl Askers {
    /// Nobody yet, of a node of this cluster.
    pub(super) fn new(cluster_id: String) -> Self {
        Self {
            cluster_id,
            by_ticket: Vec::new(),
        }
    }

    /// A request arrived; the event to report.
    pub(super) fn note(
        &mut self,
        ticket: Ticket,
        correlation: Option<Correlation>,
        request: &Request,
    ) -> TraceEvent {
        let is_foreign = request.is_for_another_cluster(&self.cluster_id);
        let from = match sender(request) {
            _ if is_foreign => Party::Stranger,
            Some(node) => Party::Replica(node),
            None => Party::Client,
        };
        let message = MessageSummary {
            correlation: correlation.map(|correlation| correlation.0),
            ..of_request(request)
        };
        let asker = Asker {
            party: from,
            rpc: message.rpc,
            correlation: message.correlation,
        };
        self.by_ticket.push((ticket, asker));
        TraceEvent::RpcReceived {
            from,
            message: Box::new(message),
        }
    }

    /// The answer leaves; the event to report.
    pub(super) fn take(&mut self, ticket: Ticket, response: &Response) -> Option<TraceEvent> {
        let mut asked = self.by_ticket.iter();
        let at = asked.position(|(asked, _)| *asked == ticket)?;
        let (_, asker) = self.by_ticket.swap_remove(at);
        let message = MessageSummary {
            rpc: asker.rpc,
            correlation: asker.correlation,
            ..of_response(response)
        };
        Some(TraceEvent::RpcSent {
            to: asker.party,
            message: Box::new(message),
        })
    }
}

/// A request leaves; the event to report.
pub(super) fn sent(peer: NodeId, correlation: Correlation, request: &Request) -> TraceEvent {
    TraceEvent::RpcSent {
        to: Party::Replica(peer),
        message: Box::new(MessageSummary {
            correlation: Some(correlation.0),
            ..of_request(request)
        }),
    }
}

/// An answer arrived; the event to report.
pub(super) fn answered(peer: NodeId, correlation: Correlation, response: &Response) -> TraceEvent {
    TraceEvent::RpcReceived {
        from: Party::Replica(peer),
        message: Box::new(MessageSummary {
            correlation: Some(correlation.0),
            ..of_response(response)
        }),
    }
}

/// The replica that sends it; tools send some kinds as well, without saying who they are.
fn sender(request: &Request) -> Option<NodeId> {
    match request {
        Request::Vote(request) => Some(request.replica.id),
        Request::BeginQuorumEpoch(request) => Some(request.leader_id),
        Request::EndQuorumEpoch(request) => Some(request.leader_id),
        Request::Fetch(request) => Some(request.replica.id),
        Request::FetchSnapshot(request) => Some(request.replica.id),
        Request::UpdateRaftVoter(request) => Some(request.voter.id),
        Request::DescribeQuorum(_)
        | Request::AddRaftVoter(_)
        | Request::RemoveRaftVoter(_)
        | Request::UpdateFeatures(_)
        | Request::ApiVersions(_) => None,
    }
}

fn of_request(request: &Request) -> MessageSummary {
    let empty = MessageSummary::default();
    match request {
        Request::Vote(request) => MessageSummary {
            rpc: if request.pre_vote { "pre-vote" } else { "vote" },
            message_epoch: Some(request.replica_epoch),
            offset: Some(request.last_offset),
            last_epoch: Some(request.last_epoch),
            ..empty
        },
        Request::BeginQuorumEpoch(request) => MessageSummary {
            rpc: "begin-quorum-epoch",
            message_epoch: Some(request.leader_epoch),
            leader: Some(Party::Replica(request.leader_id)),
            ..empty
        },
        Request::EndQuorumEpoch(request) => MessageSummary {
            rpc: "end-quorum-epoch",
            message_epoch: Some(request.leader_epoch),
            leader: Some(Party::Replica(request.leader_id)),
            ..empty
        },
        Request::Fetch(request) => MessageSummary {
            rpc: "fetch",
            message_epoch: Some(request.current_leader_epoch),
            offset: Some(request.fetch_offset),
            last_epoch: Some(request.last_fetched_epoch),
            high_watermark: request.high_watermark,
            ..empty
        },
        Request::FetchSnapshot(request) => MessageSummary {
            rpc: "fetch-snapshot",
            message_epoch: Some(request.current_leader_epoch),
            ..of_snapshot(request.snapshot_id)
        },
        Request::UpdateRaftVoter(request) => MessageSummary {
            rpc: "update-raft-voter",
            message_epoch: Some(request.current_leader_epoch),
            ..empty
        },
        Request::DescribeQuorum(_) => of_kind("describe-quorum"),
        Request::AddRaftVoter(_) => of_kind("add-raft-voter"),
        Request::RemoveRaftVoter(_) => of_kind("remove-raft-voter"),
        Request::UpdateFeatures(_) => of_kind("update-features"),
        Request::ApiVersions(_) => of_kind("api-versions"),
    }
}

fn of_kind(rpc: &'static str) -> MessageSummary {
    MessageSummary {
        rpc,
        ..MessageSummary::default()
    }
}

fn of_snapshot(id: SnapshotId) -> MessageSummary {
    MessageSummary {
        offset: Some(id.end_offset),
        last_epoch: Some(id.epoch),
        ..MessageSummary::default()
    }
}

fn of_response(response: &Response) -> MessageSummary {
    let with_leader = |rpc, leader: Option<NodeId>, epoch: Epoch| MessageSummary {
        rpc,
        is_response: true,
        message_epoch: Some(epoch),
        leader: leader.map(Party::Replica),
        error: Some(response.error()).filter(|error| *error != ErrorCode::None),
        ..MessageSummary::default()
    };
    match response {
        Response::Vote(response) => MessageSummary {
            granted: Some(response.vote_granted),
            ..with_leader("vote", response.leader_id, response.leader_epoch)
        },
        Response::BeginQuorumEpoch(response) => with_leader(
            "begin-quorum-epoch",
            response.leader_id,
            response.leader_epoch,
        ),
        Response::EndQuorumEpoch(response) => with_leader(
            "end-quorum-epoch",
            response.leader_id,
            response.leader_epoch,
        ),
        Response::Fetch(response) => {
            let snapshot = response.snapshot_id.map(of_snapshot).unwrap_or_default();
            let first = response.batches.first();
            MessageSummary {
                offset: first.map(|batch| batch.base_offset()).or(snapshot.offset),
                last_epoch: snapshot.last_epoch,
                end_offset: response.batches.last().map(|batch| batch.end_offset()),
                high_watermark: response.high_watermark,
                diverging: response
                    .diverging_epoch
                    .map(|diverging| (diverging.epoch, diverging.end_offset)),
                ..with_leader("fetch", response.leader_id, response.leader_epoch)
            }
        }
        Response::FetchSnapshot(response) => {
            let snapshot = of_snapshot(response.snapshot_id);
            MessageSummary {
                offset: snapshot.offset,
                last_epoch: snapshot.last_epoch,
                ..with_leader("fetch-snapshot", response.leader_id, response.leader_epoch)
            }
        }
        Response::DescribeQuorum(response) => {
            with_leader("describe-quorum", response.leader_id, response.leader_epoch)
        }
        Response::AddRaftVoter(response) => {
            with_leader("add-raft-voter", response.leader_id, response.leader_epoch)
        }
        Response::RemoveRaftVoter(response) => with_leader(
            "remove-raft-voter",
            response.leader_id,
            response.leader_epoch,
        ),
        Response::UpdateRaftVoter(response) => with_leader(
            "update-raft-voter",
            response.leader_id,
            response.leader_epoch,
        ),
        Response::UpdateFeatures(response) => {
            with_leader("update-features", response.leader_id, response.leader_epoch)
        }
        Response::ApiVersions(_) => MessageSummary {
            rpc: "api-versions",
            is_response: true,
            error: Some(response.error()).filter(|error| *error != ErrorCode::None),
            ..MessageSummary::default()
        },
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::batch::Batch;
    use crate::ids::Offset;
    use crate::message::{FetchRequest, FetchResponse, VoteRequest, VoteResponse};

    fn as_json(event: TraceEvent) -> String {
        serde_json::to_string(&event).unwrap()
    }

    fn fetch() -> Request {
        Request::Fetch(FetchRequest {
            cluster_id: "test".into(),
            replica: NodeId(2).into(),
            current_leader_epoch: Epoch(3),
            fetch_offset: Offset(7),
            last_fetched_epoch: Epoch(2),
            high_watermark: None,
            max_wait_ms: 0,
            max_bytes: 1,
            read_round: 0,
        })
    }

    #[test]
    fn a_request_and_its_answer_carry_the_same_number_on_both_sides() {
        let mut askers = Askers::new("test".to_owned());
        let received = askers.note(Ticket(5), Some(Correlation(9)), &fetch());
        assert_eq!(
            as_json(received),
            r#"{"event":"rpc-received","from":"n2","rpc":"fetch","is_response":false,"correlation":9,"message_epoch":3,"offset":7,"last_epoch":2}"#
        );
        let sent = sent(NodeId(1), Correlation(9), &fetch());
        assert!(as_json(sent).starts_with(
            r#"{"event":"rpc-sent","to":"n1","rpc":"fetch","is_response":false,"correlation":9,"#
        ));

        let response = Response::Fetch(FetchResponse {
            error: ErrorCode::None,
            leader_id: Some(NodeId(1)),
            leader_epoch: Epoch(3),
            leader_endpoint: None,
            high_watermark: Some(Offset(7)),
            log_start_offset: Offset(0),
            diverging_epoch: None,
            snapshot_id: None,
            read_round: 0,
            batches: vec![Batch::build(Offset(7), Epoch(3), 0, false, &["a", "b"])],
        });
        let expected = r#""rpc":"fetch","is_response":true,"correlation":9,"message_epoch":3,"leader":"n1","offset":7,"end_offset":9,"high_watermark":7}"#;
        let left = as_json(askers.take(Ticket(5), &response).unwrap());
        assert!(left.ends_with(expected), "{left}");
        let arrived = as_json(answered(NodeId(1), Correlation(9), &response));
        assert!(arrived.ends_with(expected), "{arrived}");
        assert_eq!(askers.take(Ticket(5), &response), None);
    }

    #[test]
    fn who_asks_in_the_name_of_another_cluster_is_a_stranger() {
        let mut askers = Askers::new("another".to_owned());
        let received = as_json(askers.note(Ticket(5), Some(Correlation(9)), &fetch()));
        assert!(received.contains(r#""from":"stranger""#), "{received}");
        let mut nameless = fetch();
        if let Request::Fetch(fetch) = &mut nameless {
            fetch.cluster_id.clear();
        }
        let received = as_json(askers.note(Ticket(6), None, &nameless));
        assert!(received.contains(r#""from":"n2""#), "{received}");
    }

    #[test]
    fn a_pre_vote_is_told_from_a_vote_in_both_directions() {
        let request = Request::Vote(VoteRequest {
            cluster_id: "test".into(),
            voter: NodeId(1).into(),
            replica: NodeId(2).into(),
            replica_epoch: Epoch(3),
            last_epoch: Epoch(2),
            last_offset: Offset(7),
            pre_vote: true,
        });
        let response = Response::Vote(VoteResponse {
            error: ErrorCode::FencedLeaderEpoch,
            leader_id: None,
            leader_epoch: Epoch(4),
            leader_endpoint: None,
            vote_granted: false,
        });
        let mut askers = Askers::new("test".to_owned());
        assert!(as_json(askers.note(Ticket(1), None, &request)).contains(r#""rpc":"pre-vote""#));
        assert_eq!(
            as_json(askers.take(Ticket(1), &response).unwrap()),
            r#"{"event":"rpc-sent","to":"n2","rpc":"pre-vote","is_response":true,"message_epoch":4,"granted":false,"error":"FENCED_LEADER_EPOCH"}"#
        );
    }
}
