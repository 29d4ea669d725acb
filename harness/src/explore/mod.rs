//! Owns bounded exhaustive exploration: every order of messages, losses, crashes, timeouts, writes, snapshots and changes
//! of voters, on the node's own protocol core.
//! Never samples: what it says it explored, it explored completely.
//!
//! A state is a handful of protocol cores with their disks, and the messages under way. One thing happens at
//! a time; breadth first, so that what is found first is as short as it can be. What is left out, because it
//! cannot make a difference:
//!
//! - **Time.** Timers have no lengths: each may go off at any moment, as on clocks of any speed
//!   (`node/src/raft/exploring.rs`). States that differ only in when things happened are one state.
//! - **Whom a node without a leader asks.** It is drawn; so the choice is made when the request arrives. Its
//!   answer, if it says nothing new, arrives at once: all it does is to let the node ask again. (Such a request
//!   never comes twice; one to a known leader may.)
//! - **Answers that nobody waits for**, and requests of which nobody awaits the answer and which, by their
//!   epoch, cannot change their receiver any more. (Kept where a seeded bug listens to them.)
//! - **Answers to announcements and resignations that say nothing new.** They free a connection, on which
//!   nothing but the same announcement would be sent; a leader's later announcements say what its first did.
//! - **Nodes that are down.** To be down is to receive nothing; so a crash restarts the node at once.
//! - **Losses that nobody notices.** A message that never arrives is a message that has not arrived yet. What
//!   counts as a loss here is one that whoever waits for the answer notices.
//! - **Half of a file.** A snapshot is taken and installed at once, and durable then; what a crash leaves of its file on
//!   the way is the storage's matter, as is a log that is torn within a record. It is fetched in as many pieces as the
//!   bounds say. It holds the records themselves, so that it can be compared with what is committed.
//! - **When the log is dropped.** Once there is a snapshot, it may be dropped up to that at any time, or never.
//! - **Names.** In a fresh cluster all nodes are alike, so the first timeout is that of the first node.

mod bounds;
mod choice;
mod cluster;
mod disk;
mod member;
mod message;
mod rules;
mod schedule;
mod search;
mod snapshot;
mod steps;
mod voters;

pub use bounds::{Beginning, Bounds, Budget, NODES_MAX};
pub use rules::{Checked, Rule, Violation};
pub use schedule::{Attempt, attempts};
pub use search::{Ended, Exploration, Limits, Progress, explore};
pub use steps::{Did, Kind, Replayed, Step, StepFile};
