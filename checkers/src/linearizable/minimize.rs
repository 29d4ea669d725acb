//! Owns the reduction of a violation to the few operations that cause it.
//! Never removes an update: it only weakens claims, so that what is left still proves the violation.

use std::time::Instant;

use crate::linearizability::{Limits, Operation, Outcome, search};

use super::register::NEVER_WRITTEN;

/// Configurations that one attempt may visit; an attempt that needs more counts as failed.
const ATTEMPT_LIMIT: u64 = 20_000;

/// Operations (positions in `operations`, ascending) that together have no legal order.
///
/// Starts from the shortest failing prefix, whose last completion is that of `failed`. Then drops
/// claims as long as the rest stays contradictory: a read is left out, a completed update becomes
/// one of unknown outcome. Stops early at `deadline`, with more operations than necessary.
pub(super) fn core(
    operations: &[Operation],
    failed: usize,
    deadline: Option<Instant>,
) -> Vec<usize> {
    let end = operations[failed].completed.unwrap_or(u64::MAX);
    // Positions of what is left, and what is left.
    let mut numbers: Vec<usize> = Vec::new();
    let mut kept: Vec<Operation> = Vec::new();
    for (number, operation) in operations.iter().enumerate() {
        let mut operation = *operation;
        operation.completed = operation.completed.filter(|completed| *completed <= end);
        let claims_nothing = operation.completed.is_none() && operation.action.is_pure();
        if operation.invoked <= end && !claims_nothing {
            numbers.push(number);
            kept.push(operation);
        }
    }
    let mut claims: Vec<usize> = (0..kept.len())
        .filter(|place| kept[*place].completed.is_some() && numbers[*place] != failed)
        .collect();
    // Reads go first: an update explains more than a read that merely confirms it.
    claims.sort_by_key(|place| !kept[*place].action.is_pure());
    let mut chunk = claims.len().div_ceil(2).max(1);
    while !claims.is_empty() {
        let mut start = 0;
        while start < claims.len() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return shown(&numbers, &kept);
            }
            let tried = start..(start + chunk).min(claims.len());
            let mut weaker = kept.clone();
            for place in &claims[tried.clone()] {
                weaker[*place].completed = None;
            }
            if is_contradictory(&weaker, deadline) {
                kept = weaker;
                claims.drain(tried);
            } else {
                start = tried.end;
            }
        }
        if chunk == 1 {
            break;
        }
        chunk = chunk.div_ceil(2);
    }
    shown(&numbers, &kept)
}

fn is_contradictory(operations: &[Operation], deadline: Option<Instant>) -> bool {
    let limits = Limits {
        deadline,
        configuration_count: ATTEMPT_LIMIT,
        ..Limits::default()
    };
    let outcome = search(NEVER_WRITTEN, operations, &limits);
    matches!(outcome, Outcome::NotLinearizable { .. })
}

/// What still makes a claim, and optional updates that could have satisfied one.
fn shown(numbers: &[usize], kept: &[Operation]) -> Vec<usize> {
    let claims = |operation: &&Operation| operation.completed.is_some();
    let required: Vec<u32> = kept
        .iter()
        .filter(claims)
        .filter_map(|operation| operation.action.requires())
        .collect();
    let matters = |operation: &Operation| {
        operation.completed.is_some()
            || operation
                .action
                .produces()
                .is_some_and(|value| required.contains(&value))
    };
    (0..kept.len())
        .filter(|place| matters(&kept[*place]))
        .map(|place| numbers[place])
        .collect()
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::linearizability::Action;

    #[test]
    fn a_stale_read_in_a_long_history_is_reduced_to_its_cause() {
        let mut operations = Vec::new();
        let mut push = |action| {
            let position = operations.len() as u64 * 2;
            operations.push(Operation {
                action,
                invoked: position,
                completed: Some(position + 1),
            });
        };
        for value in 1..200 {
            push(Action::Write(value));
            push(Action::Read(value));
        }
        push(Action::Read(150));
        let failed = operations.len() - 1;
        let core = core(&operations, failed, None);
        assert!(core.contains(&failed));
        assert!(core.len() <= 3, "{core:?}");
        let alone: Vec<Operation> = core.iter().map(|number| operations[*number]).collect();
        assert!(is_contradictory(&alone, None));
    }
}
