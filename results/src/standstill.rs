//! Owns how a history tells of the machine: that it stood still, so that whatever was due meanwhile came late, or was
//! too busy to let nodes run.
//! Never says why it was.

use std::fmt;

use serde_json::{Value, json};

use crate::history::{Operation, OperationType, Process};

/// What the nemesis line of a history is called that tells of one.
pub const STANDSTILL: &str = "standstill";

/// A stretch of time in which the harness, and maybe all of the machine, did nothing.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub struct Standstill {
    /// When it was over, in nanoseconds since the run started.
    pub until_ns: u64,
    /// How long it lasted, in milliseconds.
    pub lasted_ms: u64,
}

impl Standstill {
    /// What a line of a history tells of one; `None` for any other line.
    pub fn of(line: &Operation) -> Option<Self> {
        let is_one = line.process == Process::Nemesis
            && line.operation_type == OperationType::Info
            && line.f == STANDSTILL;
        let lasted_ms = line.value.get("lasted_ms").and_then(Value::as_u64);
        let until_ns = line.time;
        lasted_ms.filter(|_| is_one).map(|lasted_ms| Self {
            until_ns,
            lasted_ms,
        })
    }

    /// All that a history tells of.
    pub fn all(history: &[Operation]) -> Vec<Self> {
        history.iter().filter_map(Self::of).collect()
    }

    /// The value of the line that tells of it at its end.
    pub fn value(&self) -> Value {
        json!({ "lasted_ms": self.lasted_ms })
    }

    /// When it began, in nanoseconds since the run started.
    pub fn from_ns(&self) -> u64 {
        self.until_ns.saturating_sub(self.lasted_ms * 1_000_000)
    }
}

impl fmt::Display for Standstill {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let (lasted_ms, until_s) = (self.lasted_ms, self.until_ns as f64 / 1e9);
        write!(out, "stood still for {lasted_ms} ms until {until_s:.1} s")
    }
}

/// What the nemesis line of a history is called that tells of a machine too busy to let nodes run.
pub const STRAIN: &str = "processor-wait";

/// A stretch of time, which ends with the line that tells of it, in which a node that wanted to run mostly could
/// not.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Strain {
    /// The node that waited longest.
    pub node: String,
    /// How long its threads waited for a processor, all together, in milliseconds.
    pub waited_ms: u64,
    /// How long the stretch was, in milliseconds.
    pub of_ms: u64,
}

impl Strain {
    /// What a line of a history tells of one; `None` for any other line.
    pub fn of(line: &Operation) -> Option<Self> {
        let is_one = line.process == Process::Nemesis && line.f == STRAIN;
        let number = |name| line.value.get(name).and_then(Value::as_u64);
        let node = line.value.get("node").and_then(Value::as_str);
        let node = node.filter(|_| is_one)?.to_owned();
        Some(Self {
            node,
            waited_ms: number("waited_ms")?,
            of_ms: number("of_ms")?,
        })
    }

    /// The value of the line that tells of it.
    pub fn value(&self) -> Value {
        json!({ "node": self.node, "waited_ms": self.waited_ms, "of_ms": self.of_ms })
    }
}

impl fmt::Display for Strain {
    fn fmt(&self, out: &mut fmt::Formatter<'_>) -> fmt::Result {
        let Self {
            node,
            waited_ms,
            of_ms,
        } = self;
        write!(
            out,
            "{node} waited for a processor for {waited_ms} ms in {of_ms} ms"
        )
    }
}

/// All of them in one sentence, for people; nothing if there are none.
pub fn told(all: &[Standstill]) -> Option<String> {
    let longest = all.iter().max_by_key(|one| one.lasted_ms)?;
    let times = match all.len() {
        1 => String::new(),
        count => format!(", the longest of {count} times"),
    };
    Some(format!(
        "The machine, or the harness on it, {longest}{times}; what was due meanwhile came late."
    ))
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(time_ms: u64, f: &str, value: Value) -> Operation {
        let line = json!({"index": 0, "time": time_ms * 1_000_000, "process": "nemesis",
            "type": "info", "f": f, "value": value});
        serde_json::from_value(line).unwrap()
    }

    #[test]
    fn what_a_line_says_is_read_back_and_nothing_else() {
        let standstill = Standstill {
            until_ns: 2_500_000_000,
            lasted_ms: 700,
        };
        let written = line(2_500, STANDSTILL, standstill.value());
        assert_eq!(Standstill::of(&written), Some(standstill));
        assert_eq!(standstill.from_ns(), 1_800_000_000);
        assert_eq!(Standstill::of(&line(1, "halted", standstill.value())), None);
        assert_eq!(Standstill::of(&line(1, STANDSTILL, json!(null))), None);
    }

    #[test]
    fn a_strain_is_read_back() {
        let strain = Strain {
            node: "n1".into(),
            waited_ms: 5_000,
            of_ms: 6_000,
        };
        assert_eq!(Strain::of(&line(1, STRAIN, strain.value())), Some(strain));
        assert_eq!(Strain::of(&line(1, STRAIN, json!({"node": "n1"}))), None);
    }

    #[test]
    fn the_longest_is_told_and_how_many_there_were() {
        let of = |lasted_ms| Standstill {
            until_ns: 4_000_000_000,
            lasted_ms,
        };
        assert_eq!(told(&[]), None);
        let one = told(&[of(150)]).unwrap();
        assert!(one.contains("stood still for 150 ms until 4.0 s;"), "{one}");
        let two = told(&[of(150), of(900)]).unwrap();
        assert!(
            two.contains("900 ms until 4.0 s, the longest of 2 times;"),
            "{two}"
        );
    }
}
