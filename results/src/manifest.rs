//! Owns the manifest: everything needed to run a run again and to know what it ran on.
//! Never holds outcomes; those are in the schedule and the verdict.

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};

use crate::seal::Seal;

/// `manifest.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Manifest {
    /// See [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// Name of the run, which is also the name of its folder ([`crate::store::RunFolder::manifest`]).
    pub name: String,
    /// Seed of the workload, the schedule and the nodes' election timers.
    pub seed: u64,
    /// Which world executed the run: `processes`, or `simulation`.
    #[serde(default = "processes")]
    pub world: String,
    /// What was asked for.
    pub options: RunOptions,
    /// What it ran on.
    pub environment: Environment,
    /// Wall-clock start.
    pub started: DateTime<Utc>,
    /// Wall-clock end; absent while running, and for ever after a crash of the harness.
    #[serde(default)]
    pub ended: Option<DateTime<Utc>>,
    /// Name of the run whose schedule this run repeated.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub replay_of: Option<String>,
    /// Milestones of the run, in nanoseconds since its start.
    #[serde(default)]
    pub phases: Phases,
    /// What identifies the course of a simulated run; absent for processes.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub simulation: Option<Simulation>,
    /// What the files of the recording held when the run was over; absent until then.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub seal: Option<Seal>,
}

/// Name of the world of real processes in [`Manifest::world`].
pub const PROCESSES: &str = "processes";
/// Name of the simulated world in [`Manifest::world`].
pub const SIMULATION: &str = "simulation";

fn processes() -> String {
    PROCESSES.into()
}

impl Manifest {
    /// What stopped the run before its time, if anything did.
    pub fn stop_reason(&self) -> Option<StopReason> {
        self.phases.stop_reason(self.is_simulated())
    }

    /// Whether the run was stopped from outside before its time.
    pub fn is_interrupted(&self) -> bool {
        self.stop_reason().is_some_and(StopReason::is_interruption)
    }

    /// Whether the run got to its end, where its recording is sealed.
    pub fn is_over(&self) -> bool {
        self.ended.is_some() || self.phases.over.is_some()
    }

    /// Whether the run was simulated.
    pub fn is_simulated(&self) -> bool {
        self.world == SIMULATION
    }

    /// How long the run took in the time of its own world, in milliseconds: virtual time for the simulation.
    /// `None` when it has no recorded end.
    pub fn length_ms(&self) -> Option<u64> {
        let wall_ms = self.wall_ms()?;
        if !self.is_simulated() {
            return Some(wall_ms);
        }
        let phases = &self.phases;
        let reached = [
            phases.over,
            phases.finished,
            phases.healed,
            phases.workload_end,
        ];
        let over_ns = reached.into_iter().flatten().max();
        over_ns.map(|over_ns| over_ns / 1_000_000)
    }

    /// How long it kept the machine busy, in milliseconds.
    pub fn wall_ms(&self) -> Option<u64> {
        let length = self.ended?.signed_duration_since(self.started);
        Some(length.num_milliseconds().max(0).unsigned_abs())
    }
}

/// What identifies the course of a simulated run: two runs with the same values did the same.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Simulation {
    /// Hash over every event, 16 hexadecimal digits.
    pub digest: String,
    /// How many events there were.
    pub event_count: u64,
}

/// What a user asked for. The same options and seed give the same operations and the same faults.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct RunOptions {
    /// Name of the workload: `register`.
    pub workload: String,
    /// The fault families, in the order given, each a name with what is not usual about its pace after colons
    /// (`kill:interval=2000ms:intensity=200`); `none` is the empty list.
    pub nemesis: Vec<String>,
    /// Whether the families were not named one by one, but all of them were asked for, or drawn from.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub nemesis_is_a_pool: bool,
    /// Number of voters.
    pub nodes: u32,
    /// Number of client threads.
    pub concurrency: u32,
    /// Operations per second over all threads; 0 = as fast as it goes.
    pub rate_per_second: u64,
    /// How long the workload runs, without start-up, recovery and analysis.
    pub time_ms: u64,
    /// Mean time between the starts of two faults of one family.
    pub interval_ms: u64,
    /// How much time without any fault there is in every ten intervals, at least.
    #[serde(default, skip_serializing_if = "is_zero")]
    pub healthy_ms: u64,
    /// How long a client waits for an answer.
    pub operation_timeout_ms: u64,
    /// How long the cluster may take to serve again after the last fault is healed.
    pub recovery_timeout_ms: u64,
    /// Identifier of the seeded bug switched on in every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bug: Option<String>,
    /// Protocol timers of the nodes.
    pub timers: NodeTimers,
    /// Numbers of planned operations that are left out, as half-open ranges: a shrunk run leaves out what
    /// its failure does not need.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub left_out_operations: Vec<(u64, u64)>,
    /// What the cluster is made of besides its voters.
    #[serde(default, skip_serializing_if = "ClusterOptions::is_usual")]
    pub cluster: ClusterOptions,
    /// Whether a random majority must recover alone, with the rest dead or cut off, before everything is
    /// healed.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub liveness_phase: bool,
    /// Cells of coverage that must be hit for the run to count, by their names.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_coverage: Vec<String>,
}

/// Where the voters of a cluster are said.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Voters {
    /// In what every node is started with; they cannot change (kraft.version 0).
    #[default]
    Configured,
    /// In the log, where they can change (kraft.version 1, KIP-853).
    Log,
}

/// What carries bytes between the nodes of a run of processes.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Network {
    /// Proxies on the loopback interface, one for every ordered pair of nodes.
    #[default]
    Proxy,
    /// A packet switch between network namespaces, one for every node.
    Namespace,
}

impl Network {
    /// Whether it is what runs have unless something else is asked for.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

/// What a cluster is made of besides its voters. Voters come first in the order of ids, then observers,
/// then spares.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct ClusterOptions {
    /// Where the voters are said.
    #[serde(default)]
    pub voters: Voters,
    /// Number of nodes that replicate and serve local reads, but do not vote at first.
    #[serde(default)]
    pub observers: u32,
    /// Number of nodes that are not part of the cluster at first, but can be added.
    #[serde(default)]
    pub spares: u32,
    /// A snapshot is due after this many bytes of records. Absent: as the world has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub snapshot_bytes: Option<u64>,
    /// How large log and snapshots of a node may grow together before old ones go. Absent: as the world
    /// has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub retention_bytes: Option<u64>,
    /// Size at which a file of the log is closed. Absent: as the world has it.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub segment_bytes: Option<u64>,
    /// Whether every node reports every message between nodes.
    #[serde(default)]
    pub trace_messages: bool,
    /// What carries bytes between nodes; the simulation has a network of its own.
    #[serde(default, skip_serializing_if = "Network::is_usual")]
    pub network: Network,
    /// Whether faults of links take links between clients and nodes, too.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub client_links: bool,
    /// The kind of run that was drawn for the seed, where a swarm was asked for: everything else that was
    /// drawn stands in the other options.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub swarm: Option<String>,
    /// Whether requests of another cluster reach nodes, as if it had been wired to the same addresses; in
    /// the simulation only.
    #[serde(default, skip_serializing_if = "std::ops::Not::not")]
    pub strangers: bool,
    /// Places where nodes did what is unusual and allowed, by id; in the simulation only.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub mischief: Vec<String>,
}

impl ClusterOptions {
    /// Whether nothing was asked for.
    pub fn is_usual(&self) -> bool {
        *self == Self::default()
    }
}

impl RunOptions {
    /// Names of all nodes that may be part of the cluster at some time, in order of their ids.
    pub fn all_nodes(&self) -> Vec<String> {
        names(1..=self.member_count() + self.cluster.spares)
    }

    /// Names of the nodes that the cluster begins with, voters first.
    pub fn first_nodes(&self) -> Vec<String> {
        names(1..=self.member_count())
    }

    /// Names of the voters that the cluster begins with.
    pub fn first_voters(&self) -> Vec<String> {
        names(1..=self.nodes)
    }

    fn member_count(&self) -> u32 {
        self.nodes + self.cluster.observers
    }
}

fn names(ids: std::ops::RangeInclusive<u32>) -> Vec<String> {
    ids.map(|id| format!("n{id}")).collect()
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

/// Protocol timers of the nodes, in milliseconds (`controller.quorum.*` in Kafka).
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct NodeTimers {
    /// Election timeout T; a node draws from `T..2T`.
    pub election_timeout_ms: u64,
    /// How long a follower goes without a successful fetch.
    pub fetch_timeout_ms: u64,
    /// Upper bound of the staggering after a resignation.
    pub election_backoff_max_ms: u64,
    /// How long a leader may hold a fetch that has nothing to return.
    pub fetch_max_wait_ms: u64,
    /// How long a node waits for a peer's answer.
    pub request_timeout_ms: u64,
    /// How long a node waits after a failed request to a peer.
    pub retry_backoff_ms: u64,
}

/// What the run ran on.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Environment {
    /// Version of the harness.
    pub harness_version: String,
    /// Commit the harness was built from, where known.
    #[serde(default)]
    pub commit: Option<String>,
    /// The command line, as given.
    #[serde(default)]
    pub command: Vec<String>,
    /// Path of the node program.
    pub node_binary: String,
    /// CRC-32C of the node program, in hex: tells builds apart, proves nothing.
    #[serde(default)]
    pub node_binary_digest: Option<String>,
    /// Operating system and architecture.
    pub system: String,
    /// Number of processors the harness could use.
    pub processors: usize,
}

/// Milestones of a run in nanoseconds since its start; absent while not reached.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct Phases {
    /// All nodes are up and the workload begins.
    #[serde(default)]
    pub workload_start: Option<u64>,
    /// No new operations from here on.
    #[serde(default)]
    pub workload_end: Option<u64>,
    /// All faults are healed.
    #[serde(default)]
    pub healed: Option<u64>,
    /// The first operation invoked after healing that succeeded.
    #[serde(default)]
    pub recovered: Option<u64>,
    /// The final reads are over.
    #[serde(default)]
    pub finished: Option<u64>,
    /// The run was over, whether it got to its end or not.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub over: Option<u64>,
    /// Whether the run was stopped before its time.
    #[serde(default)]
    pub interrupted: bool,
    /// What stopped it; absent in runs that were not stopped, and in those of earlier versions.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<StopReason>,
}

/// What ends a run, or a campaign, before its time.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum StopReason {
    /// The user, by an interrupt.
    User,
    /// A violation that clients saw, where the first one was to end it.
    Violation,
    /// An event that violated an invariant, in the simulation.
    Invariant,
    /// The end of the harness, which was killed.
    Death,
}

impl StopReason {
    /// What stopped it, as the end of a sentence that begins with what was stopped.
    pub fn told(self) -> &'static str {
        match self {
            Self::User => "was stopped early by the user",
            Self::Violation => "was ended by the first violation, as --fail-fast asks for",
            Self::Invariant => "ended at the first event that violated an invariant",
            Self::Death => "was cut short when the harness was killed",
        }
    }

    /// Whether it came from outside: such a run says less than was asked for, and nothing about why.
    pub fn is_interruption(self) -> bool {
        matches!(self, Self::User | Self::Death)
    }
}

impl Phases {
    /// What stopped the run before its time, if anything did.
    pub fn stop_reason(&self, is_simulated: bool) -> Option<StopReason> {
        let of_earlier_versions = || match is_simulated {
            true => StopReason::Invariant,
            false => StopReason::User,
        };
        self.interrupted
            .then(|| self.stopped_by.unwrap_or_else(of_earlier_versions))
    }
}

/// The manifest of a small made-up run, without an end, for tests.
#[cfg(test)]
pub(crate) fn made_up(name: &str, seed: u64) -> serde_json::Value {
    serde_json::json!({
        "format_version": 1, "name": name, "seed": seed, "world": "processes",
        "options": {
            "workload": "register", "nemesis": ["kill"], "nodes": 3, "concurrency": 2,
            "rate_per_second": 100, "time_ms": 1000, "interval_ms": 1000,
            "operation_timeout_ms": 500, "recovery_timeout_ms": 1000,
            "timers": {"election_timeout_ms": 1, "fetch_timeout_ms": 1,
                "election_backoff_max_ms": 1, "fetch_max_wait_ms": 1,
                "request_timeout_ms": 1, "retry_backoff_ms": 1}
        },
        "environment": {"harness_version": "1", "node_binary": "n", "system": "s", "processors": 1},
        "started": "2026-11-30T08:00:00Z"
    })
}
