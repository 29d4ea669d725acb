//! Owns the layout of one run folder: where each of its files is, and reading, writing and sealing them.
//! Never deletes anything recorded.

use std::collections::BTreeMap;
use std::io::Read as _;
use std::path::{Component, Path, PathBuf};

use crate::disk_image::DiskImage;
use crate::history::Operation;
use crate::manifest::Manifest;
use crate::schedule::Schedule;
use crate::seal::{Seal, Sealed, UNSEALED, differences};
use crate::store::{
    parse_document, read_document, read_schedule, write_atomically, write_document,
};
use crate::trace::TraceEvent;
use crate::verdict::Verdict;
use crate::{Error, FORMAT_VERSION, PACKED_FORMAT_VERSION, Result, json_lines, packed};

/// How much of the log of a node is read.
const LOG_BYTES_MAX: u64 = 16 << 20;

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
            std::fs::metadata(path).is_ok_and(|about| packed::is_worth_packing(about.len()))
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
            differences: match &manifest.seal {
                None if manifest.is_over() => vec![UNSEALED.to_owned()],
                seal => differences(seal.as_ref(), &found),
            },
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
    let file = packed::open_file(path).map_err(failed)?;
    let mut beginning = Vec::new();
    let mut limited = file.take(LOG_BYTES_MAX);
    limited.read_to_end(&mut beginning).map_err(failed)?;
    Ok(beginning)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::store::Store;

    #[test]
    fn a_run_that_is_over_without_a_seal_is_told_of() {
        let root = tempfile::tempdir().unwrap();
        let folder = Store::new(root.path()).create_run("one").unwrap();
        std::fs::write(
            folder.schedule_path(),
            r#"{"format_version":1,"faults":[]}"#,
        )
        .unwrap();
        std::fs::write(folder.history_path(), "").unwrap();
        let told = |field: &str, value: serde_json::Value| {
            let mut manifest = crate::manifest::made_up("one", 1);
            manifest[field] = value;
            std::fs::write(folder.manifest_path(), manifest.to_string()).unwrap();
            folder.recording().unwrap().differences
        };
        assert_eq!(told("ended", serde_json::Value::Null), Vec::<String>::new());
        assert_eq!(told("phases", serde_json::json!({"over": 7})), [UNSEALED]);
        assert_eq!(told("ended", "2026-11-30T08:00:10Z".into()), [UNSEALED]);
        // As whoever records writes it.
        folder.write_manifest(&folder.manifest().unwrap()).unwrap();
        folder.seal().unwrap();
        assert_eq!(
            folder.recording().unwrap().differences,
            Vec::<String>::new()
        );
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
}
