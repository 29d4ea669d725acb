//! Owns the tests of storage as a whole: crash points, damage, conformance of the disks.
//! Never leaves anything on the real disk.

mod conformance;
mod crash_disk;
mod crash_points;
mod damage;
mod facade;
mod formatting;
mod script;
mod seeded;
mod snapshot_damage;
mod snapshots;
mod witness;

use std::collections::BTreeMap;

use super::{Disk, Identity, OpenError, Storage, StorageOptions};
use crate::batch::Batch;
use crate::ids::{Epoch, NodeId, Offset};
use crate::raft::Recovered;
use crash_disk::CrashDisk;

/// File names with their contents.
type Image = BTreeMap<String, Vec<u8>>;

const OPTIONS: StorageOptions = StorageOptions {
    segment_bytes: 2000,
    cache_bytes: 500,
    verify_checksums: true,
    require_quorum_state: false,
    sync_snapshots: true,
    accept_parts: false,
};

fn identity() -> Identity {
    Identity {
        cluster_id: "test".to_owned(),
        node_id: NodeId(1),
    }
}

/// A batch of `record_count` records of `record_bytes`, each byte telling which offset it belongs
/// to.
fn batch(base_offset: i64, epoch: i32, record_count: usize, record_bytes: usize) -> Batch {
    let records: Vec<Vec<u8>> = (0..record_count)
        .map(|at| vec![(base_offset as usize + at) as u8 | 0x80; record_bytes])
        .collect();
    Batch::build(Offset(base_offset), Epoch(epoch), 0, false, &records)
}

fn open(disk: &CrashDisk) -> Result<(Storage<CrashDisk>, Recovered), OpenError> {
    Storage::open(disk.clone(), &identity(), OPTIONS)
}

fn read_all<D: Disk>(storage: &Storage<D>) -> Vec<Batch> {
    storage.read(storage.log_start(), u64::MAX).unwrap()
}

/// Fails unless what was written is refused with any one bit turned over, and with any end cut off.
pub(super) fn notices_all_damage<T, E>(written: &[u8], decode: impl Fn(&[u8]) -> Result<T, E>) {
    for bit in 0..written.len() * 8 {
        let mut damaged = written.to_vec();
        damaged[bit / 8] ^= 1 << (bit % 8);
        assert!(decode(&damaged).is_err(), "bit {bit} went unnoticed");
    }
    for length in 0..written.len() {
        assert!(decode(&written[..length]).is_err(), "length {length}");
    }
}
