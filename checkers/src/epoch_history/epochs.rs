//! Owns the properties of epochs, leaders and votes: I1, I5, K6.
//! Never looks at logs.

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
pub(super) struct Epochs {
    one_leader: Property,
    monotone: Property,
    one_vote: Property,
    /// First claim of a leader by epoch.
    leaders: BTreeMap<i32, Claim>,
    /// Highest epoch by node, with the event that reported it.
    highest: BTreeMap<String, TraceEvent>,
    /// Vote by node and epoch.
    votes: BTreeMap<(String, i32), Claim>,
}

impl Epochs {
    pub(super) fn new() -> Self {
        Self {
            one_leader: Property::new(
                "I1",
                "every epoch has at most one leader",
                "KIP-595; election safety, Ongaro & Ousterhout 2014",
            ),
            monotone: Property::new(
                "I5",
                "the epoch of a node never goes back, restarts included",
                "KIP-595",
            ),
            one_vote: Property::new(
                "K6",
                "a node votes for at most one candidate in an epoch, restarts included",
                "KIP-595; Ongaro & Ousterhout 2014, section 5.2",
            ),
            leaders: BTreeMap::new(),
            highest: BTreeMap::new(),
            votes: BTreeMap::new(),
        }
    }

    pub(super) fn observe(&mut self, event: &TraceEvent) {
        match &event.detail {
            TraceDetail::RefusedToStart { .. } | TraceDetail::Unknown => return,
            TraceDetail::Started {
                role,
                voted_for,
                leader,
                ..
            } => {
                if let Some(leader) = leader {
                    self.claim_leader(event, leader);
                }
                match voted_for {
                    Some(candidate) => self.claim_vote(event, candidate),
                    None if leader.is_none() => self.claim_no_vote(event),
                    None => {}
                }
                self.claim_own_role(event, *role);
            }
            TraceDetail::RoleChange { role, leader, .. } => {
                if let Some(leader) = leader {
                    self.claim_leader(event, leader);
                }
                self.claim_own_role(event, *role);
            }
            TraceDetail::EpochAdopted {
                leader: Some(leader),
            } => self.claim_leader(event, leader),
            TraceDetail::VotePersisted { candidate } => self.claim_vote(event, candidate),
            _ => {}
        }
        self.check_monotone(event);
    }

    /// Whoever leads or wants to lead has voted for itself.
    fn claim_own_role(&mut self, event: &TraceEvent, role: Role) {
        if role == Role::Leader {
            self.claim_leader(event, &event.node);
        }
        if matches!(role, Role::Leader | Role::Candidate) {
            self.claim_vote(event, &event.node);
        }
    }

    fn claim_leader(&mut self, event: &TraceEvent, leader: &str) {
        let words = format!("{} at {}", event.node, seconds(event.time));
        self.add_leader(event.epoch, event.time, leader, words, || event_json(event));
    }

    fn add_leader(
        &mut self,
        epoch: i32,
        time: u64,
        leader: &str,
        words: String,
        evidence: impl Fn() -> Value,
    ) {
        self.one_leader.checked += 1;
        match self.leaders.get(&epoch) {
            None => {
                self.leaders.insert(
                    epoch,
                    Claim {
                        name: leader.into(),
                        words,
                        evidence: evidence(),
                    },
                );
            }
            Some(first) if first.name == leader => {}
            Some(first) => {
                let summary = format!(
                    "epoch {epoch} has two leaders: {} (according to {}) and {leader} \
                     (according to {words})",
                    first.name, first.words
                );
                let contradicts = first.evidence.clone();
                self.one_leader
                    .violated(time, summary, evidence(), contradicts);
            }
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
            let words = format!(
                "the {} that it served to process {process} at {}",
                operation.f,
                seconds(operation.time)
            );
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

    fn claim_vote(&mut self, event: &TraceEvent, candidate: &str) {
        self.one_vote.checked += 1;
        let key = (event.node.clone(), event.epoch);
        let Some(first) = self.votes.get(&key) else {
            self.votes.insert(
                key,
                Claim {
                    name: candidate.into(),
                    words: seconds(event.time),
                    evidence: event_json(event),
                },
            );
            return;
        };
        if first.name != candidate {
            let summary = format!(
                "{} voted twice in epoch {}: for {} at {} and for {candidate} at {}",
                event.node,
                event.epoch,
                first.name,
                first.words,
                seconds(event.time)
            );
            let contradicts = first.evidence.clone();
            self.one_vote
                .violated(event.time, summary, event_json(event), contradicts);
        }
    }

    /// A restart that finds neither a leader nor a vote in an epoch in which the node had voted.
    fn claim_no_vote(&mut self, event: &TraceEvent) {
        self.one_vote.checked += 1;
        if let Some(vote) = self.votes.get(&(event.node.clone(), event.epoch)) {
            let summary = format!(
                "{} voted for {} in epoch {} at {}, but found no vote when it restarted at {}",
                event.node,
                vote.name,
                event.epoch,
                vote.words,
                seconds(event.time)
            );
            let contradicts = vote.evidence.clone();
            self.one_vote
                .violated(event.time, summary, event_json(event), contradicts);
        }
    }

    fn check_monotone(&mut self, event: &TraceEvent) {
        self.monotone.checked += 1;
        match self.highest.get(&event.node) {
            Some(highest) if highest.epoch > event.epoch => {
                let summary = format!(
                    "{} went back from epoch {} (at {}) to epoch {} (at {})",
                    event.node,
                    highest.epoch,
                    seconds(highest.time),
                    event.epoch,
                    seconds(event.time)
                );
                let contradicts = event_json(highest);
                self.monotone
                    .violated(event.time, summary, event_json(event), contradicts);
            }
            Some(highest) if highest.epoch == event.epoch => {}
            _ => {
                self.highest.insert(event.node.clone(), event.clone());
            }
        }
    }

    pub(super) fn into_properties(self) -> [Property; 3] {
        [self.one_leader, self.monotone, self.one_vote]
    }
}
