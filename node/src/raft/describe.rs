//! Owns what a replica tells about its quorum: to people, and to those who ask by DescribeQuorum.
//! Never influences the protocol.

use serde::Serialize;

use super::role::Progress;
use super::{Replica, Role};
use crate::ids::{DirectoryId, Epoch, NodeId, Offset, ReplicaKey};
use crate::message::{DescribeQuorumResponse, ErrorCode, ReplicaState};

const NS_PER_MS: u64 = 1_000_000;

/// A replica's view of its quorum at its latest step.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct QuorumDescription {
    /// The replica that describes.
    pub id: NodeId,
    /// Its data directory, where it has an id.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory_id: Option<DirectoryId>,
    /// Its state.
    pub role: Role,
    /// Whether it is one of the voters that it knows of.
    pub is_voter: bool,
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
    /// That replica's data directory, where the vote named it.
    #[serde(skip)]
    pub voted_for_directory_id: Option<DirectoryId>,
    /// 0 where voters are configured, 1 where they are in the log (KIP-853).
    pub kraft_version: u16,
    /// Whether the latest change of the voters is not known to be committed.
    pub uncommitted_voter_change: bool,
    /// All voters, ascending by id.
    pub voters: Vec<ReplicaDescription>,
    /// All others that fetch from this leader, ascending by id. Other replicas know none.
    pub observers: Vec<ReplicaDescription>,
}

/// A replica as the leader knows it. Other replicas know only themselves.
#[derive(Debug, Clone, PartialEq, Eq, Serialize)]
pub struct ReplicaDescription {
    /// The replica.
    pub id: NodeId,
    /// Its data directory, where known.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub directory_id: Option<DirectoryId>,
    /// Base URL where it listens, where the voters say so.
    #[serde(skip_serializing_if = "Option::is_none")]
    pub endpoint: Option<String>,
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
        let voters = self.voter_history.latest();
        let latest = self.voter_history.latest_offset();
        QuorumDescription {
            id: self.id(),
            directory_id: self.configuration.directory_id,
            role: self.role(),
            is_voter: self.is_voter(),
            epoch: self.epoch(),
            leader: self.leader(),
            high_watermark: self.high_watermark(),
            log_end: self.log_end(),
            log_end_epoch: self.log.last_epoch(),
            voted_for: self.quorum_state.voted_for.map(|voted_for| voted_for.id),
            voted_for_directory_id: (self.quorum_state.voted_for)
                .and_then(|voted_for| voted_for.directory_id),
            kraft_version: self.voter_history.kraft_version(),
            uncommitted_voter_change: latest
                .is_some_and(|offset| self.high_watermark.is_none_or(|end| end <= offset)),
            voters: voters
                .iter()
                .map(|voter| self.describe_voter(&voter.key, voter.endpoint.clone()))
                .collect(),
            observers: self.describe_observers(),
        }
    }

    fn describe_voter(&self, key: &ReplicaKey, endpoint: Option<String>) -> ReplicaDescription {
        if key.accepts(&self.configuration.key()) {
            let now_ns = (self.role() == Role::Leader).then_some(self.now_ns);
            return ReplicaDescription {
                id: key.id,
                directory_id: key.directory_id,
                endpoint,
                log_end_offset: Some(self.log_end()),
                last_fetch_ns: now_ns,
                last_caught_up_ns: now_ns,
            };
        }
        let known = self.as_leader().and_then(|leader| leader.progress_of(key));
        describe_replica(key, endpoint, known)
    }

    fn describe_observers(&self) -> Vec<ReplicaDescription> {
        let Some(leader) = self.as_leader() else {
            return Vec::new();
        };
        let observers = leader.observers(self.voter_history.latest(), self.now_ns);
        observers
            .map(|(key, progress)| describe_replica(key, None, Some(progress)))
            .collect()
    }

    /// The answer to DescribeQuorum (KIP-595). Only the leader knows enough.
    pub(super) fn describe_quorum(&self) -> DescribeQuorumResponse {
        let leads = self.role() == Role::Leader;
        let describe = |replica: ReplicaDescription| ReplicaState {
            key: ReplicaKey {
                id: replica.id,
                directory_id: replica.directory_id,
            },
            endpoint: replica.endpoint,
            log_end_offset: replica.log_end_offset,
            since_last_fetch_ms: replica.last_fetch_ns.map(|at_ns| self.age_ms(at_ns)),
            since_last_caught_up_ms: replica.last_caught_up_ns.map(|at_ns| self.age_ms(at_ns)),
        };
        let described = leads.then(|| self.describe());
        let (voters, observers) = described
            .map(|quorum| (quorum.voters, quorum.observers))
            .unwrap_or_default();
        DescribeQuorumResponse {
            error: if leads {
                ErrorCode::None
            } else {
                ErrorCode::NotLeaderOrFollower
            },
            leader_id: self.quorum_state.leader,
            leader_epoch: self.epoch(),
            leader_endpoint: self.leader_endpoint(),
            high_watermark: self.high_watermark.filter(|_| leads),
            current_voters: voters.into_iter().map(describe).collect(),
            observers: observers.into_iter().map(describe).collect(),
        }
    }

    fn age_ms(&self, at_ns: u64) -> u64 {
        self.now_ns.saturating_sub(at_ns) / NS_PER_MS
    }
}

fn describe_replica(
    key: &ReplicaKey,
    endpoint: Option<String>,
    known: Option<&Progress>,
) -> ReplicaDescription {
    ReplicaDescription {
        id: key.id,
        directory_id: key.directory_id,
        endpoint,
        log_end_offset: known.and_then(|progress| progress.end_offset),
        last_fetch_ns: known.and_then(|progress| progress.last_fetch_ns),
        last_caught_up_ns: known.and_then(|progress| progress.last_caught_up_ns),
    }
}
