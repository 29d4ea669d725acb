//! Owns the pictures of a run: plain data in, one SVG document out.
//! Never reads a recording, so that the plotting library can be replaced behind this door.

mod canvas;
mod clocks;
mod epochs;
mod frame;
mod latency;
mod log;
mod palette;
mod rate;

pub(crate) use canvas::PlotError;
pub(crate) use clocks::{ClockSample, clocks};
pub(crate) use epochs::{NodeLane, StateSpan, epochs};
pub(crate) use frame::{Backdrop, FaultSpan, PhaseMark};
pub(crate) use latency::{LatencyPoint, latency};
pub(crate) use log::{NodeLog, log};
pub(crate) use palette::{FAULT_KINDS, Swatch, dark_rules, fault, fault_key, outcome, state};
pub(crate) use rate::rate;

/// The same picture as a file of its own: it follows the reader's light or dark setting by itself.
pub(crate) fn standalone(svg: &str) -> String {
    let Some(head_end) = svg.find('>') else {
        return svg.to_owned();
    };
    let (head, body) = svg.split_at(head_end + 1);
    let rules = dark_rules("");
    format!("{head}\n<style>@media (prefers-color-scheme:dark){{\n{rules}}}</style>{body}")
}
