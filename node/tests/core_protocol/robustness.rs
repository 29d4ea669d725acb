//! Owns the scenarios of nonsense from the network and of clocks that jump.
//! Never accepts a panic as an answer to either.

use node::ids::{Epoch, NodeId, Offset};
use node::message::{BeginQuorumEpochRequest, EndQuorumEpochRequest, ErrorCode, Request, Response};
use node::raft::{Correlation, Effect, Input, PeerAnswer, QuorumState, Recovered, Role};

use crate::cluster::{Cluster, MS, TIMERS};
use crate::solo::{ME, OTHER, PEER, Solo, configuration, fetch_reply, sends, vote_reply};

fn follower() -> (Solo, Vec<Effect>) {
    let recovered = Recovered {
        quorum_state: Some(QuorumState {
            epoch: Epoch(3),
            leader: Some(PEER),
            voted_for: None,
        }),
        ..Recovered::default()
    };
    Solo::start(configuration(3, None), recovered)
}

fn error_of(effects: &[Effect]) -> ErrorCode {
    let error = effects.iter().find_map(|effect| match effect {
        Effect::Reply { response, .. } => Some(response.error()),
        _ => None,
    });
    error.expect("every request is answered at once")
}

#[test]
fn vote_requests_that_no_correct_peer_sends_change_nothing() {
    let (mut solo, _) = follower();
    let before = solo.replica.describe();
    let valid = solo.vote_request(Epoch(4), false);
    let mut nonsense = vec![valid.clone(); 6];
    nonsense[0].last_offset = Offset(-1);
    nonsense[1].last_epoch = Epoch(-1);
    nonsense[2].last_epoch = Epoch(4);
    nonsense[3].replica.id = NodeId(-1);
    nonsense[4].replica.id = ME;
    nonsense[5].pre_vote = true;
    nonsense[5].last_epoch = Epoch(5);
    for request in nonsense {
        let effects = solo.request(Request::Vote(request.clone()));
        assert_eq!(error_of(&effects), ErrorCode::InvalidRequest, "{request:?}");
        assert_eq!(solo.replica.describe(), before);
    }
    let mut stale = valid.clone();
    (stale.replica_epoch, stale.last_epoch) = (Epoch(2), Epoch(1));
    let response = vote_reply(&solo.request(Request::Vote(stale)));
    assert_eq!(response.error, ErrorCode::FencedLeaderEpoch);
    assert_eq!(
        (response.leader_id, response.leader_epoch),
        (Some(PEER), Epoch(3))
    );
    let mut misdirected = valid;
    misdirected.voter.id = OTHER;
    let response = vote_reply(&solo.request(Request::Vote(misdirected)));
    assert_eq!(
        (response.error, response.vote_granted),
        (ErrorCode::InvalidVoterKey, false)
    );
    assert_eq!(
        solo.replica.epoch(),
        Epoch(4),
        "the epoch is news all the same"
    );
}

#[test]
fn another_cluster_is_refused_and_told_nothing() {
    let (mut solo, _) = follower();
    let before = solo.replica.describe();
    let cluster_id = "elsewhere".to_owned();
    let mut vote = solo.vote_request(Epoch(9), false);
    vote.cluster_id.clone_from(&cluster_id);
    let begin = BeginQuorumEpochRequest {
        cluster_id: cluster_id.clone(),
        voter: ME.into(),
        leader_id: OTHER,
        leader_epoch: Epoch(9),
        leader_endpoint: None,
    };
    let end = EndQuorumEpochRequest {
        cluster_id,
        leader_id: OTHER,
        leader_epoch: Epoch(9),
        preferred_successors: Vec::new(),
        leader_endpoint: None,
    };
    for request in [
        Request::Vote(vote),
        Request::BeginQuorumEpoch(begin),
        Request::EndQuorumEpoch(end),
    ] {
        let effects = solo.request(request);
        assert_eq!(error_of(&effects), ErrorCode::InconsistentClusterId);
        assert_eq!(solo.replica.describe(), before);
    }
}

#[test]
fn an_answer_of_another_cluster_is_not_believed() {
    let (mut solo, effects) = follower();
    let (peer, correlation, _) = sends(&effects)[0];
    let mut response = solo.fetched(Vec::new());
    response.error = ErrorCode::InconsistentClusterId;
    response.leader_epoch = Epoch(99);
    response.leader_id = Some(OTHER);
    solo.answer(peer, correlation, Response::Fetch(response));
    assert_eq!(
        (solo.replica.epoch(), solo.replica.leader()),
        (Epoch(3), Some(PEER))
    );
}

#[test]
fn leaders_that_cannot_be_followed_are_refused() {
    let (mut solo, _) = follower();
    let before = solo.replica.describe();
    for leader_id in [ME, NodeId(-1), NodeId(77)] {
        let request = Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
            cluster_id: "test".to_owned(),
            voter: ME.into(),
            leader_id,
            leader_epoch: Epoch(8),
            leader_endpoint: None,
        });
        assert_eq!(error_of(&solo.request(request)), ErrorCode::InvalidRequest);
        assert_eq!(solo.replica.describe(), before);
    }
}

#[test]
fn epochs_that_nobody_can_have_reached_are_refused() {
    let (mut solo, effects) = follower();
    let before = solo.replica.describe();
    let request = |leader_epoch| {
        Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
            cluster_id: "test".to_owned(),
            voter: ME.into(),
            leader_id: OTHER,
            leader_epoch,
            leader_endpoint: None,
        })
    };
    let furthest = Epoch(3 + Epoch::LEAP_MAX);
    for epoch in [furthest.next(), Epoch(i32::MAX)] {
        let effects = solo.request(request(epoch));
        assert_eq!(error_of(&effects), ErrorCode::InvalidRequest, "{epoch}");
    }
    let (peer, correlation, _) = sends(&effects)[0];
    let mut response = solo.fetched(Vec::new());
    response.error = ErrorCode::FencedLeaderEpoch;
    response.leader_epoch = Epoch(i32::MAX);
    solo.answer(peer, correlation, Response::Fetch(response));
    assert_eq!(solo.replica.describe(), before);
    solo.request(request(furthest));
    assert_eq!(solo.replica.epoch(), furthest);
}

#[test]
#[should_panic(expected = "two leaders in epoch 3")]
fn a_second_leader_of_an_epoch_is_fatal() {
    let (mut solo, _) = follower();
    solo.request(Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
        cluster_id: "test".to_owned(),
        voter: ME.into(),
        leader_id: OTHER,
        leader_epoch: Epoch(3),
        leader_endpoint: None,
    }));
}

#[test]
fn fetches_that_no_correct_peer_sends_are_refused() {
    let mut solo = Solo::lead(None);
    let valid = solo.fetch_request(Offset(1));
    let mut nonsense = vec![valid; 4];
    nonsense[0].fetch_offset = Offset(-1);
    nonsense[1].last_fetched_epoch = Epoch(-1);
    nonsense[2].last_fetched_epoch = Epoch(9);
    nonsense[3].fetch_offset = Offset(i64::MIN);
    for request in nonsense {
        let (ticket, effects) = solo.fetch(request.clone());
        let (response, _) = fetch_reply(&effects, ticket).unwrap();
        assert_eq!(response.error, ErrorCode::InvalidRequest, "{request:?}");
    }
    let mut patient = solo.fetch_request(Offset(1));
    patient.max_wait_ms = u64::MAX;
    let (_, effects) = solo.fetch(patient.clone());
    assert!(
        effects
            .iter()
            .any(|effect| matches!(effect, Effect::Committed { .. }))
    );
    patient.high_watermark = Some(Offset(1));
    let (ticket, effects) = solo.fetch(patient);
    assert_eq!(fetch_reply(&effects, ticket), None);
    let effects = solo.tick_after(TIMERS.fetch_max_wait_ns);
    assert!(
        fetch_reply(&effects, ticket).is_some(),
        "no one waits longer than the leader allows"
    );
}

#[test]
fn answers_nobody_waits_for_are_dropped() {
    let (mut solo, effects) = follower();
    let (peer, correlation, _) = sends(&effects)[0];
    let response = |solo: &Solo| {
        let mut response = solo.fetched(Vec::new());
        response.leader_epoch = Epoch(50);
        Response::Fetch(response)
    };
    let unknown = response(&solo);
    solo.answer(peer, Correlation(correlation.0 + 1), unknown.clone());
    solo.answer(OTHER, correlation, unknown.clone());
    solo.answer(NodeId(99), correlation, unknown.clone());
    assert_eq!(solo.replica.epoch(), Epoch(3));
    // After the time allowed for it, even the right answer is too late.
    solo.tick_after(TIMERS.request_timeout_ns);
    solo.answer(peer, correlation, unknown);
    assert_eq!(solo.replica.epoch(), Epoch(3));
}

#[test]
fn an_answer_to_another_kind_of_question_is_dropped() {
    let (mut solo, effects) = follower();
    let (peer, correlation, _) = sends(&effects)[0];
    let response = solo.vote_response(true);
    let effects = solo.answer(peer, correlation, response);
    assert_eq!(solo.replica.role(), Role::Follower);
    assert!(
        sends(&effects).iter().all(|(next, _, _)| *next != peer),
        "it is left alone a while"
    );
}

/// The unfinished business of the original: it would fetch again as fast as the network allows.
#[test]
fn a_resigned_leader_is_not_asked_again_at_once() {
    let (mut solo, effects) = follower();
    let (peer, correlation, _) = sends(&effects)[0];
    let mut response = solo.fetched(Vec::new());
    response.error = ErrorCode::NotLeaderOrFollower;
    let effects = solo.answer(peer, correlation, Response::Fetch(response));
    assert!(sends(&effects).iter().all(|(next, _, _)| *next != peer));
    assert_eq!(solo.replica.role(), Role::Follower);
}

#[test]
fn a_follower_whose_leader_is_unreachable_looks_for_a_new_one() {
    let (mut solo, effects) = follower();
    let (peer, correlation, _) = sends(&effects)[0];
    let answer = PeerAnswer::Failed;
    let effects = solo.step(Input::PeerAnswer {
        peer,
        correlation,
        answer,
    });
    let (other, correlation, request) = sends(&effects)[0];
    assert!(other == OTHER && matches!(request, Request::Fetch(_)));
    let mut response = solo.fetched(Vec::new());
    (response.error, response.leader_epoch) = (ErrorCode::FencedLeaderEpoch, Epoch(4));
    response.leader_id = Some(OTHER);
    let effects = solo.answer(other, correlation, Response::Fetch(response));
    assert_eq!(
        (solo.replica.role(), solo.replica.leader()),
        (Role::Follower, Some(OTHER))
    );
    assert_eq!(
        sends(&effects)[0].0,
        OTHER,
        "a new leader is fetched from at once"
    );
}

#[test]
fn a_replica_that_knows_no_leader_finds_one_by_fetching() {
    let (mut solo, effects) = Solo::start(configuration(3, None), Recovered::default());
    assert_eq!(solo.replica.role(), Role::Unattached);
    let fetches = sends(&effects);
    assert_eq!(fetches.len(), 1, "one at a time");
    let (peer, correlation, Request::Fetch(fetch)) = fetches[0] else {
        panic!("{fetches:?}")
    };
    assert_eq!(fetch.read_round, 0, "it has been told of none");
    let mut response = solo.fetched(Vec::new());
    (response.error, response.leader_epoch) = (ErrorCode::FencedLeaderEpoch, Epoch(6));
    solo.answer(peer, correlation, Response::Fetch(response));
    assert_eq!(
        (solo.replica.role(), solo.replica.leader()),
        (Role::Follower, Some(PEER))
    );
    assert_eq!(solo.replica.epoch(), Epoch(6));
}

#[test]
fn no_clock_reading_breaks_a_replica() {
    let readings = [0, u64::MAX, 1, u64::MAX - 1, 5_000 * MS, 0, u64::MAX / 2, 7];
    let mut leader = Solo::lead(None);
    let (mut follower, _) = follower();
    let (mut fresh, _) = Solo::start(configuration(3, None), Recovered::default());
    for reading in readings.iter().cycle().take(50) {
        for solo in [&mut leader, &mut follower, &mut fresh] {
            solo.now_ns = *reading;
            solo.step(Input::Tick);
            let vote = solo.vote_request(solo.replica.epoch(), true);
            solo.request(Request::Vote(vote));
            let request = solo.fetch_request(Offset(0));
            solo.fetch(request);
            solo.replica.describe();
            solo.replica.next_deadline_ns();
        }
    }
}

/// A clock that is set back delays what is due by as much as it was set back, not for ever.
#[test]
fn a_clock_set_back_delays_a_node_by_no_more_than_the_jump() {
    let mut cluster = Cluster::new(3, 6, None);
    let leader = cluster.await_leader();
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    let jump_ns = 3_000 * MS;
    for id in cluster.ids() {
        cluster.nodes.get_mut(&id).unwrap().clock_offset_ns -= jump_ns as i64;
    }
    // What needs no clock goes on.
    cluster.write(leader, b"during");
    cluster.power_cut(leader);
    let limit_ns = jump_ns + TIMERS.fetch_timeout_ns + 6 * TIMERS.election_timeout_ns;
    cluster.run_until("a new leader", limit_ns, |cluster| {
        cluster.settled_leader().is_some_and(|id| id != leader)
    });
    cluster.assert_safe();
}

#[test]
fn clocks_set_forward_cost_elections_but_no_data() {
    let mut cluster = Cluster::new(3, 6, None);
    for round in 0..20_u8 {
        let leader = cluster.await_leader();
        cluster.write(leader, &[round]);
        let jumping = cluster.ids()[usize::from(round % 3)];
        cluster.nodes.get_mut(&jumping).unwrap().clock_offset_ns += (10_000 * MS) as i64;
        cluster.run_for(50 * MS);
    }
    cluster.run_until("all caught up", 2_000 * MS, Cluster::is_caught_up);
    cluster.assert_safe();
}

#[test]
fn an_idle_cluster_stays_quiet() {
    let mut cluster = Cluster::new(3, 3, None);
    cluster.await_leader();
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    let before = cluster.requests_sent;
    cluster.run_for(10_000 * MS);
    // Two followers, each with a fetch that waits 50 ms plus the way there and back.
    let sent = cluster.requests_sent - before;
    assert!(
        (200..=450).contains(&sent),
        "{sent} requests in ten seconds"
    );
}

/// A leader that resigned must not be asked as fast as the network allows (seeded bug B64).
#[test]
fn a_cluster_without_a_leader_stays_quiet() {
    let mut cluster = Cluster::new(3, 3, None);
    let leader = cluster.await_leader();
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    let survivor = cluster.ids().into_iter().find(|&id| id != leader).unwrap();
    for id in cluster.ids().into_iter().filter(|&id| id != survivor) {
        cluster.power_cut(id);
    }
    let before = cluster.requests_sent;
    cluster.run_for(10_000 * MS);
    // At most one attempt per back-off and peer, whatever it is looking for.
    let sent = cluster.requests_sent - before;
    let most = 2 * 10_000 * MS / TIMERS.retry_backoff_ns;
    assert!(sent <= most, "{sent} requests in ten seconds");
}
