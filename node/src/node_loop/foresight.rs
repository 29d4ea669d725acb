//! Owns what the seeded bug B09 tells clients: what their commands will come to if all of this log is committed.
//! Never touches the state that committed records make.

use super::NodeLoop;
use super::boundary::NodeError;
use super::clients::APPLY_CHUNK_BYTES;
use crate::ids::{Epoch, Offset};
use crate::machine::{Applied, Command, Machine};
use crate::storage::disk::Disk;

/// The state that the log of a leader leads to, committed or not.
#[derive(Debug, Clone)]
pub(super) struct Foresight {
    machine: Machine,
    /// Every record below is applied to it.
    next: Offset,
    /// The epoch in which this node leads; its log only grows meanwhile.
    epoch: Epoch,
}

impl<D: Disk> NodeLoop<D> {
    /// What the command at `offset` does if it is committed with all before it in the log of this leader.
    pub(super) fn foresee(&mut self, offset: Offset) -> Result<Applied, NodeError> {
        let epoch = self.replica.epoch();
        let kept = self
            .foresight
            .take()
            .filter(|kept| kept.epoch == epoch && kept.next >= self.applied && kept.next <= offset);
        let mut seen = kept.unwrap_or_else(|| Foresight {
            machine: self.machine.clone(),
            next: self.applied,
            epoch,
        });
        let mut last = None;
        while seen.next <= offset {
            let before = seen.next;
            for batch in self.storage.read(seen.next, APPLY_CHUNK_BYTES)? {
                for (at, record) in batch.records() {
                    if at < seen.next || at > offset {
                        continue;
                    }
                    seen.next = Offset(at.0 + 1);
                    if batch.is_control() {
                        continue;
                    }
                    let command = Command::decode(record)
                        .map_err(|source| NodeError::Undecodable { offset: at, source })?;
                    last = Some(seen.machine.apply(at, command));
                }
            }
            assert!(seen.next > before, "the log ends below what was appended");
        }
        self.foresight = Some(seen);
        Ok(last.expect("the record at the offset is a command"))
    }
}
