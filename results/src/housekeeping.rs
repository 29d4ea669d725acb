//! Owns what a store takes up, and the removal of whole runs that somebody gave up, and of campaigns without any.
//! Never removes part of a run, and never chooses by anything but what it was told to keep.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::manifest::Manifest;
use crate::ownership::Owner;
use crate::store::{RunFolder, Store};
use crate::verdict::Validity;
use crate::{Error, Result};

/// A run without owner and end whose history changed more recently may still be going on.
const STILL_GOING_ON: Duration = Duration::from_secs(60 * 60);

/// What is kept of a store.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Keeping {
    /// How many of the newest runs.
    pub newest_count: usize,
    /// Whether runs that are not valid are kept, too, however old they are.
    pub failed: bool,
}

/// A run, and how many bytes its files hold.
#[derive(Debug, Clone)]
pub struct Stored {
    /// The run.
    pub folder: RunFolder,
    /// Its manifest.
    pub manifest: Manifest,
    /// Bytes of all files in its folder.
    pub size_bytes: u64,
}

/// Bytes of all files below a folder. What cannot be read counts nothing; links are not followed.
pub fn size_bytes(folder: &Path) -> u64 {
    let Ok(entries) = std::fs::read_dir(folder) else {
        return 0;
    };
    let size = |entry: std::fs::DirEntry| match entry.file_type() {
        Ok(kind) if kind.is_dir() => size_bytes(&entry.path()),
        Ok(kind) if kind.is_file() => entry.metadata().map_or(0, |about| about.len()),
        _ => 0,
    };
    entries.flatten().map(size).sum()
}

/// The runs that need not be kept, newest first. A run that may still be going on is kept in any case.
///
/// # Errors
/// When the store cannot be listed.
pub fn given_up(store: &Store, keeping: Keeping) -> Result<Vec<Stored>> {
    let runs = store.list()?.into_iter().skip(keeping.newest_count);
    let given_up = runs.filter(|(folder, manifest)| {
        let is_kept = keeping.failed && has_failed(folder);
        !is_kept && !may_be_going_on(folder, manifest)
    });
    let stored = given_up.map(|(folder, manifest)| Stored {
        size_bytes: size_bytes(folder.path()),
        folder,
        manifest,
    });
    Ok(stored.collect())
}

/// The campaigns of which runs were stored, but none is left once `gone` are: their names.
pub fn orphaned(store: &Store, gone: &[Stored]) -> Vec<String> {
    let is_left = |run: &str| {
        let is_gone = gone
            .iter()
            .any(|stored| stored.folder.name().as_deref() == Some(run));
        !is_gone && store.root().join(run).join("manifest.json").is_file()
    };
    let campaigns = store.campaigns().into_iter().filter(|campaign| {
        let had_runs = campaign.runs().next().is_some();
        had_runs && !campaign.may_be_going_on() && !campaign.runs().any(is_left)
    });
    campaigns.map(|campaign| campaign.name).collect()
}

/// Whether a run has no verdict, an unreadable one, or one that is not valid.
fn has_failed(folder: &RunFolder) -> bool {
    !matches!(folder.verdict(), Ok(Some(verdict)) if verdict.valid == Validity::Valid)
}

/// Whether a run is still going on, or being judged. Of one without an owner, which an earlier version made, nobody
/// knows: it may be if it has no end, and was changed lately.
pub fn may_be_going_on(folder: &RunFolder, manifest: &Manifest) -> bool {
    match folder.owner() {
        Owner::Alive => true,
        Owner::Dead => false,
        Owner::None => manifest.ended.is_none() && was_changed_lately(folder),
    }
}

fn was_changed_lately(folder: &RunFolder) -> bool {
    let about = std::fs::metadata(folder.history_path());
    let about = about.or_else(|_| std::fs::metadata(folder.manifest_path()));
    let changed = about.and_then(|about| about.modified());
    changed.is_ok_and(|changed| {
        let age = SystemTime::now().duration_since(changed);
        age.is_ok_and(|age| age < STILL_GOING_ON)
    })
}

/// Removes what is kept of a campaign, for good.
///
/// # Errors
/// When a file of it cannot be removed.
pub fn remove_campaign(store: &Store, name: &str) -> Result<()> {
    let page = store.campaign_page_path(name);
    for path in [page.with_extension("json"), page] {
        match std::fs::remove_file(&path) {
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => {}
            other => other.map_err(|source| Error::io("remove", path, source))?,
        }
    }
    Ok(())
}

/// Removes a run for good.
///
/// # Errors
/// When the folder cannot be removed.
pub fn remove(folder: &RunFolder) -> Result<()> {
    // Without its manifest a folder is no run: what is removed half does not look like one.
    let manifest = folder.manifest_path();
    std::fs::remove_file(&manifest).map_err(|source| Error::io("remove", manifest, source))?;
    std::fs::remove_dir_all(folder.path())
        .map_err(|source| Error::io("remove", folder.path(), source))
}
