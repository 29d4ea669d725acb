//! Owns configurations (level, state, operations already taken) and the moves between them.
//! Never decides which move to try first or remembers where it has been.

use super::bits::Bits;
use super::compiled::{Model, State, UNSEEN};
use super::levels::{Levels, Window};
use super::models::Kind;

/// What has been linearized so far, as far as the future can depend on it. `W` and `C` are machine
/// words for open operations and for those of unknown outcome.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Configuration<const W: usize, const C: usize> {
    /// Completion that is due next.
    pub(super) level: u32,
    /// State of the object.
    pub(super) state: State,
    /// Slots of open operations that need not be taken any more.
    pub(super) done: Bits<W>,
    /// Slots of open blind operations that are done because they were taken. The others that are done
    /// were absorbed, and may still be taken instead.
    pub(super) taken: Bits<W>,
    /// Operations of unknown outcome that were taken; of every class the earliest.
    pub(super) optional: Bits<C>,
    /// The last move took something optional whose effect nothing has observed yet.
    pub(super) unobserved: bool,
}

/// A way to go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Move {
    /// Take nothing, and let an absorbed operation complete.
    Complete,
    /// Take the open operation in this slot.
    Open(u32),
    /// Take the next member of this class.
    Optional(u32),
}

/// One step of an order under construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The operation comes next.
    Take(u32),
    /// The blind operation comes next, unless it is taken later on: the one after it hides it.
    Absorb(u32),
}

/// What a configuration needs at its level.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Due {
    /// Something must be taken.
    Taking,
    /// Nothing, and nothing is gained by taking anything now.
    Nothing,
    /// Nothing; but an absorbed operation can be taken for the last time.
    LastChance,
}

/// Reductions that were tried and found wrong, so that tests can show that they would be noticed.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Default)]
#[cfg_attr(not(test), allow(dead_code))]
pub enum Mistake {
    /// None.
    #[default]
    None,
    /// Completed blind operations, too, must be observed by what comes next, and only a pure
    /// operation counts as observer.
    ObservedRuleForCompleted,
    /// An absorbed operation can no longer be taken.
    AbsorbedForGood,
}

/// Where a search is: the completions, and what is open at the one that it has come to.
pub(super) struct Ground<'a, 'b, M: Model, const W: usize> {
    pub(super) levels: &'a Levels<'b, M::Action>,
    pub(super) window: Window<M::Action, W>,
    pub(super) mistake: Mistake,
}

impl<'a, 'b, M: Model, const W: usize> Ground<'a, 'b, M, W> {
    /// The beginning of a history, which has at least one completion.
    pub(super) fn new(levels: &'a Levels<'b, M::Action>, model: &M, mistake: Mistake) -> Self {
        Self {
            levels,
            window: Window::new(levels, |action| model.kind(action)),
            mistake,
        }
    }

    /// Lets somebody walk there.
    #[inline]
    pub(super) fn walker<'c, const C: usize>(
        &'c mut self,
        model: &'c mut M,
    ) -> Walker<'c, 'b, M, W, C>
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
}

/// A position in the space of configurations of a compiled problem.
pub(super) struct Walker<'a, 'b, M: Model, const W: usize, const C: usize> {
    levels: &'a Levels<'b, M::Action>,
    model: &'a mut M,
    window: &'a mut Window<M::Action, W>,
    mistake: Mistake,
}

impl<M: Model, const W: usize, const C: usize> Walker<'_, '_, M, W, C> {
    /// Where every search begins; the window must be at level 0.
    pub(super) fn root(&mut self, sink: &mut impl FnMut(Step)) -> Configuration<W, C> {
        let mut root = Configuration {
            level: 0,
            state: self.model.initial(),
            done: Bits::EMPTY,
            taken: Bits::EMPTY,
            optional: Bits::EMPTY,
            unobserved: false,
        };
        self.take_pure(&mut root, &self.window.pure.clone(), sink);
        root
    }

    /// The configuration after a move at the same level, or `None` where the move is not legal or
    /// cannot be needed. The window must be at the level of `from`.
    pub(super) fn after(
        &mut self,
        from: &Configuration<W, C>,
        by: Move,
        sink: &mut impl FnMut(Step),
    ) -> Option<Configuration<W, C>> {
        match by {
            Move::Complete => None,
            Move::Open(slot) => self.after_open(from, slot as usize, sink),
            Move::Optional(class) => self.after_optional(from, class as usize, sink),
        }
    }

    #[inline]
    fn after_open(
        &mut self,
        from: &Configuration<W, C>,
        slot: usize,
        sink: &mut impl FnMut(Step),
    ) -> Option<Configuration<W, C>> {
        let is_blind = self.window.blind.contains(slot);
        let is_done = from.done.contains(slot);
        if from.unobserved && self.cannot_observe(is_blind)
            || is_done && (!is_blind || from.taken.contains(slot))
        {
            return None;
        }
        let state = self.stepped(from, self.window.action(slot))?;
        let mut next = *from;
        next.unobserved = self.mistake == Mistake::ObservedRuleForCompleted && is_blind;
        if is_done {
            // An absorbed operation is optional, too, so it must change the state, and be observed.
            // To make room for others it is not needed: one of them can be taken instead.
            if state == from.state
                || self.is_useless(state, from.level)
                || self.mistake == Mistake::AbsorbedForGood
            {
                return None;
            }
            next.unobserved = true;
        }
        next.state = state;
        next.done.insert(slot);
        if is_blind {
            next.taken.insert(slot);
            self.absorb(&mut next, sink);
        }
        sink(Step::Take(self.window.operation(slot)));
        if state != from.state {
            self.take_pure(&mut next, &self.window.pure.clone(), sink);
        }
        Some(next)
    }

    #[inline]
    fn after_optional(
        &mut self,
        from: &Configuration<W, C>,
        class: usize,
        sink: &mut impl FnMut(Step),
    ) -> Option<Configuration<W, C>> {
        let class = &self.levels.optional[class];
        let members = class.first..class.first + class.operations.len();
        let bit = members.clone().find(|bit| !from.optional.contains(*bit))?;
        let member = bit - class.first;
        if class.from_level[member] > from.level {
            return None;
        }
        let mut next = self.after_unknown(from, class.action, class.operations[member], sink)?;
        next.optional.insert(bit);
        Some(next)
    }

    /// The configuration after an operation of unknown outcome, without a note of which it was.
    #[inline]
    pub(super) fn after_unknown(
        &mut self,
        from: &Configuration<W, C>,
        action: M::Action,
        operation: u32,
        sink: &mut impl FnMut(Step),
    ) -> Option<Configuration<W, C>> {
        let is_blind = self.model.kind(action) == Kind::Blind;
        if from.unobserved && self.cannot_observe(is_blind) {
            return None;
        }
        let state = self.stepped(from, action)?;
        // What nothing can observe might as well be left out.
        if state == from.state || self.is_useless(state, from.level) {
            return None;
        }
        let mut next = *from;
        next.state = state;
        next.unobserved = true;
        if is_blind {
            self.absorb(&mut next, sink);
        }
        sink(Step::Take(operation));
        self.take_pure(&mut next, &self.window.pure.clone(), sink);
        Some(next)
    }

    /// An effect of something optional must be observed by whatever follows, or leaving it out would
    /// do as well. Pure operations are taken at once; of the others, all but the blind ones go on
    /// from the effect.
    fn cannot_observe(&self, is_blind: bool) -> bool {
        is_blind || self.mistake == Mistake::ObservedRuleForCompleted
    }

    #[inline]
    fn stepped(&mut self, from: &Configuration<W, C>, action: M::Action) -> Option<State> {
        let state = self.model.step(from.state, action)?;
        Some(self.forget(state, from.level))
    }

    fn forget(&self, state: State, level: u32) -> State {
        if self.model.last_observed(state) < level {
            UNSEEN
        } else {
            state
        }
    }

    /// A blind operation is being taken: every open one may stand right before it, where nothing can see
    /// it.
    fn absorb(&self, configuration: &mut Configuration<W, C>, sink: &mut impl FnMut(Step)) {
        let pending = self.window.blind.minus(&configuration.done);
        for slot in pending.iter() {
            sink(Step::Absorb(self.window.operation(slot)));
        }
        configuration.done.insert_all(&pending);
    }

    fn take_pure(
        &mut self,
        configuration: &mut Configuration<W, C>,
        candidates: &Bits<W>,
        sink: &mut impl FnMut(Step),
    ) {
        for slot in candidates.minus(&configuration.done).iter() {
            let action = self.window.action(slot);
            if self.model.step(configuration.state, action).is_some() {
                configuration.done.insert(slot);
                // Legal now and not before the last move, or it would have been taken then: it tells
                // the two states apart.
                configuration.unobserved = false;
                sink(Step::Take(self.window.operation(slot)));
            }
        }
    }

    /// What the configuration needs; the window must be at its level.
    #[inline]
    pub(super) fn due(&mut self, configuration: &Configuration<W, C>) -> Due {
        let slot = self.window.deadline_slot();
        if !configuration.done.contains(slot) {
            return Due::Taking;
        }
        if !self.window.blind.contains(slot) || configuration.taken.contains(slot) {
            return Due::Nothing;
        }
        // Taken only now, something must complete later that observes it.
        let state = self
            .model
            .step(configuration.state, self.window.action(slot));
        match state {
            Some(state)
                if self.model.last_observed(state) > configuration.level
                    || self.model.unseen_useless_from() > configuration.level + 1 =>
            {
                Due::LastChance
            }
            _ => Due::Nothing,
        }
    }

    /// Frees the slot of the operation that completes; the window must still be at its level.
    pub(super) fn leave(&self, configuration: &mut Configuration<W, C>) {
        let slot = self.window.deadline_slot();
        configuration.done.remove(slot);
        configuration.taken.remove(slot);
        configuration.level += 1;
    }

    /// Goes on at the level where the window is now; `opened` are the pure operations new there.
    /// False if nothing can come of the configuration.
    pub(super) fn enter(
        &mut self,
        configuration: &mut Configuration<W, C>,
        opened: &Bits<W>,
        sink: &mut impl FnMut(Step),
    ) -> bool {
        if !opened.is_empty() {
            self.take_pure(configuration, opened, sink);
        }
        configuration.state = self.forget(configuration.state, configuration.level);
        !(configuration.unobserved && self.is_useless(configuration.state, configuration.level))
    }

    /// Whether nothing that completes at the level or later can make use of the state.
    fn is_useless(&self, state: State, level: u32) -> bool {
        state == UNSEEN && self.model.unseen_useless_from() <= level
    }

    /// Takes the window to the next level; returns the slots of the pure operations new there.
    pub(super) fn forward(&mut self) -> Bits<W> {
        let model = &*self.model;
        self.window
            .forward(self.levels, |action| model.kind(action))
    }

    /// Takes the window back to a level.
    pub(super) fn back_to(&mut self, level: u32) {
        let model = &*self.model;
        while self.window.level() > level as usize {
            self.window.back(self.levels, |action| model.kind(action));
        }
    }

    /// Passes completions for as long as nothing is gained by taking anything. False if nothing can
    /// come of the configuration.
    pub(super) fn advance(
        &mut self,
        configuration: &mut Configuration<W, C>,
        sink: &mut impl FnMut(Step),
    ) -> bool {
        while (configuration.level as usize) < self.levels.count() {
            if self.due(configuration) != Due::Nothing {
                return true;
            }
            if !self.complete(configuration, sink) {
                return false;
            }
        }
        true
    }

    /// Passes one completion.
    pub(super) fn complete(
        &mut self,
        configuration: &mut Configuration<W, C>,
        sink: &mut impl FnMut(Step),
    ) -> bool {
        self.leave(configuration);
        let opened = self.forward();
        self.enter(configuration, &opened, sink)
    }
}
