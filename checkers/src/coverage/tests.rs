use results::trace::TraceEvent;
use results::verdict::Validity;
use serde_json::{Value, json};

use super::*;
use crate::made_up;

const MS: u64 = 1_000_000;

fn options(nemesis: &[&str], change: impl FnOnce(&mut RunOptions)) -> RunOptions {
    let mut options = made_up::manifest(json!({"options": {"nemesis": nemesis}})).options;
    change(&mut options);
    options
}

/// Events of nodes as (milliseconds, node, epoch, what), numbered.
fn standings(events: &[(u64, &str, i32, Value)]) -> Standings {
    let mut seq = BTreeMap::new();
    let events = events.iter().map(|(ms, node, epoch, rest)| -> TraceEvent {
        let (incarnation, next) = seq.entry(*node).or_insert((0, 0));
        if rest["event"] == "started" {
            (*incarnation, *next) = (*incarnation + 1, 0);
        }
        let mut value = json!({"time": ms * MS, "node": node, "incarnation": incarnation, "seq": next, "epoch": epoch});
        *next += 1;
        let whole = value.as_object_mut().unwrap();
        whole.extend(rest.as_object().unwrap().clone());
        serde_json::from_value(value).unwrap()
    });
    let events: Vec<TraceEvent> = events.collect();
    Standings::of(&events)
}

fn started() -> Value {
    json!({"event": "started", "role": "unattached", "log_start": 0, "log_end": 0, "last_epoch": 0,
           "voters": ["n1", "n2", "n3"], "is_voter": true})
}

fn role(role: &str) -> Value {
    json!({"event": "role-change", "role": role})
}

fn mark(offset: i64) -> Value {
    json!({"event": "high-watermark", "high_watermark": offset, "log_end": offset})
}

fn append(offset: i64) -> Value {
    json!({"event": "append", "base_offset": offset, "last_offset": offset, "batch_epoch": 1, "crc": 1})
}

fn flush(log_end: i64) -> Value {
    json!({"event": "flush", "log_end": log_end})
}

/// n1 leads n2 from 20 ms on; n3 observes from 12 ms on. n1 appends at 100 ms and flushes at 110 ms; it is
/// silent from 200 ms on, and n2 asks for votes at 300 ms and leads from 320 ms on.
fn events() -> Vec<(u64, &'static str, i32, Value)> {
    let mut observer = started();
    observer["is_voter"] = false.into();
    vec![
        (10, "n1", 0, started()),
        (11, "n2", 0, started()),
        (12, "n3", 0, observer),
        (20, "n1", 1, role("leader")),
        (21, "n2", 1, role("follower")),
        (22, "n3", 1, role("follower")),
        (23, "n1", 1, mark(0)),
        (24, "n2", 1, mark(0)),
        (25, "n3", 1, mark(0)),
        (100, "n1", 1, append(0)),
        (110, "n1", 1, flush(1)),
        (150, "n1", 1, mark(1)),
        (300, "n2", 2, role("candidate")),
        (320, "n2", 2, role("leader")),
        (340, "n3", 2, role("follower")),
    ]
}

fn quiet() -> Standings {
    standings(&events())
}

/// The same, and n1 says nothing from some millisecond on.
fn silent_from(ms: u64) -> Standings {
    let events = events().into_iter();
    let events: Vec<_> = events
        .filter(|(time, node, ..)| *node != "n1" || *time < ms)
        .collect();
    standings(&events)
}

fn fault(id: u64, kind: &str, at_ms: u64, targets: Value) -> Value {
    json!({
        "id": id, "trigger": {"at_ms": at_ms}, "duration_ms": 1, "fault": {"kind": kind},
        "resolved": targets, "outcome": "installed", "healed_at_ms": at_ms + 1,
        "effect": {"killed_count": 1}
    })
}

fn nodes(at_ms: u64, nodes: &[&str]) -> Value {
    json!({"at_ms": at_ms, "nodes": nodes})
}

fn schedule(faults: Value) -> Schedule {
    serde_json::from_value(json!({"format_version": 1, "faults": faults})).unwrap()
}

fn covered(standings: &Standings, faults: Value) -> Vec<(String, u64)> {
    let options = options(&["kill"], |_| {});
    let result = check(standings, &options, &schedule(faults), &[]);
    assert_eq!(result.valid, Validity::Valid);
    let coverage = Coverage::of(&result);
    let counts = coverage.counts.into_iter();
    counts.filter(|(_, count)| *count > 0).collect()
}

fn names(found: &[(String, u64)]) -> Vec<&str> {
    found.iter().map(|(name, _)| name.as_str()).collect()
}

#[test]
fn a_leader_killed_between_append_and_flush_is_told_from_one_killed_before_and_after() {
    let standings = quiet();
    let killed = |at_ms: u64| {
        let found = covered(
            &standings,
            json!([fault(1, "kill", at_ms, nodes(at_ms, &["n1"]))]),
        );
        names(&found).join(" ")
    };
    assert_eq!(killed(50), "leader-killed-while-steady");
    assert_eq!(killed(105), "leader-killed-between-append-and-flush");
    assert_eq!(killed(111), "leader-killed-while-steady");
}

#[test]
fn roles_phases_and_every_node_of_a_cut_are_counted() {
    let standings = quiet();
    let cut = json!({"at_ms": 60, "cut": [["n1", "n2"], ["n2", "n1"], ["n1", "n3"]]});
    let found = covered(
        &standings,
        json!([
            fault(1, "partition", 60, cut),
            fault(2, "pause", 61, nodes(61, &["n2"])),
            fault(3, "pause", 62, nodes(62, &["n2"]))
        ]),
    );
    assert_eq!(
        found,
        [
            ("follower-partitioned-while-steady".to_owned(), 1),
            ("follower-paused-while-steady".to_owned(), 2),
            ("leader-partitioned-while-steady".to_owned(), 1),
            ("observer-partitioned-while-steady".to_owned(), 1),
        ]
    );
    let starting = covered(
        &standings,
        json!([fault(1, "kill", 15, nodes(15, &["n2"]))]),
    );
    assert_eq!(
        names(&starting),
        [
            "unattached-killed-during-election",
            "unattached-killed-while-starting-up"
        ]
    );
}

#[test]
fn nobody_leads_once_the_leader_is_dead_and_the_dead_are_not_hit_again() {
    let standings = quiet();
    let found = covered(
        &standings,
        json!([
            fault(1, "kill", 210, nodes(210, &["n1"])),
            fault(2, "kill", 220, nodes(220, &["n1", "n3"])),
            fault(3, "pause", 310, nodes(310, &["n2"])),
            fault(4, "pause", 350, nodes(350, &["n2"])),
        ]),
    );
    assert_eq!(
        names(&found),
        [
            "candidate-paused-during-election",
            "leader-killed-while-steady",
            "leader-paused-while-steady",
            "observer-killed-during-election",
        ]
    );
}

#[test]
fn a_fault_without_effect_or_that_was_skipped_covers_nothing() {
    let standings = quiet();
    let mut idle = fault(1, "kill", 50, nodes(50, &["n1"]));
    idle["effect"] = json!({"killed_count": 0});
    let mut skipped = fault(2, "kill", 60, nodes(60, &["n1"]));
    skipped["outcome"] = "skipped".into();
    assert!(covered(&standings, json!([idle, skipped])).is_empty());
}

#[test]
fn a_fault_before_an_event_hits_its_node_in_the_middle_of_it() {
    let standings = quiet();
    let mut before = fault(1, "kill", 298, nodes(298, &["n2"]));
    before["trigger"] = json!({"on": "vote-persisted", "edge": "before"});
    let event = json!({"node": "n2", "incarnation": 1, "seq": 3, "time_ns": 299 * MS});
    before["resolved"]["event"] = event;
    let found = covered(&standings, json!([before.clone()]));
    assert_eq!(
        names(&found),
        ["follower-killed-between-vote-asked-and-persisted"]
    );
    let mut of_leader = before.clone();
    of_leader["trigger"] = json!({"on": "flush", "edge": "before"});
    of_leader["resolved"] = json!({"at_ms": 104, "nodes": ["n1"], "event":
        {"node": "n1", "incarnation": 1, "seq": 4, "time_ns": 105 * MS}});
    let found = covered(&silent_from(105), json!([of_leader]));
    assert_eq!(names(&found), ["leader-killed-between-append-and-flush"]);
    before["trigger"] = json!({"on": "became-candidate", "edge": "after"});
    let found = covered(&standings, json!([before]));
    assert_eq!(names(&found), ["candidate-killed-during-election"]);
}

#[test]
fn a_required_cell_that_was_not_covered_leaves_the_run_unknown_and_is_named() {
    let standings = quiet();
    let killed = schedule(json!([fault(1, "kill", 105, nodes(105, &["n1"]))]));
    let judged = |required: &[&str]| {
        let options = options(&["kill"], |options| {
            options.required_coverage = required.iter().map(|name| (*name).to_owned()).collect();
        });
        check(&standings, &options, &killed, &[])
    };
    let there = "leader-killed-between-append-and-flush";
    let missing = "follower-killed-between-append-and-flush";
    let met = judged(&[there]);
    assert_eq!(met.valid, Validity::Valid, "{}", met.summary);
    assert_eq!(met.properties[there].checked, 1);
    let unmet = judged(&[there, missing]);
    assert_eq!(unmet.valid, Validity::Unknown);
    assert!(unmet.summary.contains(missing) && !unmet.summary.contains(there));
    assert_eq!(unmet.properties[missing].valid, Validity::Unknown);
    let both = [there.to_owned(), missing.to_owned()];
    assert_eq!(Coverage::of(&unmet).missing(&both), [missing]);
}

#[test]
fn only_what_the_faults_and_the_cluster_can_reach_is_missed() {
    let none = schedule(json!([]));
    let names = |options: &RunOptions, schedule: &Schedule| -> BTreeSet<String> {
        reachable(options, schedule)
            .into_iter()
            .map(Cell::name)
            .collect()
    };
    let plain = names(&options(&["kill:interval=2000ms", "burst"], |_| {}), &none);
    assert!(plain.contains("leader-killed-between-append-and-flush"));
    assert!(plain.contains("follower-killed-while-starting-up"));
    let is_beyond = |name: &String| {
        [
            "observer",
            "paused",
            "voter-change",
            "snapshot",
            "vote-asked",
        ]
        .iter()
        .any(|word| name.contains(word))
    };
    assert!(!plain.iter().any(is_beyond), "{plain:?}");
    let more = names(
        &options(&["membership", "snapshot"], |options| {
            options.cluster.voters = results::manifest::Voters::Log;
            options.cluster.trace_messages = true;
        }),
        &none,
    );
    for name in [
        "observer-voter-changed-while-downloading-snapshot",
        "leader-snapshot-forced-during-voter-change",
        "follower-snapshot-forced-between-vote-asked-and-persisted",
    ] {
        assert!(more.contains(name), "{name}");
    }
    assert!(names(&options(&[], |_| {}), &none).is_empty());
}

#[test]
fn a_written_fault_reaches_only_whom_it_aims_at() {
    let written = schedule(json!([{
        "trigger": {"on": "flush", "node": "leader", "edge": "before"}, "duration_ms": 1,
        "fault": {"kind": "kill", "targets": "event-node"}
    }, {
        "trigger": {"at_ms": 5}, "duration_ms": 1, "fault": {"kind": "pause", "targets": "observers"}
    }]));
    let options = options(&["schedule"], |options| options.cluster.observers = 1);
    let cells = reachable(&options, &written);
    let killed: Vec<String> = cells
        .iter()
        .filter(|cell| cell.deed == Deed::Killed)
        .map(|cell| cell.name())
        .collect();
    assert_eq!(killed, ["leader-killed-between-append-and-flush"]);
    let paused = cells.iter().filter(|cell| cell.deed == Deed::Paused);
    assert!(paused.clone().count() > 2 && paused.clone().all(|cell| cell.part == Part::Observer));
}

#[test]
fn coverage_of_runs_adds_up() {
    let one = |cells: Value, never: Value| {
        let mut result = conclusion(Validity::Valid, "", "");
        result.evidence = json!({"cells": cells, "never": never});
        Coverage::of(&result)
    };
    let mut sum = one(json!({"a": 2}), json!(["b", "c"]));
    sum.add(&one(json!({"b": 1, "a": 1}), json!(["c"])));
    assert_eq!(sum.counts["a"], 3);
    assert_eq!(sum.covered_count(), 2);
    assert_eq!(sum.never().collect::<Vec<_>>(), ["c"]);
    assert_eq!(
        Coverage::of(&conclusion(Validity::Valid, "", "")),
        Coverage::default()
    );
}

#[test]
fn a_fault_that_waits_for_a_node_hits_it_when_it_is_there() {
    let mut events = events();
    events.push((500, "n1", 2, started()));
    let standings = standings(&events);
    let mut corrupt = fault(2, "disk", 400, nodes(400, &["n1"]));
    corrupt["fault"]["what"] = "bit-flip".into();
    let faults = schedule(json!([fault(1, "kill", 210, nodes(210, &["n1"])), corrupt]));
    let applied = serde_json::from_value(json!({
        "index": 0, "time": 510 * MS, "process": "nemesis", "type": "info", "f": "start-disk",
        "value": {"id": 2, "outcome": "installed"}
    }));
    let options = options(&["kill", "disk-corrupt"], |_| {});
    let result = check(&standings, &options, &faults, &[applied.unwrap()]);
    let cells = &result.evidence["cells"];
    assert_eq!(
        cells["unattached-disk-corrupted-while-starting-up"], 1,
        "{cells}"
    );
    assert_eq!(cells.as_object().unwrap().len(), 2, "{cells}");
    let faults = &result.evidence["faults"];
    assert_eq!(
        faults["unattached-disk-corrupted-while-starting-up"],
        json!([2])
    );
    assert_eq!(faults.as_object().unwrap().len(), 2, "{faults}");
}
