//! Owns `harness replay`: the recorded faults again, and whether the outcome is the same.
//! Never invents a fault: one that came to nothing stays out of a replay by real processes, and one whose moment never came is asked for as it was planned.

use std::collections::BTreeMap;

use anyhow::{Context, anyhow, bail};
use checkers::replayed::{self, Replayed};
use results::manifest::{Manifest, RunOptions, SIMULATION};
use results::schedule::{FaultOutcome, ResolvedFault, Schedule};
use results::store::{RunFolder, Store};
use results::verdict::{Validity, Verdict};

use super::naming::fitting;
use super::planning::refuse_impossible;
use super::summary::Summary;
use super::{announce, cluster, replay_simulated};
use crate::capabilities::{self, NO_CLIENT_LINKS};
use crate::cli::{CONCURRENCY_MAX, NODES_MAX, NetworkFlag, OBSERVERS_MAX, ReplayArgs};
use crate::duration::WEEK_MS;
use crate::execution::{RunPlan, execute, forget_outcomes, node_program, verdict_of};
use crate::exit::{self, Failure};
use crate::interrupts;
use crate::progress::Progress;
use crate::workload::WORKLOADS;

/// Executes `harness replay`.
///
/// # Errors
/// When there is no such run, its folder is damaged, or a run could not be carried out.
pub fn replay(args: &ReplayArgs, command: Vec<String>) -> Result<u8, Failure> {
    let mut summary = Summary::open(&args.execution.summary)?;
    let store = Store::new(&args.execution.store.out);
    let folder = store.find(&args.run)?;
    let mut manifest = folder.manifest()?;
    check(&manifest).with_context(|| folder.manifest_path().display().to_string())?;
    let voters = manifest.options.cluster.voters;
    let world = args.world.as_deref().unwrap_or(&manifest.world);
    let aim = match args.targets.as_str() {
        "resolved" if world == SIMULATION => Aim::Recorded,
        "resolved" => Aim::Exactly,
        _ => Aim::Anew,
    };
    let schedule = schedule(&folder, &manifest.options, aim)?;
    if world == SIMULATION {
        refuse_network(args.network)?;
        refuse_client_links(&manifest.options)?;
        let capabilities = cluster::capabilities(capabilities::of_simulation(), voters);
        refuse_impossible(&schedule, &capabilities)?;
        return replay_simulated::replay(args, &folder, &manifest, schedule, command, summary);
    }
    if let Some(network) = args.network {
        manifest.options.cluster.network = network.into();
    }
    let mischief = std::mem::take(&mut manifest.options.cluster.mischief);
    let world = capabilities::of_processes(manifest.options.cluster.network);
    let capabilities = cluster::capabilities(world, voters);
    refuse_impossible(&schedule, &capabilities)?;
    let program = node_program(args.execution.node_bin.as_deref())?;
    let mut progress = Progress::new(args.execution.output.quiet || args.execution.output.json);
    let original = verdict_of(&folder, &progress)?;
    if !mischief.is_empty() {
        progress.note(&format!(
            "real nodes are up to no mischief; the run had {}",
            mischief.join(", ")
        ));
    }
    progress.note(&format!(
        "replaying {} ({} faults, seed {})",
        manifest.name,
        schedule.faults.len(),
        manifest.seed
    ));
    let label = label(&manifest);
    let mut same_count = 0;
    let mut same_faults_count = 0;
    let mut begun_count = 0;
    let mut compared_count = 0;
    let mut worst = Validity::Valid;
    for number in 1..=args.times {
        let plan = RunPlan {
            label: label.clone(),
            seed: manifest.seed,
            options: manifest.options.clone(),
            schedule: schedule.clone(),
            replay_of: Some(manifest.name.clone()),
            program: program.clone(),
            keep: args.execution.keep,
            fail_fast: false,
            command: command.clone(),
        };
        begun_count = number;
        let finished = execute(plan, &store, &mut progress)?;
        announce::verdict(
            &finished,
            &args.execution.store.out.to_string_lossy(),
            &args.execution.output,
        )?;
        worst = worst.max(finished.verdict.valid);
        let is_interrupted = finished.stop_reason().is_some();
        let same = same_outcome(&original, &finished.verdict);
        let compared = comparison(&original, &finished.verdict, same, (number, args.times));
        summary.run(
            (&finished.manifest, &finished.verdict),
            Some(&finished.folder),
            (!is_interrupted).then_some(compared.as_str()),
            &args.execution.store.out.to_string_lossy(),
            &progress,
        );
        if is_interrupted {
            // Half a replay compares with nothing, and whoever stops one wants no other.
            if !args.execution.output.json {
                announce::print(&format!("replay {number} of {} was stopped", args.times))?;
            }
            break;
        }
        same_count += u32::from(same);
        let replayed = replayed::compare(&finished.folder.schedule()?, &finished.standstills);
        // Where faults are aimed anew, or there were none, nothing could be another.
        same_faults_count += u32::from(replayed.as_ref().is_none_or(Replayed::is_same));
        compared_count += 1;
        if !args.execution.output.json {
            let faults = replayed.map_or_else(String::new, |replayed| format!("; {replayed}"));
            announce::print(&(compared + &faults))?;
        }
        if interrupts::count() > 0 {
            break;
        }
    }
    if args.times > 1 && !args.execution.output.json {
        let stopped = match args.times - begun_count {
            0 => String::new(),
            left => format!(" ({left} more were not begun)"),
        };
        announce::print(&format!(
            "same outcome in {same_count} of {compared_count} replays, same faults in \
             {same_faults_count}{stopped}"
        ))?;
    }
    // One that was stopped shows nothing, as little as one that differs.
    let all_same = same_count == args.times && same_faults_count == args.times;
    Ok(exit_code(worst, all_same))
}

/// The code of the worst verdict; but replays that are valid although the run was not, or that differ from
/// it otherwise, prove nothing: the failure may be gone, or only have stayed away.
pub(super) fn exit_code(worst: Validity, all_same: bool) -> u8 {
    match worst {
        Validity::Valid if !all_same => exit::UNKNOWN,
        worst => exit::of_validity(worst),
    }
}

/// A damaged manifest must not start what no command line could ask for.
pub(super) fn check(manifest: &Manifest) -> anyhow::Result<()> {
    let options = &manifest.options;
    let numbers = [
        ("nodes", options.nodes.into(), 1, NODES_MAX.into()),
        (
            "cluster.observers",
            options.cluster.observers.into(),
            0,
            OBSERVERS_MAX.into(),
        ),
        (
            "cluster.spares",
            options.cluster.spares.into(),
            0,
            OBSERVERS_MAX.into(),
        ),
        (
            "concurrency",
            options.concurrency.into(),
            1,
            CONCURRENCY_MAX.into(),
        ),
        ("time_ms", options.time_ms, 1, WEEK_MS),
        (
            "operation_timeout_ms",
            options.operation_timeout_ms,
            1,
            WEEK_MS,
        ),
        (
            "recovery_timeout_ms",
            options.recovery_timeout_ms,
            0,
            WEEK_MS,
        ),
    ];
    for (field, found, least, most) in numbers {
        if !(least..=most).contains(&found) {
            bail!("options.{field} is {found}, which is not in {least}..={most}");
        }
    }
    if !WORKLOADS.contains(&options.workload.as_str()) {
        bail!(
            "options.workload is {:?}, which is unknown",
            options.workload
        );
    }
    if let Some(bug) = &options.bug {
        bug.parse::<node::mutants::Bug>()
            .map_err(|error| anyhow!("options.bug: {error}"))?;
    }
    Ok(())
}

/// The beginning of the name of a run that repeats this one.
pub(super) fn label(manifest: &Manifest) -> String {
    // The name without its timestamp and seed; replays of replays do not pile up prefixes.
    let mut parts = manifest.name.rsplitn(3, '-');
    let label = parts.nth(2).unwrap_or(&manifest.name);
    fitting(label.strip_suffix("-replay").unwrap_or(label)) + "-replay"
}

/// Whom the faults of a replay hit.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Aim {
    /// Those who were hit, and nobody else: what came to nothing is left out, since it might come to
    /// something now. The schedule remembers what there is to compare with.
    Exactly,
    /// Those who were hit. What came to nothing is tried again: the simulation comes to the same.
    Recorded,
    /// Those who are meant now.
    Anew,
}

/// Refuses a choice of network where there is none.
pub(super) fn refuse_network(network: Option<NetworkFlag>) -> Result<(), Failure> {
    match network {
        None => Ok(()),
        Some(_) => Err(Failure::arguments(
            "--network: the simulation has a network of its own; leave it out, or say --world processes",
        )),
    }
}

/// Refuses to run in the simulation what was run with links of clients.
pub(super) fn refuse_client_links(options: &RunOptions) -> Result<(), Failure> {
    if options.cluster.client_links {
        let problem = format!("the run had --client-links: {NO_CLIENT_LINKS}");
        return Err(Failure::arguments(problem));
    }
    Ok(())
}

/// The schedule as it is to be run again, with the same times.
fn schedule(folder: &RunFolder, options: &RunOptions, aim: Aim) -> Result<Schedule, Failure> {
    let mut schedule = folder.schedule()?;
    if aim == Aim::Exactly {
        let faults = &mut schedule.faults;
        faults.retain(|fault| fault.outcome != Some(FaultOutcome::Skipped));
    }
    let recorded: BTreeMap<u64, ResolvedFault> = schedule
        .faults
        .iter()
        .filter(|fault| aim == Aim::Exactly && fault.was_injected())
        .filter_map(|fault| Some((fault.id, fault.resolved.clone()?)))
        .collect();
    for fault in &mut schedule.faults {
        // What an event started waits for the same event again.
        if let Some(resolved) = &fault.resolved
            && fault.trigger.on.is_none()
        {
            fault.trigger.at_ms = resolved.at_ms;
        }
    }
    forget_outcomes(&mut schedule, aim != Aim::Anew);
    for fault in &mut schedule.faults {
        fault.recorded = recorded.get(&fault.id).cloned();
    }
    nemesis::schedule::prepare(&mut schedule, &options.all_nodes(), &options.first_voters())
        .with_context(|| folder.schedule_path().display().to_string())?;
    Ok(schedule)
}

/// Same validity and, for a failure, at least one violated property in common.
pub(super) fn same_outcome(original: &Verdict, repeated: &Verdict) -> bool {
    let wanted = original.failure_signature();
    let found = repeated.failure_signature();
    original.valid == repeated.valid
        && (wanted.is_empty() || found.iter().any(|property| wanted.contains(property)))
}

/// How the outcome of replay `number` of `times` compares with that of the run it repeats.
pub(super) fn comparison(
    original: &Verdict,
    repeated: &Verdict,
    same: bool,
    (number, times): (u32, u32),
) -> String {
    let describe = |verdict: &Verdict| match verdict.failure_signature().as_slice() {
        [] => verdict.valid.word().to_owned(),
        violated => format!("{} ({})", verdict.valid.word(), violated.join(", ")),
    };
    let word = if same {
        "same outcome"
    } else {
        "different outcome"
    };
    format!(
        "replay {number} of {times}: {word}: was {}, now {}",
        describe(original),
        describe(repeated)
    )
}
