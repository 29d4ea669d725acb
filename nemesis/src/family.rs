//! Owns the families of faults that `--nemesis` accepts: names, ids, and what they need.
//! Never plans or injects one.

#[cfg(test)]
mod tests;

use crate::capability::{Capabilities, Missing, Need};
use crate::names::{nearest, suggestion};

/// A family of faults that can be asked for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Partitions of all drawn shapes that fit the cluster.
    PartitionRandom,
    /// The first half of the nodes from the rest.
    PartitionHalves,
    /// A drawn half of the nodes from the rest.
    PartitionRandomHalves,
    /// A drawn node from all others.
    PartitionNode,
    /// The leader from all others.
    PartitionLeader,
    /// The leader in a minority.
    PartitionLeaderMinority,
    /// The leader in a majority.
    PartitionLeaderMajority,
    /// A ring in which every node sees another majority.
    PartitionMajoritiesRing,
    /// Two halves, and one node that reaches both.
    PartitionBridge,
    /// One node in one direction.
    PartitionOneWay,
    /// Nodes that reach their neighbours only.
    PartitionChain,
    /// Five nodes among which leadership would go round for ever (KIP-996).
    PartitionKip996,
    /// Links with delay, little bandwidth, or none after some bytes.
    LinkSlow,
    /// Links that bring the ends of connections late, and nodes that are killed meanwhile.
    LinkSlowClose,
    /// Links that lose, repeat and reorder messages.
    LinkFlaky,
    /// Links that lose messages.
    PacketLoss,
    /// Links that repeat messages.
    PacketDuplicate,
    /// Links on which messages overtake each other.
    PacketReorder,
    /// Links that turn over bits.
    PacketCorrupt,
    /// Processes killed as by a power cut, and started again.
    Kill,
    /// Processes killed without losing bytes, and started again.
    KillClean,
    /// Processes asked to end, and started again.
    Restart,
    /// Processes stopped and continued.
    Pause,
    /// Processes stopped and continued over and over.
    Slow,
    /// Disks lost.
    Wipe,
    /// Clocks set wrong and right again, and running at another rate.
    ClockSkew,
    /// Clocks set wrong and right again.
    ClockBump,
    /// Clocks going back and forth.
    ClockStrobe,
    /// Clocks running at another rate.
    ClockDrift,
    /// Clocks set wrong, and set right in the midst of it.
    ClockReset,
    /// Slow syncs.
    DiskSlow,
    /// Disks without space.
    DiskFull,
    /// Syncs and reads that fail.
    DiskError,
    /// Data destroyed on disk, within the fault budget.
    DiskCorrupt,
    /// Voters that change.
    Membership,
    /// Snapshots out of turn.
    Snapshot,
    /// Clients in a hurry.
    Burst,
}

/// What is wrong with a list of families.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FamilyError {
    /// A name that does not exist.
    #[error(
        "unknown nemesis \"{name}\"{}; known: {}",
        suggestion(*.nearest),
        .known.join(", ")
    )]
    Unknown {
        /// The name.
        name: String,
        /// The name it was probably meant to be.
        nearest: Option<&'static str>,
        /// Every name that would do.
        known: Vec<&'static str>,
    },
    /// A family that the world cannot do.
    #[error("nemesis \"{name}\": {missing}")]
    Impossible {
        /// The name.
        name: &'static str,
        /// What the world would have to do.
        missing: Missing,
    },
    /// A name given twice.
    #[error("nemesis \"{name}\" is given twice; name it once")]
    GivenTwice {
        /// The name.
        name: String,
    },
    /// `none` or `all` together with other names.
    #[error("nemesis \"{name}\" stands alone; leave out either it or the others")]
    NotAlone {
        /// The name.
        name: &'static str,
    },
    /// No name at all.
    #[error("no nemesis given; write \"none\" for a run without faults. Known: {}", .known.join(", "))]
    Empty {
        /// Every name that would do.
        known: Vec<&'static str>,
    },
}

/// How the ids of planned faults of a family are formed. Part of the format: an id decides what a fault
/// draws, so these never change.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Id {
    /// `number * 10 + digit`: families with a last digit of their own, 1 to 4.
    Old(u64),
    /// `(number * 100 + code) * 10 + 5`: the last digit 5 says that two more digits name the family.
    New(u64),
}

#[derive(Debug)]
struct Facts {
    family: Family,
    name: &'static str,
    id: Id,
    /// The family of which this one is a part.
    part_of: Option<Family>,
    /// The smallest cluster in which it makes sense.
    needed_count: usize,
    needs: &'static [Need],
}

const FACTS: [Facts; 37] = [
    Facts {
        family: Family::PartitionRandom,
        name: "partition-random",
        id: Id::Old(1),
        part_of: None,
        needed_count: 2,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionHalves,
        name: "partition-halves",
        id: Id::New(1),
        part_of: Some(Family::PartitionRandom),
        needed_count: 2,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionRandomHalves,
        name: "partition-random-halves",
        id: Id::New(2),
        part_of: Some(Family::PartitionRandom),
        needed_count: 2,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionNode,
        name: "partition-node",
        id: Id::New(3),
        part_of: Some(Family::PartitionRandom),
        needed_count: 2,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionLeader,
        name: "partition-leader",
        id: Id::New(4),
        part_of: Some(Family::PartitionRandom),
        needed_count: 2,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionLeaderMinority,
        name: "partition-leader-minority",
        id: Id::New(5),
        part_of: Some(Family::PartitionRandom),
        needed_count: 3,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionLeaderMajority,
        name: "partition-leader-majority",
        id: Id::New(6),
        part_of: Some(Family::PartitionRandom),
        needed_count: 3,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionMajoritiesRing,
        name: "partition-majorities-ring",
        id: Id::New(7),
        part_of: Some(Family::PartitionRandom),
        needed_count: 3,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionBridge,
        name: "partition-bridge",
        id: Id::New(8),
        part_of: Some(Family::PartitionRandom),
        needed_count: 3,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionOneWay,
        name: "partition-one-way",
        id: Id::New(9),
        part_of: Some(Family::PartitionRandom),
        needed_count: 2,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionChain,
        name: "partition-chain",
        id: Id::New(10),
        part_of: Some(Family::PartitionRandom),
        needed_count: 3,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::PartitionKip996,
        name: "partition-kip-996",
        id: Id::New(33),
        part_of: Some(Family::PartitionRandom),
        needed_count: 5,
        needs: &[Need::CutHold],
    },
    Facts {
        family: Family::LinkSlow,
        name: "link-slow",
        id: Id::New(11),
        part_of: None,
        needed_count: 2,
        needs: &[Need::LinkDelay, Need::LinkBandwidth, Need::LinkStall],
    },
    Facts {
        family: Family::LinkSlowClose,
        name: "link-slow-close",
        id: Id::New(32),
        part_of: None,
        needed_count: 2,
        needs: &[Need::LinkSlowClose, Need::Kill],
    },
    Facts {
        family: Family::LinkFlaky,
        name: "link-flaky",
        id: Id::New(12),
        part_of: None,
        needed_count: 2,
        needs: &[Need::LinkLoss, Need::LinkDuplicate, Need::LinkReorder],
    },
    Facts {
        family: Family::PacketLoss,
        name: "packet-loss",
        id: Id::New(27),
        part_of: Some(Family::LinkFlaky),
        needed_count: 2,
        needs: &[Need::LinkLoss],
    },
    Facts {
        family: Family::PacketDuplicate,
        name: "packet-duplicate",
        id: Id::New(28),
        part_of: Some(Family::LinkFlaky),
        needed_count: 2,
        needs: &[Need::LinkDuplicate],
    },
    Facts {
        family: Family::PacketReorder,
        name: "packet-reorder",
        id: Id::New(29),
        part_of: Some(Family::LinkFlaky),
        needed_count: 2,
        needs: &[Need::LinkReorder],
    },
    Facts {
        family: Family::PacketCorrupt,
        name: "packet-corrupt",
        id: Id::New(30),
        part_of: None,
        needed_count: 2,
        needs: &[Need::LinkCorrupt],
    },
    Facts {
        family: Family::Kill,
        name: "kill",
        id: Id::Old(2),
        part_of: None,
        needed_count: 1,
        needs: &[Need::Kill],
    },
    Facts {
        family: Family::KillClean,
        name: "kill-clean",
        id: Id::New(13),
        part_of: None,
        needed_count: 1,
        needs: &[Need::KillClean],
    },
    Facts {
        family: Family::Restart,
        name: "restart",
        id: Id::New(14),
        part_of: None,
        needed_count: 1,
        needs: &[Need::Restart],
    },
    Facts {
        family: Family::Pause,
        name: "pause",
        id: Id::Old(3),
        part_of: None,
        needed_count: 1,
        needs: &[Need::Pause],
    },
    Facts {
        family: Family::Slow,
        name: "slow",
        id: Id::New(15),
        part_of: None,
        needed_count: 1,
        needs: &[Need::Slow],
    },
    Facts {
        family: Family::Wipe,
        name: "wipe",
        id: Id::New(16),
        part_of: None,
        needed_count: 3,
        needs: &[Need::Wipe],
    },
    Facts {
        family: Family::ClockSkew,
        name: "clock-skew",
        id: Id::Old(4),
        part_of: None,
        needed_count: 1,
        needs: &[Need::SetClocks],
    },
    Facts {
        family: Family::ClockBump,
        name: "clock-bump",
        id: Id::New(17),
        part_of: Some(Family::ClockSkew),
        needed_count: 1,
        needs: &[Need::SetClocks],
    },
    Facts {
        family: Family::ClockStrobe,
        name: "clock-strobe",
        id: Id::New(18),
        part_of: None,
        needed_count: 1,
        needs: &[Need::StrobeClocks],
    },
    Facts {
        family: Family::ClockDrift,
        name: "clock-drift",
        id: Id::New(19),
        part_of: Some(Family::ClockSkew),
        needed_count: 1,
        needs: &[Need::SetClocks],
    },
    Facts {
        family: Family::ClockReset,
        name: "clock-reset",
        id: Id::New(31),
        part_of: None,
        needed_count: 1,
        needs: &[Need::SetClocks],
    },
    Facts {
        family: Family::DiskSlow,
        name: "disk-slow",
        id: Id::New(20),
        part_of: None,
        needed_count: 1,
        needs: &[Need::SlowSync],
    },
    Facts {
        family: Family::DiskFull,
        name: "disk-full",
        id: Id::New(21),
        part_of: None,
        needed_count: 1,
        needs: &[Need::NoSpace],
    },
    Facts {
        family: Family::DiskError,
        name: "disk-error",
        id: Id::New(22),
        part_of: None,
        needed_count: 1,
        needs: &[Need::SyncError, Need::ReadError],
    },
    Facts {
        family: Family::DiskCorrupt,
        name: "disk-corrupt",
        id: Id::New(23),
        part_of: None,
        needed_count: 3,
        needs: &[
            Need::BitFlip,
            Need::Truncate,
            Need::TornWrite,
            Need::MisdirectedWrite,
        ],
    },
    Facts {
        family: Family::Membership,
        name: "membership",
        id: Id::New(24),
        part_of: None,
        needed_count: 3,
        needs: &[Need::Membership, Need::KnowObservers],
    },
    Facts {
        family: Family::Snapshot,
        name: "snapshot",
        id: Id::New(25),
        part_of: None,
        needed_count: 1,
        needs: &[Need::Snapshot],
    },
    Facts {
        family: Family::Burst,
        name: "burst",
        id: Id::New(26),
        part_of: None,
        needed_count: 1,
        needs: &[Need::Burst],
    },
];

impl Family {
    /// Every family, in the order in which people are shown them.
    pub const ALL: [Self; 37] = [
        Self::PartitionRandom,
        Self::PartitionHalves,
        Self::PartitionRandomHalves,
        Self::PartitionNode,
        Self::PartitionLeader,
        Self::PartitionLeaderMinority,
        Self::PartitionLeaderMajority,
        Self::PartitionMajoritiesRing,
        Self::PartitionBridge,
        Self::PartitionOneWay,
        Self::PartitionChain,
        Self::PartitionKip996,
        Self::LinkSlow,
        Self::LinkSlowClose,
        Self::LinkFlaky,
        Self::PacketLoss,
        Self::PacketDuplicate,
        Self::PacketReorder,
        Self::PacketCorrupt,
        Self::Kill,
        Self::KillClean,
        Self::Restart,
        Self::Pause,
        Self::Slow,
        Self::Wipe,
        Self::ClockSkew,
        Self::ClockBump,
        Self::ClockStrobe,
        Self::ClockDrift,
        Self::ClockReset,
        Self::DiskSlow,
        Self::DiskFull,
        Self::DiskError,
        Self::DiskCorrupt,
        Self::Membership,
        Self::Snapshot,
        Self::Burst,
    ];

    fn facts(self) -> &'static Facts {
        // In the order of the enum, as a test makes sure.
        &FACTS[self as usize]
    }

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        self.facts().name
    }

    /// Id of the planned fault with this number, from 0. Never 0, and never that of another family.
    pub(crate) fn id(self, number: u64) -> u64 {
        match self.facts().id {
            Id::Old(digit) => number * 10 + digit,
            Id::New(code) => (number * 100 + code) * 10 + 5,
        }
    }

    /// The family that a planned fault with this id belongs to.
    pub fn of_id(id: u64) -> Option<Self> {
        let found = match id % 10 {
            5 => Id::New(id / 10 % 100),
            digit => Id::Old(digit),
        };
        let mut all = FACTS.iter();
        all.find(|facts| facts.id == found)
            .map(|facts| facts.family)
    }

    /// The family that has these faults among others, if there is one.
    pub fn part_of(self) -> Option<Self> {
        self.facts().part_of
    }

    /// Whether its faults come in pairs, the second in the midst of the first: what the second does shows only
    /// where the first is.
    pub(crate) fn is_paired(self) -> bool {
        matches!(self, Self::LinkSlowClose | Self::ClockReset)
    }

    /// The smallest cluster in which it makes sense.
    pub fn needed_count(self) -> usize {
        self.facts().needed_count
    }

    /// What a world must be able to do for all of its faults.
    pub fn needs(self) -> impl Iterator<Item = Need> {
        self.facts().needs.iter().copied()
    }
}

/// Reads a comma-separated list such as `kill,pause`, in the order given, for a world that can do what
/// `capabilities` say.
///
/// `all` is every family that this world can do, those left out that are part of another, and `none` is
/// no family; both stand alone.
pub fn parse_families(text: &str, capabilities: &Capabilities) -> Result<Vec<Family>, FamilyError> {
    let names: Vec<&str> = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    if names.is_empty() {
        return Err(FamilyError::Empty { known: words() });
    }
    let mut families = Vec::new();
    for name in &names {
        let alone = match *name {
            "none" => Some(("none", Vec::new())),
            "all" => Some(("all", capabilities.all_families())),
            _ => None,
        };
        if let Some((name, these)) = alone {
            if names.len() > 1 {
                return Err(FamilyError::NotAlone { name });
            }
            return Ok(these);
        }
        let family = find(name, capabilities)?;
        if families.contains(&family) {
            return Err(FamilyError::GivenTwice {
                name: (*name).to_owned(),
            });
        }
        families.push(family);
    }
    Ok(families)
}

/// Every word that `--nemesis` takes in some world; what this one cannot do is refused with the reason.
pub fn words() -> Vec<&'static str> {
    let names = Family::ALL.into_iter().map(Family::name);
    names.chain(["all", "none"]).collect()
}

fn find(name: &str, capabilities: &Capabilities) -> Result<Family, FamilyError> {
    let mut all = Family::ALL.into_iter();
    let Some(family) = all.find(|known| known.name() == name) else {
        let known = words();
        return Err(FamilyError::Unknown {
            name: name.to_owned(),
            nearest: nearest(name, &known),
            known,
        });
    };
    match capabilities.missing(family.needs()) {
        None => Ok(family),
        Some(missing) => Err(FamilyError::Impossible {
            name: family.name(),
            missing,
        }),
    }
}
