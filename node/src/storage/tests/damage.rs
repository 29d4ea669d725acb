//! Owns the tests of recovery with bytes that are torn, rotten, stale or gone.
//! Never simulates a crash by running one; see `crash_points` for that.

use super::crash_disk::CrashDisk;
use super::{Image, batch, identity, open, read_all};
use crate::batch::Batch;
use crate::ids::{Epoch, NodeId, Offset};
use crate::raft::QuorumState;
use crate::storage::frame::FRAME_BYTES;
use crate::storage::segment::file_name;
use crate::storage::{Identity, OpenError, Storage, StorageOptions};

fn first_segment() -> String {
    file_name(Offset(0))
}

/// A log of one segment. Each inner list of batches is written with one sync.
fn log_of(groups: &[&[Batch]]) -> Image {
    let disk = CrashDisk::default();
    let options = StorageOptions {
        segment_bytes: u64::MAX,
        ..super::OPTIONS
    };
    let (mut storage, _) = Storage::open(disk.clone(), &identity(), options).unwrap();
    for group in groups {
        for batch in *group {
            storage.append(batch).unwrap();
        }
        storage.sync().unwrap();
    }
    disk.durable_image()
}

/// A log over several segments, with a quorum state.
fn long_log(seal: bool) -> Image {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    storage.persist(QuorumState::default()).unwrap();
    for offset in 0..12 {
        storage.append(&batch(offset, 1, 1, 600)).unwrap();
        storage.sync().unwrap();
    }
    if seal {
        storage.seal().unwrap();
    }
    let image = disk.durable_image();
    let segment_count = image.keys().filter(|name| name.ends_with(".log")).count();
    assert!(segment_count > 3);
    image
}

pub(super) fn with(image: &Image, file: &str, bytes: Vec<u8>) -> Image {
    let mut image = image.clone();
    image.insert(file.to_owned(), bytes);
    image
}

pub(super) fn flipped(image: &Image, file: &str, at: usize) -> Image {
    let mut bytes = image[file].clone();
    bytes[at] ^= 0x10;
    with(image, file, bytes)
}

pub(super) fn refused(image: &Image, context: &str) -> OpenError {
    let disk = CrashDisk::from_image(image);
    let Err(error) = open(&disk) else {
        panic!("{context}: accepted");
    };
    assert_eq!(disk.journal(), [""; 0], "{context}: something was changed");
    let text = error.to_string();
    assert!(text.contains("Nothing was changed"), "{context}: {text}");
    error
}

fn recovered(image: &Image, context: &str) -> Vec<Batch> {
    let disk = CrashDisk::from_image(image);
    let (storage, _) = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
    read_all(&storage)
}

/// How many of `batches`, written from `start_bytes` on, lie wholly before `end_bytes`.
fn whole_count(batches: &[Batch], start_bytes: usize, end_bytes: usize) -> usize {
    let mut position = start_bytes;
    batches
        .iter()
        .take_while(|batch| {
            position += FRAME_BYTES + batch.bytes().len();
            position <= end_bytes
        })
        .count()
}

#[test]
fn a_tail_torn_at_any_byte_leaves_the_whole_batches_before() {
    let durable = [batch(0, 1, 2, 50), batch(2, 1, 1, 300)];
    let tail = [batch(3, 1, 1, 40), batch(4, 2, 3, 200), batch(7, 2, 1, 10)];
    let start_bytes = log_of(&[&durable])[&first_segment()].len();
    let image = log_of(&[&durable, &tail]);
    let whole = &image[&first_segment()];
    let everything: Vec<Batch> = durable.iter().chain(&tail).cloned().collect();
    for end in start_bytes..=whole.len() {
        let expected = &everything[..durable.len() + whole_count(&tail, start_bytes, end)];
        let mut zeros = whole[..end].to_vec();
        zeros.resize(whole.len() + 700, 0);
        let mut noise = whole[..end].to_vec();
        noise.resize(whole.len(), 0xa5);
        for torn in [whole[..end].to_vec(), zeros, noise] {
            let image = with(&image, &first_segment(), torn);
            assert_eq!(recovered(&image, "torn"), expected, "torn at byte {end}");
        }
    }
}

#[test]
fn a_hole_at_any_byte_of_the_last_write_leaves_the_whole_batches_before() {
    let durable = [batch(0, 1, 2, 50)];
    let tail = [batch(2, 1, 1, 40), batch(3, 2, 3, 30), batch(6, 2, 1, 10)];
    let start_bytes = log_of(&[&durable])[&first_segment()].len();
    let image = log_of(&[&durable, &tail]);
    let everything: Vec<Batch> = durable.iter().chain(&tail).cloned().collect();
    for at in start_bytes..image[&first_segment()].len() {
        let expected = &everything[..durable.len() + whole_count(&tail, start_bytes, at)];
        let image = flipped(&image, &first_segment(), at);
        assert_eq!(recovered(&image, "hole"), expected, "hole at byte {at}");
    }
}

#[test]
fn a_flipped_byte_before_the_last_write_is_refused() {
    let first = [batch(0, 1, 2, 50), batch(2, 1, 1, 300)];
    let middle = [batch(3, 1, 2, 100)];
    let last = [batch(5, 1, 1, 60), batch(6, 1, 1, 60)];
    let before_bytes = log_of(&[&first, &middle])[&first_segment()].len();
    let image = log_of(&[&first, &middle, &last]);
    for at in 0..before_bytes {
        let error = refused(&flipped(&image, &first_segment(), at), "flipped");
        let OpenError::Damaged {
            file,
            position_bytes,
            ..
        } = error
        else {
            panic!("byte {at}: {error}");
        };
        assert_eq!(file, first_segment());
        assert!(position_bytes <= at as u64, "byte {at}: {position_bytes}");
    }
}

#[test]
fn a_later_write_bears_witness_even_if_it_is_torn_itself() {
    let rotten = [batch(0, 1, 1, 100)];
    let last = [batch(1, 1, 1, 600), batch(2, 1, 1, 600)];
    let start_bytes = log_of(&[&rotten])[&first_segment()].len();
    let image = flipped(&log_of(&[&rotten, &last]), &first_segment(), 60);
    let mut bytes = image[&first_segment()].clone();
    // The first batch of the last write is gone, of the second only the frame is left.
    let second = start_bytes + FRAME_BYTES + last[0].bytes().len();
    bytes[start_bytes..second].fill(0);
    bytes.truncate(second + FRAME_BYTES + 20);
    let error = refused(
        &with(&image, &first_segment(), bytes.clone()),
        "rot and tear",
    );
    let text = error.to_string();
    assert!(
        text.contains(&format!("the frame at byte {second}")),
        "{text}"
    );

    // Without the rot it is only a torn write.
    let sound = log_of(&[&rotten]);
    bytes[..start_bytes].copy_from_slice(&sound[&first_segment()]);
    let image = with(&image, &first_segment(), bytes);
    assert_eq!(recovered(&image, "tear"), rotten);
}

#[test]
fn a_flipped_byte_anywhere_in_a_sealed_log_is_refused() {
    let image = long_log(true);
    for (file, bytes) in image.iter().filter(|(file, _)| file.ends_with(".log")) {
        let last_segment = image.keys().rfind(|name| name.ends_with(".log")) == Some(file);
        let sealed_bytes = bytes.len() - if last_segment { FRAME_BYTES } else { 0 };
        for at in 0..sealed_bytes {
            refused(&flipped(&image, file, at), &format!("{file} byte {at}"));
        }
        for at in sealed_bytes..bytes.len() {
            // Only the witness is lost, not a batch.
            assert_eq!(recovered(&flipped(&image, file, at), "seal").len(), 12);
        }
    }
}

#[test]
fn a_missing_segment_is_refused() {
    let image = long_log(false);
    for file in image.keys().filter(|file| file.ends_with(".log")) {
        let mut image = image.clone();
        image.remove(file);
        let error = refused(&image, file);
        assert!(matches!(&error, OpenError::Missing { file: missing, .. } if missing == file));
    }
}

#[test]
fn a_segment_cut_short_before_the_last_one_is_refused() {
    let image = long_log(false);
    let bytes = &image[&first_segment()];
    for end in 0..bytes.len() {
        refused(
            &with(&image, &first_segment(), bytes[..end].to_vec()),
            &format!("cut at {end}"),
        );
    }
}

#[test]
fn an_old_version_of_a_stretch_of_the_log_is_refused() {
    let image = log_of(&[
        &[batch(0, 1, 1, 50)],
        &[batch(1, 2, 1, 80)],
        &[batch(2, 2, 1, 50)],
    ]);
    // The same offsets and sizes, written in an earlier epoch and truncated since.
    let old = log_of(&[&[batch(0, 1, 1, 50)], &[batch(1, 1, 1, 80)]]);
    let (old, mut bytes) = (&old[&first_segment()], image[&first_segment()].clone());
    bytes[..old.len()].copy_from_slice(old);
    let error = refused(&with(&image, &first_segment(), bytes), "stale");
    assert!(error.to_string().contains("older version"), "{error}");
}

#[test]
fn a_damaged_quorum_state_is_refused() {
    let image = long_log(false);
    for at in 0..image["quorum-state"].len() {
        refused(&flipped(&image, "quorum-state", at), &format!("byte {at}"));
    }
}

#[test]
fn the_directory_of_another_replica_is_refused() {
    let image = long_log(false);
    for other in [
        Identity {
            node_id: NodeId(2),
            ..identity()
        },
        Identity {
            cluster_id: "other".to_owned(),
            ..identity()
        },
    ] {
        let disk = CrashDisk::from_image(&image);
        let error = Storage::open(disk.clone(), &other, super::OPTIONS).unwrap_err();
        assert!(matches!(error, OpenError::Foreign { .. }), "{error}");
        assert_eq!(disk.journal(), [""; 0]);
    }
}

#[test]
fn a_directory_without_its_identity_is_refused() {
    let mut image = long_log(false);
    image.remove("meta.properties");
    let error = refused(&image, "no meta.properties");
    assert!(matches!(error, OpenError::Missing { .. }), "{error}");
}

#[test]
fn temporary_files_are_removed() {
    let image = with(&long_log(false), "quorum-state.tmp", b"half".to_vec());
    let disk = CrashDisk::from_image(&image);
    let (storage, found) = open(&disk).unwrap();
    assert!(!disk.durable_image().contains_key("quorum-state.tmp"));
    assert_eq!(storage.log_end(), Offset(12));
    assert_eq!(found.quorum_state.map(|state| state.epoch), Some(Epoch(0)));
}

#[test]
fn a_sealed_log_that_lost_its_end_is_refused() {
    let image = long_log(true);
    let last = image.keys().rfind(|name| name.ends_with(".log")).unwrap();
    let sealed_bytes = image[last].len() - FRAME_BYTES;
    for length in 0..sealed_bytes {
        let cut = image[last][..length].to_vec();
        let error = refused(&with(&image, last, cut), &format!("cut at {length}"));
        let text = error.to_string();
        assert!(
            text.contains("log-end says") || text.contains("goes on there"),
            "{text}"
        );
    }
    for length in sealed_bytes..image[last].len() {
        let cut = image[last][..length].to_vec();
        assert_eq!(recovered(&with(&image, last, cut), "seal").len(), 12);
    }
}

#[test]
fn a_log_end_that_is_gone_is_missed() {
    for mut image in [log_of(&[]), long_log(false), long_log(true)] {
        image.remove("log-end");
        let error = refused(&image, "no log-end");
        assert!(
            matches!(&error, OpenError::Missing { file, .. } if file == "log-end"),
            "{error}"
        );
    }
}

#[test]
fn a_directory_of_an_earlier_version_gets_its_log_end() {
    let image = long_log(false);
    let mut older = image.clone();
    older.remove("log-end");
    let meta = String::from_utf8(image["meta.properties"].clone()).unwrap();
    let (lines, _) = meta.split_once("log.end=told\n").unwrap();
    let older_meta = lines.replace("version=5", "version=1");
    older.insert("meta.properties".to_owned(), older_meta.into_bytes());
    let disk = CrashDisk::from_image(&older);
    let (storage, _) = open(&disk).unwrap();
    assert_eq!(read_all(&storage).len(), 12);
    let newer = disk.durable_image();
    assert_eq!(newer["meta.properties"], image["meta.properties"]);
    let last = newer.keys().rfind(|name| name.ends_with(".log")).unwrap();
    let length_bytes = newer[last].len();
    refused(
        &with(&newer, last, newer[last][..length_bytes - 1].to_vec()),
        "cut",
    );
}

#[test]
fn no_bit_of_the_identity_can_change_unnoticed() {
    let image = long_log(true);
    let meta = &image["meta.properties"];
    for bit in 0..meta.len() * 8 {
        let mut damaged = meta.clone();
        damaged[bit / 8] ^= 1 << (bit % 8);
        refused(
            &with(&image, "meta.properties", damaged),
            &format!("bit {bit}"),
        );
    }
}

#[test]
fn an_identity_without_a_checksum_is_taken_over() {
    let image = long_log(true);
    let meta = String::from_utf8(image["meta.properties"].clone()).unwrap();
    let (lines, _) = meta.split_once("checksum=").unwrap();
    let lines = lines.replace("version=5", "version=4");
    let older = with(&image, "meta.properties", lines.into_bytes());
    let disk = CrashDisk::from_image(&older);
    let (storage, _) = open(&disk).unwrap();
    assert_eq!(read_all(&storage).len(), 12);
    assert_eq!(
        disk.durable_image()["meta.properties"],
        image["meta.properties"]
    );
}

#[test]
fn a_log_that_never_rests_cannot_lose_more_than_its_end_unnoticed() {
    let disk = CrashDisk::default();
    let options = StorageOptions {
        segment_bytes: u64::MAX,
        ..super::OPTIONS
    };
    let (mut storage, _) = Storage::open(disk.clone(), &identity(), options).unwrap();
    let mut ends_bytes = Vec::new();
    for offset in 0..6 {
        storage.append(&batch(offset, 1, 1, 100)).unwrap();
        let synced = storage.begin_sync_and_note_end().unwrap().run();
        storage.finish_sync(synced).unwrap();
        ends_bytes.push(disk.durable_image()[&first_segment()].len());
    }
    let image = disk.durable_image();
    let log = &image[&first_segment()];
    for (at, end_bytes) in ends_bytes.into_iter().enumerate() {
        let cut = with(&image, &first_segment(), log[..end_bytes].to_vec());
        // The last file but one is durable with its name, and tells of what was durable before that sync.
        if at + 3 < 6 {
            let error = refused(&cut, &format!("{at}"));
            assert!(error.to_string().contains("log-end says"), "{error}");
        } else {
            assert_eq!(recovered(&cut, &format!("{at}")).len(), at + 1);
        }
    }
}

#[test]
fn an_old_log_in_place_of_a_sealed_one_is_refused() {
    let sealed = |epoch| {
        let disk = CrashDisk::default();
        let (mut storage, _) = open(&disk).unwrap();
        for offset in 0..3 {
            storage.append(&batch(offset, epoch, 1, 50)).unwrap();
        }
        storage.seal().unwrap();
        disk.durable_image()
    };
    let (old, new) = (sealed(1), sealed(2));
    let log = old[&first_segment()].clone();
    let error = refused(&with(&new, &first_segment(), log), "an old log");
    assert!(error.to_string().contains("older version"), "{error}");
}

#[test]
fn a_damaged_log_end_is_refused() {
    let image = long_log(true);
    for at in 0..image["log-end"].len() {
        refused(&flipped(&image, "log-end", at), &format!("byte {at}"));
    }
}

#[test]
fn a_cut_or_a_newer_snapshot_takes_back_what_was_known_of_the_end() {
    let disk = CrashDisk::from_image(&long_log(true));
    let (mut storage, _) = open(&disk).unwrap();
    storage.truncate(Offset(5)).unwrap();
    let image = disk.durable_image();
    assert_eq!(recovered(&image, "cut").len(), 5);
    let (file, length) = image
        .iter()
        .rfind(|(name, bytes)| name.ends_with(".log") && !bytes.is_empty())
        .map(|(name, bytes)| (name.clone(), bytes.len()))
        .unwrap();
    let shorter = image[&file][..length - 1].to_vec();
    refused(&with(&image, &file, shorter), "cut again");
}

/// As a node opens it.
fn refused_without_votes(image: &Image) -> Option<String> {
    let disk = CrashDisk::from_image(image);
    let options = StorageOptions {
        require_quorum_state: true,
        ..super::OPTIONS
    };
    let error = Storage::open(disk.clone(), &identity(), options).err()?;
    assert_eq!(disk.journal(), [""; 0]);
    Some(error.to_string())
}

#[test]
fn a_log_without_the_votes_of_its_replica_is_refused() {
    let mut image = long_log(false);
    assert_eq!(refused_without_votes(&image), None);
    image.remove("quorum-state");
    let text = refused_without_votes(&image).unwrap();
    assert!(text.contains("quorum-state is missing"), "{text}");
    assert!(text.contains("vote a second time"), "{text}");
    assert!(text.contains("Do not put an older copy"), "{text}");
    // There was no epoch yet.
    image.retain(|name, _| !name.ends_with(".log"));
    image.insert(first_segment(), Vec::new());
    assert_eq!(refused_without_votes(&image), None);
}
