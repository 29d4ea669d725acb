//! Owns the tests of starting with snapshots that are damaged, gone, or do not fit to the log.
//! Never simulates a crash; see `crash_points` for that.

use super::crash_disk::CrashDisk;
use super::damage::{flipped, refused, with};
use super::script::{bytes_of, fetch_snapshot, snapshot, take_snapshot};
use super::{Image, batch, open, read_all};
use crate::batch::Batch;
use crate::ids::{Offset, SnapshotId};
use crate::storage::OpenError;
use crate::storage::checkpoint::file_name;
use crate::storage::dump::{Dump, Item, segment_base_offset};
use crate::storage::segment;

/// A log of 3..9 in segments from 3 and 6, with snapshots at 4 and 8, starting at 4.
fn compacted() -> Image {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    for offset in 0..9 {
        let epoch = 1 + offset as i32 / 5;
        storage.append(&batch(offset, epoch, 1, 560)).unwrap();
    }
    storage.sync().unwrap();
    for id in IDS {
        take_snapshot(&mut storage, id).unwrap();
    }
    storage.advance_log_start(Offset(4)).unwrap();
    storage.seal().unwrap();
    disk.durable_image()
}

const IDS: [SnapshotId; 2] = [snapshot(4, 1), snapshot(8, 2)];

fn without(image: &Image, file: &str) -> Image {
    let mut image = image.clone();
    image.remove(file).unwrap();
    image
}

fn is_missing(error: &OpenError, file: &str) {
    assert!(
        matches!(error, OpenError::Missing { file: missing, .. } if missing == file),
        "{error}"
    );
}

#[test]
fn a_damaged_snapshot_is_refused() {
    let image = compacted();
    for file in IDS.map(file_name) {
        let bytes = &image[&file];
        for at in 0..bytes.len() {
            let error = refused(&flipped(&image, &file, at), &format!("{file} byte {at}"));
            let OpenError::Damaged {
                file: damaged,
                position_bytes,
                ..
            } = error
            else {
                panic!("byte {at}: {error}");
            };
            assert_eq!(damaged, file);
            assert!(position_bytes <= at as u64, "byte {at}: {position_bytes}");
        }
        for end in 0..bytes.len() {
            let cut = with(&image, &file, bytes[..end].to_vec());
            refused(&cut, &format!("{file} cut at {end}"));
        }
        let longer = with(&image, &file, [&bytes[..], &[0]].concat());
        let text = refused(&longer, "longer").to_string();
        assert!(text.contains("1 bytes after the snapshot footer"), "{text}");
    }
}

#[test]
fn the_content_of_another_snapshot_is_refused() {
    let image = compacted();
    let swapped = with(
        &image,
        &file_name(IDS[0]),
        image[&file_name(IDS[1])].clone(),
    );
    let text = refused(&swapped, "swapped").to_string();
    assert!(text.contains("a sound batch of epoch 2"), "{text}");
}

#[test]
fn a_log_start_without_its_snapshot_is_refused() {
    let image = compacted();
    let file = file_name(IDS[0]);
    let error = refused(&without(&image, &file), "no snapshot");
    is_missing(&error, &file);
    assert!(error.to_string().contains("KAFKA-14240"), "{error}");
    // One that only the next start would have removed, or the node would have replaced, may go.
    let (storage, _) = open(&CrashDisk::from_image(&without(&image, &file_name(IDS[1])))).unwrap();
    assert_eq!(read_all(&storage).len(), 5);
}

#[test]
fn a_lost_or_damaged_log_start_is_refused() {
    let image = compacted();
    let error = refused(&without(&image, "log-start"), "no log-start");
    is_missing(&error, &segment::file_name(Offset(0)));
    for at in 0..image["log-start"].len() {
        refused(&flipped(&image, "log-start", at), &format!("byte {at}"));
    }
}

#[test]
fn a_lost_segment_at_or_after_the_log_start_is_refused() {
    let image = compacted();
    let segments: Vec<_> = image.keys().filter(|name| name.ends_with(".log")).collect();
    assert_eq!(segments.len(), 2, "{segments:?}");
    let error = refused(&without(&image, segments[0]), "first");
    is_missing(&error, &segment::file_name(Offset(4)));
    let error = refused(&without(&image, segments[1]), "second");
    is_missing(&error, segments[1]);
}

#[test]
fn leftovers_before_the_log_start_do_not_matter_whatever_is_in_them() {
    let mut image = compacted();
    for file in [
        segment::file_name(Offset(0)),
        segment::file_name(Offset(2)),
        file_name(SnapshotId::BOOTSTRAP),
        file_name(snapshot(2, 1)),
        file_name(snapshot(7, 2)) + ".part",
        file_name(snapshot(20, 2)) + ".fetched.part",
        "log-start.tmp".to_owned(),
    ] {
        image.insert(file, b"rubbish".to_vec());
    }
    let disk = CrashDisk::from_image(&image);
    let (storage, _) = open(&disk).unwrap();
    assert_eq!(read_all(&storage).len(), 5);
    assert_eq!(disk.durable_image(), compacted());
}

#[test]
fn a_snapshot_that_contradicts_a_log_that_goes_on_is_refused() {
    let image = compacted();
    for (id, what) in [(snapshot(7, 1), "epoch"), (snapshot(5, 2), "epoch")] {
        let image = with(&image, &file_name(id), bytes_of(id));
        let error = refused(&image, what);
        assert!(matches!(error, OpenError::Damaged { .. }), "{error}");
        assert!(error.to_string().contains(what), "{error}");
    }
    // Two of the same end.
    let id = snapshot(8, 3);
    let error = refused(&with(&image, &file_name(id), bytes_of(id)), "same end");
    assert!(error.to_string().contains("can follow"), "{error}");
}

#[test]
fn a_log_that_does_not_reach_its_newest_snapshot_is_dropped() {
    let image = compacted();
    for id in [snapshot(10, 2), snapshot(9, 5)] {
        let disk = CrashDisk::from_image(&with(&image, &file_name(id), bytes_of(id)));
        let (storage, recovered) = open(&disk).unwrap();
        assert_eq!(storage.log_start_snapshot(), id);
        assert_eq!(
            (recovered.log_start, recovered.log_end),
            (id.end_offset, id.end_offset)
        );
        assert_eq!(recovered.epochs, []);
        assert_eq!(storage.snapshots().count(), 1);
    }
}

#[test]
fn a_flipped_byte_in_a_log_that_does_not_start_at_0_is_refused() {
    let image = compacted();
    let segments: Vec<_> = image.keys().filter(|name| name.ends_with(".log")).collect();
    // All but the seal at the end.
    let sealed_bytes = image[segments[1]].len() - crate::storage::frame::FRAME_BYTES;
    for (file, length_bytes) in [
        (segments[0], image[segments[0]].len()),
        (segments[1], sealed_bytes),
    ] {
        for at in 0..length_bytes {
            refused(&flipped(&image, file, at), &format!("{file} byte {at}"));
        }
    }
}

fn dumped(image: &Image, log_start: i64) -> Vec<Item> {
    let segments: Vec<_> = image
        .iter()
        .filter_map(|(name, bytes)| Some((segment_base_offset(name)?, bytes)))
        .collect();
    let mut dump = Dump::of_log_starting_at(Offset(log_start));
    let mut items = Vec::new();
    for (at, (base_offset, bytes)) in segments.iter().enumerate() {
        let is_last = at + 1 == segments.len();
        dump.segment(*base_offset, bytes, is_last, &mut |item| items.push(item));
    }
    items
}

#[test]
fn a_log_that_does_not_start_at_0_is_shown_without_complaint() {
    let image = compacted();
    let items = dumped(&image, 4);
    assert!(!items.iter().any(Item::is_damage));
    let batches: Vec<&Batch> = items
        .iter()
        .filter_map(|item| match item {
            Item::Batch { batch, .. } => Some(batch),
            _ => None,
        })
        .collect();
    assert_eq!(batches.len(), 6);
    assert_eq!(batches[0].base_offset(), Offset(3));
    // Without the start, or with a gap after it, something is missing.
    assert!(dumped(&image, 0).iter().any(Item::is_damage));
    let first = segment::file_name(Offset(3));
    assert!(
        dumped(&without(&image, &first), 4)
            .iter()
            .any(Item::is_damage)
    );
    // A leftover before it is shown as well.
    let leftover = with(&image, &segment::file_name(Offset(0)), Vec::new());
    assert!(dumped(&leftover, 4) == items);
}

#[test]
fn a_wiped_replica_that_fetched_a_snapshot_starts_with_it() {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    fetch_snapshot(&mut storage, IDS[1]).unwrap();
    drop(storage);
    let (storage, recovered) = open(&CrashDisk::from_image(&disk.durable_image())).unwrap();
    assert_eq!(storage.log_start_snapshot(), IDS[1]);
    assert_eq!(recovered.log_end, Offset(8));
}
