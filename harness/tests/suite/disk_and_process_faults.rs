//! Owns the proof that faults of disks and processes do to real processes what they say.
//! Never asserts on speed; machines differ.

use crate::kit::{Lab, document, eventually};
use serde_json::Value;

/// Every node is hit by something else, so that each kind shows by itself.
const ONE_OF_EACH: &str = r#"{"format_version":1,"faults":[
  {"id":1,"trigger":{"at_ms":3500},"duration_ms":1500,
   "fault":{"kind":"disk","what":"sync-error","targets":["n1"]}},
  {"id":2,"trigger":{"at_ms":3500},"duration_ms":1500,
   "fault":{"kind":"disk","what":"slow-sync","delay_ms":20,"targets":["n2"]}},
  {"id":3,"trigger":{"at_ms":6000},"duration_ms":1000,"fault":{"kind":"kill-clean","targets":["n3"]}},
  {"id":4,"trigger":{"at_ms":6000},"duration_ms":1000,
   "fault":{"kind":"disk","what":"no-space","files":"log","targets":["n2"]}},
  {"id":5,"trigger":{"at_ms":8000},"duration_ms":1000,"fault":{"kind":"restart","targets":["n1"]}},
  {"id":6,"trigger":{"at_ms":8000},"duration_ms":1000,
   "fault":{"kind":"slow","targets":["n3"],"on_ms":20,"off_ms":40}},
  {"id":7,"trigger":{"at_ms":10000},"duration_ms":500,
   "fault":{"kind":"disk","what":"bit-flip","targets":["n4"]}},
  {"id":8,"trigger":{"at_ms":10100},"duration_ms":500,
   "fault":{"kind":"disk","what":"truncate","files":"quorum-state","targets":["n5"]}},
  {"id":9,"trigger":{"at_ms":10900},"duration_ms":500,
   "fault":{"kind":"disk","what":"bit-flip","targets":["n1"]}},
  {"id":10,"trigger":{"at_ms":3500},"duration_ms":2000,
   "fault":{"kind":"slow","targets":["n4"],"on_ms":5,"off_ms":150}},
  {"id":11,"trigger":{"at_ms":3800},"duration_ms":200,"fault":{"kind":"pause","targets":["n4"]}},
  {"id":12,"trigger":{"at_ms":4700},"duration_ms":300,
   "fault":{"kind":"kill-clean","targets":["n4"]}}]}"#;

fn run(lab: &Lab, schedule: &str, time: &str, code: i32) -> (Value, Value) {
    let schedule = lab.write("faults.json", schedule);
    let path = schedule.to_string_lossy();
    lab.harness(&[
        "run",
        "--schedule",
        &path,
        "--time",
        time,
        "--nodes",
        "5",
        "--rate",
        "200",
        "--seed",
        // With this one, where the voters are in the log, the id of a directory begins with a dash.
        "6",
        "--keep",
    ])
    .expect_code(code);
    let schedule = document(&lab.latest().join("schedule.json"));
    (schedule["faults"].clone(), lab.verdict())
}

#[test]
fn every_fault_leaves_evidence_and_a_damaged_minority_is_no_failure() {
    let lab = Lab::new();
    let (faults, verdict) = run(&lab, ONE_OF_EACH, "11", 0);
    lab.assert_nothing_left();
    let fault = |id: u64| {
        let mut all = faults.as_array().unwrap().iter();
        all.find(|fault| fault["id"] == id).unwrap()
    };
    // The last two come while their node stands still for another fault most of the time.
    for id in (1..=8).chain(10..=12) {
        assert_eq!(fault(id)["outcome"], "installed", "{:#}", fault(id));
        assert!(fault(id)["healed_at_ms"].is_u64(), "{:#}", fault(id));
    }
    let effect = |id: u64, name: &str| fault(id)["effect"][name].as_u64().unwrap_or(0);
    assert_eq!(effect(1, "crashed_count"), 1, "{:#}", fault(1));
    assert_eq!(effect(1, "hit_count"), 1, "{:#}", fault(1));
    assert!(effect(2, "hit_count") > 0, "{:#}", fault(2));
    assert_eq!(effect(2, "crashed_count"), 0, "{:#}", fault(2));
    assert_eq!(effect(3, "killed_count"), 1);
    assert_eq!(effect(4, "crashed_count"), 1, "{:#}", fault(4));
    assert_eq!(effect(4, "hit_count"), 1, "{:#}", fault(4));
    assert_eq!(effect(5, "stopped_in_order_count"), 1, "{:#}", fault(5));
    assert!(effect(6, "stop_count") > 3, "{:#}", fault(6));
    assert_eq!(effect(7, "n4_damaged_bytes"), 1);
    assert_eq!(effect(7, "refused_count"), 1, "{:#}", fault(7));
    assert!(effect(8, "n5_damaged_bytes") > 1);
    assert_eq!(effect(11, "stopped_count"), 1, "{:#}", fault(11));
    assert_eq!(effect(12, "killed_count"), 1, "{:#}", fault(12));
    assert_eq!(fault(9)["outcome"], "skipped", "two of five are damaged");
    let node_logs = &verdict["checkers"]["node-logs"];
    assert_eq!(node_logs["valid"], true, "{node_logs:#}");
    let left_down = node_logs["evidence"]["left_down"].as_object().unwrap();
    let left_down: Vec<&String> = left_down.keys().collect();
    assert_eq!(left_down, ["n4", "n5"]);
}

#[test]
fn what_cannot_be_read_is_met_at_a_start_and_otherwise_told_as_met_by_nobody() {
    let lab = Lab::new();
    let faults = r#"{"format_version":1,"faults":[
      {"id":1,"trigger":{"at_ms":3500},"duration_ms":1500,
       "fault":{"kind":"disk","what":"read-error","targets":["n1"],"restart":true}},
      {"id":2,"trigger":{"at_ms":5500},"duration_ms":500,
       "fault":{"kind":"disk","what":"read-error","files":"quorum-state","targets":["n2"]}}]}"#;
    let (faults, verdict) = run(&lab, faults, "5", 0);
    lab.assert_nothing_left();
    let (met, unmet) = (&faults[0], &faults[1]);
    assert_eq!(met["outcome"], "installed", "{met:#}");
    assert_eq!(met["effect"]["crashed_count"], 1, "{met:#}");
    assert_eq!(met["effect"]["hit_count"], 1, "{met:#}");
    assert_eq!(met["effect"]["restarted"][0], "n1");
    assert!(met["healed_at_ms"].is_u64(), "{met:#}");
    assert_eq!(unmet["outcome"], "indeterminate", "{unmet:#}");
    let reason = unmet["reason"].as_str().unwrap();
    assert!(reason.contains("nothing was read"), "{reason}");
    assert_eq!(verdict["checkers"]["node-logs"]["valid"], true);
}

#[test]
fn a_damaged_majority_is_owed_no_recovery() {
    let lab = Lab::new();
    let faults = r#"{"format_version":1,"faults":[
      {"trigger":{"at_ms":5000},"duration_ms":500,
       "fault":{"kind":"disk","what":"torn-write","targets":"majority","beyond_budget":true}}]}"#;
    let (faults, verdict) = run(&lab, faults, "4", 0);
    assert_eq!(faults[0]["effect"]["refused_count"], 3, "{faults:#}");
    let liveness = verdict["checkers"]["liveness"]["summary"].as_str().unwrap();
    assert!(liveness.contains("no recovery is owed"), "{liveness}");
    lab.assert_nothing_left();
}

#[test]
fn a_stop_that_the_end_of_its_node_ends_is_healed_and_measured() {
    let lab = Lab::new();
    // Once n2 goes on it writes what it has missed, which its disk does not let it; this ends it, perhaps
    // before anybody sees that it goes on.
    let faults = r#"{"format_version":1,"faults":[
      {"id":1,"trigger":{"at_ms":3000},"duration_ms":2500,"fault":{"kind":"pause","targets":["n1"]}},
      {"id":2,"trigger":{"at_ms":4000},"duration_ms":500,"fault":{"kind":"kill","targets":["n1"]}},
      {"id":3,"trigger":{"at_ms":6500},"duration_ms":2000,"fault":{"kind":"pause","targets":["n2"]}},
      {"id":4,"trigger":{"at_ms":6500},"duration_ms":3000,
       "fault":{"kind":"disk","what":"no-space","targets":["n2"]}}]}"#;
    let (faults, _) = run(&lab, faults, "8", 0);
    lab.assert_nothing_left();
    for fault in faults.as_array().unwrap() {
        assert!(fault["healed_at_ms"].is_u64(), "{fault:#}");
    }
    let stopped_ms = |id: usize| faults[id - 1]["effect"]["stopped_ms"].as_u64().unwrap();
    // It ended with the kill, and not when it was due.
    let killed_by_ms = faults[1]["healed_at_ms"].as_u64().unwrap();
    let paused_ms = faults[0]["resolved"]["at_ms"].as_u64().unwrap();
    let most_ms = killed_by_ms - paused_ms;
    assert!((500..=most_ms).contains(&stopped_ms(1)), "{:#}", faults[0]);
    assert_eq!(faults[0]["effect"]["n1_ended"], "ended by another fault");
    assert!(stopped_ms(3) >= 1900, "{:#}", faults[2]);
}

#[test]
fn a_harness_that_dies_leaves_no_slowed_node_behind() {
    let lab = Lab::new();
    let schedule = lab.write(
        "faults.json",
        r#"{"format_version":1,"faults":[{"trigger":{"at_ms":2100},"duration_ms":60000,
            "fault":{"kind":"slow","targets":"all","on_ms":5,"off_ms":200}}]}"#,
    );
    let path = schedule.to_string_lossy();
    let mut harness = lab.start(&["run", "--schedule", &path, "--time", "60", "--nodes", "3"]);
    eventually("the nodes are slowed", || {
        let schedule = std::fs::read_to_string(lab.runs().join("latest/schedule.json"));
        schedule.is_ok_and(|text| text.contains("slowed_count"))
    });
    harness.kill().unwrap();
    harness.wait().unwrap();
    lab.assert_nothing_left();
}

#[test]
fn a_node_whose_disk_was_taken_away_is_formatted_anew_and_votes_again() {
    let lab = Lab::new();
    let faults = r#"{"format_version":1,"faults":[
      {"trigger":{"at_ms":3500},"duration_ms":1000,"fault":{"kind":"wipe","targets":["n2"]}}]}"#;
    let (faults, verdict) = run(&lab, faults, "4", 0);
    lab.assert_nothing_left();
    let effect = &faults[0]["effect"];
    assert_eq!(effect["wiped_count"], 1, "{faults:#}");
    let (old, new) = (
        effect["n2_old_directory_id"].as_str().unwrap(),
        effect["n2_new_directory_id"].as_str().unwrap(),
    );
    assert_ne!(old, new);
    let after = effect["voters_after_heal"].as_array().unwrap();
    assert_eq!(after.len(), 5, "{faults:#}");
    let trace = std::fs::read_to_string(lab.latest().join("nodes/n2/trace.jsonl")).unwrap();
    let starts: Vec<&str> = trace
        .lines()
        .filter(|line| line.contains("directory_id"))
        .collect();
    assert!(starts[0].contains(old), "{starts:?}");
    assert!(starts.iter().any(|line| line.contains(new)), "{starts:?}");
    assert_eq!(verdict["checkers"]["epoch-history"]["valid"], true);
}
