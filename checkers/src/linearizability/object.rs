//! Owns how each kind of object is decided: fast paths, what can be left out, which states to tell apart.
//! Never lets an order out that the plain specification does not confirm.

use std::hash::Hash;

use super::certificate::replay;
use super::compiled::{Interned, Memo, RegisterModel, number_actions};
use super::fast::{self, Fast};
use super::models::Specification;
use super::models::counter::{Counter, CounterAction};
use super::models::queue::{Queue, QueueAction};
use super::models::register::{Action, Register};
use super::models::sequence::{Sequence, SequenceAction};
use super::models::set::{Set, SetAction};
use super::observed_prefixes::ObservedPrefixes;
use super::portfolio::{self, Engines, Searched, Settings};
use super::timeline::{NEVER, Timeline};
use super::{Limit, Limits, Outcome};

/// An object whose histories can be decided.
pub trait Object: Specification + Sized {
    /// Decides in polynomial time; `None` where the history does not allow it.
    #[doc(hidden)]
    fn decide_fast(&self, timeline: &Timeline<Self::Action>) -> Option<Fast>;

    /// Operations of unknown outcome that can make a difference to any other one, ascending.
    #[doc(hidden)]
    fn useful(&self, timeline: &Timeline<Self::Action>) -> Vec<u32>;

    /// Searches, without fast paths.
    #[doc(hidden)]
    fn search(
        &self,
        timeline: &Timeline<Self::Action>,
        settings: Settings<'_>,
    ) -> Searched<Self::State> {
        search_interned(self, timeline, &self.useful(timeline), settings)
    }

    /// Searches with whatever helps where the search alone would take long.
    #[doc(hidden)]
    fn search_in_turns(
        &self,
        timeline: &Timeline<Self::Action>,
        limits: &Limits<'_>,
    ) -> Searched<Self::State> {
        self.search(timeline, Settings::new(limits))
    }

    /// Whether a violation is explained from the last moment on at which the state was certain, even
    /// where it can be explained from the beginning.
    #[doc(hidden)]
    fn is_told_from_certainty(&self) -> bool {
        false
    }

    /// Decides whether the object's operations are linearizable.
    ///
    /// # Panics
    ///
    /// If an order was found that does not survive its replay, which would be an error of the search.
    fn decide(&self, timeline: &Timeline<Self::Action>, limits: &Limits<'_>) -> Outcome {
        let order = match self.decide_fast(timeline) {
            Some(Fast::Linearizable(order)) => order,
            Some(Fast::NotLinearizable) => {
                let failed = first_failing(timeline, |prefix| {
                    matches!(self.decide_fast(prefix), Some(Fast::NotLinearizable))
                });
                return Outcome::NotLinearizable { failed };
            }
            None => match self.search_in_turns(timeline, limits) {
                Searched::Order(order) => order,
                Searched::None { failed, .. } => return Outcome::NotLinearizable { failed },
                Searched::Unknown {
                    limit,
                    level,
                    visited_count,
                    ..
                } => {
                    return Outcome::Unknown {
                        limit,
                        completed_count: level as usize,
                        visited_count,
                    };
                }
            },
        };
        if let Err(reason) = replay(self, timeline, &order) {
            panic!("the order that was found is not a linearization: {reason}");
        }
        Outcome::Linearizable { order }
    }
}

/// The operation whose completion ends the shortest prefix that is not linearizable. The whole must
/// not be linearizable; what is not stays so, whatever comes after it.
fn first_failing<A: Copy>(
    timeline: &Timeline<A>,
    mut is_refuted: impl FnMut(&Timeline<A>) -> bool,
) -> u32 {
    let events = timeline.events();
    // Of the first `good` events there is an order, of the first `bad` there is none.
    let (mut good, mut bad) = (0, events.len());
    while bad - good > 1 {
        let middle = good + (bad - good) / 2;
        if is_refuted(&timeline.prefix(middle)) {
            bad = middle;
        } else {
            good = middle;
        }
    }
    events[bad - 1].operation() as u32
}

/// Searches over the states of the plain specification.
pub(super) fn search_interned<S: Specification>(
    specification: &S,
    timeline: &Timeline<S::Action>,
    optional: &[u32],
    settings: Settings<'_>,
) -> Searched<S::State> {
    let (actions, numbered) = number_actions(timeline);
    let kinds = actions.iter().map(|action| specification.kind(*action));
    let kinds = kinds.collect();
    let mut states = Interned::new(specification, actions);
    let mut model = Memo::new(kinds, &mut states);
    let searched = portfolio::search(&numbered, optional, &mut model, settings);
    searched.whole(|state| states.whole(state))
}

/// Operations of unknown outcome for which `matters`, ascending.
fn optional<A: Copy>(timeline: &Timeline<A>, matters: impl Fn(A) -> bool) -> Vec<u32> {
    if timeline.events().len() == 2 * timeline.len() {
        return Vec::new();
    }
    let intervals = timeline.intervals();
    let operations = 0..timeline.len();
    operations
        .filter(|place| intervals[*place].1 == NEVER && matters(timeline.action(*place)))
        .map(|place| place as u32)
        .collect()
}

/// Actions of completed operations.
fn completed<A: Copy>(timeline: &Timeline<A>) -> impl Iterator<Item = A> {
    let completions = timeline.events().iter().filter(|one| one.is_completion());
    completions.map(|event| timeline.action(event.operation()))
}

impl Object for Register {
    fn decide_fast(&self, timeline: &Timeline<Action>) -> Option<Fast> {
        fast::registers::decide(self.initial, timeline)
    }

    fn useful(&self, timeline: &Timeline<Action>) -> Vec<u32> {
        RegisterModel::useful(timeline)
    }

    fn search(&self, timeline: &Timeline<Action>, settings: Settings<'_>) -> Searched<u32> {
        let optional = self.useful(timeline);
        let mut model = RegisterModel::new(*self, timeline, &optional, settings.forgets);
        let searched = portfolio::search(timeline, &optional, &mut model, settings);
        searched.whole(|state| (state != super::compiled::UNSEEN).then_some(state))
    }

    /// Where many operations of unknown outcome make it hard, what cannot be is found out with less to
    /// remember, and how far it can be by the depth-first search.
    fn search_in_turns(&self, timeline: &Timeline<Action>, limits: &Limits<'_>) -> Searched<u32> {
        let completed_count = timeline.completed_count() as u64;
        let bounded = |configuration_count: u64| Limits {
            configuration_count: configuration_count.min(limits.configuration_count),
            ..*limits
        };
        let hard = bounded(HARD_MIN_COUNT.max(HARD_FACTOR * completed_count));
        let first = self.search(timeline, Settings::new(&hard));
        let is_hard = matches!(
            first,
            Searched::Unknown {
                limit: Limit::Configurations,
                ..
            }
        );
        if !is_hard || hard.configuration_count == limits.configuration_count {
            return first;
        }
        let harder = bounded(HARDER_FACTOR * completed_count + HARD_MIN_COUNT);
        let priced = Settings {
            engines: Engines::Priced,
            ..Settings::new(&harder)
        };
        let failed = match self.search(timeline, priced) {
            order @ Searched::Order(_) => return order,
            Searched::None { failed, .. } => Some(failed),
            Searched::Unknown { .. } => self.refute_relaxed(timeline, &harder),
        };
        let Some(failed) = failed else {
            return self.search(timeline, Settings::new(limits));
        };
        let end = timeline
            .events()
            .iter()
            .position(|event| event.is_completion() && event.operation() == failed as usize);
        let before = timeline.prefix(end.unwrap_or(timeline.events().len()));
        let settings = Settings {
            engines: Engines::DepthFirst,
            ..Settings::new(&hard)
        };
        match self.search(&before, settings) {
            earlier @ Searched::None { .. } => earlier,
            Searched::Order(_) | Searched::Unknown { .. } => Searched::None {
                failed,
                states: Vec::new(),
                anchor: None,
                charges: Vec::new(),
            },
        }
    }
}

/// Configurations per completion after which a search counts as hard.
const HARD_FACTOR: u64 = 20;
const HARD_MIN_COUNT: u64 = 100_000;

/// Configurations per completion that each of the other ways to decide a hard history may take.
const HARDER_FACTOR: u64 = 2_000;

impl Register {
    /// Refutes a weaker claim, which takes less remembering: compare-and-sets of unknown outcome count
    /// as writes, so that it only matters how often something may have led to each value. The failing
    /// operation is then not necessarily the first. `None` if the weaker claim holds, or it takes too long.
    pub(super) fn refute_relaxed(
        &self,
        timeline: &Timeline<Action>,
        limits: &Limits<'_>,
    ) -> Option<u32> {
        let relaxed = timeline.with_unknown(|action| match action {
            Action::CompareAndSet { expected, new } if expected != new => Action::Write(new),
            other => other,
        });
        let settings = Settings {
            engines: Engines::LevelOrder,
            ..Settings::new(limits)
        };
        match self.search(&relaxed, settings) {
            Searched::None { failed, .. } => Some(failed),
            _ => None,
        }
    }
}

impl<T: Copy + Ord + Hash + std::fmt::Debug> Object for Sequence<T> {
    fn decide_fast(&self, timeline: &Timeline<SequenceAction>) -> Option<Fast> {
        fast::lists::decide(self, timeline)
    }

    /// An addition matters only if some read returned it, as a part of something.
    fn useful(&self, timeline: &Timeline<SequenceAction>) -> Vec<u32> {
        let is_read = |piece: u32| {
            let piece = self.piece(piece);
            completed(timeline).any(|action| match action {
                SequenceAction::Read(read) if piece.len() == 1 => {
                    self.piece(read).contains(&piece[0])
                }
                SequenceAction::Read(read) => {
                    let read = self.piece(read);
                    piece.is_empty() || read.windows(piece.len()).any(|part| part == piece)
                }
                SequenceAction::Append(_) | SequenceAction::Put(_) => false,
            })
        };
        optional(timeline, |action| match action {
            SequenceAction::Read(_) => false,
            SequenceAction::Append(piece) => !self.piece(piece).is_empty() && is_read(piece),
            SequenceAction::Put(piece) => is_read(piece),
        })
    }

    /// What a sequence consists of takes many operations to explain.
    fn is_told_from_certainty(&self) -> bool {
        true
    }

    fn search(
        &self,
        timeline: &Timeline<SequenceAction>,
        settings: Settings<'_>,
    ) -> Searched<Vec<T>> {
        let optional = self.useful(timeline);
        if !settings.forgets {
            return search_interned(self, timeline, &optional, settings);
        }
        let (actions, numbered) = number_actions(timeline);
        let kinds = actions.iter().map(|action| self.kind(*action)).collect();
        let mut states = ObservedPrefixes::new(self, actions, timeline);
        let mut model = Memo::new(kinds, &mut states);
        let searched = portfolio::search(&numbered, &optional, &mut model, settings);
        searched.whole(|state| states.whole(state))
    }
}

impl Object for Set {
    fn decide_fast(&self, timeline: &Timeline<SetAction>) -> Option<Fast> {
        fast::sets::decide(self, timeline)
    }

    fn useful(&self, timeline: &Timeline<SetAction>) -> Vec<u32> {
        let observes_all = completed(timeline).any(|action| matches!(action, SetAction::Read(_)));
        optional(timeline, |action| match action {
            SetAction::Add(element) => completed(timeline).any(|other| match other {
                SetAction::Contains(seen) => seen == element,
                SetAction::Read(number) => self.contents[number as usize]
                    .binary_search(&element)
                    .is_ok(),
                _ => false,
            }),
            SetAction::Remove(element) => {
                observes_all || completed(timeline).any(|other| other == SetAction::Lacks(element))
            }
            SetAction::Contains(_) | SetAction::Lacks(_) | SetAction::Read(_) => false,
        })
    }
}

impl Object for Counter {
    fn decide_fast(&self, _timeline: &Timeline<CounterAction>) -> Option<Fast> {
        None
    }

    fn useful(&self, timeline: &Timeline<CounterAction>) -> Vec<u32> {
        use super::models::Kind;
        optional(timeline, |action| self.kind(action) != Kind::Pure)
    }

    /// A counter that would leave 64 bits may wrap, refuse or grow: that it cannot have done one of these says
    /// nothing about the others.
    fn search_in_turns(
        &self,
        timeline: &Timeline<CounterAction>,
        limits: &Limits<'_>,
    ) -> Searched<i64> {
        match self.search(timeline, Settings::new(limits)) {
            Searched::None { failed, .. } if self.may_leave_its_bits(timeline, failed) => {
                Searched::Unknown {
                    limit: Limit::Numbers,
                    level: 0,
                    visited_count: 0,
                    anchor: None,
                }
            }
            searched => searched,
        }
    }
}

impl Counter {
    /// Whether some of the additions that had begun when `failed` ended make a sum that needs more than 64 bits.
    fn may_leave_its_bits(&self, timeline: &Timeline<CounterAction>, failed: u32) -> bool {
        let (mut least, mut most) = (0_i128, 0_i128);
        for event in timeline.events() {
            let operation = event.operation();
            if event.is_completion() {
                if operation == failed as usize {
                    break;
                }
                continue;
            }
            let delta = match timeline.action(operation) {
                CounterAction::Add(delta) | CounterAction::AddAndGet { delta, .. } => delta,
                CounterAction::Read(_) => 0,
            };
            least += i128::from(delta.min(0));
            most += i128::from(delta.max(0));
        }
        least < i128::from(i64::MIN) || most > i128::from(i64::MAX)
    }
}

impl Object for Queue {
    fn decide_fast(&self, timeline: &Timeline<QueueAction>) -> Option<Fast> {
        fast::queues::decide(timeline)
    }

    /// Taking an element that nobody saw matters; so does adding one that somebody took.
    fn useful(&self, timeline: &Timeline<QueueAction>) -> Vec<u32> {
        optional(timeline, |action| match action {
            QueueAction::Enqueue(element) => completed(timeline).any(|other| {
                other == QueueAction::Dequeue(element) || other == QueueAction::DequeueUnseen
            }),
            QueueAction::Empty => false,
            QueueAction::Dequeue(_) | QueueAction::DequeueUnseen => true,
        })
    }
}
