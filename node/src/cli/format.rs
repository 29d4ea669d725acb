//! Owns `kraft-node format`: which cluster a data directory is for, and which voters it begins with.
//! Never touches a directory that is in use or not empty.

use std::collections::BTreeSet;
use std::fs;
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::{ArgGroup, Args};

use super::leader::parse_server;
use super::output::{print, say};
use super::{EXIT_ARGUMENTS, EXIT_ENVIRONMENT, fail, parse_id};
use crate::ids::{DirectoryId, NodeId, ReplicaKey};
use crate::raft::RecordedVoters;
use crate::storage::{DirectoryDisk, Identity, format, meta};
use crate::voters::{VersionRange, Voter, VoterSet};

const EXAMPLES: &str = "\
Examples:
  The first node of a cluster that grows later:
    kraft-node format --id 1 --data /tmp/n1 --standalone --endpoint 127.0.0.1:9001

  A node that joins it, as an observer at first:
    kraft-node format --id 2 --data /tmp/n2 --no-initial-controllers

  One of three voters that start together; each is formatted with the same list:
    kraft-node format --id 1 --data /tmp/n1 --initial-controllers \\
        1@127.0.0.1:9001:ASNFZ4mrze8BI0VniavN7w,2@127.0.0.1:9002:...,3@127.0.0.1:9003:...

A new directory id is drawn unless the list, or --directory-id, gives one. `kraft-node random-id`
draws ids for such a list.";

#[derive(Debug, Args)]
#[command(after_help = EXAMPLES)]
#[command(group = ArgGroup::new("voters").required(true)
    .args(["standalone", "initial_controllers", "no_initial_controllers"]))]
pub(super) struct FormatArguments {
    /// Id of the node.
    #[arg(long, value_parser = parse_id)]
    id: NodeId,
    /// Name of the cluster; nodes of other clusters are refused.
    #[arg(long, value_name = "NAME", default_value = "kraft-harness")]
    cluster_id: String,
    /// Directory for everything that must survive a restart; created if needed.
    #[arg(long, value_name = "DIRECTORY")]
    data: PathBuf,
    /// Id of the directory, 22 characters of URL-safe base64. Drawn at random without it.
    #[arg(long, value_name = "ID", allow_hyphen_values = true)]
    directory_id: Option<DirectoryId>,
    /// This node is the only voter at first.
    #[arg(long, requires = "endpoint")]
    standalone: bool,
    /// Where this node will listen, for --standalone.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_server)]
    endpoint: Option<String>,
    /// The voters that begin the cluster, this node among them: ID@HOST:PORT:DIRECTORY_ID each.
    #[arg(long, value_name = "LIST", value_delimiter = ',', value_parser = parse_controller)]
    initial_controllers: Vec<Voter>,
    /// This node joins a cluster that exists: it learns the voters from the leader.
    #[arg(long)]
    no_initial_controllers: bool,
}

/// Reads `ID@HOST:PORT:DIRECTORY_ID`, as Kafka's tool takes it.
fn parse_controller(text: &str) -> Result<Voter, String> {
    let shape = || format!("{text:?}: expected ID@HOST:PORT:DIRECTORY_ID");
    let (id, rest) = text.split_once('@').ok_or_else(shape)?;
    let (address, directory_id) = rest.rsplit_once(':').ok_or_else(shape)?;
    let directory_id = directory_id
        .parse::<DirectoryId>()
        .map_err(|error| error.to_string())?;
    Ok(Voter {
        key: ReplicaKey {
            id: parse_id(id)?,
            directory_id: Some(directory_id),
        },
        endpoint: Some(parse_server(address)?),
        versions: VersionRange::SUPPORTED,
    })
}

pub(super) fn run(arguments: &FormatArguments) -> ExitCode {
    let (directory_id, voters) = match plan(arguments) {
        Ok(plan) => plan,
        Err(message) => return fail(EXIT_ARGUMENTS, &message),
    };
    let identity = Identity {
        cluster_id: arguments.cluster_id.clone(),
        node_id: arguments.id,
    };
    let bootstrap = voters.map(|voters| RecordedVoters {
        kraft_version: 1,
        voters,
    });
    let outcome = DirectoryDisk::open(&arguments.data)
        .map_err(|error| error.to_string())
        .and_then(|mut disk| {
            format(&mut disk, &identity, directory_id, bootstrap).map_err(|error| error.to_string())
        });
    if let Err(message) = outcome {
        let data = arguments.data.display();
        return fail(
            EXIT_ENVIRONMENT,
            &format!("cannot format {data}: {message}"),
        );
    }
    let data = arguments.data.display();
    say(&format!(
        "formatted {data} for {identity}, directory id {directory_id}"
    ))
}

/// The directory id, and the voters to begin with if there are any yet.
fn plan(arguments: &FormatArguments) -> Result<(DirectoryId, Option<VoterSet>), String> {
    if arguments.endpoint.is_some() && !arguments.standalone {
        // The parser does not demand what other arguments exclude.
        return Err(
            "--endpoint is for --standalone only: a list of controllers says where each of them listens, and \
             a node that joins later says so when it is started"
                .into(),
        );
    }
    if arguments.no_initial_controllers {
        return Ok((given_or_drawn(arguments.directory_id)?, None));
    }
    if arguments.standalone {
        let directory_id = given_or_drawn(arguments.directory_id)?;
        let voter = Voter {
            key: ReplicaKey {
                id: arguments.id,
                directory_id: Some(directory_id),
            },
            endpoint: arguments.endpoint.clone(),
            versions: VersionRange::SUPPORTED,
        };
        return Ok((directory_id, Some([voter].into_iter().collect())));
    }
    let controllers = &arguments.initial_controllers;
    let voters: VoterSet = controllers.iter().cloned().collect();
    if voters.len() < controllers.len() {
        return Err("--initial-controllers names an id twice".into());
    }
    let directory_ids: BTreeSet<_> = voters.iter().map(|voter| voter.key.directory_id).collect();
    let endpoints: BTreeSet<_> = voters.iter().map(|voter| &voter.endpoint).collect();
    if directory_ids.len().min(endpoints.len()) < voters.len() {
        // A line was copied: directory ids are unique, and one address reaches one node only.
        return Err(
            "--initial-controllers gives two nodes the same address or directory id".into(),
        );
    }
    let own = voters
        .get(arguments.id)
        .and_then(|own| own.key.directory_id);
    let Some(directory_id) = own else {
        return Err(format!(
            "--initial-controllers does not name node {}; a node that joins later is formatted \
             with --no-initial-controllers",
            arguments.id.0
        ));
    };
    match arguments.directory_id {
        Some(given) if given != directory_id => Err(format!(
            "--directory-id {given} differs from {directory_id} in --initial-controllers"
        )),
        _ => Ok((directory_id, Some(voters))),
    }
}

fn given_or_drawn(given: Option<DirectoryId>) -> Result<DirectoryId, String> {
    match given {
        Some(given) => Ok(given),
        None => draw(),
    }
}

/// `kraft-node random-id`.
pub(super) fn random_id() -> ExitCode {
    match draw() {
        Ok(id) => print(&format!("{id}\n")),
        Err(message) => fail(EXIT_ENVIRONMENT, &message),
    }
}

/// A new directory id.
pub(super) fn draw() -> Result<DirectoryId, String> {
    loop {
        let mut bytes = [0; 16];
        getrandom::fill(&mut bytes).map_err(|error| format!("no random numbers: {error}"))?;
        let id = DirectoryId(u128::from_be_bytes(bytes));
        // Kafka writes "none" as zero, and its tools take a leading dash for an option.
        if id.0 != 0 && !id.to_string().starts_with('-') {
            return Ok(id);
        }
    }
}

/// Which replica a data directory is of. The node may be running.
pub(super) fn replica_of(data: &Path) -> Result<ReplicaKey, String> {
    let path = data.join(meta::FILE);
    let bytes =
        fs::read(&path).map_err(|error| format!("cannot read {}: {error}", path.display()))?;
    let key = meta::replica_of(&bytes).map_err(|error| error.to_string())?;
    match key.directory_id {
        Some(_) => Ok(key),
        None => Err(format!(
            "{} has no directory id; start the node once to give it one",
            path.display()
        )),
    }
}

#[cfg(test)]
mod tests {
    use clap::Parser;

    use super::*;

    #[derive(Debug, Parser)]
    struct Arguments {
        #[command(flatten)]
        format: FormatArguments,
    }

    const LIST: &str =
        "1@127.0.0.1:9001:ASNFZ4mrze8BI0VniavN7w,2@[::1]:9002:AAAAAAAAAAAAAAAAAAAAAQ";

    fn parsed(more: &[&str]) -> Result<(DirectoryId, Option<VoterSet>), String> {
        let given = ["format", "--id", "1", "--data", "/nowhere"];
        let all = given.iter().chain(more);
        let arguments = Arguments::try_parse_from(all).map_err(|error| error.to_string())?;
        plan(&arguments.format)
    }

    #[test]
    fn a_directory_id_may_begin_with_a_dash() {
        let id = "-SNFZ4mrze8BI0VniavN7w";
        for given in [
            &["--directory-id", id][..],
            &[&format!("--directory-id={id}")],
        ] {
            let arguments = [given, &["--no-initial-controllers"]].concat();
            let (directory_id, _) = parsed(&arguments).unwrap();
            assert_eq!(directory_id.to_string(), id);
        }
    }

    #[test]
    fn a_listed_node_takes_the_directory_of_the_list() {
        let (directory_id, voters) = parsed(&["--initial-controllers", LIST]).unwrap();
        assert_eq!(directory_id.to_string(), "ASNFZ4mrze8BI0VniavN7w");
        let voters = voters.unwrap();
        assert_eq!(voters.len(), 2);
        let second = voters.get(NodeId(2)).unwrap();
        assert_eq!(second.endpoint.as_deref(), Some("http://[::1]:9002"));
        assert_eq!(second.key.directory_id, Some(DirectoryId(1)));
    }

    #[test]
    fn a_single_voter_knows_itself_and_a_joining_node_nobody() {
        let (id, voters) = parsed(&["--standalone", "--endpoint", "127.0.0.1:9001"]).unwrap();
        let own = voters.unwrap().get(NodeId(1)).unwrap().clone();
        assert_eq!(own.key.directory_id, Some(id));
        assert_eq!(parsed(&["--no-initial-controllers"]).unwrap().1, None);
    }

    #[test]
    fn what_makes_no_sense_is_refused() {
        for (arguments, why) in [
            (&[][..], "required"),
            (&["--standalone"], "--endpoint"),
            (
                &[
                    "--standalone",
                    "--endpoint",
                    "x:1",
                    "--no-initial-controllers",
                ],
                "cannot be used",
            ),
            (
                &["--no-initial-controllers", "--endpoint", "x:1"],
                "--standalone only",
            ),
            (
                &["--initial-controllers", LIST, "--endpoint", "x:1"],
                "--standalone only",
            ),
            (
                &["--initial-controllers", "1@127.0.0.1:9001"],
                "not a directory id",
            ),
            (
                &["--initial-controllers", "1@h:1:nonsense"],
                "not a directory id",
            ),
            (
                &["--initial-controllers", "2@h:1:AAAAAAAAAAAAAAAAAAAAAQ"],
                "does not name node 1",
            ),
            (
                &[
                    "--initial-controllers",
                    "1@h:1:AAAAAAAAAAAAAAAAAAAAAQ,1@h:2:AAAAAAAAAAAAAAAAAAAAAg",
                ],
                "twice",
            ),
            (
                &[
                    "--initial-controllers",
                    "1@h:1:AAAAAAAAAAAAAAAAAAAAAQ,2@h:2:AAAAAAAAAAAAAAAAAAAAAQ",
                ],
                "the same address or directory id",
            ),
            (
                &[
                    "--initial-controllers",
                    "1@h:1:AAAAAAAAAAAAAAAAAAAAAQ,2@h:1:AAAAAAAAAAAAAAAAAAAAAg",
                ],
                "the same address or directory id",
            ),
            (
                &[
                    "--initial-controllers",
                    LIST,
                    "--directory-id",
                    "AAAAAAAAAAAAAAAAAAAAAQ",
                ],
                "differs",
            ),
        ] {
            let refusal = parsed(arguments).unwrap_err();
            assert!(refusal.contains(why), "{arguments:?}: {refusal}");
        }
    }
}
