//! Owns the tables of a run's page that hold plain numbers: operations, nodes, phases, environment.
//! Never rounds in a way that hides whether something happened at all.

use results::manifest::Manifest;

use crate::commands;
use crate::linked::Linked;
use crate::operations::{Operations, Outcome};
use crate::reading::Run;
use crate::text::{self, printable};

/// Long lists end here, and the page says so.
const ROW_COUNT_MAX: usize = 100;

/// Numbers of one function.
#[derive(Debug)]
pub(crate) struct NumberRow {
    pub(crate) function: String,
    /// How many operations were ok, fail, and info.
    pub(crate) counts: [Linked; 3],
    /// p50, p95, p99, maximum: each leads to an operation that took so long.
    pub(crate) latencies: [Linked; 4],
}

/// How often one error ended an operation.
#[derive(Debug)]
pub(crate) struct ErrorRow {
    pub(crate) outcome: &'static str,
    pub(crate) kind: String,
    pub(crate) count: Linked,
}

/// What one node did.
#[derive(Debug)]
pub(crate) struct NodeRow {
    pub(crate) node: String,
    pub(crate) answered: Linked,
    pub(crate) starts: Linked,
    pub(crate) elections: Linked,
    pub(crate) state: Linked,
    pub(crate) epoch: Linked,
    pub(crate) high_watermark: Linked,
    pub(crate) events: Linked,
    pub(crate) refusal: String,
}

/// One change of leader.
#[derive(Debug)]
pub(crate) struct ElectionRow {
    pub(crate) at: Linked,
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
    let rows = rows.map(|(place, row)| {
        let search = match count > 1 && place + 1 == count {
            true => String::new(),
            false => search("f", &row.function),
        };
        let counts = [row.ok_count, row.fail_count, row.info_count];
        NumberRow {
            function: text::shortened(&printable(&row.function), 40),
            counts: Outcome::ALL.map(|outcome| {
                let count = text::count(counts[outcome as usize]);
                Linked::operations(count, &search, outcome.word())
            }),
            latencies: row.latencies_ns.map_or_else(
                || ["–"; 4].map(Linked::plain),
                |slow| slow.map(|(ns, index)| Linked::operation(text::latency_ns(ns), index)),
            ),
        }
    });
    rows.collect()
}

pub(crate) fn errors(operations: &Operations) -> Vec<ErrorRow> {
    let mut errors: Vec<_> = operations.errors.iter().collect();
    errors.sort_by_key(|(_, count)| std::cmp::Reverse(**count));
    let rows = errors.into_iter().take(ROW_COUNT_MAX);
    rows.map(|((outcome, kind), count)| ErrorRow {
        outcome: outcome.word(),
        kind: text::shortened(&printable(kind), 80),
        count: Linked::operations(text::count(*count), search("error", kind), outcome.word()),
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
        let name = printable(&node.node);
        let file = |file: &str| file_of(&node.node, file, &run.files);
        NodeRow {
            answered: Linked::operations(
                text::count(answered.unwrap_or(0)),
                search("node", &node.node),
                Outcome::Ok.word(),
            ),
            node: name,
            starts: match file("node.log") {
                log if log.is_empty() => {
                    Linked::to(text::count(node.start_count), file("trace.jsonl"))
                }
                log => Linked::to(text::count(node.start_count), log),
            },
            elections: match node.elections_won.len() {
                0 => "0".into(),
                count => Linked::to(text::count(count as u64), "#leaders"),
            },
            state: state.map_or("–".into(), |state| Linked::to(state, "#plot-epochs")),
            epoch: epoch.map_or("–".into(), |epoch| Linked::to(epoch, "#plot-epochs")),
            high_watermark: node.high_watermark.map_or("–".into(), |mark| {
                Linked::to(mark.to_string(), "#plot-log")
            }),
            events: Linked::to(text::count(node.event_count), file("trace.jsonl")),
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

/// Where a file of a node is, be it packed or not; empty if it left none.
fn file_of(node: &str, name: &str, files: &[String]) -> String {
    let begins = format!("nodes/{node}/{name}");
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
        at: Linked::moment(text::moment_ns(at_ns), at_ns),
        epoch: epoch.to_string(),
        leader: printable(leader),
    })
    .collect()
}

pub(crate) fn phases(manifest: Option<&Manifest>) -> Vec<(&'static str, Linked)> {
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
        let moment = |at_ns| Linked::moment(text::moment_ns(at_ns), at_ns);
        (name, at_ns.map_or("not reached".into(), moment))
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
