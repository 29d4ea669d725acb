//! Owns `junit.xml`, by which CI systems read a verdict.
//! Never softens it: what could not be decided is an error there, not a skipped test.

use askama::Template;
use results::manifest::Manifest;
use results::verdict::{CheckerResult, Validity};

use crate::commands;
use crate::error::{ReportError, Result};
use crate::reading::Run;
use crate::text::printable;

#[derive(Template)]
#[template(path = "junit.xml")]
struct Suite {
    name: String,
    class: String,
    timestamp: String,
    seconds: String,
    failure_count: usize,
    error_count: usize,
    skipped_count: usize,
    cases: Vec<Case>,
    commands: String,
}

struct Case {
    name: String,
    outcome: CaseOutcome,
    message: String,
    detail: String,
}

#[derive(PartialEq)]
enum CaseOutcome {
    Passed,
    Failed,
    Undecided,
    /// Never happened: what a run that was stopped from outside did not get to.
    Skipped,
}

/// The case that is there only if it did not happen.
const WHOLE_RUN: &str = "the rest of the run";

/// Renders one test suite for the run with one test case per checker.
pub(crate) fn render(run: &Run) -> Result<String> {
    let mut cases: Vec<Case> = match &run.verdict {
        Some(verdict) => verdict.checkers.iter().map(case).collect(),
        None => Vec::new(),
    };
    if cases.is_empty() {
        cases.push(Case {
            name: "verdict".into(),
            outcome: CaseOutcome::Undecided,
            message: match run.is_going_on {
                true => "no verdict: the run is still going on".into(),
                false => "no verdict: the run was cut short, or never judged".into(),
            },
            detail: String::new(),
        });
    }
    if let Some(reason) = run.manifest.as_ref().and_then(Manifest::stop_reason)
        && reason.is_interruption()
    {
        cases.push(Case {
            name: WHOLE_RUN.into(),
            outcome: CaseOutcome::Skipped,
            message: format!("this run {}", reason.told()),
            detail: String::new(),
        });
    }
    let counted = |wanted: CaseOutcome| cases.iter().filter(|one| one.outcome == wanted).count();
    let manifest = run.manifest.as_ref();
    let repeat = commands::reproduce(run);
    let repeat: Vec<_> = repeat.into_iter().map(|one| one.command).collect();
    let suite = Suite {
        name: printable(&run.name),
        class: printable(&manifest.map_or_else(
            || "run".to_owned(),
            |run| format!("{}.{}", run.options.workload, run.options.nemesis.join("+")),
        )),
        timestamp: manifest
            .map(|run| run.started.format("%Y-%m-%dT%H:%M:%S").to_string())
            .unwrap_or_default(),
        seconds: format!("{:.3}", run.end_ns() as f64 / 1e9),
        failure_count: counted(CaseOutcome::Failed),
        error_count: counted(CaseOutcome::Undecided),
        skipped_count: counted(CaseOutcome::Skipped),
        cases,
        commands: printable(&repeat.join("\n")),
    };
    suite.render().map_err(ReportError::template("junit.xml"))
}

fn case((name, result): (&String, &CheckerResult)) -> Case {
    let broken = result
        .properties
        .iter()
        .filter(|(_, property)| property.valid != Validity::Valid);
    let detail: Vec<_> = broken
        .map(|(id, property)| {
            let word = property.valid.word();
            format!("{id} {word}: {}. {}", property.title, property.summary)
        })
        .collect();
    Case {
        name: printable(name),
        outcome: match result.valid {
            Validity::Valid => CaseOutcome::Passed,
            Validity::Invalid => CaseOutcome::Failed,
            Validity::Unknown => CaseOutcome::Undecided,
        },
        message: printable(&result.summary),
        detail: printable(&detail.join("\n")),
    }
}
