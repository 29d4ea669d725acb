//! Owns what a planned fault of each family looks like: the distribution of its parameters.
//! Never says when a fault comes, and draws nothing but by number of the fault.

use results::keyed_random::Stream;

use crate::family::Family;
use crate::fault::{
    Direction, DiskFault, DiskProblem, Distribution, DutyCycle, Fault, Files, LinkSelector,
    MembershipChange, Shape, Shaping, Strobe, Style, Target, Targets,
};

/// Counters of the draws of one fault; 0 to 3 decide its times.
const AIM: u64 = 4;
const SECOND_AIM: u64 = 5;
const SIZE: u64 = 6;
const SIGN: u64 = 7;
const CHOICE: u64 = 8;
const SECOND_SIZE: u64 = 9;
const STYLE: u64 = 10;
const THIRD_SIZE: u64 = 11;
const SECOND_STYLE: u64 = 12;
const SECOND_START: u64 = 13;
/// Counters from here up shuffle: keyed by a block of faults instead of one.
const SHUFFLE: u64 = 16;

/// The draws for one planned fault.
#[derive(Debug, Clone, Copy)]
pub(super) struct Draws<'a> {
    /// Stream of the family.
    pub(super) stream: &'a Stream,
    /// Number of the fault within the family, from 0.
    pub(super) number: u64,
    /// Size of the cluster.
    pub(super) node_count: usize,
    /// How partitions may cut links.
    pub(super) styles: &'a [Style],
}

/// What the fault is.
pub(super) fn draw_fault(family: Family, draws: Draws<'_>) -> Fault {
    let targets = draws.victims();
    match family {
        Family::PartitionRandom
        | Family::PartitionHalves
        | Family::PartitionRandomHalves
        | Family::PartitionNode
        | Family::PartitionLeader
        | Family::PartitionLeaderMinority
        | Family::PartitionLeaderMajority
        | Family::PartitionMajoritiesRing
        | Family::PartitionBridge
        | Family::PartitionOneWay
        | Family::PartitionChain
        | Family::PartitionKip996 => Fault::Partition {
            shape: draws.shape(family),
            style: draws.style(),
        },
        Family::LinkSlow => Fault::Link {
            links: draws.some_links(),
            shaping: draws.slowness(),
        },
        Family::LinkSlowClose => Fault::Link {
            links: LinkSelector::Targets(Targets::All),
            shaping: Shaping {
                close_delay_ms: draws.steps(CHOICE, THIRD_SIZE, &[50, 300, 1_500, 6_000]),
                ..Shaping::default()
            },
        },
        Family::LinkFlaky => Fault::Link {
            links: draws.some_links(),
            shaping: draws.flakiness(),
        },
        Family::PacketLoss
        | Family::PacketDuplicate
        | Family::PacketReorder
        | Family::PacketCorrupt => Fault::Link {
            links: draws.some_links(),
            shaping: draws.one_flaw(family),
        },
        Family::Kill => Fault::Kill { targets },
        Family::KillClean => Fault::KillClean { targets },
        Family::Restart => Fault::Restart { targets },
        Family::Pause => Fault::Pause { targets },
        Family::Slow => Fault::Slow {
            targets,
            duty: DutyCycle {
                on_ms: draws.steps(SIZE, SECOND_SIZE, &[5, 20, 50, 100]),
                off_ms: draws.steps(CHOICE, THIRD_SIZE, &[5, 20, 80, 200]),
            },
        },
        Family::Wipe => Fault::Wipe {
            targets: draws.single_victim(),
            beyond_budget: false,
        },
        Family::ClockSkew | Family::ClockBump | Family::ClockDrift | Family::ClockReset => {
            draws.clock_skew(family)
        }
        Family::ClockStrobe => Fault::ClockStrobe {
            targets: draws.clock_targets(),
            strobe: Strobe {
                delta_ms: draws.signed(draws.steps(SECOND_AIM, SIZE, &[5, 50, 400, 3_000])),
                period_ms: draws.steps(CHOICE, SECOND_SIZE, &[10, 50, 200, 1_000]),
            },
        },
        Family::DiskSlow | Family::DiskFull | Family::DiskError | Family::DiskCorrupt => {
            draws.disk(family, targets)
        }
        Family::Membership => draws.membership(),
        Family::Snapshot => Fault::Snapshot {
            targets: if draws.chance(CHOICE, 25) {
                Targets::All
            } else {
                draws.single_victim()
            },
        },
        Family::Burst => Fault::Burst,
    }
}

/// The second fault of a pair.
pub(super) struct Second {
    /// How much of the first is over by then.
    pub(super) after_percent: u64,
    /// What it is.
    pub(super) fault: Fault,
}

/// What comes in the midst of a fault of a family whose faults come in pairs.
pub(super) fn draw_second(family: Family, draws: Draws<'_>) -> Option<Second> {
    if !family.is_paired() {
        return None;
    }
    let fault = match family {
        // Whose connections shall end, if nobody does? The others wait for answers of the leader.
        Family::LinkSlowClose => Fault::Kill {
            targets: Targets::Leader,
        },
        // Who is wrong is drawn only when the first begins.
        _ => Fault::ClockReset {
            targets: Targets::All,
        },
    };
    Some(Second {
        after_percent: draws.stream.between(draws.number, SECOND_START, 30, 70),
        fault,
    })
}

impl Draws<'_> {
    fn chance(&self, counter: u64, percent: u64) -> bool {
        self.stream.chance(self.number, counter, percent)
    }

    /// A number between two neighbours of these bounds: roughly logarithmic, since small faults hide in
    /// timeouts, large ones cross them, and both are wanted.
    fn steps(&self, step_counter: u64, size_counter: u64, bounds: &[u64]) -> u64 {
        let step_count = bounds.len() as u64 - 1;
        let step = self.stream.below(self.number, step_counter, step_count) as usize;
        self.stream
            .between(self.number, size_counter, bounds[step], bounds[step + 1])
    }

    fn signed(&self, size_ms: u64) -> i64 {
        let size_ms = i64::try_from(size_ms).expect("sizes are a few seconds at most");
        if self.chance(SIGN, 50) {
            size_ms
        } else {
            -size_ms
        }
    }

    /// One of these, so that every block of draws is a shuffled hand of all of them: even counts, and
    /// none three times in a row.
    fn dealt<T>(&self, mut hand: Vec<T>) -> T {
        let length = hand.len() as u64;
        self.stream
            .shuffle(self.number / length, SHUFFLE, &mut hand);
        hand.swap_remove((self.number % length) as usize)
    }

    fn target(&self) -> Target {
        if self.chance(AIM, 50) {
            Target::Leader
        } else {
            Target::One
        }
    }

    /// Leader, one node or a minority: a majority always stays.
    fn victims(&self) -> Targets {
        if self.chance(AIM, 50) {
            return Targets::Leader;
        }
        if self.node_count >= 3 && self.chance(SECOND_AIM, 50) {
            return Targets::Minority;
        }
        Targets::One
    }

    fn single_victim(&self) -> Targets {
        if self.chance(AIM, 50) {
            Targets::Leader
        } else {
            Targets::One
        }
    }

    fn shape(&self, family: Family) -> Shape {
        let one_way = |target| Shape::OneWay {
            target,
            direction: Direction::Any,
        };
        match family {
            Family::PartitionHalves => Shape::Halves,
            Family::PartitionRandomHalves => Shape::RandomHalves,
            Family::PartitionNode => Shape::OneNode {
                target: Target::One,
            },
            Family::PartitionLeader => Shape::Leader,
            Family::PartitionLeaderMinority => Shape::LeaderMinority,
            Family::PartitionLeaderMajority => Shape::LeaderMajority,
            Family::PartitionMajoritiesRing => Shape::MajoritiesRing,
            Family::PartitionBridge => Shape::Bridge,
            Family::PartitionOneWay => one_way(self.target()),
            Family::PartitionChain => Shape::Chain,
            Family::PartitionKip996 => Shape::Kip996,
            _ => {
                let mut hand = vec![
                    Shape::RandomHalves,
                    Shape::OneNode {
                        target: Target::One,
                    },
                    Shape::Leader,
                    one_way(self.target()),
                    Shape::Halves,
                ];
                if self.node_count >= 3 {
                    hand.extend([
                        Shape::MajoritiesRing,
                        Shape::LeaderMinority,
                        Shape::LeaderMajority,
                        Shape::Bridge,
                        Shape::Chain,
                    ]);
                }
                if self.node_count == 5 {
                    hand.push(Shape::Kip996);
                }
                self.dealt(hand)
            }
        }
    }

    /// Half of the partitions hold; the others share what else is possible.
    fn style(&self) -> Style {
        let others: Vec<Style> = self
            .styles
            .iter()
            .copied()
            .filter(|style| *style != Style::Hold)
            .collect();
        if others.is_empty() || self.chance(STYLE, 50) {
            return Style::Hold;
        }
        let drawn = self.stream.choose(self.number, SECOND_STYLE, &others);
        drawn.copied().unwrap_or_default()
    }

    fn some_links(&self) -> LinkSelector {
        let few = self.victims();
        if self.chance(STYLE, 30) {
            return LinkSelector::Targets(Targets::All);
        }
        if self.chance(SECOND_STYLE, 30) {
            return LinkSelector::Shape(Shape::OneWay {
                target: self.target(),
                direction: Direction::Any,
            });
        }
        LinkSelector::Targets(few)
    }

    fn slowness(&self) -> Shaping {
        let delay_ms = self.steps(SIZE, SECOND_SIZE, &[5, 20, 80, 300, 1_000]);
        let scattered = [
            Distribution::Uniform,
            Distribution::Normal,
            Distribution::Pareto,
        ];
        let distribution = self.stream.choose(self.number, SIGN, &scattered);
        let delayed = Shaping {
            delay_ms,
            jitter_ms: delay_ms.div_ceil(2),
            distribution: distribution.copied().unwrap_or_default(),
            ..Shaping::default()
        };
        let bytes = |bounds: &[u64]| self.steps(CHOICE, THIRD_SIZE, bounds);
        self.dealt(vec![
            delayed.clone(),
            Shaping {
                bandwidth_bytes_per_second: bytes(&[4_000, 16_000, 64_000, 256_000]),
                ..delayed
            },
            Shaping {
                bandwidth_bytes_per_second: bytes(&[2_000, 8_000, 32_000]),
                ..Shaping::default()
            },
            Shaping {
                stall_after_bytes: bytes(&[1, 500, 5_000, 50_000]),
                ..Shaping::default()
            },
        ])
    }

    fn flakiness(&self) -> Shaping {
        let percent = |counter, most| self.stream.between(self.number, counter, 1, most);
        let (loss, duplicate, reorder) = (
            percent(SIZE, 30),
            percent(SECOND_SIZE, 20),
            percent(THIRD_SIZE, 50),
        );
        let flaky = |loss_percent, duplicate_percent, reorder_percent| Shaping {
            loss_percent,
            duplicate_percent,
            reorder_percent,
            ..Shaping::default()
        };
        self.dealt(vec![
            flaky(loss, 0, 0),
            flaky(0, duplicate, reorder),
            flaky(loss, duplicate, reorder),
        ])
    }

    fn one_flaw(&self, family: Family) -> Shaping {
        let mut shaping = Shaping::default();
        let percent = |bounds: &[u64]| self.steps(SIZE, SECOND_SIZE, bounds);
        match family {
            Family::PacketLoss => shaping.loss_percent = percent(&[1, 5, 15, 40]),
            Family::PacketDuplicate => shaping.duplicate_percent = percent(&[1, 10, 50]),
            Family::PacketReorder => shaping.reorder_percent = percent(&[1, 10, 50]),
            _ => shaping.corrupt_percent = percent(&[1, 5, 15, 40]),
        }
        shaping
    }

    fn clock_targets(&self) -> Targets {
        const TARGETS: [Targets; 4] = [
            Targets::One,
            Targets::Leader,
            Targets::Minority,
            Targets::Majority,
        ];
        match self.stream.choose(self.number, AIM, &TARGETS) {
            Some(Targets::Minority) | None if self.node_count < 3 => Targets::One,
            None => Targets::One,
            Some(targets) => targets.clone(),
        }
    }

    fn clock_skew(&self, family: Family) -> Fault {
        const OFFSET_BOUNDS_MS: [u64; 7] = [50, 100, 200, 400, 800, 1_600, 3_000];
        let offset_ms = self.signed(self.steps(SECOND_AIM, SIZE, &OFFSET_BOUNDS_MS));
        let slower = || self.stream.between(self.number, SECOND_SIZE, 50, 95);
        let faster = || self.stream.between(self.number, SECOND_SIZE, 105, 200);
        let drift_percent = match self.stream.below(self.number, CHOICE, 4) {
            0 | 2 => slower(),
            _ => faster(),
        };
        let (offset_ms, rate_percent) = match family {
            Family::ClockBump => (offset_ms, 100),
            Family::ClockDrift => (0, drift_percent),
            _ => match self.stream.below(self.number, CHOICE, 4) {
                0 | 1 => (offset_ms, 100),
                _ => (offset_ms, drift_percent),
            },
        };
        Fault::ClockSkew {
            targets: self.clock_targets(),
            offset_ms,
            rate: rate_percent as f64 / 100.0,
        }
    }

    fn disk(&self, family: Family, targets: Targets) -> Fault {
        let all = |what| DiskFault {
            what,
            files: Files::All,
            delay_ms: None,
            restart: false,
        };
        let disk = match family {
            Family::DiskSlow => DiskFault {
                delay_ms: Some(self.steps(SIZE, SECOND_SIZE, &[5, 20, 80, 300, 1_000])),
                ..all(DiskProblem::SlowSync)
            },
            Family::DiskFull => all(DiskProblem::NoSpace),
            Family::DiskError => self.dealt(vec![
                all(DiskProblem::SyncError),
                // A node that runs hardly ever reads.
                DiskFault {
                    restart: true,
                    ..all(DiskProblem::ReadError)
                },
            ]),
            _ => {
                let what = self.dealt(vec![
                    DiskProblem::BitFlip,
                    DiskProblem::Truncate,
                    DiskProblem::TornWrite,
                    DiskProblem::MisdirectedWrite,
                ]);
                let files = match self.stream.below(self.number, CHOICE, 5) {
                    0 if what != DiskProblem::MisdirectedWrite => Files::QuorumState,
                    1 if what != DiskProblem::MisdirectedWrite => Files::Snapshot,
                    _ => Files::Log,
                };
                DiskFault { files, ..all(what) }
            }
        };
        Fault::Disk {
            targets,
            disk,
            beyond_budget: false,
        }
    }

    fn membership(&self) -> Fault {
        let change = self.dealt(vec![
            MembershipChange::Add,
            MembershipChange::Remove,
            MembershipChange::Replace,
            MembershipChange::RemoveLeader,
            MembershipChange::Promote,
        ]);
        let target = match change {
            MembershipChange::RemoveLeader => Target::Leader,
            MembershipChange::Replace => self.target(),
            _ => Target::One,
        };
        Fault::Membership { change, target }
    }
}
