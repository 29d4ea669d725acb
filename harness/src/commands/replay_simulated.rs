//! Owns `harness replay` in the simulation: whether a recorded run comes back event by event.
//! Never calls two runs the same on less evidence than the digest over all their events.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use anyhow::Context as _;
use results::manifest::{Manifest, Simulation};
use results::schedule::Schedule;
use results::store::{RunFolder, Store};
use results::verdict::{Validity, Verdict};
use serde_json::json;

use super::announce;
use super::replay::{comparison, exit_code, label, same_outcome};
use super::summary::Summary;
use crate::cli::ReplayArgs;
use crate::execution::{pack, verdict_of};
use crate::exit::Failure;
use crate::interrupts;
use crate::progress::Progress;
use crate::simulation::{Label, SessionPlan, Simulated, simulate, store_run};

/// Runs the schedule of `folder` in the simulation, as often as was asked.
///
/// # Errors
/// When its folder is damaged, or a run could not be stored.
pub(super) fn replay(
    args: &ReplayArgs,
    folder: &RunFolder,
    manifest: &Manifest,
    schedule: Schedule,
    command: Vec<String>,
    mut summary: Summary,
) -> Result<u8, Failure> {
    interrupts::watch().context("cannot listen for Ctrl-C")?;
    let output = &args.execution.output;
    let progress = Progress::new(output.quiet || output.json);
    let original = verdict_of(folder, &progress)?;
    let store = Store::new(&args.execution.store.out);
    let label = Label {
        beginning: label(manifest),
        replay_of: Some(manifest.name.clone()),
        command,
    };
    let plan = SessionPlan {
        seed: manifest.seed,
        options: manifest.options.clone(),
        schedule,
    };
    let mut worst = Validity::Valid;
    let mut all_same = true;
    for number in 1..=args.times {
        if interrupts::count() > 0 {
            all_same = false;
            if !output.json {
                let left = args.times - number + 1;
                announce::print(&format!(
                    "stopped; {left} of {} replays were not begun",
                    args.times
                ))?;
            }
            break;
        }
        let repeated = simulate(&plan, &Arc::new(AtomicBool::new(false)))?;
        let same = is_same(manifest, &original, &repeated);
        all_same &= same;
        worst = worst.max(repeated.verdict.valid);
        // A run that came back event by event is in the store already.
        let stored = if args.execution.keep || manifest.simulation.is_none() || !same {
            let folder = store_run(&store, &repeated, &label, true)?;
            pack(&folder, &progress);
            if let Err(error) = results_report::render_run(&folder) {
                progress.note(&format!("the report could not be drawn: {error}"));
            }
            Some(folder)
        } else {
            None
        };
        let outcome = comparison(&original, &repeated.verdict, same, (number, args.times));
        summary.run(
            (
                &match &stored {
                    Some(folder) => folder.manifest()?,
                    None => repeated.recording.manifest.clone(),
                },
                &repeated.verdict,
            ),
            stored.as_ref(),
            Some(&outcome),
            &args.execution.store.out.to_string_lossy(),
            &progress,
        );
        let text = if output.json {
            json!({
                "replay_of": manifest.name,
                "valid": repeated.verdict.valid,
                "summary": repeated.verdict.summary,
                "failures": repeated.verdict.failure_signature(),
                "digest": repeated.identity.digest,
                "same": same,
                "report": stored.map(|folder| folder.report_path().display().to_string()),
            })
            .to_string()
        } else {
            let events = events(manifest.simulation.as_ref(), &repeated.identity);
            let report = stored.map_or_else(String::new, |folder| {
                format!("\nreport:  {}", folder.report_path().display())
            });
            format!(
                "{outcome}\n{events}\nwhy:     {}{report}",
                repeated.verdict.summary
            )
        };
        announce::print(&text)?;
    }
    Ok(exit_code(worst, all_same))
}

/// A simulated run is the same if every event is; any other if it fails the same way.
fn is_same(manifest: &Manifest, original: &Verdict, repeated: &Simulated) -> bool {
    let same = same_outcome(original, &repeated.verdict);
    match &manifest.simulation {
        Some(identity) => same && *identity == repeated.identity,
        None => same,
    }
}

fn events(original: Option<&Simulation>, repeated: &Simulation) -> String {
    let Simulation {
        digest,
        event_count,
    } = repeated;
    match original {
        Some(original) if original == repeated => {
            format!("events:  all {event_count} came back, digest {digest}")
        }
        Some(original) => format!(
            "events:  NOT the same: {} with digest {}, now {event_count} with digest {digest}; \
             another build of the harness, or a changed folder, does that",
            original.event_count, original.digest
        ),
        None => {
            format!("events:  {event_count}, digest {digest}; the run was not simulated before")
        }
    }
}
