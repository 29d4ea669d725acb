//! Owns the comparison of the search with a brute-force oracle on thousands of small histories.
//! Never uses anything of the search but its public function.

use std::time::{Duration, Instant};

use checkers::linearizability::{Action, Limit, Limits, Operation, Outcome, search};

/// A small deterministic generator (SplitMix64).
struct Random(u64);

impl Random {
    fn next(&mut self) -> u64 {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        mixed ^ (mixed >> 31)
    }

    fn below(&mut self, bound: u64) -> u64 {
        self.next() % bound
    }

    fn chance(&mut self, percent: u64) -> bool {
        self.below(100) < percent
    }
}

/// Tries every order: an operation may be next if nothing that is left completed before it began.
fn oracle(state: u32, operations: &[Operation], taken: &mut Vec<bool>) -> bool {
    let left = |taken: &[bool], number: usize| !taken[number];
    let earliest_completion = (0..operations.len())
        .filter(|number| left(taken, *number))
        .filter_map(|number| operations[number].completed)
        .min();
    let Some(earliest_completion) = earliest_completion else {
        return true;
    };
    for number in 0..operations.len() {
        if taken[number] || operations[number].invoked > earliest_completion {
            continue;
        }
        let Some(next) = operations[number].action.step(state) else {
            continue;
        };
        taken[number] = true;
        let found = oracle(next, operations, taken);
        taken[number] = false;
        if found {
            return true;
        }
    }
    false
}

fn is_linearizable(operations: &[Operation]) -> bool {
    oracle(0, operations, &mut vec![false; operations.len()])
}

#[derive(Clone, Copy)]
struct Shape {
    clients: u64,
    operations: usize,
    values: u64,
    crash_percent: u64,
    differs: bool,
}

/// Operations of concurrent clients. A hidden register decides most answers, so that about as many
/// histories are linearizable as are not.
fn history(random: &mut Random, shape: Shape) -> Vec<Operation> {
    let mut operations: Vec<Operation> = Vec::new();
    let mut running: Vec<Option<usize>> = vec![None; shape.clients as usize];
    let mut effective: Vec<bool> = Vec::new();
    let mut state = 0_u32;
    let lie_percent = random.below(25);
    let mut position = 0;
    while operations.len() < shape.operations || running.iter().any(Option::is_some) {
        let client = random.below(shape.clients) as usize;
        position += 1;
        let value = |random: &mut Random| 1 + random.below(shape.values) as u32;
        let Some(number) = running[client] else {
            if operations.len() == shape.operations {
                continue;
            }
            let action = match random.below(3) {
                0 => Action::Read(0),
                1 => Action::Write(value(random)),
                _ => Action::CompareAndSet {
                    expected: value(random),
                    new: value(random),
                },
            };
            running[client] = Some(operations.len());
            effective.push(false);
            operations.push(Operation {
                action,
                invoked: position,
                completed: None,
            });
            continue;
        };
        let operation = &mut operations[number];
        if !effective[number] && random.chance(60) {
            effective[number] = true;
            match operation.action {
                Action::Read(_) => operation.action = Action::Read(state),
                action => match action.step(state) {
                    Some(next) => state = next,
                    // A failed compare-and-set: a claim, or not an operation at all.
                    None if shape.differs => {
                        let expected = action.requires().unwrap_or(0);
                        operation.action = Action::Differs(expected);
                    }
                    None => operation.action = Action::Read(state),
                },
            }
            continue;
        }
        if effective[number] || random.chance(lie_percent) {
            running[client] = None;
            if random.chance(shape.crash_percent) {
                continue;
            }
            operation.completed = Some(position);
            if random.chance(lie_percent)
                && let Action::Read(seen) = &mut operation.action
            {
                *seen = random.below(shape.values + 1) as u32;
            }
        } else if random.chance(shape.crash_percent) {
            running[client] = None;
        }
    }
    operations
}

/// The completion at which the oracle first finds no order.
fn first_failing(operations: &[Operation]) -> Option<usize> {
    let mut completions: Vec<(u64, usize)> = operations
        .iter()
        .enumerate()
        .filter_map(|(number, operation)| Some((operation.completed?, number)))
        .collect();
    completions.sort_unstable();
    completions
        .into_iter()
        .find(|(end, _)| !is_linearizable(&prefix(operations, *end)))
        .map(|(_, number)| number)
}

fn prefix(operations: &[Operation], end: u64) -> Vec<Operation> {
    operations
        .iter()
        .filter(|operation| operation.invoked <= end)
        .map(|operation| Operation {
            completed: operation.completed.filter(|completed| *completed <= end),
            ..*operation
        })
        .collect()
}

fn compare(seed: u64, count: u64, shape: impl Fn(&mut Random) -> Shape) {
    let (mut good, mut bad) = (0, 0);
    for number in 0..count {
        let mut random = Random(seed.wrapping_mul(1 << 32).wrapping_add(number));
        let shape = shape(&mut random);
        let operations = history(&mut random, shape);
        let outcome = search(0, &operations, &Limits::default());
        match &outcome {
            Outcome::Linearizable { .. } => {
                good += 1;
                assert!(is_linearizable(&operations), "{number}: {operations:?}");
            }
            Outcome::NotLinearizable {
                failed,
                possible_states,
            } => {
                bad += 1;
                assert_eq!(
                    first_failing(&operations),
                    Some(*failed),
                    "{number}: {operations:?}"
                );
                let action = operations[*failed].action;
                let legal = possible_states
                    .iter()
                    .any(|state| action.step(*state).is_some());
                assert!(!legal || action.produces().is_some(), "{outcome:?}");
            }
            Outcome::Unknown { .. } => panic!("{number}: {outcome:?}"),
        }
    }
    assert!(
        good * 10 > count && bad * 10 > count,
        "both verdicts must be frequent: {good} good, {bad} bad"
    );
}

#[test]
fn agrees_with_brute_force_on_registers_with_unknown_outcomes() {
    compare(1, 6000, |random| Shape {
        clients: 2 + random.below(3),
        operations: 4 + random.below(5) as usize,
        values: 1 + random.below(3),
        crash_percent: random.below(60),
        differs: false,
    });
}

#[test]
fn agrees_with_brute_force_where_failed_compare_and_sets_are_claims() {
    compare(2, 6000, |random| Shape {
        clients: 2 + random.below(3),
        operations: 4 + random.below(5) as usize,
        values: 1 + random.below(3),
        crash_percent: random.below(60),
        differs: true,
    });
}

#[test]
fn legal_operations_after_the_end_do_not_change_the_verdict() {
    let (mut good, mut bad) = (0, 0);
    for number in 0..1500 {
        let mut random = Random(number + (3 << 32));
        let shape = Shape {
            clients: 3,
            operations: 12,
            values: 3,
            crash_percent: 15,
            differs: false,
        };
        let mut operations = history(&mut random, shape);
        let before = search(0, &operations, &Limits::default());
        // The first of them overwrites whatever there is, so the others are legal after it; the
        // value is new, so no operation of unknown outcome can bring it back.
        let mut position = 1_000_000;
        for action in [
            Action::Write(99),
            Action::Read(99),
            Action::CompareAndSet {
                expected: 99,
                new: 98,
            },
            Action::Read(98),
        ] {
            operations.push(Operation {
                action,
                invoked: position,
                completed: Some(position + 1),
            });
            position += 2;
        }
        match (before, search(0, &operations, &Limits::default())) {
            (Outcome::Linearizable { .. }, Outcome::Linearizable { .. }) => good += 1,
            (
                Outcome::NotLinearizable { failed: one, .. },
                Outcome::NotLinearizable { failed: other, .. },
            ) => {
                assert_eq!(one, other);
                bad += 1;
            }
            (before, after) => panic!("{number}: {before:?} became {after:?}"),
        }
    }
    assert!(good > 100 && bad > 100, "{good} good, {bad} bad");
}

#[test]
fn wide_histories_use_more_words_and_keep_their_verdict() {
    for width in [10_u64, 65, 130, 600] {
        // All overlap; every write may come last, but only one of them can.
        let mut operations: Vec<Operation> = (0..width)
            .map(|number| Operation {
                action: Action::Write(number as u32 + 1),
                invoked: number,
                completed: Some(10_000 + number),
            })
            .collect();
        let read = |value, position| Operation {
            action: Action::Read(value),
            invoked: position,
            completed: Some(position + 1),
        };
        operations.push(read(3, 20_000));
        let good = search(0, &operations, &Limits::default());
        assert!(matches!(good, Outcome::Linearizable { .. }), "{width}");
        operations.push(read(0, 20_002));
        let limits = Limits {
            configuration_count: 50_000,
            ..Limits::default()
        };
        let bad = search(0, &operations, &limits);
        assert!(!matches!(bad, Outcome::Linearizable { .. }), "{width}");
    }
}

#[test]
fn every_limit_ends_the_search_and_names_itself() {
    // Many overlapping writes of values that are read in vain: hopeless without unique values.
    let mut operations: Vec<Operation> = (0..60_u64)
        .map(|number| Operation {
            action: Action::CompareAndSet {
                expected: (number % 7) as u32,
                new: ((number * 3 + 1) % 7) as u32,
            },
            invoked: number,
            completed: (number % 2 == 0).then_some(10_000 + number),
        })
        .collect();
    operations.push(Operation {
        action: Action::Read(77),
        invoked: 20_000,
        completed: Some(20_001),
    });
    let limit_of = |limits: Limits| match search(0, &operations, &limits) {
        Outcome::Unknown { limit, .. } => limit,
        other => panic!("{other:?}"),
    };
    let started = Instant::now();
    assert_eq!(
        limit_of(Limits {
            deadline: Some(started + Duration::from_millis(50)),
            ..Limits::default()
        }),
        Limit::Time
    );
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(
        limit_of(Limits {
            memory_bytes: 100_000,
            ..Limits::default()
        }),
        Limit::Memory
    );
    assert_eq!(
        limit_of(Limits {
            configuration_count: 1000,
            ..Limits::default()
        }),
        Limit::Configurations
    );
}
