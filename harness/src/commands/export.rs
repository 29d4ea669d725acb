//! Owns `harness export`: a stored run for other tools.
//! Never changes the run, and never replaces a file.

use std::fs::File;
use std::io::{BufWriter, ErrorKind, Write};

use anyhow::Context;
use results::housekeeping::may_be_going_on;
use results::store::Store;

use crate::cli::ExportArgs;
use crate::exit::Failure;
use crate::export;
use crate::progress::Progress;

/// Executes `harness export`.
///
/// # Errors
/// When there is no such run, its folder is damaged, or the output exists or cannot be written.
pub fn export(args: &ExportArgs) -> Result<u8, Failure> {
    let folder = Store::new(&args.store.out).find(&args.run)?;
    let is_over = folder.verdict().is_ok_and(|verdict| verdict.is_some());
    if !is_over && may_be_going_on(&folder, &folder.manifest()?) {
        Progress::new(false)
            .note("note: the run is still going on; what is recorded so far is exported");
    }
    let recording = folder.recording()?;
    let Some(path) = &args.output else {
        let mut stdout = BufWriter::new(std::io::stdout().lock());
        let written = export::write(&recording, args.format, &mut stdout);
        return match written.and_then(|()| stdout.flush()) {
            // A reader that has seen enough (`| head`) is no failure.
            Err(error) if error.kind() == ErrorKind::BrokenPipe => Ok(0),
            other => Ok(other.context("cannot print").map(|()| 0)?),
        };
    };
    let file = File::create_new(path).map_err(|error| match error.kind() {
        ErrorKind::AlreadyExists => Failure::arguments(format!(
            "--output {}: there is such a file already; name another",
            path.display()
        )),
        _ => Failure::arguments(format!("--output {}: {error}", path.display())),
    })?;
    let mut file = BufWriter::new(file);
    let written = export::write(&recording, args.format, &mut file);
    written
        .and_then(|()| file.flush())
        .with_context(|| format!("cannot write {}", path.display()))?;
    Ok(0)
}
