//! Owns turning a recording into the data of the plots.
//! Never lets a plot that cannot be drawn take the report with it.

use std::panic::{AssertUnwindSafe, catch_unwind};

use results::schedule::{FaultOutcome, ScheduledFault};

use crate::operations::Outcome;
use crate::plots::{
    self, Backdrop, ClockSample, FaultSpan, LatencyPoint, NodeLane, NodeLog, PhaseMark, PlotError,
    StateSpan,
};
use crate::reading::Run;
use crate::timeline::NodeTimeline;

/// One plot of the page.
#[derive(Debug)]
pub(crate) struct Picture {
    /// Its file in the run folder.
    pub(crate) file: &'static str,
    /// The SVG element; empty when it could not be drawn.
    pub(crate) svg: String,
    /// Why it could not be drawn.
    pub(crate) trouble: String,
}

impl Picture {
    /// The name of its file, without the ending.
    pub(crate) fn name(&self) -> &'static str {
        self.file.trim_end_matches(".svg")
    }
}

/// A switch that hides one colour group in all plots.
#[derive(Debug)]
pub(crate) struct Toggle {
    /// Suffix of the identifiers and classes.
    pub(crate) id: &'static str,
    /// What the group is.
    pub(crate) label: &'static str,
}

/// Draws all plots that the recording has data for.
pub(crate) fn draw(run: &Run) -> Vec<Picture> {
    let backdrop = backdrop(run);
    let points = points(run);
    let lanes: Vec<_> = run
        .nodes
        .iter()
        .filter(|node| node.event_count > 0)
        .map(|node| lane(node, &run.faults, backdrop.end_s))
        .collect();
    let samples = samples(run);

    let mut pictures = Vec::new();
    if !points.is_empty() {
        pictures.push(picture("latency.svg", || {
            plots::latency(&backdrop, &points)
        }));
        pictures.push(picture("rate.svg", || plots::rate(&backdrop, &points)));
    }
    if !lanes.is_empty() {
        pictures.push(picture("epochs.svg", || plots::epochs(&backdrop, &lanes)));
    }
    let logs: Vec<_> = run
        .nodes
        .iter()
        .filter(|node| !node.log.is_empty())
        .map(|node| NodeLog {
            node: crate::text::printable(&node.node),
            samples: &node.log,
        })
        .collect();
    if !logs.is_empty() {
        pictures.push(picture("log.svg", || plots::log(&backdrop, &logs)));
    }
    if !samples.is_empty() {
        pictures.push(picture("clock-skew.svg", || {
            plots::clocks(&backdrop, &samples)
        }));
    }
    pictures
}

/// The drawing library may panic on ranges nobody thought of; that must not cost the report.
fn picture(file: &'static str, draw: impl FnOnce() -> Result<String, PlotError>) -> Picture {
    let drawn = catch_unwind(AssertUnwindSafe(draw));
    let (svg, trouble) = match drawn {
        Ok(Ok(svg)) => (svg, String::new()),
        Ok(Err(error)) => (String::new(), error.to_string()),
        Err(_) => (String::new(), "the drawing code panicked".to_owned()),
    };
    Picture { file, svg, trouble }
}

/// The switches for what occurs in this run.
pub(crate) fn toggles(run: &Run) -> Vec<Toggle> {
    let outcomes = Outcome::ALL
        .into_iter()
        .filter(|outcome| run.operations.count(*outcome) > 0);
    let mut toggles: Vec<_> = outcomes
        .map(|outcome| Toggle {
            id: outcome.word(),
            label: outcome.word(),
        })
        .collect();
    let occurs = |kind: &str| run.faults.iter().any(|fault| fault.fault.kind == kind);
    let kinds = plots::FAULT_KINDS.into_iter().filter(|kind| occurs(kind));
    toggles.extend(kinds.map(|kind| Toggle {
        id: kind,
        label: kind,
    }));
    let known = |kind: &str| plots::FAULT_KINDS.contains(&kind);
    if run.faults.iter().any(|fault| !known(&fault.fault.kind)) {
        toggles.push(Toggle {
            id: "other",
            label: "other faults",
        });
    }
    toggles
}

fn backdrop(run: &Run) -> Backdrop {
    let end_s = run.end_ns() as f64 / 1e9;
    let phases = run.manifest.as_ref().map(|run| &run.phases);
    let marks = phases.map(|phases| {
        [
            (phases.workload_end, "workload ends"),
            (phases.healed, "healed"),
            (phases.recovered, "recovered"),
        ]
    });
    let marks = marks.into_iter().flatten().filter_map(|(at_ns, label)| {
        Some(PhaseMark {
            at_s: at_ns? as f64 / 1e9,
            label,
        })
    });
    let standstills = run.operations.standstills.iter();
    let standstills =
        standstills.map(|one| (one.from_ns() as f64 / 1e9, one.until_ns as f64 / 1e9));
    Backdrop {
        end_s,
        faults: run
            .faults
            .iter()
            .filter_map(|fault| span(fault, end_s))
            .collect(),
        marks: marks.collect(),
        standstills: standstills.collect(),
    }
}

/// A fault whose moment never came is not part of what happened.
fn span(fault: &ScheduledFault, end_s: f64) -> Option<FaultSpan> {
    let outcome = fault.outcome?;
    let started_ms = fault
        .resolved
        .as_ref()
        .map_or(fault.trigger.at_ms, |found| found.at_ms);
    let from_s = started_ms as f64 / 1e3;
    let applied = outcome != FaultOutcome::Skipped;
    let to_s = match fault.healed_at_ms {
        Some(healed_ms) => healed_ms as f64 / 1e3,
        None if applied => end_s,
        None => from_s,
    };
    Some(FaultSpan {
        id: fault.id,
        kind: fault.fault.kind.clone(),
        from_s,
        to_s,
        applied,
    })
}

fn points(run: &Run) -> Vec<LatencyPoint> {
    let points = run.operations.list.iter().filter_map(|operation| {
        Some(LatencyPoint {
            at_ns: operation.invoked_ns,
            latency_ns: operation.latency_ns()?,
            outcome: operation.outcome,
        })
    });
    points.collect()
}

fn lane(node: &NodeTimeline, faults: &[ScheduledFault], end_s: f64) -> NodeLane {
    let seconds = |time_ns: u64| time_ns as f64 / 1e9;
    let spans = node.spans.iter().map(|span| StateSpan {
        from_s: seconds(span.from_ns),
        to_s: seconds(span.to_ns),
        state: span.state,
    });
    let epochs = node.epoch_changes.iter();
    NodeLane {
        node: crate::text::printable(&node.node),
        spans: spans.collect(),
        epochs: epochs
            .map(|(at_ns, epoch)| (seconds(*at_ns), *epoch))
            .collect(),
        elected_s: node
            .elections_won
            .iter()
            .map(|(at_ns, _)| seconds(*at_ns))
            .collect(),
        faults: faults
            .iter()
            .filter(|fault| is_aimed_at(fault, &node.node))
            .filter_map(|fault| span(fault, end_s))
            .filter(|span| span.applied)
            .map(|span| (span.kind, span.from_s, span.to_s))
            .collect(),
    }
}

/// Whether a fault names the node itself; links between nodes are nobody's own.
fn is_aimed_at(fault: &ScheduledFault, node: &str) -> bool {
    let Some(resolved) = &fault.resolved else {
        return false;
    };
    let list = |name: &str| resolved.targets.get(name).and_then(|list| list.as_array());
    let named = list("nodes").is_some_and(|nodes| nodes.iter().any(|target| target == node));
    let clocks = list("clocks");
    named || clocks.is_some_and(|clocks| clocks.iter().any(|clock| clock["node"] == node))
}

fn samples(run: &Run) -> Vec<ClockSample> {
    let samples = run
        .operations
        .clock_samples
        .iter()
        .map(|(at_ns, offsets_ms)| {
            let offsets = offsets_ms.iter();
            ClockSample {
                at_s: *at_ns as f64 / 1e9,
                offsets_ms: offsets
                    .map(|(node, offset)| (crate::text::printable(node), *offset))
                    .collect(),
            }
        });
    samples.collect()
}
