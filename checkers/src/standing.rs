//! Owns where every node stood at any moment: its role and epoch, and what it was in the middle of.
//! Never judges, and never keeps more of a trace than the moments at which one of these changed.

use std::collections::BTreeMap;

use results::schedule::StartingEvent;
use results::trace::{Message, Role, TraceDetail, TraceEvent};

use crate::epoch_history::nodes::Nodes;
use crate::long_list::LongList;

/// The log has records that are not known to be durable.
pub(crate) const UNFLUSHED: u8 = 1;
/// It was asked for a vote, and has neither written one nor answered.
pub(crate) const VOTE_ASKED: u8 = 1 << 1;
/// It fetches a snapshot of the leader.
pub(crate) const DOWNLOADING: u8 = 1 << 2;
/// Its log holds another set of voters than before that is not known to be committed.
pub(crate) const VOTERS_CHANGE: u8 = 1 << 3;
/// It has started, and does not know again what is committed.
pub(crate) const STARTING: u8 = 1 << 4;
/// It is no voter.
pub(crate) const OBSERVES: u8 = 1 << 5;

/// Where a node stands.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Stand {
    pub(crate) role: Role,
    pub(crate) epoch: i32,
    /// Bits of what it is in the middle of.
    pub(crate) doing: u8,
}

impl Stand {
    pub(crate) fn is(self, bit: u8) -> bool {
        self.doing & bit != 0
    }
}

/// A change of where a node stands. There are two of them for most batches, so they are kept small.
#[derive(Debug, Clone, Copy)]
struct Change {
    time_ns: u64,
    seq: u32,
    incarnation: u32,
    stand: Stand,
}

/// From the start of a node to its end.
#[derive(Debug, Clone, Copy)]
struct Life {
    since_ns: u64,
    /// When it was last heard.
    last_ns: u64,
}

/// Where one node stood over time.
#[derive(Debug, Default)]
pub(crate) struct Standing {
    changes: LongList<Change>,
    lives: Vec<Life>,
    /// When snapshots of its own became durable, in nanoseconds since the run started.
    frozen_ns: Vec<u64>,
    doing: u8,
    log_end: i64,
    durable_end: i64,
    high_watermark: Option<i64>,
    /// The sets of voters in its log with their offsets, the latest last; the first is that before all.
    voters: Vec<(i64, Vec<String>)>,
}

impl Standing {
    fn observe(&mut self, event: &TraceEvent) {
        let role = match &event.detail {
            TraceDetail::RefusedToStart { .. } => return,
            TraceDetail::Started(started) => {
                self.lives.push(Life {
                    since_ns: event.time,
                    last_ns: event.time,
                });
                self.doing = STARTING;
                if started.is_voter == Some(false) {
                    self.doing |= OBSERVES;
                }
                (self.log_end, self.durable_end) = (started.log_end, started.log_end);
                self.high_watermark = None;
                self.voters = vec![(-1, started.voters.clone().unwrap_or_default())];
                Some(started.role)
            }
            TraceDetail::RoleChange { role, .. } => Some(*role),
            _ => None,
        };
        if let Some(life) = self.lives.last_mut() {
            life.last_ns = event.time;
        }
        let before = self.doing;
        self.note(event);
        // Most events are of no consequence, and those of messages almost all.
        let is_message = matches!(
            event.detail,
            TraceDetail::RpcSent { .. } | TraceDetail::RpcReceived { .. }
        );
        if is_message && self.doing == before {
            return;
        }
        let previous = self.changes.last().map(|change| change.stand);
        let Some(role) = role.or(previous.map(|stand| stand.role)) else {
            // Nobody knows what came before the first start.
            return;
        };
        // What is said about a message carries the epoch at the end of the step that it belongs to.
        let says_epoch = !matches!(
            event.detail,
            TraceDetail::RpcSent { .. } | TraceDetail::RpcReceived { .. } | TraceDetail::Unknown
        );
        let epoch = previous.map_or(event.epoch, |stand| stand.epoch);
        let stand = Stand {
            role,
            epoch: if says_epoch { event.epoch } else { epoch },
            doing: self.doing,
        };
        if previous != Some(stand) || matches!(event.detail, TraceDetail::Started(_)) {
            self.changes.push(Change {
                time_ns: event.time,
                seq: u32::try_from(event.seq).unwrap_or(u32::MAX),
                incarnation: event.incarnation,
                stand,
            });
        }
    }

    /// What an event says of what the node is in the middle of.
    fn note(&mut self, event: &TraceEvent) {
        match &event.detail {
            TraceDetail::Append { last_offset, .. } => self.log_end = last_offset + 1,
            TraceDetail::Flush { log_end } => self.durable_end = *log_end,
            TraceDetail::Truncate { log_end } => {
                self.log_end = *log_end;
                self.durable_end = self.durable_end.min(*log_end);
                self.voters.retain(|(offset, _)| offset < log_end);
                self.voters_changed(&event.node);
            }
            TraceDetail::SnapshotInstalled {
                end_offset, voters, ..
            } => {
                (self.log_end, self.durable_end) = (*end_offset, *end_offset);
                self.set(DOWNLOADING, false);
                if let Some(voters) = voters {
                    self.voters = vec![(-1, voters.clone())];
                    self.voters_changed(&event.node);
                }
            }
            TraceDetail::VotersAppended { offset, voters, .. } => {
                self.voters.push((*offset, voters.clone()));
                self.voters_changed(&event.node);
            }
            TraceDetail::HighWatermark { high_watermark, .. } => {
                self.high_watermark = Some(*high_watermark);
                self.set(STARTING, false);
                self.set(VOTERS_CHANGE, self.is_voter_change_open());
            }
            TraceDetail::VotePersisted { .. } => self.set(VOTE_ASKED, false),
            TraceDetail::RoleChange { role, .. } => {
                self.set(DOWNLOADING, false);
                if matches!(role, Role::Leader | Role::Follower) {
                    self.set(VOTE_ASKED, false);
                }
            }
            TraceDetail::SnapshotFrozen { .. } => self.frozen_ns.push(event.time),
            TraceDetail::RpcReceived { message, .. } => self.received(message),
            TraceDetail::RpcSent { message, .. } => self.sent(message),
            _ => {}
        }
        self.set(UNFLUSHED, self.log_end > self.durable_end);
    }

    fn received(&mut self, message: &Message) {
        if message.rpc == "vote" && !message.is_response {
            self.set(VOTE_ASKED, true);
        }
    }

    fn sent(&mut self, message: &Message) {
        match (&*message.rpc, message.is_response) {
            ("vote", true) => self.set(VOTE_ASKED, false),
            ("fetch-snapshot", false) => self.set(DOWNLOADING, true),
            ("fetch", false) => self.set(DOWNLOADING, false),
            _ => {}
        }
    }

    fn set(&mut self, bit: u8, on: bool) {
        self.doing = if on {
            self.doing | bit
        } else {
            self.doing & !bit
        };
    }

    fn voters_changed(&mut self, node: &str) {
        if let Some((_, voters)) = self.voters.last()
            && !voters.is_empty()
        {
            let observes = !voters.iter().any(|voter| voter == node);
            self.set(OBSERVES, observes);
        }
        self.set(VOTERS_CHANGE, self.is_voter_change_open());
    }

    /// Whether the last set of voters is another one than that before, and not known to be committed. The
    /// first that is ever written changes nothing.
    fn is_voter_change_open(&self) -> bool {
        let [.., (_, before), (offset, last)] = self.voters.as_slice() else {
            return false;
        };
        let is_committed = self.high_watermark.is_some_and(|mark| mark > *offset);
        !is_committed && !before.is_empty() && before != last
    }

    /// Where it stood at a moment, whether it still ran or not; `None` before it was first heard.
    fn at(&self, time_ns: u64) -> Option<Stand> {
        let count = self
            .changes
            .partition_point(|change| change.time_ns <= time_ns);
        Some(self.changes.get(count.checked_sub(1)?)?.stand)
    }

    /// Where it stood when it had said everything up to this event, that event included or not.
    fn at_event(&self, event: &StartingEvent, is_included: bool) -> Option<Stand> {
        let limit = (event.incarnation, event.seq + u64::from(is_included));
        let count = self
            .changes
            .partition_point(|change| (change.incarnation, u64::from(change.seq)) < limit);
        Some(self.changes.get(count.checked_sub(1)?)?.stand)
    }

    /// The last start up to a moment.
    fn life(&self, time_ns: u64) -> Option<Life> {
        let count = self.lives.partition_point(|life| life.since_ns <= time_ns);
        self.lives.get(count.checked_sub(1)?).copied()
    }

    /// The first moment from `from_ns` on at which a snapshot of its own was durable.
    pub(crate) fn next_frozen_ns(&self, from_ns: u64) -> Option<u64> {
        let count = self.frozen_ns.partition_point(|time| *time < from_ns);
        self.frozen_ns.get(count).copied()
    }

    /// Every change of role or epoch: when, and what it was from then on.
    pub(crate) fn turns(&self) -> impl Iterator<Item = (u64, Stand)> {
        let mut last = None;
        self.changes.iter().filter_map(move |change| {
            let turn = (change.stand.role, change.stand.epoch, change.incarnation);
            let is_new = last != Some(turn);
            last = Some(turn);
            is_new.then_some((change.time_ns, change.stand))
        })
    }
}

/// Where all nodes stood over time.
#[derive(Debug, Default)]
pub struct Standings {
    nodes: Nodes<Standing>,
}

impl Standings {
    /// Takes the next event; those of a node come in the order in which it said them.
    pub fn observe(&mut self, event: &TraceEvent) {
        self.nodes
            .enter(&event.node, Standing::default)
            .observe(event);
    }

    /// Of a whole trace.
    pub fn of(trace: &[TraceEvent]) -> Self {
        let mut standings = Self::default();
        for event in trace {
            standings.observe(event);
        }
        standings
    }

    /// The nodes by name.
    pub(crate) fn by_name(&self) -> BTreeMap<&str, &Standing> {
        self.nodes.iter().collect()
    }
}

/// Where nodes stood, with what is known of when they were down.
#[derive(Debug)]
pub(crate) struct Ground<'a> {
    pub(crate) nodes: BTreeMap<&'a str, &'a Standing>,
    /// By node: when it was ended, by a fault or by itself, ascending.
    ends_ns: BTreeMap<String, Vec<u64>>,
}

impl<'a> Ground<'a> {
    /// `ends` says when nodes were ended, whatever started them again.
    pub(crate) fn new(
        standings: &'a Standings,
        ends: impl IntoIterator<Item = (String, u64)>,
    ) -> Self {
        let mut ends_ns: BTreeMap<String, Vec<u64>> = BTreeMap::new();
        for (node, time_ns) in ends {
            ends_ns.entry(node).or_default().push(time_ns);
        }
        for times in ends_ns.values_mut() {
            times.sort_unstable();
        }
        Self {
            nodes: standings.by_name(),
            ends_ns,
        }
    }

    /// Whether the node was down: ended since its last start and before this moment, and silent since.
    pub(crate) fn is_down(&self, node: &str, time_ns: u64) -> bool {
        let Some(life) = self.nodes.get(node).and_then(|it| it.life(time_ns)) else {
            return true;
        };
        let ends = self.ends_ns.get(node).map_or(&[][..], Vec::as_slice);
        let was_ended = ends
            .iter()
            .any(|end| *end >= life.since_ns && *end < time_ns);
        was_ended && life.last_ns < time_ns
    }

    /// Where a running node stood; `None` if it was down.
    pub(crate) fn at(&self, node: &str, time_ns: u64) -> Option<Stand> {
        if self.is_down(node, time_ns) {
            return None;
        }
        self.nodes.get(node)?.at(time_ns)
    }

    /// Where the node of an event stood around it.
    pub(crate) fn at_event(&self, event: &StartingEvent, is_included: bool) -> Option<Stand> {
        self.nodes
            .get(event.node.as_str())?
            .at_event(event, is_included)
    }

    /// Every moment at which a node may have come to stand otherwise.
    pub(crate) fn moments_ns(&self) -> impl Iterator<Item = u64> {
        let turns = self.nodes.values().flat_map(|standing| standing.turns());
        // Whoever was ended is down from the next moment on.
        let ends = self.ends_ns.values().flatten().map(|time| time + 1);
        turns.map(|(time, _)| time).chain(ends)
    }

    /// Whoever leads the newest epoch that any running node knows of.
    pub(crate) fn leader(&self, time_ns: u64) -> Option<Stand> {
        let running = self.nodes.keys().filter_map(|node| self.at(node, time_ns));
        let running: Vec<Stand> = running.collect();
        let newest = running.iter().map(|stand| stand.epoch).max()?;
        let mut leads = running.into_iter();
        leads.find(|stand| stand.epoch == newest && stand.role == Role::Leader)
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn event(time: u64, incarnation: u32, seq: u64, epoch: i32, rest: Value) -> TraceEvent {
        let mut value = json!({"time": time, "node": "n1", "incarnation": incarnation, "seq": seq, "epoch": epoch});
        if let (Some(whole), Value::Object(rest)) = (value.as_object_mut(), rest) {
            whole.extend(rest);
        }
        serde_json::from_value(value).unwrap()
    }

    fn started(role: &str, is_voter: bool) -> Value {
        json!({"event": "started", "role": role, "log_start": 0, "log_end": 4, "last_epoch": 1,
               "voters": ["n1", "n2"], "is_voter": is_voter})
    }

    fn append(last_offset: i64) -> Value {
        json!({"event": "append", "base_offset": 4, "last_offset": last_offset, "batch_epoch": 1, "crc": 1})
    }

    #[test]
    fn a_node_is_in_the_middle_of_what_it_has_not_finished() {
        let standings = Standings::of(&[
            event(10, 1, 0, 1, started("follower", true)),
            event(20, 1, 1, 1, append(5)),
            event(30, 1, 2, 1, json!({"event": "flush", "log_end": 6})),
            event(
                40,
                1,
                3,
                1,
                json!({"event": "high-watermark", "high_watermark": 5, "log_end": 6}),
            ),
            event(
                50,
                1,
                4,
                1,
                json!({"event": "voters-appended", "offset": 6, "voters": ["n2"], "kraft_version": 1}),
            ),
            event(
                60,
                1,
                5,
                1,
                json!({"event": "high-watermark", "high_watermark": 7, "log_end": 7}),
            ),
        ]);
        let ground = Ground::new(&standings, []);
        let doing = |time| ground.at("n1", time).map(|stand| stand.doing);
        assert_eq!(doing(9), None, "it had not started");
        assert_eq!(doing(10), Some(STARTING));
        assert_eq!(doing(25), Some(STARTING | UNFLUSHED));
        assert_eq!(doing(30), Some(STARTING));
        assert_eq!(doing(45), Some(0));
        assert_eq!(doing(55), Some(OBSERVES | VOTERS_CHANGE));
        assert_eq!(doing(60), Some(OBSERVES));
    }

    #[test]
    fn votes_and_downloads_are_open_from_question_to_answer() {
        let rpc = |event: &str, peer: &str, rpc: &str, is_response: bool| json!({"event": event, peer: "n2", "rpc": rpc, "is_response": is_response});
        let standings = Standings::of(&[
            event(10, 1, 0, 1, started("follower", true)),
            event(11, 1, 1, 1, rpc("rpc-received", "from", "vote", false)),
            event(
                12,
                1,
                2,
                2,
                json!({"event": "vote-persisted", "candidate": "n2"}),
            ),
            event(13, 1, 3, 2, rpc("rpc-sent", "to", "fetch-snapshot", false)),
            event(
                14,
                1,
                4,
                2,
                json!({"event": "snapshot-installed", "end_offset": 9, "last_epoch": 1, "digest": "00"}),
            ),
            event(15, 1, 5, 2, rpc("rpc-received", "from", "vote", false)),
            event(16, 1, 6, 2, rpc("rpc-sent", "to", "vote", true)),
        ]);
        let ground = Ground::new(&standings, []);
        let doing = |time| ground.at("n1", time).map(|stand| stand.doing & !STARTING);
        assert_eq!(
            [11, 12, 13, 14, 15, 16].map(doing),
            [VOTE_ASKED, 0, DOWNLOADING, 0, VOTE_ASKED, 0].map(Some)
        );
    }

    #[test]
    fn who_was_ended_is_down_until_its_next_start_and_leads_nobody() {
        let leads = json!({"event": "role-change", "role": "leader"});
        let standings = Standings::of(&[
            event(10, 1, 0, 1, started("unattached", true)),
            event(20, 1, 1, 1, leads),
            event(50, 2, 0, 1, started("resigned", true)),
        ]);
        let ground = Ground::new(&standings, [("n1".to_owned(), 30)]);
        let down = [15, 30, 31, 49, 50].map(|time| ground.is_down("n1", time));
        assert_eq!(down, [false, false, true, true, false]);
        assert!(ground.leader(25).is_some() && ground.leader(35).is_none());
        let around = |is_included| {
            let event = StartingEvent {
                node: "n1".into(),
                incarnation: 1,
                seq: 1,
                time_ns: 20,
            };
            ground.at_event(&event, is_included).map(|stand| stand.role)
        };
        assert_eq!(around(false), Some(Role::Unattached));
        assert_eq!(around(true), Some(Role::Leader));
        assert_eq!(ground.nodes["n1"].turns().count(), 3);
    }
}
