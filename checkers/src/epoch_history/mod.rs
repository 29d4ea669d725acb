//! Owns the checker of what the nodes said about themselves: epochs, leaders, votes, logs, commits.
//! Never concludes from silence: lost events and properties never exercised are unknown.

mod ascending;
mod committed;
mod completeness;
mod epoch_ascends;
mod epochs;
mod leader_appends;
pub(crate) mod log;
mod log_start;
mod majority;
mod matching;
mod messages;
mod model;
pub(crate) mod nodes;
mod observers;
mod one_leader;
mod one_vote;
mod online;
pub(crate) mod property;
mod rule;
mod rules;
mod snapshots;
mod voter_changes;
mod voter_history;
mod watch;
mod watermark_in_log;
mod watermarks;

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use results::history::{Operation, OperationType, Process};
use results::trace::TraceEvent;
use results::verdict::{CheckerResult, PropertyResult, Validity};

use crate::{conclusion, counted, operations, seconds};
use model::{Model, tells_of_voter_records};
use watch::Watch;

pub use online::Online;

const SOURCE: &str = "KIP-595; KIP-630; KIP-853; Ongaro & Ousterhout 2014 (Raft)";

/// Properties that need particular events, which a run need not have: nothing committed before a
/// second leader is elected leaves I2 without a case, no change of voters K1, no observer K4, no
/// snapshot S1 and S2, and M1 to M6 need nodes that report messages and reads. That alone makes no run
/// suspicious.
const MAY_STAY_UNEXERCISED: [&str; 11] = [
    "I2", "K1", "K4", "M1", "M2", "M3", "M4", "M5", "M6", "S1", "S2",
];

/// How many properties that were not exercised a summary names.
const UNEXERCISED_NAMED_MAX: usize = 3;

/// Checks the trace of all nodes, and the epochs in the history, against the protocol's invariants.
///
/// `trace` holds the events of every node in the order in which it reported them, merged by time.
/// `voter_count` is the number of voters that the cluster starts with, all of which are expected to have
/// left a trace.
///
/// `is_complete` says that no event was lost, as in a simulation: a node that is silent did nothing.
pub fn check(
    trace: &[TraceEvent],
    history: &[Operation],
    voter_count: u32,
    is_complete: bool,
) -> CheckerResult {
    let mut ends = ends(trace);
    let node_count = ends.len();
    let configured = configured_voters(&ends, voter_count as usize);
    if is_complete {
        ends.clear();
    }
    let has_voter_records = trace.iter().any(tells_of_voter_records);
    let mut watch = Watch::of(Model::new(ends.clone(), configured, has_voter_records));
    let gaps = gaps(trace);
    for (index, event) in trace.iter().enumerate() {
        if gaps.before.contains(&index) {
            watch.lose(&event.node);
        }
        watch.take(&Rc::new(event.clone()));
        if gaps.after.contains(&index) {
            watch.lose(&event.node);
        }
    }
    watch.settle();
    watch.epochs().observe_history(history);
    let mut lost: Vec<String> = Vec::new();
    if trace.is_empty() {
        lost.push("no node left a trace".into());
    }
    lost.extend(gaps.reasons);
    lost.extend(cut_short(&ends, history));
    lost.extend(watch.take_doubts());
    if !trace.is_empty() && node_count < voter_count as usize {
        lost.push(format!(
            "only {node_count} of {voter_count} nodes left a trace"
        ));
    }
    let lost = lost.first().map(String::as_str);
    judge(watch, trace.len() as u64, node_count as u64, lost)
}

/// What the properties say after the last event. `lost` is evidence that is missing, for people.
fn judge(watch: Watch, event_count: u64, node_count: u64, lost: Option<&str>) -> CheckerResult {
    let properties: BTreeMap<String, PropertyResult> = watch
        .finish(lost.is_none())
        .into_iter()
        .map(|property| (property.id.into(), property.finish(lost)))
        .collect();
    conclude(properties, event_count, node_count, lost)
}

/// The first nodes by number.
fn numbered_voters(voter_count: usize) -> BTreeSet<String> {
    (1..=voter_count).map(|id| format!("n{id}")).collect()
}

/// The voters of a cluster whose nodes do not name them: those that left a trace, and as many unknown
/// ones as are missing. Where there are more, the first ones by number.
fn configured_voters(ends: &BTreeMap<String, u64>, voter_count: usize) -> BTreeSet<String> {
    if ends.len() > voter_count {
        return numbered_voters(voter_count);
    }
    let silent = (ends.len()..voter_count).map(|number| format!("(silent node {number})"));
    ends.keys().cloned().chain(silent).collect()
}

/// When each node reported its last event.
fn ends(trace: &[TraceEvent]) -> BTreeMap<String, u64> {
    let mut ends: BTreeMap<String, u64> = BTreeMap::new();
    for event in trace {
        match ends.get_mut(event.node.as_str()) {
            Some(end) => *end = event.time,
            None => drop(ends.insert(event.node.to_string(), event.time)),
        }
    }
    ends
}

/// Whether a node carried out a command that was sent only after its trace ends. It reports the append
/// before it answers, so the end of its trace was lost.
fn cut_short(ends: &BTreeMap<String, u64>, history: &[Operation]) -> Option<String> {
    let mut invoked: BTreeMap<Process, u64> = BTreeMap::new();
    for line in history {
        if line.operation_type == OperationType::Invoke {
            invoked.insert(line.process, line.time);
            continue;
        }
        let served = line.operation_type == OperationType::Ok && !operations::is_read(line);
        let node = line.node.as_ref().filter(|_| served);
        let (Some(node), Some(sent)) = (node, invoked.get(&line.process)) else {
            continue;
        };
        if let Some(end) = ends.get(node.as_str())
            && end < sent
        {
            return Some(format!(
                "the trace of {node} ends at {}, but it carried out a {} that was sent at {}",
                seconds(*end),
                line.f,
                seconds(*sent)
            ));
        }
    }
    None
}

/// Where events are missing. What they told may have happened as soon as the event before them had, so
/// that this is known from there on.
#[derive(Debug, Default)]
struct Gaps {
    /// Events of the trace, by index, before which the first ones of their node are missing.
    before: BTreeSet<usize>,
    /// Events after which the next ones of their node are missing.
    after: BTreeSet<usize>,
    /// What is missing, for people.
    reasons: Vec<String>,
}

fn gaps(trace: &[TraceEvent]) -> Gaps {
    let mut gaps = Gaps::default();
    let mut latest: BTreeMap<&str, usize> = BTreeMap::new();
    for (index, event) in trace.iter().enumerate() {
        let before = latest.insert(&event.node, index);
        let Some(reason) = gap(before.map(|before| &trace[before]), event) else {
            continue;
        };
        gaps.reasons.push(reason);
        match before {
            Some(before) => gaps.after.insert(before),
            None => gaps.before.insert(index),
        };
    }
    gaps
}

/// Which events of the node are missing between `before` and this one, if any.
fn gap(before: Option<&TraceEvent>, event: &TraceEvent) -> Option<String> {
    let expected = match before {
        Some(before) if before.incarnation == event.incarnation => before.seq + 1,
        Some(before) if before.incarnation > event.incarnation => {
            return Some(format!(
                "an event of {} from its start number {} comes after one from number {}",
                event.node, event.incarnation, before.incarnation
            ));
        }
        _ => 0,
    };
    (event.seq != expected).then(|| {
        format!(
            "event {expected} of {} after its start number {} is missing (found {})",
            event.node, event.incarnation, event.seq
        )
    })
}

fn conclude(
    properties: BTreeMap<String, PropertyResult>,
    event_count: u64,
    node_count: u64,
    lost: Option<&str>,
) -> CheckerResult {
    let violated = violated(&properties);
    let unexercised: Vec<&str> = properties
        .iter()
        .filter(|(_, property)| property.valid != Validity::Invalid && property.checked == 0)
        .map(|(id, _)| id.as_str())
        .collect();
    let suspicious: Vec<&str> = unexercised
        .iter()
        .filter(|id| !MAY_STAY_UNEXERCISED.contains(*id))
        .copied()
        .collect();
    let told = format!(
        "{} of {}",
        counted(event_count, "event"),
        counted(node_count, "node")
    );
    let (valid, summary) = if let Some(first) = violated.first() {
        let property = &properties[*first];
        let mut summary = format!("{first} ({}): {}", property.title, property.summary);
        if violated.len() > 1 {
            summary.push_str(&format!(" (also violated: {})", violated[1..].join(", ")));
        }
        (Validity::Invalid, summary)
    } else if let Some(lost) = lost {
        (Validity::Unknown, format!("evidence was lost: {lost}"))
    } else if !suspicious.is_empty() {
        let names = suspicious.join(", ");
        (
            Validity::Unknown,
            format!("{names} never exercised by {told}"),
        )
    } else {
        let held = properties.len() - unexercised.len();
        let mut summary = format!(
            "{} held over {told}",
            counted(held as u64, "protocol invariant")
        );
        if !unexercised.is_empty() {
            let named = match unexercised.len() {
                count if count > UNEXERCISED_NAMED_MAX => format!("{count} others"),
                _ => unexercised.join(", "),
            };
            summary.push_str(&format!(" ({named} not exercised)"));
        }
        (Validity::Valid, summary)
    };
    let mut result = conclusion(valid, SOURCE, summary);
    if let Some(first) = violated.first() {
        result.evidence = properties[*first].evidence.clone();
    }
    result.properties = properties;
    result
}

/// The violated properties, the one that was violated first before the others.
fn violated(properties: &BTreeMap<String, PropertyResult>) -> Vec<&str> {
    let mut violated: Vec<(u64, &str)> = properties
        .iter()
        .filter(|(_, property)| property.valid == Validity::Invalid)
        .map(|(id, property)| {
            let time = property.evidence["time"].as_u64();
            (time.unwrap_or(u64::MAX), id.as_str())
        })
        .collect();
    violated.sort_unstable();
    violated.into_iter().map(|(_, id)| id).collect()
}
