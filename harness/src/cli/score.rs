//! Owns the flags of `harness bugs score`, their defaults and their first validation.
//! Never hunts.

use std::path::PathBuf;

use clap::Args;

use super::{NODES_MAX, OutputArgs, StoreArgs, Switch};
use crate::duration::{parse_ms, parse_positive_ms};

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
    #[arg(long, default_value = "2m", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub time_limit: u64,
    /// When to begin nothing more, and to end what goes on; without it, when everything is measured. With 0
    /// the table is only written again
    #[arg(long, value_name = "DURATION", value_parser = parse_ms)]
    pub total_time: Option<u64>,
    /// Go on where the same command was interrupted or its time was over, with the same build: what is
    /// complete in the table is not measured again
    #[arg(long)]
    pub resume: bool,
    /// In which ways, separated by commas; by default in all, in processes only with --processes
    #[arg(long, value_name = "WAYS", value_delimiter = ',')]
    pub ways: Vec<WayFlag>,
    /// Which bugs to shrink one run of, to measure how small it becomes
    #[arg(long, default_value = "a")]
    pub shrink: ShrinkFlag,
    /// How long shrinking one run takes at most
    #[arg(long, default_value = "20s", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub shrink_time: u64,
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
    /// Whether the usual faults are drawn for every seed, with cluster, timers, sizes and clients, as by
    /// `sim --swarm`
    #[arg(long, default_value = "on")]
    pub swarm: Switch,
    /// What clients do; drawn, unless it is given or --swarm is off
    #[arg(long, value_name = "NAME")]
    pub workload: Option<String>,
    /// How long the workload of a run lasts
    #[arg(long, default_value = "20", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub time: u64,
    /// Mean time between two faults of one kind
    #[arg(long, default_value = "2", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub interval: u64,
    /// Number of nodes, where it is not drawn
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..=i64::from(NODES_MAX)))]
    pub nodes: u32,
    /// Folder of scenarios; those that name a bug are tried on it
    #[arg(long, default_value = "harness/tests/scenarios", value_name = "FOLDER")]
    pub scenarios: PathBuf,
    /// Where the table goes; its data goes beside it, ending in .json. What is there already and is not
    /// measured again stays
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

/// Ways of looking for a bug, as flags name them.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum WayFlag {
    /// The usual faults, in the simulation.
    Stock,
    /// The settings made for the bug, in the simulation.
    Targeted,
    /// The schedules made for the bug, in the simulation.
    Scenario,
    /// Real processes.
    Processes,
}

/// Of which bugs a run is shrunk.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum ShrinkFlag {
    /// Of none.
    None,
    /// Of those of priority A.
    A,
    /// Of all.
    All,
}
