//! Owns the tests of node processes as one program: most of them wait, and all of them share one linking.
//! Never tests anything here: each module does.
#![allow(clippy::unwrap_used)] // Helpers of tests are tests.

#[path = "../server_support/mod.rs"]
mod server_support;

mod cluster;
mod connections;
mod control;
mod disk;
mod fuzz;
mod http;
mod log;
mod membership;
mod objects;
mod openapi;
mod seeded_bugs_visible;
