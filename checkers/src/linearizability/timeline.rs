//! Owns the operations on one object and the order of their invocations and completions.
//! Never knows what an action means.

/// One operation with the positions at which it was invoked and completed.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Operation<A> {
    /// What it does, and what came of it.
    pub action: A,
    /// Position of its invocation in the history.
    pub invoked: u64,
    /// Position of its completion; `None` for an operation of unknown outcome, which may take
    /// effect at any time after its invocation, or never.
    pub completed: Option<u64>,
}

/// An invocation or a completion.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Event(u32);

impl Event {
    fn new(operation: usize, is_completion: bool) -> Self {
        let number = u32::try_from(operation).unwrap_or(u32::MAX);
        assert!(number < 1 << 31, "an object has fewer than 2^31 operations");
        Self(number << 1 | u32::from(is_completion))
    }

    /// Number of the operation, in the order of invocations.
    pub fn operation(self) -> usize {
        (self.0 >> 1) as usize
    }

    /// Whether it is the completion.
    pub fn is_completion(self) -> bool {
        self.0 & 1 == 1
    }
}

/// Everything that happened to one object. An operation that has no completion is of unknown
/// outcome.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Timeline<A> {
    actions: Vec<A>,
    events: Vec<Event>,
}

impl<A> Default for Timeline<A> {
    fn default() -> Self {
        Self {
            actions: Vec::new(),
            events: Vec::new(),
        }
    }
}

/// Position that comes after all events: where operations of unknown outcome end.
pub const NEVER: u32 = u32::MAX;

impl<A: Copy> Timeline<A> {
    /// Without operations.
    pub fn new() -> Self {
        Self::default()
    }

    /// Adds an invocation after everything so far; returns the number of the operation.
    pub fn invoke(&mut self, action: A) -> usize {
        let operation = self.actions.len();
        self.events.push(Event::new(operation, false));
        self.actions.push(action);
        operation
    }

    /// Adds the completion of an operation after everything so far.
    pub fn complete(&mut self, operation: usize) {
        self.events.push(Event::new(operation, true));
    }

    /// The same operations, in an order of invocations, and for each its place in `operations`.
    /// An invocation and a completion at the same position count as overlapping.
    ///
    /// # Panics
    ///
    /// If an operation completes before it is invoked.
    pub fn from_operations(operations: &[Operation<A>]) -> (Self, Vec<usize>) {
        let mut marks: Vec<(u64, bool, usize)> = Vec::with_capacity(operations.len() * 2);
        for (place, operation) in operations.iter().enumerate() {
            marks.push((operation.invoked, false, place));
            if let Some(completed) = operation.completed {
                assert!(
                    operation.invoked <= completed,
                    "operation {place} completes before it is invoked"
                );
                marks.push((completed, true, place));
            }
        }
        marks.sort_unstable();
        let mut timeline = Self::new();
        let mut places = Vec::with_capacity(operations.len());
        let mut numbers = vec![0; operations.len()];
        for (_, is_completion, place) in marks {
            if is_completion {
                timeline.complete(numbers[place]);
            } else {
                numbers[place] = timeline.invoke(operations[place].action);
                places.push(place);
            }
        }
        (timeline, places)
    }

    /// Number of operations.
    pub fn len(&self) -> usize {
        self.actions.len()
    }

    /// Whether nothing happened.
    pub fn is_empty(&self) -> bool {
        self.actions.is_empty()
    }

    /// What every operation does, in the order of their invocations.
    pub fn actions(&self) -> &[A] {
        &self.actions
    }

    /// What one operation does.
    pub fn action(&self, operation: usize) -> A {
        self.actions[operation]
    }

    /// Invocations and completions in the order in which they happened.
    pub fn events(&self) -> &[Event] {
        &self.events
    }

    /// Number of operations that completed.
    pub fn completed_count(&self) -> usize {
        self.events.len() - self.actions.len()
    }

    /// Where every operation is invoked and completed ([`NEVER`] without a completion), as
    /// positions among the events.
    pub fn intervals(&self) -> Vec<(u32, u32)> {
        let mut intervals = vec![(0, NEVER); self.actions.len()];
        for (position, event) in self.events.iter().enumerate() {
            let interval = &mut intervals[event.operation()];
            if event.is_completion() {
                interval.1 = position as u32;
            } else {
                interval.0 = position as u32;
            }
        }
        intervals
    }

    /// What had happened when that many events had.
    pub fn prefix(&self, event_count: usize) -> Self {
        let events = self.events[..event_count].to_vec();
        let operations = events.iter().filter(|event| !event.is_completion());
        Self {
            actions: self.actions[..operations.count()].to_vec(),
            events,
        }
    }

    /// The operations for which `keep` says whether they stay, and whether as completed ones; and
    /// for each that stays its number here.
    pub fn weaken(&self, keep: impl Fn(usize) -> Kept) -> (Self, Vec<usize>) {
        let mut weaker = Self::new();
        let mut numbers = Vec::new();
        let mut place = vec![NEVER; self.len()];
        for event in &self.events {
            let operation = event.operation();
            match (keep(operation), event.is_completion()) {
                (Kept::No, _) | (Kept::AsUnknown, true) => {}
                (_, false) => {
                    place[operation] = weaker.invoke(self.action(operation)) as u32;
                    numbers.push(operation);
                }
                (Kept::AsItIs, true) => weaker.complete(place[operation] as usize),
            }
        }
        (weaker, numbers)
    }

    /// The same history in which operations without a completion do something else.
    pub fn with_unknown(&self, translate: impl Fn(A) -> A) -> Self {
        let mut changed = self.clone();
        for (action, (_, end)) in changed.actions.iter_mut().zip(self.intervals()) {
            if end == NEVER {
                *action = translate(*action);
            }
        }
        changed
    }

    /// The same history with every action translated.
    pub fn map<B: Copy>(&self, translate: impl FnMut(A) -> B) -> Timeline<B> {
        Timeline {
            actions: self.actions.iter().copied().map(translate).collect(),
            events: self.events.clone(),
        }
    }
}

/// What becomes of an operation when a history is weakened.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Kept {
    /// It is left out.
    No,
    /// It stays, but nobody knows whether it took effect.
    AsUnknown,
    /// It stays.
    AsItIs,
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn positions_become_an_order_and_ties_overlap() {
        let operation = |action, invoked, completed| Operation {
            action,
            invoked,
            completed,
        };
        let (timeline, places) = Timeline::from_operations(&[
            operation('b', 5, None),
            operation('a', 0, Some(5)),
            operation('c', 6, Some(9)),
        ]);
        assert_eq!(timeline.actions(), ['a', 'b', 'c']);
        assert_eq!(places, [1, 0, 2]);
        assert_eq!(timeline.intervals(), [(0, 2), (1, NEVER), (3, 4)]);
        let (weaker, numbers) = timeline.weaken(|operation| match operation {
            0 => Kept::No,
            1 => Kept::AsItIs,
            _ => Kept::AsUnknown,
        });
        assert_eq!(numbers, [1, 2]);
        assert_eq!(weaker.intervals(), [(0, NEVER), (1, NEVER)]);
        assert_eq!(timeline.prefix(2).len(), 2);
    }
}
