//! Owns completing the schedule of a run whose harness was killed, from what the history tells of its faults.
//! Never changes what the schedule knows already, which may be more than the history tells.

use std::collections::BTreeSet;

use checkers::node_logs::RESTORED;
use results::history::{Operation, Process};
use results::schedule::{FaultOutcome, ResolvedFault, Schedule, ScheduledFault};
use serde::Deserialize;
use serde_json::{Map, Value};

use super::{NS_PER_MS, healing};
use crate::world::HealReport;

/// Why nobody knows what became of a fault, for people.
const UNTOLD: &str = "the harness was killed before it could tell what the fault did";

/// What a line says of a fault: with no `outcome` or `effect`, that it is to be started or taken back.
#[derive(Deserialize)]
struct Told {
    id: u64,
    outcome: Option<FaultOutcome>,
    reason: Option<String>,
    resolved: Option<ResolvedFault>,
    effect: Option<Map<String, Value>>,
    problem: Option<String>,
}

/// Completes a schedule that was stored some time before the last line of the history was. A fault that was to be
/// started, and of which nothing more is told, may have been there.
pub fn complete(schedule: &mut Schedule, history: &[Operation]) {
    let mut asked_for = BTreeSet::new();
    for line in history {
        if line.process != Process::Nemesis {
            continue;
        }
        let now_ms = line.time / NS_PER_MS;
        if line.f == RESTORED {
            let problems = line.value["problems"].as_array();
            if problems.is_some_and(Vec::is_empty) {
                let faults = schedule.faults.iter_mut();
                faults.for_each(|fault| healing::note_order(fault, now_ms));
            }
            continue;
        }
        let Ok(told) = Told::deserialize(&line.value) else {
            continue;
        };
        let mut faults = schedule.faults.iter_mut();
        let Some(fault) = faults.find(|fault| fault.id == told.id) else {
            continue;
        };
        if line.f.starts_with("start-") {
            asked_for.insert(told.id);
            note_start(fault, told);
        } else if line.f.starts_with("stop-") {
            note_heal(fault, told, now_ms);
        }
    }
    for fault in &mut schedule.faults {
        // One that never started says why once that is known.
        let is_untold = fault.outcome.is_none() && fault.reason.is_none();
        if is_untold && asked_for.contains(&fault.id) {
            fault.outcome = Some(FaultOutcome::Indeterminate);
            fault.reason = Some(UNTOLD.into());
        }
    }
}

fn note_start(fault: &mut ScheduledFault, told: Told) {
    if fault.outcome.is_some() || told.outcome.is_none() {
        return;
    }
    fault.outcome = told.outcome;
    fault.reason = told.reason;
    fault.resolved = told.resolved;
    fault.effect = told.effect.unwrap_or_default();
}

fn note_heal(fault: &mut ScheduledFault, told: Told, now_ms: u64) {
    if fault.healed_at_ms.is_some() {
        return;
    }
    if let Some(effect) = told.effect {
        let problem = told.problem;
        healing::note(fault, HealReport { problem, effect }, now_ms);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn schedule(faults: Value) -> Schedule {
        serde_json::from_value(json!({"format_version": 1, "faults": faults})).unwrap()
    }

    fn asked(id: u64, what: &str) -> Value {
        json!({"id": id, "trigger": {"at_ms": 90}, "duration_ms": 40,
            "fault": {"kind": "disk", "what": what, "targets": "one"}})
    }

    fn line(time_ms: u64, f: &str, value: Value) -> Operation {
        serde_json::from_value(
            json!({"index": 0, "time": time_ms * NS_PER_MS, "process": "nemesis",
            "type": "info", "f": f, "value": value}),
        )
        .unwrap()
    }

    fn intent(id: u64) -> Operation {
        line(
            100,
            "start-disk",
            json!({"id": id, "fault": {"kind": "disk"}}),
        )
    }

    fn started(id: u64, outcome: &str) -> Operation {
        let value = json!({"id": id, "outcome": outcome, "reason": null,
            "resolved": {"at_ms": 101, "nodes": ["n2"], "files": "log"}, "effect": {"n2_damaged_bytes": 3}});
        line(104, "start-disk", value)
    }

    fn stopped(id: u64, problem: Option<&str>) -> Operation {
        let value = json!({"id": id, "problem": problem, "effect": {"down_ms": 44}});
        line(150, "stop-disk", value)
    }

    #[test]
    fn what_the_history_tells_of_a_fault_gets_into_the_schedule() {
        let mut schedule = schedule(json!([asked(7, "torn-write"), asked(8, "torn-write")]));
        let history = [intent(7), started(7, "installed")];
        complete(&mut schedule, &history);
        let fault = &schedule.faults[0];
        assert_eq!(fault.outcome, Some(FaultOutcome::Installed));
        let resolved = fault.resolved.as_ref().unwrap();
        assert_eq!(resolved.at_ms, 101);
        assert_eq!(resolved.nodes().collect::<Vec<_>>(), ["n2"]);
        assert_eq!(resolved.targets["files"], "log");
        assert_eq!(fault.damaged_nodes().collect::<Vec<_>>(), ["n2"]);
        assert_eq!((fault.healed_at_ms, &fault.reason), (None, &None));
        // The moment of the other one never came.
        assert_eq!(
            (schedule.faults[1].outcome, &schedule.faults[1].reason),
            (None, &None)
        );
        let to_be_healed = line(140, "stop-disk", json!({"id": 7}));
        complete(&mut schedule, &[to_be_healed]);
        assert_eq!(schedule.faults[0].healed_at_ms, None);
        complete(&mut schedule, &[stopped(7, None)]);
        assert_eq!(schedule.faults[0].healed_at_ms, Some(150));
        assert_eq!(schedule.faults[0].effect["down_ms"], 44);
    }

    #[test]
    fn a_fault_of_which_only_the_intent_is_told_may_have_been_there() {
        let mut with_target = asked(8, "torn-write");
        with_target["resolved"] = json!({"at_ms": 101, "nodes": ["n3"]});
        let mut never = asked(9, "torn-write");
        never["reason"] = json!("it was due only after the workload was over");
        let mut schedule = schedule(json!([asked(7, "torn-write"), with_target, never]));
        complete(&mut schedule, &[intent(7), intent(8), intent(9)]);
        for fault in &schedule.faults[..2] {
            assert_eq!(fault.outcome, Some(FaultOutcome::Indeterminate));
            assert_eq!(fault.reason.as_deref(), Some(UNTOLD));
        }
        assert_eq!(schedule.faults[0].resolved, None);
        assert!(schedule.faults[1].resolved.is_some());
        assert_eq!(schedule.faults[2].outcome, None);
    }

    #[test]
    fn what_the_schedule_knows_already_stays() {
        let mut doubted = asked(7, "sync-error");
        doubted["outcome"] = json!("indeterminate");
        doubted["reason"] = json!("nothing was synced while it lasted");
        doubted["resolved"] = json!({"at_ms": 101, "nodes": ["n2"]});
        doubted["healed_at_ms"] = json!(149);
        let mut skipped = asked(8, "sync-error");
        skipped["outcome"] = json!("skipped");
        skipped["reason"] = json!("there is no leader");
        let before = schedule(json!([doubted, skipped]));
        let mut after = before.clone();
        let history = [
            intent(7),
            started(7, "installed"),
            stopped(7, None),
            intent(8),
        ];
        complete(&mut after, &history);
        assert_eq!(after, before);
    }

    #[test]
    fn a_fault_that_was_healed_late_is_healed_once_all_nodes_are_in_order() {
        let mut schedule = schedule(json!([asked(7, "torn-write")]));
        let restored = |problems: Value| line(200, RESTORED, json!({"problems": problems}));
        let history = [
            intent(7),
            started(7, "installed"),
            stopped(7, Some("n2 is gone")),
        ];
        complete(&mut schedule, &history);
        complete(&mut schedule, &[restored(json!(["n3 does not answer"]))]);
        assert_eq!(schedule.faults[0].healed_at_ms, None);
        complete(&mut schedule, &[restored(json!([]))]);
        assert_eq!(schedule.faults[0].healed_at_ms, Some(200));
    }

    #[test]
    fn lines_of_other_faults_and_of_clients_are_passed_over() {
        let before = schedule(json!([asked(7, "torn-write")]));
        let mut after = before.clone();
        let mut of_client = started(7, "installed");
        of_client.process = Process::Client(3);
        let crash = line(99, "node-crashed", json!({"node": "n1", "id": 7}));
        complete(
            &mut after,
            &[intent(70), started(70, "installed"), of_client, crash],
        );
        assert_eq!(after, before);
    }
}
