//! Owns the command line of the benchmark: which measurement runs, and on which programs.
//! Never measures in a temporary file system: durable writes would cost nothing there.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A program for people.

mod client;
mod clusters;
mod load;
mod machine;
mod prepared;
mod processes;
mod protocol;
mod recovery;
mod table;

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use anyhow::Context;
use clap::{Args, Parser, Subcommand};
use tokio::signal::unix::{SignalKind, signal};

use clusters::System;
use load::Scenario;

/// How fast the node is, alone and next to etcd, with real fsync on this machine.
#[derive(Debug, Parser)]
#[command(name = "speed", args_override_self = true)]
struct Arguments {
    #[command(subcommand)]
    command: Option<Command>,
    /// Directory for all data; temporary directories in it are removed at the end.
    #[arg(long, value_name = "DIRECTORY", default_value = env!("CARGO_TARGET_TMPDIR"), global = true)]
    directory: PathBuf,
    /// The program to measure.
    #[arg(long, value_name = "FILE", default_value = env!("CARGO_BIN_EXE_kraft-node"), global = true)]
    node: PathBuf,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Drive clusters of three with the same clients in turns, and compare them.
    Compare(CompareArguments),
    /// Restart a node with a log of 1 GiB, until it listens and until it answers a read.
    #[command(mut_arg("bytes", |bytes| bytes.default_value("1073741824")))]
    Recover(SizeArguments),
    /// Start a follower without data next to a leader with a long log, until it has applied all.
    CatchUp(SizeArguments),
    /// Resident memory of three nodes that have nothing to do.
    Idle,
    /// Resident memory of the leader every ten seconds under a steady load of writes.
    Growth {
        /// How long.
        #[arg(long, value_name = "S", default_value_t = 600)]
        seconds: u64,
    },
}

#[derive(Debug, Clone, Args)]
struct CompareArguments {
    /// What to compare, in this order; the first is compared with each other one.
    #[arg(long, value_delimiter = ',', default_values = ["kraft-node", "etcd"])]
    systems: Vec<System>,
    /// What to do: writes or reads, and by how many clients at once.
    #[arg(long, value_delimiter = ',', default_values = ["write-1", "write-8", "write-64", "read-64"])]
    scenarios: Vec<Scenario>,
    /// How often all of them take their turn.
    #[arg(long, default_value_t = 5, value_parser = clap::value_parser!(u32).range(1..))]
    rounds: u32,
    /// Measured time of one turn, in seconds; a quarter of it is added before as warm-up.
    #[arg(long, value_name = "S", default_value_t = 4.0)]
    seconds: f64,
    /// Size of a value.
    #[arg(long, default_value_t = 100, value_parser = clap::value_parser!(u16).range(1..=1024))]
    value_bytes: u16,
    /// How much of the processors other programs, and the kernel's own threads, may use during a
    /// round, from 0 to 1. A round with more is repeated.
    #[arg(long, value_name = "SHARE", default_value_t = 0.15)]
    foreign_max: f64,
    /// Another build of kraft-node, for the system `other`.
    #[arg(long, value_name = "FILE")]
    other: Option<PathBuf>,
}

#[derive(Debug, Clone, Args)]
struct SizeArguments {
    /// How many records the log has.
    #[arg(long, default_value_t = 1_000_000)]
    records: u64,
    /// How many bytes the log has, all in all. Values of about 100 bytes fill the default.
    #[arg(long, default_value_t = 200_000_000)]
    bytes: u64,
    /// How many records one batch has.
    #[arg(long, default_value_t = 64, value_parser = clap::value_parser!(u64).range(1..))]
    batch: u64,
    /// Let nodes take snapshots, which replace most of the log. Without, all of it is used.
    #[arg(long)]
    snapshots: bool,
}

fn main() -> ExitCode {
    // Test runners start every target; only `cargo bench` passes this.
    let (asked, arguments): (Vec<_>, Vec<_>) =
        std::env::args().partition(|argument| argument == "--bench");
    if asked.is_empty() {
        println!("nothing measured: run `cargo bench -p node --bench speed -- --help`");
        return ExitCode::SUCCESS;
    }
    let arguments = Arguments::parse_from(arguments);
    match measure(&arguments) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => {
            eprintln!("no measurement: {error:#}");
            ExitCode::FAILURE
        }
    }
}

fn measure(arguments: &Arguments) -> anyhow::Result<()> {
    let runtime = tokio::runtime::Builder::new_current_thread()
        .enable_all()
        .build()
        .context("cannot set up the clients")?;
    runtime.block_on(async {
        let mut interrupt = signal(SignalKind::interrupt())?;
        let mut terminate = signal(SignalKind::terminate())?;
        // Leaving the measurement drops, and thereby stops, all that it has started.
        tokio::select! {
            outcome = dispatch(arguments) => outcome,
            _ = interrupt.recv() => anyhow::bail!("interrupted"),
            _ = terminate.recv() => anyhow::bail!("terminated"),
        }
    })
}

async fn dispatch(arguments: &Arguments) -> anyhow::Result<()> {
    let directory = tempfile::Builder::new()
        .prefix("speed-")
        .tempdir_in(&arguments.directory)
        .with_context(|| format!("cannot use {}", arguments.directory.display()))?;
    let path = directory.path();
    println!("{}", machine::facts(path)?);
    println!("{}\n", clusters::version(&arguments.node)?);
    match &arguments.command {
        Some(Command::Compare(compare)) => compared(arguments, compare, path).await,
        Some(Command::Recover(size)) => recovery::recover(&arguments.node, path, size).await,
        Some(Command::CatchUp(size)) => recovery::catch_up(&arguments.node, path, size).await,
        Some(Command::Idle) => recovery::idle(&arguments.node, path).await,
        Some(Command::Growth { seconds }) => {
            recovery::growth(&arguments.node, path, Duration::from_secs(*seconds)).await
        }
        None => {
            let Arguments {
                command: Some(Command::Compare(compare)),
                ..
            } = Arguments::parse_from(["speed", "compare"])
            else {
                anyhow::bail!("the defaults are not a comparison");
            };
            compared(arguments, &compare, path).await
        }
    }
}

async fn compared(
    arguments: &Arguments,
    compare: &CompareArguments,
    directory: &std::path::Path,
) -> anyhow::Result<()> {
    let mut clusters = Vec::new();
    for system in &compare.systems {
        let program = match (system, &compare.other) {
            (System::Other, None) => anyhow::bail!("the system `other` needs --other FILE"),
            (System::Other, Some(other)) => other,
            _ => &arguments.node,
        };
        if *system == System::Etcd {
            match clusters::etcd_version() {
                Some(version) => println!("{version}\n"),
                None => {
                    println!(
                        "SKIPPED: etcd is not installed, so there is nothing to compare with \
                         (Debian: apt-get install etcd-server)\n"
                    );
                    continue;
                }
            }
        }
        clusters.push(clusters::Cluster::start(*system, program, directory).await?);
    }
    let plan = load::Plan {
        scenarios: compare.scenarios.clone(),
        rounds: compare.rounds,
        measured: Duration::from_secs_f64(compare.seconds),
        value_bytes: usize::from(compare.value_bytes),
        foreign_max: compare.foreign_max,
    };
    let measured = load::compare(&mut clusters, &plan).await?;
    print!("{}", table::render(&measured));
    Ok(())
}
