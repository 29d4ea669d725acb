//! Owns what the history says about the liveness phase: who was healed, when, and how it ended.
//! Never fills in what is not there.

use results::history::{Operation, Process};
use serde_json::{Value, json};

use crate::liveness::{CORE_CHOSEN, CORE_GIVEN_UP, CORE_HEALED, CORE_LEFT, CORE_SETTLED};
use crate::node_logs::CRASH;

/// A liveness phase as it was recorded.
#[derive(Debug)]
pub(super) struct Phase<'a> {
    pub(super) core: Vec<String>,
    pub(super) rest: Vec<String>,
    pub(super) is_rest_dead: bool,
    /// When the rest was cut off.
    pub(super) chosen_ns: u64,
    pub(super) healed: Option<Healed>,
    pub(super) outcome: Outcome,
    /// When what was broken for the phase was about to be healed.
    pub(super) left_ns: Option<u64>,
    /// Whether a node of the core ended unasked meanwhile: the phase says nothing about the others then.
    pub(super) crashed_in_core: bool,
    lines: Vec<&'a Operation>,
}

/// When the core was in order, and how long it may take.
#[derive(Debug, Clone, Copy)]
pub(super) struct Healed {
    pub(super) time_ns: u64,
    pub(super) bound_ms: u64,
    /// How long each node must have had nothing to do with what was there before.
    pub(super) window_ms: u64,
    /// How much longer timers may take because clocks were ahead before.
    pub(super) slack_ms: u64,
}

/// How the phase ended.
#[derive(Debug)]
pub(super) enum Outcome {
    /// The core served.
    Settled(Ending),
    /// It did not, and its time was over.
    GivenUp(Ending),
    /// Nobody knows.
    Open,
}

/// What the last line of the phase says.
#[derive(Debug)]
pub(super) struct Ending {
    pub(super) time_ns: u64,
    pub(super) since_ns: u64,
    pub(super) epoch: Option<i64>,
    pub(super) tried_count: u64,
    pub(super) success_count: u64,
    pub(super) longest_wait_ms: u64,
}

impl Ending {
    fn read(line: &Operation) -> Self {
        let number = |field: &str| line.value[field].as_u64().unwrap_or(0);
        Self {
            time_ns: line.time,
            since_ns: number("since_ns"),
            epoch: line.value["epoch"].as_i64(),
            tried_count: number("tried_count"),
            success_count: number("success_count"),
            longest_wait_ms: number("longest_wait_ms"),
        }
    }
}

impl<'a> Phase<'a> {
    /// The phase of a history, if it has one.
    pub(super) fn find(history: &'a [Operation]) -> Option<Self> {
        let nemesis = |line: &&Operation| line.process == Process::Nemesis;
        let mut lines = history.iter().filter(nemesis);
        let chosen = lines.find(|line| line.f == CORE_CHOSEN)?;
        let names = |field: &str| -> Option<Vec<String>> {
            let names = chosen.value[field].as_array()?.iter();
            names.map(|name| Some(name.as_str()?.to_owned())).collect()
        };
        let mut phase = Self {
            core: names("core")?,
            rest: names("rest")?,
            is_rest_dead: chosen.value["rest_is"] == "dead",
            chosen_ns: chosen.time,
            healed: None,
            outcome: Outcome::Open,
            left_ns: None,
            crashed_in_core: false,
            lines: vec![chosen],
        };
        for line in lines {
            phase.read(line);
            if phase.left_ns.is_some() {
                break;
            }
        }
        Some(phase)
    }

    fn read(&mut self, line: &'a Operation) {
        match line.f.as_ref() {
            CORE_HEALED => {
                self.healed = line.value["bound_ms"].as_u64().map(|bound_ms| Healed {
                    time_ns: line.time,
                    bound_ms,
                    window_ms: line.value["window_ms"].as_u64().unwrap_or(u64::MAX),
                    slack_ms: line.value["slack_ms"].as_u64().unwrap_or(0),
                });
            }
            CORE_SETTLED if line.value["since_ns"].is_u64() => {
                self.outcome = Outcome::Settled(Ending::read(line));
            }
            CORE_GIVEN_UP => self.outcome = Outcome::GivenUp(Ending::read(line)),
            CORE_LEFT => self.left_ns = Some(line.time),
            CRASH => {
                let node = line.value["node"].as_str();
                self.crashed_in_core |=
                    node.is_some_and(|node| self.core.iter().any(|name| name == node));
                return;
            }
            _ => return,
        }
        self.lines.push(line);
    }

    /// Until when the rest ran on, cut off from everybody.
    pub(super) fn cut_off_until(&self) -> Option<u64> {
        self.left_ns.filter(|_| !self.is_rest_dead)
    }

    /// What had become of the rest, after its names.
    pub(super) fn rest_is(&self) -> &'static str {
        if self.is_rest_dead { "dead" } else { "cut off" }
    }

    /// Whether whoever watched did not get to look for so long.
    pub(super) fn stood_still(&self, limit_ms: u64) -> bool {
        match &self.outcome {
            Outcome::Settled(ending) | Outcome::GivenUp(ending) => {
                ending.longest_wait_ms > limit_ms
            }
            Outcome::Open => true,
        }
    }

    /// The lines that tell of the phase.
    pub(super) fn evidence(&self) -> Value {
        let lines = self.lines.iter();
        let lines: Vec<Value> = lines
            .map(|line| json!({ "index": line.index, "time": line.time, "f": line.f, "value": line.value }))
            .collect();
        json!({ "lines": lines })
    }
}
