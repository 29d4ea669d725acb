//! Owns reading a run folder for display: the readable is kept, the unreadable is named.
//! Never fails because of one damaged file, and never decides anything about the run.

use std::path::Path;

use results::housekeeping::may_be_going_on;
use results::manifest::Manifest;
use results::packed;
use results::schedule::{FaultOutcome, ScheduledFault};
use results::store::RunFolder;
use results::verdict::Verdict;

use crate::context::Background;
use crate::operations::Operations;
use crate::timeline::NodeTimeline;

/// Part of a recording that could not be read.
#[derive(Debug)]
pub(crate) struct Damage {
    /// The file, relative to the run folder.
    pub(crate) file: String,
    /// What is wrong with it, for people.
    pub(crate) what: String,
}

/// Everything readable of one run.
#[derive(Debug)]
pub(crate) struct Run {
    /// Name of the folder, by which the run is found again.
    pub(crate) name: String,
    /// `None` when missing or damaged.
    pub(crate) manifest: Option<Manifest>,
    /// `None` when missing or damaged.
    pub(crate) verdict: Option<Verdict>,
    /// Empty when missing or damaged.
    pub(crate) faults: Vec<ScheduledFault>,
    /// Whatever of the history could be read.
    pub(crate) operations: Operations,
    /// One life per node that left a folder.
    pub(crate) nodes: Vec<NodeTimeline>,
    /// Whether it is not over, or being judged.
    pub(crate) is_going_on: bool,
    /// What could not be read.
    pub(crate) damages: Vec<Damage>,
    /// Files of the run that a person may want to open, relative to the run folder.
    pub(crate) files: Vec<String>,
}

impl Run {
    /// Reads a run folder.
    pub(crate) fn read(folder: &RunFolder) -> Self {
        let mut damages = Vec::new();
        let manifest = required(folder.manifest(), "manifest.json", &mut damages);
        let verdict = required(folder.verdict(), "verdict.json", &mut damages).flatten();
        let faults = required(folder.schedule(), "schedule.json", &mut damages)
            .map(|schedule| schedule.faults)
            .unwrap_or_default();

        let mut operations = Operations::default();
        each_line(
            &folder.history_path(),
            "history.jsonl",
            &mut damages,
            |line| {
                operations.take(serde_json::from_slice(line)?);
                Ok(())
            },
        );

        let nodes = nodes_of(folder, &faults, &mut damages);
        let is_going_on = manifest
            .as_ref()
            .is_some_and(|manifest| may_be_going_on(folder, manifest));
        let mut run = Self {
            is_going_on,
            name: folder_name(folder.path()),
            manifest,
            verdict,
            faults,
            operations,
            files: files_of(folder, &nodes),
            nodes,
            damages,
        };
        let end_ns = run.end_ns();
        for node in &mut run.nodes {
            node.finish(end_ns);
        }
        run
    }

    /// Whether the schedule is known, be it empty.
    pub(crate) fn schedule_is_readable(&self) -> bool {
        let mut damaged = self.damages.iter();
        !damaged.any(|damage| damage.file == "schedule.json")
    }

    /// What went on besides, at any time.
    pub(crate) fn background(&self) -> Background<'_> {
        Background {
            faults: &self.faults,
            nodes: &self.nodes,
        }
    }

    /// The last moment that anything in the recording speaks of, in nanoseconds since the start.
    pub(crate) fn end_ns(&self) -> u64 {
        let finished = self.manifest.as_ref().and_then(|run| run.phases.finished);
        let traces = self.nodes.iter().map(NodeTimeline::last_event_ns);
        let end_ns = traces
            .chain(finished)
            .chain([self.operations.last_ns])
            .max()
            .unwrap_or(0);
        if end_ns > 0 {
            return end_ns;
        }
        let planned = self.manifest.as_ref().map_or(0, |run| run.options.time_ms);
        planned.max(1000).saturating_mul(1_000_000)
    }
}

/// The lives of the nodes alone, as far as their traces can be read, until the last one of them fell silent.
pub(crate) fn lives(folder: &RunFolder, faults: &[ScheduledFault]) -> Vec<NodeTimeline> {
    let mut nodes = nodes_of(folder, faults, &mut Vec::new());
    let end_ns = nodes.iter().map(NodeTimeline::last_event_ns).max();
    for node in &mut nodes {
        node.finish(end_ns.unwrap_or(0));
    }
    nodes
}

fn nodes_of(
    folder: &RunFolder,
    faults: &[ScheduledFault],
    damages: &mut Vec<Damage>,
) -> Vec<NodeTimeline> {
    let mut nodes = Vec::new();
    for node in required(folder.nodes(), "nodes", damages).unwrap_or_default() {
        let mut timeline = NodeTimeline::new(&node, kills_of(&node, faults));
        let file = format!("nodes/{node}/trace.jsonl");
        each_line(&folder.trace_path(&node), &file, damages, |line| {
            timeline.take_line(line)
        });
        nodes.push(timeline);
    }
    nodes
}

/// Name of a run's folder, also when the path ends in `.` or is a link.
pub(crate) fn folder_name(path: &Path) -> String {
    let resolved = path.canonicalize().unwrap_or_else(|_| path.to_path_buf());
    resolved
        .file_name()
        .map(|name| name.to_string_lossy().into_owned())
        .unwrap_or_default()
}

fn required<T>(read: results::Result<T>, file: &str, damages: &mut Vec<Damage>) -> Option<T> {
    match read {
        Ok(found) => Some(found),
        Err(error) => {
            damages.push(Damage {
                file: file.to_owned(),
                what: reason_of(error),
            });
            None
        }
    }
}

/// The reason alone: the file is named next to it, and its absolute path says nothing to a reader.
pub(crate) fn reason_of(error: results::Error) -> String {
    match error {
        results::Error::Io { source, .. } if source.kind() == std::io::ErrorKind::NotFound => {
            "missing".into()
        }
        results::Error::Io { source, .. } => source.to_string(),
        results::Error::Malformed { line, reason, .. } => format!("line {line}: {reason}"),
        results::Error::UnsupportedVersion {
            found, supported, ..
        } => format!(
            "has format version {found}; this program reads versions up to {supported}, a newer one wrote it"
        ),
        other => other.to_string(),
    }
}

/// Hands every line to `take`; lines it refuses are counted and the first one is described.
fn each_line(
    path: &Path,
    file: &str,
    damages: &mut Vec<Damage>,
    mut take: impl FnMut(&[u8]) -> Result<(), serde_json::Error>,
) {
    let mut damage = |what: String| {
        damages.push(Damage {
            file: file.to_owned(),
            what,
        });
    };
    let content = match packed::read(path) {
        Ok(content) => content,
        Err(error) => return damage(reason_of(error)),
    };
    let mut first = None;
    let mut refused_count = 0u64;
    for (number, line) in content.split_inclusive(|byte| *byte == b'\n').enumerate() {
        if line.iter().all(u8::is_ascii_whitespace) {
            continue;
        }
        let Err(error) = take(line) else {
            continue;
        };
        if line.ends_with(b"\n") {
            refused_count += 1;
            first.get_or_insert_with(|| format!("line {}: {error}", number + 1));
        } else {
            damage(format!(
                "the last line ({}) was cut off while it was written",
                number + 1
            ));
        }
    }
    if let Some(first) = first {
        damage(match refused_count {
            1 => format!("{first}; the other lines were read"),
            count => format!("{first}; {count} lines in all could not be read, the others were"),
        });
    }
}

/// Kinds of faults that end the processes of their targets as they begin.
const KILLING: [&str; 4] = ["kill", "kill-clean", "restart", "wipe"];

/// When the nemesis ended the process of `node`, in nanoseconds.
fn kills_of(node: &str, faults: &[ScheduledFault]) -> Vec<u64> {
    let kills = faults.iter().filter(|fault| {
        KILLING.contains(&fault.fault.kind.as_str()) && fault.outcome != Some(FaultOutcome::Skipped)
    });
    kills
        .filter_map(|fault| fault.resolved.as_ref())
        .filter(|resolved| resolved.nodes().any(|target| target == node))
        .map(|resolved| resolved.at_ms.saturating_mul(1_000_000))
        .collect()
}

fn files_of(folder: &RunFolder, nodes: &[NodeTimeline]) -> Vec<String> {
    let top = [
        "manifest.json",
        "history.jsonl",
        "schedule.json",
        "verdict.json",
        "junit.xml",
    ];
    let mut files: Vec<String> = top.map(str::to_owned).into();
    for node in nodes {
        for file in ["trace.jsonl", "disk.json", "node.log"] {
            files.push(format!("nodes/{}/{file}", node.node));
        }
    }
    files.push("network.pcap".to_owned());
    let there = files.into_iter().filter_map(|file| {
        let packed = format!("{file}{}", packed::ENDING);
        let is_there = |file: &str| folder.path().join(file).is_file();
        match () {
            () if file == "junit.xml" || is_there(&file) => Some(file),
            () => is_there(&packed).then_some(packed),
        }
    });
    there.collect()
}

#[cfg(test)]
mod tests {
    use super::*;

    fn read_numbers(content: &str) -> (Vec<u64>, Vec<Damage>) {
        let folder = tempfile::tempdir().unwrap();
        let path = folder.path().join("lines.jsonl");
        std::fs::write(&path, content).unwrap();
        let (mut numbers, mut damages) = (Vec::new(), Vec::new());
        each_line(&path, "lines.jsonl", &mut damages, |line| {
            numbers.push(serde_json::from_slice(line)?);
            Ok(())
        });
        (numbers, damages)
    }

    #[test]
    fn lines_around_a_damaged_one_are_kept() {
        let (numbers, damages) = read_numbers("1\n\n{\n3\nx\n");
        assert_eq!(numbers, [1, 3]);
        assert_eq!(damages.len(), 1);
        assert!(
            damages[0].what.starts_with("line 3: "),
            "{}",
            damages[0].what
        );
        assert!(
            damages[0].what.contains("2 lines in all"),
            "{}",
            damages[0].what
        );
    }

    #[test]
    fn a_torn_last_line_is_named_and_a_complete_one_without_newline_is_kept() {
        let (numbers, damages) = read_numbers("1\n2");
        assert_eq!((numbers.as_slice(), damages.len()), ([1, 2].as_slice(), 0));
        let (numbers, damages) = read_numbers("1\n{\"a");
        assert_eq!(numbers, [1]);
        assert!(damages[0].what.contains("cut off"), "{}", damages[0].what);
    }
}
