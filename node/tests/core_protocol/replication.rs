//! Owns the scenarios of copying, diverging, truncating and committing.
//! Never lets a scenario pass without looking at the safety properties too.

use node::batch::Batch;
use node::ids::{Epoch, NodeId, Offset};
use node::message::{DivergingEpoch, Request, Response};
use node::mutants::Bug;
use node::raft::{Effect, EpochStart, Input, QuorumState, Recovered, Refusal, Role};

use crate::cluster::{Cluster, MS, Outcome};
use crate::solo::{PEER, Solo, configuration, sends};

fn followers(cluster: &Cluster, leader: NodeId) -> (NodeId, NodeId) {
    let others: Vec<_> = cluster
        .ids()
        .into_iter()
        .filter(|&id| id != leader)
        .collect();
    (others[0], others[1])
}

/// A follower of `PEER` in epoch 3 with the given epochs in its log, and its first fetch.
fn follower(epochs: &[(i32, i64)], log_end: i64) -> (Solo, node::raft::Correlation) {
    let start = |&(epoch, offset): &(i32, i64)| EpochStart {
        epoch: Epoch(epoch),
        start_offset: Offset(offset),
    };
    let recovered = Recovered {
        quorum_state: Some(QuorumState {
            epoch: Epoch(9),
            leader: Some(PEER),
            voted_for: None,
        }),
        log_end: Offset(log_end),
        epochs: epochs.iter().map(start).collect(),
        ..Recovered::default()
    };
    let (solo, effects) = Solo::start(configuration(3, None), recovered);
    let (peer, correlation, request) = sends(&effects)[0];
    assert!(
        peer == PEER && matches!(request, Request::Fetch(_)),
        "{effects:?}"
    );
    (solo, correlation)
}

fn batch(offset: i64, epoch: i32) -> Batch {
    Batch::build(Offset(offset), Epoch(epoch), 0, false, &["x"])
}

fn appended(effects: &[Effect]) -> Vec<i64> {
    let append = effects.iter().filter_map(|effect| match effect {
        Effect::Append(batch) => Some(batch.base_offset().0),
        _ => None,
    });
    append.collect()
}

#[test]
fn a_deposed_leader_drops_what_it_could_not_commit() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(3, seed, None);
        cluster.batches_per_fetch = 3;
        let old = cluster.await_leader();
        cluster.write(old, b"shared");
        cluster.isolate(old);
        let doomed: Vec<_> = (0..20).map(|n: u8| cluster.propose(old, &[n])).collect();
        cluster.run_until("a new leader", 2_000 * MS, |cluster| {
            cluster.settled_leader().is_some_and(|id| id != old)
        });
        let new = cluster.settled_leader().unwrap();
        for number in 0..5_u8 {
            cluster.write(new, &[b'n', number]);
        }
        assert!(cluster.nodes[&old].disk.log_end() > cluster.nodes[&new].disk.log_end());
        cluster.heal();
        cluster.run_until("all caught up", 2_000 * MS, Cluster::is_caught_up);
        for ticket in doomed {
            assert_eq!(
                cluster.outcomes[&ticket],
                Outcome::Unknown,
                "it entered the log"
            );
        }
        cluster.assert_safe();
    }
}

/// Three logs that all differ in their tails come together.
#[test]
fn many_short_reigns_leave_one_log() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(5, seed, None);
        cluster.batches_per_fetch = 1;
        for reign in 0..6_u8 {
            let leader = cluster.await_leader();
            cluster.write(leader, &[reign]);
            cluster.isolate(leader);
            for number in 0..3_u8 {
                cluster.propose(leader, &[reign, number]);
            }
            cluster.run_for(500 * MS);
            if reign % 2 == 1 {
                cluster.heal();
            }
        }
        cluster.heal();
        let leader = cluster.await_leader();
        cluster.write(leader, b"the end");
        cluster.run_until("all caught up", 3_000 * MS, Cluster::is_caught_up);
        cluster.assert_safe();
    }
}

/// Figure 8 of the Raft paper in KRaft's terms (KAFKA-12619). Returns the cluster after the record
/// of an old epoch, that only two of three had, was overwritten.
pub(crate) fn figure_8(bug: Option<Bug>) -> Cluster {
    let mut cluster = Cluster::new(3, 21, bug);
    // A follower gets one batch at a time, so it can have the old record without the new epoch's.
    cluster.batches_per_fetch = 1;
    let first = cluster.await_leader();
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    let offset = cluster.replica(first).log_end();

    // The first leader appends a record that reaches nobody.
    cluster.isolate(first);
    cluster.propose(first, b"a");
    cluster.run_for(10 * MS);
    assert_eq!(
        cluster.nodes[&first]
            .disk
            .durable
            .last()
            .unwrap()
            .base_offset(),
        offset
    );

    // One of the others leads the next epoch; its first record reaches nobody either.
    let (left, right) = followers(&cluster, first);
    let leads = |cluster: &Cluster, id| cluster.replica(id).role() == Role::Leader;
    cluster.run_until("a second leader", 2_000 * MS, |cluster| {
        leads(cluster, left) || leads(cluster, right)
    });
    let (second, voter) = if leads(&cluster, left) {
        (left, right)
    } else {
        (right, left)
    };
    cluster.isolate(second);
    cluster.run_for(10 * MS);
    assert_eq!(
        cluster.nodes[&second].disk.durable_end(),
        Offset(offset.0 + 1)
    );
    assert_eq!(cluster.nodes[&voter].disk.log_end(), offset);

    // The first leads again, with the voter of the second, and the old record reaches that voter.
    cluster.heal_between(first, voter);
    cluster.run_until("the old record on two of three", 5_000 * MS, |cluster| {
        cluster.nodes[&voter].disk.durable_end() == Offset(offset.0 + 1) && leads(cluster, first)
    });
    // The voter's next fetch says so, but the answer to it, with the record of the new epoch, is lost.
    cluster.cut_link(first, voter);
    cluster.run_for(20 * MS);
    assert_eq!(cluster.nodes[&voter].disk.log_end(), Offset(offset.0 + 1));
    let expected = bug.map(|_| Offset(offset.0 + 1));
    assert_eq!(cluster.replica(first).high_watermark(), expected);

    // The second, whose last record is of a later epoch than the old one, leads with that voter.
    cluster.power_cut(first);
    cluster.heal_between(second, voter);
    cluster.run_until("the second leads again", 5_000 * MS, |cluster| {
        cluster.settled_leader() == Some(second)
    });
    cluster.run_for(100 * MS);
    assert_eq!(
        cluster.nodes[&voter].disk.log,
        cluster.nodes[&second].disk.log
    );
    cluster
}

#[test]
fn figure_8_loses_nothing_that_was_committed() {
    figure_8(None).assert_safe();
}

#[test]
fn figure_8_is_noticed_when_records_of_earlier_epochs_are_counted() {
    let cluster = figure_8(Some(Bug::HighWatermarkAnyEpoch));
    let violations = &cluster.history.violations;
    assert!(
        violations
            .iter()
            .any(|text| text.contains("committed record lost")),
        "{violations:?}"
    );
}

#[test]
fn an_unflushed_tail_may_be_lost_but_its_offsets_are_not_reused_in_its_epoch() {
    let mut cluster = Cluster::new(3, 5, None);
    let leader = cluster.await_leader();
    cluster.write(leader, b"committed");
    let (left, right) = followers(&cluster, leader);
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    let ticket = cluster.propose(leader, b"lost");
    let epoch = cluster.replica(leader).epoch();
    assert!(!cluster.nodes[&leader].disk.is_synced());
    cluster.power_cut_keeping(leader, 0);
    assert_eq!(cluster.outcomes[&ticket], Outcome::Unknown);
    cluster.restart(leader);
    // Whatever followers got before the power cut, the next leader goes on in a later epoch.
    let next = cluster.await_leader();
    cluster.write(next, b"instead");
    cluster.run_until("all caught up", 1_000 * MS, Cluster::is_caught_up);
    assert!(cluster.replica(next).epoch() > epoch);
    for id in [leader, left, right] {
        assert!(cluster.nodes[&id].disk.log.len() >= 4);
    }
    cluster.assert_safe();
}

/// KAFKA-10533: a fetch promises that everything before its offset is durable.
#[test]
fn a_follower_fetches_again_only_when_what_it_got_is_durable() {
    let (mut solo, correlation) = follower(&[], 0);
    let response = solo.fetched(vec![batch(0, 9), batch(1, 9)]);
    let effects = solo.answer(PEER, correlation, Response::Fetch(response));
    assert_eq!(appended(&effects), [0, 1]);
    assert!(sends(&effects).is_empty());
    assert!(sends(&solo.tick_after(MS)).is_empty());
    assert!(sends(&solo.step(Input::Flushed { log_end: Offset(1) })).is_empty());
    let effects = solo.flush();
    let [(peer, _, Request::Fetch(fetch))] = sends(&effects)[..] else {
        panic!("{effects:?}")
    };
    assert_eq!(
        (peer, fetch.fetch_offset, fetch.last_fetched_epoch),
        (PEER, Offset(2), Epoch(9))
    );
}

#[test]
fn a_leader_counts_only_what_is_durable_in_its_own_log() {
    let mut solo = Solo::lead(None);
    let request = solo.fetch_request(Offset(1));
    solo.fetch(request);
    assert_eq!(solo.replica.high_watermark(), Some(Offset(1)));
    solo.propose(b"x");
    let request = solo.fetch_request(Offset(2));
    solo.fetch(request);
    assert_eq!(
        solo.replica.high_watermark(),
        Some(Offset(1)),
        "only the follower has it"
    );
    let effects = solo.flush();
    assert_eq!(solo.replica.high_watermark(), Some(Offset(2)));
    assert!(effects.contains(&Effect::Committed {
        high_watermark: Offset(2)
    }));
}

#[test]
fn a_single_voter_commits_only_after_its_flush() {
    let (mut solo, _) = Solo::start(configuration(1, None), Recovered::default());
    assert_eq!(solo.replica.role(), Role::Leader);
    assert_eq!(solo.replica.high_watermark(), None);
    solo.flush();
    solo.propose(b"x");
    assert_eq!(solo.replica.high_watermark(), Some(Offset(1)));
    solo.flush();
    assert_eq!(solo.replica.high_watermark(), Some(Offset(2)));
}

#[test]
fn truncation_agrees_with_the_leader_step_by_step() {
    // The log, what the leader says of the epoch it was asked for, where the log ends then.
    let cases = [
        (vec![(1, 0), (2, 5)], (2, 8), 8), // both have epoch 2, the leader's is shorter
        (vec![(1, 0), (2, 5)], (1, 4), 4), // the leader's epoch 1 ends earlier
        (vec![(1, 0), (2, 5)], (1, 9), 5), // the leader's epoch 1 is longer than ours
        (vec![(1, 0), (3, 5)], (2, 7), 5), // we lack the leader's epoch 2 altogether
        (vec![(2, 0)], (1, 6), 0),         // nothing in common
        (vec![(2, 0)], (0, 0), 0),         // the leader's log has nothing so old
    ];
    for (epochs, (epoch, end_offset), expected) in cases {
        let (mut solo, correlation) = follower(&epochs, 10);
        let diverging_epoch = Some(DivergingEpoch {
            epoch: Epoch(epoch),
            end_offset: Offset(end_offset),
        });
        let response = node::message::FetchResponse {
            diverging_epoch,
            high_watermark: Some(Offset(10)),
            ..solo.fetched(Vec::new())
        };
        let effects = solo.answer(PEER, correlation, Response::Fetch(response));
        let cut = effects
            .iter()
            .position(|e| *e == Effect::Truncate(Offset(expected)));
        assert!(cut.is_some(), "{epochs:?} {effects:?}");
        // KAFKA-14704: the leader's high watermark says nothing about a log that differs from its.
        assert_eq!(solo.replica.high_watermark(), None);
        let [(_, _, Request::Fetch(fetch))] = sends(&effects)[..] else {
            panic!("{effects:?}")
        };
        assert_eq!(fetch.fetch_offset, Offset(expected));
    }
}

#[test]
#[should_panic(expected = "is committed")]
fn truncating_what_is_committed_is_fatal() {
    let (mut solo, correlation) = follower(&[(1, 0)], 10);
    let response = node::message::FetchResponse {
        high_watermark: Some(Offset(8)),
        ..solo.fetched(Vec::new())
    };
    let effects = solo.answer(PEER, correlation, Response::Fetch(response));
    assert_eq!(solo.replica.high_watermark(), Some(Offset(8)));
    let (_, correlation, _) = sends(&effects)[0];
    let diverging_epoch = Some(DivergingEpoch {
        epoch: Epoch(1),
        end_offset: Offset(7),
    });
    let response = node::message::FetchResponse {
        diverging_epoch,
        ..solo.fetched(Vec::new())
    };
    solo.answer(PEER, correlation, Response::Fetch(response));
}

/// KAFKA-18723: batches that cannot follow are dropped, the rest of the answer counts.
#[test]
fn batches_that_do_not_continue_the_log_are_dropped() {
    for (bad, why) in [
        (batch(2, 9), "a gap"),
        (batch(0, 9), "an overlap"),
        (batch(1, 2), "an older epoch than the last"),
        (batch(1, 10), "a later epoch than the leader's"),
    ] {
        let (mut solo, correlation) = follower(&[], 0);
        let response = solo.fetched(vec![batch(0, 3), bad, batch(1, 3)]);
        let effects = solo.answer(PEER, correlation, Response::Fetch(response));
        assert_eq!(appended(&effects), [0], "{why}");
    }
}

/// KAFKA-15345: what is committed before a leader's first record is unknown until that is committed.
#[test]
fn proposals_wait_for_the_leaders_first_record_and_then_share_a_batch() {
    let mut solo = Solo::lead(None);
    let (first, effects) = solo.propose(b"a");
    assert!(appended(&effects).is_empty());
    let (second, _) = solo.propose(b"b");
    let request = solo.fetch_request(Offset(1));
    let (_, effects) = solo.fetch(request);
    assert_eq!(appended(&effects), [1]);
    for (ticket, offset) in [(first, Offset(1)), (second, Offset(2))] {
        assert!(effects.contains(&Effect::Proposed { ticket, offset }));
    }
}

#[test]
fn proposals_that_never_entered_the_log_are_refused_when_leadership_ends() {
    let mut solo = Solo::lead(None);
    let (held, _) = solo.propose(b"a");
    let vote = solo.vote_request(Epoch(7), false);
    let effects = solo.request(Request::Vote(vote));
    let refused = effects.iter().find_map(|effect| match effect {
        Effect::Refused { ticket, refusal } if *ticket == held => Some(refusal.reason),
        _ => None,
    });
    assert_eq!(refused, Some(Refusal::NotLeader));
    assert_eq!(
        effects
            .iter()
            .filter(|e| **e == Effect::LeadershipLost)
            .count(),
        1
    );
}

#[test]
fn more_proposals_than_a_new_leader_holds_are_refused() {
    let mut solo = Solo::lead(None);
    let commands = (0..10_001)
        .map(|_| (solo.ticket(), b"x".to_vec()))
        .collect::<Vec<_>>();
    let last = commands.last().unwrap().0;
    let effects = solo.step(Input::Propose {
        timestamp_ms: 0,
        commands,
    });
    let refused: Vec<_> = effects
        .iter()
        .filter_map(|effect| match effect {
            Effect::Refused { ticket, .. } => Some(*ticket),
            _ => None,
        })
        .collect();
    assert_eq!(refused, [last]);
}

#[test]
fn a_follower_refuses_proposals_and_names_the_leader() {
    let (mut solo, correlation) = follower(&[], 0);
    let response = Response::Fetch(solo.fetched(Vec::new()));
    solo.answer(PEER, correlation, response);
    let (wanted, effects) = solo.propose(b"x");
    let refusal = effects.iter().find_map(|effect| match effect {
        Effect::Refused { ticket, refusal } if *ticket == wanted => Some(*refusal),
        _ => None,
    });
    let refusal = refusal.unwrap();
    assert_eq!(
        (refusal.reason, refusal.leader),
        (Refusal::NotLeader, Some(PEER))
    );
}
