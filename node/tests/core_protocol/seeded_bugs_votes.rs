//! Owns the scenarios of seeded bugs in elections and pre-elections.
//! Never looks at what is done with a log after the vote.

use node::ids::{Epoch, NodeId, Offset};
use node::message::{ErrorCode, Request, Response, VoteResponse};
use node::mutants::Bug;
use node::raft::{Correlation, Effect, Role};

use crate::cluster::{Cluster, MS};
use crate::seeded_bugs::{compare, follower, found};
use crate::solo::{OTHER, PEER, Solo, configuration, fetch_reply, sends, vote_reply};

/// The old leader has twenty records that nobody else has, the others five that are committed; then
/// the new leader dies. What is wrong after the next election, and whether the old leader won.
fn long_tail_against_short_truth(bug: Option<Bug>) -> (String, bool) {
    let mut cluster = Cluster::new(3, 4, bug);
    let old = cluster.await_leader();
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    cluster.isolate(old);
    for number in 0..20_u8 {
        cluster.propose(old, &[number]);
    }
    cluster.run_until("a new leader", 2_000 * MS, |cluster| {
        cluster.settled_leader().is_some_and(|id| id != old)
    });
    let new = cluster.settled_leader().unwrap();
    for number in 0..5_u8 {
        cluster.write(new, &[b'n', number]);
    }
    cluster.run_for(100 * MS);
    cluster.power_cut(new);
    cluster.heal();
    let epoch = cluster.running().map(|r| r.epoch()).max().unwrap();
    cluster.run_until("a third leader", 5_000 * MS, |cluster| {
        cluster
            .running()
            .any(|r| r.role() == Role::Leader && r.epoch() > epoch)
    });
    let winner = cluster
        .running()
        .find(|r| r.role() == Role::Leader && r.epoch() > epoch);
    let old_won = winner.unwrap().id() == old;
    (cluster.history.violations.join("; "), old_won)
}

#[test]
fn a_long_old_log_wins_if_only_lengths_are_compared() {
    let (right, wrong) = compare(Bug::VoteCompareOffsetOnly, long_tail_against_short_truth);
    assert_eq!(right, (String::new(), false));
    assert!(
        wrong.1 && wrong.0.contains("committed record lost"),
        "{wrong:?}"
    );
}

/// One follower misses ten records; then the leader dies. What is wrong after the next election.
fn a_laggard_stands_for_election(bug: Option<Bug>, seed: u64) -> String {
    let mut cluster = Cluster::new(3, seed, bug);
    let leader = cluster.await_leader();
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    let mut followers = cluster.ids();
    followers.retain(|&id| id != leader);
    let [laggard, other] = followers[..] else {
        panic!("{followers:?}")
    };
    cluster.isolate(laggard);
    for number in 0..10_u8 {
        cluster.write(leader, &[number]);
    }
    cluster.run_for(300 * MS);
    cluster.power_cut(leader);
    // After its restart it has not reached the leader yet, so it does not stand in for it.
    cluster.power_cut(other);
    cluster.restart(other);
    cluster.heal();
    let epoch = cluster.running().map(|r| r.epoch()).max().unwrap();
    cluster.run_until("a new leader", 5_000 * MS, |cluster| {
        cluster
            .running()
            .any(|r| r.role() == Role::Leader && r.epoch() > epoch)
    });
    cluster.history.violations.join("; ")
}

#[test]
fn a_laggard_wins_if_logs_are_not_compared() {
    for bug in [Bug::VoteNoLogCheck, Bug::TruncateBelowHighWatermark] {
        let (right, wrong) = compare(bug, |bug| {
            (0..6)
                .map(|seed| a_laggard_stands_for_election(bug, seed))
                .collect::<Vec<_>>()
        });
        assert_eq!(right.concat(), "");
        let lost = |text: &&String| text.contains("committed record lost");
        assert!(wrong.iter().filter(lost).count() >= 2, "{wrong:?}");
    }
}

#[test]
fn equal_logs_elect_nobody_if_voters_want_longer_ones() {
    let (right, wrong) = compare(Bug::VoteStrictlyGreater, |bug| {
        let mut cluster = Cluster::new(3, 1, bug);
        cluster.run_for(5_000 * MS);
        cluster.settled_leader().is_some()
    });
    assert_eq!((right, wrong), (true, false));
}

/// A prospective replica of three, and its questions to `PEER` and `OTHER`.
fn prospective(bug: Option<Bug>) -> (Solo, Vec<(NodeId, Correlation)>) {
    let (mut solo, _) = Solo::start(configuration(3, bug), found(3, None, &[(3, 0)], 2));
    let mut asked = Vec::new();
    while asked.is_empty() {
        let effects = solo.tick_at_deadline();
        let votes = sends(&effects).into_iter();
        asked = votes
            .filter(|(_, _, request)| matches!(request, Request::Vote(_)))
            .map(|(peer, correlation, _)| (peer, correlation))
            .collect();
    }
    (solo, asked)
}

#[test]
fn a_late_pre_vote_elects_a_leader_if_it_counts_as_a_vote() {
    let (right, wrong) = compare(Bug::PreVoteCountedAsVote, |bug| {
        let (mut solo, asked) = prospective(bug);
        let [(PEER, first), (OTHER, second)] = asked[..] else {
            panic!("{asked:?}")
        };
        let granted = solo.vote_response(true);
        solo.answer(PEER, first, granted.clone());
        assert_eq!(solo.replica.role(), Role::Candidate);
        solo.answer(OTHER, second, granted);
        solo.replica.role()
    });
    assert_eq!((right, wrong), (Role::Candidate, Role::Leader));
}

/// A follower is cut off for a while and comes back.
#[test]
fn a_cut_off_follower_raises_the_epoch_if_it_does_not_ask_first() {
    let (right, wrong) = compare(Bug::NoPreVote, |bug| {
        let mut cluster = Cluster::new(3, 9, bug);
        let leader = cluster.await_leader();
        cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
        let epoch = cluster.replica(leader).epoch();
        let follower = cluster.ids().into_iter().find(|&id| id != leader).unwrap();
        cluster.isolate(follower);
        cluster.run_for(2_000 * MS);
        cluster.heal();
        cluster.run_for(1_000 * MS);
        cluster.assert_safe();
        let now = cluster.running().map(|r| r.epoch()).max().unwrap();
        now.0 - epoch.0
    });
    assert_eq!(right, 0, "nobody noticed");
    assert!(wrong >= 5, "{wrong}");
}

/// KAFKA-17641: a follower that never reached its leader is no evidence that the leader lives.
#[test]
fn a_follower_without_a_fetch_refuses_if_that_does_not_matter() {
    let (right, wrong) = compare(Bug::PreVoteFollowerAlwaysRejects, |bug| {
        let (mut solo, _) = follower(bug, &[(1, 0)], 10);
        let mut question = solo.vote_request(Epoch(9), true);
        question.replica.id = OTHER;
        vote_reply(&solo.request(Request::Vote(question))).vote_granted
    });
    assert_eq!((right, wrong), (true, false));
}

#[test]
fn a_later_epoch_is_not_learned_if_pre_votes_do_not_tell() {
    let (right, wrong) = compare(Bug::PreVoteNoEpochAdopt, |bug| {
        let (mut asked_one, asked) = prospective(bug);
        let question = asked_one.vote_request(Epoch(8), true);
        asked_one.request(Request::Vote(question));
        let (mut asking_one, _) = prospective(bug);
        let answer = Response::Vote(VoteResponse {
            error: ErrorCode::None,
            leader_id: None,
            leader_epoch: Epoch(8),
            vote_granted: false,
            leader_endpoint: None,
        });
        asking_one.answer(PEER, asked[0].1, answer);
        (asked_one.replica.epoch(), asking_one.replica.epoch())
    });
    assert_eq!(right, (Epoch(8), Epoch(8)));
    assert_eq!(wrong, (Epoch(3), Epoch(3)));
}

/// The other voter grants pre-votes, but no votes: a split vote.
#[test]
fn a_candidate_waits_for_ever_without_a_timeout() {
    let (right, wrong) = compare(Bug::CandidateNoTimeout, |bug| {
        let (mut solo, asked) = prospective(bug);
        let granted = solo.vote_response(true);
        solo.answer(PEER, asked[0].1, granted);
        assert_eq!(solo.replica.role(), Role::Candidate);
        for _ in 0..50 {
            solo.tick_after(100 * MS);
            if solo.replica.role() != Role::Candidate {
                break;
            }
        }
        solo.replica.role()
    });
    assert_eq!((right, wrong), (Role::Prospective, Role::Candidate));
}

#[test]
fn another_cluster_is_served_if_its_id_does_not_matter() {
    let (right, wrong) = compare(Bug::ClusterIdSkip, |bug| {
        let mut solo = Solo::lead(bug);
        let mut fetch = solo.fetch_request(Offset(0));
        fetch.last_fetched_epoch = Epoch(0);
        fetch.cluster_id = "elsewhere".to_owned();
        let (ticket, effects) = solo.fetch(fetch);
        let (response, from) = fetch_reply(&effects, ticket).expect("answered at once");
        (response.error, from)
    });
    assert_eq!(right, (ErrorCode::InconsistentClusterId, None));
    assert_eq!(wrong, (ErrorCode::None, Some(Offset(0))));
}

#[test]
fn a_peer_that_does_not_lead_is_asked_again_at_once_without_a_pause() {
    let (right, wrong) = compare(Bug::NoRetryBackoff, |bug| {
        let (mut solo, mut correlation) = follower(bug, &[(1, 0)], 10);
        let mut asked_count = 0;
        for _ in 0..20 {
            let refused = node::message::FetchResponse {
                error: ErrorCode::NotLeaderOrFollower,
                leader_id: None,
                ..solo.fetched(Vec::new())
            };
            let effects = solo.answer(PEER, correlation, Response::Fetch(refused));
            let again = effects.iter().find_map(|effect| match effect {
                Effect::Send {
                    peer: PEER,
                    correlation,
                    ..
                } => Some(*correlation),
                _ => None,
            });
            let Some(again) = again else { break };
            correlation = again;
            asked_count += 1;
        }
        asked_count
    });
    assert_eq!((right, wrong), (0, 20));
}
