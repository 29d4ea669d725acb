//! Owns `kraft-node start`: from arguments that make sense to a node that runs.
//! Never starts anything before every argument is known to make sense.

use std::collections::BTreeSet;
use std::process::ExitCode;
use std::time::{SystemTime, UNIX_EPOCH};

use super::start_arguments::{StartArguments, announced, check};
use super::{EXIT_ARGUMENTS, EXIT_ENVIRONMENT, EXIT_STOPPED, data_directory, format, in_one_line};
use crate::ids::NodeId;
use crate::node_loop::{NodeOptions, SnapshotOptions};
use crate::raft::Configuration;
use crate::server::{self, ServerError, ServerOptions, TraceOptions, control, log};
use crate::storage::StorageOptions;

pub(super) fn run(start: &StartArguments) -> ExitCode {
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
    let ways = check(start).map_err(Problem::Arguments)?;
    data_directory::check(start).map_err(Problem::Environment)?;
    if start.harness.die_with_parent {
        die_with_parent().map_err(Problem::Environment)?;
    }
    let control = start
        .harness
        .control_fd
        .map(control::inherit)
        .transpose()
        .map_err(Problem::Arguments)?;
    // In a formatted directory the voters are in the log, and these are not used.
    let mut voters: BTreeSet<_> = ways.peers.keys().copied().collect();
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
            endpoint: announced(start),
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
        peer_urls: ways.peers,
        routes: ways.routes,
        node: node_options(start).map_err(Problem::Environment)?,
        data: start.data.clone(),
        write_behind: start.harness.write_behind,
        trace,
        control,
        disk_faults: start.harness.disk_fault.clone(),
        client_deadline_ms: start.client_deadline_ms,
        max_connection_count: start.max_connections as usize,
    })
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
        ..NodeOptions::default()
    })
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
