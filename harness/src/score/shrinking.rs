//! Owns how small the run of a hunt becomes: its schedule, shrunk within a budget.
//! Never stores the result: bug, seed and way give the run again.

use std::sync::Arc;
use std::sync::atomic::AtomicBool;
use std::time::Duration;

use results::verdict::Validity;

use super::{Caught, ShrunkRun};
use crate::exit::Failure;
use crate::shrink::{Budget, Defaults, Simulation, shrink};
use crate::simulation::{SessionPlan, simulate};

/// Runs at most; time is over before.
const RUN_COUNT: u32 = 2_000;

/// Shrinks the run that noticed a bug. `None` if it does not fail when it is run again.
///
/// # Errors
/// When it cannot be run at all.
pub fn shrink_one(
    caught: &Caught,
    plan: SessionPlan,
    time: Duration,
    defaults: Defaults,
) -> Result<Option<ShrunkRun>, Failure> {
    let (way, seed) = (caught.way.clone(), plan.seed);
    let simulated = simulate(&plan, &Arc::new(AtomicBool::new(false)))?;
    if simulated.verdict.valid != Validity::Invalid {
        return Ok(None);
    }
    let failures = simulated.verdict.failure_signature();
    let mut trial = Simulation::new(failures.clone());
    let budget = Budget {
        run_count: RUN_COUNT,
        time,
    };
    let shrunk = shrink(plan, simulated, &mut trial, budget, defaults, &mut |_| {})?;
    Ok(Some(ShrunkRun {
        bug: caught.bug.clone(),
        way,
        seed,
        failures,
        fault_count_before: shrunk.before.fault_count,
        fault_count: shrunk.after.fault_count,
        operation_count: shrunk.after.operation_count,
        node_count: shrunk.after.node_count,
        time_ms: shrunk.after.time_ms,
        run_count: shrunk.run_count,
        is_exhausted: shrunk.is_exhausted,
        measurement: 0,
    }))
}
