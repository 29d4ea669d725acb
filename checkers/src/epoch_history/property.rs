//! Owns the bookkeeping of one property: how often it was exercised, and its first violation.
//! Never decides whether it was violated.

use results::trace::TraceEvent;
use results::verdict::{PropertyResult, Validity};
use serde_json::{Value, json};

#[derive(Debug)]
pub(crate) struct Property {
    pub(crate) id: &'static str,
    title: &'static str,
    source: &'static str,
    pub(crate) checked: u64,
    violation_count: u64,
    first: Option<(String, Value)>,
}

impl Property {
    pub(crate) fn new(id: &'static str, title: &'static str, source: &'static str) -> Self {
        Self {
            id,
            title,
            source,
            checked: 0,
            violation_count: 0,
            first: None,
        }
    }

    /// Notes a violation that showed at `time` (in nanoseconds). Only the first one is described:
    /// its summary, the event, and what that contradicts.
    pub(crate) fn violated(
        &mut self,
        time: u64,
        describe: impl FnOnce() -> (String, Value, Value),
    ) {
        self.violation_count += 1;
        self.first.get_or_insert_with(|| {
            let (summary, event, contradicts) = describe();
            let evidence = json!({"time": time, "event": event, "contradicts": contradicts});
            (summary, evidence)
        });
    }

    /// The result, given what is known about lost evidence.
    pub(crate) fn finish(self, lost: Option<&str>) -> PropertyResult {
        let (valid, summary, evidence) = match (self.first, lost) {
            (Some((summary, mut evidence)), _) => {
                evidence["violation_count"] = self.violation_count.into();
                (Validity::Invalid, summary, evidence)
            }
            (None, Some(lost)) => (
                Validity::Unknown,
                format!("evidence was lost: {lost}"),
                Value::Null,
            ),
            (None, None) if self.checked == 0 => {
                (Validity::Unknown, "never exercised".into(), Value::Null)
            }
            (None, None) => (Validity::Valid, String::new(), Value::Null),
        };
        PropertyResult {
            valid,
            title: self.title.into(),
            source: self.source.into(),
            checked: self.checked,
            summary,
            evidence,
        }
    }
}

/// A trace event as evidence.
pub(crate) fn event_json(event: &TraceEvent) -> Value {
    serde_json::to_value(event).unwrap_or(Value::Null)
}
