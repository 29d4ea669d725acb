//! Owns property M3: who leads was voted for by a majority of its voters.
//! Never counts what was said before a vote: answers to pre-votes promise nothing.

use std::collections::{BTreeMap, BTreeSet};

use std::rc::Rc;

use results::shared_text::SharedText;
use results::trace::{Message, Role, TraceDetail, TraceEvent};
use serde_json::json;

use super::{received, sent};
use crate::epoch_history::model::{Model, Outcome};
use crate::epoch_history::property::{Property, event_json};
use crate::epoch_history::rule::Rule;
use crate::epoch_history::voter_history::names_of;
use crate::seconds;

/// What one node asked, and who voted for it.
#[derive(Debug, Default)]
struct Candidacy {
    /// Epoch by the number of the request, for votes only.
    asked: BTreeMap<u64, (String, i32)>,
    /// Who granted, in the epoch.
    granted: BTreeSet<String>,
    epoch: i32,
}

#[derive(Debug)]
pub(in crate::epoch_history) struct Elections {
    property: Property,
    candidacies: BTreeMap<SharedText, Candidacy>,
}

impl Elections {
    pub(in crate::epoch_history) fn new() -> Self {
        Self {
            property: Property::new(
                "M3",
                "whoever becomes leader was granted the votes of a majority of its voters",
                "KIP-595; KIP-996; Ongaro & Ousterhout 2014, section 5.2",
            ),
            candidacies: BTreeMap::new(),
        }
    }
}

impl Rule for Elections {
    const LOOKS_AT_MESSAGES: bool = true;

    fn after(&mut self, model: &Model, event: &Rc<TraceEvent>, _outcome: &Outcome) {
        match event.detail {
            TraceDetail::Started(_) => {
                self.candidacies.remove(event.node.as_str());
            }
            TraceDetail::RpcSent { .. } => self.note_asked(event),
            TraceDetail::RpcReceived { .. } => self.note_granted(event),
            TraceDetail::RoleChange {
                role: Role::Leader, ..
            } => self.check(model, event),
            _ => {}
        }
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

impl Elections {
    fn note_asked(&mut self, event: &Rc<TraceEvent>) {
        let Some((to, message)) = sent(event) else {
            return;
        };
        let (Some(correlation), Some(epoch), "vote", false) = (
            message.correlation,
            message.message_epoch,
            message.rpc.as_ref(),
            message.is_response,
        ) else {
            return;
        };
        let candidacy = self.candidacies.entry(event.node.clone()).or_default();
        if candidacy.epoch != epoch {
            *candidacy = Candidacy {
                epoch,
                ..Candidacy::default()
            };
        }
        candidacy.asked.insert(correlation, (to.to_string(), epoch));
    }

    fn note_granted(&mut self, event: &Rc<TraceEvent>) {
        let Some((from, message)) = received(event).filter(|(_, message)| grants(message)) else {
            return;
        };
        let Some(candidacy) = self.candidacies.get_mut(event.node.as_str()) else {
            return;
        };
        let Some(correlation) = message.correlation else {
            return;
        };
        // The answer does not tell whether a vote or a pre-vote was asked for; its number does.
        let asked = candidacy.asked.get(&correlation);
        if asked.is_some_and(|(to, epoch)| to == from && *epoch == candidacy.epoch) {
            candidacy.granted.insert(from.to_string());
        }
    }

    fn check(&mut self, model: &Model, event: &Rc<TraceEvent>) {
        let node = model.node(event);
        let voters = node.voters.latest().filter(|voters| !voters.is_empty());
        let Some(voters) = voters.filter(|_| node.reports_messages && !node.lost) else {
            return;
        };
        self.property.checked += 1;
        let candidacy = self.candidacies.get(event.node.as_str());
        let granted = candidacy.filter(|candidacy| candidacy.epoch == event.epoch);
        let others = granted.into_iter().flat_map(|granted| &granted.granted);
        let for_it: BTreeSet<&str> = others
            .map(String::as_str)
            .chain([event.node.as_str()])
            .filter(|name| voters.contains(*name))
            .collect();
        if for_it.len() > voters.len() / 2 {
            return;
        }
        self.property.violated(event.time, || {
            let summary = format!(
                "{} became leader of epoch {} at {} with the votes of {} only, of the voters {}",
                event.node,
                event.epoch,
                seconds(event.time),
                names_of(&for_it),
                names_of(voters)
            );
            let contradicts = json!({"votes": for_it, "voters": **voters});
            (summary, event_json(event), contradicts)
        });
    }
}

fn grants(message: &Message) -> bool {
    message.is_response && message.granted == Some(true)
}
