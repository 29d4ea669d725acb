//! Owns `harness run`: turns flags into a plan, refuses what cannot work, and executes it.
//! Never starts anything before everything that can be refused is.

use std::time::{SystemTime, UNIX_EPOCH};

use anyhow::Context;
use nemesis::capability::{Capabilities, Need};
use nemesis::family::Family;
use nemesis::plan::{PlanOptions, plan};
use nemesis::tuning::{Tuned, parse_tuned};
use results::manifest::{RunOptions, Voters};
use results::schedule::Schedule;
use results::store::{Store, read_schedule};

use super::{announce, bugs, cluster};
use crate::cli::{RunArgs, Switch};
use crate::duration::parse_positive_ms;
use crate::execution::{RunPlan, TIMERS, execute, forget_outcomes, node_program};
use crate::exit::Failure;
use crate::processes;
use crate::progress::Progress;
use crate::runner::START_UP_MS;
use crate::workload::WORKLOADS;

/// Most families that the name of a run names.
const FAMILIES_NAMED: usize = 4;
/// Longest beginning of a run's name.
const LABEL_LENGTH_MAX: usize = 60;

/// Executes `harness run`.
///
/// # Errors
/// When the arguments do not fit together, or the run could not be carried out.
pub fn run(args: &RunArgs, command: Vec<String>) -> Result<u8, Failure> {
    let voters = cluster::voters(args)?;
    let capabilities = cluster::capabilities(processes::capabilities(), voters);
    let capabilities = possible_at(args, capabilities);
    let tuned = tuned(args, &capabilities)?;
    let options = options(args, voters, &tuned)?;
    let seed = args.seed.unwrap_or_else(fresh_seed);
    let label = label(args, &options)?;
    let faults = Faults {
        capabilities: &capabilities,
        tuned: &tuned,
        intensity_percent: args.intensity,
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
        fail_fast: args.fail_fast,
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
    tuned: &Tuned,
) -> Result<RunOptions, Failure> {
    check_workload(&args.workload)?;
    Ok(RunOptions {
        workload: args.workload.clone(),
        nemesis: names(args, tuned),
        nodes: args.nodes,
        concurrency: args.concurrency,
        rate_per_second: args.rate,
        time_ms: args.time,
        interval_ms: args.interval,
        healthy_ms: args.healthy,
        operation_timeout_ms: args.operation_timeout,
        recovery_timeout_ms: args.recovery_timeout,
        bug: args.bug.as_deref().map(bugs::parse).transpose()?,
        timers: TIMERS,
        left_out_operations: Vec::new(),
        cluster: cluster::options(args, voters, &tuned.families),
        liveness_phase: liveness_phase(args),
    })
}

/// On where the faults were left to the harness. Whoever writes a schedule, or wants no faults, means
/// exactly that.
fn liveness_phase(args: &RunArgs) -> bool {
    match args.liveness_phase {
        Some(switch) => switch == Switch::On,
        None => args.schedule.is_none() && args.nemesis() != "none",
    }
}

/// What the world can do when clients work as these arguments say.
pub(super) fn possible_at(args: &RunArgs, capabilities: Capabilities) -> Capabilities {
    if args.rate == 0 {
        let reason = "with --rate 0, clients never wait between operations";
        return capabilities.without(Need::Burst, reason);
    }
    capabilities
}

/// The families of faults that were asked for, in a world that can do what `capabilities` say.
///
/// # Errors
/// When there is no such family, or the world cannot do it.
pub(super) fn tuned(args: &RunArgs, capabilities: &Capabilities) -> Result<Tuned, Failure> {
    if args.schedule.is_some() {
        return Ok(Tuned::default());
    }
    let mut tuned = parse_tuned(args.nemesis(), capabilities, parse_positive_ms)
        .map_err(|error| Failure::arguments(error.to_string()))?;
    if is_all(args) {
        // Whoever asks for all means what makes sense here.
        tuned
            .families
            .retain(|family| family.needed_count() <= args.nodes as usize);
        if tuned.families.contains(&Family::Membership) {
            tuned
                .families
                .retain(|family| family.conflict() != Some(Family::Membership));
        }
    }
    let conflict = tuned.families.iter().find_map(|family| {
        let other = family.conflict()?;
        tuned
            .families
            .contains(&other)
            .then_some((family.name(), other.name()))
    });
    if let Some((first, second)) = conflict {
        return Err(Failure::arguments(format!(
            "nemesis {first} and {second} cannot be combined: what is destroyed may cost a minority of the voters, \
             and while voters change, nobody can say which; leave one of them out"
        )));
    }
    Ok(tuned)
}

/// Whether all families were asked for, at whatever pace.
fn is_all(args: &RunArgs) -> bool {
    cluster::names(args.nemesis()).any(|name| name == "all")
}

fn names(args: &RunArgs, tuned: &Tuned) -> Vec<String> {
    match &args.schedule {
        Some(_) => vec!["schedule".into()],
        None => tuned.words(args.intensity),
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
        let names = options.nemesis.iter();
        let names: Vec<&str> = names.filter_map(|name| name.split(':').next()).collect();
        let names_all = args.schedule.is_none() && is_all(args);
        let nemesis = match names.as_slice() {
            [] => "none".to_owned(),
            _ if names_all => "all".to_owned(),
            // Long names of folders are no help to anybody.
            names if names.len() > FAMILIES_NAMED => format!("{}-kinds", names.len()),
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
    /// Families to plan from, and how each of them comes.
    pub(super) tuned: &'a Tuned,
    /// How often those come that have no intensity of their own, in percent of the usual.
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
                family_interval_ms: faults.tuned.interval_ms.clone(),
                family_intensity_percent: faults.tuned.intensity_percent.clone(),
                intensity_percent: faults.intensity_percent,
                healthy_ms: options.healthy_ms,
                ..PlanOptions::new(
                    seed,
                    faults.tuned.families.clone(),
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
