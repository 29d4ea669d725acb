//! Owns the metrics of a node as Prometheus reads them, under the names that Kafka gives them.
//! Never measures anything.
//!
//! A name is made of the domain, type and name of Kafka's MBean, in lower case with underscores. What Kafka gives as
//! a rate is also there as a total, from which Prometheus makes rates itself.

use std::fmt::{self, Write};

use crate::ids::DirectoryId;
use crate::node_loop::{DiskDescription, LoaderDescription, StateDescription};
use crate::raft::{QuorumDescription, Role};

use super::super::admission::Occupied;
use super::controller::{self, Operations};
use super::{Counted, Latency};

/// Media type of the text format.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

/// Kafka's names of the states. They also say whether a vote is given and whether it is a voter.
const STATES: [&str; 8] = [
    "leader",
    "candidate",
    "prospective",
    "prospective-voted",
    "follower",
    "observer",
    "unattached",
    "unattached-voted",
];

/// The state as Kafka's metric calls it; whoever has resigned counts as unattached there.
fn state_name(quorum: &QuorumDescription) -> &'static str {
    let has_voted = quorum.voted_for.is_some();
    match quorum.role {
        Role::Leader => "leader",
        Role::Candidate => "candidate",
        Role::Prospective if has_voted => "prospective-voted",
        Role::Prospective => "prospective",
        Role::Follower if quorum.is_voter => "follower",
        Role::Follower => "observer",
        Role::Unattached if has_voted => "unattached-voted",
        Role::Unattached | Role::Resigned => "unattached",
    }
}

/// When the newest record that is applied was proposed, as its leader's wall clock told.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LastApplied {
    /// Milliseconds since 1970; `None` where nothing was applied since the start.
    pub(crate) timestamp_ms: Option<i64>,
    /// This node's wall clock, in milliseconds since 1970.
    pub(crate) now_ms: i64,
}

impl LastApplied {
    pub(super) fn timestamp(self) -> Number {
        Number::Whole(self.timestamp_ms.unwrap_or(-1))
    }

    pub(super) fn lag_ms(self) -> Number {
        let lag_ms = |timestamp_ms| self.now_ms.saturating_sub(timestamp_ms).max(0);
        Number::Whole(self.timestamp_ms.map_or(-1, lag_ms))
    }
}

/// What is shown of a node at one moment.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Described<'a> {
    pub(crate) quorum: &'a QuorumDescription,
    pub(crate) state: StateDescription,
    pub(crate) disk: DiskDescription,
    pub(crate) loader: LoaderDescription,
    pub(crate) last_applied: LastApplied,
    pub(crate) operations: Operations,
    pub(crate) occupied: Occupied,
    pub(crate) counted: &'a Counted,
}

/// A metric's value; numbers that are not known are -1, durations `NaN`, as in Kafka.
#[derive(Debug, Clone, Copy)]
pub(super) enum Number {
    Whole(i64),
    Count(u64),
    Milliseconds { ns: u64, per: u64 },
    Ratio { part: u64, whole: u64 },
    PerSecond(f64),
}

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(formatter),
            Self::Count(number) => number.fmt(formatter),
            Self::PerSecond(rate) => rate.fmt(formatter),
            Self::Ratio { part, whole } if *whole > 0 => {
                (*part as f64 / *whole as f64).min(1.0).fmt(formatter)
            }
            Self::Ratio { .. } | Self::Milliseconds { per: 0, .. } => formatter.write_str("NaN"),
            Self::Milliseconds { ns, per } => {
                (*ns as f64 / *per as f64 / 1_000_000.0).fmt(formatter)
            }
        }
    }
}

/// All metrics in the text format of Prometheus.
pub(crate) fn render(described: Described<'_>) -> String {
    let Described {
        quorum,
        state,
        disk,
        loader,
        last_applied,
        operations,
        occupied,
        counted,
    } = described;
    let mut text = String::new();
    let name = "kafka_server_raft_metrics_current_state";
    head(&mut text, name, "gauge", "1 for the state the node is in.");
    let current = state_name(quorum);
    for state in STATES {
        let is_current = u8::from(state == current);
        let _ = writeln!(text, "{name}{{state=\"{state}\"}} {is_current}");
    }
    let name = "kafka_server_raft_metrics_current_vote_directory_id";
    let help = "1 for the data directory of the voter that has this node's vote, zeros for none.";
    head(&mut text, name, "gauge", help);
    let directory_id = quorum.voted_for_directory_id.unwrap_or(DirectoryId(0));
    let _ = writeln!(text, "{name}{{directory_id=\"{directory_id}\"}} 1");
    let mut gauges = of_quorum(quorum);
    gauges.extend(of_leader(quorum));
    gauges.extend(of_latencies(counted));
    gauges.extend(of_rates(counted));
    gauges.extend(of_room(occupied));
    gauges.extend(of_state(state, disk, counted));
    gauges.extend(of_last_applied(last_applied));
    gauges.extend(controller::gauges(
        quorum,
        state,
        loader,
        last_applied,
        counted,
    ));
    for (name, help, number) in gauges {
        head(&mut text, name, "gauge", help);
        let _ = writeln!(text, "{name} {number}");
    }
    let counters = [
        (
            "kafka_server_raft_metrics_append_records_total",
            "Records appended as the leader since the start.",
            counted.appended_record_count,
        ),
        (
            "kafka_server_raft_metrics_fetch_records_total",
            "Records fetched from leaders since the start.",
            counted.fetched_record_count,
        ),
    ];
    let of_controller = controller::counters(loader, operations, counted);
    for (name, help, count) in counters.into_iter().chain(of_controller) {
        head(&mut text, name, "counter", help);
        let _ = writeln!(text, "{name} {}", Number::Count(count));
    }
    for (name, help, latency) in controller::summaries(counted) {
        head(&mut text, name, "summary", help);
        let sum_ms = latency.sum_ns as f64 / 1_000_000.0;
        let _ = writeln!(text, "{name}_sum {sum_ms}\n{name}_count {}", latency.count);
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

/// Name, help and value.
pub(super) type Gauge = (&'static str, &'static str, Number);

fn of_quorum(quorum: &QuorumDescription) -> Vec<Gauge> {
    let whole = |number: Option<i64>| Number::Whole(number.unwrap_or(-1));
    let id = |node: Option<crate::ids::NodeId>| whole(node.map(|id| i64::from(id.0)));
    vec![
        (
            "kafka_server_raft_metrics_current_leader",
            "Who leads, -1 when not known.",
            id(quorum.leader),
        ),
        (
            "kafka_server_raft_metrics_current_vote",
            "Whom the node has voted for in its epoch, -1 for nobody.",
            id(quorum.voted_for),
        ),
        (
            "kafka_server_raft_metrics_current_epoch",
            "Epoch of the node.",
            whole(Some(i64::from(quorum.epoch.0))),
        ),
        (
            "kafka_server_raft_metrics_high_watermark",
            "Everything below is committed, -1 when not known.",
            whole(quorum.high_watermark.map(|offset| offset.0)),
        ),
        (
            "kafka_server_raft_metrics_log_end_offset",
            "End offset of the log.",
            whole(Some(quorum.log_end.0)),
        ),
        (
            "kafka_server_raft_metrics_log_end_epoch",
            "Epoch of the last record.",
            whole(Some(i64::from(quorum.log_end_epoch.0))),
        ),
        (
            "kafka_server_raft_metrics_number_of_voters",
            "How many voters there are.",
            Number::Count(quorum.voters.len() as u64),
        ),
        (
            "kafka_server_raft_metrics_number_unknown_voter_connections",
            "Always 0: every voter has an address as soon as it is known.",
            Number::Count(0),
        ),
    ]
}

/// What only a leader knows; others do not show it, as in Kafka.
fn of_leader(quorum: &QuorumDescription) -> Vec<Gauge> {
    if quorum.role != Role::Leader {
        return Vec::new();
    }
    vec![
        (
            "kafka_server_raft_metrics_number_of_observers",
            "How many other replicas fetch from this leader.",
            Number::Count(quorum.observers.len() as u64),
        ),
        (
            "kafka_server_raft_metrics_uncommitted_voter_change",
            "1 while a change of the voters is not committed.",
            Number::Count(u64::from(quorum.uncommitted_voter_change)),
        ),
    ]
}

fn of_latencies(counted: &Counted) -> [Gauge; 5] {
    let average = |latency: Latency| Number::Milliseconds {
        ns: latency.sum_ns,
        per: latency.count,
    };
    let longest = |latency: Latency| Number::Milliseconds {
        ns: latency.max_ns,
        per: latency.count.min(1),
    };
    [
        (
            "kafka_server_raft_metrics_commit_latency_avg",
            "Milliseconds from append to commit on this leader, average since the start.",
            average(counted.commit),
        ),
        (
            "kafka_server_raft_metrics_commit_latency_max",
            "Milliseconds from append to commit on this leader, longest since the start.",
            longest(counted.commit),
        ),
        (
            "kafka_server_raft_metrics_election_latency_avg",
            "Milliseconds from standing for election to a known leader, average since the start.",
            average(counted.election),
        ),
        (
            "kafka_server_raft_metrics_election_latency_max",
            "Milliseconds from standing for election to a known leader, longest since the start.",
            longest(counted.election),
        ),
        (
            "kafka_server_raft_metrics_poll_idle_ratio_avg",
            "Part of the time in which the node's loop had nothing to do, since the start.",
            counted.idle_ratio(),
        ),
    ]
}

fn of_rates(counted: &Counted) -> [Gauge; 2] {
    [
        (
            "kafka_server_raft_metrics_append_records_rate",
            "Records per second appended as the leader, in the last 30 to 60 seconds.",
            Number::PerSecond(counted.appended_per_second),
        ),
        (
            "kafka_server_raft_metrics_fetch_records_rate",
            "Records per second fetched from leaders, in the last 30 to 60 seconds.",
            Number::PerSecond(counted.fetched_per_second),
        ),
    ]
}

/// Kafka bounds requests that wait by `queued.max.requests` and, in bytes, `queued.max.request.bytes`.
fn of_room(occupied: Occupied) -> [Gauge; 3] {
    [
        (
            "kafka_network_request_channel_request_queue_size",
            "Requests of clients that wait for their outcome.",
            Number::Count(occupied.seat_count as u64),
        ),
        (
            "kafka_network_socket_server_memory_pool_used",
            "Bytes of the bodies of these requests.",
            Number::Count(occupied.bytes as u64),
        ),
        (
            "kafka_network_socket_server_memory_pool_available",
            "Bytes that more of them may have; requests beyond are answered with 503.",
            Number::Count(occupied.free_bytes as u64),
        ),
    ]
}

fn of_state(state: StateDescription, disk: DiskDescription, counted: &Counted) -> [Gauge; 5] {
    [
        (
            "kafka_server_broker_metadata_metrics_last_applied_record_offset",
            "Offset of the last record that the state machine has applied, -1 for none.",
            Number::Whole(state.applied.0 - 1),
        ),
        (
            "kafka_server_snapshot_emitter_latest_snapshot_generated_bytes",
            "Size of the newest snapshot on the disk, 0 for none.",
            Number::Count(disk.snapshot_bytes),
        ),
        (
            "kafka_server_snapshot_emitter_latest_snapshot_generated_age_ms",
            "Milliseconds since this node last took a snapshot, or else since its start.",
            Number::Count(counted.snapshot_age_ns / 1_000_000),
        ),
        (
            "kafka_log_log_log_start_offset",
            "First offset of the log; what is before is in a snapshot.",
            Number::Whole(disk.log_start.0),
        ),
        (
            "kafka_log_log_size",
            "Bytes of the log on the disk, without snapshots.",
            Number::Count(disk.log_bytes),
        ),
    ]
}

fn of_last_applied(last: LastApplied) -> [Gauge; 2] {
    [
        (
            "kafka_server_broker_metadata_metrics_last_applied_record_timestamp",
            "When the last applied record was proposed, in milliseconds since 1970; -1 when not known.",
            last.timestamp(),
        ),
        (
            "kafka_server_broker_metadata_metrics_last_applied_record_lag_ms",
            "Milliseconds since the last applied record was proposed, -1 when not known.",
            last.lag_ms(),
        ),
    ]
}

#[cfg(test)]
mod tests;
