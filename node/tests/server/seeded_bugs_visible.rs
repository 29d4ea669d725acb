//! Owns the check that a process has a seeded bug only when that is meant, and says so everywhere.
//! Never looks at what the bug does.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

use crate::server_support::{Node, ask, client, single, start_command};
use serde_json::{Value, json};

fn said_at_start(bug: Option<&str>) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut command = start_command();
    command.args(["--id=1", "--listen=127.0.0.1:0", "--data"]);
    command.arg(directory.path().join("data"));
    command.args(bug.map(|bug| format!("--bug={bug}")));
    command.args(bug.map(|_| "--allow-seeded-bugs"));
    Node::start(command, directory.path()).said()
}

#[test]
fn a_bug_that_is_on_is_the_first_thing_in_the_log() {
    for given in ["B27", "no-check-quorum"] {
        let said = said_at_start(Some(given));
        let first = said.lines().next().unwrap_or_default();
        assert!(
            first.contains("seeded bug B27 (no-check-quorum) is ON"),
            "{said}"
        );
    }
    let said = said_at_start(None);
    assert!(
        said.contains("started") && !said.contains("seeded bug"),
        "{said}"
    );
}

#[test]
fn a_bug_that_is_not_meant_is_refused_before_anything_is_touched() {
    let directory = tempfile::tempdir().unwrap();
    let data = directory.path().join("data");
    for format in ["text", "json"] {
        let mut command = start_command();
        command.args([
            "--id=1",
            "--listen=127.0.0.1:0",
            "--bug=stale-read",
            "--data",
        ]);
        command.arg(&data).arg(format!("--log-format={format}"));
        let output = command.output().unwrap();
        let said = String::from_utf8(output.stderr).unwrap();
        assert_eq!(output.status.code(), Some(254), "{said}");
        assert_eq!(said.lines().count(), 1, "{said}");
        assert!(said.contains("--allow-seeded-bugs"), "{said}");
        assert_eq!(
            serde_json::from_str::<Value>(&said).is_ok(),
            format == "json"
        );
    }
    assert!(!data.exists());
}

#[tokio::test]
async fn whoever_looks_sees_a_bug_that_is_on() {
    for bug in [None, Some("stale-read")] {
        let directory = tempfile::tempdir().unwrap();
        let option = format!("--bug={}", bug.unwrap_or_default());
        let given: &[&str] = match bug {
            Some(_) => &[&option, "--allow-seeded-bugs"],
            None => &[],
        };
        let node = single(directory.path(), given).await;
        let ask = async |path: &str| ask(client().get(node.url(path))).await.unwrap().1;
        for path in ["/health", "/health/ready", "/quorum"] {
            let shown = ask(path).await.get("seeded_bug").cloned();
            assert_eq!(shown, bug.map(|bug| json!(bug)), "{path}");
        }
        let mut command = std::process::Command::new(env!("CARGO_BIN_EXE_kraft-node"));
        let server = format!("127.0.0.1:{}", node.port);
        command.args(["describe", "--status", "--bootstrap-server", &server]);
        let text = String::from_utf8(command.output().unwrap().stdout).unwrap();
        assert_eq!(
            text.lines().count(),
            if bug.is_some() { 9 } else { 8 },
            "{text}"
        );
        let line = "SeededBug:              stale-read";
        assert_eq!(text.contains(line), bug.is_some(), "{text}");
        let warned = node
            .said()
            .lines()
            .any(|line| line.contains(" WARN ") && line.contains("is ON"));
        assert_eq!(warned, bug.is_some(), "{}", node.said());
    }
}
