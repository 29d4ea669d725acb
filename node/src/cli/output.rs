//! Owns what commands print for people and programs, and what becomes of a command that cannot print.
//! Never decides what is printed.

use std::io::{self, ErrorKind, Write};
use std::process::ExitCode;

use super::{EXIT_ENVIRONMENT, fail};

/// Prints the whole answer of a command.
pub(super) fn print(text: &str) -> ExitCode {
    let mut output = io::stdout().lock();
    let outcome = output.write_all(text.as_bytes());
    match outcome.and_then(|()| output.flush()) {
        Ok(()) => ExitCode::SUCCESS,
        Err(error) => cannot_print(&error),
    }
}

/// Prints the one line that a command ends with, after it has done something. If it cannot, the line is part of
/// the complaint: what was done stays done.
pub(super) fn say(line: &str) -> ExitCode {
    let mut output = io::stdout().lock();
    let outcome = writeln!(output, "{line}").and_then(|()| output.flush());
    match outcome {
        Err(error) if error.kind() != ErrorKind::BrokenPipe => fail(
            EXIT_ENVIRONMENT,
            &format!("cannot write to standard output ({error}): {line}"),
        ),
        _ => ExitCode::SUCCESS,
    }
}

/// How a command ends that could not print its answer.
pub(super) fn cannot_print(error: &io::Error) -> ExitCode {
    // Whoever reads has seen enough.
    if error.kind() == ErrorKind::BrokenPipe {
        return ExitCode::SUCCESS;
    }
    fail(
        EXIT_ENVIRONMENT,
        &format!("cannot write to standard output: {error}"),
    )
}
