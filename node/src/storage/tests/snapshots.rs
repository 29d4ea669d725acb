//! Owns the tests of what snapshots and the log start are used for, without crashes and damage.
//! Never looks at bytes on the disk; see `snapshot_damage` for that.

use super::crash_disk::CrashDisk;
use super::script::{bytes_of, fetch_snapshot, header_of, records_of, snapshot, take_snapshot};
use super::{batch, identity, open, read_all};
use crate::batch::Batch;
use crate::control_record::ControlRecord;
use crate::ids::{DirectoryId, Epoch, NodeId, Offset, SnapshotId};
use crate::raft::{EpochStart, RecordedVoters};
use crate::storage::{
    DirectoryDisk, Disk, SnapshotHeader, Storage, StorageError, StorageOptions, WriteBehindDisk,
};

/// Batches at 0, 1, 2, ... of epochs 1, 1, 1, 2, 2, 2, ..., three to a segment.
fn filled(count: i64) -> (CrashDisk, Storage<CrashDisk>) {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    for offset in 0..count {
        let epoch = 1 + offset as i32 / 3;
        storage.append(&batch(offset, epoch, 1, 560)).unwrap();
    }
    storage.sync().unwrap();
    (disk, storage)
}

fn ids<D: Disk>(storage: &Storage<D>) -> Vec<SnapshotId> {
    storage.snapshots().map(|found| found.id).collect()
}

fn records<D: Disk>(storage: &Storage<D>, id: SnapshotId) -> Vec<Vec<u8>> {
    let mut reader = storage.read_snapshot(id).unwrap();
    let mut records = Vec::new();
    while let Some(batch) = reader.next_batch().unwrap() {
        records.extend(batch.records().map(|(_, bytes)| bytes.to_vec()));
    }
    records
}

fn reopened(disk: &CrashDisk) -> Storage<CrashDisk> {
    open(&CrashDisk::from_image(&disk.durable_image()))
        .unwrap()
        .0
}

#[test]
fn a_snapshot_is_read_as_it_was_written() {
    let (disk, mut storage) = filled(5);
    let (id, empty) = (snapshot(2, 1), snapshot(4, 2));
    take_snapshot(&mut storage, id).unwrap();
    let writer = storage
        .begin_snapshot(empty, SnapshotHeader::default())
        .unwrap();
    storage.freeze_snapshot(writer.unwrap()).unwrap();
    for storage in [&storage, &reopened(&disk)] {
        assert_eq!(ids(storage), [id, empty]);
        assert_eq!(records(storage, id), records_of(id));
        assert_eq!(
            storage.read_snapshot(id).unwrap().header(),
            &storage.snapshots().next().unwrap().header
        );
        assert_eq!(records(storage, empty), [[0; 0]; 0]);
        let latest = storage.latest_snapshot().unwrap();
        assert_eq!(
            (latest.id, &latest.header),
            (empty, &SnapshotHeader::default())
        );
        assert_eq!(storage.log_start(), Offset(0), "the log keeps its start");
        assert!(matches!(
            storage.read_snapshot(snapshot(3, 1)),
            Err(StorageError::NoSuchSnapshot { .. })
        ));
    }
}

#[test]
fn the_file_does_not_depend_on_how_records_are_handed_over() {
    let many: Vec<Vec<u8>> = (0..900_u32)
        .map(|at| at.to_be_bytes().repeat(at as usize))
        .collect();
    let id = snapshot(2, 1);
    let bytes_if_in_pieces_of = |count: usize| {
        let (_, mut storage) = filled(3);
        let mut writer = storage.begin_snapshot(id, header_of(id)).unwrap().unwrap();
        for piece in many.chunks(count) {
            storage.append_snapshot(&mut writer, piece).unwrap();
        }
        storage.freeze_snapshot(writer).unwrap();
        assert_eq!(records(&storage, id), many);
        let mut reader = storage.read_snapshot(id).unwrap();
        let batch_count = std::iter::from_fn(|| reader.next_batch().unwrap()).count();
        assert!(batch_count > 3, "only {batch_count} batches");
        storage.read_snapshot_bytes(id, 0, usize::MAX).unwrap()
    };
    let whole = bytes_if_in_pieces_of(900);
    for count in [1, 7, 333] {
        assert!(
            bytes_if_in_pieces_of(count) == whole,
            "in pieces of {count}"
        );
    }
}

#[test]
fn a_snapshot_ends_with_a_batch_of_the_log() {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    storage.append(&batch(0, 1, 3, 50)).unwrap();
    storage.append(&batch(3, 2, 2, 50)).unwrap();
    for id in [
        snapshot(2, 1),
        snapshot(3, 2),
        snapshot(4, 2),
        snapshot(6, 2),
    ] {
        let error = storage.begin_snapshot(id, header_of(id)).unwrap_err();
        assert!(matches!(error, StorageError::SnapshotId { .. }), "{error}");
        assert!(!error.is_fatal(), "{error}");
    }
    let error = storage
        .begin_snapshot(SnapshotId::BOOTSTRAP, SnapshotHeader::default())
        .unwrap_err();
    assert!(matches!(error, StorageError::SnapshotId { .. }), "{error}");
    take_snapshot(&mut storage, snapshot(3, 1)).unwrap();
    take_snapshot(&mut storage, snapshot(5, 2)).unwrap();
    let again = storage.begin_snapshot(snapshot(3, 1), SnapshotHeader::default());
    assert!(again.unwrap().is_none(), "it is there already");
    storage.advance_log_start(Offset(5)).unwrap();
    let before = storage.begin_snapshot(snapshot(3, 1), SnapshotHeader::default());
    assert!(before.unwrap().is_none(), "it is not needed any more");
}

#[test]
fn a_follower_gets_the_same_file_in_pieces_of_any_size() {
    let (_, mut leader) = filled(5);
    let id = snapshot(5, 2);
    take_snapshot(&mut leader, id).unwrap();
    let size_bytes = leader.latest_snapshot().unwrap().size_bytes;
    for max_bytes in [1, 100, 10_000] {
        let disk = CrashDisk::default();
        let (mut follower, _) = open(&disk).unwrap();
        let mut download = follower.begin_download(id).unwrap().unwrap();
        while download.length_bytes() < size_bytes {
            let position = download.length_bytes();
            let piece = leader.read_snapshot_bytes(id, position, max_bytes).unwrap();
            follower
                .append_download(&mut download, position, &piece)
                .unwrap();
        }
        let end = leader.read_snapshot_bytes(id, size_bytes, max_bytes);
        assert_eq!(end.unwrap(), [0; 0]);
        follower.freeze_download(download).unwrap();
        assert_eq!(records(&follower, id), records_of(id));
        assert!(follower.begin_download(id).unwrap().is_none());
        follower.reset_to(id).unwrap();
        assert_eq!(
            (follower.log_start(), follower.log_end()),
            (Offset(5), Offset(5))
        );
    }
}

#[test]
fn a_piece_for_another_position_changes_nothing() {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    let id = snapshot(9, 2);
    let bytes = bytes_of(id);
    let mut download = storage.begin_download(id).unwrap().unwrap();
    storage
        .append_download(&mut download, 0, &bytes[..10])
        .unwrap();
    for position in [0, 9, 11] {
        let error = storage
            .append_download(&mut download, position, &bytes[10..])
            .unwrap_err();
        assert!(
            matches!(error, StorageError::DownloadPosition { .. }) && !error.is_fatal(),
            "{error}"
        );
    }
    storage
        .append_download(&mut download, 10, &bytes[10..])
        .unwrap();
    storage.freeze_download(download).unwrap();
}

#[test]
fn only_whole_and_sound_downloads_become_snapshots() {
    let id = snapshot(9, 2);
    let bytes = bytes_of(id);
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    let mut wrong: Vec<Vec<u8>> = (0..bytes.len()).map(|end| bytes[..end].to_vec()).collect();
    wrong.extend((0..bytes.len()).map(|at| {
        let mut flipped = bytes.clone();
        flipped[at] ^= 4;
        flipped
    }));
    wrong.push([&bytes[..], &bytes].concat());
    wrong.push([&bytes[..], b"x"].concat());
    wrong.push(bytes_of(snapshot(9, 3)));
    for (at, wrong) in wrong.iter().enumerate() {
        let mut download = storage.begin_download(id).unwrap().unwrap();
        storage.append_download(&mut download, 0, wrong).unwrap();
        let error = storage.freeze_download(download).unwrap_err();
        assert!(
            matches!(error, StorageError::DownloadDamaged { .. }) && !error.is_fatal(),
            "{at}: {error}"
        );
        assert_eq!(ids(&storage), []);
        assert!(
            !disk
                .list()
                .unwrap()
                .iter()
                .any(|name| name.contains(".part"))
        );
    }
    fetch_snapshot(&mut storage, id).unwrap();
    assert_eq!(ids(&storage), [id]);
}

#[test]
fn what_is_given_up_leaves_nothing() {
    let (disk, mut storage) = filled(4);
    let before = disk.list().unwrap();
    let id = snapshot(3, 1);
    let mut writer = storage.begin_snapshot(id, header_of(id)).unwrap().unwrap();
    storage
        .append_snapshot(&mut writer, &records_of(id))
        .unwrap();
    let mut download = storage.begin_download(id).unwrap().unwrap();
    storage.append_download(&mut download, 0, b"half").unwrap();
    assert_eq!(disk.list().unwrap().len(), before.len() + 2);
    storage.abandon_snapshot(writer).unwrap();
    storage.abandon_download(download).unwrap();
    assert_eq!(disk.list().unwrap(), before);
    take_snapshot(&mut storage, id).unwrap();
}

#[test]
fn a_log_can_start_at_the_end_of_any_snapshot() {
    for start in 1..=9 {
        let (disk, mut storage) = filled(9);
        let whole_bytes = storage.log_bytes();
        let id = |end: i64| snapshot(end, 1 + (end as i32 - 1) / 3);
        for end in 1..=9 {
            take_snapshot(&mut storage, id(end)).unwrap();
        }
        storage.advance_log_start(Offset(start)).unwrap();
        let segment_count = disk
            .list()
            .unwrap()
            .iter()
            .filter(|name| name.ends_with(".log"))
            .count();
        assert_eq!(segment_count as i64, 3 - (start / 3).min(2), "from {start}");
        assert_eq!(storage.log_bytes() < whole_bytes, start >= 3);
        storage.append(&batch(9, 4, 1, 10)).unwrap();
        storage.sync().unwrap();
        for storage in [&storage, &reopened(&disk)] {
            assert_eq!(storage.log_start_snapshot(), id(start));
            assert_eq!(ids(storage), (start..=9).map(id).collect::<Vec<_>>());
            let found = read_all(storage);
            assert_eq!(found.len() as i64, 10 - start);
            assert_eq!(found[0].base_offset(), Offset(start));
            let error = storage.read(Offset(start - 1), 1).unwrap_err();
            assert!(
                matches!(error, StorageError::BelowLogStart { .. }),
                "{error}"
            );
        }
        let (_, recovered) = open(&CrashDisk::from_image(&disk.durable_image())).unwrap();
        let first = recovered.epochs[0];
        assert_eq!(
            first,
            EpochStart {
                epoch: Epoch(1 + start as i32 / 3),
                start_offset: Offset(start)
            }
        );
    }
}

#[test]
fn a_log_starts_only_where_a_snapshot_ends() {
    let (_, mut storage) = filled(6);
    take_snapshot(&mut storage, snapshot(4, 2)).unwrap();
    let error = storage.advance_log_start(Offset(5)).unwrap_err();
    assert!(
        matches!(error, StorageError::NoSnapshotEndsAt { .. }) && !error.is_fatal(),
        "{error}"
    );
    storage.advance_log_start(Offset(4)).unwrap();
    storage.advance_log_start(Offset(2)).unwrap();
    assert_eq!(storage.log_start(), Offset(4), "a log never starts earlier");
}

#[test]
fn a_log_that_was_dropped_goes_on_from_the_snapshot() {
    let (disk, mut storage) = filled(7);
    take_snapshot(&mut storage, snapshot(2, 1)).unwrap();
    let id = snapshot(50, 8);
    fetch_snapshot(&mut storage, id).unwrap();
    assert_eq!(storage.log_end(), Offset(7), "not before it is told");
    storage.reset_to(id).unwrap();
    for storage in [&storage, &reopened(&disk)] {
        assert_eq!(
            (storage.log_start_snapshot(), storage.log_end()),
            (id, Offset(50))
        );
        assert_eq!((ids(storage), storage.log_bytes()), (vec![id], 0));
        assert_eq!(read_all(storage), []);
    }
    storage.append(&batch(50, 8, 1, 30)).unwrap();
    storage.append(&batch(51, 9, 1, 30)).unwrap();
    storage.sync().unwrap();
    storage.truncate(Offset(50)).unwrap();
    storage.append(&batch(50, 10, 1, 30)).unwrap();
    storage.seal().unwrap();
    assert_eq!(read_all(&reopened(&disk)), [batch(50, 10, 1, 30)]);
}

#[test]
#[should_panic(expected = "after epoch 8")]
fn an_empty_log_has_the_epoch_of_its_snapshot() {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    fetch_snapshot(&mut storage, snapshot(50, 8)).unwrap();
    // The crash comes before the log is dropped.
    drop(storage);
    let mut storage = reopened(&disk);
    let _ = storage.append(&batch(50, 7, 1, 30));
}

#[test]
fn snapshots_between_log_start_and_end_can_be_deleted() {
    let (disk, mut storage) = filled(6);
    for id in [snapshot(2, 1), snapshot(4, 2), snapshot(6, 2)] {
        take_snapshot(&mut storage, id).unwrap();
    }
    storage.advance_log_start(Offset(2)).unwrap();
    storage.delete_snapshot(snapshot(4, 2)).unwrap();
    for storage in [&storage, &reopened(&disk)] {
        assert_eq!(ids(storage), [snapshot(2, 1), snapshot(6, 2)]);
    }
    let error = storage.delete_snapshot(snapshot(4, 2)).unwrap_err();
    assert!(!error.is_fatal(), "{error}");
}

#[test]
#[should_panic(expected = "is needed")]
fn the_snapshot_that_the_log_starts_with_cannot_be_deleted() {
    let (_, mut storage) = filled(6);
    take_snapshot(&mut storage, snapshot(2, 1)).unwrap();
    storage.advance_log_start(Offset(2)).unwrap();
    let _ = storage.delete_snapshot(snapshot(2, 1));
}

#[test]
fn changes_of_voters_are_found_in_what_is_left_of_the_log() {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    let voters = |ids: &[i32]| ControlRecord::Voters {
        voters: ids.iter().copied().map(NodeId).collect(),
    };
    let leader_change = ControlRecord::LeaderChange {
        leader: NodeId(1),
        voters: vec![NodeId(1)],
        granting_voters: vec![NodeId(1)],
    };
    let version = ControlRecord::KraftVersion { version: 1 };
    let control = |offset: i64, records: &[ControlRecord]| {
        let records: Vec<_> = records.iter().map(ControlRecord::encode).collect();
        Batch::build(Offset(offset), Epoch(1), 0, true, &records)
    };
    for batch in [
        control(0, &[leader_change, version.clone(), voters(&[1])]),
        batch(3, 1, 1, 10),
        control(4, &[voters(&[1, 2])]),
        batch(5, 1, 1, 10),
    ] {
        storage.append(&batch).unwrap();
    }
    storage.sync().unwrap();
    let later = (Offset(4), voters(&[1, 2]));
    let all = [
        (Offset(1), version),
        (Offset(2), voters(&[1])),
        later.clone(),
    ];
    assert_eq!(storage.voter_records().unwrap(), all);
    assert_eq!(reopened(&disk).voter_records().unwrap(), all);
    take_snapshot(&mut storage, snapshot(4, 1)).unwrap();
    storage.advance_log_start(Offset(4)).unwrap();
    assert_eq!(reopened(&disk).voter_records().unwrap(), [later]);
    storage.truncate(Offset(4)).unwrap();
    assert_eq!(storage.voter_records().unwrap(), []);
}

#[test]
fn a_directory_gets_an_id_once() {
    let disk = CrashDisk::default();
    let open_with = |id: Option<u128>| {
        let id = id.map(DirectoryId);
        let opened = Storage::open_with_directory_id(disk.clone(), &identity(), id, super::OPTIONS);
        opened.unwrap().0.directory_id()
    };
    assert_eq!(open_with(None), None);
    assert_eq!(open_with(Some(4)), Some(DirectoryId(4)));
    assert_eq!(open_with(Some(5)), Some(DirectoryId(4)));
    assert_eq!(open_with(None), Some(DirectoryId(4)));
    assert_eq!(disk.durable_image(), disk.visible_image());
}

#[test]
fn a_killed_process_on_a_write_behind_disk_keeps_complete_snapshots_only() {
    let directory = tempfile::tempdir().unwrap();
    let open = || {
        let disk = WriteBehindDisk::new(DirectoryDisk::open(directory.path()).unwrap()).unwrap();
        let options = super::OPTIONS;
        Storage::open(disk, &identity(), options).unwrap().0
    };
    let mut storage = open();
    for offset in 0..4 {
        storage.append(&batch(offset, 1, 1, 100)).unwrap();
    }
    storage.sync().unwrap();
    take_snapshot(&mut storage, snapshot(2, 1)).unwrap();
    storage.advance_log_start(Offset(2)).unwrap();
    let id = snapshot(3, 1);
    let mut writer = storage.begin_snapshot(id, header_of(id)).unwrap().unwrap();
    storage
        .append_snapshot(&mut writer, &records_of(id))
        .unwrap();
    drop((writer, storage));
    let storage = open();
    assert_eq!(ids(&storage), [snapshot(2, 1)]);
    assert_eq!(
        records(&storage, snapshot(2, 1)),
        records_of(snapshot(2, 1))
    );
    assert_eq!(
        (storage.log_start(), storage.log_end()),
        (Offset(2), Offset(4))
    );
}

#[test]
#[should_panic(expected = "no voters to store")]
fn voters_of_a_configuration_are_not_stored() {
    let (_, mut storage) = filled(3);
    let voters = Some(RecordedVoters {
        kraft_version: 0,
        voters: [NodeId(1)].into_iter().collect(),
    });
    let header = SnapshotHeader {
        last_contained_timestamp_ms: 0,
        voters,
    };
    let _ = storage.begin_snapshot(snapshot(3, 1), header);
}

/// How often the file of a snapshot of 5 MiB, written in pieces, was made durable before its last piece.
fn early_sync_count(sync_snapshots: bool) -> usize {
    let disk = CrashDisk::default();
    let options = StorageOptions {
        sync_snapshots,
        ..super::OPTIONS
    };
    let (mut storage, _) = Storage::open(disk.clone(), &identity(), options).unwrap();
    storage.append(&batch(0, 1, 1, 50)).unwrap();
    storage.sync().unwrap();
    let id = snapshot(1, 1);
    let mut writer = storage.begin_snapshot(id, header_of(id)).unwrap().unwrap();
    for _ in 0..20 {
        let records = vec![vec![7; 64 * 1024]; 4];
        storage.append_snapshot(&mut writer, &records).unwrap();
    }
    let journal = disk.journal();
    let is_sync = |entry: &&String| entry.contains("sync") && entry.contains(".part");
    let count = journal.iter().filter(is_sync).count();
    storage.freeze_snapshot(writer).unwrap();
    assert_eq!(records(&storage, id).len(), 80);
    count
}

#[test]
fn a_large_snapshot_becomes_durable_piece_by_piece() {
    assert_eq!(early_sync_count(true), 2);
    assert_eq!(early_sync_count(false), 0, "the mistake stays one");
}
