//! Owns the data behind the parts of a run's page that are drawn by script.
//! Never draws: what cannot be shown without a script is also in the plots and tables.

mod diagram;
mod moments;
mod operations;
mod packed;

pub(crate) use diagram::{Diagram, diagram};
pub(crate) use moments::{Moment, moments};
pub(crate) use operations::timeline;
