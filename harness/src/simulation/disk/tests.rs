//! Owns the checks that the simulated disk loses what a real one may lose, and nothing else.
//! Never looks inside; everything is seen through the operations of a disk.

#[path = "../../../../node/src/storage/tests/conformance/disk_suite.rs"]
mod disk_suite;

use std::collections::BTreeSet;

use disk_suite::{carry_out, image_of, operation};
use node::storage::injected_faults::{DiskProblem, FileKind};
use node::storage::{DirectoryDisk, WriteBehindDisk};
use proptest::prelude::{ProptestConfig, prop, prop_assert_eq, proptest};

use super::*;

proptest! {
    #![proptest_config(ProptestConfig {
        cases: 100,
        failure_persistence: None,
        ..Default::default()
    })]

    #[test]
    fn the_disk_answers_like_those_of_real_nodes_and_can_lose_what_they_lose(
        operations in prop::collection::vec(operation(), 1..40)
    ) {
        let (plain, layered) = (tempfile::tempdir().unwrap(), tempfile::tempdir().unwrap());
        let mut simulated = disk();
        simulated.begin(0);
        let mut directory = DirectoryDisk::open(plain.path()).unwrap();
        let mut write_behind =
            WriteBehindDisk::new(DirectoryDisk::open(layered.path()).unwrap()).unwrap();
        for operation in &operations {
            let expected = carry_out(&mut directory, operation);
            prop_assert_eq!(&carry_out(&mut write_behind, operation), &expected);
            prop_assert_eq!(&carry_out(&mut simulated, operation), &expected);
        }
        drop(write_behind);
        let survived = DirectoryDisk::open(layered.path()).unwrap();
        prop_assert_eq!(image_of(&survived), simulated.durable_files());
    }
}

fn fault(problem: DiskProblem) -> InjectedFault {
    let files = FileKind::All;
    InjectedFault { problem, files }
}

fn disk() -> SimulatedDisk {
    SimulatedDisk::new(Draws::new(1, "disk", 0), 100)
}

fn whole(disk: &SimulatedDisk, file: &str) -> Option<Vec<u8>> {
    let length_bytes = disk.length(file).unwrap()?;
    Some(disk.read(file, 0, length_bytes as usize).unwrap())
}

/// What is left of a disk prepared by `prepare` after power cuts at `cut_ns` of many kinds.
fn survivors(
    prepare: impl Fn(&mut SimulatedDisk),
    cut_ns: impl Fn(&SimulatedDisk) -> u64,
    file: &str,
) -> BTreeSet<Option<Vec<u8>>> {
    (0..200)
        .map(|seed| {
            let mut disk = disk();
            prepare(&mut disk);
            disk.cut_power(cut_ns(&disk), None, Draws::new(seed, "cut", 0));
            whole(&disk, file)
        })
        .collect()
}

fn create(disk: &mut SimulatedDisk, content: &[u8]) {
    disk.begin(0);
    disk.append("a", content).unwrap();
    disk.sync("a").unwrap();
    disk.sync_directory().unwrap();
    disk.begin(disk.time_ns());
}

#[test]
fn durable_bytes_survive_every_power_cut() {
    let left = survivors(|disk| create(disk, b"one"), SimulatedDisk::time_ns, "a");
    assert_eq!(left, BTreeSet::from([Some(b"one".to_vec())]));
}

#[test]
fn unsynced_bytes_are_lost_kept_cut_short_or_torn_by_sectors() {
    let tail = [7; 3 * 512];
    let left = survivors(
        |disk| {
            create(disk, b"one");
            disk.append("a", &tail).unwrap();
        },
        SimulatedDisk::time_ns,
        "a",
    );
    let whole = [&b"one"[..], &tail].concat();
    assert!(left.contains(&Some(b"one".to_vec())), "lost");
    assert!(left.contains(&Some(whole.clone())), "kept");
    let lengths: BTreeSet<usize> = left.iter().flatten().map(Vec::len).collect();
    assert!(lengths.len() > 20, "cut short in many places");
    let torn_after_a_hole = left.iter().flatten().any(|content| {
        content.len() == whole.len() && content[3] != 7 && content[whole.len() - 1] == 7
    });
    assert!(torn_after_a_hole, "a later write without an earlier one");
    assert!(
        left.iter()
            .flatten()
            .all(|content| content.starts_with(b"one"))
    );
}

#[test]
fn a_name_is_durable_only_once_the_directory_is() {
    let left = survivors(
        |disk| {
            disk.begin(0);
            disk.append("a", b"one").unwrap();
            disk.sync("a").unwrap();
        },
        SimulatedDisk::time_ns,
        "a",
    );
    assert_eq!(left, BTreeSet::from([None, Some(b"one".to_vec())]));
}

#[test]
fn a_replaced_file_is_the_old_or_the_new_one() {
    let replace = |disk: &mut SimulatedDisk| {
        create(disk, b"old");
        disk.write("b", b"new").unwrap();
        disk.sync("b").unwrap();
        disk.rename("b", "a").unwrap();
    };
    let left = survivors(replace, SimulatedDisk::time_ns, "a");
    let (old, new) = (Some(b"old".to_vec()), Some(b"new".to_vec()));
    assert_eq!(left, BTreeSet::from([old, new.clone()]));
    let synced = |disk: &mut SimulatedDisk| {
        replace(disk);
        disk.sync_directory().unwrap();
    };
    let left = survivors(synced, SimulatedDisk::time_ns, "a");
    assert_eq!(left, BTreeSet::from([new]));
}

#[test]
fn an_unsynced_cut_may_come_back() {
    let left = survivors(
        |disk| {
            create(disk, b"one");
            disk.truncate("a", 1).unwrap();
        },
        SimulatedDisk::time_ns,
        "a",
    );
    let (cut, uncut) = (Some(b"o".to_vec()), Some(b"one".to_vec()));
    assert_eq!(left, BTreeSet::from([cut, uncut]));
}

#[test]
fn a_power_cut_in_the_middle_of_a_sync_takes_back_what_follows() {
    let work = |disk: &mut SimulatedDisk| {
        create(disk, b"one");
        disk.append("a", b"+").unwrap();
        disk.sync("a").unwrap();
        disk.append("a", b"never").unwrap();
        disk.sync("a").unwrap();
    };
    let mut probe = disk();
    create(&mut probe, b"one");
    let begun_ns = probe.time_ns();
    let left = survivors(work, |_| begun_ns + 1, "a");
    let (old, new) = (Some(b"one".to_vec()), Some(b"one+".to_vec()));
    let torn = Some(b"one\0".to_vec());
    assert!(left.contains(&old) && left.contains(&new) && left.contains(&torn));
    assert!(left.iter().flatten().all(|content| content.len() <= 4));
    let late = survivors(work, SimulatedDisk::time_ns, "a");
    assert_eq!(late, BTreeSet::from([Some(b"one+never".to_vec())]));
}

#[test]
fn syncs_take_time_and_nothing_else_does() {
    let mut disk = disk();
    disk.begin(5);
    disk.append("a", b"one").unwrap();
    assert_eq!(disk.time_ns(), 5);
    disk.sync("a").unwrap();
    let after_ns = disk.time_ns();
    assert!(after_ns >= 5 + 100 * US);
    disk.install(7, fault(DiskProblem::SlowSync { delay_ms: 3 }));
    disk.sync("a").unwrap();
    assert!(disk.time_ns() >= after_ns + 3 * MS);
}

#[test]
fn a_failed_sync_makes_nothing_durable() {
    let left = survivors(
        |disk| {
            create(disk, b"one");
            disk.append("a", b"+").unwrap();
            disk.install(7, fault(DiskProblem::SyncError));
            let error = disk.sync("a").unwrap_err();
            assert_eq!(error.raw_os_error(), Some(nix::libc::EIO));
        },
        SimulatedDisk::time_ns,
        "a",
    );
    assert!(left.contains(&Some(b"one".to_vec())));
}

#[test]
fn a_full_disk_refuses_and_an_unreadable_one_fails() {
    let mut disk = disk();
    create(&mut disk, b"one");
    disk.install(7, fault(DiskProblem::NoSpace));
    disk.install(8, fault(DiskProblem::ReadError));
    assert!(disk.is_failing());
    let full = disk.append("a", b"3").unwrap_err();
    assert_eq!(full.kind(), io::ErrorKind::StorageFull);
    assert!(disk.read("a", 0, 1).is_err());
    assert_eq!((disk.remove_fault(7), disk.remove_fault(8)), (1, 1));
    assert!(!disk.is_failing());
    disk.append("a", b"2").unwrap();
    assert_eq!(whole(&disk, "a"), Some(b"one2".to_vec()));
}

#[test]
fn what_is_damaged_at_rest_stays_so() {
    let mut disk = disk();
    create(&mut disk, b"one");
    let (file, position_bytes) = ("a".to_owned(), 1);
    let bytes = b"xy".to_vec();
    disk.damage(&[Edit::Overwrite {
        file: file.clone(),
        position_bytes,
        bytes,
    }]);
    assert_eq!(whole(&disk, "a"), Some(b"oxy".to_vec()));
    let length_bytes = 2;
    disk.damage(&[Edit::Cut { file, length_bytes }]);
    disk.cut_power(disk.time_ns(), None, Draws::new(1, "cut", 0));
    assert_eq!(whole(&disk, "a"), Some(b"ox".to_vec()));
    let file = "a".to_owned();
    disk.damage(&[Edit::Remove { file }]);
    disk.cut_power(disk.time_ns(), None, Draws::new(1, "cut", 0));
    assert_eq!((whole(&disk, "a"), disk.list().unwrap()), (None, vec![]));
}

#[test]
fn a_killed_process_loses_nothing_that_it_wrote() {
    let mut disk = disk();
    create(&mut disk, b"one");
    disk.append("a", b"two").unwrap();
    let killed_ns = disk.time_ns();
    disk.sync("a").unwrap();
    disk.append("a", b"three").unwrap();
    disk.keep_written(killed_ns, None);
    assert_eq!(whole(&disk, "a"), Some(b"onetwo".to_vec()));
    let left: BTreeSet<_> = survivors(
        |disk| {
            create(disk, b"one");
            disk.append("a", b"two").unwrap();
            disk.keep_written(disk.time_ns(), None);
        },
        SimulatedDisk::time_ns,
        "a",
    );
    assert!(left.contains(&Some(b"one".to_vec())), "it is not durable");
}
