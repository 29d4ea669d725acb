//! Owns `harness list`: one line per stored run, those that were asked for.
//! Never judges, and never leaves out a run that cannot be read unless others were asked for.

use nemesis::family::check_word;
use nemesis::tuning::family_name;
use results::byte_size::shown;
use results::overview::{Overview, Overviews, Standing, overviews};
use results::store::Store;
use results::verdict::Validity;
use serde_json::json;

use super::announce;
use crate::cli::ListArgs;
use crate::exit::Failure;

/// How wide the column of verdicts is at least.
const VERDICT_WIDTH: usize = 10;

/// Executes `harness list`.
///
/// # Errors
/// When the store cannot be read.
pub fn list(args: &ListArgs) -> Result<u8, Failure> {
    let store = Store::new(&args.store.out);
    let Overviews { runs, unreadable } = overviews(&store)?;
    let mut damaged: Vec<String> = unreadable.into_iter().map(|(name, _)| name).collect();
    if runs.is_empty() && damaged.is_empty() && !args.json {
        announce::print(&format!(
            "no runs in {}; `harness run` makes one",
            args.store.out.display()
        ))?;
        return Ok(0);
    }
    // Runs of earlier versions may have families that this one does not know.
    if let Some(name) = &args.nemesis
        && !runs.iter().any(|run| has_family(run, name))
    {
        check_word(name).map_err(|error| Failure::arguments(error.to_string()))?;
    }
    let asked_for = runs.iter().filter(|run| is_asked_for(args, run));
    let asked_for = asked_for.take(args.limit.unwrap_or(usize::MAX));
    let asked_for: Vec<&Overview> = asked_for.collect();
    let words: Vec<String> = asked_for.iter().map(|run| verdict(run)).collect();
    // As wide as what stands in it, so that most lists stay narrow.
    let width = words.iter().map(String::len).max().unwrap_or(0);
    let width = width.max(VERDICT_WIDTH);
    let told = asked_for.iter().zip(&words);
    let mut lines: Vec<String> = told
        .map(|(run, word)| match args.json {
            true => machine_readable(run),
            false => line(run, word, width),
        })
        .collect();
    if !args.filters_runs() {
        damaged.truncate(args.limit.map_or(usize::MAX, |limit| limit - lines.len()));
        let word = Standing::Damaged.word();
        lines.extend(damaged.into_iter().map(|name| match args.json {
            true => json!({"run": name, "verdict": word}).to_string(),
            false => format!(
                "{word:<width$}  {:>9}  {:>11}  {}",
                "",
                "",
                name.escape_debug()
            ),
        }));
    }
    if lines.is_empty() && !args.json {
        lines.push(format!("none of {} runs is like that", runs.len()));
    }
    if !lines.is_empty() {
        announce::print(&lines.join("\n"))?;
    }
    Ok(0)
}

fn is_asked_for(args: &ListArgs, run: &Overview) -> bool {
    let Overview {
        manifest, standing, ..
    } = run;
    let options = &manifest.options;
    let like = |wanted: &Option<String>, has: &str| {
        wanted.as_deref().is_none_or(|wanted| has.contains(wanted))
    };
    let verdict_fits = match args.verdict.as_deref() {
        Some("failed") => *standing != Standing::Judged(Validity::Valid),
        Some("none") => standing.verdict().is_none() && *standing != Standing::Damaged,
        Some(wanted) => standing.word() == wanted,
        None => true,
    };
    let nemesis_fits = (args.nemesis.as_deref()).is_none_or(|wanted| has_family(run, wanted));
    verdict_fits
        && nemesis_fits
        && (!args.interrupted || run.is_interrupted())
        && like(&args.workload, &options.workload)
        && like(&args.name, &run.folder_name)
        && args.seed.is_none_or(|seed| manifest.seed == seed)
        && (args.bug.is_none() || options.bug.is_some())
        && like(&args.bug, options.bug.as_deref().unwrap_or_default())
}

/// Whether faults of this name came, or none did and that is asked for.
fn has_family(run: &Overview, wanted: &str) -> bool {
    let families = &run.manifest.options.nemesis;
    let mut names = families.iter().map(|family| family_name(family));
    names.any(|name| name == wanted) || (wanted == "none" && families.is_empty())
}

/// The verdict, or why there is none, and whether the run was stopped before its time.
fn verdict(run: &Overview) -> String {
    let word = run.standing.word();
    let beside = match run.standing {
        Standing::Judged(_) => run.mark(),
        Standing::Damaged => None,
        other => Some(other.reason()),
    };
    beside.map_or_else(|| word.to_owned(), |beside| format!("{word}, {beside}"))
}

fn machine_readable(run: &Overview) -> String {
    let manifest = &run.manifest;
    json!({
        "run": run.folder_name,
        "verdict": run.standing.word(),
        "reason": run.standing.reason(),
        "interrupted": run.is_interrupted(),
        "stopped_by": manifest.stop_reason(),
        "world": manifest.world,
        "workload": manifest.options.workload,
        "nemesis": manifest.options.nemesis,
        "bug": manifest.options.bug,
        "seed": manifest.seed,
        "started": manifest.started,
        "length_ms": manifest.length_ms(),
        "ok_count": run.ok_count,
        "size_bytes": run.size_bytes,
    })
    .to_string()
}

fn line(run: &Overview, verdict: &str, width: usize) -> String {
    let length = run.manifest.length_ms();
    let length = length.map(|ms| format!("{:.1} s", ms as f64 / 1e3));
    format!(
        "{verdict:<width$}  {:>9}  {:>11}  {}",
        length.unwrap_or_default(),
        shown(run.size_bytes),
        run.folder_name.escape_debug()
    )
}
