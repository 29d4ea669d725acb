//! Owns the tests of a node process whose disk fails: it stops, says why, and has lied to nobody.
//! Never needs a real broken disk.
#![cfg(target_os = "linux")]
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use std::fs;
use std::path::Path;
use std::process::{Command, Stdio};
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use crate::server_support::cluster::Cluster;
use crate::server_support::failing_disk::{FailingDisk, Failure, fail, mend};
use crate::server_support::{Node, QUICK, ask, client, eventually, single};
use serde_json::{Value, json};

/// As in production: nothing between the node and its disk.
fn plain_start(data: &Path) -> Command {
    let mut command = Command::new(env!("CARGO_BIN_EXE_kraft-node"));
    command.arg("start").stdin(Stdio::null());
    command.args(QUICK.iter().filter(|option| **option != "--write-behind"));
    command
        .args(["--id=1", "--listen=127.0.0.1:0", "--data"])
        .arg(data);
    command
}

/// Several clients add numbers to a set while the disk fails. Gives what was acknowledged.
async fn add_until_it_ends(port: u16, break_disk: impl FnOnce()) -> Vec<u64> {
    let has_failed = Arc::new(AtomicBool::new(false));
    let writers: Vec<_> = (0..8)
        .map(|writer: u64| {
            let has_failed = Arc::clone(&has_failed);
            tokio::spawn(async move {
                let client = client();
                let mut acknowledged = Vec::new();
                for number in 0.. {
                    let value = writer * 1_000_000 + number;
                    let began_after = has_failed.load(Ordering::SeqCst);
                    let url = format!("http://127.0.0.1:{port}/sets/a");
                    match ask(client.post(url).json(&json!({"value": value}))).await {
                        Ok((200, _)) => {
                            assert!(!began_after, "{value} was acknowledged by a failing disk");
                            acknowledged.push(value);
                        }
                        Ok((status, body)) => assert!(status >= 421, "{status} {body}"),
                        Err(_) => break,
                    }
                }
                acknowledged
            })
        })
        .collect();
    let client = client();
    eventually("some writes", async || {
        let url = format!("http://127.0.0.1:{port}/sets/a?consistency=local");
        let (_, body) = ask(client.get(url)).await.ok()?;
        (body["value"].as_array()?.len() > 40).then_some(())
    })
    .await;
    break_disk();
    has_failed.store(true, Ordering::SeqCst);
    let mut acknowledged = Vec::new();
    for writer in writers {
        acknowledged.extend(writer.await.unwrap());
    }
    acknowledged
}

#[tokio::test]
async fn a_disk_that_fails_stops_the_node_and_nothing_is_acknowledged_after() {
    for (failure, cause) in [
        (Failure::Full, "No space left on device"),
        (Failure::Sync, "Input/output error"),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let disk = FailingDisk::new(directory.path());
        let data = directory.path().join("data");
        let mut command = plain_start(&data);
        disk.apply(&mut command, &data);
        let mut node = Node::start(command, directory.path());
        let acknowledged = add_until_it_ends(node.port, || fail(&data, failure)).await;
        assert!(acknowledged.len() > 40, "{acknowledged:?}");
        assert_eq!(node.ended().await.code(), Some(1), "{}", node.said());
        let said = node.said();
        let last = said.lines().last().unwrap();
        assert!(last.starts_with("n1 stopped: "), "{said}");
        for part in [
            &*data.to_string_lossy(),
            ".log",
            cause,
            "this node has to stop",
            "recovers at its next start",
            "(leader in epoch ",
        ] {
            assert!(last.contains(part), "{part}: {last}");
        }
        drop(node);
        let node = single(directory.path(), &[]).await;
        let (_, body) = ask(client().get(node.url("/sets/a"))).await.unwrap();
        let kept = body["value"].as_array().unwrap();
        for value in acknowledged {
            assert!(kept.contains(&json!(value)), "{value} was lost");
        }
    }
}

/// The last line of a process that must not start, which is the only one that matters.
fn refused(command: Command, directory: &Path) -> String {
    let (code, said) = Node::try_start(command, directory).expect_err("it started");
    assert_eq!(code, 255, "{said}");
    said.lines().last().unwrap().to_owned()
}

#[tokio::test]
async fn data_that_cannot_be_read_or_was_changed_keeps_the_node_from_starting() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    let node = single(directory.path(), &[]).await;
    for number in 0..50 {
        let request = client().post(node.url("/lists/a"));
        let (status, _) = ask(request.json(&json!({"value": number}))).await.unwrap();
        assert_eq!(status, 200);
    }
    node.kill();

    let disk = FailingDisk::new(directory.path());
    let mut command = plain_start(&data);
    disk.apply(&mut command, &data);
    fail(&data, Failure::Read);
    let line = refused(command, directory.path());
    for part in [
        &*data.to_string_lossy(),
        "Input/output error",
        "Check the disk",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }

    let log = log_in(&data);
    let sound = fs::read(&log).unwrap();
    let mut damaged = sound.clone();
    damaged[sound.len() / 2] ^= 1;
    fs::write(&log, &damaged).unwrap();
    let line = refused(plain_start(&data), directory.path());
    let file = log.file_name().unwrap().to_string_lossy().into_owned();
    for part in [
        &*data.to_string_lossy(),
        &file,
        "at byte ",
        "Do not put an older copy",
        "kraft-node remove-controller",
    ] {
        assert!(line.contains(part), "{part}: {line}");
    }
    assert_eq!(fs::read(&log).unwrap(), damaged, "nothing was changed");

    fs::write(&log, sound).unwrap();
    let node = single(directory.path(), &[]).await;
    let (_, body) = ask(client().get(node.url("/lists/a"))).await.unwrap();
    assert_eq!(body["value"], json!((0..50).collect::<Vec<_>>()));
}

fn log_in(data: &Path) -> std::path::PathBuf {
    let paths = fs::read_dir(data)
        .unwrap()
        .map(|entry| entry.unwrap().path());
    let mut logs: Vec<_> = paths
        .filter(|path| path.extension().is_some_and(|extension| extension == "log"))
        .collect();
    assert_eq!(logs.len(), 1, "{logs:?}");
    logs.remove(0)
}

/// A leader that cannot read what a follower lacks gives way to one that can.
#[tokio::test]
async fn a_leader_that_cannot_read_its_log_stops_and_another_one_serves() {
    let directory = tempfile::tempdir().unwrap();
    // The leader must stay the leader, also where the machine stands still for a while.
    let patient = ["--fetch-timeout-ms=3000", "--client-deadline-ms=10000"];
    let mut cluster = Cluster::start_on_failing_disks(&patient, directory.path());
    cluster.write_anywhere("first", json!(1)).await;
    cluster.agree().await;
    let leader = cluster.leader().await;
    let behind = (leader + 1) % 3;
    cluster.kill(behind);
    // More than a node keeps in memory, so that it has to read what the follower lacks.
    let filler = "x".repeat(60_000);
    let written: Vec<Value> = (0..320).map(|number| json!([number, filler])).collect();
    for (number, value) in written.iter().enumerate() {
        let written = cluster
            .write(leader, &number.to_string(), value.clone())
            .await;
        assert_eq!(written.unwrap().0, 200);
    }
    fail(&cluster.data(leader), Failure::Read);
    cluster.restart(behind);
    let node = cluster.nodes[leader].as_mut().unwrap();
    assert_eq!(node.ended().await.code(), Some(1), "{}", node.said());
    let said = node.said();
    let last = said.lines().last().unwrap();
    for part in [
        "stopped: ",
        "cannot read ",
        ".log at byte ",
        "Check the disk",
    ] {
        assert!(last.contains(part), "{part}: {last}");
    }
    cluster.nodes[leader] = None;
    mend(&cluster.data(leader), Failure::Read);
    let successor = cluster.leader().await;
    assert_ne!(successor, leader);
    cluster.restart(leader);
    cluster.agree().await;
    for number in [0, 160, 319] {
        assert_eq!(
            cluster.read_anywhere(&number.to_string()).await,
            written[number]
        );
    }
}
