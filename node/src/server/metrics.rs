//! Owns the metrics of a node, under the names that Kafka gives them, as Prometheus reads them.
//! Never influences the node; it only watches what is traced anyway.

use std::collections::VecDeque;
use std::fmt::{self, Write};

use crate::ids::Offset;
use crate::node_loop::StateDescription;
use crate::raft::{QuorumDescription, Role};
use crate::trace::{TraceEvent, Traced};

use super::driver::role_name;

/// Media type of the text format.
pub(crate) const MEDIA_TYPE: &str = "text/plain; version=0.0.4; charset=utf-8";

const ROLES: [Role; 6] = [
    Role::Unattached,
    Role::Prospective,
    Role::Candidate,
    Role::Leader,
    Role::Follower,
    Role::Resigned,
];

/// Watches a node.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    role: Option<Role>,
    election_since_ns: Option<u64>,
    /// Batches of this leader that are not committed: end offset, and when they were appended.
    uncommitted: VecDeque<(Offset, u64)>,
    counted: Counted,
}

/// What was counted since the start of the process.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Counted {
    commit: Latency,
    election: Latency,
    appended_record_count: u64,
    fetched_record_count: u64,
}

#[derive(Debug, Default, Clone, Copy, PartialEq)]
struct Latency {
    count: u64,
    sum_ns: u64,
    max_ns: u64,
}

impl Latency {
    fn add(&mut self, duration_ns: u64) {
        self.count += 1;
        self.sum_ns = self.sum_ns.saturating_add(duration_ns);
        self.max_ns = self.max_ns.max(duration_ns);
    }
}

impl Metrics {
    pub(crate) fn counted(&self) -> Counted {
        self.counted
    }

    /// Notes an event that happened at `now_ns`, true monotonic time.
    pub(crate) fn observe(&mut self, now_ns: u64, traced: &Traced) {
        match traced.event {
            TraceEvent::Started { role, .. } => self.role = Some(role),
            TraceEvent::RoleChange { role, .. } => self.change_role(now_ns, role),
            TraceEvent::Append {
                base_offset,
                last_offset,
                ..
            } => {
                let record_count = (last_offset.0 - base_offset.0 + 1).unsigned_abs();
                if self.role == Some(Role::Leader) {
                    self.counted.appended_record_count += record_count;
                    let end = Offset(last_offset.0 + 1);
                    self.uncommitted.push_back((end, now_ns));
                } else {
                    self.counted.fetched_record_count += record_count;
                }
            }
            TraceEvent::HighWatermark { high_watermark, .. } => {
                while let Some((end, since_ns)) = self.uncommitted.front()
                    && *end <= high_watermark
                {
                    self.counted.commit.add(now_ns.saturating_sub(*since_ns));
                    self.uncommitted.pop_front();
                }
            }
            _ => {}
        }
    }

    fn change_role(&mut self, now_ns: u64, role: Role) {
        self.role = Some(role);
        if role != Role::Leader {
            self.uncommitted.clear();
        }
        match role {
            Role::Prospective | Role::Candidate => {
                self.election_since_ns.get_or_insert(now_ns);
            }
            Role::Leader | Role::Follower => {
                if let Some(since_ns) = self.election_since_ns.take() {
                    self.counted.election.add(now_ns.saturating_sub(since_ns));
                }
            }
            // Whoever stood down for another epoch still waits for a leader.
            Role::Unattached | Role::Resigned => {}
        }
    }
}

/// A metric's value; numbers that are not known are -1, durations `NaN`, as in Kafka.
#[derive(Debug, Clone, Copy)]
enum Number {
    Whole(i64),
    Count(u64),
    Milliseconds { ns: u64, per: u64 },
}

impl fmt::Display for Number {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Whole(number) => number.fmt(formatter),
            Self::Count(number) => number.fmt(formatter),
            Self::Milliseconds { per: 0, .. } => formatter.write_str("NaN"),
            Self::Milliseconds { ns, per } => {
                (*ns as f64 / *per as f64 / 1_000_000.0).fmt(formatter)
            }
        }
    }
}

/// All metrics in the text format of Prometheus.
pub(crate) fn render(
    quorum: &QuorumDescription,
    state: StateDescription,
    counted: &Counted,
) -> String {
    let mut text = String::new();
    let name = "kafka_server_raft_metrics_current_state";
    head(&mut text, name, "gauge", "1 for the state the node is in.");
    for role in ROLES {
        let (state, is_current) = (role_name(role), u8::from(role == quorum.role));
        let _ = writeln!(text, "{name}{{state=\"{state}\"}} {is_current}");
    }
    for (name, help, number) in gauges(quorum, state, counted) {
        head(&mut text, name, "gauge", help);
        let _ = writeln!(text, "{name} {number}");
    }
    for (name, help, count) in [
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
    ] {
        head(&mut text, name, "counter", help);
        let _ = writeln!(text, "{name} {}", Number::Count(count));
    }
    text
}

fn head(text: &mut String, name: &str, kind: &str, help: &str) {
    let _ = writeln!(text, "# HELP {name} {help}\n# TYPE {name} {kind}");
}

fn gauges(
    quorum: &QuorumDescription,
    state: StateDescription,
    counted: &Counted,
) -> [(&'static str, &'static str, Number); 12] {
    let whole = |number: Option<i64>| Number::Whole(number.unwrap_or(-1));
    let id = |node: Option<crate::ids::NodeId>| whole(node.map(|id| i64::from(id.0)));
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
            "kafka_server_broker_metadata_metrics_last_applied_record_offset",
            "Offset of the last record that the state machine has applied, -1 for none.",
            Number::Whole(state.applied.0 - 1),
        ),
    ]
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, NodeId};
    use crate::raft::ReplicaDescription;

    fn traced(event: TraceEvent) -> Traced {
        let epoch = Epoch(1);
        Traced { epoch, event }
    }

    fn role(role: Role) -> Traced {
        traced(TraceEvent::RoleChange {
            role,
            leader: None,
            epoch_start_offset: None,
            reason: "",
        })
    }

    fn append(first: i64, last: i64) -> Traced {
        traced(TraceEvent::Append {
            base_offset: Offset(first),
            last_offset: Offset(last),
            batch_epoch: Epoch(1),
            crc: 0,
        })
    }

    fn high_watermark(offset: i64) -> Traced {
        traced(TraceEvent::HighWatermark {
            high_watermark: Offset(offset),
            log_end: Offset(100),
        })
    }

    fn watch(events: &[(u64, Traced)]) -> Counted {
        let mut metrics = Metrics::default();
        for (now_ms, traced) in events {
            metrics.observe(now_ms * 1_000_000, traced);
        }
        metrics.counted()
    }

    fn latency(durations_ms: &[u64]) -> Latency {
        let mut latency = Latency::default();
        for duration_ms in durations_ms {
            latency.add(duration_ms * 1_000_000);
        }
        latency
    }

    #[test]
    fn commits_are_timed_from_append_to_high_watermark_while_leading() {
        let counted = watch(&[
            (0, role(Role::Leader)),
            (10, append(0, 0)),
            (20, append(1, 5)),
            (30, append(6, 9)),
            (35, high_watermark(3)),
            (50, high_watermark(6)),
            (60, role(Role::Follower)),
            (70, high_watermark(10)),
            (80, append(10, 12)),
        ]);
        assert_eq!(counted.commit, latency(&[25, 30]));
        assert_eq!(counted.appended_record_count, 10);
        assert_eq!(counted.fetched_record_count, 3);
    }

    #[test]
    fn elections_are_timed_until_there_is_a_leader() {
        let counted = watch(&[
            (0, role(Role::Follower)),
            (10, role(Role::Prospective)),
            (15, role(Role::Candidate)),
            (20, role(Role::Unattached)),
            (25, role(Role::Prospective)),
            (40, role(Role::Follower)),
            (100, role(Role::Prospective)),
            (101, role(Role::Leader)),
        ]);
        assert_eq!(counted.election, latency(&[30, 1]));
    }

    fn rendered(counted: &Counted) -> String {
        let voter = |id| ReplicaDescription {
            id: NodeId(id),
            directory_id: None,
            endpoint: None,
            log_end_offset: None,
            last_fetch_ns: None,
            last_caught_up_ns: None,
        };
        let quorum = QuorumDescription {
            id: NodeId(1),
            directory_id: None,
            role: Role::Candidate,
            is_voter: true,
            epoch: Epoch(4),
            leader: None,
            high_watermark: Some(Offset(7)),
            log_end: Offset(9),
            log_end_epoch: Epoch(3),
            voted_for: Some(NodeId(1)),
            kraft_version: 0,
            uncommitted_voter_change: false,
            voters: vec![voter(1), voter(2)],
            observers: Vec::new(),
        };
        let state = StateDescription {
            applied: Offset(7),
            digest: 0,
        };
        render(&quorum, state, counted)
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
        let mut helped = Vec::new();
        for line in rendered(&Counted::default()).lines() {
            if let Some(help) = line.strip_prefix("# HELP ") {
                let (name, text) = help.split_once(' ').unwrap();
                assert!(
                    !text.is_empty() && !helped.contains(&name.to_owned()),
                    "{line}"
                );
                helped.push(name.to_owned());
            } else if let Some(kind) = line.strip_prefix("# TYPE ") {
                let (name, kind) = kind.split_once(' ').unwrap();
                assert!(["gauge", "counter"].contains(&kind), "{line}");
                assert_eq!(helped.last().map(String::as_str), Some(name));
                name.clone_into(&mut announced);
            } else {
                assert_eq!(name_in(line), Some(announced.as_str()), "{line}");
            }
        }
        assert_eq!(helped.len(), 15);
    }

    #[test]
    fn values_are_those_of_the_node() {
        let counted = Counted {
            commit: latency(&[1, 4]),
            appended_record_count: 12,
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
            "kafka_server_raft_metrics_fetch_records_total 0",
            "kafka_server_broker_metadata_metrics_last_applied_record_offset 6",
        ] {
            assert!(text.lines().any(|found| found == line), "{line}\n{text}");
        }
    }
}
