//! Owns prices of operations of unknown outcome: what each use costs, what all orders together can afford,
//! and how prices are found that no order can pay.
//! Never searches for an order.
//!
//! Of a class of equal operations, an order can use at most `m` before the one after the `m`-th was invoked.
//! Give each of these limits a weight, let a use cost the weights of all limits that it counts against,
//! and let the budget be the sum of the weights times their limits: every order stays within the budget,
//! whatever the weights are (Lagrangian duality). Weights with which the cheapest way past some completion costs
//! more prove that there is no way past it. It takes one number per configuration to find that way, where it
//! takes a set of operations to find all ways.

use super::levels::OptionalClass;
use super::timeline::NEVER;

/// Largest weight. Weights are whole numbers, so that what they prove is exact.
const WEIGHT_MAX: f64 = 65_536.0;

/// Rounds of improving the weights between two searches.
const ROUND_MAX_COUNT: usize = 4000;

/// How far from its goal a margin may stay.
const TOLERANCE: f64 = 0.01;

/// Prices at every level, and what all together may cost.
#[derive(Debug)]
pub(super) struct Prices {
    classes: Vec<ClassPrices>,
    budget: u64,
}

#[derive(Debug)]
struct ClassPrices {
    /// First level at which each member may be used, ascending.
    from_level: Vec<u32>,
    /// By how many members have begun, from one on: what a use costs then.
    cost: Vec<u64>,
}

impl Prices {
    /// The prices that come of weights, one for each limit: of every class in turn, of the limits to one use,
    /// two, and so on to all members.
    fn new<A>(classes: &[OptionalClass<A>], weights: &[f64]) -> Self {
        let largest = weights.iter().copied().fold(0.0, f64::max);
        let scale = if largest > 0.0 {
            WEIGHT_MAX / largest
        } else {
            0.0
        };
        let mut budget = 0;
        let mut weights = weights.iter();
        let classes = classes.iter().map(|class| {
            let weights = weights.by_ref().take(class.from_level.len());
            let mut cost: Vec<u64> = weights
                .map(|weight| (weight * scale).round() as u64)
                .collect();
            budget += (1..)
                .zip(&cost)
                .map(|(limit, weight)| limit * weight)
                .sum::<u64>();
            for place in (1..cost.len()).rev() {
                cost[place - 1] += cost[place];
            }
            ClassPrices {
                from_level: class.from_level.clone(),
                cost,
            }
        });
        let classes = classes.collect();
        Self { classes, budget }
    }

    /// What using a member of the class costs at the level; `None` before there is one.
    #[inline]
    pub(super) fn cost(&self, class: usize, level: u32) -> Option<u64> {
        let class = &self.classes[class];
        let begun = class.from_level.partition_point(|from| *from <= level);
        Some(class.cost[begun.checked_sub(1)?])
    }

    /// By class: the weights of its limits, which say all of it.
    pub(super) fn weights(&self) -> impl Iterator<Item = Vec<u64>> {
        self.classes.iter().map(|class| {
            let next = class.cost[1..].iter().chain(&[0]);
            class
                .cost
                .iter()
                .zip(next)
                .map(|(one, next)| one - next)
                .collect()
        })
    }

    /// What an order can cost at most.
    pub(super) fn budget(&self) -> u64 {
        self.budget
    }
}

/// Ways that were the cheapest at some prices, and weights with which all of them cost too much.
#[derive(Debug)]
pub(super) struct Haggling {
    /// By way, then by limit: how many uses count against it, beyond what it allows.
    excesses: Vec<Vec<f64>>,
    /// By way: how much it has to say.
    say: Vec<f64>,
    weights: Vec<f64>,
}

impl Haggling {
    /// Every use costs the same, whenever and whatever it is.
    pub(super) fn new<A>(classes: &[OptionalClass<A>]) -> Self {
        let mut weights = Vec::new();
        for class in classes {
            weights.resize(weights.len() + class.from_level.len() - 1, 0.0);
            weights.push(1.0);
        }
        Self {
            excesses: Vec::new(),
            say: Vec::new(),
            weights,
        }
    }

    /// The prices of now.
    pub(super) fn prices<A>(&self, classes: &[OptionalClass<A>]) -> Prices {
        Prices::new(classes, &self.weights)
    }

    /// Takes note of a way that was cheap enough, by the classes and levels of what it used. Tells what is
    /// the matter with it.
    pub(super) fn object_to<A>(
        &mut self,
        classes: &[OptionalClass<A>],
        uses: &[(u32, u32)],
    ) -> Objection {
        let excess = excess(classes, uses);
        if excess.iter().all(|excess| *excess <= 0.0) {
            return Objection::None;
        }
        if self.excesses.contains(&excess) {
            return Objection::NotAgain;
        }
        self.excesses.push(excess);
        self.say.push(0.0);
        if self.reprice() {
            Objection::Repriced
        } else {
            Objection::NotAgain
        }
    }

    /// Finds weights with which every way so far costs more than its budget, the smallest ones: the dual of a
    /// hard-margin classifier, one way after the other. False if there are none, as far as can be told.
    fn reprice(&mut self) -> bool {
        let squares: Vec<f64> = self
            .excesses
            .iter()
            .map(|excess| dot(excess, excess))
            .collect();
        let mut sum = vec![0.0; self.weights.len()];
        for (excess, say) in self.excesses.iter().zip(&self.say) {
            add(&mut sum, excess, *say);
        }
        for _ in 0..ROUND_MAX_COUNT {
            let mut worst: f64 = 1.0;
            for (place, excess) in self.excesses.iter().enumerate() {
                let margin: f64 = excess
                    .iter()
                    .zip(&sum)
                    .map(|(one, sum)| one * sum.max(0.0))
                    .sum();
                worst = worst.min(margin);
                let say = (self.say[place] + (1.0 - margin) / squares[place]).max(0.0);
                add(&mut sum, excess, say - self.say[place]);
                self.say[place] = say;
            }
            if worst > 1.0 - TOLERANCE {
                break;
            }
        }
        for (weight, sum) in self.weights.iter_mut().zip(&sum) {
            *weight = sum.max(0.0);
        }
        let mut excesses = self.excesses.iter();
        excesses.all(|excess| dot(excess, &self.weights) > 0.0)
    }
}

/// What came of looking at a way.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Objection {
    /// It keeps all limits.
    None,
    /// It breaks a limit, and costs too much at the new prices.
    Repriced,
    /// It breaks a limit, but there are no prices at which this and all ways before cost too much.
    NotAgain,
}

/// By limit: how many uses count against it, beyond what it allows.
fn excess<A>(classes: &[OptionalClass<A>], uses: &[(u32, u32)]) -> Vec<f64> {
    let mut excess = Vec::new();
    for (number, class) in (0..).zip(classes) {
        for limit in 1..=class.from_level.len() {
            let until = class.from_level.get(limit).copied().unwrap_or(NEVER);
            let counted = uses
                .iter()
                .filter(|(class, level)| *class == number && *level < until)
                .count();
            excess.push(counted as f64 - limit as f64);
        }
    }
    excess
}

fn dot(one: &[f64], other: &[f64]) -> f64 {
    one.iter().zip(other).map(|(one, other)| one * other).sum()
}

fn add(sum: &mut [f64], more: &[f64], factor: f64) {
    for (sum, more) in sum.iter_mut().zip(more) {
        *sum += more * factor;
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Two classes: one member from level 0 and one from 10 on; one member from level 5 on.
    fn classes() -> Vec<OptionalClass<char>> {
        let class = |action, first, from_level: &[u32]| OptionalClass {
            action,
            first,
            operations: vec![0; from_level.len()],
            from_level: from_level.to_vec(),
        };
        vec![class('a', 0, &[0, 10]), class('b', 2, &[5])]
    }

    #[test]
    fn a_use_costs_what_it_counts_against() {
        let prices = Prices::new(&classes(), &[1.0, 2.0, 4.0]);
        let unit = WEIGHT_MAX as u64 / 4;
        assert_eq!(prices.cost(0, 0), Some(3 * unit), "against both limits");
        assert_eq!(prices.cost(0, 10), Some(2 * unit), "against the last one");
        assert_eq!(prices.cost(1, 4), None, "nothing has begun");
        assert_eq!(prices.cost(1, 5), Some(4 * unit));
        assert_eq!(prices.budget(), (1 + 2 * 2 + 4) * unit);
    }

    #[test]
    fn ways_that_keep_the_limits_always_stay_within_the_budget() {
        let uses = [(0, 3), (0, 12), (1, 7)];
        for weights in [[1.0, 0.0, 0.0], [0.3, 5.0, 2.0], [0.0, 0.0, 1.0]] {
            let prices = Prices::new(&classes(), &weights);
            let cost = uses.map(|(class, level)| prices.cost(class as usize, level).unwrap());
            assert!(cost.iter().sum::<u64>() <= prices.budget(), "{weights:?}");
        }
        let mut haggling = Haggling::new(&classes());
        assert_eq!(haggling.object_to(&classes(), &uses), Objection::None);
    }

    #[test]
    fn prices_are_found_at_which_all_ways_so_far_cost_too_much() {
        let classes = classes();
        let mut haggling = Haggling::new(&classes);
        // One of the first class too early, or one of the second class too many.
        let ways: [&[(u32, u32)]; 2] = [&[(0, 3), (0, 4), (1, 6)], &[(0, 3), (1, 6), (1, 7)]];
        for way in ways {
            assert_eq!(haggling.object_to(&classes, way), Objection::Repriced);
        }
        let prices = haggling.prices(&classes);
        for way in ways {
            let cost = way
                .iter()
                .filter_map(|(class, level)| prices.cost(*class as usize, *level));
            assert!(cost.sum::<u64>() > prices.budget(), "{way:?} {prices:?}");
        }
        assert_eq!(haggling.object_to(&classes, ways[0]), Objection::NotAgain);
    }

    #[test]
    fn there_are_no_prices_against_two_ways_that_together_keep_the_limits() {
        let classes = classes();
        let mut haggling = Haggling::new(&classes);
        // Each breaks one limit as much as the other one leaves it unused.
        let (one, other) = ([(0, 3), (0, 4)], [(1, 6), (1, 7)]);
        assert_eq!(haggling.object_to(&classes, &one), Objection::Repriced);
        assert_eq!(haggling.object_to(&classes, &other), Objection::NotAgain);
    }
}
