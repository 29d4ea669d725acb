//! Owns the layer through which those who test a node let its disk fail while the node runs.
//! Never in the way of a node that nobody tests: without a control socket it is not there.

use std::fmt;
use std::io;
use std::sync::{Arc, Mutex, MutexGuard, PoisonError};
use std::time::Duration;

use crate::storage::disk::{Disk, DiskSync};
use crate::storage::injected_faults::{InjectedFault, InjectedFaults};
use crate::storage::{DirectoryDisk, WriteBehindDisk};

/// A disk that does wrong what its [`DiskControl`] says.
#[derive(Debug)]
pub struct FaultyDisk<D>(Arc<Mutex<State<D>>>);

#[derive(Debug)]
struct State<D> {
    disk: D,
    faults: InjectedFaults,
}

/// A disk that can hand over to the operating system all that was written, synced or not.
pub trait WriteThrough {
    /// Hands over everything, in no durable way.
    ///
    /// # Errors
    /// If the disk fails.
    fn write_through(&mut self) -> io::Result<()>;
}

impl WriteThrough for DirectoryDisk {
    /// It never keeps anything to itself.
    fn write_through(&mut self) -> io::Result<()> {
        Ok(())
    }
}

impl<D: Disk> WriteThrough for WriteBehindDisk<D> {
    fn write_through(&mut self) -> io::Result<()> {
        Self::write_through(self)
    }
}

/// A handle on a [`FaultyDisk`], for threads other than the node's.
#[derive(Clone)]
pub struct DiskControl(Arc<dyn Controlled>);

trait Controlled: Send + Sync {
    fn faults(&self, change: &mut dyn FnMut(&mut InjectedFaults));
    fn write_through_and(&self, then: &mut dyn FnMut()) -> io::Result<()>;
}

impl<D: Disk + WriteThrough + Send> Controlled for Mutex<State<D>> {
    fn faults(&self, change: &mut dyn FnMut(&mut InjectedFaults)) {
        change(&mut locked(self).faults);
    }

    fn write_through_and(&self, then: &mut dyn FnMut()) -> io::Result<()> {
        let mut state = locked(self);
        state.disk.write_through()?;
        then();
        Ok(())
    }
}

impl fmt::Debug for DiskControl {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str("DiskControl")
    }
}

impl DiskControl {
    /// Lets the disk do something wrong from now on. A fault with the same number is replaced.
    pub fn install(&self, id: u64, fault: InjectedFault) {
        self.0.faults(&mut |faults| faults.install(id, fault));
    }

    /// Ends a fault; returns how many operations it hit.
    pub fn remove(&self, id: u64) -> u64 {
        let mut hit_count = 0;
        self.0.faults(&mut |faults| hit_count = faults.remove(id));
        hit_count
    }

    /// Hands over to the operating system all that was written, and does `then` before anything more is.
    ///
    /// # Errors
    /// If the disk fails; `then` is not done.
    pub fn write_through_and(&self, mut then: impl FnMut()) -> io::Result<()> {
        self.0.write_through_and(&mut then)
    }
}

impl<D: Disk + WriteThrough + Send + 'static> FaultyDisk<D> {
    /// Puts the layer on top of `disk`. It does nothing wrong until it is told to.
    pub fn new(disk: D) -> (Self, DiskControl) {
        let faults = InjectedFaults::default();
        let state = Arc::new(Mutex::new(State { disk, faults }));
        (Self(Arc::clone(&state)), DiskControl(state))
    }
}

fn locked<D>(state: &Mutex<State<D>>) -> MutexGuard<'_, State<D>> {
    state.lock().unwrap_or_else(PoisonError::into_inner)
}

impl<D> FaultyDisk<D> {
    fn locked(&self) -> MutexGuard<'_, State<D>> {
        locked(&self.0)
    }

    /// Begins a sync that takes longer if it is to, or fails if it is to fail.
    fn begin_faulty_sync(
        &self,
        file: Option<&str>,
        begin: impl FnOnce(&mut D) -> io::Result<DiskSync>,
    ) -> io::Result<DiskSync> {
        let mut state = self.locked();
        let (delay_ns, outcome) = state.faults.before_sync(file);
        if let Err(error) = outcome {
            return Ok(DiskSync::to_do(move || {
                pass(delay_ns);
                Err(error)
            }));
        }
        let sync = begin(&mut state.disk)?;
        if delay_ns == 0 {
            return Ok(sync);
        }
        Ok(DiskSync::to_do(move || {
            pass(delay_ns);
            sync.run()
        }))
    }

    /// Waits as long as a sync is to take longer, and fails it if it is to fail.
    fn take_sync_faults(&self, file: Option<&str>) -> io::Result<()> {
        let (delay_ns, outcome) = self.locked().faults.before_sync(file);
        pass(delay_ns);
        outcome
    }
}

#[expect(
    clippy::disallowed_methods,
    reason = "a slow disk keeps whoever waits for it; simulated disks have a layer of their own"
)]
fn pass(delay_ns: u64) {
    if delay_ns > 0 {
        std::thread::sleep(Duration::from_nanos(delay_ns));
    }
}

impl<D: Disk> Disk for FaultyDisk<D> {
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.locked();
        state.faults.before_write(file)?;
        state.disk.append(file, bytes)
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.locked();
        state.faults.before_write(file)?;
        state.disk.write(file, bytes)
    }

    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()> {
        self.locked().disk.truncate(file, length_bytes)
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        self.take_sync_faults(Some(file))?;
        self.locked().disk.sync(file)
    }

    fn begin_sync(&mut self, file: &str) -> io::Result<DiskSync> {
        self.begin_faulty_sync(Some(file), |disk| disk.begin_sync(file))
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        self.locked().disk.rename(from, to)
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        self.locked().disk.remove(file)
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        self.take_sync_faults(None)?;
        self.locked().disk.sync_directory()
    }

    fn begin_sync_directory(&mut self) -> io::Result<DiskSync> {
        self.begin_faulty_sync(None, D::begin_sync_directory)
    }

    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
        let mut state = self.locked();
        state.faults.before_read(Some(file))?;
        state.disk.read(file, position_bytes, length_bytes)
    }

    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        let mut state = self.locked();
        state.faults.before_read(Some(file))?;
        state.disk.length(file)
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.locked();
        state.faults.before_read(None)?;
        state.disk.list()
    }

    fn reserve(&mut self, file: &str, length_bytes: u64) {
        let mut state = self.locked();
        if state.faults.before_write(file).is_ok() {
            state.disk.reserve(file, length_bytes);
        }
    }
}

#[cfg(test)]
#[expect(
    clippy::disallowed_types,
    reason = "only real time tells that a sync took it"
)]
mod tests {
    use std::time::Instant;

    use super::*;
    use crate::storage::injected_faults::{DiskProblem, FileKind};

    fn fault(problem: DiskProblem) -> InjectedFault {
        let files = FileKind::All;
        InjectedFault { problem, files }
    }

    #[test]
    fn a_disk_fails_only_while_it_is_told_to() {
        let directory = tempfile::tempdir().unwrap();
        let below = WriteBehindDisk::new(DirectoryDisk::open(directory.path()).unwrap()).unwrap();
        let (mut disk, control) = FaultyDisk::new(below);
        disk.write("a", b"one").unwrap();
        disk.sync("a").unwrap();
        control.install(1, fault(DiskProblem::SyncError));
        control.install(2, fault(DiskProblem::NoSpace));
        control.install(3, fault(DiskProblem::ReadError));
        assert!(disk.begin_sync("a").unwrap().run().is_err());
        assert!(disk.sync_directory().is_err());
        assert!(disk.append("a", b"two").is_err());
        assert!(disk.read("a", 0, 1).is_err() && disk.list().is_err());
        assert_eq!([1, 2, 3].map(|id| control.remove(id)), [2, 1, 2]);
        disk.append("a", b"two").unwrap();
        disk.sync("a").unwrap();
        assert_eq!(disk.read("a", 0, 9).unwrap(), b"onetwo");
        let begun = Instant::now();
        control.install(4, fault(DiskProblem::SlowSync { delay_ms: 20 }));
        disk.begin_sync("a").unwrap().run().unwrap();
        assert!(begun.elapsed() >= Duration::from_millis(20));
        assert_eq!(control.remove(4), 1);
    }

    #[test]
    fn what_is_written_through_outlives_the_process_without_a_sync() {
        let directory = tempfile::tempdir().unwrap();
        let open = || WriteBehindDisk::new(DirectoryDisk::open(directory.path()).unwrap()).unwrap();
        let (mut disk, control) = FaultyDisk::new(open());
        disk.write("kept", b"one").unwrap();
        disk.sync("kept").unwrap();
        disk.sync_directory().unwrap();
        disk.append("kept", b"two").unwrap();
        disk.write("new.tmp", b"three").unwrap();
        disk.rename("new.tmp", "new").unwrap();
        disk.write("gone", b"four").unwrap();
        disk.remove("gone").unwrap();
        let mut done = false;
        control.write_through_and(|| done = true).unwrap();
        assert!(done);
        drop((disk, control));
        let disk = open();
        assert_eq!(disk.list().unwrap(), ["kept", "new"]);
        assert_eq!(disk.read("kept", 0, 9).unwrap(), b"onetwo");
        assert_eq!(disk.read("new", 0, 9).unwrap(), b"three");
    }
}
