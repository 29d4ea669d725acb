//! Owns `harness gc`: removes old runs, and campaigns of which none is left, and tells what that frees.
//! Never removes a run that may still be going on, or one that it was told to keep.

use results::byte_size::shown;
use results::housekeeping::{Keeping, given_up, orphaned, remove, remove_campaign};
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
    let campaigns = orphaned(&store, &runs);
    let told = |size: &str, name: &str| {
        let verb = match args.dry_run {
            true => "would remove",
            false => "removed",
        };
        announce::print(&format!("{verb}  {size:>9}  {}", name.escape_debug()))
    };
    for run in &runs {
        if !args.dry_run {
            remove(&run.folder)?;
        }
        if !args.json {
            told(&shown(run.size_bytes), &run.manifest.name)?;
        }
    }
    for name in &campaigns {
        if !args.dry_run {
            remove_campaign(&store, name)?;
        }
        if !args.json {
            told("campaign", name)?;
        }
    }
    let has_changed = !runs.is_empty() || !campaigns.is_empty();
    if has_changed && !args.dry_run {
        draw_anew(&store, &Progress::new(args.json))?;
    }
    let freed_bytes: u64 = runs.iter().map(|run| run.size_bytes).sum();
    let left_count = store.list()?.len();
    let names: Vec<&str> = runs.iter().map(|run| run.manifest.name.as_str()).collect();
    announce::print(&if args.json {
        json!({"removed": names, "campaigns": campaigns, "bytes": freed_bytes, "left": left_count,
            "dry_run": args.dry_run})
        .to_string()
    } else {
        let of_campaigns = match campaigns.len() {
            0 => String::new(),
            1 => " and 1 campaign none of whose runs is left".to_owned(),
            count => format!(" and {count} campaigns none of whose runs is left"),
        };
        format!(
            "{} runs, {}{of_campaigns}; {left_count} runs are {}",
            runs.len(),
            shown(freed_bytes),
            if args.dry_run { "there" } else { "left" }
        )
    })?;
    Ok(0)
}

/// Whatever pointed at runs that may be gone now. What cannot be drawn is worth a note, no more.
fn draw_anew(store: &Store, progress: &Progress) -> Result<(), Failure> {
    store.refresh_latest()?;
    if let Err(error) = results_report::render_index(store) {
        progress.note(&format!("the index of runs could not be drawn: {error}"));
    }
    for campaign in store.campaigns() {
        if let Err(error) = results_report::render_campaign(store, &campaign) {
            progress.note(&error.to_string());
        }
    }
    Ok(())
}
