//! Owns where other replicas listen, as far as the protocol knows, and so whom this replica can follow.
//! Never resolves or connects to anything; what a process was configured with goes before this.

use std::collections::{BTreeMap, BTreeSet};

use super::{QuorumState, Replica};
use crate::ids::{Epoch, NodeId};

/// Where a leader listens, as a message said.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(crate) struct LearnedEndpoint {
    epoch: Epoch,
    leader: NodeId,
    endpoint: String,
    /// Whether the leader said so itself.
    first_hand: bool,
    /// Whether what others say of the leader is tried at present, rather than what the voters say.
    has_turn: bool,
    /// Whether nobody answered where the leader was last asked, and nothing was made of that yet.
    is_silent: bool,
}

impl Replica {
    /// Where the protocol knows `id` to listen. What the present leader says of itself is the newest;
    /// what others say may be older than the voters in the log, or newer: the two are tried in turns.
    pub(super) fn endpoint_of(&self, id: NodeId) -> Option<String> {
        let learned = self.learned_endpoint.as_ref();
        let learned = learned.filter(|learned| learned.leader == id);
        let fresh = learned.filter(|learned| learned.epoch == self.epoch());
        fresh
            .filter(|learned| learned.first_hand || learned.has_turn)
            .map(|learned| learned.endpoint.clone())
            .or_else(|| self.recorded_endpoint_of(id))
            .or_else(|| learned.map(|learned| learned.endpoint.clone()))
    }

    /// Where the voters say that `id` listens, or, where they are configured, it told this leader so.
    fn recorded_endpoint_of(&self, id: NodeId) -> Option<String> {
        let voter = self.voter_history.latest().get(id)?;
        voter.endpoint.clone().or_else(|| {
            let reported = self.as_leader()?.reported.get(&id)?;
            reported.endpoint.clone()
        })
    }

    /// Where others listen, of what is in no log: what configured voters told this leader, and where the leader
    /// of the epoch is.
    pub(crate) fn heard_endpoints(&self) -> BTreeMap<NodeId, String> {
        let reported = self.as_leader().into_iter().flat_map(|leader| {
            let voters = leader.reported.values();
            voters.filter_map(|voter| Some((voter.key.id, voter.endpoint.clone()?)))
        });
        let leader = self.quorum_state.leader;
        let leader = leader.and_then(|leader| Some((leader, self.leader_endpoint()?)));
        let in_log = self.voter_history.kraft_version() >= 1;
        reported.filter(|_| !in_log).chain(leader).collect()
    }

    /// Changes whenever [`heard_endpoints`](Self::heard_endpoints) may have.
    pub(crate) fn endpoint_news(&self) -> (Epoch, Option<NodeId>, u64) {
        let QuorumState { epoch, leader, .. } = self.quorum_state;
        (epoch, leader, self.endpoint_news_count)
    }

    /// Nobody answered where `peer` was asked, or somebody else did.
    pub(super) fn note_silence(&mut self, peer: NodeId) {
        if let Some(learned) = self.learned_of(peer) {
            learned.is_silent = true;
        }
    }

    /// Somebody else answered where `peer` was asked: whoever said that it listens there was wrong.
    pub(super) fn note_another(&mut self, peer: NodeId) {
        if let Some(learned) = self.learned_of(peer) {
            learned.has_turn |= learned.first_hand;
            learned.first_hand = false;
            learned.is_silent = true;
            self.endpoint_news_count += 1;
        }
    }

    /// The next request to `peer` goes where it was not found silent.
    pub(super) fn take_turns(&mut self, peer: NodeId) {
        if let Some(learned) = self.learned_of(peer)
            && std::mem::take(&mut learned.is_silent)
        {
            learned.has_turn = !learned.has_turn;
            self.endpoint_news_count += 1;
        }
    }

    fn learned_of(&mut self, peer: NodeId) -> Option<&mut LearnedEndpoint> {
        let learned = self.learned_endpoint.as_mut();
        learned.filter(|learned| learned.leader == peer)
    }

    /// Takes note of where a leader is said to listen.
    pub(super) fn learn_endpoint(
        &mut self,
        leader: NodeId,
        epoch: Epoch,
        endpoint: Option<&str>,
        first_hand: bool,
    ) {
        let Some(endpoint) = endpoint.filter(|_| self.may_lead(leader)) else {
            return;
        };
        let known = self.learned_endpoint.as_ref();
        let known = known.filter(|known| (known.epoch, known.leader) == (epoch, leader));
        // Who only knows what the voters say adds nothing to that.
        let adds_nothing = || self.recorded_endpoint_of(leader).as_deref() == Some(endpoint);
        if known.is_some_and(|known| !first_hand && (known.first_hand || adds_nothing())) {
            return;
        }
        let is_news = known.is_none_or(|known| known.endpoint != endpoint);
        let turns = known.map(|known| (known.has_turn, known.is_silent));
        let (has_turn, is_silent) = turns.unwrap_or_default();
        self.endpoint_news_count += u64::from(is_news);
        self.learned_endpoint = Some(LearnedEndpoint {
            epoch,
            leader,
            endpoint: endpoint.to_owned(),
            first_hand,
            has_turn,
            is_silent,
        });
    }

    /// Where the leader of the epoch listens, for answers that name it.
    pub(super) fn leader_endpoint(&self) -> Option<String> {
        match self.quorum_state.leader {
            Some(leader) if leader == self.id() => self.configuration.endpoint.clone(),
            leader => self.endpoint_of(leader?),
        }
    }

    /// Whether `leader` can be asked for records: it is a voter, it is configured, or a message said
    /// where it listens. A leader need not be a voter: it may lead until its removal is committed.
    pub(super) fn can_follow(&self, leader: NodeId) -> bool {
        let learned = self.learned_endpoint.as_ref();
        leader != self.id()
            && (self.voter_history.latest().contains_id(leader)
                || self.configuration.bootstrap.contains(&leader)
                || learned.is_some_and(|learned| learned.leader == leader))
    }

    /// Where voters are configured (kraft.version 0), nobody else can lead.
    fn may_lead(&self, id: NodeId) -> bool {
        let voters = self.voter_history.latest();
        self.voter_history.kraft_version() >= 1 || voters.is_empty() || voters.contains_id(id)
    }

    /// Whom to ask who leads (KAFKA-17030): all voters and the configured bootstrap servers. A removed
    /// voter that missed its removal learns of it in this way.
    pub(super) fn discovery_candidates(&self, except: Option<NodeId>) -> Vec<NodeId> {
        let voters = self.voter_history.latest().ids();
        let known: BTreeSet<NodeId> = voters
            .chain(self.configuration.bootstrap.iter().copied())
            .collect();
        let may_ask = |id: &NodeId| *id != self.id() && Some(*id) != except;
        known.into_iter().filter(may_ask).collect()
    }
}
