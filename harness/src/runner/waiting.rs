//! Owns which faults wait that cannot hit anybody yet: how long, and how often they look.
//! Never decides whom a fault hits.

use nemesis::action::Action;
use nemesis::capability::Need;
use nemesis::fault::Fault;
use nemesis::view::ClusterView;
use results::schedule::ScheduledFault;

/// How often a fault that must wait for others to be over looks whether they are.
const BUDGET_LOOK_MS: u64 = 250;
/// How often a fault of nodes that are up to something looks whether there are any: elections are short.
const SIGHT_LOOK_MS: u64 = 40;

/// How often a fault of a replay looks whether its node runs again.
const NODE_LOOK_MS: u64 = 5;
/// How long a fault of a replay waits until its node runs again: longer than another fault usually keeps it down.
const NODE_WAIT_MS: u64 = 3_000;

/// When a fault of a replay looks again, of whose nodes none runs yet: they did when it was recorded, and nodes
/// take different times to start, and crash of a bad disk at different times. Not for ever. All times are
/// milliseconds since the run started.
pub(super) fn awaits_nodes_ms(
    fault: &ScheduledFault,
    action: &Action,
    view: impl FnOnce() -> ClusterView,
    now_ms: u64,
) -> Option<u64> {
    let is_replayed = fault.recorded.is_some() && fault.trigger.on.is_none();
    let nodes = action.needs_running();
    let is_over = now_ms >= fault.trigger.at_ms + NODE_WAIT_MS;
    if !is_replayed || nodes.is_empty() || is_over {
        return None;
    }
    let reach = Fault::from_description(&fault.fault).ok()?.reach();
    let view = view();
    let is_there = |node: &String| view.is_within_reach(node, reach);
    (!nodes.iter().any(is_there)).then_some(now_ms + NODE_LOOK_MS)
}

/// Whether whom a fault hits depends on what only the nodes know.
pub(super) fn needs_sight(fault: &ScheduledFault) -> bool {
    if fault.resolved.is_some() && fault.trigger.on.is_none() {
        return false;
    }
    let parsed = Fault::from_description(&fault.fault);
    let needs = parsed.map_or_else(|_| Vec::new(), |fault| fault.needs());
    let of_nodes = [Need::KnowCandidates, Need::KnowLogEnds];
    needs.iter().any(|need| of_nodes.contains(need))
}

/// When a fault looks again that cannot hit anybody now, if it may be able to later: what may be destroyed, and
/// who may be removed, is different once a lost voter has been replaced or a change is over, for which it waits
/// twice as long as it would last; and somebody may stand for election, or lag, for which it waits as long as it
/// would last. All times are milliseconds since the run started.
pub(super) fn looks_again_ms(fault: &ScheduledFault, now_ms: u64, end_ms: u64) -> Option<u64> {
    let parsed = Fault::from_description(&fault.fault).ok()?;
    let is_bound = parsed.destroys().is_some() && !parsed.is_beyond_budget();
    let waits_for_others = is_bound || matches!(parsed, Fault::Membership { .. });
    let (wait_ms, look_ms) = match waits_for_others {
        true => (2 * fault.duration_ms, BUDGET_LOOK_MS),
        false if needs_sight(fault) => (fault.duration_ms, SIGHT_LOOK_MS),
        false => return None,
    };
    let until_ms = (fault.trigger.at_ms + wait_ms).min(end_ms - end_ms / 10);
    let is_drawn = fault.trigger.on.is_none() && fault.resolved.is_none();
    (is_drawn && now_ms < until_ms).then_some(now_ms + look_ms)
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(fault: &str) -> ScheduledFault {
        let text =
            format!(r#"{{"trigger":{{"at_ms":1000}},"duration_ms":400,"fault":{{{fault}}}}}"#);
        serde_json::from_str(&text).unwrap()
    }

    #[test]
    fn a_replayed_fault_waits_for_its_node_and_not_for_ever() {
        let down = ClusterView {
            down: ["n1".to_owned()].into(),
            ..ClusterView::new(vec!["n1".into(), "n2".into()], None)
        };
        let nodes = |names: &[&str]| names.iter().map(|&name| name.into()).collect();
        let kill = |names: &[&str]| Action::Kill {
            nodes: nodes(names),
        };
        let mut replayed = fault(r#""kind":"kill","targets":["n1"]"#);
        assert_eq!(
            awaits_nodes_ms(&replayed, &kill(&["n1"]), || down.clone(), 1_000),
            None
        );
        let recorded = serde_json::json!({"at_ms": 1_000, "nodes": ["n1"]});
        replayed.recorded = Some(serde_json::from_value(recorded).unwrap());
        let waits =
            |action: &Action, now_ms| awaits_nodes_ms(&replayed, action, || down.clone(), now_ms);
        assert_eq!(waits(&kill(&["n1"]), 1_000), Some(1_005));
        assert_eq!(waits(&kill(&["n1"]), 4_000), None, "it is skipped then");
        assert_eq!(waits(&kill(&["n1", "n2"]), 1_000), None);
        assert_eq!(waits(&kill(&["n2"]), 1_000), None);
        let reset = Action::ResetClocks {
            nodes: nodes(&["n1"]),
        };
        assert_eq!(waits(&reset, 1_000), None);
    }

    #[test]
    fn only_those_wait_for_whom_time_may_change_something_and_not_for_ever() {
        let looks = |text: &str, now_ms| looks_again_ms(&fault(text), now_ms, 10_000);
        assert_eq!(looks(r#""kind":"kill","targets":"leader""#, 1_000), None);
        let wipe = r#""kind":"wipe","targets":"one""#;
        assert_eq!(looks(wipe, 1_700), Some(1_950));
        assert_eq!(looks(wipe, 1_800), None);
        let candidates = r#""kind":"kill","targets":"candidates""#;
        assert_eq!(looks(candidates, 1_300), Some(1_340));
        assert_eq!(looks(candidates, 1_400), None);
        let mut replayed = fault(candidates);
        let resolved = serde_json::json!({"at_ms": 1_000, "nodes": ["n1"]});
        replayed.resolved = Some(serde_json::from_value(resolved).unwrap());
        assert_eq!(looks_again_ms(&replayed, 1_100, 10_000), None);
        let late = looks_again_ms(&fault(wipe), 1_100, 1_200);
        assert_eq!(late, None, "the end of a run is quiet");
    }
}
