//! Owns the simulated world: clusters of the node's own core and storage in one thread and virtual time.
//! Never touches a socket, a clock or a disk of this machine, except to store what came out.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod campaign;
mod clock;
mod conversation;
mod departures;
mod digest;
mod disk;
mod draws;
mod events;
mod evidence;
mod faults;
mod images;
mod link_faults;
mod membership;
mod moments;
mod network;
mod panics;
mod queue;
mod session;
mod simulated_node;
mod snapshot_faults;
mod strangers;
mod strobes;
mod tracing;
mod trial;
mod world;

#[cfg(test)]
mod tests;

pub use campaign::{Campaign, CampaignSummary, SCHEDULE, SeedOutcome, run_campaign};
pub use evidence::{Label, store_run};
pub(crate) use panics::caught;
pub use session::{Glimpse, SessionPlan, Simulated, glimpse, simulate, verdict_on};
