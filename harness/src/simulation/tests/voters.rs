//! Owns the checks of whole simulated runs in which voters change and snapshots are forced.
//! Never waits for wall-clock time.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use results::manifest::{ClusterOptions, RunOptions, Voters};
use results::schedule::{FaultOutcome, Schedule};
use results::verdict::Validity;
use serde_json::{Value, json};

use super::options;
use crate::simulation::{SessionPlan, Simulated, simulate};

fn run(options: RunOptions, faults: Value) -> Simulated {
    let schedule = json!({ "format_version": 1, "faults": faults });
    let mut schedule: Schedule = serde_json::from_value(schedule).unwrap();
    nemesis::schedule::prepare(&mut schedule, &options.all_nodes(), &options.first_voters())
        .unwrap();
    let plan = SessionPlan {
        seed: 7,
        options,
        schedule,
    };
    simulate(&plan, &Arc::new(AtomicBool::new(false))).unwrap()
}

/// Voters in the log, and two nodes that can be added.
fn log_voters(nodes: u32, observers: u32) -> RunOptions {
    RunOptions {
        nemesis: vec!["schedule".into()],
        concurrency: 5,
        rate_per_second: 60,
        time_ms: 14_500,
        operation_timeout_ms: 500,
        recovery_timeout_ms: 20_000,
        cluster: ClusterOptions {
            voters: Voters::Log,
            observers,
            spares: 2,
            snapshot_bytes: Some(4 << 10),
            retention_bytes: Some(4 << 10),
            ..ClusterOptions::default()
        },
        ..options(nodes)
    }
}

fn change(at_ms: u64, change: &str, target: &str) -> Value {
    let fault = json!({ "kind": "membership", "what": change, "target": target });
    json!({ "trigger": { "at_ms": at_ms }, "duration_ms": 1_500, "fault": fault })
}

fn leader_removed(at_ms: u64) -> Value {
    let fault = json!({ "kind": "membership", "what": "remove-leader" });
    json!({ "trigger": { "at_ms": at_ms }, "duration_ms": 1_500, "fault": fault })
}

fn checked(simulated: &Simulated, property: &str) -> u64 {
    let checker = &simulated.verdict.checkers["epoch-history"];
    checker.properties[property].checked
}

#[test]
fn every_change_of_the_voters_takes_hold_and_is_taken_back() {
    let faults = json!([
        change(3_500, "add", "one"),
        change(6_000, "remove", "one"),
        change(8_500, "replace", "one"),
        leader_removed(11_000),
        change(14_000, "promote", "one"),
    ]);
    let simulated = run(log_voters(3, 1), faults);
    assert_eq!(
        simulated.verdict.valid,
        Validity::Valid,
        "{}",
        simulated.verdict.summary
    );
    for fault in &simulated.recording.schedule.faults {
        let told = serde_json::to_string(fault).unwrap();
        assert_eq!(fault.outcome, Some(FaultOutcome::Installed), "{told}");
        assert!(fault.had_effect(), "{told}");
        assert!(fault.healed_at_ms.is_some(), "{told}");
        let healed = &fault.effect["voters_after_heal"];
        assert_eq!(healed.as_array().map(Vec::len), Some(3), "{told}");
    }
    assert!(checked(&simulated, "K1") >= 10, "changes and their heals");
}

#[test]
fn snapshots_come_when_they_are_forced_and_followers_begin_with_them() {
    let at = |at_ms: u64, fault: Value| json!({ "trigger": { "at_ms": at_ms }, "duration_ms": 1_500, "fault": fault });
    let faults = json!([
        at(4_000, json!({ "kind": "kill", "targets": ["n2"] })),
        at(
            5_000,
            json!({ "kind": "snapshot", "targets": ["n1", "n3"] })
        ),
        at(9_000, json!({ "kind": "snapshot", "targets": "all" })),
    ]);
    let simulated = run(log_voters(3, 0), faults);
    assert_eq!(
        simulated.verdict.valid,
        Validity::Valid,
        "{}",
        simulated.verdict.summary
    );
    let faults = &simulated.recording.schedule.faults;
    assert_eq!(faults[1].effect["taken_count"], 2, "{:?}", faults[1]);
    assert_eq!(faults[2].effect["taken_count"], 3, "{:?}", faults[2]);
    assert!(checked(&simulated, "S1") > 0 && checked(&simulated, "S2") > 0);
}

#[test]
fn observers_have_what_is_committed_and_never_vote() {
    let simulated = run(log_voters(3, 2), json!([]));
    let trace = &simulated.recording.trace;
    for observer in ["n4", "n5"] {
        let mut its = trace.iter().filter(|event| event.node == observer);
        let text = |event| serde_json::to_value(event).unwrap();
        assert!(its.clone().any(|event| text(event)["event"] == "append"));
        assert!(!its.any(|event| text(event)["event"] == "vote-persisted"));
    }
    assert!(
        trace.iter().all(|event| event.node != "n6"),
        "n6 is a spare"
    );
}

#[test]
fn a_node_that_lost_its_disk_comes_back_as_another_replica_and_votes_again() {
    let wipe = json!({ "kind": "wipe", "targets": ["n2"] });
    let faults = json!([
        { "trigger": { "at_ms": 5_000 }, "duration_ms": 1_000, "fault": wipe },
        { "trigger": { "at_ms": 5_100 }, "duration_ms": 500,
          "fault": { "kind": "wipe", "targets": ["n3"] } },
    ]);
    let simulated = run(
        RunOptions {
            liveness_phase: true,
            ..log_voters(3, 0)
        },
        faults,
    );
    let told = serde_json::to_string(&simulated.recording.schedule).unwrap();
    let faults = &simulated.recording.schedule.faults;
    let effect = |name: &str| faults[0].effect[name].clone();
    assert_eq!(faults[0].outcome, Some(FaultOutcome::Installed), "{told}");
    assert_ne!(effect("n2_old_directory_id"), effect("n2_new_directory_id"));
    assert_eq!(effect("voters_after_heal"), json!(["n1", "n2", "n3"]));
    let answers = effect("answers_while_healing").to_string();
    assert!(answers.contains("remove n2: done"), "{answers}");
    assert!(answers.contains("add n2: done"), "{answers}");
    assert_eq!(faults[1].outcome, Some(FaultOutcome::Skipped), "{told}");
    let reason = faults[1].reason.as_deref().unwrap_or_default();
    // It waited for a second, and changes were still under way then.
    assert!(reason.contains("it would destroy data"), "{reason}");
    let liveness = &simulated.verdict.checkers["liveness"];
    assert_eq!(liveness.properties["core-recovery"].checked, 1, "{told}");
    let node_logs = &simulated.verdict.checkers["node-logs"];
    for checker in ["linearizable", "epoch-history", "liveness", "node-logs"] {
        let found = &simulated.verdict.checkers[checker];
        assert_eq!(found.valid, Validity::Valid, "{checker}: {}", found.summary);
    }
    assert!(!node_logs.summary.contains("refused to start with"));
}

#[test]
fn a_damaged_node_comes_back_with_a_new_disk_and_counts_as_whole_then() {
    let damage = |at_ms: u64, node: &str| {
        let fault = json!({ "kind": "disk", "what": "bit-flip", "targets": [node] });
        json!({ "trigger": { "at_ms": at_ms }, "duration_ms": 500, "fault": fault })
    };
    let wipe = json!({ "kind": "wipe", "targets": "one" });
    let faults = json!([
        damage(4_000, "n2"),
        // Due while the budget is spent, and possible as soon as n2 is back.
        damage(6_500, "n3"),
        { "trigger": { "at_ms": 6_000 }, "duration_ms": 800, "fault": wipe },
    ]);
    let simulated = run(
        RunOptions {
            liveness_phase: true,
            ..log_voters(3, 0)
        },
        faults,
    );
    let told = serde_json::to_string(&simulated.recording.schedule).unwrap();
    let summary = &simulated.verdict.summary;
    assert_eq!(simulated.verdict.valid, Validity::Valid, "{summary} {told}");
    let faults = &simulated.recording.schedule.faults;
    let by_kind = |kind: &str| {
        faults
            .iter()
            .filter(|it| it.fault.kind == kind)
            .collect::<Vec<_>>()
    };
    let wiped = by_kind("wipe")[0];
    assert!(
        wiped.effect.contains_key("n2_new_directory_id"),
        "only n2 could be hit: {told}"
    );
    assert_eq!(wiped.effect["voters_after_heal"], json!(["n1", "n2", "n3"]));
    let later = by_kind("disk")[1];
    assert_eq!(later.outcome, Some(FaultOutcome::Installed), "{told}");
    let waited_ms = later.resolved.as_ref().unwrap().at_ms - later.trigger.at_ms;
    assert!((250..=1_500).contains(&waited_ms), "{waited_ms} {told}");
}

#[test]
fn a_majority_recovers_alone_after_its_voters_changed_and_one_was_damaged() {
    let damage = json!({ "kind": "disk", "what": "bit-flip", "targets": ["n4"] });
    let faults = json!([
        change(3_500, "add", "one"),
        { "trigger": { "at_ms": 6_000 }, "duration_ms": 500, "fault": damage },
        change(8_500, "replace", "one"),
    ]);
    let simulated = run(
        RunOptions {
            liveness_phase: true,
            ..log_voters(5, 0)
        },
        faults,
    );
    let told = serde_json::to_string(&simulated.recording.schedule).unwrap();
    assert_eq!(simulated.verdict.valid, Validity::Valid, "{told}");
    let liveness = &simulated.verdict.checkers["liveness"];
    assert_eq!(liveness.properties["core-recovery"].checked, 1, "{told}");
    let history = simulated.recording.history.iter();
    let chosen = history.filter(|line| line.f == checkers::liveness::CORE_CHOSEN);
    let chosen: Vec<String> = chosen.map(|line| line.value["core"].to_string()).collect();
    assert_eq!(chosen.len(), 1);
    assert!(!chosen[0].contains("n4"), "{chosen:?}");
}
