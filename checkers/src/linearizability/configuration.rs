//! Owns configurations (level, value, operations already taken) and the moves between them.
//! Never decides which move to try first or remembers where it has been.

use super::Action;
use super::bits::Bits;
use super::problem::{Open, Problem};

/// What has been linearized so far, as far as the future can depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Configuration<const W: usize> {
    /// Completion that is due next.
    pub(super) level: usize,
    /// Value of the register.
    pub(super) state: u32,
    /// Slots of open operations that need not be taken any more.
    pub(super) done: Bits<W>,
    /// What was used up on the way: less is better.
    pub(super) spent: Spent<W>,
    /// The last move took something optional whose effect nothing has observed yet.
    pub(super) unobserved: bool,
}

/// Operations that can be taken no more although they were optional.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Spent<const W: usize> {
    /// Operations of unknown outcome; of every class the earliest.
    pub(super) optional: Bits<W>,
    /// Slots of open writes that are done because they were taken. The others that are done were
    /// absorbed, and may still be taken instead.
    pub(super) writes: Bits<W>,
}

impl<const W: usize> Spent<W> {
    pub(super) const NOTHING: Self = Self {
        optional: Bits::EMPTY,
        writes: Bits::EMPTY,
    };

    pub(super) fn is_subset(&self, other: &Self) -> bool {
        self.optional.is_subset(&other.optional) && self.writes.is_subset(&other.writes)
    }
}

/// One step of an order under construction.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Step {
    /// The operation comes next.
    Take(usize),
    /// The write comes next, unless it is taken later on: the write after it hides it.
    Absorb(usize),
}

/// All configurations of a problem.
pub(super) struct Space<'a, const W: usize> {
    problem: &'a Problem,
}

impl<'a, const W: usize> Space<'a, W> {
    pub(super) fn new(problem: &'a Problem) -> Self {
        Self { problem }
    }

    /// Where every search begins; `sink` gets the steps taken on the way.
    pub(super) fn root(&self, sink: &mut impl FnMut(Step)) -> Configuration<W> {
        let mut root = Configuration {
            level: 0,
            state: self.problem.initial(),
            done: Bits::EMPTY,
            spent: Spent::NOTHING,
            unobserved: false,
        };
        if self.problem.level_count() > 0 {
            self.take_pure(&mut root, self.problem.opened(0), sink);
            self.advance(&mut root, sink);
        }
        root
    }

    pub(super) fn is_goal(&self, configuration: &Configuration<W>) -> bool {
        configuration.level == self.problem.level_count()
    }

    /// How many moves there are to try, legal or not.
    pub(super) fn move_count(&self, configuration: &Configuration<W>) -> usize {
        1 + self.problem.open(configuration.level).len() + self.problem.optional().len()
    }

    /// The configuration after move number `number`, or `None` where the move is not legal or
    /// cannot be needed. Completed operations come first, the most urgent before the others; before
    /// them comes the move that takes nothing and lets an absorbed write complete.
    pub(super) fn after_move(
        &self,
        from: &Configuration<W>,
        number: usize,
        sink: &mut impl FnMut(Step),
    ) -> Option<Configuration<W>> {
        let Some(number) = number.checked_sub(1) else {
            return self.after_completion(from, sink);
        };
        let open = self.problem.open(from.level);
        match open.get(number) {
            Some(operation) => self.after_open(from, operation, sink),
            None => self.after_optional(from, number - open.len(), sink),
        }
    }

    fn after_completion(
        &self,
        from: &Configuration<W>,
        sink: &mut impl FnMut(Step),
    ) -> Option<Configuration<W>> {
        let deadline = self.problem.deadline(from.level);
        if !from.done.contains(deadline.slot) {
            return None;
        }
        let mut next = *from;
        self.complete(&mut next, sink);
        self.advance(&mut next, sink);
        Some(next)
    }

    fn after_open(
        &self,
        from: &Configuration<W>,
        operation: &Open,
        sink: &mut impl FnMut(Step),
    ) -> Option<Configuration<W>> {
        if !may_follow(from, operation.action) {
            return None;
        }
        let state = operation.action.step(from.state)?;
        let is_write = matches!(operation.action, Action::Write(_));
        let mut unobserved = false;
        if from.done.contains(operation.slot) {
            if !is_write || from.spent.writes.contains(operation.slot) {
                return None;
            }
            // An absorbed write is optional, too, so it must change the value, and be observed.
            // To make room for others it is not needed: one of them can be taken instead.
            if state == from.state {
                return None;
            }
            unobserved = true;
        }
        let mut next = *from;
        next.state = state;
        next.unobserved = unobserved;
        next.done.insert(operation.slot);
        if is_write {
            next.spent.writes.insert(operation.slot);
            self.absorb(&mut next, sink);
        }
        sink(Step::Take(operation.operation));
        self.settle(from.state, &mut next, sink);
        Some(next)
    }

    fn after_optional(
        &self,
        from: &Configuration<W>,
        class: usize,
        sink: &mut impl FnMut(Step),
    ) -> Option<Configuration<W>> {
        let class = &self.problem.optional()[class];
        let state = class.action.step(from.state)?;
        if state == from.state || !may_follow(from, class.action) {
            return None;
        }
        let member = (0..class.operations.len())
            .find(|member| !from.spent.optional.contains(class.first + member))?;
        if class.from_level[member] > from.level {
            return None;
        }
        let mut next = *from;
        next.state = state;
        next.spent.optional.insert(class.first + member);
        next.unobserved = true;
        if matches!(class.action, Action::Write(_)) {
            self.absorb(&mut next, sink);
        }
        sink(Step::Take(class.operations[member]));
        self.settle(from.state, &mut next, sink);
        Some(next)
    }

    /// A write is being taken: every pending write may stand right before it, where nothing can
    /// see it.
    fn absorb(&self, configuration: &mut Configuration<W>, sink: &mut impl FnMut(Step)) {
        for other in self.problem.open(configuration.level) {
            if is_pending_write(configuration, other) {
                configuration.done.insert(other.slot);
                sink(Step::Absorb(other.operation));
            }
        }
    }

    /// Takes what the new value makes legal and passes every completion that is no longer due.
    fn settle(
        &self,
        state_before: u32,
        configuration: &mut Configuration<W>,
        sink: &mut impl FnMut(Step),
    ) {
        if configuration.state != state_before {
            self.take_pure(configuration, self.problem.open(configuration.level), sink);
        }
        self.advance(configuration, sink);
    }

    fn take_pure(
        &self,
        configuration: &mut Configuration<W>,
        candidates: &[Open],
        sink: &mut impl FnMut(Step),
    ) {
        for operation in candidates {
            if operation.action.is_pure()
                && !configuration.done.contains(operation.slot)
                && operation.action.step(configuration.state).is_some()
            {
                configuration.done.insert(operation.slot);
                // Legal now and not before the last move, or it would have been taken then: it
                // tells the two values apart.
                configuration.unobserved = false;
                sink(Step::Take(operation.operation));
            }
        }
    }

    /// Passes completions up to one that something must be done about: its operation is not done,
    /// or it is an absorbed write that could be taken for the last time.
    fn advance(&self, configuration: &mut Configuration<W>, sink: &mut impl FnMut(Step)) {
        while configuration.level < self.problem.level_count() {
            let deadline = self.problem.deadline(configuration.level);
            let may_still_be_taken = matches!(deadline.action, Action::Write(_))
                && !configuration.spent.writes.contains(deadline.slot)
                && self.problem.matters_at(configuration.level);
            if !configuration.done.contains(deadline.slot) || may_still_be_taken {
                return;
            }
            self.complete(configuration, sink);
        }
    }

    fn complete(&self, configuration: &mut Configuration<W>, sink: &mut impl FnMut(Step)) {
        let deadline = self.problem.deadline(configuration.level);
        configuration.done.remove(deadline.slot);
        configuration.spent.writes.remove(deadline.slot);
        configuration.level += 1;
        if configuration.level < self.problem.level_count() {
            let opened = self.problem.opened(configuration.level);
            self.take_pure(configuration, opened, sink);
        }
    }
}

fn is_pending_write<const W: usize>(configuration: &Configuration<W>, operation: &Open) -> bool {
    matches!(operation.action, Action::Write(_)) && !configuration.done.contains(operation.slot)
}

/// An effect of something optional must be observed by whatever follows, or leaving it out would do
/// as well. Pure operations are taken at once; what is left to observe a value is a
/// compare-and-set.
fn may_follow<const W: usize>(from: &Configuration<W>, action: Action) -> bool {
    !from.unobserved || matches!(action, Action::CompareAndSet { .. })
}
