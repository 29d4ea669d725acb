//! Owns hunts: how many seeds, and how long, it takes until a seeded bug is noticed, one way after another.
//! Never counts an unknown verdict as noticed, and never leaves out a bug that nobody noticed.

mod ledger;
mod shrinking;
mod table;
mod targeted;

use std::collections::VecDeque;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use node::mutants::Bug;
use results::verdict::{Validity, Verdict};
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::interrupts;
use crate::simulation::{SessionPlan, verdict_on};

pub use self::ledger::{Measurement, Score, ShrunkRun, Unmodified};
pub use self::shrinking::shrink_one;
pub use self::table::{markdown, rows};
pub use self::targeted::{flags, out_of_reach};

/// How often interrupts are looked for.
const LOOK: Duration = Duration::from_millis(50);

/// How a bug is looked for.
#[derive(Debug, Clone, PartialEq, Eq, PartialOrd, Ord, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Way {
    /// Planned faults of the usual kinds, drawn like the rest of the run, in the simulation.
    Stock,
    /// Planned faults under the settings that were made for the bug, in the simulation; their flags.
    Targeted(String),
    /// The schedule of a scenario that was made for the bug, in the simulation; its name.
    Scenario(String),
    /// Planned faults against real processes.
    Processes,
}

/// Looking for one bug, in one way, over one range of seeds.
#[derive(Debug, Clone)]
pub struct Hunt {
    /// The bug.
    pub bug: Bug,
    /// The way.
    pub way: Way,
    /// Which repetition, from 1: each has seeds of its own.
    pub repetition: u32,
    /// The first seed; the next ones follow.
    pub first_seed: u64,
    /// Seeds at most.
    pub seed_count: u64,
}

/// What came of a hunt.
#[derive(Debug, Clone, Serialize, Deserialize)]
pub struct Caught {
    /// Id of the bug.
    pub bug: String,
    /// The way.
    pub way: Way,
    /// Which repetition.
    pub repetition: u32,
    /// The first seed that it may run.
    pub first_seed: u64,
    /// Seeds that it may run.
    pub seed_count: u64,
    /// Seeds that were run, the last one included.
    pub tried_count: u64,
    /// Wall-clock time of one thread, in milliseconds.
    pub elapsed_ms: u64,
    /// The seed that noticed the bug.
    pub seed: Option<u64>,
    /// What was violated there.
    pub failures: Vec<String>,
    /// Why, for people.
    pub summary: String,
    /// Whether all seeds were tried, or the bug was noticed: otherwise time was over, or somebody stopped it.
    pub is_complete: bool,
    /// Position of the measurement that it belongs to.
    pub measurement: usize,
}

impl Way {
    /// For people.
    pub fn told(&self) -> String {
        match self {
            Self::Stock => "stock".to_owned(),
            Self::Targeted(flags) => format!("targeted: {flags}"),
            Self::Scenario(name) => format!("scenario {name}"),
            Self::Processes => "processes".to_owned(),
        }
    }
}

impl Caught {
    /// Nothing yet, of a hunt that begins.
    pub fn begin(hunt: &Hunt) -> Self {
        Self {
            bug: hunt.bug.id().to_owned(),
            way: hunt.way.clone(),
            repetition: hunt.repetition,
            first_seed: hunt.first_seed,
            seed_count: hunt.seed_count,
            tried_count: 0,
            elapsed_ms: 0,
            seed: None,
            failures: Vec::new(),
            summary: String::new(),
            is_complete: false,
            measurement: 0,
        }
    }

    /// Takes the verdict on the next seed, and says whether it noticed the bug.
    pub fn judge(&mut self, seed: u64, verdict: Verdict) -> bool {
        self.tried_count += 1;
        let is_noticed = verdict.valid == Validity::Invalid;
        if is_noticed {
            self.seed = Some(seed);
            self.failures = verdict.failure_signature();
            self.summary = verdict.summary;
        }
        is_noticed
    }

    /// The hunt is over; it began at `begun`.
    pub fn finish(&mut self, begun: Instant) {
        self.is_complete = self.seed.is_some() || self.tried_count == self.seed_count;
        self.elapsed_ms = begun.elapsed().as_millis() as u64;
    }
}

/// Limits of hunting.
#[derive(Debug, Clone, Copy)]
pub struct Limits {
    /// Hunts at once.
    pub job_count: usize,
    /// Wall-clock time of one hunt at most.
    pub hunt_time: Duration,
    /// When all hunts are over at the latest.
    pub ends: Option<Instant>,
}

impl Limits {
    /// Whether nothing more may be begun.
    pub fn is_over(&self) -> bool {
        self.ends.is_some_and(|ends| Instant::now() >= ends)
    }
}

/// Makes the plan of one seed of a hunt.
pub type Planner<'a> = dyn Fn(&Hunt, u64) -> Result<SessionPlan, Failure> + Sync + 'a;

/// Hunts in the simulation, several at once; each hunt runs its seeds one after the other in one thread, so
/// how many seeds it takes does not depend on how many hunts run. Where one repetition of a hunt finds nothing,
/// the others come last, since they are likely to take long for nothing. `tell` hears of each that is over.
///
/// # Errors
/// When a plan cannot be made; the other hunts are stopped then.
pub fn hunt(
    hunts: Vec<Hunt>,
    limits: Limits,
    plan: &Planner<'_>,
    tell: &mut dyn FnMut(Caught),
) -> Result<(), Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    let left = Mutex::new(VecDeque::from(hunts));
    let mut failure = None;
    std::thread::scope(|scope| {
        let (over, overs) = mpsc::channel();
        for _ in 0..limits.job_count.max(1) {
            let (over, stop, left) = (over.clone(), &stop, &left);
            scope.spawn(move || {
                while !stop.load(Ordering::Relaxed) {
                    let take = || {
                        let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
                        left.pop_front()
                    };
                    let Some(hunt) = take().filter(|_| !limits.is_over()) else {
                        return;
                    };
                    let caught = pursue(&hunt, limits, plan, stop);
                    if caught.as_ref().is_ok_and(|caught| caught.seed.is_none()) {
                        put_off(left, &hunt);
                    }
                    if over.send(caught).is_err() {
                        return;
                    }
                }
            });
        }
        drop(over);
        loop {
            if interrupts::count() > 0 {
                stop.store(true, Ordering::Relaxed);
            }
            match overs.recv_timeout(LOOK) {
                Ok(Ok(caught)) => tell(caught),
                Ok(Err(problem)) => {
                    stop.store(true, Ordering::Relaxed);
                    failure.get_or_insert(problem);
                }
                Err(mpsc::RecvTimeoutError::Timeout) => {}
                Err(mpsc::RecvTimeoutError::Disconnected) => return,
            }
        }
    });
    failure.map_or(Ok(()), Err)
}

/// Puts the other repetitions of a hunt behind everything else that is left.
fn put_off(left: &Mutex<VecDeque<Hunt>>, hunt: &Hunt) {
    let mut left = left.lock().unwrap_or_else(PoisonError::into_inner);
    let is_other = |other: &Hunt| (other.bug, &other.way) == (hunt.bug, &hunt.way);
    let (later, sooner): (Vec<_>, Vec<_>) = left.drain(..).partition(is_other);
    left.extend(sooner);
    left.extend(later);
}

fn pursue(
    hunt: &Hunt,
    limits: Limits,
    plan: &Planner<'_>,
    stop: &Arc<AtomicBool>,
) -> Result<Caught, Failure> {
    let begun = Instant::now();
    let mut caught = Caught::begin(hunt);
    for number in 0..hunt.seed_count {
        if begun.elapsed() >= limits.hunt_time || limits.is_over() {
            break;
        }
        let seed = hunt.first_seed + number;
        let plan = plan(hunt, seed)?;
        let verdict = verdict_on(&plan, stop)?;
        if stop.load(Ordering::Relaxed) {
            break;
        }
        if caught.judge(seed, verdict) {
            break;
        }
    }
    caught.finish(begun);
    Ok(caught)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn repetitions_of_what_found_nothing_come_last() {
        let hunt = |bug, repetition| Hunt {
            bug,
            way: Way::Stock,
            repetition,
            first_seed: 1,
            seed_count: 1,
        };
        let bugs = [Bug::ClusterIdSkip, Bug::StaleRead];
        let left = [2, 3].into_iter();
        let left = left.flat_map(|repetition| bugs.map(|bug| hunt(bug, repetition)));
        let left = Mutex::new(left.collect());
        put_off(&left, &hunt(Bug::ClusterIdSkip, 1));
        let left = left.into_inner().expect("nobody panicked with it");
        let order: Vec<_> = left.iter().map(|it| (it.bug, it.repetition)).collect();
        let expected = [
            (Bug::StaleRead, 2),
            (Bug::StaleRead, 3),
            (Bug::ClusterIdSkip, 2),
            (Bug::ClusterIdSkip, 3),
        ];
        assert_eq!(order, expected);
    }
}
