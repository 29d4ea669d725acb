//! Owns the list of all properties that look at what nodes hold or say to one another.
//! Never knows what any of them is about.

use std::rc::Rc;

use results::trace::TraceEvent;

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
            fn settle(&mut self, model: &Model) {
                $(self.$field.settle(model);)*
            }

            fn before(&mut self, model: &Model, event: &Rc<TraceEvent>) {
                $(self.$field.before(model, event);)*
            }

            fn after(&mut self, model: &Model, event: &Rc<TraceEvent>, outcome: &Outcome) {
                $(self.$field.after(model, event, outcome);)*
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
