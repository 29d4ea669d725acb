//! Owns `harness shrink` against real processes: by repetition, as nothing comes back for certain there.
//! Never calls a schedule smaller that failed less often than was asked for.

use super::{DEFAULTS, Origin, PROCESSES_MS, Told, budget, tell};
use crate::cli::ShrinkArgs;
use crate::commands::announce;
use crate::execution::node_program;
use crate::exit::{self, Failure};
use crate::interrupts;
use crate::progress::Progress;
use crate::shrink::{InProcesses, Trial as _, shrink as shrink_plan};
use crate::simulation::SessionPlan;

/// Shrinks a plan that violated `wanted` when it was recorded.
///
/// # Errors
/// When it does not fail again, or something cannot be run at all.
pub(super) fn shrink(
    args: &ShrinkArgs,
    origin: &Origin,
    plan: SessionPlan,
    wanted: Vec<String>,
) -> Result<u8, Failure> {
    let mut progress = Progress::new(args.output.quiet || args.output.json);
    let scratch = args
        .store
        .out
        .join(format!(".shrinking-{}", std::process::id()));
    let hits = (args.hits.min(args.tries), args.tries);
    let program = node_program(args.node_bin.as_deref())?;
    let mut trial = InProcesses::new(wanted.clone(), program, scratch, hits);
    let Some(evidence) = trial.run(&plan)? else {
        progress.clear();
        let why = if interrupts::count() > 0 {
            "interrupted before the failure".to_owned()
        } else {
            format!(
                "the failure ({}) came back neither in the simulation nor",
                wanted.join(", ")
            )
        };
        announce::print(&format!(
            "{why} in {} of {} runs of real processes, so there is nothing to shrink; more --tries or \
             fewer --hits may help",
            hits.0, hits.1
        ))?;
        return Ok(exit::UNKNOWN);
    };
    let shrunk = shrink_plan(
        plan,
        evidence,
        &mut trial,
        budget(args, PROCESSES_MS),
        DEFAULTS,
        &mut |text| progress.note(text),
    )?;
    let mut last = trial.run_plan(&shrunk.plan, &origin.label());
    last.replay_of = Some(origin.manifest.name.clone());
    last.command.clone_from(&origin.command);
    let (finished, is_alike) = trial.keep(&last, &origin.store, &mut progress)?;
    progress.clear();
    let (hit_count, tries) = shrunk.evidence.hits;
    let mut notes = vec![format!(
        "shrunk against real processes: a smaller schedule was kept if {} of at most {} runs violated any of \
         {}; the last one did in {hit_count} of {tries}",
        hits.0,
        hits.1,
        wanted.join(", ")
    )];
    if !is_alike {
        notes.push("it did not when it was run once more for this report".into());
    }
    let told = Told {
        size: (shrunk.before, shrunk.after),
        run_count: trial.run_count(),
        is_exhausted: shrunk.is_exhausted,
        failures: finished.verdict.failure_signature(),
        summary: finished.verdict.summary.clone(),
        schedule: shrunk.plan.schedule.clone(),
        scenario: None,
        notes,
    };
    tell(args, origin, &finished.folder, &told)?;
    Ok(exit::of_validity(finished.verdict.valid))
}
