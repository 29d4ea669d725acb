//! Owns the scenarios of electing, keeping and giving up a leader.
//! Never lets a scenario pass without looking at the safety properties too.

use node::ids::{Epoch, NodeId, Offset};
use node::message::{
    BeginQuorumEpochRequest, EndQuorumEpochRequest, ErrorCode, QuorumEpochResponse, Request,
    Response, VoteResponse,
};
use node::raft::{Effect, EpochStart, Input, QuorumState, Recovered, Role};
use node::trace::TraceEvent;

use crate::cluster::{Cluster, MS, TIMERS};
use crate::solo::{ME, OTHER, PEER, Solo, configuration, sends, vote_reply};

/// A restarted replica with one record of epoch 3 in its log.
fn restart(quorum_state: QuorumState) -> (Solo, Vec<Effect>) {
    let recovered = Recovered {
        quorum_state: Some(quorum_state),
        log_end: Offset(1),
        epochs: vec![EpochStart {
            epoch: Epoch(3),
            start_offset: Offset(0),
        }],
        ..Recovered::default()
    };
    Solo::start(configuration(3, None), recovered)
}

fn in_epoch_3(leader: Option<NodeId>, voted_for: Option<NodeId>) -> QuorumState {
    QuorumState {
        epoch: Epoch(3),
        leader,
        voted_for: voted_for.map(Into::into),
    }
}

#[test]
fn every_cluster_size_elects_one_leader_and_commits_its_first_record() {
    for voter_count in 1..=5 {
        let mut cluster = Cluster::new(voter_count, 7, None);
        let leader = cluster.await_leader();
        cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
        assert_eq!(cluster.history.committed.len(), 1);
        let batch = &cluster.history.committed[0];
        assert!(batch.is_control());
        let (_, payload) = batch.records().next().unwrap();
        let record: serde_json::Value = serde_json::from_slice(payload).unwrap();
        assert_eq!(record["type"], "leader-change");
        assert_eq!(record["leader"], leader.0);
        assert_eq!(
            record["voters"].as_array().unwrap().len(),
            voter_count as usize
        );
        let granting = record["granting_voters"].as_array().unwrap().len();
        assert!(granting > voter_count as usize / 2, "{record}");
        for replica in cluster.running() {
            assert_eq!(
                (replica.leader(), replica.epoch()),
                (Some(leader), Epoch(1))
            );
        }
        cluster.assert_safe();
    }
}

#[test]
fn an_undisturbed_leader_leads_for_good() {
    let mut cluster = Cluster::new(5, 3, None);
    let leader = cluster.await_leader();
    let epoch = cluster.replica(leader).epoch();
    cluster.run_for(20_000 * MS);
    assert_eq!(cluster.settled_leader(), Some(leader));
    assert_eq!(cluster.replica(leader).epoch(), epoch);
    cluster.assert_safe();
}

#[test]
fn a_voter_that_was_cut_off_disturbs_nobody_when_it_returns() {
    let mut cluster = Cluster::new(3, 11, None);
    let leader = cluster.await_leader();
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    let epoch = cluster.replica(leader).epoch();
    let cut_off = cluster.ids().into_iter().find(|&id| id != leader).unwrap();
    cluster.isolate(cut_off);
    cluster.run_until("it notices", 2 * TIMERS.fetch_timeout_ns, |cluster| {
        cluster.replica(cut_off).role() == Role::Prospective
    });
    cluster.run_for(10 * TIMERS.fetch_timeout_ns);
    assert_eq!(cluster.replica(cut_off).epoch(), epoch);
    cluster.heal();
    cluster.run_for(10 * TIMERS.fetch_timeout_ns);
    assert_eq!(cluster.settled_leader(), Some(leader));
    assert_eq!(cluster.replica(leader).epoch(), epoch);
    assert!(cluster.is_caught_up());
    cluster.assert_safe();
}

/// The topology in which elections without pre-vote go on for ever (KIP-996): only the links
/// A-C, C-D, B-D, C-E and D-E work. Once C, D or E leads, nothing may ever change.
#[test]
fn a_leader_that_reaches_a_majority_stays_in_a_partial_network() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(5, seed, None);
        let ids = cluster.ids();
        let works = [(1, 3), (3, 4), (2, 4), (3, 5), (4, 5)];
        for &left in &ids {
            for &right in &ids {
                if left < right && !works.contains(&(left.0, right.0)) {
                    cluster.cut_between(left, right);
                }
            }
        }
        let leader = cluster.await_leader();
        let epoch = cluster.replica(leader).epoch();
        assert!(
            [3, 4, 5].contains(&leader.0),
            "{leader} cannot reach a majority"
        );
        cluster.run_for(10_000 * MS);
        assert_eq!(cluster.settled_leader(), Some(leader), "seed {seed}");
        assert_eq!(cluster.replica(leader).epoch(), epoch, "seed {seed}");
        cluster.assert_safe();
    }
}

#[test]
fn a_killed_leader_is_replaced() {
    let mut cluster = Cluster::new(3, 4, None);
    let first = cluster.await_leader();
    cluster.write(first, b"before");
    cluster.power_cut(first);
    let second = cluster.await_leader();
    assert_ne!(second, first);
    cluster.write(second, b"after");
    cluster.restart(first);
    cluster.run_until("all caught up", 1_000 * MS, Cluster::is_caught_up);
    assert_eq!(cluster.settled_leader(), Some(second));
    cluster.assert_safe();
}

#[test]
fn a_leader_that_nobody_fetches_from_resigns_within_one_and_a_half_fetch_timeouts() {
    let mut cluster = Cluster::new(3, 9, None);
    let leader = cluster.await_leader();
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    // Followers hear it, but it does not hear them.
    for other in cluster.ids() {
        cluster.cut_link(other, leader);
    }
    let cut_at_ns = cluster.now_ns;
    cluster.run_until("resignation", 400 * MS, |cluster| {
        cluster.replica(leader).role() == Role::Resigned
    });
    let lasted_ns = cluster.now_ns - cut_at_ns;
    assert!(lasted_ns <= 3 * TIMERS.fetch_timeout_ns / 2, "{lasted_ns}");
    assert!(lasted_ns >= TIMERS.fetch_timeout_ns, "{lasted_ns}");
    assert_eq!(cluster.replica(leader).high_watermark(), None);
    assert_eq!(cluster.replica(leader).leader(), None);
    cluster.run_until("a new leader", 2_000 * MS, |cluster| {
        cluster.settled_leader().is_some_and(|id| id != leader)
    });
    cluster.assert_safe();
}

/// KAFKA-16144.
#[test]
fn a_single_voter_never_resigns_for_lack_of_fetches() {
    let mut cluster = Cluster::new(1, 1, None);
    let leader = cluster.await_leader();
    cluster.run_for(5_000 * MS);
    assert_eq!(cluster.replica(leader).role(), Role::Leader);
    assert_eq!(cluster.replica(leader).epoch(), Epoch(1));
    cluster.write(leader, b"alone");
}

/// KAFKA-10677: without failing the waiting fetches, followers would take a fetch timeout to notice.
#[test]
fn a_graceful_resignation_is_followed_by_an_election_at_once() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(3, seed, None);
        let leader = cluster.await_leader();
        cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
        cluster.run_for(20 * MS);
        cluster.shut_down(leader);
        assert!(!cluster.replica(leader).is_ready_to_stop());
        // One voter and the resigned leader are a majority for the best successor.
        cluster.run_until("a new leader", 60 * MS, |cluster| {
            cluster.settled_leader().is_some_and(|id| id != leader)
        });
        assert!(cluster.replica(leader).is_ready_to_stop());
        assert_eq!(cluster.replica(leader).next_deadline_ns(), u64::MAX);
        cluster.assert_safe();
    }
}

/// Five voters may need a second attempt: followers that just fetched refuse the first pre-vote.
#[test]
fn a_graceful_resignation_of_five_is_followed_by_an_election_soon() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(5, seed, None);
        let leader = cluster.await_leader();
        cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
        cluster.shut_down(leader);
        let limit_ns = TIMERS.election_backoff_max_ns + 4 * TIMERS.election_timeout_ns;
        cluster.run_until("a new leader", limit_ns, |cluster| {
            cluster.settled_leader().is_some_and(|id| id != leader)
        });
        cluster.assert_safe();
    }
}

#[test]
fn a_node_that_stands_down_starts_no_elections() {
    let mut cluster = Cluster::new(3, 2, None);
    let leader = cluster.await_leader();
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    let epoch = cluster.replica(leader).epoch();
    for id in cluster.ids() {
        if id != leader {
            cluster.shut_down(id);
            assert!(cluster.replica(id).is_ready_to_stop());
            assert_eq!(cluster.replica(id).next_deadline_ns(), u64::MAX);
        }
    }
    cluster.power_cut(leader);
    cluster.run_for(5_000 * MS);
    assert!(
        cluster
            .running()
            .all(|r| (r.role(), r.epoch()) == (Role::Follower, epoch))
    );
    cluster.assert_safe();
}

/// KAFKA-10527 and KAFKA-10661: neither leading on nor voting again is safe.
#[test]
fn a_restarted_leader_neither_leads_nor_votes_in_its_own_epoch() {
    let (mut solo, effects) = restart(in_epoch_3(Some(ME), None));
    assert_eq!(
        (solo.replica.role(), solo.replica.epoch()),
        (Role::Resigned, Epoch(3))
    );
    assert_eq!(
        (solo.replica.leader(), solo.replica.high_watermark()),
        (None, None)
    );
    let ends = sends(&effects);
    assert_eq!(ends.len(), 2);
    assert!(
        ends.iter()
            .all(|(_, _, request)| matches!(request, Request::EndQuorumEpoch(_)))
    );
    let vote = solo.vote_request(Epoch(3), false);
    let refused = vote_reply(&solo.request(Request::Vote(vote)));
    assert!(!refused.vote_granted);
    // Asking is free: it helps whoever would come after it.
    let mut pre_vote = solo.vote_request(Epoch(3), true);
    pre_vote.last_epoch = Epoch(3);
    assert!(vote_reply(&solo.request(Request::Vote(pre_vote))).vote_granted);
    // Once its timer runs out it moves on, and only then may it vote.
    solo.now_ns += 2 * TIMERS.election_timeout_ns;
    let effects = solo.step(Input::Tick);
    let expected = QuorumState {
        epoch: Epoch(4),
        leader: None,
        voted_for: None,
    };
    assert_eq!(effects.first(), Some(&Effect::Persist(expected)));
    assert_eq!(
        (solo.replica.role(), solo.replica.epoch()),
        (Role::Unattached, Epoch(4))
    );
    let vote = solo.vote_request(Epoch(4), false);
    assert!(vote_reply(&solo.request(Request::Vote(vote))).vote_granted);
}

#[test]
fn a_leader_cut_from_power_and_restarted_at_once_loses_its_epoch_but_nothing_committed() {
    for seed in 0..20 {
        let mut cluster = Cluster::new(3, seed, None);
        let leader = cluster.await_leader();
        cluster.write(leader, b"committed");
        let epoch = cluster.replica(leader).epoch();
        cluster.propose(leader, b"maybe lost");
        cluster.power_cut(leader);
        cluster.restart(leader);
        assert_eq!(cluster.replica(leader).role(), Role::Resigned);
        assert_eq!(cluster.replica(leader).epoch(), epoch);
        let next = cluster.await_leader();
        assert!(cluster.replica(next).epoch() > epoch);
        cluster.write(next, b"after");
        cluster.run_until("all caught up", 1_000 * MS, Cluster::is_caught_up);
        cluster.assert_safe();
    }
}

#[test]
fn a_restarted_candidate_stands_again_in_its_epoch() {
    let file = QuorumState {
        epoch: Epoch(4),
        leader: None,
        voted_for: Some(ME.into()),
    };
    let (mut solo, effects) = restart(file);
    assert_eq!(
        (solo.replica.role(), solo.replica.epoch()),
        (Role::Candidate, Epoch(4))
    );
    assert!(
        !effects
            .iter()
            .any(|effect| matches!(effect, Effect::Persist(_)))
    );
    let vote = solo.vote_request(Epoch(4), false);
    assert!(!vote_reply(&solo.request(Request::Vote(vote))).vote_granted);
    let (peer, correlation, _) = sends(&effects)[0];
    let response = solo.vote_response(true);
    solo.answer(peer, correlation, response);
    assert_eq!(
        (solo.replica.role(), solo.replica.epoch()),
        (Role::Leader, Epoch(4))
    );
}

#[test]
fn a_vote_is_durable_before_it_is_given_and_given_once() {
    let (mut solo, _) = restart(in_epoch_3(None, None));
    let mut vote = solo.vote_request(Epoch(4), false);
    vote.last_epoch = Epoch(3);
    vote.last_offset = Offset(1);
    let effects = solo.request(Request::Vote(vote.clone()));
    let granted = QuorumState {
        epoch: Epoch(4),
        leader: None,
        voted_for: Some(PEER.into()),
    };
    let persisted = effects
        .iter()
        .position(|effect| *effect == Effect::Persist(granted));
    let traced = effects.iter().position(|effect| {
        matches!(effect, Effect::Trace(traced) if matches!(traced.event, TraceEvent::VotePersisted { .. }))
    });
    let replied = effects
        .iter()
        .position(|effect| matches!(effect, Effect::Reply { .. }));
    assert!(
        persisted.is_some() && persisted < traced && traced < replied,
        "{effects:?}"
    );
    assert!(vote_reply(&effects).vote_granted);
    // The same candidate asks again, the other comes too late.
    let again = solo.request(Request::Vote(vote.clone()));
    assert!(vote_reply(&again).vote_granted);
    assert!(
        !again
            .iter()
            .any(|effect| matches!(effect, Effect::Persist(_)))
    );
    vote.replica.id = OTHER;
    assert!(!vote_reply(&solo.request(Request::Vote(vote.clone()))).vote_granted);
    // A vote survives a restart.
    let (mut solo, _) = restart(granted);
    assert!(!vote_reply(&solo.request(Request::Vote(vote))).vote_granted);
}

/// A vote answer does not say which question it answers, so the question must be remembered.
#[test]
fn a_late_pre_vote_is_not_counted_as_a_vote() {
    let (mut solo, _) = Solo::start(configuration(5, None), Recovered::default());
    solo.now_ns += 2 * TIMERS.election_timeout_ns;
    let effects = solo.step(Input::Tick);
    let asked: Vec<_> = sends(&effects)
        .into_iter()
        .filter(|(_, _, request)| matches!(request, Request::Vote(vote) if vote.pre_vote))
        .map(|(peer, correlation, _)| (peer, correlation))
        .collect();
    assert_eq!(asked.len(), 4);
    for &(peer, correlation) in &asked[..2] {
        let response = solo.vote_response(true);
        solo.answer(peer, correlation, response);
    }
    assert_eq!(
        (solo.replica.role(), solo.replica.epoch()),
        (Role::Candidate, Epoch(1))
    );
    for &(peer, correlation) in &asked[2..] {
        let response = solo.vote_response(true);
        solo.answer(peer, correlation, response);
    }
    assert_eq!(solo.replica.role(), Role::Candidate);
}

#[test]
fn a_pre_vote_of_a_later_epoch_moves_even_a_leader() {
    let mut solo = Solo::lead(None);
    let epoch = Epoch(solo.replica.epoch().0 + 5);
    let request = solo.vote_request(epoch, true);
    let effects = solo.request(Request::Vote(request));
    assert_eq!(
        (solo.replica.role(), solo.replica.epoch()),
        (Role::Unattached, epoch)
    );
    assert_eq!(
        effects
            .iter()
            .filter(|e| **e == Effect::LeadershipLost)
            .count(),
        1
    );
    let moved = QuorumState {
        epoch,
        leader: None,
        voted_for: None,
    };
    assert_eq!(effects.first(), Some(&Effect::Persist(moved)));
}

/// KAFKA-17641: a follower that never reached its leader is no evidence that the leader lives.
#[test]
fn a_follower_grants_pre_votes_until_its_first_successful_fetch() {
    let (mut solo, effects) = restart(in_epoch_3(Some(PEER), None));
    assert_eq!(solo.replica.role(), Role::Follower);
    let mut pre_vote = solo.vote_request(Epoch(3), true);
    pre_vote.replica.id = OTHER;
    pre_vote.last_epoch = Epoch(3);
    assert!(vote_reply(&solo.request(Request::Vote(pre_vote.clone()))).vote_granted);
    let (peer, correlation, request) = sends(&effects)[0];
    assert!(peer == PEER && matches!(request, Request::Fetch(_)));
    let response = Response::Fetch(solo.fetched(Vec::new()));
    solo.answer(peer, correlation, response);
    assert!(!vote_reply(&solo.request(Request::Vote(pre_vote))).vote_granted);
}

#[test]
fn an_announcement_does_not_keep_a_follower_from_giving_up() {
    let (mut solo, _) = restart(in_epoch_3(Some(PEER), None));
    let until_ns = solo.now_ns + TIMERS.fetch_timeout_ns;
    while solo.now_ns < until_ns {
        let request = Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
            cluster_id: "test".to_owned(),
            voter: ME.into(),
            leader_id: PEER,
            leader_epoch: Epoch(3),
            leader_endpoint: None,
        });
        solo.request(request);
        solo.now_ns += 10 * MS;
    }
    solo.step(Input::Tick);
    assert_eq!(solo.replica.role(), Role::Prospective);
}

/// KAFKA-17642: the vote of the epoch must outlive learning of the epoch's leader.
#[test]
fn a_vote_is_kept_when_the_leader_of_its_epoch_becomes_known() {
    let (mut solo, _) = restart(in_epoch_3(None, Some(OTHER)));
    let request = Request::BeginQuorumEpoch(BeginQuorumEpochRequest {
        cluster_id: "test".to_owned(),
        voter: ME.into(),
        leader_id: PEER,
        leader_epoch: Epoch(3),
        leader_endpoint: None,
    });
    let effects = solo.request(request);
    let kept = in_epoch_3(Some(PEER), Some(OTHER));
    assert_eq!(effects.first(), Some(&Effect::Persist(kept)));
}

/// KAFKA-16536: an announcement that got lost is repeated, but only to those who do not fetch.
#[test]
fn announcements_are_repeated_to_silent_voters_only() {
    let mut solo = Solo::lead(None);
    let end = solo.replica.log_end();
    let mut announced = Vec::new();
    for _ in 0..30 {
        let request = solo.fetch_request(end);
        solo.fetch(request);
        let effects = solo.tick_after(20 * MS);
        for (peer, correlation, request) in sends(&effects) {
            assert!(matches!(request, Request::BeginQuorumEpoch(_)));
            announced.push((peer, correlation));
        }
        // Nothing ever comes back from the other voter.
    }
    let others = announced.iter().filter(|(peer, _)| *peer == OTHER).count();
    assert!((2..=6).contains(&others), "{announced:?}");
    let later = announced.iter().filter(|(peer, _)| *peer == PEER).count();
    assert_eq!(later, 0, "{announced:?}");
}

#[test]
fn the_best_successor_gives_up_on_a_resigned_leader_first() {
    let resign = |successors: Vec<NodeId>| {
        let (mut solo, _) = restart(in_epoch_3(Some(PEER), None));
        let request = Request::EndQuorumEpoch(EndQuorumEpochRequest {
            cluster_id: "test".to_owned(),
            leader_id: PEER,
            leader_epoch: Epoch(3),
            preferred_successors: successors.into_iter().map(Into::into).collect(),
            leader_endpoint: None,
        });
        solo.request(request);
        let first = solo.replica.role();
        solo.tick_after(TIMERS.election_backoff_max_ns / 2);
        let half = solo.replica.role();
        solo.tick_after(TIMERS.election_backoff_max_ns / 2);
        (first, half, solo.replica.role() == Role::Prospective)
    };
    let (follower, prospective) = (Role::Follower, Role::Prospective);
    assert_eq!(resign(vec![ME, OTHER]), (prospective, prospective, true));
    assert_eq!(resign(vec![OTHER, ME]), (follower, prospective, true));
    assert_eq!(resign(vec![OTHER]), (follower, follower, true));
}

/// Both an announcement and an answer may be the first news of a leader of the present epoch.
#[test]
fn a_candidate_yields_to_the_leader_of_its_epoch() {
    let file = QuorumState {
        epoch: Epoch(4),
        leader: None,
        voted_for: Some(ME.into()),
    };
    let (mut solo, effects) = restart(file);
    let (peer, correlation, _) = sends(&effects)[0];
    let response = Response::Vote(VoteResponse {
        error: ErrorCode::None,
        leader_id: Some(OTHER),
        leader_epoch: Epoch(4),
        vote_granted: false,
        leader_endpoint: None,
    });
    solo.answer(peer, correlation, response);
    assert_eq!(
        (solo.replica.role(), solo.replica.leader()),
        (Role::Follower, Some(OTHER))
    );
}

/// The protocol remembers who led the epoch; clients are sent only to a leader that answers.
#[test]
fn a_leader_that_fell_silent_is_named_to_no_client() {
    let file = in_epoch_3(Some(PEER), None);
    let (mut solo, effects) = restart(file);
    let standing = |solo: &Solo| (solo.replica.leader(), solo.replica.serving_leader());
    assert_eq!(solo.replica.role(), Role::Follower);
    assert_eq!(standing(&solo), (Some(PEER), None), "not heard of yet");
    let (peer, correlation, _) = sends(&effects)[0];
    let response = Response::Fetch(solo.fetched(Vec::new()));
    solo.answer(peer, correlation, response);
    assert_eq!(standing(&solo), (Some(PEER), Some(PEER)));
    let effects = solo.tick_after(TIMERS.fetch_timeout_ns);
    assert_eq!(solo.replica.role(), Role::Prospective);
    assert_eq!(standing(&solo), (Some(PEER), None));
    let (ticket, refused) = solo.propose(b"command");
    assert!(refused.iter().any(|effect| matches!(
        effect,
        Effect::Refused { ticket: to, refusal } if *to == ticket && refusal.leader.is_none()
    )));
    for (peer, correlation, _) in sends(&effects) {
        let response = solo.vote_response(false);
        solo.answer(peer, correlation, response);
    }
    assert_eq!(solo.replica.role(), Role::Follower, "it follows again");
    assert_eq!(standing(&solo), (Some(PEER), None), "in vain so far");
}

#[test]
fn a_resigned_leader_tells_each_voter_until_it_answers() {
    let (mut solo, effects) = restart(in_epoch_3(Some(ME), None));
    let first: Vec<_> = sends(&effects)
        .into_iter()
        .map(|(p, c, _)| (p, c))
        .collect();
    let response = |epoch| {
        Response::EndQuorumEpoch(QuorumEpochResponse {
            error: ErrorCode::None,
            leader_id: Some(ME),
            leader_epoch: epoch,
            leader_endpoint: None,
        })
    };
    solo.answer(first[0].0, first[0].1, response(Epoch(3)));
    solo.step(Input::PeerAnswer {
        peer: first[1].0,
        correlation: first[1].1,
        answer: node::raft::PeerAnswer::Failed,
    });
    let effects = solo.tick_after(TIMERS.retry_backoff_ns);
    let again: Vec<_> = sends(&effects)
        .into_iter()
        .map(|(peer, _, _)| peer)
        .collect();
    assert_eq!(again, [first[1].0]);
}
