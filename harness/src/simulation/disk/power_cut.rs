//! Owns what a power cut leaves of a disk: lost, torn and reordered writes, and missing names.
//! Never touches what is durable.

use std::collections::BTreeMap;

use super::platter::{File, Platter, apply};
use crate::simulation::draws::Draws;

/// The unit that a disk writes whole or not at all.
const SECTOR_BYTES: usize = 512;

/// What becomes of the unsynced part of a file.
enum Fate {
    Lost,
    Kept,
    /// A prefix of it was written.
    Prefix,
    /// Some sectors of it were written, in no order; the others read as zeros or as garbage.
    Sectors,
}

/// Leaves what `draws` decide. Any number of the changes of names survive, in order; of each file
/// nothing, all, a prefix or any set of sectors of what was not durable. Returns the bytes lost.
pub(super) fn strike(platter: &mut Platter, draws: Draws) -> u64 {
    let applied_count = draws.below(0, platter.changes.len() as u64 + 1) as usize;
    let mut names = std::mem::take(&mut platter.durable_names);
    for change in &platter.changes[..applied_count] {
        apply(&mut names, change);
    }
    let mut before = std::mem::take(&mut platter.files);
    let mut files = BTreeMap::new();
    let mut lost_bytes = 0;
    for id in names.values() {
        let Some(file) = before.remove(id) else {
            continue;
        };
        let content = if file.is_durable() {
            file.visible
        } else {
            lost_bytes += (file.visible.len() - file.durable_bytes) as u64;
            survivor(file, draws.of(1 + *id))
        };
        files.insert(*id, File::settled(content));
    }
    platter.become_durable(names, files);
    lost_bytes
}

/// Changes the file in place: logs are long, and only their ends are at stake.
fn survivor(file: File, draws: Draws) -> Vec<u8> {
    let fate = match draws.below(0, 10) {
        0..4 => Fate::Lost,
        4 => Fate::Kept,
        5..7 => Fate::Prefix,
        _ => Fate::Sectors,
    };
    let start = file.durable_bytes;
    let mut content = file.visible;
    match fate {
        Fate::Lost => {
            content.truncate(start);
            content.extend_from_slice(&file.durable_rest);
        }
        Fate::Kept => {}
        Fate::Prefix => {
            let unsynced_bytes = (content.len() - start) as u64;
            let kept_bytes = draws.below(1, unsynced_bytes + 1) as usize;
            content.truncate(start + kept_bytes);
        }
        Fate::Sectors => {
            let filler = if draws.below(2, 2) == 0 { 0 } else { 0xa5 };
            for (at, byte) in content.iter_mut().enumerate().skip(start) {
                let sector = (at / SECTOR_BYTES) as u64;
                if draws.at(16 + sector) & 1 == 0 {
                    *byte = filler;
                }
            }
        }
    }
    content
}
