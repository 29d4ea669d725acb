//! Owns the comparison of what clients were told with what is on the disks: logs, and snapshots of what was before them.
//! Never believes a node where records are; only that they are committed is taken from what it said.

use std::collections::{BTreeMap, BTreeSet};

use results::disk_image::{DiskImage, StoredContents, StoredSnapshot};
use results::history::{Operation, OperationType};
use results::store::Recording;
use rustc_hash::FxHashMap;
use serde_json::json;

use super::change::{self, Step};
use super::claims::Claims;
use crate::epoch_history::property::Property;
use crate::operations::{ClientOperation, Malformed, is_read, pair};

const SOURCE: &str =
    "what a client is told is done is durable on a majority, and what is refused never happens";

/// What the clients of a run did.
#[derive(Debug, Clone, Copy)]
pub struct Clients<'a> {
    /// What clients did, and were told.
    pub history: &'a [Operation],
    /// The workload they followed.
    pub workload: &'a str,
}

impl<'a> Clients<'a> {
    /// Those of a run.
    pub fn of(recording: &'a Recording) -> Self {
        Self {
            history: &recording.history,
            workload: &recording.manifest.options.workload,
        }
    }
}

/// One disk whose node is to be held to it.
#[derive(Clone, Copy)]
pub(super) struct Disk<'a> {
    pub(super) node: &'a str,
    pub(super) claims: &'a Claims,
    pub(super) image: &'a DiskImage,
}

/// All disks that can be held to something.
pub(super) struct Disks<'a> {
    pub(super) disks: &'a [Disk<'a>],
    /// Whether these are the disks of all nodes.
    pub(super) are_all: bool,
    /// Whether faults may have destroyed what a majority had.
    pub(super) may_have_lost: bool,
}

/// What became of an operation, as far as logs are concerned.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Fate {
    /// Its client was told that it is done, by the record at this offset; the leader of this epoch said so.
    Done { offset: i64, epoch: i32 },
    /// Its record is in the log, and changed nothing.
    Undone,
    /// It is in no log.
    Refused,
    /// Nobody knows.
    Open,
}

/// An operation that may have a record in a log.
struct Told<'a> {
    operation: ClientOperation<'a>,
    steps: Vec<Step<'a>>,
    change: u64,
    fate: Fate,
}

impl<'a> Told<'a> {
    fn new(operation: ClientOperation<'a>, counts: bool) -> Option<Self> {
        let steps = change::steps(operation.invoke, counts)?;
        let completion = operation.completion.map(|(_, line)| line);
        let offset = completion.and_then(|line| line.offset);
        let epoch = completion.and_then(|line| line.epoch);
        let fate = match (operation.outcome(), offset.zip(epoch)) {
            // Several reads together may have a record in the log, or not; it changes nothing.
            _ if is_read(operation.invoke) => Fate::Open,
            (OperationType::Ok, Some((offset, epoch))) => Fate::Done { offset, epoch },
            (OperationType::Fail, Some(_)) => Fate::Undone,
            (OperationType::Fail, None) => Fate::Refused,
            _ => Fate::Open,
        };
        Some(Self {
            change: change::number(&steps),
            operation,
            steps,
            fate,
        })
    }

    /// Where its record is, if that is below `end` and its client knows.
    fn done_below(&self, end: i64) -> Option<i64> {
        match self.fate {
            Fate::Done { offset, .. } if offset < end => Some(offset),
            _ => None,
        }
    }

    fn words(&self) -> String {
        let invoked = self.operation.invoke;
        let key = invoked.key.as_ref();
        let key = key.map_or_else(String::new, |key| format!(" of key {key}"));
        let value = match &invoked.value {
            serde_json::Value::Null => String::new(),
            value => format!(" {value}"),
        };
        format!("{}{value}{key} {}", invoked.f, self.operation.by_whom())
    }

    fn time(&self) -> u64 {
        let completion = self.operation.completion.map(|(_, line)| line.time);
        completion.unwrap_or(self.operation.invoke.time)
    }

    fn evidence(&self) -> serde_json::Value {
        self.operation.evidence(Some(&self.operation.invoke.value))
    }
}

/// Compares what clients were told with the disks: the properties D10 to D12.
///
/// # Errors
/// If the history cannot be what a run recorded.
pub(super) fn compare(disks: &Disks<'_>, clients: Clients<'_>) -> Result<[Property; 3], Malformed> {
    let counts = matches!(clients.workload, "counter" | "unique-ids");
    let operations = pair(clients.history)?;
    let told = operations.into_iter();
    let told: Vec<Told<'_>> = told.filter_map(|one| Told::new(one, counts)).collect();
    let mut done = property("D10", "what clients were told is done is in the logs");
    let mut asked = property(
        "D11",
        "what is committed was asked for by a client, and not refused for sure",
    );
    let mut kept = property(
        "D12",
        "snapshots hold what clients were told is done, and nothing that was not",
    );
    if !told.is_empty() {
        if !disks.may_have_lost {
            all_done(&mut done, disks, &told);
        }
        committed(&mut asked, disks, &told);
        in_snapshots(&mut kept, disks, &told);
    }
    Ok([done, asked, kept])
}

fn property(id: &'static str, title: &'static str) -> Property {
    Property::new(id, title, SOURCE)
}

/// What a disk says of a record that a leader has called committed.
enum Found {
    /// It is there.
    Same,
    /// It is under a snapshot.
    Passed,
    /// The log has not got so far, or leads another way that nobody followed.
    Unsaid,
    /// It should be there, and is not.
    Another,
}

/// Looks for the record of an operation that is done. Whoever has records of a later epoch has all that was
/// committed before it, and whoever has later ones of the same epoch has what its leader has.
fn find(image: &DiskImage, offset: i64, epoch: i32, change: u64) -> Found {
    if offset < image.log_start {
        return Found::Passed;
    }
    if image.change_at(offset) == Some(change) {
        return Found::Same;
    }
    let last_epoch = image.batches.last().map_or(-1, |batch| batch.epoch);
    let must_have = last_epoch > epoch || (last_epoch == epoch && offset < image.log_end());
    match must_have {
        true => Found::Another,
        false => Found::Unsaid,
    }
}

fn all_done(property: &mut Property, disks: &Disks<'_>, told: &[Told<'_>]) {
    let readable = |disk: &&Disk<'_>| disk.image.commands.is_some();
    for one in told {
        let Fate::Done { offset, epoch } = one.fate else {
            continue;
        };
        let mut is_somewhere = false;
        for disk in disks.disks.iter().filter(readable) {
            match find(disk.image, offset, epoch, one.change) {
                Found::Same => {
                    property.checked += 1;
                    is_somewhere = true;
                }
                Found::Passed => is_somewhere = true,
                Found::Unsaid => {}
                Found::Another => {
                    property.checked += 1;
                    is_somewhere = true;
                    let mut batches = disk.image.batches.iter();
                    let found = batches.find(|batch| batch.last_offset >= offset);
                    let log_end = disk.image.log_end();
                    let there = match found.map(|batch| batch.epoch) {
                        Some(epoch) => format!("holds something else there, of epoch {epoch}"),
                        None => format!("ends at {log_end}"),
                    };
                    let node = disk.node;
                    let what = format!(
                        "{}: its client was told that it is done, at offset {offset} in epoch {epoch}; the log of \
                         {node} {there}",
                        one.words()
                    );
                    property.violated(one.time(), || {
                        let found = json!({"node": node, "found": found, "log_end": log_end});
                        (what, one.evidence(), found)
                    });
                }
            }
        }
        if !is_somewhere && disks.are_all && disks.disks.iter().all(|disk| readable(&disk)) {
            property.checked += 1;
            let what = format!(
                "{}: its client was told that it is done, at offset {offset} in epoch {epoch}; it is in no log",
                one.words()
            );
            property.violated(one.time(), || {
                let ends = disks.disks.iter();
                let ends = ends.map(|disk| (disk.node, disk.image.log_end()));
                let ends: BTreeMap<&str, i64> = ends.collect();
                (what, one.evidence(), json!({ "log_ends": ends }))
            });
        }
    }
}

/// Whether some operation may have done this, and one that surely did not.
#[derive(Default)]
struct Askers<'a> {
    is_possible: bool,
    denied: Option<&'a Told<'a>>,
}

fn committed(property: &mut Property, disks: &Disks<'_>, told: &[Told<'_>]) {
    let mut askers: FxHashMap<u64, Askers<'_>> = FxHashMap::default();
    for one in told {
        let askers = askers.entry(one.change).or_default();
        match one.fate {
            Fate::Refused => askers.denied = Some(one),
            Fate::Done { .. } | Fate::Undone | Fate::Open => askers.is_possible = true,
        }
    }
    for disk in disks.disks {
        let runs = disk.image.commands.iter().flatten();
        let commands = runs.flat_map(|run| (run.from..).zip(&run.changes));
        let (start, end) = (disk.image.log_start, disk.claims.committed_end);
        for (offset, change) in commands.filter(|(offset, _)| (start..end).contains(offset)) {
            property.checked += 1;
            let node = disk.node;
            let (what, time, operation) = match askers.get(change) {
                Some(Askers {
                    is_possible: true, ..
                }) => continue,
                Some(Askers {
                    denied: Some(one), ..
                }) => (
                    format!(
                        "{}: its client was told that it was refused, and it is committed at offset {offset} in the \
                         log of {node}",
                        one.words()
                    ),
                    one.time(),
                    one.evidence(),
                ),
                _ => (
                    format!(
                        "the command at offset {offset} in the log of {node} is committed, and no client asked for it"
                    ),
                    disk.claims.time,
                    serde_json::Value::Null,
                ),
            };
            property.violated(time, || {
                (what, operation, json!({"node": node, "offset": offset}))
            });
        }
    }
}

fn in_snapshots(property: &mut Property, disks: &Disks<'_>, told: &[Told<'_>]) {
    let mut seen = BTreeSet::new();
    let mut denied: FxHashMap<u64, Askers<'_>> = FxHashMap::default();
    for (one, left) in told
        .iter()
        .flat_map(|one| one.steps.iter().map(move |step| (one, step.left_behind())))
    {
        let Some(left) = left else { continue };
        let askers = denied.entry(left).or_default();
        match one.fate {
            Fate::Refused | Fate::Undone => askers.denied = Some(one),
            Fate::Done { .. } | Fate::Open => askers.is_possible = true,
        }
    }
    for disk in disks.disks {
        for snapshot in &disk.image.snapshots {
            let name = (snapshot.end_offset, snapshot.last_epoch);
            let Some(contents) = &snapshot.contents else {
                continue;
            };
            if !seen.insert((name, snapshot.content_crc)) {
                continue;
            }
            let mut under = UnderSnapshot {
                property,
                node: disk.node,
                snapshot,
                contents,
            };
            if !disks.may_have_lost {
                under.elements(told);
                under.registers(told);
                under.counters(told);
            }
            under.denied(&denied);
        }
    }
}

/// One snapshot, and what was done before its end.
struct UnderSnapshot<'p, 'a> {
    property: &'p mut Property,
    node: &'a str,
    snapshot: &'a StoredSnapshot,
    contents: &'a StoredContents,
}

impl UnderSnapshot<'_, '_> {
    fn violated(&mut self, one: &Told<'_>, but: &str) {
        let (node, end) = (self.node, self.snapshot.end_offset);
        let what = format!(
            "{}: its client was told that it {but} in the snapshot of {node} that ends at {end}",
            one.words()
        );
        self.property.violated(one.time(), || {
            let end = json!({"node": node, "end_offset": end});
            (what, one.evidence(), end)
        });
    }

    fn has_element(&self, number: u64) -> bool {
        self.contents.elements.binary_search(&number).is_ok()
    }

    /// What was added to lists and sets is never taken away.
    fn elements(&mut self, told: &[Told<'_>]) {
        let end = self.snapshot.end_offset;
        for one in told.iter().filter(|one| one.done_below(end).is_some()) {
            let added = one
                .steps
                .iter()
                .filter(|step| matches!(step, Step::Append { .. } | Step::AddElement { .. }));
            for step in added {
                self.property.checked += 1;
                if !self.has_element(step.number()) {
                    self.violated(one, "is done, and it is not");
                }
            }
        }
    }

    /// A register holds what was written to it last, or something of which nobody knows when it was.
    fn registers(&mut self, told: &[Told<'_>]) {
        let end = self.snapshot.end_offset;
        let mut last: BTreeMap<&str, (i64, &Told<'_>, u64)> = BTreeMap::new();
        let mut open: BTreeMap<&str, BTreeSet<u64>> = BTreeMap::new();
        for one in told {
            for step in &one.steps {
                let (Step::Write { key, .. } | Step::CompareAndSet { key, .. }) = step else {
                    continue;
                };
                let Some(left) = step.left_behind() else {
                    continue;
                };
                if let Some(offset) = one.done_below(end) {
                    let known = last.entry(key).or_insert((offset, one, left));
                    if known.0 <= offset {
                        *known = (offset, one, left);
                    }
                } else if one.fate == Fate::Open {
                    open.entry(key).or_default().insert(left);
                }
            }
        }
        for (key, (_, one, left)) in last {
            self.property.checked += 1;
            let found = self.contents.registers.get(key);
            let may_be_open = |found: &u64| open.get(key).is_some_and(|open| open.contains(found));
            if !found.is_some_and(|found| *found == left || may_be_open(found)) {
                self.violated(
                    one,
                    "is done, as the last of that register, and another value is",
                );
            }
        }
    }

    /// A counter holds what was added for sure, and some of what was added perhaps.
    fn counters(&mut self, told: &[Told<'_>]) {
        let end = self.snapshot.end_offset;
        // Surely, at least besides, at most besides.
        let mut sums: BTreeMap<&str, [i128; 3]> = BTreeMap::new();
        for one in told {
            for step in &one.steps {
                let Step::AddNumber { key, delta } = step else {
                    continue;
                };
                let delta = i128::from(*delta);
                let [surely, least, most] = sums.entry(key).or_default();
                if one.done_below(end).is_some() {
                    *surely += delta;
                } else if one.fate == Fate::Open {
                    *least += delta.min(0);
                    *most += delta.max(0);
                }
            }
        }
        for (key, [surely, least, most]) in sums {
            self.property.checked += 1;
            let found = self.contents.counters.get(key).copied().unwrap_or(0);
            let (low, high) = (surely + least, surely + most);
            if (low..=high).contains(&i128::from(found)) {
                continue;
            }
            let (node, end) = (self.node, self.snapshot.end_offset);
            let what = format!(
                "key {key} is {found} in the snapshot of {node} that ends at {end}; by what clients were told it is at \
                 least {low} and at most {high} there"
            );
            self.property.violated(0, || {
                let bounds = json!({"key": key, "low": low.to_string(), "high": high.to_string()});
                (
                    what,
                    bounds,
                    json!({"node": node, "end_offset": end, "found": found}),
                )
            });
        }
    }

    /// What was refused, or changed nothing, is not there.
    fn denied(&mut self, askers: &FxHashMap<u64, Askers<'_>>) {
        let registers = self.contents.registers.values();
        for left in registers.chain(&self.contents.elements) {
            self.property.checked += 1;
            if let Some(Askers {
                is_possible: false,
                denied: Some(one),
            }) = askers.get(left)
            {
                self.violated(one, "had no effect, and it is");
            }
        }
    }
}
