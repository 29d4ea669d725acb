//! Owns the promise of numbers drawn from a counter: nobody gets one that somebody else got, none is skipped
//! for no reason, and whoever draws later gets a higher one.
//! Never looks at anything but what clients were told.

use std::collections::BTreeMap;

use results::history::{Operation, OperationType};
use results::verdict::{CheckerResult, PropertyResult, Validity};
use serde_json::{Value, json};

use crate::operations::{ClientOperation, Malformed, pair};
use crate::{EVIDENCE_LIST_MAX_COUNT, conclusion, counted, not_understood};

const SOURCE: &str = "Jepsen's unique-ids checker; Herlihy & Wing 1990 for the order";

const PROPERTIES: [(&str, &str); 3] = [
    ("unique", "no number is drawn twice"),
    (
        "counted-once",
        "no number is higher than the draws that had begun",
    ),
    ("rising", "whoever draws later gets a higher number"),
];

#[derive(Default)]
struct Found {
    drawn_count: u64,
    pair_count: u64,
    violations: BTreeMap<&'static str, Vec<Value>>,
}

impl Found {
    fn note(&mut self, property: &'static str, key: &str, what: &str, of: &[&ClientOperation<'_>]) {
        let list = self.violations.entry(property).or_default();
        if list.len() < EVIDENCE_LIST_MAX_COUNT {
            list.push(json!({
                "key": key,
                "explanation": format!("key {key}: {what}"),
                "operations": of.iter().map(|one| shown(one)).collect::<Vec<_>>(),
            }));
        }
    }
}

/// Checks `generate` operations, whose results are the numbers drawn, key by key.
pub fn check(history: &[Operation]) -> CheckerResult {
    match look(history) {
        Ok(found) => conclude(&found),
        Err(malformed) => not_understood(SOURCE, malformed),
    }
}

fn look(history: &[Operation]) -> Result<Found, Malformed> {
    let mut keys: BTreeMap<&str, Vec<ClientOperation<'_>>> = BTreeMap::new();
    for operation in pair(history)? {
        let line = operation.invoke_line;
        let f = operation.invoke.f.as_ref();
        let Some(key) = operation.invoke.key.as_deref().filter(|_| f == "generate") else {
            let reason = format!("{f:?} does not draw a number, or has no key");
            return Err(Malformed::at(line, reason));
        };
        keys.entry(key).or_default().push(operation);
    }
    let mut found = Found::default();
    for (key, draws) in &keys {
        look_at_key(key, draws, &mut found)?;
    }
    Ok(found)
}

fn look_at_key(
    key: &str,
    draws: &[ClientOperation<'_>],
    found: &mut Found,
) -> Result<(), Malformed> {
    let mut drawn: Vec<(usize, i64, &ClientOperation<'_>)> = Vec::new();
    for draw in draws {
        let Some((line, completion)) = draw.completion else {
            continue;
        };
        if completion.operation_type != OperationType::Ok {
            continue;
        }
        let number = completion
            .value
            .as_i64()
            .ok_or_else(|| Malformed::at(line, format!("{} is no number", completion.value)))?;
        drawn.push((line, number, draw));
    }
    drawn.sort_by_key(|(line, ..)| *line);
    found.drawn_count += drawn.len() as u64;
    let mut owners: BTreeMap<i64, &ClientOperation<'_>> = BTreeMap::new();
    // Draws are in the order of their invocation.
    let mut begun = draws.iter().peekable();
    let mut begun_count: i64 = 0;
    for (line, number, draw) in &drawn {
        if let Some(first) = owners.insert(*number, draw) {
            let what = format!(
                "{number} was drawn twice: {}, and {}",
                first.by_whom(),
                draw.by_whom()
            );
            found.note("unique", key, &what, &[first, draw]);
        }
        // Those that failed drew nothing.
        while let Some(other) = begun.next_if(|other| other.invoke_line < *line) {
            begun_count += i64::from(other.outcome() != OperationType::Fail);
        }
        if *number > begun_count || *number < 1 {
            let what = format!(
                "{number} was drawn {}, when only {} had begun",
                draw.by_whom(),
                counted(begun_count as u64, "draw")
            );
            found.note("counted-once", key, &what, &[draw]);
        }
    }
    look_at_order(key, draws, &drawn, found);
    Ok(())
}

/// Goes through the draws by invocation; the highest number that was out before must be lower.
fn look_at_order(
    key: &str,
    draws: &[ClientOperation<'_>],
    drawn: &[(usize, i64, &ClientOperation<'_>)],
    found: &mut Found,
) {
    let mut out = drawn.iter().peekable();
    let mut highest: Option<(i64, &ClientOperation<'_>)> = None;
    for draw in draws {
        while let Some((_, number, earlier)) = out.next_if(|(line, ..)| *line < draw.invoke_line) {
            if highest.is_none_or(|(highest, _)| highest < *number) {
                highest = Some((*number, earlier));
            }
        }
        let is_ok = draw.outcome() == OperationType::Ok;
        let number = draw.completion.filter(|_| is_ok);
        let number = number.and_then(|(_, completion)| completion.value.as_i64());
        let (Some(number), Some((before, earlier))) = (number, highest) else {
            continue;
        };
        found.pair_count += 1;
        if number < before {
            let what = format!(
                "{number} was drawn {}, although {before} had been drawn {}",
                draw.by_whom(),
                earlier.by_whom()
            );
            found.note("rising", key, &what, &[earlier, draw]);
        }
    }
}

fn shown(draw: &ClientOperation<'_>) -> Value {
    draw.evidence(draw.completion.map(|(_, line)| &line.value))
}

fn conclude(found: &Found) -> CheckerResult {
    let mut properties = BTreeMap::new();
    for (name, title) in PROPERTIES {
        let checked = match name {
            "rising" => found.pair_count,
            _ => found.drawn_count,
        };
        let violations = found.violations.get(name);
        if checked == 0 && violations.is_none() {
            continue;
        }
        let summary = violations.and_then(|list| list[0]["explanation"].as_str());
        properties.insert(
            name.to_owned(),
            PropertyResult {
                valid: match violations {
                    Some(_) => Validity::Invalid,
                    None => Validity::Valid,
                },
                title: title.to_owned(),
                source: SOURCE.to_owned(),
                checked,
                summary: summary.unwrap_or_default().to_owned(),
                evidence: violations.map_or(Value::Null, |list| json!(list)),
            },
        );
    }
    let first = PROPERTIES
        .iter()
        .find_map(|(name, _)| found.violations.get(name)?.first());
    let mut result = match first {
        Some(first) => {
            let words = first["explanation"].as_str().unwrap_or_default();
            let mut result = conclusion(Validity::Invalid, SOURCE, words);
            result.evidence = first.clone();
            result
        }
        None if found.drawn_count < 2 => {
            let reason = "fewer than two numbers were drawn, so nothing was checked";
            conclusion(Validity::Unknown, SOURCE, reason)
        }
        None => {
            let told = counted(found.drawn_count, "number");
            conclusion(
                Validity::Valid,
                SOURCE,
                format!("{told} drawn, none of them twice"),
            )
        }
    };
    result.properties = properties;
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::lines;

    /// Draws one after the other.
    fn one_by_one(numbers: &[i64]) -> CheckerResult {
        let said = numbers.iter().flat_map(|number| {
            [
                (0, "invoke", "generate", Value::Null),
                (0, "ok", "generate", json!(number)),
            ]
        });
        check(&lines("a", &said.collect::<Vec<_>>()))
    }

    fn violated(result: &CheckerResult) -> Vec<&str> {
        let all = result.properties.iter();
        let violated = all.filter(|(_, property)| property.valid == Validity::Invalid);
        violated.map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn rising_numbers_are_valid_even_with_draws_of_unknown_outcome() {
        let result = one_by_one(&[1, 2, 3]);
        assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
        assert_eq!(result.properties["rising"].checked, 2);
        let said = [
            (0, "invoke", "generate", Value::Null),
            (0, "info", "generate", Value::Null),
            (1, "invoke", "generate", Value::Null),
            (2, "invoke", "generate", Value::Null),
            (2, "ok", "generate", json!(3)),
            (1, "ok", "generate", json!(2)),
        ];
        assert_eq!(check(&lines("a", &said)).valid, Validity::Valid);
    }

    #[test]
    fn a_number_drawn_twice_is_told() {
        let result = one_by_one(&[1, 2, 2]);
        assert_eq!(violated(&result), ["unique"]);
        assert!(
            result.summary.contains("2 was drawn twice"),
            "{}",
            result.summary
        );
    }

    #[test]
    fn a_draw_that_counted_twice_is_told() {
        assert_eq!(violated(&one_by_one(&[1, 3])), ["counted-once"]);
    }

    #[test]
    fn numbers_that_go_back_are_told() {
        let said = [
            (0, "invoke", "generate", Value::Null),
            (0, "info", "generate", Value::Null),
            (1, "invoke", "generate", Value::Null),
            (1, "ok", "generate", json!(2)),
            (1, "invoke", "generate", Value::Null),
            (1, "ok", "generate", json!(1)),
        ];
        assert_eq!(violated(&check(&lines("a", &said))), ["rising"]);
    }

    #[test]
    fn one_number_says_nothing() {
        assert_eq!(one_by_one(&[1]).valid, Validity::Unknown);
    }
}
