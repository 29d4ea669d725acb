//! Owns what is kept of a campaign beside the runs: its data, and its page.
//! Never costs a campaign its outcome: what cannot be kept is noted.

use chrono::{DateTime, Utc};
use results::campaign::{
    Campaign, CampaignCoverage, FailureGroup, HuntRow, OUTCOMES_MAX_COUNT, SeedResult,
};
use results::manifest::{RunOptions, StopReason};
use results::store::Store;

use crate::memory;
use crate::progress::Progress;
use crate::simulation::{CampaignSummary, SeedOutcome};

/// How often what is known so far is kept, in milliseconds.
const KEEP_EVERY_MS: u64 = 5_000;

/// What does not change while a campaign goes on.
#[derive(Debug)]
pub(super) struct Kept<'a> {
    store: &'a Store,
    blank: Campaign,
    fail_fast: bool,
    last_ms: u64,
}

/// What a campaign is about.
#[derive(Debug)]
pub(super) struct About<'a> {
    /// Beginning of its name.
    pub(super) label: &'a str,
    /// The command line.
    pub(super) command: Vec<String>,
    /// The first and the last seed.
    pub(super) seeds: (u64, u64),
    /// Options of the first seed.
    pub(super) options: &'a RunOptions,
    /// Families that seeds draw from, if each draws its own.
    pub(super) drawn_from: Option<String>,
    /// Whether each seed draws its workload, too.
    pub(super) draws_workload: bool,
    /// Whether the first violation ends it.
    pub(super) fail_fast: bool,
}

impl<'a> Kept<'a> {
    /// Begins a campaign that started now.
    pub(super) fn new(store: &'a Store, about: About<'_>) -> Self {
        let now: DateTime<Utc> = Utc::now();
        let (first, last) = about.seeds;
        let options = about.options;
        let is_swarm = about.drawn_from.is_some();
        let blank = Campaign {
            format_version: results::FORMAT_VERSION,
            name: format!(
                "{}-{}-{first}-{last}",
                about.label,
                now.format("%Y%m%dT%H%M%S%3fZ")
            ),
            command: about.command,
            harness_version: env!("CARGO_PKG_VERSION").into(),
            started: now,
            ended: None,
            stopped_by: None,
            first_seed: first,
            last_seed: last,
            workload: match about.draws_workload {
                true => "drawn for every seed".into(),
                false => options.workload.clone(),
            },
            nemesis: match about.drawn_from {
                Some(families) => vec![families],
                None => options.nemesis.clone(),
            },
            is_swarm,
            bug: options.bug.clone(),
            done_count: 0,
            valid_count: 0,
            invalid_count: 0,
            unknown_count: 0,
            simulated_ms: 0,
            elapsed_ms: 0,
            event_count: 0,
            repeated_count: 0,
            peak_memory_bytes: None,
            families: Default::default(),
            required_but_missing: Vec::new(),
            coverage: None,
            hunts: Vec::new(),
            groups: Vec::new(),
        };
        Self {
            store,
            blank,
            fail_fast: about.fail_fast,
            last_ms: 0,
        }
    }

    /// The same campaign, in which seeded bugs were hunted, too.
    pub(super) fn with_hunts(mut self, hunts: Vec<HuntRow>) -> Self {
        self.blank.hunts = hunts;
        self
    }

    /// Keeps what is known so far, unless that was done a moment ago.
    pub(super) fn show(&mut self, summary: &CampaignSummary, progress: &Progress) {
        let elapsed_ms = summary.elapsed.as_millis() as u64;
        if !self.has_page() || elapsed_ms < self.last_ms.saturating_add(KEEP_EVERY_MS) {
            return;
        }
        self.last_ms = elapsed_ms;
        self.write(&self.filled(summary), progress);
    }

    /// What came out, and the path of its page. A single seed is no campaign: nothing is kept of it. `missing` is
    /// what had to be hit and never was.
    pub(super) fn finish(
        &self,
        summary: &CampaignSummary,
        missing: &[&str],
        progress: &Progress,
    ) -> (Campaign, Option<String>) {
        let mut campaign = self.filled(summary);
        let now = Utc::now();
        campaign.ended = Some(now);
        if !campaign.hunts.is_empty() {
            let took = now.signed_duration_since(campaign.started);
            campaign.elapsed_ms = took.num_milliseconds().max(0).unsigned_abs();
        }
        campaign.stopped_by = stop_reason(summary, self.fail_fast);
        campaign.required_but_missing = missing.iter().map(|&cell| cell.to_owned()).collect();
        if !self.has_page() {
            return (campaign, None);
        }
        self.write(&campaign, progress);
        let page = self.store.campaign_page_path(&campaign.name);
        (campaign, Some(page.display().to_string()))
    }

    fn has_page(&self) -> bool {
        self.blank.first_seed < self.blank.last_seed || !self.blank.hunts.is_empty()
    }

    fn write(&self, campaign: &Campaign, progress: &Progress) {
        let written = self
            .store
            .write_campaign(campaign)
            .map_err(results_report::ReportError::from)
            .and_then(|()| results_report::render_campaign(self.store, campaign));
        if let Err(error) = written {
            progress.note(&format!("the campaign's page could not be drawn: {error}"));
        }
    }

    fn filled(&self, summary: &CampaignSummary) -> Campaign {
        let groups = summary.groups().into_iter();
        Campaign {
            done_count: summary.done_count,
            valid_count: summary.valid_count,
            invalid_count: summary.invalid_count,
            unknown_count: summary.unknown_count,
            simulated_ms: (summary.simulated_ns / 1_000_000) as u64,
            elapsed_ms: summary.elapsed.as_millis() as u64,
            event_count: summary.event_count,
            repeated_count: summary.repeated_count,
            peak_memory_bytes: memory::peak_bytes(),
            families: summary.by_family.clone(),
            coverage: coverage(summary),
            groups: groups
                .map(|(valid, failures, outcomes)| FailureGroup {
                    valid,
                    failures,
                    seed_count: outcomes.len() as u64,
                    outcomes: told(outcomes),
                })
                .collect(),
            ..self.blank.clone()
        }
    }
}

/// What faults hit; nothing where there was nothing to hit.
fn coverage(summary: &CampaignSummary) -> Option<CampaignCoverage> {
    let found = &summary.coverage;
    (!found.counts.is_empty()).then(|| CampaignCoverage {
        covered_count: found.covered_count() as u64,
        cell_count: found.counts.len() as u64,
        table: found.table(),
        first_seeds: summary.first_seeds.clone(),
    })
}

/// What ended a campaign before all seeds were done, if anything did.
pub(super) fn stop_reason(summary: &CampaignSummary, fail_fast: bool) -> Option<StopReason> {
    match () {
        () if summary.interrupted => Some(StopReason::User),
        () if fail_fast
            && summary.invalid_count > 0
            && summary.done_count < summary.asked_count =>
        {
            Some(StopReason::Violation)
        }
        () => None,
    }
}

/// The first outcomes, and all of which there is a run.
fn told(mut outcomes: Vec<&SeedOutcome>) -> Vec<SeedResult> {
    outcomes.sort_by_key(|outcome| outcome.seed);
    let (first, later) = outcomes.split_at(outcomes.len().min(OUTCOMES_MAX_COUNT));
    let stored = later.iter().filter(|outcome| outcome.stored_as.is_some());
    let told = first.iter().chain(stored).map(|outcome| SeedResult {
        seed: outcome.seed,
        summary: outcome.summary.clone(),
        run: outcome.stored_as.clone(),
    });
    told.collect()
}

#[cfg(test)]
mod tests {
    use results::verdict::Validity;

    use super::*;

    fn outcome(seed: u64, stored_as: Option<&str>) -> SeedOutcome {
        SeedOutcome {
            seed,
            valid: Validity::Invalid,
            signature: vec!["linearizable".into()],
            summary: "why".into(),
            stored_as: stored_as.map(Into::into),
        }
    }

    #[test]
    fn seeds_beyond_the_first_are_kept_only_with_a_run() {
        let mut outcomes: Vec<_> = (1..=300).map(|seed| outcome(seed, None)).collect();
        outcomes[249].stored_as = Some("run-250".into());
        let told = told(outcomes.iter().rev().collect());
        assert_eq!(told.len(), OUTCOMES_MAX_COUNT + 1);
        assert_eq!(told[0].seed, 1);
        assert_eq!(told[OUTCOMES_MAX_COUNT].run.as_deref(), Some("run-250"));
    }

    #[test]
    fn a_campaign_tells_what_stopped_it() {
        let mut summary = CampaignSummary {
            asked_count: 10,
            done_count: 4,
            invalid_count: 1,
            ..CampaignSummary::default()
        };
        assert_eq!(stop_reason(&summary, true), Some(StopReason::Violation));
        assert_eq!(stop_reason(&summary, false), None);
        summary.interrupted = true;
        assert_eq!(stop_reason(&summary, true), Some(StopReason::User));
    }
}
