//! Owns the comparison of verdicts with those that others gave on histories they recorded.
//! Never carries those histories: they are read from a folder that the environment names.

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use checkers::histories::{FailedCas, Model, Options, judge, read};
use results::verdict::Validity;

/// Names the folder with `expected.tsv` and the files it lists.
const CORPUS_VARIABLE: &str = "KRAFT_HARNESS_CORPUS";

/// How long one file may take.
const BUDGET: Duration = Duration::from_secs(5);

/// Files with what they are judged by, and whether they are linearizable. What no model here fits is
/// left out.
fn expectations(folder: &Path) -> Vec<(PathBuf, Options, bool)> {
    let table = std::fs::read_to_string(folder.join("expected.tsv"))
        .expect("the folder holds expected.tsv");
    table
        .lines()
        .filter_map(|line| {
            let (file, verdict) = line.split_once('\t')?;
            let (model, failed_cas) = match file.rsplit_once('/')?.0 {
                "etcd-jepsen" => (Model::CasRegister, FailedCas::Observed),
                "knossos/cas-register" => (Model::CasRegister, FailedCas::Ignored),
                "kv" => (Model::KeyValue, FailedCas::Ignored),
                _ => return None,
            };
            let options = Options {
                failed_cas,
                time_limit: BUDGET,
                ..Options::new(model)
            };
            Some((folder.join(file), options, verdict.trim() == "true"))
        })
        .collect()
}

#[test]
fn verdicts_agree_with_those_of_others() {
    let Some(folder) = std::env::var_os(CORPUS_VARIABLE) else {
        println!("skipped: {CORPUS_VARIABLE} does not name a folder with histories");
        return;
    };
    let expectations = expectations(Path::new(&folder));
    assert!(expectations.len() > 100, "few histories in {folder:?}");
    let mut wrong = Vec::new();
    let mut times = Vec::new();
    let mut unproved = Vec::new();
    for (path, options, expected) in &expectations {
        let bytes = std::fs::read(path).unwrap();
        let history = read(&bytes, None, false).unwrap();
        let started = Instant::now();
        let report = judge(history, options).unwrap();
        times.push((started.elapsed(), path.file_name().unwrap_or_default()));
        let expected = if *expected {
            Validity::Valid
        } else {
            Validity::Invalid
        };
        // Without any success there is nothing to agree about.
        if report.valid != expected && !report.summary.starts_with("no operation succeeded") {
            wrong.push(format!("{path:?}: expected {expected:?}, found {report:?}"));
        }
        if report.valid == Validity::Invalid
            && report.evidence["violations"][0]["every_order_tried"] != true
        {
            unproved.push(path);
        }
    }
    times.sort();
    let total: Duration = times.iter().map(|(time, _)| *time).sum();
    println!(
        "{} histories with explanations in {total:?}, slowest {:?}",
        times.len(),
        &times[times.len().saturating_sub(5)..]
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
    assert!(unproved.is_empty(), "without a proof: {unproved:?}");
}
