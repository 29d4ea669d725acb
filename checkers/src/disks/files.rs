//! Owns reading the files of a data directory, one by one and the log as a whole.
//! Never repairs anything, and never reads on behind what it cannot read.

use std::collections::{BTreeMap, BTreeSet};

use results::disk_image::{
    DiskImage, StoredBatch, StoredCommands, StoredQuorumState, StoredSnapshot,
};
use serde_json::Value;

use super::batches::{Announced, Batch, batch, frame};
use super::change;
use super::fold::{Fold, State};
use super::state_hash;

const QUORUM_STATE: &str = "quorum-state";
const LOG_START: &str = "log-start";
const META: &str = "meta.properties";

/// Reads the durable files of a node, by name. Nothing in them is taken on trust.
///
/// Zeros at the end of a segment are room that was reserved, and bytes behind the last sound batch of the
/// last segment may be a write that a crash has torn: neither is a flaw by itself. Whether something is
/// missing is for whoever knows what the node said.
///
/// `wanted` are the ends of snapshots, of any node, at which the commands of the log are added up.
pub fn read(files: &BTreeMap<String, Vec<u8>>, wanted: &BTreeSet<i64>) -> DiskImage {
    let mut image = DiskImage::default();
    read_meta(files, &mut image);
    if let Some(content) = files.get(QUORUM_STATE) {
        match quorum_state(content) {
            Ok(state) => image.quorum_state = Some(state),
            Err(flaw) => image.flaws.push(format!("{QUORUM_STATE}: {flaw}")),
        }
    }
    if let Some(content) = files.get(LOG_START) {
        match log_start(content) {
            Ok(start) => image.log_start = start,
            Err(flaw) => image.flaws.push(format!("{LOG_START}: {flaw}")),
        }
    }
    let fold = fold(files, image.log_start, wanted);
    read_log(files, &mut image, fold);
    read_snapshots(files, &mut image, wanted);
    image
}

fn read_snapshots(
    files: &BTreeMap<String, Vec<u8>>,
    image: &mut DiskImage,
    wanted: &BTreeSet<i64>,
) {
    let ends = files.keys().filter_map(|name| snapshot_name(name));
    let newest = ends.max();
    for (name, content) in files {
        let Some((end_offset, last_epoch)) = snapshot_name(name) else {
            continue;
        };
        if end_offset == 0 {
            continue;
        }
        let read = match snapshot(content, last_epoch) {
            Ok(read) => read,
            Err(flaw) => {
                image.flaws.push(format!("{name}: {flaw}"));
                continue;
            }
        };
        let is_wanted = wanted.contains(&end_offset);
        let is_newest = newest == Some((end_offset, last_epoch));
        let state = is_wanted.then(|| read.state()).flatten();
        image.snapshots.push(StoredSnapshot {
            end_offset,
            last_epoch,
            state_crc: state.as_ref().map(State::crc),
            computed_digest: match is_wanted {
                true => state_hash::of_snapshot(read.records.iter().copied()),
                false => None,
            },
            contents: state.filter(|_| is_newest).map(|state| state.contents()),
            content_crc: read.content_crc,
            digest: read.digest,
        });
    }
}

/// The ends of the snapshots among the files of a data directory, by name: those at which logs are worth adding
/// up.
pub fn snapshot_ends<'a>(names: impl IntoIterator<Item = &'a str>) -> BTreeSet<i64> {
    let names = names.into_iter().filter_map(snapshot_name);
    names.map(|(end, _)| end).filter(|end| *end > 0).collect()
}

/// Where adding up the log begins: with nothing, or with the snapshot at which the log starts. `None` if nothing
/// is wanted, or that snapshot cannot be read.
fn fold(files: &BTreeMap<String, Vec<u8>>, log_start: i64, wanted: &BTreeSet<i64>) -> Option<Fold> {
    wanted.range(log_start + 1..).next()?;
    if log_start == 0 {
        return Some(Fold::new(State::default(), 0, wanted));
    }
    let (content, epoch) = files.iter().find_map(|(name, content)| {
        let (end, epoch) = snapshot_name(name)?;
        (end == log_start).then_some((content, epoch))
    })?;
    let state = snapshot(content, epoch).ok()?.state()?;
    Some(Fold::new(state, log_start, wanted))
}

fn read_meta(files: &BTreeMap<String, Vec<u8>>, image: &mut DiskImage) {
    let Some(content) = files.get(META) else {
        return;
    };
    let text = String::from_utf8_lossy(content);
    let field = |name: &str| {
        let mut fields = text.lines().filter_map(|line| line.split_once('='));
        fields.find(|(key, _)| *key == name).map(|(_, value)| value)
    };
    image.node_id = field("node.id").and_then(|value| value.parse().ok());
    image.directory_id = field("directory.id").map(str::to_owned);
    if image.node_id.is_none() {
        image.flaws.push(format!("{META}: no node.id"));
    }
}

/// One line of JSON with a checksum over the line without it.
fn quorum_state(content: &[u8]) -> Result<StoredQuorumState, String> {
    let text = std::str::from_utf8(content).map_err(|error| error.to_string())?;
    let line: Value = serde_json::from_str(text).map_err(|error| error.to_string())?;
    let (bare, checksum) = text
        .trim_end()
        .rsplit_once(",\"checksum\":\"")
        .ok_or("no checksum")?;
    let expected = format!("{:08x}\"}}", crc32c::crc32c(format!("{bare}}}").as_bytes()));
    if checksum != expected {
        return Err("a wrong checksum".into());
    }
    let number = |field: &str| {
        let number = line[field].as_i64().and_then(|it| i32::try_from(it).ok());
        number.ok_or_else(|| format!("no number {field}"))
    };
    let node = |id: i32| (id >= 0).then(|| format!("n{id}"));
    Ok(StoredQuorumState {
        epoch: number("leaderEpoch")?,
        leader: node(number("leaderId")?),
        voted_for: node(number("votedId")?),
    })
}

/// Version, snapshot and checksum: the log starts where the snapshot ends.
fn log_start(content: &[u8]) -> Result<i64, String> {
    let text = String::from_utf8_lossy(content);
    let (line, checksum) = text.trim_end().rsplit_once(' ').ok_or("no checksum")?;
    if checksum != format!("{:08x}", crc32c::crc32c(line.as_bytes())) {
        return Err("a wrong checksum".into());
    }
    let name = line.strip_prefix("1 ").ok_or("an unknown version")?;
    let start = snapshot_name(&format!("{name}.checkpoint"));
    Ok(start.ok_or("no name of a snapshot")?.0)
}

/// End offset and epoch.
fn snapshot_name(name: &str) -> Option<(i64, i32)> {
    let (end_offset, epoch) = name.strip_suffix(".checkpoint")?.split_once('-')?;
    Some((end_offset.parse().ok()?, epoch.parse().ok()?))
}

fn segment_base(name: &str) -> Option<i64> {
    name.strip_suffix(".log")?.parse().ok()
}

/// The segments from the one that holds the log start on, as long as each goes on where the one before ends.
fn read_log(files: &BTreeMap<String, Vec<u8>>, image: &mut DiskImage, fold: Option<Fold>) {
    let mut segments: Vec<(i64, &String, &Vec<u8>)> = files
        .iter()
        .filter_map(|(name, content)| Some((segment_base(name)?, name, content)))
        .collect();
    segments.sort_unstable();
    let begun_count = segments.partition_point(|(base, ..)| *base <= image.log_start);
    let mut log = LogReader {
        fold,
        ..LogReader::default()
    };
    for (base, name, content) in segments.drain(begun_count.saturating_sub(1)..) {
        let is_next = log.end.is_none_or(|end| end == base);
        if !is_next {
            // An empty one is the beginning of a roll, or the end of a cut, that a crash broke off.
            if !content.is_empty() {
                image
                    .flaws
                    .push(format!("{name}: the segment before does not lead up to it"));
            }
            break;
        }
        log.end = Some(base);
        if let Err(flaw) = log.read(content) {
            image.flaws.push(format!("{name}: {flaw}"));
            break;
        }
    }
    let start = image.log_start;
    log.batches.retain(|batch| batch.last_offset >= start);
    image.batches = log.batches;
    image.commands = Some(log.commands);
    image.folded = log.fold.map(Fold::finish).unwrap_or_default();
}

#[derive(Debug, Default)]
struct LogReader {
    batches: Vec<StoredBatch>,
    /// Where the next batch begins; `None` before the first segment.
    end: Option<i64>,
    /// Checksum of the batch before; `None` where that is gone with the beginning of the log.
    last_crc: Option<u32>,
    last_epoch: i32,
    fold: Option<Fold>,
    commands: Vec<StoredCommands>,
}

impl LogReader {
    fn note_commands(&mut self, batch: &Batch<'_>) {
        let from = batch.stored.base_offset;
        let changes = batch.records().map(change::of_record);
        match self.commands.last_mut() {
            Some(run) if run.from + run.changes.len() as i64 == from => run.changes.extend(changes),
            _ => self.commands.push(StoredCommands {
                from,
                changes: changes.collect(),
            }),
        }
    }

    fn read(&mut self, segment: &[u8]) -> Result<(), String> {
        let reserved = segment.iter().rev().take_while(|byte| **byte == 0).count();
        // A batch may end with zeros itself, so zeros end the log only where a frame would have to be.
        let zeros_from = segment.len() - reserved;
        if self.batches.is_empty() && self.end == Some(0) {
            self.last_crc = Some(0);
        }
        let mut position = 0;
        while position < zeros_from {
            let at = |flaw: String| format!("byte {position}: {flaw}");
            let (frame, content) = frame(segment, position).map_err(at)?;
            if self.last_crc.is_some_and(|crc| crc != frame.previous_crc) {
                return Err(at("a frame that follows another batch".into()));
            }
            let Announced::Batch { batch_bytes } = frame.announced else {
                position = content;
                continue;
            };
            let bytes = segment.get(content..content + batch_bytes);
            let batch = batch(bytes.ok_or_else(|| at("a batch that is cut off".into()))?);
            let batch = batch.map_err(at)?;
            let stored = batch.stored;
            if batch.length_bytes != batch_bytes || self.end != Some(stored.base_offset) {
                return Err(at(format!(
                    "a batch with base offset {}, which does not go on where the log ends",
                    stored.base_offset
                )));
            }
            if stored.epoch < self.last_epoch {
                return Err(at(format!(
                    "a batch of epoch {} after one of epoch {}",
                    stored.epoch, self.last_epoch
                )));
            }
            self.last_crc = Some(stored.crc);
            self.last_epoch = stored.epoch;
            self.end = Some(stored.last_offset + 1);
            self.batches.push(stored);
            if !batch.is_control {
                self.note_commands(&batch);
            }
            if let Some(fold) = &mut self.fold {
                fold.take(&batch);
            }
            position = content + batch_bytes;
        }
        Ok(())
    }
}

/// A whole snapshot.
struct Snapshot<'a> {
    /// What it says its state hashes to.
    digest: Option<String>,
    /// Of the records of its state.
    content_crc: u32,
    records: Vec<&'a [u8]>,
}

impl Snapshot<'_> {
    /// The state that it holds; `None` if its records are none of a state.
    fn state(&self) -> Option<State> {
        State::of_snapshot(self.records.iter().copied()).ok()
    }
}

fn snapshot(content: &[u8], epoch: i32) -> Result<Snapshot<'_>, String> {
    let mut rest = content;
    let mut next_offset = 0;
    let mut has_header = false;
    let mut has_footer = false;
    let mut digest = None;
    let mut content_crc = 0;
    let mut records = Vec::new();
    while !rest.is_empty() {
        let at = content.len() - rest.len();
        let batch = batch(rest).map_err(|flaw| format!("byte {at}: {flaw}"))?;
        let stored = batch.stored;
        if has_footer || stored.base_offset != next_offset || stored.epoch != epoch {
            return Err(format!("byte {at}: a batch that does not belong there"));
        }
        next_offset = stored.last_offset + 1;
        rest = &rest[batch.length_bytes..];
        if batch.is_control {
            (has_header, has_footer) = (true, has_header);
            continue;
        }
        if !has_header {
            return Err("no header before the state".into());
        }
        for record in batch.records() {
            if content_crc == 0 {
                digest = digest_in(record);
            }
            content_crc = crc32c::crc32c_append(content_crc, record);
            records.push(record);
        }
    }
    if !has_footer {
        return Err("no footer: it is not all there".into());
    }
    Ok(Snapshot {
        digest,
        content_crc,
        records,
    })
}

/// The hash in the first record of a state, as traces write it.
fn digest_in(record: &[u8]) -> Option<String> {
    let entry: Value = serde_json::from_slice(record.get(1..)?).ok()?;
    let digest = entry["summary"]["digest"].as_u64()?;
    Some(format!("{digest:016x}"))
}
