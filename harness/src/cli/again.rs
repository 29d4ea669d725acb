//! Owns the flags of commands that run or judge again what there is: `replay`, `shrink`, `analyze`, `check`.
//! Never looks for a run.

use std::path::PathBuf;

use clap::Args;

use super::{ExecutionArgs, NetworkFlag, OutputArgs, StoreArgs, SummaryArgs};
use crate::byte_size::parse_bytes;
use crate::duration::parse_positive_ms;

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
    /// What every key is; there is no default
    #[arg(long, value_parser = ["register", "cas-register", "key-value", "list-append", "set", "counter", "queue"])]
    pub model: Option<String>,
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
    /// How much memory the search may use; the file, unpacked, may be as large, 256MiB in any case, and
    /// 4GiB at most
    #[arg(long, default_value = "2GiB", value_name = "BYTES", value_parser = parse_bytes)]
    pub memory_limit: u64,
    /// How much is said
    #[command(flatten)]
    pub output: OutputArgs,
}
