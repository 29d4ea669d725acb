//! Owns the check that damage to what bears witness to itself never goes unnoticed.
//! Never says what happens to the rest, which looks like a torn write.

use proptest::prelude::*;

use super::crash_disk::CrashDisk;
use super::damage::{flipped, refused, with};
use super::{Image, batch, open};
use crate::storage::witness::of_log;

/// A log of batches of these sizes; `true` syncs what was written by then.
fn log(batches: &[(usize, bool)], seal: bool) -> Image {
    let disk = CrashDisk::default();
    let (mut storage, _) = open(&disk).unwrap();
    for (offset, (record_bytes, sync)) in batches.iter().enumerate() {
        let batch = batch(offset as i64, 1, 1, *record_bytes);
        storage.append(&batch).unwrap();
        if *sync {
            storage.sync().unwrap();
        }
    }
    storage.sync().unwrap();
    if seal {
        storage.seal().unwrap();
    }
    disk.durable_image()
}

proptest! {
    #[test]
    fn whatever_is_changed_there_is_noticed(
        batches in prop::collection::vec((1..900_usize, any::<bool>()), 1..14),
        seal in any::<bool>(),
        draws in prop::collection::vec(any::<prop::sample::Index>(), 4),
    ) {
        let image = log(&batches, seal);
        let witnessed = of_log(&image);
        if seal || batches.len() > 8 {
            prop_assert!(witnessed.iter().any(|segment| segment.bytes > 0));
        }
        for segment in witnessed.iter().filter(|segment| segment.bytes > 0) {
            let context = format!("{segment:?}");
            let at = draws[0].index(segment.bytes as usize);
            refused(&flipped(&image, &segment.file, at), &context);
            if segment.whole {
                let mut bytes = image[&segment.file].clone();
                bytes.truncate(at);
                refused(&with(&image, &segment.file, bytes), &context);
            }
            if segment.batches.is_empty() {
                continue;
            }
            let lost = &segment.batches[draws[1].index(segment.batches.len())];
            let lost = lost.start as usize..lost.end as usize;
            let mut zeroed = image[&segment.file].clone();
            zeroed[lost.clone()].fill(0);
            refused(&with(&image, &segment.file, zeroed.clone()), &context);
            // The same write in another place.
            let to = draws[2].index(segment.bytes as usize);
            let to_end = (to + lost.len()).min(segment.bytes as usize);
            let written = image[&segment.file][lost][..to_end - to].to_vec();
            zeroed[to..to_end].copy_from_slice(&written);
            if zeroed != image[&segment.file] {
                refused(&with(&image, &segment.file, zeroed), &context);
            }
        }
    }
}
