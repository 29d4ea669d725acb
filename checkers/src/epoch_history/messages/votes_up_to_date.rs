//! Owns property M2: votes go only to candidates whose log is at least as up to date.
//! Never asks for reasons to refuse: a vote may always be refused.

use std::collections::BTreeMap;

use std::rc::Rc;

use results::shared_text::SharedText;
use results::trace::{TraceDetail, TraceEvent};
use serde_json::json;

use super::{received, sent};
use crate::epoch_history::model::Model;
use crate::epoch_history::property::{Property, event_json};
use crate::epoch_history::rule::Rule;
use crate::seconds;

/// Who asked whom: voter, candidate, and the number of the request.
type Question = (SharedText, String, u64);

/// What a candidate's log was found to lack when its request arrived.
#[derive(Debug)]
struct Request {
    event: Rc<TraceEvent>,
    /// Epoch of the last record and end of the candidate's log.
    candidate: (i32, i64),
    /// The same of the voter's log at that moment.
    own: (i32, i64),
}

#[derive(Debug)]
pub(in crate::epoch_history) struct VotesUpToDate {
    property: Property,
    open: BTreeMap<Question, Request>,
}

impl VotesUpToDate {
    pub(in crate::epoch_history) fn new() -> Self {
        Self {
            property: Property::new(
                "M2",
                "a vote, or the promise of one, goes only to a candidate whose log is at least as up \
                 to date as the voter's",
                "Ongaro & Ousterhout 2014, section 5.4.1; KIP-595; KIP-996",
            ),
            open: BTreeMap::new(),
        }
    }
}

impl Rule for VotesUpToDate {
    const LOOKS_AT_MESSAGES: bool = true;

    fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        match event.detail {
            TraceDetail::Started(_) => self.open.retain(|(voter, ..), _| *voter != event.node),
            TraceDetail::RpcReceived { .. } => self.note(model, event),
            TraceDetail::RpcSent { .. } => self.check(model, event),
            _ => {}
        }
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

impl VotesUpToDate {
    /// The decision falls when the request arrives; the answer may leave later.
    fn note(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        let Some((from, message)) = received(event) else {
            return;
        };
        let asks = matches!(message.rpc.as_ref(), "vote" | "pre-vote") && !message.is_response;
        let (Some(correlation), Some(last_epoch), Some(offset), true) = (
            message.correlation,
            message.last_epoch,
            message.offset,
            asks,
        ) else {
            return;
        };
        let node = model.node(event);
        let votes_again = message.rpc == "vote"
            && message
                .message_epoch
                .is_some_and(|epoch| node.votes.get(&epoch).is_some_and(|kept| kept == from));
        let question = (event.node.clone(), from.to_owned(), correlation);
        match node.log.last_epoch().filter(|_| !node.lost) {
            // The logs were compared when the vote was given; the candidate only asks again.
            Some(own_epoch) if !votes_again => {
                let request = Request {
                    event: event.clone(),
                    candidate: (last_epoch, offset),
                    own: (own_epoch, node.log.end()),
                };
                self.open.insert(question, request);
            }
            _ => {
                self.open.remove(&question);
            }
        }
    }

    fn check(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        let Some((to, message)) = sent(event) else {
            return;
        };
        let answers = matches!(message.rpc.as_ref(), "vote" | "pre-vote") && message.is_response;
        let Some(correlation) = message.correlation.filter(|_| answers) else {
            return;
        };
        let question = (event.node.clone(), to.to_owned(), correlation);
        let Some(request) = self.open.remove(&question) else {
            return;
        };
        if message.granted != Some(true) || model.node(event).lost {
            return;
        }
        self.property.checked += 1;
        if request.candidate >= request.own {
            return;
        }
        self.property.violated(event.time, || {
            let summary = format!(
                "{} granted a {} to {to} at {}, although its own log ended at {} in epoch {} and \
                 that of {to} at {} in epoch {}",
                event.node,
                message.rpc,
                seconds(event.time),
                request.own.1,
                request.own.0,
                request.candidate.1,
                request.candidate.0
            );
            let contradicts = json!({
                "request": event_json(&request.event),
                "log_end": request.own.1,
                "last_epoch": request.own.0,
            });
            (summary, event_json(event), contradicts)
        });
    }
}
