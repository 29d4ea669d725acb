//! Owns the small set of file operations that storage is written against.
//! Never knows what the files mean.

use std::fmt;
use std::io;

/// A sync that has begun. Until it is done nobody knows what of it is durable.
#[must_use]
pub struct DiskSync(Option<Box<dyn FnOnce() -> io::Result<()> + Send>>);

impl DiskSync {
    /// A sync that is over.
    pub fn done() -> Self {
        Self(None)
    }

    /// A sync that is still to be waited for, by calling `work`.
    pub fn to_do(work: impl FnOnce() -> io::Result<()> + Send + 'static) -> Self {
        Self(Some(Box::new(work)))
    }

    /// Waits for the disk, on whatever thread.
    ///
    /// # Errors
    /// As [`Disk::sync`].
    pub fn run(self) -> io::Result<()> {
        self.0.map_or(Ok(()), |work| work())
    }
}

impl fmt::Debug for DiskSync {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        let state = if self.0.is_some() { "to do" } else { "done" };
        write!(formatter, "DiskSync({state})")
    }
}

/// A directory on a disk. Names are plain file names without separators.
///
/// What is written is visible to later reads at once and durable only after `sync`; that a file
/// exists, is gone or has a new name is durable only after `sync_directory`. A failed `sync` means
/// that nobody knows what is durable: the caller must stop, never retry.
///
/// Operations on a file that is not there fail with [`io::ErrorKind::NotFound`].
pub trait Disk {
    /// Adds `bytes` at the end of `file`, creating it if needed.
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()>;
    /// Replaces the content of `file`, creating it if needed.
    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()>;
    /// Cuts `file` to `length_bytes`. Fails with [`io::ErrorKind::InvalidInput`] if it is shorter.
    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()>;
    /// Makes the content of `file` durable.
    fn sync(&mut self, file: &str) -> io::Result<()>;
    /// As [`sync`](Self::sync), for those who want to go on meanwhile: what `file` holds now is durable
    /// once the sync that is returned has run. A disk may as well do all of it here.
    fn begin_sync(&mut self, file: &str) -> io::Result<DiskSync> {
        self.sync(file)?;
        Ok(DiskSync::done())
    }
    /// Gives `from` the name `to`, replacing what had it.
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()>;
    /// Removes `file`.
    fn remove(&mut self, file: &str) -> io::Result<()>;
    /// Makes creations, renames and removals durable.
    fn sync_directory(&mut self) -> io::Result<()>;
    /// As [`sync_directory`](Self::sync_directory), for those who want to go on meanwhile, as with
    /// [`begin_sync`](Self::begin_sync).
    fn begin_sync_directory(&mut self) -> io::Result<DiskSync> {
        self.sync_directory()?;
        Ok(DiskSync::done())
    }
    /// Reads up to `length_bytes` from `position_bytes` on; fewer only at the end of the file.
    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>>;
    /// Length of `file`; `None` where there is no such file.
    fn length(&self, file: &str) -> io::Result<Option<u64>>;
    /// Names of all files, ascending.
    fn list(&self) -> io::Result<Vec<String>>;
    /// Makes room in `file` up to `length_bytes`, so that a sync after an append within it has no more
    /// than the content to write. Only a hint: it may do nothing, and neither the length nor what is
    /// read changes. After a crash, however, the room may be there still, as zeros at the end of the
    /// file; cutting the file gives it back.
    fn reserve(&mut self, file: &str, length_bytes: u64) {
        let _ = (file, length_bytes);
    }
}

/// So that the kind of disk can be chosen at run time.
impl<D: Disk + ?Sized> Disk for Box<D> {
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        (**self).append(file, bytes)
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        (**self).write(file, bytes)
    }

    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()> {
        (**self).truncate(file, length_bytes)
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        (**self).sync(file)
    }

    fn begin_sync(&mut self, file: &str) -> io::Result<DiskSync> {
        (**self).begin_sync(file)
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        (**self).rename(from, to)
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        (**self).remove(file)
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        (**self).sync_directory()
    }

    fn begin_sync_directory(&mut self) -> io::Result<DiskSync> {
        (**self).begin_sync_directory()
    }

    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
        (**self).read(file, position_bytes, length_bytes)
    }

    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        (**self).length(file)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        (**self).list()
    }

    fn reserve(&mut self, file: &str, length_bytes: u64) {
        (**self).reserve(file, length_bytes);
    }
}

/// Reads all of `file`; `None` where there is no such file.
pub(crate) fn read_whole<D: Disk>(disk: &D, file: &str) -> io::Result<Option<Vec<u8>>> {
    let Some(length_bytes) = disk.length(file)? else {
        return Ok(None);
    };
    let length_bytes = usize::try_from(length_bytes).map_err(io::Error::other)?;
    disk.read(file, 0, length_bytes).map(Some)
}

/// An error for a file that is not there.
pub(crate) fn not_found(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no file {file}"))
}

/// An error for a cut that would make a file longer.
pub(crate) fn cut_past_the_end(file: &str, length_bytes: u64) -> io::Error {
    io::Error::new(
        io::ErrorKind::InvalidInput,
        format!("{file} has fewer than {length_bytes} bytes"),
    )
}
