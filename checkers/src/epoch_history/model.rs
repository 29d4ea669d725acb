//! Owns what the trace tells about every node up to some event: log, disk, commits, voters, snapshots.
//! Never judges: what looks wrong is taken over as it was told.

use std::collections::{BTreeMap, BTreeSet};
use std::rc::Rc;

use results::shared_text::SharedText;
use results::trace::{Role, Started, TraceDetail, TraceEvent};

use super::committed::{Committed, CommittedBatch, CommittedVoters, Comparison};
use super::log::{Batch, Identity, Log};
use super::nodes::Nodes;
use super::voter_history::{VoterEntry, VoterHistory, VoterSet, voter_set};
use crate::incarnations::is_another;

/// What is known about the epoch that a node leads.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Leadership {
    pub(super) epoch: i32,
    /// Its log end at election, where the trace tells.
    pub(super) start: Option<i64>,
    /// Its high watermark, once it has one as leader of this epoch.
    pub(super) high_watermark: Option<i64>,
}

/// What the trace tells about one node.
#[derive(Debug, Default)]
pub(super) struct Node {
    pub(super) log: Log,
    /// Everything below is on disk.
    pub(super) durable_end: i64,
    /// Known high watermark of the present incarnation, with the event that reported it.
    pub(super) high_watermark: Option<(i64, Rc<TraceEvent>)>,
    pub(super) leads: Option<Leadership>,
    pub(super) voters: VoterHistory,
    /// Whether its last start found it to be no voter, and no other voters came since.
    told_observer: bool,
    /// Epoch of every snapshot that it has, by end offset.
    pub(super) snapshots: BTreeMap<i64, i32>,
    /// Its votes on disk, by epoch.
    pub(super) votes: BTreeMap<i32, String>,
    pub(super) directory: Option<String>,
    /// Everything below was on a disk that it does not have any more. A leader may have heard of that, and does
    /// not hear of the loss.
    pub(super) wiped_end: i64,
    /// Events are missing, so that nothing can be held against it that depends on them.
    pub(super) lost: bool,
    /// Whether it reports messages; known once it reported one in the present incarnation.
    pub(super) reports_messages: bool,
    has_started: bool,
    /// Below this offset its log was compared with what is committed.
    compared_below: i64,
}

impl Node {
    /// Known high watermark of the present incarnation.
    pub(super) fn known_high_watermark(&self) -> Option<i64> {
        self.high_watermark.as_ref().map(|(offset, _)| *offset)
    }

    /// Everything below is committed, as far as the node has said: by its high watermark, and by its
    /// snapshots.
    pub(super) fn committed_end(&self) -> i64 {
        let snapshot = self.snapshots.keys().next_back().copied().unwrap_or(0);
        let high_watermark = self.known_high_watermark().unwrap_or(0);
        high_watermark.max(snapshot).max(self.log.start())
    }

    /// Whether it goes by voters that it is not one of.
    pub(super) fn is_observer(&self, name: &str) -> bool {
        let outside = |voters: &VoterSet| !voters.contains(name);
        self.told_observer || self.voters.latest().is_some_and(outside)
    }
}

/// A record with voters that a node reports as committed.
#[derive(Debug)]
pub(super) struct ReportedVoters {
    pub(super) entry: VoterEntry,
    /// The voters before it, in the log of the same node.
    pub(super) before: Option<VoterSet>,
    pub(super) comparison: Comparison<CommittedVoters>,
}

/// How what an event reports as committed compares with what was reported before.
#[derive(Debug, Default)]
pub(super) struct Outcome {
    /// Batches that had been reported before.
    pub(super) compared_count: u64,
    /// Lowest offset that had not.
    pub(super) new_from: Option<i64>,
    /// Batches that are not those reported before.
    pub(super) conflicts: Vec<(Batch, CommittedBatch)>,
    pub(super) voters: Vec<ReportedVoters>,
}

/// What the trace tells up to some event.
#[derive(Debug)]
pub(super) struct Model {
    pub(super) nodes: Nodes<Node>,
    pub(super) committed: Committed,
    /// When each node reported its last event: what it did afterwards nobody knows.
    pub(super) ends: BTreeMap<String, u64>,
    /// The voters where nodes do not tell.
    configured: VoterSet,
    /// Whether voters are in the log anywhere.
    has_voter_records: bool,
}

impl Model {
    /// Before the first event. `configured` are the voters where nodes do not tell.
    pub(super) fn new(
        ends: BTreeMap<String, u64>,
        configured: BTreeSet<String>,
        has_voter_records: bool,
    ) -> Self {
        Self {
            nodes: Nodes::default(),
            committed: Committed::default(),
            ends,
            configured: Rc::new(configured),
            has_voter_records,
        }
    }

    /// The node speaks; from now on it is one of `nodes`.
    pub(super) fn enter(&mut self, name: &SharedText) {
        let configured = &self.configured;
        self.nodes.enter(name, || {
            let mut node = Node::default();
            node.voters.configure(configured.clone());
            node
        });
    }

    /// Events of the node are missing just before the next one.
    pub(super) fn lose(&mut self, name: &SharedText) {
        self.enter(name);
        let forget_voters = self.has_voter_records;
        if let Some(node) = self.nodes.get_mut(name) {
            node.log.forget();
            node.high_watermark = None;
            node.leads = None;
            node.lost = true;
            if forget_voters {
                node.voters.forget();
            }
        }
    }

    /// The node that an event is about.
    ///
    /// # Panics
    /// If it was not entered. Every node that speaks was.
    pub(super) fn node(&self, event: &TraceEvent) -> &Node {
        self.nodes
            .get(&event.node)
            .expect("a node that speaks was entered")
    }

    /// Where the event cuts back the log of its node, if it does. To write over what is there, or to
    /// put a snapshot in its place, is to cut as well.
    pub(super) fn cut_by(&self, event: &TraceEvent) -> Option<i64> {
        let end = match event.detail {
            TraceDetail::Truncate { log_end } => return Some(log_end),
            TraceDetail::Append { base_offset, .. } => base_offset,
            TraceDetail::SnapshotInstalled { end_offset, .. } => end_offset,
            _ => return None,
        };
        (end < self.node(event).log.end()).then_some(end)
    }

    /// Takes the event over.
    pub(super) fn apply(&mut self, event: &Rc<TraceEvent>) -> Outcome {
        let cut = self.cut_by(event);
        let Some(node) = self.nodes.get_mut(&event.node) else {
            return Outcome::default();
        };
        if let Some(end) = cut {
            node.cut(end);
        }
        match &event.detail {
            TraceDetail::Started(started) => node.start(event, started, &self.configured),
            TraceDetail::RoleChange {
                role,
                epoch_start_offset,
                ..
            } => node.set_role(event.epoch, *role, *epoch_start_offset),
            TraceDetail::VotePersisted { candidate } => {
                node.leave_epoch(event.epoch);
                node.votes.insert(event.epoch, candidate.clone());
            }
            TraceDetail::EpochAdopted { .. } => node.leave_epoch(event.epoch),
            TraceDetail::Append {
                base_offset,
                last_offset,
                batch_epoch,
                crc,
            } => node.log.append(Batch {
                base_offset: *base_offset,
                last_offset: *last_offset,
                identity: Some(Identity {
                    epoch: *batch_epoch,
                    crc: *crc,
                }),
            }),
            TraceDetail::VotersAppended { offset, voters, .. } => {
                node.told_observer = false;
                node.voters.append(VoterEntry {
                    offset: *offset,
                    voters: voter_set(voters),
                    event: event.clone(),
                });
            }
            TraceDetail::Flush { log_end } => {
                node.log.extend_unknown(*log_end);
                node.durable_end = *log_end;
            }
            TraceDetail::HighWatermark { high_watermark, .. } => {
                return node.commit(event, *high_watermark, &mut self.committed);
            }
            TraceDetail::SnapshotFrozen {
                end_offset,
                last_epoch,
                ..
            } => {
                node.snapshots.insert(*end_offset, *last_epoch);
            }
            TraceDetail::SnapshotInstalled {
                end_offset,
                last_epoch,
                voters,
                ..
            } => node.install(*end_offset, *last_epoch, voters.as_deref()),
            TraceDetail::LogStartAdvanced { log_start } => node.log.advance_start(*log_start),
            TraceDetail::RpcSent { .. } | TraceDetail::RpcReceived { .. } => {
                node.reports_messages = true;
            }
            TraceDetail::Truncate { .. }
            | TraceDetail::ReadServed { .. }
            | TraceDetail::RefusedToStart { .. }
            | TraceDetail::Unknown => {}
        }
        Outcome::default()
    }
}

impl Node {
    /// A restart forgets the high watermark and may have lost what was not on disk. With another
    /// directory it is another replica, of which nothing is known.
    fn start(&mut self, event: &Rc<TraceEvent>, started: &Started, configured: &VoterSet) {
        let directory = started.directory_id.as_deref();
        if !self.has_started || is_another(self.directory.as_deref(), directory) {
            let lost = self.lost;
            let wiped_end = self.wiped_end.max(self.durable_end);
            *self = Self {
                lost,
                wiped_end,
                ..Self::default()
            };
            self.voters.configure(configured.clone());
        }
        self.has_started = true;
        self.directory = started.directory_id.clone().or(self.directory.take());
        self.high_watermark = None;
        self.reports_messages = false;
        self.leads = None;
        self.set_role(event.epoch, started.role, None);
        if let Some(candidate) = &started.voted_for {
            self.votes.insert(event.epoch, candidate.clone());
        }
        self.recover_log(started);
        if let Some(snapshots) = &started.snapshots {
            let snapshots = snapshots.iter();
            self.snapshots = snapshots
                .map(|snapshot| (snapshot.end_offset, snapshot.last_epoch))
                .collect();
        }
        self.told_observer = started.is_voter == Some(false);
        if let Some(told) = started.voters.as_deref().map(voter_set) {
            match started.kraft_version {
                Some(1..) => self.voters.recover(told, started.log_end),
                _ => self.voters.configure(told),
            }
        }
    }

    fn recover_log(&mut self, started: &Started) {
        let (log_start, log_end) = (started.log_start, started.log_end);
        self.log.cut(log_end);
        self.voters.cut(log_end);
        if self.log.end() < log_start {
            let epoch = (log_start == log_end).then_some(started.last_epoch);
            self.log = Log::starting_at(log_start, epoch);
        }
        self.log.advance_start(log_start);
        self.log.extend_start(log_start);
        self.log.extend_unknown(log_end);
        self.durable_end = log_end;
        self.compared_below = self.compared_below.min(log_end);
    }

    fn set_role(&mut self, epoch: i32, role: Role, epoch_start_offset: Option<i64>) {
        self.leads = (role == Role::Leader).then_some(Leadership {
            epoch,
            start: epoch_start_offset,
            high_watermark: None,
        });
    }

    /// Whoever is in a later epoch than it led leads no more, even before it says so.
    fn leave_epoch(&mut self, epoch: i32) {
        self.leads = self.leads.filter(|leads| leads.epoch >= epoch);
    }

    fn cut(&mut self, end: i64) {
        self.log.cut(end);
        self.voters.cut(end);
        self.durable_end = self.durable_end.min(end);
        self.compared_below = self.compared_below.min(end);
    }

    /// The snapshot replaces the log. Where it names no voters they are static, and stay.
    fn install(&mut self, end_offset: i64, last_epoch: i32, voters: Option<&[String]>) {
        match (voters, self.voters.latest().cloned()) {
            (Some(voters), _) => self.voters.install(voter_set(voters), end_offset),
            (None, Some(latest)) => self.voters.configure(latest),
            (None, None) => {}
        }
        self.told_observer = false;
        self.log = Log::starting_at(end_offset, Some(last_epoch));
        self.durable_end = end_offset;
        self.compared_below = end_offset;
        self.snapshots.insert(end_offset, last_epoch);
    }

    /// Compares what the node now reports as committed with what was reported before.
    fn commit(
        &mut self,
        event: &Rc<TraceEvent>,
        high_watermark: i64,
        committed: &mut Committed,
    ) -> Outcome {
        let mut outcome = Outcome::default();
        self.high_watermark = Some((high_watermark, event.clone()));
        if let Some(leads) = &mut self.leads {
            leads.high_watermark = Some(high_watermark);
        }
        let told = self
            .log
            .range(self.compared_below, high_watermark)
            .filter(|batch| batch.identity.is_some() && batch.last_offset < high_watermark);
        for batch in told {
            match committed.report(event, batch) {
                Comparison::New => {
                    outcome.new_from.get_or_insert(batch.base_offset);
                }
                Comparison::Same => outcome.compared_count += 1,
                Comparison::Differs(earlier) => {
                    outcome.compared_count += 1;
                    outcome.conflicts.push((batch, earlier));
                }
            }
        }
        let changes = self.voters.changes_from(self.compared_below);
        for (before, entry) in changes.filter(|(_, entry)| entry.offset < high_watermark) {
            outcome.voters.push(ReportedVoters {
                entry: entry.clone(),
                before: before.cloned(),
                comparison: committed.report_voters(event, entry),
            });
        }
        // A batch of which only a part is committed is compared once the rest is.
        let compared_below = match self.log.at(high_watermark - 1) {
            Some(last) if last.last_offset >= high_watermark => last.base_offset,
            _ => high_watermark,
        };
        self.compared_below = self.compared_below.max(compared_below);
        outcome
    }
}

/// Whether voters are in the log, by this event.
pub(super) fn tells_of_voter_records(event: &TraceEvent) -> bool {
    match &event.detail {
        TraceDetail::VotersAppended { .. } => true,
        TraceDetail::SnapshotInstalled { voters, .. } => voters.is_some(),
        TraceDetail::Started(started) => started.kraft_version.is_some_and(|version| version > 0),
        _ => false,
    }
}
