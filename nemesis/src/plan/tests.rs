//! Owns the tests of plans: times, distributions, and that a seed keeps its meaning.

use super::*;
use crate::fault::{Fault, MembershipChange, Shape, Target, Targets, Word};
use proptest::prelude::*;
use results::schedule::FaultDescription;
use std::collections::BTreeMap;

fn options(seed: u64, families: &[Family], time_ms: u64, interval_ms: u64) -> PlanOptions {
    let nodes = (1..=5).map(|number| format!("n{number}")).collect();
    PlanOptions::new(seed, families.to_vec(), nodes, time_ms, interval_ms)
}

/// The faults of a family; of pairs, the first.
fn of_family(schedule: &Schedule, family: Family) -> Vec<ScheduledFault> {
    let mut faults = schedule.faults.clone();
    // Every other number of such a family is that of a second one.
    let is_first = |id: u64| !family.is_paired() || (id / 1_000).is_multiple_of(2);
    faults.retain(|fault| Family::of_id(fault.id) == Some(family) && is_first(fault.id));
    faults
}

/// The second faults of the pairs of a family.
fn seconds(schedule: &Schedule, family: Family) -> Vec<ScheduledFault> {
    let firsts = of_family(schedule, family);
    let mut faults = schedule.faults.clone();
    faults.retain(|fault| Family::of_id(fault.id) == Some(family) && !firsts.contains(fault));
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
        node_count in 3usize..9,
        time_ms in TIME_MIN_MS..600_000,
        interval_ms in INTERVAL_MIN_MS..60_000,
        family_interval_ms in INTERVAL_MIN_MS..60_000,
        intensity_percent in 1..=INTENSITY_MAX_PERCENT,
        healthy_percent in 0..=50u64,
    ) {
        let fits = |family: &Family| family.needed_count() <= node_count;
        let families: Vec<Family> = families.into_iter().filter(fits).collect();
        prop_assume!(!families.is_empty());
        let mut options = options(seed, &families, time_ms, interval_ms);
        options.intensity_percent = intensity_percent;
        options.healthy_ms = interval_ms * 10 * healthy_percent / 100;
        options.family_interval_ms = BTreeMap::from([(families[0], family_interval_ms)]);
        options.styles = vec![Style::Hold, Style::Reset, Style::Refuse];
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
        let quiet_ms = (time_ms / 10).min(2_000);
        let block_ms = interval_ms * HEALTHY_EVERY_INTERVALS;
        let block_count = (time_ms - time_ms / 10 - quiet_ms) / block_ms;
        for block in 1..=block_count {
            let end_ms = quiet_ms + block * block_ms;
            let start_ms = end_ms - options.healthy_ms;
            for fault in &schedule.faults {
                let healed_ms = fault.trigger.at_ms + fault.duration_ms;
                let is_apart = healed_ms <= start_ms || fault.trigger.at_ms >= end_ms;
                prop_assert!(is_apart || options.healthy_ms == 0, "{:?}", fault);
            }
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
    let mut reordered = Family::ALL;
    reordered.reverse();
    assert_eq!(once, plan(&options(7, &reordered, 60_000, 5_000)).unwrap());
    assert_ne!(
        once,
        plan(&options(8, &Family::ALL, 60_000, 5_000)).unwrap()
    );
}

const SHORT_AT_TIMES: [Family; 4] = [
    Family::Kill,
    Family::KillClean,
    Family::Restart,
    Family::Pause,
];

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
        if SHORT_AT_TIMES.contains(&family) {
            assert!((60..=180).contains(&short), "{short} short, {family:?}");
            let least = whole
                .iter()
                .filter(|fault| fault.duration_ms <= 300)
                .count();
            assert_eq!(
                least, short,
                "shorter than any timeout, or of the usual length"
            );
            assert!(whole.iter().all(|fault| fault.duration_ms >= 20));
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
    assert_eq!(counts.len(), 11, "{counts:?}");
    let spread = counts.values().max().unwrap() - counts.values().min().unwrap();
    assert!(spread <= 1, "{counts:?}");
    assert!(
        shapes
            .windows(3)
            .all(|three| three[0] != three[1] || three[1] != three[2])
    );
    assert_ne!(
        shapes[..11],
        shapes[11..22],
        "every block has its own order"
    );
}

/// Whether the fault is about one node, and whether that is the leader.
fn aims_at_leader(fault: &Fault) -> Option<bool> {
    if let Fault::Partition { shape, .. } = fault {
        return match shape {
            Shape::Leader | Shape::LeaderMinority | Shape::LeaderMajority => Some(true),
            shape => shape.target().map(|target| *target == Target::Leader),
        };
    }
    let targets = fault.targets().map(|targets| *targets == Targets::Leader);
    targets.or_else(|| fault.target().map(|target| *target == Target::Leader))
}

#[test]
fn about_half_of_the_aimed_faults_aim_at_the_leader() {
    let schedule = plan(&options(5, &Family::ALL, 10_000_000, 10_000)).unwrap();
    let expected = [
        // Three of the five shapes that aim are about the leader, and half of one more.
        (Family::PartitionRandom, 60..=80),
        (Family::PartitionOneWay, 40..=60),
        (Family::PartitionNode, 0..=0),
        (Family::PartitionLeader, 100..=100),
        (Family::Kill, 40..=60),
        (Family::Pause, 40..=60),
        (Family::Restart, 40..=60),
        (Family::Wipe, 40..=60),
        (Family::DiskCorrupt, 40..=60),
    ];
    for (family, percents) in expected {
        let faults = of_family(&schedule, family);
        let faults = faults
            .iter()
            .map(|fault| Fault::from_description(&fault.fault));
        let aimed: Vec<bool> = faults
            .filter_map(|fault| aims_at_leader(&fault.unwrap()))
            .collect();
        let at_leader = aimed.iter().filter(|at_leader| **at_leader).count();
        let percent = at_leader * 100 / aimed.len();
        assert!(percents.contains(&percent), "{family:?}: {percent} %");
    }
}

#[test]
fn every_family_draws_every_variety_it_has() {
    let schedule = plan(&options(5, &Family::ALL, 10_000_000, 10_000)).unwrap();
    let varieties = |family: Family, words: fn(&Fault) -> String| {
        let faults = of_family(&schedule, family);
        let words = faults
            .iter()
            .map(|fault| words(&Fault::from_description(&fault.fault).unwrap()));
        words.collect::<std::collections::BTreeSet<_>>()
    };
    let problem = |fault: &Fault| match fault {
        Fault::Disk { disk, .. } => disk.what.word().to_owned(),
        other => panic!("not a disk fault: {other:?}"),
    };
    assert_eq!(varieties(Family::DiskCorrupt, problem).len(), 4);
    assert_eq!(varieties(Family::DiskError, problem).len(), 2);
    let files = |fault: &Fault| match fault {
        Fault::Disk { disk, .. } => disk.files.word().to_owned(),
        other => panic!("not a disk fault: {other:?}"),
    };
    assert_eq!(varieties(Family::DiskCorrupt, files).len(), 3);
    let changes = varieties(Family::Membership, |fault| match fault {
        Fault::Membership { change, .. } => change.word().to_owned(),
        other => panic!("not a membership fault: {other:?}"),
    });
    assert_eq!(changes.len(), MembershipChange::WORDS.len());
    let parameters = |fault: &Fault| {
        let description = fault.to_description();
        let names = description.parameters.keys().cloned();
        names.collect::<Vec<_>>().join(" ")
    };
    for (family, wanted) in [
        (Family::LinkSlow, "bandwidth_bytes_per_second"),
        (Family::LinkSlow, "delay_ms"),
        (Family::LinkSlow, "stall_after_bytes"),
        (Family::LinkFlaky, "loss_percent"),
        (Family::LinkFlaky, "duplicate_percent"),
        (Family::LinkFlaky, "reorder_percent"),
    ] {
        let drawn = varieties(family, parameters);
        assert!(drawn.iter().any(|names| names.contains(wanted)), "{wanted}");
        assert!(
            drawn.iter().any(|names| !names.contains(wanted)),
            "{wanted}"
        );
    }
    let drift = varieties(Family::ClockDrift, |fault| match fault {
        Fault::ClockSkew {
            offset_ms: 0, rate, ..
        } => format!("{}", *rate > 1.0),
        other => panic!("not a drift: {other:?}"),
    });
    assert_eq!(drift.len(), 2);
    let bump = varieties(Family::ClockBump, |fault| match fault {
        Fault::ClockSkew {
            offset_ms,
            rate: 1.0,
            ..
        } => format!("{}", *offset_ms > 0),
        other => panic!("not a bump: {other:?}"),
    });
    assert_eq!(bump.len(), 2);
}

#[test]
fn links_are_cut_in_every_way_that_is_offered_and_held_otherwise() {
    let styles = |styles: &[Style]| {
        let mut options = options(6, &[Family::PartitionRandom], 4_000_000, 10_000);
        options.styles = styles.to_vec();
        let mut counts = BTreeMap::new();
        for fault in plan(&options).unwrap().faults {
            let Ok(Fault::Partition { style, .. }) = Fault::from_description(&fault.fault) else {
                panic!("not a partition: {fault:?}");
            };
            *counts.entry(style).or_insert(0usize) += 1;
        }
        counts
    };
    assert_eq!(styles(&[]).len(), 1);
    assert_eq!(styles(&[Style::Hold]), styles(&[]));
    let all = styles(&[Style::Hold, Style::Reset, Style::Refuse]);
    assert!(
        all.len() == 3 && all.values().all(|count| *count > 50),
        "{all:?}"
    );
}

#[test]
fn intensity_changes_how_much_goes_on() {
    let count_and_share = |intensity_percent| {
        let mut options = options(6, &[Family::LinkSlow], 4_000_000, 10_000);
        options.intensity_percent = intensity_percent;
        let faults = plan(&options).unwrap().faults;
        let faulty_ms: u64 = faults.iter().map(|fault| fault.duration_ms).sum();
        (faults.len(), faulty_ms * 100 / 4_000_000)
    };
    let (usual, usual_share) = count_and_share(100);
    let (half, half_share) = count_and_share(50);
    let (double, double_share) = count_and_share(200);
    assert!((340..=380).contains(&usual), "{usual}");
    assert!((170..=190).contains(&half), "{half}");
    assert!((680..=760).contains(&double), "{double}");
    assert!(
        half_share < usual_share * 6 / 10,
        "{half_share}, {usual_share}"
    );
    assert!(
        double_share.abs_diff(usual_share) <= 3,
        "{double_share}, {usual_share}"
    );
}

#[test]
fn a_family_can_have_an_interval_of_its_own() {
    let mut own = options(6, &[Family::Kill, Family::Pause], 1_000_000, 10_000);
    own.family_interval_ms = BTreeMap::from([(Family::Pause, 50_000)]);
    let schedule = plan(&own).unwrap();
    let usual = plan(&options(6, &[Family::Kill], 1_000_000, 10_000)).unwrap();
    assert_eq!(of_family(&schedule, Family::Kill), usual.faults);
    assert!((15..=20).contains(&of_family(&schedule, Family::Pause).len()));
}

#[test]
fn kills_and_pauses_leave_a_majority() {
    let schedule = plan(&options(5, &Family::ALL, 10_000_000, 10_000)).unwrap();
    for fault in &schedule.faults {
        let (Fault::Kill { targets }
        | Fault::KillClean { targets }
        | Fault::Restart { targets }
        | Fault::Pause { targets }
        | Fault::Slow { targets, .. }
        | Fault::Wipe { targets, .. }
        | Fault::Disk { targets, .. }) = Fault::from_description(&fault.fault).unwrap()
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
    let mut strange = options(1, &[Family::Kill], 60_000, 1_000);
    strange.intensity_percent = 0;
    assert!(matches!(plan(&strange), Err(PlanError::Intensity { .. })));
    strange.intensity_percent = 100;
    strange.healthy_ms = 5_001;
    let healthy = plan(&strange).unwrap_err().to_string();
    assert!(healthy.contains("5000 ms"), "{healthy}");
    let mut pair = options(1, &[Family::DiskCorrupt], 60_000, 5_000);
    pair.nodes.truncate(2);
    assert!(matches!(plan(&pair), Err(PlanError::TooFewNodes { .. })));
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
    let paired = Family::ALL.into_iter().filter(|family| family.is_paired());
    assert_eq!(schedule.faults.len(), Family::ALL.len() + paired.count());
}

#[test]
fn of_a_pair_the_second_comes_in_the_midst_of_the_first() {
    let schedule = plan(&options(9, &Family::ALL, 600_000, 4_000)).unwrap();
    for (family, kind) in [
        (Family::ClockReset, "clock-reset"),
        (Family::LinkSlowClose, "kill"),
    ] {
        let (firsts, seconds) = (of_family(&schedule, family), seconds(&schedule, family));
        assert!(firsts.len() > 100 && firsts.len() == seconds.len());
        for (first, second) in firsts.iter().zip(&seconds) {
            assert_ne!(first.fault.kind, kind);
            assert_eq!(second.fault.kind, kind);
            assert!(first.trigger.at_ms < second.trigger.at_ms);
            assert_eq!(
                first.trigger.at_ms + first.duration_ms,
                second.trigger.at_ms + second.duration_ms
            );
        }
    }
}

#[test]
fn what_is_asked_of_a_family_is_so_in_all_its_faults_and_in_no_others() {
    let families = [Family::Kill, Family::Pause, Family::LinkSlowClose];
    let mut asking = options(9, &families, 600_000, 4_000);
    let usual = plan(&asking).unwrap();
    let leader = Asked::from([("targets".into(), "leader".into())]);
    asking.family_asked = BTreeMap::from([
        (Family::Kill, leader.clone()),
        (Family::LinkSlowClose, leader.clone()),
    ]);
    let schedule = plan(&asking).unwrap();
    let pauses = |schedule| of_family(schedule, Family::Pause);
    assert_eq!(pauses(&schedule), pauses(&usual));
    let aimed = [
        of_family(&schedule, Family::Kill),
        of_family(&schedule, Family::LinkSlowClose),
        seconds(&schedule, Family::LinkSlowClose),
    ];
    for fault in aimed.concat() {
        assert_eq!(fault.fault.parameters["targets"], "leader", "{fault:?}");
    }
    asking.families = vec![Family::Burst];
    asking.family_asked = BTreeMap::from([(Family::Burst, leader)]);
    let error = plan(&asking).unwrap_err().to_string();
    assert!(error.starts_with("nemesis burst: "), "{error}");
    asking.families = vec![Family::DiskFull];
    let other = Asked::from([("what".into(), "bit-flip".into())]);
    asking.family_asked = BTreeMap::from([(Family::DiskFull, other)]);
    assert_eq!(
        plan(&asking).unwrap_err().to_string(),
        "nemesis disk-full: what=bit-flip would make it another fault; name the family that does it: disk-corrupt"
    );
}

const OLDEST: [Family; 4] = [
    Family::PartitionRandom,
    Family::Kill,
    Family::Pause,
    Family::ClockSkew,
];

/// A stored seed must plan the same run in years to come.
#[test]
fn a_seed_never_changes_its_meaning() {
    let schedule = plan(&options(42, &OLDEST, 12_000, 6_000)).unwrap();
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
        r#"{"kind":"partition","shape":"kip-996","style":"hold"}"#,
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

/// The same for everything that came later: when, how long, and what.
#[test]
fn a_seed_never_changes_its_meaning_for_newer_families_either() {
    let newer: Vec<Family> = Family::ALL
        .into_iter()
        .filter(|family| !OLDEST.contains(family))
        .collect();
    let schedule = plan(&options(42, &newer, 12_000, 6_000)).unwrap();
    let planned: Vec<String> = schedule
        .faults
        .iter()
        .map(|fault| {
            let times = (fault.id, fault.trigger.at_ms, fault.duration_ms);
            format!("{times:?} {}", serde_json::to_string(&fault.fault).unwrap())
        })
        .collect();
    assert_eq!(
        planned,
        include_str!("golden.txt").lines().collect::<Vec<_>>()
    );
}
