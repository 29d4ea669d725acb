//! Owns a replica's own snapshots: which may be made, what becomes of the log, how a leader serves them.
//! Never sees what is in a snapshot, and never fetches one.

use super::{Effect, Replica, SnapshotPlan, StoredSnapshot, Ticket};
use crate::ids::{Offset, SnapshotId};
use crate::message::{ErrorCode, FetchSnapshotRequest, FetchSnapshotResponse, Response};
use crate::mutants::Bug;
use crate::trace::TraceEvent;

/// How many bytes of a snapshot to ask for, or to return, at most (Kafka's default, KIP-1219).
pub(super) const FETCH_SNAPSHOT_MAX_BYTES: u64 = 1024 * 1024;

impl Replica {
    /// What a snapshot of everything below `end_offset` is called and must say of the voters; `None`
    /// where none may be made: not all of that is known to be committed, or there is one already that
    /// reaches as far.
    ///
    /// `end_offset` must be on a batch boundary, which only whoever reads the log can know: behind a
    /// snapshot that ends within a batch, no follower could go on (KAFKA-14619). The high watermark
    /// always is on one.
    pub fn plan_snapshot(&self, end_offset: Offset) -> Option<SnapshotPlan> {
        let is_committed =
            end_offset <= self.committed || self.configuration.has(Bug::SnapshotAboveHighWatermark);
        if !is_committed || !self.log.may_freeze(end_offset) {
            return None;
        }
        let epoch = self.log.epoch_before(end_offset)?;
        let recorded = self.voter_history.at(end_offset);
        let are_recorded =
            recorded.kraft_version > 0 && !self.configuration.has(Bug::VotersNotInSnapshot);
        Some(SnapshotPlan {
            id: SnapshotId { end_offset, epoch },
            voters: are_recorded.then(|| recorded.clone()),
        })
    }

    pub(super) fn on_snapshot_frozen(&mut self, snapshot: StoredSnapshot, digest: u64) {
        let id = snapshot.id;
        if id.end_offset <= self.log.snapshot_end() {
            // One of the leader's has overtaken it meanwhile.
            return;
        }
        assert!(
            id.end_offset <= self.committed
                || self.configuration.has(Bug::SnapshotAboveHighWatermark),
            "snapshot {id} holds more than is known to be committed, which ends at {}",
            self.committed
        );
        self.log.note_frozen(snapshot);
        self.trace(TraceEvent::SnapshotFrozen {
            end_offset: id.end_offset,
            last_epoch: id.epoch,
            digest: digest_text(digest),
        });
    }

    pub(super) fn on_log_start_advanced(&mut self, log_start: Offset) {
        if self.configuration.has(Bug::LogDeletedPastSnapshot) {
            self.log.advance_start_anywhere(log_start);
        } else {
            self.log.advance_start(log_start);
        }
        self.voter_history.advance_log_start(log_start);
        self.trace(TraceEvent::LogStartAdvanced { log_start });
    }

    /// Serves a piece of a snapshot. The checks are in Kafka's order, except that a replica that
    /// fetches from itself gets an error instead of stopping the leader (KIP-630).
    pub(super) fn on_fetch_snapshot(&mut self, ticket: Ticket, request: &FetchSnapshotRequest) {
        let id = request.snapshot_id;
        // The bootstrap snapshot was never committed: no follower may take it for the leader's state.
        let stored = self.log.snapshot(id).copied();
        let stored = stored.filter(|_| id != SnapshotId::BOOTSTRAP);
        let size_bytes = stored.map_or(0, |snapshot| snapshot.size_bytes);
        let unfit = self.leadership_error(request.current_leader_epoch, request.replica.id);
        let error = if unfit != ErrorCode::None {
            unfit
        } else if stored.is_none() {
            ErrorCode::SnapshotNotFound
        } else if request.position_bytes >= size_bytes {
            ErrorCode::PositionOutOfRange
        } else {
            ErrorCode::None
        };
        let succeeded = error == ErrorCode::None;
        let response = FetchSnapshotResponse {
            error,
            leader_id: self.quorum_state.leader,
            leader_epoch: self.epoch(),
            leader_endpoint: self.leader_endpoint(),
            snapshot_id: id,
            size_bytes: if succeeded { size_bytes } else { 0 },
            position_bytes: request.position_bytes,
            bytes: Vec::new(),
        };
        if !succeeded {
            let response = Box::new(Response::FetchSnapshot(response));
            return self.effect(Effect::Reply { ticket, response });
        }
        // It follows this leader. What it holds of the log is another matter.
        self.count_for_check_quorum(&request.replica);
        self.effect(Effect::ReplyFetchSnapshot {
            ticket,
            response: Box::new(response),
            max_bytes: request.max_bytes.clamp(1, FETCH_SNAPSHOT_MAX_BYTES),
        });
    }
}

/// A hash as traces and descriptions show it.
pub(super) fn digest_text(digest: u64) -> String {
    format!("{digest:016x}")
}
