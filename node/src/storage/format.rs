//! Owns the formatting of a data directory: its identity, and the voters it begins with.
//! Never touches a directory that holds anything else.

use crate::ids::{DirectoryId, Offset, SnapshotId};
use crate::raft::RecordedVoters;
use crate::storage::checkpoint::{self, PART_SUFFIX, SnapshotHeader};
use crate::storage::checkpoint_writer::SnapshotWriter;
use crate::storage::disk::Disk;
use crate::storage::error::{OpenError, StorageError, read_error, write_error};
use crate::storage::log_end::{self, LogEnd};
use crate::storage::meta::{self, Identity, Meta, VotersFrom};
use crate::storage::segment::file_name;

/// Formats an empty directory (KIP-853). With `bootstrap` it begins with these voters, as a
/// snapshot of the empty log: all voters of a new cluster must be formatted with the same ones.
/// Without, the replica learns its voters from its configuration or from a leader.
///
/// `meta.properties` is written last, so a crash leaves a directory that is formatted or not.
/// One that is not can be formatted again.
///
/// # Errors
/// If the directory is formatted already or not empty, if the cluster id cannot be stored, or if
/// the disk fails. In the first three cases nothing was changed.
///
/// # Panics
/// If `bootstrap` is for kraft.version 0, under which voters are not stored.
pub fn format<D: Disk>(
    disk: &mut D,
    identity: &Identity,
    directory_id: DirectoryId,
    bootstrap: Option<RecordedVoters>,
) -> Result<(), OpenError> {
    identity.check()?;
    if let Some(Meta { identity, .. }) = meta::read(disk)? {
        return Err(OpenError::Formatted { found: identity });
    }
    remove_leftovers(disk)?;
    if bootstrap.is_some() {
        let header = SnapshotHeader {
            last_contained_timestamp_ms: 0,
            voters: bootstrap,
        };
        SnapshotWriter::begin(disk, SnapshotId::BOOTSTRAP, header)?.freeze(disk, true)?;
    }
    let meta = Meta {
        identity: identity.clone(),
        directory_id: Some(directory_id),
        voters_from: VotersFrom::Log,
        tells_log_end: true,
        has_checksum: true,
    };
    Ok(initialise(disk, &meta)?)
}

/// Creates the first segment and `log-end` and, once they are durable, `meta.properties`. So wherever the
/// latter is, a missing one of them is a lost one.
pub(crate) fn initialise<D: Disk>(disk: &mut D, meta: &Meta) -> Result<(), StorageError> {
    let first = file_name(Offset(0));
    disk.write(&first, &[])
        .map_err(write_error("create", &first))?;
    disk.sync(&first).map_err(write_error("sync", &first))?;
    disk.sync_directory()
        .map_err(write_error("sync the directory for", &first))?;
    log_end::write(disk, LogEnd::NONE)?;
    meta::write(disk, meta)
}

/// What an interrupted formatting left is no data of anybody.
fn remove_leftovers<D: Disk>(disk: &mut D) -> Result<(), OpenError> {
    let names = disk.list().map_err(read_error("list", "the directory"))?;
    let bootstrap = checkpoint::file_name(SnapshotId::BOOTSTRAP);
    let bootstrap_part = bootstrap.clone() + PART_SUFFIX;
    for name in &names {
        let length_bytes = disk.length(name).map_err(read_error("examine", name))?;
        let is_leftover = *name == bootstrap
            || *name == bootstrap_part
            || name == meta::TEMPORARY_FILE
            || name == log_end::TEMPORARY_FILE
            || (name == log_end::FILE && log_end::read(disk)? == Some(LogEnd::NONE))
            || (*name == file_name(Offset(0)) && length_bytes == Some(0));
        if !is_leftover {
            return Err(OpenError::NotEmpty { file: name.clone() });
        }
    }
    for name in &names {
        disk.remove(name).map_err(write_error("remove", name))?;
    }
    if !names.is_empty() {
        disk.sync_directory()
            .map_err(write_error("sync the directory for", "removed leftovers"))?;
    }
    Ok(())
}
