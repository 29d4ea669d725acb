//! Owns one simulated run from its plan to its verdict, all of it in memory, recorded or not.
//! Never stores anything; most runs keep their promises and are worth no more than a count.

use std::collections::BTreeMap;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use checkers::onlooker::Onlooker;
use chrono::Utc;
use node::mutants::Bug;
use results::manifest::{Environment, Manifest, Phases, RunOptions, SIMULATION, Simulation};
use results::schedule::{Schedule, ScheduledFault};
use results::store::Recording;
use results::verdict::Verdict;

use super::world::{Remains, SimulatedWorld, Witness};
use crate::exit::Failure;
use crate::mischief;
use crate::progress::Progress;
use crate::recorder::Recorder;
use crate::runner::{Runner, sets_clocks};
use crate::world::World;

/// Everything that decides a simulated run. Equal plans give equal runs.
#[derive(Debug, Clone, PartialEq)]
pub struct SessionPlan {
    /// Seed.
    pub seed: u64,
    /// Options.
    pub options: RunOptions,
    /// Faults.
    pub schedule: Schedule,
}

/// A simulated run that is over and judged.
#[derive(Debug)]
pub struct Simulated {
    /// Everything recorded. Its manifest has no name yet.
    pub recording: Recording,
    /// What came out.
    pub verdict: Verdict,
    /// What identifies the course of the run.
    pub identity: Simulation,
    /// How much virtual time passed, in nanoseconds.
    pub simulated_ns: u64,
    /// By node: the files on its disk at the end.
    pub disks: BTreeMap<String, Vec<(String, Vec<u8>)>>,
    /// By node: how it ended, each time that it did so by itself.
    pub last_words: BTreeMap<String, Vec<String>>,
}

/// A simulated run that was judged while it went on, and of which nothing else is left.
#[derive(Debug)]
pub struct Glimpse {
    /// What came out, without explanations; `None` if only the whole recording can tell.
    pub verdict: Option<Verdict>,
    /// The faults, with what became of them.
    pub faults: Vec<ScheduledFault>,
    /// What identifies the course of the run.
    pub identity: Simulation,
    /// How much virtual time passed, in nanoseconds.
    pub simulated_ns: u64,
}

/// Runs a plan and judges what came out. Setting `stop` ends it early; what it returns then means nothing.
///
/// # Errors
/// When the plan names a bug, or mischief, that does not exist.
pub fn simulate(plan: &SessionPlan, stop: &Arc<AtomicBool>) -> Result<Simulated, Failure> {
    let over = run(plan, Witness::Trace(Vec::new()), stop)?;
    let mut recording = over.recording;
    if let Witness::Trace(trace) = over.remains.witness {
        recording.trace = trace;
    }
    let verdict = checkers::check(&recording, &checkers::Options::default());
    Ok(Simulated {
        recording,
        verdict,
        identity: over.identity,
        simulated_ns: over.simulated_ns,
        disks: over.remains.disks,
        last_words: over.remains.last_words,
    })
}

/// Runs a plan without keeping what happens: the same events and the same verdict, in less time and
/// memory. Violations are not explained. Setting `stop` ends it early; what it returns then means nothing.
///
/// # Errors
/// See [`simulate`].
pub fn glimpse(plan: &SessionPlan, stop: &Arc<AtomicBool>) -> Result<Glimpse, Failure> {
    let onlooker = Box::new(Onlooker::new(plan.options.nodes));
    let over = run(plan, Witness::Onlooker(onlooker), stop)?;
    let verdict = match over.remains.witness {
        Witness::Onlooker(onlooker) => {
            let options = checkers::Options::without_explanations();
            onlooker.conclude(&over.recording, &options)
        }
        Witness::Trace(_) => None,
    };
    Ok(Glimpse {
        verdict,
        faults: over.recording.schedule.faults,
        identity: over.identity,
        simulated_ns: over.simulated_ns,
    })
}

/// What comes out of a plan, without explanations: in less time than a recording takes, where that can be told.
/// Setting `stop` ends it early; what it returns then means nothing.
///
/// # Errors
/// See [`simulate`].
pub fn verdict_on(plan: &SessionPlan, stop: &Arc<AtomicBool>) -> Result<Verdict, Failure> {
    match glimpse(plan, stop)?.verdict {
        Some(verdict) => Ok(verdict),
        // Only the whole recording can tell.
        None => Ok(simulate(plan, stop)?.verdict),
    }
}

/// A run that is over and not judged.
struct Over {
    /// Everything recorded but the trace.
    recording: Recording,
    identity: Simulation,
    simulated_ns: u64,
    remains: Remains,
}

fn run(plan: &SessionPlan, witness: Witness, stop: &Arc<AtomicBool>) -> Result<Over, Failure> {
    let bug = plan.options.bug.as_deref().map(str::parse::<Bug>);
    let bug = bug
        .transpose()
        .map_err(|error| Failure::arguments(error.to_string()))?;
    mischief::parse(&plan.options.cluster.mischief).map_err(Failure::arguments)?;
    let skews_clocks = sets_clocks(&plan.schedule);
    let (seed, options) = (plan.seed, &plan.options);
    let stop = Arc::clone(stop);
    let mut world = SimulatedWorld::new(seed, options, bug, skews_clocks, witness, stop);
    let mut recording = conduct(plan, &mut world)?;
    let simulated_ns = world.now_ns;
    let mut remains = world.into_remains();
    let identity = remains.identity.clone();
    recording.manifest.simulation = Some(identity.clone());
    recording.disks = std::mem::take(&mut remains.images);
    Ok(Over {
        recording,
        identity,
        simulated_ns,
        remains,
    })
}

/// Runs a plan in a world that is there. What only the world knows is not in the recording.
pub(super) fn conduct(plan: &SessionPlan, world: &mut impl World) -> Result<Recording, Failure> {
    let mut recorder = Recorder::in_memory(manifest(plan), plan.schedule.clone());
    let mut progress = Progress::new(true);
    Runner::new(
        world,
        &mut recorder,
        &mut progress,
        plan.seed,
        &plan.options,
    )?
    .run()?;
    let (manifest, schedule, history) = recorder.into_parts();
    Ok(Recording {
        manifest,
        history,
        schedule,
        trace: Vec::new(),
        disks: BTreeMap::new(),
        logs: BTreeMap::new(),
        differences: Vec::new(),
    })
}

#[expect(
    clippy::disallowed_methods,
    reason = "when it was started is told to people"
)]
fn manifest(plan: &SessionPlan) -> Manifest {
    Manifest {
        format_version: results::FORMAT_VERSION,
        name: String::new(),
        seed: plan.seed,
        world: SIMULATION.into(),
        environment: environment(),
        options: plan.options.clone(),
        started: Utc::now(),
        ended: None,
        replay_of: None,
        phases: Phases::default(),
        simulation: None,
        seal: None,
    }
}

/// The node is part of the harness here, so there is no program whose digest could tell anything.
fn environment() -> Environment {
    Environment {
        harness_version: env!("CARGO_PKG_VERSION").into(),
        commit: option_env!("HARNESS_COMMIT").map(Into::into),
        command: Vec::new(),
        node_binary: "simulated".into(),
        node_binary_digest: None,
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        processors: crate::machine::processor_count(),
    }
}
