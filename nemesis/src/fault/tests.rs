//! Owns the tests of the vocabulary: what is read, written and refused.

use super::samples::any_fault;
use super::*;
use proptest::prelude::*;
use proptest::strategy::ValueTree as _;

fn read(text: &str) -> Result<Fault, FaultError> {
    let description: FaultDescription = serde_json::from_str(text).unwrap();
    Fault::from_description(&description)
}

fn error(text: &str) -> String {
    read(text).unwrap_err().to_string()
}

proptest! {
    #[test]
    fn every_fault_survives_the_round_trip(fault in any_fault()) {
        let text = serde_json::to_string(&fault.to_description()).unwrap();
        prop_assert_eq!(read(&text), Ok(fault), "{}", text);
    }

    #[test]
    fn a_parameter_that_does_not_belong_is_refused(fault in any_fault()) {
        let mut description = fault.to_description();
        description.parameters.insert("colour".into(), "red".into());
        let error = Fault::from_description(&description).unwrap_err();
        let is_refused = matches!(error, FaultError::UnknownParameter { .. });
        prop_assert!(is_refused, "{}", error);
    }
}

#[test]
fn every_kind_is_listed_once() {
    let mut kinds = std::collections::BTreeSet::new();
    let mut runner = proptest::test_runner::TestRunner::deterministic();
    for _ in 0..2_000 {
        let fault = any_fault().new_tree(&mut runner).unwrap().current();
        kinds.insert(fault.kind());
    }
    assert_eq!(kinds, KINDS.into_iter().collect());
}

#[test]
fn the_five_nodes_of_kip_996_must_be_there() {
    let fault = partition(Shape::Kip996);
    assert_eq!(fault.validate(&nodes(5)), Ok(()));
    assert_eq!(fault.validate(&nodes(8)), Ok(()), "some may be observers");
    for node_count in [3, 4] {
        assert!(matches!(
            fault.validate(&nodes(node_count)),
            Err(FaultError::TooFewNodes { .. })
        ));
    }
    let read = read(r#"{"kind":"partition","shape":"kip-996"}"#);
    assert_eq!(read, Ok(fault));
}

#[test]
fn new_kinds_read_as_documented() {
    assert_eq!(
        read(r#"{"kind":"partition","shape":"leader","style":"reset"}"#),
        Ok(Fault::Partition {
            shape: Shape::Leader,
            style: Style::Reset
        })
    );
    assert_eq!(
        read(
            r#"{"kind":"link","shape":"one-way","target":"leader","direction":"from","delay_ms":80}"#
        ),
        Ok(Fault::Link {
            links: LinkSelector::Shape(Shape::OneWay {
                target: Target::Leader,
                direction: Direction::From
            }),
            shaping: Shaping {
                delay_ms: 80,
                ..Shaping::default()
            }
        })
    );
    assert_eq!(
        read(r#"{"kind":"slow","targets":"lagging"}"#),
        Ok(Fault::Slow {
            targets: Targets::Group(Group::Lagging),
            duty: DutyCycle::DEFAULT
        })
    );
    assert_eq!(
        read(r#"{"kind":"disk","what":"bit-flip","targets":"leader"}"#),
        Ok(Fault::Disk {
            targets: Targets::Leader,
            disk: DiskFault {
                what: DiskProblem::BitFlip,
                files: Files::Log,
                delay_ms: None,
                restart: false,
            },
            beyond_budget: false
        })
    );
    assert_eq!(
        read(r#"{"kind":"membership","what":"remove-leader"}"#),
        Ok(Fault::Membership {
            change: MembershipChange::RemoveLeader,
            target: Target::Leader
        })
    );
    assert_eq!(
        read(r#"{"kind":"disk","what":"read-error","restart":true}"#),
        Ok(Fault::Disk {
            targets: Targets::One,
            disk: DiskFault {
                what: DiskProblem::ReadError,
                files: Files::All,
                delay_ms: None,
                restart: true,
            },
            beyond_budget: false
        })
    );
    assert_eq!(
        read(r#"{"kind":"clock-reset","targets":"all"}"#),
        Ok(Fault::ClockReset {
            targets: Targets::All
        })
    );
    assert_eq!(
        read(r#"{"kind":"link","targets":"all","close_delay_ms":900}"#),
        Ok(Fault::Link {
            links: LinkSelector::Targets(Targets::All),
            shaping: Shaping {
                close_delay_ms: 900,
                ..Shaping::default()
            }
        })
    );
    assert_eq!(read(r#"{"kind":"burst"}"#), Ok(Fault::Burst));
}

#[test]
fn what_does_not_fit_together_is_refused() {
    for (text, word) in [
        (r#"{"kind":"link"}"#, "delay_ms"),
        (r#"{"kind":"link","delay_ms":60001}"#, "60000"),
        (r#"{"kind":"link","close_delay_ms":60001}"#, "60000"),
        (
            r#"{"kind":"disk","what":"sync-error","restart":true}"#,
            "read-error only",
        ),
        (r#"{"kind":"clock-reset","offset_ms":4}"#, "offset_ms"),
        (r#"{"kind":"link","loss_percent":101}"#, "0 to 100"),
        (r#"{"kind":"link","stall_after_bytes":0}"#, "at least 1"),
        (
            r#"{"kind":"link","distribution":"pareto","loss_percent":3}"#,
            "jitter_ms",
        ),
        (
            r#"{"kind":"link","shape":"leader","targets":"one","delay_ms":3}"#,
            "leave out",
        ),
        (r#"{"kind":"link","delay_ms":3,"style":"hold"}"#, "style"),
        (r#"{"kind":"slow","on_ms":0}"#, "1 to 60000"),
        (r#"{"kind":"clock-strobe","period_ms":5}"#, "delta_ms"),
        (
            r#"{"kind":"clock-strobe","delta_ms":0,"period_ms":5}"#,
            "not 0",
        ),
        (r#"{"kind":"disk"}"#, "what"),
        (r#"{"kind":"disk","what":"slow-sync"}"#, "delay_ms"),
        (
            r#"{"kind":"disk","what":"no-space","delay_ms":4}"#,
            "slow-sync only",
        ),
        (
            r#"{"kind":"disk","what":"truncate","files":"all"}"#,
            "destroyed",
        ),
        (
            r#"{"kind":"disk","what":"misdirected-write","files":"snapshot"}"#,
            "log",
        ),
        (
            r#"{"kind":"disk","what":"lost-file","files":"log"}"#,
            "quorum-state",
        ),
        (r#"{"kind":"disk","what":"rust"}"#, "read-error"),
        (r#"{"kind":"wipe","beyond_budget":1}"#, "true or false"),
        (r#"{"kind":"membership"}"#, "promote"),
        (
            r#"{"kind":"membership","what":"remove-leader","target":"one"}"#,
            "target",
        ),
        (r#"{"kind":"burst","targets":"all"}"#, "targets"),
        (r#"{"kind":"kill","targets":"follower"}"#, "\"followers\"?"),
    ] {
        let error = error(text);
        assert!(error.contains(word), "{text}: {error}");
    }
    let add = read(r#"{"kind":"membership","what":"add","target":"leader"}"#).unwrap();
    assert!(matches!(
        add.validate(&nodes(5)),
        Err(FaultError::Contradiction { .. })
    ));
}

#[test]
fn data_is_destroyed_within_the_budget_unless_said_otherwise() {
    let wipe = |targets: &str, beyond: bool| {
        let text = format!(r#"{{"kind":"wipe","targets":{targets},"beyond_budget":{beyond}}}"#);
        read(&text).unwrap().check_budget(&nodes(5))
    };
    for targets in ["\"one\"", "\"minority\"", "\"followers\"", r#"["n1","n2"]"#] {
        assert_eq!(wipe(targets, false), Ok(()), "{targets}");
    }
    for targets in ["\"majority\"", "\"all\"", r#"["n1","n2","n3"]"#] {
        let error = wipe(targets, false).unwrap_err().to_string();
        assert!(error.contains("beyond_budget"), "{error}");
        assert_eq!(wipe(targets, true), Ok(()), "{targets}");
    }
    let slow = r#"{"kind":"disk","what":"slow-sync","delay_ms":9,"targets":"all"}"#;
    assert_eq!(read(slow).unwrap().check_budget(&nodes(5)), Ok(()));
}

#[test]
fn only_faults_on_the_node_of_an_event_need_one() {
    let needs_event = |text: &str| read(text).unwrap().hits_event_node();
    assert!(needs_event(r#"{"kind":"kill","targets":"event-node"}"#));
    assert!(needs_event(
        r#"{"kind":"partition","shape":"one-node","target":"event-node"}"#
    ));
    assert!(needs_event(
        r#"{"kind":"link","targets":"event-node","delay_ms":5}"#
    ));
    assert!(!needs_event(r#"{"kind":"kill","targets":"leader"}"#));
    assert!(!needs_event(r#"{"kind":"burst"}"#));
}

#[test]
fn hand_written_faults_read_as_documented() {
    assert_eq!(
        read(r#"{"kind":"partition","shape":"links","cut":[["n1","n3"]]}"#),
        Ok(Fault::Partition {
            shape: Shape::Links(vec![("n1".into(), "n3".into())]),
            style: Style::Hold,
        })
    );
    assert_eq!(
        read(r#"{"kind":"partition","shape":"random-halves","style":"hold"}"#),
        Ok(Fault::Partition {
            shape: Shape::RandomHalves,
            style: Style::Hold,
        })
    );
    assert_eq!(
        read(r#"{"kind":"kill"}"#),
        Ok(Fault::Kill {
            targets: Targets::One
        })
    );
    assert_eq!(
        read(r#"{"kind":"clock-skew","targets":["n2"],"rate":2}"#),
        Ok(Fault::ClockSkew {
            targets: Targets::Nodes(vec!["n2".into()]),
            offset_ms: 0,
            rate: 2.0
        })
    );
}

#[test]
fn unknown_words_are_answered_with_the_known_ones() {
    let kind = error(r#"{"kind":"partiton"}"#);
    assert!(kind.contains("did you mean \"partition\"?"), "{kind}");
    assert!(kind.contains("clock-skew"), "{kind}");
    let shape = error(r#"{"kind":"partition","shape":"random-halfs"}"#);
    assert!(shape.contains("random-halves"), "{shape}");
    let target = error(r#"{"kind":"kill","targets":"leadr"}"#);
    assert!(target.contains("did you mean \"leader\"?"), "{target}");
    let style = error(r#"{"kind":"partition","shape":"links","style":"dorp","cut":[["a","b"]]}"#);
    assert!(
        style.contains("known: hold, reset, refuse, drop"),
        "{style}"
    );
    assert!(error(r#"{"kind":"partition","shape":"one-way","direction":"up"}"#).contains("from"));
}

#[test]
fn unknown_and_misplaced_parameters_are_refused() {
    let misspelt = error(r#"{"kind":"kill","target":"leader"}"#);
    assert!(misspelt.contains("did you mean \"targets\"?"), "{misspelt}");
    assert!(error(r#"{"kind":"pause","rate":2}"#).contains("rate"));
    let misplaced = error(r#"{"kind":"partition","shape":"random-halves","cut":[["a","b"]]}"#);
    assert!(misplaced.contains("random-halves"), "{misplaced}");
}

#[test]
fn wrong_values_say_what_was_expected() {
    assert!(error(r#"{"kind":"partition"}"#).contains("needs \"shape\""));
    assert!(error(r#"{"kind":"partition","shape":7}"#).contains('7'));
    assert!(error(r#"{"kind":"partition","shape":"links"}"#).contains("a links partition"));
    assert!(
        error(r#"{"kind":"partition","shape":"links","cut":[["n1"]]}"#).contains("from and to")
    );
    assert!(error(r#"{"kind":"partition","shape":"groups","groups":[]}"#).contains("[]"));
    assert!(
        error(r#"{"kind":"partition","shape":"one-node","target":["a","b"]}"#).contains("target")
    );
    assert!(error(r#"{"kind":"kill","targets":[]}"#).contains("targets"));
    assert!(error(r#"{"kind":"kill","targets":3}"#).contains("targets"));
    assert!(error(r#"{"kind":"clock-skew","offset_ms":"3s"}"#).contains("milliseconds"));
    assert!(error(r#"{"kind":"clock-skew","rate":0}"#).contains("0.01"));
    assert!(error(r#"{"kind":"clock-skew"}"#).contains("clock"));
}

fn nodes(count: usize) -> Vec<String> {
    (1..=count).map(|number| format!("n{number}")).collect()
}

fn names(names: &[&str]) -> Vec<String> {
    names.iter().map(|name| (*name).to_owned()).collect()
}

fn partition(shape: Shape) -> Fault {
    Fault::Partition {
        shape,
        style: Style::Hold,
    }
}

#[test]
fn nodes_that_do_not_exist_are_refused_by_name() {
    let fault = Fault::Kill {
        targets: Targets::Nodes(names(&["n1", "n9"])),
    };
    let error = fault.validate(&nodes(3)).unwrap_err().to_string();
    assert!(error.contains("\"n9\""), "{error}");
    assert!(error.contains("n1, n2, n3"), "{error}");
    assert_eq!(fault.validate(&nodes(9)), Ok(()));
}

#[test]
fn repeated_and_missing_targets_are_refused() {
    let twice = Targets::Nodes(names(&["n1", "n1"]));
    assert!(matches!(
        Fault::Pause { targets: twice }.validate(&nodes(3)),
        Err(FaultError::GivenTwice { .. })
    ));
    let nobody = Targets::Nodes(Vec::new());
    assert!(
        Fault::Pause { targets: nobody }
            .validate(&nodes(3))
            .is_err()
    );
}

#[test]
fn each_shape_names_the_smallest_cluster_it_fits() {
    let one = Target::One;
    let any = Direction::Any;
    let shapes = [
        (Shape::RandomHalves, 2),
        (
            Shape::OneNode {
                target: one.clone(),
            },
            2,
        ),
        (
            Shape::OneWay {
                target: one,
                direction: any,
            },
            2,
        ),
        (Shape::Halves, 2),
        (Shape::Leader, 2),
        (Shape::LeaderMinority, 3),
        (Shape::LeaderMajority, 3),
        (Shape::MajoritiesRing, 3),
        (Shape::Bridge, 3),
        (Shape::Chain, 3),
    ];
    for (shape, needed_count) in shapes {
        let fault = partition(shape);
        assert_eq!(fault.validate(&nodes(needed_count)), Ok(()));
        assert!(matches!(
            fault.validate(&nodes(needed_count - 1)),
            Err(FaultError::TooFewNodes { needed_count: needed, .. }) if needed == needed_count
        ));
    }
    let minority = Fault::Kill {
        targets: Targets::Minority,
    };
    assert_eq!(minority.validate(&nodes(3)), Ok(()));
    assert!(minority.validate(&nodes(2)).is_err());
}

#[test]
fn impossible_links_and_groups_are_refused() {
    let link = |from: &str, to: &str| (from.to_owned(), to.to_owned());
    let cut = |links: Vec<(String, String)>| partition(Shape::Links(links)).validate(&nodes(3));
    assert_eq!(cut(vec![link("n1", "n2"), link("n2", "n1")]), Ok(()));
    assert!(matches!(
        cut(vec![link("n1", "n1")]),
        Err(FaultError::LinkToItself { .. })
    ));
    assert!(matches!(
        cut(vec![link("n1", "n2"), link("n1", "n2")]),
        Err(FaultError::GivenTwice { .. })
    ));
    assert!(matches!(
        cut(vec![link("n1", "n7")]),
        Err(FaultError::NoSuchNode { .. })
    ));
    assert!(cut(Vec::new()).is_err());

    let groups = |groups: Vec<Vec<String>>| partition(Shape::Groups(groups)).validate(&nodes(3));
    assert_eq!(groups(vec![names(&["n1"]), names(&["n3"])]), Ok(()));
    assert!(groups(vec![names(&["n1", "n2"])]).is_err());
    assert!(groups(vec![names(&["n1"]), Vec::new()]).is_err());
    assert!(groups(vec![names(&["n1"]), names(&["n1"])]).is_err());
}

#[test]
fn clock_settings_out_of_range_are_refused() {
    let skew = |offset_ms, rate| {
        let targets = Targets::All;
        Fault::ClockSkew {
            targets,
            offset_ms,
            rate,
        }
        .validate(&nodes(3))
    };
    assert_eq!(skew(-300, 1.0), Ok(()));
    assert_eq!(skew(0, 0.5), Ok(()));
    assert!(skew(0, 1.0).is_err());
    assert!(skew(CLOCK_OFFSET_MAX_MS + 1, 1.0).is_err());
    assert!(skew(i64::MIN, 1.0).is_err());
    for rate in [0.0, -1.0, 1000.0, f64::NAN, f64::INFINITY] {
        assert!(skew(10, rate).is_err(), "{rate}");
    }
}
