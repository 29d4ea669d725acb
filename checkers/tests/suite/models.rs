//! Owns tests that each model tells good histories from bad ones, and says why.
//! Never reads odd bytes: the tests of reading do.

use checkers::histories::{FailedCas, Model, Options, judge};
use results::verdict::Validity;

use crate::histories::{judged, parsed};

/// Lines "process function argument" for an invocation, "process! result" for its completion.
pub(crate) fn edn(lines: &[&str]) -> String {
    let mut functions: Vec<(String, String, String)> = Vec::new();
    let mut text = String::new();
    for line in lines {
        let (process, rest) = line.split_once(' ').unwrap_or((line, ""));
        if let Some(process) = process.strip_suffix('!') {
            let (_, function, argument) = functions
                .iter()
                .rfind(|(other, ..)| other == process)
                .expect("what completes was invoked");
            let (kind, value) = match rest {
                "fail" => ("fail", argument.as_str()),
                "" => ("ok", argument.as_str()),
                value => ("ok", value),
            };
            text.push_str(&format!(
                "{{:process {process}, :type :{kind}, :f :{function}, :value {value}}}\n"
            ));
        } else {
            let (function, argument) = rest.split_once(' ').unwrap_or((rest, "nil"));
            functions.push((process.into(), function.into(), argument.into()));
            text.push_str(&format!(
                "{{:process {process}, :type :invoke, :f :{function}, :value {argument}}}\n"
            ));
        }
    }
    text
}

#[test]
fn every_model_tells_good_from_bad() {
    use Model::{CasRegister, Counter, KeyValue, ListAppend, Queue, Register, Set};
    let cases: [(Model, &[&str], &str, &str); 9] = [
        (Register, &["0 write 1", "0!", "1 read"], "1! 1", "1! nil"),
        (
            CasRegister,
            &["0 write 1", "0!", "0 cas [1 2]", "0!", "1 read"],
            "1! 2",
            "1! 1",
        ),
        (
            KeyValue,
            &["0 put \"a\"", "0!", "0 append \"b\"", "0!", "1 get"],
            "1! \"ab\"",
            "1! \"ba\"",
        ),
        (
            ListAppend,
            &["0 append 1", "0!", "0 append 2", "0!", "1 read"],
            "1! [1 2]",
            "1! [2 1]",
        ),
        (
            Set,
            &["0 add 1", "0!", "0 add 2", "0!", "1 read"],
            "1! [2 1]",
            "1! [1]",
        ),
        (
            Set,
            &["0 add 1", "0!", "0 remove 1", "0!", "1 contains 1"],
            "1! false",
            "1! true",
        ),
        (
            Counter,
            &["0 add 5", "0!", "0 add-and-get 2", "0! [2 7]", "1 read"],
            "1! 7",
            "1! 5",
        ),
        (
            Queue,
            &["0 enqueue :a", "0!", "0 enqueue :b", "0!", "1 dequeue"],
            "1! :a",
            "1! :b",
        ),
        (
            Queue,
            &["0 enqueue 1", "0 dequeue"],
            "1 dequeue",
            "1 dequeue",
        ),
    ];
    for (model, lines, good, bad) in &cases[..8] {
        for (last, expected) in [(good, Validity::Valid), (bad, Validity::Invalid)] {
            let text = edn(&[*lines, &[*last]].concat());
            let report = judged(&text, Options::new(*model));
            assert_eq!(
                report.valid, expected,
                "{model:?} {} {text}",
                report.summary
            );
        }
    }
    // An operation of unknown outcome may have happened or not.
    for seen in ["1! 1", "1! nil"] {
        let text = edn(&["0 write 1", "1 read", seen]);
        assert_eq!(judged(&text, Options::new(Register)).valid, Validity::Valid);
    }
    let took = edn(&["0 enqueue 1", "0!", "1 dequeue", "2 dequeue", "2! nil"]);
    assert_eq!(judged(&took, Options::new(Queue)).valid, Validity::Valid);
}

#[test]
fn a_failed_cas_means_what_it_is_said_to_mean() {
    let text = edn(&["0 write 1", "0!", "1 cas [1 2]", "1! fail"]);
    let mut options = Options::new(Model::CasRegister);
    assert_eq!(judged(&text, options).valid, Validity::Valid);
    options.failed_cas = FailedCas::Observed;
    let report = judged(&text, options);
    assert_eq!(report.valid, Validity::Invalid);
    assert!(
        report
            .summary
            .contains("it needs any value but 1, but there could only be 1"),
        "{}",
        report.summary
    );
}

#[test]
fn nothing_that_succeeded_is_unknown() {
    for text in [
        "",
        "[]",
        &edn(&["0 write 1"]),
        &edn(&["0 write 1", "0! fail"]),
    ] {
        let report = judged(text, Options::new(Model::Register));
        assert_eq!(report.valid, Validity::Unknown, "{text}");
    }
}

#[test]
fn an_explanation_says_what_contradicts_what() {
    let mut lines = Vec::new();
    let numbers: Vec<String> = (1..=40).map(|number| format!("0 write {number}")).collect();
    for line in &numbers {
        lines.extend([line.as_str(), "0!"]);
    }
    lines.extend(["3 read", "3! 39", "0 write 41", "0!"]);
    let report = judged(&edn(&lines), Options::new(Model::Register));
    assert_eq!(
        report.explanations,
        ["not linearizable\n  \
          shortest failing prefix: lines 1 to 82\n  \
          these operations contradict each other:\n    \
          lines    77 to 78     process 0    write 39  (ok)\n    \
          lines    79 to 80     process 0    write 40  (ok)\n    \
          lines    81 to 82     process 3    read 39  (ok)   <- fits nowhere\n  \
          states possible right before line 82: 40\n  \
          it needs 39\n  \
          checked: every order of these operations was tried, by a program of its own"],
    );
    assert_eq!(
        report.summary,
        "read 39 by process 3 on line 82 fits into no order of the operations before it: it needs 39, but there could only be 40"
    );
}

#[test]
fn transactions_of_appends_and_reads_are_judged_together() {
    let good = "{:process 0, :type :invoke, :f :txn, :value [[:append 5 1] [:r 6 nil]]}
                {:process 0, :type :ok, :f :txn, :value [[:append 5 1] [:r 6 []]]}
                {:process 1, :type :invoke, :f :txn, :value [[:r 5 nil]]}
                {:process 1, :type :ok, :f :txn, :value [[:r 5 [1]]]}";
    let report = judged(good, Options::new(Model::ListAppend));
    assert_eq!(report.valid, Validity::Valid, "{}", report.summary);
    let stale = good.replace("[[:r 5 [1]]]", "[[:r 5 []]]");
    let report = judged(&stale, Options::new(Model::ListAppend));
    assert_eq!(report.valid, Validity::Invalid);
    assert_eq!(report.evidence["anomaly_counts"]["G-single-real-time"], 1);
    assert!(
        report.explanations[0].contains("without 1"),
        "{:?}",
        report.explanations
    );
    let text = r#"{"process":0,"type":"invoke","f":"txn","value":3}"#;
    let damage = judge(parsed(text, false), &Options::new(Model::ListAppend));
    assert!(
        damage
            .expect_err("no transaction")
            .to_string()
            .contains("line 1")
    );
}
