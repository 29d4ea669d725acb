//! Owns the question whether a replay injected the faults of the run that it repeats, and when.
//! Never judges what came of them.

use std::fmt;

use results::schedule::{FaultOutcome, ResolvedFault, Schedule, ScheduledFault};
use results::standstill::Standstill;
use serde_json::{Map, Value, json};

use crate::EVIDENCE_LIST_MAX_COUNT;

/// What a resolved fault says where the leader was not known, and a drawn node stands in for it.
const LEADER_UNKNOWN: &str = "leader_unknown";

/// What a resolved fault of a replay says that had to wait until its node ran: how long, in milliseconds.
pub const WAITED_MS: &str = "waited_ms";

/// How the faults of a replay compare with those that were recorded.
#[derive(Debug, Clone, PartialEq, serde::Serialize)]
pub struct Replayed {
    /// How many faults were injected in the run that is repeated.
    pub recorded_count: u64,
    /// How many of them were injected again, on the same targets, after the same others.
    pub same_count: u64,
    /// How many had to wait until their nodes ran, as they did in that run.
    pub waited_count: u64,
    /// The first that was not the same, for people.
    pub first_difference: Option<String>,
    /// How far off their times were, in the middle, in milliseconds. Faults that events start are left out:
    /// they have no time of their own.
    pub median_off_ms: Option<u64>,
    /// How far off the time was that was farthest off, in milliseconds.
    pub longest_off_ms: Option<u64>,
    /// Why that one was late, if the machine stood still then; for people.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub late_because: Option<String>,
    /// By id, for as many as a list of evidence may have: how far off, in milliseconds; below 0 for too early.
    pub off_ms: Map<String, Value>,
}

impl Replayed {
    /// Whether all faults were the same, whenever they were injected.
    pub fn is_same(&self) -> bool {
        self.same_count == self.recorded_count
    }
}

impl fmt::Display for Replayed {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            recorded_count,
            same_count,
            ..
        } = self;
        write!(out, "same faults: {same_count} of {recorded_count}")?;
        if let (Some(median), Some(longest)) = (self.median_off_ms, self.longest_off_ms) {
            write!(
                out,
                ", off by {median} ms at the median and {longest} ms at most"
            )?;
            if let Some(because) = &self.late_because {
                write!(out, " ({because})")?;
            }
        }
        if self.waited_count > 0 {
            write!(out, ", {} waited for nodes to run", self.waited_count)?;
        }
        match &self.first_difference {
            Some(difference) => write!(out, "; first difference: {difference}"),
            None => Ok(()),
        }
    }
}

/// Compares the faults of a replay with those that were recorded; nothing where the schedule is none of a
/// replay, or nothing was injected in the run that it repeats.
///
/// `standstills` are those of the replay.
pub fn compare(schedule: &Schedule, standstills: &[Standstill]) -> Option<Replayed> {
    let recorded = schedule.faults.iter();
    let recorded = recorded.filter_map(|fault| Some((fault, fault.recorded.as_ref()?)));
    let mut pairs: Vec<(&ScheduledFault, &ResolvedFault)> = recorded.collect();
    if pairs.is_empty() {
        return None;
    }
    pairs.sort_by_key(|(_, recorded)| recorded.at_ms);
    let (mut same_count, mut waited_count) = (0, 0);
    let mut first_difference = None;
    let mut off_ms = Vec::new();
    let mut farthest: Option<(u64, u64)> = None;
    let mut latest: Option<(u64, u64)> = None;
    for (fault, recorded) in &pairs {
        let now = fault.resolved.as_ref().filter(|_| fault.was_injected());
        let mut difference = difference(fault, recorded, now);
        if let Some(now) = now {
            if recorded.event.is_none() {
                off_ms.push((fault.id, now.at_ms as i64 - recorded.at_ms as i64));
                let off = |(from_ms, to_ms): (u64, u64)| to_ms.abs_diff(from_ms);
                let times = (recorded.at_ms, now.at_ms);
                if farthest.is_none_or(|farthest| off(times) > off(farthest)) {
                    farthest = Some(times);
                }
            }
            match latest {
                // Whatever came while it waited did not come before it for another reason.
                _ if now.targets.contains_key(WAITED_MS) => waited_count += 1,
                Some((other, at_ms)) if at_ms > now.at_ms => {
                    difference.get_or_insert_with(|| format!("came before fault {other}"));
                }
                _ => latest = Some((fault.id, now.at_ms)),
            }
        }
        match difference {
            None => same_count += 1,
            Some(difference) => {
                let kind = &fault.fault.kind;
                first_difference
                    .get_or_insert_with(|| format!("fault {} ({kind}) {difference}", fault.id));
            }
        }
    }
    let mut distances: Vec<u64> = off_ms.iter().map(|(_, off)| off.unsigned_abs()).collect();
    distances.sort_unstable();
    Some(Replayed {
        recorded_count: pairs.len() as u64,
        same_count,
        waited_count,
        first_difference,
        median_off_ms: distances.get(distances.len() / 2).copied(),
        longest_off_ms: distances.last().copied(),
        late_because: farthest.and_then(|times| standstill_between(times, standstills)),
        off_ms: off_ms
            .iter()
            .take(EVIDENCE_LIST_MAX_COUNT)
            .map(|(id, off)| (id.to_string(), json!(off)))
            .collect(),
    })
}

/// The standstill of the machine that made something late by most of the time between these two, in milliseconds.
fn standstill_between((due_ms, at_ms): (u64, u64), all: &[Standstill]) -> Option<String> {
    let shared_ms = |one: &Standstill| {
        let (from_ms, until_ms) = (one.from_ns() / 1_000_000, one.until_ns.div_ceil(1_000_000));
        at_ms.min(until_ms).saturating_sub(due_ms.max(from_ms))
    };
    let longest = all.iter().max_by_key(|one| shared_ms(one))?;
    let is_most = 2 * shared_ms(longest) > at_ms.saturating_sub(due_ms);
    is_most.then(|| format!("the machine {longest}"))
}

/// Whom a fault hit, and how. That they had to be guessed makes them no others.
fn hit(resolved: &ResolvedFault) -> Value {
    let mut targets = resolved.targets.clone();
    targets.remove(LEADER_UNKNOWN);
    targets.remove(WAITED_MS);
    Value::Object(targets)
}

/// What is different about a fault, apart from its time, for people.
fn difference(
    fault: &ScheduledFault,
    recorded: &ResolvedFault,
    now: Option<&ResolvedFault>,
) -> Option<String> {
    let Some(now) = now else {
        let reason = fault.reason.as_ref();
        let because = reason.map_or_else(String::new, |reason| format!(": {reason}"));
        return Some(match fault.outcome {
            Some(FaultOutcome::Skipped) => format!("was skipped{because}"),
            _ => format!("never started{because}"),
        });
    };
    let (before, now) = (hit(recorded), hit(now));
    (now != before).then(|| format!("hit {before} in the run that is repeated, and {now} now"))
}

#[cfg(test)]
mod tests {
    use super::*;

    /// A fault with when, and whom, it hit in the recorded run and now.
    fn fault(id: u64, recorded: Value, now: Value, outcome: &str) -> Value {
        let mut fault = json!({
            "id": id, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "kill"},
            "recorded": recorded, "resolved": now, "outcome": outcome,
        });
        if now.is_null() {
            fault["resolved"].take();
            fault["reason"] = json!("n1 does not run");
        }
        fault
    }

    fn hit(at_ms: u64, node: &str) -> Value {
        json!({ "at_ms": at_ms, "nodes": [node] })
    }

    fn compared(faults: Vec<Value>) -> Option<Replayed> {
        let schedule = json!({ "format_version": 1, "faults": faults });
        compare(&serde_json::from_value(schedule).unwrap(), &[])
    }

    #[test]
    fn a_standstill_is_named_that_made_a_fault_late_and_no_other() {
        let faults = vec![
            fault(1, hit(100, "n1"), hit(101, "n1"), "installed"),
            fault(2, hit(2_000, "n2"), hit(2_700, "n2"), "installed"),
        ];
        let schedule = json!({ "format_version": 1, "faults": faults });
        let schedule: Schedule = serde_json::from_value(schedule).unwrap();
        let told = |until_ms: u64, lasted_ms| {
            let standstill = Standstill {
                until_ns: until_ms * 1_000_000,
                lasted_ms,
            };
            compare(&schedule, &[standstill]).unwrap().to_string()
        };
        assert_eq!(
            told(2_700, 900),
            "same faults: 2 of 2, off by 700 ms at the median and 700 ms at most (the machine stood still \
             for 900 ms until 2.7 s)"
        );
        assert!(!told(1_990, 500).contains("stood still"));
        assert!(
            !told(2_200, 200).contains("stood still"),
            "it does not explain the most of it"
        );
    }

    #[test]
    fn the_same_faults_are_told_with_how_far_off_they_were() {
        let mut guessed = hit(200, "n2");
        guessed[LEADER_UNKNOWN] = json!(true);
        let replayed = compared(vec![
            fault(1, hit(100, "n1"), hit(101, "n1"), "installed"),
            fault(2, guessed, hit(200, "n2"), "indeterminate"),
            fault(3, hit(300, "n3"), hit(296, "n3"), "installed"),
        ]);
        let replayed = replayed.unwrap();
        assert!(replayed.is_same());
        assert_eq!(
            replayed.to_string(),
            "same faults: 3 of 3, off by 1 ms at the median and 4 ms at most"
        );
        assert_eq!(replayed.off_ms["3"], -4);
    }

    #[test]
    fn a_fault_that_waited_for_its_node_is_the_same_but_late() {
        let mut late = hit(900, "n2");
        late[WAITED_MS] = json!(700);
        let replayed = compared(vec![
            fault(1, hit(200, "n2"), late, "installed"),
            fault(2, hit(300, "n1"), hit(300, "n1"), "installed"),
        ]);
        assert_eq!(
            replayed.unwrap().to_string(),
            "same faults: 2 of 2, off by 700 ms at the median and 700 ms at most, 1 waited for nodes to run"
        );
    }

    #[test]
    fn the_first_difference_is_named() {
        let installed = |id, recorded, now| fault(id, recorded, now, "installed");
        for (second, words) in [
            (
                installed(2, hit(200, "n2"), hit(200, "n3")),
                "fault 2 (kill) hit {\"nodes\":[\"n2\"]} in the run that is repeated, and {\"nodes\":[\"n3\"]} now",
            ),
            (
                fault(2, hit(200, "n1"), Value::Null, "skipped"),
                "fault 2 (kill) was skipped: n1 does not run",
            ),
            (
                installed(2, hit(200, "n2"), hit(90, "n2")),
                "fault 2 (kill) came before fault 1",
            ),
        ] {
            let first = installed(1, hit(100, "n1"), hit(100, "n1"));
            let third = installed(3, hit(300, "n1"), hit(300, "n2"));
            let replayed = compared(vec![first, second, third]).unwrap();
            assert_eq!((replayed.same_count, replayed.recorded_count), (1, 3));
            assert_eq!(replayed.first_difference.as_deref(), Some(words));
        }
    }

    #[test]
    fn a_run_that_repeats_nothing_compares_with_nothing() {
        let usual = json!({
            "id": 1, "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "kill"},
            "resolved": hit(100, "n1"), "outcome": "installed",
        });
        assert_eq!(compared(vec![usual]), None);
    }

    #[test]
    fn what_an_event_starts_has_no_time_to_be_off() {
        let mut recorded = hit(100, "n1");
        recorded["event"] = json!({"node": "n1", "incarnation": 1, "seq": 3, "time_ns": 1});
        let replayed = compared(vec![fault(1, recorded, hit(900, "n1"), "installed")]);
        let replayed = replayed.unwrap();
        assert_eq!(replayed.to_string(), "same faults: 1 of 1");
    }
}
