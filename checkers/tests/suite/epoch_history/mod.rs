//! Owns the test of the epoch-history checker: a tiny correct cluster, and one mutation per property.
//! Never lets a mutation pass unseen, nor a correct trace be blamed.

mod cluster;
mod messages;
mod replica;
mod snapshots;
mod speed;
mod voters;

use checkers::epoch_history::check;
use cluster::Shape;
use replica::{Random, name};
use results::history::Operation;
use results::trace::{Role, Started, TraceDetail, TraceEvent};
use results::verdict::{CheckerResult, Validity};
use serde_json::json;

/// How many traces a mutation must apply to.
const FLAGGED_COUNT: u32 = 25;

/// Those that three voters exercise that do nothing special.
const PLAIN_PROPERTIES: [&str; 9] = ["I1", "I2", "I3", "I4", "I5", "I6", "K2", "K3", "K6"];

/// The others.
const FULL_PROPERTIES: [&str; 10] = ["K1", "K4", "S1", "S2", "M1", "M2", "M3", "M4", "M5", "M6"];

/// What three voters report that do nothing special.
fn correct_trace(seed: u64) -> Vec<TraceEvent> {
    cluster::correct_trace(Shape::Plain, seed)
}

pub(crate) fn judge(trace: &[TraceEvent]) -> CheckerResult {
    check(trace, &[], 3, false)
}

/// Numbers the events of every incarnation anew after some were added or removed.
pub(crate) fn renumber(trace: &mut [TraceEvent]) {
    let mut next = std::collections::BTreeMap::new();
    for event in trace {
        let seq = next
            .entry((event.node.clone(), event.incarnation))
            .or_insert(0);
        event.seq = *seq;
        *seq += 1;
    }
}

/// Applies a mutation to traces of many seeds until it finds a place often enough, and expects the
/// property to be violated every time.
pub(crate) fn must_flag(property: &str, mutate: impl Fn(&mut Vec<TraceEvent>) -> bool) {
    must_flag_in(Shape::Plain, property, mutate);
}

pub(crate) fn must_flag_in(
    shape: Shape,
    property: &str,
    mutate: impl Fn(&mut Vec<TraceEvent>) -> bool,
) {
    let mut flagged = 0;
    for seed in 0..200 {
        if flagged == FLAGGED_COUNT {
            return;
        }
        let mut trace = cluster::correct_trace(shape, seed);
        if !mutate(&mut trace) {
            continue;
        }
        renumber(&mut trace);
        let result = judge(&trace);
        let found = &result.properties[property];
        assert_eq!(found.valid, Validity::Invalid, "seed {seed}: {found:?}");
        assert_eq!(result.valid, Validity::Invalid);
        assert!(!found.summary.is_empty() && !found.evidence["event"].is_null());
        flagged += 1;
    }
    panic!("the mutation applied to {flagged} traces only");
}

/// Whether a node tells that it leads.
pub(crate) fn is_election(event: &TraceEvent) -> bool {
    matches!(
        event.detail,
        TraceDetail::RoleChange {
            role: Role::Leader,
            ..
        }
    )
}

pub(crate) fn last(trace: &[TraceEvent], wanted: impl Fn(&TraceEvent) -> bool) -> Option<usize> {
    trace.iter().rposition(wanted)
}

/// How often traces of correct clusters exercised the properties, in their order.
fn exercised(shape: Shape, properties: &[&str]) -> Vec<u64> {
    let mut exercised = vec![0; properties.len()];
    for seed in 0..200 {
        let result = judge(&cluster::correct_trace(shape, seed));
        assert_ne!(
            result.valid,
            Validity::Invalid,
            "seed {seed}: {}",
            result.summary
        );
        assert!(!result.summary.contains("lost"), "{}", result.summary);
        for (count, property) in exercised.iter_mut().zip(properties) {
            *count += result.properties[*property].checked;
        }
    }
    exercised
}

#[test]
fn correct_traces_are_never_blamed_and_exercise_everything() {
    let checked = exercised(Shape::Plain, &PLAIN_PROPERTIES);
    assert!(
        checked.iter().all(|count| *count > 200),
        "{PLAIN_PROPERTIES:?}: {checked:?}"
    );
    let all = [&PLAIN_PROPERTIES[..], &FULL_PROPERTIES].concat();
    let checked = exercised(Shape::Full, &all);
    assert!(
        checked.iter().all(|count| *count > 200),
        "{all:?}: {checked:?}"
    );
}

#[test]
fn what_a_run_need_not_have_is_not_missed() {
    let result = (0..)
        .map(|seed| judge(&correct_trace(seed)))
        .find(|result| result.valid == Validity::Valid)
        .unwrap();
    for property in FULL_PROPERTIES {
        let found = &result.properties[property];
        assert_eq!((found.valid, found.checked), (Validity::Unknown, 0));
        assert_eq!(found.summary, "never exercised");
    }
    assert!(
        result
            .summary
            .starts_with("9 protocol invariants held over")
            && result
                .summary
                .ends_with("of 3 nodes (10 others not exercised)"),
        "{}",
        result.summary
    );
}

#[test]
fn two_leaders_in_one_epoch_are_flagged() {
    must_flag("I1", |trace| {
        let adopted = |event: &TraceEvent| matches!(event.detail, TraceDetail::EpochAdopted { .. });
        let Some(place) = last(trace, adopted) else {
            return false;
        };
        let TraceDetail::EpochAdopted { leader } = &mut trace[place].detail else {
            return false;
        };
        *leader = Some("n9".into());
        true
    });
}

#[test]
fn a_success_served_by_another_than_the_leader_is_flagged() {
    let trace = correct_trace(1);
    let epoch = trace.iter().map(|event| event.epoch).max().unwrap();
    let operation: Operation = serde_json::from_value(json!({
        "index": 7, "time": 9, "process": 3, "type": "ok", "f": "read", "key": "1",
        "value": 1, "node": "n9", "epoch": epoch,
    }))
    .unwrap();
    let result = check(&trace, &[operation], 3, false);
    let property = &result.properties["I1"];
    assert_eq!(property.valid, Validity::Invalid);
    assert!(property.summary.contains("process 3"), "{property:?}");
}

#[test]
fn a_leader_without_committed_data_is_flagged() {
    must_flag("I2", |trace| {
        let exposes =
            |event: &TraceEvent| matches!(event.detail, TraceDetail::HighWatermark { .. });
        if last(trace, exposes).is_none() {
            return false;
        }
        let mut event = trace.last().unwrap().clone();
        event.incarnation += 1;
        event.time += 1;
        event.detail = TraceDetail::Started(Box::new(Started {
            role: Role::Unattached,
            log_start: 0,
            log_end: 0,
            last_epoch: 0,
            voted_for: None,
            leader: None,
            truncated_bytes: 0,
            snapshots: None,
            voters: None,
            kraft_version: None,
            directory_id: None,
            is_voter: None,
        }));
        event.epoch += 1;
        trace.push(event.clone());
        event.time += 1;
        event.detail = TraceDetail::RoleChange {
            role: Role::Leader,
            leader: None,
            epoch_start_offset: Some(0),
            reason: None,
        };
        trace.push(event);
        true
    });
}

#[test]
fn different_content_at_the_same_offset_and_epoch_is_flagged() {
    let of_follower = |trace: &[TraceEvent]| {
        last(trace, |event| match event.detail {
            TraceDetail::Append { crc, .. } => {
                // A copy of what another node had appended before.
                trace.iter().any(|other| {
                    other.node != event.node
                        && other.time < event.time
                        && matches!(other.detail, TraceDetail::Append { crc: same, .. } if same == crc)
                })
            }
            _ => false,
        })
    };
    must_flag("I3", |trace| {
        let Some(place) = of_follower(trace) else {
            return false;
        };
        if let TraceDetail::Append { crc, .. } = &mut trace[place].detail {
            *crc += 1_000_000;
        }
        true
    });
    must_flag("I3", |trace| {
        let Some(place) = of_follower(trace) else {
            return false;
        };
        if let TraceDetail::Append { last_offset, .. } = &mut trace[place].detail {
            *last_offset += 1;
        }
        true
    });
}

#[test]
fn an_epoch_that_goes_back_is_flagged() {
    must_flag("I5", |trace| {
        let event = trace.last_mut().unwrap();
        event.epoch -= 1;
        event.epoch >= 1
    });
}

#[test]
fn a_commit_without_a_majority_on_disk_is_flagged() {
    must_flag("I6", |trace| {
        let leaders: Vec<(String, i32)> = trace
            .iter()
            .filter(|event| {
                matches!(
                    event.detail,
                    TraceDetail::RoleChange {
                        role: Role::Leader,
                        ..
                    }
                )
            })
            .map(|event| (event.node.to_string(), event.epoch))
            .collect();
        let Some((first, epoch)) = leaders.first().cloned() else {
            return false;
        };
        // Only the leader of the first epoch flushes; it must have committed something.
        let until = trace
            .iter()
            .position(|event| event.epoch > epoch)
            .unwrap_or(trace.len());
        trace.truncate(until);
        let restarts = |event: &TraceEvent| event.incarnation > 1;
        let commits = last(trace, |event| {
            event.node == first && matches!(event.detail, TraceDetail::HighWatermark { .. })
        });
        if commits.is_none() || trace.iter().any(restarts) {
            return false;
        }
        trace.retain(|event| {
            event.node == first || !matches!(event.detail, TraceDetail::Flush { .. })
        });
        go_on_talking(trace);
        true
    });
}

/// Adds an event of every node at the end: nobody's trace is cut.
pub(crate) fn go_on_talking(trace: &mut Vec<TraceEvent>) {
    let Some(end) = trace.last().cloned() else {
        return;
    };
    for node in 0..3 {
        let mut event = end.clone();
        event.time += 1;
        event.node = name(node).into();
        event.detail = TraceDetail::EpochAdopted { leader: None };
        trace.push(event);
    }
}

#[test]
fn a_commit_after_the_other_traces_end_is_neither_a_pass_nor_a_blame() {
    let mut unknown = 0;
    for seed in 0..150 {
        let mut trace = correct_trace(seed);
        let Some(commit) = last(&trace, |event| {
            matches!(event.detail, TraceDetail::HighWatermark { .. })
        }) else {
            continue;
        };
        let leader = trace[commit].node.clone();
        let half = trace.len() / 2;
        let mut position = 0;
        trace.retain(|event| {
            position += 1;
            position <= half || event.node == leader
        });
        let result = judge(&trace);
        assert_ne!(
            result.valid,
            Validity::Invalid,
            "seed {seed}: {}",
            result.summary
        );
        unknown += usize::from(result.valid == Validity::Unknown);
    }
    assert!(unknown >= 20, "only {unknown} traces were doubtful");
}

#[test]
fn a_node_that_serves_after_its_trace_ends_has_lost_evidence() {
    let trace = correct_trace(3);
    let end = trace
        .iter()
        .filter(|event| event.node == "n1")
        .map(|event| event.time)
        .max();
    let lines = |sent: u64| -> Vec<Operation> {
        [("invoke", sent), ("ok", sent + 1)]
            .iter()
            .zip(0u64..)
            .map(|((kind, time), index)| {
                serde_json::from_value(json!({
                    "index": index, "time": time, "process": 0, "type": kind, "f": "write",
                    "key": "1", "value": 1, "node": "n1"
                }))
                .unwrap()
            })
            .collect()
    };
    let late = check(&trace, &lines(end.unwrap() + 1), 3, false);
    assert_eq!(late.valid, Validity::Unknown, "{}", late.summary);
    assert!(
        late.summary.contains("the trace of n1 ends"),
        "{}",
        late.summary
    );
    let before = check(&trace, &lines(end.unwrap() - 1), 3, false);
    assert!(
        !before.summary.contains("the trace of n1 ends"),
        "{}",
        before.summary
    );
}

#[test]
fn a_commit_at_the_start_of_the_epoch_is_flagged() {
    must_flag("I6", |trace| {
        let Some(commit) = last(trace, |event| {
            matches!(event.detail, TraceDetail::HighWatermark { .. })
        }) else {
            return false;
        };
        let epoch = trace[commit].epoch;
        let TraceDetail::HighWatermark { high_watermark, .. } = trace[commit].detail else {
            return false;
        };
        for event in trace.iter_mut().filter(|event| event.epoch == epoch) {
            if let TraceDetail::RoleChange {
                role: Role::Leader,
                epoch_start_offset,
                ..
            } = &mut event.detail
            {
                *epoch_start_offset = Some(high_watermark);
                return true;
            }
        }
        false
    });
}

fn add_after_commit(trace: &mut Vec<TraceEvent>, detail: impl Fn(i64) -> TraceDetail) -> bool {
    let Some(place) = last(trace, |event| {
        matches!(event.detail, TraceDetail::HighWatermark { high_watermark, .. }
            if high_watermark > 1)
    }) else {
        return false;
    };
    let mut event = trace[place].clone();
    if let TraceDetail::HighWatermark { high_watermark, .. } = event.detail {
        event.detail = detail(high_watermark);
    }
    trace.insert(place + 1, event);
    true
}

/// Lets a leader do something to its log right after the first append of its epoch.
fn add_after_own_append(trace: &mut Vec<TraceEvent>, detail: impl Fn(i64) -> TraceDetail) -> bool {
    let led = last(trace, |event| {
        matches!(
            event.detail,
            TraceDetail::RoleChange {
                role: Role::Leader,
                ..
            }
        )
    });
    let Some(led) = led else { return false };
    let (node, epoch) = (trace[led].node.clone(), trace[led].epoch);
    let mut later = (led + 1..trace.len()).filter(|at| trace[*at].node == node);
    let Some(appended) = later.next().filter(|at| trace[*at].epoch == epoch) else {
        return false;
    };
    let TraceDetail::Append { base_offset, .. } = trace[appended].detail else {
        return false;
    };
    let mut event = trace[appended].clone();
    event.detail = detail(base_offset);
    trace.insert(appended + 1, event);
    true
}

#[test]
fn a_leader_that_removes_something_from_its_log_is_flagged() {
    must_flag("I4", |trace| {
        add_after_own_append(trace, |base_offset| TraceDetail::Truncate {
            log_end: base_offset,
        })
    });
    must_flag("I4", |trace| {
        add_after_own_append(trace, |base_offset| TraceDetail::Append {
            base_offset,
            last_offset: base_offset,
            batch_epoch: 99,
            crc: 5,
        })
    });
}

#[test]
fn committed_data_that_retracts_is_flagged() {
    must_flag("K2", |trace| {
        add_after_commit(trace, |committed| TraceDetail::HighWatermark {
            high_watermark: committed - 1,
            log_end: committed,
        })
    });
    must_flag("K2", |trace| {
        add_after_commit(trace, |committed| TraceDetail::Truncate {
            log_end: committed - 1,
        })
    });
}

/// A copy that a replica holds in an earlier epoch than the one that committed it counts for nobody.
#[test]
fn what_a_later_epoch_commits_may_be_removed_in_an_earlier_one() {
    let events = |removed_in: i32| -> Vec<TraceEvent> {
        let append = |node: &str, epoch: i32| {
            json!({"node": node, "epoch": epoch, "event": "append", "base_offset": 0,
                   "last_offset": 0, "batch_epoch": 1, "crc": 7})
        };
        let commit = json!({"node": "n1", "epoch": 3, "event": "high-watermark",
                            "high_watermark": 1, "log_end": 1});
        let remove = json!({"node": "n3", "epoch": removed_in, "event": "truncate", "log_end": 0});
        let lines = [append("n1", 1), append("n3", 1), commit, remove];
        let lines = lines.into_iter().zip(1..).map(|(mut line, time)| {
            line["time"] = json!(time);
            line["incarnation"] = json!(1);
            line["seq"] = json!(0);
            serde_json::from_value(line).unwrap()
        });
        let mut events: Vec<TraceEvent> = lines.collect();
        renumber(&mut events);
        events
    };
    let judged = |removed_in| judge(&events(removed_in)).properties["K2"].valid;
    assert_eq!(judged(3), Validity::Invalid);
    assert_ne!(judged(2), Validity::Invalid);
}

#[test]
fn a_high_watermark_beyond_the_log_is_flagged() {
    must_flag("K3", |trace| {
        add_after_commit(trace, |committed| TraceDetail::HighWatermark {
            high_watermark: committed + 1,
            log_end: committed,
        })
    });
}

#[test]
fn a_second_vote_in_an_epoch_is_flagged() {
    must_flag("K6", |trace| {
        let votes = |event: &TraceEvent| matches!(event.detail, TraceDetail::VotePersisted { .. });
        let Some(place) = last(trace, votes) else {
            return false;
        };
        let mut event = trace[place].clone();
        event.detail = TraceDetail::VotePersisted {
            candidate: "n9".into(),
        };
        trace.insert(place + 1, event);
        true
    });
}

#[test]
fn a_vote_forgotten_by_a_restart_is_flagged() {
    must_flag("K6", |trace| {
        let Some(place) = last(
            trace,
            |event| matches!(&event.detail, TraceDetail::Started(started) if started.voted_for.is_some()),
        ) else {
            return false;
        };
        if let TraceDetail::Started(started) = &mut trace[place].detail {
            started.voted_for = None;
        }
        true
    });
}

#[test]
fn lost_events_leave_every_property_unknown_but_blame_nobody() {
    let mut seen = 0;
    for seed in 0..100 {
        let mut trace = correct_trace(seed);
        let place = Random(seed).below(trace.len() as u64 - 1);
        let removed = trace.remove(place);
        let later = |event: &TraceEvent| {
            event.node == removed.node && event.incarnation == removed.incarnation
        };
        if !trace[place..].iter().any(later) {
            continue; // The end of a trace may be missing: the node was killed.
        }
        seen += 1;
        let result = judge(&trace);
        assert_eq!(
            result.valid,
            Validity::Unknown,
            "seed {seed}: {}",
            result.summary
        );
        for property in result.properties.values() {
            assert_eq!(property.valid, Validity::Unknown);
        }
        let missing = format!("event {} of {}", removed.seq, removed.node);
        assert!(result.summary.contains(&missing), "{}", result.summary);
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn without_a_trace_nothing_is_known() {
    let result = judge(&[]);
    assert_eq!(result.valid, Validity::Unknown);
    assert!(result.summary.contains("no node left a trace"));
    let mut trace = correct_trace(1);
    trace.retain(|event| event.node != "n3");
    let result = judge(&trace);
    assert_eq!(result.valid, Validity::Unknown, "{}", result.summary);
    assert!(result.summary.contains("only 2 of 3 nodes"));
}

#[test]
fn a_flush_at_the_very_time_of_the_commit_counts() {
    let mut trace = correct_trace(2);
    // All nodes speak in lock-step: every time is shared by many events of different nodes.
    for event in &mut trace {
        event.time /= 100;
    }
    let in_order = judge(&trace);
    assert_ne!(in_order.valid, Validity::Invalid, "{}", in_order.summary);
    // Sorted by name within a time, as reading node by node would leave them.
    trace.sort_by(|one, other| (one.time, &one.node).cmp(&(other.time, &other.node)));
    let majority = &judge(&trace).properties["I6"];
    assert_ne!(majority.valid, Validity::Invalid, "{}", majority.summary);
}
