//! Owns the competition of the two orders of search, their budgets, and what they have in common.
//! Never lets one of them run alone for long: each is hopeless where the other one is fast.

use std::collections::BTreeSet;
use std::time::Instant;

use super::certificate::Charge;
use super::compiled::{Model, State};
use super::configuration::{Configuration, Ground, Mistake, Move, Step};
use super::depth_first::DepthFirst;
use super::level_order::{Anchor, LevelOrder};
use super::levels::Levels;
use super::priced;
use super::timeline::Timeline;
use super::{Ended, Limit, Limits};

/// How far a search got: the deepest level, and the states seen there.
#[derive(Debug, Default)]
pub(super) struct Deepest {
    pub(super) level: u32,
    pub(super) states: BTreeSet<State>,
}

impl Deepest {
    #[inline]
    pub(super) fn visit(&mut self, level: u32, state: State) {
        if level > self.level {
            self.level = level;
            self.states.clear();
        }
        if level == self.level {
            self.states.insert(state);
        }
    }
}

/// What searching a compiled object came to; `S` is a state.
#[derive(Debug)]
pub enum Searched<S = State> {
    /// An order.
    Order(Vec<u32>),
    /// There is none.
    None {
        /// The operation whose completion ends the shortest prefix without one.
        failed: u32,
        /// States there may have been right before that completion, if they were wanted.
        states: Vec<S>,
        /// The last configuration before it that was the only one, if that was wanted.
        anchor: Option<Anchor<S>>,
        /// The prices at which the cheapest order is too expensive, where that is the reason.
        charges: Vec<Charge>,
    },
    /// A limit was reached.
    Unknown {
        /// Which one.
        limit: Limit,
        /// Completions that the search got past.
        level: u32,
        /// Configurations visited.
        visited_count: u64,
        /// The last configuration that was the only one, if that was wanted.
        anchor: Option<Anchor<S>>,
    },
}

impl Searched {
    /// The same with whole states instead of numbers; those that nothing can observe are left out.
    pub(super) fn whole<S>(self, whole: impl Fn(State) -> Option<S>) -> Searched<S> {
        let certain = |anchor: Option<Anchor>| {
            let anchor = anchor?;
            Some(Anchor {
                level: anchor.level,
                state: whole(anchor.state)?,
                open: anchor.open,
                used: anchor.used,
            })
        };
        match self {
            Self::Order(order) => Searched::Order(order),
            Self::None {
                failed,
                states,
                anchor,
                charges,
            } => Searched::None {
                failed,
                states: states.into_iter().filter_map(&whole).collect(),
                anchor: certain(anchor),
                charges,
            },
            Self::Unknown {
                limit,
                level,
                visited_count,
                anchor,
            } => Searched::Unknown {
                limit,
                level,
                visited_count,
                anchor: certain(anchor),
            },
        }
    }
}

/// Which orders of search to use.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Engines {
    /// Both, in turns.
    Both,
    /// Depth first alone.
    DepthFirst,
    /// Level by level alone; keeps the last anchor, but no order.
    Anchored,
    /// Level by level alone.
    LevelOrder,
    /// By prices of operations of unknown outcome alone; may leave a history undecided, and the failing
    /// operation is not necessarily the first.
    Priced,
}

/// Settings of one search.
#[derive(Debug, Clone, Copy)]
pub struct Settings<'a> {
    /// What it may cost.
    pub limits: &'a Limits<'a>,
    /// Who searches.
    pub engines: Engines,
    /// What it does wrong, for tests.
    pub mistake: Mistake,
    /// Whether states that nothing can observe are one state.
    pub forgets: bool,
    /// Whether it is told in which states the object may have been where the search failed. Only the anchored
    /// search tells.
    pub wants_states: bool,
}

impl<'a> Settings<'a> {
    /// Both engines, without mistakes.
    pub(super) fn new(limits: &'a Limits<'a>) -> Self {
        Self {
            limits,
            engines: Engines::Both,
            mistake: Mistake::None,
            forgets: true,
            wants_states: false,
        }
    }
}

/// Searches; of the operations of unknown outcome only those in `optional` matter.
pub(super) fn search<M: Model>(
    timeline: &Timeline<M::Action>,
    optional: &[u32],
    model: &mut M,
    settings: Settings<'_>,
) -> Searched {
    let too_wide = Searched::Unknown {
        limit: Limit::Width,
        level: 0,
        visited_count: 0,
        anchor: None,
    };
    let Some(levels) = Levels::new(timeline, optional) else {
        return too_wide;
    };
    if levels.count() == 0 {
        return Searched::Order(Vec::new());
    }
    match (levels.open_width(), levels.optional_width()) {
        (0..=64, 0..=64) => compete::<M, 1, 1>(&levels, model, settings),
        (0..=64, 65..=512) => compete::<M, 1, 8>(&levels, model, settings),
        (0..=256, 0..=256) => compete::<M, 4, 4>(&levels, model, settings),
        (0..=4096, 0..=4096) => compete::<M, 64, 64>(&levels, model, settings),
        _ => too_wide,
    }
}

impl Engines {
    fn search_depth_first(self) -> bool {
        matches!(self, Self::Both | Self::DepthFirst)
    }
}

/// Whose turn it is.
#[derive(Clone, Copy)]
enum Turn {
    DepthFirst,
    LevelOrder,
}

/// Most configurations between two looks at the limits.
const LOOK_EVERY: u64 = 1 << 14;

/// Fewest, however large they are: each look takes a while, too.
const LOOK_EVERY_MIN: u64 = 1 << 6;

/// Part of the memory that may be taken between two looks.
const LOOK_PART: u64 = 32;

/// How many configurations may be visited before the next look at the limits. Each may come with a state that was not
/// there before.
pub(super) fn look_every<M: Model, const W: usize, const C: usize>(
    model: &M,
    limits: &Limits<'_>,
) -> u64 {
    let bytes = size_of::<Configuration<W, C>>() as u64 + model.state_bytes();
    (limits.memory_bytes / LOOK_PART / bytes).clamp(LOOK_EVERY_MIN, LOOK_EVERY)
}

fn compete<M: Model, const W: usize, const C: usize>(
    levels: &Levels<'_, M::Action>,
    model: &mut M,
    settings: Settings<'_>,
) -> Searched {
    let Settings {
        limits,
        engines,
        mistake,
        ..
    } = settings;
    if engines == Engines::Priced {
        return priced::search::<M, W, C>(levels, model, settings);
    }
    let mut depth_first = DepthFirst::<M, W, C>::new(levels, model, mistake);
    let mut level_order = LevelOrder::<M, W, C>::new(levels, model, settings);
    // On an easy history the first search needs about one configuration per completion.
    let mut round = levels.count() as u64 + levels.count() as u64 / 4 + 32;
    let mut spent = 0;
    loop {
        for turn in [Turn::DepthFirst, Turn::LevelOrder] {
            let mut left = round;
            while left > 0 {
                let allowance = left.min(look_every::<M, W, C>(model, limits));
                left -= allowance;
                let concluded = match turn {
                    Turn::DepthFirst if engines.search_depth_first() => {
                        depth_first.run(model, allowance).map(|ended| {
                            let level = depth_first.deepest_level();
                            let deepest = Deepest {
                                level,
                                ..Deepest::default()
                            };
                            conclude(levels, ended, &deepest, None)
                        })
                    }
                    Turn::LevelOrder if engines != Engines::DepthFirst => {
                        level_order.run(model, allowance).map(|ended| {
                            let anchor = level_order.anchor(model);
                            conclude(levels, ended, level_order.deepest(), anchor)
                        })
                    }
                    _ => None,
                };
                if let Some(searched) = concluded {
                    return searched;
                }
                spent += allowance;
                let searches = depth_first.memory_bytes() + level_order.memory_bytes();
                let memory = searches + model.memory_bytes() + levels.memory_bytes();
                if let Some(limit) = exceeded(limits, spent, memory) {
                    let level = depth_first.deepest_level().max(level_order.deepest().level);
                    return Searched::Unknown {
                        limit,
                        level,
                        visited_count: spent,
                        anchor: level_order.anchor(model),
                    };
                }
            }
        }
        round *= 2;
    }
}

pub(super) fn exceeded(limits: &Limits<'_>, spent: u64, memory_bytes: u64) -> Option<Limit> {
    if spent >= limits.configuration_count {
        Some(Limit::Configurations)
    } else if limits.deadline.is_some_and(|end| Instant::now() >= end) {
        Some(Limit::Time)
    } else if memory_bytes > limits.memory_bytes {
        Some(Limit::Memory)
    } else if limits.is_cancelled() {
        Some(Limit::Cancelled)
    } else {
        None
    }
}

fn conclude<A: Copy>(
    levels: &Levels<'_, A>,
    ended: Ended,
    deepest: &Deepest,
    anchor: Option<Anchor>,
) -> Searched {
    match ended {
        Ended::Found(order) => Searched::Order(order),
        Ended::Exhausted => Searched::None {
            failed: levels.deadline(deepest.level as usize) as u32,
            states: deepest.states.iter().copied().collect(),
            anchor,
            charges: Vec::new(),
        },
    }
}

/// The operations along a path of moves, found by walking it again.
pub(super) fn order_along<M: Model, const W: usize, const C: usize>(
    levels: &Levels<'_, M::Action>,
    model: &mut M,
    moves: impl Iterator<Item = Move>,
    mistake: Mistake,
) -> Vec<u32> {
    let mut steps = Vec::with_capacity(levels.timeline.len());
    let mut ground = Ground::<M, W>::new(levels, model, mistake);
    let mut walker = ground.walker::<C>(model);
    let sink = &mut |step| steps.push(step);
    let mut configuration = walker.root(sink);
    walker.advance(&mut configuration, sink);
    for by in moves {
        if configuration.level as usize == levels.count() {
            break;
        }
        if by == Move::Complete {
            walker.complete(&mut configuration, sink);
        } else {
            let next = walker.after(&configuration, by, sink);
            configuration = next.expect("every move on the path was legal when it was first made");
        }
        walker.advance(&mut configuration, sink);
    }
    order_of(&steps, levels.timeline.len())
}

/// Turns steps into an order: an absorbed operation stands where it was absorbed, unless it was taken
/// later.
pub(super) fn order_of(steps: &[Step], operation_count: usize) -> Vec<u32> {
    let mut is_taken = vec![false; operation_count];
    for step in steps {
        if let Step::Take(operation) = step {
            is_taken[*operation as usize] = true;
        }
    }
    steps
        .iter()
        .filter_map(|step| match step {
            Step::Take(operation) => Some(*operation),
            Step::Absorb(operation) => (!is_taken[*operation as usize]).then_some(*operation),
        })
        .collect()
}

#[cfg(test)]
mod tests {
    use std::collections::VecDeque;

    use super::super::Object;
    use super::super::compiled::{Interned, Memo, number_actions};
    use super::super::models::queue::{Queue, QueueAction};
    use super::super::models::{Kind, Specification};
    use super::*;

    const LIMIT_BYTES: u64 = 1 << 20;

    /// Elements that may have been added many times, in orders that only an impossible answer at the end tells apart.
    fn long_queues() -> Timeline<QueueAction> {
        let mut timeline = Timeline::new();
        for number in 0..600 {
            timeline.invoke(QueueAction::Enqueue(number % 7));
        }
        for number in 0..200 {
            let taken = timeline.invoke(QueueAction::Dequeue((number * number + number / 3) % 7));
            timeline.complete(taken);
        }
        let taken = timeline.invoke(QueueAction::Dequeue(7));
        timeline.complete(taken);
        timeline
    }

    fn limits() -> Limits<'static> {
        Limits {
            memory_bytes: LIMIT_BYTES,
            ..Limits::default()
        }
    }

    fn is_over_memory(searched: &Searched) -> bool {
        matches!(
            searched,
            Searched::Unknown {
                limit: Limit::Memory,
                ..
            }
        )
    }

    /// Searches, and returns what was counted for states, and what those really own.
    fn search_counted(timeline: &Timeline<QueueAction>, engines: Engines) -> (u64, u64) {
        let (actions, numbered) = number_actions(timeline);
        let kinds: Vec<Kind> = actions.iter().map(|action| Queue.kind(*action)).collect();
        let mut states = Interned::new(&Queue, actions);
        let mut model = Memo::new(kinds, &mut states);
        let limits = limits();
        let settings = Settings {
            engines,
            ..Settings::new(&limits)
        };
        let optional = Queue.useful(timeline);
        let searched = search(&numbered, &optional, &mut model, settings);
        assert!(is_over_memory(&searched), "{engines:?} {searched:?}");
        let counted_bytes = model.memory_bytes();
        drop(model);
        let whole = (0..).map_while(|state| states.whole(state));
        let element_count: usize = whole.map(|state: VecDeque<u32>| state.len()).sum();
        (counted_bytes, 2 * 4 * element_count as u64)
    }

    #[test]
    fn what_states_own_counts_against_the_limit_in_every_order_of_search() {
        let timeline = long_queues();
        for engines in [Engines::Both, Engines::DepthFirst, Engines::LevelOrder] {
            let (counted_bytes, owned_bytes) = search_counted(&timeline, engines);
            assert!(owned_bytes > 0, "{engines:?}");
            assert!(
                counted_bytes >= owned_bytes,
                "{engines:?}: {counted_bytes} < {owned_bytes}"
            );
            // One more table of double size may be what ends the search.
            assert!(
                counted_bytes < 2 * LIMIT_BYTES,
                "{engines:?}: {counted_bytes}"
            );
        }
    }

    #[test]
    fn the_larger_the_states_the_more_often_the_limits_are_looked_at() {
        let mut states = Interned::new(&Queue, vec![QueueAction::Enqueue(0)]);
        let mut model = Memo::new(vec![Kind::General], &mut states);
        let small = look_every::<_, 1, 1>(&model, &limits());
        let mut state = model.initial();
        for _ in 0..500 {
            state = model.step(state, 0).expect("a queue can always grow");
        }
        assert!(
            model.state_bytes() >= 2 * 4 * 500,
            "{}",
            model.state_bytes()
        );
        let large = look_every::<_, 1, 1>(&model, &limits());
        assert!(large < small, "{large} {small}");
        assert!(large >= LOOK_EVERY_MIN, "{large}");
    }
}
