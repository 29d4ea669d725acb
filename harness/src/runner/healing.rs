//! Owns what a schedule says of a fault once it was taken back, or could not be.
//! Never takes anything back.

use nemesis::fault::Fault;
use results::schedule::{FaultOutcome, ScheduledFault};

use crate::world::HealReport;

/// What the reason of a fault begins with that could not be taken back when it was to be.
const NOT_HEALED: &str = "not healed: ";
/// Kinds of faults that are over for certain once every node runs, unstopped, with a disk that works and a true
/// clock.
const OVER_ONCE_IN_ORDER: [&str; 8] = [
    "kill",
    "kill-clean",
    "restart",
    "pause",
    "slow",
    "disk",
    "clock-skew",
    "clock-strobe",
];

/// Notes what came of taking a fault back, at `now_ms` since the run started.
pub(super) fn note(fault: &mut ScheduledFault, report: HealReport, now_ms: u64) {
    fault.effect.extend(report.effect);
    match report.problem {
        None => {
            fault.healed_at_ms = Some(now_ms);
            doubt(fault);
        }
        Some(problem) => fault.reason = Some(format!("{NOT_HEALED}{problem}")),
    }
}

/// Notes that every node was put in order by `now_ms` since the run started: what could not be taken back before
/// is over by then.
pub(super) fn note_order(fault: &mut ScheduledFault, now_ms: u64) {
    let reason = fault.reason.as_deref().unwrap_or_default();
    let Some(problem) = reason.strip_prefix(NOT_HEALED) else {
        return;
    };
    if fault.healed_at_ms.is_none() && OVER_ONCE_IN_ORDER.contains(&fault.fault.kind.as_str()) {
        let reason = format!("healed only when all nodes were put in order: {problem}");
        fault.healed_at_ms = Some(now_ms);
        fault.reason = Some(reason);
    }
}

/// A fault that was there, and of which nothing was seen, may as well not have been.
fn doubt(fault: &mut ScheduledFault) {
    if fault.outcome != Some(FaultOutcome::Installed) || fault.had_effect() {
        return;
    }
    let asked = Fault::from_description(&fault.fault);
    if let Some(reason) = asked.ok().and_then(|asked| asked.without_effect()) {
        fault.outcome = Some(FaultOutcome::Indeterminate);
        fault.reason = Some(reason.to_owned());
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Map, json};

    use super::*;

    fn fault(kind: &str) -> ScheduledFault {
        let fault = json!({
            "id": 1, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": kind},
            "outcome": "installed", "effect": {"killed_count": 1},
        });
        serde_json::from_value(fault).unwrap()
    }

    fn report(problem: Option<&str>) -> HealReport {
        HealReport {
            problem: problem.map(str::to_owned),
            effect: Map::new(),
        }
    }

    #[test]
    fn what_could_not_be_healed_is_healed_once_its_nodes_are_in_order() {
        let mut kill = fault("kill-clean");
        note(&mut kill, report(Some("n1 did not answer")), 10);
        assert_eq!(kill.healed_at_ms, None);
        note_order(&mut kill, 90);
        assert_eq!(kill.healed_at_ms, Some(90));
        let told = "healed only when all nodes were put in order: n1 did not answer";
        assert_eq!(kill.reason.as_deref(), Some(told));
    }

    #[test]
    fn order_of_the_nodes_heals_neither_links_nor_voters_nor_what_nobody_tried_to_heal() {
        for kind in ["partition", "membership"] {
            let mut lasting = fault(kind);
            note(&mut lasting, report(Some("nobody leads")), 10);
            note_order(&mut lasting, 90);
            assert_eq!(lasting.healed_at_ms, None, "{kind}");
            assert_eq!(lasting.reason.as_deref(), Some("not healed: nobody leads"));
        }
        let mut untouched = fault("pause");
        note_order(&mut untouched, 90);
        assert_eq!(untouched.healed_at_ms, None);
        let mut healed = fault("pause");
        note(&mut healed, report(None), 10);
        note_order(&mut healed, 90);
        assert_eq!(healed.healed_at_ms, Some(10));
    }
}
