//! Owns `harness gc`: removes old runs, and tells what that frees.
//! Never removes a run that may still be going on, or one that it was told to keep.

use results::byte_size::shown;
use results::housekeeping::{Keeping, Stored, given_up, remove};
use results::store::Store;
use serde_json::json;

use super::announce;
use crate::cli::GcArgs;
use crate::exit::Failure;
use crate::progress::Progress;

/// Executes `harness gc`.
///
/// # Errors
/// When the store cannot be read, or a run cannot be removed.
pub fn gc(args: &GcArgs) -> Result<u8, Failure> {
    let store = Store::new(&args.store.out);
    let keeping = Keeping {
        newest_count: args.keep,
        failed: args.keep_failed,
    };
    let runs = given_up(&store, keeping)?;
    for Stored {
        folder,
        manifest,
        size_bytes,
    } in &runs
    {
        if !args.dry_run {
            remove(folder)?;
        }
        if !args.json {
            let verb = if args.dry_run {
                "would remove"
            } else {
                "removed"
            };
            let name = manifest.name.escape_debug();
            announce::print(&format!("{verb}  {:>9}  {name}", shown(*size_bytes)))?;
        }
    }
    if !args.dry_run && !runs.is_empty() {
        store.refresh_latest()?;
        if let Err(error) = results_report::render_index(&store) {
            Progress::new(args.json)
                .note(&format!("the index of runs could not be drawn: {error}"));
        }
        // Their pages link to runs that may be gone now.
        for campaign in store.campaigns() {
            if let Err(error) = results_report::render_campaign(&store, &campaign) {
                Progress::new(args.json).note(&error.to_string());
            }
        }
    }
    let freed_bytes: u64 = runs.iter().map(|run| run.size_bytes).sum();
    let left_count = store.list()?.len();
    let names: Vec<&str> = runs.iter().map(|run| run.manifest.name.as_str()).collect();
    announce::print(&if args.json {
        json!({"removed": names, "bytes": freed_bytes, "left": left_count, "dry_run": args.dry_run})
            .to_string()
    } else {
        format!(
            "{} runs, {}; {left_count} runs are {}",
            runs.len(),
            shown(freed_bytes),
            if args.dry_run { "there" } else { "left" }
        )
    })?;
    Ok(0)
}
