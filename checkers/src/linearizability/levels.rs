//! Owns the compiled form of a timeline: completions as levels, and what is open at each.
//! Never searches.

use std::collections::BTreeMap;

use super::bits::Bits;
use super::models::Kind;
use super::timeline::{NEVER, Timeline};

/// Equal operations of unknown outcome, in the order of their invocation.
#[derive(Debug)]
pub(super) struct OptionalClass<A> {
    pub(super) action: A,
    /// Number of the first member; the others follow it.
    pub(super) first: usize,
    /// Numbers of the operations.
    pub(super) operations: Vec<u32>,
    /// First level at which each member may be taken, ascending.
    pub(super) from_level: Vec<u32>,
}

/// One level per completion, in the order of completions.
#[derive(Debug)]
pub(super) struct Levels<'a, A> {
    pub(super) timeline: &'a Timeline<A>,
    /// By level: the operation that completes there.
    deadline: Vec<u32>,
    /// By operation: level of its completion, [`NEVER`] without one.
    completion: Vec<u32>,
    /// Operations with a completion, in the order of their invocation.
    opened: Vec<u32>,
    /// By level: where the operations invoked before its completion end in `opened`.
    opened_end: Vec<u32>,
    /// By operation: number no other operation has while this one is open.
    slot: Vec<u16>,
    /// By operation: the operation that had the slot before.
    previous_in_slot: Vec<u32>,
    /// Ascending by the first level at which they matter.
    pub(super) optional: Vec<OptionalClass<A>>,
    open_width: usize,
}

impl<'a, A: Copy + Ord> Levels<'a, A> {
    /// Compiles. Of the operations of unknown outcome only those in `optional` are kept.
    ///
    /// `None` when more operations are open at once than can be numbered.
    pub(super) fn new(timeline: &'a Timeline<A>, optional: &[u32]) -> Option<Self> {
        let count = timeline.completed_count();
        let completion = completions(timeline);
        let mut levels = Self {
            timeline,
            deadline: Vec::with_capacity(count),
            completion,
            opened: Vec::with_capacity(count),
            opened_end: Vec::with_capacity(count),
            slot: vec![0; timeline.len()],
            previous_in_slot: vec![NEVER; timeline.len()],
            optional: Vec::new(),
            open_width: 0,
        };
        let from_level = levels.number_slots()?;
        levels.add_optional(optional, &from_level);
        Some(levels)
    }

    /// Gives out slots; returns the level at which every operation of unknown outcome begins, in the
    /// order of invocations.
    fn number_slots(&mut self) -> Option<Vec<(u32, u32)>> {
        let mut free: Vec<u16> = Vec::new();
        let mut last_in_slot: Vec<u32> = Vec::new();
        let mut begins = Vec::new();
        for event in self.timeline.events() {
            let operation = event.operation();
            if event.is_completion() {
                free.push(self.slot[operation]);
                self.deadline.push(operation as u32);
                self.opened_end.push(self.opened.len() as u32);
                continue;
            }
            if self.completion[operation] == NEVER {
                begins.push((operation as u32, self.deadline.len() as u32));
                continue;
            }
            let slot = match free.pop() {
                Some(slot) => slot,
                None => {
                    last_in_slot.push(NEVER);
                    u16::try_from(last_in_slot.len() - 1).ok()?
                }
            };
            self.slot[operation] = slot;
            self.previous_in_slot[operation] =
                std::mem::replace(&mut last_in_slot[slot as usize], operation as u32);
            self.opened.push(operation as u32);
        }
        self.open_width = last_in_slot.len();
        Some(begins)
    }

    fn add_optional(&mut self, kept: &[u32], begins: &[(u32, u32)]) {
        if kept.is_empty() {
            return;
        }
        let mut classes: BTreeMap<A, (Vec<u32>, Vec<u32>)> = BTreeMap::new();
        for operation in kept {
            let place = begins.binary_search_by_key(operation, |(operation, _)| *operation);
            let Ok(place) = place else { continue };
            let class = classes.entry(self.timeline.action(*operation as usize));
            let (operations, from_level) = class.or_default();
            operations.push(*operation);
            from_level.push(begins[place].1);
        }
        self.optional = classes
            .into_iter()
            .map(|(action, (operations, from_level))| OptionalClass {
                action,
                first: 0,
                operations,
                from_level,
            })
            .collect();
        self.optional.sort_by_key(|class| class.from_level[0]);
        let mut first = 0;
        for class in &mut self.optional {
            class.first = first;
            first += class.operations.len();
        }
    }
}

impl<A: Copy> Levels<'_, A> {
    /// How many completions there are.
    pub(super) fn count(&self) -> usize {
        self.deadline.len()
    }

    /// The operation that completes at the level.
    pub(super) fn deadline(&self, level: usize) -> usize {
        self.deadline[level] as usize
    }

    /// Level at which the operation completes, [`NEVER`] if it does not.
    pub(super) fn completion(&self, operation: usize) -> u32 {
        self.completion[operation]
    }

    /// Operations open at the level but not at the one before.
    fn opened(&self, level: usize) -> &[u32] {
        let start = match level.checked_sub(1) {
            Some(before) => self.opened_end[before],
            None => 0,
        };
        &self.opened[start as usize..self.opened_end[level] as usize]
    }

    /// How many operations with a completion are open at once at most.
    pub(super) fn open_width(&self) -> usize {
        self.open_width
    }

    /// How many optional operations there are.
    pub(super) fn optional_width(&self) -> usize {
        let classes = self.optional.iter();
        classes.map(|class| class.operations.len()).sum()
    }

    /// Bytes occupied, approximately.
    pub(super) fn memory_bytes(&self) -> u64 {
        (self.deadline.len() * 12 + self.completion.len() * 10) as u64
    }
}

/// By operation: the level of its completion.
pub(super) fn completions<A: Copy>(timeline: &Timeline<A>) -> Vec<u32> {
    let mut completion = vec![NEVER; timeline.len()];
    let completions = timeline.events().iter().filter(|one| one.is_completion());
    for (level, event) in completions.enumerate() {
        completion[event.operation()] = level as u32;
    }
    completion
}

/// What is open at one level, and how every open operation treats the state. Moves from level to
/// level, which costs as much as there are operations opened in between.
#[derive(Debug)]
pub(super) struct Window<A, const W: usize> {
    level: usize,
    /// By slot.
    operation: Vec<u32>,
    action: Vec<A>,
    pub(super) pure: Bits<W>,
    pub(super) blind: Bits<W>,
    pub(super) general: Bits<W>,
    /// Slots of open operations, the most urgent last.
    order: Vec<u16>,
}

impl<A: Copy, const W: usize> Window<A, W> {
    /// At level 0, which must exist.
    pub(super) fn new(levels: &Levels<'_, A>, kind: impl Fn(A) -> Kind) -> Self {
        let mut window = Self {
            level: 0,
            operation: vec![NEVER; levels.open_width],
            // Overwritten before it is looked at.
            action: vec![levels.timeline.action(levels.deadline(0)); levels.open_width],
            pure: Bits::EMPTY,
            blind: Bits::EMPTY,
            general: Bits::EMPTY,
            order: Vec::with_capacity(levels.open_width),
        };
        window.open(levels, &kind);
        window
    }

    /// Slots of the open operations, the most urgent first.
    pub(super) fn slot(&self, number: usize) -> Option<usize> {
        let place = self.order.len().checked_sub(number + 1)?;
        Some(self.order[place] as usize)
    }

    /// Slot of the operation that completes at this level.
    pub(super) fn deadline_slot(&self) -> usize {
        self.order[self.order.len() - 1] as usize
    }

    pub(super) fn open_count(&self) -> usize {
        self.order.len()
    }

    pub(super) fn level(&self) -> usize {
        self.level
    }

    pub(super) fn action(&self, slot: usize) -> A {
        self.action[slot]
    }

    pub(super) fn operation(&self, slot: usize) -> u32 {
        self.operation[slot]
    }

    /// Goes to the next level; returns the slots of the pure operations that are new there.
    pub(super) fn forward(&mut self, levels: &Levels<'_, A>, kind: impl Fn(A) -> Kind) -> Bits<W> {
        if let Some(slot) = self.order.pop() {
            self.remove(slot as usize);
        }
        self.level += 1;
        if self.level < levels.count() {
            self.open(levels, &kind)
        } else {
            Bits::EMPTY
        }
    }

    fn open(&mut self, levels: &Levels<'_, A>, kind: &impl Fn(A) -> Kind) -> Bits<W> {
        let mut pure = Bits::EMPTY;
        for operation in levels.opened(self.level) {
            let (number, slot) = (*operation, levels.slot[*operation as usize]);
            let action = levels.timeline.action(number as usize);
            self.operation[slot as usize] = number;
            self.action[slot as usize] = action;
            let kind = kind(action);
            self.insert(slot as usize, kind);
            if kind == Kind::Pure {
                pure.insert(slot as usize);
            }
            let urgency = levels.completion(number as usize);
            let mut place = self.order.len();
            while place > 0 {
                let other = self.operation[self.order[place - 1] as usize];
                if levels.completion(other as usize) > urgency {
                    break;
                }
                place -= 1;
            }
            self.order.insert(place, slot);
        }
        pure
    }

    /// Goes back to the level before.
    pub(super) fn back(&mut self, levels: &Levels<'_, A>, kind: impl Fn(A) -> Kind) {
        if self.level < levels.count() {
            for operation in levels.opened(self.level).iter().rev() {
                let slot = levels.slot[*operation as usize];
                self.order.retain(|other| *other != slot);
                self.remove(slot as usize);
                let previous = levels.previous_in_slot[*operation as usize];
                if previous != NEVER {
                    self.operation[slot as usize] = previous;
                    self.action[slot as usize] = levels.timeline.action(previous as usize);
                }
            }
        }
        self.level -= 1;
        let deadline = levels.deadline(self.level);
        let slot = levels.slot[deadline];
        self.insert(slot as usize, kind(levels.timeline.action(deadline)));
        self.order.push(slot);
    }

    fn insert(&mut self, slot: usize, kind: Kind) {
        match kind {
            Kind::Pure => self.pure.insert(slot),
            Kind::Blind => self.blind.insert(slot),
            Kind::General => self.general.insert(slot),
        }
    }

    fn remove(&mut self, slot: usize) {
        self.pure.remove(slot);
        self.blind.remove(slot);
        self.general.remove(slot);
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    /// Operations named by what they are; lower case begins, upper case ends.
    fn timeline(text: &str) -> Timeline<char> {
        let mut timeline = Timeline::new();
        let mut numbers = BTreeMap::new();
        for letter in text.chars() {
            let name = letter.to_ascii_lowercase();
            if letter == name {
                numbers.insert(name, timeline.invoke(name));
            } else {
                timeline.complete(numbers[&name]);
            }
        }
        timeline
    }

    fn kind(letter: char) -> Kind {
        match letter {
            'a'..='h' => Kind::General,
            'i'..='p' => Kind::Blind,
            _ => Kind::Pure,
        }
    }

    fn shown(window: &Window<char, 1>) -> String {
        (0..window.open_count())
            .filter_map(|number| Some(window.action(window.slot(number)?)))
            .collect()
    }

    #[test]
    fn a_window_goes_forward_and_back_and_is_the_same_again() {
        let timeline = timeline("abBixcCIuAjXUJ");
        let levels = Levels::new(&timeline, &[]).unwrap();
        assert_eq!(levels.count(), 7);
        let mut window = Window::<char, 1>::new(&levels, kind);
        let mut seen = vec![shown(&window)];
        for _ in 1..levels.count() {
            window.forward(&levels, kind);
            seen.push(shown(&window));
        }
        assert_eq!(seen, ["ba", "ciax", "iax", "axu", "xuj", "uj", "j"]);
        window.forward(&levels, kind);
        assert_eq!(window.open_count(), 0);
        for expected in seen.iter().rev() {
            window.back(&levels, kind);
            assert_eq!(shown(&window), *expected);
            for slot in window.pure.iter() {
                assert_eq!(kind(window.action(slot)), Kind::Pure);
            }
        }
        assert_eq!(levels.open_width(), 4);
    }

    #[test]
    fn optional_operations_are_classed_and_know_their_level() {
        let timeline = timeline("abBcdDz");
        let mut again = timeline.clone();
        again.invoke('a');
        let levels = Levels::new(&again, &[0, 2, 5]).unwrap();
        let classes: Vec<_> = levels
            .optional
            .iter()
            .map(|class| (class.action, class.first, class.from_level.clone()))
            .collect();
        assert_eq!(classes, [('a', 0, vec![0, 2]), ('c', 2, vec![1])]);
    }
}
