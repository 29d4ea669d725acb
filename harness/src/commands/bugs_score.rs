//! Owns `harness bugs score`: which seeded bugs are noticed, by whom, and after how many seeds.
//! Never stores runs of the simulation: a seed and a bug give the run again.

use std::collections::BTreeMap;
use std::path::Path;
use std::time::{Duration, Instant};

use anyhow::Context;
use chrono::Utc;
use nemesis::capability::Capabilities;
use node::mutants::Bug;
use results::manifest::Network;
use results::store::{Store, write_document};
use results::verdict::Validity;

use super::announce;
use super::bugs::parse;
use super::campaign::{About, Kept};
use super::planning::Planner;
use crate::capabilities;
use crate::cli::{RunArgs, ScoreArgs};
use crate::execution::{RunPlan, execute, node_program};
use crate::exit::{self, Failure};
use crate::interrupts;
use crate::machine::{job_count, processor_count};
use crate::progress::Progress;
use crate::scenario::Scenario;
use crate::score::{Caught, Hunt, Limits, Score, Unmodified, Way, flags, hunt, markdown, rows};
use crate::simulation::{Campaign, CampaignSummary, SessionPlan, run_campaign};

/// Seeds of the unmodified node are far from those of hunts.
const UNMODIFIED_FIRST_SEED: u64 = 1 << 40;

/// A scenario with the name of its file.
struct Targeted {
    name: String,
    scenario: Scenario,
    bug: Bug,
}

/// Executes `harness bugs score`.
///
/// # Errors
/// When the arguments do not fit together, or the table cannot be written.
pub fn score(args: &ScoreArgs, command: Vec<String>) -> Result<u8, Failure> {
    let bugs = bugs(args)?;
    let targeted = scenarios(&args.scenarios)?;
    let run_args = run_args(args);
    let planner = Planner::new(&run_args, capabilities::of_simulation())?;
    let real = match args.processes {
        0 => None,
        _ => Some(Planner::new(
            &run_args,
            capabilities::of_processes(Network::Proxy),
        )?),
    };
    // What is wrong with the arguments is wrong with every seed, so it shows before anything is run.
    for planner in std::iter::once(&planner).chain(&real) {
        planner.plan(1)?;
    }
    interrupts::watch().context("cannot listen for Ctrl-C")?;
    let mut progress = Progress::new(args.output.quiet || args.output.json);
    let store = Store::new(&args.store.out);
    let kept = kept(args, &store, &planner, command.clone())?;
    let (unmodified, mut summary) = unmodified(args, &planner, &mut progress)?;
    let limits = Limits {
        job_count: job_count(args.jobs),
        hunt_time: Duration::from_millis(args.time_limit),
    };
    let planned = hunts(args, &bugs, &targeted);
    let planners = targeted_planners(args, &bugs, &capabilities::of_simulation())?;
    let (mut over_count, all_count) = (0, planned.len());
    let mut found = hunt(
        planned,
        limits,
        &|hunt, seed| match &hunt.way {
            Way::Scenario(name) => {
                let named = targeted.iter().find(|targeted| targeted.name == *name);
                let named = named.ok_or_else(|| Failure::arguments("no such scenario"))?;
                Ok(named.scenario.plan(seed))
            }
            Way::Targeted(_) => match planners.get(hunt.bug.id()) {
                Some(planner) => plan_with(planner, hunt.bug, seed),
                None => Err(Failure::arguments("no settings were made for this bug")),
            },
            Way::Stock | Way::Processes => plan_with(&planner, hunt.bug, seed),
        },
        &mut |caught| {
            over_count += 1;
            progress.note(&format!("{over_count} of {all_count}: {}", told(caught)));
        },
    )?;
    if let Some(real) = &real {
        let world = capabilities::of_processes(Network::Proxy);
        let aimed = targeted_planners(args, &bugs, &world)?;
        found.extend(against_processes(args, real, &aimed, &bugs, &mut progress)?);
    }
    found.sort_by(|one, other| (&one.way, one.repetition).cmp(&(&other.way, other.repetition)));
    let score = Score {
        unmodified,
        hunts: found,
        ..blank(args, &command, &bugs)
    };
    progress.clear();
    summary.interrupted |= interrupts::count() > 0;
    let kept = kept.with_hunts(rows(&score));
    let (_, page) = kept.finish(&summary, &[], &progress);
    if let Err(error) = results_report::render_index(&store) {
        progress.note(&format!("the index of runs could not be drawn: {error}"));
    }
    write(args, &score, page.as_deref())
}

/// What is known before anything was hunted.
fn blank(args: &ScoreArgs, command: &[String], bugs: &[Bug]) -> Score {
    Score {
        command: shown(command),
        harness: format!(
            "harness {} {}",
            env!("CARGO_PKG_VERSION"),
            option_env!("HARNESS_COMMIT").unwrap_or("")
        )
        .trim_end()
        .to_owned(),
        machine: format!(
            "{} {}, {} processors",
            std::env::consts::OS,
            std::env::consts::ARCH,
            processor_count()
        ),
        date: Utc::now().format("%Y-%m-%d").to_string(),
        seeds_max: args.seeds,
        repetitions: args.repetitions,
        time_ms: args.time,
        unmodified: Unmodified::default(),
        hunts: Vec::new(),
        bugs: bugs.iter().map(|bug| bug.id().to_owned()).collect(),
    }
}

/// What is kept beside the runs: the seeds of its page are those of the unmodified node.
fn kept<'a>(
    args: &ScoreArgs,
    store: &'a Store,
    planner: &Planner,
    command: Vec<String>,
) -> Result<Kept<'a>, Failure> {
    let first = UNMODIFIED_FIRST_SEED;
    let options = planner.plan(first)?.options;
    let about = About {
        label: "bugs-score",
        command,
        seeds: (first, first + args.unmodified_seeds.max(1) - 1),
        options: &options,
        drawn_from: None,
        draws_workload: false,
        fail_fast: false,
    };
    Ok(Kept::new(store, about))
}

/// `kept` is where its page beside the runs is.
fn write(args: &ScoreArgs, score: &Score, kept: Option<&str>) -> Result<u8, Failure> {
    let page = markdown(score);
    if interrupts::count() > 0 {
        // What was not hunted would look like what nobody found.
        announce::print(&format!(
            "{page}\ninterrupted: {} is as it was",
            args.table.display()
        ))?;
        return Ok(exit::UNKNOWN);
    }
    if let Some(folder) = args
        .table
        .parent()
        .filter(|folder| folder != &Path::new(""))
    {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot create {}", folder.display()))?;
    }
    let data = args.table.with_extension("json");
    results::store::write_atomically(&args.table, page.as_bytes())?;
    write_document(&data, score)?;
    if args.output.json {
        let line = serde_json::to_string(score).context("cannot put the score into JSON")?;
        announce::print(&line)?;
    } else {
        announce::print(&format!(
            "{page}\ntable: {}\ndata:  {}\npage:  {}",
            args.table.display(),
            data.display(),
            kept.unwrap_or("could not be kept")
        ))?;
    }
    Ok(if score.unmodified.invalid_count > 0 {
        exit::INVALID
    } else {
        exit::VALID
    })
}

/// The command line, with the program's name instead of where it was on this machine.
fn shown(command: &[String]) -> String {
    let words = command.iter().skip(1).map(String::as_str);
    let words: Vec<&str> = std::iter::once("harness").chain(words).collect();
    words.join(" ")
}

fn told(caught: &Caught) -> String {
    let Caught {
        bug,
        way,
        repetition,
        tried_count,
        elapsed_ms,
        failures,
        ..
    } = caught;
    let way = way.told();
    let outcome = match caught.seed {
        Some(seed) => format!("noticed with seed {seed} by {}", failures.join(", ")),
        None => "not noticed".to_owned(),
    };
    let elapsed_s = *elapsed_ms as f64 / 1e3;
    format!("{bug} {way} {repetition}: {outcome} ({tried_count} runs, {elapsed_s:.1} s)")
}

fn bugs(args: &ScoreArgs) -> Result<Vec<Bug>, Failure> {
    if args.bugs.is_empty() {
        return Ok(Bug::ALL.to_vec());
    }
    let named = args.bugs.iter().map(|text| {
        parse(text)?
            .parse::<Bug>()
            .map_err(|error| Failure::arguments(error.to_string()))
    });
    named.collect()
}

/// The scenarios of a folder that were made for a bug; none if there is no such folder.
fn scenarios(folder: &Path) -> Result<Vec<Targeted>, Failure> {
    let mut found = Vec::new();
    let Ok(entries) = std::fs::read_dir(folder) else {
        return Ok(found);
    };
    for entry in entries.flatten() {
        let path = entry.path();
        let name = path
            .file_stem()
            .map(|name| name.to_string_lossy().into_owned());
        let (Some(name), true) = (name, path.extension().is_some_and(|end| end == "json")) else {
            continue;
        };
        let scenario = Scenario::read(&path)?;
        let bug = scenario.options.bug.as_deref().map(str::parse::<Bug>);
        if let Some(Ok(bug)) = bug {
            found.push(Targeted {
                name,
                scenario,
                bug,
            });
        }
    }
    found.sort_by(|one, other| one.name.cmp(&other.name));
    Ok(found)
}

/// Every bug and way, as often as asked for, with seeds that no two repetitions share.
fn hunts(args: &ScoreArgs, bugs: &[Bug], targeted: &[Targeted]) -> Vec<Hunt> {
    let mut hunts = Vec::new();
    for bug in bugs {
        let made_for_it = targeted.iter().filter(|targeted| targeted.bug == *bug);
        let made_for_it = made_for_it.map(|targeted| Way::Scenario(targeted.name.clone()));
        let settings = flags(*bug).map(|flags| Way::Targeted(flags.to_owned()));
        for way in std::iter::once(Way::Stock)
            .chain(settings)
            .chain(made_for_it)
        {
            for repetition in 1..=args.repetitions {
                hunts.push(Hunt {
                    bug: *bug,
                    way: way.clone(),
                    repetition,
                    first_seed: args.first_seed + u64::from(repetition - 1) * args.seeds,
                    seed_count: args.seeds,
                });
            }
        }
    }
    hunts
}

/// The runs of hunts: the usual ones of `run` and `sim`, apart from what `bugs score` has flags for.
fn run_args(args: &ScoreArgs) -> RunArgs {
    RunArgs {
        nemesis: Some(args.nemesis.clone()),
        workload: Some(args.workload.clone()),
        nodes: args.nodes,
        time: args.time,
        interval: args.interval,
        ..RunArgs::usual()
    }
}

/// By id of a bug: the planner of runs under the settings made for it, in a world that can do what `world`
/// says. A bug whose faults the world cannot do has none.
fn targeted_planners(
    args: &ScoreArgs,
    bugs: &[Bug],
    world: &Capabilities,
) -> Result<BTreeMap<&'static str, Planner>, Failure> {
    let mut planners = BTreeMap::new();
    for bug in bugs {
        let Some(flags) = flags(*bug) else { continue };
        let settings = RunArgs::with_flags(flags).map_err(Failure::arguments)?;
        let has_pace = flags.contains("--interval");
        let interval = if has_pace {
            settings.interval
        } else {
            args.interval
        };
        let settings = RunArgs {
            time: args.time,
            interval,
            ..settings
        };
        planners.insert(bug.id(), Planner::new(&settings, world.clone())?);
    }
    Ok(planners)
}

/// What a seed runs with a bug.
fn plan_with(planner: &Planner, bug: Bug, seed: u64) -> Result<SessionPlan, Failure> {
    let mut plan = planner.plan(seed)?;
    plan.options.bug = Some(bug.name().to_owned());
    Ok(plan)
}

fn unmodified(
    args: &ScoreArgs,
    planner: &Planner,
    progress: &mut Progress,
) -> Result<(Unmodified, CampaignSummary), Failure> {
    if args.unmodified_seeds == 0 {
        return Ok(Default::default());
    }
    let last_seed = UNMODIFIED_FIRST_SEED + args.unmodified_seeds - 1;
    let summary = run_campaign(Campaign {
        seeds: UNMODIFIED_FIRST_SEED..=last_seed,
        job_count: job_count(args.jobs),
        fail_fast: false,
        records_all: false,
        plan: &|seed| planner.plan(seed),
        keep: &|_| Ok(None),
        show: &mut |summary| progress.show_campaign(summary),
    })?;
    let alarms = summary.failures.iter();
    let alarms = alarms.filter(|outcome| outcome.valid == Validity::Invalid);
    let unmodified = Unmodified {
        seed_count: summary.done_count,
        invalid_count: summary.invalid_count,
        unknown_count: summary.unknown_count,
        false_alarms: alarms
            .map(|outcome| (outcome.seed, outcome.signature.clone()))
            .collect(),
        elapsed_ms: summary.elapsed.as_millis() as u64,
    };
    Ok((unmodified, summary))
}

/// Runs of real processes take as long as they take, one after the other; under the settings made for the bug
/// where there are any.
fn against_processes(
    args: &ScoreArgs,
    stock: &Planner,
    aimed: &BTreeMap<&'static str, Planner>,
    bugs: &[Bug],
    progress: &mut Progress,
) -> Result<Vec<Caught>, Failure> {
    let mut all = Vec::new();
    let program = node_program(None)?;
    let store = Store::new(&args.store.out);
    for bug in bugs {
        let begun = Instant::now();
        let mut caught = Caught::begin(*bug, Way::Processes, 1);
        for seed in args.first_seed..args.first_seed + u64::from(args.processes) {
            if interrupts::count() > 0 {
                break;
            }
            let planned = plan_with(aimed.get(bug.id()).unwrap_or(stock), *bug, seed)?;
            let plan = RunPlan {
                label: format!("score-{}", bug.id()),
                seed,
                options: planned.options,
                schedule: planned.schedule,
                replay_of: None,
                program: program.clone(),
                keep: false,
                fail_fast: false,
                command: Vec::new(),
            };
            let finished = execute(plan, &store, &mut Progress::new(true))?;
            if caught.judge(seed, finished.verdict) {
                break;
            }
        }
        caught.finish(begun, u64::from(args.processes));
        progress.note(&told(&caught));
        all.push(caught);
    }
    Ok(all)
}
