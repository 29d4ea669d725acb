//! Owns the check of a schedule before a run: numbers, order, and whether the cluster can do it at all.
//! Never runs it; keeping track of what is due is the business of `timeline`.

use crate::action::{Action, ReplayError};
use crate::fault::{Fault, FaultError, check_names};
use crate::watch::contradiction;
use results::FORMAT_VERSION;
use results::schedule::{Schedule, ScheduledFault};
use results::trigger::{Edge, NodeSelector};

use std::collections::BTreeSet;

/// What is wrong with a schedule. `position` counts the faults of the file from 1.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum ScheduleError {
    /// Written in a format that this version does not know.
    #[error(
        "the schedule has format version {format_version}, and this version reads {FORMAT_VERSION}"
    )]
    FormatVersion {
        /// The version found.
        format_version: u32,
    },
    /// Two faults with the same number.
    #[error("fault {position} of the schedule has the id {id} of an earlier one; leave the id out")]
    DuplicateId {
        /// Which fault.
        position: usize,
        /// Its number.
        id: u64,
    },
    /// A fault that ends when it starts.
    #[error("fault {position} of the schedule lasts 0 ms; give it a duration_ms")]
    NoDuration {
        /// Which fault.
        position: usize,
    },
    /// A fault that does not exist, or that this cluster cannot do.
    #[error("fault {position} of the schedule: {error}")]
    Fault {
        /// Which fault.
        position: usize,
        /// What is wrong with it.
        error: FaultError,
    },
    /// A fault on the node of an event that starts by time.
    #[error(
        "fault {position} of the schedule hits the node of an event, but no event starts it; give its \
         trigger an \"on\", or name other targets"
    )]
    NoEvent {
        /// Which fault.
        position: usize,
    },
    /// An event that never comes.
    #[error("fault {position} of the schedule waits for an event that never comes: {reason}")]
    NeverComes {
        /// Which fault.
        position: usize,
        /// Why not.
        reason: &'static str,
    },
    /// A fault that a node must answer to while it is held.
    #[error(
        "fault {position} of the schedule ({kind}) needs an answer of the node that is held before the \
         event; use \"edge\": \"after\""
    )]
    NoAnswer {
        /// Which fault.
        position: usize,
        /// Its kind.
        kind: String,
    },
    /// A record that cannot be replayed.
    #[error("fault {position} of the schedule: {error}")]
    Replay {
        /// Which fault.
        position: usize,
        /// What is wrong with it.
        error: ReplayError,
    },
}

/// Makes a schedule, hand-written or recorded, ready to run on `nodes`, or says why it cannot be. `nodes`
/// are all that may be part of the cluster at some time; one that is not when a fault on it is due makes
/// the fault skipped. `voters` are those of them that vote at first.
///
/// Faults without a number get the lowest free ones in file order, faults are sorted by trigger time,
/// and both what was asked for and, where present, what it was resolved to must fit the cluster.
/// Nothing is dropped: an impossible fault is refused before the run, not skipped during it.
pub fn prepare(
    schedule: &mut Schedule,
    nodes: &[String],
    voters: &[String],
) -> Result<(), ScheduleError> {
    if schedule.format_version != FORMAT_VERSION {
        return Err(ScheduleError::FormatVersion {
            format_version: schedule.format_version,
        });
    }
    let mut ids = BTreeSet::new();
    let electorate = electorate(schedule, nodes, voters);
    for (index, fault) in schedule.faults.iter().enumerate() {
        let position = index + 1;
        if fault.id != 0 && !ids.insert(fault.id) {
            return Err(ScheduleError::DuplicateId {
                position,
                id: fault.id,
            });
        }
        if fault.duration_ms == 0 {
            return Err(ScheduleError::NoDuration { position });
        }
        check_asked(fault, position, nodes, electorate)?;
        if let Some(resolved) = &fault.resolved {
            Action::from_resolved(&fault.fault.kind, resolved)
                .map_err(|error| ScheduleError::Replay { position, error })?
                .validate(nodes)
                .map_err(|error| ScheduleError::Fault { position, error })?;
        }
    }
    let mut next = 1;
    for fault in schedule.faults.iter_mut().filter(|fault| fault.id == 0) {
        while !ids.insert(next) {
            next += 1;
        }
        fault.id = next;
    }
    schedule
        .faults
        .sort_by_key(|fault| (fault.trigger.at_ms, fault.id));
    Ok(())
}

/// Of these nodes those that may vote at some time: only the first voters, unless a fault makes others of them.
pub fn electorate<'a>(
    schedule: &Schedule,
    nodes: &'a [String],
    voters: &'a [String],
) -> &'a [String] {
    let adds_voters = |fault: &ScheduledFault| {
        let parsed = Fault::from_description(&fault.fault);
        parsed.is_ok_and(|fault| fault.may_add_voters())
    };
    match schedule.faults.iter().any(adds_voters) {
        true => nodes,
        false => voters,
    }
}

fn check_asked(
    fault: &ScheduledFault,
    position: usize,
    nodes: &[String],
    electorate: &[String],
) -> Result<(), ScheduleError> {
    let wrong = |error| ScheduleError::Fault { position, error };
    let asked = Fault::from_description(&fault.fault).map_err(wrong)?;
    asked.validate(nodes).map_err(wrong)?;
    asked.check_budget(electorate).map_err(wrong)?;
    match &fault.trigger.on {
        None if asked.hits_event_node() => Err(ScheduleError::NoEvent { position }),
        None => Ok(()),
        Some(on) => {
            if let Some(reason) = contradiction(on) {
                return Err(ScheduleError::NeverComes { position, reason });
            }
            if on.edge == Edge::Before && asked.needs_answer() {
                let kind = fault.fault.kind.clone();
                return Err(ScheduleError::NoAnswer { position, kind });
            }
            match &on.node {
                NodeSelector::Node(node) => check_names([node], nodes).map_err(wrong),
                _ => Ok(()),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read(faults: &str) -> Schedule {
        serde_json::from_str(&format!(
            r#"{{"format_version":1,"seed":1,"faults":{faults}}}"#
        ))
        .unwrap()
    }

    fn nodes() -> Vec<String> {
        (1..=3).map(|number| format!("n{number}")).collect()
    }

    fn refused(faults: &str) -> String {
        prepare(&mut read(faults), &nodes(), &nodes())
            .unwrap_err()
            .to_string()
    }

    #[test]
    fn faults_are_numbered_around_the_given_ids_and_sorted() {
        let mut schedule = read(
            r#"[{"trigger":{"at_ms":900},"duration_ms":5,"fault":{"kind":"kill"}},
                {"id":2,"trigger":{"at_ms":100},"duration_ms":5,"fault":{"kind":"pause"}},
                {"trigger":{"at_ms":50},"duration_ms":5,"fault":{"kind":"kill","targets":"leader"}}]"#,
        );
        prepare(&mut schedule, &nodes(), &nodes()).unwrap();
        let order: Vec<(u64, u64)> = schedule
            .faults
            .iter()
            .map(|fault| (fault.id, fault.trigger.at_ms))
            .collect();
        assert_eq!(order, [(3, 50), (2, 100), (1, 900)]);
        let once = schedule.clone();
        prepare(&mut schedule, &nodes(), &nodes()).unwrap();
        assert_eq!(schedule, once);
    }

    #[test]
    fn only_voters_count_among_those_who_may_lose_data() {
        let names =
            |count: u32| -> Vec<String> { (1..=count).map(|it| format!("n{it}")).collect() };
        let prepared = |faults: &str| {
            let prepared = prepare(&mut read(faults), &names(7), &names(5));
            prepared.map_err(|error| error.to_string())
        };
        let wipe = |targets: &str| {
            format!(
                r#"{{"trigger":{{"at_ms":9}},"duration_ms":5,"fault":{{"kind":"wipe","targets":{targets}}}}}"#
            )
        };
        for targets in [r#"["n1","n2","n3"]"#, "\"majority\"", "\"all\""] {
            let error = prepared(&format!("[{}]", wipe(targets))).unwrap_err();
            assert!(error.contains("of 5 voters"), "{error}");
            assert!(error.contains("at most 2"), "{error}");
        }
        let with_observers = format!("[{}]", wipe(r#"["n1","n2","n6","n7"]"#));
        assert_eq!(prepared(&with_observers), Ok(()));
        let promoted = r#"{"trigger":{"at_ms":1},"duration_ms":5,
            "fault":{"kind":"membership","what":"promote","target":"observers"}}"#;
        let later = format!("[{promoted},{}]", wipe(r#"["n1","n2","n3"]"#));
        assert_eq!(prepared(&later), Ok(()), "three of seven are a minority");
    }

    #[test]
    fn events_start_faults_on_the_node_they_happened_on() {
        let mut schedule = read(
            r#"[{"trigger":{"on":"vote-persisted","node":["n2"],"edge":"before"},"duration_ms":5,
                 "fault":{"kind":"kill","targets":"event-node"}}]"#,
        );
        assert_eq!(prepare(&mut schedule, &nodes(), &nodes()), Ok(()));
        assert!(schedule.faults[0].trigger.on.is_some());
    }

    #[test]
    fn impossible_schedules_are_refused_with_the_place() {
        let good = r#"{"id":1,"trigger":{"at_ms":1},"duration_ms":5,"fault":{"kind":"kill"}}"#;
        let unknown = r#"{"trigger":{"at_ms":1},"duration_ms":5,"fault":{"kind":"kil"}}"#;
        let error = refused(&format!("[{good},{unknown}]"));
        assert!(error.starts_with("fault 2"), "{error}");
        assert!(error.contains("did you mean \"kill\"?"), "{error}");
        assert!(refused(&format!("[{good},{good}]")).contains("id 1"));
        let instant = r#"{"trigger":{"at_ms":1},"duration_ms":0,"fault":{"kind":"kill"}}"#;
        assert!(refused(&format!("[{instant}]")).contains("0 ms"));
        let elsewhere = r#"{"trigger":{"at_ms":1},"duration_ms":5,"fault":{"kind":"kill"},
                            "resolved":{"at_ms":1,"nodes":["n5"]}}"#;
        assert!(refused(&format!("[{elsewhere}]")).contains("n5"));
        let lost = r#"{"trigger":{"at_ms":1},"duration_ms":5,"fault":{"kind":"kill"},
                       "resolved":{"at_ms":1}}"#;
        assert!(refused(&format!("[{lost}]")).contains("missing"));
        let stray = r#"{"trigger":{"at_ms":1},"duration_ms":5,
                        "fault":{"kind":"kill","targets":"event-node"}}"#;
        assert!(refused(&format!("[{stray}]")).contains("\"on\""));
        let nowhere = r#"{"trigger":{"on":"flush","node":["n8"]},"duration_ms":5,
                          "fault":{"kind":"kill","targets":"event-node"}}"#;
        assert!(refused(&format!("[{nowhere}]")).contains("n8"));
        let never = r#"{"trigger":{"on":"message-sent:vote","node":"leader"},"duration_ms":5,
                        "fault":{"kind":"kill"}}"#;
        assert!(refused(&format!("[{never}]")).contains("only a candidate"));
        let held = r#"{"trigger":{"on":"flush","edge":"before"},"duration_ms":5,
                       "fault":{"kind":"clock-skew","offset_ms":9}}"#;
        assert!(refused(&format!("[{held}]")).contains("clock-skew"));
        let mut future = read("[]");
        future.format_version = 2;
        assert!(prepare(&mut future, &nodes(), &nodes()).is_err());
    }
}
