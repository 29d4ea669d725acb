//! Owns the way from voters that are configured to voters in the log: what voters report of themselves, and
//! the upgrade of kraft.version (KIP-853).
//! Never goes back: with voters in the log, the configured ones may be wrong.

use super::membership::{Refused, refused};
use super::timers::after;
use super::voter_changes::{Kind, Stage, VoterChange};
use super::{Replica, Ticket};
use crate::batch::Batch;
use crate::control_record::ControlRecord;
use crate::ids::NodeId;
use crate::message::{ErrorCode, UpdateFeaturesRequest};
use crate::voters::{VersionRange, Voter, VoterSet};

const NS_PER_MS: u64 = 1_000_000;

impl Replica {
    /// Takes note of what a configured voter says of itself. It is in no log, so the next leader has to be
    /// told again.
    pub(super) fn note_reported(&mut self, voter: Voter) {
        if let Some(leader) = self.as_leader_mut() {
            leader.reported.insert(voter.key.id, voter);
            self.endpoint_news_count += 1;
        }
    }

    pub(super) fn on_update_features(&mut self, ticket: Ticket, request: &UpdateFeaturesRequest) {
        if let Err(refusal) = self.begin_upgrade(ticket, request) {
            self.reply_voter_change(Kind::Upgrade, Some(ticket), refusal.error, refusal.message);
        }
    }

    fn begin_upgrade(
        &mut self,
        ticket: Ticket,
        request: &UpdateFeaturesRequest,
    ) -> Result<(), Refused> {
        self.check_leads()?;
        self.check_none_under_way()?;
        self.check_high_watermark()?;
        let (present, wanted) = (self.voter_history.kraft_version(), request.kraft_version);
        let VersionRange { min, max } = VersionRange::SUPPORTED;
        if !VersionRange::SUPPORTED.contains(wanted) {
            return refused(
                ErrorCode::UnsupportedVersion,
                format!("kraft.version {wanted} is not known here, only {min} to {max}"),
            );
        }
        if wanted < present {
            return refused(
                ErrorCode::InvalidRequest,
                format!("kraft.version is {present} and never goes back to {wanted}"),
            );
        }
        self.check_latest_committed()?;
        let voters = match wanted > present {
            true => Some(self.reported_voters(wanted)?),
            false => None,
        };
        let Some(voters) = voters.filter(|_| !request.dry_run) else {
            // Nothing is to be done.
            self.reply_voter_change(Kind::Upgrade, Some(ticket), ErrorCode::None, String::new());
            return Ok(());
        };
        self.append_upgrade(ticket, request, voters);
        Ok(())
    }

    /// Both in one batch: there is no moment in which voters may change, but are not in the log.
    fn append_upgrade(
        &mut self,
        ticket: Ticket,
        request: &UpdateFeaturesRequest,
        voters: VoterSet,
    ) {
        let version = request.kraft_version;
        let records = [
            ControlRecord::KraftVersion { version },
            ControlRecord::Voters { voters },
        ];
        let payloads: Vec<_> = records.iter().map(ControlRecord::encode).collect();
        let batch = Batch::build(self.log.end(), self.epoch(), 0, true, &payloads);
        let offset = batch.last_offset();
        self.append(batch);
        let timeout_ns = request.timeout_ms.saturating_mul(NS_PER_MS).max(1);
        let deadline_ns = after(self.now_ns, timeout_ns);
        if let Some(leader) = self.as_leader_mut() {
            leader.forget_nameless();
            leader.voter_changes.push(VoterChange {
                kind: Kind::Upgrade,
                ticket: Some(ticket),
                deadline_ns,
                stage: Stage::Appended { offset },
            });
        }
    }

    /// The configured voters with all that a record says of them.
    fn reported_voters(&self, version: u16) -> Result<VoterSet, Refused> {
        let ids = self.voter_history.latest().ids();
        let voters = ids.map(|id| self.reported_voter(id, version));
        Ok(voters.collect::<Result<Vec<_>, _>>()?.into())
    }

    fn reported_voter(&self, id: NodeId, version: u16) -> Result<Voter, Refused> {
        let own = Voter {
            key: self.configuration.key(),
            endpoint: self.configuration.endpoint.clone(),
            versions: VersionRange::SUPPORTED,
        };
        let reported = match self.as_leader() {
            _ if id == self.id() => Some(&own),
            Some(leader) => leader.reported.get(&id),
            None => None,
        };
        let complete = reported
            .filter(|voter| voter.key.directory_id.is_some() && voter.endpoint.is_some())
            .cloned();
        let Some(voter) = complete else {
            return refused(
                ErrorCode::RequestTimedOut,
                format!(
                    "{id} has not told the leader of epoch {} yet where it listens and what its directory \
                     is; it does so within {} ms if it follows and has an address to announce \
                     (--advertise). Try again",
                    self.epoch(),
                    2 * self.configuration.timers.fetch_timeout_ns / NS_PER_MS
                ),
            );
        };
        let VersionRange { min, max } = voter.versions;
        if !voter.versions.contains(version) {
            return refused(
                ErrorCode::InvalidRequest,
                format!("{} supports kraft.version {min} to {max} only", voter.key),
            );
        }
        Ok(voter)
    }
}
