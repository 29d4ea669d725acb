//! Owns the ways in which rendering or serving fails, worded for the person who reads them.
//! Never stands for damage in a recording: that is shown inside the report instead.

use std::path::PathBuf;

/// Why a report could not be written or served.
#[derive(Debug, thiserror::Error)]
pub enum ReportError {
    /// The folder to render is not there.
    #[error("no run folder at {}: give the folder that holds manifest.json", .0.display())]
    NoFolder(PathBuf),
    /// The run store could not be read, or a rendered file could not be written.
    #[error(transparent)]
    Store(#[from] results::Error),
    /// A page could not be put together.
    #[error("cannot render {page}: {source}")]
    Template {
        /// Which page.
        page: &'static str,
        /// The template engine's own reason.
        source: askama::Error,
    },
    /// The web server could not start or go on.
    #[error("cannot serve the runs in {}: {source}", store.display())]
    Serve {
        /// The store that was to be served.
        store: PathBuf,
        /// The system's own reason.
        source: std::io::Error,
    },
}

/// Shorthand for results of this crate.
pub type Result<T> = std::result::Result<T, ReportError>;

impl ReportError {
    pub(crate) fn template(page: &'static str) -> impl FnOnce(askama::Error) -> Self {
        move |source| Self::Template { page, source }
    }
}
