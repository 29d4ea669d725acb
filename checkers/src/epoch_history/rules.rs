//! Owns the list of all properties that look at what nodes hold or say to one another.
//! Never knows what any of them is about.

use std::rc::Rc;

use results::trace::{TraceDetail, TraceEvent};

use super::completeness::Completeness;
use super::leader_appends::LeaderAppends;
use super::log_start::LogStart;
use super::majority::Majority;
use super::matching::Matching;
use super::messages::elections::Elections;
use super::messages::fetch_answers::FetchAnswers;
use super::messages::fetch_requests::FetchRequests;
use super::messages::reads::Reads;
use super::messages::votes_kept::VotesKept;
use super::messages::votes_up_to_date::VotesUpToDate;
use super::model::{Model, Outcome};
use super::observers::Observers;
use super::property::Property;
use super::rule::Rule;
use super::snapshots::Snapshots;
use super::voter_changes::VoterChanges;
use super::watermark_in_log::WatermarkInLog;
use super::watermarks::Watermarks;

fn is_message(event: &TraceEvent) -> bool {
    matches!(
        event.detail,
        TraceDetail::RpcSent { .. } | TraceDetail::RpcReceived { .. }
    )
}

/// One field for each rule, rather than a list of boxes: every event passes all of them, and most have
/// nothing to say about it, which costs nothing where the compiler sees it.
macro_rules! rules {
    ($($field:ident: $rule:ident,)*) => {
        /// All of them.
        #[derive(Debug)]
        pub(super) struct Rules {
            $($field: $rule,)*
        }

        impl Rules {
            pub(super) fn new() -> Self {
                Self {
                    $($field: $rule::new(),)*
                }
            }
        }

        impl Rule for Rules {
            const LOOKS_AT_MESSAGES: bool = true;

            fn settle(&mut self, model: &Model) {
                $(self.$field.settle(model);)*
            }

            fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
                let is_message = is_message(event);
                $(if !is_message || $rule::LOOKS_AT_MESSAGES {
                    self.$field.before(model, event);
                })*
            }

            fn after(&mut self, model: &Model, event: &Rc<TraceEvent>, outcome: &Outcome) {
                let is_message = is_message(event);
                $(if !is_message || $rule::LOOKS_AT_MESSAGES {
                    self.$field.after(model, event, outcome);
                })*
            }

            fn take_doubts(&mut self) -> Vec<String> {
                let mut doubts = Vec::new();
                $(doubts.append(&mut self.$field.take_doubts());)*
                doubts
            }

            fn finish(self, model: &Model, complete: bool) -> Vec<Property> {
                let mut properties = Vec::new();
                $(properties.append(&mut self.$field.finish(model, complete));)*
                properties
            }
        }
    };
}

rules! {
    completeness: Completeness,
    matching: Matching,
    majority: Majority,
    leader_appends: LeaderAppends,
    watermarks: Watermarks,
    watermark_in_log: WatermarkInLog,
    voter_changes: VoterChanges,
    observers: Observers,
    log_start: LogStart,
    snapshots: Snapshots,
    votes_kept: VotesKept,
    votes_up_to_date: VotesUpToDate,
    elections: Elections,
    fetch_requests: FetchRequests,
    fetch_answers: FetchAnswers,
    reads: Reads,
}
