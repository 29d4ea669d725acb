//! Owns the attempt to break by faults, in the simulation of whole nodes, what an exploration broke.
//! Never says that it succeeded unless such a run was made and judged.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context;
use results::store::write_document;

use super::planning::Planner;
use crate::capabilities;
use crate::cli::{RunArgs, VotersFlag};
use crate::exit::Failure;
use crate::explore::{StepFile, attempts};
use crate::interrupts;
use crate::simulation::simulate;

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
    let takes_snapshots = steps.bounds.budget.snapshots > 0;
    let wanted = format!("epoch-history/{}", steps.breaks);
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
        let args = RunArgs {
            nodes: attempt.nodes as u32,
            bug: steps.bounds.bug.clone(),
            schedule: Some(file.to_owned()),
            time: TIME_MS,
            voters: steps.bounds.voters_change().then_some(VotersFlag::Log),
            retention: takes_snapshots.then_some(RETENTION_BYTES),
            ..RunArgs::usual()
        };
        let plan = Planner::new(&args, capabilities::of_simulation())?.plan(seed)?;
        let simulated = simulate(&plan, &Arc::new(AtomicBool::new(false)))?;
        let failures = simulated.verdict.failure_signature();
        // A node that stops itself is told by its log.
        let stopped = steps.breaks == "node" && !failures.is_empty();
        if failures.contains(&wanted) || stopped {
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
            return Ok(Some(Reproduced {
                command: format!(
                    "harness sim --schedule {} --nodes {}{voters}{retention}{bug} --time {} --seed {seed}",
                    file.display(),
                    attempt.nodes,
                    TIME_MS / 1000,
                ),
                failures,
            }));
        }
    }
    if written.is_some() {
        std::fs::remove_file(file).with_context(|| format!("cannot remove {}", file.display()))?;
    }
    Ok(None)
}
