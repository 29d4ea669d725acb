//! Owns everything a process wrote and did not sync yet, in the memory of that process.
//! Never lets an unsynced byte, name or removal reach the disk below.
//!
//! A killed process normally loses nothing: the page cache outlives it, so SIGKILL says nothing
//! about missing syncs. On top of this layer SIGKILL equals a power cut: what was not synced is
//! gone.
//!
//! The model is the weakest that POSIX allows: `sync` makes the content of a file durable but not
//! its name, `sync_directory` makes names durable but not contents. A new file therefore reaches
//! the disk below at the first `sync_directory`, with the content it had at its last `sync`.

use std::collections::BTreeMap;
use std::io;

use crate::storage::disk::{Disk, DiskSync, cut_past_the_end, not_found};

/// Content of a new file while it has no name yet on the disk below, so that a name never shows a
/// part of it.
const STAGED_FILE: &str = ".staged";

/// A disk that holds back what is not synced. Appending many times and syncing once is one write
/// and one sync of the disk below.
#[derive(Debug)]
pub struct WriteBehindDisk<D> {
    inner: D,
    names: BTreeMap<String, u64>,
    files: BTreeMap<u64, Held>,
    changes: Vec<DirectoryChange>,
    next_file: u64,
    broken: bool,
}

/// A file as the process sees it: the first `kept_bytes` from the disk below, then `tail`.
#[derive(Debug, Default)]
struct Held {
    /// Name on the disk below; `None` until the directory is synced.
    inner_name: Option<String>,
    inner_bytes: u64,
    kept_bytes: u64,
    tail: Vec<u8>,
    /// Content at the last sync of a file that has no name on the disk below.
    synced: Option<Vec<u8>>,
}

#[derive(Debug)]
enum DirectoryChange {
    Create { file: u64, name: String },
    Rename { from: String, to: String },
    Remove { name: String },
}

impl<D: Disk> WriteBehindDisk<D> {
    /// Puts the layer on top of `inner`, all of which counts as durable.
    ///
    /// # Errors
    /// If `inner` cannot be read.
    pub fn new(mut inner: D) -> io::Result<Self> {
        if inner.length(STAGED_FILE)?.is_some() {
            inner.remove(STAGED_FILE)?;
        }
        let mut disk = Self {
            inner,
            names: BTreeMap::new(),
            files: BTreeMap::new(),
            changes: Vec::new(),
            next_file: 0,
            broken: false,
        };
        for name in disk.inner.list()? {
            let length_bytes = disk.inner.length(&name)?.ok_or_else(|| not_found(&name))?;
            disk.hold(
                name.clone(),
                Held {
                    inner_name: Some(name),
                    inner_bytes: length_bytes,
                    kept_bytes: length_bytes,
                    ..Held::default()
                },
            );
        }
        Ok(disk)
    }

    /// How many bytes a power cut would lose now: written, but not durable under a durable name.
    pub fn unsynced_bytes(&self) -> u64 {
        self.names
            .values()
            .map(|file| self.files[file].tail.len() as u64)
            .sum()
    }

    /// Hands over to the disk below all that was written, none of it in a durable way: what a process
    /// that is killed leaves to its operating system.
    ///
    /// # Errors
    /// If the disk below fails, or did so before.
    pub fn write_through(&mut self) -> io::Result<()> {
        let nameless = self.files.values_mut();
        for held in nameless.filter(|held| held.inner_name.is_none()) {
            held.synced = Some(held.tail.clone());
        }
        self.reach_inner(|disk| {
            for change in std::mem::take(&mut disk.changes) {
                disk.apply(change)?;
            }
            let named = disk.names.values();
            for file in named {
                if let Some(held) = disk.files.get_mut(file)
                    && held.differs()
                {
                    // Nobody waits for it: that would be a promise that it is durable.
                    drop(held.flush(&mut disk.inner)?);
                }
            }
            Ok(())
        })
    }

    fn hold(&mut self, name: String, held: Held) -> u64 {
        let file = self.next_file;
        self.next_file += 1;
        self.files.insert(file, held);
        self.names.insert(name, file);
        file
    }

    fn find(&self, name: &str) -> io::Result<&Held> {
        let file = self.names.get(name).ok_or_else(|| not_found(name))?;
        Ok(&self.files[file])
    }

    fn find_mut(&mut self, name: &str) -> io::Result<&mut Held> {
        let file = self.names.get(name).ok_or_else(|| not_found(name))?;
        Ok(self
            .files
            .get_mut(file)
            .expect("every name leads to a held file"))
    }

    fn find_or_create(&mut self, name: &str) -> &mut Held {
        if !self.names.contains_key(name) {
            let file = self.hold(name.to_owned(), Held::default());
            self.changes.push(DirectoryChange::Create {
                file,
                name: name.to_owned(),
            });
        }
        self.find_mut(name)
            .expect("the file was created just above if it was missing")
    }

    /// Runs an action that writes to the disk below. After a failure it is unknown how much of it
    /// happened, so running it again could write something twice.
    fn reach_inner<T>(&mut self, action: impl FnOnce(&mut Self) -> io::Result<T>) -> io::Result<T> {
        if self.broken {
            return Err(io::Error::other(
                "an earlier sync failed, so what is durable is unknown",
            ));
        }
        let outcome = action(self);
        self.broken = outcome.is_err();
        outcome
    }

    fn apply(&mut self, change: DirectoryChange) -> io::Result<()> {
        match change {
            DirectoryChange::Create { file, name } => {
                let held = self
                    .files
                    .get_mut(&file)
                    .expect("held files are dropped only after all changes are applied");
                let content = held.synced.take().unwrap_or_default();
                if content.is_empty() {
                    self.inner.write(&name, &[])?;
                } else {
                    self.inner.write(STAGED_FILE, &content)?;
                    self.inner.sync(STAGED_FILE)?;
                    self.inner.rename(STAGED_FILE, &name)?;
                }
                held.settle(name, &content);
            }
            DirectoryChange::Rename { from, to } => {
                self.inner.rename(&from, &to)?;
                if from != to {
                    self.rename_held(&to, None);
                    self.rename_held(&from, Some(&to));
                }
            }
            DirectoryChange::Remove { name } => {
                self.inner.remove(&name)?;
                self.rename_held(&name, None);
            }
        }
        Ok(())
    }

    fn rename_held(&mut self, from: &str, to: Option<&str>) {
        for held in self.files.values_mut() {
            if held.inner_name.as_deref() == Some(from) {
                held.inner_name = to.map(str::to_owned);
            }
        }
    }
}

impl Held {
    fn length_bytes(&self) -> u64 {
        self.kept_bytes + self.tail.len() as u64
    }

    /// Whether the disk below has something else.
    fn differs(&self) -> bool {
        self.kept_bytes != self.inner_bytes || !self.tail.is_empty()
    }

    fn cut(&mut self, length_bytes: u64) {
        if length_bytes >= self.kept_bytes {
            self.tail
                .truncate((length_bytes - self.kept_bytes) as usize);
        } else {
            self.kept_bytes = length_bytes;
            self.tail.clear();
        }
    }

    /// Notes that the file has a name and `content` on the disk below.
    fn settle(&mut self, name: String, content: &[u8]) {
        let same_bytes = content
            .iter()
            .zip(&self.tail)
            .take_while(|(below, above)| below == above)
            .count();
        self.tail.drain(..same_bytes);
        self.inner_name = Some(name);
        self.inner_bytes = content.len() as u64;
        self.kept_bytes = same_bytes as u64;
    }

    fn flush<D: Disk>(&mut self, inner: &mut D) -> io::Result<DiskSync> {
        let Some(name) = &self.inner_name else {
            self.synced = Some(self.tail.clone());
            return Ok(DiskSync::done());
        };
        if self.kept_bytes < self.inner_bytes {
            inner.truncate(name, self.kept_bytes)?;
        }
        if !self.tail.is_empty() {
            inner.append(name, &self.tail)?;
        }
        let sync = inner.begin_sync(name)?;
        self.kept_bytes = self.length_bytes();
        self.inner_bytes = self.kept_bytes;
        self.tail.clear();
        Ok(sync)
    }
}

impl<D: Disk> Disk for WriteBehindDisk<D> {
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.find_or_create(file).tail.extend_from_slice(bytes);
        Ok(())
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let held = self.find_or_create(file);
        held.cut(0);
        held.tail.extend_from_slice(bytes);
        Ok(())
    }

    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()> {
        let held = self.find_mut(file)?;
        if held.length_bytes() < length_bytes {
            return Err(cut_past_the_end(file, length_bytes));
        }
        held.cut(length_bytes);
        Ok(())
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        let sync = self.begin_sync(file)?;
        self.reach_inner(|_| sync.run())
    }

    fn begin_sync(&mut self, file: &str) -> io::Result<DiskSync> {
        let id = *self.names.get(file).ok_or_else(|| not_found(file))?;
        self.reach_inner(|disk| {
            disk.files
                .get_mut(&id)
                .expect("every name leads to a held file")
                .flush(&mut disk.inner)
        })
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let file = self.names.remove(from).ok_or_else(|| not_found(from))?;
        self.names.insert(to.to_owned(), file);
        self.changes.push(DirectoryChange::Rename {
            from: from.to_owned(),
            to: to.to_owned(),
        });
        Ok(())
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.names.remove(file).ok_or_else(|| not_found(file))?;
        self.changes.push(DirectoryChange::Remove {
            name: file.to_owned(),
        });
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.reach_inner(|disk| {
            for change in std::mem::take(&mut disk.changes) {
                disk.apply(change)?;
            }
            disk.inner.sync_directory()
        })?;
        let visible: std::collections::BTreeSet<u64> = self.names.values().copied().collect();
        self.files.retain(|file, _| visible.contains(file));
        Ok(())
    }

    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
        let held = self.find(file)?;
        let mut bytes = match &held.inner_name {
            Some(name) if position_bytes < held.kept_bytes => {
                let below_bytes = (held.kept_bytes - position_bytes).min(length_bytes as u64);
                self.inner
                    .read(name, position_bytes, below_bytes as usize)?
            }
            _ => Vec::new(),
        };
        let skip_bytes = position_bytes.saturating_sub(held.kept_bytes) as usize;
        if let Some(tail) = held.tail.get(skip_bytes..) {
            let missing_bytes = length_bytes - bytes.len();
            bytes.extend_from_slice(&tail[..missing_bytes.min(tail.len())]);
        }
        Ok(bytes)
    }

    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        Ok(self.find(file).ok().map(Held::length_bytes))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        Ok(self.names.keys().cloned().collect())
    }
}
