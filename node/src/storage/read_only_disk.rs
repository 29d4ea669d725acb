//! Owns a look at a directory of the file system that somebody else may be using.
//! Never writes, and never takes the lock.

use std::fs::{self, File};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};

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
        let mut bytes = vec![0; length_bytes];
        let mut filled = 0;
        while filled < length_bytes {
            match file.read_at(&mut bytes[filled..], position_bytes + filled as u64) {
                Ok(0) => break,
                Ok(count) => filled += count,
                Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
                Err(error) => return Err(error),
            }
        }
        bytes.truncate(filled);
        Ok(bytes)
    }

    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        match fs::metadata(self.0.join(file)) {
            Ok(metadata) => Ok(Some(metadata.len())),
            Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
            Err(error) => Err(error),
        }
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut names = Vec::new();
        for entry in fs::read_dir(&self.0)? {
            let entry = entry?;
            if entry.file_type()?.is_file()
                && let Ok(name) = entry.file_name().into_string()
            {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }
}
