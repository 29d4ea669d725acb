//! Owns `harness check`: judges a history from anywhere.
//! Never needs a run, and never demands a size: a history is judged as it is.

use std::io::Read as _;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use checkers::histories::{self, FailedCas, Format, Model, Options, Report};
use results::seal::Sealed;
use results::store::RunFolder;
use results::verdict::Validity;
use serde_json::json;

use super::announce;
use crate::cli::CheckArgs;
use crate::exit::{self, Failure};

/// Executes `harness check`.
///
/// # Errors
/// When the file cannot be read, is damaged, or holds operations that the model does not have.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let name = args.file.display().to_string();
    let refused = |reason: &dyn std::fmt::Display| Failure::arguments(format!("{name}: {reason}"));
    let bytes = bytes_of(&args.file)?;
    let bytes = histories::unpack(bytes).map_err(|error| refused(&error))?;
    let format = args.format.as_deref().and_then(format_named);
    let history = histories::read(&bytes, format, args.keyed).map_err(|error| refused(&error))?;
    let change = change_since_its_run(&args.file, &bytes);
    drop(bytes);
    let model = Model::ALL
        .into_iter()
        .find(|model| model.name() == args.model)
        .ok_or_else(|| Failure::arguments(format!("unknown model {:?}", args.model)))?;
    let options = Options {
        failed_cas: match args.failed_cas.as_str() {
            "observed" => FailedCas::Observed,
            _ => FailedCas::Ignored,
        },
        time_limit: Duration::from_millis(args.time_limit),
        memory_limit_bytes: args.memory_limit,
        ..Options::new(model)
    };
    let mut report = histories::judge(history, &options).map_err(|error| refused(&error))?;
    if let Some(change) = change {
        if report.valid == Validity::Valid {
            report.valid = Validity::Unknown;
            report.summary = format!("{change}; what is left of it: {}", report.summary);
        } else {
            report.notes.push(change);
        }
    }
    print(args, &name, &report)
}

fn bytes_of(file: &Path) -> Result<Vec<u8>, Failure> {
    if file.as_os_str() == "-" {
        let mut bytes = Vec::new();
        let read = std::io::stdin().lock().read_to_end(&mut bytes);
        read.context("cannot read standard input")?;
        return Ok(bytes);
    }
    // A history of a run may have been packed since.
    let file = results::packed::present(file);
    std::fs::read(&file)
        .map_err(|error| Failure::arguments(format!("cannot read {}: {error}", file.display())))
}

/// What is not as it was of a history that lies in the folder of a run.
fn change_since_its_run(file: &Path, content: &[u8]) -> Option<String> {
    let name = file.file_name()?.to_str()?;
    let name = name.strip_suffix(results::packed::ENDING).unwrap_or(name);
    let manifest = RunFolder::at(file.parent()?).manifest().ok()?;
    let sealed = manifest.seal?.get(name).copied()?;
    (sealed != Sealed::of(content)).then(|| format!("{name} is not what its run recorded"))
}

/// The format with the name that the command line allows.
fn format_named(name: &str) -> Option<Format> {
    match name {
        "jsonl" => Some(Format::JsonLines),
        "edn" => Some(Format::Edn),
        "log" => Some(Format::TextLog),
        _ => None,
    }
}

fn print(args: &CheckArgs, name: &str, report: &Report) -> Result<u8, Failure> {
    let code = exit::of_validity(report.valid);
    if args.output.json {
        let line = json!({
            "file": name,
            "valid": report.valid,
            "summary": report.summary,
            "notes": report.notes,
            "evidence": report.evidence,
            "exit_code": code,
        });
        announce::print(&line.to_string())?;
        return Ok(code);
    }
    let mut lines = vec![
        format!("verdict: {}", report.valid.word().to_uppercase()),
        format!("why:     {}", report.summary),
    ];
    lines.extend(report.notes.iter().map(|note| format!("note:    {note}")));
    if !args.output.quiet {
        for explanation in &report.explanations {
            lines.push(String::new());
            lines.push(explanation.clone());
        }
    }
    announce::print(&lines.join("\n"))?;
    Ok(code)
}
