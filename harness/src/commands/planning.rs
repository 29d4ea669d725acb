//! Owns the step from flags to what every seed of a command runs: voters, families, options and schedules.
//! Never runs anything, and never plans what the world cannot do.

use nemesis::capability::{Capabilities, Need};
use nemesis::family::Family;
use nemesis::fault::Fault;
use nemesis::plan::{INTENSITY_MAX_PERCENT, PlanOptions, plan};
use nemesis::schedule::electorate;
use nemesis::tuning::{Tuned, parse_tuned};
use results::manifest::{RunOptions, Voters};
use results::schedule::Schedule;
use results::store::read_schedule;

use super::naming::did_you_mean;
use super::{bugs, cluster, coverage, naming};
use crate::cli::{RunArgs, Switch};
use crate::duration::parse_positive_ms;
use crate::execution::{TIMERS, forget_outcomes};
use crate::exit::Failure;
use crate::runner::START_UP_MS;
use crate::simulation::{SCHEDULE, SessionPlan};
use crate::workload::WORKLOADS;
use crate::{mischief, swarm};

/// What every seed runs, or what it is drawn from. `run`, `sim` and `bugs score` all plan with it, so that
/// the same flags mean the same to each.
pub(super) struct Planner {
    args: RunArgs,
    world: Capabilities,
    is_swarm: bool,
    has_mischief: bool,
    voters: Voters,
    tuned: Tuned,
    options: RunOptions,
}

impl Planner {
    /// The planner of runs as these arguments say, in a world that can do what `world` says.
    ///
    /// # Errors
    /// When the arguments do not fit together, or ask for what the world cannot do.
    pub(super) fn new(args: &RunArgs, world: Capabilities) -> Result<Self, Failure> {
        let voters = cluster::voters(args)?;
        Self::with_voters(args.clone(), world, voters, false)
    }

    /// The planner that draws for every seed what it runs; the arguments say what is not drawn.
    ///
    /// # Errors
    /// As [`Self::new`].
    pub(super) fn of_swarm(args: &RunArgs, world: Capabilities) -> Result<Self, Failure> {
        let mut args = args.clone();
        args.nemesis.get_or_insert_with(|| "all".into());
        Self::with_voters(args, world, Voters::Log, true)
    }

    fn with_voters(
        args: RunArgs,
        world: Capabilities,
        voters: Voters,
        is_swarm: bool,
    ) -> Result<Self, Failure> {
        let tuned = tuned(&args, &possible(&args, &world, voters))?;
        let options = RunOptions {
            nemesis_is_a_pool: is_swarm || (args.schedule.is_none() && is_all(&args)),
            ..options(&args, voters, &tuned)?
        };
        Ok(Self {
            args,
            world,
            is_swarm,
            has_mischief: false,
            voters,
            tuned,
            options,
        })
    }

    /// The same, with nodes that are up to mischief, another for each seed. Real ones never are.
    pub(super) fn with_mischief(mut self, has_mischief: bool) -> Self {
        self.has_mischief = has_mischief;
        self
    }

    /// Beginning of the names of the runs.
    ///
    /// # Errors
    /// When the name that was given cannot be that of a folder.
    pub(super) fn label(&self) -> Result<String, Failure> {
        if let Some(name) = &self.args.name {
            naming::check_label(name)?;
            return Ok(name.clone());
        }
        if self.is_swarm && self.args.workload.is_none() {
            return Ok("swarm".to_owned());
        }
        let nemesis = if self.is_swarm {
            "swarm".to_owned()
        } else if self.args.schedule.is_none() && is_all(&self.args) {
            "all".to_owned()
        } else {
            naming::of_families(&self.options.nemesis)
        };
        Ok(format!("{}-{nemesis}", self.options.workload))
    }

    /// What this seed runs.
    ///
    /// # Errors
    /// When the schedule cannot be planned or read, or cannot be done.
    pub(super) fn plan(&self, seed: u64) -> Result<SessionPlan, Failure> {
        let asked_percent = self.args.intensity;
        if !self.is_swarm {
            return self.plan_of(seed, self.voters, &self.options, &self.tuned, asked_percent);
        }
        let workloads = match &self.args.workload {
            Some(workload) => std::slice::from_ref(workload),
            None => &swarm::workloads(),
        };
        let drawn = swarm::draw(seed, &self.tuned.families, workloads, &self.options);
        let percent = drawn.intensity_percent.saturating_mul(asked_percent) / 100;
        let percent = percent.clamp(1, INTENSITY_MAX_PERCENT);
        let tuned = Tuned {
            families: drawn.families,
            ..self.tuned.clone()
        };
        let options = RunOptions {
            nemesis: tuned.words(percent),
            ..drawn.options
        };
        self.plan_of(seed, options.cluster.voters, &options, &tuned, percent)
    }

    fn plan_of(
        &self,
        seed: u64,
        voters: Voters,
        options: &RunOptions,
        tuned: &Tuned,
        intensity_percent: u64,
    ) -> Result<SessionPlan, Failure> {
        let faults = Faults {
            capabilities: &possible(&self.args, &self.world, voters),
            tuned,
            intensity_percent,
        };
        let schedule = schedule(&self.args, &faults, options, seed)?;
        if !self.is_swarm {
            coverage::refuse_unreachable(&options.required_coverage, options, &schedule)?;
        }
        let mut options = options.clone();
        if self.has_mischief {
            options.cluster.mischief = mischief::draw(seed);
        }
        Ok(SessionPlan {
            seed,
            options,
            schedule,
        })
    }
}

/// What a world can do with such voters and clients.
fn possible(args: &RunArgs, world: &Capabilities, voters: Voters) -> Capabilities {
    let world = cluster::capabilities(world.clone(), voters);
    possible_at(args, cluster::without_observers(world, args))
}

/// What was asked for, apart from faults and seed.
///
/// # Errors
/// When there is no such workload, or no such bug.
fn options(args: &RunArgs, voters: Voters, tuned: &Tuned) -> Result<RunOptions, Failure> {
    check_workload(args.workload())?;
    Ok(RunOptions {
        workload: args.workload().to_owned(),
        nemesis: names(args, tuned),
        nemesis_is_a_pool: false,
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
        required_coverage: coverage::required(&args.require)?,
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
fn possible_at(args: &RunArgs, capabilities: Capabilities) -> Capabilities {
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
fn tuned(args: &RunArgs, capabilities: &Capabilities) -> Result<Tuned, Failure> {
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
    }
    Ok(tuned)
}

/// Whether all families were asked for, at whatever pace.
fn is_all(args: &RunArgs) -> bool {
    cluster::names(args.nemesis()).any(|name| name == "all")
}

fn names(args: &RunArgs, tuned: &Tuned) -> Vec<String> {
    match &args.schedule {
        Some(_) => vec![SCHEDULE.into()],
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

/// Which faults there are, and how many of them.
struct Faults<'a> {
    /// What the world can do.
    capabilities: &'a Capabilities,
    /// Families to plan from, and how each of them comes.
    tuned: &'a Tuned,
    /// How often those come that have no intensity of their own, in percent of the usual.
    intensity_percent: u64,
}

/// The faults of a seed: planned, or read from a file.
fn schedule(
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
                family_asked: faults.tuned.asked.clone(),
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
            refuse_unfit(&planned, faults.capabilities, options)?;
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
    nemesis::schedule::prepare(&mut schedule, &options.all_nodes(), &options.first_voters())
        .map_err(|error| Failure::arguments(error.to_string()))?;
    refuse_impossible(&schedule, faults.capabilities)?;
    let end_ms = options.time_ms.saturating_add(START_UP_MS);
    let late = schedule.faults.iter().find(|f| f.trigger.at_ms >= end_ms);
    if let Some(late) = late {
        return Err(Failure::arguments(format!(
            "a fault of the schedule ({}) starts at {} ms, but clients end at {end_ms} ms; \
             give a longer --time",
            late.fault.kind, late.trigger.at_ms
        )));
    }
    Ok(schedule)
}

/// Refuses planned faults that this cluster or the world cannot do, by the names they were asked for with.
fn refuse_unfit(
    planned: &Schedule,
    capabilities: &Capabilities,
    options: &RunOptions,
) -> Result<(), Failure> {
    let (nodes, voters) = (options.all_nodes(), options.first_voters());
    let electorate = electorate(planned, &nodes, &voters);
    for fault in &planned.faults {
        let parsed = Fault::from_description(&fault.fault);
        let wrong = match &parsed {
            Ok(parsed) => match parsed
                .validate(&nodes)
                .and_then(|()| parsed.check_budget(electorate))
            {
                Ok(()) => capabilities
                    .missing(parsed.needs())
                    .map(|missing| missing.to_string()),
                Err(error) => Some(error.to_string()),
            },
            Err(error) => Some(error.to_string()),
        };
        if let Some(wrong) = wrong {
            let family = Family::of_id(fault.id);
            let name = family.map_or(fault.fault.kind.clone(), |family| family.name().to_owned());
            return Err(Failure::arguments(format!("nemesis {name}: {wrong}")));
        }
    }
    Ok(())
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
