//! Owns the plot of completions per second, one line per outcome.
//! Never counts an operation without a recorded completion.

use crate::operations::Outcome;

use super::canvas::{self, PlotError};
use super::frame::{Backdrop, Frame, Symbol, WIDTH, height_for, ticks};
use super::latency::LatencyPoint;
use super::palette;

const DATA_HEIGHT: i32 = 170;
const BIN_COUNT_MAX: f64 = 150.0;

/// Draws the plot. Operations count at their completion.
pub(crate) fn rate(backdrop: &Backdrop, points: &[LatencyPoint]) -> Result<String, PlotError> {
    let bin_s = bin_length_s(backdrop.end_s);
    let bin_count = (backdrop.end_s / bin_s).ceil().max(1.0) as usize;
    let mut rates = [(); 3].map(|()| vec![0f64; bin_count]);
    for point in points {
        let done_s = (point.at_ns + point.latency_ns) as f64 / 1e9;
        let bin = ((done_s / bin_s) as usize).min(bin_count - 1);
        rates[point.outcome as usize][bin] += 1.0 / bin_s;
    }
    let highest = rates.iter().flatten().copied().fold(1.0, f64::max);

    let height = height_for(backdrop, DATA_HEIGHT);
    canvas::draw(
        (WIDTH, height),
        "Completed operations per second",
        |canvas| {
            let present: Vec<_> = Outcome::ALL
                .into_iter()
                .filter(|outcome| rates[*outcome as usize].iter().any(|rate| *rate > 0.0))
                .collect();
            let entries: Vec<_> = present
                .iter()
                .map(|outcome| {
                    (
                        Symbol::Line,
                        palette::outcome(*outcome),
                        outcome.word().to_owned(),
                    )
                })
                .collect();
            let title = "Completed operations per second";
            let frame = Frame::draw(canvas, backdrop, title, &entries, DATA_HEIGHT)?;
            let y = |rate: f64| frame.bottom - (rate / highest * f64::from(DATA_HEIGHT)) as i32;
            let digits = usize::from(highest < 5.0);
            let labels: Vec<_> = ticks(0.0, highest, 5)
                .into_iter()
                .map(|tick| (y(tick), format!("{tick:.digits$}")))
                .collect();
            frame.value_axis(&labels)?;
            for outcome in present {
                let swatch = palette::outcome(outcome);
                let steps = rates[outcome as usize].iter().enumerate();
                let line = steps.flat_map(|(bin, rate)| {
                    let ends = [bin as f64, bin as f64 + 1.0];
                    ends.map(|end| (frame.x(end * bin_s), y(*rate)))
                });
                canvas.path(line.collect(), swatch, 2)?;
            }
            frame.phase_marks()
        },
    )
}

/// The shortest round bin length that needs at most [`BIN_COUNT_MAX`] bins, in seconds.
fn bin_length_s(end_s: f64) -> f64 {
    let steps = [0.1, 0.2, 0.5, 1.0, 2.0, 5.0, 10.0, 30.0, 60.0, 300.0, 600.0];
    let fits = steps.into_iter().find(|step| end_s / step <= BIN_COUNT_MAX);
    fits.unwrap_or(end_s / BIN_COUNT_MAX)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn bins_stay_few_and_round() {
        assert_eq!(bin_length_s(30.0), 0.2);
        assert_eq!(bin_length_s(300.0), 2.0);
        assert!(1e9 / bin_length_s(1e9) <= BIN_COUNT_MAX + 1.0);
    }
}
