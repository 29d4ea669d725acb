//! Owns property I6: a leader commits only what a majority of its voters has on disk.
//! Never trusts the order of events of different nodes at the same time.

use std::collections::{BTreeMap, BTreeSet};

use std::rc::Rc;

use results::trace::{TraceDetail, TraceEvent};
use serde_json::json;

use super::log::{Batch, batch_json, may_be_same};
use super::model::{Model, Node, Outcome};
use super::property::{Property, event_json};
use super::rule::Rule;
use super::voter_history::{VoterSet, names_of};
use crate::seconds;

/// A leader's high watermark for which no majority was seen yet.
#[derive(Debug)]
struct Claim {
    event: Rc<TraceEvent>,
    high_watermark: i64,
    /// The batch before the high watermark, in the leader's log.
    last: Option<Batch>,
    /// The voters in force at the end of the leader's log.
    voters: VoterSet,
}

#[derive(Debug)]
pub(super) struct Majority {
    property: Property,
    unsupported: Vec<Claim>,
    doubts: Vec<String>,
}

impl Majority {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "I6",
                "a leader commits only what a majority has on disk, and only from its own epoch on",
                "KIP-595; KAFKA-12619, KAFKA-16530; Ongaro & Ousterhout 2014, section 5.4.2",
            ),
            unsupported: Vec::new(),
            doubts: Vec::new(),
        }
    }
}

impl Rule for Majority {
    fn settle(&mut self, model: &Model) {
        for claim in std::mem::take(&mut self.unsupported) {
            if !claim.has_majority(model) {
                self.judge(model, &claim);
            }
        }
    }

    fn after(&mut self, model: &Model, event: &Rc<TraceEvent>, _outcome: &Outcome) {
        if let TraceDetail::HighWatermark { high_watermark, .. } = event.detail {
            self.check(model, event, high_watermark);
        }
    }

    fn take_doubts(&mut self) -> Vec<String> {
        std::mem::take(&mut self.doubts)
    }

    fn finish(self, _model: &Model, _complete: bool) -> Vec<Property> {
        vec![self.property]
    }
}

impl Majority {
    fn check(&mut self, model: &Model, event: &Rc<TraceEvent>, high_watermark: i64) {
        let node = model.node(event);
        let Some(leads) = node.leads else {
            return;
        };
        self.property.checked += 1;
        if let Some(start) = leads.start
            && high_watermark <= start
        {
            self.property.violated(event.time, || {
                let summary = format!(
                    "{}, leader of epoch {}, set its high watermark to {high_watermark} at {}, but \
                     nothing of its own epoch is below that: the epoch starts at {start}",
                    event.node,
                    leads.epoch,
                    seconds(event.time)
                );
                let contradicts = json!({"epoch_start_offset": start});
                (summary, event_json(event), contradicts)
            });
        }
        let Some(voters) = node.voters.latest().filter(|voters| !voters.is_empty()) else {
            return;
        };
        let claim = Claim {
            event: event.clone(),
            high_watermark,
            last: node.log.at(high_watermark - 1),
            voters: voters.clone(),
        };
        if !claim.has_majority(model) {
            // Another node's flush may carry the same time and stand behind.
            self.unsupported.push(claim);
        }
    }

    /// Everything at the time of the claim is known, and there is no majority.
    fn judge(&mut self, model: &Model, claim: &Claim) {
        let event = &claim.event;
        let supporters = claim.supporters(model);
        // They reported nothing at that time or later: dead, or their trace is cut.
        let ended: BTreeSet<&str> = claim
            .voters
            .iter()
            .map(String::as_str)
            .filter(|name| model.ends.get(*name).is_some_and(|end| *end < event.time))
            .filter(|name| !supporters.contains(name))
            .collect();
        if supporters.len() + ended.len() > claim.voters.len() / 2 {
            self.doubts.push(format!(
                "{} set its high watermark to {} at {}, after the traces of {} end",
                event.node,
                claim.high_watermark,
                seconds(event.time),
                names_of(&ended)
            ));
            return;
        }
        self.property.violated(event.time, || {
            let on_disk: BTreeMap<&str, i64> = model
                .nodes
                .iter()
                .map(|(name, node)| (name, node.durable_end))
                .collect();
            let summary = format!(
                "{} set its high watermark to {} in epoch {} at {}, but only {} of {} voters had \
                 that on disk ({})",
                event.node,
                claim.high_watermark,
                event.epoch,
                seconds(event.time),
                supporters.len(),
                claim.voters.len(),
                names_of(&supporters)
            );
            let contradicts = json!({
                "voters": *claim.voters,
                "durable_log_end": on_disk,
                "batch": claim.last.as_ref().map(batch_json),
            });
            (summary, event_json(event), contradicts)
        });
    }
}

impl Claim {
    fn has_majority(&self, model: &Model) -> bool {
        let needed = self.voters.len() / 2 + 1;
        let may_support = |name: &&String| match model.nodes.get(name.as_str()) {
            Some(node) => self.is_supported_by(node),
            // A voter that left no trace may have anything on its disk.
            None => true,
        };
        self.voters.iter().filter(may_support).take(needed).count() == needed
    }

    fn supporters<'model>(&self, model: &'model Model) -> BTreeSet<&'model str> {
        let nodes = model.nodes.iter();
        nodes
            .filter(|(name, node)| self.voters.contains(*name) && self.is_supported_by(node))
            .map(|(name, _)| name)
            .collect()
    }

    fn is_supported_by(&self, node: &Node) -> bool {
        // What a snapshot covers is there, in another form.
        let is_same = || match (node.log.at(self.high_watermark - 1), &self.last) {
            (Some(one), Some(other)) => may_be_same(&one, other),
            _ => true,
        };
        let was_there = node.wiped_end >= self.high_watermark;
        node.lost || was_there || (node.durable_end >= self.high_watermark && is_same())
    }
}
