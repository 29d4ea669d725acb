//! Owns how requests and responses of replicas become bytes and back.
//! Never sends anything; damaged bytes are an answer like any other, never a panic.
//!
//! Everything is JSON, except that the records of a fetch response, and the piece of a snapshot in a
//! fetch-snapshot response, follow its JSON part as the bytes they are stored as:
//! `length u32 (big-endian) | JSON of that length | bytes`.

use axum::http::HeaderMap;
use serde::de::DeserializeOwned;
use serde_path_to_error::{Path, Segment};

use crate::batch::Batch;
use crate::message::{FetchResponse, FetchSnapshotResponse, Request, Response};
use crate::raft::Correlation;

/// Media type of JSON bodies.
pub const JSON: &str = "application/json";
/// Media type of fetch responses.
pub const OCTETS: &str = "application/octet-stream";

/// Header in which the sender of a request names it; only traces use it.
pub const CORRELATION_HEADER: &str = "x-kraft-correlation";

/// The name of a request, if its sender gives one.
pub fn correlation(headers: &HeaderMap) -> Option<Correlation> {
    correlation_of(headers.get(CORRELATION_HEADER)?.to_str().ok()?)
}

/// The length of a body, as its header gives it: digits and nothing else (RFC 9112, 6.3).
pub(crate) fn content_length(value: &[u8]) -> Option<usize> {
    let digits = str::from_utf8(value).ok()?;
    let is_number = digits.bytes().all(|digit| digit.is_ascii_digit());
    digits.parse().ok().filter(|_| is_number)
}

/// The name of a request, as its header gives it.
pub(crate) fn correlation_of(text: &str) -> Option<Correlation> {
    text.parse().ok().map(Correlation)
}

/// Kinds of request, each with its own path.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum RequestKind {
    /// Vote and pre-vote.
    Vote,
    /// A leader announces itself.
    BeginQuorumEpoch,
    /// A leader resigns.
    EndQuorumEpoch,
    /// A replica asks for records.
    Fetch,
    /// A replica asks for a piece of a snapshot.
    FetchSnapshot,
    /// Somebody asks what the leader knows of the replicas.
    DescribeQuorum,
    /// Somebody wants a replica to become a voter.
    AddRaftVoter,
    /// Somebody wants a voter removed.
    RemoveRaftVoter,
    /// A voter says where it listens and what it supports.
    UpdateRaftVoter,
    /// Somebody wants configured voters put into the log.
    UpdateFeatures,
    /// A leader asks a replica who it is and what it supports.
    ApiVersions,
}

impl RequestKind {
    /// All kinds.
    pub const ALL: [Self; 11] = [
        Self::Vote,
        Self::BeginQuorumEpoch,
        Self::EndQuorumEpoch,
        Self::Fetch,
        Self::FetchSnapshot,
        Self::DescribeQuorum,
        Self::AddRaftVoter,
        Self::RemoveRaftVoter,
        Self::UpdateRaftVoter,
        Self::UpdateFeatures,
        Self::ApiVersions,
    ];

    /// The kind of a request.
    pub fn of(request: &Request) -> Self {
        match request {
            Request::Vote(_) => Self::Vote,
            Request::BeginQuorumEpoch(_) => Self::BeginQuorumEpoch,
            Request::EndQuorumEpoch(_) => Self::EndQuorumEpoch,
            Request::Fetch(_) => Self::Fetch,
            Request::FetchSnapshot(_) => Self::FetchSnapshot,
            Request::DescribeQuorum(_) => Self::DescribeQuorum,
            Request::AddRaftVoter(_) => Self::AddRaftVoter,
            Request::RemoveRaftVoter(_) => Self::RemoveRaftVoter,
            Request::UpdateRaftVoter(_) => Self::UpdateRaftVoter,
            Request::UpdateFeatures(_) => Self::UpdateFeatures,
            Request::ApiVersions(_) => Self::ApiVersions,
        }
    }

    /// Where it is posted to.
    pub fn path(self) -> &'static str {
        match self {
            Self::Vote => "/raft/vote",
            Self::BeginQuorumEpoch => "/raft/begin-quorum-epoch",
            Self::EndQuorumEpoch => "/raft/end-quorum-epoch",
            Self::Fetch => "/raft/fetch",
            Self::FetchSnapshot => "/raft/fetch-snapshot",
            Self::DescribeQuorum => "/raft/describe-quorum",
            Self::AddRaftVoter => "/raft/add-raft-voter",
            Self::RemoveRaftVoter => "/raft/remove-raft-voter",
            Self::UpdateRaftVoter => "/raft/update-raft-voter",
            Self::UpdateFeatures => "/raft/update-features",
            Self::ApiVersions => "/raft/api-versions",
        }
    }
}

/// Why bytes are not a request or response.
#[derive(Debug, thiserror::Error)]
pub enum WireError {
    /// The JSON part is malformed, or has fields missing or of the wrong type.
    #[error("the message is not understood: {reason}")]
    Json {
        /// Which field, where that is known, and what is wrong with it.
        reason: String,
    },
    /// A fetch response ends before its JSON part does.
    #[error("the fetch response is cut off after {0} bytes")]
    CutOff(usize),
}

/// The body of a request.
pub fn encode_request(request: &Request) -> Vec<u8> {
    match request {
        Request::Vote(request) => json(request),
        Request::BeginQuorumEpoch(request) => json(request),
        Request::EndQuorumEpoch(request) => json(request),
        Request::Fetch(request) => json(request),
        Request::FetchSnapshot(request) => json(request),
        Request::DescribeQuorum(request) => json(request),
        Request::AddRaftVoter(request) => json(request),
        Request::RemoveRaftVoter(request) => json(request),
        Request::UpdateRaftVoter(request) => json(request),
        Request::UpdateFeatures(request) => json(request),
        Request::ApiVersions(request) => json(request),
    }
}

/// Reads the body of a request.
///
/// # Errors
/// When it is not a request of that kind.
pub fn decode_request(kind: RequestKind, body: &[u8]) -> Result<Request, WireError> {
    Ok(match kind {
        RequestKind::Vote => Request::Vote(parsed(body)?),
        RequestKind::BeginQuorumEpoch => Request::BeginQuorumEpoch(parsed(body)?),
        RequestKind::EndQuorumEpoch => Request::EndQuorumEpoch(parsed(body)?),
        RequestKind::Fetch => Request::Fetch(parsed(body)?),
        RequestKind::FetchSnapshot => Request::FetchSnapshot(parsed(body)?),
        RequestKind::DescribeQuorum => Request::DescribeQuorum(parsed(body)?),
        RequestKind::AddRaftVoter => Request::AddRaftVoter(parsed(body)?),
        RequestKind::RemoveRaftVoter => Request::RemoveRaftVoter(parsed(body)?),
        RequestKind::UpdateRaftVoter => Request::UpdateRaftVoter(parsed(body)?),
        RequestKind::UpdateFeatures => Request::UpdateFeatures(parsed(body)?),
        RequestKind::ApiVersions => Request::ApiVersions(parsed(body)?),
    })
}

/// The body of a response, with its media type.
pub fn encode_response(response: &Response) -> (&'static str, Vec<u8>) {
    match response {
        Response::Vote(response) => (JSON, json(response)),
        Response::BeginQuorumEpoch(response) | Response::EndQuorumEpoch(response) => {
            (JSON, json(response))
        }
        Response::Fetch(response) => (OCTETS, encode_fetch(response)),
        Response::FetchSnapshot(response) => (OCTETS, with_bytes(response, &[&response.bytes])),
        Response::DescribeQuorum(response) => (JSON, json(response)),
        Response::AddRaftVoter(response)
        | Response::RemoveRaftVoter(response)
        | Response::UpdateRaftVoter(response)
        | Response::UpdateFeatures(response) => (JSON, json(response)),
        Response::ApiVersions(response) => (JSON, json(response)),
    }
}

/// Reads the body of a response. A fetch response keeps the batches before the first damaged or
/// incomplete one: they can be appended, and the next fetch asks for the rest again.
///
/// # Errors
/// When it is not a response to a request of that kind.
pub fn decode_response(kind: RequestKind, body: &[u8]) -> Result<Response, WireError> {
    Ok(match kind {
        RequestKind::Vote => Response::Vote(parsed(body)?),
        RequestKind::BeginQuorumEpoch => Response::BeginQuorumEpoch(parsed(body)?),
        RequestKind::EndQuorumEpoch => Response::EndQuorumEpoch(parsed(body)?),
        RequestKind::Fetch => Response::Fetch(decode_fetch(body)?),
        RequestKind::FetchSnapshot => {
            let (response, bytes) = parsed_with_bytes::<FetchSnapshotResponse>(body)?;
            Response::FetchSnapshot(FetchSnapshotResponse {
                bytes: bytes.to_vec(),
                ..response
            })
        }
        RequestKind::DescribeQuorum => Response::DescribeQuorum(parsed(body)?),
        RequestKind::AddRaftVoter => Response::AddRaftVoter(parsed(body)?),
        RequestKind::RemoveRaftVoter => Response::RemoveRaftVoter(parsed(body)?),
        RequestKind::UpdateRaftVoter => Response::UpdateRaftVoter(parsed(body)?),
        RequestKind::UpdateFeatures => Response::UpdateFeatures(parsed(body)?),
        RequestKind::ApiVersions => Response::ApiVersions(parsed(body)?),
    })
}

fn encode_fetch(response: &FetchResponse) -> Vec<u8> {
    let batches: Vec<&[u8]> = response.batches.iter().map(Batch::bytes).collect();
    with_bytes(response, &batches)
}

fn decode_fetch(body: &[u8]) -> Result<FetchResponse, WireError> {
    let (mut response, mut rest) = parsed_with_bytes::<FetchResponse>(body)?;
    while let Ok(batch) = Batch::parse(rest) {
        rest = &rest[batch.bytes().len()..];
        response.batches.push(batch);
    }
    Ok(response)
}

fn with_bytes(head: &impl serde::Serialize, tail: &[&[u8]]) -> Vec<u8> {
    let head = json(head);
    let tail_bytes: usize = tail.iter().map(|bytes| bytes.len()).sum();
    let mut body = Vec::with_capacity(4 + head.len() + tail_bytes);
    body.extend_from_slice(&(head.len() as u32).to_be_bytes());
    body.extend_from_slice(&head);
    for bytes in tail {
        body.extend_from_slice(bytes);
    }
    body
}

fn parsed_with_bytes<T: DeserializeOwned>(body: &[u8]) -> Result<(T, &[u8]), WireError> {
    let cut_off = || WireError::CutOff(body.len());
    let (length, rest) = body.split_first_chunk::<4>().ok_or_else(cut_off)?;
    let (head, rest) = rest
        .split_at_checked(u32::from_be_bytes(*length) as usize)
        .ok_or_else(cut_off)?;
    Ok((parsed(head)?, rest))
}

fn json(message: &impl serde::Serialize) -> Vec<u8> {
    serde_json::to_vec(message).expect("messages are structs of numbers, strings and lists")
}

fn parsed<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, WireError> {
    from_json(bytes).map_err(|reason| WireError::Json { reason })
}

/// How deep a place in JSON may be to be shown with all the ways to it. Nothing that is asked goes so deep, only
/// values do.
const MAX_SHOWN_LEVELS: usize = 8;

/// Reads JSON.
///
/// # Errors
/// For people: what is wrong, and with which field.
pub(super) fn from_json<T: DeserializeOwned>(bytes: &[u8]) -> Result<T, String> {
    serde_json::from_slice(bytes).map_err(|error| {
        // Only now, as keeping track of where one is costs time.
        let mut again = serde_json::Deserializer::from_slice(bytes);
        match serde_path_to_error::deserialize::<_, T>(&mut again) {
            Err(located) if located.path().iter().len() > MAX_SHOWN_LEVELS => format!(
                "{}, {} levels deep: {}",
                beginning(located.path()),
                located.path().iter().len(),
                located.inner()
            ),
            Err(located) => located.to_string(),
            Ok(_) => error.to_string(),
        }
    })
}

/// Where a path begins that is too long to be shown.
fn beginning(path: &Path) -> String {
    let first = path.iter().take(2).enumerate();
    first.fold(String::new(), |shown, (at, segment)| match segment {
        Segment::Seq { .. } => format!("{shown}{segment}"),
        _ if at == 0 => segment.to_string(),
        _ => format!("{shown}.{segment}"),
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, NodeId, Offset};
    use crate::message::{
        BeginQuorumEpochRequest, DivergingEpoch, EndQuorumEpochRequest, ErrorCode, FetchRequest,
        QuorumEpochResponse, VoteRequest, VoteResponse,
    };

    fn requests() -> Vec<Request> {
        let cluster_id = "a \"quoted\" cluster".to_string();
        vec![
            Request::Vote(VoteRequest {
                cluster_id: cluster_id.clone(),
                voter: NodeId(1).into(),
                replica: NodeId(2).into(),
                replica_epoch: Epoch(3),
                last_epoch: Epoch(2),
                last_offset: Offset(i64::MAX),
                pre_vote: true,
            }),
            Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
                cluster_id: cluster_id.clone(),
                voter: NodeId(1).into(),
                leader_id: NodeId(2),
                leader_epoch: Epoch(3),
                leader_endpoint: None,
            }),
            Request::EndQuorumEpoch(EndQuorumEpochRequest {
                cluster_id: cluster_id.clone(),
                leader_id: NodeId(2),
                leader_epoch: Epoch(3),
                preferred_successors: vec![NodeId(3).into(), NodeId(1).into()],
                leader_endpoint: None,
            }),
            Request::Fetch(FetchRequest {
                cluster_id,
                replica: NodeId(2).into(),
                current_leader_epoch: Epoch(3),
                fetch_offset: Offset(7),
                last_fetched_epoch: Epoch(2),
                high_watermark: None,
                max_wait_ms: 500,
                max_bytes: 1 << 20,
                read_round: u64::MAX,
            }),
        ]
    }

    fn fetch_response(batches: Vec<Batch>) -> Response {
        Response::Fetch(FetchResponse {
            error: ErrorCode::None,
            leader_id: Some(NodeId(1)),
            leader_epoch: Epoch(3),
            high_watermark: Some(Offset(5)),
            log_start_offset: Offset(0),
            diverging_epoch: Some(DivergingEpoch {
                epoch: Epoch(2),
                end_offset: Offset(4),
            }),
            read_round: 9,
            batches,
            leader_endpoint: None,
            snapshot_id: None,
        })
    }

    fn batches() -> Vec<Batch> {
        [(5, &b"one"[..]), (6, b""), (7, b"a longer record")]
            .into_iter()
            .map(|(offset, record)| Batch::build(Offset(offset), Epoch(3), 1, false, &[record]))
            .collect()
    }

    fn batches_of(response: Response) -> Vec<Batch> {
        let Response::Fetch(response) = response else {
            panic!("not a fetch: {response:?}")
        };
        response.batches
    }

    #[test]
    fn every_request_reads_back_and_only_as_its_kind() {
        for request in requests() {
            let kind = RequestKind::of(&request);
            let body = encode_request(&request);
            assert_eq!(decode_request(kind, &body).unwrap(), request);
            // These need no more than a cluster, or a cluster and a voter.
            let undemanding = [
                RequestKind::DescribeQuorum,
                RequestKind::ApiVersions,
                RequestKind::RemoveRaftVoter,
            ];
            let others = RequestKind::ALL.into_iter().filter(|other| *other != kind);
            for other in others.filter(|other| !undemanding.contains(other)) {
                // A vote request has none of the fields that the others need, and so on.
                assert!(
                    decode_request(other, &body).is_err(),
                    "{kind:?} read as {other:?}"
                );
            }
        }
    }

    #[test]
    fn every_response_reads_back() {
        let epoch_response = QuorumEpochResponse {
            error: ErrorCode::FencedLeaderEpoch,
            leader_id: None,
            leader_epoch: Epoch(3),
            leader_endpoint: None,
        };
        let vote_response = VoteResponse {
            error: ErrorCode::None,
            leader_id: None,
            leader_epoch: Epoch(3),
            vote_granted: true,
            leader_endpoint: None,
        };
        for (kind, response) in [
            (RequestKind::Vote, Response::Vote(vote_response)),
            (
                RequestKind::BeginQuorumEpoch,
                Response::BeginQuorumEpoch(epoch_response.clone()),
            ),
            (
                RequestKind::EndQuorumEpoch,
                Response::EndQuorumEpoch(epoch_response),
            ),
            (RequestKind::Fetch, fetch_response(Vec::new())),
            (RequestKind::Fetch, fetch_response(batches())),
        ] {
            let (_, body) = encode_response(&response);
            assert_eq!(decode_response(kind, &body).unwrap(), response);
        }
    }

    #[test]
    fn batches_before_a_damaged_one_are_delivered() {
        let sent = batches();
        let (_, body) = encode_response(&fetch_response(sent.clone()));
        let tail_bytes: usize = sent.iter().map(|batch| batch.bytes().len()).sum();
        let mut start = body.len() - tail_bytes;
        for (intact, batch) in sent.iter().enumerate() {
            let end = start + batch.bytes().len();
            for at in start..end {
                let mut damaged = body.clone();
                damaged[at] ^= 0x10;
                let got = batches_of(decode_response(RequestKind::Fetch, &damaged).unwrap());
                assert_eq!(got, sent[..intact], "byte {at} damaged");
            }
            start = end;
        }
    }

    #[test]
    fn a_response_cut_off_anywhere_gives_whole_batches_or_an_error() {
        let sent = batches();
        let (_, body) = encode_response(&fetch_response(sent.clone()));
        let head_bytes = 4 + u32::from_be_bytes([body[0], body[1], body[2], body[3]]) as usize;
        for length in 0..body.len() {
            match decode_response(RequestKind::Fetch, &body[..length]) {
                Err(_) => assert!(length < head_bytes, "{length} bytes"),
                Ok(response) => {
                    assert!(length >= head_bytes, "{length} bytes");
                    let got = batches_of(response);
                    assert!(
                        got.len() < sent.len() && sent.starts_with(&got),
                        "{length} bytes"
                    );
                }
            }
        }
    }

    #[test]
    fn nonsense_is_an_error() {
        let huge = [0xff_u8; 64];
        for kind in RequestKind::ALL {
            for bytes in [&b""[..], b"{}", b"null", b"{\"error\":7}", &huge] {
                // Some requests ask for nothing but the cluster id, which may be left out.
                let asks_nothing = [RequestKind::DescribeQuorum, RequestKind::ApiVersions];
                let is_enough = bytes.starts_with(b"{") && asks_nothing.contains(&kind);
                assert_eq!(decode_request(kind, bytes).is_ok(), is_enough, "{kind:?}");
                assert!(decode_response(kind, bytes).is_err());
            }
        }
    }
}
