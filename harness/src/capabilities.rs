//! Owns what each world can do to a cluster, and why it cannot do the rest.
//! Never does it, and never looks at flags.

use nemesis::capability::{Capabilities, Need};
use results::manifest::Network;

/// Why no disk is taken away while voters are configured.
pub const NO_WIPE: &str = "the voters are static (kraft.version 0), so a voter that lost its disk is \
     still a voter, may vote twice in an epoch and elect a leader that lacks what was acknowledged \
     (KAFKA-14077); nothing is promised then. Say --voters log";

/// Why no fault of the simulation takes links of clients.
pub const NO_CLIENT_LINKS: &str =
    "clients of the simulation reach every node at all times; real processes can do it";

/// What every world can do.
const EVERYWHERE: [Need; 33] = [
    Need::CutHold,
    Need::CutReset,
    Need::CutRefuse,
    Need::LinkDelay,
    Need::LinkBandwidth,
    Need::LinkStall,
    Need::LinkSlowClose,
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
    Need::LostFile,
    Need::Membership,
    Need::Snapshot,
    Need::Burst,
    Need::KnowCandidates,
    Need::KnowLogEnds,
    Need::KnowObservers,
    Need::AfterEvent,
    Need::BeforeEvent,
    Need::ClientLinks,
];

/// Why proxies do nothing to packets.
const NO_PACKETS: &str = "proxies carry bytes of TCP and see no packets (--network namespace does)";

/// What a world of processes can do on such a network.
pub fn of_processes(network: Network) -> Capabilities {
    let packets = [
        Need::CutDrop,
        Need::LinkLoss,
        Need::LinkDuplicate,
        Need::LinkReorder,
        Need::LinkCorrupt,
    ];
    match network {
        Network::Proxy => {
            let world = Capabilities::new("real processes", EVERYWHERE);
            packets
                .into_iter()
                .fold(world, |world, need| world.without(need, NO_PACKETS))
        }
        Network::Namespace => {
            let can = EVERYWHERE.into_iter().chain(packets);
            Capabilities::new("processes in network namespaces", can)
        }
    }
}

/// What the simulation can do.
pub fn of_simulation() -> Capabilities {
    let lossy = [Need::LinkLoss, Need::LinkDuplicate, Need::LinkReorder];
    let can = EVERYWHERE.into_iter().chain(lossy);
    Capabilities::new("the simulation", can)
        .without(
            Need::CutDrop,
            "its messages are whole requests, which nobody sends again; they are held or reset",
        )
        .without(
            Need::LinkCorrupt,
            "a corrupted packet fails its checksum and is lost, which loss does there",
        )
        .without(Need::ClientLinks, NO_CLIENT_LINKS)
}
