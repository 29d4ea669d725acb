//! Owns the question whether any node gave up by itself, or wrote into its log what must never stand there.
//! Never reads a file: refusals and ends were recorded as events, and logs are in the recording.

mod lines;

use std::collections::BTreeMap;

use results::history::{Operation, Process};
use results::schedule::Schedule;
use results::trace::{TraceDetail, TraceEvent};
use results::verdict::{CheckerResult, Validity};
use serde_json::{Value, json};

use crate::disk_faults::{damage, explanation, left_down};
use crate::fault_times::applied_ns;
use crate::{EVIDENCE_LIST_MAX_COUNT, conclusion, counted, seconds};

/// Name of the history line by which the harness records that a node ended although nobody asked.
pub const CRASH: &str = "node-crashed";

/// The signal that only another process can send: its number in `signal` of a [`CRASH`] line.
const SIGKILL: i32 = 9;

/// Name of the history line by which the harness records what was still wrong with nodes when all
/// faults were healed, in the list `problems`; and in `damaged`, by name, which nodes refuse to start with
/// data that a fault has destroyed.
pub const RESTORED: &str = "restored";

const REFUSED: &str = "refused to start";
/// Where a line of a log makes somebody invalid.
const LOGGED: &str = "logged what must never happen";

/// A node that gave up.
struct Failure {
    time: u64,
    node: String,
    what: &'static str,
    reason: String,
}

impl Failure {
    fn to_evidence(&self) -> Value {
        json!({
            "node": self.node,
            "time": self.time,
            "what": self.what,
            "reason": self.reason,
        })
    }
}

/// Invalid where a node of the system under test refused to start, or ended although neither a fault
/// nor the harness ended it, or where its log, by name in `logs`, has a line that must never be there: panics,
/// failed assertions, errors that no fault explains. Unknown where somebody else killed one (a person, or a system short of
/// memory), or where one did not answer any more when all faults were healed.
///
/// A node that stops because a fault lets its disk fail, or that refuses to start with data that a fault
/// has destroyed, does what it should: that is told, and counts as nothing else.
pub fn check(
    trace: &[TraceEvent],
    history: &[Operation],
    schedule: &Schedule,
    logs: &BTreeMap<String, String>,
) -> CheckerResult {
    let mut result = check_ends(trace, history, schedule);
    let offences = lines::offences(logs, schedule);
    let Some(first) = offences.first() else {
        if let (Validity::Valid, Some(node)) = (result.valid, without_log(trace, logs)) {
            result.valid = Validity::Unknown;
            result.summary = format!("the log of {node} is missing");
        }
        return result;
    };
    let told = format!(
        "{} {LOGGED}: {} (line {} of its log: {})",
        first.node, first.why, first.line, first.text
    );
    result.summary = match result.valid {
        Validity::Invalid => format!("{}; {told}", result.summary),
        _ => told,
    };
    result.valid = Validity::Invalid;
    if !result.evidence.is_object() {
        result.evidence = json!({});
    }
    let listed = offences.iter().take(EVIDENCE_LIST_MAX_COUNT);
    let listed: Vec<Value> = listed
        .map(|it| json!({"node": it.node, "line": it.line, "text": it.text, "why": it.why}))
        .collect();
    result.evidence["logged"] = listed.into();
    result.evidence["logged_count"] = offences.len().into();
    result
}

/// A node whose log was lost. A recording without any was made without them.
fn without_log<'a>(trace: &'a [TraceEvent], logs: &BTreeMap<String, String>) -> Option<&'a str> {
    let mut nodes = trace.iter().map(|event| &*event.node);
    nodes.find(|node| !logs.is_empty() && !logs.contains_key(*node))
}

fn check_ends(trace: &[TraceEvent], history: &[Operation], schedule: &Schedule) -> CheckerResult {
    let mut failures: Vec<Failure> = trace.iter().filter_map(refusal).collect();
    failures.extend(history.iter().filter_map(crash));
    let applied_ns = applied_ns(history);
    failures.extend(
        trace
            .iter()
            .filter_map(|event| heedless_start(event, schedule, &applied_ns)),
    );
    failures.sort_by_key(|failure| failure.time);
    let (explained, failures): (Vec<_>, Vec<_>) = failures
        .into_iter()
        .map(|failure| {
            let refused = failure.what == REFUSED;
            let Failure { node, reason, .. } = &failure;
            let fault = explanation(schedule, &applied_ns, node, failure.time, refused, reason);
            (fault.map(|fault| fault.id), failure)
        })
        .partition(|(fault, _)| fault.is_some());
    let failures: Vec<Failure> = failures.into_iter().map(|(_, failure)| failure).collect();
    let left_down = left_down(history);
    let mut result = judge(trace, history, &failures);
    if let Some((fault, first)) = explained.first() {
        result.summary.push_str(&format!(
            "; as they should, nodes whose disks faults had failed or damaged did not go on ({}; first {} {} \
             at {} for fault {})",
            counted(explained.len() as u64, "time"),
            first.node,
            first.what,
            seconds(first.time),
            fault.unwrap_or(0)
        ));
    }
    if !left_down.is_empty() {
        let nodes: Vec<&str> = left_down.keys().map(String::as_str).collect();
        let nodes = nodes.join(", ");
        result.summary.push_str(&format!(
            "; down to the end with data that a fault destroyed: {nodes}"
        ));
    }
    let told = explained.iter().take(EVIDENCE_LIST_MAX_COUNT);
    let told: Vec<Value> = told
        .map(|(fault, failure)| {
            let mut evidence = failure.to_evidence();
            evidence["fault"] = json!(fault);
            evidence
        })
        .collect();
    if !(told.is_empty() && left_down.is_empty()) {
        result.evidence["explained"] = told.into();
        result.evidence["explained_left_out"] = explained
            .len()
            .saturating_sub(EVIDENCE_LIST_MAX_COUNT)
            .into();
        result.evidence["left_down"] = left_down.into();
    }
    result
}

fn judge(trace: &[TraceEvent], history: &[Operation], failures: &[Failure]) -> CheckerResult {
    let killed = history.iter().find_map(killed_by_somebody);
    let source = "a node must come back from any crash with what its disk holds, and stay up";
    let Some(first) = failures.first() else {
        return if trace.is_empty() {
            conclusion(
                Validity::Unknown,
                source,
                "no node left a trace, so nobody knows whether all of them started",
            )
        } else if let Some(node) = killed {
            let summary = format!(
                "somebody outside of the run killed {node} with SIGKILL, which no node does to itself"
            );
            conclusion(Validity::Unknown, source, summary)
        } else if let Some(problem) = history.iter().find_map(unrestored) {
            let summary = format!("not every node was there again after healing: {problem}");
            conclusion(Validity::Unknown, source, summary)
        } else {
            let summary = "no node crashed by itself or refused to start";
            conclusion(Validity::Valid, source, summary)
        };
    };
    let mut result = conclusion(
        Validity::Invalid,
        source,
        format!(
            "{} {} at {}: {} ({} in all)",
            first.node,
            first.what,
            seconds(first.time),
            first.reason,
            counted(failures.len() as u64, "failure")
        ),
    );
    let listed = failures.iter().take(EVIDENCE_LIST_MAX_COUNT);
    let listed: Vec<Value> = listed.map(Failure::to_evidence).collect();
    result.evidence = json!({
        "failures": listed,
        "left_out": failures.len().saturating_sub(EVIDENCE_LIST_MAX_COUNT),
    });
    result
}

fn refusal(event: &TraceEvent) -> Option<Failure> {
    let TraceDetail::RefusedToStart { reason } = &event.detail else {
        return None;
    };
    Some(Failure {
        time: event.time,
        node: event.node.to_string(),
        what: REFUSED,
        reason: reason.clone(),
    })
}

/// A node that starts from data that a fault has destroyed, although it could have noticed.
fn heedless_start(
    event: &TraceEvent,
    schedule: &Schedule,
    applied_ns: &BTreeMap<u64, u64>,
) -> Option<Failure> {
    if !matches!(event.detail, TraceDetail::Started(_)) {
        return None;
    }
    let fault = damage(schedule, applied_ns, &event.node, event.time)?;
    Some(Failure {
        time: event.time,
        node: event.node.to_string(),
        what: "started",
        reason: format!(
            "fault {} had destroyed some of its data, and it did not notice",
            fault.id
        ),
    })
}

fn killed_by_somebody(line: &Operation) -> Option<String> {
    let killed = is_crash(line) && line.value["signal"] == SIGKILL;
    killed.then(|| line.value["node"].as_str().unwrap_or("a node").to_owned())
}

fn is_crash(line: &Operation) -> bool {
    line.process == Process::Nemesis && line.f == CRASH
}

fn crash(line: &Operation) -> Option<Failure> {
    if !is_crash(line) || line.value["signal"] == SIGKILL {
        return None;
    }
    let text = |field: &str| line.value[field].as_str().unwrap_or("unknown").to_owned();
    Some(Failure {
        time: line.time,
        node: text("node"),
        what: "crashed",
        reason: text("description"),
    })
}

fn unrestored(line: &Operation) -> Option<String> {
    if line.process != Process::Nemesis || line.f != RESTORED {
        return None;
    }
    let problems = line.value["problems"].as_array()?;
    let told: Vec<&str> = problems.iter().filter_map(Value::as_str).collect();
    (!told.is_empty()).then(|| told.join("; "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn check(trace: &[TraceEvent], history: &[Operation], schedule: &Schedule) -> CheckerResult {
        super::check(trace, history, schedule, &BTreeMap::new())
    }

    fn event(detail: TraceDetail) -> TraceEvent {
        TraceEvent {
            time: 2_500_000_000,
            node: "n2".into(),
            incarnation: 3,
            seq: 0,
            epoch: 1,
            detail,
        }
    }

    fn none() -> Schedule {
        schedule(json!([]))
    }

    fn schedule(faults: Value) -> Schedule {
        serde_json::from_value(json!({"format_version": 1, "faults": faults})).unwrap()
    }

    fn started() -> TraceEvent {
        serde_json::from_value(json!({
            "time": 1, "node": "n2", "incarnation": 4, "seq": 0, "epoch": 1, "event": "started",
            "role": "follower", "log_start": 0, "log_end": 9, "last_epoch": 1
        }))
        .unwrap()
    }

    fn refused(reason: &str) -> TraceEvent {
        let reason = reason.into();
        event(TraceDetail::RefusedToStart { reason })
    }

    #[test]
    fn a_node_that_refuses_damaged_data_does_what_it_should() {
        let fault = |at_ms: u64| {
            schedule(json!([{
                "id": 7, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "disk", "what": "bit-flip"},
                "resolved": {"at_ms": at_ms, "nodes": ["n2", "n3"]}, "outcome": "installed",
                "effect": {"n2_damaged_bytes": 1}
            }]))
        };
        let trace = [
            event(TraceDetail::Flush { log_end: 1 }),
            refused("a bad batch"),
        ];
        let restored: Operation = serde_json::from_value(json!({
            "index": 0, "time": 1, "process": "nemesis", "type": "info", "f": RESTORED,
            "value": {"problems": [], "damaged": {"n2": "a bad batch"}}
        }))
        .unwrap();
        let right = check(&trace, &[restored], &fault(2_400));
        assert_eq!(right.valid, Validity::Valid, "{}", right.summary);
        assert!(
            right
                .summary
                .contains("n2 refused to start at 2.500 s for fault 7")
        );
        assert!(
            right.summary.ends_with("destroyed: n2"),
            "{}",
            right.summary
        );
        assert_eq!(right.evidence["explained"][0]["fault"], 7);
        assert_eq!(right.evidence["left_down"]["n2"], "a bad batch");
        let started = |time: u64| {
            let mut started = started();
            started.time = time;
            check(&[started], &[], &fault(2_400))
        };
        assert_eq!(started(2_399_999_999).valid, Validity::Valid);
        let waited = serde_json::from_value(json!({
            "index": 0, "time": 2_600_000_000u64, "process": "nemesis", "type": "info", "f": "start-disk",
            "value": {"id": 7, "outcome": "installed"}
        }));
        let mut meanwhile = super::tests::started();
        meanwhile.time = 2_500_000_000;
        let waited = check(&[meanwhile], &[waited.unwrap()], &fault(2_400));
        assert_eq!(waited.valid, Validity::Valid, "{}", waited.summary);
        let heedless = started(2_500_000_000);
        assert_eq!(heedless.valid, Validity::Invalid);
        assert!(heedless.summary.contains("fault 7"), "{}", heedless.summary);
        let too_early = check(&trace, &[], &fault(2_600));
        assert_eq!(too_early.valid, Validity::Invalid, "{}", too_early.summary);
        let mut other = trace.clone();
        other[1].node = "n3".into();
        assert_eq!(check(&other, &[], &fault(2_400)).valid, Validity::Invalid);
    }

    /// A node read its damaged snapshot fifteen milliseconds after a wipe of its disk had been asked for.
    #[test]
    fn damage_explains_a_refusal_until_the_disk_is_surely_another_one() {
        let faults = schedule(json!([{
            "id": 7, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "disk", "what": "bit-flip"},
            "resolved": {"at_ms": 2_000, "nodes": ["n2"]}, "outcome": "installed", "effect": {"n2_damaged_bytes": 1}
        }, {
            "id": 8, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "wipe"},
            "resolved": {"at_ms": 2_480, "nodes": ["n2"]}, "outcome": "installed",
            "effect": {"n2_new_directory_id": "another"}
        }]));
        let trace = [
            event(TraceDetail::Flush { log_end: 1 }),
            refused("a bad batch"),
        ];
        let verdict = |wiped_ns: u64| {
            let wiped = json!({"index": 0, "time": wiped_ns, "process": "nemesis", "type": "info",
                "f": "start-wipe", "value": {"id": 8, "outcome": "installed"}});
            let history = [serde_json::from_value(wiped).unwrap()];
            check(&trace, &history, &faults).valid
        };
        assert_eq!(verdict(2_500_000_001), Validity::Valid);
        assert_eq!(verdict(2_500_000_000), Validity::Invalid);
    }

    #[test]
    fn a_node_may_stop_while_its_disk_fails_and_for_that_reason_only() {
        let fault = |what: &str, healed_at_ms: u64| {
            schedule(json!([{
                "id": 5, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "partition"},
                "resolved": {"at_ms": 1, "cut": [["n4", "n1"]]}, "outcome": "installed"
            }, {
                "id": 7, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "disk", "what": what},
                "resolved": {"at_ms": 900, "nodes": ["n4"]}, "outcome": "installed",
                "healed_at_ms": healed_at_ms
            }]))
        };
        let mut line = crashed("nemesis");
        let trace = [event(TraceDetail::Flush { log_end: 1 })];
        let mut verdict = |words: &str, schedule: &Schedule| {
            line.value["description"] = words.into();
            check(&trace, &[line.clone()], schedule).valid
        };
        let failed = "exit status: 1; cannot sync x: Input/output error (os error 5)";
        assert_eq!(
            verdict(failed, &fault("sync-error", 2_000)),
            Validity::Valid
        );
        assert_eq!(
            verdict(failed, &fault("no-space", 2_000)),
            Validity::Invalid
        );
        assert_eq!(
            verdict(failed, &fault("slow-sync", 2_000)),
            Validity::Invalid
        );
        // It ended at 1 s.
        assert_eq!(verdict(failed, &fault("sync-error", 999)), Validity::Valid);
        let long_ago = schedule(json!([{
            "id": 7, "trigger": {"at_ms": 1}, "duration_ms": 1,
            "fault": {"kind": "disk", "what": "sync-error"},
            "resolved": {"at_ms": 1_001, "nodes": ["n4"]}, "outcome": "installed"
        }]));
        assert_eq!(verdict(failed, &long_ago), Validity::Invalid);
        let panicked = "exit status: 1; second leader in epoch 3 (at leader.rs:1)";
        assert_eq!(
            verdict(panicked, &fault("sync-error", 2_000)),
            Validity::Invalid
        );
    }

    /// The harness was killed before it could tell whom the fault hit, or what it did.
    #[test]
    fn a_fault_that_nobody_lived_to_tell_of_explains_a_refusal_of_any_node_it_may_have_hit() {
        let trace = [
            event(TraceDetail::Flush { log_end: 1 }),
            refused("cannot read meta.properties: Input/output error (os error 5)"),
        ];
        let verdict = |what: &str, at_ms: u64, rest: Value| {
            let mut fault = json!({"id": 7, "trigger": {"at_ms": at_ms}, "duration_ms": 1,
                "fault": {"kind": "disk", "what": what}});
            fault
                .as_object_mut()
                .unwrap()
                .extend(rest.as_object().unwrap().clone());
            check(&trace, &[], &schedule(json!([fault]))).valid
        };
        let anybody = || json!({"outcome": "indeterminate"});
        let of = |node: &str| json!({"resolved": {"at_ms": 2_400, "nodes": [node]}, "outcome": "installed"});
        for what in ["read-error", "bit-flip"] {
            assert_eq!(verdict(what, 2_400, anybody()), Validity::Valid, "{what}");
            assert_eq!(verdict(what, 2_600, anybody()), Validity::Invalid, "{what}");
            assert_eq!(verdict(what, 2_400, of("n2")), Validity::Valid, "{what}");
            assert_eq!(verdict(what, 2_400, of("n3")), Validity::Invalid, "{what}");
            assert_eq!(verdict(what, 2_400, json!({})), Validity::Invalid, "{what}");
        }
        assert_eq!(verdict("no-space", 2_400, anybody()), Validity::Invalid);
    }

    #[test]
    fn a_node_that_was_held_up_may_learn_late_of_an_error_and_only_then() {
        let ended_at = |time_ns: u64, crashed_count: u64| {
            let faults = schedule(json!([{
                "id": 7, "trigger": {"at_ms": 1}, "duration_ms": 1,
                "fault": {"kind": "disk", "what": "sync-error"},
                "resolved": {"at_ms": 900, "nodes": ["n4"]}, "outcome": "installed",
                "healed_at_ms": 1_500,
                "effect": {"hit_count": 1, "crashed_count": crashed_count}
            }]));
            let mut line = crashed("nemesis");
            line.time = time_ns;
            line.value["description"] = "exit status: 1; (os error 5)".into();
            let trace = [event(TraceDetail::Flush { log_end: 1 })];
            check(&trace, &[line], &faults).valid
        };
        assert_eq!(ended_at(2_600_000_000, 0), Validity::Valid);
        assert_eq!(ended_at(2_600_000_000, 1), Validity::Invalid);
        assert_eq!(ended_at(12_000_000_000, 0), Validity::Invalid);
    }

    #[test]
    fn a_log_that_is_gone_is_no_clean_log() {
        let trace = [event(TraceDetail::Flush { log_end: 1 })];
        let logs = |node: &str| BTreeMap::from([(node.to_owned(), String::new())]);
        let judged = |logs| super::check(&trace, &[], &none(), &logs);
        assert_eq!(judged(logs("n2")).valid, Validity::Valid);
        assert_eq!(judged(BTreeMap::new()).valid, Validity::Valid);
        let gone = judged(logs("n1"));
        assert_eq!(gone.valid, Validity::Unknown);
        assert!(gone.summary.contains("n2"), "{}", gone.summary);
    }

    fn crashed(process: &str) -> Operation {
        serde_json::from_value(json!({
            "index": 0, "time": 1_000_000_000, "process": process, "type": "info", "f": CRASH,
            "value": {"node": "n4", "description": "exit status: 1; second leader in epoch 3"}
        }))
        .unwrap()
    }

    #[test]
    fn a_refusal_names_node_and_reason() {
        let refusal = event(TraceDetail::RefusedToStart {
            reason: "batch at offset 7 fails its checksum".into(),
        });
        let result = check(
            &[event(TraceDetail::Flush { log_end: 1 }), refusal],
            &[],
            &none(),
        );
        assert_eq!(result.valid, Validity::Invalid);
        for part in ["n2", "2.500 s", "checksum"] {
            assert!(result.summary.contains(part), "{}", result.summary);
        }
        assert_eq!(result.evidence["failures"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn a_crash_is_found_in_the_history() {
        let result = check(
            &[event(TraceDetail::Flush { log_end: 1 })],
            &[crashed("nemesis")],
            &none(),
        );
        assert_eq!(result.valid, Validity::Invalid);
        assert!(
            result.summary.contains("n4 crashed at 1.000 s"),
            "{}",
            result.summary
        );
    }

    #[test]
    fn a_node_that_never_answers_again_is_no_pass() {
        let restored = |problems: Value| -> Operation {
            serde_json::from_value(json!({
                "index": 0, "time": 1, "process": "nemesis", "type": "info", "f": RESTORED,
                "value": {"problems": problems}
            }))
            .unwrap()
        };
        let trace = [event(TraceDetail::Flush { log_end: 1 })];
        let silent = check(&trace, &[restored(json!(["n3 did not answer"]))], &none());
        assert_eq!(silent.valid, Validity::Unknown);
        assert!(silent.summary.contains("n3"), "{}", silent.summary);
        let fine = check(&trace, &[restored(json!([]))], &none());
        assert_eq!(fine.valid, Validity::Valid);
    }

    #[test]
    fn a_node_killed_by_somebody_else_is_not_blamed() {
        let mut line = crashed("nemesis");
        line.value["signal"] = 9.into();
        let result = check(
            &[event(TraceDetail::Flush { log_end: 1 })],
            &[line.clone()],
            &none(),
        );
        assert_eq!(result.valid, Validity::Unknown);
        assert!(result.summary.contains("killed n4"), "{}", result.summary);
        line.value["signal"] = 6.into();
        let aborted = check(
            &[event(TraceDetail::Flush { log_end: 1 })],
            &[line],
            &none(),
        );
        assert_eq!(aborted.valid, Validity::Invalid);
    }

    #[test]
    fn other_events_are_fine_and_none_at_all_are_not() {
        let flush = event(TraceDetail::Flush { log_end: 1 });
        assert_eq!(check(&[flush], &[], &none()).valid, Validity::Valid);
        assert_eq!(check(&[], &[], &none()).valid, Validity::Unknown);
    }

    #[test]
    fn a_panic_that_did_not_end_the_node_is_found_in_its_log() {
        let flush = [event(TraceDetail::Flush { log_end: 1 })];
        let line = "thread 'peer' panicked at x.rs:3:5:";
        let logs = BTreeMap::from([("n3".to_owned(), format!("fine\n{line}\nno vote\n"))]);
        let result = super::check(&flush, &[], &none(), &logs);
        assert_eq!(result.valid, Validity::Invalid);
        assert!(
            result.summary.contains("n3") && result.summary.contains("line 2"),
            "{}",
            result.summary
        );
        assert_eq!(result.evidence["logged"][0]["text"], line);
        let both = super::check(&flush, &[crashed("nemesis")], &none(), &logs);
        assert!(both.summary.starts_with("n4 crashed") && both.summary.contains(line));
        assert_eq!(both.evidence["failures"].as_array().unwrap().len(), 1);
    }
}
