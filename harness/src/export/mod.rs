//! Owns the formats in which a recorded run leaves the project: what other tools read.
//! Never reads a run folder and never judges; it writes down what it is given.

mod chrome_trace;
mod csv;
mod edn;

use std::io::{self, Write};

use results::history::Operation;
use results::store::Recording;

/// A format that other tools read.
#[derive(Debug, Clone, Copy, PartialEq, Eq, clap::ValueEnum)]
pub enum Format {
    /// Jepsen's operation maps, one on a line; values of keyed operations are vectors of key and value.
    Edn,
    /// The history as it is stored, one JSON object on a line.
    Jsonl,
    /// One line for each line of the history, with a heading.
    Csv,
    /// Operations, faults and roles on a time axis, for chrome://tracing, Perfetto and speedscope.
    ChromeTrace,
}

/// Writes the run in a format.
///
/// # Errors
/// When `to` refuses what is written.
pub fn write(recording: &Recording, format: Format, to: &mut dyn Write) -> io::Result<()> {
    match format {
        Format::Edn => each(&recording.history, to, edn::line),
        Format::Jsonl => each(&recording.history, to, |operation| {
            serde_json::to_string(operation).unwrap_or_default()
        }),
        Format::Csv => {
            writeln!(to, "{}", csv::HEADING)?;
            each(&recording.history, to, csv::line)
        }
        Format::ChromeTrace => chrome_trace::write(recording, to),
    }
}

fn each(
    history: &[Operation],
    to: &mut dyn Write,
    line: impl Fn(&Operation) -> String,
) -> io::Result<()> {
    for operation in history {
        writeln!(to, "{}", line(operation))?;
    }
    Ok(())
}

#[cfg(test)]
pub(crate) fn sample(line: &str) -> Operation {
    serde_json::from_str(line).unwrap()
}
