//! Owns the level-by-level order of search, which is the faster one where no legal order exists.
//! Never looks back: once a level is done, its configurations are forgotten.

use super::Ended;
use super::antichain::{Antichain, Kinds, by_members};
use super::compiled::{Model, State, UNSEEN};
use super::configuration::{Configuration, Due, Ground, Move};
use super::levels::{Levels, Window};
use super::portfolio::{Deepest, Engines, Settings, order_along};
use super::timeline::NEVER;

/// How one configuration was reached from another.
#[derive(Debug, Clone, Copy)]
struct Link {
    /// Place of the link before, [`NEVER`] at the root.
    before: u32,
    by: Move,
}

/// The only configuration there was at some level: everything that follows, follows from it.
#[derive(Debug, Clone)]
pub struct Anchor<S = State> {
    /// How many completions came before.
    pub level: u32,
    /// State of the object.
    pub state: S,
    /// Open operations that still have to be taken, or may be.
    pub open: Vec<u32>,
    /// Operations taken although their outcome is unknown.
    pub used: Vec<u32>,
}

/// All configurations at one level.
pub(super) struct LevelOrder<'a, 'b, M: Model, const W: usize, const C: usize> {
    ground: Ground<'a, 'b, M, W>,
    here: Antichain<W, C>,
    next: Antichain<W, C>,
    /// Place in `here` of the configuration to go on from.
    place: usize,
    passing: Vec<(Configuration<W, C>, u32)>,
    /// How everything was reached, if that is wanted.
    links: Option<Vec<Link>>,
    deepest: Deepest,
    /// The last configuration that was the only one, if that is wanted.
    anchor: Option<Configuration<W, C>>,
    wants_anchor: bool,
    wants_states: bool,
    found: Option<u32>,
}

impl<'a, 'b, M: Model, const W: usize, const C: usize> LevelOrder<'a, 'b, M, W, C> {
    /// At the beginning of the history, which has at least one completion. Keeps the last anchor if
    /// that is wanted, or else how everything was reached.
    pub(super) fn new(
        levels: &'a Levels<'b, M::Action>,
        model: &mut M,
        settings: Settings<'_>,
    ) -> Self {
        let wants_anchor = settings.engines == Engines::Anchored;
        let account = by_members(levels, model);
        let mut search = Self {
            ground: Ground::new(levels, model, settings.mistake),
            here: Antichain::new(account.clone()),
            next: Antichain::new(account),
            place: 0,
            passing: Vec::new(),
            links: (!wants_anchor).then(Vec::new),
            deepest: Deepest::default(),
            anchor: None,
            wants_anchor,
            wants_states: settings.wants_states,
            found: None,
        };
        let root = search.ground.walker::<C>(model).root(&mut |_| {});
        search.visit(&root);
        let kinds = Kinds::of(&search.ground.window);
        search.here.insert(&root, &kinds, NEVER);
        search.drop_anchor();
        search
    }

    fn visit(&mut self, configuration: &Configuration<W, C>) {
        if self.wants_states {
            self.deepest.visit(configuration.level, configuration.state);
        } else {
            self.deepest.level = configuration.level;
        }
    }

    fn link(&mut self, before: u32, by: Move) -> u32 {
        match &mut self.links {
            Some(links) => {
                links.push(Link { before, by });
                links.len() as u32 - 1
            }
            None => NEVER,
        }
    }

    /// Visits up to about `allowance` more configurations; `None` when there are more.
    pub(super) fn run(&mut self, model: &mut M, allowance: u64) -> Option<Ended> {
        let mut visited = 0;
        while self.found.is_none() {
            if visited >= allowance {
                return None;
            }
            if self.place == self.here.len() {
                visited += 1;
                if self.passing.is_empty() {
                    return Some(Ended::Exhausted);
                }
                self.go_on(model);
                continue;
            }
            let current = self.here.get(self.place);
            self.place += 1;
            if let Some((configuration, link)) = current {
                visited += self.expand(model, &configuration, link);
            }
        }
        let order = self.links.as_ref().map_or_else(Vec::new, |links| {
            let mut moves = Vec::new();
            let mut link = self.found.unwrap_or(NEVER);
            while let Some(Link { before, by }) = links.get(link as usize) {
                moves.push(*by);
                link = *before;
            }
            let moves = moves.into_iter().rev();
            order_along::<M, W, C>(self.ground.levels, model, moves, self.ground.mistake)
        });
        Some(Ended::Found(order))
    }

    /// Adds what the configuration leads to; returns how much that was.
    fn expand(&mut self, model: &mut M, from: &Configuration<W, C>, link: u32) -> u64 {
        let due = self.ground.walker::<C>(model).due(from);
        if due == Due::Nothing {
            self.passing.push((*from, link));
            return 1;
        }
        let mut visited = 1;
        if due == Due::LastChance {
            let link = self.link(link, Move::Complete);
            self.passing.push((*from, link));
        }
        let kinds = Kinds::of(&self.ground.window);
        let open_count = self.ground.window.open_count();
        for number in 0..open_count + self.ground.levels.optional.len() {
            let by = match self.ground.window.slot(number) {
                Some(slot) => Move::Open(slot as u32),
                None => Move::Optional((number - open_count) as u32),
            };
            if let Move::Optional(class) = by
                && self.ground.levels.optional[class as usize].from_level[0] > from.level
            {
                break;
            }
            let Some(next) = self.ground.walker::<C>(model).after(from, by, &mut |_| {}) else {
                continue;
            };
            visited += 1;
            let next_link = self
                .links
                .as_ref()
                .map_or(NEVER, |links| links.len() as u32);
            if self.here.insert(&next, &kinds, next_link) {
                self.visit(&next);
                self.link(link, by);
            }
        }
        visited
    }

    /// Goes to the next level with everything that passed this one.
    fn go_on(&mut self, model: &mut M) {
        let mut passing = std::mem::take(&mut self.passing);
        {
            let walker = self.ground.walker::<C>(model);
            for (configuration, _) in &mut passing {
                walker.leave(configuration);
            }
        }
        let opened = self.ground.walker::<C>(model).forward();
        self.next.clear();
        let is_end = self.ground.window.level() == self.ground.levels.count();
        let kinds = Kinds::of(&self.ground.window);
        for (mut configuration, link) in passing.drain(..) {
            if is_end {
                self.found = Some(link);
                break;
            }
            if self
                .ground
                .walker::<C>(model)
                .enter(&mut configuration, &opened, &mut |_| {})
            {
                self.visit(&configuration);
                self.next.insert(&configuration, &kinds, link);
            }
        }
        passing.clear();
        self.passing = passing;
        std::mem::swap(&mut self.here, &mut self.next);
        self.place = 0;
        if !is_end {
            self.drop_anchor();
        }
    }

    /// Remembers the only configuration there is, if there is only one.
    fn drop_anchor(&mut self) {
        if !self.wants_anchor || self.here.alive_count() != 1 {
            return;
        }
        let Some(only) = self.here.alive().next() else {
            return;
        };
        if only.state != UNSEEN {
            self.anchor = Some(*only);
        }
    }

    /// The last level at which there was only one configuration, and what was open there.
    pub(super) fn anchor(&self, model: &M) -> Option<Anchor> {
        let only = self.anchor?;
        let mut window =
            Window::<M::Action, W>::new(self.ground.levels, |action| model.kind(action));
        while window.level() < only.level as usize {
            window.forward(self.ground.levels, |action| model.kind(action));
        }
        let may_be_taken = |slot: &usize| {
            !only.done.contains(*slot)
                || window.blind.contains(*slot) && !only.taken.contains(*slot)
        };
        let slots = (0..window.open_count()).filter_map(|number| window.slot(number));
        let open = slots
            .filter(may_be_taken)
            .map(|slot| window.operation(slot))
            .collect();
        let mut used = Vec::new();
        for class in &self.ground.levels.optional {
            for (member, operation) in class.operations.iter().enumerate() {
                if only.optional.contains(class.first + member) {
                    used.push(*operation);
                }
            }
        }
        Some(Anchor {
            level: only.level,
            state: only.state,
            open,
            used,
        })
    }

    pub(super) fn deepest(&self) -> &Deepest {
        &self.deepest
    }

    pub(super) fn memory_bytes(&self) -> u64 {
        let links = self.links.as_ref().map_or(0, Vec::capacity) * size_of::<Link>();
        let passing = self.passing.capacity() * size_of::<(Configuration<W, C>, u32)>();
        self.here.memory_bytes() + self.next.memory_bytes() + (links + passing) as u64
    }
}
