//! Owns a cluster of replicas with disks, links and virtual time, all driven by one seed.
//! Never calls a replica while its sync is under way, as the loop of a real node does not.

use std::collections::{BTreeMap, BTreeSet};

use node::ids::{DirectoryId, NodeId, Offset, ReplicaKey};
use node::message::{AddRaftVoterRequest, ErrorCode, RemoveRaftVoterRequest, Request, Response};
use node::mutants::Bug;
use node::raft::{
    Configuration, Correlation, Input, PeerAnswer, RecordedVoters, Refusal, Replica, Role, Ticket,
    Timers,
};
use node::voters::{VersionRange, Voter, VoterSet};
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::disk::Disk;
use crate::history::History;
use crate::snapshotting::{SnapshotCounts, Snapshotting};

pub(crate) const MS: u64 = 1_000_000;

pub(crate) const TIMERS: Timers = Timers {
    election_timeout_ns: 100 * MS,
    fetch_timeout_ns: 200 * MS,
    election_backoff_max_ns: 100 * MS,
    fetch_max_wait_ns: 50 * MS,
    request_timeout_ns: 200 * MS,
    retry_backoff_ns: 5 * MS,
};

/// Where a node's clock starts, so that it can be set back.
const CLOCK_START_NS: u64 = 1_000_000 * MS;

#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Outcome {
    Appended(Offset),
    Acknowledged(Offset),
    Unknown,
    Refused(Refusal),
    Read(Offset),
}

#[derive(Debug)]
pub(crate) enum Event {
    Request {
        from: NodeId,
        incarnation: u64,
        to: NodeId,
        correlation: Correlation,
        request: Box<Request>,
    },
    Answer {
        from: NodeId,
        to: NodeId,
        incarnation: u64,
        correlation: Correlation,
        answer: PeerAnswer,
    },
    Synced {
        node: NodeId,
        incarnation: u64,
    },
}

/// What waits for the next sync.
#[derive(Debug)]
pub(crate) enum Held {
    Send {
        peer: NodeId,
        correlation: Correlation,
        request: Box<Request>,
    },
    Reply {
        ticket: Ticket,
        response: Box<Response>,
    },
    Acknowledge {
        ticket: Ticket,
        offset: Offset,
    },
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) replica: Option<Replica>,
    pub(crate) key: ReplicaKey,
    pub(crate) endpoint: Option<String>,
    pub(crate) auto_join: bool,
    pub(crate) disk: Disk,
    /// Requests of operators to this incarnation.
    pub(crate) changes: Vec<Ticket>,
    pub(crate) clock_offset_ns: i64,
    pub(crate) incarnation: u64,
    /// Whether its trace says that it leads.
    pub(crate) leads: bool,
    /// What this incarnation has committed below was compared with the rest of the cluster.
    pub(crate) checked: Offset,
    pub(crate) syncing: bool,
    pub(crate) inbox: Vec<Input>,
    pub(crate) held: Vec<Held>,
    pub(crate) callers: BTreeMap<Ticket, (NodeId, u64, Correlation)>,
    pub(crate) uncommitted: BTreeMap<Offset, Ticket>,
    pub(crate) last_high_watermark: Option<Offset>,
}

#[derive(Debug)]
pub(crate) struct Cluster {
    pub(crate) now_ns: u64,
    pub(crate) nodes: BTreeMap<NodeId, Node>,
    pub(crate) history: History,
    pub(crate) outcomes: BTreeMap<Ticket, Outcome>,
    pub(crate) lost_per_mille: u64,
    pub(crate) batches_per_fetch: usize,
    pub(crate) requests_sent: u64,
    /// What clients had been told of when a read arrived.
    pub(crate) reads: BTreeMap<Ticket, Offset>,
    pub(crate) events: BTreeMap<(u64, u64), Event>,
    pub(crate) cut: BTreeSet<(NodeId, NodeId)>,
    pub(crate) snapshotting: Snapshotting,
    pub(crate) snapshot_counts: SnapshotCounts,
    /// Links on which only fetches are lost.
    pub(crate) fetches_blocked: BTreeSet<(NodeId, NodeId)>,
    /// Whether voters can change (kraft.version 1).
    pub(crate) voters_are_in_log: bool,
    pub(crate) bootstrap: BTreeSet<NodeId>,
    /// Requests of operators, and their answers.
    pub(crate) changes: BTreeMap<Ticket, Option<Box<Response>>>,
    seed: u64,
    random: ChaCha8Rng,
    bug: Option<Bug>,
    next_number: u64,
}

impl Cluster {
    pub(crate) fn new(voter_count: i32, seed: u64, bug: Option<Bug>) -> Self {
        let mut cluster = Self::unstarted(voter_count, seed, bug);
        for id in cluster.ids() {
            cluster.restart(id);
        }
        cluster
    }

    /// A cluster whose voters can change, with observers that know two replicas to ask.
    pub(crate) fn of_changing_voters(
        voter_count: i32,
        observer_count: i32,
        seed: u64,
        bug: Option<Bug>,
    ) -> Self {
        let mut cluster = Self::unstarted(voter_count + observer_count, seed, bug);
        cluster.voters_are_in_log = true;
        cluster.bootstrap = [NodeId(1), NodeId(2)].into();
        for (id, node) in &mut cluster.nodes {
            node.key.directory_id = Some(DirectoryId(id.0 as u128));
            node.endpoint = Some(id.to_string());
        }
        let voters: VoterSet = (1..=voter_count)
            .map(|id| cluster.voter(NodeId(id)))
            .collect();
        for id in cluster.ids() {
            if voters.contains_id(id) {
                cluster.node(id).disk.bootstrap = Some(RecordedVoters {
                    kraft_version: 1,
                    voters: voters.clone(),
                });
            }
            cluster.restart(id);
        }
        cluster
    }

    /// A node as a voter.
    pub(crate) fn voter(&self, id: NodeId) -> Voter {
        Voter {
            key: self.nodes[&id].key,
            endpoint: self.nodes[&id].endpoint.clone(),
            versions: VersionRange::SUPPORTED,
        }
    }

    pub(crate) fn key_of(&self, id: NodeId) -> ReplicaKey {
        self.nodes[&id].key
    }

    fn unstarted(node_count: i32, seed: u64, bug: Option<Bug>) -> Self {
        let fresh = |id| Node {
            replica: None,
            key: NodeId(id).into(),
            endpoint: None,
            auto_join: false,
            changes: Vec::new(),
            disk: Disk::default(),
            clock_offset_ns: CLOCK_START_NS as i64,
            incarnation: 0,
            leads: false,
            checked: Offset(0),
            syncing: false,
            inbox: Vec::new(),
            held: Vec::new(),
            callers: BTreeMap::new(),
            uncommitted: BTreeMap::new(),
            last_high_watermark: None,
        };
        Self {
            now_ns: 0,
            nodes: (1..=node_count).map(|id| (NodeId(id), fresh(id))).collect(),
            history: History::default(),
            outcomes: BTreeMap::new(),
            lost_per_mille: 0,
            batches_per_fetch: 100,
            requests_sent: 0,
            reads: BTreeMap::new(),
            events: BTreeMap::new(),
            cut: BTreeSet::new(),
            snapshotting: Snapshotting::default(),
            snapshot_counts: SnapshotCounts::default(),
            fetches_blocked: BTreeSet::new(),
            voters_are_in_log: false,
            bootstrap: BTreeSet::new(),
            changes: BTreeMap::new(),
            seed,
            random: ChaCha8Rng::seed_from_u64(seed),
            bug,
            next_number: 1,
        }
    }

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    pub(crate) fn bug(&self) -> Option<Bug> {
        self.bug
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    pub(crate) fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    pub(crate) fn node(&mut self, id: NodeId) -> &mut Node {
        self.nodes.get_mut(&id).unwrap()
    }

    pub(crate) fn replica(&self, id: NodeId) -> &Replica {
        self.nodes[&id]
            .replica
            .as_ref()
            .expect("the node is running")
    }

    pub(crate) fn running(&self) -> impl Iterator<Item = &Replica> {
        self.nodes.values().filter_map(|node| node.replica.as_ref())
    }

    // Faults.

    pub(crate) fn cut_link(&mut self, from: NodeId, to: NodeId) {
        self.cut.insert((from, to));
    }

    pub(crate) fn cut_between(&mut self, left: NodeId, right: NodeId) {
        self.cut.extend([(left, right), (right, left)]);
    }

    pub(crate) fn heal_between(&mut self, left: NodeId, right: NodeId) {
        self.cut.remove(&(left, right));
        self.cut.remove(&(right, left));
    }

    pub(crate) fn isolate(&mut self, id: NodeId) {
        for other in self.ids() {
            self.cut_between(id, other);
        }
    }

    /// Fetches of `from` do not reach `to`, everything else does.
    pub(crate) fn block_fetches_of(&mut self, from: NodeId, to: NodeId) {
        self.fetches_blocked.insert((from, to));
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
        self.fetches_blocked.clear();
    }

    /// Cuts the power of a node; some of what it had not synced may survive.
    pub(crate) fn power_cut(&mut self, id: NodeId) {
        let unsynced_count = self.nodes[&id].disk.unsynced_count() as u64;
        let kept = self.below(unsynced_count + 1) as usize;
        self.power_cut_keeping(id, kept);
    }

    pub(crate) fn power_cut_keeping(&mut self, id: NodeId, kept: usize) {
        let node = self.node(id);
        node.replica = None;
        node.disk.cut_power(kept);
        node.syncing = false;
        node.inbox.clear();
        node.held.clear();
        node.callers.clear();
        for ticket in std::mem::take(&mut node.changes) {
            // Whoever asked gives up on an answer.
            self.changes.remove(&ticket);
        }
        let node = self.node(id);
        for ticket in std::mem::take(&mut node.uncommitted).into_values() {
            self.outcomes.insert(ticket, Outcome::Unknown);
        }
    }

    pub(crate) fn restart(&mut self, id: NodeId) {
        let configured = if self.voters_are_in_log {
            VoterSet::default()
        } else {
            self.ids().into_iter().collect()
        };
        let random_seed = self.seed ^ (self.number() << 20);
        let node = &self.nodes[&id];
        let configuration = Configuration {
            bug: self.bug,
            directory_id: node.key.directory_id,
            endpoint: node.endpoint.clone(),
            auto_join: node.auto_join,
            bootstrap: self.bootstrap.clone(),
            ..Configuration::of_static_voters(id, "test", configured, TIMERS, random_seed)
        };
        let now_ns = self.clock_of(id);
        let node = self.node(id);
        node.incarnation += 1;
        node.leads = false;
        node.checked = Offset(0);
        node.last_high_watermark = None;
        let (replica, effects) = Replica::start(configuration, node.disk.recover(), now_ns);
        node.replica = Some(replica);
        self.carry_out(id, effects);
        self.begin_sync(id);
    }

    // Clients.

    pub(crate) fn propose(&mut self, id: NodeId, command: &[u8]) -> Ticket {
        let ticket = Ticket(self.number());
        let commands = vec![(ticket, command.to_vec())];
        self.deliver(
            id,
            Input::Propose {
                timestamp_ms: 0,
                commands,
            },
        );
        ticket
    }

    pub(crate) fn read(&mut self, id: NodeId) -> Ticket {
        let ticket = Ticket(self.number());
        self.reads.insert(ticket, self.history.acknowledged_end);
        self.deliver(
            id,
            Input::Read {
                tickets: vec![ticket],
            },
        );
        ticket
    }

    fn change_voters(&mut self, asked: NodeId, request: Request) -> Ticket {
        let ticket = Ticket(self.number());
        self.changes.insert(ticket, None);
        self.node(asked).changes.push(ticket);
        let request = Box::new(request);
        self.deliver(asked, Input::PeerRequest { ticket, request });
        ticket
    }

    /// Asks `asked` to make `id` a voter.
    pub(crate) fn ask_to_add(&mut self, asked: NodeId, id: NodeId) -> Ticket {
        let request = Request::AddRaftVoter(AddRaftVoterRequest {
            cluster_id: "test".to_owned(),
            timeout_ms: 400,
            voter: self.key_of(id),
            endpoint: self.nodes[&id].endpoint.clone().unwrap_or_default(),
            ack_when_committed: true,
        });
        self.change_voters(asked, request)
    }

    /// Asks `asked` to remove the voter `voter`.
    pub(crate) fn ask_to_remove(&mut self, asked: NodeId, voter: ReplicaKey) -> Ticket {
        let request = Request::RemoveRaftVoter(RemoveRaftVoterRequest {
            cluster_id: "test".to_owned(),
            voter,
        });
        self.change_voters(asked, request)
    }

    pub(crate) fn outcome_of(&self, change: Ticket) -> Option<ErrorCode> {
        self.changes
            .get(&change)?
            .as_ref()
            .map(|reply| reply.error())
    }

    /// Repeats a change as long as the cluster says that it may succeed later.
    #[track_caller]
    fn insist(&mut self, what: &str, ask: impl Fn(&mut Self, NodeId) -> Ticket) {
        for _ in 0..100 {
            let leader = self.await_leader();
            let change = ask(self, leader);
            self.run_until(what, 2_000 * MS, |cluster| {
                cluster.outcome_of(change).is_some()
            });
            match self.outcome_of(change) {
                Some(ErrorCode::None) => return,
                Some(ErrorCode::RequestTimedOut | ErrorCode::NotLeaderOrFollower) => {
                    self.run_for(20 * MS);
                }
                refused => panic!("{what}: {refused:?}"),
            }
        }
        panic!("never: {what}: {:?}", self.changes.last_key_value());
    }

    #[track_caller]
    pub(crate) fn add_voter(&mut self, id: NodeId) {
        self.insist("a voter is added", |cluster, leader| {
            cluster.ask_to_add(leader, id)
        });
    }

    #[track_caller]
    pub(crate) fn remove_voter(&mut self, id: NodeId) {
        let key = self.key_of(id);
        self.insist("a voter is removed", |cluster, leader| {
            cluster.ask_to_remove(leader, key)
        });
    }

    /// Ids of the voters by what is committed.
    pub(crate) fn committed_voters(&self) -> Vec<i32> {
        let voters = self.history.voters.as_ref();
        voters.map_or(Vec::new(), |voters| voters.ids().map(|id| id.0).collect())
    }

    pub(crate) fn shut_down(&mut self, id: NodeId) {
        self.deliver(id, Input::Shutdown);
    }

    // Time.

    pub(crate) fn clock_of(&self, id: NodeId) -> u64 {
        self.now_ns
            .saturating_add_signed(self.nodes[&id].clock_offset_ns)
    }

    fn next_tick(&self) -> Option<(u64, NodeId)> {
        let due = |(&id, node): (&NodeId, &Node)| {
            let replica = node.replica.as_ref().filter(|_| !node.syncing)?;
            let local_ns = replica.next_deadline_ns();
            let due_ns = local_ns
                .saturating_sub(self.clock_of(id))
                .saturating_add(self.now_ns);
            (local_ns != u64::MAX).then_some((due_ns, id))
        };
        self.nodes.iter().filter_map(due).min()
    }

    /// Lets the next thing happen, but nothing after `limit_ns`. Whether anything happened.
    fn advance(&mut self, limit_ns: u64) -> bool {
        let event_ns = self.events.first_key_value().map(|(&(at, _), _)| at);
        let tick = self.next_tick();
        let is_tick = tick.is_some_and(|(at, _)| event_ns.is_none_or(|event_ns| at < event_ns));
        let next_ns = if is_tick {
            tick.map(|(at, _)| at)
        } else {
            event_ns
        };
        let Some(next_ns) = next_ns.filter(|&at| at <= limit_ns) else {
            self.now_ns = limit_ns.max(self.now_ns);
            return false;
        };
        self.now_ns = next_ns.max(self.now_ns);
        if let Some((_, id)) = tick.filter(|_| is_tick) {
            self.deliver(id, Input::Tick);
            let local_ns = self.clock_of(id);
            let node = &self.nodes[&id];
            if let Some(replica) = node.replica.as_ref().filter(|_| !node.syncing) {
                assert!(
                    replica.next_deadline_ns() > local_ns,
                    "{id} spins: {replica:?}"
                );
            }
        } else if let Some((_, event)) = self.events.pop_first() {
            self.handle(event);
        }
        true
    }

    pub(crate) fn run_for(&mut self, duration_ns: u64) {
        let limit_ns = self.now_ns + duration_ns;
        while self.advance(limit_ns) {}
    }

    /// Runs until `done`, checked after each step.
    #[track_caller]
    pub(crate) fn run_until(&mut self, what: &str, limit_ns: u64, done: impl Fn(&Self) -> bool) {
        let limit_ns = self.now_ns + limit_ns;
        while !done(self) {
            assert!(
                self.advance(limit_ns),
                "not within the limit: {what}; roles {:?}; violations {:?}",
                self.running()
                    .map(|r| (r.id(), r.role(), r.epoch()))
                    .collect::<Vec<_>>(),
                self.history.violations
            );
        }
    }

    /// The leader of the newest epoch, if it has established its high watermark.
    pub(crate) fn settled_leader(&self) -> Option<NodeId> {
        let newest = self
            .running()
            .max_by_key(|r| (r.epoch(), r.role() == Role::Leader))?;
        let settled = newest.role() == Role::Leader && newest.high_watermark().is_some();
        settled.then_some(newest.id())
    }

    #[track_caller]
    pub(crate) fn await_leader(&mut self) -> NodeId {
        self.run_until("a settled leader", 5_000 * MS, |cluster| {
            cluster.settled_leader().is_some()
        });
        self.settled_leader().unwrap()
    }

    #[track_caller]
    pub(crate) fn write(&mut self, id: NodeId, command: &[u8]) -> Offset {
        let ticket = self.propose(id, command);
        self.run_until("an acknowledged write", 2_000 * MS, |cluster| {
            matches!(
                cluster.outcomes.get(&ticket),
                Some(Outcome::Acknowledged(_))
            )
        });
        match self.outcomes[&ticket] {
            Outcome::Acknowledged(offset) => offset,
            other => panic!("{other:?}"),
        }
    }

    #[track_caller]
    pub(crate) fn assert_safe(&mut self) {
        let disks = || self.nodes.iter().map(|(&id, node)| (id, &node.disk));
        self.history.check_logs_match(disks().map(|(_, disk)| disk));
        self.history.check_log_starts(disks());
        assert!(
            self.history.violations.is_empty(),
            "{:#?}",
            self.history.violations
        );
    }

    /// Whether all nodes have the same log and know that all of it is committed.
    pub(crate) fn is_caught_up(&self) -> bool {
        let Some(leader) = self.settled_leader().map(|id| self.replica(id)) else {
            return false;
        };
        let end = leader.log_end();
        self.running()
            .all(|r| r.log_end() == end && r.high_watermark() == Some(end))
    }
}
