//! Owns the tests of S1 and S2, and of what snapshots mean for the other properties.
//! Never lets a mutation pass unseen.

use results::trace::{TraceDetail, TraceEvent};
use results::verdict::Validity;

use crate::epoch_history::cluster::{Shape, correct_trace};
use crate::epoch_history::replica::Random;
use crate::epoch_history::{judge, last, must_flag_in, renumber};

fn freezes(event: &TraceEvent) -> bool {
    matches!(event.detail, TraceDetail::SnapshotFrozen { .. })
}

fn installs(event: &TraceEvent) -> bool {
    matches!(event.detail, TraceDetail::SnapshotInstalled { .. })
}

/// Where the log of a node begins to start later.
fn compacts(event: &TraceEvent) -> bool {
    matches!(event.detail, TraceDetail::LogStartAdvanced { .. })
}

#[test]
fn a_log_start_without_a_snapshot_is_flagged() {
    must_flag_in(Shape::Full, "S1", |trace| {
        let Some(place) = last(trace, compacts) else {
            return false;
        };
        if let TraceDetail::LogStartAdvanced { log_start } = &mut trace[place].detail {
            *log_start -= 1;
        }
        true
    });
}

#[test]
fn a_restart_that_finds_no_snapshot_where_its_log_starts_is_flagged() {
    must_flag_in(Shape::Full, "S1", |trace| {
        let starts_later = |event: &TraceEvent| matches!(&event.detail, TraceDetail::Started(started) if started.log_start > 0);
        let Some(place) = last(trace, starts_later) else {
            return false;
        };
        if let TraceDetail::Started(started) = &mut trace[place].detail {
            started.snapshots = Some(Vec::new());
        }
        true
    });
}

#[test]
fn a_restart_without_the_newest_snapshot_is_flagged() {
    must_flag_in(Shape::Full, "S1", |trace| {
        let finds_one = |event: &TraceEvent| match &event.detail {
            TraceDetail::Started(started) => {
                let snapshots = started.snapshots.as_ref();
                snapshots.is_some_and(|snapshots| !snapshots.is_empty())
            }
            _ => false,
        };
        let Some(place) = last(trace, finds_one) else {
            return false;
        };
        if let TraceDetail::Started(started) = &mut trace[place].detail {
            started.snapshots.as_mut().and_then(Vec::pop);
        }
        true
    });
}

#[test]
fn a_newest_snapshot_that_gets_older_is_flagged() {
    must_flag_in(Shape::Full, "S1", |trace| {
        let Some(place) = last(trace, freezes) else {
            return false;
        };
        let mut event = trace[place].clone();
        if let TraceDetail::SnapshotFrozen { end_offset, .. } = &mut event.detail {
            *end_offset -= 1;
        }
        trace.insert(place + 1, event);
        true
    });
}

#[test]
fn a_snapshot_with_another_state_is_flagged() {
    must_flag_in(Shape::Full, "S2", |trace| {
        let Some(place) = last(trace, installs) else {
            return false;
        };
        if let TraceDetail::SnapshotInstalled { digest, .. } = &mut trace[place].detail {
            *digest = "0123456789abcdef".into();
        }
        true
    });
}

#[test]
fn a_snapshot_of_what_is_not_committed_is_flagged() {
    must_flag_in(Shape::Full, "S2", |trace| {
        let Some(place) = last(trace, freezes) else {
            return false;
        };
        if let TraceDetail::SnapshotFrozen { end_offset, .. } = &mut trace[place].detail {
            *end_offset += 5;
        }
        true
    });
}

/// The snapshots of all nodes agree, but not with the log.
#[test]
fn a_snapshot_with_the_wrong_epoch_or_end_is_flagged() {
    must_flag_in(Shape::Full, "S2", |trace| {
        let mut found = false;
        for event in trace {
            if let TraceDetail::SnapshotFrozen { last_epoch, .. }
            | TraceDetail::SnapshotInstalled { last_epoch, .. } = &mut event.detail
            {
                *last_epoch += 1;
                found = true;
            }
        }
        found
    });
    must_flag_in(Shape::Full, "S2", |trace| {
        let Some(place) = last(trace, freezes) else {
            return false;
        };
        let TraceDetail::SnapshotFrozen { end_offset, .. } = trace[place].detail else {
            return false;
        };
        let splits = |event: &TraceEvent| {
            matches!(event.detail, TraceDetail::Append { base_offset, last_offset, .. }
                if base_offset < end_offset - 1 && last_offset == end_offset - 1)
        };
        if !trace.iter().any(splits) {
            return false;
        }
        if let TraceDetail::SnapshotFrozen { end_offset, .. } = &mut trace[place].detail {
            *end_offset -= 1;
        }
        true
    });
}

#[test]
fn a_snapshot_that_names_other_voters_or_none_is_flagged() {
    for other in [None, Some(vec!["n1".to_owned(), "n9".to_owned()])] {
        must_flag_in(Shape::Full, "S2", |trace| {
            let covers_a_change = |event: &TraceEvent| match &event.detail {
                TraceDetail::SnapshotInstalled { voters, .. } => {
                    voters.as_deref() != Some(&["n1", "n2", "n3"].map(str::to_owned)[..])
                }
                _ => false,
            };
            let Some(place) = last(trace, covers_a_change) else {
                return false;
            };
            if let TraceDetail::SnapshotInstalled { voters, .. } = &mut trace[place].detail {
                *voters = other.clone();
            }
            true
        });
    }
}

#[test]
fn a_snapshot_that_takes_back_what_was_committed_is_flagged() {
    must_flag_in(Shape::Full, "K2", |trace| {
        let exposes = |event: &TraceEvent| {
            matches!(event.detail, TraceDetail::HighWatermark { high_watermark, .. }
                if high_watermark > 2)
        };
        let Some(place) = last(trace, exposes) else {
            return false;
        };
        let mut event = trace[place].clone();
        event.detail = TraceDetail::SnapshotInstalled {
            end_offset: 1,
            last_epoch: 1,
            digest: "0123456789abcdef".into(),
            voters: None,
            kraft_version: 0,
        };
        trace.insert(place + 1, event);
        true
    });
}

#[test]
fn a_log_that_starts_beyond_the_high_watermark_is_flagged() {
    must_flag_in(Shape::Full, "K3", |trace| {
        let Some(place) = last(trace, compacts) else {
            return false;
        };
        if let TraceDetail::LogStartAdvanced { log_start } = &mut trace[place].detail {
            *log_start += 1_000;
        }
        let node = &trace[place].node;
        let incarnation = trace[place].incarnation;
        trace[..place].iter().any(|event| {
            event.node == *node
                && event.incarnation == incarnation
                && matches!(event.detail, TraceDetail::HighWatermark { .. })
        })
    });
}

/// Snapshots and voters make no difference to that: whatever is missing, nobody is blamed for it.
#[test]
fn lost_events_of_a_cluster_with_snapshots_and_changing_voters_blame_nobody() {
    let mut seen = 0;
    for seed in 0..150 {
        let mut trace = correct_trace(Shape::Full, seed);
        let mut random = Random(seed);
        let place = random.below(trace.len() as u64 - 1);
        let removed = trace.remove(place);
        let later = |event: &TraceEvent| {
            event.node == removed.node && event.incarnation == removed.incarnation
        };
        if !trace[place..].iter().any(later) {
            continue;
        }
        seen += 1;
        let result = judge(&trace);
        assert_eq!(
            result.valid,
            Validity::Unknown,
            "seed {seed}, without {removed:?}: {}",
            result.summary
        );
    }
    assert!(seen > 70, "{seen}");
}

/// The last events before a kill may be missing while their effects are on disk.
#[test]
fn an_end_of_an_incarnation_that_is_missing_blames_nobody() {
    for seed in 0..150 {
        let mut trace = correct_trace(Shape::Full, seed);
        let mut random = Random(seed);
        let place = random.below(trace.len() as u64);
        let event = trace[place].clone();
        // What only changes its own disk, and what nobody has heard of.
        let quiet = matches!(
            event.detail,
            TraceDetail::SnapshotFrozen { .. }
                | TraceDetail::SnapshotInstalled { .. }
                | TraceDetail::LogStartAdvanced { .. }
        );
        let next = trace[place + 1..]
            .iter()
            .position(|later| later.node == event.node);
        let Some(next) = next.map(|next| place + 1 + next) else {
            continue;
        };
        if !quiet || trace[next].incarnation == event.incarnation {
            continue;
        }
        trace.remove(place);
        renumber(&mut trace);
        let result = judge(&trace);
        assert_ne!(
            result.valid,
            Validity::Invalid,
            "seed {seed}, without {event:?}: {}",
            result.summary
        );
    }
}
