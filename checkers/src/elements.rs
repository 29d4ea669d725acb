//! Owns what becomes of the elements of lists and sets: lost, stale, there twice, from nowhere, never read.
//! Never judges their order; that is for the model of the object.
//!
//! After the set-full checker of Jepsen. An element is known once its addition was acknowledged or a read has
//! returned it; every read that begins later must return it, as nothing is ever removed.

use std::collections::BTreeMap;

use results::history::{Operation, OperationType};
use results::verdict::{CheckerResult, PropertyResult, Validity};
use serde_json::{Value, json};

use crate::operations::{ClientOperation, Malformed, pair};
use crate::{EVIDENCE_LIST_MAX_COUNT, conclusion, counted, not_understood, seconds};

const SOURCE: &str = "Jepsen's set-full checker";

/// One element of one object.
struct Element<'a> {
    text: String,
    /// By whom it was added; `None` for one that nobody added.
    addition: Option<ClientOperation<'a>>,
    /// From where on every read must return it, and when that was.
    known: Option<Known>,
    /// The last read that returned it: line of its invocation.
    last_seen: Option<usize>,
    /// The first and the last read that had to return it and did not.
    missing: Option<(ClientOperation<'a>, ClientOperation<'a>)>,
    /// How many reads had to return it.
    due_count: u64,
}

/// Since when an element is known.
#[derive(Clone, Copy)]
struct Known {
    line: usize,
    time_ns: u64,
}

/// What happened to one object.
#[derive(Default)]
struct Object<'a> {
    elements: Vec<Element<'a>>,
    by_text: BTreeMap<String, usize>,
    /// Successful reads, in the order of their completion.
    reads: Vec<ClientOperation<'a>>,
}

/// The properties, and what they are called in words.
const PROPERTIES: [(&str, &str); 5] = [
    ("lost", "what was added once is read ever after"),
    ("stale", "what was added is read by every later read"),
    ("duplicated", "what was added once is there once"),
    ("unexpected", "only what somebody may have added is read"),
    ("failed", "what was reported as not added is not read"),
];

/// What was found about each property.
#[derive(Default)]
struct Found {
    checked: BTreeMap<&'static str, u64>,
    violations: BTreeMap<&'static str, Vec<Value>>,
    counts: BTreeMap<&'static str, u64>,
    never_read_count: u64,
    unknown_seen_count: u64,
}

impl Found {
    fn note(&mut self, property: &'static str, violation: Value) {
        *self.counts.entry(property).or_default() += 1;
        let list = self.violations.entry(property).or_default();
        if list.len() < EVIDENCE_LIST_MAX_COUNT {
            list.push(violation);
        }
    }

    fn check(&mut self, property: &'static str, count: u64) {
        *self.checked.entry(property).or_default() += count;
    }
}

/// Checks additions (`add` or `append`, of an element that nothing else adds) and reads of whole objects.
pub fn check(history: &[Operation]) -> CheckerResult {
    let objects = match split(history) {
        Ok(objects) => objects,
        Err(malformed) => return not_understood(SOURCE, malformed),
    };
    let mut found = Found::default();
    let (mut added_count, mut read_count) = (0, 0);
    for (key, mut object) in objects {
        let additions = object.elements.iter();
        added_count += additions.filter(|one| is_definite(one)).count() as u64;
        read_count += object.reads.len() as u64;
        object.look_at_reads(key, &mut found);
        object.conclude(key, &mut found);
    }
    conclude(&found, added_count, read_count)
}

fn is_definite(element: &Element<'_>) -> bool {
    let addition = element.addition.as_ref();
    addition.is_some_and(|addition| addition.outcome() == OperationType::Ok)
}

fn split(history: &[Operation]) -> Result<BTreeMap<&str, Object<'_>>, Malformed> {
    let mut objects: BTreeMap<&str, Object<'_>> = BTreeMap::new();
    for operation in pair(history)? {
        let line = operation.invoke_line;
        let Some(key) = operation.invoke.key.as_deref() else {
            let reason = format!("a {} without a key", operation.invoke.f);
            return Err(Malformed::at(line, reason));
        };
        let object = objects.entry(key).or_default();
        match operation.invoke.f.as_ref() {
            "add" | "append" => object.add(operation)?,
            "read" => {
                if operation.outcome() == OperationType::Ok {
                    object.reads.push(operation);
                }
            }
            other => {
                let reason = format!("{other:?} is neither an addition nor a read");
                return Err(Malformed::at(line, reason));
            }
        }
    }
    for object in objects.values_mut() {
        let completed = |read: &ClientOperation<'_>| read.completion.map(|(line, _)| line);
        object.reads.sort_by_key(completed);
    }
    Ok(objects)
}

impl<'a> Object<'a> {
    fn add(&mut self, addition: ClientOperation<'a>) -> Result<(), Malformed> {
        let text = addition.invoke.value.to_string();
        let number = self.elements.len();
        if self.by_text.insert(text.clone(), number).is_some() {
            let reason = format!("{text} is added for the second time");
            return Err(Malformed::at(addition.invoke_line, reason));
        }
        let known = match addition.completion {
            Some((line, completion)) if completion.operation_type == OperationType::Ok => {
                Some(Known {
                    line,
                    time_ns: completion.time,
                })
            }
            _ => None,
        };
        self.elements.push(Element {
            text,
            addition: Some(addition),
            known,
            last_seen: None,
            missing: None,
            due_count: 0,
        });
        Ok(())
    }

    fn look_at_reads(&mut self, key: &str, found: &mut Found) {
        let reads = std::mem::take(&mut self.reads);
        for read in &reads {
            let Some((line, completion)) = read.completion else {
                continue;
            };
            let Some(returned) = completion.value.as_array() else {
                found.note("unexpected", json!({
                    "key": key, "explanation": format!("key {key}: {} returned no list", told(read)),
                    "operations": [shown(read)],
                }));
                continue;
            };
            let known = Known {
                line,
                time_ns: completion.time,
            };
            let mut is_there = vec![false; self.elements.len()];
            for value in returned {
                self.look_at_element(key, value, read, known, &mut is_there, found);
            }
            for (element, is_there) in self.elements.iter_mut().zip(is_there) {
                let is_due = element
                    .known
                    .is_some_and(|known| known.line < read.invoke_line);
                element.due_count += u64::from(is_due);
                if is_there {
                    element.last_seen = element.last_seen.max(Some(read.invoke_line));
                } else if is_due {
                    let first = element.missing.map_or(*read, |(first, _)| first);
                    let later = |last: ClientOperation<'a>| {
                        if last.invoke_line > read.invoke_line {
                            last
                        } else {
                            *read
                        }
                    };
                    let last = element.missing.map_or(*read, |(_, last)| later(last));
                    element.missing = Some((first, last));
                }
            }
        }
        self.reads = reads;
    }

    /// One element of what a read returned.
    fn look_at_element(
        &mut self,
        key: &str,
        value: &Value,
        read: &ClientOperation<'a>,
        known: Known,
        is_there: &mut [bool],
        found: &mut Found,
    ) {
        let text = value.to_string();
        found.check("duplicated", 1);
        found.check("unexpected", 1);
        let violation = |what: &str, addition: Option<&ClientOperation<'_>>| {
            json!({
                "key": key,
                "explanation": format!("key {key}: {} {what}", told(read)),
                "element": value,
                "operations": addition.into_iter().chain([read]).map(shown).collect::<Vec<_>>(),
            })
        };
        let Some(number) = self.by_text.get(&text).copied() else {
            let what = format!("returned {text}, which nobody added");
            return found.note("unexpected", violation(&what, None));
        };
        let element = &mut self.elements[number];
        let addition = element.addition.as_ref();
        if is_there[number] {
            let what = format!("returned {text} more than once, but it was added once");
            return found.note("duplicated", violation(&what, addition));
        }
        is_there[number] = true;
        match addition.map(ClientOperation::outcome) {
            Some(OperationType::Fail) => {
                let what = format!("returned {text}, but its addition had failed for certain");
                found.note("failed", violation(&what, addition));
            }
            Some(_) if addition.is_some_and(|one| one.invoke_line > known.line) => {
                let what = format!("returned {text} before it was added");
                found.note("unexpected", violation(&what, addition));
            }
            _ => {}
        }
        if element.known.is_none_or(|before| known.line < before.line) {
            element.known = Some(known);
        }
    }

    fn conclude(&self, key: &str, found: &mut Found) {
        for element in &self.elements {
            let outcome = element.addition.as_ref().map(ClientOperation::outcome);
            if outcome == Some(OperationType::Fail) {
                found.check("failed", 1);
            }
            if outcome == Some(OperationType::Info) && element.last_seen.is_some() {
                found.unknown_seen_count += 1;
            }
            if outcome == Some(OperationType::Ok) && element.due_count == 0 {
                found.never_read_count += 1;
            }
            if element.due_count > 0 {
                found.check("lost", 1);
                found.check("stale", element.due_count);
            }
            let (Some(known), Some((first, last))) = (element.known, element.missing) else {
                continue;
            };
            let text = &element.text;
            let is_lost = element.last_seen.is_none_or(|seen| seen < last.invoke_line);
            let since = seconds(known.time_ns);
            let late_ns = last.invoke.time.saturating_sub(known.time_ns);
            let (property, what) = if is_lost {
                let what = format!(
                    "{text} was there at {since} and is not any more: {}",
                    told(&first)
                );
                (
                    "lost",
                    format!("{what} did not return it, and no later read did"),
                )
            } else {
                let what = format!("{text} was there at {since}, but {}", told(&last));
                let late = format!("did not return it {} later", seconds(late_ns));
                ("stale", format!("{what} {late}"))
            };
            found.note(property, json!({
                "key": key,
                "explanation": format!("key {key}: {what}"),
                "element": element.text,
                "known_ns": known.time_ns,
                "missing_ns": first.invoke.time,
                "stale_ns": (!is_lost).then_some(late_ns),
                "operations": element.addition.iter().chain([&first]).map(shown).collect::<Vec<_>>(),
            }));
        }
    }
}

/// "a read by process 3 on n1 from 1.000 s to 1.002 s".
fn told(read: &ClientOperation<'_>) -> String {
    format!("a read {}", read.by_whom())
}

/// An operation for programs.
fn shown(operation: &ClientOperation<'_>) -> Value {
    let completion = operation.completion.map(|(_, line)| line);
    operation.evidence(Some(
        completion.map_or(&operation.invoke.value, |line| &line.value),
    ))
}

fn conclude(found: &Found, added_count: u64, read_count: u64) -> CheckerResult {
    let first = PROPERTIES.iter().find_map(|(name, _)| {
        let list = found.violations.get(name)?;
        Some((*name, list.first()?))
    });
    let mut properties = BTreeMap::new();
    for (name, title) in PROPERTIES {
        let checked = found.checked.get(name).copied().unwrap_or(0);
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
    let counts = format!(
        "{} added, {} of unknown outcome seen, {} never due in a read, {}",
        counted(added_count, "element"),
        found.unknown_seen_count,
        found.never_read_count,
        counted(read_count, "read")
    );
    let due_count = found.checked.get("stale").copied().unwrap_or(0);
    let mut result = match first {
        Some((name, violation)) => {
            let words = violation["explanation"].as_str().unwrap_or_default();
            let count = found.counts.get(name).copied().unwrap_or(1);
            let more = match count {
                1 => String::new(),
                many => format!(" (and {} more)", many - 1),
            };
            let mut result =
                conclusion(Validity::Invalid, SOURCE, format!("{name}: {words}{more}"));
            result.evidence = violation.clone();
            result
        }
        None if due_count == 0 => conclusion(
            Validity::Unknown,
            SOURCE,
            format!("no read had to return anything, so nothing was checked ({counts})"),
        ),
        None => conclusion(
            Validity::Valid,
            SOURCE,
            format!("no element was lost, stale or there twice ({counts})"),
        ),
    };
    result.properties = properties;
    if result.evidence.is_null() {
        result.evidence = json!({
            "added_count": added_count,
            "read_count": read_count,
            "never_read_count": found.never_read_count,
            "unknown_seen_count": found.unknown_seen_count,
        });
    }
    result
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::operations::lines;

    fn checked(said: &[(u64, &str, &str, Value)]) -> CheckerResult {
        check(&lines("a", said))
    }

    fn violated(result: &CheckerResult) -> Vec<&str> {
        let all = result.properties.iter();
        let violated = all.filter(|(_, property)| property.valid == Validity::Invalid);
        violated.map(|(name, _)| name.as_str()).collect()
    }

    #[test]
    fn what_was_added_and_is_read_ever_after_is_valid() {
        let result = checked(&[
            (0, "invoke", "add", json!(1)),
            (1, "invoke", "read", Value::Null),
            (1, "ok", "read", json!([])),
            (0, "ok", "add", json!(1)),
            (0, "invoke", "add", json!(2)),
            (0, "info", "add", json!(2)),
            (1, "invoke", "read", Value::Null),
            (1, "ok", "read", json!([1])),
            (1, "invoke", "read", Value::Null),
            (1, "ok", "read", json!([1, 2])),
        ]);
        assert_eq!(result.valid, Validity::Valid, "{}", result.summary);
        assert_eq!(result.properties["stale"].checked, 2);
        assert_eq!(result.evidence["unknown_seen_count"], 1);
    }

    #[test]
    fn without_a_read_that_must_return_something_nothing_is_known() {
        let result = checked(&[(0, "invoke", "add", json!(1)), (0, "ok", "add", json!(1))]);
        assert_eq!(result.valid, Validity::Unknown);
        assert_eq!(result.evidence["never_read_count"], 1);
        assert_eq!(checked(&[]).valid, Validity::Unknown);
    }

    #[test]
    fn an_element_that_no_later_read_returns_is_lost() {
        let result = checked(&[
            (0, "invoke", "add", json!(1)),
            (0, "ok", "add", json!(1)),
            (1, "invoke", "read", Value::Null),
            (1, "ok", "read", json!([])),
        ]);
        assert_eq!(violated(&result), ["lost"]);
        assert!(
            result.summary.contains("1 was there at 0.001 s"),
            "{}",
            result.summary
        );
    }

    #[test]
    fn an_element_that_comes_back_was_stale() {
        let read = |value| [(1, "invoke", "read", Value::Null), (1, "ok", "read", value)];
        let mut said = vec![(0, "invoke", "add", json!(1))];
        said.extend(read(json!([1])));
        said.extend(read(json!([])));
        said.extend(read(json!([1])));
        let result = checked(&said);
        assert_eq!(violated(&result), ["stale"]);
        assert_eq!(result.evidence["stale_ns"], 1_000_000);
    }

    #[test]
    fn what_is_there_twice_or_from_nowhere_or_failed_is_told() {
        let result = checked(&[
            (0, "invoke", "append", json!(1)),
            (0, "ok", "append", json!(1)),
            (0, "invoke", "append", json!(2)),
            (0, "fail", "append", json!(2)),
            (1, "invoke", "read", Value::Null),
            (1, "ok", "read", json!([1, 1, 2, 3])),
        ]);
        assert_eq!(violated(&result), ["duplicated", "failed", "unexpected"]);
    }

    #[test]
    fn other_operations_are_no_elements() {
        let result = checked(&[(0, "invoke", "cas", json!([1, 2]))]);
        assert_eq!(result.valid, Validity::Unknown);
        assert!(result.summary.contains("malformed"), "{}", result.summary);
    }
}
