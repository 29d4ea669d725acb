//! Owns what a run *is*: manifest, history, schedule, trace, verdict, and the folder that holds them.
//! Never runs anything, never judges, and never draws: rendering lives in the nested `report` crate.

pub mod byte_size;
pub mod campaign;
pub mod disk_image;
pub mod error;
pub mod folder;
pub mod history;
pub mod housekeeping;
pub mod json_lines;
pub mod keyed_random;
pub mod manifest;
pub mod ordered_list;
pub mod overview;
pub mod ownership;
pub mod packed;
mod ranges;
pub mod schedule;
pub mod seal;
pub mod shared_text;
pub mod standing;
pub mod standstill;
pub mod store;
pub mod trace;
pub mod trigger;
pub mod verdict;

pub use error::{Error, Result};

/// Version of every format in a run folder; stored in the manifest and in the schedule.
pub const FORMAT_VERSION: u32 = 1;

/// Version that the manifest of a run has once part of its recording is packed ([`packed`]). Everything else is
/// as in [`FORMAT_VERSION`], and runs without packed files stay readable for programs that know only that.
pub const PACKED_FORMAT_VERSION: u32 = 2;
