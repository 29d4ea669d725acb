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
use std::io;
use std::rc::Rc;

use node::storage::Disk;

use super::draws::{Draws, scaled};
use platter::Platter;

const US: u64 = 1_000;
const MS: u64 = 1_000_000;

/// A handle on one disk. Clones share it, so that the world keeps it while a node works with it.
#[derive(Debug, Clone)]
pub(super) struct SimulatedDisk(Rc<RefCell<State>>);

/// A place in the work that a node does in one go.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Place(usize);

/// What the disk is told to do wrong.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub(super) struct DiskFaults {
    /// How many of the coming syncs fail with EIO; what they should have made durable is not.
    pub(super) failing_sync_count: u32,
    /// Reads fail with EIO.
    pub(super) reads_fail: bool,
    /// No more than this many bytes fit: ENOSPC beyond.
    pub(super) capacity_bytes: Option<u64>,
    /// Every sync takes this much longer, in nanoseconds.
    pub(super) sync_delay_ns: u64,
}

#[derive(Debug)]
struct State {
    platter: Platter,
    faults: DiskFaults,
    draws: Draws,
    sync_count: u64,
    slowness: u64,
    /// The moment at which the next operation happens, in nanoseconds since the run started.
    time_ns: u64,
}

impl SimulatedDisk {
    /// An empty disk. `draws` decide how long syncs take, and `slowness` by how much, in percent.
    pub(super) fn new(draws: Draws, slowness: u64) -> Self {
        Self(Rc::new(RefCell::new(State {
            platter: Platter::default(),
            faults: DiskFaults::default(),
            draws,
            sync_count: 0,
            slowness,
            time_ns: 0,
        })))
    }

    /// The node begins to work at `now_ns`; everything it did before has happened for good.
    pub(super) fn begin(&self, now_ns: u64) {
        let mut state = self.0.borrow_mut();
        state.time_ns = now_ns;
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

    /// Changes what the disk does wrong from now on.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no fault of the vocabulary needs it yet")
    )]
    pub(super) fn set_faults(&self, faults: DiskFaults) {
        self.0.borrow_mut().faults = faults;
    }

    /// Flips a bit at rest, in a position that `draw` decides; whether there was one to flip.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no fault of the vocabulary needs it yet")
    )]
    pub(super) fn flip_bit(&self, file: &str, draw: u64) -> bool {
        self.0.borrow_mut().platter.flip_bit(file, draw)
    }

    /// Loses everything, as a replaced disk does.
    #[cfg_attr(
        not(test),
        expect(dead_code, reason = "no fault of the vocabulary needs it yet")
    )]
    pub(super) fn wipe(&self) {
        self.0.borrow_mut().platter = Platter::default();
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
        self.time_ns += latency_ns * self.slowness / 100 + self.faults.sync_delay_ns;
    }

    fn sync_or_fail(&mut self) -> io::Result<()> {
        self.take_sync_time();
        if self.faults.failing_sync_count == 0 {
            return Ok(());
        }
        self.faults.failing_sync_count -= 1;
        Err(input_output_error())
    }

    fn make_room(&self, more_bytes: usize) -> io::Result<()> {
        let full = self.faults.capacity_bytes.is_some_and(|capacity_bytes| {
            self.platter.used_bytes() + more_bytes as u64 > capacity_bytes
        });
        if full {
            return Err(io::Error::from(io::ErrorKind::StorageFull));
        }
        Ok(())
    }

    fn check_read(&self) -> io::Result<()> {
        if self.faults.reads_fail {
            return Err(input_output_error());
        }
        Ok(())
    }
}

fn input_output_error() -> io::Error {
    io::Error::from_raw_os_error(nix::libc::EIO)
}

impl Disk for SimulatedDisk {
    fn append(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.make_room(bytes.len())?;
        let time_ns = state.time_ns;
        state.platter.append(time_ns, file, bytes);
        Ok(())
    }

    fn write(&mut self, file: &str, bytes: &[u8]) -> io::Result<()> {
        let mut state = self.0.borrow_mut();
        state.make_room(bytes.len())?;
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
        state.sync_or_fail()?;
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
        state.sync_or_fail()?;
        let time_ns = state.time_ns;
        state.platter.sync_directory(time_ns);
        Ok(())
    }

    fn read(&self, file: &str, position_bytes: u64, length_bytes: usize) -> io::Result<Vec<u8>> {
        let state = self.0.borrow();
        state.check_read()?;
        let content = state.platter.content(file).ok_or_else(|| not_found(file))?;
        let rest = content.get(position_bytes as usize..).unwrap_or_default();
        Ok(rest[..length_bytes.min(rest.len())].to_vec())
    }

    fn length(&self, file: &str) -> io::Result<Option<u64>> {
        let state = self.0.borrow();
        state.check_read()?;
        Ok(state.platter.length(file))
    }

    fn list(&self) -> io::Result<Vec<String>> {
        let state = self.0.borrow();
        state.check_read()?;
        Ok(state.platter.names())
    }
}

fn not_found(file: &str) -> io::Error {
    io::Error::new(io::ErrorKind::NotFound, format!("there is no file {file}"))
}

#[cfg(test)]
mod tests;
