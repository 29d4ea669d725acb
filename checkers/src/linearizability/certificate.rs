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
}
