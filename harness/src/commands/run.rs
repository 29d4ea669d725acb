//! Owns `harness run`: refuses what cannot work, and executes what was planned.
//! Never starts anything before everything that can be refused is.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use results::store::Store;

use super::announce;
use super::planning::Planner;
use super::summary::Summary;
use crate::capabilities;
use crate::cli::RunArgs;
use crate::execution::{RunPlan, execute, node_program};
use crate::exit::Failure;
use crate::progress::Progress;

/// Executes `harness run`.
///
/// # Errors
/// When the arguments do not fit together, or the run could not be carried out.
pub fn run(args: &RunArgs, command: Vec<String>) -> Result<u8, Failure> {
    let mut summary = Summary::open(&args.execution.summary)?;
    let world = capabilities::of_processes(args.network.into());
    let planner = Planner::new(args, world)?;
    let label = planner.label()?;
    let planned = planner.plan(args.seed.unwrap_or_else(fresh_seed))?;
    let program = node_program(args.execution.node_bin.as_deref())?;
    let store = Store::new(&args.execution.store.out);
    let mut progress = Progress::new(args.execution.output.quiet || args.execution.output.json);
    let plan = RunPlan {
        label,
        seed: planned.seed,
        options: planned.options,
        schedule: planned.schedule,
        replay_of: None,
        program,
        keep: args.execution.keep,
        fail_fast: args.fail_fast,
        command,
    };
    let finished = execute(plan, &store, &mut progress)?;
    let store = args.execution.store.out.to_string_lossy();
    let run = (&finished.manifest, &finished.verdict);
    summary.run(run, Some(&finished.folder), None, &store, &progress);
    announce::verdict(&finished, &store, &args.execution.output)
}

fn fresh_seed() -> u64 {
    let nanoseconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")
        .map_or(0, |time| time.as_nanos() as u64);
    // Short enough to be read out and typed.
    let stream = results::keyed_random::Stream::new(nanoseconds, "fresh-seed");
    stream.below(u64::from(std::process::id()), 0, 1 << 32)
}
