//! Owns the depth-first order of search, which is the faster one where a legal order exists.
//! Never recurses: its path is a vector, so deep histories cannot overflow the stack.

use std::mem::size_of;

use super::configuration::{Configuration, Space};
use super::seen::Seen;
use super::{Deepest, Ended};

#[derive(Debug)]
struct Frame<const W: usize> {
    configuration: Configuration<W>,
    next_move: usize,
}

pub(super) struct DepthFirst<'a, const W: usize> {
    space: &'a Space<'a, W>,
    path: Vec<Frame<W>>,
    seen: Seen<W>,
    deepest: Deepest,
}

impl<'a, const W: usize> DepthFirst<'a, W> {
    pub(super) fn new(space: &'a Space<'a, W>) -> Self {
        let configuration = space.root(&mut |_| {});
        let mut deepest = Deepest::default();
        deepest.visit(configuration.level, configuration.state);
        Self {
            space,
            path: vec![Frame {
                configuration,
                next_move: 0,
            }],
            seen: Seen::new(),
            deepest,
        }
    }

    /// Visits up to `allowance` more configurations; `None` when there are more.
    pub(super) fn run(&mut self, mut allowance: u64) -> Option<Ended> {
        loop {
            let Some(frame) = self.path.last_mut() else {
                return Some(Ended::Exhausted);
            };
            if self.space.is_goal(&frame.configuration) {
                return Some(Ended::Found(Some(self.order())));
            }
            if frame.next_move == self.space.move_count(&frame.configuration) {
                self.path.pop();
                continue;
            }
            if allowance == 0 {
                return None;
            }
            let number = frame.next_move;
            frame.next_move += 1;
            let Some(configuration) =
                self.space
                    .after_move(&frame.configuration, number, &mut |_| {})
            else {
                continue;
            };
            allowance -= 1;
            self.deepest.visit(configuration.level, configuration.state);
            if self.seen.insert(&configuration) {
                self.path.push(Frame {
                    configuration,
                    next_move: 0,
                });
            }
        }
    }

    /// The operations along the path, found by walking it again.
    fn order(&self) -> Vec<usize> {
        let mut order = Vec::new();
        let mut sink = |operation| order.push(operation);
        let mut configuration = self.space.root(&mut sink);
        for frame in &self.path {
            if self.space.is_goal(&configuration) {
                break;
            }
            configuration = self
                .space
                .after_move(&configuration, frame.next_move - 1, &mut sink)
                .expect("every move on the path was legal when it was first made");
        }
        order
    }

    pub(super) fn deepest(&self) -> &Deepest {
        &self.deepest
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.seen.memory_bytes() + (self.path.capacity() * size_of::<Frame<W>>()) as u64
    }
}
