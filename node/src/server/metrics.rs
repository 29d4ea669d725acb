//! Owns what is counted of a node and timed in it while it runs.
//! Never influences the node; it only watches what is traced anyway.

mod controller;
mod recent_rate;
mod text;

use std::collections::VecDeque;

use crate::ids::Offset;
use crate::raft::Role;
use crate::trace::{TraceEvent, Traced};

pub(crate) use controller::Operations;
use recent_rate::RecentRate;
use text::Number;
pub(crate) use text::{Described, LastApplied, MEDIA_TYPE, render};

/// Watches a node.
#[derive(Debug, Default)]
pub(crate) struct Metrics {
    role: Option<Role>,
    election_since_ns: Option<u64>,
    /// Batches of this leader that are not committed: end offset, and when they were appended.
    uncommitted: VecDeque<(Offset, u64)>,
    /// When the latest own snapshot was complete; before the first one, when the node started.
    snapshot_since_ns: Option<u64>,
    started_ns: Option<u64>,
    append_rate: RecentRate,
    fetch_rate: RecentRate,
    counted: Counted,
}

/// What was counted since the start of the process.
#[derive(Debug, Default, Clone, Copy, PartialEq)]
pub(crate) struct Counted {
    commit: Latency,
    election: Latency,
    appended_record_count: u64,
    fetched_record_count: u64,
    /// The same lately, per second.
    appended_per_second: f64,
    fetched_per_second: f64,
    snapshot_age_ns: u64,
    /// How long the loop had nothing to do.
    waited_ns: u64,
    running_ns: u64,
    /// How often it went round.
    round_count: u64,
    /// How long operations of clients waited for it.
    queued: Latency,
    /// How often this node learned of a leader that was not known before.
    seen_leader_count: u64,
}

impl Counted {
    fn idle_ratio(&self) -> Number {
        Number::Ratio {
            part: self.waited_ns,
            whole: self.running_ns,
        }
    }

    /// How long the loop was busy.
    fn rounds(&self) -> Latency {
        Latency {
            count: self.round_count,
            sum_ns: self.running_ns.saturating_sub(self.waited_ns),
            max_ns: 0,
        }
    }
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
    /// What is known at `now_ns`, true monotonic time.
    pub(crate) fn counted(&self, now_ns: u64) -> Counted {
        let since_ns = self.snapshot_since_ns.unwrap_or(now_ns);
        Counted {
            snapshot_age_ns: now_ns.saturating_sub(since_ns),
            running_ns: now_ns.saturating_sub(self.started_ns.unwrap_or(now_ns)),
            appended_per_second: self.append_rate.per_second(now_ns),
            fetched_per_second: self.fetch_rate.per_second(now_ns),
            ..self.counted
        }
    }

    /// Notes that the loop had nothing to do for a while.
    pub(crate) fn note_wait(&mut self, waited_ns: u64) {
        self.counted.waited_ns += waited_ns;
        self.counted.round_count += 1;
    }

    /// Notes that the loop took an operation of a client after this long.
    pub(crate) fn note_queued(&mut self, queued_ns: u64) {
        self.counted.queued.add(queued_ns);
    }

    /// Notes an event that happened at `now_ns`, true monotonic time.
    pub(crate) fn observe(&mut self, now_ns: u64, traced: &Traced) {
        match traced.event {
            TraceEvent::Started(ref started) => {
                self.role = Some(started.role);
                self.snapshot_since_ns = Some(now_ns);
                self.started_ns = Some(now_ns);
            }
            TraceEvent::EpochAdopted { leader: Some(_) } => self.counted.seen_leader_count += 1,
            TraceEvent::SnapshotFrozen { .. } => self.snapshot_since_ns = Some(now_ns),
            TraceEvent::RoleChange { role, .. } => self.change_role(now_ns, role),
            TraceEvent::Append {
                base_offset,
                last_offset,
                ..
            } => {
                let record_count = (last_offset.0 - base_offset.0 + 1).unsigned_abs();
                if self.role == Some(Role::Leader) {
                    self.counted.appended_record_count += record_count;
                    self.append_rate.add(now_ns, record_count);
                    let end = Offset(last_offset.0 + 1);
                    self.uncommitted.push_back((end, now_ns));
                } else {
                    self.counted.fetched_record_count += record_count;
                    self.fetch_rate.add(now_ns, record_count);
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

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::Epoch;
    use crate::trace::Started;

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
        let last_ms = events.last().map_or(0, |(now_ms, _)| *now_ms);
        metrics.counted(last_ms * 1_000_000)
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
        let per_second = [counted.appended_per_second, counted.fetched_per_second];
        assert_eq!(per_second.map(|it| (it * 100.0).round()), [33.0, 10.0]);
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

    #[test]
    fn a_snapshot_ages_until_the_next_one_and_before_the_first_since_the_start() {
        let started = Started {
            role: Role::Follower,
            log_start: Offset(0),
            log_end: Offset(0),
            last_epoch: Epoch(0),
            voted_for: None,
            leader: None,
            truncated_bytes: 0,
            snapshots: Vec::new(),
            voters: Vec::new(),
            kraft_version: 0,
            directory_id: None,
            is_voter: true,
        };
        let started = traced(TraceEvent::Started(Box::new(started)));
        let frozen = traced(TraceEvent::SnapshotFrozen {
            end_offset: Offset(5),
            last_epoch: Epoch(1),
            digest: String::new(),
        });
        let mut metrics = Metrics::default();
        let age_ms = |metrics: &Metrics, at_ms: u64| {
            metrics.counted(at_ms * 1_000_000).snapshot_age_ns / 1_000_000
        };
        metrics.observe(1_000_000, &started);
        assert_eq!(age_ms(&metrics, 8), 7);
        metrics.observe(10_000_000, &frozen);
        assert_eq!(age_ms(&metrics, 10), 0);
        assert_eq!(age_ms(&metrics, 13), 3);
    }
}
