//! Owns the layout of the run store, and atomic replacement of its documents.
//! Never deletes anything recorded.

use std::io::Write;
use std::path::{Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::campaign::Campaign;
use crate::manifest::Manifest;
use crate::schedule::Schedule;
use crate::{Error, FORMAT_VERSION, Result};

pub use crate::folder::{Recording, RunFolder};

/// Name of the folder of campaigns in a store, which is no run.
pub const CAMPAIGNS: &str = "campaigns";

/// The folder that holds all runs (`runs/`).
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

impl Store {
    /// The store at `root`, which need not exist yet.
    pub fn new(root: impl Into<PathBuf>) -> Self {
        Self { root: root.into() }
    }

    /// Where the store is.
    pub fn root(&self) -> &Path {
        &self.root
    }

    /// Creates the folder of a new run and points `latest` at it.
    pub fn create_run(&self, name: &str) -> Result<RunFolder> {
        let path = self.root.join(name);
        std::fs::create_dir_all(&self.root)
            .map_err(|source| Error::io("create the output folder", &self.root, source))?;
        std::fs::create_dir(&path)
            .map_err(|source| Error::io("create the run folder", &path, source))?;
        let folder = RunFolder::at(path);
        self.point_latest_at(name)?;
        Ok(folder)
    }

    /// Removes a run in which nothing has happened yet, and points `latest` at the newest that is left.
    ///
    /// # Errors
    /// When the folder cannot be removed, or holds a recorded operation.
    pub fn discard_unbegun(&self, folder: &RunFolder) -> Result<()> {
        let history = folder.history_path();
        if std::fs::metadata(&history).is_ok_and(|metadata| metadata.len() > 0) {
            let reason = std::io::Error::other("it holds recorded operations");
            return Err(Error::io("discard", history, reason));
        }
        std::fs::remove_dir_all(folder.path())
            .map_err(|source| Error::io("remove", folder.path(), source))?;
        self.refresh_latest()
    }

    /// Points `latest` at the newest run, and removes it if there is none. Runs that are made side by side
    /// are not stored in the order in which they were started.
    ///
    /// # Errors
    /// When the store cannot be read, or the link not be changed.
    pub fn refresh_latest(&self) -> Result<()> {
        match self.list()?.first() {
            Some((_, newest)) => self.point_latest_at(&newest.name),
            None => {
                let link = self.root.join("latest");
                match std::fs::remove_file(&link) {
                    Err(error) if error.kind() == std::io::ErrorKind::NotFound => Ok(()),
                    other => other.map_err(|source| Error::io("remove", link, source)),
                }
            }
        }
    }

    fn point_latest_at(&self, name: &str) -> Result<()> {
        let link = self.root.join("latest");
        let fresh = self.root.join(format!(".latest-{}", std::process::id()));
        let _ = std::fs::remove_file(&fresh);
        std::os::unix::fs::symlink(name, &fresh)
            .map_err(|source| Error::io("create the link", &fresh, source))?;
        std::fs::rename(&fresh, &link)
            .map_err(|source| Error::io("replace the link", &link, source))
    }

    /// All runs that have a readable manifest, newest first.
    pub fn list(&self) -> Result<Vec<(RunFolder, Manifest)>> {
        let mut runs = Vec::new();
        for name in self.folder_names()? {
            let folder = RunFolder::at(self.root.join(name));
            if let Ok(manifest) = folder.manifest() {
                runs.push((folder, manifest));
            }
        }
        runs.sort_by(|(_, one), (_, other)| {
            other
                .started
                .cmp(&one.started)
                .then_with(|| other.name.cmp(&one.name))
        });
        Ok(runs)
    }

    /// Names of all folders that could be runs, in order.
    pub(crate) fn folder_names(&self) -> Result<Vec<String>> {
        let failed = |source| Error::io("list", &self.root, source);
        let entries = match std::fs::read_dir(&self.root) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(failed(source)),
        };
        let mut names = Vec::new();
        for entry in entries {
            let entry = entry.map_err(failed)?;
            let name = entry.file_name().to_string_lossy().into_owned();
            if name != CAMPAIGNS && entry.file_type().is_ok_and(|kind| kind.is_dir()) {
                names.push(name);
            }
        }
        names.sort();
        Ok(names)
    }

    /// `campaigns/`: what came of commands that ran many seeds.
    pub fn campaigns_path(&self) -> PathBuf {
        self.root.join(CAMPAIGNS)
    }

    /// `campaigns/<name>.html`, the page of a campaign.
    pub fn campaign_page_path(&self, name: &str) -> PathBuf {
        self.campaigns_path().join(format!("{name}.html"))
    }

    fn campaign_path(&self, name: &str) -> PathBuf {
        self.campaigns_path().join(format!("{name}.json"))
    }

    /// Replaces what is known of a campaign.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_campaign(&self, campaign: &Campaign) -> Result<()> {
        let folder = self.campaigns_path();
        std::fs::create_dir_all(&folder)
            .map_err(|source| Error::io("create the folder", &folder, source))?;
        write_document(&self.campaign_path(&campaign.name), campaign)
    }

    /// Reads one campaign.
    ///
    /// # Errors
    /// When there is none of that name, or it cannot be read.
    pub fn campaign(&self, name: &str) -> Result<Campaign> {
        let path = self.campaign_path(name);
        let mut campaign: Campaign = read_document(&path)?;
        // Whatever it says: it is found, shown and removed by the name of its file.
        name.clone_into(&mut campaign.name);
        if campaign.format_version > FORMAT_VERSION {
            return Err(Error::UnsupportedVersion {
                path,
                found: campaign.format_version,
                supported: FORMAT_VERSION,
            });
        }
        Ok(campaign)
    }

    /// All campaigns that can be read, newest first.
    pub fn campaigns(&self) -> Vec<Campaign> {
        let Ok(entries) = std::fs::read_dir(self.campaigns_path()) else {
            return Vec::new();
        };
        let names = entries.flatten().filter_map(|entry| {
            let name = entry.file_name().into_string().ok()?;
            name.strip_suffix(".json").map(str::to_owned)
        });
        let mut campaigns: Vec<_> = names.filter_map(|name| self.campaign(&name).ok()).collect();
        campaigns.sort_by(|one, other| {
            let newest = other.started.cmp(&one.started);
            newest.then_with(|| other.name.cmp(&one.name))
        });
        campaigns
    }

    /// Finds a run by path, by name, by an unambiguous beginning or end of its name, or as `latest`.
    pub fn find(&self, wanted: &str) -> Result<RunFolder> {
        let direct = Path::new(wanted);
        if direct.join("manifest.json").is_file() {
            return Ok(RunFolder::at(direct));
        }
        let inside = self.root.join(wanted);
        if !wanted.is_empty() && inside.join("manifest.json").is_file() {
            // Under its own name, so that what is said about the run stays true when `latest` moves on.
            let path = match std::fs::read_link(&inside) {
                Ok(target) => self.root.join(target),
                Err(_) => inside,
            };
            return Ok(RunFolder::at(path));
        }
        let matching: Vec<_> = self
            .list()?
            .into_iter()
            .filter(|(_, run)| {
                !wanted.is_empty() && (run.name.starts_with(wanted) || run.name.ends_with(wanted))
            })
            .map(|(folder, _)| folder)
            .collect();
        match matching.as_slice() {
            [only] => Ok(only.clone()),
            [] if direct.is_dir() || inside.is_dir() => Err(Error::NoSuchRun {
                wanted: wanted.into(),
                store: self.root.clone(),
                hint: "the folder is there but holds no manifest.json, so it is not a run, or it is damaged"
                    .into(),
            }),
            [] => Err(Error::NoSuchRun {
                wanted: wanted.into(),
                store: self.root.clone(),
                hint: "give a run's folder, its name, the beginning of its name, or `latest`".into(),
            }),
            several => Err(Error::NoSuchRun {
                wanted: wanted.into(),
                store: self.root.clone(),
                hint: format!(
                    "{} runs have names that begin or end so; give more of the name, or `latest`",
                    several.len()
                ),
            }),
        }
    }
}

/// Reads a schedule from any file, numbers faults that have no number, and orders them by time.
pub fn read_schedule(path: &Path) -> Result<Schedule> {
    let text = std::fs::read(path).map_err(|source| Error::io("read", path, source))?;
    // What else is there would be taken for a list of the members of a schedule.
    if text.trim_ascii_start().first() == Some(&b'[') {
        return Err(Error::Malformed {
            path: path.to_path_buf(),
            line: 1,
            reason: "this is a list, and a schedule is an object: {\"format_version\": 1, \"faults\": [...]}"
                .into(),
        });
    }
    let mut schedule: Schedule = parse_document(path, &text)?;
    if schedule.format_version != FORMAT_VERSION {
        return Err(Error::UnsupportedVersion {
            path: path.to_path_buf(),
            found: schedule.format_version,
            supported: FORMAT_VERSION,
        });
    }
    schedule.faults.sort_by_key(|fault| fault.trigger.at_ms);
    let mut next = schedule
        .faults
        .iter()
        .map(|fault| fault.id)
        .max()
        .unwrap_or(0);
    for fault in &mut schedule.faults {
        if fault.id == 0 {
            next += 1;
            fault.id = next;
        }
    }
    Ok(schedule)
}

/// Reads one JSON document; the error names the line.
pub fn read_document<T: DeserializeOwned>(path: &Path) -> Result<T> {
    let text = std::fs::read(path).map_err(|source| Error::io("read", path, source))?;
    parse_document(path, &text)
}

pub(crate) fn parse_document<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T> {
    serde_json::from_slice(text)
        .map_err(|error| Error::malformed(path, error.line().max(1), &error))
}

/// Replaces a JSON document so that a reader sees the old or the new one, never half of either.
pub fn write_document<T: Serialize>(path: &Path, document: &T) -> Result<()> {
    let mut text = serde_json::to_vec_pretty(document)
        .map_err(|error| Error::io("write", path, error.into()))?;
    text.push(b'\n');
    write_atomically(path, &text)
}

/// Replaces a file so that a reader sees the old or the new content, never half of either.
pub fn write_atomically(path: &Path, content: &[u8]) -> Result<()> {
    // Others may replace the same file at this moment, and each must rename what is its own.
    static COUNT: AtomicU64 = AtomicU64::new(0);
    let number = COUNT.fetch_add(1, Ordering::Relaxed);
    let mut temporary = path.as_os_str().to_owned();
    temporary.push(format!(".{}-{number}.tmp", std::process::id()));
    let temporary = PathBuf::from(temporary);
    let replaced = std::fs::File::create(&temporary)
        .and_then(|mut file| file.write_all(content))
        .and_then(|()| std::fs::rename(&temporary, path));
    replaced.map_err(|source| {
        let _ = std::fs::remove_file(&temporary);
        Error::io("write", path, source)
    })
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn latest_follows_the_newest_run() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().join("runs"));
        store.create_run("one").unwrap();
        store.create_run("two").unwrap();
        assert_eq!(
            std::fs::read_link(store.root().join("latest")).unwrap(),
            Path::new("two")
        );
        assert!(
            store.create_run("one").is_err(),
            "a run is never overwritten"
        );
    }

    #[test]
    fn only_a_run_without_operations_can_be_discarded() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().join("runs"));
        let folder = store.create_run("one").unwrap();
        std::fs::write(folder.history_path(), "{}\n").unwrap();
        assert!(store.discard_unbegun(&folder).is_err());
        assert!(folder.path().is_dir());
        std::fs::write(folder.history_path(), "").unwrap();
        store.discard_unbegun(&folder).unwrap();
        assert!(!folder.path().exists());
        assert!(store.root().join("latest").symlink_metadata().is_err());
    }

    #[test]
    fn a_folder_without_manifest_is_no_run() {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path());
        store.create_run("one").unwrap();
        assert!(
            store
                .find("one")
                .unwrap_err()
                .to_string()
                .contains("no manifest.json")
        );
        assert!(
            store
                .find("other")
                .unwrap_err()
                .to_string()
                .contains("latest")
        );
        assert!(store.find("").is_err());
    }

    #[test]
    fn a_schedule_is_numbered_and_ordered_on_load() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("schedule.json");
        std::fs::write(
            &path,
            r#"{"format_version":1,"faults":[
                {"trigger":{"at_ms":9},"duration_ms":1,"fault":{"kind":"kill"}},
                {"id":7,"trigger":{"at_ms":3},"duration_ms":1,"fault":{"kind":"pause"}}]}"#,
        )
        .unwrap();
        let schedule = read_schedule(&path).unwrap();
        let summary: Vec<_> = schedule
            .faults
            .iter()
            .map(|fault| (fault.id, fault.trigger.at_ms))
            .collect();
        assert_eq!(summary, [(7, 3), (8, 9)]);
    }

    #[test]
    fn a_missing_field_names_file_line_and_field() {
        let root = tempfile::tempdir().unwrap();
        let path = root.path().join("schedule.json");
        std::fs::write(&path, "{\"format_version\":1,\n\"seed\":3}\n").unwrap();
        let message = read_schedule(&path).unwrap_err().to_string();
        assert!(
            message.contains("schedule.json line") && message.contains("`faults`"),
            "{message}"
        );
    }
}
