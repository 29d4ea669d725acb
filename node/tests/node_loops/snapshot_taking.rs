//! Owns the scenarios of a node's own snapshots: when they are taken, how, and what is kept.
//! Never looks into a snapshot; states are compared by hash.

use node::client::{ClientReply, ClientRequest};
use node::ids::{NodeId, Offset};
use node::node_loop::{NodeOptions, SnapshotOptions};
use node::storage::StorageOptions;
use node::trace::TraceEvent;

use crate::bench::MS;
use crate::clients::{append, long_text};
use crate::cluster::{Cluster, Setup};

const N1: NodeId = NodeId(1);

fn alone(snapshots: SnapshotOptions) -> Cluster {
    let options = NodeOptions {
        snapshots,
        storage: StorageOptions {
            segment_bytes: 4_000,
            ..StorageOptions::default()
        },
        ..NodeOptions::default()
    };
    let mut cluster = Cluster::new(Setup {
        options,
        ..Setup::of(1)
    });
    cluster.await_leader();
    cluster
}

fn ends(cluster: &Cluster) -> Vec<Offset> {
    let snapshots = cluster.snapshots(N1);
    snapshots.iter().map(|id| id.end_offset).collect()
}

#[test]
fn a_snapshot_is_taken_after_so_many_bytes() {
    let mut cluster = alone(SnapshotOptions {
        bytes_between: 10_000,
        ..SnapshotOptions::default()
    });
    let mut taken_at = Vec::new();
    for written in 1..=35 {
        cluster.write(ClientRequest::write("a", long_text(900)));
        cluster.run_for(0);
        let count = ends(&cluster).len();
        if count > taken_at.len() {
            taken_at.push(written);
        }
    }
    // A record is a little longer than its value.
    assert_eq!(taken_at.len(), 3, "{taken_at:?}");
    let gaps = [
        taken_at[0],
        taken_at[1] - taken_at[0],
        taken_at[2] - taken_at[1],
    ];
    assert!(gaps.iter().all(|gap| (9..=11).contains(gap)), "{gaps:?}");
    cluster.assert_sound();
}

#[test]
fn a_snapshot_is_taken_after_a_while_if_there_is_anything_new() {
    let mut cluster = alone(SnapshotOptions {
        interval_ns: 10_000 * MS,
        ..SnapshotOptions::default()
    });
    cluster.write(append("a", 1));
    cluster.run_for(9_000);
    assert_eq!(ends(&cluster), []);
    cluster.run_for(2_000);
    assert_eq!(ends(&cluster), [cluster.state(N1).applied]);
    cluster.run_for(100_000);
    assert_eq!(ends(&cluster).len(), 1, "nothing is new");
    cluster.write(append("a", 2));
    cluster.run_for(10_000);
    assert_eq!(ends(&cluster).len(), 2);
    cluster.assert_sound();
}

#[test]
fn every_node_takes_a_snapshot_when_asked_to() {
    let mut cluster = Cluster::new(Setup::of(3));
    cluster.append_all("a", 0..5);
    cluster.await_caught_up();
    for id in cluster.ids() {
        assert_eq!(cluster.snapshots(id), []);
        cluster.snapshot(id);
    }
    let first = cluster.snapshots(N1);
    assert_eq!(first.len(), 1);
    for id in cluster.ids() {
        cluster.ask_for_snapshot(id);
        cluster.run_for(1_000);
        assert_eq!(cluster.snapshots(id), first, "{id} has nothing new");
    }
    cluster.assert_sound();
}

#[test]
fn a_node_that_knows_of_nothing_committed_takes_no_snapshot() {
    let mut cluster = Cluster::new(Setup::of(3));
    let leader = cluster.await_leader();
    let lonely = cluster.others(leader)[0];
    cluster.await_caught_up();
    cluster.isolate(lonely);
    cluster.restart(lonely);
    cluster.ask_for_snapshot(lonely);
    cluster.run_for(5_000);
    assert_eq!(cluster.snapshots(lonely), []);

    cluster.isolate(leader);
    let before = cluster.state(leader).applied;
    cluster.ask(leader, append("a", 1));
    cluster.ask_for_snapshot(leader);
    cluster.run_for(0);
    let taken = cluster.snapshots(leader);
    assert_eq!(taken.len(), 1);
    assert_eq!(
        taken[0].end_offset, before,
        "the append is on the leader alone"
    );
    cluster.assert_sound();
}

#[test]
fn clients_are_served_while_a_snapshot_is_written_and_do_not_change_it() {
    let mut cluster = alone(SnapshotOptions::default());
    cluster.fill(5_000_000);
    let frozen_at = cluster.state(N1).applied;
    cluster.ask_for_snapshot(N1);
    let mut served = 0;
    while cluster.has_unfinished(N1, ".part") {
        assert_eq!(ends(&cluster), []);
        let ticket = cluster.ask(N1, append("a", served));
        let reply = cluster.reply(ticket);
        assert!(
            matches!(reply, Some(ClientReply::Written { .. })),
            "{reply:?}"
        );
        served += 1;
        assert!(served < 100, "the snapshot is never finished");
    }
    assert!(served >= 4, "written after {served} pieces");
    assert_eq!(ends(&cluster), [frozen_at]);
    let expected: Vec<_> = (0..served).collect();
    assert_eq!(cluster.local_list(N1, "a"), expected);
    cluster.assert_sound();
}

/// First offsets of the segments on the disk.
fn segments(cluster: &Cluster) -> Vec<i64> {
    let files = cluster.disk(N1).files();
    let bases = files.iter().filter_map(|file| file.strip_suffix(".log"));
    bases.map(|base| base.parse().unwrap()).collect()
}

#[test]
fn the_log_start_advances_by_size_and_takes_segments_and_snapshots_along() {
    let mut cluster = alone(SnapshotOptions {
        bytes_between: 5_000,
        retention_bytes: 20_000,
        ..SnapshotOptions::default()
    });
    let mut starts = vec![Offset(0)];
    for value in 0..100 {
        cluster.write(ClientRequest::write(
            "a",
            value.to_string() + &long_text(900),
        ));
        cluster.run_for(0);
        let log_start = cluster.log_start(N1);
        if starts.last() != Some(&log_start) {
            starts.push(log_start);
        }
        let ends = ends(&cluster);
        let is_end_of_oldest = ends.first() == Some(&log_start);
        assert!(
            log_start == Offset(0) || is_end_of_oldest,
            "{log_start:?} {ends:?}"
        );
        let kept = segments(&cluster);
        assert!(kept[0] <= log_start.0, "{kept:?} for {log_start}");
        assert!(
            kept.get(1).is_none_or(|second| *second > log_start.0),
            "{kept:?} for {log_start}"
        );
    }
    assert!(starts.len() > 5, "{starts:?}");
    assert!(starts.is_sorted(), "{starts:?}");
    assert!(
        ends(&cluster).len() > 2,
        "more than the newest fits: {:?}",
        ends(&cluster)
    );
    let traced = cluster.events(N1).iter();
    let traced: Vec<_> = traced
        .filter_map(|traced| match traced.event {
            TraceEvent::LogStartAdvanced { log_start } => Some(log_start),
            _ => None,
        })
        .collect();
    assert_eq!(traced, starts[1..]);
    cluster.assert_sound();
}

#[test]
fn the_log_start_advances_by_age() {
    let mut cluster = alone(SnapshotOptions {
        retention_ms: 60_000,
        ..SnapshotOptions::default()
    });
    let take = |cluster: &mut Cluster, value: i64| {
        cluster.write(append("a", value));
        cluster.snapshot(N1);
        *ends(cluster).last().unwrap()
    };
    let first = take(&mut cluster, 1);
    cluster.run_for(40_000);
    let second = take(&mut cluster, 2);
    assert_eq!(ends(&cluster), [first, second], "none is too old");
    assert_eq!(cluster.log_start(N1), Offset(0));
    cluster.run_for(40_000);
    let third = take(&mut cluster, 3);
    assert_eq!(ends(&cluster), [second, third], "the first was too old");
    assert_eq!(cluster.log_start(N1), second);
    cluster.run_for(200_000);
    let fourth = take(&mut cluster, 4);
    assert_eq!(ends(&cluster), [fourth]);
    assert_eq!(cluster.log_start(N1), fourth);
    cluster.assert_sound();
}

#[test]
fn the_log_start_never_advances_to_an_only_snapshot_or_past_the_newest() {
    let mut cluster = alone(SnapshotOptions {
        retention_bytes: 1,
        retention_ms: 0,
        ..SnapshotOptions::default()
    });
    cluster.append_all("a", 0..3);
    cluster.run_for(1_000);
    cluster.snapshot(N1);
    cluster.run_for(1_000);
    assert_eq!(cluster.log_start(N1), Offset(0));
    cluster.append_all("a", 3..6);
    cluster.snapshot(N1);
    let newest = cluster.state(N1).applied;
    cluster.append_all("a", 6..9);
    cluster.run_for(100_000);
    assert_eq!(cluster.log_start(N1), newest);
    assert_eq!(ends(&cluster), [newest]);
    cluster.restart(N1);
    cluster.await_caught_up();
    assert_eq!(cluster.local_list(N1, "a"), Vec::from_iter(0..9));
    cluster.assert_sound();
}
