//! Owns `harness list`: one line per stored run.
//! Never judges, and never leaves out a run that cannot be read.

use results::store::Store;

use super::announce;
use crate::cli::StoreArgs;
use crate::exit::Failure;

/// Executes `harness list`.
///
/// # Errors
/// When the store cannot be read.
pub fn list(args: &StoreArgs) -> Result<u8, Failure> {
    let store = Store::new(&args.out);
    let (runs, damaged) = (store.list()?, store.damaged()?);
    if runs.is_empty() && damaged.is_empty() {
        announce::print(&format!(
            "no runs in {}; `harness run` makes one",
            args.out.display()
        ))?;
    }
    for (folder, manifest) in runs {
        let verdict = match folder.verdict() {
            Ok(Some(verdict)) => verdict.valid.word(),
            Ok(None) => "no verdict",
            Err(_) => "damaged",
        };
        announce::print(&format!("{verdict:<10}  {}", manifest.name.escape_debug()))?;
    }
    for name in damaged {
        announce::print(&format!("{:<10}  {}", "damaged", name.escape_debug()))?;
    }
    Ok(0)
}
