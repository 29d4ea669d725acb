//! Owns the exhaustive crash test: scripts are cut off before every disk operation, and every state
//! that a power cut can leave there is recovered.
//! Never damages anything; see `damage` for that.

use super::crash_disk::CrashDisk;
use super::{Image, OPTIONS, batch, identity, open, read_all};
use crate::batch::Batch;
use crate::ids::{Epoch, NodeId, Offset};
use crate::raft::QuorumState;
use crate::storage::{Disk, Storage, StorageError, WriteBehindDisk};

#[derive(Debug, Clone, Copy)]
enum Step {
    /// Records, bytes of each, epoch.
    Append(usize, usize, i32),
    Sync,
    Seal,
    Truncate(i64),
    /// Epoch and vote.
    Persist(i32, i32),
}

use Step::{Append, Persist, Seal, Sync, Truncate};

/// What recovery may find.
#[derive(Debug, Clone, Default)]
struct Promise {
    /// The log as written; recovery finds a prefix of it.
    log: Vec<Batch>,
    /// How many of its batches must be there.
    durable_count: usize,
    quorum_states: Vec<Option<QuorumState>>,
}

impl Promise {
    fn carry_out<D: Disk>(
        &mut self,
        step: Step,
        storage: &mut Storage<D>,
    ) -> Result<(), StorageError> {
        match step {
            Append(record_count, record_bytes, epoch) => {
                let batch = batch(storage.log_end().0, epoch, record_count, record_bytes);
                self.log.push(batch.clone());
                storage.append(&batch)?;
            }
            Sync | Seal => {
                if matches!(step, Seal) {
                    storage.seal()?;
                } else {
                    assert_eq!(storage.sync()?, storage.log_end());
                }
                self.durable_count = self.log.len();
            }
            Truncate(log_end) => {
                let kept_count = self
                    .log
                    .partition_point(|batch| batch.end_offset() <= Offset(log_end));
                self.durable_count = self.durable_count.min(kept_count);
                storage.truncate(Offset(log_end))?;
                self.log.truncate(kept_count);
                self.durable_count = kept_count;
            }
            Persist(epoch, vote) => {
                let state = QuorumState {
                    epoch: Epoch(epoch),
                    leader: None,
                    voted_for: Some(NodeId(vote).into()),
                };
                self.quorum_states.push(Some(state));
                storage.persist(state)?;
                self.quorum_states = vec![Some(state)];
            }
        }
        assert_eq!(read_all(storage), self.log, "after {step:?}");
        Ok(())
    }

    /// Recovers `image`, checks what is found, and returns the disk and how many batches there are.
    fn check(&self, image: &Image, context: &str) -> (CrashDisk, usize) {
        let disk = CrashDisk::from_image(image);
        let (storage, recovered) = open(&disk).unwrap_or_else(|error| panic!("{context}: {error}"));
        let found = read_all(&storage);
        let count = found.len();
        assert!(
            count >= self.durable_count,
            "{context}: lost synced batches"
        );
        assert_eq!(found, self.log[..count], "{context}");
        assert_eq!(recovered.log_end, storage.log_end());
        assert_eq!(
            recovered.log_end,
            found.last().map_or(Offset(0), Batch::end_offset)
        );
        let mut epochs: Vec<_> = found.iter().map(Batch::epoch).collect();
        epochs.dedup();
        assert_eq!(
            recovered
                .epochs
                .iter()
                .map(|start| start.epoch)
                .collect::<Vec<_>>(),
            epochs
        );
        assert!(
            self.quorum_states.contains(&recovered.quorum_state),
            "{context}: {:?}",
            recovered.quorum_state
        );
        let left = disk.visible_image();
        assert_eq!(
            left,
            disk.durable_image(),
            "{context}: what was found is not durable"
        );

        let (again, second) = open(&disk).unwrap();
        assert_eq!(
            disk.visible_image(),
            left,
            "{context}: the second opening changed something"
        );
        assert_eq!(read_all(&again), found, "{context}");
        assert_eq!(second.truncated_bytes, 0, "{context}");
        assert_eq!(second.quorum_state, recovered.quorum_state, "{context}");
        (disk, count)
    }
}

/// Runs `script` until the crash, or to its end; says whether it crashed.
fn run<D: Disk>(script: &[Step], disk: D) -> (Promise, bool) {
    let mut promise = Promise {
        quorum_states: vec![None],
        ..Promise::default()
    };
    let Ok((mut storage, _)) = Storage::open(disk, &identity(), OPTIONS) else {
        return (promise, true);
    };
    for step in script {
        if promise.carry_out(*step, &mut storage).is_err() {
            assert!(matches!(storage.sync(), Err(StorageError::Stopped)));
            return (promise, true);
        }
    }
    (promise, false)
}

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

#[test]
fn no_crash_loses_what_was_synced_or_stops_the_next_start() {
    for script in [MIXED, CUTS] {
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
    for script in [MIXED, CUTS] {
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
    for script in [MIXED, CUTS] {
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
    for script in [MIXED, CUTS] {
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
