//! Owns the sequence that grows at its end: a list of elements, or a text that is appended to.
//! Never interprets what it is made of.

use super::{Kind, Specification};

/// What an operation does to the sequence. Numbers are places in [`Sequence::pieces`].
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SequenceAction {
    /// Observes all of it.
    Read(u32),
    /// Puts a piece at the end.
    Append(u32),
    /// Replaces all of it.
    Put(u32),
}

/// A sequence that starts empty.
#[derive(Debug, Clone)]
pub struct Sequence<T> {
    /// Everything that was read, appended or put; no two are equal.
    pub pieces: Vec<Box<[T]>>,
}

impl<T> Default for Sequence<T> {
    fn default() -> Self {
        Self { pieces: Vec::new() }
    }
}

impl<T> Sequence<T> {
    /// What a number stands for.
    pub fn piece(&self, number: u32) -> &[T] {
        &self.pieces[number as usize]
    }
}

impl<T: Copy + Eq + Ord + std::hash::Hash + std::fmt::Debug> Specification for Sequence<T> {
    type State = Vec<T>;
    type Action = SequenceAction;

    fn initial(&self) -> Vec<T> {
        Vec::new()
    }

    fn apply(&self, state: &mut Vec<T>, action: SequenceAction) -> bool {
        match action {
            SequenceAction::Read(number) => self.piece(number) == state.as_slice(),
            SequenceAction::Append(number) => {
                state.extend_from_slice(self.piece(number));
                true
            }
            SequenceAction::Put(number) => {
                state.clear();
                state.extend_from_slice(self.piece(number));
                true
            }
        }
    }

    fn kind(&self, action: SequenceAction) -> Kind {
        match action {
            SequenceAction::Read(_) => Kind::Pure,
            SequenceAction::Append(number) if self.piece(number).is_empty() => Kind::Pure,
            SequenceAction::Append(_) => Kind::General,
            SequenceAction::Put(_) => Kind::Blind,
        }
    }

    fn owned_bytes(state: &Vec<T>) -> usize {
        state.capacity() * size_of::<T>()
    }
}
