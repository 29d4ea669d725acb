//! Owns the arguments of `kraft-node start`, and which of them make no sense together.
//! Never looks at the system: what the data directory demands is not known here.

use std::collections::{BTreeMap, BTreeSet};
use std::path::PathBuf;

use clap::Args;

use super::leader::parse_server;
use super::{Peer, parse_id, parse_peer};
use crate::ids::NodeId;
use crate::mutants::Bug;
use crate::raft::Timers;
use crate::server::log::LogFormat;
use crate::storage::injected_faults::NumberedFault;

/// Whether it looks like an address; whether this machine has it shows when it is used.
fn parse_listen(text: &str) -> Result<String, String> {
    let parts = text.rsplit_once(':');
    let parts = parts.filter(|(host, port)| !host.is_empty() && port.parse::<u16>().is_ok());
    match parts {
        Some(_) => Ok(text.to_owned()),
        None => Err("expected HOST:PORT, for example 127.0.0.1:9001".into()),
    }
}

#[derive(Debug, Args)]
pub(super) struct StartArguments {
    /// Id of this node.
    #[arg(long, value_parser = parse_id)]
    pub(super) id: NodeId,
    /// Name of the cluster; nodes of other clusters are refused.
    #[arg(long, value_name = "NAME", default_value = "kraft-harness")]
    pub(super) cluster_id: String,
    /// Address to listen on, for clients and peers alike. Port 0 takes a free port.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_listen)]
    pub(super) listen: String,
    /// Another voter: its id and where it listens. Repeat for each. The voters are this node and
    /// its peers, and must be the same for all nodes, and at every start.
    #[arg(long = "peer", value_name = "ID=URL", value_parser = parse_peer)]
    pub(super) peers: Vec<Peer>,
    /// A replica that may be asked who leads, where the voters are not given by --peer but are in
    /// the log: its id and where it listens. Repeat for several. Where voters in the log say that
    /// they listen goes before what is given here and by --peer.
    #[arg(long = "bootstrap", value_name = "ID=URL", value_parser = parse_peer,
        conflicts_with = "peers")]
    pub(super) bootstrap: Vec<Peer>,
    /// Reach this node there, whatever it says of itself: through a proxy or a tunnel. Repeat for
    /// several.
    #[arg(long = "route", value_name = "ID=URL", value_parser = parse_peer)]
    pub(super) routes: Vec<Peer>,
    /// Where others reach this node, as it is announced to them. Without it, the address it listens
    /// on.
    #[arg(long, value_name = "HOST:PORT", value_parser = parse_server)]
    pub(super) advertise: Option<String>,
    /// Ask to become a voter once this node has caught up, and again whenever it is removed: stop it
    /// before removing it.
    #[arg(long, requires = "bootstrap")]
    pub(super) auto_join: bool,
    /// Directory for everything that must survive a restart; created if needed.
    #[arg(long, value_name = "DIRECTORY")]
    pub(super) data: PathBuf,
    #[command(flatten)]
    pub(super) snapshots: SnapshotArguments,
    #[command(flatten)]
    pub(super) timers: TimerArguments,
    /// How long a client waits for the outcome of an operation before it is told that the outcome
    /// is unknown.
    #[arg(long, value_name = "MS", default_value_t = 5000, value_parser = milliseconds())]
    pub(super) client_deadline_ms: u64,
    /// How many connections there may be at once. When there are more, those that do nothing are
    /// closed; clients beyond that are refused, peers are not.
    #[arg(long, value_name = "N", default_value_t = 10_000,
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) max_connections: u32,
    /// Seed of the election timeouts. Without it they differ from start to start.
    #[arg(long, value_name = "N")]
    pub(super) seed: Option<u64>,
    #[command(flatten)]
    pub(super) log: LogArguments,
    #[command(flatten)]
    pub(super) harness: HarnessArguments,
}

/// What is written to standard error.
#[derive(Debug, Args)]
#[command(next_help_heading = "Log")]
pub(super) struct LogArguments {
    /// How log lines look: for people, or one JSON object per line.
    #[arg(long, value_name = "FORMAT", value_enum, default_value_t)]
    pub(super) log_format: LogFormat,
    /// Least important lines that are written: error, warn, info, debug or trace.
    #[arg(long, value_name = "LEVEL", default_value = "info", value_parser = parse_level)]
    pub(super) log_level: tracing::Level,
}

/// Snapshots and what is kept of the past, with Kafka's defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Snapshots")]
pub(super) struct SnapshotArguments {
    /// Take a snapshot once this many bytes of records were committed since the last one.
    #[arg(long, value_name = "BYTES", default_value_t = 20 * 1024 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) snapshot_bytes: u64,
    /// Take a snapshot after this time if anything was committed since the last one.
    #[arg(long, value_name = "MS", default_value_t = 3_600_000, value_parser = milliseconds())]
    pub(super) snapshot_interval_ms: u64,
    /// Delete old snapshots and log once they are larger than this together.
    #[arg(long, value_name = "BYTES", default_value_t = 100 * 1024 * 1024,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) retention_bytes: u64,
    /// Delete snapshots, and the log before them, that are older than this.
    #[arg(long, value_name = "MS", default_value_t = 7 * 24 * 3_600_000,
        value_parser = clap::value_parser!(u64).range(1..))]
    pub(super) retention_ms: u64,
    /// Close a file of the log before it would grow past this size.
    #[arg(long, value_name = "BYTES", default_value_t = 64 * 1024 * 1024,
        value_parser = clap::value_parser!(u64).range(4096..))]
    pub(super) segment_bytes: u64,
}

/// The protocol timers, with Kafka's defaults.
#[derive(Debug, Args)]
#[command(next_help_heading = "Protocol timers")]
pub(super) struct TimerArguments {
    /// Election timeout T; each election draws from T to 2T.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = milliseconds())]
    pub(super) election_timeout_ms: u64,
    /// How long a follower goes without an answer from the leader before it asks for an election.
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = milliseconds())]
    pub(super) fetch_timeout_ms: u64,
    /// Upper bound of the staggering of elections after a leader resigned.
    #[arg(long, value_name = "MS", default_value_t = 1000, value_parser = milliseconds())]
    pub(super) election_backoff_max_ms: u64,
    /// How long a leader holds a fetch that has nothing to return; less than the fetch timeout.
    #[arg(long, value_name = "MS", default_value_t = 500, value_parser = milliseconds())]
    pub(super) fetch_max_wait_ms: u64,
    /// How long to wait for a peer's answer.
    #[arg(long, value_name = "MS", default_value_t = 2000, value_parser = milliseconds())]
    pub(super) request_timeout_ms: u64,
    /// How long to wait before a failed request to a peer is repeated.
    #[arg(long, value_name = "MS", default_value_t = 20, value_parser = milliseconds())]
    pub(super) retry_backoff_ms: u64,
}

/// What a fault-injection harness passes; nothing that a plain start needs.
#[derive(Debug, Args)]
#[command(next_help_heading = "For fault injection")]
pub(super) struct HarnessArguments {
    /// Switch a deliberate mistake on, to see whether it is noticed. The node then breaks promises:
    /// acknowledged writes may be lost. Needs --allow-seeded-bugs.
    #[arg(long, value_name = "NAME")]
    pub(super) bug: Option<Bug>,
    /// Say that --bug is meant.
    #[arg(long)]
    pub(super) allow_seeded_bugs: bool,
    /// Keep unsynced bytes in memory, so that SIGKILL loses them like a power cut.
    #[arg(long)]
    pub(super) write_behind: bool,
    /// Append protocol events to this file, one JSON line each.
    #[arg(long, value_name = "FILE")]
    pub(super) trace: Option<PathBuf>,
    /// Reading of CLOCK_MONOTONIC that counts as time 0 in the trace.
    #[arg(long, value_name = "NS", default_value_t = 0, requires = "trace")]
    pub(super) trace_origin_ns: i64,
    /// Report messages between replicas in the trace as well.
    #[arg(long, requires = "trace")]
    pub(super) trace_messages: bool,
    /// How often the node was started in this run, counting this start; for the trace.
    #[arg(long, value_name = "N", default_value_t = 1, requires = "trace",
        value_parser = clap::value_parser!(u32).range(1..))]
    pub(super) incarnation: u32,
    /// Inherited Unix socket to take commands from, 0 for standard input; the process ends when it
    /// is closed.
    #[arg(long, value_name = "DESCRIPTOR")]
    pub(super) control_fd: Option<i32>,
    /// What the disk does wrong from the start on, as the command "disk-fault" of the control socket has it.
    #[arg(long, value_name = "JSON", requires = "control_fd", value_parser = parse_disk_fault)]
    pub(super) disk_fault: Vec<NumberedFault>,
    /// Die at once when the process that started this one dies (Linux).
    #[arg(long)]
    pub(super) die_with_parent: bool,
}

fn milliseconds() -> clap::builder::RangedU64ValueParser {
    // A day is beyond every sensible timer, and keeps sums of nanoseconds far from their limits.
    clap::value_parser!(u64).range(1..=86_400_000)
}

fn parse_disk_fault(text: &str) -> Result<NumberedFault, String> {
    serde_json::from_str(text).map_err(|error| error.to_string())
}

fn parse_level(text: &str) -> Result<tracing::Level, String> {
    // The library also takes numbers, in an order that nobody knows by heart.
    match text.parse() {
        Ok(level) if text.starts_with(|first: char| first.is_ascii_alphabetic()) => Ok(level),
        _ => Err("expected error, warn, info, debug or trace".into()),
    }
}

/// Where other replicas are to be looked for, as base URLs.
#[derive(Debug, Default)]
pub(super) struct Ways {
    /// Of voters and of those who may know them.
    pub(super) peers: BTreeMap<NodeId, String>,
    /// Which go before whatever else is known.
    pub(super) routes: BTreeMap<NodeId, String>,
}

/// What no single argument shows.
pub(super) fn check(start: &StartArguments) -> Result<Ways, String> {
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
    let peers = start.peers.iter().map(|peer| ("--peer", peer));
    let bootstrap = start.bootstrap.iter().map(|peer| ("--bootstrap", peer));
    let routes = start.routes.iter().map(|peer| ("--route", peer));
    let ways = Ways {
        peers: urls(start, peers.chain(bootstrap))?,
        routes: urls(start, routes)?,
    };
    if start.auto_join && announced(start).is_none() {
        return Err(format!(
            "--auto-join: others cannot reach this node at {}, where it listens; say where they can \
             with --advertise HOST:PORT",
            start.listen
        ));
    }
    Ok(ways)
}

/// What flags of one kind say.
fn urls<'a>(
    start: &StartArguments,
    given: impl Iterator<Item = (&'static str, &'a Peer)>,
) -> Result<BTreeMap<NodeId, String>, String> {
    let mut urls = BTreeMap::new();
    for (flag, Peer { id, url }) in given {
        if *id == start.id {
            return Err(format!(
                "{flag} {}={url}: this node has that id itself",
                id.0
            ));
        }
        if is_own(start, url) {
            return Err(format!(
                "{flag} {}={url}: this node listens there itself, so node {} cannot",
                id.0, id.0
            ));
        }
        if let Some(other) = urls.insert(*id, url.clone()) {
            return Err(format!(
                "{flag} {}={url}: peer {} is given before as {other}",
                id.0, id.0
            ));
        }
    }
    let distinct: BTreeSet<_> = urls.values().collect();
    if distinct.len() < urls.len() {
        return Err("two peers have the same URL; each node listens at its own".into());
    }
    Ok(urls)
}

/// Whether a URL leads to this node, as far as that can be told without asking anybody.
fn is_own(start: &StartArguments, url: &str) -> bool {
    let address = url.trim_start_matches("http://");
    let advertised = start.advertise.as_deref() == Some(url);
    let split = |address: &str| {
        let (host, port) = address.rsplit_once(':')?;
        Some((host.to_owned(), port.parse::<u16>().ok()?))
    };
    let listens = split(&start.listen).zip(split(address));
    // Port 0 is a free one, so nobody else has it yet.
    let is_same = listens.is_some_and(|((own, own_port), (host, port))| {
        let is_loopback = |host: &str| matches!(host, "localhost" | "127.0.0.1" | "[::1]");
        let is_everywhere = matches!(&*own, "0.0.0.0" | "[::]" | "");
        let is_same_host =
            own == host || (is_loopback(&host) && (is_everywhere || is_loopback(&own)));
        own_port == port && port != 0 && is_same_host
    });
    advertised || is_same
}

/// Where others are told to reach this node; `None` where nobody can know.
pub(super) fn announced(start: &StartArguments) -> Option<String> {
    let (host, _) = start.listen.rsplit_once(':')?;
    // To listen on all addresses is not to say which of them is the right one.
    let is_any = matches!(host, "0.0.0.0" | "[::]" | "");
    let listens = (!is_any).then(|| format!("http://{}", start.listen));
    start.advertise.clone().or(listens)
}

impl TimerArguments {
    pub(super) fn in_nanoseconds(&self) -> Timers {
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

/// What `kraft-node start` makes of these arguments, besides the required ones.
#[cfg(test)]
pub(super) fn parsed(more: &[&str]) -> Result<StartArguments, String> {
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
    use clap::Parser;
    let command = super::Arguments::try_parse_from(given.iter().chain(more))
        .map_err(|error| error.to_string())?
        .command;
    match command {
        super::Command::Start(start) => Ok(*start),
        other => panic!("not a start: {other:?}"),
    }
}

#[cfg(test)]
mod tests {
    use super::parsed as parse;
    use super::*;

    fn rejected(more: &[&str]) -> String {
        match parse(more) {
            Err(message) => message,
            Ok(start) => check(&start).expect_err("these arguments make no sense"),
        }
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
        let ways = check(&start).unwrap();
        assert!(ways.peers.is_empty() && ways.routes.is_empty());
    }

    #[test]
    fn a_disk_may_fail_from_the_start_on_where_somebody_can_mend_it() {
        let fault = r#"{"fault_id":7,"what":"read-error","files":"all"}"#;
        let start = parse(&["--control-fd", "0", "--disk-fault", fault]).unwrap();
        assert_eq!(start.harness.disk_fault[0].fault_id, 7);
        for more in [
            &["--disk-fault", fault][..],
            &["--control-fd", "0", "--disk-fault", "read-error"],
        ] {
            let error = parse(more).unwrap_err();
            assert!(
                error.contains("--control-fd") || error.contains("--disk-fault"),
                "{error}"
            );
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
            (&["--bootstrap", two, "--peer", three], "cannot be used"),
            (&["--bootstrap", "1=http://a:1"], "that id itself"),
            (&["--route", "1=http://a:1"], "--route 1=http://a:1"),
            (&["--route", two, "--route", "2=http://a:3"], "given before"),
            (&["--listen", "a:2", "--peer", two], "listens there itself"),
            (
                &[
                    "--listen",
                    "0.0.0.0:2",
                    "--bootstrap",
                    "2=http://localhost:2",
                ],
                "listens there itself",
            ),
            (
                &["--listen", "127.0.0.1:2", "--peer", "2=http://localhost:2"],
                "listens there itself",
            ),
            (
                &["--listen", "b:2", "--advertise", "a:2", "--route", two],
                "listens there itself",
            ),
            (&["--auto-join"], "--bootstrap"),
            (&["--advertise", "a:0"], "--advertise"),
            (
                &["--auto-join", "--bootstrap", two, "--listen", "0.0.0.0:9"],
                "--advertise",
            ),
            (&["--trace", "f", "--incarnation", "0"], "--incarnation"),
        ] {
            let message = rejected(more);
            assert!(message.contains(named), "{more:?}: {message}");
        }
    }

    #[test]
    fn a_route_may_lead_to_a_peer_as_well() {
        let start = parse(&["--peer", "2=http://a:2", "--route", "2=http://b:2"]).unwrap();
        let ways = check(&start).unwrap();
        let at = |url: &str| BTreeMap::from([(NodeId(2), url.to_owned())]);
        assert_eq!(
            (ways.peers, ways.routes),
            (at("http://a:2"), at("http://b:2"))
        );
    }

    #[test]
    fn what_is_announced_is_where_others_can_connect() {
        for (listen, advertise, announces) in [
            ("a:1", None, Some("http://a:1")),
            ("a:1", Some("b:2"), Some("http://b:2")),
            ("0.0.0.0:1", None, None),
            ("[::]:1", None, None),
            ("0.0.0.0:1", Some("b:2"), Some("http://b:2")),
        ] {
            let mut arguments = vec!["--listen", listen];
            arguments.extend(advertise.iter().flat_map(|given| ["--advertise", given]));
            let start = parse(&arguments).unwrap();
            assert_eq!(announced(&start).as_deref(), announces, "{arguments:?}");
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
