//! Owns the compiled form of a search: completions as levels, open operations, optional operations.
//! Never searches.

use std::collections::BTreeMap;
use std::ops::Range;

use super::{Action, Operation};

/// A completed operation while it is open.
#[derive(Debug, Clone, Copy)]
pub(super) struct Open {
    /// Position in the slice searched.
    pub(super) operation: usize,
    pub(super) action: Action,
    /// Number no other operation has while this one is open.
    pub(super) slot: usize,
}

/// Equal operations of unknown outcome, in the order of their invocation.
#[derive(Debug)]
pub(super) struct OptionalClass {
    pub(super) action: Action,
    /// Number of the first member; the others follow it.
    pub(super) first: usize,
    /// Positions in the slice searched.
    pub(super) operations: Vec<usize>,
    /// First level at which each member may be taken, ascending.
    pub(super) from_level: Vec<usize>,
}

/// One level per completion, in the order of completions.
#[derive(Debug)]
struct Level {
    /// The operation that completes here.
    deadline: Open,
    /// Its open operations, as a range of `open`, by ascending completion.
    open: Range<usize>,
    /// Those invoked since the level before, as a range of `opened`.
    opened: Range<usize>,
}

#[derive(Debug)]
pub(super) struct Problem {
    initial: u32,
    levels: Vec<Level>,
    open: Vec<Open>,
    opened: Vec<Open>,
    optional: Vec<OptionalClass>,
    open_width: usize,
}

impl Problem {
    pub(super) fn new(initial: u32, operations: &[Operation]) -> Self {
        let mut problem = Self {
            initial,
            levels: Vec::new(),
            open: Vec::new(),
            opened: Vec::new(),
            optional: Vec::new(),
            open_width: 0,
        };
        problem.add_levels(operations);
        problem.add_optional(operations);
        problem
    }

    fn add_levels(&mut self, operations: &[Operation]) {
        // (position, is a completion, operation): an invocation sorts before a completion.
        let mut events: Vec<(u64, bool, usize)> = Vec::with_capacity(operations.len() * 2);
        for (number, operation) in operations.iter().enumerate() {
            if let Some(completed) = operation.completed {
                assert!(
                    operation.invoked <= completed,
                    "operation {number} completes before it is invoked"
                );
                events.push((operation.invoked, false, number));
                events.push((completed, true, number));
            }
        }
        events.sort_unstable();
        let mut free_slots: Vec<usize> = Vec::new();
        // By (completion, operation), which is the order in which they become urgent.
        let mut now_open: BTreeMap<(u64, usize), Open> = BTreeMap::new();
        let mut opened_from = 0;
        for (_, is_completion, number) in events {
            let operation = &operations[number];
            let key = (operation.completed.unwrap_or(u64::MAX), number);
            if !is_completion {
                let slot = free_slots.pop().unwrap_or_else(|| {
                    self.open_width += 1;
                    self.open_width - 1
                });
                let open = Open {
                    operation: number,
                    action: operation.action,
                    slot,
                };
                now_open.insert(key, open);
                self.opened.push(open);
                continue;
            }
            let open_from = self.open.len();
            self.open.extend(now_open.values());
            let deadline = now_open
                .remove(&key)
                .expect("an operation is invoked before it completes");
            free_slots.push(deadline.slot);
            self.levels.push(Level {
                deadline,
                open: open_from..self.open.len(),
                opened: opened_from..self.opened.len(),
            });
            opened_from = self.opened.len();
        }
    }

    fn add_optional(&mut self, operations: &[Operation]) {
        let completions: Vec<u64> = self
            .levels
            .iter()
            .filter_map(|level| operations[level.deadline.operation].completed)
            .collect();
        let mut classes: BTreeMap<Action, Vec<usize>> = BTreeMap::new();
        for number in useful_optional(operations) {
            classes
                .entry(operations[number].action)
                .or_default()
                .push(number);
        }
        let mut first = 0;
        for (action, mut members) in classes {
            members.sort_by_key(|number| operations[*number].invoked);
            let from_level = members
                .iter()
                .map(|number| {
                    let invoked = operations[*number].invoked;
                    completions.partition_point(|completed| *completed < invoked)
                })
                .collect();
            let count = members.len();
            self.optional.push(OptionalClass {
                action,
                first,
                operations: members,
                from_level,
            });
            first += count;
        }
    }

    pub(super) fn initial(&self) -> u32 {
        self.initial
    }

    pub(super) fn level_count(&self) -> usize {
        self.levels.len()
    }

    pub(super) fn deadline(&self, level: usize) -> Open {
        self.levels[level].deadline
    }

    pub(super) fn deadline_operation(&self, level: usize) -> usize {
        self.levels[level].deadline.operation
    }

    /// Operations open at the level, the most urgent first.
    pub(super) fn open(&self, level: usize) -> &[Open] {
        &self.open[self.levels[level].open.clone()]
    }

    /// Operations open at the level but not at the one before.
    pub(super) fn opened(&self, level: usize) -> &[Open] {
        &self.opened[self.levels[level].opened.clone()]
    }

    pub(super) fn optional(&self) -> &[OptionalClass] {
        &self.optional
    }

    /// How many slots there are.
    pub(super) fn open_width(&self) -> usize {
        self.open_width
    }

    /// How many optional operations there are.
    pub(super) fn optional_width(&self) -> usize {
        self.optional
            .iter()
            .map(|class| class.operations.len())
            .sum()
    }
}

/// Operations of unknown outcome that can matter: not pure, and their value is required by
/// something that itself can matter.
///
/// Where an operation claims that a value was *not* there, any other value can satisfy it, so
/// nothing but pure operations is left out.
fn useful_optional(operations: &[Operation]) -> Vec<usize> {
    let mut optional: Vec<usize> = (0..operations.len())
        .filter(|number| {
            operations[*number].completed.is_none() && !operations[*number].action.is_pure()
        })
        .collect();
    let any_value_matters = operations.iter().any(|operation| {
        operation.completed.is_some() && matches!(operation.action, Action::Differs(_))
    });
    if any_value_matters {
        return optional;
    }
    let required_by_completed: Vec<u32> = operations
        .iter()
        .filter(|operation| operation.completed.is_some())
        .filter_map(|operation| operation.action.requires())
        .collect();
    loop {
        let required: std::collections::BTreeSet<u32> = required_by_completed
            .iter()
            .copied()
            .chain(
                optional
                    .iter()
                    .filter_map(|number| operations[*number].action.requires()),
            )
            .collect();
        let before = optional.len();
        optional.retain(|number| {
            operations[*number]
                .action
                .produces()
                .is_some_and(|value| required.contains(&value))
        });
        if optional.len() == before {
            return optional;
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(action: Action, invoked: u64, completed: Option<u64>) -> Operation {
        Operation {
            action,
            invoked,
            completed,
        }
    }

    #[test]
    fn unobserved_writes_of_unknown_outcome_are_left_out_transitively() {
        let cas = |expected, new| Action::CompareAndSet { expected, new };
        let operations = [
            operation(Action::Write(1), 0, None),
            operation(cas(1, 2), 1, None),
            operation(cas(2, 3), 2, None),
            operation(Action::Write(5), 3, None),
            operation(Action::Read(5), 4, Some(5)),
            operation(Action::Read(9), 6, None),
        ];
        assert_eq!(useful_optional(&operations), [3]);
        let mut with_claim = operations.to_vec();
        with_claim.push(operation(Action::Differs(0), 7, Some(8)));
        assert_eq!(useful_optional(&with_claim), [0, 1, 2, 3]);
    }

    #[test]
    fn a_slot_is_reused_only_after_its_operation_completed() {
        let operations = [
            operation(Action::Write(1), 0, Some(3)),
            operation(Action::Write(2), 1, Some(2)),
            operation(Action::Write(3), 4, Some(5)),
        ];
        let problem = Problem::new(0, &operations);
        assert_eq!(problem.open_width(), 2);
        assert_eq!(problem.deadline_operation(0), 1);
        assert_eq!(problem.open(0).len(), 2);
        assert_eq!(problem.opened(1).len(), 0);
        assert_eq!(problem.opened(2).len(), 1);
    }

    #[test]
    fn an_invocation_at_the_position_of_a_completion_overlaps_it() {
        let operations = [
            operation(Action::Read(1), 0, Some(5)),
            operation(Action::Write(1), 5, None),
        ];
        assert_eq!(Problem::new(0, &operations).optional()[0].from_level, [0]);
    }
}
