//! Owns what a store takes up, and the removal of whole runs that somebody gave up, and of campaigns without any.
//! Never removes part of a run, and never chooses by anything but what it was told to keep.

use std::path::Path;
use std::time::{Duration, SystemTime};

use crate::manifest::Manifest;
use crate::ownership::Owner;
use crate::store::{RunFolder, Store};
use crate::verdict::Validity;
use crate::{Error, Result};

/// A run that goes on writes all the time: one whose history changed so recently may still go on.
const LIFE_SIGN: Duration = Duration::from_secs(60);

/// One whose history did not change for so long does not, whoever has it open.
const SILENCE: Duration = Duration::from_secs(60 * 60);

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
/// knows: it may be if it has no end, and was changed within the last minute, or within the last hour and some process
/// has a file of it open.
pub fn may_be_going_on(folder: &RunFolder, manifest: &Manifest) -> bool {
    match folder.owner() {
        Owner::Alive => true,
        Owner::Dead => false,
        Owner::None if manifest.ended.is_some() => false,
        Owner::None => match unchanged_for(folder) {
            Some(age) if age < LIFE_SIGN => true,
            Some(age) if age < SILENCE => is_open(folder.path()),
            _ => false,
        },
    }
}

/// How long ago the history was written; `None` if that is not known, or in the future.
fn unchanged_for(folder: &RunFolder) -> Option<Duration> {
    let about = std::fs::metadata(folder.history_path());
    let about = about.or_else(|_| std::fs::metadata(folder.manifest_path()));
    let changed = about.and_then(|about| about.modified()).ok()?;
    SystemTime::now().duration_since(changed).ok()
}

/// Whether some process has a file below the folder open, as far as the system tells this user.
fn is_open(folder: &Path) -> bool {
    let Ok(folder) = folder.canonicalize() else {
        return false;
    };
    let entries = |path: &Path| std::fs::read_dir(path).into_iter().flatten().flatten();
    let mut processes = entries(Path::new("/proc")).map(|process| process.path().join("fd"));
    processes.any(|files| {
        let mut files = entries(&files);
        files.any(|file| std::fs::read_link(file.path()).is_ok_and(|it| it.starts_with(&folder)))
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

#[cfg(test)]
mod tests {
    use std::fs::File;

    use super::*;

    #[test]
    fn a_run_without_owner_goes_on_while_it_is_written_or_open() {
        let root = tempfile::tempdir().unwrap();
        let folder = Store::new(root.path()).create_run("one").unwrap();
        let path = folder.history_path();
        std::fs::write(&path, "").unwrap();
        let aged = |age: Duration| {
            let file = File::options().append(true).open(&path).unwrap();
            file.set_modified(SystemTime::now() - age).unwrap();
        };
        let made_up = crate::manifest::made_up("one", 1);
        let mut manifest: Manifest = serde_json::from_value(made_up).unwrap();
        manifest.ended = None;
        let minutes = |count: u64| Duration::from_secs(60 * count);
        assert!(may_be_going_on(&folder, &manifest));
        aged(minutes(2));
        assert!(!may_be_going_on(&folder, &manifest));
        let open = File::open(&path).unwrap();
        assert!(may_be_going_on(&folder, &manifest));
        aged(minutes(61));
        assert!(!may_be_going_on(&folder, &manifest));
        drop(open);
        aged(Duration::ZERO);
        manifest.ended = Some(manifest.started);
        assert!(!may_be_going_on(&folder, &manifest));
    }
}
