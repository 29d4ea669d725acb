//! Owns the decision whether operations on one object are linearizable (Herlihy & Wing 1990).
//! Never sees a history file: it works on numbered values and positions, for any source of them.
//!
//! Where theory offers a polynomial algorithm (unique values), that is used. Everything else is
//! searched, after Wing & Gong (1993) with Lowe's memoisation (2017), over configurations that hold
//! only the operations open at one completion instead of a bit per operation of the history. Two
//! orders of search compete: depth first finds a witness fast, level by level (the completions are
//! the levels) refutes fast. What keeps both small is exact, never a heuristic:
//!
//! * operations that change nothing are taken as soon as they are legal;
//! * operations are taken only when a completion needs one;
//! * operations of unknown outcome are optional, interchangeable when equal, and of two
//!   configurations that differ only in them, the one that used fewer replaces the other;
//! * an operation of unknown outcome is taken only if the next operation can tell the difference;
//! * when any write is taken, all other open writes may stand right before it, unseen, and need no
//!   place of their own any more, though they may still take one;
//! * states that nothing can observe any more are one state.
//!
//! Where many operations of unknown outcome make that slow on a register, a third search asks only how much
//! an order costs if each use of one has its price (`prices`).
//!
//! No verdict rests on a search alone: an order is replayed against the plain specification, and a
//! violation is reduced to a few operations all of whose orders are tried.

mod antichain;
mod bits;
mod certificate;
mod compiled;
mod configuration;
mod depth_first;
mod fast;
mod keys;
mod level_order;
mod levels;
mod memory;
pub mod models;
mod object;
mod observed_prefixes;
mod portfolio;
mod priced;
mod prices;
mod refutation;
mod timeline;

#[cfg(test)]
mod fuzz;

use std::sync::atomic::{AtomicBool, Ordering};
use std::time::Instant;

pub use certificate::{TRIAL_MAX_COUNT, replay, try_every_order};
pub(crate) use keys::side_by_side;
pub use keys::{Effort, decide_all};
pub use models::register::Action;
use models::register::Register;
pub use models::{Kind, Specification};
pub use object::Object;
pub use refutation::{Refutation, refute};
pub use timeline::{Event, Kept, NEVER, Timeline};

/// One operation on a register.
pub type Operation<A = Action> = timeline::Operation<A>;

/// How much a search may cost.
#[derive(Debug, Clone, Copy)]
pub struct Limits<'a> {
    /// When to give up.
    pub deadline: Option<Instant>,
    /// Approximate bytes that configurations may occupy, with the states of the object.
    pub memory_bytes: u64,
    /// Configurations to visit at most.
    pub configuration_count: u64,
    /// Whether nobody wants to know any more.
    pub cancelled: Option<&'a AtomicBool>,
}

impl Default for Limits<'_> {
    fn default() -> Self {
        Self {
            deadline: None,
            memory_bytes: 2 << 30,
            configuration_count: u64::MAX,
            cancelled: None,
        }
    }
}

impl Limits<'_> {
    fn is_cancelled(&self) -> bool {
        self.cancelled
            .is_some_and(|cancelled| cancelled.load(Ordering::Relaxed))
    }
}

/// What became of a decision. Operations are numbered in the order of their invocations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Outcome {
    /// There is a legal order that respects real time.
    Linearizable {
        /// Such an order, already replayed and found correct.
        order: Vec<u32>,
    },
    /// There is none.
    NotLinearizable {
        /// The operation whose completion ends the shortest prefix that has no legal order. Where
        /// operations of unknown outcome make it hard to tell, a prefix that has none.
        failed: u32,
    },
    /// A limit was reached first.
    Unknown {
        /// Which one.
        limit: Limit,
        /// Completions that the search got past at best.
        completed_count: usize,
        /// Configurations that were visited.
        visited_count: u64,
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
    /// [`Limits::cancelled`].
    Cancelled,
    /// What numbers with 64 bits can hold, where nobody says what becomes of those that need more.
    Numbers,
}

/// How one order of search ended.
enum Ended {
    Found(Vec<u32>),
    Exhausted,
}

/// Decides whether `operations` on one register that starts as `initial` are linearizable. Numbers in
/// the outcome are positions in the slice.
///
/// An invocation and a completion at the same position count as overlapping.
///
/// # Panics
///
/// If an operation completes before it is invoked, or if a found order does not survive its
/// replay, which would be an error of the search itself.
pub fn search(initial: u32, operations: &[Operation], limits: &Limits<'_>) -> Outcome {
    let (timeline, places) = Timeline::from_operations(operations);
    match (Register { initial }).decide(&timeline, limits) {
        Outcome::Linearizable { order } => Outcome::Linearizable {
            order: order
                .into_iter()
                .map(|number| places[number as usize] as u32)
                .collect(),
        },
        Outcome::NotLinearizable { failed } => Outcome::NotLinearizable {
            failed: places[failed as usize] as u32,
        },
        unknown => unknown,
    }
}
