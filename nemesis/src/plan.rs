//! Owns the planned schedule of a run: which faults, when and for how long, from a seed.
//! Never looks at a running cluster, a clock or a random source other than the keyed one.

mod asked;
mod draws;
mod kinship;
mod pauses;
#[cfg(test)]
mod tests;

use std::collections::BTreeMap;

use crate::family::Family;
use crate::fault::{Fault, FaultError, Style};
use results::FORMAT_VERSION;
use results::keyed_random::Stream;
use results::schedule::{FaultDescription, Schedule, ScheduledFault, Trigger};

pub use self::asked::Asked;
use self::draws::{Draws, draw_fault, draw_second};
use self::pauses::HealthyWindows;

/// Shortest run that faults can be planned for.
pub const TIME_MIN_MS: u64 = 3_000;
/// Shortest interval between faults of one family.
pub const INTERVAL_MIN_MS: u64 = 100;
/// How often healthy windows come, in intervals.
pub const HEALTHY_EVERY_INTERVALS: u64 = 10;
/// The usual intensity.
pub const INTENSITY_USUAL_PERCENT: u64 = 100;
/// Highest intensity.
pub const INTENSITY_MAX_PERCENT: u64 = 1_000;
/// Longest quiet start, in which the cluster elects its first leader.
const QUIET_MAX_MS: u64 = 2_000;

/// What to plan.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct PlanOptions {
    /// Decides every draw.
    pub seed: u64,
    /// The families to draw from; none gives an empty schedule.
    pub families: Vec<Family>,
    /// Names of the nodes.
    pub nodes: Vec<String>,
    /// Length of the run, in milliseconds; everything is healed by 90 % of it.
    pub time_ms: u64,
    /// Mean time between starts of faults of one family, in milliseconds.
    pub interval_ms: u64,
    /// By family: another mean time between starts, in milliseconds.
    pub family_interval_ms: BTreeMap<Family, u64>,
    /// By family: another intensity, in percent.
    pub family_intensity_percent: BTreeMap<Family, u64>,
    /// By family: what its faults are, in place of what is drawn.
    pub family_asked: BTreeMap<Family, Asked>,
    /// How often faults come, in percent of what the intervals say: with 50, half as many as long; with
    /// 200, twice as many half as long, as faults of one family never overlap.
    pub intensity_percent: u64,
    /// In every ten intervals there is a window at least this long, in milliseconds, without any fault,
    /// so that the cluster makes progress whatever else comes. 0 for none.
    pub healthy_ms: u64,
    /// How partitions may cut links; with none, they hold.
    pub styles: Vec<Style>,
}

impl PlanOptions {
    /// The usual plan: the same interval for all families, usual intensity, no healthy windows, and links
    /// that are cut hold what is sent.
    pub fn new(
        seed: u64,
        families: Vec<Family>,
        nodes: Vec<String>,
        time_ms: u64,
        interval_ms: u64,
    ) -> Self {
        Self {
            seed,
            families,
            nodes,
            time_ms,
            interval_ms,
            family_interval_ms: BTreeMap::new(),
            family_intensity_percent: BTreeMap::new(),
            family_asked: BTreeMap::new(),
            intensity_percent: INTENSITY_USUAL_PERCENT,
            healthy_ms: 0,
            styles: Vec::new(),
        }
    }

    fn interval_of(&self, family: Family) -> u64 {
        let own_ms = self.family_interval_ms.get(&family);
        own_ms.copied().unwrap_or(self.interval_ms)
    }

    fn intensity_of(&self, family: Family) -> u64 {
        let own_percent = self.family_intensity_percent.get(&family);
        own_percent.copied().unwrap_or(self.intensity_percent)
    }
}

/// Why nothing can be planned.
#[derive(Debug, Clone, PartialEq, thiserror::Error)]
pub enum PlanError {
    /// No fault fits between the quiet start and the healing at the end.
    #[error(
        "a run of {time_ms} ms is too short for faults; give it at least {TIME_MIN_MS} ms, \
         or ask for no nemesis"
    )]
    TimeTooShort {
        /// The length of the run.
        time_ms: u64,
    },
    /// Faults that would follow each other faster than they can take hold.
    #[error(
        "an interval of {interval_ms} ms between faults is too short; the least is {INTERVAL_MIN_MS} ms"
    )]
    IntervalTooShort {
        /// The interval.
        interval_ms: u64,
    },
    /// An intensity that means nothing.
    #[error(
        "an intensity of {intensity_percent} % is out of range; use 1 to {INTENSITY_MAX_PERCENT}, or ask \
         for no nemesis"
    )]
    Intensity {
        /// The intensity.
        intensity_percent: u64,
    },
    /// Healthy windows that leave no time for faults.
    #[error(
        "healthy windows of {healthy_ms} ms are too long; at most half of {HEALTHY_EVERY_INTERVALS} \
         intervals, {most_ms} ms, may be without faults"
    )]
    HealthyTooLong {
        /// The length of the windows.
        healthy_ms: u64,
        /// The longest that is allowed.
        most_ms: u64,
    },
    /// A family that makes no sense in a cluster this small.
    #[error(
        "nemesis {family} needs at least {needed_count} nodes, and this cluster has {node_count}"
    )]
    TooFewNodes {
        /// Name of the family.
        family: &'static str,
        /// Least number of nodes.
        needed_count: usize,
        /// Number of nodes of this cluster.
        node_count: usize,
    },
    /// Something asked of the faults of a family that they are not.
    #[error("nemesis {family}: {error}")]
    Asked {
        /// Name of the family.
        family: &'static str,
        /// What is wrong.
        error: FaultError,
    },
    /// Something asked of the faults of a family that would make them those of another.
    #[error(
        "nemesis {family}: {parameter}={value} would make it another fault; name the family that does it: {of}"
    )]
    OfAnother {
        /// Name of the family.
        family: &'static str,
        /// The parameter.
        parameter: &'static str,
        /// What was written.
        value: String,
        /// Name of the family that does it.
        of: &'static str,
    },
}

/// Plans the faults of a run.
///
/// Every draw is keyed by family and number of the fault, so the faults of one family are the same
/// whichever other families are planned along with it. Single kills and pauses leave a majority alone;
/// faults of different families overlap freely and may together take it away for a while.
pub fn plan(options: &PlanOptions) -> Result<Schedule, PlanError> {
    let mut faults = Vec::new();
    let mut planned = Vec::new();
    for family in &options.families {
        if planned.contains(family) {
            continue;
        }
        planned.push(*family);
        check(*family, options)?;
        let planned = plan_family(*family, options).map_err(|error| PlanError::Asked {
            family: family.name(),
            error,
        });
        faults.extend(planned?);
    }
    faults.sort_by_key(|fault| (fault.trigger.at_ms, fault.id));
    Ok(Schedule {
        format_version: FORMAT_VERSION,
        seed: options.seed,
        faults,
    })
}

fn check(family: Family, options: &PlanOptions) -> Result<(), PlanError> {
    let node_count = options.nodes.len();
    let needed_count = family.needed_count();
    if node_count < needed_count {
        return Err(PlanError::TooFewNodes {
            family: family.name(),
            needed_count,
            node_count,
        });
    }
    if options.time_ms < TIME_MIN_MS {
        return Err(PlanError::TimeTooShort {
            time_ms: options.time_ms,
        });
    }
    for interval_ms in [options.interval_ms, options.interval_of(family)] {
        if interval_ms < INTERVAL_MIN_MS {
            return Err(PlanError::IntervalTooShort { interval_ms });
        }
    }
    let intensity_percent = options.intensity_of(family);
    if !(1..=INTENSITY_MAX_PERCENT).contains(&intensity_percent) {
        return Err(PlanError::Intensity { intensity_percent });
    }
    if let Some(asked) = options.family_asked.get(&family)
        && let Some(misplaced) = kinship::misplaced(family, asked)
    {
        return Err(PlanError::OfAnother {
            family: family.name(),
            parameter: misplaced.parameter,
            value: misplaced.value,
            of: misplaced.of.name(),
        });
    }
    let most_ms = options.interval_ms.saturating_mul(HEALTHY_EVERY_INTERVALS) / 2;
    if options.healthy_ms > most_ms {
        return Err(PlanError::HealthyTooLong {
            healthy_ms: options.healthy_ms,
            most_ms,
        });
    }
    Ok(())
}

fn plan_family(family: Family, options: &PlanOptions) -> Result<Vec<ScheduledFault>, FaultError> {
    let stream = Stream::new(options.seed, &format!("plan/{}", family.name()));
    let quiet_ms = QUIET_MAX_MS.min(options.time_ms / 10);
    let end_ms = options.time_ms - options.time_ms / 10;
    let pauses = HealthyWindows::new(
        options.interval_ms.saturating_mul(HEALTHY_EVERY_INTERVALS),
        options.healthy_ms,
        end_ms - quiet_ms,
    );
    let pace = Pace::new(family, options, pauses.faulty_ms());
    // Times below leave out the healthy windows, and the quiet start.
    let mut start_ms = stream.between(0, 0, 0, pace.first_within_ms);
    let mut faults = Vec::new();
    let mut number = 0;
    while start_ms.saturating_add(pace.shortest_ms) <= pauses.faulty_ms() {
        let drawn_ms = duration_ms(family, &stream, number, &pace);
        let left_ms = pauses.left_ms(start_ms);
        let draws = Draws {
            stream: &stream,
            number,
            node_count: options.nodes.len(),
            styles: &options.styles,
        };
        let at_ms = quiet_ms + pauses.at_ms(start_ms);
        let duration_ms = drawn_ms.min(left_ms);
        let mut add = |at_ms, duration_ms, fault: Fault, asked: Option<&Asked>| {
            let fault = match asked {
                Some(asked) => asked::replace(&fault, asked)?,
                None => fault.to_description(),
            };
            let id = family.id(faults.len() as u64);
            faults.push(scheduled(id, at_ms, duration_ms, fault));
            Ok(())
        };
        let asked = options.family_asked.get(&family);
        add(at_ms, duration_ms, draw_fault(family, draws), asked)?;
        if let Some(second) = draw_second(family, draws) {
            // Both end together.
            let after_ms = percent_of(duration_ms, second.after_percent);
            let asked = asked.map(asked::of_second);
            let left_ms = duration_ms - after_ms;
            add(at_ms + after_ms, left_ms, second.fault, asked.as_ref())?;
        }
        number += 1;
        // Longer than the longest fault, so that a family never overlaps itself.
        let gap_ms = stream.between(
            number,
            0,
            percent_of(pace.gap_ms, 80),
            percent_of(pace.gap_ms, 120),
        );
        start_ms = start_ms.saturating_add(gap_ms);
    }
    Ok(faults)
}

fn scheduled(id: u64, at_ms: u64, duration_ms: u64, fault: FaultDescription) -> ScheduledFault {
    ScheduledFault {
        id,
        trigger: Trigger::at(at_ms),
        duration_ms,
        fault,
        resolved: None,
        recorded: None,
        outcome: None,
        reason: None,
        healed_at_ms: None,
        effect: serde_json::Map::new(),
    }
}

/// How fast faults of a family follow each other, and how long they are.
struct Pace {
    /// Mean time between starts.
    gap_ms: u64,
    shortest_ms: u64,
    longest_ms: u64,
    /// The first fault starts within this time.
    first_within_ms: u64,
}

impl Pace {
    fn new(family: Family, options: &PlanOptions, faulty_ms: u64) -> Self {
        let asked_ms = options.interval_of(family);
        // Divided first: an absurd interval must not overflow.
        let intense_ms = match options.intensity_of(family) {
            INTENSITY_USUAL_PERCENT => asked_ms,
            percent => (asked_ms / percent)
                .saturating_mul(100)
                .saturating_add(asked_ms % percent * 100 / percent)
                .max(INTERVAL_MIN_MS),
        };
        // A run shorter than the interval still gets its fault, at the pace the run allows.
        let gap_ms = intense_ms.min(faulty_ms);
        let length_ms = asked_ms.min(gap_ms);
        let longest_ms = percent_of(length_ms, 70);
        Self {
            gap_ms,
            shortest_ms: percent_of(length_ms, 40),
            longest_ms,
            first_within_ms: gap_ms.min(faulty_ms - longest_ms),
        }
    }
}

/// Long enough that a fault of the usual interval outlives fetch and election timeouts; a third of those
/// that take a node away are short on purpose, since a node back before anybody missed it is a case of
/// its own: a leader then finds its own epoch still going on.
fn duration_ms(family: Family, stream: &Stream, number: u64, pace: &Pace) -> u64 {
    let usual_ms = stream.between(number, 1, pace.shortest_ms, pace.longest_ms);
    let takes_nodes_away = matches!(
        family,
        Family::Kill | Family::KillClean | Family::Restart | Family::Pause
    );
    if takes_nodes_away && stream.chance(number, 2, 33) {
        return stream.between(number, 3, 20, 300).min(usual_ms);
    }
    usual_ms
}

fn percent_of(value: u64, percent: u64) -> u64 {
    // Divided first for large values: an absurd interval must not overflow.
    if value > u64::MAX / 200 {
        value / 100 * percent
    } else {
        value * percent / 100
    }
}
