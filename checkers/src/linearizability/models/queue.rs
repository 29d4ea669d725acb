//! Owns the first-in-first-out queue.
//! Never sees an element: they are numbers that the caller assigned.

use std::collections::VecDeque;

use super::{Kind, Specification};

/// What an operation does to the queue.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum QueueAction {
    /// Puts an element at the end.
    Enqueue(u32),
    /// Takes this element from the front.
    Dequeue(u32),
    /// Finds nothing to take.
    Empty,
    /// Takes whatever is at the front, if anything: a dequeue whose answer nobody saw.
    DequeueUnseen,
}

/// A queue that starts empty.
#[derive(Debug, Clone, Copy)]
pub struct Queue;

impl Specification for Queue {
    type State = VecDeque<u32>;
    type Action = QueueAction;

    fn initial(&self) -> VecDeque<u32> {
        VecDeque::new()
    }

    fn apply(&self, state: &mut VecDeque<u32>, action: QueueAction) -> bool {
        match action {
            QueueAction::Enqueue(element) => {
                state.push_back(element);
                true
            }
            QueueAction::Dequeue(element) => {
                let is_front = state.front() == Some(&element);
                if is_front {
                    state.pop_front();
                }
                is_front
            }
            QueueAction::Empty => state.is_empty(),
            QueueAction::DequeueUnseen => {
                state.pop_front();
                true
            }
        }
    }

    fn kind(&self, action: QueueAction) -> Kind {
        match action {
            QueueAction::Empty => Kind::Pure,
            _ => Kind::General,
        }
    }

    fn owned_bytes(state: &VecDeque<u32>) -> usize {
        state.capacity() * size_of::<u32>()
    }
}
