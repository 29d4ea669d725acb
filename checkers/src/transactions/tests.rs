//! Owns examples of every anomaly, each in the smallest history that has it.
//! Never checks anything at random.

use results::verdict::Validity;

use super::{Findings, Kind, find};
use crate::histories::read;

/// Lines of a history: a process, what becomes of its operation, and its steps.
fn findings(lines: &[(u32, &str, &str)]) -> Findings {
    let lines = lines.iter().map(|(process, kind, steps)| {
        format!(r#"{{"process":{process},"type":"{kind}","f":"txn","value":[{steps}]}}"#)
    });
    let text: Vec<String> = lines.collect();
    let history = read(text.join("\n").as_bytes(), None, false).expect("it is well-formed");
    find(history).expect("it is well-formed")
}

/// One transaction after the other; `/` separates what is asked from what is answered.
fn one_by_one(transactions: &[(&str, &str)]) -> Findings {
    let lines = transactions.iter().enumerate();
    let lines: Vec<_> = lines
        .flat_map(|(process, (asked, answered))| {
            let process = process as u32;
            [(process, "invoke", *asked), (process, "ok", *answered)]
        })
        .collect();
    findings(&lines)
}

/// All transactions at once.
fn at_once(transactions: &[(&str, &str)]) -> Findings {
    let all = || (0u32..).zip(transactions);
    let invoked = all().map(|(process, (asked, _))| (process, "invoke", *asked));
    let completed = all().map(|(process, (_, answered))| (process, "ok", *answered));
    findings(&invoked.chain(completed).collect::<Vec<_>>())
}

fn same(steps: &'static str) -> (&'static str, &'static str) {
    (steps, steps)
}

fn kinds(findings: &Findings) -> Vec<Kind> {
    let all = Kind::ALL.into_iter();
    all.filter(|kind| findings.count(*kind) > 0).collect()
}

#[test]
fn what_has_an_order_is_valid() {
    let found = one_by_one(&[
        same(r#"["append","x",1],["append","y",2]"#),
        (
            r#"["r","x",null],["append","x",3],["r","x",null]"#,
            r#"["r","x",[1]],["append","x",3],["r","x",[1,3]]"#,
        ),
        (
            r#"["r","x",null],["r","y",null],["r","z",null]"#,
            r#"["r","x",[1,3]],["r","y",[2]],["r","z",[]]"#,
        ),
    ]);
    assert_eq!(found.valid(), Validity::Valid, "{}", found.summary());
    assert!(
        found
            .summary()
            .contains("3 transactions with 5 reads of 3 lists")
    );
    assert_eq!(found.counts.update_count, 1);
}

#[test]
fn nothing_read_is_nothing_checked() {
    let found = one_by_one(&[same(r#"["append","x",1]"#)]);
    assert_eq!(found.valid(), Validity::Unknown);
    assert_eq!(findings(&[]).valid(), Validity::Unknown);
}

#[test]
fn a_read_that_misses_what_was_there_before_is_stale() {
    let found = one_by_one(&[
        same(r#"["append","x",1]"#),
        same(r#"["append","x",2]"#),
        (r#"["r","x",null]"#, r#"["r","x",[1]]"#),
        (r#"["r","x",null]"#, r#"["r","x",[1,2]]"#),
    ]);
    assert_eq!(kinds(&found), [Kind::GSingleRealTime]);
    let said = found.summary();
    assert!(
        said.contains(
            "T1 (lines 5 to 6) read [1] of key \"x\", without 2, which T2 (lines 3 to 4) appended"
        ) || said.contains(
            "T2 (lines 5 to 6) read [1] of key \"x\", without 2, which T1 (lines 3 to 4) appended"
        ),
        "{said}"
    );
    assert!(said.contains("was over before"), "{said}");
}

#[test]
fn what_nobody_reads_any_more_is_lost() {
    let found = one_by_one(&[
        same(r#"["append","x",1]"#),
        (r#"["r","x",null]"#, r#"["r","x",[]]"#),
    ]);
    assert_eq!(kinds(&found), [Kind::GSingleRealTime]);
}

#[test]
fn an_unknown_outcome_is_no_loss_unless_it_was_seen() {
    let info = |read: &'static str| {
        findings(&[
            (0, "invoke", r#"["append","x",1],["append","y",2]"#),
            (0, "info", r#"["append","x",1],["append","y",2]"#),
            (1, "invoke", r#"["r","x",null],["r","y",null]"#),
            (1, "ok", read),
        ])
    };
    assert_eq!(kinds(&info(r#"["r","x",[]],["r","y",[]]"#)), []);
    assert_eq!(kinds(&info(r#"["r","x",[1]],["r","y",[2]]"#)), []);
    let torn = info(r#"["r","x",[1]],["r","y",[]]"#);
    assert_eq!(kinds(&torn), [Kind::GSingle]);
    assert_eq!(torn.counts.seen_unknown_count, 1);
}

#[test]
fn appends_that_interleave_are_a_cycle() {
    let found = at_once(&[
        same(r#"["append","x",1],["append","y",2]"#),
        same(r#"["append","x",3],["append","y",4]"#),
        (
            r#"["r","x",null],["r","y",null]"#,
            r#"["r","x",[1,3]],["r","y",[4,2]]"#,
        ),
    ]);
    assert_eq!(kinds(&found), [Kind::G0]);
}

#[test]
fn two_that_see_each_other_are_a_cycle() {
    let found = at_once(&[
        (
            r#"["append","x",1],["r","y",null]"#,
            r#"["append","x",1],["r","y",[2]]"#,
        ),
        (
            r#"["append","y",2],["r","x",null]"#,
            r#"["append","y",2],["r","x",[1]]"#,
        ),
    ]);
    assert_eq!(kinds(&found), [Kind::G1c]);
}

#[test]
fn two_that_miss_each_other_are_a_cycle() {
    let found = at_once(&[
        (
            r#"["append","x",1],["r","y",null]"#,
            r#"["append","x",1],["r","y",[]]"#,
        ),
        (
            r#"["append","y",2],["r","x",null]"#,
            r#"["append","y",2],["r","x",[]]"#,
        ),
        (
            r#"["r","x",null],["r","y",null]"#,
            r#"["r","x",[1]],["r","y",[2]]"#,
        ),
    ]);
    assert_eq!(kinds(&found), [Kind::G2]);
}

#[test]
fn two_updates_of_one_version_lose_one() {
    let found = at_once(&[
        (
            r#"["r","x",null],["append","x",1]"#,
            r#"["r","x",[]],["append","x",1]"#,
        ),
        (
            r#"["r","x",null],["append","x",2]"#,
            r#"["r","x",[]],["append","x",2]"#,
        ),
        (r#"["r","x",null]"#, r#"["r","x",[1,2]]"#),
    ]);
    assert_eq!(kinds(&found), [Kind::LostUpdate, Kind::GSingle]);
}

#[test]
fn parts_and_failures_must_not_be_seen() {
    let found = at_once(&[
        same(r#"["append","x",1],["append","x",2]"#),
        (r#"["r","x",null]"#, r#"["r","x",[1]]"#),
        (r#"["r","x",null]"#, r#"["r","x",[1,2]]"#),
    ]);
    assert!(kinds(&found).contains(&Kind::G1b), "{}", found.summary());
    let found = findings(&[
        (0, "invoke", r#"["append","x",1]"#),
        (0, "fail", r#"["append","x",1]"#),
        (1, "invoke", r#"["r","x",null]"#),
        (1, "ok", r#"["r","x",[1,7]]"#),
    ]);
    assert_eq!(kinds(&found), [Kind::Phantom, Kind::G1a]);
    assert!(found.explanations().concat().contains("failed for certain"));
}

#[test]
fn own_steps_must_be_seen() {
    for answered in [
        r#"["append","x",1],["r","x",[]]"#,
        r#"["append","x",1],["r","x",[1,2]]"#,
    ] {
        let found = at_once(&[
            (r#"["append","x",1],["r","x",null]"#, answered),
            same(r#"["append","x",2]"#),
        ]);
        assert!(kinds(&found).contains(&Kind::Internal), "{answered}");
    }
    let found = at_once(&[
        (
            r#"["r","x",null],["r","x",null]"#,
            r#"["r","x",[]],["r","x",[2]]"#,
        ),
        same(r#"["append","x",2]"#),
    ]);
    assert!(kinds(&found).contains(&Kind::Internal));
}

#[test]
fn what_is_there_twice_or_in_two_orders_is_wrong() {
    let found = one_by_one(&[
        same(r#"["append","x",1]"#),
        (r#"["r","x",null]"#, r#"["r","x",[1,1]]"#),
    ]);
    assert_eq!(kinds(&found), [Kind::Duplicate]);
    let found = at_once(&[
        same(r#"["append","x",1]"#),
        same(r#"["append","x",2]"#),
        (r#"["r","x",null]"#, r#"["r","x",[1,2]]"#),
        (r#"["r","x",null]"#, r#"["r","x",[2,1]]"#),
    ]);
    assert_eq!(kinds(&found), [Kind::IncompatibleOrder]);
    assert!(
        found.summary().contains("from place 1 on"),
        "{}",
        found.summary()
    );
}

#[test]
fn real_time_counts_through_many_transactions() {
    let mut transactions = vec![same(r#"["append","x",1]"#)];
    transactions.extend(vec![(r#"["r","z",null]"#, r#"["r","z",[]]"#); 50]);
    transactions.push((r#"["r","x",null]"#, r#"["r","x",[]]"#));
    transactions.push((r#"["r","x",null]"#, r#"["r","x",[1]]"#));
    let found = one_by_one(&transactions);
    assert_eq!(kinds(&found), [Kind::GSingleRealTime]);
    assert!(
        found.summary().contains("lines 103 to 104"),
        "{}",
        found.summary()
    );
}

#[test]
fn a_stale_read_after_very_many_transactions_is_told_as_simply() {
    let mut transactions = vec![same(r#"["append","x",1]"#)];
    let quiet = (r#"["r","x",null]"#, r#"["r","x",[1]]"#);
    transactions.extend(vec![quiet; 15_000]);
    transactions.push((r#"["r","x",null]"#, r#"["r","x",[]]"#));
    let found = one_by_one(&transactions);
    assert_eq!(kinds(&found), [Kind::GSingleRealTime]);
    assert!(
        found.summary().contains("lines 1 to 2"),
        "{}",
        found.summary()
    );
}

#[test]
fn histories_of_something_else_are_refused_with_their_line() {
    let refused = |text: &str| {
        let history = read(text.as_bytes(), None, false).expect("it is well-formed");
        find(history)
            .expect_err("it is no such history")
            .to_string()
    };
    let line =
        |value: &str| format!(r#"{{"process":0,"type":"invoke","f":"txn","value":{value}}}"#);
    for (value, part) in [
        (r#"[["w","x",1]]"#, "append"),
        (r#"[["append","x"]]"#, "step"),
        ("3", "list of steps"),
        (r#"[["r","x",3]]"#, "return a list"),
    ] {
        let said = refused(&line(value));
        assert!(said.contains("1") && said.contains(part), "{said}");
    }
    let other = refused(r#"{"process":0,"type":"invoke","f":"read","value":null}"#);
    assert!(other.contains("txn"), "{other}");
}

#[test]
fn keywords_of_other_histories_are_understood() {
    let text = "{:process 0, :type :invoke, :f :txn, :value [[:append 5 1] [:r 6 nil]]}
                {:process 0, :type :ok, :f :txn, :value [[:append 5 1] [:r 6 []]]}
                {:process 1, :type :invoke, :f :txn, :value [[:r 5 nil]]}
                {:process 1, :type :ok, :f :txn, :value [[:r 5 [1]]]}";
    let history = read(text.as_bytes(), None, false).expect("it is well-formed");
    let found = find(history).expect("it is well-formed");
    assert_eq!(found.valid(), Validity::Valid, "{}", found.summary());
}

#[test]
fn nobody_reads_what_it_appends_later() {
    let early = one_by_one(&[(
        r#"["r","x",null],["append","x",1]"#,
        r#"["r","x",[1]],["append","x",1]"#,
    )]);
    assert_eq!(kinds(&early), [Kind::Internal], "{}", early.summary());
}

#[test]
fn an_element_that_is_appended_repeatedly_tells_what_it_can() {
    let append = r#"["append","x",1]"#;
    let (read, once) = (r#"["r","x",null]"#, r#"["r","x",[1]]"#);
    // The other one failed, so it is clear who appended what was read.
    let failed = findings(&[
        (0, "invoke", append),
        (0, "fail", append),
        (1, "invoke", append),
        (1, "ok", append),
        (2, "invoke", read),
        (2, "ok", once),
    ]);
    assert_eq!(failed.valid(), Validity::Valid, "{}", failed.summary());
    // Both are over, and one is missing, whichever that is.
    let lost = one_by_one(&[same(append), same(append), (read, once)]);
    assert_eq!(kinds(&lost), [Kind::GSingleRealTime]);
    assert!(
        lost.summary().contains("all 2 answers"),
        "{}",
        lost.summary()
    );
    let both = one_by_one(&[
        same(append),
        (read, once),
        same(append),
        (read, r#"["r","x",[1,1]]"#),
    ]);
    assert_eq!(both.valid(), Validity::Valid, "{}", both.summary());
    let thrice = one_by_one(&[same(append), same(append), (read, r#"["r","x",[1,1,1]]"#)]);
    assert!(kinds(&thrice).contains(&Kind::Duplicate));
    // One transaction may append the same twice, but all of that at once.
    let twice = r#"["append","x",1],["append","x",1]"#;
    let whole = one_by_one(&[same(twice), (read, r#"["r","x",[1,1]]"#)]);
    assert_eq!(whole.valid(), Validity::Valid, "{}", whole.summary());
    let half = at_once(&[same(twice), (read, once), (read, r#"["r","x",[1,1]]"#)]);
    assert_eq!(half.valid(), Validity::Invalid);
}

/// Who appended what is not told by anything, and there are too many answers to try them all.
#[test]
fn too_many_answers_are_unknown_and_the_reason_is_told() {
    let steps: Vec<String> = (1..=9)
        .map(|number| format!(r#"["append","x",0],["append","y",{number}]"#))
        .collect();
    let mut transactions: Vec<(&str, &str)> = steps
        .iter()
        .map(|steps| (steps.as_str(), steps.as_str()))
        .collect();
    let read = (
        r#"["r","x",null],["r","y",null]"#,
        r#"["r","x",[0,0,0,0,0,0,0,0,0]],["r","y",[9,8,7,6,5,4,3,2,1]]"#,
    );
    transactions.push(read);
    let found = at_once(&transactions);
    let said = found.summary();
    assert_eq!(found.valid(), Validity::Unknown, "{said}");
    assert!(
        said.contains("0 of key \"x\"") && said.contains("too many answers"),
        "{said}"
    );
}
