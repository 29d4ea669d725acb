//! Owns the depth-first order of search, which is the faster one where a legal order exists.
//! Never recurses: its path is a vector, so deep histories cannot overflow the stack.

use super::Ended;
use super::antichain::{Antichain, Kinds, dominates};
use super::compiled::Model;
use super::configuration::{Configuration, Due, Mistake, Move, Walker};
use super::levels::{Levels, Window};
use super::portfolio::{Deepest, order_along};

#[derive(Debug)]
struct Frame<const W: usize, const C: usize> {
    configuration: Configuration<W, C>,
    /// Number of the move to try next.
    next_move: u32,
    /// The move that led on from here.
    made: Move,
    due: Due,
}

/// The path under construction, and everything from which there is no way on.
pub(super) struct DepthFirst<'a, 'b, M: Model, const W: usize, const C: usize> {
    levels: &'a Levels<'b, M::Action>,
    window: Window<M::Action, W>,
    path: Vec<Frame<W, C>>,
    /// Configurations are remembered when they have failed: on an easy history, hardly any.
    failed: Antichain<W, C>,
    deepest: Deepest,
    found: bool,
    mistake: Mistake,
}

impl<'a, 'b, M: Model, const W: usize, const C: usize> DepthFirst<'a, 'b, M, W, C> {
    /// At the beginning of the history, which has at least one completion.
    pub(super) fn new(levels: &'a Levels<'b, M::Action>, model: &mut M, mistake: Mistake) -> Self {
        let mut search = Self {
            levels,
            window: Window::new(levels, |action| model.kind(action)),
            path: Vec::new(),
            failed: Antichain::new(),
            deepest: Deepest::default(),
            found: false,
            mistake,
        };
        let mut walker = search.walker(model);
        let mut root = walker.root(&mut |_| {});
        if walker.advance(&mut root, &mut |_| {}) {
            search.push(root, model);
        }
        search
    }

    fn walker<'c>(&'c mut self, model: &'c mut M) -> Walker<'c, 'b, M, W, C>
    where
        'a: 'c,
    {
        Walker {
            levels: self.levels,
            model,
            window: &mut self.window,
            mistake: self.mistake,
        }
    }

    fn push(&mut self, configuration: Configuration<W, C>, model: &mut M) {
        self.deepest.visit(configuration.level, configuration.state);
        self.found = configuration.level as usize == self.levels.count();
        let due = if self.found {
            Due::Nothing
        } else {
            self.walker(model).due(&configuration)
        };
        self.path.push(Frame {
            configuration,
            next_move: 0,
            made: Move::Complete,
            due,
        });
    }

    /// The next move to try at the end of the path: the most urgent operations first, those of unknown
    /// outcome last.
    fn next_move(&mut self) -> Option<Move> {
        let frame = self.path.last_mut()?;
        let mut number = frame.next_move as usize;
        frame.next_move += 1;
        if frame.due == Due::LastChance {
            if number == 0 {
                return Some(Move::Complete);
            }
            number -= 1;
        }
        if let Some(slot) = self.window.slot(number) {
            return Some(Move::Open(slot as u32));
        }
        let class = number - self.window.open_count();
        let begun = self.levels.optional.get(class)?;
        (begun.from_level[0] <= frame.configuration.level).then_some(Move::Optional(class as u32))
    }

    /// Visits up to `allowance` more configurations; `None` when there are more.
    pub(super) fn run(&mut self, model: &mut M, mut allowance: u64) -> Option<Ended> {
        loop {
            if self.found {
                let moves = self.path.iter().map(|frame| frame.made);
                let order = order_along::<M, W, C>(self.levels, model, moves, self.mistake);
                return Some(Ended::Found(order));
            }
            let Some(frame) = self.path.last() else {
                return Some(Ended::Exhausted);
            };
            if allowance == 0 {
                return None;
            }
            let from = frame.configuration;
            let Some(by) = self.next_move() else {
                self.give_up(model);
                continue;
            };
            let mut walker = self.walker(model);
            let next = match by {
                Move::Complete => {
                    let mut next = from;
                    walker.complete(&mut next, &mut |_| {}).then_some(next)
                }
                other => walker.after(&from, other, &mut |_| {}),
            };
            let Some(mut next) = next else {
                walker.back_to(from.level);
                continue;
            };
            allowance -= 1;
            if !walker.advance(&mut next, &mut |_| {}) || self.is_hopeless(&next, by) {
                self.walker(model).back_to(from.level);
                continue;
            }
            if let Some(frame) = self.path.last_mut() {
                frame.made = by;
            }
            self.push(next, model);
        }
    }

    /// Whether everything from here was or will be tried from elsewhere.
    fn is_hopeless(&self, configuration: &Configuration<W, C>, by: Move) -> bool {
        if configuration.level as usize == self.levels.count() {
            return false;
        }
        let kinds = Kinds::of(&self.window);
        if self.failed.covers(configuration, &kinds) {
            return true;
        }
        // Only what is optional can lead around in a circle.
        by != Move::Complete
            && self
                .path
                .iter()
                .rev()
                .map(|frame| &frame.configuration)
                .take_while(|other| other.level == configuration.level)
                .any(|other| {
                    other.state == configuration.state && dominates(other, configuration, &kinds)
                })
    }

    /// Leaves the end of the path for good.
    fn give_up(&mut self, model: &mut M) {
        if let Some(frame) = self.path.pop() {
            let kinds = Kinds::of(&self.window);
            self.failed.insert(&frame.configuration, &kinds, 0);
        }
        if let Some(level) = self.path.last().map(|frame| frame.configuration.level) {
            self.walker(model).back_to(level);
        }
    }

    pub(super) fn deepest(&self) -> &Deepest {
        &self.deepest
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.failed.memory_bytes() + (self.path.capacity() * size_of::<Frame<W, C>>()) as u64
    }
}
