//! Owns `harness list`: one line per stored run, those that were asked for.
//! Never judges, and never leaves out a run that cannot be read unless others were asked for.

use nemesis::tuning::family_name;
use results::byte_size::shown;
use results::overview::{Overview, Overviews, Standing, overviews};
use results::store::Store;
use results::verdict::Validity;
use serde_json::json;

use super::announce;
use crate::cli::ListArgs;
use crate::exit::Failure;

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
    let asked_for = runs.iter().filter(|run| is_asked_for(args, run));
    let asked_for = asked_for.take(args.limit.unwrap_or(usize::MAX));
    let mut lines: Vec<String> = asked_for.map(|run| line(args.json, run)).collect();
    if !args.filters_runs() {
        damaged.truncate(args.limit.map_or(usize::MAX, |limit| limit - lines.len()));
        let word = Standing::Damaged.word();
        lines.extend(damaged.into_iter().map(|name| match args.json {
            true => json!({"run": name, "verdict": word}).to_string(),
            false => format!("{word:<10}  {:>9}  {:>11}  {}", "", "", name.escape_debug()),
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
    let nemesis_fits = args.nemesis.as_deref().is_none_or(|wanted| {
        let mut families = options.nemesis.iter();
        families.any(|family| family_name(family) == wanted)
    });
    verdict_fits
        && nemesis_fits
        && like(&args.workload, &options.workload)
        && like(&args.name, &manifest.name)
        && args.seed.is_none_or(|seed| manifest.seed == seed)
        && (args.bug.is_none() || options.bug.is_some())
        && like(&args.bug, options.bug.as_deref().unwrap_or_default())
}

fn line(is_json: bool, run: &Overview) -> String {
    let Overview {
        manifest,
        standing,
        size_bytes,
        ..
    } = run;
    let verdict = standing.word();
    if is_json {
        return json!({
            "run": manifest.name,
            "verdict": verdict,
            "world": manifest.world,
            "workload": manifest.options.workload,
            "nemesis": manifest.options.nemesis,
            "bug": manifest.options.bug,
            "seed": manifest.seed,
            "started": manifest.started,
            "length_ms": manifest.length_ms(),
            "ok_count": run.ok_count,
            "size_bytes": size_bytes,
        })
        .to_string();
    }
    let length = manifest
        .length_ms()
        .map(|ms| format!("{:.1} s", ms as f64 / 1e3));
    format!(
        "{verdict:<10}  {:>9}  {:>11}  {}",
        length.unwrap_or_default(),
        shown(*size_bytes),
        manifest.name.escape_debug()
    )
}
