//! Owns the real disk: one directory of the file system, used by one process at a time.
//! Never buffers a write and never knows what the files mean.
//!
//! Room that was reserved for a file lies behind its end and is not seen from here while the file is
//! open. It is given back when the file is closed; only a crash leaves it, as zeros.

use std::fs::{self, File, OpenOptions, TryLockError};
use std::io;
use std::os::unix::fs::FileExt;
use std::path::{Path, PathBuf};
use std::sync::Arc;

use nix::fcntl::{FallocateFlags, fallocate};

use crate::storage::disk::{Disk, DiskSync, cut_past_the_end};

const LOCK_FILE: &str = ".lock";
/// Open files that are kept. Storage writes to one at a time; the rest saves reopening after a
/// roll.
const HANDLES_MAX: usize = 4;

/// A directory of the file system. The directory is locked for as long as this value lives.
#[derive(Debug)]
pub struct DirectoryDisk {
    path: PathBuf,
    directory: Arc<File>,
    /// Files that were written lately, oldest first.
    handles: Vec<Handle>,
    /// Held, not read: closing it releases the lock.
    _lock: File,
}

#[derive(Debug)]
struct Handle {
    name: String,
    file: Arc<File>,
    /// Where the next append goes.
    end_bytes: u64,
    /// Size of the file, with the room that is reserved.
    whole_bytes: u64,
    /// The length shrank since the last sync. `fdatasync` promises only the metadata that reading
    /// the data needs, which covers a grown file but not surely a cut one.
    shrank: bool,
}

impl Handle {
    fn append(&mut self, bytes: &[u8]) -> io::Result<()> {
        self.file.write_all_at(bytes, self.end_bytes)?;
        self.end_bytes += bytes.len() as u64;
        self.whole_bytes = self.whole_bytes.max(self.end_bytes);
        Ok(())
    }

    fn cut(&mut self, length_bytes: u64) -> io::Result<()> {
        self.file.set_len(length_bytes)?;
        self.shrank = true;
        self.end_bytes = length_bytes;
        self.whole_bytes = length_bytes;
        Ok(())
    }

    fn reserve(&mut self, length_bytes: u64) {
        let Some(more_bytes) = length_bytes.checked_sub(self.whole_bytes) else {
            return;
        };
        let (Ok(from), Ok(more)) = (self.whole_bytes.try_into(), i64::try_from(more_bytes)) else {
            return;
        };
        // Not every file system can, and the disk may be full: then appends make room as they go.
        if fallocate(&self.file, FallocateFlags::empty(), from, more).is_ok() {
            self.whole_bytes = length_bytes;
        }
    }
}

impl Drop for Handle {
    fn drop(&mut self) {
        if self.whole_bytes > self.end_bytes {
            // Whoever opens the file next knows how to tell the room from what was written.
            let _ = self.file.set_len(self.end_bytes);
        }
    }
}

/// The directory cannot be used.
#[derive(Debug, thiserror::Error)]
pub enum DirectoryDiskError {
    /// Another process has it.
    #[error(
        "data directory {} is in use by another process; stop that process, or choose another \
         directory",
        .path.display()
    )]
    InUse {
        /// Which directory.
        path: PathBuf,
    },
    /// The file system refused.
    #[error("cannot {action} data directory {}: {source}", .path.display())]
    Unusable {
        /// What was tried.
        action: &'static str,
        /// Which directory.
        path: PathBuf,
        /// What the file system said.
        source: io::Error,
    },
}

impl DirectoryDisk {
    /// Opens the directory, creating it and its parents where needed, and locks it.
    ///
    /// # Errors
    /// If another process has the lock, or the file system refuses.
    pub fn open(path: impl AsRef<Path>) -> Result<Self, DirectoryDiskError> {
        let path = path.as_ref();
        let unusable = |action| {
            let path = path.to_owned();
            move |source| DirectoryDiskError::Unusable {
                action,
                path,
                source,
            }
        };
        create_durably(path).map_err(unusable("create"))?;
        let directory = File::open(path).map_err(unusable("open"))?;
        let lock = OpenOptions::new()
            .create(true)
            .truncate(false)
            .write(true)
            .open(path.join(LOCK_FILE))
            .map_err(unusable("create the lock file in"))?;
        match lock.try_lock() {
            Ok(()) => {}
            Err(TryLockError::WouldBlock) => {
                return Err(DirectoryDiskError::InUse {
                    path: path.to_owned(),
                });
            }
            Err(TryLockError::Error(source)) => return Err(unusable("lock")(source)),
        }
        Ok(Self {
            path: path.to_owned(),
            directory: Arc::new(directory),
            handles: Vec::new(),
            _lock: lock,
        })
    }

    fn path_of(&self, file: &str) -> PathBuf {
        assert!(
            !file.is_empty() && file != LOCK_FILE && !file.contains(['/', '\0']) && file != "..",
            "{file:?} is not a plain file name"
        );
        self.path.join(file)
    }

    fn handle(&mut self, file: &str, create: bool) -> io::Result<&mut Handle> {
        if let Some(at) = self.handles.iter().position(|handle| handle.name == file) {
            let handle = self.handles.remove(at);
            self.handles.push(handle);
        } else {
            let opened = OpenOptions::new()
                .read(true)
                .write(true)
                .truncate(false)
                .create(create)
                .open(self.path_of(file))?;
            if self.handles.len() == HANDLES_MAX {
                self.handles.remove(0);
            }
            let end_bytes = opened.metadata()?.len();
            self.handles.push(Handle {
                name: file.to_owned(),
                file: Arc::new(opened),
                end_bytes,
                whole_bytes: end_bytes,
                // It may have been cut through a handle that is closed by now.
                shrank: true,
            });
        }
        Ok(self
            .handles
            .last_mut()
            .expect("a handle was pushed just above"))
    }

    fn open_handle(&self, file: &str) -> Option<&Handle> {
        self.handles.iter().find(|handle| handle.name == file)
    }

    fn forget(&mut self, file: &str) {
        self.handles.retain(|handle| handle.name != file);
    }
}

impl Disk for DirectoryDisk {
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.handle(file, true)?.append(bytes)
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let handle = self.handle(file, true)?;
        handle.cut(0)?;
        handle.append(bytes)
    }

    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()> {
        let handle = self.handle(file, false)?;
        if handle.end_bytes < length_bytes {
            return Err(cut_past_the_end(file, length_bytes));
        }
        handle.cut(length_bytes)
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.begin_sync(file)?.run()
    }

    fn begin_sync(&mut self, file: &str) -> io::Result<DiskSync> {
        let handle = self.handle(file, false)?;
        // A sync that fails is never followed by another one.
        let shrank = std::mem::take(&mut handle.shrank);
        let file = Arc::clone(&handle.file);
        Ok(DiskSync::to_do(move || {
            if shrank {
                file.sync_all()
            } else {
                file.sync_data()
            }
        }))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        fs::rename(self.path_of(from), self.path_of(to))?;
        if from != to {
            self.forget(to);
            for handle in &mut self.handles {
                if handle.name == from {
                    to.clone_into(&mut handle.name);
                }
            }
        }
        Ok(())
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        fs::remove_file(self.path_of(file))?;
        self.forget(file);
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.directory.sync_all()
    }

    fn begin_sync_directory(&mut self) -> io::Result<DiskSync> {
        let directory = Arc::clone(&self.directory);
        Ok(DiskSync::to_do(move || directory.sync_all()))
    }

    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
        if let Some(handle) = self.open_handle(file) {
            let there_bytes = handle.end_bytes.saturating_sub(position_bytes);
            let length_bytes = usize::try_from(there_bytes)
                .map_or(length_bytes, |there_bytes| length_bytes.min(there_bytes));
            read_at(&handle.file, position_bytes, length_bytes)
        } else {
            read_at(
                &File::open(self.path_of(file))?,
                position_bytes,
                length_bytes,
            )
        }
    }

    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        if let Some(handle) = self.open_handle(file) {
            return Ok(Some(handle.end_bytes));
        }
        length_of(&self.path_of(file))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        names_in(&self.path)
    }

    fn reserve(&mut self, file: &str, length_bytes: u64) {
        if let Ok(handle) = self.handle(file, false) {
            handle.reserve(length_bytes);
        }
    }
}

/// Creates what is missing of `path`, each new entry durable in its parent directory.
fn create_durably(path: &Path) -> io::Result<()> {
    match fs::create_dir(path) {
        Ok(()) => {}
        Err(error) if error.kind() == io::ErrorKind::AlreadyExists && path.is_dir() => {
            return Ok(());
        }
        Err(error) if error.kind() == io::ErrorKind::NotFound => {
            let parent = path.parent().ok_or(error)?;
            create_durably(parent)?;
            match fs::create_dir(path) {
                Err(error) if error.kind() != io::ErrorKind::AlreadyExists => return Err(error),
                _ => {}
            }
        }
        Err(error) => return Err(error),
    }
    let parent = match path.parent() {
        Some(parent) if !parent.as_os_str().is_empty() => parent,
        _ => Path::new("."),
    };
    File::open(parent)?.sync_all()
}

/// The length of a file in bytes, if there is one.
pub(super) fn length_of(path: &Path) -> io::Result<Option<u64>> {
    match fs::metadata(path) {
        Ok(metadata) => Ok(Some(metadata.len())),
        Err(error) if error.kind() == io::ErrorKind::NotFound => Ok(None),
        Err(error) => Err(error),
    }
}

/// The names of the files that storage has in a directory, in order.
pub(super) fn names_in(directory: &Path) -> io::Result<Vec<String>> {
    let mut names = Vec::new();
    for entry in fs::read_dir(directory)? {
        let entry = entry?;
        if !entry.file_type()?.is_file() {
            continue;
        }
        // Storage writes only names in UTF-8; anything else in the directory is not ours.
        if let Ok(name) = entry.file_name().into_string()
            && name != LOCK_FILE
        {
            names.push(name);
        }
    }
    names.sort();
    Ok(names)
}

/// So many bytes of a file, or those that there are.
pub(super) fn read_at(
    file: &File,
    position_bytes: u64,
    length_bytes: usize,
) -> io::Result<Vec<u8>> {
    let mut bytes = vec![0; length_bytes];
    let mut filled_bytes = 0;
    while filled_bytes < length_bytes {
        let position_bytes = position_bytes + filled_bytes as u64;
        match file.read_at(&mut bytes[filled_bytes..], position_bytes) {
            Ok(0) => break,
            Ok(count) => filled_bytes += count,
            Err(error) if error.kind() == io::ErrorKind::Interrupted => {}
            Err(error) => return Err(error),
        }
    }
    bytes.truncate(filled_bytes);
    Ok(bytes)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_directory_is_created_with_its_parents_and_locked() {
        let parent = tempfile::tempdir().unwrap();
        let path = parent.path().join("a/b");
        let mut disk = DirectoryDisk::open(&path).unwrap();
        disk.append("file", b"text").unwrap();
        assert_eq!(disk.list().unwrap(), ["file"], "the lock file is hidden");

        let refused = DirectoryDisk::open(&path).unwrap_err();
        assert!(matches!(refused, DirectoryDiskError::InUse { .. }));
        assert!(refused.to_string().contains("in use by another process"));

        drop(disk);
        let disk = DirectoryDisk::open(&path).unwrap();
        assert_eq!(disk.read("file", 0, 10).unwrap(), b"text");
    }

    #[test]
    fn more_files_than_kept_handles_stay_usable() {
        let directory = tempfile::tempdir().unwrap();
        let mut disk = DirectoryDisk::open(directory.path()).unwrap();
        for round in 0..3_u8 {
            for file in 0..HANDLES_MAX * 2 {
                disk.append(&format!("f{file}"), &[round]).unwrap();
            }
        }
        assert!(disk.handles.len() <= HANDLES_MAX);
        for file in 0..HANDLES_MAX * 2 {
            disk.sync(&format!("f{file}")).unwrap();
            assert_eq!(disk.read(&format!("f{file}"), 0, 9).unwrap(), [0, 1, 2]);
        }
    }

    #[test]
    fn a_path_that_is_a_file_is_refused() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("file");
        fs::write(&path, b"").unwrap();
        let refused = DirectoryDisk::open(&path).unwrap_err();
        assert!(matches!(refused, DirectoryDiskError::Unusable { .. }));
        assert!(refused.to_string().contains(&path.display().to_string()));
    }
}
