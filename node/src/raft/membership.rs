//! Owns changes of the voters on the leader: adding, removing and updating one voter (KIP-853).
//! Never has two changes under way: the next may begin once the one before is committed.
//!
//! Three conditions together make single changes safe: no change is under way, the leader has committed
//! a record of its own epoch (without that, two leaders can each make a change that the other does not
//! know of; Ongaro, raft-dev 2015), and the latest set is committed. A set is in force once it is in the
//! log. It enters the log in the step that decides about it, so none can wait outside of it and be
//! overlooked (review of KAFKA-20661).

use super::peers::Asked;
use super::timers::after;
use super::voter_changes::{Kind, Stage, VoterChange};
use super::{Correlation, Replica, Ticket};
use crate::ids::{NodeId, ReplicaKey};
use crate::message::{
    AddRaftVoterRequest, ApiVersionsRequest, ApiVersionsResponse, ErrorCode,
    RemoveRaftVoterRequest, Request, UpdateRaftVoterRequest,
};
use crate::mutants::Bug;
use crate::voters::{VersionRange, Voter, VoterSet};

const NS_PER_MS: u64 = 1_000_000;

/// What the answer to a change says of a voter that cannot be reached, before it says where.
pub(crate) const DOES_NOT_ANSWER: &str = "does not answer at";

/// Why a change is not made.
#[derive(Debug)]
pub(super) struct Refused {
    pub(super) error: ErrorCode,
    pub(super) message: String,
}

pub(super) fn refused<T>(error: ErrorCode, message: impl Into<String>) -> Result<T, Refused> {
    let message = message.into();
    Err(Refused { error, message })
}

impl Replica {
    pub(super) fn on_add_voter(&mut self, ticket: Ticket, request: AddRaftVoterRequest) {
        if let Err(refusal) = self.begin_add(ticket, request) {
            self.reply_voter_change(Kind::Add, Some(ticket), refusal.error, refusal.message);
        }
    }

    pub(super) fn on_remove_voter(&mut self, ticket: Ticket, request: RemoveRaftVoterRequest) {
        if let Err(refusal) = self.begin_remove(ticket, &request) {
            self.reply_voter_change(Kind::Remove, Some(ticket), refusal.error, refusal.message);
        }
    }

    pub(super) fn on_update_voter(&mut self, ticket: Ticket, request: UpdateRaftVoterRequest) {
        if let Err(refusal) = self.begin_update(ticket, request) {
            self.reply_voter_change(Kind::Update, Some(ticket), refusal.error, refusal.message);
        }
    }

    fn begin_add(&mut self, ticket: Ticket, request: AddRaftVoterRequest) -> Result<(), Refused> {
        let key = request.voter;
        self.check_leads()?;
        check_names_voter(&key)?;
        check_endpoint(&request.endpoint)?;
        self.check_none_under_way()?;
        self.check_high_watermark()?;
        self.check_version()?;
        self.check_latest_committed()?;
        if self.voter_history.latest().contains_id(key.id) {
            return refused(
                ErrorCode::DuplicateVoter,
                format!(
                    "{} is a voter already; remove it before adding it again",
                    key.id
                ),
            );
        }
        let voter = Voter {
            key,
            endpoint: Some(request.endpoint),
            versions: VersionRange::SUPPORTED,
        };
        let timeout_ns = request.timeout_ms.saturating_mul(NS_PER_MS);
        self.probe(
            Kind::Add,
            ticket,
            voter,
            timeout_ns,
            request.ack_when_committed,
        )
    }

    fn begin_remove(
        &mut self,
        ticket: Ticket,
        request: &RemoveRaftVoterRequest,
    ) -> Result<(), Refused> {
        let key = request.voter;
        self.check_leads()?;
        check_names_voter(&key)?;
        self.check_none_under_way()?;
        self.check_high_watermark()?;
        self.check_version()?;
        self.check_latest_committed()?;
        let voters = self.voter_history.latest();
        if !voters.contains(&key) {
            return refused(ErrorCode::VoterNotFound, format!("{key} is no voter"));
        }
        if voters.len() == 1 {
            return refused(
                ErrorCode::VoterNotFound,
                format!("{key} is the only voter; add another one before removing it"),
            );
        }
        let voters = voters.without(key.id);
        let deadline_ns = self.change_deadline_ns();
        self.append_change(Kind::Remove, Some(ticket), deadline_ns, voters);
        if key == self.configuration.key() && self.configuration.has(Bug::RemovedLeaderLeavesEarly)
        {
            self.resign("removed");
        }
        Ok(())
    }

    fn begin_update(
        &mut self,
        ticket: Ticket,
        request: UpdateRaftVoterRequest,
    ) -> Result<(), Refused> {
        if request.current_leader_epoch < self.epoch() {
            let text = format!("the present epoch is {}", self.epoch());
            return refused(ErrorCode::FencedLeaderEpoch, text);
        }
        if request.current_leader_epoch > self.epoch() {
            let text = format!("the epoch known here is {}", self.epoch());
            return refused(ErrorCode::UnknownLeaderEpoch, text);
        }
        self.check_leads()?;
        check_names_voter(&request.voter)?;
        check_endpoint(&request.endpoint)?;
        if request.versions.min > request.versions.max {
            let VersionRange { min, max } = request.versions;
            let text = format!("no version is at least {min} and at most {max}");
            return refused(ErrorCode::InvalidRequest, text);
        }
        self.check_none_under_way()?;
        self.check_high_watermark()?;
        let voter = Voter {
            key: request.voter,
            endpoint: Some(request.endpoint),
            versions: request.versions,
        };
        // The voter does not fetch meanwhile: that its leader cannot reach it must not cost it its fetch timeout.
        let timers = &self.configuration.timers;
        let timeout_ns = timers.request_timeout_ns.min(timers.fetch_timeout_ns / 4);
        self.probe(Kind::Update, ticket, voter, timeout_ns, false)
    }

    pub(super) fn check_leads(&self) -> Result<(), Refused> {
        match (self.as_leader(), self.leader()) {
            (Some(_), _) => Ok(()),
            _ if self.stands_down() => refused(
                ErrorCode::BrokerNotAvailable,
                format!("{} is shutting down; ask whoever leads next", self.id()),
            ),
            (None, Some(leader)) => refused(
                ErrorCode::NotLeaderOrFollower,
                format!("{} does not lead; {leader} does", self.id()),
            ),
            (None, None) => refused(
                ErrorCode::NotLeaderOrFollower,
                format!("{} does not lead, and knows nobody who does", self.id()),
            ),
        }
    }

    pub(super) fn check_none_under_way(&mut self) -> Result<(), Refused> {
        self.expire_voter_changes();
        let under_way = self
            .as_leader()
            .map_or(0, |leader| leader.voter_changes.len());
        if under_way == 0 || self.configuration.has(Bug::TwoPendingChanges) {
            return Ok(());
        }
        refused(
            ErrorCode::RequestTimedOut,
            "another change of the voters is under way; try again when it is done",
        )
    }

    pub(super) fn check_high_watermark(&self) -> Result<(), Refused> {
        if self.high_watermark.is_some()
            || self.configuration.has(Bug::AddVoterNoHighWatermarkCheck)
        {
            return Ok(());
        }
        refused(
            ErrorCode::RequestTimedOut,
            format!(
                "the leader of epoch {} does not know yet what is committed; try again",
                self.epoch()
            ),
        )
    }

    fn check_version(&self) -> Result<(), Refused> {
        if self.voter_history.kraft_version() >= 1 {
            return Ok(());
        }
        refused(
            ErrorCode::UnsupportedVersion,
            "the voters are configured (kraft.version 0) and cannot be changed; kraft-node upgrade puts \
             them into the log, where they can",
        )
    }

    pub(super) fn check_latest_committed(&self) -> Result<(), Refused> {
        let committed = match self.configuration.bug {
            Some(Bug::TwoPendingChanges) => return Ok(()),
            Some(Bug::AddVoterNoHighWatermarkCheck) => Some(self.committed),
            _ => self.high_watermark,
        };
        let latest = self.voter_history.latest_offset();
        if latest.is_none_or(|latest| committed.is_some_and(|committed| latest < committed)) {
            return Ok(());
        }
        refused(
            ErrorCode::RequestTimedOut,
            "the last change of the voters is not committed yet; try again",
        )
    }

    fn change_deadline_ns(&self) -> u64 {
        after(self.now_ns, self.configuration.timers.request_timeout_ns)
    }

    /// Asks the voter for its key and versions, so that nobody becomes a voter, or is said to listen
    /// somewhere, who cannot be reached there (KAFKA-20661).
    fn probe(
        &mut self,
        kind: Kind,
        ticket: Ticket,
        voter: Voter,
        timeout_ns: u64,
        ack_when_committed: bool,
    ) -> Result<(), Refused> {
        let (id, endpoint) = (voter.key.id, voter.endpoint.clone());
        if id == self.id() || !self.peers.is_ready(id) {
            return refused(
                ErrorCode::RequestTimedOut,
                format!("{id} cannot be asked what it supports at the moment; try again"),
            );
        }
        let request = Request::ApiVersions(ApiVersionsRequest {
            cluster_id: self.configuration.cluster_id.clone(),
        });
        let correlation = self.send_to(id, endpoint, Asked::ApiVersions, request);
        let deadline_ns = after(self.now_ns, timeout_ns.max(1));
        if let Some(leader) = self.as_leader_mut() {
            leader.voter_changes.push(VoterChange {
                kind,
                ticket: Some(ticket),
                deadline_ns,
                stage: Stage::Probing {
                    correlation,
                    voter,
                    ack_when_committed,
                },
            });
        }
        Ok(())
    }

    /// Takes the change that waits for the answer to this request.
    fn take_probing(&mut self, wanted: Correlation) -> Option<VoterChange> {
        let leader = self.as_leader_mut()?;
        let at = leader.voter_changes.iter().position(|change| {
            matches!(change.stage, Stage::Probing { correlation, .. } if correlation == wanted)
        })?;
        Some(leader.voter_changes.remove(at))
    }

    /// A request was not answered, or not by what answers it.
    pub(super) fn on_unanswered_probe(&mut self, correlation: Correlation) {
        let Some(change) = self.take_probing(correlation) else {
            return;
        };
        if let Stage::Probing { voter, .. } = change.stage {
            let (error, text) = (ErrorCode::RequestTimedOut, unreachable_text(&voter));
            self.reply_voter_change(change.kind, change.ticket, error, text);
        }
    }

    /// The replica that is to be a voter says who it is and what it supports.
    pub(super) fn on_probed(&mut self, correlation: Correlation, response: &ApiVersionsResponse) {
        let Some(change) = self.take_probing(correlation) else {
            return;
        };
        let VoterChange {
            kind,
            ticket,
            deadline_ns,
            stage,
        } = change;
        let Stage::Probing {
            voter,
            ack_when_committed,
            ..
        } = stage
        else {
            return;
        };
        match self.check_probed(kind, voter.clone(), response) {
            Err(refusal) => {
                self.reply_voter_change(kind, ticket, refusal.error, refusal.message);
            }
            Ok(_) if self.voter_history.kraft_version() == 0 => {
                self.note_reported(voter);
                self.reply_voter_change(kind, ticket, ErrorCode::None, String::new());
            }
            Ok(voters) => {
                let (now, later) = if ack_when_committed {
                    (None, ticket)
                } else {
                    (ticket, None)
                };
                self.append_change(kind, later, deadline_ns, voters);
                self.reply_voter_change(kind, now, ErrorCode::None, String::new());
            }
        }
    }

    /// The set of voters that the change leads to.
    fn check_probed(
        &self,
        kind: Kind,
        mut voter: Voter,
        response: &ApiVersionsResponse,
    ) -> Result<VoterSet, Refused> {
        if response.error != ErrorCode::None {
            return refused(ErrorCode::RequestTimedOut, unreachable_text(&voter));
        }
        if response.replica != voter.key {
            return refused(
                ErrorCode::InvalidRequest,
                format!(
                    "{} listens where {} was said to listen",
                    response.replica, voter.key
                ),
            );
        }
        let VersionRange { min, max } = response.versions;
        if kind == Kind::Update && response.versions != voter.versions {
            return refused(
                ErrorCode::InvalidRequest,
                format!(
                    "{} supports kraft.version {min} to {max}, not what it says",
                    voter.key
                ),
            );
        }
        let version = self.voter_history.kraft_version();
        if !response.versions.contains(version) {
            return refused(
                ErrorCode::InvalidRequest,
                format!(
                    "kraft.version {version} is in force; {} supports {min} to {max}",
                    voter.key
                ),
            );
        }
        let voters = self.voter_history.latest();
        match kind {
            Kind::Update => {
                self.check_latest_committed()?;
                if !voters.contains(&voter.key) {
                    let text = format!("{} is no voter", voter.key);
                    return refused(ErrorCode::VoterNotFound, text);
                }
            }
            _ => self.check_caught_up(&voter.key)?,
        }
        voter.versions = response.versions;
        Ok(voters.with(voter))
    }

    /// A voter that lags would count, but could not help to commit.
    fn check_caught_up(&self, key: &ReplicaKey) -> Result<(), Refused> {
        let (voters, now_ns) = (self.voter_history.latest(), self.now_ns);
        let is_caught_up = self.as_leader().is_some_and(|leader| {
            let mut observers = leader.observers(voters, now_ns);
            observers.any(|(known, progress)| known == key && progress.last_caught_up_ns.is_some())
        });
        if is_caught_up {
            return Ok(());
        }
        refused(
            ErrorCode::RequestTimedOut,
            format!("{key} has not caught up with the leader's log yet; try again"),
        )
    }
}

fn check_names_voter(key: &ReplicaKey) -> Result<(), Refused> {
    let NodeId(id) = key.id;
    // Kafka writes a missing directory id as 0, so a record could not name it.
    if id >= 0 && key.directory_id.is_some_and(|directory| directory.0 != 0) {
        return Ok(());
    }
    refused(
        ErrorCode::InvalidRequest,
        "a voter is named by an id of at least 0 and its directory id",
    )
}

fn check_endpoint(endpoint: &str) -> Result<(), Refused> {
    if !endpoint.is_empty() {
        return Ok(());
    }
    refused(
        ErrorCode::InvalidRequest,
        "a voter needs an endpoint where the others reach it",
    )
}

pub(super) fn unreachable_text(voter: &Voter) -> String {
    let endpoint = voter.endpoint.as_deref().unwrap_or_default();
    format!("{} {DOES_NOT_ANSWER} {endpoint}", voter.key)
}
