//! Owns the lane diagram of a few operations: one lane per process, a bar from call to answer.
//! Never draws time to scale: what an order must respect is which event came first.

use std::collections::BTreeMap;

use askama::Template;

use crate::text;

const LEFT: usize = 78;
const LANE_HEIGHT: usize = 42;
const TOP: usize = 8;
const CHARACTER_WIDTH: usize = 7;

/// An operation to draw.
#[derive(Debug)]
pub(crate) struct LaneOperation {
    /// Client process.
    pub(crate) process: String,
    /// Function and value.
    pub(crate) label: String,
    /// `ok`, `info`, `fail`.
    pub(crate) outcome: String,
    /// Nanoseconds since the run started.
    pub(crate) invoked_ns: u64,
    /// Nanoseconds since the run started; `None` for an operation that may take effect at any time.
    pub(crate) completed_ns: Option<u64>,
    /// Whether no order remains possible at this one.
    pub(crate) failing: bool,
}

#[derive(Template)]
#[template(path = "lanes.svg")]
struct Diagram {
    width: usize,
    height: usize,
    lanes: Vec<Lane>,
    bars: Vec<Bar>,
    moments: Vec<Moment>,
}

struct Lane {
    name: String,
    y: usize,
}

struct Bar {
    x: usize,
    y: usize,
    width: usize,
    class: &'static str,
    open: bool,
    failing: bool,
    label: String,
    hover: String,
}

struct Moment {
    x: usize,
    label: String,
    anchor: &'static str,
}

/// Draws the diagram as an SVG element; empty without operations.
pub(crate) fn diagram(operations: &[LaneOperation]) -> String {
    if operations.is_empty() {
        return String::new();
    }
    let mut times: Vec<u64> = operations
        .iter()
        .flat_map(|one| [Some(one.invoked_ns), one.completed_ns])
        .flatten()
        .collect();
    times.sort_unstable();
    times.dedup();
    let step = (860 / times.len()).clamp(30, 120);
    let column = |time_ns: u64| LEFT + times.partition_point(|time| *time < time_ns) * step;
    let right = LEFT + times.len() * step;

    let mut rows = BTreeMap::new();
    for operation in operations {
        let next = rows.len();
        rows.entry(operation.process.as_str()).or_insert(next);
    }
    let bars = operations.iter().map(|one| {
        let x = column(one.invoked_ns);
        let end = one.completed_ns.map_or(right, column).max(x + 4);
        bar(
            one,
            x,
            TOP + rows[one.process.as_str()] * LANE_HEIGHT,
            end - x,
        )
    });
    let failing = operations.iter().find(|one| one.failing);
    let told = failing.map(|one| [Some(one.invoked_ns), one.completed_ns]);
    let told = told.unwrap_or([times.first().copied(), times.last().copied()]);
    let mut moments: Vec<_> = told
        .into_iter()
        .flatten()
        .map(|time_ns| Moment {
            x: column(time_ns),
            label: text::moment_ns(time_ns),
            anchor: "start",
        })
        .collect();
    if let [first, .., last] = moments.as_mut_slice() {
        first.anchor = "end";
        if first.x < LEFT + 60 {
            first.anchor = "middle";
        }
        last.anchor = "start";
    }
    let lanes = rows.iter().map(|(name, row)| Lane {
        name: text::shortened(name, 6),
        y: TOP + row * LANE_HEIGHT,
    });
    let diagram = Diagram {
        width: right + 70,
        height: TOP + rows.len() * LANE_HEIGHT + 24,
        lanes: lanes.collect(),
        bars: bars.collect(),
        moments,
    };
    // The template writes into a string, which cannot fail; a diagram is not worth a lost report.
    diagram.render().unwrap_or_default()
}

fn bar(operation: &LaneOperation, x: usize, y: usize, width: usize) -> Bar {
    let completed = operation.completed_ns.map_or_else(
        || "never completed".to_owned(),
        |completed_ns| format!("completed {}", text::moment_ns(completed_ns)),
    );
    let hover = format!(
        "process {}: {} ({}), invoked {}, {completed}",
        operation.process,
        operation.label,
        operation.outcome,
        text::moment_ns(operation.invoked_ns),
    );
    Bar {
        x,
        y,
        width,
        class: match operation.outcome.as_str() {
            "ok" => "ok",
            "fail" => "fail",
            _ => "info",
        },
        open: operation.completed_ns.is_none(),
        failing: operation.failing,
        label: text::shortened(&operation.label, (width / CHARACTER_WIDTH).max(9)),
        hover,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operation(process: &str, invoked_ns: u64, completed_ns: Option<u64>) -> LaneOperation {
        LaneOperation {
            process: process.into(),
            label: "write <1>".into(),
            outcome: if completed_ns.is_some() { "ok" } else { "info" }.into(),
            invoked_ns,
            completed_ns,
            failing: invoked_ns == 7,
        }
    }

    #[test]
    fn every_operation_has_a_bar_and_every_process_a_lane() {
        let svg = diagram(&[
            operation("1", 5, Some(9)),
            operation("1", 10, Some(11)),
            operation("2", 7, None),
        ]);
        assert_eq!(svg.matches("class=\"bar ").count(), 3, "{svg}");
        assert_eq!(svg.matches("class=\"lane\"").count(), 2, "{svg}");
        assert_eq!(svg.matches("failing").count(), 1, "{svg}");
        assert!(svg.contains("never completed"));
        assert!(!svg.contains("<1>"), "labels are escaped: {svg}");
    }

    #[test]
    fn nothing_to_draw_is_no_diagram() {
        assert_eq!(diagram(&[]), "");
    }
}
