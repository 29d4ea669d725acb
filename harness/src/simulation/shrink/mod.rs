//! Owns shrinking: the smallest plan that still fails in exactly the same way, within a budget.
//! Never accepts another failure for the one that was asked about.

mod minimize;

use std::collections::BTreeSet;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::{Duration, Instant};

use nemesis::schedule::prepare;
use results::history::{OperationType, Process};
use results::schedule::ScheduledFault;
use results::verdict::Validity;

use self::minimize::{minimize, smallest};
use super::session::{SessionPlan, Simulated, simulate};
use crate::exit::Failure;
use crate::interrupts;
use crate::runner::START_UP_MS;

/// Shortest workload and shortest fault that are tried, in milliseconds.
const TIME_MIN_MS: u64 = 100;
const DURATION_MIN_MS: u64 = 20;

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

/// What shrinking came to.
#[derive(Debug)]
pub struct Shrunk {
    /// The smallest failing run that was found; the original one if none is smaller.
    pub simulated: Simulated,
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

/// Shrinks a plan that fails. `tell` hears what each step achieved.
///
/// # Errors
/// When the plan does not fail, or names a bug that does not exist.
pub fn shrink(
    plan: SessionPlan,
    budget: Budget,
    tell: &mut dyn FnMut(&str),
) -> Result<Shrunk, Failure> {
    let simulated = simulate(&plan, &Arc::new(AtomicBool::new(false)))?;
    if simulated.verdict.valid != Validity::Invalid {
        return Err(Failure::arguments(format!(
            "the run is {} when it is run again, so there is no failure to shrink; \
             was it recorded by another build of the harness?",
            simulated.verdict.valid.word()
        )));
    }
    let before = size(&plan, &simulated);
    let mut shrinker = Shrinker {
        wanted: simulated.verdict.failure_signature(),
        best: plan,
        evidence: simulated,
        runs_left: budget.run_count,
        run_count: 0,
        deadline: Instant::now() + budget.time,
        is_exhausted: false,
    };
    type Step = (&'static str, fn(&mut Shrinker));
    let steps: [Step; 11] = [
        ("cut after the failure", Shrinker::cut_time),
        ("dropped kinds of faults", Shrinker::drop_kinds),
        ("dropped faults", Shrinker::drop_faults),
        ("began sooner", Shrinker::begin_sooner),
        // Clients take turns at operations, so fewer of them must come before fewer operations.
        ("dropped nodes and clients", Shrinker::drop_nodes),
        ("dropped operations", Shrinker::drop_operations),
        ("dropped nodes and clients again", Shrinker::drop_nodes),
        ("shortened faults", Shrinker::shorten_faults),
        ("dropped faults again", Shrinker::drop_faults),
        ("cut again", Shrinker::cut_time),
        ("dropped operations again", Shrinker::drop_operations),
    ];
    for (name, step) in steps {
        step(&mut shrinker);
        let size = size(&shrinker.best, &shrinker.evidence);
        let runs = shrinker.run_count;
        tell(&format!("{name}: {} ({runs} runs)", describe(&size)));
    }
    Ok(Shrunk {
        after: size(&shrinker.best, &shrinker.evidence),
        before,
        simulated: shrinker.evidence,
        plan: shrinker.best,
        run_count: shrinker.run_count,
        is_exhausted: shrinker.is_exhausted,
    })
}

/// The size, for people.
pub fn describe(size: &Size) -> String {
    let counted = |count: u64, noun: &str| match count {
        1 => format!("1 {noun}"),
        count => format!("{count} {noun}s"),
    };
    format!(
        "{}, {}, {}, {}, {:.1} s",
        counted(size.fault_count as u64, "fault"),
        counted(size.operation_count, "operation"),
        counted(size.node_count.into(), "node"),
        counted(size.client_count.into(), "client"),
        size.time_ms as f64 / 1e3
    )
}

fn size(plan: &SessionPlan, simulated: &Simulated) -> Size {
    let end_ns = workload_end_ns(simulated);
    let invoked = simulated.recording.history.iter().filter(|line| {
        line.operation_type == OperationType::Invoke
            && line.process != Process::Nemesis
            && line.time <= end_ns
    });
    Size {
        fault_count: plan.schedule.faults.len(),
        operation_count: invoked.count() as u64,
        node_count: plan.options.nodes,
        client_count: plan.options.concurrency,
        time_ms: plan.options.time_ms,
    }
}

/// Planned operations end with the workload; what follows are final reads.
fn workload_end_ns(simulated: &Simulated) -> u64 {
    let phases = &simulated.recording.manifest.phases;
    phases.workload_end.unwrap_or(u64::MAX)
}

struct Shrinker {
    /// What must be violated, no more and no less.
    wanted: Vec<String>,
    best: SessionPlan,
    evidence: Simulated,
    runs_left: u32,
    run_count: u32,
    deadline: Instant,
    is_exhausted: bool,
}

impl Shrinker {
    /// Tries a smaller plan and keeps it if it fails in the same way.
    fn accept(&mut self, plan: SessionPlan) -> bool {
        let over = self.runs_left == 0 || Instant::now() >= self.deadline;
        if over || interrupts::count() > 0 {
            self.is_exhausted = true;
            return false;
        }
        self.runs_left -= 1;
        self.run_count += 1;
        let Ok(simulated) = simulate(&plan, &Arc::new(AtomicBool::new(false))) else {
            return false;
        };
        let same = simulated.verdict.failure_signature() == self.wanted;
        if same {
            self.best = plan;
            self.evidence = simulated;
        }
        same
    }

    fn accept_faults(&mut self, faults: &[ScheduledFault]) -> bool {
        let mut plan = self.best.clone();
        plan.schedule.faults = faults.to_vec();
        self.accept(plan)
    }

    fn cut_time(&mut self) {
        let now_ms = self.best.options.time_ms;
        let precision_ms = (now_ms / 64).max(TIME_MIN_MS);
        smallest(0, now_ms, precision_ms, |time_ms| {
            let mut plan = self.best.clone();
            plan.options.time_ms = time_ms.max(TIME_MIN_MS);
            let end_ms = START_UP_MS + plan.options.time_ms;
            let faults = &mut plan.schedule.faults;
            faults.retain(|fault| fault.trigger.at_ms < end_ms);
            self.accept(plan)
        });
    }

    fn drop_kinds(&mut self) {
        let faults = self.best.schedule.faults.iter();
        let kinds: BTreeSet<String> = faults.map(|fault| fault.fault.kind.clone()).collect();
        for kind in kinds {
            let mut faults = self.best.schedule.faults.clone();
            faults.retain(|fault| fault.fault.kind != kind);
            self.accept_faults(&faults);
        }
    }

    fn drop_faults(&mut self) {
        let faults = self.best.schedule.faults.clone();
        minimize(faults, |faults| self.accept_faults(faults));
    }

    /// Operations keep their numbers, and with them everything drawn for them.
    fn drop_operations(&mut self) {
        let end = self.operation_numbers_end();
        let left_out = self.best.options.left_out_operations.clone();
        let is_left_out = |number: &u64| {
            left_out
                .iter()
                .any(|(from, to)| (*from..*to).contains(number))
        };
        let numbers: Vec<u64> = (0..end).filter(|number| !is_left_out(number)).collect();
        minimize(numbers, |kept| {
            let mut plan = self.best.clone();
            plan.options.left_out_operations = gaps(kept, end);
            self.accept(plan)
        });
    }

    /// Above every number of an operation that the present plan is likely to begin. Clients that leave
    /// something out get further than those who wait for answers.
    fn operation_numbers_end(&self) -> u64 {
        let options = &self.best.options;
        let left_out = options.left_out_operations.iter();
        let left_out_end = left_out.map(|(_, to)| *to).max().unwrap_or(0);
        let begun_count = size(&self.best, &self.evidence).operation_count;
        let paced_count = options.rate_per_second.saturating_mul(options.time_ms) / 1000;
        left_out_end.max(begun_count.max(paced_count) * 3 / 2 + 50)
    }

    /// Lets everything begin sooner: nothing needs to happen before the first fault, except that a leader
    /// is elected and clients have begun.
    fn begin_sooner(&mut self) {
        let faults = self.best.schedule.faults.iter();
        let Some(first_ms) = faults.map(|fault| fault.trigger.at_ms).min() else {
            return;
        };
        let original = self.best.clone();
        let idle_ms = first_ms.saturating_sub(START_UP_MS);
        let precision_ms = (idle_ms / 16).max(TIME_MIN_MS);
        smallest(0, idle_ms, precision_ms, |idle_left_ms| {
            let sooner_ms = idle_ms - idle_left_ms;
            let mut plan = original.clone();
            let time_ms = &mut plan.options.time_ms;
            *time_ms = time_ms.saturating_sub(sooner_ms).max(TIME_MIN_MS);
            for fault in &mut plan.schedule.faults {
                fault.trigger.at_ms -= sooner_ms;
            }
            self.accept(plan)
        });
    }

    fn drop_nodes(&mut self) {
        for node_count in 1..self.best.options.nodes {
            let mut plan = self.best.clone();
            plan.options.nodes = node_count;
            let nodes = plan.options.all_nodes();
            // A fault that names a node which is gone rules out the smaller cluster.
            if prepare(&mut plan.schedule, &nodes).is_ok() && self.accept(plan) {
                break;
            }
        }
        if self.best.options.cluster.observers > 0 {
            let mut plan = self.best.clone();
            plan.options.cluster.observers = 0;
            let nodes = plan.options.all_nodes();
            if prepare(&mut plan.schedule, &nodes).is_ok() {
                self.accept(plan);
            }
        }
        let client_count = u64::from(self.best.options.concurrency);
        smallest(0, client_count, 1, |client_count| {
            let mut plan = self.best.clone();
            plan.options.concurrency = client_count as u32;
            self.accept(plan)
        });
    }

    fn shorten_faults(&mut self) {
        for position in 0..self.best.schedule.faults.len() {
            let duration_ms = self.best.schedule.faults[position].duration_ms;
            let precision_ms = (duration_ms / 16).max(DURATION_MIN_MS);
            smallest(0, duration_ms, precision_ms, |duration_ms| {
                let mut plan = self.best.clone();
                plan.schedule.faults[position].duration_ms = duration_ms.max(1);
                self.accept(plan)
            });
        }
    }
}

/// The numbers below `end` that are not in `kept`, which ascends, as half-open ranges.
fn gaps(kept: &[u64], end: u64) -> Vec<(u64, u64)> {
    let mut gaps = Vec::new();
    let mut next = 0;
    for number in kept.iter().copied().chain([end]) {
        if next < number {
            gaps.push((next, number));
        }
        next = number + 1;
    }
    gaps
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn gaps_are_what_is_not_kept() {
        assert_eq!(gaps(&[2, 3, 7], 10), [(0, 2), (4, 7), (8, 10)]);
        assert_eq!(gaps(&[0], 1), []);
        assert_eq!(gaps(&[], 3), [(0, 3)]);
        assert_eq!(gaps(&[], 0), []);
    }

    #[test]
    fn sizes_are_told_in_words() {
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
    }
}
