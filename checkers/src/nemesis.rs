//! Owns the question whether the faults that were asked for really happened and were healed.
//! Never judges how the cluster took them.

use std::collections::BTreeMap;

use results::schedule::{FaultOutcome, Schedule, ScheduledFault};
use results::verdict::{CheckerResult, Validity};
use serde_json::json;

use crate::{EVIDENCE_LIST_MAX_COUNT, conclusion, counted};

#[derive(Debug, Default, Clone, Copy, serde::Serialize)]
struct Counts {
    asked: u64,
    installed: u64,
    skipped: u64,
    indeterminate: u64,
    never_started: u64,
    with_effect: u64,
    without_effect: u64,
}

impl Counts {
    fn add(&mut self, fault: &ScheduledFault) {
        self.asked += 1;
        match fault.outcome {
            Some(FaultOutcome::Installed) => self.installed += 1,
            Some(FaultOutcome::Skipped) => self.skipped += 1,
            Some(FaultOutcome::Indeterminate) => self.indeterminate += 1,
            None => self.never_started += 1,
        }
        if fault.had_effect() {
            self.with_effect += 1;
        } else {
            self.without_effect += 1;
        }
    }
}

/// Unknown where no fault of some kind had an effect, or a fault was still there at the end.
///
/// `asked_for` are the families of faults in the run's options.
pub fn check(schedule: &Schedule, asked_for: &[String]) -> CheckerResult {
    let source = "a run that asked for a fault it never got proves nothing about that fault";
    let mut all = Counts::default();
    let mut kinds: BTreeMap<&str, Counts> = BTreeMap::new();
    for fault in &schedule.faults {
        all.add(fault);
        kinds.entry(&fault.fault.kind).or_default().add(fault);
    }
    if schedule.faults.is_empty() {
        return if asked_for.is_empty() {
            conclusion(Validity::Valid, source, "no faults were asked for")
        } else {
            let names = asked_for.join(", ");
            conclusion(
                Validity::Unknown,
                source,
                format!("faults were asked for ({names}), but none was scheduled"),
            )
        };
    }
    let without: Vec<&str> = kinds
        .iter()
        .filter(|(_, counts)| counts.with_effect == 0)
        .map(|(kind, _)| *kind)
        .collect();
    let unhealed: Vec<&ScheduledFault> = schedule
        .faults
        .iter()
        .filter(|fault| {
            matches!(
                fault.outcome,
                Some(FaultOutcome::Installed | FaultOutcome::Indeterminate)
            ) && fault.healed_at_ms.is_none()
        })
        .collect();
    let told = format!(
        "{} of {} had an effect",
        all.with_effect,
        counted(all.asked, "fault")
    );
    let mut problems = Vec::new();
    if !without.is_empty() {
        problems.push(format!(
            "no fault of kind {} had any effect{}",
            without.join(", "),
            why_not(schedule, without[0])
        ));
    }
    if let Some(first) = unhealed.first() {
        problems.push(format!(
            "fault {} ({}) was never healed{}",
            first.id,
            first.fault.kind,
            match unhealed.len() - 1 {
                0 => String::new(),
                more => format!(", nor were {more} more"),
            }
        ));
    }
    let mut result = if problems.is_empty() {
        conclusion(Validity::Valid, source, told)
    } else {
        let problems = problems.join("; ");
        conclusion(Validity::Unknown, source, format!("{problems} ({told})"))
    };
    let unhealed_ids: Vec<u64> = unhealed
        .iter()
        .take(EVIDENCE_LIST_MAX_COUNT)
        .map(|fault| fault.id)
        .collect();
    result.evidence = json!({
        "faults": all,
        "by_kind": kinds,
        "unhealed": unhealed_ids,
        "unhealed_count": unhealed.len(),
    });
    result
}

/// What is known about the first fault of a kind that came to nothing.
fn why_not(schedule: &Schedule, kind: &str) -> String {
    let first = schedule
        .faults
        .iter()
        .find(|fault| fault.fault.kind == kind && fault.reason.is_some());
    match first.and_then(|fault| Some((fault.id, fault.reason.as_ref()?))) {
        Some((id, reason)) => format!(" (fault {id}: {reason})"),
        None => String::new(),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn fault(id: u64, kind: &str, outcome: &str, effect: u64, healed: bool) -> ScheduledFault {
        let mut value = json!({
            "id": id, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": kind},
            "effect": {"bytes_held": effect}, "reason": "nobody leads",
        });
        if !outcome.is_empty() {
            value["outcome"] = outcome.into();
        }
        if healed {
            value["healed_at_ms"] = 7.into();
        }
        serde_json::from_value(value).unwrap()
    }

    fn schedule(faults: Vec<ScheduledFault>) -> Schedule {
        Schedule {
            format_version: 1,
            seed: 0,
            faults,
        }
    }

    #[test]
    fn one_effective_fault_of_every_kind_is_enough() {
        let result = check(
            &schedule(vec![
                fault(1, "kill", "installed", 3, true),
                fault(2, "kill", "skipped", 0, false),
                fault(3, "pause", "installed", 1, true),
                fault(4, "pause", "", 0, false),
            ]),
            &[],
        );
        assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
        let kill = &result.evidence["by_kind"]["kill"];
        assert_eq!((&kill["asked"], &kill["skipped"]), (&json!(2), &json!(1)));
        assert_eq!(result.evidence["by_kind"]["pause"]["never_started"], 1);
    }

    #[test]
    fn a_kind_without_effect_is_named_with_its_reason() {
        let result = check(
            &schedule(vec![
                fault(1, "kill", "installed", 3, true),
                fault(2, "pause", "installed", 0, true),
            ]),
            &[],
        );
        assert_eq!(result.valid, Validity::Unknown);
        assert!(
            result
                .summary
                .contains("kind pause had any effect (fault 2: nobody leads)"),
            "{}",
            result.summary
        );
    }

    #[test]
    fn a_fault_left_behind_is_named() {
        for outcome in ["installed", "indeterminate"] {
            let mut faults = vec![fault(1, "kill", "installed", 3, true)];
            faults.push(fault(9, "kill", outcome, 1, false));
            let result = check(&schedule(faults), &[]);
            assert_eq!(result.valid, Validity::Unknown);
            assert!(result.summary.contains("fault 9 (kill) was never healed"));
        }
    }

    #[test]
    fn no_faults_are_valid_only_if_none_were_asked_for() {
        let none = schedule(Vec::new());
        let quiet = check(&none, &[]);
        assert_eq!(quiet.valid, Validity::Valid);
        assert_eq!(quiet.summary, "no faults were asked for");
        assert_eq!(check(&none, &["kill".into()]).valid, Validity::Unknown);
    }
}
