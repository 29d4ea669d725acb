//! Owns the proof that all disks of this crate answer alike, and that a killed process loses exactly what it did
//! not sync.
//! Never tests what the files mean.

mod disk_suite;

use proptest::prelude::*;

use super::crash_disk::CrashDisk;
use crate::storage::{DirectoryDisk, Disk, WriteBehindDisk};
use disk_suite::{carry_out, image_of, operation};

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 200,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn all_disks_answer_alike_and_write_behind_loses_what_is_not_synced(
        operations in prop::collection::vec(operation(), 1..40)
    ) {
        let (plain, layered) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut model = CrashDisk::default();
        let mut directory = DirectoryDisk::open(plain.path()).unwrap();
        let mut write_behind =
            WriteBehindDisk::new(DirectoryDisk::open(layered.path()).unwrap()).unwrap();
        for operation in &operations {
            let expected = carry_out(&mut model, operation);
            prop_assert_eq!(&carry_out(&mut directory, operation), &expected);
            prop_assert_eq!(&carry_out(&mut write_behind, operation), &expected);
        }
        drop(write_behind);
        let survived = DirectoryDisk::open(layered.path()).unwrap();
        prop_assert_eq!(image_of(&survived), model.durable_image());
    }
}

#[test]
fn many_appends_and_one_sync_are_one_write_below() {
    let below = CrashDisk::default();
    let mut disk = WriteBehindDisk::new(below.clone()).unwrap();
    disk.append("log", b"start").unwrap();
    disk.sync("log").unwrap();
    disk.sync_directory().unwrap();
    let before = below.journal().len();
    for _ in 0..100 {
        disk.append("log", b"0123456789").unwrap();
    }
    assert_eq!(disk.unsynced_bytes(), 1000);
    assert_eq!(below.journal().len(), before);
    disk.sync("log").unwrap();
    assert_eq!(below.journal()[before..], ["append log 1000", "sync log"]);
    assert_eq!(disk.unsynced_bytes(), 0);
}

#[test]
fn a_process_killed_inside_a_sync_leaves_the_old_or_the_new_file() {
    for operation_count in 0..10 {
        let below = CrashDisk::default();
        let mut disk = WriteBehindDisk::new(below.clone()).unwrap();
        let replace = |disk: &mut WriteBehindDisk<CrashDisk>, bytes: &[u8]| {
            disk.write("new", bytes)?;
            disk.sync("new")?;
            disk.rename("new", "file")?;
            disk.sync_directory()
        };
        replace(&mut disk, b"old content").unwrap();
        below.crash_after(operation_count);
        let done = replace(&mut disk, b"content").is_ok();
        assert_eq!(done, operation_count >= 5, "{operation_count}");
        // A killed process leaves all it wrote; a power cut leaves any part of it.
        for image in below.crash_images() {
            let survived = WriteBehindDisk::new(CrashDisk::from_image(&image)).unwrap();
            let content = survived.read("file", 0, 100).unwrap();
            assert!(content == b"content" || (content == b"old content" && !done));
            assert!(
                survived
                    .list()
                    .unwrap()
                    .iter()
                    .all(|name| name == "file" || name == "new")
            );
        }
    }
}

#[test]
fn a_failed_sync_is_not_tried_again() {
    let below = CrashDisk::default();
    let mut disk = WriteBehindDisk::new(below.clone()).unwrap();
    disk.append("log", b"bytes").unwrap();
    disk.sync_directory().unwrap();
    below.crash_after(1);
    assert!(
        disk.sync("log").is_err(),
        "the write below works, the sync fails"
    );
    below.crash_after(usize::MAX);
    assert!(disk.sync("log").is_err());
    assert!(disk.sync_directory().is_err());
    assert_eq!(
        below.visible_image()["log"],
        b"bytes",
        "nothing was written twice"
    );
}
