//! Owns the bounds of counters: what a read may return, given what was added for sure and what perhaps.
//! Never decides whether the reads have one order; that is for the model of the object.
//!
//! After the counter checker of Jepsen, with additions of both signs: what was added for sure before the read
//! began counts, and of what was under way, unknown, or came during the read, any part may.

use std::collections::BTreeMap;

use results::history::{Operation, OperationType};
use results::verdict::{CheckerResult, Validity};
use serde_json::{Value, json};

use crate::operations::{ClientOperation, Malformed, pair};
use crate::{EVIDENCE_LIST_MAX_COUNT, conclusion, counted, not_understood};

const SOURCE: &str = "Jepsen's counter checker";

/// Sums of the additions to one counter so far.
#[derive(Debug, Clone, Copy, Default)]
struct Sums {
    /// Certain ones: what was added, and what was taken away.
    certain_up: i128,
    certain_down: i128,
    /// All that may have happened, the certain ones included.
    possible_up: i128,
    possible_down: i128,
}

impl Sums {
    fn add(up: &mut i128, down: &mut i128, delta: i64) {
        let sum = if delta >= 0 { up } else { down };
        *sum += i128::from(delta);
    }
}

#[derive(Default)]
struct Found {
    read_count: u64,
    add_count: u64,
    /// Reads whose bounds were one number.
    exact_count: u64,
    /// Sum of the distances between the bounds.
    width_sum: u128,
    violation_count: u64,
    violations: Vec<Value>,
}

/// Checks `add` and `read` of counters that start at 0.
pub fn check(history: &[Operation]) -> CheckerResult {
    match look(history) {
        Ok(found) => conclude(&found),
        Err(malformed) => not_understood(SOURCE, malformed),
    }
}

/// What happens on one line of the history.
enum Moment<'a> {
    Added(&'a str, i64),
    AddedForSure(&'a str, i64),
    ReadBegins(&'a str, usize),
    ReadEnds(&'a str, usize),
}

fn look(history: &[Operation]) -> Result<Found, Malformed> {
    let operations = pair(history)?;
    let mut moments: Vec<(usize, Moment<'_>)> = Vec::new();
    let mut found = Found::default();
    for (number, operation) in operations.iter().enumerate() {
        let line = operation.invoke_line;
        let Some(key) = operation.invoke.key.as_deref() else {
            let reason = format!("a {} without a key", operation.invoke.f);
            return Err(Malformed::at(line, reason));
        };
        let is_ok = operation.outcome() == OperationType::Ok;
        let end = operation.completion.filter(|_| is_ok).map(|(line, _)| line);
        match operation.invoke.f.as_ref() {
            "add" => {
                let Some(delta) = operation.invoke.value.as_i64() else {
                    let reason = format!("{} is no number to add", operation.invoke.value);
                    return Err(Malformed::at(line, reason));
                };
                if operation.outcome() != OperationType::Fail {
                    moments.push((line, Moment::Added(key, delta)));
                }
                if let Some(end) = end {
                    found.add_count += 1;
                    moments.push((end, Moment::AddedForSure(key, delta)));
                }
            }
            "read" => {
                if let Some(end) = end {
                    moments.push((line, Moment::ReadBegins(key, number)));
                    moments.push((end, Moment::ReadEnds(key, number)));
                }
            }
            other => {
                let reason = format!("{other:?} is no function of a counter");
                return Err(Malformed::at(line, reason));
            }
        }
    }
    moments.sort_by_key(|(line, _)| *line);
    go_through(&operations, &moments, &mut found);
    Ok(found)
}

fn go_through(
    operations: &[ClientOperation<'_>],
    moments: &[(usize, Moment<'_>)],
    found: &mut Found,
) {
    let mut counters: BTreeMap<&str, Sums> = BTreeMap::new();
    let mut begun: BTreeMap<usize, Sums> = BTreeMap::new();
    for (_, moment) in moments {
        match *moment {
            Moment::Added(key, delta) => {
                let sums = counters.entry(key).or_default();
                Sums::add(&mut sums.possible_up, &mut sums.possible_down, delta);
            }
            Moment::AddedForSure(key, delta) => {
                let sums = counters.entry(key).or_default();
                Sums::add(&mut sums.certain_up, &mut sums.certain_down, delta);
            }
            Moment::ReadBegins(key, number) => {
                begun.insert(number, counters.get(key).copied().unwrap_or_default());
            }
            Moment::ReadEnds(key, number) => {
                let before = begun.remove(&number).unwrap_or_default();
                let now = counters.get(key).copied().unwrap_or_default();
                let lowest = before.certain_up + now.possible_down;
                let highest = now.possible_up + before.certain_down;
                judge(key, &operations[number], lowest, highest, found);
            }
        }
    }
}

fn judge(key: &str, read: &ClientOperation<'_>, lowest: i128, highest: i128, found: &mut Found) {
    let Some((_, completion)) = read.completion else {
        return;
    };
    found.read_count += 1;
    found.exact_count += u64::from(lowest == highest);
    found.width_sum += (highest - lowest).unsigned_abs();
    let value = completion.value.as_i64().map(i128::from);
    if value.is_some_and(|value| (lowest..=highest).contains(&value)) {
        return;
    }
    found.violation_count += 1;
    if found.violations.len() >= EVIDENCE_LIST_MAX_COUNT {
        return;
    }
    let possible = match lowest == highest {
        true => format!("it could only be {lowest}"),
        false => format!("it could only be from {lowest} to {highest}"),
    };
    let explanation = format!(
        "key {key}: a read {} returned {}, but {possible}",
        read.by_whom(),
        completion.value
    );
    found.violations.push(json!({
        "key": key,
        "explanation": explanation,
        "lowest": lowest.to_string(),
        "highest": highest.to_string(),
        "operations": [read.evidence(Some(&completion.value))],
    }));
}

fn conclude(found: &Found) -> CheckerResult {
    let counts = json!({
        "read_count": found.read_count,
        "add_count": found.add_count,
        "exact_count": found.exact_count,
        "width_sum": found.width_sum.to_string(),
    });
    let told = format!(
        "{} of counters within their bounds ({} exactly known, after {})",
        counted(found.read_count, "read"),
        found.exact_count,
        counted(found.add_count, "addition"),
    );
    if let Some(first) = found.violations.first() {
        let words = first["explanation"].as_str().unwrap_or_default();
        let more = match found.violation_count {
            1 => String::new(),
            many => format!(" (and {} more of {})", many - 1, found.read_count),
        };
        let mut result = conclusion(Validity::Invalid, SOURCE, format!("{words}{more}"));
        result.evidence = first.clone();
        result.evidence["counts"] = counts;
        result.evidence["violations"] = json!(found.violations);
        return result;
    }
    let mut result = if found.read_count == 0 || found.add_count == 0 {
        let reason = "nothing was added for sure, or nothing was read, so nothing was checked";
        conclusion(Validity::Unknown, SOURCE, reason)
    } else {
        conclusion(Validity::Valid, SOURCE, told)
    };
    result.evidence = counts;
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::lines;

    fn checked(said: &[(u64, &str, &str, Value)]) -> CheckerResult {
        check(&lines("a", said))
    }

    fn add(
        process: u64,
        kind: &'static str,
        delta: i64,
    ) -> (u64, &'static str, &'static str, Value) {
        (process, kind, "add", json!(delta))
    }

    fn read(process: u64, value: i64) -> [(u64, &'static str, &'static str, Value); 2] {
        [
            (process, "invoke", "read", Value::Null),
            (process, "ok", "read", json!(value)),
        ]
    }

    #[test]
    fn what_is_under_way_or_unknown_may_count() {
        for value in -3..=10 {
            let mut said = vec![add(0, "invoke", 5), add(0, "ok", 5)];
            said.extend([add(1, "invoke", 4), add(1, "info", 4)]);
            said.extend([add(2, "invoke", -2), add(3, "invoke", 9), add(3, "fail", 9)]);
            said.extend(read(4, value));
            said.push(add(2, "ok", -2));
            let result = checked(&said);
            let expected = if (3..=9).contains(&value) {
                Validity::Valid
            } else {
                Validity::Invalid
            };
            assert_eq!(result.valid, expected, "{value}: {}", result.summary);
        }
    }

    #[test]
    fn what_comes_during_a_read_may_count() {
        let with = |value: i64| {
            checked(&[
                (4, "invoke", "read", Value::Null),
                add(0, "invoke", 5),
                add(0, "ok", 5),
                (4, "ok", "read", json!(value)),
            ])
        };
        assert_eq!(with(0).valid, Validity::Valid);
        assert_eq!(with(5).valid, Validity::Valid);
        let result = with(10);
        assert_eq!(result.valid, Validity::Invalid);
        assert!(result.summary.contains("from 0 to 5"), "{}", result.summary);
    }

    #[test]
    fn a_copy_that_counts_twice_is_out_of_bounds() {
        let mut said = vec![add(0, "invoke", 5), add(0, "ok", 5)];
        said.extend(read(1, 10));
        let result = checked(&said);
        assert!(
            result.summary.contains("it could only be 5"),
            "{}",
            result.summary
        );
    }

    #[test]
    fn without_a_read_or_an_addition_nothing_is_known() {
        assert_eq!(checked(&[]).valid, Validity::Unknown);
        let nothing_read = checked(&[add(0, "invoke", 5), add(0, "ok", 5)]);
        assert_eq!(nothing_read.valid, Validity::Unknown);
        assert_eq!(checked(&read(0, 0)).valid, Validity::Unknown);
    }
}
