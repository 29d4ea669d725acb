//! Owns the decision of many objects side by side (linearizability is local: each decides for itself).
//! Never starts a thread where that costs more than it saves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};
use std::time::{Duration, Instant};

use super::object::Object;
use super::timeline::Timeline;
use super::{Limits, Outcome};

/// As many operations are decided by several threads from the beginning.
const LARGE_COUNT: usize = 20_000;

/// After so long, several threads go on with whatever is left.
const ALONE_MAX: Duration = Duration::from_millis(1);

/// How many objects are decided at the same time.
#[derive(Debug, Clone, Copy)]
pub struct Effort {
    /// Threads at most.
    pub thread_count: usize,
    /// Whether the first violation ends everything.
    pub stops_at_first: bool,
}

/// Decides all objects. The memory of the limits is shared among the threads. An outcome is `None` where
/// a violation elsewhere ended everything before.
///
/// # Panics
///
/// If deciding an object does.
pub fn decide_all<'a, O: Object + Sync + 'a>(
    objects: &[(&'a O, &'a Timeline<O::Action>)],
    limits: &Limits<'_>,
    effort: Effort,
) -> Vec<Option<Outcome>>
where
    O::Action: Sync,
{
    let operation_count: usize = objects.iter().map(|(_, timeline)| timeline.len()).sum();
    let thread_count = effort.thread_count.min(objects.len()).max(1);
    let is_over = AtomicBool::new(false);
    let limits = Limits {
        memory_bytes: limits.memory_bytes / thread_count as u64,
        cancelled: limits.cancelled.or(Some(&is_over)),
        ..*limits
    };
    // Small ones first: a hard one must not use up the time of all others.
    let mut by_size: Vec<usize> = (0..objects.len()).collect();
    by_size.sort_by_key(|place| objects[*place].1.len());
    let decide = |place: usize| {
        if is_over.load(Ordering::Relaxed) {
            return None;
        }
        let (object, timeline) = objects[by_size[place]];
        let outcome = object.decide(timeline, &limits);
        if effort.stops_at_first && matches!(outcome, Outcome::NotLinearizable { .. }) {
            is_over.store(true, Ordering::Relaxed);
        }
        Some(outcome)
    };
    let is_large = operation_count >= LARGE_COUNT;
    let found = side_by_side(objects.len(), thread_count, is_large, decide);
    let mut outcomes = vec![None; objects.len()];
    for (place, outcome) in found.into_iter().enumerate() {
        outcomes[by_size[place]] = outcome;
    }
    outcomes
}

/// Does something for every number below `count`, in this order, with up to `thread_count` threads; results are
/// in the same order. What is not large is begun by one thread, and joined by others only if it takes long.
///
/// # Panics
///
/// If the work does.
pub(crate) fn side_by_side<T: Send>(
    count: usize,
    thread_count: usize,
    is_large: bool,
    work: impl Fn(usize) -> T + Sync,
) -> Vec<T> {
    let next = AtomicUsize::new(0);
    let take = || {
        let place = next.fetch_add(1, Ordering::Relaxed);
        (place < count).then_some(place)
    };
    let help = || {
        let places = std::iter::from_fn(take);
        places.map(|place| (place, work(place))).collect::<Vec<_>>()
    };
    let begun = Instant::now();
    let mut found = std::thread::scope(|scope| {
        let mut helpers = Vec::new();
        let mut found = Vec::with_capacity(count);
        loop {
            if helpers.is_empty() && (is_large || begun.elapsed() >= ALONE_MAX) {
                let left = count.saturating_sub(next.load(Ordering::Relaxed));
                let wanted = thread_count.saturating_sub(1).min(left.saturating_sub(1));
                helpers.extend((0..wanted).map(|_| scope.spawn(help)));
            }
            let Some(place) = take() else { break };
            found.push((place, work(place)));
        }
        for helper in helpers {
            match helper.join() {
                Ok(more) => found.extend(more),
                Err(panic) => std::panic::resume_unwind(panic),
            }
        }
        found
    });
    found.sort_unstable_by_key(|(place, _)| *place);
    found.into_iter().map(|(_, result)| result).collect()
}

#[cfg(test)]
mod tests {
    use std::sync::Barrier;

    use super::*;

    #[test]
    fn results_are_in_the_order_of_their_numbers() {
        for is_large in [false, true] {
            let doubled = |count| side_by_side(count, 3, is_large, |place| place * 2);
            assert_eq!(doubled(0), Vec::<usize>::new());
            assert_eq!(
                doubled(50),
                (0..50).map(|place| place * 2).collect::<Vec<_>>()
            );
        }
    }

    #[test]
    fn others_help_with_what_takes_long() {
        // The last two end only together, so by two threads.
        let meeting = Barrier::new(2);
        let results = side_by_side(3, 2, false, |place| {
            match place {
                0 => std::thread::sleep(2 * ALONE_MAX),
                _ => drop(meeting.wait()),
            }
            std::thread::current().id()
        });
        assert_eq!(results[0], std::thread::current().id());
        assert_ne!(results[1], results[2]);
    }
}
