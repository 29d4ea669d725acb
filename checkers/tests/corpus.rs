//! Owns the comparison of the search with verdicts that others gave on histories they recorded.
//! Never carries those histories: they are read from a folder that the environment names.

use std::collections::BTreeMap;
use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use checkers::linearizability::{Action, Limits, Operation, Outcome, search};

/// Names the folder with `expected.tsv`, `etcd-jepsen/*.log` and `knossos/cas-register/*.edn`.
const CORPUS_VARIABLE: &str = "KRAFT_HARNESS_CORPUS";

/// How long one file may take.
const BUDGET: Duration = Duration::from_secs(5);

/// One line of either format: process, type, function, value.
type Line = (i64, String, String, Vec<String>);

/// Builds operations from lines; `claims` says whether a failed compare-and-set is a claim.
fn operations(lines: &[Line], claims: bool) -> Vec<Operation> {
    let mut numbers: BTreeMap<String, u32> = BTreeMap::from([("nil".into(), 0)]);
    let mut number = |value: &str| {
        let next = numbers.len() as u32;
        *numbers.entry(value.to_owned()).or_insert(next)
    };
    let mut open: BTreeMap<i64, usize> = BTreeMap::new();
    let mut operations: Vec<Operation> = Vec::new();
    let mut dropped: Vec<usize> = Vec::new();
    for (position, (process, kind, function, value)) in lines.iter().enumerate() {
        let position = position as u64;
        let mut action = |value: &[String]| match (function.as_str(), value) {
            ("read", [seen]) => Action::Read(number(seen)),
            ("write", [new]) => Action::Write(number(new)),
            ("cas", [expected, new]) => Action::CompareAndSet {
                expected: number(expected),
                new: number(new),
            },
            other => panic!("unexpected operation {other:?}"),
        };
        if kind == "invoke" {
            assert_eq!(open.insert(*process, operations.len()), None);
            operations.push(Operation {
                action: action(value),
                invoked: position,
                completed: None,
            });
            continue;
        }
        let invoked = open
            .remove(process)
            .expect("a completion of an open operation");
        let operation = &mut operations[invoked];
        match (kind.as_str(), operation.action) {
            ("ok", _) => {
                operation.action = action(value);
                operation.completed = Some(position);
            }
            ("fail", Action::CompareAndSet { expected, .. }) if claims => {
                operation.action = Action::Differs(expected);
                operation.completed = Some(position);
            }
            ("fail", _) => dropped.push(invoked),
            ("info", _) => {}
            other => panic!("unexpected completion {other:?}"),
        }
    }
    let mut place = 0;
    operations.retain(|_| {
        place += 1;
        !dropped.contains(&(place - 1))
    });
    operations
}

/// `INFO jepsen.util - 3 :ok :cas [1 2]`.
fn text_log(text: &str) -> Vec<Line> {
    text.lines()
        .filter_map(|line| {
            let (_, line) = line.split_once("jepsen.util - ")?;
            // Columns are parted by tabs, or by as many spaces as a tab is wide.
            let mut parts = line.split_whitespace();
            let process = parts.next()?.parse().ok()?;
            let kind = parts.next()?.trim_start_matches(':').to_owned();
            let function = parts.next()?.trim_start_matches(':').to_owned();
            let value = parts.collect::<Vec<_>>().join(" ");
            Some((process, kind, function, words(&value)))
        })
        .collect()
}

fn words(value: &str) -> Vec<String> {
    value
        .trim_matches(['[', ']'])
        .split([' ', ','])
        .filter(|word| !word.is_empty())
        .map(str::to_owned)
        .collect()
}

/// Maps of scalar and vector values, in whatever stands around them; other keys are skipped.
fn edn(text: &str) -> Vec<Line> {
    let mut plain = String::new();
    for line in text.lines() {
        let is_comment = |at: &usize| line[..*at].matches('"').count() % 2 == 0;
        let end = line.match_indices(';').map(|(at, _)| at).find(is_comment);
        plain.push_str(&line[..end.unwrap_or(line.len())]);
        plain.push(' ');
    }
    let mut lines = Vec::new();
    for map in plain.split('{').skip(1) {
        let map = map.split('}').next().unwrap_or("");
        let field = |name: &str| -> Option<String> {
            let rest = map
                .split_once(&format!(":{name} "))
                .map(|(_, rest)| rest.trim_start())?;
            let end = if rest.starts_with('[') {
                rest.find(']')? + 1
            } else {
                rest.find([',', ' ']).unwrap_or(rest.len())
            };
            Some(rest[..end].to_owned())
        };
        if field("type").is_none() {
            continue; // A map inside an operation: details of an error.
        }
        let (Some(process), Some(kind), Some(function), Some(value)) =
            (field("process"), field("type"), field("f"), field("value"))
        else {
            panic!("a map without the fields of an operation: {map}");
        };
        let Ok(process) = process.parse() else {
            continue; // The nemesis.
        };
        let bare = |word: String| word.trim_start_matches(':').to_owned();
        lines.push((process, bare(kind), bare(function), words(&value)));
    }
    lines
}

fn expectations(folder: &Path) -> Vec<(PathBuf, bool, bool)> {
    let table = std::fs::read_to_string(folder.join("expected.tsv"))
        .expect("the folder holds expected.tsv");
    table
        .lines()
        .filter_map(|line| {
            let (file, verdict) = line.split_once('\t')?;
            let claims = file.starts_with("etcd-jepsen/");
            let known = claims || file.starts_with("knossos/cas-register/");
            known.then(|| (folder.join(file), claims, verdict.trim() == "true"))
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
    assert!(!expectations.is_empty(), "no history in {folder:?}");
    let mut wrong = Vec::new();
    let mut times = Vec::new();
    for (path, claims, expected) in &expectations {
        let text = std::fs::read_to_string(path).unwrap();
        let lines = if *claims { text_log(&text) } else { edn(&text) };
        let operations = operations(&lines, *claims);
        assert_eq!(!lines.is_empty(), text.contains(":invoke"), "{path:?}");
        let started = Instant::now();
        let limits = Limits {
            deadline: Some(started + BUDGET),
            ..Limits::default()
        };
        let outcome = search(0, &operations, &limits);
        times.push((started.elapsed(), path.file_name().unwrap_or_default()));
        let agrees = match outcome {
            Outcome::Linearizable { .. } => *expected,
            Outcome::NotLinearizable { .. } => !*expected,
            Outcome::Unknown { .. } => false,
        };
        if !agrees {
            wrong.push(format!("{path:?}: expected {expected}, found {outcome:?}"));
        }
    }
    times.sort();
    let total: Duration = times.iter().map(|(time, _)| *time).sum();
    println!(
        "{} histories in {total:?}, slowest {:?}",
        times.len(),
        &times[times.len().saturating_sub(5)..]
    );
    assert!(wrong.is_empty(), "{wrong:#?}");
}
