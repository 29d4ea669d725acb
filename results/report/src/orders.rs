//! Owns showing the orders that were possible for the few operations of a violation, and where each gets stuck.
//! Never works them out: what no checker told, as those of earlier builds told none of registers, is not shown.

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

/// The possible orders that `evidence` tells of its operations; `None` if it tells none, or if they are not in order.
pub(crate) fn view(evidence: &Value) -> Option<OrdersView> {
    let orders = Orders::of_checker(evidence.get("orders")?)?;
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

#[cfg(test)]
mod tests {
    use super::*;

    /// A write of 5 is over before a read begins that returns 4.
    fn stale_read() -> Value {
        json!({"orders": {
            "operations": [["write 5 by process 2", true], ["cas 5 → 6 by process 3", false],
                ["read → 4 by process 7", true]],
            "situations": [["4", [[0, 1]], [], null], ["5", [[1, 2]], [2], [0, 0]], ["6", [], [2], [1, 1]]],
        }})
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
    fn what_tells_of_no_orders_is_shown_without() {
        for evidence in [
            json!({"operations": []}),
            json!({"orders": null}),
            Value::Null,
        ] {
            assert!(view(&evidence).is_none(), "{evidence}");
        }
    }

    #[test]
    fn values_of_a_recording_cannot_end_the_script_element() {
        let mut evil = stale_read();
        evil["orders"]["operations"][0][0] = json!("write \"</script><img src=x>\"");
        let view = view(&evil).unwrap();
        assert!(!view.data.contains('<'));
        assert!(
            view.furthest[0].operation.contains("</script>"),
            "the template escapes it"
        );
    }

    #[test]
    fn too_many_orders_are_left_to_the_table() {
        let mut many = stale_read();
        let situation = json!(["4", [], [], [0, 0]]);
        let situations = many["orders"]["situations"].as_array_mut().unwrap();
        situations.resize(SITUATION_COUNT_MAX + 1, situation);
        assert!(view(&many).is_none());
    }
}
