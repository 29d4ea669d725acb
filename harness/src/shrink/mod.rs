//! Owns shrinking: the smallest plan that still fails in the same way, within a budget.
//! Never accepts another failure for the one that was asked about.

mod minimize;
mod steps;
mod trials;

use std::time::{Duration, Instant};

use self::steps::Shrinker;
use crate::exit::Failure;
use crate::simulation::SessionPlan;

pub use self::trials::{InProcesses, Simulation, reproduce};

/// How much may be tried.
#[derive(Debug, Clone, Copy)]
pub struct Budget {
    /// Runs at most.
    pub run_count: u32,
    /// Wall-clock time at most.
    pub time: Duration,
}

/// How large a plan is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Size {
    /// Faults.
    pub fault_count: usize,
    /// Planned operations that clients began.
    pub operation_count: u64,
    /// Nodes.
    pub node_count: u32,
    /// Client threads.
    pub client_count: u32,
    /// Length of the workload, in milliseconds.
    pub time_ms: u64,
}

/// Where plans are tried, and what counts as the failure that is asked about.
pub trait Trial {
    /// What is left of a run that failed.
    type Evidence;

    /// Runs a plan: its evidence if it failed in the way that is asked about.
    ///
    /// # Errors
    /// When it cannot be run at all.
    fn run(&mut self, plan: &SessionPlan) -> Result<Option<Self::Evidence>, Failure>;

    /// How many runs there were.
    fn run_count(&self) -> u32;

    /// How many planned operations clients began.
    fn operation_count(evidence: &Self::Evidence) -> u64;
}

/// Usual settings of a run.
#[derive(Debug, Clone, Copy)]
pub struct Defaults {
    /// Operations per second.
    pub rate_per_second: u64,
    /// Average time a client waits for an answer.
    pub operation_timeout_ms: u64,
    /// How long the cluster may take to serve again.
    pub recovery_timeout_ms: u64,
}

/// What shrinking came to.
#[derive(Debug)]
pub struct Shrunk<E> {
    /// What is left of the smallest failing run that was found; of the first one if none is smaller.
    pub evidence: E,
    /// Its plan.
    pub plan: SessionPlan,
    /// Size before.
    pub before: Size,
    /// Size after.
    pub after: Size,
    /// How many runs it took.
    pub run_count: u32,
    /// Whether the budget was used up before everything was tried.
    pub is_exhausted: bool,
}

/// Shrinks a plan that fails, which left `evidence`. `tell` hears of each step that achieved something.
///
/// # Errors
/// When something cannot be run at all.
pub fn shrink<T: Trial>(
    plan: SessionPlan,
    evidence: T::Evidence,
    trial: &mut T,
    budget: Budget,
    defaults: Defaults,
    tell: &mut dyn FnMut(&str),
) -> Result<Shrunk<T::Evidence>, Failure> {
    let before = size::<T>(&plan, &evidence);
    let mut shrinker = Shrinker {
        best: plan,
        evidence,
        run_count_max: trial.run_count().saturating_add(budget.run_count),
        trial,
        deadline: Instant::now() + budget.time,
        defaults,
        is_exhausted: false,
        has_accepted: false,
        failure: None,
    };
    let mut size_so_far = before;
    for (name, step) in Shrinker::<T>::STEPS {
        shrinker.has_accepted = false;
        step(&mut shrinker);
        if let Some(failure) = shrinker.failure {
            return Err(failure);
        }
        let size = size::<T>(&shrinker.best, &shrinker.evidence);
        if shrinker.has_accepted {
            let runs = counted(shrinker.trial.run_count().into(), "run");
            tell(&format!(
                "{name}{} ({runs} so far)",
                gain(&size_so_far, &size)
            ));
        }
        size_so_far = size;
    }
    Ok(Shrunk {
        after: size::<T>(&shrinker.best, &shrinker.evidence),
        before,
        plan: shrinker.best,
        run_count: shrinker.trial.run_count(),
        is_exhausted: shrinker.is_exhausted,
        evidence: shrinker.evidence,
    })
}

fn size<T: Trial>(plan: &SessionPlan, evidence: &T::Evidence) -> Size {
    Size {
        fault_count: plan.schedule.faults.len(),
        operation_count: T::operation_count(evidence),
        node_count: plan.options.nodes,
        client_count: plan.options.concurrency,
        time_ms: plan.options.time_ms,
    }
}

/// The size, for people.
pub fn describe(size: &Size) -> String {
    measures(size).join(", ")
}

/// What is smaller than it was, for people: nothing, or what follows the name of a step.
fn gain(before: &Size, after: &Size) -> String {
    let both = measures(before).into_iter().zip(measures(after));
    let changed = both.filter(|(before, after)| before != after);
    let told: Vec<String> = changed
        .map(|(before, after)| format!("{after} instead of {before}"))
        .collect();
    match told.is_empty() {
        true => String::new(),
        false => format!(": {}", told.join(", ")),
    }
}

fn measures(size: &Size) -> [String; 5] {
    [
        counted(size.fault_count as u64, "fault"),
        counted(size.operation_count, "operation"),
        counted(size.node_count.into(), "node"),
        counted(size.client_count.into(), "client"),
        format!("{:.1} s", size.time_ms as f64 / 1e3),
    ]
}

/// "1 run", "2 runs".
pub(crate) fn counted(count: u64, noun: &str) -> String {
    match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn sizes_and_gains_are_told_in_words() {
        let size = Size {
            fault_count: 1,
            operation_count: 14,
            node_count: 3,
            client_count: 2,
            time_ms: 4_210,
        };
        assert_eq!(
            describe(&size),
            "1 fault, 14 operations, 3 nodes, 2 clients, 4.2 s"
        );
        let before = Size {
            fault_count: 7,
            time_ms: 9_000,
            ..size
        };
        assert_eq!(
            gain(&before, &size),
            ": 1 fault instead of 7 faults, 4.2 s instead of 9.0 s"
        );
        assert_eq!(gain(&size, &size), "");
    }
}
