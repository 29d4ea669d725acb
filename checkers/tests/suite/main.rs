//! Owns the tests of the checkers as one program: all of them share one linking.
//! Never tests anything here: each module does.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod conformance;
mod corpus;
mod disks;
mod epoch_history;
mod histories;
mod linearizability;
mod models;
mod verdict;
