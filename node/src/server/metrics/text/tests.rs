//! Owns the tests of what Prometheus reads of a node, and under which names.
//! Never asks a node anything.

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
