//! Owns the nodes of a run as processes, and the links between them.
//! Never decides when something happens to them.

use std::collections::{BTreeMap, BTreeSet};
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::process::ExitStatus;
use std::sync::{Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use nemesis::control::ControlClient;
use nemesis::fault::{DiskFault, DiskProblem};
use nemesis::processes::{self as signals, ProcessError};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::insistence::{Next, Patience};
use super::moments::Moments;
use super::network::{Network, Premises};
use super::node_process::{NodeProcess, NodeSettings, announced_address};
use super::spawner::Spawner;
use super::stops::Stop;
use crate::world::Event;

/// How long the kernel may take to end a killed process, which has to wait for what its disk is about.
pub(super) const DEATH_LIMIT: Duration = Duration::from_secs(30);

/// Why a node is gone that a fault has killed, or asked to end.
pub(super) const ENDED_BY_A_FAULT: &str = "ended by another fault";
/// How often a node is started again that ends when everything is put in order, or whose disk was mended while it
/// failed to start.
const START_ATTEMPTS: u32 = 3;
/// How often to look whether a node can be reached again.
const REACHABLE_LOOK: Duration = Duration::from_millis(20);

/// Why it is nobody's fault, besides that of a fault, that a node does not start.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Excuse {
    /// Data on its disk was destroyed.
    Damaged,
    /// Its disk fails, and whoever lets it do so starts the node later.
    FailingDisk,
}

/// A start that came to nothing.
#[derive(Debug)]
struct FailedStart {
    problem: String,
    /// As it was when the node began to start: by the time that somebody looks, it may have got a new disk, or
    /// its own may work again.
    excuse: Option<Excuse>,
}

/// One node, running or not.
#[derive(Debug)]
pub(super) struct Slot {
    pub(super) settings: NodeSettings,
    incarnation: u32,
    pub(super) process: Option<NodeProcess>,
    pub(super) stopped_since: Option<Instant>,
    /// Stops that ended otherwise than by whoever had stopped it, by when they began.
    pub(super) broken_stops: BTreeMap<Instant, Stop>,
    /// It was asked to end in good order, and whoever asked waits for that.
    pub(super) is_ending: bool,
    /// It is down although no fault holds it: it crashed, or did not start.
    pub(super) is_owed: bool,
    /// What it said last, each time that it ended by itself.
    pub(super) last_words: Vec<String>,
    /// Why its latest start failed.
    pub(super) failed_start: Option<String>,
    /// What its disk does wrong at present, by number of the fault.
    pub(super) disk_faults: BTreeMap<u64, DiskFault>,
    /// Data on its disk was destroyed.
    pub(super) is_damaged: bool,
    /// Ends that nobody has been told of.
    pub(super) crashes: Vec<Event>,
    /// It was killed, and was still there when that was given up.
    is_doomed: bool,
}

impl Slot {
    /// Notes if the node has ended by itself; whether it has.
    pub(super) fn notice_end(&mut self) -> bool {
        if self.is_ending {
            return false;
        }
        let Some(status) = self.process.as_mut().and_then(NodeProcess::ended) else {
            return false;
        };
        if self.is_doomed {
            self.note_down(ENDED_BY_A_FAULT);
            self.is_owed = true;
        } else {
            self.note_crash(status);
        }
        true
    }

    /// Notes that the node has ended in a way that nobody asked for.
    pub(super) fn note_crash(&mut self, status: ExitStatus) {
        let description = self.settings.epitaph(status);
        self.note_down(&description);
        self.is_owed = true;
        self.last_words.push(description.clone());
        self.crashes.push(Event::NodeCrashed {
            node: self.settings.name.clone(),
            description,
            signal: status.signal(),
        });
    }

    /// Notes that the node is gone, and why, for people.
    pub(super) fn note_down(&mut self, why: &str) {
        self.break_stop(why);
        self.process = None;
        self.is_ending = false;
        self.is_doomed = false;
    }

    /// Kills the process with SIGKILL and waits until it is gone.
    ///
    /// # Errors
    /// For people: there was none, or it did not die.
    pub(super) async fn kill(&mut self) -> Result<(), String> {
        let node = self.settings.name.clone();
        let Some(process) = self.process.as_mut() else {
            return Err(format!("{node} does not run"));
        };
        match signals::kill(process.pid()).await {
            // Gone already, or about to be.
            Ok(_) | Err(ProcessError::Dead { .. } | ProcessError::NoEffect { .. }) => {}
            Err(error) => return Err(format!("cannot kill {node}: {error}")),
        }
        if process.wait_ended(DEATH_LIMIT).await.is_none() {
            self.is_doomed = true;
            return Err(format!("{node} was killed but is still there"));
        }
        self.note_down(ENDED_BY_A_FAULT);
        Ok(())
    }

    /// The control client of the node, if it can answer.
    fn control(&self) -> Result<ControlClient, String> {
        let node = &self.settings.name;
        if self.stopped_since.is_some() {
            return Err(format!("{node} is stopped"));
        }
        let process = self.process.as_ref();
        process
            .map(|process| process.control.clone())
            .ok_or_else(|| format!("{node} does not run"))
    }

    fn excuse(&self) -> Option<Excuse> {
        if self.is_damaged {
            return Some(Excuse::Damaged);
        }
        self.has_failing_disk().then_some(Excuse::FailingDisk)
    }

    /// Whether some operations of its disk fail at present.
    pub(super) fn has_failing_disk(&self) -> bool {
        let mut faults = self.disk_faults.values();
        faults.any(|fault| fault.what != DiskProblem::SlowSync)
    }
}

/// All nodes and links.
#[derive(Debug)]
pub(super) struct Cluster {
    slots: BTreeMap<String, Mutex<Slot>>,
    addresses: SyncMutex<BTreeMap<String, SocketAddr>>,
    /// What is between the nodes.
    pub network: Network,
    /// What the nodes are watched for.
    pub moments: Moments,
    spawners: BTreeMap<String, Spawner>,
}

impl Cluster {
    /// A cluster of nodes that are not started yet.
    pub(super) fn new(settings: Vec<NodeSettings>, premises: Premises, moments: Moments) -> Self {
        let slot = |settings: NodeSettings| {
            let name = settings.name.clone();
            let slot = Slot {
                settings,
                incarnation: 0,
                process: None,
                stopped_since: None,
                broken_stops: BTreeMap::new(),
                is_ending: false,
                is_owed: false,
                last_words: Vec::new(),
                failed_start: None,
                disk_faults: BTreeMap::new(),
                is_damaged: false,
                crashes: Vec::new(),
                is_doomed: false,
            };
            (name, Mutex::new(slot))
        };
        Self {
            slots: settings.into_iter().map(slot).collect(),
            addresses: SyncMutex::default(),
            network: premises.network,
            moments,
            spawners: premises.spawners,
        }
    }

    /// Names of the nodes.
    pub(super) fn names(&self) -> impl Iterator<Item = &String> {
        self.slots.keys()
    }

    /// Where clients reach a node; `None` while it does not run.
    pub(super) fn address(&self, node: &str) -> Option<SocketAddr> {
        self.addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner)
            .get(node)
            .copied()
    }

    /// Names of the nodes of which this is so; a node on which somebody works just now is left out.
    pub(super) fn those_that(&self, is_so: impl Fn(&Slot) -> bool) -> BTreeSet<String> {
        let slots = self.slots.iter();
        let those = slots.filter(|(_, slot)| slot.try_lock().is_ok_and(|slot| is_so(&slot)));
        those.map(|(name, _)| name.clone()).collect()
    }

    pub(super) fn set_address(&self, node: &str, address: Option<SocketAddr>) {
        let mut addresses = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        self.network.set_target(node, address);
        match address {
            Some(address) => drop(addresses.insert(node.to_owned(), address)),
            None => drop(addresses.remove(node)),
        }
    }

    pub(super) fn slot(&self, node: &str) -> Result<&Mutex<Slot>, String> {
        self.slots
            .get(node)
            .ok_or_else(|| format!("there is no node {node}"))
    }

    /// The directory id of a node, and where it says that it listens: how voters in a log name it.
    ///
    /// # Errors
    /// For people: it has none, or somebody works on it.
    pub(super) fn identity(&self, node: &str) -> Result<(String, String), String> {
        let slot = self.slot(node)?.try_lock();
        let slot = slot.map_err(|_| format!("{node} is being started or ended"))?;
        let formatting = slot.settings.formatting.as_ref();
        let formatting = formatting.ok_or_else(|| format!("{node} has no directory id"))?;
        let address = announced_address(slot.settings.id, slot.incarnation);
        Ok((formatting.directory_id.clone(), format!("http://{address}")))
    }

    /// Lets a node take a snapshot. Returns where its newest one ended before and after; equal if it took
    /// none within `limit`.
    ///
    /// # Errors
    /// For people: it does not run, is stopped, or did not answer.
    pub(super) async fn take_snapshot(
        &self,
        node: &str,
        limit: Duration,
    ) -> Result<(u64, u64), String> {
        let control = self.slot_of_one_that_goes(node).await?.control()?;
        let problem = |error| format!("cannot make {node} take a snapshot: {error}");
        let end = async || {
            let status = control.status().await.map_err(problem)?;
            let end = status.snapshot_end;
            end.ok_or_else(|| format!("{node} does not tell of its snapshots"))
        };
        let before = end().await?;
        control.take_snapshot().await.map_err(problem)?;
        let limit = Instant::now() + limit;
        loop {
            let after = end().await?;
            if after != before || Instant::now() >= limit {
                return Ok((before, after));
            }
            tokio::time::sleep(REACHABLE_LOOK).await;
        }
    }

    /// Starts a node that does not run, and waits until it answers.
    ///
    /// # Errors
    /// For people: why it does not run.
    pub(super) async fn start(&self, node: &str) -> Result<(), String> {
        let started = self.try_to_start(node).await?;
        started.map_err(|failed| failed.problem)
    }

    async fn try_to_start(&self, node: &str) -> Result<Result<(), FailedStart>, String> {
        let mut slot = self.slot(node)?.lock().await;
        if slot.process.is_some() {
            return Ok(Ok(()));
        }
        let spawner = self.spawners.get(node);
        let spawner = spawner.ok_or_else(|| format!("{node} has no place in the network"))?;
        slot.incarnation += 1;
        slot.failed_start = None;
        let excuse = slot.excuse();
        // What cannot be read matters as a node starts; everything else, once it runs.
        let (at_start, later): (BTreeMap<u64, DiskFault>, BTreeMap<u64, DiskFault>) = slot
            .disk_faults
            .iter()
            .partition(|(_, fault)| fault.what == DiskProblem::ReadError);
        let settings = &slot.settings;
        let started = settings.start(slot.incarnation, &at_start, spawner).await;
        slot.is_owed = started.is_err();
        let (process, reached) = match started {
            Ok(started) => started,
            Err(problem) => {
                slot.failed_start = Some(problem.clone());
                slot.last_words.push(problem.clone());
                return Ok(Err(FailedStart { problem, excuse }));
            }
        };
        for (id, fault) in &later {
            // One that ended at once is noticed as a crash.
            let _ = process.control.fail_disk(*id, *fault).await;
        }
        let control = process.control.clone();
        self.moments
            .attend(node, slot.incarnation, control, reached)
            .await;
        self.set_address(node, Some(process.address));
        slot.process = Some(process);
        slot.stopped_since = None;
        slot.is_ending = false;
        Ok(Ok(()))
    }

    /// As [`Self::start`], for those who are not to blame if the node does not start with data that a
    /// fault has destroyed, or on a disk that fails, and so is started later.
    ///
    /// # Errors
    /// For people: why it does not run.
    pub(super) async fn revive(&self, node: &str) -> Result<(), String> {
        let mut left_count = START_ATTEMPTS;
        loop {
            let Err(failed) = self.try_to_start(node).await? else {
                return Ok(());
            };
            let slot = self.slot(node)?.lock().await;
            match failed.excuse {
                Some(Excuse::Damaged) => return Ok(()),
                Some(Excuse::FailingDisk) if slot.has_failing_disk() => return Ok(()),
                // Mended while it started: whoever did that may not have found it down.
                Some(Excuse::FailingDisk) if left_count > 0 => left_count -= 1,
                Some(Excuse::FailingDisk) | None => return Err(failed.problem),
            }
        }
    }

    /// Kills a node with SIGKILL and waits until it is gone.
    ///
    /// # Errors
    /// For people: it did not run, or did not die. One that had just ended by itself is down as well.
    pub(super) async fn kill(&self, node: &str) -> Result<(), String> {
        let mut slot = self.slot(node)?.lock().await;
        self.kill_in(node, &mut slot).await
    }

    /// As [`Self::kill`], for those who do more with the node before anybody else may.
    ///
    /// # Errors
    /// As there.
    pub(super) async fn kill_in(&self, node: &str, slot: &mut Slot) -> Result<(), String> {
        if slot.notice_end() {
            self.set_address(node, None);
        }
        slot.kill().await?;
        self.set_address(node, None);
        Ok(())
    }

    /// Sets a node's clock; returns how far it is off afterwards, in milliseconds.
    ///
    /// # Errors
    /// For people: it does not run, is stopped, or did not answer.
    pub(super) async fn set_clock(
        &self,
        node: &str,
        offset_ms: i64,
        rate: f64,
    ) -> Result<f64, String> {
        let control = self.control(node).await?;
        let clock = control.set_clock(offset_ms, rate).await;
        let clock = clock.map_err(|error| format!("cannot set the clock of {node}: {error}"))?;
        Ok(clock.skew_ms)
    }

    /// How far a node's clock is off, in milliseconds; `None` if it does not answer.
    pub(super) async fn clock_skew_ms(&self, node: &str) -> Option<f64> {
        Some(self.status(node).await?.clock.skew_ms)
    }

    /// What a node says of itself; `None` if it does not answer.
    pub(super) async fn status(&self, node: &str) -> Option<nemesis::control::NodeStatus> {
        let control = self.control(node).await.ok()?;
        control.status().await.ok()
    }

    /// Waits, up to `limit`, until a node runs and is not stopped: another fault may hold it.
    pub(crate) async fn await_reachable(&self, node: &str, limit: Duration) {
        let limit = Instant::now() + limit;
        while self.control(node).await.is_err() && Instant::now() < limit {
            tokio::time::sleep(REACHABLE_LOOK).await;
        }
    }

    /// The control client of a node that can answer.
    pub(super) async fn control(&self, node: &str) -> Result<ControlClient, String> {
        self.slot(node)?.lock().await.control()
    }

    /// Ends a node that leaves the cluster, if it runs. It stays down, even if it went down by itself.
    ///
    /// # Errors
    /// For people: it did not die.
    pub(super) async fn dismiss(&self, node: &str) -> Result<(), String> {
        // What another fault has killed already needs no end.
        let killed = match self.address(node) {
            Some(_) => self.kill(node).await,
            None => Ok(()),
        };
        let mut slot = self.slot(node)?.lock().await;
        if slot.notice_end() {
            self.set_address(node, None);
        }
        slot.is_owed = false;
        match &slot.process {
            Some(_) => killed,
            // Killed, or ended by itself before it could be.
            None => Ok(()),
        }
    }

    /// Looks for nodes that ended by themselves since the last time that they were told of, with their epitaphs.
    pub(super) fn reap_crashed(&self) -> Vec<Event> {
        self.notice_ends();
        let slots = self.slots.values().filter_map(|slot| slot.try_lock().ok());
        slots
            .flat_map(|mut slot| std::mem::take(&mut slot.crashes))
            .collect()
    }

    /// Notes which nodes have ended by themselves. [`Self::reap_crashed`] tells of them later.
    pub(super) fn notice_ends(&self) {
        for (name, slot) in &self.slots {
            // Somebody who works on the node right now will notice as well.
            if let Ok(mut slot) = slot.try_lock()
                && slot.notice_end()
            {
                self.set_address(name, None);
            }
        }
    }

    /// Makes sure that a node runs, is not stopped, and has a disk that works and a true clock. A node that
    /// does not start with data that a fault has destroyed stays down; returned is why it does not.
    ///
    /// # Errors
    /// For people: what is still wrong.
    pub(super) async fn put_in_order(&self, node: &str) -> Result<Option<String>, String> {
        self.resume(node, None).await?;
        self.mend_everything(node).await?;
        let mut patience = Patience::new();
        let mut left_count = START_ATTEMPTS;
        let skew_ms = loop {
            if let Err(problem) = self.start(node).await {
                let slot = self.slot(node)?.lock().await;
                return if slot.is_damaged {
                    Ok(Some(problem))
                } else {
                    Err(problem)
                };
            }
            // On a machine that is too busy, an answer may take longer than a call waits.
            match self.set_clock(node, 0, 1.0).await {
                Ok(skew_ms) => break skew_ms,
                Err(problem) => match self.next_try(node, &mut patience, problem).await? {
                    Next::Again => {}
                    // What was wrong with its disk may have ended it just now.
                    Next::HasEnded if left_count > 0 => left_count -= 1,
                    Next::HasEnded => return Err(format!("{node} ends again and again")),
                },
            }
        };
        if skew_ms.abs() > 50.0 {
            return Err(format!("the clock of {node} is still {skew_ms:.0} ms off"));
        }
        Ok(None)
    }

    /// Ends every node at once.
    pub(super) async fn end(&self) {
        for (name, slot) in &self.slots {
            self.set_address(name, None);
            slot.lock().await.process = None;
        }
    }
}
