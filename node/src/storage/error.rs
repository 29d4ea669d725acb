//! Owns what can go wrong with storage, in words for the person who has to act on it.
//! Never decides whether to go on; it only says whether that would be safe.

use std::io;

use crate::ids::{Offset, SnapshotId};
use crate::storage::meta::Identity;

/// A running storage could not do what was asked.
#[derive(Debug, thiserror::Error)]
pub enum StorageError {
    /// A change of the disk failed.
    #[error(
        "cannot {action} {file}: {source}. What is on the disk is unknown now; this node has to \
         stop. It recovers at its next start, once the disk works and has space"
    )]
    Write {
        /// What was tried.
        action: &'static str,
        /// On which file; empty for the directory.
        file: String,
        /// What the disk said.
        source: io::Error,
    },
    /// Reading failed.
    #[error(
        "cannot read {file} at byte {position_bytes}: {source}. Check the disk; this node can go on \
         once it can be read again"
    )]
    Read {
        /// From which file.
        file: String,
        /// From where.
        position_bytes: u64,
        /// What the disk said.
        source: io::Error,
    },
    /// A batch that was sound before is not any more.
    #[error(
        "{file} at byte {position_bytes}: expected the batch with base offset {base_offset}, but \
         {found}. The disk damaged it after it was written; this node stops, and its next start says \
         what can be done"
    )]
    Damaged {
        /// In which file.
        file: String,
        /// Where.
        position_bytes: u64,
        /// What should be there.
        base_offset: Offset,
        /// What is wrong with it.
        found: String,
    },
    /// The log does not reach back that far.
    #[error("offset {from} is before the start of the log, {log_start}")]
    BelowLogStart {
        /// What was asked for.
        from: Offset,
        /// What there is.
        log_start: Offset,
    },
    /// A snapshot that was sound before is not any more.
    #[error(
        "{file} at byte {position_bytes}: expected {expected}, found {found}. The disk damaged it \
         after it was written; this node stops, and its next start says \
         what can be done"
    )]
    SnapshotDamaged {
        /// In which file.
        file: String,
        /// Where it stops making sense.
        position_bytes: u64,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// A control batch is sound, but another version must have written it.
    #[error(
        "the control record at offset {offset} is none that this version knows ({reason}); start the \
         version that wrote it"
    )]
    ControlRecord {
        /// Where it is.
        offset: Offset,
        /// Why it is not known.
        reason: String,
    },
    /// There is no such snapshot.
    #[error("there is no snapshot {id}; there is {}", list(.known))]
    NoSuchSnapshot {
        /// The snapshot that was asked for.
        id: SnapshotId,
        /// Those that are there.
        known: Vec<SnapshotId>,
    },
    /// The log cannot start where no snapshot ends.
    #[error(
        "the log cannot start at offset {new_start}, because no snapshot ends there; there is {}",
        list(.known)
    )]
    NoSnapshotEndsAt {
        /// Where the log was to start.
        new_start: Offset,
        /// The snapshots that are there.
        known: Vec<SnapshotId>,
    },
    /// A snapshot of this replica's state cannot have this id.
    #[error("a snapshot cannot be called {id}: {reason}")]
    SnapshotId {
        /// The id.
        id: SnapshotId,
        /// What is wrong with it.
        reason: String,
    },
    /// A piece of a download that does not continue what is there.
    #[error(
        "a piece of snapshot {id} is for byte {position_bytes}, but byte {expected_bytes} is next"
    )]
    DownloadPosition {
        /// Which snapshot is fetched.
        id: SnapshotId,
        /// Where the piece belongs.
        position_bytes: u64,
        /// How much is there.
        expected_bytes: u64,
    },
    /// What was fetched is not the snapshot. It was removed.
    #[error(
        "the fetched snapshot {id} is not one: at byte {position_bytes} expected {expected}, found \
         {found}. It was dropped; fetch it again"
    )]
    DownloadDamaged {
        /// Which snapshot was fetched.
        id: SnapshotId,
        /// Where it stops making sense.
        position_bytes: u64,
        /// What should be there.
        expected: String,
        /// What is there.
        found: String,
    },
    /// An earlier change failed.
    #[error("an earlier change of the disk failed, so nothing more is written; stop this node")]
    Stopped,
}

impl StorageError {
    /// Whether going on would be unsafe. A failed sync in particular must never be tried again: the
    /// kernel may have dropped the bytes and then report success.
    pub fn is_fatal(&self) -> bool {
        match self {
            Self::Write { .. }
            | Self::Damaged { .. }
            | Self::SnapshotDamaged { .. }
            | Self::Stopped => true,
            Self::Read { .. }
            | Self::BelowLogStart { .. }
            | Self::ControlRecord { .. }
            | Self::NoSuchSnapshot { .. }
            | Self::NoSnapshotEndsAt { .. }
            | Self::SnapshotId { .. }
            | Self::DownloadPosition { .. }
            | Self::DownloadDamaged { .. } => false,
        }
    }
}

fn list(snapshots: &[SnapshotId]) -> String {
    if snapshots.is_empty() {
        return "none at all".to_owned();
    }
    let names: Vec<String> = snapshots.iter().map(SnapshotId::to_string).collect();
    names.join(", ")
}

/// Names a failed change of `file`.
pub(crate) fn write_error(
    action: &'static str,
    file: &str,
) -> impl FnOnce(io::Error) -> StorageError {
    move |source| StorageError::Write {
        action,
        file: file.to_owned(),
        source,
    }
}

/// What can be done for a replica that has lost what it knew. An empty directory has forgotten votes and data
/// as well: as another replica (KIP-853) it is safe, and among configured voters only where nothing depended on
/// this one.
const SAFE_WAY: &str = "Do not put an older copy of the directory in its place: it has forgotten what this \
    replica voted for and acknowledged since, and the cluster could lose it. If the voters are in the log, remove \
    this one (kraft-node remove-controller), start the node with an empty directory (kraft-node format \
    --no-initial-controllers), and add it again (kraft-node add-controller). If they are configured (--peer), \
    start it with an empty directory only while all other voters run and have caught up (kraft-node describe \
    --replication shows no lag)";

/// A data directory could not be opened.
#[derive(Debug, thiserror::Error)]
pub enum OpenError {
    /// The disk failed.
    #[error("cannot {action} {file}: {source}. Check the disk and who may use the directory")]
    Disk {
        /// What was tried.
        action: &'static str,
        /// On which file.
        file: String,
        /// What the disk said.
        source: io::Error,
    },
    /// A repair or the initialisation could not be made durable.
    #[error(transparent)]
    Repair(#[from] StorageError),
    /// The directory is that of another replica.
    #[error(
        "this data directory belongs to {found}, but {expected} was started on it. Nothing was \
         changed. Start this node with its own data directory, or with the right ids"
    )]
    Foreign {
        /// Whose it is.
        found: Identity,
        /// Who was started.
        expected: Identity,
    },
    /// The cluster id cannot be stored.
    #[error(
        "cluster id {cluster_id:?} is empty, starts or ends with a space, or has a control \
         character; choose another"
    )]
    ClusterId {
        /// The id that was given.
        cluster_id: String,
    },
    /// Formatting stopped half-way, so nobody knows which voters were meant.
    #[error(
        "formatting this data directory did not get to its end: there is {file}, but no \
         meta.properties. Nothing was changed. Format it again"
    )]
    HalfFormatted {
        /// What formatting left.
        file: String,
    },
    /// The directory is to be formatted, but was already.
    #[error(
        "this data directory is formatted already, for {found}. Nothing was changed. Start the node \
         on it, or choose another directory"
    )]
    Formatted {
        /// Whose it is.
        found: Identity,
    },
    /// The directory is to be formatted, but is in use for something.
    #[error(
        "there is {file} in this data directory, so it is not an empty one. Nothing was changed. \
         Choose an empty directory"
    )]
    NotEmpty {
        /// What is in it.
        file: String,
    },
    /// A file was written by a version that is not known.
    #[error(
        "{file} has {field} {found}, this version knows up to {known}. Nothing was changed. Start \
         the version that wrote it"
    )]
    Version {
        /// Which file.
        file: &'static str,
        /// Which field of it.
        field: &'static str,
        /// What it says.
        found: String,
        /// What would be accepted.
        known: u32,
    },
    /// A file that has to be there is not.
    #[error(
        "{file} is missing: {reason}. Nothing was changed. {advice}",
        advice = SAFE_WAY
    )]
    Missing {
        /// Which file.
        file: String,
        /// Why it has to be there.
        reason: String,
    },
    /// A file holds what no crash leaves behind.
    #[error(
        "{file} at byte {position_bytes}: expected {expected}, found {found}. No crash explains \
         that, so the disk is suspect. Nothing was changed. {advice}",
        advice = SAFE_WAY
    )]
    Damaged {
        /// Which file.
        file: String,
        /// Where it stops making sense.
        position_bytes: u64,
        /// What should be there.
        expected: String,
        /// What is there, and how that is known to be damage.
        found: String,
    },
}

/// Names a failed read while opening.
pub(crate) fn read_error(action: &'static str, file: &str) -> impl FnOnce(io::Error) -> OpenError {
    move |source| OpenError::Disk {
        action,
        file: file.to_owned(),
        source,
    }
}
