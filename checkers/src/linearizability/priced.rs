//! Owns the search for the cheapest order when operations of unknown outcome cost something.
//! Never keeps which of them were used: one number stands for all, so that hundreds of them cost no more
//! than a few.
//!
//! At the right prices (see `prices`), no order that can be is too expensive. So where even the cheapest way past
//! some completion is, there is no order; and a cheapest way that uses nothing more often than it was
//! invoked is an order. Otherwise its excess tells how prices have to change. What remains undecided is what
//! is wrong only because nothing can be used half, which other searches must tell.

use super::Limit;
use super::antichain::{Account, Antichain, Kinds};
use super::bits::Bits;
use super::certificate::Charge;
use super::compiled::Model;
use super::configuration::{Configuration, Due, Ground, Mistake, Move};
use super::levels::Levels;
use super::portfolio::{Searched, Settings, exceeded, look_every, order_along};
use super::prices::{Haggling, Objection, Prices};
use super::timeline::NEVER;

/// Searches at one set of prices after another. What cannot be decided so ends as if a limit of
/// configurations had been reached.
pub(super) fn search<M: Model, const W: usize, const C: usize>(
    levels: &Levels<'_, M::Action>,
    model: &mut M,
    settings: Settings<'_>,
) -> Searched {
    let mut haggling = Haggling::new(&levels.optional);
    let mut deepest_level = 0;
    let mut visited_count = 0;
    loop {
        let prices = haggling.prices(&levels.optional);
        let mut cheapest = Cheapest::<M, W>::new(levels, model, &prices, settings.mistake);
        let ended = loop {
            let spent = visited_count + cheapest.visited_count;
            let left = settings.limits.configuration_count.saturating_sub(spent);
            if let Some(ended) = cheapest.go_on(
                model,
                left.min(look_every::<M, W, 1>(model, settings.limits)),
            ) {
                break Ok(ended);
            }
            let spent = visited_count + cheapest.visited_count;
            let memory = cheapest.memory_bytes() + model.memory_bytes();
            if let Some(limit) = exceeded(settings.limits, spent, memory) {
                break Err(limit);
            }
        };
        visited_count += cheapest.visited_count;
        deepest_level = deepest_level.max(cheapest.level());
        let unknown = |limit| Searched::Unknown {
            limit,
            level: deepest_level,
            visited_count,
            anchor: None,
        };
        let way = match ended {
            Err(limit) => return unknown(limit),
            Ok(Way::TooExpensive) => {
                return Searched::None {
                    failed: levels.deadline(cheapest.level() as usize) as u32,
                    states: Vec::new(),
                    anchor: None,
                    charges: charges(levels, &prices),
                };
            }
            Ok(Way::Found(way)) => way,
        };
        let uses: Vec<(u32, u32)> = way
            .iter()
            .filter_map(|(by, level)| match by {
                Move::Optional(class) => Some((*class, *level)),
                _ => None,
            })
            .collect();
        match haggling.object_to(&levels.optional, &uses) {
            Objection::None => {
                let moves = way.into_iter().map(|(by, _)| by);
                let order = order_along::<M, W, C>(levels, model, moves, settings.mistake);
                return Searched::Order(order);
            }
            Objection::Repriced => {}
            Objection::NotAgain => return unknown(Limit::Configurations),
        }
    }
}

/// The prices for whoever wants to check what they prove.
fn charges<A>(levels: &Levels<'_, A>, prices: &Prices) -> Vec<Charge> {
    let classes = levels.optional.iter().zip(prices.weights());
    let charges = classes.map(|(class, weights)| Charge {
        operations: class.operations.clone(),
        weights,
    });
    charges.collect()
}

/// How one search ended.
enum Way {
    /// The cheapest way to the end, with the level of every move.
    Found(Vec<(Move, u32)>),
    /// Nothing that can be paid leads past the level.
    TooExpensive,
}

/// How a configuration was reached.
#[derive(Debug, Clone, Copy)]
struct Link {
    /// Place of the link before, [`NEVER`] at the root.
    before: u32,
    by: Move,
    level: u32,
}

/// The cheapest configurations at one level. What was paid stands where others keep what was used.
struct Cheapest<'a, 'b, M: Model, const W: usize> {
    ground: Ground<'a, 'b, M, W>,
    prices: &'a Prices,
    here: Antichain<W, 1>,
    /// The next configuration of this level to go on from: there can be more in one than memory holds.
    place: usize,
    next: Antichain<W, 1>,
    passing: Vec<(Configuration<W, 1>, u32)>,
    links: Vec<Link>,
    visited_count: u64,
}

impl<'a, 'b, M: Model, const W: usize> Cheapest<'a, 'b, M, W> {
    fn new(
        levels: &'a Levels<'b, M::Action>,
        model: &mut M,
        prices: &'a Prices,
        mistake: Mistake,
    ) -> Self {
        let mut search = Self {
            ground: Ground::new(levels, model, mistake),
            prices,
            here: Antichain::new(Account::Price),
            place: 0,
            next: Antichain::new(Account::Price),
            passing: Vec::new(),
            links: Vec::new(),
            visited_count: 0,
        };
        let root = search.ground.walker::<1>(model).root(&mut |_| {});
        let kinds = Kinds::of(&search.ground.window);
        search.here.insert(&root, &kinds, NEVER);
        search
    }

    fn level(&self) -> u32 {
        self.ground.window.level() as u32
    }

    fn memory_bytes(&self) -> u64 {
        let links = self.links.capacity() * size_of::<Link>();
        let passing = self.passing.capacity() * size_of::<(Configuration<W, 1>, u32)>();
        self.here.memory_bytes() + self.next.memory_bytes() + (links + passing) as u64
    }

    /// Passes one level, or visits as many configurations as are allowed. Says how it ended, if it has.
    fn go_on(&mut self, model: &mut M, allowance: u64) -> Option<Way> {
        let until = self.visited_count + allowance;
        while self.place < self.here.len() {
            if self.visited_count >= until {
                return None;
            }
            if let Some((configuration, link)) = self.here.get(self.place) {
                self.expand(model, &configuration, link);
            }
            self.place += 1;
        }
        self.place = 0;
        if self.passing.is_empty() {
            return Some(Way::TooExpensive);
        }
        let mut passing = std::mem::take(&mut self.passing);
        {
            let walker = self.ground.walker::<1>(model);
            for (configuration, _) in &mut passing {
                walker.leave(configuration);
            }
        }
        let opened = self.ground.walker::<1>(model).forward();
        if self.ground.window.level() == self.ground.levels.count() {
            let cheapest = passing
                .iter()
                .min_by_key(|(configuration, _)| configuration.optional.number());
            return cheapest.map(|(_, link)| Way::Found(self.way(*link)));
        }
        self.next.clear();
        let kinds = Kinds::of(&self.ground.window);
        for (mut configuration, link) in passing.drain(..) {
            let mut walker = self.ground.walker::<1>(model);
            if walker.enter(&mut configuration, &opened, &mut |_| {}) {
                self.next.insert(&configuration, &kinds, link);
            }
        }
        self.passing = passing;
        std::mem::swap(&mut self.here, &mut self.next);
        None
    }

    /// Adds what the configuration leads to at this level.
    fn expand(&mut self, model: &mut M, from: &Configuration<W, 1>, link: u32) {
        self.visited_count += 1;
        let due = self.ground.walker::<1>(model).due(from);
        if due == Due::Nothing {
            self.passing.push((*from, link));
            return;
        }
        if due == Due::LastChance {
            let link = self.link(link, Move::Complete, from.level);
            self.passing.push((*from, link));
        }
        let kinds = Kinds::of(&self.ground.window);
        let open_count = self.ground.window.open_count();
        for number in 0..open_count {
            let Some(slot) = self.ground.window.slot(number) else {
                break;
            };
            let by = Move::Open(slot as u32);
            if let Some(next) = self.ground.walker::<1>(model).after(from, by, &mut |_| {}) {
                self.add(&next, &kinds, link, by);
            }
        }
        for class in 0..self.ground.levels.optional.len() {
            let Some(cost) = self.prices.cost(class, from.level) else {
                // Classes are in the order in which they begin.
                break;
            };
            let paid = from.optional.number() + cost;
            if paid > self.prices.budget() {
                continue;
            }
            let action = self.ground.levels.optional[class].action;
            let mut walker = self.ground.walker::<1>(model);
            if let Some(mut next) = walker.after_unknown(from, action, NEVER, &mut |_| {}) {
                next.optional = Bits::of_number(paid);
                self.add(&next, &kinds, link, Move::Optional(class as u32));
            }
        }
    }

    fn add(&mut self, next: &Configuration<W, 1>, kinds: &Kinds<W>, before: u32, by: Move) {
        self.visited_count += 1;
        if self.here.insert(next, kinds, self.links.len() as u32) {
            self.link(before, by, next.level);
        }
    }

    fn link(&mut self, before: u32, by: Move, level: u32) -> u32 {
        self.links.push(Link { before, by, level });
        self.links.len() as u32 - 1
    }

    /// All moves up to a link.
    fn way(&self, mut link: u32) -> Vec<(Move, u32)> {
        let mut way = Vec::new();
        while let Some(Link { before, by, level }) = self.links.get(link as usize) {
            way.push((*by, *level));
            link = *before;
        }
        way.reverse();
        way
    }
}
