//! Owns the scenarios of the seeded bugs in the node's loop, over a disk that loses what is unsynced.
//! Never runs a schedule with the bug only: each one is also shown to go well without it.

use node::batch::Batch;
use node::client::{ClientReply, ClientRequest, RefusalCode, UnknownCode};
use node::ids::{Epoch, NodeId, Offset};
use node::message::{
    BeginQuorumEpochRequest, ErrorCode, FetchResponse, Request, Response, VoteRequest,
};
use node::mutants::Bug;
use node::node_loop::Departure;
use node::raft::Correlation;
use serde_json::{Value, json};

use crate::bench::{Bench, ME, MS, PEER, reply_to};

const OTHER: NodeId = NodeId(3);

/// What a scenario leads to without the bug, and with it.
pub(crate) fn compare<T>(bug: Bug, scenario: impl Fn(Option<Bug>) -> T) -> (T, T) {
    (scenario(None), scenario(Some(bug)))
}

/// Asks for a vote in `epoch` with a log that is long enough for any voter.
fn vote(bench: &mut Bench, candidate: NodeId, epoch: i32) -> bool {
    let departures = bench.peer(Request::Vote(VoteRequest {
        cluster_id: "test".into(),
        voter: ME.into(),
        replica: candidate.into(),
        replica_epoch: Epoch(epoch),
        last_epoch: Epoch(epoch - 1),
        last_offset: Offset(1_000),
        pre_vote: false,
    }));
    let granted = departures
        .into_iter()
        .find_map(|departure| match departure {
            Departure::Reply { response, .. } => match *response {
                Response::Vote(response) => Some(response.vote_granted),
                _ => None,
            },
            _ => None,
        });
    granted.expect("every vote request is answered at once")
}

fn write(value: impl Into<Value>) -> ClientRequest {
    ClientRequest::write("a", value)
}

fn read() -> ClientRequest {
    ClientRequest::read("a")
}

#[test]
fn a_vote_that_was_not_synced_is_given_twice() {
    let (right, wrong) = compare(Bug::VoteNoFsync, |bug| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::start(directory.path(), 3, bug);
        assert!(vote(&mut bench, PEER, 5));
        drop(bench);
        let mut bench = Bench::start(directory.path(), 3, bug);
        (bench.node.epoch(), vote(&mut bench, OTHER, 5))
    });
    assert_eq!(right, (Epoch(5), false));
    assert_eq!(wrong, (Epoch(5), true), "only the vote is lost");
}

#[test]
fn the_next_durable_change_takes_an_unsynced_vote_along() {
    let directory = tempfile::tempdir().unwrap();
    let mut bench = Bench::start(directory.path(), 3, Some(Bug::VoteNoFsync));
    assert!(vote(&mut bench, PEER, 5));
    bench.peer(Request::BeginQuorumEpoch(announcement(5)));
    drop(bench);
    let mut bench = Bench::start(directory.path(), 3, Some(Bug::VoteNoFsync));
    assert!(!vote(&mut bench, OTHER, 5));
}

fn announcement(epoch: i32) -> BeginQuorumEpochRequest {
    BeginQuorumEpochRequest {
        cluster_id: "test".into(),
        voter: ME.into(),
        leader_id: PEER,
        leader_epoch: Epoch(epoch),
        leader_endpoint: None,
    }
}

fn sent_fetch(departures: &[Departure]) -> Option<(Correlation, Offset)> {
    departures.iter().find_map(|departure| match departure {
        Departure::Send {
            peer: PEER,
            endpoint: _,
            correlation,
            request,
        } => match &**request {
            Request::Fetch(fetch) => Some((*correlation, fetch.fetch_offset)),
            _ => None,
        },
        _ => None,
    })
}

/// The follower acknowledges a record, and its power is cut well after that.
#[test]
fn an_acknowledged_record_is_gone_if_a_follower_does_not_sync() {
    let (right, wrong) = compare(Bug::FollowerNoFsync, |bug| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::start(directory.path(), 3, bug);
        // What it asked while it knew no leader is not answered any more.
        bench.process(Vec::new());
        let departures = bench.peer(Request::BeginQuorumEpoch(announcement(5)));
        let (correlation, offset) = sent_fetch(&departures).unwrap();
        assert_eq!(offset, Offset(0));
        let record = br#"{"type":"write","key":"a","value":1}"#;
        let response = FetchResponse {
            error: ErrorCode::None,
            leader_id: Some(PEER),
            leader_epoch: Epoch(5),
            high_watermark: None,
            log_start_offset: Offset(0),
            diverging_epoch: None,
            read_round: 0,
            batches: vec![Batch::build(Offset(0), Epoch(5), 0, false, &[record])],
            leader_endpoint: None,
            snapshot_id: None,
        };
        let departures = bench.answer(correlation, Response::Fetch(response));
        assert_eq!(
            sent_fetch(&departures).unwrap().1,
            Offset(1),
            "acknowledged"
        );
        bench.now_ns += 400 * MS;
        bench.process(Vec::new());
        drop(bench);
        let bench = Bench::start(directory.path(), 3, bug);
        (bench.node.epoch(), bench.node.describe().log_end)
    });
    assert_eq!(right, (Epoch(5), Offset(1)));
    assert_eq!(wrong, (Epoch(5), Offset(0)));
}

/// Answers to clients that left while what they promise was not durable.
fn early_replies(bench: &Bench) -> usize {
    let early = bench.outbox.undurable.iter();
    early
        .filter(|departure| matches!(departure, Departure::ClientReply { .. }))
        .count()
}

#[test]
fn a_single_voter_answers_before_it_synced() {
    let (right, wrong) = compare(Bug::LeaderCountsUnflushed, |bug| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::start(directory.path(), 1, bug);
        bench.process(Vec::new());
        assert_eq!(early_replies(&bench), 0);
        let (ticket, departures) = bench.send(write(1));
        let reply = reply_to(ticket, &departures);
        assert!(
            matches!(reply, Some(ClientReply::Written { .. })),
            "{reply:?}"
        );
        early_replies(&bench)
    });
    assert_eq!((right, wrong), (0, 1));
}

/// A leader comes back with a log that it has not applied yet, leads again, and is asked at once.
#[test]
fn a_read_misses_what_is_committed_but_not_applied() {
    let (right, wrong) = compare(Bug::ReadNotApplied, |bug| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::start(directory.path(), 3, bug);
        bench.lead();
        bench.fetch_all(0);
        let (ticket, _) = bench.send(write(7));
        let reply = reply_to(ticket, &bench.fetch_all(0));
        assert!(
            matches!(reply, Some(ClientReply::Written { .. })),
            "{reply:?}"
        );
        drop(bench);
        let mut bench = Bench::start(directory.path(), 3, bug);
        bench.lead();
        let (ticket, departures) = bench.send(read());
        assert_eq!(
            reply_to(ticket, &departures),
            None,
            "nothing is confirmed yet"
        );
        let Some(ClientReply::Value { value, .. }) = reply_to(ticket, &bench.fetch_all(1)) else {
            panic!("the round is confirmed")
        };
        let (ticket, _) = bench.send(read());
        let later = reply_to(ticket, &bench.fetch_all(2));
        assert!(matches!(&later, Some(ClientReply::Value { value, .. }) if *value == json!(7)));
        value
    });
    assert_eq!((right, wrong), (json!(7), Value::Null));
}

#[test]
fn a_write_that_may_yet_be_committed_is_reported_as_not_carried_out() {
    let (right, wrong) = compare(Bug::FailInsteadOfInfo, |bug| {
        let directory = tempfile::tempdir().unwrap();
        let mut bench = Bench::start(directory.path(), 3, bug);
        bench.lead();
        bench.fetch_all(0);
        let (ticket, departures) = bench.send(write(1));
        assert_eq!(reply_to(ticket, &departures), None, "it is in the log");
        let epoch = bench.node.epoch().next();
        let departures = bench.peer(Request::BeginQuorumEpoch(announcement(epoch.0)));
        reply_to(ticket, &departures).unwrap()
    });
    let ClientReply::Unknown { code, .. } = right else {
        panic!("{right:?}")
    };
    assert_eq!(code, UnknownCode::LeadershipLost);
    let ClientReply::Refused { code, .. } = wrong else {
        panic!("{wrong:?}")
    };
    assert_eq!(code, RefusalCode::NotLeaderOrFollower);
}
