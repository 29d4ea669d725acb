//! Owns `harness bugs score`: which seeded bugs are noticed, by whom, and after how many seeds.
//! Never stores runs of the simulation: a seed and a bug give the run again.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use anyhow::Context;
use chrono::Utc;
use nemesis::capability::Capabilities;
use node::mutants::{Bug, Priority};
use results::manifest::Network;
use results::store::{Store, write_document};
use results::verdict::Validity;

use super::announce;
use super::bugs::parse;
use super::campaign::{About, Kept};
use super::planning::Planner;
use super::shrink::DEFAULTS;
use crate::capabilities;
use crate::cli::{RunArgs, ScoreArgs, ShrinkFlag, Switch, WayFlag};
use crate::execution::{RunPlan, execute, node_program};
use crate::exit::{self, Failure};
use crate::interrupts;
use crate::machine::{job_count, processor_count};
use crate::progress::Progress;
use crate::scenario::Scenario;
use crate::score::{
    Caught, Hunt, Limits, Measurement, Score, Unmodified, Way, flags, hunt, markdown, rows,
    shrink_one,
};
use crate::shrink::counted;
use crate::simulation::{Campaign, CampaignSummary, SessionPlan, run_campaign};
use crate::workload::WORKLOADS;

/// Seeds of the unmodified node are far from those of hunts.
const UNMODIFIED_FIRST_SEED: u64 = 1 << 40;

/// A scenario with the name of its file.
struct Targeted {
    name: String,
    scenario: Scenario,
    bug: Bug,
}

/// How often what was measured so far is written down.
const SAVE: Duration = Duration::from_secs(10);

/// Executes `harness bugs score`.
///
/// # Errors
/// When the arguments do not fit together, or the table cannot be written.
pub fn score(args: &ScoreArgs, command: Vec<String>) -> Result<u8, Failure> {
    let bugs = bugs(args)?;
    let ways = ways(args)?;
    let hunter = Hunter::new(args, &bugs)?;
    let real = match ways.contains(&WayFlag::Processes) {
        false => None,
        true => Some(Planner::new(
            &run_args(args),
            capabilities::of_processes(Network::Proxy),
        )?),
    };
    // What is wrong with the arguments is wrong with every seed, so it shows before anything is run.
    for planner in std::iter::once(&hunter.stock).chain(&real) {
        planner.plan(1)?;
    }
    let earlier = Score::read(&data_path(args))?;
    let store = Store::new(&args.store.out);
    let kept = kept(args, &store, &hunter.stock, command.clone())?;
    let measurement = measurement(args, &command);
    let mut desk = Desk {
        args,
        score: Score::begin(earlier, &bugs, measurement, args.resume),
        progress: Progress::new(args.output.quiet || args.output.json),
        limits: Limits {
            job_count: job_count(args.jobs),
            hunt_time: Duration::from_millis(args.time_limit),
            ends: args
                .total_time
                .map(|ms| Instant::now() + Duration::from_millis(ms)),
        },
        saved: Instant::now(),
        unmodified: CampaignSummary::default(),
    };
    interrupts::watch().context("cannot listen for Ctrl-C")?;
    let simulates = ways.iter().any(|way| *way != WayFlag::Processes);
    if simulates {
        desk.look_at_unmodified(&hunter.stock)?;
    }
    let planned = hunts(args, &bugs, &ways, &hunter.scenarios);
    // Shrinking what the first hunts found comes before the others, so that it is not what time is over for.
    let (first, others) = planned
        .iter()
        .cloned()
        .partition(|hunt| hunt.repetition == 1);
    desk.hunt(first, &hunter)?;
    desk.shrink(&bugs, &hunter)?;
    desk.hunt(others, &hunter)?;
    if let Some(real) = &real {
        let world = capabilities::of_processes(Network::Proxy);
        let aimed = targeted_planners(args, &bugs, &world)?;
        desk.hunt_in_processes(real, &aimed, &bugs)?;
    }
    let is_left = |hunt: &&Hunt| !desk.score.has_begun(hunt);
    desk.score.not_begun_count = planned.iter().filter(is_left).count() as u64;
    desk.progress.clear();
    desk.finish(kept, &store)
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
        drawn_from: (args.swarm == Switch::On).then(|| args.nemesis.clone()),
        draws_workload: args.swarm == Switch::On && args.workload.is_none(),
        fail_fast: false,
    };
    Ok(Kept::new(store, about))
}

/// What a command works with.
struct Desk<'a> {
    args: &'a ScoreArgs,
    score: Score,
    progress: Progress,
    limits: Limits,
    saved: Instant,
    /// What came of the seeds of the unmodified node, as far as this command ran them.
    unmodified: CampaignSummary,
}

impl Desk<'_> {
    /// Whether nothing more is begun.
    fn is_over(&self) -> bool {
        interrupts::count() > 0 || self.limits.is_over()
    }

    fn look_at_unmodified(&mut self, planner: &Planner) -> Result<(), Failure> {
        let known = &self.score.unmodified;
        let is_known = self.args.resume
            && known.measurement == self.score.current()
            && known.seed_count >= self.args.unmodified_seeds;
        if self.args.unmodified_seeds == 0 || is_known {
            return Ok(());
        }
        let (unmodified, summary) = unmodified(self.args, planner, &mut self.progress)?;
        self.unmodified = summary;
        if interrupts::count() == 0 {
            self.score.add_unmodified(unmodified);
        }
        self.save()
    }

    /// Hunts in the simulation.
    fn hunt(&mut self, planned: Vec<Hunt>, hunter: &Hunter) -> Result<(), Failure> {
        if self.is_over() {
            return Ok(());
        }
        let is_new = |hunt: &Hunt| !(self.args.resume && self.score.has(hunt));
        let planned: Vec<Hunt> = planned.into_iter().filter(is_new).collect();
        let (mut over_count, all_count) = (0, planned.len());
        let limits = self.limits;
        let mut unsaved = Ok(());
        hunt(
            planned,
            limits,
            &|hunt, seed| hunter.plan(hunt.bug, &hunt.way, seed),
            &mut |caught| {
                over_count += 1;
                let text = format!("{over_count} of {all_count}: {}", told(&caught));
                self.progress.note(&text);
                self.score.add(caught);
                if self.saved.elapsed() >= SAVE && unsaved.is_ok() {
                    unsaved = self.save();
                }
            },
        )?;
        unsaved?;
        self.save()
    }

    /// Shrinks one run of each bug that was noticed, and of which a run is to be shrunk.
    fn shrink(&mut self, bugs: &[Bug], hunter: &Hunter) -> Result<(), Failure> {
        let wanted = |bug: &&Bug| match self.args.shrink {
            ShrinkFlag::None => false,
            ShrinkFlag::A => bug.priority() == Priority::A,
            ShrinkFlag::All => true,
        };
        let time = Duration::from_millis(self.args.shrink_time);
        let wanted: Vec<Bug> = bugs.iter().filter(wanted).copied().collect();
        for bug in wanted {
            if self.is_over() {
                break;
            }
            let current = self.score.current();
            let mut known = self.score.shrunk.iter();
            let is_known = known.any(|it| it.bug == bug.id() && it.measurement == current);
            let Some(caught) = self.to_shrink(bug).filter(|_| !is_known) else {
                continue;
            };
            let Some(seed) = caught.seed else { continue };
            let plan = hunter.plan(bug, &caught.way, seed)?;
            if let Some(shrunk) = shrink_one(&caught, plan, time, DEFAULTS)? {
                self.progress.note(&format!(
                    "{bug} shrunk: {} of {} left, after {}",
                    shrunk.fault_count,
                    counted(shrunk.fault_count_before as u64, "fault"),
                    counted(shrunk.run_count.into(), "run")
                ));
                self.score.add_shrunk(shrunk);
            }
            self.save()?;
        }
        Ok(())
    }

    /// The hunt whose run is shrunk: the first that noticed the bug, with the usual faults if possible.
    fn to_shrink(&self, bug: Bug) -> Option<Caught> {
        let current = self.score.current();
        let hunts = self.score.hunts.iter();
        let mut found: Vec<&Caught> = hunts
            .filter(|it| it.bug == bug.id() && it.measurement == current)
            .filter(|it| it.seed.is_some() && matches!(it.way, Way::Stock | Way::Targeted(_)))
            .collect();
        found.sort_by_key(|it| (it.way.clone(), it.repetition));
        found.first().map(|it| (*it).clone())
    }

    /// Runs of real processes take as long as they take, one after the other; under the settings made for the
    /// bug where there are any.
    fn hunt_in_processes(
        &mut self,
        stock: &Planner,
        aimed: &BTreeMap<&'static str, Planner>,
        bugs: &[Bug],
    ) -> Result<(), Failure> {
        let program = node_program(None)?;
        let store = Store::new(&self.args.store.out);
        for bug in bugs {
            let hunt = Hunt {
                bug: *bug,
                way: Way::Processes,
                repetition: 1,
                first_seed: self.args.first_seed,
                seed_count: u64::from(self.args.processes),
            };
            if self.is_over() || (self.args.resume && self.score.has(&hunt)) {
                continue;
            }
            let begun = Instant::now();
            let mut caught = Caught::begin(&hunt);
            for seed in hunt.first_seed..hunt.first_seed + hunt.seed_count {
                if self.is_over() {
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
                // What was interrupted shows nothing.
                if interrupts::count() == 0 && caught.judge(seed, finished.verdict) {
                    break;
                }
            }
            caught.finish(begun);
            self.progress.note(&told(&caught));
            self.score.add(caught);
            self.save()?;
        }
        Ok(())
    }

    /// Writes down what was measured so far.
    fn save(&mut self) -> Result<(), Failure> {
        self.saved = Instant::now();
        self.score.tidy();
        let folder = self.args.table.parent();
        if let Some(folder) = folder.filter(|folder| folder != &Path::new("")) {
            std::fs::create_dir_all(folder)
                .with_context(|| format!("cannot create {}", folder.display()))?;
        }
        results::store::write_atomically(&self.args.table, markdown(&self.score).as_bytes())?;
        write_document(&data_path(self.args), &self.score)?;
        Ok(())
    }

    fn finish(mut self, kept: Kept<'_>, store: &Store) -> Result<u8, Failure> {
        self.save()?;
        self.unmodified.interrupted |= interrupts::count() > 0;
        let kept = kept.with_hunts(rows(&self.score));
        let (_, page) = kept.finish(&self.unmodified, &[], &self.progress);
        if let Err(error) = results_report::render_index(store) {
            let text = format!("the index of runs could not be drawn: {error}");
            self.progress.note(&text);
        }
        let (args, score) = (self.args, &self.score);
        if args.output.json {
            let line = serde_json::to_string(score).context("cannot put the score into JSON")?;
            announce::print(&line)?;
        } else {
            announce::print(&format!(
                "{}\ntable: {}\ndata:  {}\npage:  {}",
                markdown(score),
                args.table.display(),
                data_path(args).display(),
                page.as_deref().unwrap_or("could not be kept")
            ))?;
            if interrupts::count() > 0 || score.not_begun_count > 0 {
                announce::print("what is missing is measured by the same command with --resume")?;
            }
        }
        Ok(if score.unmodified.invalid_count > 0 {
            exit::INVALID
        } else if interrupts::count() > 0 {
            exit::UNKNOWN
        } else {
            exit::VALID
        })
    }
}

/// Makes the plans of hunts in the simulation.
struct Hunter {
    stock: Planner,
    aimed: BTreeMap<&'static str, Planner>,
    scenarios: Vec<Targeted>,
}

impl Hunter {
    fn new(args: &ScoreArgs, bugs: &[Bug]) -> Result<Self, Failure> {
        let world = capabilities::of_simulation();
        let run_args = run_args(args);
        Ok(Self {
            stock: match args.swarm {
                Switch::On => Planner::of_swarm(&run_args, world.clone())?.with_mischief(true),
                Switch::Off => Planner::new(&run_args, world.clone())?,
            },
            aimed: targeted_planners(args, bugs, &world)?,
            scenarios: scenarios(&args.scenarios)?,
        })
    }

    fn plan(&self, bug: Bug, way: &Way, seed: u64) -> Result<SessionPlan, Failure> {
        match way {
            Way::Scenario(name) => {
                let mut named = self.scenarios.iter();
                let named = named.find(|targeted| targeted.name == *name);
                let named = named.ok_or_else(|| Failure::arguments("no such scenario"))?;
                Ok(named.scenario.plan(seed))
            }
            Way::Targeted(_) => match self.aimed.get(bug.id()) {
                Some(planner) => plan_with(planner, bug, seed),
                None => Err(Failure::arguments("no settings were made for this bug")),
            },
            Way::Stock | Way::Processes => plan_with(&self.stock, bug, seed),
        }
    }
}

/// In which ways bugs are looked for.
fn ways(args: &ScoreArgs) -> Result<Vec<WayFlag>, Failure> {
    let mut ways = args.ways.clone();
    if ways.is_empty() {
        ways.extend([WayFlag::Stock, WayFlag::Targeted, WayFlag::Scenario]);
        ways.extend((args.processes > 0).then_some(WayFlag::Processes));
    }
    match (ways.contains(&WayFlag::Processes), args.processes) {
        (true, 0) => Err(Failure::arguments(
            "--ways processes: say with --processes N how many runs each bug has at most",
        )),
        (false, 1..) => Err(Failure::arguments(
            "--processes: --ways leaves real processes out; name processes there, too",
        )),
        _ => Ok(ways),
    }
}

fn data_path(args: &ScoreArgs) -> PathBuf {
    args.table.with_extension("json")
}

fn measurement(args: &ScoreArgs, command: &[String]) -> Measurement {
    let seconds = |ms: u64| ms as f64 / 1e3;
    let drawn = match (args.swarm, &args.workload) {
        (Switch::On, None) => "everything else drawn for each seed".to_owned(),
        (Switch::On, Some(workload)) => format!("workload {workload}, everything else drawn"),
        (Switch::Off, workload) => format!(
            "{} nodes, workload {}",
            args.nodes,
            workload.as_deref().unwrap_or(WORKLOADS[0])
        ),
    };
    Measurement {
        commands: vec![shown(command)],
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
        settings: format!(
            "runs of {} s, a fault of each kind every {} s on average, stock faults {}, {drawn}",
            seconds(args.time),
            seconds(args.interval),
            args.nemesis
        ),
    }
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

/// Every bug and way, as often as asked for, with seeds that no two repetitions share; the first of all come
/// first.
fn hunts(args: &ScoreArgs, bugs: &[Bug], ways: &[WayFlag], targeted: &[Targeted]) -> Vec<Hunt> {
    let mut hunts = Vec::new();
    let is_asked_for = |way: &Way| match way {
        Way::Stock => ways.contains(&WayFlag::Stock),
        Way::Targeted(_) => ways.contains(&WayFlag::Targeted),
        Way::Scenario(_) => ways.contains(&WayFlag::Scenario),
        Way::Processes => false,
    };
    for repetition in 1..=args.repetitions {
        for bug in bugs {
            let made_for_it = targeted.iter().filter(|targeted| targeted.bug == *bug);
            let made_for_it = made_for_it.map(|targeted| Way::Scenario(targeted.name.clone()));
            let settings = flags(*bug).map(|flags| Way::Targeted(flags.to_owned()));
            let all = std::iter::once(Way::Stock)
                .chain(settings)
                .chain(made_for_it);
            for way in all.filter(is_asked_for) {
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
        workload: args.workload.clone(),
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
        measurement: 0,
    };
    Ok((unmodified, summary))
}
