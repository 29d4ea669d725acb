//! Owns the comparison of everything that decides with the trial of every order, on small histories.
//! Never trusts one of them more than the trial.

mod generate;

use generate::{
    Generator, Random, Shape, counters, history, lists, queues, registers, sets, texts,
};

use super::certificate::{is_too_expensive, replay, try_every_order};
use super::configuration::Mistake;
use super::fast::Fast;
use super::models::Specification;
use super::object::Object;
use super::portfolio::{Engines, Searched, Settings};
use super::refutation::refute;
use super::timeline::Timeline;
use super::{Limits, Outcome};

/// Multiplies the number of random histories, for longer runs than a test suite can afford.
fn fuzz_factor() -> u64 {
    std::env::var("KRAFT_HARNESS_FUZZ_FACTOR")
        .ok()
        .and_then(|factor| factor.parse().ok())
        .unwrap_or(1)
}

fn is_linearizable<S: Specification>(object: &S, timeline: &Timeline<S::Action>) -> bool {
    try_every_order(object, timeline, u64::MAX).expect("a small history")
}

/// The operation at whose completion the trial first finds no order.
fn first_failing<S: Specification>(object: &S, timeline: &Timeline<S::Action>) -> Option<u32> {
    let ends = timeline.events().iter().enumerate();
    ends.filter(|(_, event)| event.is_completion())
        .find(|(end, _)| !is_linearizable(object, &timeline.prefix(end + 1)))
        .map(|(_, event)| event.operation() as u32)
}

/// What one search says: the operation at which it fails, or `None` for an order, which is replayed.
fn verdict<O: Object>(
    object: &O,
    timeline: &Timeline<O::Action>,
    settings: Settings<'_>,
) -> Option<u32> {
    match object.search(timeline, settings) {
        Searched::Order(order) => {
            if settings.engines != Engines::Anchored {
                assert_eq!(replay(object, timeline, &order), Ok(()), "{timeline:?}");
            }
            None
        }
        Searched::None { failed, .. } => Some(failed),
        unknown @ Searched::Unknown { .. } => panic!("{unknown:?} {timeline:?}"),
    }
}

fn compare_one<O: Object>(object: &O, timeline: &Timeline<O::Action>) -> bool {
    let expected = first_failing(object, timeline);
    let limits = Limits::default();
    for engines in [
        Engines::Both,
        Engines::DepthFirst,
        Engines::LevelOrder,
        Engines::Anchored,
    ] {
        for forgets in [true, false] {
            let settings = Settings {
                engines,
                forgets,
                ..Settings::new(&limits)
            };
            let found = verdict(object, timeline, settings);
            assert_eq!(found, expected, "{engines:?} {forgets} {timeline:?}");
        }
    }
    match object.decide(timeline, &limits) {
        Outcome::Linearizable { .. } => assert_eq!(expected, None, "{timeline:?}"),
        Outcome::NotLinearizable { failed } => {
            assert_eq!(Some(failed), expected, "{timeline:?}");
            let refutation = refute(object, timeline, failed, &limits);
            assert!(refutation.is_proved, "{refutation:?} {timeline:?}");
            assert!(refutation.core.iter().any(|one| one.operation == failed));
        }
        unknown @ Outcome::Unknown { .. } => panic!("{unknown:?} {timeline:?}"),
    }
    expected.is_none()
}

/// Compares on many histories, of which both verdicts must be frequent; returns how many a fast path
/// decided.
fn compare<G: Generator>(seed: u64, count: u64, generator: impl Fn(&mut Random) -> G) -> u64
where
    G::Object: Object,
{
    let count = count * fuzz_factor();
    let (mut good, mut fast) = (0, 0);
    for number in 0..count {
        let mut random = Random(seed.wrapping_mul(1 << 32).wrapping_add(number));
        let mut generator = generator(&mut random);
        let shape = Shape::any(&mut random);
        let timeline = history(&mut random, shape, &mut generator);
        let object = generator.object();
        good += u64::from(compare_one(object, &timeline));
        fast += u64::from(matches!(
            object.decide_fast(&timeline),
            Some(Fast::Linearizable(_) | Fast::NotLinearizable)
        ));
    }
    let bad = count - good;
    assert!(
        good * 12 > count && bad * 12 > count,
        "{good} good, {bad} bad"
    );
    fast
}

#[test]
fn registers_with_few_values() {
    compare(1, 1500, |random| registers(random, false, false));
}

#[test]
fn registers_where_failed_compare_and_sets_are_claims() {
    compare(2, 1500, |random| registers(random, true, false));
}

#[test]
fn registers_with_unique_values() {
    let fast = compare(3, 1500, |random| registers(random, false, true));
    assert!(fast > 1200, "{fast}");
}

#[test]
fn counters_with_and_without_sums() {
    compare(4, 1000, counters);
}

#[test]
fn sets_of_every_kind() {
    compare(5, 700, |random| sets(random, false));
}

#[test]
fn sets_that_only_grow() {
    let fast = compare(6, 1000, |random| sets(random, true));
    assert!(fast > 800, "{fast}");
}

#[test]
fn queues_of_every_kind() {
    compare(7, 1000, |random| queues(random, false));
}

#[test]
fn queues_with_unique_elements() {
    let fast = compare(8, 1000, |random| queues(random, true));
    assert!(fast > 800, "{fast}");
}

#[test]
fn texts_that_are_appended_to_and_replaced() {
    compare(9, 1000, texts);
}

#[test]
fn lists_with_unique_elements() {
    let fast = compare(10, 1000, lists);
    assert!(fast > 800, "{fast}");
}

#[test]
fn refuted_relaxations_are_violations() {
    let limits = Limits::default();
    let (mut refuted, mut bad) = (0, 0);
    for number in 0..2000 * fuzz_factor() {
        let mut random = Random((11 << 32) + number);
        let mut generator = registers(&mut random, number % 2 == 0, false);
        let shape = Shape::any(&mut random);
        let timeline = history(&mut random, shape, &mut generator);
        let object = *generator.object();
        let first = first_failing(&object, &timeline);
        bad += u64::from(first.is_some());
        let Some(failed) = object.refute_relaxed(&timeline, &limits) else {
            continue;
        };
        refuted += 1;
        let end = |operation: u32| timeline.intervals()[operation as usize].1;
        let first = first.unwrap_or_else(|| panic!("{number}: {timeline:?}"));
        assert!(end(first) <= end(failed), "{number}: {timeline:?}");
    }
    assert!(refuted * 2 > bad, "{refuted} of {bad}");
}

#[test]
fn what_is_decided_by_prices_is_so() {
    let limits = Limits::default();
    let priced = Settings {
        engines: Engines::Priced,
        ..Settings::new(&limits)
    };
    let (mut refuted, mut bad, mut ordered, mut good) = (0, 0, 0, 0);
    for number in 0..3000 * fuzz_factor() {
        let mut random = Random((12 << 32) + number);
        let mut generator = registers(&mut random, number % 2 == 0, false);
        let shape = Shape::any(&mut random);
        let timeline = history(&mut random, shape, &mut generator);
        let object = *generator.object();
        let first = first_failing(&object, &timeline);
        match first {
            Some(_) => bad += 1,
            None => good += 1,
        }
        match object.search(&timeline, priced) {
            Searched::Order(order) => {
                ordered += 1;
                assert_eq!(replay(&object, &timeline, &order), Ok(()), "{timeline:?}");
            }
            Searched::None {
                failed, charges, ..
            } => {
                refuted += 1;
                let end = |operation: u32| timeline.intervals()[operation as usize].1;
                let first = first.unwrap_or_else(|| panic!("{number}: {timeline:?}"));
                assert!(end(first) <= end(failed), "{number}: {timeline:?}");
                let checked = is_too_expensive(&object, &timeline, &charges, 10_000_000);
                assert_eq!(checked, Some(true), "{number}: {timeline:?}");
            }
            Searched::Unknown { .. } => {}
        }
    }
    assert!(refuted * 10 > bad * 9, "{refuted} of {bad}");
    assert!(ordered * 10 > good * 9, "{ordered} of {good}");
}

/// How many histories it takes until the mistake shows.
fn histories_until_noticed(mistake: Mistake, seed: u64) -> Option<u64> {
    let limits = Limits::default();
    let settings = Settings {
        mistake,
        ..Settings::new(&limits)
    };
    (0..20_000).find(|number| {
        let mut random = Random(seed.wrapping_mul(1 << 32).wrapping_add(*number));
        let mut generator = registers(&mut random, false, false);
        let shape = Shape::any(&mut random);
        let timeline = history(&mut random, shape, &mut generator);
        let object = *generator.object();
        let is_legal = match object.search(&timeline, settings) {
            Searched::Order(order) => replay(&object, &timeline, &order).is_ok(),
            _ => false,
        };
        is_legal != is_linearizable(&object, &timeline)
    })
}

#[test]
fn reductions_that_are_wrong_are_noticed() {
    for mistake in [Mistake::ObservedRuleForCompleted, Mistake::AbsorbedForGood] {
        let noticed = histories_until_noticed(mistake, 1);
        println!("{mistake:?} is noticed at history {noticed:?}");
        assert!(noticed.is_some(), "{mistake:?}");
    }
    assert_eq!(histories_until_noticed(Mistake::None, 1), None);
}
