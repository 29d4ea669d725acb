//! Owns the check that a process with a seeded bug says so, in its log and before anything else.
//! Never looks at what the bug does.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod server_support;

use server_support::{Node, start_command};

fn said_at_start(bug: Option<&str>) -> String {
    let directory = tempfile::tempdir().unwrap();
    let mut command = start_command();
    command.args(["--id=1", "--listen=127.0.0.1:0", "--data"]);
    command.arg(directory.path().join("data"));
    command.args(bug.map(|bug| format!("--bug={bug}")));
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
