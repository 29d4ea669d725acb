//! Owns what it means to try a plan: once in the simulation, several times against real processes.
//! Never decides what is tried.

use std::collections::BTreeSet;
use std::path::PathBuf;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use results::history::{Operation, OperationType, Process};
use results::manifest::Phases;
use results::store::Store;
use results::verdict::{Validity, Verdict};

use super::Trial;
use crate::execution::{Finished, RunPlan, execute};
use crate::exit::Failure;
use crate::interrupts;
use crate::processes::NodeProgram;
use crate::progress::Progress;
use crate::simulation::{SessionPlan, Simulated, simulate, verdict_on};

/// Trying in the simulation: one run says everything.
#[derive(Debug)]
pub struct Simulation {
    wanted: Vec<String>,
    run_count: u32,
}

impl Simulation {
    /// Looks for runs that violate exactly these properties.
    pub fn new(wanted: Vec<String>) -> Self {
        Self {
            wanted,
            run_count: 0,
        }
    }
}

impl Trial for Simulation {
    type Evidence = Simulated;

    fn run(&mut self, plan: &SessionPlan) -> Result<Option<Simulated>, Failure> {
        self.run_count += 1;
        let is_wanted = |verdict: &Verdict| verdict.failure_signature() == self.wanted;
        recorded_if(plan, is_wanted)
    }

    fn run_count(&self) -> u32 {
        self.run_count
    }

    fn operation_count(simulated: &Simulated) -> u64 {
        operation_count(
            &simulated.recording.history,
            &simulated.recording.manifest.phases,
        )
    }
}

/// Looks for a seed with which the simulation fails in the way in which real processes did: something that
/// was violated there is violated. Tries the seed of `plan` first, then others, `seed_count` in all.
///
/// # Errors
/// When the plan names a bug that does not exist.
pub fn reproduce(
    plan: &SessionPlan,
    wanted: &[String],
    seed_count: u64,
) -> Result<Option<(SessionPlan, Simulated)>, Failure> {
    for number in 0..seed_count {
        if interrupts::count() > 0 {
            break;
        }
        let mut plan = plan.clone();
        plan.seed = plan.seed.wrapping_add(number);
        if let Some(simulated) = recorded_if(&plan, |verdict| is_alike(verdict, wanted))? {
            return Ok(Some((plan, simulated)));
        }
    }
    Ok(None)
}

/// The recording of a run that comes out as wanted. Most do not, and finding that out takes no recording.
fn recorded_if(
    plan: &SessionPlan,
    is_wanted: impl Fn(&Verdict) -> bool,
) -> Result<Option<Simulated>, Failure> {
    let stop = Arc::new(AtomicBool::new(false));
    if !is_wanted(&verdict_on(plan, &stop)?) {
        return Ok(None);
    }
    let simulated = simulate(plan, &stop)?;
    Ok(is_wanted(&simulated.verdict).then_some(simulated))
}

fn is_alike(verdict: &Verdict, wanted: &[String]) -> bool {
    let found = verdict.failure_signature();
    verdict.valid == Validity::Invalid && found.iter().any(|failure| wanted.contains(failure))
}

/// Trying against real processes: nothing is deterministic there, so a plan is run several times, and fails
/// if enough of them do.
#[derive(Debug)]
pub struct InProcesses {
    wanted: Vec<String>,
    program: NodeProgram,
    scratch: Store,
    scratch_path: PathBuf,
    hit_count: u32,
    tries: u32,
    run_count: u32,
}

/// A plan that failed against real processes.
#[derive(Debug)]
pub struct Hit {
    /// How many runs failed, of how many.
    pub hits: (u32, u32),
    operation_count: u64,
}

impl InProcesses {
    /// Looks for plans of which `hit_count` runs of at most `tries` violate one of these properties. What the
    /// runs leave goes to `scratch`, and is removed at once.
    pub fn new(
        wanted: Vec<String>,
        program: NodeProgram,
        scratch: PathBuf,
        (hit_count, tries): (u32, u32),
    ) -> Self {
        Self {
            wanted,
            program,
            scratch: Store::new(&scratch),
            scratch_path: scratch,
            hit_count,
            tries,
            run_count: 0,
        }
    }

    /// Runs a plan in `store`, where it stays, until it fails in the way that is asked about, or was tried
    /// often enough. Returns the last run, and whether it failed so.
    ///
    /// # Errors
    /// When it cannot be run at all.
    pub fn keep(
        &mut self,
        plan: &RunPlan,
        store: &Store,
        progress: &mut Progress,
    ) -> Result<(Finished, bool), Failure> {
        let mut number = 0;
        loop {
            number += 1;
            self.run_count += 1;
            let finished = execute(plan.clone(), store, progress)?;
            let is_alike = is_alike(&finished.verdict, &self.wanted);
            if is_alike || number >= self.tries || interrupts::count() > 0 {
                return Ok((finished, is_alike));
            }
            std::fs::remove_dir_all(finished.folder.path())
                .with_context(|| format!("cannot remove {}", finished.folder.path().display()))?;
        }
    }

    /// What it takes to run a plan.
    pub fn run_plan(&self, plan: &SessionPlan, label: &str) -> RunPlan {
        RunPlan {
            label: label.to_owned(),
            seed: plan.seed,
            options: plan.options.clone(),
            schedule: plan.schedule.clone(),
            replay_of: None,
            program: self.program.clone(),
            keep: false,
            fail_fast: false,
            command: Vec::new(),
        }
    }
}

impl Trial for InProcesses {
    type Evidence = Hit;

    fn run(&mut self, plan: &SessionPlan) -> Result<Option<Hit>, Failure> {
        let (mut hits, mut operations) = (0, 0);
        for number in 1..=self.tries {
            let left = self.tries - number + 1;
            if hits + left < self.hit_count || interrupts::count() > 0 {
                return Ok(None);
            }
            self.run_count += 1;
            let run_plan = self.run_plan(plan, "try");
            let finished = execute(run_plan, &self.scratch, &mut Progress::new(true))?;
            if is_alike(&finished.verdict, &self.wanted) {
                hits += 1;
                let recording = finished.folder.recording()?;
                operations = operation_count(&recording.history, &recording.manifest.phases);
            }
            // A folder that stays behind is removed with all others at the end.
            let _ = std::fs::remove_dir_all(finished.folder.path());
            if hits >= self.hit_count {
                return Ok(Some(Hit {
                    hits: (hits, number),
                    operation_count: operations,
                }));
            }
        }
        Ok(None)
    }

    fn run_count(&self) -> u32 {
        self.run_count
    }

    fn operation_count(hit: &Hit) -> u64 {
        hit.operation_count
    }
}

impl Drop for InProcesses {
    fn drop(&mut self) {
        // Nobody is left to tell; the folder's name says what it was.
        let _ = std::fs::remove_dir_all(&self.scratch_path);
    }
}

/// Planned operations end with the workload; what follows are the liveness phase and final reads.
fn operation_count(history: &[Operation], phases: &Phases) -> u64 {
    let end_ns = phases.workload_end.unwrap_or(u64::MAX);
    let invoked = history.iter().filter(|line| {
        line.operation_type == OperationType::Invoke
            && line.process != Process::Nemesis
            && line.time <= end_ns
    });
    let indices: BTreeSet<u64> = invoked.map(|line| line.index).collect();
    indices.len() as u64
}
