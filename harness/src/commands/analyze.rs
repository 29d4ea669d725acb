//! Owns `harness analyze`: judges a stored run again, with the checkers of today.
//! Never touches the recording.

use results::store::Store;

use super::summary::Summary;
use super::{announce, coverage};
use crate::cli::AnalyzeArgs;
use crate::execution::{Finished, judge, render};
use crate::exit::Failure;
use crate::progress::Progress;

/// Executes `harness analyze`.
///
/// # Errors
/// When there is no such run, or its folder is damaged.
pub fn analyze(args: &AnalyzeArgs) -> Result<u8, Failure> {
    let required = coverage::required(&args.require)?;
    let mut summary = Summary::open(&args.summary)?;
    let store = Store::new(&args.store.out);
    let folder = store.find(&args.run)?;
    let manifest = folder.manifest()?;
    let progress = Progress::new(args.output.quiet || args.output.json);
    let verdict = judge(&folder, &required, &progress)?;
    render(&store, &folder, &progress);
    let store = args.store.out.to_string_lossy();
    let report = folder.report_path().display().to_string();
    summary.run(
        (&manifest, &verdict),
        Some(&report),
        None,
        &store,
        &progress,
    );
    let finished = Finished {
        folder,
        verdict,
        manifest,
    };
    announce::verdict(&finished, &store, &args.output)
}
