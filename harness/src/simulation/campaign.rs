//! Owns running many seeds side by side: one world per thread, outcomes counted, failures kept.
//! Never keeps a run in memory longer than it takes to count or store it.

#![expect(
    clippy::disallowed_types,
    clippy::disallowed_methods,
    reason = "threads and wall-clock time are about the campaign, not about any of its runs"
)]

use std::collections::{BTreeMap, BTreeSet};
use std::ops::RangeInclusive;
use std::sync::atomic::{AtomicBool, AtomicU64, Ordering};
use std::sync::{Arc, Mutex, PoisonError, mpsc};
use std::time::{Duration, Instant};

use checkers::coverage::{self, Coverage};
use nemesis::family::Family;
use nemesis::tuning::family_name;
use results::campaign::FamilyYield;
use results::verdict::Validity;

use super::session::{SessionPlan, Simulated};
use super::trial::{Trial, attempt};
use crate::exit::Failure;
use crate::interrupts;

/// What options say instead of families where the schedule was written.
pub const SCHEDULE: &str = "schedule";
/// How often interrupts are looked for and progress is shown.
const LOOK: Duration = Duration::from_millis(100);

/// What to run.
pub struct Campaign<'a> {
    /// The seeds.
    pub seeds: RangeInclusive<u64>,
    /// How many at once.
    pub job_count: usize,
    /// Whether the first failure ends it.
    pub fail_fast: bool,
    /// The plan of a seed. Called from several threads.
    pub plan: &'a (dyn Fn(u64) -> Result<SessionPlan, Failure> + Sync),
    /// Whether every run is recorded, and not only those that are not valid.
    pub records_all: bool,
    /// What to do with a recorded run, one at a time: the name under which it was stored, if it was.
    pub keep: &'a (dyn Fn(&Simulated) -> Result<Option<String>, Failure> + Sync),
    /// Where the campaign stands, several times a second.
    pub show: &'a mut dyn FnMut(&CampaignSummary),
}

/// How one seed ended.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SeedOutcome {
    /// The seed.
    pub seed: u64,
    /// Its verdict.
    pub valid: Validity,
    /// What it violated; for an unknown verdict, what is unknown.
    pub signature: Vec<String>,
    /// Why, for people.
    pub summary: String,
    /// Under which name it was stored, if it was.
    pub stored_as: Option<String>,
}

/// What came out of a campaign, so far.
#[derive(Debug, Clone, Default)]
pub struct CampaignSummary {
    /// How many seeds there are.
    pub asked_count: u64,
    /// How many are over.
    pub done_count: u64,
    /// By verdict: how many.
    pub valid_count: u64,
    /// Violated something.
    pub invalid_count: u64,
    /// Nobody can say.
    pub unknown_count: u64,
    /// Virtual time that passed in all of them, in nanoseconds.
    pub simulated_ns: u128,
    /// Events that happened in all of them.
    pub event_count: u64,
    /// How many were run more than once, with the same events each time.
    pub repeated_count: u64,
    /// Wall-clock time so far.
    pub elapsed: Duration,
    /// How many were stored.
    pub stored_count: u64,
    /// Every seed that is not valid, ascending.
    pub failures: Vec<SeedOutcome>,
    /// By family of faults: what came of it.
    pub by_family: BTreeMap<String, FamilyYield>,
    /// What faults hit, in which role and phase, in all of them.
    pub coverage: Coverage,
    /// The lowest seed that hit each cell of it that was hit.
    pub first_seeds: BTreeMap<String, u64>,
    /// Whether the user stopped it.
    pub interrupted: bool,
}

impl CampaignSummary {
    /// The worst verdict of all seeds.
    pub fn worst(&self) -> Validity {
        Validity::worst(self.failures.iter().map(|outcome| outcome.valid))
    }

    /// Failing seeds by what they violated, the largest group first.
    pub fn groups(&self) -> Vec<(Validity, Vec<String>, Vec<&SeedOutcome>)> {
        let mut groups: BTreeMap<_, Vec<&SeedOutcome>> = BTreeMap::new();
        for outcome in &self.failures {
            let key = (std::cmp::Reverse(outcome.valid), outcome.signature.clone());
            groups.entry(key).or_default().push(outcome);
        }
        let mut groups: Vec<_> = groups
            .into_iter()
            .map(|((valid, signature), outcomes)| (valid.0, signature, outcomes))
            .collect();
        groups.sort_by_key(|(valid, _, outcomes)| {
            (std::cmp::Reverse(*valid), std::cmp::Reverse(outcomes.len()))
        });
        groups
    }

    fn add(&mut self, seed: u64, trial: &Trial, stored_as: Option<String>) {
        self.done_count += 1;
        self.stored_count += u64::from(stored_as.is_some());
        self.simulated_ns += u128::from(trial.simulated_ns);
        self.event_count += trial.identity.event_count;
        self.repeated_count += u64::from(trial.is_repeated);
        self.add_families(trial);
        let verdict = &trial.verdict;
        if let Some(result) = verdict.checkers.get(coverage::NAME) {
            let coverage = Coverage::of(result);
            let hit = coverage.counts.iter().filter(|(_, count)| **count > 0);
            for (cell, _) in hit {
                let first = self.first_seeds.entry(cell.clone()).or_insert(seed);
                *first = seed.min(*first);
            }
            self.coverage.add(&coverage);
        }
        let signature = match verdict.valid {
            Validity::Valid => {
                self.valid_count += 1;
                return;
            }
            Validity::Invalid => {
                self.invalid_count += 1;
                verdict.failure_signature()
            }
            Validity::Unknown => {
                self.unknown_count += 1;
                let checkers = verdict.checkers.iter();
                let unknown = checkers.filter(|(_, result)| result.valid == Validity::Unknown);
                unknown.map(|(name, _)| name.clone()).collect()
            }
        };
        self.failures.push(SeedOutcome {
            seed,
            valid: verdict.valid,
            signature,
            summary: verdict.summary.clone(),
            stored_as,
        });
    }
}

impl CampaignSummary {
    fn add_families(&mut self, trial: &Trial) {
        let is_invalid = trial.verdict.valid == Validity::Invalid;
        // Faults of a schedule that somebody wrote are of no family; they are counted by what they are.
        let is_written = trial.nemesis.iter().any(|word| word == SCHEDULE);
        let mut on: BTreeSet<&str> = trial.nemesis.iter().map(|it| family_name(it)).collect();
        if is_written {
            on = trial
                .faults
                .iter()
                .map(|it| it.fault.kind.as_str())
                .collect();
        }
        for name in on {
            let its = self.by_family.entry(name.to_owned()).or_default();
            its.seed_count += 1;
            its.invalid_count += u64::from(is_invalid);
        }
        for fault in &trial.faults {
            let name = if is_written {
                Some(fault.fault.kind.as_str())
            } else {
                Family::of_id(fault.id).map(Family::name)
            };
            let its = name.and_then(|name| self.by_family.get_mut(name));
            if let Some(its) = its.filter(|_| fault.outcome.is_some()) {
                its.fault_count += 1;
                its.effective_count += u64::from(fault.had_effect());
            }
        }
    }
}

/// Runs all seeds.
///
/// # Errors
/// When a plan cannot be made, a run not be stored, or a seed is run twice and does not come out the
/// same; the others are stopped then.
pub fn run_campaign(campaign: Campaign<'_>) -> Result<CampaignSummary, Failure> {
    let (first, last) = (*campaign.seeds.start(), *campaign.seeds.end());
    let begun = Instant::now();
    let stop = Arc::new(AtomicBool::new(false));
    let next = AtomicU64::new(0);
    let asked_count = (last - first).saturating_add(1);
    let summary = Mutex::new(CampaignSummary {
        asked_count,
        ..CampaignSummary::default()
    });
    let Campaign {
        job_count,
        fail_fast,
        records_all,
        plan,
        keep,
        show,
        ..
    } = campaign;
    let (failed, failures) = mpsc::channel();
    std::thread::scope(|scope| {
        let (done, all_done) = mpsc::channel::<()>();
        for _ in 0..job_count.max(1) {
            let (stop, next, summary) = (&stop, &next, &summary);
            let (failed, done) = (failed.clone(), done.clone());
            scope.spawn(move || {
                let _done = done;
                loop {
                    let number = next.fetch_add(1, Ordering::Relaxed);
                    if number >= asked_count || stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let seed = first + number;
                    let outcome = plan(seed).and_then(|plan| attempt(&plan, records_all, stop));
                    if stop.load(Ordering::Relaxed) {
                        return;
                    }
                    let counted = outcome.and_then(|trial| {
                        let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
                        let failing = trial.verdict.valid == Validity::Invalid;
                        let stored_as = trial.recorded.as_ref().map(keep).transpose()?.flatten();
                        summary.add(seed, &trial, stored_as);
                        Ok(failing)
                    });
                    match counted {
                        Ok(failing) if failing && fail_fast => stop.store(true, Ordering::Relaxed),
                        Ok(_) => {}
                        Err(failure) => {
                            stop.store(true, Ordering::Relaxed);
                            let _ = failed.send(failure);
                        }
                    }
                }
            });
        }
        drop(done);
        while all_done.recv_timeout(LOOK) == Err(mpsc::RecvTimeoutError::Timeout) {
            let mut summary = summary.lock().unwrap_or_else(PoisonError::into_inner);
            if interrupts::count() > 0 {
                summary.interrupted = true;
                stop.store(true, Ordering::Relaxed);
            }
            summary.elapsed = begun.elapsed();
            show(&summary);
        }
    });
    drop(failed);
    if let Ok(failure) = failures.try_recv() {
        return Err(failure);
    }
    let mut summary = summary.into_inner().unwrap_or_else(PoisonError::into_inner);
    summary.elapsed = begun.elapsed();
    summary.failures.sort_by_key(|outcome| outcome.seed);
    Ok(summary)
}
