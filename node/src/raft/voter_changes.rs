//! Owns changes of the voters that are under way on a leader, from their record to their answer.
//! Never decides whether a change may begin.

use super::membership::unreachable_text;
use super::role::RoleState;
use super::timers::{after, is_due};
use super::{Correlation, Effect, Replica, Ticket};
use crate::batch::Batch;
use crate::control_record::ControlRecord;
use crate::ids::Offset;
use crate::message::{ErrorCode, Response, VoterChangeResponse};
use crate::mutants::Bug;
use crate::voters::{Voter, VoterSet};

/// A change of the voters that is under way.
#[derive(Debug, Clone, Hash)]
pub(crate) struct VoterChange {
    pub(crate) kind: Kind,
    /// Who still waits for the answer.
    pub(crate) ticket: Option<Ticket>,
    /// When it is given up. Its record may be committed later all the same.
    pub(crate) deadline_ns: u64,
    pub(crate) stage: Stage,
}

#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash)]
pub(crate) enum Kind {
    Add,
    Remove,
    Update,
    /// Of kraft.version: configured voters enter the log.
    Upgrade,
}

#[derive(Debug, Clone, Hash)]
pub(crate) enum Stage {
    /// The voter is asked whether it is there, and what it supports.
    Probing {
        correlation: Correlation,
        voter: Voter,
        ack_when_committed: bool,
    },
    /// The seeded bug B36: its record waits outside the log.
    Accumulated(VoterSet),
    /// Its record is in the log, not yet committed.
    Appended { offset: Offset },
}

impl Replica {
    /// Puts the new voters into force.
    pub(super) fn append_change(
        &mut self,
        kind: Kind,
        ticket: Option<Ticket>,
        deadline_ns: u64,
        voters: VoterSet,
    ) {
        let is_settled = self.high_watermark == Some(self.log.end());
        let stage = if self.voter_history.latest() == &voters {
            // An update of a voter that is listed rightly changes nothing.
            return;
        } else if self.configuration.has(Bug::PendingExpiresInAccumulator) && !is_settled {
            Stage::Accumulated(voters)
        } else {
            let offset = self.append_voters(voters);
            Stage::Appended { offset }
        };
        if let Some(leader) = self.as_leader_mut() {
            leader.voter_changes.push(VoterChange {
                kind,
                ticket,
                deadline_ns,
                stage,
            });
        }
    }

    fn append_voters(&mut self, voters: VoterSet) -> Offset {
        let record = ControlRecord::Voters { voters }.encode();
        let offset = self.log.end();
        self.append(Batch::build(offset, self.epoch(), 0, true, &[record]));
        offset
    }

    /// A record in the log may have changed the voters.
    pub(super) fn on_voters_changed(&mut self) {
        let deadline_ns = after(self.now_ns, self.check_quorum_ns());
        if let Some(leader) = self.as_leader_mut() {
            // New voters get the time to show that they follow. A leader that was alone had no
            // deadline that means anything.
            leader.check_quorum_deadline_ns = deadline_ns;
        }
    }

    /// The high watermark moved: changes are done, and a leader that is no voter any more leaves. Not
    /// earlier: until its removal is committed, nobody else may know of it (KAFKA-16530).
    pub(super) fn finish_voter_changes(&mut self) {
        let Some(high_watermark) = self.high_watermark else {
            return;
        };
        let Some(leader) = self.as_leader_mut() else {
            return;
        };
        let is_done = |change: &mut VoterChange| matches!(change.stage, Stage::Appended { offset } if offset < high_watermark);
        let done: Vec<_> = leader.voter_changes.extract_if(.., is_done).collect();
        for change in done {
            self.reply_voter_change(change.kind, change.ticket, ErrorCode::None, String::new());
        }
        let is_committed = self
            .voter_history
            .latest_offset()
            .is_some_and(|offset| offset < high_watermark);
        let stays = self.is_voter() || self.configuration.has(Bug::RemovedLeaderStays);
        if is_committed && !stays {
            self.resign("removed from the voters");
        }
    }

    /// Gives up changes that took too long.
    pub(super) fn expire_voter_changes(&mut self) {
        let now_ns = self.now_ns;
        let Some(leader) = self.as_leader_mut() else {
            return;
        };
        let is_overdue = |change: &mut VoterChange| is_due(change.deadline_ns, now_ns);
        let overdue: Vec<_> = leader.voter_changes.extract_if(.., is_overdue).collect();
        for change in overdue {
            let text = match change.stage {
                Stage::Probing { voter, .. } => unreachable_text(&voter),
                Stage::Accumulated(voters) => {
                    self.accumulate_voters(voters);
                    "the change is not made yet".to_owned()
                }
                Stage::Appended { .. } => {
                    "the change is in force on the leader and not committed yet; it may still be \
                     committed, or undone by another leader"
                        .to_owned()
                }
            };
            let error = ErrorCode::RequestTimedOut;
            self.reply_voter_change(change.kind, change.ticket, error, text);
        }
    }

    /// Leadership is over: what is in the log may or may not be committed by another leader.
    pub(super) fn abandon_voter_changes(&mut self, changes: Vec<VoterChange>) {
        for change in changes {
            let text = match change.stage {
                Stage::Appended { .. } => {
                    "the leader stepped down; the change may have been made all the same"
                }
                _ => "the leader stepped down; the change was not made",
            };
            let error = ErrorCode::NotLeaderOrFollower;
            self.reply_voter_change(change.kind, change.ticket, error, text.to_owned());
        }
    }

    /// The seeded bug B36: what waits outside the log is forgotten by those who check, not by the log.
    fn accumulate_voters(&mut self, voters: VoterSet) {
        if let Some(leader) = self.as_leader_mut() {
            leader.accumulated_voters.push(voters);
        }
    }

    /// The seeded bug B36: appends what waited until everything before it was committed.
    pub(super) fn drain_accumulated_voters(&mut self) {
        if !self.configuration.has(Bug::PendingExpiresInAccumulator)
            || self.high_watermark != Some(self.log.end())
        {
            return;
        }
        let Some(leader) = self.as_leader_mut() else {
            return;
        };
        for voters in std::mem::take(&mut leader.accumulated_voters) {
            self.append_voters(voters);
        }
        let mut changes = match &mut self.role {
            RoleState::Leader(leader) => std::mem::take(&mut leader.voter_changes),
            _ => return,
        };
        for change in &mut changes {
            if let Stage::Accumulated(voters) = &change.stage {
                let offset = self.append_voters(voters.clone());
                change.stage = Stage::Appended { offset };
            }
        }
        if let Some(leader) = self.as_leader_mut() {
            leader.voter_changes = changes;
        }
    }

    pub(super) fn reply_voter_change(
        &mut self,
        kind: Kind,
        ticket: Option<Ticket>,
        error: ErrorCode,
        message: String,
    ) {
        let Some(ticket) = ticket else {
            return;
        };
        let response = VoterChangeResponse {
            error,
            message,
            leader_id: self.quorum_state.leader,
            leader_epoch: self.epoch(),
            leader_endpoint: self.leader_endpoint(),
        };
        let response = match kind {
            Kind::Add => Response::AddRaftVoter(response),
            Kind::Remove => Response::RemoveRaftVoter(response),
            Kind::Update => Response::UpdateRaftVoter(response),
            Kind::Upgrade => Response::UpdateFeatures(response),
        };
        let response = Box::new(response);
        self.effect(Effect::Reply { ticket, response });
    }
}
