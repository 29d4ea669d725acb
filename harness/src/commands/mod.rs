//! Owns what each command of the harness does.
//! Never parses arguments beyond what only the command can know.

pub mod analyze;
pub mod announce;
pub mod bugs;
pub mod bugs_score;
mod campaign;
pub mod check;
mod cluster;
pub mod coverage;
pub mod doctor;
pub mod explore;
mod explore_simulated;
pub mod export;
pub mod gc;
pub mod list;
pub mod namespaces;
mod naming;
mod planning;
pub mod replay;
mod replay_simulated;
pub mod run;
pub mod serve;
pub mod shell;
pub mod show;
pub mod shrink;
pub mod sim;
mod story;
mod summary;
mod table;
