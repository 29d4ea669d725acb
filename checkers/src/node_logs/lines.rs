//! Owns the list of what must never stand in the log of a node, and finding it there.
//! Never takes an end of a node from its log: ends are recorded as events, by whoever saw them.

use std::collections::BTreeMap;

use results::schedule::Schedule;

use crate::disk_faults::{error_of, may_have_damaged, may_have_hit};

/// Something that must not be in a log.
struct Forbidden {
    /// What a line has in it.
    words: &'static str,
    /// Why it must not be there, for people.
    why: &'static str,
    excuse: Excuse,
}

/// What explains a line that is forbidden otherwise.
#[derive(Clone, Copy, PartialEq, Eq)]
enum Excuse {
    None,
    /// A fault of the node's disk, with the words of the operating system.
    Disk,
    /// Bits that a fault turned over on the way.
    Corruption,
}

const FORBIDDEN: [Forbidden; 9] = [
    Forbidden {
        words: "panicked at",
        why: "a thread panicked, and what it was doing is left half done",
        excuse: Excuse::None,
    },
    Forbidden {
        words: "assertion ",
        why: "an assertion of the node failed",
        excuse: Excuse::None,
    },
    Forbidden {
        words: "entered unreachable code",
        why: "the node came to a point that cannot be reached",
        excuse: Excuse::None,
    },
    Forbidden {
        words: "has overflowed its stack",
        why: "a thread used up its stack",
        excuse: Excuse::None,
    },
    Forbidden {
        words: "memory allocation of",
        why: "the node got no more memory",
        excuse: Excuse::None,
    },
    Forbidden {
        words: "Sanitizer:",
        why: "a sanitizer found undefined behaviour",
        excuse: Excuse::None,
    },
    Forbidden {
        words: "INCONSISTENT_CLUSTER_ID",
        why: "all nodes of a run belong to one cluster",
        excuse: Excuse::Corruption,
    },
    Forbidden {
        words: "INVALID_REQUEST",
        why: "no node sends what another one finds senseless",
        excuse: Excuse::Corruption,
    },
    Forbidden {
        words: "ERROR",
        why: "nothing that was done to the node explains this error",
        excuse: Excuse::Disk,
    },
];

/// A line that must not be there.
#[derive(Debug, PartialEq, Eq)]
pub(super) struct Offence {
    pub(super) node: String,
    /// From 1.
    pub(super) line: u64,
    pub(super) text: String,
    pub(super) why: &'static str,
}

/// The longest part of a line that is told.
const TEXT_CHARS_MAX: usize = 300;

/// Every line of the logs, by node, that must not be there.
pub(super) fn offences(logs: &BTreeMap<String, String>, schedule: &Schedule) -> Vec<Offence> {
    let mut found = Vec::new();
    for (node, log) in logs {
        for (number, text) in log.lines().enumerate() {
            let mut forbidden = FORBIDDEN.iter();
            let Some(forbidden) = forbidden.find(|forbidden| is_in(forbidden.words, text)) else {
                continue;
            };
            if is_excused(forbidden.excuse, node, text, schedule) {
                continue;
            }
            found.push(Offence {
                node: node.clone(),
                line: number as u64 + 1,
                text: text.chars().take(TEXT_CHARS_MAX).collect(),
                why: forbidden.why,
            });
        }
    }
    found
}

/// `ERROR` is the level of a line as text or JSON, and no part of another word.
fn is_in(words: &str, text: &str) -> bool {
    if words != "ERROR" {
        return text.contains(words);
    }
    let is_word = |word: &str| word.trim_matches(|it| "\",:[]".contains(it)) == words;
    let is_json = text.contains("\"level\":\"ERROR\"");
    is_json || text.split_whitespace().take(3).any(is_word)
}

fn is_excused(excuse: Excuse, node: &str, text: &str, schedule: &Schedule) -> bool {
    let mut faults = schedule.faults.iter().filter(|fault| fault.was_injected());
    match excuse {
        Excuse::None => false,
        Excuse::Corruption => {
            faults.any(|fault| fault.fault.parameters.contains_key("corrupt_percent"))
        }
        Excuse::Disk => faults.any(|fault| {
            let is_failed = error_of(fault).is_some_and(|error| text.contains(error));
            may_have_damaged(fault, node) || (is_failed && may_have_hit(fault, node))
        }),
    }
}

#[cfg(test)]
mod tests {
    use serde_json::{Value, json};

    use super::*;

    fn schedule(faults: Value) -> Schedule {
        serde_json::from_value(json!({"format_version": 1, "faults": faults})).unwrap()
    }

    fn found(log: &str, schedule: &Schedule) -> Vec<(u64, &'static str)> {
        let logs = BTreeMap::from([("n2".to_owned(), log.to_owned())]);
        let found = offences(&logs, schedule).into_iter();
        found.map(|offence| (offence.line, offence.why)).collect()
    }

    #[test]
    fn every_kind_of_forbidden_line_is_found_with_its_reason() {
        let lines = [
            "thread 'peer' panicked at node/src/x.rs:3:5:",
            "n2 stopped: assertion `left == right` failed (leader in epoch 3)",
            "internal error: entered unreachable code: no such role",
            "thread 'main' has overflowed its stack",
            "memory allocation of 42 bytes failed",
            "==7==ERROR: AddressSanitizer: heap-use-after-free",
            "2026-11-30T09:47:04Z  WARN n2 leader epoch 3: a peer belongs to another cluster (INCONSISTENT_CLUSTER_ID)",
            "2026-11-30T09:47:04Z  WARN n2 leader epoch 3: a peer finds it senseless (INVALID_REQUEST)",
            "2026-11-30T09:47:04Z ERROR n2 leader epoch 3: cannot go on",
            "{\"time\":\"x\",\"level\":\"ERROR\",\"node\":\"n2\",\"message\":\"cannot go on\"}",
        ];
        assert_eq!(lines.len(), FORBIDDEN.len() + 1);
        for (line, forbidden) in lines.iter().zip(FORBIDDEN.iter().chain(FORBIDDEN.last())) {
            let log = format!("2026-11-30T09:47:03Z  INFO n2 leader epoch 3: fine\n{line}\n");
            let found = found(&log, &schedule(json!([])));
            assert_eq!(found, [(2, forbidden.why)], "{line}");
        }
    }

    #[test]
    fn what_is_allowed_is_not_found() {
        let log = "2026-11-30T09:47:03Z  INFO n2 follower epoch 3: leader is n1\n\
                   2026-11-30T09:47:03Z  WARN n2 follower epoch 3: what a crash cut off is gone bytes=7\n\
                   2026-11-30T09:47:03Z  INFO n2 follower epoch 3: answered error=\"an ERROR of the client\"\n\
                   n2 stopped: it was asked to (resigned in epoch 3)\n\
                   kraft-node: the log is damaged";
        assert_eq!(found(log, &schedule(json!([]))), []);
    }

    #[test]
    fn a_disk_that_fails_explains_an_error_with_its_words_only() {
        let log = "2026-11-30T09:47:04Z ERROR n2 leader epoch 3: cannot sync: Input/output error (os error 5)";
        let fault = |what: &str, node: &str, outcome: &str| {
            schedule(json!([{
                "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "disk", "what": what},
                "resolved": {"at_ms": 1, "nodes": [node]}, "outcome": outcome
            }]))
        };
        assert_eq!(found(log, &fault("sync-error", "n2", "installed")), []);
        for (what, node, outcome) in [
            ("no-space", "n2", "installed"),
            ("sync-error", "n3", "installed"),
            ("sync-error", "n2", "skipped"),
        ] {
            let found = found(log, &fault(what, node, outcome));
            assert_eq!(found.len(), 1, "{what} {node} {outcome}");
        }
        let untold = schedule(json!([{
            "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "disk", "what": "sync-error"},
            "outcome": "indeterminate"
        }]));
        assert_eq!(found(log, &untold), []);
        let panicked = "thread 'disk' panicked at x.rs: Input/output error (os error 5)";
        assert_eq!(
            found(panicked, &fault("sync-error", "n2", "installed")).len(),
            1
        );
    }

    #[test]
    fn corrupted_packets_explain_senseless_requests() {
        let log = "WARN n2 leader epoch 3: a peer finds it senseless (INVALID_REQUEST)";
        let corrupt = schedule(json!([{
            "trigger": {"at_ms": 1}, "duration_ms": 1, "fault": {"kind": "link", "corrupt_percent": 2},
            "resolved": {"at_ms": 1, "links": [["n1", "n2"]]}, "outcome": "installed"
        }]));
        assert_eq!(found(log, &corrupt), []);
    }
}
