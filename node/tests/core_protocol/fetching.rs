//! Owns the scenarios of how a leader answers fetches: agreement, waiting, refusal.
//! Never looks at what a follower does with the answer.

use node::ids::{Epoch, NodeId, Offset};
use node::message::{ErrorCode, Request};
use node::raft::{Effect, EpochStart, Input, QuorumState, Recovered};

use crate::cluster::MS;
use crate::solo::{ME, OTHER, Solo, fetch_reply};

#[test]
fn the_leader_says_where_logs_part() {
    let epochs = [(1, 0), (3, 5), (4, 8)].map(|(epoch, offset)| EpochStart {
        epoch: Epoch(epoch),
        start_offset: Offset(offset),
    });
    let recovered = Recovered {
        quorum_state: Some(QuorumState {
            epoch: Epoch(4),
            leader: None,
            voted_for: None,
        }),
        log_end: Offset(10),
        epochs: epochs.to_vec(),
        ..Recovered::default()
    };
    // Asked for an offset after an epoch; the answer's epoch and end offset where they part.
    let cases = [
        (0, 0, None),
        (0, 1, None),
        (10, 4, None),
        (8, 3, None),
        (7, 3, None),
        (9, 3, Some((3, 8))),
        (7, 2, Some((1, 5))),
        (6, 1, Some((1, 5))),
        (12, 4, Some((4, 10))),
        (3, 0, Some((0, 0))),
    ];
    for (fetch_offset, last_epoch, parted) in cases {
        let mut solo = Solo::lead_from(None, recovered.clone());
        assert_eq!(solo.replica.epoch(), Epoch(5));
        let mut request = solo.fetch_request(Offset(fetch_offset));
        request.last_fetched_epoch = Epoch(last_epoch);
        let (ticket, effects) = solo.fetch(request);
        let (response, from) = fetch_reply(&effects, ticket).expect("never waits");
        assert_eq!(response.error, ErrorCode::None);
        let diverging = response
            .diverging_epoch
            .map(|d| (d.epoch.0, d.end_offset.0));
        assert_eq!(
            diverging, parted,
            "asked for {fetch_offset} after epoch {last_epoch}"
        );
        assert_eq!(from, parted.is_none().then_some(Offset(fetch_offset)));
        // Only a fetch that agrees says anything about what the voter holds.
        let known = solo.replica.describe().voters[1].log_end_offset;
        assert_eq!(known, parted.is_none().then_some(Offset(fetch_offset)));
    }
}

/// A fetch of a caught-up voter waits; whatever it waits for wakes it.
fn parked() -> (Solo, node::raft::Ticket) {
    let mut solo = Solo::lead(None);
    let request = solo.fetch_request(Offset(1));
    solo.fetch(request);
    assert_eq!(solo.replica.high_watermark(), Some(Offset(1)));
    let request = solo.fetch_request(Offset(1));
    let (ticket, effects) = solo.fetch(request);
    assert_eq!(fetch_reply(&effects, ticket), None);
    (solo, ticket)
}

#[test]
fn an_append_wakes_waiting_fetches() {
    let (mut solo, ticket) = parked();
    let (_, effects) = solo.propose(b"x");
    let (response, from) = fetch_reply(&effects, ticket).unwrap();
    assert_eq!((response.error, from), (ErrorCode::None, Some(Offset(1))));
    let append = effects
        .iter()
        .position(|effect| matches!(effect, Effect::Append(_)));
    let reply = effects
        .iter()
        .position(|effect| matches!(effect, Effect::ReplyFetch { .. }));
    assert!(append < reply, "records are read after they were appended");
}

/// A leader whose first record after its epoch's is committed, and a fetch that does not know that.
fn committed_behind_a_fetch() -> (Solo, node::raft::Ticket) {
    let (mut solo, first) = parked();
    let (_, effects) = solo.propose(b"x");
    assert!(fetch_reply(&effects, first).is_some());
    let request = solo.fetch_request(Offset(2));
    let (second, effects) = solo.fetch(request);
    assert_eq!(fetch_reply(&effects, second), None);
    assert_eq!(fetch_reply(&solo.flush(), second), None);
    (solo, second)
}

/// KAFKA-14145: a follower learns of a commit although no record follows it.
#[test]
fn a_new_high_watermark_wakes_waiting_fetches_if_no_record_follows() {
    let (mut solo, ticket) = committed_behind_a_fetch();
    let due_ns = solo.replica.next_deadline_ns();
    assert_eq!(due_ns, solo.now_ns + MS, "a moment later");
    let effects = solo.tick_after(MS);
    let (response, from) = fetch_reply(&effects, ticket).unwrap();
    assert_eq!((response.high_watermark, from), (Some(Offset(2)), None));
}

#[test]
fn a_new_high_watermark_travels_with_the_record_that_follows() {
    let (mut solo, ticket) = committed_behind_a_fetch();
    let (_, effects) = solo.propose(b"y");
    let (response, from) = fetch_reply(&effects, ticket).unwrap();
    assert_eq!(
        (response.high_watermark, from),
        (Some(Offset(2)), Some(Offset(2)))
    );
    assert_eq!(fetch_reply(&solo.tick_after(MS), ticket), None);
}

#[test]
fn the_end_of_its_patience_answers_a_waiting_fetch() {
    let (mut solo, ticket) = parked();
    let effects = solo.tick_after(49 * MS);
    assert_eq!(fetch_reply(&effects, ticket), None);
    let effects = solo.tick_after(MS);
    let (response, from) = fetch_reply(&effects, ticket).unwrap();
    assert_eq!((response.error, from), (ErrorCode::None, None));
    assert_eq!(
        fetch_reply(&solo.tick_after(100 * MS), ticket),
        None,
        "answered once"
    );
}

#[test]
fn the_end_of_leadership_answers_waiting_fetches() {
    let (mut solo, ticket) = parked();
    let effects = solo.step(Input::Shutdown);
    let (response, _) = fetch_reply(&effects, ticket).unwrap();
    assert_eq!(response.error, ErrorCode::NotLeaderOrFollower);
    let (mut solo, ticket) = parked();
    let vote = solo.vote_request(Epoch(7), false);
    let effects = solo.request(Request::Vote(vote));
    let (response, _) = fetch_reply(&effects, ticket).unwrap();
    assert_eq!(
        (response.error, response.leader_epoch),
        (ErrorCode::FencedLeaderEpoch, Epoch(7))
    );
}

#[test]
fn a_follower_that_lags_in_what_is_committed_waits_no_longer_than_a_moment() {
    let (mut solo, _) = parked();
    let mut request = solo.fetch_request(Offset(1));
    request.high_watermark = None;
    let (ticket, _) = solo.fetch(request);
    let effects = solo.tick_after(MS);
    let (response, _) = fetch_reply(&effects, ticket).unwrap();
    assert_eq!(response.high_watermark, Some(Offset(1)));
}

#[test]
fn fetches_of_other_epochs_and_replicas_that_lead_nothing_are_refused() {
    let mut solo = Solo::lead(None);
    let error = |solo: &mut Solo, change: &dyn Fn(&mut node::message::FetchRequest)| {
        let mut request = solo.fetch_request(Offset(1));
        change(&mut request);
        let (ticket, effects) = solo.fetch(request);
        fetch_reply(&effects, ticket).map(|(response, _)| response.error)
    };
    let epoch = solo.replica.epoch();
    assert_eq!(
        error(&mut solo, &|r| {
            r.current_leader_epoch = Epoch(epoch.0 - 1);
            r.last_fetched_epoch = Epoch(0);
        }),
        Some(ErrorCode::FencedLeaderEpoch)
    );
    assert_eq!(
        error(&mut solo, &|r| r.current_leader_epoch = Epoch(epoch.0 + 1)),
        Some(ErrorCode::UnknownLeaderEpoch)
    );
    assert_eq!(solo.replica.epoch(), epoch, "a fetch moves nobody");
    assert_eq!(
        error(&mut solo, &|r| r.replica.id = ME),
        Some(ErrorCode::UnknownServerError)
    );
    assert_eq!(
        error(&mut solo, &|r| r.cluster_id = "elsewhere".to_owned()),
        Some(ErrorCode::InconsistentClusterId)
    );
    assert_eq!(solo.replica.high_watermark(), None, "none of these counted");
    solo.step(Input::Shutdown);
    assert_eq!(
        error(&mut solo, &|_| {}),
        Some(ErrorCode::BrokerNotAvailable),
        "it led until then"
    );
    let mut follower = Solo::start(crate::solo::configuration(3, None), Recovered::default()).0;
    follower.step(Input::Shutdown);
    assert_eq!(
        error(&mut follower, &|_| {}),
        Some(ErrorCode::NotLeaderOrFollower),
        "it never did"
    );
}

#[test]
fn a_replica_that_is_no_voter_gets_records_but_moves_nothing() {
    let mut solo = Solo::lead(None);
    let mut request = solo.fetch_request(Offset(0));
    request.replica.id = NodeId(8);
    request.last_fetched_epoch = Epoch(0);
    let (ticket, effects) = solo.fetch(request);
    assert_eq!(fetch_reply(&effects, ticket).unwrap().1, Some(Offset(0)));
    let mut request = solo.fetch_request(Offset(1));
    request.replica.id = NodeId(8);
    solo.fetch(request);
    assert_eq!(solo.replica.high_watermark(), None);
}

/// KAFKA-12181: a voter that lost its disk is behind, which is nothing to fall over.
#[test]
fn a_voter_may_come_back_with_less_than_it_had() {
    let (mut solo, _) = parked();
    let mut request = solo.fetch_request(Offset(0));
    request.last_fetched_epoch = Epoch(0);
    let (ticket, effects) = solo.fetch(request);
    assert_eq!(fetch_reply(&effects, ticket).unwrap().1, Some(Offset(0)));
    assert_eq!(solo.replica.high_watermark(), Some(Offset(1)));
    let described = solo.replica.describe();
    assert_eq!(described.voters[1].log_end_offset, Some(Offset(0)));
    assert_eq!(described.voters[2].id, OTHER);
    assert_eq!(described.voters[2].last_fetch_ns, None);
}
