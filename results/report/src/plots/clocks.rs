//! Owns the plot of how far each node's clock was from true time.
//! Never draws anything for a run without clock measurements.

use std::collections::{BTreeMap, BTreeSet};

use super::canvas::{self, Align, PlotError};
use super::frame::{Backdrop, Frame, Symbol, WIDTH, height_for, ticks};
use super::palette;

const DATA_HEIGHT: i32 = 170;

/// One measurement of all clocks.
#[derive(Debug, Clone)]
pub(crate) struct ClockSample {
    /// Seconds since the run started.
    pub(crate) at_s: f64,
    /// Offset from true time in milliseconds, by node.
    pub(crate) offsets_ms: BTreeMap<String, f64>,
}

/// Draws the plot.
pub(crate) fn clocks(backdrop: &Backdrop, samples: &[ClockSample]) -> Result<String, PlotError> {
    let offsets = samples.iter().flat_map(|sample| sample.offsets_ms.values());
    let finite = offsets.copied().filter(|offset| offset.is_finite());
    let (low, high) = finite.fold((-1f64, 1f64), |(low, high), offset| {
        (low.min(offset), high.max(offset))
    });
    let (low, high) = (low * 1.08, high * 1.08);
    let names: BTreeSet<&String> = samples
        .iter()
        .flat_map(|sample| sample.offsets_ms.keys())
        .collect();
    let mut names: Vec<_> = names.into_iter().collect();
    names.sort_by_key(|name| (name.len(), *name));

    let size = (WIDTH, height_for(backdrop, DATA_HEIGHT));
    canvas::draw(size, "Clock offsets of the nodes over time", |canvas| {
        let swatches = palette::NODES.into_iter().cycle();
        let legend: Vec<_> = names
            .iter()
            .zip(swatches.clone())
            .map(|(name, swatch)| (Symbol::Line, swatch, crate::text::shortened(name, 9)))
            .collect();
        let title = "Clock offset from true time";
        let frame = Frame::draw(canvas, backdrop, title, &legend, DATA_HEIGHT)?;
        let y = |offset: f64| {
            let share = (offset - low) / (high - low);
            frame.bottom - (share * f64::from(DATA_HEIGHT)).round() as i32
        };
        let labels: Vec<_> = ticks(low, high, 5)
            .into_iter()
            .map(|tick| (y(tick), label_ms(tick)))
            .collect();
        frame.value_axis(&labels)?;
        for (name, swatch) in names.iter().zip(swatches) {
            let mut line: Vec<_> = samples
                .iter()
                .filter_map(|sample| Some((sample.at_s, *sample.offsets_ms.get(*name)?)))
                .filter(|(_, offset)| offset.is_finite())
                .map(|(at_s, offset)| (frame.x(at_s), y(offset)))
                .collect();
            line.dedup_by_key(|(x, _)| *x);
            let last = line.last().copied();
            if line.len() > 1 {
                canvas.path(line, swatch, 2)?;
            }
            if let Some(last) = last {
                canvas.dot(last, 3, swatch, 1.0)?;
                let beside = (last.0 - 6, last.1 - 9);
                canvas.text(beside, name, 11, swatch, Align::Right)?;
            }
        }
        frame.phase_marks()
    })
}

fn label_ms(offset_ms: f64) -> String {
    if offset_ms.abs() >= 1000.0 {
        format!("{:.1} s", offset_ms / 1000.0)
    } else {
        format!("{offset_ms:.0} ms")
    }
}
