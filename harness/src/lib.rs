//! Owns the composition: workloads, worlds, runs, replays, and the `harness` command line.
//! Never holds protocol or checking logic.

pub mod bursts;
pub mod byte_size;
pub mod capabilities;
pub mod cli;
pub mod clients;
pub mod commands;
pub mod damage;
pub mod duration;
pub mod execution;
pub mod exit;
pub mod explore;
pub mod export;
pub mod interrupts;
pub mod machine;
pub mod memory;
pub mod mischief;
pub mod node_build;
pub mod processes;
pub mod progress;
pub mod recorder;
pub mod routing;
pub mod runner;
pub mod scenario;
pub mod score;
pub mod shrink;
pub mod simulation;
pub mod swarm;
pub mod workload;
pub mod world;
