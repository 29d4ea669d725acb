//! Owns the course of a run: workload under faults, healing, recovery, final reads.
//! Never knows which world it acts in, and never judges what it sees.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod conduct;
mod core_phase;
mod crashes;
mod healing;
mod moments;
pub mod retelling;
mod strain;
mod waiting;

use std::collections::{BTreeMap, BTreeSet, VecDeque};

use nemesis::reach::Reach;
use nemesis::timeline::Timeline;
use results::history::OperationType;
use results::manifest::{NodeTimers, RunOptions, StopReason};
use results::schedule::Schedule;
use results::standstill::Standstill;
use serde_json::{Value, json};

use self::core_phase::OwnFaults;
use self::moments::Cause;
use crate::bursts::Bursts;
use crate::clients::{Clients, Ended, Pace};
use crate::progress::{Progress, Snapshot};
use crate::recorder::Recorder;
use crate::workload::{UnknownWorkload, Workload};
use crate::world::{Event, World};

const NS_PER_MS: u64 = 1_000_000;
/// When clients begin, in milliseconds since the start of the run. Fixed, so that times in a
/// schedule mean the same in every run, however long the nodes take to come up.
pub const START_UP_MS: u64 = 2_000;
/// How often progress is shown when nothing else happens.
const PROGRESS_NS: u64 = 200 * NS_PER_MS;
/// How long to wait for operations past their deadline: their answers come from the world's timers.
const DRAIN_SLACK_NS: u64 = 5_000 * NS_PER_MS;
/// How long healing and restoring may take before the run goes on without their confirmation.
const HEAL_LIMIT_NS: u64 = 60_000 * NS_PER_MS;
/// From how much delay on it is told that nothing was done in time.
const STANDSTILL_NS: u64 = 100 * NS_PER_MS;
/// Pause before a final read is tried again.
const READ_RETRY_NS: u64 = 50 * NS_PER_MS;

/// A run in progress.
pub struct Runner<'a, W: World> {
    world: &'a mut W,
    recorder: &'a mut Recorder,
    progress: &'a mut Progress,
    clients: Clients,
    workload: Workload,
    timeline: Timeline,
    seed: u64,
    time_ns: u64,
    recovery_ns: u64,
    /// Faults whose start was asked for and not yet reported.
    starting: BTreeSet<u64>,
    /// Faults that took hold, or may have, and are not being healed.
    active: BTreeSet<u64>,
    /// Faults whose heal was asked for and not yet reported.
    healing: BTreeSet<u64>,
    /// Faults of which the history says that they are due.
    told: BTreeSet<u64>,
    /// Faults to heal as soon as their start is reported.
    heal_when_started: BTreeSet<u64>,
    bursts: Bursts,
    /// Faults of a replay that wait for their nodes.
    awaiting: BTreeSet<u64>,
    /// By hold of a node: the faults that must have started before it goes on.
    held: BTreeMap<u64, BTreeSet<u64>>,
    /// Why faults start that do not start by time.
    causes: BTreeMap<u64, Cause>,
    /// What the world said when it was last put in order, once it has.
    restored: Option<Vec<String>>,
    interrupted: bool,
    /// What ended the workload before its time.
    stopped_by: Option<StopReason>,
    phase: &'static str,
    demands_majority: bool,
    timers: NodeTimers,
    own_faults: OwnFaults,
}

/// Whether a schedule has faults that set clocks, so that clocks have to be watched.
pub fn sets_clocks(schedule: &Schedule) -> bool {
    let mut faults = schedule.faults.iter();
    faults.any(|fault| {
        matches!(
            fault.fault.kind.as_str(),
            "clock-skew" | "clock-strobe" | "clock-reset"
        )
    })
}

/// Why a run does not go on.
enum Stop {
    /// Its evidence cannot be written.
    Evidence(results::Error),
    /// The world stands still.
    Halted,
}

impl From<results::Error> for Stop {
    fn from(error: results::Error) -> Self {
        Self::Evidence(error)
    }
}

impl<'a, W: World> Runner<'a, W> {
    /// Prepares a run of the recorder's schedule under `options`.
    ///
    /// # Errors
    /// When there is no such workload.
    pub fn new(
        world: &'a mut W,
        recorder: &'a mut Recorder,
        progress: &'a mut Progress,
        seed: u64,
        options: &RunOptions,
    ) -> Result<Self, UnknownWorkload> {
        let workload = Workload::named(&options.workload, seed)?;
        let left_out = options.left_out_operations.clone();
        let pace = Pace {
            rate_per_second: options.rate_per_second,
            timeout_ns: options.operation_timeout_ms * NS_PER_MS,
        };
        let nodes = world.nodes().to_vec();
        let clients = Clients::new(workload, pace, options.concurrency, nodes, world.now_ns())
            .leaving_out(left_out);
        let timeline = Timeline::new(recorder.schedule());
        Ok(Self {
            world,
            recorder,
            progress,
            clients,
            workload,
            timeline,
            seed,
            time_ns: options.time_ms * NS_PER_MS,
            recovery_ns: options.recovery_timeout_ms * NS_PER_MS,
            starting: BTreeSet::new(),
            active: BTreeSet::new(),
            healing: BTreeSet::new(),
            told: BTreeSet::new(),
            heal_when_started: BTreeSet::new(),
            bursts: Bursts::default(),
            awaiting: BTreeSet::new(),
            held: BTreeMap::new(),
            causes: BTreeMap::new(),
            restored: None,
            interrupted: false,
            stopped_by: None,
            phase: "workload",
            demands_majority: options.liveness_phase,
            timers: options.timers.clone(),
            own_faults: OwnFaults::default(),
        })
    }

    /// Runs everything. The cluster must be up, or come up in time for the clients.
    ///
    /// # Errors
    /// When the evidence cannot be written; the run is then worthless and stops.
    pub fn run(mut self) -> results::Result<()> {
        match self.take_course() {
            Ok(()) => {}
            Err(Stop::Evidence(error)) => return Err(error),
            // Nobody stopped it before its time, but it did not get to its end either.
            Err(Stop::Halted) => self.recorder.phase(|phases| {
                phases.interrupted = true;
                phases.stopped_by = Some(StopReason::Invariant);
            })?,
        }
        let now_ns = self.world.now_ns();
        self.recorder.phase(|phases| phases.over = Some(now_ns))?;
        self.recorder.finish()
    }

    fn take_course(&mut self) -> Result<(), Stop> {
        self.phase = "start-up";
        while self.world.now_ns() < START_UP_MS * NS_PER_MS && !self.interrupted {
            let now_ns = self.world.now_ns();
            self.conduct_faults(now_ns)?;
            self.wait(self.next_fault_ns().min(START_UP_MS * NS_PER_MS))?;
        }
        self.phase = "workload";
        let start_ns = self.world.now_ns();
        self.recorder
            .phase(|phases| phases.workload_start = Some(start_ns))?;
        self.run_workload(start_ns + self.time_ns)?;
        self.start_nothing_more();
        let now_ns = self.world.now_ns();
        let (interrupted, stopped_by) = (self.interrupted, self.stopped_by);
        self.recorder.phase(|phases| {
            phases.workload_end = Some(now_ns);
            phases.interrupted = interrupted;
            phases.stopped_by = stopped_by.filter(|_| interrupted);
        })?;
        self.phase = "draining";
        self.drain()?;
        if self.demands_majority {
            self.demand_recovery_of_a_majority()?;
        }
        self.phase = "healing";
        self.heal_scheduled()?;
        self.restore()?;
        let healed_ns = self.world.now_ns();
        self.recorder
            .phase(|phases| phases.healed = Some(healed_ns))?;
        self.phase = "final reads";
        let measured = self.measure();
        self.read_everything(healed_ns)?;
        self.tell_strain(&measured)?;
        self.drain()?;
        let finished_ns = self.world.now_ns();
        self.recorder
            .phase(|phases| phases.finished = Some(finished_ns))?;
        Ok(())
    }

    fn run_workload(&mut self, end_ns: u64) -> Result<(), Stop> {
        loop {
            let now_ns = self.world.now_ns();
            if now_ns >= end_ns || self.interrupted {
                return Ok(());
            }
            self.conduct_faults(now_ns)?;
            for thread in self.clients.due(now_ns) {
                self.clients
                    .begin_planned(thread, self.world, self.recorder)?;
            }
            let next_fault_ns = self.next_fault_ns();
            let next_client_ns = self.clients.next_due_ns().unwrap_or(u64::MAX);
            self.wait(next_fault_ns.min(next_client_ns).min(end_ns))?;
            self.stop_at_a_violation();
        }
    }

    /// Ends the workload early if a violation was seen, and a run that is watched has no use for more.
    fn stop_at_a_violation(&mut self) {
        if self.interrupted {
            return;
        }
        if let Some(violation) = self.recorder.violation() {
            self.interrupted = true;
            self.stopped_by = Some(StopReason::Violation);
            let note = format!("stopping: {violation}");
            self.progress.note(&note);
        }
    }

    /// Waits for one event, or the deadline, and deals with it.
    fn wait(&mut self, deadline_ns: u64) -> Result<Option<Ended>, Stop> {
        self.show_progress();
        let now_ns = self.world.now_ns();
        self.recorder.keep_schedule(now_ns)?;
        self.clients.send_copies(now_ns, self.world);
        let copy_ns = self.clients.next_copy_ns().unwrap_or(u64::MAX);
        let progress_ns = now_ns + PROGRESS_NS;
        let until_ns = deadline_ns.min(progress_ns).min(copy_ns);
        let event = self.world.next_event(until_ns);
        // Whatever came meanwhile is there at once when it is over.
        self.tell_standstill(until_ns.max(now_ns))?;
        match event {
            Event::Deadline => {}
            Event::Answer { call, answer } => {
                let (world, recorder) = (&mut *self.world, &mut *self.recorder);
                return Ok(self.clients.answer(call, answer, world, recorder)?);
            }
            Event::FaultStarted { id, report } if OwnFaults::owns(id) => {
                self.own_faults.started(id, report);
            }
            Event::FaultHealed { id, report } if OwnFaults::owns(id) => {
                self.own_faults.healed(id, &report);
            }
            Event::Seen { id, sight } => self.begin_fault(id, sight)?,
            Event::FaultStarted { id, report } => self.fault_started(id, report)?,
            Event::FaultHealed { id, report } => self.fault_healed(id, report)?,
            Event::Restored { problems, damaged } => {
                let now_ns = self.world.now_ns();
                let view = self.world.view(self.clients.leader());
                let voters: Vec<&String> = view.voters().collect();
                let value = json!({ "problems": problems, "damaged": damaged, "voters": voters });
                self.recorder
                    .nemesis(now_ns, checkers::node_logs::RESTORED, value)?;
                if problems.is_empty() {
                    self.recorder.update_faults(|fault| {
                        healing::note_order(fault, now_ns / NS_PER_MS);
                    });
                }
                self.restored = Some(problems);
            }
            Event::Moment {
                hold,
                ids,
                event,
                leads,
            } => self.moment_has_come(hold, &ids, Cause { event, leads })?,
            Event::NodeCrashed {
                node,
                description,
                signal,
            } => {
                let of_schedule = [&self.starting, &self.active, &self.healing];
                let under_way = of_schedule.into_iter().flatten().copied().collect();
                let schedule = self.recorder.schedule();
                let note = crashes::told(schedule, &under_way, &node, &description);
                self.progress.note(&note);
                let now_ns = self.world.now_ns();
                let value = json!({ "node": node, "description": description, "signal": signal });
                self.recorder
                    .nemesis(now_ns, checkers::node_logs::CRASH, value)?;
            }
            Event::ClockOffsets { offsets_ms } => {
                let now_ns = self.world.now_ns();
                let value = Value::Object(offsets_ms);
                self.recorder.nemesis(now_ns, "clock-offsets", value)?;
            }
            Event::Interrupted => {
                self.interrupted = true;
                self.stopped_by = self.stopped_by.or(Some(StopReason::User));
                self.progress
                    .note("stopping: no new operations; once more to stop at once");
            }
            Event::Halted { reason } => {
                let now_ns = self.world.now_ns();
                let value = json!({ "reason": reason });
                self.recorder
                    .nemesis(now_ns, checkers::safety::HALTED, value)?;
                return Err(Stop::Halted);
            }
        }
        Ok(None)
    }

    /// Tells if the harness was kept from running: whatever was due meanwhile came late.
    fn tell_standstill(&mut self, due_ns: u64) -> results::Result<()> {
        let until_ns = self.world.now_ns();
        let late_ns = until_ns.saturating_sub(due_ns);
        if late_ns < STANDSTILL_NS {
            return Ok(());
        }
        let standstill = Standstill {
            until_ns,
            lasted_ms: late_ns / NS_PER_MS,
        };
        let note = format!("the machine, or the harness on it, {standstill}");
        self.progress.note(&note);
        self.recorder.standstill(standstill)
    }

    /// Waits until no operation is under way any more.
    fn drain(&mut self) -> Result<(), Stop> {
        if self.interrupted {
            let now_ns = self.world.now_ns();
            self.clients.stop_insisting(now_ns);
        }
        while self.clients.busy() {
            let limit_ns = self.clients.last_deadline_ns().unwrap_or(0) + DRAIN_SLACK_NS;
            if self.world.now_ns() >= limit_ns {
                // Left open in the history, which means: unknown.
                return Ok(());
            }
            self.wait(limit_ns)?;
        }
        Ok(())
    }

    /// Puts every node in order. Returns what is still wrong with some.
    fn restore(&mut self) -> Result<Vec<String>, Stop> {
        self.restored = None;
        self.world.restore();
        let limit_ns = self.world.now_ns() + HEAL_LIMIT_NS;
        while self.restored.is_none() && self.world.now_ns() < limit_ns {
            self.wait(limit_ns)?;
        }
        Ok(self.restored.clone().unwrap_or_default())
    }

    /// Reads every object until each was read once, or the time for recovery is over.
    fn read_everything(&mut self, healed_ns: u64) -> Result<(), Stop> {
        let limit_ns = healed_ns + self.recovery_ns;
        // One object at least, so that even a run without operations learns whether it recovered.
        let keys = self.workload.keys(self.clients.begun_count().max(1));
        let mut left: VecDeque<String> = keys.into();
        let mut not_before_ns = 0;
        let mut recovered = false;
        while self.clients.busy() || !left.is_empty() {
            let now_ns = self.world.now_ns();
            if now_ns >= limit_ns {
                return Ok(());
            }
            if now_ns >= not_before_ns {
                for thread in self.clients.due(now_ns) {
                    let Some(key) = left.pop_front() else { break };
                    self.clients
                        .begin_read(thread, &key, self.world, self.recorder)?;
                }
            }
            let next_ns = self.clients.next_due_ns().filter(|_| !left.is_empty());
            let next_ns = next_ns.map_or(limit_ns, |next_ns| next_ns.max(not_before_ns));
            let Some(ended) = self.wait(next_ns.min(limit_ns))? else {
                continue;
            };
            if ended.operation_type != OperationType::Ok {
                left.extend(ended.keys);
                not_before_ns = self.world.now_ns() + READ_RETRY_NS;
            } else if !recovered {
                recovered = true;
                let now_ns = self.world.now_ns();
                self.recorder
                    .phase(|phases| phases.recovered = Some(now_ns))?;
            }
        }
        Ok(())
    }

    fn show_progress(&mut self) {
        let elapsed_ns = self.world.now_ns();
        if !self.progress.is_due(self.phase, elapsed_ns) {
            return;
        }
        // What clients know of the leader says nothing of whether it lives.
        let known = self.clients.leader();
        let view = self.world.view(known);
        let is_at_work = |node: &&str| view.is_within_reach(node, Reach::Working);
        let active = self.active.iter().filter_map(|id| self.fault(*id));
        let faults: Vec<String> = active.map(|fault| fault.fault.kind.clone()).collect();
        self.progress.show(&Snapshot {
            phase: self.phase,
            elapsed_ns,
            total_ns: START_UP_MS * NS_PER_MS + self.time_ns,
            counts: self.recorder.counts(),
            leader: known.filter(is_at_work).map(str::to_owned),
            epoch: self.clients.epoch(),
            faults,
        });
    }
}
