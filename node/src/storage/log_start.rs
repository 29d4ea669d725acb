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
use crate::storage::line;
use crate::storage::quorum_state::replace;

/// Name of the file.
pub const FILE: &str = "log-start";
/// What the file is called until it is complete.
const TEMPORARY_FILE: &str = "log-start.tmp";

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
    line::encode(&start.to_string())
}

/// Reads the content of the file.
///
/// # Errors
/// If it is damaged or of another version.
pub fn decode(bytes: &[u8]) -> Result<SnapshotId, OpenError> {
    let expected = "a version, the name of a snapshot and a matching checksum";
    line::decode(FILE, bytes, expected, |words| {
        let name = words.first()?;
        let start = checkpoint::snapshot_id(&format!("{name}.checkpoint"))?;
        Some((start, encode(start)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::ids::{Epoch, Offset};
    use crate::storage::tests::notices_all_damage;

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
        notices_all_damage(encode(START).as_bytes(), decode);
    }

    #[test]
    fn an_unknown_version_is_named() {
        let refused = decode(encode(START).replacen('1', "2", 1).as_bytes()).unwrap_err();
        assert!(matches!(refused, OpenError::Version { .. }), "{refused}");
    }
}
