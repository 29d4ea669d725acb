//! Owns the exhaustive crash test: scripts are cut off before every disk operation, and every state
//! that a power cut can leave there is recovered.
//! Never damages anything; see `damage` for that.

use super::crash_disk::CrashDisk;
use super::script::{Promise, Step, run};
use super::{Image, batch, open, read_all};
use crate::storage::{Disk, WriteBehindDisk};

use Step::{
    Abandon, Advance, Append, Download, Note, Persist, Reset, Seal, Snapshot, Sync, Truncate,
};

/// Every crash of `script` on a disk that `layer` makes of the one that crashes, with every state
/// it can leave.
fn for_each_crash<D: Disk>(
    script: &[Step],
    layer: impl Fn(CrashDisk) -> D,
    mut visit: impl FnMut(&Promise, &Image, &str),
) {
    let mut state_count = 0;
    for operation_count in 0.. {
        let disk = CrashDisk::default();
        disk.crash_after(operation_count);
        let (promise, crashed) = run(script, layer(disk.clone()));
        for (at, image) in disk.crash_images().iter().enumerate() {
            state_count += 1;
            let context = format!("crash before operation {operation_count}, state {at}");
            visit(&promise, image, &context);
        }
        if !crashed {
            assert!(
                operation_count > 30 && state_count > 500,
                "only {operation_count} operations and {state_count} states"
            );
            return;
        }
    }
}

/// Appends to a recovered log, so that leftovers of the crash would get in the way.
fn go_on(disk: &CrashDisk, count: usize, context: &str) {
    let (mut storage, _) = open(disk).unwrap();
    for _ in 0..3 {
        let next = batch(storage.log_end().0, 90, 1, 300);
        storage.append(&next).unwrap();
    }
    storage.sync().unwrap();
    let after = CrashDisk::from_image(&disk.durable_image());
    let (storage, _) = open(&after).unwrap_or_else(|error| panic!("{context}: {error}"));
    assert_eq!(read_all(&storage).len(), count + 3, "{context}");
}

const MIXED: &[Step] = &[
    Persist(1, 1),
    Append(1, 40, 1),
    Sync,
    Append(2, 60, 1),
    Append(1, 700, 1),
    Append(1, 500, 1),
    Sync,
    Persist(2, 3),
    Append(1, 300, 2),
    Append(3, 200, 2),
    Persist(3, 2),
    Append(1, 10, 3),
    Sync,
    Seal,
    Append(1, 900, 3),
    Append(1, 20, 3),
    Sync,
];

const CUTS: &[Step] = &[
    Append(1, 500, 1),
    Append(1, 600, 1),
    Sync,
    Append(1, 1000, 1),
    Append(1, 1500, 1),
    Seal,
    Append(1, 700, 2),
    Append(1, 30, 2),
    // Over a segment boundary, with unsynced batches at the end.
    Truncate(2),
    Append(2, 400, 3),
    Persist(3, 1),
    Append(1, 1200, 3),
    Sync,
    Append(1, 1200, 3),
    Append(1, 1200, 3),
    Sync,
    // To the start of a segment, over several segments, and to nothing.
    Truncate(6),
    Truncate(1),
    Append(1, 100, 4),
    Sync,
    Truncate(0),
    Append(1, 64, 5),
    Sync,
];

/// Word of the end that travels with syncs, over segment boundaries, and logs that are cut to before it.
const NOTED_ENDS: &[Step] = &[
    Append(1, 500, 1),
    Note,
    Append(1, 600, 1),
    Note,
    Append(1, 1200, 1),
    Note,
    Append(1, 40, 2),
    Note,
    Truncate(1),
    Append(1, 70, 3),
    Note,
    Append(1, 90, 3),
    Note,
    Persist(4, 2),
    Append(1, 20, 4),
    Seal,
    Append(1, 30, 4),
    Note,
    Truncate(0),
    Append(1, 10, 5),
    Note,
    Append(1, 20, 5),
    Note,
];

/// Snapshots of its own, and a log that loses its beginning to them: inside a segment, at the start
/// of one, up to its end.
const OWN_SNAPSHOTS: &[Step] = &[
    Append(1, 500, 1),
    Append(1, 600, 1),
    Append(1, 700, 1),
    Append(2, 100, 1),
    Sync,
    Snapshot(2),
    Append(1, 900, 2),
    Append(1, 700, 2),
    Sync,
    Persist(2, 2),
    Abandon(5),
    Snapshot(6),
    Advance(2),
    Append(1, 1500, 2),
    Advance(6),
    Sync,
    Append(1, 1900, 3),
    Append(1, 100, 3),
    Seal,
    Snapshot(9),
    Snapshot(10),
    Advance(10),
    Append(1, 300, 3),
    Truncate(10),
    Append(1, 200, 4),
    Sync,
];

/// Snapshots that go further than what is durable of the log: others have committed it.
const AHEAD_OF_THE_LOG: &[Step] = &[
    Append(1, 60, 1),
    Sync,
    Append(1, 40, 1),
    Snapshot(2),
    Append(1, 30, 2),
    Advance(2),
    Sync,
    Append(1, 1950, 2),
    Sync,
    Append(1, 20, 3),
    Snapshot(5),
    Advance(5),
    Append(1, 50, 3),
    Sync,
];

/// Logs that are dropped for a fetched snapshot: shorter ones, longer ones of an older epoch, empty
/// ones, and across segments.
const FETCHED_SNAPSHOTS: &[Step] = &[
    Download(4, 1),
    Reset,
    Append(1, 500, 1),
    Append(1, 1600, 1),
    Append(1, 100, 2),
    Sync,
    Snapshot(5),
    Download(20, 3),
    Reset,
    Append(1, 1300, 3),
    Append(1, 1200, 4),
    Append(1, 1200, 4),
    Seal,
    // A segment starts where the snapshot ends.
    Download(22, 6),
    Reset,
    Append(2, 70, 6),
    Snapshot(24),
    Advance(24),
    Append(1, 150, 7),
    Sync,
    Download(30, 9),
    Reset,
    Append(1, 60, 9),
    Sync,
];

/// As long as the snapshot, but of an epoch that lost.
const SAME_END: &[Step] = &[
    Append(1, 1700, 1),
    Append(1, 400, 1),
    Append(1, 200, 5),
    Sync,
    Download(3, 3),
    Persist(6, 2),
    Reset,
    Append(1, 80, 6),
    Sync,
    Seal,
    Append(1, 60, 6),
    Sync,
    Snapshot(5),
    Advance(5),
    Append(1, 60, 6),
    Sync,
];

const SCRIPTS: [&[Step]; 7] = [
    MIXED,
    CUTS,
    NOTED_ENDS,
    OWN_SNAPSHOTS,
    AHEAD_OF_THE_LOG,
    FETCHED_SNAPSHOTS,
    SAME_END,
];

#[test]
fn no_crash_loses_what_was_synced_or_stops_the_next_start() {
    for script in SCRIPTS {
        for_each_crash(
            script,
            |disk| disk,
            |promise, image, context| {
                let (disk, count) = promise.check(image, context);
                go_on(&disk, count, context);
            },
        );
    }
}

#[test]
fn a_crash_inside_a_write_behind_disk_is_a_crash_like_any_other() {
    let layer = |disk| WriteBehindDisk::new(disk).unwrap();
    for script in SCRIPTS {
        for_each_crash(script, layer, |promise, image, context| {
            // At its start the layer removes what it left behind itself.
            let disk = CrashDisk::from_image(image);
            WriteBehindDisk::new(disk.clone()).unwrap();
            let (disk, count) = promise.check(&disk.visible_image(), context);
            go_on(&disk, count, context);
        });
    }
}

#[test]
fn a_crash_during_recovery_changes_nothing_about_its_result() {
    for script in SCRIPTS {
        let mut seen_at = String::new();
        for_each_crash(
            script,
            |disk| disk,
            |promise, image, context| {
                // A few states of each crash are enough here: what recovery has to do is the same.
                let (crash, state) = context.split_once(", state ").unwrap();
                let first = std::mem::replace(&mut seen_at, crash.to_owned()) != crash;
                if !first && state.parse::<usize>().unwrap() % 23 != 0 {
                    return;
                }
                let (_, count) = promise.check(image, context);
                for operation_count in 0.. {
                    let disk = CrashDisk::from_image(image);
                    disk.crash_after(operation_count);
                    let done = open(&disk).is_ok();
                    for image in disk.crash_images() {
                        let context = format!("{context}, recovery operation {operation_count}");
                        assert_eq!(promise.check(&image, &context).1, count, "{context}");
                    }
                    if done {
                        break;
                    }
                }
            },
        );
    }
}

#[test]
fn a_killed_process_without_a_power_cut_leaves_nothing_that_a_later_power_cut_could_take() {
    for script in SCRIPTS {
        for operation_count in 0.. {
            let disk = CrashDisk::default();
            disk.crash_after(operation_count);
            let (promise, crashed) = run(script, disk.clone());
            disk.crash_after(usize::MAX);
            let (storage, _) = open(&disk).unwrap();
            let found = read_all(&storage);
            assert_eq!(
                disk.durable_image(),
                disk.visible_image(),
                "{operation_count}"
            );
            let context = format!("killed before operation {operation_count}");
            assert_eq!(
                promise.check(&disk.durable_image(), &context).1,
                found.len()
            );
            if !crashed {
                break;
            }
        }
    }
}
