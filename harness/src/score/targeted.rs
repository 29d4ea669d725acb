//! Owns the settings made for single bugs: the workload, faults and sizes under which each is likely to show.
//! Never claims that a bug shows under them; a hunt finds out.

use node::mutants::Bug;

/// Flags of `run` and `sim` for the bugs that the usual ones rarely or never show, and no schedule was made
/// for.
const FLAGS: [(Bug, &str); 9] = [
    // Alone, no other voter's sync hides that the leader's own is missing.
    (Bug::LeaderCountsUnflushed, "--nodes 1 --nemesis kill"),
    // Somebody must be unable to hear the first announcement, and messages must be in the trace.
    (
        Bug::BeginQuorumOnce,
        "--nemesis partition-node --interval 8 --trace-messages",
    ),
    (
        Bug::PendingExpiresInAccumulator,
        "--nemesis membership,disk-slow,link-slow",
    ),
    (
        Bug::ObserverRefusesVote,
        "--nemesis membership,partition-random,kill --trace-messages",
    ),
    // Of numbers and lists what is applied twice stays visible; a register forgets it.
    (
        Bug::SnapshotIdOffByOne,
        "--workload counter --nemesis kill,snapshot,wipe --snapshot-every 8192",
    ),
    // A log that differs must be longer than a snapshot of the others: few operations, many snapshots.
    (
        Bug::SnapshotInstallKeepsLog,
        "--nemesis partition-leader-minority,snapshot --snapshot-every 1024 --interval 2 --rate 30",
    ),
    (
        Bug::ApplyTwice,
        "--workload append --nemesis kill,snapshot --snapshot-every 8192",
    ),
    // Whoever starts from a snapshot must be asked again for what was done before it.
    (
        Bug::DedupLostInSnapshot,
        "--workload append --nemesis kill-clean,snapshot --snapshot-every 1024 --interval 1 \
         --operation-timeout 2s",
    ),
    // A candidate without a timeout must neither win nor hear of a winner.
    (
        Bug::CandidateNoTimeout,
        "--nemesis partition-random,kill --interval 1",
    ),
];

/// Bugs that no run under given flags can show, with the reason.
const OUT_OF_REACH: [(Bug, &str); 1] = [(
    Bug::ClusterIdSkip,
    "only a swarm draws runs in which somebody asks in the name of another cluster",
)];

/// Flags of `run` and `sim` that were made for this bug.
pub fn flags(bug: Bug) -> Option<&'static str> {
    let mut all = FLAGS.iter();
    all.find(|(known, _)| *known == bug)
        .map(|(_, flags)| *flags)
}

/// Why no run under given flags can show this bug, for people.
pub fn out_of_reach(bug: Bug) -> Option<&'static str> {
    let mut all = OUT_OF_REACH.iter();
    all.find(|(known, _)| *known == bug).map(|(_, why)| *why)
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::cli::RunArgs;

    #[test]
    fn flags_are_those_of_a_run_and_no_bug_has_two_entries() {
        let mut seen = Vec::new();
        for (bug, flags) in FLAGS {
            let args = RunArgs::with_flags(flags).unwrap_or_else(|told| panic!("{bug}: {told}"));
            assert!(args.nemesis.is_some() && args.bug.is_none(), "{bug}");
            assert!(out_of_reach(bug).is_none() && !seen.contains(&bug), "{bug}");
            seen.push(bug);
        }
    }
}
