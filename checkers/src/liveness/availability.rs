//! Owns what faults cost those who use the cluster: time without leader, elections, time until it served again.
//! Never calls any of it a violation: how long is too long, other properties say.

use std::collections::{BTreeMap, BTreeSet};

use results::history::{Operation, OperationType, Process};
use results::manifest::Manifest;
use results::schedule::{Schedule, ScheduledFault};
use results::trace::Role;
use results::verdict::{PropertyResult, Validity};
use serde_json::{Map, Value, json};

use super::property;
use crate::coverage::ground;
use crate::standing::{Ground, Standings};
use crate::{EVIDENCE_LIST_MAX_COUNT, counted, seconds};

const NS_PER_MS: u64 = 1_000_000;
/// Most faults whose recovery is told.
const FAULT_COUNT_MAX: usize = 1_000;

/// What was measured, by name; nothing where nothing happened that could be.
pub(super) fn check(
    manifest: &Manifest,
    schedule: &Schedule,
    history: &[Operation],
    standings: &Standings,
) -> BTreeMap<String, PropertyResult> {
    let ground = ground(standings, schedule, history);
    let leadership = leadership(manifest, schedule, &ground);
    let recovery = recovery(schedule, history);
    [("leadership", leadership), ("fault-recovery", recovery)]
        .into_iter()
        .filter_map(|(name, property)| Some((name.to_owned(), property?)))
        .collect()
}

/// From the first leader on, as long as clients work, or as long as nodes said anything if they still do.
fn leadership(
    manifest: &Manifest,
    schedule: &Schedule,
    ground: &Ground<'_>,
) -> Option<PropertyResult> {
    let moments: BTreeSet<u64> = ground.moments_ns().collect();
    let first_ns = moments
        .iter()
        .copied()
        .find(|time| ground.leader(*time).is_some())?;
    let last_ns = manifest.phases.workload_end.or(moments.last().copied())?;
    if first_ns >= last_ns {
        return None;
    }
    let leaderless = leaderless(ground, &moments, first_ns, last_ns);
    let total_ns: u64 = leaderless.iter().map(|(from, to)| to - from).sum();
    let longest_ns = leaderless.iter().map(|(from, to)| to - from).max();
    let election_count = elections(ground, first_ns, last_ns);
    let disruptions = disruptions(manifest, schedule, ground, first_ns, last_ns);
    let percent = 100.0 - 100.0 * total_ns as f64 / (last_ns - first_ns) as f64;
    let calm = match disruptions.first() {
        None => "no epoch began under a leader that no fault had troubled".to_owned(),
        Some(first) => format!(
            "{} began under a leader that no fault had troubled (first epoch {} at {})",
            counted(disruptions.len() as u64, "epoch"),
            first.epoch,
            seconds(first.time_ns)
        ),
    };
    let summary = format!(
        "somebody led {percent:.1} % of the time, {} without leader, {} at once at most; {}; {calm}",
        seconds(total_ns),
        seconds(longest_ns.unwrap_or(0)),
        counted(election_count, "election"),
    );
    let listed = disruptions.iter().take(EVIDENCE_LIST_MAX_COUNT);
    let listed: Vec<Value> = listed
        .map(|it| json!({"time": it.time_ns, "epoch": it.epoch, "node": it.node, "led": it.led}))
        .collect();
    let evidence = json!({
        "from_ns": first_ns,
        "to_ns": last_ns,
        "leaderless_ms": total_ns / NS_PER_MS,
        "longest_leaderless_ms": longest_ns.unwrap_or(0) / NS_PER_MS,
        "leaderless_count": leaderless.len(),
        "election_count": election_count,
        "disruption_count": disruptions.len(),
        "disruptions": listed,
    });
    Some(property(
        Validity::Valid,
        "how long nobody led the newest epoch, and which epochs began although its leader was well",
        "KIP-996: a leader that is well is not disturbed",
        election_count,
        summary,
        evidence,
    ))
}

/// When nobody led the newest epoch.
fn leaderless(
    ground: &Ground<'_>,
    moments: &BTreeSet<u64>,
    first_ns: u64,
    last_ns: u64,
) -> Vec<(u64, u64)> {
    let mut found = Vec::new();
    let mut since = None;
    for time in moments.range(first_ns..last_ns) {
        match (ground.leader(*time), since) {
            (None, None) => since = Some(*time),
            (Some(_), Some(from)) => {
                found.push((from, *time));
                since = None;
            }
            _ => {}
        }
    }
    found.extend(since.map(|from| (from, last_ns)));
    found
}

/// How many epochs got a leader.
fn elections(ground: &Ground<'_>, first_ns: u64, last_ns: u64) -> u64 {
    let turns = ground.nodes.values().flat_map(|standing| standing.turns());
    let led: BTreeSet<i32> = turns
        .filter(|(time, stand)| stand.role == Role::Leader && (first_ns..=last_ns).contains(time))
        .map(|(_, stand)| stand.epoch)
        .collect();
    led.len() as u64
}

/// An epoch that began while the leader of the one before was well.
struct Disruption {
    time_ns: u64,
    epoch: i32,
    node: String,
    led: i32,
}

/// What a fault did may show as late as its victims need to notice and to elect.
fn disruptions(
    manifest: &Manifest,
    schedule: &Schedule,
    ground: &Ground<'_>,
    first_ns: u64,
    last_ns: u64,
) -> Vec<Disruption> {
    let timers = &manifest.options.timers;
    let grace_ms = timers.fetch_timeout_ms
        + timers.request_timeout_ms
        + 4 * timers.election_timeout_ms
        + timers.election_backoff_max_ms;
    let grace_ns = grace_ms.saturating_mul(NS_PER_MS);
    let mut turns: Vec<(u64, &str, i32)> = Vec::new();
    for (node, standing) in &ground.nodes {
        turns.extend(
            standing
                .turns()
                .map(|(time, stand)| (time, *node, stand.epoch)),
        );
    }
    turns.sort_unstable();
    let mut newest = 0;
    let mut found = Vec::new();
    for (time_ns, node, epoch) in turns {
        if epoch <= newest {
            continue;
        }
        newest = epoch;
        let is_troubled = schedule.faults.iter().any(|fault| {
            trouble_ns(fault)
                .is_some_and(|(from, to)| from <= time_ns && time_ns <= to.saturating_add(grace_ns))
        });
        let before_ns = time_ns.saturating_sub(1);
        if let Some(leader) = ground.leader(before_ns)
            && !is_troubled
            && time_ns > first_ns
            && time_ns < last_ns
        {
            found.push(Disruption {
                time_ns,
                epoch,
                node: node.to_owned(),
                led: leader.epoch,
            });
        }
    }
    found
}

/// From when to when a fault was there.
fn trouble_ns(fault: &ScheduledFault) -> Option<(u64, u64)> {
    let resolved = fault.resolved.as_ref().filter(|_| fault.was_injected())?;
    let from = resolved.at_ms.saturating_mul(NS_PER_MS);
    let healed_ms = fault.healed_at_ms.unwrap_or(u64::MAX);
    Some((from, healed_ms.saturating_mul(NS_PER_MS)))
}

/// For every fault that was healed: how long nothing succeeded while it was there, and how long it took after
/// healing until something did.
fn recovery(schedule: &Schedule, history: &[Operation]) -> Option<PropertyResult> {
    let successes = Successes::of(history);
    let mut by_fault = Map::new();
    let mut slowest: Option<(u64, u64)> = None;
    let mut longest: Option<(u64, u64)> = None;
    let mut never = Vec::new();
    for fault in schedule.faults.iter().filter(|fault| fault.had_effect()) {
        let Some((from_ns, to_ns)) = trouble_ns(fault).filter(|_| fault.healed_at_ms.is_some())
        else {
            continue;
        };
        let recovered_ns = successes.first_begun_after(to_ns);
        let outage_ns = successes.longest_gap(from_ns, recovered_ns.unwrap_or(to_ns));
        let recovery_ns = recovered_ns.map(|time| time - to_ns);
        if by_fault.len() < FAULT_COUNT_MAX {
            by_fault.insert(
                fault.id.to_string(),
                json!({
                    "recovery_ms": recovery_ns.map(|ns| ns as f64 / 1e6),
                    "outage_ms": outage_ns as f64 / 1e6,
                }),
            );
        }
        match recovery_ns {
            Some(recovery_ns) => slowest = slowest.max(Some((recovery_ns, fault.id))),
            None => never.push(fault.id),
        }
        longest = longest.max(Some((outage_ns, fault.id)));
    }
    let (outage_ns, outage_id) = longest?;
    let mut summary = match slowest {
        Some((recovery_ns, id)) => format!(
            "an operation succeeded {} after a fault was healed at the latest (fault {id})",
            seconds(recovery_ns)
        ),
        None => "no operation succeeded after any fault was healed".into(),
    };
    if let (Some(first), Some(_)) = (never.first(), slowest) {
        summary.push_str(&format!(
            "; none after {} (first fault {first})",
            counted(never.len() as u64, "fault")
        ));
    }
    summary.push_str(&format!(
        "; while one was there, none for {} at most (fault {outage_id})",
        seconds(outage_ns)
    ));
    let evidence = json!({
        "by_fault": by_fault,
        "never_count": never.len(),
    });
    Some(property(
        Validity::Valid,
        "how long it took after each fault until an operation succeeded",
        "time to recover, as in the availability figures of Ongaro 2014, section 9.3",
        by_fault_count(&evidence),
        summary,
        evidence,
    ))
}

fn by_fault_count(evidence: &Value) -> u64 {
    let faults = evidence["by_fault"].as_object();
    faults.map_or(0, |faults| faults.len() as u64)
}

/// When operations succeeded.
struct Successes {
    /// Ascending.
    completed_ns: Vec<u64>,
    /// When each was invoked, ascending, with the earliest completion of it and all that were invoked later.
    invoked_ns: Vec<(u64, u64)>,
}

impl Successes {
    fn of(history: &[Operation]) -> Self {
        let mut open: BTreeMap<u64, u64> = BTreeMap::new();
        let mut successes = Vec::new();
        for line in history {
            let Process::Client(process) = line.process else {
                continue;
            };
            match line.operation_type {
                OperationType::Invoke => {
                    open.insert(process, line.time);
                }
                OperationType::Ok => {
                    successes.extend(open.remove(&process).map(|invoked| (invoked, line.time)));
                }
                OperationType::Fail | OperationType::Info => {
                    open.remove(&process);
                }
            }
        }
        let mut completed_ns: Vec<u64> =
            successes.iter().map(|(_, completed)| *completed).collect();
        completed_ns.sort_unstable();
        successes.sort_unstable();
        let mut earliest = u64::MAX;
        for (_, completed) in successes.iter_mut().rev() {
            earliest = earliest.min(*completed);
            *completed = earliest;
        }
        Self {
            completed_ns,
            invoked_ns: successes,
        }
    }

    /// When the first of those that were invoked from then on succeeded.
    fn first_begun_after(&self, time_ns: u64) -> Option<u64> {
        let at = self
            .invoked_ns
            .partition_point(|(invoked, _)| *invoked < time_ns);
        self.invoked_ns.get(at).map(|(_, completed)| *completed)
    }

    /// The longest time without a success between two moments.
    fn longest_gap(&self, from_ns: u64, to_ns: u64) -> u64 {
        let begin = self.completed_ns.partition_point(|time| *time <= from_ns);
        let mut last = from_ns;
        let mut longest = 0;
        for time in &self.completed_ns[begin..] {
            let end = (*time).min(to_ns);
            longest = longest.max(end - last);
            last = end;
            if *time >= to_ns {
                return longest;
            }
        }
        longest.max(to_ns.saturating_sub(last))
    }
}

#[cfg(test)]
mod tests {
    use results::trace::TraceEvent;

    use super::*;
    use crate::made_up;

    const MS: u64 = NS_PER_MS;

    fn history(operations: &[(u64, u64, &str)]) -> Vec<Operation> {
        let mut lines: Vec<Value> = Vec::new();
        for (process, (invoked, completed, outcome)) in operations.iter().enumerate() {
            for (time, kind) in [(invoked, "invoke"), (completed, outcome)] {
                lines.push(
                    json!({"index": 0, "time": time * MS, "process": process, "type": kind,
                                  "f": "read", "key": "1"}),
                );
            }
        }
        lines.sort_by_key(|line| line["time"].as_u64());
        serde_json::from_value(lines.into()).unwrap()
    }

    fn schedule(faults: &[(u64, u64, Option<u64>)]) -> Schedule {
        let faults: Vec<Value> = faults
            .iter()
            .map(|(id, at, healed)| {
                json!({"id": id, "trigger": {"at_ms": at}, "duration_ms": 1, "fault": {"kind": "pause"},
                       "resolved": {"at_ms": at, "nodes": ["n1"]}, "outcome": "installed",
                       "healed_at_ms": healed, "effect": {"stopped_ms": 1}})
            })
            .collect();
        serde_json::from_value(json!({"format_version": 1, "faults": faults})).unwrap()
    }

    #[test]
    fn recovery_counts_from_healing_and_only_what_began_after_it() {
        let history = history(&[
            (90, 100, "ok"),
            (110, 260, "ok"),
            (205, 300, "fail"),
            (210, 290, "ok"),
            (400, 410, "ok"),
        ]);
        let found = recovery(
            &schedule(&[(7, 105, Some(200)), (8, 300, Some(500))]),
            &history,
        );
        let found = found.unwrap();
        let seven = &found.evidence["by_fault"]["7"];
        assert_eq!(
            (&seven["recovery_ms"], &seven["outage_ms"]),
            (&json!(90.0), &json!(155.0))
        );
        let eight = &found.evidence["by_fault"]["8"];
        assert_eq!(
            (&eight["recovery_ms"], &eight["outage_ms"]),
            (&Value::Null, &json!(110.0))
        );
        assert_eq!(
            (found.checked, &found.evidence["never_count"]),
            (2, &json!(1))
        );
        assert!(
            found.summary.contains("0.090 s") && found.summary.contains("fault 8"),
            "{}",
            found.summary
        );
    }

    #[test]
    fn faults_that_were_never_healed_or_did_nothing_have_no_recovery() {
        let mut schedule = schedule(&[(1, 100, None), (2, 100, Some(200))]);
        schedule.faults[1]
            .effect
            .insert("stopped_ms".into(), 0.into());
        assert!(recovery(&schedule, &history(&[(300, 310, "ok")])).is_none());
    }

    fn trace(events: &[(u64, &str, i32, Value)]) -> Vec<TraceEvent> {
        let mut next: BTreeMap<&str, u64> = BTreeMap::new();
        let events = events.iter().map(|(ms, node, epoch, rest)| {
            let seq = next.entry(node).or_default();
            let mut value = json!({"time": ms * MS, "node": node, "incarnation": 1, "seq": seq, "epoch": epoch});
            *seq += 1;
            let whole = value.as_object_mut().unwrap();
            whole.extend(rest.as_object().unwrap().clone());
            serde_json::from_value(value).unwrap()
        });
        events.collect()
    }

    fn judged(faults: &[(u64, u64, Option<u64>)]) -> PropertyResult {
        let started = || json!({"event": "started", "role": "follower", "log_start": 0, "log_end": 0, "last_epoch": 0});
        let role = |role: &str| json!({"event": "role-change", "role": role});
        let trace = trace(&[
            (10, "n1", 0, started()),
            (10, "n2", 0, started()),
            (20, "n1", 1, role("leader")),
            (21, "n2", 1, role("follower")),
            (500, "n2", 2, role("candidate")),
            (700, "n2", 2, role("leader")),
            (710, "n1", 2, role("follower")),
        ]);
        let manifest = made_up::manifest(json!({
            "options": {
                "nemesis": ["pause"], "nodes": 2,
                "timers": {
                    "election_timeout_ms": 10, "fetch_timeout_ms": 50, "election_backoff_max_ms": 5,
                    "fetch_max_wait_ms": 1, "request_timeout_ms": 5, "retry_backoff_ms": 1
                }
            },
            "phases": {"workload_start": 0, "workload_end": 1_020 * MS},
        }));
        let standings = Standings::of(&trace);
        let mut found = check(&manifest, &schedule(faults), &[], &standings);
        found.remove("leadership").unwrap()
    }

    #[test]
    fn time_without_leader_and_elections_are_counted() {
        let found = judged(&[(1, 450, Some(490))]);
        assert_eq!(found.evidence["leaderless_ms"], 200);
        assert_eq!(found.evidence["longest_leaderless_ms"], 200);
        assert_eq!(found.evidence["election_count"], 2);
        assert_eq!(found.evidence["disruption_count"], 0, "{}", found.summary);
        assert!(found.summary.contains("led 80.0 %"), "{}", found.summary);
    }

    #[test]
    fn an_epoch_that_begins_long_after_the_last_fault_is_a_disruption() {
        for faults in [&[][..], &[(1, 100, Some(390))]] {
            let found = judged(faults);
            assert_eq!(found.valid, Validity::Valid, "measured, not judged");
            assert_eq!(found.evidence["disruption_count"], 1, "{}", found.summary);
            let first = &found.evidence["disruptions"][0];
            assert_eq!((&first["epoch"], &first["node"]), (&json!(2), &json!("n2")));
        }
    }
}
