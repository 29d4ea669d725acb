//! Owns the scenarios of the seeded bugs in storage.
//! Never runs a schedule with the bug only: each one is also shown to go well without it.

use super::crash_disk::CrashDisk;
use super::{OPTIONS, batch, identity, open};
use crate::ids::{Epoch, NodeId, Offset};
use crate::raft::QuorumState;
use crate::storage::{Storage, StorageOptions};

fn voted(epoch: i32, candidate: i32) -> QuorumState {
    QuorumState {
        epoch: Epoch(epoch),
        leader: None,
        voted_for: Some(NodeId(candidate).into()),
    }
}

/// Bug B60. The last sector of the last batch never reached the disk.
#[test]
fn a_torn_batch_is_taken_for_a_sound_one_if_checksums_do_not_count() {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    storage.append(&batch(0, 1, 1, 100)).unwrap();
    storage.append(&batch(1, 1, 1, 1_000)).unwrap();
    storage.sync().unwrap();
    let mut image = disk.durable_image();
    let (_, log) = image
        .iter_mut()
        .find(|(name, _)| name.ends_with(".log"))
        .unwrap();
    let torn_from = log.len() - 200;
    log[torn_from..].fill(0);
    let recovered_end = |verify_checksums: bool| {
        let options = StorageOptions {
            verify_checksums,
            ..OPTIONS
        };
        let disk = CrashDisk::from_image(&image);
        let (storage, recovered) = Storage::open(disk, &identity(), options).unwrap();
        (recovered.log_end, storage.read(Offset(0), u64::MAX).is_ok())
    };
    assert_eq!(recovered_end(true), (Offset(1), true));
    assert_eq!(recovered_end(false), (Offset(2), false), "reading it fails");
}

/// Bug B02. Power is cut at every point of persisting the vote of a later epoch.
#[test]
fn a_vote_of_a_later_epoch_shows_up_in_the_old_one_if_the_epoch_follows() {
    let states_found = |in_two_writes: bool| {
        let mut states = Vec::new();
        for count in 0.. {
            let disk = CrashDisk::default();
            let (mut storage, _) = open(&disk).unwrap();
            storage.persist(voted(4, 2)).unwrap();
            disk.crash_after(count);
            let outcome = if in_two_writes {
                storage.persist_in_two_writes(voted(5, 3))
            } else {
                storage.persist(voted(5, 3))
            };
            let after_crash = CrashDisk::from_image(&disk.durable_image());
            let (_, recovered) = open(&after_crash).unwrap();
            states.push(recovered.quorum_state.unwrap());
            if outcome.is_ok() {
                break;
            }
        }
        states.dedup();
        states
    };
    assert_eq!(states_found(false), [voted(4, 2), voted(5, 3)]);
    assert_eq!(
        states_found(true),
        [voted(4, 2), voted(4, 3), voted(5, 3)],
        "two votes in epoch 4"
    );
}
