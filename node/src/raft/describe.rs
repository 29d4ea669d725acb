//! Owns what a replica tells people about its quorum (Kafka's DescribeQuorum).
//! Never influences the protocol.

use serde::Serialize;

use super::{Replica, Role};
use crate::ids::{Epoch, NodeId, Offset};

/// A replica's view of its quorum at its latest step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuorumDescription {
    /// The replica that describes.
    pub id: NodeId,
    /// Its state.
    pub role: Role,
    /// Its epoch.
    pub epoch: Epoch,
    /// Who leads, as far as it knows.
    pub leader: Option<NodeId>,
    /// Everything below is committed, once known.
    pub high_watermark: Option<Offset>,
    /// End of its log.
    pub log_end: Offset,
    /// Epoch of the last record in its log, 0 for an empty log.
    pub log_end_epoch: Epoch,
    /// Whom it has voted for in its epoch.
    pub voted_for: Option<NodeId>,
    /// All voters, ascending by id.
    pub voters: Vec<VoterDescription>,
}

/// A voter as the leader knows it. Other replicas know only themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct VoterDescription {
    /// The voter.
    pub id: NodeId,
    /// End of its log at its latest fetch.
    pub log_end_offset: Option<Offset>,
    /// When it last fetched, in nanoseconds on the leader's clock.
    pub last_fetch_ns: Option<u64>,
    /// When it last had everything the leader had, in nanoseconds on the leader's clock.
    pub last_caught_up_ns: Option<u64>,
}

impl Replica {
    /// What this replica knows about its quorum.
    pub fn describe(&self) -> QuorumDescription {
        let voters = self
            .voter_history
            .latest()
            .ids()
            .map(|id| self.describe_voter(id))
            .collect();
        QuorumDescription {
            id: self.id(),
            role: self.role(),
            epoch: self.epoch(),
            leader: self.leader(),
            high_watermark: self.high_watermark(),
            log_end: self.log_end(),
            log_end_epoch: self.log.last_epoch(),
            voted_for: self.quorum_state.voted_for.map(|voted_for| voted_for.id),
            voters,
        }
    }

    fn describe_voter(&self, id: NodeId) -> VoterDescription {
        let leads = self.role() == Role::Leader;
        if id == self.id() {
            let now_ns = leads.then_some(self.now_ns);
            return VoterDescription {
                id,
                log_end_offset: Some(self.log_end()),
                last_fetch_ns: now_ns,
                last_caught_up_ns: now_ns,
            };
        }
        let known = self.as_leader().and_then(|leader| leader.progress_of(id));
        VoterDescription {
            id,
            log_end_offset: known.and_then(|progress| progress.end_offset),
            last_fetch_ns: known.and_then(|progress| progress.last_fetch_ns),
            last_caught_up_ns: known.and_then(|progress| progress.last_caught_up_ns),
        }
    }
}
