//! Owns what limits an exploration: how often each thing may happen on the way to a state.
//! Never limits the order in which things happen.

use node::mutants::Bug;
use serde::{Deserialize, Serialize};

/// Where an exploration begins.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Serialize, Deserialize, clap::ValueEnum)]
#[serde(rename_all = "kebab-case")]
pub enum Beginning {
    /// Every node has just started for the first time, with an empty log.
    Fresh,
    /// The first node was elected with the vote of the second and has committed its first record with it; what
    /// was sent to the others is still under way.
    Elected,
}

/// How often things may happen on the way from the beginning to a state.
#[derive(Debug, Clone, Copy, PartialEq, Eq, Hash, Serialize, Deserialize)]
pub struct Budget {
    /// Election, fetch and check-quorum timeouts.
    pub timeouts: u8,
    /// Client writes.
    pub writes: u8,
    /// Client reads, which must see everything that was committed when they arrived.
    #[serde(default)]
    pub reads: u8,
    /// Removals of a voter. With any, the voters are in the log, where they can change.
    #[serde(default)]
    pub removals: u8,
    /// Crashes, each with a restart.
    pub crashes: u8,
    /// Messages that are lost, which whoever waits for an answer notices.
    pub losses: u8,
    /// Requests that arrive twice.
    pub duplicates: u8,
}

/// What is explored.
#[derive(Debug, Clone, PartialEq, Eq, Serialize, Deserialize)]
pub struct Bounds {
    /// Number of nodes, all of them voters.
    pub nodes: usize,
    /// States in which some node knows a later epoch are judged, but not gone on from.
    pub epochs: i32,
    /// Where it begins.
    pub beginning: Beginning,
    /// How often things may happen.
    pub budget: Budget,
    /// Name of the seeded bug, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bug: Option<String>,
}

impl Bounds {
    /// The seeded bug.
    ///
    /// # Errors
    /// When there is none of that name, or it is in code that an exploration does not run.
    pub fn bug(&self) -> Result<Option<Bug>, String> {
        let Some(name) = &self.bug else {
            return Ok(None);
        };
        let bug: Bug = name.parse()?;
        if is_outside(bug) {
            return Err(format!(
                "{bug} is in code that an exploration does not run (clients, snapshots, probes of voters, disks); \
                 `harness sim --bug {bug}` does"
            ));
        }
        Ok(Some(bug))
    }
}

/// Whether a bug is outside of what is explored: elections, replication, reads and removals of voters in the
/// protocol core.
fn is_outside(bug: Bug) -> bool {
    use Bug::{
        AckOnAppend, ApplyTwice, ClusterIdSkip, CrcSkip, DedupLostInSnapshot, FailInsteadOfInfo,
        LogDeletedPastSnapshot, ObserverRefusesVote, PendingExpiresInAccumulator, ReadNotApplied,
        RemovedLeaderLeavesEarly, RemovedLeaderStays, SnapshotAboveHighWatermark,
        SnapshotIdOffByOne, SnapshotInstallKeepsLog, SnapshotNoFsync, SnapshotPartAccepted,
        VoteTwoFiles, VotersNotInSnapshot,
    };
    matches!(
        bug,
        AckOnAppend
            | ApplyTwice
            | ClusterIdSkip
            | CrcSkip
            | DedupLostInSnapshot
            | FailInsteadOfInfo
            | LogDeletedPastSnapshot
            | ObserverRefusesVote
            | PendingExpiresInAccumulator
            | ReadNotApplied
            | RemovedLeaderLeavesEarly
            | RemovedLeaderStays
            | SnapshotAboveHighWatermark
            | SnapshotIdOffByOne
            | SnapshotInstallKeepsLog
            | SnapshotNoFsync
            | SnapshotPartAccepted
            | VoteTwoFiles
            | VotersNotInSnapshot
    )
}

/// Whether answers that nobody waits for may still do something: only with bugs that listen to them.
pub(super) fn hears_forgotten_answers(bug: Option<Bug>) -> bool {
    matches!(
        bug,
        Some(Bug::AppendStaleEpochBatch | Bug::PreVoteCountedAsVote)
    )
}

/// Whether a member never goes back in what it knows of epochs, also when it crashes.
pub(super) fn keeps_epochs(bug: Option<Bug>) -> bool {
    !matches!(
        bug,
        Some(
            Bug::VoteNoFsync
                | Bug::RestartUnattached
                | Bug::EpochNotFromLog
                | Bug::PreVoteNoEpochAdopt
        )
    )
}
