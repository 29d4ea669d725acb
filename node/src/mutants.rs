//! Owns the seeded bugs: deliberate, switchable mistakes that prove that the checkers notice them.
//! Never switches one on by itself; exactly one, or none, is on in a process.
//!
//! Each bug breaks one path and leaves the assertions around it in place, so some show as a node that
//! stops rather than as wrong data; only an assertion that would keep the mistake from ever leaving
//! its place is off together with it. Where it is broken, the path asks whether its bug is on; a
//! node without bugs pays for that comparison and nothing else.

use std::fmt;
use std::str::FromStr;

/// A deliberate mistake in the node, in the order of [`Bug::ALL`].
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub enum Bug {
    /// A vote for another replica is written, but not synced, before it is answered.
    VoteNoFsync,
    /// Leader and vote are persisted in one write, and the epoch that they belong to in a second
    /// (hashicorp/raft #661).
    VoteTwoFiles,
    /// A leader that restarts leads on in its epoch, although its unsynced records may be gone
    /// (KAFKA-10527).
    RestartAsLeader,
    /// A leader that restarts may vote again in the epoch that it led (KAFKA-10661).
    RestartUnattached,
    /// A new leader's high watermark may rise to the offset of its first record, which that record
    /// itself is not below.
    HighWatermarkEpochStartOffByOne,
    /// The high watermark may rise over records of earlier epochs before the leader's own
    /// LeaderChange record is on a majority (the Figure 8 mistake of the Raft paper; KAFKA-12619).
    HighWatermarkAnyEpoch,
    /// A leader that is no voter counts itself among the voters' logs, while the majority is that of the
    /// set without it (KAFKA-16530).
    HighWatermarkCountsNonvoterLeader,
    /// A write is acknowledged once it is in the leader's own log.
    AckOnAppend,
    /// A follower does not sync what it fetches, and fetches on as if it had (KAFKA-10533).
    FollowerNoFsync,
    /// A leader counts its own log as durable before it is (etcd/raft #14370).
    LeaderCountsUnflushed,
    /// Whether a candidate's log is up to date is judged by its end alone.
    VoteCompareOffsetOnly,
    /// A candidate's log is not looked at.
    VoteNoLogCheck,
    /// A candidate's log must be ahead of the voter's; an equal one is refused.
    VoteStrictlyGreater,
    /// Followers truncate below their high watermark instead of stopping. As a correct leader never
    /// asks for that, candidates' logs are not looked at either (see [`Bug::VoteNoLogCheck`]).
    TruncateBelowHighWatermark,
    /// A truncation leaves the epochs of the dropped records in the leader-epoch cache.
    EpochCacheNotTruncated,
    /// A follower applies the high watermark of an answer that says that its log differs
    /// (KAFKA-14704).
    HighWatermarkBeforeTruncate,
    /// A follower appends what a fetch returns although it has moved on since it asked.
    AppendStaleEpochBatch,
    /// A granted vote answer counts in whatever election is going on when it comes.
    PreVoteCountedAsVote,
    /// A voter whose timer ends raises the epoch without a pre-vote (KIP-996).
    NoPreVote,
    /// A follower refuses every pre-vote, also before it has fetched from its leader (KAFKA-17641).
    PreVoteFollowerAlwaysRejects,
    /// A later epoch in a pre-vote, or in its answer, is ignored (openraft #1796).
    PreVoteNoEpochAdopt,
    /// A leader that a majority no longer fetches from does not resign (KAFKA-15489).
    NoCheckQuorum,
    /// A leader announces itself once only (KAFKA-16536).
    BeginQuorumOnce,
    /// A follower takes a repeated BeginQuorumEpoch for a successful fetch.
    BeginResetsFetchTimer,
    /// A new high watermark does not wake waiting fetches (KAFKA-14145).
    ParkedFetchNotWokenOnHighWatermark,
    /// A diverging answer is held back as long as the fetch may wait (KAFKA-15100).
    DivergingParked,
    /// A fetch that waits when leadership ends is answered without checking epoch and leadership
    /// again.
    ParkedFetchNotRevalidated,
    /// A leader changes the voters before it has committed a record of its own epoch (Ongaro, raft-dev
    /// 2015).
    AddVoterNoHighWatermarkCheck,
    /// A leader changes the voters although the change before is not committed.
    TwoPendingChanges,
    /// A change of the voters waits outside the log until everything before it is committed, and is
    /// overlooked there once its request has timed out (review of KAFKA-20661).
    PendingExpiresInAccumulator,
    /// Voters are in force once they are committed instead of once they are in the log.
    VotersOnCommit,
    /// A snapshot says nothing of the voters, although they are in the log.
    VotersNotInSnapshot,
    /// A leader leads on after its removal is committed.
    RemovedLeaderStays,
    /// A leader resigns when its removal is in its own log, before anyone else has it.
    RemovedLeaderLeavesEarly,
    /// A replica that is no voter by its own log refuses to vote (etcd/raft abb533c).
    ObserverRefusesVote,
    /// A snapshot holds everything in the log, committed or not.
    SnapshotAboveHighWatermark,
    /// A snapshot is named by the offset of the last record in it instead of the next one. If the
    /// batch of that record has others, no snapshot could end there, and its name is right.
    SnapshotIdOffByOne,
    /// A snapshot gets its name before its content is durable (KAFKA-15312).
    SnapshotNoFsync,
    /// What was fetched of a snapshot before a crash is taken for all of it.
    SnapshotPartAccepted,
    /// The log loses its oldest segments when it is too large, whether a snapshot holds what was in
    /// them or not (KAFKA-14238).
    LogDeletedPastSnapshot,
    /// When a snapshot is installed, the log behind its end stays, although it may differ from the
    /// leader's.
    SnapshotInstallKeepsLog,
    /// A leader answers reads without making sure that it still leads.
    StaleRead,
    /// A leader answers reads before its high watermark is known in its epoch (etcd/raft #12680).
    ReadBeforeEpochCommit,
    /// Applying lags behind committing, and reads do not wait for it.
    ReadNotApplied,
    /// A command that entered the log is refused when leadership ends, although it may yet be
    /// committed.
    FailInsteadOfInfo,
    /// The state of a snapshot is loaded without how far it was applied, so what the log still has of
    /// it is applied again.
    ApplyTwice,
    /// A snapshot does not hold what clients were told, so their repeated requests are applied again.
    DedupLostInSnapshot,
    /// Recovery takes a batch for sound without checking its checksum.
    CrcSkip,
    /// A quorum-state file with an epoch below that of the log, or none, is taken at its word.
    EpochNotFromLog,
    /// A candidate has no election timeout.
    CandidateNoTimeout,
    /// A fetch that was refused with NOT_LEADER is sent again at once.
    NoRetryBackoff,
    /// Requests of replicas of another cluster are served.
    ClusterIdSkip,
    /// An append does not wake waiting fetches.
    LostWakeup,
}

/// How easily a bug must be found.
#[derive(Debug, Clone, Copy, PartialEq, Eq, PartialOrd, Ord)]
pub enum Priority {
    /// The standard faults ought to find it, given enough runs.
    A,
    /// It takes a schedule made for it.
    B,
    /// Hard to see from outside, or harmless without a second mistake.
    C,
}

/// What is known of a bug besides its name in the code.
#[derive(Debug)]
struct Entry {
    bug: Bug,
    id: &'static str,
    name: &'static str,
    priority: Priority,
    broken: &'static str,
    detectors: &'static str,
}

const fn entry(
    bug: Bug,
    id: &'static str,
    name: &'static str,
    priority: Priority,
    broken: &'static str,
    detectors: &'static str,
) -> Entry {
    Entry {
        bug,
        id,
        name,
        priority,
        broken,
        detectors,
    }
}

/// All bugs, in the order in which the type lists them.
#[rustfmt::skip]
const TABLE: [Entry; 53] = [
    entry(Bug::VoteNoFsync, "B01", "vote-no-fsync", Priority::A,
        "a vote is answered before it is durable",
        "K6, then I1 and linearizable"),
    entry(Bug::VoteTwoFiles, "B02", "vote-two-files", Priority::B,
        "epoch and vote become durable one after the other",
        "K6, I5"),
    entry(Bug::RestartAsLeader, "B03", "restart-as-leader", Priority::A,
        "a leader that restarts leads on in the same epoch",
        "I3, linearizable"),
    entry(Bug::RestartUnattached, "B04", "restart-unattached", Priority::B,
        "a leader that restarts forgets that it led and may vote again in its epoch",
        "K6, I1"),
    entry(Bug::HighWatermarkEpochStartOffByOne, "B05", "hwm-epoch-start-off-by-one", Priority::A,
        "the high watermark may rise to the start of the leader's epoch instead of beyond it",
        "I2, I6, linearizable"),
    entry(Bug::HighWatermarkAnyEpoch, "B06", "hwm-any-epoch", Priority::A,
        "a new leader commits records of earlier epochs before its own first record",
        "I2, I6, linearizable"),
    entry(Bug::HighWatermarkCountsNonvoterLeader, "B07", "hwm-counts-nonvoter-leader", Priority::B,
        "a leader that was removed counts itself, so one voter too few makes a majority",
        "I6, linearizable"),
    entry(Bug::AckOnAppend, "B09", "ack-on-append", Priority::A,
        "a write is acknowledged when only the leader has it",
        "linearizable, I2"),
    entry(Bug::FollowerNoFsync, "B10", "follower-no-fsync", Priority::A,
        "a follower acknowledges records that it has not synced",
        "I6, linearizable"),
    entry(Bug::LeaderCountsUnflushed, "B11", "leader-counts-unflushed", Priority::B,
        "a leader counts its own records, and acknowledges them, before they are synced",
        "linearizable"),
    entry(Bug::VoteCompareOffsetOnly, "B12", "vote-compare-offset-only", Priority::A,
        "voters compare the length of logs, not their last epoch",
        "I2, linearizable, K2"),
    entry(Bug::VoteNoLogCheck, "B13", "vote-no-log-check", Priority::A,
        "voters grant whatever the candidate's log holds",
        "I2, linearizable"),
    entry(Bug::VoteStrictlyGreater, "B14", "vote-strictly-greater", Priority::B,
        "voters want a longer log than their own, so equal logs elect nobody",
        "liveness"),
    entry(Bug::TruncateBelowHighWatermark, "B15", "truncate-below-hwm", Priority::B,
        "as vote-no-log-check, and followers silently drop committed records",
        "K2, I2"),
    entry(Bug::EpochCacheNotTruncated, "B17", "epoch-cache-not-updated", Priority::B,
        "a truncation leaves the dropped epochs in the epoch cache",
        "I3, liveness (diverging for ever)"),
    entry(Bug::HighWatermarkBeforeTruncate, "B18", "hwm-before-truncate", Priority::B,
        "a follower takes the high watermark of a diverging answer for its own log",
        "K2, K3, node-logs (the truncation is refused)"),
    entry(Bug::AppendStaleEpochBatch, "B20", "append-stale-epoch-batch", Priority::B,
        "records of a fetch answer are appended however late it comes",
        "I3"),
    entry(Bug::PreVoteCountedAsVote, "B21", "prevote-counted-as-vote", Priority::B,
        "a late answer to a pre-vote counts as a vote",
        "I1"),
    entry(Bug::NoPreVote, "B23", "no-prevote", Priority::A,
        "a follower stands for election without asking first",
        "epoch growth, liveness"),
    entry(Bug::PreVoteFollowerAlwaysRejects, "B24", "prevote-follower-always-rejects", Priority::A,
        "followers refuse pre-votes even if they never reached their leader",
        "liveness"),
    entry(Bug::PreVoteNoEpochAdopt, "B26", "prevote-no-epoch-adopt", Priority::B,
        "a later epoch in a pre-vote or its answer is ignored",
        "liveness"),
    entry(Bug::NoCheckQuorum, "B27", "no-check-quorum", Priority::A,
        "a leader without a majority of fetches never resigns",
        "liveness, linearizable"),
    entry(Bug::BeginQuorumOnce, "B29", "begin-quorum-once", Priority::A,
        "a leader announces itself once, however many voters missed it",
        "conformance C12"),
    entry(Bug::BeginResetsFetchTimer, "B30", "begin-resets-fetch-timer", Priority::C,
        "an announcement of the leader counts as a sign of life",
        "conformance C13, where requests time out before fetches do"),
    entry(Bug::ParkedFetchNotWokenOnHighWatermark, "B31", "parked-fetch-not-woken-on-hwm", Priority::B,
        "a waiting fetch is not answered when records become committed",
        "commit lag of followers"),
    entry(Bug::DivergingParked, "B32", "diverging-parked", Priority::B,
        "the answer that logs differ waits like one that has nothing to tell",
        "catch-up time of followers"),
    entry(Bug::ParkedFetchNotRevalidated, "B33", "parked-fetch-not-revalidated", Priority::C,
        "fetches that wait when leadership ends are answered as if it had not",
        "I3 and K2, only with append-stale-epoch-batch"),
    entry(Bug::AddVoterNoHighWatermarkCheck, "B34", "add-voter-no-hwm-check", Priority::B,
        "a leader changes the voters before it knows what is committed in its epoch",
        "K1, I2, linearizable"),
    entry(Bug::TwoPendingChanges, "B35", "two-pending-changes", Priority::A,
        "a leader changes the voters while the change before is not committed",
        "K1, linearizable"),
    entry(Bug::PendingExpiresInAccumulator, "B36", "pending-expires-in-accumulator", Priority::C,
        "a change of the voters that timed out before it entered the log is overlooked by the next",
        "K1"),
    entry(Bug::VotersOnCommit, "B37", "voters-on-commit", Priority::B,
        "voters count once they are committed, not once they are in the log",
        "I6; with two-pending-changes also K1 and linearizable"),
    entry(Bug::VotersNotInSnapshot, "B39", "voters-not-in-snapshot", Priority::B,
        "a snapshot does not say who the voters are, so they are lost with the log before it",
        "K1, S2, liveness"),
    entry(Bug::RemovedLeaderStays, "B40", "removed-leader-stays", Priority::B,
        "a leader leads on although its removal is committed",
        "liveness, K1"),
    entry(Bug::RemovedLeaderLeavesEarly, "B41", "removed-leader-leaves-early", Priority::B,
        "a leader resigns before anyone else knows of its removal",
        "liveness (the removal is lost)"),
    entry(Bug::ObserverRefusesVote, "B43", "observer-refuses-vote", Priority::B,
        "a replica that does not know yet that it is a voter refuses to vote",
        "liveness"),
    entry(Bug::SnapshotAboveHighWatermark, "B44", "snapshot-above-hwm", Priority::A,
        "a snapshot holds records that are not committed",
        "S2, linearizable, node-logs (once those records are not in the log any more)"),
    entry(Bug::SnapshotIdOffByOne, "B45", "snapshot-id-off-by-one", Priority::A,
        "a snapshot is named by its last record, which is applied again after it",
        "S2, linearizable (lists and counters)"),
    entry(Bug::SnapshotNoFsync, "B46", "snapshot-no-fsync", Priority::B,
        "a snapshot gets its name before its content is durable",
        "node-logs (the node cannot start), S1"),
    entry(Bug::SnapshotPartAccepted, "B48", "snapshot-part-accepted", Priority::B,
        "what was fetched of a snapshot before a crash is taken for the whole",
        "S2, linearizable, node-logs (the node cannot start)"),
    entry(Bug::LogDeletedPastSnapshot, "B49", "log-deleted-past-snapshot", Priority::A,
        "the oldest part of a large log is deleted without a snapshot of it",
        "S1, node-logs (the node cannot start)"),
    entry(Bug::SnapshotInstallKeepsLog, "B50", "snapshot-install-keeps-log", Priority::B,
        "installing a snapshot leaves what the log has behind its end",
        "I3, linearizable"),
    entry(Bug::StaleRead, "B51", "stale-read", Priority::A,
        "a leader answers reads without confirming that it still leads",
        "linearizable"),
    entry(Bug::ReadBeforeEpochCommit, "B52", "read-before-epoch-commit", Priority::B,
        "a new leader answers reads before it knows what is committed",
        "linearizable"),
    entry(Bug::ReadNotApplied, "B54", "read-not-applied", Priority::B,
        "a read is answered before the records below its read index are applied",
        "linearizable"),
    entry(Bug::FailInsteadOfInfo, "B55", "fail-instead-of-info", Priority::A,
        "a write that is in the log is reported as not carried out when leadership ends",
        "linearizable (a write that failed is seen)"),
    entry(Bug::ApplyTwice, "B58", "apply-twice", Priority::A,
        "a restart applies records again that are in the state of the snapshot",
        "S2, disks D6, linearizable (lists and counters)"),
    entry(Bug::DedupLostInSnapshot, "B59", "dedup-lost-in-snapshot", Priority::C,
        "a snapshot does not hold which requests were applied",
        "S2, disks D6, linearizable and elements (a repeated append)"),
    entry(Bug::CrcSkip, "B60", "crc-skip", Priority::B,
        "recovery does not check the checksums of batches",
        "I3, node-logs"),
    entry(Bug::EpochNotFromLog, "B61", "epoch-not-from-log", Priority::B,
        "a quorum-state file that is older than the log, or gone, is believed",
        "I5, I3"),
    entry(Bug::CandidateNoTimeout, "B63", "candidate-no-timeout", Priority::A,
        "a candidate that neither wins nor hears of a leader waits for ever",
        "liveness"),
    entry(Bug::NoRetryBackoff, "B64", "no-retry-backoff", Priority::C,
        "a peer that does not lead is asked again at once",
        "message rate"),
    entry(Bug::ClusterIdSkip, "B67", "cluster-id-skip", Priority::C,
        "requests of another cluster are served",
        "conformance C14, in a swarm"),
    entry(Bug::LostWakeup, "B68", "lost-wakeup", Priority::B,
        "an append does not wake the fetches that wait for it",
        "latency of single writes"),
];

impl Bug {
    /// All seeded bugs, by id.
    pub const ALL: [Self; TABLE.len()] = {
        let mut all = [TABLE[0].bug; TABLE.len()];
        let mut at = 0;
        while at < TABLE.len() {
            assert!(
                TABLE[at].bug as usize == at,
                "the table is in the order of the type"
            );
            all[at] = TABLE[at].bug;
            at += 1;
        }
        all
    };

    fn entry(self) -> &'static Entry {
        static ENTRIES: [Entry; TABLE.len()] = TABLE;
        &ENTRIES[self as usize]
    }

    /// Short stable id.
    pub fn id(self) -> &'static str {
        self.entry().id
    }

    /// Stable name, as given on the command line.
    pub fn name(self) -> &'static str {
        self.entry().name
    }

    /// How easily it must be found.
    pub fn priority(self) -> Priority {
        self.entry().priority
    }

    /// What the mistake is, in one sentence.
    pub fn description(self) -> &'static str {
        self.entry().broken
    }

    /// What must notice it: checkers and properties of the harness, the likeliest first.
    pub fn detectors(self) -> &'static str {
        self.entry().detectors
    }
}

impl fmt::Display for Priority {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        formatter.write_str(match self {
            Self::A => "A",
            Self::B => "B",
            Self::C => "C",
        })
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
                let known = [
                    Self::HighWatermarkAnyEpoch,
                    Self::AckOnAppend,
                    Self::StaleRead,
                ]
                .map(|bug| format!("{} ({})", bug.name(), bug.id()));
                let all = Self::ALL.len();
                format!(
                    "unknown bug {text:?}; one of {all} is {}",
                    known.join(" or ")
                )
            })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn ids_and_names_are_unique_and_ids_ascend() {
        for pair in Bug::ALL.windows(2) {
            assert!(pair[0].id() < pair[1].id(), "{pair:?}");
        }
        for bug in Bug::ALL {
            let same = |other: &&Bug| other.name() == bug.name() || other.id() == bug.name();
            assert_eq!(Bug::ALL.iter().filter(same).count(), 1, "{bug}");
            let letters = |letter: char| letter.is_ascii_lowercase() || letter == '-';
            assert!(bug.name().chars().all(letters), "{bug}");
        }
    }

    #[test]
    fn a_bug_is_found_by_name_and_by_id_and_nothing_else_is() {
        for bug in Bug::ALL {
            assert_eq!(bug.name().parse(), Ok(bug));
            assert_eq!(bug.id().to_lowercase().parse(), Ok(bug));
        }
        let error = "B99".parse::<Bug>().unwrap_err();
        assert!(
            error.contains("B99") && error.contains("stale-read (B51)"),
            "{error}"
        );
    }
}
