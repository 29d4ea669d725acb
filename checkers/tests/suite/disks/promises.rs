//! Owns the proof that what clients were told is compared with what is on the disks.
//! Never has clients of a real run: what they say is made up, as are the disks.

use checkers::disks::{Clients, check};
use results::history::Operation;

use super::*;

/// Epoch of the leader that serves the clients, and of one that comes later.
const EPOCH: i32 = 1;
const LATER: i32 = 2;

fn write(key: &str, value: i64) -> Value {
    json!({"type": "register-write", "key": key, "value": value})
}

/// The disk of a node, and what it reported of it: batches of an epoch with commands of one operation each, all
/// of them committed.
fn node(number: i32, log: &[(i32, &[Value])]) -> (Files, Vec<TraceEvent>) {
    let mut batches = Vec::new();
    let mut said = vec![started(0)];
    let mut end = 0;
    for (epoch, operations) in log {
        let commands: Vec<String> = operations
            .iter()
            .map(|operation| json!({"operations": [operation]}).to_string())
            .collect();
        let records: Vec<&[u8]> = commands.iter().map(|command| command.as_bytes()).collect();
        let bytes = batch(end, *epoch, false, &records);
        let last = end + operations.len() as i64 - 1;
        said.push(append(&bytes, end, last, *epoch));
        end = last + 1;
        batches.push(bytes);
    }
    said.push(json!({"event": "flush", "log_end": end}));
    said.push(json!({"event": "high-watermark", "high_watermark": end, "log_end": end}));
    let mut said = trace(said);
    for event in &mut said {
        event.node = format!("n{number}").into();
        if let results::trace::TraceDetail::Started(started) = &mut event.detail {
            started.directory_id = Some(format!("dir{number}"));
        }
    }
    let (log, _) = segment(&batches, 0, false);
    let files = Files::from([
        ("meta.properties".into(), meta(number)),
        (segment_name(0), log),
    ]);
    (files, said)
}

/// A client's operation on key "k" and its end; `at` is the offset that it was told.
fn operation(process: u64, f: &str, value: Value, end: &str, at: Option<i64>) -> [Value; 2] {
    let line = json!({"process": process, "f": f, "key": "k", "value": value, "time": 5});
    let mut lines = [line.clone(), line];
    lines[0]["type"] = "invoke".into();
    lines[1]["type"] = end.into();
    if let Some(at) = at {
        lines[1]["offset"] = at.into();
        lines[1]["epoch"] = EPOCH.into();
    }
    lines
}

fn history(operations: &[[Value; 2]]) -> Vec<Operation> {
    let lines = operations.iter().flatten().enumerate();
    let lines = lines.map(|(index, line)| {
        let mut line = line.clone();
        line["index"] = index.into();
        serde_json::from_value(line).unwrap()
    });
    lines.collect()
}

/// What is found on the disks of nodes, by what these clients were told.
fn judged(
    nodes: Vec<(Files, Vec<TraceEvent>)>,
    workload: &str,
    operations: &[[Value; 2]],
    faults: Value,
) -> CheckerResult {
    let mut all = Vec::new();
    let mut disks = BTreeMap::new();
    for (files, said) in nodes {
        disks.insert(said[0].node.to_string(), image(&files));
        all.extend(said);
    }
    let history = history(operations);
    let clients = Clients {
        history: &history,
        workload,
    };
    check(&all, &disks, &schedule(faults), clients)
}

fn registers(logs: &[&[(i32, &[Value])]], operations: &[[Value; 2]]) -> CheckerResult {
    let nodes = (1..).zip(logs).map(|(number, log)| node(number, log));
    judged(nodes.collect(), "register", operations, json!([]))
}

#[test]
fn what_is_done_and_in_the_logs_is_valid_and_counted() {
    let log: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 1), write("k", 2), write("k", 3)])];
    let operations = [
        operation(0, "write", json!(1), "ok", Some(0)),
        operation(0, "write", json!(2), "info", None),
        operation(1, "write", json!(3), "ok", Some(2)),
        operation(1, "write", json!(4), "fail", None),
        operation(1, "read", json!(3), "ok", Some(2)),
    ];
    let result = registers(&[log, log], &operations);
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
    assert_eq!(result.properties["D10"].checked, 4, "two on each disk");
    assert_eq!(result.properties["D11"].checked, 6, "three on each disk");
    assert_eq!(result.properties["D12"].checked, 0);
    assert!(
        result.summary.contains("clients were told"),
        "{}",
        result.summary
    );
}

#[test]
fn what_is_done_and_replaced_by_a_later_leader_is_found() {
    let told = [
        operation(0, "write", json!(1), "ok", Some(0)),
        operation(0, "write", json!(2), "ok", Some(1)),
        operation(1, "write", json!(3), "info", None),
    ];
    let whole: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 1), write("k", 2)])];
    let other: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 1)]), (LATER, &[write("k", 3)])];
    let result = registers(&[whole, other], &told);
    assert_eq!(violated(&result), ["D10"], "{}", result.summary);
    let summary = &result.summary;
    assert!(
        summary.contains("write 2 of key k by process 0"),
        "{summary}"
    );
    assert!(
        summary.contains("n2 holds something else there, of epoch 2"),
        "{summary}"
    );
    // The same epoch, and other content: the leader's log is not what it was.
    let forged: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 1), write("k", 3)])];
    let result = registers(&[whole, forged], &told);
    assert_eq!(violated(&result), ["D10"], "{}", result.summary);
}

#[test]
fn who_lags_says_nothing_but_somebody_must_have_it() {
    let told = [
        operation(0, "write", json!(1), "ok", Some(0)),
        operation(0, "write", json!(2), "ok", Some(1)),
    ];
    let short: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 1)])];
    let whole: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 1), write("k", 2)])];
    let result = registers(&[short, whole], &told);
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
    let result = registers(&[short, short], &told);
    assert_eq!(violated(&result), ["D10"], "{}", result.summary);
    assert!(result.summary.contains("in no log"), "{}", result.summary);
    // Whoever lost its disk may have been the one.
    let gone = json!([{"id": 7, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "disk"},
        "effect": {"n3_damaged_bytes": 3}}]);
    let nodes = vec![node(1, short), node(2, short), node(3, short)];
    let result = judged(nodes, "register", &told, gone);
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
}

#[test]
fn what_was_refused_for_sure_is_not_committed() {
    let log: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 1), write("k", 2)])];
    let first = operation(0, "write", json!(1), "ok", Some(0));
    for end in ["info", "fail"] {
        let operations = [first.clone(), operation(1, "write", json!(2), end, None)];
        let result = registers(&[log], &operations);
        let expected: &[&str] = if end == "fail" { &["D11"] } else { &[] };
        assert_eq!(violated(&result), expected, "{}", result.summary);
    }
    // A compare-and-set that failed is in the log, and says where.
    let swap = json!({"type": "register-compare-and-set", "key": "k", "expected": 9, "new": 2});
    let log: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 1), swap])];
    for (at, expected) in [(Some(1), &[][..]), (None, &["D11"][..])] {
        let operations = [
            first.clone(),
            operation(1, "cas", json!([9, 2]), "fail", at),
        ];
        let result = registers(&[log], &operations);
        assert_eq!(violated(&result), expected, "{}", result.summary);
    }
}

#[test]
fn what_nobody_asked_for_is_not_committed() {
    let log: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 1), write("elsewhere", 2)])];
    let result = registers(&[log], &[operation(0, "write", json!(1), "ok", Some(0))]);
    assert_eq!(violated(&result), ["D11"], "{}", result.summary);
    assert!(
        result.summary.contains("no client asked"),
        "{}",
        result.summary
    );
    let result = registers(&[log], &[]);
    assert_eq!(
        result.valid,
        Validity::Valid,
        "where nobody tells of clients, nothing is said"
    );
}

#[test]
fn several_reads_together_may_be_in_the_log_or_not() {
    let read = |key: &str| json!({"type": "list-read", "key": key});
    let steps = json!([["r", "1", null], ["r", "2", null]]);
    for (end, at) in [("ok", Some(7)), ("fail", None)] {
        let (mut files, mut said) = node(1, &[]);
        let command = json!({"operations": [read("1"), read("2")]}).to_string();
        let bytes = batch(0, EPOCH, false, &[command.as_bytes()]);
        let told = [
            append(&bytes, 0, 0, EPOCH),
            json!({"event": "flush", "log_end": 1}),
            json!({"event": "high-watermark", "high_watermark": 1, "log_end": 1}),
        ];
        let mut events = vec![started(0)];
        events.extend(told);
        let node = said[0].node.clone();
        said = trace(events);
        said.iter_mut().for_each(|event| event.node = node.clone());
        files.insert(segment_name(0), segment(&[bytes], 0, false).0);
        let mut reads = operation(0, "txn", steps.clone(), end, at);
        for line in &mut reads {
            line["key"] = Value::Null;
        }
        let result = judged(vec![(files, said)], "list-append", &[reads], json!([]));
        assert_eq!(result.valid, Validity::Valid, "{end}: {}", result.summary);
        assert_eq!(result.properties["D11"].checked, 1);
    }
}

#[test]
fn losses_beyond_the_budget_take_back_what_was_promised() {
    let told = [operation(0, "write", json!(2), "ok", Some(1))];
    let other: &[(i32, &[Value])] = &[(LATER, &[write("k", 2)])];
    let beyond = json!([{"id": 7, "trigger": {"at_ms": 1}, "duration_ms": 1,
        "fault": {"kind": "wipe", "targets": ["n2"], "beyond_budget": true},
        "resolved": {"at_ms": 1, "nodes": ["n2"]}}]);
    for (faults, expected) in [(json!([]), Validity::Invalid), (beyond, Validity::Valid)] {
        let result = judged(vec![node(1, other)], "register", &told, faults);
        assert_eq!(result.valid, expected, "{}", result.summary);
    }
}

#[test]
fn a_history_that_cannot_be_concludes_nothing() {
    let log: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 1)])];
    let [_, end] = operation(0, "write", json!(1), "ok", Some(0));
    let result = registers(&[log], &[[end.clone(), end]]);
    assert_eq!(result.valid, Validity::Unknown, "{}", result.summary);
}

/// A disk whose log starts behind these entries of a snapshot.
fn under_snapshot(entries: &[Value]) -> Vec<(Files, Vec<TraceEvent>)> {
    let log: &[(i32, &[Value])] = &[(EPOCH, &[write("k", 0), write("k", 0), write("k", 0)])];
    let (mut files, mut said) = node(1, log);
    let started = said.remove(0);
    let texts: Vec<String> = entries.iter().map(|entry| format!("\0{entry}")).collect();
    let records: Vec<&[u8]> = texts.iter().map(|text| text.as_bytes()).collect();
    let mut bytes = batch(0, EPOCH, true, &[b"header"]);
    bytes.extend(batch(1, EPOCH, false, &records));
    bytes.extend(batch(1 + records.len() as i64, EPOCH, true, &[b"footer"]));
    files.insert(snapshot_name(3, EPOCH), bytes);
    files.insert("log-start".into(), log_start(3, EPOCH));
    files.remove(&segment_name(0));
    files.insert(segment_name(3), segment(&[], 0, false).0);
    let installed = json!({"event": "snapshot-installed", "end_offset": 3, "last_epoch": EPOCH,
        "digest": ""});
    let mut installed = trace(vec![json!({"event": "flush", "log_end": 0}), installed]);
    let mut said = vec![started, installed.remove(1)];
    said[1].node = said[0].node.clone();
    vec![(files, said)]
}

/// What is violated about promises of a snapshot that ends at 3.
fn snapshot_flaws(workload: &str, entries: &[Value], told: &[[Value; 2]]) -> (bool, String) {
    let result = judged(under_snapshot(entries), workload, told, json!([]));
    let property = &result.properties["D12"];
    assert!(property.checked > 0, "{}", result.summary);
    (property.valid == Validity::Valid, property.summary.clone())
}

#[test]
fn elements_that_were_added_are_in_the_snapshot_over_them() {
    let told = [
        operation(0, "append", json!(1), "ok", Some(0)),
        operation(1, "append", json!(2), "info", None),
        operation(2, "append", json!(3), "fail", None),
        operation(2, "append", json!(4), "ok", Some(7)),
    ];
    for (values, is_valid, word) in [
        (json!([1]), true, ""),
        (json!([2, 1]), true, ""),
        (json!([2]), false, "append 1 of key k"),
        (json!([1, 3]), false, "had no effect"),
    ] {
        let entries = [json!({"list": {"key": "k", "values": values}})];
        let (valid, summary) = snapshot_flaws("append", &entries, &told);
        assert_eq!(valid, is_valid, "{values}: {summary}");
        assert!(summary.contains(word), "{summary}");
    }
    let told = [operation(0, "add", json!(1), "ok", Some(0))];
    for (values, is_valid) in [(json!([1]), true), (json!([8]), false)] {
        let entries = [json!({"set": {"key": "k", "values": values}})];
        assert_eq!(
            snapshot_flaws("set", &entries, &told).0,
            is_valid,
            "{values}"
        );
    }
}

#[test]
fn registers_of_a_snapshot_hold_the_last_that_is_done_or_what_nobody_knows() {
    let told = [
        operation(0, "write", json!(1), "ok", Some(0)),
        operation(0, "cas", json!([1, 2]), "ok", Some(1)),
        operation(1, "write", json!(3), "info", None),
        operation(2, "cas", json!([8, 4]), "fail", Some(2)),
        operation(2, "write", json!(5), "ok", Some(3)),
    ];
    for (value, is_valid) in [
        (2, true),
        (3, true),
        (1, false),
        (4, false),
        (5, false),
        (9, false),
    ] {
        let entries = [json!({"register": {"key": "k", "value": value}})];
        let (valid, summary) = snapshot_flaws("register", &entries, &told);
        assert_eq!(valid, is_valid, "{value}: {summary}");
    }
}

#[test]
fn counters_of_a_snapshot_lie_within_what_clients_were_told() {
    let told = [
        operation(0, "add", json!(5), "ok", Some(0)),
        operation(0, "add", json!(-3), "info", None),
        operation(1, "add", json!(2), "info", None),
        operation(2, "add", json!(100), "ok", Some(3)),
    ];
    for (value, is_valid) in [(5, true), (2, true), (7, true), (1, false), (8, false)] {
        let entries = [json!({"counter": {"key": "k", "value": value}})];
        let (valid, summary) = snapshot_flaws("counter", &entries, &told);
        assert_eq!(valid, is_valid, "{value}: {summary}");
    }
}
