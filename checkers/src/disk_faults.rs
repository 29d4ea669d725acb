//! Owns which ends of nodes, and which refusals to start, a fault of the node's disk explains.
//! Never excuses what a node says or does while it runs.
//!
//! A node whose disk fails must stop, since nobody knows what is durable, and one that finds its data
//! destroyed must not start from it: to refuse is right, to go on and lie is not.

use std::collections::BTreeMap;

use results::history::{Operation, Process};
use results::schedule::{FaultOutcome, Schedule, ScheduledFault};
use serde_json::{Map, Value};

use crate::node_logs::RESTORED;
use crate::seconds;

/// How much later than the end of a fault its consequences may be noticed.
const NOTICED_LATE_NS: u64 = 1_000_000_000;
/// The same, where the disk has failed an operation and no node has ended by it yet: one that is paused, slowed
/// or waits for a slow disk learns of its error when it runs again.
const HELD_UP_NS: u64 = 10_000_000_000;

/// The fault of a disk that explains why this node ended, or refused to start, with these words. `applied_ns`
/// says, by fault, when it was surely done: until a disk has surely been replaced, what was wrong with the old one
/// explains a refusal, as the node may have read it.
pub(crate) fn explanation<'a>(
    schedule: &'a Schedule,
    applied_ns: &BTreeMap<u64, u64>,
    node: &str,
    time_ns: u64,
    refused_to_start: bool,
    words: &str,
) -> Option<&'a ScheduledFault> {
    let mut faults = schedule.faults.iter();
    faults.find(|fault| {
        let Some(since_ns) = since_ns(fault) else {
            return false;
        };
        if since_ns > time_ns {
            return false;
        }
        if may_have_damaged(fault, node) {
            let surely = |wipe: &ScheduledFault| applied_ns.get(&wipe.id).copied();
            return refused_to_start && !is_replaced(schedule, fault, node, time_ns, surely);
        }
        let late_ns = if owes_an_end(fault) {
            HELD_UP_NS
        } else {
            NOTICED_LATE_NS
        };
        let lasted = fault
            .healed_at_ms
            .is_none_or(|healed_ms| time_ns <= healed_ms * 1_000_000 + late_ns);
        lasted
            && may_have_hit(fault, node)
            && error_of(fault).is_some_and(|error| words.contains(error))
    })
}

/// The fault that had destroyed data of this node by then. Only what a start notices is ever destroyed, so
/// the node must not start any more. `applied_ns` says, by fault, when that was surely done: until then, the fault
/// may have waited for the node, which may have started meanwhile.
pub(crate) fn damage<'a>(
    schedule: &'a Schedule,
    applied_ns: &BTreeMap<u64, u64>,
    node: &str,
    time_ns: u64,
) -> Option<&'a ScheduledFault> {
    let mut faults = schedule.faults.iter();
    faults.find(|fault| {
        let applied_ns = applied_ns.get(&fault.id).copied();
        let since_ns = applied_ns.or_else(|| since_ns(fault));
        let is_past = since_ns.is_some_and(|since_ns| since_ns <= time_ns);
        is_past
            && fault.damaged_nodes().any(|damaged| damaged == node)
            && !has_new_disk(schedule, fault, node, time_ns)
    })
}

/// Whether the disk on which a fault destroyed data may have been replaced by `time_ns`: nothing is wrong with the
/// new one.
pub(crate) fn has_new_disk(
    schedule: &Schedule,
    damage: &ScheduledFault,
    node: &str,
    time_ns: u64,
) -> bool {
    is_replaced(schedule, damage, node, time_ns, since_ns)
}

/// The same, where `replaced_ns` says when a fault that replaces disks counts as done.
fn is_replaced(
    schedule: &Schedule,
    damage: &ScheduledFault,
    node: &str,
    time_ns: u64,
    replaced_ns: impl Fn(&ScheduledFault) -> Option<u64>,
) -> bool {
    let Some(damaged_ns) = since_ns(damage) else {
        return false;
    };
    let mut wipes = schedule.faults.iter();
    wipes.any(|wipe| {
        let replaced_ns = replaced_ns(wipe).filter(|_| wipe.has_replaced_disk_of(node));
        replaced_ns.is_some_and(|replaced_ns| (damaged_ns..=time_ns).contains(&replaced_ns))
    })
}

/// Why nobody may expect the cluster to recover: the first fault that was allowed to destroy more than the cluster
/// can lose, and destroyed something or may have. What is lost then stays lost, whoever is healed later.
pub(crate) fn waived_recovery(schedule: &Schedule) -> Option<String> {
    let allowed = schedule.faults.iter().filter(|fault| {
        let parameters = &fault.fault.parameters;
        let is_beyond = parameters.get("beyond_budget") == Some(&Value::Bool(true));
        is_beyond && is_destructive(fault)
    });
    let done = allowed.filter_map(|fault| Some((since_ns(fault)?, fault, destruction(fault)?)));
    let (time_ns, fault, done) = done.min_by_key(|(time_ns, ..)| *time_ns)?;
    Some(format!(
        "fault {} ({}) was beyond the budget and {done} from {} on",
        fault.id,
        fault.fault.kind,
        seconds(time_ns)
    ))
}

/// Whether it destroys data rather than letting operations fail or wait.
fn is_destructive(fault: &ScheduledFault) -> bool {
    let what = fault.fault.parameters.get("what").and_then(Value::as_str);
    match fault.fault.kind.as_str() {
        "wipe" => true,
        "disk" => what.is_some_and(|what| what != "slow-sync" && error_text(what).is_none()),
        _ => false,
    }
}

/// What a fault destroyed, or may have; `None` if it surely destroyed nothing.
fn destruction(fault: &ScheduledFault) -> Option<String> {
    let nodes: Vec<&str> = fault.resolved.as_ref()?.nodes().collect();
    let damaged: Vec<&str> = fault.damaged_nodes().collect();
    let is_hit = |node: &&str| damaged.contains(node) || fault.has_replaced_disk_of(node);
    let mut hit: Vec<&str> = nodes.iter().copied().filter(is_hit).collect();
    if hit.is_empty() {
        hit = damaged.clone();
    }
    if !hit.is_empty() {
        return Some(format!("destroyed data of {}", hit.join(", ")));
    }
    let is_open = matches!(fault.outcome, None | Some(FaultOutcome::Indeterminate));
    is_open.then(|| format!("may have destroyed data of {}", nodes.join(", ")))
}

/// From when on a fault may have been there.
fn since_ns(fault: &ScheduledFault) -> Option<u64> {
    let at_ms = match &fault.resolved {
        Some(resolved) => resolved.at_ms,
        None if is_without_target(fault) => fault.trigger.at_ms,
        None => return None,
    };
    Some(at_ms * 1_000_000)
}

/// Whether it may have been there, and nobody knows for whom: the harness was killed before it could tell.
fn is_without_target(fault: &ScheduledFault) -> bool {
    fault.resolved.is_none() && fault.outcome == Some(FaultOutcome::Indeterminate)
}

/// Whether the disk had failed more operations when the fault was healed than nodes had ended by then.
fn owes_an_end(fault: &ScheduledFault) -> bool {
    let count = |name: &str| fault.effect.get(name).and_then(Value::as_u64).unwrap_or(0);
    count("hit_count") > count("crashed_count")
}

/// Whether this node was a target of the fault, or may have been as nobody knows whom it hit.
pub(crate) fn may_have_hit(fault: &ScheduledFault, node: &str) -> bool {
    let mut nodes = fault.resolved.iter().flat_map(|resolved| resolved.nodes());
    is_without_target(fault) || nodes.any(|hit| hit == node)
}

/// Whether the fault destroyed durable data of this node, or may have as nobody lived to tell what it did.
pub(crate) fn may_have_damaged(fault: &ScheduledFault, node: &str) -> bool {
    let is_untold = is_destructive(fault) && fault.was_injected() && !fault.tells_of_data();
    fault.damaged_nodes().any(|damaged| damaged == node) || (is_untold && may_have_hit(fault, node))
}

/// What a node says that stopped because this fault of its disk let an operation fail.
pub(crate) fn error_of(fault: &ScheduledFault) -> Option<&'static str> {
    if fault.fault.kind != "disk" {
        return None;
    }
    error_text(fault.fault.parameters.get("what")?.as_str()?)
}

/// What a node says that stopped because a disk fault of this name let an operation fail: the words of the
/// operating system, the same in all systems that the harness runs on. `None` if nothing fails by it.
pub fn error_text(what: &str) -> Option<&'static str> {
    match what {
        "sync-error" | "read-error" => Some("(os error 5)"),
        "no-space" => Some("(os error 28)"),
        _ => None,
    }
}

/// The voters after all faults were healed, as the leader named them; `None` where nobody says.
pub(crate) fn voters_left(history: &[Operation]) -> Option<Vec<String>> {
    let is_restored = |line: &&Operation| line.process == Process::Nemesis && line.f == RESTORED;
    let restored = history.iter().rev().find(is_restored)?;
    let names = restored.value["voters"].as_array()?.iter();
    names.map(|name| name.as_str().map(str::to_owned)).collect()
}

/// Nodes that were still down after all faults were healed because they refuse to start with data that
/// a fault has destroyed, with their reasons.
pub(crate) fn left_down(history: &[Operation]) -> Map<String, Value> {
    let is_restored = |line: &&Operation| line.process == Process::Nemesis && line.f == RESTORED;
    let restored = history.iter().rev().find(is_restored);
    let damaged = restored.and_then(|line| line.value["damaged"].as_object());
    damaged.cloned().unwrap_or_default()
}
