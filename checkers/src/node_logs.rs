//! Owns the question whether any node gave up by itself: refused to start, or ended unasked.
//! Never reads the log files: what counts is what was recorded as an event.

use results::history::{Operation, Process};
use results::trace::{TraceDetail, TraceEvent};
use results::verdict::{CheckerResult, Validity};
use serde_json::{Value, json};

use crate::{EVIDENCE_LIST_MAX_COUNT, conclusion, counted, seconds};

/// Name of the history line by which the harness records that a node ended although nobody asked.
pub const CRASH: &str = "node-crashed";

/// The signal that only another process can send: its number in `signal` of a [`CRASH`] line.
const SIGKILL: i32 = 9;

/// Name of the history line by which the harness records what was still wrong with nodes when all
/// faults were healed, in the list `problems`.
pub const RESTORED: &str = "restored";

/// A node that gave up.
struct Failure {
    time: u64,
    node: String,
    what: &'static str,
    reason: String,
}

/// Invalid where a node of the system under test refused to start, or ended although neither a fault
/// nor the harness ended it. Unknown where somebody else killed one (a person, or a system short of
/// memory), or where one did not answer any more when all faults were healed.
pub fn check(trace: &[TraceEvent], history: &[Operation]) -> CheckerResult {
    let mut failures: Vec<Failure> = trace.iter().filter_map(refusal).collect();
    failures.extend(history.iter().filter_map(crash));
    failures.sort_by_key(|failure| failure.time);
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
    let listed: Vec<Value> = failures
        .iter()
        .take(EVIDENCE_LIST_MAX_COUNT)
        .map(|failure| {
            json!({
                "node": failure.node,
                "time": failure.time,
                "what": failure.what,
                "reason": failure.reason,
            })
        })
        .collect();
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
        what: "refused to start",
        reason: reason.clone(),
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
        let result = check(&[event(TraceDetail::Flush { log_end: 1 }), refusal], &[]);
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
        let silent = check(&trace, &[restored(json!(["n3 did not answer"]))]);
        assert_eq!(silent.valid, Validity::Unknown);
        assert!(silent.summary.contains("n3"), "{}", silent.summary);
        let fine = check(&trace, &[restored(json!([]))]);
        assert_eq!(fine.valid, Validity::Valid);
    }

    #[test]
    fn a_node_killed_by_somebody_else_is_not_blamed() {
        let mut line = crashed("nemesis");
        line.value["signal"] = 9.into();
        let result = check(&[event(TraceDetail::Flush { log_end: 1 })], &[line.clone()]);
        assert_eq!(result.valid, Validity::Unknown);
        assert!(result.summary.contains("killed n4"), "{}", result.summary);
        line.value["signal"] = 6.into();
        let aborted = check(&[event(TraceDetail::Flush { log_end: 1 })], &[line]);
        assert_eq!(aborted.valid, Validity::Invalid);
    }

    #[test]
    fn other_events_are_fine_and_none_at_all_are_not() {
        let flush = event(TraceDetail::Flush { log_end: 1 });
        assert_eq!(check(&[flush], &[]).valid, Validity::Valid);
        assert_eq!(check(&[], &[]).valid, Validity::Unknown);
    }
}
