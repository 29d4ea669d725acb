//! Owns the tests of M1 to M6.
//! Never lets a mutation pass unseen.

use results::trace::{Message, Role, TraceDetail, TraceEvent};
use results::verdict::Validity;

use crate::epoch_history::cluster::Shape;
use crate::epoch_history::{is_election, judge, last, must_flag_in};

fn sent(event: &TraceEvent) -> Option<&Message> {
    match &event.detail {
        TraceDetail::RpcSent { message, .. } => Some(message),
        _ => None,
    }
}

fn sent_mut(event: &mut TraceEvent) -> Option<&mut Message> {
    match &mut event.detail {
        TraceDetail::RpcSent { message, .. } => Some(message),
        _ => None,
    }
}

fn is_kind(message: &Message, rpc: &str, is_response: bool) -> bool {
    message.rpc == rpc && message.is_response == is_response
}

fn sends(rpc: &'static str, is_response: bool) -> impl Fn(&TraceEvent) -> bool {
    move |event| sent(event).is_some_and(|message| is_kind(message, rpc, is_response))
}

/// Changes the last message of this kind, and expects the property to be violated.
fn must_flag_changed(
    property: &str,
    (rpc, is_response): (&'static str, bool),
    change: impl Fn(&mut Message) -> bool,
) {
    must_flag_in(Shape::Full, property, |trace| {
        last(trace, sends(rpc, is_response))
            .and_then(|place| sent_mut(&mut trace[place]))
            .is_some_and(&change)
    });
}

#[test]
fn a_vote_granted_or_asked_for_before_it_is_on_disk_is_flagged() {
    for is_response in [true, false] {
        must_flag_in(Shape::Full, "M1", |trace| {
            let Some(place) = last(trace, sends("vote", is_response)) else {
                return false;
            };
            let persists = |event: &TraceEvent| {
                event.node == trace[place].node
                    && event.epoch == trace[place].epoch
                    && matches!(event.detail, TraceDetail::VotePersisted { .. })
            };
            let Some(persisted) = last(&trace[..place], persists) else {
                return false;
            };
            // Late by one: told of first.
            let event = trace.remove(persisted);
            trace.insert(place, event);
            true
        });
    }
}

#[test]
fn a_vote_for_another_than_the_one_on_disk_is_flagged() {
    must_flag_in(Shape::Full, "M1", |trace| {
        let Some(place) = last(trace, sends("vote", true)) else {
            return false;
        };
        if let TraceDetail::RpcSent { to, .. } = &mut trace[place].detail {
            *to = "n9".into();
        }
        true
    });
}

#[test]
fn a_vote_for_a_shorter_log_is_flagged() {
    for rpc in ["vote", "pre-vote"] {
        must_flag_in(Shape::Full, "M2", |trace| {
            // The voter must have something to compare with.
            let asks = |event: &TraceEvent| match &event.detail {
                TraceDetail::RpcReceived { message, .. } => is_kind(message, rpc, false),
                _ => false,
            };
            let has_log = |trace: &[TraceEvent], node: &str| {
                let appended = trace.iter().rev().find(|event| {
                    event.node == node
                        && matches!(
                            event.detail,
                            TraceDetail::Append { .. } | TraceDetail::Started(_)
                        )
                });
                appended.is_some_and(|event| matches!(event.detail, TraceDetail::Append { .. }))
            };
            let place = (0..trace.len())
                .rev()
                .find(|&place| asks(&trace[place]) && has_log(&trace[..place], &trace[place].node));
            let Some(place) = place else {
                return false;
            };
            if let TraceDetail::RpcReceived { message, .. } = &mut trace[place].detail {
                message.last_epoch = Some(0);
                message.offset = Some(0);
            }
            true
        });
    }
}

#[test]
fn a_leader_without_the_votes_of_a_majority_is_flagged() {
    must_flag_in(Shape::Full, "M3", |trace| {
        let Some(place) = last(trace, is_election) else {
            return false;
        };
        let leader = trace[place].clone();
        // Pre-votes stay: answers to questions, which promise nothing.
        let is_vote_of_it = |event: &TraceEvent| match &event.detail {
            TraceDetail::RpcReceived { message, .. } => {
                event.node == leader.node
                    && event.epoch == leader.epoch
                    && is_kind(message, "vote", true)
            }
            _ => false,
        };
        let before = trace.len();
        trace.retain(|event| !is_vote_of_it(event));
        trace.len() < before
    });
}

#[test]
fn a_fetch_from_elsewhere_than_the_end_of_the_log_is_flagged() {
    must_flag_changed("M4", ("fetch", false), |message| {
        message.offset = message.offset.map(|offset| offset + 1);
        true
    });
    must_flag_changed("M4", ("fetch", false), |message| {
        message.last_epoch = message.last_epoch.map(|epoch| epoch + 1);
        message.last_epoch != Some(1)
    });
}

/// What the seeded bug `follower-no-fsync` does.
#[test]
fn a_fetch_before_what_it_acknowledges_is_on_disk_is_flagged() {
    must_flag_in(Shape::Full, "M4", |trace| {
        let flushes = |place: usize| {
            let event = &trace[place];
            matches!(event.detail, TraceDetail::Flush { .. })
                && trace
                    .get(place + 1)
                    .is_some_and(|next| next.node == event.node && sends("fetch", false)(next))
        };
        let Some(place) = (0..trace.len()).rev().find(|&place| flushes(place)) else {
            return false;
        };
        trace.remove(place);
        true
    });
}

#[test]
fn a_fetch_answered_with_what_the_leader_does_not_have_is_flagged() {
    must_flag_changed("M5", ("fetch", true), |message| {
        message.end_offset = message.end_offset.map(|end| end + 1_000);
        message.end_offset.is_some()
    });
    must_flag_changed("M5", ("fetch", true), |message| {
        message.high_watermark = Some(1_000_000);
        true
    });
    must_flag_changed("M5", ("fetch", true), |message| {
        message.message_epoch = message.message_epoch.map(|epoch| epoch - 1);
        true
    });
}

#[test]
fn a_fetch_answered_after_leadership_ended_is_flagged() {
    must_flag_in(Shape::Full, "M5", |trace| {
        let Some(place) = last(trace, sends("fetch", true)) else {
            return false;
        };
        let mut event = trace[place].clone();
        event.detail = TraceDetail::RoleChange {
            role: Role::Resigned,
            leader: None,
            epoch_start_offset: None,
            reason: None,
        };
        trace.insert(place, event);
        true
    });
}

/// An error says nothing about the log, and may be sent by anyone.
#[test]
fn a_fetch_refused_by_a_node_that_does_not_lead_is_not_flagged() {
    let mut trace = crate::epoch_history::cluster::correct_trace(Shape::Full, 1);
    let mut refused = 0;
    for event in &mut trace {
        if let Some(message) = sent_mut(event).filter(|message| is_kind(message, "fetch", true)) {
            message.error = Some("NOT_LEADER_OR_FOLLOWER".into());
            message.message_epoch = Some(0);
            refused += 1;
        }
    }
    let answers = &judge(&trace).properties["M5"];
    assert_eq!((answers.valid, answers.checked), (Validity::Unknown, 0));
    assert!(refused > 0);
}

fn must_flag_read(change: impl Fn(&mut i64, &mut i64)) {
    must_flag_in(Shape::Full, "M6", |trace| {
        let reads = |event: &TraceEvent| matches!(event.detail, TraceDetail::ReadServed { .. });
        let Some(place) = last(trace, reads) else {
            return false;
        };
        if let TraceDetail::ReadServed {
            read_offset,
            applied,
        } = &mut trace[place].detail
        {
            change(read_offset, applied);
        }
        true
    });
}

#[test]
fn a_read_from_a_state_that_lacks_or_exceeds_what_is_committed_is_flagged() {
    must_flag_read(|_, applied| *applied -= 1);
    must_flag_read(|_, applied| *applied += 1_000);
    must_flag_read(|read_offset, applied| {
        *read_offset += 1_000;
        *applied += 1_000;
    });
}

#[test]
fn a_read_answered_before_the_leader_has_committed_is_flagged() {
    must_flag_in(Shape::Full, "M6", |trace| {
        let Some(place) = last(trace, is_election) else {
            return false;
        };
        let mut event = trace[place].clone();
        event.detail = TraceDetail::ReadServed {
            read_offset: 0,
            applied: 0,
        };
        trace.insert(place + 1, event);
        true
    });
}
