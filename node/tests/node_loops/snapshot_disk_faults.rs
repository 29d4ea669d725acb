//! Owns the scenarios in which the disk fails under a snapshot that is being written.
//! Never lets a node go on after that.

use node::ids::NodeId;

use crate::cluster::{Cluster, Setup};
use crate::disk::Fault;

const FAULTS: [Fault; 2] = [Fault::Full, Fault::Sync];

fn filled() -> (Cluster, NodeId) {
    let mut cluster = Cluster::new(Setup::of(3));
    cluster.append_all("a", 0..5);
    cluster.fill(2_000_000);
    cluster.await_caught_up();
    let leader = cluster.await_leader();
    (cluster, leader)
}

#[track_caller]
fn assert_stops(cluster: &mut Cluster, id: NodeId) {
    cluster.run_until("the end of a node", 10_000, |cluster| !cluster.is_on(id));
    let reason = cluster.stopped(id).unwrap_or_default();
    assert!(reason.contains(".checkpoint"), "{reason}");
}

#[test]
fn a_node_that_cannot_write_its_snapshot_stops_and_comes_back_without_it() {
    for fault in FAULTS {
        let (mut cluster, leader) = filled();
        let id = cluster.others(leader)[0];
        cluster.disk(id).set_fault(Some(fault));
        cluster.ask_for_snapshot(id);
        assert_stops(&mut cluster, id);
        cluster.append_all("a", 5..10);
        cluster.start(id).unwrap();
        assert_eq!(cluster.snapshots(id), []);
        assert!(!cluster.has_unfinished(id, ".part"));
        cluster.await_caught_up();
        cluster.snapshot(id);
        assert_eq!(cluster.local_list(id, "a"), Vec::from_iter(0..10));
        cluster.assert_sound();
    }
}

#[test]
fn a_node_that_cannot_store_the_snapshot_of_the_leader_stops_and_fetches_it_later() {
    for fault in FAULTS {
        let (mut cluster, leader) = filled();
        cluster.snapshot(leader);
        let id = cluster.others(leader)[0];
        cluster.wipe(id);
        cluster.start(id).unwrap();
        cluster.disk(id).set_fault(Some(fault));
        assert_stops(&mut cluster, id);
        cluster.start(id).unwrap();
        assert_eq!(cluster.snapshots(id), []);
        cluster.await_caught_up();
        assert_eq!(cluster.snapshots(id).len(), 1);
        assert_eq!(cluster.local_list(id, "a"), Vec::from_iter(0..5));
        cluster.assert_sound();
    }
}
