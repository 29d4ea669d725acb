//! Owns what a seed of a swarm is: which faults, how many, on what cluster, with what clients.
//! Never draws anything but by seed and name of what is drawn, so that a new choice shifts no other.
//!
//! Many different small tests find more than one large one: a fault that is always on hides what happens
//! without it (Groce et al., Swarm testing, 2012).

use nemesis::capability::Need;
use nemesis::family::Family;
use results::keyed_random::Stream;
use results::manifest::{ClusterOptions, NodeTimers, RunOptions, Voters};

/// How many seeds make one hand of [`KINDS`].
const HAND: u64 = 20;
/// Kinds of runs, and how many of them are in every hand.
const KINDS: [(Kind, usize); 5] = [
    (Kind::Quiet, 1),
    (Kind::Single, 3),
    (Kind::FewLong, 3),
    (Kind::ManyShort, 3),
    (Kind::Mixed, 10),
];
/// Sizes of clusters, by how often they are drawn.
const NODES: [u32; 16] = [1, 2, 3, 3, 3, 3, 4, 4, 5, 5, 5, 5, 5, 6, 7, 7];
/// Workloads, by how often they are drawn: registers are judged the most strictly, the others see what a
/// register forgets.
const WORKLOADS: [(&str, usize); 6] = [
    ("register", 9),
    ("append", 3),
    ("counter", 3),
    ("set", 2),
    ("list-append", 2),
    ("unique-ids", 1),
];

/// The workloads to draw from, each as often as it is to come in twenty seeds.
pub fn workloads() -> Vec<String> {
    let all = WORKLOADS.iter();
    let all = all.flat_map(|(name, count)| std::iter::repeat_n((*name).to_owned(), *count));
    all.collect()
}

/// What sort of run it is.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Kind {
    /// Nothing goes wrong.
    Quiet,
    /// One family of faults.
    Single,
    /// A few faults that last.
    FewLong,
    /// Many faults in short order.
    ManyShort,
    /// Every family with even odds.
    Mixed,
}

impl Kind {
    fn name(self) -> &'static str {
        match self {
            Self::Quiet => "quiet",
            Self::Single => "single",
            Self::FewLong => "few-long",
            Self::ManyShort => "many-short",
            Self::Mixed => "mixed",
        }
    }
}

/// What was drawn for a seed.
#[derive(Debug, Clone, PartialEq)]
pub struct Drawn {
    /// The options of the run.
    pub options: RunOptions,
    /// The families of faults.
    pub families: Vec<Family>,
    /// How often faults come, in percent of the usual.
    pub intensity_percent: u64,
}

struct Draws {
    seed: u64,
}

impl Draws {
    fn below(&self, what: &str, bound: u64) -> u64 {
        Stream::new(self.seed, &format!("swarm/{what}")).below(0, 0, bound)
    }

    fn choose<T: Copy>(&self, what: &str, choices: &[T]) -> T {
        choices[self.below(what, choices.len() as u64) as usize]
    }

    fn chance(&self, what: &str, percent: u64) -> bool {
        self.below(what, 100) < percent
    }

    /// Dealt from hands, so that every twenty seeds in a row have exactly the shares that are wanted.
    fn kind(&self) -> Kind {
        let mut hand: Vec<Kind> = KINDS
            .iter()
            .flat_map(|(kind, count)| vec![*kind; *count])
            .collect();
        // One order for all seeds of a hand: keyed by the hand, not by the seed.
        let stream = Stream::new(0, "swarm/kinds");
        stream.shuffle(self.seed / HAND, 0, &mut hand);
        hand[(self.seed % HAND) as usize]
    }
}

/// Draws the run of a seed. `pool` are the families and `workloads` the workloads to draw from, and `base` is
/// what is not drawn.
pub fn draw(seed: u64, pool: &[Family], workloads: &[String], base: &RunOptions) -> Drawn {
    let draws = Draws { seed };
    let kind = draws.kind();
    let nodes = draws.choose("nodes", &NODES);
    let fitting: Vec<Family> = pool
        .iter()
        .copied()
        .filter(|family| family.needed_count() <= nodes as usize)
        .collect();
    let in_log = draws.chance("voters", 60);
    let (families, voters) = match kind {
        Kind::Quiet => (Vec::new(), voters_in(in_log)),
        // Whatever it is, the cluster has to fit it.
        Kind::Single => {
            let families = one_of(&draws, &fitting);
            let voters = voters_in(in_log || families.iter().any(|family| needs_log(*family)));
            (families, voters)
        }
        Kind::FewLong | Kind::ManyShort | Kind::Mixed => {
            let possible: Vec<Family> = fitting
                .into_iter()
                .filter(|family| in_log || !needs_log(*family))
                .collect();
            let on = |family: &Family| draws.chance(&format!("family/{}", family.name()), 50);
            let mut families: Vec<Family> = possible.iter().copied().filter(on).collect();
            if families.is_empty() {
                families = one_of(&draws, &possible);
            }
            (families, voters_in(in_log))
        }
    };
    let (interval_ms, intensity_percent) = match kind {
        Kind::Quiet => (base.interval_ms, 100),
        // A fault lasts about half as long: beyond all timeouts of the cluster, or even those of slow ones.
        Kind::FewLong => {
            let longer = draws.choose("longer", &[3, 6]);
            (base.interval_ms.saturating_mul(longer), 100)
        }
        Kind::ManyShort => (base.interval_ms, draws.choose("intensity", &[250, 400])),
        Kind::Single | Kind::Mixed => (
            base.interval_ms,
            draws.choose("intensity", &[50, 100, 100, 150]),
        ),
    };
    let workload = draws.below("workload", workloads.len().max(1) as u64) as usize;
    let options = RunOptions {
        workload: workloads.get(workload).unwrap_or(&base.workload).clone(),
        nemesis: families.iter().map(|f| f.name().to_owned()).collect(),
        nodes,
        // With fewer, no thread would write, or none would read.
        concurrency: draws.choose("concurrency", &[4, 5, 10, 10, 20, 30]),
        rate_per_second: draws.choose("rate", &[50, 200, 200, 500, 1_000]),
        interval_ms,
        operation_timeout_ms: draws.choose("operation-timeout", &[200, 500, 500, 1_500]),
        timers: timers(&draws),
        cluster: cluster(&draws, kind, voters, &families),
        ..base.clone()
    };
    Drawn {
        options,
        families,
        intensity_percent,
    }
}

fn voters_in(log: bool) -> Voters {
    if log { Voters::Log } else { Voters::Configured }
}

fn one_of(draws: &Draws, families: &[Family]) -> Vec<Family> {
    if families.is_empty() {
        return Vec::new();
    }
    vec![draws.choose("single", families)]
}

/// Whether a family makes sense only where the voters are in the log.
fn needs_log(family: Family) -> bool {
    family
        .needs()
        .any(|need| matches!(need, Need::Membership | Need::Wipe))
}

/// Elections that are decided before, or long after, followers give up on a leader.
fn timers(draws: &Draws) -> NodeTimers {
    let fetch_timeout_ms = draws.choose("fetch-timeout", &[400, 800, 800, 1_600]);
    let request_timeout_ms = draws.choose("request-timeout", &[400, 800, 800, 1_600]);
    NodeTimers {
        election_timeout_ms: draws.choose("election-timeout", &[60, 120, 120, 250, 500]),
        fetch_timeout_ms,
        election_backoff_max_ms: draws.choose("election-backoff", &[100, 400, 400, 800]),
        // Whoever waits for an answer no longer than the leader waits before it gives one takes an idle leader
        // for dead.
        fetch_max_wait_ms: (fetch_timeout_ms / 4).min(request_timeout_ms / 2),
        request_timeout_ms,
        retry_backoff_ms: draws.choose("retry-backoff", &[5, 20, 20, 100]),
    }
}

fn cluster(draws: &Draws, kind: Kind, voters: Voters, families: &[Family]) -> ClusterOptions {
    let snapshot_bytes = draws.choose("snapshot-bytes", &[8 << 10, 64 << 10, 512 << 10, 20 << 20]);
    let retained = draws.choose("retention", &[1, 2, 5]);
    ClusterOptions {
        voters,
        observers: match voters {
            Voters::Log => draws.choose("observers", &[0, 0, 1, 1, 2, 3]),
            Voters::Configured => 0,
        },
        spares: if families.contains(&Family::Membership) {
            draws.choose("spares", &[1, 2, 2, 3])
        } else {
            0
        },
        snapshot_bytes: Some(snapshot_bytes),
        retention_bytes: Some(snapshot_bytes * retained),
        segment_bytes: Some(draws.choose("segment-bytes", &[8 << 10, 64 << 10, 1 << 20, 64 << 20])),
        trace_messages: draws.chance("trace-messages", 40),
        network: results::manifest::Network::default(),
        client_links: false,
        swarm: Some(kind.name().to_owned()),
        strangers: draws.chance("strangers", 20),
        mischief: Vec::new(),
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeMap;

    use super::*;
    use crate::execution::TIMERS;

    fn base() -> RunOptions {
        RunOptions {
            workload: "register".into(),
            nemesis: Vec::new(),
            nemesis_is_a_pool: false,
            nodes: 5,
            concurrency: 10,
            rate_per_second: 200,
            time_ms: 60_000,
            interval_ms: 4_000,
            healthy_ms: 0,
            operation_timeout_ms: 500,
            recovery_timeout_ms: 20_000,
            bug: None,
            timers: TIMERS,
            left_out_operations: Vec::new(),
            cluster: ClusterOptions::default(),
            liveness_phase: false,
            required_coverage: Vec::new(),
        }
    }

    const POOL: [Family; 6] = [
        Family::PartitionRandom,
        Family::Kill,
        Family::Pause,
        Family::ClockSkew,
        Family::Membership,
        Family::Snapshot,
    ];

    fn drawn(seed: u64) -> Drawn {
        draw(seed, &POOL, &workloads(), &base())
    }

    fn line(drawn: &Drawn) -> String {
        let options = &drawn.options;
        let (timers, cluster) = (&options.timers, &options.cluster);
        format!(
            "{} {} {} n{}+{}+{} {:?} {}% x{} {}/s {}/{} {:?}/{:?}/{:?}",
            options.workload,
            cluster.swarm.as_deref().unwrap_or("-"),
            options.nemesis.join("+"),
            options.nodes,
            cluster.observers,
            cluster.spares,
            cluster.voters,
            drawn.intensity_percent,
            options.concurrency,
            options.rate_per_second,
            timers.election_timeout_ms,
            timers.fetch_timeout_ms,
            cluster.snapshot_bytes.unwrap_or(0),
            cluster.retention_bytes.unwrap_or(0),
            cluster.segment_bytes.unwrap_or(0),
        )
    }

    #[test]
    fn golden_values_never_change() {
        let lines: Vec<String> = [0, 1, 2, 7, 1_000_000]
            .map(|seed| line(&drawn(seed)))
            .into();
        assert_eq!(lines, GOLDEN);
    }

    const GOLDEN: [&str; 5] = [
        "register mixed partition-random+pause+clock-skew+snapshot n4+0+0 Configured 150% x5 50/s 500/800 20971520/104857600/1048576",
        "unique-ids single kill n5+0+0 Log 150% x20 200/s 120/400 524288/1048576/65536",
        "register mixed clock-skew+snapshot n5+2+0 Log 100% x5 200/s 60/800 65536/131072/8192",
        "counter few-long partition-random+kill+pause+clock-skew+membership+snapshot n3+0+2 Log 100% x10 1000/s 60/400 8192/40960/1048576",
        "counter mixed partition-random+pause n7+2+0 Log 100% x10 50/s 120/800 8192/8192/1048576",
    ];

    #[test]
    fn every_workload_comes_and_registers_come_most() {
        let mut counts: BTreeMap<String, u64> = BTreeMap::new();
        for seed in 0..2_000 {
            *counts.entry(drawn(seed).options.workload).or_default() += 1;
        }
        assert_eq!(counts.len(), crate::workload::WORKLOADS.len(), "{counts:?}");
        for (name, weight) in WORKLOADS {
            let expected = weight as u64 * 100;
            let found = counts[name];
            assert!((expected / 2..expected * 2).contains(&found), "{counts:?}");
        }
        let asked_for = ["set".to_owned()];
        let one = draw(3, &POOL, &asked_for, &base());
        assert_eq!(one.options.workload, "set");
    }

    /// So that a campaign sees every one of them, whatever else it is made of.
    #[test]
    fn every_hand_of_seeds_has_its_shares() {
        for hand in [0, 1, 77] {
            let mut counts: BTreeMap<String, u64> = BTreeMap::new();
            for seed in hand * HAND..(hand + 1) * HAND {
                let drawn = drawn(seed);
                let kind = drawn.options.cluster.swarm.clone().unwrap_or_default();
                match kind.as_str() {
                    "quiet" => assert!(drawn.families.is_empty()),
                    "single" => assert_eq!(drawn.families.len(), 1),
                    _ => assert!(!drawn.families.is_empty()),
                }
                *counts.entry(kind).or_default() += 1;
            }
            let expected = KINDS.map(|(kind, count)| (kind.name().to_owned(), count as u64));
            assert_eq!(counts, BTreeMap::from(expected));
        }
    }

    #[test]
    fn clusters_fit_their_faults() {
        for seed in 0..2_000 {
            let Drawn {
                options, families, ..
            } = drawn(seed);
            let cluster = &options.cluster;
            assert!((1..=7).contains(&options.nodes) && cluster.observers <= 3);
            for family in &families {
                assert!(family.needed_count() <= options.nodes as usize);
                assert!(!needs_log(*family) || cluster.voters == Voters::Log);
            }
            assert!(cluster.observers == 0 || cluster.voters == Voters::Log);
            let timers = &options.timers;
            assert!(timers.fetch_max_wait_ms < timers.fetch_timeout_ms);
            assert!(timers.fetch_max_wait_ms < timers.request_timeout_ms);
        }
    }

    #[test]
    fn a_family_that_is_not_asked_for_never_comes_and_changes_nothing_else() {
        for seed in 0..200 {
            let all = drawn(seed);
            let few = draw(seed, &POOL[..5], &workloads(), &base());
            assert!(!few.families.contains(&Family::Snapshot));
            let sizes = |drawn: &Drawn| {
                let options = &drawn.options;
                (options.nodes, options.concurrency, options.timers.clone())
            };
            assert_eq!(sizes(&all), sizes(&few));
        }
    }
}
