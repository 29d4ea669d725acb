//! Owns the scenarios of whole clusters with snapshots: who lags, who was wiped, what is interrupted.
//! Never lets a scenario pass without looking at the safety properties too.

use node::ids::{NodeId, Offset};
use node::mutants::Bug;

use crate::cluster::{Cluster, MS};
use crate::seeded_bugs::compare;

/// A settled cluster of three in which one follower is cut off and the log of the other two begins
/// where it cannot follow.
fn with_laggard(bug: Option<Bug>, seed: u64, piece_bytes: u64) -> (Cluster, NodeId, NodeId) {
    let mut cluster = Cluster::new(3, seed, bug);
    cluster.snapshotting.piece_bytes = piece_bytes;
    let leader = cluster.await_leader();
    cluster.write(leader, b"shared");
    cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
    let ids = cluster.ids();
    let laggard = ids.into_iter().find(|&id| id != leader).unwrap();
    cluster.isolate(laggard);
    write_more(&mut cluster, leader, 20);
    for id in cluster.ids() {
        if id != laggard {
            compact_when_caught_up(&mut cluster, id);
        }
    }
    (cluster, leader, laggard)
}

fn write_more(cluster: &mut Cluster, leader: NodeId, count: u8) {
    for number in 0..count {
        cluster.write(leader, &[number; 10]);
    }
}

fn compact_when_caught_up(cluster: &mut Cluster, id: NodeId) {
    let leader = cluster.await_leader();
    let end = cluster.replica(leader).log_end();
    cluster.run_until("what is written is known to be committed", 500 * MS, |c| {
        c.replica(id).high_watermark() == Some(end)
    });
    cluster.compact(id);
}

fn downloaded_bytes(cluster: &Cluster, id: NodeId) -> Option<usize> {
    let partial = cluster.nodes[&id].disk.partial.as_ref();
    partial.map(|(_, bytes)| bytes.len())
}

/// Runs until some pieces of a snapshot are there, and not yet all.
fn run_into_download(cluster: &mut Cluster, id: NodeId) -> usize {
    cluster.run_until("the middle of a download", 1_000 * MS, |cluster| {
        downloaded_bytes(cluster, id).is_some_and(|bytes| bytes > 200)
    });
    downloaded_bytes(cluster, id).unwrap()
}

fn catch_up(cluster: &mut Cluster) {
    cluster.heal();
    let leader = cluster.await_leader();
    cluster.write(leader, b"the end");
    cluster.run_until("all caught up", 3_000 * MS, Cluster::is_caught_up);
    cluster.assert_safe();
}

#[test]
fn a_follower_that_lags_too_far_gets_a_snapshot_and_what_followed() {
    for seed in 0..10 {
        let (mut cluster, leader, laggard) = with_laggard(None, seed, u64::MAX);
        write_more(&mut cluster, leader, 5);
        catch_up(&mut cluster);
        assert_eq!(cluster.snapshot_counts.installed, 1, "seed {seed}");
        let disk = &cluster.nodes[&laggard].disk;
        assert!(disk.log_start > Offset(20) && disk.log_end() > disk.log_start);
    }
}

#[test]
fn a_voter_that_lost_its_disk_gets_a_snapshot_in_pieces() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(3, seed, None);
        cluster.snapshotting.piece_bytes = 50;
        let leader = cluster.await_leader();
        write_more(&mut cluster, leader, 20);
        cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
        // The log still begins at 0: whoever has nothing gets the snapshot all the same.
        let committed = cluster.replica(leader).high_watermark().unwrap();
        cluster.freeze(leader, committed).unwrap();
        let wiped = cluster.ids().into_iter().find(|&id| id != leader).unwrap();
        cluster.wipe(wiped);
        cluster.restart(wiped);
        run_into_download(&mut cluster, wiped);
        catch_up(&mut cluster);
        assert_eq!(cluster.snapshot_counts.installed, 1, "seed {seed}");
        assert_eq!(cluster.nodes[&wiped].disk.log_start, committed);
    }
}

#[test]
fn a_partition_in_mid_download_begins_it_anew() {
    for seed in 0..10 {
        let (mut cluster, _, laggard) = with_laggard(None, seed, 50);
        cluster.heal();
        run_into_download(&mut cluster, laggard);
        cluster.isolate(laggard);
        cluster.run_until("the end of the download", 1_000 * MS, |cluster| {
            downloaded_bytes(cluster, laggard).is_none()
        });
        let counts = cluster.snapshot_counts;
        assert_eq!((counts.abandoned, counts.installed), (1, 0), "seed {seed}");
        catch_up(&mut cluster);
        assert_eq!(cluster.snapshot_counts.installed, 1, "seed {seed}");
    }
}

#[test]
fn a_new_leader_in_mid_download_begins_it_anew() {
    for seed in 0..10 {
        let (mut cluster, leader, laggard) = with_laggard(None, seed, 50);
        cluster.heal();
        run_into_download(&mut cluster, laggard);
        cluster.isolate(leader);
        cluster.run_until("another leader", 3_000 * MS, |cluster| {
            cluster.settled_leader().is_some_and(|id| id != leader)
        });
        // It cannot be committed without the laggard, so the laggard has the other's snapshot.
        assert_eq!(cluster.snapshot_counts.abandoned, 1, "seed {seed}");
        assert_eq!(cluster.snapshot_counts.installed, 1, "seed {seed}");
        catch_up(&mut cluster);
    }
}

#[test]
fn a_leader_that_deletes_the_snapshot_in_mid_download_names_a_newer_one() {
    for seed in 0..10 {
        let (mut cluster, leader, laggard) = with_laggard(None, seed, 50);
        cluster.heal();
        run_into_download(&mut cluster, laggard);
        write_more(&mut cluster, leader, 1);
        assert!(
            downloaded_bytes(&cluster, laggard).is_some(),
            "still under way"
        );
        let newer = cluster.compact(leader);
        catch_up(&mut cluster);
        assert_eq!(cluster.snapshot_counts.abandoned, 1, "seed {seed}");
        assert_eq!(cluster.snapshot_counts.installed, 1, "seed {seed}");
        assert_eq!(cluster.nodes[&laggard].disk.log_start, newer.end_offset);
    }
}

#[test]
fn a_power_cut_in_mid_download_begins_it_anew() {
    for seed in 0..10 {
        let (mut cluster, _, laggard) = with_laggard(None, seed, 50);
        cluster.heal();
        run_into_download(&mut cluster, laggard);
        cluster.power_cut(laggard);
        cluster.restart(laggard);
        assert_eq!(downloaded_bytes(&cluster, laggard), None);
        catch_up(&mut cluster);
        assert_eq!(cluster.snapshot_counts.installed, 1, "seed {seed}");
    }
}

/// A follower learns of records and that they are committed at once, and makes a snapshot of them
/// before its log is synced.
#[test]
fn a_snapshot_may_hold_what_a_power_cut_took_from_the_log() {
    for seed in 0..10 {
        let mut cluster = Cluster::new(3, seed, None);
        let leader = cluster.await_leader();
        cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
        let follower = cluster.ids().into_iter().find(|&id| id != leader).unwrap();
        cluster.isolate(follower);
        write_more(&mut cluster, leader, 5);
        cluster.heal();
        cluster.run_until(
            "a record that is committed but not synced",
            1_000 * MS,
            |c| c.replica(follower).high_watermark() > Some(c.nodes[&follower].disk.durable_end()),
        );
        let committed = cluster.replica(follower).high_watermark().unwrap();
        cluster.freeze(follower, committed).unwrap();
        cluster.power_cut_keeping(follower, 0);
        assert!(cluster.nodes[&follower].disk.durable_end() < committed);
        cluster.restart(follower);
        assert_eq!(
            cluster.replica(follower).log_start(),
            committed,
            "seed {seed}"
        );
        assert_eq!(cluster.replica(follower).log_end(), committed);
        catch_up(&mut cluster);
        assert_eq!(cluster.snapshot_counts.installed, 0, "seed {seed}");
    }
}

/// A deposed leader's log is longer than the snapshot that it gets, and differs before its end.
#[test]
fn a_diverged_log_lives_on_behind_a_snapshot_if_it_is_kept() {
    let (right, wrong) = compare(Bug::SnapshotInstallKeepsLog, |bug| {
        let mut cluster = Cluster::new(3, 11, bug);
        let old = cluster.await_leader();
        cluster.write(old, b"shared");
        cluster.run_until("all caught up", 500 * MS, Cluster::is_caught_up);
        cluster.isolate(old);
        for number in 0..20_u8 {
            cluster.propose(old, &[number]);
        }
        cluster.run_until("a new leader", 2_000 * MS, |cluster| {
            cluster.settled_leader().is_some_and(|id| id != old)
        });
        let new = cluster.settled_leader().unwrap();
        write_more(&mut cluster, new, 5);
        for id in cluster.ids() {
            if id != old {
                compact_when_caught_up(&mut cluster, id);
            }
        }
        write_more(&mut cluster, new, 30);
        assert!(cluster.nodes[&old].disk.log_end() > cluster.nodes[&new].disk.log_start);
        cluster.heal();
        cluster.run_until("all caught up", 3_000 * MS, Cluster::is_caught_up);
        assert_eq!(cluster.snapshot_counts.installed, 1);
        cluster
            .history
            .check_logs_match(cluster.nodes.values().map(|node| &node.disk));
        cluster.history.violations.join("; ")
    });
    assert_eq!(right, "");
    assert!(wrong.contains("logs agree on"), "{wrong}");
    assert!(wrong.contains("committed record lost"), "{wrong}");
}
