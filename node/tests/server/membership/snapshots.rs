//! Owns the tests of snapshots of real nodes: taken, fetched, shown, and refused when damaged.
//! Never tests what is in a snapshot; only that it is the same state.

use std::fs;
use std::path::PathBuf;

use serde_json::{Value, json};

use crate::server_support::cluster::Cluster;
use crate::server_support::members::{Members, tool};
use crate::server_support::{ask, eventually};

/// Makes snapshots often, and keeps little of what is before them.
const OFTEN: [&str; 3] = [
    "--snapshot-bytes=8000",
    "--retention-bytes=24000",
    "--segment-bytes=4096",
];

/// Writes until a node has taken snapshots and dropped the beginning of its log.
async fn write_until_compacted(members: &Members, id: i32) {
    let mut number = 0;
    eventually("a log that does not start at 0", async || {
        for _ in 0..10 {
            let value = json!(format!("{number:0>200}"));
            members.write(&format!("k{}", number % 20), value).await;
            number += 1;
        }
        let log_start = members.metric(id, "kafka_log_log_log_start_offset").await?;
        (log_start > 0.0).then_some(())
    })
    .await;
}

/// The newest snapshot in a data directory.
fn newest_snapshot(members: &Members, id: i32) -> PathBuf {
    let files = fs::read_dir(members.data(id)).unwrap();
    let paths = files.map(|entry| entry.unwrap().path());
    let snapshots = paths.filter(|path| path.extension().is_some_and(|end| end == "checkpoint"));
    snapshots.max().unwrap()
}

#[tokio::test]
async fn a_wiped_voter_goes_on_from_a_snapshot_and_becomes_a_voter_again() {
    let mut members = Members::standalone(&[1, 2, 3], &OFTEN).await;
    members.make_voters(&[2, 3]).await;
    let leader = members.leader().await;
    write_until_compacted(&members, leader).await;
    let size = "kafka_server_snapshot_emitter_latest_snapshot_generated_bytes";
    assert!(members.metric(leader, size).await.unwrap() > 0.0);

    let wiped = (1..=3).find(|id| *id != leader).unwrap();
    let others: Vec<_> = (1..=3).filter(|id| *id != wiped).collect();
    let former = members.directory_id(wiped);
    members.kill(wiped);
    members.wiped(wiped);
    members.format(wiped, &["--no-initial-controllers"]);
    members.start(wiped, &others, &OFTEN);
    members.write("last", json!("words")).await;
    members.applied(wiped, "last", json!("words")).await;
    let said = members.nodes[&wiped].said();
    assert!(
        said.contains("goes on from the leader's snapshot"),
        "{said}"
    );
    members
        .make(|| members.remove(leader, wiped, &former))
        .await;
    members.make(|| members.add(leader, wiped)).await;
    let before = members.equal_states(&[1, 2, 3]).await;

    for id in 1..=3 {
        members.kill(id);
    }
    for id in 1..=3 {
        members.start(id, &[], &OFTEN);
    }
    members.leader().await;
    eventually("all of it applied again", async || {
        let state = members.equal_states(&[1, 2, 3]).await;
        (state["applied"].as_i64() >= before["applied"].as_i64()).then_some(())
    })
    .await;
    let after = members.equal_states(&[1, 2, 3]).await;
    assert_eq!(after["hash"], before["hash"]);
}

#[tokio::test]
async fn a_wiped_follower_of_configured_voters_goes_on_from_a_snapshot() {
    let mut cluster = Cluster::start(&OFTEN);
    let leader = cluster.leader().await;
    let wiped = (leader + 1) % 3;
    cluster.kill(wiped);
    fs::remove_dir_all(cluster.data(wiped)).unwrap();
    let mut number = 0;
    let leader_said = |cluster: &Cluster| {
        let running = cluster.nodes.iter().flatten();
        running.map(|node| node.said()).collect::<String>()
    };
    while !leader_said(&cluster).contains("deleted the log before a snapshot") {
        let value = json!(format!("{number:0>200}"));
        cluster
            .write_anywhere(&format!("k{}", number % 20), value)
            .await;
        number += 1;
        assert!(number < 2000, "{}", leader_said(&cluster));
    }
    cluster.restart(wiped);
    cluster.agree().await;
    let states = eventually("three states that can be compared", async || {
        let mut states = Vec::new();
        for at in 0..3 {
            let url = cluster.url(at, "/state");
            states.push(ask(cluster.client.get(url)).await.ok()?.1);
        }
        let same = states
            .iter()
            .all(|state| state["applied"] == states[0]["applied"]);
        same.then_some(states)
    })
    .await;
    assert!(
        states
            .iter()
            .all(|state| state["hash"] == states[0]["hash"]),
        "{states:?}"
    );
}

#[tokio::test]
async fn snapshots_and_what_is_left_of_the_log_can_be_shown() {
    let mut members = Members::new(&[1]);
    let trace = members.data(1).with_extension("trace");
    let tracing = format!("--trace={}", trace.display());
    let mut options = OFTEN.to_vec();
    options.push(&tracing);
    members.format(1, &["--standalone", "--endpoint", &members.address(1)]);
    members.start(1, &[], &options);
    write_until_compacted(&members, 1).await;
    members.kill(1);

    let data = members.data_text(1);
    let text = tool(&["dump-snapshot", "--data", &data]).succeeded();
    let name = newest_snapshot(&members, 1);
    let name = name.file_name().unwrap().to_str().unwrap().to_owned();
    assert!(text.starts_with(&format!("{name}: ")), "{text}");
    let end_offset: i64 = name.split_once('-').unwrap().0.parse().unwrap();
    assert!(
        text.contains(&format!("everything below offset {end_offset}, ")),
        "{text}"
    );
    assert!(text.contains("isControl: true"), "{text}");
    assert!(
        !text.contains("k19"),
        "records are shown when asked for: {text}"
    );
    // What the node said of the state when it took the snapshot.
    let traced = fs::read_to_string(&trace).unwrap();
    let events = traced
        .lines()
        .map(|line| serde_json::from_str::<Value>(line).unwrap());
    let mut frozen = events.filter(|event| {
        event["event"] == "snapshot-frozen" && event["end_offset"] == json!(end_offset)
    });
    let digest = frozen.next().unwrap()["digest"]
        .as_str()
        .unwrap()
        .to_owned();
    assert!(text.ends_with(&format!("state hash: {digest}\n")), "{text}");
    let file = newest_snapshot(&members, 1);
    let shown = tool(&[
        "dump-snapshot",
        "--records",
        "--file",
        file.to_str().unwrap(),
    ])
    .succeeded();
    assert!(shown.contains("k19") && shown.len() > text.len(), "{shown}");

    let text = tool(&["dump-log", "--data", &data]).succeeded();
    let first = text.lines().next().unwrap();
    let log_start: i64 = first
        .strip_prefix("log start: ")
        .and_then(|rest| rest.split_once(';'))
        .unwrap_or_else(|| panic!("{text}"))
        .0
        .parse()
        .unwrap();
    assert!(0 < log_start && log_start <= end_offset, "{text}");
    assert!(!text.contains("DAMAGE"), "{text}");
}

#[tokio::test]
async fn a_damaged_newest_snapshot_is_refused_with_what_to_do() {
    let mut members = Members::standalone(&[1], &OFTEN).await;
    write_until_compacted(&members, 1).await;
    members.kill(1);
    let path = newest_snapshot(&members, 1);
    let name = path.file_name().unwrap().to_str().unwrap().to_owned();
    let whole = fs::read(&path).unwrap();
    let mut damaged = whole.clone();
    let middle = damaged.len() / 2;
    damaged[middle] ^= 1;
    fs::write(&path, damaged).unwrap();

    let (code, said) = members.try_start(1, &[], &OFTEN).unwrap_err();
    assert_eq!(code, 255, "{said}");
    assert_eq!(said.lines().count(), 1, "{said}");
    for part in [
        &*members.data_text(1),
        &name,
        "at byte ",
        "Nothing was changed",
        "kraft-node remove-controller",
    ] {
        assert!(said.contains(part), "{part}: {said}");
    }
    let data = members.data_text(1);
    let shown = tool(&["dump-snapshot", "--data", &data]);
    assert_eq!(shown.code, 1, "{shown:?}");
    assert!(
        shown.text.lines().last().unwrap().starts_with("DAMAGE: "),
        "{shown:?}"
    );

    fs::write(&path, whole).unwrap();
    members.start(1, &[], &OFTEN);
    members.write("a", json!(1)).await;
}
