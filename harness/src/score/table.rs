//! Owns what hunts come to: medians and ranges, as a page for people.
//! Never averages away a hunt that found nothing: it counts as longer than any that did.

use std::collections::{BTreeMap, BTreeSet};
use std::fmt::Write as _;

use node::mutants::{Bug, Priority};
use results::campaign::HuntRow;

use crate::shrink::counted;

use super::{Caught, Measurement, Score, ShrunkRun, Unmodified, Way, out_of_reach};

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
            let noticed_count = summary.found().count() as u64;
            HuntRow {
                way: way.told(),
                hunt_count: summary.hunts.len() as u64,
                noticed_count,
                seeds: summary.seeds(),
                seconds: summary.seconds(),
                noticed_by: match out_of_reach(bug) {
                    Some(why) if noticed_count == 0 => format!("nobody: {why}"),
                    _ => summary.caught_by(),
                },
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
    page.push_str(&shrunk(&score.shrunk));
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
        " That column is small: {run_count} runs for {} bugs.",
        tried.len()
    )
}

/// What it takes to notice the bugs of priority A with the usual faults.
fn usual(score: &Score) -> String {
    let hunted = score.of_priority(Priority::A);
    let summaries = hunted.map(|bug| Summary {
        hunts: score.hunts_of(bug, &Way::Stock),
    });
    let summaries: Vec<Summary<'_>> = summaries.filter(|it| !it.hunts.is_empty()).collect();
    if summaries.is_empty() {
        return String::new();
    }
    let medians = summaries
        .iter()
        .map(|it| it.median(|caught| caught.tried_count));
    // What was not found counts as longer than anything else.
    let mut medians: Vec<u64> = medians.map(|it| it.unwrap_or(u64::MAX)).collect();
    medians.sort_unstable();
    let median = match medians[(medians.len() - 1) / 2] {
        u64::MAX => "more seeds than were run".to_owned(),
        seeds => counted(seeds, "seed"),
    };
    let found_count = summaries.iter().filter(|it| it.found().next().is_some());
    format!(
        " The stock nemesis noticed {} of {} of priority A; the median of their medians is {median}.",
        found_count.count(),
        counted(summaries.len() as u64, "bug")
    )
}

/// How small runs became that noticed bugs.
fn shrunk(runs: &[ShrunkRun]) -> String {
    let mut counts: Vec<usize> = runs.iter().map(|run| run.fault_count).collect();
    counts.sort_unstable();
    let Some(median) = counts.get(counts.len().saturating_sub(1) / 2) else {
        return String::new();
    };
    let small_count = counts.iter().filter(|count| **count <= 4).count();
    let mut page = format!(
        "\n## How small the schedules become\n\n\
         One run that noticed each bug was shrunk. The median has {median} faults left; {small_count} of {} \
         have 4 or fewer. Where time was over before everything was tried, the number is followed by a +.\n\n\
         | id | bug | way | seed | faults before | faults left | operations | nodes | seconds | runs | violates |\n\
         |---|---|---|---|---|---|---|---|---|---|---|\n",
        runs.len()
    );
    for run in runs {
        let name = run.bug.parse::<Bug>().map_or("", Bug::name);
        let more = if run.is_exhausted { "+" } else { "" };
        let _ = writeln!(
            page,
            "| {} | {name} | {} | {} | {} | {}{more} | {} | {} | {:.1} | {} | {} |",
            run.bug,
            run.way.told(),
            run.seed,
            run.fault_count_before,
            run.fault_count,
            run.operation_count,
            run.node_count,
            run.time_ms as f64 / 1e3,
            run.run_count,
            run.failures.join(", ")
        );
    }
    page
}

/// Who measured what, and how.
fn made_by(score: &Score) -> String {
    let told = |measurement: &Measurement| {
        let commands: Vec<String> = measurement
            .commands
            .iter()
            .map(|command| format!("`{command}`"))
            .collect();
        format!(
            "{} on {} with {} ({}); {}",
            commands.join(" and "),
            measurement.date,
            measurement.harness,
            measurement.machine,
            measurement.settings
        )
    };
    if let [only] = score.measurements.as_slice() {
        return format!("Made by {}.", told(only));
    }
    let mut text = "Made by several commands:\n".to_owned();
    for (position, measurement) in score.measurements.iter().enumerate() {
        let of_it = score.hunts.iter().filter(|it| it.measurement == position);
        let mut by_way: BTreeMap<&str, BTreeSet<&str>> = BTreeMap::new();
        for caught in of_it {
            let way = match caught.way {
                Way::Stock => "stock",
                Way::Targeted(_) => "targeted",
                Way::Scenario(_) => "scenarios",
                Way::Processes => "processes",
            };
            by_way.entry(way).or_default().insert(&caught.bug);
        }
        let mut what: Vec<String> = by_way
            .into_iter()
            .map(|(way, bugs)| {
                if bugs.len() == score.bugs.len() {
                    return format!("{way} of all bugs");
                }
                let bugs: Vec<&str> = bugs.into_iter().collect();
                format!("{way} of {}", bugs.join(" "))
            })
            .collect();
        if score.unmodified.seed_count > 0 && score.unmodified.measurement == position {
            what.push("the unmodified node".into());
        }
        // One that has measured nothing yet has nothing to answer for.
        if !what.is_empty() {
            let _ = write!(text, "\n- {}: {}", told(measurement), what.join(", "));
        }
    }
    text
}

/// What keeps the table from being complete.
fn incomplete(score: &Score) -> String {
    let mut told = String::new();
    let ended = score.hunts.iter().filter(|caught| !caught.is_complete);
    let counts = [
        (
            ended.count() as u64,
            "ended before all of their seeds were run",
        ),
        (score.not_begun_count, "were not begun"),
    ];
    for (count, what) in counts.into_iter().filter(|(count, _)| *count > 0) {
        let _ = write!(
            told,
            "\n{count} hunts {what}, because their time was over or somebody stopped them"
        );
        told.push_str(match what {
            "were not begun" => "; `--resume` begins them.\n",
            _ => "; what they did not find counts as not found.\n",
        });
    }
    told
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
    let noticed = |bug: &&String| {
        let mut hunts = score.hunts.iter().filter(|caught| caught.bug == **bug);
        hunts.any(|caught| caught.seed.is_some())
    };
    let simulated = score.hunts.iter().filter(|it| it.way != Way::Processes);
    let seeds_max = simulated.map(|it| it.seed_count).max().unwrap_or(0);
    let repetitions = score.hunts.iter().map(|it| it.repetition).max();
    format!(
        "# What notices the seeded bugs, and how fast\n\n{}\n\n\
         Each hunt runs seed after seed until a verdict is invalid, {seeds_max} seeds at most; {} for each bug \
         and way, each with seeds of its own. A hunt that finds nothing counts as longer than any other. Seconds \
         are wall-clock time of one thread. *Stock* is the planned nemesis in the simulation, *targeted* a \
         planned nemesis under the settings made for the bug, *scenario* a schedule made for it, *processes* the \
         planned nemesis against real processes, under the settings made for the bug where there are any.{}\n\n\
         {} of {} {} noticed.{} The unmodified node under the same faults: {seed_count} seeds, \
         {invalid_count} false alarms{alarms}, {unknown_count} without a conclusion.\n{}\n",
        made_by(score),
        match repetitions {
            None | Some(1) => "one hunt".to_owned(),
            Some(count) => format!("{count} hunts"),
        },
        processes(score),
        score.bugs.iter().filter(noticed).count(),
        counted(score.bugs.len() as u64, "bug"),
        if score.bugs.len() == 1 { "was" } else { "were" },
        usual(score),
        incomplete(score),
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
            first_seed: 1,
            seed_count: 50,
            tried_count,
            elapsed_ms: tried_count * 100,
            seed,
            failures: seed.iter().map(|_| "linearizable".to_owned()).collect(),
            summary: String::new(),
            is_complete: true,
            measurement: 0,
        }
    }

    fn measurement(command: &str) -> Measurement {
        Measurement {
            commands: vec![command.into()],
            harness: "0".into(),
            machine: "none".into(),
            date: "today".into(),
            settings: "20 s".into(),
        }
    }

    fn score(hunts: Vec<Caught>) -> Score {
        Score {
            measurements: vec![measurement("harness bugs score")],
            shrunk: Vec::new(),
            not_begun_count: 0,
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
        let hunts = vec![caught("B67", 50, None)];
        let page_of_another = markdown(&score(hunts));
        assert!(
            page_of_another.contains("| nobody: only a swarm"),
            "{page_of_another}"
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

    #[test]
    fn bugs_of_priority_a_are_summed_up_and_one_that_nobody_noticed_counts_most() {
        let hunts = |found: Option<u64>| {
            vec![
                caught("B09", 3, Some(3)),
                caught("B51", 9, Some(9)),
                caught("B01", found.unwrap_or(50), found),
                // Not of priority A.
                caught("B67", 50, None),
            ]
        };
        let page = markdown(&score(hunts(None)));
        assert!(page.contains("noticed 2 of 3 bugs of priority A"), "{page}");
        assert!(page.contains("medians is 9 seeds"), "{page}");
        let page = markdown(&score(hunts(Some(4))));
        assert!(page.contains("medians is 4 seeds"), "{page}");
    }

    #[test]
    fn it_says_which_command_measured_what_and_what_is_missing() {
        let mut both = score(vec![
            caught("B09", 3, Some(3)),
            Caught {
                measurement: 1,
                way: Way::Processes,
                is_complete: false,
                ..caught("B09", 1, None)
            },
        ]);
        both.measurements
            .push(measurement("harness bugs score B09"));
        both.not_begun_count = 2;
        let page = markdown(&both);
        assert!(
            page.contains("- `harness bugs score` on today with 0 (none); 20 s: stock of B09, the")
        );
        assert!(
            page.contains("- `harness bugs score B09` on today"),
            "{page}"
        );
        assert!(page.contains("1 hunts ended before"), "{page}");
        assert!(page.contains("2 hunts were not begun"), "{page}");
    }

    #[test]
    fn shrunk_runs_are_told_with_their_median() {
        let run = |bug: &str, fault_count| ShrunkRun {
            bug: bug.into(),
            way: Way::Stock,
            seed: 7,
            failures: vec!["linearizable".into()],
            fault_count_before: 30,
            fault_count,
            operation_count: 2,
            node_count: 3,
            time_ms: 1_500,
            run_count: 90,
            is_exhausted: fault_count > 4,
            measurement: 0,
        };
        let mut score = score(vec![caught("B09", 3, Some(3))]);
        score.shrunk = vec![run("B09", 1), run("B51", 2), run("B01", 6)];
        let page = markdown(&score);
        assert!(
            page.contains("median has 2 faults left; 2 of 3 have 4"),
            "{page}"
        );
        assert!(
            page.contains(
                "| B01 | vote-no-fsync | stock | 7 | 30 | 6+ | 2 | 3 | 1.5 | 90 | linearizable |"
            ),
            "{page}"
        );
    }
}
