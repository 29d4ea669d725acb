//! Owns the command line of a node: its commands, and how they end.
//! Never does what a command does.

mod controllers;
mod data_directory;
mod describe;
mod dump_log;
mod dump_snapshot;
mod format;
mod leader;
mod output;
mod program;
mod start;
mod start_arguments;

use std::ffi::OsString;
use std::io::{self, Write};
use std::process::ExitCode;

use clap::error::ErrorKind;
use clap::{CommandFactory, FromArgMatches, Parser, Subcommand};

use crate::ids::NodeId;

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

  A cluster whose voters can change: format its nodes first (see kraft-node format --help).
    kraft-node start --id 1 --listen 127.0.0.1:9001 --data /tmp/n1
    kraft-node start --id 2 --listen 127.0.0.1:9002 --data /tmp/n2 \\
        --bootstrap 1=http://127.0.0.1:9001
    kraft-node add-controller --bootstrap-server 127.0.0.1:9001 \\
        --data /tmp/n2 --endpoint 127.0.0.1:9002

  What the cluster looks like, and what is in a log and in a snapshot:
    kraft-node describe --status --bootstrap-server 127.0.0.1:9001
    kraft-node dump-log --records --data /tmp/n1
    kraft-node dump-snapshot --data /tmp/n1

Exit codes: 0 stopped in an orderly way, 1 the node could not go on, a dump found damage or a change
of the voters was not made, 254 bad arguments, 255 the node could not start, or there is nothing to
ask, to describe or to dump, or the answer cannot be written.";

/// A small KRaft node with an HTTP front.
#[derive(Debug, Parser)]
#[command(name = program::OWN_NAME, version = crate::VERSION, after_help = EXAMPLES)]
struct Arguments {
    #[command(subcommand)]
    command: Command,
}

#[derive(Debug, Subcommand)]
enum Command {
    /// Start a node and run it until SIGTERM, SIGINT or SIGHUP.
    #[command(after_help = EXAMPLES, args_override_self = true)]
    Start(Box<start_arguments::StartArguments>),
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
    /// Put voters that are configured into the log, where they can change (kraft.version 1).
    Upgrade(controllers::UpgradeArguments),
}

#[derive(Debug, Clone, PartialEq, Eq)]
struct Peer {
    id: NodeId,
    url: String,
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
    let parsed = reqwest::Url::parse(url)
        .map_err(|error| format!("{url:?}: {error}; expected http://HOST:PORT"))?;
    let plain = parsed.scheme() == "http"
        && parsed.has_host()
        && parsed.path() == "/"
        && parsed.query().is_none()
        && parsed.fragment().is_none()
        && parsed.username().is_empty()
        && parsed.password().is_none();
    // What is parsed hides the port that HTTP has of itself.
    let port = url.trim_end_matches('/').rsplit_once(':');
    let port = port.and_then(|(_, port)| port.parse::<u16>().ok());
    if !plain || port.is_none_or(|port| port == 0) {
        return Err(format!(
            "{url:?}: expected http://HOST:PORT and nothing else"
        ));
    }
    Ok(Peer {
        id,
        url: parsed.as_str().trim_end_matches('/').to_string(),
    })
}

/// The command line of `kraft-node`, for those who check what is written about it.
pub fn definition() -> clap::Command {
    Arguments::command()
}

/// Runs the command line of `kraft-node`. The first argument is the name of the program, as in
/// [`std::env::args_os`]. Does not return before the node has stopped; a node that cannot go on
/// ends the process.
pub fn run(arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    run_as(program::OWN_NAME, arguments)
}

/// As [`run`], for a program in which this one is called in another way, `name`: help and complaints say so.
pub fn run_as(name: &str, arguments: impl IntoIterator<Item = OsString>) -> ExitCode {
    program::call(name);
    let mut command = program::named(definition(), name);
    let parsed = command
        .try_get_matches_from_mut(arguments)
        .and_then(|matches| Arguments::from_arg_matches(&matches))
        .map_err(|error| error.format(&mut command));
    match parsed {
        Ok(arguments) => match arguments.command {
            Command::Start(start) => start::run(&start),
            Command::Describe(describe) => describe::run(&describe),
            Command::DumpLog(dump_log) => dump_log::run(&dump_log),
            Command::DumpSnapshot(dump) => dump_snapshot::run(&dump),
            Command::Format(format) => format::run(&format),
            Command::RandomId => format::random_id(),
            Command::AddController(add) => controllers::add(&add),
            Command::RemoveController(remove) => controllers::remove(&remove),
            Command::Upgrade(upgrade) => controllers::upgrade(&upgrade),
        },
        Err(error) => report_usage(&error),
    }
}

fn report_usage(error: &clap::Error) -> ExitCode {
    match error.kind() {
        ErrorKind::DisplayHelp | ErrorKind::DisplayVersion => match error.print() {
            Ok(()) => ExitCode::SUCCESS,
            Err(error) => output::cannot_print(&error),
        },
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
    let (name, message) = (program::name(), in_one_line(message));
    // Nobody is left to tell when standard error is closed.
    let _ = writeln!(io::stderr(), "{name}: {}", program::as_typed(&message));
    ExitCode::from(code)
}

fn in_one_line(text: &str) -> String {
    text.split_whitespace().collect::<Vec<_>>().join(" ")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_command_line_is_sound() {
        Arguments::command().debug_assert();
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
}
