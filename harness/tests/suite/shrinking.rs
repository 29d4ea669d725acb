//! Owns the proof that a failure of every workload gets smaller without becoming another one.
//! Never looks for the smallest: a few trials must be enough to get smaller at all.

#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use crate::kit::{Lab, document};
use harness::execution::forget_outcomes;
use harness::shrink::{Budget, Defaults, Simulation, shrink};
use harness::simulation::{SessionPlan, simulate};
use results::manifest::Manifest;
use results::store::read_schedule;

/// The plan of the first of a few seeds that fails.
fn failing_plan(workload: &str, flags: &str) -> SessionPlan {
    let lab = Lab::new();
    let shared = "--time 5 --rate 80 --seeds 1..12 --fail-fast --jobs 1 --quiet";
    let arguments = format!("sim --workload {workload} {shared} {flags}");
    let outcome = lab.harness(&arguments.split_whitespace().collect::<Vec<_>>());
    let outcome = outcome.expect_code(1);
    assert!(outcome.stdout.contains("invalid (1)"), "{}", outcome.stdout);
    let manifest: Manifest =
        serde_json::from_value(document(&lab.latest().join("manifest.json"))).unwrap();
    let mut schedule = read_schedule(&lab.latest().join("schedule.json")).unwrap();
    forget_outcomes(&mut schedule, false);
    SessionPlan {
        seed: manifest.seed,
        options: manifest.options,
        schedule,
    }
}

fn gets_smaller(workload: &str, flags: &str) {
    let plan = failing_plan(workload, flags);
    assert_eq!(plan.options.workload, workload);
    let stop = Arc::new(AtomicBool::new(false));
    let simulated = simulate(&plan, &stop).unwrap();
    let wanted = simulated.verdict.failure_signature();
    assert!(!wanted.is_empty(), "{}", simulated.verdict.summary);
    let mut trial = Simulation::new(wanted.clone());
    let budget = Budget {
        run_count: 30,
        time: Duration::from_secs(600),
    };
    let defaults = Defaults {
        rate_per_second: 200,
        operation_timeout_ms: 500,
        recovery_timeout_ms: 20_000,
    };
    let shrunk = shrink(plan, simulated, &mut trial, budget, defaults, &mut |_| {}).unwrap();
    let (before, after) = (shrunk.before, shrunk.after);
    assert!(after.time_ms < before.time_ms, "{before:?} {after:?}");
    assert!(
        after.operation_count < before.operation_count,
        "{before:?} {after:?}"
    );
    assert!(
        after.fault_count <= before.fault_count,
        "{before:?} {after:?}"
    );
    let again = simulate(&shrunk.plan, &stop).unwrap();
    assert_eq!(again.verdict.failure_signature(), wanted);
    assert_eq!(again.identity, shrunk.evidence.identity);
}

const LOST_ON_A_CUT: &str = "--bug ack-on-append --nemesis partition-random --interval 2";
const DONE_TWICE: &str = "--bug dedup-lost-in-snapshot --nemesis kill-clean,snapshot \
                          --snapshot-every 1024 --interval 1 --operation-timeout 2s";

#[test]
fn a_lost_append_gets_smaller() {
    gets_smaller("append", LOST_ON_A_CUT);
}

#[test]
fn a_lost_addition_to_a_set_gets_smaller() {
    gets_smaller("set", LOST_ON_A_CUT);
}

#[test]
fn an_addition_that_counts_twice_gets_smaller() {
    gets_smaller("counter", DONE_TWICE);
}

#[test]
fn a_number_that_is_drawn_twice_gets_smaller() {
    gets_smaller(
        "unique-ids",
        "--bug apply-twice --nemesis kill-clean,snapshot --snapshot-every 8192 --interval 1",
    );
}

#[test]
fn a_transaction_that_is_done_twice_gets_smaller() {
    gets_smaller("list-append", DONE_TWICE);
}
