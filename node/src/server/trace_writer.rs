//! Owns the trace file of a process: one JSON line per event, on the harness' time axis.
//! Never keeps a line in memory longer than it takes to release what follows from it.

use std::fs::{File, OpenOptions};
use std::io::{self, Write};
use std::path::{Path, PathBuf};

use serde::Serialize;

use crate::ids::NodeId;
use crate::trace::Traced;

/// Where to trace to, and how events are labelled.
#[derive(Debug, Clone)]
pub struct TraceOptions {
    /// The file; lines are added at its end.
    pub path: PathBuf,
    /// Reading of CLOCK_MONOTONIC that counts as time 0, in nanoseconds.
    pub origin_ns: i64,
    /// How often the node was started in this run, from 1.
    pub incarnation: u32,
    /// Whether to report messages between replicas as well.
    pub messages: bool,
}

#[derive(Serialize)]
struct Line<'a> {
    time: u64,
    node: &'a str,
    incarnation: u32,
    seq: u64,
    #[serde(flatten)]
    traced: &'a Traced,
}

/// Writes the events of one process in order, without gaps in `seq`.
#[derive(Debug)]
pub(crate) struct TraceWriter {
    file: File,
    path: PathBuf,
    node: String,
    incarnation: u32,
    origin_ns: i64,
    messages: bool,
    next_seq: u64,
    lines: Vec<u8>,
}

impl TraceWriter {
    /// Opens the file for appending.
    pub(crate) fn open(options: &TraceOptions, node: NodeId) -> io::Result<Self> {
        let file = OpenOptions::new()
            .append(true)
            .create(true)
            .open(&options.path)?;
        Ok(Self {
            file,
            path: options.path.clone(),
            node: node.to_string(),
            incarnation: options.incarnation,
            origin_ns: options.origin_ns,
            messages: options.messages,
            next_seq: 0,
            lines: Vec::new(),
        })
    }

    /// Adds an event; it is in the file after the next [`TraceWriter::flush`].
    pub(crate) fn record(&mut self, monotonic_ns: i64, traced: &Traced) {
        let line = Line {
            time: u64::try_from(monotonic_ns.saturating_sub(self.origin_ns)).unwrap_or(0),
            node: &self.node,
            incarnation: self.incarnation,
            seq: self.next_seq,
            traced,
        };
        serde_json::to_writer(&mut self.lines, &line)
            .expect("an event of numbers and strings always encodes, and memory takes every byte");
        self.lines.push(b'\n');
        self.next_seq += 1;
    }

    /// Hands all lines to the operating system at once; from then on they survive a SIGKILL.
    pub(crate) fn flush(&mut self) -> io::Result<()> {
        if !self.lines.is_empty() {
            self.file.write_all(&self.lines)?;
            self.lines.clear();
        }
        Ok(())
    }

    /// Whether messages between replicas are to be reported.
    pub(crate) fn wants_messages(&self) -> bool {
        self.messages
    }

    /// How many events were told so far: the number of the next one.
    pub(crate) fn told_count(&self) -> u64 {
        self.next_seq
    }

    /// The file, for error messages.
    pub(crate) fn path(&self) -> &Path {
        &self.path
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, Offset};
    use crate::raft::Role;
    use crate::trace::TraceEvent;

    fn traced(epoch: i32, event: TraceEvent) -> Traced {
        Traced {
            epoch: Epoch(epoch),
            event,
        }
    }

    fn writer(path: &Path, incarnation: u32) -> TraceWriter {
        let options = TraceOptions {
            path: path.into(),
            origin_ns: 1_000,
            incarnation,
            messages: false,
        };
        TraceWriter::open(&options, NodeId(2)).unwrap()
    }

    #[test]
    fn lines_have_the_documented_format() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.jsonl");
        let mut writer = writer(&path, 3);
        writer.record(
            1_500,
            &traced(
                4,
                TraceEvent::Append {
                    base_offset: Offset(7),
                    last_offset: Offset(9),
                    batch_epoch: Epoch(4),
                    crc: 11,
                },
            ),
        );
        writer.record(
            2_000,
            &traced(
                5,
                TraceEvent::RoleChange {
                    role: Role::Leader,
                    leader: Some("n2".into()),
                    epoch_start_offset: Some(Offset(10)),
                    reason: "won the \"election\"",
                },
            ),
        );
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            "",
            "nothing before the flush"
        );
        writer.flush().unwrap();
        assert_eq!(
            std::fs::read_to_string(&path).unwrap(),
            concat!(
                r#"{"time":500,"node":"n2","incarnation":3,"seq":0,"epoch":4,"event":"append","#,
                r#""base_offset":7,"last_offset":9,"batch_epoch":4,"crc":11}"#,
                "\n",
                r#"{"time":1000,"node":"n2","incarnation":3,"seq":1,"epoch":5,"#,
                r#""event":"role-change","role":"leader","leader":"n2","epoch_start_offset":10,"#,
                r#""reason":"won the \"election\""}"#,
                "\n",
            )
        );
    }

    #[test]
    fn the_next_incarnation_appends_and_time_never_underflows() {
        let directory = tempfile::tempdir().unwrap();
        let path = directory.path().join("trace.jsonl");
        for incarnation in 1..=2 {
            let mut writer = writer(&path, incarnation);
            writer.record(10, &traced(1, TraceEvent::Flush { log_end: Offset(1) }));
            writer.flush().unwrap();
            writer.flush().unwrap();
        }
        let text = std::fs::read_to_string(&path).unwrap();
        let lines: Vec<serde_json::Value> = text
            .lines()
            .map(|line| serde_json::from_str(line).unwrap())
            .collect();
        assert_eq!(lines.len(), 2);
        for (line, incarnation) in lines.iter().zip(1..) {
            assert_eq!(
                (line["time"].as_u64(), line["seq"].as_u64()),
                (Some(0), Some(0))
            );
            assert_eq!(line["incarnation"], incarnation);
        }
    }
}
