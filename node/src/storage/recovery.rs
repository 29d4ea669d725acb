//! Owns the way from what a crash left on the disk to a log that can be used.
//! Never changes anything before all of the directory is understood and found explainable.
//!
//! What a crash explains, and what is therefore repaired:
//! * Bad bytes at the end of the last segment that has any: the last write was torn. Sectors are
//!   written in any order, so sound batches of the same write may follow; they go as well, since
//!   none of it was reported durable. Batches of a *later* write say so (see [`frame`]), and then
//!   it is damage.
//! * Zeros at the end of the last segment that has any bytes: room that was reserved for more.
//! * Empty segments at the end: a roll or a truncation did not get to its end.
//! * Temporary files and snapshots without their final name.
//! * Segments and snapshots that lie wholly before the log start: their removal did not get to its
//!   end. They are not even read.
//! * A log that does not lead up to the newest snapshot: the snapshot was fetched, and the log not
//!   yet dropped (see `snapshot_recovery`).
//!
//! Everything else is damage and refused: cutting the log there could undo what was promised.
//!
//! So is a log without a quorum-state file: it was written in some epoch, in which this replica may have
//! voted, and could then vote again.
//!
//! Limits. Damage to the very last write, the one that no later frame witnesses, looks like a torn
//! write, and a file that lost the batches of its last seconds like a log that never got further;
//! [`Storage::seal`](crate::storage::Storage::seal) closes both gaps when a node is idle, and when it stops in
//! an orderly way. A directory that was replaced by an old copy of itself looks like one that never got
//! further. Where a log does not start at 0, nothing tells
//! which batch came before its first segment, so an old version of the beginning of that segment is
//! noticed only by what follows it.
//!
//! [`frame`]: crate::storage::frame

use std::collections::BTreeSet;

use crate::ids::{DirectoryId, Offset, SnapshotId};
use crate::raft::QuorumState;
use crate::storage::StorageOptions;
use crate::storage::checkpoint::{self, PART_SUFFIX};
use crate::storage::disk::{Disk, read_whole};
use crate::storage::error::{OpenError, read_error, write_error};
use crate::storage::format::initialise;
use crate::storage::log_end::{self, LogEnd};
use crate::storage::log_start;
use crate::storage::meta::{self, Identity, Meta, VotersFrom};
use crate::storage::quorum_state::{self, ConfiguredVoters};
use crate::storage::segment::{Damage, Ending, Link, Scan, Segment, base_offset, file_name, scan};
use crate::storage::snapshot_recovery::{self, Snapshots, check_log, inspect_snapshots};

/// What was found, all of it durable.
#[derive(Debug)]
pub(crate) struct Found {
    pub(crate) quorum_state: Option<QuorumState>,
    /// Those noted next to it.
    pub(crate) configured_voters: ConfiguredVoters,
    pub(crate) directory_id: Option<DirectoryId>,
    pub(crate) voters_from: VotersFrom,
    /// What `meta.properties` has to say from now on, once `log-end` is there.
    pub(crate) new_meta: Option<Meta>,
    /// Where the log starts; the default where it is whole.
    pub(crate) log_start: SnapshotId,
    /// Never empty; the last one is to be written to.
    pub(crate) segments: Vec<Segment>,
    /// None of them before the log start.
    pub(crate) snapshots: Snapshots,
    /// The log has to be dropped for this snapshot before it is used.
    pub(crate) reset_to: Option<SnapshotId>,
    /// How far the log is known to have gone once.
    pub(crate) known_end: Option<LogEnd>,
    pub(crate) truncated_bytes: u64,
}

/// Opens the directory of `identity`, or initialises it, and repairs it up to what
/// [`Found::reset_to`] says. A directory without an id of its own gets `new_directory_id`.
pub(crate) fn recover<D: Disk>(
    disk: &mut D,
    identity: &Identity,
    new_directory_id: Option<DirectoryId>,
    options: StorageOptions,
) -> Result<Found, OpenError> {
    identity.check()?;
    let new_meta = Meta {
        identity: identity.clone(),
        directory_id: new_directory_id,
        voters_from: VotersFrom::Configuration,
        tells_log_end: true,
        has_checksum: true,
    };
    let meta = match meta::read(disk)? {
        Some(found) if found.identity != *identity => {
            return Err(OpenError::Foreign {
                found: found.identity,
                expected: identity.clone(),
            });
        }
        Some(found) => found,
        None => {
            check_unused(disk)?;
            initialise(disk, &new_meta)?;
            new_meta.clone()
        }
    };
    if options.accept_parts {
        snapshot_recovery::accept_parts(disk)?;
    }
    let names = disk.list().map_err(read_error("list", "the directory"))?;
    let noted = quorum_state::read(disk)?;
    let (quorum_state, configured_voters) = match noted {
        Some(noted) => (Some(noted.state), noted.voters),
        None => (None, None),
    };
    let known_end = known_end(disk, meta.tells_log_end)?;
    let log_start = log_start::read(disk)?;
    let snapshots = inspect_snapshots(disk, &names, log_start, options.accept_parts)?;
    let ids = snapshots.keys().copied().collect();
    let verify_checksums = options.verify_checksums;
    let (mut plan, reset_to) =
        weigh_log(disk, &names, log_start, &ids, known_end, verify_checksums)?;
    if options.require_quorum_state && quorum_state.is_none() {
        check_never_voted(&plan.segments, &snapshots)?;
    }
    plan.remove
        .extend(snapshot_recovery::outdated(&names, log_start));
    plan.remove.extend(
        names
            .into_iter()
            .filter(|name| name.ends_with(".tmp") || name.ends_with(PART_SUFFIX)),
    );
    plan.apply(disk)?;
    let wanted = Meta {
        directory_id: meta.directory_id.or(new_directory_id),
        tells_log_end: true,
        has_checksum: true,
        ..meta.clone()
    };
    Ok(Found {
        quorum_state,
        configured_voters,
        directory_id: wanted.directory_id,
        voters_from: meta.voters_from,
        new_meta: (wanted != meta).then_some(wanted),
        log_start,
        segments: plan.segments,
        snapshots,
        reset_to,
        known_end,
        truncated_bytes: plan.truncated_bytes,
    })
}

/// Whether a start would take the log of this directory, as far as no more than the names of snapshots are looked at.
/// Reads in an order in which a log that grows meanwhile is never found too short.
///
/// # Errors
/// With why it would not, or if the directory cannot be read.
pub fn judge_log<D: Disk>(disk: &D) -> Result<(), OpenError> {
    let tells_log_end = meta::read(disk)?.is_some_and(|meta| meta.tells_log_end);
    let known_end = known_end(disk, tells_log_end)?;
    let log_start = log_start::read(disk)?;
    let names = disk.list().map_err(read_error("list", "the directory"))?;
    let ids = snapshot_recovery::ids_in_use(&names, log_start);
    snapshot_recovery::check_start(log_start, ids.iter())?;
    weigh_log(disk, &names, log_start, &ids, known_end, true).map(drop)
}

/// How far the log is known to have gone once.
fn known_end<D: Disk>(disk: &D, is_told: bool) -> Result<Option<LogEnd>, OpenError> {
    let known_end = log_end::read(disk)?;
    if is_told && known_end.is_none() {
        return Err(OpenError::Missing {
            file: log_end::FILE.to_owned(),
            reason: format!(
                "{} says that it was there, and without it nobody knows whether the log has lost its end",
                meta::FILE
            ),
        });
    }
    Ok(known_end)
}

/// What the log consists of, and to which snapshot it has to be reset, if it has to: judged by itself, by these
/// snapshots, and by how far it has gone once.
fn weigh_log<D: Disk>(
    disk: &D,
    names: &[String],
    log_start: SnapshotId,
    snapshots: &BTreeSet<SnapshotId>,
    known_end: Option<LogEnd>,
    verify_checksums: bool,
) -> Result<(Plan, Option<SnapshotId>), OpenError> {
    let plan = inspect_log(disk, names, log_start.end_offset, verify_checksums)?;
    let reset_to = check_log(&plan.segments, log_start, snapshots)?;
    if let Some(known_end) = known_end.filter(|_| verify_checksums) {
        log_end::check(known_end, &plan.segments, log_start, reset_to)?;
    }
    Ok((plan, reset_to))
}

/// Whoever has records has been in the epoch in which they came, and may have voted in it or later.
fn check_never_voted(segments: &[Segment], snapshots: &Snapshots) -> Result<(), OpenError> {
    let has_batches = segments.iter().find(|segment| !segment.entries.is_empty());
    let batches = has_batches.map(|segment| segment.file.clone());
    let fetched = snapshots.keys().find(|id| **id != SnapshotId::BOOTSTRAP);
    match batches.or(fetched.map(|id| checkpoint::file_name(*id))) {
        None => Ok(()),
        Some(witness) => Err(OpenError::Missing {
            file: quorum_state::FILE.to_owned(),
            reason: format!(
                "{witness} next to it shows that this replica has been in an epoch, in which it may have \
                 voted, and without the file it could vote a second time"
            ),
        }),
    }
}

/// Without `meta.properties` the directory must hold nothing that a replica wrote.
fn check_unused<D: Disk>(disk: &D) -> Result<(), OpenError> {
    let names = disk.list().map_err(read_error("list", "the directory"))?;
    let mut half_formatted = None;
    for name in names {
        let length_bytes = disk.length(&name).map_err(read_error("examine", &name))?;
        let has_batches = base_offset(&name).is_some() && length_bytes != Some(0);
        let is_later_snapshot =
            snapshot_recovery::id_of_any(&name).is_some_and(|id| id != SnapshotId::BOOTSTRAP);
        let tells_of_batches =
            name == log_end::FILE && log_end::read(disk)?.is_some_and(|end| end != LogEnd::NONE);
        if has_batches
            || is_later_snapshot
            || tells_of_batches
            || name == quorum_state::FILE
            || name == log_start::FILE
        {
            return Err(OpenError::Missing {
                file: meta::FILE.to_owned(),
                reason: format!(
                    "without it nobody knows which replica {name} next to it belongs to"
                ),
            });
        }
        if snapshot_recovery::id_of_any(&name).is_some() {
            half_formatted = Some(name);
        }
    }
    match half_formatted {
        Some(file) => Err(OpenError::HalfFormatted { file }),
        None => Ok(()),
    }
}

/// What the log consists of, and what has to be done before it can be used.
#[derive(Debug, Default)]
struct Plan {
    segments: Vec<Segment>,
    /// File, and how much of it stays.
    cut: Option<(String, u64)>,
    truncated_bytes: u64,
    /// In this order.
    remove: Vec<String>,
}

impl Plan {
    fn apply<D: Disk>(&self, disk: &mut D) -> Result<(), OpenError> {
        // A process that was killed without a power cut leaves names that are visible, but not
        // durable. Nothing is removed that a power cut could make needed again.
        disk.sync_directory()
            .map_err(write_error("sync the directory for", "found files"))?;
        if let Some((file, kept_bytes)) = &self.cut {
            disk.truncate(file, *kept_bytes)
                .map_err(write_error("cut what follows the log in", file))?;
        }
        // A process that was killed without a power cut leaves bytes that are visible, but were
        // never synced. Only the last two segments can hold such bytes: a roll ends with a sync.
        for segment in self.segments.iter().rev().take(2) {
            disk.sync(&segment.file)
                .map_err(write_error("sync", &segment.file))?;
        }
        for file in &self.remove {
            disk.remove(file).map_err(write_error("remove", file))?;
        }
        disk.sync_directory()
            .map_err(write_error("sync the directory for", "recovered files"))?;
        Ok(())
    }
}

fn inspect_log<D: Disk>(
    disk: &D,
    names: &[String],
    log_start: Offset,
    verify_checksums: bool,
) -> Result<Plan, OpenError> {
    // Names have a fixed width, so their order is that of the offsets.
    let bases: Vec<Offset> = names.iter().filter_map(|name| base_offset(name)).collect();
    let up_to_start_count = bases.partition_point(|base| *base <= log_start);
    let Some(first) = up_to_start_count.checked_sub(1) else {
        return Err(OpenError::Missing {
            file: file_name(log_start),
            reason: format!("the log starts with offset {log_start}"),
        });
    };
    let (below, bases) = bases.split_at(first);
    let mut last_with_bytes = 0;
    for (at, base) in bases.iter().enumerate() {
        let file = file_name(*base);
        if disk.length(&file).map_err(read_error("examine", &file))? != Some(0) {
            last_with_bytes = at;
        }
    }

    let mut plan = Plan {
        remove: below.iter().map(|base| file_name(*base)).collect(),
        ..Plan::default()
    };
    let mut link = Link::at(bases[0]);
    for base in &bases[..last_with_bytes] {
        let (segment, ending) = inspect_segment(disk, *base, link, verify_checksums)?;
        check_closed(&segment, &ending)?;
        link = link.after(&segment.entries);
        plan.segments.push(segment);
    }
    let (segment, ending) = inspect_segment(disk, bases[last_with_bytes], link, verify_checksums)?;
    link = link.after(&segment.entries);
    let mut empty = &bases[last_with_bytes + 1..];
    let whole_bytes = disk
        .length(&segment.file)
        .map_err(read_error("examine", &segment.file))?
        .unwrap_or(0);
    if whole_bytes != segment.length_bytes {
        plan.cut = Some((segment.file.clone(), segment.length_bytes));
    }
    match ending {
        Ending::Open { .. } => {}
        Ending::Torn(_) => plan.truncated_bytes = written_bytes(disk, &segment)?,
        Ending::Closed => match empty.split_first() {
            Some((next, rest)) if *next == link.log_end => empty = rest,
            _ => {
                return Err(OpenError::Missing {
                    file: file_name(link.log_end),
                    reason: format!(
                        "the end of {} says that the log goes on there",
                        segment.file
                    ),
                });
            }
        },
    }
    plan.segments.push(segment);
    if ending == Ending::Closed {
        plan.segments.push(Segment::empty(link.log_end));
    }
    plan.remove
        .extend(empty.iter().rev().map(|base| file_name(*base)));
    Ok(plan)
}

/// Bytes behind the log in its last segment, without the zeros of space that was only reserved.
fn written_bytes<D: Disk>(disk: &D, segment: &Segment) -> Result<u64, OpenError> {
    let bytes = read_whole(disk, &segment.file).map_err(read_error("read", &segment.file))?;
    let bytes = bytes.unwrap_or_default();
    let end = bytes.iter().rposition(|byte| *byte != 0);
    let end_bytes = end.map_or(0, |last| last as u64 + 1);
    Ok(end_bytes.saturating_sub(segment.length_bytes))
}

fn inspect_segment<D: Disk>(
    disk: &D,
    base: Offset,
    link: Link,
    verify_checksums: bool,
) -> Result<(Segment, Ending), OpenError> {
    let file = file_name(base);
    if base != link.log_end {
        return Err(OpenError::Missing {
            file: file_name(link.log_end),
            reason: format!(
                "the segments before end at offset {}, the next one is {file}",
                link.log_end
            ),
        });
    }
    let bytes = read_whole(disk, &file)
        .map_err(read_error("read", &file))?
        .unwrap_or_default();
    let Scan {
        entries,
        sound_bytes,
        ending,
    } = scan(&bytes, link, verify_checksums).map_err(|damage| damaged(&file, damage))?;
    let segment = Segment {
        base_offset: base,
        file,
        length_bytes: sound_bytes,
        durable_bytes: sound_bytes,
        sealed: ending == Ending::Open { sealed: true },
        entries,
    };
    Ok((segment, ending))
}

/// A segment followed by one with batches was durable to its end before the first of them.
fn check_closed(segment: &Segment, ending: &Ending) -> Result<(), OpenError> {
    match ending {
        Ending::Closed => Ok(()),
        Ending::Open { .. } => Err(damaged(
            &segment.file,
            Damage {
                position_bytes: segment.length_bytes,
                expected: format!("the batch with base offset {}", segment.end_offset()),
                found: "the end of the file, although a later segment has batches".to_owned(),
            },
        )),
        Ending::Torn(damage) => {
            let mut damage = damage.clone();
            damage
                .found
                .push_str(", although a later segment has batches");
            Err(damaged(&segment.file, damage))
        }
    }
}

fn damaged(file: &str, damage: Damage) -> OpenError {
    OpenError::Damaged {
        file: file.to_owned(),
        position_bytes: damage.position_bytes,
        expected: damage.expected,
        found: damage.found,
    }
}
