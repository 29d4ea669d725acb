//! Owns the steps of shrinking: what is left out, in which order, and what may be left out at all.
//! Never keeps a smaller plan that does not fail in the way that is asked about.

use std::collections::BTreeSet;
use std::time::Instant;

use nemesis::schedule::prepare;
use results::schedule::ScheduledFault;

use super::minimize::{minimize, smallest};
use super::{Defaults, Trial};
use crate::exit::Failure;
use crate::interrupts;
use crate::runner::START_UP_MS;
use crate::simulation::SessionPlan;

/// Shortest workload and shortest fault that are tried, in milliseconds.
const TIME_MIN_MS: u64 = 100;
const DURATION_MIN_MS: u64 = 20;

/// A step, with what to tell when it is over.
pub(super) type Step<'a, T> = (&'static str, fn(&mut Shrinker<'a, T>));

/// The smallest failing plan so far, and what may still be tried.
pub(super) struct Shrinker<'a, T: Trial> {
    pub(super) trial: &'a mut T,
    pub(super) best: SessionPlan,
    pub(super) evidence: T::Evidence,
    pub(super) run_count_max: u32,
    pub(super) deadline: Instant,
    pub(super) defaults: Defaults,
    pub(super) is_exhausted: bool,
    /// Whether the present step has kept a smaller plan.
    pub(super) has_accepted: bool,
    /// The first thing that went wrong besides runs that do not fail.
    pub(super) failure: Option<Failure>,
}

impl<'a, T: Trial> Shrinker<'a, T> {
    /// All steps, in their order: what takes away most comes first.
    pub(super) const STEPS: [Step<'a, T>; 15] = [
        ("cut after the failure", Self::cut_time),
        ("dropped the liveness phase", Self::drop_liveness_phase),
        ("dropped mischief", Self::drop_mischief),
        ("dropped the other cluster", Self::drop_strangers),
        ("dropped kinds of faults", Self::drop_kinds),
        ("dropped faults", Self::drop_faults),
        ("began sooner", Self::begin_sooner),
        // Clients take turns at operations, so fewer of them must come before fewer operations.
        ("dropped nodes and clients", Self::drop_nodes),
        ("dropped operations", Self::drop_operations),
        ("dropped more nodes and clients", Self::drop_nodes),
        ("shortened faults", Self::shorten_faults),
        ("dropped more faults", Self::drop_faults),
        ("cut further", Self::cut_time),
        ("dropped more operations", Self::drop_operations),
        ("went back to usual settings", Self::use_defaults),
    ];

    /// Tries a smaller plan and keeps it if it fails in the same way.
    fn accept(&mut self, plan: SessionPlan) -> bool {
        let over = self.trial.run_count() >= self.run_count_max || Instant::now() >= self.deadline;
        if over || interrupts::count() > 0 || self.failure.is_some() {
            self.is_exhausted = true;
            return false;
        }
        match self.trial.run(&plan) {
            Ok(Some(evidence)) => {
                self.has_accepted |= plan != self.best;
                self.best = plan;
                self.evidence = evidence;
                true
            }
            Ok(None) => false,
            Err(failure) => {
                self.failure = Some(failure);
                false
            }
        }
    }

    fn drop_liveness_phase(&mut self) {
        if self.best.options.liveness_phase {
            let mut plan = self.best.clone();
            plan.options.liveness_phase = false;
            self.accept(plan);
        }
    }

    fn drop_mischief(&mut self) {
        let points = self.best.options.cluster.mischief.clone();
        if points.is_empty() {
            return;
        }
        minimize(points, |points| {
            let mut plan = self.best.clone();
            plan.options.cluster.mischief = points.to_vec();
            self.accept(plan)
        });
    }

    fn drop_strangers(&mut self) {
        if self.best.options.cluster.strangers {
            let mut plan = self.best.clone();
            plan.options.cluster.strangers = false;
            self.accept(plan);
        }
    }

    /// Settings of clients that a run has from its user, one after the other.
    fn use_defaults(&mut self) {
        let defaults = self.defaults;
        let changes: [fn(&mut SessionPlan, Defaults); 3] = [
            |plan, defaults| plan.options.rate_per_second = defaults.rate_per_second,
            |plan, defaults| plan.options.operation_timeout_ms = defaults.operation_timeout_ms,
            |plan, defaults| plan.options.recovery_timeout_ms = defaults.recovery_timeout_ms,
        ];
        for change in changes {
            let mut plan = self.best.clone();
            change(&mut plan, defaults);
            if plan.options != self.best.options {
                self.accept(plan);
            }
        }
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
        let begun_count = T::operation_count(&self.evidence);
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
            let (nodes, voters) = (plan.options.all_nodes(), plan.options.first_voters());
            // A fault that names a node which is gone rules out the smaller cluster.
            if prepare(&mut plan.schedule, &nodes, &voters).is_ok() && self.accept(plan) {
                break;
            }
        }
        if self.best.options.cluster.observers > 0 {
            let mut plan = self.best.clone();
            plan.options.cluster.observers = 0;
            let (nodes, voters) = (plan.options.all_nodes(), plan.options.first_voters());
            if prepare(&mut plan.schedule, &nodes, &voters).is_ok() {
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
}
