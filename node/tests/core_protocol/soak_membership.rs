//! Owns the randomised run of many seeds in which voters are added, removed and replaced under faults.
//! Never depends on anything but the seed.

use node::ids::NodeId;
use node::mutants::Bug;
use node::raft::Role;

use crate::cluster::{Cluster, MS};
use crate::snapshotting::Snapshotting;
use crate::soak::{disturb, heal, use_it};

const FAULT_ROUNDS: u64 = 25;

fn chosen(cluster: &mut Cluster) -> NodeId {
    let ids = cluster.ids();
    ids[cluster.below(ids.len() as u64) as usize]
}

/// Whether nobody counts this replica, or is about to: its disk may be lost without a promise lost.
fn counts_nowhere(cluster: &Cluster, id: NodeId) -> bool {
    let key = cluster.key_of(id);
    let listed =
        |voters: Option<node::voters::VoterSet>| voters.is_some_and(|voters| voters.contains(&key));
    let by_any_disk = cluster
        .nodes
        .values()
        .any(|node| listed(node.disk.latest_voters()) || listed(node.disk.durable_voters()));
    let asked = cluster.changes.values().any(Option::is_none);
    !by_any_disk && !asked && !listed(cluster.history.voters.clone())
}

/// See `two_voters_are_stuck_if_the_leader_dies_while_it_removes_itself`.
fn could_get_stuck(cluster: &Cluster, asked: NodeId, removed: NodeId) -> bool {
    asked == removed && cluster.replica(asked).describe().voters.len() == 2
}

/// An operator changes the voters, sometimes asking the wrong node, or for the impossible.
fn reconfigure(cluster: &mut Cluster) {
    let leader = cluster.settled_leader();
    let asked = match leader.filter(|_| cluster.below(8) > 0) {
        Some(leader) => leader,
        None => chosen(cluster),
    };
    if cluster.nodes[&asked].replica.is_none() {
        return;
    }
    let subject = chosen(cluster);
    match cluster.below(8) {
        0..=3 => {
            cluster.ask_to_add(asked, subject);
        }
        number @ 4..=6 => {
            let removed = if number == 6 { asked } else { subject };
            if !could_get_stuck(cluster, asked, removed) {
                let key = cluster.key_of(removed);
                cluster.ask_to_remove(asked, key);
            }
        }
        _ if cluster.nodes[&subject].replica.is_none() && counts_nowhere(cluster, subject) => {
            cluster.wipe(subject);
        }
        _ => {
            let version = cluster.number();
            cluster.node(subject).endpoint = Some(format!("{subject}-{version}"));
        }
    }
}

fn run(voter_count: i32, node_count: i32, seed: u64, bug: Option<Bug>) -> Cluster {
    let observer_count = node_count - voter_count;
    let mut cluster = Cluster::of_changing_voters(voter_count, observer_count, seed, bug);
    cluster.batches_per_fetch = 1 + cluster.below(5) as usize;
    if cluster.below(2) == 0 {
        cluster.snapshotting = Snapshotting {
            freeze_per_mille: 20,
            advance_per_mille: 20,
            damage_per_mille: 20,
            piece_bytes: 60 + cluster.below(600),
        };
    }
    for round in 0..FAULT_ROUNDS {
        disturb(&mut cluster);
        for _ in 0..3 {
            reconfigure(&mut cluster);
            use_it(&mut cluster, 4);
        }
        if round % 4 == 3 {
            // Otherwise it would mostly be without a leader.
            cluster.heal();
            cluster.lost_per_mille = 0;
            cluster.run_for(300 * MS);
        }
        if !cluster.history.violations.is_empty() {
            break;
        }
    }
    cluster
}

/// How many sets of voters were committed.
fn soak(voter_count: i32, node_count: i32, seeds: std::ops::Range<u64>) -> usize {
    let mut set_count = 0;
    for seed in seeds {
        let outcome = std::panic::catch_unwind(|| survive(voter_count, node_count, seed));
        let what = format!("{voter_count} voters of {node_count} nodes, seed {seed}");
        set_count += outcome.unwrap_or_else(|_| panic!("see above: {what}"));
    }
    set_count
}

fn survive(voter_count: i32, node_count: i32, seed: u64) -> usize {
    let mut cluster = run(voter_count, node_count, seed, None);
    cluster.assert_safe();
    heal(&mut cluster);
    let leader = cluster.await_leader();
    cluster.write(leader, b"after healing");
    cluster.run_until("all caught up", 4_000 * MS, Cluster::is_caught_up);
    // Whoever is no voter can still become one, and any voter but the last can leave.
    let outside = cluster
        .ids()
        .into_iter()
        .find(|&id| !cluster.replica(id).is_voter());
    if let Some(outside) = outside {
        cluster.add_voter(outside);
    }
    let leader = cluster.await_leader();
    if cluster.replica(leader).describe().voters.len() > 1 {
        cluster.remove_voter(leader);
    }
    let leader = cluster.await_leader();
    let read = cluster.read(leader);
    cluster.run_until("a read", 2_000 * MS, |c| c.outcomes.contains_key(&read));
    cluster.run_until("all caught up", 4_000 * MS, Cluster::is_caught_up);
    cluster.assert_safe();
    assert!(cluster.running().all(|replica| {
        replica.is_voter() || matches!(replica.role(), Role::Follower | Role::Unattached)
    }));
    cluster.history.voter_set_count
}

#[test]
fn voters_change_under_faults_without_harm() {
    let changes = soak(3, 5, 0..60) + soak(1, 4, 1_000..1_030) + soak(5, 6, 2_000..2_020);
    assert!(changes > 5 * 110, "{changes} sets of voters were committed");
}

/// Many more seeds, for a machine with time: `SOAK_SEEDS=from..to`.
#[test]
#[ignore = "takes as long as it is told to"]
fn voters_change_under_faults_without_harm_for_as_long_as_wanted() {
    let range = std::env::var("SOAK_SEEDS").unwrap_or_else(|_| "10000..10500".to_owned());
    let (from, to) = range.split_once("..").expect("SOAK_SEEDS is from..to");
    let (from, to) = (from.parse().unwrap(), to.parse().unwrap());
    for (voter_count, node_count) in [(3, 5), (1, 4), (4, 5), (5, 7), (2, 3)] {
        let changes = soak(voter_count, node_count, from..to);
        eprintln!("{voter_count} of {node_count}, seeds {range}: {changes} sets of voters");
    }
}

/// The soak would be worth little if it could not see what it is made to see.
#[test]
fn the_same_run_notices_two_changes_at_once() {
    let noticed = (0..60).any(|seed| is_noticed(Bug::TwoPendingChanges, seed));
    assert!(noticed);
}

/// How often each bug of this kind is noticed; for people, not a test.
#[test]
#[ignore = "measures"]
fn how_many_of_a_hundred_runs_notice_each_bug() {
    for bug in [
        Bug::HighWatermarkCountsNonvoterLeader,
        Bug::AddVoterNoHighWatermarkCheck,
        Bug::TwoPendingChanges,
        Bug::PendingExpiresInAccumulator,
        Bug::VotersOnCommit,
    ] {
        let count = (0..100).filter(|&seed| is_noticed(bug, seed)).count();
        eprintln!("{bug}: {count}");
    }
}

/// By a property, or by an assertion that stops a replica.
fn is_noticed(bug: Bug, seed: u64) -> bool {
    let run = std::panic::catch_unwind(|| run(3, 5, seed, Some(bug)));
    run.is_err() || run.is_ok_and(|cluster| !cluster.history.violations.is_empty())
}
