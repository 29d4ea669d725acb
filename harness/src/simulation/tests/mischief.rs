//! Owns the checks of mischief in simulated runs: it changes what happens, is repeated exactly, and ends.
//! Never waits for wall-clock time.

use node::mischief::MischiefPoint;
use results::schedule::Schedule;
use results::verdict::Validity;

use super::*;
use crate::simulation::{SessionPlan, glimpse};

fn plan(seed: u64, mischief: &[&str]) -> SessionPlan {
    let mut options = RunOptions {
        concurrency: 10,
        rate_per_second: 300,
        time_ms: 3_000,
        operation_timeout_ms: 500,
        recovery_timeout_ms: 10_000,
        liveness_phase: true,
        ..options(3)
    };
    options.cluster.mischief = mischief.iter().map(|id| (*id).to_owned()).collect();
    SessionPlan {
        seed,
        options,
        schedule: Schedule {
            format_version: results::FORMAT_VERSION,
            seed,
            faults: Vec::new(),
        },
    }
}

#[test]
fn each_point_changes_what_happens_and_no_verdict_and_comes_back_exactly() {
    let stop = Arc::new(AtomicBool::new(false));
    let usual = glimpse(&plan(4, &[]), &stop).unwrap();
    assert_eq!(usual.verdict.unwrap().valid, Validity::Valid);
    for point in MischiefPoint::ALL {
        let plan = plan(4, &[point.id()]);
        let first = glimpse(&plan, &stop).unwrap();
        assert_eq!(first.verdict.unwrap().valid, Validity::Valid, "{point}");
        assert_ne!(first.identity, usual.identity, "{point}");
        let again = glimpse(&plan, &stop).unwrap();
        assert_eq!(first.identity, again.identity, "{point}");
    }
}

#[test]
fn mischief_that_does_not_exist_is_refused() {
    let stop = Arc::new(AtomicBool::new(false));
    let refused = glimpse(&plan(4, &["rain"]), &stop).unwrap_err();
    assert!(refused.message().contains("unknown mischief"));
}

#[test]
fn whatever_is_to_recover_does_no_mischief_any_more() {
    let course = |ends_at_once: bool| {
        let all = MischiefPoint::ALL.map(MischiefPoint::id);
        let options = plan(4, if ends_at_once { &all } else { &[] }).options;
        let stop = Arc::new(AtomicBool::new(false));
        let witness = Witness::Trace(Vec::new());
        let world = SimulatedWorld::new(4, &options, None, false, witness, stop);
        let mut bench = Bench {
            world,
            next_call: 0,
        };
        // Before any node has started, so that all they do is what nodes usually do.
        bench.world.restore();
        bench.pass(3 * SECOND);
        let leader = bench.leader();
        bench.write(&leader, 7);
        bench.world.into_remains().identity
    };
    assert_eq!(course(true), course(false));
}
