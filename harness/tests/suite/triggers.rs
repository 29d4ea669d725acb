//! Owns the checks that faults start exactly at the events they wait for, with real processes and in the simulation.
//! Never takes the schedule's word for it: the traces of the nodes say what had happened, and what had not.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use crate::kit::{Lab, document};
use serde_json::Value;

/// A leader loses power between an append and its flush; then whoever leads next is cut off as soon as it does.
const FAULTS: &str = r#"{"format_version":1,"faults":[
  {"id":1,"trigger":{"at_ms":2500,"on":"flush","node":"leader","nth":3,"edge":"before"},"duration_ms":900,
   "fault":{"kind":"kill","targets":"event-node"}},
  {"id":2,"trigger":{"at_ms":2600,"on":"became-leader"},"duration_ms":500,
   "fault":{"kind":"partition","shape":"one-node","target":"event-node"}},
  {"id":3,"trigger":{"at_ms":2000,"on":"truncate","nth":4000},"duration_ms":500,"fault":{"kind":"pause"}}]}"#;

/// The trace of one life of a node.
fn trace(lab: &Lab, event: &Value) -> Vec<Value> {
    let node = event["node"].as_str().unwrap();
    let path = lab.latest().join("nodes").join(node).join("trace.jsonl");
    let text = String::from_utf8(results::packed::read(&path).unwrap()).unwrap();
    let lines = text.lines().map(|line| serde_json::from_str(line).unwrap());
    lines
        .filter(|line: &Value| line["incarnation"] == event["incarnation"])
        .collect()
}

fn fault(lab: &Lab, position: usize) -> Value {
    document(&lab.latest().join("schedule.json"))["faults"]
        .as_array()
        .unwrap()
        .iter()
        .find(|fault| fault["id"] == position)
        .unwrap()
        .clone()
}

/// What the traces say of the faults above. Real nodes count from when they are told to, which is some time after
/// the moment that the schedule names: then `flush_count_max` is not known.
fn check(lab: &Lab, flush_count_max: Option<usize>) {
    let kill = fault(lab, 1);
    assert_eq!(kill["outcome"], "installed", "{kill:#}");
    let event = &kill["resolved"]["event"];
    assert_eq!(
        kill["resolved"]["nodes"],
        serde_json::json!([event["node"]])
    );
    let life = trace(lab, event);
    let last = life.last().unwrap();
    assert_eq!(
        last["seq"].as_u64().unwrap() + 1,
        event["seq"].as_u64().unwrap(),
        "nothing was told after that moment: {last}"
    );
    let of = |name: &'static str| life.iter().filter(move |line| line["event"] == name);
    let appended = of("append").next_back().unwrap()["last_offset"].as_i64();
    let flushed = of("flush").next_back().unwrap()["log_end"].as_i64();
    assert!(
        appended >= flushed,
        "{appended:?} was not flushed, {flushed:?} was"
    );
    let since = |line: &&Value| line["time"].as_u64() > Some(2_500_000_000);
    let flush_count = of("flush").filter(since).count();
    // One may have been under way when counting began.
    assert!(
        flush_count >= 2 && flush_count_max.is_none_or(|most| flush_count <= most),
        "the third was not made: {flush_count}"
    );

    let verdict = document(&lab.latest().join("verdict.json"));
    let cells = &verdict["checkers"]["coverage"]["evidence"]["cells"];
    assert_eq!(
        cells["leader-killed-between-append-and-flush"], 1,
        "{cells}"
    );
    let killed = cells.as_object().unwrap().keys();
    assert_eq!(
        killed.filter(|name| name.contains("-killed-")).count(),
        1,
        "{cells}"
    );
    // A slow machine may let another node stand for election at that moment.
    let cut_count: u64 = [
        "leader-partitioned-while-steady",
        "leader-partitioned-during-election",
    ]
    .iter()
    .filter_map(|cell| cells[cell].as_u64())
    .sum();
    assert_eq!(cut_count, 1, "{cells}");

    let cut = fault(lab, 2);
    assert_eq!(cut["outcome"], "installed", "{cut:#}");
    let event = &cut["resolved"]["event"];
    let life = trace(lab, event);
    let elected = life
        .iter()
        .find(|line| line["seq"] == event["seq"])
        .unwrap();
    assert_eq!(
        (&elected["event"], &elected["role"]),
        (&"role-change".into(), &"leader".into())
    );
    let healed_ms = cut["healed_at_ms"].as_u64().unwrap();
    let lasted_ms = healed_ms - cut["resolved"]["at_ms"].as_u64().unwrap();
    assert!(lasted_ms >= 500, "it counts from the event on: {cut:#}");
    let committed = life.iter().find(|line| {
        let is_later = line["seq"].as_u64() > event["seq"].as_u64();
        let is_before = line["time"].as_u64() < Some(healed_ms * 1_000_000);
        is_later
            && is_before
            && line["event"] == "high-watermark"
            && line["epoch"] == elected["epoch"]
    });
    assert_eq!(
        committed, None,
        "it was cut off before it could commit anything"
    );

    let never = fault(lab, 3);
    assert_eq!(never.get("outcome"), None, "{never:#}");
    assert!(
        never["reason"]
            .as_str()
            .unwrap()
            .contains("truncate number 4000, never came")
    );
}

#[test]
fn real_nodes_wait_at_the_event_until_the_fault_is_there() {
    let lab = Lab::new();
    let schedule = lab.write("faults.json", FAULTS);
    let schedule = schedule.to_string_lossy();
    let outcome = lab.harness(&[
        "run",
        "--nodes",
        "3",
        "--time",
        "7",
        "--schedule",
        &schedule,
    ]);
    // A fault whose event never comes is no test of that fault.
    assert_eq!(outcome.code, 2, "{}{}", outcome.stdout, outcome.stderr);
    check(&lab, None);
    lab.assert_nothing_left();
}

#[test]
fn the_simulation_stops_at_the_same_events_and_replays_them_exactly() {
    let lab = Lab::new();
    let schedule = lab.write("faults.json", FAULTS);
    let schedule = schedule.to_string_lossy();
    for seed in ["1", "2", "3"] {
        let arguments = [
            "sim",
            "--nodes",
            "3",
            "--time",
            "7",
            "--keep",
            "--schedule",
            &schedule,
        ];
        let outcome = lab.harness(&[&arguments[..], &["--seed", seed]].concat());
        assert_eq!(outcome.code, 2, "{}{}", outcome.stdout, outcome.stderr);
        check(&lab, Some(4));
        let replayed = lab.harness(&["replay", "latest", "--json"]);
        let told: Value = serde_json::from_str(replayed.stdout.trim()).unwrap();
        assert_eq!(told["same"], true, "{told}");
    }
}
