//! Owns the scenarios of the seeded bugs of snapshots, each in a cluster of loops.
//! Never runs a scenario with the bug only: each one is also shown to go well without it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use node::client::ClientRequest;
use node::ids::{NodeId, Offset};
use node::mutants::Bug;
use node::storage::StorageOptions;

use crate::clients::{append, long_text, stamped_append};
use crate::cluster::{Cluster, Setup};
use crate::seeded_bugs::compare;
use crate::snapshot_following::{cluster_with_list, installed_count, until_half_fetched};

/// Takes snapshots everywhere, with something new in each, so that logs start at one.
fn snapshot_twice(cluster: &mut Cluster) {
    for round in 0..2 {
        cluster.append_all("a", 100 * round..100 * round + 3);
        cluster.await_caught_up();
        for id in cluster.ids() {
            cluster.snapshot(id);
            cluster.run_for(0);
        }
    }
    for id in cluster.ids() {
        assert!(cluster.log_start(id) > Offset(0), "{id}");
    }
}

#[test]
fn nobody_knows_the_voters_any_more_if_they_are_not_in_the_snapshot() {
    let (right, wrong) = compare(Bug::VotersNotInSnapshot, |bug| {
        let setup = Setup::of(3).keeping_little().with_bug(bug);
        let mut cluster = Cluster::new(Setup {
            formatted: true,
            ..setup
        });
        snapshot_twice(&mut cluster);
        for id in cluster.ids() {
            cluster.power_cut(id);
        }
        // A node that knows of no voters stops, or waits for somebody who does.
        let elected = catch_unwind(AssertUnwindSafe(|| {
            for id in cluster.ids() {
                cluster.start(id).unwrap();
            }
            cluster.reaches(60_000, |cluster| cluster.leader().is_some())
        }));
        elected.unwrap_or(false)
    });
    assert_eq!((right, wrong), (true, false), "whether anyone is elected");
}

/// A leader that is cut off goes on appending. The others commit less than that, and keep only a
/// snapshot of it.
#[test]
fn what_a_deposed_leader_never_committed_stays_behind_the_snapshot_it_gets() {
    let (right, wrong) = compare(Bug::SnapshotInstallKeepsLog, |bug| {
        let (mut cluster, leader) = cluster_with_list(Setup::of(3).keeping_little().with_bug(bug));
        let others = cluster.others(leader);
        for &far in &others {
            cluster.cut(leader, far);
        }
        for value in 1_000..1_100 {
            cluster.ask(leader, append("a", value));
        }
        cluster.run_until("another leader", 60_000, |cluster| {
            cluster.leader().is_some_and(|new| new != leader)
        });
        for round in 0..2 {
            cluster.append_all("a", 200 + 10 * round..203 + 10 * round);
            cluster.run_for(1_000);
            for &id in &others {
                cluster.snapshot(id);
                cluster.run_for(0);
            }
        }
        cluster.heal();
        let agrees = catch_unwind(AssertUnwindSafe(|| {
            cluster.reaches(60_000, |cluster| installed_count(cluster, leader) > 0)
                && cluster.reaches(60_000, Cluster::is_caught_up)
        }));
        agrees.unwrap_or(false)
    });
    assert_eq!((right, wrong), (true, false), "whether its log agrees");
}

/// A leader and one other are cut off from the majority. The other one lost its disk and gets the
/// leader's snapshot, which says that everything in it is committed.
#[test]
fn a_node_takes_over_what_was_never_committed() {
    let (right, wrong) = compare(Bug::SnapshotAboveHighWatermark, |bug| {
        let (mut cluster, leader) = cluster_with_list(Setup::of(5).with_bug(bug));
        let others = cluster.others(leader);
        let (with_leader, majority) = (others[0], &others[1..]);
        for &far in majority {
            cluster.cut(leader, far);
            cluster.cut(with_leader, far);
        }
        for value in 100..110 {
            cluster.ask(leader, append("a", value));
        }
        cluster.ask_for_snapshot(leader);
        cluster.run_for(0);
        cluster.wipe(with_leader);
        cluster.start(with_leader).unwrap();
        cluster.run_until("an installed snapshot", 1_000, |cluster| {
            installed_count(cluster, with_leader) == 1
        });
        cluster.run_until("another leader", 60_000, |cluster| {
            cluster.leader().is_some_and(|new| new != leader)
        });
        cluster.append_all("a", 200..220);
        let committed = {
            let new_leader = cluster.await_leader();
            cluster.local_list(new_leader, "a")
        };
        let taken_over = cluster.local_list(with_leader, "a");
        (
            committed.starts_with(&taken_over),
            cluster.findings.uncommitted_snapshots.len(),
            cluster.findings.divergences.is_empty(),
        )
    });
    assert_eq!(right, (true, 0, true));
    assert_eq!(wrong, (false, 1, false));
}

/// What a node holds that lost everything and got it back by snapshot, and whether that is what the
/// others hold at the same position.
fn refetched(bug: Option<Bug>) -> (Vec<i64>, bool) {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3).with_bug(bug));
    cluster.ask_for_snapshot(leader);
    cluster.run_for(0);
    assert_eq!(cluster.snapshots(leader).len(), 1);
    let follower = cluster.others(leader)[0];
    cluster.wipe(follower);
    cluster.start(follower).unwrap();
    cluster.await_caught_up();
    assert_eq!(installed_count(&cluster, follower), 1);
    let agree = cluster.findings.divergences.is_empty();
    (cluster.local_list(follower, "a"), agree)
}

#[test]
fn the_last_record_of_a_snapshot_is_applied_again_behind_it() {
    let (right, wrong) = compare(Bug::SnapshotIdOffByOne, refetched);
    assert_eq!(right, (Vec::from_iter(0..10), true));
    assert_eq!(wrong, (Vec::from_iter((0..10).chain([9])), false));
}

/// A power cut some time after a snapshot was taken and the log before it was deleted.
#[test]
fn a_snapshot_that_was_not_synced_is_empty_after_a_power_cut() {
    let (right, wrong) = compare(Bug::SnapshotNoFsync, |bug| {
        let mut cluster = Cluster::new(Setup::of(3).keeping_little().with_bug(bug));
        snapshot_twice(&mut cluster);
        cluster.append_all("a", 500..510);
        cluster.await_caught_up();
        let id = cluster.ids()[0];
        cluster.power_cut(id);
        let refused = cluster.start(id).err();
        refused.map(|error| error.to_string())
    });
    assert_eq!(right, None);
    let wrong = wrong.unwrap();
    assert!(wrong.contains(".checkpoint"), "{wrong}");
}

#[test]
fn a_part_of_a_snapshot_becomes_the_state_of_a_node() {
    let (right, wrong) = compare(Bug::SnapshotPartAccepted, |bug| {
        let (mut cluster, leader) = cluster_with_list(Setup::of(3).with_bug(bug));
        let follower = until_half_fetched(&mut cluster, leader);
        cluster.kill(follower);
        cluster.start(follower).unwrap();
        cluster.append_all("a", 10..12);
        cluster.await_caught_up();
        let agree = cluster.findings.divergences.is_empty();
        (cluster.local_list(follower, "a"), agree)
    });
    assert_eq!(right, (Vec::from_iter(0..12), true));
    assert_eq!(
        wrong,
        (vec![10, 11], false),
        "lists were in the missing part"
    );
}

#[test]
fn a_log_whose_beginning_is_nowhere_is_not_started_from() {
    let (right, wrong) = compare(Bug::LogDeletedPastSnapshot, |bug| {
        let mut setup = Setup::of(1).with_bug(bug).keeping_little();
        setup.options.storage = StorageOptions {
            segment_bytes: 4_000,
            ..StorageOptions::default()
        };
        let mut cluster = Cluster::new(setup);
        let id = NodeId(1);
        for _ in 0..20 {
            cluster.write(ClientRequest::write("a", long_text(900)));
        }
        let bare_starts = cluster.findings.bare_starts.len();
        cluster.power_cut(id);
        let refused = cluster.start(id).err();
        (bare_starts > 0, refused.map(|error| error.to_string()))
    });
    assert_eq!(right, (false, None));
    let (bare, refused) = wrong;
    let refused = refused.unwrap();
    assert!(bare && refused.contains("KAFKA-14240"), "{refused}");
}

#[test]
fn a_restart_applies_the_log_again_over_the_state_of_the_snapshot() {
    let (right, wrong) = compare(Bug::ApplyTwice, |bug| {
        let (mut cluster, leader) = cluster_with_list(Setup::of(3).with_bug(bug));
        let follower = cluster.others(leader)[0];
        cluster.snapshot(follower);
        cluster.append_all("a", 10..12);
        cluster.restart(follower);
        cluster.await_caught_up();
        let agree = cluster.findings.divergences.is_empty();
        (cluster.local_list(follower, "a"), agree)
    });
    assert_eq!(right, (Vec::from_iter(0..12), true));
    assert_eq!(wrong, (Vec::from_iter((0..10).chain(0..12)), false));
}

#[test]
fn a_repeated_request_is_applied_again_by_whoever_has_its_state_from_a_snapshot() {
    let (right, wrong) = compare(Bug::DedupLostInSnapshot, |bug| {
        let (mut cluster, leader) = cluster_with_list(Setup::of(3).with_bug(bug));
        let request = || stamped_append("c", 1, "a", 10);
        let first = cluster.write(request());
        cluster.snapshot(leader);
        let follower = cluster.others(leader)[0];
        cluster.wipe(follower);
        cluster.start(follower).unwrap();
        cluster.await_caught_up();
        cluster.elect(follower);
        let again = cluster.write(request());
        let agree = cluster.findings.divergences.is_empty();
        (again == first, cluster.local_list(follower, "a"), agree)
    });
    assert_eq!(right, (true, Vec::from_iter(0..11), true));
    assert_eq!(wrong, (false, Vec::from_iter((0..11).chain([10])), false));
}
