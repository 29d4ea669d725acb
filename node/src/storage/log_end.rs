//! Owns the `log-end` file: how far the log was durable once, told outside of the log.
//! Never says how far the log really goes; it may go further.
//!
//! Frames bear witness to what is before them, so nothing in a log tells of an end that was lost: a file that
//! was cut off, or emptied, looks like one that never got further. This file does. It is there from
//! the beginning, as `meta.properties` says, so that it cannot be lost unnoticed either. It is replaced every few seconds
//! while the log grows, when the log is sealed, that is in quiet moments and at a clean stop (compare Kafka's
//! `.kafka_cleanshutdown`), and before the log is cut below what it says. One line: version, end offset, checksum of the last batch where it is
//! known, and a checksum over all that.

use std::io;

use crate::ids::{Offset, SnapshotId};
use crate::storage::disk::{Disk, DiskSync, read_whole};
use crate::storage::error::{OpenError, StorageError, read_error, write_error};
use crate::storage::line;
use crate::storage::quorum_state::replace;
use crate::storage::segment::{Segment, entry_up_to, file_name};

/// Name of the file.
pub const FILE: &str = "log-end";
/// What the file is called until it is complete.
pub(crate) const TEMPORARY_FILE: &str = "log-end.tmp";

/// What is written for a checksum that is not known.
const UNKNOWN: &str = "-";

/// An end that the log had once.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct LogEnd {
    pub(crate) end_offset: Offset,
    /// Of the batch that ends there; `None` where a snapshot is all that is before.
    pub(crate) last_crc: Option<u32>,
}

impl LogEnd {
    /// The end of a log that never had a batch.
    pub(crate) const NONE: Self = Self {
        end_offset: Offset(0),
        last_crc: None,
    };
}

/// Begins to replace the file, for those who do not wait for that: [`finish`] is to be called once what is returned
/// has run, unless the log was cut meanwhile.
pub(crate) fn begin<D: Disk>(disk: &mut D, end: LogEnd) -> Result<[DiskSync; 2], StorageError> {
    disk.write(TEMPORARY_FILE, encode(end).as_bytes())
        .map_err(write_error("write", TEMPORARY_FILE))?;
    let content = disk
        .begin_sync(TEMPORARY_FILE)
        .map_err(write_error("sync", TEMPORARY_FILE))?;
    // For the name that the file got the last time.
    let names = disk
        .begin_sync_directory()
        .map_err(write_error("sync the directory for", FILE))?;
    Ok([content, names])
}

/// Replaces the file. Until the next of its kind has begun, it is left to chance whether a power cut brings back the
/// one before, which says less, and nothing wrong.
pub(crate) fn finish<D: Disk>(disk: &mut D, outcome: io::Result<()>) -> Result<(), StorageError> {
    outcome.map_err(write_error("sync", TEMPORARY_FILE))?;
    disk.rename(TEMPORARY_FILE, FILE)
        .map_err(write_error("replace", FILE))
}

/// Replaces the file. Durable on return.
pub(crate) fn write<D: Disk>(disk: &mut D, end: LogEnd) -> Result<(), StorageError> {
    replace(disk, FILE, TEMPORARY_FILE, encode(end).as_bytes())
}

/// Reads the file; `None` where there is none.
pub(crate) fn read<D: Disk>(disk: &D) -> Result<Option<LogEnd>, OpenError> {
    let bytes = read_whole(disk, FILE).map_err(read_error("read", FILE))?;
    bytes.map(|bytes| decode(&bytes)).transpose()
}

/// Refuses a log that does not go as far as it did.
pub(crate) fn check(
    end: LogEnd,
    segments: &[Segment],
    log_start: SnapshotId,
    reset_to: Option<SnapshotId>,
) -> Result<(), OpenError> {
    let log_end = segments
        .last()
        .map_or(log_start.end_offset, Segment::end_offset);
    if let Some(snapshot) = reset_to
        && snapshot.end_offset >= end.end_offset
    {
        // All of it is in the snapshot, and the log is dropped anyway.
        return Ok(());
    }
    if log_end < end.end_offset {
        let last = segments.iter().rfind(|segment| !segment.entries.is_empty());
        let last = last.or(segments.last());
        return Err(OpenError::Damaged {
            file: last.map_or_else(|| file_name(log_start.end_offset), |it| it.file.clone()),
            position_bytes: last.map_or(0, |it| it.length_bytes),
            expected: format!(
                "the batch with base offset {log_end}: {FILE} says that everything below offset {} was \
                 durable",
                end.end_offset
            ),
            found: "the end of the log".to_owned(),
        });
    }
    let last = entry_up_to(segments, end.end_offset);
    let Some((last, last_crc)) = last.zip(end.last_crc) else {
        return Ok(());
    };
    if end.end_offset <= log_start.end_offset
        || (last.end_offset, last.crc) == (end.end_offset, last_crc)
    {
        return Ok(());
    }
    let segment = segments
        .iter()
        .rfind(|segment| segment.base_offset <= last.base_offset);
    Err(OpenError::Damaged {
        file: segment.map_or_else(String::new, |segment| segment.file.clone()),
        position_bytes: last.position_bytes,
        expected: format!(
            "a batch with checksum {last_crc:08x} that ends at offset {}, as {FILE} says",
            end.end_offset
        ),
        found: format!(
            "one with checksum {:08x} that ends at offset {}: one of the two is an older version",
            last.crc, last.end_offset
        ),
    })
}

fn encode(end: LogEnd) -> String {
    let last_crc = end.last_crc;
    let last_crc = last_crc.map_or_else(|| UNKNOWN.to_owned(), |crc| format!("{crc:08x}"));
    line::encode(&format!("{} {last_crc}", end.end_offset))
}

fn decode(bytes: &[u8]) -> Result<LogEnd, OpenError> {
    let expected = "a version, an offset and two matching checksums";
    line::decode(FILE, bytes, expected, |words| {
        let [end_offset, last_crc, _] = *words else {
            return None;
        };
        let end = LogEnd {
            end_offset: Offset(end_offset.parse().ok()?),
            last_crc: u32::from_str_radix(last_crc, 16).ok(),
        };
        Some((end, encode(end)))
    })
}

#[cfg(test)]
mod tests {
    use super::*;
    use crate::storage::tests::notices_all_damage;

    const ENDS: [LogEnd; 2] = [
        LogEnd {
            end_offset: Offset(9_900),
            last_crc: Some(0x0123_abcd),
        },
        LogEnd {
            end_offset: Offset(7),
            last_crc: None,
        },
    ];

    #[test]
    fn ends_come_back() {
        assert!(encode(ENDS[0]).starts_with("1 9900 0123abcd "));
        assert!(encode(ENDS[1]).starts_with("1 7 - "));
        for end in ENDS {
            assert_eq!(decode(encode(end).as_bytes()).unwrap(), end);
        }
    }

    #[test]
    fn every_flipped_bit_and_every_cut_is_refused() {
        for end in ENDS {
            notices_all_damage(encode(end).as_bytes(), decode);
        }
    }

    #[test]
    fn an_unknown_version_is_named() {
        let refused = decode(encode(ENDS[0]).replacen('1', "2", 1).as_bytes()).unwrap_err();
        assert!(matches!(refused, OpenError::Version { .. }), "{refused}");
    }
}
