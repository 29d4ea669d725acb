//! Owns the scenarios of seeded bugs in changing the voters.
//! Never runs a schedule with the bug only: each one is also shown to go well without it.

use node::ids::{Epoch, NodeId, Offset};
use node::message::{ErrorCode, Request};
use node::mutants::Bug;
use node::raft::Role;

use crate::changing::{Changing, change_reply, key, voter, voters};
use crate::cluster::{Cluster, MS};
use crate::seeded_bugs::compare;
use crate::solo::vote_reply;

fn settle(cluster: &mut Cluster) -> NodeId {
    let leader = cluster.await_leader();
    cluster.run_until("all caught up", 2_000 * MS, Cluster::is_caught_up);
    cluster.run_for(100 * MS);
    leader
}

fn others(cluster: &Cluster, id: NodeId) -> Vec<NodeId> {
    cluster
        .ids()
        .into_iter()
        .filter(|&other| other != id)
        .collect()
}

/// Cuts the cluster into these two sides; whoever is on neither is alone.
fn divide(cluster: &mut Cluster, sides: [&[NodeId]; 2]) {
    for id in cluster.ids() {
        cluster.isolate(id);
    }
    for side in sides {
        for &left in side {
            for &right in side {
                cluster.heal_between(left, right);
            }
        }
    }
}

/// Who leads a later epoch than this one within some seconds.
fn next_leader(cluster: &mut Cluster, epoch: Epoch) -> Option<NodeId> {
    for _ in 0..500 {
        cluster.run_for(10 * MS);
        let leader = cluster
            .running()
            .find(|replica| replica.role() == Role::Leader && replica.epoch() > epoch);
        if let Some(leader) = leader {
            return Some(leader.id());
        }
    }
    None
}

/// Four voters, the leader removes itself; of the three that are left, one has the write.
#[test]
fn a_removed_leader_commits_with_one_voter_too_few_if_it_counts_itself() {
    let (right, wrong) = compare(Bug::HighWatermarkCountsNonvoterLeader, |bug| {
        let mut leader = Changing::leading(&[1, 2, 3, 4], bug);
        leader.remove(key(1));
        leader.solo.propose(b"x");
        leader.solo.flush();
        let known = leader.solo.replica.high_watermark();
        leader.acknowledge(2);
        let end = leader.end();
        // It also leaves at that, so what it had committed shows in the role.
        (known, leader.solo.replica.role(), end)
    });
    assert_eq!(right, (Some(Offset(3)), Role::Leader, Offset(5)));
    assert_eq!(wrong, (Some(Offset(3)), Role::Resigned, Offset(5)));

    let (right, wrong) = compare(Bug::HighWatermarkCountsNonvoterLeader, |bug| {
        let mut cluster = Cluster::of_changing_voters(4, 0, 3, bug);
        let leader = settle(&mut cluster);
        let others = others(&cluster, leader);
        cluster.block_fetches_of(others[1], leader);
        cluster.block_fetches_of(others[2], leader);
        cluster.run_for(60 * MS);
        let leader_key = cluster.key_of(leader);
        cluster.ask_to_remove(leader, leader_key);
        cluster.run_for(100 * MS);
        cluster.history.violations.join("; ")
    });
    assert_eq!(right, "");
    assert!(wrong.contains("is durable on 1 of 2"), "{wrong}");
}

/// The schedule of 2015 (raft-dev): two leaders each change the voters without knowing of the other.
#[test]
fn two_leaders_change_the_voters_past_each_other_before_they_know_what_is_committed() {
    let (right, wrong) = compare(Bug::AddVoterNoHighWatermarkCheck, |bug| {
        let mut cluster = Cluster::of_changing_voters(4, 1, 7, bug);
        let first = settle(&mut cluster);
        let new = NodeId(5);
        let voters: Vec<_> = others(&cluster, first)
            .into_iter()
            .filter(|&id| id != new)
            .collect();
        // It adds n5, which nobody hears of.
        for &other in &voters {
            cluster.block_fetches_of(other, first);
        }
        cluster.block_fetches_of(new, first);
        cluster.run_for(60 * MS);
        cluster.ask_to_add(first, new);
        cluster.run_for(20 * MS);
        assert_eq!(cluster.replica(first).describe().voters.len(), 5);
        let epoch = cluster.replica(first).epoch();
        divide(&mut cluster, [&voters, &[]]);
        cluster.fetches_blocked.clear();
        // Another is elected by the others, and of its records only one voter hears.
        let mut second = None;
        for _ in 0..5_000 {
            cluster.run_for(MS / 4);
            second = cluster
                .running()
                .find(|replica| replica.role() == Role::Leader && replica.epoch() > epoch)
                .map(node::raft::Replica::id);
            if second.is_some() {
                break;
            }
        }
        let second = second.expect("three of four elect");
        let rest: Vec<_> = voters.iter().copied().filter(|&id| id != second).collect();
        divide(&mut cluster, [&[second, rest[0]], &[]]);
        assert_eq!(cluster.replica(second).high_watermark(), None);
        let removed = cluster.key_of(first);
        let change = cluster.ask_to_remove(second, removed);
        cluster.run_for(100 * MS);
        let outcome = cluster.outcome_of(change);
        let epoch = cluster.replica(second).epoch();
        // The first is back among those who have not heard of the second's change.
        divide(&mut cluster, [&[first, rest[1], new], &[]]);
        next_leader(&mut cluster, epoch);
        cluster.run_for(200 * MS);
        (outcome, cluster.history.violations.join("; "))
    });
    assert_eq!(right, (Some(ErrorCode::RequestTimedOut), String::new()));
    assert_eq!(wrong.0, Some(ErrorCode::None));
    assert!(wrong.1.contains("committed record lost"), "{}", wrong.1);
}

#[test]
fn two_changes_at_once_let_disjoint_majorities_decide() {
    let (right, wrong) = compare(Bug::TwoPendingChanges, |bug| {
        let mut cluster = Cluster::of_changing_voters(3, 2, 11, bug);
        let leader = settle(&mut cluster);
        let olds: Vec<_> = others(&cluster, leader)
            .into_iter()
            .filter(|id| id.0 <= 3)
            .collect();
        for &old in &olds {
            cluster.block_fetches_of(old, leader);
        }
        cluster.run_for(60 * MS);
        cluster.ask_to_add(leader, NodeId(4));
        cluster.run_for(10 * MS);
        let second = cluster.ask_to_add(leader, NodeId(5));
        cluster.run_for(20 * MS);
        let outcome = cluster.outcome_of(second);
        divide(&mut cluster, [&[leader, NodeId(4), NodeId(5)], &olds]);
        cluster.propose(leader, b"x");
        cluster.run_for(500 * MS);
        (outcome, cluster.history.violations.join("; "))
    });
    assert_eq!(right, (Some(ErrorCode::RequestTimedOut), String::new()));
    assert_eq!(
        wrong.0,
        Some(ErrorCode::None),
        "the new voters commit their own addition"
    );
    assert!(wrong.1.contains("2 uncommitted changes"), "{}", wrong.1);
    assert!(wrong.1.contains("committed record lost"), "{}", wrong.1);
}

/// The followers do not fetch while the first change is asked for, and for longer than it may take.
#[test]
fn a_change_that_waits_outside_the_log_is_overlooked_after_its_timeout() {
    let (right, wrong) = compare(Bug::PendingExpiresInAccumulator, |bug| {
        let mut leader = Changing::leading(&[1, 2, 3], bug);
        leader.acknowledge(4);
        leader.acknowledge(5);
        leader.solo.propose(b"x");
        leader.solo.flush();
        let mut outcomes = Vec::new();
        for id in [4, 5] {
            let (ticket, mut effects) = leader.add(id);
            outcomes.push(change_reply(&effects, ticket).map(|response| response.error));
            if outcomes.last() == Some(&None) {
                effects = leader.probed(&effects, &voter(id));
                assert_eq!(change_reply(&effects, ticket), None);
                for _ in 0..21 {
                    // A majority follows without getting further.
                    leader.fetch_from(2, Offset(3));
                    leader.fetch_from(3, Offset(3));
                    leader.fetch_from(id, Offset(3));
                    leader.fetch_from(5, Offset(3));
                    leader.solo.tick_after(50 * MS);
                }
            }
        }
        leader.acknowledge(2);
        leader.solo.flush();
        (outcomes, leader.voter_ids(), leader.end())
    });
    let timed_out = Some(ErrorCode::RequestTimedOut);
    assert_eq!(right, (vec![None, timed_out], vec![1, 2, 3, 4], Offset(5)));
    assert_eq!(wrong.0, [None, None]);
    assert_eq!(wrong.1, [1, 2, 3, 5], "made from the set without the first");
    assert_eq!(wrong.2, Offset(6), "both records are in the log");
}

#[test]
fn a_record_of_voters_is_committed_by_the_old_ones_if_that_puts_it_into_force() {
    let (right, wrong) = compare(Bug::VotersOnCommit, |bug| {
        let mut leader = Changing::leading(&[1, 2, 3], bug);
        leader.acknowledge(4);
        let (_, effects) = leader.add(4);
        leader.probed(&effects, &voter(4));
        leader.solo.flush();
        let in_force = leader.voter_ids();
        leader.acknowledge(2);
        (
            in_force,
            leader.solo.replica.high_watermark(),
            leader.voter_ids(),
        )
    });
    let (three, four) = (vec![1, 2, 3], vec![1, 2, 3, 4]);
    assert_eq!(right, (four.clone(), Some(Offset(3)), four.clone()));
    assert_eq!(wrong, (three, Some(Offset(4)), four));

    let (right, wrong) = compare(Bug::VotersOnCommit, |bug| {
        let mut cluster = Cluster::of_changing_voters(3, 1, 13, bug);
        let leader = settle(&mut cluster);
        let followers = others(&cluster, leader);
        cluster.block_fetches_of(followers[1], leader);
        cluster.block_fetches_of(NodeId(4), leader);
        cluster.run_for(60 * MS);
        cluster.ask_to_add(leader, NodeId(4));
        cluster.run_for(100 * MS);
        cluster.history.violations.join("; ")
    });
    assert_eq!(right, "");
    assert!(wrong.contains("is durable on 2 of 3"), "{wrong}");
}

#[test]
fn a_removed_leader_leads_for_ever_if_nothing_ends_it() {
    let (right, wrong) = compare(Bug::RemovedLeaderStays, |bug| {
        let mut cluster = Cluster::of_changing_voters(3, 0, 17, bug);
        let leader = settle(&mut cluster);
        let leader_key = cluster.key_of(leader);
        let removal = cluster.ask_to_remove(leader, leader_key);
        cluster.run_for(5_000 * MS);
        assert_eq!(cluster.outcome_of(removal), Some(ErrorCode::None));
        let led_by = cluster.settled_leader().expect("somebody leads");
        cluster.assert_safe();
        led_by == leader
    });
    assert_eq!((right, wrong), (false, true));
}

#[test]
fn a_removal_is_lost_if_the_leader_leaves_before_anyone_knows_of_it() {
    let (right, wrong) = compare(Bug::RemovedLeaderLeavesEarly, |bug| {
        let mut cluster = Cluster::of_changing_voters(3, 0, 19, bug);
        let leader = settle(&mut cluster);
        let leader_key = cluster.key_of(leader);
        let removal = cluster.ask_to_remove(leader, leader_key);
        cluster.run_for(5_000 * MS);
        cluster.run_until("all caught up", 2_000 * MS, Cluster::is_caught_up);
        cluster.assert_safe();
        let newest = cluster.nodes[&leader].disk.latest_voters().unwrap();
        (cluster.outcome_of(removal), newest.contains(&leader_key))
    });
    assert_eq!(right, (Some(ErrorCode::None), false));
    assert_eq!(wrong, (Some(ErrorCode::NotLeaderOrFollower), true));
}

/// n4 was added by a record that it has not got; then the leader dies. Two of the other voters are not
/// enough without it.
#[test]
fn nobody_is_elected_if_the_promoted_observer_refuses_to_vote() {
    let (right, wrong) = compare(Bug::ObserverRefusesVote, |bug| {
        let mut cluster = Cluster::of_changing_voters(3, 1, 37, bug);
        let leader = settle(&mut cluster);
        cluster.block_fetches_of(NodeId(4), leader);
        cluster.run_for(60 * MS);
        cluster.add_voter(NodeId(4));
        let epoch = cluster.replica(leader).epoch();
        cluster.power_cut(leader);
        let elected = next_leader(&mut cluster, epoch).is_some();
        cluster.assert_safe();
        elected
    });
    assert_eq!((right, wrong), (true, false));

    let (right, wrong) = compare(Bug::ObserverRefusesVote, |bug| {
        let (mut observer, _) = Changing::following(&[2, 3], bug);
        let mut vote = observer.solo.vote_request(Epoch(4), false);
        (vote.voter, vote.replica) = (key(1), key(3));
        let (_, effects) = observer.ask(Request::Vote(vote));
        let response = vote_reply(&effects);
        (response.error, response.vote_granted, response.leader_epoch)
    });
    assert_eq!(right, (ErrorCode::None, true, Epoch(4)));
    assert_eq!(wrong, (ErrorCode::None, false, Epoch(4)));
    assert!(!voters(&[2, 3]).contains(&key(1)));
}
