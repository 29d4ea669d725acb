//! Owns the orders that were possible for the few operations of a violation, and where each gets stuck.
//! Never decides whether there was one: where all operations find a place, it shows nothing.

use std::collections::{BTreeMap, VecDeque};

use serde::Deserialize;
use serde_json::{Value, json};

use crate::text;

/// More operations than this have too many orders for a person, and for a page.
const OPERATION_COUNT_MAX: usize = 24;
/// More different situations than this are not followed.
const SITUATION_COUNT_MAX: usize = 1_200;
/// Orders that are told.
const LONGEST_COUNT_MAX: usize = 12;

/// The possible orders of the operations of one object.
#[derive(Debug)]
pub(crate) struct OrdersView {
    /// What the value was before all of them.
    pub(crate) start: String,
    /// Operations that must all find a place, since they were acknowledged.
    pub(crate) required_count: usize,
    /// The order that gets furthest, as it is shown without a script.
    pub(crate) furthest: Vec<Step>,
    /// What keeps it from going on, one line for each operation that could come next.
    pub(crate) stuck: Vec<String>,
    /// All situations, for the script. Safe inside of a script element.
    pub(crate) data: String,
}

/// One operation in its place.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Step {
    /// The operation.
    pub(crate) operation: String,
    /// The value after it.
    pub(crate) state: String,
}

#[derive(Debug)]
struct Operation {
    label: String,
    action: Action,
    invoked: u64,
    /// Position of the answer; `None` if it may take effect at any time, or never.
    completed: Option<u64>,
}

#[derive(Debug)]
enum Action {
    Read(Value),
    Write(Value),
    Swap(Value, Value),
}

/// Which operations have their place, and the value that they left.
#[derive(Debug)]
struct Situation {
    taken: u32,
    state: Value,
    /// Where it was reached from first, and by which operation.
    from: Option<(usize, usize)>,
    /// Operations that can come next, with the situation that follows.
    next: Vec<(usize, usize)>,
    /// Operations that could come next as far as time goes, but do not fit the value.
    refused: Vec<usize>,
}

/// All situations of some operations, in words.
#[derive(Debug)]
struct Orders {
    /// What each operation is, and whether it needs a place.
    operations: Vec<(String, bool)>,
    situations: Vec<Shown>,
}

/// A situation in words.
#[derive(Debug)]
struct Shown {
    state: String,
    from: Option<(usize, usize)>,
    next: Vec<(usize, usize)>,
    refused: Vec<usize>,
}

/// The possible orders of the operations of `evidence`; `None` if it tells none and is no violation of a register, if
/// it is incomplete, or if there are too many.
pub(crate) fn view(evidence: &Value) -> Option<OrdersView> {
    let orders = match evidence.get("orders") {
        Some(told) => Orders::of_checker(told)?,
        None => Orders::of_register(evidence)?,
    };
    let situations = &orders.situations;
    let mut ends: Vec<usize> = (0..situations.len())
        .filter(|number| situations[*number].next.is_empty())
        .collect();
    ends.sort_by_cached_key(|number| {
        let path = orders.path(*number);
        let required = path.iter().filter(|(place, _)| orders.operations[*place].1);
        std::cmp::Reverse((required.count(), path.len()))
    });
    let furthest = *ends.first()?;
    let required = orders.operations.iter().filter(|(_, required)| *required);
    Some(OrdersView {
        start: situations[0].state.clone(),
        required_count: required.count(),
        furthest: orders.steps(furthest),
        stuck: orders.stuck(furthest),
        data: orders.data(&ends),
    })
}

impl Orders {
    /// What a checker tells of the orders, whatever object it is about. `None` if it is not in order.
    fn of_checker(told: &Value) -> Option<Self> {
        let operations: Vec<(String, bool)> = Vec::deserialize(told.get("operations")?).ok()?;
        type Told = (
            String,
            Vec<(usize, usize)>,
            Vec<usize>,
            Option<(usize, usize)>,
        );
        let situations: Vec<Told> = Vec::deserialize(told.get("situations")?).ok()?;
        let count = situations.len();
        let is_in_order = |(number, (_, next, refused, from)): (usize, &Told)| {
            let next_fits =
                |(place, next): &(usize, usize)| *place < operations.len() && *next < count;
            // Reached from an earlier one, so that every path ends.
            let from_fits = match from {
                Some((before, place)) => *before < number && *place < operations.len(),
                None => number == 0,
            };
            from_fits
                && next.iter().all(next_fits)
                && refused.iter().all(|place| *place < operations.len())
        };
        let is_small =
            operations.len() <= OPERATION_COUNT_MAX && (1..=SITUATION_COUNT_MAX).contains(&count);
        if !is_small || !situations.iter().enumerate().all(is_in_order) {
            return None;
        }
        let label = |(label, required): (String, bool)| (text::printable(&label), required);
        let situations = situations
            .into_iter()
            .map(|(state, next, refused, from)| Shown {
                state: text::printable(&state),
                from,
                next,
                refused,
            });
        Some(Self {
            situations: situations.collect(),
            operations: operations.into_iter().map(label).collect(),
        })
    }

    /// The orders of the operations of a register, worked out here.
    fn of_register(evidence: &Value) -> Option<Self> {
        let is_whole = evidence
            .get("operations_left_out")
            .is_none_or(|left| *left == 0);
        let listed = evidence.get("operations")?.as_array()?;
        if !is_whole || listed.is_empty() || listed.len() > OPERATION_COUNT_MAX {
            return None;
        }
        evidence.get("failing_index")?;
        // Two events may have the same time; earlier versions did not record their positions.
        let has_positions = listed
            .iter()
            .all(|one| one["completed_ns"].is_null() || one["completed_index"].is_u64());
        let members = match has_positions {
            true => ["index", "completed_index"],
            false => ["invoked_ns", "completed_ns"],
        };
        let mut operations = listed
            .iter()
            .map(|told| operation(told, members))
            .collect::<Option<Vec<Operation>>>()?;
        operations.sort_by_key(|one| one.invoked);
        let start = evidence.get("certain_state").cloned().unwrap_or_default();
        let situations = explore(&operations, &start)?.into_iter();
        let situations = situations.map(|one| Shown {
            state: shown(&one.state),
            from: one.from,
            next: one.next,
            refused: one.refused,
        });
        let operations = operations.into_iter();
        Some(Self {
            situations: situations.collect(),
            operations: operations
                .map(|one| (one.label, one.completed.is_some()))
                .collect(),
        })
    }

    /// The operations by which a situation was reached first, with the situation that each led to.
    fn path(&self, end: usize) -> Vec<(usize, usize)> {
        let mut path = Vec::new();
        let mut number = end;
        while let Some((before, place)) = self.situations[number].from {
            path.push((place, number));
            number = before;
        }
        path.reverse();
        path
    }

    /// The order in which a situation was reached first.
    fn steps(&self, end: usize) -> Vec<Step> {
        let path = self.path(end).into_iter();
        let steps = path.map(|(place, number)| Step {
            operation: self.operations[place].0.clone(),
            state: self.situations[number].state.clone(),
        });
        steps.collect()
    }

    /// Why the order ends here.
    fn stuck(&self, end: usize) -> Vec<String> {
        let Shown { state, refused, .. } = &self.situations[end];
        let refused = refused.iter();
        let lines = refused.map(|place| {
            let label = &self.operations[*place].0;
            format!("{label} does not fit: the value is {state}")
        });
        lines.collect()
    }

    /// What the script needs: operations, situations, and the situations in which orders end, the furthest first.
    fn data(&self, ends: &[usize]) -> String {
        let situations = self.situations.iter();
        let data = json!({
            "operations": self.operations,
            "situations": situations
                .map(|one| json!([one.state, one.next, one.refused, one.from]))
                .collect::<Vec<_>>(),
            "ends": ends.iter().take(LONGEST_COUNT_MAX).collect::<Vec<_>>(),
            "end_count": ends.len(),
        });
        // Nothing in it may end the element that holds it.
        data.to_string().replace('<', "\\u003c")
    }
}

fn operation(told: &Value, [invoked, completed]: [&str; 2]) -> Option<Operation> {
    let number = |name: &str| told.get(name).and_then(Value::as_u64);
    let value = told.get("value").cloned().unwrap_or_default();
    let f = told.get("f")?.as_str()?;
    let action = match (f, value.as_array().map(Vec::as_slice)) {
        ("read", _) => Action::Read(value.clone()),
        ("write", _) => Action::Write(value.clone()),
        ("cas", Some([from, to])) => Action::Swap(from.clone(), to.clone()),
        _ => return None,
    };
    let is_certain = told.get("type").and_then(Value::as_str) == Some("ok");
    let process = told
        .get("process")
        .map_or_else(|| "?".into(), Value::to_string);
    Some(Operation {
        label: format!(
            "{} by process {}",
            text::printable(&words(&action)),
            text::printable(&process)
        ),
        action,
        invoked: number(invoked)?,
        completed: number(completed).filter(|_| is_certain),
    })
}

fn words(action: &Action) -> String {
    match action {
        Action::Read(value) => format!("read → {}", shown(value)),
        Action::Write(value) => format!("write {}", shown(value)),
        Action::Swap(from, to) => format!("cas {} → {}", shown(from), shown(to)),
    }
}

fn shown(value: &Value) -> String {
    let text = match value {
        Value::Null => "nothing".to_owned(),
        value => value.to_string(),
    };
    text::printable(&text::shortened(&text, 40))
}

/// The value after an action; `None` if the action does not fit it.
fn applied(state: &Value, action: &Action) -> Option<Value> {
    match action {
        Action::Read(value) => (state == value).then(|| state.clone()),
        Action::Write(value) => Some(value.clone()),
        Action::Swap(from, to) => (state == from).then(|| to.clone()),
    }
}

/// All situations there can be. `None` if there are too many, or every operation finds a place in one of them.
fn explore(operations: &[Operation], start: &Value) -> Option<Vec<Situation>> {
    let required = operations
        .iter()
        .enumerate()
        .filter(|(_, one)| one.completed.is_some())
        .fold(0u32, |mask, (place, _)| mask | 1 << place);
    let mut situations = vec![Situation {
        taken: 0,
        state: start.clone(),
        from: None,
        next: Vec::new(),
        refused: Vec::new(),
    }];
    let mut known = BTreeMap::from([((0u32, start.to_string()), 0)]);
    let mut open = VecDeque::from([0]);
    while let Some(number) = open.pop_front() {
        let (taken, state) = (situations[number].taken, situations[number].state.clone());
        if taken & required == required {
            return None;
        }
        for place in candidates(operations, taken) {
            let Some(after) = applied(&state, &operations[place].action) else {
                situations[number].refused.push(place);
                continue;
            };
            let key = (taken | 1 << place, after.to_string());
            let next = match known.get(&key) {
                Some(next) => *next,
                None => {
                    let next = situations.len();
                    if next == SITUATION_COUNT_MAX {
                        return None;
                    }
                    situations.push(Situation {
                        taken: key.0,
                        state: after,
                        from: Some((number, place)),
                        next: Vec::new(),
                        refused: Vec::new(),
                    });
                    known.insert(key, next);
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
fn candidates(operations: &[Operation], taken: u32) -> Vec<usize> {
    let untaken = |place: &usize| taken & 1 << place == 0;
    let first_answer = (0..operations.len())
        .filter(untaken)
        .filter_map(|place| operations[place].completed)
        .min();
    let fits = |place: &usize| first_answer.is_none_or(|first| operations[*place].invoked <= first);
    (0..operations.len()).filter(untaken).filter(fits).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn told(place: u64, f: &str, value: Value, index: u64, completed: Option<u64>) -> Value {
        json!({
            "index": index, "process": place, "f": f, "value": value,
            "type": if completed.is_some() { "ok" } else { "info" },
            "invoked_ns": index, "completed_ns": completed, "completed_index": completed,
        })
    }

    /// A write of 5 is over before a read begins that returns 4.
    fn stale_read() -> Value {
        json!({
            "failing_index": 4, "certain_state": 4, "operations_left_out": 0,
            "operations": [
                told(2, "write", json!(5), 0, Some(1)),
                told(3, "cas", json!([5, 6]), 2, None),
                told(7, "read", json!(4), 4, Some(6)),
            ],
        })
    }

    #[test]
    fn the_order_that_gets_furthest_is_told_with_what_stops_it() {
        let view = view(&stale_read()).unwrap();
        assert_eq!(view.start, "4");
        assert_eq!(view.required_count, 2);
        let told: Vec<_> = view
            .furthest
            .iter()
            .map(|step| (step.operation.as_str(), step.state.as_str()))
            .collect();
        assert_eq!(
            told,
            [
                ("write 5 by process 2", "5"),
                ("cas 5 → 6 by process 3", "6")
            ]
        );
        assert_eq!(
            view.stuck,
            ["read → 4 by process 7 does not fit: the value is 6"]
        );
        let data: Value = serde_json::from_str(&view.data).unwrap();
        assert_eq!(data["situations"].as_array().unwrap().len(), 3);
        assert_eq!(
            data["situations"][0][1],
            json!([[0, 1]]),
            "only the write may come first"
        );
    }

    /// What a checker tells of a counter, or of any other object.
    #[test]
    fn orders_that_a_checker_tells_are_shown_if_they_are_in_order() {
        let told = json!({"orders": {
            "operations": [["add 2 by process 0", true], ["read 3 by process 2", true]],
            "situations": [["0", [[0, 1]], [], null], ["2", [], [1], [0, 0]]],
        }});
        let view = view(&told).unwrap();
        assert_eq!((view.start.as_str(), view.required_count), ("0", 2));
        assert_eq!(view.furthest.len(), 1);
        assert_eq!(
            view.stuck,
            ["read 3 by process 2 does not fit: the value is 2"]
        );
        let refused = |member: &str, value: Value| {
            let mut damaged = told.clone();
            damaged["orders"]["situations"][1][member.parse::<usize>().unwrap()] = value;
            super::view(&damaged).is_none()
        };
        assert!(refused("1", json!([[0, 2]])) && refused("1", json!([[7, 0]])));
        assert!(
            refused("2", json!([2])) && refused("3", json!([1, 0])) && refused("3", json!(null))
        );
        assert!(super::view(&json!({"orders": null})).is_none());
        assert!(super::view(&json!({"orders": {"operations": [], "situations": []}})).is_none());
    }

    #[test]
    fn what_has_an_order_or_is_no_register_is_not_shown() {
        let mut fine = stale_read();
        fine["operations"][2]["value"] = json!(5);
        assert!(view(&fine).is_none());
        let mut other = stale_read();
        other["operations"][0]["f"] = "append".into();
        assert!(view(&other).is_none());
        let mut cut = stale_read();
        cut["operations_left_out"] = 3.into();
        assert!(view(&cut).is_none());
        assert!(view(&json!({"operations": []})).is_none());
        assert!(view(&Value::Null).is_none());
    }

    #[test]
    fn values_of_a_recording_cannot_end_the_script_element() {
        let mut evil = stale_read();
        evil["operations"][0]["value"] = json!("</script><img src=x>");
        let view = view(&evil).unwrap();
        assert!(!view.data.contains('<'));
        assert!(
            view.furthest[0].operation.contains("</script>"),
            "the template escapes it"
        );
    }

    #[test]
    fn too_many_orders_are_left_to_the_table() {
        let mut operations: Vec<Value> = (0..20)
            .map(|place| told(place, "write", json!(place), place, None))
            .collect();
        operations.push(told(99, "read", json!(1000), 50, Some(51)));
        let evidence = json!({"failing_index": 50, "operations": operations});
        assert!(view(&evidence).is_none());
    }
}
