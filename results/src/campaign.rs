//! Owns what came out of a campaign: one command that ran many seeds.
//! Never holds a run: those that were stored have folders of their own.

use std::collections::{BTreeMap, BTreeSet};
use std::time::Duration;

use chrono::{DateTime, Utc};
use serde::{Deserialize, Serialize};
use serde_json::Value;

use crate::manifest::StopReason;
use crate::verdict::Validity;

/// Seeds of one group that are told one by one; of the others only the number is kept.
pub const OUTCOMES_MAX_COUNT: usize = 200;

/// A campaign without an end whose file was not written for longer has died.
const LIFE_SIGN: Duration = Duration::from_secs(60);

/// `campaigns/<name>.json`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Campaign {
    /// See [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// Name, which is also that of its files.
    pub name: String,
    /// The command line, as given.
    pub command: Vec<String>,
    /// Version of the harness.
    pub harness_version: String,
    /// Wall-clock start.
    pub started: DateTime<Utc>,
    /// Wall-clock end; absent while it goes on, and for ever after a crash of the harness.
    #[serde(default)]
    pub ended: Option<DateTime<Utc>>,
    /// What ended it before all seeds were done, if anything did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub stopped_by: Option<StopReason>,
    /// The first seed that was asked for.
    pub first_seed: u64,
    /// The last one.
    pub last_seed: u64,
    /// Name of the workload.
    pub workload: String,
    /// Families of faults that every seed has, or is drawn from.
    pub nemesis: Vec<String>,
    /// Whether every seed was another test.
    #[serde(default)]
    pub is_swarm: bool,
    /// Seeded bug that was on in every node.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bug: Option<String>,
    /// Seeds that are over.
    pub done_count: u64,
    /// Of these: kept all promises.
    pub valid_count: u64,
    /// Broke one.
    pub invalid_count: u64,
    /// Nobody can say.
    pub unknown_count: u64,
    /// Virtual time that passed in all seeds.
    pub simulated_ms: u64,
    /// Wall-clock time.
    pub elapsed_ms: u64,
    /// Events that happened in all seeds.
    pub event_count: u64,
    /// Seeds that were run more than once, with the same events each time.
    pub repeated_count: u64,
    /// Most memory that the harness used, where the system tells.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub peak_memory_bytes: Option<u64>,
    /// By family of faults: what came of it.
    #[serde(default)]
    pub families: BTreeMap<String, FamilyYield>,
    /// What had to be hit by some seed, and was hit by none: cells of coverage.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub required_but_missing: Vec<String>,
    /// What faults hit, in which role and phase, in all seeds.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub coverage: Option<CampaignCoverage>,
    /// Where seeded bugs were hunted: what came of it. The seeds of the campaign are then those of the unmodified node.
    #[serde(default, skip_serializing_if = "Vec::is_empty")]
    pub hunts: Vec<HuntRow>,
    /// Seeds that are not valid by what they violated, the worst and largest group first.
    pub groups: Vec<FailureGroup>,
}

/// What faults hit in many seeds.
#[derive(Debug, Clone, Default, PartialEq, Serialize, Deserialize)]
pub struct CampaignCoverage {
    /// Cells that were hit.
    pub covered_count: u64,
    /// Cells that could be hit.
    pub cell_count: u64,
    /// Rows and columns, as in the evidence of the coverage checker.
    pub table: Value,
    /// The lowest seed that hit each cell that was hit.
    #[serde(default)]
    pub first_seeds: BTreeMap<String, u64>,
}

/// What came of looking for one seeded bug in one way, several times.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct HuntRow {
    /// Id of the bug.
    pub bug: String,
    /// Its name.
    pub name: String,
    /// How soon it must be noticed: P0, P1, P2.
    pub priority: String,
    /// How it was looked for.
    pub way: String,
    /// How often it was looked for; 0 if it never was.
    pub hunt_count: u64,
    /// How often it was noticed.
    pub noticed_count: u64,
    /// For people: seeds until it was noticed.
    pub seeds: String,
    /// For people: seconds until it was noticed.
    pub seconds: String,
    /// For people: what noticed it.
    pub noticed_by: String,
}

/// What came of one family of faults.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, Serialize, Deserialize)]
pub struct FamilyYield {
    /// Seeds in which it was on.
    pub seed_count: u64,
    /// How many of these were invalid.
    pub invalid_count: u64,
    /// Its faults that were due.
    pub fault_count: u64,
    /// How many of these had an effect.
    pub effective_count: u64,
}

/// Seeds that failed in the same way.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FailureGroup {
    /// Invalid or unknown.
    pub valid: Validity,
    /// What was violated, as [`crate::verdict::Verdict::failure_signature`] has it; for an unknown verdict,
    /// the checkers that could not decide.
    pub failures: Vec<String>,
    /// How many seeds there are.
    pub seed_count: u64,
    /// The first of them, ascending; [`OUTCOMES_MAX_COUNT`] at most, but all that were stored.
    pub outcomes: Vec<SeedResult>,
}

/// How one seed failed.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct SeedResult {
    /// The seed.
    pub seed: u64,
    /// Why, for people.
    pub summary: String,
    /// Name of the run folder, if it was stored.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub run: Option<String>,
}

impl Campaign {
    /// How many seeds were asked for.
    pub fn asked_count(&self) -> u64 {
        self.last_seed
            .saturating_sub(self.first_seed)
            .saturating_add(1)
    }

    /// The worst verdict of all seeds; unknown also when none is over, or none hit what had to be hit.
    pub fn valid(&self) -> Validity {
        let misses = !self.required_but_missing.is_empty();
        match (self.invalid_count, self.unknown_count, self.done_count) {
            (1.., ..) => Validity::Invalid,
            (_, 1.., _) | (_, _, 0) => Validity::Unknown,
            _ if misses => Validity::Unknown,
            _ => Validity::Valid,
        }
    }

    /// How many times as fast as real time it went.
    pub fn speed(&self) -> f64 {
        self.simulated_ms as f64 / (self.elapsed_ms.max(1)) as f64
    }

    /// Seeds per second.
    pub fn rate_per_second(&self) -> f64 {
        self.done_count as f64 * 1e3 / (self.elapsed_ms.max(1)) as f64
    }

    /// Names of the runs that were stored.
    pub fn runs(&self) -> impl Iterator<Item = &str> {
        let outcomes = self.groups.iter().flat_map(|group| &group.outcomes);
        outcomes.filter_map(|outcome| outcome.run.as_deref())
    }

    /// Whether it may still be going on: it has no end, and was written lately.
    pub fn may_be_going_on(&self) -> bool {
        if self.ended.is_some() {
            return false;
        }
        let told = self.started + Duration::from_millis(self.elapsed_ms);
        let silent = Utc::now() - told;
        silent.to_std().is_ok_and(|silent| silent < LIFE_SIGN) || silent.num_milliseconds() < 0
    }

    /// How many seeded bugs were hunted, and how many of them were noticed.
    pub fn bugs(&self) -> (usize, usize) {
        let hunted: BTreeSet<&str> = self.hunts.iter().map(|hunt| hunt.bug.as_str()).collect();
        let noticed = self.hunts.iter().filter(|hunt| hunt.noticed_count > 0);
        let noticed: BTreeSet<&str> = noticed.map(|hunt| hunt.bug.as_str()).collect();
        (hunted.len(), noticed.len())
    }

    /// What came out, in a sentence.
    pub fn headline(&self) -> String {
        if !self.hunts.is_empty() {
            let (hunted, noticed) = self.bugs();
            return format!(
                "{noticed} of {hunted} seeded bugs were noticed; the unmodified node was called wrong in {} of {} \
                 seeds",
                self.invalid_count, self.done_count
            );
        }
        let noun = if self.done_count == 1 {
            "seed"
        } else {
            "seeds"
        };
        format!(
            "{} {noun}: {} valid, {} invalid, {} unknown",
            self.done_count, self.valid_count, self.invalid_count, self.unknown_count
        )
    }
}
