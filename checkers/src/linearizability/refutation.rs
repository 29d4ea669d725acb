//! Owns the reduction of a violation to the few operations that cause it, and the proof that they do.
//! Never removes an update that could matter: it only weakens claims, so that what is left still proves
//! the violation of the whole.

use std::time::Instant;

use super::certificate::try_every_order;
use super::level_order::Anchor;
use super::models::{Kind, Specification};
use super::object::{Object, search_interned};
use super::portfolio::{Engines, Searched, Settings};
use super::timeline::{Kept, NEVER, Timeline};
use super::{Limits, Outcome};

/// Configurations that one attempt may visit; an attempt that needs more counts as failed.
const ATTEMPT_LIMIT: u64 = 4_000;

/// Configurations to spend on what was possible before the failing operation.
const STATES_LIMIT: u64 = 2_000;

/// Steps that the trial of all orders may take.
const TRIAL_BUDGET: u64 = 200_000;

/// Longest history that is reduced from its beginning, not from the last point where the state was
/// certain.
const WHOLE_MAX_COUNT: usize = 5_000;

/// Most operations that are shown as the cause without going on from the last certain state.
const WHOLE_CORE_MAX_COUNT: usize = 12;

/// Why a history is not linearizable. Operations are numbered in the order of their invocations.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Refutation<S> {
    /// The operation whose completion ends the shortest prefix that has no legal order.
    pub failed: u32,
    /// States there may have been right before that completion; `None` if there were too many to tell.
    pub possible_states: Option<Vec<S>>,
    /// Where the core begins, if not at the beginning of the history.
    pub certain: Option<Certain<S>>,
    /// Operations that together have no legal order, ascending.
    pub core: Vec<CoreOperation>,
    /// Whether every order of the core was tried, by a program that shares nothing with the search.
    pub is_proved: bool,
}

/// A moment at which only one state was possible.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Certain<S> {
    /// The state.
    pub state: S,
    /// The operation whose completion came right before.
    pub after: Option<u32>,
}

/// An operation of a core.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct CoreOperation {
    /// Its number.
    pub operation: u32,
    /// The contradiction needs only that it may have taken effect at some time, or never.
    pub is_optional: bool,
}

/// A specification that starts in another state.
struct Started<'a, S: Specification> {
    specification: &'a S,
    state: S::State,
}

impl<S: Specification> Specification for Started<'_, S> {
    type State = S::State;
    type Action = S::Action;

    fn initial(&self) -> S::State {
        self.state.clone()
    }

    fn apply(&self, state: &mut S::State, action: S::Action) -> bool {
        self.specification.apply(state, action)
    }

    fn kind(&self, action: S::Action) -> Kind {
        self.specification.kind(action)
    }
}

/// Explains why the history has no legal order although everything up to the completion of `failed`,
/// and without it, has one. Stops reducing at `deadline`, with more operations than necessary.
///
/// # Panics
///
/// If the core has a legal order after all, which would be an error of the search.
pub fn refute<O: Object>(
    object: &O,
    timeline: &Timeline<O::Action>,
    failed: u32,
    deadline: Option<Instant>,
) -> Refutation<O::State> {
    let end = timeline
        .events()
        .iter()
        .position(|event| event.is_completion() && event.operation() == failed as usize);
    let prefix = timeline.prefix(end.map_or(timeline.events().len(), |end| end + 1));
    let mut refutation = Refutation {
        failed,
        possible_states: None,
        certain: None,
        core: Vec::new(),
        is_proved: false,
    };
    let window = last_certain(object, &prefix, failed, deadline)
        .and_then(|anchor| Window::new(object, &prefix, anchor, failed));
    if let Some(window) = &window {
        refutation.possible_states = window.states_before_the_end(deadline);
        if object.is_told_from_certainty() && window.explain(&mut refutation, deadline) {
            return refutation;
        }
    }
    if prefix.len() <= WHOLE_MAX_COUNT || window.is_none() {
        let is_refuted = |weaker: &Timeline<O::Action>| {
            let limits = attempt(deadline);
            matches!(
                object.decide(weaker, &limits),
                Outcome::NotLinearizable { .. }
            )
        };
        let core = reduce(object, &prefix, failed, is_refuted, deadline);
        let hard_count = core.iter().filter(|one| !one.is_optional).count();
        if hard_count <= WHOLE_CORE_MAX_COUNT || window.is_none() {
            refutation.is_proved = prove(object, &prefix, &core);
            refutation.core = core;
        }
    }
    if !refutation.is_proved
        && let Some(window) = &window
    {
        window.explain(&mut refutation, deadline);
    }
    refutation
}

/// What an attempt may cost.
fn attempt<'a>(deadline: Option<Instant>) -> Limits<'a> {
    Limits {
        deadline,
        configuration_count: ATTEMPT_LIMIT,
        ..Limits::default()
    }
}

/// The last certain state of a history that fails at its end.
fn last_certain<O: Object>(
    object: &O,
    prefix: &Timeline<O::Action>,
    failed: u32,
    deadline: Option<Instant>,
) -> Option<Anchor<O::State>> {
    let limits = Limits {
        deadline,
        ..Limits::default()
    };
    let settings = Settings {
        engines: Engines::Anchored,
        ..Settings::new(&limits)
    };
    match object.search(prefix, settings) {
        Searched::None {
            failed: found,
            anchor,
            ..
        } => {
            // Of a hard history the first failing operation may not be known.
            anchor.filter(|_| found == failed)
        }
        _ => None,
    }
}

/// What happened after the last certain state.
struct Window<'a, O: Object> {
    started: Started<'a, O>,
    timeline: Timeline<O::Action>,
    /// By operation of the window: its number in the whole.
    numbers: Vec<usize>,
    failed: u32,
    /// The operation whose completion came right before.
    after: Option<u32>,
}

impl<'a, O: Object> Window<'a, O> {
    /// `None` if the operation that fails is not in it, which cannot be.
    fn new(
        object: &'a O,
        prefix: &Timeline<O::Action>,
        anchor: Anchor<O::State>,
        failed: u32,
    ) -> Option<Self> {
        let mut level = 0;
        let mut start = 0;
        let mut after = None;
        for (position, event) in prefix.events().iter().enumerate() {
            if level == anchor.level {
                break;
            }
            if event.is_completion() {
                level += 1;
                start = position + 1;
                after = Some(event.operation() as u32);
            }
        }
        let intervals = prefix.intervals();
        let useful = object.useful(prefix);
        let (timeline, numbers) = prefix.weaken(|operation| {
            let (invoked, completed) = intervals[operation];
            let number = operation as u32;
            if completed == NEVER {
                let is_usable = useful.binary_search(&number).is_ok();
                return match is_usable && !anchor.used.contains(&number) {
                    true => Kept::AsUnknown,
                    false => Kept::No,
                };
            }
            if invoked as usize >= start {
                return Kept::AsItIs;
            }
            if !anchor.open.contains(&number) {
                return Kept::No;
            }
            match object.kind(prefix.action(operation)) {
                // It may have been hidden by another one already.
                Kind::Blind => Kept::AsUnknown,
                _ => Kept::AsItIs,
            }
        });
        let failed = numbers
            .iter()
            .position(|number| *number == failed as usize)?;
        Some(Self {
            started: Started {
                specification: object,
                state: anchor.state,
            },
            timeline,
            numbers,
            failed: failed as u32,
            after,
        })
    }

    fn search(&self, timeline: &Timeline<O::Action>, settings: Settings<'_>) -> Searched<O::State> {
        let optional = self.started.specification.useful(timeline);
        search_interned(&self.started, timeline, &optional, settings)
    }

    /// States right before the completion that fails.
    fn states_before_the_end(&self, deadline: Option<Instant>) -> Option<Vec<O::State>> {
        let limits = Limits {
            deadline,
            configuration_count: STATES_LIMIT,
            ..Limits::default()
        };
        let settings = Settings {
            engines: Engines::Anchored,
            ..Settings::new(&limits)
        };
        match self.search(&self.timeline, settings) {
            Searched::None { failed, states, .. } if failed == self.failed => Some(states),
            _ => None,
        }
    }

    /// Reduces the window to what contradicts the certain state. False, and nothing is changed, if that
    /// is no better than what is known.
    fn explain(&self, refutation: &mut Refutation<O::State>, deadline: Option<Instant>) -> bool {
        let is_refuted = |weaker: &Timeline<O::Action>| {
            let limits = attempt(deadline);
            let searched = self.search(weaker, Settings::new(&limits));
            matches!(searched, Searched::None { .. })
        };
        if !is_refuted(&self.timeline) {
            return false;
        }
        let object = self.started.specification;
        let core = reduce(object, &self.timeline, self.failed, is_refuted, deadline);
        let is_proved = prove(&self.started, &self.timeline, &core);
        if !refutation.core.is_empty() && !is_proved {
            return false;
        }
        refutation.is_proved = is_proved;
        refutation.core = core
            .into_iter()
            .map(|one| CoreOperation {
                operation: self.numbers[one.operation as usize] as u32,
                ..one
            })
            .collect();
        refutation.certain = Some(Certain {
            state: self.started.state.clone(),
            after: self.after,
        });
        is_proved
    }
}

/// Drops claims for as long as the rest stays contradictory: a pure operation is left out, a completed
/// update becomes one of unknown outcome.
fn reduce<O: Object>(
    object: &O,
    timeline: &Timeline<O::Action>,
    failed: u32,
    mut is_refuted: impl FnMut(&Timeline<O::Action>) -> bool,
    deadline: Option<Instant>,
) -> Vec<CoreOperation> {
    let intervals = timeline.intervals();
    let mut kept: Vec<Kept> = intervals
        .iter()
        .map(|(_, completed)| match completed {
            &NEVER => Kept::AsUnknown,
            _ => Kept::AsItIs,
        })
        .collect();
    let is_pure = |place: usize| object.kind(timeline.action(place)) == Kind::Pure;
    let mut claims: Vec<usize> = (0..timeline.len())
        .filter(|place| kept[*place] == Kept::AsItIs && *place != failed as usize)
        .collect();
    // Pure operations go first: an update explains more than a read that merely confirms it. Of each
    // kind the latest go last, as the contradiction is at the end.
    claims.sort_by_key(|place| !is_pure(*place));
    let mut chunk = claims.len().div_ceil(2).max(1);
    while !claims.is_empty() {
        let mut start = 0;
        while start < claims.len() {
            if deadline.is_some_and(|deadline| Instant::now() >= deadline) {
                return shown(object, timeline, &kept);
            }
            let tried = start..(start + chunk).min(claims.len());
            let mut weaker = kept.clone();
            for place in &claims[tried.clone()] {
                weaker[*place] = if is_pure(*place) {
                    Kept::No
                } else {
                    Kept::AsUnknown
                };
            }
            if is_refuted(&timeline.weaken(|place| weaker[place]).0) {
                kept = weaker;
                claims.drain(tried);
            } else {
                start = tried.end;
            }
        }
        if chunk == 1 {
            break;
        }
        chunk = chunk.div_ceil(2);
    }
    shown(object, timeline, &kept)
}

/// What still makes a claim, and operations of unknown outcome that could have satisfied one.
fn shown<O: Object>(
    object: &O,
    timeline: &Timeline<O::Action>,
    kept: &[Kept],
) -> Vec<CoreOperation> {
    let (weaker, numbers) = timeline.weaken(|place| kept[place]);
    let useful = object.useful(&weaker);
    let intervals = weaker.intervals();
    (0..weaker.len())
        .filter(|place| {
            intervals[*place].1 != NEVER || useful.binary_search(&(*place as u32)).is_ok()
        })
        .map(|place| CoreOperation {
            operation: numbers[place] as u32,
            is_optional: intervals[place].1 == NEVER,
        })
        .collect()
}

/// Whether every order of the core was tried in vain.
fn prove<S: Specification>(
    started: &S,
    timeline: &Timeline<S::Action>,
    core: &[CoreOperation],
) -> bool {
    let (alone, _) = timeline.weaken(|place| {
        match core.binary_search_by_key(&(place as u32), |one| one.operation) {
            Ok(found) if core[found].is_optional => Kept::AsUnknown,
            Ok(_) => Kept::AsItIs,
            Err(_) => Kept::No,
        }
    });
    match try_every_order(started, &alone, TRIAL_BUDGET) {
        Some(true) => panic!("the operations that should contradict each other have a legal order"),
        Some(false) => true,
        None => false,
    }
}
