//! Owns the latency plot: single operations while they are few, quantiles when they are many.
//! Never hides a failed or unknown operation: those are drawn as points in both forms.

use std::collections::BTreeSet;

use crate::operations::{Outcome, quantile};

use super::canvas::{self, Canvas, PlotError};
use super::frame::{Backdrop, Frame, LegendEntry, Symbol, cross, height_for, triangle};
use super::palette;

const DATA_HEIGHT: i32 = 250;
/// From this many operations on, quantiles replace the points: a point costs about 100 bytes.
const POINT_COUNT_MAX: usize = 5000;
const BIN_COUNT: usize = 160;
/// Fewer operations have no quantiles worth a line.
const QUANTILE_POINT_COUNT_MIN: usize = 400;
/// A bin has about as many operations as this, or more.
const BIN_POINT_COUNT_MIN: usize = 20;
const QUANTILES: [(u64, &str); 3] = [(50, "p50"), (95, "p95"), (99, "p99")];

/// One completed operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LatencyPoint {
    /// Moment of invocation in nanoseconds since the run started.
    pub(crate) at_ns: u64,
    /// Time to completion in nanoseconds.
    pub(crate) latency_ns: u64,
    /// What became of it.
    pub(crate) outcome: Outcome,
}

/// Draws the plot.
pub(crate) fn latency(backdrop: &Backdrop, points: &[LatencyPoint]) -> Result<String, PlotError> {
    let binned = points.len() >= POINT_COUNT_MAX;
    let with_quantiles = points.len() >= QUANTILE_POINT_COUNT_MIN;
    let height = height_for(backdrop, DATA_HEIGHT);
    canvas::draw(
        (super::frame::WIDTH, height),
        "Latency of operations over time",
        |canvas| {
            let title = if binned {
                "Latency of ok operations (log scale, quantiles over time)"
            } else {
                "Latency (log scale): one mark per operation, quantiles of ok operations"
            };
            let legend = legend(binned, with_quantiles, points);
            let frame = Frame::draw(canvas, backdrop, title, &legend, DATA_HEIGHT)?;
            let scale = LogScale::over(points, &frame);
            frame.value_axis(&scale.labels())?;
            if binned {
                quantile_lines(canvas, &frame, backdrop, &scale, points)?;
                marks(
                    canvas,
                    &frame,
                    &scale,
                    points,
                    &[Outcome::Info, Outcome::Fail],
                )?;
            } else {
                marks(canvas, &frame, &scale, points, &Outcome::ALL)?;
                if with_quantiles {
                    quantile_lines(canvas, &frame, backdrop, &scale, points)?;
                }
            }
            frame.phase_marks()
        },
    )
}

fn legend(binned: bool, with_quantiles: bool, points: &[LatencyPoint]) -> Vec<LegendEntry> {
    let mut entries = Vec::new();
    if with_quantiles {
        for ((_, name), swatch) in QUANTILES.into_iter().zip(palette::QUANTILES) {
            entries.push((Symbol::Line, swatch, name.to_owned()));
        }
    }
    let symbols = [Symbol::Dot, Symbol::Cross, Symbol::Triangle];
    for (outcome, symbol) in Outcome::ALL.into_iter().zip(symbols) {
        let present = points.iter().any(|point| point.outcome == outcome);
        if present && !(binned && outcome == Outcome::Ok) {
            let name = match outcome {
                Outcome::Info => "info (outcome unknown)",
                other => other.word(),
            };
            entries.push((symbol, palette::outcome(outcome), name.to_owned()));
        }
    }
    entries
}

/// Nanoseconds on a logarithmic axis of whole decades.
struct LogScale {
    low: f64,
    high: f64,
    top: i32,
    bottom: i32,
}

impl LogScale {
    fn over(points: &[LatencyPoint], frame: &Frame<'_, '_>) -> Self {
        let decades = points
            .iter()
            .map(|point| (point.latency_ns.max(1000) as f64).log10());
        let low = decades.clone().fold(f64::INFINITY, f64::min).floor();
        let high = decades.fold(f64::NEG_INFINITY, f64::max).ceil();
        let (low, high) = if low.is_finite() {
            (low, high)
        } else {
            (6.0, 9.0)
        };
        Self {
            low,
            high: high.max(low + 1.0),
            top: frame.top,
            bottom: frame.bottom,
        }
    }

    fn y(&self, latency_ns: u64) -> i32 {
        let share = ((latency_ns.max(1) as f64).log10() - self.low) / (self.high - self.low);
        let height = f64::from(self.bottom - self.top);
        self.bottom - (share.clamp(0.0, 1.0) * height).round() as i32
    }

    fn labels(&self) -> Vec<(i32, String)> {
        let decades = self.low as u32..=self.high as u32;
        decades
            .map(|decade| {
                let latency_ns = 10u64.saturating_pow(decade);
                let label = match decade {
                    ..6 => format!("{} µs", latency_ns / 1000),
                    6..9 => format!("{} ms", latency_ns / 1_000_000),
                    _ => format!("{} s", latency_ns / 1_000_000_000),
                };
                (self.y(latency_ns), label)
            })
            .collect()
    }
}

/// Marks that would cover each other are drawn once: within two pixels, and where an outcome has
/// thousands of them, within eight, so that the plot does not grow with the history.
fn marks(
    canvas: &Canvas<'_>,
    frame: &Frame<'_, '_>,
    scale: &LogScale,
    points: &[LatencyPoint],
    outcomes: &[Outcome],
) -> Result<(), PlotError> {
    // The outcomes are drawn in order of how much they matter to a reader, the most telling on top.
    for outcome in outcomes {
        let mut taken = BTreeSet::new();
        let swatch = palette::outcome(*outcome);
        let of_outcome = points.iter().filter(|point| point.outcome == *outcome);
        let cell = if of_outcome.count() < POINT_COUNT_MAX {
            2
        } else {
            8
        };
        for point in points.iter().filter(|point| point.outcome == *outcome) {
            let at = (frame.x(point.at_ns as f64 / 1e9), scale.y(point.latency_ns));
            if !taken.insert((at.0 / cell, at.1 / cell)) {
                continue;
            }
            match outcome {
                Outcome::Ok => canvas.dot(at, 2, swatch, 0.6)?,
                Outcome::Fail => cross(canvas, at, 2, swatch)?,
                Outcome::Info => triangle(canvas, at, 4, swatch, 0.9)?,
            }
        }
    }
    Ok(())
}

fn quantile_lines(
    canvas: &Canvas<'_>,
    frame: &Frame<'_, '_>,
    backdrop: &Backdrop,
    scale: &LogScale,
    points: &[LatencyPoint],
) -> Result<(), PlotError> {
    let bin_count = (points.len() / BIN_POINT_COUNT_MIN).clamp(1, BIN_COUNT);
    let bin_ns = backdrop.end_s * 1e9 / bin_count as f64;
    let mut bins: Vec<Vec<u64>> = vec![Vec::new(); bin_count];
    for point in points.iter().filter(|point| point.outcome == Outcome::Ok) {
        let bin = (point.at_ns as f64 / bin_ns) as usize;
        bins[bin.min(bin_count - 1)].push(point.latency_ns);
    }
    for bin in &mut bins {
        bin.sort_unstable();
    }
    for ((percent, _), swatch) in QUANTILES.into_iter().zip(palette::QUANTILES) {
        // A stretch without ok operations is a gap, not a line.
        for stretch in bins
            .iter()
            .enumerate()
            .collect::<Vec<_>>()
            .chunk_by(|one, other| one.1.is_empty() == other.1.is_empty())
        {
            let line: Vec<_> = stretch
                .iter()
                .filter(|(_, bin)| !bin.is_empty())
                .map(|(number, bin)| {
                    let middle_s = (*number as f64 + 0.5) * bin_ns / 1e9;
                    (frame.x(middle_s), scale.y(quantile(bin, percent)))
                })
                .collect();
            match line.as_slice() {
                [] => {}
                [only] => canvas.dot(*only, 2, swatch, 1.0)?,
                _ => canvas.path(line, swatch, 2)?,
            }
        }
    }
    Ok(())
}
