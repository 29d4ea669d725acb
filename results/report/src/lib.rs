//! Owns what people see of stored runs: plots, reports, the index of runs, the web server.
//! Never changes a verdict and never runs anything: all it knows comes out of run folders.

mod archive;
mod assets;
mod campaign_page;
mod commands;
mod content_policy;
mod context;
mod coverage;
mod cuts;
mod error;
mod evidence;
mod faults;
mod host;
mod index_page;
mod interactive;
mod junit;
mod lanes;
mod linked;
mod markdown;
mod messages;
mod names;
mod operations;
mod orders;
mod plots;
mod reading;
mod run_page;
mod serve;
mod text;
mod timeline;
mod values;

pub use campaign_page::render_campaign;
pub use context::{at_that_time, violated_at_ns};
pub use error::{ReportError, Result};
pub use faults::told as told_fault;
pub use host::Names;
pub use index_page::render_index;
pub use markdown::{RunSummary, campaign_markdown, run_markdown};
pub use run_page::render_run;
pub use serve::serve;
