//! Owns the decision of many objects side by side (linearizability is local: each decides for itself).
//! Never starts a thread where that costs more than it saves.

use std::sync::atomic::{AtomicBool, AtomicUsize, Ordering};

use super::object::Object;
use super::timeline::Timeline;
use super::{Limits, Outcome};

/// Fewer operations than this are decided on the calling thread.
const ALONE_MAX_COUNT: usize = 20_000;

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
    let thread_count = if operation_count < ALONE_MAX_COUNT {
        1
    } else {
        effort.thread_count.min(objects.len()).max(1)
    };
    let is_over = AtomicBool::new(false);
    let limits = Limits {
        memory_bytes: limits.memory_bytes / thread_count as u64,
        cancelled: limits.cancelled.or(Some(&is_over)),
        ..*limits
    };
    // Small ones first: a hard one must not use up the time of all others.
    let mut by_size: Vec<usize> = (0..objects.len()).collect();
    by_size.sort_by_key(|place| objects[*place].1.len());
    let next = AtomicUsize::new(0);
    let work = || {
        let mut found = Vec::new();
        while !is_over.load(Ordering::Relaxed)
            && let Some(place) = by_size.get(next.fetch_add(1, Ordering::Relaxed))
        {
            let (object, timeline) = objects[*place];
            let outcome = object.decide(timeline, &limits);
            if effort.stops_at_first && matches!(outcome, Outcome::NotLinearizable { .. }) {
                is_over.store(true, Ordering::Relaxed);
            }
            found.push((*place, outcome));
        }
        found
    };
    let found = if thread_count == 1 {
        work()
    } else {
        std::thread::scope(|scope| {
            let workers: Vec<_> = (0..thread_count).map(|_| scope.spawn(work)).collect();
            workers
                .into_iter()
                .flat_map(|worker| match worker.join() {
                    Ok(found) => found,
                    Err(panic) => std::panic::resume_unwind(panic),
                })
                .collect()
        })
    };
    let mut outcomes = vec![None; objects.len()];
    for (place, outcome) in found {
        outcomes[place] = Some(outcome);
    }
    outcomes
}
