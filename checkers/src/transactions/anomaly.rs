//! Owns the kinds of anomalies, how often each was found, and the first of each in words.
//! Never finds one.

use std::collections::BTreeMap;

/// What is wrong between transactions, the most basic first (Adya 1999; Cerone & Gotsman 2018; the names of
/// Kingsbury & Alvaro, Elle, 2020).
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Kind {
    /// An element is in a list twice.
    Duplicate,
    /// An element was read that nobody appended.
    Phantom,
    /// A transaction does not see its own steps.
    Internal,
    /// An element of a transaction was read that failed.
    G1a,
    /// A transaction saw some, but not all, of what another one appended to a list.
    G1b,
    /// Two reads of a list are not beginnings of one order.
    IncompatibleOrder,
    /// A cycle of appends.
    G0,
    /// A cycle of appends and reads of what was appended.
    G1c,
    /// Two transactions updated the same version of a list.
    LostUpdate,
    /// A cycle with exactly one read that came too early.
    GSingle,
    /// A cycle with several reads that came too early.
    G2,
    /// As `G0`, with transactions that were over before others began.
    G0RealTime,
    /// As `G1c`, with real time.
    G1cRealTime,
    /// As `GSingle`, with real time: a stale or lost read.
    GSingleRealTime,
    /// As `G2`, with real time.
    G2RealTime,
}

impl Kind {
    /// All kinds.
    pub const ALL: [Self; 15] = [
        Self::Duplicate,
        Self::Phantom,
        Self::Internal,
        Self::G1a,
        Self::G1b,
        Self::IncompatibleOrder,
        Self::G0,
        Self::G1c,
        Self::LostUpdate,
        Self::GSingle,
        Self::G2,
        Self::G0RealTime,
        Self::G1cRealTime,
        Self::GSingleRealTime,
        Self::G2RealTime,
    ];

    /// Its name.
    pub fn name(self) -> &'static str {
        match self {
            Self::Duplicate => "duplicate-elements",
            Self::Phantom => "unknown-elements",
            Self::Internal => "internal",
            Self::G1a => "G1a",
            Self::G1b => "G1b",
            Self::IncompatibleOrder => "incompatible-order",
            Self::G0 => "G0",
            Self::G1c => "G1c",
            Self::LostUpdate => "lost-update",
            Self::GSingle => "G-single",
            Self::G2 => "G2",
            Self::G0RealTime => "G0-real-time",
            Self::G1cRealTime => "G1c-real-time",
            Self::GSingleRealTime => "G-single-real-time",
            Self::G2RealTime => "G2-real-time",
        }
    }

    /// What must be, in words.
    pub fn title(self) -> &'static str {
        match self {
            Self::Duplicate => "what was appended once is in a list once",
            Self::Phantom => "only what was appended is read",
            Self::Internal => "a transaction sees its own steps, and the same list all the time",
            Self::G1a => "nothing of a failed transaction is read",
            Self::G1b => "all or nothing that a transaction appended to a list is read",
            Self::IncompatibleOrder => "all reads of a list are beginnings of one order",
            Self::G0 => "appends of transactions do not interleave",
            Self::G1c => "no two transactions see each other's appends",
            Self::LostUpdate => "no two transactions update the same version of a list",
            Self::GSingle => {
                "no transaction sees a state that is old in one place and new in another"
            }
            Self::G2 => "transactions do not miss each other's appends",
            Self::G0RealTime => "appends of transactions have the order of real time",
            Self::G1cRealTime => "nothing is read that was appended later in real time",
            Self::GSingleRealTime => "nothing is missed that was appended before in real time",
            Self::G2RealTime => "transactions have one order, which is that of real time",
        }
    }
}

/// One that was found.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Anomaly {
    /// What it is.
    pub kind: Kind,
    /// In words; the first line says it all.
    pub text: String,
    /// The transactions concerned, in the order in which they are spoken of.
    pub(super) transactions: Vec<u32>,
}

/// All that were found.
#[derive(Debug, Default)]
pub(super) struct Anomalies {
    /// By kind: how many, and the first ones.
    found: BTreeMap<Kind, (u64, Vec<Anomaly>)>,
}

/// How many of a kind are told.
const TOLD_MAX_COUNT: usize = 3;

impl Anomalies {
    /// Notes one more.
    pub(super) fn note(
        &mut self,
        kind: Kind,
        transactions: impl IntoIterator<Item = u32>,
        text: impl FnOnce() -> String,
    ) {
        let (count, first) = self.found.entry(kind).or_default();
        *count += 1;
        if first.len() < TOLD_MAX_COUNT {
            first.push(Anomaly {
                kind,
                text: text(),
                transactions: transactions.into_iter().collect(),
            });
        }
    }

    pub(super) fn is_empty(&self) -> bool {
        self.found.is_empty()
    }

    pub(super) fn count(&self, kind: Kind) -> u64 {
        self.found.get(&kind).map_or(0, |(count, _)| *count)
    }

    /// The first ones of every kind, the most basic kind first.
    pub(super) fn told(&self) -> impl Iterator<Item = &Anomaly> {
        self.found.values().flat_map(|(_, first)| first)
    }

    pub(super) fn first(&self, kind: Kind) -> Option<&Anomaly> {
        self.found.get(&kind).and_then(|(_, first)| first.first())
    }
}
