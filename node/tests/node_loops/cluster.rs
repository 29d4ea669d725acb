//! Owns a cluster of loops in virtual time: what was sent arrives at once and in order, or fails at once.
//! Never lets time pass while a message is under way or a loop says that it has more to do.

mod delivery;

use std::collections::{BTreeMap, BTreeSet, VecDeque};
use std::path::PathBuf;

use node::client::{ClientReply, ClientRequest, UnknownCode};
use node::ids::{DirectoryId, Epoch, NodeId, Offset, ReplicaKey, SnapshotId};
use node::message::Response;
use node::mutants::Bug;
use node::node_loop::{
    Arrival, NodeLoop, NodeOptions, SnapshotOptions, StartError, StateDescription,
};
use node::raft::{Configuration, PeerAnswer, RecordedVoters, Ticket};
use node::storage::checkpoint::snapshot_id;
use node::storage::{self, DirectoryDisk, Identity, log_start};
use node::trace::Traced;
use node::voters::{VersionRange, Voter, VoterSet};
use tempfile::TempDir;

use crate::bench::{MS, TIMERS};
use crate::disk::{DiskHandle, LoopDisk};
use crate::findings::Findings;
use crate::outbox::Collected;
use delivery::{Asker, Message};

const CLUSTER_ID: &str = "test";
/// More than any honest loop needs without time passing.
const MOST_STEPS_AT_ONCE: u32 = 100_000;

/// What a cluster is made of.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Setup {
    pub(crate) voter_count: i32,
    pub(crate) seed: u64,
    pub(crate) bug: Option<Bug>,
    pub(crate) options: NodeOptions,
    /// Whether the voters are those of formatted directories instead of configured ones.
    pub(crate) formatted: bool,
}

impl Setup {
    pub(crate) fn of(voter_count: i32) -> Self {
        Self {
            voter_count,
            seed: 1,
            bug: None,
            options: NodeOptions::default(),
            formatted: false,
        }
    }

    pub(crate) fn with_bug(self, bug: Option<Bug>) -> Self {
        Self { bug, ..self }
    }

    /// Snapshots are taken only when they are asked for, and nothing but the newest is kept.
    pub(crate) fn keeping_little(mut self) -> Self {
        self.options.snapshots = SnapshotOptions {
            retention_bytes: 1,
            ..self.options.snapshots
        };
        self
    }
}

/// One node, be it on or off.
struct Member {
    node: Option<Running>,
    incarnation: u64,
    /// Everything it ever reported.
    events: Vec<Traced>,
    /// Why it stopped by itself.
    stopped: Option<String>,
}

struct Running {
    node: NodeLoop<LoopDisk>,
    outbox: Collected,
    disk: DiskHandle,
}

/// Changes answers on their way.
pub(crate) type Tamper = Box<dyn FnMut(&mut Response)>;

pub(crate) struct Cluster {
    setup: Setup,
    root: TempDir,
    now_ns: u64,
    members: BTreeMap<NodeId, Member>,
    cut: BTreeSet<(NodeId, NodeId)>,
    messages: VecDeque<Message>,
    askers: BTreeMap<Ticket, Asker>,
    /// Which node each client waits for.
    clients: BTreeMap<Ticket, NodeId>,
    replies: BTreeMap<Ticket, ClientReply>,
    next_ticket: u64,
    steps_at_once: u32,
    pub(crate) findings: Findings,
    pub(crate) tamper: Option<Tamper>,
}

impl Cluster {
    /// All nodes, started on empty directories.
    pub(crate) fn new(setup: Setup) -> Self {
        let members = (1..=setup.voter_count).map(|id| {
            let member = Member {
                node: None,
                incarnation: 0,
                events: Vec::new(),
                stopped: None,
            };
            (NodeId(id), member)
        });
        let mut cluster = Self {
            setup,
            root: tempfile::tempdir().unwrap(),
            now_ns: 1_000_000 * MS,
            members: members.collect(),
            cut: BTreeSet::new(),
            messages: VecDeque::new(),
            askers: BTreeMap::new(),
            clients: BTreeMap::new(),
            replies: BTreeMap::new(),
            next_ticket: 0,
            steps_at_once: 0,
            findings: Findings::default(),
            tamper: None,
        };
        for id in cluster.ids() {
            std::fs::create_dir(cluster.directory(id)).unwrap();
            if setup.formatted {
                cluster.format(id);
            }
            cluster.start(id).unwrap();
        }
        cluster
    }

    pub(crate) fn ids(&self) -> Vec<NodeId> {
        self.members.keys().copied().collect()
    }

    pub(crate) fn others(&self, id: NodeId) -> Vec<NodeId> {
        self.ids()
            .into_iter()
            .filter(|&other| other != id)
            .collect()
    }

    fn directory(&self, id: NodeId) -> PathBuf {
        self.root.path().join(id.to_string())
    }

    fn member(&mut self, id: NodeId) -> &mut Member {
        self.members.get_mut(&id).unwrap()
    }

    fn running(&self, id: NodeId) -> Option<&Running> {
        self.members[&id].node.as_ref()
    }

    // Starting and stopping.

    fn format(&self, id: NodeId) {
        let key = |id: NodeId| ReplicaKey {
            id,
            directory_id: Some(DirectoryId(id.0 as u128)),
        };
        let voters: VoterSet = self
            .members
            .keys()
            .map(|&id| Voter {
                key: key(id),
                endpoint: Some(format!("http://{id}")),
                versions: VersionRange::SUPPORTED,
            })
            .collect();
        let bootstrap = RecordedVoters {
            kraft_version: 1,
            voters,
        };
        let identity = Identity {
            cluster_id: CLUSTER_ID.to_owned(),
            node_id: id,
        };
        let mut disk = DirectoryDisk::open(self.directory(id)).unwrap();
        storage::format(
            &mut disk,
            &identity,
            DirectoryId(id.0 as u128),
            Some(bootstrap),
        )
        .unwrap();
    }

    /// Starts a node on what is durable.
    pub(crate) fn start(&mut self, id: NodeId) -> Result<(), StartError> {
        assert!(self.running(id).is_none(), "{id} is running");
        let voters = match self.setup.formatted {
            true => VoterSet::default(),
            false => self.members.keys().copied().collect(),
        };
        self.next_ticket += 1;
        let seed = self.setup.seed.wrapping_mul(0x9e37_79b9) ^ self.next_ticket;
        let configuration = Configuration {
            bug: self.setup.bug,
            bootstrap: self.ids().into_iter().collect(),
            ..Configuration::of_static_voters(id, CLUSTER_ID, voters, TIMERS, seed)
        };
        let disk = DiskHandle::open(&self.directory(id));
        let mut outbox = Collected::new(disk.clone());
        let started = NodeLoop::start(
            configuration,
            disk.disk(),
            self.setup.options,
            self.now_ns,
            &mut outbox,
        );
        let node = started?;
        let member = self.member(id);
        member.incarnation += 1;
        member.stopped = None;
        member.node = Some(Running { node, outbox, disk });
        self.collect(id);
        Ok(())
    }

    /// What is not durable is gone.
    pub(crate) fn power_cut(&mut self, id: NodeId) {
        assert!(self.running(id).is_some(), "{id} is off");
        self.member(id).node = None;
        self.forget_asked(id);
    }

    /// The process is gone, and everything that it wrote is there.
    pub(crate) fn kill(&mut self, id: NodeId) {
        let disk = self.disk(id).clone();
        self.power_cut(id);
        disk.write_back();
    }

    /// An orderly end.
    pub(crate) fn close(&mut self, id: NodeId) {
        let running = self.member(id).node.take().unwrap();
        running.node.close().unwrap();
        self.forget_asked(id);
    }

    pub(crate) fn restart(&mut self, id: NodeId) {
        self.power_cut(id);
        self.start(id).unwrap();
    }

    /// Loses everything that a node has, which is off until it is started.
    pub(crate) fn wipe(&mut self, id: NodeId) {
        if self.running(id).is_some() {
            self.power_cut(id);
        }
        std::fs::remove_dir_all(self.directory(id)).unwrap();
        std::fs::create_dir(self.directory(id)).unwrap();
    }

    /// Whoever waits for a node that went off learns that no answer comes.
    fn forget_asked(&mut self, id: NodeId) {
        self.askers.retain(|_, asker| {
            if asker.asked == id {
                let (asker, answer) = (*asker, PeerAnswer::Failed);
                self.messages.push_back(Message::Answer { asker, answer });
            }
            asker.asked != id
        });
        let reply = ClientReply::Unknown {
            code: UnknownCode::Stopping,
            epoch: Epoch(0),
        };
        self.clients.retain(|&ticket, asked| {
            if *asked == id {
                self.replies.insert(ticket, reply.clone());
            }
            *asked != id
        });
    }

    // Links.

    pub(crate) fn cut(&mut self, left: NodeId, right: NodeId) {
        self.cut.extend([(left, right), (right, left)]);
    }

    pub(crate) fn isolate(&mut self, id: NodeId) {
        for other in self.others(id) {
            self.cut(id, other);
        }
    }

    pub(crate) fn heal(&mut self) {
        self.cut.clear();
    }

    // Looking.

    pub(crate) fn disk(&self, id: NodeId) -> &DiskHandle {
        &self.running(id).expect("the node is running").disk
    }

    pub(crate) fn is_on(&self, id: NodeId) -> bool {
        self.running(id).is_some()
    }

    /// Why a node stopped by itself.
    pub(crate) fn stopped(&self, id: NodeId) -> Option<&str> {
        self.members[&id].stopped.as_deref()
    }

    pub(crate) fn node(&self, id: NodeId) -> &NodeLoop<LoopDisk> {
        &self.running(id).expect("the node is running").node
    }

    pub(crate) fn state(&self, id: NodeId) -> StateDescription {
        self.node(id).state()
    }

    /// The snapshots that a node has, as it sees its disk.
    pub(crate) fn snapshots(&self, id: NodeId) -> Vec<SnapshotId> {
        let files = self.disk(id).files();
        files.iter().filter_map(|file| snapshot_id(file)).collect()
    }

    /// Whether a node has begun to write a file of this kind and not finished it.
    pub(crate) fn has_unfinished(&self, id: NodeId, suffix: &str) -> bool {
        let files = self.disk(id).files();
        files.iter().any(|file| file.ends_with(suffix))
    }

    /// Where a node's log starts, by its disk.
    pub(crate) fn log_start(&self, id: NodeId) -> Offset {
        match self.disk(id).content(log_start::FILE) {
            Some(bytes) => log_start::decode(&bytes).unwrap().end_offset,
            None => Offset(0),
        }
    }

    /// Everything a node ever reported, over all its lives.
    pub(crate) fn events(&self, id: NodeId) -> &[Traced] {
        &self.members[&id].events
    }

    /// The leader of the newest epoch, once it knows what is committed.
    pub(crate) fn leader(&self) -> Option<NodeId> {
        let running = self.members.iter().filter_map(|(&id, member)| {
            let node = &member.node.as_ref()?.node;
            Some((node.epoch(), node.leader() == Some(id), id))
        });
        let (_, leads, id) = running.max()?;
        let knows = self.node(id).describe().high_watermark.is_some();
        (leads && knows).then_some(id)
    }

    /// Whether everything in the leader's log is committed and applied by all nodes, which are on.
    pub(crate) fn is_caught_up(&self) -> bool {
        let Some(leader) = self.leader() else {
            return false;
        };
        let end = self.node(leader).describe().log_end;
        self.ids().into_iter().all(|id| {
            self.is_on(id)
                && self.state(id).applied == end
                && self.node(id).describe().log_end == end
        })
    }

    // Clients.

    /// Asks a node on behalf of a client.
    pub(crate) fn ask(&mut self, id: NodeId, request: ClientRequest) -> Ticket {
        self.next_ticket += 1;
        let ticket = Ticket(self.next_ticket);
        self.clients.insert(ticket, id);
        let request = Box::new(request);
        self.process(id, vec![Arrival::Client { ticket, request }]);
        ticket
    }

    pub(crate) fn reply(&self, ticket: Ticket) -> Option<&ClientReply> {
        self.replies.get(&ticket)
    }

    /// Asks, and waits for the reply.
    #[track_caller]
    pub(crate) fn call(&mut self, id: NodeId, request: ClientRequest) -> ClientReply {
        let ticket = self.ask(id, request);
        self.run_until("a reply", 20_000, |cluster| cluster.reply(ticket).is_some());
        self.replies[&ticket].clone()
    }

    /// Wants a snapshot of a node's state.
    pub(crate) fn ask_for_snapshot(&mut self, id: NodeId) {
        self.process(id, vec![Arrival::TakeSnapshot]);
    }

    // Time.

    pub(crate) fn now_ms(&self) -> u64 {
        self.now_ns / MS
    }

    /// Lets the next thing happen, but nothing after `limit_ns`. Whether anything happened.
    fn step(&mut self, limit_ns: u64) -> bool {
        self.steps_at_once += 1;
        assert!(
            self.steps_at_once < MOST_STEPS_AT_ONCE,
            "no end of work without time passing"
        );
        if let Some(message) = self.messages.pop_front() {
            self.deliver(message);
            return true;
        }
        let due = self.members.iter().filter_map(|(&id, member)| {
            let deadline_ns = member.node.as_ref()?.node.next_deadline_ns();
            Some((deadline_ns.max(self.now_ns), id))
        });
        let Some((at_ns, id)) = due.min().filter(|&(at_ns, _)| at_ns <= limit_ns) else {
            self.now_ns = self.now_ns.max(limit_ns);
            return false;
        };
        if at_ns > self.now_ns {
            self.steps_at_once = 0;
        }
        self.now_ns = at_ns;
        self.process(id, Vec::new());
        true
    }

    pub(crate) fn run_for(&mut self, duration_ms: u64) {
        let limit_ns = self.now_ns + duration_ms * MS;
        self.steps_at_once = 0;
        while self.step(limit_ns) {}
    }

    /// Runs until `done`, which is checked after each single thing that happens.
    #[track_caller]
    pub(crate) fn run_until(&mut self, what: &str, limit_ms: u64, done: impl Fn(&Self) -> bool) {
        assert!(
            self.reaches(limit_ms, done),
            "not within {limit_ms} ms: {what}; {}",
            self.summary()
        );
    }

    /// As [`run_until`](Self::run_until); whether it came to that.
    pub(crate) fn reaches(&mut self, limit_ms: u64, done: impl Fn(&Self) -> bool) -> bool {
        let limit_ns = self.now_ns + limit_ms * MS;
        self.steps_at_once = 0;
        while !done(self) {
            if !self.step(limit_ns) {
                return done(self);
            }
        }
        true
    }

    fn summary(&self) -> String {
        let of = |(id, member): (&NodeId, &Member)| match (&member.node, &member.stopped) {
            (Some(running), _) => {
                let node = running.node.describe();
                let state = running.node.state();
                format!(
                    "{id}: {:?} in {}, log to {}, {:?} committed, {} applied",
                    node.role,
                    running.node.epoch(),
                    node.log_end,
                    node.high_watermark,
                    state.applied
                )
            }
            (None, Some(reason)) => format!("{id}: stopped, {reason}"),
            (None, None) => format!("{id}: off"),
        };
        let members: Vec<_> = self.members.iter().map(of).collect();
        members.join("; ")
    }

    // Machinery.

    fn process(&mut self, id: NodeId, arrivals: Vec<Arrival>) {
        let now_ns = self.now_ns;
        let timestamp_ms = self.now_ms() as i64;
        let Some(running) = &mut self.member(id).node else {
            return self.forget_asked(id);
        };
        let Running { node, outbox, .. } = running;
        let outcome = node.process(now_ns, timestamp_ms, arrivals, outbox);
        self.collect(id);
        if let Err(error) = outcome {
            self.member(id).stopped = Some(error.to_string());
            self.power_cut(id);
        }
    }

    /// Sends off what left a node, and looks at the state it is in now.
    fn collect(&mut self, id: NodeId) {
        let Self {
            members, findings, ..
        } = self;
        let Some(member) = members.get_mut(&id) else {
            return;
        };
        let incarnation = member.incarnation;
        let Some(Running { node, outbox, .. }) = &mut member.node else {
            return;
        };
        findings.note(id, outbox, node.state());
        member.events.append(&mut outbox.events);
        for departure in outbox.take() {
            self.depart(id, incarnation, departure);
        }
    }
}
