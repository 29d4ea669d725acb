//! Owns sequences as the searches see them: only what some read returned, or a beginning of it, is
//! told apart.
//! Never builds a sequence: a state is a beginning of something that was read.
//!
//! Whatever else a sequence may be, no read can tell, now or after more was appended; so all other
//! sequences are one state, which only a replacement of the whole leaves.

use rustc_hash::FxHashMap;

use super::compiled::{State, Transitions, UNSEEN};
use super::memory::table_bytes;
use super::models::sequence::{Sequence, SequenceAction};
use super::timeline::Timeline;

/// What was read, in ascending order, and the beginnings of it that were reached.
pub(super) struct ObservedPrefixes<'a, T> {
    sequence: &'a Sequence<T>,
    actions: Vec<SequenceAction>,
    read: Vec<Observed>,
    /// Places in `read` by piece.
    place_of: FxHashMap<u32, u32>,
    nodes: Vec<Node>,
    numbers: FxHashMap<(u32, u32), State>,
}

struct Observed {
    piece: u32,
    /// Length of what it begins with in common with the one before.
    shared: usize,
    /// Last level at which a read returned it.
    last_level: u32,
}

/// A beginning of something that was read.
#[derive(Clone, Copy)]
struct Node {
    /// The first that begins so, as a place in `read`.
    place: u32,
    length: usize,
    last_level: u32,
}

impl<'a, T: Copy + Ord + std::hash::Hash + std::fmt::Debug> ObservedPrefixes<'a, T> {
    pub(super) fn new(
        sequence: &'a Sequence<T>,
        actions: Vec<SequenceAction>,
        timeline: &Timeline<SequenceAction>,
    ) -> Self {
        let mut last: FxHashMap<u32, u32> = FxHashMap::default();
        let completions = timeline.events().iter().filter(|one| one.is_completion());
        for (level, event) in completions.enumerate() {
            if let SequenceAction::Read(piece) = timeline.action(event.operation()) {
                last.insert(piece, level as u32);
            }
        }
        let mut pieces: Vec<(u32, u32)> = last.into_iter().collect();
        pieces.sort_unstable_by(|(one, _), (other, _)| {
            sequence.piece(*one).cmp(sequence.piece(*other))
        });
        let mut read: Vec<Observed> = Vec::with_capacity(pieces.len());
        for (piece, last_level) in pieces {
            let shared = match read.last() {
                Some(before) => shared(sequence.piece(before.piece), sequence.piece(piece)),
                None => 0,
            };
            read.push(Observed {
                piece,
                shared,
                last_level,
            });
        }
        let place_of = read
            .iter()
            .enumerate()
            .map(|(place, observed)| (observed.piece, place as u32))
            .collect();
        let mut states = Self {
            sequence,
            actions,
            read,
            place_of,
            nodes: Vec::new(),
            numbers: FxHashMap::default(),
        };
        // The empty sequence is state 0, whether or not anything was read.
        states.number(0, 0);
        states
    }

    /// The state with a number; `None` if it is none that a read can observe.
    pub(super) fn whole(&self, state: State) -> Option<Vec<T>> {
        let node = self.nodes.get(state as usize)?;
        match self.read.get(node.place as usize) {
            Some(observed) => Some(self.sequence.piece(observed.piece)[..node.length].to_vec()),
            None => Some(Vec::new()),
        }
    }

    fn number(&mut self, place: u32, length: usize) -> State {
        let key = (place, length as u32);
        if let Some(number) = self.numbers.get(&key) {
            return *number;
        }
        let mut last_level = 0;
        for (distance, observed) in self.read[place as usize..].iter().enumerate() {
            if distance > 0 && observed.shared < length {
                break;
            }
            last_level = last_level.max(observed.last_level);
        }
        let number = self.nodes.len() as State;
        self.nodes.push(Node {
            place,
            length,
            last_level,
        });
        self.numbers.insert(key, number);
        number
    }

    /// The state after `piece` was appended to the first `length` elements of what is at `place`.
    fn extend(&mut self, mut place: usize, length: usize, piece: &[T]) -> State {
        while let Some(observed) = self.read.get(place) {
            let rest = &self.sequence.piece(observed.piece)[length..];
            if rest.starts_with(piece) {
                return self.number(place as u32, length + piece.len());
            }
            place += 1;
            if self.read.get(place).is_none_or(|next| next.shared < length) {
                break;
            }
        }
        UNSEEN
    }
}

impl<T: Copy + Ord + std::hash::Hash + std::fmt::Debug> Transitions for ObservedPrefixes<'_, T> {
    fn apply(&mut self, state: State, action: u32) -> Option<State> {
        let sequence = self.sequence;
        match self.actions[action as usize] {
            SequenceAction::Put(piece) => Some(self.extend(0, 0, sequence.piece(piece))),
            SequenceAction::Append(_) if state == UNSEEN => Some(UNSEEN),
            SequenceAction::Append(piece) => {
                let node = self.nodes[state as usize];
                Some(self.extend(node.place as usize, node.length, sequence.piece(piece)))
            }
            SequenceAction::Read(_) if state == UNSEEN => None,
            SequenceAction::Read(piece) => {
                let node = self.nodes[state as usize];
                // Of all that begin so, the shortest comes first: the very sequence that was read.
                let is_this = self.place_of.get(&piece) == Some(&node.place)
                    && sequence.piece(piece).len() == node.length;
                is_this.then_some(state)
            }
        }
    }

    fn last_observed(&self, state: State) -> u32 {
        match self.nodes.get(state as usize) {
            Some(node) => node.last_level,
            None => 0,
        }
    }

    fn memory_bytes(&self) -> u64 {
        let nodes = self.nodes.capacity() * size_of::<Node>();
        nodes as u64 + table_bytes(self.numbers.capacity(), size_of::<((u32, u32), State)>())
    }

    fn state_bytes(&self) -> u64 {
        0
    }
}

fn shared<T: Eq>(one: &[T], other: &[T]) -> usize {
    one.iter().zip(other).take_while(|(a, b)| a == b).count()
}
