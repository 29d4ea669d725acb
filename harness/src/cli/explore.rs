//! Owns the flags of `harness explore`, their defaults and their first validation.
//! Never explores.

use std::path::PathBuf;

use clap::Args;

use super::{OutputArgs, StoreArgs};
use crate::byte_size::parse_bytes;
use crate::duration::parse_positive_ms;
use crate::explore::{Beginning, NODES_MAX};

/// Flags of `explore`.
#[derive(Debug, Clone, Args)]
pub struct ExploreArgs {
    /// Number of voters at the beginning
    #[arg(long, default_value_t = 3, value_parser = clap::value_parser!(u8).range(1..=i64::from(NODES_MAX)))]
    pub nodes: u8,
    /// How many things happen one after the other at most
    #[arg(long, default_value_t = 12, value_parser = clap::value_parser!(u32).range(1..=1000))]
    pub depth: u32,
    /// Where it begins: with nodes that never ran, or with a leader that has committed its first record
    /// together with one other node
    #[arg(long, default_value = "fresh", value_name = "STATE")]
    pub from: Beginning,
    /// The latest epoch; what happens in later ones is left out
    #[arg(long, default_value_t = 2, value_parser = clap::value_parser!(u16).range(1..=100))]
    pub epochs: u16,
    /// Election, fetch and check-quorum timeouts on the way to a state, at most
    #[arg(long, default_value_t = 2, value_name = "COUNT")]
    pub timeouts: u8,
    /// Client writes on the way to a state, at most
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    pub writes: u8,
    /// Client reads on the way to a state, at most; each must see what was committed when it arrived
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub reads: u8,
    /// Voters that somebody asks a leader to remove, at most; with any, the voters are in the log
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub removals: u8,
    /// Voters that somebody asks a leader to add, at most; with any, the voters are in the log, and one or two more
    /// nodes wait to be added
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub additions: u8,
    /// Snapshots that a node takes, at most; the log before one may be dropped, and whoever needs what was in it
    /// fetches the snapshot
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub snapshots: u8,
    /// In how many pieces a snapshot is fetched; a crash between them loses those that are there
    #[arg(long, default_value_t = 1, value_name = "COUNT", value_parser = clap::value_parser!(u8).range(1..=8))]
    pub snapshot_pieces: u8,
    /// Crashes on the way to a state, at most; each takes any part of what was not synced, and ends with a
    /// restart
    #[arg(long, default_value_t = 1, value_name = "COUNT")]
    pub crashes: u8,
    /// Lost messages whose senders notice, at most; a message may always take as long as it likes
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub losses: u8,
    /// Requests that arrive twice, at most
    #[arg(long, default_value_t = 0, value_name = "COUNT")]
    pub duplicates: u8,
    /// Switch on a seeded bug in every node (see `harness bugs`)
    #[arg(long, value_name = "NAME")]
    pub bug: Option<String>,
    /// How long it may take; what is not exhausted by then is unknown
    #[arg(long, default_value = "10m", value_name = "DURATION", value_parser = parse_positive_ms)]
    pub time_limit: u64,
    /// How much memory it may use; what is not exhausted with that is unknown
    #[arg(long, default_value = "2GiB", value_name = "BYTES", value_parser = parse_bytes)]
    pub memory_limit: u64,
    /// How many threads; one per processor by default
    #[arg(long, value_parser = clap::value_parser!(u16).range(1..=1024))]
    pub jobs: Option<u16>,
    /// Where the steps that break a rule are written; explored.json in the folder of the runs by default
    #[arg(long, value_name = "FILE")]
    pub steps: Option<PathBuf>,
    /// How many simulated runs may try to break the same rule by faults alone; 0 for none
    #[arg(long, default_value_t = 60, value_name = "COUNT", value_parser = clap::value_parser!(u32).range(..=100_000))]
    pub tries: u32,
    /// Take the steps of this file again, instead of exploring
    #[arg(long, value_name = "FILE", conflicts_with = "bug")]
    pub replay: Option<PathBuf>,
    /// Where the steps are stored
    #[command(flatten)]
    pub store: StoreArgs,
    /// How much is said
    #[command(flatten)]
    pub output: OutputArgs,
}

impl ExploreArgs {
    /// Where the steps that break a rule are written.
    pub fn steps_file(&self) -> PathBuf {
        let usual = || self.store.out.join("explored.json");
        self.steps.clone().unwrap_or_else(usual)
    }
}
