//! Owns what each world can do to a cluster, and why it cannot do the rest.
//! Never does it, and never looks at flags.

use nemesis::capability::{Capabilities, Need};

/// Why no disk is taken away while voters are configured.
pub const NO_WIPE: &str = "the voters are static (kraft.version 0), so a voter that lost its disk is \
     still a voter, may vote twice in an epoch and elect a leader that lacks what was acknowledged \
     (KAFKA-14077); nothing is promised then. Say --voters log";

/// What every world can do.
const EVERYWHERE: [Need; 31] = [
    Need::CutHold,
    Need::CutReset,
    Need::CutRefuse,
    Need::LinkDelay,
    Need::LinkLoss,
    Need::LinkBandwidth,
    Need::LinkStall,
    Need::Kill,
    Need::KillClean,
    Need::Restart,
    Need::Pause,
    Need::Slow,
    Need::Wipe,
    Need::SetClocks,
    Need::StrobeClocks,
    Need::SlowSync,
    Need::SyncError,
    Need::NoSpace,
    Need::ReadError,
    Need::BitFlip,
    Need::Truncate,
    Need::TornWrite,
    Need::MisdirectedWrite,
    Need::Membership,
    Need::Snapshot,
    Need::Burst,
    Need::KnowCandidates,
    Need::KnowLogEnds,
    Need::KnowObservers,
    Need::AfterEvent,
    Need::BeforeEvent,
];

/// What a world of processes can do.
pub fn of_processes() -> Capabilities {
    Capabilities::new("real processes", EVERYWHERE)
        .without(
            Need::LinkDuplicate,
            "nodes talk over TCP, which delivers every byte once",
        )
        .without(
            Need::LinkReorder,
            "nodes talk over TCP, which keeps the order of bytes",
        )
}

/// What the simulation can do.
pub fn of_simulation() -> Capabilities {
    let lossy = [Need::LinkDuplicate, Need::LinkReorder];
    let can = EVERYWHERE.into_iter().chain(lossy);
    Capabilities::new("the simulation", can)
}
