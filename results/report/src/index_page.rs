//! Owns the list of all runs of a store.
//! Never leaves a run out because it is damaged or unfinished: the list says so instead.

use std::io::Read;
use std::num::NonZero;
use std::path::Path;

use askama::Template;
use results::housekeeping::size_bytes;
use results::manifest::Manifest;
use results::store::{RunFolder, Store, write_atomically};
use results::verdict::Verdict;

use crate::error::{ReportError, Result};
use crate::run_page::{VerdictView, verdict_view};
use crate::text::{self, printable};
use crate::{assets, content_policy, reading};

/// In the head of every report, so that the list of runs need not read every history again.
const OK_COUNT_TAG: &str = "<meta name=\"ok-count\" content=\"";

#[derive(Template)]
#[template(path = "index.html")]
struct IndexPage {
    policy: String,
    style: String,
    script: &'static str,
    rows: Vec<IndexRow>,
    unreadable: Vec<(String, String)>,
}

struct IndexRow {
    href: String,
    name: String,
    verdict: VerdictView,
    workload: String,
    nemesis: String,
    seed: String,
    bug: String,
    started: String,
    started_key: i64,
    duration: String,
    duration_key: i64,
    ok: String,
    ok_key: i64,
    size: String,
    size_key: u64,
    /// What only a comparison shows: a line each, with a tab between name and value.
    more: String,
}

/// Writes `index.html` into the store: a table of all runs, newest first.
///
/// # Errors
/// When the store cannot be listed or the file cannot be written.
pub fn render_index(store: &Store) -> Result<()> {
    let page = page(store)?;
    std::fs::create_dir_all(store.root())
        .map_err(|source| results::Error::io("create the output folder", store.root(), source))?;
    write_atomically(&store.root().join("index.html"), page.as_bytes())?;
    Ok(())
}

/// The list of all runs as HTML.
pub(crate) fn page(store: &Store) -> Result<String> {
    let runs = store.list()?;
    let unreadable = unreadable(store, &runs);
    let style = assets::index_style();
    let page = IndexPage {
        policy: content_policy::policy(&style, assets::INDEX_SCRIPT),
        style,
        script: assets::INDEX_SCRIPT,
        rows: rows(&runs),
        unreadable,
    };
    page.render().map_err(ReportError::template("index.html"))
}

/// The rows in the order of `runs`; thousands of folders are looked at by all processors.
fn rows(runs: &[(RunFolder, Manifest)]) -> Vec<IndexRow> {
    let worker_count = std::thread::available_parallelism().map_or(1, NonZero::get);
    let share = runs.len().div_ceil(worker_count).max(1);
    let rows_of = |part: &[(RunFolder, Manifest)]| {
        let rows = part.iter().map(|(folder, manifest)| row(folder, manifest));
        rows.collect::<Vec<_>>()
    };
    std::thread::scope(|scope| {
        let workers = runs.chunks(share);
        let workers: Vec<_> = workers
            .map(|part| (part, scope.spawn(move || rows_of(part))))
            .collect();
        let parts = workers.into_iter();
        // A run that a worker gave up on is tried once more, where a panic is seen by the caller.
        parts
            .flat_map(|(part, worker)| worker.join().unwrap_or_else(|_| rows_of(part)))
            .collect()
    })
}

fn row(folder: &RunFolder, manifest: &Manifest) -> IndexRow {
    let name = reading::folder_name(folder.path());
    let judged = folder.verdict();
    let more = more(judged.as_ref().ok().and_then(Option::as_ref), manifest);
    let verdict = match &judged {
        Ok(Some(verdict)) => verdict_view(Some(verdict.valid), &verdict.summary),
        Ok(None) if manifest.ended.is_none() => verdict_view(None, "interrupted"),
        Ok(None) => verdict_view(None, "never judged"),
        Err(_) => verdict_view(None, "verdict.json is damaged"),
    };
    let length_ms = manifest.ended.map(|ended| {
        let length = ended.signed_duration_since(manifest.started);
        length.num_milliseconds().max(0)
    });
    let ok_count = ok_count(folder);
    let size_bytes = size_bytes(folder.path());
    let options = &manifest.options;
    IndexRow {
        href: format!("{}/index.html", text::url_segment(&name)),
        name: printable(&name),
        verdict,
        workload: printable(&options.workload),
        nemesis: if options.nemesis.is_empty() {
            "none".to_owned()
        } else {
            printable(&options.nemesis.join(", "))
        },
        seed: manifest.seed.to_string(),
        bug: printable(options.bug.as_deref().unwrap_or("–")),
        started: manifest.started.format("%Y-%m-%d %H:%M:%S").to_string(),
        started_key: manifest.started.timestamp_millis(),
        duration: length_ms.map_or_else(
            || "–".to_owned(),
            |length_ms| text::duration_ms(length_ms.unsigned_abs() / 1000 * 1000),
        ),
        duration_key: length_ms.unwrap_or(-1),
        ok: ok_count.map_or_else(|| "–".to_owned(), text::count),
        ok_key: ok_count.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX)),
        size: text::size_bytes(size_bytes),
        size_key: size_bytes,
        more,
    }
}

/// What two runs are compared by, besides the columns of the list.
fn more(verdict: Option<&Verdict>, manifest: &Manifest) -> String {
    let options = &manifest.options;
    let mut pairs: Vec<(String, String)> = Vec::new();
    let line = |text: &str| printable(text).replace(['\n', '\t'], " ");
    let mut tell = |name: &str, value: String| pairs.push((line(name), line(&value)));
    if let Some(verdict) = verdict {
        for (name, result) in &verdict.checkers {
            let told = format!("{}: {}", result.valid.word(), result.summary);
            tell(name, text::shortened(&told, 160));
        }
    }
    tell("world", manifest.world.clone());
    tell("nodes", options.nodes.to_string());
    tell("observers", options.cluster.observers.to_string());
    tell("clients", options.concurrency.to_string());
    tell("rate per second", options.rate_per_second.to_string());
    tell("workload time", text::duration_ms(options.time_ms));
    tell("interval of faults", text::duration_ms(options.interval_ms));
    let timeout = text::duration_ms(options.operation_timeout_ms);
    tell("operation timeout", timeout);
    let environment = &manifest.environment;
    let commit = environment.commit.clone();
    tell("commit", commit.unwrap_or_else(|| "unknown".into()));
    tell("system", environment.system.clone());
    let lines = pairs.iter().map(|(name, value)| format!("{name}\t{value}"));
    lines.collect::<Vec<_>>().join("\n")
}

fn ok_count(folder: &RunFolder) -> Option<u64> {
    let history = folder.history_path();
    reported_ok_count(&folder.report_path(), &history).or_else(|| reading::count_ok_lines(&history))
}

/// The count that the report names, provided that the history did not grow since.
fn reported_ok_count(report: &Path, history: &Path) -> Option<u64> {
    let modified = |path: &Path| {
        std::fs::metadata(path)
            .and_then(|about| about.modified())
            .ok()
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

/// Folders that look like runs but whose manifest cannot be read, with the reason.
fn unreadable(store: &Store, runs: &[(RunFolder, Manifest)]) -> Vec<(String, String)> {
    let Ok(entries) = std::fs::read_dir(store.root()) else {
        return Vec::new();
    };
    let mut found = Vec::new();
    for entry in entries.flatten() {
        if !entry.file_type().is_ok_and(|kind| kind.is_dir()) {
            continue;
        }
        let folder = RunFolder::at(entry.path());
        if runs.iter().any(|(listed, _)| *listed == folder) {
            continue;
        }
        if let Err(error) = folder.manifest() {
            let name = entry.file_name().to_string_lossy().into_owned();
            found.push((
                printable(&name),
                format!("manifest.json: {}", printable(&reading::reason_of(error))),
            ));
        }
    }
    found.sort();
    found
}
