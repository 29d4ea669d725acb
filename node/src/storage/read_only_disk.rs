//! Owns a look at a directory of the file system that somebody else may be using.
//! Never writes, and never takes the lock.

use std::fs::File;
use std::io;
use std::path::{Path, PathBuf};

use crate::storage::directory_disk;
use crate::storage::disk::Disk;

/// A directory that is only read. Whatever would change it fails with [`io::ErrorKind::ReadOnlyFilesystem`].
#[derive(Debug)]
pub struct ReadOnlyDisk(PathBuf);

impl ReadOnlyDisk {
    /// Looks at the directory at `path`, once something is asked.
    pub fn new(path: impl AsRef<Path>) -> Self {
        Self(path.as_ref().to_owned())
    }
}

fn refusal<T>() -> io::Result<T> {
    Err(io::ErrorKind::ReadOnlyFilesystem.into())
}

impl Disk for ReadOnlyDisk {
    fn append(&mut self, _: &str, _: &[u8]) -> io::Result<()> {
        refusal()
    }

    fn write(&mut self, _: &str, _: &[u8]) -> io::Result<()> {
        refusal()
    }

    fn truncate(&mut self, _: &str, _: u64) -> io::Result<()> {
        refusal()
    }

    fn sync(&mut self, _: &str) -> io::Result<()> {
        refusal()
    }

    fn rename(&mut self, _: &str, _: &str) -> io::Result<()> {
        refusal()
    }

    fn remove(&mut self, _: &str) -> io::Result<()> {
        refusal()
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        refusal()
    }

    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
        let file = File::open(self.0.join(file))?;
        directory_disk::read_at(&file, position_bytes, length_bytes)
    }

    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        directory_disk::length_of(&self.0.join(file))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        directory_disk::names_in(&self.0)
    }
}
