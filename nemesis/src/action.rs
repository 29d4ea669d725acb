//! Owns what is done to a cluster: faults with every choice made, and their record in the schedule.
//! Never makes a choice itself and never carries one out.

use crate::fault::{
    CLIENTS, DiskFault, DutyCycle, FaultError, KINDS, Shaping, Strobe, Style, check_clock,
    check_links, check_names,
};
use results::schedule::ResolvedFault;
use serde::de::DeserializeOwned;
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

/// How the voters change, node by node.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
#[serde(tag = "change", rename_all = "kebab-case")]
pub enum VoterChange {
    /// This node is started and becomes a voter.
    Add {
        /// The node, not part of the cluster so far.
        node: String,
    },
    /// This voter becomes an observer.
    Remove {
        /// The voter.
        node: String,
    },
    /// This voter becomes an observer once another node has become a voter.
    Replace {
        /// The voter.
        node: String,
        /// The node that takes its place, not part of the cluster so far.
        by: String,
    },
    /// This observer becomes a voter.
    Promote {
        /// The observer.
        node: String,
    },
}

/// What is done to the cluster: a fault with every choice made.
#[derive(Debug, Clone, PartialEq)]
pub enum Action {
    /// Cut these directed links, `(from, to)`.
    Cut {
        /// The links.
        links: Vec<(String, String)>,
        /// What becomes of connections over them.
        style: Style,
    },
    /// Shape these directed links, `(from, to)`.
    ShapeLinks {
        /// The links.
        links: Vec<(String, String)>,
        /// What is done to them.
        shaping: Shaping,
    },
    /// Kill these nodes as a power cut does.
    Kill {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Kill these nodes; what they wrote stays.
    KillClean {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Ask these nodes to end.
    Restart {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Stop these nodes.
    Pause {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Stop and continue these nodes over and over.
    Slow {
        /// The nodes.
        nodes: Vec<String>,
        /// How long they run and stop.
        duty: DutyCycle,
    },
    /// Kill these nodes and take their disks away.
    Wipe {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Set these clocks.
    SkewClocks {
        /// The settings.
        clocks: Vec<ClockSetting>,
    },
    /// Set the clocks of these nodes back and forth.
    StrobeClocks {
        /// The nodes.
        nodes: Vec<String>,
        /// How far and how often.
        strobe: Strobe,
    },
    /// Set the clocks of these nodes right.
    ResetClocks {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Let the disks of these nodes fail.
    Disk {
        /// The nodes.
        nodes: Vec<String>,
        /// What goes wrong.
        disk: DiskFault,
    },
    /// Change the voters.
    Membership {
        /// How.
        change: VoterChange,
    },
    /// Make these nodes take a snapshot.
    Snapshot {
        /// The nodes.
        nodes: Vec<String>,
    },
    /// Let clients stop waiting between operations.
    Burst,
}

/// Why a recorded fault cannot be applied as recorded.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ReplayError {
    /// A kind that the nemesis does not know.
    #[error("a resolved fault of unknown kind \"{kind}\"; known: {}", KINDS.join(", "))]
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
    /// What is done to the targets is missing or malformed.
    #[error("a resolved {kind} fault does not say what is done: {problem}")]
    Details {
        /// Kind of the fault.
        kind: String,
        /// What is wrong.
        problem: String,
    },
}

impl Action {
    /// The nodes of which one at least has to run, so that anything can be done.
    pub fn needs_running(&self) -> &[String] {
        match self {
            Self::Kill { nodes }
            | Self::KillClean { nodes }
            | Self::Restart { nodes }
            | Self::Pause { nodes }
            | Self::Slow { nodes, .. }
            | Self::Wipe { nodes }
            | Self::Snapshot { nodes } => nodes,
            Self::Disk { nodes, disk } if disk.what.destroys_data() => nodes,
            _ => &[],
        }
    }

    /// The record for `schedule.json`; `at_ms` is when the fault was applied, since the run started.
    pub fn to_resolved(&self, at_ms: u64) -> ResolvedFault {
        let mut targets = Map::new();
        let (field, value) = match self {
            Self::Cut { links, .. } => ("cut", json!(links)),
            Self::ShapeLinks { links, .. } => ("links", json!(links)),
            Self::SkewClocks { clocks } => ("clocks", json!(clocks)),
            Self::Kill { nodes }
            | Self::KillClean { nodes }
            | Self::Restart { nodes }
            | Self::Pause { nodes }
            | Self::Slow { nodes, .. }
            | Self::Wipe { nodes }
            | Self::StrobeClocks { nodes, .. }
            | Self::ResetClocks { nodes }
            | Self::Disk { nodes, .. }
            | Self::Snapshot { nodes } => ("nodes", json!(nodes)),
            Self::Membership { .. } | Self::Burst => ("", Value::Null),
        };
        if !field.is_empty() {
            targets.insert(field.into(), value);
        }
        let details = match self {
            // Recordings have always left this out.
            Self::Cut { style, .. } if *style == Style::Hold => Value::Null,
            Self::Cut { style, .. } => json!({ "style": style }),
            Self::ShapeLinks { shaping, .. } => json!(shaping),
            Self::Slow { duty, .. } => json!(duty),
            Self::StrobeClocks { strobe, .. } => json!(strobe),
            Self::Disk { disk, .. } => json!(disk),
            Self::Membership { change } => json!(change),
            _ => Value::Null,
        };
        if let Value::Object(details) = details {
            targets.extend(details);
        }
        ResolvedFault {
            at_ms,
            event: None,
            targets,
        }
    }

    /// Reads the action back from its record; `kind` is that of the fault it was resolved from.
    pub fn from_resolved(kind: &str, resolved: &ResolvedFault) -> Result<Self, ReplayError> {
        let record = Record { kind, resolved };
        let nodes = || record.list("nodes");
        Ok(match kind {
            "partition" => Self::Cut {
                links: record.list("cut")?,
                style: match resolved.targets.get("style") {
                    None => Style::Hold,
                    Some(_) => record.details::<CutDetails>()?.style,
                },
            },
            "link" => Self::ShapeLinks {
                links: record.list("links")?,
                shaping: record.details()?,
            },
            "kill" => Self::Kill { nodes: nodes()? },
            "kill-clean" => Self::KillClean { nodes: nodes()? },
            "restart" => Self::Restart { nodes: nodes()? },
            "pause" => Self::Pause { nodes: nodes()? },
            "slow" => Self::Slow {
                nodes: nodes()?,
                duty: record.details()?,
            },
            "wipe" => Self::Wipe { nodes: nodes()? },
            "clock-skew" => Self::SkewClocks {
                clocks: record.list("clocks")?,
            },
            "clock-strobe" => Self::StrobeClocks {
                nodes: nodes()?,
                strobe: record.details()?,
            },
            "clock-reset" => Self::ResetClocks { nodes: nodes()? },
            "disk" => Self::Disk {
                nodes: nodes()?,
                disk: record.details()?,
            },
            "membership" => Self::Membership {
                change: record.details()?,
            },
            "snapshot" => Self::Snapshot { nodes: nodes()? },
            "burst" => Self::Burst,
            kind => return Err(ReplayError::UnknownKind { kind: kind.into() }),
        })
    }

    /// Kind of the faults that this action comes from.
    pub fn kind(&self) -> &'static str {
        match self {
            Self::Cut { .. } => "partition",
            Self::ShapeLinks { .. } => "link",
            Self::Kill { .. } => "kill",
            Self::KillClean { .. } => "kill-clean",
            Self::Restart { .. } => "restart",
            Self::Pause { .. } => "pause",
            Self::Slow { .. } => "slow",
            Self::Wipe { .. } => "wipe",
            Self::SkewClocks { .. } => "clock-skew",
            Self::StrobeClocks { .. } => "clock-strobe",
            Self::ResetClocks { .. } => "clock-reset",
            Self::Disk { .. } => "disk",
            Self::Membership { .. } => "membership",
            Self::Snapshot { .. } => "snapshot",
            Self::Burst => "burst",
        }
    }

    /// Refuses nodes and links that this cluster does not have: a recording of a larger one, say.
    pub fn validate(&self, nodes: &[String]) -> Result<(), FaultError> {
        match self {
            Self::Cut { links, .. } => check_links(links, &ends_of_links(nodes)),
            Self::ShapeLinks { links, shaping } => {
                shaping.validate()?;
                check_links(links, &ends_of_links(nodes))
            }
            Self::Kill { nodes: hit }
            | Self::KillClean { nodes: hit }
            | Self::Restart { nodes: hit }
            | Self::Pause { nodes: hit }
            | Self::Wipe { nodes: hit }
            | Self::ResetClocks { nodes: hit }
            | Self::Snapshot { nodes: hit } => check_names(hit, nodes),
            Self::Slow { nodes: hit, duty } => {
                duty.validate()?;
                check_names(hit, nodes)
            }
            Self::SkewClocks { clocks } => {
                check_names(clocks.iter().map(|clock| &clock.node), nodes)?;
                for clock in clocks {
                    check_clock(clock.offset_ms, clock.rate)?;
                }
                Ok(())
            }
            Self::StrobeClocks { nodes: hit, strobe } => {
                strobe.validate()?;
                check_names(hit, nodes)
            }
            Self::Disk { nodes: hit, disk } => {
                disk.validate()?;
                check_names(hit, nodes)
            }
            // Changes of the voters name nodes that come and go in the course of a run.
            Self::Membership { .. } | Self::Burst => Ok(()),
        }
    }
}

#[derive(Deserialize)]
struct CutDetails {
    style: Style,
}

/// A record to be read back.
#[derive(Clone, Copy)]
struct Record<'a> {
    kind: &'a str,
    resolved: &'a ResolvedFault,
}

impl Record<'_> {
    /// The targets.
    fn list<T: DeserializeOwned>(self, field: &'static str) -> Result<Vec<T>, ReplayError> {
        let problem = |problem: String| ReplayError::Targets {
            kind: self.kind.to_owned(),
            field,
            problem,
        };
        let value: &Value = self
            .resolved
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

    /// What is done to the targets; it stands beside them.
    fn details<T: DeserializeOwned>(self) -> Result<T, ReplayError> {
        let targets = Value::Object(self.resolved.targets.clone());
        serde_json::from_value(targets).map_err(|error| ReplayError::Details {
            kind: self.kind.to_owned(),
            problem: error.to_string(),
        })
    }
}

/// Who may be at the end of a link: the nodes, and the clients, whether or not they have links in this run.
fn ends_of_links(nodes: &[String]) -> Vec<String> {
    let clients = std::iter::once(CLIENTS.to_owned());
    nodes.iter().cloned().chain(clients).collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn error(kind: &str, text: &str) -> String {
        let resolved = serde_json::from_str::<ResolvedFault>(text).unwrap();
        Action::from_resolved(kind, &resolved)
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn records_that_cannot_be_replayed_are_explained() {
        assert!(error("quake", r#"{"at_ms":1}"#).contains("quake"));
        assert!(error("kill", r#"{"at_ms":1}"#).contains("missing"));
        assert!(error("kill", r#"{"at_ms":1,"nodes":[]}"#).contains("empty"));
        assert!(error("partition", r#"{"at_ms":1,"cut":[["n1"]]}"#).contains("cut"));
        let style = error(
            "partition",
            r#"{"at_ms":1,"cut":[["n1","n2"]],"style":"dorp"}"#,
        );
        assert!(style.contains("refuse"), "{style}");
        assert!(error("slow", r#"{"at_ms":1,"nodes":["n1"],"on_ms":3}"#).contains("off_ms"));
        assert!(error("disk", r#"{"at_ms":1,"nodes":["n1"]}"#).contains("what"));
        assert!(error("membership", r#"{"at_ms":1,"node":"n1"}"#).contains("change"));
    }

    #[test]
    fn replays_of_what_the_cluster_or_the_vocabulary_forbids_are_refused() {
        let refused = |kind: &str, text: &str| {
            let resolved = serde_json::from_str(text).unwrap();
            let action = Action::from_resolved(kind, &resolved).unwrap();
            action.validate(&["n1".into(), "n2".into()]).is_err()
        };
        let clocks = |node: &str| {
            format!(r#"{{"at_ms":1,"clocks":[{{"node":"{node}","offset_ms":-300,"rate":1.2}}]}}"#)
        };
        assert!(!refused("clock-skew", &clocks("n1")));
        assert!(refused("clock-skew", &clocks("n3")));
        let duty =
            |on_ms: u64| format!(r#"{{"at_ms":1,"nodes":["n1"],"on_ms":{on_ms},"off_ms":1}}"#);
        assert!(!refused("slow", &duty(1)));
        assert!(refused("slow", &duty(0)));
        let link = r#"{"at_ms":1,"links":[["n1","n2"]]"#;
        assert!(!refused("link", &format!(r#"{link},"delay_ms":4}}"#)));
        assert!(refused("link", &format!("{link}}}")));
        assert!(refused("wipe", r#"{"at_ms":1,"nodes":["n7"]}"#));
    }

    #[test]
    fn a_cut_of_former_times_holds() {
        let resolved = serde_json::from_str(r#"{"at_ms":1,"cut":[["n1","n2"]]}"#).unwrap();
        let cut = Action::from_resolved("partition", &resolved).unwrap();
        assert_eq!(
            cut,
            Action::Cut {
                links: vec![("n1".into(), "n2".into())],
                style: Style::Hold
            }
        );
        assert_eq!(cut.to_resolved(1), resolved);
    }
}
