//! Owns the tables of a run's page that hold plain numbers: operations, nodes, phases, environment.
//! Never rounds in a way that hides whether something happened at all.

use results::manifest::Manifest;

use crate::commands;
use crate::operations::Operations;
use crate::reading::Run;
use crate::text::{self, printable};

/// Long lists end here, and the page says so.
const ROW_COUNT_MAX: usize = 100;

/// Numbers of one function.
#[derive(Debug)]
pub(crate) struct NumberRow {
    pub(crate) function: String,
    /// What finds its operations in the timeline; empty for all of them.
    pub(crate) search: String,
    pub(crate) ok: String,
    pub(crate) fail: String,
    pub(crate) info: String,
    /// p50, p95, p99, maximum.
    pub(crate) latencies: [String; 4],
}

impl NumberRow {
    /// Outcomes, with how many operations had them.
    pub(crate) fn counts(&self) -> [(&'static str, &str); 3] {
        [("ok", &self.ok), ("fail", &self.fail), ("info", &self.info)]
    }
}

/// How often one error ended an operation.
#[derive(Debug)]
pub(crate) struct ErrorRow {
    /// What finds its operations in the timeline.
    pub(crate) search: String,
    pub(crate) outcome: &'static str,
    pub(crate) kind: String,
    pub(crate) count: String,
}

/// What one node did.
#[derive(Debug)]
pub(crate) struct NodeRow {
    pub(crate) node: String,
    pub(crate) answered: String,
    pub(crate) starts: String,
    pub(crate) elections: String,
    pub(crate) state: String,
    pub(crate) epoch: String,
    pub(crate) high_watermark: String,
    pub(crate) events: String,
    /// Where its trace is; empty if it left none.
    pub(crate) trace: String,
    pub(crate) refusal: String,
}

/// One change of leader.
#[derive(Debug)]
pub(crate) struct ElectionRow {
    pub(crate) at: String,
    /// When, in milliseconds since the start.
    pub(crate) at_ms: u64,
    pub(crate) epoch: String,
    pub(crate) leader: String,
}

/// A file of the run folder.
#[derive(Debug)]
pub(crate) struct FileLink {
    pub(crate) href: String,
    pub(crate) label: String,
}

pub(crate) fn rows(operations: &Operations) -> Vec<NumberRow> {
    let numbers = operations.numbers();
    // The total is the last row, so it is kept when there are too many functions to list.
    let count = numbers.len();
    let surplus = count.saturating_sub(ROW_COUNT_MAX);
    let rows = numbers.into_iter().enumerate().skip(surplus);
    let rows = rows.map(|(place, row)| NumberRow {
        search: match count > 1 && place + 1 == count {
            true => String::new(),
            false => search("f", &row.function),
        },
        function: text::shortened(&printable(&row.function), 40),
        ok: text::count(row.ok_count),
        fail: text::count(row.fail_count),
        info: text::count(row.info_count),
        latencies: row.latencies_ns.map_or_else(
            || ["–"; 4].map(str::to_owned),
            |latencies_ns| latencies_ns.map(text::latency_ns),
        ),
    });
    rows.collect()
}

pub(crate) fn errors(operations: &Operations) -> Vec<ErrorRow> {
    let mut errors: Vec<_> = operations.errors.iter().collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let rows = errors.into_iter().take(ROW_COUNT_MAX);
    rows.map(|((outcome, kind), count)| ErrorRow {
        outcome: outcome.word(),
        search: search("error", kind),
        kind: text::shortened(&printable(kind), 80),
        count: text::count(*count),
    })
    .collect()
}

pub(crate) fn nodes(run: &Run) -> Vec<NodeRow> {
    let rows = run.nodes.iter().map(|node| {
        let answered = run.operations.ok_by_node.get(&node.node).copied();
        let state = node.spans.last().map(|span| span.state.word());
        let epoch = node
            .epoch_changes
            .last()
            .map(|(_, epoch)| epoch.to_string());
        NodeRow {
            node: printable(&node.node),
            answered: text::count(answered.unwrap_or(0)),
            starts: text::count(node.start_count),
            elections: text::count(node.elections_won.len() as u64),
            state: state.unwrap_or("–").to_owned(),
            epoch: epoch.unwrap_or_else(|| "–".to_owned()),
            high_watermark: node
                .high_watermark
                .map_or_else(|| "–".to_owned(), |mark| mark.to_string()),
            events: text::count(node.event_count),
            trace: trace_of(&node.node, &run.files),
            refusal: printable(node.refusal.as_deref().unwrap_or_default()),
        }
    });
    rows.collect()
}

/// A word of the search of the timeline, which has words without spaces, in lower case.
fn search(field: &str, name: &str) -> String {
    let name = printable(name).to_lowercase();
    match name.contains(char::is_whitespace) {
        true => name.split_whitespace().collect::<Vec<_>>().join(" "),
        false => format!("{field}:{name}"),
    }
}

fn trace_of(node: &str, files: &[String]) -> String {
    let begins = format!("nodes/{node}/trace.jsonl");
    let file = files.iter().find(|file| file.starts_with(&begins));
    file.map(|file| href(file)).unwrap_or_default()
}

pub(crate) fn elections(run: &Run) -> Vec<ElectionRow> {
    let mut won: Vec<_> = run
        .nodes
        .iter()
        .flat_map(|node| {
            node.elections_won
                .iter()
                .map(move |(at, epoch)| (*at, *epoch, &node.node))
        })
        .collect();
    won.sort();
    let rows = won.into_iter().take(ROW_COUNT_MAX);
    rows.map(|(at_ns, epoch, leader)| ElectionRow {
        at: text::moment_ns(at_ns),
        at_ms: at_ns / 1_000_000,
        epoch: epoch.to_string(),
        leader: printable(leader),
    })
    .collect()
}

pub(crate) fn phases(manifest: Option<&Manifest>) -> Vec<(&'static str, String)> {
    let Some(manifest) = manifest else {
        return Vec::new();
    };
    let phases = &manifest.phases;
    let rows = [
        ("workload starts", phases.workload_start),
        ("workload ends", phases.workload_end),
        ("all faults healed", phases.healed),
        ("first success after healing", phases.recovered),
        ("finished", phases.finished),
    ];
    let told = rows.map(|(name, at_ns)| {
        let at = at_ns.map_or_else(|| "not reached".to_owned(), text::moment_ns);
        (name, at)
    });
    told.into()
}

pub(crate) fn environment(manifest: Option<&Manifest>) -> Vec<(&'static str, String)> {
    let Some(manifest) = manifest else {
        return Vec::new();
    };
    let environment = &manifest.environment;
    let unknown = || "unknown".to_owned();
    let timers = &manifest.options.timers;
    let ended = manifest
        .ended
        .map(|ended| ended.format("%Y-%m-%d %H:%M:%S UTC").to_string());
    let rows = [
        ("command", commands::line(&environment.command)),
        ("harness", environment.harness_version.clone()),
        ("commit", environment.commit.clone().unwrap_or_else(unknown)),
        ("node program", environment.node_binary.clone()),
        (
            "its CRC-32C",
            environment
                .node_binary_digest
                .clone()
                .unwrap_or_else(unknown),
        ),
        ("system", environment.system.clone()),
        ("processors", environment.processors.to_string()),
        ("ended", ended.unwrap_or_else(unknown)),
        (
            "operation timeout",
            text::duration_ms(manifest.options.operation_timeout_ms),
        ),
        (
            "recovery timeout",
            text::duration_ms(manifest.options.recovery_timeout_ms),
        ),
        (
            "node timers",
            format!(
                "election {} ms, fetch {} ms, election backoff up to {} ms, fetch wait {} ms, \
                 request {} ms, retry backoff {} ms",
                timers.election_timeout_ms,
                timers.fetch_timeout_ms,
                timers.election_backoff_max_ms,
                timers.fetch_max_wait_ms,
                timers.request_timeout_ms,
                timers.retry_backoff_ms
            ),
        ),
    ];
    rows.map(|(name, value)| (name, printable(&value))).into()
}

/// A file of the run folder as a link from its report.
fn href(file: &str) -> String {
    let segments = file.split('/').map(text::url_segment);
    segments.collect::<Vec<_>>().join("/")
}

pub(crate) fn files(files: &[String]) -> Vec<FileLink> {
    let links = files.iter().map(|file| FileLink {
        href: href(file),
        label: printable(file),
    });
    links.collect()
}
