//! Owns the plot of the nodes' lives: one row per node with its states, epochs and elections.
//! Never says which of two stories is true when nodes disagree.

use crate::timeline::NodeState;

use super::canvas::{self, Align, Canvas, PlotError};
use super::frame::{Backdrop, Frame, LegendEntry, Symbol, WIDTH, hatch, height_for};
use super::palette;

const ROW_HEIGHT: i32 = 40;
const BAR_HEIGHT: i32 = 16;

/// A stretch of time in one state.
#[derive(Debug, Clone, Copy)]
pub(crate) struct StateSpan {
    /// Seconds since the run started.
    pub(crate) from_s: f64,
    /// Seconds since the run started.
    pub(crate) to_s: f64,
    /// The state.
    pub(crate) state: NodeState,
}

/// The row of one node.
#[derive(Debug, Clone)]
pub(crate) struct NodeLane {
    /// Name of the node.
    pub(crate) node: String,
    /// Its states in order.
    pub(crate) spans: Vec<StateSpan>,
    /// Moments in seconds at which its epoch changed, with the new epoch.
    pub(crate) epochs: Vec<(f64, i32)>,
    /// Moments in seconds at which it was elected.
    pub(crate) elected_s: Vec<f64>,
}

/// Draws the plot.
pub(crate) fn epochs(backdrop: &Backdrop, lanes: &[NodeLane]) -> Result<String, PlotError> {
    let data_height = ROW_HEIGHT * lanes.len().max(1) as i32;
    let size = (WIDTH, height_for(backdrop, data_height));
    canvas::draw(size, "States and epochs of the nodes over time", |canvas| {
        let title = "Nodes: state over time, with the epoch where it changes";
        let frame = Frame::draw(canvas, backdrop, title, &legend(lanes), data_height)?;
        for (row, lane) in lanes.iter().enumerate() {
            let bar_top = frame.top + ROW_HEIGHT * row as i32 + 20;
            draw_lane(canvas, &frame, lane, bar_top)?;
        }
        frame.phase_marks()
    })
}

fn legend(lanes: &[NodeLane]) -> Vec<LegendEntry> {
    let occurs = |state: NodeState| {
        let mut spans = lanes.iter().flat_map(|lane| &lane.spans);
        spans.any(|span| span.state == state)
    };
    let states = NodeState::ALL.into_iter().filter(|state| occurs(*state));
    let mut entries: Vec<LegendEntry> = states
        .map(|state| {
            let symbol = match state {
                NodeState::Down => Symbol::Hatch,
                _ => Symbol::Box,
            };
            (symbol, palette::state(state), state.word().to_owned())
        })
        .collect();
    if lanes.iter().any(|lane| !lane.elected_s.is_empty()) {
        entries.push((Symbol::Triangle, palette::EPOCH, "elected".into()));
    }
    entries
}

fn draw_lane(
    canvas: &Canvas<'_>,
    frame: &Frame<'_, '_>,
    lane: &NodeLane,
    bar_top: i32,
) -> Result<(), PlotError> {
    let (left, _) = frame.columns();
    let bar_bottom = bar_top + BAR_HEIGHT;
    let name_at = (left - 8, (bar_top + bar_bottom) / 2);
    let name = crate::text::shortened(&lane.node, 9);
    canvas.text(name_at, &name, 13, palette::INK, Align::Right)?;

    // Elections last milliseconds: what is narrower than a pixel is drawn last and two pixels wide,
    // but only once per pixel, so that a flapping node does not blow up the document.
    let mut narrow = Vec::new();
    for span in &lane.spans {
        let (from, to) = (frame.x(span.from_s), frame.x(span.to_s));
        if to - from < 2 {
            narrow.push((from, span.state));
        } else if span.state == NodeState::Down {
            let swatch = palette::state(span.state);
            hatch(canvas, (from, bar_top), (to, bar_bottom), swatch)?;
        } else {
            let swatch = palette::state(span.state);
            canvas.rectangle((from, bar_top), (to, bar_bottom), swatch, 1.0)?;
        }
    }
    narrow.dedup();
    for (from, state) in narrow {
        let to = (from + 2, bar_bottom);
        canvas.rectangle((from, bar_top), to, palette::state(state), 1.0)?;
    }
    draw_marks(canvas, frame, lane, bar_top)
}

fn draw_marks(
    canvas: &Canvas<'_>,
    frame: &Frame<'_, '_>,
    lane: &NodeLane,
    bar_top: i32,
) -> Result<(), PlotError> {
    let mut last_mark = i32::MIN;
    for elected_s in &lane.elected_s {
        let x = frame.x(*elected_s);
        if x > last_mark {
            let corners = vec![(x - 4, bar_top - 6), (x + 4, bar_top - 6), (x, bar_top)];
            canvas.polygon(corners, palette::EPOCH, 1.0)?;
            last_mark = x;
        }
    }
    // Where labels would overlap, only the last epoch of the crowd is written.
    let mut places: Vec<(i32, i32)> = Vec::new();
    for (at_s, epoch) in &lane.epochs {
        let x = frame.x(*at_s) + 6;
        match places.last_mut() {
            Some((last_x, last_epoch)) if x < *last_x + 6 + label_width(*last_epoch) => {
                *last_epoch = *epoch;
            }
            _ => places.push((x, *epoch)),
        }
    }
    for (x, epoch) in places {
        let at = (x, bar_top - 7);
        canvas.text(at, &epoch.to_string(), 11, palette::EPOCH, Align::Left)?;
    }
    Ok(())
}

fn label_width(epoch: i32) -> i32 {
    epoch.to_string().len() as i32 * 7
}
