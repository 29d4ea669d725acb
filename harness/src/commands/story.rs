//! Owns the steps of nodes and faults that led to a violation, as lines that fit on a screen.
//! Never judges, and never tells of messages: what came of them is told by whom they changed.

use std::collections::BTreeMap;

use results::schedule::Schedule;
use results::trace::{Role, Started, TraceDetail, TraceEvent};

/// Steps told at most, the last ones before the violation.
const STEPS_MAX_COUNT: usize = 22;
const MS: u64 = 1_000_000;

/// What happened until then, the latest last. Steps of a node that go on, as appends do, are one line.
pub(super) fn story(trace: &[TraceEvent], schedule: &Schedule, until_ns: u64) -> String {
    let mut book = Book::default();
    let mut faults = faults(schedule).into_iter().peekable();
    for event in trace.iter().filter(|event| event.time <= until_ns) {
        while let Some((time, text)) = faults.next_if(|(time, _)| *time <= event.time) {
            book.tell(time, None, text);
        }
        book.take(event);
    }
    let (count, shown) = (book.lines.len(), book.lines.len().min(STEPS_MAX_COUNT));
    let mut text = format!("the {shown} steps until then");
    if count > shown {
        text.push_str(&format!(", after {} others", count - shown));
    }
    text.push(':');
    for (time, line) in book.lines.values().skip(count - shown) {
        text.push_str(&format!("\n{:>10.4} s  {line}", *time as f64 / 1e9));
    }
    text
}

/// Begins and ends of faults, by time in nanoseconds.
fn faults(schedule: &Schedule) -> Vec<(u64, String)> {
    let mut told = Vec::new();
    for fault in &schedule.faults {
        let Some(resolved) = &fault.resolved else {
            continue;
        };
        let kind = fault.fault.kind.escape_debug();
        let nodes: Vec<&str> = resolved.nodes().collect();
        let nodes = match nodes.as_slice() {
            [] => String::new(),
            nodes => format!(" of {}", nodes.join(", ")),
        };
        let begins = format!("fault {}: {kind}{nodes} begins", fault.id);
        told.push((resolved.at_ms * MS, begins));
        if let Some(ends_ms) = fault.healed_at_ms {
            told.push((ends_ms * MS, format!("fault {}: {kind} ends", fault.id)));
        }
    }
    told.sort();
    told
}

/// Kinds of steps that go on.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
enum Course {
    Appends { epoch: i32 },
    Commits,
    Reads,
}

/// What is told, by number.
#[derive(Debug, Default)]
struct Book {
    lines: BTreeMap<u64, (u64, String)>,
    next: u64,
    /// By node: lines that may go on, with the offset where they began.
    courses: BTreeMap<String, BTreeMap<Course, (u64, i64)>>,
}

impl Book {
    fn tell(&mut self, time: u64, node: Option<&str>, text: String) -> u64 {
        let line = match node {
            Some(node) => format!("{node:<4} {text}"),
            None => format!("     {text}"),
        };
        self.next += 1;
        self.lines.insert(self.next, (time, line));
        self.next
    }

    /// Tells of a step that goes on, instead of what was told of it before.
    fn go_on(
        &mut self,
        event: &TraceEvent,
        course: Course,
        from: i64,
        text: impl Fn(i64) -> String,
    ) {
        let courses = self.courses.entry(event.node.to_string()).or_default();
        let known = courses.get(&course).copied();
        let from = known.map_or(from, |(_, from)| from);
        if let Some((line, _)) = known {
            self.lines.remove(&line);
        }
        let line = self.tell(event.time, Some(&event.node), text(from));
        let courses = self.courses.entry(event.node.to_string()).or_default();
        courses.insert(course, (line, from));
    }

    fn take(&mut self, event: &TraceEvent) {
        match &event.detail {
            TraceDetail::Append {
                base_offset,
                last_offset,
                batch_epoch,
                ..
            } => {
                let course = Course::Appends {
                    epoch: *batch_epoch,
                };
                self.go_on(event, course, *base_offset, |from| {
                    match last_offset - from {
                        0 => format!("appends {from} of epoch {batch_epoch}"),
                        _ => format!("appends {from} to {last_offset} of epoch {batch_epoch}"),
                    }
                });
            }
            TraceDetail::HighWatermark {
                high_watermark,
                log_end,
            } => self.go_on(event, Course::Commits, 0, |_| {
                format!(
                    "holds everything below {high_watermark} committed; its log ends at {log_end}"
                )
            }),
            TraceDetail::ReadServed { read_offset, .. } => {
                self.go_on(event, Course::Reads, 0, |_| {
                    format!("answers a read with what is below {read_offset}")
                });
            }
            detail => {
                if let Some(text) = told(detail, event.epoch) {
                    self.courses.remove(event.node.as_str());
                    self.tell(event.time, Some(&event.node), text);
                }
            }
        }
    }
}

/// A step that does not go on, for people; `None` if another one tells as much.
fn told(detail: &TraceDetail, epoch: i32) -> Option<String> {
    Some(match detail {
        TraceDetail::Started(started) => started_as(started, epoch),
        TraceDetail::RoleChange {
            role,
            leader,
            epoch_start_offset,
            reason,
        } => {
            let reason = reason.as_deref();
            let reason = reason.map_or_else(String::new, |it| format!(" ({})", it.escape_debug()));
            match (role, leader, epoch_start_offset) {
                (Role::Leader, _, Some(start)) => {
                    format!("leads epoch {epoch}, which starts at {start}")
                }
                (Role::Follower, Some(leader), _) => {
                    format!("follows {} in epoch {epoch}{reason}", leader.escape_debug())
                }
                (role, ..) => format!("is {} in epoch {epoch}{reason}", name(*role)),
            }
        }
        TraceDetail::VotePersisted { candidate } => {
            format!("votes for {} in epoch {epoch}", candidate.escape_debug())
        }
        TraceDetail::VotersAppended { offset, voters, .. } => {
            format!("has {} as voters from {offset} on", voters.join(", "))
        }
        TraceDetail::Truncate { log_end } => format!("cuts its log back to {log_end}"),
        TraceDetail::SnapshotFrozen { end_offset, .. } => {
            format!("takes a snapshot of everything below {end_offset}")
        }
        TraceDetail::SnapshotInstalled { end_offset, .. } => {
            format!("takes over a snapshot of everything below {end_offset}")
        }
        TraceDetail::RefusedToStart { reason } => {
            format!("refuses to start: {}", reason.escape_debug())
        }
        _ => return None,
    })
}

fn started_as(started: &Started, epoch: i32) -> String {
    let Started { role, log_end, .. } = started;
    format!(
        "starts as {} in epoch {epoch}; its log ends at {log_end}",
        name(*role)
    )
}

/// As in "it is ...".
fn name(role: Role) -> String {
    match role {
        Role::Candidate => format!("a {role}"),
        _ => role.to_string(),
    }
}

#[cfg(test)]
mod tests {
    use std::path::Path;
    use std::sync::Arc;
    use std::sync::atomic::AtomicBool;

    use serde_json::{Value, json};

    use super::*;
    use crate::scenario::Scenario;
    use crate::simulation::simulate;

    fn event(time_ms: u64, node: &str, detail: Value) -> TraceEvent {
        let mut event = detail;
        event["time"] = (time_ms * MS).into();
        event["node"] = node.into();
        event["incarnation"] = 1.into();
        event["seq"] = 0.into();
        event["epoch"] = 2.into();
        serde_json::from_value(event).unwrap()
    }

    fn append(time_ms: u64, node: &str, offset: i64) -> TraceEvent {
        let appended = json!({"event": "append", "base_offset": offset, "last_offset": offset,
            "batch_epoch": 2, "crc": 1});
        event(time_ms, node, appended)
    }

    #[test]
    fn what_goes_on_is_one_line_and_what_comes_later_is_not_told() {
        let leads = json!({"event": "role-change", "role": "leader", "leader": "n1",
            "epoch_start_offset": 3});
        let commits = json!({"event": "high-watermark", "high_watermark": 3, "log_end": 6});
        let trace = [
            event(10, "n1", leads),
            append(20, "n1", 3),
            append(30, "n2", 3),
            append(40, "n1", 4),
            append(50, "n1", 5),
            event(60, "n1", commits),
            append(70, "n1", 6),
        ];
        let schedule = json!({"format_version": 1, "faults": [{"id": 7, "trigger": {"at_ms": 25},
            "duration_ms": 10, "fault": {"kind": "kill", "targets": "one"}, "outcome": "installed",
            "resolved": {"at_ms": 25, "nodes": ["n3"]}, "healed_at_ms": 80}]});
        let schedule: Schedule = serde_json::from_value(schedule).unwrap();
        let expected = "the 5 steps until then:\n    \
            0.0100 s  n1   leads epoch 2, which starts at 3\n    \
            0.0250 s       fault 7: kill of n3 begins\n    \
            0.0300 s  n2   appends 3 of epoch 2\n    \
            0.0500 s  n1   appends 3 to 5 of epoch 2\n    \
            0.0600 s  n1   holds everything below 3 committed; its log ends at 6";
        assert_eq!(story(&trace, &schedule, 60 * MS), expected);
    }

    #[test]
    fn a_long_story_is_its_end() {
        let truncate = |at| event(at, "n1", json!({"event": "truncate", "log_end": 4}));
        let trace: Vec<TraceEvent> = (0..100).map(truncate).collect();
        let schedule = json!({"format_version": 1, "faults": []});
        let schedule: Schedule = serde_json::from_value(schedule).unwrap();
        let told = story(&trace, &schedule, 90 * MS);
        let head = format!(
            "the {STEPS_MAX_COUNT} steps until then, after {} others:",
            91 - STEPS_MAX_COUNT
        );
        assert!(told.starts_with(&head), "{told}");
        assert!(told.ends_with("0.0900 s  n1   cuts its log back to 4"));
        assert_eq!(told.lines().count(), 1 + STEPS_MAX_COUNT);
    }

    /// Figure 8 of the Raft paper: whoever commits what an earlier epoch wrote before anything of its own.
    #[test]
    fn a_commit_of_an_earlier_epoch_is_told_on_one_screen() {
        let folder = Path::new(env!("CARGO_MANIFEST_DIR")).join("tests/scenarios");
        let path = folder.join("commits-what-another-epoch-wrote.json");
        let plan = Scenario::read(&path).unwrap().plan(1);
        let simulated = simulate(&plan, &Arc::new(AtomicBool::new(false))).unwrap();
        let at_ns = results_report::violated_at_ns(&simulated.verdict).unwrap();
        let told = story(
            &simulated.recording.trace,
            &simulated.recording.schedule,
            at_ns,
        );
        let lines: Vec<&str> = told.lines().collect();
        assert!(lines.len() <= 23, "{told}");
        assert!(lines.iter().all(|line| line.len() <= 100), "{told}");
        let commits = lines.last().unwrap();
        assert!(commits.contains("holds everything below"), "{told}");
        let node = commits.split_whitespace().nth(2).unwrap();
        let leads = format!("{node:<4} leads epoch");
        assert!(lines.iter().any(|line| line.contains(&leads)), "{told}");
        assert!(told.contains("fault 1: partition begins"), "{told}");
    }
}
