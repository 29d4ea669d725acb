//! Owns the checks of all workloads as users meet them: in both worlds, with and without a bug in the node.
//! Never checks registers alone; other tests do.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use crate::kit::{Lab, document};
use serde_json::Value;

/// Workloads, each with the checkers that judge what its clients saw.
const JUDGED: [(&str, &[&str]); 6] = [
    ("register", &["linearizable"]),
    ("append", &["linearizable", "elements"]),
    ("set", &["linearizable", "elements"]),
    ("counter", &["linearizable", "bounds"]),
    ("unique-ids", &["unique-ids"]),
    ("list-append", &["transactions"]),
];

fn last_line(text: &str) -> Value {
    serde_json::from_str(text.trim().lines().last().unwrap()).unwrap()
}

#[test]
fn every_workload_is_simulated_judged_and_replayed() {
    for (workload, checkers) in JUDGED {
        let lab = Lab::new();
        let arguments = format!(
            "sim --workload {workload} --nemesis kill,partition-random --interval 1 --time 4 --seed 3 --keep --json"
        );
        let outcome = lab.harness(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(outcome.code, 0, "{workload}: {}", outcome.stdout);
        let manifest = document(&lab.latest().join("manifest.json"));
        assert_eq!(manifest["options"]["workload"], workload);
        let verdict = lab.verdict();
        for checker in checkers {
            assert_eq!(verdict["checkers"][checker]["valid"], true, "{verdict:#}");
        }
        let replayed = lab.harness(&["replay", "latest", "--json"]);
        assert_eq!(replayed.code, 0, "{workload}: {}", replayed.stdout);
        assert_eq!(last_line(&replayed.stdout)["same"], true);
    }
}

#[test]
fn transactions_and_drawn_numbers_work_with_real_processes() {
    for workload in ["list-append", "unique-ids", "counter", "set"] {
        let lab = Lab::new();
        let arguments =
            format!("run --workload {workload} --nemesis none --time 4 --nodes 3 --json");
        let outcome = lab.harness(&arguments.split(' ').collect::<Vec<_>>());
        assert_eq!(outcome.code, 0, "{}{}", outcome.stdout, outcome.stderr);
        let verdict = lab.verdict();
        let (_, checkers) = JUDGED.iter().find(|(name, _)| *name == workload).unwrap();
        for checker in *checkers {
            assert_eq!(verdict["checkers"][checker]["valid"], true, "{verdict:#}");
        }
        lab.assert_nothing_left();
    }
}

#[test]
fn a_history_of_transactions_is_judged_again_as_one_from_elsewhere() {
    let lab = Lab::new();
    let arguments = "sim --workload list-append --nemesis none --time 3 --seed 1 --keep --quiet";
    lab.harness(&arguments.split(' ').collect::<Vec<_>>());
    let history = lab.latest().join("history.jsonl");
    let history = history.to_str().unwrap();
    let outcome = lab.harness(&["check", history, "--model", "list-append", "--json"]);
    assert_eq!(outcome.code, 0, "{}", outcome.stdout);
    let told = last_line(&outcome.stdout);
    assert!(
        told["summary"]
            .as_str()
            .unwrap()
            .contains("strictly serializable"),
        "{told}"
    );
}

/// Hunts a bug over a few seeds. Returns what was violated where it was found.
/// Goes on with seeds, some at a time, until all that is expected was violated in one or another. Which seed that
/// takes changes with every change of the node.
fn finds(bug: &str, workload: &str, expected: &[&str]) {
    let mut found: Vec<String> = Vec::new();
    for first in (1..120).step_by(6) {
        let lab = Lab::new();
        let last = first + 5;
        let arguments = format!(
            "sim --workload {workload} --bug {bug} --nemesis kill,restart,snapshot --time 15 --seeds {first}..{last} --json"
        );
        let outcome = lab.harness(&arguments.split(' ').collect::<Vec<_>>());
        assert!(outcome.code <= 2, "{}{}", outcome.stdout, outcome.stderr);
        let summary = last_line(&outcome.stdout);
        for group in summary["groups"].as_array().unwrap() {
            let failures = group["failures"].as_array().unwrap().iter();
            found.extend(failures.map(|one| one.as_str().unwrap().to_owned()));
        }
        if expected
            .iter()
            .all(|one| found.iter().any(|seen| seen == one))
        {
            return;
        }
    }
    panic!("{expected:?} were to be violated, and these were: {found:?}");
}

#[test]
fn a_node_that_applies_records_twice_is_found_in_counters() {
    finds("apply-twice", "counter", &["linearizable", "bounds"]);
}

#[test]
fn a_node_that_forgets_which_requests_it_applied_is_found_in_lists() {
    finds("dedup-lost-in-snapshot", "append", &["elements/duplicated"]);
}

#[test]
fn a_snapshot_whose_last_record_is_applied_again_is_found_in_counters() {
    finds(
        "snapshot-id-off-by-one",
        "counter",
        &["disks/D8", "bounds", "linearizable"],
    );
}
