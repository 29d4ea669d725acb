//! Owns the fault schedule of a run: what was asked for, what was resolved, its outcome and effect.
//! Never knows which kinds of fault exist; the vocabulary belongs to the nemesis.

use serde::{Deserialize, Serialize};
use serde_json::{Map, Value};

use crate::ranges;
pub use crate::trigger::Trigger;

/// `schedule.json`: every fault of a run, replayable as it stands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct Schedule {
    /// See [`crate::FORMAT_VERSION`].
    pub format_version: u32,
    /// Seed that the schedule, and every draw made while resolving it, comes from.
    #[serde(default)]
    pub seed: u64,
    /// The faults, by ascending trigger time.
    pub faults: Vec<ScheduledFault>,
}

/// A fault in words of the nemesis: its kind and the parameters that kind understands.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct FaultDescription {
    /// Kind of fault: `partition`, `kill`, `clock-skew`, ...
    pub kind: String,
    /// Everything else, as the kind defines it.
    #[serde(flatten)]
    pub parameters: Map<String, Value>,
}

/// What a symbolic fault became when its moment came.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
pub struct ResolvedFault {
    /// Milliseconds since the run started at which the fault was applied.
    pub at_ms: u64,
    /// The event that started it, if an event did.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub event: Option<StartingEvent>,
    /// The concrete targets, as the kind defines them (`cut`, `nodes`, `clocks`, ...).
    #[serde(flatten)]
    pub targets: Map<String, Value>,
}

/// The event of a node that started a fault.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct StartingEvent {
    /// The node.
    pub node: String,
    /// How often that node was started by then, from 1.
    pub incarnation: u32,
    /// Number of the event in the trace of that incarnation; for a fault before an event, the number of
    /// the next one that was told.
    pub seq: u64,
    /// Nanoseconds since the run started.
    pub time_ns: u64,
}

/// What became of a fault.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum FaultOutcome {
    /// The fault was applied and verified.
    Installed,
    /// It could not be applied; `reason` says why.
    Skipped,
    /// It was attempted, and nobody can say whether it took hold.
    Indeterminate,
}

/// One fault of a schedule. Hand-written schedules need only `trigger`, `duration_ms` and `fault`.
#[derive(Debug, Clone, PartialEq, Serialize, Deserialize)]
#[serde(deny_unknown_fields)]
pub struct ScheduledFault {
    /// Number of the fault, stable under removal of others; 0 means "number it on load".
    #[serde(default)]
    pub id: u64,
    /// When the fault starts.
    pub trigger: Trigger,
    /// How long it lasts, in milliseconds.
    #[serde(deserialize_with = "ranges::milliseconds")]
    pub duration_ms: u64,
    /// What was asked for.
    pub fault: FaultDescription,
    /// What it became.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub resolved: Option<ResolvedFault>,
    /// What it had become in the run that is repeated, if it was injected there. Absent in other runs.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub recorded: Option<ResolvedFault>,
    /// What became of it. Absent: its moment never came.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub outcome: Option<FaultOutcome>,
    /// Why it was skipped, is indeterminate or never started, for people.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub reason: Option<String>,
    /// Milliseconds since the run started at which it was verifiably healed.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub healed_at_ms: Option<u64>,
    /// Measured evidence: `bytes_held`, `stopped_ms`, ... Numbers of 0 mean "no effect".
    #[serde(default, skip_serializing_if = "Map::is_empty")]
    pub effect: Map<String, Value>,
}

impl ResolvedFault {
    /// The nodes that it names as its targets, if it is of a kind that has nodes for targets.
    pub fn nodes(&self) -> impl Iterator<Item = &str> {
        let nodes = self.targets.get("nodes").and_then(Value::as_array);
        nodes.into_iter().flatten().filter_map(Value::as_str)
    }
}

/// End of the names of effects that say how many durable bytes of a node were destroyed:
/// `n2_damaged_bytes`.
const DAMAGED_BYTES: &str = "_damaged_bytes";
/// End of the names of effects that say which directory id a node got with a new disk.
const NEW_DIRECTORY_ID: &str = "_new_directory_id";

/// Name of the effect that says how many durable bytes of a node were destroyed.
pub fn damaged_bytes_of(node: &str) -> String {
    format!("{node}{DAMAGED_BYTES}")
}

/// Name of the effect that says which directory id a node got with a new disk.
pub fn new_directory_id_of(node: &str) -> String {
    format!("{node}{NEW_DIRECTORY_ID}")
}

/// The nodes of which durable data was destroyed, as an effect says.
pub fn damaged_nodes(effect: &Map<String, Value>) -> impl Iterator<Item = &str> {
    let damaged = effect.iter();
    let damaged = damaged.filter(|(_, bytes)| bytes.as_u64().is_some_and(|bytes| bytes > 0));
    damaged.filter_map(|(name, _)| name.strip_suffix(DAMAGED_BYTES))
}

/// Why the numbers of faults in a table have gaps, for people.
const NUMBERS_HAVE_GAPS: &str = "The number of a fault says of which family it is, and which of them; so it, \
    and all that is drawn by it, stays the same whatever other faults there are. Numbers between were never given.";

/// What is to be said of the numbers of these faults, for people: nothing, if they have no gaps.
pub fn about_numbers(faults: &[ScheduledFault]) -> Option<&'static str> {
    let highest = faults.iter().map(|fault| fault.id).max()?;
    (highest > faults.len() as u64).then_some(NUMBERS_HAVE_GAPS)
}

impl ScheduledFault {
    /// What became of it, in the one word for it that people read everywhere.
    pub fn came_to(&self) -> &'static str {
        match self.outcome {
            Some(FaultOutcome::Installed) => "installed",
            Some(FaultOutcome::Skipped) => "skipped",
            Some(FaultOutcome::Indeterminate) => "indeterminate",
            None => "never started",
        }
    }

    /// Whether it was applied, or may have been.
    pub fn was_injected(&self) -> bool {
        let injected = [FaultOutcome::Installed, FaultOutcome::Indeterminate];
        self.outcome
            .is_some_and(|outcome| injected.contains(&outcome))
    }

    /// The nodes of which durable data was destroyed. It stays so when the fault is healed.
    pub fn damaged_nodes(&self) -> impl Iterator<Item = &str> {
        damaged_nodes(&self.effect)
    }

    /// Whether an effect says what became of data on a disk, be it nothing.
    pub fn tells_of_data(&self) -> bool {
        let mut names = self.effect.keys();
        names.any(|name| name.ends_with(DAMAGED_BYTES) || name.ends_with(NEW_DIRECTORY_ID))
    }

    /// Whether a node got a new disk, with nothing on it.
    pub fn has_replaced_disk_of(&self, node: &str) -> bool {
        self.effect.contains_key(&new_directory_id_of(node))
    }

    /// Whether the fault was applied and at least one of its measured effects is not zero.
    pub fn had_effect(&self) -> bool {
        self.outcome == Some(FaultOutcome::Installed)
            && self
                .effect
                .values()
                .any(|value| value.as_f64().is_some_and(|number| number != 0.0))
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn a_hand_written_fault_needs_three_fields() {
        let fault: ScheduledFault = serde_json::from_str(
            r#"{"trigger":{"at_ms":5000},"duration_ms":7000,"fault":{"kind":"partition","shape":"random-halves"}}"#,
        )
        .unwrap();
        assert_eq!(fault.fault.parameters["shape"], "random-halves");
        assert_eq!(fault.outcome, None);
        assert!(!fault.had_effect());
    }

    #[test]
    fn unknown_fields_of_a_schedule_are_named_with_their_place() {
        let refused = |text: &str| {
            let read = serde_json::from_str::<Schedule>(text);
            read.unwrap_err().to_string()
        };
        let fault = r#"{"trigger":{"at_ms":1},"duration_ms":1,"foo":1,"fault":{"kind":"kill"}}"#;
        let error = refused(&format!(r#"{{"format_version":1,"faults":[{fault}]}}"#));
        assert!(
            error.contains("unknown field `foo`") && error.contains("column"),
            "{error}"
        );
        let error = refused(r#"{"format_version":1,"fault":[],"faults":[]}"#);
        assert!(error.contains("unknown field `fault`"), "{error}");
        let error = refused(
            r#"{"format_version":1,"faults":[{"trigger":{"at_ms":1},"duration_ms":-4,"fault":{"kind":"kill"}}]}"#,
        );
        assert!(
            error.contains("`-4`, expected a whole number of milliseconds"),
            "{error}"
        );
    }

    #[test]
    fn numbers_have_gaps_where_one_is_missing() {
        let numbered = |ids: &[u64]| {
            let fault = |id| {
                format!(
                    r#"{{"id":{id},"trigger":{{"at_ms":0}},"duration_ms":1,"fault":{{"kind":"kill"}}}}"#
                )
            };
            let faults: Vec<String> = ids.iter().map(fault).collect();
            let text = format!(r#"{{"format_version":1,"faults":[{}]}}"#, faults.join(","));
            let schedule: Schedule = serde_json::from_str(&text).unwrap();
            about_numbers(&schedule.faults).is_some()
        };
        assert!(!numbered(&[]) && !numbered(&[2, 1, 3]));
        assert!(numbered(&[2]) && numbered(&[12, 2]));
    }

    #[test]
    fn damaged_nodes_are_those_that_lost_bytes() {
        let fault: ScheduledFault = serde_json::from_str(
            r#"{"trigger":{"at_ms":0},"duration_ms":1,"fault":{"kind":"disk"},
                "effect":{"n1_damaged_bytes":0,"n2_damaged_bytes":3,"damaged_count":1}}"#,
        )
        .unwrap();
        assert_eq!(fault.damaged_nodes().collect::<Vec<_>>(), ["n2"]);
        assert!(fault.tells_of_data());
        assert_eq!(damaged_bytes_of("n2"), "n2_damaged_bytes");
    }

    #[test]
    fn the_nodes_of_a_fault_are_those_it_names() {
        let nodes = |text: &str| {
            let resolved: ResolvedFault = serde_json::from_str(text).unwrap();
            resolved.nodes().map(str::to_owned).collect::<Vec<_>>()
        };
        assert_eq!(nodes(r#"{"at_ms":3,"nodes":["n1",2,"n3"]}"#), ["n1", "n3"]);
        assert!(nodes(r#"{"at_ms":3,"cut":[["n1","n3"]]}"#).is_empty());
    }

    #[test]
    fn an_installed_fault_without_measured_effect_had_none() {
        let mut fault: ScheduledFault = serde_json::from_str(
            r#"{"trigger":{"at_ms":0},"duration_ms":1,"fault":{"kind":"partition"},
                "resolved":{"at_ms":3,"cut":[["n1","n3"]]},"outcome":"installed","effect":{"bytes_held":0}}"#,
        )
        .unwrap();
        assert!(!fault.had_effect());
        fault.effect.insert("bytes_held".into(), 17.into());
        assert!(fault.had_effect());
    }
}
