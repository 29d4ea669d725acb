//! Owns how a fault is written as JSON: the words, the parameters, and the errors for wrong ones.
//! Never looks at a cluster; what fits it is checked by `validate`.

use super::{Direction, Fault, FaultError, Shape, Target, Targets, check_clock};
use crate::names::nearest;
use results::schedule::FaultDescription;
use serde_json::{Map, Value, json};

const KINDS: &[&str] = &["partition", "kill", "pause", "clock-skew"];
const SHAPES: &[&str] = &[
    "random-halves",
    "one-node",
    "one-way",
    "majorities-ring",
    "groups",
    "links",
];
const STYLES: &[&str] = &["hold"];
const DIRECTIONS: &[&str] = &["any", "from", "to"];
const TARGET_WORDS: &[&str] = &["one", "leader", "[\"n1\"]"];
const TARGETS_WORDS: &[&str] = &[
    "one",
    "minority",
    "majority",
    "all",
    "leader",
    "[\"n1\", \"n2\"]",
];

const TARGET_EXPECTED: &str = "\"one\", \"leader\", or a list of one node such as [\"n1\"]";
pub(super) const TARGETS_EXPECTED: &str =
    "one of the words for targets, or a list of nodes such as [\"n1\", \"n2\"]";
pub(super) const CUT_EXPECTED: &str =
    "a list of directed links, from and to, such as [[\"n1\", \"n3\"], [\"n3\", \"n1\"]]";
pub(super) const GROUPS_EXPECTED: &str =
    "two or more lists of nodes, none of them empty, such as [[\"n1\"], [\"n2\", \"n3\"]]";
pub(super) const OFFSET_EXPECTED: &str = "whole milliseconds, at most a day either way";
pub(super) const RATE_EXPECTED: &str = "a number from 0.01 to 100";

pub(super) fn parse(description: &FaultDescription) -> Result<Fault, FaultError> {
    let kind = description.kind.as_str();
    let parameters = &description.parameters;
    match kind {
        "partition" => parse_partition(parameters),
        "kill" | "pause" => {
            refuse_others(kind, parameters, &["targets"])?;
            let targets = parse_targets(parameters)?;
            Ok(if kind == "kill" {
                Fault::Kill { targets }
            } else {
                Fault::Pause { targets }
            })
        }
        "clock-skew" => parse_clock_skew(parameters),
        word => Err(unknown("kind of fault", word, KINDS)),
    }
}

pub(super) fn describe(fault: &Fault) -> FaultDescription {
    let mut parameters = Map::new();
    match fault {
        Fault::Partition { shape } => {
            describe_shape(shape, &mut parameters);
            parameters.insert("style".into(), "hold".into());
        }
        Fault::Kill { targets } | Fault::Pause { targets } => {
            parameters.insert("targets".into(), describe_targets(targets));
        }
        Fault::ClockSkew {
            targets,
            offset_ms,
            rate,
        } => {
            parameters.insert("targets".into(), describe_targets(targets));
            parameters.insert("offset_ms".into(), json!(offset_ms));
            parameters.insert("rate".into(), json!(rate));
        }
    }
    FaultDescription {
        kind: fault.kind().into(),
        parameters,
    }
}

fn parse_partition(parameters: &Map<String, Value>) -> Result<Fault, FaultError> {
    let shape = word(parameters, "shape", "one of the shapes of a partition")?;
    let Some(shape) = shape else {
        return Err(FaultError::MissingParameter {
            kind: "partition".into(),
            parameter: "shape",
            expected: "random-halves, one-node, one-way, majorities-ring, groups or links",
        });
    };
    let known: &'static [&'static str] = match shape {
        "random-halves" | "majorities-ring" => &["shape", "style"],
        "one-node" => &["shape", "style", "target"],
        "one-way" => &["shape", "style", "target", "direction"],
        "groups" => &["shape", "style", "groups"],
        "links" => &["shape", "style", "cut"],
        word => return Err(unknown("shape of a partition", word, SHAPES)),
    };
    refuse_others(&format!("{shape} partition"), parameters, known)?;
    if let Some(style) = word(parameters, "style", "\"hold\"")?
        && !STYLES.contains(&style)
    {
        return Err(unknown("style of a partition", style, STYLES));
    }
    let shape = match shape {
        "random-halves" => Shape::RandomHalves,
        "majorities-ring" => Shape::MajoritiesRing,
        "one-node" => Shape::OneNode {
            target: parse_target(parameters)?,
        },
        "one-way" => Shape::OneWay {
            target: parse_target(parameters)?,
            direction: parse_direction(parameters)?,
        },
        "groups" => Shape::Groups(list(parameters, "groups", GROUPS_EXPECTED)?),
        _ => Shape::Links(list(parameters, "cut", CUT_EXPECTED)?),
    };
    Ok(Fault::Partition { shape })
}

fn parse_clock_skew(parameters: &Map<String, Value>) -> Result<Fault, FaultError> {
    refuse_others("clock-skew", parameters, &["targets", "offset_ms", "rate"])?;
    let targets = parse_targets(parameters)?;
    let offset_ms = match parameters.get("offset_ms") {
        None => 0,
        Some(value) => value
            .as_i64()
            .ok_or_else(|| bad("offset_ms", value, OFFSET_EXPECTED))?,
    };
    let rate = match parameters.get("rate") {
        None => 1.0,
        Some(value) => value
            .as_f64()
            .ok_or_else(|| bad("rate", value, RATE_EXPECTED))?,
    };
    check_clock(offset_ms, rate)?;
    Ok(Fault::ClockSkew {
        targets,
        offset_ms,
        rate,
    })
}

fn parse_target(parameters: &Map<String, Value>) -> Result<Target, FaultError> {
    match parameters.get("target") {
        None => Ok(Target::One),
        Some(Value::String(word)) => match word.as_str() {
            "one" => Ok(Target::One),
            "leader" => Ok(Target::Leader),
            word => Err(unknown("target", word, TARGET_WORDS)),
        },
        Some(value) => match string_list(value) {
            Some(nodes) if nodes.len() == 1 => Ok(Target::Node(nodes.concat())),
            _ => Err(bad("target", value, TARGET_EXPECTED)),
        },
    }
}

fn parse_targets(parameters: &Map<String, Value>) -> Result<Targets, FaultError> {
    match parameters.get("targets") {
        None => Ok(Targets::One),
        Some(Value::String(word)) => match word.as_str() {
            "one" => Ok(Targets::One),
            "minority" => Ok(Targets::Minority),
            "majority" => Ok(Targets::Majority),
            "all" => Ok(Targets::All),
            "leader" => Ok(Targets::Leader),
            word => Err(unknown("target", word, TARGETS_WORDS)),
        },
        Some(value) => match string_list(value) {
            Some(nodes) if !nodes.is_empty() => Ok(Targets::Nodes(nodes)),
            _ => Err(bad("targets", value, TARGETS_EXPECTED)),
        },
    }
}

fn parse_direction(parameters: &Map<String, Value>) -> Result<Direction, FaultError> {
    match word(parameters, "direction", "\"from\", \"to\" or \"any\"")? {
        None | Some("any") => Ok(Direction::Any),
        Some("from") => Ok(Direction::From),
        Some("to") => Ok(Direction::To),
        Some(word) => Err(unknown("direction", word, DIRECTIONS)),
    }
}

fn describe_shape(shape: &Shape, parameters: &mut Map<String, Value>) {
    let name = match shape {
        Shape::RandomHalves => "random-halves",
        Shape::MajoritiesRing => "majorities-ring",
        Shape::OneNode { target } => {
            parameters.insert("target".into(), describe_target(target));
            "one-node"
        }
        Shape::OneWay { target, direction } => {
            parameters.insert("target".into(), describe_target(target));
            let direction = match direction {
                Direction::Any => "any",
                Direction::From => "from",
                Direction::To => "to",
            };
            parameters.insert("direction".into(), direction.into());
            "one-way"
        }
        Shape::Groups(groups) => {
            parameters.insert("groups".into(), json!(groups));
            "groups"
        }
        Shape::Links(links) => {
            parameters.insert("cut".into(), json!(links));
            "links"
        }
    };
    parameters.insert("shape".into(), name.into());
}

fn describe_target(target: &Target) -> Value {
    match target {
        Target::One => "one".into(),
        Target::Leader => "leader".into(),
        Target::Node(node) => json!([node]),
    }
}

fn describe_targets(targets: &Targets) -> Value {
    match targets {
        Targets::One => "one".into(),
        Targets::Minority => "minority".into(),
        Targets::Majority => "majority".into(),
        Targets::All => "all".into(),
        Targets::Leader => "leader".into(),
        Targets::Nodes(nodes) => json!(nodes),
    }
}

fn word<'a>(
    parameters: &'a Map<String, Value>,
    parameter: &'static str,
    expected: &'static str,
) -> Result<Option<&'a str>, FaultError> {
    match parameters.get(parameter) {
        None => Ok(None),
        Some(Value::String(word)) => Ok(Some(word)),
        Some(value) => Err(bad(parameter, value, expected)),
    }
}

fn list<T: serde::de::DeserializeOwned>(
    parameters: &Map<String, Value>,
    parameter: &'static str,
    expected: &'static str,
) -> Result<Vec<T>, FaultError> {
    let Some(value) = parameters.get(parameter) else {
        return Err(FaultError::MissingParameter {
            kind: format!("{parameter} partition").replace("cut", "links"),
            parameter,
            expected,
        });
    };
    let items: Vec<T> =
        serde_json::from_value(value.clone()).map_err(|_| bad(parameter, value, expected))?;
    if items.is_empty() {
        return Err(bad(parameter, value, expected));
    }
    Ok(items)
}

fn string_list(value: &Value) -> Option<Vec<String>> {
    serde_json::from_value(value.clone()).ok()
}

fn refuse_others(
    kind: &str,
    parameters: &Map<String, Value>,
    known: &'static [&'static str],
) -> Result<(), FaultError> {
    match parameters
        .keys()
        .find(|name| !known.contains(&name.as_str()))
    {
        None => Ok(()),
        Some(name) => Err(FaultError::UnknownParameter {
            kind: kind.to_owned(),
            parameter: name.clone(),
            known,
            nearest: nearest(name, known),
        }),
    }
}

fn unknown(what: &'static str, word: &str, known: &'static [&'static str]) -> FaultError {
    FaultError::UnknownWord {
        what,
        word: word.to_owned(),
        known,
        nearest: nearest(word, known),
    }
}

fn bad(parameter: &'static str, value: &Value, expected: &'static str) -> FaultError {
    FaultError::BadParameter {
        parameter,
        found: value.to_string(),
        expected,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(text: &str) -> Result<Fault, FaultError> {
        let description: FaultDescription = serde_json::from_str(text).unwrap();
        parse(&description)
    }

    fn error(text: &str) -> String {
        read(text).unwrap_err().to_string()
    }

    #[test]
    fn every_fault_survives_the_round_trip() {
        let targets = [
            Targets::One,
            Targets::Minority,
            Targets::Majority,
            Targets::All,
            Targets::Leader,
            Targets::Nodes(vec!["n1".into(), "n2".into()]),
        ];
        let mut faults = Vec::new();
        for targets in targets {
            faults.push(Fault::Kill {
                targets: targets.clone(),
            });
            faults.push(Fault::Pause {
                targets: targets.clone(),
            });
            faults.push(Fault::ClockSkew {
                targets,
                offset_ms: -300,
                rate: 1.25,
            });
        }
        let mut shapes = vec![
            Shape::RandomHalves,
            Shape::MajoritiesRing,
            Shape::Groups(vec![vec!["n1".into()], vec!["n2".into(), "n3".into()]]),
            Shape::Links(vec![("n1".into(), "n3".into()), ("n3".into(), "n2".into())]),
        ];
        for target in [Target::One, Target::Leader, Target::Node("n2".into())] {
            shapes.push(Shape::OneNode {
                target: target.clone(),
            });
            for direction in [Direction::Any, Direction::From, Direction::To] {
                shapes.push(Shape::OneWay {
                    target: target.clone(),
                    direction,
                });
            }
        }
        faults.extend(shapes.into_iter().map(|shape| Fault::Partition { shape }));
        for fault in faults {
            let text = serde_json::to_string(&describe(&fault)).unwrap();
            assert_eq!(read(&text), Ok(fault), "{text}");
        }
    }

    #[test]
    fn hand_written_faults_read_as_documented() {
        assert_eq!(
            read(r#"{"kind":"partition","shape":"links","cut":[["n1","n3"]]}"#),
            Ok(Fault::Partition {
                shape: Shape::Links(vec![("n1".into(), "n3".into())])
            })
        );
        assert_eq!(
            read(r#"{"kind":"partition","shape":"random-halves","style":"hold"}"#),
            Ok(Fault::Partition {
                shape: Shape::RandomHalves
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
        let shape = error(r#"{"kind":"partition","shape":"halves"}"#);
        assert!(shape.contains("random-halves"), "{shape}");
        let target = error(r#"{"kind":"kill","targets":"leadr"}"#);
        assert!(target.contains("did you mean \"leader\"?"), "{target}");
        let style =
            error(r#"{"kind":"partition","shape":"links","style":"drop","cut":[["a","b"]]}"#);
        assert!(style.contains("known: hold"), "{style}");
        assert!(
            error(r#"{"kind":"partition","shape":"one-way","direction":"up"}"#).contains("from")
        );
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
            error(r#"{"kind":"partition","shape":"one-node","target":["a","b"]}"#)
                .contains("target")
        );
        assert!(error(r#"{"kind":"kill","targets":[]}"#).contains("targets"));
        assert!(error(r#"{"kind":"kill","targets":3}"#).contains("targets"));
        assert!(error(r#"{"kind":"clock-skew","offset_ms":"3s"}"#).contains("milliseconds"));
        assert!(error(r#"{"kind":"clock-skew","rate":0}"#).contains("0.01"));
        assert!(error(r#"{"kind":"clock-skew"}"#).contains("clock"));
    }
}
