//! Owns the world of real processes: nodes, links, clients and clocks of this machine.
//! Never waits inside a call; work goes on in the background and comes back as events.

mod client;
mod cluster;
mod disks;
mod faults;
mod insistence;
mod lives;
mod membership;
mod moments;
mod network;
mod node_process;
mod spawner;
mod stops;
mod strain;
mod strobes;

use std::collections::BTreeMap;
use std::net::SocketAddr;
use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};
use std::sync::mpsc::{Receiver, RecvTimeoutError, Sender, channel};
use std::time::Duration;

use anyhow::{Context, Result, anyhow};
use nemesis::action::Action;
use nemesis::membership::Course;
use nemesis::view::ClusterView;
use nix::time::{ClockId, clock_gettime};
use node::ids::DirectoryId;
use results::manifest::{Manifest, Voters};
use results::store::RunFolder;
use results::trigger::EventTrigger;
use serde_json::{Map, json};
use tokio::runtime::Runtime;

use self::client::HttpClient;
use self::cluster::{Cluster, Slot};
use self::faults::ActiveFaults;
use self::membership::Membership;
use self::moments::Moments;
use self::network::{Network, Premises};
pub use self::network::{prepare, try_namespaces};
pub use self::node_process::NodeProgram;
use self::node_process::{Formatting, NodeSettings};
use crate::world::{Answer, Call, Event, ProcessorTime, Sight, World};
use crate::{exit, interrupts};

const NS_PER_S: u64 = 1_000_000_000;
/// How often nodes are looked at for unexpected ends.
const CRASH_LOOK: Duration = Duration::from_millis(50);
/// How long a node may take to say what it is.
const LOOK_LIMIT: Duration = Duration::from_millis(300);
/// How often clocks are sampled while the schedule skews them.
const CLOCK_SAMPLE: Duration = Duration::from_millis(500);

/// A cluster of real processes on this machine.
#[derive(Debug)]
pub struct ProcessWorld {
    names: Vec<String>,
    has_client_links: bool,
    origin_ns: u64,
    runtime: Runtime,
    shared: Arc<Shared>,
    events: Receiver<Event>,
    sender: Sender<Event>,
}

#[derive(Debug)]
struct Shared {
    seed: u64,
    cluster: Arc<Cluster>,
    faults: ActiveFaults,
    client: HttpClient,
    membership: Arc<Membership>,
    stopping: AtomicBool,
}

impl ProcessWorld {
    /// Starts the network and the nodes as the manifest says and waits until every node answers.
    ///
    /// # Errors
    /// For people: what could not be started. Nothing that was started is left behind.
    pub fn start(
        manifest: &Manifest,
        folder: &RunFolder,
        program: NodeProgram,
        skews_clocks: bool,
    ) -> Result<Self> {
        // One worker: on few cores, more threads only take turns with the nodes.
        let runtime = tokio::runtime::Builder::new_multi_thread()
            .worker_threads(1)
            .enable_all()
            .build()
            .context("cannot start the harness's network threads")?;
        let names = manifest.options.all_nodes();
        let kind = manifest.options.cluster.network;
        let premises = runtime.block_on(Premises::start(
            kind,
            &names,
            manifest.options.cluster.client_links,
            folder,
        ))?;
        let origin_ns = monotonic_ns();
        let settings = settings(
            manifest,
            folder,
            program,
            &names,
            &premises.network,
            origin_ns,
        )?;
        let (sender, events) = channel();
        let moments = Moments::new(sender.clone(), origin_ns);
        let shared = Arc::new(Shared {
            seed: manifest.seed,
            cluster: Arc::new(Cluster::new(settings, premises, moments)),
            faults: ActiveFaults::default(),
            client: HttpClient::new(&manifest.name).context("cannot set up HTTP")?,
            membership: Arc::new(Membership::new(manifest).context("cannot set up HTTP")?),
            stopping: AtomicBool::new(false),
        });
        let world = Self {
            names,
            has_client_links: manifest.options.cluster.client_links,
            origin_ns,
            runtime,
            shared,
            events,
            sender,
        };
        world.watch_for_interrupts();
        world.runtime.block_on(world.start_nodes())?;
        world.watch_for_crashes();
        if skews_clocks {
            world.sample_clocks();
        }
        Ok(world)
    }

    /// What there is to tell people at the end of a run, besides what is recorded.
    pub fn notes(&self) -> Vec<String> {
        self.shared.cluster.network.notes()
    }

    async fn start_nodes(&self) -> Result<()> {
        let mut starts = tokio::task::JoinSet::new();
        for name in self.shared.membership.members() {
            let shared = Arc::clone(&self.shared);
            starts.spawn(async move { shared.cluster.start(&name).await });
        }
        while let Some(outcome) = starts.join_next().await {
            outcome
                .context("a node's start was broken off")?
                .map_err(|error| anyhow!(error))?;
        }
        Ok(())
    }

    /// Once: the run is asked to stop. Twice: the nodes are killed and the evidence stays.
    fn watch_for_interrupts(&self) {
        let (shared, sender) = (Arc::clone(&self.shared), self.sender.clone());
        let mut interrupts = interrupts::subscribe();
        self.runtime.spawn(async move {
            if interrupts.wait_for(|count| *count > 0).await.is_ok() {
                let _ = sender.send(Event::Interrupted);
            }
            if interrupts.wait_for(|count| *count > 1).await.is_ok() {
                shared.cluster.end().await;
                std::process::exit(exit::HARNESS_FAILED.into());
            }
        });
    }

    fn watch_for_crashes(&self) {
        let (shared, sender) = (Arc::clone(&self.shared), self.sender.clone());
        self.runtime.spawn(async move {
            while !shared.stopping.load(Ordering::Relaxed) {
                for crash in shared.cluster.reap_crashed() {
                    let _ = sender.send(crash);
                }
                tokio::time::sleep(CRASH_LOOK).await;
            }
        });
    }

    fn sample_clocks(&self) {
        let (shared, sender) = (Arc::clone(&self.shared), self.sender.clone());
        self.runtime.spawn(async move {
            while !shared.stopping.load(Ordering::Relaxed) {
                let mut offsets_ms = Map::new();
                for node in shared.cluster.names() {
                    if let Some(skew_ms) = shared.cluster.clock_skew_ms(node).await {
                        offsets_ms.insert(node.clone(), json!(skew_ms));
                    }
                }
                if !offsets_ms.is_empty() {
                    let _ = sender.send(Event::ClockOffsets { offsets_ms });
                }
                tokio::time::sleep(CLOCK_SAMPLE).await;
            }
        });
    }
}

impl World for ProcessWorld {
    fn now_ns(&self) -> u64 {
        monotonic_ns().saturating_sub(self.origin_ns)
    }

    fn nodes(&self) -> &[String] {
        &self.names
    }

    fn view(&self, leader: Option<&str>) -> ClusterView {
        let cluster = &self.shared.cluster;
        // Who has just ended by itself is not hit, and in a replay waited for.
        cluster.notice_ends();
        let down = cluster
            .names()
            .filter(|node| cluster.address(node).is_none());
        ClusterView {
            down: down.cloned().collect(),
            stopped: cluster.those_that(|slot| slot.stopped_since.is_some()),
            failing_disks: cluster.those_that(Slot::has_failing_disk),
            has_client_links: self.has_client_links,
            ..self.shared.membership.view(leader)
        }
    }

    fn call(&mut self, call: Call) {
        let (shared, sender) = (Arc::clone(&self.shared), self.sender.clone());
        let patience = Duration::from_nanos(call.deadline_ns.saturating_sub(self.now_ns()));
        self.runtime.spawn(async move {
            let network = &shared.cluster.network;
            let answer = match shared.cluster.address(&call.node) {
                Some(address) => {
                    let address = network.address_for_clients(&call.node, address);
                    shared.client.execute(address, &call, patience).await
                }
                None => Answer::Refused {
                    code: "NODE_DOWN".into(),
                    message: format!("{} does not run", call.node),
                    leader: None,
                },
            };
            let _ = sender.send(Event::Answer {
                call: call.id,
                answer,
            });
        });
    }

    fn start_fault(&mut self, id: u64, action: Action) {
        faults::announce(&self.shared.membership, id, &action);
        let (shared, sender) = (Arc::clone(&self.shared), self.sender.clone());
        self.runtime.spawn(async move {
            let report = shared.faults.start(&shared, id, action).await;
            let _ = sender.send(Event::FaultStarted { id, report });
        });
    }

    fn heal_fault(&mut self, id: u64) {
        let (shared, sender) = (Arc::clone(&self.shared), self.sender.clone());
        self.runtime.spawn(async move {
            let (cluster, membership) = (&shared.cluster, &shared.membership);
            let report = shared.faults.heal(cluster, membership, id).await;
            let _ = sender.send(Event::FaultHealed { id, report });
        });
    }

    fn look(&mut self, id: u64) {
        let (shared, sender) = (Arc::clone(&self.shared), self.sender.clone());
        self.runtime.spawn(async move {
            let sight = look_at(&shared).await;
            let _ = sender.send(Event::Seen { id, sight });
        });
    }

    fn watch(&mut self, id: u64, trigger: EventTrigger) {
        self.shared.cluster.moments.watch(id, trigger);
    }

    fn watch_nothing(&mut self) {
        self.shared.cluster.moments.watch_nothing();
    }

    fn go_on(&mut self, hold: u64) {
        if let Some((control, barrier)) = self.shared.cluster.moments.take_hold(hold) {
            // Fails only when the node is gone.
            self.runtime
                .spawn(async move { control.go_on(barrier).await });
        }
    }

    fn restore(&mut self) {
        let (shared, sender) = (Arc::clone(&self.shared), self.sender.clone());
        self.runtime.spawn(async move {
            shared.faults.end_strobes().await;
            let mut problems = Vec::new();
            let mut damaged = Map::new();
            for node in shared.cluster.names() {
                // Who is no member yet may be started below.
                problems.extend(shared.cluster.mend_everything(node).await.err());
            }
            for node in shared.membership.members() {
                match shared.cluster.put_in_order(&node).await {
                    Ok(None) => {}
                    Ok(Some(reason)) => drop(damaged.insert(node, json!(reason))),
                    Err(problem) => problems.push(problem),
                }
            }
            if shared.membership.can_change() {
                let course = Course::of_restore();
                shared.membership.go(&shared.cluster, course).await;
            }
            let _ = sender.send(Event::Restored { problems, damaged });
        });
    }

    fn processor_times(&self) -> BTreeMap<String, ProcessorTime> {
        self.shared.cluster.processor_times()
    }

    fn next_event(&mut self, deadline_ns: u64) -> Event {
        let patience = Duration::from_nanos(deadline_ns.saturating_sub(self.now_ns()));
        match self.events.recv_timeout(patience) {
            Ok(event) => event,
            Err(RecvTimeoutError::Timeout | RecvTimeoutError::Disconnected) => Event::Deadline,
        }
    }
}

impl Drop for ProcessWorld {
    fn drop(&mut self) {
        self.shared.stopping.store(true, Ordering::Relaxed);
        self.runtime.block_on(self.shared.cluster.end());
    }
}

/// Asks all nodes at once. Who does not answer soon is not seen.
async fn look_at(shared: &Arc<Shared>) -> Sight {
    let mut looks = tokio::task::JoinSet::new();
    for node in shared.cluster.names().cloned() {
        let shared = Arc::clone(shared);
        looks.spawn(async move {
            let status = shared.cluster.status(&node);
            let status = tokio::time::timeout(LOOK_LIMIT, status).await.ok()??;
            Some((node, status))
        });
    }
    let mut sight = Sight::default();
    while let Some(seen) = looks.join_next().await {
        let Ok(Some((node, status))) = seen else {
            continue;
        };
        if let Ok(role) = serde_json::from_value(json!(status.role)) {
            sight.roles.insert(node.clone(), role);
        }
        if let Ok(log_end) = i64::try_from(status.log_end) {
            sight.log_ends.insert(node, log_end);
        }
    }
    sight
}

fn settings(
    manifest: &Manifest,
    folder: &RunFolder,
    program: NodeProgram,
    names: &[String],
    network: &Network,
    origin_ns: u64,
) -> Result<Vec<NodeSettings>> {
    let mut all = Vec::new();
    for (id, name) in (1u32..).zip(names) {
        let mut peers: Vec<(u32, SocketAddr)> = Vec::new();
        for (peer_id, peer) in (1u32..).zip(names).filter(|(_, peer)| *peer != name) {
            peers.push((peer_id, network.address(name, peer, peer_id)?));
        }
        // The node reads paths relative to where it was started, which is where the harness is.
        let node_folder = std::path::absolute(folder.node_path(name))
            .with_context(|| format!("cannot find the folder of {name}"))?;
        all.push(NodeSettings {
            program: program.clone(),
            name: name.clone(),
            id,
            cluster_id: manifest.name.clone(),
            folder: node_folder,
            peers,
            listen: network.listen_address(id),
            formatting: formatting(manifest, id),
            cluster: manifest.options.cluster.clone(),
            timers: manifest.options.timers.clone(),
            seed: results::keyed_random::Stream::new(manifest.seed, "node").draw(u64::from(id), 0),
            bug: manifest.options.bug.clone(),
            origin_ns,
        });
    }
    Ok(all)
}

/// How the data folder of a node is prepared where the voters are in the log.
fn formatting(manifest: &Manifest, id: u32) -> Option<Formatting> {
    let options = &manifest.options;
    if options.cluster.voters != Voters::Log {
        return None;
    }
    let stream = results::keyed_random::Stream::new(manifest.seed, "directory");
    let directory_id = |id: u32| {
        let half = |counter| u128::from(stream.draw(u64::from(id), counter));
        DirectoryId(half(0) << 64 | half(1)).to_string()
    };
    let first_voters = (1..=options.nodes).map(|voter| {
        let address = node_process::announced_address(voter, 1);
        format!("{voter}@{address}:{}", directory_id(voter))
    });
    Some(Formatting {
        directory_id: directory_id(id),
        first_voters: (id <= options.nodes).then(|| first_voters.collect::<Vec<_>>().join(",")),
    })
}

/// The clock of histories and traces: monotonic, the same for all processes of the machine.
fn monotonic_ns() -> u64 {
    clock_gettime(ClockId::CLOCK_MONOTONIC)
        .map(|time| time.tv_sec() as u64 * NS_PER_S + time.tv_nsec() as u64)
        .unwrap_or(0)
}
