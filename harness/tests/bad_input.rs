//! Owns what bad input gets: one clear line, the right exit code, and nothing half-started.
//! Never starts a cluster.

mod kit;

use kit::Lab;

/// Runs a command that must be refused, and returns what it said.
fn refused(lab: &Lab, arguments: &[&str], code: i32) -> String {
    let outcome = lab.harness(arguments).expect_code(code);
    assert!(outcome.stdout.is_empty(), "{}", outcome.stdout);
    assert!(!outcome.stderr.contains("panicked"), "{}", outcome.stderr);
    assert!(!lab.runs().exists(), "a refused command leaves no run");
    outcome.stderr
}

fn one_line(text: &str) {
    assert_eq!(text.trim_end().lines().count(), 1, "{text}");
}

#[test]
fn an_unknown_nemesis_gets_the_known_ones_and_the_nearest() {
    let lab = Lab::new();
    let said = refused(&lab, &["run", "--nemesis", "partition-rnadom"], 254);
    one_line(&said);
    for word in [
        "partition-rnadom",
        "partition-random",
        "kill",
        "pause",
        "clock-skew",
        "none",
    ] {
        assert!(said.contains(word), "{word} is missing: {said}");
    }
}

#[test]
fn an_unknown_workload_gets_the_known_ones_and_the_nearest() {
    let lab = Lab::new();
    let said = refused(&lab, &["run", "--workload", "registre"], 254);
    one_line(&said);
    assert!(
        said.contains("known: register") && said.contains("did you mean"),
        "{said}"
    );
}

#[test]
fn an_unknown_bug_gets_the_known_ones() {
    let lab = Lab::new();
    let said = refused(&lab, &["run", "--bug", "B99"], 254);
    one_line(&said);
    assert!(
        said.contains("stale-read") && said.contains("B09"),
        "{said}"
    );
    let said = refused(&lab, &["run", "--bug", "ack-on-apend"], 254);
    one_line(&said);
    assert!(said.contains("did you mean \"ack-on-append\""), "{said}");
}

#[test]
fn numbers_that_make_no_sense_are_refused() {
    let lab = Lab::new();
    for arguments in [
        ["run", "--time", "0"],
        ["run", "--time", "soon"],
        ["run", "--nodes", "0"],
        ["run", "--concurrency", "0"],
        ["run", "--interval", "0"],
        ["run", "--rate", "-1"],
        ["run", "--name", "../outside"],
        ["run", "--node-bin", "/nonexistent/kraft-node"],
        ["run", "--nonsense", "1"],
    ] {
        let said = refused(&lab, &arguments, 254);
        assert!(!said.trim().is_empty(), "{arguments:?}");
    }
}

#[test]
fn a_schedule_that_does_not_fit_the_cluster_is_refused() {
    let lab = Lab::new();
    let schedule = |fault: &str| {
        let text = format!(
            r#"{{"format_version":1,"faults":[{{"trigger":{{"at_ms":3000}},"duration_ms":500,"fault":{fault}}}]}}"#
        );
        lab.write("schedule.json", &text)
            .to_string_lossy()
            .into_owned()
    };
    for (fault, word) in [
        (r#"{"kind":"kill","targets":["n1","n2","n3","n4"]}"#, "n4"),
        (
            r#"{"kind":"partition","shape":"one-node","target":"n9"}"#,
            "n9",
        ),
        (r#"{"kind":"kil","targets":"one"}"#, "kill"),
        (r#"{"kind":"partition","shape":"hlaves"}"#, "halves"),
    ] {
        let path = schedule(fault);
        let said = refused(&lab, &["run", "--nodes", "3", "--schedule", &path], 254);
        one_line(&said);
        assert!(said.contains(word), "{said}");
    }
    let said = refused(&lab, &["run", "--schedule", "missing.json"], 254);
    assert!(said.contains("missing.json"), "{said}");
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
    let path = lab.write("broken.json", "{\"format_version\":1,\n\"faults\":[}");
    let said = refused(&lab, &["run", "--schedule", &path.to_string_lossy()], 254);
    assert!(said.contains("line 2"), "{said}");
}

#[test]
fn an_output_folder_that_cannot_be_written_is_the_environments_fault() {
    let lab = Lab::new();
    lab.write("taken", "a file where a folder should be");
    let outcome = lab
        .harness(&["run", "--time", "5s", "--out", "taken/runs"])
        .expect_code(255);
    let last = outcome.stderr.lines().last().unwrap_or_default();
    assert!(last.contains("taken/runs"), "{}", outcome.stderr);
    lab.assert_nothing_left();
}

#[test]
fn runs_that_do_not_exist_or_are_damaged_are_named() {
    let lab = Lab::new();
    let said = refused(&lab, &["replay", "no-such-run"], 254);
    one_line(&said);
    assert!(said.contains("no-such-run"), "{said}");
    refused(&lab, &["analyze", "latest"], 254);

    std::fs::create_dir_all(lab.runs().join("damaged")).unwrap();
    std::fs::write(
        lab.runs().join("damaged/manifest.json"),
        "{\"format_version\":1",
    )
    .unwrap();
    for command in ["replay", "analyze"] {
        let outcome = lab.harness(&[command, "damaged"]).expect_code(255);
        one_line(&outcome.stderr);
        assert!(
            outcome.stderr.contains("manifest.json line 1"),
            "{}",
            outcome.stderr
        );
    }
}

#[test]
fn a_busy_port_is_named() {
    let lab = Lab::new();
    std::fs::create_dir(lab.runs()).unwrap();
    let listener = std::net::TcpListener::bind("127.0.0.1:0").unwrap();
    let port = listener.local_addr().unwrap().port().to_string();
    let outcome = lab.harness(&["serve", "--port", &port]).expect_code(255);
    one_line(&outcome.stderr);
    assert!(outcome.stderr.contains(&port) && outcome.stderr.contains("--port"));
}

#[test]
fn help_and_version_are_no_errors() {
    let lab = Lab::new();
    assert!(
        lab.harness(&["--help"])
            .expect_code(0)
            .stdout
            .contains("harness replay")
    );
    assert!(
        lab.harness(&["run", "--help"])
            .expect_code(0)
            .stdout
            .contains("--nemesis")
    );
    assert!(
        lab.harness(&["--version"])
            .expect_code(0)
            .stdout
            .contains("harness")
    );
    lab.harness(&[]).expect_code(254);
}
