//! Owns the depth-first order of search, which is the faster one where a legal order exists.
//! Never recurses: its path is a vector, so deep histories cannot overflow the stack.

use super::Ended;
use super::antichain::{Antichain, Kinds, by_members, dominates};
use super::compiled::Model;
use super::configuration::{Configuration, Due, Ground, Mistake, Move, Step};
use super::levels::Levels;
use super::portfolio::order_of;

/// Failed configurations are forgotten this many levels after the last of them, if there are many.
const FORGET_LEVEL_COUNT: u32 = 64;
const FORGET_MIN_COUNT: usize = 256;

#[derive(Debug)]
struct Frame<const W: usize, const C: usize> {
    configuration: Configuration<W, C>,
    /// Number of the move to try next.
    next_move: u32,
    due: Due,
    /// How many steps led here.
    step_count: u32,
}

/// The path under construction, and everything from which there is no way on.
pub(super) struct DepthFirst<'a, 'b, M: Model, const W: usize, const C: usize> {
    ground: Ground<'a, 'b, M, W>,
    path: Vec<Frame<W, C>>,
    /// What was done along the path.
    steps: Vec<Step>,
    /// Configurations are remembered when they have failed: on an easy history, hardly any.
    failed: Antichain<W, C>,
    /// Highest level of those.
    failed_level: u32,
    deepest_level: u32,
    found: bool,
}

impl<'a, 'b, M: Model, const W: usize, const C: usize> DepthFirst<'a, 'b, M, W, C> {
    /// At the beginning of the history, which has at least one completion.
    pub(super) fn new(levels: &'a Levels<'b, M::Action>, model: &mut M, mistake: Mistake) -> Self {
        let mut search = Self {
            ground: Ground::new(levels, model, mistake),
            path: Vec::new(),
            steps: Vec::new(),
            failed: Antichain::new(by_members(levels, model)),
            failed_level: 0,
            deepest_level: 0,
            found: false,
        };
        let mut steps = Vec::with_capacity(levels.timeline.len());
        let mut walker = search.ground.walker::<C>(model);
        let sink = &mut |step| steps.push(step);
        let mut root = walker.root(sink);
        let is_possible = walker.advance(&mut root, sink);
        search.steps = steps;
        if is_possible {
            search.push(root, model);
        }
        search
    }

    fn push(&mut self, configuration: Configuration<W, C>, model: &mut M) {
        self.deepest_level = self.deepest_level.max(configuration.level);
        self.found = configuration.level as usize == self.ground.levels.count();
        let due = if self.found {
            Due::Nothing
        } else {
            self.ground.walker::<C>(model).due(&configuration)
        };
        self.path.push(Frame {
            configuration,
            next_move: 0,
            due,
            step_count: self.steps.len() as u32,
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
        if let Some(slot) = self.ground.window.slot(number) {
            return Some(Move::Open(slot as u32));
        }
        let class = number - self.ground.window.open_count();
        let begun = self.ground.levels.optional.get(class)?;
        (begun.from_level[0] <= frame.configuration.level).then_some(Move::Optional(class as u32))
    }

    /// Visits up to `allowance` more configurations; `None` when there are more.
    pub(super) fn run(&mut self, model: &mut M, mut allowance: u64) -> Option<Ended> {
        loop {
            if self.found {
                return Some(Ended::Found(order_of(
                    &self.steps,
                    self.ground.levels.timeline.len(),
                )));
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
            if self.make(model, &from, by) {
                allowance -= 1;
            }
        }
    }

    /// Makes a move and goes on from there, unless that is hopeless. False if it is not legal.
    fn make(&mut self, model: &mut M, from: &Configuration<W, C>, by: Move) -> bool {
        // The walker borrows the search, so the steps are lent for the while.
        let mut steps = std::mem::take(&mut self.steps);
        let begin = steps.len();
        let sink = &mut |step| steps.push(step);
        let mut walker = self.ground.walker::<C>(model);
        let next = match by {
            Move::Complete => {
                let mut next = *from;
                walker.complete(&mut next, sink).then_some(next)
            }
            other => walker.after(from, other, sink),
        };
        let is_legal = next.is_some();
        let next = next.and_then(|mut next| walker.advance(&mut next, sink).then_some(next));
        self.steps = steps;
        match next {
            Some(next) if !self.is_hopeless(&next, by) => self.push(next, model),
            _ => {
                self.steps.truncate(begin);
                self.ground.walker::<C>(model).back_to(from.level);
            }
        }
        is_legal
    }

    /// Whether everything from here was or will be tried from elsewhere.
    fn is_hopeless(&self, configuration: &Configuration<W, C>, by: Move) -> bool {
        if configuration.level as usize == self.ground.levels.count() {
            return false;
        }
        let kinds = Kinds::of(&self.ground.window);
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
                    other.state == configuration.state
                        && dominates(other, configuration, &kinds, self.failed.account())
                })
    }

    /// Leaves the end of the path for good.
    fn give_up(&mut self, model: &mut M) {
        if let Some(frame) = self.path.pop() {
            let kinds = Kinds::of(&self.ground.window);
            let level = frame.configuration.level;
            // What failed long ago is hardly met again, and can be found out again.
            if level > self.failed_level + FORGET_LEVEL_COUNT
                && self.failed.len() > FORGET_MIN_COUNT
            {
                self.failed.clear();
            }
            self.failed_level = self.failed_level.max(level);
            self.failed.insert(&frame.configuration, &kinds, 0);
        }
        if let Some(frame) = self.path.last() {
            let level = frame.configuration.level;
            self.steps.truncate(frame.step_count as usize);
            self.ground.walker::<C>(model).back_to(level);
        }
    }

    pub(super) fn deepest_level(&self) -> u32 {
        self.deepest_level
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        self.failed.memory_bytes()
            + (self.path.capacity() * size_of::<Frame<W, C>>()
                + self.steps.capacity() * size_of::<Step>()) as u64
    }
}
