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
const ATTEMPT_LIMIT: u64 = 20_000;

/// Configurations to spend on what was possible before the failing operation.
const STATES_LIMIT: u64 = 100_000;

/// Steps that the trial of all orders may take.
const TRIAL_BUDGET: u64 = 2_000_000;

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
    let BeforeTheEnd {
        possible_states,
        anchor,
    } = before_the_end(object, &prefix, failed, deadline);
    let mut refutation = Refutation {
        failed,
        possible_states,
        certain: None,
        core: Vec::new(),
        is_proved: false,
    };
    if prefix.len() <= WHOLE_MAX_COUNT || anchor.is_none() {
        let settings = attempt(deadline);
        let is_refuted = |weaker: &Timeline<O::Action>| {
            let limits = settings();
            matches!(
                object.decide(weaker, &limits),
                Outcome::NotLinearizable { .. }
            )
        };
        let core = reduce(object, &prefix, failed, is_refuted, deadline);
        let hard_count = core.iter().filter(|one| !one.is_optional).count();
        if hard_count <= WHOLE_CORE_MAX_COUNT || anchor.is_none() {
            refutation.is_proved = prove(object, &prefix, &core);
            refutation.core = core;
            if refutation.is_proved || anchor.is_none() {
                return refutation;
            }
        }
    }
    let Some(anchor) = anchor else {
        return refutation;
    };
    from_certainty(object, &prefix, anchor, deadline, &mut refutation);
    refutation
}

/// What an attempt may cost.
fn attempt<'a>(deadline: Option<Instant>) -> impl Fn() -> Limits<'a> {
    move || Limits {
        deadline,
        configuration_count: ATTEMPT_LIMIT,
        ..Limits::default()
    }
}

struct BeforeTheEnd<S> {
    possible_states: Option<Vec<S>>,
    anchor: Option<Anchor<S>>,
}

/// States right before the end of a history that fails there, and the last certain one.
fn before_the_end<O: Object>(
    object: &O,
    prefix: &Timeline<O::Action>,
    failed: u32,
    deadline: Option<Instant>,
) -> BeforeTheEnd<O::State> {
    let limits = Limits {
        deadline,
        configuration_count: STATES_LIMIT.max(8 * prefix.len() as u64),
        ..Limits::default()
    };
    let mut settings = Settings {
        engines: Engines::Anchored,
        forgets: false,
        ..Settings::new(&limits)
    };
    let mut searched = object.search(prefix, settings);
    let is_complete = matches!(searched, Searched::None { .. });
    if !is_complete {
        settings.forgets = true;
        searched = object.search(prefix, settings);
    }
    match searched {
        Searched::None {
            failed: found,
            states,
            anchor,
        } => {
            assert_eq!(found, failed, "both searches fail at the same operation");
            BeforeTheEnd {
                possible_states: is_complete.then_some(states),
                anchor,
            }
        }
        _ => BeforeTheEnd {
            possible_states: None,
            anchor: None,
        },
    }
}

/// Reduces what comes after the last certain state.
fn from_certainty<O: Object>(
    object: &O,
    prefix: &Timeline<O::Action>,
    anchor: Anchor<O::State>,
    deadline: Option<Instant>,
    refutation: &mut Refutation<O::State>,
) {
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
    let (window, numbers) = prefix.weaken(|operation| {
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
    let started = Started {
        specification: object,
        state: anchor.state.clone(),
    };
    let settings = attempt(deadline);
    let is_refuted = |weaker: &Timeline<O::Action>| {
        let limits = settings();
        let optional = object.useful(weaker);
        let searched = search_interned(&started, weaker, &optional, Settings::new(&limits));
        matches!(searched, Searched::None { .. })
    };
    let Some(failed) = numbers
        .iter()
        .position(|number| *number as u32 == refutation.failed)
    else {
        return;
    };
    if !is_refuted(&window) {
        return;
    }
    let core = reduce(object, &window, failed as u32, is_refuted, deadline);
    let is_proved = prove(&started, &window, &core);
    if !refutation.core.is_empty() && !is_proved {
        return;
    }
    refutation.is_proved = is_proved;
    refutation.core = core
        .into_iter()
        .map(|one| CoreOperation {
            operation: numbers[one.operation as usize] as u32,
            ..one
        })
        .collect();
    refutation.certain = Some(Certain {
        state: anchor.state,
        after,
    });
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
