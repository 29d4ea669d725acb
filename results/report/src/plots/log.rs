//! Owns the plot of how far each node's log goes, and how much of it is known to be committed.
//! Never draws more than a few points per column of pixels, however long the log.

use crate::timeline::LogSample;

use super::canvas::{self, Align, Canvas, PlotError};
use super::frame::{Backdrop, Frame, LegendEntry, Symbol, WIDTH, height_for, ticks};
use super::palette::{self, Swatch};

const DATA_HEIGHT: i32 = 220;

/// The log of one node over time.
#[derive(Debug, Clone)]
pub(crate) struct NodeLog<'a> {
    /// Name of the node.
    pub(crate) node: String,
    /// In order of time.
    pub(crate) samples: &'a [LogSample],
}

/// Draws the plot.
pub(crate) fn log(backdrop: &Backdrop, logs: &[NodeLog<'_>]) -> Result<String, PlotError> {
    let ends = logs
        .iter()
        .flat_map(|log| log.samples)
        .map(|one| one.log_end);
    let highest = ends.max().unwrap_or(0).max(1) as f64;
    let size = (WIDTH, height_for(backdrop, DATA_HEIGHT));
    canvas::draw(size, "Logs of the nodes over time", |canvas| {
        let title = "High watermark (line) and log end (band above it), in offsets";
        let frame = Frame::draw(canvas, backdrop, title, &legend(logs), DATA_HEIGHT)?;
        let y = |offset: i64| {
            let share = (offset as f64 / highest).clamp(0.0, 1.0);
            frame.bottom - (share * f64::from(DATA_HEIGHT)).round() as i32
        };
        let labels: Vec<_> = ticks(0.0, highest, 5)
            .into_iter()
            .map(|tick| (y(tick as i64), crate::text::count(tick as u64)))
            .collect();
        frame.value_axis(&labels)?;
        let end_x = frame.x(backdrop.end_s);
        for (place, (log, swatch)) in logs
            .iter()
            .zip(palette::NODES.into_iter().cycle())
            .enumerate()
        {
            let steps = steps(log.samples, |at_ns| frame.x(at_ns as f64 / 1e9));
            // Nodes agree most of the time: earlier ones are drawn wider, so that all stay visible.
            let width = (logs.len() - place).min(5) as u32 + 1;
            draw_log(canvas, &steps, &y, end_x, swatch, width)?;
        }
        frame.phase_marks()?;
        last_offsets(canvas, logs, end_x, &y)
    })
}

fn legend(logs: &[NodeLog<'_>]) -> Vec<LegendEntry> {
    let nodes = logs.iter().zip(palette::NODES.into_iter().cycle());
    nodes
        .map(|(log, swatch)| (Symbol::Line, swatch, crate::text::shortened(&log.node, 9)))
        .collect()
}

/// One column of pixels: its place, and of log end and high watermark the lowest and the last.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
struct Step {
    x: i32,
    end: [i64; 2],
    mark: [i64; 2],
}

fn steps(samples: &[LogSample], x: impl Fn(u64) -> i32) -> Vec<Step> {
    let mut steps: Vec<Step> = Vec::new();
    for sample in samples {
        let (end, mark) = (sample.log_end, sample.high_watermark);
        let at = x(sample.at_ns);
        match steps.last_mut() {
            Some(last) if last.x == at => {
                last.end = [last.end[0].min(end), end];
                last.mark = [last.mark[0].min(mark), mark];
            }
            _ => steps.push(Step {
                x: at,
                end: [end, end],
                mark: [mark, mark],
            }),
        }
    }
    steps
}

fn draw_log(
    canvas: &Canvas<'_>,
    steps: &[Step],
    y: &impl Fn(i64) -> i32,
    end_x: i32,
    swatch: Swatch,
    width: u32,
) -> Result<(), PlotError> {
    let nexts = steps.iter().skip(1).map(|step| step.x).chain([end_x]);
    let mut marks = Vec::new();
    let mut upper = Vec::new();
    let mut lower = Vec::new();
    for (step, next) in steps.iter().zip(nexts) {
        for value in step.mark {
            marks.push((step.x, y(value)));
        }
        marks.push((next, y(step.mark[1])));
        upper.extend([(step.x, y(step.end[1])), (next, y(step.end[1]))]);
        lower.extend([(step.x, y(step.mark[1])), (next, y(step.mark[1]))]);
    }
    if marks.len() < 2 {
        return Ok(());
    }
    let band = upper.into_iter().chain(lower.into_iter().rev());
    canvas.polygon(band.collect(), swatch, 0.3)?;
    marks.dedup();
    canvas.path(marks, swatch, width)
}

fn last_offsets(
    canvas: &Canvas<'_>,
    logs: &[NodeLog<'_>],
    end_x: i32,
    y: &impl Fn(i64) -> i32,
) -> Result<(), PlotError> {
    let lasts = logs.iter().filter_map(|log| log.samples.last());
    let Some(highest) = lasts.map(|one| one.high_watermark).max() else {
        return Ok(());
    };
    let label = crate::text::count(u64::try_from(highest).unwrap_or(0));
    let at = (end_x - 4, y(highest) + 14);
    canvas.text(at, &label, 11, palette::INK, Align::Right)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_column_keeps_the_lowest_and_the_last() {
        let sample = |at_ns, log_end, high_watermark| LogSample {
            at_ns,
            log_end,
            high_watermark,
        };
        let samples = [
            sample(0, 5, 5),
            sample(1, 3, 2),
            sample(2, 9, 7),
            sample(30, 9, 9),
        ];
        let steps = steps(&samples, |at_ns| (at_ns / 10) as i32);
        let first = Step {
            x: 0,
            end: [3, 9],
            mark: [2, 7],
        };
        assert_eq!(steps.len(), 2);
        assert_eq!(steps[0], first);
    }
}
