//! Owns what clients ask of a node: from the request to the log, and from what is committed to the answer.
//! Never decides whether a request enters the log; the protocol core does.

use crate::client::{ClientReply, ClientRequest, Position, RefusalCode, UnknownCode};
use crate::ids::Offset;
use crate::machine::{Command, Object};
use crate::mutants::Bug;
use crate::raft::{ProposalRefusal, Refusal, Ticket};
use crate::storage::disk::Disk;
use crate::trace::TraceEvent;

use super::NodeLoop;
use super::boundary::{Departure, NodeError, Outbox};
use super::waiting::Proposed;

/// How much of the log is read at once when committed records are applied, in bytes.
pub(super) const APPLY_CHUNK_BYTES: u64 = 1024 * 1024;

impl<D: Disk> NodeLoop<D> {
    pub(super) fn admit(
        &mut self,
        ticket: Ticket,
        request: ClientRequest,
        commands: &mut Vec<(Ticket, Vec<u8>)>,
        reads: &mut Vec<Ticket>,
        outbox: &mut impl Outbox,
    ) {
        let (stamp, operations, is_transaction) = match request {
            ClientRequest::Read { object } => {
                self.waiting.read(ticket, object);
                reads.push(ticket);
                return;
            }
            ClientRequest::LocalRead { object } => {
                return self.serve_local_read(ticket, &object, outbox);
            }
            ClientRequest::Apply { stamp, operation } => (stamp, vec![operation], false),
            ClientRequest::Transaction { stamp, operations } => (stamp, operations, true),
        };
        let command = Command { stamp, operations };
        match command.encode() {
            Ok(encoded) => {
                let proposed = Proposed {
                    is_transaction,
                    is_unconditional: command.is_unconditional(),
                };
                self.waiting.propose(ticket, proposed);
                commands.push((ticket, encoded));
            }
            Err(fault) => {
                let reply = ClientReply::Invalid {
                    fault,
                    leader: self.replica.serving_leader(),
                    epoch: self.replica.epoch(),
                };
                self.answer(ticket, reply, outbox);
            }
        }
    }

    /// Tells a client what speaks only of what a majority has made durable.
    fn answer(&mut self, ticket: Ticket, reply: ClientReply, outbox: &mut impl Outbox) {
        self.depart(Departure::ClientReply { ticket, reply }, outbox);
    }

    pub(super) fn note_proposed(
        &mut self,
        ticket: Ticket,
        offset: Offset,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        let Some(proposed) = self.waiting.take_proposed(ticket) else {
            return Ok(());
        };
        if self.has(Bug::AckOnAppend) && proposed.is_unconditional {
            let foreseen = self.foresee(offset)?;
            let epoch = self.replica.epoch();
            let reply = ClientReply::of(foreseen, epoch, proposed.is_transaction);
            self.release(Departure::ClientReply { ticket, reply }, outbox);
        } else {
            self.waiting.await_commit(offset, ticket, proposed);
        }
        Ok(())
    }

    pub(super) fn refuse(
        &mut self,
        ticket: Ticket,
        refusal: ProposalRefusal,
        outbox: &mut impl Outbox,
    ) {
        self.waiting.forget(ticket);
        let code = match refusal.reason {
            Refusal::NotLeader => RefusalCode::NotLeaderOrFollower,
            Refusal::ShuttingDown => RefusalCode::BrokerNotAvailable,
        };
        let reply = ClientReply::Refused {
            code,
            leader: refusal.leader,
            epoch: refusal.epoch,
        };
        self.answer(ticket, reply, outbox);
    }

    pub(super) fn serve_read(
        &mut self,
        ticket: Ticket,
        read_offset: Offset,
        outbox: &mut impl Outbox,
    ) {
        assert!(
            self.applied >= read_offset || self.has(Bug::ReadNotApplied),
            "a read at {read_offset} was released while only {} is applied",
            self.applied
        );
        let Some(object) = self.waiting.take_read(ticket) else {
            return;
        };
        let applied = self.applied;
        let served = TraceEvent::ReadServed {
            read_offset,
            applied,
        };
        self.trace(served, outbox);
        let position = Position {
            epoch: self.replica.epoch(),
            offset: self.applied,
        };
        let reply = ClientReply::Value {
            value: self.machine.read(&object),
            position,
        };
        self.answer(ticket, reply, outbox);
    }

    fn serve_local_read(&mut self, ticket: Ticket, object: &Object, outbox: &mut impl Outbox) {
        let reply = ClientReply::Local {
            value: self.machine.read(object),
            applied: self.applied,
            epoch: self.replica.epoch(),
        };
        self.answer(ticket, reply, outbox);
    }

    pub(super) fn apply(
        &mut self,
        high_watermark: Offset,
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        while self.applied < high_watermark {
            let before = self.applied;
            for batch in self.storage.read(self.applied, APPLY_CHUNK_BYTES)? {
                self.snapshots
                    .note_applied(batch.bytes().len(), batch.timestamp_ms());
                for (offset, record) in batch.records() {
                    if offset < self.applied || offset >= high_watermark {
                        continue;
                    }
                    self.applied = Offset(offset.0 + 1);
                    if !batch.is_control() {
                        self.apply_record(offset, record, outbox)?;
                    }
                }
            }
            assert!(
                self.applied > before,
                "the log ends below its high watermark"
            );
        }
        Ok(())
    }

    fn apply_record(
        &mut self,
        offset: Offset,
        record: &[u8],
        outbox: &mut impl Outbox,
    ) -> Result<(), NodeError> {
        let command =
            Command::decode(record).map_err(|source| NodeError::Undecodable { offset, source })?;
        let applied = self.machine.apply(offset, command);
        if let Some((ticket, proposed)) = self.waiting.take_committed(offset) {
            let epoch = self.replica.epoch();
            let reply = ClientReply::of(applied, epoch, proposed.is_transaction);
            self.answer(ticket, reply, outbox);
        }
        Ok(())
    }

    /// What entered the log may yet be committed by a later leader: its outcome is unknown.
    pub(super) fn abandon_uncommitted(&mut self, outbox: &mut impl Outbox) {
        let epoch = self.replica.epoch();
        for ticket in self.waiting.take_uncommitted() {
            let reply = if self.has(Bug::FailInsteadOfInfo) {
                ClientReply::Refused {
                    code: RefusalCode::NotLeaderOrFollower,
                    leader: self.replica.serving_leader(),
                    epoch,
                }
            } else {
                ClientReply::Unknown {
                    code: UnknownCode::LeadershipLost,
                    epoch,
                }
            };
            self.answer(ticket, reply, outbox);
        }
    }
}
