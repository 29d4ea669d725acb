//! Owns the state of a replica that fetches from a leader: appending, truncating, giving up.
//! Never takes an announcement for a sign of life; only a successful fetch is one.

use super::RoleState;
use crate::batch::Batch;
use crate::control_record::ControlRecord;
use crate::ids::{Epoch, NodeId, Offset, ReplicaKey};
use crate::message::{DivergingEpoch, FetchRequest, FetchResponse, Request};
use crate::mutants::Bug;
use crate::raft::peers::Asked;
use crate::raft::snapshot_download::Download;
use crate::raft::timers::{NEVER_NS, after, is_due};
use crate::raft::voter_history::control_records_of;
use crate::raft::{Effect, QuorumState, Replica};
use crate::trace::TraceEvent;

/// How many bytes of records to ask for at once (Kafka's default).
const FETCH_MAX_BYTES: u64 = 1024 * 1024;

/// Fetches from the leader of its epoch.
#[derive(Debug, Clone, Hash)]
pub(crate) struct Follower {
    pub(crate) leader: NodeId,
    pub(crate) fetch_deadline_ns: u64,
    /// Whether the leader said that it gives up its epoch, which moves the deadline.
    pub(crate) has_leader_resigned: bool,
    /// When to look next whether the voters list this replica rightly.
    pub(crate) upkeep_deadline_ns: u64,
    /// Whether this leader knows what a configured voter says of itself, which is in no log.
    pub(crate) has_updated_leader: bool,
    /// Whether a fetch from this leader has succeeded since it became its follower.
    pub(crate) has_fetched: bool,
    /// The snapshot that is being fetched instead of records.
    pub(crate) download: Option<Download>,
    /// The newest read round that this leader told of in this epoch.
    read_round: u64,
}

impl Follower {
    /// Both of its timers run for a fetch timeout.
    pub(crate) fn new(leader: NodeId, deadline_ns: u64) -> Self {
        Self {
            leader,
            fetch_deadline_ns: deadline_ns,
            has_leader_resigned: false,
            upkeep_deadline_ns: deadline_ns,
            has_updated_leader: false,
            has_fetched: false,
            download: None,
            read_round: 0,
        }
    }
}

impl Replica {
    pub(in crate::raft) fn become_follower(
        &mut self,
        epoch: Epoch,
        leader: NodeId,
        reason: &'static str,
    ) {
        assert_ne!(
            leader,
            self.id(),
            "{leader} cannot follow itself in epoch {epoch}"
        );
        let voted_for = if epoch == self.epoch() {
            self.quorum_state.voted_for
        } else {
            None
        };
        let quorum_state = QuorumState {
            epoch,
            leader: Some(leader),
            voted_for,
        };
        let fetch_deadline_ns = self.fresh_fetch_deadline_ns();
        let role = RoleState::Follower(Follower::new(leader, fetch_deadline_ns));
        self.transition(role, quorum_state, reason);
    }

    pub(in crate::raft) fn fresh_fetch_deadline_ns(&self) -> u64 {
        after(self.now_ns, self.configuration.timers.fetch_timeout_ns)
    }

    pub(in crate::raft) fn run_follower_timers(&mut self) -> bool {
        let RoleState::Follower(state) = &self.role else {
            return false;
        };
        let (leader, has_resigned) = (state.leader, state.has_leader_resigned);
        let due = is_due(state.fetch_deadline_ns, self.now_ns);
        if due {
            // What is still asked there is forgotten, and so would be that nobody answered.
            self.note_silence(leader);
        }
        if due && self.is_voter() {
            let reason = if has_resigned {
                "leader resigned"
            } else {
                "fetch timeout"
            };
            self.become_prospective(reason);
        } else if due {
            let quorum_state = self.quorum_state;
            let reason = match has_resigned {
                true => "leader of an observer resigned",
                false => "fetch timeout of an observer",
            };
            self.become_unattached(quorum_state, NEVER_NS, reason);
        }
        due
    }

    /// Fetches from the leader, or looks for a new one while the leader cannot be reached.
    pub(in crate::raft) fn send_follower_fetch(&mut self) {
        let RoleState::Follower(state) = &self.role else {
            return;
        };
        let leader = state.leader;
        let download = state.download;
        // A fetch promises that everything before its offset is durable.
        let durable = self.log.is_flushed() || self.configuration.has(Bug::FollowerNoFsync);
        if self.peers.any_in_flight() || !durable {
            return;
        }
        if !self.peers.is_ready(leader) {
            return self.send_discovery_fetch(Some(leader));
        }
        let (asked, request) = match download {
            Some(download) => {
                let request = self.fetch_snapshot_request(download);
                (Asked::FetchSnapshot, Request::FetchSnapshot(request))
            }
            None => match self.take_due_upkeep() {
                Some(upkeep) => upkeep,
                None => (Asked::Fetch, Request::Fetch(self.fetch_request())),
            },
        };
        self.send(leader, asked, request);
    }

    pub(in crate::raft) fn fetch_request(&self) -> FetchRequest {
        let read_round = match &self.role {
            RoleState::Follower(state) => state.read_round,
            _ => 0,
        };
        FetchRequest {
            cluster_id: self.configuration.cluster_id.clone(),
            replica: self.configuration.key(),
            current_leader_epoch: self.epoch(),
            fetch_offset: self.log.end(),
            last_fetched_epoch: self.log.last_epoch(),
            high_watermark: self.high_watermark,
            max_wait_ms: self.configuration.timers.fetch_max_wait_ns / 1_000_000,
            max_bytes: FETCH_MAX_BYTES,
            read_round,
        }
    }

    /// Takes a successful answer of the leader to the fetch that was in flight.
    pub(in crate::raft) fn on_fetched(&mut self, peer: NodeId, response: FetchResponse) {
        let fetch_deadline_ns = self.fresh_fetch_deadline_ns();
        match &mut self.role {
            RoleState::Follower(state) if state.leader == peer => {
                state.fetch_deadline_ns = fetch_deadline_ns;
                state.has_fetched = true;
                state.read_round = state.read_round.max(response.read_round);
            }
            _ => return self.peers.back_off(self.now_ns, peer),
        }
        if let Some(diverging) = response.diverging_epoch {
            // The response's high watermark is about the leader's log, which this log has just
            // been found to differ from (KAFKA-14704).
            if self.configuration.has(Bug::HighWatermarkBeforeTruncate)
                && let Some(leader_high_watermark) = response.high_watermark
            {
                self.follow_high_watermark(leader_high_watermark);
            }
            return self.truncate_to_agree(peer, diverging);
        }
        if let Some(id) = response.snapshot_id {
            // Neither is anything of this response about this log.
            return self.begin_download(peer, id);
        }
        self.append_fetched(peer, response.batches);
        if let Some(leader_high_watermark) = response.high_watermark {
            self.follow_high_watermark(leader_high_watermark);
        }
    }

    /// Appends batches up to the first that cannot follow; the rest is fetched again (KAFKA-18723).
    pub(in crate::raft) fn append_fetched(&mut self, peer: NodeId, batches: Vec<Batch>) {
        for batch in batches {
            let records = control_records_of(&batch);
            if batch.epoch() > self.epoch() || !self.log.accepts(&batch) || records.is_err() {
                return self.peers.back_off(self.now_ns, peer);
            }
            if batch.epoch() == self.epoch() {
                for (_, record) in records.into_iter().flatten() {
                    self.assert_elected_by_same_voters(&record);
                }
            }
            self.append(batch);
        }
    }

    /// Where voters are configured, nothing but their being the same everywhere makes majorities meet. What was
    /// elected before is past: only the present leader counts on this replica.
    ///
    /// # Panics
    /// If the record says that other voters elected the present leader.
    fn assert_elected_by_same_voters(&self, record: &ControlRecord) {
        let ControlRecord::LeaderChange { leader, voters, .. } = record else {
            return;
        };
        let configured = self.voter_history.latest();
        if self.voter_history.kraft_version() >= 1 || configured.is_empty() {
            return;
        }
        assert!(
            configured.ids().eq(voters.iter().copied()),
            "{leader} leads epoch {} for the voters {}, but {} is configured with the voters {}: with different \
             voters, what was acknowledged can be lost. Nothing of it was stored. Stop both, and start all nodes \
             with the same voters (--peer)",
            self.epoch(),
            names(voters.iter().copied()),
            self.id(),
            names(configured.ids()),
        );
    }

    pub(in crate::raft) fn follow_high_watermark(&mut self, leader_high_watermark: Offset) {
        let known = leader_high_watermark.min(self.log.end());
        // A correct leader never claims less than was committed before. If one does, what was
        // exposed stays exposed here, and the trace shows the claim to whoever judges.
        if known >= self.committed && self.high_watermark != Some(known) {
            self.set_high_watermark(known);
        }
    }

    /// Cuts off what the leader does not have, as far as one answer tells. May take several rounds.
    fn truncate_to_agree(&mut self, peer: NodeId, diverging: DivergingEpoch) {
        let local = self.log.end_of_epoch(diverging.epoch);
        let end = if local.epoch == diverging.epoch {
            local.end_offset.min(diverging.end_offset)
        } else {
            local.end_offset
        };
        if end < self.log.start() || end >= self.log.end() {
            return self.peers.back_off(self.now_ns, peer);
        }
        if self.configuration.has(Bug::TruncateBelowHighWatermark) {
            self.forget_commits_from(end);
        }
        assert!(
            end >= self.committed,
            "{} cannot truncate to {end}: everything below {} is committed, but leader {peer} of \
             epoch {} does not have it (it ends epoch {} at {})",
            self.id(),
            self.committed,
            self.epoch(),
            diverging.epoch,
            diverging.end_offset
        );
        if self.configuration.has(Bug::EpochCacheNotTruncated) {
            self.log.note_truncate_keeping_epochs(end);
        } else {
            self.log.note_truncate(end);
        }
        // A change of the voters that is cut off was never committed: what was before it is in force again.
        self.voter_history.truncate(end);
        self.effect(Effect::Truncate(end));
        self.trace(TraceEvent::Truncate { log_end: end });
    }

    /// The seeded bug B15: what was committed is forgotten, so nothing stops the truncation.
    fn forget_commits_from(&mut self, end: Offset) {
        self.committed = self.committed.min(end);
        self.high_watermark = self.high_watermark.map(|known| known.min(end));
    }

    /// The leader resigned: the best successor gives up on it first, the others staggered after.
    pub(in crate::raft) fn on_leader_resigned(
        &mut self,
        leader: NodeId,
        successors: &[ReplicaKey],
    ) {
        let key = self.configuration.key();
        let delay_ns = resignation_delay_ns(
            successors
                .iter()
                .position(|successor| successor.accepts(&key)),
            successors.len(),
            self.configuration.timers.election_backoff_max_ns,
        );
        let deadline_ns = after(self.now_ns, delay_ns);
        if let RoleState::Follower(state) = &mut self.role
            && state.leader == leader
        {
            state.fetch_deadline_ns = deadline_ns;
            state.has_leader_resigned = true;
        }
    }
}

fn names(nodes: impl Iterator<Item = NodeId>) -> String {
    let names: Vec<String> = nodes.map(|node| node.to_string()).collect();
    names.join(", ")
}

/// How long a follower waits after its leader resigned (KIP-595). It doubles with each place in the
/// list of successors.
fn resignation_delay_ns(position: Option<usize>, successor_count: usize, longest_ns: u64) -> u64 {
    match position {
        Some(0) => 0,
        None => longest_ns,
        Some(position) => {
            let shift = |places: usize| u32::try_from(places).unwrap_or(u32::MAX);
            let shortest_ns = longest_ns
                .checked_shr(shift(successor_count - 1))
                .unwrap_or(0);
            let factor = 1_u64.checked_shl(shift(position - 1)).unwrap_or(u64::MAX);
            shortest_ns.saturating_mul(factor).min(longest_ns)
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn successors_are_staggered_by_their_place() {
        let delay = |position, count| resignation_delay_ns(position, count, 1_000);
        assert_eq!(delay(Some(0), 4), 0);
        assert_eq!(delay(Some(1), 4), 125);
        assert_eq!(delay(Some(2), 4), 250);
        assert_eq!(delay(Some(3), 4), 500);
        assert_eq!(delay(Some(1), 2), 500);
        assert_eq!(delay(None, 4), 1_000);
        assert_eq!(delay(None, 0), 1_000);
        assert_eq!(delay(Some(90), 100), 0);
    }
}
