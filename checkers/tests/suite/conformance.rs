//! Owns the proof that steps which the protocol does not allow are named, and that no others are.
//! Never uses a trace that a node wrote: those are judged in the tests of the harness.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use checkers::conformance::{check, check_run};
use results::manifest::Manifest;
use results::schedule::Schedule;
use results::trace::TraceEvent;
use results::verdict::{CheckerResult, Validity};
use serde_json::{Value, json};

/// Numbers the events of n2, one of three voters; `epoch` goes on until an event names another one.
fn trace(events: &[Value]) -> Vec<TraceEvent> {
    let mut epoch = json!(0);
    let numbered = events.iter().enumerate();
    let trace = numbered.map(|(seq, event)| {
        let mut event = event.clone();
        if let Some(named) = event.get("epoch") {
            epoch = named.clone();
        }
        event["epoch"] = epoch.clone();
        event["seq"] = seq.into();
        event["time"] = (seq as u64 * 1_000).into();
        event["node"] = "n2".into();
        event["incarnation"] = 1.into();
        serde_json::from_value(event).unwrap()
    });
    trace.collect()
}

fn started() -> Value {
    json!({"event": "started", "role": "unattached", "log_start": 0, "log_end": 0, "last_epoch": 0,
        "voters": ["n1", "n2", "n3"], "kraft_version": 0, "is_voter": true})
}

fn role(role: &str, leader: Option<&str>) -> Value {
    json!({"event": "role-change", "role": role, "leader": leader})
}

fn adopted(epoch: i32, leader: Option<&str>) -> Value {
    json!({"event": "epoch-adopted", "epoch": epoch, "leader": leader})
}

fn voted(candidate: &str) -> Value {
    json!({"event": "vote-persisted", "candidate": candidate})
}

fn append(base_offset: i64, last_offset: i64, batch_epoch: i32) -> Value {
    json!({"event": "append", "base_offset": base_offset, "last_offset": last_offset,
        "batch_epoch": batch_epoch, "crc": 1})
}

fn watermark(high_watermark: i64) -> Value {
    json!({"event": "high-watermark", "high_watermark": high_watermark, "log_end": 99})
}

fn sent(to: &str, rpc: &str, correlation: u64, epoch: i32, more: Value) -> Value {
    message("rpc-sent", "to", to, rpc, false, correlation, epoch, more)
}

fn answered(to: &str, rpc: &str, correlation: u64, epoch: i32, more: Value) -> Value {
    message("rpc-sent", "to", to, rpc, true, correlation, epoch, more)
}

fn asked(from: &str, rpc: &str, correlation: u64, epoch: i32, more: Value) -> Value {
    message(
        "rpc-received",
        "from",
        from,
        rpc,
        false,
        correlation,
        epoch,
        more,
    )
}

fn answer(from: &str, rpc: &str, correlation: u64, epoch: i32, more: Value) -> Value {
    message(
        "rpc-received",
        "from",
        from,
        rpc,
        true,
        correlation,
        epoch,
        more,
    )
}

#[expect(clippy::too_many_arguments, reason = "as many as a message has fields")]
fn message(
    event: &str,
    side: &str,
    peer: &str,
    rpc: &str,
    is_response: bool,
    correlation: u64,
    epoch: i32,
    more: Value,
) -> Value {
    let mut message = json!({"event": event, side: peer, "rpc": rpc, "is_response": is_response,
        "correlation": correlation, "message_epoch": epoch});
    for (name, value) in more.as_object().unwrap() {
        message[name] = value.clone();
    }
    message
}

/// n2 is elected in epoch 1, commits, and serves fetches of n1 and n3.
fn of_leader() -> Vec<Value> {
    let fetch = |offset: i64, last_epoch: i32| json!({"offset": offset, "last_epoch": last_epoch});
    let mut start = role("leader", Some("n2"));
    start["epoch_start_offset"] = 0.into();
    vec![
        started(),
        role("prospective", None),
        sent("n1", "pre-vote", 1, 0, fetch(0, 0)),
        answer("n1", "vote", 1, 0, json!({"granted": true})),
        adopted(1, None),
        voted("n2"),
        role("candidate", None),
        sent("n1", "vote", 2, 1, fetch(0, 0)),
        answer("n1", "vote", 2, 1, json!({"granted": true})),
        adopted(1, Some("n2")),
        start,
        append(0, 2, 1),
        asked("n3", "fetch", 1, 1, fetch(0, 0)),
        answered(
            "n3",
            "fetch",
            1,
            1,
            json!({"leader": "n2", "offset": 0, "end_offset": 3}),
        ),
        asked("n1", "fetch", 1, 1, fetch(5, 0)),
        answered(
            "n1",
            "fetch",
            1,
            1,
            json!({"leader": "n2", "error": "INVALID_REQUEST"}),
        ),
        watermark(3),
        asked("n3", "fetch", 2, 0, fetch(3, 0)),
        answered(
            "n3",
            "fetch",
            2,
            1,
            json!({"leader": "n2", "error": "FENCED_LEADER_EPOCH"}),
        ),
        asked("n3", "fetch", 3, 1, fetch(7, 1)),
        answered(
            "n3",
            "fetch",
            3,
            1,
            json!({"leader": "n2", "diverging": [1, 3]}),
        ),
        asked("n3", "vote", 9, 4, fetch(2, 1)),
        adopted(4, None),
        role("unattached", None),
        answered("n3", "vote", 9, 4, json!({"granted": false})),
    ]
}

/// n2 follows n1 in epoch 2 with a tail of epoch 1, and cuts it.
fn of_follower() -> Vec<Value> {
    let fetch = |offset: i64, last_epoch: i32| json!({"offset": offset, "last_epoch": last_epoch});
    let records = |from: i64, end: i64, high_watermark: i64| json!({"leader": "n1", "offset": from, "end_offset": end, "high_watermark": high_watermark});
    vec![
        started(),
        adopted(1, Some("n3")),
        role("follower", Some("n3")),
        sent("n3", "fetch", 1, 1, fetch(0, 0)),
        answer("n3", "fetch", 1, 1, records(0, 6, 3)),
        append(0, 2, 1),
        append(3, 5, 1),
        watermark(3),
        adopted(2, Some("n1")),
        role("follower", Some("n1")),
        asked("n3", "pre-vote", 5, 2, fetch(6, 1)),
        answered("n3", "pre-vote", 5, 2, json!({"granted": true})),
        sent("n1", "fetch", 2, 2, fetch(6, 1)),
        answer(
            "n1",
            "fetch",
            2,
            2,
            json!({"leader": "n1", "diverging": [1, 3], "high_watermark": 5}),
        ),
        json!({"event": "truncate", "log_end": 3}),
        sent("n1", "fetch", 3, 2, fetch(3, 1)),
        answer("n1", "fetch", 3, 2, records(3, 5, 9)),
        append(3, 4, 2),
        watermark(5),
        role("prospective", Some("n1")),
        role("follower", Some("n1")),
    ]
}

fn violated(result: &CheckerResult) -> Vec<&str> {
    let properties = result.properties.iter();
    properties
        .filter(|(_, property)| property.valid == Validity::Invalid)
        .map(|(id, _)| id.as_str())
        .collect()
}

/// What is violated first and in all once `change` has been made to the steps.
fn changed(mut events: Vec<Value>, change: impl FnOnce(&mut Vec<Value>)) -> String {
    change(&mut events);
    let result = check(&trace(&events));
    assert_eq!(result.valid, Validity::Invalid, "{}", result.summary);
    let first = violated(&result);
    assert!(
        first
            .iter()
            .any(|id| result.summary.starts_with(&format!("{id} ("))),
        "{}",
        result.summary
    );
    result.summary.split(' ').next().unwrap().to_owned()
}

#[test]
fn steps_of_the_protocol_are_allowed_and_every_rule_is_applied() {
    let mut applied = std::collections::BTreeSet::new();
    for events in [of_leader(), of_follower()] {
        let result = check(&trace(&events));
        assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
        let properties = result.properties.into_iter();
        let checked = properties.filter(|(_, property)| property.checked > 0);
        applied.extend(checked.map(|(id, _)| id));
    }
    assert_eq!(applied.len(), 11, "those of time need a run: {applied:?}");
}

#[test]
fn without_messages_what_takes_them_is_left_open() {
    let only_steps = |events: Vec<Value>| -> Vec<Value> {
        let mut events = events;
        events.retain(|event| !event["event"].as_str().unwrap().starts_with("rpc"));
        events
    };
    let result = check(&trace(&only_steps(of_leader())));
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
    let pre_votes = &result.properties["C6"];
    assert_eq!((pre_votes.valid, pre_votes.checked), (Validity::Unknown, 0));
    assert!(
        pre_votes.summary.contains("not decidable 1 times"),
        "{}",
        pre_votes.summary
    );
    let result = check(&trace(&only_steps(of_follower())));
    assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
}

#[test]
fn moves_and_states_that_are_not_legal_are_named() {
    assert_eq!(changed(of_leader(), |events| drop(events.remove(1))), "C4");
    assert_eq!(changed(of_leader(), |events| drop(events.remove(6))), "C1");
    assert_eq!(
        changed(of_leader(), |events| events[10]["epoch_start_offset"] =
            1.into()),
        "C2"
    );
    assert_eq!(changed(of_leader(), |events| drop(events.remove(9))), "C2");
    assert_eq!(
        changed(of_follower(), |events| events[2]["leader"] = "n2".into()),
        "C2"
    );
    assert_eq!(
        changed(of_follower(), |events| events
            .push(role("leader", Some("n1")))),
        "C1"
    );
    assert_eq!(
        changed(of_follower(), |events| events
            .push(role("unattached", Some("n1")))),
        "C1"
    );
}

#[test]
fn a_start_that_the_file_forbids_is_named() {
    for (started_as, leader, vote) in [
        ("unattached", Some("n2"), None),
        ("candidate", Some("n2"), None),
        ("leader", Some("n2"), None),
        ("candidate", None, Some("n3")),
        ("follower", None, None),
    ] {
        let mut events = vec![started()];
        events[0]["role"] = started_as.into();
        events[0]["leader"] = json!(leader);
        events[0]["voted_for"] = json!(vote);
        events[0]["epoch"] = 3.into();
        assert_eq!(changed(events, |_| ()), "C3", "{started_as}");
    }
}

#[test]
fn votes_that_were_not_free_are_named() {
    let vote_again = |events: &mut Vec<Value>| {
        events.truncate(7);
        events.extend([
            adopted(2, None),
            role("unattached", None),
            voted("n1"),
            voted("n3"),
        ]);
    };
    assert_eq!(changed(of_leader(), vote_again), "C4");
    assert_eq!(
        changed(of_follower(), |events| events.push(voted("n3"))),
        "C4"
    );
    for (at, granted) in [(24, true), (11, false)] {
        let events = if at == 24 { of_leader() } else { of_follower() };
        let found = changed(events, |events| events[at]["granted"] = granted.into());
        assert_eq!(found, "C5");
    }
}

#[test]
fn an_election_without_pre_votes_and_an_epoch_that_is_ignored_are_named() {
    let refused = |events: &mut Vec<Value>| events[3]["granted"] = false.into();
    assert_eq!(changed(of_leader(), refused), "C6");
    let ignored = |events: &mut Vec<Value>| {
        events.drain(22..24);
        events[22]["message_epoch"] = 1.into();
        events[22]["epoch"] = 1.into();
    };
    assert_eq!(changed(of_leader(), ignored), "C11");
}

#[test]
fn appends_cuts_and_commits_that_no_answer_explains_are_named() {
    let late = |events: &mut Vec<Value>| events[3]["correlation"] = 8.into();
    assert_eq!(changed(of_follower(), late), "C7");
    assert_eq!(
        changed(of_follower(), |events| events[4]["end_offset"] = 5.into()),
        "C7"
    );
    assert_eq!(
        changed(of_leader(), |events| events[11]["batch_epoch"] = 0.into()),
        "C7"
    );
    assert_eq!(
        changed(of_follower(), |events| events[14]["log_end"] = 4.into()),
        "C8"
    );
    assert_eq!(
        changed(of_follower(), |events| drop(events.remove(13))),
        "C8"
    );
    assert_eq!(
        changed(of_leader(), |events| events[16]["high_watermark"] =
            0.into()),
        "C9"
    );
    assert_eq!(
        changed(of_follower(), |events| events[7]["high_watermark"] =
            6.into()),
        "C9"
    );
    assert_eq!(
        changed(of_follower(), |events| events.insert(14, watermark(5))),
        "C9"
    );
}

#[test]
fn answers_to_fetches_that_should_have_been_others_are_named() {
    let served = |at: usize| {
        move |events: &mut Vec<Value>| {
            events[at]["error"] = Value::Null;
        }
    };
    assert_eq!(changed(of_leader(), served(18)), "C10");
    assert_eq!(
        changed(of_leader(), |events| events[20]["diverging"] =
            json!([1, 2])),
        "C10"
    );
    // Held back until a request that came later was answered.
    let held_back = |events: &mut Vec<Value>| {
        let held = events.remove(20);
        let fetch = json!({"offset": 3, "last_epoch": 1});
        events.insert(20, asked("n1", "fetch", 7, 1, fetch));
        events.insert(21, answered("n1", "fetch", 7, 1, json!({"leader": "n2"})));
        events.insert(22, held);
    };
    assert_eq!(changed(of_leader(), held_back), "C10");
}

#[test]
fn after_a_gap_nothing_is_held_against_a_node() {
    let mut events = trace(&of_leader());
    events.remove(1);
    let result = check(&events);
    assert_eq!(result.valid, Validity::Unknown, "{}", result.summary);
    assert_eq!(check(&[]).valid, Validity::Unknown);
}

/// What was cut off may have been the record that made it a voter.
#[test]
fn a_voter_whose_log_was_cut_may_be_an_observer() {
    let begun = json!({"event": "started", "epoch": 3, "role": "follower", "leader": "n1", "log_start": 0,
        "log_end": 10, "last_epoch": 3, "voters": ["n1", "n2", "n3"], "kraft_version": 1,
        "is_voter": true});
    let cut = json!({"event": "truncate", "log_end": 8});
    let lost = role("unattached", Some("n1"));
    let judged = |events: &[Value]| {
        let result = check(&trace(events));
        result.properties["C1"].valid
    };
    assert_eq!(judged(&[begun.clone(), lost.clone()]), Validity::Invalid);
    assert_ne!(judged(&[begun, cut, lost]), Validity::Invalid);
}

/// A list of voters tells names, and a node with a new disk is another replica of its name.
#[test]
fn a_node_with_a_new_disk_may_be_none_of_the_voters() {
    let begun = |directory: &str, incarnation: u32| {
        json!({"event": "started", "epoch": 3, "role": "follower", "leader": "n1", "log_start": 0,
            "log_end": 0, "last_epoch": 0, "voters": [], "kraft_version": 0, "is_voter": false,
            "directory_id": directory, "incarnation": incarnation})
    };
    let listed = json!({"event": "voters-appended", "offset": 1, "voters": ["n1", "n2", "n3"],
        "kraft_version": 1});
    let lost = role("unattached", Some("n1"));
    let judged = |directory: &str| {
        let mut events = trace(&[
            begun("one", 1),
            begun(directory, 2),
            append(0, 1, 3),
            listed.clone(),
            lost.clone(),
        ]);
        for (seq, event) in (0..).zip(&mut events[1..]) {
            (event.incarnation, event.seq) = (2, seq);
        }
        check(&events).properties["C1"].valid
    };
    assert_eq!(judged("one"), Validity::Invalid);
    assert_ne!(judged("two"), Validity::Invalid);
}

/// A simulated run with a fetch timeout of 800 ms.
fn manifest() -> Manifest {
    serde_json::from_value(json!({
        "format_version": 1, "name": "run", "seed": 1, "world": "simulation",
        "environment": {"harness_version": "0", "command": [], "node_binary": "simulated",
            "system": "linux", "processors": 1},
        "options": {"workload": "register", "nemesis": [], "nodes": 3, "concurrency": 5,
            "rate_per_second": 10, "time_ms": 9_000, "interval_ms": 1_000,
            "operation_timeout_ms": 500, "recovery_timeout_ms": 5_000,
            "timers": {"election_timeout_ms": 120, "fetch_timeout_ms": 800,
                "election_backoff_max_ms": 400, "fetch_max_wait_ms": 200,
                "request_timeout_ms": 800, "retry_backoff_ms": 20}},
        "started": "2026-01-01T00:00:00Z", "phases": {},
    }))
    .unwrap()
}

/// The events of a leader, or a follower, with a millisecond for each: what only time can tell.
fn waits(events: Vec<Value>, at_ms: &[u64], faults: Value) -> CheckerResult {
    let mut trace = trace(&events);
    for (event, at_ms) in trace.iter_mut().rev().zip(at_ms.iter().rev()) {
        event.time = at_ms * 1_000_000;
    }
    let schedule = json!({"format_version": 1, "faults": faults});
    let schedule: Schedule = serde_json::from_value(schedule).unwrap();
    check_run(&trace, &manifest(), &schedule)
}

fn announced(to: &str, correlation: u64) -> Value {
    sent(to, "begin-quorum-epoch", correlation, 1, json!({}))
}

#[test]
fn a_leader_that_leaves_a_silent_voter_alone_is_named() {
    let fetch = json!({"offset": 3, "last_epoch": 1});
    let led = |again_ms: u64| {
        let mut events = of_leader()[..12].to_vec();
        let from = events.len() as u64;
        events.push(announced("n1", 50));
        events.push(announced("n3", 50));
        events.push(asked("n3", "fetch", 51, 1, fetch.clone()));
        events.push(announced("n1", 51));
        events.push(asked("n3", "fetch", 52, 1, fetch.clone()));
        let mut at_ms: Vec<u64> = (0..from).collect();
        at_ms.extend([20, 20, 700, again_ms, again_ms + 100]);
        (events, at_ms)
    };
    let (events, at_ms) = led(1_530);
    let patient = waits(events, &at_ms, json!([]));
    assert_eq!(patient.valid, Validity::Valid, "{}", patient.summary);
    assert!(patient.properties["C12"].checked > 0);
    let (events, at_ms) = led(1_560);
    let found = waits(events, &at_ms, json!([]));
    assert_eq!(violated(&found), ["C12"], "{}", found.summary);
    let (events, at_ms) = led(2_300);
    let found = waits(events.clone(), &at_ms, json!([]));
    assert_eq!(violated(&found), ["C12"], "{}", found.summary);
    assert!(
        found.summary.contains("no fetch of n1 for 2280 ms"),
        "{}",
        found.summary
    );
    let paused = |node: &str| {
        json!([{"id": 1, "trigger": {"at_ms": 100}, "duration_ms": 900,
            "fault": {"kind": "pause", "targets": [node]}, "outcome": "installed", "healed_at_ms": 1_000,
            "resolved": {"at_ms": 100, "nodes": [node]}}])
    };
    let excused = waits(events.clone(), &at_ms, paused("n2"));
    assert_eq!(excused.valid, Validity::Valid, "{}", excused.summary);
    // Whoever was silent may have been stopped; that is no reason not to tell it.
    let found = waits(events.clone(), &at_ms, paused("n1"));
    assert_eq!(violated(&found), ["C12"], "{}", found.summary);
    // A fault that waited for an event held that node there until it had begun, and no other.
    let awaited = |node: &str, began_ms: u64| {
        json!([{"id": 1, "trigger": {"on": "flush", "edge": "before", "at_ms": 1},
            "duration_ms": 5, "fault": {"kind": "kill", "targets": "event-node"}, "outcome": "installed",
            "resolved": {"at_ms": began_ms, "nodes": [node],
                "event": {"node": node, "incarnation": 1, "seq": 9, "time_ns": began_ms * 1_000_000}}}])
    };
    let held = waits(events.clone(), &at_ms, awaited("n2", 1_500));
    assert_eq!(held.valid, Validity::Valid, "{}", held.summary);
    for (node, began_ms) in [("n2", 5_000), ("n1", 1_500)] {
        let found = waits(events.clone(), &at_ms, awaited(node, began_ms));
        assert_eq!(violated(&found), ["C12"], "{}", found.summary);
    }
}

#[test]
fn a_voter_that_follows_a_silent_leader_for_too_long_is_named() {
    let followed = |until_ms: u64| {
        let mut events = of_follower();
        events.truncate(5);
        events.push(asked("n1", "begin-quorum-epoch", 70, 1, json!({})));
        events.push(role("prospective", Some("n3")));
        (events, vec![0, 1, 2, 3, 10, 600, until_ms])
    };
    for (until_ms, is_named) in [(900, false), (1_080, false), (1_200, true)] {
        let (events, at_ms) = followed(until_ms);
        let found = waits(events, &at_ms, json!([]));
        let expected: &[&str] = if is_named { &["C13"] } else { &[] };
        assert_eq!(violated(&found), expected, "{until_ms}: {}", found.summary);
        assert!(found.properties["C13"].checked > 0);
    }
}

/// The longest back-off is 400 ms, half the fetch timeout: whoever heard of the resignation last of all has to
/// stand that much later, and no later.
#[test]
fn a_leader_that_resigned_is_given_up_when_its_successors_turn_comes() {
    let followed = |until_ms: u64| {
        let mut events = of_follower();
        events.truncate(5);
        let from = events.len() as u64;
        let resigns = json!({});
        events.push(asked("n3", "end-quorum-epoch", 70, 1, resigns.clone()));
        events.push(answered("n3", "end-quorum-epoch", 70, 1, resigns));
        events.push(role("prospective", Some("n3")));
        let mut at_ms: Vec<u64> = (0..from).collect();
        at_ms.extend([700, 700, until_ms]);
        (events, at_ms)
    };
    for (until_ms, is_named) in [(1_100, false), (1_390, false), (1_500, true)] {
        let (events, at_ms) = followed(until_ms);
        let found = waits(events, &at_ms, json!([]));
        let expected: &[&str] = if is_named { &["C13"] } else { &[] };
        assert_eq!(violated(&found), expected, "{until_ms}: {}", found.summary);
    }
}

#[test]
fn whoever_asks_in_the_name_of_another_cluster_has_to_be_refused() {
    let asked_of = |more: Value| {
        let mut events = of_follower();
        let last = json!({"offset": 99, "last_epoch": 9});
        events.push(asked("stranger", "vote", 70, 9, last));
        events.push(answered("stranger", "vote", 70, 9, more));
        check(&trace(&events))
    };
    let refused = asked_of(json!({"error": "INCONSISTENT_CLUSTER_ID", "granted": false}));
    assert_eq!(refused.valid, Validity::Valid, "{}", refused.summary);
    assert_eq!(refused.properties["C14"].checked, 1);
    for served in [
        json!({"granted": true}),
        json!({"granted": false}),
        json!({"granted": false, "error": "FENCED_LEADER_EPOCH"}),
    ] {
        let found = asked_of(served.clone());
        assert_eq!(violated(&found), ["C14"], "{served}: {}", found.summary);
        assert!(
            found.summary.contains("another cluster"),
            "{}",
            found.summary
        );
    }
}
