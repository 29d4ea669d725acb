//! Owns everything that survives a crash: log segments, quorum-state file, and their recovery.
//! Never decides what is written; the protocol core does.

pub mod disk;
