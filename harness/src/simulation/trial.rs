//! Owns what a campaign does with one seed: how often it is run, and which of the runs is recorded.
//! Never lets two runs of one seed differ without saying so.

use std::sync::Arc;
use std::sync::atomic::{AtomicBool, Ordering};

use anyhow::anyhow;
use results::manifest::Simulation;
use results::schedule::ScheduledFault;
use results::verdict::{Validity, Verdict};

use super::draws::Draws;
use super::session::{Glimpse, SessionPlan, Simulated, glimpse, simulate};
use crate::exit::Failure;

/// One in so many seeds is run once more whatever comes out, and must come out the same.
const REPEATED_ONE_IN: u64 = 50;

/// What came of a seed.
#[derive(Debug)]
pub(super) struct Trial {
    pub(super) verdict: Verdict,
    /// The families of faults that were on, each with what is not usual about it.
    pub(super) nemesis: Vec<String>,
    /// The faults, with what became of them.
    pub(super) faults: Vec<ScheduledFault>,
    pub(super) identity: Simulation,
    /// How much virtual time passed, in nanoseconds, in one of the runs.
    pub(super) simulated_ns: u64,
    /// The recording, where there is one: of every run that is not valid, or if all are wanted.
    pub(super) recorded: Option<Simulated>,
    /// Whether it was run more than once, with the same events each time.
    pub(super) is_repeated: bool,
}

/// Runs a plan without recording it, and again with a recording if it does not come out valid.
/// `records_all` records in any case. Setting `stop` ends it early; what it returns then means nothing.
///
/// # Errors
/// When two runs of the plan differ, or it names a bug that does not exist.
pub(super) fn attempt(
    plan: &SessionPlan,
    records_all: bool,
    stop: &Arc<AtomicBool>,
) -> Result<Trial, Failure> {
    let repeats = is_repeated(plan.seed);
    let glimpsed = match records_all && !repeats {
        true => None,
        false => Some(glimpse(plan, stop)?),
    };
    if let Some(glimpsed) = &glimpsed
        && let Some(verdict) = &glimpsed.verdict
        && verdict.valid == Validity::Valid
        && !(records_all || repeats)
    {
        return Ok(Trial {
            verdict: verdict.clone(),
            nemesis: plan.options.nemesis.clone(),
            faults: glimpsed.faults.clone(),
            identity: glimpsed.identity.clone(),
            simulated_ns: glimpsed.simulated_ns,
            recorded: None,
            is_repeated: false,
        });
    }
    let simulated = simulate(plan, stop)?;
    if let Some(glimpsed) = &glimpsed
        && !stop.load(Ordering::Relaxed)
    {
        compare(plan.seed, glimpsed, &simulated)?;
    }
    Ok(Trial {
        verdict: simulated.verdict.clone(),
        nemesis: plan.options.nemesis.clone(),
        faults: simulated.recording.schedule.faults.clone(),
        identity: simulated.identity.clone(),
        simulated_ns: simulated.simulated_ns,
        recorded: Some(simulated),
        is_repeated: glimpsed.is_some(),
    })
}

/// Whether a seed is run more than once even if it comes out valid.
fn is_repeated(seed: u64) -> bool {
    Draws::new(seed, "simulation/repeated", 0).below(0, REPEATED_ONE_IN) == 0
}

/// The two runs must have had the same events, and must be judged alike.
fn compare(seed: u64, first: &Glimpse, second: &Simulated) -> Result<(), Failure> {
    let (one, other) = (&first.identity, &second.identity);
    if one != other {
        return Err(anyhow!(
            "seed {seed} was run twice and the runs differ: {} events with digest {}, then {} events \
             with digest {}. A simulated run must be decided by its seed and options alone, so this is \
             an error in the harness or the node",
            one.event_count,
            one.digest,
            other.event_count,
            other.digest
        )
        .into());
    }
    if let Some(verdict) = &first.verdict
        && verdict.failure_signature() != second.verdict.failure_signature()
    {
        return Err(anyhow!(
            "seed {seed} was judged twice and the verdicts differ: {:?} while it went on, {:?} \
             afterwards. This is an error in the checkers",
            verdict.summary,
            second.verdict.summary
        )
        .into());
    }
    Ok(())
}

#[cfg(test)]
mod tests {
    use nemesis::family::Family;
    use nemesis::plan::PlanOptions;
    use results::manifest::RunOptions;

    use super::*;
    use crate::execution::TIMERS;
    use crate::runner::START_UP_MS;

    fn plan(seed: u64, bug: Option<&str>) -> SessionPlan {
        let nemesis = vec!["partition-random".to_owned(), "kill".to_owned()];
        let options = RunOptions {
            workload: "register".into(),
            nemesis: nemesis.clone(),
            nemesis_is_a_pool: false,
            nodes: 5,
            concurrency: 10,
            rate_per_second: 200,
            time_ms: 4_000,
            interval_ms: 1_000,
            healthy_ms: 0,
            operation_timeout_ms: 500,
            recovery_timeout_ms: 10_000,
            bug: bug.map(Into::into),
            timers: TIMERS,
            left_out_operations: Vec::new(),
            cluster: Default::default(),
            liveness_phase: true,
            required_coverage: Vec::new(),
        };
        let nodes = (1..=5).map(|id| format!("n{id}")).collect();
        let mut schedule = nemesis::plan::plan(&PlanOptions::new(
            seed,
            vec![Family::PartitionRandom, Family::Kill],
            nodes,
            options.time_ms,
            options.interval_ms,
        ))
        .unwrap();
        for fault in &mut schedule.faults {
            fault.trigger.at_ms += START_UP_MS;
        }
        SessionPlan {
            seed,
            options,
            schedule,
        }
    }

    #[test]
    fn a_run_is_judged_alike_while_it_goes_on_and_afterwards() {
        let stop = Arc::new(AtomicBool::new(false));
        let bugs = [
            None,
            Some("ack-on-append"),
            Some("hwm-epoch-start-off-by-one"),
        ];
        let mut invalid_count = 0;
        for (seed, bug) in (1..=4).flat_map(|seed| bugs.map(|bug| (seed, bug))) {
            let plan = plan(seed, bug);
            let glimpsed = glimpse(&plan, &stop).unwrap();
            let simulated = simulate(&plan, &stop).unwrap();
            assert_eq!(glimpsed.identity, simulated.identity, "{seed} {bug:?}");
            let (glimpsed, recorded) = (glimpsed.verdict.unwrap(), &simulated.verdict);
            assert_eq!(glimpsed.valid, recorded.valid, "{seed} {bug:?}");
            let failures = glimpsed.failure_signature();
            assert_eq!(failures, recorded.failure_signature(), "{seed} {bug:?}");
            // Only violations of what clients see are not explained.
            for (name, result) in &glimpsed.checkers {
                let is_explained = name == "linearizable" && result.valid == Validity::Invalid;
                let expected = &recorded.checkers[name];
                assert!(is_explained || result == expected, "{seed} {bug:?} {name}");
            }
            invalid_count += u64::from(simulated.verdict.valid == Validity::Invalid);
        }
        assert!((1..12).contains(&invalid_count), "{invalid_count}");
    }

    #[test]
    fn only_what_fails_is_recorded_and_the_same_seeds_are_always_repeated() {
        let stop = Arc::new(AtomicBool::new(false));
        let seed = (1..).find(|seed| !is_repeated(*seed)).unwrap();
        let valid = attempt(&plan(seed, None), false, &stop).unwrap();
        assert!(valid.recorded.is_none() && !valid.is_repeated);
        let kept = attempt(&plan(seed, None), true, &stop).unwrap();
        assert!(kept.recorded.is_some());
        assert_eq!(kept.identity, valid.identity);
        let failing = (1..=30)
            .map(|seed| attempt(&plan(seed, Some("ack-on-append")), false, &stop).unwrap())
            .find(|trial| trial.verdict.valid == Validity::Invalid)
            .expect("some seed shows the bug");
        assert!(failing.recorded.is_some() && failing.is_repeated);
        let repeated = (0..5_000).filter(|seed| is_repeated(*seed)).count();
        assert!((50..150).contains(&repeated), "{repeated}");
    }

    #[test]
    fn runs_that_differ_are_told_apart() {
        let stop = Arc::new(AtomicBool::new(false));
        let plan = plan(1, None);
        let mut glimpsed = glimpse(&plan, &stop).unwrap();
        let simulated = simulate(&plan, &stop).unwrap();
        assert!(compare(1, &glimpsed, &simulated).is_ok());
        glimpsed.identity.event_count += 1;
        let error = compare(1, &glimpsed, &simulated).unwrap_err();
        assert!(
            error.message().contains("seed 1 was run twice"),
            "{error:?}"
        );
        glimpsed.identity.event_count -= 1;
        for result in glimpsed.verdict.as_mut().unwrap().checkers.values_mut() {
            result.valid = Validity::Invalid;
        }
        let error = compare(1, &glimpsed, &simulated).unwrap_err();
        assert!(error.message().contains("judged twice"), "{error:?}");
    }
}
