//! Owns the planned schedule of a run: which faults, when and for how long, from a seed.
//! Never looks at a running cluster, a clock or a random source other than the keyed one.

use crate::family::Family;
use crate::fault::{Direction, Fault, Shape, Target, Targets};
use results::FORMAT_VERSION;
use results::keyed_random::Stream;
use results::schedule::{Schedule, ScheduledFault, Trigger};

/// Shortest run that faults can be planned for.
pub const TIME_MIN_MS: u64 = 3_000;
/// Shortest interval between faults of one family.
pub const INTERVAL_MIN_MS: u64 = 100;
/// Longest quiet start, in which the cluster elects its first leader.
const QUIET_MAX_MS: u64 = 2_000;
/// Ids of planned faults are `number * ID_STRIDE + digit of the family`: stable whatever else is planned.
const ID_STRIDE: u64 = 10;

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
}

/// Why nothing can be planned.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
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
        faults.extend(plan_family(*family, options));
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
    let needed_count = if family == Family::PartitionRandom {
        2
    } else {
        1
    };
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
    if options.interval_ms < INTERVAL_MIN_MS {
        return Err(PlanError::IntervalTooShort {
            interval_ms: options.interval_ms,
        });
    }
    Ok(())
}

fn plan_family(family: Family, options: &PlanOptions) -> Vec<ScheduledFault> {
    let draws = Stream::new(options.seed, &format!("plan/{}", family.name()));
    let quiet_ms = QUIET_MAX_MS.min(options.time_ms / 10);
    let end_ms = options.time_ms - options.time_ms / 10;
    let window_ms = end_ms - quiet_ms;
    // A run shorter than the interval still gets its fault, at the pace the run allows.
    let interval_ms = options.interval_ms.min(window_ms);
    let shortest_ms = percent_of(interval_ms, 40);
    let longest_ms = percent_of(interval_ms, 70);
    let mut start_ms = quiet_ms + draws.between(0, 0, 0, interval_ms.min(window_ms - longest_ms));
    let mut faults = Vec::new();
    while start_ms.saturating_add(shortest_ms) <= end_ms {
        let number = faults.len() as u64;
        let drawn_ms = duration_ms(family, &draws, number, shortest_ms, longest_ms);
        faults.push(ScheduledFault {
            id: number * ID_STRIDE + family.digit(),
            trigger: Trigger { at_ms: start_ms },
            duration_ms: drawn_ms.min(end_ms - start_ms),
            fault: draw_fault(family, &draws, number, options.nodes.len()).to_description(),
            resolved: None,
            outcome: None,
            reason: None,
            healed_at_ms: None,
            effect: serde_json::Map::new(),
        });
        // Longer than the longest fault, so that a family never overlaps itself.
        let gap_ms = draws.between(
            number + 1,
            0,
            percent_of(interval_ms, 80),
            percent_of(interval_ms, 120),
        );
        start_ms = start_ms.saturating_add(gap_ms);
    }
    faults
}

/// Long enough that a fault of the usual interval outlives fetch and election timeouts; a third of the
/// pauses are short on purpose, since a node back before anybody missed it is a case of its own.
fn duration_ms(
    family: Family,
    draws: &Stream,
    number: u64,
    shortest_ms: u64,
    longest_ms: u64,
) -> u64 {
    let usual_ms = draws.between(number, 1, shortest_ms, longest_ms);
    if family == Family::Pause && draws.chance(number, 2, 33) {
        return draws.between(number, 3, 100, 500).min(usual_ms);
    }
    usual_ms
}

fn draw_fault(family: Family, draws: &Stream, number: u64, node_count: usize) -> Fault {
    match family {
        Family::PartitionRandom => Fault::Partition {
            shape: draw_shape(draws, number, node_count),
        },
        Family::Kill => Fault::Kill {
            targets: draw_victims(draws, number, node_count),
        },
        Family::Pause => Fault::Pause {
            targets: draw_victims(draws, number, node_count),
        },
        Family::ClockSkew => draw_clock_skew(draws, number, node_count),
    }
}

fn draw_shape(draws: &Stream, number: u64, node_count: usize) -> Shape {
    // Every block of draws is a shuffled hand of all shapes: even counts, and no shape thrice in a row.
    let target = if draws.chance(number, 4, 50) {
        Target::Leader
    } else {
        Target::One
    };
    let mut shapes = vec![
        Shape::RandomHalves,
        Shape::OneNode {
            target: target.clone(),
        },
        Shape::OneWay {
            target,
            direction: Direction::Any,
        },
    ];
    if node_count >= 3 {
        shapes.push(Shape::MajoritiesRing);
    }
    let block_length = shapes.len() as u64;
    // Counters from 16 up: clear of the single draws above, keyed by the block instead of the fault.
    draws.shuffle(number / block_length, 16, &mut shapes);
    shapes.swap_remove((number % block_length) as usize)
}

fn draw_victims(draws: &Stream, number: u64, node_count: usize) -> Targets {
    if draws.chance(number, 4, 50) {
        return Targets::Leader;
    }
    if node_count >= 3 && draws.chance(number, 5, 50) {
        return Targets::Minority;
    }
    Targets::One
}

fn draw_clock_skew(draws: &Stream, number: u64, node_count: usize) -> Fault {
    const TARGETS: [Targets; 4] = [
        Targets::One,
        Targets::Leader,
        Targets::Minority,
        Targets::Majority,
    ];
    // Roughly logarithmic: small skews hide in timeouts, large ones cross them, and both are wanted.
    const OFFSET_BOUNDS_MS: [u64; 7] = [50, 100, 200, 400, 800, 1_600, 3_000];
    let targets = match draws.choose(number, 4, &TARGETS) {
        Some(Targets::Minority) | None if node_count < 3 => Targets::One,
        None => Targets::One,
        Some(targets) => targets.clone(),
    };
    let step = draws.below(number, 5, OFFSET_BOUNDS_MS.len() as u64 - 1) as usize;
    let size_ms = draws.between(
        number,
        6,
        OFFSET_BOUNDS_MS[step],
        OFFSET_BOUNDS_MS[step + 1],
    );
    let size_ms = i64::try_from(size_ms).expect("at most 3000");
    let offset_ms = if draws.chance(number, 7, 50) {
        size_ms
    } else {
        -size_ms
    };
    let rate_percent = match draws.below(number, 8, 4) {
        0 | 1 => 100,
        2 => draws.between(number, 9, 50, 95),
        _ => draws.between(number, 9, 105, 200),
    };
    Fault::ClockSkew {
        targets,
        offset_ms,
        rate: rate_percent as f64 / 100.0,
    }
}

fn percent_of(value: u64, percent: u64) -> u64 {
    // Divided first for large values: an absurd interval must not overflow.
    if value > u64::MAX / 200 {
        value / 100 * percent
    } else {
        value * percent / 100
    }
}

#[cfg(test)]
mod tests {
    use super::*;
    use proptest::prelude::*;
    use results::schedule::FaultDescription;
    use std::collections::BTreeMap;

    fn options(seed: u64, families: &[Family], time_ms: u64, interval_ms: u64) -> PlanOptions {
        PlanOptions {
            seed,
            families: families.to_vec(),
            nodes: (1..=5).map(|number| format!("n{number}")).collect(),
            time_ms,
            interval_ms,
        }
    }

    fn of_family(schedule: &Schedule, family: Family) -> Vec<ScheduledFault> {
        let mut faults = schedule.faults.clone();
        faults.retain(|fault| fault.id % ID_STRIDE == family.digit());
        faults
    }

    fn any_families() -> impl Strategy<Value = Vec<Family>> {
        proptest::sample::subsequence(Family::ALL.to_vec(), 1..=4)
    }

    proptest! {
        #[test]
        fn plans_stay_within_the_run_and_hit_every_family(
            seed: u64,
            families in any_families(),
            node_count in 2usize..9,
            time_ms in TIME_MIN_MS..600_000,
            interval_ms in INTERVAL_MIN_MS..60_000,
        ) {
            let mut options = options(seed, &families, time_ms, interval_ms);
            options.nodes = (1..=node_count).map(|number| format!("n{number}")).collect();
            let schedule = plan(&options).unwrap();
            let mut ids: Vec<u64> = schedule.faults.iter().map(|fault| fault.id).collect();
            prop_assert!(ids.iter().all(|id| *id != 0));
            ids.sort_unstable();
            ids.dedup();
            prop_assert_eq!(ids.len(), schedule.faults.len());
            prop_assert!(schedule.faults.is_sorted_by_key(|fault| fault.trigger.at_ms));
            for fault in &schedule.faults {
                prop_assert!(fault.trigger.at_ms >= (time_ms / 10).min(2_000));
                prop_assert!(fault.duration_ms > 0);
                prop_assert!(fault.trigger.at_ms + fault.duration_ms <= time_ms - time_ms / 10);
                let parsed = Fault::from_description(&fault.fault).unwrap();
                prop_assert_eq!(parsed.validate(&options.nodes), Ok(()));
            }
            for family in families {
                let faults = of_family(&schedule, family);
                prop_assert!(!faults.is_empty(), "no {:?}", family);
                for pair in faults.windows(2) {
                    let healed_ms = pair[0].trigger.at_ms + pair[0].duration_ms;
                    prop_assert!(healed_ms < pair[1].trigger.at_ms);
                }
            }
        }

        #[test]
        fn adding_a_family_shifts_no_other(seed: u64, kept in any_families()) {
            let some = plan(&options(seed, &kept, 120_000, 5_000)).unwrap();
            let all = plan(&options(seed, &Family::ALL, 120_000, 5_000)).unwrap();
            for family in kept {
                prop_assert_eq!(of_family(&some, family), of_family(&all, family));
            }
        }
    }

    #[test]
    fn the_same_seed_plans_the_same_and_another_does_not() {
        let once = plan(&options(7, &Family::ALL, 60_000, 5_000)).unwrap();
        assert_eq!(
            once,
            plan(&options(7, &Family::ALL, 60_000, 5_000)).unwrap()
        );
        let reordered = [
            Family::Pause,
            Family::ClockSkew,
            Family::Kill,
            Family::PartitionRandom,
        ];
        assert_eq!(once, plan(&options(7, &reordered, 60_000, 5_000)).unwrap());
        assert_ne!(
            once,
            plan(&options(8, &Family::ALL, 60_000, 5_000)).unwrap()
        );
    }

    #[test]
    fn intervals_and_durations_have_the_promised_size() {
        let schedule = plan(&options(3, &Family::ALL, 3_600_000, 10_000)).unwrap();
        for family in Family::ALL {
            let faults = of_family(&schedule, family);
            assert!((300..=400).contains(&faults.len()), "{}", faults.len());
            // The last one may be cut short by the end of the run.
            let (_, whole) = faults.split_last().unwrap();
            let short = whole
                .iter()
                .filter(|fault| fault.duration_ms < 4_000)
                .count();
            assert!(whole.iter().all(|fault| fault.duration_ms <= 7_000));
            if family == Family::Pause {
                assert!((60..=180).contains(&short), "{short} short pauses");
            } else {
                assert_eq!(short, 0, "{family:?}");
            }
        }
    }

    #[test]
    fn partition_shapes_are_even_and_never_thrice_in_a_row() {
        let schedule = plan(&options(11, &[Family::PartitionRandom], 4_000_000, 10_000)).unwrap();
        let shapes: Vec<String> = schedule
            .faults
            .iter()
            .map(|fault| fault.fault.parameters["shape"].as_str().unwrap().to_owned())
            .collect();
        let mut counts = BTreeMap::new();
        for shape in &shapes {
            *counts.entry(shape.as_str()).or_insert(0usize) += 1;
        }
        assert_eq!(counts.len(), 4, "{counts:?}");
        let spread = counts.values().max().unwrap() - counts.values().min().unwrap();
        assert!(spread <= 1, "{counts:?}");
        assert!(
            shapes
                .windows(3)
                .all(|three| three[0] != three[1] || three[1] != three[2])
        );
        assert_ne!(shapes[..4], shapes[4..8], "every block has its own order");
    }

    #[test]
    fn about_half_of_the_aimed_faults_aim_at_the_leader() {
        let schedule = plan(&options(5, &Family::ALL, 10_000_000, 10_000)).unwrap();
        for family in [Family::PartitionRandom, Family::Kill, Family::Pause] {
            let aimed: Vec<Fault> = of_family(&schedule, family)
                .iter()
                .map(|fault| Fault::from_description(&fault.fault).unwrap())
                .filter(|fault| {
                    !matches!(
                        fault,
                        Fault::Partition {
                            shape: Shape::RandomHalves | Shape::MajoritiesRing
                        }
                    )
                })
                .collect();
            let at_leader = aimed
                .iter()
                .filter(|fault| {
                    serde_json::to_string(&fault.to_description())
                        .unwrap()
                        .contains("leader")
                })
                .count();
            let percent = at_leader * 100 / aimed.len();
            assert!((40..=60).contains(&percent), "{family:?}: {percent} %");
        }
    }

    #[test]
    fn kills_and_pauses_leave_a_majority() {
        let schedule = plan(&options(5, &Family::ALL, 10_000_000, 10_000)).unwrap();
        for fault in &schedule.faults {
            let (Fault::Kill { targets } | Fault::Pause { targets }) =
                Fault::from_description(&fault.fault).unwrap()
            else {
                continue;
            };
            assert!(matches!(
                targets,
                Targets::One | Targets::Leader | Targets::Minority
            ));
        }
    }

    #[test]
    fn clock_skews_cover_both_signs_and_both_speeds_within_bounds() {
        let schedule = plan(&options(9, &[Family::ClockSkew], 10_000_000, 10_000)).unwrap();
        let (mut signs, mut speeds) = ([0; 2], [0; 3]);
        for fault in &schedule.faults {
            let Fault::ClockSkew {
                offset_ms, rate, ..
            } = Fault::from_description(&fault.fault).unwrap()
            else {
                panic!("not a clock skew: {fault:?}");
            };
            assert!((50..=3_000).contains(&offset_ms.abs()), "{offset_ms}");
            assert!((0.5..=2.0).contains(&rate), "{rate}");
            signs[usize::from(offset_ms > 0)] += 1;
            speeds[if rate < 1.0 {
                0
            } else if rate == 1.0 {
                1
            } else {
                2
            }] += 1;
        }
        assert!(signs.iter().all(|count| *count > 300), "{signs:?}");
        assert!(speeds.iter().all(|count| *count > 150), "{speeds:?}");
    }

    #[test]
    fn what_cannot_be_planned_is_an_error_that_says_so() {
        let short = plan(&options(1, &[Family::Kill], 2_999, 1_000)).unwrap_err();
        assert!(short.to_string().contains("at least 3000 ms"), "{short}");
        assert!(matches!(
            plan(&options(1, &[Family::Kill], 60_000, 99)),
            Err(PlanError::IntervalTooShort { .. })
        ));
        let mut lonely = options(1, &[Family::PartitionRandom], 60_000, 5_000);
        lonely.nodes.truncate(1);
        let lonely = plan(&lonely).unwrap_err().to_string();
        assert!(
            lonely.contains("partition-random needs at least 2 nodes"),
            "{lonely}"
        );
        assert_eq!(plan(&options(1, &[], 10, 1)).unwrap().faults, Vec::new());
    }

    #[test]
    fn an_interval_longer_than_the_run_still_gives_one_fault_of_each_family() {
        let schedule = plan(&options(1, &Family::ALL, TIME_MIN_MS, u64::MAX)).unwrap();
        assert_eq!(schedule.faults.len(), Family::ALL.len());
    }

    /// A stored seed must plan the same run in years to come.
    #[test]
    fn a_seed_never_changes_its_meaning() {
        let schedule = plan(&options(42, &Family::ALL, 12_000, 6_000)).unwrap();
        let planned: Vec<(u64, u64, u64, FaultDescription)> = schedule
            .faults
            .into_iter()
            .map(|fault| {
                (
                    fault.id,
                    fault.trigger.at_ms,
                    fault.duration_ms,
                    fault.fault,
                )
            })
            .collect();
        let expected = GOLDEN.map(|(id, at_ms, duration_ms, fault)| {
            (id, at_ms, duration_ms, serde_json::from_str(fault).unwrap())
        });
        assert_eq!(planned, expected);
    }

    const GOLDEN: [(u64, u64, u64, &str); 4] = [
        (
            1,
            2965,
            3481,
            r#"{"kind":"partition","shape":"majorities-ring","style":"hold"}"#,
        ),
        (2, 3231, 2401, r#"{"kind":"kill","targets":"leader"}"#),
        (3, 3856, 3466, r#"{"kind":"pause","targets":"minority"}"#),
        (
            4,
            5116,
            3562,
            r#"{"kind":"clock-skew","offset_ms":-158,"rate":1.0,"targets":"minority"}"#,
        ),
    ];
}
