//! Owns the question whether the faults that were asked for really happened and were healed.
//! Never judges how the cluster took them.

use std::collections::BTreeMap;

use results::manifest::RunOptions;
use results::schedule::{FaultOutcome, Schedule, ScheduledFault};
use results::standstill::Standstill;
use results::verdict::{CheckerResult, Validity};
use serde_json::json;

use crate::disk_faults::waived_recovery;
use crate::{EVIDENCE_LIST_MAX_COUNT, conclusion, counted, replayed};

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
/// Who names a family wants to know what it does, and a run without it does not tell. Who asks for all, or
/// has them drawn, wants many different runs: in a short one a rare family may come to nothing, as when the
/// leader that it asks for is not known or another fault holds its node, and the run is still a test of the
/// others. So it is valid if some fault had an effect, and says which kinds had none; over many seeds every
/// family has its turn, which a campaign counts.
///
/// Where the faults are those of another run, `standstills` tells which times are off because the machine stood
/// still.
pub fn check(
    schedule: &Schedule,
    options: &RunOptions,
    standstills: &[Standstill],
) -> CheckerResult {
    let mut result = judge(schedule, &options.nemesis, options.nemesis_is_a_pool);
    if let Some(replayed) = replayed::compare(schedule, standstills) {
        result.summary.push_str(&format!("; {replayed}"));
        result.evidence["replayed"] = json!(replayed);
    }
    result
}

fn judge(schedule: &Schedule, asked_for: &[String], is_pool: bool) -> CheckerResult {
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
    let is_recovery_owed = waived_recovery(schedule).is_none();
    let (unhealed, lasting): (Vec<_>, Vec<_>) = unhealed(schedule)
        .into_iter()
        .partition(|fault| is_recovery_owed || !is_healed_by_voters(fault));
    let mut told = format!(
        "{} of {} had an effect",
        all.with_effect,
        counted(all.asked, "fault")
    );
    told.extend(lasting.first().map(|fault| {
        format!(
            "; fault {} ({}) was never healed, as a majority that was lost would have to",
            fault.id, fault.fault.kind
        )
    }));
    let mut idle = without_effect(schedule, &kinds);
    if is_pool && all.with_effect > 0 {
        told.extend(idle.take().map(|idle| format!("; {idle}")));
    }
    let problems: Vec<String> = idle.into_iter().chain(left_behind(&unhealed)).collect();
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

/// Whether healing it takes voters that commit: without a majority nobody can.
fn is_healed_by_voters(fault: &ScheduledFault) -> bool {
    ["wipe", "membership"].contains(&fault.fault.kind.as_str())
}

fn unhealed(schedule: &Schedule) -> Vec<&ScheduledFault> {
    let faults = schedule.faults.iter();
    faults
        .filter(|fault| fault.was_injected() && fault.healed_at_ms.is_none())
        .collect()
}

/// The kinds of which no fault had an effect, for people.
fn without_effect(schedule: &Schedule, kinds: &BTreeMap<&str, Counts>) -> Option<String> {
    let without: Vec<&str> = kinds
        .iter()
        .filter(|(_, counts)| counts.with_effect == 0)
        .map(|(kind, _)| *kind)
        .collect();
    let first = without.first()?;
    Some(format!(
        "no fault of kind {} had any effect{}",
        without.join(", "),
        why_not(schedule, first)
    ))
}

/// The faults that were still there at the end, for people.
fn left_behind(unhealed: &[&ScheduledFault]) -> Option<String> {
    let first = unhealed.first()?;
    Some(format!(
        "fault {} ({}) was never healed{}",
        first.id,
        first.fault.kind,
        match unhealed.len() - 1 {
            0 => String::new(),
            more => format!(", nor were {more} more"),
        }
    ))
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
        let result = judge(
            &schedule(vec![
                fault(1, "kill", "installed", 3, true),
                fault(2, "kill", "skipped", 0, false),
                fault(3, "pause", "installed", 1, true),
                fault(4, "pause", "", 0, false),
            ]),
            &[],
            false,
        );
        assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
        let kill = &result.evidence["by_kind"]["kill"];
        assert_eq!((&kill["asked"], &kill["skipped"]), (&json!(2), &json!(1)));
        assert_eq!(result.evidence["by_kind"]["pause"]["never_started"], 1);
    }

    #[test]
    fn a_kind_without_effect_is_named_with_its_reason() {
        let result = judge(
            &schedule(vec![
                fault(1, "kill", "installed", 3, true),
                fault(2, "pause", "installed", 0, true),
            ]),
            &[],
            false,
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
    fn of_a_pool_any_effect_is_enough_and_what_had_none_is_named() {
        let pause = fault(2, "pause", "installed", 0, true);
        let faults = vec![fault(1, "kill", "installed", 3, true), pause.clone()];
        let result = judge(&schedule(faults), &[], true);
        assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
        let told = "no fault of kind pause had any effect (fault 2: nobody leads)";
        assert!(result.summary.contains(told), "{}", result.summary);
        let alone = judge(&schedule(vec![pause]), &[], true);
        assert_eq!(alone.valid, Validity::Unknown, "{}", alone.summary);
        let left = vec![fault(1, "kill", "installed", 3, false)];
        assert_eq!(judge(&schedule(left), &[], true).valid, Validity::Unknown);
    }

    #[test]
    fn a_fault_left_behind_is_named() {
        for outcome in ["installed", "indeterminate"] {
            let mut faults = vec![fault(1, "kill", "installed", 3, true)];
            faults.push(fault(9, "kill", outcome, 1, false));
            let result = judge(&schedule(faults), &[], false);
            assert_eq!(result.valid, Validity::Unknown);
            assert!(result.summary.contains("fault 9 (kill) was never healed"));
        }
    }

    #[test]
    fn what_only_voters_heal_may_stay_where_a_majority_was_destroyed() {
        let judged = |kind: &str, is_beyond: bool| {
            let mut wipe = fault(1, "wipe", "installed", 1, true);
            let parameters = &mut wipe.fault.parameters;
            parameters.insert("beyond_budget".into(), is_beyond.into());
            wipe.effect
                .insert("n1_new_directory_id".into(), "AAAA".into());
            wipe.resolved = serde_json::from_value(json!({"at_ms": 1, "nodes": ["n1"]})).ok();
            let faults = vec![wipe, fault(2, kind, "installed", 1, false)];
            judge(&schedule(faults), &[], false)
        };
        let lasting = judged("wipe", true);
        assert_eq!(lasting.valid, Validity::Valid, "{}", lasting.summary);
        let told = "fault 2 (wipe) was never healed, as a majority that was lost";
        assert!(lasting.summary.contains(told), "{}", lasting.summary);
        assert_eq!(judged("wipe", false).valid, Validity::Unknown);
        assert_eq!(judged("pause", true).valid, Validity::Unknown);
    }

    #[test]
    fn no_faults_are_valid_only_if_none_were_asked_for() {
        let none = schedule(Vec::new());
        let quiet = judge(&none, &[], false);
        assert_eq!(quiet.valid, Validity::Valid);
        assert_eq!(quiet.summary, "no faults were asked for");
        assert_eq!(
            judge(&none, &["kill".into()], false).valid,
            Validity::Unknown
        );
    }
}
