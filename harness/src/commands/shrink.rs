//! Owns `harness shrink`: from a simulated run that failed to a small one that fails the same way.
//! Never changes the run that it starts from.

use std::time::Duration;

use anyhow::Context;
use results::manifest::RunOptions;
use results::schedule::Schedule;
use results::store::{RunFolder, Store};
use serde_json::json;

use super::announce;
use super::replay::{check, label};
use crate::cli::ShrinkArgs;
use crate::execution::forget_outcomes;
use crate::exit::{self, Failure};
use crate::interrupts;
use crate::progress::Progress;
use crate::simulation::{Budget, Label, SessionPlan, describe, shrink as shrink_plan, store_run};

/// Executes `harness shrink`.
///
/// # Errors
/// When there is no such run, it was not simulated, it does not fail, or the result cannot be stored.
pub fn shrink(args: &ShrinkArgs, command: Vec<String>) -> Result<u8, Failure> {
    let store = Store::new(&args.store.out);
    let folder = store.find(&args.run)?;
    let manifest = folder.manifest()?;
    check(&manifest).with_context(|| folder.manifest_path().display().to_string())?;
    if !manifest.is_simulated() {
        return Err(Failure::arguments(format!(
            "{} ran in real processes, and only simulated runs can be shrunk; if \
             `harness replay {} --world simulation` fails the same way, shrink that one",
            manifest.name, manifest.name
        )));
    }
    interrupts::watch().context("cannot listen for Ctrl-C")?;
    let plan = SessionPlan {
        seed: manifest.seed,
        schedule: schedule(&folder, &manifest.options)?,
        options: manifest.options.clone(),
    };
    let progress = Progress::new(args.output.quiet || args.output.json);
    let budget = Budget {
        run_count: args.budget,
        time: Duration::from_millis(args.time_limit),
    };
    let shrunk = shrink_plan(plan, budget, &mut |text| progress.note(text))?;
    let label = Label {
        beginning: label(&manifest).trim_end_matches("-replay").to_owned() + "-shrunk",
        replay_of: Some(manifest.name.clone()),
        command,
    };
    let smaller = store_run(&store, &shrunk.simulated, &label, true)?;
    if let Err(error) = results_report::render_run(&smaller) {
        progress.note(&format!("the report could not be drawn: {error}"));
    }
    if let Err(error) = results_report::render_index(&store) {
        progress.note(&format!("the index of runs could not be drawn: {error}"));
    }
    let name = smaller.manifest()?.name;
    let verdict = &shrunk.simulated.verdict;
    if args.output.json {
        let size = |size: &crate::simulation::Size| {
            json!({
                "faults": size.fault_count,
                "operations": size.operation_count,
                "nodes": size.node_count,
                "clients": size.client_count,
                "time_ms": size.time_ms,
            })
        };
        let line = json!({
            "shrunk_from": manifest.name,
            "run": name,
            "failures": verdict.failure_signature(),
            "summary": verdict.summary,
            "before": size(&shrunk.before),
            "after": size(&shrunk.after),
            "run_count": shrunk.run_count,
            "budget_used_up": shrunk.is_exhausted,
            "report": smaller.report_path().display().to_string(),
        });
        announce::print(&line.to_string())?;
        return Ok(exit::of_validity(verdict.valid));
    }
    let exhausted = if shrunk.is_exhausted {
        "\nnote:    the budget was used up; more --budget or --time-limit may shrink it further"
    } else {
        ""
    };
    announce::print(&format!(
        "before:  {}\nafter:   {}, in {} runs{exhausted}\nwhy:     {}\nreport:  {}\nreplay:  {}",
        describe(&shrunk.before),
        describe(&shrunk.after),
        shrunk.run_count,
        verdict.summary,
        smaller.report_path().display(),
        announce::command("replay", &name, &store.root().to_string_lossy())
    ))?;
    Ok(exit::of_validity(verdict.valid))
}

/// The schedule in the words in which it was asked for: who leads may change when something is left out.
fn schedule(folder: &RunFolder, options: &RunOptions) -> Result<Schedule, Failure> {
    let mut schedule = folder.schedule()?;
    forget_outcomes(&mut schedule, false);
    nemesis::schedule::prepare(&mut schedule, &options.all_nodes())
        .with_context(|| folder.schedule_path().display().to_string())?;
    Ok(schedule)
}
