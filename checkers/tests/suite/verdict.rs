//! Owns tests of whole verdicts on recordings as a run leaves them.
//! Never tests one checker alone, except the one of histories, which needs whole histories.

use std::time::{Duration, Instant};

use checkers::{Options, check, linearizable};
use results::history::Operation;
use results::store::Recording;
use results::verdict::{CheckerResult, Validity};
use serde_json::{Value, json};

/// Lines of the form (process, type, function, key, value), one millisecond apart.
fn history(lines: &[(u64, &str, &str, &str, Value)]) -> Vec<Operation> {
    lines
        .iter()
        .enumerate()
        .map(|(index, (process, operation_type, f, key, value))| {
            let mut line = json!({
                "index": index, "time": (index + 1) * 1_000_000, "process": process,
                "type": operation_type, "f": f, "key": key, "value": value,
            });
            if *operation_type == "ok" {
                line["node"] = "n1".into();
                line["epoch"] = 1.into();
            }
            serde_json::from_value(line).expect("a line of the history format")
        })
        .collect()
}

fn judge(lines: &[(u64, &str, &str, &str, Value)]) -> CheckerResult {
    linearizable::check(&history(lines), &Options::default())
}

fn write(process: u64, value: u64) -> [(u64, &'static str, &'static str, &'static str, Value); 2] {
    [
        (process, "invoke", "write", "3", json!(value)),
        (process, "ok", "write", "3", json!(value)),
    ]
}

fn read(process: u64, value: Value) -> [(u64, &'static str, &'static str, &'static str, Value); 2] {
    [
        (process, "invoke", "read", "3", Value::Null),
        (process, "ok", "read", "3", value),
    ]
}

#[test]
fn a_stale_read_is_explained_with_what_replaced_the_value() {
    let mut lines = Vec::new();
    for value in 1..=30 {
        lines.extend(write(1, value));
        lines.extend(read(2, json!(value)));
    }
    lines.extend(write(1, 31));
    lines.extend(read(7, json!(30)));
    lines.extend(write(1, 32));
    let result = judge(&lines);
    assert_eq!(result.valid, Validity::Invalid);
    for part in [
        "key 3",
        "read by process 7 on n1",
        "returned 30",
        "31 was written after 30 and acknowledged (to process 1",
        "before it began",
    ] {
        assert!(result.summary.contains(part), "{}", result.summary);
    }
    let evidence = &result.evidence;
    assert_eq!(evidence["shortest_failing_prefix"], 123);
    assert_eq!(evidence["possible_states"], json!([31]));
    let involved = evidence["operations"].as_array().unwrap();
    assert!((2..=3).contains(&involved.len()), "{involved:?}");
    let last = involved.last().unwrap();
    assert_eq!(
        (
            &last["process"],
            &last["f"],
            &last["value"],
            &last["node"],
            &last["epoch"]
        ),
        (
            &json!(7),
            &json!("read"),
            &json!(30),
            &json!("n1"),
            &json!(1)
        )
    );
    assert_eq!(last["completed_ns"], 124_000_000);
    assert_eq!(evidence["failing_index"], last["index"]);
    assert_eq!(evidence["keys"]["invalid"], 1);
}

#[test]
fn values_out_of_nowhere_are_told_apart() {
    let nothing = judge(&[&write(1, 1)[..], &read(2, json!(9))].concat());
    assert!(
        nothing.summary.contains("nothing ever wrote 9"),
        "{}",
        nothing.summary
    );
    let failed = judge(
        &[
            &[
                (1, "invoke", "write", "3", json!(9)),
                (1, "fail", "write", "3", json!(9)),
            ][..],
            &read(2, json!(9)),
        ]
        .concat(),
    );
    assert!(
        failed.summary.contains("certainly failed"),
        "{}",
        failed.summary
    );
    let later = judge(&[&read(2, json!(9))[..], &write(1, 9)].concat());
    assert!(later.summary.contains("began later"), "{}", later.summary);
    let lost = judge(&[&write(1, 9)[..], &read(2, Value::Null)].concat());
    assert!(
        lost.summary
            .contains("9 was already written and acknowledged"),
        "{}",
        lost.summary
    );
    for result in [nothing, failed, later, lost] {
        assert_eq!(result.valid, Validity::Invalid);
    }
}

#[test]
fn an_unknown_outcome_may_show_late_or_never_but_not_come_and_go() {
    let open = (1, "invoke", "write", "3", json!(5));
    let info = (1, "info", "write", "3", json!(5));
    let legal = judge(
        &[
            &[open.clone(), info.clone()][..],
            &read(2, Value::Null),
            &write(3, 6),
            &read(2, json!(6)),
            &read(2, json!(5)),
        ]
        .concat(),
    );
    assert_eq!(legal.valid, Validity::Valid, "{}", legal.summary);
    let no_completion = judge(&[&[open.clone()][..], &read(2, json!(5))].concat());
    assert_eq!(no_completion.valid, Validity::Valid);
    let twice = judge(
        &[
            &[open, info][..],
            &read(2, json!(5)),
            &write(3, 6),
            &read(2, json!(5)),
        ]
        .concat(),
    );
    assert_eq!(twice.valid, Validity::Invalid, "{}", twice.summary);
}

#[test]
fn compare_and_set_observes_what_it_replaces() {
    let cas = |process, expected: u64, new: u64, outcome: &'static str| {
        let value = json!([expected, new]);
        [
            (process, "invoke", "cas", "3", value.clone()),
            (process, outcome, "cas", "3", value),
        ]
    };
    let good = [
        &write(1, 1)[..],
        &cas(2, 1, 2, "ok"),
        &cas(2, 1, 3, "fail"),
        &cas(3, 2, 4, "info"),
        &read(1, json!(4)),
    ]
    .concat();
    assert_eq!(judge(&good).valid, Validity::Valid);
    let both = [&write(1, 1)[..], &cas(2, 1, 2, "ok"), &cas(4, 1, 3, "ok")].concat();
    let result = judge(&both);
    assert_eq!(result.valid, Validity::Invalid);
    assert!(
        result.summary.contains("replaced 1 by 3"),
        "{}",
        result.summary
    );
}

#[test]
fn damaged_histories_are_unknown_and_name_the_line() {
    let cases: [(Vec<_>, &str); 5] = [
        (
            vec![(1, "ok", "read", "3", json!(1))],
            "line 1: process 1 completes",
        ),
        (
            vec![(1, "invoke", "cas", "3", json!(4))],
            "line 1: the value of a cas must be [expected, new], not 4",
        ),
        (
            vec![(1, "invoke", "append", "3", json!(4))],
            "line 1: \"append\" is not a function",
        ),
        (
            vec![
                (1, "invoke", "write", "3", json!(4)),
                (1, "ok", "write", "3", json!(5)),
            ],
            "line 2: the write of line 1 was invoked with 4 but completed with 5",
        ),
        (
            vec![(1, "invoke", "read", "3", Value::Null)],
            "no operation",
        ),
    ];
    for (lines, expected) in cases {
        let result = judge(&lines);
        assert_eq!(result.valid, Validity::Unknown);
        assert!(result.summary.contains(expected), "{}", result.summary);
    }
}

/// Five clients on `key_count` keys, each operation overlapping those of the other clients.
fn long_history(operation_count: usize, key_count: usize) -> Vec<Operation> {
    let mut registers = vec![Value::Null; key_count];
    let mut processes: Vec<u64> = (0..5).collect();
    let mut lines: Vec<(u64, &str, &str, &str, Value)> = Vec::new();
    let names: Vec<String> = (0..key_count).map(|key| key.to_string()).collect();
    for round in 0..operation_count / 5 {
        let key = (round / 40) % key_count;
        let mut completions = Vec::new();
        for (thread, process) in processes.iter().copied().enumerate() {
            let number = round * 5 + thread;
            let value = json!(number % 7);
            let (f, argument) = match (number * 31 + round) % 5 {
                0 | 1 => ("read", Value::Null),
                2 | 3 => ("write", value.clone()),
                _ => ("cas", json!([registers[key], value])),
            };
            lines.push((process, "invoke", f, &names[key], argument.clone()));
            let outcome = match (number % 97, f) {
                (3, "write" | "cas") => "info",
                _ => "ok",
            };
            completions.push((thread, process, outcome, f, argument));
        }
        for (thread, process, outcome, f, argument) in completions {
            let mut value = argument.clone();
            let mut outcome = outcome;
            match f {
                "read" => value = registers[key].clone(),
                "write" => registers[key] = argument,
                _ if argument[0] == registers[key] => registers[key] = argument[1].clone(),
                _ => outcome = "fail",
            }
            if outcome == "info" {
                processes[thread] += 5;
            }
            lines.push((process, outcome, f, &names[key], value));
        }
    }
    history(&lines)
}

#[test]
fn thirty_thousand_operations_on_many_keys_take_seconds_at_most() {
    let mut history = long_history(30_000, 150);
    let started = Instant::now();
    let result = linearizable::check(&history, &Options::default());
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
    assert!(result.summary.contains("150 keys"), "{}", result.summary);
    let read = history
        .iter_mut()
        .rev()
        .find(|operation| operation.f == "read" && operation.node.is_some())
        .unwrap();
    read.value = json!(12_345);
    let result = linearizable::check(&history, &Options::default());
    assert_eq!(result.valid, Validity::Invalid);
    let elapsed = started.elapsed();
    assert!(elapsed < Duration::from_secs(10), "both took {elapsed:?}");
}

#[test]
fn an_exhausted_budget_names_the_key_and_how_far_it_got() {
    let options = Options {
        linearizability_time_limit_ms: 0,
        linearizability_memory_limit_bytes: 0,
        ..Options::default()
    };
    let result = linearizable::check(&long_history(60_000, 1), &options);
    assert_eq!(result.valid, Validity::Unknown);
    for part in [
        "key 0 could not be decided",
        "time limit of 0 ms",
        "of unknown outcome",
    ] {
        assert!(result.summary.contains(part), "{}", result.summary);
    }
    assert_eq!(result.evidence["unknown_keys"], json!(["0"]));
}

fn recording(history: Vec<Operation>) -> Recording {
    let manifest = json!({
        "format_version": 1, "name": "test", "seed": 1, "world": "processes",
        "options": {
            "workload": "register", "nemesis": [], "nodes": 1, "concurrency": 5,
            "rate_per_second": 10, "time_ms": 1000, "interval_ms": 100,
            "operation_timeout_ms": 1000, "recovery_timeout_ms": 9000,
            "timers": {
                "election_timeout_ms": 1, "fetch_timeout_ms": 1, "election_backoff_max_ms": 1,
                "fetch_max_wait_ms": 1, "request_timeout_ms": 1, "retry_backoff_ms": 1
            }
        },
        "environment": {
            "harness_version": "0", "node_binary": "x", "system": "x", "processors": 1
        },
        "started": "2026-01-01T00:00:00Z",
        "phases": {"workload_start": 0},
    });
    let events = [
        json!({"event": "started", "role": "unattached", "log_start": 0, "log_end": 0,
            "last_epoch": 0, "epoch": 0}),
        json!({"event": "role-change", "role": "prospective", "epoch": 0}),
        json!({"event": "epoch-adopted"}),
        json!({"event": "vote-persisted", "candidate": "n1"}),
        json!({"event": "role-change", "role": "candidate"}),
        json!({"event": "epoch-adopted", "leader": "n1"}),
        json!({"event": "role-change", "role": "leader", "leader": "n1", "epoch_start_offset": 0}),
        json!({"event": "append", "base_offset": 0, "last_offset": 0, "batch_epoch": 1, "crc": 1}),
        json!({"event": "flush", "log_end": 1}),
        json!({"event": "high-watermark", "high_watermark": 1, "log_end": 1}),
        // As long as the history, so that nothing looks cut off.
        json!({"event": "epoch-adopted", "leader": "n1"}),
    ];
    let end = history.last().map_or(0, |line| line.time);
    let last = events.len() - 1;
    let trace = events.into_iter().enumerate().map(|(seq, mut event)| {
        event["seq"] = seq.into();
        event["time"] = if seq == last { end } else { seq as u64 }.into();
        event["node"] = "n1".into();
        event["incarnation"] = 1.into();
        if event.get("epoch").is_none() {
            event["epoch"] = 1.into();
        }
        serde_json::from_value(event).expect("an event of the trace format")
    });
    Recording {
        manifest: serde_json::from_value(manifest).expect("a manifest"),
        history,
        schedule: serde_json::from_value(json!({"format_version": 1, "faults": []}))
            .expect("a schedule"),
        trace: trace.collect(),
        disks: Default::default(),
        logs: Default::default(),
        differences: Vec::new(),
    }
}

#[test]
fn a_quiet_run_is_valid_and_says_what_was_tested() {
    let recording = recording(long_history(300, 2));
    let verdict = check(&recording, &Options::default());
    assert_eq!(verdict.valid, Validity::Valid, "{}", verdict.summary);
    let names: Vec<_> = verdict.checkers.keys().map(String::as_str).collect();
    assert_eq!(
        names,
        [
            "conformance",
            "coverage",
            "epoch-history",
            "linearizable",
            "liveness",
            "nemesis",
            "node-logs",
            "stats"
        ]
    );
    for part in [
        "valid: ",
        "on 2 keys were linearizable",
        "no faults were asked for",
    ] {
        assert!(verdict.summary.contains(part), "{}", verdict.summary);
    }
}

#[test]
fn an_empty_run_is_unknown_and_a_violation_wins_over_that() {
    let verdict = check(&recording(Vec::new()), &Options::default());
    assert_eq!(verdict.valid, Validity::Unknown, "{}", verdict.summary);
    assert!(verdict.failure_signature().is_empty());
    let stale = [&write(1, 1)[..], &read(2, json!(9))].concat();
    let mut recording = recording(history(&stale));
    recording.trace.clear();
    let verdict = check(&recording, &Options::default());
    assert_eq!(verdict.valid, Validity::Invalid);
    assert!(
        verdict.summary.starts_with("invalid: linearizable: key 3"),
        "{}",
        verdict.summary
    );
    assert_eq!(verdict.failure_signature(), ["linearizable"]);
}

#[test]
fn a_world_that_stood_still_for_a_reason_nobody_else_finds_is_no_pass() {
    let mut recording = recording(long_history(300, 2));
    let last = recording.history.last().expect("a long history").clone();
    recording.history.push(Operation {
        index: last.index + 1,
        process: results::history::Process::Nemesis,
        operation_type: results::history::OperationType::Info,
        f: checkers::safety::HALTED.into(),
        key: None,
        value: json!({"reason": "I3: two batches"}),
        ..last
    });
    let verdict = check(&recording, &Options::default());
    assert_eq!(verdict.failure_signature(), ["safety"]);
    assert_eq!(verdict.summary, "invalid: safety: I3: two batches");
}
