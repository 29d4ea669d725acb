//! Owns the scenario tests of the node's loop: real storage and state machine, in virtual time.
//! Never uses sockets, threads or a real clock.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod clients;
mod cluster;
mod disk;
mod findings;
mod outbox;
mod seeded_bugs;
mod seeded_bugs_snapshots;
mod snapshot_disk_faults;
mod snapshot_following;
mod snapshot_pause;
mod snapshot_taking;
mod soak;
mod work_order;
