//! Owns what a list of runs tells about each of them: gathered once per run, and kept beside the runs.
//! Never trusts what was kept about a run any file of which has changed since.

use std::collections::BTreeMap;
use std::hash::{DefaultHasher, Hasher};
use std::io::Read;
use std::num::NonZero;
use std::os::unix::fs::MetadataExt;
use std::path::Path;
use std::time::{SystemTime, UNIX_EPOCH};

use serde::{Deserialize, Serialize};

use crate::housekeeping::{may_be_going_on, size_bytes};
use crate::manifest::Manifest;
use crate::ownership::Owner;
use crate::store::{RunFolder, Store, read_document, write_atomically};
use crate::verdict::{Validity, Verdict};
use crate::{Error, Result, packed};

pub use crate::standing::{INTERRUPTED, Standing};

/// The file in a store that keeps overviews. Whoever removes it loses nothing but a little time.
const KEPT: &str = ".overviews.json";

/// Version of that file; another one is not read.
const KEPT_VERSION: u32 = 2;

/// How long the files of a run must have been left alone before its overview is kept: a file that changes twice
/// within one tick of the file system's clock looks as if it had changed once.
const SETTLED_NS: i128 = 2_000_000_000;

/// Longest text of one checker.
const TOLD_MAX_COUNT: usize = 160;

/// In the head of every report, so that a list of runs need not read every history again.
pub const OK_COUNT_TAG: &str = "<meta name=\"ok-count\" content=\"";

/// One run, as lists show it.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct Overview {
    /// Name of its folder, by which it is found.
    pub folder_name: String,
    /// What was asked for.
    pub manifest: Manifest,
    /// How it stands.
    pub standing: Standing,
    /// For people: why.
    pub summary: String,
    /// By checker: what it concluded, in words that may be cut short.
    pub checkers: BTreeMap<String, (Validity, String)>,
    /// Operations that succeeded; `None` where the history cannot be read.
    pub ok_count: Option<u64>,
    /// Bytes of all files in its folder.
    pub size_bytes: u64,
}

impl Overview {
    /// Whether it was stopped from outside before its time.
    pub fn is_interrupted(&self) -> bool {
        self.standing == Standing::Abandoned || self.manifest.is_interrupted()
    }

    /// What stands beside the verdict of a run that did not take its course; nothing where there is no verdict.
    pub fn mark(&self) -> Option<&'static str> {
        self.standing.verdict()?;
        self.manifest.is_interrupted().then_some(INTERRUPTED)
    }
}

/// All that a store holds.
#[derive(Debug)]
pub struct Overviews {
    /// The runs, newest first.
    pub runs: Vec<Overview>,
    /// Folders that are no readable runs, in order of their names, with the reason.
    pub unreadable: Vec<(String, Error)>,
}

/// What is kept between two lists.
#[derive(Debug, Default, Serialize, Deserialize)]
struct Kept {
    version: u32,
    /// By name of the folder.
    runs: BTreeMap<String, KeptRun>,
}

#[derive(Debug, Clone, Serialize, Deserialize)]
struct KeptRun {
    /// Of the files that the overview was made from.
    fingerprint: u64,
    overview: Overview,
}

/// What came of looking at one folder.
struct Looked {
    name: String,
    overview: Result<Overview>,
    /// What may be kept of it.
    fingerprint: Option<u64>,
    is_new: bool,
}

/// Looks at all runs of a store. Runs whose files are as they were last time are not read again.
///
/// # Errors
/// When the store cannot be listed.
pub fn overviews(store: &Store) -> Result<Overviews> {
    overviews_settled(store, SETTLED_NS)
}

fn overviews_settled(store: &Store, settled_ns: i128) -> Result<Overviews> {
    let kept = read_kept(store);
    let looked = look_at_all(store, &store.folder_names()?, &kept, settled_ns);
    keep(store, &kept, &looked);
    let mut found = Overviews {
        runs: Vec::new(),
        unreadable: Vec::new(),
    };
    for one in looked {
        match one.overview {
            Ok(overview) => found.runs.push(overview),
            Err(error) => found.unreadable.push((one.name, error)),
        }
    }
    found.runs.sort_by(|one, other| {
        let newest = other.manifest.started.cmp(&one.manifest.started);
        newest.then_with(|| other.manifest.name.cmp(&one.manifest.name))
    });
    Ok(found)
}

/// Thousands of folders are looked at by all processors.
fn look_at_all(store: &Store, names: &[String], kept: &Kept, settled_ns: i128) -> Vec<Looked> {
    let worker_count = std::thread::available_parallelism().map_or(1, NonZero::get);
    let share = names.len().div_ceil(worker_count).max(1);
    let look_at = |names: &[String]| -> Vec<Looked> {
        let looked = names.iter().map(|name| look(store, name, kept, settled_ns));
        looked.collect()
    };
    std::thread::scope(|scope| {
        let workers: Vec<_> = names
            .chunks(share)
            .map(|part| (part, scope.spawn(move || look_at(part))))
            .collect();
        let parts = workers.into_iter();
        // A folder that a worker gave up on is tried once more, where a panic is seen by the caller.
        parts
            .flat_map(|(part, worker)| worker.join().unwrap_or_else(|_| look_at(part)))
            .collect()
    })
}

fn look(store: &Store, name: &str, kept: &Kept, settled_ns: i128) -> Looked {
    let folder = RunFolder::at(store.root().join(name));
    // Before anything is read: what changes meanwhile must not pass for what was read.
    let before = fingerprint(&folder);
    let known = kept.runs.get(name);
    if let (Some(known), Some((fingerprint, _))) = (known, before)
        && known.fingerprint == fingerprint
    {
        return Looked {
            name: name.to_owned(),
            overview: Ok(known.overview.clone()),
            fingerprint: Some(fingerprint),
            is_new: false,
        };
    }
    let overview = read(&folder, name);
    // How these stand changes without any change of a file.
    let may_be_kept = |overview: &Overview| {
        overview.manifest.ended.is_some() && overview.standing != Standing::GoingOn
    };
    let fingerprint = before
        .filter(|_| overview.as_ref().is_ok_and(may_be_kept))
        .filter(|(_, changed_ns)| now_ns() - changed_ns > settled_ns)
        .map(|(fingerprint, _)| fingerprint);
    Looked {
        name: name.to_owned(),
        overview,
        fingerprint,
        is_new: true,
    }
}

fn now_ns() -> i128 {
    let since = SystemTime::now().duration_since(UNIX_EPOCH);
    since.map_or(0, |since| since.as_nanos() as i128)
}

/// A number that changes with every file that an overview is made from, and the last time that one changed.
/// `None` if there is nothing to be looked at.
///
/// Times of change (ctime) are used, which no program can set back.
fn fingerprint(folder: &RunFolder) -> Option<(u64, i128)> {
    let mut hasher = DefaultHasher::new();
    let mut newest_ns = 0;
    let mut add = |path: &Path| match std::fs::symlink_metadata(path) {
        Ok(about) => {
            let changed_ns =
                i128::from(about.ctime()) * 1_000_000_000 + i128::from(about.ctime_nsec());
            newest_ns = changed_ns.max(newest_ns);
            hasher.write_u64(about.ino());
            hasher.write_i128(changed_ns);
            hasher.write_u64(about.size());
        }
        Err(_) => hasher.write_u8(0),
    };
    add(folder.path());
    let history = folder.history_path();
    for path in [
        &folder.manifest_path(),
        &history,
        &packed::packed_path(&history),
        &folder.schedule_path(),
        &folder.verdict_path(),
        &folder.report_path(),
        &folder.path().join("nodes"),
    ] {
        add(path);
    }
    for node in folder.nodes().ok()? {
        add(&folder.node_path(&node));
        add(&folder.node_path(&node).join("data"));
    }
    Some((hasher.finish(), newest_ns))
}

fn read(folder: &RunFolder, name: &str) -> Result<Overview> {
    let manifest = folder.manifest()?;
    let judged = folder.verdict();
    let standing = match &judged {
        Ok(Some(verdict)) => Standing::Judged(verdict.valid),
        Ok(None) => without_verdict(folder, &manifest),
        Err(_) => Standing::Damaged,
    };
    let verdict = judged.ok().flatten();
    let summary = match &verdict {
        Some(verdict) => verdict.summary.clone(),
        None => standing.reason().to_owned(),
    };
    Ok(Overview {
        folder_name: name.to_owned(),
        standing,
        summary,
        checkers: verdict.as_ref().map(checkers).unwrap_or_default(),
        ok_count: ok_count(folder),
        size_bytes: size_bytes(folder.path()),
        manifest,
    })
}

/// How a run stands that has no verdict.
pub fn without_verdict(folder: &RunFolder, manifest: &Manifest) -> Standing {
    if may_be_going_on(folder, manifest) {
        Standing::GoingOn
    } else if folder.owner() == Owner::None && manifest.ended.is_some() {
        Standing::NeverJudged
    } else {
        Standing::Abandoned
    }
}

fn checkers(verdict: &Verdict) -> BTreeMap<String, (Validity, String)> {
    let told = verdict.checkers.iter().map(|(name, result)| {
        let mut summary: String = result.summary.chars().take(TOLD_MAX_COUNT).collect();
        if summary.len() < result.summary.len() {
            summary.push('…');
        }
        (name.clone(), (result.valid, summary))
    });
    told.collect()
}

fn ok_count(folder: &RunFolder) -> Option<u64> {
    let history = folder.history_path();
    reported_ok_count(&folder.report_path(), &packed::present(&history))
        .or_else(|| count_ok_lines(&history))
}

/// The count that the report names, provided that the history did not grow since.
fn reported_ok_count(report: &Path, history: &Path) -> Option<u64> {
    let modified = |path: &Path| {
        let about = std::fs::metadata(path);
        about.and_then(|about| about.modified()).ok()
    };
    if modified(report)? < modified(history)? {
        return None;
    }
    let mut head = Vec::new();
    let file = std::fs::File::open(report).ok()?;
    file.take(4096).read_to_end(&mut head).ok()?;
    let head = String::from_utf8_lossy(&head);
    let (_, after) = head.split_once(OK_COUNT_TAG)?;
    after.split_once('"')?.0.parse().ok()
}

/// Counts the `ok` lines of clients without parsing the history.
fn count_ok_lines(path: &Path) -> Option<u64> {
    let content = packed::read(path).ok()?;
    let lines = content.split(|byte| *byte == b'\n');
    let ok_count = lines.filter(|line| {
        let head = &line[..line.len().min(200)];
        contains(head, br#""type":"ok""#) && !contains(head, br#""process":"nemesis""#)
    });
    Some(ok_count.count() as u64)
}

fn contains(haystack: &[u8], needle: &[u8]) -> bool {
    haystack
        .windows(needle.len())
        .any(|window| window == needle)
}

/// What was kept last time; nothing if that cannot be read, or is from another version.
fn read_kept(store: &Store) -> Kept {
    let kept = read_document::<Kept>(&store.root().join(KEPT));
    kept.ok()
        .filter(|kept| kept.version == KEPT_VERSION)
        .unwrap_or_default()
}

/// Keeps what is new. Whoever does so at the same time may undo it, which costs only time.
fn keep(store: &Store, kept: &Kept, looked: &[Looked]) {
    let known_count = looked.iter().filter(|one| !one.is_new).count();
    let has_news = looked
        .iter()
        .any(|one| one.is_new && one.fingerprint.is_some());
    if !has_news && known_count == kept.runs.len() {
        return;
    }
    let runs = looked.iter().filter_map(|one| {
        let run = KeptRun {
            fingerprint: one.fingerprint?,
            overview: one.overview.as_ref().ok()?.clone(),
        };
        Some((one.name.clone(), run))
    });
    let fresh = Kept {
        version: KEPT_VERSION,
        runs: runs.collect(),
    };
    // A store that cannot be written to is listed all the same.
    if let Ok(text) = serde_json::to_vec(&fresh) {
        let _ = write_atomically(&store.root().join(KEPT), &text);
    }
}

#[cfg(test)]
mod tests {
    use serde_json::json;

    use super::*;
    use crate::verdict::CheckerResult;

    fn manifest(name: &str, seed: u64) -> Manifest {
        let mut manifest = crate::manifest::made_up(name, seed);
        manifest["ended"] = json!("2026-11-30T08:00:10Z");
        serde_json::from_value(manifest).unwrap()
    }

    fn verdict(valid: Validity) -> Verdict {
        let result = CheckerResult {
            valid,
            source: String::new(),
            summary: "é".repeat(200),
            properties: BTreeMap::new(),
            evidence: serde_json::Value::Null,
        };
        Verdict {
            valid,
            summary: format!("because it is {}", valid.word()),
            checkers: [("stats".to_owned(), result)].into(),
        }
    }

    fn run(store: &Store, name: &str) -> RunFolder {
        let folder = store.create_run(name).unwrap();
        folder.write_manifest(&manifest(name, 1)).unwrap();
        std::fs::write(folder.history_path(), OK_LINES).unwrap();
        folder.write_verdict(&verdict(Validity::Valid)).unwrap();
        folder
    }

    const OK_LINES: &str = concat!(
        r#"{"index":0,"time":1,"process":0,"type":"invoke","f":"read"}"#,
        "\n",
        r#"{"index":1,"time":2,"process":0,"type":"ok","f":"read"}"#,
        "\n",
        r#"{"index":2,"time":3,"process":"nemesis","type":"ok","f":"heal"}"#,
        "\n",
    );

    fn store() -> (tempfile::TempDir, Store) {
        let root = tempfile::tempdir().unwrap();
        let store = Store::new(root.path().join("runs"));
        (root, store)
    }

    /// As if the runs had been left alone for long.
    fn look(store: &Store) -> BTreeMap<String, Overview> {
        let found = overviews_settled(store, -1).unwrap().runs;
        let found = found.into_iter();
        found.map(|run| (run.folder_name.clone(), run)).collect()
    }

    /// Changes what is kept, so that what comes out of it can be told from what was read.
    fn mark_kept(store: &Store) {
        let mut kept = read_kept(store);
        for run in kept.runs.values_mut() {
            run.overview.ok_count = Some(777);
        }
        let text = serde_json::to_vec(&kept).unwrap();
        std::fs::write(store.root().join(KEPT), text).unwrap();
    }

    /// Name of a run, and what is done to it.
    type Change = (&'static str, fn(&RunFolder));

    #[test]
    fn a_run_is_read_once_and_again_when_any_of_it_changes() {
        let (_root, store) = store();
        let changes: [Change; 6] = [
            ("verdict", |run| {
                run.write_verdict(&verdict(Validity::Invalid)).unwrap();
            }),
            ("manifest", |run| {
                run.write_manifest(&manifest("manifest", 9)).unwrap();
            }),
            ("history", |run| {
                std::fs::write(run.history_path(), OK_LINES).unwrap();
            }),
            ("packed", |run| {
                packed::pack(&run.history_path()).unwrap();
            }),
            ("node", |run| {
                std::fs::create_dir_all(run.node_path("n1").join("data")).unwrap();
            }),
            ("replaced", |run| {
                let verdict = run.verdict_path();
                let text = std::fs::read(&verdict).unwrap();
                std::fs::remove_file(&verdict).unwrap();
                std::fs::write(&verdict, text).unwrap();
            }),
        ];
        for (name, _) in changes {
            run(&store, name);
        }
        run(&store, "still");
        assert!(look(&store).values().all(|run| run.ok_count == Some(1)));
        mark_kept(&store);
        assert!(look(&store).values().all(|run| run.ok_count == Some(777)));
        for (name, change) in changes {
            change(&RunFolder::at(store.root().join(name)));
        }
        let found = look(&store);
        for (name, _) in changes {
            assert_eq!(found[name].ok_count, Some(1), "{name}");
        }
        assert_eq!(found["still"].ok_count, Some(777));
        assert_eq!(
            found["verdict"].standing,
            Standing::Judged(Validity::Invalid)
        );
        assert_eq!(found["verdict"].summary, "because it is invalid");
        assert_eq!(found["manifest"].manifest.seed, 9);
    }

    #[test]
    fn a_run_that_was_removed_is_forgotten_and_damage_is_told() {
        let (_root, store) = store();
        run(&store, "one");
        let two = run(&store, "two");
        run(&store, "three");
        look(&store);
        std::fs::remove_dir_all(two.path()).unwrap();
        std::fs::write(store.root().join("three/manifest.json"), "{").unwrap();
        std::fs::create_dir_all(store.campaigns_path()).unwrap();
        let found = overviews_settled(&store, -1).unwrap();
        assert_eq!(found.runs.len(), 1);
        assert_eq!(found.unreadable.len(), 1);
        assert_eq!(found.unreadable[0].0, "three");
        assert_eq!(read_kept(&store).runs.len(), 1);
        std::fs::write(store.root().join(KEPT), "half of a fi").unwrap();
        assert_eq!(look(&store).len(), 1, "a damaged cache costs only time");
    }

    #[test]
    fn what_changed_just_now_or_goes_on_is_not_kept() {
        let (_root, store) = store();
        run(&store, "fresh");
        overviews(&store).unwrap();
        assert!(read_kept(&store).runs.is_empty());
        let going_on = run(&store, "going-on");
        let mut manifest = manifest("going-on", 1);
        manifest.ended = None;
        going_on.write_manifest(&manifest).unwrap();
        std::fs::remove_file(going_on.verdict_path()).unwrap();
        let found = look(&store);
        assert_eq!(found["going-on"].standing, Standing::GoingOn);
        let kept: Vec<_> = read_kept(&store).runs.into_keys().collect();
        assert_eq!(kept, ["fresh"]);

        let ownership = going_on.claim().unwrap();
        manifest.ended = Some(manifest.started);
        going_on.write_manifest(&manifest).unwrap();
        let standing = || look(&store)["going-on"].standing;
        assert_eq!(standing(), Standing::GoingOn, "it is being judged");
        drop(ownership);
        assert_eq!(standing(), Standing::Abandoned, "its owner died");
        let judged = verdict(Validity::Valid);
        going_on.write_verdict(&judged).unwrap();
        assert_eq!(standing(), Standing::Judged(Validity::Valid));
    }

    #[test]
    fn a_run_is_listed_under_the_name_of_its_folder() {
        let (_root, store) = store();
        let one = run(&store, "one");
        std::fs::rename(one.path(), store.root().join("other")).unwrap();
        let found = look(&store);
        assert_eq!(found["other"].manifest.name, "other");
        assert!(store.find("oth").is_ok() && store.find("one").is_err());
    }

    #[test]
    fn what_stopped_a_run_stands_beside_its_verdict() {
        let (_root, store) = store();
        let stopped = run(&store, "stopped");
        let mut manifest = manifest("stopped", 1);
        manifest.phases.interrupted = true;
        stopped.write_manifest(&manifest).unwrap();
        run(&store, "whole");
        let found = look(&store);
        assert_eq!(found["stopped"].mark(), Some("interrupted"));
        assert_eq!(found["whole"].mark(), None);
        assert!(found["stopped"].is_interrupted() && !found["whole"].is_interrupted());
    }

    #[test]
    fn lists_made_at_the_same_time_are_all_complete() {
        let (_root, store) = store();
        for number in 0..20 {
            run(&store, &format!("run-{number}"));
        }
        std::thread::scope(|scope| {
            for _ in 0..4 {
                scope.spawn(|| {
                    for _ in 0..5 {
                        assert_eq!(look(&store).len(), 20);
                    }
                });
            }
        });
        assert_eq!(read_kept(&store).runs.len(), 20);
        let names = std::fs::read_dir(store.root()).unwrap().flatten();
        let left = names.filter(|entry| entry.file_name().to_string_lossy().ends_with(".tmp"));
        assert_eq!(left.count(), 0);
    }
}
