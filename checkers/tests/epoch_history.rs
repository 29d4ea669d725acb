//! Owns the test of the epoch-history checker: a tiny correct cluster, and one mutation per property.
//! Never lets a mutation pass unseen, nor a correct trace be blamed.

use checkers::epoch_history::check;
use results::history::Operation;
use results::trace::{Role, TraceDetail, TraceEvent};
use results::verdict::{CheckerResult, Validity};
use serde_json::json;

const PROPERTIES: [&str; 8] = ["I1", "I2", "I3", "I5", "I6", "K2", "K3", "K6"];

/// A small deterministic generator (SplitMix64).
struct Random(u64);

impl Random {
    fn below(&mut self, bound: u64) -> usize {
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

fn name(node: usize) -> String {
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

fn correct_trace(seed: u64) -> Vec<TraceEvent> {
    let mut random = Random(seed);
    let mut cluster = Cluster::new();
    for _ in 0..120 {
        cluster.step(&mut random);
    }
    cluster.trace
}

fn judge(trace: &[TraceEvent]) -> CheckerResult {
    check(trace, &[], 3)
}

/// Numbers the events of every incarnation anew after some were added or removed.
fn renumber(trace: &mut [TraceEvent]) {
    let mut next = std::collections::BTreeMap::new();
    for event in trace {
        let seq = next
            .entry((event.node.clone(), event.incarnation))
            .or_insert(0);
        event.seq = *seq;
        *seq += 1;
    }
}

/// Applies a mutation to traces of many seeds until it finds a place often enough, and expects the
/// property to be violated every time.
fn must_flag(property: &str, mutate: impl Fn(&mut Vec<TraceEvent>) -> bool) {
    let mut flagged = 0;
    for seed in 0..150 {
        let mut trace = correct_trace(seed);
        if !mutate(&mut trace) {
            continue;
        }
        renumber(&mut trace);
        let result = judge(&trace);
        let found = &result.properties[property];
        assert_eq!(found.valid, Validity::Invalid, "seed {seed}: {found:?}");
        assert_eq!(result.valid, Validity::Invalid);
        assert!(!found.summary.is_empty() && !found.evidence["event"].is_null());
        flagged += 1;
    }
    assert!(
        flagged >= 20,
        "the mutation applied to {flagged} traces only"
    );
}

fn last(trace: &[TraceEvent], wanted: impl Fn(&TraceEvent) -> bool) -> Option<usize> {
    trace.iter().rposition(wanted)
}

#[test]
fn correct_traces_are_never_blamed_and_exercise_everything() {
    let mut exercised = [0_u64; PROPERTIES.len()];
    for seed in 0..300 {
        let result = judge(&correct_trace(seed));
        assert_ne!(
            result.valid,
            Validity::Invalid,
            "seed {seed}: {}",
            result.summary
        );
        for (count, property) in exercised.iter_mut().zip(PROPERTIES) {
            *count += result.properties[property].checked;
        }
    }
    assert!(
        exercised.iter().all(|count| *count > 300),
        "{PROPERTIES:?}: {exercised:?}"
    );
}

#[test]
fn two_leaders_in_one_epoch_are_flagged() {
    must_flag("I1", |trace| {
        let adopted = |event: &TraceEvent| matches!(event.detail, TraceDetail::EpochAdopted { .. });
        let Some(place) = last(trace, adopted) else {
            return false;
        };
        let TraceDetail::EpochAdopted { leader } = &mut trace[place].detail else {
            return false;
        };
        *leader = Some("n9".into());
        true
    });
}

#[test]
fn a_success_served_by_another_than_the_leader_is_flagged() {
    let trace = correct_trace(1);
    let epoch = trace.iter().map(|event| event.epoch).max().unwrap();
    let operation: Operation = serde_json::from_value(json!({
        "index": 7, "time": 9, "process": 3, "type": "ok", "f": "read", "key": "1",
        "value": 1, "node": "n9", "epoch": epoch,
    }))
    .unwrap();
    let result = check(&trace, &[operation], 3);
    let property = &result.properties["I1"];
    assert_eq!(property.valid, Validity::Invalid);
    assert!(property.summary.contains("process 3"), "{property:?}");
}

#[test]
fn a_leader_without_committed_data_is_flagged() {
    must_flag("I2", |trace| {
        let exposes =
            |event: &TraceEvent| matches!(event.detail, TraceDetail::HighWatermark { .. });
        if last(trace, exposes).is_none() {
            return false;
        }
        let mut event = trace.last().unwrap().clone();
        event.incarnation += 1;
        event.time += 1;
        event.detail = TraceDetail::Started {
            role: Role::Unattached,
            log_start: 0,
            log_end: 0,
            last_epoch: 0,
            voted_for: None,
            leader: None,
            truncated_bytes: 0,
        };
        event.epoch += 1;
        trace.push(event.clone());
        event.time += 1;
        event.detail = TraceDetail::RoleChange {
            role: Role::Leader,
            leader: None,
            epoch_start_offset: Some(0),
            reason: None,
        };
        trace.push(event);
        true
    });
}

#[test]
fn different_content_at_the_same_offset_and_epoch_is_flagged() {
    let of_follower = |trace: &[TraceEvent]| {
        last(trace, |event| match event.detail {
            TraceDetail::Append { crc, .. } => {
                // A copy of what another node had appended before.
                trace.iter().any(|other| {
                    other.node != event.node
                        && other.time < event.time
                        && matches!(other.detail, TraceDetail::Append { crc: same, .. } if same == crc)
                })
            }
            _ => false,
        })
    };
    must_flag("I3", |trace| {
        let Some(place) = of_follower(trace) else {
            return false;
        };
        if let TraceDetail::Append { crc, .. } = &mut trace[place].detail {
            *crc += 1_000_000;
        }
        true
    });
    must_flag("I3", |trace| {
        let Some(place) = of_follower(trace) else {
            return false;
        };
        if let TraceDetail::Append { last_offset, .. } = &mut trace[place].detail {
            *last_offset += 1;
        }
        true
    });
}

#[test]
fn an_epoch_that_goes_back_is_flagged() {
    must_flag("I5", |trace| {
        let event = trace.last_mut().unwrap();
        event.epoch -= 1;
        event.epoch >= 1
    });
}

#[test]
fn a_commit_without_a_majority_on_disk_is_flagged() {
    must_flag("I6", |trace| {
        let leaders: Vec<(String, i32)> = trace
            .iter()
            .filter(|event| {
                matches!(
                    event.detail,
                    TraceDetail::RoleChange {
                        role: Role::Leader,
                        ..
                    }
                )
            })
            .map(|event| (event.node.clone(), event.epoch))
            .collect();
        let Some((first, epoch)) = leaders.first().cloned() else {
            return false;
        };
        // Only the leader of the first epoch flushes; it must have committed something.
        let until = trace
            .iter()
            .position(|event| event.epoch > epoch)
            .unwrap_or(trace.len());
        trace.truncate(until);
        let restarts = |event: &TraceEvent| event.incarnation > 1;
        let commits = last(trace, |event| {
            event.node == first && matches!(event.detail, TraceDetail::HighWatermark { .. })
        });
        if commits.is_none() || trace.iter().any(restarts) {
            return false;
        }
        trace.retain(|event| {
            event.node == first || !matches!(event.detail, TraceDetail::Flush { .. })
        });
        go_on_talking(trace);
        true
    });
}

/// Adds an event of every node at the end: nobody's trace is cut.
fn go_on_talking(trace: &mut Vec<TraceEvent>) {
    let Some(end) = trace.last().cloned() else {
        return;
    };
    for node in 0..3 {
        let mut event = end.clone();
        event.time += 1;
        event.node = name(node);
        event.detail = TraceDetail::EpochAdopted { leader: None };
        trace.push(event);
    }
}

#[test]
fn a_commit_after_the_other_traces_end_is_neither_a_pass_nor_a_blame() {
    let mut unknown = 0;
    for seed in 0..150 {
        let mut trace = correct_trace(seed);
        let Some(commit) = last(&trace, |event| {
            matches!(event.detail, TraceDetail::HighWatermark { .. })
        }) else {
            continue;
        };
        let leader = trace[commit].node.clone();
        let half = trace.len() / 2;
        let mut position = 0;
        trace.retain(|event| {
            position += 1;
            position <= half || event.node == leader
        });
        let result = judge(&trace);
        assert_ne!(
            result.valid,
            Validity::Invalid,
            "seed {seed}: {}",
            result.summary
        );
        unknown += usize::from(result.valid == Validity::Unknown);
    }
    assert!(unknown >= 20, "only {unknown} traces were doubtful");
}

#[test]
fn a_node_that_serves_after_its_trace_ends_has_lost_evidence() {
    let trace = correct_trace(3);
    let end = trace
        .iter()
        .filter(|event| event.node == "n1")
        .map(|event| event.time)
        .max();
    let lines = |sent: u64| -> Vec<Operation> {
        [("invoke", sent), ("ok", sent + 1)]
            .iter()
            .zip(0u64..)
            .map(|((kind, time), index)| {
                serde_json::from_value(json!({
                    "index": index, "time": time, "process": 0, "type": kind, "f": "write",
                    "key": "1", "value": 1, "node": "n1"
                }))
                .unwrap()
            })
            .collect()
    };
    let late = check(&trace, &lines(end.unwrap() + 1), 3);
    assert_eq!(late.valid, Validity::Unknown, "{}", late.summary);
    assert!(
        late.summary.contains("the trace of n1 ends"),
        "{}",
        late.summary
    );
    let before = check(&trace, &lines(end.unwrap() - 1), 3);
    assert!(
        !before.summary.contains("the trace of n1 ends"),
        "{}",
        before.summary
    );
}

#[test]
fn a_commit_at_the_start_of_the_epoch_is_flagged() {
    must_flag("I6", |trace| {
        let Some(commit) = last(trace, |event| {
            matches!(event.detail, TraceDetail::HighWatermark { .. })
        }) else {
            return false;
        };
        let epoch = trace[commit].epoch;
        let TraceDetail::HighWatermark { high_watermark, .. } = trace[commit].detail else {
            return false;
        };
        for event in trace.iter_mut().filter(|event| event.epoch == epoch) {
            if let TraceDetail::RoleChange {
                role: Role::Leader,
                epoch_start_offset,
                ..
            } = &mut event.detail
            {
                *epoch_start_offset = Some(high_watermark);
                return true;
            }
        }
        false
    });
}

fn add_after_commit(trace: &mut Vec<TraceEvent>, detail: impl Fn(i64) -> TraceDetail) -> bool {
    let Some(place) = last(trace, |event| {
        matches!(event.detail, TraceDetail::HighWatermark { high_watermark, .. }
            if high_watermark > 1)
    }) else {
        return false;
    };
    let mut event = trace[place].clone();
    if let TraceDetail::HighWatermark { high_watermark, .. } = event.detail {
        event.detail = detail(high_watermark);
    }
    trace.insert(place + 1, event);
    true
}

#[test]
fn committed_data_that_retracts_is_flagged() {
    must_flag("K2", |trace| {
        add_after_commit(trace, |committed| TraceDetail::HighWatermark {
            high_watermark: committed - 1,
            log_end: committed,
        })
    });
    must_flag("K2", |trace| {
        add_after_commit(trace, |committed| TraceDetail::Truncate {
            log_end: committed - 1,
        })
    });
}

#[test]
fn a_high_watermark_beyond_the_log_is_flagged() {
    must_flag("K3", |trace| {
        add_after_commit(trace, |committed| TraceDetail::HighWatermark {
            high_watermark: committed + 1,
            log_end: committed,
        })
    });
}

#[test]
fn a_second_vote_in_an_epoch_is_flagged() {
    must_flag("K6", |trace| {
        let votes = |event: &TraceEvent| matches!(event.detail, TraceDetail::VotePersisted { .. });
        let Some(place) = last(trace, votes) else {
            return false;
        };
        let mut event = trace[place].clone();
        event.detail = TraceDetail::VotePersisted {
            candidate: "n9".into(),
        };
        trace.insert(place + 1, event);
        true
    });
}

#[test]
fn a_vote_forgotten_by_a_restart_is_flagged() {
    must_flag("K6", |trace| {
        let Some(place) = last(trace, |event| {
            matches!(
                &event.detail,
                TraceDetail::Started {
                    voted_for: Some(_),
                    ..
                }
            )
        }) else {
            return false;
        };
        if let TraceDetail::Started { voted_for, .. } = &mut trace[place].detail {
            *voted_for = None;
        }
        true
    });
}

#[test]
fn lost_events_leave_every_property_unknown_but_blame_nobody() {
    let mut seen = 0;
    for seed in 0..100 {
        let mut trace = correct_trace(seed);
        let place = Random(seed).below(trace.len() as u64 - 1);
        let removed = trace.remove(place);
        let later = |event: &TraceEvent| {
            event.node == removed.node && event.incarnation == removed.incarnation
        };
        if !trace[place..].iter().any(later) {
            continue; // The end of a trace may be missing: the node was killed.
        }
        seen += 1;
        let result = judge(&trace);
        assert_eq!(
            result.valid,
            Validity::Unknown,
            "seed {seed}: {}",
            result.summary
        );
        for property in result.properties.values() {
            assert_eq!(property.valid, Validity::Unknown);
        }
        let missing = format!("event {} of {}", removed.seq, removed.node);
        assert!(result.summary.contains(&missing), "{}", result.summary);
    }
    assert!(seen > 50, "{seen}");
}

#[test]
fn without_a_trace_nothing_is_known() {
    let result = judge(&[]);
    assert_eq!(result.valid, Validity::Unknown);
    assert!(result.summary.contains("no node left a trace"));
    let mut trace = correct_trace(1);
    trace.retain(|event| event.node != "n3");
    let result = judge(&trace);
    assert_eq!(result.valid, Validity::Unknown, "{}", result.summary);
    assert!(result.summary.contains("only 2 of 3 nodes"));
}

#[test]
fn a_flush_at_the_very_time_of_the_commit_counts() {
    let mut trace = correct_trace(2);
    // All nodes speak in lock-step: every time is shared by many events of different nodes.
    for event in &mut trace {
        event.time /= 100;
    }
    let in_order = judge(&trace);
    assert_ne!(in_order.valid, Validity::Invalid, "{}", in_order.summary);
    // Sorted by name within a time, as reading node by node would leave them.
    trace.sort_by(|one, other| (one.time, &one.node).cmp(&(other.time, &other.node)));
    let majority = &judge(&trace).properties["I6"];
    assert_ne!(majority.valid, Validity::Invalid, "{}", majority.summary);
}
