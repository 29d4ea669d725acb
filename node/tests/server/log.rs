//! Owns the tests of what a node process logs: for people and for programs.
//! Never looks at anything but standard error.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use crate::server_support::cluster::Cluster;
use crate::server_support::{Node, ask, client, eventually, free_ports, single, start_command};
use nix::sys::signal::Signal;
use serde_json::Value;

#[tokio::test]
async fn every_json_line_names_node_epoch_and_role_from_start_to_end() {
    let directory = tempfile::tempdir().unwrap();
    let mut node = single(
        directory.path(),
        &["--log-format=json", "--log-level=debug"],
    )
    .await;
    let request = client().put(node.url("/registers/a")).body("{\"value\":1}");
    assert_eq!(ask(request).await.unwrap().0, 200);
    node.signal(Signal::SIGTERM);
    assert_eq!(node.ended().await.code(), Some(0));
    let said = node.said();
    let lines: Vec<Value> = said
        .lines()
        .map(|line| serde_json::from_str(line).unwrap_or_else(|error| panic!("{error}: {line}")))
        .collect();
    for line in &lines {
        assert_eq!(line["node"], "n1", "{line}");
        assert!(
            line["epoch"].is_i64() && line.get("role").is_some(),
            "{line}"
        );
        assert!(line["time"].as_str().unwrap().ends_with('Z'), "{line}");
        assert!(
            ["INFO", "DEBUG"].contains(&line["level"].as_str().unwrap()),
            "{line}"
        );
    }
    let find = |message: &str| {
        let found = lines.iter().find(|line| line["message"] == message);
        found.unwrap_or_else(|| panic!("{message}: {said}"))
    };
    assert_eq!(find("recovered")["log_end"], 0);
    assert_eq!(find("now candidate")["role"], "candidate");
    let leads = find("now leader");
    assert_eq!(
        (&leads["role"], &leads["reason"]),
        (&"leader".into(), &"election won".into())
    );
    assert!(leads["epoch"].as_i64() > find("recovered")["epoch"].as_i64());
    assert_eq!(find("stopping")["reason"], "SIGTERM");
    assert_eq!(lines.last().unwrap()["message"], "stopped");
}

#[tokio::test]
async fn the_level_decides_which_lines_there_are() {
    for (level, has_changes, has_votes) in [
        ("error", false, false),
        ("warn", false, false),
        ("info", true, false),
        ("debug", true, true),
    ] {
        let directory = tempfile::tempdir().unwrap();
        let node = single(directory.path(), &[&format!("--log-level={level}")]).await;
        let said = node.said();
        assert_eq!(said.contains("now leader"), has_changes, "{level}: {said}");
        assert_eq!(
            said.contains("DEBUG n1 ") && said.contains("voted"),
            has_votes,
            "{level}: {said}"
        );
        assert_eq!(said.is_empty(), !has_changes, "{level}: {said}");
    }
}

#[tokio::test]
async fn the_last_words_of_a_node_are_in_the_format_of_its_log() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    drop(single(directory.path(), &[]).await);
    for (format, is_json) in [("text", false), ("json", true)] {
        let mut command = start_command();
        command
            .args(["--id=2", "--listen=127.0.0.1:0", "--data"])
            .arg(&data);
        let output = command
            .arg(format!("--log-format={format}"))
            .output()
            .unwrap();
        assert_eq!(output.status.code(), Some(255));
        let said = String::from_utf8(output.stderr).unwrap();
        let last = said.lines().last().unwrap();
        assert!(last.contains("belongs to"), "{said}");
        match serde_json::from_str::<Value>(last) {
            Ok(line) => {
                assert!(is_json, "{said}");
                let about = (&line["level"], &line["node"], &line["role"]);
                assert_eq!(about, (&"ERROR".into(), &"n2".into(), &Value::Null));
            }
            Err(_) => assert!(!is_json && last.starts_with("kraft-node: "), "{said}"),
        }
    }
}

#[tokio::test]
async fn followers_log_whom_they_follow() {
    let cluster = Cluster::start(&[]);
    let leader = cluster.leader().await;
    crate::server_support::eventually("both follow", async || {
        let line = format!("now follower leader=\"n{}\"", leader + 1);
        let others = (0..3).filter(|at| *at != leader);
        let mut said = others.map(|at| cluster.nodes[at].as_ref().unwrap().said());
        said.all(|said| said.contains(&line)).then_some(())
    })
    .await;
}

/// Two nodes that cannot work together for a reason that somebody has to look for.
fn first_of_two(second: &[&str]) -> (tempfile::TempDir, [Node; 2]) {
    let directory = tempfile::tempdir().unwrap();
    let ports = free_ports(2);
    let node = |at: usize, options: &[&str]| {
        let home = directory.path().join(at.to_string());
        std::fs::create_dir(&home).unwrap();
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kraft-node"));
        command
            .args(["start", "--election-timeout-ms=150"])
            .args(options);
        command.arg(format!("--listen=127.0.0.1:{}", ports[at]));
        command.arg("--data").arg(home.join("data"));
        Node::start(command, &home)
    };
    let peer = format!("--peer=2=http://127.0.0.1:{}", ports[1]);
    let other = node(1, second);
    let first = node(0, &["--id=1", "--cluster-id=a", &peer]);
    (directory, [first, other])
}

#[tokio::test]
async fn peers_that_can_never_work_together_are_named_once_with_what_to_do() {
    for (second, code, advice) in [
        (
            ["--id=2", "--cluster-id=b", "--peer=1=http://127.0.0.1:9"],
            "INCONSISTENT_CLUSTER_ID",
            "--cluster-id",
        ),
        (
            ["--id=3", "--cluster-id=a", "--peer=1=http://127.0.0.1:9"],
            "INVALID_VOTER_KEY",
            "correct the id",
        ),
    ] {
        let (_directory, nodes) = first_of_two(&second);
        let told = || {
            let said = nodes[0].said();
            let lines = said.lines().filter(|line| line.contains(code));
            lines.map(str::to_owned).collect::<Vec<_>>()
        };
        eventually(code, async || (!told().is_empty()).then_some(())).await;
        // It has asked in vain for a whole election by then.
        eventually("a second election", async || {
            let said = nodes[0].said();
            (said.matches("now prospective").count() > 2).then_some(())
        })
        .await;
        let lines = told();
        assert_eq!(lines.len(), 1, "{lines:?}");
        assert!(
            lines[0].contains("WARN") && lines[0].contains(advice),
            "{lines:?}"
        );
        assert!(lines[0].contains("n2"), "{lines:?}");
    }
}

/// Whoever reads the log may go away, or have no room left: that must not cost the cluster its nodes.
#[tokio::test]
async fn a_log_that_cannot_be_written_stops_nothing() {
    let directory = tempfile::tempdir().unwrap();
    std::os::unix::fs::symlink("/dev/full", directory.path().join("stderr")).unwrap();
    let mut node = single(directory.path(), &["--log-level=debug"]).await;
    let request = client().put(node.url("/registers/a")).body("{\"value\":1}");
    assert_eq!(ask(request).await.unwrap().0, 200);
    node.signal(Signal::SIGTERM);
    assert_eq!(node.ended().await.code(), Some(0));
}
