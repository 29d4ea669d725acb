//! Owns what bad input gets: one clear line, the right exit code, and nothing half-started.
//! Never starts a cluster.

use crate::kit::Lab;
use serde_json::{Value, json};

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
    let (_, known) = said.split_once("known: ").unwrap();
    let known: Vec<&str> = known.trim_end().split(", ").collect();
    for word in ["all", "none"] {
        assert!(known.contains(&word), "{word} is missing: {said}");
    }
    // Whatever this machine and its worlds can do.
    let told = lab.harness(&["doctor"]).expect_code(0).stdout;
    let families = told
        .lines()
        .skip_while(|line| !line.starts_with("--nemesis"));
    let families: Vec<&str> = families
        .skip(1)
        .take_while(|line| !line.is_empty())
        .filter_map(|line| line.split_whitespace().next())
        .collect();
    assert!(families.len() >= 34, "{told}");
    for family in families {
        assert!(known.contains(&family), "{family} is missing: {said}");
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
        ["run", "--seed", "-1"],
        ["run", "--name", "../outside"],
        ["run", "--node-bin", "/nonexistent/kraft-node"],
        ["run", "--nonsense", "1"],
    ] {
        let said = refused(&lab, &arguments, 254);
        one_line(&said);
        let flag = arguments[1].trim_start_matches('-');
        assert!(said.contains(flag), "{arguments:?}: {said}");
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
    let path = schedule(r#"{"kind":"kill","targets":"one"}"#);
    let late = ["run", "--schedule", &path, "--time", "1"];
    let said = refused(&lab, &late, 254);
    one_line(&said);
    assert!(
        said.contains("3000 ms") && said.contains("--time"),
        "{said}"
    );
    let said = refused(&lab, &["run", "--schedule", "missing.json"], 254);
    assert!(said.contains("missing.json"), "{said}");
    assert_eq!(said.matches("No such file").count(), 1, "{said}");
    let path = lab.write("broken.json", "{\"format_version\":1,\n\"faults\":[}");
    let said = refused(&lab, &["run", "--schedule", &path.to_string_lossy()], 254);
    assert!(said.contains("line 2"), "{said}");
}

/// What a world cannot do is told before anything starts, for what was asked by name and by file.
#[test]
fn faults_that_the_world_cannot_do_are_refused_before_the_run() {
    let lab = Lab::new();
    for world in ["run", "sim"] {
        let said = refused(
            &lab,
            &[world, "--nemesis", "kill,wipe", "--voters", "configured"],
            254,
        );
        one_line(&said);
        assert!(said.contains("wipe"), "{said}");
        assert!(
            said.contains("taking disks away is not possible in"),
            "{said}"
        );
        assert!(said.contains("KAFKA-14077"), "{said}");
        for (trigger, fault, word) in [
            (
                r#"{"on":"message-sent:fetch","node":"leader"}"#,
                r#"{"kind":"kill","targets":"event-node"}"#,
                "a leader does not fetch",
            ),
            (
                r#"{"on":"flush","edge":"before"}"#,
                r#"{"kind":"clock-skew","targets":"event-node","offset_ms":5}"#,
                "needs an answer",
            ),
        ] {
            let text = format!(
                r#"{{"format_version":1,"faults":[{{"trigger":{trigger},"duration_ms":500,"fault":{fault}}}]}}"#
            );
            let path = lab.write("schedule.json", &text);
            let path = path.to_string_lossy();
            let said = refused(&lab, &[world, "--time", "5", "--schedule", &path], 254);
            one_line(&said);
            assert!(said.contains("fault 1"), "{said}");
            assert!(said.contains(word), "{said}");
        }
    }
}

#[test]
fn faults_on_observers_are_refused_where_there_never_are_any() {
    let lab = Lab::new();
    for world in ["run", "sim"] {
        for fault in [
            r#"{"kind":"kill","targets":"observers"}"#,
            r#"{"kind":"partition","shape":"one-way","target":"observers"}"#,
            r#"{"kind":"membership","what":"promote"}"#,
        ] {
            let text = format!(
                r#"{{"format_version":1,"faults":[{{"trigger":{{"at_ms":2500}},"duration_ms":500,"fault":{fault}}}]}}"#
            );
            let path = lab.write("schedule.json", &text);
            let path = path.to_string_lossy();
            let arguments = [world, "--time", "3", "--schedule", &path];
            let said = refused(&lab, &arguments, 254);
            one_line(&said);
            assert!(said.contains("fault 1 of the schedule"), "{said}");
            assert!(said.contains("say --observers with a number"), "{said}");
        }
    }
    assert!(!lab.runs().exists());
}

#[test]
fn paces_that_make_no_sense_are_refused_and_so_is_what_tcp_does_not_do() {
    let lab = Lab::new();
    for (arguments, words) in [
        (
            ["--nemesis", "kill:intervall=2"],
            ["intervall", "did you mean"],
        ),
        (
            ["--nemesis", "kill:interval=1ms"],
            ["interval=1ms", "100ms"],
        ),
        (
            ["--nemesis", "all:intensity=0"],
            ["intensity=0", "1 to 1000"],
        ),
        (["--intensity", "0"], ["intensity", "1..=1000"]),
        (["--healthy", "30"], ["30000", "20000 ms"]),
        (["--nemesis", "link-flaky"], ["link-flaky", "TCP"]),
    ] {
        let said = refused(&lab, &[&["run"], &arguments[..]].concat(), 254);
        one_line(&said);
        for word in words {
            assert!(said.contains(word), "{arguments:?}: {said}");
        }
    }
    let hurried = ["sim", "--rate", "0", "--nemesis", "burst"];
    let said = refused(&lab, &hurried, 254);
    assert!(said.contains("--rate 0"), "{said}");
}

#[test]
fn the_doctor_tells_what_is_possible_and_why_not() {
    let lab = Lab::new();
    let outcome = lab.harness(&["doctor"]).expect_code(0);
    for word in [
        "processors",
        "namespaces",
        "link-flaky",
        "TCP",
        "know",
        "simulation",
    ] {
        assert!(outcome.stdout.contains(word), "{word}: {}", outcome.stdout);
    }
    assert!(outcome.stderr.is_empty(), "{}", outcome.stderr);
}

#[test]
fn an_output_folder_that_cannot_be_written_is_the_environments_fault() {
    let lab = Lab::new();
    lab.write("taken", "a file where a folder should be");
    let outcome = lab
        .harness(&["run", "--time", "5s", "--out", "taken/runs"])
        .expect_code(255);
    one_line(&outcome.stderr);
    assert!(outcome.stderr.contains("taken/runs"), "{}", outcome.stderr);
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

/// A recording may come from somebody else, so it must not be able to write anywhere or take the
/// machine down.
#[test]
fn a_replay_refuses_what_no_run_records() {
    let lab = Lab::new();
    let manifest = |name: &str, field: &str, value: Value| {
        let mut options = json!({
            "workload": "register", "nemesis": [], "nodes": 3, "concurrency": 2,
            "rate_per_second": 10, "time_ms": 300, "interval_ms": 1000,
            "operation_timeout_ms": 500, "recovery_timeout_ms": 1000,
            "timers": {
                "election_timeout_ms": 120, "fetch_timeout_ms": 800,
                "election_backoff_max_ms": 400, "fetch_max_wait_ms": 200,
                "request_timeout_ms": 800, "retry_backoff_ms": 20
            }
        });
        options[field] = value;
        json!({
            "format_version": 1, "name": name, "seed": 1, "world": "processes",
            "options": options, "started": "2026-01-01T00:00:00Z",
            "environment": {
                "harness_version": "0", "node_binary": "x", "system": "x", "processors": 1
            }
        })
    };
    let name = "register-none-20260101T000000000Z-1";
    let cases = [
        (name, "nodes", json!(0)),
        (name, "nodes", json!(500)),
        (name, "concurrency", json!(0)),
        (name, "concurrency", json!(100_000_000)),
        (name, "time_ms", json!(0)),
        (name, "time_ms", json!(u64::MAX)),
        (name, "operation_timeout_ms", json!(0)),
        (name, "recovery_timeout_ms", json!(u64::MAX)),
        (name, "workload", json!("regster")),
        (name, "bug", json!("B99")),
    ];
    let run = lab.path().join("foreign/run");
    std::fs::create_dir_all(&run).unwrap();
    let schedule = r#"{"format_version":1,"faults":[]}"#;
    std::fs::write(run.join("schedule.json"), schedule).unwrap();
    for (name, field, value) in cases {
        let text = manifest(name, field, value).to_string();
        std::fs::write(run.join("manifest.json"), text).unwrap();
        let said = refused(&lab, &["replay", "foreign/run"], 255);
        one_line(&said);
        assert!(
            said.contains("manifest.json") && said.contains(field),
            "{field}: {said}"
        );
    }
}

#[test]
fn a_damaged_manifest_starts_nothing_and_reaches_nothing() {
    let lab = Lab::new();
    lab.harness(&[
        "run",
        "--nemesis",
        "none",
        "--time",
        "1",
        "--nodes",
        "3",
        "--name",
        "sound",
    ]);
    let sound = crate::kit::document(&lab.latest().join("manifest.json"));
    let folder = lab.latest();
    let count = || std::fs::read_dir(lab.path()).unwrap().count();
    let (lab_count, run_count) = (count(), std::fs::read_dir(lab.runs()).unwrap().count());
    for (pointer, value, word) in [
        ("/options/nodes", u32::MAX.into(), "options.nodes"),
        (
            "/options/concurrency",
            u32::MAX.into(),
            "options.concurrency",
        ),
        ("/options/time_ms", u64::MAX.into(), "options.time_ms"),
        ("/options/workload", "registre".into(), "registre"),
        ("/options/bug", "B99".into(), "B99"),
    ] {
        let mut manifest = sound.clone();
        if pointer == "/options/bug" {
            manifest["options"]["bug"] = value;
        } else {
            *manifest.pointer_mut(pointer).unwrap() = value;
        }
        std::fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
        let path = folder.to_string_lossy();
        let outcome = lab.harness(&["replay", &path]).expect_code(255);
        one_line(&outcome.stderr);
        assert!(
            outcome.stderr.contains(word) && outcome.stderr.contains("manifest.json"),
            "{}",
            outcome.stderr
        );
    }
    let mut manifest = sound.clone();
    manifest["name"] = "../../outside-20260101T000000000Z-1".into();
    std::fs::write(folder.join("manifest.json"), manifest.to_string()).unwrap();
    let listed = lab.harness(&["list"]).expect_code(0).stdout;
    assert!(!listed.contains("outside"), "{listed}");
    assert_eq!(count(), lab_count);
    assert_eq!(
        std::fs::read_dir(lab.runs()).unwrap().count(),
        run_count,
        "a refused replay leaves no run"
    );
}

#[test]
fn a_run_that_cannot_be_read_is_listed_as_damaged() {
    let lab = Lab::new();
    std::fs::create_dir_all(lab.runs().join("broken-run")).unwrap();
    std::fs::write(lab.runs().join("broken-run/manifest.json"), "{").unwrap();
    let listed = lab.harness(&["list"]).expect_code(0).stdout;
    assert!(
        listed.contains("damaged") && listed.contains("broken-run"),
        "{listed}"
    );
}

#[test]
fn a_node_program_that_is_none_leaves_no_run() {
    let lab = Lab::new();
    let said = lab
        .harness(&["run", "--time", "5", "--node-bin", "/bin/true"])
        .expect_code(255)
        .stderr;
    let last = said.lines().last().unwrap_or_default();
    assert!(last.contains("ended at once"), "{said}");
    assert_eq!(std::fs::read_dir(lab.runs()).unwrap().count(), 0, "{said}");
    lab.assert_nothing_left();
}

#[test]
fn a_node_program_of_other_source_is_told_of_before_it_is_run() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::new();
    let script = "#!/bin/sh\n[ \"$1\" = --version ] && echo kraft-node 0.0.1\n";
    let script = lab.write("kraft-node", script);
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let said = lab
        .harness(&["run", "--time", "5", "--node-bin", script])
        .expect_code(255)
        .stderr;
    let note = said
        .lines()
        .position(|line| line.starts_with("harness: note:"));
    let note = said.lines().nth(note.unwrap()).unwrap();
    assert!(
        note.contains("is another build than this harness: it says 0.0.1"),
        "{said}"
    );
    assert!(
        said.lines().last().unwrap().contains("ended at once"),
        "{said}"
    );
    lab.assert_nothing_left();
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

#[test]
fn seeded_bugs_are_listed_with_and_without_the_word() {
    let lab = Lab::new();
    let listed = lab.harness(&["bugs", "list"]).expect_code(0).stdout;
    let ids = node::mutants::Bug::ALL.iter().map(|bug| bug.id());
    let named = ids.filter(|id| {
        listed
            .lines()
            .any(|line| line.starts_with(&format!("{id} ")))
    });
    assert_eq!(named.count(), node::mutants::Bug::ALL.len());
    let short = lab.harness(&["bugs"]).expect_code(0).stdout;
    assert_eq!(short, listed);
    one_line(&refused(&lab, &["bugs", "lits"], 254));
}

#[test]
fn voters_that_stay_and_faults_that_change_them_are_told_apart() {
    let lab = Lab::new();
    for world in ["run", "sim"] {
        let configured = [world, "--nemesis", "membership", "--voters", "configured"];
        let said = refused(&lab, &configured, 254);
        one_line(&said);
        assert!(said.contains("--voters log"), "{said}");
        let observers = [world, "--voters", "configured", "--observers", "1"];
        let said = refused(&lab, &observers, 254);
        one_line(&said);
        assert!(said.contains("every node is a voter"), "{said}");
    }
    let said = refused(&lab, &["sim", "--swarm", "--nodes", "3"], 254);
    one_line(&said);
    assert!(said.contains("--swarm"), "{said}");
}
