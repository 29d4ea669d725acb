//! Owns the command line of a node: arguments, their checks, exit codes.
//! Never starts anything before every argument is known to make sense.

mod controllers;
mod describe;
mod dump_log;
mod dump_snapshot;
mod format;
mod leader;

use std::collections::{BTreeMap, BTreeSet};
use std::ffi::OsString;
use std::io::{self, Write};
use std::path::PathBuf;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use clap::error::ErrorKind;
use clap::{Args, Parser, Subcommand};

use crate::ids::NodeId;
use crate::mutants::Bug;
use crate::node_loop::{NodeOptions, SnapshotOptions};
use crate::raft::{Configuration, Timers};
use crate::server::log::{self, LogFormat};
use crate::server::{self, ServerError, ServerOptions, TraceOptions, control};
use crate::storage::StorageOptions;

/// Exit code for arguments that make no sense.
pub const EXIT_ARGUMENTS: u8 = 254;
/// Exit code for an environment that does not let the node start: port, disk, permissions.
pub const EXIT_ENVIRONMENT: u8 = 255;
/// Exit code for a node that was running and could not go on, or could not stop in an orderly way.
pub const EXIT_STOPPED: u8 = 1;

const EXAMPLES: &str = "\
Examples:
  One node by itself, on a free port:
    kraft-node start --id 1 --listen 127.0.0.1:0 --data /tmp/n1

  The first of three:
    kraft-node start --id 1 --listen 127.0.0.1:9001 --data /tmp/n1 \\
        --peer 2=http://127.0.0.1:9002 --peer 3=http://127.0.0.1:9003

  Then, with curl:
    curl -X PUT  http://127.0.0.1:9001/registers/a -d '{\"value\":1}'
    curl         http://127.0.0.1:9001/registers/a
    curl -X POST http://127.0.0.1:9001/registers/a/compare-and-set -d '{\"expected\":1,\"new\":2}'
    curl         http://127.0.0.1:9001/quorum

  What the cluster looks like, and what is in a log:
    kraft-node describe --status --bootstrap-server 127.0.0.1:9001
    kraft-node dump-log --records --data /tmp/n1

Exit codes: 0 stopped in an orderly way, 1 the node could not go on or dump-log found damage,
254 bad arguments, 255 the node could not start, or there is nothing to describe or to dump.";

/// A small KRaft node with an HTTP front.
#[derive(Debug, Parser)]
#[command(name = "kraft-node", version, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a node and run it until SIGTERM or SIGINT.
    #[command(after_help = EXAMPLES, args_override_self = true)]
    Start(Box<StartArguments>),
    /// Describe the quorum of a running cluster, in the shape of kafka-metadata-quorum.
    Describe(describe::DescribeArguments),
    /// Print the batches of a node's log, and where it is damaged. Changes nothing, and may be used
    /// while the node runs.
    DumpLog(dump_log::DumpLogArguments),
    /// Print what is in a node's newest snapshot, and where it is damaged. Changes nothing.
    DumpSnapshot(dump_snapshot::DumpSnapshotArguments),
    /// Prepare a data directory for a cluster whose voters can change.
    Format(Box<format::FormatArguments>),
    /// Draw an id for a data directory.
    RandomId,
    /// Make a running observer a voter.
    AddController(controllers::AddArguments),
    /// Remove a voter.
    RemoveController(controllers::RemoveArguments),
}

#[derive(Debug, Args)]
struct StartArguments {
    /// Id of this node.
    #[arg(long, value_parser = parse_id)]
    id: NodeId,
    /// Name of the cluster; nodes of other clusters are refused.
    #[arg(long, value_name = "NAME", default_value = "kraft-harness")]
    cluster_id: String,
    /// Address to listen on, for clients and peers alike. Port 0 takes a free port.
    #[arg(long, value_name = "HOST:PORT")]
    listen: String,
    /// Another voter: its id and where it listens. Repeat for each. The voters are this node and
    /// its peers, and must be the same for all nodes.
    #[arg(long = "peer", value_name = "ID=URL", value_parser = parse_peer)]
    peers: Vec<Peer>,
    /// A replica that may be asked who leads, where the voters are not given by --peer but are in
    /// the log: its id and where it listens. Repeat for several.
    #[arg(long = "bootstrap", value_name = "ID=URL", value_parser = parse_peer,
        conflicts_with = "peers")]
    bootstrap: Vec<Peer>,
    /// Where others reach this node, as it is announced to them. Without it, the address it listens
    /// on.
    #[arg(long, value_name = "HOST:PORT", value_parser = leader::parse_server)]
    advertise: Option<String>,
    /// Ask to become a voter once this node has caught up.
    #[arg(long, requires = "bootstrap")]
    auto_join: bool,
    /// Directory for everything that must survive a restart; created if needed.
    #[arg(long, value_name = "DIRECTORY")]
    data: PathBuf,
    #[command(flatten)]
    snapshots: SnapshotArguments,
    #[command(flatten)]
    timers: TimerArguments,
    /// How long a client waits for the outcome of an operation before it is told that the outcome
    /// is unknown.
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = milliseconds())]
    client_deadline_ms: u64,
    /// How many connections there may be at once. When there are more, those that do nothing are
    /// closed; clients beyond that are refused, peers are not.
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..))]
    max_connections: u32,
    /// Seed of the election timeouts. Without it they differ from start to start.
    #[arg(long, value_name = "N")]
    seed: Option<u64>,
    #[command(flatten)]
    log: LogArguments,
    #[command(flatten)]
    harness: HarnessArguments,
}

/// What is written to standard error.
#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
struct LogArguments {
    /// How log lines look: for people, or one JSON object per line.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    log_format: LogFormat,
    /// Least important lines that are written: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = parse_level)]
    log_level: tracing::Level,
}

/// Snapshots and what is kept of the past, with Kafka's defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Snapshots")]
struct SnapshotArguments {
    /// Take a snapshot once this many bytes of records were committed since the last one.
    #[arg(long, value_name = "BYTES", default_value_t = 20 * 1024 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    snapshot_bytes: u64,
    /// Take a snapshot after this time if anything was committed since the last one.
    #[arg(long, value_name = "MS", default_value_t = 3_600_000, value_parser = milliseconds())]
    snapshot_interval_ms: u64,
    /// Delete old snapshots and log once they are larger than this together.
    #[arg(long, value_name = "BYTES", default_value_t = 100 * 1024 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    retention_bytes: u64,
    /// Delete snapshots, and the log before them, that are older than this.
    #[arg(long, value_name = "MS", default_value_t = 7 * 24 * 3_600_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    retention_ms: u64,
    /// Close a file of the log before it would grow past this size.
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024 * 1024,
        value_parser = clap::value_parser!(u64).range(4096..))]
    segment_bytes: u64,
}

/// The protocol timers, with Kafka's defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Protocol timers")]
struct TimerArguments {
    /// Election timeout T; each election draws from T to 2T.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = milliseconds())]
    election_timeout_ms: u64,
    /// How long a follower goes without an answer from the leader before it asks for an election.
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = milliseconds())]
    fetch_timeout_ms: u64,
    /// Upper bound of the staggering of elections after a leader resigned.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = milliseconds())]
    election_backoff_max_ms: u64,
    /// How long a leader holds a fetch that has nothing to return; less than the fetch timeout.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = milliseconds())]
    fetch_max_wait_ms: u64,
    /// How long to wait for a peer's answer.
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = milliseconds())]
    request_timeout_ms: u64,
    /// How long to wait before a failed request to a peer is repeated.
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = milliseconds())]
    retry_backoff_ms: u64,
}

/// What a fault-injection harness passes; nothing that a plain start needs.
#[derive(Debug, Args)]
#[command(next_help_heading = "For fault injection")]
struct HarnessArguments {
    /// Switch a deliberate mistake on, to see whether it is noticed. The node then breaks promises:
    /// acknowledged writes may be lost. Needs --allow-seeded-bugs.
    #[arg(long, value_name = "NAME")]
    bug: Option<Bug>,
    /// Say that --bug is meant.
    #[arg(long)]
    allow_seeded_bugs: bool,
    /// Keep unsynced bytes in memory, so that SIGKILL loses them like a power cut.
    #[arg(long)]
    write_behind: bool,
    /// Append protocol events to this file, one JSON line each.
    #[arg(long, value_name = "FILE")]
    trace: Option<PathBuf>,
    /// Reading of CLOCK_MONOTONIC that counts as time 0 in the trace.
    #[arg(long, value_name = "NS", default_value_t = 0, requires = "trace")]
    trace_origin_ns: i64,
    /// Report messages between replicas in the trace as well.
    #[arg(long, requires = "trace")]
    trace_messages: bool,
    /// How often the node was started in this run, counting this start; for the trace.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "trace",
        value_parser = clap::value_parser!(u32).range(1..))]
    incarnation: u32,
    /// Inherited Unix socket to take commands from, 0 for standard input; the process ends when it
    /// is closed.
    #[arg(long, value_name = "DESCRIPTOR")]
    control_fd: Option<i32>,
    /// Die at once when the process that started this one dies (Linux).
    #[arg(long)]
    die_with_parent: bool,
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Peer {
    id: NodeId,
    url: String,
}

fn milliseconds() -> clap::builder::RangedU64ValueParser {
    // A day is beyond every sensible timer, and keeps sums of nanoseconds far from their limits.
    clap::value_parser!(u64).range(1..=86_400_000)
}

fn parse_level(text: &str) -> Result<tracing::Level, String> {
    // The library also takes numbers, in an order that nobody knows by heart.
    match text.parse() {
        Ok(level) if text.starts_with(|first: char| first.is_ascii_alphabetic()) => Ok(level),
        _ => Err("expected error, warn, info, debug or trace".into()),
    }
}

fn parse_id(text: &str) -> Result<NodeId, String> {
    match text.parse() {
        Ok(id @ 0..) => Ok(NodeId(id)),
        _ => Err(format!(
            "{text:?} is not a node id: a whole number from 0 to {}",
            i32::MAX
        )),
    }
}

fn parse_peer(text: &str) -> Result<Peer, String> {
    let (id, url) = text
        .split_once('=')
        .ok_or("expected ID=URL, for example 2=http://127.0.0.1:9002")?;
    let id = parse_id(id)?;
    let parsed = reqwest::Url::parse(url).map_err(|error| format!("{url:?}: {error}"))?;
    let plain = parsed.scheme() == "http"
        && parsed.has_host()
        && parsed.path() == "/"
        && parsed.query().is_none()
        && parsed.fragment().is_none()
        && parsed.username().is_empty()
        && parsed.password().is_none();
    if !plain || parsed.port() == Some(0) {
        return Err(format!(
            "{url:?}: expected http://HOST:PORT and nothing else"
        ));
    }
    Ok(Peer {
        id,
        url: parsed.as_str().trim_end_matches('/').to_string(),
    })
}

/// Runs the command line of `kraft-node`. The first argument is the name of the program, as in
/// [`std::env::args_os`]. Does not return before the node has stopped; a node that cannot go on
/// ends the process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    match Arguments::try_parse_from(arguments) {
        Ok(arguments) => match arguments.command {
            Command::Start(start) => run_node(&start),
            Command::Describe(describe) => describe::run(&describe),
            Command::DumpLog(dump_log) => dump_log::run(&dump_log),
            Command::DumpSnapshot(dump) => dump_snapshot::run(&dump),
            Command::Format(format) => format::run(&format),
            Command::RandomId => format::random_id(),
            Command::AddController(add) => controllers::add(&add),
            Command::RemoveController(remove) => controllers::remove(&remove),
        },
        Err(error) => report_usage(&error),
    }
}

fn run_node(start: &StartArguments) -> ExitCode {
    let refuse = |code, message: &str| {
        log::refusal(start.id, start.log.log_format, &in_one_line(message));
        ExitCode::from(code)
    };
    let options = match prepare(start) {
        Ok(options) => options,
        Err(Problem::Arguments(message)) => return refuse(EXIT_ARGUMENTS, &message),
        Err(Problem::Environment(message)) => return refuse(EXIT_ENVIRONMENT, &message),
    };
    log::install(start.id, start.log.log_format, start.log.log_level);
    report_panics(start.id);
    match server::run(options) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error @ ServerError::Stuck) => refuse(EXIT_STOPPED, &error.to_string()),
        Err(error) => refuse(EXIT_ENVIRONMENT, &error.to_string()),
    }
}

enum Problem {
    Arguments(String),
    Environment(String),
}

fn prepare(start: &StartArguments) -> Result<ServerOptions, Problem> {
    let peer_urls = check(start).map_err(Problem::Arguments)?;
    if start.harness.die_with_parent {
        die_with_parent().map_err(Problem::Environment)?;
    }
    let control = start
        .harness
        .control_fd
        .map(control::inherit)
        .transpose()
        .map_err(Problem::Arguments)?;
    // Where the voters are in the log, as formatting leaves them, those go before these.
    let mut voters: BTreeSet<_> = peer_urls.keys().copied().collect();
    voters.insert(start.id);
    let bootstrap_ids: BTreeSet<_> = start.bootstrap.iter().map(|peer| peer.id).collect();
    if !bootstrap_ids.is_empty() {
        voters.clear();
    }
    let trace = start.harness.trace.clone().map(|path| TraceOptions {
        path,
        origin_ns: start.harness.trace_origin_ns,
        messages: start.harness.trace_messages,
        incarnation: start.harness.incarnation,
    });
    Ok(ServerOptions {
        configuration: Configuration {
            bug: start.harness.bug,
            bootstrap: bootstrap_ids,
            endpoint: Some(advertised(start)),
            auto_join: start.auto_join,
            ..Configuration::of_static_voters(
                start.id,
                &start.cluster_id,
                voters.into_iter().collect(),
                start.timers.in_nanoseconds(),
                start.seed.unwrap_or_else(|| fresh_seed(start.id)),
            )
        },
        listen: start.listen.clone(),
        peer_urls,
        node: node_options(start).map_err(Problem::Environment)?,
        data: start.data.clone(),
        write_behind: start.harness.write_behind,
        trace,
        control,
        client_deadline_ms: start.client_deadline_ms,
        max_connection_count: start.max_connections as usize,
    })
}

/// What no single argument shows.
fn check(start: &StartArguments) -> Result<BTreeMap<NodeId, String>, String> {
    if let Some(bug) = start.harness.bug
        && !start.harness.allow_seeded_bugs
    {
        return Err(format!(
            "--bug {bug} makes this node break its promises ({}), so it has to be meant: add \
             --allow-seeded-bugs for a test, or leave --bug out",
            bug.description()
        ));
    }
    let timers = &start.timers;
    if timers.fetch_max_wait_ms >= timers.fetch_timeout_ms {
        return Err(format!(
            "--fetch-max-wait-ms {} must be less than --fetch-timeout-ms {}: followers would give up \
             on a leader that has nothing new",
            timers.fetch_max_wait_ms, timers.fetch_timeout_ms
        ));
    }
    let mut peer_urls = BTreeMap::new();
    let peers = start.peers.iter().map(|peer| ("--peer", peer));
    let bootstrap = start.bootstrap.iter().map(|peer| ("--bootstrap", peer));
    for (flag, Peer { id, url }) in peers.chain(bootstrap) {
        if *id == start.id {
            return Err(format!(
                "{flag} {}={url}: this node has that id itself",
                id.0
            ));
        }
        if let Some(other) = peer_urls.insert(*id, url.clone()) {
            return Err(format!(
                "{flag} {}={url}: peer {} is given before as {other}",
                id.0, id.0
            ));
        }
    }
    let distinct: BTreeSet<_> = peer_urls.values().collect();
    if distinct.len() < peer_urls.len() {
        return Err("two peers have the same URL; each node listens at its own".into());
    }
    Ok(peer_urls)
}

/// Where others are told to reach this node.
fn advertised(start: &StartArguments) -> String {
    let listens = || format!("http://{}", start.listen);
    start.advertise.clone().unwrap_or_else(listens)
}

fn node_options(start: &StartArguments) -> Result<NodeOptions, String> {
    let snapshots = &start.snapshots;
    Ok(NodeOptions {
        storage: StorageOptions {
            segment_bytes: snapshots.segment_bytes,
            ..StorageOptions::default()
        },
        snapshots: SnapshotOptions {
            bytes_between: snapshots.snapshot_bytes,
            interval_ns: snapshots.snapshot_interval_ms.saturating_mul(1_000_000),
            retention_bytes: snapshots.retention_bytes,
            retention_ms: snapshots.retention_ms,
        },
        new_directory_id: Some(format::draw()?),
    })
}

impl TimerArguments {
    fn in_nanoseconds(&self) -> Timers {
        let nanoseconds = |milliseconds: u64| milliseconds * 1_000_000;
        Timers {
            election_timeout_ns: nanoseconds(self.election_timeout_ms),
            fetch_timeout_ns: nanoseconds(self.fetch_timeout_ms),
            election_backoff_max_ns: nanoseconds(self.election_backoff_max_ms),
            fetch_max_wait_ns: nanoseconds(self.fetch_max_wait_ms),
            request_timeout_ns: nanoseconds(self.request_timeout_ms),
            retry_backoff_ns: nanoseconds(self.retry_backoff_ms),
        }
    }
}

fn fresh_seed(id: NodeId) -> u64 {
    let now = SystemTime::now()
        .duration_since(UNIX_EPOCH)
        .unwrap_or_default();
    // Truncation keeps the bits that change.
    now.as_nanos() as u64 ^ u64::from(std::process::id()) << 32 ^ u64::from(id.0.unsigned_abs())
}

/// Asks the kernel to kill this process with the *thread* that started it.
#[cfg(target_os = "linux")]
fn die_with_parent() -> Result<(), String> {
    use nix::sys::{prctl, signal::Signal};

    let parent = nix::unistd::getppid();
    prctl::set_pdeathsig(Signal::SIGKILL)
        .map_err(|error| format!("--die-with-parent is refused by the system: {error}"))?;
    // A parent that died before the request took effect sends no signal any more. One that died
    // before this process could even look is noticed through the control socket.
    if nix::unistd::getppid() == parent {
        Ok(())
    } else {
        Err("the process that started this node is gone".into())
    }
}

#[cfg(not(target_os = "linux"))]
fn die_with_parent() -> Result<(), String> {
    Err("--die-with-parent exists on Linux only; use --control-fd, which works everywhere".into())
}

/// A panic ends the process with one line, wherever it happens.
fn report_panics(node: NodeId) {
    std::panic::set_hook(Box::new(move |panic| {
        let payload = panic.payload();
        let message = payload
            .downcast_ref::<&str>()
            .copied()
            .or_else(|| payload.downcast_ref::<String>().map(String::as_str))
            .unwrap_or("an unknown failure");
        let location = panic
            .location()
            .map_or_else(String::new, |at| format!(" (at {at})"));
        server::stop_at_once(node, format_args!("{}{location}", in_one_line(message)));
    }));
}

fn report_usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => {
            // A closed standard output is no reason to fail.
            let _ = error.print();
            ExitCode::SUCCESS
        }
        ErrorKind::DisplayHelpOnMissingArgumentOrSubcommand => {
            let _ = error.print();
            ExitCode::from(EXIT_ARGUMENTS)
        }
        _ => {
            let text = error.to_string();
            let problem = text.split("\n\nUsage:").next().unwrap_or(&text);
            let problem = problem
                .split("\n\nFor more information")
                .next()
                .unwrap_or(problem);
            let problem = problem.strip_prefix("error: ").unwrap_or(problem);
            fail(
                EXIT_ARGUMENTS,
                &format!("{}; see --help", in_one_line(problem)),
            )
        }
    }
}

fn fail(code: u8, message: &str) -> ExitCode {
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "kraft-node: {}", in_one_line(message));
    ExitCode::from(code)
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    fn parse(more: &[&str]) -> Result<StartArguments, String> {
        let given = [
            "kraft-node",
            "start",
            "--id",
            "1",
            "--listen",
            "localhost:0",
            "--data",
            "d",
        ];
        let command = Arguments::try_parse_from(given.iter().chain(more))
            .map_err(|error| error.to_string())?
            .command;
        match command {
            Command::Start(start) => Ok(*start),
            other => panic!("not a start: {other:?}"),
        }
    }

    fn rejected(more: &[&str]) -> String {
        match parse(more) {
            Err(message) => message,
            Ok(start) => check(&start).expect_err("these arguments make no sense"),
        }
    }

    #[test]
    fn the_command_line_is_sound() {
        use clap::CommandFactory;
        Arguments::command().debug_assert();
    }

    #[test]
    fn defaults_are_kafkas() {
        let start = parse(&[]).unwrap();
        let milliseconds = |ns: u64| ns / 1_000_000;
        let timers = start.timers.in_nanoseconds();
        assert_eq!(milliseconds(timers.election_timeout_ns), 1000);
        assert_eq!(milliseconds(timers.fetch_timeout_ns), 2000);
        assert_eq!(milliseconds(timers.election_backoff_max_ns), 1000);
        assert_eq!(milliseconds(timers.fetch_max_wait_ns), 500);
        assert_eq!(milliseconds(timers.request_timeout_ns), 2000);
        assert_eq!(milliseconds(timers.retry_backoff_ns), 20);
        assert_eq!(start.cluster_id, "kraft-harness");
        assert_eq!((start.harness.bug, start.harness.control_fd), (None, None));
        assert!(check(&start).unwrap().is_empty());
    }

    #[test]
    fn peers_are_ids_with_plain_urls() {
        let peer = |url: &str| Peer {
            id: NodeId(2),
            url: url.into(),
        };
        assert_eq!(
            parse_peer("2=http://127.0.0.1:9002"),
            Ok(peer("http://127.0.0.1:9002"))
        );
        assert_eq!(
            parse_peer("2=http://[::1]:9002/"),
            Ok(peer("http://[::1]:9002"))
        );
        for bad in [
            "2",
            "=http://a:1",
            "-2=http://a:1",
            "x=http://a:1",
            "2=a:1",
            "2=https://a:1",
            "2=http://a:0",
            "2=http://a:99999",
            "2=http://u:p@a:1",
            "2=http://a:1/path",
            "2=http://a:1?query",
            "2=",
        ] {
            assert!(parse_peer(bad).is_err(), "{bad}");
        }
    }

    #[test]
    fn arguments_that_make_no_sense_are_named() {
        let (two, three) = ("2=http://a:2", "3=http://a:3");
        assert!(parse(&["--peer", two, "--peer", three]).is_ok());
        for (more, named) in [
            (&["--peer", "1=http://a:1"][..], "--peer 1=http://a:1"),
            (
                &["--peer", two, "--peer", "2=http://a:3"],
                "peer 2 is given before",
            ),
            (&["--peer", two, "--peer", "3=http://a:2"], "same URL"),
            (&["--peer", "2=ftp://a:1"], "expected http://HOST:PORT"),
            (
                &["--fetch-max-wait-ms", "2000"],
                "less than --fetch-timeout-ms 2000",
            ),
            (&["--election-timeout-ms", "0"], "--election-timeout-ms"),
            (&["--retry-backoff-ms", "-1"], "'-1'"),
            (&["--bug", "B99"], "hwm-any-epoch"),
            (&["--bug", "stale-read"], "--allow-seeded-bugs"),
            (&["--log-level", "3"], "--log-level"),
            (&["--log-format", "xml"], "json"),
            (&["--max-connections", "0"], "--max-connections"),
            (&["--incarnation", "2"], "--trace"),
            (&["--trace", "f", "--incarnation", "0"], "--incarnation"),
        ] {
            let message = rejected(more);
            assert!(message.contains(named), "{more:?}: {message}");
        }
    }

    #[test]
    fn a_repeated_option_counts_as_given_last_and_peers_add_up() {
        let start = parse(&[
            "--seed=1",
            "--peer=2=http://a:2",
            "--seed=2",
            "--peer=3=http://a:3",
        ]);
        let start = start.unwrap();
        assert_eq!((start.seed, start.peers.len()), (Some(2), 2));
    }

    #[test]
    fn seeded_bugs_are_known_by_name_and_by_id() {
        for bug in Bug::ALL {
            for name in [bug.name(), bug.id()] {
                let start = parse(&["--bug", name, "--allow-seeded-bugs"]).unwrap();
                assert_eq!(start.harness.bug, Some(bug));
                assert!(check(&start).is_ok());
            }
        }
    }
}
