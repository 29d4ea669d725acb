//! Owns the rules for what is asked and answered between replicas.
//! Never holds a step against what the trace does not tell.

use results::shared_text::SharedText;
use results::trace::{Message, Role, TraceEvent};

use super::replica::{Asked, Fetched, Replica};
use super::rules::{Rule, Rules};
use crate::whom;

/// Who asks in the name of another cluster.
const STRANGER: &str = "stranger";
/// The error by which it is refused.
const FOREIGN: &str = "INCONSISTENT_CLUSTER_ID";
/// Errors by which a request is refused before its epoch is looked at.
const UNREAD: [&str; 2] = ["INVALID_REQUEST", FOREIGN];

fn is_unread(message: &Message) -> bool {
    message
        .error
        .as_deref()
        .is_some_and(|error| UNREAD.contains(&error))
}

/// A request of a peer, or an answer, has come.
pub(super) fn received(replica: &mut Replica, from: &SharedText, message: &Message) {
    replica.fetched = None;
    if message.is_response {
        return answer_received(replica, from, message);
    }
    if from == STRANGER {
        return;
    }
    let (Some(correlation), Some(epoch)) = (message.correlation, message.message_epoch) else {
        return;
    };
    let order = replica.next_order;
    replica.next_order += 1;
    let asked = Asked {
        order,
        epoch,
        last_epoch: message.last_epoch,
        grant: grant_due(replica, from, message),
        is_refused: message.rpc == "fetch"
            && (epoch != replica.epoch || replica.role != Some(Role::Leader)),
    };
    replica.asked.insert((correlation, from.clone()), asked);
}

/// Whether a vote or pre-vote is due (KIP-595, KIP-996); `None` where nobody can tell.
fn grant_due(replica: &Replica, from: &str, message: &Message) -> Option<bool> {
    let pre_vote = match &*message.rpc {
        "pre-vote" => true,
        "vote" => false,
        _ => return None,
    };
    let (epoch, last_epoch) = (message.message_epoch?, message.last_epoch?);
    let is_impossible = last_epoch > epoch || (!pre_vote && last_epoch == epoch);
    if epoch < replica.epoch || is_impossible {
        return Some(false);
    }
    let is_up_to_date = (last_epoch, message.offset?) >= (replica.last_epoch()?, replica.log_end);
    if epoch > replica.epoch {
        return Some(is_up_to_date);
    }
    let role = replica.role?;
    if pre_vote {
        return match role {
            Role::Leader => Some(false),
            Role::Follower if replica.may_have_fetched => None,
            _ => Some(is_up_to_date),
        };
    }
    match (role, &replica.vote) {
        (Role::Unattached | Role::Prospective, None) => {
            Some(replica.leader.is_none() && is_up_to_date)
        }
        // With another directory it is another replica, which the trace does not tell.
        (Role::Unattached | Role::Prospective, Some(vote)) => (vote != from).then_some(false),
        _ => Some(false),
    }
}

fn answer_received(replica: &mut Replica, from: &SharedText, message: &Message) {
    let Some(kind) = replica.take_in_flight(from, message) else {
        return;
    };
    if message.message_epoch != Some(replica.epoch) {
        return;
    }
    match &*kind {
        "pre-vote" if message.granted == Some(true) => {
            replica.granted.insert(from.to_string());
        }
        "fetch" if message.error.is_none() => {
            let is_snapshot = message.end_offset.is_none() && message.last_epoch.is_some();
            replica.fetched = Some(Fetched {
                records: message.offset.zip(message.end_offset),
                high_watermark: message.high_watermark,
                diverging: message.diverging,
                is_snapshot,
            });
            replica.may_have_fetched = true;
            replica.is_digesting = true;
        }
        "fetch-snapshot" => replica.may_have_fetched = true,
        _ => {}
    }
}

/// A request, or an answer to a peer, has left.
pub(super) fn sent(
    replica: &mut Replica,
    rules: &mut Rules,
    event: &TraceEvent,
    to: &SharedText,
    message: &Message,
) {
    if !message.is_response {
        return replica.note_sent(to, message);
    }
    if to == STRANGER {
        return stranger_answered(rules, event, message);
    }
    let Some(correlation) = message.correlation else {
        return;
    };
    let Some(asked) = replica.asked.remove(&(correlation, to.clone())) else {
        return;
    };
    match &*message.rpc {
        "vote" | "pre-vote" => {
            vote_answered(rules, event, to, &asked, message);
            epoch_adopted(rules, event, to, &asked, message);
        }
        "begin-quorum-epoch" | "end-quorum-epoch" => {
            epoch_adopted(rules, event, to, &asked, message);
        }
        "fetch" => fetch_answered(replica, rules, event, to, &asked, message),
        _ => return,
    }
    replica.answered_order = replica.answered_order.max(Some(asked.order));
}

fn stranger_answered(rules: &mut Rules, event: &TraceEvent, message: &Message) {
    let error = message.error.as_deref();
    rules.demand(Rule::Strangers, event, error == Some(FOREIGN), || {
        format!(
            "another cluster asked it for a {}, which had to be refused with {FOREIGN}, and was answered \
             with {}",
            message.rpc,
            error.unwrap_or("no error")
        )
    });
}

fn vote_answered(
    rules: &mut Rules,
    event: &TraceEvent,
    to: &str,
    asked: &Asked,
    message: &Message,
) {
    let (Some(granted), None) = (message.granted, &message.error) else {
        return;
    };
    let Some(due) = asked.grant else {
        return rules.leave_open(Rule::VoteAnswers);
    };
    rules.demand(Rule::VoteAnswers, event, granted == due, || {
        let (due, not) = if due { ("granted", "refused") } else { ("refused", "granted") };
        format!(
            "the {} of epoch {} that {to} asked for had to be {due} when it was asked for, and was {not}",
            message.rpc, asked.epoch
        )
    });
}

fn epoch_adopted(
    rules: &mut Rules,
    event: &TraceEvent,
    to: &str,
    asked: &Asked,
    message: &Message,
) {
    let Some(epoch) = message.message_epoch.filter(|_| !is_unread(message)) else {
        return;
    };
    rules.demand(Rule::Epochs, event, epoch >= asked.epoch, || {
        format!(
            "{to} asked in epoch {}, which had to be adopted, and was answered in epoch {epoch}",
            asked.epoch
        )
    });
}

fn fetch_answered(
    replica: &Replica,
    rules: &mut Rules,
    event: &TraceEvent,
    to: &str,
    asked: &Asked,
    message: &Message,
) {
    if message.error.is_some() {
        return;
    }
    rules.demand(Rule::FetchAnswers, event, !asked.is_refused, || {
        format!(
            "the fetch of {to} in epoch {} came to a node that did not lead that epoch, and had to be \
             refused",
            asked.epoch
        )
    });
    let names_epoch = message.message_epoch == Some(asked.epoch)
        && message.leader.as_deref() == Some(event.node.as_str());
    rules.demand(Rule::FetchAnswers, event, names_epoch, || {
        format!(
            "the fetch of {to} in epoch {} was answered, without an error, in epoch {} of {}",
            asked.epoch,
            message.message_epoch.unwrap_or(-1),
            whom(message.leader.as_deref())
        )
    });
    let Some(diverging) = message.diverging else {
        return;
    };
    let is_overtaken = replica
        .answered_order
        .is_some_and(|order| order > asked.order);
    rules.demand(Rule::FetchAnswers, event, !is_overtaken, || {
        format!(
            "that its log differs had to be told {to} at once, and was told after requests that came \
             later were answered"
        )
    });
    match asked
        .last_epoch
        .and_then(|epoch| replica.end_of_epoch(epoch))
    {
        Some(parts) => rules.demand(Rule::FetchAnswers, event, parts == diverging, || {
            format!(
                "epoch {} ends at {} in this log, and {to} was told that {} ends at {}",
                parts.0, parts.1, diverging.0, diverging.1
            )
        }),
        None => rules.leave_open(Rule::FetchAnswers),
    }
}
