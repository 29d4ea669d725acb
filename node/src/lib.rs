//! Owns the system under test: a small KRaft node with an HTTP front.
//! Never knows the harness, the nemesis or the checkers.

pub mod batch;
pub mod cli;
pub mod client;
pub mod control_record;
pub mod ids;
pub mod machine;
pub mod message;
pub mod mischief;
pub mod moment;
pub mod mutants;
pub mod node_loop;
pub mod raft;
pub mod server;
pub mod storage;
pub mod trace;
pub mod voters;

/// Version and source of this build. Two builds that say the same differ in nothing but how they were compiled.
pub const VERSION: &str = concat!(
    env!("CARGO_PKG_VERSION"),
    " (source ",
    env!("NODE_SOURCE"),
    ")"
);
