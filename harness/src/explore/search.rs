//! Owns the search through all states, breadth first, and the way back from a state that breaks a rule.
//! Never goes on beyond the depth, the memory or the time that it is given.

use std::time::{Duration, Instant};

use rustc_hash::FxHashSet;

use super::bounds::Bounds;
use super::choice::{Choice, choices};
use super::cluster::{Cluster, Course};
use super::member::Known;
use super::rules::{Checked, Violation};
use super::steps::{NoBeginning, StepFile, beginning, retrace};
use crate::memory;

/// How many states are expanded between two looks at the limits.
const CHUNK: usize = 4096;

/// What ends an exploration before it is exhausted.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// How many things happen one after the other.
    pub depth: u32,
    /// How much memory may be used, in bytes.
    pub memory_bytes: u64,
    /// How long it may take.
    pub time: Duration,
    /// How many threads work.
    pub jobs: usize,
}

/// Why an exploration ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Ended {
    /// Every state within the bounds was reached and judged, whatever the depth.
    Complete,
    /// Every state within the bounds and the depth was reached and judged.
    AtDepth,
    /// A rule was broken.
    Violated(Violation),
    /// It would have used more memory than it may.
    OutOfMemory,
    /// It took as long as it may.
    OutOfTime,
    /// Somebody interrupted it.
    Interrupted,
}

/// Where an exploration stands.
#[derive(Debug, Clone, Copy)]
pub struct Progress {
    /// The depth that is being explored.
    pub depth: u32,
    /// Different states so far.
    pub states: u64,
    /// Things that happened so far.
    pub transitions: u64,
    /// States of this depth that are expanded, of so many.
    pub expanded: (usize, usize),
    /// Time so far.
    pub elapsed: Duration,
}

/// What came out of an exploration.
#[derive(Debug, Clone)]
pub struct Exploration {
    /// Why it ended.
    pub ended: Ended,
    /// Different states that were reached.
    pub states: u64,
    /// Things that happened, each judged.
    pub transitions: u64,
    /// States that were judged, but not gone on from, as an epoch in them is too late.
    pub beyond_epochs: u64,
    /// The depth down to which every state was reached and judged.
    pub depth: u32,
    /// How many states were new at each depth, from 0.
    pub new_states: Vec<u64>,
    /// How often each rule was checked.
    pub checked: Checked,
    /// How long it took.
    pub elapsed: Duration,
    /// The way to the violation, if there is one.
    pub counterexample: Option<StepFile>,
}

/// What expanding some states gave.
#[derive(Default)]
struct Expanded {
    /// New states, perhaps several times: who they come from, by which choice.
    found: Vec<(u64, Cluster, u32, u16)>,
    transitions: u64,
    beyond_epochs: u64,
    checked: Checked,
    violation: Option<(u32, u16, Violation)>,
}

/// Explores everything within bounds and limits. `show` is told now and then where it stands, and says
/// whether to go on.
///
/// # Errors
/// When the bounds name a bug that does not exist or cannot be explored, or there is no such beginning.
pub fn explore(
    bounds: &Bounds,
    limits: &Limits,
    show: &mut dyn FnMut(&Progress) -> bool,
) -> Result<Exploration, String> {
    let course = Course::new(bounds)?;
    let start = beginning(&course, bounds);
    let mut search = Search {
        course,
        limits,
        began: Instant::now(),
        way: None,
        visited: FxHashSet::default(),
        comes_from: vec![(0, 0)],
        known: (0..limits.jobs.max(1)).map(|_| Known::default()).collect(),
        exploration: Exploration {
            ended: Ended::AtDepth,
            states: 1,
            transitions: 0,
            beyond_epochs: 0,
            depth: 0,
            new_states: vec![1],
            checked: Checked::default(),
            elapsed: Duration::ZERO,
            counterexample: None,
        },
    };
    match start {
        Ok(start) => {
            search.visited.insert(start.digest());
            search.run(start, show);
        }
        Err(NoBeginning::Violated(violation, steps)) => {
            search.exploration.ended = Ended::Violated(violation);
            search.exploration.counterexample = Some(*steps);
        }
        Err(NoBeginning::Never(what)) => {
            return Err(format!("the first two nodes do not elect a leader: {what}"));
        }
    }
    search.exploration.elapsed = search.began.elapsed();
    if let Some(way) = &search.way {
        search.exploration.counterexample = Some(retrace(&course, bounds, way)?);
    }
    Ok(search.exploration)
}

struct Search<'a> {
    course: Course,
    limits: &'a Limits,
    began: Instant,
    /// The places of the choices that lead to a violation.
    way: Option<Vec<u16>>,
    visited: FxHashSet<u64>,
    /// For each state: the one it was found from, and by which of its choices.
    comes_from: Vec<(u32, u16)>,
    /// One for each thread.
    known: Vec<Known>,
    exploration: Exploration,
}

impl Search<'_> {
    fn run(&mut self, start: Cluster, show: &mut dyn FnMut(&Progress) -> bool) {
        let mut frontier = vec![(0_u32, start)];
        for depth in 1..=self.limits.depth {
            let mut next = Vec::new();
            for begun in (0..frontier.len()).step_by(CHUNK) {
                if let Some(ended) = self.limit_reached(depth, begun, frontier.len(), show) {
                    self.exploration.ended = ended;
                    return;
                }
                let chunk = &frontier[begun..frontier.len().min(begun + CHUNK)];
                for expanded in self.expand_all(chunk) {
                    if self.take(expanded, &mut next) {
                        return;
                    }
                }
            }
            self.exploration.depth = depth;
            self.exploration.new_states.push(next.len() as u64);
            frontier = next;
            if frontier.is_empty() {
                self.exploration.ended = Ended::Complete;
                return;
            }
        }
    }

    fn limit_reached(
        &self,
        depth: u32,
        expanded: usize,
        of: usize,
        show: &mut dyn FnMut(&Progress) -> bool,
    ) -> Option<Ended> {
        let elapsed = self.began.elapsed();
        let goes_on = show(&Progress {
            depth,
            states: self.exploration.states,
            transitions: self.exploration.transitions,
            expanded: (expanded, of),
            elapsed,
        });
        // A chunk finds less than this many states, and every number here must fit.
        let is_full = self.comes_from.len() > u32::MAX as usize - CHUNK * usize::from(u16::MAX);
        let used = memory::resident_bytes().unwrap_or(0);
        if !goes_on {
            Some(Ended::Interrupted)
        } else if used > self.limits.memory_bytes || is_full {
            Some(Ended::OutOfMemory)
        } else if elapsed > self.limits.time {
            Some(Ended::OutOfTime)
        } else {
            None
        }
    }

    /// Expands some states, in the order in which they are.
    fn expand_all(&mut self, chunk: &[(u32, Cluster)]) -> Vec<Expanded> {
        let (course, visited) = (&self.course, &self.visited);
        if self.known.len() == 1 || chunk.len() < CHUNK / 8 {
            return vec![expand(course, visited, &mut self.known[0], chunk)];
        }
        let share = chunk.len().div_ceil(self.known.len());
        std::thread::scope(|scope| {
            let workers = chunk.chunks(share).zip(&mut self.known);
            let workers: Vec<_> = workers
                .map(|(share, known)| scope.spawn(|| expand(course, visited, known, share)))
                .collect();
            let joined = workers.into_iter().map(|worker| match worker.join() {
                Ok(expanded) => expanded,
                Err(panic) => std::panic::resume_unwind(panic),
            });
            joined.collect()
        })
    }

    /// Takes over what was found; whether a rule was broken.
    fn take(&mut self, expanded: Expanded, next: &mut Vec<(u32, Cluster)>) -> bool {
        let exploration = &mut self.exploration;
        exploration.transitions += expanded.transitions;
        exploration.beyond_epochs += expanded.beyond_epochs;
        exploration.checked.add(&expanded.checked);
        for (digest, cluster, parent, at) in expanded.found {
            if !self.visited.insert(digest) {
                continue;
            }
            next.push((self.comes_from.len() as u32, cluster));
            self.comes_from.push((parent, at));
        }
        exploration.states = self.comes_from.len() as u64;
        let Some((number, at, violation)) = expanded.violation else {
            return false;
        };
        let mut places = vec![at];
        let mut number = number;
        while number != 0 {
            let (parent, at) = self.comes_from[number as usize];
            places.push(at);
            number = parent;
        }
        places.reverse();
        self.way = Some(places);
        self.exploration.ended = Ended::Violated(violation);
        true
    }
}

fn expand(
    course: &Course,
    visited: &FxHashSet<u64>,
    known: &mut Known,
    states: &[(u32, Cluster)],
) -> Expanded {
    let mut expanded = Expanded::default();
    for (number, cluster) in states {
        for (at, choice) in choices(cluster, course).into_iter().enumerate() {
            let at = at as u16;
            expanded.transitions += 1;
            let next = match course.after(cluster, choice, known, &mut expanded.checked) {
                Ok(next) => next,
                Err(violation) => {
                    expanded.violation = Some((*number, at, violation));
                    return expanded;
                }
            };
            if !course.goes_on_from(&next) {
                expanded.beyond_epochs += 1;
                continue;
            }
            let digest = next.digest();
            if !visited.contains(&digest) {
                expanded.found.push((digest, next, *number, at));
            }
        }
    }
    expanded
}

/// The choice at a place among all that a state has.
pub(super) fn choice_at(cluster: &Cluster, course: &Course, place: u16) -> Option<Choice> {
    let all = choices(cluster, course);
    all.get(usize::from(place)).copied()
}
