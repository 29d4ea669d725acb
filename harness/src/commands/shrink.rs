//! Owns `harness shrink`: from a run that failed to a small one that fails the same way.
//! Never changes the run that it starts from.

mod processes;

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use anyhow::Context;
use results::manifest::{Manifest, PROCESSES, RunOptions, SIMULATION};
use results::schedule::Schedule;
use results::store::{RunFolder, Store, write_document};
use results::verdict::Validity;
use serde_json::{Value, json};

use super::announce;
use super::planning::refuse_impossible;
use super::replay::{check, label, refuse_client_links, refuse_network};
use crate::capabilities;
use crate::cli::ShrinkArgs;
use crate::execution::{forget_outcomes, no_network, pack, verdict_of};
use crate::exit::{self, Failure};
use crate::interrupts;
use crate::progress::Progress;
use crate::scenario::{self, Expected, Scenario};
use crate::shrink::{
    Budget, Defaults, Shrunk, Simulation, Size, describe, reproduce, shrink as shrink_plan,
};
use crate::simulation::{Label, SessionPlan, Simulated, simulate, store_run, verdict_on};

/// Seeds with which the simulation tries to fail as real processes did.
const REPRODUCE_SEED_COUNT: u64 = 60;
/// Other seeds that the result is tried with at most, to tell how much it depends on its own, and how many
/// that fail alike are enough. A test with several seeds outlives changes that shift what a seed means.
const OTHER_SEED_COUNT: u64 = 200;
const ALIKE_COUNT: u64 = 6;
/// How long shrinking may take unless the user says: real processes take their time.
const SIMULATION_MS: u64 = 60_000;
const PROCESSES_MS: u64 = 900_000;

/// What a plan that is made smaller goes back to.
pub(super) const DEFAULTS: Defaults = Defaults {
    rate_per_second: 200,
    operation_timeout_ms: 500,
    recovery_timeout_ms: 20_000,
};

/// Executes `harness shrink`.
///
/// # Errors
/// When there is no such run, it does not fail, or the result cannot be stored.
pub fn shrink(args: &ShrinkArgs, command: Vec<String>) -> Result<u8, Failure> {
    let store = Store::new(&args.store.out);
    let folder = store.find(&args.run)?;
    let mut manifest = folder.manifest()?;
    check(&manifest).with_context(|| folder.manifest_path().display().to_string())?;
    if args.world.as_deref() == Some(SIMULATION) {
        refuse_network(args.network)?;
    } else if let Some(network) = args.network {
        manifest.options.cluster.network = network.into();
    }
    // Before any thread is started; it matters only if it comes to real processes.
    let network_is_there = crate::processes::prepare(manifest.options.cluster.network);
    interrupts::watch().context("cannot listen for Ctrl-C")?;
    let progress = Progress::new(args.output.quiet || args.output.json);
    let plan = SessionPlan {
        seed: manifest.seed,
        schedule: schedule(&folder, &manifest.options, false)?,
        options: manifest.options.clone(),
    };
    let origin = Origin {
        store,
        manifest,
        command,
        network_is_there,
    };
    let is_asked_for = |world: &str| args.world.as_deref() == Some(world);
    let simulated = refuse_impossible(&plan.schedule, &capabilities::of_simulation())
        .and_then(|()| refuse_client_links(&plan.options));
    if origin.manifest.is_simulated() && !is_asked_for(PROCESSES) {
        simulated?;
        let simulated = simulate(&plan, &Arc::new(AtomicBool::new(false)))?;
        if simulated.verdict.valid != Validity::Invalid {
            return Err(Failure::arguments(format!(
                "the run is {} when it is run again, so there is no failure to shrink; \
                 was it recorded by another build of the harness?",
                simulated.verdict.valid.word()
            )));
        }
        return in_simulation(args, &origin, plan, simulated, &progress, None);
    }
    let verdict = verdict_of(&folder, &progress)?;
    if verdict.valid != Validity::Invalid {
        return Err(Failure::arguments(format!(
            "{} is {}, so there is no failure to shrink",
            origin.manifest.name,
            verdict.valid.word()
        )));
    }
    let wanted = verdict.failure_signature();
    if is_asked_for(PROCESSES) || (simulated.is_err() && !is_asked_for(SIMULATION)) {
        return against_processes(args, &origin, plan, wanted);
    }
    simulated?;
    progress.note("looking for the failure in the simulation");
    let resolved = SessionPlan {
        schedule: schedule(&folder, &origin.manifest.options, true)?,
        ..plan.clone()
    };
    for candidate in [&resolved, &plan] {
        if let Some((plan, simulated)) = reproduce(candidate, &wanted, REPRODUCE_SEED_COUNT)? {
            let note = format!(
                "the failure of real processes came back in the simulation with seed {}, and was shrunk there",
                plan.seed
            );
            return in_simulation(args, &origin, plan, simulated, &progress, Some(note));
        }
    }
    let seed_count = 2 * REPRODUCE_SEED_COUNT;
    if is_asked_for(SIMULATION) {
        return Err(Failure::arguments(format!(
            "the failure ({}) does not come back in the simulation in {seed_count} runs; without --world it is \
             looked for in real processes, too",
            wanted.join(", ")
        )));
    }
    progress.note(&format!(
        "it does not come back in the simulation in {seed_count} runs; shrinking against real processes, by \
         repetition"
    ));
    against_processes(args, &origin, plan, wanted)
}

fn against_processes(
    args: &ShrinkArgs,
    origin: &Origin,
    mut plan: SessionPlan,
    wanted: Vec<String>,
) -> Result<u8, Failure> {
    // Real nodes are up to none.
    plan.options.cluster.mischief.clear();
    let world = capabilities::of_processes(plan.options.cluster.network);
    refuse_impossible(&plan.schedule, &world)?;
    origin.network_is_there.clone().map_err(no_network)?;
    processes::shrink(args, origin, plan, wanted)
}

/// The run that is shrunk, and what it takes to store others.
struct Origin {
    store: Store,
    manifest: Manifest,
    command: Vec<String>,
    /// Whether this machine allows the network that real processes would have; why not.
    network_is_there: Result<(), String>,
}

impl Origin {
    /// Beginning of the name of the result.
    fn label(&self) -> String {
        label(&self.manifest).trim_end_matches("-replay").to_owned() + "-shrunk"
    }
}

fn budget(args: &ShrinkArgs, time_ms: u64) -> Budget {
    Budget {
        run_count: args.budget,
        time: Duration::from_millis(args.time_limit.unwrap_or(time_ms)),
    }
}

fn in_simulation(
    args: &ShrinkArgs,
    origin: &Origin,
    plan: SessionPlan,
    simulated: Simulated,
    progress: &Progress,
    note: Option<String>,
) -> Result<u8, Failure> {
    let mut trial = Simulation::new(simulated.verdict.failure_signature());
    let shrunk = shrink_plan(
        plan,
        simulated,
        &mut trial,
        budget(args, SIMULATION_MS),
        DEFAULTS,
        &mut |text| progress.note(text),
    )?;
    let label = Label {
        beginning: origin.label(),
        replay_of: Some(origin.manifest.name.clone()),
        command: origin.command.clone(),
    };
    let smaller = store_run(&origin.store, &shrunk.evidence, &label, true)?;
    pack(&smaller, progress);
    let (scenario, others) = scenario(&shrunk)?;
    let scenario_path = smaller.path().join(scenario::FILE_NAME);
    write_document(&scenario_path, &scenario)?;
    draw(&origin.store, &smaller, progress);
    let told = Told {
        size: (shrunk.before, shrunk.after),
        run_count: shrunk.run_count,
        is_exhausted: shrunk.is_exhausted,
        failures: shrunk.evidence.verdict.failure_signature(),
        summary: shrunk.evidence.verdict.summary.clone(),
        schedule: shrunk.plan.schedule.clone(),
        scenario: Some(scenario_path.display().to_string()),
        notes: note.into_iter().chain([others]).collect(),
    };
    tell(args, origin, &smaller, &told)?;
    Ok(exit::of_validity(shrunk.evidence.verdict.valid))
}

/// The scenario of a shrunk run, and how many other seeds fail as it does, for people.
fn scenario(shrunk: &Shrunk<Simulated>) -> Result<(Scenario, String), Failure> {
    let verdict = &shrunk.evidence.verdict;
    let failures = verdict.failure_signature();
    let mut seeds = vec![shrunk.plan.seed];
    let (mut alike_count, mut tried_count) = (0, 0);
    while tried_count < OTHER_SEED_COUNT && alike_count < ALIKE_COUNT && interrupts::count() == 0 {
        tried_count += 1;
        let mut plan = shrunk.plan.clone();
        plan.seed = plan.seed.wrapping_add(tried_count);
        let verdict = verdict_on(&plan, &Arc::new(AtomicBool::new(false)))?;
        if verdict.failure_signature() == failures {
            alike_count += 1;
            seeds.push(plan.seed);
        }
    }
    let others = format!(
        "{alike_count} of {tried_count} other seeds fail in the same way with this schedule"
    );
    let scenario = Scenario {
        format_version: results::FORMAT_VERSION,
        title: verdict.summary.clone(),
        seeds,
        expected: Expected {
            valid: verdict.valid,
            failures,
        },
        options: shrunk.plan.options.clone(),
        schedule: scenario::as_asked_for(&shrunk.plan.schedule),
    };
    Ok((scenario, others))
}

fn draw(store: &Store, folder: &RunFolder, progress: &Progress) {
    if let Err(error) = results_report::render_run(folder) {
        progress.note(&format!("the report could not be drawn: {error}"));
    }
    if let Err(error) = results_report::render_index(store) {
        progress.note(&format!("the index of runs could not be drawn: {error}"));
    }
}

/// What shrinking came to, as it is told.
struct Told {
    size: (Size, Size),
    run_count: u32,
    is_exhausted: bool,
    failures: Vec<String>,
    summary: String,
    schedule: Schedule,
    scenario: Option<String>,
    notes: Vec<String>,
}

fn tell(
    args: &ShrinkArgs,
    origin: &Origin,
    smaller: &RunFolder,
    told: &Told,
) -> Result<(), Failure> {
    let name = smaller.manifest()?.name;
    let report = smaller.report_path().display().to_string();
    let (before, after) = &told.size;
    if args.output.json {
        let line = json!({
            "shrunk_from": origin.manifest.name,
            "run": name,
            "failures": told.failures,
            "summary": told.summary,
            "before": measures(before),
            "after": measures(after),
            "run_count": told.run_count,
            "budget_used_up": told.is_exhausted,
            "report": report,
            "scenario": told.scenario,
            "notes": told.notes,
        });
        return announce::print(&line.to_string());
    }
    let mut text = format!(
        "before:  {}\nafter:   {}, in {} runs",
        describe(before),
        describe(after),
        told.run_count
    );
    for line in scenario::describe(&told.schedule).lines() {
        text += &format!("\n  {line}");
    }
    if told.is_exhausted {
        text += "\nnote:    the budget was used up; more --budget or --time-limit may shrink it further";
    }
    for note in &told.notes {
        text += &format!("\nnote:    {note}");
    }
    let replay = announce::command("replay", &name, &origin.store.root().to_string_lossy());
    text += &format!(
        "\nwhy:     {}\nreport:  {report}\nreplay:  {replay}",
        told.summary
    );
    if let Some(scenario) = &told.scenario {
        text += &format!("\ntest:    {scenario}");
    }
    announce::print(&text)
}

fn measures(size: &Size) -> Value {
    json!({
        "faults": size.fault_count,
        "operations": size.operation_count,
        "nodes": size.node_count,
        "clients": size.client_count,
        "time_ms": size.time_ms,
    })
}

/// The schedule in the words in which it was asked for, since who leads may change when something is left
/// out; or, `resolved`, with the nodes that were hit.
fn schedule(folder: &RunFolder, options: &RunOptions, resolved: bool) -> Result<Schedule, Failure> {
    let mut schedule = folder.schedule()?;
    forget_outcomes(&mut schedule, resolved);
    nemesis::schedule::prepare(&mut schedule, &options.all_nodes(), &options.first_voters())
        .with_context(|| folder.schedule_path().display().to_string())?;
    Ok(schedule)
}
