//! Owns the system under test: a small KRaft node with an HTTP front.
//! Never knows the harness, the nemesis or the checkers.

pub mod batch;
pub mod ids;
pub mod message;
pub mod mutants;
pub mod raft;
pub mod storage;
pub mod trace;
