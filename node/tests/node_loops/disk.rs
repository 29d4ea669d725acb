//! Owns the disk under the loops: real files, lost power, lost processes, and faults on demand.
//! Never knows what the files mean, except which are unfinished.

use std::cell::{Cell, RefCell};
use std::collections::BTreeSet;
use std::io;
use std::path::Path;
use std::rc::Rc;

use node::storage::{DirectoryDisk, Disk, WriteBehindDisk};

/// How the names of files end that nobody relies on yet.
const UNFINISHED: &str = ".part";

/// How the names of the files begin that hold epoch, leader and vote.
const ELECTION_STATE: &str = "quorum-state";

/// What goes wrong with every unfinished file.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Fault {
    /// Nothing can be added.
    Full,
    /// What was added cannot be made durable.
    Sync,
}

/// What a test sees of a disk, and does to it, while a loop owns it.
#[derive(Debug, Clone)]
pub(crate) struct DiskHandle(Rc<Shared>);

#[derive(Debug)]
struct Shared {
    inner: RefCell<WriteBehindDisk<DirectoryDisk>>,
    /// Files that were written to since their last sync, without unfinished ones.
    dirty: RefCell<BTreeSet<String>>,
    sync_count: Cell<u32>,
    fault: Cell<Option<Fault>>,
}

impl DiskHandle {
    /// The files in `directory`, all of them durable.
    pub(crate) fn open(directory: &Path) -> Self {
        let files = DirectoryDisk::open(directory).unwrap();
        Self(Rc::new(Shared {
            inner: RefCell::new(WriteBehindDisk::new(files).unwrap()),
            dirty: RefCell::default(),
            sync_count: Cell::default(),
            fault: Cell::default(),
        }))
    }

    /// The disk that the loop gets.
    pub(crate) fn disk(&self) -> LoopDisk {
        LoopDisk(self.clone())
    }

    /// Whether anything that somebody may rely on is written and not durable.
    pub(crate) fn is_dirty(&self) -> bool {
        !self.0.dirty.borrow().is_empty()
    }

    /// Whether epoch, leader or vote are written and not durable.
    pub(crate) fn is_election_state_dirty(&self) -> bool {
        let dirty = self.0.dirty.borrow();
        dirty.iter().any(|file| file.starts_with(ELECTION_STATE))
    }

    pub(crate) fn sync_count(&self) -> u32 {
        self.0.sync_count.get()
    }

    pub(crate) fn set_fault(&self, fault: Option<Fault>) {
        self.0.fault.set(fault);
    }

    /// All of it reaches the files, as the page cache does when only the process dies.
    pub(crate) fn write_back(&self) {
        let mut inner = self.0.inner.borrow_mut();
        for file in inner.list().unwrap() {
            inner.sync(&file).unwrap();
        }
        inner.sync_directory().unwrap();
    }

    /// Names of all files that the loop sees, durable or not.
    pub(crate) fn files(&self) -> Vec<String> {
        self.0.inner.borrow().list().unwrap()
    }

    /// What the loop sees in a file; `None` where there is no such file.
    pub(crate) fn content(&self, file: &str) -> Option<Vec<u8>> {
        let inner = self.0.inner.borrow();
        let length_bytes = inner.length(file).unwrap()?;
        let length_bytes = usize::try_from(length_bytes).unwrap();
        Some(inner.read(file, 0, length_bytes).unwrap())
    }

    fn note_written(&self, file: &str, is_empty: bool) {
        if !is_empty && !file.ends_with(UNFINISHED) {
            self.0.dirty.borrow_mut().insert(file.to_owned());
        }
    }

    fn check(&self, fault: Fault, kind: io::ErrorKind, file: &str) -> io::Result<()> {
        if self.0.fault.get() == Some(fault) && file.ends_with(UNFINISHED) {
            return Err(io::Error::new(kind, format!("{fault:?} disk")));
        }
        Ok(())
    }
}

/// Dropping it is a power cut: what is not durable is gone.
#[derive(Debug)]
pub(crate) struct LoopDisk(DiskHandle);

impl LoopDisk {
    fn shared(&self) -> &Shared {
        &self.0.0
    }
}

impl Disk for LoopDisk {
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.0
            .check(Fault::Full, io::ErrorKind::StorageFull, file)?;
        self.0.note_written(file, bytes.is_empty());
        self.shared().inner.borrow_mut().append(file, bytes)
    }
    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        self.0
            .check(Fault::Full, io::ErrorKind::StorageFull, file)?;
        self.0.note_written(file, bytes.is_empty());
        self.shared().inner.borrow_mut().write(file, bytes)
    }
    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()> {
        self.0.note_written(file, false);
        self.shared()
            .inner
            .borrow_mut()
            .truncate(file, length_bytes)
    }
    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.0.check(Fault::Sync, io::ErrorKind::Other, file)?;
        let shared = self.shared();
        shared.inner.borrow_mut().sync(file)?;
        shared.dirty.borrow_mut().remove(file);
        shared.sync_count.set(shared.sync_count.get() + 1);
        Ok(())
    }
    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.shared().inner.borrow_mut().rename(from, to)?;
        let mut dirty = self.shared().dirty.borrow_mut();
        dirty.remove(to);
        if dirty.remove(from) {
            dirty.insert(to.to_owned());
        }
        Ok(())
    }
    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.shared().dirty.borrow_mut().remove(file);
        self.shared().inner.borrow_mut().remove(file)
    }
    fn sync_directory(&mut self) -> io::Result<()> {
        self.shared().inner.borrow_mut().sync_directory()
    }
    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
        let inner = self.shared().inner.borrow();
        inner.read(file, position_bytes, length_bytes)
    }
    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        self.shared().inner.borrow().length(file)
    }
    fn list(&self) -> io::Result<Vec<String>> {
        self.shared().inner.borrow().list()
    }
}
