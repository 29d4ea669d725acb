//! Owns how the evidence of a violation is laid out for a person, whatever checker it comes from.
//! Never requires a shape: what it does not recognise is shown as it was recorded.

use serde_json::Value;

use crate::coverage;
use crate::lanes::{self, LaneOperation};
use crate::linked::Linked;
use crate::orders::{self, OrdersView};
use crate::text;

/// More rows than this help nobody; the whole evidence is in `verdict.json`.
const OPERATION_COUNT_MAX: usize = 200;
const LINE_COUNT_MAX: usize = 20;
const JSON_BYTES_MAX: usize = 32 * 1024;
/// What the possible states of evidence are those of.
const POSSIBLE_STATES: &str = "values possible before it ended";

/// Evidence laid out for a page.
#[derive(Debug, Default)]
pub(crate) struct EvidenceView {
    /// In plain words, where the checker gave any.
    pub(crate) explanation: String,
    /// Simple members as name and value; times and faults lead to where they are shown.
    pub(crate) facts: Vec<(String, Linked)>,
    /// The operations involved, by time of invocation.
    pub(crate) operations: Vec<OperationRow>,
    /// Lane diagram of the operations, an SVG element; empty without operations.
    pub(crate) lanes: String,
    /// The orders that were possible, where they can be told.
    pub(crate) orders: Option<OrdersView>,
    /// What else happened at that time, one line each.
    pub(crate) context: Vec<Linked>,
    /// What was left out, for people; empty when nothing was.
    pub(crate) omission: String,
    /// The evidence as recorded.
    pub(crate) json: String,
}

/// One operation that is part of the evidence.
#[derive(Debug)]
pub(crate) struct OperationRow {
    /// Position in the history.
    pub(crate) index: String,
    /// Client process.
    pub(crate) process: String,
    /// `read`, `write`, ...
    pub(crate) function: String,
    /// Argument or result.
    pub(crate) value: String,
    /// Answering node.
    pub(crate) node: String,
    /// Epoch the node answered in.
    pub(crate) epoch: String,
    /// Time of invocation.
    pub(crate) invoked: String,
    /// Time of completion, or that there is none.
    pub(crate) completed: String,
    /// `ok`, `info`, ...
    pub(crate) outcome: String,
    /// Whether this is the operation at which no order remained possible.
    pub(crate) failing: bool,
}

impl EvidenceView {
    /// Whether anything is known of who answered.
    pub(crate) fn has_nodes(&self) -> bool {
        let mut rows = self.operations.iter();
        rows.any(|row| !row.node.is_empty() || !row.epoch.is_empty())
    }
}

/// Lays out `evidence`; `None` when there is none.
pub(crate) fn view(evidence: &Value) -> Option<EvidenceView> {
    if evidence.is_null() {
        return None;
    }
    let mut view = EvidenceView {
        json: pretty(evidence),
        orders: orders::view(evidence),
        ..EvidenceView::default()
    };
    let Some(members) = evidence.as_object() else {
        return Some(view);
    };
    let failing_index = members.get("failing_index").and_then(Value::as_u64);
    for (name, value) in members {
        match (name.as_str(), value) {
            ("explanation", Value::String(text)) => view.explanation = text::printable(text),
            ("operations", Value::Array(items)) if items.iter().any(Value::is_object) => {}
            ("anomalies", Value::Array(items)) => view.facts.extend(anomalies(items)),
            // Shown as possible orders.
            ("orders", _) if view.orders.is_some() => {}
            // Those of all operations before it; the possible orders are of the few that are shown.
            ("possible_states", value) if !value.is_null() => {
                let values = told(value).into_iter();
                view.facts
                    .extend(values.map(|line| (POSSIBLE_STATES.to_owned(), line)));
            }
            // Shown as the marked row.
            ("failing_index", _) | (_, Value::Null) => {}
            (name, Value::Number(number)) if name.ends_with("_ns") || name.ends_with("_ms") => {
                let (name, unit) = name.split_at(name.len() - "_ns".len());
                let line = match number.as_u64() {
                    Some(time_ns) if unit == "_ns" => {
                        Linked::moment(text::moment_ns(time_ns), time_ns)
                    }
                    Some(length_ms) => text::duration_ms(length_ms).into(),
                    None => number.to_string().into(),
                };
                view.facts
                    .push((text::printable(&name.replace('_', " ")), line));
            }
            ("unhealed", Value::Array(items)) if !items.is_empty() => {
                let line = text::shortened(&value_text(value), 300);
                let line = Linked::faults(line, &coverage::numbers(value));
                view.facts.push((name.clone(), line));
            }
            (_, value) => {
                let name = text::printable(&name.replace('_', " "));
                view.facts
                    .extend(told(value).into_iter().map(|line| (name.clone(), line)));
            }
        }
    }
    let operations = members.get("operations").and_then(Value::as_array);
    let mut operations: Vec<&Value> = operations
        .map(|list| list.iter().filter(|one| one.is_object()).collect())
        .unwrap_or_default();
    operations.sort_by_key(|one| (number(one, "invoked_ns"), index_of(one)));
    if operations.len() > OPERATION_COUNT_MAX {
        view.omission = format!(
            "Only the last {OPERATION_COUNT_MAX} of {} operations are shown; \
             all are in verdict.json.",
            operations.len()
        );
        operations.drain(..operations.len() - OPERATION_COUNT_MAX);
    }
    let failing = |one: &Value| failing_index.is_some() && index_of(one) == failing_index;
    view.operations = operations
        .iter()
        .map(|one| row(one, failing(one)))
        .collect();
    let bars = operations.iter().filter_map(|one| {
        Some(LaneOperation {
            process: member(one, "process"),
            label: format!("{} {}", member(one, "f"), member(one, "value")),
            outcome: member(one, "type"),
            invoked_ns: number(one, "invoked_ns")?,
            completed_ns: number(one, "completed_ns"),
            failing: failing(one),
        })
    });
    view.lanes = lanes::diagram(&bars.collect::<Vec<_>>());
    Some(view)
}

fn row(operation: &Value, failing: bool) -> OperationRow {
    let time = |name: &str, absent: &str| {
        number(operation, name).map_or_else(|| absent.to_owned(), text::moment_ns)
    };
    OperationRow {
        index: index_of(operation).map_or_else(String::new, |index| index.to_string()),
        process: member(operation, "process"),
        function: member(operation, "f"),
        value: member(operation, "value"),
        node: member(operation, "node"),
        epoch: member(operation, "epoch"),
        invoked: time("invoked_ns", ""),
        completed: time("completed_ns", "never"),
        outcome: member(operation, "type"),
        failing,
    }
}

/// The position in the history at which an operation that is evidence was invoked, if it tells that, or its line.
pub(crate) fn index_of(operation: &Value) -> Option<u64> {
    let line = || number(operation, "invoked_line")?.checked_sub(1);
    number(operation, "index").or_else(line)
}

fn number(operation: &Value, name: &str) -> Option<u64> {
    operation.get(name)?.as_u64()
}

/// A member as text; empty when it is absent. A `null` value is told, since reads return it.
fn member(operation: &Value, name: &str) -> String {
    operation
        .get(name)
        .map_or_else(String::new, |value| match value {
            Value::Null if name != "value" => String::new(),
            value => text::shortened(&value_text(value), 80),
        })
}

/// What was found besides the first, which is explained: a line each.
fn anomalies(items: &[Value]) -> Vec<(String, Linked)> {
    let others = items.iter().skip(1).take(LINE_COUNT_MAX);
    let told = others.map(|one| {
        let explanation = member_text(one, "explanation");
        let sentence = explanation.lines().next().unwrap_or_default();
        let line = format!("{}: {sentence}", member_text(one, "kind"));
        let operations = one.get("operations").and_then(Value::as_array);
        let times = operations.into_iter().flatten();
        let invoked_ns = times.filter_map(|one| number(one, "invoked_ns")).min();
        let line = match invoked_ns {
            Some(invoked_ns) => Linked::moment(line, invoked_ns),
            None => line.into(),
        };
        ("also found".to_owned(), line)
    });
    told.collect()
}

fn member_text(object: &Value, name: &str) -> String {
    object.get(name).map_or_else(String::new, value_text)
}

/// A member in lines that a person can read: one per element when it is a list of events.
fn told(value: &Value) -> Vec<Linked> {
    match value {
        Value::Array(items) if items.iter().any(Value::is_object) => {
            let mut lines: Vec<_> = items.iter().take(LINE_COUNT_MAX).map(told_line).collect();
            if items.len() > LINE_COUNT_MAX {
                lines.push(format!("… and {} more", items.len() - LINE_COUNT_MAX).into());
            }
            lines
        }
        value => vec![told_line(value)],
    }
}

/// `node n1, epoch 3, time 12.304 s`, which leads to its fault or its first time.
fn told_line(value: &Value) -> Linked {
    let Some(members) = value.as_object() else {
        return text::shortened(&value_text(value), 300).into();
    };
    let is_time = |name: &str| name == "time" || name.ends_with("_ns");
    let times = members.iter().filter(|(name, _)| is_time(name));
    let time_ns = times.filter_map(|(_, value)| value.as_u64()).next();
    let fault = members.get("fault").and_then(Value::as_u64);
    let words = members
        .iter()
        .filter(|(_, value)| !value.is_null())
        .map(|(name, value)| {
            let time_ns = value.as_u64().filter(|_| is_time(name));
            let value = time_ns.map_or_else(|| value_text(value), text::moment_ns);
            let name = name.strip_suffix("_ns").unwrap_or(name).replace('_', " ");
            format!("{} {value}", text::printable(&name))
        });
    let line = text::shortened(&words.collect::<Vec<_>>().join(", "), 300);
    match (fault, time_ns) {
        (Some(fault), _) => Linked::faults(line, &[fault]),
        (None, Some(time_ns)) => Linked::moment(line, time_ns),
        (None, None) => line.into(),
    }
}

/// Numbers stay ungrouped here: they are values and indices, not quantities.
fn value_text(value: &Value) -> String {
    match value {
        Value::String(text) => text::printable(text),
        other => text::printable(&other.to_string()),
    }
}

fn pretty(evidence: &Value) -> String {
    let mut json = serde_json::to_string_pretty(evidence).unwrap_or_else(|_| evidence.to_string());
    if json.len() > JSON_BYTES_MAX {
        let mut end = JSON_BYTES_MAX;
        while !json.is_char_boundary(end) {
            end -= 1;
        }
        json.truncate(end);
        json.push_str("\n… cut here; the whole evidence is in verdict.json");
    }
    text::printable(&json)
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn operations_are_sorted_by_time_and_the_failing_one_is_marked() {
        let view = view(&json!({
            "key": "3", "failing_index": 12, "possible_states": [1, null], "explanation": "stale",
            "operations": [
                {"index": 12, "process": 7, "f": "read", "value": 5, "invoked_ns": 2000000000u64,
                 "completed_ns": 2500000000u64, "type": "ok", "node": "n1", "epoch": 4},
                {"index": 10, "process": 2, "f": "write", "value": null,
                 "invoked_ns": 1000000000u64,
                 "completed_ns": null, "type": "info"},
            ],
        }))
        .unwrap();
        assert_eq!(view.explanation, "stale");
        let told: Vec<_> = view
            .operations
            .iter()
            .map(|one| {
                (
                    one.index.as_str(),
                    one.completed.as_str(),
                    one.value.as_str(),
                    one.failing,
                )
            })
            .collect();
        assert_eq!(
            told,
            [("10", "never", "null", false), ("12", "2.500 s", "5", true)]
        );
        assert!(view.lanes.contains("<svg"));
        let possible = (POSSIBLE_STATES.to_owned(), "[1,null]".into());
        assert!(view.facts.contains(&possible), "{:?}", view.facts);
    }

    #[test]
    fn orders_are_not_told_twice() {
        let names = |orders: serde_json::Value| {
            let view = view(&json!({"key": "3", "orders": orders})).unwrap();
            let names = view.facts.into_iter().map(|(name, _)| name);
            names.collect::<Vec<_>>()
        };
        let shown = json!({"operations": [["read 1", true]], "situations": [["0", [], [0], null]]});
        assert_eq!(names(shown), ["key"]);
        assert_eq!(names(json!("odd")), ["key", "orders"]);
    }

    #[test]
    fn times_of_the_evidence_have_units() {
        let view = view(&json!({"bound_ms": 20000, "first_success_ns": 32007200115u64})).unwrap();
        let told: Vec<_> = view
            .facts
            .iter()
            .map(|(name, value)| format!("{name}: {}", value.text))
            .collect();
        assert_eq!(told, ["bound: 20 s", "first success: 32.007 s"]);
        let moment = Linked::moment("32.007 s", 32_007_200_115);
        assert_eq!(view.facts[1].1, moment);
    }

    #[test]
    fn evidence_of_unknown_shape_is_still_shown() {
        assert!(view(&Value::Null).is_none());
        assert_eq!(view(&json!(["a"])).unwrap().json, "[\n  \"a\"\n]");
        let odd = view(&json!({"operations": [{"f": "read"}, 3], "offset": 1234})).unwrap();
        assert_eq!(odd.operations.len(), 1);
        assert!(odd.lanes.is_empty(), "nothing can be drawn without times");
        assert_eq!(odd.facts, [("offset".to_owned(), "1234".into())]);
    }

    #[test]
    fn events_inside_the_evidence_are_told_in_one_line_each() {
        let view = view(&json!({
            "event": {"node": "n1", "epoch": 3, "time": 12304000000u64, "reason": null},
            "contradicts": [{"node": "n2", "epoch": 3}, {"node": "n3", "epoch": 3}],
        }))
        .unwrap();
        let facts: Vec<_> = view
            .facts
            .iter()
            .map(|(name, line)| format!("{name}: {}", line.text))
            .collect();
        let event = Linked::moment("epoch 3, node n1, time 12.304 s", 12_304_000_000);
        assert_eq!(view.facts[2].1, event);
        assert_eq!(
            facts,
            [
                "contradicts: epoch 3, node n2",
                "contradicts: epoch 3, node n3",
                "event: epoch 3, node n1, time 12.304 s"
            ]
        );
    }

    #[test]
    fn huge_evidence_is_cut_with_a_notice() {
        let operations: Vec<_> = (0..5000u64)
            .map(|index| json!({"index": index, "invoked_ns": index, "f": "é"}))
            .collect();
        let view = view(&json!({"operations": operations})).unwrap();
        assert_eq!(view.operations.len(), OPERATION_COUNT_MAX);
        assert!(view.omission.contains("5000"));
        assert!(view.json.len() < JSON_BYTES_MAX + 100 && view.json.contains("cut here"));
    }
}
