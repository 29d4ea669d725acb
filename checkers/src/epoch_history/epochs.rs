//! Owns who speaks in a trace, and the way of its events past the properties of epochs, leaders and votes.
//! Never looks at logs.

use std::collections::BTreeMap;
use std::rc::Rc;

use results::history::Operation;
use results::shared_text::SharedText;
use results::trace::{TraceDetail, TraceEvent};

use super::epoch_ascends::EpochAscends;
use super::nodes::Nodes;
use super::one_leader::OneLeader;
use super::one_vote::OneVote;
use super::property::Property;

/// Number of a node with a certain data directory: with another one, it is another replica (KIP-853).
pub(super) type Replica = usize;

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
    incarnations: Nodes<Incarnation>,
    /// By node and directory, which is empty where the node does not tell.
    replicas: BTreeMap<(SharedText, String), Replica>,
    one_leader: OneLeader,
    ascends: EpochAscends,
    one_vote: OneVote,
}

impl Epochs {
    pub(super) fn new() -> Self {
        Self {
            incarnations: Nodes::default(),
            replicas: BTreeMap::new(),
            one_leader: OneLeader::new(),
            ascends: EpochAscends::new(),
            one_vote: OneVote::new(),
        }
    }

    pub(super) fn observe(&mut self, event: &Rc<TraceEvent>) {
        let replica = self.replica(event);
        // Those of messages and reads say nothing of their own: they are reported as a message leaves, when
        // the node may be in a later epoch than the next of its other events.
        if let TraceDetail::RefusedToStart { .. }
        | TraceDetail::RpcSent { .. }
        | TraceDetail::RpcReceived { .. }
        | TraceDetail::ReadServed { .. }
        | TraceDetail::Unknown = &event.detail
        {
            return;
        }
        self.one_leader.observe(event);
        if let Some(replica) = replica {
            self.one_vote.observe(replica, event);
            self.ascends.observe(replica, event);
        }
    }

    /// Only a leader serves, so a success names the leader of its epoch.
    pub(super) fn observe_history(&mut self, history: &[Operation]) {
        self.one_leader.observe_history(history);
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

    pub(super) fn into_properties(self) -> [Property; 3] {
        [
            self.one_leader.into_property(),
            self.ascends.into_property(),
            self.one_vote.into_property(),
        ]
    }
}
