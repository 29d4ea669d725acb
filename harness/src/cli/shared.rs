//! Owns flags that several commands have.
//! Never decides what a command does with them.

use std::path::PathBuf;

use clap::Args;

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
