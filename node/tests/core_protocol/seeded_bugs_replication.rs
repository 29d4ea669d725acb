//! Owns the scenarios of seeded bugs in fetching, appending, truncating and committing.
//! Never lets a follower meet a leader that is itself correct in one run and broken in the other.

use node::ids::{Epoch, NodeId, Offset};
use node::message::{
    BeginQuorumEpochRequest, DivergingEpoch, ErrorCode, FetchResponse, Request, Response,
};
use node::mutants::Bug;
use node::raft::{Effect, Recovered};

use crate::replication::figure_8;
use crate::seeded_bugs::{appended, batch, compare, follower, stopped_by};
use crate::solo::{ME, OTHER, PEER, Solo, configuration, fetch_reply, sends};

fn diverging(epoch: i32, end_offset: i64) -> Option<DivergingEpoch> {
    Some(DivergingEpoch {
        epoch: Epoch(epoch),
        end_offset: Offset(end_offset),
    })
}

#[test]
fn a_record_of_an_old_epoch_is_committed_too_early_by_one_offset() {
    let (right, wrong) = compare(Bug::HighWatermarkEpochStartOffByOne, |bug| {
        figure_8(bug).history.violations.join("; ")
    });
    assert_eq!(right, "");
    assert!(wrong.contains("committed record lost"), "{wrong}");
}

#[test]
fn a_follower_fetches_on_before_it_synced() {
    let (right, wrong) = compare(Bug::FollowerNoFsync, |bug| {
        let (mut solo, correlation) = follower(bug, &[], 0);
        let response = solo.fetched(vec![batch(0, 9), batch(1, 9)]);
        let effects = solo.answer(PEER, correlation, Response::Fetch(response));
        match sends(&effects)[..] {
            [(PEER, _, Request::Fetch(fetch))] => Some(fetch.fetch_offset),
            [] => None,
            _ => panic!("{effects:?}"),
        }
    });
    assert_eq!((right, wrong), (None, Some(Offset(2))));
}

#[test]
fn a_leader_counts_its_own_log_before_it_is_synced() {
    let (right, wrong) = compare(Bug::LeaderCountsUnflushed, |bug| {
        let mut solo = Solo::lead(bug);
        let request = solo.fetch_request(Offset(1));
        solo.fetch(request);
        solo.propose(b"x");
        let request = solo.fetch_request(Offset(2));
        solo.fetch(request);
        let of_three = solo.replica.high_watermark();
        let (mut solo, _) = Solo::start(configuration(1, bug), Recovered::default());
        solo.flush();
        solo.propose(b"x");
        (of_three, solo.replica.high_watermark())
    });
    assert_eq!(right, (Some(Offset(1)), Some(Offset(1))));
    assert_eq!(wrong, (Some(Offset(2)), Some(Offset(2))));
}

#[test]
fn committed_records_are_dropped_silently_without_the_guard() {
    let (right, wrong) = compare(Bug::TruncateBelowHighWatermark, |bug| {
        let (mut solo, correlation) = follower(bug, &[(1, 0)], 10);
        let response = FetchResponse {
            high_watermark: Some(Offset(8)),
            ..solo.fetched(Vec::new())
        };
        let effects = solo.answer(PEER, correlation, Response::Fetch(response));
        assert_eq!(solo.replica.high_watermark(), Some(Offset(8)));
        let (_, correlation, _) = sends(&effects)[0];
        let response = FetchResponse {
            diverging_epoch: diverging(1, 7),
            ..solo.fetched(Vec::new())
        };
        let stopped = stopped_by(|| {
            solo.answer(PEER, correlation, Response::Fetch(response));
        });
        (stopped.is_some(), solo.replica.log_end())
    });
    assert_eq!(right, (true, Offset(10)));
    assert_eq!(wrong, (false, Offset(7)));
}

/// The follower alone has epoch 3, which its leader tells it, and has to tell it again and again.
#[test]
fn a_follower_diverges_for_ever_if_the_cache_keeps_what_was_cut() {
    let (right, wrong) = compare(Bug::EpochCacheNotTruncated, |bug| {
        let (mut solo, mut correlation) = follower(bug, &[(1, 0), (3, 5)], 10);
        let mut asked = Vec::new();
        for _ in 0..2 {
            let agrees = asked.last() == Some(&(Offset(5), Epoch(1)));
            let response = FetchResponse {
                diverging_epoch: diverging(1, 5).filter(|_| !agrees),
                ..solo.fetched(Vec::new())
            };
            let mut effects = solo.answer(PEER, correlation, Response::Fetch(response));
            if sends(&effects).is_empty() {
                effects = solo.tick_at_deadline();
            }
            // Once it has got nowhere with its leader, it asks the other voter for a better one.
            let [(_, next, Request::Fetch(fetch))] = sends(&effects)[..] else {
                panic!("{effects:?}")
            };
            asked.push((fetch.fetch_offset, fetch.last_fetched_epoch));
            correlation = next;
        }
        asked
    });
    assert_eq!(right, [(Offset(5), Epoch(1)); 2]);
    assert_eq!(wrong, [(Offset(5), Epoch(3)); 2]);
}

/// KAFKA-14704. The guard against truncating what is committed then stops the follower.
#[test]
fn a_high_watermark_of_another_log_is_believed() {
    let (right, wrong) = compare(Bug::HighWatermarkBeforeTruncate, |bug| {
        let (mut solo, correlation) = follower(bug, &[(1, 0)], 10);
        let response = FetchResponse {
            diverging_epoch: diverging(1, 7),
            high_watermark: Some(Offset(9)),
            ..solo.fetched(Vec::new())
        };
        let stopped = stopped_by(|| {
            solo.answer(PEER, correlation, Response::Fetch(response));
        });
        (
            stopped,
            solo.replica.high_watermark(),
            solo.replica.log_end(),
        )
    });
    assert_eq!(right, (None, None, Offset(7)));
    assert_eq!((wrong.1, wrong.2), (Some(Offset(9)), Offset(10)));
    let message = wrong.0.expect("the guard stays");
    assert!(
        message.contains("everything below 9 is committed"),
        "{message}"
    );
}

/// The answer of the leader of epoch 9 arrives when another leads epoch 10.
#[test]
fn a_late_answer_adds_records_of_a_leader_that_is_gone() {
    let (right, wrong) = compare(Bug::AppendStaleEpochBatch, |bug| {
        let (mut solo, correlation) = follower(bug, &[(1, 0)], 10);
        let late = solo.fetched(vec![batch(10, 9)]);
        solo.request(Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
            cluster_id: "test".to_owned(),
            voter: ME.into(),
            leader_id: OTHER,
            leader_epoch: Epoch(10),
            leader_endpoint: None,
        }));
        assert_eq!(solo.replica.leader(), Some(OTHER));
        appended(&solo.answer(PEER, correlation, Response::Fetch(late)))
    });
    assert_eq!((right, wrong), (vec![], vec![(10, 9)]));
}

#[test]
fn a_waiting_fetch_is_answered_as_if_leadership_had_not_ended() {
    let (right, wrong) = compare(Bug::ParkedFetchNotRevalidated, |bug| {
        let mut solo = Solo::lead(bug);
        let request = solo.fetch_request(Offset(1));
        solo.fetch(request);
        let request = solo.fetch_request(Offset(1));
        let (ticket, effects) = solo.fetch(request);
        assert_eq!(fetch_reply(&effects, ticket), None, "it waits");
        let vote = solo.vote_request(Epoch(7), false);
        let effects = solo.request(Request::Vote(vote));
        let (response, _) = fetch_reply(&effects, ticket).expect("nobody is left waiting");
        (response.error, response.leader_epoch)
    });
    assert_eq!(right, (ErrorCode::FencedLeaderEpoch, Epoch(7)));
    assert_eq!(wrong, (ErrorCode::None, Epoch(7)));
}

#[test]
fn a_bug_changes_nothing_before_its_path_is_taken() {
    for bug in Bug::ALL {
        let start = |bug| Solo::start(configuration(3, bug), Recovered::default());
        let ((mut plain, plain_start), (mut broken, broken_start)) =
            (start(None), start(Some(bug)));
        assert_eq!(plain_start, broken_start, "{bug}");
        let (peer, correlation, _) = sends(&plain_start)[0];
        assert_ne!(peer, NodeId(1));
        let empty = |solo: &Solo| {
            let response = solo.fetched(Vec::new());
            Response::Fetch(FetchResponse {
                error: ErrorCode::FencedLeaderEpoch,
                leader_id: None,
                ..response
            })
        };
        let (left, right) = (empty(&plain), empty(&broken));
        let left: Vec<Effect> = plain.answer(peer, correlation, left);
        assert_eq!(left, broken.answer(peer, correlation, right), "{bug}");
    }
}
