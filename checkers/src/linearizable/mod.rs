//! Owns the checker of client histories: every key must behave like one register.
//! Never lets a hard or damaged history pass: what could not be decided is unknown, with the reason.

mod explain;
mod objects;
mod register;
mod watch;

use std::time::{Duration, Instant};

use results::history::Operation;
use results::verdict::{CheckerResult, Validity};
use serde_json::{Value, json};

use crate::linearizability::models::register::Register;
use crate::linearizability::{Effort, Limit, Limits, Outcome, decide_all, refute};
use crate::{EVIDENCE_LIST_MAX_COUNT, Options, conclusion, counted, not_understood, orders, were};
pub use objects::check_objects;
use register::KeyHistory;
pub use watch::Watch;

const SOURCE: &str =
    "Herlihy & Wing 1990 (linearizability); search after Wing & Gong 1993, Lowe 2017";

/// What every key is.
const REGISTER: Register = Register {
    initial: register::NEVER_WRITTEN,
};

/// How many keys are checked at the same time.
const THREAD_COUNT: usize = 2;

/// Checks `read`, `write` and `cas` operations, key by key (linearizability is local).
///
/// Every register starts as `null`. `ok` took effect between invocation and completion, `fail` did
/// not; `info`, or no completion, means at any time after the invocation, or never.
pub fn check(history: &[Operation], options: &Options) -> CheckerResult {
    let keys = match register::split(history) {
        Ok(keys) => keys,
        Err(malformed) => return not_understood(SOURCE, malformed),
    };
    let ok_count: u64 = keys.iter().map(KeyHistory::completed_count).sum();
    if ok_count == 0 {
        return conclusion(
            Validity::Unknown,
            SOURCE,
            "no operation succeeded, so there was nothing to check",
        );
    }
    let outcomes = search_all(&keys, options);
    conclude(&keys, &outcomes, ok_count, options)
}

/// Outcomes in the order of the keys.
fn search_all(keys: &[KeyHistory<'_>], options: &Options) -> Vec<Outcome> {
    let limits = Limits {
        deadline: Instant::now()
            .checked_add(Duration::from_millis(options.linearizability_time_limit_ms)),
        memory_bytes: options.linearizability_memory_limit_bytes,
        ..Limits::default()
    };
    let effort = Effort {
        thread_count: THREAD_COUNT,
        stops_at_first: false,
    };
    let timelines: Vec<_> = keys.iter().map(KeyHistory::timeline).collect();
    let objects: Vec<_> = timelines
        .iter()
        .map(|timeline| (&REGISTER, timeline))
        .collect();
    let outcomes = decide_all(&objects, &limits, effort);
    // Without a stop at the first violation every key is decided.
    outcomes.into_iter().flatten().collect()
}

fn conclude(
    keys: &[KeyHistory<'_>],
    outcomes: &[Outcome],
    ok_count: u64,
    options: &Options,
) -> CheckerResult {
    let mut violated: Vec<(u64, usize)> = Vec::new();
    let mut undecided: Vec<usize> = Vec::new();
    for (number, outcome) in outcomes.iter().enumerate() {
        match outcome {
            Outcome::Linearizable { .. } => {}
            Outcome::NotLinearizable { failed, .. } => {
                let line = keys[number].operations[*failed as usize].completed;
                violated.push((line.unwrap_or(u64::MAX), number));
            }
            Outcome::Unknown { .. } => undecided.push(number),
        }
    }
    violated.sort_unstable();
    let counts = json!({
        "valid": keys.len() - violated.len() - undecided.len(),
        "invalid": violated.len(),
        "unknown": undecided.len(),
    });
    let key_total = counted(keys.len() as u64, "key");
    if let Some((_, first)) = violated.first() {
        let mut result = violation(&keys[*first], &outcomes[*first], options);
        if violated.len() > 1 {
            let others = counted(violated.len() as u64 - 1, "more key");
            result
                .summary
                .push_str(&format!(" ({others} of {} violated)", keys.len()));
        }
        result.evidence["keys"] = counts;
        result.evidence["violated_keys"] = key_names(keys, violated.iter().map(|(_, key)| *key));
        return result;
    }
    if let Some(first) = undecided.first() {
        let summary = undecided_summary(&keys[*first], &outcomes[*first], options);
        let mut result = conclusion(Validity::Unknown, SOURCE, summary);
        result.evidence = json!({
            "keys": counts,
            "unknown_keys": key_names(keys, undecided.iter().copied()),
        });
        return result;
    }
    let mut result = conclusion(
        Validity::Valid,
        SOURCE,
        format!(
            "{} on {key_total} {} linearizable",
            counted(ok_count, "operation"),
            were(ok_count)
        ),
    );
    result.evidence = json!({ "keys": counts });
    result
}

fn key_names(keys: &[KeyHistory<'_>], numbers: impl Iterator<Item = usize>) -> Value {
    numbers
        .take(EVIDENCE_LIST_MAX_COUNT)
        .map(|number| Value::from(keys[number].key))
        .collect()
}

fn violation(key: &KeyHistory<'_>, outcome: &Outcome, options: &Options) -> CheckerResult {
    let Outcome::NotLinearizable { failed } = outcome else {
        panic!("only a violation is explained");
    };
    let time_limit = Duration::from_millis(options.explanation_time_limit_ms);
    let limits = Limits {
        deadline: Instant::now().checked_add(time_limit),
        memory_bytes: options.linearizability_memory_limit_bytes,
        ..Limits::default()
    };
    let timeline = key.timeline();
    let refutation = refute(&REGISTER, &timeline, *failed, &limits);
    let explanation = explain::explain(key, &refutation);
    let mut result = conclusion(Validity::Invalid, SOURCE, explanation.sentence);
    result.evidence = explanation.evidence;
    let label = |operation: usize| {
        let action = key.show_action(timeline.action(operation));
        format!("{action} by process {}", key.sources[operation].process)
    };
    let show_state = |state: &u32| key.show_value(*state);
    result.evidence["orders"] = orders::told(&REGISTER, &timeline, &refutation, label, show_state);
    result
}

fn undecided_summary(key: &KeyHistory<'_>, outcome: &Outcome, options: &Options) -> String {
    let Outcome::Unknown {
        limit,
        completed_count,
        ..
    } = outcome
    else {
        panic!("only an undecided search is reported as such");
    };
    let limit = match limit {
        Limit::Time => format!(
            "the time limit of {} ms was reached",
            options.linearizability_time_limit_ms
        ),
        Limit::Memory => format!(
            "the memory limit of {} bytes was reached",
            options.linearizability_memory_limit_bytes
        ),
        Limit::Configurations => "the limit of configurations was reached".into(),
        Limit::Width => "too many operations are open at once".into(),
        Limit::Cancelled => "it was cancelled".into(),
        Limit::Numbers => "its numbers need more than 64 bits".into(),
    };
    format!(
        "key {} could not be decided: {limit}; an order was found for {completed_count} of {} \
         successful operations, with {} of unknown outcome",
        key.key,
        key.completed_count(),
        key.operations.len() as u64 - key.completed_count(),
    )
}
