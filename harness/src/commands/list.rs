//! Owns `harness list`: one line per stored run, those that were asked for.
//! Never judges, and never leaves out a run that cannot be read unless others were asked for.

use nemesis::tuning::family_name;
use results::housekeeping::size_bytes;
use results::manifest::Manifest;
use results::store::{RunFolder, Store};
use results::verdict::Validity;
use serde_json::json;

use super::announce;
use crate::byte_size::shown;
use crate::cli::ListArgs;
use crate::exit::Failure;

/// Executes `harness list`.
///
/// # Errors
/// When the store cannot be read.
pub fn list(args: &ListArgs) -> Result<u8, Failure> {
    let store = Store::new(&args.store.out);
    let (runs, mut damaged) = (store.list()?, store.damaged()?);
    if runs.is_empty() && damaged.is_empty() && !args.json {
        announce::print(&format!(
            "no runs in {}; `harness run` makes one",
            args.store.out.display()
        ))?;
        return Ok(0);
    }
    let mut lines = Vec::new();
    for (folder, manifest) in &runs {
        let verdict = word(folder);
        if is_asked_for(args, manifest, verdict) {
            lines.push(line(args.json, folder, manifest, verdict));
        }
        if lines.len() == args.limit.unwrap_or(usize::MAX) {
            break;
        }
    }
    if !args.filters_runs() {
        damaged.truncate(args.limit.map_or(usize::MAX, |limit| limit - lines.len()));
        lines.extend(damaged.into_iter().map(|name| match args.json {
            true => json!({"run": name, "verdict": "damaged"}).to_string(),
            false => format!("{:<10}  {:>9}  {}", "damaged", "", name.escape_debug()),
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

/// The verdict in a word, or why there is none.
fn word(folder: &RunFolder) -> &'static str {
    match folder.verdict() {
        Ok(Some(verdict)) => verdict.valid.word(),
        Ok(None) => "no verdict",
        Err(_) => "damaged",
    }
}

fn is_asked_for(args: &ListArgs, manifest: &Manifest, verdict: &str) -> bool {
    let options = &manifest.options;
    let like = |wanted: &Option<String>, has: &str| {
        wanted.as_deref().is_none_or(|wanted| has.contains(wanted))
    };
    let valid = Validity::Valid.word();
    let verdict_fits = match args.verdict.as_deref() {
        Some("failed") => verdict != valid,
        Some("none") => verdict == "no verdict",
        Some(wanted) => verdict == wanted,
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

fn line(is_json: bool, folder: &RunFolder, manifest: &Manifest, verdict: &str) -> String {
    let size_bytes = size_bytes(folder.path());
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
            "size_bytes": size_bytes,
        })
        .to_string();
    }
    let name = manifest.name.escape_debug();
    format!("{verdict:<10}  {:>9}  {name}", shown(size_bytes))
}
