//! Owns one simulated node: its life, its inbox, and what it has done that has not left it yet.
//! Never decides when it works; the world does.

use std::collections::{BTreeSet, VecDeque};

use nemesis::membership::Token;
use node::ids::{DirectoryId, NodeId, ReplicaKey};
use node::mischief::MischiefPoint;
use node::moment::{Edge, Moment, MomentSet};
use node::mutants::Bug;
use node::node_loop::{
    Arrival, Departure, NodeLoop, NodeOptions, Outbox, SnapshotOptions, StartError,
};
use node::raft::{Configuration, Correlation, RecordedVoters, Ticket, Timers};
use node::storage::{self, Identity, StorageOptions};
use node::trace::{TraceEvent, Traced};
use node::voters::{VersionRange, Voter};
use results::keyed_random::Stream;
use results::manifest::{NodeTimers, RunOptions, Voters};
use results::ordered_list::OrderedList;
use results::shared_text::SharedText;

use super::clock::SimulatedClock;
use super::disk::{Place, SimulatedDisk};
use super::draws::Draws;
use super::panics::caught;
use crate::mischief;

/// Never.
pub(super) const NEVER_NS: u64 = u64::MAX;

/// What a node's processor takes for one round of work and for each message in it. Bounds how often a
/// node can act at one moment, and lets messages pile up as they do in reality.
const ROUND_NS: u64 = 15_000;
const MESSAGE_NS: u64 = 6_000;
/// Longest sleep: a node looks around even if no timer is due, so that it notices that all is quiet.
const SLEEP_MAX_NS: u64 = 300_000_000;
/// Shortest sleep, as a node's own driver has it.
const SLEEP_MIN_NS: u64 = 200_000;
/// Wall-clock time at the start of every simulated run, in milliseconds since 1970.
const EPOCH_MS: i64 = 1_767_225_600_000;

/// Name of the cluster of every simulated run.
pub(super) const CLUSTER_ID: &str = "simulation";

/// Where an answer goes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Asker {
    Peer {
        node: usize,
        incarnation: u32,
        correlation: Correlation,
    },
    Client {
        call: u64,
    },
    /// Whoever changes the voters.
    Nemesis {
        course: u64,
        token: Token,
    },
    /// Another cluster, which nobody here hears of again.
    Stranger,
}

/// Whether a node runs.
#[derive(Debug)]
pub(super) enum Life {
    Down,
    /// It was told to start and has not recovered yet.
    Starting,
    Running(Box<NodeLoop<SimulatedDisk>>),
    /// It has ended in good order; what it did last has not left it yet.
    Ended,
}

/// Something that a node has done, due to leave it at some moment.
#[derive(Debug)]
pub(super) enum Output {
    Depart(Departure),
    Trace(Traced),
    /// Somebody waits for this moment, at which its disk was at this place.
    Moment(Edge, Moment, Place),
    /// The node ends by itself. Said last.
    Crash(String),
    /// The node ends in good order, as it was asked to. Said last.
    Stopped,
}

/// One node.
#[derive(Debug)]
pub(super) struct SimulatedNode {
    pub(super) name: SharedText,
    pub(super) life: Life,
    pub(super) disk: SimulatedDisk,
    pub(super) clock: SimulatedClock,
    pub(super) incarnation: u32,
    /// Number of its next trace event.
    pub(super) next_seq: u64,
    /// Since when it is stopped by a pause.
    pub(super) paused_since_ns: Option<u64>,
    /// When it ends at the latest, once it was asked to.
    pub(super) stop_by_ns: Option<u64>,
    /// What holds it at a moment, and where its disk is then.
    pub(super) held: Option<(u64, Place)>,
    /// The moments that are waited for.
    pub(super) awaited: MomentSet,
    /// Its state, as it last said.
    pub(super) role: Option<results::trace::Role>,
    pub(super) inbox: Vec<Arrival>,
    pub(super) outputs: VecDeque<(u64, Output)>,
    pub(super) askers: OrderedList<Ticket, Asker>,
    /// Requests to peers without an answer, with the peer and when waiting ends.
    pub(super) waiting: OrderedList<Correlation, (usize, u64)>,
    pub(super) wake_at_ns: u64,
    pub(super) release_at_ns: u64,
    pub(super) expire_at_ns: u64,
    pub(super) start_at_ns: u64,
    settings: Settings,
    busy_until_ns: u64,
    last_round_ns: u64,
}

/// What a node is started with, besides its number of starts.
#[derive(Debug)]
struct Settings {
    id: NodeId,
    /// The voters, where they are configured.
    voters: BTreeSet<NodeId>,
    /// Whom to ask who leads, where the voters are in the log.
    bootstrap: BTreeSet<NodeId>,
    timers: Timers,
    bug: Option<Bug>,
    random_seed: u64,
    options: NodeOptions,
    traces_messages: bool,
    seed: u64,
    /// What it is up to, as long as nobody has ended that.
    mischief: Vec<MischiefPoint>,
}

/// Collects what leaves a node, dated by its disk: what waited for a sync leaves after it.
struct DatedOutbox<'a> {
    disk: SimulatedDisk,
    outputs: &'a mut VecDeque<(u64, Output)>,
    wants_messages: bool,
    awaited: MomentSet,
}

impl Outbox for DatedOutbox<'_> {
    fn depart(&mut self, departure: Departure) {
        let time_ns = self.disk.time_ns();
        self.outputs.push_back((time_ns, Output::Depart(departure)));
    }

    fn trace(&mut self, traced: Traced) {
        let time_ns = self.disk.time_ns();
        self.outputs.push_back((time_ns, Output::Trace(traced)));
    }

    fn wants_messages(&self) -> bool {
        self.wants_messages
    }

    fn wants_moments(&self) -> bool {
        !self.awaited.is_empty()
    }

    fn moment(&mut self, edge: Edge, moment: Moment) {
        if self.awaited.contains(edge, moment) {
            let (time_ns, place) = (self.disk.time_ns(), self.disk.place());
            let output = Output::Moment(edge, moment, place);
            self.outputs.push_back((time_ns, output));
        }
    }
}

impl SimulatedNode {
    /// Node number `position` (from 0) of a run that is not started yet.
    pub(super) fn new(seed: u64, position: usize, options: &RunOptions, bug: Option<Bug>) -> Self {
        let id = position as i32 + 1;
        let disk_draws = Draws::new(seed, "simulation/disk", position as u64);
        let slowness = [50, 100, 100, 300][profile(seed).below(0, 4) as usize];
        let disk = SimulatedDisk::new(disk_draws, slowness);
        let mut voters: BTreeSet<NodeId> = (1..=options.nodes as i32).map(NodeId).collect();
        let mut bootstrap = BTreeSet::new();
        if options.cluster.voters == Voters::Log {
            format_disk(seed, id, options.nodes as usize, disk.clone());
            voters.clear();
            bootstrap = (1..=options.all_nodes().len() as i32)
                .filter(|other| *other != id)
                .map(NodeId)
                .collect();
        }
        Self {
            name: format!("n{id}").into(),
            life: Life::Down,
            disk,
            clock: SimulatedClock::new(),
            incarnation: 0,
            next_seq: 0,
            paused_since_ns: None,
            stop_by_ns: None,
            held: None,
            awaited: MomentSet::default(),
            role: None,
            inbox: Vec::new(),
            outputs: VecDeque::new(),
            askers: OrderedList::default(),
            waiting: OrderedList::default(),
            wake_at_ns: NEVER_NS,
            release_at_ns: NEVER_NS,
            expire_at_ns: NEVER_NS,
            start_at_ns: NEVER_NS,
            settings: Settings {
                id: NodeId(id),
                voters,
                bootstrap,
                timers: timers(&options.timers),
                bug,
                random_seed: Stream::new(seed, "node").draw(id as u64, 0),
                options: node_options(seed, position, options),
                // Every message twice in the trace is dear, so only some seeds judge messages as well.
                traces_messages: options.cluster.trace_messages || profile(seed).below(5, 4) == 0,
                seed,
                // What cannot be read was refused before.
                mischief: mischief::parse(&options.cluster.mischief).unwrap_or_default(),
            },
            busy_until_ns: 0,
            last_round_ns: 0,
        }
    }

    /// Who it is, as the voters in a log name it.
    pub(super) fn key(&self) -> ReplicaKey {
        ReplicaKey {
            id: self.settings.id,
            directory_id: self.settings.options.new_directory_id,
        }
    }

    /// Gives it a new disk, formatted as that of a node that is no voter yet, while it is down. Returns the
    /// directory ids that it had and has.
    pub(super) fn wipe(
        &mut self,
        seed: u64,
        fault: u64,
        now_ns: u64,
    ) -> (DirectoryId, DirectoryId) {
        let id = self.settings.id;
        let old = self.settings.options.new_directory_id;
        let draws = Draws::new(seed, "simulation/new-directory", fault);
        let counter = 2 * id.0 as u64;
        let half = |counter| u128::from(draws.at(counter));
        let new = DirectoryId(half(counter) << 64 | half(counter + 1));
        self.disk.erase(now_ns);
        let mut disk = self.disk.clone();
        storage::format(&mut disk, &identity(id), new, None)
            .expect("an empty disk without faults can be formatted");
        self.settings.options.new_directory_id = Some(new);
        (old.unwrap_or(DirectoryId(0)), new)
    }

    pub(super) fn is_running(&self) -> bool {
        matches!(self.life, Life::Running(_))
    }

    /// Whether faults and clocks can reach it.
    pub(super) fn is_reachable(&self) -> bool {
        self.is_running() && self.paused_since_ns.is_none()
    }

    /// Whether it can work now.
    pub(super) fn is_free(&self, now_ns: u64) -> bool {
        self.is_reachable()
            && self.held.is_none()
            && self.outputs.is_empty()
            && self.busy_until_ns <= now_ns
    }

    /// How long it waits for an answer to this kind of request.
    pub(super) fn patience_ns(&self, max_wait_ms: u64) -> u64 {
        self.settings.timers.request_timeout_ns + max_wait_ms * 1_000_000
    }

    /// When it must work next; [`NEVER_NS`] while it cannot.
    pub(super) fn due_ns(&self, now_ns: u64) -> u64 {
        let Life::Running(node) = &self.life else {
            return NEVER_NS;
        };
        if self.paused_since_ns.is_some() || self.held.is_some() || !self.outputs.is_empty() {
            return NEVER_NS;
        }
        if !self.inbox.is_empty() {
            return self.busy_until_ns.max(now_ns);
        }
        let timer_ns = self.clock.true_time_of(node.next_deadline_ns(), now_ns);
        timer_ns
            .min(self.stop_by_ns.unwrap_or(NEVER_NS))
            .min(self.last_round_ns + SLEEP_MAX_NS)
            .max(self.last_round_ns + SLEEP_MIN_NS)
            .max(self.busy_until_ns)
    }

    /// Handles everything in the inbox, and whatever time has made due. What comes of it is in `outputs`.
    pub(super) fn work(&mut self, now_ns: u64) {
        let Life::Running(node) = &mut self.life else {
            return;
        };
        self.busy_until_ns = now_ns + ROUND_NS + MESSAGE_NS * self.inbox.len() as u64;
        self.last_round_ns = now_ns;
        self.disk.begin(now_ns);
        let mut outbox = DatedOutbox {
            disk: self.disk.clone(),
            outputs: &mut self.outputs,
            wants_messages: self.settings.traces_messages,
            awaited: self.awaited,
        };
        let shown_ns = self.clock.shows_ns(now_ns);
        let wall_clock_ms = EPOCH_MS + (now_ns / 1_000_000) as i64;
        let arrivals = self.inbox.drain(..);
        let outcome = caught(|| node.process(shown_ns, wall_clock_ms, arrivals, &mut outbox));
        let end_ns = self.disk.time_ns();
        self.busy_until_ns = self.busy_until_ns.max(end_ns);
        let crash = match outcome {
            Ok(Ok(())) => return self.end_if_due(now_ns),
            Ok(Err(error)) => format!("{} stopped: {error}", self.name),
            Err(panic) => panic,
        };
        self.outputs.push_back((end_ns, Output::Crash(crash)));
    }

    /// Asks the node to end in good order; that takes it `limit_ns` at most.
    pub(super) fn ask_to_stop(&mut self, now_ns: u64, limit_ns: u64) {
        self.stop_by_ns.get_or_insert(now_ns + limit_ns);
    }

    /// What a node's own driver does after each round.
    fn end_if_due(&mut self, now_ns: u64) {
        let (Life::Running(node), Some(stop_by_ns)) = (&self.life, self.stop_by_ns) else {
            return;
        };
        if !node.is_ready_to_stop() && now_ns < stop_by_ns {
            return;
        }
        let Life::Running(node) = std::mem::replace(&mut self.life, Life::Ended) else {
            return;
        };
        let outcome = caught(|| node.close());
        let end_ns = self.disk.time_ns();
        self.busy_until_ns = self.busy_until_ns.max(end_ns);
        let output = match outcome {
            Ok(Ok(())) => Output::Stopped,
            Ok(Err(error)) => Output::Crash(format!("{} stopped: {error}", self.name)),
            Err(panic) => Output::Crash(panic),
        };
        self.outputs.push_back((end_ns, output));
    }

    /// Recovers from the disk. What comes of it is in `outputs`, also when nothing does.
    ///
    /// # Errors
    /// For people: why it cannot start.
    pub(super) fn start(&mut self, now_ns: u64) -> Result<(), String> {
        self.incarnation += 1;
        self.next_seq = 0;
        self.clock = SimulatedClock::new();
        self.disk.begin(now_ns);
        let mut outbox = DatedOutbox {
            disk: self.disk.clone(),
            outputs: &mut self.outputs,
            wants_messages: self.settings.traces_messages,
            awaited: self.awaited,
        };
        // A node that is started again must not repeat the election timeouts of its previous life.
        let random_seed = self
            .settings
            .random_seed
            .wrapping_add(u64::from(self.incarnation));
        let configuration = Configuration {
            bug: self.settings.bug,
            bootstrap: self.settings.bootstrap.clone(),
            endpoint: (!self.settings.bootstrap.is_empty())
                .then(|| endpoint_of(self.settings.id, self.incarnation)),
            ..Configuration::of_static_voters(
                self.settings.id,
                CLUSTER_ID,
                self.settings.voters.iter().copied().collect(),
                self.settings.timers,
                random_seed,
            )
        };
        let shown_ns = self.clock.shows_ns(now_ns);
        let disk = self.disk.clone();
        let options = NodeOptions {
            mischief: mischief::options(
                self.settings.seed,
                &self.settings.mischief,
                self.settings.id.0 as u64,
                self.incarnation,
            ),
            ..self.settings.options
        };
        let outcome =
            caught(|| NodeLoop::start(configuration, disk, options, shown_ns, &mut outbox));
        self.busy_until_ns = self.disk.time_ns();
        self.last_round_ns = now_ns;
        match outcome {
            Ok(Ok(node)) => {
                self.life = Life::Running(Box::new(node));
                Ok(())
            }
            Ok(Err(error)) => {
                if let StartError::Open(found) = &error {
                    let event = TraceEvent::RefusedToStart {
                        reason: found.to_string(),
                    };
                    let epoch = node::ids::Epoch(0);
                    let output = Output::Trace(Traced { epoch, event });
                    self.outputs.push_back((self.disk.time_ns(), output));
                }
                self.life = Life::Down;
                Err(format!("{} cannot start: {error}", self.name))
            }
            Err(panic) => {
                self.life = Life::Down;
                Err(format!("{} ended at once: {panic}", self.name))
            }
        }
    }

    /// It works as nodes usually do from now on, also when it is started again.
    pub(super) fn end_mischief(&mut self) {
        self.settings.mischief.clear();
        if let Life::Running(node) = &mut self.life {
            node.end_mischief();
        }
    }

    /// Forgets everything but the disk. Returns who waited for an answer.
    pub(super) fn die(&mut self) -> Vec<Asker> {
        self.life = Life::Down;
        self.paused_since_ns = None;
        self.stop_by_ns = None;
        self.held = None;
        self.inbox.clear();
        self.outputs.clear();
        self.waiting.clear();
        self.wake_at_ns = NEVER_NS;
        self.release_at_ns = NEVER_NS;
        self.expire_at_ns = NEVER_NS;
        std::mem::take(&mut self.askers).into_values().collect()
    }
}

fn directory_id(seed: u64, id: i32) -> DirectoryId {
    let directory = Draws::new(seed, "simulation/directory", id as u64 - 1);
    DirectoryId(u128::from(directory.at(0)) << 64 | u128::from(directory.at(1)))
}

/// Where a node says that it listens. Every start takes another port, as on a real machine, so that voters
/// have to tell their leader.
pub(super) fn endpoint_of(id: NodeId, incarnation: u32) -> String {
    format!("http://{id}:{}", 9_000 + incarnation)
}

fn identity(id: NodeId) -> Identity {
    Identity {
        cluster_id: CLUSTER_ID.to_owned(),
        node_id: id,
    }
}

/// Formats the disk of a node of a cluster whose voters are in the log: the first `voter_count` nodes.
fn format_disk(seed: u64, id: i32, voter_count: usize, mut disk: SimulatedDisk) {
    let voter = |id: i32| Voter {
        key: ReplicaKey {
            id: NodeId(id),
            directory_id: Some(directory_id(seed, id)),
        },
        endpoint: Some(endpoint_of(NodeId(id), 1)),
        versions: VersionRange::SUPPORTED,
    };
    let is_voter = id as usize <= voter_count;
    let bootstrap = is_voter.then(|| RecordedVoters {
        kraft_version: 1,
        voters: (1..=voter_count as i32).map(voter).collect(),
    });
    storage::format(
        &mut disk,
        &identity(NodeId(id)),
        directory_id(seed, id),
        bootstrap,
    )
    .expect("an empty disk without faults can be formatted");
}

/// Sizes differ from seed to seed, so that a campaign sees segments roll, caches miss and logs shrink.
fn profile(seed: u64) -> Draws {
    Draws::new(seed, "simulation/disk-profile", 0)
}

fn node_options(seed: u64, position: usize, options: &RunOptions) -> NodeOptions {
    let profile = profile(seed);
    let choose = |counter, choices: [u64; 3]| choices[profile.below(counter, 3) as usize];
    let cluster = &options.cluster;
    NodeOptions {
        storage: StorageOptions {
            segment_bytes: cluster
                .segment_bytes
                .unwrap_or_else(|| choose(1, [16 << 10, 256 << 10, 64 << 20])),
            // Enough for all that is read in most runs; more would be most of the memory of a world.
            cache_bytes: choose(2, [4 << 10, 256 << 10, 2 << 20]),
            ..StorageOptions::default()
        },
        snapshots: SnapshotOptions {
            bytes_between: cluster
                .snapshot_bytes
                .unwrap_or_else(|| choose(3, [32 << 10, 256 << 10, 20 << 20])),
            retention_bytes: cluster
                .retention_bytes
                .unwrap_or_else(|| choose(4, [64 << 10, 512 << 10, 100 << 20])),
            ..SnapshotOptions::default()
        },
        new_directory_id: Some(directory_id(seed, position as i32 + 1)),
        ..NodeOptions::default()
    }
}

fn timers(timers: &NodeTimers) -> Timers {
    let ns = |ms: u64| ms * 1_000_000;
    Timers {
        election_timeout_ns: ns(timers.election_timeout_ms),
        fetch_timeout_ns: ns(timers.fetch_timeout_ms),
        election_backoff_max_ns: ns(timers.election_backoff_max_ms),
        fetch_max_wait_ns: ns(timers.fetch_max_wait_ms),
        request_timeout_ns: ns(timers.request_timeout_ms),
        retry_backoff_ns: ns(timers.retry_backoff_ms),
    }
}
