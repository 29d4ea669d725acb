//! Owns the scenarios in which a node gets its state from a snapshot: of its own, or of the leader.
//! Never lets a scenario pass in which no snapshot was used.

use std::cell::Cell;
use std::rc::Rc;

use node::client::ClientReply;
use node::ids::{NodeId, Offset};
use node::message::Response;
use node::trace::TraceEvent;

use crate::clients::{append, stamped_append};
use crate::cluster::{Cluster, Setup};

/// How the file of a snapshot of the leader ends while it is fetched.
const FETCHED: &str = ".fetched.part";

/// How many snapshots of a leader a node has put in the place of its state.
pub(crate) fn installed_count(cluster: &Cluster, id: NodeId) -> usize {
    let events = cluster.events(id).iter();
    events
        .filter(|traced| matches!(traced.event, TraceEvent::SnapshotInstalled { .. }))
        .count()
}

/// A cluster with a leader and something in a list, known everywhere.
pub(crate) fn cluster_with_list(setup: Setup) -> (Cluster, NodeId) {
    let mut cluster = Cluster::new(setup);
    cluster.append_all("a", 0..10);
    cluster.await_caught_up();
    let leader = cluster.await_leader();
    (cluster, leader)
}

#[track_caller]
fn assert_all_hold(cluster: &mut Cluster, expected: std::ops::Range<i64>) {
    cluster.await_caught_up();
    for id in cluster.ids() {
        let expected: Vec<_> = expected.clone().collect();
        assert_eq!(cluster.local_list(id, "a"), expected, "{id}");
    }
    let states: Vec<_> = cluster.ids().iter().map(|&id| cluster.state(id)).collect();
    assert!(states.iter().all(|state| *state == states[0]), "{states:?}");
    cluster.assert_sound();
}

#[test]
fn a_node_that_lost_everything_catches_up_by_snapshot() {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3));
    cluster.snapshot(leader);
    let end = cluster.state(leader).applied;
    cluster.append_all("a", 10..15);
    let follower = cluster.others(leader)[0];
    cluster.wipe(follower);
    cluster.append_all("a", 15..20);
    cluster.start(follower).unwrap();
    assert_all_hold(&mut cluster, 0..20);
    assert_eq!(installed_count(&cluster, follower), 1);
    assert_eq!(cluster.log_start(follower), end);
    cluster.restart(follower);
    assert_all_hold(&mut cluster, 0..20);
    assert_eq!(installed_count(&cluster, follower), 1);
}

#[test]
fn a_node_that_was_away_for_long_catches_up_by_snapshot() {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3).keeping_little());
    let follower = cluster.others(leader)[0];
    cluster.isolate(follower);
    let left_at = cluster.state(follower).applied;
    for round in 1..4 {
        cluster.append_all("a", 10 * round..10 * (round + 1));
        cluster.snapshot(leader);
        cluster.run_for(0);
    }
    assert!(cluster.log_start(leader) > left_at);
    cluster.heal();
    assert_all_hold(&mut cluster, 0..40);
    assert_eq!(installed_count(&cluster, follower), 1);
}

/// Lets a node that lost everything fetch a snapshot of several pieces until it has some of them.
pub(crate) fn until_half_fetched(cluster: &mut Cluster, leader: NodeId) -> NodeId {
    cluster.fill(3_000_000);
    cluster.await_caught_up();
    for id in cluster.ids() {
        cluster.snapshot(id);
    }
    let follower = cluster.others(leader)[0];
    cluster.wipe(follower);
    cluster.start(follower).unwrap();
    cluster.run_until("a part of a snapshot", 10_000, |cluster| {
        cluster.is_on(follower) && cluster.has_unfinished(follower, FETCHED)
    });
    assert_eq!(installed_count(cluster, follower), 0);
    follower
}

#[test]
fn a_new_leader_serves_the_snapshot_that_the_old_one_began_to_send() {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3));
    let follower = until_half_fetched(&mut cluster, leader);
    cluster.power_cut(leader);
    cluster.run_until("another leader", 60_000, |cluster| {
        cluster.leader().is_some_and(|new| new != leader)
    });
    cluster.append_all("a", 10..15);
    assert_eq!(installed_count(&cluster, follower), 1);
    assert!(!cluster.has_unfinished(follower, ".part"));
    cluster.start(leader).unwrap();
    assert_all_hold(&mut cluster, 0..15);
}

/// However fast snapshots follow each other, a slow follower gets the one that it began to fetch.
#[test]
fn a_snapshot_that_is_being_fetched_outlives_newer_ones() {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3).keeping_little());
    cluster.fill(6_000_000);
    cluster.await_caught_up();
    cluster.snapshot(leader);
    let fetched = cluster.snapshots(leader);
    cluster.append_all("a", 10..15);
    let follower = cluster.others(leader)[0];
    cluster.wipe(follower);
    cluster.start(follower).unwrap();
    cluster.run_until("a part of a snapshot", 10_000, |cluster| {
        cluster.is_on(follower) && cluster.has_unfinished(follower, FETCHED)
    });
    while cluster.snapshots(leader) == fetched {
        cluster.ask_for_snapshot(leader);
    }
    assert_eq!(cluster.snapshots(leader)[0], fetched[0], "it stays");
    assert_eq!(installed_count(&cluster, follower), 0);
    assert_all_hold(&mut cluster, 0..15);
    assert_eq!(installed_count(&cluster, follower), 1);
    assert_eq!(cluster.log_start(follower), fetched[0].end_offset);

    cluster.run_for(10_000);
    cluster.append_all("a", 15..20);
    cluster.snapshot(leader);
    assert_eq!(cluster.snapshots(leader).len(), 1, "nobody needs it now");
    assert_all_hold(&mut cluster, 0..20);
}

#[test]
fn a_download_that_a_power_cut_ended_begins_anew() {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3));
    let follower = until_half_fetched(&mut cluster, leader);
    cluster.restart(follower);
    assert!(!cluster.has_unfinished(follower, ".part"));
    assert_eq!(cluster.state(follower).applied, Offset(0));
    assert_all_hold(&mut cluster, 0..10);
    assert_eq!(installed_count(&cluster, follower), 1);
}

#[test]
fn what_a_killed_process_had_fetched_is_not_taken_for_a_snapshot() {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3));
    let follower = until_half_fetched(&mut cluster, leader);
    cluster.kill(follower);
    cluster.start(follower).unwrap();
    assert!(!cluster.has_unfinished(follower, ".part"));
    assert_eq!(cluster.state(follower).applied, Offset(0));
    assert_all_hold(&mut cluster, 0..10);
    assert_eq!(installed_count(&cluster, follower), 1);
}

#[test]
fn a_crash_while_a_snapshot_is_written_leaves_none_and_the_next_one_is_whole() {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3));
    cluster.fill(3_000_000);
    cluster.await_caught_up();
    let crashes = [Cluster::power_cut, Cluster::kill];
    for (id, crash) in cluster.others(leader).into_iter().zip(crashes) {
        cluster.ask_for_snapshot(id);
        assert!(cluster.has_unfinished(id, ".part"));
        crash(&mut cluster, id);
        cluster.start(id).unwrap();
        assert_eq!(cluster.snapshots(id), []);
        assert!(!cluster.has_unfinished(id, ".part"));
        cluster.await_caught_up();
        cluster.snapshot(id);
        let end = cluster.snapshots(id)[0].end_offset;
        cluster.restart(id);
        assert_eq!(cluster.state(id).applied, end);
    }
    assert_all_hold(&mut cluster, 0..10);
}

/// Writes to whoever leads the others while one node is cut off.
impl Cluster {
    fn append_elsewhere(&mut self, away: NodeId, range: std::ops::Range<i64>) {
        self.run_until("another leader", 60_000, |cluster| {
            cluster.leader().is_some_and(|new| new != away)
        });
        for value in range {
            self.write(append("a", value));
        }
    }
}

#[test]
fn a_leader_whose_snapshot_was_interrupted_is_followed_by_one_that_has_all() {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3));
    cluster.fill(3_000_000);
    cluster.await_caught_up();
    cluster.ask_for_snapshot(leader);
    assert!(cluster.has_unfinished(leader, ".part"));
    cluster.isolate(leader);
    cluster.append_elsewhere(leader, 10..15);
    cluster.heal();
    assert_all_hold(&mut cluster, 0..15);
    assert_eq!(cluster.snapshots(leader).len(), 1, "it was finished");
}

#[test]
fn a_restart_takes_the_snapshot_and_the_rest_of_the_log() {
    let (mut cluster, _) = cluster_with_list(Setup::of(3));
    let ends: Vec<_> = cluster
        .ids()
        .iter()
        .map(|&id| {
            cluster.snapshot(id);
            cluster.state(id).applied
        })
        .collect();
    cluster.append_all("a", 10..20);
    cluster.await_caught_up();
    for id in cluster.ids() {
        cluster.power_cut(id);
    }
    for (id, end) in cluster.ids().into_iter().zip(ends) {
        cluster.start(id).unwrap();
        assert_eq!(
            cluster.state(id).applied,
            end,
            "the rest may be uncommitted"
        );
        assert_eq!(cluster.local_list(id, "a"), Vec::from_iter(0..10));
    }
    assert_all_hold(&mut cluster, 0..20);
    for id in cluster.ids() {
        assert_eq!(installed_count(&cluster, id), 0, "{id}");
    }
}

#[test]
fn a_repeated_request_is_recognised_after_snapshot_install_and_restart() {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3).keeping_little());
    let request = || stamped_append("c", 7, "a", 10);
    let first = cluster.write(request());
    cluster.append_all("a", 11..15);
    cluster.snapshot(leader);
    cluster.append_all("a", 15..20);
    cluster.snapshot(leader);
    let follower = cluster.others(leader)[0];
    cluster.wipe(follower);
    cluster.start(follower).unwrap();
    cluster.await_caught_up();
    assert_eq!(installed_count(&cluster, follower), 1);

    cluster.elect(follower);
    assert_eq!(cluster.write(request()), first);
    assert_all_hold(&mut cluster, 0..20);
    for id in cluster.ids() {
        cluster.snapshot(id);
        cluster.restart(id);
    }
    assert_eq!(cluster.write(request()), first);
    let leader = cluster.await_leader();
    let reply = cluster.call(leader, stamped_append("c", 6, "a", 99));
    assert!(
        matches!(
            reply,
            ClientReply::Stale {
                last_request: 7,
                ..
            }
        ),
        "{reply:?}"
    );
    assert_all_hold(&mut cluster, 0..20);
}

#[test]
fn a_snapshot_that_was_damaged_on_its_way_is_refused_and_fetched_again() {
    let (mut cluster, leader) = cluster_with_list(Setup::of(3));
    let follower = until_half_fetched(&mut cluster, leader);
    let (damaged, begun) = (Rc::new(Cell::new(0)), Rc::new(Cell::new(0)));
    let counts = (Rc::clone(&damaged), Rc::clone(&begun));
    cluster.tamper = Some(Box::new(move |response| {
        let (damaged, begun) = &counts;
        let Response::FetchSnapshot(piece) = response else {
            return;
        };
        begun.set(begun.get() + u32::from(piece.position_bytes == 0));
        if piece.position_bytes > 0 && damaged.get() == 0 && !piece.bytes.is_empty() {
            let middle = piece.bytes.len() / 2;
            piece.bytes[middle] ^= 1;
            damaged.set(1);
        }
    }));
    assert_all_hold(&mut cluster, 0..10);
    assert_eq!(
        (damaged.get(), begun.get()),
        (1, 1),
        "fetched again as a whole"
    );
    assert_eq!(installed_count(&cluster, follower), 1);
    assert!(!cluster.has_unfinished(follower, ".part"));
}
