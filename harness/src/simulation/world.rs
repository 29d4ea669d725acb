//! Owns the simulated world: virtual time, its events, and the cluster and clients that they happen to.
//! Never reads a clock of this machine, and never lets two runs of one plan differ.

mod outside;

use std::collections::{BTreeMap, VecDeque};
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use checkers::onlooker::Onlooker;
use checkers::safety::Monitor;
use nemesis::membership::Answer as MembershipAnswer;
use node::mutants::Bug;
use node::node_loop::Arrival;
use node::raft::{PeerAnswer, Ticket};
use results::disk_image::DiskImage;
use results::manifest::{RunOptions, Simulation};
use results::ordered_list::OrderedList;
use results::trace::{TraceDetail, TraceEvent};
use serde_json::{Map, json};

use super::conversation;
use super::digest::Digest;
use super::draws::Draws;
use super::events::{Content, Happening, Parcel};
use super::faults::FaultDesk;
use super::images::image_of;
use super::link_faults::LinkFaults;
use super::membership::MembershipDesk;
use super::moments::MomentDesk;
use super::network::{Network, NetworkProfile};
use super::queue::Queue;
use super::simulated_node::{Asker, Life, SimulatedNode};
use super::snapshot_faults::SnapshotErrand;
use super::strangers::Strangers;
use super::strobes::Strobes;
use super::tracing;
use crate::damage::Damage;
use crate::world::{Answer, Event, Sight};

const MS: u64 = 1_000_000;
/// How often clocks are compared while the schedule skews them.
const CLOCK_SAMPLE_NS: u64 = 500 * MS;
/// How many events pass between two looks at whether somebody wants to stop.
const STOP_LOOK_EVENTS: u64 = 1 << 14;

/// A cluster in one thread, in virtual time.
#[derive(Debug)]
pub(super) struct SimulatedWorld {
    pub(super) names: Vec<String>,
    pub(super) nodes: Vec<SimulatedNode>,
    pub(super) network: Network<Parcel>,
    pub(super) queue: Queue<Happening>,
    pub(super) surfaced: VecDeque<Event>,
    pub(super) now_ns: u64,
    pub(super) faults: FaultDesk,
    pub(super) moments: MomentDesk,
    pub(super) link_faults: LinkFaults,
    pub(super) strobes: Strobes,
    pub(super) seed: u64,
    pub(super) strangers: Strangers,
    pub(super) life_draws: Vec<Draws>,
    pub(super) membership: MembershipDesk,
    pub(super) snapshot_errands: Vec<SnapshotErrand>,
    calls: OrderedList<u64, usize>,
    next_ticket: u64,
    pub(super) digest: Digest,
    witness: Witness,
    monitor: Monitor,
    said_names: tracing::Names,
    halted: bool,
    last_words: BTreeMap<String, Vec<String>>,
    stop: Arc<AtomicBool>,
    /// When requests came to the end of their links, with their numbers.
    #[cfg(test)]
    pub(super) arrived_requests: Vec<(u64, u64)>,
}

/// Who sees what the nodes say about themselves, in the order in which they do.
#[derive(Debug)]
pub(super) enum Witness {
    /// Everything is kept, and judged afterwards.
    Trace(Vec<TraceEvent>),
    /// Everything is judged at once, and forgotten.
    Onlooker(Box<Onlooker>),
}

/// What is left of a world when its run is over.
#[derive(Debug)]
pub(super) struct Remains {
    /// Whoever saw what the nodes said.
    pub(super) witness: Witness,
    /// Number of events, and hash over all of them.
    pub(super) identity: Simulation,
    /// By node: the files on its disk, if the trace was kept as well.
    pub(super) disks: BTreeMap<String, Vec<(String, Vec<u8>)>>,
    /// By node: what is durable on its disk.
    pub(super) images: BTreeMap<String, DiskImage>,
    /// By node: how it ended, each time that it did so by itself.
    pub(super) last_words: BTreeMap<String, Vec<String>>,
}

impl SimulatedWorld {
    /// A world at time zero, in which all nodes begin to start. `stop` ends it from outside.
    pub(super) fn new(
        seed: u64,
        options: &RunOptions,
        bug: Option<Bug>,
        skews_clocks: bool,
        witness: Witness,
        stop: Arc<AtomicBool>,
    ) -> Self {
        let node_count = options.all_nodes().len();
        let nodes: Vec<SimulatedNode> = (0..node_count)
            .map(|position| SimulatedNode::new(seed, position, options, bug))
            .collect();
        let said_names = nodes.iter().map(|node| node.name.clone()).collect();
        let said_names = tracing::Names::new(said_names);
        let life = |position| Draws::new(seed, "simulation/life", position as u64);
        let mut world = Self {
            names: nodes.iter().map(|node| node.name.to_string()).collect(),
            nodes,
            network: Network::new(seed, node_count, NetworkProfile::of_seed(seed)),
            queue: Queue::new(),
            surfaced: VecDeque::new(),
            now_ns: 0,
            faults: FaultDesk::default(),
            link_faults: LinkFaults::default(),
            strobes: Strobes::new(),
            seed,
            moments: MomentDesk::default(),
            strangers: Strangers::new(seed, options.cluster.strangers),
            life_draws: (0..node_count).map(life).collect(),
            membership: MembershipDesk::new(options),
            snapshot_errands: Vec::new(),
            calls: OrderedList::default(),
            next_ticket: 0,
            digest: Digest::default(),
            witness,
            monitor: Monitor::default(),
            said_names,
            halted: false,
            last_words: BTreeMap::new(),
            stop,
            #[cfg(test)]
            arrived_requests: Vec::new(),
        };
        for node in 0..options.first_nodes().len() {
            world.begin_start(node);
        }
        if skews_clocks {
            world.queue.push(CLOCK_SAMPLE_NS, Happening::SampleClocks);
        }
        world
    }

    /// Ends the world and tells what is left of it.
    pub(super) fn into_remains(self) -> Remains {
        let keeps = matches!(self.witness, Witness::Trace(_));
        let wanted = self.nodes.iter().flat_map(|node| {
            let names = node.disk.durable_names();
            checkers::disks::snapshot_ends(names.iter().map(String::as_str))
        });
        let wanted = wanted.collect();
        let mut disks = BTreeMap::new();
        let mut images = BTreeMap::new();
        // Of disk and node nothing is left once it is described, so that they are not all there twice.
        for node in self.nodes {
            let name = node.name.to_string();
            if keeps {
                disks.insert(name.clone(), node.disk.files());
            }
            images.insert(name, image_of(&node, &wanted, &self.said_names));
        }
        Remains {
            disks,
            images,
            witness: self.witness,
            identity: Simulation {
                digest: self.digest.text(),
                event_count: self.digest.event_count(),
            },
            last_words: self.last_words,
        }
    }

    fn happen(&mut self, happening: Happening) {
        match happening {
            Happening::Arrive { from, to, parcel } => self.arrive(from, to, parcel),
            Happening::ArriveLate { from, to, number } => self.arrive_late(from, to, number),
            Happening::Strobe { fault } => self.strobe_on(fault),
            Happening::Ask {
                call,
                node,
                request,
            } => {
                self.digest.event(self.now_ns, 2, node);
                self.digest.add(call);
                if !self.nodes[node].is_running() {
                    let name = &self.names[node];
                    let message = format!("{name} cannot be connected to");
                    let answer = conversation::not_there("CONNECTION_REFUSED", message);
                    return self.tell(node, call, answer);
                }
                let ticket = self.ticket(node, Asker::Client { call });
                self.deliver(node, Arrival::Client { ticket, request });
            }
            Happening::Tell { call, answer } => {
                if self.calls.remove(&call).is_some() {
                    self.digest.event(self.now_ns, 3, 0);
                    self.digest.add(call);
                    let answer = *answer;
                    self.surfaced.push_back(Event::Answer { call, answer });
                }
            }
            Happening::GiveUp { call } => {
                if let Some(node) = self.calls.remove(&call) {
                    self.digest.event(self.now_ns, 4, node);
                    let message = format!("no answer from {} in time", self.names[node]);
                    let answer = conversation::unknown("timeout", message);
                    self.surfaced.push_back(Event::Answer { call, answer });
                }
            }
            Happening::Wake { node } => self.wake(node),
            Happening::Release { node } => {
                if self.nodes[node].release_at_ns == self.now_ns {
                    self.release(node);
                }
            }
            Happening::Expire { node } => self.expire(node),
            Happening::Start { node } => self.finish_start(node),
            Happening::Duty { fault } => self.turn_duty(fault),
            Happening::SampleClocks => self.sample_clocks(),
            Happening::GoOnWithCourse { course, token } => self.wake_course(course, token),
            Happening::LookAtSnapshots => self.look_at_snapshots(),
            Happening::LookAtFaults => self.look_at_faults(),
        }
    }

    /// A message has come to the end of its link.
    pub(super) fn arrive(&mut self, from: usize, to: usize, parcel: Parcel) {
        if self.is_broken(from, to, &parcel) {
            return;
        }
        if self.network.is_cut(from, to) {
            let size_bytes = parcel.size_bytes();
            return self.network.hold(from, to, parcel, size_bytes);
        }
        self.digest.event(self.now_ns, 1, from << 8 | to);
        parcel.describe(&mut self.digest);
        let Parcel {
            incarnation,
            correlation,
            content,
        } = parcel;
        #[cfg(test)]
        if matches!(content, Content::Request(_)) {
            self.arrived_requests.push((self.now_ns, correlation.0));
        }
        let answer = match content {
            Content::Request(request) if self.nodes[to].is_running() => {
                let asker = Asker::Peer {
                    node: from,
                    incarnation,
                    correlation,
                };
                let stranger = self.draw_stranger(&request);
                let ticket = self.ticket(to, asker);
                let arrival = Arrival::PeerRequest {
                    ticket,
                    correlation: Some(correlation),
                    request,
                };
                self.deliver(to, arrival);
                if let Some((correlation, asked)) = stranger
                    && self.nodes[to].is_running()
                {
                    self.ask_as_stranger(to, correlation, asked);
                }
                return;
            }
            Content::Request(_) => {
                let parcel = Parcel {
                    incarnation,
                    correlation,
                    content: Content::Failed,
                };
                return self.send(to, from, parcel);
            }
            Content::Response(response) => PeerAnswer::Response(response),
            Content::Failed => PeerAnswer::Failed,
        };
        let asker = &mut self.nodes[to];
        let asked = asker.is_running() && asker.incarnation == incarnation;
        if asked && asker.waiting.remove(&correlation).is_some() {
            let peer = node::ids::NodeId(from as i32 + 1);
            self.deliver(
                to,
                Arrival::PeerAnswer {
                    peer,
                    correlation,
                    answer,
                },
            );
        }
    }

    /// Adds something to the digest that faults did.
    pub(super) fn note(&mut self, kind: u64, node: usize, detail: u64) {
        self.digest.event(self.now_ns, kind, node);
        self.digest.add(detail);
    }

    pub(super) fn ticket(&mut self, node: usize, asker: Asker) -> Ticket {
        let ticket = Ticket(self.next_ticket);
        self.next_ticket += 1;
        self.nodes[node].askers.insert(ticket, asker);
        ticket
    }

    /// Puts something into a node's inbox; a free node works on it at once.
    pub(super) fn deliver(&mut self, node: usize, arrival: Arrival) {
        self.nodes[node].inbox.push(arrival);
        if self.nodes[node].is_free(self.now_ns) {
            self.work(node);
        } else {
            self.plan_wake(node);
        }
    }

    fn work(&mut self, node: usize) {
        self.nodes[node].work(self.now_ns);
        self.release(node);
    }

    fn wake(&mut self, node: usize) {
        if self.nodes[node].wake_at_ns != self.now_ns {
            return;
        }
        self.nodes[node].wake_at_ns = super::simulated_node::NEVER_NS;
        if self.nodes[node].is_free(self.now_ns)
            && self.nodes[node].due_ns(self.now_ns) <= self.now_ns
        {
            self.digest.event(self.now_ns, 5, node);
            self.work(node);
        } else {
            self.plan_wake(node);
        }
    }

    /// Makes sure that a node works when it must. Waking too early costs little, so an earlier plan stays.
    pub(super) fn plan_wake(&mut self, node: usize) {
        // Whoever was stopped when it should have acted is late, and a wake-up in the past would never come.
        let due_ns = self.nodes[node].due_ns(self.now_ns).max(self.now_ns);
        if due_ns < self.nodes[node].wake_at_ns {
            self.nodes[node].wake_at_ns = due_ns;
            self.queue.push(due_ns, Happening::Wake { node });
        }
    }

    /// Lets leave what is due; a stopped node keeps everything.
    pub(super) fn release(&mut self, node: usize) {
        use super::simulated_node::{NEVER_NS, Output};
        self.nodes[node].release_at_ns = NEVER_NS;
        if self.nodes[node].paused_since_ns.is_some() || self.nodes[node].held.is_some() {
            return;
        }
        while !self.halted {
            let Some((due_ns, _)) = self.nodes[node].outputs.front() else {
                return self.plan_wake(node);
            };
            if *due_ns > self.now_ns {
                let due_ns = *due_ns;
                self.nodes[node].release_at_ns = due_ns;
                return self.queue.push(due_ns, Happening::Release { node });
            }
            match self.nodes[node].outputs.pop_front() {
                Some((_, Output::Depart(departure))) => self.depart(node, departure),
                Some((_, Output::Trace(traced))) => self.record(node, traced),
                Some((_, Output::Moment(edge, moment, place)))
                    if self.holds_at(node, edge, moment, place) =>
                {
                    return;
                }
                Some((_, Output::Crash(description))) => return self.crash(node, description),
                Some((_, Output::Stopped)) => {
                    self.end_process(node);
                    return self.look_at_faults();
                }
                Some((_, Output::Moment(..))) | None => {}
            }
        }
    }

    fn record(&mut self, position: usize, traced: node::trace::Traced) {
        let node = &mut self.nodes[position];
        let witness = &mut self.witness;
        let spare = || match witness {
            Witness::Onlooker(onlooker) => onlooker.spare_message(),
            Witness::Trace(_) => None,
        };
        let event = TraceEvent {
            time: self.now_ns,
            node: node.name.clone(),
            incarnation: node.incarnation,
            seq: node.next_seq,
            epoch: traced.epoch.0,
            detail: tracing::detail(traced.event, &self.said_names, spare),
        };
        node.next_seq += 1;
        match &event.detail {
            TraceDetail::Started(started) => node.role = Some(started.role),
            TraceDetail::RoleChange { role, .. } => node.role = Some(*role),
            _ => {}
        }
        self.digest.event(self.now_ns, 6, position);
        self.digest.add(event.epoch as u64);
        tracing::describe(&event.detail, &mut self.digest);
        if let Some(violation) = self.monitor.observe(&event) {
            self.halt(format!("{}: {}", violation.property, violation.summary));
        }
        match &mut self.witness {
            Witness::Trace(trace) => trace.push(event),
            Witness::Onlooker(onlooker) => onlooker.observe(event),
        }
    }

    /// Nothing happens any more.
    fn halt(&mut self, reason: String) {
        if !self.halted {
            self.halted = true;
            self.surfaced.push_back(Event::Halted { reason });
        }
    }

    /// A node ends by itself. Whatever its process held in memory is gone with it.
    fn crash(&mut self, node: usize, description: String) {
        self.power_off(node);
        self.faults.crashed(node, description.clone());
        let name = self.names[node].clone();
        let words = self.last_words.entry(name.clone()).or_default();
        words.push(format!("{:.3} s: {description}", self.now_ns as f64 / 1e9));
        self.digest.event(self.now_ns, 7, node);
        self.surfaced.push_back(Event::NodeCrashed {
            node: name,
            description,
            signal: None,
        });
        self.look_at_faults();
    }

    /// Ends a node as a power cut does. Returns how many bytes its disk lost.
    pub(super) fn power_off(&mut self, node: usize) -> u64 {
        self.digest.event(self.now_ns, 8, node);
        let incarnation = u64::from(self.nodes[node].incarnation);
        let draws = self.life_draws[node].of(1_000_000 + incarnation);
        let place = self.nodes[node].held.map(|(_, place)| place);
        let lost_bytes = self.nodes[node].disk.cut_power(self.now_ns, place, draws);
        self.hang_up(node);
        lost_bytes
    }

    /// Ends the process of a node; the machine goes on, so that nothing is lost that was written.
    pub(super) fn end_process(&mut self, node: usize) {
        self.digest.event(self.now_ns, 13, node);
        let place = self.nodes[node].held.map(|(_, place)| place);
        self.nodes[node].disk.keep_written(self.now_ns, place);
        self.hang_up(node);
    }

    /// Destroys something on the disk of a node after its power was cut.
    pub(super) fn damage(&mut self, node: usize, damage: &Damage) {
        self.digest.event(self.now_ns, 14, node);
        self.digest.add(damage.damaged_bytes);
        self.nodes[node].disk.damage(&damage.edits);
    }

    /// Whoever waits for an answer of a node that has ended learns that there will be none.
    fn hang_up(&mut self, node: usize) {
        for asker in self.nodes[node].die() {
            match asker {
                Asker::Peer {
                    node: peer,
                    incarnation,
                    correlation,
                } => {
                    let parcel = Parcel {
                        incarnation,
                        correlation,
                        content: Content::Failed,
                    };
                    self.send_end(node, peer, parcel);
                }
                Asker::Nemesis { course, token } => {
                    // It may have been carried out before the node ended.
                    self.voters_answered(course, token, MembershipAnswer::Silence);
                }
                Asker::Stranger => {}
                Asker::Client { call } => {
                    let name = &self.names[node];
                    let message = format!("the connection to {name} broke before it answered");
                    let answer = conversation::unknown("connection-lost", message);
                    self.tell(node, call, answer);
                }
            }
        }
    }

    /// Begins to start a node that is down.
    pub(super) fn begin_start(&mut self, node: usize) {
        let incarnation = u64::from(self.nodes[node].incarnation);
        let delay_ns = 5 * MS + self.life_draws[node].below(incarnation, 60 * MS);
        let start_at_ns = self.now_ns + delay_ns;
        self.nodes[node].life = Life::Starting;
        self.nodes[node].start_at_ns = start_at_ns;
        self.queue.push(start_at_ns, Happening::Start { node });
    }

    fn finish_start(&mut self, node: usize) {
        let starting = matches!(self.nodes[node].life, Life::Starting);
        if !starting || self.nodes[node].start_at_ns != self.now_ns {
            return;
        }
        self.digest.event(self.now_ns, 9, node);
        let outcome = self.nodes[node].start(self.now_ns);
        self.faults.started(node);
        if let Err(problem) = outcome {
            let name = self.names[node].clone();
            let words = self.last_words.entry(name).or_default();
            words.push(format!("{:.3} s: {problem}", self.now_ns as f64 / 1e9));
            self.faults.start_failed(node, problem);
        }
        self.release(node);
        self.look_at_faults();
    }

    fn sight(&self) -> Sight {
        let mut sight = Sight::default();
        for node in &self.nodes {
            if let Life::Running(running) = &node.life {
                let quorum = running.describe();
                let role = tracing::role_of(quorum.role);
                sight.roles.insert(node.name.to_string(), role);
                sight
                    .log_ends
                    .insert(node.name.to_string(), quorum.log_end.0);
            }
        }
        sight
    }

    /// What is demanded from now on is demanded of nodes that do what they usually do.
    fn end_mischief(&mut self) {
        for node in &mut self.nodes {
            node.end_mischief();
        }
    }

    fn sample_clocks(&mut self) {
        let mut offsets_ms = Map::new();
        for node in self.nodes.iter().filter(|node| node.is_reachable()) {
            let skew_ms = node.clock.skew_ns(self.now_ns) as f64 / 1e6;
            offsets_ms.insert(node.name.to_string(), json!(skew_ms));
        }
        self.surfaced.push_back(Event::ClockOffsets { offsets_ms });
        let next_ns = self.now_ns + CLOCK_SAMPLE_NS;
        self.queue.push(next_ns, Happening::SampleClocks);
    }

    /// An answer is on its way to a client.
    pub(super) fn tell(&mut self, node: usize, call: u64, answer: Answer) {
        let arrives_ns = self.now_ns + self.network.client_delay_ns(node);
        let answer = Box::new(answer);
        self.queue
            .push(arrives_ns, Happening::Tell { call, answer });
    }
}
