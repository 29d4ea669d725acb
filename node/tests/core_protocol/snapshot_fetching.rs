//! Owns the scenarios of how a follower fetches a snapshot and puts it in the place of its log.
//! Never looks at how a leader serves one.

use node::ids::{Epoch, NodeId, Offset, SnapshotId};
use node::message::{
    BeginQuorumEpochRequest, DivergingEpoch, ErrorCode, FetchResponse, FetchSnapshotResponse,
    Request, Response,
};
use node::raft::{
    Correlation, Effect, Input, PeerAnswer, QuorumState, RecordedVoters, Recovered, Role,
};
use node::trace::TraceEvent;

use crate::cluster::MS;
use crate::seeded_bugs::{batch, found};
use crate::snapshot_serving::{compacted, id, stored};
use crate::solo::{ME, OTHER, PEER, Solo, configuration, sends};

const SNAPSHOT: SnapshotId = SnapshotId {
    end_offset: Offset(40),
    epoch: Epoch(7),
};

fn following(recovered: Recovered) -> (Solo, Correlation) {
    let recovered = Recovered {
        quorum_state: Some(QuorumState {
            epoch: Epoch(9),
            leader: Some(PEER),
            voted_for: None,
        }),
        ..recovered
    };
    let (solo, effects) = Solo::start(configuration(3, None), recovered);
    let [(PEER, correlation, Request::Fetch(_))] = sends(&effects)[..] else {
        panic!("{effects:?}")
    };
    (solo, correlation)
}

fn naming(solo: &Solo, snapshot_id: SnapshotId) -> Response {
    Response::Fetch(FetchResponse {
        snapshot_id: Some(snapshot_id),
        high_watermark: Some(Offset(50)),
        ..solo.fetched(Vec::new())
    })
}

/// The one request in the effects, which is for a piece from this position on.
#[track_caller]
fn asks_for_piece(effects: &[Effect], position_bytes: u64) -> Correlation {
    match sends(effects)[..] {
        [(PEER, correlation, Request::FetchSnapshot(request))] => {
            assert_eq!(request.snapshot_id, SNAPSHOT);
            assert_eq!(request.position_bytes, position_bytes);
            assert_eq!(request.current_leader_epoch, Epoch(9));
            assert_eq!(request.max_bytes, 1024 * 1024);
            correlation
        }
        _ => panic!("{effects:?}"),
    }
}

/// The one request in the effects, which is for records.
#[track_caller]
fn asks_for_records(effects: &[Effect]) -> (Correlation, Offset, Epoch) {
    match sends(effects)[..] {
        [(PEER, correlation, Request::Fetch(request))] => (
            correlation,
            request.fetch_offset,
            request.last_fetched_epoch,
        ),
        _ => panic!("{effects:?}"),
    }
}

/// A piece of a snapshot of ten bytes.
fn piece(position_bytes: u64, bytes: &[u8]) -> FetchSnapshotResponse {
    FetchSnapshotResponse {
        error: ErrorCode::None,
        leader_id: Some(PEER),
        leader_epoch: Epoch(9),
        leader_endpoint: None,
        snapshot_id: SNAPSHOT,
        size_bytes: 10,
        position_bytes,
        bytes: bytes.to_vec(),
    }
}

fn give(solo: &mut Solo, correlation: Correlation, response: FetchSnapshotResponse) -> Vec<Effect> {
    solo.answer(PEER, correlation, Response::FetchSnapshot(response))
}

/// A follower with a log up to 3 that has asked for the first piece.
fn downloading() -> (Solo, Correlation) {
    let (mut solo, correlation) = following(found(9, Some(PEER), &[(2, 0)], 3));
    let response = naming(&solo, SNAPSHOT);
    let effects = solo.answer(PEER, correlation, response);
    let correlation = asks_for_piece(&effects, 0);
    (solo, correlation)
}

/// The same, which has stored six bytes of ten and has asked for the rest.
fn half_done() -> (Solo, Correlation) {
    let (mut solo, correlation) = downloading();
    let effects = give(&mut solo, correlation, piece(0, b"abcdef"));
    let correlation = asks_for_piece(&effects, 6);
    (solo, correlation)
}

fn abandons(effects: &[Effect]) -> bool {
    effects.contains(&Effect::AbandonSnapshot(SNAPSHOT))
}

#[track_caller]
fn installed(solo: &mut Solo, voters: Option<RecordedVoters>) -> Vec<Effect> {
    solo.step(Input::SnapshotInstalled {
        snapshot: stored(40, 7),
        voters,
        digest: 0xcd,
    })
}

#[test]
fn pieces_are_stored_in_order_and_the_whole_takes_the_place_of_the_log() {
    let (mut solo, correlation) = downloading();
    assert_eq!(
        solo.replica.high_watermark(),
        None,
        "that was of another log"
    );
    let effects = give(&mut solo, correlation, piece(0, b"abcdef"));
    let stored_piece = |position_bytes, bytes: &[u8]| Effect::StoreSnapshotChunk {
        id: SNAPSHOT,
        position_bytes,
        bytes: bytes.to_vec(),
    };
    assert_eq!(effects[0], stored_piece(0, b"abcdef"));
    let correlation = asks_for_piece(&effects, 6);
    let effects = give(&mut solo, correlation, piece(6, b"ghij"));
    // Nothing may follow before the outcome is known.
    let expected = [stored_piece(6, b"ghij"), Effect::InstallSnapshot(SNAPSHOT)];
    assert_eq!(effects, expected);

    let effects = installed(&mut solo, None);
    let traced = |wanted: &TraceEvent| {
        let same = |effect: &Effect| matches!(effect, Effect::Trace(t) if t.event == *wanted);
        effects.iter().any(same)
    };
    assert!(traced(&TraceEvent::SnapshotInstalled {
        end_offset: Offset(40),
        last_epoch: Epoch(7),
        digest: "00000000000000cd".to_owned(),
        voters: None,
        kraft_version: 0,
    }));
    let high_watermark = Offset(40);
    assert!(effects.contains(&Effect::Committed { high_watermark }));
    assert_eq!(solo.replica.high_watermark(), Some(high_watermark));
    assert_eq!(solo.replica.log_start(), Offset(40));
    let (correlation, offset, epoch) = asks_for_records(&effects);
    assert_eq!((offset, epoch), (Offset(40), Epoch(7)));

    let response = solo.fetched(vec![batch(40, 8)]);
    let effects = solo.answer(PEER, correlation, Response::Fetch(response));
    assert_eq!(crate::seeded_bugs::appended(&effects), [(40, 8)]);
}

#[test]
fn every_piece_is_a_sign_of_life() {
    let (mut solo, mut correlation) = downloading();
    // Ten pieces, a fetch timeout apart but for a moment; the requests wait just as long.
    for position in 0..9 {
        assert!(sends(&solo.tick_after(199 * MS)).is_empty());
        let effects = give(&mut solo, correlation, piece(position, b"x"));
        correlation = asks_for_piece(&effects, position + 1);
    }
    assert_eq!(solo.replica.role(), Role::Follower);
    solo.tick_after(200 * MS);
    assert_eq!(solo.replica.role(), Role::Prospective);
}

#[test]
fn a_lost_piece_is_asked_for_again_after_a_while() {
    let (mut solo, correlation) = half_done();
    let effects = solo.step(Input::PeerAnswer {
        peer: PEER,
        correlation,
        answer: PeerAnswer::Failed,
    });
    let [(OTHER, discovery, Request::Fetch(fetch))] = sends(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(fetch.fetch_offset, Offset(3), "that much is in the log");
    let response = FetchResponse {
        error: ErrorCode::NotLeaderOrFollower,
        ..solo.fetched(Vec::new())
    };
    solo.answer(OTHER, discovery, Response::Fetch(response));
    let effects = solo.tick_after(5 * MS);
    asks_for_piece(&effects, 6);
    assert_eq!(
        give(&mut solo, correlation, piece(6, b"ghij")),
        [],
        "too late"
    );
}

#[test]
fn a_snapshot_that_is_gone_turns_it_back_to_fetching_records() {
    let (mut solo, correlation) = half_done();
    solo.tick_after(150 * MS);
    let gone = FetchSnapshotResponse {
        error: ErrorCode::SnapshotNotFound,
        bytes: Vec::new(),
        size_bytes: 0,
        ..piece(6, b"")
    };
    let effects = give(&mut solo, correlation, gone);
    assert!(abandons(&effects));
    let (correlation, offset, epoch) = asks_for_records(&effects);
    assert_eq!((offset, epoch), (Offset(3), Epoch(2)));
    // The leader lives; it names a newer one, which begins at 0.
    solo.tick_after(150 * MS);
    assert_eq!(solo.replica.role(), Role::Follower);
    let response = naming(&solo, id(45, 8));
    let effects = solo.answer(PEER, correlation, response);
    let [(PEER, _, Request::FetchSnapshot(request))] = sends(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (request.snapshot_id, request.position_bytes),
        (id(45, 8), 0)
    );
}

/// Kafka stops here; this follower gives the download up and is slow to trust the leader again.
#[test]
fn an_answer_about_something_else_ends_the_download() {
    let not_in_range = FetchSnapshotResponse {
        error: ErrorCode::PositionOutOfRange,
        size_bytes: 0,
        ..piece(6, b"")
    };
    let of_another = FetchSnapshotResponse {
        snapshot_id: id(41, 7),
        ..piece(6, b"ghij")
    };
    let of_another_length = FetchSnapshotResponse {
        size_bytes: 11,
        ..piece(6, b"ghij")
    };
    for wrong in [
        piece(5, b"fghij"),
        piece(6, b""),
        piece(6, b"ghijk"),
        of_another,
        of_another_length,
        not_in_range,
    ] {
        let (mut solo, correlation) = half_done();
        solo.tick_after(150 * MS);
        let effects = give(&mut solo, correlation, wrong.clone());
        assert!(abandons(&effects), "{wrong:?}");
        let stores = |effect: &Effect| matches!(effect, Effect::StoreSnapshotChunk { .. });
        assert!(!effects.iter().any(stores), "{wrong:?}");
        assert!(sends(&effects).iter().all(|(peer, ..)| *peer != PEER));
        solo.tick_after(49 * MS);
        assert_eq!(solo.replica.role(), Role::Follower);
        solo.tick_after(MS);
        assert_eq!(solo.replica.role(), Role::Prospective, "no sign of life");
    }
}

/// Nothing is stored yet, so there is nothing to remove.
#[test]
fn a_download_that_has_not_begun_leaves_nothing_behind() {
    let (mut solo, correlation) = downloading();
    let effects = give(&mut solo, correlation, piece(5, b"fghij"));
    assert!(!abandons(&effects));
}

fn announcement(leader_epoch: i32) -> Request {
    Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
        cluster_id: "test".to_owned(),
        voter: ME.into(),
        leader_id: OTHER,
        leader_epoch: Epoch(leader_epoch),
        leader_endpoint: None,
    })
}

#[test]
fn whoever_stops_following_gives_its_download_up() {
    let (mut solo, correlation) = half_done();
    let effects = solo.request(announcement(10));
    assert!(abandons(&effects));
    let [(OTHER, _, Request::Fetch(fetch))] = sends(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(fetch.fetch_offset, Offset(3));
    assert_eq!(give(&mut solo, correlation, piece(6, b"ghij")), []);

    let (mut solo, _) = half_done();
    assert!(abandons(&solo.tick_after(200 * MS)));
    assert_eq!(solo.replica.role(), Role::Prospective);

    let (mut solo, correlation) = half_done();
    let deposed = FetchSnapshotResponse {
        error: ErrorCode::NotLeaderOrFollower,
        leader_id: Some(OTHER),
        leader_epoch: Epoch(11),
        ..piece(6, b"")
    };
    assert!(abandons(&give(&mut solo, correlation, deposed)));
    assert_eq!(
        (solo.replica.leader(), solo.replica.epoch()),
        (Some(OTHER), Epoch(11))
    );
}

#[test]
fn a_refused_snapshot_is_fetched_anew_after_a_while() {
    let (mut solo, correlation) = half_done();
    give(&mut solo, correlation, piece(6, b"ghij"));
    let effects = solo.step(Input::SnapshotRefused { id: SNAPSHOT });
    assert!(!abandons(&effects), "it is gone already");
    let [(OTHER, discovery, Request::Fetch(_))] = sends(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (solo.replica.log_start(), solo.replica.log_end()),
        (Offset(0), Offset(3))
    );
    assert_eq!(solo.replica.high_watermark(), None);
    solo.step(Input::PeerAnswer {
        peer: OTHER,
        correlation: discovery,
        answer: PeerAnswer::Failed,
    });
    let (correlation, offset, _) = asks_for_records(&solo.tick_after(5 * MS));
    assert_eq!(offset, Offset(3));
    let response = naming(&solo, SNAPSHOT);
    let effects = solo.answer(PEER, correlation, response);
    asks_for_piece(&effects, 0);
}

#[test]
#[should_panic(expected = "before all else")]
fn nothing_comes_before_the_outcome_of_an_installation() {
    let (mut solo, correlation) = half_done();
    give(&mut solo, correlation, piece(6, b"ghij"));
    solo.step(Input::Tick);
}

#[test]
fn a_snapshot_that_is_here_or_makes_no_sense_is_not_fetched() {
    for named in [id(14, 5), SnapshotId::BOOTSTRAP, id(-1, 3), id(50, 10)] {
        let (mut solo, correlation) = following(compacted());
        let response = naming(&solo, named);
        let effects = solo.answer(PEER, correlation, response);
        let asks_leader = |effects: &[Effect]| sends(effects).iter().any(|s| s.0 == PEER);
        assert!(!asks_leader(&effects), "{named}");
        let [(OTHER, discovery, _)] = sends(&effects)[..] else {
            panic!("{effects:?}")
        };
        solo.step(Input::PeerAnswer {
            peer: OTHER,
            correlation: discovery,
            answer: PeerAnswer::Failed,
        });
        let (_, offset, _) = asks_for_records(&solo.tick_after(5 * MS));
        assert_eq!(offset, Offset(20), "{named}");
    }
}

#[test]
#[should_panic(expected = "everything below 14 is committed")]
fn a_snapshot_of_less_than_is_committed_is_fatal() {
    let (mut solo, correlation) = following(compacted());
    let response = naming(&solo, id(13, 5));
    solo.answer(PEER, correlation, response);
}

#[test]
#[should_panic(expected = "everything below 14 is committed")]
fn what_is_in_the_own_snapshot_is_committed() {
    let (mut solo, correlation) = following(compacted());
    let response = FetchResponse {
        diverging_epoch: Some(DivergingEpoch {
            epoch: Epoch(3),
            end_offset: Offset(11),
        }),
        ..solo.fetched(Vec::new())
    };
    solo.answer(PEER, correlation, Response::Fetch(response));
}

#[test]
fn the_voters_are_those_of_the_snapshot() {
    let (mut solo, correlation) = half_done();
    give(&mut solo, correlation, piece(6, b"ghij"));
    let voters = RecordedVoters {
        kraft_version: 1,
        voters: [ME, PEER].into_iter().collect(),
    };
    installed(&mut solo, Some(voters));
    let known: Vec<NodeId> = solo
        .replica
        .describe()
        .voters
        .iter()
        .map(|v| v.id)
        .collect();
    assert_eq!(known, [ME, PEER]);
}

/// A log that leaves the leader's before the end of the snapshot goes as a whole.
#[test]
fn a_longer_log_goes_too() {
    let (mut solo, correlation) = following(found(9, Some(PEER), &[(2, 0), (6, 30)], 60));
    let response = naming(&solo, SNAPSHOT);
    let effects = solo.answer(PEER, correlation, response);
    let correlation = asks_for_piece(&effects, 0);
    give(&mut solo, correlation, piece(0, b"abcdefghij"));
    let effects = installed(&mut solo, None);
    let (_, offset, epoch) = asks_for_records(&effects);
    assert_eq!((offset, epoch), (Offset(40), Epoch(7)));
    assert_eq!(solo.replica.log_end(), Offset(40));
}
