//! Owns the snapshot file: its name, its layout, and the reading of it with every byte checked.
//! Never writes one, and never knows what the records in it mean.
//!
//! A snapshot is named by its [`SnapshotId`] (KIP-630) and is a sequence of batches whose offsets
//! count from 0, whatever the offsets of the log were:
//!
//! 1. one control batch: the snapshot header and, if voters are in the log (kraft.version 1 or
//!    newer), the version and the voters as of the snapshot's end;
//! 2. data batches with the records of the state machine;
//! 3. one control batch: the snapshot footer, and nothing after it.
//!
//! All batches carry the epoch of the snapshot. The bootstrap snapshot, which formatting leaves,
//! has no data batches.

use std::io;

use crate::batch::{Batch, MAX_BATCH_BYTES};
use crate::control_record::ControlRecord;
use crate::ids::{Epoch, Offset, SnapshotId};
use crate::raft::RecordedVoters;
use crate::storage::disk::{Disk, not_found};
use crate::storage::error::{OpenError, StorageError};
use crate::storage::segment::Damage;

const SUFFIX: &str = ".checkpoint";
/// How the names of snapshots end that are not complete yet.
pub(crate) const PART_SUFFIX: &str = ".part";
/// What follows the name of a snapshot while it is fetched from the leader.
pub(crate) const FETCHED_SUFFIX: &str = ".fetched.part";
/// Version of the layout (Kafka's SnapshotHeader and SnapshotFooter have one each).
const LAYOUT_VERSION: u16 = 0;
/// Where the field of a batch ends that tells its length.
const LENGTH_FIELD_END_BYTES: usize = 8;

/// Name of the file of a complete snapshot.
pub(crate) fn file_name(id: SnapshotId) -> String {
    format!("{id}{SUFFIX}")
}

/// Which snapshot a file is, by its name; `None` if it is no complete snapshot's name.
pub fn snapshot_id(file_name: &str) -> Option<SnapshotId> {
    let digits = |text: &str, count: usize| {
        text.len() == count && text.bytes().all(|byte| byte.is_ascii_digit())
    };
    let (end_offset, epoch) = file_name.strip_suffix(SUFFIX)?.split_once('-')?;
    if !digits(end_offset, 20) || !digits(epoch, 10) {
        return None;
    }
    Some(SnapshotId {
        end_offset: Offset(end_offset.parse().ok()?),
        epoch: Epoch(epoch.parse().ok()?),
    })
}

/// What a snapshot says before its records.
#[derive(Debug, Clone, Default, PartialEq, Eq)]
pub struct SnapshotHeader {
    /// Timestamp of the last batch of the log that is in the snapshot, in milliseconds since 1970.
    pub last_contained_timestamp_ms: i64,
    /// Version and voters as of the end of the snapshot; `None` under kraft.version 0.
    pub voters: Option<RecordedVoters>,
}

impl SnapshotHeader {
    /// The batch that begins snapshot `id`.
    ///
    /// # Panics
    /// If there are voters under kraft.version 0: they are configured then, not stored.
    pub(crate) fn batch(&self, id: SnapshotId) -> Batch {
        let mut records = vec![ControlRecord::SnapshotHeader {
            version: LAYOUT_VERSION,
            last_contained_timestamp_ms: self.last_contained_timestamp_ms,
        }];
        if let Some(RecordedVoters {
            kraft_version,
            voters,
        }) = &self.voters
        {
            assert!(
                *kraft_version >= 1,
                "kraft.version 0 has no voters to store"
            );
            records.push(ControlRecord::KraftVersion {
                version: *kraft_version,
            });
            records.push(ControlRecord::Voters {
                voters: voters.clone(),
            });
        }
        control_batch(id, Offset(0), self.last_contained_timestamp_ms, &records)
    }

    fn of(records: &[ControlRecord]) -> Result<Self, String> {
        let (version, last_contained_timestamp_ms, rest) = match records {
            [
                ControlRecord::SnapshotHeader {
                    version,
                    last_contained_timestamp_ms,
                },
                rest @ ..,
            ] => (*version, *last_contained_timestamp_ms, rest),
            _ => return Err(format!("a control batch of {records:?}")),
        };
        check_layout(version)?;
        let voters = match rest {
            [] => None,
            [
                ControlRecord::KraftVersion { version },
                ControlRecord::Voters { voters },
            ] if *version >= 1 => Some(RecordedVoters {
                kraft_version: *version,
                voters: voters.clone(),
            }),
            _ => return Err(format!("a snapshot header followed by {rest:?}")),
        };
        Ok(Self {
            last_contained_timestamp_ms,
            voters,
        })
    }
}

/// The batch that ends snapshot `id`.
pub(crate) fn footer_batch(id: SnapshotId, base_offset: Offset, timestamp_ms: i64) -> Batch {
    let footer = ControlRecord::SnapshotFooter {
        version: LAYOUT_VERSION,
    };
    control_batch(id, base_offset, timestamp_ms, &[footer])
}

fn control_batch(
    id: SnapshotId,
    base_offset: Offset,
    timestamp_ms: i64,
    records: &[ControlRecord],
) -> Batch {
    let records: Vec<Vec<u8>> = records.iter().map(ControlRecord::encode).collect();
    Batch::build(base_offset, id.epoch, timestamp_ms, true, &records)
}

fn check_layout(version: u16) -> Result<(), String> {
    if version == LAYOUT_VERSION {
        return Ok(());
    }
    Err(format!(
        "layout version {version}, while only {LAYOUT_VERSION} is known here"
    ))
}

/// What may come next in a snapshot.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
enum Stage {
    Header,
    Records,
    End,
}

impl Stage {
    fn expected(self) -> &'static str {
        match self {
            Self::Header => "the snapshot header",
            Self::Records => "a data batch or the snapshot footer",
            Self::End => "the end of the file",
        }
    }
}

#[derive(Debug)]
enum Part {
    Header(SnapshotHeader),
    Records,
    Footer,
}

/// Says of one batch after the other whether it belongs there.
#[derive(Debug)]
struct Layout {
    id: SnapshotId,
    stage: Stage,
    next_offset: Offset,
}

impl Layout {
    fn accept(&mut self, batch: &Batch) -> Result<Part, String> {
        if batch.base_offset() != self.next_offset {
            return Err(format!(
                "a sound batch with base offset {} instead of {}",
                batch.base_offset(),
                self.next_offset
            ));
        }
        if batch.epoch() != self.id.epoch {
            return Err(format!("a sound batch of epoch {}", batch.epoch()));
        }
        let part = match (self.stage, batch.is_control()) {
            (Stage::Header, true) => Part::Header(SnapshotHeader::of(&control_records_of(batch)?)?),
            (Stage::Records, false) if self.id != SnapshotId::BOOTSTRAP => Part::Records,
            (Stage::Records, false) => {
                return Err("a data batch, which a bootstrap snapshot does not have".to_owned());
            }
            (Stage::Records, true) => {
                let records = control_records_of(batch)?;
                let [ControlRecord::SnapshotFooter { version }] = records[..] else {
                    return Err(format!("a control batch of {records:?}"));
                };
                check_layout(version)?;
                Part::Footer
            }
            (Stage::Header, false) => return Err("a data batch".to_owned()),
            (Stage::End, _) => return Err("another batch".to_owned()),
        };
        self.next_offset = batch.end_offset();
        self.stage = match part {
            Part::Footer => Stage::End,
            Part::Header(_) | Part::Records => Stage::Records,
        };
        Ok(part)
    }
}

/// The records of a control batch.
pub(crate) fn control_records_of(batch: &Batch) -> Result<Vec<ControlRecord>, String> {
    batch
        .records()
        .map(|(offset, bytes)| {
            ControlRecord::decode(bytes)
                .map_err(|error| format!("no known control record at offset {offset} ({error})"))
        })
        .collect()
}

/// Why a snapshot could not be read to its end.
#[derive(Debug)]
pub(crate) enum ReadFault {
    Disk {
        position_bytes: u64,
        source: io::Error,
    },
    Damage(Damage),
}

impl ReadFault {
    /// The fault of `file` on a node that is starting.
    pub(crate) fn at_start(self, file: &str) -> OpenError {
        match self {
            Self::Disk { source, .. } => OpenError::Disk {
                action: "read",
                file: file.to_owned(),
                source,
            },
            Self::Damage(damage) => OpenError::Damaged {
                file: file.to_owned(),
                position_bytes: damage.position_bytes,
                expected: damage.expected,
                found: damage.found,
            },
        }
    }

    /// The fault of `file` on a node that is running.
    pub(crate) fn while_running(self, file: &str) -> StorageError {
        match self {
            Self::Disk {
                position_bytes,
                source,
            } => StorageError::Read {
                file: file.to_owned(),
                position_bytes,
                source,
            },
            Self::Damage(damage) => StorageError::SnapshotDamaged {
                file: file.to_owned(),
                position_bytes: damage.position_bytes,
                expected: damage.expected,
                found: damage.found,
            },
        }
    }
}

/// Reads a snapshot from its start, one batch at a time.
#[derive(Debug)]
struct Scan<'disk, D> {
    disk: &'disk D,
    file: String,
    length_bytes: u64,
    position_bytes: u64,
    layout: Layout,
}

impl<'disk, D: Disk> Scan<'disk, D> {
    fn open(disk: &'disk D, file: String, id: SnapshotId) -> Result<Self, ReadFault> {
        let length_bytes = disk
            .length(&file)
            .and_then(|length| length.ok_or_else(|| not_found(&file)))
            .map_err(|source| ReadFault::Disk {
                position_bytes: 0,
                source,
            })?;
        Ok(Self {
            disk,
            file,
            length_bytes,
            position_bytes: 0,
            layout: Layout {
                id,
                stage: Stage::Header,
                next_offset: Offset(0),
            },
        })
    }

    /// The next batch and what it is; `None` at the end of a complete snapshot.
    fn next(&mut self) -> Result<Option<(Part, Batch)>, ReadFault> {
        let at_end = self.position_bytes >= self.length_bytes;
        if at_end && self.layout.stage == Stage::End {
            return Ok(None);
        }
        if at_end || self.layout.stage == Stage::End {
            let found = if at_end {
                "the end of the file".to_owned()
            } else {
                let more_bytes = self.length_bytes - self.position_bytes;
                format!("{more_bytes} bytes after the snapshot footer")
            };
            return Err(self.damage(found));
        }
        let bytes = self.read_batch()?;
        let batch = Batch::parse(&bytes).map_err(|error| self.damage(error.to_string()))?;
        let part = match self.layout.accept(&batch) {
            Ok(part) => part,
            Err(found) => return Err(self.damage(found)),
        };
        self.position_bytes += batch.bytes().len() as u64;
        Ok(Some((part, batch)))
    }

    /// As many bytes as the batch at the position claims to have, or as there are.
    fn read_batch(&self) -> Result<Vec<u8>, ReadFault> {
        let read = |length_bytes| {
            self.disk
                .read(&self.file, self.position_bytes, length_bytes)
                .map_err(|source| ReadFault::Disk {
                    position_bytes: self.position_bytes,
                    source,
                })
        };
        let start = read(LENGTH_FIELD_END_BYTES)?;
        let claimed_bytes = match start.get(4..LENGTH_FIELD_END_BYTES) {
            Some(field) => u32::from_be_bytes([field[0], field[1], field[2], field[3]]) as usize,
            None => return Ok(start),
        };
        read(claimed_bytes.clamp(LENGTH_FIELD_END_BYTES, MAX_BATCH_BYTES))
    }

    fn damage(&self, found: String) -> ReadFault {
        ReadFault::Damage(Damage {
            position_bytes: self.position_bytes,
            expected: self.layout.stage.expected().to_owned(),
            found,
        })
    }

    fn header(&mut self) -> Result<SnapshotHeader, ReadFault> {
        match self.next()? {
            Some((Part::Header(header), _)) => Ok(header),
            other => unreachable!("a layout accepts only a header first, not {other:?}"),
        }
    }
}

/// Reads all of snapshot `id` in `file`; returns what it says before its records, and its size in
/// bytes.
pub(crate) fn verify<D: Disk>(
    disk: &D,
    file: &str,
    id: SnapshotId,
) -> Result<(SnapshotHeader, u64), ReadFault> {
    let mut scan = Scan::open(disk, file.to_owned(), id)?;
    let header = scan.header()?;
    while scan.next()?.is_some() {}
    Ok((header, scan.length_bytes))
}

/// As [`verify`], but reads only the first batch, so nothing tells whether the rest is there.
pub(crate) fn read_header<D: Disk>(
    disk: &D,
    file: &str,
    id: SnapshotId,
) -> Result<(SnapshotHeader, u64), ReadFault> {
    let mut scan = Scan::open(disk, file.to_owned(), id)?;
    Ok((scan.header()?, scan.length_bytes))
}

/// Reads a snapshot that is in memory, batch by batch with its control batches, for people to see.
/// Ends after the first damage.
#[derive(Debug)]
pub struct SnapshotDump<'bytes> {
    bytes: &'bytes [u8],
    position_bytes: usize,
    layout: Layout,
    is_over: bool,
}

impl<'bytes> SnapshotDump<'bytes> {
    /// The content of the file of snapshot `id`.
    pub fn new(bytes: &'bytes [u8], id: SnapshotId) -> Self {
        Self {
            bytes,
            position_bytes: 0,
            layout: Layout {
                id,
                stage: Stage::Header,
                next_offset: Offset(0),
            },
            is_over: false,
        }
    }

    fn read(&mut self) -> Result<Option<Batch>, String> {
        let rest = self.bytes.get(self.position_bytes..).unwrap_or_default();
        let is_complete = self.layout.stage == Stage::End;
        if rest.is_empty() && is_complete {
            return Ok(None);
        }
        if is_complete {
            return Err(format!("{} bytes after the snapshot footer", rest.len()));
        }
        if rest.is_empty() {
            return Err("the end of the file".to_owned());
        }
        let batch = Batch::parse(rest).map_err(|error| error.to_string())?;
        self.layout.accept(&batch)?;
        self.position_bytes += batch.bytes().len();
        Ok(Some(batch))
    }
}

impl Iterator for SnapshotDump<'_> {
    type Item = Result<Batch, String>;

    fn next(&mut self) -> Option<Self::Item> {
        if self.is_over {
            return None;
        }
        let expected = self.layout.stage.expected();
        match self.read() {
            Ok(batch) => batch.map(Ok),
            Err(found) => {
                self.is_over = true;
                let at = self.position_bytes;
                Some(Err(format!(
                    "at byte {at}: expected {expected}, found {found}"
                )))
            }
        }
    }
}

/// Reads the records of one snapshot, batch by batch, so that a large one never is in memory as a
/// whole.
#[derive(Debug)]
pub struct SnapshotReader<'disk, D> {
    scan: Scan<'disk, D>,
    header: SnapshotHeader,
}

impl<'disk, D: Disk> SnapshotReader<'disk, D> {
    /// Opens the complete snapshot `id`.
    pub(crate) fn open(disk: &'disk D, id: SnapshotId) -> Result<Self, StorageError> {
        let file = file_name(id);
        let fault = |fault: ReadFault| fault.while_running(&file);
        let mut scan = Scan::open(disk, file.clone(), id).map_err(fault)?;
        let header = scan.header().map_err(fault)?;
        Ok(Self { scan, header })
    }

    /// What the snapshot says before its records.
    pub fn header(&self) -> &SnapshotHeader {
        &self.header
    }

    /// The next batch of records as the state machine wrote them; `None` after the last one.
    ///
    /// # Errors
    /// If the disk fails or the snapshot is damaged. Records returned before were sound, but they
    /// are only part of the state.
    pub fn next_batch(&mut self) -> Result<Option<Batch>, StorageError> {
        loop {
            let next = self.scan.next();
            match next.map_err(|fault| fault.while_running(&self.scan.file))? {
                Some((Part::Records, batch)) => return Ok(Some(batch)),
                Some((Part::Header(_) | Part::Footer, _)) => {}
                None => return Ok(None),
            }
        }
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_snapshots() {
        let id = SnapshotId {
            end_offset: Offset(9_900),
            epoch: Epoch(7),
        };
        assert_eq!(file_name(id), "00000000000000009900-0000000007.checkpoint");
        for id in [id, SnapshotId::BOOTSTRAP] {
            assert_eq!(snapshot_id(&file_name(id)), Some(id));
        }
        for other in [
            "00000000000000009900-0000000007.checkpoint.part",
            "00000000000000009900-00000000070.checkpoint",
            "00000000000000009900-9999999999.checkpoint",
            "99999999999999999999-0000000007.checkpoint",
            "+0000000000000009900-0000000007.checkpoint",
            "00000000000000009900.checkpoint",
            "00000000000000009900.log",
            "9900-7.checkpoint",
        ] {
            assert_eq!(snapshot_id(other), None, "{other}");
        }
    }
}
