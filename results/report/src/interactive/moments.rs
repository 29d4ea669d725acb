//! Owns which moments of a run are worth looking at: violations first, then changes of the leader.
//! Never ranks one violation above another.

use results::verdict::{CheckerResult, Validity};
use serde_json::Value;

use crate::context;
use crate::evidence;
use crate::reading::Run;
use crate::text;

/// More elections than this make a list that nobody reads.
const ELECTION_COUNT_MAX: usize = 200;

/// Longest label, in characters: what a checker says of a violation, as a rule in full.
const LABEL_LENGTH_MAX: usize = 600;

/// A stretch of time to look at.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Moment {
    /// What happened, for people.
    pub(crate) label: String,
    /// Whether a property was violated then.
    pub(crate) violation: bool,
    /// Nanoseconds since the run started.
    pub(crate) from_ns: u64,
    /// Nanoseconds since the run started.
    pub(crate) to_ns: u64,
    /// Operations that are part of it, by the position of their invocation in the history.
    pub(crate) indices: Vec<u64>,
    /// The one at which no order remained possible.
    pub(crate) failing: Option<u64>,
}

/// All moments of `run`: violations in order of time, then elections in order of time.
pub(crate) fn moments(run: &Run) -> Vec<Moment> {
    let mut violations = Vec::new();
    let checkers = run.verdict.iter().flat_map(|verdict| &verdict.checkers);
    for (name, result) in checkers {
        violations.extend(violations_of(name, result));
    }
    violations.sort_by_key(|moment| (moment.from_ns, moment.to_ns));
    let mut elections: Vec<_> = run
        .nodes
        .iter()
        .flat_map(|node| {
            let won = node.elections_won.iter();
            won.map(move |(at_ns, epoch)| (*at_ns, *epoch, &node.node))
        })
        .collect();
    elections.sort_unstable();
    elections.truncate(ELECTION_COUNT_MAX);
    let elections = elections.into_iter().map(|(at_ns, epoch, node)| Moment {
        label: format!("{} becomes leader of epoch {epoch}", text::printable(node)),
        violation: false,
        from_ns: at_ns,
        to_ns: at_ns,
        indices: Vec::new(),
        failing: None,
    });
    violations.extend(elections);
    violations
}

/// A checker repeats the evidence of its properties; that is one moment, under the property's name.
fn violations_of(name: &str, result: &CheckerResult) -> Vec<Moment> {
    let mut found: Vec<Moment> = Vec::new();
    let invalid = result
        .properties
        .iter()
        .filter(|(_, property)| property.valid == Validity::Invalid);
    found.extend(invalid.filter_map(|(id, property)| {
        let label = format!("{name} {id}: {}", property.title);
        moment(&label, &property.evidence)
    }));
    if result.valid == Validity::Invalid
        && let Some(own) = moment(&format!("{name}: {}", result.summary), &result.evidence)
        && !found
            .iter()
            .any(|other| (other.from_ns, other.to_ns) == (own.from_ns, own.to_ns))
    {
        found.push(own);
    }
    found
}

/// When the evidence happened; `None` for evidence that names no time.
fn moment(label: &str, told: &Value) -> Option<Moment> {
    let operations = told.get("operations").and_then(Value::as_array);
    let operations = operations.map(Vec::as_slice).unwrap_or_default();
    let (from_ns, to_ns) = context::window(told)?;
    Some(Moment {
        label: text::shortened(&text::printable(label), LABEL_LENGTH_MAX),
        violation: true,
        from_ns,
        to_ns,
        indices: operations.iter().filter_map(evidence::index_of).collect(),
        failing: told.get("failing_index").and_then(Value::as_u64),
    })
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;

    fn checker(result: Value) -> CheckerResult {
        serde_json::from_value(result).unwrap()
    }

    #[test]
    fn a_violation_spans_its_operations() {
        let result = checker(
            json!({"valid": false, "summary": "stale", "source": "", "evidence": {
            "failing_index": 9, "operations": [
                {"index": 4, "invoked_ns": 50, "completed_ns": 60},
                {"index": 9, "invoked_ns": 70, "completed_ns": null}]}}),
        );
        let found = violations_of("linearizable", &result);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].label, "linearizable: stale");
        assert_eq!((found[0].from_ns, found[0].to_ns), (50, 70));
        assert_eq!(
            (found[0].indices.as_slice(), found[0].failing),
            ([4, 9].as_slice(), Some(9))
        );
    }

    #[test]
    fn a_property_and_its_checker_are_one_moment_and_evidence_without_time_is_none() {
        let evidence = json!({"event": {"node": "n1"}, "time": 77});
        let result = checker(json!({"valid": false, "summary": "s", "source": "",
            "evidence": evidence, "properties": {
                "M6": {"valid": false, "title": "reads", "checked": 1, "evidence": evidence},
                "I1": {"valid": true, "title": "leaders", "checked": 1}}}));
        let found = violations_of("epoch-history", &result);
        assert_eq!(found.len(), 1);
        assert_eq!(found[0].label, "epoch-history M6: reads");
        assert_eq!(found[0].from_ns, 77);
        assert_eq!(moment("x", &json!({"count": 3})), None);
    }
}
