//! Owns the `log-start` file: where a log starts that lost its beginning to a snapshot.
//! Never decides where that is.
//!
//! A log without the file starts at 0. With it, the log starts where the snapshot ends that the
//! file names, which may be inside a segment: batches before it are in the segment still, but not
//! in the log. One line: version, snapshot, and a checksum over both.

use crate::ids::SnapshotId;
use crate::storage::checkpoint;
use crate::storage::disk::{Disk, read_whole};
use crate::storage::error::{OpenError, StorageError, read_error};
use crate::storage::quorum_state::replace;

/// Name of the file.
pub const FILE: &str = "log-start";
/// What the file is called until it is complete.
const TEMPORARY_FILE: &str = "log-start.tmp";

const VERSION: u32 = 1;

/// Replaces the file. Durable on return.
pub(crate) fn write<D: Disk>(disk: &mut D, start: SnapshotId) -> Result<(), StorageError> {
    replace(disk, FILE, TEMPORARY_FILE, encode(start).as_bytes())
}

/// Reads the file; where there is none, the log starts at 0, in epoch 0.
pub(crate) fn read<D: Disk>(disk: &D) -> Result<SnapshotId, OpenError> {
    let bytes = read_whole(disk, FILE).map_err(read_error("read", FILE))?;
    bytes.map_or(Ok(SnapshotId::default()), |bytes| decode(&bytes))
}

fn encode(start: SnapshotId) -> String {
    let line = format!("{VERSION} {start}");
    format!("{line} {:08x}\n", crc32c::crc32c(line.as_bytes()))
}

/// Reads the content of the file.
///
/// # Errors
/// If it is damaged or of another version.
pub fn decode(bytes: &[u8]) -> Result<SnapshotId, OpenError> {
    let text = String::from_utf8_lossy(bytes);
    let mut words = text.split(' ');
    let version = words.next().unwrap_or_default();
    if version != VERSION.to_string() && version.parse::<u32>().is_ok() {
        return Err(OpenError::Version {
            file: FILE,
            field: "version",
            found: version.to_owned(),
            known: VERSION,
        });
    }
    let start = words
        .next()
        .and_then(|name| checkpoint::snapshot_id(&format!("{name}.checkpoint")));
    // There is one way to write a start, so every other text was not written here.
    start
        .filter(|start| encode(*start).as_bytes() == bytes)
        .ok_or_else(|| OpenError::Damaged {
            file: FILE.to_owned(),
            position_bytes: 0,
            expected: "a version, the name of a snapshot and a matching checksum".to_owned(),
            found: format!("{:?}", text.trim_end()),
        })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, Offset};

    const START: SnapshotId = SnapshotId {
        end_offset: Offset(9_900),
        epoch: Epoch(7),
    };

    #[test]
    fn a_start_comes_back() {
        let text = encode(START);
        assert!(
            text.starts_with("1 00000000000000009900-0000000007 "),
            "{text}"
        );
        assert_eq!(decode(text.as_bytes()).unwrap(), START);
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        let bytes = encode(START).into_bytes();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(decode(&damaged).is_err(), "bit {bit} went unnoticed");
        }
        for length in 0..bytes.len() {
            assert!(decode(&bytes[..length]).is_err(), "length {length}");
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let refused = decode(encode(START).replacen('1', "2", 1).as_bytes()).unwrap_err();
        assert!(matches!(refused, OpenError::Version { .. }), "{refused}");
    }
}
