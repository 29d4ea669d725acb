//! Owns synthetic recordings for the tests of the report: run folders as a real run would leave them.
//! Never runs a cluster.
#![allow(dead_code, missing_docs, unreachable_pub)]

use std::fmt::Write as _;
use std::path::Path;

use chrono::{DateTime, TimeDelta, Utc};
use results::manifest::{Environment, Manifest, NodeTimers, Phases, RunOptions};
use results::store::{RunFolder, Store};
use results::verdict::Verdict;
use serde_json::{Value, json};

pub const SECOND_NS: u64 = 1_000_000_000;

/// A repeatable source of numbers that look random.
pub struct Numbers(pub u64);

impl Numbers {
    pub fn below(&mut self, bound: u64) -> u64 {
        self.0 = self
            .0
            .wrapping_mul(6364136223846793005)
            .wrapping_add(1442695040888963407);
        (self.0 >> 33) % bound
    }
}

pub fn manifest(name: &str, seed: u64) -> Manifest {
    let started: DateTime<Utc> = "2026-11-29T14:03:11Z".parse().unwrap();
    Manifest {
        format_version: 1,
        name: name.into(),
        seed,
        world: "processes".into(),
        options: RunOptions {
            workload: "register".into(),
            nemesis: vec!["partition-random".into(), "kill".into()],
            nodes: 5,
            concurrency: 10,
            rate_per_second: 200,
            time_ms: 30_000,
            interval_ms: 4_500,
            operation_timeout_ms: 1_000,
            recovery_timeout_ms: 10_000,
            bug: None,
            timers: NodeTimers {
                election_timeout_ms: 300,
                fetch_timeout_ms: 600,
                election_backoff_max_ms: 200,
                fetch_max_wait_ms: 100,
                request_timeout_ms: 500,
                retry_backoff_ms: 20,
            },
        },
        environment: Environment {
            harness_version: "0.1.0".into(),
            commit: Some("f501b3c".into()),
            command: [
                "harness",
                "run",
                "--nemesis",
                "partition-random,kill",
                "--time",
                "30",
            ]
            .map(str::to_owned)
            .into(),
            node_binary: "target/release/kraft-node".into(),
            node_binary_digest: Some("9ae0daaf".into()),
            system: "linux x86_64".into(),
            processors: 2,
        },
        started,
        ended: Some(started + TimeDelta::seconds(38)),
        replay_of: None,
        phases: Phases {
            workload_start: Some(800_000_000),
            workload_end: Some(30 * SECOND_NS),
            healed: Some(30 * SECOND_NS + 200_000_000),
            recovered: Some(30 * SECOND_NS + 900_000_000),
            finished: Some(33 * SECOND_NS),
            interrupted: false,
        },
    }
}

/// A history of `count` operations over 30 s, without the nemesis.
pub fn history(count: u64, seed: u64) -> String {
    let mut numbers = Numbers(seed);
    let mut lines = Vec::new();
    for operation in 0..count {
        let invoked = 800_000_000 + operation * 29 * SECOND_NS / count.max(1);
        let second = invoked / SECOND_NS;
        let f = ["read", "write", "cas"][numbers.below(3) as usize];
        let process = operation % 10;
        let disturbed = [(5, 8), (14, 16), (20, 24)]
            .iter()
            .any(|(from, to)| (*from..*to).contains(&second));
        let base = 900_000 + numbers.below(2_500_000) + numbers.below(40).pow(4) * 10;
        let (kind, latency) = match numbers.below(100) {
            0..12 if disturbed => ("info", 1_000_000_000 / 10),
            12..30 if disturbed => ("fail", 20_000_000 + numbers.below(60_000_000)),
            _ if disturbed => ("ok", base * 9),
            _ => ("ok", base),
        };
        let node = 1 + numbers.below(5);
        lines.push((
            invoked,
            format!(r#""process":{process},"type":"invoke","f":"{f}","key":"3","value":1"#),
        ));
        let ending = match kind {
            "ok" => format!(r#","node":"n{node}","epoch":{}"#, second / 8 + 1),
            "fail" => {
                r#","error":{"kind":"NOT_LEADER_OR_FOLLOWER","message":"n2 does not lead"}"#.into()
            }
            _ => r#","error":{"kind":"timeout","message":"no answer"}"#.into(),
        };
        // A process has one operation at a time.
        let spacing = 10 * 29 * SECOND_NS / count.max(1);
        lines.push((
            invoked + latency.min(spacing - 1),
            format!(r#""process":{process},"type":"{kind}","f":"{f}","key":"3","value":1{ending}"#),
        ));
    }
    lines.sort();
    let mut text = String::new();
    for (index, (time, rest)) in lines.into_iter().enumerate() {
        writeln!(text, r#"{{"index":{index},"time":{time},{rest}}}"#).unwrap();
    }
    text
}

/// Lines of clock measurements, as the nemesis writes them.
pub fn clock_lines() -> String {
    let mut text = String::new();
    for second in 0..33u64 {
        let skew = if (18..26).contains(&second) {
            -300.0 - 40.0 * (second - 18) as f64
        } else {
            0.0
        };
        let value = json!({"n1": skew, "n2": 0.3, "n3": if second > 20 {450.0} else {-0.2}});
        let line = json!({"index": 900_000 + second, "time": second * SECOND_NS, "process": "nemesis",
            "type": "info", "f": "clock-offsets", "value": value});
        writeln!(text, "{line}").unwrap();
    }
    text
}

pub fn schedule() -> Value {
    json!({"format_version": 1, "seed": 42, "faults": [
        {"id": 1, "trigger": {"at_ms": 5000}, "duration_ms": 3000,
         "fault": {"kind": "partition", "shape": "one-node", "target": "leader"},
         "resolved": {"at_ms": 5003, "cut": [["n1","n2"],["n2","n1"],["n1","n3"],["n3","n1"],["n4","n1"]]},
         "outcome": "installed", "healed_at_ms": 8004, "effect": {"bytes_held": 18233}},
        {"id": 2, "trigger": {"at_ms": 14000}, "duration_ms": 2000, "fault": {"kind": "kill", "targets": "one"},
         "resolved": {"at_ms": 14002, "nodes": ["n2"]}, "outcome": "installed", "healed_at_ms": 16010,
         "effect": {"down_ms": 2008}},
        {"id": 3, "trigger": {"at_ms": 18000}, "duration_ms": 8000, "fault": {"kind": "clock-skew", "targets": "one", "offset_ms": -300, "rate": 1.2},
         "resolved": {"at_ms": 18001, "clocks": [{"node": "n1", "offset_ms": -300, "rate": 1.2}]}, "outcome": "installed",
         "healed_at_ms": 26000, "effect": {"skew_ms": -620}},
        {"id": 4, "trigger": {"at_ms": 20000}, "duration_ms": 4000, "fault": {"kind": "pause", "targets": "leader"},
         "resolved": {"at_ms": 20004, "nodes": ["n4"]}, "outcome": "installed", "healed_at_ms": 24010,
         "effect": {"stopped_ms": 0}},
        {"id": 5, "trigger": {"at_ms": 25000}, "duration_ms": 2000, "fault": {"kind": "kill", "targets": "all"},
         "outcome": "skipped", "reason": "would leave no majority"},
        {"id": 6, "trigger": {"at_ms": 61000}, "duration_ms": 2000, "fault": {"kind": "pause", "targets": "one"}}]})
}

/// A trace of `node` with `filler` uninteresting events; n2 is killed and comes back.
pub fn trace(node: u64, filler: u64) -> String {
    let name = format!("n{node}");
    let mut events: Vec<(u64, i32, Value)> = vec![(
        300_000_000 + node * 10_000_000,
        0,
        json!({"event": "started", "role": "unattached", "log_start": 0, "log_end": 0, "last_epoch": 0}),
    )];
    let leaders = [
        (700_000_000, 1, 1),
        (5_700_000_000, 2, 3),
        (14_800_000_000, 3, 2),
        (20_900_000_000, 4, 5),
    ];
    for (at, epoch, leader) in leaders {
        if leader == node {
            events.push((
                at - 90_000_000,
                epoch - 1,
                json!({"event": "role-change", "role": "prospective"}),
            ));
            events.push((
                at - 45_000_000,
                epoch,
                json!({"event": "role-change", "role": "candidate"}),
            ));
            events.push((
                at,
                epoch,
                json!({"event": "role-change", "role": "leader", "epoch_start_offset": 4}),
            ));
        } else if !(node == 2 && epoch == 3) {
            let seen = at + 20_000_000 + node * 1_000_000;
            events.push((
                seen,
                epoch,
                json!({"event": "role-change", "role": "follower", "leader": format!("n{leader}")}),
            ));
        }
    }
    if node == 2 {
        events.retain(|(at, ..)| !(14_000_000_000..16_000_000_000).contains(at));
        events.push((16_100_000_000, 3, json!({"event": "started", "role": "follower", "log_start": 0, "log_end": 900, "last_epoch": 2})));
    }
    for number in 0..filler {
        let at = 900_000_000 + number * 29 * SECOND_NS / filler;
        if !(node == 2 && (14_000_000_000..16_100_000_000).contains(&at)) {
            let epoch = match at / 1_000_000 {
                0..5700 => 1,
                5700..14_800 => 2,
                14_800..20_900 => 3,
                _ => 4,
            };
            events.push((
                at,
                epoch,
                json!({"event": "high-watermark", "high_watermark": number, "log_end": number + 1}),
            ));
        }
    }
    events.sort_by_key(|(at, ..)| *at);
    let mut text = String::new();
    for (seq, (time, epoch, detail)) in events.into_iter().enumerate() {
        let mut line =
            json!({"time": time, "node": name, "incarnation": 1, "seq": seq, "epoch": epoch});
        line.as_object_mut()
            .unwrap()
            .extend(detail.as_object().unwrap().clone());
        writeln!(text, "{line}").unwrap();
    }
    text
}

pub fn valid_verdict() -> Verdict {
    serde_json::from_value(json!({"valid": true,
        "summary": "valid: 4 812 operations on 12 keys were linearizable, and the cluster recovered in 0.7 s",
        "checkers": {
            "linearizable": {"valid": true, "source": "Herlihy & Wing 1990", "summary": "12 keys, all linearizable."},
            "epoch-history": {"valid": true, "summary": "All properties held.", "source": "KIP-595", "properties": {
                "I1": {"valid": true, "title": "At most one leader per epoch.", "source": "KIP-595", "checked": 4120},
                "I5": {"valid": true, "title": "Epochs never go back.", "checked": 9}}},
            "stats": {"valid": true, "summary": "4 812 ok, 210 fail, 31 info.", "evidence": {"ok": 4812, "fail": 210}}}}))
    .unwrap()
}

pub fn invalid_verdict() -> Verdict {
    let s = SECOND_NS;
    serde_json::from_value(json!({"valid": false,
        "summary": "not linearizable: on key 3 the read by process 7 on n1 at 12.341 s returned 4, but 5 was written and acknowledged before it began",
        "checkers": {
            "linearizable": {"valid": false, "source": "Herlihy & Wing 1990; search of Wing & Gong 1993, Lowe 2017",
                "summary": "1 of 12 keys is not linearizable.",
                "evidence": {"key": "3", "failing_index": 1412, "possible_states": [5], "shortest_failing_prefix": 1413,
                    "explanation": "read by process 7 on n1 at 12.341 s returned 4, but 5 was written and acknowledged before it began",
                    "operations": [
                        {"index": 1412, "process": 7, "f": "read", "value": 4, "invoked_ns": 12*s+341_000_000, "completed_ns": 12*s+349_000_000, "type": "ok", "node": "n1", "epoch": 4},
                        {"index": 1396, "process": 2, "f": "write", "value": 4, "invoked_ns": 12*s+281_000_000, "completed_ns": 12*s+301_000_000, "type": "ok", "node": "n3", "epoch": 5},
                        {"index": 1399, "process": 14, "f": "cas", "value": [4, 9], "invoked_ns": 12*s+290_000_000, "completed_ns": null, "type": "info", "node": null, "epoch": null},
                        {"index": 1403, "process": 3, "f": "write", "value": 5, "invoked_ns": 12*s+311_000_000, "completed_ns": 12*s+333_000_000, "type": "ok", "node": "n3", "epoch": 5},
                        {"index": 1405, "process": 2, "f": "read", "value": 5, "invoked_ns": 12*s+320_000_000, "completed_ns": 12*s+336_000_000, "type": "ok", "node": "n3", "epoch": 5}]}},
            "epoch-history": {"valid": "unknown", "summary": "One property was never exercised.", "source": "KIP-595", "properties": {
                "I1": {"valid": true, "title": "At most one leader per epoch.", "source": "KIP-595", "checked": 412},
                "K2": {"valid": "unknown", "title": "The high watermark never retracts.", "checked": 0, "summary": "never exercised"}}},
            "nemesis": {"valid": true, "summary": "4 faults installed, 3 with effect, 1 skipped.", "evidence": {"installed": 4}},
            "node-logs": {"valid": true, "summary": "No node refused to start."}}}))
    .unwrap()
}

/// A complete run in `store`.
pub fn complete_run(store: &Store, name: &str, operations: u64, verdict: &Verdict) -> RunFolder {
    let folder = store.create_run(name).unwrap();
    folder.write_manifest(&manifest(name, 42)).unwrap();
    let mut lines = history(operations, 7);
    lines.push_str(&clock_lines());
    std::fs::write(folder.history_path(), lines).unwrap();
    std::fs::write(folder.schedule_path(), schedule().to_string()).unwrap();
    for node in 1..=5 {
        std::fs::create_dir_all(folder.node_path(&format!("n{node}"))).unwrap();
        std::fs::write(folder.trace_path(&format!("n{node}")), trace(node, 200)).unwrap();
    }
    std::fs::write(folder.node_path("n1").join("node.log"), "started\n").unwrap();
    folder.write_verdict(verdict).unwrap();
    folder
}

pub fn read(folder: &Path, file: &str) -> String {
    std::fs::read_to_string(folder.join(file)).unwrap()
}

/// Checks that `text` is well-formed XML as far as nesting, quoting and escaping go.
pub fn assert_well_formed(text: &str) {
    assert!(
        !text
            .chars()
            .any(|c| c.is_control() && !matches!(c, '\n' | '\t' | '\r')),
        "control character"
    );
    let mut open: Vec<&str> = Vec::new();
    let mut elements = 0;
    let mut rest = text;
    while let Some(start) = rest.find('<') {
        assert_entities(&rest[..start]);
        rest = &rest[start + 1..];
        let end = tag_end(rest);
        let tag = &rest[..end];
        rest = &rest[end + 1..];
        if tag.starts_with('?') || tag.starts_with('!') {
            continue;
        }
        elements += 1;
        if let Some(name) = tag.strip_prefix('/') {
            assert_eq!(open.pop(), Some(name.trim()), "closing tag does not match");
            continue;
        }
        assert!(!tag.contains('<'), "raw < inside {tag:?}");
        assert_entities(tag);
        let name = tag.split([' ', '/', '\n']).next().unwrap();
        assert!(
            !name.is_empty() && name.chars().all(|c| c.is_ascii_alphanumeric() || c == '-'),
            "{tag:?}"
        );
        if !tag.ends_with('/') {
            open.push(name);
        }
    }
    assert_entities(rest);
    assert!(open.is_empty(), "never closed: {open:?}");
    assert!(elements > 0, "no element at all");
}

fn tag_end(tag: &str) -> usize {
    let mut quoted = false;
    for (position, character) in tag.char_indices() {
        match character {
            '"' => quoted = !quoted,
            '>' if !quoted => return position,
            _ => {}
        }
    }
    panic!("tag never ends: {:?}", &tag[..tag.len().min(80)]);
}

fn assert_entities(text: &str) {
    for (position, _) in text.match_indices('&') {
        let entity = &text[position + 1..];
        let end = entity
            .find(';')
            .unwrap_or_else(|| panic!("bare & in {text:?}"));
        let name = &entity[..end];
        let known = ["lt", "gt", "amp", "quot", "apos"].contains(&name)
            || name
                .strip_prefix('#')
                .is_some_and(|number| number.bytes().all(|b| b.is_ascii_alphanumeric()));
        assert!(known, "unknown entity &{name};");
    }
}
