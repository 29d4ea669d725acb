//! Owns what a node tells of what it keeps on its disk, and has read of it.
//! Never decides what is kept.

use crate::ids::{Offset, SnapshotId};
use crate::storage::VotersFrom;
use crate::storage::disk::Disk;

use super::NodeLoop;

/// What a node has on its disk at one moment.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct DiskDescription {
    /// First offset of the log; what is before is in a snapshot.
    pub log_start: Offset,
    /// Size of the log without snapshots.
    pub log_bytes: u64,
    /// Size of the newest snapshot, its own or one of a leader; 0 where there is none.
    pub snapshot_bytes: u64,
    /// Offset after the last record that the newest snapshot covers; 0 where there is none.
    pub snapshot_end: Offset,
}

/// What a node has made of what it was given to load, since it started.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct LoaderDescription {
    /// Snapshots that its state was loaded from, the one it started with included.
    pub loaded_count: u64,
    /// Snapshots of a leader that were none, and were dropped.
    pub refused_count: u64,
    /// Whether voters are configured, and those in the log go before them.
    pub ignores_configured_voters: bool,
}

impl<D: Disk> NodeLoop<D> {
    /// What the node has loaded.
    pub fn loader_description(&self) -> LoaderDescription {
        let in_log = self.replica.describe().kraft_version >= 1;
        LoaderDescription {
            ignores_configured_voters: in_log
                && self.storage.voters_from() == VotersFrom::Configuration,
            ..self.loader
        }
    }

    /// What the node keeps on its disk.
    pub fn disk_description(&self) -> DiskDescription {
        let newest = self.storage.latest_snapshot();
        // That one holds voters only; it is how a cluster begins.
        let newest = newest.filter(|file| file.id != SnapshotId::BOOTSTRAP);
        DiskDescription {
            log_start: self.storage.log_start(),
            log_bytes: self.storage.log_bytes(),
            snapshot_bytes: newest.map_or(0, |file| file.size_bytes),
            snapshot_end: newest.map_or(Offset(0), |file| file.id.end_offset),
        }
    }
}
