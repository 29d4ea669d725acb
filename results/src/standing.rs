//! Owns how a run stands: its verdict, or the words for why it has none.
//! Never looks at a run.

use serde::{Deserialize, Serialize};

use crate::verdict::Validity;

/// The word for runs that were stopped from outside.
pub const INTERRUPTED: &str = "interrupted";

/// How a run stands: its verdict, or why there is none.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize)]
#[serde(rename_all = "kebab-case")]
pub enum Standing {
    /// It was judged.
    Judged(Validity),
    /// It has an end, and was never judged.
    NeverJudged,
    /// Whoever made it is gone without having finished it.
    Abandoned,
    /// It has no end yet, or is being judged.
    GoingOn,
    /// Its verdict cannot be read.
    Damaged,
}

impl Standing {
    /// The verdict, if there is one.
    pub fn verdict(self) -> Option<Validity> {
        match self {
            Self::Judged(validity) => Some(validity),
            _ => None,
        }
    }

    /// The word that stands where a verdict would.
    pub fn word(self) -> &'static str {
        match self {
            Self::Judged(validity) => validity.word(),
            Self::NeverJudged | Self::Abandoned | Self::GoingOn => "no verdict",
            Self::Damaged => "damaged",
        }
    }

    /// Why there is no verdict; empty if there is one.
    pub fn reason(self) -> &'static str {
        match self {
            Self::Judged(_) => "",
            Self::NeverJudged => "never judged",
            Self::Abandoned => "abandoned",
            Self::GoingOn => "still going on",
            Self::Damaged => "verdict.json is damaged",
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn every_run_has_a_word_and_without_verdict_a_reason() {
        use Standing::{Abandoned, Damaged, GoingOn, Judged, NeverJudged};
        assert_eq!(Judged(Validity::Unknown).word(), "unknown");
        assert_eq!(Judged(Validity::Unknown).reason(), "");
        for standing in [Damaged, GoingOn, Abandoned, NeverJudged] {
            assert_eq!(standing.verdict(), None);
            assert!(!standing.reason().is_empty());
        }
    }
}
