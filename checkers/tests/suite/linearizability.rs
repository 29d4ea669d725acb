//! Owns tests of the search on histories that are too large to try every order.
//! Never uses anything of the search but its public function.

use std::fmt::Write;
use std::time::{Duration, Instant};

use checkers::histories::{Format, Model, Options, judge, read};
use checkers::linearizability::{Action, Limit, Limits, Operation, Outcome, search};
use results::verdict::Validity;

#[test]
fn wide_histories_use_more_words_and_keep_their_verdict() {
    for width in [10_u64, 65, 130, 600] {
        // All overlap; every write may come last, but only one of them can.
        let mut operations: Vec<Operation> = (0..width)
            .map(|number| Operation {
                action: Action::Write(number as u32 + 1),
                invoked: number,
                completed: Some(10_000 + number),
            })
            .collect();
        let read = |value, position| Operation {
            action: Action::Read(value),
            invoked: position,
            completed: Some(position + 1),
        };
        operations.push(read(3, 20_000));
        let good = search(0, &operations, &Limits::default());
        assert!(matches!(good, Outcome::Linearizable { .. }), "{width}");
        operations.push(read(0, 20_002));
        let limits = Limits {
            configuration_count: 50_000,
            ..Limits::default()
        };
        let bad = search(0, &operations, &limits);
        assert!(!matches!(bad, Outcome::Linearizable { .. }), "{width}");
    }
}

#[test]
fn every_limit_ends_the_search_and_names_itself() {
    // Many overlapping writes of values that are read in vain: hopeless without unique values.
    let mut operations: Vec<Operation> = (0..60_u64)
        .map(|number| Operation {
            action: Action::CompareAndSet {
                expected: (number % 7) as u32,
                new: ((number * 3 + 1) % 7) as u32,
            },
            invoked: number,
            completed: (number % 2 == 0).then_some(10_000 + number),
        })
        .collect();
    operations.push(Operation {
        action: Action::Read(77),
        invoked: 20_000,
        completed: Some(20_001),
    });
    let limit_of = |limits: Limits| match search(0, &operations, &limits) {
        Outcome::Unknown { limit, .. } => limit,
        other => panic!("{other:?}"),
    };
    let started = Instant::now();
    assert_eq!(
        limit_of(Limits {
            deadline: Some(started + Duration::from_millis(50)),
            ..Limits::default()
        }),
        Limit::Time
    );
    assert!(started.elapsed() < Duration::from_secs(10));
    assert_eq!(
        limit_of(Limits {
            memory_bytes: 100_000,
            ..Limits::default()
        }),
        Limit::Memory
    );
    assert_eq!(
        limit_of(Limits {
            configuration_count: 1000,
            ..Limits::default()
        }),
        Limit::Configurations
    );
}

/// With distinct powers of two that each may have been added or not, one moment has 2^40 states.
#[test]
fn a_moment_with_more_states_than_memory_holds_ends_in_unknown() {
    let adds = (0..40).map(|process| {
        let value = 1_u64 << process;
        format!(r#"{{"process":{process},"type":"invoke","f":"add","value":{value}}}"#)
    });
    let reading = ["invoke", "ok"].map(|kind| {
        let value = if kind == "ok" { "-1" } else { "null" };
        format!(r#"{{"process":99,"type":"{kind}","f":"read","value":{value}}}"#)
    });
    let mut text = String::new();
    for (index, line) in adds.chain(reading).enumerate() {
        let rest = &line[1..];
        writeln!(text, r#"{{"index":{index},"time":{index},{rest}"#).unwrap();
    }
    let options = Options {
        memory_limit_bytes: 20 << 20,
        ..Options::new(Model::Counter)
    };
    let history = read(text.as_bytes(), Some(Format::JsonLines), false).unwrap();
    let report = judge(history, &options).unwrap();
    assert_eq!(report.valid, Validity::Unknown, "{}", report.summary);
    assert!(
        report.summary.contains("memory limit"),
        "{}",
        report.summary
    );
}
