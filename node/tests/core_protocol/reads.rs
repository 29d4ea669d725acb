//! Owns the scenarios of linearizable reads.
//! Never takes a read for answered because time has passed.

use node::ids::{Epoch, NodeId, Offset};
use node::message::{Request, Response};
use node::mutants::Bug;
use node::raft::{Effect, Input, Refusal, Ticket};

use crate::cluster::{Cluster, MS, Outcome};
use crate::solo::{OTHER, PEER, Solo, configuration, fetch_reply, ready_reads, sends};

/// A leader whose first record is committed, with all voters caught up.
fn settled(bug: Option<Bug>) -> Solo {
    let mut solo = Solo::lead(bug);
    let request = solo.fetch_request(Offset(1));
    solo.fetch(request);
    assert_eq!(solo.replica.high_watermark(), Some(Offset(1)));
    solo
}

fn echo(solo: &mut Solo, voter: NodeId, read_round: u64) -> Vec<(Ticket, Offset)> {
    let mut request = solo.fetch_request(solo.replica.log_end());
    request.replica.id = voter;
    request.read_round = read_round;
    ready_reads(&solo.fetch(request).1)
}

fn refusals(effects: &[Effect]) -> Vec<(Ticket, Refusal)> {
    let refused = effects.iter().filter_map(|effect| match effect {
        Effect::Refused { ticket, refusal } => Some((*ticket, refusal.reason)),
        _ => None,
    });
    refused.collect()
}

#[test]
fn a_read_needs_a_round_trip_that_began_after_it_arrived() {
    let mut solo = settled(None);
    // Two fetches wait, sent before the read; their mere existence proves nothing about now.
    let request = solo.fetch_request(Offset(1));
    let (waiting, _) = solo.fetch(request);
    let (read, effects) = solo.read();
    assert!(ready_reads(&effects).is_empty());
    let (response, _) = fetch_reply(&effects, waiting).expect("the round is told at once");
    assert_eq!(response.read_round, 1);
    // A fetch that was under way arrives after the read, but does not know of it.
    assert!(echo(&mut solo, OTHER, 0).is_empty());
    assert!(echo(&mut solo, PEER, 0).is_empty());
    assert_eq!(echo(&mut solo, PEER, 1), [(read, Offset(1))]);
    assert!(echo(&mut solo, OTHER, 1).is_empty(), "answered once");
}

#[test]
fn rounds_overlap_and_each_counts_for_its_own_reads() {
    let mut solo = settled(None);
    let (first, _) = solo.read();
    let (second, _) = solo.read();
    let (third, _) = solo.read();
    assert_eq!(echo(&mut solo, PEER, 1), [(first, Offset(1))]);
    assert!(echo(&mut solo, OTHER, 1).is_empty());
    assert_eq!(
        echo(&mut solo, OTHER, 3),
        [(second, Offset(1)), (third, Offset(1))]
    );
}

#[test]
fn a_read_covers_everything_committed_before_it_is_released() {
    let mut solo = settled(None);
    let (read, _) = solo.read();
    solo.propose(b"x");
    solo.flush();
    let request = solo.fetch_request(Offset(2));
    solo.fetch(request);
    assert_eq!(solo.replica.high_watermark(), Some(Offset(2)));
    assert_eq!(echo(&mut solo, PEER, 1), [(read, Offset(2))]);
}

/// A new leader does not know what its predecessors had committed (etcd/raft #12680).
#[test]
fn a_read_waits_for_the_leaders_first_record_to_be_committed() {
    let mut solo = Solo::lead(None);
    let (read, _) = solo.read();
    // A voter that confirms the round, but does not have the leader's first record yet.
    let mut request = solo.fetch_request(Offset(0));
    request.last_fetched_epoch = Epoch(0);
    request.read_round = 1;
    let (_, effects) = solo.fetch(request);
    assert!(ready_reads(&effects).is_empty());
    let request = solo.fetch_request(Offset(1));
    let (_, effects) = solo.fetch(request);
    assert_eq!(ready_reads(&effects), [(read, Offset(1))]);
    let committed = effects
        .iter()
        .position(|e| matches!(e, Effect::Committed { .. }));
    let ready = effects
        .iter()
        .position(|e| matches!(e, Effect::ReadReady { .. }));
    assert!(committed < ready, "it is applied before it is read");
}

#[test]
fn a_single_voter_answers_reads_once_its_first_record_is_durable() {
    let (mut solo, _) = Solo::start(configuration(1, None), node::raft::Recovered::default());
    let (first, effects) = solo.read();
    assert!(ready_reads(&effects).is_empty());
    assert_eq!(ready_reads(&solo.flush()), [(first, Offset(1))]);
    let (second, effects) = solo.read();
    assert_eq!(ready_reads(&effects), [(second, Offset(1))]);
}

#[test]
fn waiting_reads_are_refused_when_leadership_ends() {
    let mut solo = settled(None);
    let (read, _) = solo.read();
    let vote = solo.vote_request(Epoch(7), false);
    let effects = solo.request(Request::Vote(vote));
    assert_eq!(refusals(&effects), [(read, Refusal::NotLeader)]);
    let (next, effects) = solo.read();
    assert_eq!(refusals(&effects), [(next, Refusal::NotLeader)]);

    let mut solo = settled(None);
    let (read, _) = solo.read();
    let effects = solo.step(Input::Shutdown);
    assert_eq!(refusals(&effects), [(read, Refusal::ShuttingDown)]);
}

#[test]
fn a_follower_echoes_the_newest_round_of_its_leader_and_forgets_it_with_the_leader() {
    let recovered = node::raft::Recovered {
        quorum_state: Some(node::raft::QuorumState {
            epoch: Epoch(3),
            leader: Some(PEER),
            voted_for: None,
        }),
        ..node::raft::Recovered::default()
    };
    let (mut solo, mut effects) = Solo::start(configuration(3, None), recovered);
    let mut echoed = Vec::new();
    for told in [0, 4, 4, 9] {
        let (peer, correlation, request) = sends(&effects)[0];
        let Request::Fetch(fetch) = request else {
            panic!("{request:?}")
        };
        echoed.push(fetch.read_round);
        let response = node::message::FetchResponse {
            read_round: told,
            ..solo.fetched(Vec::new())
        };
        effects = solo.answer(peer, correlation, Response::Fetch(response));
    }
    let Request::Fetch(fetch) = sends(&effects)[0].2 else {
        panic!()
    };
    echoed.push(fetch.read_round);
    assert_eq!(echoed, [0, 0, 4, 4, 9]);
    let effects = solo.request(Request::BeginQuorumEpoch(
        node::message::BeginQuorumEpochRequest {
            cluster_id: "test".to_owned(),
            voter: NodeId(1).into(),
            leader_id: OTHER,
            leader_epoch: Epoch(4),
            leader_endpoint: None,
        },
    ));
    let Request::Fetch(fetch) = sends(&effects)[0].2 else {
        panic!()
    };
    assert_eq!(fetch.read_round, 0);
}

/// An isolated leader, a write at its successor, and a read at the isolated one.
fn read_at_a_deposed_leader(bug: Option<Bug>) -> (Cluster, Ticket) {
    let mut cluster = Cluster::new(3, 13, bug);
    let old = cluster.await_leader();
    cluster.write(old, b"before");
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    cluster.isolate(old);
    // Its followers give up on it sooner than it gives up on them.
    cluster.run_until("a new leader", 2_000 * MS, |cluster| {
        cluster.settled_leader().is_some_and(|id| id != old)
            || cluster.replica(old).role() != node::raft::Role::Leader
    });
    let new = cluster.settled_leader().filter(|&id| id != old);
    let new = new.expect("the seed must elect a new leader while the old one still leads");
    cluster.write(new, b"after");
    let read = cluster.read(old);
    cluster.run_for(1_000 * MS);
    (cluster, read)
}

#[test]
fn a_deposed_leader_does_not_answer_reads() {
    let (mut cluster, read) = read_at_a_deposed_leader(None);
    assert_eq!(
        cluster.outcomes[&read],
        Outcome::Refused(Refusal::NotLeader)
    );
    cluster.assert_safe();
}

#[test]
fn the_stale_read_is_noticed_when_reads_are_not_confirmed() {
    let (cluster, read) = read_at_a_deposed_leader(Some(Bug::StaleRead));
    assert!(matches!(cluster.outcomes[&read], Outcome::Read(_)));
    let violations = &cluster.history.violations;
    assert!(
        violations.iter().any(|text| text.contains("stale read")),
        "{violations:?}"
    );
}

#[test]
fn reads_are_answered_in_about_a_round_trip_however_many_there_are() {
    let mut cluster = Cluster::new(3, 2, None);
    let leader = cluster.await_leader();
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    let mut reads = Vec::new();
    for _ in 0..300 {
        reads.push((cluster.now_ns, cluster.read(leader)));
        cluster.run_for(MS / 3);
        let is_overdue = |&(at_ns, read): &(u64, Ticket)| {
            cluster.now_ns > at_ns + 20 * MS && !cluster.outcomes.contains_key(&read)
        };
        assert!(!reads.iter().any(is_overdue), "reads starve");
    }
    cluster.run_for(20 * MS);
    assert!(
        reads
            .iter()
            .all(|(_, read)| matches!(cluster.outcomes[read], Outcome::Read(_)))
    );
    cluster.assert_safe();
}

#[test]
fn reads_get_through_although_messages_are_lost() {
    let mut cluster = Cluster::new(3, 8, None);
    cluster.lost_per_mille = 50;
    let mut answered = 0;
    for _ in 0..20 {
        let leader = cluster.await_leader();
        let read = cluster.read(leader);
        cluster.run_until("an outcome", 2_000 * MS, |c| c.outcomes.contains_key(&read));
        answered += u32::from(matches!(cluster.outcomes[&read], Outcome::Read(_)));
    }
    assert!(answered >= 10, "{answered}");
    cluster.assert_safe();
}
