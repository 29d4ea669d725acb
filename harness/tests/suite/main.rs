//! Owns the tests of the harness as one program: most of them wait for nodes, and all of them share one linking.
//! Never tests anything here: each module does.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

#[path = "../kit/mod.rs"]
mod kit;

mod bad_input;
mod bug_score;
mod campaigns;
mod check;
mod client_links;
mod deaths;
mod disk_and_process_faults;
mod exploration;
mod namespaces;
mod readme;
mod real_runs;
mod replays;
mod scenarios;
mod shrinking;
mod simulation;
mod stored_runs;
mod triggers;
mod workloads;
mod workspace;
