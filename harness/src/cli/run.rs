//! Owns the flags of `run` and `sim`: what is run, under which faults, how often.
//! Never plans anything.

use std::path::PathBuf;

use clap::{Args, Parser};
use nemesis::plan::{INTENSITY_MAX_PERCENT, INTENSITY_USUAL_PERCENT};

use super::ExecutionArgs;
use crate::duration::{parse_ms, parse_positive_ms};
use crate::workload;

/// Most nodes of a cluster.
pub const NODES_MAX: u32 = 9;
/// Most observers of a cluster.
pub const OBSERVERS_MAX: u32 = 5;
/// Most client threads.
pub const CONCURRENCY_MAX: u32 = 1000;

/// Flags of `run`.
#[derive(Debug, Clone, Args)]
pub struct RunArgs {
    /// What goes wrong: partition-random, kill, pause, clock-skew, membership, snapshot, several with commas, all, or none;
    /// the README has all names. Each may have its own pace, targets and parameters: kill:leader:interval=2s,
    /// pause:intensity=200:targets=n1+n2,disk-corrupt:what=truncate
    /// [default: partition-random; with --swarm: all]
    #[arg(long, value_name = "FAULTS")]
    pub nemesis: Option<String>,
    /// What clients do: register, append, set, counter, unique-ids or list-append; the README says what each is
    /// [default: register; with --swarm: drawn for every seed]
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    /// How long the workload runs: seconds, or 5m
    #[arg(long, default_value = "60", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub time: u64,
    /// Number of voters
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    pub nodes: u32,
    /// Number of nodes that replicate and serve local reads, but do not vote
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=i64::from(OBSERVERS_MAX)))]
    pub observers: u32,
    /// Where the voters are said: in what every node is started with, or in the log, where faults can change
    /// them; in the log by default if there are observers, or faults that change voters
    #[arg(long, value_name = "WHERE")]
    pub voters: Option<VotersFlag>,
    /// Take a snapshot after this many bytes of records
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub snapshot_every: Option<u64>,
    /// Delete old log and snapshots once a node has more than this; as much as --snapshot-every by default
    #[arg(long, value_name = "BYTES", value_parser = clap::value_parser!(u64).range(1..))]
    pub retention: Option<u64>,
    /// Record every message between nodes in their traces, so that more invariants can be checked
    #[arg(long)]
    pub trace_messages: bool,
    /// What carries bytes between nodes: proxies on one loopback interface, or a packet switch between network
    /// namespaces, one for every node, which loses, doubles, reorders and corrupts packets, too
    #[arg(long, default_value = "proxy", value_name = "KIND")]
    pub network: NetworkFlag,
    /// Let faults of links take links between clients and nodes, too: clients stand beside a drawn node, and
    /// lose what it loses
    #[arg(long)]
    pub client_links: bool,
    /// Number of client threads
    #[arg(long, default_value_t = 10, value_parser = clap::value_parser!(u32).range(1..=i64::from(CONCURRENCY_MAX)))]
    pub concurrency: u32,
    /// Operations per second over all clients; 0 = as fast as it goes
    #[arg(long, default_value_t = 200)]
    pub rate: u64,
    /// Mean time between two faults of one kind
    #[arg(long, default_value = "4", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub interval: u64,
    /// How often faults come, in percent of what the intervals say: 50 is half as many of the same length,
    /// 200 twice as many half as long
    #[arg(long, default_value_t = INTENSITY_USUAL_PERCENT, value_name = "PERCENT", value_parser = clap::value_parser!(u64).range(1..=INTENSITY_MAX_PERCENT))]
    pub intensity: u64,
    /// In every ten intervals, leave at least so much time without any fault
    #[arg(long, default_value = "0", value_name = "DURATION", value_parser = parse_ms)]
    pub healthy: u64,
    /// Seed of operations, faults and election timers; a fresh one by default
    #[arg(long)]
    pub seed: Option<u64>,
    /// Run the faults of this file instead of generated ones (the README shows one, and so does the
    /// schedule.json of any run); times count from the start of the run, and clients begin 2 s after
    #[arg(
        long,
        visible_alias = "nemesis-file",
        value_name = "FILE",
        conflicts_with = "nemesis"
    )]
    pub schedule: Option<PathBuf>,
    /// Switch on a seeded bug in every node (see `harness bugs`)
    #[arg(long, value_name = "NAME")]
    pub bug: Option<String>,
    /// Beginning of the run's name, instead of workload and faults
    #[arg(long)]
    pub name: Option<String>,
    /// Average time a client waits for an answer; each operation draws 0.5 to 1.5 of it
    #[arg(long, default_value = "500ms", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub operation_timeout: u64,
    /// End at the first violation: a run soon after a client saw it, many seeds with the one that fails
    #[arg(long)]
    pub fail_fast: bool,
    /// How long the cluster may take to serve again once all faults are healed
    #[arg(long, default_value = "20", value_name = "DURATION", value_parser = parse_ms)]
    pub recovery_timeout: u64,
    /// Whether a random majority must recover alone, with the other nodes dead or cut off, before everything
    /// is healed; on by default, off with --schedule and with --nemesis none
    #[arg(long, value_name = "SWITCH")]
    pub liveness_phase: Option<Switch>,
    /// What must have been hit, names with commas, such as leader-killed-between-append-and-flush: without it
    /// the verdict is unknown. Of many seeds, one has to. `harness doctor --coverage` lists the names
    #[arg(long, value_name = "CELLS", value_delimiter = ',')]
    pub require: Vec<String>,
    /// What every execution of a run needs
    #[command(flatten)]
    pub execution: ExecutionArgs,
}

#[derive(Debug, Parser)]
struct UsualRun {
    #[command(flatten)]
    run: RunArgs,
}

impl RunArgs {
    /// What `run` does without any flag.
    pub fn usual() -> Self {
        let usual = UsualRun::try_parse_from(["run"]);
        usual.expect("every flag of a run has a default").run
    }

    /// What `run` does with these flags, separated by spaces.
    ///
    /// # Errors
    /// For people: what is wrong with the flags.
    pub fn with_flags(flags: &str) -> Result<Self, String> {
        let words = std::iter::once("run").chain(flags.split_whitespace());
        let parsed = UsualRun::try_parse_from(words);
        parsed
            .map(|usual| usual.run)
            .map_err(|error| error.to_string())
    }

    /// What clients do, unless it is drawn.
    pub fn workload(&self) -> &str {
        self.workload.as_deref().unwrap_or(workload::WORKLOADS[0])
    }

    /// What goes wrong, where no schedule says it.
    pub fn nemesis(&self) -> &str {
        self.nemesis.as_deref().unwrap_or("partition-random")
    }
}

/// Where the voters are said.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum VotersFlag {
    /// In what every node is started with.
    Configured,
    /// In the log.
    Log,
}

/// What carries bytes between nodes.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum NetworkFlag {
    /// A proxy for every ordered pair.
    Proxy,
    /// A switch between network namespaces.
    Namespace,
}

impl From<NetworkFlag> for results::manifest::Network {
    fn from(flag: NetworkFlag) -> Self {
        match flag {
            NetworkFlag::Proxy => Self::Proxy,
            NetworkFlag::Namespace => Self::Namespace,
        }
    }
}

/// On or off.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Switch {
    /// Yes.
    On,
    /// No.
    Off,
}

/// Flags of `sim`.
#[derive(Debug, Clone, Args)]
pub struct SimArgs {
    /// Which seeds to run, both ends included: 1..1000, or a single one (--seed N says the same)
    #[arg(long, default_value = "1..100", value_name = "FIRST..LAST", value_parser = parse_seeds, conflicts_with = "seed")]
    pub seeds: std::ops::RangeInclusive<u64>,
    /// How many seeds to run at once; one per processor by default
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Draw for every seed which of the faults are on and how often they come, the cluster and its timers,
    /// snapshots and clients; --nemesis says which faults to draw from
    #[arg(long, conflicts_with_all = ["nodes", "observers", "voters", "concurrency", "rate", "operation_timeout",
        "snapshot_every", "retention", "trace_messages", "schedule"])]
    pub swarm: bool,
    /// Whether nodes do, now and then, what is unusual and allowed: each seed draws at which places. On in a swarm
    #[arg(long, value_name = "SWITCH")]
    pub mischief: Option<Switch>,
    /// What every seed runs
    #[command(flatten)]
    pub run: RunArgs,
}

/// Reads `FIRST..LAST`, both ends included, or a single seed.
fn parse_seeds(text: &str) -> Result<std::ops::RangeInclusive<u64>, String> {
    let number = |text: &str| {
        text.trim()
            .parse::<u64>()
            .map_err(|_| format!("{text:?} is not a seed; write 1..1000, or a single number"))
    };
    let (first, last) = match text.split_once("..") {
        Some((first, last)) => (number(first)?, number(last.trim_start_matches('='))?),
        None => (number(text)?, number(text)?),
    };
    if first > last {
        return Err(format!(
            "the first seed, {first}, is above the last, {last}"
        ));
    }
    Ok(first..=last)
}
