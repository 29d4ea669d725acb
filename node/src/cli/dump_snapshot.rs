//! Owns `kraft-node dump-snapshot`: what is in a snapshot file, as lines of text.
//! Never writes to the directory, not even a lock.

use std::fs;
use std::io::{self, BufWriter, Write};
use std::path::{Path, PathBuf};
use std::process::ExitCode;

use clap::Args;

use super::output::cannot_print;
use super::{EXIT_ENVIRONMENT, EXIT_STOPPED, fail};
use crate::control_record::ControlRecord;
use crate::ids::SnapshotId;
use crate::machine::{MachineLoader, SnapshotRecordError};
use crate::storage::checkpoint::{SnapshotDump, snapshot_id};

#[derive(Debug, Args)]
pub(super) struct DumpSnapshotArguments {
    /// The data directory of the node; its newest snapshot is shown.
    #[arg(long, value_name = "DIRECTORY", required_unless_present = "file")]
    data: Option<PathBuf>,
    /// A snapshot file.
    #[arg(long, value_name = "FILE", conflicts_with = "data")]
    file: Option<PathBuf>,
    /// Print the records of the state machine, too.
    #[arg(long)]
    records: bool,
}

/// Why there is nothing to show.
#[derive(Debug, thiserror::Error)]
enum DumpError {
    #[error("cannot read {}: {source}", path.display())]
    Unreadable { path: PathBuf, source: io::Error },
    #[error("{} has no snapshot: there is no file OFFSET-EPOCH.checkpoint in it", .0.display())]
    NoSnapshot(PathBuf),
    #[error("{} is not named like a snapshot: OFFSET-EPOCH.checkpoint, 20 and 10 digits", .0.display())]
    Name(PathBuf),
    #[error("cannot write to standard output: {0}")]
    Output(#[from] io::Error),
}

pub(super) fn run(arguments: &DumpSnapshotArguments) -> ExitCode {
    let mut output = BufWriter::new(io::stdout().lock());
    let outcome = choose(arguments).and_then(|(path, id)| {
        let is_sound = dump(&path, id, arguments.records, &mut output)?;
        output.flush()?;
        Ok(is_sound)
    });
    match outcome {
        Ok(true) => ExitCode::SUCCESS,
        Ok(false) => ExitCode::from(EXIT_STOPPED),
        Err(DumpError::Output(error)) => cannot_print(&error),
        Err(error) => fail(EXIT_ENVIRONMENT, &error.to_string()),
    }
}

fn choose(arguments: &DumpSnapshotArguments) -> Result<(PathBuf, SnapshotId), DumpError> {
    if let Some(path) = &arguments.file {
        let name = path.file_name().and_then(|name| name.to_str());
        let id = name.and_then(snapshot_id);
        return Ok((
            path.clone(),
            id.ok_or_else(|| DumpError::Name(path.clone()))?,
        ));
    }
    let data = arguments.data.clone().unwrap_or_default();
    let mut newest = None;
    for entry in fs::read_dir(&data).map_err(unreadable(&data))? {
        let entry = entry.map_err(unreadable(&data))?;
        if let Some(id) = entry.file_name().to_str().and_then(snapshot_id) {
            newest = newest.max(Some((id, entry.path())));
        }
    }
    let (id, path) = newest.ok_or(DumpError::NoSnapshot(data))?;
    Ok((path, id))
}

/// Whether the snapshot is whole and its records are a state.
fn dump(
    path: &Path,
    id: SnapshotId,
    with_records: bool,
    output: &mut impl Write,
) -> Result<bool, DumpError> {
    let bytes = fs::read(path).map_err(unreadable(path))?;
    let name = path.file_name().unwrap_or_default().to_string_lossy();
    writeln!(output, "{name}: {} bytes", bytes.len())?;
    writeln!(
        output,
        "everything below offset {}, the last record of epoch {}",
        id.end_offset, id.epoch
    )?;
    let mut loader = MachineLoader::default();
    let mut fault: Option<SnapshotRecordError> = None;
    let mut batches = SnapshotDump::new(&bytes, id);
    for item in &mut batches {
        let batch = match item {
            Ok(batch) => batch,
            Err(damage) => {
                writeln!(output, "DAMAGE: {damage}")?;
                return Ok(false);
            }
        };
        writeln!(
            output,
            "baseOffset: {} lastOffset: {} count: {} isControl: {} crc: {:08x}",
            batch.base_offset(),
            batch.last_offset(),
            batch.end_offset().0 - batch.base_offset().0,
            batch.is_control(),
            batch.crc()
        )?;
        for (offset, record) in batch.records() {
            if batch.is_control() {
                let text = ControlRecord::decode(record)
                    .map(|_| String::from_utf8_lossy(record).into_owned());
                writeln!(output, "| offset: {offset} {}", text.unwrap_or_default())?;
                continue;
            }
            if with_records {
                writeln!(output, "| offset: {offset} {}", record.escape_ascii())?;
            }
            if fault.is_none() {
                fault = loader.push(record).err();
            }
        }
    }
    if id == SnapshotId::BOOTSTRAP {
        writeln!(output, "initial voters only; no state")?;
        return Ok(true);
    }
    match fault.map_or_else(|| loader.finish(), Err) {
        Ok(machine) => {
            writeln!(output, "state hash: {:016x}", machine.digest())?;
            Ok(true)
        }
        Err(fault) => {
            writeln!(output, "DAMAGE: the records are not a state: {fault}")?;
            Ok(false)
        }
    }
}

fn unreadable(path: &Path) -> impl FnOnce(io::Error) -> DumpError {
    let path = path.to_owned();
    |source| DumpError::Unreadable { path, source }
}
