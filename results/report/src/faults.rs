//! Owns how a fault is told to people: what was asked, what it became, what it did.
//! Never knows the vocabulary of faults beyond display; unknown parameters are shown as they are.

use results::byte_size;
use results::schedule::{FaultOutcome, ScheduledFault, Trigger};
use results::verdict::Verdict;
use serde_json::{Map, Value};

use crate::linked::Linked;
use crate::{cuts, plots, text};

/// How a fault of the leader records that a drawn node stands in for it.
const LEADER_UNKNOWN: &str = "leader_unknown";

/// One row of the fault table.
#[derive(Debug)]
pub(crate) struct FaultRow {
    /// Number of the fault.
    pub(crate) id: u64,
    /// `partition`, `kill`, ...
    pub(crate) kind: String,
    /// Suffix of the style class that has its colour.
    pub(crate) key: &'static str,
    /// Where to look in the timeline, in milliseconds since the start; `None` without a place.
    pub(crate) window_ms: Option<(u64, u64)>,
    /// What was asked for, without the kind.
    pub(crate) asked: String,
    /// The concrete targets, empty when it was never resolved.
    pub(crate) resolved: String,
    /// Whether its moment came.
    pub(crate) began: bool,
    /// When it began, or was meant to.
    pub(crate) start: Linked,
    /// When it was healed.
    pub(crate) end: Linked,
    /// `installed`, `skipped`, `indeterminate` or `never started`.
    pub(crate) outcome: &'static str,
    /// What was measured.
    pub(crate) effect: Linked,
    /// Whether something was measured that is not zero.
    pub(crate) had_effect: bool,
    /// Why it was skipped or is indeterminate.
    pub(crate) reason: String,
    /// How long it took until an operation succeeded again; empty where nobody measured.
    pub(crate) recovery: Linked,
}

/// A fault in a line: `partition (shape halves, style hold): n1 n2 | n3 n4 n5`.
pub fn told(fault: &ScheduledFault) -> String {
    let FaultRow {
        kind,
        asked,
        resolved,
        ..
    } = row(fault, None);
    let asked = match asked.as_str() {
        "" => String::new(),
        asked => format!(" ({asked})"),
    };
    match resolved.as_str() {
        "" => format!("{kind}{asked}"),
        resolved => format!("{kind}{asked}: {resolved}"),
    }
}

/// The rows of the fault table.
pub(crate) fn rows(faults: &[ScheduledFault], verdict: Option<&Verdict>) -> Vec<FaultRow> {
    let liveness = verdict.and_then(|verdict| verdict.checkers.get("liveness"));
    let measured = liveness.and_then(|result| result.properties.get("fault-recovery"));
    let by_fault = measured.and_then(|property| property.evidence["by_fault"].as_object());
    let rows = faults.iter().map(|fault| {
        let measured = by_fault.and_then(|by_fault| by_fault.get(&fault.id.to_string()));
        row(fault, measured)
    });
    rows.collect()
}

fn row(fault: &ScheduledFault, measured: Option<&Value>) -> FaultRow {
    let started = fault.resolved.as_ref().map(|resolved| resolved.at_ms);
    let took_hold = !matches!(fault.outcome, Some(FaultOutcome::Skipped) | None);
    let window_ms =
        started.map(|from_ms| (from_ms, fault.healed_at_ms.unwrap_or(from_ms).max(from_ms)));
    FaultRow {
        id: fault.id,
        began: fault.outcome.is_some(),
        kind: text::printable(&fault.fault.kind),
        key: plots::fault_key(&fault.fault.kind),
        window_ms,
        asked: parameters(&fault.fault.parameters),
        resolved: fault
            .resolved
            .as_ref()
            .map(|resolved| targets(&resolved.targets, &fault.fault.parameters))
            .unwrap_or_default(),
        start: match (started, window_ms) {
            (Some(started_ms), Some((from_ms, to_ms))) => {
                Linked::stretch(text::moment_ms(started_ms), from_ms, to_ms)
            }
            _ => planned(&fault.trigger).into(),
        },
        end: match fault.healed_at_ms {
            Some(healed_ms) => Linked::stretch(text::moment_ms(healed_ms), healed_ms, healed_ms),
            None if took_hold => "not healed".into(),
            None => "–".into(),
        },
        outcome: fault.came_to(),
        effect: match parameters(&fault.effect) {
            measured if !measured.is_empty() => Linked::to(measured, "schedule.json"),
            _ if took_hold => "nothing measured".into(),
            _ => "–".into(),
        },
        had_effect: fault.had_effect(),
        reason: text::printable(fault.reason.as_deref().unwrap_or_default()),
        recovery: match (measured.map(recovery), fault.healed_at_ms) {
            (Some(told), Some(healed_ms)) => Linked::stretch(told, healed_ms, healed_ms),
            (told, _) => told.unwrap_or_default().into(),
        },
    }
}

/// How long nothing succeeded, while a fault was there and after it.
fn recovery(measured: &Value) -> String {
    let duration = |name: &str| {
        let duration_ms = measured[name].as_f64()?;
        Some(text::latency_ns((duration_ms * 1e6) as u64))
    };
    let after = match duration("recovery_ms") {
        Some(after) => format!("{after} after it"),
        None => "never after it".into(),
    };
    match duration("outage_ms") {
        Some(outage) => format!("{after}; up to {outage} without success"),
        None => after,
    }
}

/// When a fault that never started should have.
fn planned(trigger: &Trigger) -> String {
    match &trigger.on {
        None => text::moment_ms(trigger.at_ms),
        Some(on) => format!("on {}", on.event.name()),
    }
}

/// `shape one-node, style hold`
fn parameters(parameters: &Map<String, Value>) -> String {
    let words = parameters.iter().map(|(name, value)| quantity(name, value));
    words.collect::<Vec<_>>().join(", ")
}

/// Concrete targets: links by their ends, nodes as a list, clocks with their settings. What stands there as it was
/// asked for is not told again.
fn targets(targets: &Map<String, Value>, asked: &Map<String, Value>) -> String {
    let mut parts = Vec::new();
    let news = targets
        .iter()
        .filter(|(name, value)| asked.get(*name) != Some(*value));
    for (name, value) in news {
        if (name.as_str(), value) == (LEADER_UNKNOWN, &Value::Bool(true)) {
            continue;
        }
        let known = match name.as_str() {
            "cut" | "links" => links(value),
            "nodes" => list(value),
            "clocks" => clocks(value),
            _ => None,
        };
        parts.push(known.unwrap_or_else(|| quantity(name, value)));
    }
    let is_stand_in = targets.get(LEADER_UNKNOWN) == Some(&Value::Bool(true));
    match (is_stand_in, targets.get("nodes").and_then(list)) {
        (false, _) => parts.join("; "),
        (true, Some(node)) if parts == [node.as_str()] && !node.contains(',') => {
            format!("no leader was known, so {node} was drawn")
        }
        (true, _) => {
            parts.push("no leader was known, so a node was drawn in its place".into());
            parts.join("; ")
        }
    }
}

/// Links as pairs of ends; `None` for anything else.
fn links(value: &Value) -> Option<String> {
    let mut pairs = Vec::new();
    for link in value.as_array()? {
        let ends = link.as_array()?;
        let [from, to] = ends.as_slice() else {
            return None;
        };
        pairs.push((from.as_str()?, to.as_str()?));
    }
    Some(text::printable(&cuts::told(&pairs)))
}

fn list(value: &Value) -> Option<String> {
    let items: Vec<_> = value.as_array()?.iter().map(compact).collect();
    Some(items.join(", "))
}

/// `n1 −300 ms ×1.2`
fn clocks(value: &Value) -> Option<String> {
    let mut told = Vec::new();
    for clock in value.as_array()? {
        let node = clock.get("node")?.as_str()?;
        let offset_ms = clock.get("offset_ms")?.as_f64()?;
        let rate = clock.get("rate")?.as_f64()?;
        let sign = if offset_ms < 0.0 { '−' } else { '+' };
        told.push(format!("{node} {sign}{} ms ×{rate}", offset_ms.abs()));
    }
    Some(text::printable(&told.join(", ")))
}

fn compact(value: &Value) -> String {
    match value {
        Value::Array(items)
            if items
                .iter()
                .all(|item| !item.is_array() && !item.is_object()) =>
        {
            items.iter().map(text::plain).collect::<Vec<_>>().join(", ")
        }
        other => text::shortened(&text::plain(other), 300),
    }
}

/// `offset −300 ms` for a member `offset_ms`: the unit goes where people expect it.
fn quantity(name: &str, value: &Value) -> String {
    if let Some(size_bytes) = value.as_u64()
        && let Some(name) = name
            .strip_suffix("_bytes")
            .or_else(|| name.strip_prefix("bytes_"))
    {
        return format!("{} {}", words(name), byte_size::shown(size_bytes));
    }
    let units = [("_ms", "ms"), ("_ns", "ns")];
    let split = units
        .into_iter()
        .find_map(|(suffix, unit)| Some((name.strip_suffix(suffix)?, unit)));
    match split {
        Some((name, unit)) if value.is_number() => {
            format!(
                "{} {} {unit}",
                words(name),
                compact(value).replace('-', "−")
            )
        }
        _ => format!("{} {}", words(name), compact(value)),
    }
}

fn words(name: &str) -> String {
    text::printable(&name.replace('_', " "))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn only_row(json: &str) -> FaultRow {
        row(&serde_json::from_str(json).unwrap(), None)
    }

    #[test]
    fn the_recovery_of_a_fault_stands_in_its_row() {
        let faults: Vec<ScheduledFault> = serde_json::from_str(
            r#"[{"id":4,"trigger":{"at_ms":1},"duration_ms":1,"fault":{"kind":"kill"}},
                {"id":5,"trigger":{"at_ms":1},"duration_ms":1,"fault":{"kind":"kill"}}]"#,
        )
        .unwrap();
        let verdict: Verdict = serde_json::from_str(
            r#"{"valid":true,"checkers":{"liveness":{"valid":true,"summary":"","properties":{"fault-recovery":
                {"valid":true,"title":"","checked":1,"evidence":{"by_fault":
                {"4":{"recovery_ms":3.25,"outage_ms":812.5}}}}}}}}"#,
        )
        .unwrap();
        let told = rows(&faults, Some(&verdict));
        assert_eq!(
            told[0].recovery.text,
            "3.2 ms after it; up to 812 ms without success"
        );
        assert_eq!(told[1].recovery.text, "");
    }

    #[test]
    fn a_partition_tells_which_links_were_cut_in_which_direction() {
        let told = only_row(
            r#"{"id":4,"trigger":{"at_ms":5000},"duration_ms":7000,
                "fault":{"kind":"partition","shape":"one-node","style":"hold"},
                "resolved":{"at_ms":5003,"style":"hold","cut":[["n1","n3"],["n3","n1"],["n2","n3"]]},
                "outcome":"installed","healed_at_ms":12004,"effect":{"bytes_held":18233}}"#,
        );
        assert_eq!(told.asked, "shape one-node, style hold");
        assert_eq!(told.resolved, "n1 ↔ n3, n2 → n3", "the style was asked for");
        assert_eq!(
            (told.start.text.as_str(), told.end.text.as_str()),
            ("5.003 s", "12.004 s")
        );
        assert_eq!(told.effect.text, "held 17.8 KiB");
        assert!(told.had_effect);
    }

    #[test]
    fn clocks_and_unknown_targets_are_readable() {
        let told = only_row(
            r#"{"id":1,"trigger":{"at_ms":1},"duration_ms":1,"fault":{"kind":"clock-skew"},
                "resolved":{"at_ms":2,"clocks":[{"node":"n1","offset_ms":-300,"rate":1.2}],
                "leader_unknown":true},
                "outcome":"installed"}"#,
        );
        let expected = "n1 −300 ms ×1.2; no leader was known, so a node was drawn in its place";
        assert_eq!(told.resolved, expected);
        assert_eq!(told.end.text, "not healed");
        assert_eq!(told.effect.text, "nothing measured");
    }

    #[test]
    fn a_node_that_stands_in_for_an_unknown_leader_is_told_as_that() {
        let told = told(
            &serde_json::from_str(
                r#"{"id":1,"trigger":{"at_ms":1},"duration_ms":1,"fault":{"kind":"kill","targets":"leader"},
                    "resolved":{"at_ms":2,"nodes":["n2"],"leader_unknown":true},"outcome":"installed"}"#,
            )
            .unwrap(),
        );
        let expected = "kill (targets leader): no leader was known, so n2 was drawn";
        assert_eq!(told, expected);
    }

    #[test]
    fn a_fault_that_waited_for_an_event_names_it() {
        let told = only_row(
            r#"{"id":2,"trigger":{"on":"became-leader"},"duration_ms":1,"fault":{"kind":"link",
                "delay_ms":80}}"#,
        );
        assert_eq!(told.start.text, "on became-leader");
        assert_eq!(told.asked, "delay 80 ms");
    }

    #[test]
    fn a_fault_whose_moment_never_came_says_so() {
        let told = only_row(
            r#"{"id":9,"trigger":{"at_ms":61000},"duration_ms":1,
                "fault":{"kind":"kill","targets":["n1","n2"]}}"#,
        );
        assert_eq!(told.outcome, "never started");
        assert_eq!(told.start.text, "61.000 s");
        assert!(!told.began);
        assert_eq!(told.asked, "targets n1, n2");
        assert_eq!(told.end.text, "–");
    }
}
