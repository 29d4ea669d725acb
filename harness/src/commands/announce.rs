//! Owns the last words of a command: verdict, reason, report, and how to have it again.
//! Never adds anything that is not recorded.

use std::io::Write as _;

use anyhow::Context;
use results::manifest::StopReason;
use results::verdict::Verdict;
use serde_json::json;

use crate::cli::OutputArgs;
use crate::execution::Finished;
use crate::exit::{self, Failure};

/// Prints lines to standard output.
///
/// # Errors
/// When standard output is closed.
pub fn print(lines: &str) -> Result<(), Failure> {
    let mut stdout = std::io::stdout().lock();
    let written = writeln!(stdout, "{lines}").and_then(|()| stdout.flush());
    match written {
        // A reader that has seen enough (`| head`) is no failure.
        Err(error) if error.kind() == std::io::ErrorKind::BrokenPipe => Ok(()),
        other => Ok(other.context("cannot print")?),
    }
}

/// Prints the verdict of a run and returns its exit code.
///
/// # Errors
/// When standard output is closed.
pub fn verdict(finished: &Finished, store: &str, output: &OutputArgs) -> Result<u8, Failure> {
    let Finished {
        folder,
        verdict,
        manifest,
        ..
    } = finished;
    let name = &manifest.name;
    let code = exit::of_validity(verdict.valid);
    let report = folder.report_path().display().to_string();
    if output.json {
        let line = json!({
            "run": name,
            "valid": verdict.valid,
            "summary": verdict.summary,
            "failures": verdict.failure_signature(),
            "stopped_by": finished.stop_reason(),
            "report": report,
            "exit_code": code,
        });
        print(&line.to_string())?;
        return Ok(code);
    }
    let replay = replay_command(name, store);
    let stopped = finished.stop_reason().map_or_else(String::new, |reason| {
        let told = reason.told();
        let end = match reason {
            StopReason::Death => "what came after was not recorded",
            _ => "faults that were still to come never happened",
        };
        format!("\nnote:    the run {told}; {end}")
    });
    print(&format!(
        "{}{stopped}\n{}\nreport:  {report}\nreplay:  {replay}",
        headline(verdict),
        details(verdict)
    ))?;
    Ok(code)
}

/// The command that runs the same faults again.
fn replay_command(name: &str, store: &str) -> String {
    command("replay", name, store)
}

/// A command that does something with a stored run.
pub(super) fn command(verb: &str, name: &str, store: &str) -> String {
    let name = word(name);
    if store == "runs" {
        format!("harness {verb} {name}")
    } else {
        format!("harness {verb} {name} --out {}", word(store))
    }
}

/// A word as a POSIX shell reads it.
fn word(text: &str) -> String {
    let safe = |letter: char| letter.is_ascii_alphanumeric() || "-_./,:=+@%".contains(letter);
    if !text.is_empty() && text.chars().all(safe) {
        text.to_owned()
    } else {
        format!("'{}'", text.replace('\'', r"'\''"))
    }
}

pub(super) fn headline(verdict: &Verdict) -> String {
    let word = verdict.valid.word();
    format!(
        "verdict: {}\nwhy:     {}",
        word.to_uppercase(),
        verdict.valid.reason_in(&verdict.summary)
    )
}

/// A line for each checker. What stands above in full is not said again.
pub(super) fn details(verdict: &Verdict) -> String {
    let told = verdict.told();
    let line = |(name, result): (&String, &results::verdict::CheckerResult)| {
        let is_told = told.is_some_and(|(told, text)| {
            told == name && !result.summary.is_empty() && text.starts_with(&result.summary)
        });
        let summary = if is_told {
            "see above"
        } else {
            &result.summary
        };
        format!("  {:<14} {:<8} {summary}", name, result.valid.word())
    };
    verdict
        .checkers
        .iter()
        .map(line)
        .collect::<Vec<_>>()
        .join("\n")
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn the_replay_command_survives_a_shell() {
        assert_eq!(replay_command("a", "runs"), "harness replay a");
        assert_eq!(replay_command("a b", "runs"), "harness replay 'a b'");
        assert_eq!(
            replay_command("a", "my runs/it's"),
            r"harness replay a --out 'my runs/it'\''s'"
        );
    }
}
