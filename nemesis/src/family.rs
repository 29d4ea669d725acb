//! Owns the families of faults that `--nemesis` accepts: names, ids, and what they need.
//! Never plans or injects one.

mod facts;
#[cfg(test)]
mod tests;

use crate::capability::{Capabilities, Missing, Need};
use crate::names::{nearest, suggestion};

use self::facts::{FACTS, Facts, Id};

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

/// Refuses a word that `--nemesis` takes in no world.
///
/// # Errors
/// When there is no family, and no other word, of that name.
pub fn check_word(name: &str) -> Result<(), FamilyError> {
    match words().contains(&name) {
        true => Ok(()),
        false => Err(unknown(name)),
    }
}

fn unknown(name: &str) -> FamilyError {
    let known = words();
    FamilyError::Unknown {
        name: name.to_owned(),
        nearest: nearest(name, &known),
        known,
    }
}

fn find(name: &str, capabilities: &Capabilities) -> Result<Family, FamilyError> {
    let mut all = Family::ALL.into_iter();
    let Some(family) = all.find(|known| known.name() == name) else {
        return Err(unknown(name));
    };
    match capabilities.missing(family.needs()) {
        None => Ok(family),
        Some(missing) => Err(FamilyError::Impossible {
            name: family.name(),
            missing,
        }),
    }
}
