//! Owns a cluster of replicas with disks, links and virtual time, all driven by one seed.
//! Never calls a replica while its sync is under way, as the loop of a real node does not.

use std::collections::{BTreeMap, BTreeSet};

use node::ids::{NodeId, Offset};
use node::message::{Request, Response};
use node::mutants::Bug;
use node::raft::{
    Configuration, Correlation, Effect, Input, PeerAnswer, Refusal, Replica, Role, Ticket, Timers,
};
use node::trace::TraceEvent;
use rand_chacha::ChaCha8Rng;
use rand_core::{Rng, SeedableRng};

use crate::disk::Disk;
use crate::history::History;

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
enum Event {
    Request {
        from: NodeId,
        incarnation: u64,
        to: NodeId,
        correlation: Correlation,
        request: Request,
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
enum Held {
    Send {
        peer: NodeId,
        correlation: Correlation,
        request: Request,
    },
    Reply {
        ticket: Ticket,
        response: Response,
    },
    Acknowledge {
        ticket: Ticket,
        offset: Offset,
    },
}

#[derive(Debug)]
pub(crate) struct Node {
    pub(crate) replica: Option<Replica>,
    pub(crate) disk: Disk,
    pub(crate) clock_offset_ns: i64,
    pub(crate) incarnation: u64,
    /// Committed batches of this incarnation that were compared with the rest of the cluster.
    checked: usize,
    syncing: bool,
    inbox: Vec<Input>,
    held: Vec<Held>,
    callers: BTreeMap<Ticket, (NodeId, u64, Correlation)>,
    uncommitted: BTreeMap<Offset, Ticket>,
    last_high_watermark: Option<Offset>,
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
    reads: BTreeMap<Ticket, Offset>,
    events: BTreeMap<(u64, u64), Event>,
    cut: BTreeSet<(NodeId, NodeId)>,
    seed: u64,
    random: ChaCha8Rng,
    bug: Option<Bug>,
    next_number: u64,
}

impl Cluster {
    pub(crate) fn new(voter_count: i32, seed: u64, bug: Option<Bug>) -> Self {
        let fresh = || Node {
            replica: None,
            disk: Disk::default(),
            clock_offset_ns: CLOCK_START_NS as i64,
            incarnation: 0,
            checked: 0,
            syncing: false,
            inbox: Vec::new(),
            held: Vec::new(),
            callers: BTreeMap::new(),
            uncommitted: BTreeMap::new(),
            last_high_watermark: None,
        };
        let mut cluster = Self {
            now_ns: 0,
            nodes: (1..=voter_count).map(|id| (NodeId(id), fresh())).collect(),
            history: History::default(),
            outcomes: BTreeMap::new(),
            lost_per_mille: 0,
            batches_per_fetch: 100,
            requests_sent: 0,
            reads: BTreeMap::new(),
            events: BTreeMap::new(),
            cut: BTreeSet::new(),
            seed,
            random: ChaCha8Rng::seed_from_u64(seed),
            bug,
            next_number: 1,
        };
        for id in cluster.ids() {
            cluster.restart(id);
        }
        cluster
    }

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.nodes.keys().copied().collect()
    }

    pub(crate) fn below(&mut self, bound: u64) -> u64 {
        self.random.next_u64() % bound
    }

    fn number(&mut self) -> u64 {
        self.next_number += 1;
        self.next_number
    }

    fn node(&mut self, id: NodeId) -> &mut Node {
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

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
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
        for ticket in std::mem::take(&mut node.uncommitted).into_values() {
            self.outcomes.insert(ticket, Outcome::Unknown);
        }
    }

    pub(crate) fn restart(&mut self, id: NodeId) {
        let configuration = Configuration {
            id,
            cluster_id: "test".to_owned(),
            voters: self.ids().into_iter().collect(),
            timers: TIMERS,
            random_seed: self.seed ^ (self.number() << 20),
            bug: self.bug,
        };
        let now_ns = self.clock_of(id);
        let node = self.node(id);
        node.incarnation += 1;
        node.checked = 0;
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
        self.history
            .check_logs_match(self.nodes.values().map(|node| &node.disk));
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

    // Machinery.

    fn schedule(&mut self, delay_ns: u64, event: Event) {
        let number = self.number();
        self.events.insert((self.now_ns + delay_ns, number), event);
    }

    fn link_delay_ns(&mut self) -> u64 {
        MS / 2 + self.below(2 * MS)
    }

    fn is_lost(&mut self, from: NodeId, to: NodeId) -> bool {
        let lost = self.below(1_000) < self.lost_per_mille;
        lost || self.cut.contains(&(from, to))
    }

    fn handle(&mut self, event: Event) {
        match event {
            Event::Request {
                from,
                incarnation,
                to,
                correlation,
                request,
            } => {
                if self.is_lost(from, to) {
                    return;
                }
                if self.nodes[&to].replica.is_none() {
                    // Refused by the machine: nobody listens.
                    let answer = PeerAnswer::Failed;
                    return self.send_answer(to, from, incarnation, correlation, answer);
                }
                let ticket = Ticket(self.number());
                self.node(to)
                    .callers
                    .insert(ticket, (from, incarnation, correlation));
                self.deliver(to, Input::PeerRequest { ticket, request });
            }
            Event::Answer {
                from,
                to,
                incarnation,
                correlation,
                answer,
            } => {
                let lost = self.is_lost(from, to);
                if !lost && self.nodes[&to].incarnation == incarnation {
                    self.deliver(
                        to,
                        Input::PeerAnswer {
                            peer: from,
                            correlation,
                            answer,
                        },
                    );
                }
            }
            Event::Synced {
                node: id,
                incarnation,
            } => {
                let node = self.node(id);
                if node.incarnation != incarnation || node.replica.is_none() {
                    return;
                }
                node.syncing = false;
                let log_end = node.disk.sync();
                for held in std::mem::take(&mut node.held) {
                    self.release(id, held);
                }
                self.node(id).inbox.insert(0, Input::Flushed { log_end });
                self.drain_inbox(id);
            }
        }
    }

    fn send_answer(
        &mut self,
        from: NodeId,
        to: NodeId,
        incarnation: u64,
        correlation: Correlation,
        answer: PeerAnswer,
    ) {
        let delay_ns = self.link_delay_ns();
        self.schedule(
            delay_ns,
            Event::Answer {
                from,
                to,
                incarnation,
                correlation,
                answer,
            },
        );
    }

    fn deliver(&mut self, id: NodeId, input: Input) {
        let node = self.node(id);
        if node.replica.is_some() {
            node.inbox.push(input);
            if !node.syncing {
                self.drain_inbox(id);
            }
        }
    }

    fn drain_inbox(&mut self, id: NodeId) {
        let now_ns = self.clock_of(id);
        for input in std::mem::take(&mut self.node(id).inbox) {
            let Some(replica) = &mut self.node(id).replica else {
                return;
            };
            let effects = replica.step(now_ns, input);
            self.carry_out(id, effects);
        }
        self.begin_sync(id);
    }

    fn begin_sync(&mut self, id: NodeId) {
        let node = self.node(id);
        if !node.disk.is_synced() && !node.syncing {
            node.syncing = true;
            let incarnation = node.incarnation;
            let delay_ns = MS / 10 + self.below(2 * MS);
            self.schedule(
                delay_ns,
                Event::Synced {
                    node: id,
                    incarnation,
                },
            );
        }
    }

    fn carry_out(&mut self, id: NodeId, effects: Vec<Effect>) {
        for effect in effects {
            match effect {
                Effect::Persist(state) => {
                    self.node(id).disk.quorum_state = Some(state);
                    self.history.note_persisted(id, state);
                }
                Effect::Append(batch) => {
                    self.history.note_written(id, &batch);
                    self.node(id).disk.append(batch);
                }
                Effect::Truncate(end) => self.node(id).disk.truncate(end),
                Effect::Send {
                    peer,
                    correlation,
                    request,
                } => {
                    self.hold(
                        id,
                        Held::Send {
                            peer,
                            correlation,
                            request,
                        },
                    );
                }
                Effect::Reply { ticket, response } => {
                    self.hold(id, Held::Reply { ticket, response });
                }
                Effect::ReplyFetch {
                    ticket,
                    mut response,
                    from,
                    max_bytes: _,
                } => {
                    if let Some(from) = from {
                        response.batches = self.nodes[&id].disk.read(from, self.batches_per_fetch);
                    }
                    self.release(
                        id,
                        Held::Reply {
                            ticket,
                            response: Response::Fetch(response),
                        },
                    );
                }
                Effect::Proposed { ticket, offset } => {
                    self.outcomes.insert(ticket, Outcome::Appended(offset));
                    self.node(id).uncommitted.insert(offset, ticket);
                }
                Effect::Refused { ticket, refusal } => {
                    let known = self
                        .outcomes
                        .insert(ticket, Outcome::Refused(refusal.reason));
                    assert_eq!(known, None, "refused after it had an outcome");
                }
                Effect::ReadReady {
                    ticket,
                    read_offset,
                } => self.note_read(ticket, read_offset),
                Effect::Committed { high_watermark } => self.note_committed(id, high_watermark),
                Effect::LeadershipLost => {
                    for ticket in std::mem::take(&mut self.node(id).uncommitted).into_values() {
                        self.outcomes.insert(ticket, Outcome::Unknown);
                    }
                }
                Effect::Trace(traced) => self.note_traced(id, &traced.event),
            }
        }
    }

    fn hold(&mut self, id: NodeId, held: Held) {
        let node = self.node(id);
        if node.disk.is_synced() {
            self.release(id, held);
        } else {
            node.held.push(held);
        }
    }

    fn release(&mut self, id: NodeId, held: Held) {
        match held {
            Held::Send {
                peer,
                correlation,
                request,
            } => {
                self.requests_sent += 1;
                let delay_ns = self.link_delay_ns();
                let incarnation = self.nodes[&id].incarnation;
                let event = Event::Request {
                    from: id,
                    incarnation,
                    to: peer,
                    correlation,
                    request,
                };
                self.schedule(delay_ns, event);
            }
            Held::Reply { ticket, response } => {
                let caller = self.node(id).callers.remove(&ticket);
                let (to, incarnation, correlation) = caller.expect("one answer per ticket");
                let answer = PeerAnswer::Response(response);
                self.send_answer(id, to, incarnation, correlation, answer);
            }
            Held::Acknowledge { ticket, offset } => {
                self.outcomes.insert(ticket, Outcome::Acknowledged(offset));
                let end = Offset(offset.0 + 1);
                self.history.acknowledged_end = self.history.acknowledged_end.max(end);
            }
        }
    }

    fn note_read(&mut self, ticket: Ticket, read_offset: Offset) {
        let known = self.outcomes.insert(ticket, Outcome::Read(read_offset));
        assert_eq!(known, None, "answered twice");
        let acknowledged = self.reads[&ticket];
        if read_offset < acknowledged {
            self.history.violations.push(format!(
                "stale read at {read_offset} after a write up to {acknowledged} was acknowledged"
            ));
        }
    }

    fn note_committed(&mut self, id: NodeId, high_watermark: Offset) {
        let node = self.nodes.get_mut(&id).unwrap();
        if node
            .last_high_watermark
            .is_some_and(|last| high_watermark < last)
        {
            self.history
                .violations
                .push(format!("{id}: high watermark went back"));
        }
        node.last_high_watermark = Some(high_watermark);
        self.history
            .note_committed(id, &node.disk, &mut node.checked, high_watermark);
        let later = node.uncommitted.split_off(&high_watermark);
        for (offset, ticket) in std::mem::replace(&mut node.uncommitted, later) {
            self.hold(id, Held::Acknowledge { ticket, offset });
        }
        // While the replica starts it does not lead unless it is alone.
        let leads = self.nodes[&id]
            .replica
            .as_ref()
            .is_some_and(|r| r.role() == Role::Leader);
        if leads {
            let disks = self.nodes.values().map(|node| &node.disk);
            let log = &self.nodes[&id].disk.log;
            self.history
                .note_leader_high_watermark(id, high_watermark, log, disks);
        }
    }

    fn note_traced(&mut self, id: NodeId, event: &TraceEvent) {
        if let TraceEvent::RoleChange {
            role: Role::Leader,
            epoch_start_offset,
            ..
        } = event
        {
            let disk = &self.nodes[&id].disk;
            assert_eq!(*epoch_start_offset, Some(crate::disk::end_of(&disk.log)));
            self.history.note_elected(id, disk);
        }
    }
}
