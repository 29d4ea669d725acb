//! Owns the command line: its commands, and the dispatch. Flags, with their defaults, are in the modules below.
//! Never does a command's work.

use std::ffi::OsString;
use std::io::Write as _;
use std::panic::AssertUnwindSafe;
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory as _, Parser, Subcommand};

mod again;
mod explore;
mod run;
mod score;
mod shared;
mod stored;

use crate::exit::{self, Failure};
use crate::{commands, mischief};

pub use again::{AnalyzeArgs, CheckArgs, ReplayArgs, ShrinkArgs};
pub use explore::ExploreArgs;
pub use run::{
    CONCURRENCY_MAX, NODES_MAX, NetworkFlag, OBSERVERS_MAX, RunArgs, SimArgs, Switch, VotersFlag,
};
pub use score::{ScoreArgs, ShrinkFlag, WayFlag};
pub use shared::{ExecutionArgs, OutputArgs, StoreArgs, SummaryArgs};
pub use stored::{ExportArgs, GcArgs, ListArgs, ServeArgs, ShowArgs};

/// Fault-injection harness for KRaft: runs a cluster, breaks it, and decides whether it kept its
/// promises.
#[derive(Debug, Parser)]
#[command(name = "harness", version, propagate_version = true, after_help = EXAMPLES)]
struct Cli {
    #[command(subcommand)]
    command: Command,
}

// What stands below the flags keeps to 80 columns where a line must not be wrapped, and leaves the rest to clap.
const EXAMPLES: &str = "Examples:
  # break the network for five minutes
  harness run --nemesis partition-random --time 300
  # watch a seeded bug being found
  harness run --nemesis partition-random --bug stale-read
  # the same node in a simulation, many seeds
  harness sim --nemesis all --seeds 1..1000
  # run the same faults again, five times
  harness replay latest --times 5
  # browse the reports
  harness serve

Exit codes: 0 valid, 1 invalid, 2 unknown, 254 bad arguments, 255 the harness itself failed. \
Of several runs (sim, replay) the worst counts; a replay that is valid although the run was not gives 2.";

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
  harness export latest --format edn --output latest.edn; harness check latest.edn --model cas-register --keyed
  harness check store/latest/history.edn --model cas-register --keyed
  harness check etcd.log.gz --model cas-register --failed-cas observed";

const EXPLORE_EXAMPLES: &str = "Examples:
  # everything within 14 steps of a first start
  harness explore --depth 14
  # a seeded bug, from where a leader has committed
  harness explore --from elected --depth 9 --bug hwm-any-epoch
  # the steps that broke a rule, again
  harness explore --replay runs/explored.json

Not explored: how long things take (any timer may go off at any time, and a node is down for no time); what a crash
leaves of a file that is half written (each write and each snapshot is there as a whole or not at all); disks that
fail or lie; what is around the protocol core, such as applying records, sessions of clients, their timeouts, HTTP,
observers that are never added, and requests of strangers; and everything beyond the bounds above. harness sim has
all of that, without exhausting it.";

/// What `sim --help` says below its flags.
fn mischief_points() -> String {
    format!(
        "Mischief, each of it on in a quarter of the seeds:\n{}",
        mischief::described()
    )
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Run a cluster of real processes under faults and judge it
    #[command(allow_negative_numbers = true)]
    Run(RunArgs),
    /// Run many seeds in a deterministic simulation and judge each
    #[command(allow_negative_numbers = true, after_long_help = mischief_points(), mut_arg("node_bin", |arg| arg.hide(true)), mut_arg("seed", |arg| arg.hide(true)), mut_arg("network", |arg| arg.hide(true)), mut_arg("client_links", |arg| arg.hide(true)))]
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
    /// Remove old runs, and campaigns none of whose runs is left
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
