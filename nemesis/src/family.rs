//! Owns the families of faults that `--nemesis` accepts, and their names.
//! Never plans or injects one.

use crate::names::{nearest, suggestion};

/// A family of faults that can be asked for by name.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord, Hash)]
pub enum Family {
    /// Partitions of drawn shapes.
    PartitionRandom,
    /// Processes killed and started again.
    Kill,
    /// Processes stopped and continued.
    Pause,
    /// Clocks set wrong and right again.
    ClockSkew,
}

/// What is wrong with a list of families.
#[derive(Debug, Clone, PartialEq, Eq, thiserror::Error)]
pub enum FamilyError {
    /// A name that does not exist.
    #[error(
        "unknown nemesis \"{name}\"{}; known: {}",
        suggestion(*.nearest),
        WORDS.join(", ")
    )]
    Unknown {
        /// The name.
        name: String,
        /// The name it was probably meant to be.
        nearest: Option<&'static str>,
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
    #[error("no nemesis given; write \"none\" for a run without faults. Known: {}", WORDS.join(", "))]
    Empty,
}

const WORDS: &[&str] = &[
    "partition-random",
    "kill",
    "pause",
    "clock-skew",
    "all",
    "none",
];

impl Family {
    /// Every family.
    pub const ALL: [Self; 4] = [
        Self::PartitionRandom,
        Self::Kill,
        Self::Pause,
        Self::ClockSkew,
    ];

    /// The name on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::PartitionRandom => "partition-random",
            Self::Kill => "kill",
            Self::Pause => "pause",
            Self::ClockSkew => "clock-skew",
        }
    }

    /// The last decimal digit of the ids of planned faults of this family. Part of the format: an id
    /// decides what a fault draws, so these never change.
    pub(crate) fn digit(self) -> u64 {
        match self {
            Self::PartitionRandom => 1,
            Self::Kill => 2,
            Self::Pause => 3,
            Self::ClockSkew => 4,
        }
    }

    /// Every word that [`parse_families`] knows, for help texts and completions.
    pub fn words() -> &'static [&'static str] {
        WORDS
    }
}

/// Reads a comma-separated list such as `kill,pause`, in the order given.
///
/// `all` is every family and `none` is no family; both stand alone.
pub fn parse_families(text: &str) -> Result<Vec<Family>, FamilyError> {
    let names: Vec<&str> = text
        .split(',')
        .map(str::trim)
        .filter(|name| !name.is_empty())
        .collect();
    if names.is_empty() {
        return Err(FamilyError::Empty);
    }
    let mut families = Vec::new();
    for name in &names {
        let alone = match *name {
            "none" => Some(("none", Vec::new())),
            "all" => Some(("all", Family::ALL.to_vec())),
            _ => None,
        };
        if let Some((name, these)) = alone {
            if names.len() > 1 {
                return Err(FamilyError::NotAlone { name });
            }
            return Ok(these);
        }
        let Some(family) = Family::ALL.into_iter().find(|known| known.name() == *name) else {
            return Err(FamilyError::Unknown {
                name: (*name).to_owned(),
                nearest: nearest(name, WORDS),
            });
        };
        if families.contains(&family) {
            return Err(FamilyError::GivenTwice {
                name: (*name).to_owned(),
            });
        }
        families.push(family);
    }
    Ok(families)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn lists_keep_their_order() {
        assert_eq!(
            parse_families("pause, partition-random"),
            Ok(vec![Family::Pause, Family::PartitionRandom])
        );
        assert_eq!(parse_families("none"), Ok(Vec::new()));
        assert_eq!(parse_families("all"), Ok(Family::ALL.to_vec()));
    }

    #[test]
    fn every_family_is_a_word_and_reads_back() {
        for family in Family::ALL {
            assert_eq!(parse_families(family.name()), Ok(vec![family]));
            assert!(Family::words().contains(&family.name()));
        }
    }

    #[test]
    fn mistakes_are_explained() {
        let unknown = parse_families("kill,partiton-random")
            .unwrap_err()
            .to_string();
        assert!(
            unknown.contains("did you mean \"partition-random\"?"),
            "{unknown}"
        );
        assert!(unknown.contains("clock-skew, all, none"), "{unknown}");
        assert_eq!(
            parse_families("kill,none"),
            Err(FamilyError::NotAlone { name: "none" })
        );
        assert_eq!(
            parse_families("all,kill"),
            Err(FamilyError::NotAlone { name: "all" })
        );
        assert!(matches!(
            parse_families("kill,kill"),
            Err(FamilyError::GivenTwice { .. })
        ));
        assert_eq!(parse_families(" , "), Err(FamilyError::Empty));
    }
}
