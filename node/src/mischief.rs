//! Owns mischief: places where a node may do something unusual that the protocol allows, drawn by seed.
//! Never breaks a rule, and never does anything unless whoever runs the node names the places.
//!
//! What a node usually does hides what it may do: messages that are handled in the order in which they come, one
//! sync for many of them, answers as large as allowed. FoundationDB calls switching that off at random
//! *buggification*. No flag of `kraft-node` reaches it; only a simulation does, and it ends the mischief before it
//! demands that a cluster recovers.

use std::fmt;
use std::str::FromStr;

/// A place for mischief.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum MischiefPoint {
    /// What arrived at the same time is handled last come, first served.
    ArrivalsReversed,
    /// What arrived at the same time is handled one by one: each command is a batch of its own.
    ArrivalsApart,
    /// As [`MischiefPoint::ArrivalsApart`], and each is synced on its own.
    SyncsApart,
    /// A fetch is answered at once, although nothing is new.
    FetchAnsweredEarly,
    /// A fetch is answered with one batch, however many there are.
    FetchAnsweredSmall,
    /// A snapshot is taken, however little there is to put into it.
    SnapshotTaken,
}

struct Entry {
    point: MischiefPoint,
    id: &'static str,
    /// One time in so many it happens, where it may.
    one_in: u64,
    does: &'static str,
}

const TABLE: [Entry; 6] = [
    Entry {
        point: MischiefPoint::ArrivalsReversed,
        id: "arrivals-reversed",
        one_in: 4,
        does: "handles what arrived at the same time last come, first served",
    },
    Entry {
        point: MischiefPoint::ArrivalsApart,
        id: "arrivals-apart",
        one_in: 4,
        does: "handles what arrived at the same time one by one, each command in a batch of its own",
    },
    Entry {
        point: MischiefPoint::SyncsApart,
        id: "syncs-apart",
        one_in: 4,
        does: "syncs after each of the things that arrived at the same time",
    },
    Entry {
        point: MischiefPoint::FetchAnsweredEarly,
        id: "fetch-answered-early",
        one_in: 8,
        does: "answers a fetch at once, although nothing is new",
    },
    Entry {
        point: MischiefPoint::FetchAnsweredSmall,
        id: "fetch-answered-small",
        one_in: 4,
        does: "answers a fetch with one batch, however many there are",
    },
    Entry {
        point: MischiefPoint::SnapshotTaken,
        id: "snapshot-taken",
        one_in: 400,
        does: "takes a snapshot, however little there is to put into it",
    },
];

impl MischiefPoint {
    /// All of them, in the order of the type.
    pub const ALL: [Self; TABLE.len()] = {
        let mut all = [TABLE[0].point; TABLE.len()];
        let mut at = 0;
        while at < TABLE.len() {
            assert!(
                TABLE[at].point as usize == at,
                "the table is in the order of the type"
            );
            all[at] = TABLE[at].point;
            at += 1;
        }
        all
    };

    /// Stable id: what is recorded of a run names points by it.
    pub fn id(self) -> &'static str {
        TABLE[self as usize].id
    }

    /// What the node does there, for people: "the node ...".
    pub fn does(self) -> &'static str {
        TABLE[self as usize].does
    }
}

impl fmt::Display for MischiefPoint {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.id())
    }
}

impl FromStr for MischiefPoint {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        let mut all = Self::ALL.into_iter();
        all.find(|point| point.id() == text).ok_or_else(|| {
            let known = Self::ALL.map(Self::id).join(", ");
            format!("unknown mischief {text:?}; known: {known}")
        })
    }
}

/// Where mischief is on, and what it is drawn by. Nowhere by default.
#[derive(Debug, Clone, Copy, Default, PartialEq, Eq)]
pub struct MischiefOptions {
    seed: u64,
    /// A bit for each point.
    points: u8,
}

impl MischiefOptions {
    /// Mischief at these points. Equal seeds give equal draws; each start of a node takes another.
    pub fn new(seed: u64, points: impl IntoIterator<Item = MischiefPoint>) -> Self {
        let bits = points.into_iter().map(|point| 1 << point as u8);
        Self {
            seed,
            points: bits.fold(0, |all, bit| all | bit),
        }
    }

    /// Whether there is any.
    pub fn is_on(self) -> bool {
        self.points != 0
    }
}

/// Draws whether mischief happens, time after time.
#[derive(Debug, Default)]
pub(crate) struct Mischief {
    options: MischiefOptions,
    /// By point: how often it was drawn.
    drawn_counts: [u64; TABLE.len()],
}

impl Mischief {
    pub(crate) fn new(options: MischiefOptions) -> Self {
        Self {
            options,
            ..Self::default()
        }
    }

    pub(crate) fn is_on(&self) -> bool {
        self.options.is_on()
    }

    /// No more of it.
    pub(crate) fn end(&mut self) {
        self.options = MischiefOptions::default();
    }

    /// Whether it happens this time. Draws of one point depend on no other.
    pub(crate) fn happens(&mut self, point: MischiefPoint) -> bool {
        if self.options.points & 1 << point as u8 == 0 {
            return false;
        }
        let count = &mut self.drawn_counts[point as usize];
        *count += 1;
        let stream = mixed(self.options.seed ^ mixed(point as u64 + 1));
        mixed(stream.wrapping_add(count.wrapping_mul(GOLDEN_GAMMA)))
            .is_multiple_of(TABLE[point as usize].one_in)
    }
}

/// The constants of SplitMix64 (Steele, Lea and Flood, Fast splittable pseudorandom number generators, 2014).
const GOLDEN_GAMMA: u64 = 0x9e37_79b9_7f4a_7c15;

fn mixed(value: u64) -> u64 {
    let value = (value ^ value >> 30).wrapping_mul(0xbf58_476d_1ce4_e5b9);
    let value = (value ^ value >> 27).wrapping_mul(0x94d0_49bb_1331_11eb);
    value ^ value >> 31
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_point_is_found_by_its_id_and_nothing_else_is() {
        for point in MischiefPoint::ALL {
            assert_eq!(point.id().parse(), Ok(point));
            assert!(!point.does().is_empty());
        }
        let told = "rain".parse::<MischiefPoint>().unwrap_err();
        assert!(
            told.contains("\"rain\"") && told.contains("syncs-apart"),
            "{told}"
        );
    }

    #[test]
    fn the_generator_is_the_one_that_it_is_called() {
        // The first outputs of SplitMix64 with the seed 1234567.
        let outputs = [1, 2, 3]
            .map(|count: u64| mixed(1_234_567_u64.wrapping_add(count.wrapping_mul(GOLDEN_GAMMA))));
        let expected = [
            6_457_827_717_110_365_317,
            3_203_168_211_198_807_973,
            9_817_491_932_198_370_423,
        ];
        assert_eq!(outputs, expected);
    }

    #[test]
    fn only_points_that_are_on_happen_as_often_as_they_are_to_and_alike_for_a_seed() {
        let draws = |points: &[MischiefPoint], point| {
            let options = MischiefOptions::new(7, points.iter().copied());
            let mut mischief = Mischief::new(options);
            (0..8_000)
                .map(|_| mischief.happens(point))
                .collect::<Vec<_>>()
        };
        for point in MischiefPoint::ALL {
            let happened = draws(&[point], point);
            assert_eq!(happened, draws(&MischiefPoint::ALL, point));
            let count = happened.iter().filter(|it| **it).count() as u64;
            let expected = 8_000 / TABLE[point as usize].one_in;
            assert!(
                (expected / 2..expected * 2).contains(&count),
                "{point}: {count}"
            );
            let others = MischiefPoint::ALL.into_iter().filter(|it| *it != point);
            let others: Vec<_> = others.collect();
            assert!(!draws(&others, point).contains(&true), "{point}");
        }
    }

    #[test]
    fn it_ends_for_good() {
        let mut mischief = Mischief::new(MischiefOptions::new(1, MischiefPoint::ALL));
        assert!(mischief.is_on());
        mischief.end();
        assert!(!mischief.is_on());
        assert!((0..100).all(|_| !mischief.happens(MischiefPoint::ArrivalsApart)));
        assert!(!MischiefOptions::default().is_on());
    }
}
