//! Owns the check of histories of lists, sets and counters: every key must behave like one such object.
//! Never lets a hard or damaged history pass: what could not be decided is unknown, with the reason.

use std::time::Duration;

use results::history::Operation;
use results::verdict::CheckerResult;
use serde_json::Value;

use super::{SOURCE, THREAD_COUNT};
use crate::histories::{self, Model, judge};
use crate::{Options, conclusion, not_understood};

/// Checks the operations of a model, key by key.
///
/// `ok` took effect between invocation and completion, `fail` did not; `info`, or no completion, means at any
/// time after the invocation, or never.
pub fn check_objects(model: Model, history: &[Operation], options: &Options) -> CheckerResult {
    let how = histories::Options {
        time_limit: Duration::from_millis(options.linearizability_time_limit_ms),
        memory_limit_bytes: options.linearizability_memory_limit_bytes,
        explanation_time_limit: Duration::from_millis(options.explanation_time_limit_ms),
        thread_count: THREAD_COUNT,
        ..histories::Options::new(model)
    };
    match judge(histories::recorded(history), &how) {
        Ok(report) => {
            let mut result = conclusion(report.valid, SOURCE, report.summary);
            result.evidence = report.evidence;
            let first = result.evidence["violations"].get(0).cloned();
            if let Some(Value::Object(first)) = first {
                // What explains a verdict is where it is for registers, too.
                for (name, value) in first {
                    result.evidence[name] = value;
                }
            }
            result
        }
        Err(damage) => not_understood(SOURCE, format_args!("history.jsonl {damage}")),
    }
}
