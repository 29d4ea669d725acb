//! Owns scenario files: a schedule with options, seeds and what must come out, for regression tests.
//! Never runs anything but the simulation, in which a scenario means the same everywhere.

use std::path::Path;
use std::sync::Arc;
use std::sync::atomic::AtomicBool;

use nemesis::schedule::prepare;
use results::manifest::RunOptions;
use results::schedule::Schedule;
use results::verdict::Validity;
use serde::{Deserialize, Serialize};

use crate::exit::Failure;
use crate::simulation::{SessionPlan, simulate};

/// Name of the scenario file in the folder of a shrunk run.
pub const FILE_NAME: &str = "scenario.json";

/// A schedule that must lead to something.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Scenario {
    /// See [`results::FORMAT_VERSION`].
    pub format_version: u32,
    /// For people: what happens.
    pub title: String,
    /// The seeds to run it with. Few schedules fail with every seed, so a failure that is expected must
    /// show with one of them; a run that is expected to be valid must be so with all.
    pub seeds: Vec<u64>,
    /// What must come out.
    pub expected: Expected,
    /// Options, the seeded bug among them.
    pub options: RunOptions,
    /// The faults, as they are asked for.
    pub schedule: Schedule,
}

/// What must come out of a scenario.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Expected {
    /// The verdict.
    pub valid: Validity,
    /// What is violated; nothing for a run that is valid.
    #[serde(default)]
    pub failures: Vec<String>,
}

/// What came out of one seed of a scenario.
#[derive(Debug, Clone, PartialEq)]
pub struct Outcome {
    /// The seed.
    pub seed: u64,
    /// Its verdict.
    pub valid: Validity,
    /// What it violated.
    pub failures: Vec<String>,
    /// Why, for people.
    pub summary: String,
}

impl Scenario {
    /// Reads a scenario.
    ///
    /// # Errors
    /// When the file cannot be read, is no scenario, or its schedule does not fit its cluster.
    pub fn read(path: &Path) -> Result<Self, Failure> {
        let mut scenario: Self = results::store::read_document(path)?;
        let described =
            |problem: String| Failure::Harness(anyhow::anyhow!("{}: {problem}", path.display()));
        if scenario.seeds.is_empty() {
            return Err(described("a scenario needs at least one seed".into()));
        }
        let nodes = scenario.options.all_nodes();
        let voters = scenario.options.first_voters();
        prepare(&mut scenario.schedule, &nodes, &voters)
            .map_err(|error| described(error.to_string()))?;
        Ok(scenario)
    }

    /// The plan for one of its seeds.
    pub fn plan(&self, seed: u64) -> SessionPlan {
        SessionPlan {
            seed,
            options: self.options.clone(),
            schedule: self.schedule.clone(),
        }
    }

    /// Runs its seeds, as long as they leave open whether what is expected comes out, and tells all of them.
    ///
    /// # Errors
    /// When it names a bug that does not exist.
    pub fn run(&self) -> Result<Vec<Outcome>, Failure> {
        let mut outcomes = Vec::new();
        for seed in &self.seeds {
            let simulated = simulate(&self.plan(*seed), &Arc::new(AtomicBool::new(false)))?;
            let outcome = Outcome {
                seed: *seed,
                valid: simulated.verdict.valid,
                failures: simulated.verdict.failure_signature(),
                summary: simulated.verdict.summary,
            };
            let is_decided = if self.expected.valid == Validity::Invalid {
                self.is_expected(&outcome)
            } else {
                !self.is_expected(&outcome)
            };
            outcomes.push(outcome);
            if is_decided {
                break;
            }
        }
        Ok(outcomes)
    }

    /// Whether what came out is what was expected.
    pub fn holds(&self, outcomes: &[Outcome]) -> bool {
        let mut expected = outcomes.iter().map(|outcome| self.is_expected(outcome));
        match self.expected.valid {
            Validity::Invalid => expected.any(|expected| expected),
            _ => outcomes.len() == self.seeds.len() && expected.all(|expected| expected),
        }
    }

    fn is_expected(&self, outcome: &Outcome) -> bool {
        outcome.valid == self.expected.valid && outcome.failures == self.expected.failures
    }
}

/// A schedule without what became of it, in the order in which things happen.
pub fn as_asked_for(schedule: &Schedule) -> Schedule {
    let mut schedule = schedule.clone();
    crate::execution::forget_outcomes(&mut schedule, false);
    schedule
        .faults
        .sort_by_key(|fault| (fault.trigger.at_ms, fault.id));
    schedule
}

/// A schedule in words, one line per fault.
pub fn describe(schedule: &Schedule) -> String {
    let line = |fault: &results::schedule::ScheduledFault| {
        let at_ms = fault.trigger.at_ms;
        let event = match &fault.trigger.on {
            None => String::new(),
            // An event counts from that moment on, so it says more than the moment.
            Some(_) => serde_json::to_string(&fault.trigger).unwrap_or_default() + " ",
        };
        let parameters = fault.fault.parameters.iter();
        let parameters: Vec<String> = parameters
            .map(|(name, value)| format!("{name}={}", value.to_string().replace('"', "")))
            .collect();
        format!(
            "{:>9.3} s for {:>7.3} s: {event}{} {}",
            at_ms as f64 / 1e3,
            fault.duration_ms as f64 / 1e3,
            fault.fault.kind,
            parameters.join(" ")
        )
        .trim_end()
        .to_owned()
    };
    let lines: Vec<String> = schedule.faults.iter().map(line).collect();
    lines.join("\n")
}
