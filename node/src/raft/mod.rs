//! Owns the KRaft protocol as a deterministic state machine: `step(now, input) -> effects`.
//! Never does I/O, reads a clock, waits, or draws randomness other than from the seed handed in.

pub mod io;

pub use io::{
    Configuration, Correlation, Effect, EpochStart, Input, PeerAnswer, ProposalRefusal,
    QuorumState, Recovered, Refusal, Role, Ticket, Timers,
};
