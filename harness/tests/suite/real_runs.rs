//! Owns the proof that the whole path works: real processes, real faults, real verdicts.
//! Never asserts on speed; machines differ.

use std::time::Duration;

use crate::kit::{Lab, document, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Cuts the leader off after slowing its clock down: it believes in itself far longer than the others
/// take to elect and be written to, however busy the machine is.
const ISOLATE_SLOW_LEADER: &str = r#"{"format_version":1,"faults":[
  {"trigger":{"at_ms":2900},"duration_ms":5000,
   "fault":{"kind":"clock-skew","targets":"leader","offset_ms":0,"rate":0.1}},
  {"trigger":{"at_ms":3000},"duration_ms":4800,
   "fault":{"kind":"partition","shape":"one-node","target":"leader"}}]}"#;

/// The same to every node of three in turn: whoever leads in a replay, its turn comes.
const ISOLATE_EACH_SLOWED: &str = r#"{"format_version":1,"faults":[
  {"trigger":{"at_ms":2500},"duration_ms":2300,
   "fault":{"kind":"clock-skew","targets":["n1"],"offset_ms":0,"rate":0.1}},
  {"trigger":{"at_ms":2600},"duration_ms":2100,
   "fault":{"kind":"partition","shape":"one-node","target":["n1"]}},
  {"trigger":{"at_ms":5100},"duration_ms":2300,
   "fault":{"kind":"clock-skew","targets":["n2"],"offset_ms":0,"rate":0.1}},
  {"trigger":{"at_ms":5200},"duration_ms":2100,
   "fault":{"kind":"partition","shape":"one-node","target":["n2"]}},
  {"trigger":{"at_ms":7700},"duration_ms":2300,
   "fault":{"kind":"clock-skew","targets":["n3"],"offset_ms":0,"rate":0.1}},
  {"trigger":{"at_ms":7800},"duration_ms":2100,
   "fault":{"kind":"partition","shape":"one-node","target":["n3"]}}]}"#;

/// Kills every node at once: the next leader knows of no record that it is committed, so every one that
/// it commits before its own first record is one too early.
const KILL_ALL: &str = r#"{"format_version":1,"faults":[
  {"trigger":{"at_ms":4000},"duration_ms":300,"fault":{"kind":"kill","targets":"all"}},
  {"trigger":{"at_ms":7000},"duration_ms":300,"fault":{"kind":"kill","targets":"all"}}]}"#;

#[test]
fn a_run_without_bugs_is_valid_and_leaves_a_whole_folder() {
    let lab = Lab::new();
    let outcome = lab
        .harness(&[
            "run",
            "--nemesis",
            "partition-random,kill,pause,clock-skew",
            "--time",
            "8",
            "--nodes",
            "3",
            "--interval",
            "4",
            "--rate",
            "100",
            "--seed",
            "11",
        ])
        .expect_code(0);
    assert!(
        outcome.stdout.contains("verdict: VALID"),
        "{}",
        outcome.stdout
    );
    let run = lab.latest();
    for file in [
        "manifest.json",
        "history.jsonl",
        "schedule.json",
        "verdict.json",
        "index.html",
        "latency.svg",
        "rate.svg",
        "epochs.svg",
        "junit.xml",
        "nodes/n1/node.log",
        "nodes/n3/trace.jsonl",
    ] {
        let path = results::packed::present(&run.join(file));
        assert!(path.is_file(), "{file} is missing");
    }
    assert!(lab.runs().join("index.html").is_file());
    assert!(
        !run.join("nodes/n1/data").exists(),
        "data of a valid run is not kept"
    );
    let schedule = document(&run.join("schedule.json"));
    for kind in ["partition", "kill", "pause", "clock-skew"] {
        let faults = schedule["faults"].as_array().unwrap();
        assert!(
            faults
                .iter()
                .any(|f| f["fault"]["kind"] == kind && f["outcome"] == "installed"),
            "no {kind} took hold: {schedule:#}"
        );
    }
    lab.assert_nothing_left();

    let again = lab.harness(&["analyze", "latest", "--json"]).expect_code(0);
    let line: serde_json::Value = serde_json::from_str(&again.stdout).unwrap();
    assert_eq!(line["valid"], true);
}

/// One after the other, so that each has its own effect; the pause hits the node that a cut keeps behind.
const LINKS_CLOCKS_CLIENTS: &str = r#"{"format_version":1,"faults":[
  {"id":1,"trigger":{"at_ms":3000},"duration_ms":1000,
   "fault":{"kind":"partition","shape":"one-node","target":["n1"],"style":"reset"}},
  {"id":2,"trigger":{"at_ms":5000},"duration_ms":1000,
   "fault":{"kind":"partition","shape":"one-node","target":["n1"],"style":"refuse"}},
  {"id":3,"trigger":{"at_ms":7000},"duration_ms":1000,
   "fault":{"kind":"link","targets":"all","delay_ms":20,"jitter_ms":10,"distribution":"normal"}},
  {"id":4,"trigger":{"at_ms":8500},"duration_ms":1000,
   "fault":{"kind":"clock-strobe","targets":["n2"],"delta_ms":-200,"period_ms":50}},
  {"id":5,"trigger":{"at_ms":8500},"duration_ms":1000,"fault":{"kind":"burst"}},
  {"id":6,"trigger":{"at_ms":10500},"duration_ms":3000,
   "fault":{"kind":"partition","shape":"one-node","target":"followers"}},
  {"id":7,"trigger":{"at_ms":12500},"duration_ms":500,
   "fault":{"kind":"pause","targets":"lagging"}},
  {"id":8,"trigger":{"at_ms":14000},"duration_ms":1500,
   "fault":{"kind":"link","targets":"all","close_delay_ms":400}},
  {"id":9,"trigger":{"at_ms":14300},"duration_ms":300,"fault":{"kind":"kill","targets":"leader"}},
  {"id":10,"trigger":{"at_ms":16000},"duration_ms":1000,
   "fault":{"kind":"clock-skew","targets":["n3"],"offset_ms":-300,"rate":1.0}},
  {"id":11,"trigger":{"at_ms":16500},"duration_ms":500,
   "fault":{"kind":"clock-reset","targets":"all"}}]}"#;

#[test]
fn links_clocks_and_clients_get_what_was_asked_and_are_as_before_afterwards() {
    let lab = Lab::new();
    let schedule = lab.write("faults.json", LINKS_CLOCKS_CLIENTS);
    let arguments = ["run", "--time", "16", "--nodes", "3", "--seed", "4"];
    let schedule = schedule.to_string_lossy();
    lab.harness(&[&arguments[..], &["--schedule", &schedule]].concat())
        .expect_code(0);
    let schedule = document(&lab.latest().join("schedule.json"));
    let fault = |id: usize| &schedule["faults"][id - 1];
    for (id, name) in [
        (1, "connections_reset"),
        (2, "links_refusing"),
        (3, "chunks_delayed"),
        (4, "n2_jumps"),
        (5, "operations_begun"),
        (6, "bytes_held"),
        (7, "stopped_ms"),
        (8, "connections_closed_slowly"),
        (9, "killed_count"),
        (10, "n3_skew_ms"),
        (11, "reset_count"),
    ] {
        let fault = fault(id);
        assert_eq!(fault["outcome"], "installed", "{fault:#}");
        assert!(fault["healed_at_ms"].is_u64(), "{fault:#}");
        assert!(
            fault["effect"][name]
                .as_f64()
                .is_some_and(|number| number != 0.0),
            "{fault:#}"
        );
    }
    assert_eq!(fault(2)["effect"]["links_refusing"], 4);
    assert!(fault(4)["effect"]["n2_lowest_skew_ms"].as_f64() < Some(-150.0));
    assert_eq!(fault(8)["effect"]["longest_close_delay_ms"], 400);
    assert_eq!(fault(11)["effect"]["reset_count"], 1, "{:#}", fault(11));
    let skew_ms = |name: &str| fault(11)["effect"][name].as_f64().unwrap();
    assert!(skew_ms("n3_skew_before_ms") < -250.0, "{:#}", fault(11));
    assert!(skew_ms("n3_skew_after_ms").abs() < 50.0, "{:#}", fault(11));
    let behind = &fault(7)["resolved"]["nodes"];
    let cut = fault(6)["resolved"]["cut"].as_array().unwrap();
    assert_eq!(behind.as_array().unwrap().len(), 1, "{behind}");
    let touches = |link: &serde_json::Value| link.as_array().unwrap().contains(&behind[0]);
    assert!(cut.iter().all(touches), "{behind} {cut:?}");
    lab.assert_nothing_left();
}

#[test]
fn a_run_that_tests_nothing_is_not_a_pass() {
    let lab = Lab::new();
    lab.harness(&[
        "run",
        "--nemesis",
        "none",
        "--time",
        "300ms",
        "--nodes",
        "3",
        "--rate",
        "1",
        "--concurrency",
        "1",
    ])
    .expect_code(2);
    assert_eq!(lab.verdict()["valid"], "unknown");
}

/// Does it again until a violation is found, and tells what was said then. Threads and sockets are not
/// deterministic: what is lost need not be looked for in every run.
fn until_invalid(run: impl Fn() -> crate::kit::Outcome) -> String {
    const TRIES: usize = 6;
    for _ in 1..TRIES {
        let outcome = run();
        if outcome.code != 0 {
            return outcome.expect_code(1).stdout;
        }
    }
    run().expect_code(1).stdout
}

fn finds(bug: &str, nodes: u32, schedule: &str, checker: &str) -> Lab {
    // A client that was told of a write waits for the rest of its operations while the leader is alone, so only
    // many clients lose so much that somebody is sure to look for it.
    let load = if schedule == ISOLATE_EACH_SLOWED {
        &["--rate", "1000", "--concurrency", "100"][..]
    } else {
        &["--rate", "300"]
    };
    let lab = Lab::new();
    let schedule = lab.write("faults.json", schedule);
    let (path, nodes) = (schedule.to_string_lossy(), nodes.to_string());
    let usual = [
        "run",
        "--schedule",
        &path,
        "--time",
        "9",
        "--nodes",
        &nodes,
        "--seed",
        "5",
        "--bug",
        bug,
    ];
    let told = until_invalid(|| lab.harness(&[&usual[..], load].concat()));
    assert!(told.contains("verdict: INVALID"), "{told}");
    let verdict = lab.verdict();
    assert_eq!(verdict["checkers"][checker]["valid"], false, "{verdict:#}");
    assert!(
        lab.latest().join("nodes/n1/data").is_dir(),
        "data of a failed run is kept"
    );
    lab.assert_nothing_left();
    lab
}

#[test]
fn a_stale_read_is_found() {
    finds("stale-read", 5, ISOLATE_SLOW_LEADER, "linearizable");
}

#[test]
fn a_run_that_fails_fast_ends_soon_after_the_violation() {
    let lab = Lab::new();
    let schedule = lab.write("faults.json", ISOLATE_SLOW_LEADER);
    let schedule = schedule.to_string_lossy();
    let outcome = lab
        .harness(&[
            "run",
            "--schedule",
            &schedule,
            "--time",
            "5m",
            "--rate",
            "300",
            "--seed",
            "5",
            "--bug",
            "stale-read",
            "--fail-fast",
        ])
        .expect_code(1);
    assert!(
        outcome
            .stdout
            .contains("note:    the run was ended by the first violation"),
        "{}",
        outcome.stdout
    );
    let verdict = lab.verdict();
    assert_eq!(
        verdict["checkers"]["linearizable"]["valid"], false,
        "{verdict:#}"
    );
    lab.assert_nothing_left();
}

#[test]
fn an_acknowledgement_on_append_is_found_and_its_replay_fails_again() {
    let lab = finds("ack-on-append", 3, ISOLATE_EACH_SLOWED, "linearizable");
    // A replay that finds nothing ends with 2: it is no proof that the failure is gone.
    let recorded = lab.latest();
    let recorded = recorded.to_string_lossy();
    let again = || {
        let outcome = lab.harness(&["replay", &recorded]);
        let code = if outcome.code == 2 { 0 } else { outcome.code };
        crate::kit::Outcome { code, ..outcome }
    };
    let told = until_invalid(again);
    assert!(told.contains("same outcome: was invalid"), "{told}");
    lab.assert_nothing_left();
}

#[test]
fn a_high_watermark_of_any_epoch_is_found() {
    finds("hwm-any-epoch", 5, KILL_ALL, "epoch-history");
}

#[test]
fn a_clock_is_set_right_even_if_its_node_is_stopped_when_that_is_due() {
    let lab = Lab::new();
    let schedule = lab.write(
        "faults.json",
        r#"{"format_version":1,"faults":[
          {"trigger":{"at_ms":2500},"duration_ms":800,
           "fault":{"kind":"clock-skew","targets":["n1"],"offset_ms":400,"rate":1.0}},
          {"trigger":{"at_ms":2900},"duration_ms":1500,
           "fault":{"kind":"pause","targets":["n1"]}}]}"#,
    );
    let schedule = schedule.to_string_lossy();
    lab.harness(&[
        "run",
        "--schedule",
        &schedule,
        "--time",
        "4",
        "--nodes",
        "3",
    ])
    .expect_code(0);
    let schedule = document(&lab.latest().join("schedule.json"));
    for fault in schedule["faults"].as_array().unwrap() {
        assert!(fault["healed_at_ms"].is_u64(), "{fault:#}");
    }
}

/// Starts a long run and waits until clients are at work.
fn long_run(lab: &Lab) -> std::process::Child {
    let child = lab.start(&[
        "run",
        "--nemesis",
        "pause",
        "--interval",
        "1",
        "--time",
        "60",
        "--nodes",
        "3",
    ]);
    let history = lab.runs().join("latest/history.jsonl");
    eventually("operations are recorded", || {
        std::fs::read_to_string(&history).is_ok_and(|text| text.contains(r#""type":"ok""#))
    });
    child
}

#[test]
fn nodes_die_with_a_killed_harness_and_the_run_can_still_be_judged() {
    let lab = Lab::new();
    let mut child = long_run(&lab);
    // Long enough for a node to be stopped: a stopped process cannot notice anything by itself.
    std::thread::sleep(Duration::from_millis(1500));
    let listed = |more: &[&str]| {
        let arguments = [&["list"], more].concat();
        lab.harness(&arguments).expect_code(0).stdout
    };
    assert!(listed(&[]).starts_with("no verdict, still going on "));
    let refused = lab.harness(&["analyze", "latest"]).expect_code(254);
    assert!(refused.stderr.contains("is still going on"));
    child.kill().unwrap();
    child.wait().unwrap();
    lab.assert_nothing_left();
    assert!(listed(&["--interrupted"]).starts_with("no verdict, abandoned "));
    let outcome = lab.harness(&["analyze", "latest"]);
    assert!(
        [0, 2].contains(&outcome.code),
        "{}\n{}",
        outcome.stdout,
        outcome.stderr
    );
    assert!(outcome.stdout.contains("when the harness was killed"));
    assert!(lab.latest().join("index.html").is_file());
    let manifest = document(&lab.latest().join("manifest.json"));
    assert_eq!(manifest["phases"]["stopped_by"], "death");
    assert!(manifest["ended"].is_string());
    assert!(manifest["seal"]["nodes/n1/disk.json"].is_object());
    let after = listed(&["--interrupted"]);
    assert!(after.contains(", interrupted "), "{after}");
    let again = lab.harness(&["analyze", "latest"]);
    assert_eq!(again.code, outcome.code, "{}", again.stdout);
}

#[test]
fn an_interrupted_run_heals_checks_and_reports() {
    let lab = Lab::new();
    let child = long_run(&lab);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let outcome = crate::kit::Outcome::of(child.wait_with_output().unwrap());
    assert!(
        [0, 2].contains(&outcome.code),
        "{}\n{}",
        outcome.stdout,
        outcome.stderr
    );
    assert!(outcome.stdout.contains("verdict: "), "{}", outcome.stdout);
    let manifest = document(&lab.latest().join("manifest.json"));
    assert_eq!(manifest["phases"]["interrupted"], true);
    assert!(manifest["phases"]["healed"].is_u64());
    assert!(
        outcome.stdout.contains("stopped early"),
        "{}",
        outcome.stdout
    );
    let listed = lab.harness(&["list", "--interrupted"]).expect_code(0);
    assert!(
        listed.stdout.contains(", interrupted "),
        "{}",
        listed.stdout
    );
    let junit = std::fs::read_to_string(lab.latest().join("junit.xml")).unwrap();
    let skipped = "<skipped message=\"this run was stopped early by the user\"/>";
    assert!(junit.contains(skipped), "{junit}");
    lab.assert_nothing_left();
}

#[test]
fn an_interrupted_replay_is_the_last_one() {
    let lab = Lab::new();
    lab.harness(&["run", "--nemesis", "none", "--time", "4", "--nodes", "3"])
        .expect_code(0);
    let original = lab.latest();
    let child = lab.start(&["replay", "latest", "--times", "3"]);
    eventually("the replay records operations", || {
        lab.latest() != original
            && std::fs::read_to_string(lab.latest().join("history.jsonl"))
                .is_ok_and(|text| text.contains(r#""type":"ok""#))
    });
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let outcome = crate::kit::Outcome::of(child.wait_with_output().unwrap());
    assert!(
        outcome.stdout.contains("replay 1 of 3 was stopped")
            && outcome.stdout.contains("same outcome in 0 of 0 replays"),
        "{}",
        outcome.stdout
    );
    assert_eq!(outcome.stdout.matches("verdict: ").count(), 1);
    lab.assert_nothing_left();
}

#[test]
fn faults_that_overlap_on_one_node_are_healed_each_in_its_own_time() {
    let lab = Lab::new();
    let schedule = lab.write(
        "overlap.json",
        r#"{"format_version":1,"faults":[
          {"id":1,"trigger":{"at_ms":2500},"duration_ms":600,
           "fault":{"kind":"clock-skew","targets":["n1"],"offset_ms":300,"rate":1.0}},
          {"id":2,"trigger":{"at_ms":2800},"duration_ms":1500,
           "fault":{"kind":"pause","targets":["n1"]}},
          {"id":3,"trigger":{"at_ms":2500},"duration_ms":1000,
           "fault":{"kind":"clock-skew","targets":["n2"],"offset_ms":100,"rate":1.0}},
          {"id":4,"trigger":{"at_ms":3000},"duration_ms":1800,
           "fault":{"kind":"clock-skew","targets":["n2"],"offset_ms":400,"rate":1.0}},
          {"id":5,"trigger":{"at_ms":2500},"duration_ms":2000,
           "fault":{"kind":"pause","targets":["n3"]}},
          {"id":6,"trigger":{"at_ms":2700},"duration_ms":300,
           "fault":{"kind":"kill","targets":["n3"]}},
          {"id":7,"trigger":{"at_ms":4000},"duration_ms":1500,
           "fault":{"kind":"pause","targets":["n3"]}}]}"#,
    );
    lab.harness(&[
        "run",
        "--schedule",
        &schedule.to_string_lossy(),
        "--time",
        "5",
    ])
    .expect_code(0);
    let schedule = document(&lab.latest().join("schedule.json"));
    let fault = |id: u64| {
        let mut faults = schedule["faults"].as_array().unwrap().iter();
        faults.find(|fault| fault["id"] == id).unwrap().clone()
    };
    assert!(
        fault(1)["healed_at_ms"].as_u64() >= fault(2)["healed_at_ms"].as_u64(),
        "the clock of a stopped node can be set only once it goes on: {schedule:#}"
    );
    assert!(
        fault(7)["effect"]["stopped_ms"].as_u64() >= Some(1400),
        "a pause lasts, whatever earlier one ends in between: {schedule:#}"
    );
    let history = results::packed::read(&lab.latest().join("history.jsonl")).unwrap();
    let history = String::from_utf8(history).unwrap();
    // From when the later one is there and the earlier one is over until the later one is due to be healed. What
    // is told was measured a little before.
    let begun_ms = fault(4)["resolved"]["at_ms"].as_u64().unwrap();
    let healed_ms = fault(3)["healed_at_ms"].as_u64().unwrap();
    let between_ns = (begun_ms.max(healed_ms) + 100) * 1_000_000..(begun_ms + 1_800) * 1_000_000;
    let skews_of_n2 = history
        .lines()
        .map(|line| serde_json::from_str::<serde_json::Value>(line).unwrap())
        .filter(|line| line["f"] == "clock-offsets")
        .filter(|line| between_ns.contains(&line["time"].as_u64().unwrap()))
        .filter_map(|line| line["value"]["n2"].as_f64());
    let skews_of_n2: Vec<f64> = skews_of_n2.collect();
    assert!(
        !skews_of_n2.is_empty() && skews_of_n2.iter().all(|skew_ms| *skew_ms > 300.0),
        "the end of an earlier skew took a later one away: {skews_of_n2:?}"
    );
    lab.assert_nothing_left();
}

#[test]
fn an_interrupt_ends_a_series_of_replays() {
    let lab = Lab::new();
    lab.harness(&[
        "run",
        "--nemesis",
        "none",
        "--time",
        "2",
        "--nodes",
        "3",
        "--name",
        "first",
    ])
    .expect_code(0);
    let child = lab.start(&["replay", "latest", "--times", "5"]);
    eventually("the replay has begun", || {
        let latest = std::fs::read_link(lab.runs().join("latest")).unwrap();
        let begun = latest.to_string_lossy().contains("replay");
        begun && lab.latest().join("history.jsonl").is_file()
    });
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let outcome = crate::kit::Outcome::of(child.wait_with_output().unwrap());
    assert!(
        outcome.stdout.contains("4 more were not begun"),
        "{}\n{}",
        outcome.stdout,
        outcome.stderr
    );
    lab.assert_nothing_left();
}

#[test]
fn the_command_that_a_report_gives_is_accepted() {
    let lab = Lab::new();
    let schedule = lab.write("isolate-leader.json", ISOLATE_SLOW_LEADER);
    let from_file = ["run", "--time", "7100ms", "--schedule"].map(str::to_owned);
    let from_file = [&from_file[..], &[schedule.to_string_lossy().into()]].concat();
    let planned = ["run", "--time", "3s", "--interval", "700ms"].map(str::to_owned);
    for arguments in [from_file, planned.to_vec()] {
        let mut arguments: Vec<&str> = arguments.iter().map(String::as_str).collect();
        arguments.extend(["--nodes", "3"]);
        lab.harness(&arguments);
        let page = std::fs::read_to_string(lab.latest().join("index.html")).unwrap();
        let mut text = String::new();
        let mut inside = false;
        for letter in page.chars() {
            match letter {
                '<' => {
                    inside = true;
                    text.push(' ');
                }
                '>' => inside = false,
                _ if !inside => text.push(letter),
                _ => {}
            }
        }
        let words: Vec<&str> = text.split_whitespace().collect();
        let start = words.windows(2).position(|two| two == ["harness", "run"]);
        let command = &words[start.unwrap()..];
        let end = command.iter().position(|word| *word == "--seed").unwrap() + 2;
        let parsed = harness::cli::definition().try_get_matches_from(&command[..end]);
        assert!(
            parsed.is_ok(),
            "{:?}: {}",
            &command[..end],
            parsed.unwrap_err()
        );
    }
}

#[test]
fn a_panic_that_a_node_survived_is_found_in_its_log() {
    use std::os::unix::fs::PermissionsExt as _;
    let lab = Lab::new();
    let line = "thread 'peer' panicked at node/src/x.rs:3:5:";
    let node = env!("CARGO_BIN_EXE_harness");
    let script = format!("#!/bin/sh\necho \"{line}\" >&2\nexec '{node}' node \"$@\"\n");
    let script = lab.write("node.sh", &script);
    std::fs::set_permissions(&script, std::fs::Permissions::from_mode(0o755)).unwrap();
    let script = script.to_str().unwrap();
    let run = [
        "run",
        "--nemesis",
        "none",
        "--time",
        "2",
        "--nodes",
        "1",
        "--node-bin",
        script,
    ];
    lab.harness(&run).expect_code(1);
    let node_logs = &lab.verdict()["checkers"]["node-logs"];
    assert_eq!(node_logs["valid"], false, "{node_logs}");
    assert_eq!(
        node_logs["evidence"]["logged"][0]["text"], line,
        "{node_logs}"
    );
}
