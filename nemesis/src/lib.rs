//! Owns what goes wrong and when: the fault vocabulary, and schedules of faults.
//! Never judges: whether the cluster kept its promises is decided elsewhere, from recorded evidence.

pub mod family;
pub mod fault;
pub mod names;
pub mod plan;
pub mod resolve;
pub mod schedule;
pub mod timeline;
