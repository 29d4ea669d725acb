//! Owns the benchmark of the checkers of histories: what each decision takes, next to what it should.
//! Never measures reading a file together with deciding, unless it says so.
#![allow(clippy::print_stdout, clippy::print_stderr)] // A program for people.

mod generate;
mod table;
mod transactions;

use std::path::{Path, PathBuf};
use std::time::{Duration, Instant};

use checkers::histories::{FailedCas, Keys, Model, Options, judge, read};
use checkers::linearizability::models::register::Register;
use checkers::linearizability::{Action, Limits, Object as _, Outcome, Timeline};
use generate::{Clients, corrupted, json_lines, key_value_log, register, with_stale_read};
use table::{Table, Took};

/// Names the folder with histories recorded by others.
const CORPUS_VARIABLE: &str = "KRAFT_HARNESS_CORPUS";

/// When a decision counts as not found.
const GIVE_UP: Duration = Duration::from_secs(10);

/// The shortest of many repetitions.
fn fastest<T>(mut measured: impl FnMut() -> T) -> Took {
    let begun = Instant::now();
    let mut shortest = Took {
        wall: Duration::MAX,
        processors: Duration::MAX,
    };
    let mut count = 0;
    while count < 3 || (count < 300 && begun.elapsed() < Duration::from_millis(700)) {
        let took = once(&mut measured);
        shortest.wall = shortest.wall.min(took.wall);
        shortest.processors = shortest.processors.min(took.processors);
        count += 1;
    }
    shortest
}

fn once<T>(mut measured: impl FnMut() -> T) -> Took {
    let processors = Took::processors_so_far();
    let started = Instant::now();
    let result = std::hint::black_box(measured());
    let wall = started.elapsed();
    let processors = Took::processors_so_far().saturating_sub(processors);
    // Giving back what was found is not part of finding it.
    drop(result);
    Took { wall, processors }
}

fn decided(timeline: &Timeline<Action>, initial: u32) -> Outcome {
    let limits = Limits {
        deadline: Instant::now().checked_add(GIVE_UP),
        ..Limits::default()
    };
    Register { initial }.decide(timeline, &limits)
}

fn expect(timeline: &Timeline<Action>, is_good: bool) -> bool {
    let outcome = decided(timeline, 0);
    match outcome {
        Outcome::Linearizable { .. } => is_good,
        Outcome::NotLinearizable { .. } => !is_good,
        Outcome::Unknown { .. } => false,
    }
}

/// A row about one register; the history is made only if it is wanted.
fn row(
    table: &mut Table,
    name: &str,
    target_ms: f64,
    is_good: bool,
    timeline: impl Fn() -> Timeline<Action>,
) {
    let Some(name) = table.wants(name) else {
        return;
    };
    let timeline = timeline();
    let mut agrees = true;
    let time = fastest(|| agrees &= expect(&timeline, is_good));
    let note = if agrees { "" } else { "WRONG OR UNDECIDED" };
    table.add(&name, time, target_ms, note);
}

fn large_registers(table: &mut Table) {
    let five = Clients {
        count: 5,
        operations: 100_000,
        values: Some(5),
        crash_per_mille: 0,
        compares: true,
    };
    let million = Clients {
        operations: 1_000_000,
        ..five
    };
    let unique = Clients {
        values: None,
        compares: false,
        ..million
    };
    let name = "one register, 100,000 ops, 5 clients";
    row(table, name, 30.0, true, || register(1, five));
    let name = "one register, 1,000,000 ops";
    row(table, name, 250.0, true, || register(2, million));
    let name = "one register, 1,000,000 ops, bad reads after 90 %";
    row(table, name, 5000.0, false, || {
        let history = register(2, million);
        bad(&history, 8, history.len() * 9 / 10)
    });
    let name = "one register, 1,000,000 ops, unique writes";
    row(table, name, 100.0, true, || register(4, unique));
}

fn hard_registers(table: &mut Table) {
    let fifty = Clients {
        count: 50,
        operations: 1000,
        values: Some(5),
        crash_per_mille: 0,
        compares: true,
    };
    let twenty = Clients { count: 20, ..fifty };
    let crashing = Clients {
        count: 10,
        values: None,
        crash_per_mille: 50,
        compares: false,
        ..fifty
    };
    let name = "1,000 ops, 50 clients, valid";
    row(table, name, 10.0, true, || register(5, fifty));
    let name = "1,000 ops, 20 clients, 8 bad reads";
    row(table, name, 10.0, false, || bad(&register(6, twenty), 8, 0));
    let name = "1,000 ops, crashed unique writes, stale read";
    row(table, name, 10.0, false, || {
        with_stale_read(&register(8, crashing))
    });
    let crashed = Clients {
        count: 5,
        operations: 10_000,
        crash_per_mille: 9,
        ..fifty
    };
    let history = register(9, crashed);
    let unknown = history.len() - history.completed_count();
    let name = format!("10,000 ops, {unknown} crashed cas/writes, valid");
    row(table, &name, 50.0, true, || history.clone());
    for (from, count) in [(0, 64), (50, 64), (90, 8)] {
        let name = format!("10,000 ops, {unknown} crashed, {count} bad reads from {from} % on");
        let from = history.len() * from / 100;
        row(table, &name, 5000.0, false, || bad(&history, count, from));
    }
}

/// The history with some reads changed so that it is not linearizable: among few values, a changed read
/// often is none the worse.
fn bad(history: &Timeline<Action>, count: usize, from: usize) -> Timeline<Action> {
    (0..)
        .map(|seed| corrupted(history, seed, count, from, 5))
        .find(|bad| !matches!(decided(bad, 0), Outcome::Linearizable { .. }))
        .expect("one of many")
}

fn keys_of(text: &[u8], options: &Options) -> Keys {
    let history = read(text, None, false).expect("a history");
    Keys::new(history, options).expect("operations of the model")
}

/// What deciding all keys takes, and deciding until the first violation.
fn key_value(table: &mut Table, name: &str, text: &[u8], targets_ms: [Option<f64>; 3]) {
    let Some(name) = table.wants(name) else {
        return;
    };
    let options = Options::new(Model::KeyValue);
    let keys = keys_of(text, &options);
    let [all, first, explained] = targets_ms;
    if let Some(target) = all {
        let time = fastest(|| keys.decide(&options, false));
        table.add(&format!("{name}, all keys"), time, target, "");
    }
    if let Some(target) = first {
        let time = fastest(|| keys.decide(&options, true));
        table.add(&format!("{name}, first bad key"), time, target, "");
    }
    if let Some(target) = explained {
        let mut report = None;
        let time = fastest(|| report = Some(keys.judge(&options)));
        let note = report.map(|report| report.summary).unwrap_or_default();
        let note: String = note.chars().take(60).collect();
        table.add(
            &format!("{name}, all keys with explanations"),
            time,
            target,
            &note,
        );
    }
}

fn corpus(table: &mut Table, folder: &Path) {
    let Ok(expected) = std::fs::read_to_string(folder.join("expected.tsv")) else {
        eprintln!("no expected.tsv in {}", folder.display());
        return;
    };
    let mut files: Vec<PathBuf> = Vec::new();
    for line in expected.lines() {
        if let Some((file, _)) = line.split_once('\t')
            && file.starts_with("etcd-jepsen/")
        {
            files.push(folder.join(file));
        }
    }
    let mut options = Options::new(Model::CasRegister);
    options.failed_cas = FailedCas::Observed;
    if let Some(name) = table.wants("etcd") {
        let mut times: Vec<(Took, String)> = files
            .iter()
            .map(|path| {
                let text = std::fs::read(path).expect("a file of the corpus");
                let keys = keys_of(&text, &options);
                let time = fastest(|| keys.decide(&options, false));
                let name = path.file_name().unwrap_or_default().to_string_lossy();
                (time, name.into_owned())
            })
            .collect();
        times.sort_unstable_by_key(|(took, _)| took.wall);
        let sum = Took {
            wall: times.iter().map(|(took, _)| took.wall).sum(),
            processors: times.iter().map(|(took, _)| took.processors).sum(),
        };
        let (slowest, file) = times.last().cloned().unwrap_or_default();
        let note = format!("slowest {file} {:.3} ms", slowest.wall.as_secs_f64() * 1e3);
        let target = 3.0 * files.len() as f64 / 102.0;
        let title = format!("{name}: sum of {} histories", files.len());
        table.add(&title, sum, target, &note);
    }
    for (file, targets) in [
        ("c10-ok", [Some(0.04), None, None]),
        ("c10-bad", [None, Some(0.015), None]),
        ("c50-ok", [Some(2.0), None, None]),
        ("c50-bad", [None, None, Some(10.0)]),
    ] {
        if let Ok(text) = std::fs::read(folder.join("kv").join(format!("{file}.txt"))) {
            key_value(table, &format!("key-value {file}"), &text, targets);
        }
    }
}

/// From bytes to verdict.
fn from_bytes(table: &mut Table) {
    let Some(name) = table.wants("1,000,000 ops over 1,000 keys, from bytes to verdict") else {
        return;
    };
    let text = json_lines(12, 1_000_000, 1000);
    let mut reading = Duration::ZERO;
    let mut valid = "";
    let time = once(|| {
        let started = Instant::now();
        let history = read(&text, None, false).expect("a history");
        reading = started.elapsed();
        let report = judge(history, &Options::new(Model::Register)).expect("registers");
        valid = report.valid.word();
    });
    let per_second = 1e6 / reading.as_secs_f64();
    let note = format!(
        "{valid}; {} MB, read at {:.1} M operations/s",
        text.len() / 1_000_000,
        per_second / 1e6
    );
    table.add(&name, time, 2000.0, &note);
    table.add_rate("reading our JSONL", per_second, 500_000.0);
    for (name, text) in [
        ("reading EDN", edn(&text)),
        ("reading old text logs", text_log(&text)),
    ] {
        let started = Instant::now();
        let history = read(&text, None, false).expect("a history");
        assert_eq!(history.records.len(), 2_000_000);
        table.add_rate(name, 1e6 / started.elapsed().as_secs_f64(), 500_000.0);
    }
}

/// The same history in EDN.
fn edn(json: &[u8]) -> Vec<u8> {
    let history = read(json, None, false).expect("a history");
    let mut text = String::new();
    for (index, record) in history.records.iter().enumerate() {
        use std::fmt::Write as _;
        let _ = writeln!(
            text,
            "{{:index {index}, :time {}, :type :{}, :process {}, :f :{}, :key {}, :value {}}}",
            record.time_ns.unwrap_or_default(),
            format!("{:?}", record.operation_type).to_lowercase(),
            record.process,
            history.functions[usize::from(record.function)],
            history.values.show(record.key),
            record.argument.show(&history.values),
        );
    }
    text.into_bytes()
}

/// The same history, without keys, as an old text log.
fn text_log(json: &[u8]) -> Vec<u8> {
    let history = read(json, None, false).expect("a history");
    let mut text = String::new();
    for record in &history.records {
        use std::fmt::Write as _;
        let _ = writeln!(
            text,
            "INFO  jepsen.util - {}\t:{}\t:{}\t{}",
            record.process,
            format!("{:?}", record.operation_type).to_lowercase(),
            history.functions[usize::from(record.function)],
            record.argument.show(&history.values),
        );
    }
    text.into_bytes()
}

fn main() {
    let words: Vec<String> = std::env::args()
        .skip(1)
        .filter(|word| !word.starts_with("--"))
        .collect();
    let mut table = Table::new(words);
    match std::env::var_os(CORPUS_VARIABLE) {
        Some(folder) => corpus(&mut table, Path::new(&folder)),
        None => println!("{CORPUS_VARIABLE} names no folder: histories of others are left out"),
    }
    let log = key_value_log(14, 50, 2000, 10, 60);
    let targets = [None, None, Some(10.0)];
    key_value(
        &mut table,
        "key-value made, 50 clients, bad",
        log.as_bytes(),
        targets,
    );
    large_registers(&mut table);
    hard_registers(&mut table);
    from_bytes(&mut table);
    transactions::rows(&mut table);
    table.end();
}
