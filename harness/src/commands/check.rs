//! Owns `harness check`: judges a history from anywhere.
//! Never needs a run, and never demands a size: a history is judged as it is.

use std::fs::File;
use std::io::Read;
use std::path::Path;
use std::time::Duration;

use anyhow::Context;
use checkers::histories::{self, FailedCas, Format, Model, Options, ReadError, Report};
use results::seal::Sealed;
use results::store::RunFolder;
use results::verdict::Validity;
use serde_json::json;

use super::announce;
use crate::cli::CheckArgs;
use crate::exit::{self, Failure};

/// However little memory the search may use, histories may have so many bytes.
const TEXT_MIN_BYTES: u64 = 256 << 20;

/// Executes `harness check`.
///
/// # Errors
/// When the file cannot be read, is damaged, or holds operations that the model does not have.
pub fn check(args: &CheckArgs) -> Result<u8, Failure> {
    let name = args.file.display().to_string();
    let refused = |reason: &dyn std::fmt::Display| Failure::arguments(format!("{name}: {reason}"));
    let model = model_of(args)?;
    let max_bytes = args.memory_limit.max(TEXT_MIN_BYTES);
    let bytes = bytes_of(&args.file, max_bytes)?;
    let too_large = |error: &ReadError| match error {
        ReadError::TooLarge { max_bytes } if *max_bytes < histories::UNPACKED_MAX_BYTES => {
            refused(&format!("{error} with this --memory-limit"))
        }
        error => refused(error),
    };
    let bytes = histories::unpack(bytes, max_bytes).map_err(|error| too_large(&error))?;
    let format = args.format.as_deref().and_then(format_named);
    let history = histories::read(&bytes, format, args.keyed).map_err(|error| refused(&error))?;
    let change = change_since_its_run(&args.file, &bytes);
    drop(bytes);
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

/// What every key is. Nothing in a file says it, so it is asked for with all that there is to choose from.
fn model_of(args: &CheckArgs) -> Result<Model, Failure> {
    let names = Model::ALL.map(Model::name).join(", ");
    let Some(named) = &args.model else {
        return Err(Failure::arguments(format!(
            "--model is missing: what is every key of {}? One of {names}; harness check --help says what each can do",
            args.file.display()
        )));
    };
    let model = Model::ALL.into_iter().find(|model| model.name() == named);
    model.ok_or_else(|| Failure::arguments(format!("unknown model {named:?}; there are {names}")))
}

/// All of a file, or one byte more than there may be of it.
fn bytes_of(file: &Path, max_bytes: u64) -> Result<Vec<u8>, Failure> {
    let mut bytes = Vec::new();
    let mut read = |from: &mut dyn Read| from.take(max_bytes + 1).read_to_end(&mut bytes);
    if file.as_os_str() == "-" {
        read(&mut std::io::stdin().lock()).context("cannot read standard input")?;
        return Ok(bytes);
    }
    // A history of a run may have been packed since.
    let file = results::packed::present(file);
    File::open(&file)
        .and_then(|mut from| read(&mut from))
        .map_err(|error| Failure::arguments(format!("cannot read {}: {error}", file.display())))?;
    Ok(bytes)
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
