//! Owns what a snapshot of an explored member holds: the records themselves, so that it can be compared.
//! Never decides when one is taken, or what becomes of the log before it.

use std::hash::{DefaultHasher, Hash, Hasher};

use node::batch::Batch;
use node::control_record::ControlRecord;
use node::ids::{Offset, SnapshotId};
use node::raft::{RecordedVoters, SnapshotPlan, StoredSnapshot};

/// How many bytes the length of the voters takes.
const LENGTH_BYTES: usize = 4;

/// A snapshot: everything below its end, instead of the state that comes of it.
#[derive(Debug, Clone, PartialEq, Eq, Hash)]
pub(super) struct Snapshot {
    pub(super) id: SnapshotId,
    pub(super) content: Vec<Batch>,
    /// What it says of the voters.
    pub(super) voters: Option<RecordedVoters>,
}

impl Snapshot {
    /// The planned snapshot of a log.
    pub(super) fn of(log: &[Batch], plan: SnapshotPlan) -> Self {
        let end_offset = plan.id.end_offset;
        let below = log.iter().filter(|batch| batch.end_offset() <= end_offset);
        Self {
            id: plan.id,
            content: below.cloned().collect(),
            voters: plan.voters,
        }
    }

    pub(super) fn end(&self) -> Offset {
        self.id.end_offset
    }

    /// What the core is told of it.
    pub(super) fn stored(&self) -> StoredSnapshot {
        StoredSnapshot {
            id: self.id,
            size_bytes: self.bytes().len() as u64,
        }
    }

    /// A number that is equal for equal content.
    pub(super) fn digest(&self) -> u64 {
        let mut hasher = DefaultHasher::new();
        self.content.hash(&mut hasher);
        hasher.finish()
    }

    /// What is sent of it.
    pub(super) fn bytes(&self) -> Vec<u8> {
        let voters = self.voters.as_ref().map_or_else(Vec::new, |recorded| {
            let voters = recorded.voters.clone();
            ControlRecord::Voters { voters }.encode()
        });
        let mut bytes = (voters.len() as u32).to_be_bytes().to_vec();
        bytes.extend(voters);
        for batch in &self.content {
            bytes.extend_from_slice(batch.bytes());
        }
        bytes
    }

    /// The snapshot of which these are all the bytes.
    ///
    /// # Panics
    /// If they are none of a snapshot: nothing damages them here.
    pub(super) fn parse(id: SnapshotId, bytes: &[u8]) -> Self {
        let (length, rest) = bytes
            .split_first_chunk::<LENGTH_BYTES>()
            .expect("a snapshot begins with a length");
        let (voters, content) = rest.split_at(u32::from_be_bytes(*length) as usize);
        let voters = match ControlRecord::decode(voters) {
            Ok(ControlRecord::Voters { voters }) => Some(RecordedVoters {
                kraft_version: 1,
                voters,
            }),
            _ => None,
        };
        Self {
            id,
            content: Batch::parse_all(content).expect("a snapshot holds whole batches"),
            voters,
        }
    }
}

#[cfg(test)]
mod tests {
    use super::super::voters::first;
    use super::*;
    use node::ids::Epoch;

    #[test]
    fn bytes_hold_all_of_it() {
        let batch = |offset| Batch::build(Offset(offset), Epoch(1), 0, false, &["x", "y"]);
        let log = [batch(0), batch(2), batch(4)];
        for voters in [None, Some(first(3))] {
            let id = SnapshotId {
                end_offset: Offset(4),
                epoch: Epoch(1),
            };
            let snapshot = Snapshot::of(&log, SnapshotPlan { id, voters });
            assert_eq!(snapshot.content.len(), 2);
            assert_eq!(Snapshot::parse(id, &snapshot.bytes()), snapshot);
        }
    }
}
