//! Owns data directories with a long log, written by the node's own storage in one go.
//! Never takes a shortcut in the format: a node cannot tell them from what it wrote itself.

use std::path::Path;

use anyhow::Context;
use node::batch::{Batch, HEADER_BYTES};
use node::control_record::ControlRecord;
use node::ids::{Epoch, NodeId};
use node::machine::{Command, Operation};
use node::raft::QuorumState;
use node::storage::frame::FRAME_BYTES;
use node::storage::{DirectoryDisk, Identity, Storage, StorageOptions};

use crate::load::value;

/// How many different registers the log writes to.
const KEY_COUNT: u64 = 1000;
/// How much may be appended between two syncs, in batches.
const BATCHES_PER_SYNC: u64 = 256;

/// What the log shall be.
#[derive(Debug, Clone, Copy)]
pub(crate) struct LogShape {
    pub(crate) record_count: u64,
    pub(crate) log_bytes: u64,
    pub(crate) records_per_batch: u64,
}

impl LogShape {
    /// How long values have to be for that.
    fn value_bytes(self) -> anyhow::Result<usize> {
        let per_batch = (FRAME_BYTES + HEADER_BYTES) as u64;
        let batches = self.record_count.div_ceil(self.records_per_batch);
        let empty = write(0, 1).encode()?.len() as u64 - 1 + 4;
        let for_values = self
            .log_bytes
            .checked_sub(batches * per_batch + self.record_count * empty)
            .context("so few bytes do not hold so many records")?;
        Ok((for_values / self.record_count.max(1)).max(1) as usize)
    }
}

fn write(number: u64, value_bytes: usize) -> Command {
    Command::single(Operation::RegisterWrite {
        key: format!("key-{:04}", number % KEY_COUNT),
        value: value(number, value_bytes).into(),
    })
}

/// Fills the data directory of one voter.
pub(crate) fn fill(
    directory: &Path,
    id: NodeId,
    voters: &[NodeId],
    shape: LogShape,
) -> anyhow::Result<()> {
    let value_bytes = shape.value_bytes()?;
    let identity = Identity {
        cluster_id: "kraft-harness".into(),
        node_id: id,
    };
    let disk = DirectoryDisk::open(directory)?;
    let (mut storage, _) = Storage::open(disk, &identity, StorageOptions::default())?;
    let epoch = Epoch(1);
    storage.persist(QuorumState {
        epoch,
        leader: None,
        voted_for: None,
    })?;
    let begins = ControlRecord::LeaderChange {
        leader: voters[0],
        voters: voters.to_vec(),
        granting_voters: voters.to_vec(),
    };
    let begins = [begins.encode()];
    storage.append(&Batch::build(storage.log_end(), epoch, 0, true, &begins))?;
    let mut written = 0;
    let mut batch_count = 0_u64;
    while written < shape.record_count {
        let count = shape.records_per_batch.min(shape.record_count - written);
        let records = (written..written + count)
            .map(|number| write(number, value_bytes).encode())
            .collect::<Result<Vec<_>, _>>()?;
        storage.append(&Batch::build(storage.log_end(), epoch, 0, false, &records))?;
        written += count;
        batch_count += 1;
        if batch_count.is_multiple_of(BATCHES_PER_SYNC) {
            storage.sync()?;
        }
    }
    storage.sync()?;
    storage.seal()?;
    Ok(())
}
