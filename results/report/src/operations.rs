//! Owns the operations of a run as pairs of invocation and completion, and what is counted of them.
//! Never decides whether an operation was right.

use std::collections::BTreeMap;

use results::history::{Operation, OperationType, Process};
use results::standstill::Standstill;

use crate::names::{Names, Stretch, Texts};
use crate::values;

/// What became of an operation.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub(crate) enum Outcome {
    /// It took effect.
    Ok,
    /// It certainly did not.
    Fail,
    /// Nobody knows.
    Info,
}

impl Outcome {
    pub(crate) const ALL: [Self; 3] = [Self::Ok, Self::Fail, Self::Info];

    /// The word of the recording.
    pub(crate) fn word(self) -> &'static str {
        match self {
            Self::Ok => "ok",
            Self::Fail => "fail",
            Self::Info => "info",
        }
    }
}

/// One client operation.
#[derive(Debug, Clone, Copy)]
pub(crate) struct Timed {
    /// Nanoseconds since the run started.
    pub(crate) invoked_ns: u64,
    /// Nanoseconds since the run started; `None` when no completion was recorded.
    pub(crate) completed_ns: Option<u64>,
    /// `Info` when no completion was recorded.
    pub(crate) outcome: Outcome,
    /// Client process.
    pub(crate) process: u64,
    /// Position of the invocation in the history.
    pub(crate) index: u64,
    /// Number of its function in [`Operations::functions`].
    pub(crate) function: u32,
    /// Number of its key in [`Operations::keys`].
    pub(crate) key: Option<u32>,
    /// Number of the answering node in [`Operations::nodes`].
    pub(crate) node: Option<u32>,
    /// Number of its error in [`Operations::error_kinds`].
    pub(crate) error: Option<u32>,
    /// Its result when it took effect, else its argument, in [`Operations::values`].
    pub(crate) value: Stretch,
}

impl Timed {
    /// Time from invocation to completion.
    pub(crate) fn latency_ns(&self) -> Option<u64> {
        Some(self.completed_ns?.saturating_sub(self.invoked_ns))
    }
}

/// All client operations of a run, and what the nemesis measured of the nodes' clocks.
#[derive(Debug, Default)]
pub(crate) struct Operations {
    /// In order of invocation.
    pub(crate) list: Vec<Timed>,
    /// How often each node answered `ok`.
    pub(crate) ok_by_node: BTreeMap<String, u64>,
    /// How often each error ended an operation, by outcome and kind.
    pub(crate) errors: BTreeMap<(Outcome, String), u64>,
    /// Clock offsets in milliseconds by node, with the time of the measurement in nanoseconds.
    pub(crate) clock_samples: Vec<(u64, BTreeMap<String, f64>)>,
    /// When the machine stood still, in order.
    pub(crate) standstills: Vec<Standstill>,
    /// Completions without invocation.
    pub(crate) unmatched_count: u64,
    /// Time of the last line, in nanoseconds.
    pub(crate) last_ns: u64,
    /// Functions in order of first use.
    pub(crate) functions: Names,
    /// Keys in order of first use.
    pub(crate) keys: Names,
    /// Answering nodes in order of their first answer.
    pub(crate) nodes: Names,
    /// Kinds of error in order of first occurrence.
    pub(crate) error_kinds: Names,
    /// Arguments and results.
    pub(crate) values: Texts,
    open: BTreeMap<u64, usize>,
}

/// Counts and latencies of one function.
#[derive(Debug)]
pub(crate) struct FunctionNumbers {
    /// `read`, `write`, `cas`, ...; `all` for the total.
    pub(crate) function: String,
    /// Operations that took effect.
    pub(crate) ok_count: u64,
    /// Operations that certainly did not.
    pub(crate) fail_count: u64,
    /// Operations with unknown outcome.
    pub(crate) info_count: u64,
    /// Latencies of the `ok` operations at p50, p95, p99 and the maximum, each with the index of an operation that
    /// took so long; `None` without any.
    pub(crate) latencies_ns: Option<[(u64, u64); 4]>,
}

impl Operations {
    /// Takes the next line of the history.
    pub(crate) fn take(&mut self, line: Operation) {
        self.last_ns = self.last_ns.max(line.time);
        let Process::Client(process) = line.process else {
            self.take_nemesis(&line);
            return;
        };
        let outcome = match line.operation_type {
            OperationType::Invoke => {
                self.begin(process, line);
                return;
            }
            OperationType::Ok => Outcome::Ok,
            OperationType::Fail => Outcome::Fail,
            OperationType::Info => Outcome::Info,
        };
        let Some(position) = self.open.remove(&process) else {
            self.unmatched_count += 1;
            return;
        };
        let operation = &mut self.list[position];
        operation.completed_ns = Some(line.time);
        operation.outcome = outcome;
        if outcome == Outcome::Ok {
            let value = values::told(&line.value);
            if self.values.get(operation.value) != value {
                operation.value = self.values.add(&value);
            }
        }
        if let (Outcome::Ok, Some(node)) = (outcome, line.node) {
            operation.node = Some(self.nodes.number(node.as_str()));
            *self.ok_by_node.entry(node.to_string()).or_default() += 1;
        }
        if let Some(error) = line.error {
            operation.error = Some(self.error_kinds.number(&error.kind));
            *self.errors.entry((outcome, error.kind)).or_default() += 1;
        }
    }

    fn begin(&mut self, process: u64, line: Operation) {
        self.open.insert(process, self.list.len());
        self.list.push(Timed {
            invoked_ns: line.time,
            completed_ns: None,
            outcome: Outcome::Info,
            process,
            index: line.index,
            function: self.functions.number(&line.f),
            key: line.key.map(|key| self.keys.number(key.as_str())),
            node: None,
            error: None,
            value: self.values.add(&values::told(&line.value)),
        });
    }

    fn take_nemesis(&mut self, line: &Operation) {
        self.standstills.extend(Standstill::of(line));
        if line.f != "clock-offsets" || line.operation_type == OperationType::Invoke {
            return;
        }
        let Some(offsets) = line.value.as_object() else {
            return;
        };
        let sample: BTreeMap<_, _> = offsets
            .iter()
            .filter_map(|(node, offset)| Some((node.clone(), offset.as_f64()?)))
            .collect();
        if !sample.is_empty() {
            self.clock_samples.push((line.time, sample));
        }
    }

    /// How many operations ended with `outcome`.
    pub(crate) fn count(&self, outcome: Outcome) -> u64 {
        let matching = self.list.iter().filter(|one| one.outcome == outcome);
        matching.count() as u64
    }

    /// Operations without any recorded completion.
    pub(crate) fn open_count(&self) -> u64 {
        let open = self.list.iter().filter(|one| one.completed_ns.is_none());
        open.count() as u64
    }

    /// Numbers of every function in order of first use, and of all together.
    pub(crate) fn numbers(&self) -> Vec<FunctionNumbers> {
        let mut rows: Vec<_> = self
            .functions
            .iter()
            .zip(0u32..)
            .map(|(name, function)| {
                let own = self.list.iter().filter(|one| one.function == function);
                numbers_of(name, own)
            })
            .collect();
        if rows.len() > 1 {
            rows.push(numbers_of("all", self.list.iter()));
        }
        rows
    }
}

fn numbers_of<'a>(name: &str, operations: impl Iterator<Item = &'a Timed>) -> FunctionNumbers {
    let mut counts = [0; 3];
    let mut latencies = Vec::new();
    for operation in operations {
        counts[operation.outcome as usize] += 1;
        if let (Outcome::Ok, Some(latency)) = (operation.outcome, operation.latency_ns()) {
            latencies.push((latency, operation.index));
        }
    }
    latencies.sort_unstable();
    let latencies_ns = (!latencies.is_empty())
        .then(|| [50, 95, 99, 100].map(|percent| quantile(&latencies, percent)));
    FunctionNumbers {
        function: name.to_owned(),
        ok_count: counts[Outcome::Ok as usize],
        fail_count: counts[Outcome::Fail as usize],
        info_count: counts[Outcome::Info as usize],
        latencies_ns,
    }
}

/// The nearest-rank quantile of a sorted, non-empty list.
pub(crate) fn quantile<T: Copy>(sorted: &[T], percent: u64) -> T {
    let rank = (sorted.len() as u64 * percent).div_ceil(100).max(1);
    sorted[rank as usize - 1]
}

#[cfg(test)]
mod tests {
    use super::*;

    fn operations(lines: &[&str]) -> Operations {
        let mut operations = Operations::default();
        for line in lines {
            operations.take(serde_json::from_str(line).unwrap());
        }
        operations
    }

    #[test]
    fn completions_find_their_invocation_and_open_operations_stay_unknown() {
        let operations = operations(&[
            r#"{"index":0,"time":10,"process":0,"type":"invoke","f":"write","value":1}"#,
            r#"{"index":1,"time":15,"process":1,"type":"invoke","f":"read"}"#,
            r#"{"index":2,"time":40,"process":0,"type":"ok","f":"write","value":1,"node":"n2"}"#,
            r#"{"index":3,"time":50,"process":9,"type":"ok","f":"write","value":1}"#,
        ]);
        assert_eq!(operations.list[0].latency_ns(), Some(30));
        assert_eq!(operations.list[1].outcome, Outcome::Info);
        assert_eq!(operations.open_count(), 1);
        assert_eq!(operations.unmatched_count, 1);
        assert_eq!(operations.ok_by_node["n2"], 1);
        let numbers = operations.numbers();
        assert_eq!(
            numbers
                .iter()
                .map(|row| row.function.as_str())
                .collect::<Vec<_>>(),
            ["write", "read", "all"]
        );
        assert_eq!(numbers[2].info_count, 1);
    }

    #[test]
    fn quantiles_are_nearest_rank() {
        let sorted: Vec<u64> = (1..=100).collect();
        assert_eq!(quantile(&sorted, 50), 50);
        assert_eq!(quantile(&sorted, 99), 99);
        assert_eq!(quantile(&sorted, 100), 100);
        assert_eq!(quantile(&[7], 50), 7);
    }

    #[test]
    fn clock_samples_come_from_nemesis_lines() {
        let operations = operations(&[
            r#"{"index":0,"time":5,"process":"nemesis","type":"info",
                "f":"clock-offsets","value":{"n1":-300.2,"n2":"?"}}"#,
            r#"{"index":1,"time":6,"process":"nemesis","type":"info",
                "f":"start-kill","value":{"n1":1}}"#,
        ]);
        assert_eq!(operations.clock_samples.len(), 1);
        assert_eq!(operations.clock_samples[0].1["n1"], -300.2);
        assert!(operations.list.is_empty());
    }
}
