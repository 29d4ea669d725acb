//! Owns the KRaft protocol as a deterministic state machine: `step(now, input) -> effects`.
//! Never does I/O, reads a clock, waits, or draws randomness other than from the seed handed in.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

mod answers;
mod describe;
mod election;
mod endpoints;
mod epochs;
mod exploring;
mod fetches;
mod high_watermark;
pub mod io;
mod log_view;
mod membership;
mod observers;
mod peers;
mod proposals;
mod read_index;
mod replica;
mod requests;
mod role;
mod snapshot_download;
mod snapshots;
mod startup;
mod timers;
mod version_upgrade;
mod voter_changes;
mod voter_history;
mod votes;

pub(crate) use answers::is_of_another;
pub use describe::{QuorumDescription, ReplicaDescription};
pub use exploring::{AWAITED, Alarm, EXPLORED_TIMERS};
pub use io::{
    Configuration, Correlation, Effect, EpochStart, Input, PeerAnswer, ProposalRefusal,
    QuorumState, RecordedVoters, Recovered, Refusal, Role, SnapshotPlan, StoredSnapshot, Ticket,
    Timers,
};
pub(crate) use membership::DOES_NOT_ANSWER;
pub use replica::Replica;
pub(crate) use requests::refusal;
