//! Owns the count of operations by function and outcome, and whether the counts amount to a test.
//! Never judges what the operations returned.

use std::collections::BTreeMap;

use results::history::{Operation, OperationType, Process};
use results::verdict::{CheckerResult, Validity};
use serde_json::json;

use crate::{conclusion, counted};

#[derive(Debug, Default, Clone, Copy, PartialEq, Eq)]
struct Counts {
    invoked: u64,
    ok: u64,
    fail: u64,
    info: u64,
}

impl Counts {
    fn add(&mut self, operation_type: OperationType) {
        match operation_type {
            OperationType::Invoke => self.invoked += 1,
            OperationType::Ok => self.ok += 1,
            OperationType::Fail => self.fail += 1,
            OperationType::Info => self.info += 1,
        }
    }

    /// Operations without a completion are of unknown outcome, too.
    fn unknown(&self) -> u64 {
        self.invoked
            .saturating_sub(self.ok)
            .saturating_sub(self.fail)
            .max(self.info)
    }

    fn to_json(self) -> serde_json::Value {
        json!({
            "invoked": self.invoked,
            "ok": self.ok,
            "fail": self.fail,
            "info": self.unknown(),
        })
    }
}

/// Unknown where too few operations succeeded, or no operation of some function did.
pub fn check(history: &[Operation], minimum_ok_count: u64) -> CheckerResult {
    let mut all = Counts::default();
    let mut by_function: BTreeMap<&str, Counts> = BTreeMap::new();
    let mut errors: BTreeMap<&str, u64> = BTreeMap::new();
    for operation in history {
        if operation.process == Process::Nemesis {
            continue;
        }
        all.add(operation.operation_type);
        by_function
            .entry(&operation.f)
            .or_default()
            .add(operation.operation_type);
        if let Some(error) = &operation.error {
            *errors.entry(&error.kind).or_default() += 1;
        }
    }
    let never_ok: Vec<&str> = by_function
        .iter()
        .filter(|(_, counts)| counts.ok == 0)
        .map(|(function, _)| *function)
        .collect();
    let told = format!(
        "{}: {} ok, {} failed, {} unknown",
        counted(all.invoked, "operation"),
        all.ok,
        all.fail,
        all.unknown()
    );
    let (valid, summary) = if all.ok < minimum_ok_count {
        (
            Validity::Unknown,
            format!(
                "nothing was tested: {} succeeded, at least {minimum_ok_count} must ({told})",
                counted(all.ok, "operation")
            ),
        )
    } else if never_ok.is_empty() {
        (Validity::Valid, told)
    } else {
        (
            Validity::Unknown,
            format!("no {} ever succeeded ({told})", never_ok.join(" and no ")),
        )
    };
    let mut result = conclusion(valid, "Jepsen's stats checker", summary);
    errors = errors
        .into_iter()
        .take(crate::EVIDENCE_LIST_MAX_COUNT)
        .collect();
    let functions: BTreeMap<&str, serde_json::Value> = by_function
        .iter()
        .take(crate::EVIDENCE_LIST_MAX_COUNT)
        .map(|(function, counts)| (*function, counts.to_json()))
        .collect();
    result.evidence = json!({
        "operations": all.to_json(),
        "by_function": functions,
        "errors": errors,
    });
    result
}

#[cfg(test)]
mod tests {
    use super::*;

    fn history(outcomes: &[(&str, &str, usize)]) -> Vec<Operation> {
        let mut lines = Vec::new();
        for (function, outcome, count) in outcomes {
            for _ in 0..*count {
                for operation_type in ["invoke", outcome] {
                    if operation_type.is_empty() {
                        continue;
                    }
                    let index = lines.len();
                    lines.push(
                        serde_json::from_value(json!({
                            "index": index, "time": index, "process": index, "key": "k",
                            "type": operation_type, "f": function,
                        }))
                        .unwrap(),
                    );
                }
            }
        }
        lines
    }

    #[test]
    fn enough_successes_of_every_function_are_valid_and_counted() {
        let history = history(&[("read", "ok", 8), ("write", "ok", 2), ("write", "", 3)]);
        let result = check(&history, 10);
        assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
        assert_eq!(
            result.evidence["by_function"]["write"],
            json!({"invoked": 5, "ok": 2, "fail": 0, "info": 3})
        );
    }

    #[test]
    fn too_few_successes_mean_that_nothing_was_tested() {
        let result = check(&history(&[("read", "ok", 9), ("read", "fail", 90)]), 10);
        assert_eq!(result.valid, Validity::Unknown);
        assert!(result.summary.contains("nothing was tested"));
        assert_eq!(check(&[], 1).valid, Validity::Unknown);
    }

    #[test]
    fn a_function_that_never_succeeds_is_named() {
        let result = check(&history(&[("read", "ok", 20), ("cas", "fail", 20)]), 10);
        assert_eq!(result.valid, Validity::Unknown);
        assert!(result.summary.contains("no cas ever"), "{}", result.summary);
    }
}
