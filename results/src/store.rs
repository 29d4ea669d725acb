//! Owns the layout of the run store and of one run folder, and atomic replacement of its documents.
//! Never deletes anything recorded.

use std::collections::BTreeMap;
use std::io::{Read as _, Write};
use std::path::{Component, Path, PathBuf};
use std::sync::atomic::{AtomicU64, Ordering};

use serde::Serialize;
use serde::de::DeserializeOwned;

use crate::campaign::Campaign;
use crate::disk_image::DiskImage;
use crate::history::Operation;
use crate::manifest::Manifest;
use crate::schedule::Schedule;
use crate::seal::{Seal, Sealed, differences};
use crate::trace::TraceEvent;
use crate::verdict::Verdict;
use crate::{Error, FORMAT_VERSION, PACKED_FORMAT_VERSION, Result, json_lines, packed};

/// Name of the folder of campaigns in a store, which is no run.
pub const CAMPAIGNS: &str = "campaigns";

/// How much of the log of a node is read.
const LOG_BYTES_MAX: u64 = 16 << 20;

/// The folder that holds all runs (`runs/`).
#[derive(Debug, Clone)]
pub struct Store {
    root: PathBuf,
}

/// The folder of one run.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct RunFolder {
    path: PathBuf,
}

/// Everything recorded of a run that a checker may look at.
#[derive(Debug, Clone)]
pub struct Recording {
    /// What was asked for.
    pub manifest: Manifest,
    /// Client operations and nemesis actions.
    pub history: Vec<Operation>,
    /// Faults with their outcomes.
    pub schedule: Schedule,
    /// What the nodes said about themselves, merged by time; per node in the order they said it.
    pub trace: Vec<TraceEvent>,
    /// By node: what was found on its disk when the run was over. Empty where nobody looked.
    pub disks: BTreeMap<String, DiskImage>,
    /// By node: what a process wrote into its log, up to 16 MiB of it. Nodes of a simulation have none.
    pub logs: BTreeMap<String, String>,
    /// How the files differ from what they were when the run was over, for people.
    pub differences: Vec<String>,
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
        let folder = RunFolder { path };
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
        std::fs::remove_dir_all(&folder.path)
            .map_err(|source| Error::io("remove", &folder.path, source))?;
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
            return Ok(RunFolder {
                path: direct.to_path_buf(),
            });
        }
        let inside = self.root.join(wanted);
        if !wanted.is_empty() && inside.join("manifest.json").is_file() {
            // Under its own name, so that what is said about the run stays true when `latest` moves on.
            let path = match std::fs::read_link(&inside) {
                Ok(target) => self.root.join(target),
                Err(_) => inside,
            };
            return Ok(RunFolder { path });
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

impl RunFolder {
    /// A run folder at a known path.
    pub fn at(path: impl Into<PathBuf>) -> Self {
        Self { path: path.into() }
    }

    /// Where the run is.
    pub fn path(&self) -> &Path {
        &self.path
    }

    /// `manifest.json`.
    pub fn manifest_path(&self) -> PathBuf {
        self.path.join("manifest.json")
    }

    /// `history.jsonl`; it may be kept packed ([`crate::packed`]).
    pub fn history_path(&self) -> PathBuf {
        self.path.join("history.jsonl")
    }

    /// `schedule.json`.
    pub fn schedule_path(&self) -> PathBuf {
        self.path.join("schedule.json")
    }

    /// `verdict.json`.
    pub fn verdict_path(&self) -> PathBuf {
        self.path.join("verdict.json")
    }

    /// `index.html`.
    pub fn report_path(&self) -> PathBuf {
        self.path.join("index.html")
    }

    /// `network.pcap`: what a packet switch delivered.
    pub fn capture_path(&self) -> PathBuf {
        self.path.join("network.pcap")
    }

    /// `nodes/<node>/`: log, trace and data directory of one node.
    pub fn node_path(&self, node: &str) -> PathBuf {
        self.path.join("nodes").join(node)
    }

    /// `nodes/<node>/trace.jsonl`; it may be kept packed ([`crate::packed`]).
    pub fn trace_path(&self, node: &str) -> PathBuf {
        self.node_path(node).join("trace.jsonl")
    }

    /// `nodes/<node>/node.log`.
    pub fn log_path(&self, node: &str) -> PathBuf {
        self.node_path(node).join("node.log")
    }

    /// `nodes/<node>/disk.json`.
    pub fn disk_path(&self, node: &str) -> PathBuf {
        self.node_path(node).join("disk.json")
    }

    /// Stores what was found on the disk of a node.
    ///
    /// # Errors
    /// When it cannot be written.
    pub fn write_disk(&self, node: &str, image: &DiskImage) -> Result<()> {
        let path = self.disk_path(node);
        let text = serde_json::to_vec(image);
        let text = text.map_err(|error| Error::io("write", &path, error.into()))?;
        write_atomically(&path, &text)
    }

    /// Name of the folder, which is that of the run; `None` where a path has none.
    pub fn name(&self) -> Option<String> {
        let name = match self.path.components().next_back() {
            Some(Component::Normal(name)) if !self.path.is_symlink() => name.to_owned(),
            _ => self.path.canonicalize().ok()?.file_name()?.to_owned(),
        };
        Some(name.to_string_lossy().into_owned())
    }

    /// Reads the manifest and refuses versions from the future. It has the name of the folder, by which the run
    /// is found, also where the folder was copied or renamed since it was written.
    pub fn manifest(&self) -> Result<Manifest> {
        let path = self.manifest_path();
        let mut manifest: Manifest = read_document(&path)?;
        if !(FORMAT_VERSION..=PACKED_FORMAT_VERSION).contains(&manifest.format_version) {
            return Err(Error::UnsupportedVersion {
                path,
                found: manifest.format_version,
                supported: PACKED_FORMAT_VERSION,
            });
        }
        if let Some(name) = self.name() {
            manifest.name = name;
        }
        Ok(manifest)
    }

    /// Replaces the manifest.
    pub fn write_manifest(&self, manifest: &Manifest) -> Result<()> {
        write_document(&self.manifest_path(), manifest)
    }

    /// Reads the schedule.
    pub fn schedule(&self) -> Result<Schedule> {
        read_schedule(&self.schedule_path())
    }

    /// Replaces the schedule.
    pub fn write_schedule(&self, schedule: &Schedule) -> Result<()> {
        write_document(&self.schedule_path(), schedule)
    }

    /// Reads the verdict; `None` when the run was never judged.
    pub fn verdict(&self) -> Result<Option<Verdict>> {
        let path = self.verdict_path();
        if path.exists() {
            read_document(&path).map(Some)
        } else {
            Ok(None)
        }
    }

    /// Replaces the verdict.
    pub fn write_verdict(&self, verdict: &Verdict) -> Result<()> {
        write_document(&self.verdict_path(), verdict)
    }

    /// Names of the nodes that left a folder, in natural order.
    pub fn nodes(&self) -> Result<Vec<String>> {
        let path = self.path.join("nodes");
        let entries = match std::fs::read_dir(&path) {
            Ok(entries) => entries,
            Err(error) if error.kind() == std::io::ErrorKind::NotFound => return Ok(Vec::new()),
            Err(source) => return Err(Error::io("list", &path, source)),
        };
        let mut names: Vec<String> = entries
            .filter_map(|entry| entry.ok()?.file_name().into_string().ok())
            .collect();
        names.sort_by(|one, other| (one.len(), one).cmp(&(other.len(), other)));
        Ok(names)
    }

    /// Packs those files of a recording that grow with the run and are large. Nothing may write to them any more.
    ///
    /// # Errors
    /// When a file cannot be packed; it is still there as it was then.
    pub fn pack(&self) -> Result<()> {
        let mut paths = vec![self.history_path()];
        paths.extend(self.nodes()?.iter().map(|node| self.trace_path(node)));
        paths.retain(|path| {
            std::fs::metadata(path).is_ok_and(|about| about.len() >= packed::WORTH_PACKING_BYTES)
        });
        if paths.is_empty() {
            return Ok(());
        }
        // First of all, so that no program that knows nothing of packed files takes the run for an empty one.
        let mut manifest = self.manifest()?;
        if manifest.format_version < PACKED_FORMAT_VERSION {
            manifest.format_version = PACKED_FORMAT_VERSION;
            self.write_manifest(&manifest)?;
        }
        paths.iter().try_for_each(|path| packed::pack(path))
    }

    /// Notes in the manifest what the files of the recording hold. Nothing may write to them any more.
    ///
    /// # Errors
    /// When one of them cannot be read, or the manifest not be written.
    pub fn seal(&self) -> Result<()> {
        let mut manifest = self.manifest()?;
        let mut found = Seal::new();
        self.note_manifest(&mut found)?;
        let mut paths = vec![self.history_path(), self.schedule_path()];
        for node in self.nodes()? {
            paths.extend([self.trace_path(&node), self.disk_path(&node)]);
            let log = self.log_path(&node);
            if !manifest.is_simulated() && log.exists() {
                self.note(&mut found, &log, &read_beginning(&log)?);
            }
        }
        for path in paths {
            if packed::present(&path).exists() {
                self.note(&mut found, &path, &packed::read(&path)?);
            }
        }
        manifest.seal = Some(found);
        self.write_manifest(&manifest)
    }

    /// Of the manifest counts what it says, but for the seal itself, the version, which packing changes, and the
    /// name, which is that of the folder.
    fn note_manifest(&self, found: &mut Seal) -> Result<()> {
        let path = self.manifest_path();
        let mut manifest: BTreeMap<String, serde_json::Value> = read_document(&path)?;
        manifest.remove("seal");
        manifest.remove("format_version");
        manifest.remove("name");
        let text = serde_json::to_vec(&manifest);
        let text = text.map_err(|error| Error::io("read", &path, error.into()))?;
        self.note(found, &path, &text);
        Ok(())
    }

    fn note(&self, found: &mut Seal, path: &Path, content: &[u8]) {
        let name = path.strip_prefix(&self.path).unwrap_or(path);
        let name = name.to_string_lossy().into_owned();
        found.insert(name, Sealed::of(content));
    }

    /// Reads everything that checkers look at. A node without a trace contributes no events.
    pub fn recording(&self) -> Result<Recording> {
        let mut trace: Vec<TraceEvent> = Vec::new();
        let mut disks = BTreeMap::new();
        let mut logs = BTreeMap::new();
        let mut found = Seal::new();
        self.note_manifest(&mut found)?;
        let manifest = self.manifest()?;
        let mut read = |path: &Path| -> Result<Vec<u8>> {
            let content = packed::read(path)?;
            self.note(&mut found, path, &content);
            Ok(content)
        };
        for node in self.nodes()? {
            let path = self.trace_path(&node);
            if packed::present(&path).exists() {
                trace.extend(json_lines::parse::<TraceEvent>(&path, &read(&path)?)?);
            }
            let path = self.disk_path(&node);
            if path.exists() {
                disks.insert(node.clone(), parse_document(&path, &read(&path)?)?);
            }
        }
        let path = self.history_path();
        let history = json_lines::parse(&path, &read(&path)?)?;
        read(&self.schedule_path())?;
        for node in self.nodes()? {
            let path = self.log_path(&node);
            if !manifest.is_simulated() && path.exists() {
                let beginning = read_beginning(&path)?;
                self.note(&mut found, &path, &beginning);
                logs.insert(node, String::from_utf8_lossy(&beginning).into_owned());
            }
        }
        // Stable: events of one node keep their own order when times are equal.
        trace.sort_by_key(|event| event.time);
        Ok(Recording {
            differences: differences(manifest.seal.as_ref(), &found),
            manifest,
            history,
            schedule: self.schedule()?,
            trace,
            disks,
            logs,
        })
    }
}

/// The beginning of a log.
fn read_beginning(path: &Path) -> Result<Vec<u8>> {
    let failed = |source| Error::io("read", path, source);
    let file = std::fs::File::open(path).map_err(failed)?;
    let mut beginning = Vec::new();
    let mut limited = file.take(LOG_BYTES_MAX);
    limited.read_to_end(&mut beginning).map_err(failed)?;
    Ok(beginning)
}

/// Reads a schedule from any file, numbers faults that have no number, and orders them by time.
pub fn read_schedule(path: &Path) -> Result<Schedule> {
    let mut schedule: Schedule = read_document(path)?;
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

fn parse_document<T: DeserializeOwned>(path: &Path, text: &[u8]) -> Result<T> {
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
    fn large_files_of_a_run_are_packed_and_its_version_tells() {
        let root = tempfile::tempdir().unwrap();
        let folder = Store::new(root.path()).create_run("one").unwrap();
        let document = |version: u32| {
            let mut manifest = crate::manifest::made_up("one", 1);
            manifest["format_version"] = version.into();
            manifest.to_string()
        };
        std::fs::write(folder.manifest_path(), document(1)).unwrap();
        std::fs::write(
            folder.schedule_path(),
            r#"{"format_version":1,"faults":[]}"#,
        )
        .unwrap();
        let line = r#"{"index":0,"time":1,"process":0,"type":"invoke","f":"read"}"#;
        std::fs::write(folder.history_path(), format!("{line}\n").repeat(20_000)).unwrap();
        std::fs::create_dir_all(folder.node_path("n1")).unwrap();
        std::fs::write(folder.trace_path("n1"), "").unwrap();
        folder.pack().unwrap();
        assert!(!folder.history_path().exists() && folder.trace_path("n1").exists());
        assert_eq!(
            folder.manifest().unwrap().format_version,
            PACKED_FORMAT_VERSION
        );
        let recording = folder.recording().unwrap();
        assert_eq!(recording.history.len(), 20_000);
        folder.pack().unwrap();
        std::fs::write(folder.manifest_path(), document(PACKED_FORMAT_VERSION + 1)).unwrap();
        let message = folder.manifest().unwrap_err().to_string();
        assert!(
            message.contains("version 3") && message.contains("use the newer one"),
            "{message}"
        );
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
