//! Owns the kinds of events of a simulation, and what of each goes into the digest.
//! Never carries one out.

use node::client::ClientRequest;
use node::message::{Request, Response};
use node::raft::Correlation;

use super::digest::Digest;
use crate::world::Answer;

/// What a message that carries no records is taken to weigh, in bytes.
const ENVELOPE_BYTES: u64 = 200;

/// An event to come.
#[derive(Debug)]
pub(super) enum Happening {
    /// A message comes to the end of the link between two nodes.
    Arrive {
        from: usize,
        to: usize,
        parcel: Parcel,
    },
    /// A message comes to the end of a link that a fault shaped when it was sent.
    ArriveLate { from: usize, to: usize, number: u64 },
    /// A client's request reaches a node.
    Ask {
        call: u64,
        node: usize,
        request: Box<ClientRequest>,
    },
    /// A change of the voters goes on, or stops waiting for the answer to a request.
    GoOnWithCourse {
        course: u64,
        token: Option<nemesis::membership::Token>,
    },
    /// Forced snapshots may have come.
    LookAtSnapshots,
    /// An answer reaches a client.
    Tell { call: u64, answer: Box<Answer> },
    /// A client stops waiting.
    GiveUp { call: u64 },
    /// A node's timer is due, or its processor is free again.
    Wake { node: usize },
    /// Something that a node has finished leaves it.
    Release { node: usize },
    /// Requests of a node to its peers may have waited too long.
    Expire { node: usize },
    /// A node has come up and recovers.
    Start { node: usize },
    /// A slowed node is stopped, or goes on.
    Duty { fault: u64 },
    /// Clocks are compared.
    SampleClocks,
    /// Clocks that go back and forth jump.
    Strobe { fault: u64 },
    /// A fault has waited long enough for a node.
    LookAtFaults,
}

/// A message between nodes. It belongs to one exchange of the node that asked.
#[derive(Debug, Clone)]
pub(super) struct Parcel {
    /// Which life of the asker.
    pub(super) incarnation: u32,
    /// Which of its requests.
    pub(super) correlation: Correlation,
    pub(super) content: Content,
}

#[derive(Debug, Clone)]
pub(super) enum Content {
    Request(Box<Request>),
    Response(Box<Response>),
    /// There will be no answer: nobody listens there, or the connection broke.
    Failed,
}

impl Parcel {
    /// Size on the wire, approximately.
    pub(super) fn size_bytes(&self) -> u64 {
        let Content::Response(response) = &self.content else {
            return ENVELOPE_BYTES;
        };
        let content_bytes = match &**response {
            Response::Fetch(response) => {
                let batches = response.batches.iter();
                batches.map(|batch| batch.bytes().len() as u64).sum()
            }
            Response::FetchSnapshot(response) => response.bytes.len() as u64,
            _ => 0,
        };
        ENVELOPE_BYTES + content_bytes
    }

    /// Adds what the message says to the digest.
    pub(super) fn describe(&self, digest: &mut Digest) {
        digest.add(u64::from(self.incarnation) << 32 ^ self.correlation.0);
        let (kind, epoch, detail) = match &self.content {
            Content::Failed => (0, 0, 0),
            Content::Request(request) => describe_request(request, digest),
            Content::Response(response) => describe_response(response, digest),
        };
        digest.add(kind << 32 | u64::from(epoch as u32));
        digest.add(detail as u64);
    }
}

/// Kind, epoch and a detail of the request. Rare kinds are told in full.
fn describe_request(request: &Request, digest: &mut Digest) -> (u64, i32, i64) {
    match request {
        Request::Vote(vote) => (
            1 + u64::from(vote.pre_vote),
            vote.replica_epoch.0,
            vote.last_offset.0,
        ),
        Request::BeginQuorumEpoch(begin) => (3, begin.leader_epoch.0, 0),
        Request::EndQuorumEpoch(end) => (4, end.leader_epoch.0, 0),
        Request::Fetch(fetch) => (5, fetch.current_leader_epoch.0, fetch.fetch_offset.0),
        rare => {
            digest.add_text(&format!("{rare:?}"));
            (10, 0, 0)
        }
    }
}

/// Kind, epoch and a detail of the response. Rare kinds are told in full.
fn describe_response(response: &Response, digest: &mut Digest) -> (u64, i32, i64) {
    match response {
        Response::Vote(vote) => (6, vote.leader_epoch.0, i64::from(vote.vote_granted)),
        Response::BeginQuorumEpoch(begin) => (7, begin.leader_epoch.0, 0),
        Response::EndQuorumEpoch(end) => (8, end.leader_epoch.0, 0),
        Response::Fetch(fetch) => {
            for batch in &fetch.batches {
                digest.add(u64::from(batch.crc()));
            }
            let high_watermark = fetch.high_watermark.map_or(-1, |offset| offset.0);
            (9, fetch.leader_epoch.0, high_watermark)
        }
        rare => {
            digest.add_text(&format!("{rare:?}"));
            (11, 0, 0)
        }
    }
}
