//! Owns the words for disks that fail: what goes wrong, in which files, and whether data is lost by it.
//! Never touches a file.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::FaultError;
use super::reader::{Reader, bad};
use super::words::{Word, word_in_records};

/// What a disk does wrong.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum DiskProblem {
    /// Each sync takes longer.
    SlowSync,
    /// Syncs fail, and what they should have written is lost.
    SyncError,
    /// Writes fail for want of space.
    NoSpace,
    /// Reads fail.
    ReadError,
    /// A bit of what was written long ago is another one.
    BitFlip,
    /// A file has lost its end.
    Truncate,
    /// Of the last write only some sectors are there, although it was synced.
    TornWrite,
    /// A write went to another place than it should have.
    MisdirectedWrite,
    /// A file is gone.
    LostFile,
}

impl Word for DiskProblem {
    const WHAT: &'static str = "disk fault";
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::SlowSync, "slow-sync"),
        (Self::SyncError, "sync-error"),
        (Self::NoSpace, "no-space"),
        (Self::ReadError, "read-error"),
        (Self::BitFlip, "bit-flip"),
        (Self::Truncate, "truncate"),
        (Self::TornWrite, "torn-write"),
        (Self::MisdirectedWrite, "misdirected-write"),
        (Self::LostFile, "lost-file"),
    ];
}

impl DiskProblem {
    /// Whether it destroys what was durable, so that the fault budget limits whom it may hit.
    pub fn destroys_data(self) -> bool {
        match self {
            Self::SlowSync | Self::SyncError | Self::NoSpace | Self::ReadError => false,
            Self::BitFlip
            | Self::Truncate
            | Self::TornWrite
            | Self::MisdirectedWrite
            | Self::LostFile => true,
        }
    }
}

/// Which files of a node a disk fault concerns.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Files {
    /// Every file.
    All,
    /// The segments of the log.
    Log,
    /// The file with epoch, vote and leader.
    QuorumState,
    /// Snapshots.
    Snapshot,
}

impl Word for Files {
    const WHAT: &'static str = "kind of files";
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::All, "all"),
        (Self::Log, "log"),
        (Self::QuorumState, "quorum-state"),
        (Self::Snapshot, "snapshot"),
    ];
}

word_in_records!(DiskProblem, Files);

/// What goes wrong with a disk, and where on it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
pub struct DiskFault {
    /// What goes wrong.
    pub what: DiskProblem,
    /// In which files.
    pub files: Files,
    /// For slow syncs: how much longer each takes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub delay_ms: Option<u64>,
    /// For reads that fail: whether nodes are killed as the fault begins, and started again, so that they read.
    /// A node that runs reads little: old records for those who lag far behind, and snapshots.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub restart: bool,
}

/// Longest extra time of a sync: a minute.
pub const SYNC_DELAY_MAX_MS: u64 = 60_000;

const WHAT_EXPECTED: &str = "slow-sync, no-space, bit-flip, or another word for what goes wrong";
const DELAY_EXPECTED: &str = "whole milliseconds, from 1 to 60000";
const DAMAGED_FILES: &str = "\"log\", \"quorum-state\" or \"snapshot\", as data is destroyed";
const LOST_FILES: &str =
    "\"quorum-state\", as a start would not miss every segment of a log, or every snapshot";
const MISDIRECTED_FILES: &str = "\"log\", as no other file has more than one place to write to";

impl DiskFault {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, FaultError> {
        let what: DiskProblem = reader.needed(reader.word("what")?, "what", WHAT_EXPECTED)?;
        let delay_ms = reader.whole("delay_ms", 1..=SYNC_DELAY_MAX_MS, DELAY_EXPECTED)?;
        let usual = match what {
            DiskProblem::LostFile => Files::QuorumState,
            _ if what.destroys_data() => Files::Log,
            _ => Files::All,
        };
        let fault = Self {
            what,
            files: reader.word("files")?.unwrap_or(usual),
            delay_ms,
            restart: reader.flag("restart")?,
        };
        fault.validate()?;
        Ok(fault)
    }

    pub(super) fn describe(self, parameters: &mut Map<String, Value>) {
        parameters.insert("what".into(), self.what.word().into());
        parameters.insert("files".into(), self.files.word().into());
        if let Some(delay_ms) = self.delay_ms {
            parameters.insert("delay_ms".into(), json!(delay_ms));
        }
        if self.restart {
            parameters.insert("restart".into(), json!(true));
        }
    }

    /// Refuses what does not fit together.
    pub(crate) fn validate(self) -> Result<(), FaultError> {
        match (self.what, self.delay_ms) {
            (DiskProblem::SlowSync, None) => {
                return Err(FaultError::MissingParameter {
                    kind: "slow-sync disk".into(),
                    parameter: "delay_ms",
                    expected: DELAY_EXPECTED,
                });
            }
            (DiskProblem::SlowSync, Some(delay_ms))
                if !(1..=SYNC_DELAY_MAX_MS).contains(&delay_ms) =>
            {
                return Err(bad("delay_ms", &json!(delay_ms), DELAY_EXPECTED));
            }
            (DiskProblem::SlowSync, Some(_)) | (_, None) => {}
            (_, Some(_)) => {
                return Err(FaultError::Contradiction {
                    kind: "disk",
                    problem: "\"delay_ms\" belongs to slow-sync only",
                });
            }
        }
        if self.restart && self.what != DiskProblem::ReadError {
            return Err(FaultError::Contradiction {
                kind: "disk",
                problem: "\"restart\" belongs to read-error only",
            });
        }
        let files = json!(self.files);
        if self.what.destroys_data() && self.files == Files::All {
            return Err(bad("files", &files, DAMAGED_FILES));
        }
        if self.what == DiskProblem::MisdirectedWrite && self.files != Files::Log {
            return Err(bad("files", &files, MISDIRECTED_FILES));
        }
        if self.what == DiskProblem::LostFile && self.files != Files::QuorumState {
            return Err(bad("files", &files, LOST_FILES));
        }
        Ok(())
    }
}
