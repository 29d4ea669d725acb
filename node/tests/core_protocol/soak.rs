//! Owns the randomised run of many seeds: faults of all kinds, then healing and progress.
//! Never depends on anything but the seed.

use node::ids::NodeId;
use node::mutants::Bug;

use crate::cluster::{Cluster, MS};
use crate::snapshotting::{SnapshotCounts, Snapshotting};

const FAULT_ROUNDS: u64 = 25;

pub(crate) fn disturb(cluster: &mut Cluster) {
    let ids = cluster.ids();
    let node = ids[cluster.below(ids.len() as u64) as usize];
    let other = ids[cluster.below(ids.len() as u64) as usize];
    match cluster.below(14) {
        0 => cluster.isolate(node),
        1 | 2 => cluster.cut_between(node, other),
        3 | 4 => cluster.cut_link(node, other),
        5..=7 => cluster.heal(),
        8 => cluster.lost_per_mille = cluster.below(300),
        9 => cluster.lost_per_mille = 0,
        10 | 11 => cluster.power_cut(node),
        12 => cluster.shut_down(node),
        _ => {
            let jump_ms = cluster.below(600) as i64 - 300;
            let clock_offset_ns = &mut cluster.nodes.get_mut(&node).unwrap().clock_offset_ns;
            *clock_offset_ns += jump_ms * MS as i64;
        }
    }
    // What is down comes back sooner or later.
    for id in ids {
        if cluster.nodes[&id].replica.is_none() && cluster.below(3) == 0 {
            cluster.restart(id);
        }
    }
}

pub(crate) fn use_it(cluster: &mut Cluster, count: u64) {
    for number in 0..count {
        let ids = cluster.ids();
        let node = match cluster.settled_leader().filter(|_| cluster.below(4) > 0) {
            Some(leader) => leader,
            None => ids[cluster.below(ids.len() as u64) as usize],
        };
        if cluster.below(3) == 0 {
            cluster.read(node);
        } else {
            cluster.propose(node, &number.to_be_bytes());
        }
        let pause_ns = cluster.below(20 * MS);
        cluster.run_for(pause_ns);
    }
}

/// Takes everything from the disk of a voter. That is survivable only while all others have what is
/// committed, and until it has it again (kraft.version 0 cannot tell the new replica from the old).
fn lose_a_disk(cluster: &mut Cluster) {
    let snapshotting = cluster.snapshotting;
    heal(cluster);
    let leader = cluster.await_leader();
    cluster.write(leader, b"before the loss");
    cluster.run_until("all caught up", 3_000 * MS, Cluster::is_caught_up);
    // One that led the epoch would be told so by others, and stop.
    let mut ids = cluster.ids();
    ids.retain(|&id| Some(id) != cluster.settled_leader());
    let node = ids[cluster.below(ids.len() as u64) as usize];
    cluster.wipe(node);
    cluster.restart(node);
    cluster.snapshotting = snapshotting;
    cluster.run_until("all caught up again", 20_000 * MS, Cluster::is_caught_up);
}

fn run(voter_count: i32, seed: u64, bug: Option<Bug>) -> Cluster {
    run_with(voter_count, seed, bug, None)
}

fn run_with(
    voter_count: i32,
    seed: u64,
    bug: Option<Bug>,
    snapshotting: Option<Snapshotting>,
) -> Cluster {
    let mut cluster = Cluster::new(voter_count, seed, bug);
    cluster.batches_per_fetch = 1 + cluster.below(5) as usize;
    if let Some(snapshotting) = snapshotting {
        cluster.snapshotting = snapshotting;
        cluster.snapshotting.piece_bytes = 60 + cluster.below(300);
    }
    for _ in 0..FAULT_ROUNDS {
        disturb(&mut cluster);
        use_it(&mut cluster, 12);
        if snapshotting.is_some() && voter_count > 2 && cluster.below(8) == 0 {
            lose_a_disk(&mut cluster);
        }
        if !cluster.history.violations.is_empty() {
            break;
        }
    }
    cluster
}

/// Heals everything; nodes that were shut down are started again, as an operator would.
pub(crate) fn heal(cluster: &mut Cluster) {
    cluster.heal();
    cluster.lost_per_mille = 0;
    cluster.snapshotting.damage_per_mille = 0;
    for id in cluster.ids() {
        cluster.power_cut(id);
        cluster.restart(id);
    }
}

fn soak(voter_count: i32, seeds: std::ops::Range<u64>) {
    soak_with(voter_count, seeds, None);
}

fn soak_with(
    voter_count: i32,
    seeds: std::ops::Range<u64>,
    snapshotting: Option<Snapshotting>,
) -> SnapshotCounts {
    let mut counts = SnapshotCounts::default();
    for seed in seeds {
        let mut cluster = run_with(voter_count, seed, None, snapshotting);
        cluster.assert_safe();
        heal(&mut cluster);
        let leader = cluster.await_leader();
        cluster.write(leader, b"after healing");
        cluster.run_until("all caught up", 2_000 * MS, Cluster::is_caught_up);
        let read = cluster.read(leader);
        cluster.run_until("a read", 2_000 * MS, |c| c.outcomes.contains_key(&read));
        cluster.assert_safe();
        let leader_epoch = cluster.replica(leader).epoch();
        assert_eq!(
            cluster.history.leader_of(leader_epoch),
            Some(leader),
            "seed {seed}"
        );
        counts = counts.plus(cluster.snapshot_counts);
    }
    counts
}

#[test]
fn three_voters_survive_anything_and_recover() {
    soak(3, 0..150);
}

#[test]
fn five_voters_survive_anything_and_recover() {
    soak(5, 1_000..1_100);
}

#[test]
fn other_sizes_survive_anything_and_recover() {
    soak(1, 2_000..2_020);
    soak(2, 2_100..2_140);
    soak(4, 2_200..2_240);
}

/// Snapshots are made and the log below them deleted all the time, so whoever lags needs one; many
/// downloads end half-way, in a new leader, a deleted snapshot or damaged bytes.
#[test]
fn voters_with_snapshots_survive_anything_and_recover() {
    let snapshotting = Snapshotting {
        freeze_per_mille: 60,
        advance_per_mille: 60,
        damage_per_mille: 5,
        piece_bytes: u64::MAX,
    };
    for (voter_count, seeds) in [
        (3, 3_000..3_060),
        (5, 3_100..3_130),
        (2, 3_200..3_210),
        (1, 3_300..3_305),
    ] {
        let counts = soak_with(voter_count, seeds, Some(snapshotting));
        let used = counts.frozen > 30 && counts.advanced > 30;
        assert!(used, "{voter_count} voters: {counts:?}");
        println!("{voter_count} voters: {counts:?}");
        let fetched = counts.installed > 100 && counts.refused > 10 && counts.abandoned > 10;
        assert!(
            fetched || voter_count <= 2,
            "{voter_count} voters: {counts:?}"
        );
    }
}

/// The soak would be worth little if it could not see what it is made to see.
#[test]
fn the_same_run_notices_stale_reads() {
    let noticed = (0..60).any(|seed| {
        let cluster = run(3, seed, Some(Bug::StaleRead));
        cluster
            .history
            .violations
            .iter()
            .any(|violation| violation.contains("stale read"))
    });
    assert!(noticed);
}

#[test]
fn the_same_seed_gives_the_same_run() {
    let fingerprint = |seed| {
        let cluster = run(3, seed, None);
        let ends = |id: NodeId| {
            let node = &cluster.nodes[&id];
            (
                node.incarnation,
                node.disk
                    .log
                    .last()
                    .map(|batch| (batch.end_offset(), batch.crc())),
            )
        };
        (
            cluster.now_ns,
            cluster.outcomes.clone(),
            cluster.ids().into_iter().map(ends).collect::<Vec<_>>(),
        )
    };
    assert_eq!(fingerprint(5), fingerprint(5));
    assert_ne!(fingerprint(5), fingerprint(6));
}
