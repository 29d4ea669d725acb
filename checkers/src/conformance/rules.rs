//! Owns the rules of the protocol that steps are held against, with their sources and counts.
//! Never decides which rule a step falls under.

use std::collections::BTreeMap;
use std::fmt;

use results::trace::TraceEvent;
use results::verdict::{PropertyResult, Validity};
use serde_json::{Value, json};

use crate::epoch_history::property::{Property, event_json};

/// A rule of the protocol.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(super) enum Rule {
    Roles,
    RoleState,
    Start,
    Votes,
    VoteAnswers,
    PreVotes,
    Appends,
    Truncations,
    HighWatermarks,
    FetchAnswers,
    Epochs,
    Announcements,
    Followers,
    Strangers,
}

/// Id, title and source, in the order of [`Rule`].
const RULES: [(Rule, &str, &str, &str); 14] = [
    (
        Rule::Roles,
        "C1",
        "a node moves only between states that lead to one another",
        "KIP-595; KIP-996; KAFKA-17067",
    ),
    (
        Rule::RoleState,
        "C2",
        "a state goes with its leader, its vote and its log end, all of them durable before",
        "KIP-595; KAFKA-17642",
    ),
    (
        Rule::Start,
        "C3",
        "a node starts in the state that its quorum-state file demands",
        "KIP-595; KAFKA-10527, KAFKA-10661",
    ),
    (
        Rule::Votes,
        "C4",
        "a vote is given where none was, in an epoch without a leader, or to oneself in a new epoch",
        "KIP-595; Ongaro & Ousterhout 2014, figure 2",
    ),
    (
        Rule::VoteAnswers,
        "C5",
        "votes and pre-votes are granted and refused as state and logs demand, by observers too",
        "KIP-595; KIP-996; KAFKA-17641",
    ),
    (
        Rule::PreVotes,
        "C6",
        "whoever stands for election has the pre-votes of a majority",
        "KIP-996",
    ),
    (
        Rule::Appends,
        "C7",
        "a leader appends in its own epoch, from its start on; a follower what its leader answered to \
         the fetch under way; nobody else anything",
        "KIP-595; KAFKA-12331, KAFKA-18723",
    ),
    (
        Rule::Truncations,
        "C8",
        "a follower cuts its log back to where a diverging answer says, and nobody else does",
        "KIP-595; KAFKA-12460",
    ),
    (
        Rule::HighWatermarks,
        "C9",
        "a leader commits beyond the start of its epoch; a follower takes what its leader answered, \
         as far as its log goes, unless that said that logs differ",
        "KIP-595; KAFKA-12619, KAFKA-14704",
    ),
    (
        Rule::FetchAnswers,
        "C10",
        "fetches of another epoch, or to a node that does not lead, are refused, also after waiting; \
         that logs differ is told at once and rightly",
        "KIP-595; KAFKA-15100, KAFKA-10511",
    ),
    (
        Rule::Epochs,
        "C11",
        "whoever answers a request of a later epoch has adopted that epoch, pre-votes included",
        "KIP-595; KIP-996; openraft #1796",
    ),
    (
        Rule::Announcements,
        "C12",
        "a leader tells voters that do not fetch that it leads, again and again",
        "KIP-595; KAFKA-16536, KAFKA-16926",
    ),
    (
        Rule::Followers,
        "C13",
        "a voter follows no leader that has not answered its fetches for a fetch timeout",
        "KIP-595; KAFKA-15489",
    ),
    (
        Rule::Strangers,
        "C14",
        "who asks in the name of another cluster is refused, whatever is asked",
        "KIP-595; KAFKA-12440",
    ),
];

/// How often each rule was applied, how often it could not be, and what broke it first.
#[derive(Debug)]
pub(super) struct Rules {
    properties: Vec<Property>,
    undecided: Vec<u64>,
    first: Option<(u64, Rule)>,
}

impl Default for Rules {
    fn default() -> Self {
        let properties = RULES.map(|(_, id, title, source)| Property::new(id, title, source));
        Self {
            properties: properties.into(),
            undecided: vec![0; RULES.len()],
            first: None,
        }
    }
}

impl Rules {
    /// Applies a rule to a step. `expected` says, for people, what the rule demands here.
    pub(super) fn demand(
        &mut self,
        rule: Rule,
        event: &TraceEvent,
        holds: bool,
        expected: impl FnOnce() -> String,
    ) {
        let step = || event_json(event);
        self.apply(rule, (&event.node, event.time), holds, expected, step);
    }

    /// As [`Self::demand`], of something that took its time until `time`.
    pub(super) fn demand_at(
        &mut self,
        rule: Rule,
        node: &str,
        time: u64,
        holds: bool,
        expected: impl FnOnce() -> String,
    ) {
        let step = || json!({ "node": node });
        self.apply(rule, (node, time), holds, expected, step);
    }

    fn apply(
        &mut self,
        rule: Rule,
        (node, time): (&str, u64),
        holds: bool,
        expected: impl FnOnce() -> String,
        step: impl FnOnce() -> Value,
    ) {
        let property = &mut self.properties[rule as usize];
        property.checked += 1;
        if holds {
            return;
        }
        self.first.get_or_insert((time, rule));
        property.violated(time, || {
            let expected = expected();
            let summary = format!("{node} at {}: {expected}", crate::seconds(time));
            (summary, step(), json!({ "expected": expected }))
        });
    }

    /// Says that the trace does not tell what a rule needs here.
    pub(super) fn leave_open(&mut self, rule: Rule) {
        self.undecided[rule as usize] += 1;
    }

    /// The first rule that was broken, and what came of each.
    pub(super) fn finish(
        self,
        lost: Option<&str>,
    ) -> (Option<&'static str>, BTreeMap<String, PropertyResult>) {
        let first = self.first.map(|(_, rule)| RULES[rule as usize].1);
        let results = self.properties.into_iter().zip(self.undecided);
        let results = results.map(|(property, undecided)| {
            let id = property.id.to_owned();
            let mut result = property.finish(lost);
            if result.valid != Validity::Invalid && undecided > 0 {
                result.evidence = json!({ "undecided_count": undecided });
                if result.checked == 0 {
                    result.summary = format!(
                        "not decidable {undecided} times: the trace does not tell enough \
                         (--trace-messages may)"
                    );
                }
            }
            (id, result)
        });
        (first, results.collect())
    }
}

/// For people: what is known, or that nothing is.
pub(super) fn known(value: Option<impl fmt::Display>) -> String {
    value.map_or_else(|| "unknown".into(), |value| value.to_string())
}
