//! Owns schedules of faults that may lead a whole cluster along the steps of an exploration.
//! Never claims that they do: faults say which nodes are cut off or die at what, not in which order messages
//! arrive. Whoever wants to know runs them.

use results::FORMAT_VERSION;
use results::schedule::{Schedule, ScheduledFault};
use serde_json::{Value, json};

use super::bounds::Beginning;
use super::steps::{Kind, StepFile};

/// Clients begin 2 s after the start of a run; by then somebody leads.
const SETTLED_MS: u64 = 2500;
/// How soon after what it waits for a crash has to come.
const SOON_MS: u64 = 100;

/// A schedule to try, and the size of the cluster to try it on.
#[derive(Debug, Clone, PartialEq)]
pub struct Attempt {
    /// Number of nodes.
    pub nodes: usize,
    /// The faults.
    pub schedule: Schedule,
}

/// Schedules that say as much of the steps as faults can say, the likeliest first.
pub fn attempts(steps: &StepFile) -> Vec<Attempt> {
    let bounds = &steps.bounds;
    let with_timeouts = steps.steps.iter().any(|step| step.kind == Kind::Timeout);
    let disturbances: &[Option<&str>] = match (with_timeouts, bounds.beginning) {
        // Whoever stands for election at the start does so by itself.
        (true, _) => &[Some("partition"), Some("kill")],
        (false, _) => &[None],
    };
    let crash_count = steps
        .steps
        .iter()
        .filter(|step| step.kind == Kind::Crash)
        .count();
    let numbers = if crash_count > 0 { 1..=4 } else { 1..=1 };
    let mut attempts = Vec::new();
    for nth in numbers {
        for disturbance in disturbances {
            for edge in ["after", "before"] {
                for nodes in [bounds.nodes, 5] {
                    let faults = faults(steps, *disturbance, nth, edge);
                    let attempt = Attempt {
                        nodes,
                        schedule: numbered(faults),
                    };
                    if !attempts.contains(&attempt) {
                        attempts.push(attempt);
                    }
                }
            }
        }
    }
    attempts
}

fn faults(steps: &StepFile, disturbance: Option<&str>, nth: u32, edge: &str) -> Vec<Value> {
    let mut faults = Vec::new();
    if steps.bounds.beginning == Beginning::Elected {
        // Somebody was not there when the first record was committed.
        faults.push(json!({
            "trigger": {"at_ms": SETTLED_MS - 200},
            "duration_ms": 1600,
            "fault": {"kind": "partition", "shape": "one-node", "target": "followers"},
        }));
    }
    let mut last_of: Vec<(&str, &str)> = Vec::new();
    let mut disturbed = false;
    let mut written = false;
    let mut asked_count = 0;
    for step in &steps.steps {
        match step.kind {
            Kind::Write => written = true,
            Kind::Snapshot | Kind::Addition | Kind::Removal => {
                // A log is not dropped before its only snapshot.
                let count = if step.kind == Kind::Snapshot { 2 } else { 1 };
                for _ in 0..count {
                    faults.push(asked_for(step.kind, disturbed, asked_count));
                    asked_count += 1;
                }
            }
            Kind::Timeout if !disturbed && disturbance.is_some() => {
                disturbed = true;
                faults.push(disturb(disturbance, written, edge));
            }
            Kind::Crash => {
                let last = last_of.iter().rev().find(|(node, _)| *node == step.node);
                let event = last.map_or("started", |(_, event)| *event);
                faults.push(json!({
                    "trigger": {"on": event, "nth": nth, "edge": edge, "at_ms": SETTLED_MS + SOON_MS},
                    "duration_ms": 10,
                    "fault": {"kind": "kill", "targets": "event-node"},
                }));
            }
            _ => {}
        }
        let did = step.did.iter();
        last_of.extend(did.map(|did| (did.node.as_str(), did.event.as_str())));
    }
    if stands_twice(steps) {
        // Two candidates of one epoch: the first must not win at once.
        faults.push(json!({
            "trigger": {"on": "became-candidate", "at_ms": SETTLED_MS + SOON_MS},
            "duration_ms": 110,
            "fault": {"kind": "partition", "shape": "one-node", "target": "event-node"},
        }));
    }
    faults
}

/// What makes others stand for election: the leader is cut off, or dies; if a client has written before, while
/// that is being appended.
fn disturb(disturbance: Option<&str>, written: bool, edge: &str) -> Value {
    let trigger = if written {
        json!({"on": "append", "node": "leader", "nth": 3, "edge": edge, "at_ms": SETTLED_MS})
    } else {
        json!({"at_ms": SETTLED_MS})
    };
    let target = if written { "event-node" } else { "leader" };
    match disturbance {
        Some("kill") => json!({
            "trigger": trigger,
            "duration_ms": 2500,
            "fault": {"kind": "kill", "targets": target},
        }),
        _ => json!({
            "trigger": trigger,
            "duration_ms": 2000,
            "fault": {"kind": "partition", "shape": "one-node", "target": target},
        }),
    }
}

/// What somebody asks of the nodes, one after the other: snapshots of all of them, and changes of the voters.
fn asked_for(kind: Kind, disturbed: bool, asked_count: u64) -> Value {
    let began_ms = if disturbed {
        SETTLED_MS
    } else {
        SETTLED_MS - 300
    };
    let fault = match kind {
        Kind::Addition => json!({"kind": "membership", "what": "add"}),
        Kind::Removal => json!({"kind": "membership", "what": "remove"}),
        _ => json!({"kind": "snapshot", "targets": "all"}),
    };
    json!({
        "trigger": {"at_ms": began_ms + 2 * SOON_MS * (asked_count + 1)},
        "duration_ms": 500,
        "fault": fault,
    })
}

/// Whether two nodes stand for election.
fn stands_twice(steps: &StepFile) -> bool {
    let did = steps.steps.iter().flat_map(|step| &step.did);
    let mut candidates: Vec<&str> = did
        .filter(|did| did.event == "became-candidate")
        .map(|did| did.node.as_str())
        .collect();
    candidates.sort_unstable();
    candidates.dedup();
    candidates.len() > 1
}

fn numbered(faults: Vec<Value>) -> Schedule {
    let faults = faults.into_iter().zip(1..).map(|(fault, id)| {
        let fault: ScheduledFault =
            serde_json::from_value(fault).expect("what is written here is a fault");
        ScheduledFault { id, ..fault }
    });
    let mut faults: Vec<_> = faults.collect();
    faults.sort_by_key(|fault| (fault.trigger.at_ms, fault.id));
    Schedule {
        format_version: FORMAT_VERSION,
        seed: 0,
        faults,
    }
}
