//! Owns the command line: flags, their defaults and their first validation, and the dispatch.
//! Never does a command's work.

use std::ffi::OsString;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::path::PathBuf;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{Args, CommandFactory as _, Parser, Subcommand};

use nemesis::plan::{INTENSITY_MAX_PERCENT, INTENSITY_USUAL_PERCENT};

mod explore;

use crate::byte_size::parse_bytes;
use crate::duration::{parse_ms, parse_positive_ms};
use crate::exit::{self, Failure};
use crate::export::Format;
use crate::{commands, workload};

pub use explore::ExploreArgs;

/// Fault-injection harness for KRaft: runs a cluster, breaks it, and decides whether it kept its
/// promises.
#[derive(Debug, Parser)]
#[command(name = "harness", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

const EXAMPLES: &str = "Examples:
  harness run --nemesis partition-random --time 300         break the network for five minutes
  harness run --nemesis partition-random --bug stale-read   watch a seeded bug being found
  harness sim --nemesis all --seeds 1..1000                 the same node in a simulation, many seeds
  harness replay latest --times 5                           run the same faults again, five times
  harness serve                                             browse the reports

Exit codes: 0 valid, 1 invalid, 2 unknown, 254 bad arguments, 255 the harness itself failed. Of several
runs (sim, replay) the worst counts; a replay that is valid although the run was not gives 2.";

const CHECK_EXAMPLES: &str = "Every key, or the whole where there are no keys, is one object:
  register       read, write
  cas-register   read, write, cas with [expected new]
  key-value      get, put, append of text
  list-append    append of an element, read of all
  set            add, remove, contains, read of all
  counter        add, add-and-get, read
  queue          enqueue, dequeue

Examples:
  harness check runs/latest/history.jsonl --model cas-register
  harness check store/latest/history.edn --model cas-register --keyed
  harness check etcd.log.gz --model cas-register --failed-cas observed";

const EXPLORE_EXAMPLES: &str = "Examples:
  harness explore --depth 14                                   everything within 14 steps of a first start
  harness explore --from elected --depth 9 --bug hwm-any-epoch  a seeded bug, from where a leader has committed
  harness explore --replay runs/explored.json                  the steps that broke a rule, again";

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a cluster of real processes under faults and judge it
    #[command(allow_negative_numbers = true)]
    Run(RunArgs),
    /// Run many seeds in a deterministic simulation and judge each
    #[command(allow_negative_numbers = true, mut_arg("node_bin", |arg| arg.hide(true)), mut_arg("seed", |arg| arg.hide(true)), mut_arg("network", |arg| arg.hide(true)), mut_arg("client_links", |arg| arg.hide(true)))]
    Sim(SimArgs),
    /// Run a recorded schedule again and compare the outcome
    Replay(ReplayArgs),
    /// Find the smallest run that still fails the same way
    Shrink(ShrinkArgs),
    /// Judge a stored run again
    Analyze(AnalyzeArgs),
    /// Judge a history from anywhere: is it linearizable?
    #[command(after_help = CHECK_EXAMPLES)]
    Check(CheckArgs),
    /// Try every order of events, up to a depth, on the protocol core of a small cluster
    #[command(after_help = EXPLORE_EXAMPLES)]
    Explore(Box<ExploreArgs>),
    /// Browse stored runs in a web browser
    Serve(ServeArgs),
    /// Show what this machine and each world can do, and what not and why
    Doctor {
        /// List what faults can hit, for --require: roles, what is done to them, and phases
        #[arg(long)]
        coverage: bool,
    },
    /// List stored runs
    List(ListArgs),
    /// Tell all about one stored run
    Show(ShowArgs),
    /// Write a stored run for other tools
    Export(ExportArgs),
    /// Remove old runs
    Gc(GcArgs),
    /// Write completions of the command line for a shell
    Completions {
        /// The shell
        shell: clap_complete::Shell,
    },
    /// Write the manual page (`harness man | man -l -`)
    Man,
    /// The seeded bugs that prove that the checkers notice
    Bugs {
        #[command(subcommand)]
        command: Option<BugsCommand>,
    },
    /// Try what `--network namespace` needs, in a process that ends
    #[command(hide = true)]
    ProbeNamespaces,
    /// Be a node: what `kraft-node` does, inside this executable
    #[command(hide = true, disable_help_flag = true)]
    Node {
        /// Passed on.
        #[arg(trailing_var_arg = true, allow_hyphen_values = true)]
        arguments: Vec<OsString>,
    },
}

#[derive(Debug, Subcommand)]
enum BugsCommand {
    /// List id, name, what is broken and what must catch it; so does `harness bugs` alone
    List,
    /// Measure how many seeds it takes until each bug is noticed, and by whom
    Score(Box<ScoreArgs>),
}

/// Flags of `bugs score`.
#[derive(Debug, Clone, Args)]
pub struct ScoreArgs {
    /// Which bugs, by name or id; all of them by default
    pub bugs: Vec<String>,
    /// Seeds of one hunt at most
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(1..=1_000_000))]
    pub seeds: u64,
    /// Hunts for each bug in each way; no two of them share a seed
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub repetitions: u32,
    /// The first seed of all
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u64).range(..1 << 32))]
    pub first_seed: u64,
    /// How long one hunt takes at most
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub time_limit: u64,
    /// Seeds of the unmodified node, which must not be called wrong
    #[arg(long, default_value_t = 1000, value_parser = clap::value_parser!(u64).range(..=10_000_000))]
    pub unmodified_seeds: u64,
    /// Runs of real processes for each bug at most, besides the simulation
    #[arg(long, default_value_t = 0, value_parser = clap::value_parser!(u32).range(..=10_000))]
    pub processes: u32,
    /// What goes wrong, as for `sim`: names with commas, or all; each may have its own pace, as in
    /// kill:interval=2s:intensity=200,pause
    #[arg(long, default_value = "all", value_name = "FAULTS")]
    pub nemesis: String,
    /// What clients do
    #[arg(long, default_value = workload::WORKLOADS[0], value_name = "NAME")]
    pub workload: String,
    /// How long the workload of a run lasts
    #[arg(long, default_value = "20", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub time: u64,
    /// Mean time between two faults of one kind
    #[arg(long, default_value = "2", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub interval: u64,
    /// Number of nodes
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    pub nodes: u32,
    /// Folder of scenarios; those that name a bug are tried on it
    #[arg(long, default_value = "harness/tests/scenarios", value_name = "FOLDER")]
    pub scenarios: PathBuf,
    /// Where the table goes; its data goes beside it, ending in .json
    #[arg(long, default_value = "docs/bug-score.md", value_name = "FILE")]
    pub table: PathBuf,
    /// How many hunts at once; one per processor by default
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Where runs of real processes are stored
    #[command(flatten)]
    pub store: StoreArgs,
    /// How much is said
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Most nodes of a cluster.
pub const NODES_MAX: u32 = 9;
/// Most observers of a cluster.
pub const OBSERVERS_MAX: u32 = 5;
/// Most client threads.
pub const CONCURRENCY_MAX: u32 = 1000;

/// Where runs are stored.
#[derive(Debug, Clone, Args)]
pub struct StoreArgs {
    /// Folder that holds the runs
    #[arg(long, default_value = "runs", value_name = "FOLDER")]
    pub out: PathBuf,
}

/// How much is said while a command works.
#[derive(Debug, Clone, Args)]
pub struct OutputArgs {
    /// Show no progress, only the verdict and what led to it
    #[arg(long)]
    pub quiet: bool,
    /// Print the verdict as one line of JSON, and nothing else
    #[arg(long)]
    pub json: bool,
}

/// Where CI systems look for what came out.
#[derive(Debug, Clone, Args)]
pub struct SummaryArgs {
    /// Add what came out to this file in Markdown, as for $GITHUB_STEP_SUMMARY
    #[arg(long, value_name = "FILE")]
    pub summary: Option<PathBuf>,
}

/// What `run` and `replay` have in common.
#[derive(Debug, Clone, Args)]
pub struct ExecutionArgs {
    /// Keep the nodes' data folders even if the run is valid
    #[arg(long)]
    pub keep: bool,
    /// Node program to test, instead of the node built into the harness
    #[arg(long, value_name = "PATH")]
    pub node_bin: Option<PathBuf>,
    /// Where CI systems look for what came out
    #[command(flatten)]
    pub summary: SummaryArgs,
    /// Where runs are stored
    #[command(flatten)]
    pub store: StoreArgs,
    /// How much is said
    #[command(flatten)]
    pub output: OutputArgs,
}

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
    /// What every seed runs
    #[command(flatten)]
    pub run: RunArgs,
}

/// Flags of `shrink`.
#[derive(Debug, Clone, Args)]
pub struct ShrinkArgs {
    /// The run: its folder, its name, the beginning of its name, or `latest`. A run of real processes is
    /// shrunk in the simulation if it fails there, too, and otherwise by running it again and again
    pub run: String,
    /// How many smaller runs to try at most
    #[arg(long, default_value_t = 2000, value_name = "RUNS")]
    pub budget: u32,
    /// How long to try at most; by default 60 s in the simulation, 15m against real processes
    #[arg(long, value_name = "DURATION", value_parser = parse_positive_ms)]
    pub time_limit: Option<u64>,
    /// Where to run it; by default in the simulation, and against real processes only if the failure of a
    /// run of theirs does not come back there
    #[arg(long, value_parser = ["processes", "simulation"])]
    pub world: Option<String>,
    /// What carries bytes between real processes; by default what did when the run was recorded
    #[arg(long, value_name = "KIND")]
    pub network: Option<NetworkFlag>,
    /// Against real processes: how often a schedule is run at most
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub tries: u32,
    /// Against real processes: how many of these runs must fail
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=100))]
    pub hits: u32,
    /// Node program to test against, instead of the node built into the harness
    #[arg(long, value_name = "PATH")]
    pub node_bin: Option<PathBuf>,
    /// Where runs are stored
    #[command(flatten)]
    pub store: StoreArgs,
    /// How much is said
    #[command(flatten)]
    pub output: OutputArgs,
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

/// Flags of `replay`.
#[derive(Debug, Clone, Args)]
pub struct ReplayArgs {
    /// The run: its folder, its name, the beginning of its name, or `latest`
    pub run: String,
    /// How often to run it
    #[arg(long, default_value_t = 1, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub times: u32,
    /// Where to run it, instead of where it ran: a schedule of one world runs in the other
    #[arg(long, value_parser = ["processes", "simulation"])]
    pub world: Option<String>,
    /// What carries bytes between real processes; by default what did when the run was recorded
    #[arg(long, value_name = "KIND")]
    pub network: Option<NetworkFlag>,
    /// Aim at the nodes that were hit (resolved), or resolve words like `leader` anew (symbolic)
    #[arg(long, default_value = "resolved", value_parser = ["resolved", "symbolic"])]
    pub targets: String,
    /// What every execution of a run needs
    #[command(flatten)]
    pub execution: ExecutionArgs,
}

/// Flags of `analyze`.
#[derive(Debug, Clone, Args)]
pub struct AnalyzeArgs {
    /// The run: its folder, its name, the beginning of its name, or `latest`
    pub run: String,
    /// What must have been hit besides what the run required, as for `run`
    #[arg(long, value_name = "CELLS", value_delimiter = ',')]
    pub require: Vec<String>,
    /// Where CI systems look for what came out
    #[command(flatten)]
    pub summary: SummaryArgs,
    /// Where runs are stored
    #[command(flatten)]
    pub store: StoreArgs,
    /// How much is said
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Flags of `check`.
#[derive(Debug, Clone, Args)]
pub struct CheckArgs {
    /// The history: our history.jsonl, Jepsen's history.edn or old text log, or Porcupine's key-value
    /// log; packed with gzip or not; - for standard input
    pub file: PathBuf,
    /// What every key is
    #[arg(long, value_parser = ["register", "cas-register", "key-value", "list-append", "set", "counter", "queue"])]
    pub model: String,
    /// How the history is written down; told from its beginning by default
    #[arg(long, value_parser = ["jsonl", "edn", "log"])]
    pub format: Option<String>,
    /// Every value is a pair of key and value, as in Jepsen's independent tests
    #[arg(long)]
    pub keyed: bool,
    /// What a failed compare-and-set means: it did not happen (ignored), or the value was not the
    /// expected one (observed)
    #[arg(long, default_value = "ignored", value_parser = ["ignored", "observed"])]
    pub failed_cas: String,
    /// How long the search may take
    #[arg(long, default_value = "60", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub time_limit: u64,
    /// How much memory the search may use
    #[arg(long, default_value = "2GiB", value_name = "BYTES", value_parser = parse_bytes)]
    pub memory_limit: u64,
    /// How much is said
    #[command(flatten)]
    pub output: OutputArgs,
}

/// Flags of `list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Only runs with this verdict; failed = all but valid ones
    #[arg(long, value_parser = ["valid", "invalid", "unknown", "none", "failed"])]
    pub verdict: Option<String>,
    /// Only runs with this family of faults
    #[arg(long, value_name = "NAME")]
    pub nemesis: Option<String>,
    /// Only runs with a seeded bug whose name has this in it
    #[arg(long, value_name = "TEXT")]
    pub bug: Option<String>,
    /// Only runs with a workload whose name has this in it
    #[arg(long, value_name = "TEXT")]
    pub workload: Option<String>,
    /// Only runs whose own name has this in it
    #[arg(long, value_name = "TEXT")]
    pub name: Option<String>,
    /// Only runs with this seed
    #[arg(long)]
    pub seed: Option<u64>,
    /// How many at most, newest first
    #[arg(long, value_name = "COUNT")]
    pub limit: Option<usize>,
    /// Print one line of JSON for each run
    #[arg(long)]
    pub json: bool,
    /// Where runs are stored
    #[command(flatten)]
    pub store: StoreArgs,
}

impl ListArgs {
    /// Whether only some runs are asked for. What cannot be read is none of them.
    pub fn filters_runs(&self) -> bool {
        let texts = [
            &self.verdict,
            &self.nemesis,
            &self.bug,
            &self.workload,
            &self.name,
        ];
        self.seed.is_some() || texts.iter().any(|text| text.is_some())
    }
}

/// Flags of `show`.
#[derive(Debug, Clone, Args)]
pub struct ShowArgs {
    /// The run: its folder, its name, the beginning of its name, or `latest`
    #[arg(default_value = "latest")]
    pub run: String,
    /// Print manifest, verdict and schedule as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Where runs are stored
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Flags of `export`.
#[derive(Debug, Clone, Args)]
pub struct ExportArgs {
    /// The run: its folder, its name, the beginning of its name, or `latest`
    pub run: String,
    /// What to write: Jepsen's operation maps, JSON lines, comma-separated values, or a trace for
    /// chrome://tracing and Perfetto
    #[arg(long)]
    pub format: Format,
    /// Where to write; standard output by default
    #[arg(long, value_name = "FILE")]
    pub output: Option<PathBuf>,
    /// Where runs are stored
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Flags of `gc`.
#[derive(Debug, Clone, Args)]
pub struct GcArgs {
    /// How many of the newest runs stay
    #[arg(long, value_name = "COUNT")]
    pub keep: usize,
    /// Keep also every run that is not valid
    #[arg(long)]
    pub keep_failed: bool,
    /// Only tell what would be removed
    #[arg(long)]
    pub dry_run: bool,
    /// Print what was removed as one line of JSON
    #[arg(long)]
    pub json: bool,
    /// Where runs are stored
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Flags of `serve`.
#[derive(Debug, Clone, Args)]
pub struct ServeArgs {
    /// Port; 0 = any free one
    #[arg(long, default_value_t = 8080)]
    pub port: u16,
    /// Address to listen on; by default only this machine can connect
    #[arg(long, default_value_t = std::net::IpAddr::V4(std::net::Ipv4Addr::LOCALHOST), value_name = "ADDRESS")]
    pub listen: std::net::IpAddr,
    /// Where runs are stored
    #[command(flatten)]
    pub store: StoreArgs,
}

/// Runs the command line and returns the exit code.
pub fn main(arguments: Vec<OsString>) -> ExitCode {
    if arguments.get(1).is_some_and(|word| word == "node") {
        // The node's own arguments begin with its program name.
        return node::cli::run_as("harness node", arguments.into_iter().skip(1));
    }
    let cli = match Cli::try_parse_from(&arguments) {
        Ok(cli) => cli,
        Err(error) => return refuse(&error),
    };
    std::panic::set_hook(Box::new(|panic| {
        complain(&format!(
            "the harness made a mistake: {}",
            panic.to_string().replace('\n', " ")
        ));
    }));
    let outcome = std::panic::catch_unwind(AssertUnwindSafe(|| dispatch(cli.command, &arguments)));
    match outcome {
        Ok(Ok(code)) => ExitCode::from(code),
        Ok(Err(failure)) => {
            complain(&failure.message());
            ExitCode::from(failure.code())
        }
        Err(_) => ExitCode::from(exit::HARNESS_FAILED),
    }
}

fn dispatch(command: Command, arguments: &[OsString]) -> Result<u8, Failure> {
    let words = arguments
        .iter()
        .map(|word| word.to_string_lossy().into_owned())
        .collect();
    match command {
        Command::Run(args) => commands::run::run(&args, words),
        Command::Sim(args) => commands::sim::sim(&args, words),
        Command::Shrink(args) => commands::shrink::shrink(&args, words),
        Command::Replay(args) => commands::replay::replay(&args, words),
        Command::Analyze(args) => commands::analyze::analyze(&args),
        Command::Check(args) => commands::check::check(&args),
        Command::Explore(args) => commands::explore::explore(&args),
        Command::Serve(args) => commands::serve::serve(&args),
        Command::Doctor { coverage: true } => commands::coverage::list(),
        Command::Doctor { coverage: false } => commands::doctor::doctor(),
        Command::ProbeNamespaces => commands::namespaces::probe(),
        Command::List(args) => commands::list::list(&args),
        Command::Show(args) => commands::show::show(&args),
        Command::Export(args) => commands::export::export(&args),
        Command::Gc(args) => commands::gc::gc(&args),
        Command::Completions { shell } => commands::shell::completions(shell),
        Command::Man => commands::shell::man(),
        Command::Bugs {
            command: None | Some(BugsCommand::List),
        } => commands::bugs::bugs(),
        Command::Bugs {
            command: Some(BugsCommand::Score(args)),
        } => commands::bugs_score::score(&args, words),
        Command::Node { .. } => Err(Failure::arguments("`node` must be the first argument")),
    }
}

/// Help and version are no errors; everything else is a complaint about arguments, in one line.
fn refuse(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(exit::BAD_ARGUMENTS)
        }
        _ => {
            let text = error.to_string();
            let problem = ["\n\nUsage:", "\n\nFor more information"]
                .into_iter()
                .fold(text.as_str(), |text, end| {
                    text.split(end).next().unwrap_or(text)
                });
            let problem = problem.strip_prefix("error: ").unwrap_or(problem);
            let words: Vec<&str> = problem.split_whitespace().collect();
            complain(&format!("{}; see --help", words.join(" ")));
            ExitCode::from(exit::BAD_ARGUMENTS)
        }
    }
}

fn complain(message: &str) {
    // There is nobody left to tell if this fails.
    let _ = writeln!(std::io::stderr(), "harness: {message}");
}

/// The command line's definition, for documentation and tests.
pub fn definition() -> clap::Command {
    Cli::command()
}
