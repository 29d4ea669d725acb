//! Owns the manifest of the small made-up runs that tests judge.
//! Never says anything that a test relies on without asking for it.

use results::manifest::Manifest;
use serde_json::{Value, json};

/// A manifest in which everything is as small as it can be, but for what `different` says.
pub(crate) fn manifest(different: Value) -> Manifest {
    let mut manifest = json!({
        "format_version": 1, "name": "test", "seed": 1,
        "options": {
            "workload": "register", "nemesis": ["kill"], "nodes": 3, "concurrency": 5,
            "rate_per_second": 10, "time_ms": 1000, "interval_ms": 100,
            "operation_timeout_ms": 1000, "recovery_timeout_ms": 9000,
            "timers": {
                "election_timeout_ms": 1, "fetch_timeout_ms": 1, "election_backoff_max_ms": 1,
                "fetch_max_wait_ms": 1, "request_timeout_ms": 1, "retry_backoff_ms": 1
            }
        },
        "environment": {
            "harness_version": "0", "node_binary": "x", "system": "x", "processors": 1
        },
        "started": "2026-01-01T00:00:00Z",
    });
    replace(&mut manifest, different);
    serde_json::from_value(manifest).unwrap()
}

fn replace(old: &mut Value, new: Value) {
    match (old, new) {
        (Value::Object(old), Value::Object(new)) => {
            for (name, value) in new {
                replace(old.entry(name).or_insert(Value::Null), value);
            }
        }
        (old, new) => *old = new,
    }
}
