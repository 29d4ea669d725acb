//! Owns the proof that a disk is believed, and a node is not.
//! Never uses a file that a node wrote: what nodes write is read in the tests of the harness.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod files;
mod promises;

use std::collections::BTreeMap;

use checkers::disks::{Clients, snapshot_ends};
use results::disk_image::DiskImage;
use results::schedule::Schedule;
use results::trace::TraceEvent;
use results::verdict::{CheckerResult, Validity};
use serde_json::{Value, json};

use files::*;

/// Hash of the state of the snapshot.
const DIGEST: u64 = state_hash("x");

/// Batches of a node that has taken a snapshot at 4, and deleted what was before.
fn batches() -> Vec<Vec<u8>> {
    vec![
        batch(0, 1, true, &[b"one"]),
        batch(1, 1, false, &[b"two", b"three", b"four"]),
        batch(4, 1, false, &[b"five"]),
        batch(5, 2, true, &[b"six"]),
        batch(6, 2, false, &[b"seven", b"eight\0\0\0"]),
    ]
}

fn sound_files() -> Files {
    let batches = batches();
    let (first, crc) = segment(&batches[..3], 0, true);
    let (second, _) = segment(&batches[3..], crc, false);
    Files::from([
        ("meta.properties".into(), meta(1)),
        ("quorum-state".into(), quorum_state(2, 3, 2)),
        ("log-start".into(), log_start(4, 1)),
        (segment_name(0), first),
        (segment_name(5), second),
        (snapshot_name(4, 1), snapshot(1, DIGEST, "x")),
    ])
}

fn started(seq: u64) -> Value {
    json!({"event": "started", "role": "unattached", "log_start": 0, "log_end": 0, "last_epoch": 0,
        "directory_id": "dir1", "seq": seq})
}

fn append(batch: &[u8], base_offset: i64, last_offset: i64, epoch: i32) -> Value {
    json!({"event": "append", "base_offset": base_offset, "last_offset": last_offset,
        "batch_epoch": epoch, "crc": crc(batch)})
}

fn events() -> Vec<Value> {
    let batches = batches();
    vec![
        started(0),
        json!({"event": "epoch-adopted", "leader": null, "epoch": 2}),
        json!({"event": "vote-persisted", "candidate": "n2"}),
        json!({"event": "epoch-adopted", "leader": "n3"}),
        append(&batches[0], 0, 0, 1),
        append(&batches[1], 1, 3, 1),
        append(&batches[2], 4, 4, 1),
        append(&batches[3], 5, 5, 2),
        json!({"event": "flush", "log_end": 6}),
        json!({"event": "high-watermark", "high_watermark": 5, "log_end": 6}),
        json!({"event": "snapshot-frozen", "end_offset": 4, "last_epoch": 1,
            "digest": format!("{DIGEST:016x}")}),
        json!({"event": "log-start-advanced", "log_start": 4}),
        append(&batches[4], 6, 7, 2),
        json!({"event": "flush", "log_end": 8}),
    ]
}

fn trace(events: Vec<Value>) -> Vec<TraceEvent> {
    let numbered = events.into_iter().enumerate();
    let trace = numbered.map(|(seq, mut event)| {
        event["seq"] = seq.into();
        event["time"] = (seq as u64 * 10).into();
        event["node"] = "n1".into();
        event["incarnation"] = 1.into();
        event["epoch"] = 2.into();
        serde_json::from_value(event).unwrap()
    });
    trace.collect()
}

fn schedule(faults: Value) -> Schedule {
    serde_json::from_value(json!({"format_version": 1, "faults": faults})).unwrap()
}

/// Compares disks with traces, where no client did anything.
fn check(
    trace: &[TraceEvent],
    disks: &BTreeMap<String, DiskImage>,
    schedule: &Schedule,
) -> CheckerResult {
    let clients = Clients {
        history: &[],
        workload: "register",
    };
    checkers::disks::check(trace, disks, schedule, clients)
}

fn judge(image: DiskImage, events: Vec<Value>) -> CheckerResult {
    let disks = BTreeMap::from([("n1".to_owned(), image)]);
    check(&trace(events), &disks, &schedule(json!([])))
}

fn read(files: &Files) -> DiskImage {
    let names = files.keys().map(String::as_str);
    checkers::disks::read(files, &snapshot_ends(names))
}

/// Of a node that still runs, so that it must have said everything.
fn image(files: &Files) -> DiskImage {
    DiskImage {
        is_settled: true,
        ..read(files)
    }
}

fn violated(result: &CheckerResult) -> Vec<&str> {
    let properties = result.properties.iter();
    properties
        .filter(|(_, property)| property.valid == Validity::Invalid)
        .map(|(id, _)| id.as_str())
        .collect()
}

/// What is violated once the files were changed.
fn doctored(change: impl FnOnce(&mut Files)) -> (Vec<String>, String) {
    let mut files = sound_files();
    change(&mut files);
    let result = judge(image(&files), events());
    let violated = violated(&result).into_iter().map(str::to_owned).collect();
    (violated, result.summary)
}

#[test]
fn a_disk_that_holds_what_its_node_said_is_valid() {
    let image = image(&sound_files());
    assert_eq!(image.flaws, Vec::<String>::new());
    assert_eq!((image.log_start, image.log_end()), (4, 8));
    let result = judge(image, events());
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
    for id in ["D1", "D2", "D3", "D4", "D5", "D7"] {
        assert!(result.properties[id].checked > 0, "{id}");
    }
}

#[test]
fn room_behind_the_log_and_a_torn_write_that_was_not_promised_are_no_lies() {
    let mut files = sound_files();
    let segment = files.get_mut(&segment_name(5)).unwrap();
    segment.extend([0; 4096]);
    let result = judge(image(&files), events());
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
    // The last batch was appended, and not flushed yet.
    let mut events = events();
    events.pop();
    let segment = files.get_mut(&segment_name(5)).unwrap();
    segment.truncate(segment.len() - 4096 - 29 - 3);
    let torn = image(&files);
    assert_eq!((torn.log_end(), torn.flaws.len()), (6, 1));
    let result = judge(torn, events);
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
}

#[test]
fn a_log_that_lacks_what_was_promised_is_a_lie() {
    let (found, summary) = doctored(|files| {
        let batches = batches();
        let (_, crc) = segment(&batches[..3], 0, true);
        let (short, _) = segment(&batches[3..4], crc, false);
        files.insert(segment_name(5), short);
    });
    assert_eq!(found, ["D1"], "{summary}");
    assert!(summary.contains("ends at 6"), "{summary}");
    for bit in [40 * 8, 60 * 8 + 3] {
        let (found, summary) = doctored(|files| {
            files.get_mut(&segment_name(5)).unwrap()[bit / 8] ^= 1 << (bit % 8);
        });
        assert_eq!(found, ["D1"], "{summary}");
        assert!(summary.contains("wrong checksum"), "{summary}");
    }
}

#[test]
fn another_batch_in_the_place_of_a_promised_one_is_a_lie() {
    let exchange = |files: &mut Files| {
        let mut batches = batches();
        let (_, crc) = segment(&batches[..3], 0, true);
        batches[4] = batch(6, 2, false, &[b"seven", b"other"]);
        let (other, _) = segment(&batches[3..], crc, false);
        files.insert(segment_name(5), other);
    };
    let (found, summary) = doctored(exchange);
    assert_eq!(found, ["D1", "D2"], "{summary}");
    // It was not committed, so a node that was killed may have replaced it and not said so any more.
    let mut files = sound_files();
    exchange(&mut files);
    let result = judge(read(&files), events());
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
    let mut committed = events();
    committed.push(json!({"event": "high-watermark", "high_watermark": 8, "log_end": 8}));
    let result = judge(read(&files), committed);
    assert_eq!(violated(&result), ["D1"], "{}", result.summary);
}

#[test]
fn a_batch_that_was_never_reported_is_a_lie() {
    let mut events = events();
    events.truncate(events.len() - 2);
    let result = judge(image(&sound_files()), events.clone());
    assert_eq!(violated(&result), ["D2"], "{}", result.summary);
    // What it would have said next counts as said.
    let mut image = image(&sound_files());
    let said = trace(self::events());
    image.untold = said[events.len()..].to_vec();
    let result = judge(image, events);
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
}

#[test]
fn votes_and_epochs_that_are_not_as_reported_are_lies() {
    for (epoch, leader, vote, word) in [
        (1, 3, 2, "epoch 2"),
        (3, 3, 2, "epoch 2"),
        (2, -1, 2, "leader"),
        (2, 2, 2, "leader"),
        (2, 3, -1, "vote"),
        (2, 3, 1, "vote"),
    ] {
        let (found, summary) = doctored(|files| {
            files.insert("quorum-state".into(), quorum_state(epoch, leader, vote));
        });
        assert_eq!(found, ["D3"], "{summary}");
        assert!(summary.contains(word), "{summary}");
    }
    let (found, _) = doctored(|files| drop(files.remove("quorum-state")));
    assert_eq!(found, ["D3"]);
    let (found, summary) = doctored(|files| files.get_mut("quorum-state").unwrap()[14] ^= 1);
    assert_eq!(found, ["D3"], "{summary}");
    // A killed node may have got further, never less far.
    let mut files = sound_files();
    files.insert("quorum-state".into(), quorum_state(3, -1, 1));
    assert_eq!(judge(read(&files), events()).valid, Validity::Valid);
    files.insert("quorum-state".into(), quorum_state(2, 3, -1));
    assert_eq!(violated(&judge(read(&files), events())), ["D3"]);
}

#[test]
fn snapshots_and_log_starts_that_are_not_as_reported_are_lies() {
    let (found, summary) = doctored(|files| drop(files.remove(&snapshot_name(4, 1))));
    assert_eq!(found, ["D4", "D5"], "{summary}");
    let (found, summary) = doctored(|files| {
        files.insert(snapshot_name(4, 1), snapshot(1, DIGEST + 1, "x"));
    });
    assert_eq!(found, ["D4", "D9"], "{summary}");
    let (found, summary) = doctored(|files| {
        let whole = files.get_mut(&snapshot_name(4, 1)).unwrap();
        whole.truncate(whole.len() - 10);
    });
    assert_eq!(found, ["D4", "D5"], "{summary}");
    let (found, summary) = doctored(|files| drop(files.remove("log-start")));
    assert_eq!(found, ["D5"], "{summary}");
    let (found, summary) = doctored(|files| drop(files.insert("meta.properties".into(), meta(2))));
    assert_eq!(found, ["D7"], "{summary}");
}

#[test]
fn equal_snapshots_hold_the_same_on_all_disks() {
    let mut other = sound_files();
    other.insert("meta.properties".into(), meta(2));
    other.insert(snapshot_name(4, 1), snapshot(1, DIGEST, "y"));
    let mut all = trace(events());
    for mut event in trace(events()) {
        event.node = "n2".into();
        if let results::trace::TraceDetail::Started(started) = &mut event.detail {
            started.directory_id = Some("dir2".into());
        }
        all.push(event);
    }
    let first = ("n1".to_owned(), image(&sound_files()));
    let mut disks = BTreeMap::from([first, ("n2".to_owned(), image(&other))]);
    let result = check(&all, &disks, &schedule(json!([])));
    assert_eq!(violated(&result), ["D6", "D9"], "{}", result.summary);
    other.insert(snapshot_name(4, 1), snapshot(1, DIGEST, "x"));
    disks.insert("n2".to_owned(), image(&other));
    let result = check(&all, &disks, &schedule(json!([])));
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
    assert_eq!(result.properties["D6"].checked, 1);
}

#[test]
fn a_disk_is_left_out_if_nobody_lived_to_tell_what_a_fault_did_to_it() {
    let files = Files::from([("meta.properties".to_owned(), meta(1))]);
    let disks = BTreeMap::from([("n1".to_owned(), read(&files))]);
    let judged = |what: &str, rest: serde_json::Value| {
        let mut fault = json!({"id": 7, "trigger": {"at_ms": 1}, "duration_ms": 1,
            "fault": {"kind": "disk", "what": what}});
        fault
            .as_object_mut()
            .unwrap()
            .extend(rest.as_object().unwrap().clone());
        check(&trace(events()), &disks, &schedule(json!([fault])))
    };
    let of = |node: &str, outcome: &str| json!({"resolved": {"at_ms": 1, "nodes": [node]}, "outcome": outcome});
    let anybody = json!({"outcome": "indeterminate"});
    for rest in [
        of("n1", "installed"),
        of("n1", "indeterminate"),
        anybody.clone(),
    ] {
        let result = judged("torn-write", rest);
        assert_eq!(result.valid, Validity::Unknown, "{}", result.summary);
        let told = "n1: fault 7 may have destroyed data on its disk";
        assert!(result.summary.contains(told), "{}", result.summary);
    }
    let mut told = of("n1", "installed");
    told["effect"] = json!({"n1_damaged_bytes": 0});
    for (what, rest) in [
        ("torn-write", of("n2", "installed")),
        ("torn-write", of("n1", "skipped")),
        ("torn-write", json!({})),
        ("torn-write", told),
        ("sync-error", anybody),
    ] {
        let result = judged(what, rest.clone());
        assert_eq!(result.valid, Validity::Invalid, "{what} {rest}");
    }
}

#[test]
fn a_disk_that_a_fault_destroyed_is_left_out_and_a_missing_one_is_told() {
    let files = Files::from([("meta.properties".to_owned(), meta(1))]);
    let disks = BTreeMap::from([("n1".to_owned(), read(&files))]);
    let faults = json!([{"id": 7, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "disk"},
        "effect": {"n1_damaged_bytes": 3}}]);
    let result = check(&trace(events()), &disks, &schedule(faults));
    assert_eq!(result.valid, Validity::Unknown);
    assert!(
        result.summary.contains("fault 7 destroyed"),
        "{}",
        result.summary
    );
    let result = check(&trace(events()), &disks, &schedule(json!([])));
    assert_eq!(result.valid, Validity::Invalid);
    let result = check(&trace(events()), &BTreeMap::new(), &schedule(json!([])));
    assert_eq!(result.valid, Validity::Unknown, "{}", result.summary);
    assert!(
        result.summary.contains("n1 was not read"),
        "{}",
        result.summary
    );
    let mut gap = events();
    gap.remove(5);
    let mut gap = trace(gap);
    gap[5].seq = 17;
    let disks = BTreeMap::from([("n1".to_owned(), image(&sound_files()))]);
    let result = check(&gap, &disks, &schedule(json!([])));
    assert_eq!(result.valid, Validity::Unknown, "{}", result.summary);
}

#[test]
fn whatever_the_bytes_reading_ends_without_a_panic() {
    let sound = sound_files();
    for (name, content) in &sound {
        for length in 0..content.len() {
            let mut files = sound.clone();
            files.insert(name.clone(), content[..length].to_vec());
            read(&files);
            let mut flipped = content.clone();
            flipped[length] ^= 0x81;
            files.insert(name.clone(), flipped);
            read(&files);
        }
    }
}

/// A disk with the log from its beginning and the snapshot of it, whose register holds `stored`.
fn files_with_log(stored: &str) -> (Files, Vec<Value>) {
    let write = |value: &str| {
        json!({"operations": [{"type": "register-write", "key": "0", "value": value}]}).to_string()
    };
    let batches = [
        batch(0, 1, true, &[b"a leader"]),
        batch(1, 1, false, &[write("a").as_bytes(), write("b").as_bytes()]),
        batch(3, 1, false, &[write("c").as_bytes(), write("d").as_bytes()]),
    ];
    let (log, _) = segment(&batches, 0, false);
    let files = Files::from([
        ("meta.properties".into(), meta(1)),
        ("quorum-state".into(), quorum_state(2, 3, 2)),
        (segment_name(0), log),
        (snapshot_name(4, 1), snapshot(1, state_hash(stored), stored)),
    ]);
    let mut events = events();
    events.truncate(4);
    events.extend([
        append(&batches[0], 0, 0, 1),
        append(&batches[1], 1, 2, 1),
        append(&batches[2], 3, 4, 1),
        json!({"event": "flush", "log_end": 5}),
        json!({"event": "high-watermark", "high_watermark": 5, "log_end": 5}),
        json!({"event": "snapshot-frozen", "end_offset": 4, "last_epoch": 1,
            "digest": format!("{:016x}", state_hash(stored))}),
    ]);
    (files, events)
}

#[test]
fn a_snapshot_must_hold_what_the_log_adds_up_to() {
    let (files, events) = files_with_log("c");
    let result = judge(image(&files), events);
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
    assert_eq!(result.properties["D8"].checked, 1);
    assert!(
        !result.summary.contains("not checked"),
        "{}",
        result.summary
    );
    let (files, events) = files_with_log("b");
    let result = judge(image(&files), events);
    assert_eq!(violated(&result), ["D8"], "{}", result.summary);
    assert!(result.summary.contains("ends at 4"), "{}", result.summary);
}

#[test]
fn a_hash_that_is_told_of_a_snapshot_must_be_that_of_its_state() {
    // What is told and what the file says agree, and the state has another hash.
    let (mut files, mut events) = files_with_log("c");
    files.insert(snapshot_name(4, 1), snapshot(1, state_hash("b"), "c"));
    if let Some(frozen) = events.last_mut() {
        frozen["digest"] = json!(format!("{:016x}", state_hash("b")));
    }
    let result = judge(image(&files), events);
    assert_eq!(violated(&result), ["D9"], "{}", result.summary);
    let (files, events) = files_with_log("c");
    let result = judge(image(&files), events);
    assert_eq!(result.properties["D9"].checked, 2, "{}", result.summary);
}

#[test]
fn of_a_log_that_a_snapshot_has_replaced_its_start_is_compared() {
    let (mut files, _) = files_with_log("c");
    let (empty, _) = segment(&[], 0, false);
    files.retain(|name, _| !name.ends_with(".log"));
    files.insert("quorum-state".into(), quorum_state(2, 3, 2));
    files.insert("log-start".into(), log_start(4, 1));
    files.insert(segment_name(4), empty);
    files.insert(snapshot_name(4, 1), snapshot(1, DIGEST, "x"));
    let mut events = events();
    events.truncate(4);
    events.push(
        json!({"event": "snapshot-installed", "end_offset": 4, "last_epoch": 1,
        "digest": format!("{DIGEST:016x}")}),
    );
    let result = judge(image(&files), events.clone());
    assert_eq!(result.properties["D1"].checked, 0);
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
    files.insert("log-start".into(), log_start(3, 1));
    let result = judge(image(&files), events);
    assert_eq!(result.valid, Validity::Invalid, "{}", result.summary);
}

#[test]
fn the_log_of_another_node_tells_what_a_snapshot_must_hold() {
    let (with_log, events) = files_with_log("c");
    let mut bare = with_log.clone();
    let (empty, _) = segment(&[], 0, false);
    bare.retain(|name, _| !name.ends_with(".log"));
    bare.insert("meta.properties".into(), meta(2));
    bare.insert("log-start".into(), log_start(4, 1));
    bare.insert(segment_name(4), empty);
    bare.insert(snapshot_name(4, 1), snapshot(1, state_hash("a"), "a"));
    let installed = json!({"event": "snapshot-installed", "end_offset": 4, "last_epoch": 1,
        "digest": format!("{:016x}", state_hash("a"))});
    let mut of_other = trace(vec![started(0), installed]);
    for event in &mut of_other {
        event.node = "n2".into();
        event.detail = match event.detail.clone() {
            results::trace::TraceDetail::Started(mut started) => {
                started.directory_id = Some("dir2".into());
                results::trace::TraceDetail::Started(started)
            }
            other => other,
        };
    }
    let mut all = trace(events);
    all.extend(of_other);
    let disks = BTreeMap::from([
        ("n1".to_owned(), image(&with_log)),
        ("n2".to_owned(), image(&bare)),
    ]);
    let result = check(&all, &disks, &schedule(json!([])));
    let d8 = &result.properties["D8"];
    assert_eq!(
        (d8.valid, d8.checked),
        (Validity::Invalid, 2),
        "{}",
        d8.summary
    );
    assert!(d8.summary.contains("n2: its snapshot"), "{}", d8.summary);
    let alone = BTreeMap::from([("n2".to_owned(), image(&bare))]);
    let result = check(&all, &alone, &schedule(json!([])));
    assert_eq!(result.properties["D8"].checked, 0);
    assert!(
        result.summary.contains("1 snapshot not checked"),
        "{}",
        result.summary
    );
}
