//! Owns the tests of what people see of a run as one program: all of them share one linking.
//! Never tests anything here: each module does.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

#[path = "../common/mod.rs"]
mod common;

mod accessibility;
mod browser;
mod odd_reports;
mod picture;
mod report;
mod serve;
