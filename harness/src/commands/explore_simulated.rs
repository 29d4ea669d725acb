//! Owns the attempt to break by faults, in the simulation of whole nodes, what an exploration broke.
//! Never says that it succeeded unless such a run was made and judged.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use results::schedule::ScheduledFault;
use results::store::write_document;

use super::planning::Planner;
use crate::capabilities;
use crate::cli::{RunArgs, VotersFlag};
use crate::exit::Failure;
use crate::explore::{Attempt, StepFile, attempts};
use crate::interrupts;
use crate::scenario::as_asked_for;
use crate::simulation::{Simulated, simulate};

/// How long the clients of a simulated run work, in milliseconds.
const TIME_MS: u64 = 3000;
/// How much nodes keep where snapshots matter: so little that somebody needs a snapshot soon.
const RETENTION_BYTES: u64 = 1024;
/// How many seeds each schedule is tried with before the next one has its turn.
const SEEDS: u64 = 3;

/// A run of whole nodes that breaks the same rule.
#[derive(Debug)]
pub(super) struct Reproduced {
    /// What to type to have it again.
    pub(super) command: String,
    /// What it violates.
    pub(super) failures: Vec<String>,
}

/// Tries schedules made of the steps, up to `tries` runs, and leaves the one that works at `file`.
///
/// # Errors
/// When the file cannot be written, or a run cannot be planned.
pub(super) fn reproduce(
    steps: &StepFile,
    tries: u32,
    file: &Path,
) -> Result<Option<Reproduced>, Failure> {
    let attempts = attempts(steps);
    let rounds = (0..).map(|round| round * SEEDS);
    let turns = rounds.flat_map(|first| {
        let seeds = move |attempt| (first + 1..=first + SEEDS).map(move |seed| (attempt, seed));
        attempts.iter().flat_map(seeds)
    });
    let mut written = None;
    for (attempt, seed) in turns.take(tries as usize) {
        if interrupts::count() > 0 {
            return Ok(None);
        }
        if written != Some(attempt) {
            write_document(file, &attempt.schedule)?;
            written = Some(attempt);
        }
        let args = arguments(steps, attempt, file);
        let simulated = run(&args, seed)?;
        if !breaks(steps, &simulated) {
            continue;
        }
        let simulated = without_idle_faults(steps, attempt, (&args, seed), simulated, file)?;
        return Ok(Some(Reproduced {
            command: command(steps, &args, file, seed),
            failures: simulated.verdict.failure_signature(),
        }));
    }
    if written.is_some() {
        std::fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    Ok(None)
}

/// What a run of whole nodes under an attempt is asked for with.
fn arguments(steps: &StepFile, attempt: &Attempt, file: &Path) -> RunArgs {
    let bounds = &steps.bounds;
    RunArgs {
        nodes: attempt.nodes as u32,
        bug: bounds.bug.clone(),
        schedule: Some(file.to_owned()),
        time: TIME_MS,
        voters: bounds.voters_change().then_some(VotersFlag::Log),
        retention: (bounds.budget.snapshots > 0).then_some(RETENTION_BYTES),
        ..RunArgs::usual()
    }
}

fn run(args: &RunArgs, seed: u64) -> Result<Simulated, Failure> {
    let plan = Planner::new(args, capabilities::of_simulation())?.plan(seed)?;
    simulate(&plan, &Arc::new(AtomicBool::new(false)))
}

/// Whether a run breaks what the steps broke.
fn breaks(steps: &StepFile, simulated: &Simulated) -> bool {
    let failures = simulated.verdict.failure_signature();
    // A node that stops itself is told by its log.
    let stopped = steps.breaks == "node" && !failures.is_empty();
    stopped || failures.contains(&format!("epoch-history/{}", steps.breaks))
}

/// The run once more without the faults that had no effect, whose schedule stays at `file`; the run as it was, if it
/// breaks nothing without them.
fn without_idle_faults(
    steps: &StepFile,
    attempt: &Attempt,
    (args, seed): (&RunArgs, u64),
    simulated: Simulated,
    file: &Path,
) -> Result<Simulated, Failure> {
    let recorded = &simulated.recording.schedule;
    if recorded.faults.iter().all(ScheduledFault::had_effect) {
        return Ok(simulated);
    }
    let mut busy = recorded.clone();
    busy.faults.retain(ScheduledFault::had_effect);
    write_document(file, &as_asked_for(&busy))?;
    let smaller = run(args, seed)?;
    if breaks(steps, &smaller) {
        return Ok(smaller);
    }
    write_document(file, &attempt.schedule)?;
    Ok(simulated)
}

/// What to type to have a run again.
fn command(steps: &StepFile, args: &RunArgs, file: &Path, seed: u64) -> String {
    let bug = steps.bounds.bug.as_ref();
    let bug = bug.map_or_else(String::new, |bug| format!(" --bug {bug}"));
    let voters = match args.voters {
        Some(_) => " --voters log",
        None => "",
    };
    let retention = match args.retention {
        Some(bytes) => format!(" --retention {bytes}"),
        None => String::new(),
    };
    format!(
        "harness sim --schedule {} --nodes {}{voters}{retention}{bug} --time {} --seed {seed}",
        file.display(),
        args.nodes,
        TIME_MS / 1000,
    )
}
