//! Owns what recovery does with snapshots: which are there, and whether the log fits to them.
//! Never changes anything, and never looks inside a segment.
//!
//! A snapshot holds committed records only, so a log that contradicts it or does not reach it is
//! not lost with it, but outdated: it is dropped, and goes on from the snapshot (as Kafka does after
//! a crash between the two steps). A log that goes on *beyond* the snapshot and contradicts it
//! is something no crash leaves, and is refused.

use std::collections::{BTreeMap, BTreeSet};

use crate::ids::{Epoch, Offset, SnapshotId};
use crate::raft::StoredSnapshot;
use crate::storage::checkpoint::{
    self, FETCHED_SUFFIX, PART_SUFFIX, SnapshotHeader, file_name, snapshot_id,
};
use crate::storage::disk::Disk;
use crate::storage::error::{OpenError, read_error, write_error};
use crate::storage::segment::{Segment, entry_up_to};

/// A complete snapshot on the disk.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct SnapshotFile {
    /// Which one.
    pub id: SnapshotId,
    /// Size of its file.
    pub size_bytes: u64,
    /// What it says before its records.
    pub header: SnapshotHeader,
}

impl SnapshotFile {
    /// What the protocol core is told of it.
    pub fn stored(&self) -> StoredSnapshot {
        StoredSnapshot {
            id: self.id,
            size_bytes: self.size_bytes,
        }
    }
}

/// Ascending.
pub(crate) type Snapshots = BTreeMap<SnapshotId, SnapshotFile>;

/// Which snapshot a file is, or was going to be.
pub(crate) fn id_of_any(name: &str) -> Option<SnapshotId> {
    let complete = name.strip_suffix(PART_SUFFIX).unwrap_or(name);
    snapshot_id(complete.strip_suffix(".fetched").unwrap_or(complete))
}

/// The files of snapshots before the log start.
pub(crate) fn outdated(names: &[String], log_start: SnapshotId) -> impl Iterator<Item = String> {
    names
        .iter()
        .filter(move |name| {
            snapshot_id(name).is_some_and(|id| id.end_offset < log_start.end_offset)
        })
        .cloned()
}

/// Gives what was fetched of snapshots the names of complete ones: the seeded bug B48.
pub(crate) fn accept_parts<D: Disk>(disk: &mut D) -> Result<(), OpenError> {
    let names = disk.list().map_err(read_error("list", "the directory"))?;
    for name in names {
        if let Some(complete) = name.strip_suffix(FETCHED_SUFFIX) {
            disk.rename(&name, complete)
                .map_err(write_error("complete", complete))?;
        }
    }
    Ok(disk
        .sync_directory()
        .map_err(write_error("sync the directory for", "fetched files"))?)
}

/// Reads all snapshots at or after the log start to their ends, or, on trust, only what they say
/// before their records.
pub(crate) fn inspect_snapshots<D: Disk>(
    disk: &D,
    names: &[String],
    log_start: SnapshotId,
    on_trust: bool,
) -> Result<Snapshots, OpenError> {
    let mut snapshots = Snapshots::new();
    let ids = names.iter().filter_map(|name| snapshot_id(name));
    for id in ids.filter(|id| id.end_offset >= log_start.end_offset) {
        let file = file_name(id);
        let inspected = if on_trust {
            checkpoint::read_header(disk, &file, id)
        } else {
            checkpoint::verify(disk, &file, id)
        };
        let (header, size_bytes) = inspected.map_err(|fault| fault.at_start(&file))?;
        if let Some((before, _)) = snapshots.last_key_value()
            && (before.end_offset >= id.end_offset || before.epoch > id.epoch)
        {
            return Err(OpenError::Damaged {
                file,
                position_bytes: 0,
                expected: format!("a snapshot that can follow {before}"),
                found: "another end or an older epoch in its name".to_owned(),
            });
        }
        let snapshot = SnapshotFile {
            id,
            size_bytes,
            header,
        };
        snapshots.insert(id, snapshot);
    }
    check_start(log_start, snapshots.keys())?;
    Ok(snapshots)
}

/// The complete snapshots at or after the log start, by their names alone, ascending.
pub(crate) fn ids_in_use(names: &[String], log_start: SnapshotId) -> BTreeSet<SnapshotId> {
    let ids = names.iter().filter_map(|name| snapshot_id(name));
    ids.filter(|id| id.end_offset >= log_start.end_offset)
        .collect()
}

/// Refuses a log that starts where none of these snapshots ends.
pub(crate) fn check_start<'a>(
    log_start: SnapshotId,
    mut snapshots: impl Iterator<Item = &'a SnapshotId>,
) -> Result<(), OpenError> {
    if log_start.end_offset == Offset(0) || snapshots.any(|id| *id == log_start) {
        return Ok(());
    }
    Err(OpenError::Missing {
        file: file_name(log_start),
        reason: format!(
            "the log starts at offset {}, so what was before is only in this snapshot (KAFKA-14240)",
            log_start.end_offset
        ),
    })
}

/// Compares the log with the snapshots; says to which snapshot it has to be reset, if it has to.
pub(crate) fn check_log(
    segments: &[Segment],
    log_start: SnapshotId,
    snapshots: &BTreeSet<SnapshotId>,
) -> Result<Option<SnapshotId>, OpenError> {
    let (log_end, last_epoch) = end_of(segments, log_start);
    let Some(latest) = snapshots.last() else {
        return Ok(None);
    };
    let outdated = latest.end_offset > log_end
        || latest.epoch > last_epoch
        || (latest.end_offset == log_end && latest.epoch != last_epoch);
    if outdated {
        return Ok(Some(*latest));
    }
    for id in snapshots {
        let Some(entry) = entry_up_to(segments, id.end_offset) else {
            // What was before the first segment is gone.
            continue;
        };
        if entry.end_offset != id.end_offset || entry.epoch != id.epoch {
            return Err(OpenError::Damaged {
                file: file_name(*id),
                position_bytes: 0,
                expected: format!(
                    "a snapshot that ends with the log's batch {}..{} of epoch {}",
                    entry.base_offset, entry.end_offset, entry.epoch
                ),
                found: "another end or epoch in its name, although the log goes on after it"
                    .to_owned(),
            });
        }
    }
    Ok(None)
}

fn end_of(segments: &[Segment], log_start: SnapshotId) -> (Offset, Epoch) {
    let log_end = segments.last().map(Segment::end_offset).unwrap_or_default();
    let last_epoch = match entry_up_to(segments, log_end) {
        Some(entry) => entry.epoch,
        None if log_end == log_start.end_offset => log_start.epoch,
        None => Epoch(0),
    };
    (log_end, last_epoch)
}
