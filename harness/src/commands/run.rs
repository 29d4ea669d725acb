//! Owns `harness run`: turns flags into a plan, refuses what cannot work, and executes it.
//! Never starts anything before everything that can be refused is.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use nemesis::capability::Capabilities;
use nemesis::family::{Family, parse_families};
use nemesis::plan::{INTENSITY_USUAL_PERCENT, PlanOptions, plan};
use results::manifest::{RunOptions, Voters};
use results::schedule::Schedule;
use results::store::{Store, read_schedule};

use super::{announce, bugs, cluster};
use crate::cli::RunArgs;
use crate::execution::{RunPlan, TIMERS, execute, forget_outcomes, node_program};
use crate::exit::Failure;
use crate::processes;
use crate::progress::Progress;
use crate::runner::START_UP_MS;
use crate::workload::WORKLOADS;

/// Longest beginning of a run's name.
const LABEL_LENGTH_MAX: usize = 60;

/// Executes `harness run`.
///
/// # Errors
/// When the arguments do not fit together, or the run could not be carried out.
pub fn run(args: &RunArgs, command: Vec<String>) -> Result<u8, Failure> {
    let voters = cluster::voters(args)?;
    let capabilities = cluster::capabilities(processes::capabilities(), voters);
    let families = families(args, &capabilities)?;
    let options = options(args, voters, &families)?;
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let label = label(args, &options)?;
    let faults = Faults {
        capabilities: &capabilities,
        families: &families,
        intensity_percent: INTENSITY_USUAL_PERCENT,
    };
    let schedule = schedule(args, &faults, &options, seed)?;
    let program = node_program(args.execution.node_bin.as_deref())?;
    let store = Store::new(&args.execution.store.out);
    let mut progress = Progress::new(args.execution.output.quiet || args.execution.output.json);
    let plan = RunPlan {
        label,
        seed,
        options,
        schedule,
        replay_of: None,
        program,
        keep: args.execution.keep,
        command,
    };
    let finished = execute(plan, &store, &mut progress)?;
    announce::verdict(
        &finished,
        &args.execution.store.out.to_string_lossy(),
        &args.execution.output,
    )
}

/// What was asked for, apart from faults and seed.
///
/// # Errors
/// When there is no such workload, or no such bug.
pub(super) fn options(
    args: &RunArgs,
    voters: Voters,
    families: &[Family],
) -> Result<RunOptions, Failure> {
    check_workload(&args.workload)?;
    Ok(RunOptions {
        workload: args.workload.clone(),
        nemesis: names(args, families),
        nodes: args.nodes,
        concurrency: args.concurrency,
        rate_per_second: args.rate,
        time_ms: args.time,
        interval_ms: args.interval,
        operation_timeout_ms: args.operation_timeout,
        recovery_timeout_ms: args.recovery_timeout,
        bug: args.bug.as_deref().map(bugs::parse).transpose()?,
        timers: TIMERS,
        left_out_operations: Vec::new(),
        cluster: cluster::options(args, voters, families),
    })
}

/// The families of faults that were asked for, in a world that can do what `capabilities` say.
///
/// # Errors
/// When there is no such family, or the world cannot do it.
pub(super) fn families(
    args: &RunArgs,
    capabilities: &Capabilities,
) -> Result<Vec<Family>, Failure> {
    if args.schedule.is_some() {
        return Ok(Vec::new());
    }
    let mut families = parse_families(args.nemesis(), capabilities)
        .map_err(|error| Failure::arguments(error.to_string()))?;
    if args.nemesis().trim() == "all" {
        // Whoever asks for all means what makes sense here.
        families.retain(|family| family.needed_count() <= args.nodes as usize);
    }
    Ok(families)
}

fn names(args: &RunArgs, families: &[Family]) -> Vec<String> {
    match &args.schedule {
        Some(_) => vec!["schedule".into()],
        None => families
            .iter()
            .map(|family| family.name().to_owned())
            .collect(),
    }
}

fn check_workload(name: &str) -> Result<(), Failure> {
    if WORKLOADS.contains(&name) {
        return Ok(());
    }
    let known = WORKLOADS.join(", ");
    let hint = did_you_mean(name, &WORKLOADS);
    Err(Failure::arguments(format!(
        "unknown workload {name:?}; known: {known}{hint}"
    )))
}

/// The end of a refusal: the known word that was probably meant, if one is near.
pub(super) fn did_you_mean(word: &str, known: &[&str]) -> String {
    nemesis::names::nearest(word, known)
        .map(|name| format!("; did you mean {name:?}?"))
        .unwrap_or_default()
}

/// Names of runs become names of folders and parts of addresses.
pub(super) fn label(args: &RunArgs, options: &RunOptions) -> Result<String, Failure> {
    let Some(name) = &args.name else {
        let nemesis = match options.nemesis.as_slice() {
            [] => "none".to_owned(),
            names => names.join("+"),
        };
        return Ok(format!("{}-{nemesis}", options.workload));
    };
    if !fits_a_folder(name, LABEL_LENGTH_MAX) {
        return Err(Failure::arguments(format!(
            "--name {name:?}: use up to {LABEL_LENGTH_MAX} letters, digits, and - _ . + between them"
        )));
    }
    Ok(name.clone())
}

/// Whether a name can be a folder in the store, a part of an address and a word of a command.
pub(super) fn fits_a_folder(name: &str, length_max: usize) -> bool {
    let fits = |letter: char| letter.is_ascii_alphanumeric() || "-_.+".contains(letter);
    !name.is_empty()
        && name.len() <= length_max
        && !name.starts_with(['.', '-'])
        && name.chars().all(fits)
}

/// Which faults there are, and how many of them.
pub(super) struct Faults<'a> {
    /// What the world can do.
    pub(super) capabilities: &'a Capabilities,
    /// Families to plan from.
    pub(super) families: &'a [Family],
    /// How often they come, in percent of the usual.
    pub(super) intensity_percent: u64,
}

/// The faults of a seed: planned, or read from a file.
pub(super) fn schedule(
    args: &RunArgs,
    faults: &Faults<'_>,
    options: &RunOptions,
    seed: u64,
) -> Result<Schedule, Failure> {
    let mut schedule = match &args.schedule {
        Some(path) => {
            // A schedule that cannot be used is a bad argument, wherever the fault lies.
            read_schedule(path).map_err(|error| Failure::BadArguments(error.into()))?
        }
        None => {
            let planned = plan(&PlanOptions {
                styles: faults.capabilities.styles(),
                intensity_percent: faults.intensity_percent,
                ..PlanOptions::new(
                    seed,
                    faults.families.to_vec(),
                    options.first_voters(),
                    options.time_ms,
                    options.interval_ms,
                )
            });
            let mut planned = planned.map_err(|error| Failure::arguments(error.to_string()))?;
            for fault in &mut planned.faults {
                fault.trigger.at_ms += START_UP_MS;
            }
            planned
        }
    };
    if args.schedule.is_some() {
        // Written by hand, or recorded: either way only what was asked for counts here.
        forget_outcomes(&mut schedule, false);
    }
    nemesis::schedule::prepare(&mut schedule, &options.all_nodes())
        .map_err(|error| Failure::arguments(error.to_string()))?;
    refuse_impossible(&schedule, faults.capabilities)?;
    let end_ms = options.time_ms.saturating_add(START_UP_MS);
    let late = schedule.faults.iter().find(|f| f.trigger.at_ms >= end_ms);
    if let Some(late) = late {
        return Err(Failure::arguments(format!(
            "fault {} of the schedule starts at {} ms, but clients end at {end_ms} ms; \
             give a longer --time",
            late.id, late.trigger.at_ms
        )));
    }
    Ok(schedule)
}

/// Refuses a schedule with faults that the world cannot do: what was asked for and does not happen would
/// otherwise look like a test.
pub(super) fn refuse_impossible(
    schedule: &Schedule,
    capabilities: &Capabilities,
) -> Result<(), Failure> {
    let refusals = capabilities.refusals(schedule);
    let Some(first) = refusals.first() else {
        return Ok(());
    };
    let more = match refusals.len() - 1 {
        0 => String::new(),
        more => format!(" (nor are {more} more faults)"),
    };
    Err(Failure::arguments(format!("{first}{more}")))
}

pub(super) fn fresh_seed() -> u64 {
    let nanoseconds = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .context("the clock is before 1970")
        .map_or(0, |time| time.as_nanos() as u64);
    // Short enough to be read out and typed.
    let stream = results::keyed_random::Stream::new(nanoseconds, "fresh-seed");
    stream.below(u64::from(std::process::id()), 0, 1 << 32)
}
