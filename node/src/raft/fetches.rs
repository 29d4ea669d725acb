//! Owns how a leader answers fetches: validation, divergence, and fetches that wait.
//! Never answers from a state older than the moment of the answer: a woken fetch is validated anew.

use super::log_view::Comparison;
use super::role::{Parked, RoleState};
use super::timers::{after, is_due};
use super::{Effect, Replica, Ticket};
use crate::ids::{Epoch, NodeId};
use crate::message::{DivergingEpoch, ErrorCode, FetchRequest, FetchResponse, Response};
use crate::mutants::Bug;

const NS_PER_MS: u64 = 1_000_000;

/// How long a new high watermark waits for records to travel with, in nanoseconds. Under load the next
/// records follow within a fraction of it, and every second exchange between replicas is saved; without
/// load nobody waits for the news but the state machines of the others.
const COMMITS_LINGER_NS: u64 = NS_PER_MS;

impl Replica {
    pub(super) fn on_fetch(&mut self, ticket: Ticket, request: FetchRequest) {
        let error = self.fetch_error(&request);
        if error != ErrorCode::None {
            return self.reply_fetch_error(ticket, error);
        }
        // A log that differs, or is too old, is told so at once, whatever its owner is ready to wait
        // (KAFKA-15100). Such a fetch says nothing about what its sender has of this log.
        let comparison = self.compare(&request);
        if comparison != Comparison::Agrees {
            if self.configuration.has(Bug::DivergingParked) {
                return self.park(ticket, request);
            }
            return self.reply_fetch(ticket, &request, comparison);
        }
        self.note_fetch(&request);
        // What it acknowledges may have committed the removal of this leader.
        let error = self.fetch_error(&request);
        if error != ErrorCode::None {
            return self.reply_fetch_error(ticket, error);
        }
        if self.can_answer_now(&request) {
            return self.reply_fetch(ticket, &request, comparison);
        }
        self.park(ticket, request);
    }

    fn park(&mut self, ticket: Ticket, request: FetchRequest) {
        let wait_ns = request.max_wait_ms.saturating_mul(NS_PER_MS);
        let mut longest_ns = self.configuration.timers.fetch_max_wait_ns;
        if self.has_commits_for(&request) {
            longest_ns = longest_ns.min(COMMITS_LINGER_NS);
        }
        let deadline_ns = after(self.now_ns, wait_ns.min(longest_ns));
        if let RoleState::Leader(leader) = &mut self.role {
            leader.parked.push(Parked {
                ticket,
                request,
                deadline_ns,
            });
        }
    }

    /// The checks that every fetch passes before its offset is looked at, in Kafka's order.
    pub(super) fn fetch_error(&self, request: &FetchRequest) -> ErrorCode {
        let last_epoch = request.last_fetched_epoch;
        if request.fetch_offset.0 < 0
            || last_epoch.0 < 0
            || last_epoch > request.current_leader_epoch
        {
            return ErrorCode::InvalidRequest;
        }
        self.leadership_error(request.current_leader_epoch, request.replica.id)
    }

    /// The checks of every request that only the leader of the sender's epoch may serve.
    pub(super) fn leadership_error(&self, epoch: Epoch, sender: NodeId) -> ErrorCode {
        if epoch < self.epoch() {
            ErrorCode::FencedLeaderEpoch
        } else if epoch > self.epoch() {
            ErrorCode::UnknownLeaderEpoch
        } else if self.stands_down() {
            ErrorCode::BrokerNotAvailable
        } else if !matches!(self.role, RoleState::Leader(_)) {
            ErrorCode::NotLeaderOrFollower
        } else if sender == self.id() {
            ErrorCode::UnknownServerError
        } else {
            ErrorCode::None
        }
    }

    /// Whether it led until it was told to stop. In Kafka such a leader refuses what comes as one that is not
    /// available, and resigns a moment later; here that is one step.
    pub(super) fn stands_down(&self) -> bool {
        self.shutting_down && matches!(self.role, RoleState::Resigned(_))
    }

    fn compare(&self, request: &FetchRequest) -> Comparison {
        let last_epoch = request.last_fetched_epoch;
        self.log.compare(request.fetch_offset, last_epoch)
    }

    /// The newest read round given out; 0 unless this replica leads.
    fn newest_round(&self) -> u64 {
        self.as_leader()
            .map_or(0, |leader| leader.reads.newest_round())
    }

    /// Whether there is something to tell at once: records, a read round.
    fn can_answer_now(&self, request: &FetchRequest) -> bool {
        request.max_wait_ms == 0 || self.has_records_for(request) || self.has_round_for(request)
    }

    fn has_records_for(&self, request: &FetchRequest) -> bool {
        request.fetch_offset < self.log.end()
    }

    fn has_round_for(&self, request: &FetchRequest) -> bool {
        request.read_round < self.newest_round()
    }

    /// Whether the high watermark moved since the sender heard of it (KIP-1166).
    fn has_commits_for(&self, request: &FetchRequest) -> bool {
        request.high_watermark < self.high_watermark
    }

    /// When a waiting fetch is to be answered; 0 for now.
    fn answer_due_ns(&self, parked: &Parked) -> u64 {
        let Parked {
            request,
            deadline_ns,
            ..
        } = parked;
        let bug = self.configuration.bug;
        if self.has_round_for(request)
            || (self.has_records_for(request) && bug != Some(Bug::LostWakeup))
        {
            return 0;
        }
        let tells_commits = bug != Some(Bug::ParkedFetchNotWokenOnHighWatermark);
        if tells_commits && self.has_commits_for(request) {
            return after(self.now_ns, COMMITS_LINGER_NS).min(*deadline_ns);
        }
        *deadline_ns
    }

    /// Looks at all waiting fetches again: at the end of each step, so that none misses an append,
    /// a new high watermark (KAFKA-14145) or a read round, whatever caused it.
    pub(super) fn answer_parked(&mut self) {
        let now_ns = self.now_ns;
        let Some(leader) = self.as_leader_mut() else {
            return;
        };
        let mut waiting = std::mem::take(&mut leader.parked);
        waiting.retain_mut(|parked| {
            let error = self.fetch_error(&parked.request);
            if error != ErrorCode::None {
                self.reply_fetch_error(parked.ticket, error);
                return false;
            }
            let comparison = self.compare(&parked.request);
            parked.deadline_ns = match comparison {
                Comparison::Agrees => self.answer_due_ns(parked),
                _ if self.configuration.has(Bug::DivergingParked) => parked.deadline_ns,
                _ => 0,
            };
            let answered = is_due(parked.deadline_ns, now_ns);
            if answered {
                self.reply_fetch(parked.ticket, &parked.request, comparison);
            }
            !answered
        });
        if let Some(leader) = self.as_leader_mut() {
            leader.parked = waiting;
        }
    }

    pub(super) fn reply_fetch(
        &mut self,
        ticket: Ticket,
        request: &FetchRequest,
        comparison: Comparison,
    ) {
        let mut response = self.fetch_response(ErrorCode::None);
        let mut has_records = false;
        match comparison {
            Comparison::Agrees => has_records = request.fetch_offset < self.log.end(),
            Comparison::Diverges(end) => {
                response.diverging_epoch = Some(DivergingEpoch {
                    epoch: end.epoch,
                    end_offset: end.end_offset,
                });
            }
            Comparison::NeedsSnapshot(id) => response.snapshot_id = Some(id),
        }
        self.effect(Effect::ReplyFetch {
            ticket,
            response: Box::new(response),
            from: has_records.then_some(request.fetch_offset),
            max_bytes: request.max_bytes,
        });
    }

    pub(super) fn reply_fetch_error(&mut self, ticket: Ticket, error: ErrorCode) {
        let response = Box::new(Response::Fetch(self.fetch_response(error)));
        self.effect(Effect::Reply { ticket, response });
    }

    fn fetch_response(&self, error: ErrorCode) -> FetchResponse {
        let succeeded = error == ErrorCode::None;
        FetchResponse {
            error,
            leader_id: self.quorum_state.leader,
            leader_epoch: self.epoch(),
            high_watermark: self.high_watermark.filter(|_| succeeded),
            log_start_offset: self.log.start(),
            diverging_epoch: None,
            read_round: self.newest_round(),
            batches: Vec::new(),
            leader_endpoint: self.leader_endpoint(),
            snapshot_id: None,
        }
    }
}
