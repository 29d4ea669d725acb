//! Owns `kraft-node add-controller`, `remove-controller` and `upgrade`: changes of the voters, one at a time.
//! Never decides whether a change is allowed; the leader does.

use std::path::PathBuf;
use std::process::ExitCode;
use std::time::Duration;

use clap::Args;

use super::leader::{Quorum, parse_server, post};
use super::output::say;
use super::{EXIT_ENVIRONMENT, EXIT_STOPPED, fail, parse_id};
use crate::ids::{DirectoryId, NodeId, ReplicaKey};
use crate::message::{
    AddRaftVoterRequest, ErrorCode, RemoveRaftVoterRequest, Request, UpdateFeaturesRequest,
    VoterChangeResponse,
};
use crate::server::wire::{self, RequestKind};

#[derive(Debug, Args)]
pub(super) struct AddArguments {
    /// Any node of the cluster; the leader is found from there.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_server)]
    bootstrap_server: String,
    /// Data directory of the node to add, from which its id and directory id are read.
    #[arg(long, value_name = "DIRECTORY", conflicts_with_all = ["id", "directory_id"],
        required_unless_present_all = ["id", "directory_id"])]
    data: Option<PathBuf>,
    /// Id of the node to add.
    #[arg(long, value_parser = parse_id, requires = "directory_id")]
    id: Option<NodeId>,
    /// Directory id of the node to add.
    #[arg(long, value_name = "ID", requires = "id", allow_hyphen_values = true)]
    directory_id: Option<DirectoryId>,
    /// Where the node to add listens; it must run, and have caught up with the leader.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_server)]
    endpoint: String,
    /// How long the leader may wait for the new voter and for the others, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 30_000,
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    timeout_ms: u64,
    /// Only say what would be asked for.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct RemoveArguments {
    /// Any node of the cluster; the leader is found from there.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_server)]
    bootstrap_server: String,
    /// Id of the voter to remove.
    #[arg(long, short = 'i', value_parser = parse_id)]
    id: NodeId,
    /// Directory id of the voter to remove, as `describe --replication` shows it.
    #[arg(long, short = 'd', value_name = "ID", allow_hyphen_values = true)]
    directory_id: DirectoryId,
    /// Only say what would be asked for.
    #[arg(long)]
    dry_run: bool,
}

#[derive(Debug, Args)]
pub(super) struct UpgradeArguments {
    /// Any node of the cluster; the leader is found from there.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_server)]
    bootstrap_server: String,
    /// The version wanted: 1 puts the voters, configured so far, into the log. There is no way back.
    #[arg(long, value_name = "VERSION", default_value_t = 1)]
    kraft_version: u16,
    /// How long the leader may wait for a majority, in milliseconds.
    #[arg(long, value_name = "MS", default_value_t = 30_000,
        value_parser = clap::value_parser!(u64).range(1..=3_600_000))]
    timeout_ms: u64,
    /// Only ask the leader whether it can be done.
    #[arg(long)]
    dry_run: bool,
}

pub(super) fn upgrade(arguments: &UpgradeArguments) -> ExitCode {
    let (kraft_version, dry_run) = (arguments.kraft_version, arguments.dry_run);
    let request = |quorum: &Quorum| {
        Request::UpdateFeatures(UpdateFeaturesRequest {
            cluster_id: quorum.cluster_id.clone(),
            timeout_ms: arguments.timeout_ms,
            kraft_version,
            dry_run,
        })
    };
    let verb = if dry_run {
        "check the way to"
    } else {
        "upgrade to"
    };
    change(
        &arguments.bootstrap_server,
        RequestKind::UpdateFeatures,
        request,
        Duration::from_millis(arguments.timeout_ms),
        verb,
        &format!("kraft.version {kraft_version}"),
    )
}

pub(super) fn add(arguments: &AddArguments) -> ExitCode {
    let voter = match (&arguments.data, arguments.id, arguments.directory_id) {
        (Some(data), _, _) => match super::format::replica_of(data) {
            Ok(key) => key,
            Err(message) => return fail(EXIT_ENVIRONMENT, &message),
        },
        (None, Some(id), directory_id) => ReplicaKey { id, directory_id },
        (None, None, _) => return fail(EXIT_ENVIRONMENT, "which node to add is not given"),
    };
    let what = format!("{voter} at {} as a voter", arguments.endpoint);
    if arguments.dry_run {
        return say(&format!("would add {what}"));
    }
    let request = |quorum: &Quorum| {
        Request::AddRaftVoter(AddRaftVoterRequest {
            cluster_id: quorum.cluster_id.clone(),
            timeout_ms: arguments.timeout_ms,
            voter,
            endpoint: arguments.endpoint.clone(),
            ack_when_committed: true,
        })
    };
    let limit = Duration::from_millis(arguments.timeout_ms);
    change(
        &arguments.bootstrap_server,
        RequestKind::AddRaftVoter,
        request,
        limit,
        "add",
        &what,
    )
}

pub(super) fn remove(arguments: &RemoveArguments) -> ExitCode {
    let voter = ReplicaKey {
        id: arguments.id,
        directory_id: Some(arguments.directory_id),
    };
    let what = format!("{voter} from the voters");
    if arguments.dry_run {
        return say(&format!("would remove {what}"));
    }
    let request = |quorum: &Quorum| {
        Request::RemoveRaftVoter(RemoveRaftVoterRequest {
            cluster_id: quorum.cluster_id.clone(),
            voter,
        })
    };
    change(
        &arguments.bootstrap_server,
        RequestKind::RemoveRaftVoter,
        request,
        Duration::from_secs(30),
        "remove",
        &what,
    )
}

fn change(
    bootstrap_server: &str,
    kind: RequestKind,
    request: impl Fn(&Quorum) -> Request,
    limit: Duration,
    verb: &str,
    what: &str,
) -> ExitCode {
    let body = |quorum: &Quorum| wire::encode_request(&request(quorum));
    let outcome = post::<VoterChangeResponse>(bootstrap_server, kind.path(), body, limit);
    match outcome {
        Ok(response) if response.error == ErrorCode::None => say(&format!("{verb} {what}: done")),
        Ok(response) => {
            let code = serde_json::to_string(&response.error).unwrap_or_default();
            let code = code.trim_matches('"');
            let why = match response.message.as_str() {
                "" => code.to_owned(),
                message => format!("{code}: {message}"),
            };
            fail(EXIT_STOPPED, &format!("cannot {verb} {what}: {why}"))
        }
        Err(error) => fail(EXIT_ENVIRONMENT, &error.to_string()),
    }
}
