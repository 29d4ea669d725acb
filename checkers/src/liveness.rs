//! Owns the question whether the cluster served again, in bounded time, once all faults were gone.
//! Never judges what it served.

mod availability;
mod core_phase;

pub(crate) use core_phase::Kept;

use std::collections::BTreeMap;

use results::history::{Operation, OperationType, Process};
use results::manifest::Manifest;
use results::schedule::Schedule;
use results::standstill::Strain;
use results::trace::TraceEvent;
use results::verdict::{CheckerResult, PropertyResult, Validity};
use serde_json::{Value, json};

use crate::disk_faults::{left_down, voters_left, waived_recovery};
use crate::standing::Standings;
use crate::{conclusion, counted, seconds};

const SOURCE: &str = "bounded recovery after healing, as in KAFKA-12851: a majority that can talk \
                      elects a leader and commits";
const TITLE: &str = "after the last fault is healed an operation succeeds within the bound";

/// Names of the history lines by which the harness records its liveness phase. First: the nodes `rest` are
/// cut off from everybody, and those of `core` are about to be healed.
pub const CORE_CHOSEN: &str = "core-chosen";
/// The core is in order, and has `bound_ms` to serve.
pub const CORE_HEALED: &str = "core-healed";
/// It served: from `since_ns` on, in one epoch, for longer than any follower needs to catch up.
pub const CORE_SETTLED: &str = "core-settled";
/// It did not, and its time is over.
pub const CORE_GIVEN_UP: &str = "core-given-up";
/// The phase is over; the rest is about to be healed.
pub const CORE_LEFT: &str = "core-left";
/// The phase was left out, for the `reason` given.
pub const CORE_SKIPPED: &str = "core-skipped";
/// The register that is written and read in the phase, and by nobody else.
pub const CORE_KEY: &str = "core";

/// What clients experienced from some moment on.
#[derive(Debug, Default)]
struct Attempts {
    tried: u64,
    first_success: Option<u64>,
    last_activity: u64,
}

impl Attempts {
    /// Operations invoked at or after `origin`.
    ///
    /// Tolerates histories that the other checkers call malformed.
    fn since(origin: u64, history: &[Operation]) -> Self {
        let mut attempts = Self::default();
        let mut invoked: BTreeMap<u64, u64> = BTreeMap::new();
        for operation in history {
            let Process::Client(process) = operation.process else {
                continue;
            };
            if operation.operation_type == OperationType::Invoke {
                invoked.insert(process, operation.time);
                if operation.time >= origin {
                    attempts.tried += 1;
                    attempts.last_activity = attempts.last_activity.max(operation.time);
                }
            } else if invoked.remove(&process).is_some_and(|time| time >= origin) {
                attempts.last_activity = attempts.last_activity.max(operation.time);
                if operation.operation_type == OperationType::Ok {
                    let earliest = attempts.first_success.unwrap_or(u64::MAX);
                    attempts.first_success = Some(earliest.min(operation.time));
                }
            }
        }
        attempts
    }
}

/// Invalid where operations were tried for the whole bound after healing, and none succeeded, or where a
/// majority that was to recover alone did not, or not as it should.
pub fn check(
    manifest: &Manifest,
    schedule: &Schedule,
    history: &[Operation],
    trace: &[TraceEvent],
    standings: &Standings,
) -> CheckerResult {
    let mut result = check_recovery(manifest, schedule, history);
    let mut found = core_phase::check(manifest, history, trace);
    if let Some(why) = waived_recovery(schedule) {
        for (name, property) in &mut found {
            if OWED_BY_THE_CORE.contains(&name.as_str()) {
                waive(property, &why);
            }
        }
    }
    if let Some(told) = found.get("core-recovery").map(|found| &found.summary)
        && result.valid == Validity::Valid
    {
        result.summary = format!("{}; {told}", result.summary);
    }
    let worst = Validity::worst(found.values().map(|property| property.valid));
    if worst > result.valid {
        result.valid = worst;
        let decisive = found.values().find(|property| property.valid == worst);
        if let Some(property) = decisive {
            result.summary.clone_from(&property.summary);
            result.evidence.clone_from(&property.evidence);
        }
    }
    result.properties.extend(found);
    if let Some(strain) = history.iter().find_map(Strain::of) {
        excuse(&mut result, &strain);
    }
    let measured = availability::check(manifest, schedule, history, standings);
    result.properties.extend(measured);
    result
}

/// Takes back what is held against nodes that the machine hardly let run: they may not have had the time.
fn excuse(result: &mut CheckerResult, strain: &Strain) {
    let properties = result.properties.values_mut();
    let told = properties.map(|property| (&mut property.valid, &mut property.summary));
    for (valid, summary) in told.chain([(&mut result.valid, &mut result.summary)]) {
        if *valid == Validity::Invalid {
            *valid = Validity::Unknown;
            *summary =
                format!("nothing is concluded, as the machine was too busy ({strain}): {summary}");
        }
    }
}

/// What a majority that recovers owes. That nodes do not lead or stand for election while they are cut off, they owe
/// whatever they lost.
const OWED_BY_THE_CORE: [&str; 4] = [
    "core-recovery",
    "core-agreement",
    "replication-lag",
    "commit-lag",
];

/// Takes back a demand that nobody may make any more.
fn waive(property: &mut PropertyResult, why: &str) {
    if property.valid != Validity::Valid {
        property.valid = Validity::Valid;
        property.checked = 0;
        property.summary = format!("not demanded, since {why}: {}", property.summary);
    }
}

fn check_recovery(
    manifest: &Manifest,
    schedule: &Schedule,
    history: &[Operation],
) -> CheckerResult {
    let faults_were_asked_for = !schedule.faults.is_empty() || !manifest.options.nemesis.is_empty();
    let origin = if faults_were_asked_for {
        let Some(healed) = manifest.phases.healed else {
            return finish(
                Validity::Unknown,
                0,
                "the run ended before all faults were healed".into(),
                Value::Null,
            );
        };
        healed
    } else {
        manifest.phases.workload_start.unwrap_or(0)
    };
    let result = judge(manifest, faults_were_asked_for, origin, history);
    if result.valid == Validity::Valid {
        return result;
    }
    if let Some(why) = waived_recovery(schedule) {
        let mut evidence = result.evidence;
        evidence["waived"] = json!(why);
        let summary = format!("no recovery is owed: {why}; {}", result.summary);
        return finish(Validity::Valid, 0, summary, evidence);
    }
    let left_down = left_down(history);
    let voters = voters_left(history);
    let voter_count = match &voters {
        Some(voters) => voters.len(),
        None => manifest.options.nodes as usize,
    };
    // Nobody counts on a node that does not vote.
    let counts = |node: &&str| {
        let voters = voters.as_ref();
        voters.is_none_or(|voters| voters.iter().any(|voter| voter == node))
    };
    let nodes: Vec<&str> = left_down.keys().map(String::as_str).collect();
    let nodes: Vec<&str> = nodes.into_iter().filter(counts).collect();
    if voter_count.saturating_sub(nodes.len()) > voter_count / 2 {
        return result;
    }
    let mut evidence = result.evidence;
    evidence["left_down"] = json!(left_down);
    let summary = format!(
        "no recovery is owed: {} of {voter_count} voters refuse to start with data that faults destroyed ({})",
        nodes.len(),
        nodes.join(", ")
    );
    finish(Validity::Valid, 0, summary, evidence)
}

fn judge(
    manifest: &Manifest,
    faults_were_asked_for: bool,
    origin: u64,
    history: &[Operation],
) -> CheckerResult {
    let moment = if faults_were_asked_for {
        "after healing"
    } else {
        "after the start of the workload (no faults were asked for)"
    };
    let bound_ms = manifest.options.recovery_timeout_ms;
    let bound_end = origin.saturating_add(bound_ms.saturating_mul(1_000_000));
    let attempts = Attempts::since(origin, history);
    // Whoever tries until the bound is over does not begin an operation in its last moments.
    let slack_ms = manifest.options.operation_timeout_ms.min(bound_ms / 2);
    let tried_throughout = attempts.last_activity.saturating_add(slack_ms * 1_000_000) >= bound_end;
    let evidence = json!({
        "origin_ns": origin,
        "bound_ms": bound_ms,
        "tried": attempts.tried,
        "first_success_ns": attempts.first_success,
        "last_activity_ns": attempts.last_activity,
    });
    let tried = counted(attempts.tried, "operation");
    let (valid, checked, summary) = match attempts.first_success {
        Some(time) if !faults_were_asked_for || time <= bound_end => (
            Validity::Valid,
            attempts.tried,
            format!("an operation succeeded {} {moment}", seconds(time - origin)),
        ),
        _ if attempts.tried == 0 => (
            Validity::Unknown,
            0,
            format!("no operation was tried {moment}"),
        ),
        late if tried_throughout => (
            Validity::Invalid,
            attempts.tried,
            format!(
                "no operation succeeded within {bound_ms} ms {moment}: {tried} tried, {}",
                late.map_or("none succeeded".into(), |time| format!(
                    "the first success came after {}",
                    seconds(time - origin)
                ))
            ),
        ),
        _ if manifest.phases.interrupted => (
            Validity::Unknown,
            0,
            format!("the run was interrupted before the cluster had {bound_ms} ms to recover"),
        ),
        _ => (
            Validity::Unknown,
            0,
            format!(
                "{tried} tried {moment}, but not for the whole bound of {bound_ms} ms; \
                 none succeeded"
            ),
        ),
    };
    finish(valid, checked, summary, evidence)
}

fn finish(valid: Validity, checked: u64, summary: String, evidence: Value) -> CheckerResult {
    let mut result = conclusion(valid, SOURCE, summary.clone());
    let recovery = property(valid, TITLE, SOURCE, checked, summary, evidence.clone());
    result.properties.insert("recovery".into(), recovery);
    result.evidence = evidence;
    result
}

fn property(
    valid: Validity,
    title: &str,
    source: &str,
    checked: u64,
    summary: String,
    evidence: Value,
) -> PropertyResult {
    PropertyResult {
        valid,
        title: title.into(),
        source: source.into(),
        checked,
        summary,
        evidence,
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::made_up;

    const MS: u64 = 1_000_000;

    fn manifest(nemesis: &[&str], healed_ms: Option<u64>, interrupted: bool) -> Manifest {
        made_up::manifest(json!({
            "world": "processes",
            "options": {"nemesis": nemesis},
            "phases": {
                "workload_start": 0, "healed": healed_ms.map(|ms| ms * MS),
                "interrupted": interrupted
            },
        }))
    }

    /// Operations as (invoked, completed, outcome), each by its own process.
    fn history(operations: &[(u64, u64, &str)]) -> Vec<Operation> {
        let mut lines: Vec<Operation> = Vec::new();
        for (process, (invoked, completed, outcome)) in operations.iter().enumerate() {
            for (time, operation_type) in [(invoked, "invoke"), (completed, outcome)] {
                let index = lines.len();
                lines.push(
                    serde_json::from_value(json!({
                        "index": index, "time": time * MS, "process": process,
                        "type": operation_type, "f": "read", "key": "1",
                    }))
                    .unwrap(),
                );
            }
        }
        lines
    }

    fn verdict_on(manifest: &Manifest, history: &[Operation]) -> CheckerResult {
        verdict_after(manifest, json!([]), history)
    }

    fn verdict_after(manifest: &Manifest, faults: Value, history: &[Operation]) -> CheckerResult {
        let schedule = json!({"format_version": 1, "faults": faults});
        let schedule: Schedule = serde_json::from_value(schedule).unwrap();
        check(manifest, &schedule, history, &[], &Standings::default())
    }

    #[test]
    fn a_machine_that_hardly_lets_nodes_run_holds_nothing_against_them() {
        let manifest = manifest(&["kill"], Some(5000), false);
        let failing: Vec<_> = (5..30)
            .map(|s| (s * 1000, s * 1000 + 900, "fail"))
            .collect();
        let mut lines = history(&failing);
        let judged = |lines: &[Operation]| {
            let result = verdict_on(&manifest, lines);
            let recovery = result.properties["recovery"].valid;
            (result.valid, recovery, result.summary)
        };
        let (valid, recovery, summary) = judged(&lines);
        assert_eq!(
            (valid, recovery),
            (Validity::Invalid, Validity::Invalid),
            "{summary}"
        );
        let strain = json!({
            "index": lines.len(), "time": 30_000 * MS, "process": "nemesis", "type": "info",
            "f": "processor-wait", "value": {"node": "n2", "waited_ms": 18_000, "of_ms": 25_000},
        });
        lines.push(serde_json::from_value(strain).unwrap());
        let (valid, recovery, summary) = judged(&lines);
        assert_eq!(
            (valid, recovery),
            (Validity::Unknown, Validity::Unknown),
            "{summary}"
        );
        assert!(
            summary.contains("n2 waited for a processor for 18000 ms in 25000 ms"),
            "{summary}"
        );
    }

    #[test]
    fn no_recovery_is_owed_after_a_fault_beyond_the_budget_that_destroyed_data_or_may_have() {
        let manifest = manifest(&["wipe"], Some(5000), false);
        let mut lines = history(
            &(5..15)
                .map(|s| (s * 1000, s * 1000 + 900, "fail"))
                .collect::<Vec<_>>(),
        );
        let phase = [
            (
                "core-chosen",
                5000,
                json!({"core": ["n1", "n2"], "rest": ["n3"], "rest_is": "dead"}),
            ),
            (
                "core-healed",
                5100,
                json!({"bound_ms": 3000, "window_ms": 100, "slack_ms": 0}),
            ),
            (
                "core-given-up",
                8200,
                json!({"since_ns": 0, "tried_count": 9, "success_count": 0}),
            ),
        ];
        for (f, ms, value) in phase {
            let line = json!({
                "index": lines.len(), "time": ms * MS, "process": "nemesis", "type": "info", "f": f, "value": value
            });
            lines.push(serde_json::from_value(line).unwrap());
        }
        let judged = |kind: &str, beyond: bool, outcome: Value, effect: Value| {
            let fault = json!({
                "id": 7, "trigger": {"at_ms": 3500}, "duration_ms": 1, "outcome": outcome, "effect": effect,
                "fault": {"kind": kind, "what": "bit-flip", "beyond_budget": beyond},
                "resolved": {"at_ms": 3500, "nodes": ["n1", "n2"]},
            });
            verdict_after(&manifest, json!([fault]), &lines)
        };
        let wiped = json!({"wiped_count": 1, "n2_new_directory_id": "AAAA"});
        let damaged = json!({"n1_damaged_bytes": 3});
        for (kind, outcome, effect, told) in [
            (
                "wipe",
                json!("installed"),
                &wiped,
                "destroyed data of n2 from 3.500 s on",
            ),
            (
                "disk",
                json!("installed"),
                &damaged,
                "destroyed data of n1 from",
            ),
            (
                "wipe",
                json!("indeterminate"),
                &json!({}),
                "may have destroyed data of n1, n2",
            ),
            (
                "disk",
                Value::Null,
                &json!({}),
                "may have destroyed data of n1, n2",
            ),
        ] {
            let result = judged(kind, true, outcome.clone(), effect.clone());
            assert_eq!(result.valid, Validity::Valid, "{kind}: {}", result.summary);
            assert!(result.summary.contains(told), "{}", result.summary);
            for name in ["recovery", "core-recovery"] {
                let property = &result.properties[name];
                assert_eq!(property.valid, Validity::Valid, "{kind}, {name}");
                assert!(property.summary.contains("fault 7"), "{}", property.summary);
                assert_eq!(property.checked, 0, "{kind}, {name}");
            }
            let within = judged(kind, false, outcome, effect.clone());
            assert_eq!(
                within.valid,
                Validity::Invalid,
                "{kind}: {}",
                within.summary
            );
            assert_eq!(within.properties["core-recovery"].valid, Validity::Invalid);
        }
        for (kind, outcome) in [
            ("wipe", "installed"),
            ("wipe", "skipped"),
            ("kill", "indeterminate"),
        ] {
            let nothing = judged(kind, true, json!(outcome), json!({}));
            assert_eq!(nothing.valid, Validity::Invalid, "{kind}, {outcome}");
        }
    }

    #[test]
    fn a_success_after_healing_within_the_bound_is_recovery() {
        let manifest = manifest(&["kill"], Some(5000), false);
        let result = verdict_on(
            &manifest,
            &history(&[(6000, 6100, "info"), (7000, 7400, "ok")]),
        );
        assert_eq!(result.valid, Validity::Valid);
        assert!(result.summary.contains("2.400 s"), "{}", result.summary);
    }

    #[test]
    fn no_success_during_the_whole_bound_is_a_violation() {
        let manifest = manifest(&["kill"], Some(5000), false);
        let failing: Vec<_> = (5..15)
            .map(|s| (s * 1000, s * 1000 + 900, "fail"))
            .collect();
        let result = verdict_on(&manifest, &history(&failing));
        assert_eq!(result.valid, Validity::Invalid);
        assert_eq!(result.properties["recovery"].valid, Validity::Invalid);
        let mut late = failing;
        late.push((14_950, 15_000, "ok"));
        let result = verdict_on(&manifest, &history(&late));
        assert_eq!(result.valid, Validity::Invalid);
        assert!(result.summary.contains("10.000 s"), "{}", result.summary);
    }

    #[test]
    fn no_recovery_is_owed_where_a_majority_lost_its_data() {
        let manifest = manifest(&["disk-corrupt"], Some(5000), false);
        let with_damaged = |damaged: Value| {
            let failing: Vec<_> = (5..15)
                .map(|s| (s * 1000, s * 1000 + 900, "fail"))
                .collect();
            let mut lines = history(&failing);
            lines.push(
                serde_json::from_value(json!({
                    "index": 99, "time": 1, "process": "nemesis", "type": "info", "f": "restored",
                    "value": {"problems": [], "damaged": damaged}
                }))
                .unwrap(),
            );
            lines
        };
        let most = with_damaged(json!({"n1": "damaged", "n3": "damaged"}));
        let result = verdict_on(&manifest, &most);
        assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
        assert!(
            result.summary.contains("2 of 3 voters"),
            "{}",
            result.summary
        );
        assert_eq!(result.properties["recovery"].checked, 0);
        let voting = |voters: &[&str]| {
            let mut lines = most.clone();
            if let Some(restored) = lines.last_mut() {
                restored.value["voters"] = json!(voters);
            }
            verdict_on(&manifest, &lines).valid
        };
        assert_eq!(voting(&["n1", "n2", "n3", "n4"]), Validity::Valid);
        assert_eq!(
            voting(&["n1", "n2", "n4"]),
            Validity::Invalid,
            "n3 has left"
        );
        let few = with_damaged(json!({"n1": "damaged"}));
        assert_eq!(verdict_on(&manifest, &few).valid, Validity::Invalid);
    }

    #[test]
    fn a_success_of_an_operation_from_before_healing_proves_nothing() {
        let manifest = manifest(&["kill"], Some(5000), false);
        let result = verdict_on(&manifest, &history(&[(4900, 5100, "ok")]));
        assert_eq!(result.valid, Validity::Unknown);
        assert!(result.summary.contains("no operation was tried"));
    }

    #[test]
    fn too_short_attempts_conclude_nothing() {
        let short = history(&[(6000, 6100, "info")]);
        let stopped = verdict_on(&manifest(&["kill"], Some(5000), true), &short);
        assert_eq!(stopped.valid, Validity::Unknown);
        assert!(stopped.summary.contains("interrupted"));
        let gave_up = verdict_on(&manifest(&["kill"], Some(5000), false), &short);
        assert_eq!(gave_up.valid, Validity::Unknown);
        let never_healed = verdict_on(&manifest(&["kill"], None, false), &short);
        assert!(
            never_healed
                .summary
                .contains("before all faults were healed")
        );
        assert_eq!(never_healed.valid, Validity::Unknown);
    }

    #[test]
    fn without_faults_any_success_will_do() {
        let manifest = manifest(&[], None, false);
        let result = verdict_on(&manifest, &history(&[(20_000, 20_100, "ok")]));
        assert_eq!(result.valid, Validity::Valid);
        let never: Vec<_> = (0..10)
            .map(|s| (s * 1000, s * 1000 + 900, "fail"))
            .collect();
        assert_eq!(
            verdict_on(&manifest, &history(&never)).valid,
            Validity::Invalid
        );
        assert_eq!(verdict_on(&manifest, &[]).valid, Validity::Unknown);
    }
}
