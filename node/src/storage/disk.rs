//! Owns the small set of file operations that storage is written against.
//! Never knows what the files mean.

use std::io;

/// A directory on a disk. Names are plain file names without separators.
///
/// What is written is visible to later reads at once and durable only after `sync`; that a file
/// exists, is gone or has a new name is durable only after `sync_directory`. A failed `sync` means
/// that nobody knows what is durable: the caller must stop, never retry.
pub trait Disk {
    /// Adds `bytes` at the end of `file`, creating it if needed.
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()>;
    /// Replaces the content of `file`, creating it if needed.
    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()>;
    /// Cuts `file` to `length_bytes`.
    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()>;
    /// Makes the content of `file` durable.
    fn sync(&mut self, file: &str) -> io::Result<()>;
    /// Gives `from` the name `to`, replacing what had it.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes `file`.
    fn remove(&mut self, file: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&mut self) -> io::Result<()>;
    /// Reads up to `length_bytes` from `position_bytes` on; fewer only at the end of the file.
    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>>;
    /// Length of `file`; `None` where there is no such file.
    fn length(&self, file: &str) -> io::Result<Option<u64>>;
    /// Names of all files, ascending.
    fn list(&self) -> io::Result<Vec<String>>;
}
