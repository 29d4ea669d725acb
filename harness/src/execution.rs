//! Owns one run from its options to its verdict: folder, world, runner, judgement, tidying.
//! Never lets a failure to tidy up, or to draw, hide a verdict.

use std::collections::{BTreeMap, BTreeSet};
use std::io::Write as _;
use std::path::{Path, PathBuf};

use anyhow::Context;
use chrono::{DateTime, Utc};
use results::history::Operation;
use results::manifest::{Environment, Manifest, NodeTimers, Phases, RunOptions, StopReason};
use results::ownership::Owner;
use results::packed;
use results::schedule::Schedule;
use results::standstill::Standstill;
use results::store::{RunFolder, Store};
use results::verdict::{Validity, Verdict};

use crate::exit::Failure;
use crate::interrupts;
use crate::node_build;
use crate::processes::{self, NodeProgram, ProcessWorld};
use crate::progress::Progress;
use crate::recorder::Recorder;
use crate::runner::{Runner, retelling, sets_clocks};

/// Kafka's timers scaled down by 2.5, so that elections fit into short runs, but for the election
/// timeout, which is shorter still. Kafka does not randomise the fetch timeout, so followers lose
/// their leader at the same moment, split the first vote, and elect in the second round; that round
/// must be over before check-quorum ends a cut-off leader, or no run would ever see the two of them.
pub const TIMERS: NodeTimers = NodeTimers {
    election_timeout_ms: 120,
    fetch_timeout_ms: 800,
    election_backoff_max_ms: 400,
    fetch_max_wait_ms: 200,
    request_timeout_ms: 800,
    retry_backoff_ms: 20,
};

/// Everything that a run is made of.
#[derive(Debug, Clone)]
pub struct RunPlan {
    /// Beginning of the run's name.
    pub label: String,
    /// Seed.
    pub seed: u64,
    /// Options.
    pub options: RunOptions,
    /// Faults.
    pub schedule: Schedule,
    /// The run that is repeated, if any.
    pub replay_of: Option<String>,
    /// The node program.
    pub program: NodeProgram,
    /// Whether to keep data folders of valid runs.
    pub keep: bool,
    /// Whether the first violation that is seen ends the workload.
    pub fail_fast: bool,
    /// The command line.
    pub command: Vec<String>,
}

/// A run that is over.
#[derive(Debug, Clone)]
pub struct Finished {
    /// Where it is.
    pub folder: RunFolder,
    /// What came out.
    pub verdict: Verdict,
    /// What was asked for, and what happened when.
    pub manifest: Manifest,
    /// When the machine stood still while this process ran it; of a run that was only judged, nobody has looked.
    pub standstills: Vec<Standstill>,
}

impl Finished {
    /// What stopped it before its time, if anything did.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.manifest.stop_reason()
    }
}

/// The node program to run: a given one, or this executable itself. Says so on standard error if the given one is a
/// node of other source than the one that is built into this executable.
///
/// # Errors
/// When the given one is not an executable file.
pub fn node_program(given: Option<&Path>) -> Result<NodeProgram, Failure> {
    let Some(path) = given else {
        let path = std::env::current_exe().context("cannot find the harness's own executable")?;
        return Ok(NodeProgram {
            path,
            leading_arguments: vec!["node".into()],
        });
    };
    use std::os::unix::fs::PermissionsExt as _;
    let metadata = std::fs::metadata(path)
        .map_err(|error| Failure::arguments(format!("--node-bin {}: {error}", path.display())))?;
    if !metadata.is_file() || metadata.permissions().mode() & 0o111 == 0 {
        let message = format!("--node-bin {}: not an executable file", path.display());
        return Err(Failure::arguments(message));
    }
    let path = path
        .canonicalize()
        .with_context(|| format!("cannot find {}", path.display()))?;
    if let Some(difference) = node_build::difference(&path) {
        // Nobody is left to tell when standard error is closed.
        let _ = writeln!(std::io::stderr(), "harness: note: {difference}");
    }
    Ok(NodeProgram {
        path,
        leading_arguments: Vec::new(),
    })
}

/// Makes a schedule that was run ready to be run again. `keep_resolved` keeps the nodes it hit.
pub fn forget_outcomes(schedule: &mut Schedule, keep_resolved: bool) {
    for fault in &mut schedule.faults {
        if !keep_resolved {
            fault.resolved = None;
        }
        fault.recorded = None;
        fault.outcome = None;
        fault.reason = None;
        fault.healed_at_ms = None;
        fault.effect.clear();
    }
}

/// This machine does not allow the network of a run.
pub fn no_network(reason: String) -> Failure {
    Failure::arguments(format!(
        "--network namespace: {reason}; --network proxy needs nothing"
    ))
}

/// Runs a plan and judges it.
///
/// # Errors
/// When the run could not be carried out or recorded. What was recorded stays.
pub fn execute(plan: RunPlan, store: &Store, progress: &mut Progress) -> Result<Finished, Failure> {
    // Before any thread is started, and before anything is recorded.
    processes::prepare(plan.options.cluster.network).map_err(no_network)?;
    interrupts::watch().context("cannot listen for Ctrl-C")?;
    let now = Utc::now();
    let name = format!(
        "{}-{}-{}",
        plan.label,
        now.format("%Y%m%dT%H%M%S%3fZ"),
        plan.seed
    );
    let manifest = Manifest {
        format_version: results::FORMAT_VERSION,
        name: name.clone(),
        seed: plan.seed,
        world: results::manifest::PROCESSES.into(),
        environment: environment(&plan),
        options: plan.options.clone(),
        started: now,
        ended: None,
        replay_of: plan.replay_of.clone(),
        phases: Phases::default(),
        simulation: None,
        seal: None,
    };
    let folder = store.create_run(&name)?;
    // Where nothing can be locked, others go by when the recording last grew.
    let ownership = folder.claim();
    if plan.replay_of.is_none() {
        progress.note(&format!("seed {}", plan.seed));
    }
    let skews_clocks = sets_clocks(&plan.schedule);
    let mut recorder = Recorder::start(folder.clone(), manifest.clone(), plan.schedule)?;
    if plan.fail_fast {
        recorder = recorder.watched();
    }
    let world = ProcessWorld::start(&manifest, &folder, plan.program, skews_clocks);
    let mut world = world.inspect_err(|_| {
        // The error holds the node's last words, and there is nothing else to keep.
        if let Err(error) = store.discard_unbegun(&folder) {
            progress.note(&error.to_string());
        }
    })?;
    let outcome = Runner::new(
        &mut world,
        &mut recorder,
        progress,
        plan.seed,
        &plan.options,
    )?
    .run();
    let notes = world.notes();
    // Nodes end before judgement begins, so that their traces are complete.
    drop(world);
    progress.clear();
    for note in notes {
        progress.note(&note);
    }
    outcome.context("the run broke off because its evidence could not be written")?;
    read_disks(&folder, progress);
    folder.seal()?;
    let verdict = judge(&folder, &[], progress)?;
    if !plan.keep && verdict.valid == Validity::Valid {
        drop_data(&folder, progress);
    }
    pack(&folder, progress);
    if let Ok(ownership) = ownership {
        ownership.release();
    }
    render(store, &folder, progress);
    Ok(Finished {
        manifest: folder.manifest()?,
        folder,
        verdict,
        standstills: recorder.standstills().to_vec(),
    })
}

/// Finishes what a harness left that was killed: completes its schedule and reads the disks of its nodes, as long as
/// nobody did, and notes how the run ended. Says whether there was anything to finish.
///
/// # Errors
/// When somebody works on the run, or the folder cannot be written.
pub fn finish_abandoned(folder: &RunFolder, progress: &Progress) -> Result<bool, Failure> {
    match folder.owner() {
        Owner::None => return Ok(false),
        Owner::Alive => {
            return Err(Failure::arguments(format!(
                "{} is still going on, or being judged; wait for its end",
                folder.path().display()
            )));
        }
        Owner::Dead => {}
    }
    let ownership = folder.claim()?;
    let mut manifest = folder.manifest()?;
    if manifest.ended.is_none() {
        let history = std::fs::metadata(packed::present(&folder.history_path()));
        let last_change = history.and_then(|about| about.modified());
        manifest.ended = Some(last_change.map_or_else(|_| Utc::now(), DateTime::from));
        let phases = &mut manifest.phases;
        phases.stopped_by = phases.stopped_by.or(Some(StopReason::Death));
        phases.interrupted = true;
    }
    folder.write_manifest(&manifest)?;
    // Whoever judges has sealed before: a seal that is missing by then was taken away.
    if manifest.seal.is_none() && !folder.verdict_path().exists() {
        complete_schedule(folder)?;
        read_disks(folder, progress);
        folder.seal()?;
    }
    ownership.release();
    Ok(true)
}

/// Notes in the schedule what only the history tells, since it is stored less often. Where one of them is damaged, the
/// recording stays as it is, for whoever judges it.
fn complete_schedule(folder: &RunFolder) -> results::Result<()> {
    let read = || -> results::Result<(Schedule, Vec<Operation>)> {
        let history = results::json_lines::read(&folder.history_path())?;
        Ok((folder.schedule()?, history))
    };
    match read() {
        Ok((mut schedule, history)) => {
            retelling::complete(&mut schedule, &history);
            folder.write_schedule(&schedule)
        }
        Err(error) if is_damage(&error, folder) => Ok(()),
        Err(error) => Err(error),
    }
}

/// Packs what is large in a run that nobody writes to any more. Failing at that is worth a note, no more.
pub fn pack(folder: &RunFolder, progress: &Progress) {
    if let Err(error) = folder.pack() {
        progress.note(&error.to_string());
    }
}

/// Reads what is on the disks of nodes that have ended, as long as it is there. A disk that cannot be read is
/// left out, which the verdict tells.
fn read_disks(folder: &RunFolder, progress: &Progress) {
    let nodes = folder.nodes().unwrap_or_default();
    let data_of = |node: &String| folder.node_path(node).join("data");
    let wanted = nodes.iter().flat_map(|node| snapshot_ends(&data_of(node)));
    let wanted: BTreeSet<i64> = wanted.collect();
    for node in nodes {
        let data = data_of(&node);
        if !data.is_dir() {
            continue;
        }
        let written = contents(&data).and_then(|files| {
            let image = checkers::disks::read(&files, &wanted);
            Ok(folder.write_disk(&node, &image)?)
        });
        if let Err(failure) = written {
            progress.note(&format!("{node}: {}", failure.message()));
        }
    }
}

/// The ends of the snapshots in a data folder; none where it cannot be read, which shows when it is.
fn snapshot_ends(data: &Path) -> BTreeSet<i64> {
    let entries = std::fs::read_dir(data).into_iter().flatten().flatten();
    let names: Vec<String> = entries
        .filter_map(|entry| entry.file_name().into_string().ok())
        .collect();
    checkers::disks::snapshot_ends(names.iter().map(String::as_str))
}

/// The files of a folder, by name.
fn contents(folder: &Path) -> Result<BTreeMap<String, Vec<u8>>, Failure> {
    let cannot_read = |path: &Path| format!("cannot read {}", path.display());
    let mut files = BTreeMap::new();
    for entry in std::fs::read_dir(folder).with_context(|| cannot_read(folder))? {
        let path = entry.with_context(|| cannot_read(folder))?.path();
        let name = path.file_name().and_then(|name| name.to_str());
        if let Some(name) = name.filter(|_| path.is_file()) {
            let content = std::fs::read(&path).with_context(|| cannot_read(&path))?;
            files.insert(name.to_owned(), content);
        }
    }
    Ok(files)
}

/// Whether a file of a recording is gone or does not hold what it should. Without its manifest a folder is no run; and
/// what the machine, or a newer build, is to blame for says nothing about the recording.
fn is_damage(error: &results::Error, folder: &RunFolder) -> bool {
    use std::io::ErrorKind;
    let lost = [
        ErrorKind::NotFound,
        ErrorKind::InvalidData,
        ErrorKind::InvalidInput,
        ErrorKind::UnexpectedEof,
    ];
    match error {
        results::Error::Malformed { path, .. } => *path != folder.manifest_path(),
        results::Error::Io { path, source, .. } => {
            *path != folder.manifest_path() && lost.contains(&source.kind())
        }
        _ => false,
    }
}

/// Judges what a run folder holds, and stores the verdict. `required` are cells of coverage that must have been
/// hit besides those that the run itself requires.
///
/// # Errors
/// When the folder cannot be read, or the verdict not written.
pub fn judge(
    folder: &RunFolder,
    required: &[String],
    progress: &Progress,
) -> Result<Verdict, Failure> {
    progress.note("checking");
    let mut recording = match folder.recording() {
        Err(error) if is_damage(&error, folder) => {
            let verdict = checkers::unreadable(&error.to_string());
            folder.write_verdict(&verdict)?;
            return Ok(verdict);
        }
        read => read?,
    };
    let all = &mut recording.manifest.options.required_coverage;
    for name in required {
        if !all.contains(name) {
            all.push(name.clone());
        }
    }
    let verdict = checkers::check(&recording, &checkers::Options::default());
    folder.write_verdict(&verdict)?;
    Ok(verdict)
}

/// What came out of a run when it was judged, which is done now if nobody did.
///
/// # Errors
/// As [`judge`], and when the run still goes on.
pub fn verdict_of(folder: &RunFolder, progress: &Progress) -> Result<Verdict, Failure> {
    match folder.verdict()? {
        Some(verdict) => Ok(verdict),
        None => {
            finish_abandoned(folder, progress)?;
            judge(folder, &[], progress)
        }
    }
}

/// Draws a run's report and the index of all runs. Failing at that is worth a note, no more.
pub fn render(store: &Store, folder: &RunFolder, progress: &Progress) {
    if let Err(error) = results_report::render_run(folder) {
        progress.note(&format!("the report could not be drawn: {error}"));
    }
    if let Err(error) = results_report::render_index(store) {
        progress.note(&format!("the index of runs could not be drawn: {error}"));
    }
}

/// The data of a run that kept its promises tells nothing that its trace does not.
fn drop_data(folder: &RunFolder, progress: &Progress) {
    for node in folder.nodes().unwrap_or_default() {
        let data = folder.node_path(&node).join("data");
        if let Err(error) = std::fs::remove_dir_all(&data) {
            progress.note(&format!("cannot remove {}: {error}", data.display()));
        }
    }
}

fn environment(plan: &RunPlan) -> Environment {
    Environment {
        harness_version: env!("CARGO_PKG_VERSION").into(),
        commit: option_env!("HARNESS_COMMIT").map(Into::into),
        command: plan.command.clone(),
        node_binary: plan.program.path.display().to_string(),
        node_binary_digest: digest(&plan.program.path),
        system: format!("{} {}", std::env::consts::OS, std::env::consts::ARCH),
        processors: crate::machine::processor_count(),
    }
}

fn digest(path: &PathBuf) -> Option<String> {
    let bytes = std::fs::read(path).ok()?;
    Some(format!("{:08x}", crc32c::crc32c(&bytes)))
}
