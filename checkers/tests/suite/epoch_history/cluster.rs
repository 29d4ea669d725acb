//! Owns a tiny correct cluster, and what its nodes would report.
//! Never does anything that a checker might rightly blame.

use std::rc::Rc;

use results::trace::{Message, Role, SnapshotName, Started, TraceDetail, TraceEvent};

use crate::epoch_history::replica::{
    Batch, Node, Random, Voters, end_of, name, names, voters_after,
};

/// What a cluster does besides electing, appending, replicating and restarting.
#[derive(Clone, Copy, PartialEq, Eq)]
pub(crate) enum Shape {
    /// Three voters, and nothing else.
    Plain,
    /// Voters are in the log and change among six nodes; there are snapshots, and messages are reported.
    Full,
}

/// A correct cluster in which everything happens one after the other.
struct Cluster {
    shape: Shape,
    nodes: Vec<Node>,
    leader: Option<usize>,
    epoch_start: i64,
    /// High watermark of the leader, in its epoch.
    committed: Option<i64>,
    /// Up to where the leader knows that each node has its log on disk.
    acknowledged: Vec<i64>,
    trace: Vec<TraceEvent>,
    time: u64,
    batches: u32,
    correlation: u64,
}

impl Cluster {
    fn new(shape: Shape) -> Self {
        let count = match shape {
            Shape::Plain => 3,
            Shape::Full => 6,
        };
        let mut cluster = Self {
            shape,
            nodes: (0..count).map(|_| Node::default()).collect(),
            leader: None,
            epoch_start: 0,
            committed: None,
            acknowledged: vec![0; count],
            trace: Vec::new(),
            time: 0,
            batches: 0,
            correlation: 0,
        };
        for node in 0..count {
            cluster.restart(node);
        }
        cluster
    }

    fn emit(&mut self, node: usize, detail: TraceDetail) {
        self.time += 10;
        let state = &mut self.nodes[node];
        self.trace.push(TraceEvent {
            time: self.time,
            node: name(node).into(),
            incarnation: state.incarnation,
            seq: state.seq,
            epoch: state.epoch,
            detail,
        });
        state.seq += 1;
    }

    /// A message on its way: reported where it leaves and where it arrives.
    fn message(&mut self, from: usize, to: usize, message: Message) {
        self.send(from, to, message.clone());
        self.receive(from, to, message);
    }

    fn send(&mut self, from: usize, to: usize, message: Message) {
        if self.shape == Shape::Full {
            let (to, message) = (name(to).into(), Box::new(message));
            self.emit(from, TraceDetail::RpcSent { to, message });
        }
    }

    fn receive(&mut self, from: usize, to: usize, message: Message) {
        if self.shape == Shape::Full {
            let (from, message) = (name(from).into(), Box::new(message));
            self.emit(to, TraceDetail::RpcReceived { from, message });
        }
    }

    /// A power cut and a new start: what was not flushed is gone.
    fn restart(&mut self, node: usize) {
        if self.leader == Some(node) {
            self.leader = None;
        }
        let full = self.shape == Shape::Full;
        let state = &mut self.nodes[node];
        // A snapshot that reaches further than the log on disk takes the place of the log.
        if let Some(newest) = state.newest_snapshot()
            && newest.end_offset > state.durable_end()
        {
            state.durable = state.below(newest.end_offset).len();
            state.start = newest.end_offset;
            state.snapshots = vec![newest];
        }
        state.log.truncate(state.durable);
        state.high_watermark = None;
        state.incarnation += 1;
        state.seq = 0;
        state.role = None;
        let voters = voters_after(&state.log);
        let started = Started {
            role: Role::Unattached,
            log_start: state.start,
            log_end: state.end(),
            last_epoch: state.last_epoch(),
            voted_for: state.vote.map(name),
            leader: None,
            truncated_bytes: 0,
            snapshots: full.then(|| state.snapshots.clone()),
            voters: full.then(|| names(&voters)),
            kraft_version: full.then_some(1),
            directory_id: full.then(|| format!("{node}-{}", state.wiped)),
            is_voter: full.then(|| state.wiped == 0 && voters.contains(&node)),
        };
        self.emit(node, TraceDetail::Started(Box::new(started)));
    }

    /// A node that no longer votes loses its disk, and comes back as another replica.
    fn wipe(&mut self, node: usize) {
        let votes = |state: &Node| voters_after(&state.log).contains(&node);
        if self.leader == Some(node) || self.nodes.iter().any(votes) {
            return;
        }
        let state = &mut self.nodes[node];
        *state = Node {
            incarnation: state.incarnation,
            wiped: state.wiped + 1,
            ..Node::default()
        };
        self.acknowledged[node] = 0;
        self.restart(node);
    }

    fn role(&mut self, node: usize, role: Role, leader: Option<usize>) {
        self.nodes[node].role = Some((role, self.nodes[node].epoch));
        let start = (role == Role::Leader).then(|| self.nodes[node].end());
        self.emit(
            node,
            TraceDetail::RoleChange {
                role,
                leader: leader.map(name),
                epoch_start_offset: start,
                reason: None,
            },
        );
    }

    fn vote(&mut self, voter: usize, candidate: usize, epoch: i32) {
        self.nodes[voter].epoch = epoch;
        self.nodes[voter].vote = Some(candidate);
        let named = name(candidate);
        self.emit(voter, TraceDetail::VotePersisted { candidate: named });
        if voter != candidate && self.nodes[voter].role.take().is_some() {
            self.role(voter, Role::Unattached, None);
        }
    }

    /// Those of the voters that would vote for it, itself first, if they are enough.
    fn electors(&self, candidate: usize, first: usize) -> Option<Voters> {
        let log = |node: &Node| (node.last_epoch(), node.end());
        let voters = voters_after(&self.nodes[candidate].log);
        if !voters.contains(&candidate) || self.nodes[candidate].wiped > 0 {
            return None;
        }
        let mut others = voters.to_vec();
        others.retain(|voter| *voter != candidate && self.nodes[*voter].wiped == 0);
        others.retain(|voter| log(&self.nodes[*voter]) <= log(&self.nodes[candidate]));
        let count = others.len().max(1);
        others.rotate_left(first % count);
        others.truncate(voters.len() / 2);
        others.insert(0, candidate);
        (others.len() > voters.len() / 2).then_some(others)
    }

    fn elect(&mut self, candidate: usize, first: usize, random: &mut Random) {
        let Some(electors) = self.electors(candidate, first) else {
            return;
        };
        let epoch = self.nodes.iter().map(|node| node.epoch).max().unwrap_or(0) + 1;
        for voter in &electors[1..] {
            self.ask(*voter, candidate, self.nodes[candidate].epoch, "pre-vote");
        }
        self.vote(candidate, candidate, epoch);
        self.role(candidate, Role::Candidate, None);
        for voter in &electors[1..] {
            self.ask(*voter, candidate, epoch, "vote");
        }
        self.epoch_start = self.nodes[candidate].end();
        self.leader = Some(candidate);
        self.committed = None;
        self.acknowledged.fill(0);
        self.role(candidate, Role::Leader, Some(candidate));
        self.append(candidate, None);
        self.flush(candidate);
        for follower in 0..self.nodes.len() {
            if follower != candidate && random.below(4) > 0 {
                self.follow(follower, candidate);
            }
        }
        self.advance();
    }

    fn ask(&mut self, voter: usize, candidate: usize, epoch: i32, rpc: &'static str) {
        self.correlation += 1;
        let request = Message {
            rpc: rpc.into(),
            correlation: Some(self.correlation),
            message_epoch: Some(epoch),
            offset: Some(self.nodes[candidate].end()),
            last_epoch: Some(self.nodes[candidate].last_epoch()),
            ..Message::default()
        };
        self.message(candidate, voter, request.clone());
        if rpc == "vote" {
            self.vote(voter, candidate, epoch);
        }
        let answer = Message {
            is_response: true,
            granted: Some(true),
            offset: None,
            last_epoch: None,
            ..request
        };
        self.send(voter, candidate, answer.clone());
        let rpc = "vote".into();
        self.receive(voter, candidate, Message { rpc, ..answer });
    }

    /// Learns of the leader, if it has not yet.
    fn follow(&mut self, follower: usize, leader: usize) {
        let epoch = self.nodes[leader].epoch;
        if self.nodes[follower].epoch < epoch {
            self.nodes[follower].epoch = epoch;
            self.nodes[follower].vote = None;
        }
        let leader_name = Some(name(leader));
        self.emit(
            follower,
            TraceDetail::EpochAdopted {
                leader: leader_name,
            },
        );
        self.role(follower, Role::Follower, Some(leader));
    }

    /// Appends the given batch, or one that the node makes itself.
    fn append(&mut self, node: usize, batch: Option<Batch>) {
        let base = self.nodes[node].end();
        let batch = batch.unwrap_or_else(|| self.new_batch(node, None));
        assert_eq!(batch.base, base, "a log has no holes");
        self.nodes[node].log.push(batch.clone());
        self.emit(
            node,
            TraceDetail::Append {
                base_offset: batch.base,
                last_offset: batch.last,
                batch_epoch: batch.epoch,
                crc: batch.crc,
            },
        );
        if batch.names_voters {
            self.emit(
                node,
                TraceDetail::VotersAppended {
                    offset: batch.base,
                    voters: names(&batch.voters),
                    kraft_version: 1,
                },
            );
        }
    }

    fn new_batch(&mut self, node: usize, voters: Option<Voters>) -> Batch {
        let base = self.nodes[node].end();
        self.batches += 1;
        Batch {
            base,
            last: base + i64::from(self.batches % 3),
            epoch: self.nodes[node].epoch,
            crc: self.batches,
            names_voters: voters.is_some(),
            voters: voters.map_or_else(|| voters_after(&self.nodes[node].log), Rc::new),
        }
    }

    fn flush(&mut self, node: usize) {
        self.nodes[node].durable = self.nodes[node].log.len();
        let log_end = self.nodes[node].end();
        self.emit(node, TraceDetail::Flush { log_end });
    }

    /// One fetch: what the follower has is acknowledged, what it lacks comes back.
    fn replicate(&mut self, leader: usize, follower: usize) {
        if self.nodes[follower].role != Some((Role::Follower, self.nodes[leader].epoch)) {
            self.follow(follower, leader);
        }
        if self.nodes[follower].durable < self.nodes[follower].log.len() {
            self.flush(follower);
        }
        self.correlation += 1;
        let request = Message {
            rpc: "fetch".into(),
            correlation: Some(self.correlation),
            message_epoch: Some(self.nodes[leader].epoch),
            offset: Some(self.nodes[follower].end()),
            last_epoch: Some(self.nodes[follower].last_epoch()),
            high_watermark: self.nodes[follower].high_watermark,
            ..Message::default()
        };
        self.message(follower, leader, request);
        let (one, other) = (&self.nodes[leader].log, &self.nodes[follower].log);
        // Logs that agree at an offset agree below it.
        let mut same = one.len().min(other.len());
        while same > 0 && one[same - 1] != other[same - 1] {
            same -= 1;
        }
        let agreed_end = end_of(&self.nodes[leader].log[..same]);
        if same == self.nodes[follower].log.len() {
            self.acknowledged[follower] = agreed_end;
            self.advance();
        }
        if self.leader != Some(leader) {
            return; // Its removal is committed.
        }
        let answer = Message {
            rpc: "fetch".into(),
            is_response: true,
            correlation: Some(self.correlation),
            message_epoch: Some(self.nodes[leader].epoch),
            leader: Some(name(leader).into()),
            high_watermark: self.committed,
            ..Message::default()
        };
        if agreed_end < self.nodes[leader].start {
            self.install(leader, follower, answer);
        } else if same < self.nodes[follower].log.len() {
            let diverging = Some((0, agreed_end));
            self.message(
                leader,
                follower,
                Message {
                    diverging,
                    ..answer
                },
            );
            let node = &mut self.nodes[follower];
            node.log.truncate(same);
            node.durable = node.durable.min(same);
            let log_end = node.end();
            self.emit(follower, TraceDetail::Truncate { log_end });
        } else {
            self.hand_over(leader, follower, same, answer);
        }
    }

    fn hand_over(&mut self, leader: usize, follower: usize, from: usize, answer: Message) {
        let missing = self.nodes[leader].log[from..].to_vec();
        let records = Message {
            offset: missing.first().map(|batch| batch.base),
            end_offset: missing.last().map(|batch| batch.last + 1),
            ..answer
        };
        self.message(leader, follower, records);
        for batch in missing {
            self.append(follower, Some(batch));
        }
        if let Some(committed) = self.committed {
            self.expose(follower, committed);
        }
    }

    /// The follower downloads the newest snapshot of the leader, which takes the place of its log.
    fn install(&mut self, leader: usize, follower: usize, answer: Message) {
        let Some(snapshot) = self.nodes[leader].newest_snapshot() else {
            return;
        };
        let SnapshotName {
            end_offset,
            last_epoch,
        } = snapshot;
        let (offset, last_epoch_told) = (Some(end_offset), Some(last_epoch));
        let told = Message {
            offset,
            last_epoch: last_epoch_told,
            ..answer
        };
        self.message(leader, follower, told);
        let covered = self.nodes[leader].below(end_offset).to_vec();
        let voters = voters_after(&covered);
        let node = &mut self.nodes[follower];
        node.durable = covered.len();
        node.log = covered;
        node.start = end_offset;
        node.snapshots = vec![snapshot];
        let digest = node.digest(end_offset);
        self.emit(
            follower,
            TraceDetail::SnapshotInstalled {
                end_offset,
                last_epoch,
                digest,
                voters: Some(names(&voters)),
                kraft_version: 1,
            },
        );
    }

    /// Takes a snapshot of what the node knows to be committed.
    fn freeze(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        let Some(end_offset) = state.high_watermark else {
            return;
        };
        let newest = state.newest_snapshot();
        if newest.is_some_and(|newest| newest.end_offset >= end_offset) {
            return;
        }
        let last_epoch = state.below(end_offset).last().map_or(0, |last| last.epoch);
        let snapshot = SnapshotName {
            end_offset,
            last_epoch,
        };
        state.snapshots.push(snapshot);
        let digest = state.digest(end_offset);
        self.emit(
            node,
            TraceDetail::SnapshotFrozen {
                end_offset,
                last_epoch,
                digest,
            },
        );
    }

    /// Deletes the log below the newest snapshot, and the older ones.
    fn compact(&mut self, node: usize) {
        let state = &mut self.nodes[node];
        let Some(newest) = state.newest_snapshot() else {
            return;
        };
        if newest.end_offset > state.start {
            let log_start = newest.end_offset;
            state.start = log_start;
            state.snapshots = vec![newest];
            self.emit(node, TraceDetail::LogStartAdvanced { log_start });
        }
    }

    /// Adds or removes a voter, if the change before is committed.
    fn change_voters(&mut self, leader: usize, node: usize) {
        let Some(committed) = self.committed else {
            return;
        };
        let log = &self.nodes[leader].log;
        let uncommitted = log.iter().rev().take_while(|batch| batch.last >= committed);
        let pending = uncommitted.into_iter().any(|batch| batch.names_voters);
        let mut voters = voters_after(log).to_vec();
        match voters.iter().position(|voter| *voter == node) {
            Some(place) => drop(voters.remove(place)),
            None => voters.push(node),
        }
        voters.sort_unstable();
        if pending || voters.is_empty() || self.nodes[node].wiped > 0 {
            return;
        }
        let batch = self.new_batch(leader, Some(voters));
        self.append(leader, Some(batch));
        self.flush(leader);
        self.advance();
    }

    /// Moves the leader's high watermark to what a majority of its voters has.
    fn advance(&mut self) {
        let Some(leader) = self.leader else {
            return;
        };
        self.acknowledged[leader] = self.nodes[leader].durable_end();
        let voters = voters_after(&self.nodes[leader].log);
        let mut ends: Vec<i64> = voters.iter().map(|node| self.acknowledged[*node]).collect();
        ends.sort_unstable_by_key(|end| std::cmp::Reverse(*end));
        let committed = ends[ends.len() / 2];
        let known = self.committed.or(self.nodes[leader].high_watermark);
        if committed <= self.epoch_start || known.is_some_and(|known| known > committed) {
            return;
        }
        self.committed = Some(committed);
        self.expose(leader, committed);
        // Whoever has been removed leads until that is committed.
        let mut records = self.nodes[leader].log.iter().rev();
        let removal = records.find(|batch| batch.names_voters);
        let is_committed = removal.is_some_and(|removal| removal.base < committed);
        if !voters.contains(&leader) && is_committed {
            self.leader = None;
            self.role(leader, Role::Resigned, None);
        }
    }

    fn expose(&mut self, node: usize, high_watermark: i64) {
        let state = &mut self.nodes[node];
        if state
            .high_watermark
            .is_some_and(|known| known >= high_watermark)
        {
            return;
        }
        state.high_watermark = Some(high_watermark);
        let log_end = state.end();
        self.emit(
            node,
            TraceDetail::HighWatermark {
                high_watermark,
                log_end,
            },
        );
    }

    fn read(&mut self, leader: usize) {
        if let Some(read_offset) = self.committed {
            let applied = read_offset;
            self.emit(
                leader,
                TraceDetail::ReadServed {
                    read_offset,
                    applied,
                },
            );
        }
    }

    fn step(&mut self, random: &mut Random) {
        let count = self.nodes.len() as u64;
        let node = random.below(count);
        let other = random.below(count);
        let special = match self.shape {
            Shape::Plain => 0,
            Shape::Full => 4,
        };
        match (random.below(14 + special), self.leader) {
            (0, _) | (_, None) => self.elect(node, other, random),
            (1, _) => self.restart(node),
            (2..=4, Some(leader)) => {
                self.append(leader, None);
                self.flush(leader);
                self.advance();
            }
            (14.., Some(leader)) => match random.below(8) {
                0 | 1 => self.change_voters(leader, node),
                2 => self.freeze(node),
                3 => self.freeze(leader),
                4 => self.compact(node),
                5 => self.compact(leader),
                6 if random.below(3) == 0 => self.wipe(node),
                _ => self.read(leader),
            },
            (_, Some(leader)) if node != leader => {
                self.replicate(leader, node);
                if random.below(4) > 0 && self.leader == Some(leader) {
                    self.replicate(leader, node);
                }
            }
            _ => {}
        }
    }
}

/// What the nodes of a correct cluster report; the seed decides what happens to it.
pub(crate) fn correct_trace(shape: Shape, seed: u64) -> Vec<TraceEvent> {
    trace_of(shape, seed, |_, steps| {
        steps >= if shape == Shape::Full { 300 } else { 120 }
    })
}

/// The same, until it has at least so many events.
pub(crate) fn long_trace(shape: Shape, seed: u64, event_count: usize) -> Vec<TraceEvent> {
    trace_of(shape, seed, |events, _| events >= event_count)
}

fn trace_of(shape: Shape, seed: u64, is_enough: impl Fn(usize, usize) -> bool) -> Vec<TraceEvent> {
    let mut random = Random(seed);
    let mut cluster = Cluster::new(shape);
    let mut steps = 0;
    while !is_enough(cluster.trace.len(), steps) {
        cluster.step(&mut random);
        steps += 1;
    }
    cluster.trace
}
