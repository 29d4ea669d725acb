//! Owns the state of one replica by the specification: what its steps have made of it so far.
//! Never judges a step.

use std::borrow::Cow;
use std::collections::BTreeSet;

use results::ordered_list::OrderedList;
use results::shared_text::SharedText;
use results::trace::{Message, Role, Started, TraceDetail, TraceEvent};

use crate::incarnations::{Sequence, is_another};

/// Which request: its number, and whom it is for or from.
pub(super) type Request = (u64, SharedText);

/// A request of a peer that waits for its answer.
#[derive(Debug, Clone)]
pub(super) struct Asked {
    /// Counts requests as they come.
    pub(super) order: u64,
    pub(super) epoch: i32,
    pub(super) last_epoch: Option<i32>,
    /// Whether it must be granted or refused, where it asks for a vote and that can be told.
    pub(super) grant: Option<bool>,
    /// Whether a fetch must be refused.
    pub(super) is_refused: bool,
}

/// What a leader has answered to the fetch that was under way.
#[derive(Debug, Clone, Default)]
pub(super) struct Fetched {
    pub(super) records: Option<(i64, i64)>,
    pub(super) high_watermark: Option<i64>,
    pub(super) diverging: Option<(i32, i64)>,
    pub(super) is_snapshot: bool,
}

/// One replica.
#[derive(Debug, Default)]
pub(super) struct Replica {
    pub(super) has_started: bool,
    pub(super) role: Option<Role>,
    pub(super) epoch: i32,
    pub(super) leader: Option<String>,
    pub(super) vote: Option<String>,
    /// Epochs in its log and where they start, ascending; `None` for one that starts nobody knows where.
    pub(super) epochs: Vec<(i32, Option<i64>)>,
    pub(super) log_end: i64,
    pub(super) epoch_start: Option<i64>,
    pub(super) has_led_append: bool,
    /// Voters by the offset of their record; the last ones are in force.
    voters: Vec<(i64, BTreeSet<String>)>,
    /// Whether a voter of its name is this replica, with this disk; `None` where nobody knows.
    is_the_listed: Option<bool>,
    /// Directory id of its disk, and whether it had another one before: lists of voters tell only names.
    directory_id: Option<String>,
    has_new_disk: bool,
    /// Who granted a pre-vote in the present pre-election.
    pub(super) granted: BTreeSet<String>,
    /// The same of the one that a new epoch has just ended.
    pub(super) granted_before: BTreeSet<String>,
    /// What happens is part of the step that an answer to a fetch has caused.
    pub(super) is_digesting: bool,
    /// A later epoch was adopted by the step that goes on.
    pub(super) is_advancing: bool,
    /// Its requests without an answer: kind and epoch.
    in_flight: OrderedList<Request, (Cow<'static, str>, Option<i32>)>,
    /// Requests of others without an answer.
    pub(super) asked: OrderedList<Request, Asked>,
    pub(super) next_order: u64,
    /// The latest request of a peer that was answered.
    pub(super) answered_order: Option<u64>,
    /// What is being digested.
    pub(super) fetched: Option<Fetched>,
    /// Whether a fetch may have succeeded since it follows its leader.
    pub(super) may_have_fetched: bool,
    pub(super) installed_end: Option<i64>,
    /// Whether it reports messages at all.
    pub(super) reports_messages: bool,
    next: Sequence,
    pub(super) is_broken: bool,
}

impl Replica {
    /// Notes which event comes next, and whether any is missing.
    pub(super) fn enter(&mut self, event: &TraceEvent) {
        self.is_broken |= !self.next.follows(event);
        self.reports_messages |= matches!(
            event.detail,
            TraceDetail::RpcSent { .. } | TraceDetail::RpcReceived { .. }
        );
    }

    /// Epoch of the last record; `None` where nobody knows.
    pub(super) fn last_epoch(&self) -> Option<i32> {
        match self.epochs.last() {
            Some((epoch, _)) => Some(*epoch),
            None => (self.log_end == 0).then_some(0),
        }
    }

    /// The largest epoch in the log up to `epoch`, and where it ends; `None` where nobody knows.
    pub(super) fn end_of_epoch(&self, epoch: i32) -> Option<(i32, i64)> {
        let newer = self.epochs.partition_point(|(known, _)| *known <= epoch);
        let found = self.epochs[newer.checked_sub(1)?].0;
        match self.epochs.get(newer) {
            None => Some((found, self.log_end)),
            Some((_, start)) => start.map(|start| (found, start)),
        }
    }

    /// The voters in force; `None` where nobody knows.
    pub(super) fn voters(&self) -> Option<&BTreeSet<String>> {
        self.voters.last().map(|(_, voters)| voters)
    }

    /// Whether it is one of the voters; `None` where nobody knows.
    pub(super) fn is_voter(&self, name: &str) -> Option<bool> {
        match self.voters()?.contains(name) {
            true => self.is_the_listed,
            false => Some(false),
        }
    }

    pub(super) fn start(&mut self, epoch: i32, started: &Started) {
        let known = std::mem::take(&mut self.epochs);
        let found = started.directory_id.as_deref();
        let has_new_disk = is_another(self.directory_id.as_deref(), found);
        *self = Self {
            has_started: true,
            role: Some(started.role),
            epoch,
            log_end: started.log_end,
            reports_messages: self.reports_messages,
            next: self.next,
            is_broken: self.is_broken,
            has_new_disk: self.has_new_disk || has_new_disk,
            directory_id: started.directory_id.clone().or(self.directory_id.take()),
            ..Self::default()
        };
        self.leader.clone_from(&started.leader);
        self.vote.clone_from(&started.voted_for);
        self.epochs = known;
        self.epochs
            .retain(|(_, start)| start.is_none_or(|start| start < started.log_end));
        let is_known = self
            .epochs
            .last()
            .is_some_and(|it| it.0 == started.last_epoch);
        if !is_known {
            self.epochs.clear();
            if started.log_end > started.log_start {
                self.epochs.push((started.last_epoch, None));
            } else if started.log_end > 0 {
                self.epochs = vec![(started.last_epoch, None)];
            }
        }
        if let Some(voters) = &started.voters {
            // Their record is somewhere in the log, unless they are configured.
            let are_in_log = started.kraft_version.is_some_and(|version| version > 0);
            let offset = if are_in_log { started.log_end - 1 } else { -1 };
            self.voters = vec![(offset, voters.iter().cloned().collect())];
        }
        self.is_the_listed = started.is_voter.or(Some(true));
    }

    pub(super) fn append(&mut self, base_offset: i64, last_offset: i64, epoch: i32) {
        if self.epochs.last().is_none_or(|(last, _)| *last != epoch) {
            self.epochs.push((epoch, Some(base_offset)));
        }
        self.log_end = last_offset + 1;
    }

    pub(super) fn cut(&mut self, end: i64) {
        self.epochs
            .retain(|(_, start)| start.is_none_or(|start| start < end));
        // Voters that were in force at the last start may have been in what is cut off.
        self.voters.retain(|(offset, _)| *offset < end);
        self.log_end = end;
    }

    pub(super) fn install(&mut self, end_offset: i64, epoch: i32, voters: Option<&[String]>) {
        self.log_end = end_offset;
        self.epochs = vec![(epoch, None)];
        self.installed_end = Some(end_offset);
        if let Some(voters) = voters {
            self.voters = vec![(-1, voters.iter().cloned().collect())];
            self.is_the_listed = self.by_name();
        }
    }

    pub(super) fn take_voters(&mut self, offset: i64, voters: &[String]) {
        self.voters.push((offset, voters.iter().cloned().collect()));
        self.is_the_listed = self.by_name();
    }

    /// Whether a name in a new list of voters means this replica.
    fn by_name(&self) -> Option<bool> {
        (!self.has_new_disk).then_some(true)
    }

    /// A transition: whatever was asked before is forgotten.
    pub(super) fn reset_connections(&mut self) {
        self.in_flight.clear();
        self.granted_before = std::mem::take(&mut self.granted);
    }

    pub(super) fn note_sent(&mut self, to: &SharedText, message: &Message) {
        if let Some(correlation) = message.correlation {
            let kind = (message.rpc.clone(), message.message_epoch);
            self.in_flight.insert((correlation, to.clone()), kind);
        }
    }

    /// Takes an answer; if it is one to the request under way in this epoch, what was asked.
    pub(super) fn take_in_flight(
        &mut self,
        from: &SharedText,
        message: &Message,
    ) -> Option<Cow<'static, str>> {
        let key = (message.correlation?, from.clone());
        let (kind, epoch) = self.in_flight.remove(&key)?;
        (epoch == Some(self.epoch)).then_some(kind)
    }
}
