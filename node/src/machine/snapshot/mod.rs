//! Owns how the replicated state is written down in a snapshot, and read from one.
//! Never touches files: records go out and come in as bytes.
//!
//! The state is a sequence of entries in one fixed order: a summary, then registers, lists, sets,
//! counters and sessions, each kind by ascending key. A long list or set is several entries. An entry
//! is a JSON text, cut into records of at most [`MAX_SNAPSHOT_RECORD_BYTES`] where it is longer. The
//! first byte of a record says whether its entry goes on in the next one. Nothing depends on the
//! order in which the state came about, so equal states give equal records on every node.

mod entry;
mod frozen;
mod loader;
#[cfg(test)]
mod tests;

pub use entry::{MAX_SNAPSHOT_RECORD_BYTES, VERSION as RECORD_VERSION};
pub use frozen::FrozenMachine;
pub use loader::{MachineLoader, SnapshotFault, SnapshotRecordError};
