//! Owns the verdict on a recording: runs every checker and combines what they conclude.
//! Never reads a file, a node's type or anything else that is not in the recording.

use std::collections::BTreeMap;
use std::panic::{AssertUnwindSafe, catch_unwind};

use results::seal::UNSEALED;
use results::standstill::Standstill;
use results::store::Recording;
use results::trace::TraceEvent;
use results::verdict::{CheckerResult, Validity, Verdict};
use serde_json::Value;

use crate::standing::Standings;

pub mod bounds;
pub mod conformance;
pub mod coverage;
pub mod disk_faults;
pub mod disks;
pub mod elements;
pub mod epoch_history;
mod fault_times;
pub mod histories;
mod incarnations;
pub mod linearizability;
pub mod linearizable;
pub mod liveness;
mod long_list;
#[cfg(test)]
mod made_up;
pub mod nemesis;
pub mod node_logs;
pub mod onlooker;
pub mod operations;
mod orders;
pub mod replayed;
pub mod safety;
mod standing;
pub mod stats;
pub mod transactions;
pub mod unique_ids;
mod workloads;

/// Longest list in any evidence; what is longer is cut, and the evidence says so.
pub const EVIDENCE_LIST_MAX_COUNT: usize = 50;

/// What checking may cost, and how much must have been tested.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Options {
    /// How long the linearizability checker may take.
    pub linearizability_time_limit_ms: u64,
    /// How much memory its configurations may occupy, approximately.
    pub linearizability_memory_limit_bytes: u64,
    /// How long finding the few operations that matter may take after a violation was found. Without any time, what is
    /// found is told with all that happened before.
    pub explanation_time_limit_ms: u64,
    /// Operations that must have succeeded for a run to have tested anything.
    pub minimum_ok_count: u64,
}

impl Default for Options {
    fn default() -> Self {
        Self {
            linearizability_time_limit_ms: 60_000,
            linearizability_memory_limit_bytes: 2 << 30,
            explanation_time_limit_ms: 3_000,
            minimum_ok_count: 10,
        }
    }
}

impl Options {
    /// For whoever wants to know whether a run failed, and not how.
    pub fn without_explanations() -> Self {
        Self {
            explanation_time_limit_ms: 0,
            ..Self::default()
        }
    }
}

/// Runs every checker on the recording. A checker that panics concludes nothing, and says so.
pub fn check(recording: &Recording, options: &Options) -> Verdict {
    let epoch_history = isolated("epoch-history", &|| {
        epoch_history::check(
            &recording.trace,
            &recording.history,
            recording.manifest.options.nodes,
            recording.manifest.is_simulated(),
        )
    });
    let standings = Standings::of(&recording.trace);
    let told = Told {
        refusals: &recording.trace,
        phase: &recording.trace,
        standings: &standings,
    };
    let mut checkers = BTreeMap::new();
    checkers.insert("epoch-history".to_owned(), epoch_history);
    let conformance = isolated(CONFORMANCE, &|| {
        conformance::check_run(&recording.trace, &recording.manifest, &recording.schedule)
    });
    checkers.insert(CONFORMANCE.to_owned(), conformance);
    if !recording.disks.is_empty() {
        let disks = isolated(DISKS, &|| {
            let Recording {
                trace,
                disks,
                schedule,
                ..
            } = recording;
            disks::check(trace, disks, schedule, disks::Clients::of(recording))
        });
        checkers.insert(DISKS.to_owned(), disks);
    }
    combine(recording, told, checkers, options)
}

/// Name of the checker of disks. A recording without them, for example one made by hand, is judged without.
const DISKS: &str = "disks";
/// Name under which evidence that is not what was recorded is told.
const EVIDENCE: &str = "evidence";
/// Name of the checker of steps.
const CONFORMANCE: &str = "conformance";

/// What of a trace the checkers need that look for single events in it.
#[derive(Debug, Clone, Copy)]
struct Told<'a> {
    /// At least every start and refusal to start, and one event if there are any.
    refusals: &'a [TraceEvent],
    /// At least what a liveness phase is judged by.
    phase: &'a [TraceEvent],
    /// Where all nodes stood, by all of the trace.
    standings: &'a Standings,
}

/// Runs every checker but those whose results are given: they take all of the trace.
fn combine(
    recording: &Recording,
    told: Told<'_>,
    mut checkers: BTreeMap<String, CheckerResult>,
    options: &Options,
) -> Verdict {
    let mut run = |name: &str, checker: &dyn Fn() -> CheckerResult| {
        checkers.insert(name.to_owned(), isolated(name, checker));
    };
    for (name, checker) in workloads::checkers(&recording.manifest.options.workload) {
        run(name, &|| checker(&recording.history, options));
    }
    run("stats", &|| {
        stats::check(&recording.history, options.minimum_ok_count)
    });
    run("nemesis", &|| {
        let standstills = Standstill::all(&recording.history);
        let options = &recording.manifest.options;
        nemesis::check(&recording.schedule, options, &standstills)
    });
    run("liveness", &|| {
        liveness::check(
            &recording.manifest,
            &recording.schedule,
            &recording.history,
            told.phase,
            told.standings,
        )
    });
    run("node-logs", &|| {
        let Recording {
            history,
            schedule,
            logs,
            ..
        } = recording;
        node_logs::check(told.refusals, history, schedule, logs)
    });
    run(coverage::NAME, &|| {
        let Recording {
            manifest,
            schedule,
            history,
            ..
        } = recording;
        coverage::check(told.standings, &manifest.options, schedule, history)
    });
    let missing = operations::whole(&recording.history).err();
    let differences = recording.differences.iter().cloned();
    let differences: Vec<String> = differences
        .chain(missing.map(|missing| missing.to_string()))
        .collect();
    if let Some(result) = unsealed(&differences) {
        checkers.insert(EVIDENCE.to_owned(), result);
    }
    if let Some(reason) = safety::halted(&recording.history)
        && checkers
            .values()
            .all(|result| result.valid != Validity::Invalid)
    {
        // What was seen while the run went on outweighs that nobody finds it afterwards.
        let source = "an invariant must hold after every event";
        let result = conclusion(Validity::Invalid, source, reason);
        checkers.insert("safety".to_owned(), result);
    }
    let (valid, summary) = match checkers.get(EVIDENCE) {
        Some(evidence) => (Validity::Unknown, discounted(evidence, &checkers)),
        None => (worst_of(&checkers), summarize(&checkers)),
    };
    Verdict {
        valid,
        summary,
        checkers,
    }
}

/// Checkers in the order in which they get to explain the verdict: what users lose comes first.
const EXPLANATION_ORDER: [&str; 15] = [
    EVIDENCE,
    "safety",
    "linearizable",
    "transactions",
    "elements",
    "bounds",
    "unique-ids",
    "epoch-history",
    DISKS,
    CONFORMANCE,
    "liveness",
    "node-logs",
    "stats",
    "nemesis",
    coverage::NAME,
];

fn worst_of(checkers: &BTreeMap<String, CheckerResult>) -> Validity {
    Validity::worst(checkers.values().map(|result| result.valid))
}

/// What can be said of evidence that was changed: a violation in it proves as little as that there is none.
fn discounted(evidence: &CheckerResult, checkers: &BTreeMap<String, CheckerResult>) -> String {
    let told = format!("unknown: {EVIDENCE}: {}", evidence.summary);
    match worst_of(checkers) {
        Validity::Invalid => format!("{told}; as it is now, it would be {}", summarize(checkers)),
        _ => told,
    }
}

fn summarize(checkers: &BTreeMap<String, CheckerResult>) -> String {
    let worst = worst_of(checkers);
    let decisive: Vec<(&str, &CheckerResult)> = EXPLANATION_ORDER
        .iter()
        .filter_map(|name| checkers.get(*name).map(|result| (*name, result)))
        .filter(|(_, result)| result.valid == worst)
        .collect();
    match worst {
        Validity::Valid => {
            let promises = workloads::CHECKERS.into_iter();
            let told = promises.chain(["epoch-history", "nemesis"]);
            let parts: Vec<&str> = told
                .filter_map(|name| checkers.get(name))
                .map(|result| result.summary.as_str())
                .collect();
            format!("valid: {}", parts.join("; "))
        }
        Validity::Invalid | Validity::Unknown => {
            let Some(((name, result), others)) = decisive.split_first() else {
                return worst.word().to_owned();
            };
            let mut summary = format!("{}: {name}: {}", worst.word(), result.summary);
            if !others.is_empty() {
                let names: Vec<&str> = others.iter().map(|(name, _)| *name).collect();
                summary.push_str(&format!(" (also {}: {})", worst.word(), names.join(", ")));
            }
            summary
        }
    }
}

/// Evidence that was lost or changed since the run proves nothing, whatever the rest of it says.
fn unsealed(differences: &[String]) -> Option<CheckerResult> {
    let first = differences.first()?;
    let others = match differences.len() - 1 {
        0 => String::new(),
        count => format!(", and {}", counted(count as u64, "more difference")),
    };
    let summary = match first.as_str() {
        UNSEALED => format!("{first}{others}"),
        _ => format!("the recording is not what it was when the run was over: {first}{others}"),
    };
    let source = "a verdict is worth as much as its evidence";
    let mut result = conclusion(Validity::Unknown, source, summary);
    let told = &differences[..differences.len().min(EVIDENCE_LIST_MAX_COUNT)];
    result.evidence = serde_json::json!({ "differences": told });
    Some(result)
}

/// The verdict on a recording of which a file is missing or cannot be understood, as `problem` says.
pub fn unreadable(problem: &str) -> Verdict {
    let source = "a verdict is worth as much as its evidence";
    let summary = format!("the recording cannot be read: {problem}");
    let evidence = conclusion(Validity::Unknown, source, summary);
    Verdict {
        valid: Validity::Unknown,
        summary: format!("unknown: {EVIDENCE}: {}", evidence.summary),
        checkers: BTreeMap::from([(EVIDENCE.to_owned(), evidence)]),
    }
}

fn isolated(name: &str, checker: &dyn Fn() -> CheckerResult) -> CheckerResult {
    catch_unwind(AssertUnwindSafe(checker)).unwrap_or_else(|panic| {
        let reason = panic
            .downcast_ref::<String>()
            .map(String::as_str)
            .or_else(|| panic.downcast_ref::<&str>().copied())
            .unwrap_or("no reason given");
        conclusion(
            Validity::Unknown,
            "",
            format!("the checker {name} failed, which is an error in the checker: {reason}"),
        )
    })
}

/// A result without properties and evidence.
fn conclusion(valid: Validity, source: &str, summary: impl Into<String>) -> CheckerResult {
    CheckerResult {
        valid,
        source: source.into(),
        summary: summary.into(),
        properties: BTreeMap::new(),
        evidence: Value::Null,
    }
}

/// Of a history that cannot be what a run recorded, nothing can be said.
fn not_understood(source: &str, problem: impl std::fmt::Display) -> CheckerResult {
    let summary = format!("the history is malformed: {problem}");
    conclusion(Validity::Unknown, source, summary)
}

/// Nanoseconds since the run started, for people.
fn seconds(time_ns: u64) -> String {
    format!("{:.3} s", time_ns as f64 / 1e9)
}

/// "1 key", "2 keys".
fn counted(count: u64, noun: &str) -> String {
    format!("{count} {noun}{}", if count == 1 { "" } else { "s" })
}

/// For people: `n2`, or nobody.
fn whom(node: Option<&str>) -> &str {
    node.unwrap_or("nobody")
}

/// "was" of one, "were" of any other number.
fn were(count: u64) -> &'static str {
    if count == 1 { "was" } else { "were" }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_checker_that_panics_concludes_nothing() {
        let result = isolated("stats", &|| panic!("no such {}", "thing"));
        assert_eq!(result.valid, Validity::Unknown);
        assert!(result.summary.contains("stats") && result.summary.contains("no such thing"));
    }

    #[test]
    fn changed_evidence_proves_neither_the_one_nor_the_other() {
        assert!(unsealed(&[]).is_none());
        let differences = ["a is gone", "b was changed"].map(str::to_owned);
        let evidence = unsealed(&differences).unwrap();
        let mut checkers = BTreeMap::from([(EVIDENCE.to_owned(), evidence.clone())]);
        let told = discounted(&evidence, &checkers);
        let expected = "over: a is gone, and 1 more difference";
        assert!(
            told.starts_with("unknown: evidence") && told.ends_with(expected),
            "{told}"
        );
        let told = unsealed(&[UNSEALED.to_owned()]).unwrap().summary;
        assert!(
            told.starts_with("the recording was not sealed when the run ended"),
            "{told}"
        );
        let invalid = conclusion(Validity::Invalid, "", "n1 refused");
        checkers.insert("node-logs".to_owned(), invalid);
        let told = discounted(&evidence, &checkers);
        assert!(
            told.ends_with("it would be invalid: node-logs: n1 refused"),
            "{told}"
        );
    }

    #[test]
    fn the_most_serious_conclusion_explains_the_verdict() {
        let mut checkers = BTreeMap::new();
        checkers.insert(
            "stats".to_owned(),
            conclusion(Validity::Unknown, "", "too few"),
        );
        checkers.insert(
            "nemesis".to_owned(),
            conclusion(Validity::Unknown, "", "no effect"),
        );
        assert_eq!(
            summarize(&checkers),
            "unknown: stats: too few (also unknown: nemesis)"
        );
        checkers.insert(
            "node-logs".to_owned(),
            conclusion(Validity::Invalid, "", "n1 refused"),
        );
        assert_eq!(summarize(&checkers), "invalid: node-logs: n1 refused");
    }
}
