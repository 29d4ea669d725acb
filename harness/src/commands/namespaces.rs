//! Owns the question whether this machine can do `--network namespace`, and the process that finds out.
//! Never changes anything for the process that asks.

use std::process::Command;

use super::announce;
use crate::exit::Failure;
use crate::processes;

/// The hidden command that tries.
const COMMAND: &str = "probe-namespaces";
/// What it says when all went well: an exit code alone could be that of any program.
const WORD: &str = "network namespaces and TUN devices work";

/// Executes `harness probe-namespaces`.
///
/// # Errors
/// When something does not work, with the reason.
pub fn probe() -> Result<u8, Failure> {
    processes::try_namespaces().map_err(Failure::arguments)?;
    announce::print(WORD)?;
    Ok(0)
}

/// Whether this machine can do it; why not.
///
/// # Errors
/// The reason, for people.
pub(super) fn possible() -> Result<(), String> {
    let executable = std::env::current_exe();
    let executable = executable.map_err(|error| format!("cannot find the harness: {error}"))?;
    let output = Command::new(executable).arg(COMMAND).output();
    let output = output.map_err(|error| format!("cannot start a process to try: {error}"))?;
    let told = |bytes: &[u8]| String::from_utf8_lossy(bytes).trim().to_owned();
    if told(&output.stdout) == WORD {
        return Ok(());
    }
    let reason = told(&output.stderr);
    let reason = reason.strip_prefix("harness: ").unwrap_or(&reason);
    Err(if reason.is_empty() {
        "the process that tried did not say why it failed".to_owned()
    } else {
        reason.to_owned()
    })
}
