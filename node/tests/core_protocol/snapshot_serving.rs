//! Owns the scenarios of how a leader names and serves snapshots, and of how a replica makes its own.
//! Never looks at what a follower does with them.

use node::ids::{Epoch, NodeId, Offset, SnapshotId};
use node::message::{ErrorCode, FetchSnapshotRequest, FetchSnapshotResponse, Request, Response};
use node::raft::{
    Effect, EpochStart, Input, QuorumState, Recovered, Role, SnapshotPlan, StoredSnapshot,
};
use node::trace::Traced;

use crate::cluster::MS;
use crate::solo::{ME, PEER, Solo, configuration, fetch_reply};

pub(crate) fn id(end_offset: i64, epoch: i32) -> SnapshotId {
    SnapshotId {
        end_offset: Offset(end_offset),
        epoch: Epoch(epoch),
    }
}

pub(crate) fn stored(end_offset: i64, epoch: i32) -> StoredSnapshot {
    StoredSnapshot {
        id: id(end_offset, epoch),
        size_bytes: 1_000,
    }
}

/// A log from 6 to 20 with epochs 3 and, from 12 on, 5; and snapshots that end at 6 and 14.
pub(crate) fn compacted() -> Recovered {
    let epochs = [(3, 6), (5, 12)].map(|(epoch, offset)| EpochStart {
        epoch: Epoch(epoch),
        start_offset: Offset(offset),
    });
    Recovered {
        quorum_state: Some(QuorumState {
            epoch: Epoch(5),
            leader: None,
            voted_for: None,
        }),
        log_start: Offset(6),
        log_end: Offset(20),
        epochs: epochs.to_vec(),
        snapshots: vec![stored(6, 3), stored(14, 5)],
        ..Recovered::default()
    }
}

fn snapshot_request(solo: &Solo, snapshot_id: SnapshotId) -> FetchSnapshotRequest {
    FetchSnapshotRequest {
        cluster_id: "test".to_owned(),
        replica: PEER.into(),
        current_leader_epoch: solo.replica.epoch(),
        snapshot_id,
        position_bytes: 0,
        max_bytes: u64::MAX,
    }
}

/// The answer, and how many bytes go with it.
fn asked(solo: &mut Solo, request: FetchSnapshotRequest) -> (FetchSnapshotResponse, Option<u64>) {
    let effects = solo.request(Request::FetchSnapshot(request));
    let answer = effects.into_iter().find_map(|effect| match effect {
        Effect::ReplyFetchSnapshot {
            response,
            max_bytes,
            ..
        } => Some((*response, Some(max_bytes))),
        Effect::Reply { response, .. } => match *response {
            Response::FetchSnapshot(response) => Some((response, None)),
            _ => None,
        },
        _ => None,
    });
    answer.expect("every fetch of a snapshot is answered at once")
}

#[test]
fn whoever_needs_what_is_gone_is_named_the_newest_snapshot_at_once() {
    for (fetch_offset, last_epoch) in [(0, 0), (5, 3), (6, 2), (6, 5), (19, 2)] {
        let mut solo = Solo::lead_from(None, compacted());
        let mut request = solo.fetch_request(Offset(fetch_offset));
        request.last_fetched_epoch = Epoch(last_epoch);
        let (ticket, effects) = solo.fetch(request);
        let (response, from) = fetch_reply(&effects, ticket).expect("never waits");
        assert_eq!(
            (response.error, response.snapshot_id, from),
            (ErrorCode::None, Some(id(14, 5)), None),
            "{fetch_offset} after epoch {last_epoch}"
        );
        assert_eq!(response.diverging_epoch, None);
        assert_eq!(response.log_start_offset, Offset(6));
        let known = &solo.replica.describe().voters[1];
        assert_eq!((known.log_end_offset, known.last_fetch_ns), (None, None));
    }
}

#[test]
fn a_log_that_starts_late_still_agrees_and_parts_as_ever() {
    let mut solo = Solo::lead_from(None, compacted());
    for (fetch_offset, last_epoch, parted) in [
        (6, 3, None),
        (10, 3, None),
        (20, 5, None),
        (13, 4, Some((12, 3))),
        (21, 5, Some((20, 5))),
    ] {
        let mut request = solo.fetch_request(Offset(fetch_offset));
        request.last_fetched_epoch = Epoch(last_epoch);
        let (ticket, effects) = solo.fetch(request);
        let (response, from) = fetch_reply(&effects, ticket).expect("never waits");
        let diverging = response.diverging_epoch;
        assert_eq!(diverging.map(|d| (d.end_offset.0, d.epoch.0)), parted);
        assert_eq!(from, parted.is_none().then_some(Offset(fetch_offset)));
        assert_eq!(response.snapshot_id, None);
    }
}

#[test]
fn fetches_of_snapshots_are_checked_in_order() {
    let mut solo = Solo::lead_from(None, compacted());
    let epoch = solo.replica.epoch();
    let error = |solo: &mut Solo, change: &dyn Fn(&mut FetchSnapshotRequest)| {
        let mut request = snapshot_request(solo, id(14, 5));
        change(&mut request);
        let (response, max_bytes) = asked(solo, request);
        assert_eq!(max_bytes.is_some(), response.error == ErrorCode::None);
        response.error
    };
    // Each also has what the later checks would refuse.
    assert_eq!(
        error(&mut solo, &|request| {
            request.cluster_id = "elsewhere".to_owned();
            request.current_leader_epoch = Epoch(epoch.0 - 1);
        }),
        ErrorCode::InconsistentClusterId
    );
    assert_eq!(
        error(&mut solo, &|request| {
            request.current_leader_epoch = Epoch(epoch.0 - 1);
            request.snapshot_id = id(15, 5);
        }),
        ErrorCode::FencedLeaderEpoch
    );
    assert_eq!(
        error(&mut solo, &|request| {
            request.current_leader_epoch = Epoch(epoch.0 + 1);
            request.snapshot_id = id(15, 5);
        }),
        ErrorCode::UnknownLeaderEpoch
    );
    assert_eq!(
        error(&mut solo, &|request| request.replica = ME.into()),
        ErrorCode::UnknownServerError
    );
    for missing in [id(15, 5), id(14, 4), id(0, 0)] {
        let not_found = error(&mut solo, &|request| {
            request.snapshot_id = missing;
            request.position_bytes = 5_000;
        });
        assert_eq!(not_found, ErrorCode::SnapshotNotFound, "{missing}");
    }
    for position_bytes in [1_000, 1_001, u64::MAX] {
        let out_of_range = error(&mut solo, &|request| {
            request.position_bytes = position_bytes;
        });
        assert_eq!(out_of_range, ErrorCode::PositionOutOfRange);
    }
    assert_eq!(error(&mut solo, &|_| {}), ErrorCode::None);
    assert_eq!(solo.replica.epoch(), epoch, "a fetch moves nobody");
    solo.step(Input::Shutdown);
    assert_eq!(
        error(&mut solo, &|request| request.snapshot_id = id(15, 5)),
        ErrorCode::BrokerNotAvailable
    );
}

#[test]
fn a_piece_comes_with_the_length_of_the_whole_and_is_bounded() {
    let mut solo = Solo::lead_from(None, compacted());
    for (max_bytes, allowed) in [(0, 1), (1, 1), (10, 10), (u64::MAX, 1024 * 1024)] {
        let request = FetchSnapshotRequest {
            position_bytes: 999,
            max_bytes,
            ..snapshot_request(&solo, id(6, 3))
        };
        let (response, given) = asked(&mut solo, request);
        assert_eq!(given, Some(allowed));
        assert_eq!(response.snapshot_id, id(6, 3));
        assert_eq!((response.size_bytes, response.position_bytes), (1_000, 999));
        assert_eq!(response.leader_id, Some(ME));
    }
}

/// The initial voters are in it, which nobody has committed.
#[test]
fn the_bootstrap_snapshot_is_neither_named_nor_served() {
    let recovered = Recovered {
        snapshots: vec![StoredSnapshot {
            id: SnapshotId::BOOTSTRAP,
            size_bytes: 100,
        }],
        ..Recovered::default()
    };
    let mut solo = Solo::lead_from(None, recovered);
    let mut request = solo.fetch_request(Offset(0));
    request.last_fetched_epoch = Epoch(0);
    let (ticket, effects) = solo.fetch(request);
    let (response, from) = fetch_reply(&effects, ticket).unwrap();
    assert_eq!((response.snapshot_id, from), (None, Some(Offset(0))));
    let request = snapshot_request(&solo, SnapshotId::BOOTSTRAP);
    let (response, _) = asked(&mut solo, request);
    assert_eq!(response.error, ErrorCode::SnapshotNotFound);
}

/// Lets a leader's peer ask something every 50 ms for longer than a check of the quorum takes.
fn leads_on_while_asked(ask: impl Fn(&mut Solo)) -> bool {
    let mut solo = Solo::lead_from(None, compacted());
    for _ in 0..10 {
        solo.tick_after(50 * MS);
        if solo.replica.role() == Role::Leader {
            ask(&mut solo);
        }
    }
    assert_eq!(solo.replica.high_watermark(), None);
    assert_eq!(solo.replica.describe().voters[1].log_end_offset, None);
    solo.replica.role() == Role::Leader
}

#[test]
fn only_a_fetch_of_the_snapshot_itself_counts_for_the_quorum_and_it_commits_nothing() {
    let fetching = leads_on_while_asked(|solo| {
        let request = snapshot_request(solo, id(14, 5));
        asked(solo, request);
    });
    assert!(fetching);
    let not_found = leads_on_while_asked(|solo| {
        let request = snapshot_request(solo, id(15, 5));
        asked(solo, request);
    });
    assert!(!not_found);
    let named_only = leads_on_while_asked(|solo| {
        let mut request = solo.fetch_request(Offset(0));
        request.last_fetched_epoch = Epoch(0);
        solo.fetch(request);
    });
    assert!(!named_only);
    let stranger = leads_on_while_asked(|solo| {
        let mut request = snapshot_request(solo, id(14, 5));
        request.replica = NodeId(9).into();
        asked(solo, request);
    });
    assert!(!stranger);
}

fn traced(effects: &[Effect]) -> Vec<serde_json::Value> {
    let trace = effects.iter().filter_map(|effect| match effect {
        Effect::Trace(traced) => Some(traced),
        _ => None,
    });
    trace
        .map(|traced: &Traced| serde_json::to_value(traced).unwrap())
        .collect()
}

#[test]
fn a_replica_plans_only_snapshots_of_what_is_committed_and_new() {
    let mut solo = Solo::lead_from(None, compacted());
    let plan = |solo: &Solo, end| solo.replica.plan_snapshot(Offset(end));
    for end in [0, 5, 6, 10, 14] {
        assert_eq!(plan(&solo, end), None, "there is one up to 14");
    }
    assert_eq!(plan(&solo, 15), None, "not known to be committed");
    let request = solo.fetch_request(Offset(21));
    solo.fetch(request);
    assert_eq!(solo.replica.high_watermark(), Some(Offset(21)));
    solo.propose(b"x");
    let of = |end, epoch| {
        Some(SnapshotPlan {
            id: id(end, epoch),
            voters: None,
        })
    };
    assert_eq!(plan(&solo, 15), of(15, 5));
    assert_eq!(plan(&solo, 20), of(20, 5));
    assert_eq!(plan(&solo, 21), of(21, 6));
    assert_eq!(plan(&solo, 22), None, "not committed");
    let effects = solo.step(Input::SnapshotFrozen {
        snapshot: stored(20, 5),
        digest: 0xab,
    });
    assert_eq!(
        traced(&effects),
        [serde_json::json!({
            "event": "snapshot-frozen", "epoch": 6,
            "end_offset": 20, "last_epoch": 5, "digest": "00000000000000ab",
        })]
    );
    assert_eq!((plan(&solo, 20), plan(&solo, 21)), (None, of(21, 6)));
    let effects = solo.step(Input::LogStartAdvanced {
        log_start: Offset(14),
    });
    assert_eq!(
        traced(&effects),
        [serde_json::json!({"event": "log-start-advanced", "epoch": 6, "log_start": 14})]
    );
    let gone = snapshot_request(&solo, id(6, 3));
    assert_eq!(asked(&mut solo, gone).0.error, ErrorCode::SnapshotNotFound);
    let newest = snapshot_request(&solo, id(20, 5));
    assert_eq!(asked(&mut solo, newest).0.error, ErrorCode::None);
}

#[test]
#[should_panic(expected = "more than is known to be committed")]
fn a_snapshot_of_what_may_not_be_committed_is_fatal() {
    let mut solo = Solo::lead_from(None, compacted());
    solo.step(Input::SnapshotFrozen {
        snapshot: stored(20, 5),
        digest: 1,
    });
}

#[test]
#[should_panic(expected = "no snapshot ends at 10")]
fn a_log_start_without_a_snapshot_is_fatal() {
    let mut solo = Solo::lead_from(None, compacted());
    solo.step(Input::LogStartAdvanced {
        log_start: Offset(10),
    });
}

/// The file may be lost: what is in the snapshot was written in its epoch all the same.
#[test]
fn a_replica_starts_where_its_snapshot_ends() {
    let recovered = Recovered {
        log_start: Offset(14),
        log_end: Offset(14),
        snapshots: vec![stored(14, 5)],
        ..Recovered::default()
    };
    let (solo, effects) = Solo::start(configuration(3, None), recovered);
    assert_eq!(solo.replica.epoch(), Epoch(5));
    let described = solo.replica.describe();
    assert_eq!(
        (described.log_end, described.log_end_epoch),
        (Offset(14), Epoch(5))
    );
    assert_eq!(described.high_watermark, None);
    assert_eq!(solo.replica.plan_snapshot(Offset(14)), None);
    let [(_, _, Request::Fetch(fetch))] = crate::solo::sends(&effects)[..] else {
        panic!("{effects:?}")
    };
    let log = (fetch.fetch_offset, fetch.last_fetched_epoch);
    assert_eq!(log, (Offset(14), Epoch(5)));
}
