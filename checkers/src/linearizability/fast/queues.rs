//! Owns queues where every element is added at most once: the violations of Henzinger, Sezgin &
//! Vafeiadis (2013) between one or two elements, and an order where there is none.
//! Never handles a queue that was found empty, or a removal whose element nobody saw.

use rustc_hash::FxHashMap;

use super::super::models::queue::QueueAction;
use super::super::timeline::{NEVER, Timeline};
use super::Fast;

/// What happened to one element.
#[derive(Debug, Clone, Copy)]
struct Element {
    enqueue: u32,
    /// [`NEVER`] if it stayed.
    dequeue: u32,
    added: (u32, u32),
    taken: (u32, u32),
}

/// Decides; `None` where elements are not unique.
pub(in super::super) fn decide(timeline: &Timeline<QueueAction>) -> Option<Fast> {
    let intervals = timeline.intervals();
    let mut elements: FxHashMap<u32, Element> = FxHashMap::default();
    for (operation, action) in timeline.actions().iter().enumerate() {
        if let QueueAction::Enqueue(element) = action {
            let element = elements.insert(
                *element,
                Element {
                    enqueue: operation as u32,
                    dequeue: NEVER,
                    added: intervals[operation],
                    taken: (NEVER, NEVER),
                },
            );
            if element.is_some() {
                return None;
            }
        }
    }
    let mut is_possible = true;
    for (operation, action) in timeline.actions().iter().enumerate() {
        match action {
            QueueAction::Enqueue(_) => {}
            QueueAction::Dequeue(element) => {
                let taken = intervals[operation];
                match elements.get_mut(element) {
                    // One that never completed is of use only if there is no other.
                    Some(element) if element.taken.1 == NEVER => {
                        if taken.1 != NEVER || element.dequeue == NEVER {
                            element.dequeue = operation as u32;
                            element.taken = taken;
                        }
                        is_possible &= element.added.0 < taken.1;
                    }
                    _ => is_possible &= taken.1 == NEVER,
                }
            }
            _ => return None,
        }
    }
    if !is_possible {
        return Some(Fast::NotLinearizable);
    }
    let mut elements: Vec<Element> = elements
        .into_values()
        .filter(|element| element.added.1 != NEVER || element.taken.1 != NEVER)
        .collect();
    elements.sort_unstable_by_key(|element| element.added.0);
    if is_overtaken(&elements) {
        return Some(Fast::NotLinearizable);
    }
    let elements = line_up(elements)?;
    merge(&elements, timeline).map(Fast::Linearizable)
}

/// Whether an element that was added before another one was taken after it, or never.
fn is_overtaken(elements: &[Element]) -> bool {
    let mut by_added: Vec<&Element> = elements.iter().collect();
    by_added.sort_unstable_by_key(|element| element.added.1);
    let mut earlier = by_added.into_iter().peekable();
    let mut latest_taking = 0;
    for element in elements {
        while let Some(before) = earlier.next_if(|before| before.added.1 < element.added.0) {
            latest_taking = latest_taking.max(before.taken.0);
        }
        if element.taken.1 < latest_taking {
            return true;
        }
    }
    false
}

/// Elements in an order that both additions and removals allow.
fn line_up(elements: Vec<Element>) -> Option<Vec<Element>> {
    let count = elements.len();
    let sorted = |key: &dyn Fn(&Element) -> u32| {
        let mut places: Vec<usize> = (0..count).collect();
        places.sort_unstable_by_key(|place| key(&elements[*place]));
        places
    };
    let by_end = [sorted(&|one| one.added.1), sorted(&|one| one.taken.1)];
    let by_begin = [sorted(&|one| one.added.0), sorted(&|one| one.taken.0)];
    let begin = |side: usize, place: usize| match side {
        0 => elements[place].added.0,
        _ => elements[place].taken.0,
    };
    let end = |side: usize, place: usize| match side {
        0 => elements[place].added.1,
        _ => elements[place].taken.1,
    };
    let mut is_placed = vec![false; count];
    let mut sides_free = vec![0; count];
    let (mut earliest, mut begun) = ([0; 2], [0; 2]);
    let mut ready = Vec::new();
    let mut order = Vec::with_capacity(count);
    while order.len() < count {
        for side in 0..2 {
            while by_end[side]
                .get(earliest[side])
                .is_some_and(|place| is_placed[*place])
            {
                earliest[side] += 1;
            }
            let limit = by_end[side].get(earliest[side]);
            let limit = limit.map_or(NEVER, |place| end(side, *place));
            while let Some(place) = by_begin[side].get(begun[side])
                && begin(side, *place) <= limit
            {
                begun[side] += 1;
                sides_free[*place] += 1;
                if sides_free[*place] == 2 {
                    ready.push(*place);
                }
            }
        }
        let place = ready.pop()?;
        is_placed[place] = true;
        order.push(elements[place]);
    }
    Some(order)
}

/// Additions and removals, both in the order of the elements, in an order that respects real time.
fn merge(elements: &[Element], timeline: &Timeline<QueueAction>) -> Option<Vec<u32>> {
    let last = elements
        .iter()
        .rposition(|element| element.taken.1 != NEVER);
    // Up to the last that certainly was taken, all were.
    let taken = &elements[..last.map_or(0, |last| last + 1)];
    if taken.iter().any(|element| element.dequeue == NEVER) {
        return None;
    }
    let suffix_minimum = |ends: &mut dyn DoubleEndedIterator<Item = u32>| {
        let mut minimum = vec![NEVER];
        for end in ends.rev() {
            minimum.push(end.min(minimum[minimum.len() - 1]));
        }
        minimum.reverse();
        minimum
    };
    let earliest_added = suffix_minimum(&mut elements.iter().map(|element| element.added.1));
    let earliest_taken = suffix_minimum(&mut taken.iter().map(|element| element.taken.1));
    let mut order = Vec::with_capacity(timeline.len());
    let (mut added, mut removed) = (0, 0);
    while added < elements.len() || removed < taken.len() {
        let limit = earliest_added[added].min(earliest_taken[removed]);
        if removed < added.min(taken.len()) && taken[removed].taken.0 <= limit {
            order.push(taken[removed].dequeue);
            removed += 1;
        } else if added < elements.len() && elements[added].added.0 <= limit {
            order.push(elements[added].enqueue);
            added += 1;
        } else {
            return None;
        }
    }
    Some(order)
}
