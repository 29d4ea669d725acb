//! Owns the set with single-element operations and reads of the whole.
//! Never sees an element: they are numbers that the caller assigned.

use std::collections::BTreeSet;

use super::{Kind, Specification};

/// What an operation does to the set.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum SetAction {
    /// Puts an element in; it may be there already.
    Add(u32),
    /// Takes an element out; it may be absent.
    Remove(u32),
    /// Finds the element.
    Contains(u32),
    /// Does not find the element.
    Lacks(u32),
    /// Observes the whole set: number of the contents in [`Set::contents`].
    Read(u32),
}

/// A set that starts empty.
#[derive(Debug, Clone, Default)]
pub struct Set {
    /// What reads returned; each ascending. What is in one of them twice, no set is ([`repeated`]).
    pub contents: Vec<Vec<u32>>,
}

/// An element that is in ascending contents more than once.
pub fn repeated(contents: &[u32]) -> Option<u32> {
    let mut pairs = contents.windows(2);
    pairs.find(|two| two[0] == two[1]).map(|two| two[0])
}

impl Specification for Set {
    type State = BTreeSet<u32>;
    type Action = SetAction;

    fn initial(&self) -> BTreeSet<u32> {
        BTreeSet::new()
    }

    fn apply(&self, state: &mut BTreeSet<u32>, action: SetAction) -> bool {
        match action {
            SetAction::Add(element) => {
                state.insert(element);
                true
            }
            SetAction::Remove(element) => {
                state.remove(&element);
                true
            }
            SetAction::Contains(element) => state.contains(&element),
            SetAction::Lacks(element) => !state.contains(&element),
            SetAction::Read(number) => {
                let seen = &self.contents[number as usize];
                seen.len() == state.len() && seen.iter().eq(state.iter())
            }
        }
    }

    fn kind(&self, action: SetAction) -> Kind {
        match action {
            SetAction::Add(_) | SetAction::Remove(_) => Kind::General,
            SetAction::Contains(_) | SetAction::Lacks(_) | SetAction::Read(_) => Kind::Pure,
        }
    }

    fn owned_bytes(state: &BTreeSet<u32>) -> usize {
        // Nodes hold 11 elements, and are half full at least.
        state.len() * 2 * size_of::<u32>() + state.len().div_ceil(6) * 16
    }
}
