//! Owns what hunts come to: medians and ranges, as a table for people and as data.
//! Never averages away a hunt that found nothing: it counts as longer than any that did.

use std::collections::BTreeMap;
use std::fmt::Write as _;

use node::mutants::Bug;
use results::campaign::HuntRow;
use serde::Serialize;

use super::{Caught, Way, out_of_reach};

/// Everything that was measured, with how.
#[derive(Debug, Clone, Serialize)]
pub struct Score {
    /// The command that made it.
    pub command: String,
    /// Version and commit of the harness.
    pub harness: String,
    /// Operating system, architecture and number of processors.
    pub machine: String,
    /// When, UTC.
    pub date: String,
    /// Seeds per hunt at most.
    pub seeds_max: u64,
    /// Hunts per bug and way.
    pub repetitions: u32,
    /// How long the workload of a run lasted, in milliseconds.
    pub time_ms: u64,
    /// The unmodified node under the same faults.
    pub unmodified: Unmodified,
    /// All hunts.
    pub hunts: Vec<Caught>,
    /// Ids of the bugs that were hunted, in their order.
    pub bugs: Vec<String>,
}

/// What the checkers said of the unmodified node.
#[derive(Debug, Clone, Default, Serialize)]
pub struct Unmodified {
    /// Seeds that were run.
    pub seed_count: u64,
    /// Seeds called invalid: false alarms.
    pub invalid_count: u64,
    /// Seeds of which nothing could be concluded.
    pub unknown_count: u64,
    /// Seeds of the false alarms, with what was said to be violated.
    pub false_alarms: Vec<(u64, Vec<String>)>,
    /// Wall-clock time, in milliseconds.
    pub elapsed_ms: u64,
}

/// One cell of the table.
struct Summary<'a> {
    hunts: Vec<&'a Caught>,
}

impl Summary<'_> {
    /// Median of a measure over all hunts; a hunt that found nothing is above all others.
    fn median(&self, measure: impl Fn(&Caught) -> u64) -> Option<u64> {
        let mut found: Vec<u64> = self.found().map(measure).collect();
        found.sort_unstable();
        found.get((self.hunts.len() - 1) / 2).copied()
    }

    fn found(&self) -> impl Iterator<Item = &Caught> {
        self.hunts
            .iter()
            .copied()
            .filter(|caught| caught.seed.is_some())
    }

    fn range(&self, measure: impl Fn(&Caught) -> u64) -> Option<(u64, u64)> {
        let found: Vec<u64> = self.found().map(measure).collect();
        Some((*found.iter().min()?, *found.iter().max()?))
    }

    fn tried_at_most(&self) -> u64 {
        let tried = self.hunts.iter().map(|caught| caught.tried_count);
        tried.max().unwrap_or(0)
    }

    fn seeds(&self) -> String {
        let seeds = |caught: &Caught| caught.tried_count;
        let Some((least, most)) = self.range(seeds) else {
            return format!("none in {}", self.tried_at_most());
        };
        let median = match self.median(seeds) {
            Some(median) => median.to_string(),
            None => format!(">{}", self.tried_at_most()),
        };
        let found_count = self.found().count();
        let (missed, all) = (self.hunts.len() - found_count, self.hunts.len());
        let missed = match missed {
            0 => String::new(),
            _ => format!(", {found_count} of {all} hunts"),
        };
        format!("{median} ({least}–{most}{missed})")
    }

    fn seconds(&self) -> String {
        let seconds = |caught: &Caught| caught.elapsed_ms;
        let Some((least, most)) = self.range(seconds) else {
            return "–".into();
        };
        let told = |ms: u64| format!("{:.1}", ms as f64 / 1e3);
        let median = self.median(seconds).map_or("–".to_owned(), told);
        format!("{median} ({}–{})", told(least), told(most))
    }

    fn caught_by(&self) -> String {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for caught in self.found() {
            for failure in &caught.failures {
                *counts.entry(failure.clone()).or_default() += 1;
            }
        }
        let mut counts: Vec<_> = counts.into_iter().collect();
        counts.sort_by(|one, other| other.1.cmp(&one.1).then_with(|| one.0.cmp(&other.0)));
        let told: Vec<String> = counts
            .into_iter()
            .map(|(failure, count)| format!("{failure} ×{count}"))
            .collect();
        if told.is_empty() {
            "nobody".into()
        } else {
            told.join(", ")
        }
    }
}

/// A row for every bug and way.
pub fn rows(score: &Score) -> Vec<HuntRow> {
    let mut rows = Vec::new();
    let known = score.bugs.iter().filter_map(|id| id.parse::<Bug>().ok());
    for bug in known {
        let hunts = score.hunts.iter().filter(|caught| caught.bug == bug.id());
        let mut ways: BTreeMap<&Way, Vec<&Caught>> = BTreeMap::new();
        for caught in hunts {
            ways.entry(&caught.way).or_default().push(caught);
        }
        let blank = HuntRow {
            bug: bug.id().to_owned(),
            name: bug.name().to_owned(),
            priority: bug.priority().to_string(),
            way: "not hunted".to_owned(),
            seeds: "–".to_owned(),
            seconds: "–".to_owned(),
            noticed_by: "nobody".to_owned(),
            ..HuntRow::default()
        };
        if ways.is_empty() {
            rows.push(blank);
            continue;
        }
        rows.extend(ways.into_iter().map(|(way, hunts)| {
            let summary = Summary { hunts };
            HuntRow {
                way: way.told(),
                hunt_count: summary.hunts.len() as u64,
                noticed_count: summary.found().count() as u64,
                seeds: summary.seeds(),
                seconds: summary.seconds(),
                noticed_by: summary.caught_by(),
                ..blank.clone()
            }
        }));
    }
    rows
}

/// The score as a page of Markdown.
pub fn markdown(score: &Score) -> String {
    let mut page = head(score);
    let _ = writeln!(
        page,
        "| id | bug | priority | way | seeds until noticed: median (range) | seconds | noticed by |\n\
         |---|---|---|---|---|---|---|"
    );
    for row in rows(score) {
        let HuntRow {
            bug,
            name,
            priority,
            way,
            seeds,
            seconds,
            noticed_by,
            ..
        } = row;
        let _ = writeln!(
            page,
            "| {bug} | {name} | {priority} | {way} | {seeds} | {seconds} | {noticed_by} |"
        );
    }
    page
}

/// How much was measured against real processes, where anything was.
fn processes(score: &Score) -> String {
    let hunts = score.hunts.iter().filter(|it| it.way == Way::Processes);
    let tried: Vec<u64> = hunts.map(|hunt| hunt.tried_count).collect();
    if tried.is_empty() {
        return String::new();
    }
    let run_count: u64 = tried.iter().sum();
    format!(
        " That column is small: {run_count} runs of {} s for {} bugs.",
        score.time_ms / 1_000,
        tried.len()
    )
}

/// Why nobody noticed these bugs, as far as it is known.
fn out_of_reach_of<'a>(bugs: impl Iterator<Item = &'a String>) -> String {
    let mut told = String::new();
    for id in bugs {
        let bug = id.parse::<Bug>().ok();
        if let Some((bug, why)) = bug.and_then(|bug| Some((bug, out_of_reach(bug)?))) {
            let _ = writeln!(told, "- {id} {bug} cannot be noticed: {why}.");
        }
    }
    if told.is_empty() {
        told
    } else {
        format!("\n{told}")
    }
}

fn head(score: &Score) -> String {
    let Unmodified {
        seed_count,
        invalid_count,
        unknown_count,
        ref false_alarms,
        ..
    } = score.unmodified;
    let alarms: Vec<String> = false_alarms
        .iter()
        .map(|(seed, failures)| format!("seed {seed}: {}", failures.join(", ")))
        .collect();
    let alarms = match alarms.as_slice() {
        [] => String::new(),
        alarms => format!(" ({})", alarms.join("; ")),
    };
    let incomplete = score.hunts.iter().filter(|caught| !caught.is_complete);
    let incomplete = match incomplete.count() {
        0 => String::new(),
        count => format!(
            "\n{count} hunts ended before all of their seeds were run, because their time was over or \
             somebody stopped them; what they did not find counts as not found.\n"
        ),
    };
    let noticed = |bug: &&String| {
        let mut hunts = score.hunts.iter().filter(|caught| caught.bug == **bug);
        hunts.any(|caught| caught.seed.is_some())
    };
    let noticed_count = score.bugs.iter().filter(noticed).count();
    let processes = processes(score);
    let unseen = out_of_reach_of(score.bugs.iter().filter(|bug| !noticed(bug)));
    format!(
        "# What notices the seeded bugs, and how fast\n\n\
         Made by `{}` on {} with {} ({}).\n\n\
         Each hunt runs seed after seed until a verdict is invalid, {} seeds at most; {} for each bug and way, \
         each with seeds of its own. A hunt that finds nothing counts as longer than any other. Seconds are \
         wall-clock time of one thread. *Stock* is the planned nemesis in the simulation, *targeted* a planned \
         nemesis under the settings made for the bug, *scenario* a schedule made for it, *processes* the \
         planned nemesis against real processes, under the settings made for the bug where there are \
         any.{processes}\n\n\
         {} of {} bugs were noticed. The unmodified node under the same faults: {seed_count} seeds, \
         {invalid_count} false alarms{alarms}, {unknown_count} without a conclusion.\n{incomplete}{unseen}\n",
        score.command,
        score.date,
        score.harness,
        score.machine,
        score.seeds_max,
        match score.repetitions {
            1 => "one hunt".to_owned(),
            count => format!("{count} hunts"),
        },
        noticed_count,
        score.bugs.len(),
    )
}

#[cfg(test)]
mod tests {
    use super::*;

    fn caught(bug: &str, tried_count: u64, seed: Option<u64>) -> Caught {
        Caught {
            bug: bug.into(),
            way: Way::Stock,
            repetition: 1,
            tried_count,
            elapsed_ms: tried_count * 100,
            seed,
            failures: seed.iter().map(|_| "linearizable".to_owned()).collect(),
            summary: String::new(),
            is_complete: true,
        }
    }

    fn score(hunts: Vec<Caught>) -> Score {
        Score {
            command: "harness bugs score".into(),
            harness: "0".into(),
            machine: "none".into(),
            date: "today".into(),
            seeds_max: 50,
            repetitions: 3,
            time_ms: 20_000,
            unmodified: Unmodified {
                seed_count: 9,
                invalid_count: 1,
                false_alarms: vec![(4, vec!["liveness/recovery".into()])],
                ..Unmodified::default()
            },
            hunts,
            bugs: ["B09", "B51", "B01", "B67"].map(str::to_owned).into(),
        }
    }

    #[test]
    fn a_hunt_that_finds_nothing_is_above_the_median_and_a_bug_nobody_notices_stays() {
        let hunts = vec![
            caught("B09", 5, Some(5)),
            caught("B09", 50, None),
            caught("B09", 7, Some(57)),
            caught("B51", 50, None),
        ];
        let page = markdown(&score(hunts));
        let row = |id: &str| {
            let begin = format!("| {id} |");
            let row = page.lines().find(|line| line.starts_with(&begin));
            row.expect("a row for every bug").to_owned()
        };
        assert!(row("B09").contains("7 (5–7, 2 of 3 hunts)"), "{page}");
        assert!(row("B09").contains("linearizable ×2"), "{page}");
        assert!(row("B51").contains("none in 50"), "{page}");
        assert!(row("B51").contains("nobody"), "{page}");
        assert!(row("B01").contains("not hunted"), "{page}");
        assert!(page.contains("1 of 4 bugs"), "{page}");
        assert!(
            page.contains("- B67 cluster-id-skip cannot be noticed: all nodes"),
            "{page}"
        );
        assert!(page.contains("seed 4: liveness/recovery"), "{page}");
    }

    #[test]
    fn the_median_is_unknown_if_most_hunts_find_nothing() {
        let hunts = vec![
            caught("B09", 5, Some(5)),
            caught("B09", 50, None),
            caught("B09", 50, None),
        ];
        let page = markdown(&score(hunts));
        assert!(page.contains(">50 (5–5, 1 of 3 hunts)"), "{page}");
    }
}
