//! Owns the register with compare-and-set.
//! Never sees a value: they are numbers that the caller assigned.

use super::{Kind, Specification};

/// What an operation does to the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Action {
    /// Observes the value.
    Read(u32),
    /// Replaces whatever value there is.
    Write(u32),
    /// Observes `expected` and replaces it in one step.
    CompareAndSet {
        /// Value that must be there.
        expected: u32,
        /// Value that is there afterwards.
        new: u32,
    },
    /// Observes any value but this one: what a compare-and-set claims that failed for its
    /// expectation. Histories in which a failure only means "did not happen" have none of these.
    Differs(u32),
}

impl Action {
    /// The value afterwards, or `None` where the action is impossible in `state`.
    pub fn step(self, state: u32) -> Option<u32> {
        match self {
            Self::Read(value) => (value == state).then_some(state),
            Self::Write(value) => Some(value),
            Self::CompareAndSet { expected, new } => (expected == state).then_some(new),
            Self::Differs(value) => (value != state).then_some(state),
        }
    }

    /// Whether the action leaves every value as it is.
    pub fn is_pure(self) -> bool {
        match self {
            Self::Read(_) | Self::Differs(_) => true,
            Self::Write(_) => false,
            Self::CompareAndSet { expected, new } => expected == new,
        }
    }

    /// The value it leaves behind, where it is not pure.
    pub fn produces(self) -> Option<u32> {
        match self {
            Self::Write(value) => Some(value),
            Self::CompareAndSet { expected, new } => (expected != new).then_some(new),
            Self::Read(_) | Self::Differs(_) => None,
        }
    }

    /// The value it must find, where it must find one.
    pub fn requires(self) -> Option<u32> {
        match self {
            Self::Read(value) => Some(value),
            Self::CompareAndSet { expected, .. } => Some(expected),
            Self::Write(_) | Self::Differs(_) => None,
        }
    }

    /// The value whose presence or absence it observes.
    pub fn observes(self) -> Option<u32> {
        match self {
            Self::Differs(value) => Some(value),
            other => other.requires(),
        }
    }
}

/// A register with compare-and-set.
#[derive(Debug, Clone, Copy)]
pub struct Register {
    /// The value it starts with.
    pub initial: u32,
}

impl Specification for Register {
    type State = u32;
    type Action = Action;

    fn initial(&self) -> u32 {
        self.initial
    }

    fn apply(&self, state: &mut u32, action: Action) -> bool {
        let next = action.step(*state);
        *state = next.unwrap_or(*state);
        next.is_some()
    }

    fn kind(&self, action: Action) -> Kind {
        match action {
            Action::Write(_) => Kind::Blind,
            other if other.is_pure() => Kind::Pure,
            _ => Kind::General,
        }
    }

    fn owned_bytes(_state: &u32) -> usize {
        0
    }
}
