//! Owns the checks of what is concluded from a liveness phase, on small made-up runs.
//! Never needs a cluster.

use results::verdict::Validity::{Invalid, Unknown, Valid};
use serde_json::{Value, json};

use super::*;
use crate::made_up;

const MS: u64 = 1_000_000;

fn manifest(world: &str) -> Manifest {
    made_up::manifest(json!({
        "world": world,
        "options": {"timers": {
            "election_timeout_ms": 120, "fetch_timeout_ms": 800, "election_backoff_max_ms": 400,
            "fetch_max_wait_ms": 200, "request_timeout_ms": 800, "retry_backoff_ms": 20
        }}
    }))
}

/// Lines of the nemesis as (milliseconds, name, value).
fn history(lines: &[(u64, &str, Value)]) -> Vec<Operation> {
    let line = |(index, (ms, f, value)): (usize, &(u64, &str, Value))| {
        serde_json::from_value(json!({
            "index": index, "time": ms * MS, "process": "nemesis", "type": "info", "f": f,
            "value": value,
        }))
        .unwrap()
    };
    lines.iter().enumerate().map(line).collect()
}

/// Events as (milliseconds, node, epoch, detail).
fn trace(events: &[(u64, &str, i32, Value)]) -> Vec<TraceEvent> {
    let event = |(seq, (ms, node, epoch, detail)): (usize, &(u64, &str, i32, Value))| {
        let mut event = detail.clone();
        event["time"] = json!(ms * MS);
        event["node"] = json!(node);
        event["incarnation"] = json!(1);
        event["seq"] = json!(seq);
        event["epoch"] = json!(epoch);
        serde_json::from_value(event).unwrap()
    };
    events.iter().enumerate().map(event).collect()
}

fn chosen(rest_is: &str) -> (u64, &'static str, Value) {
    let value = json!({"core": ["n1", "n2"], "rest": ["n3"], "rest_is": rest_is});
    (1_000, "core-chosen", value)
}

fn healed() -> (u64, &'static str, Value) {
    let value = json!({"core": ["n1", "n2"], "bound_ms": 6000, "window_ms": 1800, "slack_ms": 0});
    (1_100, "core-healed", value)
}

fn ended(ms: u64, f: &'static str, longest_wait_ms: u64) -> (u64, &'static str, Value) {
    let value = json!({
        "since_ns": 2_000 * MS, "epoch": 3, "tried_count": 9, "success_count": 7,
        "longest_wait_ms": longest_wait_ms,
    });
    (ms, f, value)
}

fn left(ms: u64) -> (u64, &'static str, Value) {
    (ms, "core-left", Value::Null)
}

fn role(role: &str) -> Value {
    json!({"event": "role-change", "role": role})
}

fn append(offset: i64) -> Value {
    json!({
        "event": "append", "base_offset": offset, "last_offset": offset, "batch_epoch": 3, "crc": 1
    })
}

fn watermark(offset: i64) -> Value {
    json!({"event": "high-watermark", "high_watermark": offset, "log_end": offset})
}

fn found(
    lines: &[(u64, &str, Value)],
    events: &[(u64, &str, i32, Value)],
) -> Vec<(String, Validity)> {
    let found = check(&manifest("simulation"), &history(lines), &trace(events));
    found
        .into_iter()
        .map(|(name, property)| (name, property.valid))
        .collect()
}

fn named(name: &str, valid: Validity) -> (String, Validity) {
    (name.to_owned(), valid)
}

/// Six records, 300 ms apart; the leader n1 commits each after `commit_ms`, and n2 knows it after
/// `known_ms` more.
fn writes(commit_ms: u64, known_ms: u64) -> Vec<(u64, &'static str, i32, Value)> {
    let mut events = vec![
        (1_500, "n1", 3, role("leader")),
        (1_500, "n2", 3, role("follower")),
    ];
    for number in 0..6u64 {
        let (ms, offset) = (2_010 + 300 * number, 10 + number as i64);
        events.push((ms, "n1", 3, append(offset)));
        events.push((ms + 1, "n2", 3, append(offset)));
        events.push((ms + commit_ms, "n1", 3, watermark(offset + 1)));
        events.push((ms + commit_ms + known_ms, "n2", 3, watermark(offset + 1)));
    }
    events
}

#[test]
fn a_run_without_the_phase_is_not_judged_and_one_that_broke_off_hardly() {
    assert!(found(&[], &[]).is_empty());
    assert!(found(&[chosen("dead")], &[]).is_empty());
    assert!(found(&[chosen("dead"), healed(), left(9_000)], &[]).is_empty());
}

#[test]
fn a_majority_that_served_and_agrees_is_valid_in_every_respect() {
    let lines = [
        chosen("dead"),
        healed(),
        ended(4_000, "core-settled", 200),
        left(4_001),
    ];
    assert_eq!(
        found(&lines, &writes(3, 2)),
        [
            named("commit-lag", Valid),
            named("core-agreement", Valid),
            named("core-recovery", Valid),
            named("replication-lag", Valid),
        ]
    );
}

#[test]
fn a_majority_that_never_served_is_a_violation_unless_the_machine_stood_still_or_a_node_crashed() {
    let given_up = |longest_wait_ms| ended(9_000, "core-given-up", longest_wait_ms);
    let lines = [chosen("dead"), healed(), given_up(200), left(9_001)];
    let events = [(1_500, "n1", 3, role("prospective"))];
    assert_eq!(found(&lines, &events), [named("core-recovery", Invalid)]);
    let told = check(&manifest("simulation"), &history(&lines), &trace(&events));
    let told = &told["core-recovery"].summary;
    assert!(told.contains("n1 prospective in epoch 3"), "{told}");
    assert!(told.contains("n2 silent"), "{told}");
    let lines = [chosen("dead"), healed(), given_up(30_000), left(9_001)];
    assert_eq!(found(&lines, &events), [named("core-recovery", Unknown)]);
    let crash = (
        5_000,
        "node-crashed",
        json!({"node": "n2", "description": "x"}),
    );
    let lines = [chosen("dead"), healed(), crash, given_up(200), left(9_001)];
    assert!(found(&lines, &events).is_empty());
}

#[test]
fn a_member_that_never_catches_up_or_never_follows_is_a_violation() {
    let lines = [
        chosen("dead"),
        healed(),
        ended(4_000, "core-settled", 200),
        left(4_001),
    ];
    let mut lagging = writes(3, 2);
    lagging.insert(0, (1_600, "n1", 3, watermark(8)));
    lagging.retain(|(_, node, _, detail)| *node == "n1" || detail["event"] == "role-change");
    assert!(found(&lines, &lagging).contains(&named("core-agreement", Invalid)));
    let mut lonely = writes(3, 2);
    lonely.push((3_900, "n2", 4, role("prospective")));
    assert!(found(&lines, &lonely).contains(&named("core-agreement", Invalid)));
    let early = [
        chosen("dead"),
        healed(),
        ended(2_500, "core-settled", 200),
        left(2_501),
    ];
    let names: Vec<String> = found(&early, &lonely)
        .into_iter()
        .map(|(name, _)| name)
        .collect();
    assert!(
        !names.contains(&"core-agreement".to_owned()),
        "it had no time yet"
    );
}

#[test]
fn waiting_for_the_end_of_a_fetch_is_a_violation_and_one_late_message_is_not() {
    let lines = [
        chosen("dead"),
        healed(),
        ended(4_000, "core-settled", 200),
        left(4_001),
    ];
    assert!(found(&lines, &writes(90, 2)).contains(&named("replication-lag", Invalid)));
    assert!(found(&lines, &writes(3, 180)).contains(&named("commit-lag", Invalid)));
    let mut once = writes(3, 2);
    for (ms, node, _, detail) in &mut once {
        if *node == "n2" && detail["high_watermark"] == 13 {
            *ms += 250;
        }
    }
    assert!(found(&lines, &once).contains(&named("commit-lag", Valid)));
    // It took its time to find the leader, and then knew everything at once.
    let mut absent = writes(3, 180);
    absent.retain(|(ms, node, _, _)| *node != "n2" || *ms > 3_400);
    absent.push((3_399, "n2", 3, role("follower")));
    absent.push((3_400, "n2", 3, watermark(13)));
    absent.sort_by_key(|(ms, ..)| *ms);
    assert!(!found(&lines, &absent).contains(&named("commit-lag", Invalid)));
    let slow = check(
        &manifest("processes"),
        &history(&lines),
        &trace(&writes(90, 180)),
    );
    assert!(!slow.contains_key("commit-lag") && !slow.contains_key("replication-lag"));
}

#[test]
fn who_is_cut_off_must_stop_leading_and_must_not_stand_for_election() {
    let lines = [
        chosen("cut-off"),
        healed(),
        ended(4_000, "core-settled", 200),
        left(4_001),
    ];
    let mut events = writes(3, 2);
    events.push((500, "n3", 2, role("leader")));
    let stays = found(&lines, &events);
    assert!(stays.contains(&named("cut-off-leader-resigns", Invalid)));
    assert!(stays.contains(&named("cut-off-voter-waits", Valid)));
    events.push((2_100, "n3", 2, role("resigned")));
    assert!(found(&lines, &events).contains(&named("cut-off-leader-resigns", Valid)));
    events.push((2_500, "n3", 3, role("candidate")));
    assert!(found(&lines, &events).contains(&named("cut-off-voter-waits", Invalid)));
    let dead = [
        chosen("dead"),
        healed(),
        ended(4_000, "core-settled", 200),
        left(4_001),
    ];
    let of_dead = found(&dead, &events);
    assert!(of_dead.iter().all(|(name, _)| !name.starts_with("cut-off")));
}
