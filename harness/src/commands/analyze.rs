//! Owns `harness analyze`: judges a stored run again, with the checkers of today.
//! Never touches a recording, but for one that a killed harness left without an end.

use results::store::Store;

use super::summary::Summary;
use super::{announce, coverage};
use crate::cli::AnalyzeArgs;
use crate::execution::{Finished, finish_abandoned, judge, pack, render};
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
    let progress = Progress::new(args.output.quiet || args.output.json);
    if finish_abandoned(&folder, &progress)? {
        progress.note("finishing what a harness left that was killed");
    }
    let manifest = folder.manifest()?;
    let verdict = judge(&folder, &required, &progress)?;
    pack(&folder, &progress);
    render(&store, &folder, &progress);
    let store = args.store.out.to_string_lossy();
    summary.run(
        (&manifest, &verdict),
        Some(&folder),
        None,
        &store,
        &progress,
    );
    let finished = Finished {
        folder,
        verdict,
        manifest,
        standstills: Vec::new(),
    };
    announce::verdict(&finished, &store, &args.output)
}
