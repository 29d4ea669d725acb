//! Owns the proof that a replay does what was recorded, wherever it ran, and that reports tell how to do so.
//! Never compares verdicts: threads and sockets may take another course.

#![allow(
    clippy::unwrap_used,
    clippy::print_stdout,
    reason = "a test that cannot go on should say where, and a measurement what it measured"
)]

use std::path::Path;
use std::process::Command;

use crate::kit::{Lab, document};
use serde_json::Value;

/// Faults of many kinds in six seconds: of links, processes, clocks, disks and clients, on targets that are
/// only known at that moment.
const MANY: &str = r#"{"format_version":1,"faults":[
  {"trigger":{"at_ms":2400},"duration_ms":500,"fault":{"kind":"partition","shape":"one-node","target":"leader"}},
  {"trigger":{"at_ms":2700},"duration_ms":600,
   "fault":{"kind":"link","targets":"minority","delay_ms":30,"jitter_ms":20}},
  {"trigger":{"at_ms":3300},"duration_ms":400,"fault":{"kind":"pause","targets":"one"}},
  {"trigger":{"at_ms":3900},"duration_ms":300,"fault":{"kind":"burst"}},
  {"trigger":{"at_ms":4100},"duration_ms":500,"fault":{"kind":"kill","targets":"followers"}},
  {"trigger":{"at_ms":5100},"duration_ms":600,
   "fault":{"kind":"clock-skew","targets":"minority","offset_ms":-200,"rate":1.3}},
  {"trigger":{"at_ms":5400},"duration_ms":500,
   "fault":{"kind":"disk","what":"slow-sync","targets":"one","delay_ms":10}},
  {"trigger":{"at_ms":6200},"duration_ms":400,"fault":{"kind":"restart","targets":"one"}},
  {"trigger":{"at_ms":6900},"duration_ms":500,"fault":{"kind":"partition","shape":"bridge","style":"reset"}}]}"#;

/// Packets that are lost in namespaces, or messages in the simulation.
const LOSS: &str = r#"{"format_version":1,"faults":[
  {"trigger":{"at_ms":2500},"duration_ms":1000,"fault":{"kind":"link","targets":"all","loss_percent":20}}]}"#;

fn run(lab: &Lab, schedule: &str, more: &[&str]) {
    let path = lab.write("faults.json", schedule);
    let path = path.to_string_lossy().into_owned();
    let usual = ["run", "--seed", "5", "--schedule", &path];
    lab.harness(&[&usual, more].concat()).expect_code(0);
}

/// How the newest run compares with the one that it repeats.
fn replayed(lab: &Lab) -> Value {
    lab.verdict()["checkers"]["nemesis"]["evidence"]["replayed"].clone()
}

fn has_namespaces(lab: &Lab) -> bool {
    let probe = lab.harness(&["probe-namespaces"]);
    if probe.code != 0 {
        println!("skipped: {}", probe.stderr.trim());
    }
    probe.code == 0
}

fn network(lab: &Lab) -> Value {
    document(&lab.latest().join("manifest.json"))["options"]["cluster"]["network"].clone()
}

#[test]
fn a_replay_injects_the_recorded_faults_and_tells_how_far_off_they_were() {
    let lab = Lab::new();
    run(&lab, MANY, &["--time", "6", "--nodes", "3"]);
    let first = lab.latest();
    let told = lab.harness(&["replay", "latest"]).expect_code(0).stdout;
    assert!(told.contains("; same faults: 9 of 9, off by "), "{told}");
    let replayed = replayed(&lab);
    assert_eq!(replayed["same_count"], 9, "{replayed:#}");
    let (recorded, again) = (
        document(&first.join("schedule.json")),
        document(&lab.latest().join("schedule.json")),
    );
    for (recorded, again) in recorded["faults"]
        .as_array()
        .unwrap()
        .iter()
        .zip(again["faults"].as_array().unwrap())
    {
        assert_eq!(recorded["resolved"], again["recorded"]);
        assert!(again["resolved"]["at_ms"].as_u64() >= recorded["resolved"]["at_ms"].as_u64());
    }
    lab.assert_nothing_left();
}

#[test]
fn what_came_to_nothing_stays_away_and_what_is_another_fault_is_named() {
    let lab = Lab::new();
    let schedule = r#"{"format_version":1,"faults":[
      {"id":1,"trigger":{"at_ms":2500},"duration_ms":4000,"fault":{"kind":"kill","targets":["n1"]}},
      {"id":2,"trigger":{"at_ms":2900},"duration_ms":200,"fault":{"kind":"pause","targets":["n1"]}},
      {"id":3,"trigger":{"at_ms":3800},"duration_ms":200,"fault":{"kind":"pause","targets":["n2"]}}]}"#;
    let path = lab.write("faults.json", schedule);
    let path = path.to_string_lossy().into_owned();
    let flags = ["run", "--nodes", "3", "--time", "5", "--schedule", &path];
    lab.harness(&flags).expect_code(0);
    let told = lab.harness(&["replay", "latest"]).expect_code(0).stdout;
    assert!(told.contains("same faults: 2 of 2"), "{told}");
    // As if the recorded run had stopped n1 before it was killed: now it cannot, and is down for longer than a
    // replay waits for it.
    let recorded = lab.latest().join("schedule.json");
    let changed = std::fs::read_to_string(&recorded).unwrap();
    let changed: Value = serde_json::from_str(&changed).unwrap();
    let mut changed = changed;
    changed["faults"][1]["resolved"]["at_ms"] = 2900.into();
    changed["faults"][1]["resolved"]["nodes"] = serde_json::json!(["n1"]);
    std::fs::write(&recorded, changed.to_string()).unwrap();
    let told = lab.harness(&["replay", "latest"]).expect_code(2).stdout;
    assert!(told.contains("same faults: 1 of 2"), "{told}");
    let difference = "first difference: fault 3 (pause) was skipped: n1 does not run";
    assert!(told.contains(difference), "{told}");
}

#[test]
fn a_run_in_namespaces_is_replayed_in_namespaces_and_refused_between_proxies() {
    let lab = Lab::new();
    if !has_namespaces(&lab) {
        return;
    }
    run(
        &lab,
        LOSS,
        &["--time", "2", "--nodes", "3", "--network", "namespace"],
    );
    let recorded = lab.latest();
    let recorded = recorded.to_string_lossy();
    let refused = lab.harness(&["replay", &recorded, "--network", "proxy"]);
    let refused = refused.expect_code(254).stderr;
    assert!(refused.contains("--network namespace"), "{refused}");
    let told = lab.harness(&["replay", &recorded, "--times", "2"]);
    let told = told.expect_code(0).stdout;
    assert!(told.contains("same faults in 2"), "{told}");
    assert_eq!(network(&lab), "namespace");
    assert_eq!(replayed(&lab)["same_count"], 1);
    lab.assert_nothing_left();
}

#[test]
fn a_simulated_run_with_losses_is_replayed_by_processes_in_namespaces() {
    let lab = Lab::new();
    let path = lab.write("faults.json", LOSS);
    let path = path.to_string_lossy().into_owned();
    let flags = [
        "sim", "--nodes", "3", "--time", "2", "--seed", "5", "--keep",
    ];
    lab.harness(&[&flags[..], &["--schedule", &path]].concat())
        .expect_code(0);
    let recorded = lab.latest();
    let recorded = recorded.to_string_lossy();
    let in_processes = ["replay", &recorded, "--world", "processes"];
    let refused = lab.harness(&in_processes).expect_code(254).stderr;
    assert!(refused.contains("--network namespace"), "{refused}");
    let nonsense = ["replay", &recorded, "--network", "namespace"];
    let nonsense = lab.harness(&nonsense).expect_code(254).stderr;
    assert!(nonsense.contains("a network of its own"), "{nonsense}");
    if !has_namespaces(&lab) {
        return;
    }
    let told = lab.harness(&[&in_processes[..], &["--network", "namespace"]].concat());
    let told = told.expect_code(0).stdout;
    assert!(told.contains("same faults: 1 of 1"), "{told}");
    assert_eq!(network(&lab), "namespace");
}

/// The command lines that the newest run shows, as a shell takes them apart.
fn commands(runs: &Path) -> Vec<Vec<String>> {
    let report = std::fs::read_to_string(runs.join("latest/junit.xml")).unwrap();
    let (_, rest) = report.split_once("<system-out>").unwrap();
    let (lines, _) = rest.split_once("</system-out>").unwrap();
    let plain = [
        ("&#39;", "'"),
        ("&#34;", "\""),
        ("&lt;", "<"),
        ("&gt;", ">"),
        ("&#38;", "&"),
    ];
    let lines = plain
        .iter()
        .fold(lines.to_owned(), |text, (from, to)| text.replace(from, to));
    let apart = |line: &str| {
        let script = format!("printf '%s\\n' {line}");
        let shell = Command::new("sh").args(["-c", &script]).output();
        let words = String::from_utf8(shell.unwrap().stdout).unwrap();
        words.lines().map(str::to_owned).collect()
    };
    lines.lines().map(apart).collect()
}

#[test]
fn every_command_in_a_report_is_one_that_the_harness_takes_and_names_the_network() {
    let lab = Lab::new();
    let schedule = lab.write("faults.json", LOSS);
    let schedule = schedule.to_string_lossy().into_owned();
    let with_flags = "run --nodes 3 --time 4 --nemesis kill:interval=2s,pause --healthy 1 --voters log \
        --observers 1 --snapshot-every 4096 --trace-messages --liveness-phase off --rate 50 --seed 1";
    let mut runs = vec![
        with_flags.to_owned(),
        "sim --nemesis all --nodes 3 --time 4 --seed 3 --keep".to_owned(),
        "sim --swarm --time 4 --seed 4 --keep --bug ack-on-append".to_owned(),
    ];
    if has_namespaces(&lab) {
        runs.push("run --network namespace --nodes 3 --time 1 --seed 1 --schedule".to_owned());
    }
    for run in &runs {
        let mut words: Vec<&str> = run.split_whitespace().collect();
        if run.ends_with("--schedule") {
            words.push(&schedule);
        }
        // Whatever comes out: the report tells how to have it again.
        let out = lab.path().join("my runs");
        let out = out.to_string_lossy();
        let outcome = lab.harness(&[&words[..], &["--out", &out]].concat());
        assert!(outcome.code < 254, "{run}: {}", outcome.stderr);
        let commands = commands(Path::new(&*out));
        assert!(commands.len() >= 2, "{run}: {commands:?}");
        for command in commands {
            let parsed = harness::cli::definition().try_get_matches_from(&command);
            assert!(parsed.is_ok(), "{command:?}: {}", parsed.unwrap_err());
            let names_it = command
                .windows(2)
                .any(|pair| pair == ["--network", "namespace"]);
            let is_analysis = command[1] == "analyze";
            assert_eq!(
                names_it,
                run.contains("namespace") && !is_analysis,
                "{command:?}"
            );
        }
    }
}

/// `REPLAYS=100 cargo test --release -p harness --test suite -- --ignored --nocapture replays`
#[test]
#[ignore = "takes many times ten seconds; REPLAYS says how often"]
fn many_replays_of_one_schedule_inject_the_same_faults() {
    let count = std::env::var("REPLAYS").map_or(10, |count| count.parse().unwrap());
    let lab = Lab::new();
    run(&lab, MANY, &["--time", "6", "--nodes", "5"]);
    let recorded = lab.latest();
    let recorded = recorded.to_string_lossy();
    println!("replay  same faults  median off ms  longest off ms  verdict  first difference");
    let (mut same_count, mut longest_off_ms) = (0, 0);
    for number in 1..=count {
        let outcome = lab.harness(&["replay", &recorded]);
        let replayed = replayed(&lab);
        let text = |name: &str| replayed[name].to_string();
        println!(
            "{number:>6}  {:>4} of {:<4}  {:>13}  {:>14}  {:<7}  {}",
            text("same_count"),
            text("recorded_count"),
            text("median_off_ms"),
            text("longest_off_ms"),
            lab.verdict()["valid"],
            replayed["first_difference"].as_str().unwrap_or("none"),
        );
        assert!([0, 2].contains(&outcome.code), "{}", outcome.stderr);
        same_count += u32::from(replayed["same_count"] == replayed["recorded_count"]);
        longest_off_ms = longest_off_ms.max(replayed["longest_off_ms"].as_u64().unwrap());
    }
    println!("same faults in {same_count} of {count} replays, at most {longest_off_ms} ms off");
    assert_eq!(same_count, count);
    lab.assert_nothing_left();
}
