//! Owns the metrics of Kafka's controllers, as far as this node has something to tell under their names.
//! Never measures anything. Of brokers and topics there are none here, so their numbers are 0.

use crate::machine::RECORD_VERSION;
use crate::node_loop::{LoaderDescription, StateDescription};
use crate::raft::{QuorumDescription, Role};

use super::text::{Gauge, LastApplied, Number};
use super::{Counted, Latency};

/// What clients asked for, since the start of the process.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub(crate) struct Operations {
    /// Handed to the loop.
    pub(crate) started_count: u64,
    /// Without an outcome within the clients' deadline.
    pub(crate) timed_out_count: u64,
}

pub(super) fn gauges(
    quorum: &QuorumDescription,
    state: StateDescription,
    loader: LoaderDescription,
    last_applied: LastApplied,
    counted: &Counted,
) -> Vec<Gauge> {
    let leads = quorum.role == Role::Leader && quorum.high_watermark.is_some();
    let committed = quorum.high_watermark.map_or(-1, |offset| offset.0 - 1);
    let mut gauges = vec![
        (
            "kafka_controller_kafka_controller_active_controller_count",
            "1 on a leader that knows what is committed, 0 on all other nodes.",
            Number::Count(u64::from(leads)),
        ),
        (
            "kafka_controller_kafka_controller_last_applied_record_offset",
            "Offset of the last record that the state machine has applied, -1 for none.",
            Number::Whole(state.applied.0 - 1),
        ),
        (
            "kafka_controller_kafka_controller_last_applied_record_timestamp",
            "When the last applied record was proposed, in milliseconds since 1970; -1 when not known.",
            last_applied.timestamp(),
        ),
        (
            "kafka_controller_kafka_controller_last_applied_record_lag_ms",
            "Milliseconds since the last applied record was proposed, -1 when not known.",
            last_applied.lag_ms(),
        ),
        (
            "kafka_controller_kafka_controller_last_committed_record_offset",
            "Offset of the last record that is known to be committed, -1 when not known.",
            Number::Whole(committed),
        ),
        (
            "kafka_controller_kafka_controller_ignored_static_voters",
            "1 while voters are configured and those in the log go before them.",
            Number::Count(u64::from(loader.ignores_configured_voters)),
        ),
        (
            "kafka_controller_controller_event_manager_avg_idle_ratio",
            "Part of the time in which the node's loop had nothing to do, since the start.",
            counted.idle_ratio(),
        ),
        (
            "kafka_server_metadata_loader_current_metadata_version",
            "Version of the records that the state machine writes and reads.",
            Number::Count(u64::from(RECORD_VERSION)),
        ),
        (
            "kafka_server_metadata_loader_current_controller_id",
            "Who leads, -1 when not known.",
            Number::Whole(quorum.leader.map_or(-1, |leader| i64::from(leader.0))),
        ),
    ];
    gauges.extend(ABSENT_GAUGES.map(|(name, help)| (name, help, Number::Count(0))));
    gauges
}

/// What a cluster without brokers and topics has none of.
const ABSENT_GAUGES: [(&str, &str); 9] = [
    (
        "kafka_controller_kafka_controller_fenced_broker_count",
        "Always 0: no brokers register here.",
    ),
    (
        "kafka_controller_kafka_controller_active_broker_count",
        "Always 0: no brokers register here.",
    ),
    (
        "kafka_controller_kafka_controller_controlled_shutdown_broker_count",
        "Always 0: no brokers register here.",
    ),
    (
        "kafka_controller_kafka_controller_global_topic_count",
        "Always 0: there are no topics here.",
    ),
    (
        "kafka_controller_kafka_controller_global_partition_count",
        "Always 0: there are no topics here.",
    ),
    (
        "kafka_controller_kafka_controller_offline_partitions_count",
        "Always 0: there are no topics here.",
    ),
    (
        "kafka_controller_kafka_controller_preferred_replica_imbalance_count",
        "Always 0: there are no topics here.",
    ),
    (
        "kafka_controller_controller_stats_unclean_leader_elections_per_sec",
        "Always 0: there are no topics here.",
    ),
    (
        "kafka_controller_controller_stats_election_from_eligible_leader_replicas_per_sec",
        "Always 0: there are no topics here.",
    ),
];

pub(super) fn counters(
    loader: LoaderDescription,
    operations: Operations,
    counted: &Counted,
) -> [(&'static str, &'static str, u64); 10] {
    [
        (
            "kafka_controller_kafka_controller_event_queue_operations_started_count",
            "Operations of clients that were handed to the node's loop since the start.",
            operations.started_count,
        ),
        (
            "kafka_controller_kafka_controller_event_queue_operations_timed_out_count",
            "Operations of clients that had no outcome within their deadline, since the start.",
            operations.timed_out_count,
        ),
        (
            "kafka_controller_kafka_controller_new_active_controllers_count",
            "How often this node learned of a leader of a later epoch, itself included, since the start.",
            counted.seen_leader_count,
        ),
        (
            "kafka_controller_kafka_controller_timed_out_broker_heartbeat_count",
            "Always 0: no brokers register here.",
            0,
        ),
        (
            "kafka_controller_kafka_controller_metadata_error_count",
            "Snapshots and records that the state machine could not take, since the start.",
            loader.refused_count,
        ),
        (
            "kafka_server_broker_metadata_metrics_metadata_load_error_count",
            "Snapshots of a leader that could not be loaded and were dropped, since the start.",
            loader.refused_count,
        ),
        (
            "kafka_server_broker_metadata_metrics_metadata_apply_error_count",
            "Always 0: a node that cannot apply a committed record stops.",
            0,
        ),
        (
            "kafka_server_metadata_loader_handle_load_snapshot_count",
            "Snapshots that the state machine was loaded from, at the start and since.",
            loader.loaded_count,
        ),
        (
            "kafka_controller_controller_stats_unclean_leader_elections_total",
            "Always 0: there are no topics here.",
            0,
        ),
        (
            "kafka_controller_controller_stats_election_from_eligible_leader_replicas_total",
            "Always 0: there are no topics here.",
            0,
        ),
    ]
}

pub(super) fn summaries(counted: &Counted) -> [(&'static str, &'static str, Latency); 2] {
    [
        (
            "kafka_controller_controller_event_manager_event_queue_time_ms",
            "Milliseconds until the node's loop took an operation of a client.",
            counted.queued,
        ),
        (
            "kafka_controller_controller_event_manager_event_queue_processing_time_ms",
            "Milliseconds that a round of the node's loop took, waiting for work left out.",
            counted.rounds(),
        ),
    ]
}
