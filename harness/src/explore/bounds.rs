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
    /// Additions of a voter. With any, the voters are in the log, and for each (two at most) there is one more
    /// node, which does not vote at first.
    #[serde(default)]
    pub additions: u8,
    /// Snapshots that a node takes of its state. Once there is one, the log before it may be dropped at any time.
    #[serde(default)]
    pub snapshots: u8,
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
    /// Number of voters at the beginning.
    pub nodes: usize,
    /// States in which some node knows a later epoch are judged, but not gone on from.
    pub epochs: i32,
    /// Where it begins.
    pub beginning: Beginning,
    /// How often things may happen.
    pub budget: Budget,
    /// In how many pieces a snapshot is fetched.
    #[serde(default = "one_piece")]
    pub snapshot_pieces: u8,
    /// Name of the seeded bug, if any.
    #[serde(default, skip_serializing_if = "Option::is_none")]
    pub bug: Option<String>,
}

/// How snapshots were fetched before it could be said.
fn one_piece() -> u8 {
    1
}

/// The most nodes that do not vote at the beginning.
const SPARES_MAX: u8 = 2;
/// The most voters at the beginning: with more, there are too many states after a few steps.
pub const NODES_MAX: u8 = 5;

impl Bounds {
    /// Number of nodes, with those that may be added to the voters.
    pub fn members(&self) -> usize {
        self.nodes + usize::from(self.budget.additions.min(SPARES_MAX))
    }

    /// Whether the voters are in the log, where they can change.
    pub fn voters_change(&self) -> bool {
        self.budget.removals > 0 || self.budget.additions > 0
    }

    /// Whether there is a cluster of that size.
    ///
    /// # Errors
    /// When there is not.
    pub(super) fn check(&self) -> Result<(), String> {
        if (1..=usize::from(NODES_MAX)).contains(&self.nodes) {
            return Ok(());
        }
        let nodes = self.nodes;
        Err(format!(
            "{nodes} nodes cannot be explored, only 1 to {NODES_MAX}"
        ))
    }

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
                "{bug} is in code that an exploration does not run (clients, files of snapshots, timeouts of changes, disks); \
                 `harness sim --bug {bug}` does"
            ));
        }
        Ok(Some(bug))
    }
}

/// Whether a bug is outside of what is explored: elections, replication, reads, snapshots and changes of voters
/// in the protocol core.
fn is_outside(bug: Bug) -> bool {
    use Bug::{
        AckOnAppend, ApplyTwice, ClusterIdSkip, CrcSkip, DedupLostInSnapshot, FailInsteadOfInfo,
        LogDeletedPastSnapshot, ObserverRefusesVote, PendingExpiresInAccumulator, ReadNotApplied,
        RemovedLeaderLeavesEarly, RemovedLeaderStays, SnapshotIdOffByOne, SnapshotNoFsync,
        SnapshotPartAccepted, VoteTwoFiles,
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
            | SnapshotIdOffByOne
            | SnapshotNoFsync
            | SnapshotPartAccepted
            | VoteTwoFiles
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
