//! Owns reading batches and the frames before them from bytes, as the format of the node's files says.
//! Never shares code with the node: whoever reads with the same mistake as the writer sees nothing.
//!
//! All integers are big-endian. A segment of the log is a sequence of frames; one that announces a batch
//! is followed by it:
//!
//! ```text
//! frame: crc u32 | kind u8 | batch_bytes u32 | position u64 | durable_bytes u64 | previous_crc u32
//! batch: crc u32 | length u32 | magic u8 | attributes u8 | base_offset i64 | epoch i32 |
//!        timestamp_ms i64 | record_count u32 | record_count x (length u32, payload)
//! ```
//!
//! Both checksums are CRC-32C, over what follows them.

use results::disk_image::StoredBatch;

const FRAME_BYTES: usize = 29;
const BATCH_HEADER_BYTES: usize = 34;
const MAGIC: u8 = 0x4b;
const CONTROL: u8 = 1;

/// Big-endian integers from the beginning of bytes that were found to be long enough.
fn u32_at(bytes: &[u8], at: usize) -> Option<u32> {
    let four = bytes.get(at..at + 4)?;
    Some(u32::from_be_bytes(four.try_into().ok()?))
}

fn u64_at(bytes: &[u8], at: usize) -> Option<u64> {
    let eight = bytes.get(at..at + 8)?;
    Some(u64::from_be_bytes(eight.try_into().ok()?))
}

/// What a frame announces.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) enum Announced {
    /// A batch of so many bytes follows.
    Batch { batch_bytes: usize },
    /// Nothing but a witness that what comes before was synced.
    Seal,
    /// The log goes on in another file.
    Close,
}

/// A frame, and the checksum of the batch that it says comes before it.
#[derive(Debug, Clone, Copy, PartialEq, Eq)]
pub(super) struct Frame {
    pub(super) announced: Announced,
    pub(super) previous_crc: u32,
}

/// The frame at `position` of a segment, and where it ends.
pub(super) fn frame(segment: &[u8], position: usize) -> Result<(Frame, usize), String> {
    let bytes = segment
        .get(position..position + FRAME_BYTES)
        .ok_or("a frame that is cut off")?;
    if u32_at(bytes, 0) != Some(crc32c::crc32c(&bytes[4..])) {
        return Err("no frame, or one with a wrong checksum".into());
    }
    if u64_at(bytes, 9) != Some(position as u64) {
        return Err("a frame that belongs elsewhere".into());
    }
    let batch_bytes = u32_at(bytes, 5).unwrap_or(0) as usize;
    let announced = match bytes[4] {
        1 => Announced::Batch { batch_bytes },
        2 => Announced::Seal,
        3 => Announced::Close,
        kind => return Err(format!("a frame of the unknown kind {kind}")),
    };
    let previous_crc = u32_at(bytes, 25).unwrap_or(0);
    let frame = Frame {
        announced,
        previous_crc,
    };
    Ok((frame, position + FRAME_BYTES))
}

/// A batch whose checksum is right.
#[derive(Debug, Clone, Copy)]
pub(super) struct Batch<'a> {
    pub(super) stored: StoredBatch,
    pub(super) is_control: bool,
    pub(super) length_bytes: usize,
    records: &'a [u8],
}

/// The batch at the beginning of `bytes`.
pub(super) fn batch(bytes: &[u8]) -> Result<Batch<'_>, String> {
    let cut = || "a batch that is cut off".to_owned();
    let length_bytes = u32_at(bytes, 4).ok_or_else(cut)? as usize;
    let whole = bytes.get(..length_bytes).ok_or_else(cut)?;
    if length_bytes < BATCH_HEADER_BYTES {
        return Err("a batch that is shorter than its header".into());
    }
    let crc = u32_at(whole, 0).ok_or_else(cut)?;
    if crc32c::crc32c(&whole[4..]) != crc {
        return Err("a batch with a wrong checksum".into());
    }
    if whole[8] != MAGIC {
        return Err(format!("a batch of the unknown layout {:#04x}", whole[8]));
    }
    let base_offset = u64_at(whole, 10).ok_or_else(cut)? as i64;
    let record_count = i64::from(u32_at(whole, 30).ok_or_else(cut)?);
    if base_offset < 0 || record_count == 0 || base_offset.checked_add(record_count).is_none() {
        return Err("a batch with an impossible base offset, or without records".into());
    }
    Ok(Batch {
        stored: StoredBatch {
            base_offset,
            last_offset: base_offset + record_count - 1,
            epoch: u32_at(whole, 18).ok_or_else(cut)? as i32,
            crc,
        },
        is_control: whole[9] & CONTROL != 0,
        length_bytes,
        records: &whole[BATCH_HEADER_BYTES..],
    })
}

impl<'a> Batch<'a> {
    /// Its records, in order; one that is cut off, and all after it, are left out.
    pub(super) fn records(&self) -> impl Iterator<Item = &'a [u8]> {
        let mut rest = self.records;
        std::iter::from_fn(move || {
            let length = u32_at(rest, 0)? as usize;
            let record = rest.get(4..4 + length)?;
            rest = &rest[4 + length..];
            Some(record)
        })
    }
}
