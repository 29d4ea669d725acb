//! Owns the flags of commands about stored runs: `list`, `show`, `export`, `gc`, `serve`.
//! Never looks for a run.

use std::path::PathBuf;

use clap::Args;

use super::StoreArgs;
use crate::export::Format;

/// Flags of `list`.
#[derive(Debug, Clone, Args)]
pub struct ListArgs {
    /// Only runs with this verdict; failed = all but valid ones
    #[arg(long, value_parser = ["valid", "invalid", "unknown", "none", "failed"])]
    pub verdict: Option<String>,
    /// Only runs that were stopped from outside before their time: by Ctrl-C, or as the harness was killed
    #[arg(long)]
    pub interrupted: bool,
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
        self.interrupted || self.seed.is_some() || texts.iter().any(|text| text.is_some())
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
    /// How many of the newest runs stay; there is no default, as everything else is removed for good
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
    /// A name that browsers call this machine by, besides its addresses, localhost and, with --listen, its own
    /// name; requests by any other name are refused
    #[arg(long, value_name = "NAME")]
    pub host: Vec<String>,
    /// Where runs are stored
    #[command(flatten)]
    pub store: StoreArgs,
}
