//! Owns the list of all runs of a store.
//! Never leaves a run out because it is damaged or unfinished: the list says so instead.

use std::io::Read;
use std::path::Path;

use askama::Template;
use results::manifest::Manifest;
use results::store::{RunFolder, Store, write_atomically};

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
        rows: runs
            .iter()
            .map(|(folder, manifest)| row(folder, manifest))
            .collect(),
        unreadable,
    };
    page.render().map_err(ReportError::template("index.html"))
}

fn row(folder: &RunFolder, manifest: &Manifest) -> IndexRow {
    let name = reading::folder_name(folder.path());
    let verdict = match folder.verdict() {
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
    }
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
            found.push((printable(&name), printable(&error.to_string())));
        }
    }
    found.sort();
    found
}
