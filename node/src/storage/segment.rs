//! Owns one segment of the log: its name, its index, and what its bytes say.
//! Never does I/O.

use std::fmt;

use crate::batch::{Batch, BatchError};
use crate::ids::{Epoch, Offset};
use crate::storage::frame::{FRAME_BYTES, Frame, FrameKind};

/// Name of the segment that starts at `base_offset`.
pub(crate) fn file_name(base_offset: Offset) -> String {
    format!("{base_offset:020}.log", base_offset = base_offset.0)
}

/// Base offset in the name of a segment; `None` if it is not a segment's name.
pub fn base_offset(file_name: &str) -> Option<Offset> {
    let digits = file_name.strip_suffix(".log")?;
    let plain = digits.len() == 20 && digits.bytes().all(|byte| byte.is_ascii_digit());
    plain.then(|| digits.parse().ok().map(Offset)).flatten()
}

/// Where a batch is, and what must be known about it without reading it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct BatchEntry {
    pub(crate) base_offset: Offset,
    pub(crate) end_offset: Offset,
    pub(crate) epoch: Epoch,
    pub(crate) crc: u32,
    /// Position of the batch itself, after its frame.
    pub(crate) position_bytes: u64,
    pub(crate) batch_bytes: u32,
    /// Whether its records are the protocol's own.
    pub(crate) control: bool,
}

impl BatchEntry {
    pub(crate) fn new(batch: &Batch, frame_position_bytes: u64) -> Self {
        Self {
            base_offset: batch.base_offset(),
            end_offset: batch.end_offset(),
            epoch: batch.epoch(),
            crc: batch.crc(),
            position_bytes: frame_position_bytes + FRAME_BYTES as u64,
            batch_bytes: batch.bytes().len() as u32,
            control: batch.is_control(),
        }
    }

    /// Position after the batch.
    pub(crate) fn end_bytes(&self) -> u64 {
        self.position_bytes + u64::from(self.batch_bytes)
    }
}

/// A segment in memory.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Segment {
    pub(crate) base_offset: Offset,
    pub(crate) file: String,
    pub(crate) length_bytes: u64,
    /// How much of it is known to be durable.
    pub(crate) durable_bytes: u64,
    /// The last frame is a seal: all before it is durable, and the disk says so.
    pub(crate) sealed: bool,
    pub(crate) entries: Vec<BatchEntry>,
}

impl Segment {
    pub(crate) fn empty(base_offset: Offset) -> Self {
        Self {
            base_offset,
            file: file_name(base_offset),
            length_bytes: 0,
            durable_bytes: 0,
            sealed: false,
            entries: Vec::new(),
        }
    }

    pub(crate) fn end_offset(&self) -> Offset {
        self.entries
            .last()
            .map_or(self.base_offset, |entry| entry.end_offset)
    }
}

/// The last batch that starts before `end_offset`; `None` where there is none in these segments.
pub(crate) fn entry_up_to(segments: &[Segment], end_offset: Offset) -> Option<&BatchEntry> {
    segments
        .iter()
        .rev()
        .flat_map(|segment| segment.entries.iter().rev())
        .find(|entry| entry.base_offset < end_offset)
}

/// What the next batch of the log has to fit to.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(crate) struct Link {
    pub(crate) log_end: Offset,
    pub(crate) last_epoch: Epoch,
    /// `None` where the batch before is gone with the beginning of the log.
    pub(crate) last_crc: Option<u32>,
}

impl Default for Link {
    fn default() -> Self {
        Self::at(Offset(0))
    }
}

impl Link {
    /// The link of a log whose first segment starts here.
    pub(crate) fn at(base_offset: Offset) -> Self {
        Self {
            log_end: base_offset,
            last_epoch: Epoch(0),
            last_crc: (base_offset == Offset(0)).then_some(0),
        }
    }

    /// The link after `entries`.
    pub(crate) fn after(self, entries: &[BatchEntry]) -> Self {
        entries.last().map_or(self, |last| Self {
            log_end: last.end_offset,
            last_epoch: last.epoch,
            last_crc: Some(last.crc),
        })
    }
}

/// How the sound part of a segment ends. Zeros up to the end of the file are no bytes but the room that a
/// crash left behind it (see [`Disk::reserve`](crate::storage::disk::Disk::reserve)).
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) enum Ending {
    /// With the file.
    Open {
        /// With a seal.
        sealed: bool,
    },
    /// With a close frame, and with the file.
    Closed,
    /// Before bytes that are neither sound nor known to have been durable ever.
    Torn(Damage),
}

/// Bytes that are not what they should be.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Damage {
    pub(crate) position_bytes: u64,
    pub(crate) expected: String,
    pub(crate) found: String,
}

/// What the bytes of a segment say.
#[derive(Debug, Clone, PartialEq, Eq)]
pub(crate) struct Scan {
    pub(crate) entries: Vec<BatchEntry>,
    /// Where the sound part ends.
    pub(crate) sound_bytes: u64,
    pub(crate) ending: Ending,
}

/// Reads a segment from its start, checking every byte.
///
/// # Errors
/// If something is wrong that a write torn by a crash cannot explain: a sound batch that does not
/// fit to the one before, or bad bytes of which a later frame says that they were durable once.
pub(crate) fn scan(bytes: &[u8], before: Link, verify_checksums: bool) -> Result<Scan, Damage> {
    let mut scan = Scan {
        entries: Vec::new(),
        sound_bytes: 0,
        ending: Ending::Open { sealed: false },
    };
    while (scan.sound_bytes as usize) < bytes.len() {
        let position = scan.sound_bytes as usize;
        if bytes[position..].iter().all(|byte| *byte == 0) {
            break;
        }
        let link = before.after(&scan.entries);
        let damage = |found: String| Damage {
            position_bytes: position as u64,
            expected: format!("the batch with base offset {}", link.log_end),
            found,
        };
        if scan.ending == Ending::Closed {
            return Err(damage("bytes after the end of a closed segment".into()));
        }
        match read_item(bytes, position, verify_checksums) {
            Ok((frame, batch)) => {
                check_fit(&frame, batch.as_ref(), link).map_err(damage)?;
                scan.sound_bytes += FRAME_BYTES as u64;
                scan.ending = Ending::Open {
                    sealed: frame.kind == FrameKind::Seal,
                };
                if frame.kind == FrameKind::Close {
                    scan.ending = Ending::Closed;
                }
                if let Some(batch) = batch {
                    let entry = BatchEntry::new(&batch, position as u64);
                    scan.sound_bytes = entry.end_bytes();
                    scan.entries.push(entry);
                }
            }
            Err(flaw) => {
                if let Some(witness) = find_witness(bytes, position) {
                    return Err(damage(format!(
                        "{flaw}, although the frame at byte {} says that the first {} bytes were \
                         durable before it was written",
                        witness.position_bytes, witness.durable_bytes
                    )));
                }
                scan.ending = Ending::Torn(damage(flaw.to_string()));
                break;
            }
        }
    }
    Ok(scan)
}

/// Why there is no sound frame with its batch at some position.
#[derive(Debug)]
pub(crate) enum Flaw {
    Frame,
    Batch(BatchError),
    BatchSize,
}

impl fmt::Display for Flaw {
    fn fmt(&self, formatter: &mut fmt::Formatter<'_>) -> fmt::Result {
        match self {
            Self::Frame => formatter.write_str("no sound frame"),
            Self::Batch(error) => write!(formatter, "a sound frame but a bad batch ({error})"),
            Self::BatchSize => formatter.write_str("a sound frame but a batch of another size"),
        }
    }
}

/// The frame at `position`, and its batch if it has one.
pub(crate) fn read_item(
    bytes: &[u8],
    position: usize,
    verify_checksums: bool,
) -> Result<(Frame, Option<Batch>), Flaw> {
    let frame = Frame::parse(bytes, position).ok_or(Flaw::Frame)?;
    let FrameKind::Batch { batch_bytes } = frame.kind else {
        return Ok((frame, None));
    };
    let rest = &bytes[position + FRAME_BYTES..];
    let whole = rest
        .get(..batch_bytes as usize)
        .ok_or(Flaw::Batch(BatchError::Incomplete))?;
    let parse = if verify_checksums {
        Batch::parse
    } else {
        Batch::parse_unverified
    };
    let batch = parse(whole).map_err(Flaw::Batch)?;
    if batch.bytes().len() != whole.len() {
        return Err(Flaw::BatchSize);
    }
    Ok((frame, Some(batch)))
}

/// Says what is wrong with the place of a sound frame and batch.
pub(crate) fn check_fit(frame: &Frame, batch: Option<&Batch>, link: Link) -> Result<(), String> {
    if let Some(last_crc) = link.last_crc
        && last_crc != frame.previous_crc
    {
        return Err(format!(
            "a sound frame that follows a batch with checksum {:08x}, while the batch before has \
             {last_crc:08x}: one of the two is an older version",
            frame.previous_crc
        ));
    }
    let Some(batch) = batch else {
        return Ok(());
    };
    if batch.base_offset() != link.log_end {
        return Err(format!(
            "a sound batch with base offset {}",
            batch.base_offset()
        ));
    }
    if batch.epoch() < link.last_epoch {
        return Err(format!(
            "a sound batch of epoch {}, while the batch before is of epoch {}",
            batch.epoch(),
            link.last_epoch
        ));
    }
    Ok(())
}

/// Looks after `position`, at every byte, for a frame that was written when what is at `position`
/// was already durable.
pub(crate) fn find_witness(bytes: &[u8], position: usize) -> Option<Frame> {
    (position + 1..bytes.len())
        .filter_map(|candidate| Frame::parse(bytes, candidate))
        .find(|frame| frame.durable_bytes > position as u64)
}

#[cfg(test)]
mod tests {
    use super::*;

    #[test]
    fn names_lead_back_to_offsets() {
        for offset in [0, 7, i64::MAX] {
            assert_eq!(
                base_offset(&file_name(Offset(offset))),
                Some(Offset(offset))
            );
        }
        for other in [
            "7.log",
            "quorum-state",
            "0000000000000000000x.log",
            "+0000000000000000007.log",
            "99999999999999999999.log",
            "00000000000000000007.log.tmp",
        ] {
            assert_eq!(base_offset(other), None, "{other}");
        }
    }
}
