//! Owns a sync of the log while it is under way, and the `log-end` file that may travel with it.
//! Never decides what is durable; the log does, once it hears of the outcome.

use std::io;

use crate::ids::Offset;
use crate::storage::disk::DiskSync;
use crate::storage::log_end::LogEnd;

/// A sync of the log that has begun.
#[derive(Debug)]
#[must_use]
pub struct LogSync {
    work: DiskSync,
    target: SyncTarget,
    note: Option<Note>,
}

/// A sync of the log that is over.
#[derive(Debug)]
#[must_use]
pub struct LogSynced {
    pub(super) target: SyncTarget,
    pub(super) outcome: io::Result<()>,
    /// An end that was durable before, and is ready to be told of.
    pub(super) noted: Option<(LogEnd, io::Result<()>)>,
}

/// What a sync covers.
#[derive(Debug, Clone, Copy)]
pub(super) struct SyncTarget {
    /// Of the segment that was written to.
    pub(super) base_offset: Offset,
    pub(super) length_bytes: u64,
    pub(super) log_end: Offset,
    pub(super) cut_count: u64,
}

/// What is to be done besides, for `log-end`.
#[derive(Debug)]
struct Note {
    end: LogEnd,
    work: [DiskSync; 2],
}

impl LogSync {
    pub(super) fn new(work: DiskSync, target: SyncTarget) -> Self {
        Self {
            work,
            target,
            note: None,
        }
    }

    /// The same, and `work` for a file that tells of `end`.
    pub(super) fn noting(self, end: LogEnd, work: [DiskSync; 2]) -> Self {
        Self {
            note: Some(Note { end, work }),
            ..self
        }
    }

    /// A sync of nothing that takes as long as `work` does.
    #[cfg(test)]
    pub(crate) fn of(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Self {
        let target = SyncTarget {
            base_offset: Offset(0),
            length_bytes: 0,
            log_end: Offset(0),
            cut_count: 0,
        };
        Self::new(DiskSync::to_do(work), target)
    }

    /// Waits for the disk, on whatever thread.
    pub fn run(self) -> LogSynced {
        let outcome = self.work.run();
        let run_all = |work: [DiskSync; 2]| work.into_iter().try_for_each(DiskSync::run);
        LogSynced {
            outcome,
            target: self.target,
            noted: self.note.map(|note| (note.end, run_all(note.work))),
        }
    }
}
