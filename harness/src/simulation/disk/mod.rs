//! Owns the disk of a simulated node: what is visible, what is durable, and how long a sync takes.
//! Never knows what the files mean, and never forgets a durable byte unless a fault says so.
//!
//! The process sees every operation at once. What is durable follows POSIX at its weakest: `sync` makes
//! the content of a file durable but not its name, `sync_directory` makes names durable but not contents.
//! A node does several operations in one go while virtual time stands still; the disk dates each of them,
//! so that a power cut in the middle takes back what had not happened yet.

mod platter;
mod power_cut;

use std::cell::RefCell;
use std::collections::BTreeMap;
use std::io;
use std::rc::Rc;

use node::storage::Disk;
use node::storage::injected_faults::{InjectedFault, InjectedFaults};

use super::draws::{Draws, scaled};
use crate::damage::Edit;
use platter::Platter;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A handle on one disk. Clones share it, so that the world keeps it while a node works with it.
#[derive(Debug, Clone)]
pub(super) struct SimulatedDisk(Rc<RefCell<State>>);

/// A place in the work that a node does in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(usize);

#[derive(Debug)]
struct State {
    platter: Platter,
    faults: InjectedFaults,
    draws: Draws,
    sync_count: u64,
    slowness: u64,
    /// The moment at which the next operation happens, in nanoseconds since the run started.
    time_ns: u64,
    /// Whether a fault has delayed what the node does in one go at present.
    was_delayed: bool,
}

impl SimulatedDisk {
    /// An empty disk. `draws` decide how long syncs take, and `slowness` by how much, in percent.
    pub(super) fn new(draws: Draws, slowness: u64) -> Self {
        Self(Rc::new(RefCell::new(State {
            platter: Platter::default(),
            faults: InjectedFaults::default(),
            draws,
            sync_count: 0,
            slowness,
            time_ns: 0,
            was_delayed: false,
        })))
    }

    /// The node begins to work at `now_ns`; everything it did before has happened for good.
    pub(super) fn begin(&self, now_ns: u64) {
        let mut state = self.0.borrow_mut();
        state.time_ns = now_ns;
        state.was_delayed = false;
        state.platter.settle();
    }

    /// The moment that the node's work has reached: its beginning plus the syncs since.
    pub(super) fn time_ns(&self) -> u64 {
        self.0.borrow().time_ns
    }

    /// The place that the node's work has reached. It tells operations apart that happen at one moment.
    pub(super) fn place(&self) -> Place {
        Place(self.0.borrow().platter.journal_length())
    }

    /// The power fails at `now_ns`, or at a place in the node's present work: of what was not durable by
    /// then, only what `draws` decide survives. Returns how many bytes were lost.
    pub(super) fn cut_power(&self, now_ns: u64, place: Option<Place>, draws: Draws) -> u64 {
        let mut state = self.0.borrow_mut();
        state.platter.take_back_after(now_ns);
        if let Some(Place(length)) = place {
            state.platter.take_back_to(length);
        }
        power_cut::strike(&mut state.platter, draws)
    }

    /// All files as a process would read them.
    pub(super) fn files(&self) -> Vec<(String, Vec<u8>)> {
        self.0.borrow().platter.visible_files()
    }

    /// The names of all files that a power cut leaves.
    pub(super) fn durable_names(&self) -> Vec<String> {
        self.0
            .borrow()
            .platter
            .durable_names
            .keys()
            .cloned()
            .collect()
    }

    /// All files as a power cut would leave them that loses everything it may. The disk is empty then: files are
    /// large.
    pub(super) fn take_durable_files(&self) -> BTreeMap<String, Vec<u8>> {
        std::mem::take(&mut self.0.borrow_mut().platter).into_durable_files()
    }

    /// All files as a power cut would leave them that loses everything it may.
    #[cfg(test)]
    pub(super) fn durable_files(&self) -> BTreeMap<String, Vec<u8>> {
        self.0.borrow().platter.durable_files()
    }

    /// The process ends at `now_ns` and the machine goes on: everything written by then stays, durable or
    /// not.
    pub(super) fn keep_written(&self, now_ns: u64, place: Option<Place>) {
        let mut state = self.0.borrow_mut();
        state.platter.take_back_after(now_ns);
        if let Some(Place(length)) = place {
            state.platter.take_back_to(length);
        }
        state.platter.settle();
    }

    /// Lets the disk do something wrong from now on.
    pub(super) fn install(&self, id: u64, fault: InjectedFault) {
        self.0.borrow_mut().faults.install(id, fault);
    }

    /// Ends a fault; returns how many operations it hit.
    pub(super) fn remove_fault(&self, id: u64) -> u64 {
        self.0.borrow_mut().faults.remove(id)
    }

    /// Ends all faults.
    pub(super) fn remove_faults(&self) {
        self.0.borrow_mut().faults = InjectedFaults::default();
    }

    /// Whether some operations fail at present.
    pub(super) fn is_failing(&self) -> bool {
        self.0.borrow().faults.fail_operations()
    }

    /// Everything on it is gone at `now_ns`. Meant for a disk without faults whose node is down.
    pub(super) fn erase(&self, now_ns: u64) {
        let mut state = self.0.borrow_mut();
        state.platter = Platter::default();
        state.time_ns = now_ns;
    }

    /// Destroys something at rest. Meant for a disk after a power cut, when all that is left is durable.
    pub(super) fn damage(&self, edits: &[Edit]) {
        let mut state = self.0.borrow_mut();
        for edit in edits {
            state.platter.damage(edit);
        }
    }
}

impl State {
    /// Time passes while the disk works. Group commit exists because of this.
    fn take_sync_time(&mut self) {
        let draw = self.draws.at(self.sync_count);
        self.sync_count += 1;
        let within = |low_ns: u64, high_ns: u64| low_ns + scaled(draw << 10, high_ns - low_ns);
        let latency_ns = match scaled(draw, 1000) {
            0..960 => within(100 * US, 700 * US),
            960..996 => within(MS, 6 * MS),
            _ => within(8 * MS, 50 * MS),
        };
        self.time_ns += latency_ns * self.slowness / 100;
    }

    fn sync_or_fail(&mut self, file: Option<&str>) -> io::Result<()> {
        self.take_sync_time();
        let (delay_ns, outcome) = self.faults.before_sync(file);
        // What a node does in one go is worked through at once, so a fault that ends meanwhile cannot be seen to.
        // Were every sync delayed, it would go on for seconds after it was healed.
        if !self.was_delayed {
            self.time_ns += delay_ns;
        }
        self.was_delayed |= delay_ns > 0;
        outcome
    }
}

impl Disk for SimulatedDisk {
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.faults.before_write(file)?;
        let time_ns = state.time_ns;
        state.platter.append(time_ns, file, bytes);
        Ok(())
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.faults.before_write(file)?;
        let time_ns = state.time_ns;
        state.platter.cut(time_ns, file, 0);
        state.platter.append(time_ns, file, bytes);
        Ok(())
    }

    fn truncate(&mut self, file: &str, length_bytes: u64) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        let present_bytes = state.platter.length(file).ok_or_else(|| not_found(file))?;
        if present_bytes < length_bytes {
            let message = format!("{file} has fewer than {length_bytes} bytes");
            return Err(io::Error::new(io::ErrorKind::InvalidInput, message));
        }
        let time_ns = state.time_ns;
        state.platter.cut(time_ns, file, length_bytes as usize);
        Ok(())
    }

    fn sync(&mut self, file: &str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.platter.length(file).ok_or_else(|| not_found(file))?;
        state.sync_or_fail(Some(file))?;
        let time_ns = state.time_ns;
        state.platter.sync(time_ns, file);
        Ok(())
    }

    fn rename(&mut self, from: &str, to: &str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.platter.length(from).ok_or_else(|| not_found(from))?;
        let time_ns = state.time_ns;
        state.platter.rename(time_ns, from, to);
        Ok(())
    }

    fn remove(&mut self, file: &str) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.platter.length(file).ok_or_else(|| not_found(file))?;
        let time_ns = state.time_ns;
        state.platter.remove(time_ns, file);
        Ok(())
    }

    fn sync_directory(&mut self) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.sync_or_fail(None)?;
        let time_ns = state.time_ns;
        state.platter.sync_directory(time_ns);
        Ok(())
    }

    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
        let mut state = self.0.borrow_mut();
        state.faults.before_read(Some(file))?;
        let content = state.platter.content(file).ok_or_else(|| not_found(file))?;
        let rest = content.get(position_bytes as usize..).unwrap_or_default();
        Ok(rest[..length_bytes.min(rest.len())].to_vec())
    }

    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        let mut state = self.0.borrow_mut();
        state.faults.before_read(Some(file))?;
        Ok(state.platter.length(file))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let mut state = self.0.borrow_mut();
        state.faults.before_read(None)?;
        Ok(state.platter.names())
    }
}

fn not_found(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no file {file}"))
}

#[cfg(test)]
mod tests;
