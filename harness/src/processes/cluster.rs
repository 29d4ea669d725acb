//! Owns the nodes of a run as processes, and the links between them.
//! Never decides when something happens to them.

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::os::unix::process::ExitStatusExt as _;
use std::sync::{Mutex as SyncMutex, PoisonError};
use std::time::Duration;

use nemesis::links::Links;
use nemesis::processes::{self as signals, Confirmation};
use tokio::sync::Mutex;
use tokio::time::Instant;

use super::node_process::{NodeProcess, NodeSettings, announced_address};
use super::spawner::Spawner;
use crate::world::Event;

/// How long the kernel may take to end a killed process.
const DEATH_LIMIT: Duration = Duration::from_secs(5);

/// How often to look whether a node can be reached again.
const REACHABLE_LOOK: Duration = Duration::from_millis(20);

/// One node, running or not.
#[derive(Debug)]
pub(super) struct Slot {
    settings: NodeSettings,
    incarnation: u32,
    process: Option<NodeProcess>,
    stopped_since: Option<Instant>,
}

/// All nodes and links.
#[derive(Debug)]
pub(super) struct Cluster {
    slots: BTreeMap<String, Mutex<Slot>>,
    addresses: SyncMutex<BTreeMap<String, SocketAddr>>,
    /// The proxies between the nodes.
    pub links: Links,
    spawner: Spawner,
}

impl Cluster {
    /// A cluster of nodes that are not started yet.
    pub(super) fn new(settings: Vec<NodeSettings>, links: Links, spawner: Spawner) -> Self {
        let slot = |settings: NodeSettings| {
            let name = settings.name.clone();
            let slot = Slot {
                settings,
                incarnation: 0,
                process: None,
                stopped_since: None,
            };
            (name, Mutex::new(slot))
        };
        Self {
            slots: settings.into_iter().map(slot).collect(),
            addresses: SyncMutex::default(),
            links,
            spawner,
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

    /// Names come from the cluster's own list, which is the links' list, so the links know them.
    fn set_address(&self, node: &str, address: Option<SocketAddr>) {
        let mut addresses = self
            .addresses
            .lock()
            .unwrap_or_else(PoisonError::into_inner);
        match address {
            Some(address) => {
                addresses.insert(node.to_owned(), address);
                let _ = self.links.set_target(node, address);
            }
            None => {
                addresses.remove(node);
                let _ = self.links.clear_target(node);
            }
        }
    }

    fn slot(&self, node: &str) -> Result<&Mutex<Slot>, String> {
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
        let control = self.control(node).await?;
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
        let mut slot = self.slot(node)?.lock().await;
        if slot.process.is_some() {
            return Ok(());
        }
        slot.incarnation += 1;
        let process = slot.settings.start(slot.incarnation, &self.spawner).await?;
        self.set_address(node, Some(process.address));
        slot.process = Some(process);
        slot.stopped_since = None;
        Ok(())
    }

    /// Kills a node with SIGKILL and waits until it is gone.
    ///
    /// # Errors
    /// For people: it did not run, or did not die.
    pub(super) async fn kill(&self, node: &str) -> Result<(), String> {
        let mut slot = self.slot(node)?.lock().await;
        let Some(process) = slot.process.as_mut() else {
            return Err(format!("{node} does not run"));
        };
        let killed = signals::kill(process.pid()).await;
        killed.map_err(|error| format!("cannot kill {node}: {error}"))?;
        let ended = process.wait_ended(DEATH_LIMIT).await;
        ended.ok_or_else(|| format!("{node} was killed but is still there"))?;
        self.set_address(node, None);
        slot.process = None;
        slot.stopped_since = None;
        Ok(())
    }

    /// Stops a node with SIGSTOP and waits until the kernel says that it is stopped. The moment tells
    /// this stop from others.
    ///
    /// # Errors
    /// For people: it does not run, is stopped already, or did not stop.
    pub(super) async fn pause(&self, node: &str) -> Result<(Confirmation, Instant), String> {
        let mut slot = self.slot(node)?.lock().await;
        if slot.stopped_since.is_some() {
            return Err(format!("{node} is stopped already"));
        }
        let Some(process) = slot.process.as_ref() else {
            return Err(format!("{node} does not run"));
        };
        let pid = process.pid();
        let stopped = signals::stop(pid).await;
        // Even if it is not seen stopped, it was told to stop, so it must be resumed later.
        let since = Instant::now();
        slot.stopped_since = Some(since);
        stopped
            .map(|confirmation| (confirmation, since))
            .map_err(|error| format!("cannot stop {node}: {error}"))
    }

    /// Lets a stopped node go on, whoever stopped it, or only if it was stopped at `only`; returns
    /// for how long it was stopped. A node that was killed or resumed in between needs nothing and
    /// was stopped for no known time, even if another fault has stopped it again.
    ///
    /// # Errors
    /// For people: it did not go on.
    pub(super) async fn resume(
        &self,
        node: &str,
        only: Option<Instant>,
    ) -> Result<Duration, String> {
        let mut slot = self.slot(node)?.lock().await;
        let Some(since) = slot.stopped_since else {
            return Ok(Duration::ZERO);
        };
        if only.is_some_and(|only| only != since) {
            return Ok(Duration::ZERO);
        }
        let Some(process) = slot.process.as_ref() else {
            return Ok(Duration::ZERO);
        };
        let resumed = signals::resume(process.pid()).await;
        resumed.map_err(|error| format!("cannot resume {node}: {error}"))?;
        slot.stopped_since = None;
        Ok(since.elapsed())
    }

    /// Whether a node is stopped by a signal.
    pub(super) async fn is_stopped(&self, node: &str) -> bool {
        match self.slot(node) {
            Ok(slot) => slot.lock().await.stopped_since.is_some(),
            Err(_) => false,
        }
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
        let control = self.control(node).await.ok()?;
        Some(control.status().await.ok()?.clock.skew_ms)
    }

    /// Waits, up to `limit`, until a node runs and is not stopped: another fault may hold it.
    pub(crate) async fn await_reachable(&self, node: &str, limit: Duration) {
        let limit = Instant::now() + limit;
        while self.control(node).await.is_err() && Instant::now() < limit {
            tokio::time::sleep(REACHABLE_LOOK).await;
        }
    }

    /// The control client of a node that can answer.
    async fn control(&self, node: &str) -> Result<nemesis::control::ControlClient, String> {
        let slot = self.slot(node)?.lock().await;
        if slot.stopped_since.is_some() {
            return Err(format!("{node} is stopped"));
        }
        let process = slot.process.as_ref();
        process
            .map(|process| process.control.clone())
            .ok_or_else(|| format!("{node} does not run"))
    }

    /// Looks for nodes that ended by themselves since the last look, with their epitaphs.
    pub(super) fn reap_crashed(&self) -> Vec<Event> {
        let mut crashed = Vec::new();
        for (name, slot) in &self.slots {
            // Somebody who works on the node right now will notice as well.
            let Ok(mut slot) = slot.try_lock() else {
                continue;
            };
            let Some(status) = slot.process.as_mut().and_then(NodeProcess::ended) else {
                continue;
            };
            self.set_address(name, None);
            slot.process = None;
            slot.stopped_since = None;
            crashed.push(Event::NodeCrashed {
                node: name.clone(),
                description: slot.settings.epitaph(status),
                signal: status.signal(),
            });
        }
        crashed
    }

    /// Makes sure that a node runs, is not stopped, and has a true clock.
    ///
    /// # Errors
    /// For people: what is still wrong.
    pub(super) async fn put_in_order(&self, node: &str) -> Result<(), String> {
        self.resume(node, None).await?;
        self.start(node).await?;
        let skew_ms = self.set_clock(node, 0, 1.0).await?;
        if skew_ms.abs() > 50.0 {
            return Err(format!("the clock of {node} is still {skew_ms:.0} ms off"));
        }
        Ok(())
    }

    /// Ends every node at once.
    pub(super) async fn end(&self) {
        for (name, slot) in &self.slots {
            self.set_address(name, None);
            slot.lock().await.process = None;
        }
    }
}
