//! Owns the ways in which reading or writing a run folder fails, worded for the person who reads it.
//! Never hides which file, line or field was at fault.

use std::path::{Path, PathBuf};

/// Why a run folder could not be read or written.
#[derive(Debug, thiserror::Error)]
pub enum Error {
    /// The operating system refused a file operation.
    #[error("cannot {action} {}: {source}", path.display())]
    Io {
        /// What was being done, as a verb: "read", "create".
        action: &'static str,
        /// The file or folder concerned.
        path: PathBuf,
        /// The system's own reason.
        source: std::io::Error,
    },
    /// A file exists but does not hold what its format demands.
    #[error("{} line {line}: {reason}", path.display())]
    Malformed {
        /// The file concerned.
        path: PathBuf,
        /// Line number, counted from 1.
        line: usize,
        /// What is wrong, naming the field where there is one.
        reason: String,
    },
    /// A run was asked for that is not in the store.
    #[error("no run {wanted:?} in {}: {hint}", store.display())]
    NoSuchRun {
        /// What the user asked for.
        wanted: String,
        /// Where it was looked for.
        store: PathBuf,
        /// What to do instead.
        hint: String,
    },
    /// The folder was written by a version of this program that this one does not understand.
    #[error(
        "{} has format version {found}; this program reads versions up to {supported}, so use the newer one \
         that wrote it",
        path.display()
    )]
    UnsupportedVersion {
        /// The file concerned.
        path: PathBuf,
        /// The version found.
        found: u32,
        /// The newest version this program reads.
        supported: u32,
    },
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, Error>;

impl Error {
    /// A malformed file. `line` is its line, counted from 1: a parser that saw one line of many does
    /// not know it, so the position that it reports is left out.
    pub(crate) fn malformed(path: &Path, line: usize, error: &serde_json::Error) -> Self {
        let text = error.to_string();
        let position = format!(" at line {} column {}", error.line(), error.column());
        let reason = match text.strip_suffix(&position) {
            Some(reason) => format!("{reason} at column {}", error.column()),
            None => text,
        };
        Self::Malformed {
            path: path.to_path_buf(),
            line,
            reason,
        }
    }

    /// Wraps a system error with the action and the path it belongs to.
    pub fn io(action: &'static str, path: impl Into<PathBuf>, source: std::io::Error) -> Self {
        Self::Io {
            action,
            path: path.into(),
            source,
        }
    }
}
