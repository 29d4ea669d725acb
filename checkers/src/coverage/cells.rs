//! Owns the words of coverage: what faults do to nodes, in which role, in which phase; cells and their names.
//! Never counts anything.

/// What a fault does to a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Deed {
    /// Cuts links from or to it.
    Partitioned,
    /// Delays or slows what passes over its links.
    LinksSlowed,
    /// Loses, doubles, reorders or corrupts what passes over its links.
    LinksFlaky,
    /// Ends it as a power cut does.
    Killed,
    /// Ends it without loss of bytes.
    KilledCleanly,
    /// Asks it to end.
    Restarted,
    /// Stops it, later to go on.
    Paused,
    /// Stops it over and over.
    Slowed,
    /// Takes its disk away.
    Wiped,
    /// Sets its clock.
    ClockSkewed,
    /// Sets its clock back and forth.
    ClockStrobed,
    /// Sets its clock right.
    ClockReset,
    /// Slows its syncs.
    DiskSlowed,
    /// Leaves its disk without space.
    DiskFilled,
    /// Lets its syncs or reads fail.
    DiskFailed,
    /// Destroys data on its disk.
    DiskCorrupted,
    /// Makes it a voter, or no voter any more.
    VoterChanged,
    /// Makes it take a snapshot.
    SnapshotForced,
}

/// What a node is when a fault hits it.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Part {
    /// It leads an epoch.
    Leader,
    /// It follows a leader.
    Follower,
    /// It stands for election, or asks whether it could (KIP-996).
    Candidate,
    /// It knows no leader, or has resigned.
    Unattached,
    /// It is no voter.
    Observer,
}

/// What is going on when a fault hits a node.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Phase {
    /// Somebody leads, and nothing of the other phases goes on.
    Steady,
    /// Nobody leads the newest epoch, or the node stands for election.
    Election,
    /// The node has appended records that are not durable yet.
    AppendToFlush,
    /// The node was asked for a vote and has not written one.
    VoteAskedToPersisted,
    /// The node takes a snapshot that a fault asked for, or is about to have it durable.
    TakingSnapshot,
    /// The node downloads a snapshot.
    DownloadingSnapshot,
    /// The leader, or the node, has another set of voters in its log that is not committed.
    VoterChange,
    /// The node has started and does not know again what is committed.
    StartingUp,
}

/// The words of a kind of things, each with a name.
pub trait Named: Copy + 'static {
    /// Everything of the kind with its name, in the order in which people are shown it.
    const NAMES: &'static [(Self, &'static str)];
}

impl Named for Deed {
    const NAMES: &'static [(Self, &'static str)] = &[
        (Self::Partitioned, "partitioned"),
        (Self::LinksSlowed, "links-slowed"),
        (Self::LinksFlaky, "links-flaky"),
        (Self::Killed, "killed"),
        (Self::KilledCleanly, "killed-cleanly"),
        (Self::Restarted, "restarted"),
        (Self::Paused, "paused"),
        (Self::Slowed, "slowed"),
        (Self::Wiped, "wiped"),
        (Self::ClockSkewed, "clock-skewed"),
        (Self::ClockStrobed, "clock-strobed"),
        (Self::ClockReset, "clock-reset"),
        (Self::DiskSlowed, "disk-slowed"),
        (Self::DiskFilled, "disk-filled"),
        (Self::DiskFailed, "disk-failed"),
        (Self::DiskCorrupted, "disk-corrupted"),
        (Self::VoterChanged, "voter-changed"),
        (Self::SnapshotForced, "snapshot-forced"),
    ];
}

impl Named for Part {
    const NAMES: &'static [(Self, &'static str)] = &[
        (Self::Leader, "leader"),
        (Self::Follower, "follower"),
        (Self::Candidate, "candidate"),
        (Self::Unattached, "unattached"),
        (Self::Observer, "observer"),
    ];
}

impl Named for Phase {
    const NAMES: &'static [(Self, &'static str)] = &[
        (Self::Steady, "while-steady"),
        (Self::Election, "during-election"),
        (Self::AppendToFlush, "between-append-and-flush"),
        (
            Self::VoteAskedToPersisted,
            "between-vote-asked-and-persisted",
        ),
        (Self::TakingSnapshot, "while-taking-snapshot"),
        (Self::DownloadingSnapshot, "while-downloading-snapshot"),
        (Self::VoterChange, "during-voter-change"),
        (Self::StartingUp, "while-starting-up"),
    ];
}

fn all<T: Named>() -> impl Iterator<Item = T> {
    T::NAMES.iter().map(|(each, _)| *each)
}

/// The name of one of a kind.
pub fn name_of<T: Named + PartialEq>(one: T) -> &'static str {
    let found = T::NAMES.iter().find(|(each, _)| *each == one);
    found.map_or("", |(_, name)| name)
}

/// A fault that hits a node in a role and a phase: `leader-killed-between-append-and-flush`.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub struct Cell {
    /// What is done.
    pub deed: Deed,
    /// What the node is.
    pub part: Part,
    /// What goes on.
    pub phase: Phase,
}

impl Cell {
    /// Every cell that can be, by what is done, then by role and phase.
    pub fn all() -> impl Iterator<Item = Self> {
        all::<Deed>()
            .flat_map(|deed| columns().map(move |(part, phase)| Self { deed, part, phase }))
    }

    /// The name.
    pub fn name(self) -> String {
        let Self { deed, part, phase } = self;
        format!("{}-{}-{}", name_of(part), name_of(deed), name_of(phase))
    }

    /// The cell of this name.
    pub fn from_name(name: &str) -> Option<Self> {
        Self::all().find(|cell| cell.name() == name)
    }
}

/// Every role with every phase that a node in this role can be in.
pub fn columns() -> impl Iterator<Item = (Part, Phase)> {
    let all = all::<Part>().flat_map(|part| all::<Phase>().map(move |phase| (part, phase)));
    all.filter(|(part, phase)| is_possible(*part, *phase))
}

/// Leaders neither vote nor download, and whoever stands for election is in the middle of one.
pub(super) fn is_possible(part: Part, phase: Phase) -> bool {
    match phase {
        Phase::Steady => part != Part::Candidate,
        Phase::VoteAskedToPersisted => !matches!(part, Part::Leader | Part::Observer),
        Phase::DownloadingSnapshot => matches!(part, Part::Follower | Part::Observer),
        _ => true,
    }
}

#[cfg(test)]
mod tests {
    use std::collections::BTreeSet;

    use super::*;

    #[test]
    fn every_cell_has_a_name_of_its_own_and_is_found_by_it() {
        let names: BTreeSet<String> = Cell::all().map(Cell::name).collect();
        assert_eq!(names.len(), Cell::all().count());
        for cell in Cell::all() {
            assert_eq!(Cell::from_name(&cell.name()), Some(cell));
        }
        assert!(names.contains("leader-killed-between-append-and-flush"));
        assert!(!names.contains("leader-killed-while-downloading-snapshot"));
        assert_eq!(Cell::from_name("leader-killed"), None);
    }

    #[test]
    fn nothing_is_left_out_of_the_lists_of_names() {
        assert_eq!(Deed::NAMES.len(), Deed::SnapshotForced as usize + 1);
        assert_eq!(Part::NAMES.len(), Part::Observer as usize + 1);
        assert_eq!(Phase::NAMES.len(), Phase::StartingUp as usize + 1);
    }
}
