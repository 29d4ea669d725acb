//! Owns a tiny correct cluster, and what its nodes would report.
//! Never does anything that a checker might rightly blame.

use results::trace::{Role, TraceDetail, TraceEvent};

/// A small deterministic generator (SplitMix64).
pub(crate) struct Random(pub(crate) u64);

impl Random {
    pub(crate) fn below(&mut self, bound: u64) -> usize {
        self.0 = self.0.wrapping_add(0x9e37_79b9_7f4a_7c15);
        let mut mixed = self.0;
        mixed = (mixed ^ (mixed >> 30)).wrapping_mul(0xbf58_476d_1ce4_e5b9);
        mixed = (mixed ^ (mixed >> 27)).wrapping_mul(0x94d0_49bb_1331_11eb);
        ((mixed ^ (mixed >> 31)) % bound) as usize
    }
}

#[derive(Clone, Copy, PartialEq, Eq, Debug)]
struct Batch {
    base: i64,
    last: i64,
    epoch: i32,
    crc: u32,
}

#[derive(Default)]
struct Node {
    log: Vec<Batch>,
    durable: usize,
    epoch: i32,
    high_watermark: Option<i64>,
    incarnation: u32,
    seq: u64,
    /// The vote in `epoch`.
    vote: Option<usize>,
}

impl Node {
    fn end(&self) -> i64 {
        self.log.last().map_or(0, |batch| batch.last + 1)
    }

    fn durable_end(&self) -> i64 {
        self.log[..self.durable]
            .last()
            .map_or(0, |batch| batch.last + 1)
    }
}

/// A correct cluster in which everything happens one after the other.
struct Cluster {
    nodes: Vec<Node>,
    leader: Option<usize>,
    epoch_start: i64,
    trace: Vec<TraceEvent>,
    time: u64,
    batches: u32,
}

/// How a node is called.
pub(crate) fn name(node: usize) -> String {
    format!("n{}", node + 1)
}

impl Cluster {
    fn new() -> Self {
        let mut cluster = Self {
            nodes: (0..3).map(|_| Node::default()).collect(),
            leader: None,
            epoch_start: 0,
            trace: Vec::new(),
            time: 0,
            batches: 0,
        };
        for node in 0..3 {
            cluster.restart(node);
        }
        cluster
    }

    fn emit(&mut self, node: usize, detail: TraceDetail) {
        self.time += 10;
        let state = &mut self.nodes[node];
        self.trace.push(TraceEvent {
            time: self.time,
            node: name(node),
            incarnation: state.incarnation,
            seq: state.seq,
            epoch: state.epoch,
            detail,
        });
        state.seq += 1;
    }

    /// A power cut and a new start: what was not flushed is gone.
    fn restart(&mut self, node: usize) {
        if self.leader == Some(node) {
            self.leader = None;
        }
        let state = &mut self.nodes[node];
        state.log.truncate(state.durable);
        state.high_watermark = None;
        state.incarnation += 1;
        state.seq = 0;
        let started = TraceDetail::Started {
            role: Role::Unattached,
            log_start: 0,
            log_end: state.end(),
            last_epoch: state.log.last().map_or(0, |batch| batch.epoch),
            voted_for: state.vote.map(name),
            leader: None,
            truncated_bytes: 0,
        };
        self.emit(node, started);
    }

    fn role(&mut self, node: usize, role: Role, leader: Option<usize>) {
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
        let candidate = name(candidate);
        self.emit(voter, TraceDetail::VotePersisted { candidate });
    }

    fn elect(&mut self, candidate: usize, voter: usize) {
        let log = |node: &Node| (node.log.last().map_or(0, |batch| batch.epoch), node.end());
        if log(&self.nodes[candidate]) < log(&self.nodes[voter]) {
            return;
        }
        let epoch = self.nodes.iter().map(|node| node.epoch).max().unwrap_or(0) + 1;
        self.vote(candidate, candidate, epoch);
        self.role(candidate, Role::Candidate, None);
        self.vote(voter, candidate, epoch);
        self.epoch_start = self.nodes[candidate].end();
        self.leader = Some(candidate);
        self.role(candidate, Role::Leader, Some(candidate));
        self.append(candidate, None);
        self.flush(candidate);
        for follower in (0..3).filter(|node| *node != candidate) {
            if self.nodes[follower].epoch < epoch {
                self.nodes[follower].epoch = epoch;
                self.nodes[follower].vote = None;
            }
            let leader = Some(name(candidate));
            self.emit(follower, TraceDetail::EpochAdopted { leader });
            self.role(follower, Role::Follower, Some(candidate));
        }
    }

    /// Appends the given batch, or one that the node makes itself.
    fn append(&mut self, node: usize, batch: Option<Batch>) {
        let base = self.nodes[node].end();
        let batch = batch.unwrap_or_else(|| {
            self.batches += 1;
            Batch {
                base,
                last: base + i64::from(self.batches % 3),
                epoch: self.nodes[node].epoch,
                crc: self.batches,
            }
        });
        self.nodes[node].log.push(batch);
        self.emit(
            node,
            TraceDetail::Append {
                base_offset: batch.base,
                last_offset: batch.last,
                batch_epoch: batch.epoch,
                crc: batch.crc,
            },
        );
    }

    fn flush(&mut self, node: usize) {
        self.nodes[node].durable = self.nodes[node].log.len();
        let log_end = self.nodes[node].end();
        self.emit(node, TraceDetail::Flush { log_end });
    }

    fn replicate(&mut self, leader: usize, follower: usize) {
        let same = self.nodes[leader]
            .log
            .iter()
            .zip(&self.nodes[follower].log)
            .take_while(|(one, other)| one == other)
            .count();
        let node = &mut self.nodes[follower];
        if same < node.log.len() {
            node.log.truncate(same);
            node.durable = node.durable.min(same);
            let log_end = node.end();
            self.emit(follower, TraceDetail::Truncate { log_end });
        }
        let missing = self.nodes[leader].log[same..].to_vec();
        for batch in missing {
            self.append(follower, Some(batch));
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

    fn step(&mut self, random: &mut Random) {
        let node = random.below(3);
        let other = (node + 1 + random.below(2)) % 3;
        match (random.below(12), self.leader) {
            (0, _) | (_, None) => self.elect(node, other),
            (1, _) => self.restart(node),
            (2..=4, Some(leader)) => {
                self.append(leader, None);
                self.flush(leader);
            }
            (_, Some(leader)) if node != leader => {
                self.replicate(leader, node);
                if random.below(4) > 0 {
                    self.flush(node);
                    let mut ends: Vec<i64> = self.nodes.iter().map(Node::durable_end).collect();
                    // The third node's log need not agree with the leader's.
                    ends[3 - leader - node] = 0;
                    ends.sort_unstable();
                    let committed = ends[1];
                    if committed > self.epoch_start {
                        self.expose(leader, committed);
                        self.expose(node, committed);
                    }
                }
            }
            _ => {}
        }
    }
}

/// What the nodes of a correct cluster report; the seed decides what happens to it.
pub(crate) fn correct_trace(seed: u64) -> Vec<TraceEvent> {
    let mut random = Random(seed);
    let mut cluster = Cluster::new();
    for _ in 0..120 {
        cluster.step(&mut random);
    }
    cluster.trace
}
