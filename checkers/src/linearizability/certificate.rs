//! Owns the independent checks of a verdict: the replay of an order, and the trial of every order.
//! Never shares anything with the searches but the specification and the timeline.

use std::collections::{HashMap, HashSet};

use super::models::Specification;
use super::timeline::{NEVER, Timeline};

/// Whether `order` (numbers of operations) is a linearization; the reason where it is not.
///
/// # Errors
///
/// If an operation is missing, taken twice, out of its time, or not possible where it stands.
pub fn replay<S: Specification>(
    specification: &S,
    timeline: &Timeline<S::Action>,
    order: &[u32],
) -> Result<(), String> {
    let intervals = timeline.intervals();
    let mut taken = vec![false; timeline.len()];
    let mut state = specification.initial();
    let mut latest_invocation = 0;
    for operation in order.iter().map(|number| *number as usize) {
        let Some((invoked, completed)) = intervals.get(operation).copied() else {
            return Err(format!("operation {operation} does not exist"));
        };
        if std::mem::replace(&mut taken[operation], true) {
            return Err(format!("operation {operation} is taken twice"));
        }
        // Everything before it in the order must have begun before it ended.
        latest_invocation = latest_invocation.max(invoked);
        if completed < latest_invocation {
            return Err(format!(
                "operation {operation} ended before an operation began that stands before it"
            ));
        }
        if !specification.apply(&mut state, timeline.action(operation)) {
            return Err(format!(
                "operation {operation} is not possible where it stands"
            ));
        }
    }
    match (0..timeline.len()).find(|place| intervals[*place].1 != NEVER && !taken[*place]) {
        Some(operation) => Err(format!("completed operation {operation} is missing")),
        None => Ok(()),
    }
}

/// Most operations that the trial of every order takes on.
pub const TRIAL_MAX_COUNT: usize = 64;

/// Tries every order, remembering only which operations led to which state. `None` where that
/// would take more than `budget` steps, or there are more than [`TRIAL_MAX_COUNT`] operations.
pub fn try_every_order<S: Specification>(
    specification: &S,
    timeline: &Timeline<S::Action>,
    budget: u64,
) -> Option<bool> {
    if timeline.len() > TRIAL_MAX_COUNT {
        return None;
    }
    let intervals = timeline.intervals();
    let mut left = budget;
    // States are numbered, so that they are kept only once.
    let mut states = vec![specification.initial()];
    let mut numbers = HashMap::from([(states[0].clone(), 0)]);
    let mut tried = HashSet::new();
    let mut pending = vec![(0_u64, 0)];
    while let Some((taken, state)) = pending.pop() {
        let untaken = |place: &usize| taken & (1 << place) == 0;
        let earliest_completion = (0..timeline.len())
            .filter(untaken)
            .map(|place| intervals[place].1)
            .min();
        if earliest_completion.unwrap_or(NEVER) == NEVER {
            return Some(true);
        }
        for place in (0..timeline.len()).filter(untaken) {
            if Some(intervals[place].0) > earliest_completion {
                continue;
            }
            left = left.checked_sub(1)?;
            let mut next: S::State = states[state].clone();
            if !specification.apply(&mut next, timeline.action(place)) {
                continue;
            }
            let number = *numbers.entry(next).or_insert_with_key(|next| {
                states.push(next.clone());
                states.len() - 1
            });
            let next = (taken | 1 << place, number);
            if tried.insert(next) {
                pending.push(next);
            }
        }
    }
    Some(false)
}

/// Equal operations of unknown outcome, and what using them costs.
///
/// Of `n` of them, an order uses at most `k` before number `k` (from 0) begins. Each of these limits has a weight;
/// a use costs the weights of all limits that it counts against, so whatever the weights are, no order costs more
/// than the sum of weights times limits.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Charge {
    /// The operations, in the order of their invocations.
    pub operations: Vec<u32>,
    /// The weights of the limits to one use, to two, and so on.
    pub weights: Vec<u64>,
}

/// Configurations that are kept at once when orders are tried at a price.
const PRICED_MAX_COUNT: usize = 200_000;

/// Whether every order costs more than any can, and so there is none. Operations of unknown outcome without a price
/// cost nothing, however often they are used. `None` where it would take more than `budget` steps to tell, or more
/// than [`TRIAL_MAX_COUNT`] operations are open at once.
///
/// # Panics
/// If the charges are not of different operations of unknown outcome, each of equal ones in their order.
pub(super) fn is_too_expensive<S: Specification>(
    specification: &S,
    timeline: &Timeline<S::Action>,
    charges: &[Charge],
    budget: u64,
) -> Option<bool> {
    let intervals = timeline.intervals();
    let mut uses = Uses::new(timeline, &intervals, charges);
    let affordable = uses.affordable;
    let mut left = budget;
    // By state and the open operations that were taken: the lowest price.
    let mut cheapest = HashMap::from([((specification.initial(), 0_u64), 0_u64)]);
    let mut open: Vec<Option<usize>> = Vec::new();
    for event in timeline.events() {
        let operation = event.operation();
        if !event.is_completion() {
            if intervals[operation].1 == NEVER {
                uses.begin(operation);
                continue;
            }
            match open.iter().position(Option::is_none) {
                Some(slot) => open[slot] = Some(operation),
                None => open.push(Some(operation)),
            }
            if open.len() > TRIAL_MAX_COUNT {
                return None;
            }
            continue;
        }
        let slot = open.iter().position(|other| *other == Some(operation))?;
        let mut pending: Vec<_> = cheapest.keys().cloned().collect();
        while let Some(from) = pending.pop() {
            if from.1 & (1 << slot) != 0 {
                continue;
            }
            let paid = cheapest[&from];
            let taken = open.iter().enumerate().filter_map(|(slot, operation)| {
                let bit = 1_u64 << slot;
                operation
                    .filter(|_| from.1 & bit == 0)
                    .map(|operation| (operation, bit, 0))
            });
            let used = uses
                .possible()
                .map(|(operation, cost)| (operation, 0, cost));
            for (operation, bit, cost) in taken.chain(used) {
                left = left.checked_sub(1)?;
                let price = paid + cost;
                let mut state: S::State = from.0.clone();
                if price > affordable
                    || !specification.apply(&mut state, timeline.action(operation))
                {
                    continue;
                }
                let next = (state, from.1 | bit);
                if cheapest.get(&next).is_none_or(|known| price < *known) {
                    cheapest.insert(next.clone(), price);
                    pending.push(next);
                }
            }
            if cheapest.len() > PRICED_MAX_COUNT {
                return None;
            }
        }
        let passed = cheapest
            .into_iter()
            .filter(|((_, taken), _)| taken & (1 << slot) != 0);
        cheapest = passed
            .map(|((state, taken), price)| ((state, taken & !(1 << slot)), price))
            .collect();
        open[slot] = None;
        if cheapest.is_empty() {
            return Some(true);
        }
    }
    Some(false)
}

/// Operations of unknown outcome that have begun, and what each costs.
struct Uses<'a> {
    /// What all uses together may cost.
    affordable: u64,
    /// By charge: what uses it, an operation that stands for all, and how many have begun.
    charges: Vec<(&'a Charge, usize)>,
    /// By operation: its charge.
    charge_of: HashMap<usize, usize>,
    /// Those that cost nothing.
    free: Vec<usize>,
}

impl<'a> Uses<'a> {
    fn new<A: Copy + PartialEq>(
        timeline: &Timeline<A>,
        intervals: &[(u32, u32)],
        charges: &'a [Charge],
    ) -> Self {
        let mut charge_of = HashMap::new();
        let mut affordable = 0;
        for (number, charge) in charges.iter().enumerate() {
            assert_eq!(charge.operations.len(), charge.weights.len());
            affordable += (1..)
                .zip(&charge.weights)
                .map(|(limit, weight)| limit * weight)
                .sum::<u64>();
            for two in charge.operations.windows(2) {
                let [one, other] = [two[0] as usize, two[1] as usize];
                assert!(intervals[one].0 < intervals[other].0);
                assert!(timeline.action(one) == timeline.action(other));
            }
            for operation in &charge.operations {
                let operation = *operation as usize;
                assert_eq!(intervals[operation].1, NEVER);
                assert_eq!(charge_of.insert(operation, number), None);
            }
        }
        Self {
            affordable,
            charges: charges.iter().map(|charge| (charge, 0)).collect(),
            charge_of,
            free: Vec::new(),
        }
    }

    fn begin(&mut self, operation: usize) {
        match self.charge_of.get(&operation) {
            Some(charge) => self.charges[*charge].1 += 1,
            None => self.free.push(operation),
        }
    }

    /// An operation that stands for all that are equal, and what its use costs now.
    fn possible(&self) -> impl Iterator<Item = (usize, u64)> {
        let begun = self.charges.iter().filter(|(_, begun)| *begun > 0);
        let priced = begun.map(|(charge, begun)| {
            let cost = charge.weights[begun - 1..].iter().sum();
            (charge.operations[0] as usize, cost)
        });
        priced.chain(self.free.iter().map(|operation| (*operation, 0)))
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::register::{Action, Register};
    use super::*;

    fn example() -> Timeline<Action> {
        let mut timeline = Timeline::new();
        let first = timeline.invoke(Action::Write(1));
        timeline.complete(first);
        let second = timeline.invoke(Action::Write(2));
        let read = timeline.invoke(Action::Read(1));
        timeline.complete(second);
        timeline.complete(read);
        timeline
    }

    #[test]
    fn only_linearizations_pass() {
        let register = Register { initial: 0 };
        let timeline = example();
        assert_eq!(replay(&register, &timeline, &[0, 2, 1]), Ok(()));
        let reason = |order: &[u32]| replay(&register, &timeline, order).unwrap_err();
        assert!(reason(&[0, 1, 2]).contains("2 is not possible"));
        assert!(reason(&[1, 0, 2]).contains("ended before"));
        assert!(reason(&[0, 2]).contains("operation 1 is missing"));
        assert!(reason(&[0, 0]).contains("twice"));
    }

    #[test]
    fn every_order_is_tried_within_its_budget() {
        let register = Register { initial: 0 };
        let mut timeline = example();
        assert_eq!(try_every_order(&register, &timeline, 100), Some(true));
        let read = timeline.invoke(Action::Read(1));
        timeline.complete(read);
        assert_eq!(try_every_order(&register, &timeline, 100), Some(false));
        assert_eq!(try_every_order(&register, &timeline, 3), None);
    }

    /// Twice the register goes back to 1, and one write of 1 may have done so.
    fn back_twice(write_count: usize) -> Timeline<Action> {
        let mut timeline = Timeline::new();
        for _ in 0..write_count {
            timeline.invoke(Action::Write(1));
        }
        for value in [1, 0, 1] {
            let action = match value {
                0 => Action::Write(0),
                read => Action::Read(read),
            };
            let operation = timeline.invoke(action);
            timeline.complete(operation);
        }
        timeline
    }

    #[test]
    fn what_is_used_more_often_than_invoked_is_too_expensive() {
        let register = Register { initial: 0 };
        let one = [Charge {
            operations: vec![0],
            weights: vec![7],
        }];
        let told = |count, charges: &[Charge]| {
            is_too_expensive(&register, &back_twice(count), charges, 1_000)
        };
        assert_eq!(told(1, &one), Some(true));
        assert_eq!(told(1, &[]), Some(false), "without a price");
        let two = [Charge {
            operations: vec![0, 1],
            weights: vec![0, 7],
        }];
        assert_eq!(told(2, &two), Some(false));
        assert_eq!(is_too_expensive(&register, &back_twice(1), &one, 2), None);
    }
}
