//! Owns the decision whether operations on one register are linearizable (Herlihy & Wing 1990).
//! Never sees a history file: it works on numbered values and positions, for any source of them.
//!
//! The search is Wing & Gong's (1993) with Lowe's memoisation (2017), over configurations that hold
//! only the operations open at one completion instead of a bit per operation of the history. Two
//! orders of search compete: depth first finds a witness fast, level by level (the completions are
//! the levels) refutes fast. What keeps both small is exact, never a heuristic:
//!
//! * operations that change nothing are taken as soon as they are legal;
//! * operations are taken only when a completion needs one;
//! * operations of unknown outcome are optional, interchangeable when equal, and of two
//!   configurations that differ only in them, the one that used fewer replaces the other;
//! * an operation of unknown outcome is taken only if the next operation can tell the difference.

mod bits;
mod configuration;
mod depth_first;
mod level_order;
mod problem;
mod seen;
mod witness;

use std::time::Instant;

use configuration::Space;
use depth_first::DepthFirst;
use level_order::LevelOrder;
use problem::Problem;

/// What an operation does to the register. Values are numbers that the caller assigned.
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
}

/// One operation on the register.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation {
    /// What it does.
    pub action: Action,
    /// Position of its invocation in the history.
    pub invoked: u64,
    /// Position of its completion; `None` for an operation of unknown outcome, which may take
    /// effect at any time after its invocation, or never.
    pub completed: Option<u64>,
}

/// How much a search may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Approximate bytes that configurations may occupy.
    pub memory_bytes: u64,
    /// Configurations to visit at most.
    pub configuration_count: u64,
}

impl Default for Limits {
    fn default() -> Self {
        Self {
            deadline: None,
            memory_bytes: 2 << 30,
            configuration_count: u64::MAX,
        }
    }
}

/// What a search found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There is a legal order that respects real time.
    Linearizable {
        /// Such an order as positions in the slice searched, already replayed and found correct.
        /// `None` where the search by levels was first, which keeps no orders.
        order: Option<Vec<usize>>,
    },
    /// There is none.
    NotLinearizable {
        /// The operation whose completion ends the shortest prefix that has no legal order.
        failed: usize,
        /// Values the register may have had right before that completion, ascending.
        possible_states: Vec<u32>,
    },
    /// A limit was reached first.
    Unknown {
        /// Which one.
        limit: Limit,
        /// Completions that the search got past at best.
        completed_count: usize,
    },
}

/// A limit that ended a search.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Limit {
    /// [`Limits::deadline`].
    Time,
    /// [`Limits::memory_bytes`].
    Memory,
    /// [`Limits::configuration_count`].
    Configurations,
    /// More operations open at once, or of unknown outcome, than a configuration can hold.
    Width,
}

/// Decides whether `operations` on one register that starts as `initial` are linearizable.
///
/// An invocation and a completion at the same position count as overlapping.
///
/// # Panics
///
/// If an operation completes before it is invoked, or if a found order does not survive its
/// replay, which would be an error of the search itself.
pub fn search(initial: u32, operations: &[Operation], limits: &Limits) -> Outcome {
    let problem = Problem::new(initial, operations);
    let width = problem.open_width().max(problem.optional_width());
    match width {
        0..=64 => compete::<1>(&problem, operations, limits),
        65..=128 => compete::<2>(&problem, operations, limits),
        129..=512 => compete::<8>(&problem, operations, limits),
        513..=4096 => compete::<64>(&problem, operations, limits),
        _ => Outcome::Unknown {
            limit: Limit::Width,
            completed_count: 0,
        },
    }
}

/// How one order of search ended.
enum Ended {
    Found(Option<Vec<usize>>),
    Exhausted,
}

/// How far a search got: the deepest level, and the values seen there.
#[derive(Debug, Default)]
struct Deepest {
    level: usize,
    states: std::collections::BTreeSet<u32>,
}

impl Deepest {
    fn visit(&mut self, level: usize, state: u32) {
        if level > self.level {
            self.level = level;
            self.states.clear();
        }
        if level == self.level {
            self.states.insert(state);
        }
    }
}

/// Configurations of the first round; every further round doubles it.
const FIRST_ROUND: u64 = 4096;

fn compete<const W: usize>(
    problem: &Problem,
    operations: &[Operation],
    limits: &Limits,
) -> Outcome {
    let space = Space::<W>::new(problem);
    let mut depth_first = DepthFirst::new(&space);
    let mut level_order = LevelOrder::new(&space);
    let mut round = FIRST_ROUND;
    let mut spent = 0_u64;
    loop {
        let allowance = round.min(limits.configuration_count.saturating_sub(spent));
        if let Some(ended) = depth_first.run(allowance) {
            return conclude(problem, operations, ended, depth_first.deepest());
        }
        if let Some(ended) = level_order.run(allowance) {
            return conclude(problem, operations, ended, level_order.deepest());
        }
        spent = spent.saturating_add(allowance);
        let limit = if spent >= limits.configuration_count {
            Some(Limit::Configurations)
        } else if limits.deadline.is_some_and(|end| Instant::now() >= end) {
            Some(Limit::Time)
        } else if depth_first.memory_bytes() + level_order.memory_bytes() > limits.memory_bytes {
            Some(Limit::Memory)
        } else {
            None
        };
        if let Some(limit) = limit {
            let furthest = depth_first.deepest().level.max(level_order.deepest().level);
            return Outcome::Unknown {
                limit,
                completed_count: furthest,
            };
        }
        // Bounded, so that a limit is noticed soon after it is reached.
        round = (round * 2).min(1 << 16);
    }
}

fn conclude(
    problem: &Problem,
    operations: &[Operation],
    ended: Ended,
    deepest: &Deepest,
) -> Outcome {
    match ended {
        Ended::Found(order) => {
            if let Some(order) = &order
                && let Err(reason) = witness::replay(problem.initial(), operations, order)
            {
                panic!("the search produced an order that is not a linearization: {reason}");
            }
            Outcome::Linearizable { order }
        }
        Ended::Exhausted => Outcome::NotLinearizable {
            failed: problem.deadline_operation(deepest.level),
            possible_states: deepest.states.iter().copied().collect(),
        },
    }
}
