//! Owns the question whether news reach followers that wait for them at once, or when their wait ends.
//! Never judges a cluster that is at work: only one that has nothing to do between two writes.

use std::collections::BTreeMap;

use results::trace::{Role, TraceDetail, TraceEvent};
use results::verdict::{PropertyResult, Validity};
use serde_json::json;

use super::evidence::{Outcome, Phase};
use super::property;

const MS: u64 = 1_000_000;
/// Fewest writes that say anything.
const WRITES_MIN: usize = 5;

/// How long the writes of a settled core took: to be committed from when they were appended, and to be
/// known as committed everywhere from when the leader knew, or from when a node followed that did not yet: how
/// long it may look for its leader is judged elsewhere. Slow is what takes a good part of the longest
/// wait of a fetch; nearly all writes must be slow, since a single message may be late, or get lost.
pub(super) fn check(
    phase: &Phase<'_>,
    trace: &[TraceEvent],
    max_wait_ms: u64,
) -> (Option<PropertyResult>, Option<PropertyResult>) {
    let Outcome::Settled(settled) = &phase.outcome else {
        return (None, None);
    };
    let window = (settled.since_ns, settled.time_ns);
    let Some(writes) = writes(phase, trace, window) else {
        return (None, None);
    };
    let replication = writes.iter().map(|write| write.committed - write.appended);
    let commitment = writes.iter().filter_map(|write| write.spread);
    let replication = judge(
        replication.collect(),
        max_wait_ms * MS / 4,
        "an idle leader replicates a new record at once",
        "an append wakes fetches that wait (KIP-595)",
    );
    let commitment = judge(
        commitment.collect(),
        max_wait_ms * MS / 2,
        "followers of an idle leader learn at once what is committed",
        "a new high watermark wakes fetches that wait (KAFKA-14145)",
    );
    (replication, commitment)
}

#[derive(Debug)]
struct Write {
    appended: u64,
    committed: u64,
    /// How long it took until everybody knew; none if somebody never did.
    spread: Option<u64>,
}

/// The single records that the one leader of the window appended in it; nothing if there were several.
fn writes(phase: &Phase<'_>, trace: &[TraceEvent], (begin, end): (u64, u64)) -> Option<Vec<Write>> {
    let is_core = |event: &TraceEvent| phase.core.iter().any(|node| *node == event.node);
    let in_core = |event: &&TraceEvent| event.time <= end && is_core(event);
    let mut leader: Option<&str> = None;
    let mut appended: BTreeMap<i64, u64> = BTreeMap::new();
    // By node: when its high watermark came to be at least so high.
    let mut known: BTreeMap<&str, Vec<(u64, i64)>> = BTreeMap::new();
    let mut followed: BTreeMap<&str, Vec<u64>> = BTreeMap::new();
    for event in trace.iter().filter(in_core) {
        match &event.detail {
            TraceDetail::RoleChange {
                role: Role::Leader, ..
            } => leader = Some(&event.node),
            TraceDetail::RoleChange {
                role: Role::Follower,
                ..
            } => followed.entry(&event.node).or_default().push(event.time),
            TraceDetail::HighWatermark { high_watermark, .. } if event.time >= begin => {
                let steps = known.entry(&event.node).or_default();
                steps.push((event.time, *high_watermark));
            }
            _ => {}
        }
    }
    let leader = leader?;
    for event in trace.iter().filter(in_core) {
        if let TraceDetail::Append { last_offset, .. } = event.detail
            && event.node == leader
            && event.time >= begin
        {
            appended.insert(last_offset + 1, event.time);
        }
    }
    let reached = |node: &str, offset: i64| {
        let steps = known.get(node)?.iter();
        let mut steps = steps.filter(|(_, high_watermark)| *high_watermark >= offset);
        steps.next().map(|(time, _)| *time)
    };
    let write = |(offset, appended): (i64, u64)| {
        let committed = reached(leader, offset)?;
        let late_by = |node: &String| {
            let known = reached(node, offset)?;
            let times = followed.get(node.as_str()).into_iter().flatten();
            let follows = times.copied().filter(|time| *time <= known).max();
            Some(known - committed.max(follows.unwrap_or(0)).min(known))
        };
        let late = phase.core.iter().map(late_by);
        Some(Write {
            appended,
            committed,
            spread: late
                .collect::<Option<Vec<u64>>>()
                .and_then(|late| late.into_iter().max()),
        })
    };
    Some(appended.into_iter().filter_map(write).collect())
}

fn judge(lags: Vec<u64>, limit_ns: u64, title: &str, source: &str) -> Option<PropertyResult> {
    if lags.len() < WRITES_MIN || limit_ns == 0 {
        return None;
    }
    let slow_count = lags.iter().filter(|lag| **lag > limit_ns).count();
    let ms: Vec<f64> = lags.iter().map(|lag| (lag / 1000) as f64 / 1e3).collect();
    let (valid, summary) = if slow_count + 1 >= lags.len() {
        let told: Vec<String> = ms.iter().map(|ms| format!("{ms:.1}")).collect();
        let summary = format!(
            "{slow_count} of {} writes to an idle leader took longer than {} ms: {} ms",
            lags.len(),
            limit_ns / MS,
            told.join(", ")
        );
        (Validity::Invalid, summary)
    } else {
        (Validity::Valid, String::new())
    };
    let evidence = json!({ "lags_ms": ms, "limit_ms": limit_ns / MS });
    let checked = lags.len() as u64;
    Some(property(valid, title, source, checked, summary, evidence))
}
