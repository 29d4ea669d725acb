//! Owns tests of `harness check` as a person would use it.
//! Never tests what a model accepts; the checkers' own tests do.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use crate::kit::Lab;
use serde_json::Value;

const STALE: &str = r#"{"process":0,"type":"invoke","f":"write","key":"7","value":1}
{"process":0,"type":"ok","f":"write","key":"7","value":1}
{"process":0,"type":"invoke","f":"write","key":"7","value":2}
{"process":0,"type":"ok","f":"write","key":"7","value":2}
{"process":1,"type":"invoke","f":"read","key":"7"}
{"process":1,"type":"ok","f":"read","key":"7","value":1}
{"process":1,"type":"invoke","f":"read","key":"8"}
{"process":1,"type":"ok","f":"read","key":"8","value":null}
"#;

#[test]
fn a_violation_is_told_in_words_and_as_json() {
    let lab = Lab::new();
    let file = lab.write("stale.jsonl", STALE);
    let file = file.to_str().unwrap();
    let outcome = lab.harness(&["check", file, "--model", "register"]);
    assert_eq!(outcome.code, 1, "{}", outcome.stderr);
    for part in [
        "verdict: INVALID",
        "key \"7\": read 1 by process 1 on line 6 fits into no order of the operations before it",
        "shortest failing prefix: lines 1 to 6",
        "these operations contradict each other:",
        "read 1  (ok)   <- fits nowhere",
        "states possible right before line 6: 2",
        "every order of these operations was tried",
    ] {
        assert!(outcome.stdout.contains(part), "{part}\n{}", outcome.stdout);
    }
    let outcome = lab.harness(&["check", file, "--model", "cas-register", "--json"]);
    assert_eq!(outcome.code, 1);
    let line: Value = serde_json::from_str(&outcome.stdout).unwrap();
    assert_eq!(line["valid"], false);
    assert_eq!(line["exit_code"], 1);
    assert_eq!(line["evidence"]["keys"]["valid"], 1);
    assert_eq!(line["evidence"]["violated_keys"][0], "\"7\"");
    assert_eq!(
        line["evidence"]["violations"][0]["failed"]["completed_line"],
        6
    );
}

#[test]
fn the_exit_code_is_that_of_the_verdict() {
    let lab = Lab::new();
    let good: String = STALE
        .lines()
        .take(4)
        .map(|line| format!("{line}\n"))
        .collect();
    let cases = [
        ("good", good.as_str(), 0),
        ("empty", "", 2),
        ("unfinished", "[{:process 1, :type :invoke, :f :read}]", 2),
    ];
    for (name, text, code) in cases {
        let file = lab.write(name, text);
        let outcome = lab.harness(&["check", file.to_str().unwrap(), "--model", "register"]);
        assert_eq!(
            outcome.code, code,
            "{name}: {}{}",
            outcome.stdout, outcome.stderr
        );
    }
}

#[test]
fn what_cannot_be_judged_is_refused_in_one_line_that_says_where() {
    let lab = Lab::new();
    let damaged = STALE.replacen("\"ok\"", "\"oh\"", 1);
    for (name, text, model, parts) in [
        (
            "damaged.jsonl",
            damaged.as_str(),
            "register",
            ["damaged.jsonl: line 2 column", "a type must be"],
        ),
        (
            "other.jsonl",
            STALE,
            "queue",
            ["other.jsonl: line 2 column 1", "has no function \"write\""],
        ),
        (
            "prose.txt",
            "it was a dark night\n",
            "register",
            ["prose.txt", "--format"],
        ),
        ("packed.gz", "\u{1f}", "register", ["packed.gz", "--format"]),
    ] {
        let file = lab.write(name, text);
        let outcome = lab.harness(&["check", file.to_str().unwrap(), "--model", model]);
        assert_eq!(outcome.code, 254, "{name}: {}", outcome.stdout);
        assert_eq!(outcome.stderr.lines().count(), 1, "{}", outcome.stderr);
        for part in parts {
            assert!(outcome.stderr.contains(part), "{part}: {}", outcome.stderr);
        }
    }
    let outcome = lab.harness(&["check", "nowhere.edn", "--model", "register"]);
    assert_eq!(outcome.code, 254);
    assert!(outcome.stderr.contains("nowhere.edn"), "{}", outcome.stderr);
    let outcome = lab.harness(&["check", "nowhere.edn"]);
    assert_eq!(outcome.code, 254);
    assert!(outcome.stderr.contains("--model"), "{}", outcome.stderr);
}

#[test]
fn a_search_that_runs_out_of_its_budget_says_how_far_it_got() {
    let lab = Lab::new();
    let mut text = String::new();
    for process in 0..60 {
        let pair = format!("[{} {}]", process % 7, (process * 3 + 1) % 7);
        text.push_str(&format!(
            "{{:process {process}, :type :invoke, :f :cas, :value {pair}}}\n"
        ));
    }
    text.push_str("{:process 99, :type :invoke, :f :write, :value 0} {:process 99, :type :ok, :f :write, :value 0}\n");
    for process in (0..60).step_by(2) {
        let pair = format!("[{} {}]", process % 7, (process * 3 + 1) % 7);
        text.push_str(&format!(
            "{{:process {process}, :type :ok, :f :cas, :value {pair}}}\n"
        ));
    }
    text.push_str(
        "{:process 98, :type :invoke, :f :read} {:process 98, :type :ok, :f :read, :value 77}\n",
    );
    let file = lab.write("hard.edn", &text);
    let outcome = lab.harness(&[
        "check",
        file.to_str().unwrap(),
        "--model",
        "cas-register",
        "--memory-limit",
        "64KiB",
    ]);
    assert_eq!(outcome.code, 2, "{}{}", outcome.stdout, outcome.stderr);
    for part in [
        "memory limit of 65536 bytes",
        "successful operations, with 30 of unknown outcome",
    ] {
        assert!(outcome.stdout.contains(part), "{part}: {}", outcome.stdout);
    }
}

#[test]
fn who_names_no_model_is_told_which_there_are() {
    let lab = Lab::new();
    let file = lab.write("stale.jsonl", STALE);
    let outcome = lab.harness(&["check", file.to_str().unwrap()]);
    assert_eq!(outcome.code, 254, "{}", outcome.stdout);
    for model in checkers::histories::Model::ALL {
        let said = outcome.stderr.contains(model.name());
        assert!(said, "{}: {}", model.name(), outcome.stderr);
    }
}
