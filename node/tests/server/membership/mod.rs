//! Owns the tests of node processes whose voters change, and of their snapshots, as people run them.
//! Never looks inside the processes.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

mod changing;
mod formatted;
mod leaving;
mod moving;
mod refusals;
mod snapshots;
mod starting;
mod upgrading;
mod writer;
