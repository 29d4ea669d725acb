//! Owns the tests of formatting: what it leaves, what it refuses, and what a crash leaves of it.
//! Never tests what is made of the voters.

use super::crash_disk::CrashDisk;
use super::damage::{flipped, refused, with};
use super::{Image, batch, identity, open};
use crate::ids::{DirectoryId, NodeId, Offset, SnapshotId};
use crate::raft::{RecordedVoters, Recovered};
use crate::storage::checkpoint::file_name;
use crate::storage::{OpenError, VotersFrom, format};

const DIRECTORY: DirectoryId = DirectoryId(77);

fn bootstrap() -> RecordedVoters {
    RecordedVoters {
        kraft_version: 1,
        voters: (1..=3).map(NodeId).collect(),
    }
}

fn format_on(disk: &CrashDisk, voters: Option<RecordedVoters>) -> Result<(), OpenError> {
    format(&mut disk.clone(), &identity(), DIRECTORY, voters)
}

fn formatted(voters: Option<RecordedVoters>) -> Image {
    let disk = CrashDisk::default();
    format_on(&disk, voters).unwrap();
    disk.durable_image()
}

#[test]
fn a_formatted_directory_has_an_id_and_voters() {
    for voters in [Some(bootstrap()), None] {
        let disk = CrashDisk::from_image(&formatted(voters.clone()));
        let (storage, recovered) = open(&disk).unwrap();
        assert_eq!(storage.directory_id(), Some(DIRECTORY));
        assert_eq!(storage.voters_from(), VotersFrom::Log);
        let expected = Recovered {
            snapshot_voters: voters.clone(),
            ..Recovered::default()
        };
        assert_eq!(recovered, expected);
        let latest = storage.latest_snapshot();
        assert_eq!(
            latest.map(|latest| (latest.id, latest.header.voters.clone())),
            voters.map(|voters| (SnapshotId::BOOTSTRAP, Some(voters)))
        );
        if latest.is_some() {
            let mut reader = storage.read_snapshot(SnapshotId::BOOTSTRAP).unwrap();
            assert_eq!(reader.next_batch().unwrap(), None);
        }
    }
}

#[test]
fn a_directory_that_was_only_started_has_configured_voters() {
    let (storage, _) = open(&CrashDisk::default()).unwrap();
    assert_eq!(storage.voters_from(), VotersFrom::Configuration);
}

#[test]
fn the_bootstrap_snapshot_goes_when_the_log_starts_later() {
    let disk = CrashDisk::from_image(&formatted(Some(bootstrap())));
    let (mut storage, _) = open(&disk).unwrap();
    storage.append(&batch(0, 1, 1, 10)).unwrap();
    storage.sync().unwrap();
    let id = super::script::snapshot(1, 1);
    super::script::take_snapshot(&mut storage, id).unwrap();
    assert_eq!(storage.snapshots().count(), 2);
    storage.advance_log_start(Offset(1)).unwrap();
    assert_eq!(storage.snapshots().count(), 1);
    assert!(
        !disk
            .durable_image()
            .contains_key(&file_name(SnapshotId::BOOTSTRAP))
    );
}

#[test]
fn a_directory_in_use_is_not_formatted() {
    let image = formatted(None);
    let disk = CrashDisk::from_image(&image);
    let error = format_on(&disk, Some(bootstrap())).unwrap_err();
    assert!(matches!(error, OpenError::Formatted { .. }), "{error}");
    for file in [
        "notes.txt",
        "quorum-state",
        "00000000000000000007-0000000001.checkpoint",
    ] {
        let disk = CrashDisk::from_image(&with(&Image::new(), file, b"x".to_vec()));
        let error = format_on(&disk, None).unwrap_err();
        assert!(
            matches!(&error, OpenError::NotEmpty { file: found } if found == file),
            "{error}"
        );
        assert_eq!(disk.journal(), [""; 0]);
    }
}

#[test]
fn a_crash_leaves_a_directory_that_is_formatted_or_can_be() {
    let whole = formatted(Some(bootstrap()));
    for operation_count in 0.. {
        let disk = CrashDisk::default();
        disk.crash_after(operation_count);
        let done = format_on(&disk, Some(bootstrap())).is_ok();
        for image in disk.crash_images() {
            let context = format!("operation {operation_count}: {:?}", image.keys());
            let disk = CrashDisk::from_image(&image);
            if image.contains_key("meta.properties") {
                let (storage, _) = open(&disk).unwrap();
                assert_eq!(storage.directory_id(), Some(DIRECTORY), "{context}");
                assert_eq!(disk.durable_image(), whole, "{context}");
                continue;
            }
            assert!(!done, "{context}");
            if image.keys().any(|name| name.contains(".checkpoint")) {
                let error = refused(&image, &context);
                assert!(matches!(error, OpenError::HalfFormatted { .. }), "{error}");
            }
            format_on(&disk, None).unwrap();
            assert_eq!(disk.durable_image(), formatted(None), "{context}");
        }
        if done {
            assert!(operation_count > 10, "only {operation_count} operations");
            break;
        }
    }
}

#[test]
fn a_damaged_bootstrap_snapshot_is_refused() {
    let image = formatted(Some(bootstrap()));
    let file = file_name(SnapshotId::BOOTSTRAP);
    for at in 0..image[&file].len() {
        refused(&flipped(&image, &file, at), &format!("byte {at}"));
    }
}
