//! Owns the reduction of a violation to the few operations that cause it, and the proof that they do.
//! Never removes an update that could matter: it only weakens claims, so that what is left still proves
//! the violation of the whole.

use std::time::{Duration, Instant};

use super::certificate::{is_too_expensive, try_every_order};
use super::level_order::Anchor;
use super::models::{Kind, Specification};
use super::object::{Object, search_interned};
use super::portfolio::{Engines, Searched, Settings};
use super::timeline::{Kept, NEVER, Timeline};
use super::{Limits, Outcome};

/// Configurations that one attempt may visit; an attempt that needs more counts as failed.
const ATTEMPT_LIMIT: u64 = 4_000;

/// The same for an attempt by prices, each of which needs several rounds.
const PRICED_ATTEMPT_LIMIT: u64 = 100_000;

/// How long all attempts by prices may take where there is a deadline at all. They explain few violations that
/// nothing else explains, and whoever hunts through many seeds waits for each.
const PRICED_TIME_LIMIT: Duration = Duration::from_millis(500);

/// Configurations to spend on the last certain state. Of a history that is harder than that, the last one so far will
/// do.
const ANCHOR_LIMIT: u64 = 100_000;

/// Configurations to spend on what was possible before the failing operation.
const STATES_LIMIT: u64 = 2_000;

/// Steps that the trial of all orders may take.
const TRIAL_BUDGET: u64 = 200_000;

/// Steps that the trial of all orders at a price may take.
const PRICED_TRIAL_BUDGET: u64 = 2_000_000;

/// Bytes that a trial of orders remembers with each state, approximately.
const TRIAL_ENTRY_BYTES: usize = 100;

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

    fn owned_bytes(state: &S::State) -> usize {
        S::owned_bytes(state)
    }
}

/// Explains why the history has no legal order although everything up to the completion of `failed`,
/// and without it, has one. Stops reducing at the deadline, with more operations than necessary; the memory is the
/// limit of each attempt, of which there is one at a time.
///
/// # Panics
///
/// If the core has a legal order after all, which would be an error of the search.
pub fn refute<O: Object>(
    object: &O,
    timeline: &Timeline<O::Action>,
    failed: u32,
    limits: &Limits<'_>,
) -> Refutation<O::State> {
    let deadline = limits.deadline;
    // What the prefix cuts off ends within it, or soon after: only what never ends has a price worth finding.
    let ways = By::ways(timeline.completed_count() < timeline.len());
    let allowed = Allowed::new(limits);
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
    let window = last_certain(object, &prefix, failed, limits)
        .and_then(|anchor| Window::new(object, &prefix, anchor, failed));
    let has_window = window.is_some();
    if let Some(window) = &window {
        refutation.possible_states = window.states_before_the_end(limits);
    }
    // Tried once: it says the same each time.
    let mut untried = window.as_ref();
    let mut is_explained = |refutation: &mut _| {
        let window = untried.take();
        window.is_some_and(|window| window.explain(refutation, ways, allowed))
    };
    if object.is_told_from_certainty() && is_explained(&mut refutation) {
        return refutation;
    }
    let is_refuted = |weaker: &Timeline<O::Action>, by: By| {
        let limits = by.limits(allowed);
        match by {
            By::Searches => {
                let outcome = object.decide(weaker, &limits);
                matches!(outcome, Outcome::NotLinearizable { .. })
            }
            By::Prices => is_none(&object.search(weaker, by.settings(&limits))),
        }
    };
    let is_short = prefix.len() <= WHOLE_MAX_COUNT || !has_window;
    let by = match is_short {
        true => ways.iter().find(|by| is_refuted(&prefix, **by)).copied(),
        false => None,
    };
    if by != Some(By::Searches) && is_explained(&mut refutation) {
        return refutation;
    }
    let set_whole = |refutation: &mut Refutation<O::State>, core: Vec<CoreOperation>| {
        let search = |alone: &Timeline<O::Action>| {
            let limits = By::Prices.limits(allowed);
            object.search(alone, By::Prices.settings(&limits))
        };
        refutation.is_proved = prove(object, &prefix, &core, (ways, allowed), search);
        refutation.core = core;
    };
    // What is told if nothing shorter is found.
    let mut long = None;
    if is_short {
        let core = match by {
            Some(by) => {
                let is_refuted = |weaker: &Timeline<O::Action>| is_refuted(weaker, by);
                reduce(object, &prefix, failed, is_refuted, deadline)
            }
            None => shown(object, &prefix, &as_it_is(&prefix)),
        };
        let hard_count = core.iter().filter(|one| !one.is_optional).count();
        if hard_count <= WHOLE_CORE_MAX_COUNT || !has_window {
            set_whole(&mut refutation, core);
        } else if by.is_some() {
            long = Some(core);
        }
    }
    if !refutation.is_proved {
        is_explained(&mut refutation);
    }
    if let Some(core) = long.filter(|_| refutation.core.is_empty()) {
        set_whole(&mut refutation, core);
    }
    refutation
}

/// What a violation is explained with.
#[derive(Debug, Clone, Copy)]
struct Allowed<'a> {
    limits: &'a Limits<'a>,
    /// The deadline of all attempts by prices.
    deadline_of_prices: Option<Instant>,
}

impl<'a> Allowed<'a> {
    fn new(limits: &'a Limits<'a>) -> Self {
        let soon = Instant::now().checked_add(PRICED_TIME_LIMIT);
        let of_prices = |of_all| soon.map_or(of_all, |soon| soon.min(of_all));
        Self {
            limits,
            deadline_of_prices: limits.deadline.map(of_prices),
        }
    }

    /// Steps that a trial of orders may take: each may keep two states, which may have room to grow. None is expected to
    /// own more than those along the history, if everything in it that is possible where it stands is done there.
    fn trial_budget<S: Specification>(
        &self,
        specification: &S,
        timeline: &Timeline<S::Action>,
        most: u64,
    ) -> u64 {
        let mut state = specification.initial();
        let mut owned_bytes = S::owned_bytes(&state);
        for action in timeline.actions() {
            specification.apply(&mut state, *action);
            owned_bytes = owned_bytes.max(S::owned_bytes(&state));
        }
        let state_bytes = size_of::<S::State>() + owned_bytes + TRIAL_ENTRY_BYTES;
        most.min(self.limits.memory_bytes / (4 * state_bytes as u64))
    }
}

/// How it is found out whether what is left is still contradictory.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum By {
    /// By the two searches, in turns.
    Searches,
    /// By prices of operations of unknown outcome, where those make it too hard for the others.
    Prices,
}

impl By {
    /// Those that may tell something. Where every operation has an outcome, nothing has a price.
    fn ways(has_unknown: bool) -> &'static [Self] {
        match has_unknown {
            true => &[Self::Searches, Self::Prices],
            false => &[Self::Searches],
        }
    }

    /// What an attempt may cost.
    fn limits<'a>(self, allowed: Allowed<'a>) -> Limits<'a> {
        Limits {
            deadline: match self {
                Self::Searches => allowed.limits.deadline,
                Self::Prices => allowed.deadline_of_prices,
            },
            configuration_count: match self {
                Self::Searches => ATTEMPT_LIMIT,
                Self::Prices => PRICED_ATTEMPT_LIMIT,
            },
            ..*allowed.limits
        }
    }

    fn settings<'a>(self, limits: &'a Limits<'a>) -> Settings<'a> {
        let engines = match self {
            Self::Searches => Engines::Both,
            Self::Prices => Engines::Priced,
        };
        Settings {
            engines,
            ..Settings::new(limits)
        }
    }
}

fn is_none<S>(searched: &Searched<S>) -> bool {
    matches!(searched, Searched::None { .. })
}

/// The last certain state of a history that fails at its end.
fn last_certain<O: Object>(
    object: &O,
    prefix: &Timeline<O::Action>,
    failed: u32,
    limits: &Limits<'_>,
) -> Option<Anchor<O::State>> {
    let limits = Limits {
        configuration_count: ANCHOR_LIMIT.max(20 * prefix.len() as u64),
        ..*limits
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
        Searched::Unknown { anchor, .. } => anchor,
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
    fn states_before_the_end(&self, limits: &Limits<'_>) -> Option<Vec<O::State>> {
        let limits = Limits {
            configuration_count: STATES_LIMIT,
            ..*limits
        };
        let settings = Settings {
            engines: Engines::Anchored,
            wants_states: true,
            ..Settings::new(&limits)
        };
        match self.search(&self.timeline, settings) {
            Searched::None { failed, states, .. } if failed == self.failed => Some(states),
            _ => None,
        }
    }

    /// Reduces the window to what contradicts the certain state. False, and nothing is changed, if that
    /// is no better than what is known.
    fn explain(
        &self,
        refutation: &mut Refutation<O::State>,
        ways: &[By],
        allowed: Allowed<'_>,
    ) -> bool {
        let search = |weaker: &Timeline<O::Action>, by: By| {
            let limits = by.limits(allowed);
            self.search(weaker, by.settings(&limits))
        };
        let mut tried = ways.iter();
        let Some(by) = tried.find(|by| is_none(&search(&self.timeline, **by))) else {
            return false;
        };
        let object = self.started.specification;
        let is_refuted = |weaker: &Timeline<O::Action>| is_none(&search(weaker, *by));
        let core = reduce(
            object,
            &self.timeline,
            self.failed,
            is_refuted,
            allowed.limits.deadline,
        );
        let is_proved = prove(
            &self.started,
            &self.timeline,
            &core,
            (ways, allowed),
            |alone| search(alone, By::Prices),
        );
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
    let mut kept = as_it_is(timeline);
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

/// Every operation as the history has it.
fn as_it_is<A: Copy>(timeline: &Timeline<A>) -> Vec<Kept> {
    let intervals = timeline.intervals().into_iter();
    let kept = intervals.map(|(_, completed)| match completed {
        NEVER => Kept::AsUnknown,
        _ => Kept::AsItIs,
    });
    kept.collect()
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

/// Whether every order of the core was tried in vain; if those are too many, at the prices that `search` finds, where
/// these are among the ways.
fn prove<S: Specification>(
    started: &S,
    timeline: &Timeline<S::Action>,
    core: &[CoreOperation],
    (ways, allowed): (&[By], Allowed<'_>),
    search: impl Fn(&Timeline<S::Action>) -> Searched<S::State>,
) -> bool {
    let (alone, _) = timeline.weaken(|place| {
        match core.binary_search_by_key(&(place as u32), |one| one.operation) {
            Ok(found) if core[found].is_optional => Kept::AsUnknown,
            Ok(_) => Kept::AsItIs,
            Err(_) => Kept::No,
        }
    });
    let budget = |most| allowed.trial_budget(started, &alone, most);
    match try_every_order(started, &alone, budget(TRIAL_BUDGET)) {
        Some(true) => panic!("the operations that should contradict each other have a legal order"),
        Some(false) => return true,
        None if !ways.contains(&By::Prices) => return false,
        None => {}
    }
    match search(&alone) {
        Searched::None { charges, .. } => {
            let budget = budget(PRICED_TRIAL_BUDGET);
            is_too_expensive(started, &alone, &charges, budget) == Some(true)
        }
        _ => false,
    }
}

#[cfg(test)]
mod tests {
    use super::super::models::register::{Action, Register};
    use super::*;

    /// Every change between four values may have happened once by a write, and once by a compare-and-set of unknown
    /// outcome. Somebody reads values one after the other.
    fn visits(values: &[u32]) -> Timeline<Action> {
        let mut timeline = Timeline::new();
        for new in 0..4 {
            timeline.invoke(Action::Write(new));
            for expected in (0..4).filter(|expected| *expected != new) {
                timeline.invoke(Action::CompareAndSet { expected, new });
            }
        }
        for value in values {
            let read = timeline.invoke(Action::Read(*value));
            timeline.complete(read);
        }
        timeline
    }

    #[test]
    fn what_prices_refute_is_reduced_and_checked_at_these_prices() {
        // Four uses lead to 1 at most; the other values come less often.
        let others = [0, 2, 3, 0, 2];
        let values: Vec<u32> = others
            .iter()
            .flat_map(|other| [1, 1, *other, *other])
            .collect();
        let timeline = visits(&values);
        let failed = 16 + 4 * 4;
        let register = Register { initial: 0 };
        let limits = Limits::default();
        let allowed = Allowed::new(&limits);
        let limits = By::Prices.limits(allowed);
        let search =
            |weaker: &Timeline<Action>| register.search(weaker, By::Prices.settings(&limits));
        let is_refuted = |weaker: &Timeline<Action>| is_none(&search(weaker));
        assert!(is_refuted(&timeline));
        let core = reduce(&register, &timeline, failed, is_refuted, None);
        let claims = core.iter().filter(|one| !one.is_optional);
        let claims: Vec<u32> = claims.map(|one| one.operation).collect();
        // Five times 1, and something else between any two.
        assert_eq!(claims.len(), 9, "{claims:?}");
        assert!(claims.contains(&failed));
        assert!(prove(
            &register,
            &timeline,
            &core,
            (By::ways(true), allowed),
            search
        ));
        let Searched::None { charges, .. } = search(&timeline) else {
            panic!("it was refuted before");
        };
        assert_eq!(
            is_too_expensive(&register, &timeline, &charges, 1_000_000),
            Some(true)
        );
    }
}
