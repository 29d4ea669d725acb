//! Owns the scenario tests of the node's loop: real storage and state machine, in virtual time.
//! Never uses sockets, threads or a real clock.

#![allow(clippy::unwrap_used, reason = "a test fails by panicking")]

mod bench;
mod disk;
mod outbox;
mod seeded_bugs;
mod work_order;
