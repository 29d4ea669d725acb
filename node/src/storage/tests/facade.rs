//! Owns the tests of what the node's loop uses: appending, reading, cutting, persisting.
//! Never looks at bytes on the disk.

use std::collections::BTreeSet;

use super::crash_disk::CrashDisk;
use super::{batch, identity, open, read_all};
use crate::ids::{Epoch, NodeId, Offset};
use crate::raft::{EpochStart, QuorumState};
use crate::storage::{DirectoryDisk, Disk, Storage, StorageError, StorageOptions, WriteBehindDisk};

fn bases(storage: &Storage<CrashDisk>, from: i64, max_bytes: u64) -> Vec<i64> {
    let batches = storage.read(Offset(from), max_bytes).unwrap();
    batches.iter().map(|batch| batch.base_offset().0).collect()
}

/// Batches at 0, 3, 6, ... of three records each.
fn filled(count: i64) -> (CrashDisk, Storage<CrashDisk>) {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    for at in 0..count {
        storage
            .append(&batch(at * 3, 1 + at as i32 / 4, 3, 100))
            .unwrap();
    }
    storage.sync().unwrap();
    (disk, storage)
}

#[test]
fn reads_return_whole_batches_from_memory_and_from_disk() {
    let (_, storage) = filled(20);
    let one = batch(0, 1, 3, 100).bytes().len() as u64;
    assert_eq!(bases(&storage, 0, 0), [0], "at least one");
    assert_eq!(bases(&storage, 0, 2 * one), [0, 3]);
    assert_eq!(bases(&storage, 0, 3 * one - 1), [0, 3]);
    assert_eq!(
        bases(&storage, 4, one),
        [3],
        "from the batch that holds the offset"
    );
    assert_eq!(bases(&storage, 5, 2 * one), [3, 6]);
    assert_eq!(bases(&storage, 54, u64::MAX), [54, 57]);
    assert_eq!(bases(&storage, 59, 1), [57]);
    assert_eq!(bases(&storage, 60, u64::MAX), [0; 0]);
    assert_eq!(bases(&storage, 99, u64::MAX), [0; 0]);
    for (at, found) in read_all(&storage).iter().enumerate() {
        let at = at as i64;
        assert_eq!(*found, batch(at * 3, 1 + at as i32 / 4, 3, 100));
    }
    assert!(matches!(
        storage.read(Offset(-1), 1),
        Err(StorageError::BelowLogStart { .. })
    ));
}

#[test]
fn an_opened_log_knows_its_epochs_and_its_state() {
    let (disk, mut storage) = filled(9);
    let state = QuorumState {
        epoch: Epoch(7),
        leader: Some(NodeId(2)),
        voted_for: Some(NodeId(3).into()),
    };
    storage.persist(state).unwrap();
    let (_, recovered) = open(&CrashDisk::from_image(&disk.durable_image())).unwrap();
    let start = |epoch, offset| EpochStart {
        epoch: Epoch(epoch),
        start_offset: Offset(offset),
    };
    assert_eq!(recovered.quorum_state, Some(state));
    assert_eq!(
        (recovered.log_start, recovered.log_end),
        (Offset(0), Offset(27))
    );
    assert_eq!(recovered.epochs, [start(1, 0), start(2, 12), start(3, 24)]);
    assert_eq!(recovered.truncated_bytes, 0);
}

#[test]
fn a_sync_without_appends_does_not_reach_the_disk() {
    let (disk, mut storage) = filled(2);
    let before = disk.journal().len();
    assert_eq!(storage.sync().unwrap(), Offset(6));
    assert_eq!(disk.journal().len(), before);
    storage.seal().unwrap();
    let sealed = disk.journal().len();
    assert_eq!(
        sealed,
        before + 6,
        "the seal, and the file that tells of it"
    );
    storage.seal().unwrap();
    storage.sync().unwrap();
    assert_eq!(disk.journal().len(), sealed);
    let (mut storage, _) = open(&disk).unwrap();
    let opened = disk.journal().len();
    storage.seal().unwrap();
    assert_eq!(
        disk.journal().len(),
        opened,
        "a sealed log is known as such"
    );
}

#[test]
fn persisting_does_not_make_batches_durable() {
    let (disk, mut storage) = filled(1);
    storage.append(&batch(3, 1, 1, 10)).unwrap();
    storage.persist(QuorumState::default()).unwrap();
    let (after, recovered) = open(&CrashDisk::from_image(&disk.durable_image())).unwrap();
    assert_eq!(recovered.quorum_state, Some(QuorumState::default()));
    assert_eq!(after.log_end(), Offset(3));
}

#[test]
fn what_was_cut_is_neither_read_nor_recovered() {
    for (log_end, cache_bytes) in (0..=60)
        .step_by(3)
        .flat_map(|end| [(end, 0), (end, 10_000)])
    {
        let disk = CrashDisk::default();
        let options = StorageOptions {
            cache_bytes,
            ..super::OPTIONS
        };
        let (mut storage, _) = Storage::open(disk.clone(), &identity(), options).unwrap();
        for at in 0..20 {
            storage.append(&batch(at * 3, 1, 3, 100)).unwrap();
        }
        storage.truncate(Offset(log_end)).unwrap();
        assert_eq!(storage.log_end(), Offset(log_end));
        assert_eq!(read_all(&storage).len() as i64, log_end / 3);
        for at in 0..3 {
            storage.append(&batch(log_end + at, 9, 1, 30)).unwrap();
        }
        storage.sync().unwrap();
        let found = read_all(&storage);
        for (at, found) in found.iter().enumerate() {
            let at = at as i64;
            let expected = match at - log_end / 3 {
                new @ 0.. => batch(log_end + new, 9, 1, 30),
                _ => batch(at * 3, 1, 3, 100),
            };
            assert_eq!(*found, expected, "cut to {log_end}");
        }
        assert_eq!(found.len() as i64, log_end / 3 + 3);
        let (after, _) = open(&CrashDisk::from_image(&disk.durable_image())).unwrap();
        assert_eq!(read_all(&after), found);
    }
}

#[test]
fn a_cut_takes_the_seal_with_it() {
    let (disk, mut storage) = filled(3);
    storage.seal().unwrap();
    storage.truncate(Offset(6)).unwrap();
    let before = disk.journal().len();
    storage.seal().unwrap();
    assert_eq!(disk.journal().len(), before + 2, "one write and one sync");
}

#[test]
#[should_panic(expected = "log end offset")]
fn an_append_that_leaves_a_gap_is_a_mistake() {
    let (_, mut storage) = filled(2);
    let _ = storage.append(&batch(7, 2, 1, 1));
}

#[test]
#[should_panic(expected = "after epoch")]
fn an_append_of_an_older_epoch_is_a_mistake() {
    let (_, mut storage) = filled(2);
    let _ = storage.append(&batch(6, 0, 1, 1));
}

#[test]
fn after_a_failed_sync_nothing_is_written_any_more() {
    let (disk, mut storage) = filled(1);
    storage.append(&batch(3, 1, 1, 10)).unwrap();
    disk.crash_after(0);
    let error = storage.sync().unwrap_err();
    assert!(error.is_fatal(), "{error}");
    disk.crash_after(usize::MAX);
    let before = disk.journal().len();
    assert!(matches!(storage.sync(), Err(StorageError::Stopped)));
    assert!(matches!(
        storage.persist(QuorumState::default()),
        Err(StorageError::Stopped)
    ));
    assert!(matches!(
        storage.append(&batch(4, 1, 1, 10)),
        Err(StorageError::Stopped)
    ));
    assert_eq!(disk.journal().len(), before);
}

#[test]
fn a_batch_that_rots_while_the_node_runs_is_not_served() {
    let (mut disk, storage) = filled(20);
    let file = disk.list().unwrap().remove(0);
    let mut bytes = disk.read(&file, 0, usize::MAX).unwrap();
    bytes[100] ^= 1;
    disk.write(&file, &bytes).unwrap();
    let error = storage.read(Offset(0), 1).unwrap_err();
    assert!(error.is_fatal(), "{error}");
    assert!(matches!(error, StorageError::Damaged { .. }), "{error}");
}

#[test]
fn a_killed_process_on_a_write_behind_disk_keeps_what_was_synced() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let disk: Box<dyn Disk> =
            Box::new(WriteBehindDisk::new(DirectoryDisk::open(directory.path()).unwrap()).unwrap());
        Storage::open(disk, &identity(), super::OPTIONS).unwrap()
    };
    let (mut storage, recovered) = open();
    assert_eq!(recovered, crate::raft::Recovered::default());
    storage.append(&batch(0, 1, 2, 10)).unwrap();
    storage.sync().unwrap();
    storage.append(&batch(2, 1, 1, 10)).unwrap();
    assert_eq!(storage.read(Offset(0), 1000).unwrap().len(), 2);
    drop(storage);
    let (storage, recovered) = open();
    assert_eq!(recovered.log_end, Offset(2));
    assert_eq!(recovered.truncated_bytes, 0);
    assert_eq!(storage.read(Offset(0), 1000).unwrap(), [batch(0, 1, 2, 10)]);
}

fn three_voters() -> BTreeSet<NodeId> {
    [1, 2, 3].map(NodeId).into()
}

#[test]
fn configured_voters_are_noted_with_the_first_state_and_kept_by_every_later_one() {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    let before = disk.journal().len();
    storage.note_voters(three_voters(), None).unwrap();
    assert_eq!(disk.journal().len(), before, "there is no file yet");
    for epoch in 1..=3 {
        let state = QuorumState {
            epoch: Epoch(epoch),
            ..QuorumState::default()
        };
        storage.persist(state).unwrap();
        let (again, recovered) = open(&CrashDisk::from_image(&disk.durable_image())).unwrap();
        assert_eq!(recovered.quorum_state, Some(state));
        assert_eq!(again.configured_voters(), Some(&three_voters()));
    }
}

#[test]
fn a_directory_that_does_not_name_its_voters_is_told_of_them_once() {
    let (disk, mut storage) = filled(2);
    let state = QuorumState {
        epoch: Epoch(7),
        leader: Some(NodeId(2)),
        voted_for: Some(NodeId(3).into()),
    };
    storage.persist(state).unwrap();
    let (mut storage, recovered) = open(&disk).unwrap();
    assert_eq!(storage.configured_voters(), None);
    let voters = three_voters();
    storage
        .note_voters(voters.clone(), recovered.quorum_state)
        .unwrap();
    let (mut storage, recovered) = open(&CrashDisk::from_image(&disk.durable_image())).unwrap();
    assert_eq!(recovered.quorum_state, Some(state));
    assert_eq!(storage.configured_voters(), Some(&voters));
    let before = disk.journal().len();
    storage.note_voters(voters, recovered.quorum_state).unwrap();
    assert_eq!(disk.journal().len(), before, "they are there already");
}

#[test]
#[should_panic(expected = "inside the batch of offsets 3 to 5 of epoch 1")]
fn a_cut_inside_a_batch_names_it_and_what_it_means() {
    let (_, mut storage) = filled(2);
    let _ = storage.truncate(Offset(4));
}

#[test]
fn a_cut_that_cannot_be_made_changes_nothing() {
    let (disk, mut storage) = filled(2);
    storage.seal().unwrap();
    let before = disk.durable_image();
    let cut = std::panic::AssertUnwindSafe(|| storage.truncate(Offset(4)));
    assert!(std::panic::catch_unwind(cut).is_err());
    assert_eq!(disk.durable_image(), before);
}
