//! Owns the checker of what the nodes said about themselves: epochs, leaders, votes, logs, commits.
//! Never concludes from silence: lost events and properties never exercised are unknown.

mod epochs;
mod log;
mod logs;
mod property;

use std::collections::BTreeMap;

use results::history::{Operation, OperationType, Process};
use results::trace::TraceEvent;
use results::verdict::{CheckerResult, PropertyResult, Validity};

use crate::{conclusion, counted, seconds};
use epochs::Epochs;
use logs::Logs;

const SOURCE: &str = "KIP-595; Ongaro & Ousterhout 2014 (Raft)";

/// Properties that need a particular event, which a run need not have: nothing committed before a
/// second leader is elected leaves I2 without a case, and that alone makes no run suspicious.
const MAY_STAY_UNEXERCISED: [&str; 1] = ["I2"];

/// Checks the trace of all nodes, and the epochs in the history, against the protocol's invariants.
///
/// `trace` holds the events of every node in the order in which it reported them, merged by time.
/// `voter_count` is the number of voters, all of which are expected to have left a trace.
///
/// `is_complete` says that no event was lost, as in a simulation: a node that is silent did nothing.
pub fn check(
    trace: &[TraceEvent],
    history: &[Operation],
    voter_count: u32,
    is_complete: bool,
) -> CheckerResult {
    let ends = if is_complete {
        BTreeMap::new()
    } else {
        ends(trace)
    };
    let mut epochs = Epochs::new();
    let mut logs = Logs::new(voter_count as usize, ends.clone());
    let mut progress: BTreeMap<&str, (u32, u64)> = BTreeMap::new();
    let mut lost: Vec<String> = Vec::new();
    for event in trace {
        if let Some(reason) = gap(&mut progress, event) {
            logs.lose(&event.node);
            lost.push(reason);
        }
        epochs.observe(event);
        logs.observe(event);
    }
    logs.settle_unsupported();
    epochs.observe_history(history);
    lost.extend(cut_short(&ends, history));
    lost.extend(logs.take_doubts());
    let node_count = progress.len();
    if trace.is_empty() {
        lost.insert(0, "no node left a trace".into());
    } else if node_count < voter_count as usize {
        lost.push(format!(
            "only {node_count} of {voter_count} nodes left a trace"
        ));
    }
    let lost = lost.first().map(String::as_str);
    let mut properties: BTreeMap<String, PropertyResult> = BTreeMap::new();
    for property in epochs.into_properties() {
        properties.insert(property.id.into(), property.finish(lost));
    }
    for property in logs.into_properties() {
        properties.insert(property.id.into(), property.finish(lost));
    }
    conclude(properties, trace.len() as u64, node_count as u64, lost)
}

/// When each node reported its last event.
fn ends(trace: &[TraceEvent]) -> BTreeMap<String, u64> {
    let mut ends = BTreeMap::new();
    for event in trace {
        ends.insert(event.node.clone(), event.time);
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
        let served = line.operation_type == OperationType::Ok && line.f != "read";
        let node = line.node.as_ref().filter(|_| served);
        let (Some(node), Some(sent)) = (node, invoked.get(&line.process)) else {
            continue;
        };
        if let Some(end) = ends.get(node)
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

/// Whether events of the node are missing right before this one, and which.
fn gap<'a>(progress: &mut BTreeMap<&'a str, (u32, u64)>, event: &'a TraceEvent) -> Option<String> {
    let before = progress.insert(&event.node, (event.incarnation, event.seq));
    let expected = match before {
        Some((incarnation, seq)) if incarnation == event.incarnation => seq + 1,
        Some((incarnation, _)) if incarnation > event.incarnation => {
            return Some(format!(
                "an event of {} from its start number {} comes after one from number {incarnation}",
                event.node, event.incarnation
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
            summary.push_str(&format!(" ({} not exercised)", unexercised.join(", ")));
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
