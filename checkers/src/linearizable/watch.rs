//! Owns the check of a history while it goes on: every key again and again, and once it is quiet. What is
//! about several keys at once is one.
//! Never has the last word: what it finds is a violation for sure, what it does not find may be one.

use std::collections::BTreeMap;

use results::history::{Operation, OperationType, Process};
use results::shared_text::SharedText;
use results::verdict::Validity;

use crate::Options;
use crate::workloads::{self, Checker};

/// A key is checked each time this many operations on it have completed.
const CHECK_EVERY_COUNT: usize = 16;

/// Where a key has so many lines for each of these that they are more, it is checked less often.
const LINES_PER_COMPLETION: usize = 64;

/// A key on which nothing happened for this long is checked once more.
const QUIET_NS: u64 = 1_000_000_000;

/// What one check may cost: it must not disturb what is being checked.
const TIME_LIMIT_MS: u64 = 100;
const MEMORY_LIMIT_BYTES: u64 = 64 << 20;

/// Looks at every line of a history as it is recorded.
///
/// An operation without a completion counts as one of unknown outcome. Whatever comes later, a history
/// that was not linearizable before will not become so.
#[derive(Debug, Clone)]
pub struct Watch {
    checker: Checker,
    keys: BTreeMap<SharedText, Watched>,
    /// When keys that are quiet were looked for last, ns since the run started.
    looked_ns: u64,
    violation: Option<String>,
}

#[derive(Debug, Clone, Default)]
struct Watched {
    lines: Vec<Operation>,
    unchecked_count: usize,
    last_ns: u64,
}

impl Watch {
    /// Before the first line of what clients of this workload do.
    pub fn new(workload: &str) -> Self {
        // The first checker of a workload is the strictest.
        let checkers = workloads::checkers(workload).into_iter();
        let strictest = checkers.map(|(_, checker)| checker).next();
        Self {
            checker: strictest.unwrap_or(super::check),
            keys: BTreeMap::new(),
            looked_ns: 0,
            violation: None,
        }
    }

    /// Takes in the next line.
    pub fn observe(&mut self, line: &Operation) {
        let Process::Client(_) = line.process else {
            return;
        };
        if self.violation.is_some() {
            return;
        }
        let name = line.key.clone().unwrap_or_else(|| SharedText::from(""));
        let key = self.keys.entry(name).or_default();
        key.lines.push(line.clone());
        key.last_ns = line.time;
        if line.operation_type == OperationType::Ok {
            key.unchecked_count += 1;
        }
        let check_every = CHECK_EVERY_COUNT.max(key.lines.len() / LINES_PER_COMPLETION);
        if key.unchecked_count >= check_every {
            self.violation = key.check(self.checker);
        }
        if line.time >= self.looked_ns + QUIET_NS {
            self.looked_ns = line.time;
            self.check_quiet(line.time);
        }
    }

    /// Checks keys that have become quiet.
    fn check_quiet(&mut self, now_ns: u64) {
        let checker = self.checker;
        for key in self.keys.values_mut() {
            let is_quiet = key.last_ns + QUIET_NS <= now_ns;
            if is_quiet && key.unchecked_count > 0 && self.violation.is_none() {
                self.violation = key.check(checker);
            }
        }
    }

    /// The first violation, in words.
    pub fn violation(&self) -> Option<&str> {
        self.violation.as_deref()
    }
}

impl Watched {
    fn check(&mut self, checker: Checker) -> Option<String> {
        self.unchecked_count = 0;
        let options = Options {
            linearizability_time_limit_ms: TIME_LIMIT_MS,
            linearizability_memory_limit_bytes: MEMORY_LIMIT_BYTES,
            ..Options::default()
        };
        let result = checker(&self.lines, &options);
        (result.valid == Validity::Invalid).then_some(result.summary)
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn line(index: u64, process: u64, kind: &str, f: &str, value: u64) -> Operation {
        let value = match (kind, f) {
            ("invoke", "read") => serde_json::Value::Null,
            _ => value.into(),
        };
        serde_json::from_value(serde_json::json!({
            "index": index, "time": index * 1_000_000, "process": process, "type": kind,
            "f": f, "key": "3", "value": value,
        }))
        .unwrap()
    }

    /// Writes and reads of rising values, two lines each. Lines of other keys stand between them.
    fn lines(count: u64) -> Vec<Operation> {
        let mut lines = Vec::new();
        for value in 1..=count {
            for (process, f) in [(0, "write"), (1, "read")] {
                for kind in ["invoke", "ok"] {
                    let index = 2 * lines.len() as u64;
                    lines.push(line(index, process, kind, f, value));
                }
            }
        }
        lines
    }

    #[test]
    fn a_violation_is_noticed_soon_after_it_happens() {
        let mut history = lines(100);
        let stale = 201;
        history[stale + 2].value = 20.into();
        let mut watch = Watch::new("register");
        let noticed = history.iter().position(|line| {
            watch.observe(line);
            watch.violation().is_some()
        });
        let noticed = noticed.expect("a violation");
        assert!((stale..stale + 80).contains(&noticed), "{noticed}");
        let words = watch.violation().unwrap();
        assert!(
            words.contains("key 3") && words.contains("returned 20"),
            "{words}"
        );
    }

    #[test]
    fn a_key_that_becomes_quiet_is_checked_although_little_happened() {
        let mut history = lines(2);
        history[7].value = 1.into();
        let mut watch = Watch::new("register");
        for line in &history {
            watch.observe(line);
        }
        assert_eq!(watch.violation(), None, "too little to look at yet");
        let mut later = line(100, 2, "invoke", "read", 0);
        later.key = Some("4".into());
        later.time = 3_000_000_000;
        watch.observe(&later);
        assert!(watch.violation().is_some());
    }

    #[test]
    fn transactions_are_watched_all_together() {
        let mut watch = Watch::new("list-append");
        let mut index = 0;
        let mut observe = |process: u64, kind: &str, steps: serde_json::Value| {
            index += 1;
            let line = serde_json::json!({
                "index": index, "time": index * 1_000_000, "process": process, "type": kind,
                "f": "txn", "value": steps,
            });
            watch.observe(&serde_json::from_value(line).unwrap());
            watch.violation().map(ToOwned::to_owned)
        };
        for element in 1..=20 {
            let append = serde_json::json!([["append", "x", element]]);
            assert_eq!(observe(0, "invoke", append.clone()), None);
            assert_eq!(observe(0, "ok", append), None);
        }
        let mut noticed = None;
        for _ in 0..20 {
            observe(1, "invoke", serde_json::json!([["r", "x", null]]));
            noticed = noticed.or(observe(1, "ok", serde_json::json!([["r", "x", [1, 2]]])));
        }
        let noticed = noticed.expect("a violation");
        assert!(noticed.contains("G-single-real-time"), "{noticed}");
    }

    #[test]
    fn operations_under_way_are_no_violation() {
        let mut watch = Watch::new("register");
        for (number, line) in lines(200).into_iter().enumerate() {
            // Every third completion is not there yet.
            let is_late = number % 4 == 1 && number % 3 == 0;
            if !is_late || line.process == Process::Client(1) {
                let mut line = line;
                if line.process == Process::Client(0) {
                    line.process = Process::Client(10 + number as u64 / 4);
                }
                watch.observe(&line);
            }
        }
        assert_eq!(watch.violation(), None);
    }
}
