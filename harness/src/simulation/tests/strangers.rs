//! Owns the checks of another cluster that asks simulated nodes: it is refused, unless a node does not look.
//! Never waits for wall-clock time.

use results::schedule::Schedule;
use results::verdict::Validity;

use super::*;
use crate::simulation::{SessionPlan, glimpse};

fn plan(strangers: bool, bug: Option<&str>) -> SessionPlan {
    let mut options = RunOptions {
        concurrency: 5,
        rate_per_second: 100,
        time_ms: 2_000,
        operation_timeout_ms: 500,
        recovery_timeout_ms: 10_000,
        bug: bug.map(str::to_owned),
        ..options(3)
    };
    options.cluster.strangers = strangers;
    options.cluster.trace_messages = true;
    SessionPlan {
        seed: 4,
        options,
        schedule: Schedule {
            format_version: results::FORMAT_VERSION,
            seed: 4,
            faults: Vec::new(),
        },
    }
}

#[test]
fn another_cluster_is_refused_and_whoever_serves_it_is_noticed() {
    let stop = Arc::new(AtomicBool::new(false));
    let judged = |strangers, bug| {
        let glimpsed = glimpse(&plan(strangers, bug), &stop).unwrap();
        (glimpsed.identity, glimpsed.verdict.unwrap())
    };
    let (alone, _) = judged(false, None);
    let (asked, verdict) = judged(true, None);
    assert_eq!(verdict.valid, Validity::Valid, "{}", verdict.summary);
    let checked = verdict.checkers["conformance"].properties["C14"].checked;
    assert!(checked > 3, "{checked}");
    assert_ne!(alone, asked);
    assert_eq!(judged(true, None).0, asked);

    let (_, verdict) = judged(true, Some("cluster-id-skip"));
    assert_eq!(verdict.failure_signature(), ["conformance/C14"]);
    let (_, verdict) = judged(false, Some("cluster-id-skip"));
    assert_eq!(verdict.valid, Validity::Valid, "{}", verdict.summary);
}
