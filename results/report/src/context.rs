//! Owns what else happened at the time of a violation: the faults and the leaders of that moment.
//! Never claims that one caused the other.

use serde_json::Value;

use crate::faults;
use crate::linked::Linked;
use crate::reading::Run;
use crate::text;

/// More lines than this help nobody; the plots show the rest.
const LINE_COUNT_MAX: usize = 12;

/// What was going on while the operations of `evidence` ran; empty for evidence without any.
pub(crate) fn lines(evidence: &Value, run: &Run) -> Vec<Linked> {
    let Some((from_ns, to_ns)) = window(evidence) else {
        return Vec::new();
    };
    let mut moments = leaders(run, from_ns, to_ns);
    for (fault, row) in run.faults.iter().zip(faults::rows(&run.faults, None)) {
        let Some(resolved) = &fault.resolved else {
            continue;
        };
        let start_ns = resolved.at_ms.saturating_mul(1_000_000);
        let healed_ns = fault.healed_at_ms.map(|ms| ms.saturating_mul(1_000_000));
        if start_ns > to_ns || healed_ns.is_some_and(|healed_ns| healed_ns < from_ns) {
            continue;
        }
        let end = match healed_ns {
            Some(_) => format!("to {}", row.end.text),
            None => "and was not healed".to_owned(),
        };
        let line = format!(
            "fault #{}, {} ({}): {} from {} {end}",
            row.id, row.kind, row.asked, row.resolved, row.start.text
        );
        let line = Linked::faults(text::shortened(&line, 300), &[row.id]);
        moments.push((start_ns, line));
    }
    moments.sort_by(|(one_ns, one), (other_ns, other)| {
        (one_ns, &one.text).cmp(&(other_ns, &other.text))
    });
    let surplus_count = moments.len().saturating_sub(LINE_COUNT_MAX);
    let mut lines: Vec<_> = moments
        .into_iter()
        .take(LINE_COUNT_MAX)
        .map(|(_, line)| line)
        .collect();
    if surplus_count > 0 {
        lines.push(format!("… and {surplus_count} more").into());
    }
    lines
}

/// From the first invocation to the last completion; the moment of an event where there are no operations.
fn window(evidence: &Value) -> Option<(u64, u64)> {
    let time = |told: &Value, name| told.get(name).and_then(Value::as_u64);
    let event_ns = evidence.get("event").and_then(|event| time(event, "time"));
    let at_ns = time(evidence, "time").or(event_ns);
    let operations = evidence.get("operations").and_then(Value::as_array);
    let Some(operations) = operations.filter(|list| !list.is_empty()) else {
        return at_ns.map(|at_ns| (at_ns, at_ns));
    };
    let from_ns = operations
        .iter()
        .filter_map(|one| time(one, "invoked_ns"))
        .min()?;
    let to_ns = operations
        .iter()
        .filter_map(|one| time(one, "completed_ns").or_else(|| time(one, "invoked_ns")))
        .max()?;
    Some((from_ns, to_ns))
}

/// The leader elected last before the window, and all that were elected in it.
fn leaders(run: &Run, from_ns: u64, to_ns: u64) -> Vec<(u64, Linked)> {
    let mut won: Vec<_> = run
        .nodes
        .iter()
        .flat_map(|node| {
            let won = node.elections_won.iter();
            won.map(move |(at_ns, epoch)| (*at_ns, *epoch, &node.node))
        })
        .filter(|(at_ns, ..)| *at_ns <= to_ns)
        .collect();
    won.sort();
    let before_count = won.iter().filter(|(at_ns, ..)| *at_ns < from_ns).count();
    won.drain(..before_count.saturating_sub(1));
    let told = won.into_iter().map(|(at_ns, epoch, node)| {
        let at = text::moment_ns(at_ns);
        let node = text::printable(node);
        let line = format!("{node} elected leader of epoch {epoch} at {at}");
        (at_ns, Linked::moment(line, at_ns))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    #[test]
    fn evidence_happens_while_its_operations_run_or_at_its_event() {
        let operations = json!({"operations": [
            {"invoked_ns": 5, "completed_ns": 9}, {"invoked_ns": 7, "completed_ns": null}]});
        assert_eq!(window(&operations), Some((5, 9)));
        let event = json!({"event": {"node": "n1", "time": 77}, "operations": []});
        assert_eq!(window(&event), Some((77, 77)));
        assert_eq!(window(&json!({"time": 78})), Some((78, 78)));
        assert_eq!(window(&json!({"count": 3})), None);
    }
}
