//! Owns what is under way between members, and how it is called.
//! Never knows what a message does to its receiver.

use std::hash::{DefaultHasher, Hash, Hasher};
use std::sync::Arc;

use node::ids::{Epoch, NodeId, Offset};
use node::message::{ErrorCode, FetchResponse, Request, Response};

/// What a message is.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) enum Body {
    Request(Box<Request>),
    Response(Box<Response>),
    /// The connection broke while the answer was waited for.
    Failed,
}

/// A message between two members, by their numbers from 0.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Message {
    pub(super) from: usize,
    pub(super) to: usize,
    pub(super) body: Body,
    digest: u64,
}

impl Message {
    pub(super) fn new(from: usize, to: usize, body: Body) -> Self {
        let mut hasher = DefaultHasher::new();
        (from, to, &body).hash(&mut hasher);
        let digest = hasher.finish();
        Self {
            from,
            to,
            body,
            digest,
        }
    }

    /// A number that is equal for equal messages.
    pub(super) fn digest(&self) -> u64 {
        self.digest
    }

    /// Who asked: the sender of a request, the receiver of an answer.
    pub(super) fn asker(&self) -> usize {
        match self.body {
            Body::Request(_) => self.from,
            Body::Response(_) | Body::Failed => self.to,
        }
    }
}

/// A message that is under way.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(super) struct InTransit {
    pub(super) message: Arc<Message>,
    /// Whether the one who asked still waits for the answer.
    pub(super) awaited: bool,
}

impl InTransit {
    /// A number that is equal for equal messages.
    pub(super) fn digest(&self) -> u64 {
        self.message.digest ^ u64::from(self.awaited)
    }
}

/// How member number `index` is called.
pub(super) fn name(index: usize) -> String {
    format!("n{}", index + 1)
}

/// The id of member number `index`.
pub(super) fn id_of(index: usize) -> NodeId {
    NodeId(index as i32 + 1)
}

/// The number of the member with this id.
pub(super) fn index_of(id: NodeId) -> usize {
    id.0 as usize - 1
}

/// A message in words, its way included.
pub(super) fn describe(in_transit: &InTransit) -> String {
    let InTransit { message, awaited } = in_transit;
    let (from, to) = (name(message.from), name(message.to));
    let forgotten = if *awaited { "" } else { ", no longer awaited" };
    match &message.body {
        Body::Request(request) => format!("{} {from}->{to}{forgotten}", of_request(request)),
        Body::Response(response) => format!("{} {from}->{to}{forgotten}", of_response(response)),
        Body::Failed => format!("broken connection {from}->{to}"),
    }
}

fn of_request(request: &Request) -> String {
    match request {
        Request::Vote(request) => format!(
            "{} request, epoch {}, log end {}",
            if request.pre_vote { "pre-vote" } else { "vote" },
            request.replica_epoch,
            position(request.last_offset, request.last_epoch),
        ),
        Request::BeginQuorumEpoch(request) => {
            format!("announcement of epoch {}", request.leader_epoch)
        }
        Request::EndQuorumEpoch(request) => {
            format!("resignation from epoch {}", request.leader_epoch)
        }
        Request::Fetch(request) => format!(
            "fetch, epoch {}, from {}{}",
            request.current_leader_epoch,
            position(request.fetch_offset, request.last_fetched_epoch),
            of_round(request.read_round),
        ),
        Request::FetchSnapshot(request) => format!(
            "fetch, epoch {}, of snapshot {}",
            request.current_leader_epoch, request.snapshot_id
        ),
        Request::ApiVersions(_) => "question who it is".to_owned(),
        other => format!("{other:?}"),
    }
}

fn position(offset: Offset, epoch: Epoch) -> String {
    format!("{offset} (epoch {epoch})")
}

fn of_response(response: &Response) -> String {
    match response {
        Response::Vote(response) => {
            let granted = if response.vote_granted { "yes" } else { "no" };
            let error = of_error(response.error);
            format!(
                "answer {granted} to a vote, epoch {}{error}",
                response.leader_epoch
            )
        }
        Response::BeginQuorumEpoch(response) => format!(
            "answer to an announcement, epoch {}{}",
            response.leader_epoch,
            of_error(response.error)
        ),
        Response::EndQuorumEpoch(response) => format!(
            "answer to a resignation, epoch {}{}",
            response.leader_epoch,
            of_error(response.error)
        ),
        Response::Fetch(response) => of_fetched(response),
        Response::FetchSnapshot(response) => format!(
            "fetched, epoch {}, snapshot {}{}",
            response.leader_epoch,
            response.snapshot_id,
            of_error(response.error)
        ),
        Response::ApiVersions(response) => format!("answer that it is {}", response.replica),
        other => format!("{other:?}"),
    }
}

fn of_fetched(response: &FetchResponse) -> String {
    let mut text = format!("fetched, epoch {}", response.leader_epoch);
    if let (Some(first), Some(last)) = (response.batches.first(), response.batches.last()) {
        text += &format!(
            ", records {} to {}",
            first.base_offset(),
            last.last_offset()
        );
    }
    if let Some(diverging) = response.diverging_epoch {
        text += &format!(
            ", log differs after {}",
            position(diverging.end_offset, diverging.epoch)
        );
    }
    if let Some(id) = response.snapshot_id {
        text += &format!(", needs snapshot {id}");
    }
    if let Some(high_watermark) = response.high_watermark {
        text += &format!(", high watermark {high_watermark}");
    }
    text + &of_round(response.read_round) + &of_error(response.error)
}

/// How far reads were heard of, if there were any.
fn of_round(read_round: u64) -> String {
    match read_round {
        0 => String::new(),
        round => format!(", read round {round}"),
    }
}

fn of_error(error: ErrorCode) -> String {
    match error {
        ErrorCode::None => String::new(),
        error => format!(", {error:?}"),
    }
}
