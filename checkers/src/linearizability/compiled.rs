//! Owns objects as the searches see them: states are numbers, and some need not be told apart.
//! Never decides in which order operations are tried.

use rustc_hash::FxHashMap;

use super::levels::completions;
use super::memory::{ALLOCATION_BYTES, table_bytes};
use super::models::register::{Action, Register};
use super::models::{Kind, Specification};
use super::timeline::{NEVER, Timeline};

/// Number of a state.
pub(super) type State = u32;

/// Any state that nothing can observe any more; only a blind action leaves it.
pub(super) const UNSEEN: State = u32::MAX;

/// An object compiled for one timeline.
pub(super) trait Model {
    type Action: Copy + Ord;

    fn initial(&self) -> State;

    /// The state afterwards, or `None` where the action is not possible.
    fn step(&mut self, state: State, action: Self::Action) -> Option<State>;

    fn kind(&self, action: Self::Action) -> Kind;

    /// Last level at which an operation completes that can tell this state from others, or that
    /// can lead to a state that one can; [`NEVER`] if an operation without completion can.
    fn last_observed(&self, state: State) -> u32;

    /// The state that the action always leads to, and whether it is possible in every state. Of two
    /// actions that lead to the same state, one that is always possible can stand for one that is not.
    fn destination(&self, _action: Self::Action) -> Option<(State, bool)> {
        None
    }

    /// Level from which on a state that nothing tells apart is of use to no operation.
    fn unseen_useless_from(&self) -> u32 {
        0
    }

    /// Bytes that states and transitions occupy, approximately.
    fn memory_bytes(&self) -> u64 {
        0
    }

    /// Bytes that the largest state so far occupies.
    fn state_bytes(&self) -> u64 {
        0
    }
}

/// The register; its states are the values.
pub(super) struct RegisterModel {
    initial: u32,
    /// Level after which no operation completes that claims that a value was not there.
    claims_end: u32,
    /// By value; empty if states are always told apart.
    last_observed: Vec<u32>,
}

impl RegisterModel {
    /// `optional` are the operations of unknown outcome that matter. Without `forget`, values are told
    /// apart even when nothing observes them.
    pub(super) fn new(
        register: Register,
        timeline: &Timeline<Action>,
        optional: &[u32],
        forget: bool,
    ) -> Self {
        let mut last_observed = Vec::new();
        let mut claims_end = 0;
        if forget {
            let mut note = |action: Action, level: u32| {
                if let Some(value) = action.observes() {
                    let value = value as usize;
                    if last_observed.len() <= value {
                        last_observed.resize(value + 1, 0);
                    }
                    // Levels count from 1 here, so that 0 means never.
                    last_observed[value] = level.saturating_add(1).max(last_observed[value]);
                }
            };
            for operation in optional {
                note(timeline.action(*operation as usize), NEVER);
            }
            let completions = timeline.events().iter().filter(|one| one.is_completion());
            for (level, event) in (0..).zip(completions) {
                let action = timeline.action(event.operation());
                note(action, level);
                if matches!(action, Action::Differs(_)) {
                    claims_end = level + 1;
                }
            }
            last_observed.push(0);
        }
        Self {
            initial: register.initial,
            claims_end,
            last_observed,
        }
    }

    /// Operations of unknown outcome that can matter: not pure, and their value is required by
    /// something that itself can matter.
    ///
    /// Where an operation claims that a value was *not* there, any other value can satisfy it, so
    /// nothing but pure operations is left out.
    pub(super) fn useful(timeline: &Timeline<Action>) -> Vec<u32> {
        let completion = completions(timeline);
        let mut optional: Vec<u32> = (0..timeline.len())
            .filter(|place| completion[*place] == NEVER && !timeline.action(*place).is_pure())
            .map(|place| place as u32)
            .collect();
        if optional.is_empty() {
            return optional;
        }
        let mut required: Vec<bool> = Vec::new();
        let mut require = |value: u32| {
            if required.len() <= value as usize {
                required.resize(value as usize + 1, false);
            }
            !std::mem::replace(&mut required[value as usize], true)
        };
        for place in (0..timeline.len()).filter(|place| completion[*place] != NEVER) {
            match timeline.action(place) {
                Action::Differs(_) => return optional,
                action => {
                    action.requires().map(&mut require);
                }
            }
        }
        // By value: what requires it to produce something else that is required.
        let mut by_product: FxHashMap<u32, Vec<u32>> = FxHashMap::default();
        for operation in &optional {
            let action = timeline.action(*operation as usize);
            if let (Some(product), Some(needed)) = (action.produces(), action.requires()) {
                by_product.entry(product).or_default().push(needed);
            }
        }
        let is_required =
            |required: &[bool], value: u32| required.get(value as usize).copied().unwrap_or(false);
        let mut pending: Vec<u32> = by_product.keys().copied().collect();
        pending.retain(|value| is_required(&required, *value));
        while let Some(product) = pending.pop() {
            for needed in by_product.get(&product).into_iter().flatten() {
                if required.len() <= *needed as usize {
                    required.resize(*needed as usize + 1, false);
                }
                if !std::mem::replace(&mut required[*needed as usize], true) {
                    pending.push(*needed);
                }
            }
        }
        optional.retain(|operation| {
            let product = timeline.action(*operation as usize).produces();
            product.is_some_and(|product| is_required(&required, product))
        });
        optional
    }
}

impl Model for RegisterModel {
    type Action = Action;

    fn initial(&self) -> State {
        self.initial
    }

    #[inline]
    fn step(&mut self, state: State, action: Action) -> Option<State> {
        action.step(state)
    }

    #[inline]
    fn kind(&self, action: Action) -> Kind {
        match action {
            Action::Write(_) => Kind::Blind,
            Action::Read(_) | Action::Differs(_) => Kind::Pure,
            Action::CompareAndSet { expected, new } if expected == new => Kind::Pure,
            Action::CompareAndSet { .. } => Kind::General,
        }
    }

    #[inline]
    fn last_observed(&self, state: State) -> u32 {
        if self.last_observed.is_empty() {
            return NEVER;
        }
        // Never observed counts as observed at level 0, which is not after any level.
        let counted_from_1 = self.last_observed.get(state as usize).copied();
        counted_from_1.unwrap_or(0).saturating_sub(1)
    }

    fn destination(&self, action: Action) -> Option<(State, bool)> {
        let is_always_possible = matches!(action, Action::Write(_));
        Some((action.produces()?, is_always_possible))
    }

    fn unseen_useless_from(&self) -> u32 {
        self.claims_end
    }
}

/// Performs actions, by number, on states, by number.
pub(super) trait Transitions {
    /// The state afterwards.
    fn apply(&mut self, state: State, action: u32) -> Option<State>;
    /// As [`Model::last_observed`].
    fn last_observed(&self, state: State) -> u32;
    /// Bytes that the states occupy, approximately.
    fn memory_bytes(&self) -> u64;
    /// As [`Model::state_bytes`].
    fn state_bytes(&self) -> u64;
}

/// Any object whose actions are numbered: remembers every transition it has seen.
pub(super) struct Memo<'a> {
    kinds: Vec<Kind>,
    /// By state, then by action; for the first states only, where there are many.
    table: Vec<u32>,
    /// What is not in the table.
    known: FxHashMap<(State, u32), Option<State>>,
    transitions: &'a mut dyn Transitions,
}

/// Most entries of a table of transitions.
const TABLE_MAX_COUNT: usize = 1 << 18;

/// Not a state: the transition has not been seen, or is not possible.
const NOT_SEEN: u32 = u32::MAX - 1;
const NOT_POSSIBLE: u32 = u32::MAX - 2;

impl<'a> Memo<'a> {
    /// State 0 is where the object starts.
    pub(super) fn new(kinds: Vec<Kind>, transitions: &'a mut dyn Transitions) -> Self {
        Self {
            kinds,
            table: Vec::new(),
            known: FxHashMap::default(),
            transitions,
        }
    }

    fn step_unseen(&mut self, state: State, action: u32) -> Option<State> {
        let next = self.transitions.apply(state, action);
        let width = self.kinds.len();
        let place = state as usize * width + action as usize;
        if state != UNSEEN && place < TABLE_MAX_COUNT {
            if place >= self.table.len() {
                let end = (state as usize + 1) * width;
                self.table.resize(end.min(TABLE_MAX_COUNT), NOT_SEEN);
            }
            self.table[place] = next.unwrap_or(NOT_POSSIBLE);
        } else {
            self.known.insert((state, action), next);
        }
        next
    }
}

impl Model for Memo<'_> {
    type Action = u32;

    fn initial(&self) -> State {
        0
    }

    #[inline]
    fn step(&mut self, state: State, action: u32) -> Option<State> {
        let place = (state as usize)
            .wrapping_mul(self.kinds.len())
            .wrapping_add(action as usize);
        match self.table.get(place) {
            Some(&NOT_SEEN) => self.step_unseen(state, action),
            Some(&NOT_POSSIBLE) => None,
            Some(next) => Some(*next),
            None => match self.known.get(&(state, action)) {
                Some(next) => *next,
                None => self.step_unseen(state, action),
            },
        }
    }

    fn kind(&self, action: u32) -> Kind {
        self.kinds[action as usize]
    }

    fn last_observed(&self, state: State) -> u32 {
        self.transitions.last_observed(state)
    }

    fn memory_bytes(&self) -> u64 {
        let table = self.table.capacity() * size_of::<u32>();
        let entry_bytes = size_of::<((State, u32), Option<State>)>();
        let known = table_bytes(self.known.capacity(), entry_bytes);
        table as u64 + known + self.transitions.memory_bytes()
    }

    fn state_bytes(&self) -> u64 {
        self.transitions.state_bytes()
    }
}

/// The distinct actions of a timeline, and the timeline in their numbers.
pub(super) fn number_actions<A: Copy + Eq + std::hash::Hash>(
    timeline: &Timeline<A>,
) -> (Vec<A>, Timeline<u32>) {
    let mut actions: Vec<A> = Vec::new();
    let mut numbers: FxHashMap<A, u32> = FxHashMap::default();
    let numbered = timeline.map(|action| {
        *numbers.entry(action).or_insert_with(|| {
            actions.push(action);
            actions.len() as u32 - 1
        })
    });
    (actions, numbered)
}

/// States of a specification, numbered as they are reached.
pub(super) struct Interned<'a, S: Specification> {
    specification: &'a S,
    actions: Vec<S::Action>,
    states: Vec<S::State>,
    numbers: FxHashMap<S::State, State>,
    /// What the states own, in both places.
    owned_bytes: u64,
    /// The most that one state owns.
    largest_bytes: u64,
}

impl<'a, S: Specification> Interned<'a, S> {
    /// The state with a number.
    pub(super) fn whole(&self, state: State) -> Option<S::State> {
        self.states.get(state as usize).cloned()
    }

    pub(super) fn new(specification: &'a S, actions: Vec<S::Action>) -> Self {
        let initial = specification.initial();
        Self {
            specification,
            actions,
            states: vec![initial.clone()],
            numbers: std::iter::once((initial, 0)).collect(),
            owned_bytes: 0,
            largest_bytes: 0,
        }
    }
}

impl<S: Specification> Transitions for Interned<'_, S> {
    fn apply(&mut self, state: State, action: u32) -> Option<State> {
        let mut next = self.states[state as usize].clone();
        let action = self.actions[action as usize];
        if !self.specification.apply(&mut next, action) {
            return None;
        }
        if let Some(number) = self.numbers.get(&next) {
            return Some(*number);
        }
        let number = self.states.len() as State;
        let kept = next.clone();
        let owned_bytes = S::owned_bytes(&next) + S::owned_bytes(&kept) + 2 * ALLOCATION_BYTES;
        self.owned_bytes += owned_bytes as u64;
        self.largest_bytes = self.largest_bytes.max(owned_bytes as u64);
        self.states.push(kept);
        self.numbers.insert(next, number);
        Some(number)
    }

    fn last_observed(&self, _state: State) -> u32 {
        NEVER
    }

    fn memory_bytes(&self) -> u64 {
        let states = self.states.capacity() * size_of::<S::State>();
        let entry_bytes = size_of::<(S::State, State)>();
        let numbers = table_bytes(self.numbers.capacity(), entry_bytes);
        states as u64 + numbers + self.owned_bytes
    }

    fn state_bytes(&self) -> u64 {
        self.largest_bytes
    }
}
