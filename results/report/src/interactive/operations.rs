//! Owns the data of the timeline: every operation, every fault, the states of every node.
//! Never leaves an operation out because there are many: the script draws them by the pixel.

use serde_json::{Value, json};

use results::schedule::FaultOutcome;

use crate::operations::{Outcome, Timed};
use crate::reading::Run;
use crate::text::printable;
use crate::timeline::{NodeState, NodeTimeline};
use crate::{faults, plots};

use super::moments::Moment;
use super::packed::{Column, pack};

/// Lanes of a run whose manifest cannot be read.
const LANE_COUNT_MAX: u64 = 64;

/// Packs the timeline of `run`; empty when there is nothing to draw.
pub(crate) fn timeline(run: &Run, moments: &[Moment]) -> String {
    let has_lives = run.nodes.iter().any(|node| !node.spans.is_empty());
    if run.operations.list.is_empty() && !has_lives {
        return String::new();
    }
    let operations = &run.operations;
    let mut list: Vec<&Timed> = operations.list.iter().collect();
    // A damaged history may go back in time; the script searches by time.
    list.sort_by_key(|one| one.invoked_ns);

    let names = |names: &crate::names::Names| names.iter().map(printable).collect::<Vec<_>>();
    let head = json!({
        "end_us": run.end_ns().div_ceil(1000),
        "count": list.len(),
        "concurrency": concurrency(run),
        "functions": names(&operations.functions),
        "keys": names(&operations.keys),
        "nodes": names(&operations.nodes),
        "errors": names(&operations.error_kinds),
        "states": NodeState::ALL.map(NodeState::word),
        "lives": run.nodes.iter().map(life).collect::<Vec<_>>(),
        "faults": fault_bands(run),
        "moments": moments.iter().map(moment).collect::<Vec<_>>(),
        "marks": marks(run),
    });
    pack(head, &columns(&list, run))
}

fn columns(list: &[&Timed], run: &Run) -> [(&'static str, Column); 9] {
    let mut columns = [
        "start", "length", "process", "kind", "key", "node", "error", "index", "value",
    ]
    .map(|name| (name, Column::default()));
    for one in list {
        let start_us = one.invoked_ns / 1000;
        let length_us = one
            .completed_ns
            .map(|end_ns| (end_ns / 1000).saturating_sub(start_us));
        let kind = u64::from(one.function) * 3 + one.outcome as u64;
        let [
            start,
            length,
            process,
            kinds,
            key,
            node,
            error,
            index,
            value,
        ] = &mut columns;
        start.1.push_change(start_us);
        length.1.push_optional(length_us);
        process.1.push(one.process);
        kinds.1.push(kind);
        key.1.push_optional(one.key.map(u64::from));
        node.1.push_optional(one.node.map(u64::from));
        error.1.push_optional(one.error.map(u64::from));
        index.1.push_change(one.index);
        value
            .1
            .push_bytes(run.operations.values.get(one.value).as_bytes());
        value.1.push_bytes(b"\n");
    }
    columns
}

/// Clients act one after the other in a lane: process numbers grow by this after an unknown outcome.
fn concurrency(run: &Run) -> u64 {
    let planned = run.manifest.as_ref().map(|run| run.options.concurrency);
    let highest = run.operations.list.iter().map(|one| one.process).max();
    let lanes = highest.map_or(1, |highest| highest.saturating_add(1));
    match planned {
        Some(planned) if planned > 0 => u64::from(planned).min(lanes),
        _ => lanes.min(LANE_COUNT_MAX),
    }
}

/// States as triples of start, end and number of the state; epochs as pairs of time and epoch.
fn life(node: &NodeTimeline) -> Value {
    let state = |state: NodeState| NodeState::ALL.iter().position(|one| *one == state);
    let spans = node.spans.iter().flat_map(|span| {
        let times = [span.from_ns / 1000, span.to_ns.div_ceil(1000)].map(Value::from);
        times.into_iter().chain([json!(state(span.state))])
    });
    let epochs = node.epoch_changes.iter();
    json!({
        "node": printable(&node.node),
        "spans": spans.collect::<Vec<_>>(),
        "epochs": epochs
            .flat_map(|(at_ns, epoch)| [json!(at_ns / 1000), json!(epoch)])
            .collect::<Vec<_>>(),
    })
}

fn fault_bands(run: &Run) -> Vec<Value> {
    let end_us = run.end_ns().div_ceil(1000);
    let told = run.faults.iter().zip(faults::rows(&run.faults, None));
    let bands = told.filter_map(|(fault, row)| {
        let applied = fault.outcome? != FaultOutcome::Skipped;
        let from_us = row.window_ms?.0.saturating_mul(1000);
        let healed_us = fault.healed_at_ms.map(|at_ms| at_ms.saturating_mul(1000));
        let to_us = healed_us.unwrap_or(if applied { end_us } else { from_us });
        let what = format!("{} {}", row.asked, row.resolved);
        Some(json!({
            "id": row.id,
            "kind": row.kind,
            "colour": plots::fault_key(&fault.fault.kind),
            "from": from_us,
            "to": to_us,
            "applied": applied,
            "text": crate::text::shortened(what.trim(), 160),
            "effect": crate::text::shortened(&row.effect.text, 160),
        }))
    });
    bands.collect()
}

fn moment(moment: &Moment) -> Value {
    json!({
        "label": moment.label,
        "violation": moment.violation,
        "from": moment.from_ns / 1000,
        "to": moment.to_ns.div_ceil(1000),
        "indices": moment.indices,
        "failing": moment.failing,
    })
}

/// As many standstills of the machine are marked, the longest ones.
const STANDSTILL_MARK_COUNT_MAX: usize = 5;

fn marks(run: &Run) -> Vec<Value> {
    let Some(phases) = run.manifest.as_ref().map(|run| &run.phases) else {
        return Vec::new();
    };
    let marks = [
        (phases.workload_end, "workload ends"),
        (phases.healed, "healed"),
        (phases.recovered, "recovered"),
    ];
    let mut longest = run.operations.standstills.clone();
    longest.sort_by_key(|one| std::cmp::Reverse(one.lasted_ms));
    longest.truncate(STANDSTILL_MARK_COUNT_MAX);
    let stood = longest
        .iter()
        .map(|one| (Some(one.until_ns), "stood still"));
    let known = marks.into_iter().chain(stood);
    let mut known: Vec<(u64, &str)> = known
        .filter_map(|(at_ns, label)| Some((at_ns? / 1000, label)))
        .collect();
    known.sort_unstable();
    known.into_iter().map(|mark| json!(mark)).collect()
}

// The script takes the outcome out of `kind` by these numbers.
const _: () =
    assert!(Outcome::Ok as u8 == 0 && Outcome::Fail as u8 == 1 && Outcome::Info as u8 == 2);
