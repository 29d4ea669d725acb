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
mod tests {
    use super::*;
    use crate::ids::{Epoch, NodeId, Offset};
    use crate::raft::ReplicaDescription;

    fn latency(durations_ms: &[u64]) -> Latency {
        let mut latency = Latency::default();
        for duration_ms in durations_ms {
            latency.add(duration_ms * 1_000_000);
        }
        latency
    }

    fn rendered(counted: &Counted) -> String {
        rendered_as(Role::Candidate, counted)
    }

    fn quorum_as(role: Role) -> QuorumDescription {
        let voter = |id| ReplicaDescription {
            id: NodeId(id),
            directory_id: None,
            endpoint: None,
            log_end_offset: None,
            last_fetch_ns: None,
            last_caught_up_ns: None,
        };
        QuorumDescription {
            id: NodeId(1),
            directory_id: None,
            role,
            is_voter: true,
            epoch: Epoch(4),
            leader: None,
            high_watermark: Some(Offset(7)),
            log_end: Offset(9),
            log_end_epoch: Epoch(3),
            voted_for: Some(NodeId(1)),
            voted_for_directory_id: None,
            kraft_version: 0,
            uncommitted_voter_change: true,
            voters: vec![voter(1), voter(2)],
            observers: vec![voter(3)],
        }
    }

    fn rendered_as(role: Role, counted: &Counted) -> String {
        let quorum = quorum_as(role);
        let state = StateDescription {
            applied: Offset(7),
            digest: 0,
        };
        let disk = DiskDescription {
            log_start: Offset(2),
            log_bytes: 512,
            snapshot_bytes: 100,
            snapshot_end: Offset(0),
        };
        let last_applied = LastApplied {
            timestamp_ms: Some(1_700_000_000_000),
            now_ms: 1_700_000_000_250,
        };
        let loader = LoaderDescription {
            loaded_count: 2,
            refused_count: 1,
            ignores_configured_voters: true,
        };
        let operations = Operations {
            started_count: 9,
            timed_out_count: 3,
        };
        render(Described {
            quorum: &quorum,
            state,
            disk,
            loader,
            last_applied,
            operations,
            occupied: Occupied {
                seat_count: 6,
                bytes: 500,
                free_bytes: 1500,
            },
            counted,
        })
    }

    /// Name of a sample, if the line is one; the grammar of the text format, as far as it is used.
    fn name_in(line: &str) -> Option<&str> {
        let is_name = |name: &str| {
            let mut characters = name.chars();
            let first = characters.next();
            first.is_some_and(|first| first.is_ascii_alphabetic())
                && characters.all(|next| next.is_ascii_alphanumeric() || next == '_')
        };
        let (series, value) = line.rsplit_once(' ')?;
        let _: f64 = value.parse().ok()?;
        let (name, labelled) = match series.split_once('{') {
            None => (series, true),
            Some((name, rest)) => {
                let (label, text) = rest.strip_suffix("\"}")?.split_once("=\"")?;
                (name, is_name(label) && !text.contains(['"', '\\']))
            }
        };
        (is_name(name) && labelled).then_some(name)
    }

    #[test]
    fn every_line_is_what_prometheus_reads() {
        let mut announced = String::new();
        let mut is_summary = false;
        let mut helped = Vec::new();
        for line in rendered_as(Role::Leader, &Counted::default()).lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, text) = help.split_once(' ').unwrap();
                assert!(
                    !text.is_empty() && !helped.contains(&name.to_owned()),
                    "{line}"
                );
                helped.push(name.to_owned());
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert!(["gauge", "counter", "summary"].contains(&kind), "{line}");
                assert_eq!(helped.last().map(String::as_str), Some(name));
                name.clone_into(&mut announced);
                is_summary = kind == "summary";
            } else {
                let name = name_in(line).unwrap();
                let end = name.strip_prefix(announced.as_str()).unwrap();
                let ends = if is_summary {
                    &["_sum", "_count"][..]
                } else {
                    &[""]
                };
                assert!(ends.contains(&end), "{line}");
            }
        }
        assert_eq!(helped.len(), 61);
    }

    #[test]
    fn values_are_those_of_the_node() {
        let counted = Counted {
            commit: latency(&[1, 4]),
            appended_record_count: 12,
            appended_per_second: 0.25,
            snapshot_age_ns: 1_500_000_000,
            waited_ns: 3,
            running_ns: 4,
            round_count: 2,
            queued: latency(&[2, 3]),
            seen_leader_count: 5,
            ..Counted::default()
        };
        let text = rendered(&counted);
        for line in [
            "kafka_server_raft_metrics_current_state{state=\"candidate\"} 1",
            "kafka_server_raft_metrics_current_state{state=\"leader\"} 0",
            "kafka_server_raft_metrics_current_leader -1",
            "kafka_server_raft_metrics_current_vote 1",
            "kafka_server_raft_metrics_current_epoch 4",
            "kafka_server_raft_metrics_high_watermark 7",
            "kafka_server_raft_metrics_log_end_offset 9",
            "kafka_server_raft_metrics_log_end_epoch 3",
            "kafka_server_raft_metrics_number_of_voters 2",
            "kafka_server_raft_metrics_commit_latency_avg 2.5",
            "kafka_server_raft_metrics_commit_latency_max 4",
            "kafka_server_raft_metrics_election_latency_avg NaN",
            "kafka_server_raft_metrics_election_latency_max NaN",
            "kafka_server_raft_metrics_append_records_total 12",
            "kafka_server_raft_metrics_append_records_rate 0.25",
            "kafka_server_raft_metrics_fetch_records_rate 0",
            "kafka_network_request_channel_request_queue_size 6",
            "kafka_network_socket_server_memory_pool_used 500",
            "kafka_network_socket_server_memory_pool_available 1500",
            "kafka_server_raft_metrics_fetch_records_total 0",
            "kafka_server_broker_metadata_metrics_last_applied_record_offset 6",
            "kafka_server_raft_metrics_poll_idle_ratio_avg 0.75",
            "kafka_server_broker_metadata_metrics_last_applied_record_timestamp 1700000000000",
            "kafka_server_broker_metadata_metrics_last_applied_record_lag_ms 250",
            "kafka_server_raft_metrics_current_vote_directory_id{directory_id=\"AAAAAAAAAAAAAAAAAAAAAA\"} 1",
            "kafka_server_snapshot_emitter_latest_snapshot_generated_bytes 100",
            "kafka_server_snapshot_emitter_latest_snapshot_generated_age_ms 1500",
            "kafka_log_log_log_start_offset 2",
            "kafka_log_log_size 512",
            "kafka_server_raft_metrics_number_unknown_voter_connections 0",
            "kafka_controller_kafka_controller_active_controller_count 0",
            "kafka_controller_kafka_controller_last_applied_record_offset 6",
            "kafka_controller_kafka_controller_last_applied_record_timestamp 1700000000000",
            "kafka_controller_kafka_controller_last_applied_record_lag_ms 250",
            "kafka_controller_kafka_controller_last_committed_record_offset 6",
            "kafka_controller_kafka_controller_ignored_static_voters 1",
            "kafka_controller_kafka_controller_event_queue_operations_started_count 9",
            "kafka_controller_kafka_controller_event_queue_operations_timed_out_count 3",
            "kafka_controller_kafka_controller_new_active_controllers_count 5",
            "kafka_controller_kafka_controller_metadata_error_count 1",
            "kafka_controller_controller_event_manager_avg_idle_ratio 0.75",
            "kafka_controller_controller_event_manager_event_queue_time_ms_sum 5",
            "kafka_controller_controller_event_manager_event_queue_time_ms_count 2",
            "kafka_controller_controller_event_manager_event_queue_processing_time_ms_count 2",
            "kafka_server_broker_metadata_metrics_metadata_load_error_count 1",
            "kafka_server_broker_metadata_metrics_metadata_apply_error_count 0",
            "kafka_server_metadata_loader_handle_load_snapshot_count 2",
            "kafka_server_metadata_loader_current_controller_id -1",
            "kafka_server_metadata_loader_current_metadata_version 1",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }

    #[test]
    fn what_only_a_leader_knows_is_shown_by_leaders_only() {
        let leader = rendered_as(Role::Leader, &Counted::default());
        for line in [
            "kafka_server_raft_metrics_number_of_observers 1",
            "kafka_server_raft_metrics_uncommitted_voter_change 1",
            "kafka_controller_kafka_controller_active_controller_count 1",
        ] {
            assert!(leader.lines().any(|found| found == line), "{leader}");
        }
        let other = rendered(&Counted::default());
        assert!(!other.contains("number_of_observers"), "{other}");
        assert!(!other.contains("uncommitted_voter_change"), "{other}");
    }

    #[test]
    fn states_have_kafkas_names() {
        let name = |role, is_voter, has_voted: bool| {
            state_name(&QuorumDescription {
                is_voter,
                voted_for: has_voted.then_some(NodeId(2)),
                ..quorum_as(role)
            })
        };
        assert_eq!(name(Role::Prospective, true, true), "prospective-voted");
        assert_eq!(name(Role::Prospective, true, false), "prospective");
        assert_eq!(name(Role::Unattached, true, true), "unattached-voted");
        assert_eq!(name(Role::Unattached, false, false), "unattached");
        assert_eq!(name(Role::Follower, true, true), "follower");
        assert_eq!(name(Role::Follower, false, false), "observer");
        assert_eq!(name(Role::Resigned, true, false), "unattached");
        for role in [Role::Leader, Role::Candidate, Role::Resigned] {
            let quorum = quorum_as(role);
            assert!(STATES.contains(&state_name(&quorum)), "{role:?}");
        }
    }

    /// Domain and type of Kafka's MBeans, and their metrics that a node has.
    const KAFKAS: [(&str, &str, &[&str]); 10] = [
        (
            "kafka.server",
            "raft-metrics",
            &[
                "current-state",
                "current-leader",
                "current-vote",
                "current-vote-directory-id",
                "current-epoch",
                "high-watermark",
                "log-end-offset",
                "log-end-epoch",
                "number-of-voters",
                "number-unknown-voter-connections",
                "number-of-observers",
                "uncommitted-voter-change",
                "commit-latency-avg",
                "commit-latency-max",
                "election-latency-avg",
                "election-latency-max",
                "poll-idle-ratio-avg",
                "append-records-rate",
                "fetch-records-rate",
            ],
        ),
        (
            "kafka.server",
            "broker-metadata-metrics",
            &[
                "last-applied-record-offset",
                "last-applied-record-timestamp",
                "last-applied-record-lag-ms",
                "metadata-load-error-count",
                "metadata-apply-error-count",
            ],
        ),
        (
            "kafka.controller",
            "KafkaController",
            &[
                "ActiveControllerCount",
                "LastAppliedRecordOffset",
                "LastAppliedRecordTimestamp",
                "LastAppliedRecordLagMs",
                "LastCommittedRecordOffset",
                "TimedOutBrokerHeartbeatCount",
                "EventQueueOperationsStartedCount",
                "EventQueueOperationsTimedOutCount",
                "NewActiveControllersCount",
                "FencedBrokerCount",
                "ActiveBrokerCount",
                "ControlledShutdownBrokerCount",
                "GlobalTopicCount",
                "GlobalPartitionCount",
                "OfflinePartitionsCount",
                "PreferredReplicaImbalanceCount",
                "MetadataErrorCount",
                "IgnoredStaticVoters",
            ],
        ),
        (
            "kafka.controller",
            "ControllerEventManager",
            &[
                "EventQueueTimeMs",
                "EventQueueProcessingTimeMs",
                "AvgIdleRatio",
            ],
        ),
        (
            "kafka.controller",
            "ControllerStats",
            &[
                "UncleanLeaderElectionsPerSec",
                "ElectionFromEligibleLeaderReplicasPerSec",
            ],
        ),
        (
            "kafka.server",
            "MetadataLoader",
            &[
                "CurrentMetadataVersion",
                "HandleLoadSnapshotCount",
                "CurrentControllerId",
            ],
        ),
        (
            "kafka.server",
            "SnapshotEmitter",
            &[
                "LatestSnapshotGeneratedBytes",
                "LatestSnapshotGeneratedAgeMs",
            ],
        ),
        ("kafka.log", "Log", &["LogStartOffset", "Size"]),
        ("kafka.network", "RequestChannel", &["RequestQueueSize"]),
        (
            "kafka.network",
            "SocketServer",
            &["MemoryPoolUsed", "MemoryPoolAvailable"],
        ),
    ];

    #[test]
    fn the_names_are_kafkas_and_each_that_means_something_here_is_there() {
        let plain = |name: &str| {
            let mut plain = String::new();
            for character in name.chars() {
                match character {
                    '-' | '.' => plain.push('_'),
                    'A'..='Z' if plain.is_empty() => plain.push(character.to_ascii_lowercase()),
                    'A'..='Z' => plain.extend(['_', character.to_ascii_lowercase()]),
                    _ => plain.push(character),
                }
            }
            plain
        };
        let mut kafkas = Vec::new();
        for (domain, kind, names) in KAFKAS {
            let names = names.iter().map(|name| [domain, kind, name].map(plain));
            kafkas.extend(names.map(|parts| parts.join("_")));
        }
        // What Prometheus makes rates of, besides.
        let total = |name: &String| {
            let of = name.strip_suffix("_rate").or(name.strip_suffix("_per_sec"));
            of.map(|of| format!("{of}_total"))
        };
        let totals: Vec<String> = kafkas.iter().filter_map(total).collect();
        assert_eq!(totals.len(), 4);
        kafkas.extend(totals);
        let text = rendered_as(Role::Leader, &Counted::default());
        let types = text.lines().filter_map(|line| line.strip_prefix("# TYPE "));
        let mut shown: Vec<_> = types.map(|line| line.split_once(' ').unwrap().0).collect();
        kafkas.sort();
        shown.sort_unstable();
        assert_eq!(shown, kafkas);
    }
}
