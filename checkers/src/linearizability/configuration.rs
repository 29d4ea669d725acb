//! Owns configurations (level, value, operations already taken) and the moves between them.
//! Never decides which move to try first or remembers where it has been.

use super::Action;
use super::bits::Bits;
use super::problem::Problem;

/// What has been linearized so far, as far as the future can depend on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Configuration<const W: usize> {
    /// Completion that is due next.
    pub(super) level: usize,
    /// Value of the register.
    pub(super) state: u32,
    /// Slots of open operations already taken.
    pub(super) taken: Bits<W>,
    /// Optional operations already taken; of every class the earliest.
    pub(super) optional: Bits<W>,
    /// The last move took an optional operation whose effect nothing has observed yet.
    pub(super) unobserved: bool,
}

/// All configurations of a problem.
pub(super) struct Space<'a, const W: usize> {
    problem: &'a Problem,
}

impl<'a, const W: usize> Space<'a, W> {
    pub(super) fn new(problem: &'a Problem) -> Self {
        Self { problem }
    }

    /// Where every search begins; `sink` gets the operations taken on the way.
    pub(super) fn root(&self, sink: &mut impl FnMut(usize)) -> Configuration<W> {
        let mut root = Configuration {
            level: 0,
            state: self.problem.initial(),
            taken: Bits::EMPTY,
            optional: Bits::EMPTY,
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
        self.problem.open(configuration.level).len() + self.problem.optional().len()
    }

    /// The configuration after move number `number`, or `None` where the move is not legal or
    /// cannot be needed. Completed operations come first, the most urgent before the others.
    pub(super) fn after_move(
        &self,
        from: &Configuration<W>,
        number: usize,
        sink: &mut impl FnMut(usize),
    ) -> Option<Configuration<W>> {
        let open = self.problem.open(from.level);
        match open.get(number) {
            Some(operation) => {
                if from.taken.contains(operation.slot) || !may_follow(from, operation.action) {
                    return None;
                }
                let mut next = *from;
                next.state = operation.action.step(from.state)?;
                next.taken.insert(operation.slot);
                next.unobserved = false;
                sink(operation.operation);
                self.settle(from.state, &mut next, sink);
                Some(next)
            }
            None => self.after_optional(from, number - open.len(), sink),
        }
    }

    fn after_optional(
        &self,
        from: &Configuration<W>,
        class: usize,
        sink: &mut impl FnMut(usize),
    ) -> Option<Configuration<W>> {
        let class = &self.problem.optional()[class];
        let state = class.action.step(from.state)?;
        if state == from.state || !may_follow(from, class.action) {
            return None;
        }
        let member = (0..class.operations.len())
            .find(|member| !from.optional.contains(class.first + member))?;
        if class.from_level[member] > from.level {
            return None;
        }
        let mut next = *from;
        next.state = state;
        next.optional.insert(class.first + member);
        next.unobserved = true;
        sink(class.operations[member]);
        self.settle(from.state, &mut next, sink);
        Some(next)
    }

    /// Takes what the new value makes legal and passes every completion that is no longer open.
    fn settle(
        &self,
        state_before: u32,
        configuration: &mut Configuration<W>,
        sink: &mut impl FnMut(usize),
    ) {
        if configuration.state != state_before {
            self.take_pure(configuration, self.problem.open(configuration.level), sink);
        }
        self.advance(configuration, sink);
    }

    fn take_pure(
        &self,
        configuration: &mut Configuration<W>,
        candidates: &[super::problem::Open],
        sink: &mut impl FnMut(usize),
    ) {
        for operation in candidates {
            if operation.action.is_pure()
                && !configuration.taken.contains(operation.slot)
                && operation.action.step(configuration.state).is_some()
            {
                configuration.taken.insert(operation.slot);
                // Legal now and not before the last move, or it would have been taken then: it
                // tells the two values apart.
                configuration.unobserved = false;
                sink(operation.operation);
            }
        }
    }

    fn advance(&self, configuration: &mut Configuration<W>, sink: &mut impl FnMut(usize)) {
        while configuration.level < self.problem.level_count() {
            let deadline = self.problem.deadline(configuration.level);
            if !configuration.taken.contains(deadline.slot) {
                return;
            }
            configuration.taken.remove(deadline.slot);
            configuration.level += 1;
            if configuration.level < self.problem.level_count() {
                self.take_pure(
                    configuration,
                    self.problem.opened(configuration.level),
                    sink,
                );
            }
        }
    }
}

/// An effect of an optional operation must be observed by whatever follows, or leaving that
/// operation out would do as well. Pure operations are taken at once; what is left to observe a
/// value is a compare-and-set.
fn may_follow<const W: usize>(from: &Configuration<W>, action: Action) -> bool {
    !from.unobserved || matches!(action, Action::CompareAndSet { .. })
}
