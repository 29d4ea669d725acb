//! Owns the properties of epochs, leaders and votes: I1, I5, K6.
//! Never looks at logs.

use std::collections::BTreeMap;

use results::history::{Operation, OperationType, Process};
use std::rc::Rc;

use results::shared_text::SharedText;
use results::trace::{Role, TraceDetail, TraceEvent};
use serde_json::{Value, json};

use super::nodes::Nodes;
use super::property::{Property, event_json};
use crate::seconds;

/// Someone's statement, with the evidence for it.
#[derive(Debug)]
struct Claim {
    name: String,
    words: String,
    evidence: Value,
}

/// Number of a node with a certain data directory: with another one, it is another replica (KIP-853).
type Replica = usize;

/// What is known of the present incarnation of a node.
#[derive(Debug, Clone, Copy)]
struct Incarnation {
    number: u32,
    /// `None` if its start is missing, and with it its directory.
    replica: Option<Replica>,
    /// Whether it tells which directory it has.
    has_directory: bool,
}

#[derive(Debug)]
pub(super) struct Epochs {
    one_leader: Property,
    monotone: Property,
    one_vote: Property,
    incarnations: Nodes<Incarnation>,
    /// By node and directory, which is empty where the node does not tell.
    replicas: BTreeMap<(SharedText, String), Replica>,
    /// First claim of a leader by epoch.
    leaders: BTreeMap<i32, Claim>,
    /// Highest epoch by replica, with the event that reported it.
    highest: Vec<Option<Rc<TraceEvent>>>,
    /// Vote by replica and epoch.
    votes: BTreeMap<(Replica, i32), (String, Rc<TraceEvent>)>,
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
                "KIP-595; KIP-853; Ongaro & Ousterhout 2014, section 5.2",
            ),
            incarnations: Nodes::default(),
            replicas: BTreeMap::new(),
            leaders: BTreeMap::new(),
            highest: Vec::new(),
            votes: BTreeMap::new(),
        }
    }

    pub(super) fn observe(&mut self, event: &Rc<TraceEvent>) {
        let replica = self.replica(event);
        match &event.detail {
            // Those of messages and reads say nothing of their own: they are reported as a message
            // leaves, when the node may be in a later epoch than the next of its other events.
            TraceDetail::RefusedToStart { .. }
            | TraceDetail::RpcSent { .. }
            | TraceDetail::RpcReceived { .. }
            | TraceDetail::ReadServed { .. }
            | TraceDetail::Unknown => return,
            TraceDetail::Started(started) => {
                if let Some(leader) = &started.leader {
                    self.claim_leader(event, leader);
                }
                match &started.voted_for {
                    Some(candidate) => self.claim_vote(replica, event, candidate),
                    None if started.leader.is_none() => self.claim_no_vote(replica, event),
                    None => {}
                }
                self.claim_own_role(replica, event, started.role);
            }
            TraceDetail::RoleChange { role, leader, .. } => {
                if let Some(leader) = leader {
                    self.claim_leader(event, leader);
                }
                self.claim_own_role(replica, event, *role);
            }
            TraceDetail::EpochAdopted {
                leader: Some(leader),
            } => self.claim_leader(event, leader),
            TraceDetail::VotePersisted { candidate } => self.claim_vote(replica, event, candidate),
            _ => {}
        }
        if let Some(replica) = replica {
            self.check_monotone(replica, event);
        }
    }

    /// Which replica speaks. Unknown after a start that is missing, if it could be another one.
    fn replica(&mut self, event: &TraceEvent) -> Option<Replica> {
        let known = self.incarnations.get(&event.node);
        if let Some(known) = known
            && known.number == event.incarnation
        {
            return known.replica;
        }
        let directory = match &event.detail {
            TraceDetail::Started(started) => started.directory_id.as_deref(),
            _ => None,
        };
        let is_start = matches!(event.detail, TraceDetail::Started(_));
        let told_directory = known.is_some_and(|known| known.has_directory);
        let key = (event.node.clone(), directory.unwrap_or_default().to_owned());
        let next = self.replicas.len();
        let replica =
            (is_start || !told_directory).then(|| *self.replicas.entry(key).or_insert(next));
        let incarnation = Incarnation {
            number: event.incarnation,
            replica,
            has_directory: directory.is_some() || told_directory,
        };
        *self.incarnations.enter(&event.node, || incarnation) = incarnation;
        replica
    }

    /// Whoever leads or wants to lead has voted for itself.
    fn claim_own_role(&mut self, replica: Option<Replica>, event: &Rc<TraceEvent>, role: Role) {
        if role == Role::Leader {
            self.claim_leader(event, &event.node);
        }
        if matches!(role, Role::Leader | Role::Candidate) {
            self.claim_vote(replica, event, &event.node);
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
        self.one_leader.checked += 1;
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
            Some(first) => self.one_leader.violated(time, || {
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

    fn claim_vote(&mut self, replica: Option<Replica>, event: &Rc<TraceEvent>, candidate: &str) {
        let Some(replica) = replica else {
            return;
        };
        self.one_vote.checked += 1;
        let vote = self.votes.get(&(replica, event.epoch));
        let Some((first, reported)) = vote else {
            let vote = (candidate.to_owned(), event.clone());
            self.votes.insert((replica, event.epoch), vote);
            return;
        };
        if first != candidate {
            self.one_vote.violated(event.time, || {
                let summary = format!(
                    "{} voted twice in epoch {}: for {first} at {} and for {candidate} at {}",
                    event.node,
                    event.epoch,
                    seconds(reported.time),
                    seconds(event.time)
                );
                (summary, event_json(event), event_json(reported))
            });
        }
    }

    /// A restart that finds neither a leader nor a vote in an epoch in which the node had voted.
    fn claim_no_vote(&mut self, replica: Option<Replica>, event: &Rc<TraceEvent>) {
        let Some(replica) = replica else {
            return;
        };
        self.one_vote.checked += 1;
        if let Some((candidate, reported)) = self.votes.get(&(replica, event.epoch)) {
            self.one_vote.violated(event.time, || {
                let summary = format!(
                    "{} voted for {candidate} in epoch {} at {}, but found no vote when it \
                     restarted at {}",
                    event.node,
                    event.epoch,
                    seconds(reported.time),
                    seconds(event.time)
                );
                (summary, event_json(event), event_json(reported))
            });
        }
    }

    fn check_monotone(&mut self, replica: Replica, event: &Rc<TraceEvent>) {
        self.monotone.checked += 1;
        if self.highest.len() <= replica {
            self.highest.resize(replica + 1, None);
        }
        let highest = self.highest[replica].get_or_insert_with(|| event.clone());
        if highest.epoch < event.epoch {
            *highest = event.clone();
        } else if highest.epoch > event.epoch {
            self.monotone.violated(event.time, || {
                let summary = format!(
                    "{} went back from epoch {} (at {}) to epoch {} (at {})",
                    event.node,
                    highest.epoch,
                    seconds(highest.time),
                    event.epoch,
                    seconds(event.time)
                );
                (summary, event_json(event), event_json(highest))
            });
        }
    }

    pub(super) fn into_properties(self) -> [Property; 3] {
        [self.one_leader, self.monotone, self.one_vote]
    }
}
