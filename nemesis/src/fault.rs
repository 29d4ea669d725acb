//! Owns the vocabulary of faults: what can be asked for, and how it is written in a schedule.
//! Never decides who is hit; turning "the leader" into a node is the business of `resolve`.

mod json;

use crate::names::suggestion;
use results::schedule::FaultDescription;
use std::collections::BTreeSet;

/// A fault as asked for, before the run decides whom it hits.
#[derive(Debug, Clone, PartialEq)]
pub enum Fault {
    /// Cut network links. Bytes sent meanwhile are held and delivered late, never lost.
    Partition {
        /// Which links.
        shape: Shape,
    },
    /// Kill processes without warning; healing starts them again.
    Kill {
        /// Which nodes.
        targets: Targets,
    },
    /// Stop processes in mid-instruction; healing lets them continue.
    Pause {
        /// Which nodes.
        targets: Targets,
    },
    /// Set the clocks of nodes apart from real time; healing sets them right.
    ClockSkew {
        /// Which nodes.
        targets: Targets,
        /// How far the clock jumps at once, in milliseconds; negative is into the past.
        offset_ms: i64,
        /// How many milliseconds pass on the clock for each real one.
        rate: f64,
    },
}

/// Which links a partition cuts.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// A drawn half of the nodes from the rest, both ways.
    RandomHalves,
    /// One node from all others, both ways.
    OneNode {
        /// The isolated node.
        target: Target,
    },
    /// One node from all others, in a single direction.
    OneWay {
        /// The node that cannot speak, or cannot hear.
        target: Target,
        /// Which of the two.
        direction: Direction,
    },
    /// Every node sees a majority, and no two nodes see the same one.
    MajoritiesRing,
    /// Named groups from each other, both ways. A node in no group still reaches everybody: a bridge.
    Groups(Vec<Vec<String>>),
    /// Exactly these directed links, written `(from, to)`.
    Links(Vec<(String, String)>),
}

/// Which direction of a one-way partition is cut.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Direction {
    /// Drawn when the fault is resolved.
    Any,
    /// What the node sends does not arrive; it still hears the others.
    From,
    /// What is sent to the node does not arrive; the others still hear it.
    To,
}

/// One node to be hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Target {
    /// A drawn one.
    One,
    /// The leader at that moment.
    Leader,
    /// This one.
    Node(String),
}

/// The nodes to be hit.
#[derive(Debug, Clone, PartialEq, Eq)]
pub enum Targets {
    /// A drawn one.
    One,
    /// As many drawn ones as leave a majority untouched.
    Minority,
    /// The smallest number of drawn ones that leaves no majority.
    Majority,
    /// Every node.
    All,
    /// The leader at that moment.
    Leader,
    /// These.
    Nodes(Vec<String>),
}

/// Largest clock jump that a fault may ask for: a day.
pub const CLOCK_OFFSET_MAX_MS: i64 = 24 * 60 * 60 * 1000;
/// Slowest rate that a fault may ask for.
pub const CLOCK_RATE_MIN: f64 = 0.01;
/// Fastest rate that a fault may ask for.
pub const CLOCK_RATE_MAX: f64 = 100.0;

/// What is wrong with a fault somebody wrote.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum FaultError {
    /// A kind, shape, target or style that does not exist.
    #[error("unknown {what} \"{word}\"{}; known: {}", suggestion(*.nearest), .known.join(", "))]
    UnknownWord {
        /// What the word should have named.
        what: &'static str,
        /// The word.
        word: String,
        /// Every word that would do.
        known: &'static [&'static str],
        /// The word it was probably meant to be.
        nearest: Option<&'static str>,
    },
    /// A parameter that this fault does not have.
    #[error(
        "a {kind} fault has no parameter \"{parameter}\"{}; it has: {}",
        suggestion(*.nearest),
        .known.join(", ")
    )]
    UnknownParameter {
        /// Kind of the fault, with its shape if that decides the parameters.
        kind: String,
        /// The parameter.
        parameter: String,
        /// Every parameter of this kind.
        known: &'static [&'static str],
        /// The parameter it was probably meant to be.
        nearest: Option<&'static str>,
    },
    /// A parameter that the fault cannot do without.
    #[error("a {kind} fault needs \"{parameter}\": {expected}")]
    MissingParameter {
        /// Kind of the fault.
        kind: String,
        /// The parameter.
        parameter: &'static str,
        /// What it should be.
        expected: &'static str,
    },
    /// A parameter of the wrong type or out of range.
    #[error("\"{parameter}\" is {found}; expected {expected}")]
    BadParameter {
        /// The parameter.
        parameter: &'static str,
        /// Its value as JSON.
        found: String,
        /// What it should be.
        expected: &'static str,
    },
    /// A node that the cluster does not have.
    #[error("there is no node \"{node}\" in this cluster; it has: {}", .nodes.join(", "))]
    NoSuchNode {
        /// The name.
        node: String,
        /// Every node of the cluster.
        nodes: Vec<String>,
    },
    /// A node, link or group given twice.
    #[error("{what} is given twice; name it once")]
    GivenTwice {
        /// Which.
        what: String,
    },
    /// A link from a node to itself.
    #[error("there is no link from {node} to itself; a link joins two different nodes")]
    LinkToItself {
        /// The node.
        node: String,
    },
    /// The cluster is too small for this fault.
    #[error("{what} needs at least {needed_count} nodes, and this cluster has {node_count}")]
    TooFewNodes {
        /// Which fault or which targets.
        what: &'static str,
        /// The smallest cluster in which it makes sense.
        needed_count: usize,
        /// The size of this cluster.
        node_count: usize,
    },
}

impl Fault {
    /// Reads a fault from a schedule. Unknown words and unknown parameters are refused, never ignored.
    pub fn from_description(description: &FaultDescription) -> Result<Self, FaultError> {
        json::parse(description)
    }

    /// Writes the fault as a schedule has it; [`Self::from_description`] reads it back unchanged.
    pub fn to_description(&self) -> FaultDescription {
        json::describe(self)
    }

    /// The kind as schedules name it.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Partition { .. } => "partition",
            Self::Kill { .. } => "kill",
            Self::Pause { .. } => "pause",
            Self::ClockSkew { .. } => "clock-skew",
        }
    }

    /// Refuses what this cluster cannot do, so that it fails before the run and not in the middle of it.
    pub fn validate(&self, nodes: &[String]) -> Result<(), FaultError> {
        match self {
            Self::Partition { shape } => validate_shape(shape, nodes),
            Self::Kill { targets } | Self::Pause { targets } => validate_targets(targets, nodes),
            Self::ClockSkew {
                targets,
                offset_ms,
                rate,
            } => {
                check_clock(*offset_ms, *rate)?;
                validate_targets(targets, nodes)
            }
        }
    }
}

fn validate_shape(shape: &Shape, nodes: &[String]) -> Result<(), FaultError> {
    match shape {
        Shape::RandomHalves => at_least("a random-halves partition", 2, nodes),
        Shape::OneNode { target } => validate_target("a one-node partition", target, nodes),
        Shape::OneWay { target, .. } => validate_target("a one-way partition", target, nodes),
        Shape::MajoritiesRing => at_least("a majorities-ring partition", 3, nodes),
        Shape::Groups(groups) => {
            if groups.len() < 2 || groups.iter().any(Vec::is_empty) {
                return Err(bad_groups(groups));
            }
            check_names(groups.iter().flatten(), nodes)
        }
        Shape::Links(links) => check_links(links, nodes),
    }
}

fn validate_target(
    what: &'static str,
    target: &Target,
    nodes: &[String],
) -> Result<(), FaultError> {
    at_least(what, 2, nodes)?;
    match target {
        Target::One | Target::Leader => Ok(()),
        Target::Node(node) => check_names([node], nodes),
    }
}

fn validate_targets(targets: &Targets, nodes: &[String]) -> Result<(), FaultError> {
    match targets {
        Targets::One => at_least("the target \"one\"", 1, nodes),
        Targets::All => at_least("the target \"all\"", 1, nodes),
        Targets::Leader => at_least("the target \"leader\"", 1, nodes),
        Targets::Majority => at_least("the target \"majority\"", 1, nodes),
        Targets::Minority => at_least("the target \"minority\"", 3, nodes),
        Targets::Nodes(targets) if targets.is_empty() => Err(FaultError::BadParameter {
            parameter: "targets",
            found: "[]".into(),
            expected: json::TARGETS_EXPECTED,
        }),
        Targets::Nodes(targets) => check_names(targets, nodes),
    }
}

/// Refuses links that the cluster does not have, and none at all.
pub(crate) fn check_links(links: &[(String, String)], nodes: &[String]) -> Result<(), FaultError> {
    if links.is_empty() {
        return Err(FaultError::BadParameter {
            parameter: "cut",
            found: "[]".into(),
            expected: json::CUT_EXPECTED,
        });
    }
    let mut seen = BTreeSet::new();
    for (from, to) in links {
        check_names([from], nodes)?;
        check_names([to], nodes)?;
        if from == to {
            return Err(FaultError::LinkToItself { node: from.clone() });
        }
        if !seen.insert((from, to)) {
            return Err(FaultError::GivenTwice {
                what: format!("the link from {from} to {to}"),
            });
        }
    }
    Ok(())
}

/// Refuses names that the cluster does not have, and names given twice.
pub(crate) fn check_names<'a>(
    names: impl IntoIterator<Item = &'a String>,
    nodes: &[String],
) -> Result<(), FaultError> {
    let mut seen = BTreeSet::new();
    for name in names {
        if !nodes.contains(name) {
            return Err(FaultError::NoSuchNode {
                node: name.clone(),
                nodes: nodes.to_vec(),
            });
        }
        if !seen.insert(name) {
            return Err(FaultError::GivenTwice {
                what: format!("the node {name}"),
            });
        }
    }
    Ok(())
}

/// Refuses clock settings that are out of range, and those that change nothing.
pub(crate) fn check_clock(offset_ms: i64, rate: f64) -> Result<(), FaultError> {
    if !(-CLOCK_OFFSET_MAX_MS..=CLOCK_OFFSET_MAX_MS).contains(&offset_ms) {
        return Err(FaultError::BadParameter {
            parameter: "offset_ms",
            found: offset_ms.to_string(),
            expected: json::OFFSET_EXPECTED,
        });
    }
    if !(CLOCK_RATE_MIN..=CLOCK_RATE_MAX).contains(&rate) {
        return Err(FaultError::BadParameter {
            parameter: "rate",
            found: rate.to_string(),
            expected: json::RATE_EXPECTED,
        });
    }
    if offset_ms == 0 && rate == 1.0 {
        return Err(FaultError::MissingParameter {
            kind: "clock-skew".into(),
            parameter: "offset_ms",
            expected: "an offset other than 0, or a rate other than 1, or the clock stays right",
        });
    }
    Ok(())
}

fn at_least(what: &'static str, needed_count: usize, nodes: &[String]) -> Result<(), FaultError> {
    if nodes.len() >= needed_count {
        return Ok(());
    }
    Err(FaultError::TooFewNodes {
        what,
        needed_count,
        node_count: nodes.len(),
    })
}

fn bad_groups(groups: &[Vec<String>]) -> FaultError {
    FaultError::BadParameter {
        parameter: "groups",
        found: serde_json::json!(groups).to_string(),
        expected: json::GROUPS_EXPECTED,
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn nodes(count: usize) -> Vec<String> {
        (1..=count).map(|number| format!("n{number}")).collect()
    }

    fn names(names: &[&str]) -> Vec<String> {
        names.iter().map(|name| (*name).to_owned()).collect()
    }

    fn partition(shape: Shape) -> Fault {
        Fault::Partition { shape }
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
            (Shape::MajoritiesRing, 3),
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

        let groups =
            |groups: Vec<Vec<String>>| partition(Shape::Groups(groups)).validate(&nodes(3));
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
}
