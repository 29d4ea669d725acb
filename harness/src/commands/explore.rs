//! Owns `harness explore`: turns flags into an exploration, and tells what came out.
//! Never calls anything valid that was not exhausted, or in which nothing was elected or committed.

use std::fmt::Write as _;
use std::path::{Path, PathBuf};
use std::time::Duration;

use anyhow::Context;
use results::store::write_document;
use results::verdict::Validity;
use serde_json::json;

use super::announce;
use super::explore_simulated::{Reproduced, reproduce};
use crate::cli::ExploreArgs;
use crate::exit::{self, Failure};
use crate::explore::{
    Bounds, Budget, Ended, Exploration, Limits, Progress, Replayed, Rule, StepFile,
    explore as search,
};
use crate::interrupts;
use crate::machine::job_count;
use crate::progress::Progress as Shown;

/// Executes `harness explore`.
///
/// # Errors
/// When the arguments do not fit together, or a file cannot be read or written.
pub fn explore(args: &ExploreArgs) -> Result<u8, Failure> {
    if let Some(file) = &args.replay {
        return replay(args, file);
    }
    let bounds = bounds_of(args);
    bounds
        .bug()
        .map_err(|problem| Failure::arguments(format!("--bug: {problem}")))?;
    let limits = Limits {
        depth: args.depth,
        memory_bytes: args.memory_limit,
        time: Duration::from_millis(args.time_limit),
        jobs: job_count(args.jobs),
    };
    interrupts::watch().context("cannot listen for Ctrl-C")?;
    let mut shown = Shown::new(args.output.quiet || args.output.json);
    let mut show = |progress: &Progress| {
        shown.show_exploration(progress);
        interrupts::count() == 0
    };
    let explored = search(&bounds, &limits, &mut show).map_err(Failure::arguments)?;
    shown.clear();
    let file = match &explored.counterexample {
        Some(steps) => Some(store(args, steps)?),
        None => None,
    };
    let as_faults = match (&explored.counterexample, args.tries) {
        (None, _) | (_, 0) => None,
        (Some(steps), tries) => {
            let file = args.steps_file().with_extension("schedule.json");
            Some(reproduce(steps, tries, &file)?)
        }
    };
    report(args, &explored, file.as_deref(), as_faults.as_ref())
}

fn bounds_of(args: &ExploreArgs) -> Bounds {
    Bounds {
        nodes: args.nodes as usize,
        epochs: i32::from(args.epochs),
        beginning: args.from,
        budget: Budget {
            timeouts: args.timeouts,
            writes: args.writes,
            reads: args.reads,
            removals: args.removals,
            additions: args.additions,
            snapshots: args.snapshots,
            crashes: args.crashes,
            losses: args.losses,
            duplicates: args.duplicates,
        },
        snapshot_pieces: args.snapshot_pieces,
        bug: args.bug.clone(),
    }
}

fn store(args: &ExploreArgs, steps: &StepFile) -> Result<PathBuf, Failure> {
    let file = args.steps_file();
    if let Some(folder) = file.parent() {
        std::fs::create_dir_all(folder)
            .with_context(|| format!("cannot make the folder {}", folder.display()))?;
    }
    write_document(&file, steps)?;
    Ok(file)
}

/// What an exploration proves.
fn judge(explored: &Exploration, depth: u32) -> (Validity, String) {
    let so_far = format!(
        "explored to depth {} of {depth}, {} states",
        explored.depth, explored.states
    );
    let checked = &explored.checked;
    match &explored.ended {
        Ended::Violated(violation) => (Validity::Invalid, violation.to_string()),
        Ended::OutOfMemory => (Validity::Unknown, format!("out of memory: {so_far}")),
        Ended::OutOfTime => (Validity::Unknown, format!("out of time: {so_far}")),
        Ended::Interrupted => (Validity::Unknown, format!("interrupted: {so_far}")),
        Ended::AtDepth | Ended::Complete if checked.elections == 0 => (
            Validity::Unknown,
            format!("{so_far}, and nobody was elected: allow more depth or timeouts"),
        ),
        Ended::AtDepth | Ended::Complete if checked.commits == 0 => (
            Validity::Unknown,
            format!("{so_far}, and nothing was committed: allow more depth or timeouts"),
        ),
        Ended::Complete => (
            Validity::Valid,
            format!(
                "all {} states within the bounds keep all rules; none is more than {} steps away",
                explored.states,
                explored.depth.saturating_sub(1)
            ),
        ),
        Ended::AtDepth => (
            Validity::Valid,
            format!(
                "all {} states within {} steps keep all rules",
                explored.states, explored.depth
            ),
        ),
    }
}

fn report(
    args: &ExploreArgs,
    explored: &Exploration,
    file: Option<&Path>,
    as_faults: Option<&Option<Reproduced>>,
) -> Result<u8, Failure> {
    let steps = explored.counterexample.as_ref();
    let (valid, summary) = judge(explored, args.depth);
    let code = exit::of_validity(valid);
    let replay = file.map(|file| format!("harness explore --replay {}", file.display()));
    if args.output.json {
        let checked = &explored.checked;
        let rules = Rule::ALL.into_iter();
        let rules: serde_json::Map<_, _> = rules
            .map(|rule| (rule.id().to_owned(), checked.count(rule).into()))
            .collect();
        let line = json!({
            "valid": valid,
            "summary": summary,
            "states": explored.states,
            "transitions": explored.transitions,
            "beyond_epochs": explored.beyond_epochs,
            "depth": explored.depth,
            "new_states": explored.new_states,
            "checked": rules,
            "elections": checked.elections,
            "commits": checked.commits,
            "truncations": checked.truncations,
            "crashes": checked.crashes,
            "reads": checked.reads,
            "voter_changes": checked.voter_changes,
            "snapshots": checked.snapshots,
            "installations": checked.installations,
            "elapsed_ms": explored.elapsed.as_millis() as u64,
            "steps": steps.map(|steps| &steps.steps),
            "replay": replay,
            "simulated": as_faults.and_then(Option::as_ref).map(|reproduced| &reproduced.command),
            "exit_code": code,
        });
        announce::print(&line.to_string())?;
        return Ok(code);
    }
    let mut text = format!(
        "verdict: {}\nwhy:     {summary}\n{}",
        valid.word().to_uppercase(),
        numbers(explored)
    );
    if let Some(steps) = steps {
        text.push('\n');
        text.push_str(&listed(steps));
    }
    if let Some(replay) = replay {
        let _ = write!(text, "\nreplay:  {replay}");
    }
    match as_faults {
        None => {}
        Some(Some(Reproduced { command, failures })) => {
            let _ = write!(text, "\nfaults:  {command} ({})", failures.join(", "));
        }
        Some(None) => {
            let _ = write!(
                text,
                "\nfaults:  none of {} simulated runs broke the same rule by faults; the order of messages, which \
                 faults do not decide, matters here",
                args.tries
            );
        }
    }
    announce::print(&text)?;
    Ok(code)
}

fn numbers(explored: &Exploration) -> String {
    let checked = &explored.checked;
    let seconds = explored.elapsed.as_secs_f64();
    let mut text = format!(
        "states:  {} in {:.1} s ({:.0}/s), by {} steps; {} steps led to a later epoch and not on\n\
         saw:     {} elections, {} commits, {} truncations, {} crashes, {} reads, \
         {} changes of voters, {} snapshots taken, {} installed",
        explored.states,
        seconds,
        explored.states as f64 / seconds.max(1e-3),
        explored.transitions,
        explored.beyond_epochs,
        checked.elections,
        checked.commits,
        checked.truncations,
        checked.crashes,
        checked.reads,
        checked.voter_changes,
        checked.snapshots,
        checked.installations,
    );
    for rule in Rule::ALL {
        let _ = write!(
            text,
            "\n  {:<5} {:<73} {:>9} times",
            rule.id(),
            rule.title(),
            checked.count(rule)
        );
    }
    text
}

/// A way in words, one line per step, with what it led to.
fn listed(steps: &StepFile) -> String {
    let width = steps.steps.len().to_string().len();
    let lines = steps.steps.iter().enumerate().map(|(at, step)| {
        let mut line = format!("  {:>width$}. {}", at + 1, step.step);
        if !step.then.is_empty() {
            let _ = write!(line, "\n  {:>width$}    => {}", "", step.then.join("; "));
        }
        line
    });
    lines.collect::<Vec<_>>().join("\n")
}

fn replay(args: &ExploreArgs, file: &Path) -> Result<u8, Failure> {
    let steps: StepFile =
        results::store::read_document(file).map_err(|error| Failure::BadArguments(error.into()))?;
    let replayed = steps
        .replay()
        .map_err(|problem| Failure::arguments(format!("{}: {problem}", file.display())))?;
    let count = steps.steps.len();
    let (valid, summary) = match &replayed {
        Replayed::Same(violation) => (
            Validity::Invalid,
            format!("the same {count} steps, state by state, break {violation}"),
        ),
        Replayed::Otherwise(step, what) => (
            Validity::Unknown,
            format!("step {step} of {count} is not what it was: {what}"),
        ),
    };
    let code = exit::of_validity(valid);
    if args.output.json {
        let line = json!({
            "same": valid == Validity::Invalid,
            "summary": summary,
            "steps": count,
            "exit_code": code,
        });
        announce::print(&line.to_string())?;
        return Ok(code);
    }
    let mut text = String::new();
    if !args.output.quiet {
        text = listed(&steps) + "\n";
    }
    let word = valid.word().to_uppercase();
    announce::print(&format!("{text}verdict: {word}\nwhy:     {summary}"))?;
    Ok(code)
}
