//! Owns when faults were there, as the lines of the history tell that the harness wrote about them.
//! Never guesses: a fault that the history does not tell of has no time.

use std::collections::BTreeMap;

use results::history::{Operation, Process};

/// By number of the fault: when it was reported as applied, in nanoseconds since the run started. A fault may have
/// waited for a node since the moment that its schedule names, and has done all it does by then.
pub(crate) fn applied_ns(history: &[Operation]) -> BTreeMap<u64, u64> {
    let lines = history
        .iter()
        .filter(|line| line.process == Process::Nemesis && line.f.starts_with("start-"));
    let applied = lines.filter(|line| line.value["outcome"].is_string());
    let times = applied.filter_map(|line| Some((line.value["id"].as_u64()?, line.time)));
    times.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn a_fault_was_there_when_its_outcome_is_told_and_not_when_it_was_asked_for() {
        let line = |time: u64, f: &str, value: serde_json::Value| -> Operation {
            serde_json::from_value(json!({"index": 0, "time": time, "process": "nemesis",
                "type": "info", "f": f, "value": value}))
            .unwrap()
        };
        let history = [
            line(5, "start-disk", json!({"id": 7, "fault": {"kind": "disk"}})),
            line(9, "start-disk", json!({"id": 7, "outcome": "installed"})),
            line(11, "stop-disk", json!({"id": 7, "problem": null})),
            line(
                12,
                "start-kill",
                json!({"id": 8, "fault": {"kind": "kill"}}),
            ),
        ];
        assert_eq!(applied_ns(&history), BTreeMap::from([(7, 9)]));
    }
}
