//! Owns the properties of messages between replicas, and of reads: M1 to M6.
//! Never concludes anything about a run whose nodes do not report their messages.

pub(super) mod elections;
pub(super) mod fetch_answers;
pub(super) mod fetch_requests;
pub(super) mod reads;
pub(super) mod votes_kept;
pub(super) mod votes_up_to_date;

use results::trace::{Message, TraceDetail, TraceEvent};

/// The message that left with this event, and to whom.
fn sent(event: &TraceEvent) -> Option<(&str, &Message)> {
    match &event.detail {
        TraceDetail::RpcSent { to, message } => Some((to, message)),
        _ => None,
    }
}

/// The message that arrived with this event, and from whom.
fn received(event: &TraceEvent) -> Option<(&str, &Message)> {
    match &event.detail {
        TraceDetail::RpcReceived { from, message } => Some((from, message)),
        _ => None,
    }
}
