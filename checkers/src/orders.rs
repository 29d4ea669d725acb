//! Owns the orders that were possible for the few operations of a violation, and where each gets stuck, as text.
//! Never decides whether there was one: where all operations find a place, it tells nothing.

use std::collections::{HashMap, VecDeque};

use serde_json::{Value as Json, json};

use crate::linearizability::{NEVER, Refutation, Specification, Timeline};

/// More operations than this have too many orders for a person.
const OPERATION_COUNT_MAX: usize = 24;
/// More different situations than this are not followed.
const SITUATION_COUNT_MAX: usize = 400;
/// Longest text of a state, or of an operation, in characters.
const TEXT_LENGTH_MAX: usize = 120;

/// Which operations have their place, and the state that they left.
struct Situation<S> {
    taken: u32,
    state: S,
    /// Where it was reached from first, and by which operation.
    from: Option<(usize, usize)>,
    /// Operations that can come next, with the situation that follows.
    next: Vec<(usize, usize)>,
    /// Operations that could come next as far as time goes, but do not fit the state.
    refused: Vec<usize>,
}

/// An operation of a core: its number, and when it ran. Without an end, it may take effect at any time, or never.
type Member = (usize, u32, Option<u32>);

/// The possible orders of the operations that contradict each other: `operations` with whether each needs a place,
/// and `situations` of a state, of what may come next, of what does not fit, and of where it was reached from. Null if
/// there are too many.
pub(crate) fn told<S: Specification>(
    specification: &S,
    timeline: &Timeline<S::Action>,
    refutation: &Refutation<S::State>,
    label: impl Fn(usize) -> String,
    show_state: impl Fn(&S::State) -> String,
) -> Json {
    if refutation.core.is_empty() || refutation.core.len() > OPERATION_COUNT_MAX {
        return Json::Null;
    }
    let intervals = timeline.intervals();
    let members = refutation.core.iter().map(|one| {
        let (invoked, completed) = intervals[one.operation as usize];
        let end = Some(completed).filter(|end| *end != NEVER && !one.is_optional);
        (one.operation as usize, invoked, end)
    });
    let members: Vec<Member> = members.collect();
    let certain = refutation
        .certain
        .as_ref()
        .map(|certain| certain.state.clone());
    let start = certain.unwrap_or_else(|| specification.initial());
    let Some(situations) = explore(specification, timeline, &members, start) else {
        return Json::Null;
    };
    let operations = members
        .iter()
        .map(|(operation, _, end)| json!([shortened(label(*operation)), end.is_some()]));
    let told = situations.iter().map(|one| {
        json!([
            shortened(show_state(&one.state)),
            one.next,
            one.refused,
            one.from
        ])
    });
    json!({
        "operations": operations.collect::<Vec<_>>(),
        "situations": told.collect::<Vec<_>>(),
    })
}

fn shortened(text: String) -> String {
    match text.char_indices().nth(TEXT_LENGTH_MAX) {
        Some((end, _)) => format!("{}…", &text[..end]),
        None => text,
    }
}

/// All situations there can be. `None` if there are too many, or every operation finds a place in one of them.
fn explore<S: Specification>(
    specification: &S,
    timeline: &Timeline<S::Action>,
    members: &[Member],
    start: S::State,
) -> Option<Vec<Situation<S::State>>> {
    let required = (0..).zip(members).filter(|(_, (.., end))| end.is_some());
    let required = required.fold(0_u32, |mask, (place, _)| mask | 1 << place);
    let situation = |taken, state, from| Situation {
        taken,
        state,
        from,
        next: Vec::new(),
        refused: Vec::new(),
    };
    let mut known = HashMap::from([((0_u32, start.clone()), 0)]);
    let mut situations = vec![situation(0, start, None)];
    let mut open = VecDeque::from([0]);
    while let Some(number) = open.pop_front() {
        let taken = situations[number].taken;
        if taken & required == required {
            return None;
        }
        for place in candidates(members, taken) {
            let mut state: S::State = situations[number].state.clone();
            if !specification.apply(&mut state, timeline.action(members[place].0)) {
                situations[number].refused.push(place);
                continue;
            }
            let reached = (taken | 1 << place, state);
            let next = match known.get(&reached) {
                Some(next) => *next,
                None => {
                    let next = situations.len();
                    if next == SITUATION_COUNT_MAX {
                        return None;
                    }
                    let (taken, state) = reached.clone();
                    situations.push(situation(taken, state, Some((number, place))));
                    known.insert(reached, next);
                    open.push_back(next);
                    next
                }
            };
            situations[number].next.push((place, next));
        }
    }
    Some(situations)
}

/// Operations that may come next: nothing that is still without a place was over before they began.
fn candidates(members: &[Member], taken: u32) -> Vec<usize> {
    let left = (0..members.len()).filter(|place| taken & 1 << place == 0);
    let left: Vec<usize> = left.collect();
    let first_end = left.iter().filter_map(|place| members[*place].2).min();
    let fits = |place: &usize| first_end.is_none_or(|end| members[*place].1 < end);
    left.into_iter().filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use crate::histories::{Model, Options, judge, read};

    /// What is told of the only violation of a history.
    fn told(model: Model, lines: &[&str]) -> serde_json::Value {
        let history = read(lines.join("\n").as_bytes(), None, false).expect("well-formed");
        let report = judge(history, &Options::new(model)).expect("of the model");
        report.evidence["violations"][0]["orders"].clone()
    }

    #[test]
    fn every_model_tells_where_its_orders_get_stuck() {
        let counter = told(
            Model::Counter,
            &[
                r#"{"process":0,"type":"invoke","f":"add","value":2}"#,
                r#"{"process":1,"type":"invoke","f":"add","value":3}"#,
                r#"{"process":0,"type":"ok","f":"add","value":2}"#,
                r#"{"process":2,"type":"invoke","f":"read","value":null}"#,
                r#"{"process":2,"type":"ok","f":"read","value":3}"#,
            ],
        );
        assert_eq!(counter["operations"][0][1], json!(true));
        assert_eq!(counter["situations"][0][0], json!("0"));
        let states = counter["situations"].as_array().expect("a list");
        let states: Vec<_> = states
            .iter()
            .map(|one| one[0].as_str().expect("text"))
            .collect();
        assert!(states.contains(&"5") && states.contains(&"2"), "{states:?}");
        for (model, add, read, state) in [
            (
                Model::Set,
                r#""f":"add","value":7"#,
                r#""f":"read","value":[]"#,
                "[7]",
            ),
            (
                Model::ListAppend,
                r#""f":"append","value":7"#,
                r#""f":"read","value":[]"#,
                "[7]",
            ),
            (
                Model::Queue,
                r#""f":"enqueue","value":7"#,
                r#""f":"dequeue","value":null"#,
                "[7]",
            ),
        ] {
            let invoked = |process: u32, what: &str| {
                format!(r#"{{"process":{process},"type":"invoke",{what}}}"#)
            };
            let ok =
                |process: u32, what: &str| format!(r#"{{"process":{process},"type":"ok",{what}}}"#);
            let lines = [invoked(0, add), ok(0, add), invoked(1, read), ok(1, read)];
            let lines: Vec<&str> = lines.iter().map(String::as_str).collect();
            let orders = told(model, &lines);
            assert_eq!(orders["situations"][1][0], json!(state), "{orders}");
            assert_eq!(orders["situations"][1][2], json!([1]), "{orders}");
            assert_eq!(orders["situations"][1][3], json!([0, 0]), "{orders}");
        }
    }
}
