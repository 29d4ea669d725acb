//! Owns the words and the evidence for a violation.
//! Never decides anything: without a simple reason it says what the value could have been.

use serde_json::{Value, json};

use super::register::{KeyHistory, NEVER_WRITTEN};
use crate::linearizability::{Action, Refutation};
use crate::operations::ClientOperation;
use crate::{EVIDENCE_LIST_MAX_COUNT, seconds};

pub(super) struct Explanation {
    pub(super) sentence: String,
    pub(super) evidence: Value,
}

/// Explains why an operation has no place in any order.
pub(super) fn explain(key: &KeyHistory<'_>, refutation: &Refutation<u32>) -> Explanation {
    let failed = refutation.failed as usize;
    let core: Vec<usize> = refutation
        .core
        .iter()
        .map(|one| one.operation as usize)
        .collect();
    let core = core.as_slice();
    let completed = key.operations[failed].completed.unwrap_or(u64::MAX);
    let mut possible = refutation.possible_states.clone().unwrap_or_default();
    // Unread writes of unknown outcome play no part in the search, but may be in effect.
    possible.extend(key.operations.iter().filter_map(|operation| {
        (operation.completed.is_none() && operation.invoked < completed)
            .then_some(operation.action)
            .filter(|action| matches!(action, Action::Write(_)))
            .and_then(Action::produces)
    }));
    possible.sort_unstable();
    possible.dedup();
    let reason = reason(key, failed, &possible, core);
    let sentence = format!(
        "key {}: {}, {reason}",
        key.key,
        describe(&key.sources[failed])
    );
    let shown: Vec<usize> = if core.len() > EVIDENCE_LIST_MAX_COUNT {
        // The end is where the contradiction shows.
        core[core.len() - EVIDENCE_LIST_MAX_COUNT..].to_vec()
    } else {
        core.to_vec()
    };
    let possible_values: Vec<&Value> = possible
        .iter()
        .take(EVIDENCE_LIST_MAX_COUNT)
        .map(|number| &key.values[*number as usize])
        .collect();
    let failing_prefix = key.sources[failed].completion.map(|(_, line)| line.index);
    let evidence = json!({
        "key": key.key,
        "explanation": sentence,
        "operations": shown.iter().map(|number| involved(&key.sources[*number])).collect::<Vec<_>>(),
        "operations_left_out": core.len() - shown.len(),
        "failing_index": key.sources[failed].invoke.index,
        "shortest_failing_prefix": failing_prefix,
        "possible_states": possible_values,
        "certain_state": refutation
            .certain
            .as_ref()
            .map(|certain| &key.values[certain.state as usize]),
        "every_order_tried": refutation.is_proved,
    });
    Explanation { sentence, evidence }
}

fn involved(source: &ClientOperation<'_>) -> Value {
    let completion = source.completion.map(|(_, completion)| completion);
    let result = completion.filter(|_| source.invoke.f == "read");
    source.evidence(Some(&result.unwrap_or(source.invoke).value))
}

/// "read by process 7 on n1 from 12.300 s to 12.310 s returned 4".
fn describe(source: &ClientOperation<'_>) -> String {
    let completion = source.completion.map_or(source.invoke, |(_, line)| line);
    let did = match (source.invoke.f.as_ref(), source.invoke.value.as_array()) {
        ("read", _) => format!("returned {}", completion.value),
        ("cas", Some(pair)) if pair.len() == 2 => {
            format!("replaced {} by {}", pair[0], pair[1])
        }
        _ => format!("wrote {}", source.invoke.value),
    };
    format!("{} {} {did}", source.invoke.f, source.by_whom())
}

fn reason(key: &KeyHistory<'_>, failed: usize, possible: &[u32], core: &[usize]) -> String {
    let operation = &key.operations[failed];
    let completed = operation.completed.unwrap_or(u64::MAX);
    if let Some(required) = operation.action.requires() {
        let value = &key.values[required as usize];
        let producers: Vec<usize> = (0..key.operations.len())
            .filter(|other| key.operations[*other].action.produces() == Some(required))
            .collect();
        let in_time = |other: &&usize| key.operations[**other].invoked < completed;
        if required != NEVER_WRITTEN && !producers.iter().any(|other| in_time(&other)) {
            return never_there(key, required, value, &producers);
        }
        if let Some(overwriter) = overwriter(key, failed, required, &producers, core) {
            let (source, action) = (
                &key.sources[overwriter],
                key.operations[overwriter].action.produces(),
            );
            let newer = action.map_or(&Value::Null, |number| &key.values[number as usize]);
            let by = source.completion.map_or(0, |(_, line)| line.time);
            let written = match value {
                // Before anything was written.
                Value::Null => "already written".to_owned(),
                value => format!("written after {value}"),
            };
            return format!(
                "but {newer} was {written} and acknowledged (to process {} at {}) before it began",
                source.process,
                seconds(by)
            );
        }
    }
    let values: Vec<String> = possible
        .iter()
        .take(10)
        .map(|number| key.values[*number as usize].to_string())
        .collect();
    if values.is_empty() {
        return "but no order of the operations before it allows that; which values it could have been \
                was more than could be worked out"
            .into();
    }
    let more = if possible.len() > 10 {
        " or others"
    } else {
        ""
    };
    format!(
        "but no order of the operations before it allows that: the value could only have been {}{more}",
        values.join(" or ")
    )
}

/// Nothing that may have happened in time could have left the value there.
fn never_there(key: &KeyHistory<'_>, required: u32, value: &Value, later: &[usize]) -> String {
    let failed = key
        .failed_updates
        .iter()
        .find(|(_, left)| *left == required);
    if let Some((source, _)) = failed {
        let at = source.completion.map_or(0, |(_, line)| line.time);
        return format!(
            "but the only {} of {value} that had begun was reported as certainly failed (to \
             process {} at {})",
            source.invoke.f,
            source.process,
            seconds(at)
        );
    }
    match later.first() {
        Some(first) => format!(
            "but {value} was written for the first time by an operation that began later, at {}",
            seconds(key.sources[*first].invoke.time)
        ),
        None => format!("but nothing ever wrote {value}"),
    }
}

/// A completed update that certainly replaced `required` before `failed` began, if any; the last.
fn overwriter(
    key: &KeyHistory<'_>,
    failed: usize,
    required: u32,
    producers: &[usize],
    core: &[usize],
) -> Option<usize> {
    // A producer of unknown outcome may come at any time.
    let mut last_produced = None;
    for producer in producers {
        if *producer != failed
            && key.operations[*producer].invoked <= key.operations[failed].invoked
        {
            last_produced = last_produced.max(Some(key.operations[*producer].completed?));
        } else if *producer != failed {
            let completed = key.operations[failed].completed?;
            if key.operations[*producer].invoked < completed {
                return None;
            }
        }
    }
    let began = key.operations[failed].invoked;
    let replaces = |other: &usize| {
        let operation = &key.operations[*other];
        let value = operation.action.produces();
        value.is_some_and(|value| value != required)
            && operation
                .completed
                .is_some_and(|completed| completed < began)
            && last_produced.is_none_or(|last| operation.invoked > last)
    };
    let latest = |candidates: &mut dyn Iterator<Item = usize>| {
        candidates
            .filter(replaces)
            .max_by_key(|other| key.operations[*other].completed)
    };
    latest(&mut core.iter().copied()).or_else(|| latest(&mut (0..key.operations.len())))
}
