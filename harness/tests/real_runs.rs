//! Owns the proof that the whole path works: real processes, real faults, real verdicts.
//! Never asserts on speed; machines differ.

mod kit;

use std::time::Duration;

use kit::{Lab, document, eventually};
use nix::sys::signal::{Signal, kill};
use nix::unistd::Pid;

/// Cuts the leader off again and again, long enough for the others to elect and be written to.
const ISOLATE_LEADER: &str = r#"{"format_version":1,"faults":[
  {"trigger":{"at_ms":3000},"duration_ms":2000,
   "fault":{"kind":"partition","shape":"one-node","target":"leader"}},
  {"trigger":{"at_ms":7000},"duration_ms":2000,
   "fault":{"kind":"partition","shape":"one-node","target":"leader"}}]}"#;

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
        assert!(run.join(file).is_file(), "{file} is missing");
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

fn finds(bug: &str, checker: &str) -> Lab {
    let lab = Lab::new();
    let schedule = lab.write("isolate-leader.json", ISOLATE_LEADER);
    let outcome = lab
        .harness(&[
            "run",
            "--schedule",
            &schedule.to_string_lossy(),
            "--time",
            "9",
            "--rate",
            "300",
            "--seed",
            "5",
            "--bug",
            bug,
        ])
        .expect_code(1);
    assert!(
        outcome.stdout.contains("verdict: INVALID"),
        "{}",
        outcome.stdout
    );
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
    finds("stale-read", "linearizable");
}

#[test]
fn an_acknowledgement_on_append_is_found_and_its_replay_fails_again() {
    let lab = finds("ack-on-append", "linearizable");
    let replay = lab.harness(&["replay", "latest"]).expect_code(1);
    assert!(
        replay.stdout.contains("same outcome: was invalid"),
        "{}",
        replay.stdout
    );
    lab.assert_nothing_left();
}

#[test]
fn a_high_watermark_of_any_epoch_is_found() {
    finds("hwm-any-epoch", "epoch-history");
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
    child.kill().unwrap();
    child.wait().unwrap();
    lab.assert_nothing_left();
    let outcome = lab.harness(&["analyze", "latest"]);
    assert!(
        [0, 2].contains(&outcome.code),
        "{}\n{}",
        outcome.stdout,
        outcome.stderr
    );
    assert!(lab.latest().join("index.html").is_file());
}

#[test]
fn an_interrupted_run_heals_checks_and_reports() {
    let lab = Lab::new();
    let child = long_run(&lab);
    kill(Pid::from_raw(child.id() as i32), Signal::SIGINT).unwrap();
    let outcome = kit::Outcome::of(child.wait_with_output().unwrap());
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
    let outcome = kit::Outcome::of(child.wait_with_output().unwrap());
    assert!(
        outcome.stdout.contains("replay 1 of 3 was stopped")
            && outcome.stdout.contains("same outcome in 0 of 0 replays"),
        "{}",
        outcome.stdout
    );
    assert_eq!(outcome.stdout.matches("verdict: ").count(), 1);
    lab.assert_nothing_left();
}
