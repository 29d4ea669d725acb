//! Owns the words for links: which of them a fault takes, how it cuts them, and how it shapes them.
//! Never turns a shape into links; that is the business of `resolve`.

use std::collections::BTreeSet;

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

use super::FaultError;
use super::reader::{Reader, bad};
use super::targets::{Target, Targets, at_least, check_names};
use super::words::{Word, word_in_records};

/// Name of the clients at the ends of links, where faults have links of clients, too.
pub const CLIENTS: &str = "clients";

/// Which links a fault takes. Nodes are halved, ordered and drawn anew for each fault.
#[derive(Debug, Clone, PartialEq)]
pub enum Shape {
    /// The first half of the nodes, the smaller one, from the rest, both ways.
    Halves,
    /// A drawn half of the nodes from the rest, both ways.
    RandomHalves,
    /// One node from all others, both ways.
    OneNode {
        /// The isolated node.
        target: Target,
    },
    /// The leader from all others, both ways.
    Leader,
    /// The leader, with as many drawn nodes as make a minority, from the rest, both ways.
    LeaderMinority,
    /// The leader, with as many drawn nodes as just make a majority, from the rest, both ways.
    LeaderMajority,
    /// Every node sees a majority, and no two nodes see the same one.
    MajoritiesRing,
    /// Two drawn halves from each other, both ways; one more node reaches both.
    Bridge,
    /// One node from all others, in a single direction.
    OneWay {
        /// The node that cannot speak, or cannot hear.
        target: Target,
        /// Which of the two.
        direction: Direction,
    },
    /// In a drawn order, each node reaches only the one before it and the one after it.
    Chain,
    /// Five nodes of which only A-C, C-D, B-D, C-E and D-E reach each other: with elections that do
    /// not ask first, leadership goes back and forth here for ever (KIP-996).
    Kip996,
    /// Named groups from each other, both ways. A node in no group still reaches everybody: a bridge.
    Groups(Vec<Vec<String>>),
    /// Exactly these directed links, written `(from, to)`.
    Links(Vec<(String, String)>),
}

/// Names of the shapes.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum ShapeName {
    Halves,
    RandomHalves,
    OneNode,
    Leader,
    LeaderMinority,
    LeaderMajority,
    MajoritiesRing,
    Bridge,
    OneWay,
    Chain,
    Kip996,
    Groups,
    Links,
}

impl Word for ShapeName {
    const WHAT: &'static str = "shape of a partition";
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::Halves, "halves"),
        (Self::RandomHalves, "random-halves"),
        (Self::OneNode, "one-node"),
        (Self::Leader, "leader"),
        (Self::LeaderMinority, "leader-minority"),
        (Self::LeaderMajority, "leader-majority"),
        (Self::MajoritiesRing, "majorities-ring"),
        (Self::Bridge, "bridge"),
        (Self::OneWay, "one-way"),
        (Self::Chain, "chain"),
        (Self::Kip996, "kip-996"),
        (Self::Groups, "groups"),
        (Self::Links, "links"),
    ];
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

impl Word for Direction {
    const WHAT: &'static str = "direction";
    const WORDS: &'static [(Self, &'static str)] =
        &[(Self::Any, "any"), (Self::From, "from"), (Self::To, "to")];
}

/// What becomes of connections over a cut link.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq, PartialOrd, Ord)]
pub enum Style {
    /// They stay. Bytes sent meanwhile are held and delivered late, as TCP does.
    #[default]
    Hold,
    /// They are reset, as are new ones.
    Reset,
    /// They stay and are held; new ones are refused.
    Refuse,
    /// They stay, and packets are dropped: TCP sends them again, less and less often.
    Drop,
}

impl Word for Style {
    const WHAT: &'static str = "style of a partition";
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::Hold, "hold"),
        (Self::Reset, "reset"),
        (Self::Refuse, "refuse"),
        (Self::Drop, "drop"),
    ];
}

/// How delays scatter around their mean.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub enum Distribution {
    /// Evenly between delay − jitter and delay + jitter.
    #[default]
    Uniform,
    /// Normally, with the jitter as standard deviation; never below zero.
    Normal,
    /// From the delay upwards, with rare long ones: Pareto with shape 3 and the jitter as mean excess.
    Pareto,
}

impl Word for Distribution {
    const WHAT: &'static str = "distribution of delays";
    const WORDS: &'static [(Self, &'static str)] = &[
        (Self::Uniform, "uniform"),
        (Self::Normal, "normal"),
        (Self::Pareto, "pareto"),
    ];
}

word_in_records!(Style, Distribution);

/// The links that are shaped.
#[derive(Debug, Clone, PartialEq)]
pub enum LinkSelector {
    /// Those that a partition of this shape would cut.
    Shape(Shape),
    /// All links from and to these nodes.
    Targets(Targets),
}

/// What is done to the bytes on a link. Zero means: not that.
#[derive(Debug, Clone, Default, PartialEq, Eq, Serialize, Deserialize)]
#[serde(default)]
pub struct Shaping {
    /// How much later they arrive, on average.
    #[serde(skip_serializing_if = "is_zero")]
    pub delay_ms: u64,
    /// How far delays scatter.
    #[serde(skip_serializing_if = "is_zero")]
    pub jitter_ms: u64,
    /// How they scatter.
    #[serde(skip_serializing_if = "is_uniform")]
    pub distribution: Distribution,
    /// How many of 100 messages are lost.
    #[serde(skip_serializing_if = "is_zero")]
    pub loss_percent: u64,
    /// How many of 100 messages come twice.
    #[serde(skip_serializing_if = "is_zero")]
    pub duplicate_percent: u64,
    /// How many of 100 messages are overtaken by later ones.
    #[serde(skip_serializing_if = "is_zero")]
    pub reorder_percent: u64,
    /// Of how many of 100 packets a bit is turned over.
    #[serde(skip_serializing_if = "is_zero")]
    pub corrupt_percent: u64,
    /// How many bytes pass per second at most.
    #[serde(skip_serializing_if = "is_zero")]
    pub bandwidth_bytes_per_second: u64,
    /// After how many bytes nothing passes any more until the fault is healed.
    #[serde(skip_serializing_if = "is_zero")]
    pub stall_after_bytes: u64,
    /// How much later the other side learns that a connection was closed, or broke.
    #[serde(skip_serializing_if = "is_zero")]
    pub close_delay_ms: u64,
}

impl Shaping {
    /// Whether it says what becomes of packets, or of messages, rather than of a stream of bytes.
    pub fn needs_packets(&self) -> bool {
        let percents = [
            self.loss_percent,
            self.duplicate_percent,
            self.reorder_percent,
            self.corrupt_percent,
        ];
        percents != [0; 4]
    }
}

impl Shaping {
    /// Whether it does nothing but let the ends of connections come late.
    pub(crate) fn only_closes_slowly(&self) -> bool {
        let close_delay_ms = self.close_delay_ms;
        let only = Self {
            close_delay_ms,
            ..Self::default()
        };
        close_delay_ms > 0 && *self == only
    }
}

fn is_zero(number: &u64) -> bool {
    *number == 0
}

fn is_uniform(distribution: &Distribution) -> bool {
    *distribution == Distribution::Uniform
}

/// Longest delay that a fault may ask for: a minute.
pub const DELAY_MAX_MS: u64 = 60_000;

const CUT_EXPECTED: &str =
    "a list of directed links, from and to, such as [[\"n1\", \"n3\"], [\"n3\", \"n1\"]]";
const GROUPS_EXPECTED: &str =
    "two or more lists of nodes, none of them empty, such as [[\"n1\"], [\"n2\", \"n3\"]]";
const DELAY_EXPECTED: &str = "whole milliseconds, at most 60000";
const PERCENT_EXPECTED: &str = "a whole number from 0 to 100";
const BYTES_EXPECTED: &str = "a whole number of bytes, at least 1";
/// The parameters that say what is done to links.
pub(crate) const SHAPING_PARAMETERS: [&str; 10] = [
    "delay_ms",
    "jitter_ms",
    "distribution",
    "loss_percent",
    "duplicate_percent",
    "reorder_percent",
    "corrupt_percent",
    "bandwidth_bytes_per_second",
    "stall_after_bytes",
    "close_delay_ms",
];

impl Shape {
    fn name(&self) -> ShapeName {
        match self {
            Self::Halves => ShapeName::Halves,
            Self::RandomHalves => ShapeName::RandomHalves,
            Self::OneNode { .. } => ShapeName::OneNode,
            Self::Leader => ShapeName::Leader,
            Self::LeaderMinority => ShapeName::LeaderMinority,
            Self::LeaderMajority => ShapeName::LeaderMajority,
            Self::MajoritiesRing => ShapeName::MajoritiesRing,
            Self::Bridge => ShapeName::Bridge,
            Self::OneWay { .. } => ShapeName::OneWay,
            Self::Chain => ShapeName::Chain,
            Self::Kip996 => ShapeName::Kip996,
            Self::Groups(_) => ShapeName::Groups,
            Self::Links(_) => ShapeName::Links,
        }
    }

    /// The one node that this shape is about, where it is about one.
    pub(crate) fn target(&self) -> Option<&Target> {
        match self {
            Self::OneNode { target } | Self::OneWay { target, .. } => Some(target),
            _ => None,
        }
    }

    /// Reads the shape called `word`. `others` are parameters that the fault has besides.
    fn read(
        reader: Reader<'_>,
        word: &str,
        kind: &str,
        others: &[&'static str],
    ) -> Result<Self, FaultError> {
        let name = ShapeName::from_word(word)?;
        let own: &[&str] = match name {
            ShapeName::OneNode => &["target"],
            ShapeName::OneWay => &["target", "direction"],
            ShapeName::Groups => &["groups"],
            ShapeName::Links => &["cut"],
            _ => &[],
        };
        let kind = format!("{} {kind}", name.word());
        let known: Vec<&str> = ["shape"].iter().chain(others).chain(own).copied().collect();
        reader.refuse_others(&kind, &known)?;
        Ok(match name {
            ShapeName::Halves => Self::Halves,
            ShapeName::RandomHalves => Self::RandomHalves,
            ShapeName::OneNode => Self::OneNode {
                target: Target::read(reader)?,
            },
            ShapeName::Leader => Self::Leader,
            ShapeName::LeaderMinority => Self::LeaderMinority,
            ShapeName::LeaderMajority => Self::LeaderMajority,
            ShapeName::MajoritiesRing => Self::MajoritiesRing,
            ShapeName::Bridge => Self::Bridge,
            ShapeName::OneWay => Self::OneWay {
                target: Target::read(reader)?,
                direction: reader.word("direction")?.unwrap_or(Direction::Any),
            },
            ShapeName::Chain => Self::Chain,
            ShapeName::Kip996 => Self::Kip996,
            ShapeName::Groups => Self::Groups(reader.list(&kind, "groups", GROUPS_EXPECTED)?),
            ShapeName::Links => Self::Links(reader.list(&kind, "cut", CUT_EXPECTED)?),
        })
    }

    fn describe(&self, parameters: &mut Map<String, Value>) {
        parameters.insert("shape".into(), self.name().word().into());
        match self {
            Self::OneNode { target } => {
                parameters.insert("target".into(), target.describe());
            }
            Self::OneWay { target, direction } => {
                parameters.insert("target".into(), target.describe());
                parameters.insert("direction".into(), direction.word().into());
            }
            Self::Groups(groups) => {
                parameters.insert("groups".into(), json!(groups));
            }
            Self::Links(links) => {
                parameters.insert("cut".into(), json!(links));
            }
            _ => {}
        }
    }

    /// Refuses what a cluster of these nodes cannot do.
    pub(crate) fn validate(&self, nodes: &[String]) -> Result<(), FaultError> {
        match self {
            Self::Halves => at_least("a partition into halves", 2, nodes),
            Self::RandomHalves => at_least("a random-halves partition", 2, nodes),
            Self::OneNode { target } => target.validate("a one-node partition", nodes),
            Self::Leader => at_least("a leader partition", 2, nodes),
            Self::LeaderMinority => at_least("a leader-minority partition", 3, nodes),
            Self::LeaderMajority => at_least("a leader-majority partition", 3, nodes),
            Self::MajoritiesRing => at_least("a majorities-ring partition", 3, nodes),
            Self::Bridge => at_least("a bridge partition", 3, nodes),
            Self::OneWay { target, .. } => target.validate("a one-way partition", nodes),
            Self::Chain => at_least("a chain partition", 3, nodes),
            Self::Kip996 => at_least("a kip-996 partition", 5, nodes),
            Self::Groups(groups) => {
                if groups.len() < 2 || groups.iter().any(Vec::is_empty) {
                    return Err(bad("groups", &json!(groups), GROUPS_EXPECTED));
                }
                check_names(groups.iter().flatten(), nodes)
            }
            Self::Links(links) => check_links(links, nodes),
        }
    }
}

/// Reads the parameters of a partition.
pub(super) fn read_partition(reader: Reader<'_>) -> Result<(Shape, Style), FaultError> {
    let expected = "one of the shapes of a partition";
    let word = reader.text("shape", expected)?;
    let word = reader.needed(
        word,
        "shape",
        "random-halves, one-node, leader, or another shape",
    )?;
    let shape = Shape::read(reader, word, "partition", &["style"])?;
    Ok((shape, reader.word("style")?.unwrap_or_default()))
}

/// Writes the parameters of a partition.
pub(super) fn describe_partition(shape: &Shape, style: Style, parameters: &mut Map<String, Value>) {
    shape.describe(parameters);
    parameters.insert("style".into(), style.word().into());
}

impl LinkSelector {
    /// Reads the links of a fault that shapes them, and refuses parameters that it does not have.
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, FaultError> {
        let Some(word) = reader.text("shape", "one of the shapes of a partition")? else {
            let known: Vec<&str> = ["targets"].into_iter().chain(SHAPING_PARAMETERS).collect();
            reader.refuse_others("link", &known)?;
            return Ok(Self::Targets(Targets::read(reader)?));
        };
        if reader.get("targets").is_some() {
            return Err(FaultError::Contradiction {
                kind: "link",
                problem: "leave out \"shape\" or \"targets\"",
            });
        }
        Shape::read(reader, word, "link", &SHAPING_PARAMETERS).map(Self::Shape)
    }

    pub(super) fn describe(&self, parameters: &mut Map<String, Value>) {
        match self {
            Self::Shape(shape) => shape.describe(parameters),
            Self::Targets(targets) => {
                parameters.insert("targets".into(), targets.describe());
            }
        }
    }

    pub(super) fn validate(&self, nodes: &[String]) -> Result<(), FaultError> {
        at_least("a link fault", 2, nodes)?;
        match self {
            Self::Shape(shape) => shape.validate(nodes),
            Self::Targets(targets) => targets.validate(nodes),
        }
    }
}

impl Shaping {
    pub(super) fn read(reader: Reader<'_>) -> Result<Self, FaultError> {
        let whole = |parameter, range, expected| {
            let found = reader.whole(parameter, range, expected)?;
            Ok::<u64, FaultError>(found.unwrap_or(0))
        };
        let shaping = Self {
            delay_ms: whole("delay_ms", 0..=DELAY_MAX_MS, DELAY_EXPECTED)?,
            jitter_ms: whole("jitter_ms", 0..=DELAY_MAX_MS, DELAY_EXPECTED)?,
            distribution: reader.word("distribution")?.unwrap_or_default(),
            loss_percent: whole("loss_percent", 0..=100, PERCENT_EXPECTED)?,
            duplicate_percent: whole("duplicate_percent", 0..=100, PERCENT_EXPECTED)?,
            reorder_percent: whole("reorder_percent", 0..=100, PERCENT_EXPECTED)?,
            corrupt_percent: whole("corrupt_percent", 0..=100, PERCENT_EXPECTED)?,
            bandwidth_bytes_per_second: whole(
                "bandwidth_bytes_per_second",
                1..=u64::MAX,
                BYTES_EXPECTED,
            )?,
            stall_after_bytes: whole("stall_after_bytes", 1..=u64::MAX, BYTES_EXPECTED)?,
            close_delay_ms: whole("close_delay_ms", 0..=DELAY_MAX_MS, DELAY_EXPECTED)?,
        };
        shaping.validate()?;
        Ok(shaping)
    }

    pub(super) fn describe(&self, parameters: &mut Map<String, Value>) {
        if let Ok(Value::Object(written)) = serde_json::to_value(self) {
            parameters.extend(written);
        }
    }

    /// Refuses what changes nothing, and numbers out of range.
    pub(crate) fn validate(&self) -> Result<(), FaultError> {
        if *self == Self::default() {
            return Err(FaultError::MissingParameter {
                kind: "link".into(),
                parameter: "delay_ms",
                expected: "a delay, loss_percent, duplicate_percent, reorder_percent, corrupt_percent, \
                           bandwidth_bytes_per_second, stall_after_bytes or close_delay_ms, or the \
                           links stay as they are",
            });
        }
        if self.distribution != Distribution::Uniform && self.jitter_ms == 0 {
            return Err(FaultError::MissingParameter {
                kind: "link".into(),
                parameter: "jitter_ms",
                expected: "how far the delays scatter, in milliseconds, or no distribution",
            });
        }
        let percents = [
            ("loss_percent", self.loss_percent),
            ("duplicate_percent", self.duplicate_percent),
            ("reorder_percent", self.reorder_percent),
            ("corrupt_percent", self.corrupt_percent),
        ];
        for (parameter, percent) in percents {
            if percent > 100 {
                return Err(bad(parameter, &json!(percent), PERCENT_EXPECTED));
            }
        }
        let delays = [
            ("delay_ms", self.delay_ms),
            ("jitter_ms", self.jitter_ms),
            ("close_delay_ms", self.close_delay_ms),
        ];
        for (parameter, ms) in delays {
            if ms > DELAY_MAX_MS {
                return Err(bad(parameter, &json!(ms), DELAY_EXPECTED));
            }
        }
        Ok(())
    }
}

/// Refuses links that the cluster does not have, and none at all.
pub(crate) fn check_links(links: &[(String, String)], nodes: &[String]) -> Result<(), FaultError> {
    if links.is_empty() {
        return Err(bad("cut", &json!([]), CUT_EXPECTED));
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
