//! Owns the scenario tests of the protocol core, run in a deterministic cluster in memory.
//! Never opens a socket or a file, and never reads a clock.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod changing;
mod cluster;
mod disk;
mod election;
mod fetching;
mod history;
mod machinery;
mod membership;
mod membership_rules;
mod observers;
mod reads;
mod replication;
mod robustness;
mod seeded_bugs;
mod seeded_bugs_leading;
mod seeded_bugs_membership;
mod seeded_bugs_replication;
mod seeded_bugs_votes;
mod snapshot_clusters;
mod snapshot_fetching;
mod snapshot_serving;
mod snapshotting;
mod soak;
mod soak_membership;
mod solo;
mod upgrading;
