//! Owns the seeded bugs: deliberate, switchable mistakes that prove that the checkers notice them.
//! Never switches one on by itself; exactly one, or none, is on in a process.

use std::fmt;
use std::str::FromStr;

/// A deliberate mistake in the node.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// The high watermark may rise over records of earlier epochs before the leader's own
    /// LeaderChange record is on a majority (the Figure 8 mistake of the Raft paper; KAFKA-12619).
    HighWatermarkAnyEpoch,
    /// A write is acknowledged once it is in the leader's own log.
    AckOnAppend,
    /// A leader answers reads without making sure that it still leads.
    StaleRead,
}

impl Bug {
    /// All seeded bugs.
    pub const ALL: [Self; 3] = [
        Self::HighWatermarkAnyEpoch,
        Self::AckOnAppend,
        Self::StaleRead,
    ];

    /// Short stable id.
    pub fn id(self) -> &'static str {
        match self {
            Self::HighWatermarkAnyEpoch => "B06",
            Self::AckOnAppend => "B09",
            Self::StaleRead => "B51",
        }
    }

    /// Stable name, as given on the command line.
    pub fn name(self) -> &'static str {
        match self {
            Self::HighWatermarkAnyEpoch => "hwm-any-epoch",
            Self::AckOnAppend => "ack-on-append",
            Self::StaleRead => "stale-read",
        }
    }

    /// What the mistake is, in one sentence.
    pub fn description(self) -> &'static str {
        match self {
            Self::HighWatermarkAnyEpoch => {
                "a new leader commits records of earlier epochs before its own first record"
            }
            Self::AckOnAppend => "a write is acknowledged when only the leader has it",
            Self::StaleRead => "a leader answers reads without confirming that it still leads",
        }
    }
}

impl fmt::Display for Bug {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(self.name())
    }
}

impl FromStr for Bug {
    type Err = String;

    fn from_str(text: &str) -> Result<Self, Self::Err> {
        Self::ALL
            .into_iter()
            .find(|bug| bug.name() == text || bug.id().eq_ignore_ascii_case(text))
            .ok_or_else(|| {
                let known: Vec<_> = Self::ALL
                    .iter()
                    .map(|bug| format!("{} ({})", bug.name(), bug.id()))
                    .collect();
                format!("unknown bug {text:?}; known: {}", known.join(", "))
            })
    }
}
