//! Owns what an object is: its specification, as plain as it can be said.
//! Never knows how a search goes about it.

pub mod counter;
pub mod queue;
pub mod register;
pub mod sequence;
pub mod set;

use std::fmt::Debug;
use std::hash::Hash;

/// How an action treats the state, whatever the state is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kind {
    /// It never changes the state.
    Pure,
    /// It is always possible, and the state afterwards does not depend on the one before.
    Blind,
    /// Anything else.
    General,
}

/// A sequential object: what every action demands and does.
///
/// Certificates are checked against this and nothing else, so it must be obviously right rather
/// than fast.
pub trait Specification {
    /// The whole state.
    type State: Clone + Eq + Hash + Debug;
    /// An operation together with its result.
    type Action: Copy + Eq + Ord + Hash + Debug;

    /// Where the object starts.
    fn initial(&self) -> Self::State;

    /// Performs the action. False where it is not possible in this state, which is then as before.
    fn apply(&self, state: &mut Self::State, action: Self::Action) -> bool;

    /// How the action treats every state.
    fn kind(&self, action: Self::Action) -> Kind;

    /// Bytes that the state owns elsewhere, approximately: what a search keeps counts against its limit.
    fn owned_bytes(state: &Self::State) -> usize;
}
