//! Owns the list of all runs of a store.
//! Never leaves a run out because it is damaged or unfinished: the list says so instead.

use askama::Template;
use results::byte_size::shown;
use results::housekeeping::may_be_going_on;
use results::overview::{Overview, Overviews, overviews};
use results::store::{RunFolder, Store, write_atomically};
use results::verdict::Validity;

use crate::campaign_page::{self, CampaignRow};
use crate::error::{ReportError, Result};
use crate::run_page::{VerdictView, verdict_view};
use crate::text::{self, printable};
use crate::{archive, assets, content_policy, reading};

/// Of the reason for a verdict, the list shows so much; the report has all of it.
const WHY_CHARACTER_COUNT_MAX: usize = 160;
/// Of the families of faults of a run, the list names so many.
const FAMILY_COUNT_SHOWN: usize = 4;

#[derive(Template)]
#[template(path = "index.html")]
struct IndexPage {
    policy: String,
    style: String,
    script: &'static str,
    campaigns: Vec<CampaignRow>,
    rows: Vec<IndexRow>,
    unreadable: Vec<(String, String)>,
}

struct IndexRow {
    href: String,
    name: String,
    verdict: VerdictView,
    /// What stands beside the verdict; empty for most runs.
    mark: &'static str,
    is_interrupted: bool,
    workload: String,
    /// Why the verdict is not valid; empty for most runs.
    why: String,
    /// The families of faults, or the first of many.
    nemesis: String,
    /// All of them.
    nemeses: String,
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
    /// Where all of it is handed out in one file; empty if nobody serves it.
    archive: String,
    /// What only a comparison shows: a line each, with a tab between name and value.
    more: String,
}

/// Writes `index.html` into the store: a table of all runs, newest first.
///
/// # Errors
/// When the store cannot be listed or the file cannot be written.
pub fn render_index(store: &Store) -> Result<()> {
    let (page, _) = page(store, Reached::OnDisk)?;
    std::fs::create_dir_all(store.root())
        .map_err(|source| results::Error::io("create the output folder", store.root(), source))?;
    write_atomically(&store.root().join("index.html"), page.as_bytes())?;
    Ok(())
}

/// How readers come to a list of runs.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) enum Reached {
    /// They open the file.
    OnDisk,
    /// From the web server, which packs runs for them.
    Served,
}

/// The list of all runs as HTML, and whether the newest may still be going on.
pub(crate) fn page(store: &Store, reached: Reached) -> Result<(String, bool)> {
    let Overviews { runs, unreadable } = overviews(store)?;
    let style = assets::index_style();
    let newest = runs.first();
    let is_live = newest.is_some_and(|run| {
        let folder = RunFolder::at(store.root().join(&run.folder_name));
        may_be_going_on(&folder, &run.manifest)
    });
    let unreadable = unreadable.into_iter().map(|(name, error)| {
        let reason = printable(&reading::reason_of(error));
        (printable(&name), format!("manifest.json: {reason}"))
    });
    let page = IndexPage {
        policy: content_policy::policy(&style, assets::INDEX_SCRIPT),
        style,
        script: assets::INDEX_SCRIPT,
        campaigns: campaign_page::rows(&store.campaigns()),
        rows: runs.iter().map(|run| row(run, reached)).collect(),
        unreadable: unreadable.collect(),
    };
    let page = page.render().map_err(ReportError::template("index.html"))?;
    Ok((page, is_live))
}

fn row(run: &Overview, reached: Reached) -> IndexRow {
    let Overview {
        manifest,
        standing,
        ok_count,
        size_bytes,
        ..
    } = run;
    let name = &run.folder_name;
    let length_ms = manifest.length_ms();
    let options = &manifest.options;
    IndexRow {
        href: format!("{}/index.html", text::url_segment(name)),
        name: printable(name),
        verdict: VerdictView {
            word: standing.word(),
            ..verdict_view(standing.verdict(), &run.summary)
        },
        mark: run.mark().unwrap_or_default(),
        is_interrupted: run.is_interrupted(),
        workload: printable(&options.workload),
        why: match standing.verdict() {
            None | Some(Validity::Valid) => String::new(),
            Some(valid) => {
                let why = printable(valid.reason_in(&run.summary));
                text::shortened(&why, WHY_CHARACTER_COUNT_MAX)
            }
        },
        nemesis: few(&options.nemesis),
        nemeses: match options.nemesis.is_empty() {
            true => "none".to_owned(),
            false => printable(&options.nemesis.join(", ")),
        },
        seed: manifest.seed.to_string(),
        bug: printable(options.bug.as_deref().unwrap_or("–")),
        started: manifest.started.format("%Y-%m-%d %H:%M:%S").to_string(),
        started_key: manifest.started.timestamp_millis(),
        duration: length_ms.map_or_else(
            || "–".to_owned(),
            |length_ms| text::duration_ms((length_ms + 500) / 1000 * 1000),
        ),
        duration_key: length_ms
            .map_or(-1, |length_ms| i64::try_from(length_ms).unwrap_or(i64::MAX)),
        ok: ok_count.map_or_else(|| "–".to_owned(), text::count),
        ok_key: ok_count.map_or(-1, |count| i64::try_from(count).unwrap_or(i64::MAX)),
        size: shown(*size_bytes),
        size_key: *size_bytes,
        archive: match reached {
            Reached::OnDisk => String::new(),
            Reached::Served => format!("{}{}", text::url_segment(name), archive::ENDING),
        },
        more: more(run),
    }
}

/// The first of many families of faults, and how many others there are.
fn few(families: &[String]) -> String {
    let (shown, others) = match families.len() {
        0 => return "none".to_owned(),
        count if count > FAMILY_COUNT_SHOWN + 1 => families.split_at(FAMILY_COUNT_SHOWN),
        count => families.split_at(count),
    };
    let mut told = printable(&shown.join(", "));
    if !others.is_empty() {
        told.push_str(&format!(" and {} more", others.len()));
    }
    told
}

/// What two runs are compared by, besides the columns of the list.
fn more(run: &Overview) -> String {
    let manifest = &run.manifest;
    let options = &manifest.options;
    let mut pairs: Vec<(String, String)> = Vec::new();
    let line = |text: &str| printable(text).replace(['\n', '\t'], " ");
    let mut tell = |name: &str, value: String| pairs.push((line(name), line(&value)));
    for (name, (valid, summary)) in &run.checkers {
        let told = format!("{}: {summary}", valid.word());
        tell(name, text::shortened(&told, 160));
    }
    if let Some(reason) = manifest.stop_reason() {
        tell("stopped", reason.told().to_owned());
    }
    tell("world", manifest.world.clone());
    tell("network", text::network(manifest).to_owned());
    tell("client links", text::client_links(manifest).to_owned());
    tell("nodes", options.nodes.to_string());
    tell("observers", options.cluster.observers.to_string());
    tell("clients", options.concurrency.to_string());
    tell("rate per second", options.rate_per_second.to_string());
    tell("workload time", text::duration_ms(options.time_ms));
    if let Some(wall_ms) = manifest.wall_ms().filter(|_| manifest.is_simulated()) {
        tell("time it took", text::duration_ms(wall_ms));
    }
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

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn of_many_families_the_first_are_named() {
        let told = |count: usize| {
            let families: Vec<String> = (0..count).map(|number| format!("f{number}")).collect();
            few(&families)
        };
        assert_eq!(told(0), "none");
        assert_eq!(told(5), "f0, f1, f2, f3, f4");
        assert_eq!(told(18), "f0, f1, f2, f3 and 14 more");
    }
}
