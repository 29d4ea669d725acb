//! Owns the counter.
//! Never overflows: orders with sums that do not fit into 64 bits are left out, and whoever decides says so.

use super::{Kind, Specification};

/// What an operation does to the counter.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum CounterAction {
    /// Adds, and is told nothing.
    Add(i64),
    /// Adds, and is told the sum.
    AddAndGet {
        /// What is added.
        delta: i64,
        /// The value afterwards.
        sum: i64,
    },
    /// Observes the value.
    Read(i64),
}

/// A counter that starts at 0.
#[derive(Debug, Clone, Copy)]
pub struct Counter;

impl Specification for Counter {
    type State = i64;
    type Action = CounterAction;

    fn initial(&self) -> i64 {
        0
    }

    fn apply(&self, state: &mut i64, action: CounterAction) -> bool {
        let next = match action {
            CounterAction::Add(delta) => state.checked_add(delta),
            CounterAction::AddAndGet { delta, sum } => {
                state.checked_add(delta).filter(|next| *next == sum)
            }
            CounterAction::Read(value) => (*state == value).then_some(value),
        };
        *state = next.unwrap_or(*state);
        next.is_some()
    }

    fn kind(&self, action: CounterAction) -> Kind {
        match action {
            CounterAction::Read(_)
            | CounterAction::Add(0)
            | CounterAction::AddAndGet { delta: 0, .. } => Kind::Pure,
            CounterAction::Add(_) | CounterAction::AddAndGet { .. } => Kind::General,
        }
    }

    fn owned_bytes(_state: &i64) -> usize {
        0
    }
}
