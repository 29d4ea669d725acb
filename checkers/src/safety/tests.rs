//! Owns the checks that each invariant shows at the event that violates it, and not before.
//! Never builds a trace that no cluster could leave.

use super::*;

#[derive(Default)]
struct Trace {
    monitor: Monitor,
    time: u64,
}

impl Trace {
    fn see(&mut self, node: &str, epoch: i32, detail: TraceDetail) -> Option<&'static str> {
        self.time += 1;
        let event = TraceEvent {
            time: self.time,
            node: node.into(),
            incarnation: 1,
            seq: self.time,
            epoch,
            detail,
        };
        self.monitor.observe(&event).map(|found| found.property)
    }

    fn fine(&mut self, node: &str, epoch: i32, detail: TraceDetail) {
        let what = format!("{detail:?}");
        assert_eq!(self.see(node, epoch, detail), None, "{node} {what}");
    }
}

fn append(offset: i64, batch_epoch: i32, crc: u32) -> TraceDetail {
    TraceDetail::Append {
        base_offset: offset,
        last_offset: offset,
        batch_epoch,
        crc,
    }
}

fn committed(high_watermark: i64, log_end: i64) -> TraceDetail {
    TraceDetail::HighWatermark {
        high_watermark,
        log_end,
    }
}

fn leads(epoch_start_offset: i64) -> TraceDetail {
    TraceDetail::RoleChange {
        role: Role::Leader,
        leader: None,
        epoch_start_offset: Some(epoch_start_offset),
        reason: None,
    }
}

fn vote(candidate: &str) -> TraceDetail {
    TraceDetail::VotePersisted {
        candidate: candidate.into(),
    }
}

fn started(log_end: i64) -> TraceDetail {
    TraceDetail::Started(Box::new(Started {
        role: Role::Unattached,
        log_start: 0,
        log_end,
        last_epoch: 0,
        voted_for: None,
        leader: None,
        truncated_bytes: 0,
        snapshots: None,
        voters: None,
        kraft_version: None,
        directory_id: None,
        is_voter: None,
    }))
}

/// Epoch 1, in which n1 leads and n1 and n2 have offsets 0 and 1 committed.
fn settled() -> Trace {
    let mut trace = Trace::default();
    trace.fine("n1", 1, leads(0));
    for node in ["n1", "n2"] {
        trace.fine(node, 1, append(0, 1, 10));
        trace.fine(node, 1, append(1, 1, 11));
        trace.fine(node, 1, committed(2, 2));
    }
    trace
}

#[test]
fn a_second_leader_of_an_epoch() {
    let mut trace = settled();
    let adopted = |leader: &str| TraceDetail::EpochAdopted {
        leader: Some(leader.into()),
    };
    trace.fine("n2", 1, adopted("n1"));
    assert_eq!(trace.see("n3", 1, adopted("n3")), Some("I1"));
}

#[test]
fn a_second_vote_in_an_epoch() {
    let mut trace = settled();
    trace.fine("n3", 2, vote("n2"));
    trace.fine("n3", 2, vote("n2"));
    trace.fine("n3", 3, vote("n1"));
    assert_eq!(trace.see("n3", 3, vote("n2")), Some("K6"));
}

#[test]
fn an_epoch_that_goes_back() {
    let mut trace = settled();
    trace.fine("n2", 4, vote("n2"));
    assert_eq!(trace.see("n2", 3, started(2)), Some("I5"));
}

#[test]
fn a_high_watermark_beyond_the_log_or_going_back() {
    assert_eq!(settled().see("n2", 1, committed(3, 2)), Some("K3"));
    assert_eq!(settled().see("n2", 1, committed(1, 2)), Some("K2"));
    let mut restarted = settled();
    restarted.fine("n2", 1, started(2));
    restarted.fine("n2", 1, committed(1, 2));
}

#[test]
fn another_batch_where_one_is_committed() {
    let mut trace = settled();
    trace.fine("n3", 1, append(0, 1, 10));
    trace.fine("n3", 1, append(1, 1, 99));
    trace.fine("n3", 1, committed(1, 2));
    assert_eq!(trace.see("n3", 1, committed(2, 2)), Some("I3"));
}

#[test]
fn a_cut_below_the_high_watermark() {
    let cut = TraceDetail::Truncate { log_end: 1 };
    assert_eq!(settled().see("n2", 1, cut), Some("K2"));
    assert_eq!(settled().see("n2", 1, append(1, 1, 12)), Some("K2"));
}

#[test]
fn a_leader_that_lacks_what_is_committed() {
    let mut trace = settled();
    trace.fine("n3", 1, append(0, 1, 10));
    assert_eq!(trace.see("n3", 2, leads(1)), Some("I2"));
    let mut complete = settled();
    complete.fine("n2", 2, leads(2));
    let mut late = settled();
    late.fine("n3", 1, append(0, 1, 10));
    late.fine("n3", 1, append(1, 1, 77));
    assert_eq!(late.see("n3", 2, leads(2)), Some("I2"));
}

#[test]
fn a_leader_that_commits_nothing_of_its_own() {
    let mut trace = settled();
    trace.fine("n2", 2, leads(2));
    assert_eq!(trace.see("n2", 2, committed(2, 2)), Some("I6"));
}

/// The log that a snapshot replaces is not held against the node.
#[test]
fn a_snapshot_takes_the_place_of_a_log_that_differs() {
    let mut trace = settled();
    trace.fine("n3", 1, append(0, 1, 10));
    trace.fine("n3", 1, append(1, 1, 99));
    trace.fine("n3", 1, committed(9, 9));
    trace.fine("n3", 1, append(9, 1, 20));
    trace.fine("n3", 1, committed(10, 10));
}

/// A message is reported before the rest of the step that it belongs to, with the epoch at its end.
#[test]
fn the_epoch_of_a_message_is_not_held_against_the_node() {
    let mut trace = settled();
    let sent: TraceDetail = serde_json::from_str(
        r#"{"event":"rpc-sent","to":"n1","rpc":"fetch","is_response":true,"message_epoch":1}"#,
    )
    .expect("a message of the trace format");
    assert_ne!(sent, TraceDetail::Unknown);
    trace.fine("n2", 2, sent);
    trace.fine("n2", 1, committed(2, 2));
    assert_eq!(trace.see("n2", 0, started(2)), Some("I5"));
}

#[test]
fn a_node_with_another_directory_is_another_replica() {
    let start = |directory: &str| {
        let TraceDetail::Started(mut started) = started(0) else {
            unreachable!("it is one")
        };
        started.directory_id = Some(directory.into());
        TraceDetail::Started(started)
    };
    let mut trace = Trace::default();
    trace.fine("n1", 0, start("old"));
    trace.fine("n1", 3, vote("n2"));
    trace.fine("n1", 0, start("new"));
    trace.fine("n1", 3, vote("n3"));
    assert_eq!(trace.see("n1", 0, start("new")), Some("I5"));
}
