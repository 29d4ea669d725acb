//! Owns the evidence of a run while it goes on: every line is kept before what follows it happens.
//! Never judges, and never rewrites a history line.

use std::borrow::Cow;
use std::collections::BTreeSet;

use checkers::linearizable::Watch;
use results::history::{Operation, OperationError, OperationType, Process};
use results::json_lines::Writer;
use results::manifest::{Manifest, Phases, RunOptions};
use results::schedule::{Schedule, ScheduledFault};
use results::shared_text::SharedText;
use results::standstill::{STANDSTILL, Standstill};
use results::store::RunFolder;
use serde_json::Value;

/// Counts of client operations so far, for progress lines.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct Counts {
    /// Took effect.
    pub ok_count: u64,
    /// Certainly did not.
    pub fail_count: u64,
    /// Unknown.
    pub info_count: u64,
}

/// Keeps history, schedule and manifest of a run.
#[derive(Debug)]
pub struct Recorder {
    keeping: Keeping,
    next_index: u64,
    schedule: Schedule,
    manifest: Manifest,
    counts: Counts,
    standstills: Vec<Standstill>,
    /// Keys and names of nodes that are in the history already.
    known: BTreeSet<SharedText>,
    /// Looks at the history as it grows, if that is wanted.
    watch: Option<Watch>,
    /// A fault has changed since the schedule was stored.
    is_schedule_stale: bool,
    /// When it was looked at whether the schedule had to be stored, in nanoseconds since the start of the run.
    schedule_kept_ns: u64,
}

/// How often the schedule is stored at most, while faults change.
const KEEP_SCHEDULE_NS: u64 = 200_000_000;

/// Where evidence is kept.
#[derive(Debug)]
enum Keeping {
    /// On disk at once, because the harness may be killed.
    Folder { folder: RunFolder, history: Writer },
    /// In memory: a simulated run can be had again.
    Memory { history: Vec<Operation> },
}

/// How many lines there is room for from the start at most. Room that is not used takes no memory, but to
/// make more of it later takes twice as much for a moment.
const EXPECTED_LINES_MAX: u64 = 1 << 18;

/// About how many lines a history will have.
fn expected_line_count(options: &RunOptions) -> usize {
    let operation_count = options.rate_per_second.saturating_mul(options.time_ms) / 1_000;
    let line_count = operation_count.saturating_mul(2);
    // Clients are not on time to the operation, and some lines are not theirs.
    line_count
        .saturating_add(line_count / 8)
        .min(EXPECTED_LINES_MAX) as usize
}

/// What a client operation is about.
#[derive(Debug, Clone, PartialEq)]
pub struct Subject {
    /// Logical process.
    pub process: u64,
    /// Name of the function, e.g. `read`.
    pub f: &'static str,
    /// The object, unless the operation is about several.
    pub key: Option<String>,
}

/// How a client operation ended.
#[derive(Debug, Clone, PartialEq)]
pub struct Completion {
    /// `Ok`, `Fail` or `Info`.
    pub operation_type: OperationType,
    /// Value of the line.
    pub value: Value,
    /// Who answered.
    pub node: Option<String>,
    /// In which epoch.
    pub epoch: Option<i32>,
    /// At which offset.
    pub offset: Option<i64>,
    /// Why not `Ok`.
    pub error: Option<OperationError>,
}

impl Recorder {
    /// Starts the recording in an empty run folder.
    ///
    /// # Errors
    /// When the folder cannot be written.
    pub fn start(
        folder: RunFolder,
        manifest: Manifest,
        schedule: Schedule,
    ) -> results::Result<Self> {
        folder.write_manifest(&manifest)?;
        folder.write_schedule(&schedule)?;
        let history = Writer::create(&folder.history_path())?;
        Ok(Self::new(
            Keeping::Folder { folder, history },
            manifest,
            schedule,
        ))
    }

    /// Starts a recording that leaves nothing on disk.
    pub fn in_memory(manifest: Manifest, schedule: Schedule) -> Self {
        let history = Vec::with_capacity(expected_line_count(&manifest.options));
        Self::new(Keeping::Memory { history }, manifest, schedule)
    }

    fn new(keeping: Keeping, manifest: Manifest, schedule: Schedule) -> Self {
        Self {
            keeping,
            next_index: 0,
            schedule,
            manifest,
            counts: Counts::default(),
            standstills: Vec::new(),
            known: BTreeSet::new(),
            watch: None,
            is_schedule_stale: false,
            schedule_kept_ns: 0,
        }
    }

    /// The same recording, whose history is checked as it grows.
    pub fn watched(mut self) -> Self {
        self.watch = Some(Watch::new(&self.manifest.options.workload));
        self
    }

    /// The first violation that was seen while the history grew, in words; none without a watch.
    pub fn violation(&self) -> Option<&str> {
        self.watch.as_ref().and_then(Watch::violation)
    }

    /// What was recorded. The history of a recording on disk is there, and not returned.
    pub fn into_parts(self) -> (Manifest, Schedule, Vec<Operation>) {
        let history = match self.keeping {
            Keeping::Memory { history } => history,
            Keeping::Folder { .. } => Vec::new(),
        };
        (self.manifest, self.schedule, history)
    }

    fn keep_manifest(&self) -> results::Result<()> {
        match &self.keeping {
            Keeping::Folder { folder, .. } => folder.write_manifest(&self.manifest),
            Keeping::Memory { .. } => Ok(()),
        }
    }

    /// Records that an operation is about to be sent.
    ///
    /// # Errors
    /// When the history cannot be written.
    pub fn invoke(&mut self, time: u64, subject: &Subject, value: Value) -> results::Result<()> {
        let key = subject.key.as_deref().map(|key| self.shared(key));
        self.line(time, Process::Client(subject.process), |operation| {
            operation.f = Cow::Borrowed(subject.f);
            operation.key = key;
            operation.value = value;
        })
    }

    /// Records how an operation ended.
    ///
    /// # Errors
    /// When the history cannot be written.
    pub fn complete(
        &mut self,
        time: u64,
        subject: &Subject,
        completion: Completion,
    ) -> results::Result<()> {
        match completion.operation_type {
            OperationType::Ok => self.counts.ok_count += 1,
            OperationType::Fail => self.counts.fail_count += 1,
            OperationType::Info => self.counts.info_count += 1,
            OperationType::Invoke => {}
        }
        let key = subject.key.as_deref().map(|key| self.shared(key));
        let node = completion.node.map(|node| self.shared(&node));
        self.line(time, Process::Client(subject.process), |operation| {
            operation.operation_type = completion.operation_type;
            operation.f = Cow::Borrowed(subject.f);
            operation.key = key;
            operation.value = completion.value;
            operation.node = node;
            operation.epoch = completion.epoch;
            operation.offset = completion.offset;
            operation.error = completion.error.map(Box::new);
        })
    }

    /// Records an action or observation of the nemesis.
    ///
    /// # Errors
    /// When the history cannot be written.
    pub fn nemesis(&mut self, time: u64, f: &str, value: Value) -> results::Result<()> {
        self.line(time, Process::Nemesis, |operation| {
            operation.operation_type = OperationType::Info;
            operation.f = Cow::Owned(f.to_owned());
            operation.value = value;
        })
    }

    /// Records that the machine stood still.
    ///
    /// # Errors
    /// When the history cannot be written.
    pub fn standstill(&mut self, one: Standstill) -> results::Result<()> {
        self.standstills.push(one);
        self.nemesis(one.until_ns, STANDSTILL, one.value())
    }

    /// The text as it is in the history already, so that it is there once and not on every line.
    fn shared(&mut self, text: &str) -> SharedText {
        if let Some(known) = self.known.get(text) {
            return known.clone();
        }
        let new = SharedText::from(text);
        self.known.insert(new.clone());
        new
    }

    fn line(
        &mut self,
        time: u64,
        process: Process,
        fill: impl FnOnce(&mut Operation),
    ) -> results::Result<()> {
        let mut operation = Operation {
            index: self.next_index,
            time,
            process,
            operation_type: OperationType::Invoke,
            f: Cow::Borrowed(""),
            key: None,
            value: Value::Null,
            node: None,
            epoch: None,
            offset: None,
            error: None,
        };
        fill(&mut operation);
        self.next_index += 1;
        if let Some(watch) = &mut self.watch {
            watch.observe(&operation);
        }
        match &mut self.keeping {
            Keeping::Folder { history, .. } => history.append(&operation),
            Keeping::Memory { history } => {
                history.push(operation);
                Ok(())
            }
        }
    }

    /// The schedule as it stands.
    pub fn schedule(&self) -> &Schedule {
        &self.schedule
    }

    /// Changes one fault; [`Self::keep_schedule`] stores it.
    pub fn update_fault(&mut self, id: u64, change: impl FnOnce(&mut ScheduledFault)) {
        if let Some(fault) = self.schedule.faults.iter_mut().find(|fault| fault.id == id) {
            change(fault);
        }
        self.is_schedule_stale = true;
    }

    /// Changes what is known of any fault.
    pub fn update_faults(&mut self, change: impl FnMut(&mut ScheduledFault)) {
        self.schedule.faults.iter_mut().for_each(change);
        self.is_schedule_stale = true;
    }

    /// Stores the schedule if a fault of it has changed, and the last time was a while ago. Not done with each
    /// change: what is long takes some milliseconds, in which faults and clients would wait. Where the harness is
    /// killed before, the history tells what is missing ([`crate::runner::retelling`]).
    ///
    /// # Errors
    /// When the schedule cannot be written.
    pub fn keep_schedule(&mut self, now_ns: u64) -> results::Result<()> {
        if now_ns < self.schedule_kept_ns.saturating_add(KEEP_SCHEDULE_NS) {
            return Ok(());
        }
        self.schedule_kept_ns = now_ns;
        self.keep_stale_schedule()
    }

    fn keep_stale_schedule(&mut self) -> results::Result<()> {
        if let Keeping::Folder { folder, .. } = &self.keeping
            && std::mem::take(&mut self.is_schedule_stale)
        {
            folder.write_schedule(&self.schedule)?;
        }
        Ok(())
    }

    /// Notes a milestone and stores the manifest.
    ///
    /// # Errors
    /// When the manifest cannot be written.
    pub fn phase(&mut self, change: impl FnOnce(&mut Phases)) -> results::Result<()> {
        change(&mut self.manifest.phases);
        self.keep_manifest()
    }

    /// Notes that the run is over.
    ///
    /// # Errors
    /// When the manifest cannot be written.
    pub fn finish(&mut self) -> results::Result<()> {
        self.keep_stale_schedule()?;
        self.manifest.ended = Some(chrono::Utc::now());
        self.keep_manifest()
    }

    /// When the machine stood still so far.
    pub fn standstills(&self) -> &[Standstill] {
        &self.standstills
    }

    /// Operations completed so far.
    pub fn counts(&self) -> Counts {
        self.counts
    }
}
