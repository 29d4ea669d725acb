//! Owns faults of every kind and word for tests.
//! Never part of the program.

use proptest::prelude::*;

use super::*;

pub(crate) fn any_word<T: Word + std::fmt::Debug>() -> impl Strategy<Value = T> {
    proptest::sample::select(T::WORDS).prop_map(|(choice, _)| choice)
}

pub(crate) fn any_target() -> impl Strategy<Value = Target> {
    prop_oneof![
        Just(Target::One),
        Just(Target::Leader),
        any_word().prop_map(Target::OneOf),
        Just(Target::EventNode),
        Just(Target::Node("n2".into())),
    ]
}

pub(crate) fn any_targets() -> impl Strategy<Value = Targets> {
    prop_oneof![
        Just(Targets::One),
        Just(Targets::Minority),
        Just(Targets::Majority),
        Just(Targets::All),
        Just(Targets::Leader),
        any_word().prop_map(Targets::Group),
        Just(Targets::EventNode),
        Just(Targets::Nodes(vec!["n3".into(), "n1".into()])),
    ]
}

/// Shapes that fit every cluster of three nodes and more.
pub(crate) fn any_shape() -> impl Strategy<Value = Shape> {
    prop_oneof![
        Just(Shape::Halves),
        Just(Shape::RandomHalves),
        any_target().prop_map(|target| Shape::OneNode { target }),
        Just(Shape::Leader),
        Just(Shape::LeaderMinority),
        Just(Shape::LeaderMajority),
        Just(Shape::MajoritiesRing),
        Just(Shape::Bridge),
        (any_target(), any_word())
            .prop_map(|(target, direction)| Shape::OneWay { target, direction }),
        Just(Shape::Chain),
        Just(Shape::Groups(vec![
            vec!["n3".into()],
            vec!["n1".into(), "n2".into()]
        ])),
        Just(Shape::Links(vec![("n3".into(), "n1".into())])),
    ]
}

fn any_shaping() -> impl Strategy<Value = Shaping> {
    (
        1..=DELAY_MAX_MS,
        1..=DELAY_MAX_MS,
        any_word(),
        (0..=100u64, 0..=100u64, 0..=100u64, 0..=100u64),
        any::<u64>(),
        (any::<u64>(), 0..=DELAY_MAX_MS),
    )
        .prop_map(
            |(delay_ms, jitter_ms, distribution, percents, bandwidth, (stall, close_delay_ms))| {
                Shaping {
                    delay_ms,
                    jitter_ms,
                    distribution,
                    loss_percent: percents.0,
                    duplicate_percent: percents.1,
                    reorder_percent: percents.2,
                    corrupt_percent: percents.3,
                    bandwidth_bytes_per_second: bandwidth,
                    stall_after_bytes: stall,
                    close_delay_ms,
                }
            },
        )
}

fn any_disk() -> impl Strategy<Value = DiskFault> {
    (any_word(), any_word(), 1..=SYNC_DELAY_MAX_MS)
        .prop_map(|(what, files, delay_ms)| DiskFault {
            what,
            files,
            delay_ms: (what == DiskProblem::SlowSync).then_some(delay_ms),
            restart: what == DiskProblem::ReadError && delay_ms.is_multiple_of(2),
        })
        .prop_filter("files that do not fit", |disk| disk.validate().is_ok())
}

fn any_membership() -> impl Strategy<Value = Fault> {
    let named = prop_oneof![Just(Target::One), Just(Target::Node("n9".into()))];
    prop_oneof![
        named.prop_map(|target| (MembershipChange::Add, target)),
        any_target().prop_map(|target| (MembershipChange::Remove, target)),
        any_target().prop_map(|target| (MembershipChange::Replace, target)),
        any_target().prop_map(|target| (MembershipChange::Promote, target)),
        Just((MembershipChange::RemoveLeader, Target::Leader)),
    ]
    .prop_map(|(change, target)| Fault::Membership { change, target })
}

/// Faults of every kind that can be written; not all of them fit every cluster.
pub(crate) fn any_fault() -> impl Strategy<Value = Fault> {
    let links = prop_oneof![
        any_shape().prop_map(LinkSelector::Shape),
        any_targets().prop_map(LinkSelector::Targets),
    ];
    let on_targets = (any_targets(), 0..7u8).prop_map(|(targets, kind)| match kind {
        0 => Fault::Kill { targets },
        1 => Fault::KillClean { targets },
        2 => Fault::Restart { targets },
        3 => Fault::Pause { targets },
        4 => Fault::Snapshot { targets },
        5 => Fault::ClockReset { targets },
        _ => Fault::ClockSkew {
            targets,
            offset_ms: -300,
            rate: 1.25,
        },
    });
    prop_oneof![
        3 => (any_shape(), any_word()).prop_map(|(shape, style)| Fault::Partition { shape, style }),
        2 => (links, any_shaping()).prop_map(|(links, shaping)| Fault::Link { links, shaping }),
        4 => on_targets,
        1 => (any_targets(), 1..=DUTY_MAX_MS, 1..=DUTY_MAX_MS).prop_map(
            |(targets, on_ms, off_ms)| Fault::Slow {
                targets,
                duty: DutyCycle { on_ms, off_ms },
            }
        ),
        1 => (any_targets(), any::<bool>()).prop_map(|(targets, beyond_budget)| Fault::Wipe {
            targets,
            beyond_budget,
        }),
        1 => (any_targets(), 1..=1_000i64, 1..=STROBE_PERIOD_MAX_MS).prop_map(
            |(targets, delta_ms, period_ms)| Fault::ClockStrobe {
                targets,
                strobe: Strobe {
                    delta_ms: -delta_ms,
                    period_ms,
                },
            }
        ),
        2 => (any_targets(), any_disk(), any::<bool>()).prop_map(
            |(targets, disk, beyond_budget)| Fault::Disk {
                targets,
                disk,
                beyond_budget,
            }
        ),
        2 => any_membership(),
        1 => Just(Fault::Burst),
    ]
}
