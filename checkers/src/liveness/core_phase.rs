//! Owns the question whether a majority alone, with the rest broken, served, agreed and stayed calm.
//! Never says anything about a run without such a phase, nor where the evidence has gaps.

mod evidence;
mod kept;
mod lag;
mod nodes;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use results::history::Operation;
use results::manifest::Manifest;
use results::trace::{Role, TraceDetail, TraceEvent};
use results::verdict::{PropertyResult, Validity};
use serde_json::json;

pub(crate) use self::kept::Kept;

use self::evidence::{Outcome, Phase};
use self::nodes::NodeState;
use super::property;
use crate::{counted, seconds};

/// How long what was on its way when a node was cut off may still be at work in it.
const GRACE_NS: u64 = 500_000_000;
/// Someone who did not get to look for so long cannot tell a slow cluster from a slow machine.
const STANDSTILL_MS: u64 = 1_000;

/// What was found about a phase: properties by name, those that were exercised only.
pub(super) fn check(
    manifest: &Manifest,
    history: &[Operation],
    trace: &[TraceEvent],
) -> BTreeMap<String, PropertyResult> {
    let mut found = BTreeMap::new();
    let Some(phase) = Phase::find(history) else {
        return found;
    };
    let mut add = |name: &str, property: Option<PropertyResult>| {
        if let Some(property) = property {
            found.insert(name.to_owned(), property);
        }
    };
    add("core-recovery", recovery(&phase, trace));
    add("core-agreement", agreement(&phase, trace));
    let fetch_timeout_ms = manifest.options.timers.fetch_timeout_ms;
    add(
        "cut-off-leader-resigns",
        resignation(&phase, trace, fetch_timeout_ms),
    );
    add("cut-off-voter-waits", restraint(&phase, trace));
    if manifest.is_simulated() {
        // Only a simulation is never just slow.
        let max_wait_ms = manifest.options.timers.fetch_max_wait_ms;
        let (replication, commitment) = lag::check(&phase, trace, max_wait_ms);
        add("replication-lag", replication);
        add("commit-lag", commitment);
    }
    found
}

fn recovery(phase: &Phase<'_>, trace: &[TraceEvent]) -> Option<PropertyResult> {
    let title = "a majority that is whole serves within the bound, whatever the other nodes do: writes and \
                 a read succeed in one epoch";
    let source = "bounded recovery of a majority, as in KAFKA-12851, KIP-595";
    let healed = phase.healed?;
    let core = phase.core.join(", ");
    let rest = format!("{} {}", phase.rest.join(", "), phase.rest_is());
    let (valid, summary) = match &phase.outcome {
        Outcome::Settled(settled) => {
            let took = seconds(settled.since_ns.saturating_sub(healed.time_ns));
            let summary = format!(
                "{core} served from {took} after they were healed, in epoch {}, with {rest}",
                settled.epoch.map_or("?".into(), |epoch| epoch.to_string())
            );
            (Validity::Valid, summary)
        }
        Outcome::GivenUp(_) if phase.crashed_in_core => return None,
        Outcome::GivenUp(given_up) => {
            let states = nodes::at(trace, given_up.time_ns);
            let roles = phase.core.iter().map(|name| match states.get(name) {
                Some(state) => format!("{name} {}", state.describe()),
                None => format!("{name} silent"),
            });
            let roles: Vec<String> = roles.collect();
            let served = match given_up.success_count {
                0 => "no operation succeeded".to_owned(),
                count => format!(
                    "{} succeeded, but not in one epoch",
                    counted(count, "operation")
                ),
            };
            let summary = format!(
                "{core} did not serve within {} ms after they were healed at {}, with {rest}: {served} of \
                 {}; at the end {}",
                healed.bound_ms,
                seconds(healed.time_ns),
                given_up.tried_count,
                roles.join(", ")
            );
            if given_up.longest_wait_ms > STANDSTILL_MS {
                let stood = format!(
                    "nothing is concluded, as the machine stood still for {} ms: {summary}",
                    given_up.longest_wait_ms
                );
                (Validity::Unknown, stood)
            } else {
                (Validity::Invalid, summary)
            }
        }
        Outcome::Open => return None,
    };
    Some(property(valid, title, source, 1, summary, phase.evidence()))
}

/// At the end, what was committed when the core settled must be everywhere in it, and one node lead it.
fn agreement(phase: &Phase<'_>, trace: &[TraceEvent]) -> Option<PropertyResult> {
    let title =
        "once a majority serves, one node leads it, and all of its logs hold what was committed";
    let source = "KIP-595: followers of a live leader catch up";
    let Outcome::Settled(settled) = &phase.outcome else {
        return None;
    };
    if phase.crashed_in_core || trace.is_empty() {
        return None;
    }
    let healed = phase.healed?;
    let needed_ms = healed.slack_ms.saturating_add(healed.window_ms);
    let needed_ns = needed_ms.saturating_mul(1_000_000);
    if settled.time_ns.saturating_sub(healed.time_ns) < needed_ns {
        return None;
    }
    let before = nodes::at(trace, settled.since_ns);
    let wanted = phase.core.iter().filter_map(|name| before.get(name));
    let wanted = wanted.map(|state| state.high_watermark).max()?;
    let after = nodes::at(trace, settled.time_ns);
    let members: Vec<(&String, &NodeState)> = phase
        .core
        .iter()
        .filter_map(|name| Some((name, after.get(name)?)))
        .collect();
    if members.len() < phase.core.len() {
        return None;
    }
    let mut problems: Vec<String> = Vec::new();
    let leaders: Vec<&str> = members
        .iter()
        .filter(|(_, state)| state.role == Some(Role::Leader))
        .map(|(name, _)| name.as_str())
        .collect();
    if leaders.len() != 1 {
        problems.push(format!(
            "{} of {} lead",
            if leaders.is_empty() {
                "none".to_owned()
            } else {
                leaders.join(", ")
            },
            phase.core.join(", ")
        ));
    }
    let newest = members.iter().map(|(_, state)| state.epoch).max()?;
    for (name, state) in &members {
        if state.epoch != newest {
            problems.push(format!(
                "{name} is in epoch {}, the newest is {newest}",
                state.epoch
            ));
        } else if state.log_end < wanted || state.high_watermark < wanted {
            problems.push(format!(
                "{name} has a log up to {} and knows {} as committed, but everything below {wanted} was \
                 committed {} before",
                state.log_end,
                state.high_watermark,
                seconds(settled.time_ns.saturating_sub(settled.since_ns))
            ));
        }
    }
    let is_standstill = settled.longest_wait_ms > STANDSTILL_MS;
    let (valid, summary) = match problems.first() {
        None => (
            Validity::Valid,
            format!("{} agree up to {wanted}", phase.core.join(", ")),
        ),
        Some(_) if is_standstill => return None,
        Some(_) => (
            Validity::Invalid,
            format!("at {}: {}", seconds(settled.time_ns), problems.join("; ")),
        ),
    };
    let states: BTreeMap<_, _> = members
        .iter()
        .map(|(name, state)| (name.as_str(), state.evidence()))
        .collect();
    let evidence = json!({ "committed_before": wanted, "nodes": states });
    let checked = members.len() as u64;
    Some(property(valid, title, source, checked, summary, evidence))
}

/// A leader that reaches nobody must notice that it lost its majority.
fn resignation(
    phase: &Phase<'_>,
    trace: &[TraceEvent],
    fetch_timeout_ms: u64,
) -> Option<PropertyResult> {
    let title = "a leader that is cut off from everybody stops leading within 1.5 fetch timeouts";
    let source = "check quorum (KAFKA-15489)";
    let end = phase.cut_off_until()?;
    let slack_ns = phase.healed?.slack_ms * 1_000_000;
    let due = phase.chosen_ns + fetch_timeout_ms * 1_500_000 + slack_ns + GRACE_NS;
    if end <= due {
        return None;
    }
    let before = nodes::at(trace, phase.chosen_ns);
    let after = nodes::at(trace, due);
    let mut checked = 0;
    let mut staying = Vec::new();
    for name in &phase.rest {
        let led = |state: &&NodeState| state.role == Some(Role::Leader);
        let Some(leader) = before.get(name).filter(led) else {
            continue;
        };
        checked += 1;
        let same = |state: &&NodeState| led(state) && state.epoch == leader.epoch;
        if after.get(name).filter(same).is_some() {
            staying.push(format!(
                "{name} was cut off at {} and still leads epoch {} at {}",
                seconds(phase.chosen_ns),
                leader.epoch,
                seconds(due)
            ));
        }
    }
    // A node that was stopped, or whose machine was, cannot notice anything.
    if checked == 0 || (!staying.is_empty() && phase.stood_still(STANDSTILL_MS)) {
        return None;
    }
    let valid = if staying.is_empty() {
        Validity::Valid
    } else {
        Validity::Invalid
    };
    let summary = staying.join("; ");
    Some(property(
        valid,
        title,
        source,
        checked,
        summary,
        phase.evidence(),
    ))
}

/// Whoever reaches nobody cannot win a pre-vote, so it must not raise its epoch and disturb others later.
fn restraint(phase: &Phase<'_>, trace: &[TraceEvent]) -> Option<PropertyResult> {
    let title = "a voter that is cut off from everybody does not stand for election";
    let source = "pre-vote (KIP-996)";
    let end = phase.cut_off_until()?;
    let begin = phase.chosen_ns + GRACE_NS;
    if end <= begin {
        return None;
    }
    let candidacy = trace.iter().find(|event| {
        let is_candidate = matches!(
            event.detail,
            TraceDetail::RoleChange {
                role: Role::Candidate,
                ..
            }
        );
        let in_rest = phase.rest.iter().any(|node| *node == event.node);
        is_candidate && in_rest && (begin..end).contains(&event.time)
    });
    let (valid, summary) = match candidacy {
        None => (Validity::Valid, String::new()),
        Some(event) => (
            Validity::Invalid,
            format!(
                "{} became a candidate in epoch {} at {}, although it was cut off from everybody since {}",
                event.node,
                event.epoch,
                seconds(event.time),
                seconds(phase.chosen_ns)
            ),
        ),
    };
    let evidence = json!({ "phase": phase.evidence(), "event": candidacy });
    let checked = phase.rest.len() as u64;
    Some(property(valid, title, source, checked, summary, evidence))
}
