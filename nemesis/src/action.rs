//! Owns what is done to a cluster: faults with every choice made, and their record in the schedule.
//! Never makes a choice itself and never carries one out.

use crate::fault::{FaultError, check_clock, check_links, check_names};
use results::schedule::ResolvedFault;
use serde::{Deserialize, Serialize};
use serde_json::{Map, Value, json};

/// How one node's clock is set.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ClockSetting {
    /// The node.
    pub node: String,
    /// Milliseconds that its clock jumps by; negative is into the past.
    pub offset_ms: i64,
    /// Milliseconds that pass on its clock for each real one.
    pub rate: f64,
}

/// What is done to the cluster: a fault with every choice made.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Cut these directed links, `(from, to)`.
    Cut {
        /// The links.
        links: Vec<(String, String)>,
    },
    /// Kill these nodes.
    Kill {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Stop these nodes.
    Pause {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Set these clocks.
    SkewClocks {
        /// The settings.
        clocks: Vec<ClockSetting>,
    },
}

/// Why a recorded fault cannot be applied as recorded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// A kind that the nemesis does not know.
    #[error(
        "a resolved fault of unknown kind \"{kind}\"; known: partition, kill, pause, clock-skew"
    )]
    UnknownKind {
        /// The kind.
        kind: String,
    },
    /// The targets are missing, empty or malformed.
    #[error("a resolved {kind} fault needs \"{field}\" with at least one entry: {problem}")]
    Targets {
        /// Kind of the fault.
        kind: String,
        /// Name of the field.
        field: &'static str,
        /// What is wrong with it.
        problem: String,
    },
}

impl Action {
    /// The record for `schedule.json`; `at_ms` is when the fault was applied, since the run started.
    pub fn to_resolved(&self, at_ms: u64) -> ResolvedFault {
        let (field, value) = match self {
            Self::Cut { links } => ("cut", json!(links)),
            Self::Kill { nodes } | Self::Pause { nodes } => ("nodes", json!(nodes)),
            Self::SkewClocks { clocks } => ("clocks", json!(clocks)),
        };
        let mut targets = Map::new();
        targets.insert(field.into(), value);
        ResolvedFault { at_ms, targets }
    }

    /// Reads the action back from its record; `kind` is that of the fault it was resolved from.
    pub fn from_resolved(kind: &str, resolved: &ResolvedFault) -> Result<Self, ReplayError> {
        match kind {
            "partition" => Ok(Self::Cut {
                links: read(kind, "cut", resolved)?,
            }),
            "kill" => Ok(Self::Kill {
                nodes: read(kind, "nodes", resolved)?,
            }),
            "pause" => Ok(Self::Pause {
                nodes: read(kind, "nodes", resolved)?,
            }),
            "clock-skew" => Ok(Self::SkewClocks {
                clocks: read(kind, "clocks", resolved)?,
            }),
            kind => Err(ReplayError::UnknownKind { kind: kind.into() }),
        }
    }

    /// Kind of the faults that this action comes from.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cut { .. } => "partition",
            Self::Kill { .. } => "kill",
            Self::Pause { .. } => "pause",
            Self::SkewClocks { .. } => "clock-skew",
        }
    }

    /// Refuses nodes and links that this cluster does not have: a recording of a larger one, say.
    pub fn validate(&self, nodes: &[String]) -> Result<(), FaultError> {
        match self {
            Self::Cut { links } => check_links(links, nodes),
            Self::Kill { nodes: hit } | Self::Pause { nodes: hit } => check_names(hit, nodes),
            Self::SkewClocks { clocks } => {
                check_names(clocks.iter().map(|clock| &clock.node), nodes)?;
                for clock in clocks {
                    check_clock(clock.offset_ms, clock.rate)?;
                }
                Ok(())
            }
        }
    }
}

fn read<T: serde::de::DeserializeOwned>(
    kind: &str,
    field: &'static str,
    resolved: &ResolvedFault,
) -> Result<Vec<T>, ReplayError> {
    let problem = |problem: String| ReplayError::Targets {
        kind: kind.to_owned(),
        field,
        problem,
    };
    let value: &Value = resolved
        .targets
        .get(field)
        .ok_or_else(|| problem("it is missing".into()))?;
    let items: Vec<T> =
        serde_json::from_value(value.clone()).map_err(|error| problem(error.to_string()))?;
    if items.is_empty() {
        return Err(problem("it is empty".into()));
    }
    Ok(items)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn records_that_cannot_be_replayed_are_explained() {
        let resolved = |text: &str| serde_json::from_str::<ResolvedFault>(text).unwrap();
        let error = |kind: &str, text: &str| {
            Action::from_resolved(kind, &resolved(text))
                .unwrap_err()
                .to_string()
        };
        assert!(error("quake", r#"{"at_ms":1}"#).contains("quake"));
        assert!(error("kill", r#"{"at_ms":1}"#).contains("missing"));
        assert!(error("kill", r#"{"at_ms":1,"nodes":[]}"#).contains("empty"));
        assert!(error("partition", r#"{"at_ms":1,"cut":[["n1"]]}"#).contains("cut"));
        let clocks = r#"{"at_ms":1,"clocks":[{"node":"n1","offset_ms":-300,"rate":1.2}]}"#;
        let action = Action::from_resolved("clock-skew", &resolved(clocks)).unwrap();
        assert_eq!(action.validate(&["n1".into()]), Ok(()));
        assert!(action.validate(&["n2".into()]).is_err());
    }
}
