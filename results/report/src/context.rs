//! Owns what else happened at the time of a violation: the faults and the leaders of that moment.
//! Never claims that one caused the other.

use results::schedule::ScheduledFault;
use results::store::RunFolder;
use results::verdict::{CheckerResult, Validity, Verdict};
use serde_json::Value;

use crate::faults;
use crate::linked::Linked;
use crate::reading;
use crate::text;
use crate::timeline::{NodeState, NodeTimeline};

/// More lines than this help nobody; the plots show the rest.
const LINE_COUNT_MAX: usize = 12;
/// Longest line, in characters.
const LINE_LENGTH_MAX: usize = 300;

/// What went on besides, at any time of a run.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Background<'a> {
    /// Faults.
    pub(crate) faults: &'a [ScheduledFault],
    /// The lives of the nodes.
    pub(crate) nodes: &'a [NodeTimeline],
}

/// What went on when the violation happened that `verdict` tells first: a line for each fault and each leader of that
/// moment. Empty without one, or where its evidence names no time.
pub fn at_that_time(
    folder: &RunFolder,
    verdict: &Verdict,
    faults: &[ScheduledFault],
) -> Vec<String> {
    if violated_at_ns(verdict).is_none() {
        return Vec::new();
    }
    let nodes = reading::lives(folder, faults);
    let background = Background {
        faults,
        nodes: &nodes,
    };
    let lines = of_verdict(verdict, background).into_iter();
    lines.map(|line| line.text).collect()
}

/// When the violation that `verdict` tells first was over, in nanoseconds since the run started; `None` if its
/// evidence does not say when.
pub fn violated_at_ns(verdict: &Verdict) -> Option<u64> {
    let (_, to_ns) = window(told(verdict)?)?;
    Some(to_ns)
}

/// What went on when the violation happened that `verdict` tells first.
pub(crate) fn of_verdict(verdict: &Verdict, background: Background<'_>) -> Vec<Linked> {
    told(verdict).map_or_else(Vec::new, |evidence| lines(evidence, background))
}

/// The evidence of the violation that `verdict` tells first, as far as it says when that happened.
fn told(verdict: &Verdict) -> Option<&Value> {
    let told = verdict.told().map(|(name, _)| name);
    let mut invalid = verdict.checkers.iter().filter(|(_, result)| failed(result));
    let first = invalid
        .clone()
        .find(|(name, _)| told == Some(name.as_str()));
    let (_, result) = first.or_else(|| invalid.next())?;
    broken(result).find(|evidence| window(evidence).is_some())
}

fn failed(result: &CheckerResult) -> bool {
    result.valid == Validity::Invalid
}

/// The evidence of what a checker found broken, its own first.
fn broken(result: &CheckerResult) -> impl Iterator<Item = &Value> {
    let properties = result.properties.values();
    let properties = properties.filter(|property| property.valid == Validity::Invalid);
    let theirs = properties.map(|property| &property.evidence);
    std::iter::once(&result.evidence).chain(theirs)
}

/// What was going on while the operations of `evidence` ran; empty for evidence without any.
pub(crate) fn lines(evidence: &Value, background: Background<'_>) -> Vec<Linked> {
    let Some((from_ns, to_ns)) = window(evidence) else {
        return Vec::new();
    };
    let mut moments = leaders(background.nodes, from_ns, to_ns);
    for fault in background
        .faults
        .iter()
        .filter(|fault| fault.was_injected())
    {
        let Some(resolved) = &fault.resolved else {
            continue;
        };
        let start_ns = resolved.at_ms.saturating_mul(1_000_000);
        let healed_ns = fault.healed_at_ms.map(|ms| ms.saturating_mul(1_000_000));
        if start_ns > to_ns || healed_ns.is_some_and(|healed_ns| healed_ns < from_ns) {
            continue;
        }
        let from = text::moment_ms(resolved.at_ms);
        let span = match fault.healed_at_ms {
            Some(healed_ms) => format!("from {from} to {}", text::moment_ms(healed_ms)),
            None => format!("from {from}, and was not healed"),
        };
        let told = text::shortened(&faults::told(fault), LINE_LENGTH_MAX);
        let line = format!("fault #{}, {span}: {told}", fault.id);
        moments.push((start_ns, Linked::faults(line, &[fault.id])));
    }
    moments.sort_by(|(one_ns, one), (other_ns, other)| {
        (one_ns, &one.text).cmp(&(other_ns, &other.text))
    });
    // What began last is the nearest to the violation.
    let surplus_count = moments.len().saturating_sub(LINE_COUNT_MAX);
    let left_out =
        (surplus_count > 0).then(|| format!("{surplus_count} more that began earlier").into());
    let nearest = moments.into_iter().skip(surplus_count);
    left_out
        .into_iter()
        .chain(nearest.map(|(_, line)| line))
        .collect()
}

/// From the first invocation to the last completion; the moment of an event where there are no operations.
pub(crate) fn window(evidence: &Value) -> Option<(u64, u64)> {
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

/// Whoever took itself for the leader in the window; if nobody did, who did so last before it.
fn leaders(nodes: &[NodeTimeline], from_ns: u64, to_ns: u64) -> Vec<(u64, Linked)> {
    let end_ns = nodes.iter().flat_map(|node| &node.spans);
    let end_ns = end_ns.map(|span| span.to_ns).max();
    let mut reigns: Vec<_> = nodes
        .iter()
        .flat_map(|node| node.spans.iter().map(move |span| (span, node)))
        .filter(|(span, _)| span.state == NodeState::Leader && span.from_ns <= to_ns)
        .collect();
    reigns.sort_by_key(|(span, _)| span.to_ns);
    let at_that_time = reigns
        .iter()
        .filter(|(span, _)| span.to_ns >= from_ns)
        .count();
    reigns.drain(..reigns.len() - at_that_time.max(1).min(reigns.len()));
    let told = reigns.into_iter().map(|(span, node)| {
        let epoch = node.epoch_at(span.from_ns);
        let epoch = epoch.map_or_else(String::new, |epoch| format!(" epoch {epoch}"));
        let until = match Some(span.to_ns) == end_ns {
            true => "the end".to_owned(),
            false => text::moment_ns(span.to_ns),
        };
        let line = format!(
            "{} led{epoch} from {} to {until}",
            text::printable(&node.node),
            text::moment_ns(span.from_ns),
        );
        (span.from_ns, Linked::moment(line, span.from_ns))
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::timeline::Span;

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

    const S: u64 = 1_000_000_000;

    /// Led an epoch from one second to another, and followed from then on until the tenth.
    fn led(node: &str, epoch: i32, from_s: u64, to_s: u64) -> NodeTimeline {
        let span = |from_s, to_s, state| Span {
            from_ns: from_s * S,
            to_ns: to_s * S,
            state,
        };
        let mut life = NodeTimeline::new(node, Vec::new());
        life.epoch_changes = vec![(from_s * S, epoch)];
        life.spans = vec![
            span(from_s, to_s, NodeState::Leader),
            span(to_s, 10, NodeState::Follower),
        ];
        life
    }

    /// The first checker was violated later than the second, which is the one that is told, and the third earlier.
    fn verdict() -> Verdict {
        let result = |at_s: u64| {
            json!({"valid": false, "summary": "bad", "source": "",
                "evidence": {"time": at_s * S}})
        };
        serde_json::from_value(
            json!({"valid": false, "summary": "invalid: linearizable: bad",
            "checkers": {"conformance": result(9), "linearizable": result(5), "zeal": result(2)}}),
        )
        .unwrap()
    }

    #[test]
    fn the_violation_that_is_told_comes_with_the_faults_and_leaders_of_its_time() {
        let faults: Vec<ScheduledFault> = serde_json::from_value(json!([
            {"id": 3, "trigger": {"at_ms": 4000}, "duration_ms": 2000, "outcome": "installed",
             "fault": {"kind": "partition", "shape": "one-node"}, "healed_at_ms": 6000,
             "resolved": {"at_ms": 4001, "cut": [["n1", "n2"], ["n2", "n1"]]}},
            {"id": 4, "trigger": {"at_ms": 4500}, "duration_ms": 2000, "outcome": "skipped",
             "fault": {"kind": "kill"}, "resolved": {"at_ms": 4500, "nodes": ["n1"]}},
            {"id": 5, "trigger": {"at_ms": 7000}, "duration_ms": 1, "outcome": "installed",
             "fault": {"kind": "kill"}, "resolved": {"at_ms": 7000, "nodes": ["n1"]}}]))
        .unwrap();
        let nodes = [led("n1", 1, 1, 6), led("n2", 2, 5, 10), led("n3", 0, 0, 1)];
        let background = Background {
            faults: &faults,
            nodes: &nodes,
        };
        let told = of_verdict(&verdict(), background);
        let told: Vec<&str> = told.iter().map(|line| line.text.as_str()).collect();
        let expected = [
            "n1 led epoch 1 from 1.000 s to 6.000 s",
            "fault #3, from 4.001 s to 6.000 s: partition (shape one-node): n1 | n2",
            "n2 led epoch 2 from 5.000 s to the end",
        ];
        assert_eq!(told, expected);
        assert_eq!(violated_at_ns(&verdict()), Some(5 * S));
    }

    #[test]
    fn without_a_leader_the_last_one_is_told() {
        let nodes = [led("n1", 1, 1, 2), led("n2", 2, 3, 4)];
        let told = leaders(&nodes, 5 * S, 6 * S);
        assert_eq!(told.len(), 1);
        assert_eq!(told[0].1.text, "n2 led epoch 2 from 3.000 s to 4.000 s");
        assert!(leaders(&[], 5 * S, 6 * S).is_empty());
    }
}
