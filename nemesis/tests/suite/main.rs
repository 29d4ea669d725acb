//! Owns the tests of faults on real sockets and processes as one program: all of them share one linking.
//! Never tests anything here: each module does.
#![allow(
    clippy::unwrap_used,
    reason = "a test that cannot go on should say where"
)]

mod client_links;
mod ends;
mod link_faults;
mod links;
mod processes;
