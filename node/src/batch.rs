//! Owns the record batch: its layout in memory, on disk and on the wire, which is one and the same.
//! Never decides whether a batch may be appended.
//!
//! All integers are big-endian. The checksum covers every byte after itself, so no header field can
//! rot unnoticed (Kafka's own v2 format leaves base offset, length and epoch uncovered):
//!
//! ```text
//! crc u32 | length u32 | magic u8 | attributes u8 | base_offset i64 | epoch i32 | timestamp_ms i64 |
//! record_count u32 | record_count x (length u32, payload)
//! ```
//!
//! `length` counts the bytes of the whole batch. Attribute bit 0 marks control batches.

#![deny(clippy::disallowed_types, clippy::disallowed_methods)]

use std::hash::{Hash, Hasher};
use std::sync::Arc;

use crate::ids::{Epoch, Offset};

/// Bytes before the first record.
pub const HEADER_BYTES: usize = 34;
/// Largest batch that is written or accepted (Kafka: 8 MiB).
pub const MAX_BATCH_BYTES: usize = 8 * 1024 * 1024;

const MAGIC: u8 = 0x4b;
const CONTROL: u8 = 1;

/// A verified batch. Cloning shares the bytes.
#[derive(Debug, Clone, PartialEq, Eq)]
pub struct Batch {
    bytes: Arc<[u8]>,
    base_offset: Offset,
    epoch: Epoch,
    record_count: u32,
    control: bool,
}

impl Hash for Batch {
    /// The checksum stands for everything after itself.
    fn hash<H: Hasher>(&self, state: &mut H) {
        (self.crc(), self.base_offset, self.epoch).hash(state);
    }
}

/// Why bytes are not a batch.
#[derive(Debug, Clone, Copy, PartialEq, Eq, thiserror::Error)]
pub enum BatchError {
    /// The bytes end before the batch does.
    #[error("the bytes end inside the batch")]
    Incomplete,
    /// The checksum does not match.
    #[error("the checksum does not match")]
    Checksum,
    /// The checksum matches, but a field holds what no writer of this version writes.
    #[error("a header field is invalid")]
    Field,
}

impl Batch {
    /// Builds a batch of at least one record.
    ///
    /// # Panics
    /// If there is no record, or the batch would exceed [`MAX_BATCH_BYTES`]; callers bound both.
    pub fn build<R: AsRef<[u8]>>(
        base_offset: Offset,
        epoch: Epoch,
        timestamp_ms: i64,
        control: bool,
        records: &[R],
    ) -> Self {
        assert!(!records.is_empty(), "a batch holds at least one record");
        let length = HEADER_BYTES
            + records
                .iter()
                .map(|record| 4 + record.as_ref().len())
                .sum::<usize>();
        assert!(
            length <= MAX_BATCH_BYTES,
            "a batch of {length} bytes is too large"
        );
        let mut bytes = Vec::with_capacity(length);
        bytes.extend_from_slice(&[0; 4]);
        bytes.extend_from_slice(&(length as u32).to_be_bytes());
        bytes.push(MAGIC);
        bytes.push(if control { CONTROL } else { 0 });
        bytes.extend_from_slice(&base_offset.0.to_be_bytes());
        bytes.extend_from_slice(&epoch.0.to_be_bytes());
        bytes.extend_from_slice(&timestamp_ms.to_be_bytes());
        bytes.extend_from_slice(&(records.len() as u32).to_be_bytes());
        for record in records {
            bytes.extend_from_slice(&(record.as_ref().len() as u32).to_be_bytes());
            bytes.extend_from_slice(record.as_ref());
        }
        let crc = crc32c::crc32c(&bytes[4..]);
        bytes[..4].copy_from_slice(&crc.to_be_bytes());
        Self {
            bytes: bytes.into(),
            base_offset,
            epoch,
            record_count: records.len() as u32,
            control,
        }
    }

    /// Reads and verifies the batch at the start of `bytes`, which may go on after it.
    pub fn parse(bytes: &[u8]) -> Result<Self, BatchError> {
        Self::parse_with(bytes, true)
    }

    /// Reads the batch at the start of `bytes` without looking at its checksum: a deliberate mistake
    /// for a seeded bug, never right.
    pub(crate) fn parse_unverified(bytes: &[u8]) -> Result<Self, BatchError> {
        Self::parse_with(bytes, false)
    }

    fn parse_with(bytes: &[u8], verify_checksum: bool) -> Result<Self, BatchError> {
        let field = |at: usize| {
            bytes
                .get(at..at + 4)
                .map(|slice| [slice[0], slice[1], slice[2], slice[3]])
        };
        let crc = u32::from_be_bytes(field(0).ok_or(BatchError::Incomplete)?);
        let length = u32::from_be_bytes(field(4).ok_or(BatchError::Incomplete)?) as usize;
        if !(HEADER_BYTES + 4..=MAX_BATCH_BYTES).contains(&length) {
            return Err(BatchError::Field);
        }
        let whole = bytes.get(..length).ok_or(BatchError::Incomplete)?;
        if verify_checksum && crc32c::crc32c(&whole[4..]) != crc {
            return Err(BatchError::Checksum);
        }
        let long = |at: usize| {
            let mut value = [0; 8];
            value.copy_from_slice(&whole[at..at + 8]);
            i64::from_be_bytes(value)
        };
        let (magic, attributes) = (whole[8], whole[9]);
        let base_offset = long(10);
        let epoch = i32::from_be_bytes([whole[18], whole[19], whole[20], whole[21]]);
        let record_count = u32::from_be_bytes([whole[30], whole[31], whole[32], whole[33]]);
        let batch = Self {
            bytes: whole.into(),
            base_offset: Offset(base_offset),
            epoch: Epoch(epoch),
            record_count,
            control: attributes & CONTROL != 0,
        };
        let sound = magic == MAGIC
            && attributes & !CONTROL == 0
            && base_offset >= 0
            && base_offset.checked_add(i64::from(record_count)).is_some()
            && epoch >= 0
            && record_count > 0
            && batch.records_fill_the_batch();
        if sound {
            Ok(batch)
        } else {
            Err(BatchError::Field)
        }
    }

    /// Reads and verifies consecutive batches until the bytes end; a partial last batch is an error.
    pub fn parse_all(mut bytes: &[u8]) -> Result<Vec<Self>, BatchError> {
        let mut batches = Vec::new();
        while !bytes.is_empty() {
            let batch = Self::parse(bytes)?;
            bytes = &bytes[batch.bytes.len()..];
            batches.push(batch);
        }
        Ok(batches)
    }

    fn records_fill_the_batch(&self) -> bool {
        let mut rest = &self.bytes[HEADER_BYTES..];
        for _ in 0..self.record_count {
            let Some((length, tail)) = rest.split_first_chunk::<4>() else {
                return false;
            };
            let Some(tail) = tail.get(u32::from_be_bytes(*length) as usize..) else {
                return false;
            };
            rest = tail;
        }
        rest.is_empty()
    }

    /// The batch as it is stored and sent.
    pub fn bytes(&self) -> &[u8] {
        &self.bytes
    }

    /// Offset of the first record.
    pub fn base_offset(&self) -> Offset {
        self.base_offset
    }

    /// Offset of the last record.
    pub fn last_offset(&self) -> Offset {
        Offset(self.base_offset.0 + i64::from(self.record_count) - 1)
    }

    /// Offset after the last record.
    pub fn end_offset(&self) -> Offset {
        Offset(self.base_offset.0 + i64::from(self.record_count))
    }

    /// Epoch of the leader that built the batch.
    pub fn epoch(&self) -> Epoch {
        self.epoch
    }

    /// Wall-clock time of the leader that built the batch, in milliseconds; informational only.
    pub fn timestamp_ms(&self) -> i64 {
        let mut timestamp = [0; 8];
        timestamp.copy_from_slice(&self.bytes[22..30]);
        i64::from_be_bytes(timestamp)
    }

    /// Whether the records are control records (leader change), not commands.
    pub fn is_control(&self) -> bool {
        self.control
    }

    /// CRC-32C over everything after the checksum itself.
    pub fn crc(&self) -> u32 {
        u32::from_be_bytes([self.bytes[0], self.bytes[1], self.bytes[2], self.bytes[3]])
    }

    /// The payloads with their offsets.
    pub fn records(&self) -> impl Iterator<Item = (Offset, &[u8])> {
        let mut rest = &self.bytes[HEADER_BYTES..];
        (0..i64::from(self.record_count)).map(move |delta| {
            // Lengths were verified when the batch was parsed or built.
            let length = u32::from_be_bytes([rest[0], rest[1], rest[2], rest[3]]) as usize;
            let payload = &rest[4..4 + length];
            rest = &rest[4 + length..];
            (Offset(self.base_offset.0 + delta), payload)
        })
    }
}

#[cfg(test)]
mod tests {
    use super::*;

    fn sample() -> Batch {
        Batch::build(
            Offset(7),
            Epoch(3),
            1_700_000_000_000,
            false,
            &[&b"one"[..], b"", b"three"],
        )
    }

    #[test]
    fn a_built_batch_parses_back() {
        let batch = sample();
        let mut bytes = batch.bytes().to_vec();
        bytes.extend_from_slice(b"what follows");
        let parsed = Batch::parse(&bytes).unwrap();
        assert_eq!(parsed, batch);
        assert_eq!(parsed.timestamp_ms(), 1_700_000_000_000);
        let records: Vec<_> = parsed.records().collect();
        assert_eq!(
            records,
            [
                (Offset(7), &b"one"[..]),
                (Offset(8), b""),
                (Offset(9), b"three")
            ]
        );
        assert_eq!(
            (parsed.last_offset(), parsed.end_offset()),
            (Offset(9), Offset(10))
        );
    }

    #[test]
    fn every_flipped_bit_is_noticed() {
        let bytes = sample().bytes().to_vec();
        for bit in 0..bytes.len() * 8 {
            let mut damaged = bytes.clone();
            damaged[bit / 8] ^= 1 << (bit % 8);
            assert!(Batch::parse(&damaged).is_err(), "bit {bit} went unnoticed");
        }
    }

    #[test]
    fn every_shortened_batch_is_noticed() {
        let bytes = sample().bytes().to_vec();
        for length in 0..bytes.len() {
            assert!(Batch::parse(&bytes[..length]).is_err(), "length {length}");
        }
    }
}
