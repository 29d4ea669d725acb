//! Owns property I1 (and K5, which is the same): every epoch has at most one leader.
//! Never looks at logs or votes.

use std::collections::BTreeMap;

use results::history::{Operation, OperationType, Process};
use results::trace::{Role, TraceDetail, TraceEvent};
use serde_json::{Value, json};

use super::property::{Property, event_json};
use crate::seconds;

/// Someone's statement, with the evidence for it.
#[derive(Debug)]
struct Claim {
    name: String,
    words: String,
    evidence: Value,
}

#[derive(Debug)]
pub(super) struct OneLeader {
    property: Property,
    /// First claim of a leader by epoch.
    leaders: BTreeMap<i32, Claim>,
}

impl OneLeader {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "I1",
                "every epoch has at most one leader",
                "KIP-595; election safety, Ongaro & Ousterhout 2014",
            ),
            leaders: BTreeMap::new(),
        }
    }

    pub(super) fn observe(&mut self, event: &TraceEvent) {
        let (leader, role) = match &event.detail {
            TraceDetail::Started(started) => (started.leader.as_ref(), Some(started.role)),
            TraceDetail::RoleChange { role, leader, .. } => (leader.as_ref(), Some(*role)),
            TraceDetail::EpochAdopted { leader } => (leader.as_ref(), None),
            _ => return,
        };
        if let Some(leader) = leader {
            self.claim_leader(event, leader);
        }
        if role == Some(Role::Leader) {
            self.claim_leader(event, &event.node);
        }
    }

    fn claim_leader(&mut self, event: &TraceEvent, leader: &str) {
        let words = || format!("{} at {}", event.node, seconds(event.time));
        self.add_leader(event.epoch, event.time, leader, words, || event_json(event));
    }

    fn add_leader(
        &mut self,
        epoch: i32,
        time: u64,
        leader: &str,
        words: impl Fn() -> String,
        evidence: impl Fn() -> Value,
    ) {
        self.property.checked += 1;
        match self.leaders.get(&epoch) {
            None => {
                self.leaders.insert(
                    epoch,
                    Claim {
                        name: leader.into(),
                        words: words(),
                        evidence: evidence(),
                    },
                );
            }
            Some(first) if first.name == leader => {}
            Some(first) => self.property.violated(time, || {
                let summary = format!(
                    "epoch {epoch} has two leaders: {} (according to {}) and {leader} \
                     (according to {})",
                    first.name,
                    first.words,
                    words()
                );
                (summary, evidence(), first.evidence.clone())
            }),
        }
    }

    /// Only a leader serves, so a success names the leader of its epoch.
    pub(super) fn observe_history(&mut self, history: &[Operation]) {
        for operation in history {
            let (OperationType::Ok, Process::Client(process), Some(node), Some(epoch)) = (
                operation.operation_type,
                operation.process,
                &operation.node,
                operation.epoch,
            ) else {
                continue;
            };
            let words = || {
                format!(
                    "the {} that it served to process {process} at {}",
                    operation.f,
                    seconds(operation.time)
                )
            };
            self.add_leader(epoch, operation.time, node, words, || {
                json!({
                    "index": operation.index,
                    "time": operation.time,
                    "process": process,
                    "f": operation.f,
                    "node": node,
                    "epoch": epoch,
                })
            });
        }
    }

    pub(super) fn into_property(self) -> Property {
        self.property
    }
}
