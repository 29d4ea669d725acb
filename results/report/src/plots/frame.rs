//! Owns what all plots share: axes, fault lanes and shading, phase marks, legend.
//! Never draws data.

use super::canvas::{Align, Canvas, Pixel, PlotError};
use super::palette::{self, Swatch};

pub(crate) const WIDTH: i32 = 960;
const LEFT: i32 = 76;
const RIGHT: i32 = WIDTH - 18;
const TITLE_HEIGHT: i32 = 26;
const LEGEND_HEIGHT: i32 = 20;
const LANE_HEIGHT: i32 = 14;
const BOTTOM_HEIGHT: i32 = 30;
/// Room for texts of phase marks above the data.
const MARK_HEIGHT: i32 = 16;
const TEXT: i32 = 12;

/// A fault as the plots show it.
#[derive(Debug, Clone)]
pub(crate) struct FaultSpan {
    /// Number of the fault.
    pub(crate) id: u64,
    /// `partition`, `kill`, ...
    pub(crate) kind: String,
    /// Seconds since the run started.
    pub(crate) from_s: f64,
    /// Seconds since the run started.
    pub(crate) to_s: f64,
    /// Whether it was really applied; others are drawn hollow and shade nothing.
    pub(crate) applied: bool,
}

/// A moment worth a line: the end of the workload, the healing, the recovery.
#[derive(Debug, Clone)]
pub(crate) struct PhaseMark {
    /// Seconds since the run started.
    pub(crate) at_s: f64,
    /// What happened.
    pub(crate) label: &'static str,
}

/// What lies behind the data in every plot of a run.
#[derive(Debug, Clone, Default)]
pub(crate) struct Backdrop {
    /// Length of the time axis in seconds.
    pub(crate) end_s: f64,
    /// The faults.
    pub(crate) faults: Vec<FaultSpan>,
    /// The milestones.
    pub(crate) marks: Vec<PhaseMark>,
    /// From when until when the machine stood still, in seconds since the run started.
    pub(crate) standstills: Vec<(f64, f64)>,
}

/// A shape of the legend.
#[derive(Debug, Clone, Copy)]
pub(crate) enum Symbol {
    Dot,
    Cross,
    Triangle,
    Line,
    Box,
    Hatch,
}

/// One entry of a legend.
pub(crate) type LegendEntry = (Symbol, Swatch, String);

/// The place for the data of one plot.
pub(crate) struct Frame<'a, 'c> {
    canvas: &'a Canvas<'c>,
    backdrop: &'a Backdrop,
    /// First pixel row of the data.
    pub(crate) top: i32,
    /// Last pixel row of the data.
    pub(crate) bottom: i32,
}

/// The lanes that a backdrop needs: one per kind of fault that occurs.
fn lanes(backdrop: &Backdrop) -> Vec<&str> {
    let known = palette::FAULT_KINDS.into_iter();
    let mut lanes: Vec<&str> = known
        .filter(|kind| backdrop.faults.iter().any(|fault| fault.kind == *kind))
        .collect();
    if backdrop
        .faults
        .iter()
        .any(|fault| palette::fault_key(&fault.kind) == "other")
    {
        lanes.push("other");
    }
    lanes
}

fn top_of(backdrop: &Backdrop) -> i32 {
    let lane_count = lanes(backdrop).len() as i32;
    TITLE_HEIGHT + LEGEND_HEIGHT + LANE_HEIGHT * lane_count + 6
}

/// Height of a whole plot that leaves `data_height` pixels for its data.
pub(crate) fn height_for(backdrop: &Backdrop, data_height: i32) -> i32 {
    top_of(backdrop) + MARK_HEIGHT + data_height + BOTTOM_HEIGHT
}

impl<'a, 'c> Frame<'a, 'c> {
    /// Draws everything that lies behind the data, in a plot made by [`height_for`].
    pub(crate) fn draw(
        canvas: &'a Canvas<'c>,
        backdrop: &'a Backdrop,
        title: &str,
        legend: &[LegendEntry],
        data_height: i32,
    ) -> Result<Self, PlotError> {
        let top = top_of(backdrop) + MARK_HEIGHT;
        let frame = Self {
            canvas,
            backdrop,
            top,
            bottom: top + data_height,
        };
        canvas.text(
            (LEFT, TITLE_HEIGHT / 2 + 1),
            title,
            15,
            palette::INK,
            Align::Left,
        )?;
        frame.legend(legend)?;
        frame.shade()?;
        frame.time_axis()?;
        frame.fault_lanes()?;
        Ok(frame)
    }

    /// Pixel column of a moment.
    pub(crate) fn x(&self, at_s: f64) -> i32 {
        let share = (at_s / self.backdrop.end_s.max(1e-9)).clamp(0.0, 1.0);
        LEFT + (share * f64::from(RIGHT - LEFT)).round() as i32
    }

    /// First and last pixel column of the data.
    pub(crate) fn columns(&self) -> (i32, i32) {
        (LEFT, RIGHT)
    }

    fn legend(&self, entries: &[LegendEntry]) -> Result<(), PlotError> {
        let y = TITLE_HEIGHT + LEGEND_HEIGHT / 2;
        let mut x = LEFT;
        for (symbol, swatch, label) in entries {
            self.symbol(*symbol, (x + 6, y), *swatch)?;
            let after = (x + 18, y);
            self.canvas
                .text(after, label, TEXT, palette::MUTED, Align::Left)?;
            // Without font files the width of a text can only be estimated.
            x += 18 + label.chars().count() as i32 * 7 + 14;
        }
        Ok(())
    }

    fn symbol(&self, symbol: Symbol, (x, y): Pixel, swatch: Swatch) -> Result<(), PlotError> {
        match symbol {
            Symbol::Dot => self.canvas.dot((x, y), 4, swatch, 1.0),
            Symbol::Cross => cross(self.canvas, (x, y), 4, swatch),
            Symbol::Triangle => triangle(self.canvas, (x, y), 5, swatch, 1.0),
            Symbol::Line => self.canvas.path(vec![(x - 7, y), (x + 7, y)], swatch, 3),
            Symbol::Box => self
                .canvas
                .rectangle((x - 6, y - 5), (x + 6, y + 5), swatch, 1.0),
            Symbol::Hatch => hatch(self.canvas, (x - 6, y - 5), (x + 6, y + 5), swatch),
        }
    }

    fn shade(&self) -> Result<(), PlotError> {
        for fault in self.backdrop.faults.iter().filter(|fault| fault.applied) {
            let from = (self.x(fault.from_s), self.top);
            let to = (self.x(fault.to_s).max(from.0 + 1), self.bottom);
            self.canvas
                .rectangle(from, to, palette::fault(&fault.kind), 0.13)?;
        }
        for (from_s, to_s) in &self.backdrop.standstills {
            let from = (self.x(*from_s), self.top);
            let to = (self.x(*to_s).max(from.0 + 1), self.bottom);
            hatch(self.canvas, from, to, palette::MUTED)?;
        }
        Ok(())
    }

    fn fault_lanes(&self) -> Result<(), PlotError> {
        let lanes = lanes(self.backdrop);
        let lane_top = |lane: usize| TITLE_HEIGHT + LEGEND_HEIGHT + 2 + LANE_HEIGHT * lane as i32;
        for (lane, kind) in lanes.iter().enumerate() {
            let at = (LEFT - 8, lane_top(lane) + LANE_HEIGHT / 2);
            self.canvas
                .text(at, kind, 11, palette::MUTED, Align::Right)?;
        }
        for fault in &self.backdrop.faults {
            let kind = palette::fault_key(&fault.kind);
            let lane = lanes.iter().position(|lane| *lane == kind).unwrap_or(0);
            let swatch = palette::fault(kind);
            let from = (self.x(fault.from_s), lane_top(lane) + 1);
            let to = (
                self.x(fault.to_s).max(from.0 + 2),
                lane_top(lane) + LANE_HEIGHT - 1,
            );
            if fault.applied {
                self.canvas.rectangle(from, to, swatch, 0.85)?;
            } else {
                self.canvas.outline(from, to, swatch)?;
            }
            let label = format!("#{}", fault.id);
            if to.0 - from.0 > label.len() as i32 * 7 + 4 {
                let middle = ((from.0 + to.0) / 2, lane_top(lane) + LANE_HEIGHT / 2);
                let ink = if fault.applied {
                    palette::BACKGROUND
                } else {
                    palette::MUTED
                };
                self.canvas.text(middle, &label, 10, ink, Align::Middle)?;
            }
        }
        Ok(())
    }

    fn time_axis(&self) -> Result<(), PlotError> {
        for tick_s in ticks(0.0, self.backdrop.end_s, 10) {
            let x = self.x(tick_s);
            self.canvas
                .path(vec![(x, self.top), (x, self.bottom)], palette::GRID, 1)?;
            let label = if (tick_s - tick_s.round()).abs() < 1e-9 {
                format!("{tick_s:.0} s")
            } else {
                format!("{tick_s:.1} s")
            };
            let at = (x, self.bottom + 14);
            self.canvas
                .text(at, &label, TEXT, palette::MUTED, Align::Middle)?;
        }
        let base = vec![(LEFT, self.bottom), (RIGHT, self.bottom)];
        self.canvas.path(base, palette::MUTED, 1)
    }

    /// Draws the value axis: one line and label per `(pixel row, label)`.
    pub(crate) fn value_axis(&self, labels: &[(i32, String)]) -> Result<(), PlotError> {
        for (y, label) in labels {
            self.canvas
                .path(vec![(LEFT, *y), (RIGHT, *y)], palette::GRID, 1)?;
            let at = (LEFT - 8, *y);
            self.canvas
                .text(at, label, TEXT, palette::MUTED, Align::Right)?;
        }
        Ok(())
    }

    /// Draws the phase marks; called after the data, so that they stay visible.
    pub(crate) fn phase_marks(&self) -> Result<(), PlotError> {
        let mut free_from = i32::MAX;
        for mark in self.backdrop.marks.iter().rev() {
            let x = self.x(mark.at_s);
            let line = vec![(x, self.top - 4), (x, self.bottom)];
            self.canvas.path(line, palette::MARK, 1)?;
            // From right to left, each label left of its line and of the label after it.
            let right = (x + 3).min(free_from - 8);
            let width = mark.label.len() as i32 * 6;
            if x - right < 90 {
                let at = (right, self.top - 11);
                self.canvas
                    .text(at, mark.label, 11, palette::MARK, Align::Right)?;
                free_from = right - width;
            }
        }
        Ok(())
    }
}

/// An upright cross of two strokes.
pub(crate) fn cross(
    canvas: &Canvas<'_>,
    (x, y): Pixel,
    size: i32,
    swatch: Swatch,
) -> Result<(), PlotError> {
    canvas.path(vec![(x - size, y - size), (x + size, y + size)], swatch, 2)?;
    canvas.path(vec![(x - size, y + size), (x + size, y - size)], swatch, 2)
}

/// A triangle that points up.
pub(crate) fn triangle(
    canvas: &Canvas<'_>,
    (x, y): Pixel,
    size: i32,
    swatch: Swatch,
    opacity: f64,
) -> Result<(), PlotError> {
    let corners = vec![(x, y - size), (x + size, y + size), (x - size, y + size)];
    canvas.polygon(corners, swatch, opacity)
}

/// A rectangle filled with slanted lines.
pub(crate) fn hatch(
    canvas: &Canvas<'_>,
    from: Pixel,
    to: Pixel,
    swatch: Swatch,
) -> Result<(), PlotError> {
    let height = to.1 - from.1;
    canvas.rectangle(from, to, swatch, 0.14)?;
    let mut start = from.0 - height;
    while start < to.0 {
        // Each line climbs one pixel per pixel, cut off at both ends of the rectangle.
        let left = start.max(from.0);
        let right = (start + height).min(to.0);
        if right > left {
            let line = vec![
                (left, to.1 - (left - start)),
                (right, to.1 - (right - start)),
            ];
            canvas.path(line, swatch, 1)?;
        }
        start += 7;
    }
    Ok(())
}

/// Round numbers between `low` and `high`, about `count` of them.
pub(crate) fn ticks(low: f64, high: f64, count: u32) -> Vec<f64> {
    let span = (high - low).max(1e-9);
    let rough = span / f64::from(count.max(1));
    let power = 10f64.powf(rough.log10().floor());
    let factors = [1.0, 2.0, 5.0, 10.0].into_iter();
    let step = factors
        .map(|factor| factor * power)
        .find(|step| *step >= rough * 0.999)
        .unwrap_or(power * 10.0);
    let first = (low / step).ceil() as i64;
    let last = (high / step + 1e-9).floor() as i64;
    (first..=last).map(|number| number as f64 * step).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ticks_are_round_and_inside() {
        assert_eq!(
            ticks(0.0, 30.0, 10),
            [0.0, 5.0, 10.0, 15.0, 20.0, 25.0, 30.0]
        );
        assert_eq!(ticks(-300.0, 450.0, 4), [-200.0, 0.0, 200.0, 400.0]);
        assert!(ticks(0.0, 0.0, 5).len() <= 6);
    }

    #[test]
    fn a_kind_of_fault_without_colour_gets_a_lane_for_the_others() {
        let fault = |kind: &str| FaultSpan {
            id: 1,
            kind: kind.into(),
            from_s: 0.0,
            to_s: 1.0,
            applied: true,
        };
        let backdrop = Backdrop {
            end_s: 1.0,
            faults: vec![fault("solar-flare"), fault("pause"), fault("partition")],
            marks: vec![],
            standstills: vec![],
        };
        assert_eq!(lanes(&backdrop), ["partition", "pause", "other"]);
    }
}
