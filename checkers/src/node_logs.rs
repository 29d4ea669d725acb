//! Owns the question whether any node gave up by itself.
//! Never reads the log files: what counts is what a node reported as an event.

use results::trace::{TraceDetail, TraceEvent};
use results::verdict::{CheckerResult, Validity};
use serde_json::{Value, json};

use crate::{EVIDENCE_LIST_MAX_COUNT, conclusion, counted, seconds};

/// Invalid where a node of the system under test refused to start.
pub fn check(trace: &[TraceEvent]) -> CheckerResult {
    let refusals: Vec<(&TraceEvent, &str)> = trace
        .iter()
        .filter_map(|event| match &event.detail {
            TraceDetail::RefusedToStart { reason } => Some((event, reason.as_str())),
            _ => None,
        })
        .collect();
    let source = "a node must come back from any crash with what its disk holds";
    let Some((first, reason)) = refusals.first() else {
        return if trace.is_empty() {
            conclusion(
                Validity::Unknown,
                source,
                "no node left a trace, so nobody knows whether all of them started",
            )
        } else {
            conclusion(Validity::Valid, source, "no node refused to start")
        };
    };
    let mut result = conclusion(
        Validity::Invalid,
        source,
        format!(
            "{} refused to start at {} (start number {}): {reason} ({} in all)",
            first.node,
            seconds(first.time),
            first.incarnation,
            counted(refusals.len() as u64, "refusal")
        ),
    );
    let listed: Vec<Value> = refusals
        .iter()
        .take(EVIDENCE_LIST_MAX_COUNT)
        .map(|(event, reason)| {
            json!({
                "node": event.node,
                "incarnation": event.incarnation,
                "time": event.time,
                "reason": reason,
            })
        })
        .collect();
    result.evidence = json!({
        "refusals": listed,
        "left_out": refusals.len().saturating_sub(EVIDENCE_LIST_MAX_COUNT),
    });
    result
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

    #[test]
    fn a_refusal_names_node_and_reason() {
        let refusal = event(TraceDetail::RefusedToStart {
            reason: "batch at offset 7 fails its checksum".into(),
        });
        let result = check(&[event(TraceDetail::Flush { log_end: 1 }), refusal]);
        assert_eq!(result.valid, Validity::Invalid);
        for part in ["n2", "2.500 s", "checksum"] {
            assert!(result.summary.contains(part), "{}", result.summary);
        }
        assert_eq!(result.evidence["refusals"].as_array().unwrap().len(), 1);
    }

    #[test]
    fn other_events_are_fine_and_none_at_all_are_not() {
        let flush = event(TraceDetail::Flush { log_end: 1 });
        assert_eq!(check(&[flush]).valid, Validity::Valid);
        assert_eq!(check(&[]).valid, Validity::Unknown);
    }
}
