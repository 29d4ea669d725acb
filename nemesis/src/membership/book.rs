//! Owns what the nemesis knows of the members of a cluster, and which removals are safe.
//! Never takes a request that was not answered for one that was not carried out.
//!
//! Two voters of whom the leader removes itself are lost for ever if it dies before the other one has the
//! record: the other one needs a vote that nobody can give, as the former leader's log is longer and it
//! stands for election no more. That is so in Kafka, too. So a leader is never asked to leave fewer than
//! two others, whatever requests are still under way.

use std::collections::{BTreeMap, BTreeSet};

use crate::action::VoterChange;
use crate::fault::Files;
use crate::view::ClusterView;

use super::{Member, Quorum, VoterRequest};

/// Least number of voters of whom one that leads may be removed.
const VOTERS_FOR_ANY_REMOVAL: usize = 3;

/// Names a request to a leader.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Token(u64);

/// A removal that was asked for.
#[derive(Debug, Clone)]
struct Removal {
    voter: Member,
    /// The leader that took the request in and did not say in time what became of it.
    given_up_by: Option<String>,
}

/// The members of a cluster, as far as they are known.
#[derive(Debug, Clone)]
pub struct Book {
    /// Everybody who may ever be part of the cluster, in a fixed order.
    all: Vec<String>,
    members: BTreeSet<String>,
    /// The voters that the cluster began with.
    first_voters: Vec<String>,
    /// The voters that a leader described last.
    voters: BTreeSet<String>,
    /// By fault: the change that it keeps in force.
    changes: BTreeMap<u64, VoterChange>,
    /// Removals that a leader may yet carry out.
    removals: BTreeMap<Token, Removal>,
    /// Additions that a leader may yet carry out: the node, and the leader that gave up waiting.
    additions: BTreeMap<Token, (String, Option<String>)>,
    /// Nodes that may have become voters since the voters were last known for certain, and the first request
    /// that may have done it.
    maybe_added: BTreeMap<String, Token>,
    next_token: u64,
    /// The voters as a leader described them last, if ever one did.
    latest: Option<Vec<Member>>,
    /// The last change was not known to be committed then, or a removal has ended since, maybe with its
    /// leader and not for good.
    is_unsettled: bool,
    /// Nodes that have lost data, refuse to start with the rest, and never come back.
    damaged: BTreeSet<String>,
    /// By fault: nodes of which it is just destroying data, or not; how much it was is not known yet.
    doomed: BTreeMap<u64, Vec<String>>,
    /// Replicas that are gone with their disks, and the first request that came after.
    lost: BTreeMap<Member, Token>,
}

impl Book {
    /// The book of a cluster of `members`, the first `voter_count` of whom vote.
    pub fn new(all: Vec<String>, member_count: usize, voter_count: usize) -> Self {
        let first_voters = all[..voter_count.min(all.len())].to_vec();
        Self {
            members: all[..member_count.min(all.len())].iter().cloned().collect(),
            voters: first_voters.iter().cloned().collect(),
            first_voters,
            all,
            changes: BTreeMap::new(),
            removals: BTreeMap::new(),
            additions: BTreeMap::new(),
            maybe_added: BTreeMap::new(),
            next_token: 0,
            latest: None,
            is_unsettled: false,
            damaged: BTreeSet::new(),
            doomed: BTreeMap::new(),
            lost: BTreeMap::new(),
        }
    }

    /// Whether this node is part of the cluster at present.
    pub fn is_member(&self, node: &str) -> bool {
        self.members.contains(node)
    }

    /// The members, in order.
    pub fn members(&self) -> impl Iterator<Item = &String> {
        self.all.iter().filter(|node| self.members.contains(*node))
    }

    /// What is known of the cluster, for whoever draws targets.
    pub fn view(&self, leader: Option<&str>) -> ClusterView {
        let nodes: Vec<String> = self.members().cloned().collect();
        let observers = nodes.iter().filter(|node| !self.voters.contains(*node));
        let spares = self.all.iter().filter(|node| !self.is_member(node));
        ClusterView {
            observers: Some(observers.cloned().collect()),
            spares: spares.cloned().collect(),
            is_changing: self.is_changing(),
            least_voter_count: Some(self.least_voter_count()),
            damaged: self.without_data().collect(),
            broken: self.damaged.clone(),
            ..ClusterView::new(nodes, leader.map(str::to_owned))
        }
    }

    /// Whether the voters are, or may become, others in number than at first.
    fn is_changing(&self) -> bool {
        !self.changes.is_empty()
            || self.may_be_removing()
            || self.voters.len() != self.first_voters.len()
    }

    fn may_be_removing(&self) -> bool {
        self.is_unsettled || !self.removals.is_empty()
    }

    /// How many voters there may be at some time, at least, as far as is known of the changes under way. One
    /// more is counted out where somebody may be removed just now: if it is the leader and dies, the others
    /// need a majority of the voters with it, but its vote they do not get.
    fn least_voter_count(&self) -> usize {
        let is_removal = |change: &&VoterChange| matches!(change, VoterChange::Remove { .. });
        let removed_count = self.changes.values().filter(is_removal).count();
        let at_first = self.first_voters.len().saturating_sub(removed_count);
        let now = if self.may_be_removing() {
            let leaving_count = self.removals.len().max(1) + 1;
            self.voters.len().saturating_sub(leaving_count)
        } else {
            self.voters.len()
        };
        at_first.min(now)
    }

    /// Names of the voters, and of those who may have become one, whose replica is gone with its disk. A
    /// replica that was gone before its node was to be added is none of them: the node had another one then.
    fn lost_voters(&self) -> impl Iterator<Item = &str> {
        let is_voter = |(lost, gone_by): &(&Member, &Token)| {
            let latest = self.latest.as_ref();
            let added_by = self.maybe_added.get(&lost.node);
            added_by.is_some_and(|added_by| added_by < *gone_by)
                || latest.is_none_or(|voters| voters.contains(lost))
        };
        let lost = self.lost.iter().filter(is_voter);
        lost.map(|(lost, _)| lost.node.as_str())
    }

    /// The nodes of which data was destroyed, or is just being destroyed, and that have got no new disk since,
    /// and those of which a replica that votes is gone. As a node does not start with any damage, nobody gets
    /// at what else is on its disk: it lacks everything.
    fn without_data(&self) -> impl Iterator<Item = (String, BTreeSet<Files>)> {
        let nodes = self.lost_voters().chain(self.destroyed());
        nodes.map(|node| (node.to_owned(), BTreeSet::from([Files::All])))
    }

    /// The nodes of which data was destroyed, or is just being destroyed.
    fn destroyed(&self) -> impl Iterator<Item = &str> {
        let doomed = self.doomed.values().flatten();
        self.damaged.iter().chain(doomed).map(String::as_str)
    }

    /// A fault is about to destroy data of these nodes. To be told before it begins: what is decided
    /// meanwhile has to reckon with it.
    pub fn begins_to_destroy(&mut self, fault: u64, nodes: Vec<String>) {
        self.doomed.insert(fault, nodes);
    }

    /// What a fault destroys is destroyed by now, and told of; it destroys no more.
    pub fn has_destroyed(&mut self, fault: u64) {
        self.doomed.remove(&fault);
    }

    /// A node has lost data, and does not start with the rest any more.
    pub fn is_damaged(&mut self, node: &str) {
        self.damaged.insert(node.to_owned());
    }

    /// A replica is gone with its disk. The node comes back as another one, which has nothing to do with it,
    /// and until the lost one is removed it cannot vote (KIP-853).
    pub fn is_lost(&mut self, replica: Member) {
        // What was wrong with its data went with the disk.
        self.damaged.remove(&replica.node);
        self.lost.insert(replica, Token(self.next_token));
    }

    fn never_answers(&self, voter: &Member) -> bool {
        self.lost.contains_key(voter) || self.destroyed().any(|node| node == voter.node)
    }

    /// A fault begins to change the voters.
    pub fn begins(&mut self, fault: u64, change: VoterChange) {
        self.changes.insert(fault, change);
    }

    /// A fault changes the voters no more. What it changed, if it did.
    pub fn ends(&mut self, fault: u64) -> Option<VoterChange> {
        self.changes.remove(&fault)
    }

    /// A request to a leader was carried out, refused, or lost together with its process.
    pub fn settled(&mut self, token: Token) {
        self.is_unsettled |= self.removals.remove(&token).is_some();
        self.additions.remove(&token);
    }

    /// `leader` took a request in and gave up waiting for its own answer. It deals with what it is asked in
    /// order, so the request is settled once it describes the cluster again.
    pub fn given_up(&mut self, token: Token, leader: &str) {
        if let Some(removal) = self.removals.get_mut(&token) {
            removal.given_up_by = Some(leader.to_owned());
        }
        if let Some((_, given_up_by)) = self.additions.get_mut(&token) {
            *given_up_by = Some(leader.to_owned());
        }
    }

    pub(super) fn joins(&mut self, node: &str) {
        self.members.insert(node.to_owned());
    }

    pub(super) fn leaves(&mut self, node: &str) {
        self.members.remove(node);
    }

    pub(super) fn learn(&mut self, quorum: &Quorum) {
        let names = quorum.voters.iter().map(|voter| voter.node.clone());
        self.voters = names.collect();
        self.latest = Some(quorum.voters.clone());
        self.is_unsettled = quorum.is_change_pending;
        let leader = Some(&quorum.leader);
        self.removals
            .retain(|_, removal| removal.given_up_by.as_ref() != leader);
        self.additions
            .retain(|_, (_, given_up_by)| given_up_by.as_ref() != leader);
        if !quorum.is_change_pending {
            self.maybe_added.clear();
            for (token, (node, _)) in &self.additions {
                self.maybe_added.entry(node.clone()).or_insert(*token);
            }
        }
    }

    pub(super) fn sent(&mut self, request: &VoterRequest) -> Token {
        let token = Token(self.next_token);
        self.next_token += 1;
        match request {
            VoterRequest::Remove { voter } => {
                let removal = Removal {
                    voter: voter.clone(),
                    given_up_by: None,
                };
                self.removals.insert(token, removal);
            }
            VoterRequest::Add { node } => {
                self.maybe_added.entry(node.clone()).or_insert(token);
                self.additions.insert(token, (node.clone(), None));
            }
        }
        token
    }

    /// Whether the leader may be asked to remove this voter.
    pub(super) fn may_remove(&self, quorum: &Quorum, voter: &Member) -> bool {
        let possible = self.removals.values().map(|removal| &removal.voter);
        let possible: BTreeSet<&Member> = possible
            .filter(|other| *other != voter && quorum.voters.contains(other))
            .collect();
        let uncertain_count = possible.len() + usize::from(quorum.is_change_pending);
        let certain_count = quorum.voters.len().saturating_sub(uncertain_count);
        let leads = quorum.leader == voter.node;
        let silent = quorum.voters.iter().filter(|it| self.never_answers(it));
        let silent_count = silent.count();
        if silent_count > 0 && !self.never_answers(voter) {
            let left_count = certain_count.saturating_sub(1 + silent_count);
            let voter_count = quorum.voters.len() - usize::from(!leads);
            return left_count > voter_count / 2;
        }
        certain_count >= VOTERS_FOR_ANY_REMOVAL
            // Only the leader carries it out, and it stays.
            || (self.removals.is_empty() && !leads && quorum.voters.len() > 1)
    }

    /// How many voters there should be.
    fn wanted_count(&self) -> usize {
        let delta: i64 = self.changes.values().map(delta).sum();
        usize::try_from(self.first_voters.len() as i64 + delta)
            .unwrap_or(1)
            .max(1)
    }

    /// The next request on the way to the wanted number of voters, none of whom is lost; `None` once it is
    /// reached, or nobody is left who could be added.
    pub(super) fn towards_size(
        &self,
        quorum: &Quorum,
        out_first: &[String],
        in_first: &[String],
    ) -> Option<VoterRequest> {
        // Its node can be added again only then.
        if let Some(lost) = quorum.voters.iter().find(|it| self.lost.contains_key(*it)) {
            return Some(VoterRequest::Remove {
                voter: lost.clone(),
            });
        }
        let wanted_count = self.wanted_count();
        if quorum.voters.len() > wanted_count {
            // Who never answers is of no use to anybody.
            let silent = quorum.voters.iter().filter(|it| self.never_answers(it));
            let named = out_first.iter().filter_map(|node| quorum.voter(node));
            let later = quorum.voters.iter().rev();
            let (first, others): (Vec<_>, Vec<_>) =
                later.partition(|voter| self.first_voters.contains(&voter.node));
            let named = silent.chain(named);
            let voter = named.chain(others).chain(first).next()?;
            return Some(VoterRequest::Remove {
                voter: voter.clone(),
            });
        }
        if quorum.voters.len() < wanted_count {
            let candidates = in_first.iter().chain(&self.first_voters).chain(&self.all);
            let node = candidates
                .filter(|node| self.is_member(node) && !self.damaged.contains(*node))
                .find(|node| quorum.voter(node).is_none())?;
            return Some(VoterRequest::Add { node: node.clone() });
        }
        None
    }
}

fn delta(change: &VoterChange) -> i64 {
    match change {
        VoterChange::Add { .. } | VoterChange::Promote { .. } => 1,
        VoterChange::Remove { .. } => -1,
        VoterChange::Replace { .. } => 0,
    }
}
