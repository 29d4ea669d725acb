//! Owns property K6: a node votes for at most one candidate in an epoch, restarts included.
//! Never asks whether a vote was deserved; that is M2.

use std::collections::BTreeMap;
use std::rc::Rc;

use results::trace::{Role, TraceDetail, TraceEvent};

use super::epochs::Replica;
use super::property::{Property, event_json};
use crate::seconds;

#[derive(Debug)]
pub(super) struct OneVote {
    property: Property,
    /// Vote by replica and epoch.
    votes: BTreeMap<(Replica, i32), (String, Rc<TraceEvent>)>,
}

impl OneVote {
    pub(super) fn new() -> Self {
        Self {
            property: Property::new(
                "K6",
                "a node votes for at most one candidate in an epoch, restarts included",
                "KIP-595; KIP-853; Ongaro & Ousterhout 2014, section 5.2",
            ),
            votes: BTreeMap::new(),
        }
    }

    /// `replica` is who speaks.
    pub(super) fn observe(&mut self, replica: Replica, event: &Rc<TraceEvent>) {
        match &event.detail {
            TraceDetail::Started(started) => {
                match &started.voted_for {
                    Some(candidate) => self.claim_vote(replica, event, candidate),
                    None if started.leader.is_none() => self.claim_no_vote(replica, event),
                    None => {}
                }
                self.claim_own_role(replica, event, started.role);
            }
            TraceDetail::RoleChange { role, .. } => self.claim_own_role(replica, event, *role),
            TraceDetail::VotePersisted { candidate } => self.claim_vote(replica, event, candidate),
            _ => {}
        }
    }

    /// Whoever leads or wants to lead has voted for itself.
    fn claim_own_role(&mut self, replica: Replica, event: &Rc<TraceEvent>, role: Role) {
        if matches!(role, Role::Leader | Role::Candidate) {
            self.claim_vote(replica, event, &event.node);
        }
    }

    fn claim_vote(&mut self, replica: Replica, event: &Rc<TraceEvent>, candidate: &str) {
        self.property.checked += 1;
        let vote = self.votes.get(&(replica, event.epoch));
        let Some((first, reported)) = vote else {
            let vote = (candidate.to_owned(), event.clone());
            self.votes.insert((replica, event.epoch), vote);
            return;
        };
        if first != candidate {
            self.property.violated(event.time, || {
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
    fn claim_no_vote(&mut self, replica: Replica, event: &Rc<TraceEvent>) {
        self.property.checked += 1;
        if let Some((candidate, reported)) = self.votes.get(&(replica, event.epoch)) {
            self.property.violated(event.time, || {
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

    pub(super) fn into_property(self) -> Property {
        self.property
    }
}
